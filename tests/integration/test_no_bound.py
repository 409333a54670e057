"""Guides by hand whose density is none of the model's latent sites: their ELBO may lie above the evidence."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from scipy import stats

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, UnsupportedGuideError, log_evidence

KEY, Y = jax.random.key(0), jnp.array(0.5)
# z may be relabelled, and s may not
SYMMETRIES = {"with a group": Symmetry({"z": ("unit",)}), "without": Symmetry({})}
EVIDENCE = stats.norm.logpdf(0.5, 0.0, math.sqrt(3.0 + 1.0 + 1e-4))


def model(y):
    s = numpyro.sample("s", dist.Normal(0.0, 0.01))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(s + z.sum(), 1.0), obs=y)


def draw_z():
    scale = numpyro.param("z_scale", jnp.full(3, 0.8), constraint=constraints.positive)
    numpyro.sample("z", dist.Normal(numpyro.param("z_loc", jnp.full(3, 0.1)), scale).to_event(1))


def draw_s():
    return numpyro.sample("s", dist.Normal(0.0, numpyro.param("s_scale", 0.01)))


def point_mass(y):
    numpyro.sample("s", dist.Delta(numpyro.param("s_loc", 0.0)))
    draw_z()


def not_in_the_model(y):
    draw_s()
    numpyro.sample("a", dist.Normal(0.0, 100.0))
    draw_z()


def auxiliary(y):
    draw_s()
    numpyro.sample("a", dist.Normal(0.0, 100.0), infer={"is_auxiliary": True})
    draw_z()


def masked(y):
    with handlers.mask(mask=False):
        draw_s()
    draw_z()


def annealed(y):
    with handlers.scale(scale=0.1):
        draw_s()
        draw_z()


def params_of(guide):
    trace = handlers.trace(handlers.seed(guide, KEY)).get_trace(Y)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "param"}


@pytest.mark.filterwarnings("ignore:Found vars in model but not guide:UserWarning")
@pytest.mark.parametrize("symmetry", SYMMETRIES)
@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (point_mass, "Site 's' is a point mass"),
        (not_in_the_model, r"\['a'\], which are no latent sites|draws \['a', 's', 'z'\]; expected"),
        (auxiliary, r"auxiliary sites \['a'\]|\['a'\], which are no latent sites"),
        (masked, "Site 's': a mask leaves 1 of 1 entry"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_no_bound_and_no_evidence_of_what_is_no_density(guide, message, symmetry):
    wrapped = AutoSymmetrized(guide, SYMMETRIES[symmetry], model=model, progress_bar=False)
    for ask in (
        lambda: wrapped.elbo_bounds(KEY, params_of(guide), Y, progress_bar=False),
        lambda: log_evidence((wrapped, params_of(guide)), model_args=(Y,), progress_bar=False),
    ):
        with pytest.raises((UnsupportedGuideError, SymmetryError), match=message):
            ask()


@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_an_annealed_guide_is_bounded_by_its_whole_density(symmetry):
    wrapped = AutoSymmetrized(annealed, SYMMETRIES[symmetry], model=model, progress_bar=False)
    found = wrapped.elbo_bounds(KEY, params_of(annealed), Y, num_particles=1024, progress_bar=False)
    # E[log p(y, s, z) - log q(s, z)], all of it Gaussian
    z_loc, z_scale = 0.1, 0.8
    data = stats.norm.logpdf(0.5, 3 * z_loc, 1.0) - 0.5 * (3 * z_scale**2 + 1e-4)
    elbo = data - 3 * 0.5 * (z_scale**2 + z_loc**2 - 1.0 - 2.0 * math.log(z_scale))
    assert abs(found.lower - elbo) < 4 * found.lower_error
    assert found.importance_weighted < EVIDENCE + 4 * found.importance_weighted_error


ROWS = jnp.array([0.5, -0.2, 0.9])
WEIGHTS = {"rows not shown": (1.0, 10.0), "a loss by row": (0.1, 0.1)}


def by_rows(y, of_all, of_rows, *, is_model):
    """A global site, and one for each row; the guide is the posterior of the rows' sites."""
    with handlers.scale(scale=of_all):
        numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with handlers.scale(scale=of_rows / of_all):
            prior, given = dist.Normal(0.0, 0.1), dist.Normal(y / 2, 0.1 * math.sqrt(0.5))
            local = numpyro.sample("local", (prior if is_model else given).expand([3]).to_event(1))
            if is_model:
                numpyro.sample("y", dist.Normal(local, 0.1).to_event(1), obs=y)


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("symmetry", ["of the global site", "none"])
def test_a_weight_of_latents_and_data_alike_weighs_the_evidence(symmetry, weights, is_traced):
    model, guide = (functools.partial(by_rows, is_model=which) for which in (True, False))
    symmetry = Symmetry({"z": ("unit",)}) if symmetry != "none" else Symmetry({})
    wrapped = AutoSymmetrized(guide, symmetry, model=model, progress_bar=False)
    args = tuple(map(jnp.asarray, weights)) if is_traced else weights
    found = wrapped.elbo_bounds(KEY, {}, ROWS, *args, num_particles=64, progress_bar=False)
    evidence = stats.norm.logpdf(np.asarray(ROWS), 0.0, 0.1 * math.sqrt(2.0)).sum()
    assert found.lower == pytest.approx(weights[1] * evidence, rel=1e-4, abs=1e-4 + 4 * found.lower_error)
    assert math.isnan(found.importance_weighted) == (weights[1] > 1.0)


