"""Descriptors of layers that are worked in strips, and where their tensors lie in DDR."""

from __future__ import annotations

import itertools

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Follows, Opcode
from espalier.backend import descriptors
from espalier.backend.hazards import Start
from espalier.backend.lower import waits_for_load
from espalier.backend.mapping import tile_grid
from espalier.backend.plan import Group, Layer, Placement
from espalier.backend.strips import Home, Segment, Step, StripPlan, schedule, strip_tiles
from espalier.ir.graph import IntegerGraph
from espalier.passes.lower_padding import tensors_read

_NUMBERS = 255  # of LOADs; 0 is the one of a whole picture


class StripEmission:
    """Emits the segments of a plan in order.

    scratch_bytes: of the scratch buffer, in which tensors lie one behind the other.
    """

    def __init__(
        self,
        graph: IntegerGraph,
        layers: list[Layer],
        placements: dict[str, Placement],
        plan: StripPlan,
        config: HardwareConfig,
    ) -> None:
        self.graph, self.layers, self.placements, self.plan = graph, layers, placements, plan
        self.config = config
        self.scratch_bytes = 0
        self._offsets: dict[str, int] = {}
        self._numbers = itertools.cycle(range(1, _NUMBERS + 1))
        for name, home in plan.homes.items():
            if home == Home.DDR and name != graph.input:
                self._offsets[name] = self.scratch_bytes
                tiles_y, tiles_x = tile_grid(graph.tensors[name], config.tile_size)
                words = tiles_y * tiles_x * graph.tensors[name].channels
                self.scratch_bytes += words * config.word_beats * config.axi_bytes

    def tiles(self, layer: Layer, group: Group) -> list[int]:
        """Tiles that a group takes in every strip."""
        return strip_tiles(self.graph, layer, group, self.plan, self.config.tile_size)

    def segment(self, segment: Segment, table_bases: list[int]) -> bytes:
        """Descriptors of a segment; table_bases: first table entry in every branch."""
        steps = schedule(self.graph, segment, self.plan, self.config.tile_size, self._numbers)
        return b"".join(self._step(step, segment, table_bases) for step in steps)

    def _step(self, step: Step, segment: Segment, table_bases: list[int]) -> bytes:
        if step.tensor:
            return self._transfer(step, segment)
        layer = self.layers[step.node]
        places = {
            name: self.placements.get(f"{name}@{segment.nodes[0]}") or self.placements[name]
            for name in (layer.node.output, *tensors_read(layer.node))
        }
        start = self._start(step, segment)
        return descriptors.conv_or_pool(self.graph, layer, places, table_bases, self.config, start, step.rows)

    def _start(self, step: Step, segment: Segment) -> Start:
        follows, number = Follows.NOTHING, 0
        if step.follows >= 0:
            follows, number = Follows.LOAD, step.follows
        elif step.after:
            follows, number = Follows.BRANCHES, segment.nodes[0]
        elif step.node == 0 and self._follows_picture():
            follows = Follows.LOAD
        return Start(
            barrier=step.barrier and not (step.node == 0 and follows == Follows.LOAD),
            wait_pool=step.wait_pool,
            wait_store=step.wait_store,
            during_load=step.during_load,
            follows=follows,
            follows_layer=number,
            more=step.more,
        )

    def _follows_picture(self) -> bool:
        """Whether the first layer runs while the whole picture is being loaded."""
        loads = [name for name in tensors_read(self.graph.nodes[0]) if self.plan.home(name) == Home.DDR]
        return waits_for_load(self.graph, 0) and not loads

    def _transfer(self, step: Step, segment: Segment) -> bytes:
        """Descriptor of a LOAD or STORE."""
        name = step.tensor
        transfer = descriptors.Transfer(
            self.placements[f"{name}@{segment.nodes[0]}"],
            self.graph.tensors[name].channels,
            step.rows,
            self._offsets.get(name, 0),
            self.config.word_beats,
            scratch=name != self.graph.input,
            number=segment.nodes[-1] if step.store else step.number,
            barrier=step.barrier,
            wait_store=step.wait_store,
        )
        return transfer.encode(Opcode.STORE if step.store else Opcode.LOAD, self.config, f"tensor {name}")
