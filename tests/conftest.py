"""What every test shares."""

import gc
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

# tests compile thousands of small functions and run each a few times, so compiling less thoroughly halves their time;
# JAX_DISABLE_MOST_OPTIMIZATIONS=0 tests what users run
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1":
    if version("jaxlib").startswith("0.10."):
        # what this emits code with takes nearly twice as long as what it replaced; later versions have no such choice.
        # Programs cut into parts for threads that other tests keep busy take up to twice as long to compile
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    else:
        # a seventh less of what a program takes to compile
        flags = "--xla_cpu_opt_preset=FAST_COMPILE"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()

# as many processes as cores run tests, and threads of OpenBLAS's own would spin for those cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# many compile the same ones, which are forgotten now and then (below): all processes of a run keep what they compiled
# in one folder, and where NUMPYRO_SYMMETRY_COMPILED names it, for the next run too
if "NUMPYRO_SYMMETRY_COMPILED" not in os.environ:
    _COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["NUMPYRO_SYMMETRY_COMPILED"] = _COMPILED.name
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": os.environ["NUMPYRO_SYMMETRY_COMPILED"],
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

# a compiled function, however small, takes half a megabyte
_MOST_COMPILED = 2000

# objects more before garbage is looked for: tracing makes millions that live on for a while, and little garbage
_GARBAGE = 20_000, 20, 20


def pytest_configure(config):
    """What one process is still writing another cannot read yet, and compiles itself."""
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache entry:UserWarning")


def pytest_ignore_collect(collection_path):
    """Only test files are collected here; doctests are for the package, and benchmarks run by hand."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_"):
        return True
    return None


def pytest_collection_modifyitems(items):
    """Rows that take a processor long are slow where a cheaper one, or two, hold the same law: measured."""
    dear = frozenset((Path(__file__).parent / "dear_rows.txt").read_text().splitlines())
    for item in items:
        if item.nodeid in dear:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """No search for garbage need look at modules and tests, which live on."""
    _share_one_context()
    _start_in_one_program()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def _share_one_context():
    """JAX 0.10 loads every dialect that it knows anew for each program: a quarter of what a small one costs to compile.

    It also keeps the program, with a megabyte of dialects of its own. These are JAX's own: where it has other names for
    them, its functions take more time and memory.
    """
    from jax._src.interpreters import mlir

    fresh = getattr(mlir, "make_ir_context", None)
    if fresh is not None:
        shared = fresh()
        # what is compiled while another program is being written must not be written into that one
        mlir.make_ir_context = lambda: fresh() if mlir.ir.Context.current else shared


def _start_in_one_program():
    """NumPyro looks for a start operation by operation: a hundred small programs, half of what a set-up costs."""
    import jax
    from numpyro.infer import util

    one_by_one = util.find_valid_initial_params

    def find_valid_initial_params(rng_key, model, **options):
        sites, values = list(options["prototype_params"]), list(options["prototype_params"].values())

        @jax.jit
        def find(key, values):
            # only their shapes matter: as constants they would make another program of every seed's
            return one_by_one(key, model, **options | {"prototype_params": dict(zip(sites, values, strict=True))})

        try:
            (params, energy, slope), is_valid = find(rng_key, values)
        except Exception:
            # a program that looks at its values; or one that is wrong, and says so best itself
            return one_by_one(rng_key, model, **options)
        # a compiled function sorts sites, which guides lay out in the order of the model
        ordered = {site: params[site] for site in sites}
        return (ordered, energy, slope), is_valid

    util.find_valid_initial_params = find_valid_initial_params


@pytest.fixture(scope="session")
def compiled():
    """How many functions were compiled since they were last forgotten, as a list of one."""
    import jax

    count = [0]

    def heard(event, _, **__):
        count[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(heard)
    return count


@pytest.fixture(autouse=True)
def _forget_compiled_code(compiled):
    """Compiled functions hold memory, and a process that compiles thousands of them runs out."""
    import jax

    yield
    if compiled[0] > _MOST_COMPILED:
        jax.clear_caches()
        gc.collect()
        compiled[0] = 0


@pytest.fixture(autouse=True)
def _close_figures():
    """Whatever a test leaves open counts against the next one's."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture(params=[False, True], ids=["float32", "x64"])
def precision(request):
    """Run the test in single and in double precision."""
    import jax

    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture
def strict_promotion():
    """Let no array change its type or rank but where the code says so, as in a module of the package's own algebra."""
    import jax

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield
