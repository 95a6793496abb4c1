"""Properties of the train step on a small network, in graph mode unless said otherwise."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.loss_scale import DynamicLossScale, make_loss_scale
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.fusing import fuse_norms
from msrun_cli.optim.ema import ExponentialMovingAverage, NoAverage
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.optim.sgd import SGD


class SmallNetwork(nn.Cell):
    activates = (("norm", "relu"),)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, has_bias=True)
        self.norm = BatchNorm2d(4, 1e-5, 0.9)
        self.relu = nn.ReLU()
        self.dense = nn.Dense(4, 2)

    def construct(self, x):
        return self.dense(self.relu(self.norm(self.conv(x))).mean(axis=(2, 3)))


class NetworkWithoutNorm(nn.Cell):
    """No batch statistics, so that accumulation equals a larger batch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, has_bias=True)
        self.tanh = nn.Tanh()
        self.dense = nn.Dense(4, 2)

    def construct(self, x):
        return self.dense(self.tanh(self.conv(x)).mean(axis=(2, 3)))


class SquaredError(nn.Cell):
    def construct(self, outputs, targets):
        value = ops.square(outputs.astype("float32") - targets).mean()
        return value, value.reshape(1)


def fixed_weights(network):
    rng = np.random.default_rng(0)
    for parameter in network.trainable_params():
        parameter.set_data(Tensor((rng.standard_normal(parameter.shape) * 0.3).astype(np.float32)))
    return network


def make_step(
    scale=("none", 1.0, 2.0, 100),
    clip_norm=None,
    accumulate=1,
    ema=False,
    amp="O0",
    network_class=SmallNetwork,
    mode=ms.GRAPH_MODE,
    clip_value=None,
    weight_decay=1e-3,
    kernels=None,
):
    ms.set_context(mode=mode)
    network = fixed_weights(network_class())
    average_network, average = None, NoAverage()
    if ema:
        average_network = network_class()
        average_network.update_parameters_name("ema.")
        average = ExponentialMovingAverage(network, average_network, 0.9, 2.0, kernels)
    optimizer = SGD(network.trainable_params(), lr=0.1, momentum=0.9, weight_decay=weight_decay)
    if kernels is not None:
        optimizer.use_kernels(kernels)
        fuse_norms(network, kernels)
    schedule = WarmupDecay(0.1, 0.9, total_updates=20, warmup_updates=2)
    step = TrainStep(
        apply_amp(network, amp, "float16"),
        SquaredError(),
        optimizer,
        schedule,
        make_loss_scale(*scale),
        average,
        clip_norm,
        accumulate,
        clip_value,
        kernels=kernels,
    )
    step.set_train(True)
    return step, network, average_network


def batch(size=8, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, 3, 6, 6)).astype(np.float32), rng.standard_normal((size, 2)).astype(np.float32)


def run(step, images, targets, count=1):
    rows = []
    for _ in range(count):
        rows.append([output.asnumpy() for output in step(Tensor(images), Tensor(targets))])
    return rows


def snapshot(step, *networks):
    found = {}
    for cell in (step, *networks):
        for parameter in cell.get_parameters():
            found[parameter.name] = parameter.asnumpy().copy()
    return found


