"""BlackJAX on a NumPyro model, into an ArviZ container."""

from numpyro_symmetry.samplers.blackjax import run_blackjax

__all__ = ["run_blackjax"]
