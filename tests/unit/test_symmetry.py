"""What Symmetry refuses, and how it says so."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import Split, Symmetry, SymmetryError

MLP = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
VALUES = {"w1": np.ones((3, 8)), "b1": np.arange(8.0), "w2": np.ones((8, 1))}


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
        (lambda: Split((2, 3), ("g",)), "2 sizes .* but 1 groups"),
        (lambda: Symmetry({"a": (Split((2, 3), (None, "g")),)}).bind({"a": np.ones(7)}), "has size 7, but .* to 6"),
        (lambda: Symmetry.mlp([("w1", "b1")]), "at least two"),
        (lambda: Symmetry.mlp([("w1", "b1"), ("w2", "b2")], layout="io"), "layout must be"),
        (lambda: MLP.log_order(), r"Groups \['hidden'\] have no size yet"),
        (lambda: MLP.bind(VALUES).elements(max_order=10), "limited to max_order=10"),
        (lambda: MLP.bind(VALUES).apply({"other": jnp.arange(8)}, VALUES), r"groups \['other'\]; the symmetry has"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(7)}, VALUES), "permutes 7 indices; expected 8"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(8)}, {"w1": VALUES["w1"]}), r"Sites \['b1', 'w2'\]"),
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
