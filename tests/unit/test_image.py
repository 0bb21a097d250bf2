"""Program images: file format, damage, other hardware."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.decode import load_sections
from espalier.backend.image import image_from_bytes, load_image
from espalier.backend.options import CompileOptions
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import ModelFileError

TINY = load_config("tiny")


def make_image(options=None):
    net = RandomNetwork(3, 10, 10)
    net.conv(net.conv("input", 6), 5, (1, 1))
    graph = net.graph()
    graph.metadata = {"labels": ["a", "b"], "mean": [0.5, 0.5, 0.5], "std": np.float32(0.25)}
    return compile_graph(graph, TINY, options or CompileOptions())


IMAGE = make_image()
CONTENT = IMAGE.to_bytes()


def test_round_trip(tmp_path):
    path = tmp_path / "net.espalier"
    IMAGE.save(path)
    loaded = load_image(path, TINY)
    assert loaded == IMAGE
    assert loaded.metadata.preprocessing["std"] == 0.25
    assert [p.name for p in tmp_path.iterdir()] == ["net.espalier"]
    assert IMAGE.metadata.labels == ["a", "b"]
    assert IMAGE.metadata.preprocessing["mean"] == [0.5, 0.5, 0.5]


def test_saving_over_an_image_replaces_it(tmp_path):
    path = tmp_path / "net.espalier"
    path.write_bytes(b"old")
    IMAGE.save(path)
    assert path.read_bytes() == CONTENT
    with pytest.raises(ModelFileError, match="cannot write image"):
        IMAGE.save(tmp_path / "missing" / "net.espalier")


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, len(CONTENT) * 8 - 1))
def test_a_flipped_bit_is_detected(position):
    damaged = bytearray(CONTENT)
    damaged[position // 8] ^= 1 << position % 8
    with pytest.raises(ModelFileError):
        image_from_bytes(bytes(damaged), TINY, "x")


@settings(max_examples=50, deadline=None)
@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_truncated_file_is_detected(length):
    with pytest.raises(ModelFileError):
        image_from_bytes(CONTENT[:length], TINY, "x")


def test_other_hardware_is_refused():
    with pytest.raises(ModelFileError, match=r"is for 'tiny'.*the hardware is 'zcu104'"):
        image_from_bytes(CONTENT, load_config("zcu104"), "x")


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(ModelFileError, match="cannot read image"):
        load_image(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="not an Espalier program image"):
        image_from_bytes(b"something else, long enough to be a header", None, "x")


def test_another_format_version_is_refused():
    import zlib

    head = bytearray(CONTENT[:36])
    struct.pack_into("<I", head, 8, 99)
    struct.pack_into("<I", head, 32, zlib.crc32(bytes(head[:32])))
    with pytest.raises(ModelFileError, match="has format 99"):
        image_from_bytes(bytes(head) + CONTENT[36:], None, "x")


def test_padding_fills_whole_bursts_and_changes_nothing_else():
    plain = make_image(CompileOptions(pad=False))
    burst = TINY.burst_beats * 16
    assert (len(IMAGE.program) - 16) % burst == 0
    assert len(plain.program) < len(IMAGE.program)
    first, second = load_sections(plain.program, TINY), load_sections(IMAGE.program, TINY)
    assert first.program == second.program
    assert all((a == b).all() for a, b in zip(first.streams, second.streams, strict=True))


def test_damaged_sections_are_refused():
    with pytest.raises(ModelFileError, match="no END section"):
        load_sections(IMAGE.program[:-16], TINY)
    with pytest.raises(ModelFileError, match="unknown section"):
        load_sections(b"\x07" + IMAGE.program[1:], TINY)
