"""Every public result prints itself in a few lines, and shows the same, escaped, in a notebook's cell."""

import dataclasses
import html
import importlib
import inspect
import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_symmetry as ns
from numpyro_symmetry import containers, diagnostics, discovery, evidence, guides, matching, symmetry, testing, traces
from numpyro_symmetry.entropy import ESTIMATORS
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.guides.symmetrized.bounds import Particles, summarise
from numpyro_symmetry.symmetry import shown
from numpyro_symmetry.symmetry.permutation_kinds import SIGNED
from tests.support.agreement import MANY_OF_ONE

# a name that a notebook would take for markup if it were not escaped
GROUP = "<b>&"
MANY = 5000
SUBPACKAGES = (
    "symmetry entropy models containers discovery matching guides traces samplers evidence diagnostics testing"
)
# what is passed in, and no result
ARGUMENTS = {
    "symmetry": {
        "Axis",
        "Complement",
        "Concat",
        "Group",
        "Hard",
        "Kind",
        "Member",
        "PlainView",
        "SignedPermutation",
        "Split",
        "Unsigned",
        "Whole",
    },
    "entropy": {"Estimator", "Factorised", "Factors", "GaussianFactors", "General", "UnitGaussians"},
    "models": {"Model"},
    "containers": {"Container", "Members"},
    "matching": {"ActivationCost", "Barycenter", "Mean", "Product"},
    "guides": {"AutoConditional", "AutoSymmetrized", "AutoUnitNormal", "GivenGaussian", "LogFactor"},
    "traces": {"AllocationCost", "EuclideanCost", "GaussianCost", "StephensCost"},
}


def model(y):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    of_z = ns.Symmetry({"z": (GROUP,)})
    draws = {"z": rng.permuted(np.array([-3.0, 0.0, 3.0]) + 0.1 * rng.standard_normal((400, 3)), axis=1)}
    out = ns.rebase(draws, of_z)
    origin = Origin((("z", (3,)),), {"y": jnp.zeros(MANY)}, jnp.zeros(MANY))
    bounds = summarise(Particles(*rng.normal(size=(2, MANY)), np.ones((MANY, 2)), origin), 1.8, is_whole=True)
    loc = {GROUP: jnp.zeros((MANY, 2))}
    point = {"z": jnp.arange(3.0)}
    beside = {f"{GROUP}{k}": rng.standard_normal((400, 5)) for k in range(40)}
    compared = ns.compare({**draws, **beside}, draws, of_z, names=(GROUP, "other"), independent=("other",))
    shards = [ns.DiagonalGaussian({"z": loc}, {"z": np.ones(3)}) for loc in np.eye(3)]
    merged = ns.merge(shards, of_z, how="product")
    return {
        ("symmetry", "Symmetry"): of_z.bind(point),
        ("symmetry", "Finding"): symmetry.Finding("z", 1, 3, GROUP, "is moved", "model.py:3"),
        ("symmetry", "OutOfReach"): symmetry.OutOfReach(("z",), GROUP, "Write it otherwise."),
        ("discovery", "SymmetryCheck"): ns.check_symmetry(model, of_z, (0.5,)),
        ("discovery", "Scaling"): discovery.Scaling(of_z.bind(point), {"z": (3,)}, {GROUP: {("z", 0): 1.0}}),
        ("matching", "Match"): ns.match(point, {"z": np.tile(np.arange(3.0), (MANY, 1))}, of_z),
        ("matching", "Merge"): merged,
        ("matching", "CrossTerms"): matching.CrossTerms(0.25, 0.1, False),
        ("matching", "Refined"): matching.Refined({GROUP: jnp.arange(MANY)}, 0.1, 0.2, np.zeros(MANY)),
        ("matching", "NearestTransposition"): matching.nearest_transposition(point, of_z)[GROUP],
        ("matching", "DiagonalGaussian"): ns.DiagonalGaussian(loc, loc),
        ("matching", "FullGaussian"): ns.FullGaussian({GROUP: jnp.zeros(40)}, jnp.eye(40)),
        ("guides", "UnitGaussian"): guides.UnitGaussian(loc, {GROUP: jnp.tile(jnp.eye(2), (50, 1, 1))}, {}),
        ("guides", "Given"): guides.Given(model, (np.zeros(MANY),), {GROUP: 1}),
        ("guides", "ElboBounds"): bounds,
        ("guides", "ElboDifference"): bounds.minus(bounds),
        ("traces", "Rebased"): out,
        ("traces", "Null"): out.null,
        ("traces", "Explained"): traces.Explained(0.5, 0.1),
        ("traces", "CannotTell"): traces.CannotTell(3),
        ("evidence", "LogEvidence"): evidence.LogEvidence(-3.0, *[0.1] * 9, "bridge"),
        ("diagnostics", "Report"): ns.report(out),
        ("diagnostics", "Comparison"): compared,
        ("diagnostics", "Comparisons"): diagnostics.Comparisons((compared,) * 50),
        ("diagnostics", "Partition"): diagnostics.point_partition([np.arange(MANY // 10) // k for k in (1, 2)]),
        ("diagnostics", "Modes"): diagnostics.modes(out),
        ("diagnostics", "SoftLabels"): diagnostics.soft_labels(out),
        ("diagnostics", "PriorConformity"): diagnostics.prior_conformity(out, model, (0.5,)),
        ("diagnostics", "LossBarrier"): diagnostics.LossBarrier(0.5, 0.1, *np.zeros((5, 11))),
        ("containers", "Trace"): containers.read(draws, of_z),
        ("testing", "Posterior"): testing.exchangeable_gaussian(num_units=3),
    }


def test_a_result_is_a_few_lines_and_no_arrays(results):
    for name, result in results.items():
        for text in (str(result), repr(result)):
            assert not re.search(r"rray\(|\[\[", text), name
            assert len(text.splitlines()) <= 16, name
            assert len(text) <= 1600, name


def test_nouns_agree_with_their_numbers(results):
    rng = np.random.default_rng(0)
    of_z = ns.Symmetry({"z": (GROUP,)})
    out = ns.rebase({"z": rng.normal(size=(1, 3))}, of_z)
    few = ns.rebase({"z": rng.normal(size=(2, 3))}, of_z)
    origin = Origin((), {}, jnp.zeros(1))
    alone = [
        out,
        few,
        few.null,
        ns.report(few),
        ns.merge([{"z": np.arange(3.0)}], of_z),
        ns.check_symmetry(model, of_z, (0.5,), num_points=1, num_elements=1),
        summarise(Particles(*np.zeros((2, 1)), np.ones((1, 2)), origin), 1.8, is_whole=True),
        guides.Given(model, (0.5,), {}),
        traces.CannotTell(1),
        testing.exchangeable_gaussian(num_units=1, dim=1),
    ]
    for text in (*map(str, results.values()), *map(str, alone), *map(repr, alone)):
        assert not MANY_OF_ONE.search(text), text


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, ("draw", "is", "are"), "1 draw is"),
        (3, ("draw", "is", "are"), "3 draws are"),
        (0, ("entry",), "0 entries"),
        (np.int64(1), ("axis",), "1 axis"),
        ("1 × 1", ("index",), "1 × 1 indices"),
    ],
)
def test_a_counted_noun_agrees_with_its_number(number, noun, said):
    assert shown.counted(number, *noun) == said


