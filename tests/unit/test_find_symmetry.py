"""What `find_symmetry` says of a model beside the group: reasons, refusals, limits, and what numbers overrule."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.extend import core
from numpyro.contrib.control_flow import cond

from numpyro_symmetry import Symmetry, SymmetryError, SymmetryWarning, check_symmetry, find_symmetry, rebase
from numpyro_symmetry.discovery import find, without_parameters
from numpyro_symmetry.discovery.labels import reading, rules
from numpyro_symmetry.discovery.labels.names import path_of, short_names
from numpyro_symmetry.discovery.labels.terms import (
    IS_DATA,
    Reason,
    atoms_of,
    axis,
    pinned,
)
from numpyro_symmetry.discovery.labels.values import Typed
from numpyro_symmetry.discovery.labels.walk import Walk
from numpyro_symmetry.discovery.proof import evidence as points
from numpyro_symmetry.discovery.proof import exchange, propose, prove, signs, sources
from numpyro_symmetry.discovery.proof.effort import EFFORT
from numpyro_symmetry.discovery.proof.rounding import IN_DOUBLE, IN_SINGLE, SINGLE
from numpyro_symmetry.models import enumeration, trace_model

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)), RNG.normal(size=12)


def normal(name, *shape, scale=1.0):
    return numpyro.sample(name, dist.Normal(0.0, scale).expand(list(shape)).to_event(len(shape)))


def network(activation):
    def model(x, y):
        hidden = activation(x @ normal("w1", 3, 4) + normal("b1", 4))
        numpyro.sample("y", dist.Normal(hidden @ normal("w2", 4), 0.1).to_event(1), obs=y)

    return model


def per_datum(y):
    """A latent value for each datum."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(y)):
        effect = numpyro.sample("effect", dist.Normal(0.0, spread))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)


def assignments(y):
    loc = normal("loc", 3)
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=y)


@pytest.mark.parametrize("checked", [False, True])
def test_data_outside_of_a_support_count_where_the_session_checks_them(checked):
    """NumPyro gives a uniform variable its density everywhere, unless it checks values."""

    def model(y):
        loc = normal("loc", 2)
        numpyro.sample("y", dist.Uniform(loc - 1.0, loc + 2.0).to_event(1), obs=y)

    with numpyro.validation_enabled(checked):
        found = find_symmetry(model, (jnp.array([0.2, -0.5]),))
    assert set(found.groups) == (set() if checked else {"loc"})


def test_parameters_that_only_numpyros_checks_would_refuse_are_read():
    """Weights that do not sum to one, known to NumPy, run where the session checks nothing."""

    def model(y):
        parts = dist.Categorical(probs=np.ones(2)), dist.Normal(normal("loc", 2), 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(*parts).expand([len(y)]).to_event(1), obs=y)

    assert set(find_symmetry(model, (jnp.array([0.2, -0.5]),)).groups) == {"loc"}


def test_what_is_multiplied_by_random_numbers_meets_data():
    def model(key, y):
        kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.5, (3,))
        numpyro.sample("y", dist.Normal((normal("w", 3) * kept).sum(), 1.0), obs=y)

    assert "drawn at random" in find_symmetry(model, (np.array([0, 7], np.uint32), 1.0)).explain()


def test_explain_names_group_reason_and_line():
    def model(x, y):
        w1 = normal("w1", 3, 4)
        w2 = numpyro.sample("w2", dist.Normal(0.0, jnp.array([1.0, 1.0, 1.0, 0.1])).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1).to_event(1), obs=y)

    found = find_symmetry(model, (X, Y), signs=False)
    by_axis = {(f.site, f.axis): f for f in found.findings}
    assert found.orbits == {"w2": (0, 0, 0, 1)}
    assert by_axis["w1", -2].reason == "meets data"
    assert by_axis["w1", -2].source.startswith("test_find_symmetry.py:")
    assert by_axis["w2", -1].group == "S3 'w2'"
    assert "a constant differs along the axis" in by_axis["w2", -1].reason
    assert "w1    -2    3     ·" in found.explain()


def test_what_is_found_passes_the_check_and_says_the_same_again():
    model = network(jnp.tanh)
    found = find_symmetry(model, (X,), {"y": Y})
    assert check_symmetry(model, found, (X, Y)).status == "passed"
    assert found == find_symmetry(model, (X, Y), rng_key=jax.random.key(7))
    with jax.enable_x64(True):
        assert found == find_symmetry(model, (X, Y))


