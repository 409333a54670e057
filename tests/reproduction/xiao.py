"""One Gaussian in place of HMC draws or an ensemble, before and after rebasing, on MNIST or on small digits.

python -m tests.reproduction.xiao [--data PATH]

Xiao et al. (2023, arXiv:2401.00611), Table 1 and Figure 3, at the size of a laptop: 1000 images of MNIST, or 1400 of 8
by 8 pixels that ship with the package, one hidden ReLU layer of 16 units, HMC by BlackJAX, ten ensemble members, a
mean-field guide. Compared with the predictive of the HMC draws on test images: agreement, total variation, accuracy of
samples and of the mean network; each Gaussian by ten sets of 30 networks drawn from it, for standard errors. PATH holds
mnist.npz; without it the digits are used. Results go to tests/reproduction/results/xiao.json or xiao_digits.json, and
are not run again.
"""

from __future__ import annotations

import argparse
import gzip
from functools import partial
from importlib.resources import files
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoDelta, AutoNormal

from numpyro_symmetry import DiagonalGaussian, Symmetry, match, num_transpositions, rebase, run_blackjax
from numpyro_symmetry.diagnostics import agreement, total_variation
from numpyro_symmetry.traces import prune
from tests.reproduction import records

SYMMETRY = Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
SITES = ("w1", "b1", "w2", "b2")
WIDTH, TRAIN, TEST = 16, 1000, 2000
SETS, NETWORKS = 10, 30


def logits(values, x):
    """One ReLU layer."""
    return jax.nn.relu(x @ values["w1"] + values["b1"]) @ values["w2"] + values["b2"]


def model(x, y=None):
    """Standard normal weights on digits, as in the paper; on MNIST divided by the root of the number of inputs."""
    inputs = x.shape[1]
    shapes = {"w1": (inputs, WIDTH), "b1": (WIDTH,), "w2": (WIDTH, 10), "b2": (10,)}
    values = {}
    for site, shape in shapes.items():
        spread = shape[0] ** -0.5 if len(shape) == 2 and inputs == 784 else 1.0
        values[site] = numpyro.sample(site, dist.Normal(0.0, spread).expand(shape).to_event(len(shape)))
    with numpyro.plate("image", len(x)):
        numpyro.sample("y", dist.Categorical(logits=logits(values, x)), obs=y)


def read(folder: Path):
    """Pixels around one, as rows, and labels."""
    with np.load(folder / "mnist.npz") as arrays:
        x, y, test_x, test_y = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    x, test_x = (jnp.asarray(images.reshape(-1, 784) / 127.5, jnp.float32) for images in (x[:TRAIN], test_x[:TEST]))
    return x, jnp.asarray(y[:TRAIN], int), test_x, jnp.asarray(test_y[:TEST], int)


def digits():
    """Pixels from zero to one and labels: 1400 to learn from, the rest held out."""
    text = gzip.decompress((files("numpyro_symmetry") / "data" / "digits.csv.gz").read_bytes()).decode()
    rows = np.loadtxt(text.splitlines(), delimiter=",", skiprows=1)
    x, y = jnp.asarray(rows[:, :-1] / 16, jnp.float32), rows[:, -1].astype(int)
    return x[:1400], jnp.asarray(y[:1400]), x[1400:], jnp.asarray(y[1400:])


def fit(guide, key, x, y, steps, rate):
    """Parameters after stock SVI."""
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(rate, steps)), Trace_ELBO())
    return svi.run(key, steps, x, y, progress_bar=False).params


def predict(draws, x):
    """Average of softmax probabilities over draws."""
    return jax.lax.map(lambda values: jax.nn.softmax(logits(values, x)), draws).mean(0)


def accuracy(probabilities, y):
    """Share of images put into their class."""
    return float((probabilities.argmax(-1) == y).mean())


def judged(probabilities, reference, y):
    """Agreement and total variation with a predictive, and accuracy."""
    return [
        float(agreement(probabilities, reference)),
        float(total_variation(probabilities, reference)),
        accuracy(probabilities, y),
    ]


def of_gaussian(rng_key, q, reference, x, y):
    """Means and standard errors over sets of networks drawn from one Gaussian; keys of their own for every seed."""
    keys = jax.random.split(rng_key, SETS)
    rows = [judged(predict(q.sample(key, (NETWORKS,)), x), reference, y) for key in keys]
    columns = np.array(rows).T
    names = ("agreement", "total_variation", "accuracy")
    found = {n: [float(c.mean()), float(c.std(ddof=1) / SETS**0.5)] for n, c in zip(names, columns, strict=True)}
    found["accuracy_of_mean"] = accuracy(jax.nn.softmax(logits(q.loc, x)), y)
    return found


