"""Mixtures whose evidence is known: `log_evidence` beside the truncated harmonic mean of Metodiev et al. (2025).

python -m tests.reproduction.thames [KEY ...]

Two kinds of mixtures, with the sizes and priors of the authors' scripts. *Few data*: ten numbers, components of known
width and weight, so that all allocations can be summed. *Far apart*: components a hundred widths apart in several
dimensions, so that only one allocation, up to labels, has any weight, and the model is conjugate given it. The former
are sampled by NUTS, allocations summed out, every chain from its own labels; of the latter there are exact, independent
draws, in each of which labels are random. Both estimators see the same draws. Settings share random numbers, data set
by data set, so that their gaps go together. Results go to tests/reproduction/results/thames.json, and are not run
again; KEY is the beginning of those that are to be run.

Chosen here: the sampler (theirs is Gibbs); that the first half of every chain makes the ellipsoid; that `rebase` undoes
labels before (ECR on sampled allocations); that what is compared with a chi-squared is given its mean and standard
deviation; as many points for the volume as there are draws in a half (twice as many); the error, from the effective
number of draws and with that of the volume (an autoregression). They shorten the sum over permutations by an order that
they learn from the draws; here it runs over all that can put a draw into the ellipsoid, which is the same sum.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import lgamma
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density, unconstrain_fn
from scipy.special import gammaln, logsumexp, multigammaln
from scipy.stats import chi2, wishart
from tqdm import tqdm

from numpyro_symmetry import Symmetry, log_evidence, rebase
from tests.reproduction import records

NUM_DATA, CENTRE = 10, 4.0
FITTED_AND_TRUE = ((2, 2), (2, 3), (3, 2))
CLOSENESS = (0.0, 0.5, 1.0)
SEEDS, FAR_SEEDS = range(10), range(3)
CHAINS, WARMUP, DRAWS = 4, 500, 2500
# independent ones
FAR_DRAWS = 4000
# the mean of a component far apart has this share of a datum's precision
KAPPA = 1e-5

Draws = dict[str, np.ndarray]


class Setting(NamedTuple):
    """A model and its data, the log evidence of both, draws by seed, and components as rows of numbers.

    ``units`` makes ``(..., component, number)`` of draws, in which relabelling keeps volumes, and ``log_joint`` is the
    log joint density there; the weight, if it is not known, comes last.
    """

    model: Callable[..., None]
    args: tuple[Any, ...]
    truth: float
    draws: Callable[[int], Draws]
    units: Callable[[Draws], np.ndarray]
    log_joint: Callable[[np.ndarray], np.ndarray]
    has_weights: bool


# ---- few data ----------------------------------------------------------------------------------------------------


def of_known_width(y: jax.Array, start: jax.Array) -> None:
    """Components of known width and weight; ``start`` counts them."""
    size = len(start)
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.full(size, 1.0 / size)), dist.Normal(loc, 1.0))
    with numpyro.plate("datum", len(y)):
        numpyro.sample("y", mixture, obs=y)


def sum_over_allocations(y: np.ndarray, size: int) -> float:
    """Log evidence of components N(loc, 1) with loc ~ N(0, 1), weights 1/size: all size^n allocations in turn."""
    allocations = np.stack(np.meshgrid(*[np.arange(size)] * len(y), indexing="ij"), -1).reshape(-1, len(y))
    of_component = allocations[:, :, None] == np.arange(size)
    number, total = of_component.sum(1), np.einsum("n,ang->ag", y, of_component)
    log_marginal = 0.5 * (total**2 / (1.0 + number) - np.log1p(number)).sum(-1)
    constant = -0.5 * (y**2).sum() - len(y) * (0.5 * np.log(2.0 * np.pi) + np.log(size))
    return float(logsumexp(log_marginal) + constant)


def few_data(fitted: int, true: int, closeness: float, seed: int) -> Setting:
    """Ten data about four of two or three components, the nearer the closer to one; ``fitted`` components."""
    rng = np.random.default_rng([2504, fitted, true, int(10 * closeness), seed])
    spread, weights = 2.0 * (1.0 - closeness) + 1.0, {2: (1 / 3, 2 / 3), 3: (2 / 6, 1 / 6, 3 / 6)}[true]
    centres = CENTRE + spread * np.linspace(-1.0, 1.0, true)
    y = centres[rng.choice(true, NUM_DATA, p=weights)] + rng.standard_normal(NUM_DATA)
    start = np.linspace(y.min(), y.max(), fitted)
    args = jnp.asarray(y), jnp.asarray(start)

    def of_draw(units: jax.Array) -> jax.Array:
        return log_density(of_known_width, args, {}, {"loc": units[:, 0]})[0]

    return Setting(
        of_known_width,
        args,
        sum_over_allocations(y, fitted),
        partial(by_nuts, of_known_width, args, {"loc": start}),
        lambda draws: draws["loc"][..., None],
        over_draws(of_draw),
        has_weights=False,
    )


# ---- far apart ---------------------------------------------------------------------------------------------------


def data_far_apart(size: int, dimension: int, num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Data about (100, ..., 100), (200, ..., 200) and so on, and whose they are."""
    rng = np.random.default_rng([2504, size, dimension, num_data, seed])
    component = rng.choice(size, num_data)
    return 100.0 * (1.0 + component[:, None]) + rng.standard_normal((num_data, dimension)), component


