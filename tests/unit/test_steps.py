"""What long work says while it lasts: one bar for all of it, its steps, and nothing where it is short or unwanted."""

import contextlib
import importlib
import inspect
import io
import math
import sys
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask, seed
from numpyro.infer.autoguide import AutoNormal

import numpyro_symmetry
from numpyro_symmetry import (
    ActivationCost,
    AutoConditional,
    AutoSymmetrized,
    Symmetry,
    compare,
    find_activations,
    find_scaling,
    find_symmetry,
    loss_barrier,
    match,
    merge,
    report,
    steps,
    testing,
    to_arviz,
)
from numpyro_symmetry.diagnostics import (
    coclustering,
    modes,
    nested_r_hat,
    point_partition,
    prior_conformity,
    soft_labels,
)
from numpyro_symmetry.discovery import check_symmetry
from numpyro_symmetry.evidence import log_evidence
from numpyro_symmetry.guides import AutoUnitNormal
from numpyro_symmetry.traces import rebase, varimax

X, Y = jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.linspace(-1.0, 1.0, 8)
POSTERIOR = testing.exchangeable_gaussian(num_units=3, separation=2.0, log_evidence=-3.0)
# as it is outside of these tests
IS_WATCHED = steps._is_watched
UNITS = Symmetry({"units": ("unit", None)})


@pytest.fixture(autouse=True)
def somebody_watches(monkeypatch):
    """What pytest captures is no terminal."""
    monkeypatch.setattr(steps, "_is_watched", lambda: True)


def network(x, y):
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1) @ w2, 0.1).to_event(1), obs=y)


def draws():
    rng, (centres,) = np.random.default_rng(0), POSTERIOR.model_args
    return {"units": centres + 0.3 * rng.standard_normal((50, 3, 2))}


def told(text):
    """What a bar has said: the words before its clock, each once."""
    return list(
        dict.fromkeys(line.split(" [")[0].strip() for line in text.replace("\n", "\r").split("\r") if line.strip())
    )


CHAINS = {"units": draws()["units"].reshape(2, 25, 3, 2)}
REBASED = rebase(CHAINS, UNITS, null=False)
RNG = np.random.default_rng(0)
ALIKE = rebase({"units": RNG.normal(size=(400, 3, 2))}, UNITS, null=False)
WEIGHTS = Symmetry({"w1": (None, "hidden"), "w2": ("hidden", "second"), "w3": ("second", None)})
SOURCES = {"w1": RNG.normal(size=(4, 2, 9)), "w2": RNG.normal(size=(4, 9, 9)), "w3": RNG.normal(size=(4, 9, 1))}
TARGET = {site: x[0] for site, x in SOURCES.items()}
PARAMS = {"w1": jnp.ones((1, 3)), "w2": jnp.arange(3.0)}
HIDDEN = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})


def relu(params, x):
    return jax.nn.relu(x @ params["w1"]) @ params["w2"]


def distance(values):
    return jnp.sum(values["w1"] ** 2)[None]


def drawn(shown):
    guide = AutoNormal(network)
    with numpyro.handlers.seed(rng_seed=0):
        guide(X, Y)
    params = {
        f"{site}_auto_{which}": x
        for site, x in PARAMS.items()
        for which, x in (("loc", x), ("scale", jnp.ones_like(x)))
    }
    return to_arviz(jax.random.key(0), guide, params, (X, Y), num_draws=5, progress_bar=shown)


