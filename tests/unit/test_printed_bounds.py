"""What bounds say of themselves: whether their importance weights are to be trusted."""

from contextlib import nullcontext

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import SymmetryWarning
from numpyro_symmetry.entropy.importance import shape_in_words
from numpyro_symmetry.evidence import LogEvidence
from numpyro_symmetry.evidence.bridge import Estimate
from numpyro_symmetry.evidence.doubts import warn_if_unreliable
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.guides.symmetrized.bounds import Particles, summarise

FEW, HEAVY = "few draws are most of it", "the tail of the weights is heavy"
QUANTILES = (np.arange(400) + 0.5) / 400
WEIGHTS = {
    "equal": (np.zeros(400), None),
    "light tail": (-(np.log(1.0 - QUANTILES) ** 2), None),
    "heavy tail": (-0.9 * np.log(1.0 - QUANTILES), HEAVY),
    "heavy tail of few": (-1.5 * np.log(1.0 - QUANTILES), FEW),
    "few draws": (np.linspace(0.0, 0.1, 12), None),
    "few of few": (-5.0 * np.arange(12.0), FEW),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_bound_by_few_weights_says_so(name):
    log_weights, doubt = WEIGHTS[name]
    origin = Origin((), {}, jnp.zeros(len(log_weights)))
    particles = Particles(log_weights, log_weights, np.zeros((len(log_weights), 2)), origin)
    said = f"{doubt}, so do not trust its error" if doubt else "effective number"
    assert said in str(summarise(particles, 0.0, is_whole=True))
    assert ("trust" in str(summarise(particles, 0.0, is_whole=True))) == bool(doubt)
    assert "trust" not in str(summarise(particles, 0.0, is_whole=False))
    is_known = len(log_weights) > 20
    assert ("Pareto shape unknown (it takes 21 draws)" in str(summarise(particles, 0.0, is_whole=True))) != is_known


def test_bounds_of_the_same_numbers_are_equal():
    def bounds(last=3.0, log_order=2.0, *, is_whole=True):
        elbo, information = np.array([0.0, 1.0, last]), np.array([[0.5, 0.7], [0.4, 0.9], [0.6, 0.8]])
        return summarise(Particles(elbo, elbo, information, Origin((), {}, jnp.zeros(3))), log_order, is_whole=is_whole)

    assert bounds() == bounds()
    assert hash(bounds()) == hash(bounds())
    for other in (bounds(4.0), bounds(log_order=1.5), bounds(is_whole=False), "bounds"):
        assert bounds() != other
    unknown = [bounds(np.nan, is_whole=False) for _ in range(2)]
    assert unknown[0] == unknown[1]
    assert len(set(unknown)) == 1
    assert "I = 0.50 ± 0.06 … 0.80 ± 0.06 of log|G| = 2.00; 3 draws" in str(bounds())


RESTS_ON = [(200.0, 0.71, HEAVY), (9.9, 0.3, FEW), (9.9, 0.71, FEW), (10.0, 0.7, None), (50.0, np.nan, None)]


@pytest.mark.parametrize(("method", "whose"), [("importance", "the error"), ("bridge", "the errors of the bounds")])
@pytest.mark.parametrize(("number", "shape", "why"), RESTS_ON)
def test_an_evidence_by_few_weights_says_whose_error_is_not_to_be_trusted(number, shape, why, method, whose):
    found = LogEvidence(-3.0, 0.1, -3.1, 0.1, -2.9, 0.1, 0.0, 0.0, number, shape, method)
    assert str(found).endswith(f": {why}, so do not trust {whose}" if why else shape_in_words(shape))
    assert "trust" not in str(found._replace(method="laplace"))


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        # as many decimals as show a digit of the least error that is known, two at least and four at most
        ((0.1, 0.2, 0.3), "-3.00 ± 0.10 nats by bridge; -3.10 ± 0.20 ≤ log p(data) ≤ -2.90 ± 0.30 in"),
        ((0.1, 0.002, 0.3), "-3.000 ± 0.100 nats by bridge; -3.100 ± 0.002 ≤ log p(data) ≤ -2.900 ± 0.300 in"),
        ((1e-9, 0.2, 0.3), "-3.0000 ± 0.0000 nats by bridge; -3.1000 ± 0.2000 ≤ log p(data) ≤ -2.9000 ± 0.3000 in"),
        ((0.0, np.nan, np.inf), "-3.00 ± 0.00 nats by bridge; -3.10 ± nan ≤ log p(data) ≤ -2.90 ± inf in"),
    ],
)
def test_an_evidence_is_printed_to_a_digit_of_its_least_error(errors, said):
    value, lower, upper = errors
    found = LogEvidence(-3.0, value, -3.1, lower, -2.9, upper, 1.2, 1.79, 900.0, 0.1, "bridge", 1000)
    first, last = str(found).splitlines()
    assert first == f"log p(data) = {said} expectation"
    assert last == "I = 1.20 of log|G| = 1.79 nats; 900 of the proposal's draws are effective, Pareto shape 0.10"
    assert str(found._replace(upper=np.inf)).splitlines()[0].endswith("≤ log p(data) in expectation")


@pytest.mark.parametrize(
    ("number", "num_draws", "shape", "is_doubtful"),
    [(300.0, 2000, 0.6, True), (500.0, 2000, 0.6, False), (300.0, 2000, 0.4, False), (90.0, 2000, 0.1, True)],
)
def test_a_printed_evidence_doubts_what_is_warned_of(number, num_draws, shape, is_doubtful):
    found = LogEvidence(-3.0, 0.1, -3.1, 0.1, -2.9, 0.1, 0.0, 0.0, number, shape, "importance", num_draws)
    assert ("do not trust the error" in str(found)) == is_doubtful
    with pytest.warns(SymmetryWarning, match="not reliable") if is_doubtful else nullcontext():
        warn_if_unreliable(Estimate(-3.0, 0.1, np.inf, number), "importance", num_draws, shape)
    assert "trust" not in str(found._replace(method="bridge"))
