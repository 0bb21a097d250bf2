"""The cycle model of the whole accelerator on small networks, and its parts against hand-made cases."""

import dataclasses

import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.arch.program import Opcode
from espalier.backend.compiler import compile_graph
from espalier.backend.decode import tile_walk
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import InternalError
from espalier.estimate import latencies
from espalier.estimate.dma import Store
from espalier.estimate.jobs import Job, Progress, WindowPlan, Word
from espalier.estimate.machine import Machine
from espalier.estimate.report import estimate_program
from espalier.estimate.small_parts import SmallParts
from espalier.estimate.tile_port import TilePort
from espalier.estimate.turns import Order
from espalier.estimate.work import LayerWork, read_program

CONFIG = load_config("tiny")


def network(seed=0):
    net = RandomNetwork(8, 20, 20, seed=seed)
    first = net.conv("input", 16, pads=(1, 1, 1, 1))
    pooled = net.pool(first, "max", (2, 2), 2)
    second = net.conv(pooled, 12, pads=(1, 1, 1, 1), bits=6)
    third = net.conv(second, 12, pads=(1, 1, 1, 1), residual=second)
    net.conv(net.pool(third, "global"), 10, (1, 1))
    return net.graph()


@pytest.fixture(scope="module")
def image():
    return compile_graph(network(), CONFIG)


def test_streams_and_tables_are_read_as_the_compiler_wrote_them(image):
    layers = [layer for layer in read_program(image.program, CONFIG) if layer.opcode == Opcode.CONV]
    infos = [info for info in image.metadata.layers if info.kind == "conv"]
    for layer, info in zip(layers, infos, strict=True):
        issued = nulls = 0
        for work in layer.branches:
            if work is not None:
                nulls += int(work.nulls.sum()) * len(work.tile_y)
                issued += int(work.operators.sum()) * len(work.tile_y)
                assert len(work.pe) == int(work.filters.sum()) * layer.fields["passes"]
        assert nulls == info.null_operators
        assert issued - nulls == info.operators


def test_all_cycles_are_accounted_for(image):
    result = estimate_program(image.program, CONFIG)
    assert [layer.index for layer in result.layers] == list(range(len(result.layers)))
    assert sum(layer.cycles for layer in result.layers) == max(layer.end for layer in result.layers)
    assert max(layer.end for layer in result.layers) < result.cycles
    assert sum(result.pe_cycles.values()) == CONFIG.pes * result.cycles
    assert min(result.pe_cycles.values()) >= 0
    assert result.ddr_read_bytes == image.input_bytes
    assert result.ddr_write_bytes == image.output_bytes


def test_every_window_and_word_is_served(image):
    machine = Machine(read_program(image.program, CONFIG), CONFIG)
    machine.run()
    for branch in machine.branches:
        assert len(branch.state.arrivals) == len(branch.walker.leaves) == branch.walker.asked
        assert len(branch.state.commits) == len(branch.state.released)
        ready = [cycle for cycle, _ in branch.words]
        assert ready == sorted(ready)
    tensors = image.metadata.tensors
    written = sum(len(writer.words) for writer in [*machine.branches, machine.pool])
    outputs = [tensors[info.output] for info in image.metadata.layers]
    assert written == sum(t.tiles_y * t.tiles_x * t.channels for t in outputs)


def test_more_operators_take_longer():
    cycles = []
    for density in (0.1, 0.9):
        net = RandomNetwork(8, 20, 20)
        net.conv("input", 16, density=density)
        cycles.append(estimate_program(compile_graph(net.graph(), CONFIG).program, CONFIG).cycles)
    assert cycles[0] < cycles[1]


def test_a_program_that_waits_for_ever_is_found(image):
    layers = read_program(image.program, CONFIG)
    index = next(i for i, layer in enumerate(layers) if layer.opcode == Opcode.CONV)
    first = layers[index]
    # The branches ask for windows together with one that has no tiles.
    masks = [{**values, "group_mask": (1 << CONFIG.branches) - 1, "tiles": min(b, values["tiles"])}
             for b, values in enumerate(first.branch_fields)]  # fmt: skip
    work = [own if masks[b]["tiles"] else None for b, own in enumerate(first.branches)]
    layers[index] = dataclasses.replace(first, branch_fields=masks, branches=work)
    with pytest.raises(InternalError, match="stands still"):
        Machine(layers, CONFIG).run()


def test_tiles_are_walked_in_runs():
    fields = {"tile_y0": 0, "tile_x0": 1, "tiles": 6, "run": 2, "jump_y": 0, "jump_x": 3}
    y, x = tile_walk(fields, 5)
    assert list(zip(y.tolist(), x.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 4), (2, 0)]


def test_progress_follows_the_rules_of_the_scoreboard():
    def word(place, channel, final=False, last=False):
        return Word(None, place, 0, channel, final, last)

    progress = Progress()
    progress.begin(layer=3, ordered=True, rests=False)
    assert progress.layer == 3 and progress.ended is None
    assert progress.passed((0, 0), 0) is None
    progress.write(20, word((1, 2), 5))
    progress.write(24, word((1, 2), 7))
    assert progress.passed((1, 1), 60) == 20
    assert progress.passed((1, 2), 5) == 20
    assert progress.passed((1, 2), 6) == 24
    assert progress.passed((1, 2), 8) is None
    assert progress.passed((2, 0), 0) is None
    progress.write(28, word((1, 2), 7, final=True))
    assert progress.passed((2, 0), 6) == 28
    assert progress.passed((2, 0), 8) is None
    progress.write(32, word((1, 2), 9, final=True, last=True))
    assert progress.passed((2, 0), 60) == progress.ended == 32
    progress.begin(layer=3, ordered=False, rests=False)
    progress.write(40, word((1, 2), 9))
    assert progress.passed((1, 1), 60) == 40
    assert progress.passed((1, 2), 6) is None
    progress.begin(layer=3, ordered=False, rests=True)
    assert progress.passed((7, 7), 60) < 0


