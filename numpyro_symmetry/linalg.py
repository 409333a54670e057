"""Linear algebra at full precision, and batches that a CPU takes one by one. Knows only arrays.

Batches are taken apart for speed, as batched products leave the fast kernels, and since batched factors hang: XLA
splits a batched LAPACK call over the threads of a pool and blocks the thread that asks for it, so that as many such
calls at once as there are threads wait for each other for ever. On an accelerator a batch stays a batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401  loads the LAPACK that XLA calls
from jax import Array, lax
from threadpoolctl import ThreadpoolController

# longer batches would make programs that take long to compile
_UNROLLED = 16


def hold_lapack_to_one_thread() -> None:
    """Take from SciPy's LAPACK, which XLA calls on a CPU, the threads of its own, for as long as the process lives.

    They wait for each other by spinning, on cores that XLA's threads are using: on two busy cores a factor of order 200
    takes several times the CPU time. Where the environment says how many there are to be, it is obeyed.
    """
    if jax.default_backend() == "cpu" and "OPENBLAS_NUM_THREADS" not in os.environ:
        libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
        # NumPy may have an OpenBLAS of its own, whose threads get in nobody's way
        of_scipy = [library for library in libraries if "scipy" in PurePath(library.filepath).parent.name]
        for library in of_scipy or libraries:
            library.set_num_threads(1)


def at_least_single(values: Array) -> Array:
    """Numbers in single precision, or in double: whole numbers have no means, and halves too coarse ones."""
    # said in NumPy's types: JAX refuses to join two of its own under `jax_numpy_dtype_promotion="strict"`
    return values.astype(jax.dtypes.canonicalize_dtype(np.promote_types(values.dtype, np.float32)))


def product(left: Array, right: Array) -> Array:
    """Matrix product in the precision of its arguments: accelerators round them to fewer bits unless told not to."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def row_sums(values: Array) -> Array:
    """Sums along the last axis, as a product: a CPU adds up a row one number at a time."""
    return product(values, jnp.ones(values.shape[-1], values.dtype))


def row_means(values: Array) -> Array:
    """Means along the last axis, likewise."""
    return row_sums(values) / values.shape[-1]


