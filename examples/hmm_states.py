"""Hidden states have no names: a hidden Markov model, relabelled on both axes of its transition matrix.

python examples/hmm_states.py [--output hmm_states.png]

Simulates 300 observations of a chain of three states, samples the model with BlackJAX's NUTS, and relabels emissions,
initial probabilities and both axes of the transition matrix together. Then does it wrongly, rows only, to show that
`check_symmetry` refuses it. Set NUMPYRO_SYMMETRY_SHORT=1 for a few draws only.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_symmetry import Symmetry, SymmetryError, check_symmetry, rebase, report, run_blackjax

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
SYMMETRY = Symmetry.hmm(initial="initial", transition="transition", emissions=["loc", "scale"])
ROWS_ONLY = Symmetry({"initial": ("state",), "transition": ("state", None), "loc": ("state",), "scale": ("state",)})
TRUE_TRANSITION = np.array([[0.90, 0.08, 0.02], [0.10, 0.80, 0.10], [0.05, 0.15, 0.80]])
TRUE_LOC, TRUE_SCALE = np.array([-2.0, 0.0, 2.5]), np.array([0.6, 0.5, 0.9])


def simulate(length: int) -> jax.Array:
    rng = np.random.default_rng(0)
    states = [0]
    for _ in range(length - 1):
        states.append(rng.choice(3, p=TRUE_TRANSITION[states[-1]]))
    return jnp.asarray(TRUE_LOC[states] + TRUE_SCALE[states] * rng.standard_normal(length), jnp.float32)


def hidden_markov(y):
    initial = numpyro.sample("initial", dist.Dirichlet(jnp.ones(3)))
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    with numpyro.plate("state", 3):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    emission = dist.Normal(loc, scale).log_prob(y[:, None])

    def forward(log_alpha, log_emission):
        moved = jax.nn.logsumexp(log_alpha[:, None] + jnp.log(transition), axis=0)
        return moved + log_emission, None

    log_alpha, _ = jax.lax.scan(forward, jnp.log(initial) + emission[0], emission[1:])
    numpyro.factor("y", jax.nn.logsumexp(log_alpha))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("hmm_states.png"))
    options = parser.parse_args()
    draws = 100 if SHORT else 500
    y = simulate(60 if SHORT else 300)
    check_symmetry(hidden_markov, SYMMETRY, (y,))
    try:
        check_symmetry(hidden_markov, ROWS_ONLY, (y,))
    except SymmetryError as error:
        print(f"Rows alone are refused:\n{error}\n")
    raw = run_blackjax(
        jax.random.key(0), hidden_markov, (y,), num_chains=4, num_warmup=draws, num_samples=draws, log_likelihood=False
    )
    out = rebase(raw, SYMMETRY, order_by="loc")
    print(report(raw, out))
    found = np.asarray(out.reference["transition"])
    print(f"\nmean transition matrix, true in brackets\n{_beside(found, TRUE_TRANSITION)}")

    plt.style.use("petroff10")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for ax, data, title in zip(axes, (raw, out.data), ("as sampled", "relabelled"), strict=False):
        for state in range(3):
            values = data["posterior"]["loc"].values[:, :, state].ravel()
            ax.plot(values, ".", ms=2, rasterized=True, label=f"state {state}")
        ax.set(title=title, xlabel="draw, chain after chain", ylabel="mean of the state's emissions")
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, markerscale=4, loc="center right", bbox_to_anchor=(1.0, 0.67))
    image = axes[2].imshow(found, vmin=0, vmax=1, cmap="Blues")
    axes[2].set(
        title="mean transition matrix", xlabel="to state", ylabel="from state", xticks=range(3), yticks=range(3)
    )
    for place, probability in np.ndenumerate(found):
        color = "white" if probability > 0.6 else "black"
        axes[2].text(*place[::-1], f"{probability:.2f}", ha="center", va="center", color=color)
    figure.colorbar(image, ax=axes[2], shrink=0.8, label="probability")
    figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output}")


def _beside(found: np.ndarray, true: np.ndarray) -> str:
    rows = zip(found, true, strict=True)
    return "\n".join("  ".join(f"{a:.2f} ({b:.2f})" for a, b in zip(*row, strict=True)) for row in rows)


if __name__ == "__main__":
    main()
