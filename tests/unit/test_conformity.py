"""Slots and the prior relabelled alike: units of which it is known whether they follow it, slow twins, bad input."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro.infer import MCMC, NUTS
from scipy.spatial.distance import cdist

from numpyro_symmetry import AllocationCost, EuclideanCost, Symmetry, SymmetryError, rebase
from numpyro_symmetry.diagnostics import energies, prior_conformity
from numpyro_symmetry.diagnostics.comparison import COLUMNS, Drawn, PriorConformity
from numpyro_symmetry.diagnostics.conformity import ExchangedBlocks, _of_largest
from numpyro_symmetry.diagnostics.prior_draws import Sides
from tests.support.traces import autoregressive

SIZE, SHAPE = 4, (4, 100)
UNITS = Symmetry({"w": (None, "unit"), "v": ("unit",)})


def model(size=SIZE):
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    numpyro.sample("w", dist.Normal(0.0, tau).expand([2, size]).to_event(2))
    with numpyro.plate("units", size):
        numpyro.sample("v", dist.Normal(1.0, 0.5))


def draws(rng, informed=0, rate=0.0, shape=SHAPE):
    """Units that follow the prior, given a tau of which the data say much; and some in one place, of little width."""
    noise = {"w": autoregressive(rng, (*shape, 2, SIZE), rate), "v": autoregressive(rng, (*shape, SIZE), rate)}
    tau = 3.0 + 0.1 * rng.standard_normal(shape)
    values = {"tau": tau, "w": tau[..., None, None] * noise["w"], "v": 1.0 + 0.5 * noise["v"]}
    at = 12.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])[:, :informed]
    values["w"][..., :informed] = at + 0.1 * noise["w"][..., :informed]
    return values


def switched(rng, values):
    order = rng.permuted(np.broadcast_to(np.arange(SIZE), values["v"].shape), axis=-1)
    w = np.take_along_axis(values["w"], order[..., None, :], -1)
    return values | {"w": w, "v": np.take_along_axis(values["v"], order, -1)}


def judged(values, cost=None, **options):
    out = rebase(values, UNITS, cost=cost or EuclideanCost(), null=False, num_starts=2)
    return out, prior_conformity(out, model, progress_bar=False, **options)


@pytest.mark.parametrize("informed", [0, 1, 2])
def test_units_beside_those_that_data_know_follow_the_prior(informed):
    rng = np.random.default_rng(informed)
    out, found = judged(switched(rng, draws(rng, informed)))
    known = np.abs(out.data["w"].mean((0, 1))).max(0) > 6.0
    assert known.sum() == informed
    assert found.table.follows.tolist() == (~known).tolist()
    assert found.num_following == {"unit": SIZE - informed}
    # relabelled slots are narrow all the same
    if not informed:
        assert out.data["w"].std((0, 1)).mean() < 0.9 * 3.0
    assert (found.table.contraction[known] > 0.4).all()
    assert (found.table.contraction[~known].abs() < 0.4).all()
    # the least that there is
    assert (found.p_value == 0.001) == bool(informed)
    entries = found.entries["w"].sel(quantity="contraction").values
    assert (entries[:, known] > 0.95).all()


def test_a_site_may_be_called_as_the_dimension_of_quantities_is():
    def model():
        numpyro.sample("quantity", dist.Normal(0.0, 1.0).expand([SIZE]).to_event(1))

    values = {"quantity": np.random.default_rng(0).standard_normal((*SHAPE, SIZE))}
    out = rebase(values, Symmetry({"quantity": ("unit",)}), cost=EuclideanCost(), null=False)
    found = prior_conformity(out, model, progress_bar=False)
    assert found.entries["quantity"].sel(quantity_="contraction").shape == (SIZE,)


def test_what_a_shift_of_one_number_does_is_seen_there():
    rng = np.random.default_rng(5)
    values = draws(rng, 1)
    values["v"][..., 0] = 3.0 + 0.5 * rng.standard_normal(SHAPE)
    out, found = judged(switched(rng, values))
    (slot,) = found.table.slot[~found.table.follows]
    shift = found.entries.sel(quantity="shift")["v"].values
    assert shift[slot] > 2.0 > np.abs(np.delete(shift, slot)).max()


def test_labels_change_nothing_of_all_slots_together():
    rng = np.random.default_rng(1)
    values = draws(rng, 1)
    found = [judged(some)[1] for some in (values, switched(rng, values))]
    for name in ("w", "v"):
        assert found[0].contraction[name] == pytest.approx(found[1].contraction[name], rel=1e-9)
    assert found[0].effect == pytest.approx(found[1].effect, rel=1e-6)
    assert found[0].p_value == found[1].p_value


def test_contraction_of_all_slots_is_by_variances():
    rng = np.random.default_rng(2)
    values = draws(rng) | {"tau": np.full(SHAPE, 3.0)}
    values["v"] = 1.0 + 0.25 * rng.standard_normal((*SHAPE, SIZE))
    _, found = judged(values)
    # a quarter of the prior's variance, of as many draws on either side
    error = 0.25 * np.sqrt(2.0 * 2.0 / (SIZE * np.prod(SHAPE)))
    assert abs(found.contraction["v"] - 0.75) < 4.0 * error
    assert abs(found.contraction["w"]) < 4.0 * np.sqrt(2.0 * 2.0 / (2 * SIZE * np.prod(SHAPE))) + 0.15


def test_the_prior_is_relabelled_as_new_draws_are():
    """Means and widths of the prior's slots, against `rebase` of draws of the prior with ``reference=``."""
    rng = np.random.default_rng(3)
    out, found = judged(draws(rng) | {"tau": np.full(SHAPE, 3.0)})
    prior = draws(rng, shape=(4, 2500)) | {"tau": np.full((4, 2500), 3.0)}
    slots = rebase(prior, UNITS, reference=out, null=False).data["w"]
    own, other = out.data["w"], slots.reshape(-1, 2, SIZE)
    shift = (own.mean((0, 1)) - other.mean(0)) / other.std(0)
    # of 400 draws on either side, and 10000 here
    assert np.abs(found.entries.sel(quantity="shift")["w"].values - shift).max() < 4.5 / np.sqrt(400)


