"""Arguments of reports and plots of relabelled draws, checked.

Knows `Rebased` and containers; computes nothing but how often labels were exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from numpyro_symmetry.assignment.passes import computed, is_stored
from numpyro_symmetry.containers import Trace, read
from numpyro_symmetry.containers.strangers import refuse_draws_in_several_orders
from numpyro_symmetry.diagnostics.sides import moved_by_no_label
from numpyro_symmetry.symmetry import (
    Element,
    Group,
    Hard,
    SymmetryError,
    compose,
    inverse,
    num_transpositions,
    permutation_of,
    transpositions_at_random,
)
from numpyro_symmetry.symmetry.arguments import as_numbers, is_real, refuse_masked
from numpyro_symmetry.symmetry.hard import to_element
from numpyro_symmetry.symmetry.named import draws_in_front, names_of
from numpyro_symmetry.traces import Rebased
from numpyro_symmetry.traces.moving import trace_of
from numpyro_symmetry.traces.named import refuse_other_draws


def as_rebased(out: Any, call: str) -> Rebased:
    """``out`` itself, if it is what `rebase` returned.

    Raises
    ------
    TypeError
        If ``out`` is something else, such as the relabelled data alone.
    """
    if isinstance(out, Rebased):
        return out
    got = f"the class {out.__name__}" if isinstance(out, type) else type(out).__name__
    raise TypeError(f"{call}: out must be what rebase returned (a Rebased, not its .data); got {got}.")


def pair_of(raw: Any, out: Any, name: str) -> tuple[Any, Rebased]:
    """Draws as given and what `rebase` made of them; of ``name(out)`` alone, ``out`` with its relabelling undone.

    Raises
    ------
    TypeError
        If ``out`` is not what `rebase` returned, or the two arguments were exchanged.
    """
    if out is None:
        out = as_rebased(raw, f"{name}(out)")
        return out.undo(out.data), out
    if isinstance(raw, Rebased):
        raise TypeError(
            f"{name}(raw, out): the draws as given come first, then what rebase returned; got a Rebased first. "
            f"{name}(out) alone does as well; options go by name."
        )
    return raw, as_rebased(out, f"{name}(raw, out)")


def same_draws(raw: Any, out: Rebased) -> tuple[Trace, Trace]:
    """Draws before and after relabelling.

    Raises
    ------
    SymmetryError
        If ``raw`` are not the draws from which `rebase` made ``out``.
    """
    leading = out.objective.shape
    before, after = (read(data, out.symmetry, len(leading), lazily=True) for data in (raw, out.data))
    if missing := sorted(set(out.symmetry.axes) - set(before.values)):
        raise SymmetryError(f"raw has no sites {missing}; expected the draws as they were given to rebase.")
    if before.leading != leading:
        raise SymmetryError(
            f"raw has leading dimensions {before.leading}; rebase saw {leading}. Pass the draws that were given to "
            "rebase, by chains if they were (mcmc.get_samples(group_by_chain=True)), or out alone."
        )
    given = {site: before.values[site] for site in out.symmetry.axes}
    for site, value in given.items():
        expected = after.values[site].shape
        if value.shape != expected:
            raise SymmetryError(f"Site {site!r} of raw has shape {value.shape}; rebase saw {expected}.")
    moved = out.apply(given)
    for site in given:
        if not _is_equal(moved[site], after.values[site]):
            raise SymmetryError(
                f"raw is not what was rebased: relabelled by out.elements, its site {site!r} is not that of out.data. "
                "Pass the draws that were given to rebase, or out alone."
            )
    return before, after


def _is_equal(a: Any, b: Any) -> bool:
    if is_stored(a) or is_stored(b):
        # Dask arrays of the same name are the same computation
        same = is_stored(a) and is_stored(b) and a.name == b.name
        return same or (a.shape == b.shape and bool(computed((a == b).all())))
    return np.array_equal(a, b)


def unchanged(trace: Trace, out: Rebased) -> tuple[dict[str, Any], dict[str, Any]]:
    """Name -> ``(*leading, ...)`` of a container's arrays that no label changes; and of sites that may be such.

    That no label changes a site which the symmetry does not name, the user says, or the model whose symmetry it is;
    of the other sites nobody says anything.
    """
    known: dict[str, Any] = {} if trace.log_density is None else {"log density": trace.log_density}
    known |= {f"log likelihood of {name}": value.data for name, value in trace.log_likelihood.items()}
    still = {*out.carried.still} & trace.values.keys()
    others = moved_by_no_label(trace, out.symmetry) - {*out.labels, *out.carried.label_dependent, *still}
    by_word, beside = (
        {site: trace.values[site] for site in sorted(some) if is_real(trace.values[site].dtype)}
        for some in (still, others)
    )
    return known | by_word, beside


def invariants_of(given: Any, out: Rebased) -> dict[str, np.ndarray]:
    """Name -> array ``(*leading, ...)`` that no label changes, by the user's word.

    Raises
    ------
    TypeError
        If ``given`` is no mapping, or holds anything but real numbers.
    SymmetryError
        If an array is masked or empty, or has other leading dimensions than the draws, or other draws by its names.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"invariants must be a mapping from names to arrays, such as {{'f(x)': ...}}; got {type(given).__name__}."
        )
    refuse_masked(given, "Invariant")
    found, leading = {}, out.objective.shape
    given = {name: draws_in_front(values, len(leading)) for name, values in given.items()}
    refuse_draws_in_several_orders(given)
    refuse_other_draws(trace_of(out), names_of(given, len(leading)), ("the relabelled draws", "invariants"))
    for name, values in given.items():
        array = as_numbers(values, f"Invariant {name!r}", TypeError)
        if not is_real(array.dtype):
            remedy = " Pass its values at the draws." if callable(values) else ""
            raise TypeError(f"Invariant {name!r} holds values of type {array.dtype}; expected real numbers.{remedy}")
        if array.shape[: len(leading)] != leading:
            raise SymmetryError(
                f"Invariant {name!r} has shape {array.shape}; expected the draws' leading dimensions {leading} in "
                "front."
            )
        if not array.size:
            raise SymmetryError(f"Invariant {name!r} has shape {array.shape}, and so no entries to judge chains by.")
        found[str(name)] = array
    return found


def at_random(group: Group) -> float:
    """Expected number of transpositions between two random labellings; of units in blocks, in all blocks together."""
    return math.prod(group.cells) * transpositions_at_random(group.degree)[0]


def transpositions(out: Rebased) -> dict[str, np.ndarray]:
    """Group -> how many transpositions, ``(*chains, draws - 1)``, lie between each draw's labels and the one before it.

    Of units in blocks that move, transpositions in all blocks are counted together.
    """
    shape = out.objective.shape
    element = to_element({n: Hard(p.permutation) for n, p in out.view.parts(out.elements).items()}, shape)
    axis = len(shape) - 1
    before, after = np.arange(shape[-1] - 1), np.arange(1, shape[-1])

    def at(draws: np.ndarray) -> Element:
        return {name: permutation_of(part).take(draws, axis) for name, part in element.items()}

    found = num_transpositions(compose(at(after), inverse(at(before))))
    return {name: np.sum(count, tuple(range(len(shape), np.ndim(count)))) for name, count in found.items()}
