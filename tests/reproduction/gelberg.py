"""Gelberg et al. (2024, arXiv:2408.05496): mode-seeking, identities, the network of two weights, MNIST.

    python -m tests.reproduction.gelberg [--only identities threshold two_weights start mnist] [--data PATH]

UCI regression is `tests.reproduction.uci`. PATH holds mnist.npz. Results go to
tests/reproduction/results/gelberg.json and are not run again.
"""

from __future__ import annotations

import argparse
import itertools
import math
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_sample, init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoNormal
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from numpyro_symmetry import AutoSymmetrized, Symmetry, check_symmetry, mutual_information, testing
from numpyro_symmetry.matching import nearest_transposition
from tests.reproduction import records

SEEDS = range(10)


# ---- Theorems 3.1, 4.1 and 4.3 -----------------------------------------------------------------------------------


def information(width: int, spread: float, estimator: str, K: int, draws: int = 20_000) -> tuple[float, float]:
    """I of a mean-field Gaussian over ``width`` units of three weights, and its Monte Carlo error."""
    rng = np.random.default_rng(width)
    loc, scale = spread * rng.normal(size=(width, 3)), rng.uniform(0.3, 0.6, (width, 3))
    units = loc + scale * rng.normal(size=(draws, width, 3))
    table = -0.5 * (((units[:, None] - loc[:, None]) / scale[:, None]) ** 2).sum(-1) - np.log(scale).sum(-1)[:, None]
    values = np.asarray(
        mutual_information(jnp.asarray(table), estimator=estimator, num_permutations=K, rng_key=jax.random.key(K)),
        float,
    )
    return float(values.mean()), float(values.std(ddof=1) / draws**0.5)


@jax.enable_x64(True)
def theorem_4_1(width: int, spread: float) -> dict[str, Any]:
    """H[q^G] - H[q] by enumerating the group, against the exact estimator on the same draws."""
    rng = np.random.default_rng(width)
    loc, scale = spread * rng.normal(size=(width, 3)), rng.uniform(0.3, 0.6, (width, 3))
    units = loc + scale * rng.normal(size=(20_000, width, 3))

    def log_q(moved):
        return (-0.5 * ((moved - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)).sum((-2, -1))

    copies = np.stack([log_q(units[:, list(p)]) for p in itertools.permutations(range(width))])
    gain = log_q(units) - (logsumexp(copies, 0) - math.lgamma(width + 1))
    exact, _ = information(width, spread, "exact", 1)
    return {"entropy_gain": float(gain.mean()), "information": exact, "log_order": math.lgamma(width + 1)}


def theorem_4_3(width: int, spread: float) -> dict[str, Any]:
    """InfoNCE for growing K, the sequential bound, and the exact value, with Monte Carlo errors."""
    counts = (2, 3, 5, 10, 50, 200)
    found = {str(K): information(width, spread, "infonce", K) for K in counts}
    return {
        "infonce": found,
        "sequential": information(width, spread, "sequential", 1),
        "exact": information(width, spread, "exact", 1),
    }


def theorem_3_1(inputs: int, width: int, outputs: int) -> dict[str, Any]:
    """Distance to the nearest copy over the norm, for standard normal weights, beside the two bounds."""
    rng, symmetry = np.random.default_rng(0), Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    values = {
        "w1": rng.normal(size=(inputs, width)),
        "b1": rng.normal(size=width),
        "w2": rng.normal(size=(width, outputs)),
        "b2": np.zeros(outputs),
    }
    norm = math.sqrt(sum((v**2).sum() for v in values.values()))
    size = inputs * width + width + width * outputs + outputs
    return {
        "relative_distance": nearest_transposition(values, symmetry)["hidden"].distance / norm,
        "our_bound": 2 / math.sqrt(width - 1),
        "packing_bound": 2 * size / math.lgamma(width + 1),
        "printed_bound": 2 * (inputs + outputs + 1 + 1 / width) / math.log(width / 2),
    }


def invariance(hidden: tuple[int, ...]) -> dict[str, Any]:
    """Whether outputs, prior and likelihood stay the same under random relabellings."""
    posterior = testing.tiny_network(hidden=hidden)
    check = check_symmetry(posterior.model, posterior.symmetry, posterior.model_args)
    return {"status": check.status, "gap": check.largest_gap, "tolerance": check.tolerance}


# ---- Section 3: where a unimodal guide settles -------------------------------------------------------------------


def kl(parameters, separation: float) -> float:
    """KL of N(m, s²) from the even mixture of N(0, 1) and N(separation, 1), by quadrature."""
    m, log_s = parameters
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    x = m + math.exp(log_s) * nodes
    log_p = np.logaddexp(-0.5 * x**2, -0.5 * (x - separation) ** 2) - math.log(2) - 0.5 * math.log(2 * math.pi)
    entropy = 0.5 * math.log(2 * math.pi * math.e) + log_s
    return float(-entropy - (weights / weights.sum()) @ log_p)


def settle(separation: float, start: tuple[float, float]) -> dict[str, float]:
    """Local minimum of the divergence that is reached from a start."""
    bounds = [(None, None), (-3.0, 3.0)]
    found = minimize(kl, start, (separation,), "L-BFGS-B", bounds=bounds, options={"gtol": 1e-9, "ftol": 1e-15})
    return {"location": float(found.x[0]) / separation, "variance": math.exp(2 * found.x[1]), "kl": float(found.fun)}


def threshold() -> dict[str, Any]:
    """Separations at which a minimum away from the middle appears, and at which it becomes the best."""

    def away(separation: float) -> bool:
        return abs(settle(separation, (0.0, 0.0))["location"] - 0.5) > 0.05

    low, high = 4.5, 5.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if away(middle) else (middle, high)

    def advantage(separation: float) -> float:
        middle = settle(separation, (separation / 2, math.log(separation / 2)))
        return settle(separation, (0.0, 0.0))["kl"] - middle["kl"]

    return {
        "appears": (low + high) / 2,
        "best": brentq(advantage, 5.0, 6.5, xtol=1e-4),
        "far": settle(10.0, (0.0, 0.0)),
        "table": {str(a): settle(a, (0.0, 0.0)) for a in (1, 2, 3, 4, 4.5, 4.8, 4.9, 5, 6, 10)},
        "from_the_middle": {str(a): settle(a, (a / 2, math.log(a / 2))) for a in (5, 6, 10)},
    }


def by_svi(scale: float, dim: int, ratio: float) -> dict[str, Any]:
    """The same by stock SVI from a mode in ``dim`` dimensions: 1000 steps of Adam, 5000 draws each."""
    other = jnp.zeros(dim).at[0].set(ratio * scale)

    def model():
        modes = dist.Normal(jnp.stack([jnp.zeros(dim), other]), scale).to_event(1)
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(probs=jnp.ones(2) / 2), modes))

    guide = AutoDiagonalNormal(model, init_loc_fn=init_to_value(values={"x": jnp.zeros(dim)}), init_scale=scale)
    # a distance is a number of standard deviations, so steps are too
    svi = SVI(model, guide, optax.adam(1e-2 * scale), Trace_ELBO(num_particles=5000))
    params = svi.run(jax.random.key(0), 1000, progress_bar=False).params
    return {"location": float(jnp.linalg.norm(params["auto_loc"]) / (ratio * scale))}


