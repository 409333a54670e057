"""Print the gallery of `finding.md`: models of `tests/gallery`, and the groups that `find_symmetry` finds in them.

python docs/make_gallery.py     from the repository's root, with flax and funsor installed
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from numpyro_symmetry import SymmetryWarning, find_symmetry  # noqa: E402
from tests.gallery import CASES, Case  # noqa: E402


def row(case: Case) -> str:
    """What the model is, the group that is found, and what breaks the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SymmetryWarning)
        found = find_symmetry(case.model, case.args)
    group = " × ".join(map(str, found.groups.values())) or "none"
    what = " ".join((case.model.__doc__ or "").split()).rstrip(".")
    return f"| {what} | {group} | {case.why} |".replace("|  |", "| |")


def main() -> None:
    titles = dict.fromkeys(case.shown for case in CASES if case.shown)
    for title in titles:
        print(f"| {title} | group found | what breaks the rest |\n|---|---|---|")
        for case in CASES:
            if case.shown == title:
                print(row(case), flush=True)
        print()


if __name__ == "__main__":
    main()
