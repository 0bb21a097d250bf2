"""From an ONNX file and a folder of calibration pictures to the integer graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.compress.build import CompressOptions, Progress, compress
from espalier.errors import ModelFileError, PictureError
from espalier.frontend import load_onnx
from espalier.ir.float_graph import FloatGraph
from espalier.ir.graph import IntegerGraph
from espalier.runtime.preprocess import RULES, Preprocessing

PICTURE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
MOST_UNREADABLE = 0.1  # share of the pictures beyond which skipping them would say nothing any more
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PictureOptions:
    """What an ONNX file does not say: how its pictures are prepared and what its classes are called.

    rule: see `Preprocessing`; mean, std: per colour, of values 0..1; labels: text file, a name per line.
    """

    rule: str = "imagenet"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    labels: Path | None = None

    def metadata(self, graph: FloatGraph) -> dict[str, Any]:
        """As the metadata of a graph.

        Raises:
            PictureError: an unknown rule. ModelFileError: the labels cannot be read.

        """
        if self.rule not in RULES:
            raise PictureError(f"unknown rule '{self.rule}' to prepare pictures: choose {', '.join(RULES)}")
        channels, height, width = graph.shapes[graph.input]
        found: dict[str, Any] = {
            "preprocessing": self.rule,
            "picture_size": [height, width],
            "space_to_depth": 1,
            "mean": list(self.mean[:channels]),
            "std": list(self.std[:channels]),
        }
        if self.labels is not None:
            try:
                found["labels"] = self.labels.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ModelFileError(f"cannot read labels {self.labels}: {error}") from error
        return found


def picture_files(folder: Path) -> list[Path]:
    """Pictures of a folder in the order of their names.

    Raises:
        PictureError: no such folder, or no pictures in it.

    """
    if not folder.is_dir():
        raise PictureError(f"calibration folder {folder} does not exist")
    files = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in PICTURE_SUFFIXES and path.is_file()
    )
    if not files:
        raise PictureError(f"no pictures ({', '.join(PICTURE_SUFFIXES)}) in calibration folder {folder}")
    return files


def check_skipped(skipped: list[str], total: int) -> None:
    """Refuse to go on when too many pictures were skipped; `skipped` holds their error messages.

    Raises:
        PictureError: more than a tenth of `total` pictures could not be read.

    """
    if len(skipped) > MOST_UNREADABLE * total:
        raise PictureError(
            f"{len(skipped)} of {total} pictures cannot be read, more than {MOST_UNREADABLE:.0%};"
            f" the first: {skipped[0]}"
        )


def _pictures(
    files: list[Path], preprocessing: Preprocessing, skipped: list[str]
) -> Iterator[npt.NDArray[np.float32]]:
    for path in files:
        try:
            picture = preprocessing.load(path)
        except PictureError as error:
            skipped.append(str(error))
            check_skipped(skipped, len(files))
            continue
        yield preprocessing.normalise(picture[None])[0]


@dataclass(frozen=True)
class _PictureInput:
    """What `Preprocessing` asks of an input tensor; scale and zero point are only known after compression."""

    channels: int
    scale: float = 1.0
    zero_point: int = 0


def compress_onnx(
    path: Path,
    calibration: Path,
    options: CompressOptions | None = None,
    pictures: PictureOptions | None = None,
    progress: Progress | None = None,
    skipped: list[str] | None = None,
) -> IntegerGraph:
    """Import `path` and compress it with the pictures of the folder `calibration`.

    Pictures that cannot be read are left out; their messages are appended to `skipped`.

    Raises:
        UserError: unsupported network, unusable pictures, budgets too small; see `load_onnx` and `compress`.

    """
    graph = load_onnx(path)
    graph.metadata.update((pictures or PictureOptions()).metadata(graph))
    preprocessing = Preprocessing.of(graph.metadata, _PictureInput(graph.shapes[graph.input][0]))
    left_out = [] if skipped is None else skipped
    files = picture_files(calibration)
    return compress(graph, _pictures(files, preprocessing, left_out), options, progress)
