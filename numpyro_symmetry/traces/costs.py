r"""What relabelling maximises: the likelihood of the relabelled draws in an exponential family.

Every cost is a family :math:`\langle\eta, g\cdot T(\theta)\rangle - A(\eta) + h(\theta)` with statistics on which the
group acts as it acts on values. Relabelling raises it over :math:`g`, one draw at a time, and over :math:`\eta`, which
depends on the relabelled draws only through their mean statistics; neither step ever lowers it. Gaussians, squared
distances, Stephens' Kullback–Leibler criterion and the agreement of allocations differ in nothing but :math:`T`,
:math:`\eta` and :math:`h`. Knows draws; no containers and no algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.assignment.family import (
    TRANSFORMS,
    Coordinate,
    Cost,
    Family,
    Items,
    Name,
    Natural,
    Side,
    Statistics,
    gaussian,
    is_cost,
    natural_of_draw,
    squares,
)
from numpyro_symmetry.assignment.problem import without_signs
from numpyro_symmetry.symmetry import Axis, PlainView, Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import (
    as_flag,
    as_real_array,
    is_option,
    refuse_masked,
    refuse_tracers,
    shape_of,
)
from numpyro_symmetry.symmetry.axes import FREE
from numpyro_symmetry.symmetry.plain import one_part
from numpyro_symmetry.traces.coordinates import coordinates

_DATA: Name = "", "labels"
# the smallest variance of a slot, relative to the pooled one, that is more than the rounding of a mean of squares
MIN_VARIANCE = 1e-12
_MIN_PROBABILITY = 1e-10


@dataclass(frozen=True)
class EuclideanCost:
    r"""Squared distance to the average of the relabelled draws, :math:`\tfrac12\lVert g\cdot x-\mu\rVert^2`.

    Parameters
    ----------
    transforms
        Site -> ``"identity"`` or ``"log"``, or one of them for all; ``"auto"`` chooses.
    standardize
        Divide every coordinate by its standard deviation, pooled over draws and over what the groups exchange.

    Raises
    ------
    TypeError, ValueError, SymmetryError
        If ``standardize`` is no flag, and as for `GaussianCost`.

    Examples
    --------
    >>> from numpyro_symmetry import EuclideanCost
    >>> EuclideanCost(standardize=False).transforms
    'identity'
    """

    transforms: Mapping[str, str] | str = "identity"
    standardize: bool = True

    def __post_init__(self) -> None:
        _check_transforms(self.transforms)
        as_flag(self.standardize, "standardize")

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Gaussians of unit variance."""
        draws = _points(source, "EuclideanCost")
        if read is None:
            read = coordinates(draws, symmetry, self.transforms, standardize=self.standardize, view=source.view)

        def statistics(items: Items) -> Statistics:
            return {(s, "first"): c(draws[s][items]).astype(dtypes[s], copy=False) for s, c in read.items()}

        dtypes = {site: np.float32 if draws[site].dtype == np.float32 else float for site in read}
        axes = {(site, "first"): c.axes for site, c in read.items()}
        return squares(statistics, axes, source.num_draws, dict.fromkeys(axes, 0.5), read)


