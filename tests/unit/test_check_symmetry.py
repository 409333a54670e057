"""check_symmetry: what passes, what is refused and how it says so, and that it could have failed."""

import contextlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

from numpyro_symmetry import Symmetry, SymmetryError, check_symmetry, compose, find_symmetry
from numpyro_symmetry.discovery.proof import trials
from numpyro_symmetry.discovery.proof.prove import sites_left
from numpyro_symmetry.models import enumeration
from numpyro_symmetry.testing import exchangeable_gaussian

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(12, 2)))
Y = jnp.asarray(RNG.normal(size=12))
MLP = Symmetry.mlp([("w1", "b1"), ("w2", None)])


def normal(name, *shape, loc=0.0, scale=1.0):
    return numpyro.sample(name, dist.Normal(loc, scale).expand(shape).to_event(len(shape)))


def network(x, y, activation=jnp.tanh, scale=1.0):
    w1, b1 = normal("w1", 2, 4), normal("b1", 4)
    w2 = numpyro.sample("w2", dist.Normal(0.0, scale * jnp.ones((4, 1))).to_event(2))
    with numpyro.plate("data", len(y), subsample_size=6):
        xb, yb = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Normal((activation(xb @ w1 + b1) @ w2)[:, 0], 0.5), obs=yb)


def two_layers(x, y):
    h = jnp.tanh(x @ normal("w1", 2, 3) + normal("b1", 3))
    h = jax.nn.relu(h @ normal("w2", 3, 4) + normal("b2", 4))
    numpyro.sample("y", dist.Normal((h @ normal("w3", 4, 1))[:, 0], 0.5).to_event(1), obs=y)


def mixture(x, y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    loc = normal("loc", 3, scale=3.0)
    numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)).expand([12]), obs=y)


def markov(x, y):
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    loc = normal("loc", 3)
    emission = dist.Normal(loc, 1.0).log_prob(y[:, None])

    def forward(log_alpha, log_emission):
        return logsumexp(log_alpha[:, None] + jnp.log(transition), axis=0) + log_emission, None

    log_alpha, _ = jax.lax.scan(forward, emission[0] - jnp.log(3.0), emission[1:])
    numpyro.factor("likelihood", logsumexp(log_alpha))


def factors(x, y):
    loadings, scores = normal("loadings", 2, 3), normal("scores", 12, 3)
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("x", dist.Normal(scores @ loadings.T, scale).to_event(2), obs=x)


HMM = Symmetry.hmm(transition="transition", emissions=["loc"])


@pytest.mark.parametrize(
    ("model", "symmetry"),
    [
        (network, MLP),
        (network, Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed")),
        (two_layers, Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", None)])),
        (mixture, Symmetry.mixture("weights", "loc")),
        (markov, HMM),
        (factors, Symmetry.factor("loadings", "scores")),
    ],
    ids=["network", "signed", "two layers", "mixture", "markov", "factors"],
)
@pytest.mark.parametrize("x64", [False, True])
def test_passes_and_could_have_failed(model, symmetry, x64):
    with jax.enable_x64(x64):
        verdict = check_symmetry(model, symmetry, (X, Y))
    assert verdict.status == "passed"
    # what counts as rounding is small beside what a wrong action changes
    assert verdict.largest_gap <= verdict.tolerance < 1e-5 * max(1.0, min(verdict.control_gap.values()))
    assert min(verdict.control_gap.values()) > 1e3 * verdict.tolerance


@pytest.mark.parametrize(
    ("model", "symmetry", "message"),
    [
        (
            lambda x, y: network(x, y, scale=jnp.arange(1.0, 5.0)[:, None]),
            MLP,
            r"group 'hidden' the prior of site 'w2' \(axis -2\) changes by .* nats; .*must be the same for every index",
        ),
        (network, Symmetry({"w1": (None, "h"), "w2": ("h", None)}), "Add 'h' to axis -1 of site 'b1'"),
        (markov, Symmetry({"transition": ("s", None), "loc": ("s",)}), "Add 's' to axis -1 of site 'transition'"),
        (
            lambda x, y: network(x, y, jax.nn.relu),
            Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed"),
            r"the likelihood at 'y' changes .*Drop the signs of 'hidden'",
        ),
        (
            network,
            Symmetry({"w1": ("x", "h"), "b1": ("h",), "w2": ("h", None)}),
            "Remove 'x' from axis -2 of site 'w1'",
        ),
        (network, Symmetry({"w9": ("h",)}), "'w9' is named by the symmetry but is not among"),
        (network, Symmetry({"w1": ("h", "h")}), "size"),
    ],
    ids=["prior differs", "axis missing", "rows only", "relu is not odd", "extra group", "unknown site", "sizes"],
)
def test_refuses_and_says_where(model, symmetry, message):
    with pytest.raises(SymmetryError, match=message):
        check_symmetry(model, symmetry, (X, Y))


def test_refuses_an_ordered_support():
    def model(y):
        loc = numpyro.sample(
            "loc",
            dist.TransformedDistribution(
                dist.Normal(0.0, 1.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()
            ),
        )
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)).expand([12]), obs=y
        )

    with pytest.raises(SymmetryError, match="Site 'loc' .*leaves its support.*already breaks the symmetry"):
        check_symmetry(model, Symmetry.mixture("loc"), (Y,))


