"""Functions of `jax.numpy` whose groups were derived before anybody looked at what `find_symmetry` follows."""

import jax
import jax.numpy as jnp
from jax import lax

from tests.gallery.functions.case import Functions, normal, weights, whole

CASES = Functions()


@CASES.add("±S3 x ±S4")
def tensor_train():
    """An entry of a tensor is a product of matrices; the two bonds may be permuted and change sign."""

    def entries(cores, index):
        i, j, k = index.T
        middle = jnp.einsum("na,anb->nb", cores["left"][i], cores["middle"][:, j])
        return jnp.sum(middle * cores["right"][:, k].T, -1)

    return entries, (weights(left=(5, 3), middle=(3, 6, 4), right=(4, 7)), whole(0, 5, 9, 3))


@CASES.add("S5")
def sparse_kernel_machine():
    """Inducing points with the values at them, through a Cholesky factor of their kernel."""

    def mean(w, x):
        def kernel(a, b):
            return jnp.exp(-0.5 * jnp.sum(((a[:, None] - b) * jnp.exp(w["rate"])) ** 2, -1))

        gram = kernel(w["points"], w["points"]) + 0.1 * jnp.eye(5)
        solved = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), w["values"])
        return kernel(x, w["points"]) @ solved

    return mean, (weights(points=(5, 2), values=(5,), rate=(2,)), normal(9, 6, 2))


@CASES.add("S6")
def radial_basis_network():
    """Centres, widths and heights; responsibilities are normalised over them."""

    def outputs(w, x):
        near = jnp.sum((x[:, None] - w["centre"]) ** 2, -1)
        return jax.nn.softmax(-near * jnp.exp(w["log_width"])) @ w["height"]

    return outputs, (weights(centre=(6, 3), log_width=(6,), height=(6, 2)), normal(9, 5, 3))


@CASES.add("±S5 x ±S4 x ±S3 x S6")
def dilated_gated_convolutions():
    """A linear stream; in each of two layers the units of tanh times sigmoid; a sum of skips before a ReLU."""

    def convolve(x, kernel, dilation):
        frame = ("NWC", "WIO", "NWC")
        return lax.conv_general_dilated(x, kernel, (1,), "SAME", rhs_dilation=(dilation,), dimension_numbers=frame)

    def outputs(w, x):
        stream, skips = x @ w["read"], 0.0
        for layer, dilation in (("one", 1), ("two", 2)):
            units = jnp.tanh(convolve(stream, w[f"{layer}_value"], dilation))
            units = units * jax.nn.sigmoid(convolve(stream, w[f"{layer}_gate"], dilation))
            stream, skips = stream + units @ w[f"{layer}_back"], skips + units @ w[f"{layer}_skip"]
        return jax.nn.relu(skips + stream @ w["last_skip"]) @ w["out"]

    def layer(name, units):
        values, rows = (2, 5, units), {"back": 5, "skip": 6}
        shapes = {f"{name}_{k}": (units, n) for k, n in rows.items()}
        return {f"{name}_value": values, f"{name}_gate": values} | shapes

    shapes = {"read": (2, 5), "last_skip": (5, 6), "out": (6, 2)} | layer("one", 4) | layer("two", 3)
    return outputs, (weights(**shapes), normal(99, 2, 8, 2))


@CASES.add("±S6")
def scan_over_residual_layers():
    """Layers write each unit's tanh into the unit itself: one axis for the stream and all layers."""

    def outputs(w, x):
        def layer(stream, kernel):
            return stream + jnp.tanh(stream @ kernel[0] + kernel[1]), None

        return lax.scan(layer, x @ w["read"], (w["kernel"], w["bias"]))[0] @ w["out"]

    return outputs, (weights(read=(3, 6), kernel=(3, 6, 6), bias=(3, 6), out=(6, 2)), normal(9, 5, 3))


@CASES.add("S3 x (±S4)^3")
def product_of_experts():
    """Log probabilities of experts are added and normalised: experts move, and units in each."""

    def outputs(w, x):
        def expert(kernel, out):
            return jax.nn.log_softmax(jnp.tanh(x @ kernel) @ out)

        return jax.nn.log_softmax(jax.vmap(expert)(w["kernel"], w["out"]).sum(0))

    return outputs, (weights(kernel=(3, 2, 4), out=(3, 4, 5)), normal(9, 6, 2))


@CASES.add("±S5 x S4")
def mixture_density_network():
    """Log densities of data: hidden units, and components in the columns of three heads."""

    def log_density(w, x, y):
        hidden = jnp.tanh(x @ w["kernel"])
        log_weight = jax.nn.log_softmax(hidden @ w["weight"])
        loc, log_scale = hidden @ w["loc"] + w["bias"], hidden @ w["log_scale"]
        z = (y[:, None] - loc) * jnp.exp(-log_scale)
        return jax.nn.logsumexp(log_weight - 0.5 * z**2 - log_scale, -1)

    shapes = {"kernel": (2, 5), "weight": (5, 4), "loc": (5, 4), "bias": (4,), "log_scale": (5, 4)}
    return log_density, (weights(**shapes), normal(9, 7, 2), normal(10, 7))


@CASES.add("±S6")
def neural_differential_equation():
    """Euler steps in a loop; the state is data's own, the field has hidden units."""

    def end(w, state):
        def step(_, state):
            return state + 0.1 * jnp.tanh(state @ w["kernel"] + w["bias"]) @ w["out"]

        return lax.fori_loop(0, 5, step, state)

    return end, (weights(kernel=(2, 6), bias=(6,), out=(6, 2)), normal(9, 4, 2))


@CASES.add("±S4")
def factorisation_machine():
    """Pairwise interactions by products of factors."""

    def outputs(w, x):
        squares = (x @ w["factor"]) ** 2 - x**2 @ w["factor"] ** 2
        return x @ w["linear"] + 0.5 * squares.sum(-1)

    return outputs, (weights(linear=(7,), factor=(7, 4)), normal(9, 5, 7))


@CASES.add("±S4")
def diagonal_state_space():
    """States that decay at rates of their own, by an associative scan: inputs and outputs change sign together."""

    def outputs(w, x):
        decay = jnp.exp(-jnp.exp(w["log_rate"]))
        driven = x[..., None] * w["input"]

        def join(earlier, later):
            return earlier[0] * later[0], later[0] * earlier[1] + later[1]

        _, states = lax.associative_scan(join, (jnp.broadcast_to(decay, driven.shape), driven), axis=1)
        return states @ w["output"]

    return outputs, (weights(log_rate=(4,), input=(4,), output=(4,)), normal(9, 2, 6))
