"""Two mean-field fits of one Bayesian network, the loss barrier between them, and what alignment leaves of it.

python examples/align_guides.py [--mnist PATH] [--output align_guides.png]

Fits the network twice from different keys by stock SVI, at several widths; matches one fit to the other, by means alone
and by means and standard deviations; prints the marginalised barrier along the Wasserstein geodesic before and after,
and draws it. Uses 1797 digits of 8 x 8 pixels that ship with the package, or MNIST (an npz of x_train, y_train, x_test,
y_test) if its path is given. Set NUMPYRO_SYMMETRY_SHORT=1 for a few steps only.
"""

import argparse
import gzip
import os
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from tqdm import tqdm

from numpyro_symmetry import DiagonalGaussian, Symmetry, loss_barrier, match, num_transpositions
from numpyro_symmetry.diagnostics import LossBarrier
from numpyro_symmetry.diagnostics import plot_barrier as plot
from numpyro_symmetry.matching import Match

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
SYMMETRY = Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", "b3")])
BATCH = 128


class Data(NamedTuple):
    """Images as rows of numbers around one, and labels."""

    x: jax.Array
    y: jax.Array
    test_x: jax.Array
    test_y: jax.Array


def digits() -> Data:
    text = gzip.decompress((files("numpyro_symmetry") / "data" / "digits.csv.gz").read_bytes()).decode()
    rows = np.loadtxt(text.splitlines(), delimiter=",", skiprows=1)
    rows = np.random.default_rng(0).permutation(rows)
    x, y = jnp.asarray(rows[:, :-1] / 8.0, jnp.float32), jnp.asarray(rows[:, -1], int)
    return Data(x[397:], y[397:], x[:397], y[:397])


def mnist(path: Path) -> Data:
    with np.load(path) as arrays:
        parts = {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    x, test_x = (jnp.asarray(parts[name].reshape(-1, 784) / 127.5, jnp.float32) for name in ("x_train", "x_test"))
    return Data(x, jnp.asarray(parts["y_train"], int), test_x, jnp.asarray(parts["y_test"], int))


def logits(values, x):
    for layer in (1, 2):
        x = jax.nn.relu(x @ values[f"w{layer}"] + values[f"b{layer}"])
    return x @ values["w3"] + values["b3"]


def network(x, y, *, widths, num_data):
    values = {}
    for layer, (fan_in, fan_out) in enumerate(zip(widths, widths[1:], strict=False), 1):
        for name, shape, scale in ((f"w{layer}", (fan_in, fan_out), fan_in**-0.5), (f"b{layer}", (fan_out,), 1.0)):
            values[name] = numpyro.sample(name, dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))
    with numpyro.plate("data", num_data, subsample_size=len(x)):
        numpyro.sample("y", dist.Categorical(logits=logits(values, x)), obs=y)


def fit_two(data: Data, width: int, steps: int) -> list[DiagonalGaussian]:
    """Two fits that share nothing but model and data."""

    def model(x, y):
        network(x, y, widths=(data.x.shape[1], width, width, 10), num_data=len(data.x))

    guide = AutoNormal(model, init_scale=0.02)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(3e-3, steps)), Trace_ELBO())

    def step(state, key):
        rows = jax.random.choice(key, len(data.x), (BATCH,))
        return svi.update(state, data.x[rows], data.y[rows])

    train = jax.jit(lambda state, key: jax.lax.scan(step, state, jax.random.split(key, steps))[0])
    # an autoguide keeps the values it was set up with: two starts must be given to it
    starts = Predictive(model, num_samples=2)(jax.random.key(0), data.x[:BATCH], None)
    fits = []
    for seed in (0, 1):
        key_init, key_train = jax.random.split(jax.random.key(seed))
        start = {f"{site}_auto_loc": value[seed] for site, value in starts.items() if site != "y"}
        state = train(svi.init(key_init, data.x[:BATCH], data.y[:BATCH], init_params=start), key_train)
        fits.append(DiagonalGaussian.from_guide(guide, svi.get_params(state)))
    return fits


class Row(NamedTuple):
    """What one width showed."""

    before: LossBarrier
    means: LossBarrier
    both: LossBarrier
    found: Match


def compare(data: Data, width: int, steps: int, num_draws: int) -> Row:
    a, b = fit_two(data, width, steps)
    bound = SYMMETRY.bind(a.loc)

    def loss(values):
        return -jax.nn.log_softmax(logits(values, data.test_x))[jnp.arange(len(data.test_y)), data.test_y]

    def barrier(other):
        return loss_barrier(loss, a, other, num_points=9, num_draws=num_draws)

    means, both = match(a, b, SYMMETRY, cost="euclidean"), match(a, b, SYMMETRY)
    moved = [b.apply(bound, found.element) for found in (means, both)]
    return Row(barrier(b), *map(barrier, moved), both)


def main() -> None:
    parser = argparse.ArgumentParser(description="Align two mean-field fits and measure the barrier between them.")
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--output", type=Path, default=Path("align_guides.png"))
    options = parser.parse_args()
    data = mnist(options.mnist) if options.mnist else digits()
    widths, steps, num_draws = ([8], 20, 4) if SHORT else ([16, 64, 256], 3000, 64)

    rows = {width: compare(data, width, steps, num_draws) for width in tqdm(widths, desc="fitting each width twice")}

    print(f"\nTwo mean-field fits of an MLP with two hidden layers on {len(data.x)} digits\n")
    print("Marginalised barrier on held-out digits, nats per digit\n")
    names = ("as they are", "means aligned", "means and stds")
    print(f"{'units':>5} {' '.join(f'{name:>17}' for name in names)} {'lower by':>9}  transpositions")
    for width, row in rows.items():
        cells = [f"{b.barrier:8.4f} ± {b.error:.4f}" for b in (row.before, row.means, row.both)]
        lower = 1.0 - row.both.barrier / row.before.barrier if row.before.barrier else 0.0
        moved = {name: int(count) for name, count in num_transpositions(row.found.element).items()}
        random = width - sum(1 / k for k in range(1, width + 1))
        print(f"{width:5} {' '.join(cells)} {lower:9.0%}  {list(moved.values())} (random: {random:.0f})")

    plt.style.use("petroff10")
    figure, axes = plt.subplots(1, len(rows), figsize=(4 * len(rows), 4.2), layout="constrained", squeeze=False)
    for axis, (width, row) in zip(axes[0], rows.items(), strict=True):
        plot(dict(zip(names, row[:3], strict=True)), ax=axis)
        axis.set_title(f"{width} units a layer")
    for axis in axes[0, 1:]:
        axis.set_ylabel("")
    figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
