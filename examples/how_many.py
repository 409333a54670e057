"""How many? Log evidence over components, hidden units, factors and states, on data of which the answer is known.

python examples/how_many.py [--counted components "hidden units" factors states] [--output how_many.png]

Simulates a mixture of three components, a network of two hidden units, two factors, and a hidden Markov chain of three
states; fits each model in three sizes with NumPyro's NUTS, and estimates the evidence of each fit with
labels, and signs, as they come. Beside it stands how many slots a fit uses: components that hold a datum, or slots that
are distinct when labels are summed out. Set NUMPYRO_SYMMETRY_SHORT=1 for a few draws of one size only.
"""

import argparse
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, init_to_median

from numpyro_symmetry import SymmetryError, SymmetryWarning, find_symmetry, log_evidence, rebase
from numpyro_symmetry.diagnostics import plot_evidence, soft_labels

SHORT = os.environ.get("NUMPYRO_SYMMETRY_SHORT") == "1"
CHAINS, DRAWS = (2, 100) if SHORT else (4, 500)


class Question(NamedTuple):
    """What is counted, the model of a size, its data, the sizes that are tried, and the truth."""

    counted: str
    model: object
    data: tuple
    sizes: tuple[int, ...]
    truth: int


# ---- models: data, and how many -------------------------------------------------------------------------------------


def mixture(y, size):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    with numpyro.plate("component", size):
        loc = numpyro.sample("loc", dist.Normal(0.0, 5.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("datum", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc, scale)), obs=y)


def hidden_markov(y, size):
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones((size, size))).to_event(1))
    with numpyro.plate("state", size):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
        scale = numpyro.sample("scale", dist.LogNormal(-0.5, 0.5))
    emission = dist.Normal(loc, scale).log_prob(y[:, None])

    def forward(log_alpha, log_emission):
        return jax.nn.logsumexp(log_alpha[:, None] + jnp.log(transition), axis=0) + log_emission, None

    log_alpha, _ = jax.lax.scan(forward, emission[0] - jnp.log(size), emission[1:])
    numpyro.factor("y", jax.nn.logsumexp(log_alpha))


def factors(y, size):
    # a prior that rotations do not leave alone: signs and exchanges of factors are all that is free
    loadings = numpyro.sample("loadings", dist.Laplace(0.0, 0.5).expand([y.shape[1], size]).to_event(2))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5).expand([y.shape[1]]).to_event(1))
    covariance = loadings @ loadings.T + jnp.diag(noise**2)
    with numpyro.plate("datum", len(y)):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(y.shape[1]), covariance), obs=y)


def network(x, y, size):
    inner = numpyro.sample("inner", dist.Normal(0.0, 2.0).expand([size]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0.0, 2.0).expand([size]).to_event(1))
    outer = numpyro.sample("outer", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
    with numpyro.plate("datum", len(x)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x[:, None] * inner + bias) @ outer, 0.1), obs=y)


# ---- data of known truth --------------------------------------------------------------------------------------------


def questions() -> list[Question]:
    rng = np.random.default_rng(0)
    of_mixture = np.concatenate([c + 0.8 * rng.standard_normal(50) for c in (-4.0, 0.0, 4.0)])
    states = [0]
    for _ in range(119):
        states.append(int(rng.choice(3, p=np.where(np.arange(3) == states[-1], 0.8, 0.1))))
    of_chain = np.array([-2.0, 0.0, 2.0])[states] + 0.6 * rng.standard_normal(120)
    loadings = np.kron(np.eye(2), np.ones((3, 1)))
    of_factors = rng.standard_normal((100, 2)) @ loadings.T + 0.5 * rng.standard_normal((100, 6))
    x = np.linspace(-3.0, 3.0, 60)
    of_network = np.tanh(2.0 * x + 3.0) - np.tanh(3.0 * x - 3.0) + 0.1 * rng.standard_normal(60)
    as_float = [jnp.asarray(data, jnp.float32) for data in (of_mixture, of_chain, of_factors, x, of_network)]
    up = 1 if SHORT else 3
    return [
        Question("components", mixture, (as_float[0],), tuple(range(2, 2 + up)), 3),
        Question("hidden units", network, tuple(as_float[3:]), tuple(range(1, 1 + up)), 2),
        Question("factors", factors, (as_float[2],), tuple(range(1, 1 + up)), 2),
        Question("states", hidden_markov, (as_float[1],), tuple(range(2, 2 + up)), 3),
    ]


