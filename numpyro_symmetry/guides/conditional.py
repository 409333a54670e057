r"""`AutoConditional`: a guide whose output layer follows the rest, read off the model itself.

.. math:: q(a, b) = q(a)\, q(b \mid a), \qquad q(b \mid a) = p(b \mid a, \text{data})

with q(a) any base guide. Knows the model through `affine` and the mathematics through `rows`; no symmetry.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.core import Tracer
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import Predictive
from numpyro.infer.autoguide import AutoGuide

from numpyro_symmetry.discovery import trace_model
from numpyro_symmetry.guides.affine import Prior, eligible, is_observation, read, why_not_linear
from numpyro_symmetry.guides.rows import Posterior, draw_in_turn
from numpyro_symmetry.symmetry import SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.arguments import as_key

_NUM_PLACES = 3


class GivenRows(dist.Distribution):
    """A site's posterior given the sites drawn before it: ``b = loc + scale * z`` with z as the rows have it."""

    support = constraints.real
    reparametrized_params = ["loc", "scale"]

    def __init__(self, posterior: Posterior, prior: Prior) -> None:
        self.posterior, self.prior = posterior, prior
        super().__init__((), jnp.shape(prior.loc))

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws ``(*sample_shape, *event)``."""
        assert key is not None
        if not sample_shape:
            return self.prior.loc + self.prior.scale * self.posterior.sample(key).reshape(self.event_shape)
        draws = jax.vmap(self.sample)(jax.random.split(key, math.prod(sample_shape)))
        return draws.reshape(sample_shape + self.event_shape)

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log density, nats."""
        z = self.coordinates(value)
        return self.posterior.log_prob(z) - jnp.sum(jnp.log(self.prior.scale))

    def coordinates(self, value: Array) -> Array:
        """Whitened coordinates z of a value, flat."""
        return jnp.ravel((value - self.prior.loc) / self.prior.scale)


class Conditional(NamedTuple):
    """What `AutoConditional` chose at set-up.

    Attributes
    ----------
    sites
        Sites drawn given the others.
    observed
        Observed sites whose location is affine in them.
    reason
        Why no more sites are, by site.
    """

    sites: tuple[str, ...]
    observed: tuple[str, ...]
    reason: dict[str, str]


