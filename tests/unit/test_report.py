"""Reports name what is wrong first, keep quiet where nothing is, and refuse what they cannot read."""

import itertools
import re
import tracemalloc

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC, MCMC

from numpyro_symmetry import Concat, EuclideanCost, Symmetry, SymmetryError, SymmetryWarning, Unsigned, rebase, report
from numpyro_symmetry.diagnostics import Report, checks, soft_labels
from numpyro_symmetry.diagnostics.invariants import each_invariant, invariants
from numpyro_symmetry.diagnostics.judged import Kind, is_alarm
from numpyro_symmetry.symmetry import PlainView
from tests.support import traces

LOC = Symmetry.mixture("loc")
CENTRES = 6.0 * np.arange(3)


def noise(seed=0, draws=250):
    return np.random.default_rng(seed).standard_normal((4, draws, 3))


def switched(values, seed=1):
    """Every draw under labels of its own."""
    return np.random.default_rng(seed).permuted(values, axis=-1)


def first_lines(found, number=3):
    assert str(found).splitlines()[:number] == found.reading.splitlines()[:number] or len(found.warnings) < number
    return "\n".join(str(found).splitlines()[:number])


def test_prints_each_row_under_its_columns():
    rng = np.random.default_rng(0)
    values = switched(CENTRES + noise())
    found = report(rebase({"loc": values, "noise": rng.standard_normal((4, 250))}, LOC))
    head, *lines = str(found).splitlines()[str(found).splitlines().index("") + 1 :]
    ends = [match.end() for match in re.finditer(r"R-hat raw|relabelled|ESS raw|tail", head)]
    printed = [line for line in lines[: lines.index("")] if re.search(r"\d$", line)]
    assert {row.kind for row in found.rows} == set(Kind)
    assert len(printed) == len(found.rows)
    for line, row in zip(printed, found.rows, strict=True):
        cells = [f"{row.r_hat:.3f}", f"{row.ess:.0f}", f"{row.tail_ess:.0f}"]
        at = [ends[1], *ends[3:]]
        if row.kind is Kind.MOVED:
            cells = [f"{row.r_hat_raw:.3f}", cells[0], f"{row.ess_raw:.0f}", *cells[1:]]
            at = ends
        numbers = line.removeprefix(row.name)
        assert line.startswith(row.name)
        assert numbers.split() == cells
        assert all(line[:end].endswith(cell) for cell, end in zip(cells, at, strict=True)), line


# ---- failures, and where they are named -------------------------------------------------------------------------


def other_mode(values):
    values[0, :, 1] += 1.5


def shifted(values):
    values[2] += 0.6


def other_scale(values):
    values[0] = CENTRES + 1.7 * (values[0] - CENTRES)


def heavy_tails(values):
    values[3] = CENTRES + np.random.default_rng(5).standard_t(2, values[3].shape)


def stuck(values):
    values[2] = values[2, :1]


def stuck_half_way(values):
    values[1, 100:] = values[1, 100]


def frozen(values):
    values[:] = np.array([-3.0, 0.0, 3.0])


def drift(values):
    values += np.linspace(0.0, 2.0, values.shape[1])[:, None]


def moves_half_way(values):
    values[:, 125:, 2] += 1.0


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (other_mode, "chains disagree on .*loc"),
        (shifted, "chains disagree on .*loc"),
        (other_scale, "chains disagree on .*loc"),
        (heavy_tails, "chains disagree on .*loc"),
        (stuck, r"\A.*\nWARNING: chain 2 never moved: all 250 draws are the same"),
        (stuck_half_way, r"\A.*\nWARNING: chain 1 stood still for 150 of 250 draws in a row"),
        (frozen, r"\A.*\nWARNING: the sampler never moved: in every chain all 250 draws are the same"),
        (drift, "too slowly to tell whether they agree on Σ loc.*R-hat 1.[23]|chains disagree on Σ loc"),
        (moves_half_way, "too slowly to tell whether they agree on .*loc|chains disagree on .*loc"),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_a_failure_is_named_in_the_first_lines(failure, message, seed):
    values = CENTRES + noise(seed)
    failure(values)
    out = rebase({"loc": switched(values)}, LOC, cost=EuclideanCost(), null=False, num_starts=1)
    found = report(out)
    assert re.search(message, first_lines(found))
    assert found.worst.r_hat > 1.01 or failure is frozen


@pytest.mark.parametrize(("draws", "start", "stop"), [(250, 100, 200), (14, 4, 13)])
def test_a_chain_that_rests_for_less_than_half_of_its_draws_or_a_few_is_not_stuck(draws, start, stop):
    values = CENTRES + noise(draws=draws)
    values[1, start:stop] = values[1, start]
    found = report(rebase({"loc": values}, LOC, cost=EuclideanCost(), null=False, num_starts=1))
    assert found.longest_stay == (1, stop - start, 1, 1)
    assert "stood still" not in str(found)


def test_the_worst_is_named_first():
    values = {"loc": CENTRES + noise()}
    apart = noise(2)[..., 0], (np.arange(4) == 0)[:, None]
    given = {"f": apart[0] + 0.5 * apart[1], "g": apart[0] + 3.0 * apart[1], "h": apart[0] + apart[1]}
    found = report(values, rebase(values, LOC, null=False), given)
    assert f"chains disagree on g, h, f, which no label changes (R-hat {found.worst.r_hat:.3f})" in found.warnings[0]


def test_chains_of_equal_sums_and_sums_of_squares_differ_in_the_third_moment():
    # three points on a circle, seen from the side; in one chain they are turned by half of the way between them
    angles = 2 * np.pi * np.arange(3) / 3
    centre = np.stack([1.5 * np.cos(angles + (np.pi / 3 if chain == 0 else 0.0)) for chain in range(4)])
    values = switched(centre[:, None] + noise(draws=1000))
    out = rebase({"loc": values}, LOC, null=False)
    # by turns the third moment changes its sign, so the log density has to tell that no sign did it
    density = noise(3, draws=1000)[..., 0] + (np.arange(4) == 0)[:, None]
    found = report(out, invariants={"f": density})
    rows = {row.name: row for row in found.rows}
    assert max(rows[name].r_hat for name in ("Σ loc", "Σ loc²")) < 1.01 < rows["Σ loc³"].r_hat
    # every number is looked at twice, as it is and folded
    assert rows["Σ loc³"].chance == pytest.approx(2 * found.num_judged * rows["Σ loc³"].chains.chance)
    assert rows["Σ loc³"].chance < 0.01 < min(rows["Σ loc"].chance, rows["Σ loc²"].chance)
    assert "Σ loc³" in first_lines(found)