def test_groups_of_a_network_are_named_by_the_shortest_path_to_their_module():
    def network(x, y):
        hidden, shapes = x, {"net/Dense_0": (1, 3), "net/Dense_1": (3, 4), "head/Dense_0": (4, 5), "out": (5, 1)}
        for name, shape in shapes.items():
            kernel = numpyro.sample(f"{name}.kernel", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
            hidden = jax.nn.relu(hidden @ kernel + numpyro.sample(f"{name}.bias", dist.Normal(0.0, 1.0)))
        numpyro.sample("y", dist.Normal(hidden[:, 0], 1.0).to_event(1), obs=y)

    symmetry = find_symmetry(network, (jnp.arange(3.0)[:, None], jnp.arange(3.0)))
    assert set(symmetry.groups) == {"net.Dense_0", "Dense_1", "head.Dense_0"}
    assert symmetry.axes["head/Dense_0.kernel"] == ("Dense_1", "head.Dense_0")
    assert symmetry.axes["net/Dense_1.kernel"] == ("net.Dense_0", "Dense_1")


@pytest.mark.parametrize(
    ("sites", "names"),
    [
        (["net/Dense_0.bias", "net/Dense_1.bias", "component"], ["Dense_0", "Dense_1", "component"]),
        (["t.key.bias[-2]", "t.key.bias[-1]", "t.value.bias"], ["key.bias[-2]", "key.bias[-1]", "value"]),
        (["nn$params.layers.0.bias", "nn$params.layers.1.bias"], ["layers.0", "layers.1"]),
        (["Dense_0", "net.Dense_0.bias"], ["Dense_0", "net.Dense_0"]),
        (["w", "w"], ["w", "w.2"]),
    ],
)
def test_names_are_short_and_differ(sites, names):
    assert short_names([path_of(site) for site in sites]) == names


@pytest.mark.parametrize("subsample_size", [None, 4])
def test_indices_of_a_whole_plate_are_what_they_are(subsample_size):
    """However its size is written: those of a plate without ``subsample_size`` were taken for data."""

    def model(y):
        with numpyro.plate("unit", 4, subsample_size=subsample_size) as k:
            w, v = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in "wv")
        numpyro.sample("y", dist.Normal((w * jnp.tanh(v[k])).sum(), 1.0), obs=y)

    assert str(find_symmetry(model, (jnp.array([0.3, 1.0]),)).groups["unit"]) == "±S4"


def test_groups_are_named_by_their_plate():
    def model(x, y):
        with numpyro.plate("unit", 4):
            v = numpyro.sample("v", dist.Normal(0.0, 1.0))
            with numpyro.plate("input", 3):
                w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w) @ v, 0.1).to_event(1), obs=y)

    assert find_symmetry(model, (X, Y)).axes == {"v": ("unit",), "w": (None, "unit")}


@pytest.mark.parametrize("closed_over", [True, False])
def test_data_that_coincide_create_nothing(closed_over):
    same = np.ones(5)
    found = find_symmetry(lambda: per_datum(same)) if closed_over else find_symmetry(per_datum, (same,))
    assert not found.groups
    assert {f.reason for f in found.findings} == {"meets data"}


@pytest.mark.parametrize(
    ("activation", "kind"), [(jnp.tanh, "signed"), (jax.nn.relu, "permutation"), (jax.nn.gelu, "permutation")]
)
def test_signs_of_odd_activations(activation, kind):
    found = find_symmetry(network(activation), (X, Y))
    assert {group.kind for group in found.groups.values()} == {kind}


def test_signs_leave_alone_what_is_even():
    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
        loadings, scores = normal("loadings", 3, 2), normal("scores", 12, 2)
        numpyro.sample("y", dist.Normal((scores * scale) @ loadings.T, 0.1).to_event(2), obs=y)

    found = find_symmetry(model, (X,))
    assert found.kinds == {"scale": "signed"}
    assert {axis.signed for axis in found.opened("loadings") + found.opened("scores") if axis.group} == {True}
    assert {axis.signed for axis in found.opened("scale")} == {False}


def test_discrete_sites_are_summed_out_or_are_values_like_others(monkeypatch):
    pytest.importorskip("funsor")
    assert find_symmetry(assignments, (Y,)).axes == {"loc": ("loc",)}
    monkeypatch.setattr(enumeration, "find_spec", lambda name: None)
    with pytest.warns(SymmetryWarning, match=r"labels are values of \['z'\] are not found\. .*Install funsor"):
        without = find_symmetry(assignments, (Y,))
    assert not without.groups
    assert {f.reason for f in without.findings if f.site == "loc"} == {"indexed by a value"}


def test_what_numpyro_cannot_sum_out_is_said_to_be_its_own(monkeypatch):
    pytest.importorskip("funsor")
    from numpyro.contrib.funsor import infer_util

    def fails(*args, **kwargs):
        raise TypeError("cannot reshape array of shape (3,)")

    monkeypatch.setattr(infer_util, "log_density", fails)
    given, trace = {"loc": jnp.zeros(3)}, trace_model(assignments, (Y,), {}, jax.random.key(0))
    with pytest.raises(
        SymmetryError, match=r"NumPyro cannot sum out .* \(TypeError: cannot reshape .* forward algorithm"
    ):
        enumeration.enumerated_log_density(assignments, (Y,), {}, given, trace, jax.random.key(0))
    # discrete values are then values like others
    with pytest.warns(SymmetryWarning, match=r"labels are values of \['z'\] are not found\. NumPyro cannot sum out"):
        assert not find_symmetry(assignments, (Y,)).groups