class AutoConditional(AutoGuide):
    r"""A guide that draws a model's last sites from their exact conditional, and the others from a base guide.

    .. math:: q(a, b) = q(a)\, p(b \mid a, \text{data}), \qquad
              \mathrm{ELBO} = \operatorname{E}_{q(a)}[\log p(\text{data} \mid a)] - \mathrm{KL}(q(a) \,\Vert\, p(a))

    where observations are Normal with a location that is affine in b, given the rest. The output weights of a network,
    regression coefficients, random effects: the ELBO is then that of the model with b integrated out, and b follows a
    in every draw. A mean-field guide cuts the output weights of a network off from its hidden ones, which is why it
    collapses in wide networks; this one does not. It is of use without any symmetry, too.

    Parameters
    ----------
    base_guide
        An autoguide that has not been set up, which is restricted to the sites that are left; or a guide by hand that
        draws those alone.
    sites
        Names of the sites drawn given the others; by default all that are jointly affine.
    model
        The model; needed only if ``base_guide`` does not carry one.

    Attributes
    ----------
    conditional
        What was chosen, once set up; ``None`` before.

    Raises
    ------
    SymmetryError
        At set-up: the model has no observations, a plate is subsampled, two sets of sites could be chosen, or a site
        is not affine; the message names the sites and the base guide as remedy.

    See Also
    --------
    given : the guide bound to its data, for predictions at new inputs.

    References
    ----------
    Ober and Aitchison (2021), *Global inducing point variational posteriors*, arXiv:2005.08140: why the last layer must
    follow those below.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry.guides import AutoConditional
    >>> def model(x, y=None):
    ...     w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 5]).to_event(2))
    ...     w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1).to_event(1), obs=y)
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> guide = AutoConditional(AutoNormal(model))
    >>> result = SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).run(
    ...     jax.random.key(0), 10, x, jnp.sin(x[:, 0]), progress_bar=False)
    >>> sorted(result.params), guide.conditional.sites
    (['w1_auto_loc', 'w1_auto_scale'], ('w2',))
    """

    def __init__(
        self, base_guide: Callable, sites: Sequence[str] | None = None, *, model: Callable | None = None
    ) -> None:
        if isinstance(base_guide, type):
            raise TypeError(
                f"base_guide must be a guide; got the class {base_guide.__name__}. Pass an instance of it: "
                f"AutoConditional({base_guide.__name__}(model))."
            )
        if isinstance(sites, str):
            raise TypeError(f"sites must be a sequence of names, such as ('w2',); got {sites!r}.")
        model = model if model is not None else getattr(base_guide, "model", None)
        if model is None:
            raise ValueError("base_guide carries no model: pass AutoConditional(base_guide, model=model).")
        super().__init__(model, prefix=getattr(base_guide, "prefix", "auto"))
        self.base = base_guide
        self.conditional: Conditional | None = None
        self._asked = None if sites is None else tuple(sites)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Draw from the base guide, then the other sites given what it drew."""
        if self.conditional is None:
            self._set_up(args, kwargs)
        assert self.conditional is not None
        given = self._given(args, kwargs)
        linear = read(self.model, args, kwargs, given, self.conditional.sites)
        drawn: dict[str, Array] = {}

        def draw(site: str, posterior: Posterior) -> Array:
            fn = GivenRows(posterior, linear.priors[site])
            drawn[site] = numpyro.sample(site, fn)
            return fn.coordinates(drawn[site])

        draw_in_turn(linear.residual, linear.slopes, draw)
        return given | drawn

    def sample_posterior(
        self, rng_key: Array, params: dict[str, Any], *args: Any, sample_shape: tuple[int, ...] = (), **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of all latent sites given the data.

        Parameters
        ----------
        rng_key
            JAX random key.
        params
            Parameters from SVI.
        *args, **kwargs
            The model's arguments with the observations: the conditional sees them.
        sample_shape
            Leading shape of the draws.

        Returns
        -------
        dict
            Site -> ``(*sample_shape, *event)``.
        """
        predictive = Predictive(self, params=params, num_samples=math.prod(sample_shape), parallel=False)
        flat = predictive(as_key(rng_key), *args, **kwargs)
        return {name: value.reshape(sample_shape + value.shape[1:]) for name, value in flat.items()}

    def explain(self) -> str:
        """What is drawn from where, and why, in a few lines."""
        if self.conditional is None:
            return "Not set up yet: call the guide, or SVI.init, once."
        sites, observed, reason = self.conditional
        lines = [f"{', '.join(sites)} given the rest: exact, for the location of {', '.join(observed)} is affine in them"]
        return "\n".join(lines + [f"{site} by the base guide: {why}" for site, why in reason.items()])

    # ---- private -----------------------------------------------------------------------------------------------

    def _given(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Array]:
        """What the base guide draws."""
        with handlers.trace() as trace:
            self.base(*args, **kwargs)
        return {
            name: site["value"]
            for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"] and not site["infer"].get("is_auxiliary", False)
        }

    def _set_up(self, args: tuple, kwargs: dict[str, Any]) -> None:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            raise SymmetryError(
                "AutoConditional was set up under jit or vmap, where its checks cannot run. Call it once outside, or "
                "let SVI.init run outside jit."
            )
        # (conditions on the trace follow in `choose`)
        conditional = choose(self.model, args, kwargs, self._asked)
        if isinstance(self.base, AutoGuide):
            self.base = _restricted(self.base, conditional.sites)
        self.conditional = conditional


class _Without:
    """A model some of whose sites stay at their prior means and are not seen."""

    def __init__(self, model: Callable, sites: tuple[str, ...]) -> None:
        self.model, self.sites = model, sites

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        def at_mean(site: Any) -> Any:
            if site["type"] != "sample" or site["name"] not in self.sites:
                return None
            return jnp.broadcast_to(site["fn"].mean, site["fn"].shape())

        with handlers.block(hide=list(self.sites)), handlers.substitute(substitute_fn=at_mean):
            return self.model(*args, **kwargs)


