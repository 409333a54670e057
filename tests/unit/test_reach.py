"""Which results depend on which arguments: through calls, branches and loops, whatever the numbers are."""

import jax
import jax.numpy as jnp
import pytest

from numpyro_symmetry.models.reach import dependencies

INPUTS = {"a": jnp.zeros(3), "b": {"one": jnp.zeros(3), "other": jnp.zeros(())}}


def handed_on(x):
    """Of two rounds or more: what enters the first number only later reaches the last."""

    def step(carried, _):
        first, second, third, apart = carried
        return (x["a"].sum(), first, second, 2.0 * apart), third

    (first, *_, apart), thirds = jax.lax.scan(step, (0.0, 0.0, 0.0, x["b"]["other"]), None, length=5)
    return {"carried": first, "put out": thirds, "apart": apart}


CASES = {
    "sums": (lambda x: {"both": x["a"] + x["b"]["one"], "none": jnp.ones(2), "a": x["a"]}, {"both": "ab", "a": "a"}),
    "never taken": (lambda x: {"y": jnp.where(x["a"] > 3.0, x["b"]["one"], 0.0)}, {"y": "ab"}),
    "called": (
        lambda x: dict(zip("yz", jax.jit(lambda a, b: (2 * a, b))(x["a"], x["b"]["one"]), strict=True)),
        {"y": "a", "z": "b"},
    ),
    "by shape alone": (lambda x: {"y": jnp.zeros(len(x["a"]))}, {}),
    "a loop": (handed_on, {"carried": "a", "put out": "a", "apart": "b"}),
    "a pytree": (lambda x: {"y": (x["a"], {"z": x["b"]["other"]})}, {"y": "ab"}),
}


@pytest.mark.parametrize("case", CASES)
def test_dependencies_are_read_off_the_program(case):
    function, expected = CASES[case]
    found = dependencies(function, INPUTS)
    assert found == {name: frozenset(expected.get(name, "")) for name in function(INPUTS)}