def log_allocation(component: np.ndarray, size: int) -> float:
    """Log probability of an allocation and of its relabellings, weights uniform on the simplex."""
    counts = np.bincount(component, minlength=size)
    return float(lgamma(size) - lgamma(size + len(component)) + gammaln(counts + 1.0).sum() + lgamma(size + 1))


def diagonal(y: jax.Array, centre: jax.Array, rate: jax.Array, start: jax.Array) -> None:
    """Components with a precision for every dimension."""
    size, dimension = start.shape
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    shape = [size, dimension]
    precision = numpyro.sample("precision", dist.Gamma(2.0, rate).expand(shape).to_event(2))
    loc = numpyro.sample("loc", dist.Normal(centre, 1.0 / jnp.sqrt(KAPPA * precision)).to_event(2))
    each = dist.Normal(loc, 1.0 / jnp.sqrt(precision)).to_event(1).log_prob(y[:, None])
    numpyro.factor("y", jax.nn.logsumexp(jnp.log(weights) + each, -1).sum())


def far_apart_diagonal(size: int, dimension: int, num_data: int, seed: int) -> Setting:
    """Normal components with independent dimensions: a gamma prior of precisions, conjugate in each of them."""
    y, component = data_far_apart(size, dimension, num_data, seed)
    centre, within = y.mean(0), within_components(y, component, size)
    rate = 2.0 * np.diagonal(within)
    truth, of_component = log_allocation(component, size), []
    for k in range(size):
        own = y[component == k]
        n, mean, scatter = len(own), own.mean(0), len(own) * own.var(0)
        shape, after = 2.0 + n / 2, rate + 0.5 * (scatter + KAPPA * n / (KAPPA + n) * (mean - centre) ** 2)
        log_gammas = gammaln(shape) - gammaln(2.0) + 2.0 * np.log(rate) - shape * np.log(after)
        truth += (log_gammas + 0.5 * np.log(KAPPA / (KAPPA + n)) - 0.5 * n * np.log(2.0 * np.pi)).sum()
        of_component.append((n, (n * mean + KAPPA * centre) / (n + KAPPA), shape, after))
    args = tuple(map(jnp.asarray, (y, centre, rate, np.zeros((size, dimension)))))

    def exact(seed: int) -> Draws:
        rng, shape = np.random.default_rng(seed), (FAR_DRAWS, dimension)
        precision = np.stack([rng.gamma(a, 1.0 / b, shape) for _, _, a, b in of_component], 1)
        z = rng.standard_normal((FAR_DRAWS, size, dimension))
        loc = np.stack([mean for _, mean, _, _ in of_component])
        loc = loc + z / np.sqrt((KAPPA + counts(of_component)[:, None]) * precision)
        weights = rng.dirichlet(1.0 + counts(of_component), FAR_DRAWS)
        return in_chains(rng, {"loc": loc, "precision": precision, "weights": weights})

    def of_draw(units: jax.Array) -> jax.Array:
        loc, log_precision, weights = units[:, :dimension], units[:, dimension:-1], units[:, -1]
        values = {"loc": loc, "precision": jnp.exp(log_precision), "weights": weights}
        return on_simplex(weights, log_density(diagonal, args, {}, values)[0] + log_precision.sum())

    def units(draws: Draws) -> np.ndarray:
        return np.concatenate([draws["loc"], np.log(draws["precision"]), draws["weights"][..., None]], -1)

    return Setting(diagonal, args, float(truth), exact, units, over_draws(of_draw), has_weights=True)


