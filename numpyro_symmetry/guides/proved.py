"""With which arguments of its model a symmetry was proved, and whether it holds with others.

Knows models, and a symmetrized guide that is set up.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.discovery import check_symmetry
from numpyro_symmetry.guides.inputs import named_arguments
from numpyro_symmetry.models import Model
from numpyro_symmetry.models.data import is_array
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.arguments import is_floating
from numpyro_symmetry.symmetry.errors import warn

# by name, as in ``scales[0]``: what an argument is, in so far as a proof depends on it
Known = dict[str, Any]
_PLAIN = (bool, int, float, complex, str, bytes)
# a loop of steps that nobody compiles may change a number each time: then bounds alone are proved for
_MOST_IN_TRAINING, _MOST_KEPT = 8, 100


def known_arguments(model: Model, *, numbers_too: bool) -> Known:
    """What of a model's arguments a proof depends on: the shapes of arrays, and all else as it is.

    Parameters
    ----------
    model
        The model with its arguments.
    numbers_too
        Whether the numbers in arrays are: a symmetry that was found is proved whatever they are.
    """
    args, kwargs = gathered((model.args, model.kwargs))
    try:
        named = named_arguments(model.function, args, kwargs, defaults=True)
    except (TypeError, ValueError):  # a wrapper may take other arguments than it says
        named = {"args": args, "kwargs": kwargs}
    return {
        name + jax.tree_util.keystr(path): _known(leaf, numbers_too)
        for name, value in named.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(value)
    }


def _known(leaf: Any, numbers_too: bool) -> Any:
    """What is told apart later: an array by shape and type, numbers in it and what may change in place by a digest."""
    if isinstance(leaf, Array) and not is_array(leaf):  # random keys
        return np.shape(leaf), str(leaf.dtype)
    # a whole number without axes may be a size or a flag
    if is_array(leaf) and (np.ndim(leaf) or is_floating(leaf.dtype)):
        return np.shape(leaf), str(leaf.dtype), _digest(np.asarray(leaf).tobytes()) if numbers_too else None
    if isinstance(leaf, _PLAIN):
        return _name(leaf), leaf
    try:
        return _name(leaf), _digest(pickle.dumps(leaf))
    except Exception:  # of a stranger's type anything may be raised; such as is a lambda is only itself
        return leaf


def _name(leaf: Any) -> str:
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def prove_again(guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, numbers_too: bool = False) -> None:
    """Check the symmetry of a guide that is set up once more, if arguments differ from all with which it was proved.

    Of a symmetry that was given, numbers in arrays differ too, where ``numbers_too`` asks for it. Of arguments that are
    traced nothing is checked, nor is it in training once there have been a few.

    Raises
    ------
    SymmetryError
        If the model does not have it with these.
    """
    symmetry, given = guide.layout.symmetry, guide._options.symmetry is not None
    traced = any(isinstance(leaf, Tracer) for leaf in (jnp.zeros(()), *jax.tree.leaves((args, kwargs))))
    if not symmetry.groups or (given and not guide._options.check) or traced:
        return
    here = known_arguments(Model(guide.model, args, kwargs), numbers_too=numbers_too and given)
    # bounds need all that a proof had, where to a step targets that are left out differ in nothing
    alike = [known for known in guide._proved if not numbers_too or here.keys() == known.keys()]
    if any(not _other(here, known) for known in alike):
        return
    if not numbers_too and len(guide._proved) > _MOST_IN_TRAINING:
        return
    say("checking the symmetry with other arguments of the model")
    try:
        verdict = check_symmetry(guide.model, symmetry, *gathered((args, kwargs)), progress_bar=False)
    except SymmetryError as error:
        last = guide._proved[-1] if guide._proved else here
        other = _other(here, last) + [f"{name} (absent)" for name in last if name not in here]
        differ = f", which differ in {', '.join(other)} from those it was set up with" if other else ""
        raise SymmetryError(
            f"The guide's symmetry does not hold with these arguments of the model{differ}; make a guide anew for "
            f"them. {error}"
        ) from error
    if verdict.status == "inconclusive":
        warn(f"The symmetry could not be proved with other arguments of the model: {verdict.reason}")
    guide._proved = (*guide._proved[-_MOST_KEPT:], here)


def portable(proved: tuple[Known, ...]) -> tuple[Known, ...]:
    """What another process can tell apart as well: not what is known by being itself."""
    return tuple(known for known in proved if all(isinstance(one, tuple) for one in known.values()))


def _other(here: Known, there: Known) -> list[str]:
    """Names of arguments here that differ; ``None`` is no leaf."""
    return [name for name, known in here.items() if name not in there or not _is_same(known, there[name])]


def _is_same(known: Any, other: Any) -> bool:
    if known is other:
        return True
    if not (isinstance(known, tuple) and isinstance(other, tuple)):
        return False
    # numbers that were not asked for
    return len(known) == len(other) and all(a is None or a is b or a == b for a, b in zip(known, other, strict=True))
