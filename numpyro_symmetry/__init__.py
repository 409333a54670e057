"""Permutation symmetry of NumPyro posteriors: use it in a guide, check it against a model, bound its entropy."""

import lazy_loader

from numpyro_symmetry.versions import warn_of_wrong_numbers

__version__ = "0.1.0"

# the public names stand in __init__.pyi, one table; each is loaded on first use, so that importing the package costs
# hardly more than importing numpyro
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

warn_of_wrong_numbers()