def with_assignments(y):
    loc = normal("loc", 2)
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2))
        numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=y)


def test_sums_out_discrete_latents():
    pytest.importorskip("funsor")
    assert check_symmetry(with_assignments, Symmetry.mixture("loc"), (Y,)).status == "passed"


def test_refuses_discrete_latents_without_funsor(monkeypatch):
    monkeypatch.setattr(enumeration, "find_spec", lambda name: None)
    with pytest.raises(SymmetryError, match=r"discrete latent sites \['z'\].*Install funsor"):
        check_symmetry(with_assignments, Symmetry.mixture("loc"), (Y,))


def test_refuses_data_with_nan():
    with pytest.raises(SymmetryError, match="not finite at points about the prior .*NaN in the data"):
        check_symmetry(mixture, Symmetry.mixture("weights", "loc"), (X, Y.at[3].set(jnp.nan)))


def test_is_inconclusive_where_nothing_depends_on_the_group():
    def model():
        numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), (3,)))

    verdict = check_symmetry(model, Symmetry({"z": ("g",)}))
    assert verdict.status == "inconclusive"
    assert "no wrong action on group 'g'" in verdict.reason


def test_a_control_that_acts_rightly_is_noticed(monkeypatch):
    monkeypatch.setattr(trials, "wrong_actions", lambda symmetry, name, place: [place])
    assert check_symmetry(network, MLP, (X, Y)).status == "inconclusive"


def test_a_prior_that_trades_off_against_a_factor_is_invariant():
    def model():
        z = numpyro.sample("z", dist.Normal(jnp.array([0.0, 1.0]), 1.0).to_event(1))
        numpyro.factor("undo", -dist.Normal(jnp.array([0.0, 1.0]), 1.0).log_prob(z).sum() - (z**2).sum())

    assert check_symmetry(model, Symmetry({"z": ("g",)})).status == "passed"


def test_trivial_symmetry_passes():
    assert check_symmetry(network, Symmetry({}), (X, Y)).status == "passed"


def test_session_precision_is_restored():
    before = jnp.ones(1).dtype
    check_symmetry(network, MLP, (X, Y))
    assert jnp.ones(1).dtype == before


@pytest.mark.parametrize("seed", range(6))
def test_refuses_a_model_with_a_proper_subgroup_whatever_the_key(seed):
    def cyclic():
        z = normal("z", 3)
        numpyro.factor("ring", (z * jnp.roll(z, 1) ** 2).sum())

    with pytest.raises(SymmetryError, match="not invariant"):
        check_symmetry(cyclic, Symmetry({"z": ("g",)}), rng_key=jax.random.PRNGKey(seed))


def test_refuses_scales_that_differ_by_unit():
    def model():
        with numpyro.handlers.scale(scale=jnp.array([1.0, 2.0, 3.0])):
            numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]))

    with pytest.raises(SymmetryError, match=r"prior of site 'z' \(axis -1\)"):
        check_symmetry(model, Symmetry({"z": ("g",)}))


