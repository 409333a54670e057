r"""Unit tables and chained proposals for Gaussians that factorise over every entry of every site.

For one group the table of pairwise unit log densities is two matrix products and nothing larger is ever formed. Groups
that meet in a site (the layers of a network) are placed one after the other,

.. math:: \tau(g_1)\,\tau(g_2 \mid g_1)\cdots

Where a site also carries a group not yet placed, the factors along it are replaced by one Gaussian of their mean and
variance. That sketch does not see the labels still to be chosen, so the chain stays a strict bound.

Knows coordinates, means and standard deviations by site. Whether they *are* the guide's density or only resemble it,
and which coordinates they are, is the caller's business.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.tables import GaussianFactors, unit_tables
from numpyro_symmetry.symmetry import Element, SignedPermutation, Symmetry


def connected_components(symmetry: Symmetry) -> list[Symmetry]:
    """Split a symmetry into parts that share no site: independent under a factorised guide, so their terms add."""
    parts: list[tuple[set[str], list[str]]] = []
    for site in symmetry.axes:
        here = {axis.group for axis in symmetry.opened(site) if axis.group is not None}
        joined = [part for part in parts if part[0] & here]
        rest = [part for part in parts if not part[0] & here]
        if here:
            parts = [*rest, (here.union(*(g for g, _ in joined)), [s for _, sites in joined for s in sites] + [site])]
    return [
        Symmetry(
            {site: symmetry.axes[site] for site in symmetry.axes if site in sites},
            {name: kind for name, kind in symmetry.kinds.items() if name in groups},
            {name: size for name, size in symmetry.sizes.items() if name in groups},
        )
        for groups, sites in parts
    ]


def has_exact_table(component: Symmetry) -> bool:
    """Whether the density at every relabelling follows from one table: a single group, once in each site."""
    return len(component.groups) == 1 and all(
        sum(axis.group is not None for axis in component.opened(site)) == 1 for site in component.axes
    )


def log_chain_of_identity(
    symmetry: Symmetry,
    factors: GaussianFactors,
    coordinates: dict[str, Array],
    *,
    max_features: int | None = None,
) -> Array:
    """Log probability that the chain of sequential proposals gives to the identity, nats."""
    log_probability, placed = jnp.zeros(()), []
    for group in symmetry.groups:
        table = unit_tables(symmetry, factors, coordinates, group, placed=placed, max_features=max_features)
        summed = sum_over_signs(table)
        log_probability += log_proposal_of_identity(summed)
        if len(table) == 2:
            log_probability += jnp.trace(table[0]) - jnp.trace(summed)
        placed.append(group)
    return log_probability


def sample_chain(
    rng_key: Array, symmetry: Symmetry, factors: GaussianFactors, coordinates: dict[str, Array], num_samples: int
) -> tuple[Element, Array]:
    """Draw elements from the chain; returns them with batch ``(K,)`` and their log probabilities ``(K,)``."""

    def one(key: Array) -> tuple[Element, Array]:
        element, log_probability, placed = symmetry.identity(), jnp.zeros(()), []
        for group, key_group in zip(symmetry.groups, jax.random.split(key, len(symmetry.groups)), strict=True):
            key_permutation, key_sign = jax.random.split(key_group)
            moved = symmetry.apply(element, coordinates)
            table = unit_tables(symmetry, factors, moved, group, placed=placed)
            summed = sum_over_signs(table)
            permutations, log_proposals = sample_proposal(key_permutation, summed, 1)
            permutation, log_probability = permutations[0], log_probability + log_proposals[0]
            element[group] = permutation
            if len(table) == 2:
                rows = jnp.arange(summed.shape[0])
                log_signs = jnp.stack([part[rows, permutation] - summed[rows, permutation] for part in table])
                flip = jax.random.categorical(key_sign, log_signs, axis=0)
                log_probability += jnp.take_along_axis(log_signs, flip[None], 0).sum()
                element[group] = SignedPermutation(permutation, 1 - 2 * flip)
            placed.append(group)
        return element, log_probability

    return jax.vmap(one)(jax.random.split(rng_key, num_samples))


def sum_over_signs(tables: tuple[Array, ...]) -> Array:
    """One table from a signed pair: a unit's sign is summed out exactly, only its label is hard."""
    return jnp.logaddexp(*tables) if len(tables) == 2 else tables[0]


def log_ratio(symmetry: Symmetry, factors: GaussianFactors, coordinates: dict[str, Array], element: Element) -> Array:
    """Log density of the moved draw less that of the draw, nats: entries are subtracted before they are summed."""
    moved = symmetry.apply(element, coordinates)
    total = jnp.zeros(())
    for site in symmetry.axes:
        loc, scale = factors.loc[site], factors.scale[site]
        before, after = (coordinates[site] - loc) / scale, (moved[site] - loc) / scale
        total += 0.5 * jnp.sum((before - after) * (before + after))
    return total
