"""Models labelled by hand with their symmetry: what ``find_symmetry`` should find, and should refuse to find."""

from tests.gallery import (
    adversarial,
    enumerated,
    factors,
    features,
    flax_networks,
    latent,
    markov,
    mixtures,
    networks,
    operations,
    prototypes,
    prototypes_latent,
    refused,
    sequences,
    styles,
)
from tests.gallery.case import Case

MODULES = (
    prototypes,
    prototypes_latent,
    networks,
    operations,
    sequences,
    flax_networks,
    mixtures,
    markov,
    enumerated,
    factors,
    latent,
    features,
    refused,
    styles,
    adversarial,
)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)

__all__ = ["CASES", "Case"]
