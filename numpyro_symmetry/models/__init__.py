"""What a NumPyro program is, read once: sites, plates, parameters, supports, data, enumeration. Knows no symmetry."""

from numpyro_symmetry.models.arguments import PARTS, Model, as_argnum, as_model, part_of, refuse_misfit, refuse_no_sites
from numpyro_symmetry.models.enumeration import enumerated_log_density
from numpyro_symmetry.models.fitted import (
    parameter_sites,
    refuse_absent_state,
    refuse_nonfinite,
    refuse_wrong_parameters,
)
from numpyro_symmetry.models.functions import model_of_log_density
from numpyro_symmetry.models.masked import is_masked, left_out, refuse_without_prior, unread_entries
from numpyro_symmetry.models.sites import (
    Trace,
    discrete_of,
    drawn_shape,
    entrywise,
    is_fitted,
    is_latent,
    is_observed,
    is_same,
    is_unconstrained,
    latent_of,
    layers,
    observed_of,
    plate_dims,
    real_event,
    settings_of,
    weight_of,
    without_wrappers,
)
from numpyro_symmetry.models.trace import outline, trace_model

__all__ = [
    "Model",
    "PARTS",
    "Trace",
    "as_argnum",
    "as_model",
    "discrete_of",
    "drawn_shape",
    "entrywise",
    "enumerated_log_density",
    "is_fitted",
    "is_latent",
    "is_observed",
    "is_same",
    "is_unconstrained",
    "is_masked",
    "latent_of",
    "layers",
    "left_out",
    "model_of_log_density",
    "observed_of",
    "outline",
    "parameter_sites",
    "part_of",
    "plate_dims",
    "real_event",
    "refuse_absent_state",
    "refuse_misfit",
    "refuse_no_sites",
    "refuse_nonfinite",
    "refuse_without_prior",
    "refuse_wrong_parameters",
    "settings_of",
    "trace_model",
    "unread_entries",
    "weight_of",
    "without_wrappers",
]
