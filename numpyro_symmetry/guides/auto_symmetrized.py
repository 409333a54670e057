"""`AutoSymmetrized`: any NumPyro guide with a density, made permutation-symmetric.

The base guide runs untouched; one auxiliary observed site adds what symmetrizing does to its log density, so every ELBO
works unchanged. Knows guides and the model; the entropy itself is computed on the floor below.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro import handlers
from numpyro.infer import Predictive
from numpyro.infer.autoguide import AutoGuide

from numpyro_symmetry.discovery import check_symmetry, find_symmetry, trace_model
from numpyro_symmetry.entropy import ESTIMATORS, why_not_exact
from numpyro_symmetry.guides import requirements
from numpyro_symmetry.guides.density import (
    Coordinates,
    Trace,
    latent_values,
    latents_are_independent,
    lay_out,
)
from numpyro_symmetry.guides.elbo import ElboBounds, compile_particles, summarise
from numpyro_symmetry.guides.information import draws_permutations, information_at
from numpyro_symmetry.symmetry import Symmetry, SymmetryError, SymmetryWarning, UnsupportedGuideError
from numpyro_symmetry.symmetry.axes import names_in
from numpyro_symmetry.symmetry.plain import untangled

_ELEMENT_STREAM = 2**31 - 1


class LogFactor(dist.Unit):
    """A `Unit` that TraceGraph_ELBO differentiates: it stops gradients of sites that claim no reparametrisation."""

    reparametrized_params = ["log_factor"]


class AutoSymmetrized(AutoGuide):
    r"""A base guide averaged over a symmetry group, trained by any NumPyro ELBO.

    .. math:: q^G(\theta) = \frac1{|G|} \sum_{g\in G} q(g\theta), \qquad
              \mathrm{ELBO}(q^G) = \mathrm{ELBO}(q) + I(g;\theta)

    Draws, sites and parameters are the base guide's, bit for bit; predictions do not depend on which copy of a mode is
    drawn. What changes is the entropy: copies that overlap no longer pay for being told apart. Every training estimator
    gives a lower bound in expectation, so the reported ELBO never exceeds the true one.

    Parameters
    ----------
    base_guide
        Any guide with a tractable density: an autoguide, an `AutoGuideList`, or a function of the model's arguments.
    symmetry
        What may be permuted, checked against the model at set-up; by default what `find_symmetry` finds there. Of units
        of heads that move themselves, either the units or the heads are symmetrized, whichever are more.
    model
        The model; needed only if ``base_guide`` does not carry one.
    estimator
        ``"auto"`` (exact for small groups, else the sequential bound), ``"exact"``, ``"infonce"``, ``"sequential"`` or
        ``"importance"``; see `mutual_information`.
    num_permutations
        K, which counts the identity; for ``"infonce"`` and ``"importance"``.
    max_features
        For the sequential bound, how many features of a site (inputs of a layer, say) help to tell units apart: those
        that differ most. Fewer is faster and looser, never invalid; ``None`` for all.
    check
        Whether to prove at set-up that the model is invariant (`check_symmetry`).
    prefix
        Prefix of the auxiliary site's name.

    Attributes
    ----------
    base, model
        The base guide and the model.
    symmetry
        What is symmetrized, once set up.
    layout, model_trace
        How the guide's density is read at relabelled values, and a trace of the model; ``None`` until set up.

    Raises
    ------
    SymmetryError
        At set-up: the model is not invariant, a site or size does not fit, a support is ordered, a relabelled latent
        sits in a subsampled plate, a parameter is not finite.
    UnsupportedGuideError
        At set-up: the base guide has no density at permuted values.
    ValueError
        If an option is unknown.

    Notes
    -----
    Set-up happens at the first call, outside `jit`: `SVI.init` and `SVI.run` do that. Call `setup` first if you jit
    ``svi.init`` yourself. Where units are already distinct the correction is the constant ``log|G|`` and training is
    that of the base guide; symmetrizing matters where units, components or states overlap.

    References
    ----------
    Gelberg, van der Ouderaa, van der Wilk and Gal (2024), arXiv:2408.05496, Eq. 4, Theorems 4.1 and 4.3.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import AutoSymmetrized, Symmetry
    >>> def model(x, y):
    ...     w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
    ...     w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1), obs=y)
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
    >>> guide = AutoSymmetrized(AutoNormal(model), symmetry)
    >>> result = SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).run(
    ...     jax.random.key(0), 10, x, jnp.sin(x[:, 0]), progress_bar=False)
    >>> sorted(result.params)
    ['w1_auto_loc', 'w1_auto_scale', 'w2_auto_loc', 'w2_auto_scale']
    """

    def __init__(
        self,
        base_guide: Callable,
        symmetry: Symmetry | None = None,
        *,
        model: Callable | None = None,
        estimator: str = "auto",
        num_permutations: int = 8,
        max_features: int | None = 64,
        check: bool = True,
        prefix: str = "symmetry",
    ) -> None:
        if estimator not in ("auto", *ESTIMATORS):
            raise ValueError(f"estimator must be 'auto' or one of {ESTIMATORS}; got {estimator!r}.")
        if num_permutations < 1:
            raise ValueError(f"num_permutations counts the identity and must be at least 1; got {num_permutations}.")
        if num_permutations < 2 and estimator in ("infonce", "importance"):
            raise ValueError(f"num_permutations counts the identity; {estimator!r} needs at least 2.")
        if not (symmetry is None or isinstance(symmetry, Symmetry)):
            raise TypeError(f"symmetry must be a Symmetry; got {type(symmetry).__name__}.")
        requirements.refuse_guides_without_density(base_guide)
        self.base = base_guide
        self.symmetry = symmetry
        self.estimator = estimator
        self.num_permutations = num_permutations
        self.max_features = max_features
        self.prefix = prefix
        self._check = check
        self.layout: Coordinates | None = None
        self.model_trace: Trace | None = None
        self._particles: Callable | None = None
        self._compiled_for: tuple | None = None
        model = model if model is not None else getattr(base_guide, "model", None)
        if model is None:
            raise ValueError("base_guide carries no model: pass AutoSymmetrized(base_guide, symmetry, model=model).")
        self.model = model

    # ---- what NumPyro expects of an AutoGuide --------------------------------------------------------------------

    @property
    def prototype_trace(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Prototype trace of the base guide, or of the model if the base guide keeps none."""
        return getattr(self.base, "prototype_trace", None) or self.model_trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the base guide, then add the correction as one auxiliary observed site."""
        with handlers.trace() as trace:
            result = self.base(*args, **kwargs)
        if numpyro.get_mask() is False:  # Predictive asks for draws only
            return result
        if self.layout is None:
            self._set_up(trace, args, kwargs)
        assert self.layout is not None
        # drawn after the base guide, which therefore sees the same keys as when it runs alone
        key = numpyro.prng_key() if draws_permutations(self.estimator, self.layout) else None
        options = {"num_permutations": self.num_permutations, "max_features": self.max_features}
        information = information_at(
            self.base, self.layout, trace, args, kwargs, rng_key=key, estimator=self.estimator, **options
        )
        numpyro.sample(
            f"_{self.prefix}_correction", LogFactor(-information), obs=jnp.empty((0,)), infer={"is_auxiliary": True}
        )
        return result

    def setup(self, rng_key: Array, *args: Any, **kwargs: Any) -> AutoSymmetrized:
        """Initialise the base guide and make every check now, outside `jit`.

        Parameters
        ----------
        rng_key
            JAX random key.
        *args, **kwargs
            The model's arguments.

        Returns
        -------
        AutoSymmetrized
            The guide itself.

        Raises
        ------
        SymmetryError, UnsupportedGuideError
            As for the class.
        """
        self._set_up(self._trace_of_base(rng_key, args, kwargs), args, kwargs)
        return self

    def sample_posterior(
        self,
        rng_key: Array,
        params: dict[str, Any],
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        symmetrize: bool = False,
        **kwargs: Any,
    ) -> dict[str, Array]:
        """Draw latent sites, by default in one basin: predictions do not depend on the labels.

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
        symmetrize
            Whether to apply a uniformly random element to every draw, which makes them draws of :math:`q^G`.
            Deterministic sites of a guide by hand are then left out.

        Returns
        -------
        dict
            Site -> ``(*sample_shape, *event)``.

        Raises
        ------
        SymmetryError
            If a parameter is not finite.
        """
        requirements.refuse_nonfinite(params)
        if isinstance(self.base, AutoGuide):
            draws = self.base.sample_posterior(rng_key, params, *args, sample_shape=sample_shape, **kwargs)
        else:
            predictive = Predictive(self.base, params=params, num_samples=math.prod(sample_shape))
            flat = predictive(rng_key, *args, **kwargs)
            draws = {name: value.reshape(sample_shape + value.shape[1:]) for name, value in flat.items()}
            if symmetrize:  # what the guide computed from the labels it drew would not move along with them
                drawn = self._trace_of_base(rng_key, args, kwargs)
                draws = {name: value for name, value in draws.items() if drawn[name]["type"] == "sample"}
        if not symmetrize:
            return draws
        # one key makes the same draws with and without relabelling; no split reaches this index
        key_element = jax.random.fold_in(rng_key, _ELEMENT_STREAM)
        if self.layout is None:
            self.setup(rng_key, *args, **kwargs)
        assert self.layout is not None
        symmetry = self.layout.symmetry
        return symmetry.apply(symmetry.sample(key_element, sample_shape), draws)  # pyright: ignore[reportReturnType]

    def median(self, params: dict[str, Any]) -> dict[str, Array]:
        """Medians of the base guide: of one labelled component, because those of :math:`q^G` are blind to labels."""
        return self._autoguide("median").median(params)

    def quantiles(self, params: dict[str, Any], quantiles: ArrayLike) -> dict[str, Array]:
        """Quantiles of the base guide: of one labelled component."""
        return self._autoguide("quantiles").quantiles(params, quantiles)  # pyright: ignore[reportArgumentType]

    def get_posterior(self, params: dict[str, Any]) -> dist.Distribution:
        """Posterior of the base guide in its unconstrained space: one labelled component of :math:`q^G`."""
        return self._autoguide("get_posterior").get_posterior(params)  # pyright: ignore[reportAttributeAccessIssue]

    def elbo_bounds(
        self,
        rng_key: Array,
        params: dict[str, Any],
        *args: Any,
        num_particles: int = 256,
        num_permutations: int = 16,
        **kwargs: Any,
    ) -> ElboBounds:
        r"""Bound the symmetrized ELBO from both sides: :math:`\mathrm{ELBO}(q) + I` with I sandwiched.

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

        Returns
        -------
        ElboBounds
            ``lower`` never exceeds the symmetrized ELBO, nor ``log p(data)``, in expectation; ``upper`` is never below
            the symmetrized ELBO. Nats, with standard errors over draws.

        Raises
        ------
        SymmetryError, UnsupportedGuideError
            As for the class, and if a parameter is not finite.
        ValueError
            If a number is less than one.
        """
        if num_particles < 1 or num_permutations < 1:
            raise ValueError(
                f"num_particles and num_permutations must be at least 1; got {num_particles} and {num_permutations}."
            )
        requirements.refuse_nonfinite(params)
        if self.layout is None:
            self.setup(rng_key, *args, **kwargs)
        layout = self.layout
        assert layout is not None

        # compiled once for the same data and every parameter; NumPy arrays may have changed in place
        leaves, structure = jax.tree.flatten((args, kwargs))
        settings = (num_permutations, structure, *map(id, leaves))
        lasting = all(isinstance(leaf, Array | bool | int | float | str) for leaf in leaves)
        if self._particles is None or settings != self._compiled_for or not lasting:
            # containers of the caller's may change too: these are our own, and keep the leaves alive and so their ids
            args, kwargs = jax.tree.unflatten(structure, leaves)

            def information(key: Array, trace: Trace) -> Array:
                options = {"estimator": "tight", "bound": "both", "num_permutations": num_permutations}
                return information_at(self.base, layout, trace, args, kwargs, rng_key=key, **options)

            independent = latents_are_independent(self.base, self._trace_of_base(rng_key, args, kwargs), args, kwargs)
            self._particles = compile_particles(self.model, self.base, args, kwargs, information, analytic=independent)
            self._compiled_for = settings
        keys = jax.random.split(rng_key, num_particles)
        elbo, information_of = self._particles(keys, params)
        return summarise(elbo, information_of, layout.symmetry.log_order())

    def evidence_bounds(self, *args: Any, **kwargs: Any) -> ElboBounds:
        """Former name of `elbo_bounds`: the symmetrized guide has an ELBO, and the evidence is the model's."""
        warnings.warn("evidence_bounds is now called elbo_bounds.", FutureWarning, stacklevel=2)
        return self.elbo_bounds(*args, **kwargs)

    # ---- private -------------------------------------------------------------------------------------------------

    def _trace_of_base(self, rng_key: Array, args: tuple, kwargs: dict) -> Trace:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=rng_key):
            self.base(*args, **kwargs)
        return trace

    def _set_up(self, trace: Trace, args: tuple, kwargs: dict) -> None:
        requirements.refuse_tracers((args, kwargs, latent_values(trace)))
        model_trace = trace_model(self.model, args, kwargs, jax.random.key(0))
        given = self.symmetry if self.symmetry is not None else self._find(trace, args, kwargs)
        symmetry = untangled(given.bind(latent_values(model_trace)))
        requirements.refuse_nonfinite({name: s["value"] for name, s in trace.items() if s["type"] == "param"})
        requirements.refuse_absent_sites(symmetry, trace)
        requirements.refuse_subsampled_latents(symmetry, model_trace)
        requirements.refuse_plate_around_everything(model_trace)
        if self._check and self.symmetry is not None:
            verdict = check_symmetry(self.model, symmetry, args, kwargs)
            if verdict.status == "inconclusive":
                warnings.warn(f"The symmetry could not be proved: {verdict.reason}", SymmetryWarning, stacklevel=4)
        supports = {site: model_trace[site]["fn"].support for site in symmetry.axes}
        layout = lay_out(symmetry, trace, supports, self.base, args, kwargs)
        layout = requirements.verify_densities(self.base, trace, layout, args, kwargs)
        if self.estimator == "exact" and (why := why_not_exact(layout.of_coordinates, exact_table=layout.factorises)):
            raise SymmetryError(f"estimator='exact' is out of reach: {why}. Use 'sequential' or 'importance'.")
        self.symmetry, self.layout, self.model_trace, self._compiled_for = given, layout, model_trace, None

    def _find(self, trace: Trace, args: tuple, kwargs: dict) -> Symmetry:
        """What the model's symmetry is on the sites that the guide draws."""
        found, drawn = find_symmetry(self.model, args, kwargs), latent_values(trace)
        here = [name for name in found.groups if all(s in drawn for s, e in found.axes.items() if name in names_in(e))]
        if not here:
            warnings.warn(
                f"No symmetry was found, so the guide stays as it is:\n{found.explain()}", SymmetryWarning, stacklevel=5
            )
        return found.restrict(here)

    def _autoguide(self, what: str) -> AutoGuide:
        if not hasattr(self.base, what):
            raise UnsupportedGuideError(
                f"The base guide {type(self.base).__name__} has no {what}(); compute it from sample_posterior()."
            )
        return self.base  # pyright: ignore[reportReturnType]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_particles": None, "_compiled_for": None}