@pytest.mark.parametrize("where", ["first", "second"])
@pytest.mark.parametrize("handler", ["scale", "mask"])
@pytest.mark.parametrize("breaks", [True, False])
def test_scales_and_masks_are_part_of_the_log_joint(where, handler, breaks):
    last = {("scale", True): 2.0, ("mask", True): False, ("scale", False): 1.0, ("mask", False): True}[handler, breaks]
    weighed = np.array([type(last)(1), type(last)(1), last])

    def model(y):
        around = handlers.scale(scale=weighed) if handler == "scale" else handlers.mask(mask=weighed)
        alone = contextlib.nullcontext()
        with numpyro.plate("unit", 3):
            with around if where == "first" else alone:
                z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            with around if where == "second" else alone:
                numpyro.sample("more", dist.Normal(z, 1.0))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    symmetry = Symmetry({"z": ("unit",), "more": ("unit",)})
    if not breaks:
        assert check_symmetry(model, symmetry, (0.3,)).status == "passed"
    else:
        with pytest.raises(SymmetryError, match="not invariant"):
            check_symmetry(model, symmetry, (0.3,))


def test_a_huge_likelihood_does_not_hide_the_prior():
    x, y = jnp.asarray(RNG.normal(size=(2000, 2))), jnp.asarray(RNG.normal(size=2000))

    def model(x, y):
        w1 = normal("w1", 2, 4)
        w2 = numpyro.sample("w2", dist.Normal(0.0, jnp.array([1.0, 1.0, 1.0, 1.02])).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 1e-3), obs=y)

    with pytest.raises(SymmetryError, match=r"prior of site 'w2' \(axis -1\)"):
        check_symmetry(model, Symmetry({"w1": (None, "h"), "w2": ("h",)}), (x, y))


@pytest.mark.parametrize("seed", range(4))
def test_a_support_may_depend_on_another_permuted_site(seed):
    def model():
        width = numpyro.sample("width", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
        z = numpyro.sample("z", dist.Uniform(0.0, width).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=0.3)

    key = jax.random.PRNGKey(seed)
    assert check_symmetry(model, Symmetry({"width": ("g",), "z": ("g",)}), rng_key=key).status == "passed"


def cast(x, y):
    hidden = jnp.tanh(x @ normal("w1", 2, 4)).astype(jnp.float32)
    numpyro.sample("y", dist.Normal(hidden @ normal("w2", 4).astype(jnp.float32), 0.5), obs=y)


def product_in_float32(x, y):
    hidden = jnp.tanh(jnp.matmul(x, normal("w1", 2, 4), preferred_element_type=jnp.float32))
    numpyro.sample("y", dist.Normal(hidden @ normal("w2", 4), 0.5), obs=y)


def reduced(x, y):
    f = jax.lax.reduce_precision(jnp.tanh(x @ normal("w1", 2, 4)) @ normal("w2", 4), 8, 23)
    numpyro.sample("y", dist.Normal(f, 0.5), obs=y)


ROUNDED = [cast, product_in_float32, reduced]


def float32_carry(x, y):
    f = jnp.tanh(x @ normal("w1", 2, 4)) @ normal("w2", 4)
    total, _ = jax.lax.scan(lambda c, v: (c + v, None), jnp.zeros((), jnp.float32), f)
    numpyro.sample("y", dist.Normal(f + total, 0.5), obs=y)


def int32_carry(x, y):
    f = jnp.tanh(x @ normal("w1", 2, 4)) @ normal("w2", 4)
    last, _ = jax.lax.scan(lambda c, v: (jnp.where(v > 0, jnp.arange(3)[c], c), None), jnp.int32(1), f)
    numpyro.sample("y", dist.Normal(f + last, 0.5), obs=y)


@pytest.mark.parametrize("model", [*ROUNDED, float32_carry, int32_carry])
def test_a_model_that_computes_in_float32_is_held_to_its_own_rounding(model):
    data = X.astype(jnp.float32), Y.astype(jnp.float32)
    verdict = check_symmetry(model, Symmetry({"w1": (None, "h"), "w2": ("h",)}), data)
    assert verdict.status == "passed"
    # a loop that is pinned to 32 bits is computed in double all the same, a cast is what the model asks for
    assert (verdict.tolerance > 1e-5) == (model in ROUNDED)
    with pytest.raises(SymmetryError, match="Add 'h' to axis -1 of site 'w2'"):
        check_symmetry(model, Symmetry({"w1": (None, "h")}), data)


@pytest.mark.parametrize("seed", range(5))
def test_refuses_supports_that_differ_a_little_where_densities_agree(seed):
    def model(upper):
        z = numpyro.sample("z", dist.Uniform(0.0, jnp.array([1.0, upper])).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 0.1), obs=1.0)

    def check(upper):
        return check_symmetry(model, Symmetry({"z": ("unit",)}), (upper,), rng_key=jax.random.key(seed))

    assert check(1.0).status == "passed"
    with pytest.raises(SymmetryError, match="Site 'z'.*leaves its support"):
        check(1.02)


