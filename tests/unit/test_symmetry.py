"""What Symmetry refuses, and how it says so."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Concat, SignedPermutation, Split, Symmetry, SymmetryError, Unsigned, compose

MLP = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
VALUES = {"w1": np.ones((3, 8)), "b1": np.arange(8.0), "w2": np.ones((8, 1))}
ORBITS = Symmetry({"a": ("g",)}, orbits={"g": (0, 0, 1)})
HEADS = Symmetry({"a": ("head", "head/unit")})
SIGNED = SignedPermutation(jnp.arange(8), jnp.ones(8, int))


def test_bind_reads_sizes_and_keeps_names():
    bound = MLP.bind(VALUES)
    assert bound.groups["hidden"].size == 8
    assert not MLP.is_bound
    assert bound.is_bound


def test_bind_writes_out_the_ellipsis():
    values = {"weights": np.ones((2, 5, 4)), "loc": np.ones((2, 5, 4, 3))}
    bound = Symmetry.mixture("weights", "loc").bind(values, num_leading_dims=2)
    assert bound.axes == {"weights": ("component",), "loc": ("component", None)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MLP.bind(VALUES | {"w2": np.ones((7, 1))}),
            r"Site 'w2' axis -2 has size 7, but group 'hidden' has size 8",
        ),
        (lambda: MLP.bind({"w1": VALUES["w1"]}), r"Site 'b1' is named by the symmetry but is not among"),
        (lambda: MLP.bind(VALUES | {"w1": np.ones(8)}), r"Site 'w1' has shape \(8,\), fewer axes than"),
        (lambda: Symmetry({"a": ("g",)}, kinds={"h": "signed"}), r"kinds names \['h'\], but the groups .* \['g'\]"),
        (lambda: Symmetry({"a": ("g",)}, kinds={"g": "cyclic"}), "has kind 'cyclic'; expected one of"),
        (lambda: Symmetry({"a": ("g",)}, sizes={"g": 0}), "has size 0"),
        (lambda: Symmetry({"a": (..., "g")}), "may only be the last entry"),
        (lambda: Symmetry({"a": "g"}), r"Site 'a': expected a tuple .* such as \('g',\); got 'g'"),
        (lambda: Symmetry({"a": 3}), "Site 'a': expected a tuple"),
        (lambda: Symmetry({"a": (None, 3)}), "Site 'a' axis -1: got 3; expected None, the name of a group"),
        (lambda: Symmetry({"a": (Split((2,), (...,)), None)}), "Site 'a' axis -2 inside Split: got Ellipsis"),
        (lambda: Symmetry({"a": (Concat((2,), (3,)),)}), r"Site 'a' axis -1 inside Concat: got 3"),
        (lambda: Concat((2, 3), ("g",)), "Concat has 2 sizes .* but 1 groups"),
        (lambda: Symmetry({"a": (Concat((2, 3), (None, "g")),)}).bind({"a": np.ones(6)}), "has size 6, but .* makes 5"),
        (lambda: Symmetry({"a": ("head/unit",)}), "'head/unit' is fibred over 'head', which stands on 0 of the site's"),
        (lambda: Symmetry({"a": ("g",)}, sizes={"g": 2}, orbits={"g": (0, 0, 1)}), "size 2, but its orbits label 3"),
        (lambda: ORBITS.apply({"g": jnp.array([2, 1, 0])}, {"a": np.ones(3)}), r"moves indices between its orbits"),
        (
            lambda: HEADS.apply({"head": jnp.arange(2), "head/unit": jnp.arange(3)}, {"a": np.ones((2, 3))}),
            r"'head/unit' has shape \(3,\); expected \(..., 2, 3\)",
        ),
        (lambda: Split((2, 3), ("g",)), "2 sizes .* but 1 groups"),
        (lambda: Symmetry({"a": (Split((2, 3), (None, "g")),)}).bind({"a": np.ones(7)}), "has size 7, but .* makes 6"),
        (lambda: Symmetry.mlp([("w1", "b1")]), "at least two"),
        (lambda: Symmetry.mlp([("w1", "b1"), ("w2", "b2")], layout="io"), "layout must be"),
        (lambda: Symmetry.mlp([("w1", "b"), ("w2", "b")]), r"Sites \['b'\] stand twice in the layers"),
        (lambda: Symmetry.factor("L", others={"s": (Unsigned("factors"),)}), r"groups \['factors'\]; .* only 'factor'"),
        (
            lambda: Symmetry.mixture("Weights").apply({"component": jnp.arange(2)}, {"Weights": np.ones((3, 2))}),
            r"Sites \['Weights'\] end in '...', .* call symmetry.bind",
        ),
        (
            lambda: Symmetry({"Loc": ("g", "g")}).bind({"Loc": np.ones((2, 3))}),
            "Site 'Loc' axis -1 has size 3, but group 'g' has size 2",
        ),
        (
            lambda: MLP.bind(VALUES).apply(MLP.bind(VALUES).identity(), VALUES | {"b1": np.ones(7)}),
            "Site 'b1' axis -1 has size 7",
        ),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(8) + 1}, VALUES), "points outside 0 … 7; got 1 … 8"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(8.0)}, VALUES), r"expected integers \(..., 8\)"),
        (lambda: MLP.bind(VALUES).apply({"hidden": SIGNED}, VALUES), "without signs; got SignedPermutation"),
        (lambda: compose({"g": jnp.arange(8)}, {"g": SIGNED}), "without signs; got SignedPermutation"),
        (lambda: compose({"g": SIGNED}, {"g": jnp.arange(8)}), r"expected a SignedPermutation\(permutation, sign\)"),
        (lambda: compose({"g": jnp.arange(3)}, {"g": jnp.arange(2)}), "permutes 2 indices; expected 3"),
        (lambda: compose({"g": jnp.arange(3)}, {"h": jnp.arange(3)}), r"groups \['g'\] and \['h'\]"),
        (lambda: MLP.log_order(), r"Groups \['hidden'\] have no size yet"),
        (lambda: MLP.bind(VALUES).elements(max_order=10), "limited to max_order=10"),
        (lambda: MLP.bind(VALUES).apply({"other": jnp.arange(8)}, VALUES), r"groups \['other'\]; the symmetry has"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(7)}, VALUES), "permutes 7 indices; expected 8"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(8)}, {"w1": VALUES["w1"]}), r"Site 'b1' is named by the"),
    ],
)
def test_errors_name_site_axis_expected_and_got(make, message):
    with pytest.raises(SymmetryError, match=message):
        make()


def test_equality_hash_and_pickle():
    again = pickle.loads(pickle.dumps(MLP.bind(VALUES)))
    assert again == MLP.bind(VALUES)
    assert hash(again) == hash(MLP.bind(VALUES))
    assert again != MLP
    spelt_out = Symmetry({"w1": (None, "hidden"), "b1": ["hidden"], "w2": ("hidden", None)})
    assert spelt_out == MLP
    assert hash(spelt_out) == hash(MLP)


def test_repr_reads_like_a_sentence():
    assert repr(MLP).splitlines()[0] == "Symmetry(S? on 'hidden')"
    assert "w2: (hidden, ·)" in repr(MLP.bind(VALUES))
    assert repr(Symmetry({})) == "Symmetry(trivial; log|G| = 0.0 nats)"


def test_integer_and_boolean_sites_keep_their_type():
    symmetry = Symmetry({"z": ("g",), "on": ("g",)})
    moved = symmetry.apply(
        {"g": jnp.array([2, 0, 1])}, {"z": np.array([5, 6, 7]), "on": np.array([True, False, False])}
    )
    assert np.asarray(moved["z"]).tolist() == [7, 5, 6]
    assert np.asarray(moved["on"]).dtype == bool


def test_signs_are_refused_where_there_are_none():
    symmetry = Symmetry({"on": ("g",)}, kinds={"g": "signed"})
    with pytest.raises(SymmetryError, match="cannot apply to values of type bool; wrap the group in Unsigned"):
        symmetry.apply(symmetry.bind({"on": np.ones(2)}).identity(), {"on": np.array([True, False])})


def test_gradients_flow_through_the_action():
    symmetry = Symmetry({"a": ("g",)})
    gradient = jax.grad(lambda a: jnp.asarray(symmetry.apply({"g": jnp.array([1, 2, 0])}, {"a": a})["a"])[0])(
        jnp.ones(3)
    )
    assert gradient.tolist() == [0.0, 1.0, 0.0]


def test_other_sites_pass_through():
    other = object()
    assert MLP.apply({"hidden": jnp.arange(8)}, VALUES | {"name": other})["name"] is other
