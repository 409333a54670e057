"""What long work says while it lasts: one bar for all of it, its steps, and nothing where it is short or unwanted."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, Symmetry, find_symmetry, steps, testing
from numpyro_symmetry.discovery import check_symmetry
from numpyro_symmetry.evidence import log_evidence
from numpyro_symmetry.guides import AutoUnitNormal
from numpyro_symmetry.traces import rebase

X, Y = jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.linspace(-1.0, 1.0, 8)
POSTERIOR = testing.exchangeable_gaussian(num_units=3, separation=2.0, log_evidence=-3.0)
UNITS = Symmetry({"units": ("unit", None)})


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
    "a guide": (
        lambda shown: AutoSymmetrized(AutoConditional(AutoNormal(network)), progress_bar=shown).setup(
            jax.random.key(0), X, Y
        ),
        ["setting up the guide", "affine in", *FOUND, "follow the others", "verifying the guide's density"],
    ),
    "a guide of units": (
        lambda shown: AutoUnitNormal(network, progress_bar=shown)._units((X, Y), {}),
        ["finding the symmetry", *FOUND],
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_says_its_steps_in_one_bar(name, monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)  # any work is long
    work, expected = WORK[name]
    work(True)
    shown = capsys.readouterr()
    said = told(shown.err)
    assert not shown.out
    assert all(words.startswith(expected[0]) for words in said), said
    heard = iter(said)
    assert all(any(words in line for line in heard) for words in expected), said
    work(False)
    assert capsys.readouterr().err == ""


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


def test_an_error_ends_the_bar(monkeypatch, capsys):
    monkeypatch.setattr(steps, "_UNTOLD", 0.0)
    with pytest.raises(ZeroDivisionError), steps.saying("working", True):
        _ = 1 / 0
    steps.say("nobody hears it")
    assert told(capsys.readouterr().err) == ["working"]
