"""The train step: one cell with one order.

forward -> scale -> gradient (one forward, never two) -> all-reduce -> finite? -> accumulate -> clip -> update -> EMA.
The gradients are unscaled and clipped by one factor inside the update, so memory is passed once; the norm that is
clipped and reported is that of the unscaled gradients.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msrun_cli.kernels.operators import all_float32, square_sum, unpack

_square_sum = ops.MultitypeFuncGraph("square_sum")
_dot_product = ops.MultitypeFuncGraph("dot_product")
_add_to = ops.MultitypeFuncGraph("add_to")
_clear = ops.MultitypeFuncGraph("clear")
_clamp = ops.MultitypeFuncGraph("clamp")
_copy = ops.MultitypeFuncGraph("copy")
_set = ops.MultitypeFuncGraph("set")


@_square_sum.register("Tensor")
def _square_sum_of(gradient):
    return ops.square(gradient.astype(ms.float32)).sum()


# A CPU sums a product of vectors four times as fast; an NPU would round its factors.
_times_itself = ops.MatMul(transpose_b=True)


@_dot_product.register("Tensor")
def _square_sum_on_cpu(gradient):
    row = gradient.astype(ms.float32).reshape(1, -1)
    return _times_itself(row, row).reshape(())


@_add_to.register("Tensor", "Tensor", "Tensor")
def _add_scaled(factor, total, gradient):
    return ops.assign_add(total, gradient.astype(ms.float32) * factor)


@_clear.register("Tensor")
def _set_zero(total):
    return ops.assign(total, ops.zeros_like(total))


@_clamp.register("Tensor", "Number", "Tensor")
def _clamped(factor, limit, gradient):
    return ops.clamp(gradient.astype(ms.float32) * factor, -limit, limit)


@_copy.register("Tensor")
def _copied(value):
    return value + 0.0


@_set.register("Tensor", "Tensor")
def _set_to(target, value):
    return ops.assign(target, value)


_STATISTICS = ("moving_mean", "moving_variance")


class ScaledLoss(nn.Cell):
    """construct(images, targets, scale) -> (loss * scale, (loss, terms, values of `watched` behind the forward pass)).

    watched: parameters that the forward pass moves; without any, the last item is not there.
    """

    def __init__(self, network: nn.Cell, loss: nn.Cell, watched: tuple[Parameter, ...] = ()) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = loss
        self.watched = ParameterTuple(watched)
        self.watches = len(watched) > 0
        self.map = ops.HyperMap()

    def construct(self, images, targets, scale):
        loss, terms = self.loss(self.network(images), targets)
        if self.watches:
            return loss * scale, (loss, terms, self.map(_copy, self.watched))
        return loss * scale, (loss, terms)


class TrainStep(nn.Cell):
    """construct(images, targets) -> (loss, terms, grad_norm, scale, overflows, lr).

    loss float32 (), terms float32 (T,); grad_norm: global norm before clipping of the (accumulated) gradient, 0 when
    the step only accumulated; scale: loss scale used; overflows: int32 () number of skipped steps so far; lr: learning
    rate of the weights.
    When a gradient is not finite, the step is skipped: parameters, running statistics of BatchNorm, optimizer state,
    average and schedule stay as they were.

    Args:
        network, loss: `loss(network(images), targets)` gives (loss, terms).
        optimizer: called as in `optim.sgd.SGD`.
        schedule: called as in `optim.schedule.WarmupDecay`.
        loss_scale: from `engine.loss_scale`.
        average: from `optim.ema`.
        clip_norm: largest global norm of the gradient; None = no clipping.
        clip_value: largest absolute value of each number of the gradient; None = no clipping. At most one of both.
        accumulate: number of batches whose mean gradient makes one update.
        recomputed: parts of the network run a second time in the backward pass. That moves the running statistics of
            BatchNorm a second time; they are set back to where the first pass left them.
        kernels: library that handles all gradients or statistics at once; None = one operator for each.
    """

    def __init__(
        self,
        network: nn.Cell,
        loss: nn.Cell,
        optimizer: nn.Cell,
        schedule: nn.Cell,
        loss_scale: nn.Cell,
        average: nn.Cell,
        clip_norm: float | None = None,
        accumulate: int = 1,
        clip_value: float | None = None,
        recomputed: bool = False,
        kernels: Path | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.schedule, self.loss_scale, self.average = optimizer, schedule, loss_scale, average
        self.weights: ParameterTuple = optimizer.parameters
        assert clip_norm is None or clip_value is None
        self.clip_norm, self.clip_value = clip_norm, clip_value
        self.accumulate = accumulate
        self.updates = Parameter(Tensor(0, ms.int32), name="step.updates", requires_grad=False)
        self.overflows = Parameter(Tensor(0, ms.int32), name="step.overflows", requires_grad=False)
        if accumulate > 1:
            self.collected = Parameter(Tensor(0, ms.int32), name="step.collected", requires_grad=False)
            self.totals = self.weights.clone(prefix="accumulated", init="zeros")
            for total in self.totals:
                total.requires_grad = False
        # the forward pass moves them before it is known whether the step counts
        self.statistics = ParameterTuple(
            [parameter for parameter in network.get_parameters() if parameter.name.endswith(_STATISTICS)]
        )
        self.has_statistics = len(self.statistics) > 0
        # What a CPU does with small vectors takes less time than launching it for each of them, so there they are one.
        on_cpu = ms.get_context("device_target") == "CPU"
        self.packs = on_cpu and all(map(_is_vector, self.statistics))
        self.at_once = kernels is not None and all_float32(self.weights)
        if self.at_once:
            self.all_squares = square_sum(kernels)
        self.unpacks_at_once = kernels is not None and self.packs and self.has_statistics
        if self.unpacks_at_once:
            self.unpack = unpack(kernels, len(self.statistics))
        self.matrices = len(self.weights) - _vectors_at_the_end(self.weights) if on_cpu else len(self.weights)
        self.moves_twice = recomputed and self.has_statistics
        # a child, so that set_train reaches the network
        self.forward = ScaledLoss(network, loss, tuple(self.statistics) if self.moves_twice else ())
        self.gradient = ms.value_and_grad(self.forward, None, self.weights, has_aux=True)
        self.reducer = _make_reducer(self.weights)
        self.share = MeanOverRanks() if _is_data_parallel() else NoSharing()
        self.on_ascend = ms.get_context("device_target") == "Ascend"
        self.square_sum = _dot_product if on_cpu else _square_sum
        self.map = ops.HyperMap()
        self.slice = ops.Slice()
        self.one = Tensor(1.0, ms.float32)
        self.zero_norm = Tensor(0.0, ms.float32)

    def construct(self, images, targets):
        scale = self.loss_scale.scale + 0.0  # the value before this step adjusts it
        statistics = self._kept_statistics() if self.has_statistics else ()
        rates = self.schedule(self.updates)
        (_, outputs), gradients = self.gradient(images, targets, scale)
        loss, terms = outputs[0], outputs[1]
        if self.moves_twice:
            once = ops.depend(outputs[2], gradients)
            gradients = ops.depend(gradients, self.map(_set, self.statistics, once))
        gradients = self.reducer(gradients)
        loss, terms = self.share(loss, terms)
        norm = self._norm(gradients) / scale
        finite = self._finite(gradients, norm)
        finite = ops.depend(finite, self.loss_scale(finite))
        if finite:
            if self.accumulate == 1:
                self._update(gradients, 1.0 / scale, norm, rates)
            else:
                norm = self._collect(gradients, scale, rates)
        else:
            ops.assign_add(self.overflows, Tensor(1, ms.int32))
            if self.has_statistics:
                self._restore(statistics)
        return loss, terms, norm, scale, self.overflows + 0, rates[0]

    def _kept_statistics(self):
        if self.packs:
            return ops.concat(self.statistics)
        return self.map(_copy, self.statistics)

    def _restore(self, kept):
        if not self.packs:
            self.map(_set, self.statistics, kept)
            return
        if self.unpacks_at_once:
            self.unpack(kept, *self.statistics)
            return
        start = 0
        for statistic in self.statistics:
            ops.assign(statistic, self.slice(kept, (start,), statistic.shape))
            start = start + statistic.shape[0]

    def _norm(self, gradients):
        if self.at_once:
            return ops.sqrt(self.all_squares(*gradients)).reshape(())
        sums = self.map(self.square_sum, gradients[: self.matrices])
        if self.matrices < len(self.weights):
            sums = sums + (self.square_sum(ops.concat(gradients[self.matrices :])),)
        return ops.sqrt(ops.addn(sums))

    def _finite(self, gradients, norm):
        """A norm of NaN or Inf betrays any such gradient; older NPUs saturate instead, so there the device is asked."""
        finite = ops.isfinite(norm)
        if self.on_ascend:
            finite = ops.logical_and(finite, ms.amp.all_finite(gradients))
        return finite

    def _collect(self, gradients, scale, rates):
        """Add this batch to the running mean; every `accumulate` batches update and start again."""
        added = self.map(ops.partial(_add_to, 1.0 / (scale * self.accumulate)), self.totals, gradients)
        count = ops.depend(self.collected + 1, added)
        norm = self.zero_norm
        if count == self.accumulate:
            norm = self._norm(self.totals)
            self._update(self.totals, self.one, norm, rates)
            self.map(_clear, self.totals)
            ops.assign(self.collected, Tensor(0, ms.int32))
        else:
            ops.assign(self.collected, count)
        return norm

    def _update(self, gradients, factor, norm, rates):
        """gradients * factor are the unscaled gradients, `norm` their global norm."""
        if self.clip_norm is not None:
            factor = factor * ops.minimum(self.clip_norm / (norm + 1e-6), self.one)
        if self.clip_value is not None:
            gradients = self.map(ops.partial(_clamp, factor, self.clip_value), gradients)
            factor = self.one
        updated = self.optimizer(gradients, factor, rates[0], rates[1], rates[2])
        count = ops.depend(self.updates + 1, updated)
        counted = ops.assign(self.updates, count)
        return self.average(ops.depend(count, counted))


def _vectors_at_the_end(parameters: ParameterTuple) -> int:
    """The optimizers of this package keep them there; that of another may not, which is only slower."""
    return len(list(itertools.takewhile(_is_vector, reversed(parameters))))


def _is_vector(parameter: Parameter) -> bool:
    return len(parameter.shape) == 1 and parameter.dtype == ms.float32


class NoReduction(nn.Cell):
    """Stands in for the all-reduce on a single device."""

    def construct(self, gradients):
        return gradients


class NoSharing(nn.Cell):
    """Stands in for MeanOverRanks on a single device."""

    def construct(self, loss, terms):
        return loss, terms


class MeanOverRanks(nn.Cell):
    """Loss and terms of the whole batch from those of each rank's share: one small message."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.sum = ops.AllReduce()
        self.part = 1.0 / ms.get_auto_parallel_context("device_num")

    def construct(self, loss, terms):
        packed = ops.concat((loss.reshape(1).astype(ms.float32), terms.reshape(-1).astype(ms.float32)))
        means = self.sum(packed) * self.part
        return means[0], means[1:].reshape(terms.shape)


def _is_data_parallel() -> bool:
    return ms.get_auto_parallel_context("parallel_mode") in ("data_parallel", "hybrid_parallel")


def _make_reducer(weights: ParameterTuple) -> nn.Cell:
    """Mean of the gradients over all ranks of a data-parallel job."""
    if not _is_data_parallel():
        return NoReduction()
    return nn.DistributedGradReducer(weights, mean=True, degree=ms.get_auto_parallel_context("device_num"))
