"""What is optional and absent: everything public loads, and what needs it says what to install."""

import subprocess
import sys

import pytest

# as where a module is not installed: nothing of it may be imported
CODE = """if True:
    import sys
    sys.modules[{module!r}] = None
    import numpy as np
    import numpyro_symmetry as ns
    for name in ns.__all__:
        getattr(ns, name)
    loc = np.random.default_rng(0).permuted(np.array([-2.0, 2.0]) + np.zeros((2, 20, 2)), axis=2)
    out = ns.rebase({{"loc": loc}}, ns.Symmetry.mixture("loc"), null=False)
    try:
        {call}
    except ImportError as error:
        print(error)
"""
OF_PLOTS = "Plots take matplotlib, which is not installed: pip install 'numpyro-symmetry[plots]'."


@pytest.mark.parametrize(
    ("module", "call", "told"),
    [
        ("matplotlib", "ns.diagnostics.plot_transpositions(out)", OF_PLOTS),
        ("matplotlib", "ns.diagnostics.plot_relabelling({'loc': loc}, out)", OF_PLOTS),
        ("flax", "pass", ""),
        ("funsor", "pass", ""),
        ("lap", "pass", ""),
    ],
)
def test_without_an_extra_the_package_loads_and_says_what_to_install(module, call, told):
    code = CODE.format(module=module, call=call)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == told
