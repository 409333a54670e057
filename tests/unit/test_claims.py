"""The reproduction page says what the recorded runs say, and every claim has a verdict."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.reproduction import evidence_claims, records, wide_claims
from tests.reproduction.claims import CLAIMS, one_basin
from tests.reproduction.verdicts import judge

DOCS = Path(__file__).parents[2] / "docs"
EVERY = CLAIMS + evidence_claims.CLAIMS + wide_claims.CLAIMS


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_the_records_say():
    assert script("make_reproduction").page() == (DOCS / "reproduction.md").read_text(), (
        "run python docs/make_reproduction.py"
    )
    for tables, page, *_ in script("make_width").places():
        assert tables in page.read_text(), "run python docs/make_width.py --write"
    assert script("make_networks").tables() in (DOCS / "benchmarks.md").read_text(), (
        "run python docs/make_networks.py --write"
    )
    assert script("make_baselines").table() in (DOCS / "benchmarks.md").read_text(), (
        "run python docs/make_baselines.py --write"
    )


@pytest.mark.parametrize("claim", CLAIMS + evidence_claims.CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_has_a_verdict(claim):
    verdict = judge(claim)
    # what a laptop cannot run is said to be not run; all else has an answer
    assert verdict.holds in ("yes", "no", "in part", *(["not run"] if claim.tier == 3 else []))
    assert verdict.measured
    # identities hold, unless the claim is one that we say is wrong
    if claim.tier == 1 and claim.name not in ("G-eq11", "R-KL"):
        assert verdict.holds == "yes"


@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.name)
def test_without_records_nothing_is_claimed(claim, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    assert judge(claim).holds == "not run"


def test_names_are_unique():
    assert len({claim.name for claim in EVERY}) == len(EVERY)


@pytest.mark.parametrize(
    ("gaps", "holds"),
    [
        ({0: 50.0, 1: 52.0, 2: 51.0}, "yes"),
        ({0: -50.0, 1: -52.0, 2: -51.0}, "no"),
        ({0: -50.0, 1: 52.0, 2: 3.0}, "no"),
        ({0: 50.0}, "cannot tell"),
    ],
)
def test_a_line_is_passed_at_three_errors_or_not(gaps, holds, tmp_path, monkeypatch):
    lines = {f"yacht/line/{split}": {"log_evidence": -100.0} for split in gaps}
    fits = {
        f"yacht/{width}/{split}/exact+sym/2000/{start}": {"evidence_lower": gap - 100.0 + start}
        for width in wide_claims.WIDTHS
        for split, gap in gaps.items()
        for start in (0, 1)
    }
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    (tmp_path / "wide.json").write_text(json.dumps(lines | fits))
    assert wide_claims.line_is_passed("yacht").holds == holds
    # of widths that were not looked at nothing is said
    some = {key: row for key, row in fits.items() if not key.startswith("yacht/800/")}
    (tmp_path / "wide.json").write_text(json.dumps(lines | some))
    assert wide_claims.line_is_passed("yacht").holds == {"yes": "in part"}.get(holds, holds)


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
