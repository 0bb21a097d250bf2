"""`espalier compress` from the command line."""

import numpy as np
import pytest
from onnx_net import Net
from PIL import Image
from typer.testing import CliRunner

from espalier.cli.main import app
from espalier.errors import PictureError, UserError
from espalier.frontend import load_onnx
from espalier.ir.storage import load_graph


@pytest.fixture
def folder(tmp_path):
    """A network of two convolutions and 20 pictures."""
    generator = np.random.default_rng(2)
    net = Net((1, 3, 16, 16))
    net.conv(3, 8, strides=[2, 2], pads=[1, 1, 1, 1])
    net.add("Relu")
    net.conv(8, 6, pads=[1, 1, 1, 1])
    net.save(tmp_path / "net.onnx")
    (tmp_path / "photos").mkdir()
    for number in range(20):
        coarse = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        picture = Image.fromarray(np.kron(coarse, np.ones((4, 4, 1), np.uint8)))
        picture.save(tmp_path / "photos" / f"{number:02d}.png")
    return tmp_path


def compress(folder, *more):
    command = [
        "compress",
        str(folder / "net.onnx"),
        "--calibration",
        str(folder / "photos"),
        "--rule",
        "crop",
    ]
    command += ["-o", str(folder / "out.espalier"), *more]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_the_same_seed_gives_the_same_bytes(folder):
    files = []
    for seed in (1, 1):
        assert compress(folder, "--density", "0.5", "--seed", str(seed)).exit_code == 0
        files.append((folder / "out.espalier").read_bytes())
    assert files[0] == files[1]


def test_layers_may_have_bits_of_their_own(folder):
    first, last = [node.name for node in load_onnx(folder / "net.onnx").nodes]
    compress(folder, "--density", "1", "--bits", "3", "--layer-bits", f"{first}=8")
    nodes = {node.name: node for node in load_graph(folder / "out.espalier").nodes}
    assert (nodes[first].weight_bits, nodes[last].weight_bits) == (8, 3)
    assert np.abs(nodes[first].weights).max() > 3 >= np.abs(nodes[last].weights).max()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--layer-bits", "conv1"), "LAYER=BITS"),
        (("--layer-bits", "=4"), "LAYER=BITS"),
        (("--layer-bits", "nosuch=4"), "does not have: nosuch"),
        (("--layer-bits", "nosuch=4", "--bits", "9"), "choose from 1 to 8|does not have"),
        (("--pattern", "banks"), "unknown pattern"),
        (("--density", "0"), "must be above 0"),
    ],
)
def test_wrong_options_are_refused_and_write_nothing(folder, more, message):
    with pytest.raises(UserError, match=message):
        compress(folder, *more)
    assert not (folder / "out.espalier").exists()


def test_few_unreadable_pictures_are_skipped_and_named(folder):
    (folder / "photos" / "03.png").write_bytes(b"no picture")
    result = compress(folder, "--density", "1")
    assert result.exit_code == 0 and "03.png" in result.stderr
    (folder / "out.espalier").unlink()
    for number in (4, 5):
        (folder / "photos" / f"{number:02d}.png").write_bytes(b"no picture")
    with pytest.raises(PictureError, match="3 of 20 pictures cannot be read"):
        compress(folder, "--density", "1")
    assert not (folder / "out.espalier").exists()
