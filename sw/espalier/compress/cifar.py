"""CIFAR-10 as development data: pictures, labels, and their enlargement to the input of a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from espalier.errors import ModelFileError

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

_SIZE = 32
_PER_SHEET = 1000
_ROWS, _COLUMNS = 25, 40

Pictures = npt.NDArray[np.uint8]


def training_pictures(folder: Path, count: int, seed: int) -> Pictures:
    """Draw training pictures at random: uint8[count, 32, 32, 3].

    Args:
        folder: holds train/NN.webp, sheets of 1,000 pictures in 25 rows of 40.
        count: pictures wanted.
        seed: of the random choice.

    Raises:
        ModelFileError: no sheets, an unreadable sheet, or fewer pictures than wanted.

    """
    sheets = sorted((folder / "train").glob("*.webp"))
    if count > len(sheets) * _PER_SHEET:
        raise ModelFileError(
            f"{folder / 'train'} holds {len(sheets)} sheets of {_PER_SHEET} pictures,"
            f" {count} pictures are needed"
        )
    chosen = np.random.default_rng(seed).permutation(len(sheets) * _PER_SHEET)[:count]
    pictures = np.empty((count, _SIZE, _SIZE, 3), np.uint8)
    for sheet in np.unique(chosen // _PER_SHEET):
        where = np.flatnonzero(chosen // _PER_SHEET == sheet)
        pictures[where] = _read_sheet(sheets[sheet])[chosen[where] % _PER_SHEET]
    return pictures


def _read_sheet(path: Path) -> Pictures:
    try:
        pixels = np.asarray(Image.open(path).convert("RGB"))
        grid = pixels.reshape(_ROWS, _SIZE, _COLUMNS, _SIZE, 3)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read sheet of pictures {path}: {error}") from error
    return grid.transpose(0, 2, 1, 3, 4).reshape(_PER_SHEET, _SIZE, _SIZE, 3)


def test_pictures(folder: Path) -> tuple[Pictures, npt.NDArray[np.uint8]]:
    """Read test1000.npz: pictures uint8[N, 32, 32, 3] and labels uint8[N].

    Raises:
        ModelFileError: the file is missing or damaged.

    """
    path = folder / "test1000.npz"
    try:
        with np.load(path) as content:
            return content["x"], content["y"]
    except (OSError, KeyError, ValueError) as error:
        raise ModelFileError(f"cannot read test pictures {path}: {error}") from error


def _enlargement(size: int) -> npt.NDArray[np.float32]:
    """Matrix [size, 32] of bilinear interpolation between pixel centres."""
    position = np.clip((np.arange(size) + 0.5) * _SIZE / size - 0.5, 0, _SIZE - 1)
    left = np.minimum(position.astype(int), _SIZE - 2)
    matrix = np.zeros((size, _SIZE), np.float32)
    matrix[np.arange(size), left] = 1 - (position - left)
    matrix[np.arange(size), left + 1] += position - left
    return matrix


def network_input(picture: Pictures, size: int) -> npt.NDArray[np.float32]:
    """Enlarge and normalise a picture uint8[32, 32, 3]: float32[3, size, size]."""
    values: npt.NDArray[np.float32] = np.divide(picture.transpose(2, 0, 1), 255, dtype=np.float32)
    if size != _SIZE:
        matrix = _enlargement(size)
        values = (matrix @ values @ matrix.T).astype(np.float32, copy=False)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))
    normalised: npt.NDArray[np.float32] = (values - mean) / std
    return normalised
