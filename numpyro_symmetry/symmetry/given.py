"""A check of symmetries that are passed as arguments. Knows what is passed in their place by mistake."""

from __future__ import annotations

from typing import Any

from numpyro_symmetry.symmetry.symmetry import Symmetry


def as_symmetry(symmetry: Any) -> Symmetry:
    """A symmetry, and nothing else.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if not isinstance(symmetry, Symmetry):
        if callable(symmetry) and not isinstance(symmetry, type):
            # networks that are pytrees would print all of their weights
            name = getattr(symmetry, "__qualname__", "")
            raise TypeError(
                f"symmetry must be a Symmetry; got {f'the function {name}' if name else type(symmetry).__name__}. A "
                "NumPyro model goes by its name, model=, where one is taken; else find what may be permuted first: "
                "find_symmetry(model, model_args), or of a function's parameters find_symmetry(function, (params, x), "
                "argnum=0)."
            )
        what = f"the class {symmetry.__name__}" if isinstance(symmetry, type) else type(symmetry).__name__
        raise TypeError(
            "symmetry must be a Symmetry: of a builder, such as Symmetry.mlp([('w1', 'b1'), ('w2', None)]), or what "
            f"find_symmetry(model, model_args) returns; got {what}. It stands "
            "behind what it acts on: match(target, source, symmetry), rebase(draws, symmetry)."
        )
    return symmetry
