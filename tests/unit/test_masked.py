"""Entries that a mask leaves without a density: where nothing else knows of them the evidence is infinite."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.autoguide import AutoNormal
from scipy.stats import norm

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, UnsupportedGuideError, log_evidence
from numpyro_symmetry.models import refuse_without_prior, trace_model

Y = np.arange(4.0)
SEEN = np.array([True, False, True, True])


def missing(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 4):
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y, obs_mask=SEEN)


def padded(y):
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(-1), 1.0), obs=y)


def padded_events(y):
    with numpyro.plate("rows", 4):
        z = numpyro.sample("z", dist.Normal(jnp.zeros((4, 2)), 1.0).mask(SEEN[:, None]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(-1), 1.0).mask(SEEN), obs=y)


def by_a_factor(y):
    with handlers.mask(mask=False):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    numpyro.factor("prior", dist.Normal(0.0, 2.0).log_prob(z).sum())
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


def seen_all_the_same(y):
    z = numpyro.sample("z", dist.Normal(jnp.zeros(4), 1.0).mask(SEEN).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)


def bounded(y):
    """A density of one over a finite volume has an integral."""
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        u = numpyro.sample("u", dist.Uniform(0.0, 1.0))
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
        numpyro.sample("y", dist.Normal(u + p[..., 0], 1.0), obs=y)


def of_support(prior):
    def model(y):
        numpyro.sample("z", prior.mask(False))
        numpyro.sample("y", dist.Normal(jnp.zeros(4), 1.0).to_event(1), obs=y)

    return model


def seen_far_away(y):
    b = numpyro.sample("b", dist.LogNormal(0.0, 1.0).mask(False))
    numpyro.sample("y", dist.Normal(jax.nn.relu(b - 20.0), 1.0).expand([4]).to_event(1), obs=y)


def seen_on_one_side(side, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).mask(False))
    numpyro.sample("y", dist.Normal(jax.nn.relu(side * b), 1.0).expand([4]).to_event(1), obs=y)


def read_outside_its_support(y):
    b = numpyro.sample("b", dist.LogNormal(0.0, 1.0).mask(False))
    numpyro.sample("y", dist.Normal(jnp.minimum(b, 0.0), 1.0).expand([4]).to_event(1), obs=y)


def transformed(y):
    base = dist.Normal(jnp.zeros(3), 1.0).mask(SEEN[:3]).to_event(1)
    p = numpyro.sample("p", dist.TransformedDistribution(base, dist.transforms.StickBreakingTransform()))
    numpyro.sample("y", dist.Normal(p, 1.0).to_event(1), obs=y)


def whole(y):
    with numpyro.plate("rows", 4), handlers.mask(mask=np.ones(4, bool)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def half_read(y):
    """What reads one entry says nothing of the other."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).mask(False).to_event(1))
    numpyro.sample("y", dist.Normal(z[0] + z[2], 1.0).expand([4]).to_event(1), obs=y)


def read_where_another_is_large(y):
    """Wherever it is not read, its integral is infinite."""
    s = numpyro.sample("s", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(False))
    numpyro.sample("y", dist.Normal(jnp.where(s > 1.0, z, 0.0), 1.0).expand([4]).to_event(1), obs=y)


def around_both(y):
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)


def padded_chain(y):
    rows = jnp.ones((3, 3)) / 3

    def step(state, row):
        with handlers.mask(mask=row[1]):
            state = numpyro.sample("state", dist.Categorical(rows[state]))
            numpyro.sample("y", dist.Normal(1.0 * state, 1.0), obs=row[0])
        return state, None

    scan(step, 0, (y, jnp.arange(4) < 2))


def looked_at(y):
    """What only a run has decides of what is computed: the model is evaluated step by step."""
    with numpyro.plate("rows", 4):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).mask(SEEN))
        if float(x[0]) > 1e6:
            x = x + 1.0
        numpyro.sample("y", dist.Normal(x, 1.0).mask(SEEN), obs=y)


def labels_in_part(y):
    with numpyro.plate("rows", 4):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3), obs=jnp.array([0, 1, 2, 1]), obs_mask=SEEN)
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)


def around_data_alone(y):
    with numpyro.plate("rows", 4):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0).mask(SEEN), obs=y)


