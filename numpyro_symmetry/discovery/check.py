r"""A numeric proof that a model is invariant under a symmetry, with controls that show the proof could have failed.

Knows models and symmetries; no guides, and nothing of how a symmetry was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.discovery.joint import FrozenModel, freeze, points
from numpyro_symmetry.symmetry import Element, SignedPermutation, Symmetry, SymmetryError, permutation_of

_EXACT = {True: 1e-9, False: 1e-4}  # by whether the model's arithmetic is float64
_CONTROL_FACTOR = 1e3

Values = dict[str, Array]


class SymmetryCheck(NamedTuple):
    """Verdict of `check_symmetry`.

    Attributes
    ----------
    status
        ``"passed"``, or ``"inconclusive"`` where no wrong action could be told from a right one.
    largest_gap
        Largest change of a log probability under the group, nats.
    tolerance
        What a gap may be: 1e-9 (1e-4 if the model computes in float32) of the sum of absolute site log probabilities.
    control_gap
        Group -> largest change under a deliberately wrong action, nats; far above ``tolerance`` when the check means
        something.
    num_points, num_elements
        Points in latent space, and elements tried at each.
    reason
        Why it is inconclusive; empty if passed.
    """

    status: str
    largest_gap: float
    tolerance: float
    control_gap: dict[str, float]
    num_points: int
    num_elements: int
    reason: str


def check_symmetry(
    model: Callable,
    symmetry: Symmetry,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    rng_key: Array | None = None,
    num_points: int = 3,
    num_elements: int = 2,
) -> SymmetryCheck:
    r"""Check numerically that a model's joint density is invariant: :math:`\log p(x, g\theta) = \log p(x, \theta)`.

    Random elements, each group alone and all together, are applied to prior draws and to perturbed points, in float64
    whatever the session's precision. The prior and the likelihood of **every datum** must stay put. Then, for every
    group, deliberately wrong actions (one site left out, an index copied instead of exchanged) must *not* pass.

    Parameters
    ----------
    model
        NumPyro model.
    symmetry
        What is claimed. Sizes are read off the model's own draws.
    model_args, model_kwargs
        Arguments of the model.
    rng_key
        JAX random key; fixed by default, so the verdict is reproducible.
    num_points
        Points in latent space.
    num_elements
        Random elements tried for each group, and for all together, at each point.

    Returns
    -------
    SymmetryCheck
        ``status`` is ``"passed"``, or ``"inconclusive"`` if a group's negative controls pass too.

    Raises
    ------
    SymmetryError
        If the model is not invariant (the message names site, axis, gap and, where one edit repairs it, the remedy), an
        element moves a value off its support, a site or size does not fit, or the log joint is not finite.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import Symmetry, check_symmetry
    >>> def model(y):
    ...     loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    ...     mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(loc, 1.0))
    ...     numpyro.sample("y", mixture.expand([3]).to_event(1), obs=y)
    >>> check_symmetry(model, Symmetry.mixture("loc"), (jnp.array([-1.0, 0.5, 2.0]),)).status
    'passed'
    """
    key = jax.random.PRNGKey(0) if rng_key is None else rng_key
    key_model, key_points, key_elements = jax.random.split(key, 3)
    with jax.enable_x64(True):
        frozen = freeze(model, tuple(model_args), dict(model_kwargs or {}), key_model)
        symmetry = symmetry.bind(frozen.draw(key_points))
        if not symmetry.groups:
            return SymmetryCheck("passed", 0.0, 0.0, {}, 0, 0, "")
        elements = _elements(symmetry, key_elements, num_elements)
        places = points(frozen, key_points, num_points)
        _refuse_moves_off_support(frozen, symmetry, elements, places[0])
        gap = tolerance = 0.0
        for place in places:
            base = frozen.log_probs(place)
            allowed = _tolerance(base)
            for label, element in elements:
                after = frozen.log_probs(_moved(symmetry, element, place))
                worst = _gap(frozen, base, after)
                if not worst <= allowed:
                    change = _changes(frozen, base, after)
                    raise SymmetryError(_explain(frozen, symmetry, label, place, change, allowed))
                gap, tolerance = max(gap, worst), max(tolerance, allowed)
        control = {name: _control_gap(frozen, symmetry, name, places[0]) for name in symmetry.groups}
    blind = [
        name for name, found in control.items() if not found > _CONTROL_FACTOR * tolerance and symmetry.sizes[name] > 1
    ]
    reason = (
        f"no wrong action on group {blind[0]!r} changes the log joint either, so invariance shows nothing; "
        "does the model use these sites?"
        if blind
        else ""
    )
    return SymmetryCheck(
        "inconclusive" if blind else "passed", gap, tolerance, control, num_points, len(elements), reason
    )


def _elements(symmetry: Symmetry, key: Array, count: int) -> list[tuple[str, Element]]:
    """Random elements that are not the identity, each group alone and, if there are several, all at once."""
    movable = [name for name, group in symmetry.groups.items() if (group.size or 0) > 1 or group.kind == "signed"]
    elements: list[tuple[str, Element]] = []
    for label in movable + (["all groups"] if len(movable) > 1 else []):
        for _ in range(count):
            while True:
                key, key_now = jax.random.split(key)
                drawn = symmetry.sample(key_now)
                element = drawn if label == "all groups" else symmetry.identity() | {label: drawn[label]}
                if not jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), element, symmetry.identity())):
                    break
            elements.append((label, element))
    return elements


def _moved(symmetry: Symmetry, element: Element, values: Values) -> Values:
    return {name: jnp.asarray(value) for name, value in symmetry.apply(element, values).items()}


def _changes(frozen: FrozenModel, before: dict[str, Array], after: dict[str, Array]) -> dict[str, float]:
    """By how much the log probability of every site changes: of its worst datum, or of its sum for latent sites."""

    def one(name: str) -> float:
        change = np.asarray(after[name], float) - np.asarray(before[name], float)
        return float(np.max(np.abs(change), initial=0.0) if name in frozen.data_sites else abs(change.sum()))

    return {name: one(name) for name in before}


def _gap(frozen: FrozenModel, before: dict[str, Array], after: dict[str, Array]) -> float:
    """Largest change among the log joint and every datum's log-likelihood: priors and factors may trade off."""
    change = _changes(frozen, before, after)
    return max(abs(_sum(after) - _sum(before)), *(change[name] for name in frozen.data_sites), 0.0)


