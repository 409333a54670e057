"""The package's own errors and warnings. Knows nothing else of the package."""

import functools
import inspect
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# packages whose frames may lie between this one and the user's line, at which a warning is given
_BETWEEN = {"numpyro_symmetry", "numpyro", "jax", "contextlib", "functools"}


class SymmetryError(ValueError):
    """A symmetry does not fit the model, the values or the element it was given; a `ValueError`."""


class OffSupportError(SymmetryError):
    """An element moves a value off its support."""


class NotFiniteError(SymmetryError):
    """A log joint is not finite where a symmetry would be tried."""


class UnsupportedGuideError(ValueError):
    """A base guide has no tractable density at permuted values, so it cannot be symmetrized; a `ValueError`."""


class SymmetryWarning(UserWarning):
    """Something is legal but probably not what was meant; a `UserWarning`, given at the line of the caller."""


def warn(message: str) -> None:
    """Give a `SymmetryWarning`, at the line of whoever called into this package, however deep inside it this is."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SymmetryWarning, stacklevel=level)


def renamed(**names: str) -> Callable[[F], F]:
    """Accept former names of keyword arguments, ``renamed(former="present")``, and warn of them."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            for former, present in names.items():
                if former in kwargs:
                    message = f"{former}= of {function.__name__} is now called {present}=."
                    warnings.warn(message, FutureWarning, stacklevel=2)
                    return called(*args, **{present: kwargs.pop(former)}, **kwargs)
            return function(*args, **kwargs)

        return called  # pyright: ignore[reportReturnType]

    return decorate


def need(*packages: str, of: str = "Draws that are larger than memory", extra: str = "dask") -> None:
    """Refuse to go on without packages that something needs, which an extra of this package installs.

    Raises
    ------
    ImportError
        Naming the package and the extra.
    """
    for name in packages:
        if find_spec(name) is None:
            raise ImportError(f"{of} take {name}, which is not installed: pip install 'numpyro-symmetry[{extra}]'.")
