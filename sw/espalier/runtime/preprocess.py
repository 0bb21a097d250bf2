"""From a picture file to the network's input tensor."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from espalier.errors import PictureError
from espalier.passes.space_to_depth import rearrange_picture

Bytes = npt.NDArray[np.uint8]

# ImageNet networks see the centre of a picture whose short side is 256 for every 224 that they see.
IMAGENET_SHORT_SIDE, IMAGENET_CROP = 256, 224
# CIFAR networks learn from pictures of this side, enlarged or not: sharper ones would be strange to them.
CIFAR_SIDE = 32
RULES = ("imagenet", "cifar", "crop")


class InputTensor(Protocol):
    """What is needed of the description of the network's input; graphs and program images have it."""

    @property
    def channels(self) -> int:
        """Channels, after space-to-depth."""

    @property
    def scale(self) -> float:
        """Real value of one step."""

    @property
    def zero_point(self) -> int:
        """Stored value of a real zero."""


@dataclass(frozen=True)
class Preprocessing:
    """How pictures become the input tensor of one network.

    size: (height, width) of the picture the network was trained for. rule: "imagenet" (short side resized,
    centre crop), "cifar" (reduced to 32x32 whatever the proportions, then enlarged to `size`) or "crop"
    (centre crop, resized only if too small). mean, std: one number per colour, of values 0..1. factor: of
    space-to-depth.
    """

    size: tuple[int, int]
    rule: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: int
    scale: float
    zero_point: int

    @classmethod
    def of(cls, metadata: Mapping[str, Any], tensor: InputTensor) -> Preprocessing:
        """Read the metadata of a graph or program image; `tensor` describes its input.

        Raises:
            PictureError: the network takes no pictures (colours other than 1 or 3), or its metadata are
                incomplete.

        """
        factor = int(metadata.get("space_to_depth") or 1)
        colours = tensor.channels // factor**2
        rule = str(metadata.get("preprocessing") or "imagenet")
        size = metadata.get("picture_size")
        mean = tuple(float(value) for value in metadata.get("mean") or [0.0] * colours)
        std = tuple(float(value) for value in metadata.get("std") or [1.0] * colours)
        if colours not in (1, 3) or len(mean) != colours or len(std) != colours or min(std) <= 0:
            raise PictureError(
                f"the network's input has {colours} channels with mean {mean} and deviation {std}:"
                " pictures have 1 or 3, with one positive deviation each; give it tensors instead"
            )
        if rule not in RULES or not size or len(size) != 2:
            raise PictureError(
                f"the network does not say how to prepare pictures (size {size}, rule '{rule}', one of"
                f" {', '.join(RULES)}); compress it again with these given"
            )
        return cls(
            (int(size[0]), int(size[1])), rule, mean, std, factor, float(tensor.scale), int(tensor.zero_point)
        )

    def normalise(self, pictures: Bytes) -> npt.NDArray[np.float32]:
        """Pictures uint8[N, H, W, colours] as a float network sees them, float32[N, colours, H, W]."""
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        values = (pictures.astype(np.float32) / np.float32(255) - mean) / std
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))

    def quantise(self, pictures: Bytes) -> Bytes:
        """Pictures uint8[N, H, W, colours] as stored input tensors uint8[N, channels, rows, columns]."""
        # A stored value depends on colour and pixel value only.
        real = (np.arange(256)[:, None] / 255 - np.array(self.mean)) / np.array(self.std)
        table = np.clip(np.rint(real / self.scale) + self.zero_point, 0, 255).astype(np.uint8)
        colours = [table[:, index][pictures[..., index]] for index in range(len(self.mean))]
        stored: Bytes = np.stack(colours, axis=1)
        if self.factor == 1:
            return stored
        packed: Bytes = np.stack([rearrange_picture(one, self.factor, self.zero_point) for one in stored])
        return packed

    def load(self, path: str | Path) -> Bytes:
        """Read a picture file in the size of the network: uint8[H, W, colours].

        Raises:
            PictureError: missing, damaged or unsuitable file.

        """
        return resize_picture(read_picture(path, len(self.mean)), self.size, self.rule)

    def input_tensor(self, path: str | Path) -> Bytes:
        """Read a picture file as the network's stored input: uint8[channels, rows, columns].

        Raises:
            PictureError: missing, damaged or unsuitable file.

        """
        tensor: Bytes = self.quantise(self.load(path)[None])[0]
        return tensor


def read_picture(path: str | Path, colours: int = 3) -> Image.Image:
    """Read a picture file as RGB, or as greyscale if `colours` is 1; transparency becomes white.

    Raises:
        PictureError: missing, damaged, empty, huge or unsuitable file.

    """
    file = Path(path)
    if not file.is_file():
        raise PictureError(f"no picture at {file}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # on damage that does not stop PIL
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as opened:
                opened.load()
                picture = _eight_bits(ImageOps.exif_transpose(opened), file)
    except PictureError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise PictureError(f"picture {file} is too large: {error}") from error
    except Exception as error:  # PIL's decoders raise whatever they stumble over in damaged files
        raise PictureError(f"picture {file} cannot be read: it is damaged or no picture ({error})") from error
    return picture.convert("L" if colours == 1 else "RGB")


def _eight_bits(picture: Image.Image, file: Path) -> Image.Image:
    """Bring wide and transparent pictures to 8 bits without transparency."""
    if picture.mode == "F":
        raise PictureError(f"picture {file} holds floating-point values; save it with 8 or 16 bits")
    if picture.mode.startswith("I"):
        values = np.asarray(picture).astype(np.int64)
        return Image.fromarray(np.clip(values >> 8, 0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return picture


def resize_picture(picture: Image.Image, size: tuple[int, int], rule: str) -> Bytes:
    """Resize and crop to (height, width) by one of `RULES`, bilinearly: uint8[height, width, colours]."""
    height, width = size
    if rule == "cifar":
        picture = picture.resize((CIFAR_SIDE, CIFAR_SIDE), Image.Resampling.BILINEAR)
        box = (0.0, 0.0, float(picture.width), float(picture.height))
    else:
        cover = max(height / picture.height, width / picture.width)
        larger = IMAGENET_SHORT_SIDE / IMAGENET_CROP
        zoom = cover * larger if rule == "imagenet" else max(1.0, cover)
        whole = max(width, int(picture.width * zoom + 1e-6)), max(height, int(picture.height * zoom + 1e-6))
        left, top = round((whole[0] - width) / 2), round((whole[1] - height) / 2)
        # Cropping in the source gives the same pixels and never makes the whole enlarged picture.
        across, down = picture.width / whole[0], picture.height / whole[1]
        box = (
            left * across,
            top * down,
            min((left + width) * across, picture.width),
            min((top + height) * down, picture.height),
        )
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box=box))
    return pixels.reshape(height, width, -1)
