"""One guide, and other arguments of its model than those it was set up with: a symmetry that they break is refused."""

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy import sparse
from scipy.stats import multivariate_normal

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, UnsupportedGuideError, log_evidence
from numpyro_symmetry.guides.symmetrized import proved

KEY = jax.random.key(0)
Y = jnp.array([0.5, 1.0, 0.3])


def model(y, scales=(1.0, 1.0), *, ordered=False, noise=1.0):
    loc = numpyro.sample("loc", dist.Normal(0.0, jnp.asarray(scales)).to_event(1))
    if ordered:
        numpyro.factor("order", jnp.where(loc[0] < loc[1], 0.0, -100.0))
    numpyro.sample("y", dist.Normal(loc.sum(), noise).expand(jnp.shape(Y)).to_event(1), obs=y)


def log_z(scales):
    return multivariate_normal(np.zeros(3), np.eye(3) + np.square(scales).sum()).logpdf(np.asarray(Y))


def ready(symmetry=None, **options):
    guide = AutoSymmetrized(AutoNormal(model), symmetry, progress_bar=False, **options)
    params = SVI(model, guide, optax.adam(0.05), Trace_ELBO()).run(KEY, 3, Y, progress_bar=False).params
    return guide, params


def evidence(guide, params, *args, **kwargs):
    return log_evidence((guide, params), model_args=args, model_kwargs=kwargs, progress_bar=False)


def bounds(guide, params, *args, **kwargs):
    return guide.elbo_bounds(KEY, params, *args, num_particles=64, progress_bar=False, **kwargs)


def trained(guide, params, *args, **kwargs):
    return SVI(model, guide, optax.adam(0.05), Trace_ELBO()).init(KEY, *args, **kwargs)