def test_a_device_that_is_out_of_memory_says_so_itself(monkeypatch):
    pytest.importorskip("funsor")
    from numpyro.contrib.funsor import infer_util

    def fails(*args, **kwargs):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(infer_util, "log_density", fails)
    # else the sites would be discrete values, and the symmetry less
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        find_symmetry(assignments, (Y,))


def test_a_branch_beside_discrete_sites_is_said_to_be_numpyros_to_sum_out():
    pytest.importorskip("funsor")

    def model(y):
        up, down = (lambda _, loc=loc: numpyro.sample("x", dist.Normal(loc, 1.0)) for loc in (0.0, 3.0))
        x = cond(y > 0.0, up, down, None)
        z = numpyro.sample("z", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(x + z, 1.0), obs=y)

    y = jnp.array(1.0)
    trace = trace_model(model, (y,), {}, jax.random.key(0))
    with pytest.raises(SymmetryError, match=r"NumPyro cannot sum out .* \(RuntimeError: The cond primitive"):
        enumeration.enumerated_log_density(model, (y,), {}, {"x": y}, trace, jax.random.key(0))


@pytest.mark.parametrize("size", [2, 3])
def test_weights_that_nothing_else_moves_with_are_seen_to_matter(size):
    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
        numpyro.sample("y", dist.Normal((weights**2).sum(), 1.0).expand([len(Y)]).to_event(1), obs=y)

    def lopsided(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
        numpyro.sample("y", dist.Normal(weights[0], 1.0).expand([len(Y)]).to_event(1), obs=y)

    assert find_symmetry(model, (Y,)).sizes == {"weights": size}
    symmetry = Symmetry({"weights": ("component",)})
    assert check_symmetry(model, symmetry, (Y,)).status == "passed"
    with pytest.raises(SymmetryError, match="changes"):
        check_symmetry(lopsided, symmetry, (Y,))


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_contrasts_that_nothing_else_moves_with_are_seen_to_matter(shape):
    def model(y, weights):
        loc = numpyro.sample("loc", dist.ZeroSumNormal(2.0, shape))
        mixture = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(loc.T, 0.7))
        numpyro.sample("y", mixture.expand((4,)).to_event(1), obs=y)

    alike, unlike = ((Y[:4], np.array(weights)) for weights in ([1 / 3] * 3, [0.2, 0.3, 0.5]))
    component = "component", *[None] * (len(shape) - 1)
    assert check_symmetry(model, Symmetry({"loc": component}), alike).status == "passed"
    assert find_symmetry(lambda y: model(y, jnp.ones(3) / 3), alike[:1]).axes == {
        "loc": (f"loc[-{len(shape)}]", *component[1:])
    }
    with pytest.raises(SymmetryError, match="changes"):
        check_symmetry(model, Symmetry({"loc": component}), unlike)


def test_labels_of_two_components_are_no_weight_of_one():
    first, second = np.triu_indices(4, 1)

    def blocks(links):
        chance = numpyro.sample("chance", dist.Beta(1.0, 1.0).expand([2, 2]).to_event(2))
        with numpyro.plate("node", 4):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2))
        with numpyro.plate("pair", 6):
            numpyro.sample("links", dist.Bernoulli(chance[z[first], z[second]]), obs=links)

    # nobody sums these labels out, and 1 - z, which exchanges them, acts on no real number
    with pytest.warns(SymmetryWarning, match=r"labels are values of \['z'\] are not found\. .*labels={'z': 'group'}"):
        assert not find_symmetry(blocks, (jnp.array([0, 1, 1, 0, 0, 1]),)).groups


def test_discrete_sites_beside_groups_that_are_found_are_passed_over(monkeypatch):
    monkeypatch.setattr(enumeration, "find_spec", lambda name: None)

    def model(y):
        far = numpyro.sample("far", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(jnp.abs(normal("loc", 3)).sum(), 1.0 + far), obs=y)

    # a warning would be an error: no axis stays whose labels could be values
    assert set(find_symmetry(model, (jnp.array(1.0),), signs=False).groups) == {"loc"}


def test_a_model_may_look_at_its_data():
    def model(x, y, group):
        offset = normal("offset", int(group.max()) + 1)
        out = jnp.tanh(x @ normal("w1", 3, 4)) @ normal("w2", 4)
        numpyro.sample("y", dist.Normal(out + offset[group], 0.1).to_event(1), obs=y)

    found = find_symmetry(model, (X, 30 * Y, RNG.integers(0, 5, 12)))
    assert found.axes == {"w1": (None, "w2"), "w2": ("w2",)}


