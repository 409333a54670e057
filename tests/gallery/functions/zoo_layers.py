"""Dense networks and convolutions in Flax."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tests.gallery.functions.case import KEY, Functions, linen, normal

CASES = Functions()
FLAX = ("flax",)

# ---- dense -----------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    widths: tuple = (64, 32)
    out: int = 10
    act: Any = nn.relu
    dtype: Any = None

    @nn.compact
    def __call__(self, x):
        for n in self.widths:
            x = self.act(nn.Dense(n, dtype=self.dtype)(x))
        return nn.Dense(self.out, dtype=self.dtype)(x)


@CASES.add("S64 x S32", signs=False, needs=FLAX)
def mlp():
    """Units of two hidden layers."""
    return linen(MLP(), normal(1, 8, 20))


@CASES.add("S128 x S128 x S128", signs=False, needs=FLAX, slow=True)
def mlp_wide():
    """Units of three wide layers."""
    return linen(MLP((128, 128, 128)), normal(2, 8, 20))


@CASES.add("±S16 x ±S12", needs=FLAX)
def mlp_tanh_signs():
    """A tanh is odd."""
    return linen(MLP((16, 12), 3, nn.tanh), normal(3, 8, 5))


@CASES.add("S64 x S32", signs=False, needs=FLAX, precision="bfloat16")
def mlp_bfloat16():
    """The same, computed in half precision."""
    return linen(MLP(dtype=jnp.bfloat16), normal(4, 8, 20))


@CASES.add("S64 x S32", signs=False, needs=FLAX, precision="bfloat16")
def mlp_bfloat16_params():
    """The same, kept in half precision."""
    f, (v, x) = linen(MLP(dtype=jnp.bfloat16), normal(5, 8, 20))
    return f, (jax.tree.map(lambda a: a.astype(jnp.bfloat16), v), x)


@CASES.add("S64 x S32", signs=False, needs=FLAX, precision="float32")
def mlp_float32_dtype():
    """The same, pinned to single precision."""
    return linen(MLP(dtype=jnp.float32), normal(6, 8, 20))


class ResidualMLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Dense(16)(x)
        for _ in range(2):
            h = h + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(h))))
        return nn.Dense(10)(nn.LayerNorm()(h))


@CASES.add("S16 x S32 x S32", signs=False, needs=FLAX, slow=True)
def mlp_layernorm_residual():
    """A stream under layer norms, and the units of each branch."""
    return linen(ResidualMLP(), normal(7, 8, 20))


class DropoutMLP(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(nn.Dense(32)(x)))
        return nn.Dense(10)(x)


@CASES.add("S32", signs=False, needs=FLAX)
def dropout_off():
    """Units that are all kept."""
    m, x = DropoutMLP(), normal(8, 8, 20)
    v = m.init(KEY, x, False)
    return lambda v, x: m.apply(v, x, False), (v, x)


@CASES.add("trivial", signs=False, needs=FLAX)
def dropout_on_closed_key():
    """A key that the function closes over drops some units and not others."""
    m, x = DropoutMLP(), normal(9, 8, 20)
    v = m.init(KEY, x, False)
    return lambda v, x: m.apply(v, x, True, rngs={"dropout": jax.random.key(1)}), (v, x)


@CASES.add("trivial", signs=False, needs=FLAX)
def dropout_on_key_argument():
    """A key as an argument is data."""
    m, x = DropoutMLP(), normal(10, 8, 20)
    v = m.init(KEY, x, False)
    return lambda v, x, k: m.apply(v, x, True, rngs={"dropout": k}), (v, x, jax.random.key(1))


@CASES.add("S64 x S32", signs=False, needs=FLAX)
def key_and_counter_in_tree():
    """Keys and counters stay where they are."""
    m, x = MLP(), normal(11, 8, 20)
    tree = {"net": m.init(KEY, x), "rng": jax.random.key(1), "step": jnp.int32(3), "raw": jax.random.PRNGKey(0)}
    return lambda t, x: m.apply(t["net"], x) * (1 + t["step"]), (tree, x)


@CASES.add("S12", signs=False, needs=FLAX)
def pruning_mask_in_tree():
    """Two leaves, weights and a boolean mask: the mask moves with its weights."""
    m, x = MLP((12,), 3), normal(12, 8, 5)
    v = m.init(KEY, x)
    mask = jax.tree.map(lambda a: np.random.default_rng(a.size).random(a.shape) < 0.5, v)
    return lambda t, x: m.apply(jax.tree.map(jnp.multiply, t["v"], t["mask"]), x), ({"v": v, "mask": mask}, x)


class SwiGLU(nn.Module):
    fused: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(16)(x)
        for _ in range(2):
            y = nn.RMSNorm()(h)
            if self.fused:
                a, b = jnp.split(nn.Dense(64, use_bias=False)(y), 2, -1)
            else:
                a, b = nn.Dense(32, use_bias=False)(y), nn.Dense(32, use_bias=False)(y)
            h = h + nn.Dense(16, use_bias=False)(nn.silu(a) * b)
        return nn.Dense(10)(h)


@CASES.add("S16 x S32 x S32", signs=False, needs=FLAX)
def swiglu():
    """Gates move with their values; the stream, by rows and columns."""
    return linen(SwiGLU(), normal(13, 8, 20))


@CASES.add("S16 x S32 x S32", signs=False, needs=FLAX, slow=True)
def swiglu_fused():
    """The same where gates and values are halves of one kernel."""
    return linen(SwiGLU(True), normal(14, 8, 20))


@CASES.add("S32", signs=False, needs=FLAX)
def weight_norm():
    """A unit's direction and its length."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(nn.relu(nn.WeightNorm(nn.Dense(32))(x)))

    return linen(Net(), normal(15, 8, 20))