def test_an_invariant_that_is_stuck_in_every_chain_is_the_worst():
    values = {"loc": CENTRES + noise()}
    out = rebase(values, LOC, null=False)
    f = np.broadcast_to(np.array([0.0, 0, 0, 5])[:, None], (4, 250))
    found = report(values, out, {"f": f})
    assert found.worst.name == "f"
    assert found.worst.r_hat == np.inf
    assert found.warnings[0].startswith("WARNING: chains do not move in f and differ there (R-hat inf)")
    assert "The largest R-hat of what no label changes is inf." in found.reading


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_likelihood_of_zero_in_one_chain_is_named(share):
    values = {"loc": CENTRES + noise()}
    out = rebase(values, LOC, null=False)
    density = noise(2)[..., 0]
    density[3, : int(share * 250)] = -np.inf
    found = report(values, out, {"f": density})
    count = int(share * 250)
    assert found.warnings[0] == f"WARNING: f is infinite in {count} draws (chain 3: {count})."
    assert re.search("agree on f", found.warnings[1])
    assert found.worst.name == "f"
    assert 1.01 < found.worst.r_hat < np.inf


def test_entries_that_are_not_numbers_are_counted_and_the_others_judged():
    values = {"loc": CENTRES + noise()}
    out = rebase(values, LOC, null=False)
    f = noise(2)
    f[:, ::2, 1] = np.nan
    found = report(values, out, {"f": f})
    assert "could not judge 1 entry of 3 of f: 500 draws are not a number (chain 0: 125, chain 1: 125" in str(found)
    row = next(row for row in found.rows if row.name == "f")
    assert row.chains.num_judged == 2
    assert row.r_hat < 1.02
    found = report(values, out, {"f": np.full((4, 250), np.nan)})
    assert "could not judge f: 1000 draws are not a number" in found.warnings[0]
    assert found.worst.name != "f"


def test_a_site_whose_entries_never_change_is_no_failure_and_is_said():
    values = {"unit": np.concatenate([(CENTRES + noise())[..., None], np.ones((4, 250, 3, 1))], -1)}
    found = report(rebase(values, Symmetry({"unit": ("unit", None)}), null=False))
    assert found.warnings == ()
    assert "No R-hat of 3 entries of unit: no chain changes there." in found.reading


# ---- what chance gives, and signs -------------------------------------------------------------------------------


def test_an_r_hat_that_chance_gives_is_a_fact_and_no_warning():
    rng = np.random.default_rng(0)
    values = {"loc": switched(CENTRES + noise())}
    many = rng.standard_normal((4, 120, 400)).repeat(2, axis=1)[:, :240]
    many = np.concatenate([many, many[:, :10]], 1)
    found = report(values, rebase(values, LOC, null=False), {"many": many})
    assert found.worst.name == "many"
    assert 1.01 < found.worst.r_hat < 1.04
    assert not any("disagree" in warning for warning in found.warnings)
    assert re.search(r"R-hat 1\.0\d\d of many is no more than chance gives among 4\d\d numbers", found.reading)


def flipped_units(signs):
    """Two sites of three units, of which some chains have one negated."""
    rng = np.random.default_rng(0)
    draws = {name: rng.choice([1, 2, 3], 3, False) + 0.1 * rng.standard_normal((4, 250, 3)) for name in ("a", "b")}
    if signs:
        for value in draws.values():
            value[:2, :, 1] *= -1
    return draws


UNITS = Symmetry({"a": ("unit",), "b": ("unit",)})


def test_what_a_sign_changes_is_not_said_to_be_no_matter_of_labels():
    draws = flipped_units(signs=True)
    out = rebase(draws, UNITS, null=False)
    found = report(draws, out)
    assert found.sign_suspected
    assert "it may be a sign" in found.warnings[0]
    assert "unless signs=False" in found.warnings[0]
    assert "kind='signed'" in found.warnings[0]
    assert "not a matter of labels" not in str(found)
    assert "not due to labels" not in str(found)
    # something else says that it is not
    found = report(draws, out, {"f": noise()[..., 0] + np.arange(4.0)[:, None]})
    assert not found.sign_suspected
    assert "not a matter of labels" in found.warnings[0]
    # with signs in the group nothing is left of it
    signed = Symmetry(UNITS.axes, {"unit": "signed"})
    assert not any("disagree" in w for w in report(draws, rebase(draws, signed, null=False)).warnings)
    assert not report(rebase(flipped_units(signs=False), UNITS, null=False)).sign_suspected


def test_positive_values_have_no_sign_to_suspect():
    draws = {"a": np.exp(0.1 * noise())}
    draws["a"][0] *= 1.5
    found = report(rebase(draws, Symmetry.mixture("a"), null=False))
    assert not found.sign_suspected
    assert "not a matter of labels" in found.warnings[0]


@pytest.mark.parametrize("unit", [2.0**530, 2.0**-560])
def test_invariants_do_not_depend_on_units(unit):
    values, (one, other) = traces.mixture(draws=50)[0], ([], [])
    for found, size in ((one, 1.0), (other, unit)):
        scaled = values | {"loc": size * values["loc"]}
        found += report(rebase(scaled, traces.MIXTURE, null=False), progress_bar=False).rows
    assert [row.name for row in one] == [row.name for row in other]
    # the two values in the middle are equally far from it, and rounding says which is nearer
    np.testing.assert_allclose([row[1:6] for row in one], [row[1:6] for row in other], rtol=5e-3)


def test_units_that_pair_positive_numbers_otherwise_are_no_matter_of_signs():
    # every invariant of the one site agrees: which numbers go together is not among them
    pairs = np.array([[[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]], [[1.0, 6.0], [2.0, 7.0], [3.0, 5.0]]])
    values = pairs[[0, 1, 1, 1]][:, None] + 0.1 * np.random.default_rng(0).standard_normal((4, 250, 3, 2))
    symmetry = Symmetry({"unit": ("unit", None)})
    found = report(rebase({"unit": values}, symmetry, null=False))
    assert "the remaining disagreement is not due to labels" in found.warnings[0]
    assert not found.sign_suspected
    # with values of both signs it might be
    assert report(rebase({"unit": values - pairs.mean()}, symmetry, null=False)).rows[0].r_hat > 1.01


