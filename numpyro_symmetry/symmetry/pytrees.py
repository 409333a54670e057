"""Arrays of a pytree by the path to them, and back: what makes any tree of parameters values by site.

Knows pytrees; no symmetry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_symmetry.symmetry.errors import SymmetryError


def is_array(leaf: Any) -> bool:
    """Whether a leaf holds numbers that could be moved: random keys, numbers of Python and functions stay put."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and hasattr(leaf, "shape") and not jnp.issubdtype(dtype, jax.dtypes.prng_key)


def as_sites(values: Any, sites: Collection[str]) -> Mapping[str, Any]:
    """Values by site: as they come, where they do, or the arrays of a pytree by the paths to them."""
    comes_by_site = isinstance(values, Mapping) and (not sites or any(site in values for site in sites))
    return values if comes_by_site else arrays_by_path(values) or values


def arrays_by_path(tree: Any) -> dict[str, Any]:
    """Arrays of a pytree by the path to each, ``"params.Dense_0.kernel"``.

    Of a flat mapping these are its keys.

    Raises
    ------
    SymmetryError
        If two arrays have one path.
    """
    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not is_array(leaf):
            continue
        if (name := name_of(path)) in found:
            raise SymmetryError(
                f"Two arrays of the tree have one path, {name!r}: a key with a dot in it reads like two keys. Rename "
                "one of them."
            )
        found[name] = leaf
    return found


def ties_of(tree: Any) -> dict[str, str]:
    """Of arrays that stand at more than one path, each further path, and the first one."""
    first: dict[int, str] = {}
    named = {name: first.setdefault(id(leaf), name) for name, leaf in arrays_by_path(tree).items()}
    return {name: other for name, other in named.items() if name != other}


def replaced(tree: Any, values: Mapping[str, Any]) -> Any:
    """A pytree with arrays, by their paths, in place of its own."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: values.get(name_of(path), leaf) if is_array(leaf) else leaf, tree
    )


def name_of(path: tuple) -> str:
    """The path to a leaf in words; of a tree that is a leaf it is ``"array"``."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "array"
