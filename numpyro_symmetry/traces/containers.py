"""Draws in the container they came in: read as arrays, written back as the same type.

Dictionaries, lists of ensemble members, ``xarray.Dataset``, ArviZ's ``InferenceData`` and ``DataTree``, and NumPyro's
``MCMC``. Only the posterior's own sites are ever replaced. Knows shapes; nothing of relabelling.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from numpyro_symmetry.models.compat import states_of, with_states
from numpyro_symmetry.symmetry import Symmetry, SymmetryError
from numpyro_symmetry.symmetry.arguments import as_array, as_count, refuse_masked, shape_of
from numpyro_symmetry.symmetry.axes import num_axes
from numpyro_symmetry.traces.coordinates import Arrays
from numpyro_symmetry.traces.strangers import as_arrays, refuse, refuse_nested

# groups of a container that hold the same draws in other forms, which are left as they are
SIBLINGS = ("warmup_posterior", "unconstrained_posterior")
# groups that hold what was drawn given the posterior, and may hold labels
PREDICTED = ("posterior_predictive", "predictions")


class Write(Protocol):
    """New values of some sites -> a container of the type that was read, without some others; the rest is shared."""

    def __call__(self, new: Arrays, without: Collection[str] = ()) -> Any:
        """The container."""
        ...


class Trace(NamedTuple):
    """Draws of a posterior.

    Attributes
    ----------
    values
        Site -> ``(*leading, *event)``.
    leading
        Shape of the leading dimensions.
    write
        New values of some sites, and sites to leave out -> a container of the type that was read; the rest is shared.
    dims
        Site -> names of its event dimensions, if they have any.
    log_density
        ``(*leading)`` log density of each draw, if the container holds it.
    log_likelihood
        Observed site -> ``(*leading, ...)``, as far as the container holds it; not loaded before it is looked at.
    left_behind
        Groups of the container that hold the same sites, and keep their labels.
    predicted
        Group -> variable -> draws of what was predicted and is no data; not loaded before it is looked at.
    """

    values: Arrays
    leading: tuple[int, ...]
    write: Write
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    log_density: np.ndarray | None = None
    log_likelihood: Mapping[str, xr.DataArray] = MappingProxyType({})
    left_behind: tuple[str, ...] = ()
    predicted: Mapping[str, Mapping[str, xr.DataArray]] = MappingProxyType({})

    @property
    def num_draws(self) -> int:
        """Number of draws in all."""
        return int(np.prod(self.leading))

    def flat(self, sites: Sequence[str]) -> Arrays:
        """Some sites as ``(draw, *event)``."""
        return {s: self.values[s].reshape(self.num_draws, *self.values[s].shape[len(self.leading) :]) for s in sites}


def read(data: Any, symmetry: Symmetry, num_leading_dims: int | None = None) -> Trace:
    """Read draws from any container.

    Parameters
    ----------
    data
        The container.
    symmetry
        Whose sites' ranks tell leading dimensions from a site's own, in containers that do not name them.
    num_leading_dims
        Says so where the symmetry cannot.

    Returns
    -------
    Trace
        Reading shares memory with the container.

    Raises
    ------
    SymmetryError
        If the container is of no known type, is empty, or its sites disagree on their leading dimensions.
    """
    if num_leading_dims is not None:
        num_leading_dims = as_count(
            num_leading_dims, "num_leading_dims", meaning="1 for (draw, ...), 2 for (chain, draw, ...)"
        )
    # the containers of xarray and ArviZ are mappings too
    if isinstance(data, xr.Dataset):
        return _from_dataset(data, lambda dataset: dataset)
    # older versions of xarray have no trees, and then nobody passes one
    if isinstance(data, getattr(xr, "DataTree", ())):
        return _from_tree(data)
    if _is_inference_data(data):
        return _from_inference_data(data)
    if isinstance(data, Mapping):
        return _from_dict(data, symmetry, num_leading_dims)
    if _is_ensemble(data):
        return _from_members(data)
    if not isinstance(data, type) and hasattr(data, "get_samples") and hasattr(data, "sampler"):
        return _from_mcmc(data)
    raise refuse(data)


def _is_inference_data(data: Any) -> bool:
    # whoever holds one has loaded ArviZ, which is slow to load; since its first version it warns who asks for the name
    kind = getattr(sys.modules.get("arviz"), "__dict__", {}).get("InferenceData")
    return isinstance(kind, type) and isinstance(data, kind)


def _is_ensemble(data: Any) -> bool:
    plain = isinstance(data, Sequence) and not hasattr(data, "_fields")
    return plain and len(data) > 0 and all(isinstance(member, Mapping) for member in data)


# ---- plain containers --------------------------------------------------------------------------------------------


def _from_dict(data: Mapping[str, Any], symmetry: Symmetry, num_leading_dims: int | None) -> Trace:
    values = as_arrays(data, symmetry)
    num = _num_leading(values, symmetry) if num_leading_dims is None else num_leading_dims

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        written = {site: _like(data.get(site), value) for site, value in new.items()}
        return {site: value for site, value in (dict(data) | written).items() if site not in without}

    return Trace(values, _leading(values, num), write)


def _like(given: Any, new: np.ndarray) -> Any:
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


def _from_members(data: Sequence[Mapping[str, Any]]) -> Trace:
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
        each = (dict(m) | {s: _like(m.get(s), v[k]) for s, v in new.items()} for k, m in enumerate(data))
        return rebuilt({site: value for site, value in member.items() if site not in without} for member in each)

    return Trace(values, (len(data),), write)


# ---- xarray and ArviZ --------------------------------------------------------------------------------------------


def _from_dataset(
    data: xr.Dataset, wrap: Callable[[xr.Dataset], Any], beside: Mapping[str, xr.Dataset] = MappingProxyType({})
) -> Trace:
    dims = tuple(dim for dim in ("chain", "draw") if dim in data.dims) or tuple({"sample"} & set(data.dims))
    if not dims:
        raise SymmetryError(f"The posterior has dimensions {tuple(data.dims)}; expected chain and draw, or sample.")
    arrays = _of_draws(data, dims)
    known = {str(name) for group in ("observed_data", "log_likelihood") for name in beside.get(group, {})}
    stats, likelihood = (_of_draws(beside.get(group, {}), dims) for group in ("sample_stats", "log_likelihood"))

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        def variable(site: str) -> xr.DataArray:
            moved = arrays[site].copy(deep=False, data=new[site])
            return moved.transpose(*data[site].dims)

        return wrap(data.assign({site: variable(site) for site in new}).drop_vars(list(without)))

    return Trace(
        {site: array.values for site, array in arrays.items()},
        tuple(data.sizes[dim] for dim in dims),
        write,
        dims={site: tuple(map(str, array.dims[len(dims) :])) for site, array in arrays.items()},
        log_density=stats["lp"].values if "lp" in stats else None,
        log_likelihood=likelihood,
        left_behind=tuple(group for group in SIBLINGS if group in beside),
        predicted={
            group: {name: x for name, x in _of_draws(beside[group], dims).items() if name not in known}
            for group in PREDICTED
            if group in beside
        },
    )


def _of_draws(group: Mapping[Any, xr.DataArray], dims: tuple[str, ...]) -> dict[str, xr.DataArray]:
    """Variables with the draws' dimensions in front; what lacks them (a constant) says nothing of draws."""
    return {str(name): group[name].transpose(*dims, ...) for name in group if set(dims) <= set(group[name].dims)}


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
    if "posterior" not in data.children:
        raise SymmetryError(f"The DataTree has groups {sorted(data.children)}; expected one named 'posterior'.")

    def wrap(posterior: xr.Dataset) -> Any:
        new = data.copy(deep=False)
        new["posterior"].dataset = posterior
        return new

    groups = {name: node.to_dataset() for name, node in data.children.items()}
    return _from_dataset(groups["posterior"], wrap, groups)


# ---- NumPyro -----------------------------------------------------------------------------------------------------


def _from_mcmc(data: Any) -> Trace:
    states, field = states_of(data)
    if states is None:
        raise SymmetryError("The MCMC object holds no draws: call its run method first.")
    values = {site: np.asarray(value) for site, value in data.get_samples(group_by_chain=True).items()}

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        sites = states[field] | {site: _like(states[field].get(site), value) for site, value in new.items()}
        kept = {site: value for site, value in sites.items() if site not in without}
        return with_states(data, {**states, field: kept})

    energy = states.get("potential_energy")
    density = None if energy is None else -np.asarray(energy)
    return Trace(values, next(iter(values.values())).shape[:2], write, log_density=density)
