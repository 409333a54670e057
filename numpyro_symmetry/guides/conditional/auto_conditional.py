r"""`AutoConditional`: a guide some of whose sites follow the others, read off the model itself.

.. math:: q(a, b) = q(a)\, q(b \mid a)

with q(a) any base guide. Knows autoguides and where conditionals come from; no symmetry.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.guides import known
from numpyro_symmetry.guides.around import AsDrawn, refuse_handlers_around
from numpyro_symmetry.guides.conditional.choice import Request, choose
from numpyro_symmetry.guides.conditional.restricted import draw_nothing, restricted
from numpyro_symmetry.guides.conditional.sources import FromObservations, Source
from numpyro_symmetry.guides.conditional.unfit import AROUND_LISTS, checked_inducing, refuse_base_guides
from numpyro_symmetry.guides.density import latent_values
from numpyro_symmetry.guides.given import Given
from numpyro_symmetry.guides.kinds import parts_of
from numpyro_symmetry.guides.linear.gaussian_given import GaussianGiven
from numpyro_symmetry.guides.linear.rows import Precision
from numpyro_symmetry.guides.no_bound import refuse_bounds
from numpyro_symmetry.guides.steps import setting_up
from numpyro_symmetry.linalg import hold_lapack_to_one_thread
from numpyro_symmetry.models import Model, refuse_wrong_parameters, trace_model
from numpyro_symmetry.models.arguments import model_of_guide, refuse_no_option
from numpyro_symmetry.models.fitted import not_set_up, parameters_of, refuse_set_up_under_jit
from numpyro_symmetry.models.trace import blaming_sites
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import SymmetryError, UnsupportedGuideError
from numpyro_symmetry.symmetry.arguments import as_count, as_flag, as_key, as_names, as_shape, is_traced

# a training loop that is not compiled may pass another number at each step: so many are looked at
_MOST_PROVED = 8


class AutoConditional(AutoGuide):
    r"""A guide whose last sites follow the others, as the model itself says; the others are drawn by a base guide.

    .. math:: q(a, b) = q(a)\, q(b \mid a), \qquad q(b \mid a) = N(b;\, m(a), \Lambda(a)^{-1})

    Where observations are Normal with a location that is affine in b, :math:`q(b \mid a)` is the exact conditional
    :math:`p(b \mid a, y)`, and the ELBO is that of the model with b integrated out,
    :math:`\operatorname{E}_{q(a)}\log p(y \mid a) - \mathrm{KL}(q(a)\,\Vert\,p(a))`. For other likelihoods it takes
    a few weighted least-squares steps of learned size. With ``inducing`` inputs it is conditioned on learned
    pseudo-observations in place of data: any likelihood, any layer, minibatches.

    Output weights of a network, regression coefficients, random effects, a Gaussian process: a mean-field guide cuts
    them off from what they multiply, which is why it collapses in wide networks; here they follow in every draw. It is
    of use without any symmetry, too.

    Parameters
    ----------
    base_guide
        An autoguide that has not been set up, which is restricted to the sites that are left; or a guide by hand, or
        an `AutoGuideList`, that draws those alone; or another `AutoConditional`.
    sites
        Names of the sites that follow, or ``"auto"``: those that are jointly affine in what is observed.
    num_steps
        Steps to the mean where the likelihood is not Gaussian.
    inducing
        Inducing inputs to start from, as rows: an array stands for the model's first argument, a dict names arguments,
        a whole number takes so many rows of the data; ``None`` to condition on the data. Arguments that hold observed
        values are left out. Inputs are learned; what a dict names that holds no real numbers, such as a mask, is kept,
        and so are, with a whole number, the same rows of another argument without which the model does not run.
    model
        The model; needed only if ``base_guide`` carries none.
    progress_bar
        Whether to show at set-up what is being done; within an `AutoSymmetrized` that guide's own says so.

    Attributes
    ----------
    source
        Where the conditional comes from, once set up; ``None`` before.

    Raises
    ------
    SymmetryError
        At set-up: no observations, a subsampled plate without ``inducing``, a site that is not affine or has no
        Gaussian prior (`Normal`, `MultivariateNormal` or `GaussianRandomWalk`), two sets of sites to choose from, a
        discrete site, inducing inputs of another shape. The message names the sites and the remedy.
    UnsupportedGuideError
        If the base guide is symmetrized or set up already, or cannot be restricted to the sites that are left.
    TypeError, ValueError
        If an option is unknown, or of another kind.

    Notes
    -----
    The mean takes Newton-like steps from the prior's mean, so relabelling a relabels b: `AutoSymmetrized` around it
    verifies that and leaves b out of its table, :math:`I(g; a, b) = I(g; a)`.

    Set-up, at the first call, verifies what it claims and compiles for it: up to tens of seconds, with a bar that says
    what it is at.

    On a CPU every step factorises matrices. The threads of SciPy's OpenBLAS would take the cores from JAX's, and a fit
    would stand still where others compute beside it. At set-up that OpenBLAS is therefore held to one thread, unless
    the environment has an ``OPENBLAS_NUM_THREADS``.

    References
    ----------
    Ober and Aitchison (2021), *Global inducing point variational posteriors*, arXiv:2005.08140: why the last layer must
    follow those below.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax
    >>> from numpyro.infer import SVI, Predictive, Trace_ELBO
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry.guides import AutoConditional
    >>> def model(x, y=None):
    ...     w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([1, 5]).to_event(2))
    ...     w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.1).to_event(1), obs=y)
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> y = jnp.sin(x[:, 0])
    >>> guide = AutoConditional(AutoNormal(model))
    >>> result = SVI(model, guide, optax.adam(1e-2), Trace_ELBO()).run(
    ...     jax.random.key(0), 10, x, y, progress_bar=False)
    >>> print(guide.explain())
    w2 follows the rest exactly, given y
    w1 is drawn by the base guide: the location of 'y' is not affine in them
    >>> predictive = Predictive(model, guide=guide.given(x, y), params=result.params, num_samples=3)
    >>> guide.sample_posterior(jax.random.key(1), result.params, x, y, sample_shape=(3,))["w2"].shape
    (3, 5)
    >>> predictive(jax.random.key(1), x[:4])["y"].shape
    (3, 4)
    """

    def __init__(
        self,
        base_guide: Callable,
        sites: Sequence[str] | str = "auto",
        *,
        num_steps: int = 3,
        inducing: Any = None,
        model: Callable | None = None,
        progress_bar: bool = True,
    ) -> None:
        refuse_base_guides(base_guide)
        model = model_of_guide(base_guide, model, "AutoConditional(base_guide, model=model)")
        super().__init__(model, prefix=getattr(base_guide, "prefix", "auto"))
        self.base = base_guide
        self.source: Source | None = None
        is_auto = isinstance(sites, str) and sites == "auto"
        names = None if is_auto else as_names(sites, "sites", example="['w2', 'b2']")
        if names is not None and len(set(names)) != max(1, len(names)):
            raise ValueError(f"sites must name at least one site, and none twice; got {list(names)}.")
        self._request = Request(names, as_count(num_steps, "num_steps"), checked_inducing(inducing))
        self._progress_bar = as_flag(progress_bar, "progress_bar")
        self._reasons: dict[str, str] = {}
        self._trained_on: list[dict[str, known.SeenArray]] = []
        self._proved: list[known.KnownArguments] = []
        # latent sites that the base guide has to draw
        self._others: frozenset[str] = frozenset()
        self._drawn_around: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[Callable]:
        """The guide of the sites that are left."""
        return (self.base,)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Draw from the base guide, then the other sites given what it drew."""
        # nothing is traced at set-up alone, which takes data that lie over several devices as one array
        args, kwargs = _as_jax(gathered((args, kwargs)))
        source = self._source_for(args, kwargs)
        with AsDrawn(self, args, kwargs) as sites:
            return self._draw(source, args, kwargs, sites)

    def _draw(
        self, source: Source, args: tuple[Any, ...], kwargs: dict[str, Any], sites: Mapping[str, Any]
    ) -> dict[str, Array]:
        given = self._draw_others(source.sites, args, kwargs, sites)
        found = source.read(self.model, args, kwargs, given, self.prefix)
        drawn: dict[str, Array] = {}
        lowered_by = found.model.coefficients()

        def draw(site: str, loc: Array, precision: Precision) -> Array:
            dimensions = found.dimensions[site]
            of_model = found.priors[site], dimensions.event_dim
            fn = GaussianGiven(loc, precision, *of_model, lowered_by[site], source.children)
            with contextlib.ExitStack() as plates:
                for plate in dimensions.plates:
                    plates.enter_context(numpyro.plate(plate.name, plate.size, dim=plate.dim))
                value: Any = numpyro.sample(site, fn)
            drawn[site] = value
            return fn.coordinates(value)

        found.model.draw(found.loc, draw)
        return given | drawn

    def given(self, *args: Any, **kwargs: Any) -> Given:
        """The guide bound to its data: a guide for `Predictive` at new inputs; set up by this, if it is not yet.

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
            If arrays have other shapes than in training. Of other numbers there is a warning. A guide with ``inducing``
            inputs sees no data, and takes any. As for the class, at set-up.
        """
        if self.source is None:  # `Predictive` maps over draws, where nothing can be checked
            trace_model(self, args, kwargs, jax.random.key(0))
        remedy = "New inputs go to the call of Predictive: Predictive(model, guide=guide.given(x, y), ...)(key, x_new)."
        self._refuse_other_data("given", args, kwargs, remedy)
        return Given.of(self, args, kwargs)

    def sample_posterior(
        self, rng_key: Array, params: dict[str, Any], *args: Any, sample_shape: tuple[int, ...] = (), **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of all latent sites.

        Parameters
        ----------
        rng_key
            JAX random key.
        params
            Parameters from SVI.
        *args, **kwargs
            The model's arguments in training, with the observations if these are conditioned on.
        sample_shape
            Leading shape of the draws.

        Returns
        -------
        dict
            Site -> ``(*sample_shape, *event)``.

        Raises
        ------
        SymmetryError
            If the guide is not set up; if a parameter is missing, of another shape or not finite; if the guide is
            conditioned on observations and these are not there, or arrays have other shapes than in training.
        TypeError
            If an option is unknown.
        """
        sample_shape, rng_key = as_shape(sample_shape, "sample_shape"), as_key(rng_key)
        refuse_no_option(self.sample_posterior, self.model, kwargs)
        remedy = "New inputs go to the model afterwards: Predictive(model, draws)(key, x_new)."
        self._refuse_other_data("sample_posterior", args, kwargs, remedy)
        if self.source is None:
            raise not_set_up("guide.given(*model_args)")
        refuse_wrong_parameters(parameters_of(self, args, kwargs), None, params, model_too=False)
        draws = Given.of(self, args, kwargs).draws(rng_key, params, sample_shape)
        # a guide with one flat latent draws that vector too
        latent = self._others.union(self._drawn_around, self.source.sites)
        return {name: value for name, value in draws.items() if name in latent}

    def median(self, params: dict[str, Any]) -> dict[str, Array]:
        """There is none in closed form: the sites that follow are mixed over the others."""
        raise self._mixed("medians")

    def quantiles(self, params: dict[str, Any], quantiles: Any) -> dict[str, Array]:
        """There are none in closed form, as with `median`."""
        raise self._mixed("quantiles")

    def _mixed(self, what: str) -> UnsupportedGuideError:
        return UnsupportedGuideError(
            f"{type(self).__name__} has no {what} in closed form, as sites that follow are mixed over the others: take "
            "those of draws, sample_posterior(rng_key, params, *model_args, sample_shape=(1000,))."
        )

    def explain(self) -> str:
        """Which sites follow, how, and why the others do not.

        Returns
        -------
        str
            A line for each set of sites.
        """
        if self.source is None:
            return "Not set up yet: call guide.given(*model_args), or SVI.init, once."
        inner = self.base.explain().splitlines() if isinstance(self.base, AutoConditional) else []
        others = [f"{site} is drawn by the base guide: {why}" for site, why in self._reasons.items()]
        return "\n".join([self.source.explain(), *(inner or others)])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_proved": list(known.portable(tuple(self._proved)))}

    elbo_bounds = property(refuse_bounds)

    # ---- private -----------------------------------------------------------------------------------------------

    def _source_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Source:
        """Where the conditional comes from, set up if it is not yet; a call that starts a training leaves its data.

        `SVI.init` runs a guide outside jit, for its density.
        """
        source = self._set_up(args, kwargs) if self.source is None else self.source
        is_start = not is_traced(jnp.zeros(())) and numpyro.get_mask() is not False
        if is_start and isinstance(source, FromObservations):
            data = known.seen_in(self.model, args, kwargs)
            self._trained_on = [*(other for other in self._trained_on if other != data), data]
            self.source = source = self._proved_again(source, args, kwargs)
        return source

    def _proved_again(
        self, source: FromObservations, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> FromObservations:
        """Look at the sites once more with arguments unlike those of set-up: a model may branch on them."""
        here = known.known_arguments(Model(self.model, args, kwargs), numbers_too=False)
        if len(self._proved) <= _MOST_PROVED and all(known.others_in(here, other) for other in self._proved):
            try:
                found = choose(self.model, self._request._replace(sites=source.sites), args, kwargs).source
            except SymmetryError as error:
                raise SymmetryError(f"{error} Make a guide anew for these arguments of the model.") from error
            self._proved.append(here)
            # outputs that share a linear map here may share none there
            source = source._replace(num_outputs=min(source.num_outputs, found.num_outputs))
        return source

    def _refuse_other_data(self, what: str, args: tuple[Any, ...], kwargs: dict[str, Any], remedy: str) -> None:
        if isinstance(self.source, FromObservations):
            known.refuse_other_data(what, known.seen_in(self.model, args, kwargs), self._trained_on, remedy)
        elif isinstance(self.base, AutoConditional):
            self.base._refuse_other_data(what, args, kwargs, remedy)

    def _draw_others(
        self, following: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], sites: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Draw from the base guide, whose ``sites`` handlers around it may change."""
        with handlers.trace() as trace, blaming_sites(list(parts_of(self.base)), self.model, args, kwargs):
            self.base(*args, **kwargs)
        refuse_handlers_around(self, trace, sites, self._others)
        given = latent_values(trace)
        if twice := sorted(set(given) & set(following)):
            raise UnsupportedGuideError(
                f"The base guide draws {twice}, which are to follow the others: give it a model without them, "
                f"handlers.block(model, hide={twice})."
            )
        if undrawn := sorted(self._others - set(given)):
            raise UnsupportedGuideError(
                f"The base guide does not draw {undrawn}, which nothing else does: it draws {sorted(given)}. Give it a "
                f"model with all sites but those that follow. {AROUND_LISTS}"
            )
        return given

    def _set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Source:
        refuse_set_up_under_jit(
            "AutoConditional",
            "Call guide.given(*model_args) with the data of training once outside, or let SVI.init run outside jit.",
            args=args,
            kwargs=kwargs,
        )
        hold_lapack_to_one_thread()
        with setting_up(self._progress_bar):
            say("looking which sites the data are affine in")
            source, latent, self._reasons = choose(self.model, self._request, args, kwargs)
        self._others = latent - set(source.sites) - self._drawn_around
        is_left = self._others or not isinstance(self.base, AutoGuide)
        self.base = _restricted(self.base, source.sites) if is_left else draw_nothing
        self.source = source
        self._proved = [known.known_arguments(Model(self.model, args, kwargs), numbers_too=False)]
        return source


def _restricted(guide: Any, sites: tuple[str, ...]) -> Any:
    """A guide of the same kind that leaves some sites out, if it is an autoguide."""
    if not isinstance(guide, AutoConditional):
        return restricted(guide, sites)
    rest = copy.copy(guide)
    rest.base = _restricted(guide.base, sites)
    rest._drawn_around = guide._drawn_around | set(sites)
    return rest


def _as_jax(tree: Any) -> Any:
    """A pytree with arrays of JAX for those of NumPy, which a traced program keeps in the precision it first met."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)
