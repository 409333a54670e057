"""Modules of others, states of samplers and optimisers, and functions of `jax.numpy` alone."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tests.gallery.functions.case import KEY, Functions, normal, split, whole
from tests.gallery.functions.zoo_layers import MLP

CASES = Functions()
FLAX, EQUINOX, HAIKU, BLACKJAX = ("flax",), ("equinox",), ("haiku",), ("flax", "blackjax")

# ---- others' modules -------------------------------------------------------------------------------------------------


@CASES.add("S64 x S32", signs=False, needs=FLAX)
def nnx_mlp():
    """Units of two hidden layers."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b, self.c = (
                nnx.Linear(20, 64, rngs=rngs),
                nnx.Linear(64, 32, rngs=rngs),
                nnx.Linear(32, 4, rngs=rngs),
            )

        def __call__(self, x):
            return self.c(nnx.relu(self.b(nnx.relu(self.a(x)))))

    return split(Net(nnx.Rngs(0)), normal(1, 8, 20))


@CASES.add("S8 x S16", signs=False, needs=FLAX, slow=True)
def nnx_cnn_batchnorm_dropout():
    """The whole state is the tree: parameters, statistics, the key and the counter of the dropout."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv, self.norm = nnx.Conv(3, 8, (3, 3), rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
            self.conv2, self.drop = nnx.Conv(8, 16, (3, 3), rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
            self.out = nnx.Linear(16, 4, rngs=rngs)

        def __call__(self, x):
            x = nnx.relu(self.norm(self.conv(x)))
            return self.out(self.drop(nnx.relu(self.conv2(x)).mean((1, 2))))

    net = Net(nnx.Rngs(0))
    net.eval()
    return split(net, normal(2, 4, 8, 8, 3))


@CASES.add("S64", signs=False, needs=FLAX)
def nnx_module_itself():
    """A module is a tree."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b = nnx.Linear(20, 64, rngs=rngs), nnx.Linear(64, 4, rngs=rngs)

        def __call__(self, x):
            return self.b(nnx.relu(self.a(x)))

    return lambda net, x: net(x), (Net(nnx.Rngs(0)), normal(3, 8, 20))


@CASES.add("S32 x S32 x S32", signs=False, needs=EQUINOX)
def equinox_mlp():
    """Units of three hidden layers."""
    import equinox as eqx

    net = eqx.nn.MLP(20, 4, 32, 3, key=KEY)
    return lambda net, x: jax.vmap(net)(x), (net, normal(4, 8, 20))


@CASES.add("S2 x (S4)^2 x S16", signs=False, needs=EQUINOX, slow=True)
def equinox_cnn():
    """Groups of channels, channels in each, and units behind them."""
    import equinox as eqx

    k = jax.random.split(KEY, 3)
    net = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 8, 3, key=k[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.GroupNorm(2, 8),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(72, 16, key=k[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(16, 4, key=k[2]),
        ]
    )
    return lambda net, x: jax.vmap(net)(x), (net, normal(5, 4, 3, 8, 8))


@CASES.add("S16 x S4 x (S4)^4 x (S4)^4", signs=False, needs=EQUINOX, slow=True)
def equinox_attention():
    """A stream, heads, and the dimensions in them."""
    import equinox as eqx

    class Net(eqx.Module):
        read: eqx.nn.Linear
        norm: eqx.nn.LayerNorm
        attend: eqx.nn.MultiheadAttention
        out: eqx.nn.Linear

        def __call__(self, x):
            h = jax.vmap(self.read)(x)
            y = jax.vmap(self.norm)(h)
            return self.out((h + self.attend(y, y, y)).mean(0))

    k = jax.random.split(KEY, 3)
    net = Net(
        eqx.nn.Linear(5, 16, key=k[0]),
        eqx.nn.LayerNorm(16),
        eqx.nn.MultiheadAttention(4, 16, key=k[1]),
        eqx.nn.Linear(16, 3, key=k[2]),
    )
    return lambda net, x: jax.vmap(net)(x), (net, normal(6, 2, 6, 5))


@CASES.add("S32 x S16", signs=False, needs=HAIKU, precision="float32", told="read by nothing")
def haiku_mlp_batchnorm():
    """Units with their statistics; of these haiku keeps a second copy, which inference does not read."""
    import haiku as hk

    def forward(x, train=False):
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Linear(32)(x), is_training=train))
        return hk.Linear(4)(jax.nn.relu(hk.Linear(16)(x)))

    net, x = hk.transform_with_state(forward), normal(7, 8, 20)
    params, state = net.init(KEY, x, True)
    return lambda t, x: net.apply(t[0], t[1], None, x)[0], ((params, state), x)


@CASES.add("S16", signs=False, needs=HAIKU, slow=True, precision="float32")
def haiku_lstm():
    """Four gates in one kernel that reads inputs and outputs."""
    import haiku as hk

    def forward(x):
        core = hk.LSTM(16)
        out, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.Linear(3)(out[-1])

    net, x = hk.without_apply_rng(hk.transform(forward)), normal(8, 7, 4, 5)
    return net.apply, (net.init(KEY, x), x)


