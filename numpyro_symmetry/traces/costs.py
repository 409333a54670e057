r"""What relabelling maximises: the likelihood of the relabelled draws in an exponential family.

Every cost is a family :math:`\langle\eta, g\cdot T(\theta)\rangle - A(\eta) + h(\theta)` with statistics on which the
group acts as it acts on values. Relabelling raises it over :math:`g`, one draw at a time, and over :math:`\eta`, which
depends on the relabelled draws only through their mean statistics; neither step ever lowers it. Gaussians, squared
distances, Stephens' Kullback–Leibler criterion and the agreement of allocations differ in nothing but :math:`T`,
:math:`\eta` and :math:`h`. Knows draws; no containers and no algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from numpyro_symmetry.assignment.family import Family, Statistics
from numpyro_symmetry.assignment.problem import without_signs
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_array, as_flag, as_real_array, is_option, refuse_masked, shape_of
from numpyro_symmetry.symmetry.axes import Axis
from numpyro_symmetry.traces.coordinates import TRANSFORMS, Arrays, Coordinate, coordinates

_FREE = Axis(None, False, None)
# the smallest variance of a slot, relative to the pooled one
_MIN_VARIANCE = 1e-6
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
    ValueError, SymmetryError
        When draws are read, as for `GaussianCost`.

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

    def coordinates(self, draws: Arrays, bound: Symmetry) -> dict[str, Coordinate]:
        """Coordinates in which distances are taken."""
        return coordinates(draws, bound, self.transforms, standardize=self.standardize)

    def family(self, draws: Arrays, bound: Symmetry, read: Mapping[str, Coordinate]) -> Family:
        """Gaussians of unit variance."""
        del bound

        def statistics(items: slice | np.ndarray) -> Statistics:
            return tuple(c(draws[s][items]).astype(_floating(draws[s]), copy=False) for s, c in read.items())

        def natural(means: Statistics) -> tuple[Statistics, float]:
            return means, 0.5 * sum(float(np.vdot(m, m)) for m in means)

        def carrier(found: Statistics) -> np.ndarray:
            return -0.5 * sum(np.square(x, dtype=float).reshape(len(x), -1).sum(1) for x in found)  # pyright: ignore

        return Family(statistics, tuple(c.axes for c in read.values()), natural, natural, carrier, _count(draws))


@dataclass(frozen=True)
class GaussianCost:
    r"""Log density of the relabelled draws under independent Gaussians, one for every entry of every slot.

    .. math:: -\tfrac12 \sum_i \Big[\frac{(g\cdot x-\mu)_i^2}{\sigma_i^2} + \log\sigma_i^2\Big]

    Slots may differ in spread, so that a site of large variance does not decide alone.

    Parameters
    ----------
    transforms
        Site -> ``"identity"`` or ``"log"``, or one of them for all. ``"auto"`` takes logs of positive sites where a
        log-normal fits better; never of one that a sign changes.

    Raises
    ------
    ValueError
        When draws are read: if a transform is unknown.
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

    def coordinates(self, draws: Arrays, bound: Symmetry) -> dict[str, Coordinate]:
        """Coordinates in which slots are Gaussian."""
        return coordinates(draws, bound, self.transforms, standardize=True)

    def family(self, draws: Arrays, bound: Symmetry, read: Mapping[str, Coordinate]) -> Family:
        """Gaussians of free means and variances."""
        del bound

        def statistics(items: slice | np.ndarray) -> Statistics:
            x = [c(draws[s][items]) for s, c in read.items()]
            return (*x, *map(np.square, x))

        def natural(means: Statistics) -> tuple[Statistics, float]:
            first, second = means[: len(read)], means[len(read) :]
            variance = [np.maximum(b - a * a, _MIN_VARIANCE) for a, b in zip(first, second, strict=True)]
            linear = tuple(a / v for a, v in zip(first, variance, strict=True))
            partition = sum(float((a * a / v + np.log(v)).sum()) for a, v in zip(first, variance, strict=True))
            return (*linear, *(-0.5 / v for v in variance)), 0.5 * partition

        def point(one: Statistics) -> tuple[Statistics, float]:
            x = one[: len(read)]
            return (*x, *(np.full_like(a, -0.5) for a in x)), 0.5 * sum(float(np.vdot(a, a)) for a in x)

        axes = tuple(c.axes for c in read.values())
        return Family(statistics, axes + tuple(map(without_signs, axes)), natural, point, _no_carrier, _count(draws))


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

    def coordinates(self, draws: Arrays, bound: Symmetry) -> dict[str, Coordinate]:
        """None: parameters are not looked at."""
        return {}

    def family(self, draws: Arrays, bound: Symmetry, read: Mapping[str, Coordinate]) -> Family:
        """Categorical distributions, one for each datum."""
        del read
        name = _group(self.group, bound, "StephensCost")
        p = _per_draw(self.probabilities, _count(draws), bound.groups[name].size, "probabilities")
        if not np.isfinite(p).all() or (p < 0).any() or np.abs(p.sum(-1) - 1.0).max(initial=0.0) > 1e-3:
            raise SymmetryError("StephensCost expects probabilities that are not negative and sum to one over labels.")

        def natural(means: Statistics) -> tuple[Statistics, float]:
            return (np.log(np.maximum(means[0], _MIN_PROBABILITY)),), 0.0

        def carrier(found: Statistics) -> np.ndarray:
            return -(found[0] * np.log(np.maximum(found[0], _MIN_PROBABILITY))).sum((1, 2))

        axes = ((_FREE, Axis(name, False, None)),)
        return Family(lambda items: (p[items].astype(float),), axes, natural, natural, carrier, _count(draws))


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

    def coordinates(self, draws: Arrays, bound: Symmetry) -> dict[str, Coordinate]:
        """None: parameters are not looked at."""
        return {}

    def family(self, draws: Arrays, bound: Symmetry, read: Mapping[str, Coordinate]) -> Family:
        """Degenerate categorical distributions: the most frequent allocation of every datum."""
        del read
        name = _group(self.group, bound, "AllocationCost")
        size = bound.groups[name].size or 0
        given = np.asarray(as_array(self.allocations, "AllocationCost"))
        if not np.issubdtype(given.dtype, np.integer) or given.min(initial=0) < 0 or given.max(initial=0) >= size:
            from_one = given.dtype.kind in "iuf" and given.size and given.min() >= 1 and given.max() == size
            got = (
                f"{given.dtype} from {given.min():g} to {given.max():g}"
                if given.dtype.kind in "iuf" and given.size
                else given.dtype
            )
            raise SymmetryError(
                f"AllocationCost expects integers from 0 to {size - 1}, the labels of group {name!r}; got {got}."
                + (" Counted from one, they are labels once one is subtracted." if from_one else "")
            )
        z = _per_draw(given[..., None], _count(draws), 1, "allocations")[..., 0]

        def natural(means: Statistics) -> tuple[Statistics, float]:
            return ((means[0].argmax(-1)[..., None] == np.arange(size)).astype(float),), 0.0

        def carrier(found: Statistics) -> np.ndarray:
            return np.full(len(found[0]), -float(z.shape[1]))

        def statistics(items: slice | np.ndarray) -> Statistics:
            return ((z[items][..., None] == np.arange(size)).astype(float),)

        return Family(statistics, ((_FREE, Axis(name, False, None)),), natural, natural, carrier, _count(draws))


