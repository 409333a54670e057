"""Errors about data that `rebase` does not read: what they are, and the line that makes draws of them.

Knows how other programs keep draws; nothing of relabelling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from numpyro_symmetry.containers.trace import Arrays
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_numbers, refuse_masked, refuse_tracers
from numpyro_symmetry.symmetry.named import draw_dims
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, is_fitted_guide
from numpyro_symmetry.symmetry.shown import counted, some_of

_EXPECTED = (
    "Draws are expected in a dict, a pytree of arrays, a list of ensemble members, an xarray.Dataset, InferenceData, "
    "a DataTree with a posterior group, or numpyro.infer.MCMC after run"
)


def refusal(data: Any) -> SymmetryError:
    """The error about a container of no known type."""
    what = next(words(data) for is_known_by, words in _STRANGERS if is_known_by(data))
    return SymmetryError(f"{_EXPECTED}; got {what}.")


def refusal_of_tree(data: Any, symmetry: Symmetry) -> SymmetryError:
    """The error about a tree that holds none of a symmetry's sites."""
    arrays, site = arrays_by_path(data), next(iter(symmetry.axes), "")
    if chains := [x for path, x in arrays.items() if re.fullmatch(re.escape(site) + r"\.\d+", path)]:
        lengths = [len(x) if x.ndim else 1 for x in chains]
        return SymmetryError(
            f"Site {site!r} comes in {len(chains)} arrays, of {', '.join(map(str, lengths))} draws; expected one, "
            "(chain, draw, ...). Stack those of each site, cut to the shortest: jax.tree.map(lambda chains: "
            f"np.stack([x[-{min(lengths)}:] for x in chains]), draws, is_leaf=lambda x: isinstance(x, list))."
        )
    if not isinstance(data, Mapping):
        return refusal(data)
    return SymmetryError(
        f"The symmetry acts on sites {list(symmetry.axes)}, and the tree holds arrays at {list(arrays)}: "
        "sites of a pytree are the paths to its arrays, with dots between the keys. Find the symmetry on such a tree "
        "(find_symmetry(function, args, argnum=0)), or pass the part of the tree that it was found on."
    )


def _named(data: Any) -> str:
    return type(data).__name__


def _is_list(data: Any) -> bool:
    return isinstance(data, Sequence) and not isinstance(data, str | bytes)


# how a stranger is known -> what it is, and what to pass in its place; of several that fit, the first
_STRANGERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], str]], ...] = (
    (lambda x: isinstance(x, type), lambda x: f"the class {x.__name__}: pass an instance"),
    (
        lambda x: isinstance(x, str | os.PathLike),
        lambda x: (
            f"the path {str(x)!r}: read the file first, az.from_netcdf(path), or of Stan's draws "
            "pandas.read_csv(path, comment='#')"
        ),
    ),
    (lambda x: hasattr(x, "elements") and hasattr(x, "undo"), lambda x: f"a {_named(x)}: pass its draws, out.data"),
    (
        lambda x: "position" in getattr(x, "_fields", ()),
        lambda x: f"the state {_named(x)} of a sampler: pass its positions by site, states.position",
    ),
    (
        lambda x: _is_list(x) and any("position" in getattr(part, "_fields", ()) for part in x),
        lambda x: (
            f"a {_named(x)} of {some_of([*dict.fromkeys(map(_named, x))])}: pass the positions of its states, "
            "states.position"
        ),
    ),
    (
        lambda x: {"params", "losses"} <= {*getattr(x, "_fields", ())},
        lambda x: (
            f"{_named(x)}, which holds no draws: guide.sample_posterior(rng_key, data.params, sample_shape=(1000,))"
        ),
    ),
    (
        lambda x: hasattr(x, "_fields"),
        lambda x: (
            f"the tuple {_named(x)}({', '.join(x._fields)}): pass the one of these that holds draws by site"
            + "".join([f", data.{field}" for field in x._fields if isinstance(getattr(x, field), Mapping)][:1])
        ),
    ),
    (
        lambda x: hasattr(x, "columns") and hasattr(x, "to_numpy"),
        lambda x: (
            f"a {_named(x)} with columns: stack those of each site, such as {{'mu': frame[['mu[1]', 'mu[2]']]."
            "to_numpy()}, or read the trace by ArviZ"
        ),
    ),
    (
        lambda x: hasattr(x, "dtype") and hasattr(x, "shape"),
        lambda x: f"an array of shape {tuple(x.shape)}: name the site that it holds, {{'loc': draws}}",
    ),
    (
        is_fitted_guide,
        lambda x: (
            f"the guide {getattr(x[0], '__name__', _named(x[0]))} and its parameters: pass its draws, "
            "to_arviz(rng_key, guide, params, model_args)"
        ),
    ),
    (lambda x: _is_list(x) and not len(x), lambda x: f"an empty {_named(x)}"),
    (
        _is_list,
        lambda x: (
            f"a {_named(x)} of {_named(x[0])}: members of an ensemble are dicts by site; the parts of one position get "
            "names, dict(zip(names, position))"
        ),
    ),
    (lambda x: True, _named),
)


