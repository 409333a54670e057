"""`refine`: relaxed steps against a slow twin, planted labels, never worse than its start, and what it refuses."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from numpyro_symmetry import DiagonalGaussian, Split, Symmetry, SymmetryError, match, refine
from numpyro_symmetry.assignment.problem import Soft, axes_of
from numpyro_symmetry.matching import relaxed
from numpyro_symmetry.symmetry import Hard, PlainView
from tests.support import oracles

X = np.linspace(-1.0, 1.0, 20)
LAYER = Symmetry({"w": ("hidden",), "v": ("hidden",)}, sizes={"hidden": 4})
DEEP = Symmetry({"in": (None, "first"), "mid": ("first", "second"), "out": ("second",)})
HEADS = {"q": (None, Split((3, 2), ("head", "head/unit"))), "o": (Split((3, 2), ("head", "head/unit")), None)}
# symmetries of every kind, and shapes that they act on
KINDS = {
    "two layers": (DEEP, {"in": (2, 3), "mid": (3, 4), "out": (4,)}),
    "signs": (Symmetry(DEEP.axes, kinds={"first": "signed"}), {"in": (2, 3), "mid": (3, 4), "out": (4,)}),
    "two axes of one site": (Symmetry({"p": ("state", "state"), "m": ("state",)}), {"p": (4, 4), "m": (4,)}),
    "heads and units": (Symmetry(HEADS), {"q": (4, 6), "o": (6, 4)}),
    "own units in each layer": (
        Symmetry({"w": ("layer", "layer/unit", None)}, kinds={"layer": "fixed"}),
        {"w": (2, 3, 2)},
    ),
    "orbits": (Symmetry({"w": ("unit", None)}, orbits={"unit": (0, 1, 0, 1, 0)}), {"w": (5, 2)}),
}


def network(values):
    return np.tanh(X[:, None] * values["w"]) @ values["v"]


def loss(values, batch):
    """The same on whatever batch: what is held aside says what all data say."""
    return jnp.mean((jnp.tanh(X[:, None] * values["w"]) @ values["v"] - np.sin(2.0 * X)) ** 2)


def two(seed, spread=1.0):
    rng = np.random.default_rng(seed)
    target = {site: rng.normal(size=4) for site in ("v", "w")}
    return target, {site: x[::-1] + spread * rng.normal(size=4) for site, x in target.items()}


def half_loss(target, source, element):
    moved = LAYER.apply(element, source)
    half = {site: (target[site] + np.asarray(moved[site])) / 2 for site in target}
    return np.mean((network(half) - np.sin(2.0 * X)) ** 2)


def refined(target, source, **options):
    return refine(loss, target, source, LAYER, X, batch_size=10, progress_bar=False, **options)


# ---- relaxed elements ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_matrices_are_those_of_the_twin(temperature):
    logits = np.random.default_rng(0).normal(size=(2, 5, 5))
    soft = relaxed.Logits(jnp.asarray(logits)).soft(temperature).even
    for mine, one in zip(soft, logits, strict=True):
        np.testing.assert_allclose(mine, oracles.sinkhorn(one, temperature), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_that_are_permutations_move_values_as_elements_do(kind):
    symmetry, shapes = KINDS[kind]
    rng = np.random.default_rng(1)
    values = {site: jnp.asarray(rng.normal(size=shape)) for site, shape in shapes.items()}
    bound = symmetry.bind(values)
    view = PlainView.of(bound, values, nested=True)
    plain, soft = view.symmetry.sample(jax.random.key(2)), {}
    for name, part in plain.items():
        hard = Hard.of(part)
        even = jax.nn.one_hot(hard.permutation, hard.permutation.shape[-1])
        soft[name] = Soft(even, None if hard.sign is None else even * hard.sign[..., None])
    opened = view.open(values)
    for name in view.symmetry.axes:
        opened[name] = relaxed.mixed(opened[name], axes_of(view.symmetry, name, opened[name].shape)[1], soft)
    expected = bound.apply(view.element(plain, bound), values)
    for site, value in view.close(opened).items():
        np.testing.assert_allclose(value, expected[site], rtol=1e-6, err_msg=site)


def test_steps_are_those_of_the_twin():
    target, source = two(1)
    start = LAYER.identity()
    found = refined(target, source, start=start, num_steps=30, optimizer=optax.sgd(20.0))
    share = np.arange(30) / 30
    twin = oracles.refined(
        lambda values: np.mean((network(values) - np.sin(2.0 * X)) ** 2),
        target,
        source,
        relaxed.Logits.of(LAYER.groups["hidden"]).unit,
        0.1 ** np.maximum(0.0, (share - 0.25) / 0.75),
        20.0,
    )
    looks = [half for _, half in twin[9::10]]
    assert min(looks) < half_loss(target, source, start), "the case moves nothing"
    np.testing.assert_allclose(found.losses, looks, rtol=1e-4)
    best = twin[9::10][int(np.argmin(looks))][0]
    assert np.array_equal(found.element["hidden"], best)


def test_steps_are_adams_of_a_tenth_by_default():
    start = LAYER.identity()
    by_default, by_hand = (refined(*two(1), start=start, optimizer=given) for given in (None, optax.adam(0.1)))
    other = refined(*two(1), start=start, optimizer=optax.adam(0.2))
    assert np.array_equal(by_default.losses, by_hand.losses)
    assert not np.array_equal(by_default.losses, other.losses), "the case cannot tell"


# data, data in a batch, batches held aside
HELD = [(4, 2, 1), (5, 2, 1), (11, 1, 1), (20, 1, 2), (39, 2, 1), (40, 2, 2), (59, 1, 5), (70, 1, 5)]


@pytest.mark.parametrize(("count", "batch_size", "num_held"), HELD)
def test_a_tenth_of_the_batches_is_held_aside_and_no_step_sees_it(count, batch_size, num_held):
    seen = []

    def loss_seen(values, rows):
        jax.debug.callback(lambda rows: seen.append(sorted(rows.tolist())), rows)
        return loss(values, rows)

    options = {"batch_size": batch_size, "num_steps": 25, "start": LAYER.identity(), "progress_bar": False}
    found = refine(loss_seen, *two(1), LAYER, np.arange(count), **options)
    jax.effects_barrier()
    assert len(found.losses) == 3  # at every tenth step and the last
    held, left = seen[:num_held], seen[num_held:]
    steps = []
    for taken in (10, 10, 5):
        steps, left = steps + left[:taken], left[taken:]
        assert left[:num_held] == held
        left = left[num_held:]
    assert not left
    assert {len(rows) for rows in seen} == {batch_size}
    aside, trained = ({row for rows in some for row in rows} for some in (held, steps))
    assert len(aside) == num_held * batch_size
    assert aside | trained <= set(range(count))
    assert not aside & trained
    # one pass after the other, each over whole batches of the rest
    once = (count - len(aside)) // batch_size
    for first in range(0, 25, once):
        rows = [row for batch in steps[first : first + once] for row in batch]
        assert len(rows) == len(set(rows))


# ---- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_the_start_and_no_other_than_recomputed(seed):
    target, source = two(seed)
    for start in (LAYER.identity(), match(target, source, LAYER).element):
        found = refined(target, source, start=start)
        assert found.loss <= found.loss_before
        np.testing.assert_allclose(found.loss_before, half_loss(target, source, start), rtol=1e-4)
        np.testing.assert_allclose(found.loss, half_loss(target, source, found.element), rtol=1e-4)


def test_better_than_matching_where_weights_mislead():
    ratios = []
    for seed in range(4):
        target, source = two(seed)
        found = refined(target, source)
        best = min(half_loss(target, source, {"hidden": np.asarray(g)}) for g in LAYER.elements()["hidden"])
        assert found.loss >= best * (1 - 1e-4)
        ratios.append((found.loss_before, found.loss, best))
    before, after, best = np.mean(ratios, 0)
    assert after - best < 0.5 * (before - best), (before, after, best)


def planted(kind):
    """A symmetry, values, the same in other labels, and how far other values are from the first."""
    symmetry, shapes = KINDS[kind]
    rng = np.random.default_rng(4)
    target = {site: rng.normal(size=shape).astype(np.float32) for site, shape in shapes.items()}
    bound = symmetry.bind(target)

    def far(values, batch):
        return sum(jnp.sum((values[site] - target[site]) ** 2) for site in target) + 0.0 * batch.sum()

    return bound, target, bound.apply(bound.sample(jax.random.key(5)), target), far


@pytest.mark.parametrize("kind", KINDS)
def test_planted_labels_are_kept_where_matching_found_them(kind):
    bound, target, source, far = planted(kind)
    found = refine(far, target, source, KINDS[kind][0], X, batch_size=10, num_steps=20, progress_bar=False)
    back = bound.apply(found.element, source)
    assert all(np.array_equal(back[site], target[site]) for site in target)
    assert found.loss == 0.0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "signs"])
def test_planted_labels_are_found_from_the_identity_in_every_level(kind):
    bound, target, source, far = planted(kind)
    start = bound.identity()
    found = refine(far, target, source, bound, X, start=start, batch_size=10, num_steps=50, progress_bar=False)
    assert found.loss == 0.0 < found.loss_before


def test_the_same_key_gives_the_same_answer_and_double_precision_about_the_same():
    target, source = two(8)
    first, again = (refined(target, source, rng_key=jax.random.key(1)) for _ in range(2))
    assert np.array_equal(first.losses, again.losses)
    assert np.array_equal(first.element["hidden"], again.element["hidden"])
    with jax.enable_x64(True):
        wide = refined(target, source, rng_key=jax.random.key(1))
    np.testing.assert_allclose(wide.loss_before, first.loss_before, rtol=1e-5)
    assert wide.loss <= wide.loss_before


def test_trees_come_to_the_loss_as_they_are():
    target, source = (
        {"net": {"w": jnp.asarray(s["w"]), "v": jnp.asarray(s["v"])}, "step": jnp.array(3)} for s in two(9)
    )
    symmetry = Symmetry({"net.w": ("hidden",), "net.v": ("hidden",)})

    def of_tree(values, batch):
        assert values["step"].dtype == jnp.int32
        return loss(values["net"], batch)

    found = refine(of_tree, target, source, symmetry, (X, X), batch_size=10, num_steps=20, progress_bar=False)
    moved = symmetry.apply(found.element, source)
    half = {k: (target["net"][k] + moved["net"][k]) / 2 for k in ("w", "v")}
    np.testing.assert_allclose(found.loss, loss(half, None), rtol=1e-4)


def test_running_statistics_move_with_their_units():
    target, source = two(10)
    target, source = ({**side, "batch_stats": {"mean": np.arange(4.0)}} for side in (target, source))
    symmetry = Symmetry({"w": ("hidden",), "v": ("hidden",), "batch_stats.mean": ("hidden",)})

    def far(values, batch):
        # tells which way the units came
        return jnp.mean((values["batch_stats"]["mean"] - jnp.arange(4.0)[::-1]) ** 2)

    found = refine(far, target, source, symmetry, X, batch_size=10, num_steps=50, progress_bar=False)
    moved = symmetry.apply(found.element, source)["batch_stats"]["mean"]
    np.testing.assert_allclose(
        found.loss, np.mean(((np.arange(4.0) + moved) / 2 - np.arange(4.0)[::-1]) ** 2), rtol=1e-5
    )


def test_whole_numbers_move_with_their_units_and_have_no_half_way():
    sides = ({**side, "seen": np.arange(4)} for side in two(1))
    target, source = sides
    symmetry = Symmetry({"w": ("hidden",), "v": ("hidden",), "seen": ("hidden",)})

    def of_values(values, batch):
        assert jnp.issubdtype(values["seen"].dtype, jnp.integer)
        return loss(values, batch)

    start = LAYER.identity()
    found = refine(of_values, target, source, symmetry, X, start=start, batch_size=10, progress_bar=False)
    assert found.loss < found.loss_before
    assert np.array_equal(symmetry.apply(found.element, source)["seen"], np.arange(4)[found.element["hidden"]])


# ---- what is refused -------------------------------------------------------------------------------------------------

TARGET, SOURCE = two(0)
GOOD = {"loss": loss, "target": TARGET, "source": SOURCE, "symmetry": LAYER, "data": X, "batch_size": 10}
BAD = {
    "loss, no function": ({"loss": 1.0}, TypeError, "loss must be a function .* got float"),
    "loss, of values alone": (
        {"loss": lambda v: 0.0},
        TypeError,
        "loss must be a function of values and a batch of data; this one cannot be called with 2 arguments",
    ),
    "loss, of NumPy": ({"loss": lambda v, x: np.sum(np.asarray(v["w"]))}, TypeError, "loss is compiled, and left JAX"),
    "loss, not finite": ({"loss": lambda v, x: jnp.nan}, ValueError, "loss half-way is nan at the start"),
    "loss, without a slope": (
        {"loss": lambda v, x: loss(v, x) + jnp.sqrt(0.0 * v["w"][0])},
        ValueError,
        "Logits are not finite after 10 steps",
    ),
    "loss, of words": ({"loss": lambda v, x: "much"}, TypeError, "What loss returned"),
    "target, a Gaussian": (
        {"target": DiagonalGaussian(TARGET, {k: np.ones(4) for k in TARGET})},
        SymmetryError,
        r"target is a Gaussian or a guide; .* \.loc",
    ),
    "source, other sites": ({"source": {"w": np.zeros(4)}}, SymmetryError, "'v' is in the target"),
    "source, other sizes": ({"source": {"w": np.zeros(5), "v": np.zeros(5)}}, SymmetryError, "Array 'v' has shape"),
    "source, draws": (
        {"source": {k: np.zeros((2, 3, 4)) for k in "vw"}},
        SymmetryError,
        "of the source has shape .* looks like draws",
    ),
    "source, not finite": ({"source": SOURCE | {"w": np.full(4, np.inf)}}, SymmetryError, "'w' of the source holds 4"),
    "complex": (
        {"target": {k: v + 0j for k, v in TARGET.items()}, "source": {k: v + 0j for k, v in SOURCE.items()}},
        SymmetryError,
        "complex numbers",
    ),
    "symmetry, none": ({"symmetry": None}, TypeError, "symmetry must be a Symmetry"),
    "symmetry, trivial": ({"symmetry": Symmetry({"w": (None,)})}, SymmetryError, "No group stands on"),
    "start, no element": ({"start": {"hidden": [0, 0, 1, 2]}}, SymmetryError, "hidden"),
    "data, of two lengths": ({"data": (X, X[1:])}, ValueError, "one datum along the first axis"),
    "data, none": ({"data": ()}, ValueError, "one datum along the first axis"),
    "data, a number": ({"data": 1.0}, ValueError, "one datum along the first axis"),
    "data, too few": ({"batch_size": 11}, ValueError, "at least two batches.*got 20 data in batches of 11"),
    "steps, none": ({"num_steps": 0}, ValueError, "num_steps must be at least 1"),
    "optimizer, of NumPyro": ({"optimizer": "adam"}, TypeError, "optimizer must be one of Optax"),
    "progress bar, a word": ({"progress_bar": "no"}, TypeError, "progress_bar"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    given, error, words = BAD[case]
    with pytest.raises(error, match=words):
        refine(**{"progress_bar": False} | GOOD | given)


def test_not_under_jit():
    with pytest.raises(TypeError, match="refine needs numbers"):
        jax.jit(lambda target: refined(target, SOURCE).loss)(TARGET)


def test_its_bar_tells_the_loss(monkeypatch, capsys):
    steps = importlib.import_module("numpyro_symmetry.steps")
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    monkeypatch.setattr(steps, "interval", lambda: 0.0)
    values = {"w": jnp.array([2.0, 0.5, -1.0, 1.0]), "v": jnp.array([0.9, 0.2, 0.1, 0.4])}

    def loss(values, x):
        return (jnp.tanh(x[:, None] * values["w"]) @ values["v"] - x) ** 2

    options = {"batch_size": 10, "num_steps": 20}
    refine(loss, values, values, LAYER, jnp.linspace(-1.0, 1.0, 40), **options)
    told = capsys.readouterr().err
    assert "refining" in told
    assert "loss half-way" in told
    refine(loss, values, values, LAYER, jnp.linspace(-1.0, 1.0, 40), **options, progress_bar=False)
    assert capsys.readouterr().err == ""