def test_numbers_overrule_a_rule_that_lies():
    def model(x, y):
        hidden = jnp.cumsum(jnp.tanh(x @ normal("w1", 3, 4)), axis=1)
        numpyro.sample("y", dist.Normal(hidden @ normal("w2", 4), 0.1).to_event(1), obs=y)

    with pytest.warns(SymmetryWarning, match="'w2' looked possible .* failed the numerical check"):
        found = find_symmetry(model, (X, Y), signs=False, rules={"cumsum": rules.elementwise})
    assert not found.groups
    assert "failed the numerical check" in found.explain()


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_asked_where_a_function_that_is_constant_nearly_everywhere_is_not(seed):
    def model(y):
        w = normal("w", 3)
        total = sum((k + 1) * w[k] for k in range(3))
        numpyro.sample("y", dist.Normal(jnp.tanh(500.0 * total**2), 1.0), obs=y)

    found = find_symmetry(model, (0.3,), rng_key=jax.random.key(seed), signs=False)
    assert not found.groups


def test_groups_that_a_point_does_not_see_are_those_of_which_a_wrong_action_shows_nothing_there(monkeypatch):
    def log_likelihood(w):
        return -0.5 * np.square(np.tanh(3.0 * w.sum(-1) ** 2) - 0.3)

    def model(y):
        w = normal("w", 3)
        numpyro.sample("y", dist.Normal(jnp.tanh(3.0 * sum(w[k] for k in range(3)) ** 2), 1.0), obs=y)

    asked, unseen_somewhere = [], prove._unseen_somewhere

    def watched(evidence, symmetry, known):
        asked.append((evidence.places, unseen_somewhere(evidence, symmetry, known)))
        return asked[-1][1]

    monkeypatch.setattr(prove, "_unseen_somewhere", watched)
    for seed in range(8):
        assert find_symmetry(model, (0.3,), rng_key=jax.random.key(seed), signs=False).groups["w[-1]"].size == 3
    expected = []
    for places, _ in asked:
        w = np.stack([at.values["w"] for at in places])
        copied = np.concatenate([w[:, 2:], w[:, 1:]], 1)
        expected.append((np.abs(log_likelihood(copied) - log_likelihood(w)) > 1.5e-6).tolist())
    assert [unseen for _, unseen in asked] == [[] if all(seen) else ["w[-1]"] for seen in expected]
    # the first of two points alone, or the second, does not tell
    assert {(True, True), (True, False), (False, True)} <= set(map(tuple, expected))


def test_what_all_points_see_is_tried_at_no_others(monkeypatch):
    def units(y):
        numpyro.sample("y", dist.Normal(jnp.tanh(normal("w", 2, 3)).sum(0) @ normal("v", 3), 1.0), obs=y)

    def loop(y):
        w = normal("w", 3)
        numpyro.sample("y", dist.Normal(sum(w[k] ** 3 for k in range(3)), 1.0), obs=y)

    monkeypatch.setattr(prove, "more_points", None)
    assert find_symmetry(units, (0.3,)).groups["v"].signed
    assert find_symmetry(loop, (0.3,)).groups["w[-1]"].size == 3


def test_where_rounding_decides_at_all_others_the_first_points_are_left(monkeypatch):
    def model(y):
        w = normal("w", 3)
        numpyro.sample("y", dist.Normal(jnp.tanh(500.0 * sum(w[k] for k in range(3)) ** 2), 1.0), obs=y)

    asked = []
    monkeypatch.setattr(points, "_exact", lambda frozen, places: asked.append(places) or [])
    assert find_symmetry(model, (0.3,), signs=False).groups["w[-1]"].size == 3
    assert asked


def test_components_that_a_loop_takes_apart_are_found_by_numbers():
    def model(y):
        weights, loc = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3))), normal("loc", 3)
        terms = [jnp.log(weights[k]) + dist.Normal(loc[k], 1.0).log_prob(y) for k in range(3)]
        numpyro.factor("likelihood", jax.nn.logsumexp(jnp.stack(terms), axis=0).sum())

    found = find_symmetry(model, (Y,))
    assert len({entries for entries in found.axes.values()}) == 1
    assert set(found.axes) == {"weights", "loc"}
    assert "verified numerically only" in found.explain()


def test_what_numbers_find_is_called_after_the_site_with_the_fewest_axes():
    def model(y):
        weights, centre = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3))), normal("centre", 3, 2)
        terms = [jnp.log(weights[k]) + dist.Normal(centre[k], 1.0).log_prob(y[:, None]).sum(1) for k in range(3)]
        numpyro.factor("likelihood", jax.nn.logsumexp(jnp.stack(terms), axis=0).sum())

    assert find_symmetry(model, (Y,)).axes["weights"] == ("weights[-1]",)


