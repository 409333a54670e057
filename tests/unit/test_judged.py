"""What a report says of numbers at and beside its borders: of reports by hand, sentence by sentence."""

import numpy as np
import pytest

from numpyro_symmetry.diagnostics.chains import Chains
from numpyro_symmetry.diagnostics.checks import warnings_of, without_identity
from numpyro_symmetry.diagnostics.judged import Kind, disagreeing, is_alarm, of_labels
from numpyro_symmetry.diagnostics.reading import facts, headline
from numpyro_symmetry.diagnostics.report import Report, Row
from numpyro_symmetry.traces.null import Explained, Null

NOTHING = (0, 0, 0, 0)
CHAINS = Chains(1.0, 1000.0, 900.0, 0.5, np.nan, 0, (), 3, 0, 0, NOTHING, NOTHING)


def row(name="loc", kind=Kind.MOVED, shape=(3,), *, chains=None, **fields):
    """Of four chains that agree, of 250 draws each, in all that is not given."""
    known = {"r_hat_raw": 1.0, "r_hat": 1.0, "ess_raw": 1000.0, "ess": 1000.0, "tail_ess": 900.0}
    known |= {"num_apart_raw": 0, "chance_raw": np.nan, "chance": 0.5}
    return Row(name=name, kind=kind, shape=shape, chains=CHAINS._replace(**(chains or {})), **(known | fields))


def null(identified=3, **fields):
    """Of three slots, of which so many are further apart than those of shuffled draws."""
    apart = {"component": np.where(np.arange(3) < identified, 9.0, 1.0)}
    known = {"separation": apart, "separation_null": {"component": np.array([2.0, 1.0, 1.0])}, "scale_ratio": 1.0}
    known |= {"num_draws": 1000, "num_effective": 500, "by_site": {"loc": Explained(0.9, 0.5)}}
    return Null(**({"explained": 0.9, "explained_null": 0.5} | known | fields))


def told(*rows, **fields):
    known = {"share_relabelled": 0.0, "label_changes": NOTHING, "sign_changes": NOTHING, "ambiguous": 0.0}
    known |= {"null": None, "num_slots": {"component": 3}, "transpositions": {"component": 1.0}, "converged": True}
    known |= {"transpositions_at_random": {"component": 7 / 6}, "shape": (4, 250), "are_members": False}
    known |= {"part": "joint", "longest_stay": (1, 1, 1, 1), "repeated": (), "sign_suspected": False, "warnings": ()}
    return Report(rows=rows or (row(),), **(known | fields))


APART = {"r_hat": 1.3, "chance": 1e-6, "chains": {"num_apart": 1, "furthest": ((1.3, 2),)}}
BY_CHANCE = {"r_hat": 1.02, "chance": 0.2, "chains": {"num_apart": 1, "furthest": ((1.02, 0),)}}
SLOW = {"r_hat": 1.2, "chance": np.nan, "ess": 90.0, "tail_ess": 80.0}
SLOW["chains"] = {"num_apart": 1, "furthest": ((1.2, 1),), "r_hat_undecided": 1.2}
WAS_APART = {"r_hat_raw": 1.5, "num_apart_raw": 2, "chance_raw": 1e-6}
INVARIANT, BESIDE = Kind.INVARIANT, Kind.BESIDE


@pytest.mark.parametrize(
    ("r_hat", "chance", "differ"),
    [
        (1.01, 1e-3, False),
        (1.011, 0.0099, True),
        (1.011, 0.01, False),
        (1.5, np.nan, False),
        (np.inf, np.nan, True),
        (np.nan, np.nan, False),
    ],
)
def test_chains_differ_by_more_than_matters_and_by_more_than_chance(r_hat, chance, differ):
    one = row(r_hat=r_hat, chance=chance)
    assert is_alarm(one) == differ
    assert disagreeing([one]) == [one] * differ


