"""Where networks and pictures for compression come from: PyTorch checkpoints, ONNX export, CIFAR-10."""

import numpy as np
import pytest
from PIL import Image

from espalier.compress import cifar
from espalier.compress.from_onnx import picture_files
from espalier.compress.onnx_export import to_onnx
from espalier.compress.pytorch_resnet import load_state, resnet18, resnet20
from espalier.errors import ModelFileError, PictureError
from espalier.frontend.onnx_import import load_onnx
from espalier.ir.float_graph import FloatConv
from espalier.numerics.floating import float_run


class RandomState(dict):
    """A state dictionary with random values."""

    def __init__(self, seed):
        super().__init__()
        self.generator = np.random.default_rng(seed)

    def conv(self, name, norm, filters, channels, kernel):
        shape = (filters, channels, kernel, kernel)
        self[f"{name}.weight"] = self.generator.normal(size=shape).astype(np.float32) / np.float32(channels)
        for part in ("weight", "bias", "running_mean", "running_var"):
            self[f"{norm}.{part}"] = self.generator.uniform(0.5, 1.5, filters).astype(np.float32)

    def blocks(self, stages, blocks, widths, downsample):
        channels = widths[0]
        for stage in range(1, stages + 1):
            filters = widths[stage - 1]
            for index in range(blocks):
                prefix = f"layer{stage}.{index}"
                self.conv(f"{prefix}.conv1", f"{prefix}.bn1", filters, channels, 3)
                self.conv(f"{prefix}.conv2", f"{prefix}.bn2", filters, filters, 3)
                if downsample and filters != channels:
                    self.conv(f"{prefix}.downsample.0", f"{prefix}.downsample.1", filters, channels, 1)
                channels = filters

    def classifier(self, name, classes, channels):
        self[f"{name}.weight"] = self.generator.normal(size=(classes, channels)).astype(np.float32)
        self[f"{name}.bias"] = self.generator.normal(size=classes).astype(np.float32)


@pytest.fixture
def small_resnet18():
    state = RandomState(1)
    state.conv("conv1", "bn1", 4, 3, 7)
    state.blocks(4, 2, (4, 6, 8, 10), downsample=True)
    state.classifier("fc", 3, 10)
    return state


def test_batch_normalisation_is_folded(small_resnet18):
    state = small_resnet18
    graph = resnet18(state, 64)
    picture = np.random.default_rng(0).normal(size=(1, 3, 64, 64)).astype(np.float32)
    found = float_run(graph, picture, {"conv1"})["conv1"][0, :, 5, 7]
    patch = np.pad(picture[0], ((0, 0), (3, 3), (3, 3)))[:, 10:17, 14:21]
    plain = (state["conv1.weight"] * patch).sum(axis=(1, 2, 3))
    normal = (plain - state["bn1.running_mean"]) / np.sqrt(state["bn1.running_var"] + 1e-5)
    wanted = np.maximum(normal * state["bn1.weight"] + state["bn1.bias"], 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert len([node for node in graph.nodes if isinstance(node, FloatConv)]) == 21


def test_shortcuts_without_parameters_pad_channels_on_both_sides():
    state = RandomState(2)
    state.conv("conv1", "bn1", 4, 3, 3)
    state.blocks(3, 3, (4, 8, 16), downsample=False)
    state.classifier("linear", 10, 16)
    graph = resnet20(state)
    picture = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    tensors = float_run(graph, picture, {"layer1.2.conv2", "layer2.0.shortcut"})
    wanted = np.pad(tensors["layer1.2.conv2"][0, :, ::2, ::2], ((2, 2), (0, 0), (0, 0)))
    np.testing.assert_allclose(tensors["layer2.0.shortcut"][0], wanted, rtol=1e-5)


def test_onnx_export_comes_back_the_same(small_resnet18, tmp_path):
    graph = resnet18(small_resnet18, 64)
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(graph).SerializeToString())
    again = load_onnx(path)
    picture = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    wanted = float_run(graph, picture)[graph.output]
    np.testing.assert_allclose(float_run(again, picture)[again.output], wanted, rtol=1e-3, atol=1e-3)


def test_missing_tensors_and_files_are_named(small_resnet18, tmp_path):
    del small_resnet18["layer3.1.bn2.bias"]
    with pytest.raises(ModelFileError, match=r"layer3\.1\.bn2\.bias"):
        resnet18(small_resnet18)
    pytest.importorskip("torch")
    with pytest.raises(ModelFileError, match="absent"):
        load_state(tmp_path / "absent.pt")


def test_folders_named_like_pictures_are_no_pictures(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(PictureError, match="no pictures"):
        picture_files(tmp_path)


def test_training_pictures_are_found_in_their_sheets(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (1000, 32, 32, 3), dtype=np.uint8)
    pictures[:, 0, 0, 0] = np.arange(1000) % 256
    sheet = pictures.reshape(25, 40, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(800, 1280, 3)
    (tmp_path / "train").mkdir()
    Image.fromarray(sheet).save(tmp_path / "train" / "00.webp", lossless=True)
    chosen = cifar.training_pictures(tmp_path, 5, seed=3)
    indices = np.random.default_rng(3).permutation(1000)[:5]
    np.testing.assert_array_equal(chosen, pictures[indices])
    with pytest.raises(ModelFileError, match="1 sheets"):
        cifar.training_pictures(tmp_path, 1001, seed=3)
    with pytest.raises(ModelFileError, match="test1000"):
        cifar.test_pictures(tmp_path)


def test_enlargement_is_bilinear_between_pixel_centres():
    ramp = np.repeat(np.arange(32, dtype=np.uint8)[:, None, None] * 8, 32, axis=1).repeat(3, axis=2)
    tensor = cifar.network_input(ramp, 64)
    values = (tensor[0] * cifar.STD[0] + cifar.MEAN[0]) * 255
    wanted = np.clip((np.arange(64) + 0.5) / 2 - 0.5, 0, 31) * 8
    np.testing.assert_allclose(values, np.repeat(wanted[:, None], 64, axis=1), atol=1e-2)
    assert cifar.network_input(ramp, 32).shape == (3, 32, 32)
