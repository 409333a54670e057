"""`AutoSymmetrized`: any NumPyro guide with a density, made permutation-symmetric.

The base guide runs untouched; one auxiliary observed site adds what symmetrizing does to its log density, so every ELBO
works unchanged. Knows guides and the model; the entropy itself is computed in the layer below.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from numpyro_symmetry.entropy import AUTO, Estimator, named
from numpyro_symmetry.guides import kinds, known
from numpyro_symmetry.guides.around import AsDrawn, refuse_handlers_around, refuse_partly_hidden
from numpyro_symmetry.guides.given import Given
from numpyro_symmetry.guides.inputs import as_count_or_auto
from numpyro_symmetry.guides.steps import setting_up
from numpyro_symmetry.guides.symmetrized import evaluated, explained, of_base, requirements
from numpyro_symmetry.guides.symmetrized.bounds import ElboBounds
from numpyro_symmetry.guides.symmetrized.compiled import Compiled
from numpyro_symmetry.guides.symmetrized.elbo import least_weight
from numpyro_symmetry.guides.symmetrized.information import LogFactor, information_at, key_for
from numpyro_symmetry.guides.symmetrized.layout import Layout
from numpyro_symmetry.guides.symmetrized.proved import prove_again
from numpyro_symmetry.guides.symmetrized.relabelled import relabelled
from numpyro_symmetry.guides.symmetrized.set_up import Options, set_up, set_up_to_weigh, warn_of_scanned_chains
from numpyro_symmetry.guides.units import given_gaussian
from numpyro_symmetry.models import Trace, parameter_sites, refuse_wrong_parameters, trace_model
from numpyro_symmetry.models.arguments import model_of_guide, refuse_no_option
from numpyro_symmetry.models.fitted import draws_of, not_set_up
from numpyro_symmetry.models.trace import blaming_sites
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import Symmetry, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_key, as_shape


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
        What may be permuted, checked against the model at set-up; by default what `find_symmetry` finds there. Where
        heads may be permuted, and units in them too, either of the two may be held still: `explain` names them.
    model
        The model that SVI trains on; needed if ``base_guide`` does not carry one, or carries one with sites hidden
        (``AutoNormal(block(model, hide=...))``), or if the model has no data.
    estimator
        ``"auto"`` (exact for small groups, else the sequential bound), ``"exact"``, ``"infonce"``, ``"sequential"`` or
        ``"importance"``, see `mutual_information`; or an `Estimator`.
    num_permutations
        K, which counts the identity; for ``"infonce"`` and ``"importance"``.
    max_features
        For the sequential bound, how many features of a site (inputs of a layer, say) help to tell units apart: those
        that differ most. Fewer is faster and looser, never invalid; ``None`` for all. ``"auto"`` chooses at set-up, the
        same for the same start: the first of 64, 128, 256, … by which the bound of eight draws of the base guide as it
        starts is at most half a nat, or a thousandth of ``log|G|``, looser than with all. Where no site has more than
        64, or nothing is bounded sequentially, that is all and costs nothing. Training may move to where more would
        help.
    check
        Whether to prove at set-up that a symmetry that is given leaves the model alone (`check_symmetry`).
    signs
        Whether a symmetry that is found may change signs (odd activations, factors).
    prefix
        Prefix of the auxiliary site's name.
    progress_bar
        Whether to show at set-up what is being done, for it may take tens of seconds.

    Attributes
    ----------
    base, model
        The base guide and the model.
    symmetry
        The symmetry that was given; once set up, this or the one that was found, bound; ``None`` until then if it is to
        be found. The average is over ``layout.symmetry``, all of it or a subgroup.
    max_features
        The number that was given; once set up, the one that is used, ``None`` for all.
    layout, model_trace
        How the guide's density is read at relabelled values, and a trace of the model; ``None`` until set up.

    Raises
    ------
    SymmetryError
        At set-up: the model is not invariant, a site or size does not fit, a support is ordered, a relabelled latent
        sits in a subsampled plate, a parameter is not finite, the guide's model hides sites of the model or its data.
    UnsupportedGuideError
        At set-up: the base guide has no density at permuted values, or is symmetrized already.
    TypeError, ValueError
        If an option is unknown, or of another kind.

    Notes
    -----
    Set-up happens at the first call, outside `jit`: `SVI.init` and `SVI.run` do that. Call `setup` first if you jit
    ``svi.init`` yourself. Where nothing can be symmetrized a warning says so, and the guide is the base guide. Where
    units are already distinct the correction is the constant ``log|G|`` and training is that of the base guide;
    symmetrizing matters where units, components or states overlap.

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

    _proved: tuple[known.KnownArguments, ...] = ()

    def __init__(
        self,
        base_guide: Callable,
        symmetry: Symmetry | None = None,
        *,
        model: Callable | None = None,
        estimator: str | Estimator = "auto",
        num_permutations: int = 8,
        max_features: int | str | None = "auto",
        check: bool = True,
        signs: bool = True,
        prefix: str = "symmetry",
        progress_bar: bool = True,
    ) -> None:
        asked = named(estimator, AUTO)
        fewest = asked.fewest_permutations if isinstance(asked, Estimator) else 1
        meaning = "K, which counts the identity" + (f"; {estimator!r} needs at least {fewest}" if fewest > 1 else "")
        if not isinstance(prefix, str) or not prefix:
            raise TypeError(f"prefix must be a name, such as 'symmetry'; got {prefix!r}.")
        requirements.refuse_guides_without_density(base_guide)
        self.base = base_guide
        self.symmetry = None if symmetry is None else as_symmetry(symmetry)
        self.estimator = estimator
        self.num_permutations: int = as_count(num_permutations, "num_permutations", minimum=fewest, meaning=meaning)
        self.max_features = as_count_or_auto(max_features, "max_features", "all")
        self.prefix = prefix
        self._progress_bar = as_flag(progress_bar, "progress_bar")
        self.layout: Layout | None = None
        self.model_trace: Trace | None = None
        self._options = Options(
            symmetry, estimator, self.max_features, as_flag(check, "check"), as_flag(signs, "signs"), model is not None
        )
        self._parameters: tuple[Trace, Trace] | None = None
        self._compiled: Compiled | None = None
        self.model = model_of_guide(base_guide, model, "AutoSymmetrized(base_guide, symmetry, model=model)")

    of_gaussian = classmethod(given_gaussian.of_gaussian)

    def __repr__(self) -> str:
        """The base guide, and what is symmetrized."""
        base = getattr(self.base, "__name__", type(self.base).__name__)
        whole = self.symmetry if self.layout is None else self.layout.symmetry
        symmetry = "a symmetry still to be found" if whole is None else repr(whole).partition("\n")[0]
        features = "" if self.layout is None else f", max_features={self.max_features}"
        return f"AutoSymmetrized({base}, {symmetry}, estimator={self.estimator!r}{features})"

    explain = explained.explain
    init_loc_fn = property(requirements.refuse_particles)

    # ---- what NumPyro expects of an AutoGuide --------------------------------------------------------------------

    @property
    def prototype_trace(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Prototype trace of the base guide, or of the model if the base guide keeps none."""
        return getattr(self.base, "prototype_trace", None) or self.model_trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the base guide, then add the correction as one auxiliary observed site."""
        with setting_up(self._progress_bar and self.layout is None and numpyro.get_mask() is not False):
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        blaming = blaming_sites(list(kinds.parts_of(self.base)), self.model, args, kwargs)
        with handlers.trace() as trace, AsDrawn(self.base, args, kwargs) as drawn, blaming:
            result = self.base(*args, **kwargs)
        if numpyro.get_mask() is False:  # Predictive asks for draws only
            return result
        refuse_handlers_around(self.base, trace, drawn)
        layout = self._set_up(trace, args, kwargs) if (is_new := self.layout is None) else self.layout
        prove_again(self, args, kwargs)
        warn_of_scanned_chains(self._chains)
        requirements.refuse_plate_around_everything(self)
        if not layout.symmetry.groups:
            return result
        requirements.refuse_absent_sites(layout.symmetry, trace)
        requirements.refuse_enumerated(self.base, layout, trace, args, kwargs)
        # drawn after the base guide, which therefore sees the same keys as when it runs alone
        key = key_for(self.estimator, layout)
        options = {name: getattr(self, name) for name in ("estimator", "num_permutations", "max_features")}
        say("bounding the information of a draw")
        information = information_at(self.base, layout, trace, args, kwargs, key, once=is_new, **options)
        information *= least_weight(drawn, list(layout.symmetry.axes))
        name, infer = f"_{self.prefix}_correction", {"is_auxiliary": True}
        with handlers.trace() as correction:
            numpyro.sample(name, LogFactor(-information), obs=jnp.empty((0,)), infer=infer)
        refuse_partly_hidden(self.base, trace, correction)
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
        TypeError
            If ``rng_key`` is no key, or the model does not run with these arguments.

        Examples
        --------
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry.testing import enumerable_mixture
        >>> small = enumerable_mixture()
        >>> AutoSymmetrized(AutoNormal(small.model)).setup(jax.random.key(0), *small.model_args).symmetry
        Symmetry(S2 on 'loc'; log|G| = 0.7 nats)
          loc: (loc)
        """
        with setting_up(self._progress_bar):
            set_up_to_weigh(self, as_key(rng_key), args, kwargs)
            requirements.refuse_plate_around_everything(self)
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
            Whether to apply a uniformly random element to every draw, which makes them draws of :math:`q^G`. What the
            model computes is then computed again, with the arguments given; deterministic sites of a guide by hand are
            left out.

        Returns
        -------
        dict
            Site -> ``(*sample_shape, *event)``.

        Raises
        ------
        SymmetryError
            If a parameter is missing, not the guide's, of another shape, not finite or outside of its constraint.
        TypeError
            If an option is unknown, or the model does not run with the arguments given, and what it computes is asked
            for.

        Examples
        --------
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry.testing import enumerable_mixture
        >>> small = enumerable_mixture()
        >>> guide = AutoSymmetrized(AutoNormal(small.model), small.symmetry).setup(jax.random.key(0), *small.model_args)
        >>> params = {"loc_auto_loc": jnp.array([-2.0, 2.0]), "loc_auto_scale": jnp.array([0.1, 0.1])}
        >>> draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(1000,), symmetrize=True)
        >>> (draws["loc"] > 0).mean(0).round(1).tolist()  # 0 and 1 of draws in one basin
        [0.5, 0.5]
        """
        rng_key, sample_shape = as_key(rng_key), as_shape(sample_shape, "sample_shape")
        symmetrize = as_flag(symmetrize, "symmetrize")
        refuse_no_option(self.sample_posterior, self.model, kwargs)
        self._refuse_wrong_parameters(params, args, kwargs)
        if isinstance(self.base, AutoGuide):
            draws = draws_of(self.base, rng_key, params, args, kwargs, sample_shape)
        else:
            draws = Given.of(self.base, args, kwargs).draws(rng_key, params, sample_shape)
            if symmetrize:  # what the guide computed from the labels it drew would not move along with them
                drawn = self._trace_of_base(rng_key, args, kwargs)
                draws = {name: value for name, value in draws.items() if drawn[name]["type"] == "sample"}
        if not symmetrize:
            return draws
        if self.layout is None:
            self.setup(rng_key, *args, **kwargs)
        return relabelled(self, rng_key, draws, sample_shape, params, args, kwargs)

    def given(self, *args: Any, **kwargs: Any) -> Given:
        """The guide bound to its data, for `Predictive` at new inputs: needed if its base guide is conditioned on them.

        Parameters
        ----------
        *args, **kwargs
            The model's arguments in training, with the observations.

        Returns
        -------
        Given
            A guide that takes any arguments and ignores them.

        Raises
        ------
        SymmetryError
            As its base guide does: arrays of other shapes than in training, where that is an `AutoConditional`.

        Examples
        --------
        >>> from numpyro.infer import SVI, Predictive, Trace_ELBO
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry import AutoConditional, testing
        >>> model, (x, y) = testing.tiny_network()[:2]
        >>> guide = AutoSymmetrized(AutoConditional(AutoNormal(model)))
        >>> svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
        >>> params = svi.get_params(svi.init(jax.random.key(0), x, y))
        >>> predictive = Predictive(model, guide=guide.given(x, y), params=params, num_samples=100)
        >>> predictive(jax.random.key(1), x[:3])["y"].shape
        (100, 3)
        """
        if hasattr(self.base, "given"):  # it knows the data that it was trained on
            self.base.given(*args, **kwargs)
        return Given.of(self, args, kwargs)

    # of one labelled component, for those of the average are blind to labels
    median, quantiles, get_posterior = of_base.median, of_base.quantiles, of_base.get_posterior

    elbo_bounds = evaluated.elbo_bounds

    def evidence_bounds(self, *args: Any, **kwargs: Any) -> ElboBounds:
        """Former name of `elbo_bounds`: the symmetrized guide has an ELBO, and the evidence is the model's."""
        warnings.warn("evidence_bounds is now called elbo_bounds.", FutureWarning, stacklevel=2)
        return self.elbo_bounds(*args, **kwargs)

    # ---- private -------------------------------------------------------------------------------------------------

    def _trace_of_base(self, rng_key: Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
        with blaming_sites(list(kinds.parts_of(self.base)), self.model, args, kwargs):
            return trace_model(self.base, args, kwargs, rng_key)

    def _set_up(self, trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Layout:
        found = set_up(self.base, self.model, self._options, trace, args, kwargs)
        self.symmetry, self.layout, self.model_trace, self._parameters, self.max_features, self._proved = found[:-1]
        self._chains, self._compiled = found.chains, None
        return found.layout

    def _refuse_wrong_parameters(
        self, params: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, model_too: bool = False
    ) -> None:
        if self._parameters is not None:
            of_guide, of_model = self._parameters
        elif getattr(self.base, "prototype_trace", None) is None and isinstance(self.base, AutoGuide):
            raise not_set_up("guide.setup(rng_key, *model_args)")
        else:
            of_guide, of_model = parameter_sites(self._trace_of_base(jax.random.key(0), args, kwargs or {})), None
        refuse_wrong_parameters(of_guide, of_model, params, model_too=model_too)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_compiled": None, "_proved": known.portable(self._proved)}