def test_the_largest_of_all_is_what_each_is_held_against():
    rng = np.random.default_rng(4)
    each = list(rng.standard_normal((3, 50)))
    scaled = [(x - x.mean()) / x.std() for x in each]
    slow = [np.mean([max(y[k] for y in scaled) >= x[0] for k in range(50)]) for x in scaled]
    np.testing.assert_allclose(_of_largest(each), slow)


def tied(size=3):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
    mixture = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0))
    numpyro.sample("y", mixture.expand([5]).to_event(1), obs=jnp.zeros(5))


def test_what_ties_units_is_kept_and_said():
    rng = np.random.default_rng(6)
    values = {"weights": rng.dirichlet([5.0, 3.0, 2.0], 300), "loc": rng.standard_normal((300, 3))}
    out = rebase(values, Symmetry.mixture("weights", "loc"), cost=EuclideanCost(), null=False)
    found = prior_conformity(out, tied, progress_bar=False)
    assert found.given == ("weights",)
    assert found.table.follows.all()
    assert "their prior ties units to each other: weights" in str(found)
    alone = rebase({"weights": values["weights"]}, Symmetry.mixture("weights"), null=False)
    with pytest.raises(SymmetryError, match=r"ties the units of every site .*weights"):
        prior_conformity(alone, tied)


def test_signs_and_two_layers():
    def network():
        numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
        numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        numpyro.sample("w3", dist.Normal(0.0, 1.0).expand([3, 1]).to_event(2))

    symmetry = Symmetry.mlp([("w1", None), ("w2", None), ("w3", None)], kind="signed")
    rng = np.random.default_rng(7)
    values = {site: rng.standard_normal((150, *shape)) for site, shape in zip(("w1", "w2", "w3"), SIZES, strict=True)}
    values["w1"][..., 0] = [7.0, -7.0]
    out = rebase(values, symmetry, cost=EuclideanCost(), null=False, num_starts=1)
    found = prior_conformity(out, network, progress_bar=False)
    slots = found.table.set_index(["group", "slot"])
    assert len(slots) == 5
    told = slots.index[~slots.follows].tolist()
    assert [group for group, _ in told] == ["hidden1"]
    assert found.contraction["w1"] < -1.0 < found.contraction["w3"] < 0.5