def test_turns_go_round():
    order = Order(4)
    assert [order.choose([0, 2, 3]) for _ in range(4)] == [0, 2, 3, 0]
    assert [order.choose([0, 1, 2]) for _ in range(3)] == [1, 2, 0]


def test_patterns_are_grouped_by_the_window_that_they_use():
    keys = [(1, -1, 0), (0, -1, 0), (0, -1, 0), (1, 1, 0), (0, 1, 0)]
    patterns = [{"fetch": f, "tile_dy": y, "tile_dx": x} for f, y, x in keys]
    assert WindowPlan.of(patterns) == WindowPlan((3, 2), ((-1, 0), (1, 0)))


def test_a_3x3_maximum_takes_three_cycles_a_word():
    net = RandomNetwork(32, 40, 40)
    net.pool("input", "max", (3, 3), 2, pads=(1, 1, 1, 1))
    config = dataclasses.replace(CONFIG, window_fifo_depth=32)
    layer = estimate_program(compile_graph(net.graph(), config).program, config).layers[0]
    words = 5 * 5 * 32
    load = 10 * 10 * 32 * config.word_beats
    # The last of five rows of tiles is left then, and some of the fourth: windows that follow are slower.
    assert load < layer.cycles < load + 2 * 3 * words // 5 + 200


def test_latency_decides_when_few_windows_are_asked_for_ahead():
    net = RandomNetwork(16, 16, 16)
    net.pool("input", "max", (2, 2), 2)
    cycles = [
        estimate_program(compile_graph(net.graph(), config).program, config).layers[0].cycles
        for config in (dataclasses.replace(CONFIG, window_fifo_depth=depth) for depth in (4, 32))
    ]
    assert cycles[1] < cycles[0]


def test_the_same_program_takes_the_same_time(image):
    machines = [Machine(read_program(image.program, CONFIG), CONFIG) for _ in range(2)]
    for machine in machines:
        machine.run()
    assert machines[0].cycles == machines[1].cycles
    assert np.all(np.diff([cycle for cycle, _ in machines[0].ends]) >= latencies.REPORT_HELD)


def residual_word(channel):
    fields = {"residual_base": 1500, "residual_pitch": 1, "residual_ring": 0, "out_channels": 1000}
    job = Job(LayerWork(Opcode.CONV, fields, [], [], []), 0, 1)
    return Word(job, (1, 0), 3, channel, False, False)


def test_tiles_from_small_parts_wait_for_windows_from_there():
    """Bank 3 of zcu104 has a small part from word 2048 on: of this tensor the channels from 548 on."""
    small = SmallParts(load_config("zcu104"))
    words = [(10 + number, residual_word(channel)) for number, channel in enumerate((600, 601, 100, 602))]
    port = TilePort([words, []], (), small)
    window = {"in_base": 0, "in_pitch": 1, "in_ring": 0, "in_channels": 2100}

    def run():
        found = []
        port.find(0)
        while len(found) < len(words):
            if port.turn < port.done:
                port.find(port.take())
            elif (read := port.finish()) is not None:
                found.append((read[1].channel, port.reading))
        return found

    first = 10 + latencies.TILE
    # One window from the small part, one from below it, one from the small part of no bank.
    small.window(first + 1 - latencies.WINDOW_READ, (window, (0, 0), 2050))
    small.window(first + 2 - latencies.WINDOW_READ, (window, (0, 0), 2047))
    small.window(first + 4 - latencies.WINDOW_READ, (window, (0, 0), 100))
    assert run() == [(600, first + 1), (601, first + 3), (100, first + 5), (602, first + 6)]


def test_windows_around_the_map_are_read_where_their_addresses_wrap_to():
    small = SmallParts(load_config("zcu104"))
    window = {"in_base": 0, "in_pitch": 1, "in_ring": 0, "in_channels": 64}
    # The row above the map, three tile rows before row 2: at word -64 modulo 8192, in the small part.
    small.window(0, (window, (0, 1), 0))
    assert [small.refuses(latencies.WINDOW_READ, bank) for bank in (3, 6, 7)] == [False, True, True]
    assert not small.refuses(latencies.WINDOW_READ + 1, 6)


def stored(config, base, residuals=()):
    """Cycle in which a STORE of 16 words has ended; residuals: tiles that a branch asks for meanwhile."""
    fields = {"in_pitch": 1, "in_ring": 0, "in_tiles_x": 1, "in_channels": 8, "store_beats": 1}
    fields |= {"dram_words": 16, "in_base": base}
    store = Store(config)
    port = TilePort([list(residuals), store.words], (), SmallParts(config))
    store.start(LayerWork(Opcode.STORE, fields, [{"tile_y0": 0}], [], []), 0)
    for client in range(2):
        port.find(client)
    while store.end is None:
        if port.turn < port.done:
            port.find(port.take())
        elif (read := port.finish()) is not None and read[0] == 1:
            store.read(port.reading)
            port.find(1)
    return store.end


def test_a_store_reads_every_other_cycle_from_small_parts():
    config = load_config("zcu104")
    # Only the second tile row lies in a bank with a small part: its eight words, the last of them once more.
    assert stored(config, 2048) - stored(config, 0) == 7


def test_residual_tiles_are_read_before_tiles_to_store():
    config = load_config("zcu104")
    residuals = [(cycle, residual_word(0)) for cycle in range(100)]
    assert stored(config, 0) < 100 < stored(config, 0, residuals)
