"""What there is of each kind, one table each: a law that is tested over a table holds for its next row too.

`tests.support.laws` has the symmetries and `tests.support.operations` the typing rules.
"""

import pytest
from numpyro.handlers import block
from numpyro.infer import autoguide

from numpyro_symmetry import EuclideanCost, GaussianCost
from numpyro_symmetry.entropy import ESTIMATORS
from numpyro_symmetry.matching.costs import COSTS

ESTIMATOR_NAMES = [estimator.name for estimator in ESTIMATORS]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATOR_NAMES)
every_matching_cost = pytest.mark.parametrize("cost", COSTS)

# costs of draws alone; those of probabilities and of allocations are each compared with a published algorithm
RELABELLING_COSTS = {"Euclidean": EuclideanCost(), "Gaussian": GaussianCost()}
every_relabelling_cost = pytest.mark.parametrize("cost", RELABELLING_COSTS.values(), ids=RELABELLING_COSTS)


def _list(model, site=None, **options):
    """One site, or all if none is named, by a joint Gaussian, and each of the others by its own."""
    parts = autoguide.AutoGuideList(model)
    if site is not None:
        parts.append(autoguide.AutoNormal(block(model, hide=[site]), **options))
    one = model if site is None else block(model, expose=[site])
    parts.append(autoguide.AutoMultivariateNormal(one, prefix="other", **options))
    return parts


# kinds of base guides, of a model; a site of it may be named, for the kind that has parts
GUIDES = {
    "AutoNormal": lambda model, site=None, **options: autoguide.AutoNormal(model, **options),
    "AutoDiagonalNormal": lambda model, site=None, **options: autoguide.AutoDiagonalNormal(model, **options),
    "AutoMultivariateNormal": lambda model, site=None, **options: autoguide.AutoMultivariateNormal(model, **options),
    "AutoLowRank": lambda model, site=None, **options: autoguide.AutoLowRankMultivariateNormal(model, **options),
    "AutoIAFNormal": lambda model, site=None, **options: autoguide.AutoIAFNormal(model, num_flows=1, hidden_dims=[30]),
    "AutoGuideList": _list,
}
