"""Every rule of typing is equivariant, and leaves free what it should; what must be pinned is."""

import functools
import sys

import jax
import numpy as np
import pytest
from jax.extend.core import Primitive

from numpyro_symmetry.discovery.labels.rules import RULES
from tests.support.equivariance import (
    check_equivariance,
    check_invariance,
    compiled,
    latent_of,
    summary,
    summed,
    text_of,
    text_of_group,
    type_function,
)
from tests.support.operations import ROWS
from tests.support.readings import GROUPS, TRAPS

NOT_MADE = {
    "pvary": "stands only inside shard_map",
}
# what is not right yet: sound all the same, for numbers have the last word
BUGS = {
    "it taken apart and turned": "parts of what is pinned are new axes, and nothing says of which they are parts",
}


def names(table):
    """Names of a table's rows; known bugs must fail."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in BUGS.items()}
    return [pytest.param(name, marks=marks.get(name, ())) for name in table]


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@functools.cache
def typed(name):
    return type_function(ROWS[name].function, latent_of(ROWS[name]), ROWS[name].data)


@pytest.mark.parametrize("name", names(ROWS))
def test_results_move_as_their_labels_say(name):
    row, typing, latent, rng = ROWS[name], typed(name), latent_of(ROWS[name]), np.random.default_rng(0)
    assert set(row.rules.split()) <= typing.rules
    assert text_of(typing) == row.expected
    run = compiled(row.function, row.data)
    check_equivariance(typing, run, latent, rng)
    symmetry = type_function(summary(row.function), latent, row.data).reading.symmetry()
    check_invariance(symmetry, lambda *args: summed(run(*args)), latent, rng)


def test_every_rule_has_a_row():
    modules = [vars(module).values() for name, module in sys.modules.items() if name.startswith("jax")]
    primitives = {value.name for values in modules for value in list(values) if isinstance(value, Primitive)}
    covered = {rule for name in ROWS if name not in BUGS for rule in typed(name).rules}
    assert set(RULES) & primitives <= covered | set(NOT_MADE)
    assert not covered & set(NOT_MADE)


@pytest.mark.parametrize("name", names(GROUPS))
def test_group_of_a_number(name):
    row, latent = GROUPS[name], latent_of(GROUPS[name])
    symmetry = type_function(row.function, latent, row.data).reading.symmetry()
    run = compiled(row.function, row.data)
    check_invariance(symmetry, lambda *args: run(*args)[0], latent, np.random.default_rng(0))
    assert text_of_group(symmetry) == row.expected


@pytest.mark.parametrize("name", names(TRAPS))
def test_traps_are_seen(name):
    row, latent = TRAPS[name], latent_of(TRAPS[name])
    typing = type_function(row.function, latent, row.data)
    run = compiled(row.function, row.data)
    check_equivariance(typing, run, latent, np.random.default_rng(0))
    assert text_of(typing).partition(" -> ")[0] == row.expected
    # and a trap it is: some exchange of two neighbours is seen
    before = run(*latent)[0]
    for k, x in enumerate(latent):
        for axis in range(x.ndim if x.size > 1 else 0):
            swaps = [np.r_[:i, i + 1, i, i + 2 : n] for n in x.shape[axis : axis + 1] for i in range(n - 1)]
            gaps = [abs(run(*latent[:k], x.take(swap, axis), *latent[k + 1 :])[0] - before) for swap in swaps]
            assert not gaps or max(gaps) > 1e-6
