"""Versions of other packages with which numbers are wrong, sums that one got wrong, and names that they have."""

import ast
import linecache
import pkgutil
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_symmetry
from numpyro_symmetry import SymmetryWarning
from numpyro_symmetry.guides.linear.unit_normal import Regression, UnitNormal
from numpyro_symmetry.versions import warn_of_wrong_numbers

rng = np.random.default_rng(0)


def test_a_version_with_wrong_sums_is_told_of():
    with pytest.warns(SymmetryWarning, match=r"jaxlib 0\.10\.2 .* another version"):
        warn_of_wrong_numbers("0.10.2")


def test_no_other_version_is():
    warn_of_wrong_numbers("0.10.1")
    warn_of_wrong_numbers()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_sums_of_products_are_numpys(dtype):
    """Of more than 2^15 results, over an axis that is not the last: XLA's own mistake, whatever this package does."""
    coefficients, values = (rng.normal(size=shape).astype(dtype) for shape in ((64, 4096), (16, 64, 4096)))

    def negative(coefficients, values):
        return -(coefficients * values).sum(1)

    with jax.enable_x64(dtype == np.float64):
        found = np.asarray(jax.jit(negative)(coefficients, values))
    np.testing.assert_allclose(found, negative(coefficients, values), rtol=1e-4, atol=1e-4)


def test_densities_of_many_wide_units_are_those_of_one_draw_at_a_time():
    """A batch as large as bounds take at once, of 800 units of thirteen numbers."""
    rows, units, draws = 13, 800, 8
    coefficients = jnp.asarray(0.3 * rng.normal(size=(rows, rows, units)), jnp.float32)
    loc, scale = (jnp.asarray(x, jnp.float32) for x in (rng.normal(size=(rows, units)), np.full((rows, units), 0.7)))
    values = jnp.asarray(rng.normal(size=(draws, rows, units)), jnp.float32)

    def log_prob(value):
        given = Regression(coefficients, jnp.zeros((0, units), jnp.float32))
        return UnitNormal(loc, scale, given, axis=-1, units="unit", event_dim=2).log_prob(value)

    together, apart = (jax.jit(f)(values) for f in (jax.vmap(log_prob), lambda x: jax.lax.map(log_prob, x)))
    np.testing.assert_allclose(together, apart, rtol=1e-4)


def test_the_warning_is_where_the_package_is_imported():
    def package():
        warn_of_wrong_numbers("0.10.2")

    with pytest.warns(SymmetryWarning) as caught:
        package()
    (warning,) = caught
    assert linecache.getline(warning.filename, warning.lineno).strip() == "package()"


MODULES = {"az": "arviz", "dist": "numpyro.distributions", "jnp": "jax.numpy", "np": "numpy", "nnx": "flax.nnx"}
FOREIGN = re.compile(
    r"\b((?:arviz|az|blackjax|dist|flax|jax|jnp|nnx|np|numpy|numpyro|optax|pandas|scipy|xarray)(?:\.[A-Za-z_]\w*)+)"
)


def names_of_others():
    """Names of other packages in strings of this one: what messages tell to call, and docstrings."""
    for file in Path(numpyro_symmetry.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from FOREIGN.findall(node.value)


def test_names_of_other_packages_in_messages_are_there_in_this_version():
    found = set(names_of_others())
    assert len(found) > 80
    missing = []
    for name in found:
        first, *rest = name.split(".")
        try:
            pkgutil.resolve_name(".".join([MODULES.get(first, first), *rest]))
        except (AttributeError, ImportError):
            missing.append(name)
    assert not missing