def full(y: jax.Array, centre: jax.Array, rate: jax.Array, start: jax.Array) -> None:
    """Components with a precision matrix, by its Cholesky factor."""
    size, dimension = start.shape
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
    of_factor = dist.WishartCholesky(float(dimension), rate_matrix=rate)
    factor = numpyro.sample("factor", of_factor.expand([size]).to_event(1))
    precision = KAPPA * factor @ factor.mT
    loc = numpyro.sample("loc", dist.MultivariateNormal(centre, precision_matrix=precision).to_event(1))
    scaled = jnp.einsum("krs,nkr->nks", factor, y[:, None] - loc)
    log_determinant = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    each = log_determinant - 0.5 * (scaled**2).sum(-1) - 0.5 * dimension * jnp.log(2.0 * jnp.pi)
    numpyro.factor("y", jax.nn.logsumexp(jnp.log(weights) + each, -1).sum())


def far_apart_full(size: int, dimension: int, num_data: int, seed: int) -> Setting:
    """Normal components with full covariances: the normal-inverse-Wishart prior, conjugate."""
    y, component = data_far_apart(size, dimension, num_data, seed)
    centre, degrees = y.mean(0), float(dimension)
    within = within_components(y, component, size)
    rate = within * (degrees + dimension + 1.0)
    truth, of_component = log_allocation(component, size), []
    for k in range(size):
        own = y[component == k]
        n, mean = len(own), own.mean(0)
        gap = mean - centre
        after = rate + (own - mean).T @ (own - mean) + KAPPA * n / (KAPPA + n) * np.outer(gap, gap)
        truth += multigammaln((degrees + n) / 2, dimension) - multigammaln(degrees / 2, dimension)
        truth += 0.5 * degrees * np.linalg.slogdet(rate)[1] - 0.5 * (degrees + n) * np.linalg.slogdet(after)[1]
        truth += 0.5 * dimension * (np.log(KAPPA / (KAPPA + n)) - n * np.log(np.pi))
        of_component.append((n, (n * mean + KAPPA * centre) / (n + KAPPA), np.linalg.inv(after)))
    args = tuple(map(jnp.asarray, (y, centre, rate, np.zeros((size, dimension)))))
    rows, columns = np.tril_indices(dimension)
    on_diagonal = rows == columns

    def of_draw(units: jax.Array) -> jax.Array:
        loc, lower, weights = units[:, :dimension], units[:, dimension:-1], units[:, -1]
        entries = jnp.where(on_diagonal, jnp.exp(lower), lower)
        factor = jnp.zeros((size, dimension, dimension)).at[:, rows, columns].set(entries)
        log_joint = log_density(full, args, {}, {"loc": loc, "factor": factor, "weights": weights})[0]
        return on_simplex(weights, log_joint + lower[:, on_diagonal].sum())

    def units(draws: Draws) -> np.ndarray:
        lower = draws["factor"][..., rows, columns]
        lower = np.where(on_diagonal, np.log(np.where(on_diagonal, lower, 1.0)), lower)
        return np.concatenate([draws["loc"], lower, draws["weights"][..., None]], -1)

    def exact(seed: int) -> Draws:
        rng = np.random.default_rng(seed)
        precision = [wishart.rvs(degrees + n, scale, FAR_DRAWS, rng) for n, _, scale in of_component]
        factor = np.linalg.cholesky(np.stack(precision, 1))
        z = rng.standard_normal((FAR_DRAWS, size, dimension))
        loc = np.stack([mean for _, mean, _ in of_component])
        away = np.linalg.solve(np.swapaxes(factor, -1, -2), z[..., None])[..., 0]
        loc = loc + away / np.sqrt(KAPPA + counts(of_component)[:, None])
        weights = rng.dirichlet(1.0 + counts(of_component), FAR_DRAWS)
        return in_chains(rng, {"loc": loc, "factor": factor, "weights": weights})

    return Setting(full, args, float(truth), exact, units, over_draws(of_draw), has_weights=True)


def counts(of_component: list[tuple[Any, ...]]) -> np.ndarray:
    return np.array([n for n, *_ in of_component], float)


def in_chains(rng: np.random.Generator, draws: Draws) -> Draws:
    """Independent draws as four chains, components in a random order in each draw."""
    order = rng.random(draws["weights"].shape).argsort(1)
    moved = {site: x[np.arange(len(x))[:, None], order] for site, x in draws.items()}
    return {site: x.reshape(CHAINS, -1, *x.shape[1:]) for site, x in moved.items()}


def within_components(y: np.ndarray, component: np.ndarray, size: int) -> np.ndarray:
    """The mean covariance of a component's data, which the authors' prior is scaled by."""
    return np.mean([np.cov(y[component == k].T, bias=True) for k in range(size)], axis=0)


