"""BlackJAX on a NumPyro model, into an ArviZ container.

Chains run side by side, one jitted step for all of them; over several devices when there are several, each of which
runs its own without waiting for the others. Knows models and samplers; nothing of symmetry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from numpyro.infer import init_to_uniform
from numpyro.infer.util import constrain_fn
from tqdm.auto import tqdm

from numpyro_symmetry.containers.posterior import check_dims, posterior_container
from numpyro_symmetry.devices import as_sharding, each_at_its_own, gathered, laid_over, over_local_devices
from numpyro_symmetry.models import Model, latent_of, trace_model
from numpyro_symmetry.samplers.starts import refuse_what_has_no_gradient, starts_of
from numpyro_symmetry.steps import interval
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_key,
    as_model_arguments,
    as_option,
    as_probability,
    refuse_tracers,
)

ALGORITHMS = ("nuts", "hmc", "mclmc")
# how often a progress bar moves; and after how many draws at most it moves, and an interrupt is heard
_UPDATES, _MOST_A_BLOCK = 20, 50

LogDensityFunction = Callable[[Any], Array]


class _Sampler(NamedTuple):
    """A sampler of one chain: ``warm(key, position) -> (state, parameters)``, ``step(key, state, parameters)``."""

    warm: Callable[[Array, Any], tuple[Any, Any]]
    step: Callable[[Array, Any, Any], tuple[Any, dict[str, Array]]]


class Interrupted(KeyboardInterrupt):
    """Sampling that was interrupted, and keeps what it has.

    Parameters
    ----------
    draws
        Makes the container of the draws so far, equally many of every chain; an attribute of the exception.
    num_kept, num_samples
        How many draws of every chain there are, and how many were asked for.

    Examples
    --------
    >>> from numpyro_symmetry.samplers import Interrupted
    >>> try:
    ...     raise Interrupted(lambda: "the draws", num_kept=50, num_samples=1000)
    ... except KeyboardInterrupt as stopped:
    ...     stopped.draws()
    'the draws'
    """

    def __init__(self, draws: Callable[[], Any], num_kept: int, num_samples: int) -> None:
        super().__init__(
            f"Interrupted after {num_kept} of {num_samples} draws of every chain, which are kept: catch this exception "
            "and call its draws(), or, where a notebook or prompt has shown it, import sys; sys.last_value.draws()."
        )
        self.draws = draws


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
    sharding: NamedSharding | None = None,
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
        Chains run side by side.
    thinning
        Number of steps of which one draw is kept; ``num_samples`` draws are kept.
    num_integration_steps
        Leapfrog steps of ``"hmc"``.
    target_acceptance_rate, dense_mass
        Options of the window adaptation.
    init_strategy, init_params
        Where chains start: one of NumPyro's strategies, or constrained values by site ``(num_chains, ...)``.
    log_likelihood
        Whether to keep the log-likelihood of every datum in every draw.
    dims, coords
        Names and coordinates of dimensions, beside those of plates.
    sharding
        How chains lie over devices, such as ``NamedSharding(mesh, PartitionSpec("chain"))``; the devices may be those
        of several processes. By default over as many of this process's devices as divide the chains.
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
        lies outside a support, or the devices of ``sharding`` do not divide the chains.
    TypeError
        If an argument is of another type: a key that is none, a number that is no whole number.
    SymmetryError
        If data have no rows, or the values of ``init_strategy`` are no numbers or of another shape.
    Interrupted
        On Ctrl-C while it samples: a `KeyboardInterrupt` that keeps the draws so far, ``error.draws()``.

    References
    ----------
    Cabezas, Corenflos, Lao, Louf et al. (2024), *BlackJAX: Composable Bayesian inference in JAX*, arXiv:2402.10797;
    Hoffman and Gelman (2014), *The No-U-Turn Sampler*; Robnik and Seljak (2023), *Microcanonical Langevin Monte Carlo*,
    arXiv:2303.18221.

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
    as_option(algorithm, "algorithm", ALGORITHMS)
    num_chains, num_warmup = as_count(num_chains, "num_chains"), as_count(num_warmup, "num_warmup")
    num_samples, thinning = as_count(num_samples, "num_samples"), as_count(thinning, "thinning")
    num_integration_steps = as_count(num_integration_steps, "num_integration_steps")
    dense_mass, progress_bar = as_flag(dense_mass, "dense_mass"), as_flag(progress_bar, "progress_bar")
    log_likelihood, rng_key = as_flag(log_likelihood, "log_likelihood"), as_key(rng_key)
    target_acceptance_rate = as_probability(target_acceptance_rate, "target_acceptance_rate")
    if not callable(init_strategy) or isinstance(init_strategy, type):
        raise TypeError(
            f"init_strategy must be one of NumPyro's strategies, such as numpyro.infer.init_to_median; got "
            f"{init_strategy!r}."
        )
    if sharding is None:
        sharding = over_local_devices(num_chains)
    sharding = as_sharding(sharding, num_chains, "num_chains")
    model_args, kwargs = as_model_arguments(model_args, model_kwargs)
    refuse_tracers("run_blackjax", rng_key=rng_key, model_args=model_args, model_kwargs=kwargs, init_params=init_params)
    sites = trace_model(model, model_args, kwargs, jax.random.key(0))
    check_dims(dims, coords, sites)
    refuse_what_has_no_gradient(latent_of(sites))
    key_init, key_warm, key_sample = jax.random.split(rng_key, 3)
    potential, positions = starts_of(
        Model(model, model_args, kwargs), sites, key_init, num_chains, init_strategy, init_params
    )
    sampler = _sampler(
        algorithm, lambda z: -potential(z), num_warmup, num_integration_steps, target_acceptance_rate, dense_mass
    )
    options: Any = {"desc": "compiling the warm-up", "unit": "draw", "mininterval": interval()}
    with tqdm(total=num_samples, disable=not progress_bar, **options) as bar:
        draws = _run(sampler, key_warm, key_sample, positions, num_samples, thinning, sharding, bar)

    def packed() -> Any:
        constrain = jax.jit(
            lambda z: constrain_fn(model, model_args, kwargs, z, return_deterministic=True, batch_ndims=2)
        )
        return posterior_container(
            Model(model, model_args, kwargs),
            constrain(draws.positions),
            sample_stats=draws.stats,
            log_likelihood=log_likelihood,
            dims=dims,
            coords=coords,
            attrs={"inference_library": "blackjax", "algorithm": algorithm, "num_warmup": num_warmup},
        )

    if draws.is_whole:
        with contextlib.suppress(KeyboardInterrupt):
            return packed()
    raise Interrupted(packed, next(iter(draws.stats.values())).shape[1], num_samples)


def _sampler(
    algorithm: str,
    log_density: LogDensityFunction,
    num_warmup: int,
    num_integration_steps: int,
    rate: float,
    dense: bool,
) -> _Sampler:
    import blackjax as library

    # BlackJAX types its builders as what they build, not as what they return
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
        # an option that is the same for every chain is no array to be mapped over chains
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


class _Draws(NamedTuple):
    """Draws and statistics by name, ``(chain, draw, ...)``, and how far sampling came."""

    positions: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    is_whole: bool


def _run(
    sampler: _Sampler,
    key_warm: Array,
    key_sample: Array,
    positions: Any,
    num_samples: int,
    thinning: int,
    sharding: NamedSharding | None,
    bar: Any,
) -> _Draws:
    """Draw block by block, so that the bar can move; an interrupt ends it with the blocks so far."""

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

    num_chains = len(jax.tree.leaves(positions)[0])
    keys, positions = laid_over((jax.random.split(key_warm, num_chains), positions), sharding)
    warm = _compiled(jax.vmap(sampler.warm), sharding, keys, positions)
    bar.set_description("warming up")
    states, parameters = jax.block_until_ready(warm(keys, positions))
    bar.set_description("compiling the sampler")
    # every block has the same length, so that it compiles once; surplus draws are cut off
    size = min(-(-num_samples // _UPDATES), _MOST_A_BLOCK)
    blocks = jax.random.split(key_sample, -(-num_samples // size))
    of_chains = [laid_over(jax.random.split(key, num_chains), sharding) for key in blocks]
    advance = _compiled(jax.vmap(lambda k, s, p: one(k, s, p, size)), sharding, of_chains[0], states, parameters)
    # so that the bar's rate is that of sampling alone
    bar.reset()
    bar.set_description("sampling")
    found = []
    try:
        for start, block_keys in enumerate(of_chains):
            states, block = advance(block_keys, states, parameters)
            found.append(jax.device_get(gathered(block)))
            bar.update(min(size, num_samples - start * size))
    except KeyboardInterrupt:
        if not found:
            raise
    draws, stats = jax.tree.map(lambda *x: np.concatenate(x, 1)[:, :num_samples], *found)
    return _Draws(draws, stats, len(found) == len(of_chains))


def _compiled(function: Callable[..., Any], sharding: NamedSharding | None, *args: Any) -> Callable[..., Any]:
    """A function of chains, compiled in this call so that later calls only run; each device works on its own chains."""
    return jax.jit(each_at_its_own(function, sharding, len(args))).lower(*args).compile()
