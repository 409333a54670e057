"""Draws with named dimensions: ``xarray.Dataset``, ArviZ's ``InferenceData`` and ``DataTree``.

Only variables of the posterior are ever replaced; other groups are shared. Knows groups and dimensions; no relabelling.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from numpyro_symmetry.containers.trace import Arrays, Container, Trace
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.named import DRAWS, draw_dims

# a variable that says which regions of a store are complete, and an attribute that says which draws they hold
COMPLETE, MARK = "is_complete", "numpyro_symmetry"
# groups of a container that hold the same draws in other forms, which are left as they are
SIBLINGS = ("warmup_posterior", "unconstrained_posterior")
# groups that hold what was drawn given the posterior, and may hold labels
PREDICTED = ("posterior_predictive", "predictions")
# groups that hold data, or whose draws are not the posterior's
APART = (".", "posterior", "observed_data", "constant_data", "predictions_constant_data", "sample_stats_prior")
APART_BY_START = ("prior", "warmup")


def _from_dataset(
    data: xr.Dataset, wrap: Callable[[xr.Dataset], Any], beside: Mapping[str, xr.Dataset] = MappingProxyType({})
) -> Trace:
    dims = draw_dims(data.dims)
    if not dims:
        raise SymmetryError(f"The posterior has dimensions {tuple(data.dims)}; expected chain and draw, or sample.")
    _refuse_other_names(data, dims)
    _refuse_incomplete(data)
    arrays = _of_draws(data, dims)
    known = {str(name) for group in ("observed_data", "log_likelihood") for name in beside.get(group, {})}
    stats, likelihood = (_of_draws(beside.get(group, {}), dims) for group in ("sample_stats", "log_likelihood"))

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        def variable(site: str) -> xr.Variable:
            # without coordinates, which the dataset has already: levels of a stacked index must not come twice
            moved = arrays[site].variable.copy(deep=False, data=new[site])
            return moved.transpose(*data[site].dims)

        return wrap(data.assign({site: variable(site) for site in new}).drop_vars(list(without)))

    return Trace(
        {site: array.data if array.chunks else array.values for site, array in arrays.items()},
        tuple(data.sizes[dim] for dim in dims),
        write,
        dims={site: tuple(map(str, array.dims[len(dims) :])) for site, array in arrays.items()},
        coords={str(dim): data[dim].values for dim in data.dims if dim in data.xindexes},
        log_density=stats["lp"].values if "lp" in stats else None,
        log_likelihood=likelihood,
        left_behind=tuple(group for group in SIBLINGS if group in beside),
        predicted={
            group: {name: x for name, x in _of_draws(beside[group], dims).items() if name not in known}
            for group in PREDICTED
            if group in beside
        },
        paired={
            group: _of_draws(there, dims)
            for group, there in beside.items()
            if _is_paired(group) and all(there.sizes.get(dim) == data.sizes[dim] for dim in dims)
        },
        unmoved={
            str(name): data[name]
            for name in data.variables
            if name not in data.xindexes and name not in (*arrays, *data.dims, *DRAWS)
        },
        chains=_stacked_chains(data, dims),
    )


def _stacked_chains(data: xr.Dataset, dims: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Indices of each chain's draws in order, if coordinates along "sample" give each draw's chain and number."""
    if dims != ("sample",) or any(name not in data.coords or data[name].dims != dims for name in ("chain", "draw")):
        return ()
    chain, draw = (np.unique(data[name].values, return_inverse=True)[1] for name in ("chain", "draw"))
    order = np.lexsort((draw, chain))
    chains = tuple(np.split(order, np.flatnonzero(np.diff(chain[order])) + 1))
    return chains if len(chains) > 1 or (np.diff(order) < 0).any() else ()


def _is_paired(path: str) -> bool:
    """Whether a group, by its name, holds other values for each of the posterior's draws."""
    *above, group = path.split("/")
    if above and above[0] != "posterior":  # of another run, for all that is known
        return False
    return group not in (*SIBLINGS, *PREDICTED, *APART) and not group.startswith(APART_BY_START)


