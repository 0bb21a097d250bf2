"""The driver's API on the integer model and on the RTL of the tiny accelerator."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from driver_networks import CONFIG, SIDE, classifier
from PIL import Image

from espalier import numerics
from espalier.arch.config import load_config
from espalier.backend.compiler import lower_integer_graph
from espalier.errors import DeviceError, DeviceFault, ModelFileError, PictureError, TensorError
from espalier.runtime import Accelerator, IntegerDevice, Recorder, Replayer, load_model
from espalier_sim.random_networks import random_network
from espalier_sim.rtl_device import SimulatedDevice

pytestmark = pytest.mark.xdist_group("tiny")
MOST_ACCESSES = 12


@pytest.fixture(params=["integer", "rtl", "rtl with stalls"])
def device(request):
    """Both kinds of device that need no board."""
    if request.param == "integer":
        yield IntegerDevice(CONFIG)
        return
    built = request.getfixturevalue("tiny_simulator")
    stalls, host = (5, (0, 60)) if "stalls" in request.param else (None, (0, 0))
    with SimulatedDevice(CONFIG, stalls, host_latency=host, built=built) as simulated:
        yield simulated


@pytest.fixture
def rtl(tiny_simulator):
    with SimulatedDevice(CONFIG, built=tiny_simulator) as simulated:
        yield simulated


def expected(model, tensor):
    return numerics.run(lower_integer_graph(model.graph, CONFIG), tensor)[model.image.metadata.output]


@pytest.mark.parametrize("interrupt", [True, False])
def test_outputs_equal_the_integer_model(device, interrupt):
    model = classifier()
    with Accelerator(model, device, interrupt=interrupt) as accelerator:
        tensors = [accelerator.random_tensor(seed) for seed in range(5)]
        wanted = [expected(model, tensor) for tensor in tensors]
        assert all(np.array_equal(accelerator.run(t), w) for t, w in zip(tensors, wanted, strict=True))
        many = list(accelerator.run_many(iter(tensors)))
        assert len(many) == 5 and all(np.array_equal(f, w) for f, w in zip(many, wanted, strict=True))
        found = asyncio.run(accelerator.run_async(tensors[0]))
        assert np.array_equal(found, wanted[0])
    assert len({w.tobytes() for w in wanted}) == 5


def test_networks_of_all_kinds(device):
    accelerator = None
    for seed in range(6):
        graph, _ = random_network(seed)
        model = load_model(graph, "tiny")
        if accelerator is None:
            accelerator = Accelerator(model, device)
        else:
            accelerator.load(model)
        tensor = accelerator.random_tensor(seed)
        assert np.array_equal(accelerator.run(tensor), expected(model, tensor)), seed
    accelerator.close()


def test_classify_prepares_pictures(device, tmp_path):
    pixels = np.random.default_rng(3).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    with Accelerator(classifier(), device) as accelerator:
        scores = accelerator.scores(accelerator.run(accelerator.prepare(pixels)))
        best = accelerator.classify(pixels, best=3)
        assert [score.score for score in best] == sorted(scores, reverse=True)[:3]
        assert best[0].label == f"class {int(scores.argmax())}"
        assert accelerator.classify(tmp_path / "picture.png", best=3) == best
        assert accelerator.classify(Image.fromarray(pixels), best=3) == best
        large = np.asarray(Image.fromarray(pixels).resize((64, 48)))
        assert accelerator.prepare(large).shape == accelerator.input_shape
        with pytest.raises(TensorError, match=r"uint8\[15, 15\], expected uint8\[height, width, 3\]"):
            accelerator.classify(pixels[..., 0])
        with pytest.raises(PictureError, match="no picture at"):
            accelerator.classify(tmp_path / "nothing.png")
        with pytest.raises(TensorError, match="`prepare` makes them from a picture"):
            accelerator.run(pixels)


@pytest.mark.parametrize("interrupt", [True, False])
def test_few_register_accesses_and_no_new_buffers(rtl, interrupt):
    recorder = Recorder(rtl)
    with Accelerator(classifier(), recorder, interrupt=interrupt) as accelerator:
        tensors = [accelerator.random_tensor(seed) for seed in range(6)]
        list(accelerator.run_many(tensors))
        kinds = []
        for tensor in tensors:
            recorder.log.clear()
            accelerator.run(tensor)
            kinds.append([entry[0] for entry in recorder.log])
            assert recorder.accesses() <= MOST_ACCESSES
        recorder.log.clear()
        list(accelerator.run_many(tensors))
        assert recorder.accesses() <= MOST_ACCESSES * len(tensors)
    for names in kinds:
        assert names.count("flush") == names.count("invalidate") == 1 and "allocate" not in names


def test_two_accelerators_share_a_device(rtl):
    models = classifier(0), classifier(1, filters=9)
    with Accelerator(models[0], rtl) as first, Accelerator(models[1], rtl) as second:
        for number in range(3):
            for accelerator, model in ((first, models[0]), (second, models[1])):
                tensor = accelerator.random_tensor(number)
                assert np.array_equal(accelerator.run(tensor), expected(model, tensor))
    assert not rtl.heap.live, "all buffers are freed"


def test_another_user_of_the_device_aborts_what_runs(rtl):
    models = classifier(0), classifier(1, filters=9)
    with Accelerator(models[0], rtl) as first, Accelerator(models[1], rtl) as second:
        outputs = first.run_many([first.random_tensor(seed) for seed in range(3)])
        next(outputs)
        tensor = second.random_tensor()
        assert np.array_equal(second.run(tensor), expected(models[1], tensor))
        with pytest.raises(DeviceFault, match="was given to another model while running classifier0"):
            next(outputs)
        assert np.array_equal(first.run(tensor), expected(models[0], tensor))
        first.close()
        first.close()
        with pytest.raises(DeviceError, match="is closed"):
            first.run(tensor)


def test_nothing_else_while_run_many_is_at_work(rtl):
    with Accelerator(classifier(), rtl) as accelerator:
        tensors = [accelerator.random_tensor(seed) for seed in range(3)]
        outputs = accelerator.run_many(tensors)
        next(outputs)
        with pytest.raises(DeviceError, match="still running"):
            accelerator.run(tensors[0])
        outputs.close()
        assert np.array_equal(accelerator.run(tensors[0]), expected(classifier(), tensors[0]))
        with pytest.raises(TensorError):
            list(accelerator.run_many([tensors[0], tensors[1][0]]))
        assert np.array_equal(accelerator.run(tensors[1]), expected(classifier(), tensors[1]))


def test_close_aborts_what_runs_and_a_new_start_is_clean(rtl):
    accelerator = Accelerator(classifier(), rtl)
    outputs = accelerator.run_many(accelerator.random_tensor(seed) for seed in range(3))
    next(outputs)
    accelerator.close()
    accelerator.close()
    assert not rtl.heap.live
    with Accelerator(classifier(2), rtl) as again:
        assert again.self_test().passed


def test_profile_is_the_table_of_sim_run(rtl):
    model = classifier()
    with Accelerator(model, rtl) as accelerator:
        profile = accelerator.profile()
        assert np.array_equal(profile.output, expected(model, accelerator.random_tensor()))
        assert profile.cycles == accelerator.last_cycles > 0
        assert sum(layer.operators for layer in profile.layers) == model.image.metadata.operators
        assert profile.read_bytes == model.image.input_bytes
        text = str(profile)
        assert all(layer.name in text for layer in model.image.metadata.layers)
        assert f"total: {profile.cycles} cycles" in text and "predicted" in text


def test_throughput_has_the_keys_of_finn(rtl):
    with Accelerator(classifier(), rtl) as accelerator:
        result = accelerator.throughput_test(4)
        cycles = accelerator.last_cycles
    assert {
        "runtime[ms]",
        "throughput[images/s]",
        "DRAM_in_bandwidth[MB/s]",
        "fclk[mhz]",
        "batch_size",
    } < set(result)
    assert result["batch_size"] == 4 and result["fclk[mhz]"] == CONFIG.clock_mhz
    # Simulated time: the pictures themselves and little else.
    assert 1 <= result["runtime[ms]"] / (4 * cycles / CONFIG.clock_mhz / 1000) < 1.2


def test_the_integer_model_counts_nothing_and_says_so():
    with Accelerator(classifier(), "integer") as accelerator:
        with pytest.raises(DeviceError, match="integer model of 'tiny' counts no cycles"):
            accelerator.profile()
        assert accelerator.last_cycles == 0
        assert accelerator.throughput_test(2)["fclk[mhz]"] == 0


def test_an_image_alone_is_executed_from_its_bytes(tmp_path):
    model = classifier()
    model.image.save(tmp_path / "network.image")
    with Accelerator(tmp_path / "network.image", "integer") as accelerator:
        assert accelerator.model.graph is None and accelerator.model.config == CONFIG
        tensor = accelerator.random_tensor(4)
        assert np.array_equal(accelerator.run(tensor), expected(model, tensor))


def test_self_test_names_what_fails(device):
    with Accelerator(classifier(), device) as accelerator:
        good = accelerator.self_test()
        assert good.passed and len(good.checks) == 5, str(good)
        reference = accelerator.model.reference()
        wrong = _Wrong(accelerator.model, lambda tensor: reference(tensor) ^ np.uint8(1))
        accelerator.session.model = wrong
        bad = accelerator.self_test()
    assert not bad.passed and [check.passed for check in bad.checks] == [True, True, True, False]
    assert "FAIL arithmetic: 10 of 10 values differ" in str(bad)


class _Wrong:
    """A model whose integer model is wrong."""

    def __init__(self, model, reference):
        self._model, self.reference = model, lambda: reference

    def __getattr__(self, name):
        return getattr(self._model, name)


def test_a_recorded_run_can_be_replayed(rtl, tmp_path):
    model = classifier()
    recorder = Recorder(rtl)
    with Accelerator(model, recorder) as accelerator:
        tensor = accelerator.random_tensor(7)
        output, profile = accelerator.run(tensor), accelerator.profile(tensor)
    recorder.save(tmp_path / "run.rec")
    replayer = Replayer(tmp_path / "run.rec")
    with Accelerator(model, replayer) as accelerator:
        assert np.array_equal(accelerator.run(tensor), output)
        assert accelerator.profile(tensor).layers == profile.layers
    assert replayer.finished()

    replayer = Replayer(tmp_path / "run.rec")
    with pytest.raises(DeviceError, match=r"entry .* of the recording is .*flush"):
        Accelerator(model, replayer).run(255 - tensor)
    with pytest.raises(DeviceError, match="cannot read recording"):
        Replayer(tmp_path / "nothing.rec")


def test_models_and_devices_that_do_not_fit(rtl, tmp_path):
    with pytest.raises(ModelFileError, match=r"no model .*nothing.image"):
        Accelerator(tmp_path / "nothing.image", rtl)
    with pytest.raises(ModelFileError, match="give `target`"):
        Accelerator(classifier().graph, rtl)
    with pytest.raises(DeviceError, match="'moon' is no device"):
        Accelerator(classifier(), "moon")
    other = load_model(classifier().graph, "zcu104")
    with pytest.raises(DeviceError, match=r"has configuration .* the model is compiled for 'zcu104'"):
        Accelerator(other, rtl)
    assert load_config("zcu104").hash == other.image.config_hash
    assert not rtl.heap.live