SIZES = (2, 2), (2, 3), (3, 1)


def test_too_few_draws_are_no_verdict():
    rng = np.random.default_rng(8)
    _, found = judged(draws(rng, rate=0.995))
    assert np.isnan(found.p_value)
    assert not found.table.follows.any()
    assert "Not enough draws to tell which slots follow the prior" in str(found)


def test_an_effect_that_does_not_matter_is_none():
    rng = np.random.default_rng(10)
    values = draws(rng)
    values["v"] += 0.25
    found = [judged(values, smallest_effect=least)[1] for least in (0.0, 0.5)]
    assert not found[0].table.follows.all()
    assert found[1].table.follows.all()
    assert found[1].p_value <= 0.05


def test_it_prints_verdicts_and_fills_the_shapes_of_sites():
    rng = np.random.default_rng(9)
    out, found = judged(draws(rng, 1))
    assert str(found).startswith("3 of 4 slots of 'unit' follow the prior, as far as these draws tell.\n  unit ")
    assert found.entries["w"].shape == (2, 2, SIZE)
    assert found.entries["v"].dims == ("quantity", "v_dim_0")
    # a slot's contraction is that of its numbers
    own = found.entries.sel(quantity="contraction")
    both = np.concatenate([own["w"].values, own["v"].values[None]])
    np.testing.assert_allclose(found.table.contraction, both.mean(0))


@pytest.fixture(scope="module")
def out():
    return rebase(draws(np.random.default_rng(0)), UNITS, cost=EuclideanCost(), null=False, num_starts=1)


def improper():
    numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (2, SIZE), ()))
    numpyro.sample("v", dist.Normal(1.0, 0.5).expand([SIZE]))


def more(size=SIZE):
    model(size)
    numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))


def two_scales():
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0).expand([2]))
    numpyro.sample("w", dist.Normal(0.0, tau[:, None]).expand([2, SIZE]).to_event(2))
    numpyro.sample("v", dist.Normal(1.0, 0.5).expand([SIZE]))


def renamed():
    numpyro.sample("u", dist.Normal(0.0, 1.0).expand([SIZE]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda o: prior_conformity(o.data, model), TypeError, "what rebase returned"),
        (lambda o: prior_conformity(o, None), TypeError, "model must be a NumPyro model"),
        (lambda o: prior_conformity(o, model, 3), TypeError, "model_args must be a tuple"),
        (lambda o: prior_conformity(o, model, level=2), ValueError, "level must be a probability"),
        (lambda o: prior_conformity(o, model, smallest_effect=1), ValueError, "smallest_effect must be"),
        (lambda o: prior_conformity(o, model, rng_key=0), TypeError, "rng_key"),
        (lambda o: prior_conformity(o, model, progress_bar=1), TypeError, "progress_bar"),
        (lambda o: prior_conformity(o, improper), SymmetryError, r"The prior of \['w'\] is improper"),
        (lambda o: prior_conformity(o, more), SymmetryError, r"holds no draws of the model's sites \['sigma'\]"),
        (lambda o: prior_conformity(o, renamed), SymmetryError, r"draws no sites \['v', 'w'\] .* draws \['u'\]"),
        (lambda o: prior_conformity(o, model, (7,)), SymmetryError, r"'w' in shape \(2, 7\).*holds \(2, 4\)"),
        (lambda o: prior_conformity(o, two_scales), SymmetryError, r"'tau' in shape \(2,\).*holds \(\)"),
        (lambda o: prior_conformity(o._replace(part="likelihood"), model), SymmetryError, "the likelihood's alone"),
    ],
)
def test_what_cannot_be_compared_is_refused(out, call, error, message):
    with pytest.raises(error, match=message):
        call(out)


