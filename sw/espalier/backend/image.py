"""Program images: what the compiler emits, what the driver loads, and their file format.

A file is a header (`_HEADER`, little endian), the metadata as JSON and the program as the accelerator's DMA
reads it. The header holds lengths and checksums of both parts and a checksum of itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import unpack_tiles
from espalier.errors import InternalError, ModelFileError

MAGIC = b"ESPALIER"
FORMAT_VERSION = 2

# magic, format version, configuration hash, metadata bytes, program bytes, CRC32 of both, CRC32 of the above
_HEADER = struct.Struct("<8sIIIIIII")
_HEADER_CHECKED = _HEADER.size - 4


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the compiled network and its place in feature memory and DDR.

    base, pitch, tiles_y, tiles_x: see `espalier.arch.feature_layout`. `pad` fills the lanes of edge tiles
    that lie outside the map. dram_offset: bytes from the input or output address register, -1 if the tensor
    never leaves the chip or lies in the scratch buffer; ddr_word_bytes: bytes of one tile word in DDR,
    likewise 0. ring: see `feature_layout.tile_position`; base and ring are those that its layer writes with.
    """

    name: str
    channels: int
    height: int
    width: int
    scale: float
    zero_point: int
    base: int
    pitch: int
    tiles_y: int
    tiles_x: int
    pad: int
    dram_offset: int = -1
    ddr_word_bytes: int = 0
    ring: int = 0

    @property
    def ddr_bytes(self) -> int:
        """Bytes that the tensor takes in DDR, 0 if it never leaves the chip."""
        return self.tiles_y * self.tiles_x * self.channels * self.ddr_word_bytes

    def stored(self, output: npt.NDArray[np.uint8], tile_size: int) -> npt.NDArray[np.uint8]:
        """Take the tensor uint8[channels, height, width] out of what lies from the output address on."""
        own = output[self.dram_offset :][: self.ddr_bytes]
        shape = self.channels, self.height, self.width
        return unpack_tiles(own, shape, self.ddr_word_bytes, tile_size)


@dataclass(frozen=True)
class LayerInfo:
    """One layer as compiled; `index` is the layer number in status register and counters.

    kind: "conv", "max" or "global". operators: issued per picture, null operators not counted.
    dense_macs: of the layer as the user wrote it; effective_macs: those with a weight other than zero.
    """

    index: int
    name: str
    kind: str
    input: str
    output: str
    residual: str
    weight_bits: int
    operators: int
    null_operators: int
    dense_macs: int
    effective_macs: int
    predicted_cycles: int
    tile_groups: int
    filter_groups: int
    passes: int
    block_words: int
    stream_words: int  # of the fullest PE
    table_entries: int  # of the fullest branch


@dataclass(frozen=True)
class MemoryUse:
    """Words of an on-chip memory that the program needs and that the hardware has."""

    memory: str
    used: int
    available: int


@dataclass(frozen=True)
class ImageMetadata:
    """Everything about a program image that is not read by the hardware.

    scratch_bytes: of the buffer in DDR that holds feature maps which do not fit on the chip.

    preprocessing: the graph's metadata (mean, std, picture_size, space_to_depth, ...) without labels.
    hardware: the fields of the `HardwareConfig` that the image was compiled for; empty in older images.
    streamed_bytes: last bytes of the program, which every inference reads instead of the program load.
    """

    network: str
    target: str
    input: str
    output: str
    layers: list[LayerInfo]
    tensors: dict[str, TensorInfo]
    predicted_cycles: int
    memory: list[MemoryUse]
    scratch_bytes: int = 0
    reordered: bool = True
    padded: bool = True
    labels: list[str] = field(default_factory=list)
    preprocessing: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    streamed_bytes: int = 0

    @property
    def dense_macs(self) -> int:
        """Multiply-accumulates of the network as the user wrote it."""
        return sum(layer.dense_macs for layer in self.layers)

    @property
    def effective_macs(self) -> int:
        """Multiply-accumulates with a weight other than zero."""
        return sum(layer.effective_macs for layer in self.layers)

    @property
    def operators(self) -> int:
        """Operators issued per picture, null operators not counted."""
        return sum(layer.operators for layer in self.layers)

    @property
    def null_operators(self) -> int:
        """Null operators issued per picture."""
        return sum(layer.null_operators for layer in self.layers)


