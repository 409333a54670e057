"""A guide bound to the data that it is conditioned on, for predictions at other inputs. Knows nothing of guides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpyro
from jax import Array
from numpyro.infer import Predictive

from numpyro_symmetry.devices import within_reach
from numpyro_symmetry.models.compat import predicted
from numpyro_symmetry.symmetry import as_html
from numpyro_symmetry.symmetry.shown import counted


@dataclass(frozen=True)
class Given:
    """A guide bound to its data, whatever it is called with.

    Attributes
    ----------
    guide
        The guide.
    args, kwargs
        The model's arguments in training.

    Examples
    --------
    >>> from numpyro_symmetry.guides import Given
    >>> Given(lambda x, y: {"slope": y / x}, (2.0, 6.0))("whatever comes")
    {'slope': 3.0}
    """

    guide: Callable
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, guide: Callable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
        """Bind a guide to data as they are, or as one piece where other processes hold parts of them."""
        return cls(guide, *within_reach((args, kwargs)))

    def __repr__(self) -> str:
        """The guide, and how many arguments it is bound to."""
        given = "".join(f", {name}=" for name in self.kwargs)
        return f"Given({self.guide!r}, {counted(len(self.args), 'argument')}{given})"

    _repr_html_ = as_html

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Draw from the guide given its own data."""
        return self.guide(*self.args, **self.kwargs)

    def draws(self, rng_key: Array, params: Mapping[str, Any], sample_shape: tuple[int, ...]) -> dict[str, Array]:
        """Draws of the guide, ``(*sample_shape, *event)``, and what it computes of them."""
        number = math.prod(sample_shape)
        # for no draws at all one is made, for its shapes
        # a guide may read data that a mask hides, and that are no numbers
        with numpyro.validation_enabled(False):
            flat = predicted(Predictive(self, params=dict(params), num_samples=max(1, number)), rng_key)
        return {name: value[:number].reshape(sample_shape + value.shape[1:]) for name, value in flat.items()}
