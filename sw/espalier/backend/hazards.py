"""What keeps layers that overlap in time apart: waits for inputs, and words that are written over old ones.

The hardware's rules are in the architecture page, section 8. In short, for layer j, its predecessors i < j:

- When j is offered, every convolution before the latest one has ended, and every pool before the latest one.
- When a convolution writes its first word, all convolutions before it have read their windows and residuals
  and written their words; with `wait_pool` all pools before it have, too.
- When a pool writes its first word, all pools before it have ended.
- With `barrier` everything before has ended.
- A STORE of a tensor waits for everything before, but nothing waits for it without `barrier` or `wait_store`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from espalier.arch.program import Follows
from espalier.backend.lower import waits_for_load
from espalier.backend.plan import Placement
from espalier.backend.strips import NO_STRIPS, StripPlan
from espalier.errors import InternalError
from espalier.ir.graph import Conv, IntegerGraph, Pool
from espalier.passes.lower_padding import tensors_read


@dataclass(frozen=True)
class Waits:
    """What a layer waits for, besides the words that its windows need."""

    barrier: bool
    wait_pool: bool
    during_load: bool = False  # it need not wait for the network's input
    wait_store: bool = False


@dataclass(frozen=True)
class Start:
    """When a layer, or a strip of it, may start: the descriptor's fields of these names."""

    barrier: bool = False
    wait_pool: bool = False
    wait_store: bool = False
    during_load: bool = False
    follows: Follows = Follows.NOTHING
    follows_layer: int = 0
    more: bool = False


def layer_start(graph: IntegerGraph, index: int, waits: Waits) -> Start:
    """When a layer may start that is not worked in strips."""
    follows, layer = followed_layer(graph, index, waits)
    return Start(waits.barrier, waits.wait_pool, waits.wait_store, waits.during_load, follows, layer)


def followed_layer(graph: IntegerGraph, index: int, waits: Waits) -> tuple[Follows, int]:
    """Writer of a layer's input if it may still be at work, and its layer."""
    source = graph.nodes[index].input
    if waits.barrier:
        return Follows.NOTHING, 0
    convs = [other for other in range(index) if isinstance(graph.nodes[other], Conv)]
    pools = [other for other in range(index) if isinstance(graph.nodes[other], Pool)]
    for kind, latest in ((Follows.BRANCHES, convs[-1:]), (Follows.POOL, pools[-1:])):
        if latest and graph.nodes[latest[0]].output == source:
            return kind, latest[0]
    if waits_for_load(graph, index):
        return Follows.LOAD, 0
    return Follows.NOTHING, 0


def tensor_uses(graph: IntegerGraph) -> dict[str, list[int]]:
    """Nodes that write or read every tensor, in order; LOAD, which writes the input, is -1."""
    uses = {graph.input: [-1]}
    for index, node in enumerate(graph.nodes):
        uses[node.output] = [index]
        for name in tensors_read(node):
            uses[name].append(index)
    return uses


def needs_barrier(graph: IntegerGraph, uses: list[int], writer: int) -> bool:
    """Whether a layer may write over a tensor with such uses only behind a barrier.

    Pools do not wait for branches. But a convolution between the use and the pool has been taken by all
    output stages when the pool is offered, so that everything before that convolution has ended.
    """
    if not isinstance(graph.nodes[writer], Pool):
        return False
    convs = [index for index in range(writer) if isinstance(graph.nodes[index], Conv)]
    return bool(convs) and convs[-1] in uses


def needs_pool(graph: IntegerGraph, uses: list[int], writer: int) -> bool:
    """Whether a layer that writes over a tensor with such uses would have to wait for the pool before it.

    Later convolutions may need the wait too, but the pool has ended by then.
    """
    before = graph.nodes[writer - 1] if writer > 0 else None
    return isinstance(graph.nodes[writer], Conv) and isinstance(before, Pool) and writer - 1 in uses


def layer_waits(
    graph: IntegerGraph,
    placements: dict[str, Placement],
    overlap: bool,
    plan: StripPlan = NO_STRIPS,
    stored: Collection[str] = (),
) -> list[Waits]:
    """Find what every layer has to wait for, given where tensors lie; without `overlap` for everything.

    Segments of strips and what comes behind them wait for everything. stored: tensors that are stored right
    behind the layers that write them.

    Raises:
        InternalError: tensors that are in use at the same time lie in the same words.

    """
    uses = tensor_uses(graph)
    result: list[Waits] = []
    for index, node in enumerate(graph.nodes):
        if index in plan.members:
            result.append(Waits(barrier=True, wait_pool=False))
            continue
        earlier: list[int] = []
        barrier = not overlap or index - 1 in plan.members
        overwritten = _overwritten(graph, placements, uses, index)
        for name in overwritten:
            earlier += uses[name]
            barrier |= needs_barrier(graph, uses[name], index)
        if isinstance(node, Conv) and node.residual is not None:
            earlier.append(uses[node.residual.tensor][0])
        wait_pool = isinstance(node, Conv) and not barrier and _pool_at_work(graph, result, earlier, index)
        touched = [*tensors_read(node), *overwritten]
        wait_store = not barrier and _over_stored(graph, placements, stored, index)
        result.append(Waits(barrier, wait_pool, graph.input not in touched, wait_store))
    return result