def test_a_divergence_that_model_and_guide_anneal_is_none_of_the_data():
    def tempered(y):
        with handlers.scale(scale=0.1):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    def guide(y):
        with handlers.scale(scale=0.1):
            numpyro.sample("z", dist.Normal(0.0, 0.8).expand([3]).to_event(1))

    wrapped = AutoSymmetrized(guide, Symmetry({"z": ("unit",)}), model=tempered, progress_bar=False)
    found = wrapped.elbo_bounds(KEY, {}, Y, num_particles=4096, progress_bar=False)
    # the integral of prior^0.1 times the likelihood: of a Gaussian of variance 10 that is not normalised
    prior = -0.1 * 1.5 * math.log(2 * math.pi) + 1.5 * math.log(2 * math.pi * 10.0)
    evidence = prior + stats.norm.logpdf(0.5, 0.0, math.sqrt(31.0))
    assert found.lower < evidence
    entropy = 1.5 * (1.0 + math.log(2 * math.pi * 0.64))
    expected = entropy - 0.15 * (math.log(2 * math.pi) + 0.64) + stats.norm.logpdf(0.5) - 0.5 * 3 * 0.64
    assert abs(found.lower - expected) < 4 * found.lower_error


def test_what_labels_are_worth_is_weighed_as_their_sites_are():
    """All of a loss by row: so much of the evidence, and so much of the information of three units far apart."""

    def model(y, weight):
        with handlers.scale(scale=weight):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    def guide(y, weight):
        with handlers.scale(scale=weight):
            numpyro.sample("z", dist.Normal(jnp.array([-1.0, 0.0, 1.0]), 0.05).to_event(1))

    def anew(weight):
        whole = AutoSymmetrized(guide, Symmetry({"z": ("unit",)}), model=model, check=False, progress_bar=False)
        return whole.setup(KEY, Y, weight).elbo_bounds(KEY, {}, Y, weight, num_particles=64)

    # numbers would make programs of their own
    one, *others = (anew(jnp.array(weight)) for weight in (1.0, 0.1, 3.0))
    assert one.mutual_information[0] == pytest.approx(math.log(6.0), rel=1e-5)
    for weight, other in zip((0.1, 3.0), others, strict=True):
        for field in ("lower", "upper", "base_elbo", "lower_error", "log_order"):
            assert getattr(other, field) == pytest.approx(weight * getattr(one, field), rel=1e-4)