@pytest.mark.parametrize("last", [1.0, 3.0])
def test_a_large_site_elsewhere_does_not_hide_a_prior_in_float32(last):
    def model(y):
        w, c, v = normal("w", 300, 100), numpyro.sample("c", dist.Normal(0.0, scales).to_event(1)), normal("v", 5)
        f = (jnp.tanh(c) * v).sum() + 0.0 * w.sum()
        numpyro.sample("y", dist.Normal(f.astype(jnp.float32), 0.1), obs=y)

    scales = jnp.ones(5).at[-1].set(last)
    symmetry = Symmetry({"c": ("unit",), "v": ("unit",)})
    if last == 1.0:
        assert check_symmetry(model, symmetry, (0.0,)).status == "passed"
    else:
        with pytest.raises(SymmetryError, match="prior of site 'c'"):
            check_symmetry(model, symmetry, (0.0,))


def test_an_error_of_the_model_itself_comes_through():
    def model():
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        check_symmetry(model, Symmetry({"z": ("g",)}))


def test_the_remedy_adds_rather_than_removes():
    def model(y):
        loc = normal("loc", 3, scale=3.0)
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        mixed = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0))
        numpyro.sample("y", mixed.expand([12]), obs=y)

    with pytest.raises(SymmetryError, match=r"Add 'k' to axis -1 of site 'weights'\.$"):
        check_symmetry(model, Symmetry({"loc": ("k",)}), (Y,))


def test_discrete_sites_that_the_group_permutes_are_values_like_any_other():
    def model(x, y):
        on = numpyro.sample("on", dist.Bernoulli(0.5).expand([4]).to_event(1))
        w1, w2 = normal("w1", 2, 4), normal("w2", 4)
        numpyro.sample("y", dist.Normal((jnp.tanh(x @ w1) * on) @ w2, 0.5), obs=y)

    axes = {"on": ("h",), "w1": (None, "h"), "w2": ("h",)}
    assert check_symmetry(model, Symmetry(axes), (X, Y)).status == "passed"


def test_refuses_data_that_would_be_exchanged_and_says_what_to_write():
    def model():
        numpyro.sample("penalty", dist.Normal(normal("z", 4), 1.0), obs=jnp.zeros(4))

    with pytest.raises(SymmetryError, match="entries are exchanged.*numpyro.factor of the sum"):
        check_symmetry(model, Symmetry({"z": ("g",)}))


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("data", [np.zeros(3), 10 * np.linspace(-3, 3, 30)])
def test_a_break_that_a_sum_would_hide_is_not_remedied_by_a_sum(each, data):
    def model(y):
        loc = normal("loc", 3)
        noise = dist.Normal(loc.sum() + 1e-7 * loc[0], 1.0).expand([len(y)])
        numpyro.sample("y", noise if each else noise.to_event(1), obs=y)

    with pytest.raises(SymmetryError, match="Remove 'g' from axis -1 of site 'loc'"):
        check_symmetry(model, Symmetry({"loc": ("g",)}), (data,))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["permutation", "signed"])
def test_generators_generate_the_whole_group(size, kind):
    symmetry = Symmetry({"z": ("g",)}, kinds={"g": kind}, sizes={"g": size})

    def code(part):
        return tuple(np.asarray(part).ravel()) if kind == "permutation" else tuple(np.concatenate(part))

    trials_ = trials.trial_elements(symmetry, np.random.default_rng(0), 0)
    seen = {code(symmetry.identity()["g"]): symmetry.identity()}
    frontier = list(seen.values())
    while frontier:
        reached = [compose(g, h) for h in frontier for _, g in trials_]
        frontier = [h for h in reached if code(h["g"]) not in seen]
        seen |= {code(h["g"]): h for h in frontier}
    assert len(seen) == round(np.exp(symmetry.log_order()))


