"""Names of axes: of the plates that they are. Knows traces; no arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpyro_symmetry.models.sites import Trace

_KEPT = ("sample", "deterministic")


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
        if site["type"] not in _KEPT:
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