def test_an_operation_without_a_rule_is_no_end():
    found = find_symmetry(network(jnp.tanh), (X, Y), signs=False, rules={"tanh": rules.unknown})
    assert [str(group) for group in found.groups.values()] == ["S4"]


def test_log_joint_that_is_nowhere_finite():
    with pytest.raises(SymmetryError, match="not finite at points about the prior"):
        find_symmetry(network(jnp.tanh), (X, np.full(12, np.nan)))


def test_parameters_count_as_sites():
    def model(x, y):
        weights = numpyro.param("net", {"w1": jnp.zeros((3, 4)), "w2": jnp.zeros(4)})
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ weights["w1"]) @ weights["w2"], 0.1).to_event(1), obs=y)

    found = find_symmetry(model, (X, Y))
    assert found.axes == {"net.w1": (None, "net"), "net.w2": ("net",)}
    assert all(finding.is_parameter for finding in found.findings)
    assert "net.w2 (param)  -1    4     ±S4 'net'" in found.explain()
    assert "'net.w1', 'net.w2': of numpyro.param. Groups ['net'] move parameters alone" in found.explain()
    assert "'net.w1', 'net.w2': of numpyro.param. Groups that move these are left out" in found.restrict([]).explain()


def test_parameters_that_no_group_moves_are_not_remarked_on():
    def model(x, y):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([3, 4]).to_event(2))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        slope = numpyro.param("slope", jnp.zeros(3))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2 + x @ slope, 0.1).to_event(1), obs=y)

    found = find_symmetry(model, (X, Y))
    assert "slope (param)" in found.explain()
    assert "of numpyro.param" not in found.explain()


def test_latent_sites_are_told_from_parameters():
    def principal_components(y):
        weights = numpyro.param("W", jnp.ones((2, 3)))
        with numpyro.plate("data", len(y)):
            scores = numpyro.sample("scores", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
            numpyro.sample("y", dist.Normal(scores @ weights, 1.0).to_event(1), obs=y)

    draws = {"scores": RNG.normal(size=(2, 200, 12, 2))}
    with pytest.raises(SymmetryError, match="(?s)found but for one that moves parameters.*'W': of.*together"):
        rebase(draws, model=principal_components, model_args=(X,))
    found = find_symmetry(principal_components, (X,))
    assert not without_parameters(found).groups
    assert {finding.site: finding.is_parameter for finding in found.findings} == {"W": True, "scores": False}
    assert "(param)" not in find_symmetry(network(jnp.tanh), (X, Y)).explain()


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda w, v: jnp.tanh(w).sum(0) @ v, [(3, 4), (4,)], [[True, True], [True]]),
        (lambda w, v: (w[:, ::-1] * v).sum(), [(3, 4), (4,)], [[True, False], [False]]),
        (lambda w, v: (w[0] * v).sum(), [(3, 4), (4,)], [[None, True], [True]]),
        (lambda w, v: jnp.cumsum(v).max() + w.sum(), [(3, 4), (4,)], [[True, True], [False]]),
        (lambda w, v: jnp.sort(v)[0] + w.sum(), [(3, 4), (4,)], [[True, True], [True]]),
        (lambda w, v: jnp.argmax(v) + w.sum(), [(3, 4), (4,)], [[True, True], [False]]),
        (lambda w, v: (w * jnp.arange(4.0)).sum() + v.sum(), [(3, 4), (4,)], [[True, False], [True]]),
        (lambda w, v: (jnp.tril(w @ w.T)).sum() + v.sum(), [(3, 4), (4,)], [[False, True], [True]]),
    ],
    ids=["sums", "reversed", "one row", "running sum", "sorted", "argmax", "counted", "triangle"],
)
def test_what_pins_and_what_does_not(function, shapes, expected):
    jaxpr = jax.make_jaxpr(function)(*map(np.ones, shapes))
    terms = [[axis(n) for n in shape] for shape in shapes]
    Walk(rules.RULES).run_closed(jaxpr, [Typed(tuple(axes)) for axes in terms])
    free = [
        [None if len(atoms_of(t)) != 1 or atoms_of(t)[0].size != t.size else not atoms_of(t)[0].is_pinned for t in axes]
        for axes in terms
    ]
    assert free == expected


def test_a_rule_takes_a_line():
    squash = core.Primitive("squash")
    squash.def_abstract_eval(lambda x: x)
    jaxpr = jax.make_jaxpr(lambda w: squash.bind(w).sum())(np.ones(4))
    for table, pins in ((rules.RULES, True), ({**rules.RULES, "squash": rules.elementwise}, False)):
        term = axis(4)
        Walk(table).run_closed(jaxpr, [Typed((term,))])
        assert atoms_of(term)[0].is_pinned == pins