def of_draws(draws, reference, x, y):
    """The same of draws themselves."""
    names = ("agreement", "total_variation", "accuracy")
    return dict(zip(names, judged(predict(draws, x), reference, y), strict=True))


def stack(members):
    """Members as one batch."""
    return {site: jnp.stack([member[site] for member in members]) for site in SITES}


def run(seed, data, *, warmup, samples, steps):
    """One HMC run, one ensemble and one guide."""
    x, y, test_x, test_y = data
    trace = run_blackjax(
        jax.random.key(seed),
        model,
        (x, y),
        algorithm="hmc",
        num_integration_steps=60,
        num_chains=2,
        num_warmup=warmup,
        num_samples=samples,
        init_strategy=init_to_sample,
        log_likelihood=False,
    )
    posterior = {site: jnp.asarray(trace["posterior"][site].values) for site in SITES}
    hmc = {site: value.reshape(-1, *value.shape[2:]) for site, value in posterior.items()}
    reference = predict(hmc, test_x)
    # the same sets for every Gaussian of a run, and others in another run
    key_sets = jax.random.fold_in(jax.random.key(seed), SETS)
    result = {"seed": seed, "divergent": float(trace["sample_stats"]["diverging"].values.mean())}
    members = []
    for k in range(10):
        guide = AutoDelta(model, init_loc_fn=init_to_sample)
        params = fit(guide, jax.random.key(100 * seed + k), x, y, steps, 1e-2)
        members.append({site: params[f"{site}_auto_loc"] for site in SITES})
    guide = AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.02)
    vi = DiagonalGaussian.from_guide(guide, fit(guide, jax.random.key(seed), x, y, 2 * steps, 5e-3))
    rebased = {}
    for name, draws in (("hmc", hmc), ("ensemble", stack(members))):
        result[f"{name}_draws"] = of_draws(draws, reference, test_x, test_y)
        result[f"{name}_q_d"] = of_gaussian(key_sets, DiagonalGaussian.fit(draws), reference, test_x, test_y)
        for label, how in (("q_r_first", "first"), ("q_r", "mean")):
            out = rebase(draws, SYMMETRY, reference=how)
            q = rebased[name] = DiagonalGaussian.fit(out.data)
            result[f"{name}_{label}"] = of_gaussian(key_sets, q, reference, test_x, test_y)
        identified = out.null.num_identified["hidden"]
        result[f"{name}_null"] = {
            "explained": out.null.explained,
            "explained_null": out.null.explained_null,
            # null where so few independent draws cannot tell
            "identified": identified if isinstance(identified, int) else None,
        }
        moved = np.asarray(num_transpositions(out.elements)["hidden"])
        result[f"{name}_transpositions"] = [float(moved.mean()), float(moved.max())]
        if name == "hmc":
            g = np.asarray(out.elements["hidden"]).reshape(*posterior["b1"].shape[:2], -1)
            step = np.take_along_axis(np.argsort(g[:, :-1], -1), g[:, 1:], -1)
            result["hmc_transpositions_between_draws"] = float(
                np.asarray(num_transpositions({"hidden": step})["hidden"]).mean()
            )
    result["vi"] = of_gaussian(key_sets, vi, reference, test_x, test_y)
    shares = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.05)
    for name, q in (("hmc_q_r", rebased["hmc"]), ("ensemble_q_r", rebased["ensemble"]), ("vi", vi)):
        result[f"pruned_{name}"] = [accuracy(jax.nn.softmax(logits(prune(q, keep), test_x)), test_y) for keep in shares]
    # the ensemble's means, of which those are kept that HMC is sure of
    bound = SYMMETRY.bind(rebased["hmc"].loc)
    loc = bound.apply(
        match(rebased["hmc"], rebased["ensemble"], SYMMETRY, cost="euclidean").element, rebased["ensemble"].loc
    )
    merged = DiagonalGaussian(loc, rebased["hmc"].scale)
    result["pruned_ensemble_by_hmc"] = [
        accuracy(jax.nn.softmax(logits(prune(merged, keep), test_x)), test_y) for keep in shares
    ]
    return result


def main():
    """Run what has not been run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    data = read(options.data) if options.data else digits()
    sizes = {"warmup": options.warmup, "samples": options.samples, "steps": options.steps}
    jobs = {str(seed): partial(run, seed, data, **sizes) for seed in options.seeds}
    records.run("xiao" if options.data else "xiao_digits", jobs)


if __name__ == "__main__":
    main()
