"""Draws in NumPyro's ``MCMC``, which also knows the model that it ran. Knows runs; no symmetry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from numpyro_symmetry.containers.trace import Arrays, Container, Trace
from numpyro_symmetry.models import Model
from numpyro_symmetry.models.compat import arguments_of, states_of, with_states
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.pytrees import like


def _read(data: Any, *_: Any) -> Trace:
    states, field = _states(data)
    values = {site: np.asarray(value) for site, value in data.get_samples(group_by_chain=True).items()}

    def write(new: Arrays, without: Collection[str] = ()) -> Any:
        sites = states[field] | {site: like(states[field].get(site), value) for site, value in new.items()}
        kept = {site: value for site, value in sites.items() if site not in without}
        return with_states(data, {**states, field: kept})

    energy = states.get("potential_energy")
    density = None if energy is None else -np.asarray(energy)
    return Trace(values, next(iter(values.values())).shape[:2], write, log_density=density)


def _model(data: Any) -> Model | None:
    _states(data)
    function, arguments = getattr(data.sampler, "model", None), arguments_of(data)
    return None if function is None or arguments is None else Model(function, *arguments)


def _states(data: Any) -> tuple[Any, str]:
    states, field = states_of(data)
    if states is None:
        raise SymmetryError("The MCMC object holds no draws: call its run method first.")
    return states, field


MCMC = Container(
    lambda data: not isinstance(data, type) and hasattr(data, "get_samples") and hasattr(data, "sampler"), _read, _model
)
