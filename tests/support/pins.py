"""Values held fixed while code is moved: what small cases give, saved, and compared with what they give later.

``python -m tests.support.pins save`` writes ``pins.json``; ``compare`` computes everything again and lists what
differs; either takes names of sections (``find match ...``) to do only those. Integers, elements, groups and words have
to be the same; float64 to four units in the last place, float32 to 1e-5. Saved and compared in one environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

import numpyro_symmetry as ns
from tests.gallery import CASES
from tests.support import networks, traces

FILE = Path(__file__).with_name("pins.json")
KEY = jax.random.key(0)
# entries of a float array that are kept
MOST = 100
WRITTEN = {"dtype", "shape", "values"}
# what is found: one of a kind, and what only numbers prove, refuse or tell
FOUND = """
    mlp-1-layer mlp-3-layers mlp-plate mlp-two-prior-scales mlp-flat-weights residual-scan-stacked ensemble-vmap
    ensemble-plates linen-mlp-param convnet-flatten-dense attention-multi-head gmm gmm-full-covariance gmm-enumerated
    gmm-ordered-locs hmm-forward-scan hmm-enumerated hmm-left-to-right hmm-with-covariates factor-analysis
    factor-analysis-marginal eight-schools group-norm grouped-convolution improper-flat param-network plate-subsampled
    mlp-closed-over-data mixture-general-one-family mixture-general-shared-array zero-sum-effects fori-loop-over-units
    units-accumulated while-loop block-covariance loop-clipped-in-the-tail branch-in-the-tail pure-callback-prefers
    mixture-of-experts lax-map reparam-loc-scale model-conditioned
