"""A fit that orbax keeps, and another process takes up, ends in the bits of one that was never cut short."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, Symmetry

orbax = pytest.importorskip("orbax.checkpoint")
SYMMETRY = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
STEPS, ROWS, BATCH = 6, 24, 8
X = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
Y = np.sin(X[:, 0])


def network(x, y=None):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with numpyro.plate("data", ROWS, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal(jax.numpy.tanh(x @ w1) @ w2, 0.3), obs=y)


def mean_field():
    return AutoSymmetrized(AutoNormal(network), SYMMETRY, estimator="sequential")


def conditional():
    return AutoSymmetrized(AutoConditional(AutoNormal(network), inducing=4), SYMMETRY, estimator="sequential")


def trained(guide, folder, first=0):
    """Train, from the checkpoint of a step on; all that is not in the folder is made anew, as another process would."""
    svi = SVI(network, guide, optax.adam(optax.cosine_decay_schedule(1e-2, STEPS)), Trace_ELBO(2))
    state = svi.init(jax.random.PRNGKey(0), X[:BATCH], Y[:BATCH])
    # of the types that come back, so that both runs are of one program
    state = jax.tree.map(np.asarray, state)
    leaves, structure = jax.tree.flatten(state)
    update = jax.jit(svi.update)
    with orbax.CheckpointManager(folder.absolute()) as kept:
        if first:
            state = jax.tree.unflatten(structure, kept.restore(first, args=orbax.args.StandardRestore(leaves)))
        for step in range(first, STEPS):
            rows = np.random.default_rng(step).choice(ROWS, BATCH, replace=False)
            state, _ = update(state, X[rows], Y[rows])
            if step + 1 == STEPS // 2:
                kept.save(step + 1, args=orbax.args.StandardSave(jax.tree.leaves(state)))
    return svi.get_params(state)


@pytest.mark.parametrize("guide_of", [mean_field, conditional])
def test_what_is_taken_up_ends_in_the_same_bits(guide_of, tmp_path):
    whole = trained(guide_of(), tmp_path / "kept")
    taken_up = trained(guide_of(), tmp_path / "kept", STEPS // 2)
    assert taken_up.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(taken_up[name], value, err_msg=name)