def labels_by_a_factor(y):
    with numpyro.plate("rows", 4), handlers.mask(mask=False):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
    numpyro.factor("prior", -jnp.log(3.0) * jnp.isfinite(z).sum())
    numpyro.sample("y", dist.Normal(1.0 * z, 1.0).to_event(1), obs=y)


def labels_read_together(y):
    """Of two indicators each is read where the other one is on."""
    with handlers.mask(mask=False):
        a = numpyro.sample("a", dist.Bernoulli(0.5))
        b = numpyro.sample("b", dist.Bernoulli(0.5))
    numpyro.factor("prior", -jnp.log(4.0))
    numpyro.sample("y", dist.Normal(1.0 * a * b, 1.0).expand([4]).to_event(1), obs=y)


def counts_of_unlike_totals(y):
    counts = numpyro.sample("counts", dist.Binomial(jnp.array([2, 3]), 0.5).to_event(1))
    numpyro.sample("y", dist.Normal(1.0 * counts.sum(), 1.0).expand([4]).to_event(1), obs=y)


INFINITE = {
    "missing": (missing, r"3 of 4 entries of the latent site 'y_unobserved'.*sample\('y', fn\.mask\(seen\)"),
    "looked at": (looked_at, "1 of 4 entries of the latent site 'x' .*a prior for alone"),
    "padded": (padded, "2 of 8 entries of the latent site 'z' .*a prior for alone"),
    "padded events": (padded_events, "2 of 8 entries of the latent site 'z' .*a prior for alone"),
    "around a discrete site and data": (around_both, "count all 3 values .* 1 of 4 entries of .* 'z' .*alone, fn.mask"),
    "a padded chain": (padded_chain, "count all 3 values .* 2 of 4 entries of the discrete latent site 'state'"),
    "labels in part": (labels_in_part, "count all 3 values .* 3 of 4 .* 'z_unobserved' .* a site each"),
    "below a bound": (of_support(dist.RightTruncatedDistribution(dist.Normal(0.0, 1.0), high=0.0)), "1 of 1 .* 'z'"),
    "a matrix": (of_support(dist.Wishart(3.0, jnp.eye(2))), "4 of 4 entries of the latent site 'z'"),
    "half read": (half_read, "3 of 3 entries of the latent site 'z' .*no other site depends on 1 of them"),
    "read outside its support": (read_outside_its_support, "1 of 1 entry of the latent site 'b'"),
    "read at some draws": (read_where_another_is_large, "1 of 1 entry of the latent site 'z'"),
}


@pytest.mark.parametrize("name", INFINITE)
def test_entries_of_which_nothing_is_known_are_refused(name):
    model, words = INFINITE[name]
    with pytest.raises(SymmetryError, match=words):
        refuse_without_prior(model, (Y,), {}, trace_model(model, (Y,), {}, jax.random.key(0)))


@pytest.mark.parametrize(
    "model",
    [
        by_a_factor,
        seen_all_the_same,
        whole,
        bounded,
        seen_far_away,
        partial(seen_on_one_side, 1.0),
        partial(seen_on_one_side, -1.0),
        transformed,
        around_data_alone,
        labels_by_a_factor,
        labels_read_together,
        counts_of_unlike_totals,
    ],
)
def test_entries_that_have_an_integral_are_not(model):
    for key in range(3):
        refuse_without_prior(model, (Y,), {}, trace_model(model, (Y,), {}, jax.random.key(key)))


def padded_steps(y, read="no"):
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    if read != "no":
        some = jnp.where(SEEN, 0.0, z) if read == "by a factor" else jnp.where(jnp.where(SEEN, 0.0, z) > 1e3, 1.0, 0.0)
        numpyro.factor("more", -0.5 * jnp.sum(some**2))


def padded_guide(y, read="no"):
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        numpyro.sample("z", dist.Normal(0.5 * y, math.sqrt(0.5)))


def fixed_place(y, at=2.0):
    z = numpyro.sample("z", dist.Delta(jnp.array(2.0)))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(b + z, 1.0), obs=y[0])


def fixed_guide(y, at=2.0):
    numpyro.sample("z", dist.Delta(jnp.array(at)))
    numpyro.sample("b", dist.Normal(0.5 * (y[0] - 2.0), math.sqrt(0.5)))


