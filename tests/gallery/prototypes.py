"""The networks of the prototype's labelled models."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import gelu, relu, silu

from tests.gallery.case import Cases
from tests.gallery.parts import (
    IMAGE_LABELS,
    IMAGES,
    LABELS,
    PAIRS,
    SEQUENCES,
    X,
    Y,
    classify,
    dense,
    normal,
    observe,
)

CASES = Cases()


def perceptron(x, out, widths, activation):
    """A multilayer perceptron's output."""
    *hidden, last = zip([x.shape[-1], *widths], [*widths, out], strict=True)
    for i, shape in enumerate(hidden):
        kernel, bias = dense(f"layer{i}", *shape)
        x = activation(x @ kernel + bias)
    kernel, bias = dense("out", *last)
    return x @ kernel + bias


@CASES.add("mlp-1-layer", "S5", X, PAIRS, signed="±S5", shown="Networks")
def mlp_one_layer(x, y):
    """One hidden layer of tanh units, latent noise, a plate of data."""
    mean = perceptron(x, 2, [5], jnp.tanh)
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(mean, scale).to_event(1), obs=y)


@CASES.add("mlp-3-layers", "S4 x S5 x S6", X, PAIRS, signed="S4 x S5 x S6", quick=True, shown="Networks")
def mlp_three_layers(x, y):
    """Three hidden layers of relu units."""
    mean = perceptron(x, 2, [5, 4, 6], relu)
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(mean, scale).to_event(1), obs=y)


@CASES.add("mlp-plate", "S5", X, Y)
def mlp_plate(x, y):
    """Units in a plate, inputs in another."""
    with numpyro.plate("units", 5):
        bias = numpyro.sample("bias", dist.Normal(0, 1))
        out = numpyro.sample("out", dist.Normal(0, 1))
        with numpyro.plate("inputs", x.shape[1]):
            kernel = numpyro.sample("kernel", dist.Normal(0, 1))
    observe(gelu(x @ kernel + bias) @ out, y)


@CASES.add("mlp-ordered-prior-scales", "trivial", X, Y, why="every unit has its own prior scale")
def mlp_ordered_scales(x, y):
    """A different prior scale for each unit's output weight."""
    out = numpyro.sample("out", dist.Normal(0, jnp.array([1.0, 0.5, 0.25, 0.1])))
    observe(jnp.tanh(x @ normal("kernel", 3, 4)) @ out, y)


@CASES.add(
    "mlp-two-prior-scales",
    "S2 x S3",
    X,
    Y,
    signed="±S2 x ±S3",
    why="units differ by prior scale",
    quick=True,
    shown="Networks",
)
def mlp_two_scales(x, y):
    """Two prior scales: units of two kinds."""
    out = numpyro.sample("out", dist.Normal(0, jnp.array([1.0, 1.0, 0.5, 0.5, 0.5])))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("mlp-latent-unit-scales", "S5", X, Y)
def mlp_latent_scales(x, y):
    """Horseshoe scales of the units, themselves latent."""
    overall = numpyro.sample("overall", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([5]).to_event(1))
    out = numpyro.sample("out", dist.Normal(0, overall * local).to_event(1))
    observe(jnp.tanh(x @ normal("kernel", 3, 5)) @ out, y)


@CASES.add("mlp-flat-weights", "S5", X, Y, quick=True, shown="Networks")
def mlp_flat_weights(x, y):
    """All weights in one vector, cut and reshaped."""
    theta = normal("theta", 26)
    kernel, bias, out, offset = theta[:15].reshape(3, 5), theta[15:20], theta[20:25], theta[25]
    observe(jnp.tanh(x @ kernel + bias) @ out + offset, y)


def residual_blocks(x, widths):
    """Add the outputs of relu blocks to ``x``."""
    for i, width in enumerate(widths):
        up, up_bias = dense(f"up{i}", x.shape[-1], width)
        down, down_bias = dense(f"down{i}", width, x.shape[-1])
        x = x + relu(x @ up + up_bias) @ down + down_bias
    return x


@CASES.add("residual-mlp", "S4 x S6 x S7", X, PAIRS, signed="S4 x S6 x ±S7", shown="Networks")
def residual_mlp(x, y):
    """Two residual blocks on one stream."""
    kernel, bias = dense("in", 3, 7)
    stream = residual_blocks(x @ kernel + bias, [4, 6])
    kernel, bias = dense("out", 7, 2)
    observe(stream @ kernel + bias, y)


@CASES.add("residual-mlp-on-inputs", "S4 x S6", X, PAIRS, why="the stream starts as the data's columns")
def residual_mlp_on_inputs(x, y):
    """Two residual blocks on the inputs themselves."""
    kernel, bias = dense("out", 3, 2)
    observe(residual_blocks(x, [4, 6]) @ kernel + bias, y)


@CASES.add("layer-norm-residual", "S4 x S7", X, PAIRS, signed="S4 x S7 x ±S1")
def layer_norm_residual(x, y):
    """A residual block that reads its stream, whose sign may change as a whole, through a layer norm."""
    kernel, bias = dense("in", 3, 7)
    stream = x @ kernel + bias
    gain = normal("gain", 7, loc=1.0, scale=0.1)
    centred = stream - stream.mean(-1, keepdims=True)
    normed = centred / jnp.sqrt(stream.var(-1, keepdims=True) + 1e-5) * gain
    up, up_bias = dense("up", 7, 4)
    down, down_bias = dense("down", 4, 7)
    stream = stream + silu(normed @ up + up_bias) @ down + down_bias
    kernel, bias = dense("out", 7, 2)
    observe(stream @ kernel + bias, y)


