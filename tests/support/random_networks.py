"""Random networks of few units, and all symmetry of their outputs by trying every set of axes: for finding to meet."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

NUM_ROWS, NUM_INPUTS, NUM_OUTPUTS = 7, 5, 2
# as many units a layer has: neither inputs nor outputs, so that only layers of one size can be taken for each other
WIDTHS = (3, 4)

ACTIVATIONS = {
    "abs": jnp.abs, "arctan": jnp.arctan, "cos": jnp.cos, "cube": lambda z: z**3, "elu": jax.nn.elu,
    "gelu": jax.nn.gelu, "hard_tanh": jax.nn.hard_tanh, "leaky": jax.nn.leaky_relu, "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu, "sin": jnp.sin, "soft_sign": jax.nn.soft_sign, "softplus": jax.nn.softplus,
    "square": jnp.square, "tanh": jnp.tanh,
}  # fmt: skip
TOGETHER = {
    "add": jnp.add, "multiply": jnp.multiply, "logaddexp": jnp.logaddexp,
    "gated": lambda a, b: a * jax.nn.sigmoid(b), "where": lambda a, b: jnp.where(a > 0, a, b),
    "length": lambda a, b: jnp.sqrt(a**2 + b**2 + 0.1), "angle": lambda a, b: jnp.arctan2(a, 2 + jnp.cos(b)),
}  # fmt: skip
OVER_UNITS = {
    "sum": lambda z: z.sum(-1),
    "soft_largest": lambda z: jax.nn.logsumexp(z, -1),
    "variance": lambda z: z.var(-1),
}


class Slot(NamedTuple):
    """An axis of a site, or the part of it that starts at an index."""

    site: str
    axis: int
    start: int = 0


class RandomNetwork:
    """A random chain of layers; called with parameters and inputs.

    Attributes
    ----------
    shapes
        Site -> shape.
    cuts
        Site and axis -> sizes of the parts that this axis is put together from.
    layers
        A line for each layer, what it computes, and the units it has.
    """

    def __init__(self, seed, num_layers):
        self.rng, self.shapes, self.cuts = np.random.default_rng(seed), {}, {}
        self.layers = [("x", None, NUM_INPUTS)]
        dense(self)
        for _ in range(num_layers):
            LAYERS[self.rng.integers(len(LAYERS))](self)
        self.outputs = [self.output() for _ in range(self.rng.integers(1, 3))]

    def __call__(self, parameters, x):
        values = [x]
        for _, function, _ in self.layers[1:]:
            values.append(function(values, parameters))
        return tuple(function(values, parameters) for _, function in self.outputs)

    def __repr__(self):
        lines = [f"{k}: {name}" for k, (name, _, _) in enumerate(self.layers)]
        return "\n".join([str(self.shapes), *lines, *(name for name, _ in self.outputs)])

    def output(self):
        k, width = self.pick(self.units())
        if self.rng.random() < 0.7:
            w = self.site(width, NUM_OUTPUTS)
            return f"{k} @ {w}", lambda v, p: v[k] @ p[w]
        name = self.any_of(OVER_UNITS)
        return f"{name} of {k}", lambda v, p: OVER_UNITS[name](v[k])

    def site(self, *shape):
        name = f"p{len(self.shapes)}"
        self.shapes[name] = tuple(map(int, shape))
        return name

    def add(self, name, units, function):
        self.layers.append((name, function, int(units)))

    def units(self):
        """Layers of units, not of inputs."""
        return [k for k, (_, _, units) in enumerate(self.layers) if units in WIDTHS]

    def pick(self, among=None):
        """A layer, the last more often, and how many units it has."""
        among = range(len(self.layers)) if among is None else among
        k = among[-1] if self.rng.random() < 0.6 else among[self.rng.integers(len(among))]
        return k, self.layers[k][2]

    def width(self):
        return int(self.rng.choice(WIDTHS))

    def any_of(self, table):
        return list(table)[self.rng.integers(len(table))]

    def parameters(self, rng):
        """Values of either sign in every site, of a size that saturates nothing."""
        drawn = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in self.shapes.items()}
        for value in drawn.values():
            value.flat[0] = -abs(value.flat[0])
        return drawn


def dense(n):
    (k, width), units, name = n.pick(), n.width(), n.any_of(ACTIVATIONS)
    w, b = n.site(width, units), n.site(units)
    n.add(f"{name}({k} @ {w} + {b})", units, lambda v, p: ACTIVATIONS[name](v[k] @ p[w] + p[b]))


def activation(n):
    (k, units), name = n.pick(n.units()), n.any_of(ACTIVATIONS)
    n.add(f"{name}({k})", units, lambda v, p: ACTIVATIONS[name](v[k]))


def layer_norm(n):
    k, units = n.pick(n.units())
    g = n.site(units)
    n.add(f"normalised({k}) * {g}", units, lambda v, p: jax.nn.standardize(v[k], epsilon=0.1) * p[g])


def together(n):
    (k, units), name = n.pick(n.units()), n.any_of(TOGETHER)
    m, _ = n.pick([m for m in n.units() if n.layers[m][2] == units])
    n.add(f"{name}({k}, {m})", units, lambda v, p: TOGETHER[name](v[k], v[m]))


def softmax(n):
    k, units = n.pick(n.units())
    n.add(f"softmax({k})", units, lambda v, p: jax.nn.softmax(v[k]))


def end_to_end(n):
    (k, width), (m, other), units = n.pick(n.units()), n.pick(), n.width()
    w = n.site(width + other, units)
    n.cuts[w, 0] = (width, other)
    n.add(f"tanh([{k}, {m}] @ {w})", units, lambda v, p: jnp.tanh(jnp.concatenate([v[k], v[m]], -1) @ p[w]))


def bilinear(n):
    (k, width), (m, other), units = n.pick(n.units()), n.pick(n.units()), n.width()
    w = n.site(width, other, units)
    n.add(f"tanh({k} {w} {m})", units, lambda v, p: jnp.tanh(jnp.einsum("ni,nj,ijk->nk", v[k], v[m], p[w])))


def recurrent(n):
    (k, width), units = n.pick(), n.width()
    w, u = n.site(width, units), n.site(units, units)

    def run(v, p):
        def step(state, given):
            state = jnp.tanh(state @ p[u] + given)
            return state, state

        return jax.lax.scan(step, jnp.zeros(units), v[k] @ p[w])[1]

    n.add(f"recurrent({k}, {w}, {u})", units, run)


def gated(n):
    """A recurrent layer of one kernel, of inputs and units put end to end and for both gates."""
    (k, width), units = n.pick(), n.width()
    w = n.site(width + units, 2 * units)
    n.cuts |= {(w, 0): (width, units), (w, 1): (units, units)}

    def run(v, p):
        def step(state, given):
            forget, update = jnp.split(jnp.concatenate([given, state]) @ p[w], 2)
            state = jax.nn.sigmoid(forget) * state + jnp.tanh(update)
            return state, state

        return jax.lax.scan(step, jnp.zeros(units), v[k])[1]

    n.add(f"gated recurrent({k}, {w})", units, run)


def residual(n):
    (k, width), units = n.pick(n.units()), n.width()
    w, u = n.site(width, units), n.site(units, width)
    n.add(f"{k} + gelu({k} @ {w}) @ {u}", width, lambda v, p: v[k] + jax.nn.gelu(v[k] @ p[w]) @ p[u])


def attention(n):
    (k, width), units = n.pick(n.units()), n.width()
    q, r, s = (n.site(width, units) for _ in range(3))
    n.add(
        f"attention({k} by {q}, {r}, {s})",
        units,
        lambda v, p: jax.nn.softmax((v[k] @ p[q]) @ (v[k] @ p[r]).T) @ (v[k] @ p[s]),
    )


def running_sum(n):
    """No two units may be exchanged any more."""
    k, units = n.pick(n.units())
    n.add(f"running mean of {k}", units, lambda v, p: jnp.cumsum(v[k], -1) / np.arange(1, units + 1))


def centred(n):
    k, units = n.pick(n.units())
    n.add(f"{k} - mean", units, lambda v, p: v[k] - v[k].mean(0))


def prototypes(n):
    (k, width), units = n.pick(), n.width()
    c, b = n.site(units, width), n.site(units)
    n.add(
        f"near({k}, {c}) * {b}",
        units,
        lambda v, p: jnp.exp(-((v[k][:, None] - p[c]) ** 2).mean(-1)) * p[b],
    )


def mapped(n):
    (k, width), units = n.pick(), n.width()
    w, b = n.site(units, width), n.site(units)
    n.add(f"vmap({k}, {w}, {b})", units, lambda v, p: jax.vmap(lambda w, b: jnp.sin(v[k] @ w + b), 0, -1)(p[w], p[b]))


def one_by_one(n):
    (k, width), units = n.pick(), n.width()
    w = n.site(units, width)
    n.add(f"stack({k}, {w})", units, lambda v, p: jnp.stack([jax.nn.gelu(v[k] @ row) for row in p[w]], -1))


LAYERS = [
    dense, activation, layer_norm, together, softmax, end_to_end, bilinear, recurrent, gated, residual,
    attention, running_sum, centred, prototypes, mapped, one_by_one,
]  # fmt: skip


def all_symmetry(network, parameters, x):
    """The smallest sets of slots that may be permuted together, and those of which any index may be negated."""
    run = jax.jit(lambda p: jnp.concatenate([out.ravel() for out in network(p, x)]))
    before = run(parameters)

    def stays(moved):
        return bool(jnp.allclose(run(moved), before, rtol=1e-9, atol=1e-12))

    read = [name for name, value in parameters.items() if not stays(parameters | {name: 1.3 * value + 0.1})]

    def may_be(tried, changed):
        return lambda some: all(stays(changed(parameters, some, one)) for one in tried)

    permuted, negated = [], []
    for size in WIDTHS:
        slots = slots_of(network, read, size)
        turned = [np.roll(np.arange(size), 1), [1, 0, *range(2, size)]]
        permuted += smallest(slots, may_be(turned, moved))
        negated += smallest(slots, may_be(np.where(np.eye(size), -1.0, 1.0), scaled))
    return permuted, negated


def slots_of(network, sites, size):
    """All axes of a size, of these sites; of axes put end to end the parts."""
    found = []
    for site in sites:
        for axis, n in enumerate(network.shapes[site]):
            sizes = network.cuts.get((site, axis), (n,))
            starts = itertools.accumulate(sizes[:-1], initial=0)
            found += [Slot(site, axis, start) for start, part in zip(starts, sizes, strict=True) if part == size]
    return found


def moved(parameters, slots, permutation):
    """Parameters with the indices of some axes permuted."""
    out = dict(parameters)
    for site, axis, start in slots:
        index = np.arange(out[site].shape[axis])
        index[start : start + len(permutation)] = start + np.asarray(permutation)
        out[site] = np.take(out[site], index, axis)
    return out


def scaled(parameters, slots, by):
    """Parameters with the indices of some axes times numbers."""
    out = dict(parameters)
    for site, axis, start in slots:
        factor = np.ones(out[site].shape[axis])
        factor[start : start + len(by)] = by
        out[site] = out[site] * np.expand_dims(factor, [k for k in range(out[site].ndim) if k != axis])
    return out


def smallest(slots, holds):
    """Sets of slots for which something holds and for no part of them."""
    found = []
    for count in range(1, len(slots) + 1):
        for some in map(frozenset, itertools.combinations(slots, count)):
            if not any(other <= some for other in found) and holds(some):
                found.append(some)
    return found