def once(values: Array) -> Array:
    """Keep whatever computes the values from being fused into, and repeated by, each of their consumers."""
    return lax.optimization_barrier(values)


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays whose batches are single calls on a CPU, where batched products leave the fast kernels.

    On an accelerator a batch stays a batch. Not differentiable as it is: for use within rules of differentiation.
    """
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def _(size: int, batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        # the rule itself and not the function, so that a batch of batches is taken apart too
        def one(index: int | Array) -> Any:
            return single(*jax.tree.map(lambda x, is_batched: x[index] if is_batched else x, args, tuple(batched)))

        if jax.default_backend() != "cpu":
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
            found = jax.vmap(function, axes)(*args)
        elif size > _UNROLLED:
            found = lax.map(one, jnp.arange(size))
        else:
            found = jax.tree.map(lambda *each: jnp.stack(each), *map(one, range(size)))
        return found, jax.tree.map(lambda _: True, found)

    return single


def differentiable_one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """`one_by_one` with a derivative, for which the function is computed again: reverse mode only, and once."""
    value = one_by_one(function)
    rule = jax.custom_vjp(value)
    backward = one_by_one(lambda args, cotangent: jax.vjp(function, *args)[1](cotangent))
    rule.defvjp(lambda *args: (value(*args), args), backward)
    return lambda *args: rule(*varying_alike(args))


def varying_alike(tree: Any) -> Any:
    """Arrays that vary over the same axes of a mesh, as steps of a loop and branches must within `jax.shard_map`.

    Each is marked to vary where any of them does: gradients of those that did not are summed once, outside of rules of
    differentiation and of branches that not every device takes.
    """

    def varying(leaf: Any) -> frozenset[str]:
        return jax.typeof(leaf).manual_axis_type.varying

    axes = frozenset().union(*map(varying, jax.tree.leaves(tree)))

    def mark(leaf: Any) -> Any:
        missing = tuple(axes - varying(leaf))
        return lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(mark, tree)


def scalar_one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """A scalar function of real arrays that a CPU evaluates, and differentiates, one draw of a batch after the other.

    A scalar's gradient is all that its reverse mode ever needs, so that value and gradient are one call. Reverse mode
    only, and once.
    """
    value, value_and_gradient = one_by_one(function), one_by_one(_with_gradient(function))
    rule = jax.custom_vjp(value)
    rule.defvjp(
        value_and_gradient,
        lambda gradient, cotangent: jax.tree.map(lambda x: cotangent.astype(x.dtype) * x, gradient),
    )
    return lambda *args: rule(*varying_alike(args))


def _with_gradient(function: Callable[..., Array]) -> Callable[..., tuple[Array, Any]]:
    def both(*args: Any) -> tuple[Array, Any]:
        found, backward = jax.vjp(function, *args)
        return found, backward(jnp.ones_like(found))

    return both


# ---- factors and solves, reverse mode only --------------------------------------------------------------------------


def _solver(*, transposed: bool) -> Callable[[Array, Array], Array]:
    single = one_by_one(partial(lax.linalg.triangular_solve, left_side=True, lower=True, transpose_a=transposed))

    @jax.custom_batching.custom_vmap
    def solver(factor: Array, right: Array) -> Array:
        return single(factor, right)

    @solver.def_vmap
    def _(size: int, batched: Sequence[bool], factor: Array, right: Array) -> tuple[Array, bool]:
        if batched[0]:
            return jax.vmap(single, [0 if is_batched else None for is_batched in batched])(factor, right), True
        # many right sides of one factor are columns of one call
        columns = jnp.moveaxis(right, 0, 1)
        solved = solver(factor, columns.reshape(columns.shape[0], -1)).reshape(columns.shape)
        return jnp.moveaxis(solved, 1, 0), True

    return solver


_forward, _backward = _solver(transposed=False), _solver(transposed=True)


@jax.custom_vjp
def gram_factor(matrix: Array) -> Array:
    r"""Lower triangular factor C of :math:`I + A^\top A = CC^\top`, as exact as one of A itself.

    Multiplied out, rounding of the size :math:`\varepsilon\operatorname{tr}A^\top A` would drown the identity, and with
    it every direction that A does not see. C is the triangle of a QR factorization of A above the identity.

    Parameters
    ----------
    matrix
        A, ``(m, n)``.

    Returns
    -------
    Array
        C, ``(n, n)``, its diagonal positive.

    References
    ----------
    Higham (2002), *Accuracy and Stability of Numerical Algorithms*, theorem 19.4.
    """
    return _gram_factor(matrix)


def _triangle(matrix: Array) -> Array:
    upper = jnp.linalg.qr(jnp.concatenate([matrix, jnp.eye(matrix.shape[1], dtype=matrix.dtype)]), mode="r")
    return (jnp.sign(jnp.diagonal(upper))[:, None] * upper).T


_gram_factor = one_by_one(_triangle)


def _gram_forward(matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    factor = _gram_factor(matrix)
    return factor, (matrix, factor)


def _gram_backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array]:
    matrix, factor = residuals
    # Murray (2016), arXiv:1602.07527, equation 10
    inner = jnp.tril(product(factor.T, cotangent))
    inner = inner - 0.5 * jnp.diag(jnp.diagonal(inner))
    outer = _backward(factor, _backward(factor, inner).T).T
    return (product(matrix, outer + outer.T),)


gram_factor.defvjp(_gram_forward, _gram_backward)


def _differentiable_solver(*, transposed: bool) -> Any:
    """A solve whose cotangents are solves by the transposed factor."""
    solve, adjoint = (_backward, _forward) if transposed else (_forward, _backward)
    rule = jax.custom_vjp(solve)

    def forward(factor: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
        solution = rule(factor, right)
        return solution, (factor, solution)

    def backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
        factor, solution = residuals
        to_right = adjoint(factor, cotangent)
        outer = product(solution, to_right.T) if transposed else product(to_right, solution.T)
        return -jnp.tril(outer), to_right

    rule.defvjp(forward, backward)
    return rule


_solve, _solve_transposed = _differentiable_solver(transposed=False), _differentiable_solver(transposed=True)


def solve_triangular(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    r"""Solve :math:`Lx = b`, or :math:`L^\top x = b`.

    Parameters
    ----------
    factor
        Lower triangular ``(n, n)``.
    right
        ``(n,)`` or ``(n, k)``.
    transposed
        Whether the factor is transposed.

    Returns
    -------
    Array
        Of the shape of ``right``.
    """
    columns = right[:, None] if right.ndim == 1 else right
    solution = (_solve_transposed if transposed else _solve)(*varying_alike((factor, columns)))
    return solution.reshape(right.shape)


def solve_positive(factor: Array, right: Array) -> Array:
    r"""Solve :math:`LL^\top x = b` from the factor."""
    return solve_triangular(factor, solve_triangular(factor, right), transposed=True)


def log_determinant(factor: Array) -> Array:
    r""":math:`\log\det LL^\top` from the factor."""
    return 2.0 * jnp.log(jnp.diagonal(factor)).sum()


# ---- many small systems side by side --------------------------------------------------------------------------------


def substitute_forward(coefficients: Array, right: Array) -> Array:
    r"""Solve :math:`x_f = b_f + \sum_{l<f} C_{fl}\, x_l` for many systems at once, row by row and without LAPACK.

    Parameters
    ----------
    coefficients
        ``(F, F, n)``, one strictly lower triangular matrix for each system; what is not below the diagonal is not read.
    right
        ``(*sample, F, n)``.

    Returns
    -------
    Array
        Of the shape of ``right``.
    """
    if not right.size:  # a loop of no turns is traced all the same, and finds no row to write to
        return right.astype(jnp.result_type(coefficients, right))
    return _substitute(*varying_alike((coefficients, right)))


def _substituted(coefficients: Array, right: Array) -> Array:
    dtype = jnp.result_type(coefficients, right)

    def add_row(solved: Array, row: tuple[Array, Array, Array]) -> tuple[Array, None]:
        # rows that are not solved yet are zero, and so need no mask
        index, coefficient, of_right = row
        return solved.at[..., index, :].set(of_right + (coefficient * solved).sum(-2)), None

    rows = jnp.arange(right.shape[-2]), coefficients.astype(dtype), jnp.moveaxis(right, -2, 0).astype(dtype)
    return lax.scan(add_row, jnp.zeros_like(right, dtype), rows, unroll=min(_UNROLLED, max(1, right.shape[-2])))[0]


_substitute = jax.custom_vjp(_substituted)


def _substitute_forward(coefficients: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
    solved = _substituted(coefficients, right)
    return solved, (coefficients, solved)


def _substitute_backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    coefficients, solved = residuals
    # the transposed system is one of the same kind from the last row to the first
    to_right = _substituted(coefficients.swapaxes(0, 1)[::-1, ::-1], cotangent[..., ::-1, :])[..., ::-1, :]
    outer = to_right[..., :, None, :] * solved[..., None, :, :]
    outer = outer.reshape(-1, *outer.shape[-3:]).sum(0)
    is_below = jnp.tril(jnp.ones(outer.shape[:2], bool), -1)[:, :, None]
    return jnp.where(is_below, outer, 0.0).astype(coefficients.dtype), to_right


_substitute.defvjp(_substitute_forward, _substitute_backward)


def factor_side_by_side(matrices: Array) -> Array:
    r"""Lower triangular factors of many small positive definite matrices, column by column and without LAPACK.

    Parameters
    ----------
    matrices
        ``(F, F, n)``, one matrix for each system.

    Returns
    -------
    Array
        ``(F, F, n)``.
    """
    rows = jnp.arange(len(matrices))

    def add_column(lower: Array, column: tuple[Array, Array]) -> tuple[Array, None]:
        # columns that are not there yet are zero, and so need no mask
        index, given = column
        left = given - (lower * lower[index]).sum(1)
        below = jnp.where((rows >= index)[:, None], left, 0.0) / jnp.sqrt(left[index])
        return lower.at[:, index].set(below), None

    columns = rows, matrices.swapaxes(0, 1)
    return lax.scan(add_column, jnp.zeros_like(matrices), columns, unroll=min(_UNROLLED, max(1, len(rows))))[0]


def solve_side_by_side(lower: Array, right: Array, *, transposed: bool = False) -> Array:
    r"""Solve :math:`Lx = b`, or :math:`L^\top x = b`, for many small systems at once.

    Parameters
    ----------
    lower
        ``(F, F, n)``, lower triangular.
    right
        ``(*sample, F, n)``.
    transposed
        Whether the factors are transposed.

    Returns
    -------
    Array
        Of the shape of ``right``.
    """
    if transposed:
        return solve_side_by_side(lower.swapaxes(0, 1)[::-1, ::-1], right[..., ::-1, :])[..., ::-1, :]
    own = diagonals(lower)
    return substitute_forward(-lower / own[:, None], right / own)


def diagonals(matrices: Array) -> Array:
    """Diagonals ``(F, n)`` of ``(F, F, n)``."""
    return jnp.diagonal(matrices, axis1=0, axis2=1).T
