"""Fits, bounds, mutual information and chains over all devices there are, of one process or of several.

.. code-block:: sh

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.support.devices numbers.npz
    python -m tests.support.devices numbers.npz --processes 2
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from numpyro_symmetry import AutoConditional, AutoSymmetrized, Symmetry, mutual_information, run_blackjax
from numpyro_symmetry.devices import num_parts, over_local_devices

SYMMETRY = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
NUM_PARTICLES, NUM_CHAINS, NUM_DRAWS = 8, 8, 20
X = np.random.default_rng(0).normal(size=(16, 2))
Y = np.sin(X[:, 0])


def network(x: Any, y: Any) -> None:
    """One hidden layer."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.3), obs=y)


def fitted(guide: AutoSymmetrized, x: Any, y: Any, **options: Any) -> dict[str, Any]:
    """Losses of three steps, and where they lead."""
    svi = SVI(network, guide, optax.adam(0.01), Trace_ELBO(NUM_PARTICLES, **options))
    found = svi.run(jax.random.key(0), 3, x, y, progress_bar=False)
    return {"losses": found.losses, **found.params}


def numbers() -> dict[str, np.ndarray]:
    """Everything, over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("item",), axis_types=(AxisType.Auto,))
    over = NamedSharding(mesh, PartitionSpec("item"))
    x, y = jax.device_put((X, Y), over)

    def each_at_its_own(function: Any, keys: Any) -> Any:
        options = {"mesh": mesh, "in_specs": over.spec, "out_specs": over.spec, "check_vma": False}
        return jax.shard_map(jax.vmap(function), **options)(keys)

    assert num_parts(over_local_devices(4)) == min(jax.local_device_count(), 4)
    guide = AutoSymmetrized(AutoNormal(network), SYMMETRY, estimator="sequential")
    found: dict[str, Any] = {"data": fitted(guide, x, y)}
    params = {name: value for name, value in found["data"].items() if name != "losses"}
    found["particles"] = fitted(guide, X, Y, vectorize_particles=each_at_its_own)
    conditional = AutoSymmetrized(AutoConditional(AutoNormal(network)), SYMMETRY, estimator="sequential", check=False)
    found["conditional"] = fitted(conditional, x, y)
    for name, data, options in (("of data", (x, y), {}), ("of draws", (X, Y), {"sharding": over})):
        bounds = guide.elbo_bounds(
            jax.random.key(1), params, *data, num_particles=16, num_permutations=4, progress_bar=False, **options
        )
        found[name] = np.array([bounds.lower, bounds.upper, bounds.base_elbo, bounds.importance_weighted])
    table = jax.device_put(np.random.default_rng(1).normal(size=(16, 6, 6)), over)
    found["information"] = mutual_information(table, estimator="importance", rng_key=jax.random.key(2))
    assert found["information"].sharding.is_equivalent_to(over, 1)
    chains = run_blackjax(
        jax.random.key(3),
        network,
        (X, Y),
        algorithm="hmc",
        num_integration_steps=4,
        num_chains=NUM_CHAINS,
        num_warmup=20,
        num_samples=NUM_DRAWS,
        log_likelihood=False,
        sharding=over,
        progress_bar=False,
    )
    found["chains"] = {site: chains["posterior"][site].values for site in ("w1", "w2")}
    flat, _ = jax.tree_util.tree_flatten_with_path(found)
    return {jax.tree_util.keystr(path): np.asarray(in_one_piece(value)) for path, value in flat}


def in_one_piece(value: Any) -> Any:
    """An array with what other processes have of it."""
    if isinstance(value, jax.Array) and not value.is_fully_addressable and not value.is_fully_replicated:
        return jax.device_put(value, NamedSharding(value.sharding.mesh, PartitionSpec()))  # pyright: ignore
    return value


def main() -> None:
    """Save the numbers; of several processes, the first does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--this", type=int)
    parser.add_argument("--address")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.processes > 1 and options.this is None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        again = [sys.executable, "-m", "tests.support.devices", options.path, "--processes", str(options.processes)]
        started = [
            subprocess.Popen([*again, "--this", str(this), "--address", address]) for this in range(options.processes)
        ]
        sys.exit(max(process.wait() for process in started))
    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.address, options.processes, options.this)
    found = numbers()
    if jax.process_index() == 0:
        np.savez(options.path, **found)


if __name__ == "__main__":
    main()
