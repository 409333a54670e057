"""A table of operations: small functions that go through each, and the labels their axes should get."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import primitives


class Row(NamedTuple):
    """A function, the shapes of its latent arguments, and the labels that its axes should get.

    Attributes
    ----------
    rules
        Names of rules that it must go through.
    function
        Of the latent arguments, then the data.
    shapes
        Of the latent arguments.
    expected
        Labels of arguments and results, see `tests.support.equivariance.text_of`.
    data
        Further arguments, pinned.
    """

    rules: str
    function: Any
    shapes: tuple
    expected: str
    data: tuple = ()


# JAX 0.10.0 joins what later ones stack
STACKS = hasattr(lax, "stack")
# and have one operation for polynomials
POLYNOMIALS = hasattr(lax, "polynomial")

ROWS: dict[str, Row] = {}


def row(name, rules, function, shapes, expected, *data):
    assert name not in ROWS
    ROWS[name] = Row(rules, function, shapes, expected, data)


# values from .2 to .9
OFFSETS = np.array([1.0, 2.0, 2.0])
BITS = np.array([1, 2, 6])
ONE_IN_FOUR = np.array([0.0, 1.0, 0.0, 0.0])
PLACES = np.array([2, 0, 1, 1])
MATRIX = np.random.default_rng(0).normal(size=(4, 4))
FRAME = ("NWC", "WIO", "NWC")

# ---- one entry at a time ---------------------------------------------------------------------------------------------

REAL = """
abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor
is_finite lgamma log log1p logistic neg round rsqrt sign sin sinh sqrt square tan tanh stop_gradient
"""
PAIRS = """
add sub mul div pow rem max min atan2 nextafter eq ne lt le gt ge igamma igammac igamma_grad_a complex
"""
WHOLE = "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical"


def of_all(names):
    return lambda *args: [getattr(lax, name)(*args) for name in names.split()]


def whole(x):
    return (100 * x).astype(int)


row("one real argument", REAL, of_all(REAL), ((2, 3),), "a b -> 36 × a b")
row("two real arguments", PAIRS, of_all(PAIRS), ((2, 3), (2, 3)), "a b, a b -> 20 × a b")
row(
    "whole numbers",
    "and or xor shift_left shift_right_arithmetic shift_right_logical",
    lambda x, y: of_all(WHOLE)(whole(x), whole(y) % 5),
    ((2, 3), (2, 3)),
    "a b, a b -> 6 × a b",
)
row(
    "bits of whole numbers",
    "not clz population_count bitcast_convert_type convert_element_type",
    lambda x: (
        [f(whole(x)) for f in (lax.bitwise_not, lax.clz, lax.population_count)] + [lax.bitcast_convert_type(x, int)]
    ),
    ((2, 3),),
    "a b -> 4 × a b",
)
row(
    "arguments out of reach",
    "acosh zeta polygamma",
    lambda x, y: [lax.acosh(1 + x), lax.zeta(1 + x, y), lax.polygamma(jnp.ones_like(x), y)],
    ((2, 3), (2, 3)),
    "a b, a b -> 3 × a b",
)
row(
    "total order",
    "le_to lt_to",
    lambda x, y: [primitives.le_to_p.bind(x, y), primitives.lt_to_p.bind(x, y)],
    ((3,), (3,)),
    "a, a -> 2 × a",
)
row(
    "complex numbers",
    "real imag conj",
    lambda x: [f(x + 1j * x**2) for f in (jnp.real, jnp.imag, jnp.conj)],
    ((2, 3),),
    "a b -> 3 × a b",
)
row(
    "copies",
    "copy device_put reduce_precision integer_pow",
    lambda x: [jnp.copy(x), jax.device_put(x), lax.reduce_precision(x, 8, 10), x**3],
    ((3,),),
    "a -> 4 × a",
)
row(
    "a constraint on devices",
    "sharding_constraint",
    lambda x: lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
    ((3,),),
    "a -> a",
)
row("sum of gradients", "add_any mul cos", lambda x: jax.grad(lambda z: jnp.sum(jnp.sin(z) * z))(x), ((3,),), "a -> a")
row(
    "three arguments",
    "regularized_incomplete_beta clamp select_n",
    lambda x, y, z: [lax.betainc(x, y, z), lax.clamp(x, y, z), jnp.where(x > y, y, z)],
    ((2, 3), (2, 3), (2, 3)),
    "a b, a b, a b -> 3 × a b",
)
row("bounds that are numbers", "clamp", lambda x: lax.clamp(0.3, x, 0.6), ((3,),), "a -> a")
row(
    "a choice by a constant",
    "select_n",
    lambda x, y: jnp.where(np.arange(4) < 1, x, y),
    ((4,), (4,)),
    "a[1,3], a[1,3] -> a[1,3]",
)
row("a constant that differs", "mul", lambda x: x * OFFSETS, ((2, 3),), "a b[1,2] -> a b[1,2]")
row("an identity matrix", "mul", lambda x: x * (np.eye(3) + 1), ((3, 3),), "a a -> a a")
row(
    "an identity matrix but for one entry",
    "mul",
    lambda x: x * (np.eye(4) + 1 + np.diag(ONE_IN_FOUR)),
    ((4, 4),),
    "a[1,3] a[1,3] -> a[1,3] a[1,3]",
)
row("an axis of its own transpose", "add", lambda x: x + x.T, ((3, 3),), "a a -> a a")
row("data", "mul", lambda x, y: x * y, ((2, 3),), "a . -> a .", np.arange(3.0))

row("powers of two", "", lambda x: jnp.log2(x), ((3,),), "a -> a")
row("the gradient of an activation", "", lambda x: jax.grad(lambda z: jnp.tanh(z).sum())(x), ((3,),), "a -> a")
row("a name", "name", lambda x: checkpoint_name(x, "here"), ((3,),), "a -> a")
row("a choice that is none", "", lambda x: jnp.where(np.zeros(3, bool), jnp.tanh(x), x), ((3,),), "a -> a")

# ---- reductions, order -----------------------------------------------------------------------------------------------

row(
    "sums and extremes",
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor",
    lambda x: (
        [f(x, 1) for f in (jnp.sum, jnp.prod, jnp.max, jnp.min)]
        + [jnp.all(x > 0.5, 1), jnp.any(x > 0.5, 1), jnp.bitwise_xor.reduce(whole(x), 1)]
    ),
    ((2, 3),),
    "a b -> 7 × a",
)
row(
    "bits of constants",
    "mul",
    lambda x: x * jnp.where(lax.reduce_or(BITS[:2], (0,)) + lax.reduce_and(BITS[1:], (0,)) == 5, OFFSETS, 1.0),
    ((3,),),
    "a[1,2] -> a[1,2]",
)
row("over two axes", "reduce_sum", lambda x: jnp.tanh(x).sum((0, 2)), ((2, 3, 4),), "a b c -> b")
row(
    "where the extremes are", "argmax argmin", lambda x: [jnp.argmax(x, 1), jnp.argmin(x, 1)], ((2, 3),), "a . -> 2 × a"
)
row(
    "running sums",
    "cumsum cumprod cummax cummin cumlogsumexp",
    lambda x: [f(x, axis=1) for f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)],
    ((2, 3),),
    "a . -> 5 × a .",
)
row("running sum of equals", "cumsum", lambda x: jnp.cumsum(jnp.broadcast_to(x, (3, 4)), 0), ((4,),), "a -> . a")
row("running maximum of equals", "cummax", lambda x: lax.cummax(jnp.broadcast_to(x, (3, 4)), 0), ((4,),), "a -> 1 a")
row(
    "a mask drawn from a key of data",
    "random_bits",
    lambda x, key: x * jax.random.bits(jax.random.wrap_key_data(key), (2, 3)),
    ((2, 3),),
    ". . -> . .",
    np.array([0, 7], np.uint32),
)
row(
    "gamma variables",
    "random_gamma",
    lambda x, key: jax.random.gamma(jax.random.wrap_key_data(key), jnp.exp(x)),
    ((3,),),
    ". -> .",
    np.array([0, 7], np.uint32),
)
row("sorted values", "sort", lambda x: jnp.sort(x, 1), ((2, 3),), "a b -> a .")
row(
    "sorted along with keys", "sort", lambda x, y: lax.sort((x, y), dimension=1)[1], ((2, 3), (2, 3)), "a ., a . -> a ."
)
row("the positions of sorted values", "sort", lambda x: jnp.argsort(x, 1), ((2, 3),), "a . -> a .")
row(
    "sorted by two keys",
    "sort",
    lambda x, y: lax.sort((x, y), dimension=1, num_keys=2),
    ((2, 3), (2, 3)),
    "a b, a b -> 2 × a .",
)
row("largest values", "top_k", lambda x: lax.top_k(x, 2)[0], ((3, 4),), "a b -> a .")
row("where the largest are", "top_k", lambda x: lax.top_k(x, 2)[1], ((3, 4),), "a . -> a .")
row(
    "folded by a function",
    "reduce",
    lambda x: lax.reduce(x, 0.0, lambda a, b: jnp.maximum(0.5 * a, b), (1,)),
    ((2, 3),),
    "a . -> a",
)
row(
    "two arrays folded at once",
    "reduce",
    lambda x, y: lax.reduce((x, y), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1] + 0.0 * a[0]), (0,)),
    ((2, 3), (2, 3)),
    ". a, . a -> 2 × a",
)

# ---- shapes ----------------------------------------------------------------------------------------------------------

row("axes in another order", "transpose", lambda x: x.transpose(2, 0, 1), ((2, 3, 4),), "a b c -> c a b")
row("axes of size one", "squeeze broadcast_in_dim", lambda x: x[None].squeeze(0)[:, None], ((3,),), "a -> a 1")
row("repeated", "broadcast_in_dim", lambda x: jnp.broadcast_to(x[:, None], (3, 4)), ((3,),), "a -> a 1")
row(
    "repeated along an axis of size one",
    "broadcast_in_dim",
    lambda x: jnp.broadcast_to(x, (3, 4)),
    ((3, 1),),
    "a 1 -> a 1",
)
row("flattened", "reshape", lambda x: x.reshape(6, 4), ((2, 3, 4),), "a b c -> (ab) c")
row("flattened and back", "reshape", lambda x: jnp.tanh(x.reshape(24)).reshape(2, 12), ((2, 3, 4),), "a b c -> a (bc)")
row("taken apart", "reshape", lambda x: x.reshape(2, 3, 4), ((6, 4),), "(ab) c -> a b c")
row("flattened by columns", "reshape", lambda x: x.reshape(12, 2, order="F"), ((3, 4, 2),), "a b c -> (ba) c")
row("three axes flattened by columns", "reshape", lambda x: x.ravel(order="F"), ((2, 3, 4),), "a b c -> (cba)")
row(
    "a constant flattened by columns",
    "mul",
    lambda x: x * jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]).ravel(order="F"),
    ((6,),),
    "a[2,2,2] -> a[2,2,2]",
)
row(
    "two axes of one label taken apart",
    "reshape",
    lambda x: (x + x.T).reshape(2, 3, 2, 3),
    ((6, 6),),
    "(ab) (ab) -> a b a b",
)
row(
    "taken apart two ways", "reshape", lambda x: [x.reshape(2, 6), x.reshape(6, 2)], ((12,),), "(abc) -> a (bc), (ab) c"
)
row(
    "taken apart two ways that do not fit",
    "reshape",
    lambda x: [x.reshape(2, 3), x.reshape(3, 2)],
    ((6,),),
    "(..) -> 2 × . .",
)
row("taken apart where it is pinned", "reshape", lambda x: (x * np.arange(6.0)).reshape(2, 3), ((6,),), ". -> . .")
row(
    "taken apart in blocks of a constant",
    "reshape",
    lambda x: (x * np.repeat([1.0, 2.0, 2.0], 2)).reshape(3, 2),
    ((6,),),
    "(a[1,2]b) -> a[1,2] b",
)
row("rows that do not fit", "reshape", lambda x: x.reshape(6, 2), ((4, 3),), ". . -> . .")
row(
    "joined and flattened",
    "reshape concatenate",
    lambda x, y: jnp.concatenate([x, y], 1).reshape(10),
    ((2, 3), (2, 2)),
    "a b, a c -> (a(b+c))",
)
row(
    "joined rows flattened",
    "reshape concatenate",
    lambda x, y: jnp.concatenate([x, y]).reshape(10),
    ((3, 2), (2, 2)),
    "a b, c b -> (ab)+(cb)",
)
row(
    "flattened over what does not vary",
    "reshape",
    lambda x: jnp.broadcast_to(x, (2, 3)).reshape(6),
    ((3,),),
    "a -> (1a)",
)
row("repeated as a whole", "tile", lambda x: lax.tile(x, (2, 1)), ((3, 4),), "a b -> (1a) b")
row("repeated one by one", "reshape", lambda x: jnp.repeat(x, 2), ((3,),), "a -> (a1)")
row("only order", "optimization_barrier", lambda x, y: lax.optimization_barrier((x, y)), ((3,), (2,)), "a, b -> a, b")

row(
    "a polynomial",
    "polynomial" if POLYNOMIALS else "scan",
    lambda x: jnp.polyval(np.arange(1.0, 4.0), x),
    ((3, 4),),
    "a b -> a b",
)

# ---- products, images ------------------------------------------------------------------------------------------------

row("a matrix product", "dot_general", lambda x, y: x @ y, ((2, 3), (3, 4)), "a b, b c -> a c")
row("a product with constants", "dot_general", lambda x: MATRIX @ x, ((4, 3),), ". a -> . a")
row("a sum by matrix product", "dot_general", lambda x: x @ np.ones(4), ((3, 4),), "a b -> a")
row(
    "a batch of products",
    "dot_general",
    lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
    ((2, 3, 4), (2, 4, 5)),
    "a b c, a c d -> a b d",
)
row(
    "two axes contracted",
    "dot_general",
    lambda x, y: jnp.einsum("ijk,jkl->il", x, y),
    ((2, 3, 4), (3, 4, 5)),
    "a b c, b c d -> a d",
)
row("an outer product", "dot_general", lambda x, y: jnp.einsum("i,j->ij", x, y), ((2,), (3,)), "a, b -> a b")
row("a matrix with its transpose", "dot_general", lambda x: x @ x.T, ((3, 4),), "a b -> a a")
row("a matrix with itself", "dot_general", lambda x: x @ x, ((3, 3),), "a a -> a a")
row(
    "a convolution",
    "conv_general_dilated",
    lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=FRAME),
    ((2, 5, 3), (3, 3, 4)),
    "a . b, . b c -> a . c",
)
row(
    "a convolution in groups",
    "conv_general_dilated",
    lambda x, k: lax.conv_general_dilated(x, k, (2,), "VALID", dimension_numbers=FRAME, feature_group_count=2),
    ((2, 5, 6), (2, 3, 4)),
    "a . (bc), . c (bd) -> a . (bd)",
)
row(
    "a convolution by channel",
    "conv_general_dilated",
    lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=FRAME, feature_group_count=3),
    ((2, 5, 3), (2, 1, 3)),
    "a . b, . 1 b -> a . b",
)
row(
    "equal weights by channel",
    "conv_general_dilated",
    lambda x: lax.conv_general_dilated(
        x, np.ones((2, 1, 3)), (1,), "SAME", dimension_numbers=FRAME, feature_group_count=3
    ),
    ((2, 5, 3),),
    "a . b -> a . b",
)
row(
    "a convolution in groups of a batch",
    "conv_general_dilated",
    lambda x, k: lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=FRAME, batch_group_count=2),
    ((4, 5, 3), (2, 3, 4)),
    ". . ., . . . -> . . .",
)


def pooled(op, start, shape=(1, 2, 1), strides=None):
    return lambda x: lax.reduce_window(x, start, op, shape, strides or (1, 1, 1), "SAME")


row(
    "pooled",
    "reduce_window_max reduce_window_min reduce_window_sum reduce_window",
    lambda x: [
        pooled(lax.max, -jnp.inf)(x),
        pooled(lax.min, jnp.inf)(x),
        pooled(lax.add, 0.0)(x),
        pooled(lambda a, b: a + b + a * b, 0.0)(x),
    ],
    ((2, 4, 3),),
    "a . b -> 4 × a . b",
)
row(
    "pooled with steps",
    "reduce_window_max",
    pooled(lax.max, -jnp.inf, (1, 2, 2), (1, 2, 2)),
    ((2, 4, 4),),
    "a . . -> a . .",
)
row(
    "pooled with places put between",
    "reduce_window_sum",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1), (1, 1), "VALID", base_dilation=(2, 1)),
    ((3, 4),),
    ". a -> . a",
)
row(
    "pooled where nothing varies",
    "reduce_window_max reduce_window_sum",
    lambda x: [pooled(*op)(jnp.broadcast_to(x, (2, 4, 3))) for op in ((lax.max, -jnp.inf), (lax.add, 0.0))],
    ((3,),),
    "a -> 1 1 a, 1 . a",
)

# ---- factors of matrices: whatever is made of one, its axes are pinned -----------------------------------------------


def gram(x):
    return jnp.einsum("...ij,...kj->...ik", x, x) + 3 * jnp.eye(x.shape[-2])


row(
    "factors of a matrix",
    "cholesky eigh eig svd qr lu schur hessenberg tridiagonal",
    lambda x: [
        lax.linalg.cholesky(gram(x)),
        lax.linalg.eigh(gram(x))[1] ** 2,
        jnp.abs(lax.linalg.eig(gram(x))[0]),
        lax.linalg.svd(gram(x))[1],
        lax.linalg.qr(gram(x))[1] ** 2,
        lax.linalg.lu(gram(x))[0],
        lax.linalg.schur(gram(x))[0] ** 2,
        lax.linalg.hessenberg(gram(x))[0],
        lax.linalg.tridiagonal(gram(x))[1],
    ],
    ((2, 3, 5),),
    "a . b -> a . ., 3 × a ., 4 × a . ., a .",
)
row(
    "a triangular system",
    "triangular_solve",
    lambda x, y: lax.linalg.triangular_solve(gram(x), y, left_side=True, lower=True),
    ((3, 2), (3, 4)),
    ". a, . b -> . b",
)
row(
    "a triangular system from the right",
    "triangular_solve",
    lambda x, y: lax.linalg.triangular_solve(gram(x), y, lower=True),
    ((3, 2), (4, 3)),
    ". a, b . -> b .",
)
row(
    "a tridiagonal system",
    "tridiagonal_solve",
    lambda x, y: lax.linalg.tridiagonal_solve(x, 3 + x, x, y),
    ((3,), (3, 2)),
    "., . . -> . .",
)
row(
    "tridiagonal systems",
    "tridiagonal_solve",
    lambda x, y: lax.linalg.tridiagonal_solve(x, 3 + x, x, y),
    ((2, 3), (2, 3, 1)),
    ". ., . . 1 -> . . 1",
)
row(
    "reflections",
    "householder_product",
    lambda x, y: lax.linalg.householder_product(x, y),
    ((4, 3), (3,)),
    ". ., . -> . .",
)
row(
    "order of pivots",
    "lu_pivots_to_permutation",
    lambda x: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(gram(x))[1], 3),
    ((3, 2),),
    ". a -> .",
)
row(
    "parts of numbers",
    "bitcast_convert_type",
    lambda x: lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint8) * 1.0,
    ((2, 3),),
    ". . -> . . .",
)
row("what has no rule", "fft", lambda x: jnp.abs(jnp.fft.fft(x, axis=1)), ((2, 3),), ". . -> . .")

# ---- slices, joins, indices ------------------------------------------------------------------------------------------

row("a slice", "slice", lambda x: x[1:4], ((5, 2),), "1+a+1 b -> a b")
row("two slices that overlap", "slice", lambda x: [x[:4], x[2:]], ((6,),), "a+b+c -> a+b, b+c")
row("a slice of flattened axes", "slice reshape", lambda x: x.reshape(8)[2:6], ((4, 2),), "1+a+1 b -> (ab)")
row(
    "a slice of a constant's blocks",
    "slice mul",
    lambda x: (x * np.repeat([1.0, 2.0], 2))[1:],
    ((4,),),
    "1+a[1,2] -> a[1,2]",
)
row("a slice of data", "slice", lambda x, y: x * y[1:], ((2,),), ". -> .", np.arange(3.0))
row("a slice by steps", "slice", lambda x: x[::2], ((4, 3),), "(a.) b -> a b")
row("a slice by steps behind the first", "slice", lambda x: x[1::3], ((6, 2),), "(ab[1,2]) c -> a c")
row("a slice by steps that do not divide", "slice", lambda x: x[::3], ((4, 3),), ". a -> . a")
row("a slice by steps of what does not vary", "slice", lambda x: jnp.broadcast_to(x, (4, 3))[::2], ((3,),), "a -> 1 a")
row("several slices", "split", lambda x: jnp.split(x, [2], axis=1), ((3, 5),), "a b+c -> a b, a c")
row("every index", "unstack" if STACKS else "split squeeze", jnp.unstack, ((3, 2),), "1+1+1 a -> 3 × a")
row("joined", "concatenate", lambda x, y: jnp.concatenate([x, y]), ((2, 3), (4, 3)), "a b, c b -> a+c b")
row("joined with itself", "concatenate", lambda x: jnp.concatenate([x, x]), ((2,),), "a -> a+a")
row("joined with a constant", "concatenate", lambda x: jnp.concatenate([x, np.ones(1)]), ((2,),), "a -> a+1")
row(
    "joined axes meet one",
    "concatenate mul",
    lambda x, y, z: jnp.concatenate([x, y]) * z,
    ((2,), (3,), (5,)),
    "a, b, a+b -> a+b",
)
row(
    "joined axes meet others",
    "concatenate mul",
    lambda x, y, z, w: jnp.concatenate([x, y]) * jnp.concatenate([z, w]),
    ((2,), (4,), (3,), (3,)),
    "a, 1+b, a+1, b -> a+1+b",
)
row(
    "joined along a flattened axis",
    "concatenate reshape",
    lambda x, y: jnp.concatenate([x, y], 1).reshape(2, 10),
    ((2, 3, 2), (2, 2, 2)),
    "a b c, a d c -> a (bc)+(dc)",
)
row("rolled", "slice concatenate", lambda x: jnp.roll(x, 1) * x, ((4,),), "1+1+1+1 -> 1+1+1+1")
row(
    "stacked",
    "stack" if STACKS else "concatenate",
    lambda x, y: lax.stack((x, y), 1) if STACKS else jnp.stack([x, y], 1),
    ((3,), (3,)),
    "a, a -> a ." if STACKS else "a, a -> a 1+1",
)
row("padded", "pad", lambda x: lax.pad(x, 0.5, ((1, 2, 0), (0, 0, 0))), ((3, 2),), "a b -> 1+a+1 b")
row("padded between", "pad", lambda x: lax.pad(x, 0.5, ((0, 0, 1), (0, 0, 0))), ((3, 2),), ". a -> . a")
row("padded between, as in turns", "pad", lambda x: lax.pad(x, 0.5, ((1, 0, 1), (0, 0, 0))), ((3, 2),), "a b -> (a.) b")
row("padded less", "pad", lambda x: lax.pad(x, 0.5, ((-1, 0, 0),)), ((3,),), "1+a -> a")
row("padded between equals", "pad", lambda x: lax.pad(jnp.broadcast_to(x, (3,)), 0.5, ((0, 0, 1),)), ((),), "- -> .")
row("turned around", "rev", lambda x: x[::-1], ((3, 2),), ". a -> . a")
row("turned around where nothing varies", "rev", lambda x: jnp.broadcast_to(x, (3, 2))[::-1], ((2,),), "a -> 1 a")
row("a slice at a number", "dynamic_slice", lambda x: lax.dynamic_slice(x, (1, 0), (2, 3)), ((4, 3),), "1+a+1 b -> a b")
row(
    "a slice at a number beyond the end",
    "dynamic_slice",
    lambda x: lax.dynamic_slice(x, (7, 0), (2, 3)),
    ((4, 3),),
    "a+b c -> b c",
)
row(
    "a slice at data",
    "dynamic_slice",
    lambda x, k: lax.dynamic_slice(x, (k[0], 0), (2, 3)),
    ((4, 3),),
    ". a -> . a",
    np.array([1]),
)
row(
    "a slice written at a number",
    "dynamic_update_slice",
    lambda x, y: lax.dynamic_update_slice(x, y, (1, 0)),
    ((4, 3), (2, 3)),
    "1+a+1 b, c b -> 1+c+1 b",
)
row(
    "a slice written at the end, wherever it is said to start",
    "dynamic_update_slice",
    lambda x, y: lax.dynamic_update_slice(x, y, (0, 7)),
    ((4, 5), (4, 2)),
    "a b+c, a d -> a b+d",
)
row(
    "a corner written",
    "dynamic_update_slice",
    lambda x, y: lax.dynamic_update_slice(x, y, (1, 0)),
    ((4, 3), (2, 2)),
    ". ., . . -> . .",
)
row("columns written", "scatter", lambda x, y: x.at[:, 1:3].set(y), ((4, 6), (4, 2)), "a 1+b+c, a d -> a 1+d+c")
row("first columns written", "scatter", lambda x, y: x.at[:, :2].set(y), ((4, 5), (4, 2)), "a b+c, a d -> a d+c")
row("columns written over", "scatter", lambda x: x.at[:, 1:3].set(0.5), ((4, 6),), "a 1+b+c -> a 1+1+c")
row("columns added", "scatter-add", lambda x, y: x.at[:, 1:3].add(y), ((4, 6), (4, 2)), "a 1+b+c, a b -> a 1+b+c")
row("a corner set", "scatter", lambda x, y: x.at[1:3, :2].set(y), ((4, 3), (2, 2)), ". ., . . -> . .")
row("every other row set", "scatter", lambda x, y: x.at[::2].set(y), ((4, 3), (2, 3)), ". a, . a -> . a")
row(
    "all written over",
    "dynamic_update_slice",
    lambda x, y: lax.dynamic_update_slice(x, y, (0, 0)),
    ((4, 3), (4, 3)),
    "a b, a b -> a b",
)

row("one index", "gather", lambda x: jnp.take(x, 1, axis=0), ((4, 3),), "a[1,3] b -> b")
row("indices in order", "gather", lambda x: x[:, np.arange(1, 4)], ((2, 5),), "a 1+b+1 -> a b")
row("all indices", "gather", lambda x: x[np.arange(4)], ((4,),), "a -> a")
row("indices by steps", "gather", lambda x: x[np.arange(1, 6, 2)], ((6, 2),), "(a.) b -> a b")
row("indices in another order", "gather", lambda x: x[PLACES], ((3, 2),), ". a -> . a")
row("one index twice", "gather", lambda x: x[np.array([1, 1, 1])], ((4, 2),), "a[1,3] b -> 1 b")
row("a diagonal", "", lambda x: jnp.diagonal(x), ((4, 4),), "a a -> a")
row(
    "an index out of bounds that is filled in",
    "gather",
    lambda x: x.at[np.array([5, 1, 2])].get(mode="fill", fill_value=0.0),
    ((3,),),
    ". -> .",
)
row(
    "an index out of bounds that becomes no number",
    "gather",
    lambda x: jnp.isnan(jnp.take(x, np.array([1, 2, 5]))),
    ((4,),),
    ". -> .",
)
row("a diagonal in another order", "gather", lambda x: x[np.arange(4), np.array([1, 0, 3, 2])], ((4, 4),), ". . -> .")
row("a triangle", "gather", lambda x: x[np.tril_indices(3)], ((3, 3),), ". . -> .")
row("indices that are data", "gather", lambda x, k: x[k], ((3, 2),), ". a -> . a", PLACES)
row("columns that are data", "gather", lambda x, k: x[np.arange(4), k], ((4, 3),), ". . -> .", PLACES)
row(
    "columns that are latent",
    "gather",
    lambda x, y: x[np.arange(4), jnp.argmax(y, 1)],
    ((4, 3), (4, 2)),
    ". ., . . -> .",
)
row(
    "positions of the largest",
    "gather",
    lambda x, y: jnp.take_along_axis(x, jnp.argmax(y, 1, keepdims=True), 1),
    ((4, 3), (4, 2)),
    "a ., a . -> a 1",
)
row(
    "a window at data",
    "gather",
    lambda x, k: jax.vmap(lambda i: lax.dynamic_slice(x, (i, 0), (2, 2)))(k),
    ((4, 2),),
    ". a -> . . a",
    PLACES,
)

row("written at one index", "scatter", lambda x: x.at[1].set(0.5), ((4, 3),), "a[1,3] b -> a[1,3] b")
row("a row written", "scatter", lambda x, y: x.at[1].set(y), ((4, 3), (3,)), "a[1,3] b, b -> a[1,3] b")
row(
    "a row written in another order",
    "scatter",
    lambda x, y: x.at[1, jnp.array([2, 0, 1])].set(y),
    ((4, 3), (3,)),
    ". ., . -> . .",
)
row(
    "a constant row written in another order",
    "scatter",
    lambda x: x.at[1, jnp.array([2, 0, 1])].set(0.5),
    ((4, 3),),
    "a[1,3] b -> a[1,3] b",
)
row("a row multiplied", "scatter-mul", lambda x, y: x.at[1].multiply(y), ((4, 3), (3,)), "a[1,3] b, b -> a[1,3] b")
row("a column added", "scatter-add", lambda x, y: x.at[:, 1].add(y), ((4, 3), (4,)), "a b[1,2], a -> a b[1,2]")
row("written at some indices", "scatter", lambda x, y: x.at[PLACES[:3]].set(y), ((4, 3), (3, 3)), ". a, . a -> . a")
row("written at data", "scatter", lambda x, y, k: x.at[k].set(y), ((4, 3), (3,)), ". a, a -> . a", np.array(1))
row(
    "added, multiplied and compared at data",
    "scatter-add scatter-sub scatter-mul scatter-max scatter-min",
    lambda x, y, k: [getattr(x.at[k], f)(y) for f in ("add", "subtract", "multiply", "max", "min")],
    ((3, 2), (4, 2)),
    ". a, . a -> 5 × . a",
    PLACES,
)
row("summed by segments", "scatter-add", lambda x, k: jax.ops.segment_sum(x, k, 3), ((4, 2),), ". a -> . a", PLACES)
row(
    "summed by labels of its own",
    "scatter-add",
    lambda x, y: jnp.zeros(3).at[jnp.argmax(x, 1)].add(y),
    ((4, 3), (4,)),
    "a b, a -> b",
)
row(
    "data summed by latent labels",
    "scatter-add",
    lambda x, y: jnp.zeros(3).at[jnp.argmax(x, 1)].add(y),
    ((4, 3),),
    ". a -> a",
    np.arange(4.0),
)
row(
    "one place of each row written",
    "scatter",
    lambda x: jax.vmap(lambda row: jnp.zeros(3).at[jnp.argmax(row)].set(1.0))(x),
    ((4, 3),),
    "a b -> a b",
)
row(
    "each written where its label says",
    "scatter",
    lambda x, y: jnp.zeros(4).at[jnp.argmax(x, 1)].set(y),
    ((4, 3), (4,)),
    ". ., . -> .",
)
row(
    "marks where labels say",
    "scatter",
    lambda x: jnp.zeros(3).at[jnp.argmax(x, 1)].set(1.0),
    ((4, 3),),
    "a b -> b",
)
row(
    "marks where labels of fewer say",
    "scatter",
    lambda x: jnp.zeros(5).at[lax.argmax(x, 1, np.uint32)].set(1.0),
    ((4, 3),),
    "a . -> .",
)
row(
    "rows where the largest of fewer stand",
    "argmax gather",
    lambda x, y: x[lax.argmax(y, 1, np.uint32)],
    ((5, 3), (6, 4)),
    ". a, b . -> b a",
)
row(
    "rows where the largest and the smallest stand",
    "argmax argmin gather",
    lambda x, y: [x[jnp.argmax(y, 1)], jax.vmap(lambda row: x[jnp.argmin(row)])(y)],
    ((4, 3), (5, 4)),
    "a b, c a -> 2 × c b",
)
row(
    "the row where the largest stands",
    "argmax dynamic_slice",
    lambda x, y: x[jnp.argmax(y)],
    ((4, 3), (4,)),
    "a b, a -> b",
)
row(
    "two rows from where the largest stands",
    "argmax dynamic_slice",
    lambda x, y: lax.dynamic_slice_in_dim(x, jnp.argmax(y), 2),
    ((4, 3), (4,)),
    ". a, . -> . a",
)
row(
    "the row where the largest of fewer stands",
    "argmax dynamic_slice",
    lambda x, y: x[jnp.argmax(y)],
    ((5, 3), (4,)),
    ". a, . -> a",
)
row(
    "two rows written from where the largest stands",
    "argmax dynamic_update_slice",
    lambda x, y: lax.dynamic_update_slice_in_dim(jnp.zeros((4, 3)), x, jnp.argmax(y), 0),
    ((2, 3), (4,)),
    ". a, . -> . a",
)
row(
    "two entries of each row written from where its largest stands",
    "argmax scatter",
    jax.vmap(lambda x, y: lax.dynamic_update_slice_in_dim(jnp.zeros(4), x, jnp.argmax(y), 0)),
    ((5, 2), (5, 4)),
    "a ., a . -> a .",
)
row(
    "where the largest and the smallest stand, as numbers",
    "argmax argmin concatenate",
    lambda x: jnp.concatenate([jnp.argmax(x, 1), jnp.argmin(x, 1)]) * 1.0,
    ((3, 4),),
    "a . -> a+a",
)
row(
    "the largest, where they stand",
    "top_k gather",
    lambda x: jnp.take_along_axis(x, lax.top_k(x, 2)[1], 1),
    ((3, 4),),
    "a b -> a .",
)
row("labels as rows", "argmax eq", lambda x, y: jax.nn.one_hot(jnp.argmax(x, 1), 3) @ y, ((4, 3), (3,)), "a b, b -> a")
row("in the order of the largest", "sort gather", lambda x, y: x[jnp.argsort(y)], ((4, 3), (4,)), "a b, a -> . b")
row("a label one further on", "argmax", lambda x, y: x[(jnp.argmax(y) + 1) % 4], ((4, 3), (4,)), ". a, . -> a")
row("the label of a label", "argmax", lambda x, y: x[jnp.argmax(jnp.argmax(y, 1))], ((4, 3), (4, 3)), ". a, . . -> a")
row(
    "a label that a loop carries",
    "argmax scan",
    lambda x, y: lax.scan(lambda k, row: (jnp.argmax(row), x[k]), 0, y)[1],
    ((4, 3), (5, 4)),
    ". a, . . -> . a",
)
row("a function applied at an index", "scatter-apply", lambda x: x.at[1].apply(jnp.exp), ((4,),), ". -> .")
row(
    "a function applied to constants at an index",
    "mul",
    lambda x: x * jnp.array([1.0, 0.0, 1.0]).at[1].apply(jnp.exp),
    ((3,),),
    "a -> a",
)
row("a constant added at an index", "scatter-add", lambda x: x.at[1].add(0.5), ((4,),), "a[1,3] -> a[1,3]")
row(
    "a vector on a diagonal",
    "scatter",
    lambda x, y: x.at[np.arange(3), np.arange(3)].set(y),
    ((3, 3), (3,)),
    "a a, a -> a a",
)
row(
    "a vector beside a diagonal",
    "scatter",
    lambda x, y: x.at[np.arange(3), (np.arange(3) + 1) % 3].set(y),
    ((3, 3), (3,)),
    ". ., . -> . .",
)
row(
    "a vector multiplies blocks of a diagonal",
    "scatter-mul",
    lambda x, y: x.at[:, np.arange(3), np.arange(3)].multiply(y),
    ((2, 3, 3), (3,)),
    "a b b, b -> a b b",
)
row(
    "a constant added to a diagonal",
    "scatter-add",
    lambda x: x.at[np.arange(3), np.arange(3)].add(0.5),
    ((3, 3),),
    "a a -> a a",
)

# ---- loops and branches ----------------------------------------------------------------------------------------------

row(
    "a recurrence",
    "scan",
    lambda x, w: lax.scan(lambda h, x: (jnp.tanh(h @ w + x),) * 2, jnp.zeros(3), x),
    ((4, 3), (3, 3)),
    ". a, a a -> a, . a",
)
row("a map", "scan", lambda x, w: lax.map(lambda row: jnp.tanh(row) * w, x), ((4, 3), (3,)), "a b, b -> a b")
row("a map beside its own axis", "scan", lambda x: lax.map(lambda k: (k * x).sum() + x, x), ((4,),), "a -> a a")
row(
    "a map whose steps are told apart",
    "scan",
    lambda x: lax.map(lambda given: given[0] * given[1], (x, jnp.array([1.0, 2.0, 2.0, 2.0]))),
    ((4,),),
    "a[1,3] -> a[1,3]",
)
row(
    "a loop that carries a constant along",
    "scan",
    lambda x: lax.scan(lambda c, x: (c, x * c), np.array([1.0, 2.0, 2.0]), x)[1],
    ((4, 3),),
    "a b[1,2] -> a b[1,2]",
)
row(
    "a loop that turns what it carries",
    "scan",
    lambda x: lax.scan(lambda c, x: (c[::-1] + x, x), jnp.zeros(3), x)[0],
    ((4, 3),),
    ". . -> .",
)
row(
    "a loop that fills what was zero",
    "scan",
    lambda x: lax.scan(lambda c, x: (c + x, c), jnp.zeros(3), x)[1],
    ((4, 3),),
    ". a -> . a",
)
row(
    "a loop that counts",
    "while",
    lambda x, w, k: lax.fori_loop(0, k[0], lambda i, h: jnp.tanh(w @ h) * i, x),
    ((4,), (4, 4)),
    "a, a a -> a",
    PLACES,
)
row(
    "a loop that counts through",
    "scan dynamic_slice",
    lambda x: lax.fori_loop(0, 3, lambda k, h: h + x[k], jnp.zeros(2)),
    ((3, 2),),
    ". a -> a",
)
row(
    "a loop until something holds",
    "while",
    lambda x, y: lax.while_loop(lambda s: s[0].sum() > 0.1, lambda s: (s[0] / 2, s[1] * y), (x, x))[1],
    ((3,), (3,)),
    "a, a -> a",
)
row(
    "a branch on data",
    "cond",
    lambda x, y, k: lax.cond(k[0] > 1, lambda: x * y, lambda: x.sum() * y),
    ((3,), (3,)),
    "a, a -> a",
    PLACES,
)
row(
    "a branch on what is latent",
    "cond",
    lambda x, y: lax.cond(y > 0.5, lambda: x, lambda: x[::-1]),
    ((3,), ()),
    "., - -> .",
)
row(
    "a branch on a constant", "cond", lambda x: lax.switch(np.int32(0), [lambda: x, lambda: x[::-1]]), ((3,),), "a -> a"
)