def as_arrays(data: Mapping[str, Any], symmetry: Symmetry, num_leading_dims: int | None) -> Arrays:
    """The values of a dict as arrays.

    Raises
    ------
    SymmetryError
        If a site is nested, masked, empty or ragged.
    TypeError
        If a site is a tracer: draws are read outside of `jit`.
    """
    refuse_masked(data)
    refuse_nested(data)
    refuse_tracers("Reading draws", **{f"draws[{site!r}]": value for site, value in data.items()})
    refuse_draws_in_several_orders(data)
    values = {}
    for site, value in data.items():
        _refuse_other_order(site, value, num_leading_dims)
        try:
            values[site] = as_numbers(value, f"Site {site!r}")
        except SymmetryError as error:
            if isinstance(value, list | tuple) and isinstance(error.__cause__, ValueError):
                raise SymmetryError(_of_ragged(site, value)) from error
            raise
    if not values:
        raise SymmetryError("There are no draws: the dict is empty.")
    for site in symmetry.axes:
        if site in values and values[site].ndim and values[site].shape[-1] == 0:
            raise SymmetryError(
                f"Site {site!r} is empty: its shape is {values[site].shape}. Were its columns picked by another name?"
            )
    return values


def _refuse_other_order(site: str, value: Any, num_leading_dims: int | None) -> None:
    """Refuse an array with named dimensions of which those in front are not those that count draws."""
    dims = tuple(getattr(value, "dims", ()))
    counted = draw_dims(dims)
    # another dimension that counts draws may stand in front, such as one of several runs
    if tuple(dim for dim in dims[: num_leading_dims or len(counted)] if dim in counted) != counted:
        raise SymmetryError(
            f"Site {site!r} has dimensions {dims}, and arrays in a dict are read by position, (chain, draw, ...) or "
            f"(draw, ...). Pass the whole Dataset, xarray.Dataset(draws), which is read by name; or transpose each, "
            f"draws[{site!r}].transpose({', '.join(map(repr, counted))}, ...)."
        )


def refuse_draws_in_several_orders(data: Mapping[str, Any]) -> None:
    """Refuse arrays in a dict whose draws, by their coordinates, stand in another order at one site than at another.

    Raises
    ------
    SymmetryError
        Naming the two sites, the dimension and the remedy.
    """
    first: dict[str, tuple[str, list[Any]]] = {}
    for site, value in data.items():
        for dim in set(draw_dims(getattr(value, "dims", ()))) & set(getattr(value, "xindexes", ())):
            own = value[dim].values.tolist()
            there, known = first.setdefault(dim, (site, own))
            if own != known and set(own) == set(known):
                raise SymmetryError(
                    f"Sites {there!r} and {site!r} have the same coordinates along {dim!r} in two orders, and arrays "
                    "in a dict are read by position. Pass the whole Dataset, xarray.Dataset(draws), which is read by "
                    f"name; or bring them into one order, draws[{site!r}].sel({{{dim!r}: draws[{there!r}][{dim!r}]}})."
                )


def refuse_nested(data: Mapping[str, Any], what: str = "Site") -> None:
    """Refuse dicts within dicts, as networks keep their parameters."""
    for site, value in data.items():
        if isinstance(value, Mapping):
            raise SymmetryError(
                f"{what} {site!r} is itself a dict of {sorted(map(str, value))}, which hold no arrays; expected arrays."
            )


def _of_ragged(site: str, value: Any) -> str:
    lengths = [len(part) if hasattr(part, "__len__") else 1 for part in value]
    if len(set(lengths)) == 1:
        return f"Site {site!r} is ragged: draws differ in shape; expected draws of one shape."
    return (
        f"Site {site!r} is ragged: its chains have {', '.join(map(str, lengths))} draws; expected the same number of "
        f"each. Cut them to the shortest, value[:{min(lengths)}], in every site."
    )


def refuse_columns(values: Collection[str], symmetry: Symmetry) -> None:
    """Refuse a site that is given in columns of its entries, as Stan (``mu.1``), BUGS and PyMC (``mu[1]``) write them.

    Raises
    ------
    SymmetryError
        Naming the columns in the order of their numbers, and how to stack them.
    """
    for site in symmetry.axes:
        pattern = re.compile(re.escape(site) + r"(\[[\d, ]+\]|(\.\d+)+|__\d+(_\d+)*)")
        columns = [name for name in values if isinstance(name, str) and pattern.fullmatch(name)]
        # by their numbers: sorted as text, the tenth would come before the second
        columns.sort(key=lambda name: [int(number) for number in re.findall(r"\d+", name.removeprefix(site))])
        if site not in values and columns:
            raise SymmetryError(
                f"Site {site!r} is there in {counted(len(columns), 'column')}, {columns[0]!r} to {columns[-1]!r}; "
                f"expected one array (draw, ...). Stack them in the order of their numbers: {{{site!r}: "
                "np.stack([data[c] for c in columns], -1)} (and reshape a matrix), or read the trace by ArviZ."
            )