def bounds_by_hand(model, guide, *args):
    return AutoSymmetrized(guide, Symmetry({}), model=model).elbo_bounds(jax.random.key(0), {}, *args, num_particles=8)


def padded_pairs(y):
    """Two sites under one mask, of which the second follows the first where both are left out too."""
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        x = numpyro.sample("x", dist.Normal(z, 1.0))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def guide_of_pairs(y):
    with numpyro.plate("rows", 4), handlers.mask(mask=SEEN):
        z = numpyro.sample("z", dist.Normal(y / 3.0, math.sqrt(2.0 / 3.0)))
        numpyro.sample("x", dist.Normal(0.5 * (z + y), math.sqrt(0.5)))


EXACT = {
    "one site": (padded_steps, padded_guide, norm.logpdf(Y[SEEN], scale=math.sqrt(2.0)).sum()),
    "two sites": (padded_pairs, guide_of_pairs, norm.logpdf(Y[SEEN], scale=math.sqrt(3.0)).sum()),
    "a point": (fixed_place, fixed_guide, norm.logpdf(Y[0], loc=2.0, scale=math.sqrt(2.0))),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_model_and_guide_both_leave_out_has_no_part_in_the_evidence(name):
    """Of exact posteriors each draw is worth the evidence: of the rows that are there, and at the model's own point."""
    model, guide, expected = EXACT[name]
    assert bounds_by_hand(model, guide, Y).importance_weighted == pytest.approx(expected, abs=1e-4)
    found = log_evidence((guide, {}), model, (Y,), symmetry=Symmetry({}), num_draws=8, progress_bar=False)
    assert found.value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("read", ["by a factor", "far away"])
def test_what_both_leave_out_and_something_reads_is_refused(read):
    with pytest.raises(UnsupportedGuideError, match="'z': a mask leaves 1 of 4 entries .* padded"):
        bounds_by_hand(padded_steps, padded_guide, Y, read)
    with pytest.raises(UnsupportedGuideError, match="'z': a mask leaves 1 of 4 entries .* padded"):
        log_evidence((padded_guide, {}), padded_steps, (Y, read), symmetry=Symmetry({}), progress_bar=False)


def rows_that_are_seen(y, seen):
    with numpyro.plate("rows", 4):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(seen))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def guide_of_rows(y, seen):
    with numpyro.plate("rows", 4):
        numpyro.sample("z", dist.Normal(0.5 * y, math.sqrt(0.5)).mask(seen))


def test_a_program_that_is_kept_is_asked_anew_of_other_masks():
    """With the first mask all is exact; with another of its shape a row has a likelihood, and no density of its own."""
    guide, everything = AutoSymmetrized(guide_of_rows, Symmetry({}), model=rows_that_are_seen), np.ones(4, bool)
    expected = norm.logpdf(Y, scale=math.sqrt(2.0)).sum()
    for seen in (everything, SEEN, everything):
        if seen is SEEN:
            with pytest.raises(UnsupportedGuideError, match="'z': a mask leaves 1 of 4 entries"):
                guide.elbo_bounds(jax.random.key(0), {}, Y, seen, num_particles=8)
        else:
            found = guide.elbo_bounds(jax.random.key(0), {}, Y, seen, num_particles=8)
            assert found.importance_weighted == pytest.approx(expected, abs=1e-4)


def padded_rows(y, seen):
    with handlers.mask(mask=seen):
        rows_that_are_seen(y, seen)


def test_the_evidence_is_asked_of_its_own_masks_and_not_of_those_at_set_up():
    guide, everything = AutoSymmetrized(guide_of_rows, Symmetry({}), model=padded_rows), np.ones(4, bool)
    guide.setup(jax.random.key(0), Y, everything)
    found = log_evidence((guide, {}), model_args=(Y, SEEN), num_draws=8, progress_bar=False)
    assert found.value == pytest.approx(norm.logpdf(Y[SEEN], scale=math.sqrt(2.0)).sum(), abs=1e-4)
    guide = AutoSymmetrized(AutoNormal(padded_rows), Symmetry({})).setup(jax.random.key(0), Y, everything)
    params = {"z_auto_loc": jnp.zeros(4), "z_auto_scale": jnp.ones(4)}
    with pytest.raises(SymmetryError, match="The evidence is infinite: a mask leaves 1 of 4 entries"):
        log_evidence((guide, params), model_args=(Y, SEEN), progress_bar=False)


