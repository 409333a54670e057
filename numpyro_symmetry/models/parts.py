"""The part of a log joint whose symmetry is asked for: all of it, or the likelihood. Knows NumPyro; no symmetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpyro.primitives import Messenger

from numpyro_symmetry.models.sites import is_latent

PARTS = ("joint", "likelihood")


class _WithoutPriors(Messenger):
    """Flattens the priors of continuous sites; discrete ones, which say how data come about, keep theirs."""

    def process_message(self, msg: Any) -> None:
        """Mask one site."""
        if is_latent(msg) and not msg["fn"].support.is_discrete:
            msg["fn"] = msg["fn"].mask(False)


def part_of(model: Callable, part: Any) -> Callable:
    """A model whose log joint is one part of another's.

    Raises
    ------
    ValueError
        If there is no such part.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {PARTS}; got {part!r}.")
    return _WithoutPriors(model) if part == "likelihood" else model