def _tolerance(log_probs: dict[str, Array]) -> float:
    exact = all(x.dtype == np.float64 for x in log_probs.values())
    return _EXACT[exact] * (1.0 + sum(float(np.abs(np.asarray(x, float)).sum()) for x in log_probs.values()))


def _refuse_moves_off_support(
    frozen: FrozenModel, symmetry: Symmetry, elements: list[tuple[str, Element]], place: Values
) -> None:
    for label, element in elements:
        moved = _moved(symmetry, element, place)
        for site in symmetry.axes:
            support = frozen.supports[site]
            if bool(jnp.all(support(place[site]))) and not bool(jnp.all(support(moved[site]))):
                raise SymmetryError(
                    f"Site {site!r}: relabelling by {label!r} leaves its support {support}. An ordered or triangular "
                    "support already breaks the symmetry: use an unordered prior, or drop the site's symmetry."
                )


def _control_gap(frozen: FrozenModel, symmetry: Symmetry, name: str, place: Values) -> float:
    """Largest change of the log joint under actions that are wrong on purpose."""
    total = _sum(frozen.log_probs(place))
    wrong = [_copied(symmetry, name, place)]
    sites = [site for site in symmetry.axes if any(axis.group == name for axis in symmetry.opened(site))]
    swap = _swap(symmetry, name)
    moved = _moved(symmetry, swap, place)
    wrong += [moved | {site: place[site]} for site in sites if len(sites) > 1]
    gaps = [abs(_sum(frozen.log_probs(values)) - total) for values in wrong]
    return max((gap for gap in gaps if math.isfinite(gap)), default=0.0)


