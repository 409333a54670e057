"""What a site of a trace is: latent, observed, a setting; its plates; its distribution and support under wrappers.

Sites are NumPyro's messages, by name. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform

from numpyro_symmetry.symmetry.arguments import is_traced
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, name_of

Trace = Mapping[str, Any]

# kinds of sites whose dimensions have names
WITH_DIMS = ("sample", "deterministic")


def drawn_shape(site: Mapping[str, Any]) -> tuple[int, ...]:
    """Shape of a value of a sample site, as many independent ones as ``sample_shape`` asks for."""
    return (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())


def is_latent(site: Any) -> bool:
    """Whether a site is drawn, and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def is_observed(site: Any) -> bool:
    """Whether a site holds data, or is a factor."""
    return site["type"] == "sample" and site["is_observed"]


def latent_of(trace: Trace) -> dict[str, Any]:
    """Latent sites of a trace."""
    return {name: site for name, site in trace.items() if is_latent(site)}


def observed_of(trace: Trace) -> dict[str, Any]:
    """Observed sites of a trace."""
    return {name: site for name, site in trace.items() if is_observed(site)}


def discrete_of(trace: Trace) -> list[str]:
    """Discrete latent sites of a trace."""
    return [name for name, site in latent_of(trace).items() if site["fn"].support.is_discrete]


def weight_of(site: Mapping[str, Any]) -> Any:
    """The weight of a site's log density; one where no plate and no handler gives it any."""
    return 1.0 if site["scale"] is None else site["scale"]


def is_fitted(site: Any) -> bool:
    """Whether a site is a parameter, or mutable state."""
    return site["type"] in ("param", "mutable")


def is_subsampled(site: Any) -> bool:
    """Whether a site is a plate of some of its rows."""
    return site["type"] == "plate" and site["args"][1] not in (None, site["args"][0])


def subsampled_plates(trace: Trace, site: str) -> dict[str, tuple[int, int]]:
    """Plates around a site that show some of their members only: how many, and of how many."""
    sizes = {
        frame.name: (frame.size, trace[frame.name]["args"][0])
        for frame in trace[site]["cond_indep_stack"]
        if frame.name in trace
    }
    return {name: (shown, size) for name, (shown, size) in sizes.items() if shown < size}


def settings_of(trace: Trace) -> dict[str, Any]:
    """Values that a model's run needs beside its latent ones: of parameters, mutable state, plates."""
    return {name: site["value"] for name, site in trace.items() if is_fitted(site) or site["type"] == "plate"}


# ---- arrays of `numpyro.param`, each a site of its own ---------------------------------------------------------------


def leaves_of_parameters(trace: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays that the parameters hold, under names such as ``"net$params.Dense_0.kernel"``."""
    return leaves_of({name: site["value"] for name, site in trace.items() if site["type"] == "param"})


def leaves_of(settings: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays of numbers that settings hold, under such names."""
    return {name: leaf for site, tree in settings.items() for name, leaf in arrays_by_path({site: tree}).items()}


def with_leaves(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with leaves of parameters replaced, and latent values beside them."""
    new = jax.tree_util.tree_map_with_path(lambda path, leaf: values.get(name_of(path), leaf), dict(settings))
    return dict(values) | new


# ---- names of axes: of the plates that they are ----------------------------------------------------------------------


def plates_of(site: Any, ndim: int, event_dim: int) -> dict[int, str]:
    """Axis of a site's value, counted from the left -> the plate that it is."""
    at = {ndim - event_dim + frame.dim: frame.name for frame in site.get("cond_indep_stack") or []}
    return {position: name for position, name in at.items() if 0 <= position < ndim}


def axis_names(site: Any, ndim: int) -> list[str | None]:
    """A name for each axis of a site's value: of the plate that it is, or ``None``; of a parameter's, none."""
    plates = plates_of(site, ndim, site["fn"].event_dim) if site is not None and site["type"] == "sample" else {}
    return [plates.get(position) for position in range(ndim)]


def _event_of_computed(site: Any) -> int:
    """How many axes of a computed value are its own, right of its plates: the most with which these have their sizes.

    As many as it has axes, if there are none: then it is in no plate, wherever it stands.
    """
    shape, frames = np.shape(site["value"]), site.get("cond_indep_stack") or []
    for event in range(len(shape) - 1, -1, -1):
        at = {len(shape) - event + frame.dim: frame.size for frame in frames}
        if all(position >= 0 and shape[position] == size for position, size in at.items()):
            return event
    return len(shape)


def plate_dims(sites: Trace) -> dict[str, list[str]]:
    """Site -> names of its dimensions: plates, and what ``infer={"event_dims": ...}`` says of a site's own."""
    found = {}
    for name, site in sites.items():
        if site["type"] not in WITH_DIMS:
            continue
        ndim = np.ndim(site["value"])
        event = _event_of_computed(site) if site["type"] == "deterministic" else site["fn"].event_dim
        plates = plates_of(site, ndim, event)
        names = [plates.get(k, f"{name}_dim_{k}") for k in range(ndim)]
        given = (site.get("infer") or {}).get("event_dims") or []
        names[ndim - len(given) :] = list(given)
        if site.get("cond_indep_stack") or given:
            found[name] = names
    return found


# ---- under wrappers --------------------------------------------------------------------------------------------------


def without_wrappers(fn: Any) -> Any:
    """A distribution without the wrappers that only declare its shape."""
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    return fn


def layers(fn: Any) -> Iterator[Any]:
    """A distribution, and what it wraps, from the outside in: wrappers declare its shape, or mask it."""
    yield fn
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
        yield fn


def entrywise(wrapped: Any) -> Any:
    """A support, or a transform, without the wrappers that only declare event dimensions."""
    while isinstance(wrapped, constraints.independent):
        wrapped = wrapped.base_constraint
    while isinstance(wrapped, IndependentTransform):
        wrapped = wrapped.base_transform
    return wrapped


def is_same(one: Any, other: Any) -> bool:
    """Whether two constraints, or two transforms, agree: NumPyro's equality is false of arrays that are alike."""
    if one == other:
        return True
    (first, kind), (second, other_kind) = jax.tree.flatten(one), jax.tree.flatten(other)
    if kind != other_kind or is_traced(first, second):
        return False
    return all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def real_event(event_dim: int) -> Any:
    """The support of events of any real numbers."""
    return constraints.independent(constraints.real, event_dim) if event_dim else constraints.real


def is_improper(fn: Any) -> bool:
    """Whether a distribution is flat on its support, and has no draws."""
    return isinstance(without_wrappers(fn), dist.ImproperUniform)


def is_ordered(support: Any) -> bool:
    """Whether a support is that of values in increasing order."""
    return entrywise(support) in (constraints.ordered_vector, constraints.positive_ordered_vector)


def is_unconstrained(support: Any) -> bool:
    """Whether a support is that of any real numbers."""
    return entrywise(support) is constraints.real


def is_interval(support: Any) -> bool:
    """Whether a support is that of real numbers between two bounds."""
    return isinstance(entrywise(support), constraints.interval)