# ---- invariants -------------------------------------------------------------------------------------------------

FIBRED = Symmetry(
    {"heads": ("head", "head/unit"), "out": ("head", "head/unit", None)}, sizes={"head": 2, "head/unit": 3}
)
SYMMETRIES = {
    "mixture": (Symmetry.mixture("weights", "loc"), {"weights": (3,), "loc": (3,)}),
    "a site for each": (
        Symmetry({("loc_0", "loc_1", "loc_2"): ("component", None), "weights": ("component",)}),
        {"loc_0": (2,), "loc_1": (2,), "loc_2": (2,), "weights": (3,)},
    ),
    "two numbers a unit": (Symmetry.mlp([("w1", "b1"), ("w2", None)]), {"w1": (2, 4), "b1": (4,), "w2": (4, 3)}),
    "many numbers a unit": (Symmetry.mlp([("w1", "b1"), ("w2", None)]), {"w1": (20, 4), "b1": (4,), "w2": (4, 3)}),
    "signed": (
        Symmetry.mlp([("w1", "b1"), ("w2", None)], kind="signed"),
        {"w1": (2, 4), "b1": (4,), "w2": (4, 3)},
    ),
    "signed, two layers": (
        Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", None)], kind="signed"),
        {"w1": (2, 3), "b1": (3,), "w2": (3, 4), "b2": (4,), "w3": (4, 1)},
    ),
    "two layers": (
        Symmetry.mlp([("w1", "b1"), ("w2", "b2"), ("w3", None)]),
        {"w1": (2, 3), "b1": (3,), "w2": (3, 4), "b2": (4,), "w3": (4, 1)},
    ),
    "signed with a scale": (
        Symmetry({"loadings": (None, "factor"), "scale": (Unsigned("factor"),)}, {"factor": "signed"}),
        {"loadings": (5, 3), "scale": (3,)},
    ),
    "on two axes": (
        Symmetry.hmm(initial="initial", transition="transition", emissions=["loc"]),
        {"initial": (3,), "transition": (3, 3), "loc": (3, 2)},
    ),
    "signed on two axes": (Symmetry({"a": ("u", "u"), "b": ("u",)}, {"u": "signed"}), {"a": (3, 3), "b": (3,)}),
    "orbits": (Symmetry({"w": ("u", None)}, orbits={"u": [0, 0, 1, 1, 1]}), {"w": (5, 2)}),
    "fibres": (FIBRED, {"heads": (2, 3), "out": (2, 3, 2)}),
    "joined": (
        Symmetry({"w": (Concat((3, 2), ("a", "b")),), "v": ("a",)}, sizes={"a": 3, "b": 2}),
        {"w": (5,), "v": (3,)},
    ),
}


@pytest.mark.parametrize("name", SYMMETRIES)
def test_no_label_and_no_sign_changes_what_is_invariant(name):
    import jax

    symmetry, shapes = SYMMETRIES[name]
    rng = np.random.default_rng(0)
    values = {site: 1.0 + rng.standard_normal((50, *shape)) for site, shape in shapes.items()}
    bound = symmetry.bind({site: value[0] for site, value in values.items()})
    view = None if bound.is_plain else PlainView.of(bound, values)
    if view is None:
        element = bound.sample(jax.random.key(1), (50,))
        # in double precision, as a trace is moved
        with jax.enable_x64(True):
            moved = {site: np.asarray(value) for site, value in bound.apply(element, values).items()}
        before, after = (invariants(bound, v) for v in (values, moved))
    else:
        element = view.symmetry.sample(jax.random.key(1), (50,))
        opened = {site: np.asarray(value) for site, value in view.open(values).items()}
        with jax.enable_x64(True):
            moved = opened | {s: np.asarray(v) for s, v in view.symmetry.apply(element, opened).items()}
        before, after = (invariants(view.symmetry, v, view) for v in (opened, moved))
    assert any(not np.array_equal(moved[site], values.get(site)) for site in moved)
    assert before.keys() == after.keys()
    for key in before:
        np.testing.assert_allclose(before[key], after[key], rtol=1e-9, atol=1e-9, err_msg=key)
    # each site is among them, and so are sums across sites that share a group
    for site in bound.stacks:
        assert any(site in key for key in before), site
    if len(shapes) > 1 and name != "orbits":
        assert any("·" in key for key in before)


def test_invariants_do_not_depend_on_how_many_are_made_in_a_pass(monkeypatch):
    rng = np.random.default_rng(0)
    values = {"w1": rng.standard_normal((30, 2, 5)), "b1": rng.standard_normal((30, 5))}
    symmetry = Symmetry({"w1": (None, "k"), "b1": ("k",)}).bind({site: x[0] for site, x in values.items()})
    together = invariants(symmetry, values)
    assert together["sorted w1"].shape == (30, 6)
    # entries of one after the other, and tables that are cut
    for most in (1, 90):
        monkeypatch.setattr("numpyro_symmetry.diagnostics.invariants._AT_ONCE", most)
        apart = invariants(symmetry, values)
        assert list(apart) == list(together)
        for name, array in together.items():
            np.testing.assert_array_equal(apart[name], array)


def test_of_invariants_no_more_is_held_than_what_they_are():
    values = {"w1": np.random.default_rng(0).standard_normal((100, 8, 500), dtype=np.float32)}
    symmetry = Symmetry({"w1": (None, "k")}).bind({"w1": values["w1"][0]})
    tracemalloc.start()
    told = each_invariant(symmetry, values)
    next(told)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told.close()
    assert held < 0.2 * values["w1"].nbytes


