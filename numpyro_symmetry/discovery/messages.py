"""Messages about groups that numbers refuse, and arrays that nothing reads. Knows proofs and symmetries."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpyro_symmetry.discovery.labels.reading import FAILED
from numpyro_symmetry.discovery.proof.diagnose import words
from numpyro_symmetry.discovery.proof.prove import Outcome, Proof
from numpyro_symmetry.models.data import holds_nan
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.findings import POSITIVE
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, real_arrays

ARGUMENTS_NOT_FINITE = (
    "The function's outputs are not finite, and its arguments hold NaN or infinities: expected data as it reads them."
)
# ten numbers of either sign are all positive once in a thousand times; gains that have to be positive are more
_BY_CHANCE = 10
UNREAD = "nothing depends on it"
_WHY = {
    Outcome.LEAVES_SUPPORT: "refused for a support",
    Outcome.SHOWS_NOTHING: "inconclusive: nothing that was tried changes the {result}",
    Outcome.ROUNDS: "inconclusive: nothing depends on it where rounding does not decide",
}


def not_finite_message(arguments: Any, otherwise: object) -> str:
    """The message where a function computes values that are not finite: about its arguments, or ``otherwise``."""
    return ARGUMENTS_NOT_FINITE if holds_nan(arguments) else str(otherwise)


def reason_of(proof: Proof) -> str:
    """Why a group that labels allow is not in the symmetry, in a few words."""
    return _WHY.get(proof.outcome, FAILED).format(result=proof.frozen.nouns.result)


def refusal_message(name: str, proof: Proof) -> str:
    """The warning about a group that labels allow and numbers do not."""
    of = proof.frozen.nouns
    possible = f"Group {name!r} looked possible from the structure of the {of.whole}"
    if proof.frozen.is_function and proof.outcome is Outcome.SHOWS_NOTHING:
        return (
            f"{possible}, but the numerical check is inconclusive, and it is left out: no wrong action on it changes "
            "the outputs either. Are its inputs zero, all alike, or without rows? Give some as it reads them."
        )
    verdict = "the numerical check is inconclusive" if proof.is_inconclusive else "failed the numerical check"
    return f"{possible}, but {verdict}, and is left out. {words(proof)}"


def unread_messages(found: Symmetry, argnum: int, parameters: Any) -> list[str]:
    """The warning about real arrays that stay where they are because nothing reads them."""
    unread = {finding.site for finding in found.findings if finding.reason == UNREAD}
    names = sorted(unread & real_arrays(parameters).keys())
    if not names or not found.groups:
        return []
    return [
        f"Arrays {names} of argument {argnum} are read by nothing, so that nothing says how they move: they stay. "
        "Running statistics in training mode are such. For them to move with their units, look for the symmetry in "
        "inference mode."
    ]


def positive_messages(found: Symmetry, argnum: int, parameters: Any) -> list[str]:
    """The warning about arrays whose entries differ, but happen to be positive, so that they have no signs."""
    own = arrays_by_path(parameters)
    kept = {finding.site for finding in found.findings if finding.reason == POSITIVE}
    names = sorted(name for name in kept & own.keys() if 1 < np.unique(np.asarray(own[name], float)).size <= _BY_CHANCE)
    if not names:
        return []
    return [
        f"No entry of the arrays {names} of argument {argnum} is negative, so that they stay positive and changes of "
        "sign in which they would take part are left out. If they may have either sign, negate an entry of each."
    ]