def _refuse_other_names(data: xr.Dataset, dims: tuple[str, ...]) -> None:
    """Refuse draws whose chains or draws are counted by a dimension of another name, taken for a variable's own."""
    if len(dims) != 1 or dims == ("sample",):
        return
    drawn = [array.dims for array in data.data_vars.values() if dims[0] in array.dims]
    if dims == ("draw",):
        # a variable's own dimensions stand behind "draw"; a variable without others may be of all chains
        drawn = [of[: of.index("draw")] for of in drawn if len(of) > 1]
    common = set(drawn[0]).intersection(*drawn) - set(dims) if drawn else set()
    if common:
        absent, alone = ("chain", "one chain") if dims == ("draw",) else ("draw", "one draw a chain")
        names = sorted(map(str, common))
        raise SymmetryError(
            f"The posterior has dimension {dims[0]!r} and no {absent!r}, and every variable has "
            f"{' and '.join(map(repr, names))}. If this is {alone}, say so: data.expand_dims({absent!r}). If "
            f"{names[0]!r} counts {absent}s, rename it: data.rename({names[0]}={absent!r})."
        )


def _refuse_incomplete(data: xr.Dataset) -> None:
    """Refuse a dataset from a store that was not written to its end."""
    if MARK in data.attrs and COMPLETE in data and not (done := data[COMPLETE].values).all():
        raise SymmetryError(
            f"The store was not written to its end: {int(done.sum())} of its {done.size} regions are complete. Write "
            "it again to the same path (out.to_zarr), which leaves those as they are."
        )


def groups_of(data: Any) -> dict[str, xr.Dataset]:
    """Path -> group of a container; the root has the empty path.

    Raises
    ------
    TypeError
        If the container has no named dimensions.
    """
    if isinstance(data, xr.Dataset):
        return {"": data}
    if DATA_TREE.recognises(data):
        return {node.path.strip("/"): node.to_dataset(inherit=False) for node in data.subtree}
    if INFERENCE_DATA.recognises(data):
        return {name: data[name] for name in data.groups()}
    raise TypeError(
        f"expected draws with named dimensions (xarray.Dataset, DataTree or InferenceData); got {type(data).__name__}."
    )


def _of_draws(group: Mapping[Any, xr.DataArray], dims: tuple[str, ...]) -> dict[str, xr.DataArray]:
    """Variables with the draws' dimensions in front; those that lack one of these (constants) are left out.

    Raises
    ------
    SymmetryError
        If a variable has a dimension twice.
    """
    drawn = {str(name): group[name] for name in group if set(dims) <= set(group[name].dims)}
    for name, values in drawn.items():
        if twice := next((dim for dim in values.dims if values.dims.count(dim) > 1), None):
            own = [f"{dim}_{k}" if dim == twice else str(dim) for k, dim in enumerate(values.dims)]
            raise SymmetryError(
                f"Site {name!r} has dimensions {values.dims}: one name twice, which xarray cannot transpose. Name "
                f"both, xarray.DataArray(data[{name!r}].values, dims={own})."
            )
    return {name: values.transpose(*dims, ...) for name, values in drawn.items()}


def _from_inference_data(data: Any) -> Trace:
    groups = {name: data[name] for name in data.groups()}

    if "posterior" not in groups:
        raise SymmetryError(f"The InferenceData has groups {sorted(groups)}; expected one named 'posterior'.")

    def wrap(posterior: xr.Dataset) -> Any:
        new = copy.copy(data)
        new.posterior = posterior
        return new

    return _from_dataset(data.posterior, wrap, groups)


def _from_tree(data: Any) -> Trace:
    groups = {node.relative_to(data): node.to_dataset() for node in data.subtree}
    # a tree may be the posterior group itself, taken out of a larger tree
    path = "posterior" if "posterior" in data.children else "."
    if not groups[path].data_vars:
        raise SymmetryError(f"The DataTree has groups {sorted(data.children)}; expected one named 'posterior'.")

    def wrap(posterior: xr.Dataset) -> Any:
        new = data.copy(deep=False)
        new[path].dataset = posterior
        return new

    return _from_dataset(groups[path], wrap, groups)


def _is_inference_data(data: Any) -> bool:
    # whoever holds an InferenceData has loaded ArviZ, which is slow to load; ArviZ 1 warns whoever asks for the name
    kind = getattr(sys.modules.get("arviz"), "__dict__", {}).get("InferenceData")
    return isinstance(kind, type) and isinstance(data, kind)


DATASET = Container(
    lambda data: isinstance(data, xr.Dataset), lambda data, *_: _from_dataset(data, lambda dataset: dataset)
)
DATA_TREE = Container(lambda data: isinstance(data, xr.DataTree), lambda data, *_: _from_tree(data))
INFERENCE_DATA = Container(_is_inference_data, lambda data, *_: _from_inference_data(data))
