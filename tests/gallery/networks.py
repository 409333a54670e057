"""Networks of dense layers: activations, skips, norms, shared weights, priors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.nn import gelu, relu, silu, softmax, softplus

from tests.gallery.case import Cases
from tests.gallery.parts import LABELS, PAIRS, TOKENS, X, Y, gaussian, normal, observe

CASES = Cases()


@CASES.add("mlp-out-in-kernels", "S4 x S5", X, PAIRS, signed="±S4 x ±S5", shown="Networks")
def mlp_out_in_kernels(x, y):
    """Kernels of shape (out, in), as PyTorch has them."""
    h = jnp.tanh(x @ normal("first", 5, 3).T + normal("first_bias", 5))
    h = jnp.tanh(h @ normal("second", 4, 5).T + normal("second_bias", 4))
    observe(h @ normal("last", 2, 4).T, y)


@CASES.add("mlp-einsum", "S4 x S5", X, PAIRS)
def mlp_einsum(x, y):
    """Layers written as einsums, with axes in an unusual order."""
    h = relu(jnp.einsum("nd,hd->hn", x, normal("first", 5, 3)))
    h = softplus(jnp.einsum("hn,hk->kn", h, normal("second", 5, 4)))
    observe(jnp.einsum("kn,ko->no", h, normal("last", 4, 2)), y)


@CASES.add("mlp-activations", "S3 x S4 x S5 x S6", X, PAIRS)
def mlp_activations(x, y):
    """Layers of softplus, gelu, leaky relu by where, and a normalised softmax."""
    h = softplus(x @ normal("first", 3, 5))
    h = gelu(h @ normal("second", 5, 4))
    h = h @ normal("third", 4, 6)
    h = jnp.where(h > 0, h, 0.1 * h) @ normal("fourth", 6, 3)
    h = jnp.exp(h - jax.nn.logsumexp(h, axis=-1, keepdims=True))
    observe(h @ normal("last", 3, 2), y)


@CASES.add("mlp-width-argument", "S5", X, Y, 5, "tanh")
def mlp_width_argument(x, y, width, activation):
    """Width and activation are arguments that are no arrays."""
    h = getattr(jnp, activation)(x @ normal("kernel", x.shape[1], width))
    observe(h @ normal("out", width), y)


@CASES.add("mlp-dict-data", "S5", {"x": X, "y": Y})
def mlp_dict_data(data):
    """Data in a dictionary."""
    observe(jnp.tanh(data["x"] @ normal("kernel", 3, 5)) @ normal("out", 5), data["y"])


@CASES.add("mlp-closed-over-data", "S5", signed="±S5")
def mlp_closed_over_data():
    """A model without arguments."""
    observe(jnp.tanh(X @ normal("kernel", 3, 5)) @ normal("out", 5), Y)


@CASES.add("mlp-two-activations", "S2 x S3", X, Y, why="two units have another activation")
def mlp_two_activations(x, y):
    """Units of two kinds in one layer, cut apart and joined again."""
    h = x @ normal("kernel", 3, 5) + normal("bias", 5)
    h = jnp.concatenate([jnp.sin(h[:, :2]), relu(h[:, 2:])], axis=1)
    observe(h @ normal("out", 5), y)


@CASES.add("swiglu-separate", "S5", X, PAIRS)
def swiglu_separate(x, y):
    """A gated layer with a kernel for the gate and one for the values."""
    h = silu(x @ normal("gate", 3, 5)) * (x @ normal("up", 3, 5))
    observe(h @ normal("down", 5, 2), y)


@CASES.add("swiglu-fused", "S5", X, PAIRS, shown="Networks")
def swiglu_fused(x, y):
    """A gated layer whose gate and values are halves of one kernel."""
    gate, up = jnp.split(x @ normal("fused", 3, 10), 2, axis=-1)
    observe((silu(gate) * up) @ normal("down", 5, 2), y)


@CASES.add("low-rank-kernel", "S2 x S5", X, Y, signed="±S2 x ±S5", shown="Networks")
def low_rank_kernel(x, y):
    """A kernel that is a product of two thin ones."""
    kernel = normal("left", 3, 2) @ normal("right", 2, 5)
    observe(jnp.tanh(x @ kernel) @ normal("out", 5), y)


@CASES.add("dense-net-concat", "S4 x S5", X, PAIRS, shown="Networks")
def dense_net_concat(x, y):
    """Each layer reads all layers before it."""
    first = relu(x @ normal("first", 3, 5))
    second = relu(jnp.concatenate([x, first], -1) @ normal("second", 8, 4))
    observe(jnp.concatenate([x, first, second], -1) @ normal("last", 12, 2), y)


@CASES.add("u-net-skip", "S4 x S5 x S6", X, PAIRS)
def u_net_skip(x, y):
    """The last layer reads the first next to what went through the bottleneck."""
    wide = relu(x @ normal("encode", 3, 6))
    narrow = relu(wide @ normal("narrow", 6, 4))
    up = relu(narrow @ normal("up", 4, 5))
    observe(jnp.concatenate([up, wide], -1) @ normal("last", 11, 2), y)


@CASES.add("batch-norm", "S5", X, Y, shown="Networks")
def batch_norm(x, y):
    """Units normalised over the batch, with gain and bias."""
    h = x @ normal("kernel", 3, 5)
    h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-3) * normal("gain", 5, loc=1.0) + normal("bias", 5)
    observe(relu(h) @ normal("out", 5), y)


@CASES.add("group-norm", "(S3)^2 x S2", X, Y, shown="Networks")
def group_norm(x, y):
    """Six units normalised in two groups of three: groups move, and units inside them."""
    h = (x @ normal("kernel", 3, 6)).reshape(12, 2, 3)
    h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-3)
    observe(relu(h.reshape(12, 6) * normal("gain", 6, loc=1.0)) @ normal("out", 6), y)


@CASES.add("rms-norm-residual", "S4 x S7", X, PAIRS, signed="±S4 x ±S7")
def rms_norm_residual(x, y):
    """A tanh block that reads its stream through an RMS norm."""
    stream = x @ normal("in", 3, 7)
    normed = stream * lax.rsqrt((stream**2).mean(-1, keepdims=True) + 1e-3) * normal("gain", 7, loc=1.0)
    stream = stream + jnp.tanh(normed @ normal("up", 7, 4)) @ normal("down", 4, 7)
    observe(stream @ normal("out", 7, 2), y)


@CASES.add("autoencoder-tied", "S5", X, signed="±S5")
def autoencoder_tied(x):
    """The decoder's kernel is the encoder's transpose."""
    kernel = normal("kernel", 3, 5)
    observe(jnp.tanh(x @ kernel + normal("bias", 5)) @ kernel.T, x)


@CASES.add("siamese", "S4 x S5", X, X[::-1] + 1.0, Y, signed="±S4 x ±S5")
def siamese(left, right, y):
    """Two inputs through one network, compared by distance."""
    first, second = normal("first", 3, 5), normal("second", 5, 4)
    difference = jnp.tanh(left @ first) @ second - jnp.tanh(right @ first) @ second
    observe((difference**2).sum(-1), y)


@CASES.add("bilinear-pooling", "S5", X, Y)
def bilinear_pooling(x, y):
    """Products of two projections, one exponential so that the two have roles."""
    observe(((x @ normal("left", 3, 5)) * jnp.exp(x @ normal("right", 3, 5))).sum(-1), y)


@CASES.add("deep-sets", "S4 x S5", gaussian(20, 6, 7, 3), gaussian(21, 6))
def deep_sets(x, y):
    """Features of seven elements are summed, then read."""
    pooled = relu(x @ normal("phi", 3, 5)).sum(1)
    observe(relu(pooled @ normal("rho", 5, 4)) @ normal("out", 4), y)


@CASES.add("graph-convolution", "S4 x S5", X, gaussian(22, 12, 12) > 0.5, Y)
def graph_convolution(x, adjacency, y):
    """Two layers that mix neighbours on a given graph."""
    mix = adjacency / jnp.maximum(adjacency.sum(1, keepdims=True), 1)
    h = relu(mix @ x @ normal("first", 3, 5))
    observe(relu(mix @ h @ normal("second", 5, 4)) @ normal("out", 4), y)


@CASES.add("embedding-table", "S4 x S5", TOKENS, gaussian(23, 6), signed="±S4 x ±S5")
def embedding_table(tokens, y):
    """Words are looked up, their embeddings averaged and read: the vocabulary is data."""
    h = normal("table", 7, 5)[tokens].mean(1)
    observe(jnp.tanh(h @ normal("kernel", 5, 4)) @ normal("out", 4), y)


@CASES.add("mixture-density-network", "S4 x S5", X, Y, shown="Networks")
def mixture_density_network(x, y):
    """A network whose output is a mixture: its components move too, in blocks of one fused output kernel."""
    h = jnp.tanh(x @ normal("kernel", 3, 5))
    logits, loc, log_scale = jnp.split(h @ normal("out", 5, 12), 3, axis=-1)
    mixture = dist.MixtureSameFamily(dist.Categorical(logits=logits), dist.Normal(loc, jnp.exp(log_scale)))
    numpyro.sample("obs", mixture, obs=y)


@CASES.add("two-heads", "S4 x S5 x S6", X, Y)
def two_heads(x, y):
    """A common trunk, one head for the mean and one for the noise."""
    trunk = relu(x @ normal("trunk", 3, 6))
    mean = relu(trunk @ normal("mean", 6, 4)) @ normal("mean_out", 4)
    noise = relu(trunk @ normal("noise", 6, 5)) @ normal("noise_out", 5)
    observe(mean, y, jnp.exp(noise))


@CASES.add("ard-inputs", "S5", X, Y)
def ard_inputs(x, y):
    """A latent relevance for each input: inputs are data, units move."""
    relevance = numpyro.sample("relevance", dist.InverseGamma(2.0, 1.0).expand([3]).to_event(1))
    kernel = numpyro.sample("kernel", dist.Normal(0, relevance[:, None]).expand([3, 5]).to_event(2))
    observe(jnp.tanh(x @ kernel) @ normal("out", 5), y)


@CASES.add("horseshoe-weights", "S5", X, Y, signed="±S5", shown="Networks")
def horseshoe_weights(x, y):
    """A local scale for each weight, written off-centre; a scale for the layer."""
    overall = numpyro.sample("overall", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([3, 5]).to_event(2))
    slab = numpyro.sample("slab", dist.InverseGamma(3.0, 3.0))
    shrunk = local * jnp.sqrt(slab / (slab + (overall * local) ** 2))
    kernel = numpyro.deterministic("kernel", normal("raw", 3, 5) * overall * shrunk)
    observe(jnp.tanh(x @ kernel) @ normal("out", 5), y)


@CASES.add("mlp-t-prior", "S5", X, Y, signed="±S5")
def mlp_t_prior(x, y):
    """Columns of the kernel drawn jointly from a multivariate t."""
    kernel = numpyro.sample("kernel", dist.MultivariateStudentT(4.0, jnp.zeros(3), jnp.eye(3)).expand([5]).to_event(1))
    out = numpyro.sample("out", dist.Laplace(0.0, 1.0).expand([5]).to_event(1))
    observe(jnp.tanh(x @ kernel.T) @ out, y)


@CASES.add("ensemble-plates", "(S5)^3 x S3", X, Y > 0, signed="(±S5)^3 x S3")
def ensemble_plates(x, y):
    """Three networks in a plate, units in another; their likelihoods are averaged."""
    with numpyro.plate("nets", 3, dim=-2), numpyro.plate("units", 5, dim=-1):
        kernel = numpyro.sample("kernel", dist.Normal(0, 1).expand([3]).to_event(1))
        out = numpyro.sample("out", dist.Normal(0, 1))
    logits = jnp.einsum("khn,kh->kn", jnp.tanh(jnp.einsum("khd,nd->khn", kernel, x)), out)
    log_likelihood = jnp.where(y, jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)).sum(-1)
    numpyro.factor("likelihood", jax.nn.logsumexp(log_likelihood))


@CASES.add("mixture-of-experts", "(S5)^4 x S4", X, Y, signed="(±S5)^4 x S4", shown="Networks")
def mixture_of_experts(x, y):
    """Four experts of five units, chosen by a soft gate."""
    gate = softmax(x @ normal("gate", 3, 4))
    h = jnp.tanh(jnp.einsum("nd,edh->neh", x, normal("kernel", 4, 3, 5)))
    observe((gate * jnp.einsum("neh,eh->ne", h, normal("out", 4, 5))).sum(-1), y)


@CASES.add("mixture-of-experts-top-2", "(S5)^4 x S4", X, Y)
def mixture_of_experts_top_2(x, y):
    """Only the two best experts are heard."""
    gate = x @ normal("gate", 3, 4)
    best, _ = lax.top_k(gate, 2)
    gate = softmax(jnp.where(gate >= best[:, -1:], gate, -jnp.inf))
    h = relu(jnp.einsum("nd,edh->neh", x, normal("kernel", 4, 3, 5)))
    observe((gate * jnp.einsum("neh,eh->ne", h, normal("out", 4, 5))).sum(-1), y)


@CASES.add("mixture-of-experts-gathered", "(S5)^4 x S4", X, Y, signed="(±S5)^4 x S4", by_numbers=True, quick=True)
def mixture_of_experts_gathered(x, y):
    """Only the two best experts are computed."""
    best, chosen = lax.top_k(x @ normal("gate", 3, 4), 2)
    kernel, out = normal("kernel", 4, 3, 5)[chosen], normal("out", 4, 5)[chosen]
    experts = (jnp.tanh(jnp.einsum("nd,nkdh->nkh", x, kernel)) * out).sum(-1)
    observe((softmax(best) * experts).sum(-1), y)


@CASES.add("networks-of-groups", "(S4)^3", X, Y, signed="(±S4)^3", by_numbers=True)
def networks_of_groups(x, y):
    """A network for each of three groups, which constants know."""
    kernel, out = normal("kernel", 3, 3, 4)[LABELS], normal("out", 3, 4)[LABELS]
    observe((jnp.tanh(jnp.einsum("nd,ndh->nh", x, kernel)) * out).sum(-1), y)


@CASES.add("networks-of-groups-in-a-loop", "(S4)^3", X, Y, by_numbers=True, quick=True)
def networks_of_groups_in_a_loop(x, y):
    """A network for each of three groups, one after the other."""
    kernel, out = normal("kernel", 3, 3, 4), normal("out", 3, 4)
    for k in range(3):
        mean = relu(x[LABELS == k] @ kernel[k]) @ out[k]
        numpyro.sample(f"obs_{k}", dist.Normal(mean, 0.1).to_event(1), obs=y[LABELS == k])


@CASES.add("networks-of-two-groupings", "S4", X, Y, why="hidden and output weights are of other groups", quick=True)
def networks_of_two_groupings(x, y):
    """Hidden weights of one grouping, output weights of another."""
    kernel, out = normal("kernel", 3, 3, 4)[LABELS], normal("out", 3, 4)[LABELS[::-1]]
    observe((relu(jnp.einsum("nd,ndh->nh", x, kernel)) * out).sum(-1), y)


@CASES.add(
    "networks-of-groups-about-one", "S4", X, Y, why="the weights of all groups have a mean in common", quick=True
)
def networks_of_groups_about_one(x, y):
    """Hidden weights of three groups about those of one network."""
    kernel = numpyro.sample("kernel", dist.Normal(normal("mean", 3, 4), 1).expand([3, 3, 4]).to_event(3))
    h = relu(jnp.einsum("nd,ndh->nh", x, kernel[LABELS]))
    observe((h * normal("out", 3, 4)[LABELS]).sum(-1), y)


@CASES.add("random-features", "trivial", X, Y, why="the features are fixed")
def random_features(x, y):
    """Fixed random features, latent weights."""
    features = jnp.cos(x @ gaussian(24, 3, 5) + np.linspace(0.0, 3.0, 5))
    observe(features @ normal("out", 5), y)
