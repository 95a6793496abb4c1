"""ResNets in plain numpy, float64, with their gradients: a tape of layers, each with its own backward pass.

Written from the papers' formulas and independent of the package: parameters come by name, as arrays. Which units each
ReLU lets pass comes from outside, too: of those whose input is next to zero, float32 puts some on the other side. Which
ones depends on processor and version, and each changes the gradients of all layers before it by some per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

EPS = 1e-5
Backward = Callable[[np.ndarray], np.ndarray]


class Tape:
    """Layers in training mode; each method gives (output, backward), backward(d output) -> d input."""

    def __init__(self, parameters: Mapping[str, np.ndarray], passed: Iterable[np.ndarray]) -> None:
        self.parameters = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
        self.passed = iter(passed)
        self.gradients: dict[str, np.ndarray] = {}

    def conv(self, x: np.ndarray, name: str, stride: int) -> tuple[np.ndarray, Backward]:
        weight = self.parameters[f"{name}.weight"]
        out_channels, channels, kernel, _ = weight.shape
        pad = kernel // 2
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[
            :, :, ::stride, ::stride
        ]
        batch, _, height, width = windows.shape[:4]
        columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, -1)
        flat = weight.reshape(out_channels, -1)
        out = (columns @ flat.T).reshape(batch, height, width, out_channels).transpose(0, 3, 1, 2)

        def backward(d_out: np.ndarray) -> np.ndarray:
            rows = d_out.transpose(0, 2, 3, 1).reshape(-1, out_channels)
            self.gradients[f"{name}.weight"] = (rows.T @ columns).reshape(weight.shape)
            d_windows = (rows @ flat).reshape(batch, height, width, channels, kernel, kernel)
            d_padded = np.zeros_like(padded)
            for i in range(kernel):
                for j in range(kernel):
                    place = np.s_[:, :, i : i + stride * height : stride, j : j + stride * width : stride]
                    d_padded[place] += d_windows[..., i, j].transpose(0, 3, 1, 2)
            return d_padded[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]]

        return out, backward

    def norm(self, x: np.ndarray, name: str) -> tuple[np.ndarray, Backward]:
        gamma, beta = (self.parameters[f"{name}.{key}"].reshape(1, -1, 1, 1) for key in ("gamma", "beta"))
        mean = x.mean(axis=(0, 2, 3), keepdims=True)
        deviation = np.sqrt(x.var(axis=(0, 2, 3), keepdims=True) + EPS)
        normal = (x - mean) / deviation

        def backward(d_out: np.ndarray) -> np.ndarray:
            self.gradients[f"{name}.gamma"] = (d_out * normal).sum(axis=(0, 2, 3))
            self.gradients[f"{name}.beta"] = d_out.sum(axis=(0, 2, 3))
            d = d_out * gamma
            along = (d * normal).mean(axis=(0, 2, 3), keepdims=True)
            return (d - d.mean(axis=(0, 2, 3), keepdims=True) - normal * along) / deviation

        return normal * gamma + beta, backward

    def relu(self, x: np.ndarray) -> tuple[np.ndarray, Backward]:
        passed = next(self.passed)
        wrong = passed != (x > 0)
        assert np.abs(x[wrong]).max(initial=0) < 2e-3, "a ReLU lets others pass than those above zero"
        return x * passed, lambda d_out: d_out * passed

    def max_pool(self, x: np.ndarray) -> tuple[np.ndarray, Backward]:
        """3x3, stride 2, padding 1."""
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
        flat = windows.reshape(*windows.shape[:4], 9)
        best = flat.argmax(axis=-1)

        def backward(d_out: np.ndarray) -> np.ndarray:
            d_padded = np.zeros_like(padded)
            b, c, i, j = np.indices(best.shape)
            np.add.at(d_padded, (b, c, 2 * i + best // 3, 2 * j + best % 3), d_out)
            return d_padded[:, :, 1:-1, 1:-1]

        return flat.max(axis=-1), backward

    def chain(self, x: np.ndarray, *layers) -> tuple[np.ndarray, Backward]:
        steps = []
        for layer, *arguments in layers:
            x, step = layer(x, *arguments)
            steps.append(step)

        def backward(d_out: np.ndarray) -> np.ndarray:
            for step in reversed(steps):
                d_out = step(d_out)
            return d_out

        return x, backward

    def block(self, x: np.ndarray, name: str, stride: int, bottleneck: bool) -> tuple[np.ndarray, Backward]:
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        layers: list[tuple] = []
        for index, step in enumerate(strides, 1):
            layers += [(self.conv, f"{name}.conv{index}", step), (self.norm, f"{name}.bn{index}"), (self.relu,)]
        y, back = self.chain(x, *layers[:-1])  # the last ReLU comes after the sum
        if f"{name}.downsample.0.weight" in self.parameters:
            shortcut, back_shortcut = self.chain(
                x, (self.conv, f"{name}.downsample.0", stride), (self.norm, f"{name}.downsample.1")
            )
        else:
            shortcut, back_shortcut = x, lambda d_out: d_out
        out, back_relu = self.relu(y + shortcut)

        def backward(d_out: np.ndarray) -> np.ndarray:
            d = back_relu(d_out)
            return back(d) + back_shortcut(d)

        return out, backward

    def head(self, x: np.ndarray) -> tuple[np.ndarray, Backward]:
        weight, bias = self.parameters["fc.weight"], self.parameters["fc.bias"]
        pooled = x.mean(axis=(2, 3))

        def backward(d_out: np.ndarray) -> np.ndarray:
            self.gradients["fc.weight"], self.gradients["fc.bias"] = d_out.T @ pooled, d_out.sum(axis=0)
            d_pooled = d_out @ weight / (x.shape[2] * x.shape[3])
            return np.broadcast_to(d_pooled[:, :, None, None], x.shape)

        return pooled @ weight.T + bias, backward


def resnet(
    parameters: Mapping[str, np.ndarray],
    x: np.ndarray,
    labels: np.ndarray,
    counts: tuple[int, ...],
    bottleneck: bool,
    passed: Iterable[np.ndarray],
) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
    """Normalised images (B, 3, H, W) and labels (B,) -> logits, mean cross entropy, gradients by name.

    passed: of each ReLU in the order of the forward pass, bool like its output.
    """
    tape = Tape(parameters, passed)
    layers: list[tuple] = [(tape.conv, "conv1", 2), (tape.norm, "bn1"), (tape.relu,), (tape.max_pool,)]
    for stage, count in enumerate(counts, 1):
        for index in range(count):
            stride = 2 if stage > 1 and index == 0 else 1
            layers.append((tape.block, f"layer{stage}.{index}", stride, bottleneck))
    logits, backward = tape.chain(x, *layers, (tape.head,))
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels]).mean()
    d_logits = shares.copy()
    d_logits[rows, labels] -= 1
    backward(d_logits / len(labels))
    return logits, float(loss), tape.gradients
