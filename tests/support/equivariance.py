"""What typing promises, checked: relabel a program's inputs as their labels allow, and its results move as theirs say.

Everything here but the typing itself is NumPy, index by index; the program runs compiled, in float64.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.reading import Reading
from numpyro_symmetry.discovery.labels.rules import RULES
from numpyro_symmetry.discovery.labels.terms import (
    IS_DATA,
    Atom,
    Joined,
    Product,
    Reason,
    Uniform,
    axis,
    pinned,
    resolve,
)
from numpyro_symmetry.discovery.labels.values import Known, Typed
from numpyro_symmetry.discovery.labels.walk import Walk
from numpyro_symmetry.discovery.proof.trials import trial_elements
from numpyro_symmetry.symmetry.elements import fibred_over
from numpyro_symmetry.symmetry.pieces import pieces_of

_CLOSE = {"rtol": 1e-9, "atol": 1e-11}
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Typing(NamedTuple):
    """Labels of a program's latent inputs and of its results, which rules gave them, and how they are read."""

    inputs: list[list[Any]]
    outputs: list[Any]
    rules: set[str]
    reading: Reading


def type_function(function, latent, data=(), rules=RULES):
    """Walk through a function with free latent axes and pinned data."""
    used = set()

    def heard(name, rule):
        def rule_(op):
            used.add(op.name if name == "unknown" else name)
            return rule(op)

        return rule_

    walk = Walk({name: heard(name, rule) for name, rule in rules.items()})
    inputs = [[axis(n) for n in np.shape(x)] for x in latent]
    given = [Typed(tuple(axes)) for axes in inputs]
    given += [
        Typed(tuple(pinned(n, Reason(IS_DATA, strength="data")) for n in np.shape(x)), tag=("data", k))
        for k, x in enumerate(data)
    ]
    outputs = walk.run_apart(jax.make_jaxpr(function)(*latent, *data), given)
    sites = {f"x{k}": axes for k, axes in enumerate(inputs)}
    names = {site: [None] * len(axes) for site, axes in sites.items()}
    return Typing(inputs, outputs, used, Reading(sites, walk, names))


def text_of(typing):
    """Labels of inputs and results as a person writes them: ``"ab, b -> a"``.

    A letter is an axis whose indices are free, with the sizes of its orbits where there are several; ``.`` is pinned,
    ``1`` uniform, ``(ab)`` flattened, ``a+b`` joined, ``-`` a number; a result that is a constant is ``=``.
    """
    letters = {}

    def one(term):
        term = resolve(term)
        if isinstance(term, Uniform):
            return "1"
        if isinstance(term, Atom):
            if term.is_pinned:
                return "."
            letter = letters.setdefault(term.serial, "abcdefghijklmnopqrstuvwxyz"[len(letters)])
            orbits = sorted(np.unique(term.colours, return_counts=True)[1])
            return letter if len(orbits) == 1 else letter + str([int(n) for n in orbits]).replace(" ", "")
        parts = [one(part) for part in term.parts]
        if isinstance(term, Joined):
            return "+".join(parts)
        return f"({''.join(f'({text})' if '+' in text else text for text in parts)})"

    def all_(values):
        texts = [(" ".join(map(one, v)) or "-") if isinstance(v, list) else "=" for v in values]
        runs = [(text, len(list(run))) for text, run in itertools.groupby(texts)]
        return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in runs)

    inputs = ", ".join(" ".join(map(one, axes)) or "-" for axes in typing.inputs)
    return f"{inputs} -> {all_([list(v.axes) if isinstance(v, Typed) else v for v in typing.outputs])}"


def latent_of(row):
    """Latent arguments for a row of a table, from .2 to .9."""
    return [np.random.default_rng(k).uniform(0.2, 0.9, shape) for k, shape in enumerate(row.shapes)]


