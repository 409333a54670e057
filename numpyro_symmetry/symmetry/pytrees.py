"""Arrays of a pytree by the path to them, and back: what makes any tree of parameters values by site.

Knows pytrees, and what libraries call running statistics; no symmetry.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from numpyro_symmetry.symmetry.errors import SymmetryError, warn
from numpyro_symmetry.symmetry.nouns import FUNCTION, MODEL, Nouns
from numpyro_symmetry.symmetry.shown import first_of

# names of running statistics in Flax (a collection, and a type of nnx), haiku and PyTorch
_STATISTICS = {"batch_stats", "mean_ema", "var_ema", "running_mean", "running_var"}
_STATISTIC_TYPES = {"BatchStat"}


def can_be_moved(leaf: Any) -> bool:
    """Whether a leaf holds numbers that could be moved: random keys, numbers of Python and functions stay put.

    So do columns of a data frame that are of a type of pandas' own.
    """
    return isinstance(getattr(leaf, "dtype", None), np.dtype) and hasattr(leaf, "shape")


def is_fitted_guide(value: Any) -> bool:
    """Whether something is a guide with its parameters, ``(guide, params)``, and not a tuple of two trees of arrays."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and callable(value[0]) and isinstance(value[1], Mapping)
    return is_pair and not arrays_by_path(value[0])


