"""`Posterior`: a model and what is known of its posterior. Knows symmetries; no models of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpyro_symmetry.symmetry import Symmetry, as_html


class Posterior(NamedTuple):
    """A model together with what is known of its posterior.

    Attributes
    ----------
    model
        NumPyro model.
    model_args
        Its positional arguments.
    symmetry
        Its full permutation symmetry, bound to sizes.
    log_evidence
        Exact log evidence in nats, or ``None`` where it has no closed form.
    description
        One line for reports.
    """

    model: Callable[..., Any]
    model_args: tuple[Any, ...]
    symmetry: Symmetry
    log_evidence: float | None
    description: str

    def __repr__(self) -> str:
        """The description, the evidence and the symmetry."""
        evidence = "unknown" if self.log_evidence is None else f"{self.log_evidence:.6g} nats"
        return f"Posterior({self.description}; log evidence {evidence})\n{self.symmetry}"

    _repr_html_ = as_html
