"""What a guide and a model must satisfy to be symmetrized; every refusal says what to do instead.

All run at set-up, outside `jit`. Knows guides, traces and symmetries; no estimators.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.infer import autoguide

from numpyro_symmetry.entropy.factorised import log_ratio
from numpyro_symmetry.guides.density import (
    Coordinates,
    Trace,
    coordinates_of,
    factors_of,
    latent_values,
    log_density_by_site,
    log_prob_of,
    own_sites,
    parts_of,
    unrecovered_sites,
    without_wrappers,
)
from numpyro_symmetry.symmetry import Element, SignedPermutation, Symmetry, SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.elements import Part, permutation_of

_WITHOUT_DENSITY = {
    autoguide.AutoDelta: "is a point mass, whose copies never overlap: symmetrizing it would only add the constant "
    "log|G|. Use AutoNormal, or align point estimates instead",
    autoguide.AutoLaplaceApproximation: "is a point mass while it trains. Train it bare, then symmetrize a "
    "Gaussian guide",
    autoguide.AutoDAIS: "has auxiliary momenta and no density in the model's latents. Use AutoNormal or AutoIAFNormal",
    autoguide.AutoSemiDAIS: "has auxiliary momenta and no density in the model's latents. Use AutoNormal",
    autoguide.AutoBNAFNormal: "has no analytic inverse, so no density at permuted values. Use AutoIAFNormal",
}
_TOLERANCE = 1e-3


def refuse_guides_without_density(guide: object) -> None:
    """Refuse guides, or parts of one, that cannot say their density at a given value."""
    for part in parts_of(guide):
        for kind, why in _WITHOUT_DENSITY.items():
            if isinstance(part, kind):
                raise UnsupportedGuideError(f"{type(part).__name__} cannot be symmetrized: it {why}.")
    if not callable(guide):
        raise UnsupportedGuideError(f"The base guide must be callable; got {type(guide).__name__}.")


def refuse_tracers(tree: Any) -> None:
    """Refuse to set up while something is being traced: checks need numbers."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree)):
        raise SymmetryError(
            "AutoSymmetrized was set up under jit or vmap, where its checks cannot run. "
            "Call guide.setup(rng_key, *model_args) once before, or let SVI.init run outside jit."
        )


def refuse_nonfinite(params: Any) -> None:
    """Refuse parameters that hold NaN or infinity."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not isinstance(leaf, Tracer) and not np.isfinite(np.asarray(leaf)).all():
            count = int((~np.isfinite(np.asarray(leaf))).sum())
            raise SymmetryError(
                f"Parameter {jax.tree_util.keystr(path)} holds {count} non-finite of {np.size(leaf)} values. "
                "The fit diverged: lower the learning rate or the initial scale."
            )


def refuse_absent_sites(symmetry: Symmetry, trace: Trace) -> None:
    """Refuse a guide that does not draw every site the group acts on."""
    if absent := [site for site in symmetry.axes if site not in latent_values(trace)]:
        raise UnsupportedGuideError(
            f"The guide does not draw {absent}, on which the symmetry acts; it draws {sorted(latent_values(trace))}."
        )


def refuse_subsampled_latents(symmetry: Symmetry, model_trace: Trace) -> None:
    """Refuse relabelled latents in a subsampled plate: their scale would stand inside a logarithm of a sum."""
    for site in symmetry.axes:
        for frame in model_trace[site]["cond_indep_stack"]:
            size = model_trace[frame.name]["args"][0]
            if frame.size < size:
                raise SymmetryError(
                    f"Site {site!r} is relabelled and lies in plate {frame.name!r}, subsampled {frame.size} of {size}: "
                    "no bound holds there. Move the site out of the plate, or do not subsample it."
                )


def refuse_plate_around_everything(model_trace: Trace) -> None:
    """Refuse a plate that holds every site: RenyiELBO would count the correction once for each of its members."""
    sites = [site for site in model_trace.values() if site["type"] == "sample"]
    shared = set.intersection(*({frame.name for frame in site["cond_indep_stack"]} for site in sites))
    if shared:
        raise SymmetryError(
            f"Every site lies in plate {sorted(shared)[0]!r}, so RenyiELBO would count the correction once per member. "
            "Give the latent sites a batch dimension instead (expand(...).to_event(...))."
        )


def verify_densities(guide: Any, trace: Trace, layout: Coordinates, args: tuple, kwargs: dict) -> Coordinates:
    """Check numerically that the guide's density can be read at moved values, and that the fast path agrees with it."""
    if unrecovered := unrecovered_sites(guide, trace):
        raise UnsupportedGuideError(
            f"The guide's auxiliary sites {unrecovered} are not determined by the latent values, so it has no "
            "density in them. Marginalise them, or use a guide without auxiliary variables."
        )
    values = latent_values(trace)
    for site in set(layout.symmetry.axes) & set(own_sites(guide, trace)):
        if isinstance(without_wrappers(trace[site]["fn"]), dist.Delta):
            raise UnsupportedGuideError(
                f"Site {site!r} is a point mass (Delta) in the guide, whose copies never overlap; use a distribution "
                "with a density, such as a Normal with a small scale."
            )
    own = {name: jnp.sum(log_prob_of(site)) for name, site in trace.items() if site["type"] == "sample"}
    # compiled, because one by one its operations would take longer to compile than the whole
    density_at = jax.jit(lambda values: log_density_by_site(guide, trace, values, args, kwargs))
    before = density_at(values)
    for site, expected in own.items():
        if not abs(float(before[site] - expected)) <= _TOLERANCE * (1.0 + abs(float(expected))):
            raise UnsupportedGuideError(
                f"Site {site!r}: the guide's log density re-read at its own draw is {float(before[site]):.6g}, "
                f"expected {float(expected):.6g}. The guide's density is not a function of its latent values."
            )
    element = _moving_everything(layout.of_coordinates)
    moved: Any = layout.apply(element, values)
    after = density_at(moved)
    for site, value in after.items():
        if not np.isfinite(float(value)):
            raise UnsupportedGuideError(
                f"Site {site!r}: the guide's log density at a relabelled draw is {float(value)}. A point mass (Delta) "
                "or a bounded distribution cannot be symmetrized; use a distribution with full support."
            )
    if not layout.factorises:
        return layout
    factors, coordinates = factors_of(None, guide, trace, layout, args, kwargs), coordinates_of(values, layout)
    fast = float(log_ratio(layout.of_coordinates, factors, coordinates, element))
    slow = sum(float(after[site] - before[site]) for site in after)
    scale = 1.0 + sum(abs(float(after[site])) + abs(float(before[site])) for site in after)
    return layout._replace(factorises=abs(fast - slow) <= _TOLERANCE * scale)


def _moving_everything(symmetry: Symmetry) -> Element:
    """One cycle through the indices of every group, every sign flipped."""

    def one(part: Part) -> Part:
        cycle = jnp.roll(permutation_of(part), 1)
        return SignedPermutation(cycle, -jnp.asarray(part.sign)) if isinstance(part, SignedPermutation) else cycle

    return {name: one(part) for name, part in symmetry.identity().items()}
