"""Containers with named dimensions, written to zarr a region of draws at a time, so that a write can be resumed.

A variable of each group says which of its regions are complete, and is written after them. Knows groups, dimensions and
xarray's writer; no relabelling and no format.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from tqdm import tqdm

from numpyro_symmetry.chunks import CHUNK
from numpyro_symmetry.containers.labelled import COMPLETE, MARK, groups_of
from numpyro_symmetry.steps import interval
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.errors import need
from numpyro_symmetry.symmetry.named import DRAWS

_REGION = f"{COMPLETE}_region"
# chunks to a region: enough for all cores, few enough that little is done again
_CHUNKS_IN_A_REGION = 8


class _Group(NamedTuple):
    """A group in chunks that no two regions share: its data, the dimension that is cut, and draws to a region."""

    data: xr.Dataset
    dim: str | None
    step: int


def write_by_region(data: Any, path: Any, mark: str, *, progress_bar: bool = True) -> None:
    """Write a container to zarr, except for regions that are there already.

    Parameters
    ----------
    data
        ``xarray.Dataset``, ``DataTree`` or ``InferenceData``.
    path
        Path of the store.
    mark
        Text that tells these draws from others: a store that was begun with another mark is refused.
    progress_bar
        Whether to show a bar.

    Raises
    ------
    SymmetryError
        If there is another store at that path.
    ImportError
        If Dask or zarr is not installed.
    """
    need("dask", "zarr")
    groups = {name: _cut(dataset, mark) for name, dataset in groups_of(data).items()}
    # groups of draws, which have the mark, come first, so that a store which was hardly begun is known again
    groups = dict(sorted(groups.items(), key=lambda pair: pair[1].dim is None))
    todo = [(name, number) for name, group in groups.items() for number in _missing(group, name, path)]
    for name, number in tqdm(todo, desc="writing", unit="region", disable=not progress_bar, mininterval=interval()):
        group, where = groups[name], name or None
        start = number * group.step
        assert group.dim is not None
        region = slice(start, min(start + group.step, group.data.sizes[group.dim]))
        fixed = [name for name, x in group.data.variables.items() if group.dim not in x.dims]
        group.data.drop_vars(fixed).isel({group.dim: region}).to_zarr(path, group=where, region={group.dim: region})
        # only after the region is written: a run that is cut short before this line writes it again
        done = xr.Dataset(coords={COMPLETE: (_REGION, [True])})
        done.to_zarr(path, group=where, region={_REGION: slice(number, number + 1)})


def _cut(dataset: xr.Dataset, mark: str) -> _Group:
    dataset = dataset.drop_encoding().drop_vars(COMPLETE, errors="ignore")
    dim = next((dim for dim in DRAWS[::-1] if dim in dataset.dims), None)
    if dim is None:
        return _Group(dataset.load(), None, 0)
    drawn = [x for x in dataset.variables.values() if dim in x.dims]
    numbers = sum(math.prod(n for d, n in x.sizes.items() if d not in DRAWS) for x in drawn)
    draws = max(1, min(dataset.sizes[dim], CHUNK // max(1, numbers)))
    sizes = {str(d): -1 for x in drawn for d in x.dims} | {d: 1 for d in DRAWS if d in dataset.dims} | {dim: draws}
    step = draws * max(1, _CHUNKS_IN_A_REGION // dataset.sizes.get("chain", 1))
    complete = xr.Variable(_REGION, np.zeros(-(-dataset.sizes[dim] // step), bool), encoding={"chunks": (1,)})
    # variables without draws are written with the group itself, before any region
    fixed = {name: x.load() for name, x in dataset.data_vars.items() if dim not in x.dims}
    # as a coordinate, for ArviZ would take a variable for draws
    marked = dataset.chunk(sizes).assign(fixed).assign_coords({COMPLETE: complete})
    return _Group(marked.assign_attrs({MARK: f"{mark}, {step} draws to a region"}), dim, step)


def _missing(group: _Group, name: str, path: Any) -> Iterator[int]:
    """Numbers of a group's regions that the store lacks; writes the rest of the group first, if it lacks that."""
    there = _there(path, name)
    if group.dim is not None and there is not None and there.attrs.get(MARK) != group.data.attrs[MARK]:
        raise SymmetryError(
            f"There is a store at {str(path)!r} that is no beginning of these draws: it holds others, or they were "
            "relabelled otherwise. Delete it, or write to another path."
        )
    if there is None or not set(group.data.variables) <= set(there.variables):
        with warnings.catch_warnings():
            # zarr warns so of its third format; without consolidated metadata xarray would warn whoever reads the store
            warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
            group.data.to_zarr(path, group=name or None, mode="a", compute=False)
        there = group.data
    if group.dim is not None:
        yield from map(int, np.flatnonzero(~there[COMPLETE].values))


def _there(path: Any, name: str) -> xr.Dataset | None:
    """A group of a store, if there is one."""
    try:
        return xr.open_zarr(path, group=name or None, consolidated=False, chunks=None)
    except FileNotFoundError:
        return None
