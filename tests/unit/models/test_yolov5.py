import numpy as np
import pytest

from msrun_cli.common.errors import CheckpointError

# (depth_multiple, width_multiple) -> trainable parameters with 80 classes, as published for YOLOv5 release 6/7
PUBLISHED = {
    "n": (0.33, 0.25, 1_872_157),
    "s": (0.33, 0.50, 7_235_389),
    "m": (0.67, 0.75, 21_190_557),
    "l": (1.0, 1.0, 46_563_709),
    "x": (1.33, 1.25, 86_749_405),
}


def make_network(num_classes=80, depth=0.33, width=0.25):
    from msrun_cli.models.yolov5.network import YOLOv5

    return YOLOv5(num_classes, depth, width)


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameter_count_is_the_published_one(size):
    depth, width, published = PUBLISHED[size]
    network = make_network(80, depth, width)
    assert sum(parameter.size for parameter in network.trainable_params()) == published


def arrays_of(network):
    return {parameter.name: parameter.asnumpy() for parameter in network.get_parameters()}


def to_pytorch_names(arrays):
    suffixes = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    renamed = {}
    for name, array in arrays.items():
        stem, _, last = name.rpartition(".")
        renamed[f"{stem}.{suffixes.get(last, last)}"] = array
    return renamed


def test_weights_load_by_their_pytorch_names():
    from msrun_cli.models.weights import assign_weights

    source, target = make_network(5), make_network(5)
    report = assign_weights(target, to_pytorch_names(arrays_of(source)), "file")
    assert report.fresh == ()
    for name, array in arrays_of(source).items():
        np.testing.assert_array_equal(arrays_of(target)[name], array)


def test_head_of_another_number_of_classes_is_left_fresh_and_named():
    from msrun_cli.models.weights import assign_weights

    source, target = make_network(80), make_network(3)
    before = arrays_of(target)
    report = assign_weights(target, arrays_of(source), "file", target.head_prefixes)
    assert set(report.fresh) == {f"model.24.m.{level}.{part}" for level in range(3) for part in ("weight", "bias")}
    assert "model.24.m.0.weight" in str(report)
    after = arrays_of(target)
    for name in report.fresh:
        np.testing.assert_array_equal(after[name], before[name])
    np.testing.assert_array_equal(after["model.0.conv.weight"], arrays_of(source)["model.0.conv.weight"])


def test_weights_of_another_size_are_refused_and_nothing_is_set():
    from msrun_cli.models.weights import assign_weights

    target = make_network(3)
    before = arrays_of(target)
    with pytest.raises(CheckpointError, match=r"another shape.*choose the matching one"):
        assign_weights(target, arrays_of(make_network(3, width=0.5)), "small.pt", target.head_prefixes)
    with pytest.raises(CheckpointError, match="are not in it"):
        assign_weights(target, {"conv1.weight": np.zeros((1,), np.float32)}, "resnet.pt", target.head_prefixes)
    for name, array in arrays_of(target).items():
        np.testing.assert_array_equal(array, before[name])


def test_head_starts_small_and_at_the_prior():
    head = make_network(4).model[24].m[0]
    bias = head.bias.asnumpy().reshape(3, 9)
    np.testing.assert_allclose(bias[:, :4], 0)
    np.testing.assert_allclose(bias[:, 4], np.log(8 / 80**2), rtol=1e-6)
    np.testing.assert_allclose(bias[:, 5:], np.log(0.6 / (4 - 0.99999)), rtol=1e-6)
    assert 0.008 < head.weight.asnumpy().std() < 0.012


def test_decoded_boxes_follow_the_formula():
    import mindspore as ms

    network = make_network(2)
    raw = [ms.Tensor(np.zeros((1, 3, 64 // s, 64 // s, 7), np.float32)) for s in network.strides]
    raw_first = raw[0].asnumpy().copy()
    raw_first[0, 1, 2, 5] = [0.3, -0.2, 0.5, -0.4, 1.0, 2.0, -2.0]
    raw[0] = ms.Tensor(raw_first)
    decoded = network.decoder()(tuple(raw)).asnumpy()
    assert decoded.shape == (1, 3 * (64 + 16 + 4), 7)

    def sigmoid(x):
        return 1 / (1 + np.exp(-np.float64(x)))

    row = decoded[0, 64 + 2 * 8 + 5]
    expected = [
        (2 * sigmoid(0.3) - 0.5 + 5) * 8,
        (2 * sigmoid(-0.2) - 0.5 + 2) * 8,
        (2 * sigmoid(0.5)) ** 2 * 16,
        (2 * sigmoid(-0.4)) ** 2 * 30,
        sigmoid(1.0),
        sigmoid(2.0),
        sigmoid(-2.0),
    ]
    np.testing.assert_allclose(row, expected, rtol=1e-5)