# ---- Section 5.1: a network of two weights -----------------------------------------------------------------------


def two_weights(slope: float, estimator: str) -> dict[str, Any]:
    """Evidence bounds of fits from ten starts, all scored as symmetrized guides, beside the exact log evidence."""
    posterior = testing.two_weight_network(slope=slope)
    base = AutoNormal(posterior.model, init_loc_fn=init_to_sample, init_scale=0.1)
    judge = AutoSymmetrized(base, posterior.symmetry, estimator="exact")
    options = {"num_permutations": 2} if estimator == "infonce" else {}
    guide = base if estimator == "bare" else AutoSymmetrized(base, posterior.symmetry, estimator=estimator, **options)
    svi = SVI(posterior.model, guide, optax.adam(optax.cosine_decay_schedule(1e-2, 3000)), Trace_ELBO(10))
    template = svi.init(jax.random.key(0), *posterior.model_args)

    @jax.jit
    @jax.vmap
    def fit(key):
        params = dict(svi.optim.get_params(template.optim_state)) | {"w_auto_loc": jax.random.normal(key, (2,))}
        state = template._replace(optim_state=svi.optim.init(params), rng_key=jax.random.fold_in(key, 1))
        state, _ = jax.lax.scan(lambda state, _: svi.update(state, *posterior.model_args), state, length=3000)
        return svi.get_params(state)

    fits = fit(jax.random.split(jax.random.key(0), len(SEEDS)))
    rows = []
    for seed in SEEDS:
        params = {name: value[seed] for name, value in fits.items()}
        bounds = judge.elbo_bounds(jax.random.key(100), params, *posterior.model_args, num_particles=4096)
        rows.append(
            {
                "evidence": bounds.lower,
                "error": bounds.lower_error,
                "base_elbo": bounds.base_elbo,
                "information": bounds.mutual_information[0],
                "loc": np.sort(np.asarray(params["w_auto_loc"])).tolist(),
            }
        )
    return {"log_evidence": posterior.log_evidence, "fits": rows}


