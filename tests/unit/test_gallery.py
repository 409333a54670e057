"""The gallery of labelled models: what is found in each, and that nothing is found that is not there."""

import contextlib
import math
from collections import Counter
from importlib.util import find_spec

import jax
import pytest

from numpyro_symmetry import SymmetryWarning, find_symmetry
from numpyro_symmetry.discovery.find import type_program
from numpyro_symmetry.discovery.program import read_program
from tests.gallery import CASES

# less than the label is found; docs/finding.md says why
KNOWN_MISSES = {
    # slices of a flattened axis keep one set of labels: only what queries, keys and values have in common is found
    "attention-fused-kernel": "S3 x S5",
    # chains that are unrolled in Python lose the axis over which their states would be fibred
    "hmm-factorial": "S2 x S3",
    # far out, single precision does not tell equal components from rounding
    "loop-single-precision-offset": "trivial",
}
# groups that no rule follows, and that are given out because numbers prove them
BY_NUMBERS = {
    "block-covariance",
    "custom-vjp-index",
    "determinantal-prior",
    "exchangeable-covariance",
    "factor-analysis-correlated",
    "factor-analysis-marginal",
    "fft-of-units",
    "fori-loop-over-units",
    "hmm-enum-1",
    "hmm-enum-2",
    "hmm-enum-3",
    "hmm-enum-4",
    "hmm-enum-6",
    "hmm-factorial",
    "ica-unmixing",
    "list-of-units",
    "loop-clipped-in-the-tail",
    "loop-single-precision-offset",
    "low-rank-normal",
    "map-over-components",
    "matrix-normal-prior",
    "mixture-general-shared-array",
    "output-weights-solved",
    "pairs-by-triu",
    "prior-in-loop-differs",
    "pure-callback-even",
    "pure-callback-prefers",
    "rbm-enumerated",
    "scan-over-units",
    "wishart-factors",
    "zero-sum-effects",
}
# exchanges that no axis carries, which are told
TOLD = {"mixture-general-one-family"}
# one of a kind, and quick to compile; the others are slow
PROVED = {
    "all-ones",
    "block-covariance",
    "branch-in-the-tail",
    "data-coincide",
    "eight-schools",
    "ensemble-vmap",
    "factor-analysis",
    "factor-analysis-marginal",
    "factor-of-equal-counts",
    "fori-loop-over-units",
    "gmm-ordered-locs",
    "hmm-enumerated",
    "hmm-left-to-right",
    "ica-unmixing",
    "linen-mlp-param",
    "loop-clipped-in-the-tail",
    "loop-single-precision-offset",
    "mixture-general-shared-array",
    "mlp-3-layers",
    "mlp-flat-weights",
    "mlp-two-prior-scales",
    "param-starts-at-zero",
    "pure-callback-prefers",
    "reduced-by-own-rule-far",
    "residual-scan-stacked",
    "unit-clipped",
    "units-accumulated",
    "zero-sum-effects",
}


def factors(text):
    return Counter([] if text == "trivial" else text.split(" x "))


def text_of(symmetry):
    """The group as labels are written: factors sorted, one for each orbit, powers over fibres."""
    found = []
    for group in symmetry.groups.values():
        one = [f"{'±' * group.signed}S{n}" for n in group.orbit_sizes if n > 1 or group.signed]
        found += [f"({factor})^{math.prod(group.cells)}" for factor in one] if group.cells else one
    return " x ".join(sorted(found)) or "trivial"


def available(cases):
    return [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.skipif(not all(map(find_spec, case.needs)), reason=f"needs {case.needs}"),
        )
        for case in cases
    ]


@pytest.mark.parametrize("case", available(CASES))
def test_types_find_the_group_and_no_more(case):
    found = text_of(type_program(read_program(case.model, case.args, {}, jax.random.key(0))).symmetry())
    if case.name in BY_NUMBERS:
        # a group on part of an axis may stand in for the whole until numbers have spoken
        assert factors(found).total() <= factors(case.expected).total()
    else:
        assert found == KNOWN_MISSES.get(case.name, case.expected)


def check(case):
    told = pytest.warns(SymmetryWarning, match="cannot carry") if case.name in TOLD else contextlib.nullcontext()
    with told:
        found = find_symmetry(case.model, case.args, signs=False)
    assert text_of(found) == KNOWN_MISSES.get(case.name, case.expected)


@pytest.mark.parametrize("case", available([case for case in CASES if case.name in PROVED]))
def test_numbers_agree(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", available([case for case in CASES if case.name not in PROVED]))
def test_numbers_agree_everywhere(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", available([case for case in CASES if case.signed is not None]))
def test_signs(case):
    assert text_of(find_symmetry(case.model, case.args)) == case.signed


def test_every_named_case_exists():
    names = {case.name for case in CASES}
    assert len(names) == len(CASES)
    assert (PROVED | BY_NUMBERS | TOLD | set(KNOWN_MISSES)) <= names
