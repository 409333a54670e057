"""The evidence of a model from both sides: proposals, importance weights, and ratios of normalising constants."""

from numpyro_symmetry.evidence.estimate import LogEvidence, log_evidence

__all__ = ["LogEvidence", "log_evidence"]
