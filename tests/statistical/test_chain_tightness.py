"""How near chains of proposals come to the information of all groups together, by enumeration.

Shares as `docs/bounds.md` has them. A chain whose sketches know nothing of labels not yet placed is below all but the
last of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

from numpyro_symmetry import Symmetry
from numpyro_symmetry.entropy import GaussianFactors
from numpyro_symmetry.entropy.factorised import log_chain_of_identity, log_ratio

LAYERS = {"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b", None)}
# sites, kinds of groups, shapes, scale, least share of the information
CASES = {
    "layers, one input": (LAYERS, {}, {"w1": (1, 4), "w2": (4, 4), "w3": (4, 1)}, 0.7, 0.95),
    "layers, four inputs": (LAYERS, {}, {"w1": (4, 4), "w2": (4, 4), "w3": (4, 2)}, 1.0, 0.95),
    "three layers": (
        {"w1": (None, "a"), "w2": ("a", "b"), "w3": ("b", "c"), "w4": ("c", None)},
        {},
        {"w1": (1, 3), "w2": (3, 3), "w3": (3, 3), "w4": (3, 1)},
        1.0,
        0.95,
    ),
    # nothing tells the first layer's units apart but the second's, nor those but the third's: guesses begin there
    "told from the end": (
        {"w1": ("a", "b"), "w2": ("b", "c"), "w3": ("c", None)},
        {},
        {"w1": (3, 3), "w2": (3, 3), "w3": (3, 2)},
        0.3,
        0.995,
    ),
    "signed layers": (LAYERS, {"a": "signed", "b": "signed"}, {"w1": (1, 3), "w2": (3, 3), "w3": (3, 1)}, 0.7, 0.83),
    "states": ({"move": ("state", "state"), "loc": ("state",)}, {}, {"move": (5, 5), "loc": (5,)}, 0.7, 0.95),
    "a site that lends one feature": (
        {"w": ("a", "b"), "v": ("b",)},
        {},
        {"w": (4, 4), "v": (4,)},
        0.7,
        0.85,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_chain_comes_near_the_information(case):
    sites, kinds, shapes, scale, least = CASES[case]
    rng = np.random.default_rng(0)
    loc = {site: jnp.asarray(rng.normal(size=shape), jnp.float32) for site, shape in shapes.items()}
    factors = GaussianFactors(loc, {site: jnp.full(shape, scale) for site, shape in shapes.items()})
    symmetry = Symmetry(sites, kinds).bind(loc)
    noise = {site: rng.normal(size=(150, *shape)) for site, shape in shapes.items()}
    draws = {site: loc[site] + scale * jnp.asarray(noise[site], jnp.float32) for site in sites}
    elements = symmetry.elements(max_order=3000)

    def both(draw):
        ratios = jax.lax.map(lambda g: log_ratio(symmetry, factors, draw, g), elements, batch_size=200)
        return -logsumexp(ratios), log_chain_of_identity(symmetry, factors, draw)

    exact, chain = (symmetry.log_order() + np.asarray(x, float) for x in jax.jit(lambda x: jax.lax.map(both, x))(draws))
    assert chain.mean() >= least * exact.mean()
    # a bound in the mean; of differences draw by draw
    missing = exact - chain
    assert missing.mean() >= -4 * missing.std() / len(missing) ** 0.5