# ---- how many are in use --------------------------------------------------------------------------------------------


def occupied(draws, y) -> float:
    """Expected number of components that hold a datum: each does unless all data are elsewhere."""
    log = np.log(draws["weights"][:, None]) + np.asarray(
        dist.Normal(draws["loc"][:, None], draws["scale"][:, None]).log_prob(np.asarray(y)[:, None])
    )
    share = np.exp(log - np.logaddexp.reduce(log, -1, keepdims=True))
    return float((1.0 - np.prod(1.0 - share, axis=1)).sum(-1).mean())


def in_use(question: Question, mcmc, args) -> str:
    if question.counted == "components":
        draws = {site: np.asarray(value, float) for site, value in mcmc.get_samples().items()}
        return f"{occupied(draws, question.data[0]):.1f} hold a datum"
    try:
        found = soft_labels(rebase(mcmc, find_symmetry(question.model, args), null=False), progress_bar=False)
    except SymmetryError:
        return ""
    return f"{next(iter(found.num_distinct.values())):.1f} distinct"


def draw(found: dict, question: Question, ax: plt.Axes) -> None:
    """Log evidence over sizes, as far as it is near the best; what lies below is told by an arrow."""
    plot_evidence(found, ax=ax).get_legend().remove()
    ax.axvline(question.truth, color="grey", ls=":", zorder=0, label="number that made the data")
    best = max(one.value for one in found.values())
    ax.set(xlabel=f"number of {question.counted}", ylim=(best - 30.0, best + 5.0))
    ax.margins(x=0.2)
    for size, one in found.items():
        if one.value < best - 30.0:
            below = {"ha": "center", "arrowprops": {"arrowstyle": "->"}}
            ax.annotate(f"{one.value:.0f}".replace("-", "−"), (size, best - 29.5), (size, best - 24.0), **below)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [question.counted for question in questions()]
    parser.add_argument("--counted", nargs="+", choices=every, default=every[:1] if SHORT else every)
    parser.add_argument("--output", type=Path, default=Path("how_many.png"))
    options = parser.parse_args()
    asked = [question for question in questions() if question.counted in options.counted]
    plt.style.use("petroff10")
    figure, axes = plt.subplots(1, len(asked), figsize=(3.3 * len(asked), 3.4), layout="constrained", squeeze=False)
    for question, ax in zip(asked, axes[0], strict=True):
        found = {}
        print(f"{question.counted}, in truth {question.truth}")
        for size in question.sizes:
            args = (*question.data, size)
            kernel = NUTS(question.model, init_strategy=init_to_median(num_samples=50))
            mcmc = MCMC(
                kernel,
                num_warmup=DRAWS,
                num_samples=DRAWS,
                num_chains=CHAINS,
                chain_method="vectorized",
                progress_bar=False,
            )
            mcmc.run(jax.random.key(size), *args)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", SymmetryWarning)
                found[size] = log_evidence(mcmc)
                used = in_use(question, mcmc, args)
            one = found[size]
            bounds = f"{one.lower:9.2f} to {one.upper:9.2f}"
            print(f"  {size}  {one.value:9.2f} ± {one.error:4.2f}  between {bounds}  {used}", flush=True)
            for warning in caught:
                if issubclass(warning.category, SymmetryWarning):
                    print(f"     {warning.message}", flush=True)
        draw(found, question, ax)
    for ax in axes[0, 1:]:
        ax.set_ylabel("")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(options.output, dpi=150)
    print(f"\nFigure: {options.output} (dotted: the truth)")


if __name__ == "__main__":
    main()
