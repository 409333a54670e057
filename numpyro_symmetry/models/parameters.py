"""Arrays of `numpyro.param`, each a site of its own. Knows pytrees and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import Array

from numpyro_symmetry.symmetry.pytrees import arrays_by_path, name_of


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
