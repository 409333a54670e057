"""Attention, recurrent cells, stacked, copied and mixed layers in Flax."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from tests.gallery.functions.case import KEY, Functions, linen, normal, whole
from tests.gallery.functions.zoo_layers import MLP

CASES = Functions()
FLAX = ("flax",)

# ---- attention -------------------------------------------------------------------------------------------------------


class Transformer(nn.Module):
    vocab: int = 50
    d: int = 32
    heads: int = 4
    causal: bool = False

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocab, self.d)
        h = embed(tokens) + self.param("pos", nn.initializers.normal(0.1), (tokens.shape[1], self.d))
        mask = nn.make_causal_mask(tokens) if self.causal else None
        for _ in range(2):
            h = h + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(h), mask=mask)
            h = h + nn.Dense(self.d)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(h))))
        return embed.attend(nn.LayerNorm()(h))


@CASES.add("S32 x S4 x (S8)^4 x (S8)^4 x S64 x S4 x (S8)^4 x (S8)^4 x S64", signs=False, needs=FLAX, slow=True)
def transformer_tied():
    """A stream that a tied table reads and writes; in two blocks heads, dimensions of keys and of values, and units."""
    return linen(Transformer(), whole(18, 50, 3, 12))


@CASES.add("S32 x S4 x (S8)^4 x (S8)^4 x S64 x S4 x (S8)^4 x (S8)^4 x S64", signs=False, needs=FLAX, slow=True)
def transformer_causal():
    """A mask over places changes nothing."""
    return linen(Transformer(causal=True), whole(19, 50, 3, 12))


class ViT(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Conv(32, (4, 4), (4, 4))(x)
        h = h.reshape(len(x), -1, 32)
        cls = self.param("cls", nn.initializers.normal(0.1), (1, 1, 32))
        h = jnp.concatenate([jnp.broadcast_to(cls, (len(x), 1, 32)), h], 1)
        h = h + self.param("pos", nn.initializers.normal(0.1), (1, h.shape[1], 32))
        for _ in range(2):
            y = nn.LayerNorm()(h)
            h = h + nn.MultiHeadDotProductAttention(4)(y)
            h = h + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(h))))
        return nn.Dense(10)(nn.LayerNorm()(h)[:, 0])


@CASES.add("S32 x S4 x (S8)^4 x (S8)^4 x S64 x S4 x (S8)^4 x (S8)^4 x S64", signs=False, needs=FLAX, slow=True)
def vit():
    """The same on patches, with a token of its own."""
    return linen(ViT(), normal(1, 2, 16, 16, 3))


class RopeGQA(nn.Module):
    """Rotary positions turn fixed pairs of dimensions of queries and keys; two query heads share keys and values."""

    rope: bool = True

    def turned(self, t, angle):
        c, s = (f(angle).reshape(-1, *[1] * (t.ndim - 3), 4) for f in (jnp.cos, jnp.sin))
        return jnp.concatenate([t[..., :4] * c - t[..., 4:] * s, t[..., 4:] * c + t[..., :4] * s], -1)

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(16)(x)
        y = nn.RMSNorm()(h)
        q = nn.DenseGeneral((2, 2, 8), use_bias=False)(y)
        k, v = nn.DenseGeneral((2, 8), use_bias=False)(y), nn.DenseGeneral((2, 6), use_bias=False)(y)
        if self.rope:
            angle = jnp.arange(x.shape[1])[:, None] / 10.0 ** (jnp.arange(4) / 4)
            q, k = (self.turned(t, angle) for t in (q, k))
        w = nn.softmax(jnp.einsum("btgqd,bsgd->bgqts", q, k))
        o = jnp.einsum("bgqts,bsgd->btgqd", w, v)
        h = h + nn.DenseGeneral(16, (-3, -2, -1), use_bias=False)(o)
        return nn.Dense(4)(h)


@CASES.add("S16 x S2 x (S2)^2 x (S6)^2", signs=False, needs=FLAX, slow=True)
def rope_gqa():
    """Key heads, query heads in each, values of each; the dimensions of keys are told apart by their angles."""
    return linen(RopeGQA(), normal(2, 2, 6, 5))


@CASES.add("S16 x S2 x (S2)^2 x (S6)^2 x (S8)^2", signs=False, needs=FLAX, slow=True)
def gqa():
    """Without rotations dimensions of queries and keys move as well."""
    return linen(RopeGQA(False), normal(3, 2, 6, 5))


# ---- recurrent -------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    cell: Any
    n: int = 16

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.RNN(self.cell(self.n))(x)[:, -1])


@CASES.add("S16", signs=False, needs=FLAX, slow=True, precision="float32")
def gru():
    """Units in all gates."""
    return linen(Recurrent(nn.GRUCell), normal(4, 4, 7, 5))


@CASES.add("±S16", needs=FLAX, precision="float32")
def gru_signs():
    """What is new is a tanh."""
    return linen(Recurrent(nn.GRUCell), normal(5, 4, 7, 5))


@CASES.add("S16", signs=False, needs=FLAX, slow=True, precision="float32")
def lstm():
    """Units in four gates."""
    return linen(Recurrent(nn.OptimizedLSTMCell), normal(6, 4, 7, 5))


@CASES.add("±S16", needs=FLAX, slow=True, precision="float32")
def lstm_signs():
    """Cells are sums of tanhs, outputs one more."""
    return linen(Recurrent(nn.OptimizedLSTMCell), normal(7, 4, 7, 5))


@CASES.add("±S5")
def lstm_of_one_kernel_signs():
    """As haiku's: one kernel reads inputs and units put end to end, and writes four gates put end to end."""

    def network(p, x):
        def step(carry, now):
            unit, cell = carry
            gates = jnp.concatenate([now, unit], -1) @ p["kernel"] + p["bias"]
            enter, new, forget, leave = jnp.split(gates, 4, -1)
            cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            unit = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (unit, cell), unit

        start = jnp.zeros((x.shape[1], 5))
        return jax.lax.scan(step, (start, start), x)[1] @ p["output"]

    return network, (
        {"kernel": normal(9, 8, 20), "bias": normal(10, 20), "output": normal(11, 5, 2)},
        normal(12, 7, 4, 3),
    )