# ---- Section 5.2: MNIST ------------------------------------------------------------------------------------------


@lru_cache
def mnist(folder: Path):
    """Pixels from zero to one, as rows, and labels."""
    with np.load(folder / "mnist.npz") as arrays:
        x, y, test_x, test_y = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    rows = [jnp.asarray(images.reshape(-1, 784) / 255, jnp.float32) for images in (x, test_x)]
    return rows[0], jnp.asarray(y, jnp.int32), rows[1], jnp.asarray(test_y, jnp.int32)


def logits(values, x):
    """One ReLU layer."""
    return jax.nn.relu(x @ values["w1"] + values["b1"]) @ values["w2"] + values["b2"]


def network(x, y, *, width: int, size: int):
    """Standard normal weights; ``size`` images in all, of which a batch is given."""
    shapes = {"w1": (784, width), "b1": (width,), "w2": (width, 10), "b2": (10,)}
    values = {s: numpyro.sample(s, dist.Normal().expand(shape).to_event(len(shape))) for s, shape in shapes.items()}
    with numpyro.plate("image", size, subsample_size=len(x)):
        numpyro.sample("y", dist.Categorical(logits=logits(values, x)), obs=y)


def classify(folder: Path, width: int, method: str, scale: float, epochs: int) -> dict[str, Any]:
    """Fits from ten starts: every method from the same ones, with the same order of images, and scored alike."""
    x, y, test_x, test_y = mnist(folder)
    size, batch = len(x), 100
    model = partial(network, width=width, size=size)
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    shapes = {"w1": (784, width), "b1": (width,), "w2": (width, 10), "b2": (10,)}
    fan_in = {"w1": 784, "b1": 784, "w2": width, "b2": width}
    zeros = {site: jnp.zeros(shape) for site, shape in shapes.items()}
    base = AutoNormal(model, init_loc_fn=init_to_value(values=zeros), init_scale=scale)
    judge = AutoSymmetrized(base, symmetry, check=False)
    if method == "bare":
        guide = base
    elif method.startswith("infonce"):
        K = int(method[len("infonce") :])
        guide = AutoSymmetrized(base, symmetry, estimator="infonce", num_permutations=K, check=False)
    else:
        guide = AutoSymmetrized(base, symmetry, estimator=method, check=False)
    svi = SVI(model, guide, optax.adam(1e-3), Trace_ELBO())
    template = svi.init(jax.random.key(0), x[:batch], y[:batch])
    # the same arrays every time, so that what bounds them is compiled once
    some = x[:batch], y[:batch]
    judge.setup(jax.random.key(0), *some)

    @jax.jit
    def begin(seed):
        key_init, key_start, _ = jax.random.split(jax.random.key(seed), 3)
        params = dict(svi.optim.get_params(template.optim_state))
        for site, key in zip(shapes, jax.random.split(key_start, 4), strict=True):
            uniform = jax.random.uniform(key, shapes[site], minval=-1, maxval=1)
            params[f"{site}_auto_loc"] = uniform / math.sqrt(fan_in[site])
        return template._replace(optim_state=svi.optim.init(params), rng_key=key_init)

    @jax.jit
    def epoch(state, key, x, y):
        rows = jax.random.permutation(key, size).reshape(-1, batch)
        return jax.lax.scan(lambda state, row: svi.update(state, x[row], y[row]), state, rows)

    @jax.jit
    def score(params, x, y, test_x, test_y):
        draws = base.sample_posterior(jax.random.key(1), params, sample_shape=(30,))
        mean = jax.lax.map(lambda values: jax.nn.softmax(logits(values, test_x)), draws).mean(0)

        def log_likelihood(values):
            return jax.nn.log_softmax(logits(values, x))[jnp.arange(len(y)), y].sum()

        divergence = sum(
            (0.5 * (s**2 + m**2 - 1) - jnp.log(s)).sum()
            for m, s in ((params[f"{site}_auto_loc"], params[f"{site}_auto_scale"]) for site in shapes)
        )
        fit = jax.lax.map(log_likelihood, draws).mean() * (size / len(y))
        return {
            "accuracy": (mean.argmax(-1) == test_y).mean(),
            "test_log_likelihood": jnp.log(mean[jnp.arange(len(test_y)), test_y]).mean(),
            "base_elbo": fit - divergence,
        }

    fits = []
    for seed in SEEDS:
        state = begin(seed)
        for key in jax.random.split(jax.random.split(jax.random.key(seed), 3)[2], epochs):
            state, _ = epoch(state, key, x, y)
        params = svi.get_params(state)
        # the evidence is estimated on a sixth of the images
        found = score(params, x[:10_000], y[:10_000], test_x, test_y)
        bounds = judge.elbo_bounds(jax.random.key(2), params, *some, num_particles=16)
        fits.append(
            {name: float(value) for name, value in found.items()} | {"information": bounds.mutual_information[0]}
        )
    return {"log_order": bounds.log_order, "fits": fits}


