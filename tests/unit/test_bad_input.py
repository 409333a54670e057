"""Bad input to every public function: the type of the error, and the words that must be in it.

One table drives one test. A row names what is given, the call, the error and words that the message must hold: the
argument or site, what came, or the remedy. Nothing here may pass in silence.
"""

import functools
import inspect
import re
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
import xarray as xr
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoGuideList, AutoLaplaceApproximation, AutoNormal

import numpyro_symmetry as ns
from tests.support import public
from tests.support.agreement import MANY_OF_ONE

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


def shifted(y, shift, rng_key):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(loc.sum() + shift, 1.0).expand([len(y)]).to_event(1), obs=y)


def other(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([len(y)]).to_event(1), obs=y)


def plated(x, y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ loc, scale), obs=y)


PLATED = np.ones((4, 3)), np.ones(4)
ROWLESS = np.ones((0, 3)), np.ones(0)


LISTED = {"init_loc_fn": init_to_value(values={"loc": [-1.0, 0.0, 1.0]})}


def starting(site, *shape):
    return {"init_loc_fn": init_to_value(values={site: jnp.ones(shape)})}


def of_several(model, **options):
    """A guide of the locations, with options, and of all else."""
    guide = AutoGuideList(model)
    guide.append(AutoNormal(handlers.block(model, expose=["loc"]), **options))
    guide.append(AutoNormal(handlers.block(model, hide=["loc"])))
    return guide


def log_joint(position):
    return -0.5 * jnp.sum(position["loc"] ** 2)


def relu_network(params, x):
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"]


def noisy(params, x):
    return relu_network(params, x) + np.random.rand()  # noqa: NPY002


def nothing_finite(tree):
    return jax.tree.map(lambda x: x * np.nan, tree)


def first_entry(tree):
    return jnp.stack([tree["net"]["one"].sum()])


def unobserved(y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    numpyro.sample("beside", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(loc.sum(), 1.0).expand([len(y)]).to_event(1), obs=y)


def squared(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x @ a + b**2, 1.0).to_event(1), obs=y)


def coin(y):
    z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2), infer={"enumerate": "parallel"})
    numpyro.sample("y", dist.Normal(1.0 * z, 1.0).expand([len(y)]).to_event(1), obs=y)


def of_nobody():
    """A cost by allocations, all of them to one component."""
    return ns.AllocationCost(np.zeros((2, 30, 5), int))


def of_two_groups(w):
    draws = {"loc": w.draws["loc"], "mu": w.draws["loc"][..., :2]}
    return ns.rebase(draws, ns.Symmetry({"loc": ("a",), "mu": ("b",)}), null=False)


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
    rows = jnp.asarray(rng.normal(size=(7, 2)), jnp.float32)
    weights = {
        "w1": jnp.asarray(rng.normal(size=(2, 4)), jnp.float32),
        "b1": jnp.asarray(rng.normal(size=4), jnp.float32),
        "w2": jnp.asarray(rng.normal(size=(4, 1)), jnp.float32),
    }
    wider = {"w1": jnp.ones((2, 5)), "b1": jnp.ones(5), "w2": jnp.ones((5, 1))}
    units = ns.Symmetry({"w1": (None, "u"), "b1": ("u",), "w2": ("u", None)})
    scaling = ns.find_scaling(relu_network, (weights, rows), units)
    activations = ns.find_activations(relu_network, (weights, rows), units)
    tree = {"net": {"one": np.ones((2, 4)), "two": np.ones((4, 1))}}
    of_tree = ns.Symmetry({"net.one": (None, "u"), "net.two": ("u", None)})
    other_tree = {"net": {"one": np.ones((2, 4)), "three": np.ones((4, 1))}}
    wider_tree = {"net": {"one": np.ones((2, 5)), "two": np.ones((5, 1))}}
    normal = AutoNormal(mixture)
    full = ns.FullGaussian(gaussian.loc, np.eye(3))
    point = ns.DiagonalGaussian(gaussian.loc, {"loc": np.zeros(3)})
    few = ns.compare({"loc": draws["loc"][:1, :3]}, draws, symmetry)
    return SimpleNamespace(**locals())


def misspelt(w):
    return {"loc_auto_locs": w.params["loc_auto_loc"], "loc_auto_scale": w.params["loc_auto_scale"]}


def unconstrained(w):
    return w.params | {"loc_auto_scale": jnp.log(w.params["loc_auto_scale"])}


BAR = ("progress_bar", "'no'")
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
    Bad(
        "mixture, group a number", lambda w: ns.Symmetry.mixture("a", group=3), TypeError, ("group must be a name", "3")
    ),
    Bad(
        "hmm, initial an array",
        lambda w: ns.Symmetry.hmm(transition="A", initial=w.y, emissions=()),
        TypeError,
        ("initial",),
    ),
    Bad("factor, others a number", lambda w: ns.Symmetry.factor("L", others=3), TypeError, ("others", "mapping", "3")),
    Bad("layout an array", lambda w: ns.Symmetry.mlp([("a", "b")], layout=w.y), ns.SymmetryError, ("layout",)),
    Bad("complement of a number", lambda w: ns.Complement(3), TypeError, ("Complement", "3")),
    Bad("complement without a name", lambda w: ns.Complement(""), ns.SymmetryError, ("Complement", "empty")),
    Bad("complement of words", lambda w: ns.Complement("u", total="one"), TypeError, ("Complement", "total", "'one'")),
    Bad("complement twice", lambda w: ns.Symmetry({"p": (ns.Complement("u"),) * 2}), ns.SymmetryError, ("'p'", "once")),
    Bad(
        "complement last",
        lambda w: ns.Symmetry({"p": (None, ns.Complement("u"))}),
        ns.SymmetryError,
        ("'p'", "before its own axes"),
    ),
    Bad(
        "complement with signs",
        lambda w: ns.Symmetry({"p": (ns.Complement("u"),)}, {"u": "signed"}),
        ns.SymmetryError,
        ("'p'", "'permutation'"),
    ),
    Bad(
        "complement of three",
        lambda w: ns.Symmetry({"p": (ns.Complement("u"),), "w": ("u",)}).bind({"p": 0.5, "w": np.ones(3)}),
        ns.SymmetryError,
        ("'w'", "size 3"),
    ),
    Bad(
        "complement within a split",
        lambda w: ns.Symmetry({"p": (ns.Split((2, 2), (ns.Complement("u"), None)),)}),
        ns.SymmetryError,
        ("'p'", "Complement"),
    ),
    Bad("kind an array", lambda w: ns.Symmetry.factor("a", kind=w.y), ns.SymmetryError, ("kind",)),
    Bad("a list for an element", lambda w: w.bound.apply([0, 1, 2], w.values), TypeError, ("each group", "list")),
    Bad("restricted to no group", lambda w: w.symmetry.restrict(["nope"]), ns.SymmetryError, ("'nope'", "'component'")),
    Bad(
        "nested values",
        lambda w: w.units.apply({"u": np.arange(4)}, {"w1": {"a": np.ones((2, 4))}, "b1": 1.0, "w2": 1.0}),
        ns.SymmetryError,
        ("'w1'", "flatten", "'b1', 'w1', 'w2'"),
    ),
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
    Bad("table of truths", lambda w: ns.log_permanent(jnp.ones((2, 2), bool)), TypeError, ("log_matrix", "bool")),
]

COMPILED = ("compiled by jax.jit", "mixture.__wrapped__", "argnum=0")
TRANSFORMED = ("mixture is transformed by JAX (jax.checkpoint", "mixture.__wrapped__", "argnum=0")
WITHIN = ("Site 'scale'", "sampled within a function that JAX transforms", "transformed(value, x)")


def in_part(y):
    """A mixture a part of which is computed anew in reverse, and samples."""
    scale = jax.checkpoint(lambda: numpyro.sample("scale", dist.HalfNormal(1.0)))()
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    mixed = dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(loc, scale))
    numpyro.sample("y", mixed.expand([len(y)]).to_event(1), obs=y)


def named(w, *dims):
    """Draws of a dict by an array whose dimensions have names."""
    return {"loc": xr.DataArray(w.draws["loc"].transpose([DIMS.index(dim) for dim in dims]), dims=dims)}


DIMS = ("chain", "draw", "component")


def in_two_orders(w):
    """Draws of a dict by arrays with coordinates, those of one site in reverse."""
    loc = named(w, *DIMS)["loc"].assign_coords(draw=np.arange(w.draws["loc"].shape[1]))
    return {"loc": loc, "beside": loc.isel(draw=slice(None, None, -1))}


