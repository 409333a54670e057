"""Rules: how each operation passes labels on from its operands to its results.

A rule takes an `Operation` and returns the labels of each result's axes. To teach a new primitive, add a line to
`RULES`: most are `elementwise`, and whatever has no rule is `unknown`, which pins all that enters, softly: it may yet
be proved free by numbers. Knows terms and single operations; rules for indexing and control flow are next door.
"""

from __future__ import annotations

from numpyro_symmetry.discovery.interpreter import Interpreter, Operation, Rule, Typed, Value
from numpyro_symmetry.discovery.rules_basic import Axes, choice, elementwise, pin_all, unknown
from numpyro_symmetry.discovery.rules_control import CONTROL
from numpyro_symmetry.discovery.rules_indexing import INDEXING
from numpyro_symmetry.discovery.terms import (
    Atom,
    Product,
    Term,
    Uniform,
    axis,
    pin,
    pinned,
    resolve,
    split_factor,
    unify,
)


def reduction(op: Operation) -> Axes:
    """Sums, products, extremes: the same whatever the order, so the axes simply go."""
    gone = op.params["axes"]
    return [[term for k, term in enumerate(op.axes[0]) if k not in gone]]


def fold(op: Operation) -> Axes:
    """A reduction by a function of the user's own, of which nothing says whether the order matters to it."""
    count, reason = len(op.out_shapes), op.reason("folded by a function for which there is no rule", "no rule")
    (out, *_) = elementwise(op._replace(axes=op.axes[:count], shapes=op.shapes[:count], out_shapes=op.shapes[:count]))
    for k in op.params["dimensions"]:
        for axes in op.axes[:count]:
            op._replace(axes=[axes]).mix(axes[k])
        pin(out[k], reason)
    return [[term for k, term in enumerate(out) if k not in op.params["dimensions"]] for _ in op.out_shapes]


def order_matters(op: Operation) -> Axes:
    """Running sums and the like."""
    position, out = op.params["axis"], list(op.axes[0])
    out[position] = _pin_axis(op, out[position], "its order matters")
    return [out]


def position_of_extreme(op: Operation) -> Axes:
    """``argmax``: its values are labels, and nothing says how a label moves."""
    for k in op.params["axes"]:
        pin(op.axes[0][k], op.reason("its labels become values"))
    return reduction(op)


def sort(op: Operation) -> Axes:
    """Sorted values are the same whatever the order; what is carried along is not."""
    position, reason = op.params["dimension"], op.reason("its order becomes values")
    (out, *_) = elementwise(op)
    for axes in op.axes:
        op._replace(axes=[axes]).mix(axes[position])
    if any(not unused for unused in op.unused[op.params.get("num_keys", 1) :]):
        pin(out[position], reason)
    out[position] = pinned(out[position].size, reason)
    return [out for _ in op.out_shapes]


def top_k(op: Operation) -> Axes:
    """The largest values are the same whatever the order; their positions are labels."""
    position, reason = op.params.get("axis", -1) % len(op.axes[0]), op.reason("its order becomes values")
    ranked = op.axes[0][position]
    op.mix(ranked)
    if not op.unused[1]:
        pin(ranked, reason)
    return [
        [pinned(n, reason) if k == position else op.axes[0][k] for k, n in enumerate(shape)] for shape in op.out_shapes
    ]


def transpose(op: Operation) -> Axes:
    """Axes in another order."""
    return [[op.axes[0][k] for k in op.params["permutation"]]]


def squeeze(op: Operation) -> Axes:
    """Axes of size one go."""
    return [[term for k, term in enumerate(op.axes[0]) if k not in op.params["dimensions"]]]


def broadcast(op: Operation) -> Axes:
    """New axes, along which nothing varies."""
    out: list[Term] = [Uniform(n) for n in op.params["shape"]]
    for term, position in zip(op.axes[0], op.params["broadcast_dimensions"], strict=True):
        if term.size == out[position].size:
            out[position] = term
    return [out]


