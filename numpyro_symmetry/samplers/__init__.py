"""BlackJAX on a NumPyro model. Knows models and how draws are written; no symmetry."""

from numpyro_symmetry.samplers.blackjax import Interrupted, run_blackjax

__all__ = ["Interrupted", "run_blackjax"]
