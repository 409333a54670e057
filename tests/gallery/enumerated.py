"""Hidden Markov models as NumPyro's example of enumeration writes them: masked, in plates, started from state 0."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import mask

from tests.gallery.case import Cases

CASES = Cases()
NOTES = np.random.default_rng(60).integers(0, 2, size=(2, 4, 3)).astype(np.int32)
LENGTHS = np.array([4, 3])
FROM_ZERO = "every chain starts from state 0"


def transitions(name, *count):
    """Sample transition probabilities that prefer to stay, one row for each state, or for each of several."""
    prior = dist.Dirichlet(0.9 * jnp.eye(count[-1]) + 0.1).expand(count)
    return numpyro.sample(name, prior.to_event(len(count)))


def chances(*shape):
    """Sample the chance of each note."""
    return numpyro.sample("probs_y", dist.Beta(0.1, 0.9).expand(shape).to_event(len(shape)))


def draw(name, probs):
    """Sample a state that is summed out; what is told of enumeration belongs to one site alone."""
    return numpyro.sample(name, dist.Categorical(probs), infer={"enumerate": "parallel"})


def run(notes, lengths, step, *start, history=1):
    """Scan over time; each series is masked behind its length."""
    from numpyro.contrib.control_flow import scan

    count = len(notes)

    def masked(carry, y):
        *state, t = carry
        with numpyro.plate("sequences", count, dim=-2), mask(mask=(t < lengths)[..., None]):
            state = step(state, y)
        return (*state, t + 1), None

    scan(masked, (*start, 0), jnp.swapaxes(notes, 0, 1), history=history)


def zeros(notes):
    """The first states: whole numbers of 32 bits, as the example has them."""
    return jnp.zeros((len(notes), 1), jnp.int32)


@CASES.add("hmm-enum-1", "S3", NOTES, LENGTHS, enumerated=True, why=FROM_ZERO, needs=("funsor",), by_numbers=True)
def hmm_enum_1(notes, lengths):
    """Four states."""
    rows, chance = transitions("probs_x", 4), chances(4, notes.shape[-1])

    def step(state, y):
        x = draw("x", rows[state[0]])
        with numpyro.plate("tones", notes.shape[-1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(chance[x.squeeze(-1)]), obs=y)
        return [x]

    run(notes, lengths, step, zeros(notes))


@CASES.add("hmm-enum-2", "S3", NOTES, LENGTHS, enumerated=True, why=FROM_ZERO, needs=("funsor",), by_numbers=True)
def hmm_enum_2(notes, lengths):
    """Notes that depend on the notes before."""
    rows, chance = transitions("probs_x", 4), chances(4, 2, notes.shape[-1])

    def step(state, y):
        x = draw("x", rows[state[0]])
        with numpyro.plate("tones", notes.shape[-1], dim=-1) as tones:
            y = numpyro.sample("y", dist.Bernoulli(chance[x, state[1], tones]), obs=y)
        return [x, y]

    run(notes, lengths, step, zeros(notes), jnp.zeros((len(notes), notes.shape[-1]), jnp.int32))


@CASES.add("hmm-enum-3", "S2 x S2", NOTES, LENGTHS, enumerated=True, why=FROM_ZERO, needs=("funsor",), by_numbers=True)
def hmm_enum_3(notes, lengths):
    """Two chains of one size side by side: each has its own states."""
    first, second, chance = transitions("probs_w", 3), transitions("probs_x", 3), chances(3, 3, notes.shape[-1])

    def step(state, y):
        w, x = draw("w", first[state[0]]), draw("x", second[state[1]])
        with numpyro.plate("tones", notes.shape[-1], dim=-1) as tones:
            numpyro.sample("y", dist.Bernoulli(chance[w, x, tones]), obs=y)
        return [w, x]

    run(notes, lengths, step, zeros(notes), zeros(notes))


@CASES.add("hmm-enum-4", "S2 x S2", NOTES, LENGTHS, enumerated=True, why=FROM_ZERO, needs=("funsor",), by_numbers=True)
def hmm_enum_4(notes, lengths):
    """One chain drives the other."""
    from numpyro.ops.indexing import Vindex

    first, second, chance = transitions("probs_w", 3), transitions("probs_x", 3, 3), chances(3, 3, notes.shape[-1])

    def step(state, y):
        w = draw("w", first[state[0]])
        x = draw("x", Vindex(second)[w, state[1]])
        with numpyro.plate("tones", notes.shape[-1], dim=-1) as tones:
            numpyro.sample("y", dist.Bernoulli(chance[w, x, tones]), obs=y)
        return [w, x]

    run(notes, lengths, step, zeros(notes), zeros(notes))


@CASES.add("hmm-enum-6", "S3", NOTES, LENGTHS, enumerated=True, why=FROM_ZERO, needs=("funsor",), by_numbers=True)
def hmm_enum_6(notes, lengths):
    """A chain that remembers two states."""
    from numpyro.ops.indexing import Vindex

    rows, chance = transitions("probs_x", 4, 4), chances(4, notes.shape[-1])

    def step(state, y):
        x = draw("x", Vindex(rows)[state[0], state[1]])
        with numpyro.plate("tones", notes.shape[-1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(chance[x.squeeze(-1)]), obs=y)
        return [state[1], x]

    run(notes, lengths, step, zeros(notes), zeros(notes), history=2)
