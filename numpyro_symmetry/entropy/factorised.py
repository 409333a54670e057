r"""Unit tables and chained proposals for Gaussians that factorise over units, or over every entry of every site.

For one group the table of pairwise unit log densities is two matrix products and nothing larger is ever formed. Groups
that meet in a site (the layers of a network) are placed one after the other,

.. math:: \tau(g_1)\,\tau(g_2 \mid g_1)\cdots

Where a site also carries a group not yet placed, each unit along it is given one Gaussian, of the mean and variance of
the factors that it may have by what is guessed of its label. A guess is relabelled with the draw that it is made from
and does not see the labels still to be chosen, so the chain stays a strict bound.

Knows coordinates, and the factors of a density by site. Whether they *are* the guide's density or only resemble it,
and which coordinates they are, is the caller's business.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.chunks import at_once, mapped
from numpyro_symmetry.entropy.guesses import Guess, guess_of, no_idea
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.tables import Factors
from numpyro_symmetry.symmetry import Element, Hard, Symmetry
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.components import connected

# units of a layer: of more a guess takes a third of a step or all of it, and units of trained guides are told apart by
# what is their own, so that one sketch of all others loses one or two in a hundred nats. Signs it could not know
_MOST_GUESSED = 32


def connected_components(symmetry: Symmetry) -> list[Symmetry]:
    """Split a symmetry into parts that share no site: independent under a factorised guide, so their terms add."""
    parts = connected((site, names_in(entries)) for site, entries in symmetry.axes.items())
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
    factors: Factors,
    coordinates: dict[str, Array],
    *,
    max_features: int | None = None,
) -> Array:
    """Log probability that the chain of sequential proposals gives to the identity, nats.

    The signs of a signed group are settled together with its permutation: summed out where units are placed, and then
    drawn unit by unit given its label.
    """
    log_probability, placed = jnp.zeros(()), []
    guesses = _guesses(symmetry, factors, coordinates, max_features=max_features)
    for group in symmetry.groups:
        options = {"placed": placed, "guesses": guesses, "max_features": max_features}
        table = factors.tables(symmetry, coordinates, group, **options)
        summed = sum_over_signs(table)
        log_probability += log_proposal_of_identity(summed)
        if len(table) == 2:
            log_probability += jnp.sum(jnp.diagonal(table[0] - summed))
        placed.append(group)
    return log_probability


def _guesses(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None = None
) -> dict[str, Guess]:
    """What is guessed of the labels that some group before, or the group itself, meets unsettled; of the last first."""
    guesses: dict[str, Guess] = {}
    names = list(symmetry.groups)
    together = [[axis.group for axis in symmetry.opened(site)] for site in symmetry.axes]
    for turn, name in reversed(list(enumerate(names))):
        if itself := any(groups.count(name) > 1 for groups in together):
            guesses[name] = no_idea(symmetry.sizes[name], symmetry.groups[name].signed)
        worth = symmetry.groups[name].signed or symmetry.sizes[name] <= _MOST_GUESSED
        if itself or (worth and any(name in groups and set(groups) & set(names[:turn]) for groups in together)):
            options = {"guesses": guesses, "max_features": max_features}
            guesses[name] = guess_of(factors.tables(symmetry, coordinates, name, **options))
    return guesses


def sample_chain(
    rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], num_samples: int
) -> tuple[Element, Array]:
    """Draw elements from the chain; returns them with batch ``(K,)`` and their log probabilities ``(K,)``."""
    keys, together = jax.random.split(rng_key, num_samples), at_once(size_of_tables(symmetry))
    return mapped(lambda key: _sample_chain(key, symmetry, factors, coordinates), keys, together)


def _sample_chain(
    rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array]
) -> tuple[Element, Array]:
    """One element of the chain, and its log probability."""
    element, log_probability, placed = symmetry.identity(), jnp.zeros(()), []
    guesses = _guesses(symmetry, factors, coordinates)
    for group, key_group in zip(symmetry.groups, jax.random.split(rng_key, len(symmetry.groups)), strict=True):
        key_permutation, key_sign = jax.random.split(key_group)
        moved = symmetry.apply(element, coordinates)
        table = factors.tables(symmetry, moved, group, placed=placed, guesses=guesses)
        summed = sum_over_signs(table)
        permutations, log_proposals = sample_proposal(key_permutation, summed, 1)
        permutation, log_probability = permutations[0], log_probability + log_proposals[0]
        sign = None
        if len(table) == 2:
            rows = jnp.arange(summed.shape[0])
            log_signs = jnp.stack([part[rows, permutation] - summed[rows, permutation] for part in table])
            flip = jax.random.categorical(key_sign, log_signs, axis=0)
            log_probability += jnp.take_along_axis(log_signs, flip[None], 0).sum()
            sign = 1 - 2 * flip
        element[group] = Hard(permutation, sign).part()
        placed.append(group)
    return element, log_probability


def size_of_tables(symmetry: Symmetry) -> int:
    """How many numbers the tables of a symmetry's groups hold."""
    return sum(size**2 for size in symmetry.sizes.values())


def sum_over_signs(tables: tuple[Array, ...]) -> Array:
    """One table from a signed pair: a unit's sign is summed out exactly, only its label is hard."""
    return jnp.logaddexp(*tables) if len(tables) == 2 else tables[0]


def log_ratio(symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], element: Element) -> Array:
    """Log density of the moved draw less that of the draw, nats: entries are subtracted before they are summed."""
    before = factors.standardised(symmetry, coordinates)
    after = factors.standardised(symmetry, symmetry.apply(element, coordinates))
    return sum((0.5 * jnp.sum((before[s] - after[s]) * (before[s] + after[s])) for s in before), jnp.zeros(()))
