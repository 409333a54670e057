"""How often `compare` says that two posteriors differ, where they do not and where they do.

python -m tests.reproduction.compare [KEY ...]

Pairs of made-up posteriors of three groups, of one law each: p-values of independent draws, of chains, of chains that
forget slowly in what no label changes, that hardly leave a mode, or with tails; then pairs of two laws, beside the same
test with the true labels. Results go to tests/reproduction/results/compare.json, and are not run again; KEY is the
beginning of those that are to be run. A record holds p-values, NaN where there were not enough draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import stats
from tqdm import trange

import numpyro_symmetry as ns
from numpyro_symmetry import Symmetry
from tests.reproduction import records

Draws = dict[str, np.ndarray]
LEVELS = (0.01, 0.05, 0.1, 0.2)
CELLS, UNITS, NUMBERS = 2, 3, 2
# p-values from 1/200 on, which is enough for the lowest level
compare = partial(ns.compare, num_exchanges=199)

GROUPS: dict[str, Symmetry] = {
    "permutations": Symmetry({"unit": ("unit", None)}),
    "signs": Symmetry({"unit": ("unit", None)}, kinds={"unit": "signed"}),
    "blocks": Symmetry({"unit": ("cell", "cell/unit", None)}, kinds={"cell": "fixed"}),
}
# a group of one index, which moves nothing: with it, labels that are known are kept
KNOWN = Symmetry({"unit": ("all", None)})


def autoregressive(rng: np.random.Generator, shape: tuple[int, ...], rate: float) -> np.ndarray:
    """Standard normal chains ``(chain, draw, ...)``."""
    z = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        z[:, t] = rate * z[:, t - 1] + np.sqrt(1.0 - rate**2) * z[:, t]
    return z


def relabelled(group: str, rng: np.random.Generator, x: np.ndarray, *, by_chain: bool = False) -> Draws:
    """Units ``(chain, draw, [cell,] unit, number)`` with labels at random, in every draw or once for each chain."""
    keys = rng.random((len(x), 1 if by_chain else x.shape[1], *x.shape[2:-1]))
    order = np.broadcast_to(keys.argsort(-1), x.shape[:-1])
    moved = np.take_along_axis(x, order[..., None], -2)
    if group == "signs":
        moved = moved * np.where(rng.random(keys.shape) < 0.5, -1.0, 1.0)[..., None]
    return {"unit": moved}


def centres(group: str, rng: np.random.Generator, num_units: int = UNITS, numbers: int = NUMBERS) -> np.ndarray:
    """Where units are: about as far apart as they are wide."""
    shape = (CELLS, num_units, numbers) if group == "blocks" else (num_units, numbers)
    return 1.5 * rng.standard_normal(shape) / np.sqrt(numbers)


# ---- one law -----------------------------------------------------------------------------------------------------

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def chains(rate: float, num_chains: int, num_draws: int) -> Callable[..., np.ndarray]:
    """Units that forget at one rate."""
    return lambda rng, event: autoregressive(rng, (num_chains, num_draws, *event), rate)


def slow_level(num_chains: int, num_draws: int) -> Callable[..., np.ndarray]:
    """Units that forget fast, and a level of all of them, which no label changes, that forgets slowly."""

    def draw(rng: np.random.Generator, event: tuple[int, ...]) -> np.ndarray:
        level = autoregressive(rng, (num_chains, num_draws, *(1,) * len(event)), 0.98)
        return autoregressive(rng, (num_chains, num_draws, *event), 0.5) + level

    return draw


def metastable(num_chains: int, num_draws: int, leave: float) -> Callable[..., np.ndarray]:
    """Units that forget fast about one of two modes, in each of which chains stay for 1/leave draws in the mean."""

    def draw(rng: np.random.Generator, event: tuple[int, ...]) -> np.ndarray:
        flips = rng.random((num_chains, num_draws)) < leave
        flips[:, 0] = rng.random(num_chains) < 0.5
        mode = (np.cumsum(flips, 1) % 2).reshape(num_chains, num_draws, *(1,) * len(event))
        return autoregressive(rng, (num_chains, num_draws, *event), 0.5) + 3.0 * mode

    return draw


def heavy(rate: float, degrees: float, num_chains: int, num_draws: int) -> Callable[..., np.ndarray]:
    """Student's t with so many degrees of freedom, of one for Cauchy's."""

    def draw(rng: np.random.Generator, event: tuple[int, ...]) -> np.ndarray:
        z = autoregressive(rng, (num_chains, num_draws, *event), rate)
        return stats.t.ppf(stats.norm.cdf(z), degrees)

    return draw


# name -> both sides' draws, whether they are known to be independent, whether labels switch within chains
NULLS: dict[str, tuple[Any, Any, tuple[str, ...], bool]] = {
    "independent": (chains(0.0, 1, 200), chains(0.0, 1, 200), ("a", "b"), True),
    "autoregressive": (chains(0.9, 4, 250), chains(0.9, 4, 250), (), False),
    "unequal lengths": (chains(0.9, 4, 500), chains(0.9, 4, 125), (), False),
    "switched": (chains(0.9, 4, 250), chains(0.9, 4, 250), (), True),
    "slow level": (slow_level(4, 500), slow_level(4, 500), (), True),
    "metastable, .01": (metastable(4, 500, 0.01), metastable(4, 500, 0.01), (), True),
    "metastable, .003": (metastable(4, 500, 0.003), metastable(4, 500, 0.003), (), True),
    "t2, independent": (heavy(0.0, 2.0, 1, 200), heavy(0.0, 2.0, 1, 200), ("a", "b"), True),
    "Cauchy, autoregressive": (heavy(0.9, 1.0, 4, 250), heavy(0.9, 1.0, 4, 250), (), True),
    "estimated": (chains(0.0, 4, 100), chains(0.0, 4, 100), (), True),
    "guide and chain": (chains(0.0, 1, 400), chains(0.9, 4, 250), ("a",), True),
    "two chains": (chains(0.9, 2, 500), chains(0.9, 2, 500), (), True),
}
WIDELY = ("independent", "autoregressive", "unequal lengths")


def null(group: str, kind: str, number: int, stream: int = 17) -> dict[str, Any]:
    """p-values of pairs of one law."""
    rng = np.random.default_rng([stream, list(GROUPS).index(group), list(NULLS).index(kind)])
    first, last, independent, switched = NULLS[kind]
    found = []
    for _ in trange(number, desc=f"{group}, {kind}", leave=False):
        at = centres(group, rng)
        a, b = (relabelled(group, rng, at + side(rng, at.shape), by_chain=not switched) for side in (first, last))
        found.append(compare(a, b, GROUPS[group], independent=independent))
    return summary(found)


def summary(found: list[Any]) -> dict[str, Any]:
    """Rates at which pairs are said to differ, of those that could be told, and what effects were read."""
    p = np.array([one.p_value for one in found])
    told = p[~np.isnan(p)]
    return {
        "pairs": len(p),
        "refused": float(np.isnan(p).mean()),
        "rates": {str(level): float((told <= level).mean()) for level in LEVELS} if len(told) else {},
        "uniform": float(stats.kstest(told, "uniform").pvalue) if len(told) else None,
        "by_distance": {
            name: float(np.mean([one.p_by_distance[name] <= 0.05 for one in found if one.p_by_distance]))
            for name in next((one.p_by_distance for one in found if one.p_by_distance), ())
        },
        "contributions": float(np.mean([any_entry(one) for one in found if one.p_by_distance] or [np.nan])),
        "effective": float(np.median([min(one.a.effective, one.b.effective) for one in found])),
        "effect": float(np.nanmedian([one.effect for one in found])) if len(told) else None,
        "floor": float(np.nanmedian([one.floor for one in found])) if len(told) else None,
        "p": np.round(p, 4).tolist(),
    }


def any_entry(found: Any) -> bool:
    """Whether a single entry's mean is said to differ."""
    return bool(found.contributions["unit"].sel(quantity="p_shift").min() <= 0.05)


