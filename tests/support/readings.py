"""Two tables of functions that give a number, and the group that should be read off each.

`GROUPS`: what is fibred, joined or split into orbits, and what looks so and is not. `TRAPS`: what tells indices apart.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.support.operations import MATRIX, ONE_IN_FOUR, PLACES, Row

GROUPS: dict[str, Row] = {}
TRAPS: dict[str, Row] = {}


def group(name, function, shapes, expected, *data):
    assert name not in GROUPS
    GROUPS[name] = Row("", function, shapes, expected, data)


def trap(name, function, shapes, expected, *data):
    assert name not in TRAPS
    TRAPS[name] = Row("", function, shapes, expected, data)


def total(values):
    return jnp.sum(jnp.tanh(values))


X = np.random.default_rng(2).normal(size=(5, 3))
NETS, NUMBERS = np.array([0, 1, 1, 2, 0]), np.arange(1.0, 6.0)
FRAME = ("NWC", "WIO", "NWC")

# ---- fibres ----------------------------------------------------------------------------------------------------------


def nets(w, v):
    """One prediction a net: kernels (net, in, unit), (net, unit)."""
    return jnp.einsum("nbh,nh->nb", jnp.tanh(jnp.einsum("bd,ndh->nbh", X, w)), v)


def attention(q, k, v, o):
    """Kernels (in, head, size), and (head, size, out)."""
    q, k, v = (jnp.einsum("td,dhk->htk", X, kernel) for kernel in (q, k, v))
    seen = jnp.einsum("hts,hsk->htk", jax.nn.softmax(jnp.einsum("htk,hsk->hts", q, k)), v)
    return total(jnp.einsum("htk,hkd->td", seen, o) * X)


def flat_attention(q, k, v, o):
    """Kernels (in, head * size), and (head * size, out)."""
    return attention(*(kernel.reshape(3, 2, -1) for kernel in (q, k, v)), o.reshape(2, -1, 3))


def layers(w, v):
    """Residual layers with a stack of kernels (layer, in, unit), (layer, unit, out)."""
    return total(lax.scan(lambda h, kernels: (h + jnp.tanh(h @ kernels[0]) @ kernels[1], None), X, (w, v))[0] * X)


def unrolled(w, v):
    h = X
    for k in range(3):
        h = h + jnp.tanh(h @ w[k]) @ v[k]
    return total(h * X)


group("units", lambda w, v: total(jnp.tanh(X @ w) @ v), ((3, 4), (4,)), "S4")
group("units of nets", lambda w, v: total(nets(w, v).prod(0)), ((2, 3, 4), (2, 4)), "(S4)^2 x S2")
group(
    "units of nets that differ",
    lambda w, v: total(nets(w, v) @ NUMBERS * np.arange(2.0)),
    ((2, 3, 4), (2, 4)),
    "(S4)^2",
)
group(
    "units of nets of which one differs",
    lambda w, v: total(nets(w, v) @ NUMBERS * np.array([1.0, 2.0, 2.0])),
    ((3, 3, 4), (3, 4)),
    "(S4)^3 x S2",
)
group(
    "units of layers of nets",
    lambda x: total(jnp.tanh(jnp.tanh(x).sum(2) ** 2).sum(1)),
    ((2, 3, 4),),
    "(S3)^2 x (S4)^6 x S2",
)
group("heads", attention, ((3, 2, 4), (3, 2, 4), (3, 2, 5), (2, 5, 3)), "(S4)^2 x (S5)^2 x S2")
group("heads flattened", flat_attention, ((3, 8), (3, 8), (3, 10), (10, 3)), "(S4)^2 x (S5)^2 x S2")
group("units of scanned layers", layers, ((3, 3, 4), (3, 4, 3)), "(S4)^3")
group("units of unrolled layers", unrolled, ((3, 3, 4), (3, 4, 3)), "S4")
group(
    "units of the net of each datum",
    lambda w, v, k, d: total(jnp.sum(jnp.tanh(w[k] * d[:, None]) * v[k], 1) * d),
    ((3, 4), (3, 4)),
    "(S4)^3",
    NETS,
    NUMBERS,
)
group(
    "groups of channels",
    lambda x, k, v, d: total(
        lax.conv_general_dilated(
            jnp.tanh(d[..., None] * x), k, (1,), "SAME", dimension_numbers=FRAME, feature_group_count=2
        )
        @ v
    ),
    ((6,), (2, 3, 4), (4,)),
    "(S2)^2 x (S3)^2 x S2",
    X.reshape(1, 15),
)
group("orbits", lambda x: total(x * np.array([1.0, 1.0, 2.0, 2.0, 2.0, 3.0])), ((6,),), "S2 x S3")
group(
    "orbits of two axes at once",
    lambda x: total(x * (np.eye(5) + np.diag([0.0, 0, 1, 1, 1]))),
    ((5, 5),),
    "S2 x S3",
)
group("parts of an axis", lambda x: total(x[:2]) * total(x[2:] ** 2), ((6,),), "S2 x S4")
group(
    "states",
    lambda t, e: total(lax.scan(lambda a, y: (jnp.tanh(a @ t) * y * e, None), e, NUMBERS)[0]),
    ((4, 4), (4,)),
    "S4",
)

# ---- what looks fibred and is not: entries of an axis meet others of it ----------------------------------------------

group("a matrix with its transpose", lambda w: total(w @ w.T), ((3, 4),), "S3 x S4")
group("pairs", lambda z: total(((z[:, None] - z[None]) ** 2).sum(-1) * MATRIX), ((4, 3),), "S3")
group("rows that meet constants of a matrix", lambda z: total((MATRIX @ z) * z), ((4, 3),), "S3")
group(
    "a recurrence over it",
    lambda z: total(lax.scan(lambda c, e: (c + e,) * 2, jnp.zeros(3), z)[1] * z),
    ((4, 3),),
    "S3",
)
group("a running sum over it", lambda z: total(jnp.cumsum(z, 0) * z), ((4, 3),), "S3")
group("it turned around", lambda z: total(z[::-1] * z * np.arange(4.0)[:, None]), ((4, 3),), "S3")
group("it in another order", lambda z: total(z[np.array([1, 0, 3, 2])] + z), ((4, 3),), "S3")
group("it sorted", lambda z: total(jnp.sort(z, 0) * z), ((4, 3),), "S3")
group("its largest", lambda z: total(lax.top_k(z.T, 4)[0] * z.T), ((4, 3),), "S3")
group("it pooled", lambda z: total(lax.reduce_window(z, 0.0, lax.add, (2, 1), (1, 1), "SAME") * z), ((4, 3),), "S3")
group(
    "it smoothed",
    lambda z: total(
        lax.conv_general_dilated(
            z[None], jnp.ones((3, 1, 3)), (1,), "SAME", dimension_numbers=FRAME, feature_group_count=3
        )
        * z
    ),
    ((4, 3),),
    "S3",
)
group(
    "a triangular system in it",
    lambda z: total(jax.scipy.linalg.solve_triangular(np.tril(MATRIX), z, lower=True) * z),
    ((4, 3),),
    "S3",
)
group("it written in part", lambda z: total(lax.dynamic_update_slice(z, z[:2] * 2, (1, 0)) * z), ((4, 3),), "S3")
group(
    "it taken apart and turned",
    lambda z: total(((z * np.arange(4.0)[:, None]).reshape(2, 2, 3).swapaxes(0, 1).reshape(4, 3)) * z),
    ((4, 3),),
    "S3",
)
group("its neighbours by data", lambda z, k: total(z[k] - z), ((4, 3),), "S3", PLACES)
group(
    "lists of its neighbours",
    lambda z, k: total(z[k] - z[:, None]),
    ((4, 3),),
    "S3",
    np.stack([PLACES, PLACES[::-1]], 1),
)
group("rows of data with each other", lambda z, k: total(z[k] @ z[k].T), ((3, 4),), "S4", NETS)
group("rows of data with all", lambda z, k: total(z[k] @ z.T), ((3, 4),), "S4", NETS)
group("rows of two data", lambda z, j, k: total(z[j] * z[k]), ((3, 4),), "S4", NETS, NETS[::-1])
group("sums by segments", lambda z, j, k: total(jax.ops.segment_sum(z[j], k, 3) + z), ((3, 4),), "S4", NETS, NETS[::-1])

group("sums of all of it", lambda z, w: total((jnp.outer(w, jnp.ones(4)) @ z) * z), ((4, 3), (4,)), "S3 x S4")
group(
    "sums of all channels",
    lambda z, w: total(
        lax.conv_general_dilated(z[:, None], jnp.tile(w, (1, 3, 1)), (1,), "SAME", dimension_numbers=FRAME)[:, 0] * z
    ),
    ((4, 3), (3,)),
    "S3 x S4",
)

# ---- traps: swaps of what is pinned change the number ----------------------------------------------------------------

trap("position of the largest", lambda x: jnp.argmax(x) * 1.0, ((4,),), ".")
trap("running sum", lambda x: total(jnp.cumsum(x)), ((4,),), ".")
trap("running sum of equals", lambda x, y: total(jnp.cumsum(jnp.full(4, 0.2) * x) * y), ((), (4,)), "-, .")
trap("turned around", lambda x: total(x * x[::-1]), ((4,),), ".")
trap("rolled", lambda x: total(x * jnp.roll(x, 1)), ((4,),), "1+1+1+1")
trap("by steps", lambda x: total(x[::2]), ((4,),), "(a.)")
trap("by steps that do not divide", lambda x: total(x[::3]), ((4,),), ".")
trap("a triangle", lambda x: total(jnp.tril(x)), ((4, 4),), ". .")
trap("counted", lambda x: total(x * jnp.arange(4.0)), ((4,),), ".")
trap("counted in a loop", lambda x: lax.fori_loop(0, 4, lambda k, c: c + k * x[k], 0.0), ((4,),), ".")
trap("a slice at data", lambda x, k: total(lax.dynamic_slice(x, (k[0],), (2,))), ((4,),), ".", np.array([1]))
trap("an index that is data", lambda x, k: x[k[0]], ((4,),), ".", PLACES)
trap("written at an index", lambda x: total(x.at[1].set(0.5)), ((4,),), "a[1,3]")
trap("multiplied at an index", lambda x: total(x.at[1].multiply(2.0)), ((4,),), "a[1,3]")
trap("written at data", lambda x, k: total(x.at[k].set(0.5)), ((4,),), ".", np.array([1]))
trap("positions of the largest two", lambda x: total(lax.top_k(x, 2)[1] * np.array([1.0, 3.0])), ((4,),), ".")
trap("order as values", lambda x: total(jnp.argsort(x) * np.array([1.0, 3.0, 4.0, 9.0])), ((4,),), ".")
trap("sorted along with data", lambda x, y: total(lax.sort((y, x))[1] * np.arange(4.0)), ((4,),), ".", MATRIX[0])
trap(
    "a convolution's image and window",
    lambda x, k: total(lax.conv_general_dilated(x, k, (1,), "VALID", dimension_numbers=FRAME)),
    ((1, 5, 1), (2, 1, 1)),
    "1 . 1, . 1 1",
)
trap("pooled", lambda x: total(lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "VALID")), ((4,),), ".")
trap("an identity with one other entry", lambda x: x @ (np.eye(4) + 1 + np.diag(ONE_IN_FOUR)) @ x, ((4,),), "a[1,3]")
trap("a circulant matrix", lambda x: x @ (np.eye(5) + np.roll(np.eye(5), 1, 0)) @ x, ((5,),), ".")
trap("one constant in a thousand", lambda x: total(x * np.array([1.0, 1.0, 1.001, 1.0])), ((4,),), "a[1,3]")
trap("another order", lambda x: total(x[np.array([1, 2, 3, 0])] * x), ((4,),), ".")
trap("taken apart two ways", lambda x: total(x.reshape(2, 3).prod(0)) + total(x.reshape(3, 2).prod(0)), ((6,),), "(..)")
trap("a label made a row", lambda x: jax.nn.one_hot(jnp.argmax(x), 4) @ np.array([1.0, 3.0, 4.0, 9.0]), ((4,),), ".")
trap("an index compared", lambda x: total(jnp.where(jnp.arange(4) < 2, x, x**2)), ((4,),), "a[2,2]")
trap(
    "a branch that turns",
    lambda x, y: total(lax.cond(y > 0, lambda: x[::-1], lambda: x) * np.arange(4.0)),
    ((4,), ()),
    "., -",
)
trap("a recurrence", lambda x: lax.scan(lambda c, e: (jnp.tanh(c + e), None), 0.0, x)[0], ((4,),), ".")
trap(
    "data summed by a latent label",
    lambda x, y: total(jax.ops.segment_sum(y, (x > 0.5).astype(int), 2)),
    ((4,),),
    ".",
    np.array([1.0, 3.0, 4.0, 9.0]),
)
trap("folded from one side", lambda x: lax.reduce(x, 0.0, lambda a, b: 0.5 * a + b, (0,)), ((4,),), ".")
trap("segments", lambda x, k: total(jax.ops.segment_sum(x, k, 3) ** 2), ((4,),), ".", PLACES)
trap("gaps", lambda x: total(jnp.diff(x) ** 2), ((4,),), "1+1+1+1")
trap("a Fourier transform", lambda x: total(jnp.abs(jnp.fft.rfft(x))), ((5,),), ".")
trap("a factor", lambda x: total(jnp.linalg.cholesky(jnp.outer(x, x) + np.eye(3))), ((3,),), ".")
trap("filled in", lambda x: total(x.at[np.array([7, 1, 2])].get(mode="fill", fill_value=0.0) * x), ((3,),), ".")