@CASES.add("±S16", needs=FLAX, precision="float32")
def simple_rnn_signs():
    """A tanh of the last one."""
    return linen(Recurrent(nn.SimpleCell), normal(8, 4, 7, 5))


# ---- stacked, copied, mixed ------------------------------------------------------------------------------------------


class Block(nn.Module):
    @nn.compact
    def __call__(self, h, _):
        return h + nn.Dense(16)(nn.relu(nn.Dense(32)(nn.LayerNorm()(h)))), None


class Scanned(nn.Module):
    remat: bool = False

    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block) if self.remat else Block
        h, _ = nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()(
            nn.Dense(16)(x), None
        )
        return nn.Dense(10)(h)


@CASES.add("S16 x (S32)^4", signs=False, needs=FLAX)
def scanned():
    """A stream through four layers, and units in each."""
    return linen(Scanned(), normal(9, 8, 20))


@CASES.add("S16 x (S32)^4", signs=False, needs=FLAX, slow=True)
def scanned_remat():
    """The same, computed twice."""
    return linen(Scanned(True), normal(10, 8, 20))


class Ensemble(nn.Module):
    mean: bool = True

    @nn.compact
    def __call__(self, x):
        nets = nn.vmap(MLP, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=5)
        y = nets((16, 12), 10)(x)
        return nn.softmax(y).mean(0) if self.mean else y


@CASES.add("S5 x (S16)^5 x (S12)^5", signs=False, needs=FLAX)
def ensemble_mean():
    """Networks that are averaged, and units in each."""
    return linen(Ensemble(), normal(11, 8, 20))


@CASES.add("(S16)^5 x (S12)^5", signs=False, needs=FLAX, slow=True)
def ensemble_stacked():
    """Networks that are told apart by the outputs."""
    return linen(Ensemble(False), normal(12, 8, 20))


@CASES.add("(S16)^5 x (S12)^5", signs=False, needs=FLAX)
def ensemble_jax_vmap():
    """The same by hand."""
    m, x = MLP((16, 12)), normal(13, 8, 20)
    v = jax.vmap(lambda k: m.init(k, x))(jax.random.split(KEY, 5))
    return lambda v, x: jax.vmap(m.apply, (0, None))(v, x), (v, x)


class MoE(nn.Module):
    gate: str = "dense"

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(16)(x)
        logits = nn.Dense(4, use_bias=False)(h)
        experts = nn.vmap(MLP, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=4)
        y = experts((24,), 16)(h)
        if self.gate == "dense":
            w = nn.softmax(logits)
        elif self.gate == "mask":  # the largest two, told by their values
            w = nn.softmax(jnp.where(logits >= jax.lax.top_k(logits, 2)[0][:, -1:], logits, -jnp.inf))
        else:  # the largest two, told by their positions, as the large ones are written
            top, which = jax.lax.top_k(logits, 2)
            w = jnp.einsum("bk,bke->be", nn.softmax(top), jax.nn.one_hot(which, 4))
        return nn.Dense(10)(h + jnp.einsum("be,ebd->bd", w, y))


@CASES.add("S16 x S4 x (S24)^4", signs=False, needs=FLAX, slow=True)
def moe_dense():
    """A stream, experts with their gates, units in each."""
    return linen(MoE(), normal(14, 8, 20))


@CASES.add("S16 x S4 x (S24)^4", signs=False, needs=FLAX, slow=True)
def moe_top2_by_value():
    """The two with the largest gates, told by their values."""
    return linen(MoE("mask"), normal(15, 8, 20))


@CASES.add("S16 x S4 x (S24)^4", signs=False, needs=FLAX)
def moe_top2_by_position():
    """The two with the largest gates, told by where they stand."""
    return linen(MoE("onehot"), normal(16, 8, 20))


@CASES.add("S8 x S8 x S8", signs=False, needs=FLAX, slow=True)
def moe_list():
    """Experts in a Python list: leaves of their own, which no permutation of axes exchanges."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            w = nn.softmax(nn.Dense(3)(x))
            return sum(w[:, k, None] * MLP((8,), 4)(x) for k in range(3))

    return linen(Net(), normal(17, 8, 5))
