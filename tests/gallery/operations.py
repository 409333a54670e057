"""Networks that go through JAX operations of every kind: loops, branches, sorts, scatters, factorisations."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.nn import relu, sigmoid, softplus

from tests.gallery.case import Cases
from tests.gallery.parts import IMAGE_LABELS, SEQUENCES, X, Y, categories, classify, normal, observe

CASES = Cases()
SENDERS, RECEIVERS = categories(90, 12, 30), categories(91, 12, 30)


@CASES.add("maxout", "(S2)^5 x S5", X, Y, shown="Networks")
def maxout(x, y):
    """Five units, each the larger of two linear pieces."""
    pieces = jnp.einsum("nd,dhp->nhp", x, normal("kernel", 3, 5, 2))
    observe(pieces.max(-1) @ normal("out", 5), y)


@CASES.add("units-sorted", "S5", X, Y)
def units_sorted(x, y):
    """Outputs are sorted and weighted by rank: units move, weights of ranks do not."""
    observe(jnp.sort(jnp.tanh(x @ normal("kernel", 3, 5)), axis=-1) @ normal("out", 5), y)


@CASES.add("units-top-2", "S5", X, Y)
def units_top_2(x, y):
    """The sum of the two largest outputs."""
    observe(lax.top_k(sigmoid(x @ normal("kernel", 3, 5)), 2)[0].sum(-1), y)


@CASES.add("product-of-units", "S5", X, Y)
def product_of_units(x, y):
    """A product over units, and their maximum."""
    h = 1.0 + 0.1 * jnp.sin(x @ normal("kernel", 3, 5))
    observe(jnp.prod(h, axis=-1) + h.max(-1), y)


@CASES.add("fori-loop", "S5", X, Y)
def fori_loop(x, y):
    """The same layer four times."""
    recur, bias = normal("recur", 5, 5), normal("bias", 5)
    h = lax.fori_loop(0, 4, lambda _, h: relu(h @ recur + bias), x @ normal("in", 3, 5))
    observe(h @ normal("out", 5), y)


@CASES.add("while-loop", "S5", X, Y)
def while_loop(x, y):
    """The same layer until a counter runs out."""
    recur = normal("recur", 5, 5)
    _, h = lax.while_loop(
        lambda state: state[0] < 3,
        lambda state: (state[0] + 1, jnp.sin(state[1] @ recur) + 0.1),
        (0, x @ normal("in", 3, 5)),
    )
    observe(h @ normal("out", 5), y)


@CASES.add("cond-on-data", "S5", X, Y)
def cond_on_data(x, y):
    """Data decide which activation is used."""
    h = x @ normal("kernel", 3, 5) + normal("bias", 5)
    observe(lax.cond(x[0, 0] > 0, relu, jnp.cos, h) @ normal("out", 5), y)


@CASES.add("cond-on-latent", "S5", X, Y)
def cond_on_latent(x, y):
    """A latent number decides which of two readings of the units is used."""
    h, out = jnp.tanh(x @ normal("kernel", 3, 5) + normal("bias", 5)), normal("out", 5)
    observe(lax.cond(normal("switch") > 0, lambda: h @ out, lambda: (h**2) @ out), y)


@CASES.add("lax-map", "S5", X, Y)
def lax_map(x, y):
    """One datum at a time."""
    kernel, out = normal("kernel", 3, 5), normal("out", 5)
    observe(lax.map(lambda row: jax.jit(jnp.tanh)(row @ kernel) @ out, x), y)


@CASES.add("custom-derivative", "S5", X, Y)
def custom_derivative(x, y):
    """An activation with a hand-written derivative, and a gradient penalty on the network."""

    @jax.custom_vjp
    def clipped(x):
        return jnp.minimum(relu(x), 6.0)

    clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (g * (x > 0),))
    kernel, bias, out = normal("kernel", 3, 5), normal("bias", 5), normal("out", 5)

    def network(row):
        return clipped(row @ kernel + bias) @ out

    observe(jax.vmap(network)(x), y)
    numpyro.factor("smooth", -jnp.sum(jax.vmap(jax.grad(network))(x) ** 2))


@CASES.add("convolution-lax", "S4 x S5", SEQUENCES, IMAGE_LABELS)
def convolution_lax(x, labels):
    """Convolutions over time by lax, strided and dilated."""
    conv = jax.tree_util.Partial(lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC"))
    h = relu(conv(x, normal("first", 2, 3, 5), (1,), "SAME"))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID")
    h = relu(conv(h, normal("second", 2, 5, 4), (1,), "VALID", rhs_dilation=(2,)))
    classify(h.sum(1) @ normal("out", 4, 3), labels)


@CASES.add("graph-segment-sum", "S4 x S5", X, SENDERS, RECEIVERS, Y)
def graph_segment_sum(x, sender, receiver, y):
    """Messages along given links are gathered, summed where they arrive, and read."""
    message = relu(x @ normal("message", 3, 5))[sender]
    h = jax.ops.segment_sum(message, receiver, num_segments=12)
    h = jnp.zeros((12, 4)).at[receiver].max(softplus(h @ normal("update", 5, 4))[sender])
    observe(h @ normal("out", 4), y)


@CASES.add("output-weights-integrated-out", "S5", X, Y, signed="±S5", shown="Networks")
def output_weights_integrated_out(x, y):
    """Output weights are integrated out: units meet in a covariance and its Cholesky factor."""
    h = jnp.tanh(x @ normal("kernel", 3, 5) + normal("bias", 5))
    covariance = h @ h.T + 0.1 * jnp.eye(12)
    numpyro.sample("obs", dist.MultivariateNormal(jnp.zeros(12), covariance), obs=y)


@CASES.add("output-weights-solved", "S5", X, Y, signed="±S5", by_numbers=True)
def output_weights_solved(x, y):
    """Output weights are the ridge solution: a linear system of the size of the layer."""
    h = jnp.tanh(x @ normal("kernel", 3, 5) + normal("bias", 5))
    out = jnp.linalg.solve(h.T @ h + 0.1 * jnp.eye(5), h.T @ y)
    observe(h @ out, y)


@CASES.add("hypernetwork-scales", "S2 x S5", X, Y)
def hypernetwork_scales(x, y):
    """Each unit's prior scale comes from its embedding by a small network."""
    embedding, read = normal("embedding", 5, 2), normal("read", 2)
    out = numpyro.sample("out", dist.Normal(0, softplus(jnp.sin(embedding) @ read)).to_event(1))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("spectral-norm", "S4 x S5", X, Y)
def spectral_norm(x, y):
    """Kernels divided by their norms, the second by power iteration from its own mean."""
    first, second = normal("first", 3, 5), normal("second", 5, 4)
    h = jnp.tanh(x @ (first / jnp.linalg.norm(first, axis=0)))

    def power(_, v):
        v = second.T @ (second @ v)
        return v / jnp.sqrt((v**2).sum())

    v = lax.fori_loop(0, 3, power, second.mean(0))
    observe(relu(h @ second / jnp.linalg.norm(second @ v)) @ normal("out", 4), y)


@CASES.add("softmax-over-units", "S5", X, Y)
def softmax_over_units(x, y):
    """Units compete: a log-softmax, their entropy, their variance and their median."""
    log_share = jax.nn.log_softmax(x @ normal("kernel", 3, 5), axis=-1)
    share = jnp.exp(log_share)
    summary = -(share * log_share).sum(-1) + share.var(-1) + jnp.median(share, axis=-1)
    observe(share @ normal("out", 5) + summary, y)
