"""Draws on disk brought into one basin, written and reported: peak memory, seconds and CPU seconds of every stage.

    python -m tests.benchmarks.large_traces
    python -m tests.benchmarks.large_traces --gigabytes 1 --killed

Makes a zarr store of a network's draws in a temporary folder (three times its size has to be free), a chunk at a time.
Then, each in a process of its own: relabels, writes and reports; and compares a part of all that with the same draws in
memory. With --killed the process that writes is killed half-way, and another one takes up what it left. What was
measured is printed, and recorded in results/large_traces.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from numpyro_symmetry import Symmetry, rebase, report
from tests.benchmarks.stages import measured, record, run, tell

INPUTS, UNITS, OUTPUTS = 784, 128, 10
CHAINS, CHUNK, NOISE = 4, 50e6, 0.3
# draws of each chain that are compared with the same in memory
PART = 100
SHAPES = {"w1": (INPUTS, UNITS), "b1": (UNITS,), "w2": (UNITS, OUTPUTS)}
SYMMETRY = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden", None)})
BYTES = 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())
RESULTS = Path(__file__).parent / "results" / "large_traces.json"


# ---- stages ------------------------------------------------------------------------------------------------------


def make(folder: Path, gigabytes: float) -> None:
    """Draws about one network, each under labels of its own."""
    num_draws, step = round(gigabytes * 1e9 / BYTES / CHAINS), round(CHUNK / BYTES)
    draws = tuple(min(step, num_draws - start) for start in range(0, num_draws, step))
    arrays = {}
    for k, (site, shape) in enumerate(SHAPES.items()):
        chunks = ((1,) * CHAINS, draws, *((n,) for n in shape))
        of = partial(block, site=site, number=k)
        array = da.map_blocks(of, dtype=np.float32, chunks=chunks, meta=np.empty((0,) * len(chunks), np.float32))
        arrays[site] = (("chain", "draw", *(f"{site}_{axis}" for axis in range(len(shape)))), array)
    with measured("make"):
        xr.Dataset(arrays).to_zarr(folder / "raw.zarr", consolidated=False)


def block(block_info: Any = None, *, site: str, number: int) -> np.ndarray:
    """A chunk of draws of a site."""
    where, (_, count, *shape) = block_info[None]["chunk-location"][:2], block_info[None]["chunk-shape"]
    truth = np.random.default_rng(number).standard_normal(shape, dtype=np.float32)
    values = truth + NOISE * np.random.default_rng([*where, number]).standard_normal((count, *shape), dtype=np.float32)
    labels = np.random.default_rng(where).permuted(np.tile(np.arange(UNITS), (count, 1)), axis=1)
    axis = SYMMETRY.axes[site].index("hidden")
    order = [-1 if k == axis else 1 for k in range(len(shape))]
    return np.take_along_axis(values, labels.reshape(count, *order), axis + 1)[None]


def relabel(folder: Path) -> None:
    """Relabel, write what is not written yet, and report."""
    raw = opened(folder / "raw.zarr")
    with measured("rebase"):
        out = rebase(raw, SYMMETRY)
    np.save(folder / "elements.npy", np.asarray(out.elements["hidden"]))
    with measured("to_zarr"):
        out.to_zarr(folder / "relabelled.zarr", progress_bar=False)
    with measured("report"):
        found = report(raw, out)
    print(found)


def check(folder: Path) -> None:
    """Compare a part of the draws with the same in memory."""
    stored = opened(folder / "raw.zarr").isel(draw=slice(0, PART))
    held = stored.compute()
    eager, lazy = (rebase(draws, SYMMETRY, null=False) for draws in (held, stored.chunk(draw=37)))
    written = opened(folder / "relabelled.zarr").isel(draw=slice(0, PART))
    own = np.asarray(eager.elements["hidden"])
    same = {
        "elements of all draws": np.load(folder / "elements.npy", mmap_mode="r")[:, :PART] == own,
        "values written": [np.array_equal(written[site], eager.data[site]) for site in SHAPES],
        "elements of the part, stored": lazy.elements["hidden"] == own,
        "objectives": lazy.objective == eager.objective,
        "margins": lazy.margin == eager.margin,
        "report": repr(report(stored.chunk(draw=37), lazy)) == repr(report(held, eager)),
    }
    tell({"stage": "check", "draws": CHAINS * PART} | {name: bool(np.all(x)) for name, x in same.items()})


STAGES: dict[str, Callable[..., None]] = {"make": make, "relabel": relabel, "check": check}


def opened(path: Path) -> xr.Dataset:
    """A store, a few chunks of which are read at a time."""
    return xr.open_zarr(path, consolidated=False)


# ---- all of them -------------------------------------------------------------------------------------------------


def is_half_written(path: Path) -> bool:
    """Whether half of a store's regions are complete."""
    try:
        return float(opened(path)["is_complete"].mean()) >= 0.5
    except (FileNotFoundError, KeyError, ValueError, json.JSONDecodeError):
        return False


def main() -> None:
    """Every stage in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of draws")
    parser.add_argument("--folder", type=Path, help="in which to make a temporary one")
    parser.add_argument("--killed", action="store_true", help="kill what writes half-way, and take it up")
    parser.add_argument("--stage", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.stage:
        name, folder, *rest = options.stage
        STAGES[name](Path(folder), *map(float, rest))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        free, needed = shutil.disk_usage(folder).free / 1e9, 3 * options.gigabytes
        if free < needed:
            raise SystemExit(f"{folder} has {free:.0f} GB left; {needed:.0f} are needed. Name another --folder.")
        in_turn = partial(run, __spec__.name)
        rows = in_turn("make", folder, options.gigabytes)
        if options.killed:
            rows += in_turn("relabel", folder, until=lambda: is_half_written(Path(folder) / "relabelled.zarr"))
        rows += in_turn("relabel", folder) + in_turn("check", folder)
    record(RESULTS, f"{options.gigabytes:g} GB" + ", killed" * options.killed, rows)


if __name__ == "__main__":
    main()
