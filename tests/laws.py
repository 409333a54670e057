"""A table of symmetries, one row for every builder and feature, over which the laws are checked."""

import numpy as np

from numpyro_symmetry import Split, Symmetry, Unsigned


def _values(**shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _row(symmetry, **shapes):
    values = _values(**shapes)
    return symmetry.bind(values), values


LAYERS = [("w1", "b1"), ("w2", "b2"), ("w3", "b3")]

SYMMETRIES = {
    "mlp, one hidden layer": _row(Symmetry.mlp(LAYERS[:2]), w1=(2, 3), b1=(3,), w2=(3, 1), b2=(1,)),
    "mlp, two hidden layers": _row(Symmetry.mlp(LAYERS), w1=(2, 3), b1=(3,), w2=(3, 2), b2=(2,), w3=(2, 1)),
    "mlp, kernels (out, in)": _row(
        Symmetry.mlp(LAYERS, layout="out_in"), w1=(3, 2), b1=(3,), w2=(2, 3), b2=(2,), w3=(1, 2)
    ),
    "mlp, no biases": _row(Symmetry.mlp([("w1", None), ("w2", None)]), w1=(2, 4), w2=(4, 2)),
    "mlp, signed": _row(Symmetry.mlp(LAYERS[:2], kind="signed"), w1=(2, 3), b1=(3,), w2=(3, 1)),
    "mixture": _row(Symmetry.mixture("weights", "loc"), weights=(4,), loc=(4, 2)),
    "hidden markov model": _row(
        Symmetry.hmm(initial="start", transition="move", emissions=["loc"]), start=(3,), move=(3, 3), loc=(3, 2)
    ),
    "factors": _row(
        Symmetry.factor("loadings", "scores", others={"scale": (Unsigned("factor"),)}),
        loadings=(4, 2),
        scores=(5, 2),
        scale=(2,),
    ),
    "flattened axis": _row(
        Symmetry({"kernel": (Split((2, 2, 3), (None, None, "channel")), None), "bias": ("channel",)}),
        kernel=(12, 2),
        bias=(3,),
    ),
    "two groups apart": _row(Symmetry({"a": ("g",), "b": ("h", None)}), a=(3,), b=(2, 2)),
    "a group of one": _row(Symmetry({"a": ("g", None)}), a=(1, 3)),
    "nothing": _row(Symmetry({}), a=(3,)),
}
