"""Random programs: chains of operations on latent values, data and constants, for typing to be tried on."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_SIZES = (2, 3, 4, 6)
_LARGEST, _DEEPEST = 300, 4


class Program:
    """A random function of some latent and some data arrays that returns all it makes on the way.

    Attributes
    ----------
    latent, data
        Shapes.
    steps
        Operations: their name, the function, and positions of what they take.
    """

    def __init__(self, seed, length):
        self.rng = np.random.default_rng(seed)
        sizes = self.rng.choice(_SIZES, 3)

        def draw(most):
            return tuple(map(int, self.rng.choice(sizes, self.rng.integers(1, most + 1))))

        self.latent = [draw(3) for _ in range(self.rng.integers(1, 4))]
        self.data = [draw(2) for _ in range(self.rng.integers(0, 3))]
        self.shapes, self.steps = [*self.latent, *self.data], []
        while len(self.steps) < length:
            self.extend(_MAKERS[self.rng.integers(len(_MAKERS))])

    def __call__(self, *args):
        values = list(map(jnp.asarray, args))
        for _, function, taken in self.steps:
            values.append(function(*(values[k] for k in taken)))
        return values[len(args) :]

    def __repr__(self):
        start = len(self.latent) + len(self.data)
        lines = [f"{k}: {name}{taken} {self.shapes[k]}" for k, (name, _, taken) in enumerate(self.steps, start)]
        return "\n".join([f"latent {self.latent}, data {self.data}", *lines])

    def pick(self, accept=lambda shape: True, among=None):
        """The position of a value of a shape, those made last more often."""
        fitting = [k for k, shape in enumerate(self.shapes[:among]) if accept(shape)]
        if not fitting:
            raise LookupError
        weight = np.array([3.0 if k >= len(self.latent) + len(self.data) else 1.0 for k in fitting])
        return int(self.rng.choice(fitting, p=weight / weight.sum()))

    def axis(self, k):
        """A random axis of a value, and its size."""
        axis = int(self.rng.integers(len(self.shapes[k])))
        return axis, self.shapes[k][axis]

    def indices(self, size):
        """Data, made indices below a size: a position and what to do with it."""
        if not self.data:
            raise LookupError
        k = len(self.latent) + int(self.rng.integers(len(self.data)))
        return k, lambda x: (jnp.abs(x.reshape(x.shape[0], -1)[:, 0]) * 97).astype(int) % size

    def extend(self, maker):
        """One more operation, if it fits."""
        try:
            function, *taken = maker(self)
            made = jax.eval_shape(function, *(jax.ShapeDtypeStruct(self.shapes[k], float) for k in taken))
        except (LookupError, ValueError):  # nothing fits, or sizes do not
            return
        if made.size <= _LARGEST and made.size and made.ndim <= _DEEPEST:
            self.steps.append((maker.__name__, function, tuple(taken)))
            self.shapes.append(made.shape)


def fits(shape, into):
    """Whether a shape can be repeated to another."""
    try:
        return np.broadcast_shapes(shape, into) == tuple(into)
    except ValueError:
        return False


def some(shape):
    return len(shape) > 0


def constant(rng, shape):
    """A constant: uniform, different along one axis, different in one entry, an identity, a triangle, or random."""
    kind, value = rng.integers(6), np.ones(shape)
    if kind == 1 and shape:
        k = rng.integers(len(shape))
        value *= rng.choice([1.0, 2.0], shape[k]).reshape([-1 if j == k else 1 for j in range(len(shape))])
    elif kind == 2:
        value.flat[rng.integers(value.size)] = 2.0
    elif kind in (3, 4) and len(shape) > 1:
        value *= np.eye(*shape[-2:]) + 0.5 if kind == 3 else np.tril(np.ones(shape[-2:]))
    return rng.normal(size=shape) if kind == 5 else value


def one(p):
    function = (jnp.tanh, jnp.square, jnp.cos)[p.rng.integers(3)]
    return function, p.pick()


def two(p):
    k, function = p.pick(), (jnp.add, jnp.multiply, jnp.maximum)[p.rng.integers(3)]
    return function, k, p.pick(lambda shape: fits(shape, p.shapes[k]))


def times_constant(p):
    k = p.pick()
    value = constant(p.rng, tuple(1 if p.rng.random() < 0.3 else n for n in p.shapes[k]))
    return lambda x: x * value, k


def reduced(p):
    k = p.pick(some)
    axis, function, keep = p.axis(k)[0], (jnp.sum, jnp.max, jnp.prod)[p.rng.integers(3)], bool(p.rng.integers(2))
    return lambda x: function(x, axis=axis, keepdims=keep), k


def transposed(p):
    k = p.pick(some)
    order = tuple(map(int, p.rng.permutation(len(p.shapes[k]))))
    return lambda x: x.transpose(order), k


def reshaped(p):
    k = p.pick(some)
    shape, (axis, n) = p.shapes[k], p.axis(k)
    outer = int(p.rng.choice([d for d in range(1, n + 1) if n % d == 0]))
    rest = shape[axis + 2 :] if axis + 1 < len(shape) and p.rng.integers(2) else None
    new = (*shape[:axis], outer, n // outer, *shape[axis + 1 :])
    return lambda x: x.reshape(new if rest is None else (*shape[:axis], n * shape[axis + 1], *rest)), k


def joined(p):
    k = p.pick(some)
    axis, _ = p.axis(k)

    def alike(shape):
        other = p.shapes[k]
        return len(shape) == len(other) and shape[:axis] + shape[axis + 1 :] == other[:axis] + other[axis + 1 :]

    return lambda x, y: jnp.concatenate([x, y], axis), k, p.pick(alike)


def sliced(p):
    k = p.pick(some)
    axis, n = p.axis(k)
    start, step = int(p.rng.integers(n)), int(p.rng.integers(1, 3))
    stop = int(p.rng.integers(start + 1, n + 1))
    return lambda x: lax.slice_in_dim(x, start, stop, step, axis), k


def indexed(p):
    k = p.pick(some)
    axis, n = p.axis(k)
    choices = (
        p.rng.permutation(n),
        p.rng.integers(0, n, 3),
        np.arange(1, n),
        np.repeat(np.arange(n), 2),
        p.rng.integers(n),
    )
    places = np.asarray(choices[p.rng.integers(len(choices))])
    return lambda x: jnp.take(x, places, axis), k


def indexed_by_data(p):
    k = p.pick(some)
    axis, n = p.axis(k)
    data, places = p.indices(n)
    return lambda x, y: jnp.take(x, places(y), axis), k, data


def written(p):
    k = p.pick(some)
    axis, n = p.axis(k)
    rest = p.shapes[k][:axis] + p.shapes[k][axis + 1 :]
    place, how = (slice(None),) * axis + (int(p.rng.integers(n)),), ("set", "add", "max")[p.rng.integers(3)]
    return lambda x, y: getattr(x.at[place], how)(y), k, p.pick(lambda shape: fits(shape, rest))


def padded(p):
    k = p.pick(some)
    config = [tuple(map(int, p.rng.integers((-1, -1, 0), (2, 2, 2)))) for _ in p.shapes[k]]
    return lambda x: lax.pad(x, 0.5, config), k


def in_order(p):
    k = p.pick(some)
    axis, _ = p.axis(k)
    functions = (
        lambda x: jnp.flip(x, axis),
        lambda x: jnp.roll(x, 1, axis),
        lambda x: jnp.cumsum(x, axis),
        lambda x: jnp.sort(x, axis),
        lambda x: jnp.argmax(x, axis).astype(float),
        lambda x: jnp.argsort(x, axis).astype(float),
        lambda x: jax.nn.softmax(x, axis),
        lambda x: jnp.diff(x, axis=axis),
        lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, tuple(1 + (j == axis) for j in range(x.ndim)), (1,) * x.ndim, "SAME"
        ),
    )
    return functions[p.rng.integers(len(functions))], k


def product(p):
    a = p.pick(some)
    b = p.pick(lambda shape: set(shape) & set(p.shapes[a]))
    left, right = "abcd"[: len(p.shapes[a])], list("wxyz"[: len(p.shapes[b])])
    for j in p.rng.permutation(len(right)):
        same = [c for c, n in zip(left, p.shapes[a], strict=True) if n == p.shapes[b][j] and c not in right]
        if same and p.rng.random() < 0.6:
            right[j] = str(p.rng.choice(same))
    kept = [c for c in dict.fromkeys([*left, *right]) if not (c in left and c in right) or p.rng.random() < 0.3]
    text = f"{left},{''.join(right)}->{''.join(p.rng.permutation(kept)) if kept else ''}"
    return lambda x, y: jnp.einsum(text, x, y), a, b


def gram(p):
    return lambda x: x @ x.T, p.pick(lambda shape: len(shape) == 2)


def factor(p):
    functions = (jnp.linalg.cholesky, jnp.linalg.inv, lambda x: jnp.linalg.slogdet(x)[1])
    function = functions[p.rng.integers(len(functions))]
    return lambda x: function(x @ x.T + 3 * jnp.eye(x.shape[0])), p.pick(lambda shape: len(shape) == 2)


def repeated(p):
    k, axis, n = p.pick(), int(p.rng.integers(3)), int(p.rng.choice(_SIZES))
    axis = min(axis, len(p.shapes[k]))
    new = (*p.shapes[k][:axis], n, *p.shapes[k][axis:])
    return lambda x: jnp.broadcast_to(jnp.expand_dims(x, axis), new), k


def tiled(p):
    k = p.pick(some)
    axis, _ = p.axis(k)
    counts = tuple(1 + (j == axis) for j in range(len(p.shapes[k])))
    return (lambda x: jnp.tile(x, counts)) if p.rng.integers(2) else (lambda x: jnp.repeat(x, 2, axis)), k


def scanned(p):
    k, which = p.pick(some), int(p.rng.integers(2))
    rest = p.shapes[k][1:]

    def run(x, w):
        return lax.scan(lambda c, x: (jnp.tanh(c * w + x), c * x + w), jnp.ones(rest), x)[which]

    return run, k, p.pick(lambda shape: fits(shape, rest))


def looped(p):
    k = p.pick(some)
    if p.rng.integers(2):
        return lambda x: sum(jnp.tanh(row) for row in x), k
    return lambda x: lax.fori_loop(0, x.shape[0], lambda j, h: h + jnp.cos(x[j]), jnp.zeros(x.shape[1:])), k


def branched(p):
    k = p.pick(some)
    return lambda x: lax.cond(x.ravel()[0] > 0.4, lambda: x * x, lambda: jnp.flip(x, 0)), k


def chosen(p):
    k = p.pick()
    mask = constant(p.rng, p.shapes[k]) > 1
    return lambda x, y: jnp.where(mask, x, y), k, p.pick(lambda shape: shape == p.shapes[k])


def convolved(p):
    k = p.pick(lambda shape: len(shape) == 3)
    kernel = p.pick(lambda shape: len(shape) == 3 and shape[1] == p.shapes[k][2])
    return lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")), k, kernel


def summed_by_data(p):
    data, places = p.indices(3)
    k = p.pick(lambda shape: shape[:1] == p.shapes[data][:1])
    return lambda x, y: jax.ops.segment_sum(x, places(y), 3), k, data


def pairs(p):
    return lambda x: x[:, None] - x[None], p.pick(some)


_MAKERS = (
    *(one, two, two, two, times_constant, times_constant, reduced, transposed, reshaped, reshaped, reshaped),
    *(joined, joined, sliced, sliced, indexed, indexed_by_data, written, padded, in_order, in_order, product, product),
    *(gram, factor, repeated, tiled, scanned, looped, branched, chosen, convolved, summed_by_data, pairs),
)
