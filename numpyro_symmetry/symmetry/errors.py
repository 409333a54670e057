"""The package's own errors and warnings. Knows nothing else of the package."""


class SymmetryError(ValueError):
    """A symmetry does not fit the model, the values or the element it was given."""


class OffSupportError(SymmetryError):
    """An element moves a value off its support."""


class NotFiniteError(SymmetryError):
    """A log joint is not finite where a symmetry would be tried."""


class UnsupportedGuideError(ValueError):
    """A base guide has no tractable density at permuted values, so it cannot be symmetrized."""


class SymmetryWarning(UserWarning):
    """Something is legal but probably not what was meant."""
