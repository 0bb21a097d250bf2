"""The one hardware configuration that RTL, compiler, estimator and driver share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from espalier.arch.ddr import DEFAULT_DDR, Ddr, parse_ddr
from espalier.arch.operators import WORD_TAPS
from espalier.errors import ConfigError, UserError

# Banks that the first tile row of three lies in; see `espalier.arch.feature_layout`.
_FIRST_ROW_BANKS = 3
# A block RAM of 36 Kbit holds 512 words of 72 bits: what is deeper than this is better off in an UltraRAM.
_DEEPEST_BLOCK_TABLE = 2560

# Bumped whenever RTL or program format change in a way that old program images would not survive.
ARCH_VERSION = 3

# DSP slice by the bits that two products in it lie apart: its multiplier has nine bits more.
DSP_SLICES = {16: "DSP48E1", 18: "DSP48E2"}
_DEFAULT_SPACING = 18

PRESET_FOLDER = Path(__file__).parent / "presets"


def _field(doc: str, unit: str, low: int, high: int, default: Any = dataclasses.MISSING) -> Any:
    metadata = {"doc": doc, "unit": unit, "low": low, "high": high}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Device:
    """The FPGA a configuration is meant for, as its data sheet counts resources."""

    part: str
    lut: int
    ff: int
    bram36: int
    uram: int
    dsp: int

    @property
    def series_7(self) -> bool:
        """Whether it is of the 7 series, with DSP48E1 slices and no UltraRAM, and not UltraScale or later."""
        return self.part.startswith("xc7")


@dataclass(frozen=True)
class HardwareConfig:
    """All parameters of one accelerator. Numbers without a unit are counts.

    ddr: the board's memory as the AXI port sees it, for predictions and simulations.
    """

    name: str
    tile_size: int = _field("pixels along one side of a tile; T*T lanes per PE", "pixels", 4, 8)
    branches: int = _field("parallel branches, all kinds together", "branches", 1, 8)
    pes_per_branch: int = _field("PEs of a `dsp` branch, which hear the same window words", "PEs", 1, 30)
    ring_words: int = _field("depth of a PE's window ring, a power of two", "window words", 16, 64)
    accumulators: int = _field("partial sums a PE can hold, a power of two", "filters", 4, 32)
    stream_depth_words: int = _field("operator memory of one PE", "72-bit words", 64, 16384)
    table_depth_words: int = _field("requantisation table of one branch", "72-bit words", 64, 16384)
    feature_depth_words: int = _field(
        "depth of a feature bank of the first tile row of three (banks 0..2)", "tile words", 64, 8192
    )
    feature_depth_rest_words: int = _field(
        "depth of the other six feature banks, no more than `feature_depth_words` of it in use",
        "tile words",
        64,
        8192,
    )
    program_depth_words: int = _field("program memory", "128-bit words", 64, 8192)
    dsp_pairs: int = _field("lane pairs of a PE in DSP slices; the others are fabric", "pairs", 0, 32)
    lut_branches: int = _field("branches, the last ones, that are of kind `lut`", "branches", 0, 8)
    lut_pes: int = _field("PEs of a `lut` branch", "PEs", 0, 30)
    lut_dsp_pairs: int = _field("lane pairs of a PE of a `lut` branch in DSP slices", "pairs", 0, 32)
    output_pairs: int = _field("lane pairs that the output stage requantises a cycle", "pairs", 1, 32)
    uram_banks: int = _field("feature banks held in UltraRAM; the others are block RAM", "banks", 0, 9)
    window_fifo_depth: int = _field("windows buffered per branch", "windows", 4, 32)
    axi_data_bits: int = _field("width of the DMA's AXI4 port", "bits", 128, 128)
    axi_address_bits: int = _field("address width of the DMA's AXI4 port", "bits", 32, 64)
    burst_beats: int = _field("longest AXI4 burst, a power of two", "beats", 4, 64)
    max_layers: int = _field("layers that have performance counters of their own", "layers", 16, 256)
    clock_mhz: int = _field("clock that latencies are quoted at", "MHz", 1, 1000)
    pair_spacing_bits: int = _field(
        "from one product of a lane pair to the other in their DSP slice, and of a lane's sum: 18 for DSP48E2"
        " (if not written), 16 for DSP48E1 (7 series)",
        "bits",
        min(DSP_SLICES),
        max(DSP_SLICES),
        default=_DEFAULT_SPACING,
    )
    feature_rings: int = _field(
        "1: tensors may lie in rings of tile rows, and so in strips in DDR (if not written, they may not)",
        "flag",
        0,
        1,
        default=0,
    )
    streaming: bool = dataclasses.field(
        default=False,
        metadata={
            "doc": "operator streams that do not fit the stream memories are read from DDR while layers run"
            " (no, if not written)",
            "unit": "yes or no",
        },
    )
    clock_source: str = "assumed"
    ddr: Ddr = DEFAULT_DDR
    device: Device | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", str(self.name)):  # it becomes part of file names
            raise ConfigError(
                f"configuration '{self.name}': the name must consist of letters, digits, '_', '-' and '.'"
            )
        if not isinstance(self.streaming, bool):
            raise ConfigError(
                f"configuration '{self.name}': streaming = {self.streaming!r}, must be true or false"
            )
        for spec in dataclasses.fields(self):
            if "low" not in spec.metadata:
                continue
            value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ConfigError(
                    f"configuration '{self.name}': {spec.name} = {value!r}, must be a whole number of"
                    f" {spec.metadata['unit']} from {low} to {high} ({spec.metadata['doc']})"
                )
        for name in ("ring_words", "accumulators", "burst_beats"):
            if getattr(self, name) & (getattr(self, name) - 1):
                raise ConfigError(f"configuration '{self.name}': {name} must be a power of two")
        for name in ("dsp_pairs", "lut_dsp_pairs"):
            if getattr(self, name) > self.pairs:
                raise ConfigError(
                    f"configuration '{self.name}': {name} = {getattr(self, name)}, but a tile of"
                    f" {self.tile_size}x{self.tile_size} has {self.pairs} lane pairs"
                )
        if self.lut_branches > self.branches or (self.lut_branches > 0) != (self.lut_pes > 0):
            raise ConfigError(
                f"configuration '{self.name}': lut_branches = {self.lut_branches} of branches ="
                f" {self.branches} with lut_pes = {self.lut_pes}: at most all branches can be of kind lut,"
                " and these have at least one PE"
            )
        if self.uram_banks and not self.has_ultra_ram:
            assert self.device is not None, "without a device there is UltraRAM"
            raise ConfigError(
                f"configuration '{self.name}': uram_banks = {self.uram_banks}, but {self.device.part} has no"
                " UltraRAM: write uram_banks: 0"
            )
        self._check_spacing()

    def _check_spacing(self) -> None:
        """Refuse a spacing for which there is no slice, or of which the device has no slices."""
        spacing = self.pair_spacing_bits
        if spacing not in DSP_SLICES:
            raise ConfigError(
                f"configuration '{self.name}': pair_spacing_bits = {spacing}, must be"
                f" {' or '.join(f'{bits} ({kind})' for bits, kind in DSP_SLICES.items())}"
            )
        series_7 = self.device is not None and self.device.series_7
        needed = min(DSP_SLICES) if series_7 else max(DSP_SLICES)
        if self.device is not None and spacing != needed:
            raise ConfigError(
                f"configuration '{self.name}': pair_spacing_bits = {spacing} is for {self.dsp_slice}"
                f" slices, but {self.device.part} has {DSP_SLICES[needed]}: write pair_spacing_bits: {needed}"
            )

    # Derived geometry. Everything below follows from the fields above.

    @property
    def lanes_per_pe(self) -> int:
        """Pixels of a tile, one lane each."""
        return self.tile_size**2

    @property
    def pairs(self) -> int:
        """Lane pairs of a PE; the last pair of an odd tile holds one lane."""
        return (self.lanes_per_pe + 1) // 2

    @property
    def dsp_slice(self) -> str:
        """Primitive that a packed lane pair is made of, one of `DSP_SLICES`."""
        return DSP_SLICES[self.pair_spacing_bits]

    @property
    def pair_bits(self) -> int:
        """Bits of the two sums of a lane pair."""
        return 2 * self.pair_spacing_bits

    @property
    def max_weight_sum(self) -> int:
        """Most that the positive and the negative digits of one part may each add up to.

        Times 255, the largest pixel, it still fits a signed sum of `pair_spacing_bits`.
        """
        return ((1 << (self.pair_spacing_bits - 1)) - 1) // 255

    def is_lut(self, branch: int) -> bool:
        """Whether a branch is of kind `lut`."""
        return branch >= self.branches - self.lut_branches

    def branch_pes(self, branch: int) -> int:
        """PEs of a branch."""
        return self.lut_pes if self.is_lut(branch) else self.pes_per_branch

    def branch_dsp_pairs(self, branch: int) -> int:
        """Lane pairs in DSP slices of every PE of a branch."""
        return self.lut_dsp_pairs if self.is_lut(branch) else self.dsp_pairs

    def first_pe(self, branch: int) -> int:
        """Count the PEs of the branches before: number of a branch's first PE."""
        return sum(self.branch_pes(index) for index in range(branch))

    @property
    def pes(self) -> int:
        """PEs of all branches."""
        return self.first_pe(self.branches)

    @property
    def most_pes(self) -> int:
        """PEs of the largest branch."""
        return max(self.branch_pes(index) for index in range(self.branches))

    @property
    def lanes(self) -> int:
        """Multiply-accumulate lanes of the whole accelerator."""
        return self.pes * self.lanes_per_pe

    @property
    def word_rows(self) -> int:
        """Rows of a window word: four vertical taps over one tile."""
        return self.tile_size + WORD_TAPS - 1

    @property
    def window_columns(self) -> int:
        """Columns of a window, all that any column offset can select."""
        return 3 * self.tile_size - 2

    def bank_depth(self, bank: int) -> int:
        """Tile words of feature bank 0..8.

        The second and third tile row of three need less: 16 tile rows are 6, 5 and 5.
        """
        rest = min(self.feature_depth_rest_words, self.feature_depth_words)
        return self.feature_depth_words if bank < _FIRST_ROW_BANKS else rest

    @property
    def has_ultra_ram(self) -> bool:
        """Whether there is UltraRAM for deep memories; on a device without, they lie in block RAM too."""
        return self.device is None or self.device.uram > 0

    @property
    def table_in_ultra(self) -> bool:
        """Whether requantisation tables lie in UltraRAM; small ones lie in block RAM."""
        return self.has_ultra_ram and self.table_depth_words > _DEEPEST_BLOCK_TABLE

    @property
    def output_beats(self) -> int:
        """Cycles that the output stage spends on one tile word."""
        return -(-self.pairs // self.output_pairs)

    @property
    def axi_bytes(self) -> int:
        """Bytes of one AXI beat."""
        return self.axi_data_bits // 8

    @property
    def word_beats(self) -> int:
        """AXI beats of one tile word in DDR, padded to whole beats."""
        return -(-self.lanes_per_pe // self.axi_bytes)

    @property
    def hash(self) -> int:
        """32-bit identity of the configuration, in the identification register and in program images."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k not in _NOT_HARDWARE}
        if self.pair_spacing_bits == _DEFAULT_SPACING:
            del fields["pair_spacing_bits"]  # what there was before the field; such images stay valid
        if not self.feature_rings:
            del fields["feature_rings"]
        if not self.streaming:
            del fields["streaming"]
        text = json.dumps([ARCH_VERSION, fields], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


_NOT_HARDWARE = ("name", "clock_mhz", "clock_source", "ddr", "device")


def preset_names() -> list[str]:
    """Names of the presets that come with Espalier."""
    return sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml"))


def load_config(target: str) -> HardwareConfig:
    """Load a preset by name, or a YAML file by path.

    Raises:
        ConfigError: unknown preset, unreadable file, unknown, missing or invalid field.
    """
    path = Path(target) if target.endswith((".yaml", ".yml")) else PRESET_FOLDER / f"{target}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"unknown target '{target}': choose one of {', '.join(preset_names())}, or give a YAML file"
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read configuration {path}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"configuration {path}: expected a mapping of field names to values")
    return config_from_mapping(content, str(path))


def with_ddr(config: HardwareConfig, text: str | None, seed: int = 0) -> HardwareConfig:
    """Replace the memory by the one that `text` says (see `parse_ddr`), if any; seed: of its latencies.

    Raises:
        UserError: the text is wrong.
    """
    ddr = config.ddr if text is None else parse_ddr(text)
    return dataclasses.replace(config, ddr=dataclasses.replace(ddr, seed=seed))


def config_from_mapping(content: dict[str, Any], where: str) -> HardwareConfig:
    """Build a configuration from plain values; `where` names their origin in error messages."""
    known = {spec.name: spec for spec in dataclasses.fields(HardwareConfig)}
    unknown = sorted(map(str, set(content) - set(known)))
    required = {n for n, s in known.items() if s.default is dataclasses.MISSING}
    missing = sorted(required - set(content))
    if unknown or missing:
        problems = [f"unknown field '{name}'" for name in unknown]
        problems += [f"missing field '{name}'" for name in missing]
        raise ConfigError(f"configuration {where}: {', '.join(problems)}")
    values = dict(content)
    if "ddr" in values:
        try:
            ddr = values["ddr"]
            values["ddr"] = Ddr(**ddr) if isinstance(ddr, dict) else parse_ddr(str(ddr))
        except (UserError, TypeError) as error:
            raise ConfigError(f"configuration {where}: {error}") from error
    if values.get("device") is not None:
        try:
            values["device"] = Device(**values["device"])
        except TypeError as error:
            raise ConfigError(f"configuration {where}: device: {error}") from error
    return HardwareConfig(**values)