def test_invariants_by_hand():
    rng = np.random.default_rng(0)
    w, loc = rng.dirichlet(np.ones(3), 20), 5.0 + 2.0 * rng.standard_normal((20, 3))
    symmetry = Symmetry.mixture("w", "loc").bind({"w": w[0], "loc": loc[0]})
    found = invariants(symmetry, {"w": w, "loc": loc})
    a, b = ((x - x.mean()) / x.std() for x in (w, loc))
    np.testing.assert_allclose(found["Σ loc"][:, 0], b.sum(1))
    np.testing.assert_allclose(found["Σ loc³"][:, 0], (b**3).sum(1))
    np.testing.assert_allclose(found["Σ w·loc"][:, 0], (a * b).sum(1))
    np.testing.assert_allclose(found["sorted loc"], np.sort(b, 1))
    # weights sum to one
    assert "Σ w" not in found
    # each order once: a number said twice would be judged twice
    for size, orders in {2: [0, 1], 5: [0, 2, 4]}.items():
        x = rng.standard_normal((20, size))
        of_few = invariants(Symmetry({"x": ("k",)}).bind({"x": x[0]}), {"x": x})
        np.testing.assert_allclose(of_few["sorted x"], np.sort((x - x.mean()) / x.std(), 1)[:, orders])
    # of one slot alone the first moment is the value itself
    alone = invariants(Symmetry({"loc": ("k",)}).bind({"loc": loc[0, :1]}), {"loc": loc[:, :1]})
    assert [name for name in alone if "sorted" in name] == []


def test_invariants_across_sites_by_hand():
    rng = np.random.default_rng(0)
    axes = {"loc": ("k",), "rows": ("k", None), "square": ("k", "k"), "both": ("k", "j")}
    shapes = {"loc": (4,), "rows": (4, 2), "square": (4, 4), "both": (4, 3)}
    values = {site: 2.0 + rng.standard_normal((20, *shape)) for site, shape in shapes.items()}
    found = invariants(Symmetry(axes).bind({site: x[0] for site, x in values.items()}), values)
    # numbers of a unit are each scaled by their own
    pooled = {site: (0, 1) if site == "rows" else None for site in values}
    x = {site: (x - x.mean(pooled[site])) / x.std(pooled[site]) for site, x in values.items()}
    # of each unit: what no other group moves as it is, a square's entry with itself, and the size of what is moved
    units = {
        "loc": x["loc"][..., None],
        "rows": x["rows"],
        "square": np.diagonal(x["square"], axis1=1, axis2=2)[..., None],
        "both": np.square(x["both"]).sum(2, keepdims=True),
    }
    for first, second in itertools.combinations(axes, 2):
        expected = np.einsum("dki,dkj->dij", units[first], units[second]).reshape(20, -1)
        np.testing.assert_allclose(found[f"Σ {first}·{second}"], expected, err_msg=f"{first}, {second}")


@pytest.mark.parametrize("offset", [1e4, 5e6, 1e9])
def test_sums_are_made_however_far_from_zero_draws_lie(offset):
    """In double precision, of which far fewer digits are lost."""
    loc = np.random.default_rng(0).standard_normal((50, 20))
    symmetry = Symmetry.mixture("loc").bind({"loc": loc[0]})
    near, far = (invariants(symmetry, {"loc": x}) for x in (loc, loc + offset))
    assert list(near) == list(far)
    np.testing.assert_allclose(far["Σ loc"], near["Σ loc"], atol=1e-5 * offset / 1e4)


@pytest.mark.parametrize("held_in", [np.float32, np.float64])
def test_what_is_constant_up_to_single_precision_is_no_invariant(held_in):
    """Also where numbers that were made in single precision are held in double; and every number for itself."""
    rng = np.random.default_rng(0)
    w = rng.dirichlet(np.ones(3), 400).astype(np.float32)
    both = np.stack([w, 1e-5 + 1e-9 * rng.standard_normal((400, 3))], -1).astype(np.float32)
    symmetry = Symmetry({"w": ("k",), "both": ("k", None)}).bind({"w": w[0], "both": both[0]})
    found = invariants(symmetry, {"w": w.astype(held_in), "both": both.astype(held_in)})
    assert "Σ w" not in found
    assert found["Σ both"].shape[1] == 1
    # a unit in the last place moves a sum of cubes by three, and by all of these units together
    sign, last_place = rng.choice([-1, 1], (2, 400, 30))
    around = np.float32(129 + np.sort(sign[:1]) + 2**-16 * last_place[:, :1])
    assert len(np.unique(around.sum(1, dtype=float))) > 1
    of_cubes = invariants(Symmetry({"x": ("k",)}).bind({"x": around[0]}), {"x": around.astype(held_in)})
    assert "Σ x³" not in of_cubes
    # nor does a norm of one vary whose largest squares are hundreds of times their mean
    wide = rng.standard_normal((400, 300)) * np.where(np.arange(300) < 2, 30.0, 1.0)
    wide = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    signed = Symmetry({"x": ("k",)}, {"k": "signed"}).bind({"x": wide[0]})
    assert "Σ x²" not in invariants(signed, {"x": wide.astype(held_in)})
    # made in single precision, and worked on in double
    assert "Σ w" not in invariants(symmetry, {"w": 1.1 * np.float64(w), "both": both.astype(held_in)})


def test_what_single_precision_cannot_hold_has_the_same_invariants():
    x = np.random.default_rng(0).normal(size=(50, 3))
    near, far = (invariants(Symmetry({"x": ("k",)}).bind({"x": x[0]}), {"x": size * x}) for size in (1.0, 1e60))
    np.testing.assert_allclose(far["Σ x"], near["Σ x"])


# ---- what is given ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    values = {"loc": switched(CENTRES + noise())}
    return values, rebase(values, LOC)


def test_a_diagnostic_takes_a_function(pair, monkeypatch):
    def still(found):
        if max(found.longest_stay) < 3:
            yield f"no chain stays for more than {max(found.longest_stay)} draw."

    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, still))
    found = report(*pair)
    assert found.warnings == ("WARNING: no chain stays for more than 1 draw.",)
    assert found.warnings[0] in str(found)