def test_a_cell_shows_the_same_lines_escaped(results):
    for name, result in results.items():
        assert result._repr_html_() == f"<pre>{html.escape(str(result))}</pre>", name
        assert GROUP not in result._repr_html_(), name


def test_the_table_holds_every_public_result(results):
    for name in SUBPACKAGES.split():
        subpackage = importlib.import_module(f"numpyro_symmetry.{name}")
        classes = {public for public in subpackage.__all__ if _has_fields(getattr(subpackage, public))}
        assert classes - ARGUMENTS.get(name, set()) == {public for where, public in results if where == name}


def _has_fields(value):
    return inspect.isclass(value) and (hasattr(value, "_fields") or dataclasses.is_dataclass(value))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_no_sentence_ends_in_one_more(words, said):
    """Where one name alone would be left to be counted it is named."""
    assert shown.some_of(words) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (ESTIMATORS[-1], "'importance'"),
        (SIGNED, "Kind('signed')"),
    ],
)
def test_values_that_are_chosen_print_their_names(value, said):
    assert repr(value) == said


# ---- what results say, of numbers by hand ----------------------------------------------------------------------------

BARRIER = diagnostics.LossBarrier(
    barrier=0.5,
    error=0.125,
    t=np.array([0.0, 0.25, 1.0]),
    loss=np.array([1.0, 2.5, 3.0]),
    excess=np.array([0.0, 0.5, 0.1]),
    excess_error=np.array([0.0, 0.1, 0.0]),
    effective_draws=np.ones(3),
)
MATCH = matching.Match(
    element={"g": np.array([1, 0, 2])},
    objective=np.array(-1.5),
    objective_before=np.array(-3.0),
    exact=np.array(True),
    num_sweeps=np.array(2),
    converged=np.array(False),
)
MATCHES = matching.Match(
    element={"g": np.array([[0, 1, 2], [1, 2, 0]])},
    objective=np.array([-1.0, -2.0]),
    objective_before=np.array([-3.0, -3.0]),
    exact=np.array([True, False]),
    num_sweeps=np.array([0, 1]),
    converged=np.array([True, True]),
)
NO_MATCH = matching.Match({}, np.zeros(0), np.zeros(0), np.zeros(0, bool), np.zeros(0, int), np.zeros(0, bool))
MERGE = matching.Merge(
    merged={},
    members=({}, {}, {}),
    elements={"g": np.array([[0, 1, 2], [1, 0, 2], [1, 2, 0]])},
    distances_before=np.array([3.0, 4.0]),
    distances=np.array([1.5, 2.0]),
    num_rounds=7,
    converged=True,
    cross_terms=matching.CrossTerms(0.25, 0.012, False),
)
# one cycle of thirty-two of forty, four standard errors nearer to the first labels than random ones are
NEARER, ALONE = np.stack([np.arange(40), *[np.r_[np.roll(np.arange(32), 1), 32:40]] * 2]), np.array([[1, 0, 2]])
SOFT = diagnostics.SoftLabels(
    probabilities=dict.fromkeys("ab", np.zeros((5, 3, 3))),
    num_distinct={"a": 2.04, "b": 1.96},
    mean={},
    scale={},
    num_rounds=7,
    converged=True,
)
NULL = traces.Null(
    explained=0.9,
    explained_null=0.5,
    separation={"a": np.array([9.0, 9.0, 1.0]), "b": np.array([np.inf])},
    separation_null={"a": np.ones(3), "b": np.array([np.inf]), "c": np.ones(3)},
    scale_ratio=1.0,
    num_draws=50,
    num_effective=10,
    by_site={},
)
SLOTS_EXPLAIN = "slots explain 90% of the variance (50% for shuffled draws relabelled in the same way);"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (BARRIER, "LossBarrier(0.50 ± 0.12 nats a datum at t=0.25; loss 1 and 3 at the ends)"),
        # two digits of the error, but no decimals of one beyond ten
        (
            BARRIER._replace(barrier=512.3, error=31.4),
            "LossBarrier(512 ± 31 nats a datum at t=0.25; loss 1 and 3 at the ends)",
        ),
        # draws are at worst so many
        (
            BARRIER._replace(excess_error=np.zeros(3), effective_draws=np.array([3.0, 2.25, 4.0])),
            "LossBarrier(0.5 nats a datum at t=0.25; loss 1 and 3 at the ends, at least 2.2 effective draws)",
        ),
        # points have no error, and a loss in whatever unit theirs is
        (
            BARRIER._replace(excess_error=np.zeros(3), error=0.0),
            "LossBarrier(0.5 a datum at t=0.25; loss 1 and 3 at the ends)",
        ),
        (MATCH, "Match(objective -3 -> -1.5, transpositions g: 1, exact: True, converged: False)"),
        (
            MATCHES,
            "Match(sources (2,), objective -3 -> -2 … -1, transpositions g: 0 … 2, exact: 1 of 2, converged: 2 of 2)",
        ),
        (
            NO_MATCH,
            "Match(sources (0,), objective none -> none, transpositions none, exact: 0 of 0, converged: 0 of 0)",
        ),
        (
            MERGE,
            "Merge of 3 members into one dict\n"
            "  distance from the mean (root mean square): 50% less, 3.536 to 1.768; 0 if only labels had differed\n"
            "  7 rounds, converged\n"
            "  g: relabelled by 1.5 transpositions a member; random labels need 1.2\n"
            "  Members came as if labelled at random, as solutions found apart do.\n"
            "  0.25 ± 0.01 of the product lies in other labellings",
        ),
        (
            MERGE._replace(distances=np.full(2, 5.0), elements={"g": NEARER}, cross_terms=None),
            "Merge of 3 members into one dict\n"
            "  distance from the mean (root mean square): 41% more, 3.536 to 5; 0 if only labels had differed\n"
            "  7 rounds, converged\n"
            "  g: relabelled by 31.0 transpositions a member; random labels need 35.7",
        ),
        (
            MERGE._replace(distances_before=np.zeros(2), elements={"g": ALONE}, cross_terms=None, converged=False),
            "Merge of 3 members into one dict\n"
            "  distance from the mean (root mean square): 0 to 1.768; 0 if only labels had differed\n"
            "  7 rounds, not converged",
        ),
        (matching.CrossTerms(0.25, 0.0, True), "0.25 of the product lies in other labellings"),
        (SOFT, "Labels as probabilities, 7 rounds, settled\n  a and b: 2.0 distinct slots of 3"),
        (
            SOFT._replace(num_distinct={"a": 2.0, "b": 3.0}, converged=False),
            "Labels as probabilities, 7 rounds, not settled\n  a: 2.0 distinct slots of 3\n"
            "  b: 3.0 distinct slots of 3",
        ),
        (NULL, f"Null of 50 draws: {SLOTS_EXPLAIN} 2 of 3 slots of 'a' identified, 'b' has one slot"),
        # half as far again as any slot of nobody's is not far enough, and of fewer than ten draws nothing is told
        (
            NULL._replace(separation={"a": np.array([1.5, 1.51])}),
            f"Null of 50 draws: {SLOTS_EXPLAIN} 1 of 2 slots of 'a' identified",
        ),
        (
            NULL._replace(separation={"a": np.ones(2), "c": np.ones(2)}, num_effective=9),
            f"Null of 50 draws: {SLOTS_EXPLAIN} identified slots of 'a' and 'c': cannot tell from 9 independent draws",
        ),
    ],
)
def test_a_result_says_what_its_numbers_are(result, said):
    assert repr(result) == said


def test_a_slot_without_others_is_identified():
    assert NULL.num_identified == {"a": 2, "b": 1}
