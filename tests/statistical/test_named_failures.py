"""Failures of many kinds, at many seeds: each is named in the first three lines of a report, or refused by name."""

import re

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_symmetry import Symmetry, SymmetryError, rebase, report
from tests.support.traces import autoregressive

UNITS = Symmetry({"a": ("unit",), "b": ("unit",)})
CENTRES = {"a": 6.0 * np.arange(4), "b": np.array([3.0, 21.0, 9.0, 15.0])}
SHAPE = 4, 250


def clean(rng):
    """Four units of two numbers, well apart."""
    return {site: at + rng.standard_normal((*SHAPE, 4)) for site, at in CENTRES.items()}


def switched(rng, values, each_draw=True):
    """Under labels at random, in every draw or for each chain."""
    order = rng.permuted(np.broadcast_to(np.arange(4), (4, SHAPE[1] if each_draw else 1, 4)), axis=-1)
    return {site: np.take_along_axis(x, np.broadcast_to(order, x.shape), -1) for site, x in values.items()}


def reported(rng, values, symmetry=UNITS, **options):
    return report(rebase(switched(rng, values), symmetry), **options)


def never_moved(rng):
    values = clean(rng)
    for x in values.values():
        x[2] = x[2, :1]
    return reported(rng, values)


def stood_still(rng):
    values = clean(rng)
    for x in values.values():
        x[1, 60:] = x[1, 60]
    return reported(rng, values)


def same_seed(rng):
    values = clean(rng)
    for x in values.values():
        x[3] = x[1]
    return reported(rng, values)


def another_mode(rng):
    values = clean(rng)
    values["b"][0, :, 2] += 2.0
    return reported(rng, values)


def units_put_together_otherwise(rng):
    # what one site holds is the same; from half of its draws on a chain pairs it otherwise with the other
    values = clean(rng)
    values["b"][1, 125:] = np.roll(values["b"][1, 125:], 1, axis=-1)
    return reported(rng, values)


def labels_left_switched(rng):
    # a symmetry that exchanges the first two units alone, where chains have exchanged all four
    some = Symmetry(dict(UNITS.axes), orbits={"unit": [0, 0, 1, 2]})
    return report(rebase(switched(np.random.default_rng(3), clean(rng), each_draw=False), some))


def signs_left_out(rng):
    centred = {site: x - 1.0 for site, x in clean(rng).items()}
    for x in centred.values():
        x[:2, :, 1] *= -1.0
    return reported(rng, centred)


def forgets_slowly(rng):
    values = {site: at + autoregressive(rng, (*SHAPE, 4), 0.99) for site, at in CENTRES.items()}
    return reported(rng, values)


def trend(rng):
    values = clean(rng)
    values["a"] += np.linspace(0.0, 2.0, SHAPE[1])[:, None]
    return reported(rng, values)


def frozen_parameter(rng):
    return reported(rng, clean(rng), invariants={"sigma": np.tile(rng.standard_normal((4, 1)), SHAPE[1])})


def not_a_number(rng):
    prediction = rng.standard_normal(SHAPE)
    prediction[2, 100:] = np.nan
    return reported(rng, clean(rng), invariants={"prediction": prediction})


def impossible(rng):
    density = rng.standard_normal(SHAPE)
    density[0, :30] = -np.inf
    return reported(rng, clean(rng), invariants={"log density": density})


def few_draws(rng):
    values = {site: at + autoregressive(rng, (*SHAPE, 4), 0.7) for site, at in CENTRES.items()}
    return reported(rng, values)


def nothing_to_tell_apart(rng):
    return reported(rng, {site: rng.standard_normal((*SHAPE, 4)) for site in UNITS.axes})


FAILURES = {
    never_moved: "chain 2 never moved",
    stood_still: "chain 1 stood still for 190 of 250 draws",
    same_seed: "chain 3 repeats an earlier one draw by draw",
    another_mode: "chains disagree on .*b",
    units_put_together_otherwise: r"too slowly to tell whether they agree on .*a·b|chains disagree on .*a·b",
    labels_left_switched: "chains disagree on .*not a matter of labels|still disagree on .* after relabelling",
    signs_left_out: "it may be a sign",
    forgets_slowly: "too slowly to tell whether they agree on",
    trend: "(too slowly to tell whether they agree|chains disagree) on .*a",
    frozen_parameter: "chains do not move in sigma and differ there",
    not_a_number: r"could not judge prediction: 150 draws are not a number \(chain 2: 150\)",
    impossible: r"log density is infinite in 30 draws \(chain 0: 30\)",
    few_draws: "effective sample size of .* run longer",
    nothing_to_tell_apart: "labels are at least a twentieth as likely|relabelling made up",
}


def first_three(found):
    return "\n".join(str(found).splitlines()[:3])


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_a_failure_is_named_in_the_first_three_lines(failure, seed):
    assert re.search(FAILURES[failure], first_three(failure(np.random.default_rng(seed))))


def test_chains_of_one_seed_are_named():
    found = same_seed(np.random.default_rng(0))
    assert found.repeated == (3,)
    assert str(found).startswith("Whether chains agree, these draws do not tell")
    assert re.search(FAILURES[same_seed], first_three(found))


@pytest.mark.slow
def test_none_of_it_is_said_of_clean_chains():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        found = reported(rng, clean(rng))
        assert not [message for message in FAILURES.values() if re.search(message, str(found))]
        assert found.warnings == ()


def model():
    numpyro.sample("a", dist.Normal(0.0, 10.0).expand([4]).to_event(1))
    numpyro.sample("b", dist.Normal(np.arange(4.0), 10.0).to_event(1))


def test_what_is_no_draw_and_no_symmetry_is_refused():
    values = clean(np.random.default_rng(0))
    values["a"][1, 7, 2] = np.nan
    with pytest.raises(SymmetryError, match="'a' is not finite in 1 of 1000"):
        rebase(values, UNITS)
    with pytest.raises(SymmetryError, match="b"):
        rebase(clean(np.random.default_rng(0)), UNITS, model=model)
