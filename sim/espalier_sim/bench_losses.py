"""Where the cycles of a run went, from the counters of the hardware."""

from __future__ import annotations

from espalier_sim.result import LayerResult, RunResult

# Steps of the waterfall in order: key, label. Their cycles add up to those of the run.
STEPS = (
    ("ideal", "ideal"),
    ("lanes", "edge lanes,\nsecond digits"),
    ("nulls", "null\noperators"),
    ("words", "waiting\nfor words"),
    ("accumulators", "accumulators\nfull"),
    ("start", "start: first\nlayer's words"),
    ("end", "end of the\nnetwork"),
)
MEANINGS = {
    "ideal": "effective multiply-accumulates / lanes",
    "lanes": "operators on tiles partly outside the map (1x1: one lane); second ones of weights beyond 7",
    "nulls": "null operators issued",
    "words": "PEs that wait for window words (`ring_empty`) in all layers between first and last ones",
    "accumulators": "PEs that wait for the output stage (`accumulators_full`)",
    "start": "`ring_empty` of the first layer: picture load, first windows",
    "end": "`ring_empty` from the last convolution with a map on; PEs that have finished; the store",
}


def losses(result: RunResult) -> dict[str, float]:
    """Cycles of the whole accelerator by step: PE cycles / PEs, all counted by the hardware in RTL.

    `end` holds whatever is left, so that the steps add up to the cycles of the run.
    """
    layers, pes = result.layers, result.pes
    issued = sum(layer.operators for layer in layers) / pes
    last = _last_map(layers)
    empty = [layer.stalls["ring_empty"] / pes for layer in layers]
    found = {"ideal": result.utilisation * result.cycles}
    found["lanes"] = issued - found["ideal"]
    found["nulls"] = sum(layer.null_operators for layer in layers) / pes
    found["words"] = sum(empty[1:last])
    found["accumulators"] = sum(layer.stalls["accumulators_full"] for layer in layers) / pes
    found["start"] = sum(empty[:1])
    found["end"] = result.cycles - sum(found.values())
    return found


def _last_map(layers: list[LayerResult]) -> int:
    """Position of the last layer before a global average, of the last layer where there is none."""
    pools = [index for index, layer in enumerate(layers) if layer.kind == "global"]
    return max(1, (pools[-1] if pools else len(layers)) - 1)