class Relabelling:
    """A random permutation for each atom, within its colours; where nothing varies, any permutation."""

    def __init__(self, rng):
        self.rng, self.drawn = rng, {}

    def of(self, term):
        """The permutation of an axis with this label."""
        term = resolve(term)
        if isinstance(term, Uniform):
            return self.rng.permutation(term.size)
        if isinstance(term, Atom):
            if term.serial not in self.drawn:
                permutation = np.arange(term.size)
                for colour in np.unique(term.colours):
                    here = np.flatnonzero(term.colours == colour)
                    permutation[here] = self.rng.permutation(here)
                self.drawn[term.serial] = permutation
            return self.drawn[term.serial]
        parts = list(map(self.of, term.parts))
        if isinstance(term, Product):
            return functools.reduce(lambda high, low: (high[:, None] * len(low) + low).ravel(), parts)
        starts = np.cumsum([0, *map(len, parts)])
        return np.concatenate([start + part for start, part in zip(starts, parts, strict=False)])

    def move(self, axes, value):
        """A value with its axes relabelled."""
        value = np.asarray(value)
        return value[np.ix_(*map(self.of, axes))] if value.ndim else value


def check_equivariance(typing, run, latent, rng, count=4):
    """Relabelled inputs give relabelled results: ``v(gθ) = g v(θ)`` for every result."""
    before = run(*latent)
    for value in before:
        assert np.isfinite(np.asarray(value)).all(), "the test itself is void: not finite"
    for _ in range(count):
        relabelling = Relabelling(rng)
        moved = [relabelling.move(axes, x) for axes, x in zip(typing.inputs, latent, strict=True)]
        for value, old, new in zip(typing.outputs, before, run(*moved), strict=True):
            axes = value.axes if isinstance(value, Typed) else ()
            if isinstance(value, Known):
                np.testing.assert_allclose(np.asarray(old), value.value, **_CLOSE)
                expected = old
            else:
                assert [term.size for term in axes] == list(np.shape(old))
                expected = relabelling.move(axes, old)
            np.testing.assert_allclose(np.asarray(new), expected, **_CLOSE)


def act(symmetry, element, values):
    """The action index by index, with its fibres, flattened and joined axes."""
    moved = dict(values)
    for site, entries in symmetry.axes.items():
        value, out = np.asarray(values[site]), np.array(values[site])
        for piece in pieces_of(entries, value.shape):
            names = [label.group for label in piece.axes]
            for index in np.ndindex(piece.indices.shape):
                source = list(index)
                for k, name in enumerate(names):
                    if name in element:
                        cell = tuple(index[names.index(label)] for label in fibred_over(name))
                        source[k] = int(np.asarray(element[name])[cell][index[k]])
                out.flat[piece.indices[index]] = value.flat[piece.indices[tuple(source)]]
        moved[site] = out
    return moved


def check_invariance(symmetry, run, latent, rng, count=2):
    """The group read off a scalar leaves it as it is; every element moves something."""
    values = {f"x{k}": np.asarray(x) for k, x in enumerate(latent)}
    before = np.asarray(run(*latent))
    for label, element in trial_elements(symmetry, rng, count):
        moved = act(symmetry, element, values)
        assert any((moved[site] != values[site]).any() for site in values), label
        np.testing.assert_allclose(np.asarray(run(*moved.values())), before, err_msg=label, **_CLOSE)


def text_of_group(symmetry):
    """The group as the gallery's labels write it: ``"(S5)^4 x S3"``."""
    factors = []
    for group in symmetry.groups.values():
        for size in group.orbit_sizes:
            if size > 1 or group.signed:
                one = f"{'±' * group.signed}S{size}"
                factors.append(f"({one})^{math.prod(group.cells)}" if group.cells else one)
    return " x ".join(sorted(factors)) or "trivial"


def summary(function):
    """A number that depends on every entry of a function's results, in no order: for reading groups off it."""
    return lambda *args: summed(jax.tree.leaves(function(*args)), jnp)


def summed(results, numpy=np):
    """The number itself, of results."""
    parts = [numpy.real(x) + numpy.imag(x) for x in results]
    return sum(numpy.sum(numpy.sin((k + 1.0) * numpy.asarray(x, float))) for k, x in enumerate(parts))


def compiled(function, data):
    """A function of the latent inputs, compiled little."""
    run = jax.jit(lambda *latent: jax.tree.leaves(function(*latent, *data)), compiler_options=QUICK)
    return lambda *latent: run(*map(jnp.asarray, latent))
