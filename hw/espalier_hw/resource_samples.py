"""Least squares from counts of blocks to the coefficients of their terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.arch.config import Device, HardwareConfig
from espalier.arch.ddr import DEFAULT_DDR
from espalier.errors import UserError
from espalier.estimate.resource_terms import BLOCKS, ROWS, Site

FloatArray = npt.NDArray[np.float64]
Counted = list[tuple[HardwareConfig, str, dict[str, Any]]]

# Presets with a device must be right; what is counted beside them shows how resources grow.
_PRESET_WEIGHT = 10.0
# Errors of smaller blocks count as if these had so many LUTs or flip-flops.
_LEAST = 50.0


def load_counted(entries: list[dict[str, Any]]) -> Counted:
    """Read configuration, family and blocks of every entry of the counts file."""
    counted = []
    for entry in entries:
        device = entry["config"]["device"]
        fields = {**entry["config"], "device": Device(**device) if device else None, "ddr": DEFAULT_DDR}
        counted.append((HardwareConfig(**fields), entry["family"], entry["blocks"]))
    return counted


def sites(family: str, config: HardwareConfig) -> Iterator[tuple[str, str, Site]]:
    """Key, block and place of every block that a configuration has."""
    for row in ROWS:
        if row.instances(config):
            for block in row.blocks:
                yield block + row.suffix, block, row.site(config, family)


def fit_block(name: str, resource: str, counted: Counted) -> list[float]:
    """Coefficients of a block's terms for "lut" or "ff".

    Raises:
        UserError: the block was never counted.
    """
    terms, values, weights, _ = _samples(name, resource, counted)
    return [round(float(value), 4) for value in _solve(terms, values, weights)]


def left_out_errors(name: str, resource: str, counted: Counted) -> list[float]:
    """Relative errors of counts that were left out of the fit, one after the other.

    Counts without which the others would not determine the coefficients are not among them.
    """
    terms, values, weights, fixed = _samples(name, resource, counted)
    rank = np.linalg.matrix_rank(_scaled(terms)[0])
    errors = []
    for index in range(len(values)):
        rest = np.arange(len(values)) != index
        if np.count_nonzero(rest) >= rank and np.linalg.matrix_rank(_scaled(terms[rest])[0]) == rank:
            predicted = terms[index] @ _solve(terms[rest], values[rest], weights[rest])
            errors.append(float((predicted - values[index]) / max(values[index] + fixed[index], 1.0)))
    return errors


def _samples(
    name: str, resource: str, counted: Counted
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Terms float64[n, terms], counts without LUTRAM, weights, and LUTs of LUTRAM, each float64[n]."""
    samples: dict[tuple[float, ...], tuple[float, float, float]] = {}
    for config, family, blocks in counted:
        for key, block, site in sites(family, config):
            if block == name and key in blocks:
                fixed = BLOCKS[name].lutram(site) if resource == "lut" else 0
                value = blocks[key]["count"][resource] - fixed
                weight = _PRESET_WEIGHT if config.device is not None else 1.0
                samples[tuple(BLOCKS[name].terms(resource, site))] = value, weight, fixed
    if not samples:
        raise UserError(f"no counts of block '{name}': count it first")
    values, weights, fixed_luts = np.array(list(samples.values())).T
    return np.array(list(samples)), values, weights / np.maximum(np.abs(values), _LEAST), fixed_luts


def _scaled(terms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns of equal size, so that the smallest solution is meant where counts leave a choice."""
    scale = np.maximum(np.abs(terms).max(axis=0), 1.0)
    return terms / scale, scale


def _solve(terms: FloatArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    scaled, scale = _scaled(terms)
    found = np.linalg.lstsq(scaled * weights[:, None], values * weights, rcond=1e-9)
    solution: FloatArray = np.asarray(found[0], np.float64)
    return solution / scale