def test_what_rebase_returned_is_enough(pair):
    values, out = pair
    assert str(report(out)) == str(report(values, out)) == str(report(values, out, num_leading_dims=2))
    assert isinstance(report(out), Report)
    plain = {site: value[0] for site, value in values.items()}
    of_plain = rebase(plain, LOC, null=False)
    assert str(report(of_plain)) == str(report(plain, of_plain))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v, o: report({"loc": v["loc"] + 1}, o), SymmetryError, "raw is not what was rebased: .* site 'loc'"),
        (lambda v, o: report(o.data, o), SymmetryError, "raw is not what was rebased"),
        (lambda v, o: report({"loc": v["loc"][:, :9]}, o), SymmetryError, r"leading dimensions \(4, 9\)"),
        (lambda v, o: report({"loc": v["loc"][..., :2]}, o), SymmetryError, "'loc' of raw has shape"),
        (lambda v, o: report({"mu": v["loc"]}, o), SymmetryError, r"no sites \['loc'\]"),
        (lambda v, o: report(v, o.data), TypeError, r"out must be what rebase returned \(a Rebased.*got dict"),
        (lambda v, o: report(v), TypeError, r"^report\(out\): out must be what rebase returned.*got dict"),
        (lambda v, o: report(v, Report), TypeError, "got the class Report"),
        (lambda v, o: report(o, v), TypeError, "the draws as given come first"),
        (lambda v, o: report(v, o, num_leading_dims=1), SymmetryError, "num_leading_dims=1"),
        (lambda v, o: report(v, o, [1]), TypeError, "invariants must be a mapping .* got list"),
        (lambda v, o: report(v, o, {"f": np.zeros((4, 250, 0))}), SymmetryError, "'f' has shape .* no entries"),
        (lambda v, o: report(v, o, {"f": np.zeros((4, 9))}), SymmetryError, "'f' has shape .*leading dimensions"),
        (lambda v, o: report(v, o, {"f": np.zeros((4, 250), object)}), TypeError, "'f' holds values of type object"),
        (lambda v, o: report(v, o, {"f": np.zeros((4, 250), complex)}), TypeError, "'f' .* complex128"),
        (lambda v, o: report(v, o, {"f": np.ma.masked_less(np.zeros((4, 250)), 1)}), SymmetryError, "'f' is a masked"),
    ],
)
def test_a_report_refuses_what_it_cannot_read(pair, call, error, message):
    with pytest.raises(error, match=message):
        call(*pair)


def test_members_of_an_ensemble_are_no_chain():
    rng = np.random.default_rng(0)
    centre = np.array([[0.0, 1.0], [3.0, 4.0], [6.0, 0.0]])
    members = [{"w": rng.permutation(centre + 0.1 * rng.standard_normal((3, 2)))} for _ in range(12)]
    out = rebase(members, Symmetry({"w": ("unit", None)}))
    found = report(members, out)
    assert found.rows == ()
    assert "R-hat" not in str(found)
    assert "chain" not in str(found)
    assert "3 of 3 slots of 'unit' are further apart than those of shuffled draws, and so identified." in str(found)
    assert re.search(r"labels of 'unit' are [01]\.\d transpositions apart; labels at random, 1\.2", str(found))
    # labels change once in twelve members, by one exchange
    turned = [{"w": m[[1, 0, 2]] if k < 4 else m} for k, m in enumerate(centre + 0.1 * noise(1, 12)[0, ..., None])]
    found = report(rebase(turned, Symmetry({"w": ("unit", None)}), null=False))
    assert found.transpositions["unit"] == pytest.approx(1 / 11)
    assert found.share_relabelled == pytest.approx(4 / 12)
    with pytest.raises(SymmetryError, match="no chains"):
        _ = found.worst
    same = [members[0]] * 12
    assert "all 12 members are the same" in report(rebase(same, Symmetry({"w": ("unit", None)}))).warnings[0]


def test_a_site_without_identity_is_named_and_does_not_speak_for_the_others():
    rng = np.random.default_rng(0)
    planted = np.array([[3.0, 0, 0, 2, 1], [0, 3.0, 2, 0, -1]])
    draws = {
        "loadings": planted + 0.1 * rng.standard_normal((4, 100, 2, 5)),
        "scores": rng.standard_normal((4, 100, 2, 20)),
    }
    symmetry = Symmetry({"loadings": ("factor", None), "scores": ("factor", None)})
    found = report(rebase(draws, symmetry))
    assert (
        "2 of 2 slots of 'factor' are further apart than those of shuffled draws, and so identified." in found.reading
    )
    assert re.search(r"no identity in scores \(\d%, shuffled \d%\)\.", found.reading)
    assert str(found).splitlines()[0].endswith("single slots may be interpreted in loadings.")
    assert not any("made up" in warning for warning in found.warnings)
    assert found.null.by_site["loadings"].share > 0.8
    assert found.null.by_site["scores"].share < 0.15


def test_labels_of_each_cell_are_told_together_and_their_sites_by_name():
    rng = np.random.default_rng(0)
    cells, several = ("subject", "subject/type"), (4, 100, 5, 3)
    planted = {"loc": 4.0 * np.arange(3) + 0.3 * rng.standard_normal(several), "score": rng.standard_normal(several)}
    order = rng.random(several).argsort(-1)
    draws = {site: np.take_along_axis(value, order, -1) for site, value in planted.items()}
    out = rebase(draws, Symmetry({"loc": cells, "score": cells}).restrict(["subject/type"]))
    found = report(out)
    assert found.null.by_site.keys() == {"loc", "score"}
    assert str(found).splitlines()[0].endswith("single slots may be interpreted in loc.")
    assert re.search(r"Slots explain .* of the variance of loc and score;", found.reading)
    assert re.search(r"no identity in score \(\d%, shuffled \d\d%\)\.", found.reading)
    each = "3 of 3 slots of each of 'subject.type[0]', 'subject.type[1]', 'subject.type[2]' and 2 more"
    assert f"{each} are further apart than those of shuffled draws, and so identified." in found.reading
    assert f"; {each} identified" in repr(out)
    assert "subject.type[2] and 2 more: 3.0 distinct slots of 3" in repr(soft_labels(out))


@pytest.mark.parametrize(
    ("alone", "words"), [(("a",), "'a' has one slot"), (("a", "b"), "'a' and 'b' have one slot each")]
)
def test_of_groups_with_one_slot_it_is_said_that_there_is_no_other(alone, words):
    rng = np.random.default_rng(0)
    draws = {site: rng.standard_normal((4, 100, 1)) for site in alone}
    draws["c"] = rng.standard_normal((4, 100, 2)) + [0.0, 9.0]
    out = rebase(draws, Symmetry({site: (site,) for site in draws}))
    assert f"{words}, and no other that it could be taken for." in report(out).reading
    assert f"; {words}, 2 of 2 slots of 'c' identified" in repr(out)


