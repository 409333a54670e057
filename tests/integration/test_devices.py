"""Over several devices, and in several processes, numbers are those of one."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.support import devices

# seconds, after which what runs is ended
TIME_LIMIT = 900


@pytest.fixture(scope="module")
def of_one():
    """Every part on one device, which computes it when it is first asked for."""
    known = {}

    def numbers(part):
        if part not in known:
            with jax.enable_x64(True):
                known[part] = devices.numbers([part])
        return known[part]

    return numbers


@pytest.mark.parametrize(
    ("num_devices", "num_processes", "parts"),
    [
        # the mean-field guide takes the same ways as the conditional one, and half as long again
        (4, 1, ("conditional", "tables", "chains")),
        (1, 2, ("conditional", "tables")),
        *(
            pytest.param(num_devices, num_processes, tuple(devices.PARTS), marks=pytest.mark.slow)
            for num_devices, num_processes in ((2, 1), (4, 1), (8, 1), (1, 2), (2, 2))
        ),
    ],
)
def test_numbers_are_those_of_one_device(of_one, tmp_path, num_devices, num_processes, parts):
    path = tmp_path / "numbers.npz"
    there = ["--devices", str(num_devices), "--processes", str(num_processes), "--limit", str(TIME_LIMIT)]
    subprocess.run(
        [sys.executable, "-m", "tests.support.devices", str(path), *there, "--parts", *parts],
        cwd=Path(__file__).parents[2],
        check=True,
        timeout=TIME_LIMIT + 30,
    )
    found = dict(np.load(path))
    expected = {name: value for part in parts for name, value in of_one(part).items()}
    assert found.keys() == expected.keys()
    for name, value in found.items():
        # chains are followed over twenty draws, after which rounding has grown
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if name.startswith("['chains']") else {"rtol": 1e-9, "atol": 1e-9}
        np.testing.assert_allclose(value, expected[name], err_msg=name, **tolerance)
