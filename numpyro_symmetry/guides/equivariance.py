r"""Which sites of a guide merely follow the others under a relabelling: :math:`q(gb \mid ga) = q(b \mid a)`.

Such a site cancels from :math:`q(g\theta)/q(\theta)`, so that :math:`I(g; a, b) = I(g; a)` and the table needs a alone.
That is believed only where it was seen: in double precision, at parameters away from where training starts, since
factors that are alike at the start would hide a conditional that is not equivariant. Knows guides and symmetries.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from numpyro_symmetry.guides.density import Trace, dependencies, latent_values, log_density_by_site
from numpyro_symmetry.guides.requirements import moving_everything
from numpyro_symmetry.symmetry import Element, Symmetry

_NUM_SETTINGS = 3
_SPREAD = 0.3
# of the log density, in double precision: what is rounding, and what is certainly none
_ROUNDING, _MOVED = 1e-8, 1e-6


def equivariant_sites(
    guide: Any, symmetry: Symmetry, trace: Trace, args: tuple, kwargs: dict[str, Any]
) -> dict[str, str]:
    """Whether sites whose distribution depends on relabelled ones follow these, or stay as they are if none moves them.

    Parameters
    ----------
    guide
        A guide, set up.
    symmetry
        Bound.
    trace
        A trace of the guide.
    args, kwargs
        The model's arguments.

    Returns
    -------
    dict
        Site -> ``"equivariant"``; ``"different"``; or ``"inconclusive"``, where nothing was tested since a change of
        the others alone did not show: another labelling of them, or another draw where no label moves the site.
    """
    args, kwargs = as_jax((args, kwargs))
    depends = dependencies(guide, trace, args, kwargs)
    following = [site for site, on in depends.items() if on & set(symmetry.axes)]
    if not following:
        return {}
    with jax.enable_x64(True):
        args, kwargs = as_double((args, kwargs))
        at = jax.jit(lambda key: _changes(guide, symmetry, following, _setting(key, symmetry, trace), args, kwargs))
        found = [jax.tree.map(float, at(jax.random.key(k))) for k in range(_NUM_SETTINGS)]
    return {site: _verdict([changes[site] for changes in found]) for site in following}


def _verdict(changes: list[tuple[float, float]]) -> str:
    if not all(together <= _ROUNDING for together, _ in changes):
        return "different"
    return "equivariant" if all(alone > _MOVED for _, alone in changes) else "inconclusive"


def _changes(
    guide: Any, symmetry: Symmetry, sites: list[str], setting: tuple, args: tuple, kwargs: dict[str, Any]
) -> dict[str, tuple[Array, Array]]:
    """How much log densities change if all sites are relabelled together, and if only the others are."""
    keys, data, elements = setting

    def draw(key: Array) -> Trace:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key), handlers.substitute(data=data):
            guide(*args, **kwargs)
        return trace

    trace = draw(keys[0])
    values, others = latent_values(trace), latent_values(draw(keys[1]))
    points: list[Any] = [values]
    for element in elements:
        moved: Any = symmetry.apply(element, values)
        points.append(moved)
        points += [(moved if site in symmetry.axes else others) | {site: values[site]} for site in sites]

    def densities(values: dict[str, Array]) -> Array:
        found = log_density_by_site(guide, trace, values, args, kwargs)
        return jnp.stack([found[site] for site in sites])

    # one after the other, so that the guide is compiled once
    before, *after = jax.lax.map(densities, jax.tree.map(lambda *leaves: jnp.stack(leaves), *points))
    change = (jnp.abs(jnp.stack(after) - before) / (1.0 + jnp.abs(before))).reshape(len(elements), -1, len(sites))
    return {site: (change[:, 0, k].max(), change[:, 1 + k, k].max()) for k, site in enumerate(sites)}


def _setting(key: Array, symmetry: Symmetry, trace: Trace) -> tuple[Array, dict[str, Any], list[Element]]:
    """Keys for two draws, perturbed parameters, and elements: one that moves everything, one at random."""
    key_draws, key_parameters, key_element = jax.random.split(key, 3)
    data = {}
    for k, (name, site) in enumerate(trace.items()):
        if site["type"] == "param":
            constraint = site["kwargs"].get("constraint", constraints.real)
            data[name] = _perturbed(jax.random.fold_in(key_parameters, k), site["value"], constraint)
        elif site["type"] in ("plate", "mutable"):
            data[name] = site["value"]
    return jax.random.split(key_draws), data, [moving_everything(symmetry), symmetry.sample(key_element)]


def _perturbed(key: Array, value: Any, constraint: Any) -> Any:
    leaves, structure = jax.tree.flatten(value)
    # a parameter that is a pytree, of a network, has no constraint of its own
    transform = biject_to(constraint) if len(leaves) == 1 else biject_to(constraints.real)

    def one(key: Array, leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        free = transform.inv(jnp.asarray(leaf, jnp.float64))
        return transform(free + _SPREAD * (1.0 + jnp.abs(free)) * jax.random.normal(key, free.shape, free.dtype))

    keys = jax.random.split(key, max(1, len(leaves)))
    return jax.tree.unflatten(structure, [one(k, leaf) for k, leaf in zip(keys, leaves, strict=False)])


def as_jax(tree: Any) -> Any:
    """A pytree with arrays of JAX for those of NumPy, which a traced program keeps in the precision it first met."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def as_double(tree: Any) -> Any:
    """A pytree with its floating-point arrays in double precision."""

    def one(leaf: Any) -> Any:
        is_array = isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float64) if is_array else leaf

    return jax.tree.map(one, tree)
