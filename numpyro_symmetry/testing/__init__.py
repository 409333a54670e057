"""Small posteriors with exact answers, for tests of ours and of yours.

Each function returns a `Posterior`: a NumPyro model, its arguments, its symmetry and, where it is known, the exact log
evidence. No evidence bound may exceed it, and a draw moved by any element must keep its log joint density. Knows models
and the layer of symmetry; no guides, no matching.
"""

from numpyro_symmetry.testing.exact import enumerable_mixture, exchangeable_gaussian, two_weight_network
from numpyro_symmetry.testing.models import dirichlet_mixture, hidden_markov, tiny_network
from numpyro_symmetry.testing.posterior import Posterior

__all__ = [
    "Posterior",
    "dirichlet_mixture",
    "enumerable_mixture",
    "exchangeable_gaussian",
    "hidden_markov",
    "tiny_network",
    "two_weight_network",
]