def test_a_model_of_other_slots_is_refused_before_it_runs_on_given_sites():
    def mixture(size):
        weight = numpyro.sample("weight", dist.Dirichlet(jnp.ones(size)))
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([size]))
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weight), dist.Normal(loc, 1.0)), obs=0.3)

    rng = np.random.default_rng(0)
    posterior = {"weight": rng.dirichlet(np.ones(SIZE), SHAPE), "loc": rng.normal(size=(*SHAPE, SIZE))}
    out = rebase(posterior, Symmetry.mixture("weight", "loc"), null=False, num_starts=1)
    with pytest.raises(SymmetryError, match=r"'weight' in shape \(5,\), and out.data holds \(4,\)"):
        prior_conformity(out, mixture, (SIZE + 1,))


def test_slots_of_another_cost_are_refused():
    rng = np.random.default_rng(0)
    cost = AllocationCost(rng.integers(0, SIZE, (*SHAPE, 9)))
    out = rebase(draws(rng), UNITS, cost=cost, null=False, num_starts=1)
    with pytest.raises(SymmetryError, match=r"AllocationCost.*GaussianCost\(\) or EuclideanCost\(\)"):
        prior_conformity(out, model)


def test_units_in_blocks_that_move_are_refused():
    rng = np.random.default_rng(0)
    out = rebase({"w": rng.normal(size=(*SHAPE, 2, 2))}, Symmetry({"w": ("block", "block/unit")}), null=False)

    def blocks():
        numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 2]))

    with pytest.raises(SymmetryError, match=r"Groups \['block'\] move blocks in which units move too"):
        prior_conformity(out, blocks)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "shape"), [(0.0, SHAPE), (0.9, (4, 400))])
@pytest.mark.parametrize("informed", [0, 2])
def test_units_that_follow_the_prior_are_hardly_ever_said_not_to(rate, shape, informed):
    wrong, together, number = 0, 0, 60
    for seed in range(number):
        rng = np.random.default_rng([seed, informed, int(10 * rate)])
        out, found = judged(switched(rng, draws(rng, informed, rate, shape)), rng_key=jax.random.key(seed))
        known = np.abs(out.data["w"].mean((0, 1))).max(0) > 6.0
        told = ~np.isnan(found.p_value)
        wrong += told and bool((~found.table.follows & ~known).any())
        together += told and found.p_value <= 0.05
        assert not told or not found.table.follows[known].any()
    most = 0.05 * number + 2.0 * np.sqrt(0.05 * 0.95 * number)
    assert wrong <= most
    assert informed or together <= most


def network(x, y=None, width=6):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, width]).to_event(2))
    b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([width, 1]).to_event(2))
    if y is not None:
        numpyro.sample("y", dist.Normal((jnp.tanh(x @ w1 + b1) @ w2)[:, 0], 0.3).to_event(1), obs=y)


@pytest.mark.slow
def test_a_network_follows_its_prior_without_data_and_not_with_them():
    x = jnp.linspace(-3.0, 3.0, 40)[:, None]
    y = 3.0 * jnp.tanh(2.0 * x[:, 0])
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed")
    found = []
    for data in (None, y):
        options = {"num_warmup": 500, "num_samples": 500, "num_chains": 4, "progress_bar": False}
        mcmc = MCMC(NUTS(network), **options, chain_method="vectorized")
        mcmc.run(jax.random.key(0), x, data)
        out = rebase(mcmc.get_samples(group_by_chain=True), symmetry, null=False)
        found.append(prior_conformity(out, network, (x, data), progress_bar=False))
    without, beside = found
    assert without.table.follows.all()
    assert without.p_value > 0.05
    assert beside.p_value <= 0.05
    assert not beside.table.follows.all()
    # units that data leave over are nearly as the prior has them, and one is not
    effect = beside.table.effect.sort_values().to_numpy()
    assert effect[-1] > 0.3 > 0.05 > effect[0]


