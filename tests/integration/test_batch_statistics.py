"""Two small convolutional networks with batch statistics, merged as the tutorial of networks says."""

import gzip
from importlib.resources import files

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from numpyro_symmetry import Symmetry, merge


class Network(nn.Module):
    momentum: float = 0.9

    @nn.compact
    def __call__(self, x, train=False):
        for width in (16, 32):
            x = nn.Conv(width, (3, 3), strides=2)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=self.momentum)(x))
        return nn.Dense(10)(x.mean((1, 2)))


def symmetry():
    axes = {"params.Dense_0.kernel": ("second", None)}
    for k, (before, group) in enumerate([(None, "first"), ("first", "second")]):
        axes[f"params.Conv_{k}.kernel"] = (None, None, before, group)
        vectors = [f"params.Conv_{k}.bias", *(f"params.BatchNorm_{k}.{name}" for name in ("scale", "bias"))]
        vectors += [f"batch_stats.BatchNorm_{k}.{name}" for name in ("mean", "var")]
        axes |= dict.fromkeys(vectors, (group,))
    return Symmetry(axes)


def trained(seed, x, y):
    net, optimizer = Network(), optax.adam(1e-2)
    values = net.init(jax.random.key(seed), x[:2])

    def step(carry, key):
        params, statistics, state = carry
        batch = jax.random.randint(key, (64,), 0, len(x))

        def loss(params):
            logits, new = net.apply({"params": params, **statistics}, x[batch], True, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y[batch]).mean(), dict(new)

        gradients, statistics = jax.grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state)
        return (optax.apply_updates(params, updates), statistics, state), None

    start = values["params"], {"batch_stats": values["batch_stats"]}, optimizer.init(values["params"])
    (params, statistics, _), _ = jax.jit(lambda key: jax.lax.scan(step, start, jax.random.split(key, 300)))(
        jax.random.key(seed + 10)
    )
    return {"params": params, **statistics}


@pytest.mark.slow
def test_statistics_computed_again_make_up_for_what_merging_loses():
    text = gzip.decompress((files("numpyro_symmetry") / "data" / "digits.csv.gz").read_bytes()).decode()
    rows = np.random.default_rng(0).permutation(np.loadtxt(text.splitlines(), delimiter=",", skiprows=1))
    x, y = jnp.asarray(rows[:, :-1].reshape(-1, 8, 8, 1) / 16, jnp.float32), jnp.asarray(rows[:, -1], int)
    networks = [trained(seed, x[:1200], y[:1200]) for seed in range(2)]

    def accuracy(values):
        return float((Network().apply(values, x[1200:]).argmax(-1) == y[1200:]).mean())

    def again(values):
        _, statistics = Network(momentum=0.0).apply(values, x[:1200], train=True, mutable=["batch_stats"])
        return {**values, **statistics}

    apart = jax.tree.map(lambda *values: sum(values) / 2, *networks)
    merged = merge(networks, symmetry()).merged
    # one standard error of an accuracy of .95 on 597 digits is .009
    assert min(map(accuracy, networks)) > 0.96
    assert accuracy(again(merged)) > accuracy(merged) - 0.009
    assert accuracy(again(merged)) > 0.95
    # without common labels statistics alone make up for little
    assert accuracy(again(apart)) < accuracy(again(merged)) - 0.1
