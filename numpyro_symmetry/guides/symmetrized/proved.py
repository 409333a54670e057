"""Whether what was proved and laid out at set-up holds with other arguments of the model.

Knows models, and a symmetrized guide that is set up.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from numpyro_symmetry.devices import gathered
from numpyro_symmetry.discovery import check_symmetry
from numpyro_symmetry.guides.known import KnownArguments, known_arguments, others_in
from numpyro_symmetry.guides.symmetrized.requirements import refuse_another_structure
from numpyro_symmetry.models import Model
from numpyro_symmetry.steps import say
from numpyro_symmetry.symmetry import SymmetryError, warn
from numpyro_symmetry.symmetry.arguments import is_traced

# a training loop that is not compiled may pass another number each time: after a few, only bounds ask for a proof
_MOST_IN_TRAINING, _MOST_KEPT = 8, 100


def prove_again(guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, numbers_too: bool = False) -> None:
    """Check a guide that is set up once more, if arguments differ from all with which it was checked.

    With ``numbers_too``, other numbers in arrays count as well, for a symmetry that was given and for the layout of a
    guide by hand. Traced arguments are not checked, nor are those of training once there have been a few.

    Raises
    ------
    SymmetryError
        If the model does not have the symmetry with these.
    UnsupportedGuideError
        If the guide's sites depend on one another otherwise with these.
    """
    traced = is_traced(args, kwargs, jnp.zeros(()))
    if not guide.layout.symmetry.groups or traced or (not numbers_too and len(guide._proved) > _MOST_IN_TRAINING):
        return
    given, is_by_hand = guide._options.symmetry is not None, not hasattr(guide.base, "prototype_trace")
    if given and not guide._options.check and not is_by_hand:
        return
    model = Model(guide.model, args, kwargs)
    here = known_arguments(model, numbers_too=numbers_too)
    of_model = here if given or not numbers_too else known_arguments(model, numbers_too=False)
    asks_model = (not given or guide._options.check) and _is_new(guide, of_model, is_bound=numbers_too)
    asks_guide = is_by_hand and _is_new(guide, here, is_bound=numbers_too)
    if asks_model:
        say("checking the symmetry with other arguments of the model")
        _prove_symmetry(guide, args, kwargs)
    if asks_guide:
        say("verifying the guide's density with other arguments")
        refuse_another_structure(guide.base, guide.layout, *gathered((args, kwargs)))
    if asks_model or asks_guide:
        guide._proved = (*guide._proved[-_MOST_KEPT:], here)


def _is_new(guide: Any, here: KnownArguments, *, is_bound: bool) -> bool:
    # bounds need the same arguments as a proof; for a training step, targets that are left out make no difference
    alike = [known for known in guide._proved if not is_bound or here.keys() == known.keys()]
    return all(others_in(here, known) for known in alike)


def _prove_symmetry(guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        verdict = check_symmetry(guide.model, guide.layout.symmetry, *gathered((args, kwargs)), progress_bar=False)
    except SymmetryError as error:
        here = known_arguments(Model(guide.model, args, kwargs), numbers_too=True)
        last = guide._proved[-1] if guide._proved else here
        other = others_in(here, last) + [f"{name} (absent)" for name in last if name not in here]
        differ = f", which differ in {', '.join(other)} from those it was set up with" if other else ""
        raise SymmetryError(
            f"The guide's symmetry does not hold with these arguments of the model{differ}; make a guide anew for "
            f"them. {error}"
        ) from error
    if verdict.status == "inconclusive":
        warn(f"The symmetry could not be proved with other arguments of the model: {verdict.reason}")
