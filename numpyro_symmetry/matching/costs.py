r"""Costs of placing one Gaussian or point on another, each an exponential family over the sources.

Sources are placed on the target's own parameters in that family; higher is better. Knows sides and symmetries; no
algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpyro_symmetry.assignment.family import (
    Coordinate,
    Cost,
    Family,
    Items,
    Name,
    Natural,
    Side,
    Statistics,
    gaussian,
    squares,
)
from numpyro_symmetry.assignment.problem import axes_of, without_signs
from numpyro_symmetry.symmetry import Axis, Symmetry, SymmetryError

# a draw's tables are computed in double precision if that takes at most this many multiplications
_IN_DOUBLE = 50_000
_ENTROPY = "", "entropy"
_EPS = float(np.finfo(float).eps)
# spreads from zero beyond which values are read about their middle: nearer ones lose a digit or two of sixteen
_FAR = 8.0


@dataclass(frozen=True)
class SquaredDistance:
    r"""Minus the squared distance of means and, for Wasserstein's, of standard deviations.

    Parameters
    ----------
    of_scales
        Whether standard deviations count.
    """

    of_scales: bool = True

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Squared distances of all moments: in double precision where that costs nothing, else in the sources'."""
        moments = {"first": source.loc} | ({"scale": source.scale} if self.of_scales and source.scale else {})
        shapes, axes = _opened(source, symmetry, moments)
        read = _about_middle(source, shapes, axes) if read is None else read
        far = {(site, "first"): c.center for site, c in read.items() if c.center.any()}
        numbers = sum(math.prod(source.loc[site].shape[1:]) for site in symmetry.axes)
        small = numbers * max((group.degree for group in symmetry.groups.values()), default=0) <= _IN_DOUBLE

        def statistics(items: Items) -> Statistics:
            found = {(s, m): _of_shape(moments[m][s][items], shape) for (s, m), shape in shapes.items()}
            found |= {name: np.subtract(found[name], center, dtype=float) for name, center in far.items()}
            return {name: x.astype(float, copy=False) for name, x in found.items()} if small else found

        weights = {(site, moment): source.weights.get(site, 1.0) for site, moment in shapes}
        return squares(statistics, axes, source.num_draws, weights, read)


@dataclass(frozen=True)
class LogDensity:
    r"""Expected log density of the source under the target, a Gaussian, in nats.

    Parameters
    ----------
    plus_entropy
        Whether to add the source's entropy, which makes the cost minus the divergence KL(source ‖ target).
    """

    plus_entropy: bool = False

    def family(self, source: Side, symmetry: Symmetry, read: Mapping[str, Coordinate] | None = None) -> Family:
        """Gaussians with free means and variances; in double precision, for first and second moments nearly cancel."""
        shapes, axes = _opened(source, symmetry, ("first", "second"))
        weights = {site: source.weights.get(site, 1.0) for site in source.loc}
        read = _about_middle(source, shapes, axes) if read is None else read
        half_log = 0.5 * math.log(2.0 * math.pi)

        def wide(by_site: Mapping[str, np.ndarray], items: Items) -> dict[str, np.ndarray]:
            return {s: _of_shape(x[items].astype(float), shapes[s, "first"]) for s, x in by_site.items()}

        def means(items: Items) -> dict[str, np.ndarray]:
            return {site: x - read[site].center for site, x in wide(source.loc, items).items()}

        def scales(items: Items, of: str) -> dict[str, np.ndarray]:
            found = wide(source.scale or {}, items)
            if not found or not all((x > 0).all() for x in found.values()):
                raise SymmetryError(
                    f"cost={'kl' if self.plus_entropy else 'log_density'!r} needs positive standard deviations of the "
                    f"{of}: pass a Gaussian."
                )
            return found

        def statistics(items: Items) -> Statistics:
            loc, scale = means(items), wide(source.scale or {}, items)
            first = {(site, "first"): x for site, x in loc.items()}
            second = {(site, "second"): x**2 + scale.get(site, 0.0) ** 2 for site, x in loc.items()}
            return first | second | ({_ENTROPY: entropy(scales(items, "source"))} if self.plus_entropy else {})

        def entropy(scale: dict[str, np.ndarray]) -> np.ndarray:
            logs = {site: (np.log(x) + half_log + 0.5).reshape(len(x), -1) for site, x in scale.items()}
            return sum((weights[site] * x.sum(1) for site, x in logs.items()), np.zeros(()))

        def carrier(found: Statistics) -> np.ndarray:
            total = found.get(_ENTROPY, np.zeros(len(next(iter(found.values())))))
            sizes = (weights[site] * math.prod(x.shape[1:]) for (site, moment), x in found.items() if moment == "first")
            return total - half_log * sum(sizes)

        def natural(total: Statistics) -> Natural:
            mean, second = ({site: total[site, moment] for site in source.loc} for moment in ("first", "second"))
            # of nearly equal moments the difference is rounding: a variance is never below that
            return gaussian(mean, {s: np.maximum(x - mean[s] ** 2, _EPS * x) for s, x in second.items()}, weights)

        def point(draw: int) -> Natural:
            mean, scale = means(slice(draw, draw + 1)), scales(slice(draw, draw + 1), "target")
            return gaussian({s: x[0] for s, x in mean.items()}, {s: x[0] ** 2 for s, x in scale.items()}, weights)

        axes |= {_ENTROPY: ()} if self.plus_entropy else {}
        return Family(statistics, axes, natural, point, carrier, source.num_draws, in_nats=True, coordinates=read)


