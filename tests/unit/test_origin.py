"""Bounds of two fits are subtracted only where they are of the same model and the same data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry
from numpyro_symmetry.guides.known import known_arguments, others_in
from numpyro_symmetry.guides.origin import Origin, fingerprint
from numpyro_symmetry.models import Model

X, Y = np.array([0.3, -1.0]), np.array([0.5, 1.5])


def regression(x, y, width=3, site="w"):
    w = numpyro.sample(site, dist.Normal(0.0, 1.0).expand([width]).to_event(1))
    numpyro.sample("y", dist.Normal(x * w.sum(), 1.0).to_event(1), obs=y)


def closed_over(y):
    return lambda x: regression(x, y)


def recentred(x, y):
    """A model whose observed values depend on its latent ones."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(0.0, 1.0).expand([2]).to_event(1), obs=y - x * w.sum())


def origin(*args, model=regression, key=0, **kwargs):
    """Of two draws, as a compiled program gives it."""

    @jax.jit
    def of(keys, args, kwargs):
        def one(key):
            trace = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
            return Origin.of(trace, args, kwargs)

        return jax.lax.map(one, keys)

    return jax.tree.map(np.asarray, of(jax.random.split(jax.random.key(key), 2), args, kwargs))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: origin(X, Y), lambda: origin(X, Y, key=1)),
        (lambda: origin(X, Y), lambda: origin(y=jnp.asarray(Y), x=X)),
        (lambda: origin(X, Y, model=recentred), lambda: origin(X, Y, key=1, model=recentred)),
    ],
    ids=["other draws", "by name and in single precision", "observed values that depend on the draw"],
)
def test_the_same_model_and_data_do_not_differ(one, other):
    assert one().difference(other()) is None


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (lambda: origin(X, Y), lambda: origin(X, Y + 1.0), "observed site 'y' holds other values"),
        (lambda: origin(X, Y), lambda: origin(X[::-1], Y), "the model's arguments hold other numbers"),
        (lambda: origin(X, Y), lambda: origin(X[:1], Y[:1]), "observed site 'y' holds other values"),
        (
            lambda: origin(X, model=closed_over(Y)),
            lambda: origin(X, model=closed_over(-Y)),
            "observed site 'y' holds other values",
        ),
        (
            lambda: origin(X, model=closed_over(Y)),
            lambda: origin(X, model=lambda x: regression(x, Y, 4)),
            "latent site 'w' is of shape (3,) and of shape (4,)",
        ),
        (
            lambda: origin(X, model=closed_over(Y)),
            lambda: origin(X, model=lambda x: regression(x, Y, 3, "v")),
            "latent site 'v' is missing and of shape (3,)",
        ),
        (
            lambda: origin(X, model=lambda x: None),
            lambda: origin(X, model=lambda x: numpyro.factor("y", x.sum())),
            "site 'y' is observed in one of them only",
        ),
    ],
    ids=["data", "covariates", "fewer data", "data in a closure", "width", "site", "observed"],
)
def test_what_differs_is_named(one, other, differs):
    assert one().difference(other()) == differs


def test_bounds_of_other_data_are_not_subtracted():
    guide = AutoSymmetrized(AutoNormal(regression), Symmetry({"w": ("unit",)}), check=False)
    guide.setup(jax.random.key(0), X, Y)
    params = {"w_auto_loc": jnp.zeros(3), "w_auto_scale": jnp.ones(3)}
    options = {"num_particles": 4, "progress_bar": False}
    # with one program for them all, which must not remember the data it was compiled for
    first, other, again = (guide.elbo_bounds(jax.random.key(0), params, X, y, **options) for y in (Y, -Y, Y))
    assert first.minus(again).base_elbo == 0.0
    with pytest.raises(ValueError, match="observed site 'y' holds other values.*same arguments"):
        first.minus(other)


def test_a_fingerprint_tells_numbers_places_and_shapes_apart():
    of = jax.jit(fingerprint)
    arrays = [np.zeros(0), np.zeros(4), np.zeros((2, 2)), np.arange(4.0), np.arange(4.0)[::-1], np.arange(4) * 1j]
    assert len({int(of(array)) for array in arrays}) == len(arrays)
    assert of(np.arange(4)) == of(np.arange(4.0, dtype=np.float32))
    # changing one number of a great many is seen
    rng = np.random.default_rng(0)
    many = rng.standard_normal(100_000).astype(np.float32)
    changed = many.copy()
    changed[rng.integers(len(many))] += 1e-3
    assert of(many) != of(changed)


def test_arguments_that_are_no_numbers_have_no_part_in_it():
    trace = handlers.trace(handlers.seed(regression, 0)).get_trace(X, Y)
    few, more = (Origin.of(trace, args, {}).arguments for args in ((X, Y), (X, "w", np.array(["a"]), len, Y)))
    assert few == more != Origin.of(trace, (X, Y, 0.0), {}).arguments


def test_what_cannot_be_written_down_equals_itself_alone():
    def known(activation):
        return known_arguments(Model(lambda x, activation: None, (X, activation), {}), numbers_too=True)

    first, second = (lambda x: x), (lambda x: x)
    assert others_in(known(first), known(first)) == others_in(known(np.tanh), known(np.tanh)) == []
    for one, other in ((first, second), (first, np.tanh), (np.tanh, first), (np.tanh, np.sin), (1, True)):
        assert others_in(known(one), known(other)) == ["activation"]