FOUND = ["reading the model", "following its axes", "evaluating it about the prior", "verifying the symmetry"]
WORK = {
    "find": (
        lambda shown: find_symmetry(network, (X, Y), progress_bar=shown),
        ["finding the symmetry", *FOUND, "trying exchanges of sites"],
    ),
    "find in a function": (
        lambda shown: find_symmetry(lambda w: (w**2).sum(), (jnp.ones(3),), argnum=0, progress_bar=shown),
        ["finding the symmetry", "reading the function", "evaluating it about its parameters"],
    ),
    "check": (
        lambda shown: check_symmetry(POSTERIOR.model, UNITS, POSTERIOR.model_args, progress_bar=shown),
        ["checking the symmetry", "reading the model", "evaluating it about the prior", "applying elements"],
    ),
    "evidence": (
        lambda shown: log_evidence(draws(), POSTERIOR.model, POSTERIOR.model_args, num_draws=50, progress_bar=shown),
        [
            "estimating the evidence",
            *FOUND,
            "verifying the guide's density",
            "looking for the likeliest",
            "weighing 75",
        ],
    ),
    "rebase": (
        lambda shown: rebase(draws(), model=POSTERIOR.model, model_args=POSTERIOR.model_args, progress_bar=shown),
        ["relabelling", *FOUND, "looking for the likeliest labels", "the same for made-up draws"],
    ),
    "report": (
        lambda shown: report(CHAINS, REBASED, progress_bar=shown),
        ["reporting", "R-hat and effective sizes of units, raw", "R-hat and effective sizes of Σ units", "chains move"],
    ),
    "compare": (
        lambda shown: compare(CHAINS, CHAINS, UNITS, progress_bar=shown),
        ["comparing", "reading the draws of a", "reading the draws of b", "what no label changes", "exchanging blocks"],
    ),
    "match": (
        lambda shown: match(TARGET, SOURCES, WEIGHTS, chunk_size=1, progress_bar=shown),
        ["placing on the target", "50% of this pass", "75% of this pass"],
    ),
    "match, one source": (
        lambda shown: match(TARGET, TARGET, WEIGHTS, method="thorough", progress_bar=shown),
        ["placing on the target", "91% of this pass"],
    ),
    "match by activations": (
        lambda shown: match(
            PARAMS,
            PARAMS,
            HIDDEN,
            cost=ActivationCost(lambda params: {"hidden": X @ params["w1"]}),
            progress_bar=shown,
        ),
        ["placing on the target", "placing on the target: computing activations"],
    ),
    "loss barrier": (
        lambda shown: loss_barrier(distance, PARAMS, PARAMS, num_points=4, progress_bar=shown),
        ["measuring the barrier", "losses at 4 points of the path, the function for which is compiled", "50%", "75%"],
    ),
    "modes": (
        lambda shown: modes(REBASED, progress_bar=shown),
        [
            "counting modes",
            "reading the draws",
            "what no label changes",
            "peaks among",
            "peaks in halves",
            "50%",
            "95%",
        ],
    ),
    "activations": (
        lambda shown: find_activations(relu, (PARAMS, X), HIDDEN, progress_bar=shown),
        ["finding activations", "reading the function", "following its axes", "moving units"],
    ),
    "scales": (
        lambda shown: find_scaling(relu, (PARAMS, X), HIDDEN, progress_bar=shown),
        ["finding scales", "reading the function", "evaluating it about its parameters", "scaling units"],
    ),
    "draws of a guide": (
        drawn,
        ["drawing from the guide", "reading the model", "5 draws, the program for which is compiled", "log-likelihood"],
    ),
    "nested R-hat": (
        lambda shown: nested_r_hat(REBASED, [0, 1], progress_bar=shown),
        ["nested R-hat", "making what no label changes", "of Σ units"],
    ),
    "who is together": (
        lambda shown: coclustering(np.zeros((4, 3), int), progress_bar=shown),
        ["counting who is together"],
    ),
    "a guide": (
        lambda shown: AutoSymmetrized(AutoConditional(AutoNormal(network)), progress_bar=shown).setup(
            jax.random.key(0), X, Y
        ),
        [
            "setting up the guide",
            "affine in",
            "finding the symmetry",
            *FOUND,
            "follow the others",
            "verifying the guide's density",
        ],
    ),
    "a guide, when first it is called": (
        lambda shown: seed(AutoSymmetrized(AutoNormal(network), progress_bar=shown), 0)(X, Y),
        ["setting up the guide", "finding the symmetry", *FOUND, "verifying the guide's density", "bounding"],
    ),
    # it sets up no more than its base guide, in silence
    "a guide that is asked for draws only": (
        lambda shown: mask(seed(AutoSymmetrized(AutoNormal(network), progress_bar=shown), 0), mask=False)(X, Y),
        [],
    ),
    "a guide of units": (
        lambda shown: AutoUnitNormal(network, progress_bar=shown)._units((X, Y), {}),
        ["finding the symmetry", *FOUND],
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_says_its_steps_in_one_bar(name, monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)  # any work is long
    monkeypatch.setattr(steps, "_LONG", math.inf)  # and none so long that a line stays, as on a slow machine
    work, expected = WORK[name]
    work(True)
    shown = capsys.readouterr()
    said = told(shown.err)
    assert not shown.out
    assert all(words.startswith(expected[0]) for words in said) if expected else not said, said
    heard = iter(said)
    assert all(any(words in line for line in heard) for words in expected), said
    work(False)
    assert capsys.readouterr().err == ""


# what is counted, one after another
COUNTED = {
    "merge": (lambda shown: merge([TARGET] * 3, WEIGHTS, progress_bar=shown), "placing members: 0 placed"),
    "soft labels": (lambda shown: soft_labels(REBASED, progress_bar=shown), "weighing labels: 0 rounds"),
    "partition": (
        lambda shown: point_partition(np.arange(8).reshape(2, 4) % 3, progress_bar=shown),
        "moving data between clusters: 0 data",
    ),
    "varimax": (lambda shown: varimax(np.eye(3)[:, :2], progress_bar=shown), "rotating loadings: 0 sweeps"),
    "prior": (
        lambda shown: prior_conformity(
            ALIKE,
            lambda: numpyro.sample("units", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2)),
            progress_bar=shown,
        ),
        "drawing units again: 0 rounds",
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_work_that_may_end_at_any_time_counts_what_is_done(name, monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    work, expected = COUNTED[name]
    work(True)
    shown = capsys.readouterr()
    assert not shown.out
    assert expected in shown.err
    assert not told(shown.err.rsplit("\r", 2)[-1])
    work(False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(steps, "_UNTOLD", 1000.0)
    work(True)
    assert capsys.readouterr().err == ""


# bars that know their end from the start, each tested with what it is of
WITH_AN_END = {"compare_pairs", "refine", "run_blackjax", "write_by_region"}


def with_a_bar():
    """Public functions, and classes, that have one."""
    for path in Path(numpyro_symmetry.__file__).parent.glob("*/__init__.py"):
        package = importlib.import_module(f"numpyro_symmetry.{path.parent.name}")
        for name in package.__all__:
            public = getattr(package, name)
            if inspect.isfunction(public) or inspect.isclass(public):
                with contextlib.suppress(ValueError):  # some kinds of classes have no signature
                    if "progress_bar" in inspect.signature(public).parameters:
                        yield name


def test_every_public_verb_with_a_bar_is_in_a_table():
    in_tables = {name for work, _ in (*WORK.values(), *COUNTED.values()) for name in work.__code__.co_names}
    found = set(with_a_bar())
    assert {"match", "loss_barrier", "modes", "AutoSymmetrized"} < found
    assert found - WITH_AN_END <= in_tables


def test_short_work_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 1000.0)
    find_symmetry(network, (X, Y))
    assert capsys.readouterr().err == ""


def test_the_clock_goes_on_within_a_step_and_the_bar_is_gone_in_the_end(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.1)
    monkeypatch.setattr(steps, "_BEAT", 0.05)
    with steps.saying("working", True):
        steps.say("on one thing")
        assert capsys.readouterr().err == ""
        time.sleep(0.5)
        assert capsys.readouterr().err.count("working: on one thing [") >= 3
    # overwritten by spaces
    assert not told(capsys.readouterr().err)


def test_the_outermost_speaks_for_all_and_after_long_work_says_what_follows(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    monkeypatch.setattr(steps, "_LONG", -1.0)
    with steps.saying("the whole", True, after="what follows"), steps.saying("a part", False, after="no more"):
        steps.say("one thing")
    shown = capsys.readouterr().err
    assert told(shown) == ["the whole", "the whole: one thing", "what follows"]
    assert "what follows" in shown.splitlines()[-1]
    with steps.saying("the whole", False, after="what follows"), steps.saying("a part", True):
        steps.say("another")
    assert capsys.readouterr().err == ""


def test_parts_of_a_step_tell_how_long_the_others_take(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    with steps.saying("working", True):
        steps.say("on parts")
        assert [part for part in steps.track("abcd", 4) if not time.sleep(0.02)] == list("abcd")
        steps.say("on another")
    said = told(capsys.readouterr().err)
    assert said[1:] == [
        "working: on parts",
        "working: on parts, 50% of this pass, about 00:00 left",
        "working: on parts, 75% of this pass, about 00:00 left",
        "working: on another",
    ]
    # the time of parts is foretold from those that are done
    clock = iter([0.0, 100.0, 200.0])
    monkeypatch.setattr(steps.time, "monotonic", lambda: next(clock))
    with steps.saying("working", True):
        list(steps.track("abcd", 4))
    assert "50% of this pass, about 01:40 left" in capsys.readouterr().err


def test_parts_are_all_there_without_a_bar():
    assert list(steps.track(iter("abc"), 3)) == list("abc")


def test_where_nobody_watches_a_bar_is_told_of_seldom(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    monkeypatch.setattr(steps, "_is_watched", lambda: False)
    with steps.saying("working", True):
        for k in range(100):
            steps.say(f"on thing {k}")
    assert told(capsys.readouterr().err) in ([], ["working"])
    monkeypatch.setattr(steps, "_BEAT_UNWATCHED", 0.05)
    with steps.saying("working", True):
        steps.say("on one thing")
        time.sleep(0.3)
    assert 3 <= capsys.readouterr().err.count("working: on one thing [") <= 10


def test_a_notebook_is_watched_and_a_file_is_not(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not IS_WATCHED()
    closed = io.StringIO()
    closed.close()
    # none, a logger's, a closed one
    for stream in (None, types.SimpleNamespace(write=len, flush=list), closed):
        monkeypatch.setattr(sys, "stderr", stream)
        assert not IS_WATCHED()
        with steps.saying("working", False):
            steps.say("on one thing")
    # whose streams say that they are no terminal
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert IS_WATCHED()


def test_an_error_ends_the_bar(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    with pytest.raises(ZeroDivisionError), steps.saying("working", True):
        _ = 1 / 0
    steps.say("nobody hears it")
    assert told(capsys.readouterr().err) == ["working"]