CALLS = {"elbo_bounds": bounds, "log_evidence": evidence, "SVI.init": trained}
SYMMETRIES = {"found": None, "given": Symmetry({"loc": ("component",)})}
BROKEN = {
    "numbers": ((), {"scales": (0.01, 1.0)}, r"scales\[0\]"),
    "by place": (((0.01, 1.0),), {}, r"scales\[0\]"),
    "a flag": ((), {"ordered": True}, "ordered"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("symmetry", SYMMETRIES)
@pytest.mark.parametrize("what", BROKEN)
def test_a_symmetry_that_other_arguments_break_is_refused(call, symmetry, what):
    guide, params = ready(SYMMETRIES[symmetry])
    args, kwargs, named = BROKEN[what]
    for _ in range(2):  # nothing is taken for proved by having been asked once
        with pytest.raises(SymmetryError, match=rf"does not hold .* differ in {named} from .* a guide anew"):
            CALLS[call](guide, params, Y, *args, **kwargs)
    assert np.isfinite(bounds(guide, params, Y).lower)


def test_arrays_break_a_symmetry_that_was_given():
    guide = AutoSymmetrized(AutoNormal(model), SYMMETRIES["given"], progress_bar=False).setup(KEY, Y, jnp.ones(2))
    params = {"loc_auto_loc": jnp.zeros(2), "loc_auto_scale": jnp.ones(2)}
    assert bounds(guide, params, Y, jnp.ones(2)).lower < log_z([1.0, 1.0])
    for call in (bounds, evidence):
        with pytest.raises(SymmetryError, match="differ in scales from"):
            call(guide, params, Y, jnp.array([0.01, 1.0]))
    # what is not checked is taken on trust
    trusting = AutoSymmetrized(AutoNormal(model), SYMMETRIES["given"], check=False, progress_bar=False)
    assert np.isfinite(bounds(trusting.setup(KEY, Y, jnp.ones(2)), params, Y, jnp.array([0.01, 1.0])).lower)


class Settings:
    """An object that is changed in place."""

    def __init__(self, scales):
        self.scales = scales


def by_settings(y, settings=None, *, names=None, scales=None, data=None):
    """Scales that come in other ways than as numbers."""
    given = settings.scales if settings is not None else (1.0, 1.0) if scales is None else scales
    if names is not None:
        given = [{"a": 1.0, "b": 0.01}[str(name)] for name in names]
    given = (data or {}).get("scales", given)
    model(y, jnp.asarray(given))


PRESENT, CHANGED = Settings((1.0, 1.0)), jnp.array([0.01, 1.0])
OTHERWISE = {
    "an array where there was none": ({}, {"scales": CHANGED}, "scales"),
    "an entry where there was none": ({"data": {"y": Y}}, {"data": {"y": Y, "scales": CHANGED}}, r"data\['scales'\]"),
    "names": ({"names": np.array(["a", "a"])}, {"names": np.array(["b", "a"])}, "names"),
    "objects": ({"names": np.array(["a", "a"], object)}, {"names": np.array(["b", "a"], object)}, "names"),
    "settings": ({"settings": PRESENT}, {"settings": PRESENT}, "settings"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_symmetry_that_is_broken_otherwise_is_refused(what):
    first, then, named = OTHERWISE[what]
    PRESENT.scales = (1.0, 1.0)
    guide = AutoSymmetrized(AutoNormal(by_settings), progress_bar=False).setup(KEY, Y, **first)
    assert guide.symmetry.log_order() > 0.0
    params = {"loc_auto_loc": jnp.zeros(2), "loc_auto_scale": jnp.ones(2)}
    assert bounds(guide, params, Y, **first).lower < log_z([1.0, 1.0])
    PRESENT.scales = (0.01, 1.0)
    with pytest.raises(SymmetryError, match=rf"differ in {named} from"):
        bounds(guide, params, Y, **then)


def test_an_argument_that_is_left_out_is_missed():
    def other_by_default(y, scales=None):
        model(y, (0.01, 1.0) if scales is None else scales)

    guide = AutoSymmetrized(AutoNormal(other_by_default), SYMMETRIES["given"], progress_bar=False)
    guide.setup(KEY, Y, jnp.ones(2))
    params = {"loc_auto_loc": jnp.zeros(2), "loc_auto_scale": jnp.ones(2)}
    with pytest.raises(SymmetryError, match=r"differ in scales \(absent\) from"):
        bounds(guide, params, Y)


class Strange:
    """Of which hardly anything can be asked."""

    dtype, ndim, shape = "strange", 1, (2,)

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    def __reduce__(self):
        raise RuntimeError("not to be pickled")

    __hash__ = None


STRANGE = {
    "an object": Strange(),
    "a function": lambda x: x,
    "text": "text",
    "times": np.array(["2020-01-01"], "datetime64[D]"),
    "a key": jax.random.key(0),
    "a shape": jax.ShapeDtypeStruct((3,), np.float32),
    "a table": sparse.csr_array(np.eye(2)),
    "ragged": [[1.0], [2.0, 3.0]],
    "long numbers": np.ones(2, np.longdouble),
    "missing": float("nan"),
    "nothing": None,
}


@pytest.mark.parametrize("what", STRANGE)
def test_arguments_of_any_kind_are_compared_with_themselves(what, monkeypatch):
    def with_more(y, more):
        model(y)

    asked = []
    guide = AutoSymmetrized(AutoNormal(with_more), progress_bar=False).setup(KEY, Y, STRANGE[what])
    monkeypatch.setattr(proved, "check_symmetry", lambda *args, **kwargs: asked.append(args))
    for _ in range(2):
        proved.prove_again(guide, (Y, STRANGE[what]), {})
    assert not asked


def test_arguments_that_leave_the_symmetry_are_proved_once(monkeypatch):
    asked, check = [], proved.check_symmetry
    monkeypatch.setattr(proved, "check_symmetry", lambda *a, **k: asked.append(a) or check(*a, **k))
    guide, params = ready()
    wide = {"scales": (3.0, 3.0), "noise": 1.0}
    found = bounds(guide, params, Y, **wide)
    assert found.lower < log_z([3.0, 3.0])
    assert bounds(guide, params, Y, **wide) == found
    # of a symmetry that was found other data say nothing new
    assert bounds(guide, params, Y + 1.0, **wide).lower != found.lower
    assert len(asked) == 1
    again = pickle.loads(pickle.dumps(guide))
    assert bounds(again, params, Y, **wide) == found
    with pytest.raises(SymmetryError, match="does not hold with these arguments of the model"):
        bounds(again, params, Y, ordered=True)


def test_a_loop_that_changes_a_number_each_step_is_not_proved_at_each(monkeypatch):
    guide, params = ready()
    asked = []
    passed = proved.check_symmetry(model, SYMMETRIES["given"], (Y,))
    monkeypatch.setattr(proved, "check_symmetry", lambda *args, **kwargs: asked.append(args) or passed)
    for k in range(40):
        proved.prove_again(guide, (Y,), {"noise": 1.0 + k})
    in_training = len(asked)
    assert in_training < 10
    # numbers that are data to a proof
    for noise in (jnp.array(5.0), np.float32(6.0), np.float64(7.0)):
        proved.prove_again(guide, (Y,), {"noise": noise}, numbers_too=True)
    before = len(asked)
    for noise in (jnp.array(15.0), np.float32(16.0), np.float64(17.0)):
        proved.prove_again(guide, (Y,), {"noise": noise}, numbers_too=True)
    assert len(asked) == before
    proved.prove_again(guide, (Y,), {"noise": 100.0}, numbers_too=True)
    assert len(asked) == before + 1


def test_models_that_do_not_say_what_they_take():
    @functools.wraps(model)
    def with_more(y, more):
        return model(y, more, noise=2.0)

    def swallowed(y):
        return model(y)

    swallowed.__signature__ = "nonsense"
    for function, args in ((functools.wraps(lambda y: None)(with_more), (Y, (1.0, 1.0))), (swallowed, (Y,))):
        guide = AutoSymmetrized(AutoNormal(function), progress_bar=False).setup(KEY, *args)
        params = {"loc_auto_loc": jnp.zeros(2), "loc_auto_scale": jnp.ones(2)}
        assert np.isfinite(bounds(guide, params, *args).lower)


def test_traced_arguments_are_taken_on_trust():
    guide, params = ready()
    elbo = Trace_ELBO()
    for one in (guide, pickle.loads(pickle.dumps(guide))):
        losses = jax.vmap(lambda y, one=one: elbo.loss(KEY, params, model, one, y))(jnp.stack([Y, Y + 1.0]))
        assert losses.shape == (2,)
        slope = jax.grad(lambda noise, one=one: elbo.loss(KEY, params, model, one, Y, noise=noise))(2.0)
        assert jnp.isfinite(slope)


def test_copies_know_what_was_proved(monkeypatch):
    guide, params = ready()
    found = bounds(guide, params, Y)
    monkeypatch.setattr(proved, "check_symmetry", None)
    for one in (pickle.loads(pickle.dumps(guide)), copy.deepcopy(guide)):
        assert bounds(one, params, Y) == found
    # nor does a guide that was stored before anything was kept of a proof fall over
    old = copy.deepcopy(guide)
    del old.__dict__["_proved"]
    with pytest.raises(TypeError, match="not callable"):
        bounds(old, params, Y)


def test_steps_with_traced_arguments_and_predictions_are_not_asked():
    guide, params = ready()
    svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    state = svi.init(KEY, Y)
    state, loss = jax.jit(lambda s, noise: svi.update(s, Y, noise=noise))(state, 2.0)
    assert jnp.isfinite(loss)
    drawn = Predictive(model, guide=guide, params=params, num_samples=3)(KEY, None, ordered=True)
    assert drawn["y"].shape == (3, 3)


def two_sites(y, stage=1, tilt=0.0):
    with numpyro.plate("component", 2):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal((jnp.exp(a) * b).sum(), 1.0).expand(jnp.shape(Y)).to_event(1), obs=y)


def staged(y, stage=1, tilt=0.0):
    """A guide whose second site follows the first in its first stage alone, and where nothing tilts it."""
    loc = numpyro.param("loc", jnp.array([1.0, -1.0]))
    with numpyro.plate("component", 2):
        a = numpyro.sample("a", dist.Normal(loc, 0.3))
        slope = 1.2 if stage == 1 else jnp.array([1.2, -0.5])
        numpyro.sample("b", dist.Normal(slope * a + tilt * jnp.array([1.0, -1.0]), 0.3))


def staged_guide(symmetry, *, check=True, **arguments):
    given = None if symmetry == "found" else Symmetry({"a": ("component",), "b": ("component",)})
    return AutoSymmetrized(staged, given, model=two_sites, check=check, progress_bar=False).setup(KEY, Y, **arguments)


@pytest.mark.parametrize(
    "other", [{"stage": 2}, {"tilt": 0.5}, {"tilt": jnp.array(0.5)}], ids=["a flag", "a number", "an array"]
)
@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_a_guide_by_hand_that_depends_on_an_argument_is_laid_out_for_it(symmetry, other):
    anew, params = functools.partial(staged_guide, symmetry), {"loc": jnp.array([1.0, -1.0])}
    guide = anew(tilt=jnp.array(0.0))
    assert guide.layout.following == ("b",)
    before = bounds(guide, params, Y, tilt=jnp.array(0.0))
    with pytest.raises(UnsupportedGuideError, match="than where it was set up.*Make a guide anew"):
        bounds(guide, params, Y, **other)
    # other data are no other structure; nor does what was refused change the guide
    assert bounds(guide, params, Y + 1.0, tilt=jnp.array(0.0)).lower != before.lower
    assert bounds(guide, params, Y, tilt=jnp.array(0.0)) == before
    assert bounds(anew(**other), params, Y, **other).lower < 0.0


def test_what_was_laid_out_for_the_more_may_be_used_for_the_less():
    params, one = {"loc": jnp.array([1.0, -1.0])}, {"stage": 1}
    less, more = (staged_guide("given", check=False, stage=stage) for stage in (1, 2))
    assert bounds(more, params, Y, **one).lower == pytest.approx(bounds(less, params, Y, **one).lower, abs=1e-3)


ANOTHER_FAMILY = {
    "correlated": lambda loc: dist.MultivariateNormal(loc, jnp.array([[1.0, 0.5], [0.5, 1.0]])),
    "transformed": lambda loc: dist.TransformedDistribution(dist.Normal(loc, 0.3).to_event(1), SinhTransform()),
    "no Gaussian": lambda loc: dist.StudentT(3.0, loc, 0.3).to_event(1),
}


class SinhTransform(dist.transforms.Transform):
    domain = codomain = dist.constraints.real_vector

    def __call__(self, x):
        return jnp.sinh(x)

    def _inverse(self, y):
        return jnp.arcsinh(y)

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return jnp.log(jnp.cosh(x)).sum(-1)

    def tree_flatten(self):
        return (), ((), {})


@pytest.mark.parametrize("family", ANOTHER_FAMILY)
def test_a_guide_by_hand_that_draws_from_another_family_is_refused(family):
    def one_site(y, other=False):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x.sum(), 1.0).expand(jnp.shape(Y)).to_event(1), obs=y)

    def by_hand(y, other=False):
        loc = numpyro.param("loc", jnp.array([1.0, -1.0]))
        numpyro.sample("x", ANOTHER_FAMILY[family](loc) if other else dist.Normal(loc, 0.3).to_event(1))

    symmetry, options = Symmetry({"x": ("unit",)}), {"model": one_site, "check": False, "progress_bar": False}
    guide = AutoSymmetrized(by_hand, symmetry, **options).setup(KEY, Y)
    params = {"loc": jnp.array([1.0, -1.0])}
    before = bounds(guide, params, Y)
    with pytest.raises(UnsupportedGuideError, match="than where it was set up.*Make a guide anew"):
        bounds(guide, params, Y, other=True)
    # where nothing can be proved, it is seen all the same
    with pytest.raises(UnsupportedGuideError, match=r"\['x'\] as independent Gaussians where .*Make a guide anew"):
        jax.jit(lambda y: handlers.seed(guide, 0)(y, other=True))(Y)
    assert bounds(guide, params, Y) == before
    anew = AutoSymmetrized(by_hand, symmetry, **options).setup(KEY, Y, other=True)
    assert np.isfinite(bounds(anew, params, Y, other=True).lower)


def test_a_guide_by_hand_that_leaves_a_site_out_is_refused():
    def guide_of(y, stage=1):
        loc = numpyro.param("loc", jnp.array([1.0, -1.0]))
        with numpyro.plate("component", 2):
            numpyro.sample("a", dist.Normal(loc, 0.3))
            if stage == 1:
                numpyro.sample("b", dist.Normal(loc, 0.3))

    guide = AutoSymmetrized(guide_of, model=two_sites, progress_bar=False).setup(KEY, Y)
    with pytest.raises(UnsupportedGuideError, match=r"does not draw \['b'\]"):
        bounds(guide, {"loc": jnp.zeros(2)}, Y, stage=2)
    with pytest.raises(UnsupportedGuideError, match=r"does not draw \['b'\]"):
        jax.jit(lambda y: handlers.seed(guide, 0)(y, stage=2))(Y)