# ---- two laws ----------------------------------------------------------------------------------------------------


def changed(x: np.ndarray, rng: np.random.Generator, change: str, size: float, mode: np.ndarray) -> np.ndarray:
    """Noise ``(chain, draw, unit, number)`` of which one unit is another."""
    y = x.copy()
    if change == "scale":
        y[..., 0, :] *= size
    if change == "correlation within":
        y[..., 0, 1] = size * x[..., 0, 0] + np.sqrt(1.0 - size**2) * x[..., 0, 1]
    if change == "correlation between":
        y[..., 1, :] = size * x[..., 0, :] + np.sqrt(1.0 - size**2) * x[..., 1, :]
    if change == "shift":
        y[..., 0, 0] += size
    if change == "mode":
        y[..., 0, :] += 3.0 / np.sqrt(x.shape[-1]) * (stats.norm.cdf(mode) < size)[..., None]
    return y


# what is the same on both sides without a change, and then with it
CHANGES = {
    "shift": (0.0, 0.8),
    "scale": (1.0, 1.8),
    "mode": (0.2, 0.45),
    "correlation within": (0.0, 0.85),
    "correlation between": (0.0, 0.85),
}


def power(change: str, rate: float, shape: tuple[int, int], numbers: int, separation: float, number: int) -> Any:
    """How often a change of one unit of five is seen, by `compare` and by the same test with the true labels."""
    rng = np.random.default_rng([18, list(CHANGES).index(change), int(100 * rate), *shape, numbers])
    symmetry, independent = GROUPS["permutations"], ("a", "b") if rate == 0.0 else ()
    found, oracle = [], []
    for _ in trange(number, desc=f"{change}, {rate}, {shape}", leave=False):
        at = separation * rng.standard_normal((5, numbers)) / np.sqrt(numbers)
        sides = []
        for size in CHANGES[change]:
            noise = autoregressive(rng, (*shape, 5, numbers), rate)
            sides.append(at + changed(noise, rng, change, size, autoregressive(rng, shape, rate)))
        found.append(compare(*(relabelled("permutations", rng, x) for x in sides), symmetry, independent=independent))
        known = ({"unit": x.reshape(*shape, 1, -1)} for x in sides)
        oracle.append(compare(*known, KNOWN, independent=independent))
    return {"compare": summary(found), "oracle": summary(oracle)}


