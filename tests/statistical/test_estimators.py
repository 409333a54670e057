"""What every estimator owes: one row each, and a stranger's that is written here takes its place beside them."""

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry, mutual_information
from numpyro_symmetry.entropy import (
    ESTIMATORS,
    Estimator,
    Factorised,
    GaussianFactors,
    General,
    information,
    needs_key,
    refusal,
    sequential_parts,
)
from numpyro_symmetry.entropy.estimators import bound_from_ratios
from numpyro_symmetry.models.programs import equations
from tests.support import oracles, regimes


def _rotations(n):
    return (jnp.arange(n) + jnp.arange(n)[:, None]) % n


def _rotations_of_a_table(key, tables, K, bound):
    n = tables[0].shape[-1]
    assert len(tables) == 1
    ratios = tables[0][jnp.arange(n), _rotations(n)].sum(-1)
    return math.log(n) - logsumexp(ratios)


def _rotations_of_a_part(key, part, K, bound):
    total = jnp.zeros(())
    for name, group in part.symmetry.groups.items():
        moved = [part.symmetry.identity() | {name: rotation} for rotation in _rotations(group.size)]
        total = jnp.maximum(total, bound_from_ratios(jnp.stack(list(map(part.log_ratio, moved))), 0.0, 0.0))
    return total


# Averages over the rotations of one group alone: a subgroup, whose information is at most that of the whole
ROTATIONS = Estimator("rotations", _rotations_of_a_table, _rotations_of_a_part)

# estimator -> the most it says where units are far apart, of n units and K permutations
ROWS = {
    "exact": lambda n, K: math.lgamma(n + 1),
    "infonce": lambda n, K: math.log(K),
    "sequential": lambda n, K: math.lgamma(n + 1),
    "importance": lambda n, K: math.lgamma(n + 1),
    "rotations": lambda n, K: math.log(n),
}
KNOWN = {estimator.name: estimator for estimator in (*ESTIMATORS, ROTATIONS)}
every_estimator = pytest.mark.parametrize("name", KNOWN)


def estimate(name, table, **options):
    chosen = KNOWN[name] if name == "rotations" else name
    compiled = jax.jit(lambda table, key: mutual_information(table, estimator=chosen, rng_key=key, **options))
    return np.asarray(compiled(table, jax.random.key(7)), float)


def test_every_estimator_has_a_row():
    assert set(ROWS) == set(KNOWN)


@every_estimator
@pytest.mark.parametrize("regime", ["overlapping", "pairs"])
def test_the_mean_is_below_the_information_and_its_cap(name, regime):
    table = regimes.tables(regime, 5, 2, 400)
    exact = np.array([oracles.information(each) for each in np.asarray(table[:100], float)])
    found = estimate(name, table)
    difference = found[:100] - exact
    assert difference.mean() <= 4 * difference.std(ddof=1) / 10 + 1e-4
    assert found.mean() <= ROWS[name](5, 8) + 4 * found.std(ddof=1) / 20 + 1e-4


@every_estimator
def test_units_far_apart_are_worth_all_that_it_can_say(name):
    np.testing.assert_allclose(estimate(name, -80.0 * (1.0 - jnp.eye(5))), ROWS[name](5, 8), rtol=1e-5)


@every_estimator
def test_a_part_says_what_its_table_says(name):
    """Of a density that no table holds, known by ratios alone, the same in the mean."""
    estimator, n = KNOWN[name], 4
    symmetry = Symmetry({"w": (None, "unit")}).bind({"w": np.zeros((2, n))})
    loc, scale = (x.T for x in regimes.factors("overlapping", n, 2))
    density = Factorised(GaussianFactors({"w": loc}, {"w": scale}))
    noise = jax.random.normal(jax.random.key(0), (300, 2, n))

    @jax.jit
    @jax.vmap
    def both(key, noise):
        draw = {"w": loc + scale * noise}
        general = General(lambda g: density.log_ratio(symmetry, draw, g), density.proposal)
        return [information(d, symmetry, draw, estimator=estimator, rng_key=key) for d in (density, general)]

    of_table, of_part = map(np.asarray, both(jax.random.split(jax.random.key(1), 300), noise))
    gap = of_table - of_part
    assert abs(gap.mean()) <= 4 * gap.std(ddof=1) / 300**0.5 + 1e-5