def test_those_who_disagree_come_furthest_first_and_what_has_no_name_apart():
    near, far = (row(name, r_hat=value, chance=0.0) for name, value in (("near", 1.1), ("far", 1.9)))
    beside, invariant = (row("x", kind, r_hat=1.5, chance=0.0) for kind in (BESIDE, INVARIANT))
    assert disagreeing([near, beside, far, invariant, row()]) == [far, invariant, near]
    assert disagreeing([near, beside, far, row()], beside=True) == [beside]


@pytest.mark.parametrize(
    ("rows", "fields", "said"),
    [
        ([row()], {"shape": (1, 250)}, "Of one chain there is no R-hat, and so nothing of it that was labels."),
        ([row()], {"are_members": True, "shape": (1, 20)}, "Members are independent by construction: they need not"),
        ([row()], {"shape": (4, 4)}, "As sampled, no R-hat of numbers that labels move is above 1.01"),
        ([row()], {"shape": (4, 3)}, "With fewer than 4 draws to a chain there is no R-hat, and so nothing of it"),
        ([row(r_hat_raw=np.nan)], {}, "R-hat is undefined in all numbers that labels move"),
        ([row(r_hat=np.nan)], {}, "R-hat is undefined in all numbers that labels move"),
        # only labelled numbers have to do with labels, and of several sites the worst counts
        (
            [row(r_hat_raw=np.nan), row("b", r_hat_raw=1.005), row("f", INVARIANT, r_hat_raw=9.0, num_apart_raw=1)],
            {},
            "As sampled, no R-hat of numbers that labels move is above 1.01 (the largest is 1.005): labels raised none",
        ),
        (
            [row(**WAS_APART)],
            {},
            "R-hat falls from 1.500 to 1.000 under one set of labels: labels explain all 2 numbers above 1.01.",
        ),
        (
            [row(**WAS_APART | {"num_apart_raw": 1, "r_hat_raw": np.inf})],
            {},
            "R-hat falls from infinity to 1.000 under one set of labels: labels explain the only number above 1.01.",
        ),
        (
            [row(**WAS_APART, **APART)],
            {},
            "R-hat falls from 1.500 to 1.300 under one set of labels: of the 2 numbers above 1.01, labels explain 1; "
            "1 remains (loc[2]): not labels.",
        ),
        (
            [row(**WAS_APART, **APART)],
            {"sign_suspected": True},
            "R-hat falls from 1.500 to 1.300 under one set of labels: of the 2 numbers above 1.01, labels explain 1; "
            "1 remains (loc[2]): it may be a change of sign.",
        ),
        (
            [row(**WAS_APART | {"r_hat_raw": 1.3}, **APART)],
            {},
            "R-hat stays at 1.300 under one set of labels: of the 2 numbers above 1.01, labels explain 1; 1 remains "
            "(loc[2]): not labels.",
        ),
        # of another site that is slow, what is above here says nothing
        (
            [row(**WAS_APART, **BY_CHANCE), row("f", INVARIANT, **SLOW)],
            {},
            "R-hat falls from 1.500 to 1.020 under one set of labels: of the 2 numbers above 1.01, labels explain 1; "
            "1 remains (loc[0]): no more than chance gives.",
        ),
        (
            [row(**WAS_APART, **SLOW)],
            {},
            "R-hat falls from 1.500 to 1.200 under one set of labels: of the 2 numbers above 1.01, labels explain 1; "
            "1 remains (loc[1]): whether by more than chance, these draws do not tell.",
        ),
        # the furthest come first, wherever they are, and a scalar has no index
        (
            [row(**APART), row("scale", shape=(), **APART | {"chains": {"num_apart": 3, "furthest": ((1.4, 0),)}})],
            {},
            "R-hat rises from 1.000 to 1.300 under one set of labels: 4 numbers are above 1.01 (scale, loc[2] and 2 "
            "more), as sampled none: labels had hidden that chains differ.",
        ),
        # more than before, though the largest fell
        (
            [row(**WAS_APART, **APART), row("b", **APART), row("c", **APART)],
            {},
            "R-hat falls from 1.500 to 1.300 under one set of labels: 3 numbers are above 1.01 (loc[2], b[2], c[2]), "
            "as sampled 2: labels had hidden that chains differ.",
        ),
        # as many, and the largest rose
        (
            [row(**WAS_APART | {"r_hat_raw": 1.1, "num_apart_raw": 1}, **APART)],
            {},
            "R-hat rises from 1.100 to 1.300 under one set of labels: 1 number is above 1.01 (loc[2]), as sampled 1: "
            "labels had hidden that chains differ.",
        ),
        (
            [row(r_hat_raw=1.02, num_apart_raw=1, chance_raw=0.01)],
            {},
            "As sampled, the largest R-hat of numbers that labels move is 1.020, no more than chance gives: none of it "
            "has to be put down to labels. Under one set of labels it is 1.000.",
        ),
        # chance gave R-hats before and after: labels did nothing
        (
            [row(r_hat_raw=1.03, num_apart_raw=2, chance_raw=0.5, **BY_CHANCE)],
            {},
            "R-hat falls from 1.030 to 1.020 under one set of labels: 1 number is above 1.01 (loc[0]), as sampled 2: "
            "no more than chance gives.",
        ),
        # not by chance: improbable, infinite, or of labels that seldom change
        *(
            (
                [row(**{"r_hat_raw": 1.02, "num_apart_raw": 1, "chance_raw": 0.5} | other)],
                {},
                f"R-hat falls from {first} to 1.000 under one set of labels: labels explain the only number above",
            )
            for other, first in [
                ({"chance_raw": 0.0099}, "1.020"),
                ({"r_hat_raw": np.inf}, "infinity"),
                ({"ess_raw": 499.0}, "1.020"),
            ]
        ),
    ],
)
def test_how_much_of_r_hat_was_labels_is_one_sentence(rows, fields, said):
    assert of_labels(told(*rows, **fields)).startswith(said)


