"""Draws in Python's own containers: a dictionary by site, or a list of ensemble members.

Knows shapes; nothing of relabelling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.containers.strangers import as_arrays, refuse_nested
from numpyro_symmetry.containers.trace import Arrays, Container, Trace
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_array, refuse_masked, shape_of
from numpyro_symmetry.symmetry.axes import num_axes


def _from_dict(data: Mapping[str, Any], symmetry: Symmetry, num_leading_dims: int | None) -> Trace:
    values = as_arrays(data, symmetry)
    num = _num_leading(values, symmetry) if num_leading_dims is None else num_leading_dims

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        written = {site: like(data.get(site), value) for site, value in new.items()}
        return {site: value for site, value in (dict(data) | written).items() if site not in without}

    return Trace(values, _leading(values, num), write)


def like(given: Any, new: np.ndarray) -> Any:
    """New values as an array of the library that those given are of."""
    return jnp.asarray(new) if isinstance(given, jax.Array) else new


def _num_leading(values: Arrays, symmetry: Symmetry) -> int:
    known = {
        values[site].ndim - num_axes(entries)
        for site, entries in symmetry.axes.items()
        if site in values and ... not in entries
    }
    candidates = [num for num in (1, 2) if _fits(values, symmetry, num) and (not known or known == {num})]
    if len(known) == 1 and not candidates:
        if (num := known.pop()) > 0:
            return num
        raise SymmetryError(
            f"Sites have shapes { ({s: values[s].shape for s in symmetry.axes if s in values}) }, with no dimension "
            "that counts draws; expected (draw, ...) or (chain, draw, ...)."
        )
    if known and len(candidates) == 1:
        return candidates[0]
    if set(symmetry.axes) - set(values) or any(v.ndim < 2 for v in values.values()):
        return 1
    first, second = next(iter(values.values())).shape[:2]
    likely = 2 if first < second else 1
    if not candidates:
        # sites whose own shapes fit behind some dimensions differ in these; else what does not fit is said later
        return next((num for num in (2, 1) if _binds(values, symmetry, num)), likely)
    # chains are fewer than their draws, and labels than draws
    if first != second and likely in candidates:
        return likely
    if len({value.shape[:likely] for value in values.values()}) > 1:
        return likely  # sites differ in length, and that is said when they are read so
    shapes = {site: values[site].shape for site in symmetry.axes if site in values}
    raise SymmetryError(
        f"Cannot tell (draw, ...) from (chain, draw, ...) in sites of shapes {shapes}; say num_leading_dims=1 or 2."
    )


def _fits(values: Arrays, symmetry: Symmetry, num: int) -> bool:
    return len({v.shape[:num] for v in values.values()}) == 1 and _binds(values, symmetry, num)


def _binds(values: Arrays, symmetry: Symmetry, num: int) -> bool:
    if any(v.ndim < num for v in values.values()):
        return False
    try:
        symmetry.bind({s: np.empty(v.shape[num:], bool) for s, v in values.items()})
    except SymmetryError:
        return False
    return True


def _leading(values: Arrays, num: int) -> tuple[int, ...]:
    found: dict[tuple[int, ...], str] = {}
    for site, value in values.items():
        found.setdefault(value.shape[:num], site)
    if len(found) != 1 or len(next(iter(found))) != num:
        shapes = {site: values[site].shape for site in found.values()}
        raise SymmetryError(
            f"Sites disagree on their {num} leading dimensions: their shapes are {shapes}; expected "
            f"{'(chain, draw, ...)' if num == 2 else '(draw, ...)'} with the same numbers in front. Cut them to the "
            "same draws, or pass num_leading_dims if another number of dimensions counts draws."
        )
    return next(iter(found))


def _from_members(data: Sequence[Mapping[str, Any]], *_: Any) -> Trace:
    sites = set(data[0])
    for k, member in enumerate(data):
        refuse_masked(member, f"Member {k}: site")
        refuse_nested(member, f"Member {k}: site")
        if set(member) != sites:
            raise SymmetryError(f"Member {k} has sites {sorted(member)}, the first has {sorted(sites)}.")
        for site in sites:
            if shape_of(member[site], where := f"Member {k}: site {site!r}") != shape_of(data[0][site], where):
                raise SymmetryError(
                    f"Site {site!r} has shape {np.shape(member[site])} in member {k}, {np.shape(data[0][site])} in the "
                    "first."
                )
    values = {
        site: np.stack([as_array(member[site], f"Site {site!r} of a member") for member in data]) for site in data[0]
    }

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        rebuilt: Any = type(data)
        each = (dict(m) | {s: like(m.get(s), v[k]) for s, v in new.items()} for k, m in enumerate(data))
        return rebuilt({site: value for site, value in member.items() if site not in without} for member in each)

    return Trace(values, (len(data),), write)


def _is_ensemble(data: Any) -> bool:
    plain = isinstance(data, Sequence) and not hasattr(data, "_fields")
    return plain and len(data) > 0 and all(isinstance(member, Mapping) for member in data)


MAPPING = Container(lambda data: isinstance(data, Mapping), _from_dict)
MEMBERS = Container(_is_ensemble, _from_members)
