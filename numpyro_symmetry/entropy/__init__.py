"""log q^G, the mutual information of a draw and its relabelling, and bounds on it. Knows symmetry, not NumPyro."""

from numpyro_symmetry.entropy.estimators import BOUNDS, ESTIMATORS, check_options, mutual_information
from numpyro_symmetry.entropy.factorised import connected_components
from numpyro_symmetry.entropy.features import FEWEST_FEATURES, enough_features, widest_site
from numpyro_symmetry.entropy.information import (
    information_of_draw,
    resolve_estimator,
    sequential_components,
    why_not_exact,
)
from numpyro_symmetry.entropy.permanent import log_permanent
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.tables import Factors, GaussianFactors
from numpyro_symmetry.entropy.units import UnitGaussians

__all__ = [
    "BOUNDS",
    "ESTIMATORS",
    "FEWEST_FEATURES",
    "Factors",
    "GaussianFactors",
    "UnitGaussians",
    "check_options",
    "connected_components",
    "enough_features",
    "information_of_draw",
    "log_permanent",
    "log_proposal_of_identity",
    "mutual_information",
    "resolve_estimator",
    "sample_proposal",
    "sequential_components",
    "why_not_exact",
    "widest_site",
]
