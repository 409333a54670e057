"""Modules of nnx and Equinox whose groups were derived before anybody looked at what `find_symmetry` follows."""

import jax
import jax.numpy as jnp

from tests.gallery.functions.case import KEY, Functions, normal, split

CASES = Functions()
FLAX, EQUINOX = ("flax",), ("equinox",)


@CASES.add("±S5 x ±S4", needs=FLAX)
def siren():
    """Sines are odd."""
    from flax import nnx

    class Siren(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second = nnx.Linear(2, 5, rngs=rngs), nnx.Linear(5, 4, rngs=rngs)
            self.out = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(jnp.sin(self.second(jnp.sin(3.0 * self.first(x)))))

    return split(Siren(nnx.Rngs(0)), normal(0, 7, 2))


@CASES.add("S6 x ±S4 x S5", needs=FLAX)
def deep_sets():
    """What is summed over members is linear, so it has signs."""
    from flax import nnx

    class DeepSets(nnx.Module):
        def __init__(self, rngs):
            self.phi = nnx.Sequential(nnx.Linear(3, 6, rngs=rngs), nnx.relu, nnx.Linear(6, 4, rngs=rngs))
            self.rho = nnx.Sequential(nnx.Linear(4, 5, rngs=rngs), nnx.relu, nnx.Linear(5, 1, rngs=rngs))

        def __call__(self, sets):
            return self.rho(self.phi(sets).sum(-2))

    return split(DeepSets(nnx.Rngs(0)), normal(0, 4, 5, 3))


@CASES.add("S5 x ±S2", needs=FLAX)
def low_rank_adapter():
    """Hidden units, and the dimensions between the two thin kernels."""
    from flax import nnx

    class Adapted(nnx.Module):
        def __init__(self, rngs):
            base = nnx.Linear(3, 5, rngs=rngs)
            self.hidden = nnx.LoRA(3, 2, 5, base_module=base, rngs=rngs)
            self.out = nnx.Linear(5, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(nnx.relu(self.hidden(x)))

    return split(Adapted(nnx.Rngs(0)), normal(0, 6, 3))


@CASES.add("±S5 x ±S3 x S6", needs=FLAX)
def autoencoder():
    """Codes: their means change sign with the decoder's rows, their variances do not. What is returned is the decoded
    mean and the divergence from a standard normal."""
    from flax import nnx

    class Autoencoder(nnx.Module):
        def __init__(self, rngs):
            self.encode, self.mean = nnx.Linear(4, 5, rngs=rngs), nnx.Linear(5, 3, rngs=rngs)
            self.log_variance = nnx.Linear(5, 3, rngs=rngs)
            self.decode, self.out = nnx.Linear(3, 6, rngs=rngs), nnx.Linear(6, 4, rngs=rngs)

        def __call__(self, x):
            h = jnp.tanh(self.encode(x))
            mean, log_variance = self.mean(h), self.log_variance(h)
            divergence = 0.5 * (mean**2 + jnp.exp(log_variance) - 1 - log_variance).sum(-1)
            return self.out(nnx.relu(self.decode(mean))), divergence

    return split(Autoencoder(nnx.Rngs(0)), normal(0, 6, 4))


@CASES.add("S5 x S4", needs=FLAX)
def graph_convolution():
    """Nodes are data, features of both layers move."""
    from flax import nnx

    class Graph(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second = nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 4, rngs=rngs)
            self.out = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, nodes, edges):
            near = edges / edges.sum(1, keepdims=True)
            h = nnx.relu(near @ self.first(nodes))
            h = nnx.relu(near @ self.second(h))
            return self.out(h.mean(0))

    return split(Graph(nnx.Rngs(0)), normal(0, 6, 3), jnp.abs(normal(1, 6, 6)))


@CASES.add("S5", needs=FLAX)
def generator():
    """Channels of an image that a dense layer wrote flattened, normalised with running statistics."""
    from flax import nnx

    class Generator(nnx.Module):
        def __init__(self, rngs):
            self.read, self.norm = nnx.Linear(3, 16 * 5, rngs=rngs), nnx.BatchNorm(5, rngs=rngs)
            self.paint = nnx.ConvTranspose(5, 2, (3, 3), strides=(2, 2), rngs=rngs)

        def __call__(self, code):
            image = nnx.relu(self.norm(self.read(code).reshape(-1, 4, 4, 5)))
            return nnx.sigmoid(self.paint(image))

    net = Generator(nnx.Rngs(0))
    net.eval()
    return split(net, normal(0, 2, 3))


@CASES.add("±S5", needs=EQUINOX)
def gru_by_scan():
    """Three gates in one kernel of three times five rows; what is new is a tanh."""
    import equinox as eqx

    class Net(eqx.Module):
        cell: eqx.nn.GRUCell
        out: eqx.nn.Linear

        def __call__(self, x):
            last, _ = jax.lax.scan(lambda h, row: (self.cell(row, h), None), jnp.zeros(5, x.dtype), x)
            return self.out(last)

    k = jax.random.split(KEY)
    net = Net(eqx.nn.GRUCell(3, 5, key=k[0]), eqx.nn.Linear(5, 2, key=k[1]))
    return lambda net, x: jax.vmap(net)(x), (net, normal(0, 2, 4, 3))


@CASES.add("S6 x S7", needs=EQUINOX)
def coupling_flow():
    """Two couplings, each with hidden units of its own; what flows are data."""
    import equinox as eqx

    class Flow(eqx.Module):
        couplings: list

        def __call__(self, x):
            total = 0.0
            for net in self.couplings:
                a, b = jnp.split(x, 2)
                scale, shift = jnp.split(net(a), 2)
                x = jnp.concatenate([b * jnp.exp(jnp.tanh(scale)) + shift, a])
                total = total + jnp.tanh(scale).sum()
            return -0.5 * (x**2).sum() + total

    k = jax.random.split(KEY)
    net = Flow([eqx.nn.MLP(2, 4, width, 1, key=key) for width, key in zip((6, 7), k, strict=True)])
    return lambda net, x: jax.vmap(net)(x), (net, normal(0, 5, 4))


@CASES.add("±S3 x S6 x ±S4", needs=EQUINOX)
def hypernetwork():
    """A code, which is read linearly; the units that write; the units that are written, through a tanh, in columns of a
    flat output for one layer and in rows for the next."""
    import equinox as eqx

    class Hyper(eqx.Module):
        code: jax.Array
        read: eqx.nn.Linear
        first: eqx.nn.Linear
        second: eqx.nn.Linear

        def __call__(self, x):
            h = jax.nn.relu(self.read(self.code))
            return jnp.tanh(x @ self.first(h).reshape(2, 4)) @ self.second(h)

    k = jax.random.split(KEY, 4)
    net = Hyper(
        jax.random.normal(k[0], (3,)),
        eqx.nn.Linear(3, 6, key=k[1]),
        eqx.nn.Linear(6, 8, key=k[2]),
        eqx.nn.Linear(6, 4, key=k[3]),
    )
    return lambda net, x: net(x), (net, normal(0, 5, 2))


@CASES.add("S5 x S5 x S5", needs=EQUINOX)
def layers_of_a_list():
    """Layers of one width in a list, each normalised: the widths are equal, the units are not."""
    import equinox as eqx

    class Deep(eqx.Module):
        layers: list
        norms: list
        out: eqx.nn.Linear

        def __call__(self, x):
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = jax.nn.relu(norm(layer(x)))
            return self.out(x)

    k = jax.random.split(KEY, 4)
    layers = [eqx.nn.Linear(n, 5, key=key) for n, key in zip((3, 5, 5), k, strict=False)]
    net = Deep(layers, [eqx.nn.LayerNorm(5) for _ in layers], eqx.nn.Linear(5, 2, key=k[3]))
    return lambda net, x: jax.vmap(net)(x), (net, normal(0, 6, 3))


@CASES.add("S3", signs=False, needs=EQUINOX)
def rotary_attention():
    """Positions turn pairs of the dimensions of queries and keys by angles of their own, so that none may be exchanged;
    dimensions of values may."""
    import equinox as eqx

    class Rotary(eqx.Module):
        query: eqx.nn.Linear
        key: eqx.nn.Linear
        value: eqx.nn.Linear
        out: eqx.nn.Linear
        turn: eqx.nn.RotaryPositionalEmbedding

        def __call__(self, x):
            q, k = self.turn(jax.vmap(self.query)(x)), self.turn(jax.vmap(self.key)(x))
            return jax.vmap(self.out)(jax.nn.softmax(q @ k.T) @ jax.vmap(self.value)(x))

    k = jax.random.split(KEY, 4)
    linear = [eqx.nn.Linear(4, n, use_bias=False, key=key) for n, key in zip((4, 4, 3), k, strict=False)]
    net = Rotary(*linear, eqx.nn.Linear(3, 2, use_bias=False, key=k[3]), eqx.nn.RotaryPositionalEmbedding(4))
    return lambda net, x: jax.vmap(net)(x), (net, normal(0, 2, 5, 4))


@CASES.add("S6 x ±S5", needs=EQUINOX)
def attention_over_instances():
    """Features of instances; the units of a gated score, a tanh times a sigmoid, of which the tanh may change sign."""
    import equinox as eqx

    class Bag(eqx.Module):
        embed: eqx.nn.Linear
        value: eqx.nn.Linear
        gate: eqx.nn.Linear
        score: eqx.nn.Linear
        out: eqx.nn.Linear

        def __call__(self, bag):
            h = jax.nn.relu(jax.vmap(self.embed)(bag))
            units = jnp.tanh(jax.vmap(self.value)(h)) * jax.nn.sigmoid(jax.vmap(self.gate)(h))
            return self.out(jax.nn.softmax(jax.vmap(self.score)(units)[:, 0]) @ h)

    k = jax.random.split(KEY, 5)
    sizes = ((3, 6), (6, 5), (6, 5), (5, 1), (6, 2))
    net = Bag(*(eqx.nn.Linear(*size, key=key) for size, key in zip(sizes, k, strict=True)))
    return lambda net, x: jax.vmap(net)(x), (net, normal(0, 3, 4, 3))
