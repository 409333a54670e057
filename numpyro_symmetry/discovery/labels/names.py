"""Short names of groups, of which each is known by the path to an array in a tree of modules. Knows names only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from numpyro_symmetry.symmetry.axes import new_name

Path = tuple[str, ...]


def path_of(site: str) -> Path:
    """The modules that hold a site, outermost first, and the site itself: of ``"net/Dense_0.kernel"`` three names."""
    return tuple(filter(None, re.split(r"[/.$]", site))) or (site,)


def short_names(paths: Sequence[Path]) -> list[str]:
    """For each path the shortest name that no other one could have: of its module, if it can be, or of the array in it.

    Examples
    --------
    >>> from numpyro_symmetry.discovery.labels.names import short_names
    >>> short_names([("net", "Dense_0", "bias"), ("net", "Dense_1", "bias"), ("component",)])
    ['Dense_0', 'Dense_1', 'component']
    >>> short_names([("a", "Dense_0", "bias"), ("b", "Dense_0", "bias"), ("b", "Dense_0", "kernel[-2]")])
    ['a.Dense_0', 'b.Dense_0.bias', 'Dense_0.kernel[-2]']
    """
    names: list[str] = []
    for k, path in enumerate(paths):
        others = [*paths[:k], *paths[k + 1 :]]
        unique = (
            ".".join(name) for name in _candidates(path) if not any(name in _candidates(other) for other in others)
        )
        # of paths that are all alike, and of names that a dot makes alike, all but the first are numbered
        names.append(new_name(next(unique, ".".join(path)), names))
    return names


def _candidates(path: Path) -> Iterator[Path]:
    """Ends of the path to a module, and of that to its array, the shortest first; a number alone says nothing."""
    for end in (len(path) - 1, len(path)):
        for k in reversed(range(max(len(path) - 1, 1))):
            if k < end and not path[k].isdigit():
                yield path[k:end]