def _swap(symmetry: Symmetry, name: str) -> Element:
    """The first two indices exchanged; for a signed group the first sign flipped too."""
    element = symmetry.identity()
    permutation = permutation_of(element[name])
    n = permutation.shape[0]
    swapped = jnp.arange(n).at[: min(n, 2)].set(jnp.arange(min(n, 2))[::-1])
    if isinstance(element[name], SignedPermutation):
        return element | {name: SignedPermutation(swapped, jnp.ones(n, int).at[0].set(-1))}
    return element | {name: swapped}


def _copied(symmetry: Symmetry, name: str, place: Values) -> Values:
    """Index 0 copied over index 1: a map that is no permutation."""
    element = symmetry.identity()
    index = permutation_of(element[name])
    index = index.at[-1].set(0)
    part = element[name]
    broken = SignedPermutation(index, part.sign) if isinstance(part, SignedPermutation) else index
    return _moved(symmetry, element | {name: broken}, place)


def _sum(log_probs: dict[str, Array]) -> float:
    return sum(float(np.asarray(x, float).sum()) for x in log_probs.values())


def _explain(
    frozen: FrozenModel,
    symmetry: Symmetry,
    label: str,
    place: Values,
    change: dict[str, float],
    allowed: float,
) -> str:
    site = max(change, key=lambda name: change[name])
    what = f"the likelihood at {site!r}" if site not in place else f"the prior of site {site!r}"
    where = ""
    if site in symmetry.axes:
        axes = symmetry.axes[site]
        carried = [p - len(axes) for p, e in enumerate(axes) if e is not None]
        where = f" (axis {', '.join(map(str, carried))})"
    message = (
        f"The model is not invariant: under group {label!r} {what}{where} changes by {change[site]:.3g} nats; expected at "
        f"most {allowed:.1g}."
    )
    if remedy := _single_edit(frozen, symmetry, label, place):
        return f"{message} {remedy}"
    if site in symmetry.axes:
        return f"{message} Its prior must be the same for every index along that axis, or the axis must carry no group."
    return f"{message} Check the axes of {sorted(symmetry.axes)}, and whether a site that meets them is missing."


def _single_edit(frozen: FrozenModel, symmetry: Symmetry, label: str, place: Values) -> str | None:
    """The one change to the specification that makes the model invariant, if there is one."""
    names = list(symmetry.groups) if label == "all groups" else [label]
    for name in names:
        for site, value in place.items():
            entries = symmetry.axes.get(site, ())
            entries = (None,) * (value.ndim - len(entries)) + tuple(entries)
            for position, entry in enumerate(entries):
                axis = position - len(entries)
                if entry is None and value.shape[axis] == symmetry.sizes[name]:
                    edit, remedy = name, f"Add {name!r} to axis {axis} of site {site!r}."
                elif entry == name:
                    edit, remedy = None, f"Remove {name!r} from axis {axis} of site {site!r}."
                else:
                    continue
                axes = dict(symmetry.axes) | {site: entries[:position] + (edit,) + entries[position + 1 :]}
                axes = {s: e for s, e in axes.items() if any(x is not None for x in e)}
                if _repairs(frozen, axes, symmetry, name, place):
                    return remedy
    return None


def _repairs(frozen: FrozenModel, axes: Mapping, symmetry: Symmetry, name: str, place: Values) -> bool:
    if name not in Symmetry(axes).groups:
        return True  # it stood on this axis alone
    edited = Symmetry(axes, symmetry.kinds, symmetry.sizes)
    base = frozen.log_probs(place)
    for key in jax.random.split(jax.random.PRNGKey(1), 2):
        element = edited.identity() | {name: edited.sample(key)[name]}
        for candidate in (element, edited.identity() | {name: _swap(edited, name)[name]}):
            if not _gap(frozen, base, frozen.log_probs(_moved(edited, candidate, place))) <= _tolerance(base):
                return False
    return _control_gap(frozen, edited, name, place) > _CONTROL_FACTOR * _tolerance(base)
