"""Symmetry of functions of pytrees: what is found, what is refused, and that applying it changes no output."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from numpyro_symmetry import Symmetry, SymmetryError, SymmetryWarning, check_symmetry, find_symmetry, rebase

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _the_same_numbers(monkeypatch):
    """Whatever ran before: parameters none of which is negative are taken for such as cannot be."""
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(0))


RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


class Network(nn.Module):
    """Two hidden layers."""

    act: object = nn.relu

    @nn.compact
    def __call__(self, x):
        for n in (5, 4):
            x = self.act(nn.Dense(n)(x))
        return nn.Dense(2)(x)


class Normed(nn.Module):
    """A residual stream, with batch normalisation."""

    @nn.compact
    def __call__(self, x):
        stream = nn.Dense(6)(x)
        stream = stream + nn.Dense(6)(nn.relu(nn.BatchNorm(use_running_average=True)(nn.Dense(4)(stream))))
        return nn.Dense(2)(stream)


def linen(module, x):
    return module.apply, (module.init(KEY, x), x)


def two_layers(params, x):
    return jnp.tanh(x @ params[0]) @ params[1]


def tied(params, x):
    return jax.nn.relu(x @ params["in"]) @ params["out"].T


def masked(state, x):
    hidden = jnp.tanh(x @ state["w"]) * state["mask"]
    noise = jax.random.normal(jax.random.fold_in(state["key"], state["step"]), (4,))
    return hidden @ state["v"] + noise, state["step"] + 1


def cubic(position):
    return -jnp.sum((position["loc"] - 1.0) ** 4) - jnp.sum(position["scale"] ** 2)


# name -> function, arguments, groups derived by hand
CASES = {
    "linen": lambda: (*linen(Network(), normal(3, 7)), {"Dense_0": "S5", "Dense_1": "S4"}),
    "linen, odd": lambda: (*linen(Network(nn.tanh), normal(3, 7)), {"Dense_0": "±S5", "Dense_1": "±S4"}),
    "batch statistics": lambda: (*linen(Normed(), normal(3, 7)), {"BatchNorm_0": "S4", "Dense_0": "±S6"}),
    "a tuple": lambda: (two_layers, ((normal(3, 5), normal(5, 2)), normal(4, 3)), {"0[-1]": "±S5"}),
    "an array": lambda: (lambda w, x: jnp.sum(jnp.exp(w) * x), (normal(4), np.float32(1.3)), {"array": "S4"}),
    "a log density": lambda: (cubic, ({"loc": normal(4), "scale": normal(3)},), {"loc": "S4", "scale": "±S3"}),
    # of ones alone any weights would do
    "data of ones": lambda: (lambda w, x: jnp.sum(w * x), (normal(4), np.ones(4, np.float32)), {}),
    "a number for data": lambda: (
        lambda w, t: -((w[0] * t + w[1]) ** 2),
        (normal(2), jnp.float32(1.0)),
        {"array": "±S1"},
    ),
    # what no rule follows, of which the sum would stay
    "an order that a callback keeps": lambda: (
        lambda w: jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct(w.shape, w.dtype), w),
        (normal(4),),
        {},
    ),
    # were they moved to either side of zero, none of the outputs would be finite
    "positive": lambda: (lambda w: jnp.log(w).sum(), (np.exp(normal(20)),), {"array": "S20"}),
    # two of seven units answer to these data, as of a trained layer
    "dead units": lambda: (
        lambda w, x: jax.nn.relu(x @ w["a"] + w["b"]) @ w["c"],
        ({"a": normal(3, 7), "b": np.float32([-99, -99, -99, 9, -99, 9, -99]), "c": normal(7, 2)}, normal(4, 3)),
        {"b": "S7"},
    ),
    "an order": lambda: (lambda w: jnp.cumsum(w), (normal(4),), {}),
    "tied": lambda: (tied, ({"in": normal(3, 5), "out": normal(2, 5)}, normal(4, 3)), {"in[-1]": "S5"}),
    "one array at two paths": lambda: (
        tied,
        ({"in": (w := jnp.asarray(normal(3, 5))), "out": w}, normal(4, 3)),
        {"in[-1]": "S5"},
    ),
    "a key, a counter and a mask": lambda: (
        masked,
        (
            {
                "w": normal(3, 5),
                "mask": np.array([True, False, True, True, False]),
                "step": jnp.int32(3),
                "key": jax.random.key(3),
                "v": normal(5),
            },
            normal(4, 3),
        ),
        {"mask": "±S5"},
    ),
    "dropout": lambda: (
        lambda w, x, key: jnp.tanh(x @ w) @ jax.random.bernoulli(key, 0.5, (5,)),
        (normal(3, 5), normal(4, 3), jax.random.key(0)),
        {},
    ),
    "half precision": lambda: (
        two_layers,
        (tuple(jnp.asarray(x, jnp.bfloat16) for x in (normal(3, 5), normal(5, 2))), normal(4, 3)),
        {"0[-1]": "±S5"},
    ),
    "complex outputs": lambda: (
        lambda w, x: jnp.fft.fft(jax.nn.relu(x @ w["a"]) @ w["b"]),
        ({"a": normal(3, 5), "b": normal(5, 4)}, normal(2, 3)),
        {"a[-1]": "S5"},
    ),
    "an output that is zero but for rounding": lambda: (
        lambda w, x: ((h := jax.nn.gelu(x @ w[0])) @ w[1], jnp.sin(h[:, :, None] - h[:, None, :]).sum((1, 2))),
        ((normal(3, 5), normal(5, 2)), normal(4, 3)),
        {"0[-1]": "S5"},
    ),
    "keywords, positions": lambda: (
        lambda x, w: jnp.tanh(x @ w[0]) @ w[1],
        (normal(4, 3), [normal(3, 5), normal(5, 2)]),
        {"0[-1]": "±S5"},
    ),
    "odd units, twice, and their squares": lambda: (
        lambda w, x: jnp.stack([h := jnp.tanh(x @ w[0]), jnp.sin(h), h**2], 1).reshape(len(x), -1) @ w[1],
        ((normal(3, 5), normal(15, 2)), normal(4, 3)),
        {"0[-1]": "±S5"},
    ),
    "one output each": lambda: (lambda w, x: w * x, (normal(4), np.float32(2.0)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_derived_by_hand(name):
    function, args, expected = CASES[name]()
    argnum = 1 if name == "keywords, positions" else 0
    found = find_symmetry(function, args, argnum=argnum)
    assert {group: str(kind) for group, kind in found.groups.items()} == expected
    moved = found.apply(found.sample(jax.random.key(1)), args[argnum])
    assert jax.tree.structure(moved) == jax.tree.structure(args[argnum])
    assert jax.tree.map(jnp.result_type, moved) == jax.tree.map(jnp.result_type, args[argnum])
    before, after = function(*args), function(*args[:argnum], moved, *args[argnum + 1 :])
    rtol = 2e-2 if name == "half precision" else 2e-5
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol), before, after)


def test_a_tie_is_kept():
    function, args, _ = CASES["one array at two paths"]()
    found = find_symmetry(function, args, argnum=0)
    assert set(found.axes) == {"in", "out"}
    moved = jax.jit(found.apply)(found.sample(KEY), args[0])
    np.testing.assert_array_equal(moved["in"], moved["out"])
    assert {finding.site for finding in found.findings} == {"in", "out"}


def test_other_trees_of_the_same_paths_are_moved():
    from flax import nnx

    net = nnx.Sequential(nnx.Linear(3, 5, rngs=nnx.Rngs(0)), jax.nn.relu, nnx.Linear(5, 2, rngs=nnx.Rngs(1)))
    graph, state = nnx.split(net)

    def outputs(state, x):
        return nnx.merge(graph, state)(x)

    x = normal(4, 3)
    found = find_symmetry(outputs, (state, x), argnum=0)
    (group,) = found.groups.values()
    assert str(group) == "S5"
    moved = found.apply(found.sample(KEY), state)
    assert type(moved) is type(state)
    np.testing.assert_allclose(outputs(state, x), outputs(moved, x), rtol=1e-5, atol=1e-6)


REFUSED = {
    "no arrays": (lambda: find_symmetry(two_layers, ({"rate": 0.1}, 1.0), argnum=0), SymmetryError, "holds no arrays"),
    "NaN": (lambda: find_symmetry(lambda w: w, (np.array([np.nan, 1.0]),), argnum=0), SymmetryError, "'array'.* NaN"),
    "no tuple": (lambda: find_symmetry(two_layers, {"w": normal(3)}, argnum=0), TypeError, r"write \(params,\)"),
    "shapes": (
        lambda: find_symmetry(lambda w: w, (jax.ShapeDtypeStruct((3,), np.float32),), argnum=0),
        SymmetryError,
        "hold shapes in place of arrays",
    ),
    "data of NaN": (
        lambda: find_symmetry(two_layers, ((normal(3, 5), normal(5, 2)), np.full((4, 3), np.nan)), argnum=0),
        SymmetryError,
        "its arguments hold NaN",
    ),
    "no output": (lambda: find_symmetry(lambda w: None, (normal(3),), argnum=0), SymmetryError, "returns no arrays"),
    "words": (lambda: find_symmetry(lambda w: "yes", (normal(3),), argnum=0), SymmetryError, "returns a str"),
    "two of one path": (
        lambda: find_symmetry(lambda w: w["a.b"], ({"a.b": normal(3), "a": {"b": normal(3)}},), argnum=0),
        SymmetryError,
        "one path, 'a.b'",
    ),
    "no such argument": (lambda: find_symmetry(two_layers, ((), 1.0), argnum=2), TypeError, "holds 2 arguments"),
    "an array for a tuple": (lambda: find_symmetry(two_layers, normal(3), argnum=0), TypeError, "tuple"),
    "without argnum": (
        lambda: find_symmetry(two_layers, ((normal(3, 5), normal(5, 2)), normal(4, 3))),
        SymmetryError,
        "argnum=0",
    ),
    "not deterministic": (
        lambda: find_symmetry(lambda w: w.sum() * np.random.default_rng().normal(), (normal(3),), argnum=0),
        SymmetryError,
        "deterministic",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    ask, error, said = REFUSED[name]
    with pytest.raises(error, match=said):
        ask()


def test_outputs_that_are_not_finite_are_told_in_terms_of_the_function():
    with pytest.warns(SymmetryWarning, match="function's outputs are not finite .* within bounds"):
        found = find_symmetry(lambda v: jnp.sqrt(-1 - v**2).sum(), (np.zeros(20, np.float32),), argnum=0)
    assert not found.groups


@pytest.mark.parametrize(
    ("spoil", "word"), [(lambda h: h * jnp.nan, "NaN"), (lambda h: h.at[1].set(-jnp.inf), "infinite")]
)
def test_outputs_that_are_nan_or_infinite_at_the_parameters_themselves_are_told_as_such(spoil, word):
    args = (normal(3, 5), normal(5, 2)), normal(4, 3)
    said = f"outputs are not finite at its parameters as they are .*is {word}"
    with pytest.warns(SymmetryWarning, match=said):
        found = find_symmetry(lambda w, x: spoil(two_layers(w, x)), args, argnum=0)
    assert not found.groups
    with pytest.raises(SymmetryError, match=said):
        check_symmetry(
            lambda w, x: spoil(two_layers(w, x)), Symmetry({"0": (None, "u"), "1": ("u", None)}), args, argnum=0
        )


def test_parameters_beyond_the_root_of_the_largest_number_are_told_without_an_overflow():
    with jax.enable_x64(True), pytest.warns(SymmetryWarning, match="function's outputs are not finite"):
        found = find_symmetry(lambda v: jnp.tanh(v / jnp.abs(v).max()).sum(), (1e160 * np.arange(-1.0, 3.0),), argnum=0)
    assert not found.groups


def test_a_function_whose_value_is_out_of_reach_is_told_so_though_labels_claim_nothing():
    # only its sign could be free, and that was never tried
    with pytest.warns(SymmetryWarning, match="No symmetry could be verified"):
        find_symmetry(lambda w: jnp.cumsum(w)[-1] ** 2 * jnp.nan, (normal(3),), argnum=0)


@pytest.mark.parametrize("as_table", [pd.DataFrame, lambda x: xr.Dataset(x).to_array()])
def test_nan_in_tables_is_found(as_table):
    def network(w, table):
        x = table.to_numpy().reshape(4, 3) if isinstance(table, pd.DataFrame) else table.values.reshape(4, 3)
        return two_layers(w, x)

    x = normal(4, 3)
    x[2, 1] = np.nan
    columns = {name: x[:, k] if as_table is pd.DataFrame else ("row", x[:, k]) for k, name in enumerate("uvw")}
    with pytest.raises(SymmetryError, match="its arguments hold NaN"):
        find_symmetry(network, ((normal(3, 5), normal(5, 2)), as_table(columns)), argnum=0)


def test_arrays_of_zeros_that_must_not_fall_stay_above():
    found = find_symmetry(lambda v: jnp.sqrt(v).sum(), (np.zeros(20, np.float32),), argnum=0)
    assert {name: str(group) for name, group in found.groups.items()} == {"array": "S20"}


def test_a_network_that_pins_its_type_is_proved_in_single_precision():
    class Pinned(nn.Module):
        @nn.compact
        def __call__(self, x):
            for n in (64, 32):
                x = nn.relu(nn.Dense(n, dtype=jnp.float32)(x))
            return nn.Dense(10, dtype=jnp.float32)(x)

    x = np.random.default_rng(6).normal(size=(8, 20)).astype(np.float32)
    found = find_symmetry(*linen(Pinned(), x), argnum=0, signs=False)
    assert [str(group) for group in found.groups.values()] == ["S64", "S32"]


def test_a_leaf_that_nothing_reads_is_said_to_be_so():
    with pytest.warns(SymmetryWarning, match=r"\['b'\] of argument 0 are read by nothing"):
        found = find_symmetry(lambda w: w["a"].sum(), ({"a": normal(3), "b": normal(4)},), argnum=0)
    assert {name: str(group) for name, group in found.groups.items()} == {"a": "S3"}
    assert "nothing depends on it" in found.explain()


def test_statistics_that_are_only_brought_up_to_date_stay_and_are_told():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.relu(nn.BatchNorm(use_running_average=False)(nn.Dense(5)(x))))

    net, x = Net(), normal(6, 3)
    variables = net.init(KEY, x)
    logits = jax.jit(lambda v, x: net.apply(v, x, mutable=["batch_stats"])[0])
    with pytest.warns(SymmetryWarning, match=r"BatchNorm_0.mean.* are read by nothing.* inference mode"):
        found = find_symmetry(logits, (variables, x), argnum=0)
    assert not any(site.startswith("batch_stats") for site in found.axes)
    assert [str(group) for group in found.groups.values()] == ["S5"]


def test_inputs_of_zeros_show_nothing():
    args = ({"a": normal(3, 5), "b": normal(5, 2)}, np.zeros((4, 3), np.float32))
    with pytest.warns(SymmetryWarning, match="inconclusive.* Are its inputs zero"):
        found = find_symmetry(lambda w, x: jax.nn.relu(x @ w["a"]) @ w["b"], args, argnum=0)
    assert not found.groups
    assert "inconclusive" in found.explain()


def test_a_tree_of_another_structure_is_refused_by_path():
    function, args, _ = CASES["tied"]()
    found = find_symmetry(function, args, argnum=0)
    with pytest.raises(SymmetryError, match=r"'in' .* not among the values \['params.in'"):
        found.apply(found.sample(KEY), {"params": args[0]})


def test_an_output_says_that_it_stays():
    assert "is an output" in find_symmetry(lambda w: w * 2, (normal(4),), argnum=0).explain()


def test_biases_that_start_at_zero_may_have_either_sign():
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(2, 4)), "b": np.zeros(4), "v": rng.normal(size=(4, 1))}

    def network(params, x):
        return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]

    found = find_symmetry(network, (params, rng.normal(size=(6, 2))), argnum=0)
    assert [group.signed for group in found.groups.values()] == [True]


def test_arrays_that_happen_to_be_positive_are_said_to_have_no_signs():
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(2, 10)), "b": rng.normal(size=10) ** 2, "v": rng.normal(size=(10, 1))}

    def network(params, x, activation=jnp.tanh):
        return activation(x @ params["w"] + params["b"]) @ params["v"]

    x = rng.normal(size=(6, 2))
    with pytest.warns(SymmetryWarning, match=r"\['b'\] of argument 0 is negative.*negate an entry"):
        found = find_symmetry(network, (params, x), argnum=0)
    assert "no entry is negative" in found.explain()
    assert [group.signed for group in found.groups.values()] == [False]
    draws = {site: rng.normal(size=(20, *np.shape(value))) for site, value in params.items()}
    with pytest.warns(SymmetryWarning, match=r"no entry of \['b'\] was negative.*Find it again"):
        rebase(draws, found, null=False, progress_bar=False)
    # as they start they may well be of either sign, but nothing says that they were meant to be
    assert "no entry is negative" in find_symmetry(network, ({**params, "b": np.ones(10)}, x), argnum=0).explain()

    # more of them are positive because they are meant to be
    wide = {"w": rng.normal(size=(2, 11)), "b": rng.normal(size=11) ** 2, "v": rng.normal(size=(11, 1))}
    assert "no entry is negative" in find_symmetry(network, (wide, x), argnum=0).explain()

    # no signs are lost
    def rectified(params, x):
        return network(params, x, jax.nn.relu)

    assert "no entry is negative" not in find_symmetry(rectified, (params, x), argnum=0).explain()
    assert "no entry is negative" not in find_symmetry(network, (params, x), argnum=0, signs=False).explain()


def test_a_list_of_arguments_is_not_taken_for_a_tuple_of_them():
    layers = [(jnp.ones((2, 4)), jnp.zeros(4)), (jnp.ones((4, 1)), jnp.zeros(1))]
    with pytest.raises(TypeError, match=r"must be a tuple, .* write \(params,\) or \(params, x\); got a list"):
        find_symmetry(lambda params: sum(jnp.sum(w) for w, _ in params), layers, argnum=0)