@pytest.mark.parametrize(
    ("sizes", "signed"),
    [((3, 3), ""), ((2, 2), ""), ((1, 3), ""), ((2, 4), "a"), ((3, 2), "ab"), ((1, 1), "ab"), ((3, 3), "b")],
)
def test_few_elements_generate_the_product_of_all_groups(sizes, signed):
    names = dict(zip("ab", sizes, strict=True))
    kinds = {name: "signed" if name in signed else "permutation" for name in names}
    symmetry = Symmetry({"z": ("a",), "w": ("b",)}, kinds=kinds, sizes=names)
    few = trials.few_elements(symmetry, np.random.default_rng(0))[:-1]  # without the random one

    def code(element):
        return tuple(np.concatenate([np.ravel(x) for x in jax.tree.leaves(element)]))

    seen = {code(symmetry.identity()): symmetry.identity()}
    frontier = list(seen.values())
    while frontier:
        reached = [compose(symmetry.identity() | g, h) for h in frontier for _, g in few]
        frontier = [h for h in {code(h): h for h in reached}.values() if code(h) not in seen]
        seen |= {code(h): h for h in frontier}
    assert len(seen) == round(np.exp(symmetry.log_order()))
    one_by_one = trials.trial_elements(symmetry, np.random.default_rng(0), 0)
    assert len(few) <= len(one_by_one)


@pytest.mark.parametrize("sizes", [{"a": 3}, {"a": 2, "b": 3}, {"a": 3, "b": 1}])
def test_a_trial_is_called_after_the_group_that_it_moves_or_after_all(sizes):
    symmetry = Symmetry({name: (name,) for name in sizes}, sizes=sizes)
    rng = np.random.default_rng(0)
    tried = trials.trial_elements(symmetry, rng, 2) + trials.few_elements(symmetry, rng)
    assert tried
    for label, element in tried:
        moved = [name for name in trials.movable(symmetry) if name in element]
        assert label == (moved[0] if len(moved) == 1 else trials.ALL_GROUPS)


def test_few_elements_stand_in_every_cell_unless_another_group_carries_them_there():
    def tried(outer):
        kinds = {"cell": outer, "cell/unit": "permutation"}
        symmetry = Symmetry({"x": ("cell", "cell/unit")}, kinds).bind({"x": np.zeros((4, 3))})
        seen = set()
        for label, element in trials.few_elements(symmetry, np.random.default_rng(0))[:-1]:
            if label == "cell/unit" or outer == "fixed":
                seen |= set(np.flatnonzero((np.asarray(element["cell/unit"]) != np.arange(3)).any(1)))
        return seen

    assert tried("fixed") == {0, 1, 2, 3}
    assert len(tried("permutation")) == 1


@pytest.mark.parametrize("cell", range(4))
def test_a_break_in_one_cell_of_a_fibred_group_is_seen_whatever_the_key(cell):
    def log_density(values):
        pairs = values["x"][cell, jnp.array([1, 2, 2])] - values["x"][cell, jnp.array([0, 0, 1])]
        # of the last cell's units only every second permutation leaves it alone
        return jnp.sum(jnp.tanh(values["x"])) + jnp.sum(values["z"] ** 3) + jnp.prod(pairs)

    rng = np.random.default_rng(0)
    values = {"x": rng.normal(size=(4, 3)), "z": rng.normal(size=3)}
    fibred = Symmetry({"x": ("cell", "cell/unit"), "z": ("other",)}, {"cell": "fixed"})
    for key in range(4):
        with pytest.raises(SymmetryError, match="unit"):
            check_symmetry(log_density, fibred, (values,), argnum=0, rng_key=jax.random.key(key))


