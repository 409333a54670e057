"""Flax networks: convolutions, residual nets, recurrent cells, attention, stacked and copied layers."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from tests.gallery.case import Cases
from tests.gallery.parts import IMAGE_LABELS, IMAGES, SEQUENCES, TOKENS, X, Y, categories, classify, gaussian, observe

CASES = Cases()
CROPS = gaussian(30, 2, 8, 8, 3)
CROP_LABELS = categories(31, 2, 2)


def linen(name, *args, **fields):
    """Return a network of `flax_modules` with a standard normal prior on its parameters."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery import flax_modules

    shape = fields.pop("input_shape")
    return random_flax_module("nn", getattr(flax_modules, name)(*args, **fields), dist.Normal(0, 1), input_shape=shape)


def factors(*sizes):
    """The text of a group with one factor for each size."""
    return " x ".join(sorted(f"S{size}" for size in sizes))


@CASES.add(
    "resnet-20",
    factors(*[4] * 4, *[6] * 4, *[8] * 4),
    CROPS,
    CROP_LABELS,
    needs=("flax",),
    search="too many axes to search; the swaps in the label were tested one by one",
    shown="Networks",
)
def resnet_20(images, labels):
    """ResNet20 on crops: three stages of three blocks, widths 4, 6, 8, projections where widths change."""
    classify(linen("ResNet", (4, 6, 8), 3, input_shape=(1, 8, 8, 3))(images), labels)


@CASES.add("resnet-instance-norm", factors(4, 4, 6, 6), CROPS, CROP_LABELS, needs=("flax",))
def resnet_instance_norm(images, labels):
    """A small residual net that normalises each channel over the image."""
    classify(linen("ResNet", (4, 6), 1, norm="instance", input_shape=(1, 8, 8, 3))(images), labels)


@CASES.add(
    "resnet-group-norm",
    "(S4)^2 x (S4)^2 x S2 x S2",
    CROPS,
    CROP_LABELS,
    needs=("flax",),
    search="too many axes to search; the swaps in the label were tested one by one",
)
def resnet_group_norm(images, labels):
    """Group norm lets groups of channels move, and channels inside them, in the stream and in the block."""
    classify(linen("ResNet", (8,), 1, norm="group", input_shape=(1, 8, 8, 3))(images), labels)


@CASES.add(
    "resnet-padded-shortcut",
    "S2 x S4 x S4 x S6",
    CROPS,
    CROP_LABELS,
    why="padding makes channels of the second stage's stream continue the first's",
    needs=("flax",),
)
def resnet_padded_shortcut(images, labels):
    """Shortcuts that pad with zero channels: four channels run through both stages, two begin in the second."""
    classify(linen("ResNet", (4, 6), 1, shortcut="pad", input_shape=(1, 8, 8, 3))(images), labels)


@CASES.add("linen-batch-norm-by-hand", "S4 x S5", IMAGES, IMAGE_LABELS, needs=("flax",))
def linen_batch_norm_by_hand(images, labels):
    """Batch norm over the batch at hand, between convolutions."""
    classify(linen("ConvBatchNorm", input_shape=(1, 8, 8, 1))(images), labels)


@CASES.add(
    "linen-batch-norm",
    "S5",
    X,
    Y,
    why="the bias before the norm, which the norm does not see, moves with the units",
    needs=("flax",),
    search="the bias before the norm has no effect, so it may move alone",
)
def linen_batch_norm(x, y):
    """Flax's batch norm in training mode, with its running averages as mutable state."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery.flax_modules import DenseBatchNorm

    state = ["batch_stats"]
    net = random_flax_module("nn", DenseBatchNorm(), dist.Normal(0, 1), input_shape=(1, 3), mutable=state)
    observe(net(x)[:, 0], y)


@CASES.add("squeeze-excite", "S2 x S5", IMAGES, IMAGE_LABELS, needs=("flax",))
def squeeze_excite(images, labels):
    """Channels scaled by what a small network says about their means."""
    classify(linen("SqueezeExcite", input_shape=(1, 8, 8, 1))(images), labels)


@CASES.add("grouped-convolution", "(S2)^2 x (S3)^2 x S2", IMAGES, IMAGE_LABELS, needs=("flax",))
def grouped_convolution(images, labels):
    """A convolution in two groups: groups move with their inputs and outputs, and channels inside each."""
    classify(linen("GroupedConv", input_shape=(1, 8, 8, 1))(images), labels)


@CASES.add("nnx-convnet", "S4 x S5", IMAGES, IMAGE_LABELS, needs=("flax",), shown="Networks")
def nnx_convnet(images, labels):
    """Strided convolutions and a layer norm over channels, in nnx."""
    from flax import nnx
    from numpyro.contrib.module import random_nnx_module

    from tests.gallery.flax_modules import NnxConv

    classify(random_nnx_module("nn", NnxConv(nnx.Rngs(0)), prior=dist.Normal(0, 1))(images), labels)


@CASES.add("nnx-batch-norm", "S5", X, Y, needs=("flax",))
def nnx_batch_norm(x, y):
    """An nnx batch norm in training mode, which scatters new running averages into its state."""
    from flax import nnx
    from numpyro.contrib.module import random_nnx_module

    from tests.gallery.flax_modules import NnxBatchNorm

    net = random_nnx_module("nn", NnxBatchNorm(nnx.Rngs(0)), prior=dist.Normal(0, 1))
    observe(net(x)[:, 0], y)


@CASES.add("nnx-params", "S4 x S5", SEQUENCES, IMAGE_LABELS, needs=("flax",))
def nnx_params(x, labels):
    """An nnx network whose parameters are optimised."""
    from flax import nnx
    from numpyro.contrib.module import nnx_module

    from tests.gallery.flax_modules import NnxTwoLayers

    classify(nnx_module("nn", NnxTwoLayers(nnx.Rngs(0)))(x.mean(1)), labels)


@CASES.add("flax-lstm", "S5", SEQUENCES, IMAGE_LABELS, needs=("flax",))
def flax_lstm(x, labels):
    """Flax's optimised LSTM in a recurrent layer."""
    classify(linen("Recurrent", "OptimizedLSTMCell", input_shape=(1, 6, 3))(x), labels)