def test_slots_are_shuffled_among_themselves_with_either_sign():
    """Else a search that ends in a local optimum would find the relabelled draws where they are."""
    values = {"w": np.random.default_rng(0).standard_normal((2, 100, 3, SIZE))}
    out = rebase(values, Symmetry({"w": (None, "unit")}, kinds={"unit": "signed"}), null=False, num_starts=1)
    own = out.view.open({"w": values["w"].reshape(-1, 3, SIZE)})
    sides = Sides(out, out.view.symmetry, own, own)
    ((order, sign),) = sides._shuffled([("unit", 1), ("unit", 3)], np.random.default_rng(1)).values()
    assert (order[:, [0, 2]] == [0, 2]).all()
    assert (sign[:, [0, 2]] == 1).all()
    assert set(map(tuple, np.c_[order, sign][:, [1, 3, 5, 7]])) == {
        (*o, *s) for o in ((1, 3), (3, 1)) for s in itertools.product((-1, 1), repeat=2)
    }


def test_blocks_are_compared_with_blocks_of_draws_that_follow_all_of_their_own():
    """Ten draws in blocks of three and seven; then ten redrawn, of which each block takes the two that it is worth."""
    rng = np.random.default_rng(0)
    features, starts = rng.standard_normal((20, 4)), np.array([0, 3])
    other = energies.ExchangeableBlocks(np.array([0, 2, 4, 9]), np.array([0, 2]))
    first = energies.exchanges(rng, 2, 2, 5)
    blocks = [features[:3], features[3:10], features[[10, 12]], features[[14, 19]]]
    between = np.array([[cdist(p, q).mean() for q in blocks] for p in blocks])
    expected = energies.energies(between, first) / (2.0 * between[:2, 2:].mean())
    np.testing.assert_allclose(ExchangedBlocks(starts, other, first).of(features), expected, rtol=1e-5)


def by_hand(**fields):
    """Of nine units, of which seven are told from the prior, and of a group that has one slot."""
    effects = [0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4, 0.9, 0.8]
    rows = [("unit", str(k), x, 0.05, x / 2.0, 0.01, k > 6) for k, x in enumerate(effects)]
    table = pd.DataFrame([*rows, ("other", "0", 0.0, 0.05, 0.0, 0.5, True)], columns=list(COLUMNS))
    known = {"table": table, "entries": xr.Dataset(), "contraction": {"w": 0.257, "v": -0.5}, "effect": 0.12345}
    known |= {"floor": 0.1, "p_value": 0.01234, "given": (), "drawn": Drawn("out", 4000, 4, 10.0, False, 8)}
    return PriorConformity(**(known | fields))


def test_verdicts_come_with_the_six_slots_that_are_furthest():
    lines = str(by_hand()).splitlines()
    assert lines == [
        "2 of 9 slots of 'unit' follow the prior, as far as these draws tell.",
        "The slot of 'other' follows the prior, as far as these draws tell.",
        "  unit 1: effect 0.700, noise floor 0.050, contraction 35%",
        "  unit 3: effect 0.600, noise floor 0.050, contraction 30%",
        "  unit 5: effect 0.500, noise floor 0.050, contraction 25%",
        "  unit 6: effect 0.400, noise floor 0.050, contraction 20%",
        "  unit 4: effect 0.300, noise floor 0.050, contraction 15%",
        "  unit 2: effect 0.200, noise floor 0.050, contraction 10%",
        "All slots together, whatever their labels: effect 0.123, noise floor 0.100, p = 0.0123; contraction of w 26%, "
        "v -50%.",
        "out: 4000 draws of 4 chains, 400 effective, 8 blocks.",
    ]
    given = str(by_hand(given=("tau", "b"))).splitlines()
    assert given[-2:] == ["As they are, for their prior ties units to each other: tau, b.", lines[-1]]
    apart = by_hand().table.assign(follows=False)
    assert str(by_hand(table=apart)).splitlines()[1] == (
        "The slot of 'other' does not follow the prior, as far as these draws tell."
    )
    assert str(by_hand(p_value=np.nan)) == (
        "Not enough draws to tell which slots follow the prior: 4000 draws are worth about 400 independent ones. Run "
        "longer, or more chains."
    )