@pytest.mark.parametrize("n", [5, 6, 7])
def test_an_enumeration_is_one_program_and_all_elements(n):
    """Where the number of elements is no multiple of how many are in memory together, too."""
    symmetry = Symmetry({"w": ("unit",)}).bind({"w": np.zeros(n)})
    loc, scale = jnp.arange(n) / 2, jnp.full(n, 0.7)
    density = Factorised(GaussianFactors({"w": loc}, {"w": scale}))
    draw = {"w": loc + 0.3}

    def exact(density, draw):
        return information(density, symmetry, draw, estimator=KNOWN["exact"])

    @jax.jit
    def of_general(draw):
        return exact(General(lambda g: density.log_ratio(symmetry, draw, g), density.proposal), draw)

    program = of_general.trace(draw)
    assert sum(e.primitive.name in ("checkpoint", "remat2") for e in equations(program.jaxpr.jaxpr)) == 1
    expected = jax.jit(lambda draw: exact(density, draw))(draw)
    assert float(of_general(draw)) == pytest.approx(float(expected), rel=2e-5)


@every_estimator
def test_keys_are_asked_for_where_they_are_needed(name):
    estimator = KNOWN[name]
    symmetry = Symmetry({"w": ("unit",)}).bind({"w": np.zeros(3)})
    assert needs_key(estimator, symmetry, Factorised) == estimator.needs_key
    assert needs_key(estimator, symmetry, General) == (estimator.needs_key or estimator.proposes)
    assert not needs_key(estimator, Symmetry({}), General)
    if estimator.needs_key:
        with pytest.raises(ValueError, match="pass rng_key"):
            mutual_information(jnp.zeros((3, 3)), estimator=estimator)
    else:
        mutual_information(jnp.zeros((3, 3)), estimator=estimator)


@every_estimator
@pytest.mark.parametrize("x64", [False, True])
def test_precision_is_that_of_the_table(name, x64):
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"):
        table = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)), np.float64 if x64 else np.float32)
        value = mutual_information(table, estimator=KNOWN[name], rng_key=jax.random.key(0))
        assert value.dtype == table.dtype


@every_estimator
def test_what_it_does_not_bound_is_refused(name):
    for bound in {"lower", "upper", "both"} - set(KNOWN[name].bounds):
        with pytest.raises(ValueError, match="is a lower bound"):
            mutual_information(jnp.zeros((3, 3)), estimator=KNOWN[name], bound=bound, rng_key=jax.random.key(0))


@every_estimator
def test_estimators_are_pickled_by_name_of_their_functions(name):
    if KNOWN[name] in ESTIMATORS:
        assert pickle.loads(pickle.dumps(KNOWN[name])) == KNOWN[name]


def test_names_that_are_none_are_refused_wherever_they_come_from():
    symmetry = Symmetry({"w": (None, "a"), "v": ("a", "b")}).bind({"w": np.zeros((2, 3)), "v": np.zeros((3, 4))})
    density = General(lambda g: jnp.zeros(()), lambda: GaussianFactors({}, {}))
    for ask in (
        lambda: information(density, symmetry, {}, estimator="nonsense"),
        lambda: needs_key("nonsense", symmetry, General),
        lambda: refusal("nonsense", symmetry, General),
        lambda: sequential_parts("nonsense", symmetry, Factorised),
        lambda: mutual_information(jnp.zeros((3, 3)), estimator="nonsense"),
    ):
        with pytest.raises(ValueError, match=r"estimator must be one of.*got 'nonsense'"):
            ask()


@pytest.mark.parametrize("base", [AutoNormal, AutoMultivariateNormal])
def test_a_strangers_estimator_trains_a_guide(base):
    """By the table of an independent guide, and by the ratios of one that is not."""

    def model():
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=jnp.array(1.0))

    symmetry = Symmetry({"z": ("unit",)})
    guide = AutoSymmetrized(base(model, init_scale=0.5), symmetry, estimator=ROTATIONS).setup(jax.random.key(0))

    @jax.jit
    def at(key):
        with handlers.seed(rng_seed=key):
            trace = handlers.trace(guide).get_trace()
        z = trace["z"]["value"]
        if base is AutoNormal:
            fn = dist.Normal(trace["z_auto_loc"]["value"], trace["z_auto_scale"]["value"]).to_event(1)
        else:
            fn = trace["_auto_latent"]["fn"]
        densities = jnp.stack([fn.log_prob(z[rotation]) for rotation in _rotations(4)])
        return -trace["_symmetry_correction"]["fn"].log_factor, densities

    found, densities = at(jax.random.key(0))
    np.testing.assert_allclose(found, densities[0] - logsumexp(densities) + math.log(4), atol=1e-5)
    assert "'rotations'" in repr(guide)
