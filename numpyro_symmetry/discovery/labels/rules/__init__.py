"""Rules: how each operation passes labels on from its operands to its results.

A rule takes an `Operation` and returns the labels of each result's axes. To teach a new primitive, add a line to
`RULES`: most are `elementwise`, and whatever has no rule is `unknown`, which pins all that enters, softly: it may yet
be proved free by numbers. Knows terms and single operations; rules for indexing and control flow are next door.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from numpyro_symmetry.discovery.labels.rules.control import CONTROL
from numpyro_symmetry.discovery.labels.rules.elementwise import choice, elementwise, random, unknown
from numpyro_symmetry.discovery.labels.rules.indexing import INDEXING
from numpyro_symmetry.discovery.labels.rules.linear import contraction, convolution, factorisation
from numpyro_symmetry.discovery.labels.rules.pointing import with_pointers
from numpyro_symmetry.discovery.labels.rules.reduce import (
    order_matters,
    position_of_extreme,
    reduction,
    reduction_by_function,
    sort,
    top_k,
    window,
)
from numpyro_symmetry.discovery.labels.rules.shape import barrier, broadcast, reshape, squeeze, transpose
from numpyro_symmetry.discovery.labels.rules.writing import WRITING
from numpyro_symmetry.discovery.labels.walk import Rule

ELEMENTWISE = """
abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil clamp
clz complex conj convert_element_type copy cos cosh device_put digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge
gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min
mul name ne neg nextafter not one_minus_square or polygamma polynomial population_count pow pvary real
reduce_precision regularized_incomplete_beta rem round rsqrt sharding_constraint shift_left shift_right_arithmetic
shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta
""".split()


_REDUCTIONS = "reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor".split()


_RUNNING = "cumlogsumexp cummax cummin cumprod cumsum".split()


_WINDOWS = "reduce_window reduce_window_max reduce_window_min reduce_window_sum".split()


_FACTORISATIONS = """
cholesky eig eigh hessenberg householder_product lu lu_pivots_to_permutation qr schur svd triangular_solve tridiagonal
tridiagonal_solve
""".split()


RULES: Mapping[str, Rule] = MappingProxyType(
    with_pointers(
        dict.fromkeys(ELEMENTWISE, elementwise)
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
            "optimization_barrier": barrier,
            "random_bits": random,
            "random_gamma": random,
            "reduce": reduction_by_function,
            "reshape": reshape,
            "select_n": choice,
            "sort": sort,
            "squeeze": squeeze,
            "top_k": top_k,
            "transpose": transpose,
            "unknown": unknown,
        }
        | INDEXING
        | WRITING
        | CONTROL
    )
)