# ---- convolutions ----------------------------------------------------------------------------------------------------


class Norm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(x)


class VGG(nn.Module):
    @nn.compact
    def __call__(self, x):
        for n, pool in ((16, False), (32, True), (32, True)):
            x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(n, (3, 3))(x)))
            x = nn.max_pool(x, (2, 2), (2, 2)) if pool else x
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x.mean((1, 2)))))


@CASES.add("S16 x S32 x S32 x S64", signs=False, needs=FLAX, slow=True)
def vgg_batchnorm():
    """Channels with their statistics, and units of a dense layer."""
    return linen(VGG(), normal(16, 4, 16, 16, 3))


class ConvFlatten(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(32)(x.reshape(len(x), -1))))


@CASES.add("S8 x S16 x S32", signs=False, needs=FLAX)
def conv_flatten_dense():
    """Channels that a dense layer reads flattened with their places."""
    return linen(ConvFlatten(), normal(17, 4, 12, 12, 1))


class ResNet20(nn.Module):
    base: int = 4
    train: bool = False

    @nn.compact
    def __call__(self, x):
        norm = partial(nn.BatchNorm, use_running_average=not self.train)
        x = nn.relu(norm()(nn.Conv(self.base, (3, 3), use_bias=False)(x)))
        for stage in range(3):
            for block in range(3):
                n, s = self.base * 2**stage, 2 if stage and not block else 1
                y = nn.relu(norm()(nn.Conv(n, (3, 3), (s, s), use_bias=False)(x)))
                y = norm()(nn.Conv(n, (3, 3), use_bias=False)(y))
                x = norm()(nn.Conv(n, (1, 1), (s, s), use_bias=False)(x)) if s > 1 else x
                x = nn.relu(x + y)
        return nn.Dense(10)(x.mean((1, 2)))


@CASES.add("S4 x S4 x S4 x S4 x S8 x S8 x S8 x S8 x S16 x S16 x S16 x S16", signs=False, needs=FLAX, slow=True)
def resnet20():
    """The first stream and two more, and the inner channels of nine blocks."""
    return linen(ResNet20(), normal(18, 2, 16, 16, 3))


