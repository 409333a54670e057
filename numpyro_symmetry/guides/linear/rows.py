r"""Gaussian linear models in whitened form: :math:`\rho = Az + \epsilon`, with z and :math:`\epsilon` standard normal.

A row of :math:`\rho` is a residual over its standard deviation, a column of A a parameter over its own. Then z has the
precision :math:`\Lambda = I + A^\top A` and the mean :math:`\Lambda^{-1}A^\top\rho`, worked out in the smaller of the
two spaces, parameters or rows. Several outputs with one A are columns of :math:`\rho` and z. Knows arrays only, neither
models nor guides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.linalg import gram_factor, log_determinant, product, solve_positive, solve_triangular

# with one, in single precision, means are a posterior standard deviation off where inputs are all near 10,000
_CORRECTIONS = 2


class ByParameters(NamedTuple):
    r"""A precision :math:`\Lambda = CC^\top`, of order P.

    Attributes
    ----------
    factor
        C, ``(P, P)``, lower triangular.
    """

    factor: Array

    def sample(self, rng_key: Array, shape: tuple[int, ...]) -> Array:
        r"""Draw from :math:`N(0, \Lambda^{-1})`: :math:`C^{-\top}e`."""
        return solve_triangular(self.factor, jax.random.normal(rng_key, shape, self.factor.dtype), transposed=True)

    def log_prob_by_entry(self, deviation: Array) -> Array:
        """The log density in parts: entry by entry, each given those after it."""
        own = _by_entry(jnp.log(jnp.diagonal(self.factor)), self.whitened(deviation) ** 2)
        return own - 0.5 * math.log(2.0 * math.pi)

    def whitened(self, deviation: Array) -> Array:
        r"""Numbers whose squares add up to :math:`\delta^\top\Lambda\delta`, column by column."""
        return product(self.factor.T, deviation)


class ByRows(NamedTuple):
    r"""The precision :math:`\Lambda = I + A^\top A` by the covariance of the rows, :math:`B = I + AA^\top = LL^\top`.

    Draws are Matheron's, :math:`z_0 - A^\top B^{-1}(Az_0 + \epsilon)` with :math:`z_0, \epsilon` standard normal, and
    :math:`\det\Lambda = \det B`.

    Attributes
    ----------
    slope
        A, ``(N, P)``.
    factor
        L, ``(N, N)``.
    """

    slope: Array
    factor: Array

    @classmethod
    def of(cls, slope: Array) -> ByRows:
        """Factorise."""
        return cls(slope, gram_factor(slope.T))

    def mean(self, residual: Array) -> Array:
        r""":math:`\Lambda^{-1}A^\top\rho = A^\top B^{-1}\rho`."""
        # the mean is summed apart from the rows that it is made of: these may be large where it is not, and are rounded
        rows = solve_positive(self.factor, residual)
        mean = product(self.slope.T, rows)
        for _ in range(_CORRECTIONS):
            rows, mean = jax.lax.stop_gradient((rows, mean))
            of_rows = product(self.slope.T, rows)
            mean = mean + (of_rows - jax.lax.stop_gradient(of_rows))
            step = solve_positive(self.factor, residual - rows - product(self.slope, mean))
            rows, mean = rows + step, mean + product(self.slope.T, step)
        return mean

    def sample(self, rng_key: Array, shape: tuple[int, ...]) -> Array:
        r"""Draw from :math:`N(0, \Lambda^{-1})`."""
        key_prior, key_noise = jax.random.split(rng_key)
        prior = jax.random.normal(key_prior, shape, self.slope.dtype)
        rows = product(self.slope, prior)
        return prior - self.mean(rows + jax.random.normal(key_noise, rows.shape, rows.dtype))

    def log_prob_by_entry(self, deviation: Array) -> Array:
        """The log density in parts: to each entry its own, and a share of the rows that it moves.

        What is independent of others gets its own: it shares its rows with no other.
        """
        weights = self.slope**2
        shares = weights / jnp.maximum(weights.sum(1, keepdims=True), jnp.finfo(weights.dtype).tiny)
        of_rows = _by_entry(jnp.log(jnp.diagonal(self.factor)), product(self.slope, deviation) ** 2)
        return product(shares.T, of_rows) - 0.5 * (deviation**2 + math.log(2.0 * math.pi))

    def whitened(self, deviation: Array) -> Array:
        r"""Numbers whose squares add up to :math:`\delta^\top\Lambda\delta`, column by column."""
        return jnp.concatenate([deviation, product(self.slope, deviation)])


Precision = ByParameters | ByRows
Draw = Callable[[str, Array, Precision], Array]
Blocks = dict[str, Array]


def _by_entry(log_scales: Array, squares: Array) -> Array:
    log_scales = log_scales.reshape(-1, *[1] * (squares.ndim - 1))
    return log_scales - 0.5 * squares


def log_prob(precision: Precision, deviation: Array) -> Array:
    """Log density of a deviation from the mean, nats, over all columns."""
    columns, square = math.prod(deviation.shape[1:]), jnp.sum(precision.whitened(deviation) ** 2)
    return 0.5 * (columns * log_determinant(precision.factor) - square - deviation.size * math.log(2.0 * math.pi))


class Together(NamedTuple):
    """All blocks of z by the factor of their joint precision.

    Attributes
    ----------
    slopes
        Block -> its columns of A, ``(N, P_k)``.
    factor
        C, the last block first: so its rows give each block the precision it has given those before it.
    """

    slopes: Blocks
    factor: Array

    def mean(self, residual: Array) -> Blocks:
        """Means of the blocks, corrected by solving again for the residual: the factor alone loses digits twice.

        References
        ----------
        Björck (1987), Stability analysis of the method of seminormal equations, *Linear Algebra and its Applications*
        88–89.
        """
        slope = _side_by_side(self.slopes)
        z = solve_positive(self.factor, product(slope.T, residual))
        for _ in range(_CORRECTIONS):
            # added to any constant a correction gives the solution: derivatives are those of the last one alone
            z = jax.lax.stop_gradient(z)
            z = z + solve_positive(self.factor, product(slope.T, residual - product(slope, z)) - z)
        return {name: z[own] for name, own in _places(self.slopes).items()}

    def draw(self, loc: Blocks, draw: Draw) -> Blocks:
        """Draw the blocks one after the other, each given those before it."""
        drawn: Blocks = {}
        offset = jnp.zeros((0, *next(iter(loc.values())).shape[1:]), self.factor.dtype)
        for name, own in _places(self.slopes).items():
            precision = self.factor[own, own]
            shift = solve_triangular(precision, product(self.factor[own.stop :, own].T, offset), transposed=True)
            drawn[name] = draw(name, loc[name] - shift, ByParameters(precision))
            offset = jnp.concatenate([drawn[name] - loc[name], offset])
        return drawn

    def coefficients(self) -> dict[str, Blocks]:
        """Block -> block drawn before it -> how a deviation of that lowers the mean of this, ``(P_k, P_l)``."""
        found: dict[str, Blocks] = {}
        places = _places(self.slopes)
        for name, own in places.items():
            rows, before = self.factor[own.stop :, own].T, {other: places[other] for other in found}
            lowers = solve_triangular(self.factor[own, own], rows, transposed=True) if before else rows
            found[name] = {other: lowers[:, at.start - own.stop : at.stop - own.stop] for other, at in before.items()}
        return found


class WidestLast(NamedTuple):
    """One wide block by its rows, given narrow ones with the wide one integrated out.

    Attributes
    ----------
    slopes
        Narrow block -> its columns of A.
    narrow
        The narrow blocks, with the wide one as a part of the noise, if there are any.
    wide
        The wide block -> its precision, given the narrow ones.
    """

    slopes: Blocks
    narrow: Together | WidestLast | None
    wide: dict[str, ByRows]

    def mean(self, residual: Array) -> Blocks:
        """Means of the blocks."""
        ((name, precision),) = self.wide.items()
        loc = {} if self.narrow is None else self.narrow.mean(solve_triangular(precision.factor, residual))
        return loc | {name: precision.mean(residual - self._rows(loc))}

    def draw(self, loc: Blocks, draw: Draw) -> Blocks:
        """Draw the blocks one after the other, each given those before it."""
        drawn = {} if self.narrow is None else self.narrow.draw({name: loc[name] for name in self.slopes}, draw)
        ((name, precision),) = self.wide.items()
        own = loc[name]
        if drawn:
            own = own - precision.mean(self._rows({other: drawn[other] - loc[other] for other in drawn}))
        return drawn | {name: draw(name, own, precision)}

    def coefficients(self) -> dict[str, Blocks]:
        """Block -> block drawn before it -> how a deviation of that lowers the mean of this, ``(P_k, P_l)``."""
        ((name, precision),) = self.wide.items()
        own = {other: precision.mean(slope) for other, slope in self.slopes.items()}
        return ({} if self.narrow is None else self.narrow.coefficients()) | {name: own}

    def _rows(self, blocks: Blocks) -> Array:
        return jnp.asarray(sum((product(self.slopes[name], blocks[name]) for name in blocks), 0.0))


def factorise(slopes: Mapping[str, Array]) -> Together | WidestLast:
    r"""Factorise :math:`\Lambda = I + A^\top A` in the smaller space.

    Parameters
    ----------
    slopes
        Name of a block of z -> its columns of A, ``(N, P_k)``.

    Returns
    -------
    Together or WidestLast
        With ``mean(residual)``, of rows ``(N,)`` or ``(N, C)``, and ``draw(loc, draw)``, which calls ``draw`` with the
        name, mean and precision of every block, given what it returned for those before.
    """
    slope = _side_by_side(slopes)
    if slope.shape[1] <= slope.shape[0]:
        return Together(dict(slopes), gram_factor(slope))
    *others, name = _in_order(slopes)
    precision = ByRows.of(slopes[name])
    narrow = {other: slopes[other] for other in others}
    # with the wide block integrated out the noise is LL', and rows are white again after L^-1
    white = {other: solve_triangular(precision.factor, slope) for other, slope in narrow.items()}
    return WidestLast(narrow, factorise(white) if white else None, {name: precision})


def _in_order(slopes: Mapping[str, Array]) -> list[str]:
    """Blocks in the order in which they are drawn: the widest last, so that its own space is the only large one."""
    return sorted(slopes, key=lambda name: (slopes[name].shape[1], name))


def _places(slopes: Mapping[str, Array]) -> dict[str, slice]:
    """Where each block stands in the joint space, in the order in which they are drawn: the last one stands first."""
    found, stop = {}, sum(slope.shape[1] for slope in slopes.values())
    for name in _in_order(slopes):
        start = stop - slopes[name].shape[1]
        found[name], stop = slice(start, stop), start
    return found


def _side_by_side(slopes: Mapping[str, Array]) -> Array:
    return jnp.concatenate([slopes[name] for name in reversed(_in_order(slopes))], 1)
