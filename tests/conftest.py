"""What every test shares."""

import itertools
import os
import tempfile

import pytest

# tests compile thousands of small functions and run each a few times, so compiling less thoroughly halves their time;
# JAX_DISABLE_MOST_OPTIMIZATIONS=0 tests what users run
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# many compile the same ones, which are forgotten now and then (below): each process keeps its own, and where
# NUMPYRO_SYMMETRY_COMPILED names a folder, for the next run too
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
_KEPT = os.environ.get("NUMPYRO_SYMMETRY_COMPILED", _COMPILED.name)
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": os.path.join(_KEPT, os.environ.get("PYTEST_XDIST_WORKER", "alone")),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

_TESTS_RUN = itertools.count(1)


def pytest_ignore_collect(collection_path):
    """Only test files are collected here; doctests are for the package, and benchmarks run by hand."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_"):
        return True
    return None


@pytest.fixture(autouse=True)
def _forget_compiled_code():
    """Compiled functions hold memory maps, and a process that compiles thousands of them runs out."""
    import jax

    yield
    if next(_TESTS_RUN) % 20 == 0:
        jax.clear_caches()


@pytest.fixture(params=[False, True], ids=["float32", "x64"])
def precision(request):
    """Run the test in single and in double precision."""
    import jax

    with jax.enable_x64(request.param):
        yield request.param
