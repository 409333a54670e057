"""Flax modules whose groups were derived before anybody looked at what `find_symmetry` follows."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from tests.gallery.functions.case import KEY, Functions, linen, normal, whole

CASES = Functions()
FLAX = ("flax",)


class Translate(nn.Module):
    @nn.compact
    def __call__(self, source, target):
        carry, _ = nn.RNN(nn.GRUCell(5), return_carry=True)(source)
        return nn.Dense(2)(nn.RNN(nn.GRUCell(5))(target, initial_carry=carry))


@CASES.add("±S5", needs=FLAX, precision="float32", slow=True)
def encoder_and_decoder():
    """The carry of one GRU starts the other, so that their units are one axis; a new state is a tanh, which is odd, and
    the gates read it by rows that may change their sign."""
    return linen(Translate(), normal(0, 2, 4, 3), normal(1, 2, 3, 3))


class BothWays(nn.Module):
    @nn.compact
    def __call__(self, x):
        rows = nn.Bidirectional(nn.RNN(nn.LSTMCell(4)), nn.RNN(nn.LSTMCell(3)))(x)
        return nn.Dense(2)(rows)


@CASES.add("±S4 x ±S3", needs=FLAX, precision="float32", slow=True)
def bidirectional_lstm():
    """Two LSTMs whose outputs stand side by side. The cell is a sum of tanhs, the output one more: odd in each unit."""
    return linen(BothWays(), normal(0, 2, 4, 3))


class GatedAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        stream = nn.Dense(6)(x)
        y = nn.LayerNorm()(stream)
        gate, value = nn.silu(nn.Dense(5)(y)), nn.silu(nn.Dense(5)(y))
        shared = nn.silu(nn.Dense(3)(y))
        scale = self.param("scale", nn.initializers.normal(1.0), (2, 3))
        shift = self.param("shift", nn.initializers.normal(1.0), (2, 3))
        queries, keys = shared * scale[0] + shift[0], shared * scale[1] + shift[1]
        seen = nn.relu(queries @ keys.swapaxes(-1, -2)) ** 2 / x.shape[-2]
        return nn.Dense(2)(stream + nn.Dense(6)(gate * (seen @ value)))


@CASES.add("S6 x S5 x ±S1 x ±S3", needs=FLAX)
def gated_attention_unit():
    """The stream under a layer norm, which may change its sign as a whole; gates with their values, neither odd; shared
    dimensions of queries and keys, whose scales and shifts may change their sign in both."""
    return linen(GatedAttention(), normal(0, 2, 4, 3))


class Grouped(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.swish(nn.GroupNorm(num_groups=3)(nn.Conv(6, (3, 3))(x)))
        x = nn.swish(nn.Conv(4, (3, 3))(x))
        return nn.Dense(2)(x.mean((1, 2)))


@CASES.add("S3 x (S2)^3 x S4", needs=FLAX)
def convolution_and_group_norm():
    """Three groups, two channels in each; the second convolution's channels."""
    return linen(Grouped(), normal(0, 2, 6, 6, 2))


class Inverted(nn.Module):
    @nn.compact
    def __call__(self, x):
        stream = nn.Conv(6, (1, 1))(x)
        y = nn.relu6(nn.Conv(10, (1, 1))(stream))
        y = nn.relu6(nn.Conv(10, (3, 3), feature_group_count=10)(y))
        return nn.Dense(2)((stream + nn.Conv(6, (1, 1))(y)).mean((1, 2)))


@CASES.add("±S6 x S10", needs=FLAX, slow=True)
def inverted_residual():
    """A linear stream, and channels that run through a depthwise convolution."""
    return linen(Inverted(), normal(0, 2, 6, 6, 2))


class GatedLayer(nn.Module):
    @nn.compact
    def __call__(self, stream, _):
        y = nn.RMSNorm()(stream)
        y = nn.silu(nn.Dense(5, use_bias=False)(y)) * nn.Dense(5, use_bias=False)(y)
        return stream + nn.Dense(6, use_bias=False)(y), None


