"""Networks over sequences and steps: attention, recurrent cells, loops."""

import jax
import jax.numpy as jnp
import numpyro
from jax import lax
from jax.nn import gelu, sigmoid, softmax

from tests.gallery.case import Cases
from tests.gallery.parts import IMAGE_LABELS, SEQUENCES, X, classify, dense, normal, observe

CASES = Cases()


def layer_norm(x, name):
    """A layer norm with a latent gain and bias."""
    size = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normed * normal(f"{name}_gain", size, loc=1.0, scale=0.1) + normal(f"{name}_bias", size, scale=0.1)


def attend(query, key, value, mask=None):
    """Softmax attention over arrays (batch, position, head, dimension)."""
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    logits = logits if mask is None else jnp.where(mask, logits, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", softmax(logits), value)


@CASES.add("transformer-block", "(S2)^3 x (S4)^3 x S3 x S5 x S7", SEQUENCES, IMAGE_LABELS, shown="Networks")
def transformer_block(x, labels):
    """A causal block with layer norms on a residual stream, positions added by a latent table."""
    stream = x @ normal("embed", 3, 7) + normal("positions", 6, 7)
    normed = layer_norm(stream, "norm1")
    query, key = (jnp.einsum("bsd,dhk->bshk", normed, normal(name, 7, 3, 4)) for name in ("query", "key"))
    value = jnp.einsum("bsd,dhk->bshk", normed, normal("value", 7, 3, 2))
    read = attend(query, key, value, jnp.tril(jnp.ones((6, 6), bool)))
    stream = stream + jnp.einsum("bshk,hkd->bsd", read, normal("out", 3, 2, 7))
    up, up_bias = dense("up", 7, 5)
    down, down_bias = dense("down", 5, 7)
    stream = stream + gelu(layer_norm(stream, "norm2") @ up + up_bias) @ down + down_bias
    classify(layer_norm(stream, "norm3")[:, -1] @ normal("read", 7, 3), labels)


# slices of a flattened axis keep one set of labels: only what queries, keys and values have in common is found
@CASES.add("attention-fused-kernel", "(S5)^3 x (S5)^3 x S3", SEQUENCES, IMAGE_LABELS, miss="S3 x S5")
def attention_fused_kernel(x, labels):
    """Queries, keys and values from one kernel."""
    fused = (x @ normal("fused", 3, 45)).reshape(4, 6, 3, 3, 5)
    read = attend(fused[:, :, 0], fused[:, :, 1], fused[:, :, 2])
    classify((read.reshape(4, 6, 15) @ normal("out", 15, 3)).sum(1), labels)


@CASES.add(
    "attention-rotary",
    "(S3)^2 x S2",
    SEQUENCES,
    IMAGE_LABELS,
    why="each pair of query and key dimensions turns at its own rate",
)
def attention_rotary(x, labels):
    """Rotary positions: dimensions of queries and keys have roles, values and heads have not."""
    angle = jnp.arange(6)[:, None] / 10.0 ** jnp.arange(2)

    def rotate(z):
        even, odd = z[..., 0::2], z[..., 1::2]
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        return jnp.concatenate([even * cos - odd * sin, even * sin + odd * cos], -1)

    query, key = (jnp.einsum("bsd,dhk->bshk", x, normal(name, 3, 2, 4)) for name in ("query", "key"))
    value = jnp.einsum("bsd,dhk->bshk", x, normal("value", 3, 2, 3))
    read = attend(rotate(query), rotate(key), value)
    classify(jnp.einsum("bshk,hko->bo", read, normal("out", 2, 3, 3)), labels)


@CASES.add("attention-grouped-queries", "(S2)^3 x (S4)^3 x (S5)^3 x S3", SEQUENCES, IMAGE_LABELS, shown="Networks")
def attention_grouped_queries(x, labels):
    """Two query heads share each of three heads of keys and values."""
    query = jnp.einsum("bsd,dghk->bsghk", x, normal("query", 3, 3, 2, 5))
    key = jnp.einsum("bsd,dgk->bsgk", x, normal("key", 3, 3, 5))
    value = jnp.einsum("bsd,dgk->bsgk", x, normal("value", 3, 3, 4))
    attention = softmax(jnp.einsum("bqghk,bsgk->bghqs", query, key))
    read = jnp.einsum("bghqs,bsgk->bqghk", attention, value)
    classify(jnp.einsum("bqghk,ghko->bo", read, normal("out", 3, 2, 4, 3)), labels)


@CASES.add("attention-latent-queries", "S4 x S5", SEQUENCES, IMAGE_LABELS)
def attention_latent_queries(x, labels):
    """Four latent queries read the sequence; what they found is summed after a nonlinearity."""
    query, key = normal("query", 4, 5), x @ normal("key", 3, 5)
    attention = softmax(jnp.einsum("qk,bsk->bqs", query, key))
    found = jnp.tanh(jnp.einsum("bqs,bsd->bqd", attention, x) @ normal("value", 3, 3))
    classify(found.sum(1), labels)


@CASES.add("lstm-fused-gates", "S5", SEQUENCES, IMAGE_LABELS, shown="Networks")
def lstm_fused_gates(x, labels):
    """An LSTM whose four gates share kernels of width 4 * 5."""
    read, recur, bias = normal("read", 3, 20), normal("recur", 5, 20), normal("bias", 20)

    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ read + h @ recur + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        return (sigmoid(o) * jnp.tanh(c), c), None

    (h, _), _ = lax.scan(step, (jnp.zeros((4, 5)), jnp.zeros((4, 5))), x.swapaxes(0, 1))
    classify(h @ normal("out", 5, 3), labels)


@CASES.add("gru-fused-gates", "S5", SEQUENCES, IMAGE_LABELS)
def gru_fused_gates(x, labels):
    """A GRU whose three gates share kernels of width 3 * 5, read out at every step."""
    read, recur, bias = normal("read", 3, 15), normal("recur", 5, 15), normal("bias", 15)

    def step(h, x):
        from_x, from_h = (x @ read + bias).reshape(4, 3, 5), (h @ recur).reshape(4, 3, 5)
        reset, update = sigmoid(from_x[:, 0] + from_h[:, 0]), sigmoid(from_x[:, 1] + from_h[:, 1])
        h = update * h + (1 - update) * jnp.tanh(from_x[:, 2] + reset * from_h[:, 2])
        return h, h

    _, states = lax.scan(step, jnp.zeros((4, 5)), x.swapaxes(0, 1), reverse=True)
    classify(states.mean(0) @ normal("out", 5, 3), labels)


@CASES.add("rnn-latent-start", "S4", SEQUENCES, IMAGE_LABELS, signed="±S4")
def rnn_latent_start(x, labels):
    """A recurrent network whose first state is latent, unrolled in Python."""
    h, read, recur = normal("start", 4), normal("read", 3, 4), normal("recur", 4, 4)
    for t in range(x.shape[1]):
        h = jnp.tanh(x[:, t] @ read + h @ recur)
    classify(h @ normal("out", 4, 3), labels)


@CASES.add("rnn-bidirectional", "S4 x S5", SEQUENCES, IMAGE_LABELS, signed="±S4 x ±S5")
def rnn_bidirectional(x, labels):
    """Two recurrent networks, one for each direction, joined at the end."""
    ends = []
    for width, reverse in ((4, False), (5, True)):
        read, recur = normal(f"read{width}", 3, width), normal(f"recur{width}", width, width)
        step = jax.checkpoint(lambda h, x, read=read, recur=recur: (jnp.tanh(x @ read + h @ recur), None))
        h, _ = lax.scan(step, jnp.zeros((4, width)), x.swapaxes(0, 1), reverse=reverse)
        ends.append(h)
    classify(jnp.concatenate(ends, -1) @ normal("out", 9, 3), labels)


@CASES.add("linear-recurrence", "S5", SEQUENCES, IMAGE_LABELS, signed="±S5")
def linear_recurrence(x, labels):
    """A diagonal state-space layer by an associative scan: each state has its decay."""
    decay = sigmoid(normal("decay", 5))
    drive = x @ normal("read", 3, 5)

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, states = lax.associative_scan(combine, (jnp.broadcast_to(decay, drive.shape), drive), axis=1)
    classify(jnp.tanh(states[:, -1]) @ normal("out", 5, 3), labels)


@CASES.add("neural-ode-euler", "S5", X, X[:, ::-1])
def neural_ode_euler(x, y):
    """Euler steps of a network's flow on the data's own space."""
    kernel, bias, back = normal("kernel", 3, 5), normal("bias", 5), normal("back", 5, 3)

    def step(state, t):
        return state + 0.1 * jax.nn.softplus(state @ kernel + t * bias) @ back, None

    state, _ = lax.scan(step, x, jnp.linspace(0.0, 1.0, 6))
    observe(state, y, numpyro.sample("scale", numpyro.distributions.HalfNormal(1.0)))