def reshape(op: Operation) -> Axes:
    """Axes flattened, or one taken for several flattened ones."""
    reason = op.reason("reshaped so that its parts do not fit", "moved")
    factors: list[Term] = []
    for term in map(resolve, op.axes[0]):
        factors += term.parts if isinstance(term, Product) else [term] if term.size > 1 else []
    factors.reverse()
    out: list[Term] = []
    for n in op.out_shapes[0]:
        taken: list[Term] = []
        need = n
        while need > 1:
            if not factors:
                return pin_all(op, reason)
            term = resolve(factors.pop())
            if isinstance(term, Product):
                factors += term.parts[::-1]
            elif need % term.size == 0:
                taken.append(term)
                need //= term.size
            elif term.size % need == 0 and isinstance(term, Uniform | Atom):
                if isinstance(term, Uniform):
                    high, low = Uniform(need), Uniform(term.size // need)
                elif term.is_pinned:
                    why = term.reasons[0] if term.reasons else reason
                    high, low = pinned(need, why), pinned(term.size // need, why)
                else:
                    high, low = split_factor(term, need, reason)
                factors.append(low)
                taken.append(high)
                need = 1
            else:
                return pin_all(op, reason)
        out.append(resolve(Product(taken)) if taken else Uniform(n))
    return [out]


def contraction(op: Operation) -> Axes:
    """Matrix products: contracted axes become the same and go, as do those of a batch, which stay."""
    (left_gone, right_gone), (left_batch, right_batch) = op.params["dimension_numbers"]
    left, right = op.axes
    reason = op.reason("two axes meet", "moved")
    gone = [unify(left[a], right[b], reason) for a, b in zip(left_gone, right_gone, strict=True)]
    batch = [unify(left[a], right[b], reason) for a, b in zip(left_batch, right_batch, strict=True)]
    free = [t for k, t in enumerate(left) if k not in (*left_gone, *left_batch)]
    free += [t for k, t in enumerate(right) if k not in (*right_gone, *right_batch)]
    # the products that are summed stand nowhere in the program
    op.interpreter.see(Typed((*batch, *free, *gone)))
    return [batch + free]


def convolution(op: Operation) -> Axes:
    """Channels as in a matrix product, group by group; places in the image keep their order."""
    numbers, groups = op.params["dimension_numbers"], op.params["feature_group_count"]
    image, kernel = op.axes
    if op.params["batch_group_count"] != 1:
        return unknown(op)
    reason = op.reason("two axes meet", "moved")
    out: list[Term] = [Uniform(n) for n in op.out_shapes[0]]
    batch, channel, *places = numbers.lhs_spec
    kernel_out, kernel_in, *windows = numbers.rhs_spec
    out[numbers.out_spec[0]], out[numbers.out_spec[1]] = image[batch], kernel[kernel_out]
    summed = kernel[kernel_in]
    if groups == 1:
        summed = unify(image[channel], kernel[kernel_in], reason)
    else:
        group = axis(groups)
        unify(image[channel], resolve(Product([group, kernel[kernel_in]])), reason)
        channels = resolve(Product([group, axis(op.shapes[1][kernel_out] // groups)]))
        out[numbers.out_spec[1]] = unify(kernel[kernel_out], channels, reason)
    for place, window, result in zip(places, windows, numbers.out_spec[2:], strict=True):
        for term in (image[place], kernel[window]):
            pin(term, op.reason("its order matters to a convolution"))
        out[result] = pinned(out[result].size, op.reason("its order matters to a convolution"))
    # what is summed stands nowhere in the program, and places are mixed
    op.interpreter.see(Typed((out[numbers.out_spec[0]], out[numbers.out_spec[1]], summed)))
    return [out]


def window(op: Operation) -> Axes:
    """Pooling: axes with a window of one are free, the others keep their order."""
    sizes = zip(
        op.params["window_dimensions"], op.params["window_strides"], map(tuple, op.params["padding"]), strict=True
    )
    out = [
        term if size == (1, 1, (0, 0)) else _pin_axis(op, term, "its order matters to a window", shape)
        for term, size, shape in zip(op.axes[0], sizes, op.out_shapes[0], strict=True)
    ]
    return [out for _ in op.out_shapes]


def factorisation(op: Operation) -> Axes:
    """Factors of a matrix: a relabelled matrix has other ones, though what is made of them may be the same."""
    reason = op.reason(f"goes through {op.name}, for which there is no rule", "no rule")
    if len({len(axes) for axes in op.axes}) > 1:
        return unknown(op)
    batch: list[Term] = op.axes[0][:-2]
    for axes in op.axes:
        for term in axes[-2:]:
            op._replace(axes=[axes]).mix(term)
    for axes in op.axes[1:]:
        batch = [unify(a, b, op.reason("two axes meet", "moved")) for a, b in zip(batch, axes[:-2], strict=True)]
    if op.name == "triangular_solve":
        # each column of the right-hand side is solved on its own
        matrix, side = op.axes
        solved, free = (-2, -1) if op.params["left_side"] else (-1, -2)
        for term in (*matrix[-2:], side[solved]):
            pin(term, reason)
        out = [*batch, side[-2], side[-1]]
        out[solved] = pinned(side[solved].size, reason)
        op.interpreter.shadows += [(term, other) for term in matrix[-2:] for other in (side[solved], out[solved])]
        return [out]
    for axes in op.axes:
        for term in axes[-2:]:
            pin(term, reason)
    results = [batch + [pinned(n, reason) for n in shape[len(batch) :]] for shape in op.out_shapes]
    if op.name == "cholesky":
        op.interpreter.shadows += zip(op.axes[0][-2:], results[0][-2:], strict=True)
    return results


def barrier(op: Operation) -> list[Value]:
    """What only orders a program."""
    return op.operands


def _pin_axis(op: Operation, term: Term, text: str, size: int | None = None) -> Term:
    size = term.size if size is None else size
    if isinstance(resolve(term), Uniform) and size == term.size and op.name not in _VARIES:
        return Uniform(size)
    op.mix(term)
    pin(term, op.reason(text))
    return pinned(size, op.reason(text))


# a running sum of equal entries is not uniform
_VARIES = ("cumsum", "cumprod", "cumlogsumexp", "reduce_window", "reduce_window_sum")

_ELEMENTWISE = """
abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil
clamp clz complex conj convert_element_type copy copy_p cos cosh device_put digamma div eq erf erf_inv erfc exp
exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p log2
logistic lt lt_to max min mul name ne neg nextafter not one_minus_square or polygamma population_count pow pvary
random_gamma_grad real reduce_precision regularized_incomplete_beta rem round rsqrt sharding_constraint
shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
zeta
""".split()
_REDUCTIONS = "reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor".split()
_RUNNING = "cumlogsumexp cummax cummin cumprod cumsum".split()
_WINDOWS = "reduce_window reduce_window_max reduce_window_min reduce_window_sum".split()
_FACTORISATIONS = """
cholesky eig eigh hessenberg householder_product lu lu_pivots_to_permutation qr schur svd triangular_solve tridiagonal
tridiagonal_solve
""".split()

RULES: dict[str, Rule] = (
    dict.fromkeys(_ELEMENTWISE, elementwise)
    | dict.fromkeys(_REDUCTIONS, reduction)
    | dict.fromkeys(_RUNNING, order_matters)
    | dict.fromkeys(_WINDOWS, window)
    | dict.fromkeys(_FACTORISATIONS, factorisation)
    | {
        "argmax": position_of_extreme,
        "argmin": position_of_extreme,
        "broadcast_in_dim": broadcast,
        "conv_general_dilated": convolution,
        "dot_general": contraction,
        "expand_dims": broadcast,
        "optimization_barrier": barrier,
        "reduce": fold,
        "reshape": reshape,
        "select_n": choice,
        "sort": sort,
        "squeeze": squeeze,
        "top_k": top_k,
        "transpose": transpose,
        "unknown": unknown,
    }
    | INDEXING
    | CONTROL
)


def interpreter() -> Interpreter:
    """A fresh walk with every rule known."""
    return Interpreter(RULES)
