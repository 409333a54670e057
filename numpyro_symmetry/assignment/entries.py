"""Stored draws, read a few entries of all draws at a time. Knows Dask and zarr; nothing of what the draws are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from shutil import disk_usage
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from numpyro_symmetry.assignment.passes import cluster


@contextmanager
def by_last_axis(array: Any, size: int) -> Iterator[Any]:
    """A Dask array of which ``size`` entries along the last axis can be read without the others, within the context.

    Chunks as they come hold all entries of a few draws. They are cut once, into a temporary folder (Dask's, if it is
    told one), so as not to be read again for every few entries. Where there is no room or no zarr, and on a cluster,
    whose workers may share no folder, they stay as they are.
    """
    from dask import config

    folder = config.get("temporary_directory", None) or gettempdir()
    as_it_is = size >= array.shape[-1] or disk_usage(folder).free < 2 * array.nbytes
    if as_it_is or cluster() is not None or find_spec("zarr") is None:
        yield array
        return
    import dask.array as da
    import zarr

    # a store has chunks of one size. One task writes all pieces of a chunk of draws, one reads those of a chain: with a
    # task for each piece, the number of tasks would grow with the square of the number of draws
    *draws, last = (max(sizes) for sizes in array.chunks)
    whole = array.rechunk((*draws, -(-last // size) * size))
    with TemporaryDirectory(dir=folder) as path:
        there = zarr.create_array(path, shape=whole.shape, chunks=(*draws, size), dtype=whole.dtype, compressors=None)
        da.store(whole, there, lock=False)
        # a random name: Dask would read the whole store to name it by its contents
        yield da.from_array(there, chunks=(draws[0], *whole.shape[1:-1], size), name=False)  # pyright: ignore[reportArgumentType]
