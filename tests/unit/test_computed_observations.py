"""What is observed may be computed from latent sites (``obs=y - a``): it moves with them, and is no data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import SymmetryError, check_symmetry, find_symmetry

Y = np.array([1.0, 2.0, 4.0])
X = np.random.default_rng(0).normal(size=(12, 3))


def draw(name="a", shape=(3,)):
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(list(shape)).to_event(len(shape)))


def residual(y):
    numpyro.sample("t", dist.Normal(jnp.zeros(3), 1.0).to_event(1), obs=y - draw())


def weighted(y):
    numpyro.sample("t", dist.Normal(jnp.zeros(3), 1.0).to_event(1), obs=draw() * jnp.array([1.0, 2.0, 5.0]))


def soft_constraint(y):
    a = draw()
    numpyro.sample("soft", dist.Normal(0.0, 0.1), obs=a[0] - 2.0 * a[1])
    numpyro.sample("y", dist.Normal(a.sum(), 1.0).expand([3]).to_event(1), obs=jnp.asarray(y))


def of_a_parameter(y):
    a = numpyro.param("a", jnp.zeros(3))
    numpyro.sample("t", dist.Normal(jnp.zeros(3), 1.0).to_event(1), obs=y - a)
    draw("b")


def looked_at(y):
    a = draw()
    if float(y.sum()) > 0:
        numpyro.sample("t", dist.Normal(jnp.zeros(3), 1.0).to_event(1), obs=jnp.asarray(y) - a)


def unmixing(x):
    w = draw("w", (3, 3))
    numpyro.sample("s", dist.Laplace(0.0, 1.0).expand([len(x), 3]).to_event(2), obs=x @ w.T)
    numpyro.factor("volume", len(x) * jnp.linalg.slogdet(w)[1])


def of_data(y):
    numpyro.sample("t", dist.Normal(draw().sum(), 1.0).expand([3]).to_event(1), obs=jnp.log(jnp.asarray(y)) * 2.0)


def symmetric(y):
    a = draw()
    numpyro.sample("t", dist.Normal(0.0, 1.0).expand([3]).to_event(1), obs=y - a.sum())


CASES = {
    residual: (Y, "trivial"),
    weighted: (Y, "±S1×±S1×±S1"),
    soft_constraint: (Y, "trivial"),
    of_a_parameter: (Y, "±S3"),
    looked_at: (Y, "trivial"),
    unmixing: (X, "±S3"),
    of_data: (Y, "S3"),
    symmetric: (Y, "S3"),
}


@pytest.mark.parametrize("model", CASES, ids=lambda model: model.__name__)
def test_only_what_leaves_the_log_joint_alone_is_found(model):
    data, expected = CASES[model]
    found = find_symmetry(model, (data,))
    assert str(found).split("(")[1].split(";")[0].split(" on ")[0] == expected
    assert not found.groups or check_symmetry(model, found, (data,), rng_key=jax.random.key(3)).status == "passed"


def test_what_is_computed_from_an_exchanged_site_is_seen_by_the_check():
    with pytest.raises(SymmetryError, match="'t'"):
        check_symmetry(residual, find_symmetry(of_data, (Y,)), (Y,))
