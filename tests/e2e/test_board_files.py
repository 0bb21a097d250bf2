"""Placeholder bitstreams and hardware descriptions, without PYNQ."""

from __future__ import annotations

import struct
from xml.etree import ElementTree

import pytest

from espalier.arch.config import config_from_mapping, load_config
from espalier.arch.registers import REGISTERS, VLNV, Control, Status
from espalier.errors import DeviceError
from espalier.runtime import Accelerator, open_device
from espalier.runtime.placeholder import (
    PLACEHOLDER_MAGIC,
    decode_manifest,
    encode_manifest,
    is_placeholder,
    swap_words,
)
from espalier_sim.board.boards import BOARDS, find_board
from espalier_sim.board.files import write_board_files
from espalier_sim.board.settings import Settings

SYNCHRONISATION = bytes.fromhex("aa995566")  # begins the configuration data of every Xilinx FPGA


@pytest.fixture(params=sorted(BOARDS))
def files(request, tmp_path):
    config = load_config("tiny")
    return config, write_board_files(tmp_path / "files", config, find_board(request.param))


def fields(content):
    """Header fields of a .bit by letter, and its payload."""
    position, found = 2 + struct.unpack(">H", content[:2])[0] + 2, {}
    while content[position : position + 1] != b"e":
        tag, length = (
            content[position : position + 1].decode(),
            struct.unpack(">H", content[position + 1 :][:2])[0],
        )
        found[tag] = content[position + 3 : position + 3 + length].rstrip(b"\0").decode()
        position += 3 + length
    length = struct.unpack(">I", content[position + 1 :][:4])[0]
    assert len(content) == position + 5 + length and length % 4 == 0
    return found, content[position + 5 :]


def test_no_board_can_take_a_placeholder(files):
    config, path = files
    content = path.read_bytes()
    header, payload = fields(content)
    assert path.name.endswith("_simulation.bit") and is_placeholder(path)
    for name in ("a", "b"):
        assert PLACEHOLDER_MAGIC.decode() in header[name]
    assert SYNCHRONISATION not in content and SYNCHRONISATION not in swap_words(payload)
    assert config_from_mapping(decode_manifest(swap_words(payload))["config"], "here") == config


def test_a_real_bitstream_is_no_placeholder(tmp_path):
    (tmp_path / "real.bit").write_bytes(b"\xff" * 64 + SYNCHRONISATION + bytes(5000))
    assert not is_placeholder(tmp_path / "real.bit")
    with pytest.raises(DeviceError, match="real ones cannot be simulated"):
        decode_manifest(b"\xff" * 64)
    with pytest.raises(DeviceError, match="cannot read bitstream"):
        is_placeholder(tmp_path / "nothing.bit")


def test_manifests_come_back():
    for manifest in ({}, {"a": "b" * 5, "c": [1, 2]}):
        payload = encode_manifest(manifest)
        assert decode_manifest(swap_words(swap_words(payload))) == manifest


def test_the_description_has_every_register(files):
    config, path = files
    root = ElementTree.parse(path.with_suffix(".hwh")).getroot()
    module = next(m for m in root.iter("MODULE") if m.get("VLNV") == VLNV)
    found = {}
    for register in module.iter("REGISTER"):
        values = {p.get("NAME"): p.get("VALUE") for p in register.findall("PROPERTY")}
        found[register.get("NAME")] = int(values["ADDRESS_OFFSET"], 16), values["ACCESS"]
    access = {"ro": "read-only", "wo": "write-only", "rw": "read-write"}
    assert found == {r.name: (r.offset, access[r.access]) for r in REGISTERS}
    for name, kind in (("CONTROL", Control), ("STATUS", Status)):
        register = next(r for r in module.iter("REGISTER") if r.get("NAME") == name)
        bits = {
            f.get("NAME"): {p.get("NAME"): int(p.get("VALUE")) for p in f.findall("PROPERTY")}
            for f in register.iter("FIELD")
        }
        assert bits == {m.name: {"BIT_OFFSET": m.value.bit_length() - 1, "BIT_WIDTH": 1} for m in kind}
    parameters = {p.get("NAME"): p.get("VALUE") for p in module.iter("PARAMETER")}
    assert int(parameters["CONFIG_HASH"], 16) == config.hash
    assert float(parameters["CLOCK_MHZ"]) == config.clock_mhz


def test_every_connection_has_two_ends(files):
    root = ElementTree.parse(files[1].with_suffix(".hwh")).getroot()
    pins = {
        (module.get("INSTANCE"), port.get("NAME")): (c.get("INSTANCE"), c.get("PORT"))
        for module in root.iter("MODULE")
        for port in module.iter("PORT")
        for c in port.iter("CONNECTION")
    }
    assert len(pins) == 6 and all(pins[other] == pin for pin, other in pins.items())


def test_settings_of_the_environment():
    assert Settings.of_environment({}) == Settings()
    values = {"ESPALIER_BOARD": "pynqz2", "ESPALIER_STALLS": "7", "ESPALIER_HOST_LATENCY": "10-90"}
    assert Settings.of_environment(values) == Settings("pynqz2", 7, (10, 90))
    assert Settings.of_environment({"ESPALIER_HOST_LATENCY": "20"}).host_latency == (20, 20)
    with pytest.raises(DeviceError, match="must be a number"):
        Settings.of_environment({"ESPALIER_STALLS": "many"})
    with pytest.raises(DeviceError, match="no simulated board 'moon'"):
        find_board("moon")


def test_without_pynq_the_user_learns_what_to_install(files, monkeypatch):
    from driver_networks import classifier

    monkeypatch.setitem(__import__("sys").modules, "pynq", None)
    for name in ("overlay", "pynq_device"):
        monkeypatch.delitem(__import__("sys").modules, f"espalier.runtime.{name}", raising=False)
    with pytest.raises(DeviceError, match=r"needs PYNQ, which cannot be imported .*espalier-accel\[board\]"):
        Accelerator(classifier(), files[1])
    monkeypatch.setenv(open_device.BOARD_VARIABLE, "zcu104")
    monkeypatch.setattr(open_device, "entry_points", lambda group: [])
    with pytest.raises(DeviceError, match="no simulated board is installed"):
        Accelerator(classifier(), files[1])
