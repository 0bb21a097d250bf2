"""Random networks ready to run on one configuration, with what must come out."""

from __future__ import annotations

from espalier import numerics
from espalier.arch.feature_layout import pack_tiles
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.synthetic import tall_network
from espalier.estimate.report import estimate_program
from espalier.passes.space_to_depth import rearrange_picture
from espalier_sim.random_networks import random_network
from espalier_sim.verify import check_layers, check_output, output_tensor


def tall(seed):
    """Draw a network with large maps, which may not fit the feature memory, and its picture."""
    network = tall_network(seed)
    return network.graph(), network.picture()


class Case:
    """Network number `seed` of those that `draw` makes, compiled for `config`."""

    def __init__(self, seed, config, draw=random_network):
        self.config = config
        graph, picture = draw(seed)
        self.image = compile_graph(graph, config)
        lowered = lower_integer_graph(graph, config)
        self.output = lowered.output
        factor = lowered.metadata.get("space_to_depth") or 1
        zero_point = graph.tensors[graph.input].zero_point
        self.picture = rearrange_picture(picture, factor, zero_point) if factor > 1 else picture
        self.expected = numerics.run(lowered, self.picture)
        self.content = pack_tiles(self.picture, config, self.image.input.pad).tobytes()

    def check(self, inference):
        """Compare all layers and what lies in DDR."""
        layers = check_layers(self.image, inference, self.expected, self.config)
        assert layers == len(self.image.metadata.layers)
        found = output_tensor(self.image, inference.output, self.config)
        check_output(self.image, found, self.expected[self.output])

    def run(self, device):
        """Run it once and compare all, the traffic with the prediction too; returns its cycles."""
        inference = device.infer(self.content)
        self.check(inference)
        estimate = estimate_program(self.image.program, self.config)
        assert inference.read_bytes == estimate.ddr_read_bytes
        assert inference.write_bytes == estimate.ddr_write_bytes
        return inference.cycles