def jobs() -> dict[str, Callable[[], dict[str, Any]]]:
    """Key -> what computes its record."""
    every: dict[str, Callable[[], dict[str, Any]]] = {}
    for kind in WIDELY:
        for group in GROUPS:
            every[f"null/{group}/{kind}"] = partial(null, group, kind, 200)
    for change in ("scale", "shift", "mode"):
        every[f"power/{change}/2"] = partial(power, change, 0.0, (1, 100), 2, 1.5, 60)
    for kind in NULLS:
        if kind not in (*WIDELY, "switched"):
            every[f"null/permutations/{kind}"] = partial(null, "permutations", kind, 60)
    for change in ("scale", "mode", "shift"):
        every[f"power/{change}/chains"] = partial(power, change, 0.9, (4, 250), 2, 1.5, 40)
    for draws in (100, 300, 1000):
        for change in ("correlation within", "correlation between"):
            every[f"power/{change}/{draws}"] = partial(power, change, 0.0, (1, draws), 2, 1.5, 40)
    for change in ("scale", "shift", "mode"):
        every[f"power/{change}/5"] = partial(power, change, 0.0, (1, 100), 5, 3.0, 60)
    # last, for no label changes a p-value
    every |= {f"null/{group}/switched": partial(null, group, "switched", 200) for group in GROUPS}
    # of forty-eight shares one was above its level and two errors: whether by chance, others say
    every["null/blocks/switched, afresh"] = partial(null, "blocks", "switched", 600, stream=18)
    return every


if __name__ == "__main__":
    records.run("compare", jobs(), only=sys.argv[1:])