COSTS: dict[str, Cost] = {
    "wasserstein": SquaredDistance(),
    "euclidean": SquaredDistance(of_scales=False),
    "log_density": LogDensity(),
    "kl": LogDensity(plus_entropy=True),
}


@dataclass(frozen=True)
class ActivationCost:
    """Match units by what they compute on data instead of by their weights: the distance of their activations.

    Parameters
    ----------
    activations
        Values of one network -> group name -> ``(num_data, n)``, one column a unit: a forward pass, by hand or as
        `find_activations` reads it off a function. Of a fibred group ``(num_data, *cells, n)``. Where `match` was given
        trees, the function gets one network's tree; where values by site or Gaussians, a dictionary by site.

    Notes
    -----
    Dead units have equal (zero) activations; ties keep their labels.

    Raises
    ------
    TypeError
        If ``activations`` is no function.

    References
    ----------
    Ainsworth, Hayase and Srinivasa (2023), *Git Re-Basin*, section 3.1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import ActivationCost, Symmetry, match
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> cost = ActivationCost(lambda values: {"hidden": jnp.tanh(x @ values["w1"])})
    >>> source = {"w1": jnp.array([[1.0, 2.0, 3.0]]), "w2": jnp.zeros(3)}
    >>> target = {"w1": jnp.array([[3.0, 1.0, 2.0]]), "w2": jnp.zeros(3)}
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    >>> match(target, source, symmetry, cost=cost).element["hidden"].tolist()
    [2, 0, 1]
    """

    activations: Callable[[dict[str, Any]], dict[str, Any]]

    def __post_init__(self) -> None:
        if not callable(self.activations):
            raise TypeError(
                "activations must be a function from the values of one network to arrays by group; got "
                f"{type(self.activations).__name__}."
            )


def _of_shape(sources: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sources, each of this shape, which may hold no numbers."""
    return sources.reshape(len(sources), *shape)


def _opened(
    source: Side, symmetry: Symmetry, moments: Iterable[str]
) -> tuple[dict[Name, tuple[int, ...]], dict[Name, tuple[Axis, ...]]]:
    """Opened shapes and axes of every site's moments; only first moments change with signs."""
    opened = {site: axes_of(symmetry, site, loc.shape[1:]) for site, loc in source.loc.items()}
    names = [(site, moment) for site in opened for moment in moments]
    axes = {(s, m): opened[s][1] if m == "first" else without_signs(opened[s][1]) for s, m in names}
    return {(site, moment): opened[site][0] for site, moment in names}, axes


def _about_middle(
    source: Side, shapes: Mapping[Name, tuple[int, ...]], axes: Mapping[Name, tuple[Axis, ...]]
) -> dict[str, Coordinate]:
    """How sites are read: less the mean of what is exchanged in the first draw, if that is far from zero beside them.

    No label moves such a middle, and of values far from zero squares and products would differ by little but rounding.
    Signs mirror values at zero.
    """
    found = {}
    for site, values in source.loc.items():
        name = site, "first"
        x = _of_shape(values[:1].astype(float), shapes[name])[0]
        exchanged = tuple(k for k, axis in enumerate(axes[name]) if axis.group is not None)
        middle = x.mean(exchanged, keepdims=True) * (not any(axis.signed for axis in axes[name]))
        far = np.abs(middle) > _FAR * np.abs(x - middle).max(exchanged, keepdims=True, initial=0.0)
        found[site] = Coordinate(site, "identity", np.where(far, middle, 0.0), np.ones(()), axes[name], shapes[name])
    return found