""".split()
SECTIONS = {}


def section(function):
    SECTIONS[function.__name__] = function
    return function


def by_name(name):
    return next(case for case in CASES if case.name == name)


# ---- what a value is written as --------------------------------------------------------------------------------------


def plain(value):
    """A result as JSON: arrays with their types, tuples of names by name, symmetries in full."""
    if isinstance(value, ns.Symmetry):
        return {
            "axes": {site: [repr(e) for e in entries] for site, entries in sorted(value.axes.items())},
            "groups": {name: repr(group) for name, group in value.groups.items()},
            "sizes": plain(dict(value.sizes)),
            "findings": [plain(tuple(f)) for f in value.findings],
            "told": [str(one) for one in value.out_of_reach],
        }
    if isinstance(value, str | bool | int | type(None)):
        return value
    if isinstance(value, float | np.generic | np.ndarray | jax.Array):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            return repr(array.tolist())
        # of many real numbers, some
        step = max(1, array.size // MOST) if array.dtype.kind == "f" else 1
        return {"dtype": array.dtype.name, "shape": list(array.shape), "values": array.ravel()[::step].tolist()}
    if isinstance(value, dict) and set(value) == WRITTEN:
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if hasattr(value, "_asdict"):
        return plain({k: v for k, v in value._asdict().items() if _is_told(v)})
    if dataclasses.is_dataclass(value):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "data_vars"):
        return {name: plain(variable.values) for name, variable in value.data_vars.items()}
    return type(value).__name__


def _is_told(value):
    # closures, views and containers are not results
    return isinstance(
        value, str | bool | int | float | np.generic | np.ndarray | jax.Array | dict | list | tuple | ns.Symmetry | None
    )


def differences(old, new, path=""):
    """Where two saved values differ."""
    if isinstance(old, dict) and set(old) == WRITTEN and isinstance(new, dict):
        if old["dtype"] != new.get("dtype") or old["shape"] != new.get("shape"):
            yield f"{path}: {old['dtype']}{old['shape']} became {new.get('dtype')}{new.get('shape')}"
        elif (how := _gap(old, new)) is not None:
            yield f"{path}: {how}"
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            if key not in old or key not in new:
                yield f"{path}/{key}: {'new' if key in new else 'gone'}"
            else:
                yield from differences(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{path}[{k}]")
    elif old != new:
        yield f"{path}: {old!r} became {new!r}"


def _gap(old, new):
    dtype = np.dtype(old["dtype"])
    a, b = np.asarray(old["values"], dtype), np.asarray(new["values"], dtype)
    if dtype.kind != "f":
        return None if (a == b).all() else f"{int((a != b).sum())} of {a.size} entries"
    if (np.isnan(a) != np.isnan(b)).any() or (np.isinf(a) & (a != b)).any():
        return "other entries are not finite"
    fine = np.isfinite(a)
    a, b = a[fine], b[fine]
    # single precision: what is a difference of larger numbers is known to their digits only
    unit = 4 * np.spacing(np.abs(a)) if dtype == np.float64 else 1e-5 * np.abs(a) + 1e-7 * np.abs(a).max(initial=0.0)
    off = np.abs(b - a) > unit
    if not off.any():
        return None
    worst = (np.abs(b - a) / np.maximum(np.abs(a), np.finfo(dtype).tiny)).max()
    return f"{int(off.sum())} of {a.size} entries, by {worst:.2g} of their size at most"


# ---- the cases -------------------------------------------------------------------------------------------------------


@section
def find():
    found = {}
    for name in FOUND:
        case = by_name(name)
        found[name] = lambda case=case: ns.find_symmetry(case.model, case.args)
        if case.signed is not None:
            found[f"{name}, no signs"] = lambda case=case: ns.find_symmetry(case.model, case.args, signs=False)
    return found


@section
def check():
    right = map(by_name, ("mlp-1-layer", "gmm", "hmm-forward-scan", "improper-flat", "param-network"))

    def verdict(case, symmetry):
        try:
            result = ns.check_symmetry(case.model, symmetry, case.args)
            return {"status": result.status, "groups": sorted(result.control_gap), "reason": result.reason}
        except ns.SymmetryError as error:
            # gaps are of the points that were tried
            return {"error": type(error).__name__, "words": str(error).split(" changes by ")[0]}

    def one(case):
        found = ns.find_symmetry(case.model, case.args)
        said = {"found": verdict(case, found)}
        for site in found.axes:
            axes = {other: entries for other, entries in found.axes.items() if other != site}
            kinds = {k: v for k, v in found.kinds.items() if k in ns.Symmetry(axes).groups} if axes else {}
            said[f"without {site}"] = verdict(case, ns.Symmetry(axes, kinds))
        return said

    return {case.name: partial(one, case) for case in right}


@section
def estimators():
    rng = np.random.default_rng(0)
    found = {}
    for n in (3, 6):
        loc, scale = rng.normal(size=(n, 4)), 0.3 + rng.random((n, 4))
        draw = loc + scale * rng.normal(size=(5, n, 4))
        apart = {sign: (sign * draw[:, None] - loc[:, None]) / scale[:, None] for sign in (1, -1)}
        tables = {sign: (-0.5 * z**2 - np.log(scale[:, None])).sum(-1) for sign, z in apart.items()}
        for dtype in ("float32", "float64"):
            plain_, flipped = (tables[sign].astype(dtype) for sign in (1, -1))
            for name in ("exact", "sequential", "infonce", "importance"):
                for bound in ("lower", "upper", "both") if name in ("exact", "importance") else ("lower",):
                    for signed in (False, True):
                        options = {"estimator": name, "bound": bound, "rng_key": KEY, "num_permutations": 6}
                        options |= {"log_density_flipped": flipped} if signed else {}
                        found[f"{n} {dtype} {name} {bound}{' signed' * signed}"] = partial(
                            _in, dtype, ns.mutual_information, plain_, **options
                        )
            found[f"{n} {dtype} permanent"] = partial(_in, dtype, ns.log_permanent, plain_)
    return found


def _in(dtype, function, *args, **options):
    with jax.enable_x64(dtype == "float64"):
        return function(*args, **options)


ONE = ns.Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden", None)})
MATCHED = {
    "one layer": (ONE, {"w1": (3, 5), "b1": (5,), "w2": (5, 2)}),
    "two layers": networks.mlp([2, 4, 3, 1])[::-1],
    "residual": networks.residual(2, 3, 2, 1)[::-1],
    "hmm": (ns.Symmetry.hmm(initial="pi", transition="A", emissions=["loc"]), {"pi": (4,), "A": (4, 4), "loc": (4, 2)}),
    "signed": (ns.Symmetry.factor("loadings", "scores"), {"loadings": (6, 3), "scores": (7, 3)}),
    "orbits": (
        ns.Symmetry({"a": ("g", None), "b": (None, "g")}, orbits={"g": (0, 0, 1, 1, 1)}),
        {"a": (5, 2), "b": (3, 5)},
    ),
    "fibred": (ns.Symmetry({"w": ("net", None, "net/unit"), "v": ("net", "net/unit")}), {"w": (2, 3, 4), "v": (2, 4)}),
    "apart": (ns.Symmetry({"a": ("left", None), "b": (None, "right")}), {"a": (4, 2), "b": (3, 4)}),
}


def _drawn(shapes, seed, lead=(), dtype=np.float64):
    rng = np.random.default_rng(seed)
    return {site: rng.normal(size=lead + shape).astype(dtype) for site, shape in shapes.items()}


@section
def match():
    found = {}
    for name, (symmetry, shapes) in MATCHED.items():
        target, source = _drawn(shapes, 0), _drawn(shapes, 1, (3,))
        found[f"{name}, euclidean"] = lambda t=target, s=source, g=symmetry: ns.match(t, s, g, cost="euclidean")
        found[f"{name}, nearest"] = lambda t=target, g=symmetry: ns.matching.nearest_transposition(t, g)
        if name in ("one layer", "two layers", "hmm", "fibred"):
            sides = [
                ns.DiagonalGaussian(values, {k: np.exp(v) for k, v in _drawn(shapes, 5 + seed).items()})
                for seed, values in enumerate((target, _drawn(shapes, 2)))
            ]
            for cost in ("wasserstein", "log_density", "kl"):
                found[f"{name}, {cost}"] = lambda s=sides, g=symmetry, c=cost: ns.match(*s, g, cost=c)
    return found


def _traces():
    hmm, tanh = traces.hmm(draws=40)[0], traces.tanh_units(draws=60)[0]
    orbits = ns.Symmetry({"loc": ("g",), "weights": ("g",)}, orbits={"g": (0, 0, 1)})
    fibred = ns.Symmetry({"w": ("net", None, "net/unit"), "v": ("net", "net/unit")})
    rng = np.random.default_rng(3)
    centre = _drawn({"w": (2, 3, 3), "v": (2, 3)}, 4)
    ensemble = {site: 3 * v + 0.2 * rng.normal(size=(2, 30, *v.shape)) for site, v in centre.items()}
    mixture = traces.mixture(chains=2, draws=50)[0]
    return {
        "mixture": (mixture, traces.MIXTURE, {}),
        "mixture, single": (traces.mixture(chains=2, draws=50, dtype=np.float32)[0], traces.MIXTURE, {}),
        "mixture, euclidean": (mixture, traces.MIXTURE, {"cost": ns.EuclideanCost()}),
        "mixture, first": (mixture, traces.MIXTURE, {"reference": "first"}),
        "hmm": (hmm, traces.HMM, {}),
        "signed": (tanh, traces.TANH, {}),
        "orbits": ({site: mixture[site] for site in ("loc", "weights")}, orbits, {}),
        "fibred": (ensemble, fibred, {}),
    }


@section
def rebase():
    def one(data, symmetry, options):
        out = ns.rebase(data, symmetry, rng_key=KEY, **options)
        # the plain result within it goes when the plain view is always taken
        return {k: v for k, v in plain(out).items() if k in ("data", "elements", "margin", "null", "order")}

    return {name: lambda row=row: one(*row) for name, row in _traces().items()}


@section
def report():
    def one(data, symmetry, options):
        return str(ns.report(ns.rebase(data, symmetry, rng_key=KEY, null=False, **options)))

    kept = ("mixture", "hmm", "fibred")
    return {name: lambda row=row: one(*row) for name, row in _traces().items() if name in kept}


def _guided():
    from numpyro_symmetry import testing

    posteriors = {
        "network": testing.tiny_network(),
        "hmm": testing.hidden_markov(num_steps=8),
        "mixture": testing.dirichlet_mixture(num_data=8),
        "gaussian": testing.exchangeable_gaussian(num_units=3, separation=1.0),
    }
    return posteriors


@section
def guides():
    def values(posterior, base, estimator):
        guide = ns.AutoSymmetrized(base(posterior.model), posterior.symmetry, estimator=estimator, num_permutations=4)
        svi = SVI(posterior.model, guide, optax.sgd(0.0), Trace_ELBO(num_particles=2))
        state = svi.init(KEY, *posterior.model_args)
        params = svi.get_params(state)

        def loss(p):
            return svi.loss.loss(KEY, p, posterior.model, guide, *posterior.model_args)

        value, gradient = jax.jit(jax.value_and_grad(loss))(params)
        bounds = guide.elbo_bounds(KEY, params, *posterior.model_args, num_particles=8)
        draw = guide.sample_posterior(KEY, params)
        return {"loss": value, "gradient": gradient, "bounds": bounds, "draw": draw}

    chosen = [
        *(("network", AutoNormal, estimator) for estimator in ("auto", "importance", "infonce")),
        ("network", AutoMultivariateNormal, "auto"),
        *(("hmm", AutoNormal, estimator) for estimator in ("auto", "importance")),
        ("mixture", AutoNormal, "sequential"),
        ("gaussian", AutoNormal, "auto"),
    ]
    posteriors = _guided()
    return {
        f"{name}, {base.__name__}, {estimator}": lambda p=posteriors[name], b=base, e=estimator: values(p, b, e)
        for name, base, estimator in chosen
    }


@section
def conditional():
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    y = (x @ [1.0, -2.0]).astype(np.float32)
    import numpyro
    import numpyro.distributions as dist

    def network(x, y=None):
        w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
        b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(jax.nn.relu(x @ w1 + b1) @ w2, 0.3).to_event(1), obs=y)

    bases = {
        "exact": lambda: ns.AutoConditional(AutoNormal(network)),
        "inducing": lambda: ns.AutoConditional(AutoNormal(network), inducing=jnp.asarray(x[:4])),
        "unit normal": lambda: ns.AutoConditional(ns.AutoUnitNormal(network)),
    }

    def values(base):
        guide = ns.AutoSymmetrized(base())
        svi = SVI(network, guide, optax.sgd(0.0), Trace_ELBO(num_particles=2))
        params = svi.get_params(svi.init(KEY, x, y))
        value, gradient = jax.jit(jax.value_and_grad(lambda p: svi.loss.loss(KEY, p, network, guide, x, y)))(params)
        bounds = guide.elbo_bounds(KEY, params, x, y, num_particles=4)
        return {"loss": value, "gradient": gradient, "bounds": bounds, "symmetry": guide.symmetry}

    return {name: lambda base=base: values(base) for name, base in bases.items()}


@section
def evidence():
    posterior = _guided()["gaussian"]
    rng, (centres,) = np.random.default_rng(0), posterior.model_args
    draws = {"units": centres + 0.3 * rng.standard_normal((300, 3, 2))}
    posteriors = {"draws": (posterior, draws, {}), "laplace": (posterior, draws, {"method": "laplace"})}
    return {
        name: lambda row=row: ns.log_evidence(row[1], row[0].model, row[0].model_args, **row[2])
        for name, row in posteriors.items()
    }


# ---- save, compare ---------------------------------------------------------------------------------------------------


def computed(names):
    """Section -> case -> what it gives, with what was warned of."""
    found = {}
    for name in names:
        start, rows = time.time(), {}
        for case, function in SECTIONS[name]().items():
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                result = function()
            own = [w for w in seen if issubclass(w.category, ns.SymmetryWarning)]
            said = sorted({f"{w.category.__name__}: {str(w.message)[:60]}" for w in own})
            rows[case] = {"result": plain(result), "warned": said}
        found[name] = rows
        jax.clear_caches()
        print(f"{name}: {len(rows)} cases, {time.time() - start:.0f} s", flush=True)
    return found


def main(command, *names):
    chosen = names or tuple(SECTIONS)
    found = json.loads(json.dumps(computed(chosen)))
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if command == "save":
        FILE.write_text(json.dumps(known | found, indent=None, sort_keys=True) + "\n")
        return 0
    wrong = [line for name in chosen for line in differences(known[name], found[name], name)]
    print(*wrong or ["nothing differs"], sep="\n")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
