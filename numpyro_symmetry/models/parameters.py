"""Arrays of `numpyro.param`, each a site of its own. Knows pytrees and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import Array

from numpyro_symmetry.symmetry.pytrees import is_array


def leaves_of_parameters(trace: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays that the parameters hold, under names such as ``"net$params.Dense_0.kernel"``."""
    return leaves_of({name: site["value"] for name, site in trace.items() if site["type"] == "param"})


def leaves_of(settings: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays of numbers that settings hold, under such names."""
    return {
        _leaf_name(name, path): leaf
        for name, tree in settings.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if is_array(leaf)
    }


def with_leaves(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with leaves of parameters replaced, and latent values beside them."""
    rest = dict(values)

    def replaced(name: str, tree: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, leaf: rest.pop(_leaf_name(name, path), leaf), tree)

    return {name: replaced(name, tree) for name, tree in settings.items()} | rest


def _leaf_name(site: str, path: tuple[Any, ...]) -> str:
    keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    return ".".join([site, *keys])