def rows_that_read_what_is_hidden(y, seen):
    with numpyro.plate("rows", 4), handlers.mask(mask=seen):
        z = numpyro.sample("z", dist.Normal(0.0 * y, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.parametrize("model", [padded_rows, rows_that_read_what_is_hidden])
def test_guide_and_model_may_read_what_is_no_number_behind_their_mask(model):
    """Of an exact posterior each draw is worth the evidence of the rows that are there, in bounds and estimate."""
    hidden = np.where(SEEN, Y, np.nan)
    guide = AutoSymmetrized(guide_of_rows, Symmetry({}), model=model)
    bounds = guide.elbo_bounds(jax.random.key(0), {}, hidden, SEEN, num_particles=8)
    found = log_evidence((guide, {}), model_args=(hidden, SEEN), num_draws=8, progress_bar=False)
    expected = norm.logpdf(Y[SEEN], scale=math.sqrt(2.0)).sum()
    assert [bounds.importance_weighted, found.value] == pytest.approx([expected] * 2, abs=1e-4)


def rows_that_may_be_read(y, is_read):
    with numpyro.plate("rows", 4):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(SEEN))
        numpyro.sample("y", dist.Normal(jnp.where(SEEN | is_read, z, 0.0), 1.0), obs=y)


def guide_of_seen_rows(y, is_read):
    guide_of_rows(y, SEEN)


def test_a_program_that_is_kept_is_asked_anew_of_data_that_say_what_is_read():
    """The same masks leave out what the first data read nowhere, and others do."""
    guide = AutoSymmetrized(guide_of_seen_rows, Symmetry({}), model=rows_that_may_be_read)
    guide.elbo_bounds(jax.random.key(0), {}, Y, np.array(False), num_particles=8)
    with pytest.raises(UnsupportedGuideError, match="'z': a mask leaves 1 of 4 entries"):
        guide.elbo_bounds(jax.random.key(0), {}, Y, np.array(True), num_particles=8)


def test_masked_entries_of_other_data_are_tried_by_the_same_program():
    """Data are no constants of it: as such they are sorted, say, while it is compiled, which takes much longer."""

    def sorted_rows(y):
        with numpyro.plate("rows", 4):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(SEEN))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=jnp.sort(y))

    compilations = list[str]()

    def heard(event, *_, **__):
        compilations.append(event) if event.endswith("backend_compile_duration") else None

    def ask(y):
        refuse_without_prior(sorted_rows, (y,), {}, trace_model(sorted_rows, (y,), {}, jax.random.key(0)))

    ask(Y)
    jax.monitoring.register_event_duration_secs_listener(heard)
    try:
        ask(Y + 1.0)
    finally:
        jax.monitoring.unregister_event_duration_listener(heard)
    assert not compilations


def test_a_model_runs_as_often_however_many_entries_are_masked():
    """Entries are tried one by one by a program of the model, and not by the model."""

    def runs(num_masked):
        count = itertools.count()

        def model(y):
            next(count)
            with numpyro.plate("rows", 8):
                z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(jnp.arange(8) >= num_masked))
                numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

        y = np.ones(8)
        refuse_without_prior(model, (y,), {}, trace_model(model, (y,), {}, jax.random.key(0)))
        return next(count)

    assert runs(2) == runs(8)


def test_a_point_of_the_guide_that_is_not_the_models_is_refused():
    with pytest.raises(SymmetryError, match="site 'z' of the model has log probability -inf"):
        bounds_by_hand(fixed_place, fixed_guide, Y, 1.0)


def test_neither_bounds_nor_the_evidence_are_given():
    guide = AutoSymmetrized(AutoNormal(missing))
    guide.setup(jax.random.key(0), Y)
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(Y)
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    for evidence in (
        lambda: guide.elbo_bounds(jax.random.key(0), params, Y, progress_bar=False),
        lambda: log_evidence((guide, params), missing, (Y,), progress_bar=False),
    ):
        with pytest.raises(SymmetryError, match="evidence is infinite"):
            evidence()
