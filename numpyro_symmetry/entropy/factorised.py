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

import math
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.chunks import at_once, mapped
from numpyro_symmetry.entropy.guesses import Guess, guess_of, no_idea
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.units import Factors
from numpyro_symmetry.symmetry import Element, Hard, Symmetry, permutation_of
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.components import connected

# the most units whose labels are guessed: tables grow with the cube, and would take half of a training step or more
_MOST_GUESSED = 32
# nats: what a mixture of both orders may cost where signs tell nothing
_LEAST_COST = 1e-3


def connected_components(symmetry: Symmetry) -> list[Symmetry]:
    """Split a symmetry into parts that share no site: independent under a factorised guide, so their terms add."""
    parts = connected((site, names_in(entries)) for site, entries in symmetry.axes.items())
    return [
        symmetry.on_axes({site: symmetry.axes[site] for site in symmetry.axes if site in sites}) for _, sites in parts
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
    r"""Log probability that the chain of sequential proposals gives to the identity, nats.

    The signs of signed groups may be settled last, unit by unit given its label, or first,

    .. math:: \tau_1(s, \pi\mid\theta)
              = \prod_j \frac{\sum_i q_i(s_j u_j)}{\sum_i q_i(u_j) + q_i(-u_j)}\;\tau(\pi\mid s\theta),

    and then permutations as if there were no signs. A chain is the mixture of both: where signs are settled last,
    sketches do not know them. On one table, without sketches, nothing is lost by settling them last.

    Signs first, :math:`\log|G| + \operatorname{E}\log\tau_1` exceeds the bound without signs by
    :math:`S = \sum_j I(s_j; u_j)`, because each factor is the posterior of a sign given its unit alone. A mixture that
    gives this chain the weight :math:`e^{-b}` is below it by no more than b, so that with :math:`b\le S + 10^{-3}` the
    bound is nowhere lower than without signs, but for a thousandth of a nat. S is judged by the factors' means, which
    do not depend on the draw, so that the mixture stays blind; b is half of the S so judged, and small enough wherever
    that is at most twice too high. Where signs are easy to tell, hardly any weight is left to the chain that settles
    them first.
    """
    signs_last = _log_chain(symmetry, factors, coordinates, max_features=max_features)
    if not _mixes(symmetry):
        return signs_last
    log_last, log_first = _log_mixture(symmetry, factors, max_features=max_features)
    signs_first = _log_kept(_log_signs(symmetry, factors, coordinates, max_features=max_features))
    signs_first += _log_chain(symmetry.without_signs(), factors, coordinates, max_features=max_features)
    return jnp.logaddexp(log_last + signs_last, log_first + signs_first)


def _mixes(symmetry: Symmetry) -> bool:
    return not has_exact_table(symmetry) and any(group.signed for group in symmetry.groups.values())


def _log_mixture(symmetry: Symmetry, factors: Factors, *, max_features: int | None = None) -> tuple[Array, Array]:
    """Log weights of the chain whose signs are settled last, and of the one that settles them first."""
    log_signs = _log_signs(symmetry, factors, factors.loc, max_features=max_features)
    num_signs = sum(part.shape[1] for part in log_signs.values())
    # a sign is easier to tell at the mean than of a draw
    gained = 0.5 * jax.lax.stop_gradient(num_signs * math.log(2.0) + _log_kept(log_signs))
    cost = jnp.maximum(gained, _LEAST_COST)
    return jnp.log(-jnp.expm1(-cost)), -cost


def _log_chain(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None
) -> Array:
    """Log probability of the identity, each group's signs settled together with its permutation."""
    log_probability, placed = jnp.zeros(()), []
    guesses = _guesses(symmetry, factors, coordinates, max_features=max_features)
    for group in symmetry.groups:
        table = factors.tables(symmetry, coordinates, group, placed=placed, guesses=guesses, max_features=max_features)
        summed = sum_over_signs(table)
        log_probability += log_proposal_of_identity(summed)
        if len(table) == 2:
            log_probability += jnp.sum(jnp.diagonal(table[0] - summed))
        placed.append(group)
    return log_probability


def _guesses(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None = None
) -> dict[str, Guess]:
    """Guesses of the labels that an earlier group, or the group itself, meets unsettled; the last group's first."""
    guesses: dict[str, Guess] = {}
    names = list(symmetry.groups)
    together = [[axis.group for axis in symmetry.opened(site)] for site in symmetry.axes]
    for turn, name in reversed(list(enumerate(names))):
        if symmetry.sizes[name] > _MOST_GUESSED:
            continue
        if stands_twice := any(groups.count(name) > 1 for groups in together):
            guesses[name] = no_idea(symmetry.sizes[name], signed=symmetry.groups[name].signed)
        if stands_twice or any(name in groups and set(groups) & set(names[:turn]) for groups in together):
            guesses[name] = guess_of(
                factors.tables(symmetry, coordinates, name, guesses=guesses, max_features=max_features)
            )
    return guesses


def _log_signs(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None = None
) -> dict[str, Array]:
    """Log probability of each unit's sign, kept or flipped, ``(2, n)``, where nothing is known of any label."""
    found = {}
    for name, group in symmetry.groups.items():
        if not group.signed:
            continue
        # a sketch would not be the density of a unit, and a sign guessed by a sketch could be worse than unknown
        alone = {
            site: symmetry.axes[site]
            for site in symmetry.axes
            if [axis.group for axis in symmetry.opened(site) if axis.group is not None] == [name]
        }
        if not alone:
            found[name] = jnp.full((2, group.size), -math.log(2.0))
            continue
        of_units = replace(symmetry, axes=alone, kinds={name: group.kind}, sizes={name: group.size})
        tables = factors.tables(of_units, coordinates, name, max_features=max_features)
        log_densities = jnp.stack([logsumexp(table, axis=0) for table in tables])
        found[name] = log_densities - jnp.logaddexp(*log_densities)
    return found


def _log_kept(log_signs: dict[str, Array]) -> Array:
    """Log probability that no sign is flipped."""
    return sum((part[0].sum() for part in log_signs.values()), jnp.zeros(()))


def sample_chain(
    rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], num_samples: int
) -> tuple[Element, Array]:
    """Draw elements from the chain; returns them with batch ``(K,)`` and their log probabilities ``(K,)``."""
    keys, together = jax.random.split(rng_key, num_samples), at_once(size_of_tables(symmetry))
    # made from the draw alone, and so the same for all elements
    guesses = _guesses(symmetry, factors, coordinates)
    if not _mixes(symmetry):
        return mapped(lambda key: _sample_chain(key, symmetry, factors, coordinates, guesses), keys, together)
    log_last, _ = _log_mixture(symmetry, factors)

    def one(key: Array) -> tuple[Element, Array]:
        key_last, key_first, key_order = jax.random.split(key, 3)
        last, _ = _sample_chain(key_last, symmetry, factors, coordinates, guesses)
        first = _sample_signs_first(key_first, symmetry, factors, coordinates)
        is_last = jax.random.bernoulli(key_order, jnp.exp(log_last))
        element = jax.tree.map(lambda a, b: jnp.where(is_last, a, b), last, first)
        # the chain is blind to labels: an element is as probable as the identity is at the draw moved by the element
        return element, log_chain_of_identity(symmetry, factors, symmetry.apply(element, coordinates))

    return mapped(one, keys, together)


def _sample_signs_first(rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array]) -> Element:
    key_signs, key_chain = jax.random.split(rng_key)
    log_signs = _log_signs(symmetry, factors, coordinates)
    signs, identity = {}, symmetry.identity()
    for (name, part), key in zip(log_signs.items(), jax.random.split(key_signs, len(log_signs)), strict=True):
        signs[name] = 1 - 2 * jax.random.categorical(key, part, axis=0)
    turned = symmetry.apply(
        {name: Hard(permutation_of(part), signs.get(name)).part() for name, part in identity.items()},
        coordinates,
    )
    unsigned = symmetry.without_signs()
    permutations, _ = _sample_chain(key_chain, unsigned, factors, turned, _guesses(unsigned, factors, turned))
    return {
        name: Hard(part, signs[name][part] if name in signs else None).part() for name, part in permutations.items()
    }


def _sample_chain(
    rng_key: Array,
    symmetry: Symmetry,
    factors: Factors,
    coordinates: dict[str, Array],
    guesses: Mapping[str, Guess],
) -> tuple[Element, Array]:
    """One element of the chain in which each group's signs are settled together with its permutation."""
    element, log_probability, placed = symmetry.identity(), jnp.zeros(()), []
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
