"""Alignment of mean-field fits of an MLP on MNIST: barriers before and after, by width, prior variance and temperature.

python -m tests.reproduction.rossi --data PATH [--widths 64 128 256 512]

Rossi et al. (2023, arXiv:2310.10171) at the size of a laptop: three hidden layers, two fits from different starts,
matched by means, and by means and standard deviations; marginalised barriers along the Wasserstein geodesic on training
and test images. PATH holds mnist.npz. Results go to tests/reproduction/results/rossi.json, and are not run again.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import DiagonalGaussian, Symmetry, loss_barrier, match, num_transpositions
from tests.reproduction import records

SYMMETRY = Symmetry.mlp([(f"w{layer}", f"b{layer}") for layer in (1, 2, 3, 4)])
BATCH = 128


def read_mnist(folder: Path):
    """Pixels around one, as rows, and labels."""
    with np.load(folder / "mnist.npz") as arrays:
        x, y, test_x, test_y = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    rows = [jnp.asarray(images.reshape(-1, 784) / 127.5, jnp.float32) for images in (x, test_x)]
    return rows[0], jnp.asarray(y, int), rows[1], jnp.asarray(test_y, int)


def logits(values, x):
    """Three ReLU layers."""
    for layer in (1, 2, 3):
        x = jax.nn.relu(x @ values[f"w{layer}"] + values[f"b{layer}"])
    return x @ values["w4"] + values["b4"]


def fit_two(x, y, width, prior_variance, temperature, steps):
    """Two fits that share nothing but model and data."""
    sizes = (x.shape[1], width, width, width, 10)

    def model(xb, yb):
        values = {}
        for layer, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:], strict=False), 1):
            spread = (prior_variance / fan_in) ** 0.5
            values[f"w{layer}"] = numpyro.sample(
                f"w{layer}", dist.Normal(0.0, spread).expand([fan_in, fan_out]).to_event(2)
            )
            values[f"b{layer}"] = numpyro.sample(
                f"b{layer}", dist.Normal(0.0, prior_variance**0.5).expand([fan_out]).to_event(1)
            )
        with numpyro.plate("data", len(x), subsample_size=BATCH), numpyro.handlers.scale(scale=1.0 / temperature):
            numpyro.sample("y", dist.Categorical(logits=logits(values, xb)), obs=yb)

    guide = AutoNormal(model, init_scale=0.02)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(2e-3, steps)), Trace_ELBO())

    def step(state, key):
        rows = jax.random.choice(key, len(x), (BATCH,))
        return svi.update(state, x[rows], y[rows])

    train = jax.jit(lambda state, key: jax.lax.scan(step, state, jax.random.split(key, steps))[0])
    # from starts of unit prior variance, so that the sweep changes the posterior and not where the search begins
    starts = Predictive(model, num_samples=2)(jax.random.key(0), x[:BATCH], None)
    fits = []
    for seed in (0, 1):
        key_init, key_train = jax.random.split(jax.random.key(seed))
        start = {f"{site}_auto_loc": value[seed] / prior_variance**0.5 for site, value in starts.items() if site != "y"}
        state = train(svi.init(key_init, x[:BATCH], y[:BATCH], init_params=start), key_train)
        fits.append(DiagonalGaussian.from_guide(guide, svi.get_params(state)))
    return fits


def run(data, width, prior_variance, temperature, *, steps, num_samples, num_images):
    """One setting: accuracies, barriers, transpositions and the time of matching."""
    x, y, test_x, test_y = data
    a, b = fit_two(x, y, width, prior_variance, temperature, steps)
    bound = SYMMETRY.bind(a.loc)
    result = {"width": width, "prior_variance": prior_variance, "temperature": temperature, "steps": steps}
    draws = a.sample(jax.random.key(3), (10,))
    mean = jax.nn.softmax(jax.lax.map(lambda v: logits(v, test_x), draws)).mean(0)
    result["test_accuracy"] = float((mean.argmax(-1) == test_y).mean())
    ends = {"before": b}
    for name, options in {
        "means": {"cost": "euclidean"},
        "means_and_stds": {},
        "kl": {"cost": "kl"},
        "descent": {"method": "descent"},
    }.items():
        start = time.perf_counter()
        found = match(a, b, SYMMETRY, **options)
        result[f"seconds_{name}"] = time.perf_counter() - start
        result[f"w2_squared_{name}"] = float(a.wasserstein(b.apply(bound, found.element)) ** 2)
        result[f"transpositions_{name}"] = {k: int(v) for k, v in num_transpositions(found.element).items()}
        ends[name] = b.apply(bound, found.element)
    del ends["descent"]
    result["w2_squared_before"] = float(a.wasserstein(b) ** 2)
    for part, images, labels in (("train", x, y), ("test", test_x, test_y)):
        images, labels = images[:num_images], labels[:num_images]

        def loss(values, images=images, labels=labels):
            return -jax.nn.log_softmax(logits(values, images))[jnp.arange(len(labels)), labels]

        for name, end in ends.items():
            barrier = loss_barrier(loss, a, end, num_points=9, num_draws=num_samples)
            result[f"barrier_{part}_{name}"] = [barrier.barrier, barrier.error]
            result[f"loss_{part}_{name}"] = [round(float(value), 5) for value in barrier.loss]
    return result


def main():
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--widths", type=int, nargs="*", default=[64, 128, 256, 512])
    parser.add_argument("--sweep-width", type=int, default=128)
    parser.add_argument("--prior-variances", type=float, nargs="*", default=[0.1, 10.0])
    parser.add_argument("--temperatures", type=float, nargs="*", default=[0.1, 0.01])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--num-samples", type=int, default=32)
    parser.add_argument("--num-images", type=int, default=2000)
    options = parser.parse_args()
    settings = [(width, 1.0, 1.0) for width in options.widths]
    settings += [(options.sweep_width, variance, 1.0) for variance in options.prior_variances]
    settings += [(options.sweep_width, 1.0, temperature) for temperature in options.temperatures]
    data = read_mnist(options.data)
    sizes = {"steps": options.steps, "num_samples": options.num_samples, "num_images": options.num_images}
    records.run("rossi", {"/".join(map(str, setting)): partial(run, data, *setting, **sizes) for setting in settings})


if __name__ == "__main__":
    main()