def test_data_pin_what_they_meet_and_say_so():
    data, weights = pinned(4, Reason(IS_DATA, strength="data")), axis(4)
    jaxpr = jax.make_jaxpr(lambda x, w: (x * w).sum())(np.ones(4), np.ones(4))
    Walk(rules.RULES).run_closed(jaxpr, [Typed((data,)), Typed((weights,))])
    (atom,) = atoms_of(weights)
    assert atom.is_pinned
    assert atom.reasons[0].text == "meets data"


FLAT, CURVED = dist.Dirichlet(jnp.ones(5)), dist.Dirichlet(jnp.full(5, 2.0))


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (FLAT, "S5"),
        (CURVED, "S5"),
        (dist.Uniform(0.0, 1.0).expand([5]).to_event(1), "S5"),
        (dist.Normal(jnp.zeros(5), 1.0), "±S5"),
        (dist.Normal(jnp.zeros(5), 1.0).to_event(1), "±S5"),
        (dist.Dirichlet(jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])), ""),
    ],
)
def test_a_site_that_only_its_prior_reads_has_the_symmetry_of_its_prior(prior, expected, recwarn):
    def model(y):
        numpyro.sample("unread", prior)
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(loc.sum(), 1.0), obs=y)

    found = find_symmetry(model, (jnp.array(1.0),))
    by_site = {finding.site: finding for finding in found.findings}
    assert by_site["unread"].group.partition(" ")[0] == expected
    assert ("nothing but its prior reads it" in by_site["unread"].reason) == bool(expected)
    assert by_site["loc"].reason == ""
    assert not recwarn.list


def test_a_flat_prior_hides_no_support_that_differs():
    def model():
        numpyro.sample("u", dist.Uniform(0.0, jnp.array([1.0, 1.0, 3.0])).to_event(1))

    with pytest.raises(SymmetryError, match="leaves its support"):
        check_symmetry(model, Symmetry({"u": ("unit",)}))


def test_a_flat_site_that_something_reads_is_not_taken_on_trust():
    def model(y):
        weights = numpyro.sample("weights", FLAT)
        # so little that no wrong action can be told from a right one
        numpyro.sample("y", dist.Normal(1e-30 * weights[0], 1.0), obs=y)

    verdict = check_symmetry(model, Symmetry({"weights": ("unit",)}), (jnp.array(1.0),))
    assert verdict.status == "inconclusive"


def amplified(*factors, steps=60, spread=4.0):
    """Seven numbers whose sum is iterated: where the slope is steep, each step amplifies rounding."""

    def model(y):
        total = (jnp.asarray(factors) * jnp.sin(normal("w", len(factors)))).sum()
        slope = numpyro.sample("slope", dist.Normal(0.0, spread))
        for _ in range(steps):
            total = jnp.sin(slope * total)
        numpyro.sample("y", dist.Normal(total, 1e-3), obs=y)

    return model


def layers(y, broken):
    """A layer before five hundred residual ones, which about the prior amplify how it rounds; nearer they do not."""
    stream = jnp.ones((2, 5)) * jnp.arange(1.0, 3.0)[:, None] @ normal("read", 5, 5)
    shapes = {"up": (5, 3), "down": (3, 5)}
    inner, after = (
        {site: normal(f"{site}_{where}", *batch, *shape, scale=1.0) for site, shape in shapes.items()}
        for where, batch in (("inner", ()), ("after", (500,)))
    )
    stream, _ = residual(stream, inner, jnp.ones(3) + broken * jnp.arange(3))
    stream = jax.lax.scan(residual, stream, after)[0]
    numpyro.sample("y", dist.Normal(stream.sum(1), 1e-3).to_event(1), obs=y)


def residual(stream, layer, weights=1.0):
    return stream + weights * jnp.tanh(stream @ layer["up"]) @ layer["down"], None


UNITS = Symmetry({"w": ("unit",)})
INNER = Symmetry.mlp([("up_inner", None), ("down_inner", None)])


@pytest.mark.parametrize("seed", range(3))
def test_where_rounding_decides_points_are_nearer(seed):
    """And what holds is proved there, what does not is refused."""
    given, key = (np.array([0.3, 0.2]),), jax.random.key(seed)
    assert check_symmetry(lambda y: layers(y, 0.0), INNER, given, rng_key=key).status == "passed"
    with pytest.raises(SymmetryError, match="not invariant"):
        check_symmetry(lambda y: layers(y, 1e-3), INNER, given, rng_key=key)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("steps", [60, 200])
@pytest.mark.parametrize("last", [1.5, 2.0])
def test_where_points_are_nearer_a_likelihood_that_is_blind_there_proves_nothing(seed, steps, last):
    given, key = (np.float32(0.3),), jax.random.key(seed)
    try:
        status = check_symmetry(amplified(*[1.0] * 6, last, steps=steps), UNITS, given, rng_key=key).status
    except SymmetryError:
        status = "refused"
    assert status in ("refused", "inconclusive")


