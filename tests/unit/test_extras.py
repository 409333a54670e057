"""What is optional and absent: everything public loads, and what needs it says what to install."""

import functools
import json
import subprocess
import sys

import pytest

# as where modules are not installed: nothing of them may be imported
CODE = """if True:
    import json, sys
    from importlib import util
    absent, calls = json.loads(sys.argv[1])
    found = util.find_spec
    util.find_spec = lambda name, *args: None if name in absent else found(name, *args)
    sys.modules.update(dict.fromkeys(absent))
    import numpy as np
    import xarray as xr
    import numpyro_symmetry as ns
    for name in ns.__all__:
        getattr(ns, name)
    loc = np.random.default_rng(0).permuted(np.array([-2.0, 2.0]) + np.zeros((2, 20, 2)), axis=2)
    data = xr.Dataset({"loc": (("chain", "draw", "k"), loc)})
    out = ns.rebase(data, ns.Symmetry.mixture("loc"), null=False)
    told = {}
    for call in calls:
        try:
            told[call] = str(exec(call))
        except ImportError as error:
            told[call] = str(error)
    print(json.dumps(told))
"""
OF_PLOTS = "Plots take matplotlib, which is not installed: pip install 'numpyro-symmetry[plots]'."
OF_STORES = "Draws that are larger than memory take dask, which is not installed: pip install 'numpyro-symmetry[dask]'."
# absent together -> what is called then, and what it says; ArviZ 0.23 does not load without matplotlib
CALLS = {
    ("matplotlib",): {
        "ns.diagnostics.plot_transpositions(out)": OF_PLOTS,
        "ns.diagnostics.plot_relabelling({'loc': loc}, out)": OF_PLOTS,
    },
    ("dask", "flax", "funsor", "lap"): {
        "ns.report(data, out)": "None",
        "out.to_zarr('nowhere')": OF_STORES,
    },
}


@functools.cache
def told(absent):
    """What every call says."""
    arguments = json.dumps([absent, list(CALLS[absent])])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE, arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("absent", "call"), [(absent, call) for absent, calls in CALLS.items() for call in calls])
def test_without_an_extra_the_package_loads_and_says_what_to_install(absent, call):
    assert told(absent)[call] == CALLS[absent][call]