def on_simplex(weights: jax.Array, log_joint: jax.Array) -> jax.Array:
    return jnp.where((weights > 0.0).all(), log_joint, -jnp.inf)


def over_draws(of_draw: Callable[[jax.Array], jax.Array]) -> Callable[[np.ndarray], np.ndarray]:
    """A density of one draw, of many."""
    of_batch = jax.jit(partial(jax.lax.map, of_draw, batch_size=100))
    return lambda units: np.asarray(of_batch(jnp.asarray(units)))


# ---- the estimator of Metodiev et al. ------------------------------------------------------------------------------


def thames(units: np.ndarray, setting: Setting, rng: np.random.Generator) -> dict[str, Any]:
    r"""The truncated harmonic mean for mixtures, of draws ``(chain, draw, component, number)`` under one set of labels.

    .. math:: \frac1Z \approx \frac1{G!\,\operatorname{vol}(E \cap H)} \sum_\sigma \frac1T \sum_t
              \frac{1\{\sigma\theta_t \in E,\ \theta_t \in H\}}{p(\theta_t, y)}

    E is the ellipsoid of radius :math:`\sqrt{d + 1}` of the first half of the draws, H where the density is above a
    level (`level_of`); the volume is that of E times the share of it that lies in H. The sum is over the second half.
    """
    num_components = units.shape[2]
    of_all = setting.log_joint(units.reshape(-1, *units.shape[2:])).reshape(units.shape[:2])
    half = units.shape[1] // 2
    first, rest = coordinates(units[:, :half], setting), units[:, half:]
    d = first.shape[-1]
    first = first.reshape(-1, d)
    centre, factor = first.mean(0), np.linalg.cholesky(np.cov(first.T).reshape(d, d))
    level = level_of(of_all.ravel(), d)

    radius, share, num_points = np.sqrt(d + 1.0), 0.0, first.shape[0]
    while not share:
        direction = rng.standard_normal((num_points, d))
        direction *= radius * rng.random((num_points, 1)) ** (1.0 / d) / np.linalg.norm(direction, axis=1)[:, None]
        share = float((setting.log_joint(completed(centre + direction @ factor.T, units, setting)) > level).mean())
        radius = radius if share else radius / 2

    flat = rest.reshape(-1, *rest.shape[2:])
    number_inside, permutations = np.zeros(len(flat)), 0
    for order in orders_that_reach(flat, completed(centre[None], units, setting)[0], factor, radius, setting):
        moved = coordinates(flat[:, order], setting) - centre
        number_inside += (np.linalg.solve(factor, moved.T) ** 2).sum(0) <= radius**2
        permutations += 1
    log_joint = of_all[:, half:].ravel()
    terms = np.where(log_joint > level, number_inside * np.exp(level - log_joint), 0.0).reshape(rest.shape[:2])
    log_volume = d * np.log(radius) + 0.5 * d * np.log(np.pi) - gammaln(d / 2 + 1) + np.log(np.diagonal(factor)).sum()
    value = level + lgamma(num_components + 1) + log_volume + np.log(share) - np.log(terms.mean())
    effective = np.clip(effective_sample_size(terms), 1.0, terms.size)
    error = np.sqrt(terms.var() / terms.mean() ** 2 / effective + (1.0 / share - 1.0) / num_points)
    return {
        "value": float(value),
        "error": float(error),
        "inside": float((number_inside > 0).mean()),
        "share": share,
        "shrunk": float(radius / np.sqrt(d + 1.0)),
        "permutations": permutations,
    }


def coordinates(units: np.ndarray, setting: Setting) -> np.ndarray:
    """As one vector; the last weight follows from the others."""
    flat = units.reshape(*units.shape[:-2], -1)
    return flat[..., :-1] if setting.has_weights else flat


def completed(flat: np.ndarray, like: np.ndarray, setting: Setting) -> np.ndarray:
    """Components of vectors."""
    if not setting.has_weights:
        return flat.reshape(len(flat), *like.shape[2:])
    units = np.concatenate([flat, np.zeros((len(flat), 1))], -1).reshape(len(flat), *like.shape[2:])
    units[:, -1, -1] = 1.0 - units[..., -1].sum(-1)
    return units