def comes_by_site(values: Any, sites: Collection[str] = ()) -> bool:
    """Whether values are a mapping in which no array lies deeper than one key, or whose own keys alone name some sites.

    Any other mapping is a tree, whose paths name its arrays, those among its own keys too; so is one that holds beside
    them what can be no site, such as a random key.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        return False
    paths = {name_of(path): len(path) for path, leaf in _leaves(values) if can_be_moved(leaf)}
    if all(depth < 2 for depth in paths.values()):
        return not (paths and paths.keys() >= set(sites) and any(map(_is_no_site, values.values())))
    # sites that are lists of numbers are no arrays of a tree
    return bool(sites) and all(site in values for site in sites) and not all(site in paths for site in sites)


def _is_no_site(value: Any) -> bool:
    """Whether something holds no numbers, and is no misshapen site either: it only stands in a tree beside arrays."""
    is_key = isinstance(value, jax.Array) and not can_be_moved(value)
    is_empty = isinstance(value, Mapping | tuple) and not value
    return value is None or is_key or is_empty or callable(value) or isinstance(value, str)


def as_sites(values: Any, sites: Collection[str] = ()) -> Mapping[str, Any]:
    """Values by site: as they come, where they do, or the arrays of a pytree by the paths to them."""
    return values if comes_by_site(values, sites) else arrays_by_path(values) or values


def arrays_by_path(tree: Any) -> dict[str, Any]:
    """Arrays of a pytree by the path to each, ``"params.Dense_0.kernel"``.

    Of a flat mapping these are its keys.

    Raises
    ------
    SymmetryError
        If two arrays have one path.
    """
    found: dict[str, Any] = {}
    for path, leaf in _leaves(tree):
        if not can_be_moved(leaf):
            continue
        if (name := name_of(path)) in found:
            raise SymmetryError(
                f"Two arrays of the tree have one path, {name!r}: a key with a dot in it reads like two keys. Rename "
                "one of them."
            )
        found[name] = leaf
    return found


def real_arrays(tree: Any) -> dict[str, Any]:
    """Arrays of a pytree by path, but for those of whole numbers."""
    return {name: leaf for name, leaf in arrays_by_path(tree).items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}


def ties_of(tree: Any) -> dict[str, str]:
    """Further path of an array that stands at several -> its first path."""
    first: dict[int, str] = {}
    named = {name: first.setdefault(id(leaf), name) for name, leaf in arrays_by_path(tree).items()}
    return {name: other for name, other in named.items() if name != other}


def uncompared(tree: Any, sites: Collection[str] = ()) -> frozenset[str]:
    """Arrays that move along with units, and do not say which is which: running statistics, whole numbers of a tree.

    Values by site may be of a model whose whole numbers say a lot. Where there are no others, all are compared.
    """
    arrays = arrays_by_path(tree)
    typed = _leaves(tree, is_leaf=_is_statistic)
    beside = {name_of((*path, *rest)) for path, node in typed if _is_statistic(node) for rest, _ in _leaves(node)}
    beside |= {name for name in arrays if _STATISTICS & set(re.split("[./]", name))}
    beside |= set() if comes_by_site(tree, sites) else arrays.keys() - real_arrays(tree).keys()
    return frozenset() if beside >= arrays.keys() else frozenset(beside)


def refuse_other_structure(one: Any, other: Any, names: tuple[str, str], *, shapes: bool = True) -> None:
    """Refuse two trees whose arrays have other paths, or other shapes.

    Raises
    ------
    SymmetryError
        Naming the paths that only one of them has, or the first array that has another shape.
    """
    arrays = arrays_by_path(one), arrays_by_path(other)
    refuse_mismatch(*arrays, names, shapes=shapes, of=FUNCTION, remedy=" Give trees of one structure.")


def refuse_mismatch(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    names: tuple[str, str],
    *,
    shapes: bool = True,
    of: Nouns = MODEL,
    remedy: str = "",
) -> None:
    """Refuse arrays by site, or by path, that are of other sites, or of other shapes."""
    alone = [repr(site) for site in first if site not in second], [repr(site) for site in second if site not in first]
    of_each = [(sites, "is" if len(sites) == 1 else "are", name) for sites, name in zip(alone, names, strict=True)]
    if differing := [f"{first_of(sites)} {verb} in {name} alone" for sites, verb, name in of_each if sites]:
        raise SymmetryError(f"The two have different {of.array}s: {', '.join(differing)}.{remedy}")
    for site in first if shapes else ():
        if np.shape(first[site]) != np.shape(second[site]):
            raise SymmetryError(
                f"{of.named(site)} has shape {np.shape(first[site])} in {names[0]} and {np.shape(second[site])} in "
                f"{names[1]}."
            )


def warn_of_settings(one: Any, other: Any, names: tuple[str, str]) -> None:
    """Say that numbers of Python, or tables, differ between two trees of which those of the first are kept."""
    first, second = (
        {
            name_of(path): leaf
            for path, leaf in _leaves(tree)
            if isinstance(leaf, numbers.Number) and not can_be_moved(leaf)
        }
        for tree in (one, other)
    )
    if differing := sorted(name for name in first.keys() & second.keys() if first[name] != second[name]):
        warn(
            f"Numbers of Python at {differing} differ between {names[0]} and {names[1]}. They are settings: those of "
            f"{names[0]} are kept. As arrays, jnp.asarray(...), they are parameters like any other."
        )
    # columns of a type of NumPy's are arrays, and frames and columns of pandas' own types are none
    tables, others = (
        {name_of(path): leaf for path, leaf in _leaves(tree) if hasattr(leaf, "iloc") and not can_be_moved(leaf)}
        for tree in (one, other)
    )
    if differing := sorted(name for name in tables.keys() & others.keys() if not tables[name].equals(others[name])):
        warn(
            f"Tables at {differing} differ between {names[0]} and {names[1]}, and are no arrays: those of {names[0]} "
            "are kept, and no label moves them. As arrays, column.to_numpy(float), they are parameters like any other."
        )


def replaced(tree: Any, values: Mapping[str, Any]) -> Any:
    """A pytree with arrays, by their paths, in place of its own; one array at two paths stays one if it can."""
    new = with_ties(tree, values)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: new.get(name_of(path), leaf) if can_be_moved(leaf) else leaf, tree
    )


def as_given(tree: Any, values: Mapping[str, Any], sites: Collection[str]) -> Any:
    """A pytree, or values by site, with arrays in place of its own; of the mappings of its own kind if it is a tree."""
    if comes_by_site(tree, sites) and (type(tree) is dict or not set(sites) <= arrays_by_path(tree).keys()):
        return dict(tree) | with_ties(tree, values)
    return replaced(tree, values)


def like(given: Any, new: Any) -> Any:
    """New values as an array of the library that ``given`` is of, of the same names where its dimensions have any."""
    if has_names(given) and not isinstance(new, Tracer):
        return given.copy(deep=False, data=new)
    return jnp.asarray(new) if isinstance(given, jax.Array) else new


def has_names(given: Any) -> bool:
    """Whether a value is an array whose dimensions have names, as those of xarray have."""
    return can_be_moved(given) and hasattr(given, "xindexes")


def with_arrays(tree: Any, values: Mapping[str, Any]) -> Any:
    """A pytree, or values by site, with arrays in place of its own, of the types and the library of its own."""
    own = tree if comes_by_site(tree, values) else arrays_by_path(tree)

    def one(given: Any, new: Any) -> Any:
        xp: Any = jnp if isinstance(given, jax.Array) or isinstance(new, Tracer) else np
        dtype = given.dtype if can_be_moved(given) else xp.result_type(new)
        # arrays of NumPy may be of a type that JAX does not use in this session
        return like(given, xp.asarray(new).astype(jax.dtypes.canonicalize_dtype(dtype) if xp is jnp else dtype))

    return as_given(tree, {name: one(own[name], value) for name, value in values.items()}, values)


def with_ties(tree: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """New arrays by path, of which those that are equal, and were one array in a tree, are one again."""
    new = dict(values)
    for name, first in ties_of(tree).items():
        mine, other = new.get(name), new.get(first)
        known = not any(x is None or isinstance(x, Tracer) for x in (mine, other))
        if known and np.array_equal(np.asarray(mine), np.asarray(other)):
            new[name] = new[first]
    return new


def name_of(path: tuple[Any, ...]) -> str:
    """The path to a leaf in words; of a tree that is a leaf it is ``"array"``."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "array"


def _leaves(tree: Any, is_leaf: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    return jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)


def _is_statistic(node: Any) -> bool:
    return type(node).__name__ in _STATISTIC_TYPES