NEVER = "the sampler never moved: in {} chain all {} draws are the same, labels apart. That relabelled chains agree"
RUN = "has an effective sample size of"


@pytest.mark.parametrize(
    ("rows", "fields", "said"),
    [
        ([], {}, []),
        ([], {"shape": (4, 4)}, []),
        ([], {"shape": (4, 3)}, ["Chains are of length 3: R-hat and ESS", "There are more chains (4) than draws in"]),
        ([], {"shape": (1, 250), "longest_stay": (1,)}, ["There is one chain: R-hat needs at least two"]),
        # chains that do not move
        ([], {"longest_stay": (250,) * 4}, [NEVER.format("every", 250)]),
        (
            [],
            {"shape": (1, 250), "longest_stay": (250,)},
            [NEVER.format("the only", 250), "There is one chain: R-hat needs at least two"],
        ),
        (
            [],
            {"longest_stay": (1, 250, 125, 124)},
            ["chain 1 never moved: all 250 draws are the", "chain 2 stood still for 125 of 250 draws in a row."],
        ),
        ([], {"shape": (4, 12), "longest_stay": (9, 9, 1, 9)}, []),
        (
            [],
            {"shape": (4, 12), "longest_stay": (1, 10, 1, 11)},
            ["chains 1 and 3 stood still for 10 and 11 of 12 draws in a row."],
        ),
        ([], {"shape": (1, 1), "longest_stay": (1,)}, ["Chains are of length 1: R-hat", "There is one chain: R-hat"]),
        ([], {"repeated": (1, 3)}, ["chains 1 and 3 repeat an earlier one draw by draw, labels apart."]),
        ([], {"repeated": (2,)}, ["chain 2 repeats an earlier one draw by draw, labels apart."]),
        ([], {"are_members": True, "shape": (1, 20), "longest_stay": (10,)}, []),
        (
            [],
            {"are_members": True, "shape": (1, 20), "longest_stay": (20,)},
            ["all 20 members are the same, labels apart."],
        ),
        # numbers that are none
        (
            [row(chains={"num_undefined": 2, "num_still": 1, "num_not_a_number": (0, 3, 0, 4)})],
            {},
            ["could not judge 2 entries of 6 of loc: 7 draws are not a number (chain 1: 3, chain 3: 4)."],
        ),
        (
            [row(chains={"num_judged": 0, "num_undefined": 1, "num_not_a_number": (5, 0, 0, 0)})],
            {},
            ["could not judge loc: 5 draws are not a number (chain 0: 5)."],
        ),
        ([row(chains={"num_infinite": (0, 2, 1, 0)})], {}, ["loc is infinite in 3 draws (chain 1: 2, chain 2: 1)."]),
        # chains that differ
        (
            [row(r_hat=np.inf), row("f", INVARIANT, r_hat=np.inf)],
            {},
            ["chains do not move in loc, f and differ there (R-hat inf)."],
        ),
        (
            [row("f", INVARIANT, r_hat=np.inf)],
            {},
            ["chains do not move in f and differ there (R-hat inf), which no label changes."],
        ),
        (
            [row("x", BESIDE, **APART)],
            {},
            ["chains disagree on x (R-hat 1.300), which the symmetry does not name: if"],
        ),
        (
            [row(**APART), row("b", **APART | {"r_hat": 1.4}), row("f", INVARIANT, **APART)],
            {},
            ["chains disagree on f, which no label changes (R-hat 1.300), and on b, loc after relabelling (1.400): "],
        ),
        (
            [row(**APART), row("b", **APART | {"r_hat": 1.4})],
            {},
            ["chains still disagree on b, loc after relabelling (R-hat 1.400): the remaining disagreement is not due"],
        ),
        (
            [row(**APART), row("f", INVARIANT, **APART | {"r_hat": 1.4})],
            {"sign_suspected": True},
            ["chains disagree on f, loc (R-hat 1.400), but not on squares and absolute values: it may be a sign that"],
        ),
        # chains that are slow: said once, with the least size of all of them
        (
            [
                row(**SLOW),
                row("b", **SLOW | {"ess": 70.0, "chains": {"r_hat_undecided": 1.4}}),
                row("c", **SLOW | {"ess": 80.0, "chains": {"r_hat_undecided": 1.1}}),
            ],
            {},
            ["chains forget too slowly to tell whether they agree on b, loc, c (R-hat 1.400, effective sample size 70"],
        ),
        # few effective draws: the fewest of all
        ([row(ess=400.0, tail_ess=200.0)], {}, []),
        ([row(ess=399.6, tail_ess=250.0)], {}, [f"loc {RUN} 400 from 4 chains, fewer than 100 to a chain"]),
        (
            [row(ess=399.0), row("b", ess=390.0, tail_ess=199.0)],
            {},
            [f"b {RUN} 199 in its tails from 4 chains, fewer than 50 to a chain"],
        ),
        # labels that are a guess
        ([], {"converged": False}, ["relabelling did not settle: many labellings are about as good as each other."]),
        ([], {"ambiguous": 0.05}, []),
        ([], {"ambiguous": 0.06}, ["in 6% of draws other labels are at least a twentieth as likely as the best"]),
        # what shuffled draws show, if there are enough of them and labels to take for another
        ([], {"null": null(scale_ratio=0.95)}, []),
        (
            [],
            {"null": null(scale_ratio=0.94)},
            ["relabelling shrinks standard deviations within slots to about 94% of the truth"],
        ),
        ([], {"null": null(scale_ratio=0.5, num_effective=9)}, []),
        ([], {"null": null(scale_ratio=0.5), "num_slots": {"component": 1}}, []),
        (
            [],
            {"null": null(explained=0.57, by_site={"loc": Explained(0.57, 0.5)})},
            ["slots agree with themselves hardly more than shuffled draws do"],
        ),
        ([], {"null": null(explained=0.58, by_site={"loc": Explained(0.58, 0.5)})}, []),
        ([], {"null": null(explained=0.5, by_site={"a": Explained(0.5, 0.5), "b": Explained(0.9, 0.5)})}, []),
        ([], {"null": null(explained=0.5, by_site={"a": Explained(0.5, 0.5)}, num_effective=9)}, []),
        ([], {"null": null(explained=0.5, by_site={"a": Explained(0.5, 0.5)}), "num_slots": {"component": 1}}, []),
    ],
)
def test_what_stands_in_the_way_is_said_and_nothing_else(rows, fields, said):
    found = warnings_of(told(*rows, **fields))
    assert len(found) == len(said), found
    for line, begins in zip(found, said, strict=True):
        assert line.removeprefix("WARNING: ").startswith(begins)
        assert line.startswith("WARNING: ") != begins.startswith(("Chains are", "There "))