def level_of(log_joint: np.ndarray, d: int) -> float:
    """The level above which minus the log density is most like a chi-squared, or the median, if that is higher.

    By the Kolmogorov distance to that law, cut off there, moved and scaled: so it is of a normal posterior.
    """
    energy, found = np.sort(-log_joint), []
    for number in range(len(energy) - 1, len(energy) // 5, -max(1, len(energy) // 100)):
        kept = energy[:number]
        scaled = d + np.sqrt(2.0 * d) * (kept - kept.mean()) / kept.std()
        below = chi2.cdf(scaled, d) / chi2.cdf(scaled[-1], d)
        found.append((np.abs(below - np.arange(1, number + 1) / number).max(), kept[-1]))
    return float(max(-min(found)[1], np.median(log_joint)))


def orders_that_reach(
    units: np.ndarray, centre: np.ndarray, factor: np.ndarray, radius: float, setting: Setting
) -> Iterator[list[int]]:
    """All orders of components but those that put no draw into the ellipsoid.

    No coordinate of a point of an ellipsoid is further from its centre than ``radius`` of its widths.
    """
    num_components, numbers = centre.shape[0], centre.shape[1] - setting.has_weights
    width = np.sqrt((factor**2).sum(1))
    width = np.append(width, 0.0).reshape(centre.shape) if setting.has_weights else width.reshape(centre.shape)
    reach = np.array(
        [
            (np.abs(units[..., :numbers] - centre[k, :numbers]) <= radius * width[k, :numbers]).all(-1).any(0)
            for k in range(num_components)
        ]
    )

    def extended(order: list[int]) -> Iterator[list[int]]:
        if len(order) == num_components:
            yield order
            return
        for component in np.flatnonzero(reach[len(order)]):
            if component not in order:
                yield from extended([*order, int(component)])

    yield from extended([])


# ---- runs --------------------------------------------------------------------------------------------------------


def run(make: Callable[[int], Setting], seeds: range) -> dict[str, Any]:
    """Both estimators on the same draws, over data sets."""
    rows = []
    for seed in tqdm(seeds, leave=False):
        setting = make(seed)
        draws = setting.draws(seed)
        symmetry = Symmetry.mixture(*draws)
        ours = log_evidence(draws, setting.model, setting.args, symmetry=symmetry, rng_key=jax.random.key(seed))
        moved = rebase(draws, symmetry, null=False, num_leading_dims=2, rng_key=jax.random.key(seed)).data
        theirs = thames(setting.units(moved), setting, np.random.default_rng(seed))
        rows.append({"seed": seed, "truth": setting.truth, "ours": ours._asdict(), "thames": theirs})
    return {"rows": rows}


def by_nuts(model: Callable[..., None], args: tuple[Any, ...], start: Draws, seed: int) -> Draws:
    """Draws ``(chain, draw, ...)``, every chain from its own labels."""
    rng, seeded = np.random.default_rng(seed), handlers.seed(model, 0)
    starts = [unconstrain_fn(seeded, args, {}, relabelled(start, rng)) for _ in range(CHAINS)]
    free = jax.tree.map(lambda *each: jnp.stack(each), *starts)
    return jax.tree.map(np.asarray, sampled(model, jax.random.key(seed), args, free))


@partial(jax.jit, static_argnums=0)
def sampled(model: Callable[..., None], rng_key: jax.Array, args: tuple[Any, ...], start: Any) -> dict[str, jax.Array]:
    """Draws ``(chain, draw, ...)`` of NUTS; compiled once for all data of a setting."""
    sampler = MCMC(
        NUTS(model),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(rng_key, *args, init_params=start)
    return sampler.get_samples(group_by_chain=True)


def relabelled(values: Draws, rng: np.random.Generator) -> Draws:
    """Components of one draw in a random order."""
    order = rng.permutation(len(next(iter(values.values()))))
    return {site: value[order] for site, value in values.items()}


def jobs() -> dict[str, Callable[[], dict[str, Any]]]:
    """Key -> what computes its record."""
    every: dict[str, Callable[[], dict[str, Any]]] = {}
    for fitted, true in FITTED_AND_TRUE:
        for closeness in CLOSENESS:
            make = partial(few_data, fitted, true, closeness)
            every[f"few/{fitted} of {true}/{closeness}"] = partial(run, make, SEEDS)
    every["far/full/5/6"] = partial(run, partial(far_apart_full, 5, 6, 200), FAR_SEEDS)
    every["far/diagonal/15/5"] = partial(run, partial(far_apart_diagonal, 15, 5, 345), FAR_SEEDS)
    return every


if __name__ == "__main__":
    numpyro.enable_x64()
    records.run("thames", jobs(), only=sys.argv[1:])
