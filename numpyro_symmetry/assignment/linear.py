"""Linear assignment: the only caller of assignment solvers.

Contract: *columns by row*. ``benefit[..., i, j]`` is what it is worth that slot ``i`` takes unit ``j``; the answer
``p[..., i]`` is the unit that slot ``i`` takes, so it is an element as it stands: ``(g·w)[i] = w[p[i]]``. Knows arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from numpyro_symmetry.chunks import BLOCK, slices
from numpyro_symmetry.symmetry.arguments import as_option, refuse_tracers, rounding_of
from numpyro_symmetry.symmetry.permutation_kinds import PERMUTATION

SOLVERS = ("auto", "scipy", "lapx")
# ties are settled by adding this many units in the last place of the largest benefit to the diagonal
_BONUS = 4.0
# tables up to this size have so few permutations that adding all of them up, in every table at once, takes less than
# solving one table after another; and their sums lose less to rounding than the bonus
_ENUMERATED = 4


def assign(benefit: np.ndarray, *, solver: str = "auto") -> np.ndarray:
    """Permutations of the largest total benefit; of equally good ones, that which moves the fewest labels.

    Parameters
    ----------
    benefit
        ``(..., n, n)``.
    solver
        ``"scipy"``, ``"lapx"`` (the extra ``fast``), or ``"auto"``: lapx where it is installed, and for tables of up to
        four rows every permutation.

    Returns
    -------
    numpy.ndarray
        ``(..., n)`` integers.

    Raises
    ------
    ValueError
        If a benefit is not finite, the tables are not square or the solver is not one of those here.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry.assignment import assign
    >>> assign(np.array([[1.0, 3.0], [2.0, 3.5]])).tolist()
    [1, 0]
    """
    refuse_tracers("assign", benefit=benefit)
    benefit = np.asarray(benefit)
    n = benefit.shape[-1] if benefit.ndim else 0
    if benefit.ndim < 2 or benefit.shape[-2] != n:
        raise ValueError(f"assign expects square tables (..., n, n); got shape {benefit.shape}.")
    solve = _solver(solver)
    tables = benefit.reshape(-1, n, n)
    bonus = _BONUS * rounding_of(benefit.dtype)
    found = np.empty((len(tables), n), int)
    # a block at a time, so that no second batch of tables is ever in memory
    for items in slices(len(tables), n * n, BLOCK):
        flat = tables[items].reshape(-1, n * n)
        largest = np.maximum(flat.max(1, initial=0.0).astype(float), -flat.min(1, initial=0.0).astype(float))
        if not np.isfinite(largest).all():
            raise ValueError("assign expects finite benefits; look for NaN or infinity in what is being matched.")
        block = tables[items].astype(float)
        # the diagonals are where a label stays
        block.reshape(-1, n * n)[:, :: n + 1] += bonus * np.where(largest > 0, largest, 1.0)[:, None]
        if solver == "auto" and n <= _ENUMERATED:
            found[items] = _best_of_all(block)
        else:
            found[items] = [solve(table) for table in block]
    return found.reshape(benefit.shape[:-1])


def _best_of_all(tables: np.ndarray) -> np.ndarray:
    n = tables.shape[-1]
    every = PERMUTATION.elements(n)
    total = np.zeros((len(tables), len(every)))
    for slot in range(n):
        total += tables[:, slot, every[:, slot]]
    return every[total.argmax(1)]


def _solver(name: str) -> Callable[[np.ndarray], np.ndarray]:
    as_option(name, "solver", SOLVERS)
    lapjvh = None if name == "scipy" else _lapx()
    if name == "lapx" and lapjvh is None:
        raise ValueError("solver 'lapx' is not installed: pip install 'numpyro-symmetry[fast]', or use 'scipy'.")
    if lapjvh is None:
        return lambda table: linear_sum_assignment(table, maximize=True)[1]
    return lambda table: lapjvh(-table)[-1] if len(table) > 1 else np.zeros(len(table), int)


@functools.cache
def _lapx() -> Callable[[np.ndarray], Any] | None:
    """The solver of lapx; an older package that is called lap as well has none."""
    try:
        import lap  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return getattr(lap, "lapjvh", None)
