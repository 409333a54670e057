"""Every kind of container that draws are read from, in one tuple. A new kind is one more entry there."""

from __future__ import annotations

from typing import Any

from numpyro_symmetry.containers.labelled import DATA_TREE, DATASET, INFERENCE_DATA
from numpyro_symmetry.containers.mcmc import MCMC
from numpyro_symmetry.containers.plain import MAPPING, MEMBERS, STACKED, TREE
from numpyro_symmetry.containers.strangers import refusal, refuse_columns
from numpyro_symmetry.containers.trace import Container, Trace
from numpyro_symmetry.models import Model
from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.arguments import as_count

# the first that recognises a container reads it; those of xarray and ArviZ are mappings too, and most are pytrees
CONTAINERS: tuple[Container, ...] = (DATASET, DATA_TREE, INFERENCE_DATA, MCMC, STACKED, MAPPING, MEMBERS, TREE)


def read(data: Any, symmetry: Symmetry, num_leading_dims: int | None = None, *, lazily: bool = False) -> Trace:
    """Read draws from any container.

    Parameters
    ----------
    data
        The container.
    symmetry
        The symmetry: ranks of its sites tell leading dimensions from a site's own, in containers that do not name them.
    num_leading_dims
        Number of leading dimensions, where the symmetry cannot tell.
    lazily
        Whether to leave Dask arrays unread.

    Returns
    -------
    Trace
        The draws, which share memory with the container.

    Raises
    ------
    SymmetryError
        If the container is of no known type, is empty, its sites disagree on their leading dimensions, or a site of
        the symmetry is there in columns of its entries.

    Examples
    --------
    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry
    >>> from numpyro_symmetry.containers import read
    >>> read({"loc": np.zeros((4, 100, 3))}, Symmetry({"loc": ("component",)})).leading
    (4, 100)
    """
    if num_leading_dims is not None:
        num_leading_dims = as_count(
            num_leading_dims, "num_leading_dims", meaning="1 for (draw, ...), 2 for (chain, draw, ...)"
        )
    if (kind := _kind_of(data)) is None:
        raise refusal(data)
    trace = kind.read(data, symmetry, num_leading_dims)._replace(model=kind.model(data))
    refuse_columns(trace.values, symmetry)
    return trace if lazily or not trace.is_stored else trace.in_memory()


def model_of(data: Any) -> Model | None:
    """The model that draws are of, and its arguments.

    Parameters
    ----------
    data
        The container.

    Returns
    -------
    Model or None
        ``None`` if the container does not know the model.

    Raises
    ------
    SymmetryError
        If the container holds no draws.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist
    >>> from numpyro.infer import MCMC, NUTS
    >>> def model():
    ...     numpyro.sample("loc", dist.Normal(0.0, 1.0))
    >>> mcmc = MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
    >>> mcmc.run(jax.random.key(0))
    >>> model_of(mcmc).function is model, model_of(mcmc.get_samples())
    (True, None)
    """
    kind = _kind_of(data)
    return None if kind is None else kind.model(data)


def _kind_of(data: Any) -> Container | None:
    return next((kind for kind in CONTAINERS if kind.recognises(data)), None)
