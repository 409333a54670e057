"""Fits, bounds, mutual information and chains over all devices there are, of one process or of several.

.. code-block:: sh

    python -m tests.support.devices numbers.npz --devices 8
    python -m tests.support.devices numbers.npz --processes 2
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
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
from numpyro_symmetry.devices import gathered, num_parts, over_local_devices

SYMMETRY = Symmetry({"w1": (None, "hidden"), "w2": ("hidden",)})
NUM_PARTICLES, NUM_CHAINS, NUM_DRAWS, NUM_STEPS = 8, 8, 20, 3
OF_BOUNDS: Any = {"num_particles": 16, "num_permutations": 4, "progress_bar": False}
X = np.random.default_rng(0).normal(size=(16, 2))
Y = np.sin(X[:, 0])


def network(x: Any, y: Any) -> None:
    """One hidden layer."""
    w1 = numpyro.sample("w1", dist.Normal(0.0, 1.0).expand([2, 4]).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w1) @ w2, 0.3), obs=y)


def symmetrized(base: Any) -> AutoSymmetrized:
    """A guide of the network."""
    return AutoSymmetrized(base, SYMMETRY, estimator="sequential", check=False, progress_bar=False)


def fitted(guide: AutoSymmetrized, x: Any, y: Any) -> tuple[dict[str, Any], Any]:
    """Where some steps lead, and their losses."""
    svi = SVI(network, guide, optax.adam(0.01), Trace_ELBO())

    @jax.jit
    def train(state: Any, x: Any, y: Any) -> Any:
        return jax.lax.scan(lambda state, _: svi.update(state, x, y), state, length=NUM_STEPS)

    # SVI.run would make the data constants of its program, which those of several processes cannot be
    state, losses = train(svi.init(jax.random.key(0), x, y), x, y)
    return svi.get_params(state), losses


def ends(bounds: Any) -> np.ndarray:
    """What bounds say."""
    return np.array([bounds.lower, bounds.upper, bounds.base_elbo, bounds.importance_weighted])


def of_data(over: NamedSharding) -> dict[str, Any]:
    """A mean-field guide: data over devices, and particles."""
    guide, (x, y) = symmetrized(AutoNormal(network)), jax.device_put((X, Y), over)
    params, losses = fitted(guide, x, y)

    def each_at_its_own(function: Any, keys: Any) -> Any:
        return jax.shard_map(jax.vmap(function), mesh=over.mesh, in_specs=over.spec, out_specs=over.spec)(keys)

    elbo = Trace_ELBO(NUM_PARTICLES, vectorize_particles=each_at_its_own)
    loss = jax.value_and_grad(lambda params: elbo.loss(jax.random.key(4), params, network, guide, X, Y))
    bounds = guide.elbo_bounds(jax.random.key(1), params, x, y, **OF_BOUNDS)
    return {"losses": losses, "params": params, "particles": jax.jit(loss)(params), "bounds": ends(bounds)}


def of_conditional(over: NamedSharding) -> dict[str, Any]:
    """A guide that follows data over devices: trained, its draws, and bounds whose draws are over devices."""
    guide, (x, y) = symmetrized(AutoConditional(AutoNormal(network), progress_bar=False)), jax.device_put((X, Y), over)
    params, losses = fitted(guide, x, y)
    drawn = guide.sample_posterior(jax.random.key(5), params, x, y)
    # what was put on one device no program over several takes, until it is laid over them
    key = jax.device_put(jax.random.key(1), jax.local_devices()[0])
    bounds = guide.elbo_bounds(key, params, X, Y, sharding=over, **OF_BOUNDS)
    return {"losses": losses, "params": params, "drawn": drawn, "bounds": ends(bounds)}


def of_tables(over: NamedSharding) -> dict[str, Any]:
    """Mutual information of tables over devices."""
    tables = jax.device_put(np.random.default_rng(1).normal(size=(16, 6, 6)), over)
    # few at a time: each device goes over its own, and holds what comes of them
    information = mutual_information(tables, estimator="importance", rng_key=jax.random.key(2), chunk_size=2)
    assert information.sharding.is_equivalent_to(over, 1)
    return {"information": information}


def of_chains(over: NamedSharding) -> dict[str, Any]:
    """Chains over devices, of a model whose data are there too."""
    for count in range(1, 9):
        most = next(k for k in range(jax.local_device_count(), 0, -1) if count % k == 0)
        assert num_parts(over_local_devices(count)) == most
    chains = run_blackjax(
        jax.random.key(3),
        network,
        jax.device_put((X, Y), over),
        algorithm="hmc",
        num_integration_steps=4,
        num_chains=NUM_CHAINS,
        num_warmup=20,
        num_samples=NUM_DRAWS,
        log_likelihood=False,
        sharding=over,
        progress_bar=False,
    )
    return {site: chains["posterior"][site].values for site in ("w1", "w2")}


PARTS = {"data": of_data, "conditional": of_conditional, "tables": of_tables, "chains": of_chains}


def numbers(parts: Iterable[str] = PARTS) -> dict[str, np.ndarray]:
    """What parts of it are over all devices."""
    mesh = jax.make_mesh((jax.device_count(),), ("item",), axis_types=(AxisType.Auto,))
    over = NamedSharding(mesh, PartitionSpec("item"))
    found = {part: PARTS[part](over) for part in parts}
    flat, _ = jax.tree_util.tree_flatten_with_path(found)
    return {jax.tree_util.keystr(path): np.asarray(gathered(value)) for path, value in flat}


def in_processes(arguments: list[str], count: int, time_limit: float) -> int:
    """Run this program as several processes, all of which end when one fails or the time is up."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "tests.support.devices", *arguments, "--address", address]
    started = [subprocess.Popen([*command, "--this", str(this)]) for this in range(count)]
    end = time.monotonic() + time_limit
    try:
        while None in (codes := [process.poll() for process in started]) and not any(codes):
            if time.monotonic() > end:
                return 1
            time.sleep(0.1)
        return max(map(abs, filter(None, codes)), default=0)
    finally:
        for process in started:
            process.kill()


def main() -> None:
    """Save the numbers; of several processes, the first does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--devices", type=int, default=1, help="as so many a process's CPU is seen")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds until several processes are ended")
    parser.add_argument("--this", type=int, help="which of the processes this is")
    parser.add_argument("--address", help="where they meet")
    options = parser.parse_args()
    if options.processes > 1 and options.this is None:
        sys.exit(in_processes(sys.argv[1:], options.processes, options.limit))
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", options.devices)
    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.address, options.processes, options.this)
    found = numbers(options.parts)
    if jax.process_index() == 0:
        np.savez(options.path, **found)


if __name__ == "__main__":
    main()