def bound_at_the_start(width: int) -> dict[str, Any]:
    """The sequential bound before training, by the number of inputs that it looks at; I is log|G| there."""
    symmetry = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    shapes = {"w1": (784, width), "b1": (width,), "w2": (width, 10), "b2": (10,)}
    fan_in = {"w1": 784, "b1": 784, "w2": width, "b2": width}
    keys = dict(zip(shapes, jax.random.split(jax.random.key(0), 4), strict=True))

    def model():
        for site, shape in shapes.items():
            numpyro.sample(site, dist.Normal().expand(shape).to_event(len(shape)))

    start = {s: jax.random.uniform(keys[s], shapes[s], minval=-1, maxval=1) / math.sqrt(fan_in[s]) for s in shapes}
    base = AutoNormal(model, init_loc_fn=init_to_value(values=start), init_scale=0.05)
    elbo, found = Trace_ELBO(num_particles=8), {}
    for count in (16, 64, 128, 256, None):
        guide = AutoSymmetrized(base, symmetry, model=model, estimator="sequential", max_features=count, check=False)
        svi = SVI(model, guide, optax.adam(1e-3), elbo)
        params = svi.get_params(svi.init(jax.random.key(1)))
        # the same draws with and without the correction
        losses = [elbo.loss(jax.random.key(2), params, model, g) for g in (base, guide)]
        found[str(count or "all")] = float(losses[0] - losses[1])
    return {"log_order": math.lgamma(width + 1), "by_features": found}


def mnist_jobs(folder: Path) -> dict[str, Any]:
    """Every setting of width, initial standard deviation and method."""
    methods = ("bare", "infonce20", "sequential")
    settings = [(h, 0.05, method, 3) for h in (5, 10, 20, 30) for method in methods]
    settings += [(h, 0.5, method, 3) for h in (5, 30) for method in methods]
    settings += [(30, 0.05, "infonce5", 3), (30, 0.05, "infonce10", 3)]
    settings += [(h, 0.05, method, epochs) for h, epochs in ((128, 1), (512, 1)) for method in ("bare", "sequential")]
    return {
        f"mnist/{width}/{scale}/{epochs}/{method}": partial(classify, folder, width, method, scale, epochs)
        for width, scale, method, epochs in settings
    }


def jobs(folder: Path | None) -> dict[str, Any]:
    """Everything, by key."""
    found: dict[str, Any] = {}
    for width, spread in itertools.product((2, 3, 4), (0.2, 2.0)):
        found[f"identities/4.1/{width}/{spread}"] = partial(theorem_4_1, width, spread)
        found[f"identities/4.3/{width}/{spread}"] = partial(theorem_4_3, width, spread)
    for sizes in ((784, 30, 10), (784, 512, 10), (1, 50, 1), (8, 200, 1)):
        found["identities/3.1/" + "-".join(map(str, sizes))] = partial(theorem_3_1, *sizes)
    for hidden in ((6,), (6, 5)):
        found["identities/invariance/" + "-".join(map(str, hidden))] = partial(invariance, hidden)
    for width in (128, 512):
        found[f"start/{width}"] = partial(bound_at_the_start, width)
    found["threshold/quadrature"] = threshold
    for dim, ratio in itertools.product((1, 5, 30), (4.5, 5.0)):
        found[f"threshold/svi/1.0/{dim}/{ratio}"] = partial(by_svi, 1.0, dim, ratio)
    for scale, ratio in itertools.product((0.25, 0.5, 2.0), (4.6, 4.72, 4.92, 5.0)):
        found[f"threshold/svi/{scale}/1/{ratio}"] = partial(by_svi, scale, 1, ratio)
    for slope, estimator in itertools.product((0.05, 0.1, 0.15, 0.2), ("bare", "infonce", "exact")):
        found[f"two_weights/{slope}/{estimator}"] = partial(two_weights, slope, estimator)
    return found | (mnist_jobs(folder) if folder else {})


def main() -> None:
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    records.run("gelberg", jobs(options.data), only=options.only)


if __name__ == "__main__":
    main()