def _restricted(guide: AutoGuide, sites: tuple[str, ...]) -> AutoGuide:
    """An autoguide of the same kind that leaves some sites out."""
    if guide.prototype_trace is not None:
        raise UnsupportedGuideError(
            "The base guide is set up already, for all sites of the model. Pass AutoConditional a new one."
        )
    rest = copy.copy(guide)
    rest.model = _Without(guide.model, sites)
    return rest


def choose(model: Callable, args: tuple, kwargs: dict[str, Any], asked: tuple[str, ...] | None) -> Conditional:
    """The sites that can be drawn given the others: those asked for, or all that are jointly affine.

    Raises
    ------
    SymmetryError
        If there are none, or two choices, or those asked for are not.
    """
    traces = [trace_model(model, args, kwargs, jax.random.key(k)) for k in range(_NUM_PLACES)]
    _refuse_models(traces[0])
    latent = {
        name: site for name, site in traces[0].items() if site["type"] == "sample" and not site["is_observed"]
    }
    places = [{name: np.asarray(trace[name]["value"]) for name in latent} for trace in traces]

    def why_not(sites: tuple[str, ...]) -> str | None:
        with jax.enable_x64(True):
            double = [jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), place) for place in places]
            return why_not_linear(model, args, kwargs, double, sites)

    if asked is not None:
        if unknown := [site for site in asked if site not in latent]:
            raise SymmetryError(f"sites names {unknown}, but the model's latent sites are {sorted(latent)}.")
        if unfit := [site for site in asked if not eligible(latent[site])]:
            raise SymmetryError(
                f"Sites {unfit} have no unweighted Normal prior on the reals, so they have no Gaussian conditional: leave them to "
                "the base guide."
            )
        if (why := why_not(asked)) is not None:
            raise SymmetryError(f"Sites {list(asked)} have no Gaussian conditional: {why}. Leave one to the base guide.")
        sites, reason = asked, {}
    else:
        reason = {
            site: "its prior is not Normal" if not eligible(latent[site]) else why_not((site,)) for site in latent
        }
        alone = tuple(site for site, why in reason.items() if why is None)
        sites = _jointly(alone, why_not, {k: v for k, v in reason.items() if v is not None})
        reason = {k: v for k, v in reason.items() if v is not None}
    observed = tuple(name for name, site in traces[0].items() if is_observation(site))
    return Conditional(sites, observed, reason)


def _jointly(
    alone: tuple[str, ...], why_not: Callable[[tuple[str, ...]], str | None], reason: dict[str, str]
) -> tuple[str, ...]:
    """All sites that are affine alone, if they are so together."""
    if not alone:
        text = "; ".join(f"{site}: {why}" for site, why in reason.items())
        raise SymmetryError(f"No site of the model has a Gaussian conditional ({text}).")
    if why_not(alone) is None:
        return alone
    apart = [pair for pair in itertools.combinations(alone, 2) if why_not(pair) is not None]
    first, second = apart[0]
    raise SymmetryError(
        f"Sites {first!r} and {second!r} are each affine given the other, but not together, as where they multiply each other: "
        f"say which is drawn given the rest, AutoConditional(base_guide, sites=({first!r},)) or sites=({second!r},)."
    )


def _refuse_models(trace: dict[str, Any]) -> None:
    if not any(is_observation(site) for site in trace.values()):
        raise SymmetryError(
            "The model has no observed site, so there is nothing to condition on. Pass the observations; to predict at "
            "new inputs, bind the guide to its data: given(guide, x, y)."
        )
    for name, site in trace.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise SymmetryError(
                f"Plate {name!r} is subsampled, {site['args'][1]} of {site['args'][0]}: a conditional made from the batch on "
                "which it is scored bounds nothing. Pass all of the data."
            )
        if site["type"] == "sample" and not site["is_observed"] and site["fn"].support.is_discrete:
            raise SymmetryError(f"Site {name!r} is discrete: sum it out in the model first.")