DISCOVERY = [
    Bad("a compiled model", lambda w: ns.find_symmetry(jax.jit(mixture), (w.y,)), TypeError, COMPILED),
    Bad(
        "a compiled model within a handler",
        lambda w: ns.check_symmetry(handlers.scale(jax.jit(mixture), 2.0), w.symmetry, (w.y,)),
        TypeError,
        COMPILED,
    ),
    Bad(
        "a guide of a compiled model",
        lambda w: ns.AutoSymmetrized(AutoNormal(jax.jit(mixture))).setup(KEY, w.y),
        TypeError,
        COMPILED,
    ),
    Bad(
        "a compiled model with an argument filled in",
        lambda w: ns.find_symmetry(functools.partial(jax.jit(mixture), y=w.y)),
        TypeError,
        COMPILED,
    ),
    Bad("a model within remat", lambda w: ns.find_symmetry(jax.checkpoint(mixture), (w.y,)), TypeError, TRANSFORMED),
    Bad("a guide of one", lambda w: ns.AutoSymmetrized(AutoNormal(jax.remat(mixture))), TypeError, TRANSFORMED),
    Bad("a conditional of one", lambda w: ns.AutoConditional(AutoNormal(jax.remat(mixture))), TypeError, TRANSFORMED),
    Bad("units of one", lambda w: ns.AutoUnitNormal(jax.remat(mixture)), TypeError, TRANSFORMED),
    Bad(
        "log_evidence, a function without its data",
        lambda w: ns.log_evidence(w.draws, lambda v, y: -jnp.sum(v["loc"] ** 2) - y, ({"loc": w.y},), argnum=0),
        TypeError,
        ("does not fit", "'y'", "model_args=(params, x)"),
    ),
    Bad("the evidence of one", lambda w: ns.log_evidence(w.draws, jax.remat(mixture), (w.y,)), TypeError, TRANSFORMED),
    Bad("a part within remat", lambda w: ns.find_symmetry(in_part, (w.y,)), TypeError, WITHIN),
    Bad("a guide of one in part", lambda w: ns.AutoSymmetrized(AutoNormal(in_part)).setup(KEY, w.y), TypeError, WITHIN),
    Bad("a check of one", lambda w: ns.check_symmetry(in_part, w.symmetry, (w.y,)), TypeError, WITHIN),
    Bad("array for arguments", lambda w: ns.find_symmetry(mixture, w.y), TypeError, ARRAY),
    Bad("check, array for arguments", lambda w: ns.check_symmetry(mixture, w.symmetry, w.y), TypeError, ARRAY),
    Bad("integer key", lambda w: ns.find_symmetry(mixture, (w.y,), rng_key=3), TypeError, INTEGER_KEY),
    Bad("find, bar a word", lambda w: ns.find_symmetry(mixture, (w.y,), progress_bar="no"), TypeError, BAR),
    Bad("check, bar", lambda w: ns.check_symmetry(mixture, w.symmetry, (w.y,), progress_bar="no"), TypeError, BAR),
    Bad("rebase, bar a word", lambda w: ns.rebase(w.draws, w.symmetry, progress_bar="no"), TypeError, BAR),
    Bad("report, bar", lambda w: ns.report(w.draws, w.out, progress_bar="no"), TypeError, BAR),
    Bad("compare, bar", lambda w: ns.compare(w.draws, w.draws, w.symmetry, progress_bar="no"), TypeError, BAR),
    Bad("evidence, bar", lambda w: ns.log_evidence(w.draws, mixture, (w.y,), progress_bar="no"), TypeError, BAR),
    Bad("units, bar a word", lambda w: ns.AutoUnitNormal(mixture, progress_bar="no"), TypeError, BAR),
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
    Bad(
        "bar a word",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture), progress_bar="no"),
        TypeError,
        ("progress_bar", "'no'"),
    ),
    Bad(
        "following, bar a word",
        lambda w: ns.AutoConditional(AutoNormal(other), progress_bar=1),
        TypeError,
        ("progress_bar", "1"),
    ),
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
    Bad(
        "draws by another name",
        lambda w: w.guide.elbo_bounds(KEY, w.params, w.y, num_draws=10),
        TypeError,
        ("elbo_bounds takes num_particles, ", "the model", "['num_draws'] is none of them"),
    ),
    Bad(
        "draws of another number",
        lambda w: w.guide.sample_posterior(KEY, w.params, w.y, num_samples=10),
        TypeError,
        ("sample_posterior takes sample_shape, symmetrize, ", "['num_samples'] is none of them"),
    ),
    Bad(
        "units, draws of another number",
        lambda w: ns.AutoUnitNormal(mixture).sample_posterior(KEY, {}, w.y, num_samples=10),
        TypeError,
        ("sample_posterior takes sample_shape, ", "['num_samples'] is none of them"),
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
    Bad(
        "a number for a guide",
        lambda w: ns.AutoSymmetrized(3, w.symmetry, model=mixture),
        ns.UnsupportedGuideError,
        ("base guide", "callable", "int"),
    ),
    Bad(
        "particles a class",
        lambda w: w.guide.elbo_bounds(KEY, w.params, w.y, num_particles=int),
        TypeError,
        ("num_particles", "the class int (an instance is expected)"),
    ),
    Bad(
        "particles an array",
        lambda w: w.guide.elbo_bounds(KEY, w.params, w.y, num_particles=np.ones(2)),
        TypeError,
        ("num_particles", "an array of float64(2,)"),
    ),
    Bad(
        "parameter a word",
        lambda w: w.guide.elbo_bounds(KEY, w.params | {"loc_auto_loc": "a"}, w.y),
        ns.SymmetryError,
        ("'loc_auto_loc'", "array", "str"),
    ),
    Bad(
        "conditional sites that nothing observes",
        lambda w: handlers.seed(ns.AutoConditional(AutoNormal(unobserved), ["beside"]), KEY)(w.y),
        ns.SymmetryError,
        ("['beside']", "leave them to the base guide"),
    ),
    Bad(
        "inducing inputs of whole numbers",
        lambda w: handlers.seed(ns.AutoConditional(AutoNormal(squared), ["b"], inducing=2), KEY)(
            w.rows.astype(int), w.y[:7]
        ),
        ns.SymmetryError,
        ("['x']", "no real numbers", "inducing={'x'"),
    ),
    Bad(
        "pseudo-observations of a square",
        lambda w: handlers.seed(ns.AutoConditional(AutoNormal(squared), ["b"], inducing=2), KEY)(w.rows, w.y[:7]),
        ns.SymmetryError,
        ("'b'", "not linear", "base guide"),
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
    Bad(
        "refine, a word for a loss",
        lambda w: ns.refine("nll", w.values, w.values, w.symmetry, w.y),
        TypeError,
        ("loss", "str"),
    ),
    Bad(
        "refine, data of a batch",
        lambda w: ns.refine(lambda v, y: v["loc"].sum() * y, w.values, w.values, w.symmetry, w.y, batch_size=1000),
        ValueError,
        ("two batches", "1000", "batch_size"),
    ),
    Bad(
        "refine, integer key",
        lambda w: ns.refine(lambda v, y: v["loc"].sum() * y, w.values, w.values, w.symmetry, w.y, rng_key=3),
        TypeError,
        INTEGER_KEY,
    ),
    Bad(
        "refine, other sites",
        lambda w: ns.refine(lambda v, y: v["loc"].sum() * y, w.values, {"mu": np.zeros(3)}, w.symmetry, w.y),
        ns.SymmetryError,
        ("'loc'",),
    ),
    Bad(
        "refine, a loss and what came with it",
        lambda w: ns.refine(lambda v, y: (v["loc"].sum(), y), w.values, w.values, w.symmetry, w.y, batch_size=2),
        TypeError,
        ("tuple", "(loss, auxiliary)"),
    ),
    Bad(
        "refine, a count of errors",
        lambda w: ns.refine(
            lambda v, y: (y > v["loc"].sum()).astype(int), w.values, w.values, w.symmetry, w.y, batch_size=2
        ),
        TypeError,
        ("int", "no slope"),
    ),
    Bad(
        "refine, a batch of starts",
        lambda w: ns.refine(
            lambda v, y: v["loc"].sum() * y,
            w.values,
            w.values,
            w.symmetry,
            w.y,
            start=w.symmetry.bind(w.values).sample(KEY, (2,)),
            batch_size=2,
        ),
        ns.SymmetryError,
        ("start", "one element", "'loc'"),
    ),
    Bad(
        "refine, masked data",
        lambda w: ns.refine(
            lambda v, y: v["loc"].sum() * y, w.values, w.values, w.symmetry, np.ma.masked_less(w.y, 0.0), batch_size=2
        ),
        ValueError,
        ("masked",),
    ),
    Bad(
        "refine, an optimizer's class",
        lambda w: ns.refine(
            lambda v, y: v["loc"].sum() * y, w.values, w.values, w.symmetry, w.y, optimizer=optax.GradientTransformation
        ),
        TypeError,
        ("optimizer", "optax.adam"),
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
    Bad(
        "a Gaussian of other sites for a guide",
        lambda w: ns.DiagonalGaussian({"x": np.zeros(3)}, {"x": np.ones(3)}).to_guide_params(w.guide.base),
        ns.UnsupportedGuideError,
        ("['loc']", "['x']"),
    ),
    Bad(
        "activations without units",
        lambda w: ns.match(
            w.weights, w.weights, ns.Symmetry({"w1": (None, None)}), cost=ns.ActivationCost(lambda p: p["w1"])
        ),
        ns.SymmetryError,
        ("trivial", "activations"),
    ),
    Bad(
        "activations of fewer arrays",
        lambda w: ns.match(
            w.weights, {"w1": w.weights["w1"], "b1": w.weights["b1"]}, w.units, cost=ns.ActivationCost(lambda p: p)
        ),
        ns.SymmetryError,
        ("['b1', 'w1', 'w2']", "['b1', 'w1']"),
    ),
]

TRACES = [
    Bad(
        "named arrays, draws first",
        lambda w: ns.rebase(named(w, "draw", "chain", "component"), w.symmetry),
        ns.SymmetryError,
        ("'loc'", "('draw', 'chain', 'component')", "xarray.Dataset(draws)", "transpose('chain', 'draw', ...)"),
    ),
    Bad(
        "named arrays, draws last",
        lambda w: ns.rebase(named(w, "component", "chain", "draw"), w.symmetry),
        ns.SymmetryError,
        ("'loc'", "('component', 'chain', 'draw')", "transpose('chain', 'draw', ...)"),
    ),
    Bad(
        "named arrays, their draws in two orders",
        lambda w: ns.rebase(in_two_orders(w), w.symmetry),
        ns.SymmetryError,
        ("'loc' and 'beside'", "'draw'", "xarray.Dataset(draws)", "draws['beside'].sel({'draw': draws['loc']["),
    ),
    Bad(
        "named arrays to be relabelled, their draws in two orders",
        lambda w: ns.rebase(w.draws, w.symmetry, null=False).apply(in_two_orders(w)),
        ns.SymmetryError,
        ("'loc' and 'beside'", "'draw'", "two orders"),
    ),
    Bad(
        "axes that contradict each other",
        lambda w: ns.rebase(
            {"loadings": np.ones((4, 100, 5, 2)), "scale": np.ones((4, 100, 2))},
            ns.Symmetry({"loadings": (None, "f"), "scale": (None, "f")}),
        ),
        ns.SymmetryError,
        ("Cannot tell", "'scale': (4, 100, 2)", "num_leading_dims"),
    ),
    Bad(
        "no draws in any chain",
        lambda w: ns.rebase({"loc": w.draws["loc"][:, :0]}, w.symmetry),
        ns.SymmetryError,
        ("no draws", "'loc'", "(2, 0, 3)"),
    ),
    Bad(
        "chains in a list, taken for members of an ensemble",
        lambda w: ns.rebase([{"loc": np.resize(chain, (30, 3))} for chain in w.draws["loc"]], w.symmetry),
        ns.SymmetryError,
        ("members of an ensemble", "'loc': (30, 3)", "np.stack(chains), *members", "num_leading_dims=1"),
    ),
    Bad(
        "chains in a list, said to be chains",
        lambda w: ns.rebase([{"loc": chain} for chain in w.draws["loc"]], w.symmetry, num_leading_dims=2),
        ns.SymmetryError,
        ("members of an ensemble", "np.stack(chains), *members"),
    ),
    Bad("no symmetry, no model", lambda w: ns.rebase(w.draws), ValueError, ("model",)),
    Bad(
        "a function for a model",
        lambda w: ns.rebase(w.draws, model=lambda position: -(position["loc"] ** 2).sum()),
        TypeError,
        ("model_args=(x, y)", "find_symmetry(function, (parameters,), argnum=0)"),
    ),
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
        "no columns",
        lambda w: ns.rebase(w.draws | {"loc": np.zeros((4, 20, 0))}, w.symmetry),
        ns.SymmetryError,
        ("'loc' is empty", "(4, 20, 0)"),
    ),
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
    Bad(
        "no array within",
        lambda w: ns.rebase(w.draws | {"x": {"y": 1}}, w.symmetry),
        ns.SymmetryError,
        ("'x'", "arrays"),
    ),
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
        "allocations of no data",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.AllocationCost(np.zeros((2, 30, 0), int))),
        ns.SymmetryError,
        ("AllocationCost", "(2, 30, 0)", "the data, one at least"),
    ),
    Bad(
        "probabilities of no data",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.StephensCost(np.zeros((2, 30, 0, 3)))),
        ns.SymmetryError,
        ("StephensCost", "(2, 30, 0, 3)", "the data, one at least, then 3 labels"),
    ),
    Bad(
        "allocations, no array",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=ns.AllocationCost(None)),
        ns.SymmetryError,
        ("AllocationCost", "()"),
    ),
    Bad(
        "a cost under vmap",
        lambda w: jax.vmap(lambda p: ns.rebase(w.draws, w.symmetry, cost=ns.StephensCost(p)).objective)(
            jnp.ones((1, 2, 30, 4, 3))
        ),
        TypeError,
        ("StephensCost", "vmap"),
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
    Bad(
        "member, masked",
        lambda w: ns.rebase([w.values, {"loc": w.masked["loc"][0, 0]}], w.symmetry),
        ns.SymmetryError,
        ("Member 1", "'loc'", "masked", "filled"),
    ),
    Bad("member, no array", lambda w: ns.rebase([{"loc": Tensor()}], w.symmetry), ns.SymmetryError, ("Member 0",)),
    Bad(
        "ragged draws",
        lambda w: ns.rebase({"loc": [[np.ones(3), np.ones(2)], [np.ones(3), np.ones(3)]]}, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "ragged", "one shape"),
    ),
    Bad(
        "ordered by signed slots",
        lambda w: ns.rebase(w.draws, ns.Symmetry({"loc": ("s",)}, {"s": "signed"}), order_by="loc"),
        ns.SymmetryError,
        ("order_by='loc'", "['s'] with signs", "signs=False"),
    ),
    Bad(
        "ordered by pairs of slots",
        lambda w: ns.rebase({"t": np.ones((2, 30, 3, 3))}, ns.Symmetry({"t": ("s", "s")}), order_by="t"),
        ns.SymmetryError,
        ("order_by='t'", "['s', 's']", "once"),
    ),
    Bad(
        "reference not positive",
        lambda w: ns.rebase(
            {"loc": np.exp(w.draws["loc"])}, w.symmetry, cost=ns.EuclideanCost({"loc": "log"}), reference=w.values
        ),
        ns.SymmetryError,
        ("'loc' of the reference", "not positive", "logarithm"),
    ),
    Bad(
        "reference of values for allocations",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=of_nobody(), reference=w.values),
        ns.SymmetryError,
        ("AllocationCost", "reference", "not values"),
    ),
    Bad(
        "reference by allocations",
        lambda w: ns.rebase(
            w.draws, w.symmetry, reference=ns.rebase(w.draws, w.symmetry, cost=of_nobody(), null=False)
        ),
        ns.SymmetryError,
        ("AllocationCost", "a cost of the same kind"),
    ),
    Bad(
        "reference by allocations of fewer data",
        lambda w: ns.rebase(
            w.draws,
            w.symmetry,
            cost=ns.AllocationCost(np.zeros((2, 30, 4), int)),
            reference=ns.rebase(w.draws, w.symmetry, cost=of_nobody(), null=False),
        ),
        ns.SymmetryError,
        ("statistics of shape", "(5, 3)", "(4, 3)"),
    ),
    Bad(
        "reference by another cost",
        lambda w: ns.rebase(w.draws, w.symmetry, cost=of_nobody(), reference=w.out),
        ns.SymmetryError,
        ("GaussianCost", "AllocationCost"),
    ),
    Bad("transform unknown", lambda w: ns.EuclideanCost({"loc": "logg"}), ValueError, ("'log'", "['logg']")),
    Bad(
        "applied to fewer draws",
        lambda w: w.out.apply(xr.Dataset({"loc": (("chain", "draw", "slot"), w.draws["loc"][:, :20])})),
        ns.SymmetryError,
        ("(2, 20)", "(2, 30)"),
    ),
    Bad(
        "labels of signed slots",
        lambda w: ns.rebase(w.draws, ns.Symmetry({"loc": ("s",)}, {"s": "signed"}), null=False).apply(
            {"z": np.zeros((2, 30, 5), int)}, labels={"z": "s"}
        ),
        ns.SymmetryError,
        ("'z'", "'s'", "no permutation group"),
    ),
    Bad(
        "members of dicts of nothing",
        lambda w: ns.rebase([{"loc": {"a": None}}] * 3, w.symmetry),
        ns.SymmetryError,
        ("Member 0", "'loc'", "['a']", "no arrays"),
    ),
    Bad("axes not by site", lambda w: w.out.apply({"z": w.draws["loc"]}, axes=["z"]), TypeError, ("axes", "list")),
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
    Bad(
        "plot of the evidence of nothing",
        lambda w: ns.diagnostics.plot_evidence({}),
        TypeError,
        ("log_evidence", "dict"),
    ),
    Bad(
        "plot of numbers for evidence", lambda w: ns.diagnostics.plot_evidence({3: -2.0}), TypeError, ("log_evidence",)
    ),
    Bad("ax a word", lambda w: ns.diagnostics.plot_transpositions(w.out, ax="a"), TypeError, ("ax", "str")),
    Bad(
        "pair of axes a word",
        lambda w: ns.diagnostics.plot_relabelling(w.draws, w.out, ax="ab"),
        TypeError,
        ("axes", "pair"),
    ),
    Bad(
        "group a list",
        lambda w: ns.diagnostics.plot_transpositions(w.out, ["component"]),
        ns.SymmetryError,
        ("group", "['component']"),
    ),
    Bad(
        "plot of slots of two groups",
        lambda w: ns.diagnostics.plot_relabelling(of_two_groups(w), sites=("loc", "mu")),
        ns.SymmetryError,
        ("('loc', 'mu')", "different groups"),
    ),
    Bad(
        "plot of no slots",
        lambda w: ns.diagnostics.plot_relabelling(
            ns.rebase({"t": np.ones((2, 30, 3, 3))}, ns.Symmetry({"t": ("s", "s")}), null=False)
        ),
        ns.SymmetryError,
        ("['t']", "no slots to draw"),
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
    Bad(
        "data of nan, beside a random key",
        lambda w: ns.log_evidence(w.draws, shifted, (w.y, np.float32("nan"), KEY)),
        ns.SymmetryError,
        ("'y'", "NaN in model_args[1] (1 of 1)"),
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
    Bad(
        "discrete sites alone",
        lambda w: ns.log_evidence({"z": np.zeros((2, 30), int)}, coin, (w.y,)),
        ns.SymmetryError,
        ("no continuous latent site",),
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

COMPARISONS = [
    Bad(
        "a draw that is no number",
        lambda w: ns.compare(
            {"loc": np.where(np.arange(30)[:, None] == 5, np.nan, w.draws["loc"])}, w.draws, w.symmetry
        ),
        ns.SymmetryError,
        ("'loc' is not finite in 2 of 60 draws", "(0, 5)"),
    ),
    Bad(
        "other sites",
        lambda w: ns.compare(w.draws, {"mu": w.draws["loc"]}, w.symmetry),
        ns.SymmetryError,
        ("Posterior 'b'", "'loc'", "'mu'"),
    ),
    Bad(
        "other sizes",
        lambda w: ns.compare(w.draws, {"loc": w.draws["loc"][..., :2]}, w.symmetry, names=("x", "y")),
        ns.SymmetryError,
        ("'component'", "3 labels in 'x'", "2 in 'y'"),
    ),
    Bad(
        "symmetry of other sizes",
        lambda w: ns.compare(w.draws, w.draws, ns.Symmetry({"loc": ("u",)}, sizes={"u": 4})),
        ns.SymmetryError,
        ("Posterior 'a'", "size 3", "size 4"),
    ),
    Bad(
        "symmetry of another site",
        lambda w: ns.compare(w.draws, w.draws, ns.Symmetry.mixture("mu")),
        ns.SymmetryError,
        ("Posterior 'a'", "'mu'", "'loc'"),
    ),
    Bad("trivial", lambda w: ns.compare(w.draws, w.draws, ns.Symmetry({})), ns.SymmetryError, ("trivial",)),
    Bad(
        "one draw",
        lambda w: ns.compare(w.draws, {"loc": w.draws["loc"][:1, :1]}, w.symmetry, num_leading_dims=2),
        ns.SymmetryError,
        ("Posterior 'b'", "1 draw"),
    ),
    Bad(
        "constant",
        lambda w: ns.compare({"loc": np.ones((2, 30, 3))}, {"loc": np.ones((2, 30, 3))}, w.symmetry),
        ns.SymmetryError,
        ("Nothing varies", "120 draws"),
    ),
    Bad(
        "nan",
        lambda w: ns.compare(w.draws, nothing_finite(w.draws), w.symmetry),
        ns.SymmetryError,
        ("Posterior 'b'", "'loc'", "60 of 60"),
    ),
    Bad(
        "masked",
        lambda w: ns.compare(w.masked, w.draws, w.symmetry),
        ns.SymmetryError,
        ("Posterior 'a'", "'loc'", "mask"),
    ),
    Bad(
        "chains of other sites' lengths",
        lambda w: ns.compare(
            {"loc": [np.ones((9, 3)), np.ones((8, 3))], "s": [np.ones(9), np.ones(9)]}, w.draws, w.symmetry
        ),
        ns.SymmetryError,
        ("'loc'", "(9, 8)", "'s'", "(9, 9)"),
    ),
    Bad(
        "chains of other shapes",
        lambda w: ns.compare({"loc": [np.ones((9, 3)), np.ones((8, 2))]}, w.draws, w.symmetry),
        ns.SymmetryError,
        ("Posterior 'a'", "'loc'", "(2,)", "(3,)"),
    ),
    Bad(
        "an empty chain",
        lambda w: ns.compare({"loc": [np.ones((9, 3)), np.ones((0, 3))]}, w.draws, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "(9, 0)"),
    ),
    Bad("integer key", lambda w: ns.compare(w.draws, w.draws, w.symmetry, rng_key=3), TypeError, INTEGER_KEY),
    Bad("no symmetry", lambda w: ns.compare(w.draws, w.draws, None), TypeError, ("symmetry", "NoneType")),
    Bad(
        "under jit",
        lambda w: jax.jit(lambda x: ns.compare({"loc": x}, w.draws, w.symmetry).p_value)(w.draws["loc"]),
        TypeError,
        JIT,
    ),
    Bad("guide alone", lambda w: ns.compare(w.draws, w.normal, w.symmetry), TypeError, ("'b'", "(guide, params)")),
    Bad(
        "guide, not set up",
        lambda w: ns.compare(w.draws, (w.normal, w.params), w.symmetry),
        TypeError,
        ("mixture(y)", "model_args"),
    ),
    Bad(
        "guide, no parameters",
        lambda w: ns.compare(w.draws, (w.guide, {}), w.symmetry, model_args=(w.y,)),
        ns.SymmetryError,
        ("Posterior 'b'", "loc_auto_loc"),
    ),
    Bad(
        "guide, misshapen",
        lambda w: ns.compare(
            w.draws, (w.normal, w.params | {"loc_auto_loc": jnp.ones(1)}), w.symmetry, model_args=(w.y,)
        ),
        ns.SymmetryError,
        ("loc_auto_loc", "(3,)", "(1,)"),
    ),
    Bad(
        "guide, not finite",
        lambda w: ns.compare(
            w.draws, (w.normal, w.params | {"loc_auto_loc": jnp.full(3, jnp.nan)}), w.symmetry, model_args=(w.y,)
        ),
        ns.SymmetryError,
        ("loc_auto_loc", "finite"),
    ),
    Bad(
        "guide by hand",
        lambda w: ns.compare(w.draws, (lambda y: None, {}), w.symmetry),
        TypeError,
        ("guide", "AutoSymmetrized"),
    ),
    Bad(
        "a Gaussian",
        lambda w: ns.compare(w.draws, w.gaussian, w.symmetry),
        ns.SymmetryError,
        ("Posterior 'b'", "DiagonalGaussian", "dict"),
    ),
    Bad(
        "trees that differ",
        lambda w: ns.compare({"p": w.draws}, {"q": w.draws}, ns.Symmetry({"p.loc": ("u",)})),
        ns.SymmetryError,
        ("Posterior 'b'", "'p.loc'", "'q.loc'"),
    ),
    Bad(
        "one name",
        lambda w: ns.compare(w.draws, w.draws, w.symmetry, names=("a", "a")),
        ValueError,
        ("names", "different"),
    ),
    Bad(
        "exchanges",
        lambda w: ns.compare(w.draws, w.draws, w.symmetry, num_exchanges=9),
        ValueError,
        ("num_exchanges", "19", "no p-value", "9"),
    ),
    Bad("level", lambda w: ns.compare(w.draws, w.draws, w.symmetry, level=5), ValueError, ("level", "5")),
    Bad(
        "independent unknown",
        lambda w: ns.compare(w.draws, w.draws, w.symmetry, independent=("c",)),
        ValueError,
        ("independent", "'c'", "'b'"),
    ),
    Bad(
        "sites unknown",
        lambda w: ns.compare(w.draws, w.draws, w.symmetry, sites=["mu"]),
        ns.SymmetryError,
        ("sites", "'mu'", "'loc'"),
    ),
    Bad("pairs of one", lambda w: ns.diagnostics.compare_pairs({"a": w.draws}, w.symmetry), ValueError, ("two",)),
    Bad(
        "pairs in a list",
        lambda w: ns.diagnostics.compare_pairs([w.draws, w.draws], w.symmetry),
        ValueError,
        ("mapping",),
    ),
    Bad(
        "pairs without names",
        lambda w: ns.diagnostics.compare_pairs({0: w.draws, 1: w.draws}, w.symmetry),
        TypeError,
        ("posteriors", "[0, 1]"),
    ),
    Bad(
        "pairs, option misspelt",
        lambda w: ns.diagnostics.compare_pairs({"a": w.draws, "b": w.draws}, w.symmetry, num_exchange=99),
        TypeError,
        ("num_exchange", "num_exchanges"),
    ),
    Bad(
        "pairs, one of them of other sites",
        lambda w: ns.diagnostics.compare_pairs({"a": w.draws, "c": {"mu": w.draws["loc"]}}, w.symmetry),
        ns.SymmetryError,
        ("Posterior 'c'", "'loc'"),
    ),
    Bad(
        "pairs, no symmetry",
        lambda w: ns.diagnostics.compare_pairs({"a": w.draws, "b": w.draws}, None),
        TypeError,
        ("symmetry",),
    ),
    Bad(
        "pairs, bar a word",
        lambda w: ns.diagnostics.compare_pairs({"a": w.draws, "b": w.draws}, w.symmetry, progress_bar="no"),
        TypeError,
        ("progress_bar", "'no'"),
    ),
    Bad("plot of draws", lambda w: ns.diagnostics.plot_comparison(w.draws), TypeError, ("compare", "dict")),
    Bad("plot of too few", lambda w: ns.diagnostics.plot_comparison(w.few), ns.SymmetryError, ("not enough draws",)),
    Bad("plot of relabelled draws", lambda w: ns.diagnostics.plot_comparison(w.out), TypeError, ("compare", "Rebased")),
    Bad("plot of nothing", lambda w: ns.diagnostics.plot_comparison(None), TypeError, ("compare", "NoneType")),
    Bad(
        "plot of several",
        lambda w: ns.diagnostics.plot_comparison(ns.diagnostics.Comparisons((w.few,))),
        TypeError,
        ("compare", "Comparisons"),
    ),
    Bad(
        "plot on a word",
        lambda w: ns.diagnostics.plot_comparison(w.few._replace(p_value=0.5), ax="a"),
        TypeError,
        ("ax", "str"),
    ),
]

MERGES = [
    Bad("nothing", lambda w: ns.merge([], w.symmetry), ns.SymmetryError, ("empty",)),
    Bad("stacked", lambda w: ns.merge({"loc": np.ones((2, 3))}, w.symmetry), TypeError, ("solutions", "list", "dict")),
    Bad(
        "other structures",
        lambda w: ns.merge([w.tree, w.other_tree], w.of_tree),
        ns.SymmetryError,
        ("'net.two'", "solution 0", "solution 1"),
    ),
    Bad(
        "other widths",
        lambda w: ns.merge([w.tree, w.wider_tree], w.of_tree),
        ns.SymmetryError,
        ("'net.one'", "(2, 4)", "(2, 5)", "solution 1"),
    ),
    Bad(
        "other sites",
        lambda w: ns.merge([w.values, {"mu": np.ones(3)}], w.symmetry),
        ns.SymmetryError,
        ("Solution 1", "'mu'"),
    ),
    Bad(
        "other sizes",
        lambda w: ns.merge([w.values, w.values, {"loc": np.ones(4)}], w.symmetry),
        ns.SymmetryError,
        ("Solution 2", "'loc'", "(4,)", "(3,)"),
    ),
    Bad(
        "nan",
        lambda w: ns.merge([w.values, nothing_finite(w.values)], w.symmetry),
        ns.SymmetryError,
        ("Solution 1", "'loc'", "finite"),
    ),
    Bad(
        "masked",
        lambda w: ns.merge([w.values, {"loc": w.masked["loc"][0, 0]}], w.symmetry),
        ns.SymmetryError,
        ("Solution 1", "mask"),
    ),
    Bad(
        "complex",
        lambda w: ns.merge([w.values, {"loc": np.ones(3) * 1j}], w.symmetry),
        ns.SymmetryError,
        ("Solution 1", "complex"),
    ),
    Bad(
        "guide alone",
        lambda w: ns.merge([w.guide, w.guide], w.symmetry),
        ns.SymmetryError,
        ("Solution 0", "(guide, params)"),
    ),
    Bad(
        "guides, one misshapen",
        lambda w: ns.merge([(w.guide.base, w.params | {"loc_auto_loc": jnp.ones(1)})], w.symmetry, how="barycenter"),
        ValueError,
        ("Solution 0", "loc_auto_loc"),
    ),
    Bad(
        "points and Gaussians",
        lambda w: ns.merge([w.gaussian, w.values], w.symmetry, how="product"),
        ns.SymmetryError,
        ("Solution 1", "points", "DiagonalGaussian"),
    ),
    Bad(
        "Gaussians of other sites",
        lambda w: ns.merge(
            [w.gaussian, ns.DiagonalGaussian({"mu": np.ones(3)}, {"mu": np.ones(3)})], w.symmetry, how="product"
        ),
        ns.SymmetryError,
        ("Solution 1", "'loc' is in one alone", "'mu' is in the other"),
    ),
    Bad(
        "two kinds of Gaussians",
        lambda w: ns.merge([w.gaussian, w.full], w.symmetry, how="product"),
        ns.SymmetryError,
        ("Solution 1", "FullGaussian"),
    ),
    Bad(
        "how unknown",
        lambda w: ns.merge([w.values], w.symmetry, how="average"),
        ValueError,
        ("how", "'average'", "'mean'"),
    ),
    Bad("how a class", lambda w: ns.merge([w.values], w.symmetry, how=ns.matching.Mean), ValueError, ("how", "Mean")),
    Bad(
        "method unknown",
        lambda w: ns.merge([w.values], w.symmetry, method="greedy"),
        ValueError,
        ("method", "'greedy'"),
    ),
    Bad("no symmetry", lambda w: ns.merge([w.values], None), TypeError, ("symmetry", "NoneType")),
    Bad(
        "symmetry of another site",
        lambda w: ns.merge([w.values], ns.Symmetry.mixture("mu")),
        ns.SymmetryError,
        ("'mu'", "'loc'"),
    ),
    Bad(
        "under jit",
        lambda w: jax.jit(lambda x: ns.merge([{"loc": x}], w.symmetry).merged)(w.values["loc"]),
        TypeError,
        JIT,
    ),
    Bad(
        "mean of Gaussians",
        lambda w: ns.merge([w.gaussian], w.symmetry, how=ns.matching.Mean()),
        ns.SymmetryError,
        ("'mean'", "'barycenter'"),
    ),
    Bad(
        "barycentre of points",
        lambda w: ns.merge([w.values], w.symmetry, how=ns.matching.Barycenter()),
        ns.SymmetryError,
        ("'barycenter'", "'mean'"),
    ),
    Bad(
        "product of points",
        lambda w: ns.merge([w.values], w.symmetry, how="product"),
        ns.SymmetryError,
        ("'product'", "'mean'"),
    ),
    Bad(
        "product without width",
        lambda w: ns.merge([w.gaussian, w.point], w.symmetry, how="product"),
        ns.SymmetryError,
        ("Solution 1", "zero", "'loc'"),
    ),
    Bad(
        "prior without width",
        lambda w: ns.merge([w.gaussian] * 2, w.symmetry, how=ns.matching.Product(w.point)),
        ns.SymmetryError,
        ("prior=", "zero"),
    ),
    Bad(
        "prior that tells labels apart",
        lambda w: ns.merge([w.gaussian] * 2, w.symmetry, how=ns.matching.Product(w.gaussian)),
        ns.SymmetryError,
        ("prior=", "'component'"),
    ),
    Bad(
        "prior of another kind",
        lambda w: ns.merge([w.gaussian] * 2, w.symmetry, how=ns.matching.Product(w.full)),
        ns.SymmetryError,
        ("prior=", "FullGaussian"),
    ),
    Bad(
        "prior a distribution",
        lambda w: ns.merge([w.gaussian] * 2, w.symmetry, how=ns.matching.Product(dist.Normal())),
        ns.SymmetryError,
        ("prior=", "Normal"),
    ),
    Bad(
        "prior of other sites",
        lambda w: ns.merge(
            [w.gaussian] * 2, w.symmetry, how=ns.matching.Product(ns.DiagonalGaussian({"mu": 0.0}, {"mu": 1.0}))
        ),
        ns.SymmetryError,
        ("prior=", "'loc'", "'mu'"),
    ),
]

FUNCTIONS = [
    Bad(f"{name}, {what}", lambda w, call=call, find=find: call(w, find), error, words)
    for name, find in {
        "activations": lambda w, f, args, **more: ns.find_activations(f, args, w.units, **more),
        "scaling": lambda w, f, args, **more: ns.find_scaling(f, args, w.units, **more),
        "symmetry": lambda w, f, args, **more: ns.find_symmetry(f, args, **{"argnum": 0, **more}),
    }.items()
    for what, call, error, words in [
        (
            "arguments a dict",
            lambda w, find: find(w, relu_network, w.weights),
            TypeError,
            ("tuple", "(params, x)", "dict"),
        ),
        ("arguments an array", lambda w, find: find(w, relu_network, w.rows), TypeError, ("tuple", "(params, x)")),
        ("too few arguments", lambda w, find: find(w, relu_network, (w.weights,)), TypeError, ("relu_network", "'x'")),
        (
            "argnum beyond",
            lambda w, find: find(w, relu_network, (w.weights, w.rows), argnum=5),
            TypeError,
            ("argnum", "5", "2"),
        ),
        (
            "argnum negative",
            lambda w, find: find(w, relu_network, (w.weights, w.rows), argnum=-1),
            ValueError,
            ("argnum", "-1"),
        ),
        (
            "argnum a word",
            lambda w, find: find(w, relu_network, (w.weights, w.rows), argnum="x"),
            TypeError,
            ("argnum", "'x'"),
        ),
        (
            "argnum without arrays",
            lambda w, find: find(w, lambda n, x: x, (3, w.rows)),
            ns.SymmetryError,
            ("argnum", "no arrays", "int"),
        ),
        ("no function", lambda w, find: find(w, None, (w.weights, w.rows)), TypeError, ("function", "None")),
        ("random", lambda w, find: find(w, noisy, (w.weights, w.rows)), ns.SymmetryError, ("deterministic", "key")),
        (
            "parameters of nan",
            lambda w, find: find(w, relu_network, (nothing_finite(w.weights), w.rows)),
            ns.SymmetryError,
            ("'b1'", "NaN"),
        ),
        (
            "data of nan",
            lambda w, find: find(w, relu_network, (w.weights, w.rows * np.nan)),
            ns.SymmetryError,
            ("NaN", "arguments"),
        ),
        (
            "masked",
            lambda w, find: find(w, relu_network, (w.weights, np.ma.masked_array(w.rows, mask=True))),
            ns.SymmetryError,
            ("[1]", "mask"),
        ),
        (
            "parameters of objects",
            lambda w, find: find(w, relu_network, (w.weights | {"b1": np.full(4, None)}, w.rows)),
            ns.SymmetryError,
            ("'b1'", "object"),
        ),
        (
            "shapes",
            lambda w, find: find(w, relu_network, (jax.eval_shape(lambda: w.weights), w.rows)),
            ns.SymmetryError,
            ("ShapeDtypeStruct", "values"),
        ),
        (
            "under jit",
            lambda w, find: jax.jit(lambda p: (find(w, relu_network, (p, w.rows)), p)[1])(w.weights),
            TypeError,
            JIT,
        ),
        (
            "branches",
            lambda w, find: find(w, lambda p, x: x if p["b1"][0] > 0 else -x, (w.weights, w.rows)),
            ns.SymmetryError,
            ("branches", "jnp.where"),
        ),
        ("a model", lambda w, find: find(w, mixture, (w.y,)), ns.SymmetryError, ("'loc'", "model", "argnum")),
        (
            "returns nothing",
            lambda w, find: find(w, lambda p, x: None, (w.weights, w.rows)),
            ns.SymmetryError,
            ("no arrays",),
        ),
        (
            "returns words",
            lambda w, find: find(w, lambda p, x: "y", (w.weights, w.rows)),
            ns.SymmetryError,
            ("str", "arrays"),
        ),
    ]
]
FUNCTIONS += [
    Bad(
        "an array that is not read",
        lambda w: ns.find_symmetry(relu_network, (w.weights | {"more": jnp.ones(4)}, w.rows), argnum=0),
        ns.SymmetryWarning,
        ("'more'", "read by nothing"),
    ),
    Bad(
        "rules in a list",
        lambda w: ns.find_symmetry(relu_network, (w.weights, w.rows), argnum=0, rules=["tanh"]),
        TypeError,
        ("rules", "mapping"),
    ),
    Bad(
        "a rule no function",
        lambda w: ns.find_symmetry(relu_network, (w.weights, w.rows), argnum=0, rules={"tanh": 3}),
        TypeError,
        ("rules", "3"),
    ),
    Bad(
        "part of a function",
        lambda w: ns.find_symmetry(relu_network, (w.weights, w.rows), argnum=0, part="likelihood"),
        ValueError,
        ("part", "argnum"),
    ),
    Bad(
        "scaling, no symmetry",
        lambda w: ns.find_scaling(relu_network, (w.weights, w.rows), None),
        TypeError,
        ("symmetry", "NoneType"),
    ),
    Bad(
        "activations, no symmetry",
        lambda w: ns.find_activations(relu_network, (w.weights, w.rows), None),
        TypeError,
        ("symmetry", "NoneType"),
    ),
    Bad(
        "scaling, other widths",
        lambda w: ns.find_scaling(relu_network, (w.wider, w.rows), w.units.bind(w.weights)),
        ns.SymmetryError,
        ("size 5", "size 4"),
    ),
    Bad(
        "activations, other widths",
        lambda w: ns.find_activations(relu_network, (w.wider, w.rows), w.units.bind(w.weights)),
        ns.SymmetryError,
        ("size 5", "size 4"),
    ),
    Bad(
        "activations, trivial",
        lambda w: ns.find_activations(relu_network, (w.weights, w.rows), ns.Symmetry({})),
        ns.SymmetryError,
        ("trivial",),
    ),
    Bad(
        "activations of part of a network",
        lambda w: w.activations({"w1": w.weights["w1"]}),
        ns.SymmetryError,
        ("'b1'", "'w2'", "missing"),
    ),
    Bad("activations of nothing", lambda w: w.activations(None), ns.SymmetryError, ("'w1'", "missing")),
    Bad("activations of another width", lambda w: w.activations(w.wider), ns.SymmetryError, ("'b1'", "(5,)", "(4,)")),
    Bad(
        "balanced, another width", lambda w: w.scaling.balanced(w.wider), ns.SymmetryError, ("'w1'", "(2, 5)", "(2, 4)")
    ),
    Bad(
        "balanced, part of a network",
        lambda w: w.scaling.balanced({"w1": w.weights["w1"]}),
        ns.SymmetryError,
        ("'b1'", "missing"),
    ),
    Bad("balanced, nan", lambda w: w.scaling.balanced(nothing_finite(w.weights)), ns.SymmetryError, ("'w1'", "finite")),
    Bad(
        "balanced, masked",
        lambda w: w.scaling.balanced(w.weights | {"b1": np.ma.masked_array(np.ones(4), mask=True)}),
        ns.SymmetryError,
        ("'b1'", "mask"),
    ),
    Bad(
        "balanced, whole numbers",
        lambda w: w.scaling.balanced(jax.tree.map(lambda x: np.ones(x.shape, int), w.weights)),
        ns.SymmetryError,
        ("'w1'", "int", "float"),
    ),
    Bad(
        "balanced, draws",
        lambda w: w.scaling.balanced(jax.tree.map(lambda x: jnp.stack([x, x]), w.weights)),
        ns.SymmetryError,
        ("'w1'", "one network"),
    ),
    Bad(
        "balanced, a Gaussian", lambda w: w.scaling.balanced(w.gaussian), TypeError, ("DiagonalGaussian", "one network")
    ),
    Bad("balanced, under jit", lambda w: jax.jit(w.scaling.balanced)(w.weights), TypeError, JIT),
    Bad(
        "activations in rebase",
        lambda w: ns.rebase([w.weights] * 2, w.units, cost=ns.ActivationCost(w.activations)),
        TypeError,
        ("cost", "ActivationCost", "EuclideanCost"),
    ),
    Bad(
        "activations of other groups",
        lambda w: ns.match(w.weights, w.weights, w.units, cost=ns.ActivationCost(lambda p: {"v": p["w1"]})),
        ns.SymmetryError,
        ("'v'", "'u'"),
    ),
    Bad(
        "activations of other units",
        lambda w: ns.match(
            w.weights, w.weights, w.units.bind(w.weights), cost=ns.ActivationCost(lambda p: {"u": p["w1"][:, :3]})
        ),
        ns.SymmetryError,
        ("'u'", "size 3", "size 4"),
    ),
    Bad(
        "activations of nan",
        lambda w: ns.match(w.weights, w.weights, w.units, cost=ns.ActivationCost(lambda p: {"u": p["w1"] * jnp.nan})),
        ns.SymmetryError,
        ("'u'", "finite"),
    ),
    Bad(
        "activations, class of the cost",
        lambda w: ns.match(w.weights, w.weights, w.units, cost=ns.ActivationCost),
        ValueError,
        ("cost", "ActivationCost(...)"),
    ),
    *(
        Bad(
            f"part {part!r} of {name}",
            lambda w, ask=ask, part=part: ask(w, part),
            ValueError,
            ("part", repr(part), "'likelihood'"),
        )
        for part in ("prior", None, 3)
        for name, ask in {
            "find": lambda w, part: ns.find_symmetry(mixture, (w.y,), part=part),
            "check": lambda w, part: ns.check_symmetry(mixture, w.symmetry, (w.y,), part=part),
            "rebase": lambda w, part: ns.rebase(w.draws, w.symmetry, part=part),
            "rebase by its model": lambda w, part: ns.rebase(w.draws, model=mixture, model_args=(w.y,), part=part),
        }.items()
    ),
]

TREES = [
    Bad(
        "match, other structures",
        lambda w: ns.match(w.tree, w.other_tree, w.of_tree),
        ns.SymmetryError,
        ("'net.two'", "target", "source"),
    ),
    Bad(
        "match, other widths",
        lambda w: ns.match(w.tree, w.wider_tree, w.of_tree),
        ns.SymmetryError,
        ("'net.one'", "(2, 5)", "(2, 4)"),
    ),
    Bad(
        "match, nan",
        lambda w: ns.match(w.tree, nothing_finite(w.tree), w.of_tree),
        ns.SymmetryError,
        ("'net.one'", "source", "finite"),
    ),
    Bad(
        "match, another symmetry",
        lambda w: ns.match(w.tree, w.tree, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "'net.one'"),
    ),
    Bad(
        "match, no arrays",
        lambda w: ns.match({"net": {"one": None}}, {"net": {"one": None}}, w.of_tree),
        ns.SymmetryError,
        ("no arrays",),
    ),
    Bad(
        "match, a key with a dot",
        lambda w: ns.match({"a": {"b": w.y}, "a.b": w.y}, {"a": {"b": w.y}, "a.b": w.y}, ns.Symmetry({"a.b": ("u",)})),
        ns.SymmetryError,
        ("'a.b'", "dot"),
    ),
    Bad(
        "members of other structures",
        lambda w: ns.rebase([w.tree, w.other_tree], w.of_tree),
        ns.SymmetryError,
        ("'net.two'", "member 1"),
    ),
    Bad(
        "members of other widths",
        lambda w: ns.rebase([w.tree, w.wider_tree], w.of_tree),
        ns.SymmetryError,
        ("member 1", "in the first"),
    ),
    Bad(
        "members of nan",
        lambda w: ns.rebase([w.tree, nothing_finite(w.tree)], w.of_tree),
        ns.SymmetryError,
        ("'net.one'", "draw (1,)"),
    ),
    Bad("a tree and a number", lambda w: ns.rebase([w.tree, 3], w.of_tree), ns.SymmetryError, ("members", "dict")),
    Bad(
        "draws in a tree, of other numbers",
        lambda w: ns.rebase({"net": {"one": np.ones((30, 2, 4)), "two": np.ones((20, 4, 1))}}, w.of_tree),
        ns.SymmetryError,
        ("30", "20", "'net.two'"),
    ),
    Bad(
        "draws in a tree, another symmetry",
        lambda w: ns.rebase(w.tree, w.symmetry),
        ns.SymmetryError,
        ("'loc'", "'net.one'"),
    ),
    Bad(
        "barrier, other structures",
        lambda w: ns.loss_barrier(first_entry, w.tree, w.other_tree),
        ns.SymmetryError,
        ("'net.two'", "second"),
    ),
    Bad(
        "barrier, other widths",
        lambda w: ns.loss_barrier(first_entry, w.tree, w.wider_tree),
        ns.SymmetryError,
        ("'net.one'", "(2, 5)"),
    ),
    Bad(
        "barrier, nan",
        lambda w: ns.loss_barrier(first_entry, w.tree, nothing_finite(w.tree)),
        ns.SymmetryError,
        ("'net.one'", "second", "finite"),
    ),
    Bad(
        "barrier, whole numbers",
        lambda w: ns.loss_barrier(first_entry, jax.tree.map(lambda x: x.astype(int), w.tree), w.tree),
        ns.SymmetryError,
        ("first end", "real numbers"),
    ),
    Bad(
        "barrier, a tree and values",
        lambda w: ns.loss_barrier(first_entry, w.tree, w.values),
        ns.SymmetryError,
        ("'net.one'", "'loc'"),
    ),
    Bad("barrier, loss a word", lambda w: ns.loss_barrier("mse", w.tree, w.tree), TypeError, ("loss", "str")),
]

PARTITIONS = [
    Bad(f"{name} of {what}", lambda w, call=call, labels=labels: call(labels), error, words)
    for name, call in {"coclustering": ns.diagnostics.coclustering, "partition": ns.diagnostics.point_partition}.items()
    for what, labels, error, words in [
        ("halves", [[0.5, 1.0]], ns.SymmetryError, ("labels", "whole numbers", "0.5")),
        ("what is missing", [[-1, 0]], ns.SymmetryError, ("labels", "-1")),
        ("nan", [[np.nan, 0.0]], ns.SymmetryError, ("labels", "nan")),
        ("infinity", [[np.inf, 0.0]], ns.SymmetryError, ("labels", "inf")),
        ("one draw", [0, 1], ns.SymmetryError, ("labels", "(2,)", "(draw, n)")),
        ("no draws", np.zeros((0, 3), int), ns.SymmetryError, ("labels", "(0, 3)")),
        ("ragged draws", [[0], [0, 1]], ns.SymmetryError, ("labels", "list")),
        ("words", [["a", "b"]], ns.SymmetryError, ("labels", "<U1")),
        ("complex numbers", [[1j]], ns.SymmetryError, ("labels", "complex")),
        ("masked draws", np.ma.masked_array([[0, 1]], mask=[[0, 1]]), ns.SymmetryError, ("labels", "mask")),
        ("a dict", {"z": np.zeros((3, 4), int)}, ns.SymmetryError, ("labels", "dict", "'z'")),
        ("no array", Tensor(), ns.SymmetryError, ("labels", "Tensor")),
    ]
]
PARTITIONS += [
    Bad(
        "coclustering under jit", lambda w: jax.jit(ns.diagnostics.coclustering)(jnp.zeros((3, 4), int)), TypeError, JIT
    ),
    Bad(
        "partition under jit", lambda w: jax.jit(ns.diagnostics.point_partition)(jnp.zeros((3, 4), int)), TypeError, JIT
    ),
    Bad(
        "distance unknown",
        lambda w: ns.diagnostics.point_partition([[0, 1]], distance="vi"),
        ValueError,
        ("distance", "'vi'", "'binder'"),
    ),
    Bad(
        "partition, no flag",
        lambda w: ns.diagnostics.point_partition([[0, 1]], progress_bar="no"),
        TypeError,
        ("progress_bar", "'no'"),
    ),
    Bad("modes without a symmetry", lambda w: ns.diagnostics.modes({"loc": np.ones((4, 3))}), TypeError, ("labels",)),
    Bad(
        "modes of nothing that varies",
        lambda w: ns.diagnostics.modes({"loc": np.ones((2, 4, 3))}, ns.Symmetry.mixture("loc")),
        ns.SymmetryError,
        ("Nothing varies", "8 draws"),
    ),
    Bad(
        "nested R-hat of draws that were not rebased",
        lambda w: ns.diagnostics.nested_r_hat({"loc": np.ones((2, 4, 3))}, [0, 1]),
        TypeError,
        ("out", "Rebased", "dict"),
    ),
    Bad(
        "soft labels of draws that were not rebased",
        lambda w: ns.diagnostics.soft_labels({"loc": np.ones((2, 4, 3))}),
        TypeError,
        ("out", "Rebased", "dict"),
    ),
    Bad(
        "prior conformity of draws that were not rebased",
        lambda w: ns.diagnostics.prior_conformity(w.draws, mixture, (w.y,)),
        TypeError,
        ("prior_conformity", "Rebased", "dict"),
    ),
    Bad(
        "prior conformity without a model",
        lambda w: ns.diagnostics.prior_conformity(w.out, w.draws),
        TypeError,
        ("model", "dict"),
    ),
    Bad(
        "prior conformity, a level in percent",
        lambda w: ns.diagnostics.prior_conformity(w.out, mixture, (w.y,), level=5),
        ValueError,
        ("level", "5"),
    ),
    Bad(
        "prior conformity, no key",
        lambda w: ns.diagnostics.prior_conformity(w.out, mixture, (w.y,), rng_key=3),
        TypeError,
        INTEGER_KEY,
    ),
    Bad(
        "soft labels, no flag",
        lambda w: ns.diagnostics.soft_labels(w.out, progress_bar="no"),
        TypeError,
        ("progress_bar", "'no'"),
    ),
    Bad(
        "distinct units of a log table",
        lambda w: ns.diagnostics.distinct_units(np.zeros((3, 3))),
        ns.SymmetryError,
        ("probabilities", "add up to one", "jax.grad(log_permanent)"),
    ),
    Bad(
        "distinct units of what is not square",
        lambda w: ns.diagnostics.distinct_units(np.full((2, 3), 0.5)),
        ns.SymmetryError,
        ("probabilities", "(2, 3)", "(..., n, n)"),
    ),
    Bad(
        "distinct units of nan",
        lambda w: ns.diagnostics.distinct_units(np.full((2, 2), np.nan)),
        ns.SymmetryError,
        ("probabilities", "nan"),
    ),
    Bad("distinct units under jit", lambda w: jax.jit(ns.diagnostics.distinct_units)(jnp.eye(3)), TypeError, JIT),
    Bad("symmetrized, integer key", lambda w: w.out.symmetrized(3), TypeError, INTEGER_KEY),
    Bad("symmetrized, no key", lambda w: w.out.symmetrized(None), TypeError, ("rng_key", "None")),
    Bad(
        "symmetrized, several keys",
        lambda w: w.out.symmetrized(jax.random.split(KEY, 3)),
        TypeError,
        ("rng_key", "(3,)"),
    ),
    Bad("symmetrized, an array", lambda w: w.out.symmetrized(np.zeros(2)), TypeError, ("rng_key", "float64(2,)")),
    Bad("symmetrized, a word", lambda w: w.out.symmetrized("key"), TypeError, ("rng_key", "'key'")),
    Bad("symmetrized, under jit", lambda w: jax.jit(lambda key: w.out.symmetrized(key)["loc"])(KEY), TypeError, JIT),
]

UNIT_GUIDES = [
    Bad("no model", lambda w: ns.AutoUnitNormal(None), TypeError, ("model", "None")),
    Bad("a guide for a model", lambda w: ns.AutoUnitNormal(w.normal), TypeError, ("model", "AutoNormal")),
    Bad("symmetry a word", lambda w: ns.AutoUnitNormal(mixture, "mixture"), TypeError, ("symmetry", "str")),
    Bad("rank zero", lambda w: ns.AutoUnitNormal(mixture, rank=0), ValueError, ("rank", "0")),
    Bad("rank a half", lambda w: ns.AutoUnitNormal(mixture, rank=2.5), TypeError, ("rank", *FRACTION)),
    Bad("rank a word", lambda w: ns.AutoUnitNormal(mixture, rank="full"), ValueError, ("rank", "'full'", "'auto'")),
    Bad("scale negative", lambda w: ns.AutoUnitNormal(mixture, init_scale=-1.0), ValueError, ("init_scale", "-1")),
    Bad("scale infinite", lambda w: ns.AutoUnitNormal(mixture, init_scale=np.inf), ValueError, ("init_scale", "inf")),
    Bad("scale a word", lambda w: ns.AutoUnitNormal(mixture, init_scale="a"), TypeError, ("init_scale", "'a'")),
    Bad("prefix a number", lambda w: ns.AutoUnitNormal(mixture, prefix=5), TypeError, ("prefix", "5")),
    Bad(
        "start a word",
        lambda w: ns.AutoUnitNormal(mixture, init_loc_fn="median"),
        TypeError,
        ("init_loc_fn", "'median'"),
    ),
    Bad(
        "a model without symmetry",
        lambda w: numpyro.handlers.seed(ns.AutoUnitNormal(other), KEY)(w.y),
        ns.SymmetryError,
        ("units", "AutoNormal"),
    ),
    Bad(
        "symmetry of another site",
        lambda w: numpyro.handlers.seed(ns.AutoUnitNormal(mixture, ns.Symmetry.mixture("mu")), KEY)(w.y),
        ns.SymmetryError,
        ("'mu'", "'loc'"),
    ),
]

NO_REAL_NUMBERS = [
    Bad(
        f"{what}, {where}",
        lambda w, to=to, call=call: call(w, {"loc": to(w.draws["loc"])}),
        ns.SymmetryError,
        ("'loc'", "expected real numbers", remedy),
    )
    for what, to, remedy in (
        ("objects", lambda x: x.astype(object), "x.astype(float)"),
        ("text", lambda x: x.astype(str), "x.astype(float)"),
        ("complex numbers", lambda x: x + 0j, "np.stack([x.real, x.imag], -1)"),
    )
    for where, call in (
        ("rebase", lambda w, draws: ns.rebase(draws, w.symmetry, null=False)),
        ("fit", lambda w, draws: ns.DiagonalGaussian.fit(draws, num_leading_dims=2)),
        ("compare", lambda w, draws: ns.compare(draws, draws, w.symmetry)),
    )
]

ROWS_WANTED = ("model_args[0]", "(0, 3)", "no rows")
STARTS = [
    Bad(
        "guide",
        lambda w: ns.AutoSymmetrized(AutoNormal(mixture, **starting("loc", 4)), w.symmetry).setup(KEY, w.y),
        ns.SymmetryError,
        ("'loc'", "(4,)", "expected (3,)", "init_to_value"),
    ),
    Bad(
        "guide, a shape that broadcasts",
        lambda w: ns.AutoSymmetrized(AutoNormal(other, **starting("mu", 1)), ns.Symmetry({})).setup(KEY, w.y),
        ns.SymmetryError,
        ("'mu'", "(1,)", "expected ()"),
    ),
    Bad(
        "a guide of several",
        lambda w: ns.AutoSymmetrized(of_several(plated, **starting("loc", 4)), ns.Symmetry({})).setup(KEY, *PLATED),
        ns.SymmetryError,
        ("'loc'", "(4,)", "expected (3,)"),
    ),
    Bad(
        "a guide of several, a shape that broadcasts",
        lambda w: ns.AutoSymmetrized(of_several(plated, **starting("loc", 1)), ns.Symmetry({})).setup(KEY, *PLATED),
        ns.SymmetryError,
        ("'loc'", "(1,)", "expected (3,)"),
    ),
    Bad(
        "guide of units",
        lambda w: numpyro.handlers.seed(ns.AutoUnitNormal(mixture, w.symmetry, **starting("loc", 4)), KEY)(w.y),
        ns.SymmetryError,
        ("'loc'", "(4,)", "expected (3,)"),
    ),
    Bad(
        "conditional guide",
        lambda w: handlers.seed(ns.AutoConditional(AutoNormal(plated, **starting("scale", 2))), KEY)(*PLATED),
        ns.SymmetryError,
        ("'scale'", "(2,)", "expected ()"),
    ),
    Bad(
        "a list",
        lambda w: ns.AutoSymmetrized(AutoNormal(shifted, **LISTED), w.symmetry).setup(KEY, w.y, 0.0, KEY),
        ns.SymmetryError,
        ("'loc' starts at a list, which is no array", "expected (3,)"),
    ),
    Bad(
        "a list, chains",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), init_strategy=LISTED["init_loc_fn"]),
        ns.SymmetryError,
        ("'loc' starts at a list, which is no array", "expected (3,)"),
    ),
    Bad(
        "chains",
        lambda w: ns.run_blackjax(KEY, mixture, (w.y,), init_strategy=init_to_value(values={"loc": jnp.ones(4)})),
        ns.SymmetryError,
        ("'loc'", "(4,)", "expected (3,)"),
    ),
    Bad("no rows, find", lambda w: ns.find_symmetry(plated, ROWLESS), ns.SymmetryError, ROWS_WANTED),
    Bad("no rows, check", lambda w: ns.check_symmetry(plated, w.symmetry, ROWLESS), ns.SymmetryError, ROWS_WANTED),
    Bad("no rows, evidence", lambda w: ns.log_evidence(w.draws, plated, ROWLESS), ns.SymmetryError, ROWS_WANTED),
    Bad("no rows, chains", lambda w: ns.run_blackjax(KEY, plated, ROWLESS), ns.SymmetryError, ROWS_WANTED),
    Bad(
        "no rows, guide",
        lambda w: ns.AutoSymmetrized(AutoNormal(plated)).setup(KEY, *ROWLESS),
        ns.SymmetryError,
        ROWS_WANTED,
    ),
    Bad(
        "no rows, unit guide",
        lambda w: handlers.seed(ns.AutoUnitNormal(plated, w.symmetry), KEY)(*ROWLESS),
        ns.SymmetryError,
        ROWS_WANTED,
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
    "comparisons": COMPARISONS,
    "merges": MERGES,
    "functions": FUNCTIONS,
    "trees": TREES,
    "partitions": PARTITIONS,
    "unit guides": UNIT_GUIDES,
    "starts": STARTS,
    "no real numbers": NO_REAL_NUMBERS,
}
ROWS = [pytest.param(bad, id=f"{subject}-{bad.what}") for subject, rows in TABLE.items() for bad in rows]


@pytest.mark.parametrize("bad", ROWS)
def test_bad_input_is_refused_in_words(bad):
    with pytest.raises(bad.error) as caught:
        bad.call(world())
    missing = [word for word in bad.words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {type(caught.value).__name__}: {caught.value}"
    assert not MANY_OF_ONE.search(str(caught.value)), caught.value
    if (name := public.entered(caught.value)) is not None:
        section = "Warns" if isinstance(caught.value, Warning) else "Raises"
        said = public.entries(public.sections(public.names()[name]).get(section, ""))
        assert type(caught.value).__name__ in said, f"{name}: {section} has {said}"


def test_the_table_names_every_public_function():
    source = Path(__file__).read_text()
    names = [f"ns.{name}" for name in ns.__all__ if _takes_input(getattr(ns, name))]
    for place in ("diagnostics", "matching", "traces"):
        subpackage = getattr(ns, place)
        own = [name for name in subpackage.__all__ if name not in ns.__all__]
        names += [f"ns.{place}.{name}" for name in own if inspect.isfunction(getattr(subpackage, name))]
    names += ["ns.matching.Mean", "ns.matching.Barycenter", "ns.matching.Product"]
    names += ["w.out.symmetrized", "w.out.apply", "w.out.score", "w.scaling.balanced", "w.activations"]
    assert [name for name in names if not re.search(rf"{re.escape(name)}\b", source)] == []


def _takes_input(value):
    is_error = inspect.isclass(value) and issubclass(value, Exception | Warning)
    return inspect.isfunction(value) or (inspect.isclass(value) and not is_error)
