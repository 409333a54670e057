"""Checks and layout of the arrays that Gaussians by site are made of. Knows arrays by site; no Gaussian."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from numpyro_symmetry.symmetry import Element, Symmetry, SymmetryError, permutations
from numpyro_symmetry.symmetry.arguments import as_real_array, rounding_of
from numpyro_symmetry.symmetry.axes import VIRTUAL, labels
from numpyro_symmetry.symmetry.elements import batch_of, broadcast
from numpyro_symmetry.symmetry.pytrees import as_sites, can_be_moved, refuse_mismatch
from numpyro_symmetry.symmetry.shown import counted


def unchecked(cls: Any, **fields: Any) -> Any:
    """An instance of a frozen dataclass with these fields, made without its checks."""
    made = object.__new__(cls)
    vars(made).update(fields)
    return made


def by_site(values: Any, name: str) -> Mapping[str, Any]:
    """Values by site: as they come, or of a pytree by the paths to its arrays.

    Raises
    ------
    TypeError
        If they are neither.
    """
    sites = values if can_be_moved(values) else as_sites(values)
    if not isinstance(sites, Mapping):
        raise TypeError(f"{name} maps sites to arrays; got {type(values).__name__}.")
    return sites


def module_of(tree: Any) -> Any:
    """``jax.numpy`` if any leaf is a JAX array, otherwise ``numpy``, in double precision."""
    return jnp if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)) else np


def refuse_what_is_not_finite(value: Any, where: str) -> None:
    """Refuse an array with numbers that are not finite; traced ones are not looked at."""
    if isinstance(value, Tracer):
        return
    array = np.asarray(as_real_array(value, where)).astype(float)
    if not np.isfinite(array).all():
        raise SymmetryError(
            f"{where} holds {int((~np.isfinite(array)).sum())} non-finite of {counted(array.size, 'value')}."
        )


def refuse_what_is_no_covariance(value: Any, where: str) -> None:
    """Refuse matrices ``(..., D, D)`` that are not symmetric, or negative somewhere, by more than rounding."""
    refuse_what_is_not_finite(value, where)
    given = np.asarray(value)
    matrices, size = given.astype(float), given.shape[-1]
    eps = rounding_of(given.dtype)
    tolerance = 16.0 * eps * size * max(float(np.abs(matrices).max()), np.finfo(float).tiny)
    if (gap := float(np.abs(matrices - matrices.swapaxes(-1, -2)).max())) > tolerance:
        raise SymmetryError(
            f"{where} is not symmetric: entries differ from their transpose by up to {gap:.3g}. If that is rounding, "
            "as of an inverse, pass the mean of both, 0.5 * (covariance + covariance.T)."
        )
    symmetric = 0.5 * (matrices + matrices.swapaxes(-1, -2))
    try:
        np.linalg.cholesky(symmetric + tolerance * np.eye(size))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(symmetric).min())
        raise SymmetryError(
            f"{where} has a negative eigenvalue, {least:.3g}: it is the covariance of no distribution."
        ) from None


def refuse_other_sites(first: Any, other: Any) -> None:
    """Refuse two Gaussians of different kinds, sites or shapes."""
    if type(first) is not type(other):
        raise TypeError(f"Expected another {type(first).__name__}; got {type(other).__name__}.")
    refuse_mismatch(first.loc, other.loc, ("one", "the other"))


def refuse_other_shapes(values: Mapping[str, Any], loc: Mapping[str, Any]) -> None:
    """Refuse values that do not end in the shapes of the means, or whose leading dimensions differ."""
    leading = {}
    for site, value in values.items():
        event = np.shape(loc[site])
        lead = value.shape[: max(value.ndim - len(event), 0)]
        if value.shape[len(lead) :] != event:
            raise SymmetryError(
                f"Site {site!r} has shape {value.shape}; expected it to end in {event}, the shape of its means."
            )
        leading[site] = lead
    if not broadcast(*leading.values()):
        raise SymmetryError(f"Sites have leading dimensions {leading}, which do not broadcast: take the same draws.")


def refuse_no_symmetry(symmetry: Any) -> None:
    """Refuse anything but a `Symmetry`."""
    if not isinstance(symmetry, Symmetry):
        raise TypeError(f"apply(symmetry, element): symmetry must be a Symmetry; got {type(symmetry).__name__}.")


def order_of(symmetry: Symmetry, element: Element, loc: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """``order, sign``, ``(*batch, D)`` each: an element, or each of a batch, takes ravelled x to x[order] * sign."""
    batch = next(itertools.starmap(batch_of, element.items()), ())
    index = unravel(np.arange(sum(np.size(x) for x in loc.values())), loc)
    ones = {site: np.ones(np.shape(x)) for site, x in loc.items()}

    def ravelled(by_site: dict[str, Any]) -> np.ndarray:
        flat = (
            np.reshape(x, (-1, np.size(loc[s]))) if np.size(loc[s]) else np.zeros((1, 0)) for s, x in by_site.items()
        )
        flat = [np.broadcast_to(x, (math.prod(batch), x.shape[-1])) for x in flat]
        return np.concatenate(flat, -1).reshape(*batch, -1)

    index = symmetry.without_signs().apply(permutations(element), index)
    return ravelled(index).astype(int), ravelled(symmetry.of_differences().apply(element, ones))


def middle_of(symmetry: Symmetry, loc: dict[str, Any]) -> dict[str, np.ndarray]:
    """Site -> values that no element moves: means along axes with groups, and zero where signs may change."""
    signed = {name for name, group in symmetry.groups.items() if group.signed}
    middle = {site: np.asarray(x, float) for site, x in loc.items()}
    for stack in symmetry.stacks.values():
        x, own = stack.of(middle), [entry for entry in stack.entries if not isinstance(entry, VIRTUAL)]
        moving = tuple(k for k, entry in enumerate(own, -len(own)) if entry is not None)
        is_signed = any(axis.signed and axis.group in signed for axis in labels(stack.entries))
        mean = np.zeros(()) if is_signed else x.mean(moving, keepdims=True)
        middle |= stack.apart(np.broadcast_to(mean, x.shape))
    return middle


def ravel(by_site: dict[str, Any]) -> np.ndarray:
    """``(D,)``, float64: the entries of all sites, one site after the other."""
    return np.concatenate([np.zeros(0), *(np.ravel(np.asarray(x, float)) for x in by_site.values())])


def unravel(flat: Any, like: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `ravel`, along the last axis: sites of the shapes of ``like``."""
    ends = np.cumsum([np.size(x) for x in like.values()])
    return {
        s: flat[..., end - np.size(x) : end].reshape((*np.shape(flat)[:-1], *np.shape(x)))
        for (s, x), end in zip(like.items(), ends.tolist(), strict=True)
    }


def with_sites_in_order(covariance: np.ndarray, loc: dict[str, Any], sites: Iterable[str]) -> np.ndarray:
    """A covariance of ravelled ``loc`` as one of its sites in another order."""
    index = unravel(np.arange(len(covariance)), loc)
    order = np.concatenate([np.ravel(index[site]) for site in sites])
    return covariance[np.ix_(order, order)]


def square_root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root of a covariance."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
