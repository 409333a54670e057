"""Stages of a long run, each in a process of its own: what it takes, what it tells, and killing it on the way."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def measured(stage: str) -> Iterator[None]:
    """Tells seconds, CPU seconds and the process's peak memory so far of what is done within, unless it fails."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    tell({"stage": stage, "seconds": round(wall, 1), "cpu": round(cpu, 1), "peak_GB": round(peak, 3)})


def tell(row: dict[str, Any]) -> None:
    """One line for the process that started this one."""
    print(json.dumps(row), flush=True)


def run(module: str, stage: str, *arguments: Any, until: Callable[[], bool] | None = None) -> list[dict[str, Any]]:
    """A stage of a module in a process of its own, killed once something is so; what it told and took."""
    command = [sys.executable, "-W", "ignore", "-m", module, "--stage", stage, *map(str, arguments)]
    start, killed = time.perf_counter(), False
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, stdout=told)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            time.sleep(0.2)
            if until is not None and not killed and until():
                process.send_signal(signal.SIGKILL)
                killed = True
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        told.seek(0)
        lines = told.read().splitlines()
    print(*lines, sep="\n", flush=True)
    if process.returncode and not killed:
        raise SystemExit(f"{stage} ended with status {process.returncode}.")
    used = ended[2]
    whole = {
        "stage": f"{stage}, killed" if killed else f"{stage}, whole process",
        "seconds": round(time.perf_counter() - start, 1),
        "cpu": round(used.ru_utime + used.ru_stime, 1),
        "peak_GB": round(used.ru_maxrss * 1024 / 1e9, 3),
    }
    tell(whole)
    return [*(json.loads(line) for line in lines if line.startswith("{")), whole]


def record(path: Path, key: str, rows: list[dict[str, Any]]) -> None:
    """Keep what was told, beside what other runs told."""
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {key: rows}, indent=1) + "\n")
