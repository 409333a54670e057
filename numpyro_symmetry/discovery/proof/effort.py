"""How much is tried before a symmetry is given out: counts, each with its reason. Knows nothing else.

Twice as many points, elements or data take twice the time, and find breaks that are half as frequent. What lies beyond
a limit is not looked for.
"""

from __future__ import annotations

from typing import NamedTuple


class Effort(NamedTuple):
    """Counts of what is tried.

    Attributes
    ----------
    num_points
        Points about the prior: one as far out as it spreads, one further.
    num_starts
        Points drawn for each of these until the log joint is finite; as many as NUTS draws to start.
    num_nearer
        Points at which rounding would decide that are passed over, each of them for one nearer to the prior's centre.
    num_edges
        Points near the edges of supports, of which a good part lies inside to rounding.
    num_in_tails
        Points scattered at each distance in the tails; as many times two stay together.
    num_limits, num_about
        Numbers of the program about which it is tried, and points about each of them and its opposite.
    num_redrawn
        Other data: two labels of three that coincide in all of them do so by chance once in hundreds.
    num_elements_far
        Random elements of all groups at once far out, where a break may be seen at few indices only.
    max_cells
        Cells of a fibred group in which it is tried where no other group carries one to all others.
    max_orbits
        Size of axes up to which indices that may be exchanged are looked for pair by pair.
    max_blocks_in_part
        Blocks of axes of one size of which every set is searched for them.
    max_places, max_sets, max_signs
        Places of a group on parts of axes up to which every set of them is tried, independent sets of sites of which
        every product is, and sets of places tried for one of them.
    max_lone
        Indices of an axis up to which their signs are tried though no two may be exchanged.
    max_family, max_parts, max_exchanges
        Sites of one family, parts of one exchange of which every set is tried, and tries of a model in all.
    """

    num_points: int = 2
    num_starts: int = 100
    num_nearer: int = 10
    num_edges: int = 8
    num_in_tails: int = 2
    num_limits: int = 6
    num_about: int = 3
    num_redrawn: int = 5
    num_elements_far: int = 4
    max_cells: int = 64
    max_orbits: int = 32
    max_blocks_in_part: int = 5
    max_places: int = 8
    max_sets: int = 8
    max_signs: int = 64
    max_lone: int = 64
    max_family: int = 12
    max_parts: int = 6
    max_exchanges: int = 300


EFFORT = Effort()
