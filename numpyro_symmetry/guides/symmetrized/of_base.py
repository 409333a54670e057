"""What a symmetrized guide says of one labelled component: its base guide's medians, quantiles and posterior.

Knows a symmetrized guide; none of it is averaged over the group.
"""

from __future__ import annotations

from typing import Any

import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from numpyro_symmetry.guides.inputs import as_levels
from numpyro_symmetry.symmetry import UnsupportedGuideError


def median(self: Any, params: dict[str, Any]) -> dict[str, Array]:
    """Medians of the base guide: of one labelled component, because those of :math:`q^G` are blind to labels.

    Parameters
    ----------
    params
        Parameters from SVI.

    Returns
    -------
    dict
        Site -> median, constrained.

    Raises
    ------
    SymmetryError
        If the guide is not set up, or a parameter is missing, not the guide's, of another shape or not finite.
    UnsupportedGuideError
        If the base guide has no median in closed form.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import AutoSymmetrized, testing
    >>> small = testing.enumerable_mixture()
    >>> guide = AutoSymmetrized(AutoNormal(small.model), small.symmetry).setup(jax.random.key(0), *small.model_args)
    >>> params = {"loc_auto_loc": jnp.array([-2.0, 2.0]), "loc_auto_scale": jnp.ones(2)}
    >>> guide.median(params)["loc"].tolist()  # of the average over the group both are zero
    [-2.0, 2.0]
    """
    return _of_base(self, "median", params)


def quantiles(self: Any, params: dict[str, Any], quantiles: ArrayLike) -> dict[str, Array]:
    """Quantiles of the base guide: of one labelled component.

    Parameters
    ----------
    params
        Parameters from SVI.
    quantiles
        Levels from 0 to 1.

    Returns
    -------
    dict
        Site -> ``(num_levels, *event)``, constrained.

    Raises
    ------
    TypeError, ValueError
        If a level is no number, or not from 0 to 1.
    SymmetryError
        If the guide is not set up, or a parameter is missing, not the guide's, of another shape or not finite.
    UnsupportedGuideError
        If the base guide has none in closed form, and no median, as a flow and a conditional have none.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import AutoSymmetrized, testing
    >>> small = testing.enumerable_mixture()
    >>> guide = AutoSymmetrized(AutoNormal(small.model), small.symmetry).setup(jax.random.key(0), *small.model_args)
    >>> params = {"loc_auto_loc": jnp.array([-2.0, 2.0]), "loc_auto_scale": jnp.ones(2)}
    >>> guide.quantiles(params, [0.025, 0.975])["loc"].round(1).tolist()
    [[-4.0, 0.0], [-0.0, 4.0]]
    """
    return _of_base(self, "quantiles", params, as_levels(quantiles))


def get_posterior(self: Any, params: dict[str, Any]) -> dist.Distribution:
    """Posterior of the base guide in its unconstrained space: one labelled component of :math:`q^G`.

    Parameters
    ----------
    params
        Parameters from SVI.

    Returns
    -------
    numpyro.distributions.Distribution
        Over one vector of all unconstrained numbers, as NumPyro's autoguides have it.

    Raises
    ------
    SymmetryError
        If the guide is not set up, or a parameter is missing, not the guide's, of another shape or not finite.
    UnsupportedGuideError
        If the base guide has no such distribution, as `AutoNormal` and guides by hand have none.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro.infer.autoguide import AutoDiagonalNormal
    >>> from numpyro_symmetry import AutoSymmetrized, testing
    >>> small = testing.enumerable_mixture()
    >>> guide = AutoSymmetrized(AutoDiagonalNormal(small.model), small.symmetry)
    >>> guide = guide.setup(jax.random.key(0), *small.model_args)
    >>> guide.get_posterior({"auto_loc": jnp.array([-2.0, 2.0]), "auto_scale": jnp.ones(2)}).mean.tolist()
    [-2.0, 2.0]
    """
    return _of_base(self, "get_posterior", params)


def _of_base(guide: Any, what: str, params: Any, *args: Any) -> Any:
    absent = UnsupportedGuideError(
        f"The base guide {type(guide.base).__name__} has no {what}(); compute it from sample_posterior()."
    )
    if not hasattr(guide.base, what):
        raise absent
    guide._refuse_wrong_parameters(params)
    try:
        return getattr(guide.base, what)(params, *args)
    except NotImplementedError as error:
        raise absent from error
