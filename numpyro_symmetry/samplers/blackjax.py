"""BlackJAX on a NumPyro model, into an ArviZ container.

Chains run side by side, one jitted step for all of them; over several devices when there are several. Knows models and
samplers; nothing of symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer import init_to_uniform, init_to_value
from numpyro.infer.util import constrain_fn, initialize_model, unconstrain_fn
from tqdm.auto import tqdm

from numpyro_symmetry.containers.posterior import check_dims, posterior_container
from numpyro_symmetry.models import Model, latent_of, observed_of, trace_model
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_key,
    as_model_arguments,
    as_real_array,
    is_option,
    refuse_masked,
    refuse_tracers,
)

ALGORITHMS = ("nuts", "hmc", "mclmc")
# how often a progress bar moves
_UPDATES = 20

LogDensity = Callable[[Any], Array]


class _Sampler(NamedTuple):
    """One chain: ``warm(key, position) -> (state, parameters)`` and ``step(key, state, parameters)``."""

    warm: Callable[[Array, Any], tuple[Any, Any]]
    step: Callable[[Array, Any, Any], tuple[Any, dict[str, Array]]]


def run_blackjax(
    rng_key: Array,
    model: Callable[..., Any],
    model_args: tuple[Any, ...] = (),
    model_kwargs: Mapping[str, Any] | None = None,
    *,
    algorithm: str = "nuts",
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thinning: int = 1,
    num_integration_steps: int = 16,
    target_acceptance_rate: float = 0.8,
    dense_mass: bool = False,
    init_strategy: Any = init_to_uniform,
    init_params: Mapping[str, Any] | None = None,
    log_likelihood: bool = True,
    dims: Mapping[str, list[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    progress_bar: bool = True,
) -> Any:
    """Sample a NumPyro model's posterior with BlackJAX.

    Parameters
    ----------
    rng_key
        JAX random key.
    model, model_args, model_kwargs
        A NumPyro model of continuous latent sites, and its arguments.
    algorithm
        ``"nuts"`` or ``"hmc"`` with window adaptation of step size and mass matrix, or ``"mclmc"``, microcanonical
        Langevin dynamics, unadjusted, with its own tuning.
    num_chains, num_warmup, num_samples
        Chains run side by side, split over devices if their number divides.
    thinning
        Keep every so many steps; ``num_samples`` are kept.
    num_integration_steps
        Leapfrog steps of ``"hmc"``.
    target_acceptance_rate, dense_mass
        Of the window adaptation.
    init_strategy, init_params
        Where chains start: one of NumPyro's strategies, or constrained values by site ``(num_chains, ...)``.
    log_likelihood
        Whether to keep the log-likelihood of every datum in every draw.
    dims, coords
        Names and coordinates of dimensions, beside those of plates.
    progress_bar
        Whether to show a bar: of the draws, and before them whether it compiles or warms up.

    Returns
    -------
    InferenceData or DataTree
        ``posterior`` (constrained, with deterministic sites), ``sample_stats`` under ArviZ's names (``diverging``,
        ``acceptance_rate``, ``energy``, ``n_steps``, ``lp``), ``log_likelihood``, ``observed_data``.

    Raises
    ------
    ValueError
        If the algorithm is unknown, a number is below one, the model has discrete latent sites or none at all, its
        density is nowhere finite (data that are not, say), or ``init_params`` names other sites, has other shapes or
        lies outside a support.
    TypeError
        If an argument is of another type: a key that is none, a number that is no whole number.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from numpyro_symmetry import run_blackjax
    >>> def model(y):
    ...     loc = numpyro.sample("loc", dist.Normal(0.0, 10.0))
    ...     with numpyro.plate("data", len(y)):
    ...         numpyro.sample("y", dist.Normal(loc, 1.0), obs=y)
    >>> data = run_blackjax(
    ...     jax.random.key(0), model, (jnp.ones(50),), num_warmup=200, num_samples=200, progress_bar=False
    ... )
    >>> data["posterior"]["loc"].shape, data["log_likelihood"]["y"].dims
    ((4, 200), ('chain', 'draw', 'data'))
    """
    if not is_option(algorithm, ALGORITHMS):
        raise ValueError(f"algorithm must be one of {ALGORITHMS}; got {algorithm!r}.")
    num_chains, num_warmup = as_count(num_chains, "num_chains"), as_count(num_warmup, "num_warmup")
    num_samples, thinning = as_count(num_samples, "num_samples"), as_count(thinning, "thinning")
    num_integration_steps = as_count(num_integration_steps, "num_integration_steps")
    dense_mass, progress_bar = as_flag(dense_mass, "dense_mass"), as_flag(progress_bar, "progress_bar")
    log_likelihood, rng_key = as_flag(log_likelihood, "log_likelihood"), as_key(rng_key)
    if not isinstance(target_acceptance_rate, Real) or not 0.0 < target_acceptance_rate < 1.0:
        raise ValueError(f"target_acceptance_rate must lie between 0 and 1; got {target_acceptance_rate!r}.")
    if not callable(init_strategy) or isinstance(init_strategy, type):
        raise TypeError(
            f"init_strategy must be one of NumPyro's strategies, such as numpyro.infer.init_to_median; got "
            f"{init_strategy!r}."
        )
    model_args, kwargs = as_model_arguments(model_args, model_kwargs)
    refuse_tracers("run_blackjax", model_args, kwargs, init_params)
    sites = trace_model(model, model_args, kwargs, jax.random.key(0))
    check_dims(dims, coords, sites)
    _refuse_what_has_no_gradient(latent_of(sites))
    key_init, key_warm, key_sample = jax.random.split(rng_key, 3)
    potential, positions = _starts(
        Model(model, model_args, kwargs), sites, key_init, num_chains, init_strategy, init_params
    )
    sampler = _sampler(
        algorithm, lambda z: -potential(z), num_warmup, num_integration_steps, target_acceptance_rate, dense_mass
    )
    with tqdm(total=num_samples, disable=not progress_bar, desc="compiling the warm-up") as bar:
        unconstrained, stats = _run(sampler, key_warm, key_sample, positions, num_chains, num_samples, thinning, bar)
    constrain = jax.jit(lambda z: constrain_fn(model, model_args, kwargs, z, return_deterministic=True, batch_ndims=2))
    return posterior_container(
        Model(model, model_args, kwargs),
        constrain(unconstrained),
        sample_stats=stats,
        log_likelihood=log_likelihood,
        dims=dims,
        coords=coords,
        attrs={"inference_library": "blackjax", "algorithm": algorithm, "num_warmup": num_warmup},
    )


def _starts(
    model: Model,
    sites: Mapping[str, Mapping[str, Any]],
    rng_key: Array,
    num_chains: int,
    init_strategy: Any,
    init_params: Mapping[str, Any] | None,
) -> tuple[Callable[[Any], Array], dict[str, Any]]:
    """Minus the log density in the coordinates that chains move in, and where each of them starts."""
    function, args, kwargs = model
    latent = latent_of(sites)
    if not (init_params is None or isinstance(init_params, Mapping)):
        raise TypeError(f"init_params maps sites to starts (num_chains, ...); got {type(init_params).__name__}.")
    refuse_masked(init_params or {})
    starts = {
        site: jnp.asarray(as_real_array(value, f"Site {site!r} of init_params"))
        for site, value in (init_params or {}).items()
    }
    # every site has a value, because one with an improper prior has no draw
    values = {name: site["value"] for name, site in latent.items()}
    moved = _unconstrained(
        starts, latent, num_chains, lambda one: unconstrain_fn(function, args, kwargs, {**values, **one})
    )
    if starts:
        # of one chain, for NumPyro to find its way; each chain's own replace it below
        init_strategy = init_to_value(values={site: value[0] for site, value in starts.items()})
    try:
        init = initialize_model(
            jax.random.split(rng_key, num_chains),
            function,
            init_strategy=init_strategy,
            model_args=args,
            model_kwargs=kwargs,
            dynamic_args=True,
        )
    except RuntimeError as error:
        if "initial" not in str(error):
            raise
        raise ValueError(f"No start of finite density was found. {_what_is_not_finite(sites)}") from error
    potential = init.potential_fn(*args, **kwargs)
    positions = {site: moved.get(site, value) for site, value in init.param_info.z.items()}
    if starts and len(bad := np.flatnonzero(~np.isfinite(jax.jit(jax.vmap(potential))(positions)))):
        raise ValueError(
            f"init_params start {len(bad)} of {num_chains} chains, first chain {bad[0]}, where the log density is not "
            f"finite. {_what_is_not_finite(sites)}"
        )
    return potential, positions


def _refuse_what_has_no_gradient(latent: Mapping[str, Mapping[str, Any]]) -> None:
    if not latent:
        raise ValueError("The model has no latent sites to sample.")
    if discrete := sorted(name for name, site in latent.items() if site["fn"].support.is_discrete):
        raise ValueError(
            f"Sites {discrete} are discrete, and BlackJAX follows gradients: sum them out of the model (for example "
            "MixtureSameFamily), or use NumPyro's DiscreteHMCGibbs, whose draws rebase reads as well."
        )


def _what_is_not_finite(sites: Mapping[str, Mapping[str, Any]]) -> str:
    """Observed sites that hold NaN or infinity, or where else to look."""
    counts = {
        name: int((~np.isfinite(np.asarray(site["value"], float))).sum())
        for name, site in observed_of(sites).items()
        if np.issubdtype(np.asarray(site["value"]).dtype, np.number)
    }
    if wrong := {name: count for name, count in counts.items() if count}:
        return f"Observed values that are not finite, by site: {wrong}. Drop or mask them."
    return "Check the model at its own draws (numpyro.infer.util.log_density), or choose another init_strategy."


def _unconstrained(
    starts: Mapping[str, Array],
    latent: Mapping[str, Mapping[str, Any]],
    num_chains: int,
    unconstrain: Callable[[Mapping[str, Array]], dict[str, Array]],
) -> dict[str, Array]:
    """What the user says of where chains start, checked, in the coordinates chains move in."""
    if unknown := sorted(set(starts) - set(latent)):
        raise ValueError(
            f"init_params names sites {unknown}; expected some of the model's latent sites {list(latent)}."
        )
    for site, value in starts.items():
        expected = (num_chains, *np.shape(latent[site]["value"]))
        if value.shape != expected:
            raise ValueError(
                f"Site {site!r} of init_params has shape {value.shape}; expected {expected}, a start for each of "
                f"{num_chains} chains. Stack as many along a new first axis, or change num_chains."
            )
    moved = jax.vmap(unconstrain)(starts) if starts else {}
    for site, value in moved.items():
        if not bool(jnp.isfinite(value).all()):
            raise ValueError(
                f"Site {site!r} of init_params holds values outside its support, {latent[site]['fn'].support}. Give "
                "values as the model sees them, not unconstrained ones."
            )
    return moved


def _sampler(
    algorithm: str, log_density: LogDensity, num_warmup: int, num_integration_steps: int, rate: float, dense: bool
) -> _Sampler:
    import blackjax as library

    # its builders are typed as what they build, not as what they return
    blackjax: Any = library

    if algorithm == "mclmc":
        kernel = blackjax.mcmc.mclmc.build_kernel()

        def tune(key: Array, position: Any) -> tuple[Any, Any]:
            key_init, key_tune = jax.random.split(key)
            state = blackjax.mcmc.mclmc.init(position, log_density, key_init)
            state, parameters, _ = blackjax.mclmc_find_L_and_step_size(
                kernel, num_warmup, state, key_tune, logdensity_fn=log_density
            )
            return state, parameters

        def langevin(key: Array, state: Any, parameters: Any) -> tuple[Any, dict[str, Array]]:
            state, info = kernel(
                key, state, log_density, parameters.inverse_mass_matrix, parameters.L, parameters.step_size
            )
            return state, {"lp": state.logdensity, "energy_error": info.energy_change, "diverging": ~info.nonans}

        return _Sampler(tune, langevin)

    build = blackjax.nuts if algorithm == "nuts" else blackjax.hmc
    extra = {} if algorithm == "nuts" else {"num_integration_steps": num_integration_steps}

    def warm(key: Array, position: Any) -> tuple[Any, Any]:
        adaptation = blackjax.window_adaptation(
            build, log_density, is_mass_matrix_diagonal=not dense, target_acceptance_rate=rate, **extra
        )
        (state, parameters), _ = adaptation.run(key, position, num_warmup)
        # what is the same for every chain is no array to be mapped over chains
        return state, {name: value for name, value in parameters.items() if name not in extra}

    def step(key: Array, state: Any, parameters: Any) -> tuple[Any, dict[str, Array]]:
        state, info = build(log_density, **parameters, **extra).step(key, state)
        return state, {
            "lp": state.logdensity,
            "diverging": info.is_divergent,
            "acceptance_rate": info.acceptance_rate,
            "energy": info.energy,
            "n_steps": jnp.asarray(info.num_integration_steps),
        }

    return _Sampler(warm, step)


def _run(
    sampler: _Sampler,
    key_warm: Array,
    key_sample: Array,
    positions: Any,
    num_chains: int,
    num_samples: int,
    thinning: int,
    bar: Any,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws and statistics ``(chain, draw, ...)``, a few at a time so that the bar can move."""

    def one(key: Array, state: Any, parameters: Any, count: int) -> tuple[Any, Any]:
        def kept(state: Any, key: Array) -> tuple[Any, Any]:
            state, stats = jax.lax.scan(
                lambda s, k: sampler.step(k, s, parameters), state, jax.random.split(key, thinning)
            )
            last = jax.tree.map(lambda x: x[-1], stats)
            if "diverging" in stats:
                last["diverging"] = stats["diverging"].any()
            return state, (state.position, last)

        return jax.lax.scan(kept, state, jax.random.split(key, count))

    keys = jax.random.split(key_warm, num_chains)
    keys, positions = _over_devices((keys, positions), num_chains)
    warm = _compiled(jax.vmap(sampler.warm), keys, positions)
    bar.set_description("warming up")
    states, parameters = jax.block_until_ready(warm(keys, positions))
    bar.set_description("compiling the sampler")
    # every block of one length, so that it compiles once; what is too much is cut off
    size = -(-num_samples // _UPDATES)
    blocks = [
        _over_devices(jax.random.split(key, num_chains), num_chains)
        for key in jax.random.split(key_sample, -(-num_samples // size))
    ]
    advance = _compiled(jax.vmap(lambda k, s, p: one(k, s, p, size)), blocks[0], states, parameters)
    # so that the rate is that of sampling alone
    bar.reset()
    bar.set_description("sampling")
    found = []
    for start, block_keys in enumerate(blocks):
        states, block = advance(block_keys, states, parameters)
        found.append(jax.device_get(block))
        bar.update(min(size, num_samples - start * size))
    draws, stats = jax.tree.map(lambda *x: np.concatenate(x, 1)[:, :num_samples], *found)
    return draws, stats


def _compiled(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """A function compiled now, so that what follows is not its compilation; over several devices when it is called."""
    compiled = jax.jit(function)
    # where arrays are spread over devices, what one call returns need not lie as another was compiled for
    return compiled if len(jax.devices()) > 1 else compiled.lower(*args).compile()


def _over_devices(tree: Any, num_chains: int) -> Any:
    devices = jax.devices()
    if len(devices) == 1 or num_chains % len(devices):
        return tree
    mesh = jax.sharding.Mesh(np.array(devices), ("chain",))
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("chain")))