def test_labels_are_worth_no_more_than_the_least_of_the_sites_that_they_move():
    """Units once, and what goes with them in each of many rows: the information is not multiplied by the rows."""

    def model(y, weight):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with handlers.scale(scale=weight):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
            numpyro.sample("y", dist.Normal((jnp.exp(z) * b).sum(), 1.0), obs=y)

    def guide(y, weight):
        numpyro.sample("z", dist.Normal(jnp.array([-1.0, 0.0, 1.0]), 0.05).to_event(1))
        with handlers.scale(scale=weight):
            numpyro.sample("b", dist.Normal(0.0, 0.5).expand([3]).to_event(1))

    for weight in (jnp.array(1.0), jnp.array(10.0)):
        both = Symmetry({"z": ("unit",), "b": ("unit",)})
        found = AutoSymmetrized(guide, both, model=model, check=False, progress_bar=False).setup(KEY, Y, weight)
        bounds = found.elbo_bounds(KEY, {}, Y, weight, num_particles=64)
        assert bounds.mutual_information[0] == pytest.approx(math.log(6.0), rel=1e-4)
        assert bounds.log_order == pytest.approx(math.log(6.0))


def rows_of(y, shown, by_plate, *, is_model):
    """Two units that are alike, and a site for each row that the guide draws about the first of them."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    loc = 0.0 if is_model else z[0]
    if by_plate:
        with numpyro.plate("row", len(y), subsample_size=shown) as index:
            local = numpyro.sample("local", dist.Normal(loc, 4.0))
            if is_model:
                numpyro.sample("y", dist.Normal(local, 1.0), obs=y[index])
        return
    with handlers.scale(scale=len(y) / shown):
        local = numpyro.sample("local", dist.Normal(loc, 4.0).expand([shown]).to_event(1))
        if is_model:
            numpyro.sample("y", dist.Normal(local, 1.0).to_event(1), obs=y[:shown])


@pytest.mark.parametrize("by_plate", [True, False], ids=["in a plate", "by a weight"])
def test_rows_that_are_not_shown_may_tell_all_of_the_labels(by_plate):
    model, guide = (functools.partial(rows_of, by_plate=by_plate, is_model=which) for which in (True, False))
    symmetry = Symmetry({"z": ("unit",)})
    wrapped = AutoSymmetrized(guide, symmetry, model=model, check=False, progress_bar=False)
    whole, in_part = (wrapped.elbo_bounds(KEY, {}, jnp.zeros(400), shown, num_particles=256) for shown in (400, 4))
    assert whole.width == 0.0
    assert in_part.mutual_information[0] < 0.1 < 0.4 < whole.mutual_information[1]
    assert in_part.mutual_information[1] == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("loss", [Trace_ELBO(), TraceMeanField_ELBO()], ids=["Trace", "MeanField"])
@pytest.mark.parametrize("is_around", [True, False])
def test_training_weighs_what_labels_are_worth_as_their_sites_are(loss, is_around):
    """An annealed divergence, or a loss by row: the correction is a part of it, wherever the weight is written."""

    def model(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)

    def guide(y):
        numpyro.sample("z", dist.Normal(numpyro.param("loc", jnp.arange(3.0)), 0.5).to_event(1))

    def of(weight):
        weighed = handlers.scale(guide, scale=weight)
        symmetrized = AutoSymmetrized(
            guide if is_around else weighed, SYMMETRIES["with a group"], model=model, check=False
        )
        whole = handlers.scale(symmetrized, scale=weight) if is_around else symmetrized
        corrected, base = (SVI(handlers.scale(model, scale=weight), q, optax.sgd(1.0), loss) for q in (whole, weighed))
        base_loss, corrected_loss = (float(svi.evaluate(svi.init(KEY, Y), Y)) for svi in (base, corrected))
        return base_loss - corrected_loss

    assert of(1.0) > 0.1
    # of which some is lost where losses are subtracted
    assert of(0.01) == pytest.approx(0.01 * of(1.0), rel=1e-3)
