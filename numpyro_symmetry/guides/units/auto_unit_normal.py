r"""`AutoUnitNormal`: a guide with a full covariance within each unit, and none between them.

.. math:: q(\theta) = \prod_i \mathcal N\big(u_i;\, m_i, (A_i^\top A_i)^{-1}\big) \prod_e \mathcal N(\theta_e)

Knows autoguides and the symmetry of a model; no densities of relabelled values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import init_to_uniform
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from numpyro_symmetry.discovery import find_symmetry
from numpyro_symmetry.entropy.units import as_rows, from_rows
from numpyro_symmetry.guides.around import AsDrawn
from numpyro_symmetry.guides.inputs import as_count_or_auto, as_levels
from numpyro_symmetry.guides.linear.unit_normal import Common, LowRank, Regression, UnitNormal
from numpyro_symmetry.guides.no_bound import refuse_bounds
from numpyro_symmetry.guides.units.places import Place, places_of
from numpyro_symmetry.linalg import substitute_forward
from numpyro_symmetry.models import as_model, is_unconstrained, latent_of, refuse_wrong_parameters, trace_model
from numpyro_symmetry.models.arguments import refuse_no_option
from numpyro_symmetry.models.fitted import not_set_up, own_parameter, parameters_of, refuse_set_up_under_jit
from numpyro_symmetry.models.trace import blaming_sites
from numpyro_symmetry.models.unconstrained import inverse
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_flag, as_key, as_shape

# most numbers of a unit with a full covariance, d of which take d²/2 parameters and d³ operations a step; and the rank
# that is added to the diagonal for larger units
_MOST_NUMBERS = 256
_RANK = 8
# start of low-rank factors, relative to the standard deviations: at zero they would have no gradient
_INIT_FACTOR = 0.1


class AutoUnitNormal(AutoGuide):
    r"""A Gaussian guide whose units have a full covariance each, and are independent of each other.

    .. math:: q(\theta) = \prod_i \mathcal N\big(u_i;\, m_i, (A_i^\top A_i)^{-1}\big) \prod_e \mathcal N(\theta_e)

    A unit is what a group of the model's symmetry moves as one: of a hidden layer, the incoming weights and the bias of
    one neuron, and its outgoing weights unless these belong to the units of the next layer. Every other latent is
    independently Normal in its unconstrained space, as in NumPyro's `AutoNormal`.

    `AutoSymmetrized` around it keeps an exact table, :math:`L_{ij} = \log q_i(u_j)`, for the square of a unit's numbers
    (or, of low rank, the rank times these) times the square of the units. Within `AutoConditional`, sites that follow
    are no part of a unit.

    Parameters
    ----------
    model
        A NumPyro model.
    symmetry
        The symmetry whose groups' units are meant; by default what `find_symmetry` finds in the model.
    rank
        ``None`` for a full covariance within each unit. A whole number r for one that is diagonal plus of rank r,
        :math:`S_i(I + W_iW_i^\top)S_i`. ``"auto"``: full for units of up to 256 numbers, and rank 8 above.
    prefix
        Prefix of the parameters' names.
    init_loc_fn
        Where means start, as for any autoguide of NumPyro.
    init_scale
        Standard deviation of every unconstrained number at the start, where none are correlated, or hardly any.
    create_plates
        As for any autoguide of NumPyro.
    progress_bar
        Whether to show what is being done where the symmetry has to be found.

    Attributes
    ----------
    places
        Site -> where its units lie, in the order of drawing; empty before it is set up.

    Raises
    ------
    SymmetryError
        At set-up: the model has no symmetry, none of its sites can be part of a unit, or there is a symmetry to be
        found under `jit`.
    TypeError, ValueError
        If an option is unknown, or of another kind.

    Notes
    -----
    A unit's covariance is that of a regression of each of its numbers on those before it,
    :math:`u_f = m_f + \sum_{l<f} C_{fl}(u_l - m_l) + s_f\varepsilon_f`, so that every site has a density of its own.
    Parameters of a site of units are m, s (``scale``) and C (``coefficients``, ``(F, B + F, n)``: F numbers of the
    site, B of the sites before). Of low rank, they are m, the diagonal of S (``scale``) and W (``factor``,
    ``(F, r, n)``), which starts small and not at zero, where it would have no gradient; by Woodbury's identity the
    table takes the square of the units times a unit's numbers times r.

    A site belongs to the units of the last of its axes on which a group acts, if that is the whole of the axis and the
    site has an unconstrained number for each of its own; not in a subsampled plate.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> from numpyro_symmetry import AutoSymmetrized, Symmetry
    >>> from numpyro_symmetry.guides import AutoUnitNormal
    >>> def model(x, y=None):
    ...     w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
    ...     w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1).to_event(1), obs=y)
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    >>> guide = AutoSymmetrized(AutoUnitNormal(model, symmetry), symmetry)
    >>> x = jnp.stack([jnp.linspace(-1.0, 1.0, 20), jnp.ones(20)], 1)
    >>> result = SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).run(
    ...     jax.random.key(0), 10, x, jnp.sin(x[:, 0]), progress_bar=False)
    >>> {name: value.shape for name, value in sorted(result.params.items()) if "w2" in name}
    {'w2_auto_coefficients': (1, 3, 4), 'w2_auto_loc': (4,), 'w2_auto_scale': (4,)}
    """

    prototype_trace: Any

    def __init__(
        self,
        model: Callable,
        symmetry: Symmetry | None = None,
        *,
        rank: int | str | None = "auto",
        prefix: str = "auto",
        init_loc_fn: Callable = init_to_uniform,
        init_scale: float = 0.1,
        create_plates: Callable | None = None,
        progress_bar: bool = True,
    ) -> None:
        symmetry = None if symmetry is None else as_symmetry(symmetry)
        model = as_model(model)
        if not isinstance(prefix, str) or not prefix:
            raise TypeError(f"prefix must be a name, such as 'auto'; got {prefix!r}.")
        if not callable(init_loc_fn):
            raise TypeError(f"init_loc_fn must be a function, such as init_to_median; got {init_loc_fn!r}.")
        if not isinstance(init_scale, Real):
            raise TypeError(f"init_scale must be a number; got {init_scale!r}.")
        if not 0.0 < init_scale < math.inf:
            raise ValueError(f"init_scale must be positive and finite; got {init_scale!r}.")
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn, create_plates=create_plates)
        self.symmetry = symmetry
        self.rank: int | str | None = as_count_or_auto(rank, "rank", "a full covariance")
        # a guide around this one may hide sites of the model, and so some of what its symmetry is read from
        self._whole = model
        self._init_scale = init_scale
        self._progress_bar = as_flag(progress_bar, "progress_bar")
        # an `AutoNormal` of the sites that are no part of a unit, once set up
        self._others: Any = None
        self.places: dict[str, Place] = {}
        self._ranks: dict[str, int | None] = {}
        self._known: dict[str, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Draw the sites of units one after the other, then the others."""
        if not self.places:
            self._set_up(args, kwargs)
        drawn: dict[str, Array] = {}
        before: dict[str, Any] = {}
        with AsDrawn(self, args, kwargs):
            for site, place in self.places.items():
                fn = self._distribution(site, before.get(place.group))
                is_real = is_unconstrained(self.prototype_trace[site]["fn"].support)
                transform = self._transform(site)
                with handlers.trace() as trace:
                    value = numpyro.sample(site, fn if is_real else dist.TransformedDistribution(fn, transform))
                drawn[site] = jnp.asarray(value)
                # by another name in a scope, and before what an intervention puts in its place
                message, *_ = trace.values()
                # unconstrained as it was drawn, if it was: at the border of a support single precision rounds it
                steps = message["intermediates"]
                free = steps[0][0] if steps else inverse(transform, jnp.asarray(message["value"]))
                before[place.group] = fn.after(free)
            return drawn | self._others(*args, **kwargs)

    def sample_posterior(
        self, rng_key: Array, params: dict[str, Any], *args: Any, sample_shape: tuple[int, ...] = (), **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of all latent sites, and of the model's deterministic ones.

        Parameters
        ----------
        rng_key
            JAX random key.
        params
            Parameters from SVI.
        *args, **kwargs
            The model's arguments.
        sample_shape
            Leading shape of the draws.

        Returns
        -------
        dict
            Site -> ``(*sample_shape, *event)``.

        Raises
        ------
        SymmetryError
            If the guide is not set up; if a parameter is missing, of another shape, not finite or outside of its
            constraint.
        TypeError
            If an option is unknown.
        """
        sample_shape, rng_key = as_shape(sample_shape, "sample_shape"), as_key(rng_key)
        refuse_no_option(self.sample_posterior, self.model, kwargs)
        self._refuse_wrong_parameters(params)

        def draw(key: Array) -> dict[str, Array]:
            with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
                drawn = self(*args, **kwargs)
            return self._constrained({site: inverse(self._transform(site), value) for site, value in drawn.items()})

        draws = jax.lax.map(draw, jax.random.split(rng_key, math.prod(sample_shape)))
        return {site: value.reshape(sample_shape + value.shape[1:]) for site, value in draws.items()}

    def median(self, params: dict[str, Any]) -> dict[str, Array]:
        """Median of every number. Raises as `sample_posterior`."""
        self._refuse_wrong_parameters(params)
        return self._constrained(self._parameters("loc", params))

    def quantiles(self, params: dict[str, Any], quantiles: Any) -> dict[str, Array]:
        """Quantiles of every number alone, ``(*quantiles.shape, *event)``.

        Raises
        ------
        ValueError
            If a quantile is not from 0 to 1.
        SymmetryError
            As `sample_posterior`.
        """
        levels = jnp.asarray(as_levels(quantiles))
        self._refuse_wrong_parameters(params)
        scale = self._parameters("scale", params) | self._marginal_scales(params)
        loc = self._parameters("loc", params)

        def at(level: Array) -> dict[str, Array]:
            return self._constrained({site: dist.Normal(loc[site], scale[site]).icdf(level) for site in loc})

        found = jax.lax.map(at, levels.ravel())
        return {site: value.reshape(levels.shape + value.shape[1:]) for site, value in found.items()}

    elbo_bounds = property(refuse_bounds)

    # ---- private -----------------------------------------------------------------------------------------------

    def _distribution(self, site: str, before: Any) -> UnitNormal:
        """A site given what the sites before it in the same units say, if there are any."""
        place, start = self.places[site], self._init_locs[site]
        count = jnp.shape(start)[place.axis]
        loc = own_parameter(f"{site}_{self.prefix}_loc", start)
        scale = own_parameter(
            f"{site}_{self.prefix}_scale",
            jnp.full(jnp.shape(start), self._init_scale),
            constraint=AutoNormal.scale_constraint,
        )
        layout = {"axis": place.axis, "units": place.group, "event_dim": self._others._event_dims[site]}
        if (rank := self._ranks[place.group]) is None:
            before = jnp.zeros((0, count)) if before is None else before
            shape = place.numbers, len(before) + place.numbers, count
            coefficients = own_parameter(f"{site}_{self.prefix}_coefficients", jnp.zeros(shape))
            return UnitNormal(loc, scale, Regression(jnp.asarray(coefficients), before), **layout)
        shape, size = (place.numbers, rank, count), _INIT_FACTOR / math.sqrt(rank)
        factor = own_parameter(f"{site}_{self.prefix}_factor", lambda key: size * jax.random.normal(key, shape))
        before = Common.before_all(rank, count) if before is None else before
        return UnitNormal(loc, scale, LowRank(jnp.asarray(factor), before), **layout)

    def _marginal_scales(self, params: dict[str, Any]) -> dict[str, Array]:
        """Marginal standard deviations of the numbers of units."""
        found = {}
        for group in dict.fromkeys(place.group for place in self.places.values()):
            sites = [site for site, place in self.places.items() if place.group == group]
            rows = {site: as_rows(params[f"{site}_{self.prefix}_scale"], self.places[site].axis) for site in sites}
            if self._ranks[group] is None:
                own = jnp.concatenate([*rows.values()])
                lower = [params[f"{site}_{self.prefix}_coefficients"] for site in sites]
                lower = jnp.concatenate([jnp.pad(c, ((0, 0), (0, len(own) - c.shape[1]), (0, 0))) for c in lower])
                # the effect of each number's own noise on all that follow it
                effects = substitute_forward(lower, jnp.eye(len(own))[:, :, None] * own[:, None])
                parts = jnp.split(jnp.sqrt((effects**2).sum(0)), np.cumsum([len(r) for r in rows.values()])[:-1])
            else:
                factors = [params[f"{site}_{self.prefix}_factor"] for site in sites]
                parts = [rows[site] * jnp.sqrt(1.0 + (w**2).sum(1)) for site, w in zip(sites, factors, strict=True)]
            for site, part in zip(sites, parts, strict=True):
                found[site] = from_rows(part, jnp.shape(self._init_locs[site]), self.places[site].axis)
        return found

    def _refuse_wrong_parameters(self, params: Any) -> None:
        if self._others is None:
            raise not_set_up("handlers.seed(guide, rng_key)(*model_args)")
        refuse_wrong_parameters(self._known, None, params, model_too=False)

    def _parameters(self, kind: str, params: dict[str, Any]) -> dict[str, Array]:
        return {site: params[f"{site}_{self.prefix}_{kind}"] for site in self._init_locs}

    def _transform(self, site: str) -> Any:
        return biject_to(self.prototype_trace[site]["fn"].support)

    def _constrained(self, unconstrained: dict[str, Array]) -> dict[str, Array]:
        return self._others._postprocess_fn(unconstrained)

    def _set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        symmetry = self._units(args, kwargs)
        others = AutoNormal(
            self.model,
            prefix=self.prefix,
            init_loc_fn=self.init_loc_fn,
            init_scale=self._init_scale,
            create_plates=self.create_plates,
        )
        with blaming_sites([others], self.model, args, kwargs):
            others._setup_prototype(*args, **kwargs)
        trace: Any = others.prototype_trace
        latent = latent_of(trace)
        self.places = places_of(symmetry, trace)
        if not self.places:
            raise SymmetryError(
                f"None of the latent sites {sorted(latent)} can be part of a unit of {symmetry}: they are not moved, "
                "have no unconstrained number for each of their own, or lie in a subsampled plate. Use AutoNormal."
            )
        groups = dict.fromkeys(place.group for place in self.places.values())
        self._ranks = {group: self._rank_of(group) for group in groups}
        self._init_locs = others._init_locs
        self.prototype_trace = trace
        others.prototype_trace = {name: site for name, site in trace.items() if name not in self.places}
        self._others = others
        self._known = parameters_of(self, args, kwargs)

    def _rank_of(self, group: str) -> int | None:
        """The rank of a group's units, or ``None`` for a full covariance."""
        if isinstance(self.rank, str):
            numbers = sum(place.numbers for place in self.places.values() if place.group == group)
            return None if numbers <= _MOST_NUMBERS else _RANK
        return self.rank

    def _units(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symmetry:
        """The symmetry whose groups' units are meant, bound."""
        if self.symmetry is not None:
            trace = trace_model(self._whole, args, kwargs, jax.random.key(0))
            return self.symmetry.bind({name: site["value"] for name, site in latent_of(trace).items()})
        refuse_set_up_under_jit(
            "AutoUnitNormal",
            "Run handlers.seed(guide, 0)(*model_args) once outside, let SVI.init run outside jit, or pass "
            "AutoUnitNormal(model, symmetry).",
            "no symmetry can be found",
            args=args,
            kwargs=kwargs,
        )
        found = find_symmetry(self._whole, args, kwargs, progress_bar=self._progress_bar)
        if not found.groups:
            raise SymmetryError(
                f"No symmetry was found in the model, so that it has no units: use AutoNormal.\n{found.explain()}"
            )
        return found