def pools_in_place(graph: IntegerGraph, placements: dict[str, Placement], index: int) -> bool:
    """Whether a layer is a pool that writes its output over its input, tile over tile."""
    node = graph.nodes[index]
    source, target = placements[node.input], placements[node.output]
    return isinstance(node, Pool) and (source.base, source.pitch) == (target.base, target.pitch)


def can_pool_in_place(graph: IntegerGraph, index: int, tile_size: int) -> bool:
    """Whether a pool may write tile (y, x) of its output over tile (y, x) of its input.

    That needs a maximum of stride 2 whose input nobody else reads. Then pooled tile (y, x) needs no tile
    above row 2y - 1 or left of column 2x - 1 of the input, as its padding is at most a tile. Tiles are pooled
    in raster order, each after its windows, in all channels one after the other. So:

    - The word that is written over has been written: whoever writes the input has passed the tiles that
      (y, x) needs, the last of which is (y, x) itself or behind it.
    - No later pooled tile (y', x') needs it. If y' > y, it needs rows from 2y' - 1 >= y' > y on. If y' = y
      and x' > x, then x' >= 1, and it needs columns from 2x' - 1 >= x' > x on.
    """
    node = graph.nodes[index]
    if not isinstance(node, Pool) or node.kind != "max" or node.stride != 2:
        return False
    readers = sum(tensors_read(other).count(node.input) for other in graph.nodes)
    source, target = graph.tensors[node.input], graph.tensors[node.output]
    smaller = all(
        -(-small // tile_size) <= -(-large // tile_size)
        for small, large in ((target.height, source.height), (target.width, source.width))
    )
    private = readers == 1 and node.input not in (graph.input, graph.output)
    return private and smaller and max(node.pads[:2]) <= tile_size


def can_write_over_residual(graph: IntegerGraph, index: int) -> bool:
    """Whether a convolution may write its output over its residual tensor, tile word over tile word.

    Nobody else may read the residual then or later. A word is written by the branch that has read the
    residual of the same tile and channel for it, and no other word needs that.
    """
    node = graph.nodes[index]
    if not isinstance(node, Conv) or node.residual is None:
        return False
    name = node.residual.tensor
    later = [other for other in graph.nodes[index:] if name in tensors_read(other)]
    return len(later) == 1 and name not in (node.input, graph.input, graph.output)


def writes_over_residual(graph: IntegerGraph, placements: dict[str, Placement], index: int) -> bool:
    """Whether a layer is a convolution that does so."""
    node = graph.nodes[index]
    if not can_write_over_residual(graph, index) or not isinstance(node, Conv) or node.residual is None:
        return False
    residual, target = placements.get(node.residual.tensor), placements.get(node.output)
    if residual is None or target is None:
        return False  # one of them does not live on the chip
    return (residual.base, residual.pitch) == (target.base, target.pitch)


def _overwritten(
    graph: IntegerGraph, placements: dict[str, Placement], uses: dict[str, list[int]], index: int
) -> list[str]:
    """Tensors in whose words a layer writes."""
    target = graph.nodes[index].output
    place = placements[target]
    result = []
    for name, other in placements.items():
        if name not in uses:
            continue  # it is there for a segment only
        if _apart(place, other) or name == target or uses[name][0] >= index:
            continue
        if name == graph.nodes[index].input and pools_in_place(graph, placements, index):
            continue  # see `can_pool_in_place`
        over = tensors_read(graph.nodes[index])[1:] == [name]
        own = over and writes_over_residual(graph, placements, index)
        if (uses[name][-1] >= index and not own) or name == graph.output:
            raise InternalError(f"layer {graph.nodes[index].name} writes over tensor {name}, still in use")
        result.append(name)
    return result


def _over_stored(
    graph: IntegerGraph, placements: dict[str, Placement], stored: Collection[str], index: int
) -> bool:
    """Whether a layer writes over a tensor that may still be being stored, its input in place included.

    That can only be the latest: its STORE has waited for those before.
    """
    before = [node.output for node in graph.nodes[:index] if node.output in stored]
    return bool(before) and not _apart(placements[graph.nodes[index].output], placements[before[-1]])


def _apart(one: Placement, other: Placement) -> bool:
    """Whether two tensors have no words in common."""
    return one.base + one.words <= other.base or other.base + other.words <= one.base


def _pool_at_work(graph: IntegerGraph, waits: list[Waits], uses: list[int], index: int) -> bool:
    """Whether one of the uses is by a pool that may not have ended when layer `index` writes."""
    pools = [other for other in range(index) if isinstance(graph.nodes[other], Pool)]
    if not pools or pools[-1] not in uses:
        return False
    return not any(wait.barrier or wait.wait_pool for wait in waits[pools[-1] + 1 :])