@CASES.add("residual-scan-stacked", "(S4)^3 x S7", X, PAIRS, signed="(±S4)^3 x ±S7", quick=True, shown="Networks")
def residual_scan_stacked(x, y):
    """Three blocks, stacked in arrays and scanned over."""
    kernel, bias = dense("in", 3, 7)
    up, down = normal("up", 3, 7, 4), normal("down", 3, 4, 7)
    stream, _ = jax.lax.scan(
        lambda h, block: (h + jnp.tanh(h @ block[0]) @ block[1], None), x @ kernel + bias, (up, down)
    )
    kernel, bias = dense("out", 7, 2)
    observe(stream @ kernel + bias, y)


@CASES.add("mlp-categorical", "S5", X, LABELS)
def mlp_categorical(x, labels):
    """A classifier with one hidden layer."""
    classify(perceptron(x, 3, [5], relu), labels)


@CASES.add("ensemble-vmap", "(S5)^3 x S3", X, LABELS > 0, signed="(±S5)^3 x S3", quick=True, shown="Networks")
def ensemble_vmap(x, labels):
    """Three networks in one array; their probabilities are averaged (averaged outputs are one network of 15 units)."""
    kernel, out = normal("kernel", 3, 3, 5), normal("out", 3, 5)
    logits = jax.vmap(lambda kernel, out: jnp.tanh(x @ kernel) @ out)(kernel, out)
    numpyro.sample("obs", dist.Bernoulli(jax.nn.sigmoid(logits).mean(0)), obs=labels)


@CASES.add("linen-mlp-random", "S4 x S5", X, PAIRS, needs=("flax",), shown="Networks")
def linen_mlp_random(x, y):
    """A Flax linen network with a prior on its parameters."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery.flax_modules import Perceptron

    net = random_flax_module("nn", Perceptron((5, 4), 2), prior=dist.Normal(0, 1), input_shape=(1, 3))
    observe(net(x), y)


@CASES.add("linen-mlp-param", "S4 x S5", X, PAIRS, needs=("flax",), quick=True)
def linen_mlp_param(x, y):
    """A Flax linen network whose parameters are optimised."""
    from numpyro.contrib.module import flax_module

    from tests.gallery.flax_modules import Perceptron

    observe(flax_module("nn", Perceptron((5, 4), 2), input_shape=(1, 3))(x), y)


@CASES.add("nnx-mlp-random", "S5", X, PAIRS, needs=("flax",))
def nnx_mlp_random(x, y):
    """A Flax nnx network with a prior on its parameters."""
    from flax import nnx
    from numpyro.contrib.module import random_nnx_module

    from tests.gallery.flax_modules import NnxPerceptron

    net = random_nnx_module("nn", NnxPerceptron(3, 5, 2, nnx.Rngs(0)), prior=dist.Normal(0, 1))
    observe(net(x), y)


@CASES.add("convnet-flatten-dense", "S4 x S5 x S6", IMAGES, IMAGE_LABELS, needs=("flax",), shown="Networks")
def convnet_flatten_dense(images, labels):
    """Convolutions and pooling, flattened into dense layers."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery.flax_modules import ConvFlattenDense

    net = random_flax_module("nn", ConvFlattenDense(), prior=dist.Normal(0, 1), input_shape=(1, 8, 8, 1))
    classify(net(images), labels)


@CASES.add("convnet-depthwise", "S4", IMAGES, IMAGE_LABELS, needs=("flax",))
def convnet_depthwise(images, labels):
    """A depthwise convolution keeps the channels of the one before."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery.flax_modules import DepthwiseConv

    net = random_flax_module("nn", DepthwiseConv(), prior=dist.Normal(0, 1), input_shape=(1, 8, 8, 1))
    classify(net(images), labels)


@CASES.add("attention-multi-head", "(S3)^4 x (S5)^4 x S4", SEQUENCES, IMAGE_LABELS, signed="(±S3)^4 x (±S5)^4 x S4")
def attention_multi_head(x, labels):
    """Four heads; queries and keys of five dimensions, values of three."""
    query, key, value = normal("query", 3, 20), normal("key", 3, 20), normal("value", 3, 12)
    query, key, value = ((x @ w).reshape(4, 6, 4, -1) for w in (query, key, value))
    attention = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) / 5**0.5)
    read = jnp.einsum("bhqk,bkhd->bqhd", attention, value).reshape(4, 6, 12)
    classify((read @ normal("out", 12, 3)).mean(1), labels)


MASK = jnp.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@CASES.add(
    "mlp-masked", "S2 x S3", X, Y, signed="±S2 x ±S3", why="units differ by the inputs they see", shown="Networks"
)
def mlp_masked(x, y):
    """A fixed sparse mask on the kernel."""
    observe(jnp.tanh(x @ (normal("kernel", 3, 5) * MASK)) @ normal("out", 5), y)


@CASES.add("rnn-scan", "S4", SEQUENCES, IMAGE_LABELS, signed="±S4", shown="Networks")
def rnn_scan(x, labels):
    """A recurrent network: the same units at every step."""
    read, recur = normal("read", 3, 4), normal("recur", 4, 4)
    kernel, bias = dense("out", 4, 3)
    state, _ = jax.lax.scan(
        lambda h, x: (jnp.tanh(x @ read + h @ recur), None), jnp.zeros((4, 4)), jnp.swapaxes(x, 0, 1)
    )
    classify(state @ kernel + bias, labels)
