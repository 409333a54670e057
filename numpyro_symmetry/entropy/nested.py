r"""Proposals where blocks move, and units in each of them: blocks by what all labels of their units are worth together.

.. math:: \tau(h, u\mid\theta) = \tau(h\mid A(\theta)) \prod_i \tau(u_i\mid h, \theta), \qquad
          A_{ij} \approx \log\frac1{|G_i|}\sum_u q_i(u\,\theta_j)

No entry of :math:`A` depends on labels within blocks, and the steps that read it are blind to those of blocks, so the
chain is a distribution that never sees the label: its bound is strict however rough :math:`A` is. Knows factors of a
density by site, as `factorised` does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from numpyro_symmetry.chunks import at_once, mapped
from numpyro_symmetry.entropy.factorised import (
    connected_components,
    has_exact_table,
    log_chain_of_identity,
    sample_chain,
    size_of_tables,
    sum_over_signs,
)
from numpyro_symmetry.entropy.permanent import log_permanent
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.tables import GaussianFactors
from numpyro_symmetry.entropy.units import Factors
from numpyro_symmetry.symmetry import Element, Hard, Symmetry, Unsigned

# up to so many units of a block, or blocks, are summed over exactly; more units by the tighter of two products of means
_MAX_EXACT = 10
# a proposal that is better by x nats at the factors' means leaves the others a weight of e to the minus this times x
_SHARPNESS = 4.0


def is_nested(symmetry: Symmetry) -> bool:
    """Whether units move in blocks that move."""
    return any("/" in name for name in symmetry.groups)


def log_probability_of_identity(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None = None
) -> Array:
    """Log probability that proposals, one for each part, nested or not, give to the identity, nats."""
    if not is_nested(symmetry):
        return log_chain_of_identity(symmetry, factors, coordinates, max_features=max_features)
    parts = connected_components(symmetry)
    chains = ((_log_mixture_of_identity if is_nested(part) else log_chain_of_identity, part) for part in parts)
    return sum((of(part, factors, coordinates, max_features=max_features) for of, part in chains), jnp.zeros(()))


def sample(
    rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], num_samples: int
) -> tuple[Element, Array, Array]:
    """Draw elements ``(K,)`` part by part, nested or not; with their log probabilities, and that of the identity."""
    element, logs, of_identity = {}, jnp.zeros(num_samples), jnp.zeros(())
    parts = connected_components(symmetry) if is_nested(symmetry) else [symmetry]
    keys = jax.random.split(rng_key, len(parts)) if len(parts) > 1 else [rng_key]
    for key, part in zip(keys, parts, strict=True):
        draw, of = (sample_nested, log_nested_of_identity) if is_nested(part) else (sample_chain, log_chain_of_identity)
        drawn, log_probabilities = draw(key, part, factors, coordinates, num_samples)
        element, logs = element | drawn, logs + log_probabilities
        of_identity += of(part, factors, coordinates)
    return {name: element[name] for name in symmetry.groups}, logs, of_identity


def log_nested_of_identity(symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array]) -> Array:
    """Log probability that the chain over blocks, and over units in each, gives to the identity, nats."""
    blocks = _Blocks.of(symmetry, factors, coordinates)
    return log_proposal_of_identity(blocks.table(None)) + blocks.log_units(None)


def _log_mixture_of_identity(
    symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], *, max_features: int | None = None
) -> Array:
    r"""Log probability of the identity, mixed so as not to be lower than with one level placed and the other uniform.

    If all :math:`\tau_k` are blind to labels, so is :math:`\sum_k w_k \tau_k` with weights that do not depend on the
    draw. Weights are judged at the factors' means, and fall to one side as soon as one proposal is better there.
    """
    blocks = _Blocks.of(symmetry, factors, coordinates)
    if blocks.are_exact:
        return _log_identity(blocks.table(max_features)) + blocks.log_units(max_features, exactly=True)
    judged = _of_each(symmetry, factors, _Blocks.of(symmetry, factors, factors.loc), factors.loc, max_features)
    weights = jax.nn.log_softmax(_SHARPNESS * jax.lax.stop_gradient(judged))
    return logsumexp(weights + _of_each(symmetry, factors, blocks, coordinates, max_features))


def _of_each(
    symmetry: Symmetry, factors: Factors, blocks: _Blocks, coordinates: dict[str, Array], max_features: int | None
) -> Array:
    """``(3,)`` log probabilities of the identity: with both levels placed, with blocks alone, and with units alone."""
    units, both = blocks.log_units(max_features, exactly=True), _log_identity(blocks.table(max_features))
    (as_they_are,) = factors.tables(
        symmetry, coordinates, blocks.root, placed=list(symmetry.groups), max_features=max_features
    )
    log_order = math.lgamma(symmetry.sizes[blocks.root] + 1)
    alone = _log_identity(as_they_are) - (symmetry.log_order() - log_order)
    return jnp.stack([both + units, alone, units - log_order])


def _log_identity(table: Array) -> Array:
    """Log probability of the identity: by the posterior itself if the table is narrow, else by the proposal."""
    is_narrow = table.shape[-1] <= _MAX_EXACT
    return jnp.trace(table) - log_permanent(table) if is_narrow else log_proposal_of_identity(table)


def sample_nested(
    rng_key: Array, symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array], num_samples: int
) -> tuple[Element, Array]:
    """Draw elements from the chain; returns them with batch ``(K,)`` and their log probabilities ``(K,)``."""
    blocks = _Blocks.of(symmetry, factors, coordinates)
    table = blocks.table(None)
    n = table.shape[-1]

    def units(key: Array, factors: GaussianFactors, draw: dict[str, Array]) -> tuple[Element, Array]:
        element, log_probability = sample_chain(key, blocks.inner, factors, draw, 1)
        return jax.tree.map(lambda x: x[0], element), log_probability[0]

    def drawn(key: Array) -> tuple[Element, Array]:
        key_blocks, key_units = jax.random.split(key)
        chosen, log_probability = sample_proposal(key_blocks, table, 1)
        brought = {site: x[chosen[0]] for site, x in blocks.draw.items()}
        inner, log_units = jax.vmap(units)(jax.random.split(key_units, n), blocks.factors, brought)
        element = {name: inner[name.removeprefix(f"{blocks.root}/")] for name in symmetry.groups if name != blocks.root}
        return {blocks.root: Hard(chosen[0]).part(), **element}, log_probability[0] + log_units.sum()

    together = at_once(n**2 + n * size_of_tables(blocks.inner))
    return mapped(drawn, jax.random.split(rng_key, num_samples), together)


class _Blocks(NamedTuple):
    """The factors and the draw, block by block.

    Attributes
    ----------
    root
        The group that moves blocks.
    inner
        The symmetry of the units in one block.
    factors, draw
        Of the sites on which units move, with the axis of blocks in front.
    apart
        ``(n, n)``: log densities of blocks at all other sites.
    """

    root: str
    inner: Symmetry
    factors: GaussianFactors
    draw: dict[str, Array]
    apart: Array

    @staticmethod
    def of(symmetry: Symmetry, factors: Factors, coordinates: dict[str, Array]) -> _Blocks:
        """Cut a part of a symmetry in which one group moves blocks, and all others move units in them."""
        assert isinstance(factors, GaussianFactors)
        (root,) = (name for name in symmetry.groups if "/" not in name)
        prefix = f"{root}/"

        def front(value: Array, axes: list[str | None]) -> Array:
            return jnp.moveaxis(value, axes.index(root) - len(axes), 0)

        axes, loc, scale, draw, alone = {}, {}, {}, {}, {}
        for site, entries in symmetry.axes.items():
            names = [axis.group for axis in symmetry.opened(site)]
            if not any(name != root for name in names if name is not None):
                alone[site] = entries
                continue
            rest = [axis for axis in symmetry.opened(site) if axis.group != root]
            own = [axis.group.removeprefix(prefix) if axis.group else None for axis in rest]
            signed = [axis.signed or not axis.group or not symmetry.groups[axis.group].signed for axis in rest]
            axes[site] = tuple(
                name if name is None or is_signed else Unsigned(name)
                for name, is_signed in zip(own, signed, strict=True)
            )
            loc[site], scale[site] = front(factors.loc[site], names), front(factors.scale[site], names)
            draw[site] = front(coordinates[site], names)
        within = {name: name.removeprefix(prefix) for name in symmetry.groups if name != root}
        kinds = {within[name]: kind for name, kind in symmetry.kinds.items() if name in within}
        inner = Symmetry(axes, kinds, {within[name]: symmetry.sizes[name] for name in within})
        n = symmetry.sizes[root]
        apart = jnp.zeros((n, n))
        if alone:
            (apart,) = factors.tables(Symmetry(alone, {}, {root: n}), coordinates, root)
        return _Blocks(root, inner, GaussianFactors(loc, scale), draw, apart)

    @property
    def are_exact(self) -> bool:
        """Whether both levels are narrow enough to be placed by their posteriors."""
        apart = all(has_exact_table(part) for part in connected_components(self.inner))
        return apart and max(len(self.apart), *self.inner.sizes.values()) <= _MAX_EXACT

    def log_units(self, max_features: int | None, *, exactly: bool = False) -> Array:
        """Log probability that units keep their labels, given those of blocks; of posteriors where ``exactly``."""

        def one(factors: GaussianFactors, draw: dict[str, Array]) -> Array:
            if not exactly:
                return log_chain_of_identity(self.inner, factors, draw, max_features=max_features)
            return sum(
                (_log_units(part, factors, draw, max_features) for part in connected_components(self.inner)),
                jnp.zeros(()),
            )

        return jax.vmap(one)(self.factors, self.draw).sum()

    def table(self, max_features: int | None) -> Array:
        """``[i, j]``: about the log density of block j in slot i, averaged over the labels of its units."""
        components = connected_components(self.inner)

        def pair(factors: GaussianFactors, draw: dict[str, Array]) -> Array:
            return sum((_log_mean(part, factors, draw, max_features) for part in components), jnp.zeros(()))

        over_draws = jax.vmap(pair, (None, 0))
        return self.apart + jax.vmap(over_draws, (0, None))(self.factors, self.draw)


def _log_units(part: Symmetry, factors: GaussianFactors, draw: dict[str, Array], max_features: int | None) -> Array:
    if not has_exact_table(part) or max(part.sizes.values()) > _MAX_EXACT:
        return log_chain_of_identity(part, factors, draw, max_features=max_features)
    (name,) = part.groups
    tables = factors.tables(part, draw, name, max_features=max_features)
    return jnp.trace(tables[0]) - log_permanent(sum_over_signs(tables))


def _log_mean(part: Symmetry, factors: GaussianFactors, draw: dict[str, Array], max_features: int | None) -> Array:
    """About the log of the density's mean over all labels; exact for one group of a few units."""
    exact, total = has_exact_table(part), jnp.zeros(())
    for name in part.groups:
        table = sum_over_signs(factors.tables(part, draw, name, max_features=max_features))
        n = table.shape[-1]
        if exact and n <= _MAX_EXACT:
            return log_permanent(table) - math.lgamma(n + 1)
        total += jnp.minimum(*(logsumexp(table, axis=axis).sum() - n * math.log(n) for axis in (0, 1)))
    return total
