"""What a NumPyro program is, read once: sites, plates, parameters, supports, data, enumeration. Knows no symmetry."""

from numpyro_symmetry.models.arguments import Model, as_model, refuse_misfit, refuse_no_sites
from numpyro_symmetry.models.enumeration import enumerated_log_density
from numpyro_symmetry.models.sites import discrete_of, is_latent, is_observed, latent_of, observed_of, settings_of
from numpyro_symmetry.models.trace import outline, trace_model

__all__ = [
    "Model",
    "as_model",
    "discrete_of",
    "enumerated_log_density",
    "is_latent",
    "is_observed",
    "latent_of",
    "observed_of",
    "outline",
    "refuse_misfit",
    "refuse_no_sites",
    "settings_of",
    "trace_model",
]
