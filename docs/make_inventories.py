"""Write `docs/inventories/*.inv`: where other projects document the names that our pages refer to.

python docs/make_inventories.py

Sphinx reads them in place of the projects' own, which are large and behind a network: a build is the same on every machine. A name
of which there is none in the package that is installed is an error here. Each is also entered without its module, `SVI.init`, as
docstrings write it, and by what else signatures call it.
"""

import importlib
import inspect
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

INVENTORIES = Path(__file__).resolve().parent / "inventories"


class Site(NamedTuple):
    """A project's pages: an address, and for each page, `{}` for the name itself, a module and what stands there of it."""

    url: str
    pages: dict[str, dict[str, str]]


SITES = {
    "python": Site(
        "https://docs.python.org/3/",
        {
            "library/collections.abc.html": {
                "collections.abc": "Callable Collection Iterable Iterator Mapping Sequence"
            },
            "library/types.html": {"types": "EllipsisType"},
            "library/typing.html": {"typing": "Any NamedTuple"},
            "library/functions.html": {"builtins": "bool float int object"},
            "library/stdtypes.html": {"builtins": "dict frozenset list set str tuple"},
            "library/exceptions.html": {"builtins": "KeyboardInterrupt TypeError ValueError UserWarning"},
            "library/pathlib.html": {"pathlib": "Path"},
        },
    ),
    "numpy": Site(
        "https://numpy.org/doc/stable/",
        {
            "reference/generated/{}.html": {"numpy": "ndarray"},
            "reference/random/generator.html": {"numpy.random": "Generator"},
        },
    ),
    "jax": Site(
        "https://docs.jax.dev/en/latest/",
        {
            "_autosummary/{}.html": {"jax": "Array jit vmap grad", "jax.lax": "scan"},
            "jax.typing.html": {"jax.typing": "ArrayLike"},
            "jax.sharding.html": {"jax.sharding": "NamedSharding"},
        },
    ),
    "numpyro": Site(
        "https://num.pyro.ai/en/stable/",
        {
            "autoguide.html": {
                "numpyro.infer.autoguide": "AutoContinuous AutoDelta AutoDiagonalNormal AutoGuide AutoGuideList "
                "AutoLaplaceApproximation AutoLowRankMultivariateNormal AutoMultivariateNormal AutoNormal"
            },
            "distributions.html": {"numpyro.distributions.distribution": "Distribution"},
            "handlers.html": {"numpyro.handlers": "block"},
            "mcmc.html": {"numpyro.infer.mcmc": "MCMC"},
            "primitives.html": {"numpyro.primitives": "param"},
            "svi.html": {
                "numpyro.infer.svi": "SVI SVI.init SVI.run",
                "numpyro.infer.elbo": "TraceEnum_ELBO Trace_ELBO",
            },
            "utilities.html": {"numpyro.infer.util": "Predictive"},
        },
    ),
    "arviz": Site("https://python.arviz.org/en/v0.23.0/", {"api/generated/{}.html": {"arviz": "InferenceData"}}),
    "xarray": Site(
        "https://docs.xarray.dev/en/stable/", {"generated/{}.html": {"xarray": "DataArray Dataset DataTree"}}
    ),
    "matplotlib": Site("https://matplotlib.org/stable/", {"api/_as_gen/{}.html": {"matplotlib.axes": "Axes"}}),
}


CALLED = {
    "jax.Array": ["jax.jaxlib._jax.Array"],
    "numpy.ndarray": ["np.ndarray"],
    "numpy.random.Generator": ["numpy.random._generator.Generator"],
    "xarray.DataArray": ["xr.DataArray"],
}


def entries(site: Site) -> Iterator[str]:
    """Lines of an inventory: name, role, priority, address, and a dash where the name is shown as it is."""
    for page, modules in site.pages.items():
        for module, names in modules.items():
            for name in names.split():
                role = "function" if inspect.isroutine(found(module, name)) else "class"
                full = name if module == "builtins" else f"{module}.{name}"
                for one in dict.fromkeys((full, name, *CALLED.get(full, ()))):
                    yield f"{one} py:{role} 1 {page.format(full)}#{full} -"


def found(module: str, name: str) -> Any:
    """What is called so, in the package that is installed."""
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def main() -> None:
    INVENTORIES.mkdir(exist_ok=True)
    for project, site in SITES.items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        body = "\n".join(sorted(entries(site))) + "\n"
        (INVENTORIES / f"{project}.inv").write_bytes(head.encode() + zlib.compress(body.encode(), 9))


if __name__ == "__main__":
    main()
