"""Draws that Dask reads, a few entries of all of them at a time. Knows Dask and zarr; nothing of what they hold."""

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
    """An array of Dask of which so many entries along the last axis are read alone, while it is looked at.

    Chunks hold all entries of a few draws. They are cut once, into a temporary folder (Dask's, if it is told one), and
    are not read again for all that is asked for. Where there is no room, and on a cluster, whose workers may share no
    folder, they stay as they are.
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
    # task for each, their number would grow with the square of how many draws there are
    *draws, last = (max(sizes) for sizes in array.chunks)
    whole = array.rechunk((*draws, -(-last // size) * size))
    with TemporaryDirectory(dir=folder) as path:
        there = zarr.create_array(path, shape=whole.shape, chunks=(*draws, size), dtype=whole.dtype, compressors=None)
        da.store(whole, there, lock=False)
        # a name of its own: what lies there has to be read to be told from another
        yield da.from_array(there, chunks=(draws[0], *whole.shape[1:-1], size), name=False)  # pyright: ignore[reportArgumentType]