def test_a_program_in_single_precision_that_lives_on_does_no_harm():
    x = np.linspace(-2.0, 2.0, 12)

    def closing_over(y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(sum(x - loc[k] for k in range(3)), 1.0).to_event(1), obs=y)

    def taking(row, y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0).expand([int(row.max()) + 1]).to_event(1))
        numpyro.sample("y", dist.Normal(offset[row] + jnp.sin(loc).sum(), 1.0).to_event(1), obs=y)

    def log_joint(loc, model, args):
        return log_density(handlers.seed(model, 0), args, {}, {"loc": loc, "offset": jnp.ones(12)})[0]

    for model, args, tolerance in ((closing_over, (np.sin(x),), 1e-2), (taking, (np.arange(12), np.sin(x)), 1e-6)):
        alive = jax.make_jaxpr(partial(log_joint, model=model, args=args))(jnp.zeros(3))
        checked = check_symmetry(model, Symmetry({"loc": ("component",)}), args)
        assert alive
        assert checked.status == "passed"
        assert checked.tolerance < tolerance


@pytest.mark.parametrize("ask", [check_symmetry, find_symmetry], ids=["check", "find"])
def test_what_was_asked_about_a_model_does_not_change_how_it_runs(ask):
    # it closes over whole numbers and computes with real ones in NumPy's double precision, all of which JAX knows by
    # the arrays they are: what is kept of a program in double must not be found again when the user traces in single
    posterior = exchangeable_gaussian(num_units=3)
    told = [
        ask(posterior.model, *([posterior.symmetry] if ask is check_symmetry else []), posterior.model_args)
        for _ in range(2)
    ]

    def log_joint(units):
        return log_density(handlers.seed(posterior.model, 0), posterior.model_args, {}, {"units": units})[0]

    assert jax.make_jaxpr(log_joint)(jnp.ones((3, 2)))
    assert jax.jit(log_joint)(jnp.ones((3, 2))).dtype == jnp.float32
    fit = SVI(posterior.model, AutoNormal(posterior.model), numpyro.optim.Adam(0.1), Trace_ELBO())
    assert jnp.isfinite(fit.run(jax.random.key(0), 2, *posterior.model_args, progress_bar=False).losses).all()
    assert told


def test_a_refusal_that_is_held_on_to_does_not_change_how_a_model_runs():
    scales, places = np.array([1.0, 2.0, 3.0]), np.arange(3)

    def model():
        units = numpyro.sample("units", dist.Normal(0.0, scales).to_event(1))
        numpyro.factor("density", -jnp.sin(units)[places].sum())

    # the error holds all that was there when it was raised
    with pytest.raises(SymmetryError, match="not invariant") as caught:
        check_symmetry(model, Symmetry({"units": ("unit",)}))
    assert jax.make_jaxpr(lambda units: log_density(handlers.seed(model, 0), (), {}, {"units": units})[0])(jnp.ones(3))
    assert caught


@pytest.mark.parametrize(
    "asked", [find_symmetry, lambda model, args: check_symmetry(model, Symmetry({"w": ("u",)}), args)]
)
def test_an_invalid_parameter_is_named_as_numpyro_names_it(asked):
    def model(scale, y):
        loc = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1)).sum()
        numpyro.sample("y", dist.Normal(loc, np.full(3, -scale)).to_event(1), obs=y)

    with pytest.raises(ValueError, match="Normal distribution got invalid scale parameter"):
        asked(lambda y: model(1.0, y), (np.zeros(3),))