def test_slots_in_blocks_that_move_too_are_those_of_all_blocks():
    rng = np.random.default_rng(0)
    heads = 3.0 * np.arange(12.0).reshape(3, 4) + 0.3 * rng.standard_normal((4, 100, 3, 4))
    heads = rng.permuted(heads, axis=-1)
    order = rng.random((4, 100, 3)).argsort(-1)[..., None]
    out = rebase({"key": np.take_along_axis(heads, order, -2)}, Symmetry({"key": ("head", "head/unit")}))
    found = report(out)
    assert found.num_slots == {"head": 3, "head/unit": 12}
    assert "12 of 12 slots of 'head/unit' are further apart" in found.reading
    assert "summarise out.data, slot by slot." in found.reading


def test_sites_none_of_which_has_an_identity_are_not_named_one_by_one():
    found = report(rebase({"loc": noise(draws=100)}, LOC))
    assert any("relabelling made up what structure there seems to be" in warning for warning in found.warnings)
    assert "no identity in" not in found.reading


def test_a_chain_of_two_draws_may_be_stuck():
    values = (CENTRES + noise())[:, :2]
    values[3] = values[3, :1]
    found = report(rebase({"loc": values}, LOC, null=False, num_leading_dims=2))
    assert "WARNING: chain 3 never moved: all 2 draws are the same, labels apart." in found.warnings


@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize("are_members", [False, True])
def test_draws_that_are_all_the_same_have_as_many_slots_as_others(count, are_members):
    draws = [{"loc": CENTRES}] * count if are_members else {"loc": np.tile(CENTRES, (count, 1))}
    out = rebase(draws, LOC, num_leading_dims=1)
    assert not out.null.can_tell
    assert all(np.isfinite(slots).all() for slots in out.null.separation.values())
    assert "one slot" not in f"{out}{report(draws, out)}"


def test_no_slot_is_both_identified_and_not_to_be_interpreted():
    found = report(rebase({"loc": switched(2.2 * np.arange(3) + noise())}, LOC))
    assert any("do not interpret individual slots" in warning for warning in found.warnings)
    assert found.null.num_identified["component"] > 0
    assert str(found).splitlines()[0].endswith("; interpret no slot by itself.")
    assert "and so identified" not in found.reading
    assert "shuffled draws in the mean, but which draw's labels are right is in doubt." in found.reading


def test_too_few_draws_cannot_tell_who_is_identified():
    rng = np.random.default_rng(0)
    found = report(rebase({"loc": rng.standard_normal((8, 3))}, LOC, num_leading_dims=1))
    assert "single slots may be interpreted" not in str(found).splitlines()[0]
    assert "Whether slots of 'component' are identified: cannot tell from 8 independent draws." in found.reading
    assert not any("made up" in warning or "shrinks" in warning for warning in found.warnings)


def test_orbits_and_fibres_are_reported_under_their_sites():
    rng = np.random.default_rng(0)
    symmetry = Symmetry({"w": ("u", None)}, orbits={"u": [0, 0, 1, 1, 1]})
    values = 4.0 * np.arange(5)[:, None] + rng.standard_normal((4, 100, 5, 2))
    values[0, :, 3] += 1.0
    found = report(rebase({"w": values}, symmetry, null=False))
    assert [row.name for row in found.rows] == ["w", "Σ w", "Σ w²", "Σ w³", "sorted w"]
    assert "chains disagree on" in found.warnings[0]
    values, _ = traces.mixture(draws=50)
    assert "·" in str(report(rebase(values, traces.MIXTURE, null=False)))


SLOTS = np.array([[-3.0, 0.2], [0.0, 0.3], [3.0, 0.5]])
ANSWERS = {
    # what chains are drawn about, and what a reader is told: do they agree, which slots, what next
    "clean": (
        [SLOTS] * 4,
        ("Chains agree, as far as these draws show; single slots may be interpreted in loc and weight.",),
        "Next: summarise out.data, slot by slot.",
    ),
    "one chain elsewhere": (
        [SLOTS, SLOTS, SLOTS, np.array([[-3.0, 0.2], [2.0, 0.2], [3.0, 0.6]])],
        (
            "Chains disagree, whatever their labels: interpret no slot.",
            "WARNING: chains disagree on",
            "slots of 'component' are further apart than those of shuffled draws; what they are, chains disagree on.",
        ),
        "Next: find out in what chains differ, by diagnostics.modes(out), or run longer and from other starts; until "
        "chains agree, interpret no slot.",
    ),
    "two slots are one": (
        [SLOTS[[0, 1, 1]]] * 4,
        ("Chains agree, as far as these draws show; interpret no slot by itself.", "labels are right is in doubt."),
        "Next: rely on what no label changes, or sum labels out by diagnostics.soft_labels(out).",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_report_says_whether_chains_agree_which_slots_and_what_next(case):
    centres, said, what_next = ANSWERS[case]
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((4, 500, 3, 2)) * [0.3, 0.03]
    values = rng.permuted(np.broadcast_to(np.arange(3), (4, 500, 3)), axis=2)[..., None]
    values = np.take_along_axis(np.stack(centres)[:, None] + noise, values, 2)
    draws = {"loc": values[..., 0], "weight": values[..., 1]}
    lines = str(report(rebase(draws, Symmetry.mixture("loc", "weight")))).splitlines()
    for words in said:
        assert sum(words in line for line in lines) == 1
    assert lines[-1] == what_next
    # no verdict contradicts another
    assert ("may be interpreted" in lines[0]) == (case == "clean")
    assert any("and so identified" in line for line in lines) == (case == "clean")


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ([[0, 1, 2]] * 4, "Labels are the same in all of 4 chains of 40 draws."),
        (
            [[0, 1, 2], [1, 2, 0]] * 2,
            "Labels changed within none of 4 chains of 40 draws, and differ from chain to chain.",
        ),
        ("switching", "Labels changed within 2 of 4 chains of 40 draws (1, 2, 0 and 0 times)."),
    ],
)
def test_a_report_says_where_labels_changed(orders, said):
    which = np.broadcast_to(np.arange(3), (4, 40, 3)).copy()
    if orders == "switching":
        which[0, 30:] = which[1, 10:20] = [1, 2, 0]
    else:
        which[:] = np.array(orders)[:, None]
    loc = np.take_along_axis(CENTRES + 0.1 * np.random.default_rng(0).standard_normal((4, 40, 3)), which, 2)
    found = report(rebase({"loc": loc}, LOC, null=False))
    assert said in found.reading
    # the slots' names are no change
    assert report(rebase({"loc": loc[..., ::-1]}, LOC, null=False)).label_changes == found.label_changes


