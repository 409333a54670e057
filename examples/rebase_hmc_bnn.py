"""Hamiltonian Monte Carlo, a deep ensemble and a symmetrized guide of one Bayesian network, in one ArviZ comparison.

python examples/rebase_hmc_bnn.py [--output rebase_hmc_bnn.png]

A tanh network of ten units on forty points of one input: units may be exchanged and negated. All three posteriors are
brought into one basin, the one of the HMC draws' mean, and one Gaussian is fitted to each. Prints what of the weights'
R-hat was labels, how many units have an identity at all, how the three compare by leave-one-out, and how well the one
Gaussian predicts. Set NUMPYRO_SYMMETRY_SHORT=1 for a few draws only.
"""

import argparse
import os
import warnings
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_sample
from numpyro.infer.autoguide import AutoDelta, AutoNormal

from numpyro_symmetry import AutoSymmetrized, DiagonalGaussian, Symmetry, rebase, report, run_blackjax, to_arviz
from numpyro_symmetry.diagnostics import plot_null, plot_transpositions

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
SYMMETRY = Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed")
SITES = ("w1", "b1", "w2")
NOISE = 0.1


def data():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 40))
    return jnp.asarray(x[:, None], jnp.float32), jnp.asarray(
        np.sin(2 * x) + NOISE * rng.standard_normal(40), jnp.float32
    )


def network(values, x):
    return (jnp.tanh(x @ values["w1"] + values["b1"][..., None, :]) @ values["w2"])[..., 0]


def model(x, y):
    values = {
        "w1": numpyro.sample("w1", dist.Normal(0.0, 2.0).expand([1, 10]).to_event(2)),
        "b1": numpyro.sample("b1", dist.Normal(0.0, 2.0).expand([10]).to_event(1)),
        "w2": numpyro.sample("w2", dist.Normal(0.0, 1.0 / 10**0.5).expand([10, 1]).to_event(2)),
    }
    with numpyro.plate("datum", len(x)):
        numpyro.sample("y", dist.Normal(network(values, x), NOISE), obs=y)


def fit(guide, key, x, y, steps, rate=1e-2):
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(rate, steps)), Trace_ELBO())
    return svi.run(key, steps, x, y, progress_bar=False).params


def ensemble(x, y, members, steps):
    """Modes found from different starts."""
    found = []
    for seed in range(members):
        guide = AutoDelta(model, init_loc_fn=init_to_sample)
        params = fit(guide, jax.random.key(seed), x, y, steps, 3e-2)
        found.append({site: params[f"{site}_auto_loc"] for site in SITES})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("rebase_hmc_bnn.png"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Pareto|.*pareto|The inplace keyword")
    draws, steps, members = (60, 300, 3) if SHORT else (1000, 5000, 20)
    x, y = data()
    hmc = run_blackjax(
        jax.random.key(0), model, (x, y), algorithm="hmc", num_integration_steps=64, num_warmup=draws, num_samples=draws
    )
    guide = AutoSymmetrized(AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.05), SYMMETRY)
    params = fit(guide, jax.random.key(1), x, y, steps)
    guided = to_arviz(jax.random.key(2), guide, params, (x, y), num_draws=draws)
    modes = ensemble(x, y, members, steps)

    rebased = rebase(hmc, SYMMETRY)
    values = stacked(hmc)
    print(report(hmc, rebased, {"f(x)": np.asarray(network(values, x)).reshape(*rebased.objective.shape, -1)}))
    relabelled = {
        "HMC": rebased,
        "guide": rebase(guided, SYMMETRY, reference=rebased),
        "ensemble": rebase(modes, SYMMETRY, reference=rebased),
    }
    print(f"\n{az.compare({'HMC': rebased.data, 'guide': relabelled['guide'].data})}\n")

    plt.style.use("petroff10")
    grid = jnp.linspace(-2.5, 2.5, 200)[:, None]
    figure, axes = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    for ax, (name, out) in zip(axes[0], relabelled.items(), strict=True):
        every = stacked(out.data)
        some = {site: value[:: max(1, len(value) // 100)] for site, value in every.items()}
        gaussian = DiagonalGaussian.fit(every)
        functions = {
            "draws": network(some, grid),
            "one Gaussian, rebased": network(gaussian.sample(jax.random.key(3), (100,)), grid),
            "mean network": network(gaussian.loc, grid)[None],
        }
        for (label, f), color in zip(functions.items(), ("C0", "C1", "k"), strict=True):
            low, middle, high = np.quantile(np.asarray(f), (0.05, 0.5, 0.95), axis=0)
            ax.plot(grid[:, 0], middle, color=color, label=label, lw=1.5)
            ax.fill_between(grid[:, 0], low, high, color=color, alpha=0.2, lw=0)
        ax.plot(x[:, 0], y, ".", color="grey", ms=4, label="data")
        ax.set(title=name, ylim=(-2.5, 2.5), xlabel="x")
        error = {label: float(jnp.sqrt(jnp.mean((f_at(label, some, gaussian, x) - y) ** 2))) for label in functions}
        print(f"{name:9} RMSE of the mean prediction: " + ", ".join(f"{k} {v:.3f}" for k, v in error.items()))
    axes[0, 0].set(ylabel="f(x); bands: 90 % of draws")
    axes[0, 0].legend(frameon=False, fontsize=8)
    plot_null(rebased, ax=axes[1, 0]).set_title("HMC: units beside the null")
    switches = plot_transpositions(rebased, ax=axes[1, 1])
    switches.set(title="HMC: switches of labels", ylabel="transpositions between draws")
    key = {"handles": switches.lines[-1:], "title": "a colour a chain; thick: running mean", "title_fontsize": 8}
    switches.legend(**key, fontsize=8, frameon=False, alignment="left", loc="upper right")
    draw_units(relabelled, np.argsort(-rebased.null.separation["hidden"])[:2], axes[1, 2])
    figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


def draw_units(relabelled, units, ax) -> None:
    """Weights into and out of some units, every draw a dot."""
    looks = {"HMC": ("o", 2, 0.3), "guide": ("o", 2, 0.5), "ensemble": ("D", 5, 1.0)}
    for color, (name, (marker, size, alpha)) in enumerate(looks.items()):
        every = stacked(relabelled[name].data)
        look = {"marker": marker, "ls": "", "color": f"C{color}", "mec": "k" if name == "ensemble" else "none"}
        across, up = (np.asarray(every[site]).reshape(-1, 10)[:, units].ravel() for site in ("w1", "w2"))
        ax.plot(across, up, ms=size, alpha=alpha, rasterized=True, **look)
        ax.plot([], [], ms=6, label=name, **look)
    ax.set(title="the two units best told apart", xlabel="incoming weight", ylabel="outgoing weight")
    ax.legend(frameon=False)


def f_at(label, some, gaussian, x):
    if label == "mean network":
        return network(gaussian.loc, x)
    values = some if label == "draws" else gaussian.sample(jax.random.key(3), (100,))
    return network(values, x).mean(0)


def stacked(container) -> dict[str, jax.Array]:
    """Draws ``(draw, ...)`` by site, of a container or of members."""
    if isinstance(container, list):
        return {site: jnp.stack([member[site] for member in container]) for site in SITES}
    posterior = container["posterior"]
    return {site: jnp.asarray(posterior[site].values.reshape(-1, *posterior[site].shape[2:])) for site in SITES}


if __name__ == "__main__":
    main()