def test_where_nothing_is_nearer_points_are_what_there_is():
    def model(y):
        w = normal("w", 4)
        numpyro.factor("range", jnp.where(jnp.abs(w).min() > 0.5, 0.0, -jnp.inf))
        numpyro.sample("y", dist.Normal(w.sum(), 1e-6), obs=y)

    for seed in range(3):
        verdict = check_symmetry(model, UNITS, (np.float32(0.3),), rng_key=jax.random.key(seed))
        assert verdict.status == "passed"


# ---- what numbers may take the place of, and what is not looked for --------------------------------------------------


def seen(mean):
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=0.7)


def cut_twice(rows, columns):
    """A matrix cut into four, of which units of rows have their own columns, and the sign of the upper half."""
    w = normal("w", 2 * rows, 2 * columns)
    upper = w[:rows, :columns] + jnp.tanh(w[:rows, columns:])
    lower = w[rows:, :columns] + w[rows:, columns:] ** 2
    seen((upper.sum(1) ** 2 * jnp.exp(lower.sum(1))).sum())


def cut_once(rest):
    """A vector cut into two halves of units, and a rest of which any two numbers may be exchanged."""
    w = normal("w", 6 + rest)
    seen((jnp.tanh(w[:3]) * jnp.exp(w[3:6])).sum() + (w[6:] ** 3).sum())


def cells(rows, columns):
    return rows * math.log(2) + math.lgamma(rows + 1) + rows * math.lgamma(columns + 1)


@pytest.mark.parametrize(
    ("model", "args", "log_order"),
    [(cut_twice, sizes, cells(*sizes)) for sizes in [(2, 2), (3, 2), (2, 3), (4, 2)]]
    + [(cut_once, (rest,), math.log(6) + math.lgamma(rest + 1)) for rest in (1, 2, 3)],
)
def test_what_numbers_find_takes_no_group_from_under_others_and_the_place_of_no_larger_one(model, args, log_order):
    found = find_symmetry(model, args)
    assert found.log_order() == pytest.approx(log_order)
    assert check_symmetry(model, found, args).status == "passed"


def of_own_scale():
    w = numpyro.sample("w", dist.Normal(0.0, jnp.array([1.0, 2.0, 3.0])).to_event(1))
    seen((w**2).sum())


def of_own_sites(count):
    def model():
        seen(sum(jnp.tanh(normal(f"a_{k}")) for k in range(count)))

    return model


def three_families():
    a, b, c = (jnp.stack([normal(f"{name}_{k}") for k in range(2)]) for name in "abc")
    seen((a * jnp.exp(b)).sum() + c @ jnp.array([1.0, 2.0]))


def by_log_odds():
    odds, mu = normal("odds"), [jnp.tanh(normal(f"mu_{k}")) for k in range(2)]
    seen(jax.nn.sigmoid(odds) * mu[0] + jax.nn.sigmoid(-odds) * mu[1] + jnp.sin(normal("a") + jnp.exp(normal("b"))))


def on_both_sides():
    w, u = normal("w", 3, 3), normal("u", 3)
    seen(u @ w @ u)


def on_three_sides():
    w, u = normal("w", 3, 3, 3), normal("u", 3)
    seen(jnp.einsum("ijk,i,j,k", w, u, u, u))


def even_as_wholes():
    seen((normal("a", 3) @ normal("b", 3, scale=2.0)) ** 2)


def in_a_loop():
    w = normal("w", 4)
    seen(jax.lax.fori_loop(0, 2, lambda k, total: total + w[2 * k] * w[2 * k + 1], 0.0))


def reversed_alike(count, weights=(1.0, 1.0, 1.0)):
    """Axes that the program does not know to be one."""

    def model():
        w = jnp.stack([normal(f"w_{name}", 3)[::-1] + k for k, name in enumerate("abcdefghi"[:count])])
        seen(jnp.prod(w, 0) @ jnp.array(weights))

    return model


# a limit, the least at which all is found, and of what
LIMITS = [
    ("max_lone", 3, of_own_scale),
    ("max_family", 3, of_own_sites(3)),
    ("max_family", 3, by_log_odds),
    ("max_exchanges", 1, of_own_sites(2)),
    ("max_parts", 3, three_families),
    ("max_places", 1, on_both_sides),
    ("max_places", 2, on_three_sides),
    ("max_signs", 2, on_both_sides),
    ("max_sets", 2, even_as_wholes),
    ("max_orbits", 4, in_a_loop),
    ("max_blocks_in_part", 2, reversed_alike(2, (1.0, 2.0, 1.0))),
]