@dataclass(frozen=True)
class GaussianCost:
    r"""Log density of the relabelled draws under independent Gaussians, one for every entry of every slot.

    .. math:: -\tfrac12 \sum_i \Big[\frac{(g\cdot x-\mu)_i^2}{\sigma_i^2} + \log\sigma_i^2\Big]

    Slots may differ in spread, so that a site of large variance does not decide alone.

    Parameters
    ----------
    transforms
        Site -> ``"identity"`` or ``"log"``, or one of them for all. ``"auto"`` takes logs of positive sites where a
        log-normal fits better; never of values within a factor of two, whose logarithms tell no more, nor of one that a
        sign changes.

    Raises
    ------
    TypeError, ValueError
        If ``transforms`` is no word or mapping, or a transform is unknown.
    SymmetryError
        When draws are read: if ``transforms`` names other sites than the symmetry, or takes logs of values that are not
        positive, or that a sign changes.

    Notes
    -----
    With one component for each label this is the classification likelihood of a Gaussian mixture.

    References
    ----------
    Celeux and Govaert (1992), A classification EM algorithm for clustering and two stochastic versions.

    Examples
    --------
    Two slots of one mean, which nothing but spread tells apart:

    >>> import numpy as np
    >>> from numpyro_symmetry import GaussianCost, Symmetry, rebase
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((2, 500, 2)) * np.array([[[0.1, 3.0]], [[3.0, 0.1]]])
    >>> odd = np.arange(500)[:, None] % 2 == 1
    >>> switched = {"a": np.where(odd, a[:, ::-1], a), "b": np.where(odd, b[:, ::-1], b)}
    >>> out = rebase(switched, Symmetry.mixture("a", "b"), cost=GaussianCost(), reference="first")
    >>> out.data["a"].std(0).round().tolist()
    [0.0, 3.0]
    """

    transforms: Mapping[str, str] | str = "auto"

    def __post_init__(self) -> None:
        _check_transforms(self.transforms)

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Gaussians of free means and variances."""
        draws = _points(source, "GaussianCost")
        if read is None:
            read = coordinates(draws, symmetry, self.transforms, standardize=True, view=source.view)

        def coordinates_of(items: Items) -> dict[str, np.ndarray]:
            return {site: c(draws[site][items]) for site, c in read.items()}

        def statistics(items: Items) -> Statistics:
            x = coordinates_of(items)
            return {(s, "first"): v for s, v in x.items()} | {(s, "second"): np.square(v) for s, v in x.items()}

        def natural(means: Statistics) -> Natural:
            mean = {site: means[site, "first"] for site in read}
            return gaussian(mean, {s: np.maximum(means[s, "second"] - m * m, MIN_VARIANCE) for s, m in mean.items()})

        def point(draw: int) -> Natural:
            one = {site: x[0] for site, x in coordinates_of(np.array([draw])).items()}
            return gaussian(one, {site: np.ones_like(x) for site, x in one.items()})

        axes = {(site, "first"): c.axes for site, c in read.items()}
        axes |= {(site, "second"): without_signs(c.axes) for site, c in read.items()}
        return Family(
            statistics,
            axes,
            natural,
            point,
            lambda found: np.zeros(len(next(iter(found.values())))),
            source.num_draws,
            in_nats=True,
            coordinates=read,
        )


@dataclass(frozen=True, eq=False)
class StephensCost:
    r"""Kullback–Leibler divergence of a draw's allocation probabilities from their average over relabelled draws.

    .. math:: \sum_{n,k} p_{nk} \log\frac{p_{nk}}{q_{nk}}

    Parameters
    ----------
    probabilities
        ``(*leading, N, K)``: for each draw the probability that datum ``n`` belongs to component ``k``.
    group
        The group whose elements the last axis holds; may be left out if there is only one.

    Raises
    ------
    SymmetryError
        When draws are read: if these are no probabilities of these draws, or the group is signed or unknown.

    References
    ----------
    Stephens (2000), Dealing with label switching in mixture models, algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import StephensCost, Symmetry, rebase
    >>> loc = np.array([[-1.0, 1.0], [1.1, -0.9], [-0.8, 1.2]])
    >>> y = np.array([-1.0, -0.5, 1.5])
    >>> density = np.exp(-0.5 * (y[:, None] - loc[:, None]) ** 2)
    >>> cost = StephensCost(density / density.sum(-1, keepdims=True))
    >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"), cost=cost, reference="first")
    >>> out.data["loc"].tolist()
    [[-1.0, 1.0], [-0.9, 1.1], [-0.8, 1.2]]
    """

    probabilities: ArrayLike = field(repr=False)
    group: str | None = None

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Categorical distributions, one for each datum."""
        name = _group(self.group, symmetry, source, "StephensCost")
        p = _per_draw(self.probabilities, source, "StephensCost", (symmetry.groups[name].degree,))
        if not np.isfinite(p).all() or (p < 0).any() or np.abs(p.sum(-1) - 1.0).max(initial=0.0) > 1e-3:
            raise SymmetryError("StephensCost expects probabilities that are not negative and sum to one over labels.")

        def natural(means: Statistics) -> Natural:
            return {_DATA: np.log(np.maximum(means[_DATA], _MIN_PROBABILITY))}, 0.0

        def carrier(found: Statistics) -> np.ndarray:
            return -(found[_DATA] * np.log(np.maximum(found[_DATA], _MIN_PROBABILITY))).sum((1, 2))

        return _of_data(lambda items: p[items].astype(float), name, natural, carrier, source.num_draws, in_nats=True)


