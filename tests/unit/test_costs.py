"""One likelihood under match and rebase: a cost is one class, and either verb takes it."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

from numpyro_symmetry import (
    AllocationCost,
    DiagonalGaussian,
    EuclideanCost,
    GaussianCost,
    StephensCost,
    Symmetry,
    SymmetryError,
    match,
    rebase,
)
from numpyro_symmetry.assignment.family import squares
from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.matching.costs import COSTS
from numpyro_symmetry.traces import coordinates
from numpyro_symmetry.traces.choices import chosen_cost, chosen_starts

pytestmark = pytest.mark.usefixtures("strict_promotion")

ANGLES = Symmetry.mixture("angle")


@dataclass(frozen=True)
class CircularCost:
    """Squared distance of angles, as points of a circle."""

    def family(self, source, symmetry, read=None):
        def statistics(items):
            angles = {site: value[items].astype(float) for site, value in source.loc.items()}
            return {(site, of.__name__): of(x) for site, x in angles.items() for of in (np.cos, np.sin)}

        opened = {site: axes_of(symmetry, site, value.shape[1:])[1] for site, value in source.loc.items()}
        axes = {(site, name): axes for site, axes in opened.items() for name in ("cos", "sin")}
        return squares(statistics, axes, source.num_draws, dict.fromkeys(axes, 1.0), {})


def on_circle(angle):
    return np.stack([np.cos(angle), np.sin(angle)])


def wound(size, draws, seed=0):
    """Angles about known places, one of them where the circle closes, relabelled and wound."""
    rng = np.random.default_rng(seed)
    places = np.linspace(-np.pi, np.pi, size, endpoint=False)
    angle = rng.permuted(places + 0.1 * rng.standard_normal((draws, size)), axis=-1)
    return places, (angle + np.pi) % (2 * np.pi) - np.pi


def test_a_cost_takes_one_class_to_match():
    places, angle = wound(4, 20)
    found = match({"angle": places}, {"angle": angle}, ANGLES, cost=CircularCost())
    for k in range(20):
        distances = [
            ((on_circle(places) - on_circle(angle[k, list(p)])) ** 2).sum() for p in itertools.permutations(range(4))
        ]
        assert found.objective[k] == pytest.approx(-min(distances), rel=1e-9)
    assert found.exact.all()
    # the distance of numbers takes those at the seam for far apart
    assert (match({"angle": places}, {"angle": angle}, ANGLES).element["component"] != found.element["component"]).any()


def test_a_cost_takes_one_class_to_rebase():
    places, angle = wound(4, 200)
    out = rebase({"angle": angle}, ANGLES, cost=CircularCost(), reference="first")
    spread = 1.0 - np.linalg.norm(on_circle(out.data["angle"]).mean(1), axis=0)
    assert (spread < 0.01).all()
    nearest = np.abs(on_circle(out.data["angle"][0])[:, :, None] - on_circle(places)[:, None]).sum(0).argmin(-1)
    slots = np.abs(on_circle(out.data["angle"])[..., None] - on_circle(places)[:, None, None]).sum(0).argmin(-1)
    assert (slots == nearest).all()
    assert out.score({"angle": angle}, CircularCost()) == pytest.approx(out.objective.mean(), rel=1e-9)
    assert (out.margin > 0).all()
    assert np.isfinite([out.null.explained, out.null.explained_null, out.null.scale_ratio]).all()
    again = rebase({"angle": angle[:50]}, ANGLES, cost=CircularCost(), reference=out)
    np.testing.assert_array_equal(again.data["angle"], out.data["angle"][:50])


def test_either_verb_takes_the_others_costs():
    _, draws = wound(4, 60, seed=1)
    target = {"angle": draws[0]}
    ours, theirs = (
        match(target, {"angle": draws}, ANGLES, cost=c) for c in ("euclidean", EuclideanCost(standardize=False))
    )
    np.testing.assert_array_equal(ours.element["component"], theirs.element["component"])
    np.testing.assert_allclose(ours.objective, 2 * theirs.objective, rtol=1e-9, atol=1e-9)
    ours, theirs = (
        rebase({"angle": draws}, ANGLES, cost=c, reference="first", null=False)
        for c in (EuclideanCost(standardize=False), COSTS["wasserstein"])
    )
    np.testing.assert_array_equal(ours.elements["component"], theirs.elements["component"])
    np.testing.assert_allclose(2 * ours.objective, theirs.objective, rtol=1e-9)


def test_the_density_of_points_is_that_of_gaussians_of_their_own_moments():
    places, scale = np.array([-9.0, 0.0, 9.0]), np.array([0.5, 1.0, 2.0])
    draws = places + scale * np.random.default_rng(0).standard_normal((200, 3))
    out = rebase({"angle": draws}, ANGLES, null=False)
    expected = -0.5 * (np.log(2 * np.pi * out.data["angle"].var(0)) + 1).sum()
    assert out.score({"angle": draws}, COSTS["log_density"]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost()])
def test_costs_of_points_refuse_standard_deviations(cost):
    both = [DiagonalGaussian({"angle": np.arange(3.0)}, {"angle": np.ones(3)})] * 2
    with pytest.raises(SymmetryError, match="compares points; got standard deviations"):
        match(*both, ANGLES, cost=cost)


@pytest.mark.parametrize("cost", [3, object(), CircularCost, GaussianCost, np.cos])
def test_what_has_no_method_family_is_no_cost(cost):
    _, angle = wound(3, 20)
    with pytest.raises(ValueError, match="cost must be one of .*wasserstein.* or a cost with a method family"):
        match({"angle": angle[0]}, {"angle": angle}, ANGLES, cost=cost)
    with pytest.raises(TypeError, match="cost must be 'auto', .* or a cost with a method family"):
        rebase({"angle": angle}, ANGLES, cost=cost)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize(("made", "expected"), [(lambda z: np.exp(2.0 * z), "log"), (lambda z: 10.0 + z, "identity")])
def test_positive_values_are_compared_by_logarithms_whatever_their_unit(unit, made, expected):
    values = made(np.random.default_rng(0).standard_normal((200, 3)))
    assert coordinates._transform(unit * values) == expected


def test_coordinates_of_a_site_that_is_not_there_name_it():
    values = {"angle": np.zeros((5, 4))}
    read = coordinates.coordinates(values, ANGLES.bind({"angle": values["angle"][0]}), "identity", standardize=False)
    coordinates.refuse_other_coordinates(read, values, "the draws")
    with pytest.raises(SymmetryError, match=r"Site 'angle' is missing from the draws, which have \['speed'\]"):
        coordinates.refuse_other_coordinates(read, {"speed": values["angle"]}, "the draws")


# symmetries whose plain view cuts sites, or stacks them
CUT = {
    "orbits": (Symmetry({"loc": ("k",), "scale": ("k",)}, orbits={"k": (0, 0, 0, 1)}), (4,)),
    "cells": (Symmetry({site: ("s", "s/k") for site in ("loc", "scale")}).restrict(["s/k"]), (2, 3)),
    "a family": (Symmetry({("scale_1", "scale_2"): ("k",)}), ()),
}


@pytest.mark.parametrize("cost", [GaussianCost, EuclideanCost])
@pytest.mark.parametrize("kind", CUT)
def test_transforms_are_told_by_site_where_its_parts_have_labels_of_their_own(kind, cost):
    symmetry, shape = CUT[kind]
    rng = np.random.default_rng(0)
    draws = {site: np.exp(rng.standard_normal((60, *shape))) for site in symmetry.axes}
    scales = [site for site in draws if site.startswith("scale")]
    told = {site: "log" if site in scales else "identity" for site in draws}
    found = rebase(draws, symmetry, cost=cost(told), null=False)
    logs = draws | {site: np.log(draws[site]) for site in scales}
    expected = rebase(logs, symmetry, cost=cost("identity"), null=False)
    for name, part in expected.elements.items():
        np.testing.assert_array_equal(found.elements[name], part)
    np.testing.assert_allclose(found.margin, expected.margin, rtol=1e-6)
    assert found.frame.cost.transforms == told
    again = rebase(draws, symmetry, reference=found, null=False)
    for name, part in again.elements.items():
        np.testing.assert_array_equal(found.elements[name], part)
    assert found.score(draws, cost(told)) == pytest.approx(expected.score(logs, cost("identity")), rel=1e-6)
    points = [{site: x[k] for site, x in values.items()} for values in (draws, logs) for k in (0, 1)]
    matched = match(*points[:2], symmetry, cost=cost(told))
    assert matched.objective == pytest.approx(match(*points[2:], symmetry, cost=cost("identity")).objective, rel=1e-6)
    with pytest.raises(SymmetryError, match=rf"transforms names sites \['other'\]; the symmetry has \['{min(draws)}'"):
        rebase(draws, symmetry, cost=cost({"other": "log"}))
    stored = xr.Dataset({s: (("draw", *(f"{s} {k}" for k in range(x.ndim - 1))), x) for s, x in draws.items()}).chunk()
    again = rebase(stored, symmetry, cost=cost(told), null=False)
    for name, part in again.elements.items():
        np.testing.assert_array_equal(found.elements[name], np.reshape(part, np.shape(found.elements[name])))


def test_sites_of_one_family_are_read_alike():
    symmetry, _ = CUT["a family"]
    draws = {site: np.ones(60) + k for k, site in enumerate(symmetry.axes)}
    with pytest.raises(SymmetryError, match=r"\['scale_1', 'scale_2'\] are one family, read alike"):
        rebase(draws, symmetry, cost=GaussianCost({"scale_1": "log"}))


@pytest.mark.parametrize("kind", ["orbits", "cells"])
def test_sites_are_named_and_not_the_parts_that_they_are_cut_into(kind):
    symmetry, shape = CUT[kind]
    rng = np.random.default_rng(0)
    draws = {site: np.exp(rng.standard_normal((60, *shape))) for site in symmetry.axes}
    negative = draws | {"loc": -draws["loc"]}
    logs, lengths = GaussianCost("log"), EuclideanCost(standardize=False)
    found = rebase(draws, symmetry, cost=logs, null=False)
    of_loc = r"^Site 'loc'(?! *#)"
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values that are not positive"):
        rebase(negative, symmetry, cost=logs)
    zero = draws["loc"].copy()
    zero[-1].flat[0] = 0.0
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values that are not positive"):
        rebase(draws | {"loc": zero}, symmetry, cost=logs)
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values that are not positive"):
        found.score(negative, logs)
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values that are not positive"):
        match(*({site: x[k] for site, x in negative.items()} for k in (0, 1)), symmetry, cost=logs)
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values that differ by up to"):
        rebase(draws | {"loc": 1e200 * draws["loc"]}, symmetry, cost=lengths)
    with pytest.raises(SymmetryError, match=rf"{of_loc} holds values up to .*, too large to add up"):
        rebase(draws | {"loc": np.full_like(draws["loc"], 1.7e308)}, symmetry, cost=lengths)
    with pytest.raises(SymmetryError, match=rf"{of_loc} of the draws is not positive"):
        rebase(negative, symmetry, reference=found)
    with pytest.raises(SymmetryError, match=rf"{of_loc} of the reference is not positive"):
        rebase(draws, symmetry, cost=logs, reference={site: x[0] for site, x in negative.items()})
    with pytest.raises(
        SymmetryError, match=r"(?s)^(?!.*#).* relabelled by .* scale: .*, by .* loc: .*Use one symmetry"
    ):
        rebase(draws, symmetry.restrict(sites=["loc"]), reference=found)


@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 1e18), (np.float64, 1e141)])
@pytest.mark.parametrize("way", [1, -1])
def test_distances_of_plain_values_are_taken_as_far_as_their_squares_have_numbers(dtype, far, way):
    symmetry, cost = Symmetry.mixture("loc"), EuclideanCost(standardize=False)
    loc = np.random.default_rng(0).standard_normal((60, 3))
    expected = rebase({"loc": loc}, symmetry, cost=cost, null=False).elements["component"]
    near = (loc * (far / 100.0) ** way).astype(dtype)
    np.testing.assert_array_equal(
        rebase({"loc": near}, symmetry, cost=cost, null=False).elements["component"], expected
    )
    with pytest.raises(SymmetryError, match="'loc' holds values that differ by up to"):
        rebase({"loc": (loc * far**way).astype(dtype)}, symmetry, cost=cost, null=False)


@pytest.mark.parametrize("cost", [EuclideanCost(), GaussianCost("identity")])
@pytest.mark.parametrize("unit", [1e-170, 1e170])
def test_standardized_values_have_no_unit(unit, cost):
    loc = np.random.default_rng(0).standard_normal((60, 3))
    one, other = (
        rebase({"loc": x}, Symmetry.mixture("loc"), cost=cost, null=False).elements["component"]
        for x in (loc, unit * loc)
    )
    np.testing.assert_array_equal(one, other)


def test_stored_sites_may_have_any_name():
    symmetry = Symmetry({"loc#a": ("k",)}, orbits={"k": (0, 0, 0, 1)})
    draws = {"loc#a": np.random.default_rng(0).standard_normal((60, 4))}
    stored = xr.Dataset({"loc#a": (("draw", "k"), draws["loc#a"])}).chunk()
    expected, found = (rebase(some, symmetry, null=False).elements["k"] for some in (draws, stored))
    np.testing.assert_array_equal(np.reshape(found, expected.shape), expected)


@pytest.mark.parametrize("cost", [StephensCost, AllocationCost])
def test_the_data_of_a_group_go_by_its_own_name_where_it_acts_on_a_part_of_its_sites(cost):
    symmetry, _ = CUT["orbits"]
    draws = {site: np.exp(np.random.default_rng(0).standard_normal((60, 4))) for site in symmetry.axes}
    data = np.random.default_rng(1).integers(0, 3, (60, 5))
    data = np.eye(3)[data] if cost is StephensCost else data
    options = (None, "k", "k:0")
    elements = [
        np.asarray(rebase(draws, symmetry, cost=cost(data, name), null=False).elements["k"]) for name in options
    ]
    for other in elements[1:]:
        np.testing.assert_array_equal(other, elements[0])
    assert np.ptp(elements[0], axis=0).any()
    symmetry, shape = CUT["cells"]
    draws = {site: np.ones((60, *shape)) for site in symmetry.axes}
    with pytest.raises(SymmetryError, match=r"\(group='s/k'\): name one of .* groups \['s.k\[0\]', 's.k\[1\]'\]"):
        rebase(draws, symmetry, cost=cost(data, "s/k"))


@pytest.mark.parametrize(
    ("axes", "shapes", "num_draws", "cost"),
    [
        # at least twenty draws, and ten of every number of a slot
        ({"loc": ("component",)}, [(3,)], 19, EuclideanCost),
        ({"loc": ("component",)}, [(3,)], 20, GaussianCost),
        ({"loc": ("component",), "w": (None, "component")}, [(3,), (2, 3)], 29, EuclideanCost),
        ({"loc": ("component",), "w": (None, "component")}, [(3,), (2, 3)], 30, GaussianCost),
        # groups that meet in a site, however many draws there are
        ({"w": ("first", "second")}, [(3, 2)], 1000, EuclideanCost),
    ],
)
def test_variances_are_weighed_where_draws_tell_them(axes, shapes, num_draws, cost):
    draws = {site: np.zeros((num_draws, *shape)) for site, shape in zip(axes, shapes, strict=True)}
    bound = Symmetry(axes).bind(draws, num_leading_dims=1)
    assert type(chosen_cost("auto", bound, draws, None)) is cost


@pytest.mark.parametrize(("sizes", "count"), [((32,), 5), ((33,), 1), ((16, 16), 5), ((16, 17), 1)])
def test_a_search_starts_from_several_draws_where_labels_are_few(sizes, count):
    values = {f"w{k}": np.zeros(size) for k, size in enumerate(sizes)}
    assert chosen_starts(Symmetry({site: (f"g{site}",) for site in values}).bind(values)) == count


def test_margins_of_allocations_are_those_of_gaussians_of_the_relabelled_slots():
    """How many allocations differ is no log-likelihood."""
    rng = np.random.default_rng(0)
    slots = rng.permuted(np.broadcast_to(np.arange(3), (50, 3)), axis=1)
    loc = 30.0 * slots + rng.standard_normal((50, 3))
    # the component of each datum, whose slot is the same in every draw
    allocations = slots.argsort(1)[:, rng.integers(0, 3, 20)]
    by_allocation, by_value = (
        rebase({"loc": loc}, Symmetry.mixture("loc"), cost=cost, null=False, num_starts=1)
        for cost in (AllocationCost(allocations), GaussianCost())
    )
    np.testing.assert_allclose(by_allocation.margin, by_value.margin)