@CASES.add("flax-gru", "S5", SEQUENCES, IMAGE_LABELS, needs=("flax",))
def flax_gru(x, labels):
    """Flax's GRU in a recurrent layer."""
    classify(linen("Recurrent", "GRUCell", input_shape=(1, 6, 3))(x), labels)


@CASES.add(
    "flax-attention",
    "(S3)^2 x (S3)^2 x S2 x S5",
    SEQUENCES,
    IMAGE_LABELS,
    why="the key bias, which a softmax does not see, moves with the keys",
    needs=("flax",),
    search="the key bias has no effect, so it may move alone",
    shown="Networks",
)
def flax_attention(x, labels):
    """Flax's multi-head attention behind a layer norm, on a residual stream."""
    classify(linen("AttentionBlock", input_shape=(1, 6, 3))(x), labels)


@CASES.add("flax-scanned-blocks", "(S4)^3 x S7", X, Y, needs=("flax",))
def flax_scanned_blocks(x, y):
    """Three residual blocks stacked by nn.scan, each in nn.remat."""
    observe(linen("ScannedBlocks", input_shape=(1, 3))(x)[:, 0], y)


@CASES.add("flax-vmapped-nets", "(S5)^3 x S3", X, Y > 0, needs=("flax",))
def flax_vmapped_nets(x, y):
    """Three networks by nn.vmap; their probabilities are averaged."""
    logits = linen("CopiedNets", input_shape=(1, 3))(x)
    probability = 1 / (1 + jnp.exp(-logits))
    numpyro.sample("obs", dist.Bernoulli(probability.mean(0)), obs=y)


@CASES.add("flax-embed", "S4 x S5", TOKENS, gaussian(32, 6), needs=("flax",))
def flax_embed(tokens, y):
    """An embedding table and a dense layer."""
    observe(linen("EmbedMean", input_shape=(1, 9))(tokens)[:, 0], y)


@CASES.add("vae-decoder", "S2 x S5", X, needs=("flax",))
def vae_decoder(x):
    """A latent code of two numbers for each datum, decoded by a network."""
    from numpyro.contrib.module import flax_module

    from tests.gallery.flax_modules import Perceptron

    decode = flax_module("decoder", Perceptron((5,), 3), input_shape=(1, 2))
    with numpyro.plate("data", len(x)):
        code = numpyro.sample("code", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("obs", dist.Normal(decode(code), 0.1).to_event(1), obs=x)


@CASES.add("linen-mixed-priors", "S2 x S3 x S4", X, Y, needs=("flax",), why="biases of the first layer differ in scale")
def linen_mixed_priors(x, y):
    """A prior for each parameter; one of them has two scales."""
    from numpyro.contrib.module import random_flax_module

    from tests.gallery.flax_modules import Perceptron

    def prior(name, shape):
        if name == "Dense_0.bias":
            return dist.Normal(0, jnp.array([1.0, 2.0, 1.0, 2.0, 2.0])).to_event(1)
        return dist.Normal(0, 1 / shape[0] ** 0.5)

    net = random_flax_module("nn", Perceptron((5, 4), 1), prior, input_shape=(1, 3))
    observe(net(x)[:, 0], y)
