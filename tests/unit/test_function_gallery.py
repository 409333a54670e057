"""The gallery of labelled functions: the group found, its names, and that its elements leave outputs alone."""

import contextlib
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import SymmetryWarning, find_symmetry
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, can_be_moved
from tests.gallery.functions import FUNCTIONS
from tests.unit.test_gallery import text_of


def marks(case):
    missing = [pytest.mark.skip(f"needs {case.needs}")] if not all(map(find_spec, case.needs)) else []
    return [*missing, *([pytest.mark.slow] if case.slow else [])]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=marks(case)) for case in FUNCTIONS])
# what others' modules say of their own age
@pytest.mark.filterwarnings("ignore::DeprecationWarning:haiku", "ignore::DeprecationWarning:equinox")
def test_the_group_is_the_one_derived_by_hand(case):
    function, args = case.make()
    with pytest.warns(SymmetryWarning, match=case.told) if case.told else contextlib.nullcontext():
        found = find_symmetry(function, args, argnum=0, signs=case.signs)
    assert text_of(found) == case.found
    # parts of a path: a module, an array, an axis of it
    words = {word for path in arrays_by_path(args[0]) for word in path.split(".")} | {"array"}
    for name in found.groups:
        assert {word.split("[")[0] for part in name.split("/") for word in part.split(".")} - words <= _NUMBERS
    if case.precision == "float64":
        with jax.enable_x64():
            assert_outputs_stay(function, args, found, np.float64, 1e-11)
    else:
        assert_outputs_stay(function, args, found, np.float32, {"float32": 1e-4, "bfloat16": 3e-2}[case.precision])


# a second group of one name is numbered
_NUMBERS = {str(k) for k in range(2, 10)}


def assert_outputs_stay(function, args, found, precision, tolerance):
    """At fresh parameters and inputs, moved by a random element, all outputs are what they were."""
    rng, fresh_of = np.random.default_rng(7), {}

    def fresh(leaf):
        if not can_be_moved(leaf) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        if id(leaf) not in fresh_of:
            own = np.asarray(leaf.astype(np.complex64 if jnp.iscomplexobj(leaf) else np.float32))
            own = own * np.exp(0.3 * rng.normal(size=own.shape)) + 0.05 * np.abs(rng.normal(size=own.shape))
            wide = np.result_type(precision, np.complex64) if own.dtype.kind == "c" else precision
            fresh_of[id(leaf)] = jnp.asarray(own.astype(wide))
        return fresh_of[id(leaf)]

    tree, *rest = jax.tree.map(fresh, args)
    element = jax.tree.map(np.asarray, found.sample(jax.random.key(1)))
    before, after = (jax.tree.leaves(function(p, *rest)) for p in (tree, found.apply(element, tree)))
    for x, y in zip(before, after, strict=True):
        x, y = (np.asarray(v.astype(jnp.float32) if v.dtype.itemsize < 4 else v) for v in (x, y))
        np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance * (1 + np.abs(x).max()))


def test_every_function_has_a_name_of_its_own():
    assert len({case.name for case in FUNCTIONS}) == len(FUNCTIONS)
