"""Bad input to every public function: the type of the error, and the words that must be in it.

One table drives one test. A row names what is given, the call, the error and words that the message must hold: the
argument or site, what came, or the remedy. Nothing here may pass in silence.
"""

import inspect
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoLaplaceApproximation, AutoNormal

import numpyro_symmetry as ns

KEY = jax.random.key(0)


class Bad(NamedTuple):
    """A call that must be refused."""

    what: str
    call: Any
    error: type[Exception]
    words: tuple[str, ...]


def mixture(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    components = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0))
    numpyro.sample("y", components.expand([len(y)]).to_event(1), obs=y)


def branching(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    if loc[0] > 0:
        loc = -loc
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0).expand([len(y)]).to_event(1), obs=y)


class Tensor:
    """Another library's array, which NumPy cannot read."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


def other(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)


def log_joint(position):
    return -0.5 * jnp.sum(position["loc"] ** 2)


@cache
def world():
    """What the calls share: a small mixture, its guide, fit, draws and relabelled draws."""
    rng = np.random.default_rng(0)
    y = jnp.asarray(np.concatenate([rng.normal(m, 0.5, 6) for m in (-4.0, 0.0, 4.0)]), jnp.float32)
    symmetry = ns.Symmetry.mixture("loc")
    bound = symmetry.bind({"loc": np.zeros(3)})
    guide = ns.AutoSymmetrized(AutoNormal(mixture), symmetry)
    svi = SVI(mixture, guide, optax.adam(0.01), Trace_ELBO())
    params = svi.run(KEY, 3, y, progress_bar=False).params
    draws = {"loc": rng.normal([-4.0, 0.0, 4.0], 0.3, (2, 30, 3))}
    out = ns.rebase(draws, symmetry, null=False)
    gaussian = ns.DiagonalGaussian({"loc": np.array([-4.0, 0.0, 4.0])}, {"loc": np.ones(3)})
    values = {"loc": np.array([-4.0, 0.0, 4.0])}
    masked = {"loc": np.ma.masked_array(draws["loc"], mask=draws["loc"] > 4.0)}
    network = ns.Symmetry.mlp([("w1", "b1"), ("w2", "b2")])
    return SimpleNamespace(**locals())


def misspelt(w):
    return {"loc_auto_locs": w.params["loc_auto_loc"], "loc_auto_scale": w.params["loc_auto_scale"]}


def unconstrained(w):
    return w.params | {"loc_auto_scale": jnp.log(w.params["loc_auto_scale"])}


INTEGER_KEY = ("rng_key", "jax.random.key(0)", "3")
ARRAY = ("model_args", "tuple", "write (y,)")
FRACTION = ("whole number", "2.5")
JIT = ("jit",)

SYMMETRY = [
    Bad("kind unknown", lambda w: ns.Symmetry({"w": ("u",)}, {"u": "cyclic"}), ns.SymmetryError, ("'u'", "cyclic")),
    Bad("size zero", lambda w: ns.Symmetry({"w": ("u",)}, sizes={"u": 0}), ns.SymmetryError, ("'u'", "size 0")),
    Bad("size True", lambda w: ns.Symmetry({"w": ("u",)}, sizes={"u": True}), TypeError, ("size", "'u'", "True")),
    Bad("size text", lambda w: ns.Symmetry({"w": ("u",)}, sizes={"u": "3"}), TypeError, ("size", "'u'", "'3'")),
    Bad(
        "orbits too mixture",
        lambda w: ns.Symmetry({"w": ("u",)}, sizes={"u": 2}, orbits={"u": (0, 0, 1)}),
        ns.SymmetryError,
        ("orbits", "'u'"),
    ),
    Bad("group unknown", lambda w: ns.Symmetry({"w": ("u",)}, sizes={"v": 2}), ns.SymmetryError, ("'v'", "'u'")),
    Bad("split negative", lambda w: ns.Split((-2, 3), ("u", None)), (ns.SymmetryError, TypeError, ValueError), ("-2",)),
    Bad("split fraction", lambda w: ns.Split((2.0, 3), ("u", None)), (ns.SymmetryError, TypeError), ("2.0",)),
    Bad("unsigned of none", lambda w: ns.Unsigned(None), (ns.SymmetryError, TypeError), ("Unsigned", "None")),
    Bad("mixture of a list", lambda w: ns.Symmetry.mixture(["a", "b"]), TypeError, ("Sites", "['a', 'b']")),
    Bad(
        "hmm, bare text", lambda w: ns.Symmetry.hmm(transition="A", emissions="loc"), TypeError, ("emissions", "'loc'")
    ),
    Bad(
        "mlp of triples",
        lambda w: ns.Symmetry.mlp([("w", "b", "c"), ("v", "d", "e")]),
        ns.SymmetryError,
        ("layer", "'c'"),
    ),
    Bad("restrict to a site as text", lambda w: w.symmetry.restrict(sites="loc"), TypeError, ("sites", "'loc'")),
    Bad("restrict to no site", lambda w: w.symmetry.restrict(sites=["mu"]), ns.SymmetryError, ("'mu'", "'loc'")),
    Bad("restrict to text", lambda w: w.symmetry.restrict("component"), TypeError, ("names", "'component'")),
    Bad("apply, site absent", lambda w: w.bound.apply({"component": [0, 1, 2]}, {}), ns.SymmetryError, ("'loc'",)),
    Bad(
        "apply, no permutation",
        lambda w: w.bound.apply({"component": np.array([0, 0, 0])}, w.values),
        ns.SymmetryError,
        ("'component'", "permut"),
    ),
    Bad(
        "apply, out of range",
        lambda w: w.bound.apply({"component": np.array([0, 1, 5])}, w.values),
        ns.SymmetryError,
        ("'component'", "5"),
    ),
    Bad(
        "apply, wrong group",
        lambda w: w.bound.apply({"u": np.arange(3)}, w.values),
        ns.SymmetryError,
        ("'u'", "'component'"),
    ),
    Bad(
        "apply, masked",
        lambda w: w.bound.apply({"component": np.arange(3)}, w.masked),
        ns.SymmetryError,
        ("'loc'", "mask"),
    ),
    Bad(
        "compose, no permutation",
        lambda w: ns.compose({"u": np.array([0, 0, 0])}, {"u": np.arange(3)}),
        ns.SymmetryError,
        ("'u'", "permut"),
    ),
    Bad(
        "compose, out of range",
        lambda w: ns.compose({"u": np.array([0, 1, 7])}, {"u": np.arange(3)}),
        ns.SymmetryError,
        ("'u'", "7"),
    ),
    Bad(
        "compose, other groups",
        lambda w: ns.compose({"u": np.arange(3)}, {"v": np.arange(3)}),
        ns.SymmetryError,
        ("'u'", "'v'"),
    ),
    Bad("inverse, out of range", lambda w: ns.inverse({"u": np.array([5, 7, 9])}), ns.SymmetryError, ("'u'", "5")),
    Bad("inverse, fractions", lambda w: ns.inverse({"u": np.array([0.0, 1.0])}), ns.SymmetryError, ("'u'", "float")),
    Bad(
        "transpositions, doubled",
        lambda w: ns.num_transpositions({"u": np.array([1, 1])}),
        ns.SymmetryError,
        ("'u'", "permut"),
    ),
    Bad(
        "signs of two",
        lambda w: ns.inverse({"u": ns.symmetry.SignedPermutation(np.arange(2), np.array([2, 1]))}),
        ns.SymmetryError,
        ("'u'", "sign"),
    ),
    Bad("sample, integer key", lambda w: w.symmetry.bind(w.values).sample(3), TypeError, INTEGER_KEY),
    Bad("sample, unbound", lambda w: w.symmetry.sample(KEY), ns.SymmetryError, ("'component'", "bind")),
    Bad("site a number", lambda w: ns.Symmetry({0: ("u",)}), TypeError, ("axes", "0 (int)")),
    Bad("group without a name", lambda w: ns.Symmetry({"w": ("",)}), ns.SymmetryError, ("'w'", "empty", "None")),
    Bad("part without a name", lambda w: ns.Split((2, 3), ("", None)), ns.SymmetryError, ("Split", "empty")),
    Bad("whole of a number", lambda w: ns.Whole(3), TypeError, ("Whole", "3 (int)")),
    Bad("opened, site absent", lambda w: w.symmetry.opened("mu"), ns.SymmetryError, ("'mu'", "'loc'")),
    Bad(
        "opened, joined axes",
        lambda w: ns.Symmetry({"w": (ns.Concat((1, 2), (None, "u")),)}).opened("w"),
        ns.SymmetryError,
        ("'w'", "joined", "apply"),
    ),
    Bad("opened shape of a number", lambda w: w.bound.opened_shape("loc", 3), TypeError, ("shape", "(3,)")),
    Bad("opened shape too short", lambda w: w.bound.opened_shape("loc", ()), ns.SymmetryError, ("'loc'", "()")),
    Bad("bind, ragged", lambda w: w.symmetry.bind({"loc": [[1.0], [1.0, 2.0]]}), ns.SymmetryError, ("'loc'", "list")),
    Bad(
        "apply, no array",
        lambda w: ns.Symmetry({"w": ("u",)}, sizes={"u": 3}).apply({"u": np.arange(3)}, {"w": Tensor()}),
        ns.SymmetryError,
        ("'w'", "Tensor", "requires grad"),
    ),
    Bad("element of words", lambda w: ns.inverse({"u": np.array(["a", "b"])}), ns.SymmetryError, ("'u'", "<U1")),
    Bad("element ragged", lambda w: ns.compose({"u": [[0], [0, 1]]}, {"u": [0]}), ns.SymmetryError, ("'u'", "list")),
    Bad("group a None", lambda w: ns.Symmetry.mixture("w", group=None), TypeError, ("group", "None")),
    Bad("hmm of an array", lambda w: ns.Symmetry.hmm(transition=w.y, emissions=()), TypeError, ("transition",)),
    Bad("layout an array", lambda w: ns.Symmetry.mlp([("a", "b")], layout=w.y), ns.SymmetryError, ("layout",)),
    Bad("kind an array", lambda w: ns.Symmetry.factor("a", kind=w.y), ns.SymmetryError, ("kind",)),
]

ENTROPY = [
    Bad(
        "estimator unknown",
        lambda w: ns.mutual_information(jnp.zeros((3, 3)), estimator="bethe"),
        ValueError,
        ("estimator", "'bethe'"),
    ),
    Bad("no key", lambda w: ns.mutual_information(jnp.zeros((3, 3)), estimator="infonce"), ValueError, ("rng_key",)),
    Bad(
        "integer key",
        lambda w: ns.mutual_information(jnp.zeros((3, 3)), estimator="infonce", rng_key=3),
        TypeError,
        INTEGER_KEY,
    ),
    Bad("not square", lambda w: ns.mutual_information(jnp.zeros((3, 4)), estimator="exact"), ValueError, ("(3, 4)",)),
    Bad(
        "flipped of another shape",
        lambda w: ns.mutual_information(jnp.zeros((3, 3)), estimator="exact", log_density_flipped=jnp.zeros((1, 3))),
        ValueError,
        ("log_density_flipped", "(1, 3)"),
    ),
    Bad(
        "K of a fraction",
        lambda w: ns.mutual_information(jnp.zeros((3, 3)), estimator="infonce", rng_key=KEY, num_permutations=2.5),
        TypeError,
        ("num_permutations", *FRACTION),
    ),
    Bad("permanent, not square", lambda w: ns.log_permanent(jnp.zeros((2, 3))), ValueError, ("(2, 3)",)),
    Bad("permanent, empty", lambda w: ns.log_permanent(jnp.zeros((0, 0))), ValueError, ("(0, 0)",)),
    Bad("permanent, too wide", lambda w: ns.log_permanent(jnp.zeros((21, 21))), ValueError, ("21", "sequential")),
    Bad("table ragged", lambda w: ns.log_permanent([[1.0, 2.0], [3.0]]), TypeError, ("log_matrix", "list")),
    Bad("table of words", lambda w: ns.log_permanent([["a"]]), TypeError, ("log_matrix", "real numbers", "<U1")),
    Bad(
        "a guide for a table",
        lambda w: ns.mutual_information(w.guide, estimator="exact"),
        TypeError,
        ("log_density", "AutoSymmetrized"),
    ),
    Bad("estimator an array", lambda w: ns.mutual_information(w.y, estimator=w.y), ValueError, ("estimator",)),
]

DISCOVERY = [
    Bad("array for arguments", lambda w: ns.find_symmetry(mixture, w.y), TypeError, ARRAY),
    Bad("check, array for arguments", lambda w: ns.check_symmetry(mixture, w.symmetry, w.y), TypeError, ARRAY),
    Bad("integer key", lambda w: ns.find_symmetry(mixture, (w.y,), rng_key=3), TypeError, INTEGER_KEY),
    Bad(
        "check, integer key",
        lambda w: ns.check_symmetry(mixture, w.symmetry, (w.y,), rng_key=3),
        TypeError,
        INTEGER_KEY,
    ),
    Bad(
        "a log density",
        lambda w: ns.find_symmetry(log_joint, (w.values,)),
        ns.SymmetryError,
        ("sample", "numpyro.factor"),
    ),
    Bad("a function", lambda w: ns.find_symmetry(lambda p: p, (1.0,)), ns.SymmetryError, ("sample",)),
    Bad(
        "check of a log density",
        lambda w: ns.check_symmetry(log_joint, w.symmetry, (w.values,)),
        ns.SymmetryError,
        ("sample", "numpyro.factor"),
    ),
    Bad("missing arguments", lambda w: ns.find_symmetry(mixture), TypeError, ("model_args", "'y'")),
    Bad("not a model", lambda w: ns.find_symmetry(None), TypeError, ("model", "None")),
    Bad(
        "branches on a value", lambda w: ns.find_symmetry(branching, (w.y,)), (ns.SymmetryError, TypeError), ("branch",)
    ),
    Bad("under jit", lambda w: jax.jit(lambda y: ns.find_symmetry(mixture, (y,)).log_order())(w.y), TypeError, JIT),
    Bad(
        "check, no points",
        lambda w: ns.check_symmetry(mixture, w.symmetry, (w.y,), num_points=0),
        ValueError,
        ("num_points", "0"),
    ),
    Bad(
        "check, points of a fraction",
        lambda w: ns.check_symmetry(mixture, w.symmetry, (w.y,), num_points=2.5),
        TypeError,
        ("num_points", *FRACTION),
    ),
    Bad(
        "check, site absent",
        lambda w: ns.check_symmetry(mixture, ns.Symmetry.mixture("mu"), (w.y,)),
        ns.SymmetryError,
        ("'mu'", "'loc'"),
    ),
    Bad("check, no symmetry", lambda w: ns.check_symmetry(mixture, None, (w.y,)), TypeError, ("symmetry", "None")),
    Bad("data in a list", lambda w: ns.find_symmetry(mixture, ([0.0, 1.0],)), ns.SymmetryError, ("'y'", "list")),
    Bad(
        "data complex",
        lambda w: ns.check_symmetry(mixture, w.symmetry, (w.y + 0j,)),
        ns.SymmetryError,
        ("'y'", "complex64"),
    ),
]

GUIDES = [
    Bad("following, class", lambda w: ns.AutoConditional(AutoNormal), TypeError, ("base_guide", "class AutoNormal")),
    Bad("following, no guide", lambda w: ns.AutoConditional(3), TypeError, ("base_guide", "3")),
    Bad("following, no model", lambda w: ns.AutoConditional(lambda y: None), ValueError, ("model=model",)),
    Bad(
        "following, model no function",
        lambda w: ns.AutoConditional(AutoNormal(other), model=3),
        TypeError,
        ("model", "3"),
    ),
    Bad(
        "following, symmetrized within",
        lambda w: ns.AutoConditional(ns.AutoSymmetrized(AutoNormal(mixture))),
        ns.UnsupportedGuideError,
        ("AutoSymmetrized(AutoConditional(base_guide))",),
    ),
    Bad(
        "following, Laplace",
        lambda w: ns.AutoConditional(AutoLaplaceApproximation(other)),
        ns.UnsupportedGuideError,
        ("point mass",),
    ),
    Bad(
        "following, sites as text", lambda w: ns.AutoConditional(AutoNormal(other), "mu"), TypeError, ("sites", "'mu'")
    ),
    Bad(
        "following, no sites",
        lambda w: ns.AutoConditional(AutoNormal(other), []),
        ValueError,
        ("sites", "at least one"),
    ),
    Bad(
        "following, sites twice",
        lambda w: ns.AutoConditional(AutoNormal(other), ["mu", "mu"]),
        ValueError,
        ("sites", "twice"),
    ),
    Bad(
        "following, no steps",
        lambda w: ns.AutoConditional(AutoNormal(other), num_steps=0),
        ValueError,
        ("num_steps", "0"),
    ),
    Bad(
        "following, half a step",
        lambda w: ns.AutoConditional(AutoNormal(other), num_steps=2.5),
        TypeError,
        ("num_steps", "2.5"),
    ),
    Bad("inducing, none", lambda w: ns.AutoConditional(AutoNormal(other), inducing=0), ValueError, ("inducing", "0")),
    Bad(
        "inducing, a half",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing=2.5),
        TypeError,
        ("inducing", "2.5"),
    ),
    Bad(
        "inducing, True",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing=True),
        TypeError,
        ("inducing", "True"),
    ),
    Bad(
        "inducing, text", lambda w: ns.AutoConditional(AutoNormal(other), inducing="x"), TypeError, ("inducing", "'x'")
    ),
    Bad(
        "inducing, no rows",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing=np.zeros((0, 2))),
        ValueError,
        ("inducing", "(0, 2)"),
    ),
    Bad(
        "inducing, NaN",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing=[[0.0, np.nan]]),
        ValueError,
        ("inducing", "not finite"),
    ),
    Bad(
        "inducing, empty",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing={}),
        ValueError,
        ("inducing", "empty"),
    ),
    Bad(
        "inducing, ragged",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing=[[1.0], [1.0, 2.0]]),
        ns.SymmetryError,
        ("inducing", "list"),
    ),
    Bad(
        "inducing, complex",
        lambda w: ns.AutoConditional(AutoNormal(other), inducing={"y": np.zeros(2, complex)}),
        ns.SymmetryError,
        ("inducing['y']", "complex"),
    ),
    Bad(
        "class for an instance", lambda w: ns.AutoSymmetrized(AutoNormal), TypeError, ("base_guide", "class AutoNormal")
    ),
    Bad(
        "no density",
        lambda w: ns.AutoSymmetrized(AutoDelta(mixture)),
        ns.UnsupportedGuideError,
        ("AutoDelta", "AutoNormal"),
    ),
    Bad(
        "nested",
        lambda w: ns.AutoSymmetrized(ns.AutoSymmetrized(AutoNormal(mixture))),
        (ns.UnsupportedGuideError, TypeError),
        ("AutoSymmetrized",),
    ),
    Bad(
        "estimator unknown",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), estimator="bethe"),
        ValueError,
        ("estimator", "'bethe'"),
    ),
    Bad(
        "K of a fraction",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), num_permutations=2.5),
        TypeError,
        ("num_permutations", *FRACTION),
    ),
    Bad(
        "features negative",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), max_features=-3),
        ValueError,
        ("max_features", "-3"),
    ),
    Bad(
        "features by another word",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), max_features="all"),
        ValueError,
        ("max_features", "'auto'", "'all'"),
    ),
    Bad(
        "features of a fraction",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), max_features=2.5),
        TypeError,
        ("max_features", "2.5"),
    ),
    Bad("prefix empty", lambda w: ns.AutoSymmetrized(AutoNormal(mixture), prefix=""), TypeError, ("prefix", "''")),
    Bad("prefix a number", lambda w: ns.AutoSymmetrized(AutoNormal(mixture), prefix=5), TypeError, ("prefix", "5")),
    Bad("check a word", lambda w: ns.AutoSymmetrized(AutoNormal(mixture), check="no"), TypeError, ("check", "'no'")),
    Bad("symmetry a word", lambda w: ns.AutoSymmetrized(AutoNormal(mixture), "mixture"), TypeError, ("symmetry",)),
    Bad("no parameters", lambda w: w.guide.elbo_bounds(KEY, {}, w.y), ns.SymmetryError, ("loc_auto_loc",)),
    Bad(
        "misspelt",
        lambda w: w.guide.elbo_bounds(
            KEY, {"loc_auto_locs": w.params["loc_auto_loc"], "loc_auto_scale": w.params["loc_auto_scale"]}, w.y
        ),
        ns.SymmetryError,
        ("loc_auto_locs", "loc_auto_loc"),
    ),
    Bad(
        "misshapen",
        lambda w: w.guide.elbo_bounds(KEY, w.params | {"loc_auto_loc": jnp.ones(1)}, w.y),
        ns.SymmetryError,
        ("loc_auto_loc", "(1,)", "(3,)"),
    ),
    Bad(
        "not finite",
        lambda w: w.guide.elbo_bounds(KEY, w.params | {"loc_auto_loc": jnp.full(3, jnp.nan)}, w.y),
        ns.SymmetryError,
        ("loc_auto_loc", "finite"),
    ),
    Bad(
        "negative scale",
        lambda w: w.guide.elbo_bounds(KEY, w.params | {"loc_auto_scale": -jnp.ones(3)}, w.y),
        ns.SymmetryError,
        ("loc_auto_scale", "get_params"),
    ),
    Bad("draws, no parameters", lambda w: w.guide.sample_posterior(KEY, {}, w.y), ns.SymmetryError, ("loc_auto_loc",)),
    Bad("median, no parameters", lambda w: w.guide.median({}), ns.SymmetryError, ("loc_auto_loc",)),
    Bad(
        "quantiles, misspelt",
        lambda w: w.guide.quantiles({"loc": jnp.ones(3)}, [0.5]),
        ns.SymmetryError,
        ("loc_auto_loc",),
    ),
    Bad(
        "particles of a fraction",
        lambda w: w.guide.elbo_bounds(KEY, w.params, w.y, num_particles=2.5),
        TypeError,
        ("num_particles", *FRACTION),
    ),
    Bad("integer key", lambda w: w.guide.elbo_bounds(3, w.params, w.y), TypeError, INTEGER_KEY),
    Bad("draws, integer key", lambda w: w.guide.sample_posterior(3, w.params, w.y), TypeError, INTEGER_KEY),
    Bad("data of nan", lambda w: w.guide.elbo_bounds(KEY, w.params, w.y * jnp.nan), ns.SymmetryError, ("finite",)),
    Bad("to_arviz, array for arguments", lambda w: ns.to_arviz(KEY, w.guide, w.params, w.y), TypeError, ARRAY),
    Bad(
        "to_arviz, no draws",
        lambda w: ns.to_arviz(KEY, w.guide, w.params, (w.y,), num_draws=0),
        ValueError,
        ("num_draws", "0"),
    ),
    Bad(
        "to_arviz, no parameters", lambda w: ns.to_arviz(KEY, w.guide, {}, (w.y,)), ns.SymmetryError, ("loc_auto_loc",)
    ),
    Bad(
        "to_arviz, misspelt",
        lambda w: ns.to_arviz(KEY, w.guide, misspelt(w), (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc", "loc_auto_locs"),
    ),
    Bad(
        "to_arviz, misshapen",
        lambda w: ns.to_arviz(KEY, AutoNormal(mixture), w.params | {"loc_auto_loc": jnp.ones(1)}, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc", "(1,)", "(3,)"),
    ),
    Bad(
        "to_arviz, unconstrained",
        lambda w: ns.to_arviz(KEY, AutoNormal(mixture), unconstrained(w), (w.y,)),
        ns.SymmetryError,
        ("loc_auto_scale", "get_params"),
    ),
    Bad("to_arviz, integer key", lambda w: ns.to_arviz(3, w.guide, w.params, (w.y,)), TypeError, INTEGER_KEY),
    Bad("set up without data", lambda w: w.guide.setup(KEY), TypeError, ("mixture(y)", "missing", "model_args")),
    Bad(
        "draws, shape a number",
        lambda w: w.guide.sample_posterior(KEY, w.params, w.y, sample_shape=5),
        TypeError,
        ("sample_shape", "(3,)", "5"),
    ),
    Bad(
        "draws, shape of a fraction",
        lambda w: w.guide.sample_posterior(KEY, w.params, w.y, sample_shape=(2.5,)),
        TypeError,
        ("sample_shape", *FRACTION),
    ),
    Bad(
        "draws, symmetrize a number",
        lambda w: w.guide.sample_posterior(KEY, w.params, w.y, symmetrize=2),
        TypeError,
        ("symmetrize", "2 (int)"),
    ),
    Bad("quantiles beyond one", lambda w: w.guide.quantiles(w.params, [1.5]), ValueError, ("quantiles", "1.5")),
    Bad("quantiles a word", lambda w: w.guide.quantiles(w.params, "median"), TypeError, ("quantiles", "str")),
    Bad(
        "parameter of objects",
        lambda w: w.guide.median(w.params | {"loc_auto_loc": np.full(3, None)}),
        ns.SymmetryError,
        ("loc_auto_loc", "object"),
    ),
    Bad(
        "to_arviz, another model",
        lambda w: ns.to_arviz(KEY, w.guide, w.params, (w.y,), num_draws=2, model=other),
        ns.SymmetryError,
        ("'mu'", "not drawn"),
    ),
    Bad(
        "to_arviz, dims of no site",
        lambda w: ns.to_arviz(KEY, w.guide, w.params, (w.y,), num_draws=2, dims={"lok": ["a"]}),
        ValueError,
        ("dims", "'lok'", "'loc'"),
    ),
    Bad(
        "to_arviz, too many dims",
        lambda w: ns.to_arviz(KEY, w.guide, w.params, (w.y,), num_draws=2, dims={"loc": ["a", "b"]}),
        ValueError,
        ("dims['loc']", "2 names", "(3,)"),
    ),
    Bad(
        "to_arviz, coordinates too few",
        lambda w: ns.to_arviz(KEY, w.guide, w.params, (w.y,), num_draws=2, dims={"loc": ["a"]}, coords={"a": [1, 2]}),
        ValueError,
        ("coords['a']", "(2,)", "'loc'", "3"),
    ),
]

MATCHING = [
    Bad("no symmetry", lambda w: ns.match(w.values, w.values, None), TypeError, ("symmetry", "None")),
    Bad("symmetry a word", lambda w: ns.match(w.values, w.values, "mixture"), TypeError, ("symmetry", "str")),
    Bad("integer key", lambda w: ns.match(w.values, w.values, w.symmetry, rng_key=3), TypeError, INTEGER_KEY),
    Bad(
        "nan",
        lambda w: ns.match({"loc": np.full(3, np.nan)}, w.values, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "finite"),
    ),
    Bad(
        "masked",
        lambda w: ns.match(w.values, {"loc": w.masked["loc"][0, 0]}, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "mask"),
    ),
    Bad(
        "cost unknown",
        lambda w: ns.match(w.values, w.values, w.symmetry, cost="cosine"),
        ValueError,
        ("cost", "'cosine'"),
    ),
    Bad(
        "method unknown",
        lambda w: ns.match(w.values, w.values, w.symmetry, method="greedy"),
        ValueError,
        ("method", "'greedy'"),
    ),
    Bad("under jit", lambda w: jax.jit(lambda v: ns.match(v, v, w.symmetry).objective)(w.values), TypeError, JIT),
    Bad(
        "nested",
        lambda w: ns.match({"a": {"b": np.ones(3)}}, {"a": {"b": np.ones(3)}}, w.symmetry),
        (ns.SymmetryError, TypeError),
        ("'a.b'",),
    ),
    Bad(
        "nearest, masked",
        lambda w: ns.matching.nearest_transposition({"loc": w.masked["loc"][0, 0]}, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "mask"),
    ),
    Bad("nearest, no symmetry", lambda w: ns.matching.nearest_transposition(w.values, None), TypeError, ("symmetry",)),
    Bad(
        "negative deviation",
        lambda w: ns.DiagonalGaussian({"loc": np.zeros(3)}, {"loc": -np.ones(3)}),
        ValueError,
        ("'loc'", "negative"),
    ),
    Bad(
        "deviation of nan",
        lambda w: ns.DiagonalGaussian({"loc": np.zeros(3)}, {"loc": np.full(3, np.nan)}),
        ValueError,
        ("'loc'",),
    ),
    Bad(
        "indefinite",
        lambda w: ns.FullGaussian({"loc": np.zeros(2)}, np.array([[1.0, 2.0], [2.0, 1.0]])),
        ValueError,
        ("covariance", "negative eigenvalue"),
    ),
    Bad(
        "asymmetric",
        lambda w: ns.FullGaussian({"loc": np.zeros(2)}, np.array([[1.0, 0.5], [0.0, 1.0]])),
        ValueError,
        ("covariance", "symmetric"),
    ),
    Bad("beyond the geodesic", lambda w: w.gaussian.geodesic(w.gaussian, -1.0), ValueError, ("t", "-1")),
    Bad(
        "negative weights",
        lambda w: ns.DiagonalGaussian.barycenter([w.gaussian, w.gaussian], [2.0, -1.0]),
        ValueError,
        ("weights", "-1"),
    ),
    Bad("weights of zero", lambda w: ns.DiagonalGaussian.barycenter([w.gaussian], [0.0]), ValueError, ("weights",)),
    Bad(
        "fit to nan",
        lambda w: ns.DiagonalGaussian.fit({"loc": np.full((4, 3), np.nan)}),
        ns.SymmetryError,
        ("'loc'", "finite"),
    ),
    Bad(
        "fit, ragged",
        lambda w: ns.DiagonalGaussian.fit({"a": np.ones((5, 2)), "b": np.ones((7, 2))}),
        ns.SymmetryError,
        ("'b'", "7", "5"),
    ),
    Bad(
        "barrier, other sites",
        lambda w: ns.loss_barrier(log_joint, w.values, {"mu": np.zeros(3)}),
        ns.SymmetryError,
        ("'loc'", "'mu'"),
    ),
    Bad(
        "barrier, points of a fraction",
        lambda w: ns.loss_barrier(log_joint, w.values, w.values, num_points=5.5),
        TypeError,
        ("num_points", "5.5"),
    ),
    Bad(
        "barrier of nothing",
        lambda w: ns.loss_barrier(lambda v: jnp.zeros(0) * v["loc"].sum(), w.values, w.values),
        ValueError,
        ("loss", "(0,)"),
    ),
    Bad(
        "barrier, integer key",
        lambda w: ns.loss_barrier(log_joint, w.gaussian, w.gaussian, rng_key=3),
        TypeError,
        INTEGER_KEY,
    ),
    Bad("prune, not a gaussian", lambda w: ns.traces.prune(w.values, 0.5), TypeError, ("DiagonalGaussian", "dict")),
    Bad("prune, share", lambda w: ns.traces.prune(w.gaussian, 1.5), ValueError, ("keep", "1.5")),
    Bad(
        "agreement, empty",
        lambda w: ns.diagnostics.agreement(np.zeros((0, 3)), np.zeros((0, 3))),
        ValueError,
        ("(0, 3)",),
    ),
    Bad(
        "variation, shapes",
        lambda w: ns.diagnostics.total_variation(np.ones((4, 3)) / 3, np.ones((4, 2)) / 2),
        ValueError,
        ("(4, 3)", "(4, 2)"),
    ),
    Bad("fit to no arrays", lambda w: ns.DiagonalGaussian.fit({"w": Tensor()}), ns.SymmetryError, ("'w'", "Tensor")),
    Bad("match no arrays", lambda w: ns.match({"loc": Tensor()}, w.values, w.symmetry), ns.SymmetryError, ("Tensor",)),
    Bad("one for a list", lambda w: ns.DiagonalGaussian.barycenter(w.gaussian), TypeError, ("gaussians", "list")),
    Bad(
        "weights of words",
        lambda w: ns.DiagonalGaussian.barycenter([w.gaussian], ["a"]),
        ns.SymmetryError,
        ("weights", "<U1"),
    ),
    Bad(
        "density of another shape",
        lambda w: w.gaussian.log_density({"loc": np.zeros(1)}),
        ns.SymmetryError,
        ("'loc'", "(1,)", "(3,)"),
    ),
    Bad("density of an array", lambda w: w.gaussian.log_density(np.zeros(3)), TypeError, ("by site", "ndarray")),
    Bad(
        "density of other draws",
        lambda w: ns.DiagonalGaussian({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}).log_density(
            {"a": np.zeros(4), "b": np.zeros(5)}
        ),
        ns.SymmetryError,
        ("(4,)", "(5,)"),
    ),
    Bad("draws, shape a word", lambda w: w.gaussian.sample(KEY, "10"), TypeError, ("shape", "'10'")),
    Bad(
        "apply, swapped",
        lambda w: w.gaussian.apply({"component": np.arange(3)}, w.symmetry),
        TypeError,
        ("apply(symmetry, element)", "dict"),
    ),
    Bad(
        "activations, an array",
        lambda w: ns.match(w.values, w.values, w.symmetry, cost=ns.ActivationCost(lambda v: v["loc"][None])),
        TypeError,
        ("activations", "'component'", "mapping"),
    ),
    Bad(
        "barrier, complex loss",
        lambda w: ns.loss_barrier(lambda v: v["loc"] * 1j, w.values, w.values),
        TypeError,
        ("loss", "complex"),
    ),
    Bad(
        "barrier, loss a dict",
        lambda w: ns.loss_barrier(lambda v: {"l": v["loc"]}, w.values, w.values),
        TypeError,
        ("loss", "dict"),
    ),
    Bad(
        "variation of no array",
        lambda w: ns.diagnostics.total_variation(Tensor(), np.ones((1, 1))),
        ns.SymmetryError,
        ("p,",),
    ),
    Bad("deviation ragged", lambda w: ns.DiagonalGaussian({"w": [0.0]}, {"w": [[0], [0, 1]]}), ValueError, ("'w'",)),
    Bad("method an array", lambda w: ns.match(w.values, w.values, w.symmetry, method=w.y), ValueError, ("method",)),
    Bad("share of nothing", lambda w: w.gaussian.geodesic(w.gaussian, None), TypeError, ("t:",)),
    Bad("activations no function", lambda w: ns.ActivationCost(w.values), TypeError, ("activations", "dict")),
    Bad(
        "guide, parameter of words",
        lambda w: ns.DiagonalGaussian.from_guide(w.guide, w.params | {"loc_auto_loc": ["a"] * 3}),
        ns.SymmetryError,
        ("loc_auto_loc", "<U1"),
    ),
]

TRACES = [
    Bad("no symmetry, no model", lambda w: ns.rebase(w.draws), ValueError, ("model",)),
    Bad("symmetry a word", lambda w: ns.rebase(w.draws, "mixture"), TypeError, ("symmetry", "str")),
    Bad("integer key", lambda w: ns.rebase(w.draws, w.symmetry, rng_key=3), TypeError, INTEGER_KEY),
    Bad(
        "nan",
        lambda w: ns.rebase({"loc": np.full((2, 30, 3), np.nan)}, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "finite", "draw (0, 0)"),
    ),
    Bad("masked", lambda w: ns.rebase(w.masked, w.symmetry), ns.SymmetryError, ("'loc'", "mask")),
    Bad(
        "cost a word",
        lambda w: ns.rebase(w.draws, w.symmetry, cost="stephens"),
        ValueError,
        ("cost", "'stephens'", "StephensCost"),
    ),
    Bad(
        "cost a class",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.GaussianCost),
        TypeError,
        ("cost", "class GaussianCost", "GaussianCost(...)"),
    ),
    Bad(
        "order by a list",
        lambda w: ns.rebase(w.draws, w.symmetry, order_by=["loc"]),
        TypeError,
        ("order_by", "['loc']"),
    ),
    Bad(
        "order by nothing there",
        lambda w: ns.rebase(w.draws, w.symmetry, order_by="mu"),
        ns.SymmetryError,
        ("order_by", "'mu'"),
    ),
    Bad("labels a list", lambda w: ns.rebase(w.draws, w.symmetry, labels=["z"]), TypeError, ("labels", "['z']")),
    Bad(
        "starts of a fraction",
        lambda w: ns.rebase(w.draws, w.symmetry, num_starts=2.5),
        TypeError,
        ("num_starts", *FRACTION),
    ),
    Bad(
        "leading dimensions of none",
        lambda w: ns.rebase(w.draws, w.symmetry, num_leading_dims=0),
        ValueError,
        ("num_leading_dims", "0"),
    ),
    Bad(
        "nested",
        lambda w: ns.rebase({"params": {"loc": w.draws["loc"]}}, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "'params.loc'"),
    ),
    Bad("an array", lambda w: ns.rebase(w.draws["loc"], w.symmetry), ns.SymmetryError, ("array", "(2, 30, 3)")),
    Bad(
        "ragged",
        lambda w: ns.rebase({"loc": [np.zeros((20, 3)), np.zeros((30, 3))]}, w.symmetry),
        (ns.SymmetryError, TypeError),
        ("'loc'", "chains"),
    ),
    Bad(
        "other numbers of draws",
        lambda w: ns.rebase({"loc": w.draws["loc"], "s": np.ones((2, 20))}, w.symmetry, num_leading_dims=2),
        ns.SymmetryError,
        ("'s'", "20", "30"),
    ),
    Bad(
        "other numbers of draws, leading dimensions to be told",
        lambda w: ns.rebase({"loc": w.draws["loc"], "s": np.ones((2, 20))}, w.symmetry),
        ns.SymmetryError,
        ("'s'", "20", "30", "disagree"),
    ),
    Bad(
        "nested members",
        lambda w: ns.rebase([{"params": {"loc": np.ones(3)}}] * 4, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "'params.loc'"),
    ),
    Bad(
        "draws of another model",
        lambda w: ns.rebase({"mu": w.draws["loc"]}, model=mixture, model_args=(w.y,)),
        ns.SymmetryError,
        ("'loc'", "'mu'"),
    ),
    Bad("array for arguments", lambda w: ns.rebase(w.draws, model=mixture, model_args=w.y), TypeError, ARRAY),
    Bad(
        "a log density for a model",
        lambda w: ns.rebase(w.draws, model=log_joint, model_args=(w.values,)),
        ns.SymmetryError,
        ("sample",),
    ),
    Bad("standardize a word", lambda w: ns.EuclideanCost(standardize="no"), TypeError, ("standardize", "'no'")),
    Bad(
        "varimax, masked",
        lambda w: ns.traces.varimax(np.ma.masked_array(np.ones((5, 2)), mask=np.eye(5, 2))),
        (ns.SymmetryError, TypeError),
        ("mask",),
    ),
    Bad("varimax, empty", lambda w: ns.traces.varimax(np.ones((0, 2))), ValueError, ("(0, 2)",)),
    Bad("varimax of a dict", lambda w: ns.traces.varimax({"w": np.ones((5, 2))}), (TypeError, ValueError), ("array",)),
    Bad("varimax, tolerance", lambda w: ns.traces.varimax(np.eye(3), tolerance=-1.0), ValueError, ("tolerance", "-1")),
    Bad("varimax, ragged", lambda w: ns.traces.varimax([[1.0], [1.0, 2.0]]), ns.SymmetryError, ("loadings", "list")),
    Bad("no array", lambda w: ns.rebase({"loc": Tensor()}, w.symmetry), ns.SymmetryError, ("'loc'", "Tensor")),
    Bad("apply to no array", lambda w: w.out.apply({"loc": Tensor()}), ns.SymmetryError, ("'loc'", "Tensor")),
    Bad(
        "score of other draws",
        lambda w: w.out.score({"loc": w.draws["loc"][:, :5]}, ns.GaussianCost()),
        ns.SymmetryError,
        ("(2, 5)", "(2, 30)"),
    ),
    Bad(
        "reference of other sites",
        lambda w: ns.rebase({"mu": w.draws["loc"]}, ns.Symmetry.mixture("mu"), reference=w.out),
        ns.SymmetryError,
        ("reference", "'loc'", "'mu'"),
    ),
    Bad("transforms of a tensor", lambda w: ns.GaussianCost(Tensor()), TypeError, ("transforms", "Tensor")),
    Bad(
        "allocations, no array",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.AllocationCost(None)),
        ns.SymmetryError,
        ("AllocationCost", "()"),
    ),
    Bad(
        "probabilities ragged",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.StephensCost([[1.0], [0.5, 0.5]])),
        ns.SymmetryError,
        ("StephensCost", "list"),
    ),
    Bad(
        "reference ragged",
        lambda w: ns.rebase(w.draws, w.symmetry, reference={"loc": [[1.0], [1.0, 2.0]]}),
        ns.SymmetryError,
        ("'loc' of the reference", "list"),
    ),
    Bad("member, no array", lambda w: ns.rebase([{"loc": Tensor()}], w.symmetry), ns.SymmetryError, ("Member 0",)),
]

REPORTS = [
    Bad("swapped", lambda w: ns.report(w.out, w.draws), TypeError, ("Rebased",)),
    Bad("data for the result", lambda w: ns.report(w.draws, w.out.data), TypeError, ("Rebased", "dict")),
    Bad("other draws", lambda w: ns.report({"loc": w.draws["loc"] + 1.0}, w.out), ns.SymmetryError, ("draws",)),
    Bad(
        "empty invariant",
        lambda w: ns.report(w.draws, w.out, {"f": np.zeros((0,))}),
        (ns.SymmetryError, ValueError),
        ("'f'",),
    ),
    Bad(
        "masked invariant",
        lambda w: ns.report(w.draws, w.out, {"f": w.masked["loc"][..., 0]}),
        (ns.SymmetryError, ValueError),
        ("'f'", "mask"),
    ),
    Bad(
        "invariant of objects",
        lambda w: ns.report(w.draws, w.out, {"f": np.full((2, 30), None)}),
        (ns.SymmetryError, TypeError),
        ("'f'", "object"),
    ),
    Bad("plot of a dict", lambda w: ns.diagnostics.plot_null(w.draws), TypeError, ("Rebased", "dict")),
    Bad(
        "plot transpositions of a dict",
        lambda w: ns.diagnostics.plot_transpositions(w.draws),
        TypeError,
        ("Rebased", "dict"),
    ),
    Bad(
        "plot of a site that is not there",
        lambda w: ns.diagnostics.plot_relabelling(w.draws, w.out, ("mu",)),
        ns.SymmetryError,
        ("'mu'",),
    ),
    Bad(
        "plot of a barrier of numbers", lambda w: ns.diagnostics.plot_barrier(3.0), TypeError, ("loss_barrier", "float")
    ),
    Bad("invariant of no array", lambda w: ns.report(w.draws, w.out, {"f": Tensor()}), TypeError, ("'f'", "Tensor")),
    Bad("axes a word", lambda w: ns.diagnostics.plot_transpositions(w.out, axes="a"), TypeError, ("axes", "str")),
    Bad(
        "pair of axes a word",
        lambda w: ns.diagnostics.plot_relabelling(w.draws, w.out, axes="ab"),
        TypeError,
        ("axes", "pair"),
    ),
    Bad(
        "group a list",
        lambda w: ns.diagnostics.plot_transpositions(w.out, ["component"]),
        ns.SymmetryError,
        ("group", "['component']"),
    ),
]

EVIDENCE = [
    Bad("array for arguments", lambda w: ns.log_evidence(w.draws, mixture, w.y), TypeError, ARRAY),
    Bad("no model", lambda w: ns.log_evidence(w.draws), (TypeError, ValueError), ("model",)),
    Bad("integer key", lambda w: ns.log_evidence(w.draws, mixture, (w.y,), rng_key=3), TypeError, INTEGER_KEY),
    Bad(
        "method unknown",
        lambda w: ns.log_evidence(w.draws, mixture, (w.y,), method="chib"),
        ValueError,
        ("method", "'chib'"),
    ),
    Bad(
        "samples of a fraction",
        lambda w: ns.log_evidence(w.draws, mixture, (w.y,), num_draws=2.5),
        TypeError,
        ("num_draws", *FRACTION),
    ),
    Bad(
        "nan",
        lambda w: ns.log_evidence({"loc": np.full((2, 30, 3), np.nan)}, mixture, (w.y,)),
        ns.SymmetryError,
        ("'loc'", "finite"),
    ),
    Bad("masked", lambda w: ns.log_evidence(w.masked, mixture, (w.y,)), ns.SymmetryError, ("'loc'", "mask")),
    Bad("a log density", lambda w: ns.log_evidence(w.draws, log_joint, (w.values,)), ns.SymmetryError, ("sample",)),
    Bad(
        "site absent", lambda w: ns.log_evidence({"mu": w.draws["loc"]}, mixture, (w.y,)), ns.SymmetryError, ("'loc'",)
    ),
    Bad(
        "guide, no parameters",
        lambda w: ns.log_evidence((w.guide, {}), mixture, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc",),
    ),
    Bad(
        "guide, misspelt",
        lambda w: ns.log_evidence((w.guide, misspelt(w)), mixture, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc", "loc_auto_locs"),
    ),
    Bad(
        "guide, too many",
        lambda w: ns.log_evidence((w.guide, w.params | {"weights_auto_loc": jnp.ones(3)}), mixture, (w.y,)),
        ns.SymmetryError,
        ("weights_auto_loc", "loc_auto_loc"),
    ),
    Bad(
        "guide, misshapen",
        lambda w: ns.log_evidence((w.guide, w.params | {"loc_auto_loc": jnp.ones(1)}), mixture, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc", "(1,)", "(3,)"),
    ),
    Bad(
        "guide, unconstrained",
        lambda w: ns.log_evidence((AutoNormal(mixture), unconstrained(w)), mixture, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_scale", "get_params"),
    ),
    Bad(
        "guide, not finite",
        lambda w: ns.log_evidence((w.guide, w.params | {"loc_auto_loc": jnp.full(3, jnp.nan)}), mixture, (w.y,)),
        ns.SymmetryError,
        ("loc_auto_loc", "finite"),
    ),
    Bad(
        "guide of Laplace, no parameters",
        lambda w: ns.log_evidence((AutoLaplaceApproximation(mixture), {}), mixture, (w.y,)),
        ns.SymmetryError,
        ("auto_loc",),
    ),
    Bad(
        "guide of Laplace, misshapen",
        lambda w: ns.log_evidence((AutoLaplaceApproximation(mixture), {"auto_loc": jnp.ones(2)}), mixture, (w.y,)),
        ns.SymmetryError,
        ("auto_loc", "(2,)", "(3,)"),
    ),
    Bad(
        "ragged",
        lambda w: ns.log_evidence({"loc": [[1.0], [1.0, 2.0]]}, mixture, (w.y,)),
        ns.SymmetryError,
        ("'loc'", "list"),
    ),
]

SAMPLERS = [
    Bad("integer key", lambda w: ns.run_blackjax(3, mixture, (w.y,), progress_bar=False), TypeError, INTEGER_KEY),
    Bad("array for arguments", lambda w: ns.run_blackjax(KEY, mixture, w.y, progress_bar=False), TypeError, ARRAY),
    Bad(
        "chains of a fraction",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), num_chains=2.5, progress_bar=False),
        TypeError,
        ("num_chains", *FRACTION),
    ),
    Bad(
        "algorithm unknown",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), algorithm="gibbs", progress_bar=False),
        ValueError,
        ("algorithm", "'gibbs'"),
    ),
    Bad(
        "a log density",
        lambda w: ns.run_blackjax(KEY, log_joint, (w.values,), progress_bar=False),
        (ns.SymmetryError, ValueError),
        ("sample",),
    ),
    Bad(
        "strategy a word",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), init_strategy="median", progress_bar=False),
        TypeError,
        ("init_strategy", "'median'"),
    ),
    Bad(
        "dims a bare name",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), dims={"loc": "component"}, progress_bar=False),
        TypeError,
        ("dims['loc']", "'component'"),
    ),
    Bad(
        "acceptance a word",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), target_acceptance_rate="0.8", progress_bar=False),
        ValueError,
        ("target_acceptance_rate", "'0.8'"),
    ),
    Bad(
        "starts of words",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), init_params={"loc": ["a"] * 3}, progress_bar=False),
        ns.SymmetryError,
        ("'loc' of init_params", "<U1"),
    ),
]

TABLE = {
    "symmetry": SYMMETRY,
    "entropy": ENTROPY,
    "discovery": DISCOVERY,
    "guides": GUIDES,
    "matching": MATCHING,
    "traces": TRACES,
    "reports": REPORTS,
    "evidence": EVIDENCE,
    "samplers": SAMPLERS,
}
ROWS = [pytest.param(bad, id=f"{subject}-{bad.what}") for subject, rows in TABLE.items() for bad in rows]


@pytest.mark.parametrize("bad", ROWS)
def test_bad_input_is_refused_in_words(bad):
    with pytest.raises(bad.error) as caught:
        bad.call(world())
    missing = [word for word in bad.words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {type(caught.value).__name__}: {caught.value}"


def test_the_table_names_every_public_function():
    source = Path(__file__).read_text()
    functions = [name for name in ns.__all__ if inspect.isfunction(getattr(ns, name))]
    functions += ["matching.nearest_transposition", "traces.prune", "traces.varimax"]
    plots = ("plot_barrier", "plot_null", "plot_relabelling", "plot_transpositions")
    functions += [f"diagnostics.{name}" for name in ("agreement", "total_variation", *plots)]
    assert [name for name in functions if f"ns.{name}" not in source] == []