def test_changes_of_sign_alone_are_told_from_changes_of_labels():
    centres = np.array([1.0, 4.0, 9.0])
    loc = centres + 0.1 * np.random.default_rng(0).standard_normal((2, 40, 3))
    loc[0, 10:20, 1] *= -1
    loc[1, 30:] = -loc[1, 30:, [1, 2, 0]].T
    found = report(rebase({"loc": loc}, Symmetry({"loc": ("component",)}, {"component": "signed"}), null=False))
    assert (found.label_changes, found.sign_changes) == ((2, 1), (2, 0))
    assert "chains of 40 draws (2 and 1 times; of these, signs alone 2 and 0)." in found.reading


def relabelled_apart(values):
    values[0] = values[0][:, [1, 2, 0]]
    return values


def with_a_mode_of_its_own(values):
    values[0, :, 1] += 1.5
    return relabelled_apart(values)


def mixed_over_labels(values):
    values[0, :, 1] += 1.5
    return switched(values)


def apart_and_still(values):
    values[0], values[1] = CENTRES, CENTRES[[1, 2, 0]]
    return values


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            relabelled_apart,
            r"R-hat falls from 1\.\d{3} to 1\.00\d under one set of labels: labels explain all 3 numbers above 1\.01\.",
        ),
        (
            with_a_mode_of_its_own,
            r"R-hat falls from 1\.[45]\d\d to 1\.[12]\d\d under one set of labels: of the 3 numbers above 1\.01, "
            r"labels explain 2; 1 remains \(loc\[\d\]\): not labels\.",
        ),
        (
            mixed_over_labels,
            r"R-hat rises from 1\.00\d to 1\.[12]\d\d under one set of labels: 1 number is above 1\.01 \(loc\[\d\]\), "
            r"as sampled none: labels had hidden that chains differ\.",
        ),
        (
            apart_and_still,
            r"R-hat falls from 3\.\d{3} to 2\.\d{3} under one set of labels: of the 3 numbers above 1\.01, labels "
            r"explain none; 3 remain \(loc\[\d\], loc\[\d\], loc\[\d\]\): not labels\.",
        ),
        (
            lambda values: np.broadcast_to(CENTRES, values.shape) + np.arange(4.0)[:, None, None],
            r"R-hat stays at infinity under one set of labels: of the 3 numbers above 1\.01, labels explain "
            r"none; 3 remain",
        ),
        (
            lambda values: values,
            r"As sampled, no R-hat of numbers that labels move is above 1\.01 \(the largest is 1\.00\d\): labels "
            r"raised none\.",
        ),
        (
            lambda values: np.broadcast_to(CENTRES, values.shape),
            r"R-hat is undefined in all numbers that labels move: what of it was labels, these draws do not tell\.",
        ),
        (lambda values: values[2:], r"As sampled, no R-hat of numbers that labels move is above 1\.01"),
        (lambda values: values[:1], r"Of one chain there is no R-hat, and so nothing of it that was labels\."),
        (
            lambda values: values[:, :3],
            r"With fewer than 4 draws to a chain there is no R-hat, and so nothing of it that was labels\.",
        ),
    ],
)
def test_a_report_says_in_one_sentence_how_much_of_r_hat_was_labels(made, said):
    lines = report(rebase({"loc": made(CENTRES + noise())}, LOC, null=False, num_leading_dims=2)).reading.splitlines()
    assert sum(bool(re.match(said, line)) for line in lines) == 1, lines


def test_r_hats_that_chance_gives_are_not_said_to_be_labels_hiding_something():
    """Of many numbers some exceed 1.01 by chance, relabelled or not."""
    rng = np.random.default_rng(2)
    values = {"loc": CENTRES + rng.standard_normal((4, 100, 3)), "w": rng.standard_normal((4, 100, 40, 3))}
    symmetry = Symmetry({"loc": ("component",), "w": (None, "component")})
    found = report(rebase(values, symmetry, null=False))
    apart = [row.chains.num_apart for row in found.rows if not row.is_invariant]
    assert sum(apart) > 3
    # the furthest are named, with both of their indices
    named = r"w\[\d+, \d\], w\[\d+, \d\], w\[\d+, \d\] and \d+ more\), as sampled \d+: no more than chance gives\.$"
    assert re.search(named, found.reading, re.MULTILINE)


def test_raw_r_hats_that_chance_gives_are_not_put_down_to_labels():
    """Labels that move at every draw mix chains: what is above 1.01 then is chance, and no matter of labels."""
    rng = np.random.default_rng(0)
    said = []
    for _ in range(20):
        values = rng.permuted(3.0 * CENTRES + rng.standard_normal((4, 150, 3)), axis=2)
        out = rebase({"loc": values}, LOC, null=False, num_leading_dims=2, num_starts=1)
        found = report(out)
        row = next(row for row in found.rows if row.name == "loc")
        if row.num_apart_raw and not row.chains.num_apart:
            assert row.chance_raw > 0.01
            said.append(found.reading.count("no more than chance gives: none of it has to be put down to labels."))
            assert "labels explain" not in found.reading
    assert len(said) > 2
    assert set(said) == {1}


def test_of_an_invariant_with_a_slow_number_above_chance_is_not_known_as_sampled():
    rng = np.random.default_rng(0)
    values = {"loc": CENTRES + rng.standard_normal((4, 400, 3))}
    pair = rng.standard_normal((4, 400, 2)) + np.arange(2) * rng.standard_normal((4, 1, 2))
    pair[..., 0] = rng.standard_normal((4, 400)).cumsum(1)
    row = next(
        row for row in report(values, rebase(values, LOC, null=False), {"pair": pair}).rows if row.name == "pair"
    )
    assert row.num_apart_raw == row.chains.num_apart == 2
    assert np.isnan(row.chance_raw)
    assert row.chance < 0.01