def test_update_does_not_depend_on_the_loss_scale(kernels):
    states = []
    for scale in (("none", 1.0, 2.0, 100), ("fixed", 1024.0, 2.0, 100), ("dynamic", 4096.0, 2.0, 2)):
        step, network, average_network = make_step(scale, clip_norm=0.5, ema=True, kernels=kernels)
        run(step, *batch(), count=5)
        states.append((snapshot(network), snapshot(average_network)))
    for network_state, average_state in states[1:]:
        for name, value in states[0][0].items():
            np.testing.assert_allclose(network_state[name], value, rtol=1e-6, atol=1e-7, err_msg=name)
        for name, value in states[0][1].items():
            np.testing.assert_allclose(average_state[name], value, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_overflow_leaves_everything_as_it_was_and_halves_the_scale(mode, kernels):
    step, network, average_network = make_step(("dynamic", 1024.0, 2.0, 100), ema=True, mode=mode, kernels=kernels)
    images, targets = batch()
    run(step, images, targets)
    before = snapshot(step, network, average_network)
    # other images, so that the statistics of BatchNorm would move
    row = run(step, images * 3 + 1, np.full_like(targets, np.inf))[0]
    after = snapshot(step, network, average_network)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed <= {"loss_scale.scale", "loss_scale.good_steps", "step.overflows"}
    assert after["loss_scale.scale"] == 512.0
    assert row[4] == 1  # skipped so far
    assert run(step, images, targets)[0][4] == 1
    assert not np.array_equal(snapshot(network)["conv.weight"], after["conv.weight"])


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_a_scale_that_overflows_by_itself_skips_the_step(kind, mode):
    """Batch, weights and loss are finite; only the scale is beyond what float32 gradients bear."""
    absurd = np.float32(3e38)
    step, network, average_network = make_step((kind, 1024.0, 2.0, 100), clip_norm=10.0, ema=True, mode=mode)
    images, targets = batch()
    run(step, images, targets)
    step.loss_scale.scale.set_data(Tensor(absurd))
    before = snapshot(step, network, average_network)
    row = run(step, images * 3 + 1, targets * 50)[0]
    after = snapshot(step, network, average_network)
    assert np.isfinite(row[0]) and np.isfinite(row[1]).all()
    assert (row[3], row[4]) == (absurd, 1)
    assert {"conv.weight", "ema.conv.weight", "norm.moving_mean", "ema.norm.moving_mean", "step.updates"} <= set(before)
    assert any("velocity" in name for name in before)
    moved = {name for name in before if before[name].tobytes() != after[name].tobytes()}
    own = {"loss_scale.scale", "loss_scale.good_steps"} if kind == "dynamic" else set()
    assert moved == {"step.overflows"} | own
    assert after["loss_scale.scale"] == (absurd / 2 if kind == "dynamic" else absurd)


def test_set_train_reaches_the_network():
    step, network, _ = make_step()
    step.set_train(False)
    assert not network.norm.training
    step.set_train(True)
    assert network.norm.training
    before = network.norm.moving_mean.asnumpy().copy()
    run(step, *batch())
    assert not np.array_equal(network.norm.moving_mean.asnumpy(), before)


@pytest.mark.parametrize("ema", [False, True])
def test_accumulated_batches_equal_one_large_batch(ema, kernels):
    """The average follows updates, not batches: its ramp and the schedule are where the large batch has them."""
    images, targets = batch(16)
    settings = {"clip_norm": 0.5, "network_class": NetworkWithoutNorm, "ema": ema, "kernels": kernels}
    large, large_network, large_average = make_step(**settings)
    small, small_network, small_average = make_step(accumulate=4, **settings)
    for _ in range(3):
        large_norm = run(large, images, targets)[0][2]
        norms = [run(small, images[i : i + 4], targets[i : i + 4])[0][2] for i in range(0, 16, 4)]
        np.testing.assert_allclose(norms[-1], large_norm, rtol=1e-5)
        assert norms[:3] == [0.0, 0.0, 0.0]
    expected = snapshot(large_network)
    for name, value in snapshot(small_network).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert small.updates.asnumpy() == large.updates.asnumpy() == 3
    if ema:
        expected = snapshot(large_average)
        for name, value in snapshot(small_average).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)
            assert not np.array_equal(value, snapshot(small_network)[name.removeprefix("ema.")])


def test_reported_norm_is_unscaled_and_before_clipping():
    images, targets = batch()
    plain = run(make_step()[0], images, targets)[0][2]
    clipped = run(make_step(("fixed", 256.0, 2.0, 100), clip_norm=1e-3)[0], images, targets)[0][2]
    np.testing.assert_allclose(clipped, plain, rtol=1e-6)
    assert plain > 1e-3


class OwnStatistics(SmallNetwork):
    """Running statistics of another shape than BatchNorm's."""

    def __init__(self):
        super().__init__()
        self.moving_mean = Parameter(Tensor(np.zeros((1, 3, 1, 1), np.float32)), requires_grad=False)

    def construct(self, x):
        ops.assign(self.moving_mean, x.mean(axis=(0, 2, 3), keep_dims=True))
        return super().construct(x - self.moving_mean)


def test_statistics_of_any_shape_are_kept():
    step, network, _ = make_step(("fixed", 1e38, 2.0, 100), network_class=OwnStatistics)
    run(step, *batch())
    assert step.overflows.asnumpy() == 1 and not network.moving_mean.asnumpy().any()


class FrozenKernels(SmallNetwork):
    """Only parameters of one axis are trained."""

    def __init__(self):
        super().__init__()
        for parameter in self.trainable_params():
            parameter.requires_grad = len(parameter.shape) == 1


@pytest.mark.parametrize("network_class", [FrozenKernels, SmallNetwork])
def test_reported_norm_is_that_of_all_gradients(network_class, kernels):
    """The first velocities are the gradients, without weight decay."""
    step, network, _ = make_step(network_class=network_class, weight_decay=0.0, kernels=kernels)
    norm = run(step, *batch())[0][2]
    gradients = [velocity.asnumpy() for velocity in step.optimizer.velocities]
    assert len(gradients) == len(network.trainable_params())
    np.testing.assert_allclose(norm, np.sqrt(sum(np.square(gradient).sum() for gradient in gradients)), rtol=1e-5)


