"""A table of symmetries, one row for every builder and feature, over which the laws are checked."""

import numpy as np

from numpyro_symmetry import Complement, Concat, Split, Symmetry, Unsigned


def _values(**shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _row(symmetry, **shapes):
    values = _values(**shapes)
    return symmetry.bind(values), values


LAYERS = [("w1", "b1"), ("w2", "b2"), ("w3", "b3")]

FLAT = Concat((6, 3, 1), (Split((2, 3), (None, "unit")), "unit", None))

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
    "joined axis": _row(
        Symmetry({"kernel": (Concat((2, 3), (None, "unit")), None), "bias": ("unit",), "flat": (FLAT,)}),
        kernel=(5, 2),
        bias=(3,),
        flat=(10,),
    ),
    "joined inside flattened": _row(
        Symmetry({"kernel": (Split((2, 5), ("half", Concat((2, 3), (None, "unit")))),), "bias": ("unit",)}),
        kernel=(10,),
        bias=(3,),
    ),
    "joined along both axes, some parts signed": _row(
        Symmetry(
            {
                "kernel": (Concat((1, 2), (None, "unit")), Concat((2, 2), (Unsigned("unit"), "unit"))),
                "bias": (Concat((2, 2), (Unsigned("unit"), "unit")),),
                "out": ("unit",),
            },
            kinds={"unit": "signed"},
        ),
        kernel=(3, 4),
        bias=(4,),
        out=(2,),
    ),
    "orbits": _row(Symmetry({"w": (None, "unit"), "v": ("unit",)}, orbits={"unit": (0, 1, 0, 1, 1)}), w=(2, 5), v=(5,)),
    "signed orbits": _row(
        Symmetry({"w": (None, "unit")}, kinds={"unit": "signed"}, orbits={"unit": (0, 0, 1)}), w=(2, 3)
    ),
    "heads of units": _row(
        Symmetry({"q": (None, Split((2, 3), ("head", "head/unit"))), "k": ("head/unit", "head"), "o": ("head", None)}),
        q=(2, 6),
        k=(3, 2),
        o=(2, 2),
    ),
    "units of fixed layers": _row(
        Symmetry({"w": ("layer", None, "layer/unit"), "b": ("layer", "layer/unit")}, kinds={"layer": "fixed"}),
        w=(2, 2, 3),
        b=(2, 3),
    ),
    "units of layers of nets": _row(
        Symmetry({"w": ("net", "net/layer", "net/layer/unit"), "b": ("net", "net/layer")}), w=(2, 2, 2), b=(2, 2)
    ),
    "signed units of nets": _row(
        Symmetry({"w": ("net", "net/unit"), "b": ("net",)}, kinds={"net/unit": "signed"}), w=(2, 2), b=(2,)
    ),
    "part of a whole": _row(
        Symmetry(
            {"p": (Complement("component"),), "loc": ("component", ...), "shares": (Complement("component"), "row")}
        ),
        p=(),
        loc=(2, 3),
        shares=(2,),
    ),
    "a site for each of two parts of wholes": _row(
        Symmetry({("p", "r"): ("row", Complement("component")), "loc": ("component",), "w": ("row",)}),
        p=(),
        r=(),
        loc=(2,),
        w=(2,),
    ),
    "a site for each component": _row(
        Symmetry.mixture("weights", ("loc_0", "loc_1", "loc_2")), weights=(3,), loc_0=(2,), loc_1=(2,), loc_2=(2,)
    ),
    "a site for each unit, signed": _row(
        Symmetry(
            {("w_0", "w_1"): ("unit", None), ("b_0", "b_1"): (Unsigned("unit"),), "v": (None, "unit")},
            {"unit": "signed"},
        ),
        w_0=(3,),
        w_1=(3,),
        b_0=(),
        b_1=(),
        v=(2, 2),
    ),
    "a site for each of two sorts of components": _row(
        Symmetry({("a", "b", "c"): ("component", "row"), "w": ("row",)}, orbits={"component": (0, 1, 0)}),
        a=(2,),
        b=(2,),
        c=(2,),
        w=(2,),
    ),
    "a site for each expert, of units of its own": _row(
        Symmetry({("w_0", "w_1"): ("expert", None, "expert/unit"), "gate": (None, "expert")}),
        w_0=(2, 3),
        w_1=(2, 3),
        gate=(3, 2),
    ),
    "two groups apart": _row(Symmetry({"a": ("g",), "b": ("h", None)}), a=(3,), b=(2, 2)),
    "a group of one": _row(Symmetry({"a": ("g", None)}), a=(1, 3)),
    "nothing": _row(Symmetry({}), a=(3,)),
}
