"""Bounds of a symmetrized guide's ELBO: its draws, what each is worth, and a program that is kept for next time.

Knows a symmetrized guide that is set up, or sets it up; the bounds themselves are in `bounds`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding

from numpyro_symmetry.chunks import at_once
from numpyro_symmetry.devices import as_sharding, within_reach
from numpyro_symmetry.entropy import size_of_tables
from numpyro_symmetry.entropy.importance import lost_to_rounding
from numpyro_symmetry.guides.density import latent_values, parents
from numpyro_symmetry.guides.no_bound import spared_entries, summed_out_sites
from numpyro_symmetry.guides.symmetrized.bounds import ElboBounds, Particles, summarise
from numpyro_symmetry.guides.symmetrized.compiled import Arguments, Spread, run_compiled
from numpyro_symmetry.guides.symmetrized.elbo import Target, least_weight, weighed, weights_of
from numpyro_symmetry.guides.symmetrized.information import information_at
from numpyro_symmetry.guides.symmetrized.proved import prove_again
from numpyro_symmetry.models import Trace, is_latent, is_masked, trace_model, weight_of
from numpyro_symmetry.models.arguments import refuse_no_option
from numpyro_symmetry.symmetry import warn
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_key, refuse_tracers

# draws whose tables are in memory together, at most
_MOST_TOGETHER = 16
# an estimate of the information so many nats, and standard errors, below zero is wrong, and no noise
_NO_INFORMATION, _MANY_ERRORS = 0.05, 5.0


def elbo_bounds(
    guide: Any,
    rng_key: Array,
    params: dict[str, Any],
    *args: Any,
    num_particles: int = 256,
    num_permutations: int = 16,
    chunk_size: int | str = "auto",
    sharding: NamedSharding | None = None,
    progress_bar: bool = True,
    **kwargs: Any,
) -> ElboBounds:
    r"""Bound the ELBO of :math:`q^G` from both sides: :math:`\mathrm{ELBO}(q) + I` with I sandwiched.

    Discrete sites that the guide does not draw are summed out by funsor, as `TraceEnum_ELBO` sums them out; in a
    chain that is written by `scan` rightly, where `TraceEnum_ELBO` does not. The program is compiled once for a
    guide, ``num_permutations`` and data of the same shapes; for a model that looks at the numbers in its data, once
    for these.

    Parameters
    ----------
    rng_key
        JAX random key.
    params
        Parameters from SVI.
    *args, **kwargs
        The model's arguments: the whole data for the evidence of the whole data.
    num_particles
        Draws of the guide.
    num_permutations
        K of the importance estimators; more tightens both sides. Small groups are summed exactly.
    chunk_size
        Draws that are worked on together, on each device; by default at most 16, and fewer where units are many.
    sharding
        How draws lie over devices, such as ``NamedSharding(mesh, PartitionSpec("draw"))``, each of which works at its
        own; by default all of them are where the data are. Data may lie over other axes of the same mesh.
    progress_bar
        Whether to show a bar, which also says while it is compiling.

    Returns
    -------
    ElboBounds
        ``lower`` never exceeds the ELBO of :math:`q^G`, nor ``log p(data)``, in expectation; ``upper`` is never
        below the ELBO of :math:`q^G`; ``importance_weighted`` is a tighter lower bound on ``log p(data)``. Nats,
        with standard errors over draws. Where sites of rows tell units apart and a minibatch shows some of these
        alone, ``upper`` has all of ``log|G|``.

    Raises
    ------
    SymmetryError, UnsupportedGuideError
        As for the class; if parameters, of the guide or of the model, are missing, not known, of another shape, not
        finite or outside of their constraint; if the log joint is not finite at a draw, or the evidence is infinite,
        because a mask leaves latent entries without a prior (as ``obs_mask`` does).
    TypeError, ValueError
        If a number is not whole or less than one, the key is none, an option is unknown, or the devices of
        ``sharding`` do not divide ``num_particles``.

    Warns
    -----
    SymmetryWarning
        If rounding leaves little of these numbers: of log densities that are so large, or at the border of a support.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import AutoSymmetrized, Symmetry
    >>> def model(y):
    ...     z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)
    >>> guide = AutoSymmetrized(AutoNormal(model), Symmetry({"z": ("unit",)}))
    >>> params = {"z_auto_loc": jnp.array([-0.5, 0.1, 0.9]), "z_auto_scale": jnp.full(3, 0.6)}
    >>> bounds = guide.elbo_bounds(jax.random.key(0), params, jnp.array(0.5), progress_bar=False)
    >>> bool(bounds.lower < dist.Normal(0.0, 2.0).log_prob(0.5)), bool(bounds.lower > bounds.base_elbo)
    (True, True)
    """
    rng_key = as_key(rng_key)
    num_particles = as_count(num_particles, "num_particles", meaning="draws of the guide")
    num_permutations = as_count(num_permutations, "num_permutations", meaning="K, which counts the identity")
    progress_bar = as_flag(progress_bar, "progress_bar")
    sharding = as_sharding(sharding, num_particles, "num_particles")
    together = _MOST_TOGETHER if chunk_size == "auto" else as_count(chunk_size, "chunk_size")
    refuse_tracers("elbo_bounds", rng_key=rng_key, params=params, args=args, kwargs=kwargs)
    refuse_no_option(elbo_bounds, guide.model, kwargs)
    if guide.layout is None:
        guide = guide.setup(rng_key, *args, **kwargs)
    prove_again(guide, args, kwargs, numbers_too=True)
    guide._refuse_wrong_parameters(params, args, kwargs, model_too=True)

    if chunk_size == "auto":
        together = min(together, at_once(size_of_tables(guide.layout.of_coordinates)))
    keys, arguments = jax.random.split(rng_key, num_particles), Arguments.of(args, kwargs)
    if guide._compiled is not None and (depends_on := guide._compiled.function.depends_on):
        if _masks_and_weights(*_traces(guide, args, kwargs), arguments) != depends_on:
            guide._compiled = None  # masks and weights were checked of other data
    guide._compiled, found = run_compiled(
        guide._compiled,
        lambda: _target(guide, num_permutations, arguments, args, kwargs),
        keys,
        dict(params),
        arguments,
        (num_permutations,),
        Spread(together, sharding),
        progress_bar=progress_bar,
    )
    particles, target = Particles(*found), guide._compiled.function
    target.refuse_infinite(particles, keys, params, *within_reach((args, kwargs)))
    most = guide.layout.symmetry.log_order() * target.weight_of_labels
    bounds = summarise(particles, most, is_whole=target.is_whole)
    if lost := lost_to_rounding(particles.elbo, bounds.lower_error):
        warn(f"These bounds are not reliable: {lost}.")
    _warn_of_lost_digits(bounds)
    return bounds


def _warn_of_lost_digits(bounds: ElboBounds) -> None:
    """Warn if the upper estimate of the information is clearly negative, as no information is."""
    value, error = bounds.mutual_information[1], bounds.mutual_information_error[1]
    if value < -_NO_INFORMATION - _MANY_ERRORS * error:
        warn(
            f"What the draws say of labels is {value:.1f} ± {error:.1f} nats, and no information is negative: where "
            "values lie at the border of their support, their rounding changes the guide's density at relabelled "
            "draws. These bounds are not reliable; evaluate them in float64 (numpyro.enable_x64())."
        )


def _target(
    guide: Any, num_permutations: int, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Target:
    layout = guide.layout
    trace, model_trace = _traces(guide, args, kwargs)
    moved, depends = list(layout.symmetry.axes), parents(guide.base, trace, args, kwargs)
    weights = weighed(trace, model_trace)
    least = float(least_weight(weights, moved))
    # what rows that are not shown would tell of labels is not known: at most all of it
    telling = [site for site, on in depends.items() if ({site} | on) & set(moved) and site not in layout.following]
    is_told_in_part = any(jnp.any(jnp.asarray(weight_of(weights[site])) > least) for site in telling)

    def information(key: Array, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Array:
        if not layout.symmetry.groups:
            return jnp.zeros(2)
        found = information_at(
            guide.base,
            layout,
            trace,
            args,
            kwargs,
            key,
            estimator="tight",
            bound="both",
            num_permutations=num_permutations,
        )
        return found.at[1].set(layout.symmetry.log_order()) if is_told_in_part else found

    spared = spared_entries(guide.base, guide.model, moved, (trace, model_trace), args, kwargs)
    summed_out = summed_out_sites(model_trace, latent_values(trace))
    # a divergence in closed form leaves out what either masks
    analytic = not summed_out and not spared and not any(depends.values())
    depends_on = _masks_and_weights(trace, model_trace, arguments)
    return Target(guide.model, guide.base, information, model_trace, summed_out, moved, least, analytic, depends_on)


def _masks_and_weights(trace: Trace, model_trace: Trace, arguments: Arguments) -> tuple[Any, ...]:
    """Masks, weights and data on which it depends what may be bounded; empty where there are no masks and weights."""
    latents = [site for one in (trace, model_trace) for site in one.values() if is_latent(site)]
    # any number may say whether something reads what is masked
    return *weights_of(trace, model_trace), *(arguments.digest() if any(map(is_masked, latents)) else ())


def _traces(guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Trace, Trace]:
    """A draw of the base guide, and one of the model."""
    key = jax.random.key(0)
    return guide._trace_of_base(key, args, kwargs), trace_model(guide.model, args, kwargs, key)