class Stacked(nn.Module):
    @nn.compact
    def __call__(self, x):
        layers = nn.scan(GatedLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return nn.Dense(2)(layers()(nn.Dense(6)(x), None)[0])


@CASES.add("±S6 x (±S5)^3", needs=FLAX)
def scan_over_gated_layers():
    """A root mean square sees no signs, so the stream has them; in each of three layers values may change theirs, with
    the rows that read them, and gates may not."""
    return linen(Stacked(), normal(0, 4, 3))


class Expert(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(5)(x)))


class Switch(nn.Module):
    @nn.compact
    def __call__(self, x):
        chances = nn.softmax(nn.Dense(3)(x))
        experts = nn.vmap(Expert, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=3)
        gate = chances * jax.nn.one_hot(jnp.argmax(chances, -1), 3)
        return jnp.einsum("be,ebo->bo", gate, experts()(x))


@CASES.add("S3 x (S5)^3", needs=FLAX)
def switch_of_experts():
    """The likeliest expert alone, told by its position: experts move with their columns of the gate, units in each."""
    return linen(Switch(), normal(0, 6, 4))


class Hourglass(nn.Module):
    @nn.compact
    def __call__(self, x):
        wide = nn.relu(nn.Conv(4, (3,))(x))
        narrow = nn.relu(nn.Conv(5, (3,), strides=2)(wide))
        back = nn.tanh(nn.ConvTranspose(3, (2,), strides=(2,))(narrow))
        return nn.Conv(2, (3,))(jnp.concatenate([back, wide], -1))


@CASES.add("S4 x S5 x ±S3", needs=FLAX, slow=True)
def hourglass():
    """A U-Net over places of a line: what skips stands beside what comes back, which is odd."""
    return linen(Hourglass(), normal(0, 2, 8, 2))


class TiedTable(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = nn.Embed(11, 6)
        stream = table(tokens).mean(1)
        stream = stream + nn.Dense(6)(nn.gelu(nn.Dense(5)(stream)))
        return table.attend(stream)


@CASES.add("±S6 x S5", needs=FLAX)
def tied_embedding():
    """One table reads and writes a linear stream."""
    return linen(TiedTable(), whole(0, 11, 3, 4))


class BatchNormed(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.tanh(nn.BatchNorm(use_running_average=not train)(nn.Dense(7)(x)))
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x)))
        return nn.Dense(2)(x)


@CASES.add("±S7 x S4", needs=FLAX)
def batch_norm_in_training():
    """Statistics of the batch. Signs of the odd layer go through the norm; scales are positive and keep theirs."""
    net, x = BatchNormed(), normal(0, 9, 3)
    variables = net.init(KEY, x, True)
    stats = variables["batch_stats"]

    def logits(params, x):
        return net.apply({"params": params, "batch_stats": stats}, x, True, mutable=["batch_stats"])[0]

    return logits, (variables["params"], x)


@CASES.add("±S7 x S4", needs=FLAX)
def batch_norm_in_inference():
    """Running statistics are part of the tree and move with their units, the means with their signs."""
    net, x = BatchNormed(), normal(0, 9, 3)
    variables = net.init(KEY, x, True)
    _, stats = net.apply(variables, normal(1, 9, 3) + 1, True, mutable=["batch_stats"])
    return lambda v, x: net.apply(v, x, False), ({"params": variables["params"], **stats}, x)


class WeightNormed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.tanh(nn.WeightNorm(nn.Dense(5))(x)))


@CASES.add("±S5", needs=FLAX)
def weight_normalised():
    """A unit's direction and its length; the length is positive and keeps its sign."""
    return linen(WeightNormed(), normal(0, 4, 3))


class Perceiver(nn.Module):
    @nn.compact
    def __call__(self, x):
        latents = self.param("latents", nn.initializers.normal(1.0), (4, 6))
        latents = jnp.broadcast_to(latents, (len(x), 4, 6))
        read = nn.MultiHeadDotProductAttention(num_heads=1, qkv_features=5)(nn.LayerNorm()(latents), x)
        return nn.Dense(2)(nn.LayerNorm()(latents + read).mean(1))


@CASES.add("S4 x S6 x ±S1 x ±S5 x ±S5", needs=FLAX, slow=True)
def perceiver():
    """Latent rows that are averaged in the end; the stream that they are written in, under layer norms, whose sign may
    change as a whole; the dimensions that queries and keys share, and those of values, all linear."""
    return linen(Perceiver(), normal(0, 2, 7, 3))