@pytest.mark.parametrize(
    ("shares", "fields", "unlike"),
    [
        ({"a": (0.5, 0.5), "b": (0.9, 0.5)}, {}, ["a"]),
        ({"a": (0.5, 0.5), "b": (0.5, 0.5)}, {}, []),  # all: nothing sets these apart from others
        ({"a": (0.0, 0.0), "b": (0.9, 0.5)}, {}, []),  # one slot: no variance lies between slots
        ({"a": (0.5, 0.5), "b": (0.9, 0.5)}, {"num_effective": 9}, []),
        ({"a": (0.5, 0.5), "b": (0.9, 0.5)}, {"num_slots": {"component": 1}}, []),
    ],
)
def test_sites_without_identity_are_told_from_others(shares, fields, unlike):
    slots = {"component": 3} if "num_slots" not in fields else fields["num_slots"]
    known = {name: value for name, value in fields.items() if name != "num_slots"}
    by_site = {site: Explained(*share) for site, share in shares.items()}
    assert without_identity(null(by_site=by_site, **known), slots) == unlike


def begins(lines, words):
    return [line for line in lines if line.startswith(words)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "Labels are the same in all of 4 chains of 250 draws."),
        ({"shape": (1, 250)}, "Labels are the same in all of 1 chain of 250 draws."),
        (
            {"share_relabelled": 0.3},
            "Labels changed within none of 4 chains of 250 draws, and differ from chain to chain.",
        ),
        (
            {"label_changes": (5, 0, 2, 0), "share_relabelled": 0.3},
            "Labels changed within 2 of 4 chains of 250 draws (5, 0, 2 and 0 times).",
        ),
        (
            {"label_changes": (5, 0, 2, 0), "sign_changes": (5, 0, 2, 0)},
            "Signs changed within 2 of 4 chains of 250 draws (5, 0, 2 and 0 times).",
        ),
        (
            {"label_changes": (5, 0, 2, 0), "sign_changes": (1, 0, 2, 0)},
            "Labels changed within 2 of 4 chains of 250 draws (5, 0, 2 and 0 times; of these, signs alone 1, 0, 2 "
            "and 0).",
        ),
        (
            {"label_changes": (5, 2, *[0] * 6), "shape": (8, 250)},
            "Labels changed within 2 of 8 chains of 250 draws (5, 2, 0, 0, 0, 0, 0 and 0 times).",
        ),
        (
            {"label_changes": (5, 2, *[3] * 7), "shape": (9, 250)},
            "Labels changed within 9 of 9 chains of 250 draws (2 to 5 times).",
        ),
        (
            {"are_members": True, "share_relabelled": 0.3, "shape": (1, 20), "label_changes": (), "sign_changes": ()},
            "30% of members came with labels other than the most common.",
        ),
    ],
)
def test_where_labels_changed_is_said(fields, said):
    assert facts(told(**fields))[0] == said


