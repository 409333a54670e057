"""Data that are not a model's own: its symmetry must hold on them as well. Knows NumPyro; no symmetry.

Nothing may depend on which of the data coincide. Typing makes sure of that; where only numbers speak, they have to be
asked about other data, drawn from the entries of the model's own, so that labels stay labels and counts stay counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.primitives import Messenger

from numpyro_symmetry.models.sites import is_observed
from numpyro_symmetry.symmetry.arguments import is_number

_LITTLE = 1e-3


class ObservedAs(Messenger):
    """Replaces the values of observed sites, those that a model closes over or is conditioned on as well."""

    def __init__(self, fn: Callable, observed: Mapping[str, Any]) -> None:
        super().__init__(fn)
        self.observed = observed

    def process_message(self, msg: Any) -> None:
        """Replace one value; of a step of a loop, which sees its own share of it, none."""
        if is_observed(msg) and msg["name"] in self.observed:
            value = self.observed[msg["name"]]
            if np.shape(value) == np.shape(msg["value"]):
                msg["value"] = value


def is_array(value: Any) -> bool:
    """Whether a value is an array of numbers, one without axes and a NumPy scalar as well: data, and not a setting."""
    return isinstance(value, np.ndarray | np.generic | jax.Array) and is_number(value.dtype)


def is_table(value: Any) -> bool:
    """Whether a value is a series or a frame of pandas, or an array, a data set or a tree of xarray: data under names.

    A model reads them by name, so that they cannot be traced: they are constants of its programs.
    """
    return any(hasattr(value, name) for name in ("iloc", "drop_vars", "map_over_datasets"))


def is_key(value: Any) -> bool:
    """Whether a value holds random keys of the new kind, which are no numbers."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def holds_nan(data: Any) -> bool:
    """Whether data hold NaN, or something is missing from a table; tracers do not tell."""

    def one(x: Any) -> bool:
        if is_table(x):
            return any(bool(array.isnull().to_numpy().any()) for array in _arrays_of(x))
        is_known = is_array(x) and not isinstance(x, Tracer)
        return is_known and jnp.issubdtype(x.dtype, jnp.inexact) and bool(np.isnan(np.asarray(x)).any())

    return any(map(one, jax.tree.leaves(data)))


def _arrays_of(table: Any) -> Iterator[Any]:
    """What holds the values of a table: of xarray its coordinates too, and those of all nodes of a tree."""
    if not hasattr(type(table), "coords"):  # a column may be called so
        yield table
        return
    for node in getattr(table, "subtree", [table]):
        yield from getattr(node, "data_vars", {"": node}).values()
        yield from node.coords.values()


def apart(data: Any, rng: np.random.Generator) -> Any:
    """Data with real numbers moved a little, each by its own amount."""

    def one(x: Any) -> Any:
        if not (is_array(x) and jnp.issubdtype(x.dtype, jnp.floating)):
            return x
        # zeros as well, by a part of the others' size
        little = _LITTLE * np.asarray(rng.random(np.shape(x)))
        size = np.abs(np.nan_to_num(np.asarray(x), posinf=0.0, neginf=0.0)).max(initial=0.0) or 1.0
        return _as(x, np.where(np.asarray(x) == 0, little * size, np.asarray(x) * (1 - little)))

    return _changed(data, one)


def redrawn(data: Any, rng: np.random.Generator, *, scalars: bool = True) -> Any:
    """Data drawn afresh: real ones from the own entries of each array, and moved apart; whole ones from their range.

    Entries that are all alike would stay so: they go up by one at random, or a part of the way to zero. Arrays without
    axes may be left as they are, for those that a model takes for a size.
    """

    def one(x: Any) -> Any:
        if not is_array(x) or not np.size(x) or not (scalars or np.ndim(x)):
            return x
        value = np.asarray(x)
        # a number on its own has no other that could move in its place
        up, is_constant = rng.integers(0 if value.ndim else 1, 2, value.shape), (value == value.ravel()[0]).all()
        if value.dtype == bool:
            drawn = up if value.ndim else ~value
        elif value.dtype.kind in "iu":
            drawn = value + up if is_constant else rng.integers(value.min(), value.max() + 1, value.shape)
        else:
            drawn = value * (1 - 0.5 * up) if is_constant else rng.choice(value.ravel(), value.shape)
        return _as(x, drawn)

    return apart(_changed(data, one), rng)


def _changed(data: Any, change: Callable[[Any], Any]) -> Any:
    """Data whose leaves are changed, and the arrays in their tables."""
    return jax.tree.map(lambda x: _within(x, change) if is_table(x) else change(x), data)


def _within(table: Any, change: Callable[[Any], Any]) -> Any:
    """A table with other numbers under the same names; categories and what is missing stay, and so do indices."""

    def afresh(array: Any) -> Any:
        return array.copy(data=change(np.asarray(array)))

    if hasattr(table, "map_over_datasets"):
        return table.map_over_datasets(lambda data: _within(data, change))
    if hasattr(table, "drop_vars"):
        new = table.map(afresh, keep_attrs=True) if hasattr(table, "data_vars") else afresh(table)
        beside = {name: x.variable for name, x in table.coords.items() if name not in table.xindexes}
        return new.assign_coords({name: afresh(x) for name, x in beside.items()})
    if not hasattr(table, "isetitem"):
        is_there = table.notna().to_numpy()
        known = table[is_there].infer_objects().to_numpy()
        if hasattr(table.dtype, "categories") or (new := change(known)) is known:
            return table
        entries = table.to_numpy(object, copy=True)
        entries[is_there] = new
        return type(table)(entries, index=table.index, dtype=table.dtype, name=table.name)
    frame = table.copy()
    for k, (_, column) in enumerate(table.items()):
        frame.isetitem(k, _within(column, change))
    return frame


def _as(given: Any, value: Any) -> Any:
    value = np.asarray(value).astype(given.dtype)
    if isinstance(given, np.generic):
        return value[()]
    return value if isinstance(given, np.ndarray) else jax.device_put(value)
