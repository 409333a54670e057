"""Posteriors of every kind of symmetry, whose log evidence has no closed form. Knows models; no guides."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from numpyro_symmetry.symmetry import Symmetry
from numpyro_symmetry.symmetry.shown import counted
from numpyro_symmetry.testing.posterior import Posterior


def tiny_network(
    hidden: Sequence[int] = (3,),
    num_data: int = 10,
    activation: str = "relu",
    noise_scale: float = 0.3,
    seed: int = 0,
) -> Posterior:
    r"""Bayesian regression network of one input and one output.

    .. math:: h_0 = x, \qquad h_l = \phi(h_{l-1} W_l + b_l), \qquad y \sim \mathcal N(h_{L-1} W_L + b_L, \text{noise}^2)

    with standard normal priors.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    num_data
        Number N of data, a noisy sine.
    activation
        ``"relu"``, or ``"tanh"``: being odd, it makes the groups signed.
    noise_scale
        Standard deviation of the likelihood and of the data.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``w1 (1, h)``, ``b1 (h,)``, ``w2``, ``b2``, …; the model takes ``x (N, 1)`` and ``y (N,)``. The log
        evidence is not known.

    Raises
    ------
    ValueError
        If the activation is unknown or there is no hidden layer.

    Examples
    --------
    >>> from numpyro_symmetry.testing import tiny_network
    >>> tiny_network(hidden=(3, 2), activation="tanh").symmetry
    Symmetry(±S3 on 'hidden1' × ±S2 on 'hidden2'; log|G| = 6.0 nats)
      w1: (·, hidden1)
      b1: (hidden1)
      w2: (hidden1, hidden2)
      b2: (hidden2)
      w3: (hidden2, ·)
    """
    activations = {"relu": jax.nn.relu, "tanh": jnp.tanh}
    if activation not in activations:
        raise ValueError(f"activation must be one of {sorted(activations)}; got {activation!r}.")
    widths = (1, *hidden, 1)
    layers = [(f"w{i}", f"b{i}") for i in range(1, len(widths))]
    rng = np.random.default_rng(seed)
    x = np.linspace(-2.0, 2.0, num_data)[:, None]
    y = np.sin(2.0 * x[:, 0]) + noise_scale * rng.normal(size=num_data)

    def model(x: np.ndarray, y: np.ndarray | None = None) -> None:
        value = jnp.asarray(x)
        for position, (kernel, bias) in enumerate(layers):
            n_in, n_out = widths[position : position + 2]
            w = numpyro.sample(kernel, dist.Normal(0.0, 1.0).expand([n_in, n_out]).to_event(2))
            b = numpyro.sample(bias, dist.Normal(0.0, 1.0).expand([n_out]).to_event(1))
            value = (activations[activation] if position else lambda v: v)(value) @ w + b
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(value[:, 0], noise_scale), obs=y)

    shapes = {}
    for (kernel, bias), n_in, n_out in zip(layers, widths[:-1], widths[1:], strict=True):
        shapes |= {kernel: np.zeros((n_in, n_out)), bias: np.zeros(n_out)}
    symmetry = Symmetry.mlp(layers, kind="signed" if activation == "tanh" else "permutation")
    return Posterior(
        model,
        (x, y),
        symmetry.bind(shapes),
        None,
        f"{activation} network 1-{'-'.join(map(str, hidden))}-1, {num_data} data",
    )


def hidden_markov(num_states: int = 3, num_steps: int = 20, seed: int = 0) -> Posterior:
    r"""Hidden Markov model with Gaussian emissions, its states summed out by the forward algorithm.

    .. math:: \pi \sim \operatorname{Dir}(1), \quad A_k \sim \operatorname{Dir}(1 + 4 e_k), \quad
              z_1 \sim \pi, \quad z_t \sim A_{z_{t-1}}, \quad x_t \sim \mathcal N(\mu_{z_t}, \sigma_{z_t}^2)

    Parameters
    ----------
    num_states
        Number K of states.
    num_steps
        Length T of the sequence.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``initial (K,)``, ``transition (K, K)``, ``loc (K,)``, ``scale (K,)``; the model takes the data ``(T,)``.
        The log evidence is not known.

    Examples
    --------
    >>> from numpyro_symmetry.testing import hidden_markov
    >>> hidden_markov().symmetry
    Symmetry(S3 on 'state'; log|G| = 1.8 nats)
      initial: (state)
      transition: (state, state)
      loc: (state)
      scale: (state)
    """
    rng = np.random.default_rng(seed)
    states = (np.arange(num_steps) // 4) % num_states
    data = 2.0 * (states - (num_states - 1) / 2) + 0.5 * rng.normal(size=num_steps)

    def model(data: np.ndarray) -> None:
        initial = numpyro.sample("initial", dist.Dirichlet(jnp.ones(num_states)))
        transition = numpyro.sample("transition", dist.Dirichlet(1.0 + 4.0 * jnp.eye(num_states)).to_event(1))
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([num_states]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(-0.5, 0.5).expand([num_states]).to_event(1))
        log_emission = dist.Normal(loc, scale).log_prob(jnp.asarray(data)[:, None])

        def step(log_forward: jax.Array, log_likelihood: jax.Array) -> tuple[jax.Array, None]:
            return logsumexp(log_forward[:, None] + jnp.log(transition), axis=0) + log_likelihood, None

        log_forward, _ = jax.lax.scan(step, jnp.log(initial) + log_emission[0], log_emission[1:])
        numpyro.factor("x", logsumexp(log_forward))

    symmetry = Symmetry.hmm(initial="initial", transition="transition", emissions=["loc", "scale"])
    shapes = {"initial": num_states, "transition": (num_states, num_states), "loc": num_states, "scale": num_states}
    return Posterior(
        model,
        (data,),
        symmetry.bind({site: np.zeros(shape) for site, shape in shapes.items()}),
        None,
        f"hidden Markov model of {counted(num_states, 'state')}, {counted(num_steps, 'step')}",
    )


def dirichlet_mixture(num_components: int = 3, num_data: int = 30, seed: int = 0) -> Posterior:
    r"""Gaussian mixture of unknown weights, locations and scales, its allocations summed out.

    .. math:: w \sim \operatorname{Dir}(1), \quad \mu_k \sim \mathcal N(0, 5^2), \quad
              \sigma_k \sim \operatorname{LogNormal}(0, 0.5), \quad x_n \sim \sum_k w_k \mathcal N(\mu_k, \sigma_k^2)

    Parameters
    ----------
    num_components
        Number K of components.
    num_data
        Number N of data.
    seed
        Seed of the data.

    Returns
    -------
    Posterior
        Sites ``weights (K,)``, ``loc (K,)``, ``scale (K,)``; the model takes the data ``(N,)``. The log evidence is not
        known.

    Examples
    --------
    >>> from numpyro_symmetry.testing import dirichlet_mixture
    >>> dirichlet_mixture().symmetry
    Symmetry(S3 on 'component'; log|G| = 1.8 nats)
      weights: (component)
      loc: (component)
      scale: (component)
    """
    rng = np.random.default_rng(seed)
    locs = 4.0 * (np.arange(num_components) - (num_components - 1) / 2)
    data = locs[np.arange(num_data) % num_components] + rng.normal(size=num_data)

    def model(data: np.ndarray) -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(num_components)))
        loc = numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([num_components]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([num_components]).to_event(1))
        with numpyro.plate("data", num_data):
            mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(loc, scale))
            numpyro.sample("x", mixture, obs=data)

    shape = np.zeros(num_components)
    return Posterior(
        model,
        (data,),
        Symmetry.mixture("weights", "loc", "scale").bind({"weights": shape, "loc": shape, "scale": shape}),
        None,
        f"mixture of {num_components} Gaussians of unknown weights, {num_data} data",
    )
