"""Draws in Python's own containers: a dictionary by site, any pytree, or ensemble members as a list or stacked.

Knows shapes; nothing of relabelling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpyro_symmetry.containers.strangers import as_arrays, refusal_of_tree, refuse_nested
from numpyro_symmetry.containers.trace import Arrays, Container, Trace
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_array, refuse_masked, refuse_tracers, shape_of
from numpyro_symmetry.symmetry.axes import num_axes
from numpyro_symmetry.symmetry.named import names_of, refuse_others
from numpyro_symmetry.symmetry.pytrees import (
    arrays_by_path,
    as_given,
    as_sites,
    comes_by_site,
    like,
    refuse_other_structure,
    replaced,
    uncompared,
)
from numpyro_symmetry.symmetry.shown import counted


def _from_dict(data: Mapping[str, Any], symmetry: Symmetry, num_leading_dims: int | None) -> Trace:
    if not comes_by_site(data, symmetry.axes):
        return _from_tree(data, symmetry, num_leading_dims)
    values = as_arrays(data, symmetry, num_leading_dims)

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        written = {site: like(data.get(site), value) for site, value in new.items()}
        return _without(as_given(data, written, symmetry.axes), without)

    leading = _leading(values, symmetry, num_leading_dims)
    names = names_of(data, len(leading))
    return Trace(values, leading, write, *names, uncompared=uncompared(data, symmetry.axes))


def _without(values: Any, sites: Collection[str]) -> Any:
    return {site: value for site, value in values.items() if site not in sites} if sites else values


# Draws without chains are, as a rule, at least so many times as many as the labels behind them. Where both readings
# fit, 8 draws of 4 components and 8 chains of 4 draws look the same, and the user has to say which they are.
_DRAWS_PER_LABEL = 10


def _num_leading(values: Arrays, symmetry: Symmetry) -> int:
    if empty := [site for site in symmetry.axes if site in values and not values[site].size]:
        raise SymmetryError(f"There are no draws of {empty}: their shapes are {[values[s].shape for s in empty]}.")
    known = {
        values[site].ndim - num_axes(entries)
        for site, entries in symmetry.axes.items()
        if site in values and ... not in entries
    }
    if len(known) == 1:
        if (num := known.pop()) > 0:
            return num
        raise SymmetryError(
            f"Sites have shapes { ({s: values[s].shape for s in symmetry.axes if s in values}) }, with no dimension "
            "that counts draws; expected (draw, ...) or (chain, draw, ...)."
        )
    if set(symmetry.axes) - set(values) or any(v.ndim < 2 for v in values.values()):
        return 1
    first, second = next(iter(values.values())).shape[:2]
    likely = 2 if first < second else 1
    candidates = [] if known else [num for num in (1, 2) if _fits(values, symmetry, num)]
    if not candidates:
        # if sites' own shapes fit behind one or two dimensions, sites differ in these; else a later check says what
        # does not fit
        binding = [num for num in (2, 1) if _binds(values, symmetry, num)]
        # where sites' ranks contradict each other, few draws of many units are no better a guess than chains
        if likely in binding or not binding or len(known) < 2:
            return next(iter(binding), likely)
    # chains are fewer than their draws
    certain = first < second or (first > second and candidates == [1]) or first >= _DRAWS_PER_LABEL * second
    if likely in candidates and certain:
        return likely
    if len({value.shape[:likely] for value in values.values()}) > 1:
        return likely  # sites differ in length, which reading them this way refuses
    shapes = {site: values[site].shape for site in symmetry.axes if site in values}
    raise SymmetryError(
        f"Cannot tell (draw, ...) from (chain, draw, ...) in sites of shapes {shapes}; say num_leading_dims=1 or 2."
    )


def _fits(values: Arrays, symmetry: Symmetry, num: int) -> bool:
    return len({v.shape[:num] for v in values.values()}) == 1 and _binds(values, symmetry, num)


def _binds(values: Arrays, symmetry: Symmetry, num: int) -> bool:
    try:
        symmetry.bind({s: np.empty(v.shape[num:], bool) for s, v in values.items()})
    except SymmetryError:
        return False
    return True


def _leading(values: Arrays, symmetry: Symmetry, num_leading_dims: int | None) -> tuple[int, ...]:
    num = _num_leading(values, symmetry) if num_leading_dims is None else num_leading_dims
    found: dict[tuple[int, ...], str] = {}
    for site, value in values.items():
        found.setdefault(value.shape[:num], site)
    if len(found) != 1 or len(next(iter(found))) != num:
        shapes = {site: values[site].shape for site in found.values()}
        raise SymmetryError(
            f"Sites disagree on their {counted(num, 'leading dimension')}: their shapes are {shapes}; expected "
            f"{'(chain, draw, ...)' if num == 2 else '(draw, ...)'} with the same numbers in front. Cut them to the "
            "same draws, or pass num_leading_dims if another number of dimensions counts draws."
        )
    return next(iter(found))


def _from_tree(data: Any, symmetry: Symmetry, num_leading_dims: int | None) -> Trace:
    arrays = arrays_by_path(data)
    if symmetry.axes and not arrays.keys() & symmetry.axes.keys():
        raise refusal_of_tree(data, symmetry)
    refuse_masked(arrays)
    refuse_tracers("Reading draws", draws=arrays)
    values = {site: np.asarray(value) for site, value in arrays.items()}

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        return replaced(data, {site: like(arrays[site], value) for site, value in new.items()})

    return Trace(values, _leading(values, symmetry, num_leading_dims), write, uncompared=uncompared(data))


def _from_members(data: Sequence[Any], symmetry: Symmetry, num_leading_dims: int | None) -> Trace:
    members = [as_sites(member, symmetry.axes) for member in data]
    are_named = all(isinstance(member, Mapping) for member in data)
    # a tuple of trees may be one tree, whose paths then begin with a number
    is_one = bool(symmetry.axes.keys() & arrays_by_path(data).keys())
    if is_one or not (are_named or all(member.keys() & symmetry.axes.keys() for member in members)):
        return _from_tree(data, symmetry, num_leading_dims)
    sites = set(members[0])
    for k, member in enumerate(members):
        refuse_masked(member, f"Member {k}: site")
        refuse_nested(member, f"Member {k}: site")
        if set(member) != sites:
            if any(comes_by_site(one, symmetry.axes) for one in data):
                raise SymmetryError(f"Member {k} has sites {sorted(member)}, the first has {sorted(sites)}.")
            refuse_other_structure(data[0], data[k], ("the first member", f"member {k}"))
        refuse_others(members[0], member, symmetry.axes, ("the first member", f"member {k}"))
        for site in sorted(sites):
            if shape_of(member[site], where := f"Member {k}: site {site!r}") != shape_of(members[0][site], where):
                raise SymmetryError(
                    f"Site {site!r} has shape {np.shape(member[site])} in member {k}, {np.shape(members[0][site])} in "
                    f"the first.{_if_chains(members)}"
                )
    values = {
        site: np.stack([as_array(member[site], f"Site {site!r} of a member") for member in members])
        for site in members[0]
    }
    _refuse_chains(values, symmetry, num_leading_dims)

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        rebuilt: Any = type(data)
        moved = ({s: like(m.get(s), v[k]) for s, v in new.items()} for k, m in enumerate(members))
        return rebuilt(
            _without(as_given(member, values, symmetry.axes), without if comes_by_site(member, symmetry.axes) else ())
            for member, values in zip(data, moved, strict=True)
        )

    return Trace(values, (len(data),), write, uncompared=uncompared(data[0], symmetry.axes), are_members=True)


def _if_chains(members: Sequence[Mapping[str, Any]]) -> str:
    """The remedy if members look like chains of several lengths: all sites of one begin with one number."""
    lengths = [{np.shape(value)[:1] for value in member.values()} for member in members]
    if not all(len(own) == 1 and own != {()} for own in lengths):
        return ""
    shortest = min(own.pop()[0] for own in lengths)
    return (
        " If members are chains of draws, stack them, cut to the shortest: "
        f"jax.tree.map(lambda *chains: np.stack([chain[-{shortest}:] for chain in chains]), *members)."
    )


def _refuse_chains(values: Arrays, symmetry: Symmetry, num_leading_dims: int | None) -> None:
    """Refuse members each of which is likelier a chain of draws: their labels would be those of draws."""
    count, *labels = next(iter(values.values())).shape[1:3] or (0,)
    is_likely = num_leading_dims == 2 or (labels and count >= _DRAWS_PER_LABEL * labels[0])
    if num_leading_dims != 1 and is_likely and _fits(values, symmetry, 2):
        shapes = {site: values[site].shape[1:] for site in symmetry.axes}
        raise SymmetryError(
            f"A list is read as members of an ensemble, one draw each, and arrays of shapes {shapes} in each look like "
            "chains of draws. Stack chains, jax.tree.map(lambda *chains: np.stack(chains), *members); "
            "of members say num_leading_dims=1."
        )


def _is_ensemble(data: Any) -> bool:
    is_sequence = isinstance(data, Sequence) and not isinstance(data, str | bytes) and not hasattr(data, "_fields")
    return is_sequence and len(data) > 0 and all(isinstance(x, Mapping) or arrays_by_path(x) for x in data)


@dataclass(frozen=True)
class Members:
    """Members of an ensemble along the first axis of every array: independent by construction, and no chain.

    A stacked tree alone looks like the draws of one chain, which are not independent.

    Parameters
    ----------
    stacked
        Values by site, or a pytree of arrays, each ``(num_members, ...)``.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.containers import Members
    >>> loc = np.array([[-3.0, 0.0, 3.0], [0.1, 3.1, -3.2], [2.9, -2.9, 0.2]])
    >>> out = rebase(Members({"loc": loc}), Symmetry.mixture("loc"), reference="first", null=False)
    >>> out.data.stacked["loc"].round().tolist()
    [[-3.0, 0.0, 3.0], [-3.0, 0.0, 3.0], [-3.0, 0.0, 3.0]]
    """

    stacked: Any


def _from_stacked(data: Members, symmetry: Symmetry, _: int | None) -> Trace:
    trace = (_from_dict if isinstance(data.stacked, Mapping) else _from_tree)(data.stacked, symmetry, 1)
    write = trace.write
    return trace._replace(write=lambda new, without=(): Members(write(new, without)), are_members=True)


STACKED = Container(lambda data: isinstance(data, Members), _from_stacked)
MAPPING = Container(lambda data: isinstance(data, Mapping), _from_dict)
MEMBERS = Container(_is_ensemble, _from_members)
TREE = Container(lambda data: bool(arrays_by_path(data)), _from_tree)