@dataclass(frozen=True, eq=False)
class AllocationCost:
    r"""Number of data allocated otherwise than by most of the relabelled draws.

    .. math:: \sum_n 1[(g\cdot z)_n \ne \hat z_n], \qquad
              \hat z_n = \arg\max_k \sum_s 1[(g_s\cdot z_s)_n = k]

    Parameters
    ----------
    allocations
        ``(*leading, N)`` integers: for each draw the component of every datum.
    group
        The group whose elements they are; may be left out if there is only one.

    Raises
    ------
    SymmetryError
        When draws are read: if these are no labels of these draws, or the group is signed or unknown.

    References
    ----------
    Papastamoulis and Iliopoulos (2010); Rodríguez and Walker (2014): equivalence classes representatives, iterated.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import AllocationCost, Symmetry, rebase
    >>> loc = np.array([[-1.0, 1.0], [1.1, -0.9], [-0.8, 1.2]])
    >>> cost = AllocationCost(np.array([[0, 0, 1], [1, 1, 0], [0, 1, 1]]))
    >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"), cost=cost, reference="first")
    >>> out.data["loc"].tolist(), out.objective.tolist()
    ([[-1.0, 1.0], [-0.9, 1.1], [-0.8, 1.2]], [0.0, 0.0, -1.0])
    """

    allocations: ArrayLike = field(repr=False)
    group: str | None = None

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Degenerate categorical distributions: the most frequent allocation of every datum."""
        name = _group(self.group, symmetry, source, "AllocationCost")
        size, z = symmetry.groups[name].degree, _per_draw(self.allocations, source, "AllocationCost", ())
        if not np.issubdtype(z.dtype, np.integer) or z.min(initial=0) < 0 or z.max(initial=0) >= size:
            from_one = z.dtype.kind in "iuf" and z.size and z.min() >= 1 and z.max() == size
            got = f"{z.dtype} from {z.min():g} to {z.max():g}" if z.dtype.kind in "iuf" and z.size else z.dtype
            raise SymmetryError(
                f"AllocationCost expects integers from 0 to {size - 1}, the labels of group {name!r}; got {got}."
                + (" Counted from one, they are labels once one is subtracted." if from_one else "")
            )

        def one_hot(labels: np.ndarray) -> np.ndarray:
            return (labels[..., None] == np.arange(size)).astype(float)

        def natural(means: Statistics) -> Natural:
            return {_DATA: one_hot(means[_DATA].argmax(-1))}, 0.0

        def carrier(found: Statistics) -> np.ndarray:
            return np.full(len(found[_DATA]), -float(z.shape[1]))

        return _of_data(lambda items: one_hot(z[items]), name, natural, carrier, source.num_draws)


class PlainDraws(NamedTuple):
    """Draws, by piece of the plain view of their symmetry, and the family that a cost makes of them."""

    cost: Cost
    family: Family
    view: PlainView
    draws: Side

    @property
    def plain(self) -> Symmetry:
        """The symmetry of the pieces."""
        return self.view.symmetry


def refuse_no_cost(cost: object, or_else: str = "") -> None:
    """Refuse a value that is no cost, and say what costs there are.

    Raises
    ------
    ValueError
        If it is the name of one, or its class.
    TypeError
        If it is anything else.
    """
    if is_cost(cost):
        return
    expected = (
        f"{or_else}EuclideanCost(), GaussianCost(), StephensCost(probabilities), AllocationCost(allocations) "
        "or a cost with a method family"
    )
    if isinstance(cost, str):
        raise ValueError(f"cost must be {expected}; got {cost!r}.")
    got = f"the class {cost.__name__}: write {cost.__name__}(...)" if isinstance(cost, type) else type(cost).__name__
    raise TypeError(f"cost must be {expected}; got {got}.")


def _check_transforms(transforms: object) -> None:
    names = (*TRANSFORMS, "auto")
    if not isinstance(transforms, str | Mapping):
        raise TypeError(f"transforms must be one of {names}, or a mapping from sites to them; got {transforms!r}.")
    given = [transforms] if isinstance(transforms, str) else list(transforms.values())
    if unknown := [name for name in given if not is_option(name, names)]:
        raise ValueError(f"transforms must be among {names}; got {unknown}.")


def _points(source: Side, cost: str) -> dict[str, np.ndarray]:
    if source.scale is not None:
        raise SymmetryError(f"{cost} compares points; got standard deviations, which 'log_density' and 'kl' compare.")
    return source.loc


def _of_data(
    read: Callable[[Items], np.ndarray],
    group: str,
    natural: Callable[[Statistics], Natural],
    carrier: Callable[[Statistics], np.ndarray],
    num_draws: int,
    *,
    in_nats: bool = False,
) -> Family:
    """A family of labels of data, ``(draw, N, label)``, which looks at nothing else of a draw."""

    def statistics(items: Items) -> Statistics:
        return {_DATA: read(items)}

    axes = {_DATA: (FREE, Axis(group, False, None))}
    point = partial(natural_of_draw, statistics, natural)
    return Family(statistics, axes, natural, point, carrier, num_draws, in_nats)


def _group(given: str | None, bound: Symmetry, source: Side, cost: str) -> str:
    owners = {name: name for name in bound.groups} if source.view is None else source.view.owners
    name = one_part(given, owners, f"{cost}(group={given!r})")
    if bound.groups[name].signed:
        raise SymmetryError(f"{cost}: group {name!r} is signed, and labels of data carry no sign.")
    return name


def _per_draw(given: ArrayLike, source: Side, cost: str, labels: tuple[int, ...]) -> np.ndarray:
    """``(draw, N, *labels)`` of an array in the draws' leading dimensions."""
    refuse_masked({cost: given}, "The array of")
    refuse_tracers(cost, values=given)
    shape, lead = shape_of(given, cost), len(source.leading)
    data = shape[lead : len(shape) - len(labels)]
    if shape != (*source.leading, *data, *labels) or not data or 0 in data:
        raise SymmetryError(
            f"{cost} holds an array of shape {shape}; expected the leading dimensions of the draws, {source.leading}, "
            f"in front, then the data, one at least{f', then {labels[0]} labels' if labels else ''}."
        )
    return np.asarray(as_real_array(given, cost)).reshape(source.num_draws, -1, *labels)
