"""Draws as Datasets, in memory and on Dask, and what relabelling made of them compared number for number."""

from __future__ import annotations

import numpy as np
import xarray as xr

from numpyro_symmetry.symmetry.hard import from_element


def dataset(values, **attrs):
    """Sites ``(chain, draw, ...)`` as a Dataset with a dimension of its own for every other axis."""
    dims = {site: ("chain", "draw", *(f"{site}_{k}" for k in range(x.ndim - 2))) for site, x in values.items()}
    return xr.Dataset({site: (dims[site], x) for site, x in values.items()}, attrs=attrs)


def assert_same(lazy, eager):
    """Two results of rebase that are the same, whatever their draws are in."""
    for name, part in from_element(eager.elements).items():
        for a, b in zip(from_element(lazy.elements)[name], part, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in ((lazy.objective, eager.objective), (lazy.margin, eager.margin)):
        np.testing.assert_array_equal(a, b)
    assert (lazy.num_rounds, lazy.converged) == (eager.num_rounds, eager.converged)
    assert repr(lazy.null) == repr(eager.null)
    for site, value in eager.reference.items():
        np.testing.assert_array_equal(lazy.reference[site], value)
    xr.testing.assert_identical(lazy.data.compute(), eager.data)


# ways to cut draws into chunks, none of which may matter
CHUNKS = {
    "chain by chain": lambda data: data.chunk(chain=1, draw=7),
    "across chains": lambda data: data.chunk(chain=2, draw=11),
    "others for every site": lambda data: data.assign(
        {s: data[s].chunk(dict.fromkeys(data[s].dims, 1 + k) | {"draw": 5 + 3 * k}) for k, s in enumerate(data)}
    ),
    "one site in memory": lambda data: data.assign({s: data[s].chunk(draw=9) for s in list(data)[1:]}),
}
