"""What `find_symmetry` and `check_symmetry` refuse, and whether the words name what came and what to write instead."""

import concurrent.futures
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import (
    AutoSymmetrized,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    check_symmetry,
    find_symmetry,
    log_evidence,
    rebase,
)

Y = np.array([-1.0, 0.5, 2.0])
LOC = Symmetry.mixture("loc")
POSITIONS = {"loc": np.random.default_rng(0).normal(size=(4, 10, 3))}


def mixture(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    weights = dist.Categorical(jnp.ones(2) / 2)
    numpyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(loc, 1.0)).expand([len(y)]).to_event(1), obs=y)


def log_density(position):
    return -0.5 * (position["loc"] ** 2).sum() - position["loc"].prod() ** 2


@pytest.mark.parametrize("read", [len, lambda y: y.shape[0], lambda y: jnp.sum(y[0])])
def test_an_error_of_a_model_without_its_data_says_what_was_left_out(read):
    def model(y=None, scale=1.0):
        read(y)
        mixture(y)

    with pytest.raises((TypeError, AttributeError)) as caught:
        find_symmetry(model)
    assert any("called without ['y']" in note and "model_args" in note for note in caught.value.__notes__)
    assert find_symmetry(model, (Y,)).groups
    with pytest.raises(AttributeError) as caught:
        find_symmetry(lambda y=None: y.nothing, (Y,))
    assert not any("called without" in note for note in getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize(("given", "kwargs"), [((Y,), None), ((Y, None), None), ((Y,), {"y": None})])
def test_a_model_that_observes_nothing_because_data_were_left_out_is_told(given, kwargs):
    """Its data were drawn, and taken for latent."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x[:, None] * w).sum(-1), 1.0).to_event(1), obs=y)

    with pytest.warns(SymmetryWarning, match=r"observes nothing: .* without \['y'\], .*\['w', 'y'\] are latent"):
        find_symmetry(model, given, kwargs)
    assert find_symmetry(model, (Y, Y)).groups
    assert find_symmetry(model, (Y,), {"y": Y}).groups


def test_a_model_without_data_on_purpose_is_not_told_of():
    def model(scale=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.factor("penalty", -jnp.square(w).sum())

    assert find_symmetry(model).groups
    assert find_symmetry(lambda: model() or None).groups


def test_draws_of_another_size_than_the_model_are_told():
    with pytest.raises(SymmetryError, match="has size 3, but group 'loc' has size 2 .* for values of other sizes"):
        rebase(POSITIONS, model=mixture, model_args=(Y,))


@pytest.mark.parametrize("options", [{}, {"scale": 2.0}])
def test_the_model_to_write_of_a_log_density_is_one(options):
    """Taken out of the message and run, with what follows the values."""

    def density(position, y, scale=1.0):
        return -0.5 * ((position["loc"] - y) ** 2).sum() / scale

    with pytest.raises(SymmetryError, match="samples no latent sites") as caught:
        find_symmetry(density, ({"loc": np.zeros(3)}, Y), options)
    written = {"numpyro": numpyro, "dist": dist, "density": density}
    assert "Its model_args are those behind the first." in str(caught.value)
    code = str(caught.value).split("\n\n")[1]
    exec("\n".join(line.removeprefix("    ") for line in code.splitlines()), written)
    assert check_symmetry(written["model"], LOC, (np.zeros(3),), options).status == "passed"
    with pytest.raises(SymmetryError, match="not invariant"):
        check_symmetry(written["model"], LOC, (Y,), options)


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ("loc", '{"loc": loc}'),
        ("a-b", '{"x": x}'),  # what Python cannot call by its name
        ("abc", '{"a": a, "b": b, "c": c}'),
        ("abcd", '{"a": a, "b": b, "c": c, ...}'),
    ],
)
def test_the_model_to_write_calls_what_it_can_by_its_name(sites, said):
    values = {site: np.zeros(3) for site in ([sites] if sites in ("loc", "a-b") else sites)}
    with pytest.raises(SymmetryError, match=re.escape(said)) as caught:
        find_symmetry(lambda position: -sum(x.sum() for x in position.values()), (values,))
    assert 'numpyro.factor("log_density", log_density({' in str(caught.value)
    assert (", ..." in str(caught.value)) == (len(values) > 3)


def network(params, x):
    return jnp.tanh(x @ params["w1"]) @ params["w2"]


@pytest.mark.parametrize("args", [(), (Y,)])
def test_of_a_call_without_any_arguments_a_function_is_suspected(args):
    with pytest.raises(TypeError, match=r"network\(params, x\) does not fit its arguments: missing") as caught:
        find_symmetry(network, args)
    assert ("say so by argnum=0" in str(caught.value)) == (not args)


def branching(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    scale = 1.0 if loc[0] > 0 else 2.0
    numpyro.sample("y", dist.Normal(loc.sum(), scale).expand([3]).to_event(1), obs=y)


def scale_of(first):
    return 1.0 if first > 0 else 3.0


def branching_inside(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(loc.sum(), scale_of(loc[0])).expand([3]).to_event(1), obs=y)


def leaving_jax(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(np.asarray(loc).sum(), 1.0).expand([3]).to_event(1), obs=y)


def find(model, *args, **options):
    return find_symmetry(model, *args, **options)


def check(model, *args, **options):
    return check_symmetry(model, LOC, *args, **options)


BAD = {
    "a log density": (log_density, [({"loc": jnp.zeros(3)},)], {}, SymmetryError, r'no latent sites.*"loc".*\(3,\)'),
    "an identity": (lambda p: p, [(1.0,)], {}, SymmetryError, "no latent sites.*numpyro.factor"),
    "a network": (network, [({"w1": np.ones((2, 3)), "w2": np.ones(3)}, np.ones((4, 2)))], {}, SymmetryError, "prior"),
    "a lambda, of no name": (lambda p: 0.0, [({"a": np.ones(3)},)], {}, SymmetryError, r'"log_density", log_density\('),
    "nothing": (lambda: None, [], {}, SymmetryError, "no latent sites"),
    "only data": (
        lambda y: numpyro.sample("y", dist.Normal(0, 1), obs=y),
        [(Y,)],
        {},
        SymmetryError,
        "no latent sites.*sites that are not observed",
    ),
    "too few arguments": (mixture, [], {}, TypeError, r"mixture\(y\).*'y'.*model_args"),
    "too many": (mixture, [(Y, Y)], {}, TypeError, r"mixture\(y\).*too many.*got 2 from model_args"),
    "too many for a lambda": (lambda y: mixture(y), [(Y, Y)], {}, TypeError, r"model <lambda>\(y\).*too many"),
    "another keyword": (mixture, [(Y,), {"x": 1}], {}, TypeError, r"'x'.*model_kwargs"),
    "an array": (mixture, [Y], {}, TypeError, r"model_args.*write \(y,\)"),
    "no mapping": (mixture, [(Y,), [1]], {}, TypeError, "model_kwargs must be a mapping"),
    "None": (None, [(Y,)], {}, TypeError, "model must be a NumPyro model.*None"),
    "a string": ("mixture", [(Y,)], {}, TypeError, "model must be a NumPyro model.*'mixture'"),
    "a class": (AutoNormal, [(Y,)], {}, TypeError, "model must be a NumPyro model.*class AutoNormal"),
    "a guide": (AutoNormal(mixture), [(Y,)], {}, TypeError, "guide, AutoNormal: pass the guide's model"),
    "an integer key": (mixture, [(Y,)], {"rng_key": 0}, TypeError, r"rng_key.*jax.random.key\(0\).*got 0"),
    "a Flax module": (nn.Dense(2), [(Y,)], {}, TypeError, r"A Dense is no function of its parameters: pass its apply"),
    "a masked array": (
        mixture,
        [(np.ma.masked_array(Y, [0, 0, 1]),)],
        {},
        SymmetryError,
        r"model_args\[0\].*1 of 3.*filled",
    ),
    "a branch": (branching, [(Y,)], {}, SymmetryError, r"test_discovery_input.py:\d+, `scale = 1.0.*jnp.where"),
    "a branch inside": (branching_inside, [(Y,)], {}, SymmetryError, r"`return 1.0 if first > 0 else 3.0`"),
    "too few for a callable of C": (
        max,
        [],
        {},
        TypeError,
        r"max\(\.\.\.\).*got 0. It got 0 from model_args.*argnum=0",
    ),
    "too few for a handled model": (numpyro.handlers.block(mixture), [], {}, TypeError, r"mixture\(y\).*'y'"),
    "a name that is none": (lambda p: 0.0, [({"a b": jnp.zeros(3)},)], {}, SymmetryError, r'    x = .*"x".*\(3,\)'),
    "NumPy": (leaving_jax, [(Y,)], {}, SymmetryError, r"test_discovery_input.py:\d+, .*np.asarray\(loc\).*jnp for np"),
}


@pytest.mark.parametrize("ask", [find, check])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_with_its_remedy(name, ask):
    model, args, options, kind, words = BAD[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        ask(model, *args, **options)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"num_points": 0}, ValueError, "num_points must be at least 1; got 0"),
        ({"num_points": 5.5}, TypeError, "num_points must be a whole number; got 5.5"),
        ({"num_elements": -1}, ValueError, "num_elements must be at least 0"),
    ],
)
def test_numbers_of_a_check(options, kind, words):
    with pytest.raises(kind, match=words):
        check_symmetry(mixture, LOC, (Y,), **options)


def test_a_symmetry_and_signs_of_another_type():
    with pytest.raises(TypeError, match="symmetry must be a Symmetry.*got NoneType"):
        check_symmetry(mixture, None, (Y,))  # pyright: ignore
    with pytest.raises(TypeError, match="signs must be True or False"):
        find_symmetry(mixture, (Y,), signs="yes")  # pyright: ignore


@pytest.mark.parametrize("ask", [find, check])
def test_jit_is_refused(ask):
    with pytest.raises(TypeError, match="cannot run under jit"):
        jax.jit(lambda y: ask(mixture, (y,)) and 0)(Y)
    with pytest.raises(TypeError, match="cannot run under jit"):
        jax.jit(lambda: ask(mixture, (Y,)) and 0)()


def test_what_the_model_says_is_the_cause():
    with pytest.raises(SymmetryError) as refused:
        find_symmetry(branching, (Y,))
    assert isinstance(refused.value.__cause__, jax.errors.TracerBoolConversionError)


def test_an_error_of_type_inside_of_the_model_stays_what_it_is():
    def model(y):
        numpyro.sample("loc", dist.Normal(0.0, 1.0))
        raise TypeError("the user's own")

    with pytest.raises(TypeError) as refused:
        find_symmetry(model, (Y,))
    assert str(refused.value) == "the user's own"


def test_every_way_in_tells_of_a_log_density():
    with pytest.raises(SymmetryError, match="no latent sites"):
        rebase(POSITIONS, model=log_density, model_args=({"loc": jnp.zeros(3)},))
    with pytest.raises(SymmetryError, match="no latent sites"):
        rebase(POSITIONS, LOC, model=log_density, model_args=({"loc": jnp.zeros(3)},))
    with pytest.raises(SymmetryError, match="no latent sites"):
        log_evidence(POSITIONS, log_density, ({"loc": jnp.zeros(3)},))
    with pytest.raises(TypeError, match=r"log_density\(position\).*model_args"):
        rebase(POSITIONS, model=log_density)
    with pytest.raises(TypeError, match=r"log_density\(position\).*model_args"):
        log_evidence(POSITIONS, log_density)

    def base(position):
        numpyro.sample("loc", dist.Normal(jnp.zeros(3), 1.0).to_event(1))

    with pytest.raises(SymmetryError, match="no latent sites"):
        AutoSymmetrized(base, model=log_density).setup(jax.random.key(0), {"loc": jnp.zeros(3)})


def test_the_model_that_the_error_writes_works():
    with pytest.raises(SymmetryError) as refused:
        find_symmetry(log_density, ({"loc": jnp.zeros(3)},))
    # the message in three parts: why, the model, and a remark
    _, written, _ = str(refused.value).split("\n\n")
    names = {"numpyro": numpyro, "dist": dist, "log_density": log_density}
    exec("\n".join(line[4:] for line in written.splitlines()), names)
    model = names["model"]
    assert callable(model)
    assert [str(group) for group in find_symmetry(model).groups.values()] == ["±S3"]


def test_a_log_joint_that_is_nan_almost_everywhere_is_no_error():
    def scales(size):
        def model(y):
            loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
            scale = numpyro.sample("scale", dist.Normal(0.0, 1.0).expand([size]).to_event(1))
            weights = dist.Categorical(jnp.ones(size) / size)
            numpyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(loc, scale)), obs=y)

        return model

    assert [str(group) for group in find_symmetry(scales(4), (0.3,)).groups.values()] == ["S4"]
    with pytest.warns(SymmetryWarning, match="No symmetry could be verified.*site 'y'"):
        found = find_symmetry(scales(30), (0.3,))
    assert not found.groups
    assert {f.reason for f in found.findings} == {"the log joint is not finite about the prior"}


@pytest.mark.filterwarnings("ignore:Out-of-support")
def test_nan_that_a_model_closes_over_is_an_error():
    with pytest.raises(SymmetryError, match="NaN in the data"):
        find_symmetry(lambda: mixture(np.array([0.0, np.nan])))


def test_several_threads_may_ask():
    def other(y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3, 4]).to_event(2))
        numpyro.sample("y", dist.Normal(jnp.tanh(w).sum(), 1.0), obs=y)

    def ask(k):
        if k % 2:
            return find_symmetry(other, (0.5,)).log_order()
        return check_symmetry(mixture, LOC, (Y,)).status

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert answers[::2] == ["passed", "passed"]
    assert answers[1] == answers[3] == pytest.approx(np.log(6**4 * 24), abs=1e-3)