@CASES.add("S4 x S4 x S4 x S4 x S8 x S8 x S8 x S8 x S16 x S16 x S16 x S16", signs=False, needs=FLAX, slow=True)
def resnet20_training_logits():
    """Batch statistics of the batch itself: the running ones are not used, and nothing proves how they move."""
    m, x = ResNet20(4, True), normal(19, 4, 16, 16, 3)
    v = m.init(KEY, x)

    def logits(params, stats, x):
        return m.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])[0]

    return logits, (v["params"], v["batch_stats"], x)


@CASES.add("trivial", signs=False, needs=FLAX, slow=True)
def resnet20_training_stats_returned():
    """The new statistics are an output in the order of the channels: nothing may move."""
    m, x = ResNet20(4, True), normal(20, 4, 16, 16, 3)
    v = m.init(KEY, x)
    return lambda v, x: m.apply(v, x, mutable=["batch_stats"]), (v, x)


@CASES.add("S64", signs=False, needs=FLAX)
def batchnorm_stats_left_out():
    """Parameters without their statistics: these are data, and pin the channels."""
    f, (v, x) = vgg_batchnorm()
    return lambda p, s, x: f({"params": p, "batch_stats": s}, x), (v["params"], v["batch_stats"], x)


class Depthwise(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        x = nn.relu(nn.Conv(16, (3, 3), feature_group_count=16)(x))
        x = nn.relu(nn.Conv(24, (1, 1))(x))
        x = nn.relu(nn.Conv(48, (3, 3), feature_group_count=24)(x))
        return nn.Dense(10)(x.mean((1, 2)))


@CASES.add("S16 x S24 x (S2)^24", signs=False, needs=FLAX, slow=True)
def depthwise():
    """16 through the first; 24 with two outputs each through the second, which may be exchanged in each."""
    return linen(Depthwise(), normal(21, 4, 8, 8, 3))


class GroupNormNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(4)(nn.Conv(16, (3, 3))(x)))
        return nn.Dense(10)(x.mean((1, 2)))


@CASES.add("S4 x (S4)^4", signs=False, needs=FLAX)
def groupnorm():
    """Groups of channels, and channels in each."""
    return linen(GroupNormNet(), normal(22, 4, 8, 8, 3))


class UNet(nn.Module):
    resize: bool = False

    @nn.compact
    def __call__(self, x):
        a = nn.relu(nn.Conv(8, (3, 3))(x))
        b = nn.relu(nn.Conv(12, (3, 3))(nn.max_pool(a, (2, 2), (2, 2))))
        c = nn.relu(nn.Conv(16, (3, 3))(nn.max_pool(b, (2, 2), (2, 2))))
        for n, skip in ((12, b), (8, a)):
            if self.resize:
                c = jax.image.resize(c, (*skip.shape[:3], c.shape[-1]), "bilinear")
                c = nn.relu(nn.Conv(n, (3, 3))(c))
            else:
                c = nn.relu(nn.ConvTranspose(n, (2, 2), (2, 2))(c))
            c = nn.relu(nn.Conv(n, (3, 3))(jnp.concatenate([c, skip], -1)))
        return nn.Conv(2, (1, 1))(c)


@CASES.add("S8 x S12 x S16 x S12 x S12 x S8 x S8", signs=False, needs=FLAX, slow=True)
def unet():
    """Channels on the way down and up, those that skip beside those that come back."""
    return linen(UNet(), normal(23, 2, 16, 16, 3))


@CASES.add("S8 x S12 x S16 x S12 x S12 x S8 x S8", signs=False, needs=FLAX, slow=True)
def unet_resize():
    """The same, resized between."""
    return linen(UNet(True), normal(24, 2, 16, 16, 3))


class SqueezeExcite(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        s = nn.sigmoid(nn.Dense(16)(nn.relu(nn.Dense(4)(x.mean((1, 2))))))
        return nn.Dense(10)((x * s[:, None, None]).mean((1, 2)))


@CASES.add("S16 x S4", signs=False, needs=FLAX)
def squeeze_excite():
    """Channels that a small network scales, and its units."""
    return linen(SqueezeExcite(), normal(25, 4, 8, 8, 3))