def weighted(y):
    """Numbers that are no probabilities are among those that are tried, and their density is none."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    loc = normal("loc", 3)
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, 1.0)), obs=y)


DEBUGGING = {
    "leaks": jax.checking_leaks,
    "nothing compiled": jax.disable_jit,
    "not a number": partial(jax.debug_nans, True),
    "infinities": partial(jax.debug_infs, True),
}


@pytest.mark.parametrize("how", DEBUGGING)
@pytest.mark.parametrize(
    ("model", "symmetry", "args"),
    [(network, MLP, (X, Y)), (weighted, Symmetry.mixture("weights", "loc"), (Y,))],
    ids=["network", "mixture"],
)
def test_what_is_asked_while_jax_is_being_debugged_is_answered(model, symmetry, args, how):
    with DEBUGGING[how]():
        assert check_symmetry(model, symmetry, args).status == "passed"
        assert find_symmetry(model, args).groups


def test_priors_alone_prove_nothing():
    """Of inputs that are zero the likelihood says nothing of the first layer, whose prior does not mind anything."""

    def network(x, y):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 1.0).to_event(1), obs=y)

    first, both = Symmetry({"w1": (None, "u")}), Symmetry({"w1": (None, "u"), "w2": ("u",)})
    verdict = check_symmetry(network, first, (np.zeros((5, 2)), np.zeros(5)))
    assert verdict.status == "inconclusive"
    assert "changes anything but the priors" in verdict.reason
    assert check_symmetry(network, both, (np.ones((5, 2)), np.zeros(5))).status == "passed"
    with pytest.raises(SymmetryError, match="not invariant"):
        check_symmetry(network, first, (np.ones((5, 2)), np.zeros(5)))


def test_arrays_of_either_sign_are_moved_at_either_sign_and_positive_ones_stay_positive():
    def of_negative_entries(params):
        return (jnp.maximum(-params["w"], 0.0) * jnp.arange(5.0)).sum() + params["w"].sum()

    values, symmetry = np.random.default_rng(0).normal(size=5), Symmetry({"w": ("unit",)})
    assert check_symmetry(of_negative_entries, symmetry, ({"w": abs(values)},), argnum=0)
    with pytest.raises(SymmetryError, match="not invariant: under group 'unit'"):
        check_symmetry(of_negative_entries, symmetry, ({"w": values},), argnum=0)


def key_in_state():
    """As networks of flax.nnx with dropout have it."""
    return numpyro.primitives.mutable("state", {"key": jax.random.key(0), "mean": jnp.zeros(3)})["key"]


@pytest.mark.parametrize("key", [numpyro.prng_key, key_in_state])
def test_random_numbers_of_a_model_are_named_where_they_break_a_symmetry(key):
    def model(y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        kept = jax.random.bernoulli(key(), 0.5, (3, 5))
        numpyro.sample("y", dist.Normal(jnp.where(kept, jnp.tanh(w), 0.0).sum(-1), 1.0).to_event(1), obs=y)

    with pytest.raises(SymmetryError, match=r"\['y'\] are left to chance.*random numbers \(dropout\)"):
        check_symmetry(model, Symmetry.mixture("w"), (jnp.ones(3),))


class UpToOne:
    """A model all of whose sites are numbers up to one."""

    def inside_of(self, stack):
        return {site: (x <= 1.0).all(-1) for site, x in stack.items()}

    def inside(self, place):
        return {site: x[0] for site, x in self.inside_of({site: x[None] for site, x in place.items()}).items()}


BARELY, MORE = 1.0 + 1e-15, 1.0 + 1e-9
# values of two sites after a move, and the first of them that it took off its support
LEFT = [
    ([0.2, 1.0], [0.3, 0.4], ""),
    ([0.2, BARELY], [0.3, 0.4], ""),
    ([BARELY, 0.2], [0.3, 0.4], ""),
    ([MORE, 0.2], [0.3, 0.4], "a"),
    ([0.2, MORE], [BARELY, 0.4], "a"),
    ([0.2, 0.3], [0.4, MORE], "b"),
    ([MORE, 0.3], [MORE, 0.3], "a"),
]


@pytest.mark.parametrize("rows", [LEFT, LEFT[:3], LEFT[3:4], LEFT[::-1]])
def test_what_rounding_alone_took_off_a_support_has_not_left_it(rows):
    place = {"a": np.array([0.5, 0.5]), "b": np.array([0.5, 0.5])}
    a, b, expected = zip(*rows, strict=True)
    moved = {"a": np.array(a), "b": np.array(b)}
    assert sites_left(UpToOne(), ("a", "b"), place, moved) == list(expected)
    # what was not on its support before has not left it
    outside = {"a": np.array([MORE, 0.5]), "b": np.array([MORE, 0.5])}
    assert sites_left(UpToOne(), ("a", "b"), outside, moved) == [""] * len(rows)


@pytest.mark.parametrize("low", [-2.0, 1.0])
def test_arrays_of_a_family_are_of_one_sign_only_together(low):
    """A position whose first component is negative and whose second is not says of neither that it stays positive."""

    def log_density(position):
        return sum(-((part["mu"] - 1.0) ** 2) for part in position)

    position = [{"mu": jnp.float32(low)}, {"mu": jnp.float32(2.0)}]
    family = Symmetry({("0.mu", "1.mu"): ("component",)})
    assert check_symmetry(log_density, family, (position,), argnum=0)
