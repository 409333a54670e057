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
from numpyro_symmetry.guides.bounds import Particles, summarise
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.symmetry import shown
from numpyro_symmetry.symmetry.permutation_kinds import SIGNED

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
