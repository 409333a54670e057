"""What Symmetry refuses, and how it says so."""

import copy
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import (
    Concat,
    Split,
    Symmetry,
    SymmetryError,
    Unsigned,
    compose,
    inverse,
    match,
    merge,
    num_transpositions,
)
from numpyro_symmetry.symmetry import SignedPermutation
from numpyro_symmetry.symmetry.elements import transpositions_at_random

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


def test_a_site_may_be_called_as_its_group():
    moved = Symmetry({"unit": ("unit",)}).apply({"unit": np.array([2, 0, 1])}, {"unit": np.array([0.1, 0.2, 0.3])})
    np.testing.assert_array_equal(moved["unit"], [0.3, 0.1, 0.2])


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
        (lambda: Concat((2, 3), ("g",)), "Concat has 2 sizes .* but 1 group "),
        (lambda: Symmetry({"a": (Concat((2, 3), (None, "g")),)}).bind({"a": np.ones(6)}), "has size 6, but .* makes 5"),
        (lambda: Symmetry({"a": ("head/unit",)}), "'head/unit' is fibred over 'head', which stands on 0 of the site's"),
        (lambda: Symmetry({"a": ("g",)}, sizes={"g": 2}, orbits={"g": (0, 0, 1)}), "size 2, but its orbits label 3"),
        (lambda: ORBITS.apply({"g": jnp.array([2, 1, 0])}, {"a": np.ones(3)}), r"moves indices between its orbits"),
        (
            lambda: HEADS.apply({"head": jnp.arange(2), "head/unit": jnp.arange(3)}, {"a": np.ones((2, 3))}),
            r"'head/unit' has shape \(3,\); expected \(..., 2, 3\)",
        ),
        (lambda: Split((2, 3), ("g",)), "2 sizes .* but 1 group "),
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
        (lambda: MLP.apply(VALUES, {"hidden": jnp.arange(8)}), "element first, then values.*Exchange the two"),
        (lambda: MLP.apply({"params": VALUES}, {"hidden": jnp.arange(8)}), "Exchange the two"),
        (lambda: MLP.apply(match(VALUES, VALUES, MLP), VALUES), "got a Match: pass its .element"),
        (lambda: MLP.apply(merge([VALUES], MLP), VALUES), "got a Merge: pass its .elements, or the part of one"),
        (lambda: MLP.bind(VALUES).apply({"other": jnp.arange(8)}, VALUES), r"groups \['other'\]; the symmetry has"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(7)}, VALUES), "permutes 7 indices; expected 8"),
        (lambda: MLP.bind(VALUES).apply({"hidden": jnp.arange(8)}, {"w1": VALUES["w1"]}), r"Site 'b1' is named by the"),
    ],
)
def test_errors_name_site_axis_expected_and_got(make, message):
    with pytest.raises(SymmetryError, match=message):
        make()


BAD_PARTS = [
    (jnp.array([0, 0, 0]), "no permutation: each of 0 … 2 must stand in it once"),
    (jnp.array([[0, 1, 2], [0, 2, 2]]), r"no permutation.*got \[0, 2, 2\]"),
    (jnp.array([5, 7, 9]), "points outside 0 … 2; got 5 … 9"),
    (jnp.array([0.0, 1.0, 2.0]), r"expected integers \(..., "),
    (jnp.array(0), r"expected integers \(..., "),
    (SignedPermutation(jnp.arange(3), jnp.array([1, 0, 1])), "signs must be 1 or -1; got 0"),
    (SignedPermutation(jnp.arange(3), jnp.array([1, 2, 1])), "signs must be 1 or -1; got 2"),
    (SignedPermutation(jnp.arange(3), jnp.array([1, 1.5, 1])), "signs must be 1 or -1; got 1.5"),
    (SignedPermutation(jnp.arange(3), jnp.array([1, jnp.nan, 1])), "signs must be 1 or -1; got nan"),
    (SignedPermutation(jnp.arange(3), jnp.array([True] * 3)), "signs must be 1 or -1; got True"),
    (SignedPermutation(jnp.arange(3), jnp.ones((2, 3))), r"shape \(3,\) and the sign \(2, 3\)"),
    (SignedPermutation(jnp.array([1, 1, 0]), jnp.ones(3)), "no permutation"),
]