@pytest.mark.parametrize(("num_draws", "num_switches"), [(400, 30), (1000, 30)])
def test_labels_that_seldom_change_are_no_chance(num_draws, num_switches):
    """They make chains slow, and what chance gives to slow chains is much: the largest R-hat is theirs all the same."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        values = 6.0 * CENTRES + rng.standard_normal((4, num_draws, 3))
        for chain in values:
            for start in np.sort(rng.choice(num_draws, num_switches, False)):
                chain[start:] = chain[start:, rng.permutation(3)]
        found = report(rebase({"loc": values}, LOC, null=False, num_leading_dims=2, num_starts=1))
        assert found.rows[0].num_apart_raw > 0
        assert "none of it has to be put down to labels" not in found.reading
        assert "labels explain" in found.reading


def test_of_one_draw_a_chain_there_is_a_report():
    draws = {"loc": CENTRES + np.zeros((2, 1, 3))}
    assert "R-hat and ESS are unknown" in str(report(rebase(draws, LOC, null=False, num_leading_dims=2)))


def locations_and_scale(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    numpyro.deterministic("gap", loc[0] - loc[1])
    numpyro.sample("y", dist.Normal(loc.sum(), scale), obs=y)


def apart_in(*sites, chains=4):
    """Draws of three locations under labels at random, and of a scale; chains agree but in what is named."""
    rng = np.random.default_rng(0)
    loc = rng.permuted(np.array([-4.0, 0.0, 4.0]) + 0.3 * rng.standard_normal((chains, 200, 3)), axis=-1)
    scale = 1.0 + 0.1 * rng.standard_normal((chains, 200))
    if "scale" in sites:
        scale[0] += 1.0
    if "gap" in sites:  # labels of its own for every chain
        loc = np.stack([np.roll(np.sort(loc[k]), k, -1) for k in range(chains)])
    return {"loc": loc, "scale": scale}


@pytest.mark.parametrize("site", ["scale", "none"])
def test_sites_that_the_symmetry_does_not_name_are_judged_as_well(site):
    given = apart_in(site)
    found = report(given, rebase(given, Symmetry.mixture("loc"), null=False))
    assert {row.name for row in found.rows if row.r_hat > 1.5} == {site} - {"none"}
    assert ("Chains disagree in scale, of which the symmetry does not speak" in str(found)) == (site == "scale")
    assert str(found).startswith("Chains agree") == (site == "none")
    assert "what the symmetry does not name" in str(found)
    assert ("if labels move scale, name it in the symmetry" in found.reading) == (site == "scale")


def test_sites_that_labels_may_move_are_not_said_to_be_moved_by_none():
    given = apart_in("gap")
    given["gap"] = given["loc"][..., 0] - given["loc"][..., 1]
    found = report(given, rebase(given, Symmetry.mixture("loc"), null=False))
    assert [row.name for row in found.rows if is_alarm(row)] == ["gap"]
    assert not any(row.is_invariant for row in found.rows if row.name == "gap")
    assert "relabel with signs" not in str(found)
    max_of_known = re.search(r"largest R-hat of what no label changes is (\d+\.\d+)", found.reading)
    assert float(max_of_known[1]) < 1.05


def test_sites_that_could_not_be_computed_again_are_not_judged():
    given = apart_in("gap")
    noise = np.random.default_rng(1).standard_normal((4, 200))
    given["gap"] = given["loc"][..., 0] - given["loc"][..., 1] + noise
    with pytest.warns(SymmetryWarning, match="'gap' is computed by the model, but could not be computed again"):
        out = rebase(given, Symmetry.mixture("loc"), model=locations_and_scale, model_args=(0.0,), null=False)
    found = report(given, out)
    assert "gap" not in {row.name for row in found.rows}
    assert str(found).startswith("Chains agree")


def test_of_latent_sites_that_no_label_moves_the_model_of_a_sampler_says_so():
    mcmc = MCMC(HMC(locations_and_scale), num_warmup=20, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), 0.3)
    found = report(mcmc, rebase(mcmc, Symmetry.mixture("loc"), null=False))
    assert {row.name for row in found.rows if row.is_invariant} >= {"scale"}
    assert "what the symmetry does not name" not in str(found)


def sum_and_range(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    numpyro.deterministic("range", loc.max() - loc.min())
    numpyro.sample("y", dist.Normal(loc.sum() + slope @ np.arange(3.0), scale), obs=y)


SAID = {
    "by the user": {"symmetry": Symmetry.mixture("loc"), "axes": dict.fromkeys(("scale", "slope", "range"), ())},
    "by the model": {"symmetry": Symmetry.mixture("loc"), "model": sum_and_range, "model_args": (0.0,)},
    "by the model whose symmetry was found": {"model": sum_and_range, "model_args": (0.0,)},
}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("apart", ["scale", "slope", "none"])
def test_what_is_said_to_be_moved_by_no_label_is_judged_as_such(said, apart):
    given = apart_in(apart)
    given["slope"] = 0.1 * np.random.default_rng(2).standard_normal((4, 200, 3)) + 3.0 * (apart == "slope") * np.array(
        [1.0, 0.0, 0.0, 0.0]
    ).reshape(4, 1, 1)
    given["range"] = np.ptp(given["loc"], -1)
    found = report(given, rebase(given, null=False, **SAID[said]))
    assert {row.name for row in found.rows if row.is_invariant} >= {"scale", "slope", "range"}
    assert [row.name for row in found.rows if is_alarm(row)] == [apart] * (apart != "none")
    assert ("which no label changes" in str(found) and "this is not a matter of labels" in str(found)) == (
        apart != "none"
    )
    assert not found.sign_suspected
    assert str(found).startswith("Chains agree") == (apart == "none")


OF_NOISE = {
    "one group": ({"w": ("unit", None)}, {}, (4, 3)),
    "units in heads that move": ({"w": ("head", "head/unit", None)}, {"head": 2, "head/unit": 4}, (2, 4, 3)),
}


@pytest.mark.parametrize("name", OF_NOISE)
def test_members_without_order_are_as_far_apart_as_labels_at_random(name):
    axes, sizes, shape = OF_NOISE[name]
    members = [{"w": draw} for draw in np.random.default_rng(0).standard_normal((60, *shape))]
    found = report(members, rebase(members, Symmetry(axes, sizes=sizes), null=False))
    assert found.transpositions.keys() == found.transpositions_at_random.keys()
    for group, mean in found.transpositions.items():
        assert mean == pytest.approx(found.transpositions_at_random[group], abs=0.6), group
