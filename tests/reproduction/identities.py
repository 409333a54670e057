"""Exact statements of Rossi et al. (2023) and Xiao et al. (2023): assignments, standard deviations, transpositions.

    python -m tests.reproduction.identities

Results go to tests/reproduction/results/rossi_identities.json and are not run again.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry import DiagonalGaussian, Symmetry, inverse, match, num_transpositions
from tests.reproduction import records

PROBLEMS, WIDTH = 50, 6


def gaussian(rng: np.random.Generator, sizes: tuple[int, ...]) -> DiagonalGaussian:
    """A mean-field fit of a network with random means and standard deviations."""
    shapes = {f"w{k}": (a, b) for k, (a, b) in enumerate(itertools.pairwise(sizes), 1)}
    shapes |= {f"b{k}": (b,) for k, b in enumerate(sizes[1:], 1)}
    loc = {site: jnp.asarray(rng.normal(size=shape)) for site, shape in shapes.items()}
    return DiagonalGaussian(loc, {site: jnp.asarray(rng.uniform(0.1, 2.0, shape)) for site, shape in shapes.items()})


def distances(bound: Symmetry, a: DiagonalGaussian, b: DiagonalGaussian, permutations: jax.Array) -> jax.Array:
    """Squared Wasserstein distances from ``a`` to relabelled copies of ``b``, by hand."""

    def one(permutation: jax.Array) -> jax.Array:
        moved = b.apply(bound, {"hidden": permutation})
        pairs = (
            (own[site], other[site]) for own, other in ((a.loc, moved.loc), (a.scale, moved.scale)) for site in own
        )
        return sum((jnp.sum((x - y) ** 2) for x, y in pairs), jnp.zeros(()))

    return jax.jit(jax.vmap(one))(permutations)


def assignment() -> dict[str, Any]:
    """One hidden layer against all relabellings; several layers against a planted one."""
    rng, symmetry = np.random.default_rng(0), Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    agree = monotone = 0
    everything = jnp.asarray(list(itertools.permutations(range(WIDTH))))
    for _ in range(PROBLEMS):
        a, b = (gaussian(rng, (3, WIDTH, 2)) for _ in range(2))
        bound = symmetry.bind(a.loc)
        found = match(a, b, symmetry)
        everywhere = distances(bound, a, b, everything)
        here = distances(bound, a, b, jnp.asarray(found.element["hidden"])[None])[0]
        agree += bool(here <= everywhere.min() * (1 + 1e-5))
        monotone += bool(a.wasserstein(b.apply(bound, found.element)) <= a.wasserstein(b) + 1e-5)
    planted = recovered = 0
    for depth, seed in itertools.product((1, 2, 3), range(10)):
        rng = np.random.default_rng([depth, seed])
        layers = Symmetry.mlp([(f"w{k}", f"b{k}") for k in range(1, depth + 2)])
        a = gaussian(rng, (3, *[20] * depth, 2))
        bound = layers.bind(a.loc)
        g = bound.sample(jax.random.key(seed))
        back = match(a, a.apply(bound, g), layers).element
        planted += 1
        recovered += all(np.array_equal(back[name], inverse(g)[name]) for name in g)
    return {
        "problems": PROBLEMS,
        "agree": agree,
        "monotone": monotone,
        "planted": planted,
        "planted_recovered": recovered,
    }


def descent() -> dict[str, Any]:
    """Squared distances of random pairs of two and three hidden layers: before, and after one and two descents."""
    rows = []
    for depth, seed in itertools.product((2, 3), range(PROBLEMS // 2)):
        rng = np.random.default_rng([depth, seed])
        layers = Symmetry.mlp([(f"w{k}", f"b{k}") for k in range(1, depth + 2)])
        a, b = (gaussian(rng, (3, *[WIDTH] * depth, 2)) for _ in range(2))
        row = [float(a.wasserstein(b) ** 2)]
        for _ in range(2):
            b = b.apply(layers.bind(a.loc), match(a, b, layers, method="descent").element)
            row.append(float(a.wasserstein(b) ** 2))
        rows.append(row)
    return {"squared_distances": rows}


def deviations() -> dict[str, Any]:
    """Equal means, standard deviations exchanged."""
    symmetry = Symmetry({"w": ("unit",)})
    a, b = (DiagonalGaussian({"w": jnp.zeros(2)}, {"w": jnp.array(scale)}) for scale in ([1.0, 4.0], [4.0, 1.0]))
    return {
        f"{cost}_swaps": match(a, b, symmetry, cost=cost).element["unit"].tolist() == [1, 0]
        for cost in ("wasserstein", "kl")
    }


def transpositions() -> dict[str, Any]:
    """The paper's example, the random baseline, and inverses."""
    draws = Symmetry({"w": ("unit",)}).bind({"w": np.zeros(512)}).sample(jax.random.key(0), (5000,))
    counts = np.asarray(num_transpositions(draws)["unit"], float)
    example = {"unit": jnp.array([3, 0, 4, 1, 2])}
    return {
        "example": int(num_transpositions(example)["unit"]),
        "mean_512": float(counts.mean()),
        "error_512": float(counts.std(ddof=1) / len(counts) ** 0.5),
        "expected_512": 512 - sum(1 / k for k in range(1, 513)),
        "inverse_agrees": bool((np.asarray(num_transpositions(inverse(draws))["unit"]) == counts).all()),
    }


def main() -> None:
    """Run what has not been run."""
    jobs = {"assignment": assignment, "descent": descent, "deviations": deviations, "transpositions": transpositions}
    records.run("rossi_identities", jobs)


if __name__ == "__main__":
    main()