@pytest.mark.parametrize(("part", "message"), BAD_PARTS)
@pytest.mark.parametrize("use", ["apply", "compose", "compose after", "inverse", "num_transpositions"])
def test_what_is_no_element_of_the_group_is_refused_everywhere(use, part, message):
    signed = isinstance(part, SignedPermutation)
    symmetry = Symmetry({"w": ("g",)}, {"g": "signed"} if signed else {}).bind({"w": np.zeros(3)})
    calls = {
        "apply": lambda: symmetry.apply({"g": part}, {"w": np.arange(3.0)}),
        "compose": lambda: compose({"g": part}, symmetry.identity()),
        "compose after": lambda: compose(symmetry.identity(), {"g": part}),
        "inverse": lambda: inverse({"g": part}),
        "num_transpositions": lambda: num_transpositions({"g": part}),
    }
    with pytest.raises(SymmetryError, match=f"Element of group 'g'.*{message}"):
        calls[use]()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: inverse([1, 0]), TypeError, "An element maps the name of each group to a permutation.*got list"),
        (lambda: compose({"a": jnp.arange(2)}, [1, 0]), TypeError, "An element maps the name of each group.*got list"),
        (lambda: inverse({"a": jnp.arange(2), "a/b": jnp.arange(3)}), SymmetryError, r"expected \(..., 2, 3\)"),
        (
            lambda: inverse({"a": jnp.arange(2), "a/b": jnp.zeros((3, 1), int)}),
            SymmetryError,
            r"expected \(..., 2, 1\)",
        ),
        (
            lambda: compose({"g": jnp.tile(jnp.arange(2), (4, 1))}, {"g": jnp.tile(jnp.arange(2), (5, 1))}),
            SymmetryError,
            r"batches of \(4,\) and \(5,\) elements of group 'g'",
        ),
        (
            lambda: ORBITS.apply({"g": jnp.tile(jnp.arange(3), (4, 1))}, {"a": np.ones((5, 3))}),
            SymmetryError,
            r"Site 'a' has leading dimensions \(5,\), and the element of group 'g' is a batch of \(4,\)",
        ),
        (lambda: ORBITS.apply({"g": jnp.arange(3)}, [1, 2, 3]), TypeError, "Values must map sites to arrays"),
        (
            lambda: ORBITS.apply({"g": jnp.arange(3)}, {"params": {"a": np.ones(3)}}),
            SymmetryError,
            r"not among the values \['params.a'\]",
        ),
        (
            lambda: ORBITS.apply({"g": jnp.arange(3)}, {"a": np.ma.array(np.ones(3), mask=[1, 0, 0])}),
            SymmetryError,
            "Site 'a' is a masked array",
        ),
        (lambda: MLP.restrict("hidden"), TypeError, r"names must be a tuple of names, such as \('hidden',\)"),
        (lambda: Symmetry.hmm(transition="A", emissions="loc"), TypeError, "emissions must be a tuple of names"),
        (lambda: Symmetry.mixture(["a", "b"]), TypeError, r"Sites are names, one argument each.*\['a', 'b'\]"),
        (lambda: Symmetry.mixture(), SymmetryError, "at least one site"),
        (
            lambda: Symmetry({"a": ("g",)}, sizes={"g": True}),
            TypeError,
            r"sizes\['g'\] must be a whole number; got True",
        ),
        (lambda: Symmetry({"a": ("g",)}, sizes={"g": "3"}), TypeError, r"sizes\['g'\] must be a whole number; got '3'"),
        (lambda: Symmetry({"a": ("g",)}, orbits={"g": (0.5, 1)}), TypeError, r"orbits\['g'\] must hold a whole number"),
        (lambda: Symmetry({"a": ("g",)}, kinds="signed"), TypeError, "kinds must be a mapping"),
        (lambda: Symmetry("a"), TypeError, "axes must be a mapping"),
        (
            lambda: Symmetry.mlp([("a", "b", "c"), ("d", "e", "f")]),
            SymmetryError,
            r"Each layer is a pair .*\('a', 'b', 'c'\)",
        ),
        (lambda: Symmetry.mlp([("a", 1), ("d", None)]), TypeError, "names of sites"),
        (lambda: Symmetry.mlp("ab"), TypeError, "list of .kernel, bias. pairs"),
        (lambda: Split((-2, 3), (None, "g")), ValueError, "A size of Split must be at least 1; got -2"),
        (lambda: Split((2.0, 3), (None, "g")), TypeError, "A size of Split must be a whole number; got 2.0"),
        (lambda: Concat((2, 3), "ab"), TypeError, "Concat takes tuples"),
        (lambda: Unsigned(None), TypeError, "Unsigned takes the name of a group"),
        (
            lambda: Symmetry.mixture("loc").bind({"loc": np.ones((50, 3))}, num_leading_dims=2),
            SymmetryError,
            r"Site 'loc' has shape \(50, 3\): 2 leading dimensions leave 0 axes",
        ),
        (lambda: MLP.bind(VALUES, num_leading_dims=1.0), TypeError, "num_leading_dims must be a whole number"),
        (lambda: ORBITS.sample(3), TypeError, "rng_key must be one JAX random key"),
        (lambda: ORBITS.sample(jax.random.key(0), 3), TypeError, r"shape must be a tuple.*got 3"),
        (lambda: ORBITS.elements(max_order=1.5), TypeError, "max_order must be a whole number"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_traced_elements_are_not_looked_at():
    batch = jnp.array([[1, 2, 0], [0, 1, 2]])
    assert jax.jit(num_transpositions)({"g": batch})["g"].tolist() == [2, 0]
    stack = np.stack([np.asarray(batch), [[1, 0, 2], [2, 1, 0]]])
    assert num_transpositions({"g": stack})["g"].tolist() == [[2, 0], [1, 1]]
    assert jax.jit(inverse)({"g": batch})["g"].tolist() == [[2, 0, 1], [0, 1, 2]]
    moved = jax.jit(lambda g: ORBITS.apply({"g": g}, {"a": np.arange(3.0)})["a"])(jnp.array([1, 0, 2]))
    assert moved.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("labels", [(10**8, 10**8 + 1) * 3, (-(10**12), 10**12, 7) * 2])
def test_orbits_with_large_labels_are_kept_apart(labels):
    symmetry = Symmetry({"w": ("g",)}, orbits={"g": labels})
    moved = symmetry.apply(symmetry.sample(jax.random.key(0), (200,)), {"w": np.array(labels)})["w"]
    assert (moved == np.array(labels)).all()


@pytest.mark.parametrize(
    "value",
    [
        np.array([2**40, 1, 2]),
        np.array([1.0, 1.0 + 1e-12, 2.0]),
        np.array([1, 2, 3], np.uint8),
        np.array([1, 2, 3], np.float16),
        np.array([1 + 2j, 0, 1]),
        np.array(["a", "b", "c"]),
    ],
)
@pytest.mark.parametrize("lead", [(), (4,)])
def test_values_of_numpy_stay_in_numpy_and_in_their_type(value, lead):
    symmetry, order = Symmetry({"w": ("g",)}), np.array([2, 0, 1])
    element = {"g": jnp.broadcast_to(jnp.array(order), (*lead, 3))}
    for given in (value, np.stack([value, value[::-1]])):
        if lead and given.ndim > 1:
            continue
        moved = symmetry.apply(element, {"w": given})["w"]
        assert isinstance(moved, np.ndarray)
        assert moved.dtype == value.dtype
        assert (moved == given[..., order]).all()
    in_jax = symmetry.apply({"g": order}, {"w": jnp.arange(3)})["w"]
    assert isinstance(in_jax, jax.Array)


def test_signs_move_in_numpy_as_in_jax():
    values = {"w": np.arange(12.0).reshape(4, 3), "z": np.array([2**40, 1, 2])}
    symmetry = Symmetry({"w": (None, "g"), "z": ("g",)}, {"g": "signed"}).bind(values)
    element = {"g": SignedPermutation(np.array([1, 2, 0]), np.array([1, -1, -1]))}
    moved = symmetry.apply(element, values)
    assert moved["z"].tolist() == [1, -2, -(2**40)]
    assert (moved["w"] == values["w"][:, [1, 2, 0]] * [1, -1, -1]).all()


def test_a_symmetry_cannot_be_changed():
    for mapping in (MLP.axes, MLP.kinds, ORBITS.sizes, ORBITS.orbits):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["g"] = ("g",)
    again = copy.deepcopy(ORBITS)
    assert (again, hash(again)) == (ORBITS, hash(ORBITS))


def test_equality_hash_and_pickle():
    again = pickle.loads(pickle.dumps(MLP.bind(VALUES)))
    assert again == MLP.bind(VALUES)
    assert hash(again) == hash(MLP.bind(VALUES))
    assert again != MLP
    spelt_out = Symmetry({"w1": (None, "hidden"), "b1": ["hidden"], "w2": ("hidden", None)})
    assert spelt_out == MLP
    assert hash(spelt_out) == hash(MLP)


def test_repr_reads_like_a_sentence():
    assert repr(MLP).splitlines()[0] == "Symmetry(S? on 'hidden'; sizes are read off values)"
    assert "w2: (hidden, ·)" in repr(MLP.bind(VALUES))
    assert repr(Symmetry({})) == "Symmetry(trivial; log|G| = 0.0 nats)"


IDLE = [
    ({"w": ("f", "g")}, {"w": (2, 3)}, 1),
    ({"w": ("f", "g"), "b": ("f",)}, {"w": (2, 3), "b": (2,)}, 0),
    ({"w": ("f", "g", "k")}, {"w": (2, 1, 2)}, 2),
    ({"w": ("f", "f")}, {"w": (3, 3)}, 1),
    ({"w": ("f", Unsigned("g")), "v": ("g",)}, {"w": (2, 2), "v": (2,)}, 0),
    ({"w": ("f", "g"), "v": ("g", "k")}, {"w": (2, 2), "v": (2, 2)}, 1),
    ({"w": (Concat((2, 3), ("f", "g")), "k")}, {"w": (5, 2)}, 1),
    ({"w": (Split((2, 3), ("f", "g")),)}, {"w": (6,)}, 1),
    # the sign of a head is that of all its units
    ({"w": ("h", "h/u")}, {"w": (2, 2)}, 2),
    ({"w": ("h", "h/u"), "b": ("h",)}, {"w": (2, 2), "b": (2,)}, 0),
    ({"w": ("h", "h/u"), "b": ("h", "h")}, {"w": (2, 2), "b": (2, 2)}, 1),
    ({"w": ("h", "h/u", "k"), "b": ("h",)}, {"w": (2, 2, 1), "b": (2,)}, 1),
]


@pytest.mark.parametrize(("axes", "shapes", "count"), IDLE)
def test_elements_whose_signs_cancel_are_counted(axes, shapes, count):
    values = {site: np.random.default_rng(0).normal(size=shape) for site, shape in shapes.items()}
    symmetry = Symmetry(axes, kinds=dict.fromkeys(Symmetry(axes).group_names(), "signed")).bind(values)
    moved = symmetry.apply(symmetry.elements(max_order=20_000), values)
    every = np.concatenate([np.asarray(x).reshape(len(x), -1) for x in moved.values()], 1)
    log_acting = np.log(len(np.unique(every.round(5), axis=0)))
    assert np.isclose(symmetry.log_order() - log_acting, count * np.log(2))
    assert (f"{count * np.log(2):.1f} of them of signs that cancel" in repr(symmetry)) == (count > 0)


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


def test_names_of_numpy_are_names():
    symmetry = Symmetry({"w": (np.str_("u"), Split((2, 3), (np.str_("v"), None)))}).bind({"w": np.zeros((4, 6))})
    assert symmetry == Symmetry({"w": ("u", Split((2, 3), ("v", None)))}).bind({"w": np.zeros((4, 6))})
    assert all(type(name) is str for name in symmetry.groups)


@pytest.mark.parametrize(
    "build",
    [
        lambda **group: Symmetry.mixture("loc", **group),
        lambda **group: Symmetry.hmm(transition="A", initial="pi", emissions=("loc",), **group),
        lambda **group: Symmetry.factor("loadings", "scores", **group),
    ],
    ids=["mixture", "hmm", "factor"],
)
def test_the_group_of_a_known_model_has_the_name_that_it_is_given(build):
    plain, named = build(), build(group="mine")
    (own,) = {entry for entries in plain.axes.values() for entry in entries if isinstance(entry, str)}
    assert own != "mine"
    assert named.axes == {
        site: tuple("mine" if entry == own else entry for entry in entries) for site, entries in plain.axes.items()
    }
    assert list(named.kinds.items()) == [("mine", kind) for kind in plain.kinds.values()]


def test_a_symmetry_is_restricted_to_sites():
    factors = Symmetry.factor("loadings", "scores", others={"scales": (Unsigned("factor"),)})
    assert factors.restrict(sites=["loadings", "scales"]).groups["factor"].signed
    # no sign is left where it moves anything
    assert not factors.restrict(sites=["scales"]).groups["factor"].signed
    network = Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", "b3")]).bind(
        {"w1": np.ones((2, 4)), "b1": np.ones(4), "w2": np.ones((4, 3)), "b2": np.ones(3), "w3": np.ones((3, 1))}
    )
    assert dict(network.restrict(sites=["b1"]).sizes) == {"hidden1": 4}
    assert dict(network.restrict(["hidden2"], sites=["w2", "b2"]).axes) == {
        "w2": (None, "hidden2"),
        "b2": ("hidden2",),
    }
    assert network.restrict() == network
    heads = Symmetry({"q": ("head", "head/unit"), "out": ("head",)}, orbits={"head": (0, 0, 1)})
    assert heads.restrict(sites=["out"]) == Symmetry({"out": ("head",)}, orbits={"head": (0, 0, 1)})


@pytest.mark.parametrize("n", range(1, 6))
def test_transpositions_at_random_have_the_mean_and_variance_of_all_permutations(n):
    counts = num_transpositions({"g": np.array(list(itertools.permutations(range(n))))})["g"]
    np.testing.assert_allclose(transpositions_at_random(n), (counts.mean(), counts.var()), atol=1e-12)
