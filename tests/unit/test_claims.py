"""The reproduction page says what the recorded runs say, and every claim has a verdict."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.reproduction import records
from tests.reproduction.claims import CLAIMS, judge, one_basin

DOCS = Path(__file__).parents[2] / "docs"


def page():
    spec = importlib.util.spec_from_file_location("make_reproduction", DOCS / "make_reproduction.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.page()


def test_the_page_is_what_the_records_say():
    assert page() == (DOCS / "reproduction.md").read_text(), "run python docs/make_reproduction.py"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_has_a_verdict(claim):
    verdict = judge(claim)
    # what a laptop cannot run is said to be not run; all else has an answer
    assert verdict.holds in ("yes", "no", "in part", *(["not run"] if claim.tier == 3 else []))
    assert verdict.measured
    # identities hold, unless the claim is one that we say is wrong
    if claim.tier == 1 and claim.name not in ("G-eq11", "R-KL"):
        assert verdict.holds == "yes"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_without_records_nothing_is_claimed(claim, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    assert judge(claim).holds == "not run"


def test_names_are_unique():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize(
    ("identified", "holds", "said"),
    [
        ((15, 16), "yes", "15, 16"),
        ((0, 1), "no", "0, 1"),
        ((0, None), "no", "0, cannot tell"),
        ((None, "cannot tell from 4 independent draws"), "cannot tell", "cannot tell, cannot tell"),
    ],
)
def test_runs_that_cannot_tell_count_for_nothing(identified, holds, said, tmp_path, monkeypatch):
    def row(number):
        return {"hmc_null": {"identified": number}} | {n: {"agreement": [0.5, 0.1]} for n in ("vi", "hmc_q_r")}

    monkeypatch.setattr(records, "RESULTS", tmp_path)
    (tmp_path / "xiao.json").write_text(json.dumps({str(k): row(n) for k, n in enumerate(identified)}))
    verdict = one_basin()
    assert verdict.holds == holds
    assert f": {said} by run" in verdict.measured
