r"""How near the closest equivalent solution is: copies of one mode crowd together as a layer widens.

Exchanging the two most similar of n units moves the weights by at most
:math:`2\lVert\omega-\bar\omega\rVert/\sqrt{n-1}` with the mean over units :math:`\bar v` in every unit of
:math:`\bar\omega`, whatever the number of inputs: the mean of :math:`\lVert v_i-v_j\rVert^2` over pairs is
:math:`2\sum_i\lVert v_i-\bar v\rVert^2/(n-1)`, and the exchange moves :math:`\omega` by
:math:`\sqrt2\lVert v_i-v_j\rVert`. Negating the smallest unit moves it by at most :math:`2\lVert\omega\rVert/\sqrt n`,
with the norm of what signs change.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.matching.gaussian_inputs import refuse_what_is_not_finite
from numpyro_symmetry.symmetry import Element, Group, Hard, PlainView, Symmetry, SymmetryError, as_html, as_symmetry
from numpyro_symmetry.symmetry.action import each_by_its_own
from numpyro_symmetry.symmetry.arguments import as_real_array, refuse_masked, refuse_tracers
from numpyro_symmetry.symmetry.axes import num_axes
from numpyro_symmetry.symmetry.pytrees import as_sites
from numpyro_symmetry.symmetry.shown import counted

# by which a bound that is reached, as that of two units is, may be rounded to below the distance
_ROUNDING = 1e-12


class NearestTransposition(NamedTuple):
    r"""The exchange of two indices (in a signed group: or the negation of one) that moves values least.

    Attributes
    ----------
    pair
        The two indices; the same index twice where it is only negated.
    distance
        Euclidean distance from the values to the values with the two exchanged.
    bound
        :math:`2\lVert\omega-\bar\omega\rVert/\sqrt{n-1}` with the norm of what the group acts on, less its mean over
        units; of a signed group :math:`2\lVert\omega\rVert/\sqrt n` with the norm of what its signs change; of a group
        with orbits or fibres the smallest of their bounds. Reached where all units are equally far from each other.
    cell
        Where a fibred group exchanges them: a position for each axis that it is fibred over.
    element
        The element of the symmetry that does it, its signs included: ``symmetry.apply(element, values)`` lies at
        ``distance`` from the values.
    """

    pair: tuple[int, int]
    distance: float
    bound: float
    cell: tuple[int, ...]
    element: Element

    def __repr__(self) -> str:
        i, j = self.pair
        what = f"{i} negated" if i == j else f"{i} and {j} exchanged"
        where = f" in cell {self.cell}" if self.cell else ""
        return f"NearestTransposition({what}{where}: distance {self.distance:.4g}, at most {self.bound:.4g})"

    _repr_html_ = as_html


def nearest_transposition(values: Any, symmetry: Symmetry) -> dict[str, NearestTransposition]:
    r"""Find, for each group, the two indices whose exchange moves the values least.

    Parameters
    ----------
    values
        Site -> array, or a pytree, whose paths to arrays are sites; without leading dimensions.
    symmetry
        What may be permuted. Only elements of the group are considered: two indices of one orbit, and of a fibred group
        in one cell. In a signed group each of the two may be negated on the way, and one index may be negated alone.

    Returns
    -------
    dict
        Group name -> `NearestTransposition`, for groups with anything to exchange or negate.

    Raises
    ------
    SymmetryError
        If a site or size does not fit, a value is not finite or masked, or there are leading dimensions.
    TypeError
        If ``symmetry`` is no `Symmetry`, or under `jit`.

    Notes
    -----
    The bound holds where a group stands once in each site. Theorem 3.1 of the paper has a bound that grows with the
    number of inputs, and exceeds the trivial :math:`2\lVert\omega\rVert` for all but very wide layers.

    References
    ----------
    Gelberg, van der Ouderaa, van der Wilk and Gal (2024), arXiv:2408.05496, Theorem 3.1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.matching import nearest_transposition
    >>> values = {"w": jnp.array([[0.0, 3.0, 4.0]])}
    >>> found = nearest_transposition(values, Symmetry({"w": (None, "unit")}))["unit"]
    >>> found.pair, round(found.distance, 3), round(found.bound, 3)
    ((1, 2), 1.414, 4.163)
    """
    symmetry = as_symmetry(symmetry)
    refuse_tracers("nearest_transposition", values=values)
    bound, given = symmetry.bind(values), as_sites(values, symmetry.axes)
    refuse_masked({site: given[site] for site in symmetry.axes})
    arrays = {site: np.asarray(as_real_array(given[site], f"Site {site!r}")).astype(float) for site in symmetry.axes}
    for site, value in arrays.items():
        refuse_what_is_not_finite(value, f"Site {site!r}")
        if value.ndim > num_axes(bound.axes[site]):
            raise SymmetryError(
                f"Site {site!r} has shape {value.shape}, more axes than its "
                f"{counted(num_axes(bound.axes[site]), 'entry')} in the symmetry: pass one draw at a time, or write "
                "None for axes of its own."
            )
    moving = [name for name, group in bound.groups.items() if not group.is_trivial]
    return {name: _nearest(bound, arrays, name) for name in moving}


def _nearest(bound: Symmetry, arrays: dict[str, np.ndarray], name: str) -> NearestTransposition:
    alone = bound.restrict([name])
    view = PlainView.of(alone, arrays)
    plain, opened = view.symmetry, view.open({site: arrays[site] for site in alone.axes})
    opened |= {name: np.sqrt(weight) * opened[name] for name, weight in view.weights.items()}
    found = {
        label: _nearest_of(_Units.of(plain, opened, label), signed=group.signed)
        for label, group in plain.groups.items()
    }
    label = min(found, key=lambda label: found[label][0])
    element = view.element({**plain.identity(), label: found[label][1]}, bound)
    changed = np.argwhere(~Hard.of(element[name]).each(np.asarray).is_same(bound.groups[name].identity()))
    moved = bound.apply(element, arrays)
    # the tables find the element; the distance itself must not suffer from cancellation
    distance = np.sqrt(sum(((moved[site] - arrays[site]) ** 2).sum() for site in arrays))
    return NearestTransposition(
        (int(changed[0][-1]), int(changed[-1][-1])),
        float(distance),
        min(limit for _, _, limit in found.values()),
        tuple(map(int, changed[0][:-1])),
        element,
    )


class _Units(NamedTuple):
    """What one plain group acts on: rows ``(n, numbers)`` without and with signs, and sites it stands on repeatedly."""

    even: np.ndarray
    odd: np.ndarray
    repeated: list[tuple[np.ndarray, list[tuple[int, bool]]]]

    @staticmethod
    def of(plain: Symmetry, opened: Mapping[str, np.ndarray], name: str) -> _Units:
        n = plain.sizes[name]
        rows: dict[bool, list[np.ndarray]] = {False: [np.zeros((n, 0))], True: [np.zeros((n, 0))]}
        repeated = []
        for site in plain.axes:
            shape, axes = axes_of(plain, site, opened[site].shape)
            value, at = (
                opened[site].reshape(shape),
                [(k, axis.signed) for k, axis in enumerate(axes) if axis.group == name],
            )
            if len(at) == 1:
                rows[at[0][1]].append(np.moveaxis(value, at[0][0], 0).reshape(n, -1))
            elif at:
                repeated.append((value, at))
        return _Units(np.concatenate(rows[False], 1), np.concatenate(rows[True], 1), repeated)

    def moved_by(self, part: Hard) -> float:
        """Squared distance that an element moves sites on whose axes the group stands more than once."""
        total = 0.0
        for value, at in self.repeated:
            moved = value[None]
            for axis, signed in at:
                moved = each_by_its_own(moved, (part if signed else Hard(part.permutation)).at(None), axis + 1)
            total += ((moved[0] - value) ** 2).sum()
        return float(total)

    def norm(self, *, signed: bool) -> float:
        """Norm of what signs change or, without signs, of all that the group acts on less its mean over units."""
        alone = self.odd if signed else self.even - self.even.mean(0)
        repeated = (
            value if signed else value - value.mean(tuple(axis for axis, _ in at), keepdims=True)
            for value, at in self.repeated
        )
        return float(np.sqrt(sum((x**2).sum() for x in (alone, *repeated))))


def _nearest_of(units: _Units, *, signed: bool) -> tuple[float, Hard, float]:
    """The smallest squared distance, the element of one plain group that has it, and the bound."""
    n = len(units.even)
    whole = (
        (squared + units.moved_by(_exchange(n, pair, signs)), pair, signs)
        for squared, pair, signs in _candidates(units, signed=signed)
    )
    squared, pair, signs = min(whole, key=operator.itemgetter(0))
    limit = (1.0 + _ROUNDING) * 2.0 * units.norm(signed=signed) / np.sqrt(n if signed else n - 1)
    found = _exchange(n, pair, signs)
    return squared, found if signed else Hard(found.permutation), float(limit)


def _candidates(units: _Units, *, signed: bool) -> Iterator[tuple[float, tuple[int, int], tuple[int, int]]]:
    """Squared distances that exchanges and negations move the rows: the least alone, or all if sites are repeated."""
    n = len(units.even)
    pairs = np.transpose(np.triu_indices(n, 1))
    # exchanging i and j moves both of them by their difference, or by their sum where one is negated
    tables = {sign: _squared(units.even, 1) + _squared(units.odd, sign) for sign in ((1, -1) if signed else (1,))}
    for signs in itertools.product(tables, tables):
        squared = np.array([tables[s][pairs[:, 0], pairs[:, 1]] for s in signs]).sum(0)
        for k in range(len(pairs)) if units.repeated else [int(np.argmin(squared))] if len(pairs) else []:
            i, j = pairs[k].tolist()
            yield float(squared[k]), (i, j), signs
    if signed:
        flips = 4.0 * (units.odd**2).sum(1)
        for i in range(n) if units.repeated else [int(np.argmin(flips))]:
            yield float(flips[i]), (i, i), (-1, -1)


def _squared(rows: np.ndarray, sign: int) -> np.ndarray:
    """Squared distances of each row from each other, or from its negative."""
    if sign > 0:
        # differences do not change, and a large common offset would cost them digits
        rows = rows - rows.mean(0)
    sizes = (rows**2).sum(1)
    return np.maximum(sizes[:, None] + sizes - 2.0 * sign * rows @ rows.T, 0.0)


def _exchange(n: int, pair: tuple[int, int], signs: tuple[int, int]) -> Hard:
    found = Group.of(n, signed=True).identity()
    found.write(list(pair), Hard(pair[::-1], signs))
    return found
