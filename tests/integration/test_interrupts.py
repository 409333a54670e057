"""Ctrl-C stops long work where it is, leaves nothing behind, and chains that are there are kept."""

import tempfile
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.primitives import _PYRO_STACK
from threadpoolctl import threadpool_info
from tqdm.auto import tqdm

from numpyro_symmetry import Symmetry, find_symmetry, log_evidence, match, rebase, run_blackjax
from numpyro_symmetry.assignment import linear
from numpyro_symmetry.models.compat import checks_values
from numpyro_symmetry.samplers import Interrupted

SYMMETRY = Symmetry({"loc": ("unit",), "scale": ("unit",)})
RNG = np.random.default_rng(0)
# more units than are assigned without a solver
NUM_UNITS = 5
DRAWS = {"loc": RNG.normal(size=(2, 40, NUM_UNITS)), "scale": np.exp(RNG.normal(size=(2, 40, NUM_UNITS)))}
Y = np.linspace(-1.0, 1.0, 6)


@pytest.fixture(autouse=True)
def _no_thread_of_the_bars_own(monkeypatch):
    """Where a machine is so busy that bars are shown, tqdm watches them in a thread, which it keeps."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


class Stopping:
    """A function that somebody interrupts in its so-many-th call, or never."""

    def __init__(self, function, at):
        self.function, self.at, self.calls = function, at, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)


def model(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([NUM_UNITS]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0).expand([NUM_UNITS]).to_event(1))
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.ones(NUM_UNITS) / NUM_UNITS), dist.Normal(loc, scale))
    numpyro.sample("y", mixture.expand([len(y)]).to_event(1), obs=y)


def placing(monkeypatch, at):
    solver = linear._solver
    monkeypatch.setattr(linear, "_solver", lambda name: Stopping(solver(name), at))


def of_rebase(monkeypatch, at):
    placing(monkeypatch, at)
    return rebase(DRAWS, SYMMETRY).elements["unit"]


def of_match(monkeypatch, at):
    placing(monkeypatch, at)
    target = {site: x[0, 0] for site, x in DRAWS.items()}
    return match(target, DRAWS, SYMMETRY).element["unit"]


def of_finding(monkeypatch, at):
    found = find_symmetry(Stopping(model, at), (Y,))
    return [str(entries) for entries in found.axes.values()]


def of_evidence(monkeypatch, at):
    found = log_evidence(DRAWS, Stopping(model, at), (Y,), symmetry=SYMMETRY)
    return [found.value]


def state(folder):
    return {
        "threads": {thread.name for thread in threading.enumerate()},
        "files": sorted(folder.iterdir()),
        "x64": jax.config.jax_enable_x64,
        "precision": jax.config.jax_default_matmul_precision,
        "handlers": list(_PYRO_STACK),
        "validation": checks_values(),
        "warnings": list(warnings.filters),
        "pools": [(pool["internal_api"], pool["num_threads"]) for pool in threadpool_info()],
    }


@pytest.mark.parametrize(
    ("verb", "at"),
    [(of_rebase, 1), (of_rebase, 50), (of_match, 30), (of_finding, 1), (of_finding, 3), (of_evidence, 2)],
)
@pytest.mark.filterwarnings("ignore::numpyro_symmetry.SymmetryWarning")
def test_nothing_is_left_behind(monkeypatch, tmp_path, verb, at):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = state(tmp_path)
    with monkeypatch.context() as stopping, pytest.raises(KeyboardInterrupt):
        verb(stopping, at)
    assert state(tmp_path) == before
    # what is kept for the next call is whole: it says what a first call says
    with monkeypatch.context() as going:
        again = verb(going, 0)
    jax.clear_caches()
    with monkeypatch.context() as going:
        np.testing.assert_array_equal(again, verb(going, 0))


@pytest.mark.parametrize("num_draws", [6, 100])
def test_chains_are_kept(monkeypatch, capsys, tmp_path, num_draws):
    options = {"algorithm": "hmc", "num_chains": 2, "num_warmup": 10, "num_samples": num_draws}
    blocks = 2 if num_draws == 6 else 3
    whole = run_blackjax(jax.random.key(0), model, (Y,), progress_bar=False, **options)
    before = state(tmp_path)
    update = Stopping(tqdm.update, blocks)
    monkeypatch.setattr(tqdm, "update", lambda bar, n: update(bar, n))
    with pytest.raises(Interrupted, match=rf"of {num_draws} draws of every chain.*draws\(\)") as stopped:
        run_blackjax(jax.random.key(0), model, (Y,), **options)
    monkeypatch.undo()
    assert state(tmp_path) == before
    kept = stopped.value.draws()
    num_kept = blocks * -(-num_draws // 20)
    assert f"after {num_kept} of {num_draws}" in str(stopped.value)
    for group in ("posterior", "sample_stats", "log_likelihood"):
        for name, values in kept[group].data_vars.items():
            assert values.shape[:2] == (2, num_kept)
            np.testing.assert_array_equal(values, whole[group][name].values[:, :num_kept], err_msg=name)


def test_before_the_first_draws_there_is_nothing_to_keep(monkeypatch):
    monkeypatch.setattr(tqdm, "set_description", Stopping(tqdm.set_description, 1))
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_blackjax(jax.random.key(0), model, (Y,), algorithm="hmc", num_chains=2, num_warmup=10, num_samples=6)
    assert not isinstance(stopped.value, Interrupted)
