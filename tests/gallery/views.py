"""Axes that hide in a longer axis, for the proofs: case -> site -> from an array to its parts, by suffix."""

import numpy as np


def reshaped(*shape):
    """See a site in another shape."""
    return lambda index: {"": index.reshape(shape)}


def split(axis, *sizes):
    """See a site in pieces of these sizes along an axis."""
    starts = np.cumsum([0, *sizes])

    def pieces(index):
        return {
            f":{start}": np.take(index, range(start, stop), axis)
            for start, stop in zip(starts[:-1], starts[1:], strict=True)
        }

    return pieces


VIEWS = {
    "mlp-flat-weights": {
        "theta": lambda index: {
            ":kernel": index[:15].reshape(3, 5),
            ":bias": index[15:20],
            ":out": index[20:25],
        }
    },
    "attention-multi-head": {
        "query": reshaped(3, 4, 5),
        "key": reshaped(3, 4, 5),
        "value": reshaped(3, 4, 3),
        "out": reshaped(4, 3, 3),
    },
    "swiglu-fused": {"fused": reshaped(3, 2, 5)},
    "dense-net-concat": {"second": split(0, 3, 5), "last": split(0, 3, 5, 4)},
    "u-net-skip": {"last": split(0, 5, 6)},
    "group-norm": {"kernel": reshaped(3, 2, 3), "gain": reshaped(2, 3), "out": reshaped(2, 3)},
    "mixture-density-network": {"out": reshaped(5, 3, 4)},
    "attention-fused-kernel": {
        "fused": lambda index: {f":{i}": index.reshape(3, 3, 3, 5)[:, i] for i in range(3)},
        "out": reshaped(3, 5, 3),
    },
    "lstm-fused-gates": {"read": reshaped(3, 4, 5), "recur": reshaped(5, 4, 5), "bias": reshaped(4, 5)},
    "gru-fused-gates": {"read": reshaped(3, 3, 5), "recur": reshaped(5, 3, 5), "bias": reshaped(3, 5)},
    "rnn-bidirectional": {"out": split(0, 4, 5)},
    "resnet-group-norm": {
        **{f"nn/GroupNorm_{i}.{name}": reshaped(2, 4) for i in range(3) for name in ("scale", "bias")},
        "nn/Conv_0.kernel": reshaped(3, 3, 3, 2, 4),
        "nn/Conv_1.kernel": reshaped(3, 3, 2, 4, 2, 4),
        "nn/Conv_2.kernel": reshaped(3, 3, 2, 4, 2, 4),
        "nn/Dense_0.kernel": reshaped(2, 4, 3),
    },
    "resnet-padded-shortcut": {"nn/Conv_4.kernel": split(3, 4, 2), "nn/Dense_0.kernel": split(0, 4, 2)},
    "grouped-convolution": {
        "nn/Conv_0.kernel": reshaped(3, 3, 1, 2, 2),
        "nn/Conv_0.bias": reshaped(2, 2),
        "nn/Conv_1.kernel": reshaped(3, 3, 2, 2, 3),
        "nn/Conv_1.bias": reshaped(2, 3),
        "nn/Dense_0.kernel": reshaped(2, 3, 3),
    },
    "mixture-with-outliers": {"weights": split(0, 4, 1)},
    "unit-weight-fixed": {"kernel": split(1, 1, 4)},
    "convnet-flatten-dense": {"nn/Dense_0.kernel": reshaped(4, 6, 5)},
}