@dataclass(frozen=True)
class ProgramImage:
    """A compiled network for one hardware configuration. `program`: DDR sections, see `arch.program`."""

    config_hash: int
    program: bytes
    metadata: ImageMetadata

    @property
    def input(self) -> TensorInfo:
        """The tensor that the host writes, as tile words."""
        return self.metadata.tensors[self.metadata.input]

    @property
    def output(self) -> TensorInfo:
        """The tensor that the host reads back."""
        return self.metadata.tensors[self.metadata.output]

    @property
    def load_bytes(self) -> int:
        """Bytes of the program that command LOAD reads, for PROGRAM_BYTES; the others lie behind them."""
        return len(self.program) - self.metadata.streamed_bytes

    @property
    def input_bytes(self) -> int:
        """Bytes at INPUT_ADDRESS."""
        return self.input.ddr_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes at SCRATCH_ADDRESS, which hold nothing from one call to the next."""
        return self.metadata.scratch_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes at OUTPUT_ADDRESS, of all tensors that are stored."""
        stored = [
            t for n, t in self.metadata.tensors.items() if t.dram_offset >= 0 and n != self.metadata.input
        ]
        return max((tensor.dram_offset + tensor.ddr_bytes for tensor in stored), default=0)

    def to_bytes(self) -> bytes:
        """Encode the image as the content of a file."""
        text = json.dumps(dataclasses.asdict(self.metadata), separators=(",", ":"), default=_plain).encode()
        head = _HEADER.pack(
            MAGIC, FORMAT_VERSION, self.config_hash, len(text), len(self.program), zlib.crc32(text),
            zlib.crc32(self.program), 0,
        )[:_HEADER_CHECKED]  # fmt: skip
        return head + struct.pack("<I", zlib.crc32(head)) + text + self.program

    def save(self, path: Path | str) -> None:
        """Write the image; the file appears whole or not at all.

        Raises:
            ModelFileError: the folder is missing or not writable, or the disk is full.

        """
        target = Path(path)
        content = self.to_bytes()
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise ModelFileError(f"cannot write image {target}: {error.strerror or error}") from error


def _plain(value: Any) -> Any:
    """Turn NumPy values, which a graph's metadata may hold, into plain ones."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise InternalError(f"metadata of a program image: {type(value).__name__} cannot be stored")


def load_image(path: Path | str, config: HardwareConfig | None = None) -> ProgramImage:
    """Read an image file; with `config` also check that it was compiled for that hardware.

    Raises:
        ModelFileError: missing, damaged, truncated, of another format version or for other hardware.

    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read image {path}: {error.strerror or error}") from error
    return image_from_bytes(content, config, str(path))


def image_from_bytes(content: bytes, config: HardwareConfig | None, where: str) -> ProgramImage:
    """Inverse of `ProgramImage.to_bytes`; `where` names the origin in error messages."""
    if len(content) < _HEADER.size or content[:8] != MAGIC:
        raise ModelFileError(f"{where} is not an Espalier program image")
    _, version, config_hash, text_bytes, program_bytes, text_crc, program_crc, head_crc = _HEADER.unpack(
        content[: _HEADER.size]
    )
    if zlib.crc32(content[:_HEADER_CHECKED]) != head_crc:
        raise ModelFileError(f"image {where} is damaged: checksum of the header; compile the network again")
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"image {where} has format {version}, this version reads {FORMAT_VERSION};"
            " compile the network again"
        )
    if len(content) != _HEADER.size + text_bytes + program_bytes:
        raise ModelFileError(
            f"image {where} is incomplete: {len(content)} bytes, expected"
            f" {_HEADER.size + text_bytes + program_bytes}; compile the network again"
        )
    text = content[_HEADER.size : _HEADER.size + text_bytes]
    program = content[_HEADER.size + text_bytes :]
    for name, part, crc in (("metadata", text, text_crc), ("program", program, program_crc)):
        if zlib.crc32(part) != crc:
            raise ModelFileError(
                f"image {where} is damaged: checksum of the {name}; compile the network again"
            )
    image = ProgramImage(config_hash, program, _metadata_from_text(text, where))
    if config is not None:
        check_hardware(image, config, where)
    return image


def check_hardware(image: ProgramImage, config: HardwareConfig, where: str) -> None:
    """Raise ModelFileError unless the image was compiled for `config`."""
    if image.config_hash != config.hash:
        raise ModelFileError(
            f"image {where} is for '{image.metadata.target}' (configuration {image.config_hash:08x}),"
            f" the hardware is '{config.name}' (configuration {config.hash:08x}); compile it for this target"
        )


_Record = TypeVar("_Record", LayerInfo, TensorInfo, MemoryUse)
_SCALARS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def _metadata_from_text(text: bytes, where: str) -> ImageMetadata:
    try:
        raw = json.loads(text)
        raw["layers"] = [_record(LayerInfo, item) for item in raw["layers"]]
        raw["tensors"] = {name: _record(TensorInfo, item) for name, item in raw["tensors"].items()}
        raw["memory"] = [_record(MemoryUse, item) for item in raw["memory"]]
        metadata = ImageMetadata(**raw)
        for name in (metadata.input, metadata.output):
            metadata.tensors[name]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"image {where}: metadata is not as expected ({error!r})") from error
    return metadata


def _record(kind: type[_Record], values: dict[str, Any]) -> _Record:
    record = kind(**values)
    for name, hint in get_type_hints(kind).items():
        if not isinstance(getattr(record, name), _SCALARS[hint.__name__]):
            raise TypeError(f"{kind.__name__}.{name} = {getattr(record, name)!r}")
    return record
