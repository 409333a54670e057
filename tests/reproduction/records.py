"""Recorded runs: what was computed, on which day, with which versions, from which commit. None is run twice."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "numpyro", "blackjax", "numpyro-symmetry")


def load(name: str) -> dict[str, dict[str, Any]]:
    """Records of one file by key; none if it was never run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def units_identified(row: Mapping[str, Any], source: str) -> int | None:
    """How many units stand apart from the null in one recorded run; ``None`` where its draws cannot tell."""
    number = row[f"{source}_null"]["identified"]
    return number if isinstance(number, int) else None


def run(name: str, jobs: Mapping[str, Callable[[], dict[str, Any]]], *, only: Iterable[str] = ()) -> None:
    """Compute what is not recorded yet, one job after the other, and record each as soon as it is done.

    Parameters
    ----------
    name
        Name of the file.
    jobs
        Key -> what computes its record.
    only
        Beginnings of keys; by default all.
    """
    prefixes = tuple(only)
    wanted = [key for key in jobs if not prefixes or key.startswith(prefixes)]
    for key in tqdm([key for key in wanted if key not in load(name)], desc=name):
        start = time.perf_counter()
        record = jobs[key]() | {"seconds": round(time.perf_counter() - start, 1)} | provenance()
        jax.clear_caches()
        put(name, key, record)


def put(name: str, key: str, record: Mapping[str, Any]) -> None:
    """Write one record of a file, which is read again: another process may have recorded meanwhile."""
    (RESULTS / f"{name}.json").write_text(json.dumps(load(name) | {key: record}, indent=1) + "\n")


def provenance() -> dict[str, str]:
    """Versions, commit and day."""
    found = {package: version(package) for package in PACKAGES}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=RESULTS)
    return found | {"commit": commit.stdout.strip() or "unknown", "day": date.today().isoformat()}
