"""A model with the group that a person says it has, and how such a label is written.

The label counts what acts on whole axes of latent sites, all entries of a group moving together, in constrained values.
It is a product of factors, sorted as strings and joined by ``" x "``:

``S5``
    all permutations of five indices. Indices with a role of their own are no factor; an axis whose indices fall into
    classes (prior scales 1, 1, .5, .5, .5) is one factor a class, ``S2 x S3``
``(S5)^4``
    independent permutations of five indices for each of four positions of another axis (the units of each net of an
    ensemble), or of several other axes together
``±S5``
    permutations and changes of sign, on all or some of the axes (positive sites keep theirs); only in signed labels
``trivial``
    nothing

Rotations, exchanges of data, and entries that meet neither data nor other sites are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# what a search finds besides a label
EQUAL_DATA = "equal data may be exchanged with what belongs to them"
FAR_OUT = "what breaks it stands further out than the points of a search"


class Case(NamedTuple):
    """A model and its label.

    Attributes
    ----------
    name
        A short name without spaces.
    model
        The NumPyro model; its docstring says what it is.
    args
        What the model is called with.
    expected
        The group of permutations.
    signed
        The group of permutations and signs, None where nobody asked.
    enumerated
        Whether discrete latent sites are summed out.
    why
        Where the group is smaller than a reader may think: what breaks the rest.
    needs
        Modules without which the model does not run.
    by_numbers
        Whether no rule follows the group, or a part of it, and it is given out because numbers prove it.
    miss
        What is found where that is less than the label, else None; ``docs/finding.md`` says why.
    told
        Whether there are exchanges that no axis carries, of which a warning tells.
    quick
        Whether numbers are asked in every run of the suite: one of a kind, and quick to compile. The others are slow.
    search
        What the search of ``tests.gallery.proof`` finds besides the label, and why the label stays.
    shown
        The table of ``docs/finding.md`` that shows the model.
    """

    name: str
    model: Callable
    args: tuple
    expected: str
    signed: str | None = None
    enumerated: bool = False
    why: str = ""
    needs: tuple[str, ...] = ()
    by_numbers: bool = False
    miss: str | None = None
    told: bool = False
    quick: bool = False
    search: str = ""
    shown: str = ""

    @property
    def found(self) -> str:
        """The group that ``find_symmetry`` finds."""
        return self.expected if self.miss is None else self.miss


class Cases(list[Case]):
    """The cases of a module, in the order in which their models are written."""

    def add(self, name, expected, *args, **fields):
        """Return a decorator that adds the model below it under this label."""

        def label(model):
            self.append(Case(name, model, args, expected, **fields))
            return model

        return label
