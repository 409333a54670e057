r"""How many features of a site the sequential bound has to see: judged by the bound itself, before training.

The fewer it sees, the faster and the looser it is. How much looser can be computed where a guide starts, and what is
enough there is found by doubling. Knows factors and draws of them; no guides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.entropy.nested import log_probability_of_identity
from numpyro_symmetry.entropy.tables import most_features
from numpyro_symmetry.entropy.units import Factors
from numpyro_symmetry.symmetry import Symmetry

# sites with no more features than this are read whole, and nothing has to be judged
FEWEST_FEATURES = 64
# the most that may be lost, in nats and as a share of log|G|: a fifth of what the number of Sinkhorn steps may cost
_HARMLESS = 0.5
_HARMLESS_SHARE = 1e-3


def widest_site(components: Sequence[Symmetry], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The most features that any site has of the units of a group, at its turn in the chain."""
    return max(
        (
            most_features(component, shapes, name, list(component.groups)[:turn])
            for component in components
            for turn, name in enumerate(component.groups)
        ),
        default=0,
    )


def enough_features(components: Sequence[Symmetry], factors: Factors, draws: Mapping[str, Array]) -> int | None:
    r"""Choose the fewest features of a site with which the sequential bound loses nothing that matters.

    .. math:: \min\{m \in 64, 128, 256, \ldots :
              \operatorname{E}[\log\tau_\infty(\mathrm{id}\mid\theta) - \log\tau_m(\mathrm{id}\mid\theta)]
              \le \max(\tfrac12, 10^{-3}\log|G|)\},

    the mean being one over the given draws, the same for every m. Where no site has more than 64 features nothing is
    evaluated.

    Parameters
    ----------
    components
        Bound symmetries of the coordinates whose sequential bounds add, see `sequential_parts`.
    factors
        Means and standard deviations by site.
    draws
        Draws by site, ``(num_draws, *event)``.

    Returns
    -------
    int or None
        ``max_features`` for `information`; ``None`` for all features.

    Examples
    --------
    Units that one feature tells apart need no more than the fewest:

    >>> import jax, jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.entropy import GaussianFactors, enough_features
    >>> loc = jnp.zeros((200, 12)).at[0].set(jnp.arange(12.0))
    >>> factors = GaussianFactors({"w": loc}, {"w": jnp.full((200, 12), 0.05)})
    >>> draws = {"w": loc + 0.05 * jax.random.normal(jax.random.key(0), (4, 200, 12))}
    >>> enough_features([Symmetry({"w": (None, "unit")}).bind(factors.loc)], factors, draws)
    64
    """
    count, most = (
        FEWEST_FEATURES,
        widest_site(components, {site: jnp.shape(value) for site, value in factors.loc.items()}),
    )
    if most <= count:
        return None

    def bound(max_features: int | None) -> float:
        parts = (_log_chains(component, factors, draws, max_features) for component in components)
        return sum(float(jnp.mean(part)) for part in parts)

    of_all = bound(None)
    harmless = max(_HARMLESS, _HARMLESS_SHARE * sum(component.log_order() for component in components))
    # written so that NaN is not taken for enough
    while count < most and not of_all - bound(count) <= harmless:
        count *= 2
    return count if count < most else None


@partial(jax.jit, static_argnames=("symmetry", "max_features"))
def _log_chains(symmetry: Symmetry, factors: Factors, draws: dict[str, Array], max_features: int | None) -> Array:
    # one after the other, so that no more tables are held at once than in training
    return jax.lax.map(partial(log_probability_of_identity, symmetry, factors, max_features=max_features), draws)
