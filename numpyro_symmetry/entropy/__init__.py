"""log q^G, the mutual information of a draw and its relabelling, and bounds on it. Knows symmetry, not NumPyro."""

from numpyro_symmetry.entropy.densities import Density, Factorised, General
from numpyro_symmetry.entropy.estimators import ESTIMATORS, Estimator, named
from numpyro_symmetry.entropy.factorised import size_of_tables
from numpyro_symmetry.entropy.features import FEWEST_FEATURES, enough_features, widest_site
from numpyro_symmetry.entropy.of_draw import AUTO, information, needs_key, refusal, sequential_parts
from numpyro_symmetry.entropy.of_table import mutual_information
from numpyro_symmetry.entropy.permanent import log_permanent
from numpyro_symmetry.entropy.sequential import log_proposal_of_identity, sample_proposal
from numpyro_symmetry.entropy.tables import GaussianFactors
from numpyro_symmetry.entropy.units import Factors, UnitGaussians

__all__ = [
    "AUTO",
    "ESTIMATORS",
    "FEWEST_FEATURES",
    "Density",
    "Estimator",
    "Factorised",
    "Factors",
    "GaussianFactors",
    "General",
    "UnitGaussians",
    "enough_features",
    "information",
    "log_permanent",
    "log_proposal_of_identity",
    "mutual_information",
    "named",
    "needs_key",
    "refusal",
    "sample_proposal",
    "sequential_parts",
    "size_of_tables",
    "widest_site",
]
