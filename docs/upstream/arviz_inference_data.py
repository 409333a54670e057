"""ArviZ 1 says that it has `InferenceData`, so that asking for the name does not tell the versions apart."""

import warnings

import arviz

warnings.simplefilter("ignore")
print("arviz", arviz.__version__, "hasattr InferenceData:", hasattr(arviz, "InferenceData"))
