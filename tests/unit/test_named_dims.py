"""What names of dimensions and their coordinates say: what keeps old labels."""

import warnings

import numpy as np
import pytest
import xarray as xr

from numpyro_symmetry import SymmetryWarning, rebase
from tests.support import traces

DRAWS = ("chain", "draw")


def posterior(draws=30, **coords):
    values, _ = traces.mixture(draws=draws)
    return xr.Dataset({site: ((*DRAWS, "component"), x) for site, x in values.items()}, coords=coords)


@pytest.mark.parametrize(
    ("dims", "values", "words"),
    [
        (("component",), np.arange(3.0), "'beside' has dimension 'component'.*values.*, or drop it"),
        ((*DRAWS, "component"), np.zeros((4, 30, 3)), r"'beside' has dimension 'component'.*reset_coords.*axes="),
        (("component", "datum"), np.zeros((3, 7)), "'beside' has dimension 'component'"),
        ((*DRAWS, "datum"), np.arange(840).reshape(4, 30, 7) % 3, "'beside' holds integers from 0 to 2.*reset_coords"),
        (("draw", "datum"), np.arange(210).reshape(30, 7) % 3, "'beside' holds integers from 0 to 2"),
        (("datum",), np.arange(7) % 3, None),
        (("draw",), np.arange(30), None),
        ((*DRAWS, "datum"), np.full((4, 30, 7), "a"), None),
    ],
)
def test_what_stands_beside_sites_and_goes_by_old_labels_is_warned_of(dims, values, words):
    data = posterior(component=["a", "b", "c"], beside=(dims, values))
    if words is None:
        out = rebase(data, traces.MIXTURE, null=False)
    else:
        with pytest.warns(SymmetryWarning, match=words) as caught:
            out = rebase(data, traces.MIXTURE, null=False)
        assert len(caught) == 1
    np.testing.assert_array_equal(out.data["beside"].values, values)


def test_a_coordinate_that_became_a_variable_moves_with_its_labels():
    z = np.arange(840).reshape(4, 30, 7) % 3
    data = posterior(z=((*DRAWS, "datum"), z)).reset_coords("z")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = rebase(data, traces.MIXTURE, null=False, labels={"z": "component"})
    assert out.undo(out.data).identical(data)
    assert not (out.data["z"].values == z).all()