def refuse_other_draws(cost: Cost, leading: tuple[int, ...]) -> None:
    """Refuse allocations or probabilities of other leading dimensions than the draws'.

    Raises
    ------
    SymmetryError
        Saying what was expected.
    """
    given = getattr(cost, "probabilities", getattr(cost, "allocations", None))
    refuse_masked({type(cost).__name__: given}, "The array of")
    if not hasattr(cost, "probabilities") and not hasattr(cost, "allocations"):
        return
    shape = shape_of(given, type(cost).__name__)
    if shape[: len(leading)] != leading:
        raise SymmetryError(
            f"{type(cost).__name__} holds an array of shape {shape}; expected the leading dimensions of the "
            f"draws, {leading}, in front."
        )


Cost = EuclideanCost | GaussianCost | StephensCost | AllocationCost


class Seen(NamedTuple):
    """Draws ``(draw, *event)`` of a plain symmetry, as a cost sees them."""

    cost: Cost
    coordinates: Mapping[str, Coordinate]
    family: Family
    plain: Symmetry
    draws: Arrays


def refuse_no_cost(cost: object, or_else: str = "") -> None:
    """Refuse what is no cost, and say what costs there are.

    Raises
    ------
    ValueError
        If it is the name of one, or its class.
    TypeError
        If it is anything else.
    """
    if isinstance(cost, Cost):
        return
    expected = f"{or_else}EuclideanCost(), GaussianCost(), StephensCost(probabilities) or AllocationCost(allocations)"
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


def _no_carrier(found: Statistics) -> np.ndarray:
    return np.zeros(len(found[0]))


def _count(draws: Arrays) -> int:
    return len(next(iter(draws.values())))


def _floating(values: np.ndarray) -> np.dtype:
    return np.dtype(np.float32 if values.dtype == np.float32 else np.float64)


def _group(name: str | None, bound: Symmetry, cost: str) -> str:
    if name is None and len(bound.groups) == 1:
        name = next(iter(bound.groups))
    if name not in bound.groups:
        raise SymmetryError(f"{cost}(group={name!r}): name one of the symmetry's groups {list(bound.groups)}.")
    if bound.groups[name].signed:
        raise SymmetryError(f"{cost}: group {name!r} is signed, and labels of data carry no sign.")
    return name


def _per_draw(given: ArrayLike, count: int, size: int | None, what: str) -> np.ndarray:
    """``(draw, N, size)`` from any leading dimensions."""
    array = np.asarray(as_real_array(given, what))
    for leading in range(1, array.ndim - 1):
        if int(np.prod(array.shape[:leading])) == count and array.shape[-1] == size:
            return array.reshape(count, -1, array.shape[-1])
    raise SymmetryError(
        f"{what} has shape {array.shape}; expected the leading dimensions of the draws ({count} in all), then the data"
        + (f", then {size} labels." if size != 1 else ".")
    )
