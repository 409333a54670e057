"""What every test shares."""

import pytest


def pytest_ignore_collect(collection_path):
    """Only test files are collected here; doctests are for the package, and benchmarks run by hand."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_"):
        return True
    return None


@pytest.fixture(params=[False, True], ids=["float32", "x64"])
def precision(request):
    """Run the test in single and in double precision."""
    import jax

    with jax.enable_x64(request.param):
        yield request.param