def test_clipping_limits_the_update():
    images, targets = batch()
    step, network, _ = make_step(clip_norm=1e-3, network_class=NetworkWithoutNorm)
    run(step, images, targets)
    velocity = np.sqrt(
        sum(
            float(np.square(v.asnumpy()).sum())
            for v, p in zip(step.optimizer.velocities, step.optimizer.parameters, strict=True)
            if p.name.endswith("bias")
        )
    )
    assert velocity <= 1.001e-3


@pytest.mark.parametrize("accumulate", [1, 2])
def test_clipping_by_value(accumulate, kernels):
    """Without momentum's past and weight decay of zero, the first update is lr * (1 + momentum) * clipped gradient."""
    limit, changes = 1e-3, []
    for scale, clip_value in (("none", None), ("none", limit), ("fixed", limit)):
        settings = {"accumulate": accumulate, "clip_value": clip_value, "weight_decay": 0.0, "kernels": kernels}
        step, network, _ = make_step((scale, 256.0, 2.0, 100), **settings)
        step.updates.set_data(Tensor(5, ms.int32))  # behind the warm-up
        before = snapshot(network)["conv.weight"]
        run(step, *batch(), count=accumulate)
        changes.append(snapshot(network)["conv.weight"] - before)
    rate = abs(changes[1]).max() / limit
    np.testing.assert_allclose(changes[1], np.clip(changes[0], -limit * rate, limit * rate), rtol=1e-4, atol=1e-7)
    assert abs(changes[0]).max() > 2 * abs(changes[1]).max()
    np.testing.assert_allclose(changes[2], changes[1], rtol=1e-5, atol=1e-7)


def test_dynamic_scale_grows_after_its_window_and_recovers():
    scale = DynamicLossScale(8.0, 2.0, window=2)
    seen = []
    for finite in (True, True, True, False, True, True):
        scale(Tensor(finite))
        seen.append(float(scale.scale.asnumpy()))
    assert seen == [8.0, 16.0, 16.0, 8.0, 8.0, 16.0]


def test_dynamic_scale_keeps_within_its_limits():
    low, high = DynamicLossScale(1.0, 2.0, 1), DynamicLossScale(2.0**24, 2.0, 1)
    low(Tensor(False))
    high(Tensor(True))
    assert float(low.scale.asnumpy()) == 1.0
    assert float(high.scale.asnumpy()) == 2.0**24


class Probe(nn.Cell):
    """Hands back what a cell computed, so that a test sees its dtype."""

    def __init__(self, cell):
        super().__init__(auto_prefix=False)
        self.cell = cell
        self.dtypes = []

    def construct(self, x):
        out = self.cell(x)
        self.dtypes.append((x.dtype, out.dtype))
        return out


HALF, FULL = ms.float16, ms.float32


@pytest.mark.parametrize(
    ("level", "conv", "relu_input", "norm_output"),
    [
        ("O0", FULL, FULL, FULL),
        ("O1", FULL, FULL, FULL),  # the convolution computes in half and gives float32 back
        ("O2", HALF, HALF, HALF),  # BatchNorm computes in float32 between half-precision neighbours
        ("O3", HALF, HALF, HALF),
    ],
)
def test_dtypes_inside_the_network_are_what_the_level_says(level, conv, relu_input, norm_output):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    network = fixed_weights(SmallNetwork())
    amp_network = apply_amp(network, level, "float16")
    probes = {}
    for name in ("conv", "norm", "relu"):
        probes[name] = Probe(network._cells[name])
        network._cells[name] = probes[name]
    out = amp_network(Tensor(batch()[0]))
    assert out.dtype == FULL
    assert probes["conv"].dtypes[0][1] == conv
    assert probes["norm"].dtypes[0][1] == norm_output
    assert probes["relu"].dtypes[0][0] == relu_input
    assert all(parameter.dtype == FULL for parameter in network.get_parameters())


def test_o1_computes_convolutions_in_half_precision():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    images = Tensor(batch()[0])
    exact = fixed_weights(SmallNetwork()).conv(images).asnumpy()
    network = fixed_weights(SmallNetwork())
    apply_amp(network, "O1", "float16")
    rounded = network._cells["conv"](images).asnumpy()
    assert 0 < np.abs(rounded - exact).max() < 1e-2
    np.testing.assert_array_equal(rounded, rounded.astype(np.float16).astype(np.float32))
