"""Pictures of all kinds to input tensors."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from espalier.errors import PictureError
from espalier.ir.graph import Tensor
from espalier.runtime.preprocess import Preprocessing, read_picture, resize_picture

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def preprocessing(**changes):
    metadata = {
        "mean": MEAN,
        "std": STD,
        "picture_size": (14, 14),
        "space_to_depth": 1,
        "preprocessing": "imagenet",
        **changes,
    }
    channels = len(metadata["mean"] or (0, 0, 0)) * metadata["space_to_depth"] ** 2
    return Preprocessing.of(metadata, Tensor("x", channels, 14, 14, 0.02, 113))


def noise(height, width, colours=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, colours)).astype(np.uint8)


def test_quantised_values_are_the_rounded_float_ones():
    p = preprocessing()
    pictures = np.stack([noise(14, 14, seed=s) for s in range(3)])
    real = p.normalise(pictures)
    assert real.shape == (3, 3, 14, 14)
    assert np.allclose(real[1, 2, 3, 4], (pictures[1, 3, 4, 2] / 255 - MEAN[2]) / STD[2], atol=1e-6)
    stored = p.quantise(pictures)
    assert stored.dtype == np.uint8
    back = 0.02 * (stored.astype(float) - 113)
    inside = (stored > 0) & (stored < 255)
    assert np.abs(back - real)[inside].max() <= 0.01 + 1e-5


def test_space_to_depth_orders_phases_before_colours():
    plain, packed = preprocessing(), preprocessing(space_to_depth=2)
    pictures = noise(7, 5)[None]
    whole, phases = plain.quantise(pictures)[0], packed.quantise(pictures)[0]
    assert phases.shape == (12, 4, 3)
    for phase_y, phase_x, colour in np.ndindex(2, 2, 3):
        channel = phases[(phase_y * 2 + phase_x) * 3 + colour]
        want = whole[colour, phase_y::2, phase_x::2]
        assert np.array_equal(channel[: want.shape[0], : want.shape[1]], want)
        assert (channel[want.shape[0] :] == 113).all()
        assert (channel[:, want.shape[1] :] == 113).all()


@pytest.mark.parametrize("size", [(300, 451), (451, 300), (224, 224), (100, 90), (1, 700), (256, 256)])
def test_imagenet_rule_is_resize_then_centre_crop(size):
    picture = Image.fromarray(noise(*size))
    # Smooth, so that the resampling at sub-pixel distances does not matter.
    picture = picture.resize((20, 20), Image.Resampling.BILINEAR).resize(size[::-1], Image.Resampling.BICUBIC)
    got = resize_picture(picture, (224, 224), "imagenet")
    assert got.shape == (224, 224, 3)
    short = min(size)
    long_side = int(max(size) * 256 / short)
    if long_side > 5000:
        return  # the picture that is never made whole
    whole = (256, long_side) if size[1] == short else (long_side, 256)
    resized = np.asarray(picture.resize(whole, Image.Resampling.BILINEAR))
    left, top = round((whole[0] - 224) / 2), round((whole[1] - 224) / 2)
    want = resized[top : top + 224, left : left + 224]
    assert np.abs(got.astype(int) - want).max() <= 1


def test_crop_rule_takes_the_pixels_as_they_are():
    picture = noise(227, 230)
    got = resize_picture(Image.fromarray(picture), (224, 224), "crop")
    assert np.array_equal(got, picture[2:226, 3:227])
    assert resize_picture(Image.fromarray(noise(10, 500)), (224, 224), "crop").shape == (224, 224, 3)


def test_cifar_rule_goes_through_its_own_resolution():
    picture = noise(32, 32)
    assert np.array_equal(resize_picture(Image.fromarray(picture), (32, 32), "cifar"), picture)
    large = Image.fromarray(picture).resize((448, 448), Image.Resampling.NEAREST)
    small = np.asarray(large.resize((32, 32), Image.Resampling.BILINEAR))
    want = np.asarray(Image.fromarray(small).resize((64, 64), Image.Resampling.BILINEAR))
    assert np.array_equal(resize_picture(large, (64, 64), "cifar"), want)


def test_modes(tmp_path):
    grey = noise(20, 20, 1)[..., 0]
    rgba = np.dstack([noise(20, 20), np.zeros((20, 20), np.uint8)])
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "wide.png")
    Image.fromarray(rgba).save(tmp_path / "clear.png")
    Image.fromarray(noise(20, 20)).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(noise(20, 20)).convert("CMYK").save(tmp_path / "cmyk.jpg")
    Image.fromarray(grey > 99).save(tmp_path / "bits.png")
    for path in tmp_path.iterdir():
        assert preprocessing().input_tensor(path).shape == (3, 14, 14)
        one = preprocessing(mean=[0.5], std=[0.5]).input_tensor(path)
        assert one.shape == (1, 14, 14)
    assert np.array_equal(np.asarray(read_picture(tmp_path / "wide.png"))[..., 1], grey)
    assert (np.asarray(read_picture(tmp_path / "clear.png")) == 255).all()
    Image.fromarray(grey.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(PictureError, match="floating-point"):
        read_picture(tmp_path / "float.tiff")


def test_orientation_is_applied(tmp_path):
    picture = Image.new("RGB", (30, 10))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.jpg", exif=exif)
    assert read_picture(tmp_path / "turned.jpg").size == (10, 30)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "gif", "bmp", "tiff"])
def test_damaged_files_are_refused(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    Image.fromarray(noise(40, 40)).save(path)
    sound = path.read_bytes()
    for length in [0, 1, 10, len(sound) // 3, len(sound) // 2]:
        path.write_bytes(sound[:length])
        with pytest.raises(PictureError, match="cannot be read"):
            read_picture(path)
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(sound), 100):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            read_picture(path)
        except PictureError as error:
            assert str(path) in str(error)


def test_missing_and_huge_pictures(tmp_path, monkeypatch):
    with pytest.raises(PictureError, match="no picture at"):
        read_picture(tmp_path / "absent.png")
    with pytest.raises(PictureError, match="no picture at"):
        read_picture(tmp_path)
    Image.new("L", (200, 200)).save(tmp_path / "bomb.png")
    for limit in (30_000, 10_000):  # PIL warns above its limit and refuses above twice as much
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(PictureError, match="too large"):
            read_picture(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5, 0.5], "std": [1, 1]}, "2 channels"),
        ({"std": [1, 1, 0]}, "one positive deviation"),
        ({"picture_size": None}, "how to prepare"),
        ({"preprocessing": "mnist"}, "rule 'mnist'"),
    ],
)
def test_incomplete_metadata(changes, message):
    with pytest.raises(PictureError, match=message):
        preprocessing(**changes)


def test_defaults_of_metadata():
    p = preprocessing(mean=None, std=None, preprocessing=None)
    assert (p.mean, p.std, p.rule) == ((0.0,) * 3, (1.0,) * 3, "imagenet")