@CASES.add("S8", signs=False, needs=BLACKJAX, slow=True)
def blackjax_state():
    """A sampler's state: the position moves, and so does the gradient that it carries; nothing else."""
    import blackjax

    m, x = MLP((8,), 2, nn.tanh), normal(9, 8, 3)
    v = m.init(KEY, x)
    y = normal(10, 8, 2)

    def log_density(v):
        return -0.5 * jnp.sum((m.apply(v, x) - y) ** 2) - 0.5 * sum(jnp.sum(a**2) for a in jax.tree.leaves(v))

    state = blackjax.nuts(log_density, 1e-3, jnp.ones(sum(a.size for a in jax.tree.leaves(v)))).init(v)

    # a kernel's step is equivariant, so what is invariant is what it computes of both: value and slope along the way
    def value_and_slope(s, x, y):
        pairs = zip(jax.tree.leaves(s.position), jax.tree.leaves(s.logdensity_grad), strict=True)
        return jnp.sum((m.apply(s.position, x) - y) ** 2), sum(jnp.vdot(a, b) for a, b in pairs)

    return value_and_slope, (state, x, y)


@CASES.add("S16 x S12", signs=False, needs=FLAX)
def loss_and_gradient_norm():
    """A whole training objective, its gradient inside."""
    m, x = MLP((16, 12), 3), normal(11, 8, 5)
    v = m.init(KEY, x)
    y = whole(34, 3, 8)

    def f(v, x, y):
        def loss(v):
            return -jnp.take_along_axis(nn.log_softmax(m.apply(v, x)), y[:, None], 1).mean()

        value, slope = jax.value_and_grad(loss)(v)
        return value, sum(jnp.sum(s**2) for s in jax.tree.leaves(slope))

    return f, (v, x, y)


@CASES.add("S16", signs=False, needs=FLAX, slow=True)
def adam_state():
    """Parameters and the optimiser's moments, one tree: what the next step's loss is."""
    import optax

    m, x, y = MLP((16,), 3), normal(12, 8, 5), normal(13, 8, 3)
    v = m.init(KEY, x)
    opt = optax.adam(1e-2)

    def f(tree, x, y):
        v, s = tree

        def loss(v):
            return jnp.mean((m.apply(v, x) - y) ** 2)

        step, _ = opt.update(jax.grad(loss)(v), s, v)
        return loss(optax.apply_updates(v, step))

    return f, ((v, opt.init(v)), x, y)


@CASES.add("S8 x S8", signs=False, slow=True)
def fourier_layer():
    """Channels of a Fourier neural operator: complex weights, a transform over places."""
    w = {
        "read": normal(14, 1, 8),
        "spectral": (normal(15, 8, 8, 5) + 1j * normal(16, 8, 8, 5)).astype(np.complex64),
        "local": normal(17, 8, 8),
        "out": normal(18, 8, 1),
    }

    def f(w, x):
        h = x @ w["read"]
        modes = jnp.fft.rfft(h, axis=1)[:, :5]
        spectral = jnp.fft.irfft(jnp.einsum("bmi,iom->bmo", modes, w["spectral"]), x.shape[1], axis=1)
        return jax.nn.gelu(spectral + h @ w["local"]) @ w["out"]

    return f, (jax.tree.map(jnp.asarray, w), normal(19, 3, 16, 1))


@CASES.add("S16", signs=False)
def deep_sets_graph():
    """Message passing on given edges by segment sums."""
    m = {"msg": normal(20, 6, 16), "upd": normal(21, 16, 16), "out": normal(22, 16, 2)}
    send, recv = whole(35, 9, 20), whole(36, 9, 20)

    def f(m, x, send, recv):
        h = jax.nn.relu(x @ m["msg"])
        for _ in range(2):
            h = h + jax.nn.relu(jax.ops.segment_sum(h[send], recv, 9) @ m["upd"])
        return h @ m["out"]

    return f, (jax.tree.map(jnp.asarray, m), normal(23, 9, 6), send, recv)


@CASES.add("S12 x S4", signs=False, slow=True)
def mamba_like():
    """A selective state space: channels, each with four states that decay apart, by an associative scan."""
    d, n = 12, 4
    w = {
        "up": normal(24, 5, d),
        "gate": normal(25, 5, d),
        "conv": normal(26, 3, 1, d),
        "dt": normal(27, d, d),
        "A": normal(28, d, n),
        "B": normal(29, d, n),
        "C": normal(30, d, n),
        "D": normal(31, d),
        "out": normal(32, d, 5),
    }

    def f(w, x):
        u = jax.lax.conv_general_dilated(
            x @ w["up"], w["conv"], (1,), [(2, 0)], dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=d
        )
        u = jax.nn.silu(u)
        dt = jax.nn.softplus(u @ w["dt"])
        a = jnp.exp(-dt[..., None] * jnp.exp(w["A"]))
        b = dt[..., None] * (u @ w["B"])[:, :, None] * u[..., None]
        _, h = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (a, b), axis=1)
        y = jnp.einsum("btdn,btn->btd", h, u @ w["C"]) + u * w["D"]
        return (y * jax.nn.silu(x @ w["gate"])) @ w["out"]

    return f, (jax.tree.map(jnp.asarray, w), normal(33, 2, 6, 5))
