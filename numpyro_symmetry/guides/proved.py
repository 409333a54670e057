"""With which arguments of its model a symmetry was proved, and whether it holds with others.

Knows models, and a symmetrized guide that is set up.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.discovery import check_symmetry
from numpyro_symmetry.guides.inputs import named_arguments
from numpyro_symmetry.guides.origin import fingerprint
from numpyro_symmetry.models import Model
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import is_number
from numpyro_symmetry.symmetry.errors import warn

# by name, as in ``scales[0]``: what is no array as it is, and an array's fingerprint
Known = dict[str, Any]


def known_arguments(model: Model, *, arrays_too: bool) -> Known:
    """What of a model's arguments a proof depends on: sizes, flags and numbers, which are constants of its program.

    Parameters
    ----------
    model
        The model with its arguments.
    arrays_too
        Whether arrays are: a symmetry that was found is proved whatever numbers they hold.
    """
    args, kwargs = gathered((model.args, model.kwargs))
    named = named_arguments(model.function, args, kwargs, defaults=True)
    leaves = {
        name + jax.tree_util.keystr(path): leaf
        for name, value in named.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(value)
        if not isinstance(leaf, Tracer)
    }
    arrays = {name: leaf for name, leaf in leaves.items() if np.ndim(leaf) and hasattr(leaf, "dtype")}
    known = {name: leaf for name, leaf in leaves.items() if name not in arrays}
    numeric = {name: leaf for name, leaf in arrays.items() if arrays_too and is_number(leaf.dtype)}
    return known | {name: int(fingerprint(leaf)) for name, leaf in numeric.items()}


def prove_again(guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, arrays_too: bool = False) -> None:
    """Check the symmetry of a guide that is set up once more, if arguments differ from all with which it was proved.

    Of a symmetry that was given, arrays differ too, where ``arrays_too`` asks for it. Under `jit` nothing is checked.

    Raises
    ------
    SymmetryError
        If the model does not have it with these.
    """
    symmetry, given = guide.layout.symmetry, guide._options.symmetry is not None
    if not symmetry.groups or (given and not guide._options.check) or isinstance(jnp.zeros(()), Tracer):
        return
    here = known_arguments(Model(guide.model, args, kwargs), arrays_too=arrays_too and given)
    if any(not _other(here, known) for known in guide._proved):
        return
    say("checking the symmetry with other arguments of the model")
    try:
        verdict = check_symmetry(guide.model, symmetry, *gathered((args, kwargs)), progress_bar=False)
    except SymmetryError as error:
        other = _other(here, guide._proved[-1]) if guide._proved else []
        differ = f", which differ in {', '.join(other)} from those it was set up with" if other else ""
        raise SymmetryError(
            f"The guide's symmetry does not hold with these arguments of the model{differ}; make a guide anew for "
            f"them. {error}"
        ) from error
    if verdict.status == "inconclusive":
        warn(f"The symmetry could not be proved with other arguments of the model: {verdict.reason}")
    guide._proved = (*guide._proved, here)


def _other(here: Known, there: Known) -> list[str]:
    """Names of arguments that differ; ``None`` is no leaf, and targets that are left out differ in nothing."""
    return [name for name, leaf in here.items() if name not in there or not _is_same(leaf, there[name])]


def _is_same(leaf: Any, other: Any) -> bool:
    if leaf is other:
        return True
    try:
        return bool(type(leaf) is type(other) and leaf == other)
    except (TypeError, ValueError):  # it has no answer, as a table of data has none
        return False
