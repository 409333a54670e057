"""Versions of other packages with which numbers are wrong. Knows nothing of this one but its warning."""

from __future__ import annotations

import warnings

import jaxlib.version

# sums of products over an axis that is not the last, of more than 32,768 results: github.com/jax-ml/jax/issues/39103
_WRONG_ON_A_CPU = ("0.10.2",)


def warn_of_wrong_numbers(version: str = jaxlib.version.__version__) -> None:
    """Warn of a jaxlib that this package excludes, and that was installed all the same.

    Warns
    -----
    SymmetryWarning
        If it computes wrong numbers.
    """
    if version not in _WRONG_ON_A_CPU:
        return
    from numpyro_symmetry.symmetry.errors import SymmetryWarning

    warnings.warn(
        f"jaxlib {version} computes wrong sums of large arrays on a CPU without a word (jax issue 39103), so that an "
        "ELBO, or what is called a bound, may be wrong by hundreds of nats. Install another version of jax and jaxlib; "
        "where that cannot be, set the environment variable XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= before "
        "Python starts, and ignore this warning.",
        SymmetryWarning,
        stacklevel=3,
    )
