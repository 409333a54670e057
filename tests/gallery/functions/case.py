"""A function of a pytree with the group that a person says it has. Labels are written as those of models are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)


class Function(NamedTuple):
    """A function and its label.

    Attributes
    ----------
    name
        A short name without spaces.
    make
        What returns the function and its arguments, of which the first holds the parameters; its docstring derives
        the group.
    expected
        The group.
    signs
        Whether signs count in the label: where nobody derived them, they are not asked for.
    needs
        Modules without which the function does not run.
    slow
        Whether finding its group takes more than three seconds.
    precision
        In which outputs can be looked at: less than double where the function pins its type.
    told
        What a warning says while the group is looked for, if there is one.
    miss
        What is found where that is less than the label, else None; ``docs/finding.md`` says why.
    """

    name: str
    make: Callable[[], tuple[Callable, tuple]]
    expected: str
    signs: bool = True
    needs: tuple[str, ...] = ()
    slow: bool = False
    precision: str = "float64"
    told: str = ""
    miss: str | None = None

    @property
    def found(self) -> str:
        """The group that ``find_symmetry`` finds."""
        return self.expected if self.miss is None else self.miss


class Functions(list[Function]):
    """The functions of a module, in the order in which they are written."""

    def add(self, expected: str, **fields: Any) -> Callable:
        """Return a decorator that adds the function made below it under this label."""

        def label(make: Callable) -> Callable:
            self.append(Function(make.__name__.replace("_", "-"), make, factors(expected), **fields))
            return make

        return label


def factors(text: str) -> str:
    """A label with its factors in order, however they were written."""
    return " x ".join(sorted(text.split(" x ")))


def normal(seed: int, *shape: int) -> jax.Array:
    """Fixed draws of a standard normal."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def whole(seed: int, count: int, *shape: int) -> jax.Array:
    """Fixed whole numbers below a count."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, count, shape))


def weights(**shapes: tuple[int, ...]) -> dict[str, jax.Array]:
    """Arrays of these shapes."""
    return {name: normal(seed, *shape) for seed, (name, shape) in enumerate(shapes.items())}


def linen(module: Any, *args: Any) -> tuple[Callable, tuple]:
    """A Flax module as a function of all that `init` returns."""
    return module.apply, (jax.jit(module.init)(KEY, *args), *args)


def split(module: Any, *args: Any) -> tuple[Callable, tuple]:
    """An nnx module as a function of its state."""
    from flax import nnx

    graph, state = nnx.split(module)
    return lambda state, *args: nnx.merge(graph, state)(*args), (state, *args)
