"""A kind of group is a value: one of a stranger's passes every law, and what cannot treat it says so by name."""

import math
import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoSymmetrized, Symmetry, SymmetryError, Unsigned, check_symmetry, match, rebase
from numpyro_symmetry.matching import nearest_transposition
from numpyro_symmetry.symmetry import Kind
from tests.property import test_symmetry_laws as laws

pytestmark = pytest.mark.usefixtures("strict_promotion")


def rotated(by, n):
    return (np.arange(n) + np.asarray(by)[..., None]) % n


def random_rotation(rng, index):
    return rotated(rng.integers(index.shape[-1], size=index.shape[:-1]), index.shape[-1])


def sampled_rotation(key, index):
    n = index.shape[-1]
    return (index + jax.random.randint(key, (*index.shape[:-1], 1), 0, n)) % n


def rotations(n):
    return rotated(np.arange(n), n)


def one_step(order):
    return rotated([1], len(order))


def is_rotation(permutation):
    return (permutation == rotated(permutation[..., 0], permutation.shape[-1])).all(-1)


CYCLIC = Kind("cyclic", "C", math.log, rotations, random_rotation, sampled_rotation, one_step, is_rotation)
RING = Symmetry({"w": (None, "ring"), "b": ("ring",)}, {"ring": CYCLIC})
RINGS = {
    "a ring": (RING, {"w": (2, 5), "b": (5,)}),
    "two rings on one axis": (
        Symmetry({"b": ("ring",)}, {"ring": CYCLIC}, orbits={"ring": (0, 1, 0, 1, 0)}),
        {"b": (5,)},
    ),
    "rings of units": (Symmetry({"b": ("unit", "unit/ring")}, {"unit/ring": CYCLIC}), {"b": (2, 3)}),
    "a site for each": (Symmetry({("a", "b", "c"): ("ring", None)}, {"ring": CYCLIC}), dict.fromkeys("abc", (2,))),
}
LAWS = [
    laws.test_identity_leaves_values_alone,
    laws.test_inverse_undoes,
    laws.test_composition_is_associative_and_acts,
    laws.test_a_batch_is_a_loop,
    laws.test_leading_dimensions_are_free,
    laws.test_elements_are_the_whole_group,
    laws.test_generators_generate_and_random_elements_are_among_them,
    laws.test_sampling_is_uniform,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", RINGS)
def test_every_law_holds(name, law):
    symmetry, shapes = RINGS[name]
    rng = np.random.default_rng(0)
    values = {site: rng.normal(size=shape) for site, shape in shapes.items()}
    law((symmetry.bind(values), values))


def test_it_is_a_value():
    bound = RING.bind({"w": np.ones((2, 5)), "b": np.ones(5)})
    assert str(bound).splitlines()[0] == "Symmetry(C5 on 'ring'; log|G| = 1.6 nats)"
    assert pickle.loads(pickle.dumps(bound)) == bound
    assert bound.restrict(sites=["b"]).groups["ring"].kind is CYCLIC
    assert bound.restrict(["ring"]) == bound
    assert not bound.is_plain
    with pytest.raises(SymmetryError, match=r"'ring' is none of kind 'cyclic'; got \[1, 0, 2, 3, 4\]"):
        bound.apply({"ring": jnp.array([1, 0, 2, 3, 4])}, {"w": np.ones((2, 5)), "b": np.ones(5)})


def test_it_stays_what_it_is_without_signs():
    signed = Symmetry(dict(RING.axes), {"ring": replace(CYCLIC, signed=True)}, {"ring": 5})
    assert RING.without_signs() == RING
    assert signed.without_signs() == replace(RING, sizes={"ring": 5})
    assert signed.without_signs().log_order() == math.log(5)
    # nor where the sites that are left have no signs
    beside = replace(signed, axes={"w": ("ring",), "b": (Unsigned("ring"),)}).restrict(sites=["b"])
    assert beside == Symmetry({"b": (Unsigned("ring"),)}, {"ring": CYCLIC}, {"ring": 5})
    plain = Symmetry(dict(RING.axes), {"ring": "signed"}, {"ring": 5})
    assert plain.without_signs() == Symmetry(dict(RING.axes), sizes={"ring": 5})


def ring(y, break_at=5):
    """Neighbours on a ring are alike, and each differs from the next in a way that a reflection turns round."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 5]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    differences = jnp.tanh(jnp.roll(w, 1, -1) + 0.3 * w**2).sum(0) * b * jnp.where(jnp.arange(5) == break_at, 2.0, 1.0)
    numpyro.sample("y", dist.Normal(differences.sum(), 1.0), obs=y)


def test_a_model_is_checked_to_have_it():
    assert check_symmetry(ring, RING, (0.5,)).status == "passed"
    with pytest.raises(SymmetryError, match="not invariant: under group 'ring'"):
        check_symmetry(ring, Symmetry(dict(RING.axes)), (0.5,))
    with pytest.raises(SymmetryError, match="not invariant: under group 'ring'"):
        check_symmetry(ring, RING, (0.5, 2))


VALUES = {"w": np.arange(10.0).reshape(2, 5), "b": np.arange(5.0)}


@pytest.mark.parametrize(
    "use",
    [
        lambda: match(VALUES, VALUES, RING),
        lambda: rebase({site: np.stack([x, 2 * x, 3 * x]) for site, x in VALUES.items()}, RING),
        lambda: nearest_transposition(VALUES, RING),
        lambda: AutoSymmetrized(AutoNormal(ring), RING).setup(jax.random.key(0), 0.5),
    ],
    ids=["match", "rebase", "nearest_transposition", "AutoSymmetrized"],
)
def test_what_places_units_by_assignment_refuses_it_by_name(use):
    with pytest.raises(
        SymmetryError, match="Group 'ring' is of kind 'cyclic': expected one of which every permutation"
    ):
        use()


def test_blocks_that_rotate_are_refused_by_name():
    heads = Symmetry({"w": ("head", "head/unit")}, {"head": CYCLIC})
    with pytest.raises(SymmetryError, match="Group 'head' is of kind 'cyclic'"):
        match({"w": np.ones((2, 3))}, {"w": np.ones((2, 3))}, heads)
