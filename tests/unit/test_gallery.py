"""The gallery of labelled models: what is found in each, and that nothing is found that is not there."""

import contextlib
import math
from collections import Counter
from importlib.util import find_spec

import jax
import pytest

from numpyro_symmetry import SymmetryWarning, find_symmetry
from numpyro_symmetry.discovery.find import walked
from numpyro_symmetry.discovery.labels.program import read_program
from tests.gallery import CASES


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
    found = text_of(walked(read_program(case.model, case.args, {}, jax.random.key(0)))[0].symmetry())
    if case.by_numbers:
        # a group on part of an axis may stand in for the whole until numbers have spoken
        assert factors(found).total() <= factors(case.expected).total()
    else:
        assert found == case.found


def check(case):
    told = pytest.warns(SymmetryWarning, match="cannot carry") if case.told else contextlib.nullcontext()
    with told:
        found = find_symmetry(case.model, case.args, signs=False)
    assert text_of(found) == case.found


@pytest.mark.parametrize("case", available([case for case in CASES if case.quick]))
def test_numbers_agree(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", available([case for case in CASES if not case.quick]))
def test_numbers_agree_everywhere(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", available([case for case in CASES if case.signed is not None]))
def test_signs(case):
    assert text_of(find_symmetry(case.model, case.args)) == case.signed


def test_every_case_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES)
