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
        Draws for each of these points until the log joint is finite there; NUTS makes as many to start.
    num_nearer
        Points that are passed over because rounding would decide there, each for a point nearer to the prior's centre.
    num_edges
        Points near the edges of supports, of which a good part lies inside to rounding.
    num_in_tails
        Scattered points at each distance in the tails; for each also two at which the values of a site stay together.
    num_limits, num_about
        Constants of the program, such as bounds of a clip, about which points lie; points about each, and its negative.
    num_redrawn
        Redrawn data sets: two data that are labelled by one of three classes agree in all five once in 243 times.
    num_elements_far
        Random elements of all groups at once for each far point, where a break may be seen at few indices only.
    num_unseen
        More points about the prior for a group that some of the first do not see: a function that is constant at nine
        points of ten shows that it has no such group at six of them.
    max_cells
        Most cells in which a fibred group is tried, where no other group carries one cell to all others.
    max_orbits
        Largest axis on which orbits of exchangeable indices are looked for, pair by pair.
    max_blocks_in_part
        Most blocks of axes of one size of which every set is searched for such orbits.
    max_places, max_sets, max_signs
        Most parts of a flattened axis that may have signs apart, and most independent sets of a group's places on a
        site that negate nothing, of which every product is tried; most such sets of sites; sets of places that are
        tried for one product.
    max_lone
        Largest axis on which signs of indices are tried though no two of them may be exchanged.
    max_family, max_parts, max_exchanges
        Most sites of a family, most parts of an exchange of which every set is tried, most exchanges tried on a model.
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
    num_unseen: int = 64
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