@pytest.mark.parametrize(
    ("rows", "fields", "said"),
    [
        (
            [],
            {"are_members": True, "shape": (1, 20)},
            "From one member to the next, labels of 'component' are 1.0 transpositions apart; labels at random, 1.2.",
        ),
        ([], {"part": "likelihood"}, "The symmetry is the likelihood's alone: the prior tells labels apart"),
        (
            [row("f", INVARIANT, r_hat=1.001), row("g", INVARIANT, r_hat=np.nan), row(r_hat=1.009)],
            {},
            "The largest R-hat of what no label changes is 1.001.",
        ),
        (
            [
                row(**BY_CHANCE),
                row("b", r_hat=1.03, chance=0.01),
                row("c", **SLOW | {"chance": 0.5}),
                row("d", **APART),
            ],
            {},
            "R-hat 1.030 of b is no more than chance gives among 12 numbers at these effective sample sizes.",
        ),
        ([row(chains={"num_still": 2})], {}, "No R-hat of 2 entries of loc: no chain changes there."),
        (
            [],
            {"null": null()},
            "Slots explain 90% of the variance of loc; of shuffled draws, relabelled in the same way, 50%.",
        ),
        (
            [],
            {"null": null(by_site={site: Explained(0.9, 0.5) for site in "abcde"})},
            "Slots explain 90% of the variance of a, b, c and 2 more; of shuffled draws, relabelled in the same way,",
        ),
        (
            [],
            {"null": null(by_site={"a": Explained(0.5, 0.5), "b": Explained(0.9, 0.5)})},
            "Slots have no identity in a (50%, shuffled 50%). Alone these would tell none apart: their numbers belong "
            "to the slots of b, and can be reported where those can.",
        ),
        ([], {"null": null()}, "3 of 3 slots of 'component' are further apart than those of shuffled draws, and so"),
        ([], {"null": null(0)}, "0 of 3 slots of 'component' are further apart than those of shuffled draws."),
        (
            [],
            {"null": null(2), "ambiguous": 0.06},
            "2 of 3 slots of 'component' are further apart than those of shuffled draws in the mean, but which draw's",
        ),
        (
            [row(**APART)],
            {"null": null(2), "ambiguous": 0.06},
            "2 of 3 slots of 'component' are further apart than those of shuffled draws; what they are, chains",
        ),
        (
            [],
            {"null": null(num_effective=9)},
            "Whether slots of 'component' are identified: cannot tell from 9 independent draws.",
        ),
    ],
)
def test_a_fact_is_said_in_one_sentence(rows, fields, said):
    assert len(begins(facts(told(*rows, **fields)), said)) == 1