@pytest.mark.parametrize(("limit", "least", "model"), LIMITS)
def test_what_lies_beyond_a_limit_is_not_looked_for(monkeypatch, limit, least, model):
    whole = find_symmetry(model).log_order()

    def found_at(most):
        for module in (exchange, find, propose, signs):
            monkeypatch.setattr(module, "EFFORT", EFFORT._replace(**{limit: most}))
        return find_symmetry(model).log_order()

    assert found_at(least) == pytest.approx(whole)
    assert found_at(least - 1) < whole


def test_of_more_axes_than_are_searched_those_of_a_loop_are_one():
    """Of nine that the program does not know to be one, nothing is proposed; those that one counter reads, it knows."""

    def counted(read):
        def model():
            w = [normal(f"w_{name}", 3) for name in "abcdefghi"]

            def term(k):
                return jnp.prod(jnp.stack([read(x, k) + j for j, x in enumerate(w)]))

            seen(jax.lax.fori_loop(0, 3, lambda k, total: total + term(k), 0.0))

        return model

    assert find_symmetry(reversed_alike(8), signs=False).log_order() == pytest.approx(math.log(6))
    assert not find_symmetry(reversed_alike(9), signs=False).groups
    for read in (lambda x, k: x[k], lambda x, k: jnp.take(x, k)):
        assert find_symmetry(counted(read), signs=False).log_order() == pytest.approx(math.log(6))


# what the page on finding symmetry says of limits
TOLD = {
    "Sizes with more than {} candidates are not searched": reading._MAX_BLOCKS,
    "(with more than {}, not for groups of some of the indices)": EFFORT.max_blocks_in_part,
    "on axes of up to {} indices along which no data": EFFORT.max_lone,
    "up to {} sites of real numbers beside": EFFORT.max_family,
    "At most {} sites of a kind are looked at": EFFORT.max_family,
    "exchanges of more than {} parts only as a whole": EFFORT.max_parts,
}


def test_limits_are_those_that_the_page_tells():
    page = " ".join((Path(__file__).parents[2] / "docs" / "finding.md").read_text().split())
    words = {5: "five", 6: "six", 8: "eight", 12: "twelve"}
    assert not [said for said, most in TOLD.items() if said.format(words.get(most, most)) not in page]


@pytest.mark.parametrize("place", range(3))
def test_a_number_with_a_datum_of_its_own_stays_and_others_are_exchanged(place):
    """What indices met their data on their own is of another kind than the others, wherever it stands."""

    def model(y):
        w = jnp.split(normal("w", 3), 3)
        own = w.pop(place)
        numpyro.sample("own", dist.Normal(own[0], 1.0), obs=y[0])
        numpyro.sample("rest", dist.Normal(sum(x[0] ** 3 for x in w), 1.0), obs=y[1])

    found = find_symmetry(model, (np.array([0.3, 0.4]),))
    (orbits,) = found.orbits.values()
    assert [k for k in range(3) if orbits.count(orbits[k]) == 1] == [place]


@pytest.mark.parametrize(
    ("slope", "in_single", "least", "most"),
    [
        (1.0, False, IN_DOUBLE.relative, IN_DOUBLE.relative),
        (1e3, False, IN_DOUBLE.relative, IN_DOUBLE.relative),
        (1.0, True, SINGLE, 0.5 * IN_SINGLE.relative),
        (1e3, True, IN_SINGLE.relative, IN_SINGLE.relative),
    ],
)
def test_on_other_data_single_precision_may_move_what_rounding_was_seen_to(monkeypatch, slope, in_single, least, most):
    """Of a smooth model less than is allowed to all, of a steep one as much, and in double precision what it was."""

    def model(y):
        mean = normal("v", 3) @ jnp.tanh(normal("w", 3))
        mean = mean.astype(jnp.float32) if in_single else mean
        numpyro.sample("y", dist.Normal(jnp.sin(slope * mean), 1.0).expand([2]).to_event(1), obs=y)

    seen, measured = [], sources.measured
    monkeypatch.setattr(sources, "measured", lambda evidence: seen.append(measured(evidence)) or seen[-1])
    assert find_symmetry(model, (np.array([0.1, 0.2]),)).groups["v"].signed
    assert seen
    assert all(least <= evidence.frozen.rounding.relative <= most for evidence in seen)


@pytest.mark.parametrize("held", [True, False])
def test_a_term_whose_square_is_beyond_the_largest_number_hides_nothing_where_it_stays(held):
    """One of 1e217 nats: NumPy's norm of it is infinite, with a warning, which is an error here."""

    def model():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        loc = numpyro.sample("loc", dist.Normal(jnp.array([0.0, 0.0, 1.0]), 1.0).to_event(1))
        numpyro.factor("far", -jnp.exp(500.0) * (scale if held else scale + (loc**2).sum()))

    with jax.enable_x64(True):
        found = find_symmetry(model)
    assert found.groups["loc"].orbits == (0, 0, 1)
    assert found.log_order() == pytest.approx(math.log(2))
