"""Plain functions of parameters: their symmetry checked, and the integral of a log density against its known value."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from numpyro.infer.autoguide import AutoNormal
from scipy.stats import norm

from numpyro_symmetry import Symmetry, SymmetryError, check_symmetry, find_symmetry, log_evidence

LOC, RATE = np.array([-1.0, 0.0, 1.5]), np.array([2.0, 0.5, -1.0])
ORDERS = np.array(list(itertools.permutations(range(3))))
WIDTH, LOG_Z = 0.3, -2.0


class Position(NamedTuple):
    """A position as BlackJAX has them: any pytree."""

    loc: jax.Array
    more: dict[str, jax.Array]


SYMMETRY = Symmetry({"loc": ("unit",), "more.rate": ("unit",)})


def log_density(position, centres=LOC):
    """The mean over all orders of a Gaussian about centres, times the evidence."""
    offsets = jnp.stack([position.loc - centres[ORDERS], position.more["rate"] - RATE[ORDERS]])
    normal = -0.5 * jnp.square(offsets / WIDTH) - jnp.log(WIDTH) - 0.5 * jnp.log(2 * jnp.pi)
    return logsumexp(normal.sum((0, 2))) - jnp.log(6.0) + LOG_Z


def positions(*shape, seed=0):
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.broadcast_to(np.arange(3), (*shape, 3)), axis=-1)
    noise = WIDTH * rng.standard_normal((2, *shape, 3))
    return Position(
        *(part if k == 0 else {"rate": part} for k, part in enumerate(noise + np.stack([LOC, RATE])[:, order]))
    )


ONE = positions()


def agrees(found, truth):
    assert abs(found.value - truth) < 3 * found.error + 1e-3
    assert found.error < 0.05
    assert found.lower - 3 * found.lower_error - 1e-3 < truth < found.upper + 3 * found.upper_error + 1e-3
    return True


def test_the_integral_of_a_log_density_of_positions():
    found = log_evidence(positions(2, 300), log_density, (ONE,), argnum=0, symmetry=SYMMETRY, num_draws=300)
    assert agrees(found, LOG_Z)
    assert found.log_order == pytest.approx(np.log(6))


@pytest.mark.slow
def test_its_symmetry_is_found_and_data_are_arguments():
    """Standard normal numbers of which a sum was seen with noise: a Gaussian, whose evidence is that of the sum."""
    coefficients, y = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0]), 1.7

    def of_a_sum(y, position):
        loc, rate, logpdf = position.loc, position.more["rate"], jax.scipy.stats.norm.logpdf
        return logpdf(loc).sum() + logpdf(rate).sum() + logpdf(y, loc.sum() + 2.0 * rate.sum())

    covariance = np.linalg.inv(np.eye(6) + np.outer(coefficients, coefficients))
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(covariance @ coefficients * y, covariance, (2, 300))
    draws = Position(draws[..., :3], {"rate": draws[..., 3:]})
    found = log_evidence(draws, of_a_sum, (y, ONE), argnum=1, num_draws=300)
    assert agrees(found, norm(0.0, 4.0).logpdf(y))
    assert found.log_order == pytest.approx(2 * np.log(6))


def test_what_a_symmetry_leaves_alone_passes_and_nothing_else():
    verdict = check_symmetry(log_density, SYMMETRY, (ONE,), argnum=0)
    assert verdict.status == "passed"
    assert verdict.control_gap["unit"] > 1.0
    # the rates stay behind
    with pytest.raises(
        SymmetryError, match="The function is not invariant: .* Add 'unit' to axis -1 of array 'more.rate'"
    ):
        check_symmetry(log_density, Symmetry({"loc": ("unit",)}), (ONE,), argnum=0)
    # data of the call, which a model would have as its arguments
    with pytest.raises(SymmetryError, match="an entry of its output array changes"):
        check_symmetry(lambda p, x: p["w"] @ x, Symmetry({"w": ("k",)}), ({"w": LOC}, RATE), argnum=0)


def test_what_changes_nothing_at_all_says_how_much_it_might():
    verdict = check_symmetry(lambda p: jnp.max(p["w"]), Symmetry({"w": ("k",)}), ({"w": LOC},), argnum=0)
    assert (verdict.status, verdict.largest_gap) == ("passed", 0.0)
    assert verdict.tolerance > 0.0


def test_outputs_are_compared_entry_by_entry():
    params, x = {"w1": np.ones((2, 3)) * LOC, "w2": RATE}, np.ones((4, 2)) * [[1.0, -2.0]]

    def network(params, x):
        return jnp.tanh(x @ params["w1"]) @ params["w2"]

    found = find_symmetry(network, (params, x), argnum=0)
    assert check_symmetry(network, found, (params, x), argnum=0).status == "passed"
    with pytest.raises(SymmetryError, match="Its entries are exchanged, their sum is not changed: return the sum"):
        check_symmetry(lambda p: p["w2"], Symmetry({"w2": ("k",)}), (params,), argnum=0)
    unused = check_symmetry(lambda p: p["w1"].sum(), Symmetry({"w2": ("k",)}), (params,), argnum=0)
    assert unused.status == "inconclusive"
    assert "function" in unused.reason


def test_an_array_at_two_paths_moves_at_both():
    params = {"read": LOC, "written": LOC}

    def tied(params):
        return jnp.sum(params["read"] * params["written"] ** 2)

    found = find_symmetry(tied, (params,), argnum=0)
    assert check_symmetry(tied, found, (params,), argnum=0).status == "passed"


BAD = {
    "no example": (lambda: log_evidence(positions(40), log_density, argnum=0), TypeError, "holds 0 arguments"),
    "no density": (lambda: log_evidence(positions(40), argnum=0), ValueError, r"\(positions, f, \(one,\), argnum=0\)"),
    "a guide": (
        lambda: log_evidence((AutoNormal(log_density), {}), log_density, (ONE,), argnum=0),
        ValueError,
        "argnum goes with draws",
    ),
    "a number of Python": (
        lambda: log_evidence(positions(40), log_density, (ONE._replace(loc=1.0),), argnum=0),
        SymmetryError,
        r"\['loc'\] are none.*another argument",
    ),
    "whole numbers": (
        lambda: log_evidence(positions(40), log_density, (ONE._replace(loc=np.arange(3)),), argnum=0),
        SymmetryError,
        r"real numbers.*\['loc'\] are none",
    ),
    "no arrays": (lambda: log_evidence(positions(40), lambda p: 0.0, ({},), argnum=0), SymmetryError, "it holds none"),
    "terms": (
        lambda: log_evidence(positions(40), lambda p: p.loc, (ONE,), argnum=0),
        SymmetryError,
        r"one real number.*an array float32\(3,\)\. Sum it",
    ),
    "beside others": (
        lambda: log_evidence(positions(40), lambda p: (p.loc.sum(), 0.0), (ONE,), argnum=0),
        SymmetryError,
        "got a tuple",
    ),
    "other shapes": (
        lambda: log_evidence(positions(40), log_density, (positions(40),), argnum=0),
        (SymmetryError, TypeError, ValueError),
        "",
    ),
    "another site": (
        lambda: check_symmetry(log_density, Symmetry.mixture("mu"), (ONE,), argnum=0),
        SymmetryError,
        "'mu'",
    ),
    "not finite": (
        lambda: check_symmetry(lambda p: jnp.log(-jnp.abs(p.loc)).sum(), SYMMETRY, (ONE,), argnum=0),
        SymmetryError,
        "outputs are not finite",
    ),
    "part of a function": (
        lambda: check_symmetry(log_density, SYMMETRY, (ONE,), argnum=0, part="likelihood"),
        ValueError,
        "leave out part",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_with_its_remedy(name):
    ask, kind, words = BAD[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        ask()
