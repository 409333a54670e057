"""Axes are counted from the right: those in front belong to the site, as many as there are draws or not."""

import dask.array as da
import numpy as np
import pytest

from numpyro_symmetry import Symmetry, compare, rebase, report

NUM_DRAWS, SLOTS = 60, 3
RNG = np.random.default_rng(0)
LOC = np.array([-3.0, 0.0, 3.0]) + 0.3 * RNG.standard_normal((NUM_DRAWS, SLOTS))
ORDER = np.argsort(RNG.random((NUM_DRAWS, SLOTS)), -1)


def shuffled(values):
    """Each draw's slots in an order of its own."""
    return np.take_along_axis(values, ORDER.reshape(NUM_DRAWS, *(1,) * (values.ndim - 2), SLOTS), -1)


def of_each_datum(num_data):
    """About a location that says which slot is which."""
    return LOC[:, None] + 0.01 * np.random.default_rng(num_data).standard_normal((NUM_DRAWS, num_data, SLOTS))


@pytest.mark.parametrize("num_data", [NUM_DRAWS, 7])
@pytest.mark.parametrize("lazily", [False, True], ids=["NumPy", "Dask"])
def test_every_draw_of_a_site_with_further_axes_is_moved_by_its_own_element(num_data, lazily):
    p = of_each_datum(num_data)
    given = {"loc": shuffled(LOC), "p": da.from_array(shuffled(p), chunks=(20, 5, 3)) if lazily else shuffled(p)}
    options = {"order_by": "loc", "null": False, "num_leading_dims": 1}
    named = rebase(given, Symmetry({"loc": ("c",), "p": ("c",)}), **options)
    beside = rebase(given, Symmetry({"loc": ("c",)}), axes={"p": ("c",)}, **options)
    alone = rebase({"loc": given["loc"]}, Symmetry({"loc": ("c",)}), **options)
    for found in (named.data["p"], beside.data["p"], alone.apply({"p": given["p"]}, axes={"p": ("c",)})["p"]):
        np.testing.assert_array_equal(found, p)
    assert report(given, named).rows
    assert compare(given, {"loc": LOC, "p": p}, named.symmetry).p_value > 0.05


@pytest.mark.parametrize("num_data", [NUM_DRAWS, 7])
def test_the_same_of_a_family_of_sites(num_data):
    names, p = ("p_0", "p_1", "p_2"), of_each_datum(num_data)
    given = dict(zip(names, np.moveaxis(shuffled(p), -1, 0), strict=True))
    found = rebase(given, Symmetry({names: ("c",)}), null=False, num_leading_dims=1).data
    order = np.argsort([found[name].mean() for name in names])
    for slot, k in enumerate(order):
        np.testing.assert_array_equal(found[names[k]], p[..., slot])