@pytest.mark.parametrize(
    ("rows", "fields", "words"),
    [
        ([row("f", r_hat=1.0)], {}, "The largest R-hat of what no label changes"),
        ([row(r_hat=1.01)], {}, "R-hat 1.010 of loc is no more than chance"),
        ([row(chains={"num_still": 3, "num_judged": 0})], {}, "3 entries of loc never change"),
        ([row()], {}, "From one member to the next"),
        ([row()], {}, "The symmetry is the likelihood's alone"),
    ],
)
def test_what_is_not_so_is_not_said(rows, fields, words):
    assert not begins(facts(told(*rows, **fields)), words)


IDENTIFIED, FEW = {"null": null()}, {"ess": 399.0}
LOOK = "Next: find out in what chains differ, by diagnostics.modes(out), or run longer and from other starts; until"
RELY, LONGER = "rely on what no label changes", "run more chains, or longer ones; "
SUMMED = ", or sum labels out by diagnostics.soft_labels(out)."
AGREE, TELL = "Chains agree, as far as these draws show", "Whether chains agree, these draws do not tell"
ANY = "; whether single slots may be interpreted is not known."


@pytest.mark.parametrize(
    ("rows", "fields", "first", "last"),
    [
        (
            [],
            IDENTIFIED,
            f"{AGREE}; single slots may be interpreted in loc.",
            "Next: summarise out.data, slot by slot.",
        ),
        ([], {}, f"{AGREE}{ANY}", f"Next: {RELY}{SUMMED}"),
        ([], {"num_slots": {"component": 11}}, f"{AGREE}{ANY}", f"Next: {RELY}."),
        ([], {"num_slots": {"component": 10}}, f"{AGREE}{ANY}", f"Next: {RELY}{SUMMED}"),
        (
            [],
            {"null": null(2)},
            f"{AGREE}; not all slots of 'component' stand apart: of the others rely on what no label changes.",
            f"Next: {RELY}{SUMMED}",
        ),
        (
            [],
            {"null": null(0)},
            f"{AGREE}; no slots of 'component' stand apart: of the others rely on what no label changes.",
            f"Next: {RELY}{SUMMED}",
        ),
        ([], {"null": null(num_effective=9)}, f"{AGREE}{ANY}", f"Next: {RELY}{SUMMED}"),
        ([], IDENTIFIED | {"ambiguous": 0.06}, f"{AGREE}; interpret no slot by itself.", f"Next: {RELY}{SUMMED}"),
        (
            list(map(row, "abcde")),
            IDENTIFIED,
            f"{AGREE}; single slots may be interpreted in a, b, c and 2 more.",
            "Next",
        ),
        # of one slot shuffled draws say nothing
        (
            [],
            {"null": null(explained=0.5, by_site={"loc": Explained(0.5, 0.5)}), "num_slots": {"component": 1}},
            f"{AGREE}; single slots may be interpreted in loc.",
            "Next:",
        ),
        (
            [row("a"), row("b")],
            {"null": null(by_site={"a": Explained(0.5, 0.5), "b": Explained(0.9, 0.5)})},
            f"{AGREE}; single slots may be interpreted in b.",
            "Next: summarise out.data, slot by slot.",
        ),
        (
            [row(**FEW)],
            IDENTIFIED,
            "Chains agree, as far as so few effective draws show; single slots may be interpreted in loc.",
            f"Next: {LONGER}then summarise out.data, slot by slot.",
        ),
        *(
            (rows, IDENTIFIED | fields, f"{TELL}; single slots", f"Next: {LONGER}then summarise")
            for rows, fields in [
                ([], {"shape": (1, 250), "longest_stay": (1,)}),
                ([], {"shape": (4, 3)}),
                ([], {"longest_stay": (1, 1, 125, 1)}),
                ([], {"repeated": (1,)}),
                ([row(**SLOW)], {}),
                ([row(chains={"num_undefined": 1})], {}),
            ]
        ),
        ([], IDENTIFIED | {"longest_stay": (1, 1, 124, 1)}, f"{AGREE}; single slots", "Next: summarise"),
        ([], IDENTIFIED | {"shape": (4, 4)}, f"{AGREE}; single slots", "Next: summarise"),
        ([row(**APART)], IDENTIFIED, "Chains disagree, whatever their labels: interpret no slot.", LOOK),
        (
            [row(**APART)],
            IDENTIFIED | {"sign_suspected": True},
            "Chains disagree; it may be by a sign: interpret no slot.",
            "Next: relabel with signs, or run longer and from other starts; until chains agree, interpret no slot.",
        ),
        (
            [row(), row("x", BESIDE, **APART)],
            IDENTIFIED,
            "Chains disagree in x, of which the symmetry does not speak; single slots may be interpreted in loc.",
            "Next: if labels move x, name it in the symmetry, or compute it again by rebase(model=).",
        ),
        (
            [],
            IDENTIFIED | {"are_members": True, "shape": (1, 20), "longest_stay": (1,)},
            "Members were brought to one set of labels; single slots may be interpreted in loc.",
            "Next: summarise out.data, slot by slot.",
        ),
    ],
)
def test_the_first_line_and_the_last_are_what_to_know_and_to_do(rows, fields, first, last):
    found = told(*rows, **fields)
    assert headline(found).startswith(first)
    assert facts(found)[-1].startswith(last)
