"""Of random models with labels, `find_symmetry` gives all permutations and signs that trying sets of axes gives."""

import jax
import numpy as np
import pytest

from numpyro_symmetry import find_symmetry
from tests.property.test_nothing_is_missed import MOST_AXES, slots_of_groups
from tests.support.random_mixtures import SIZES, RandomMixture, all_symmetry, data_of, drawn
from tests.support.random_networks import slots_of


def check(seed):
    model, data = RandomMixture(seed), data_of(np.random.default_rng(seed))
    values, real = drawn(model, data, seed)
    if max(len(slots_of(model, values, size)) for size in SIZES) > MOST_AXES:
        return 0
    expected, negated, density = all_symmetry(model, data, values, real)
    found = find_symmetry(model, data, progress_bar=False)
    told = f"seed {seed}: {model.said}\n{found}"
    permuted, signed = (set(map(frozenset, some.values())) for some in slots_of_groups(found, values))
    # of a softmax with a reference also parts of axes may be moved, which are not tried
    assert set(expected) <= permuted, told
    for slots in expected:
        own = [some for some in negated if some & slots]
        assert len(own) != 1 or own[0] in signed, told
    for key in jax.random.split(jax.random.key(seed), 3):
        moved = values | {site: np.asarray(x) for site, x in found.apply(found.sample(key), values).items()}
        np.testing.assert_allclose(density(moved), density(values), 1e-9, err_msg=told)
    return len(expected)


@pytest.mark.parametrize("seed", range(5))
def test_no_label_is_missed(seed):
    with jax.enable_x64(True):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_no_label_is_missed_of_many(seed):
    with jax.enable_x64(True):
        check(seed)
