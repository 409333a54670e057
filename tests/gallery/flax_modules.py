"""Flax networks of the gallery. Needs flax: import it inside models only."""

import jax.numpy as jnp
from flax import linen as nn
from flax import nnx


class Perceptron(nn.Module):
    """Dense layers with relu between them."""

    widths: tuple[int, ...]
    out: int

    @nn.compact
    def __call__(self, x):
        for width in self.widths:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.out)(x)


class NnxPerceptron(nnx.Module):
    """One hidden layer of relu units."""

    def __init__(self, inputs, hidden, out, rngs):
        self.first = nnx.Linear(inputs, hidden, rngs=rngs)
        self.last = nnx.Linear(hidden, out, rngs=rngs)

    def __call__(self, x, rngs=None):
        return self.last(nnx.relu(self.first(x)))


class ConvFlattenDense(nn.Module):
    """Two convolutions with pooling, flattened into two dense layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(4, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(6, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(5)(x.reshape(x.shape[0], -1)))
        return nn.Dense(3)(x)


class DepthwiseConv(nn.Module):
    """A convolution, a depthwise one, the mean over the image."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.relu(nn.Conv(4, (3, 3), feature_group_count=4)(x))
        return nn.Dense(3)(x.mean((1, 2)))


class ResNet(nn.Module):
    """Stages of residual blocks; the width changes, and the image halves, from stage to stage."""

    widths: tuple[int, ...]
    blocks: int
    norm: str = "none"
    shortcut: str = "project"

    def normed(self, x):
        if self.norm == "instance":
            return nn.GroupNorm(num_groups=None, group_size=1)(x)
        if self.norm == "group":
            return nn.GroupNorm(num_groups=2)(x)
        return x

    @nn.compact
    def __call__(self, x):
        x = nn.relu(self.normed(nn.Conv(self.widths[0], (3, 3), use_bias=False)(x)))
        for stage, width in enumerate(self.widths):
            for block in range(self.blocks):
                strides = (2, 2) if stage and not block else (1, 1)
                h = nn.relu(self.normed(nn.Conv(width, (3, 3), strides, use_bias=False)(x)))
                h = self.normed(nn.Conv(width, (3, 3), use_bias=False)(h))
                if strides == (2, 2):
                    x = self.widened(x, width)
                x = nn.relu(x + h)
        return nn.Dense(3)(x.mean((1, 2)))

    def widened(self, x, width):
        if self.shortcut == "pad":
            return jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (0, width - x.shape[-1])))
        return nn.Conv(width, (1, 1), (2, 2), use_bias=False)(x)


class ConvBatchNorm(nn.Module):
    """Convolutions with batch norm over the batch at hand."""

    @nn.compact
    def __call__(self, x):
        for width in (4, 5):
            x = nn.Conv(width, (3, 3), use_bias=False)(x)
            centred = x - x.mean((0, 1, 2))
            x = nn.relu(centred / jnp.sqrt((centred**2).mean((0, 1, 2)) + 1e-3))
            x = x * self.param(f"gain{width}", nn.initializers.ones, (width,))
        return nn.Dense(3)(x.mean((1, 2)))


class DenseBatchNorm(nn.Module):
    """Five units behind Flax's batch norm."""

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False)(nn.Dense(5)(x))
        return nn.Dense(1)(nn.relu(x))


class SqueezeExcite(nn.Module):
    """A convolution whose channels a bottleneck of two units scales."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(5, (3, 3))(x))
        scale = nn.sigmoid(nn.Dense(5)(nn.relu(nn.Dense(2)(x.mean((1, 2))))))
        return nn.Dense(3)((x * scale[:, None, None]).max((1, 2)))


class GroupedConv(nn.Module):
    """Four channels, then six in two groups."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.relu(nn.Conv(6, (3, 3), feature_group_count=2)(x))
        return nn.Dense(3)(x.mean((1, 2)))


class NnxConv(nnx.Module):
    """Two convolutions, the first strided, with a layer norm between."""

    def __init__(self, rngs):
        self.first = nnx.Conv(1, 4, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.second = nnx.Conv(4, 5, (3, 3), rngs=rngs)
        self.out = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x, rngs=None):
        x = nnx.relu(self.norm(self.first(x)))
        return self.out(nnx.relu(self.second(x)).mean((1, 2)))


class NnxBatchNorm(nnx.Module):
    """Five units behind a batch norm, which keeps its running averages in the precision that it was made in."""

    def __init__(self, rngs):
        self.first = nnx.Linear(3, 5, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.out = nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.norm(self.first(x))))


class NnxTwoLayers(nnx.Module):
    """Two hidden layers."""

    def __init__(self, rngs):
        self.first = nnx.Linear(3, 5, rngs=rngs)
        self.second = nnx.Linear(5, 4, rngs=rngs)
        self.out = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x, rngs=None):
        return self.out(nnx.gelu(self.second(nnx.tanh(self.first(x)))))


class Recurrent(nn.Module):
    """A recurrent layer of five units, read at its last step."""

    cell: str

    @nn.compact
    def __call__(self, x):
        cell = getattr(nn, self.cell)(5, param_dtype=jnp.result_type(float))
        return nn.Dense(3)(nn.RNN(cell)(x)[:, -1])


class AttentionBlock(nn.Module):
    """Embedding, layer norm, attention with two heads of three dimensions, residual."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(5)(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6)(nn.LayerNorm()(x))
        return nn.Dense(3)(x.mean(1))


class Block(nn.Module):
    """A residual block of four units, to be scanned over."""

    @nn.compact
    def __call__(self, x, _):
        return x + nn.Dense(x.shape[-1])(nn.tanh(nn.Dense(4)(x))), None


class ScannedBlocks(nn.Module):
    """Three residual blocks in one stack of parameters."""

    @nn.compact
    def __call__(self, x):
        blocks = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = blocks()(nn.Dense(7)(x), None)
        return nn.Dense(1)(x)


class CopiedNets(nn.Module):
    """Three networks of five units, logits of shape (3, data)."""

    @nn.compact
    def __call__(self, x):
        nets = nn.vmap(Perceptron, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=3)
        return nets((5,), 1)(x)[..., 0]


class EmbedMean(nn.Module):
    """The mean of embeddings, a dense layer."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(7, 5)(tokens.astype(int)).mean(1)
        return nn.Dense(1)(nn.relu(nn.Dense(4)(x)))
