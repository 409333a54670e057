"""Random programs that move parts about: the signs found are those that trying finds."""

import jax
import pytest

from tests.support.random_moves import random_moves
from tests.support.tried_signs import found_and_tried

CUTS = ([(1, (2, 4))], [(0, (1, 2)), (1, (2, 4))], [(0, (1, 1, 1))], [(1, (1, 2, 3))])


@pytest.mark.parametrize("seed", range(40))
def test_signs_of_parts_that_are_moved_about(seed):
    with jax.enable_x64(True):
        found, tried = found_and_tried(random_moves(seed), CUTS[seed % len(CUTS)], tolerance=1e-9)
    assert found == tried


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 300))
def test_no_sign_is_found_that_trying_does_not_find(seed):
    with jax.enable_x64(True):
        found, tried = found_and_tried(random_moves(seed), CUTS[seed % len(CUTS)], tolerance=1e-9)
    assert found <= tried
