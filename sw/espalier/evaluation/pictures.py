"""Pictures to evaluate on, with their classes where they are known."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from espalier.compress.from_onnx import check_skipped, picture_files
from espalier.errors import PictureError
from espalier.runtime.preprocess import Preprocessing

Bytes = npt.NDArray[np.uint8]


@dataclass
class PictureSet:
    """Files and their classes (None: not known); `skipped` names those that could not be read so far."""

    files: list[Path]
    classes: list[int] | None
    skipped: list[str] = field(default_factory=list)

    def read(self, preprocessing: Preprocessing, group: int = 8) -> Iterator[tuple[Bytes, list[int]]]:
        """Yield groups of pictures uint8[n, height, width, colours] and their numbers in `files`.

        Raises:
            PictureError: more than a tenth of the pictures cannot be read, or all of them.

        """
        self.skipped.clear()
        pictures: list[Bytes] = []
        numbers: list[int] = []
        for number, path in enumerate(self.files):
            try:
                pictures.append(preprocessing.load(path))
                numbers.append(number)
            except PictureError as error:
                self.skipped.append(str(error))
                check_skipped(self.skipped, len(self.files))
            if len(pictures) == group:
                yield np.stack(pictures), numbers
                pictures, numbers = [], []
        if pictures:
            yield np.stack(pictures), numbers


def picture_set(folder: Path, table: Path | None, classes: int) -> PictureSet:
    """Pictures of `folder` with the classes of `table`, a CSV file with the columns `file` and `class`.

    Args:
        folder: with the pictures.
        table: of the classes; its pictures only are used. None: all pictures, classes unknown.
        classes: how many classes the network has.

    Raises:
        PictureError: no pictures, or a table that cannot be read or does not fit folder and network.

    """
    if table is None:
        return PictureSet(picture_files(folder), None)
    known = {path.name: path for path in picture_files(folder)}
    files, numbers = [], []
    for line, (name, text) in enumerate(_rows(table), start=2):
        if name not in known:
            raise PictureError(f"{table}, line {line}: no picture '{name}' in {folder}")
        if not text.isdecimal() or int(text) >= classes:
            raise PictureError(
                f"{table}, line {line}: class '{text}' is none of the network's {classes} (0..{classes - 1})"
            )
        files.append(known[name])
        numbers.append(int(text))
    if not files:
        raise PictureError(f"{table} names no pictures")
    return PictureSet(files, numbers)


def _rows(table: Path) -> list[tuple[str, str]]:
    try:
        with table.open(encoding="utf-8", newline="") as opened:
            return [(row["file"].strip(), row["class"].strip()) for row in csv.DictReader(opened)]
    except (KeyError, AttributeError) as error:
        raise PictureError(f"{table} must have the columns 'file' and 'class' in every line") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PictureError(f"cannot read the classes in {table}: {error}") from error
