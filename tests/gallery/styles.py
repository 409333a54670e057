"""Symmetric models, written as people write them: loops, maps, scans, scatters, callbacks, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.infer.reparam import CircularReparam

from tests.gallery.case import Cases
from tests.gallery.parts import LABELS, PAIRS, X, Y, classify, gaussian, normal, observe, weights

CASES = Cases()
ANGLES = np.arctan2(gaussian(42, 12), gaussian(43, 12))


@CASES.add("vmap-over-units", "S5", X, Y)
def vmap_over_units(x, y):
    """One unit as a function, vmapped over its weights."""

    def unit(w, b, v):
        return v * jnp.tanh(x @ w + b)

    observe(jax.vmap(unit, in_axes=(1, 0, 0))(normal("w", 3, 5), normal("b", 5), normal("v", 5)).sum(0), y)


@CASES.add("fori-loop-over-units", "S5", X, Y, by_numbers=True, quick=True)
def fori_loop_over_units(x, y):
    """A fori_loop adds up units one by one."""
    w, v = normal("w", 3, 5), normal("v", 5)
    observe(lax.fori_loop(0, 5, lambda k, m: m + v[k] * jnp.tanh(x @ w[:, k]), jnp.zeros(12)), y)


@CASES.add("scan-over-units", "S5", X, Y, by_numbers=True)
def scan_over_units(x, y):
    """A scan adds up units one by one."""
    w, v = normal("w", 5, 3), normal("v", 5)
    mean, _ = lax.scan(lambda m, p: (m + p[1] * jnp.tanh(x @ p[0]), None), jnp.zeros(12), (w, v))
    observe(mean, y)


@CASES.add("map-over-components", "S4", Y)
def map_over_components(y):
    """lax.map over components, logsumexp over what it gives."""
    loc, w = normal("loc", 4, scale=3), weights(4)
    parts = lax.map(lambda p: jnp.log(p[0]) + dist.Normal(p[1], 1.0).log_prob(y), (w, loc))
    numpyro.factor("obs", jax.scipy.special.logsumexp(parts, axis=0).sum())


@CASES.add("gates-by-columns", "S5", X, Y)
def gates_by_columns(x, y):
    """lax.map over the columns of a kernel in which gates stand beside the values of units."""
    gate, value = jnp.split(lax.map(lambda w: x @ w, normal("w", 3, 10).T), 2)
    observe(normal("v", 5) @ (jax.nn.sigmoid(gate) * value), y)


@CASES.add("experts-in-a-scan", "(S4)^3 x S3", X, Y, signed="(±S4)^3 x S3", by_numbers=True, quick=True)
def experts_in_a_scan(x, y):
    """Experts of four units each and their gates, added up one after the other."""

    def step(sums, expert):
        gate, w, v = expert
        weight = jnp.exp(x @ gate)
        return (sums[0] + weight * (jnp.tanh(x @ w) @ v), sums[1] + weight), None

    experts = normal("gate", 3, 3), normal("w", 3, 3, 4), normal("v", 3, 4)
    (total, weight), _ = lax.scan(step, (jnp.zeros(12), jnp.zeros(12)), experts)
    observe(total / weight, y)


@CASES.add("gates-one-by-one", "(S4)^3 x S3", X, Y, signed="(±S4)^3 x S3", by_numbers=True)
def gates_one_by_one(x, y):
    """Three experts of four units, their gates taken apart index by index."""
    gate, w = normal("gate", 3, 3), normal("w", 3, 3, 4)
    weights = jax.nn.softmax(jnp.stack([x @ gate[:, k] for k in range(3)], -1))
    experts = (jnp.tanh(jnp.einsum("ni,eiu->neu", x, w)) * normal("v", 3, 4)).sum(-1)
    observe((weights * experts).sum(-1), y)


@CASES.add("two-banks-of-experts", "(S4)^3 x (S4)^3 x S3", X, Y, by_numbers=True, quick=True)
def two_banks_of_experts(x, y):
    """Three experts of two hidden layers side by side, all taken apart index by index."""
    gate, first, second = normal("gate", 3, 3), normal("first", 3, 3, 4), normal("second", 3, 3, 4)
    one, other = normal("one", 3, 4), normal("other", 3, 4)
    each = [jnp.tanh(x @ first[k]) @ one[k] + jax.nn.softplus(x @ second[k]) @ other[k] for k in range(3)]
    observe(sum(each[k] * (x @ gate[:, k]) for k in range(3)), y)


@CASES.add("list-of-units", "S4", X, Y, by_numbers=True)
def list_of_units(x, y):
    """Units in a Python list, stacked and summed."""
    w, v = normal("w", 4, 3), normal("v", 4)
    observe(sum(v[k] * jnp.tanh(x @ w[k]) for k in range(4)), y)


@CASES.add("ravel-pytree", "S5", X, Y)
def ravel_pytree(x, y):
    """One vector, unravelled by jax.flatten_util."""
    flat, unravel = jax.flatten_util.ravel_pytree({"w": jnp.zeros((3, 5)), "b": jnp.zeros(5), "v": jnp.zeros(5)})
    p = unravel(normal("theta", flat.size))
    observe(jnp.tanh(x @ p["w"] + p["b"]) @ p["v"], y)


@CASES.add("mask-by-where", "S2 x S3", X, Y, why="masked units have a role of their own")
def mask_by_where(x, y):
    """The last two units are masked by where."""
    h = jnp.tanh(x @ normal("w", 3, 5))
    observe(jnp.where(jnp.arange(5) < 3, h, 0.0) @ normal("v", 5), y)


@CASES.add("circular-reparam", "S3", ANGLES)
def circular_reparam(angle):
    """A mixture of von Mises whose locations are reparametrised on the circle."""
    with handlers.reparam(config={"loc": CircularReparam()}):
        with numpyro.plate("component", 3):
            loc = numpyro.sample("loc", dist.VonMises(0.0, 0.5))
    conc = numpyro.sample("conc", dist.LogNormal(1.0, 1.0).expand([3]).to_event(1))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(3)), dist.VonMises(loc, conc)), obs=angle)


@CASES.add("hierarchy-of-plates", "(S2)^3 x S3", PAIRS)
def hierarchy_of_plates(x):
    """Clusters within clusters, by nested plates."""
    with numpyro.plate("outer", 3, dim=-2):
        centre = numpyro.sample("centre", dist.Normal(0, 3))
        with numpyro.plate("inner", 2, dim=-1):
            loc = numpyro.sample("loc", dist.Normal(centre, 1.0))
    logp = dist.Normal(loc, 0.5).log_prob(x[:, :1, None])
    numpyro.factor("obs", jax.scipy.special.logsumexp(logp, (1, 2)).sum())


@CASES.add("tensor-train", "S2 x S3", gaussian(45, 4, 5, 6))
def tensor_train(t):
    """Cores of a tensor train: every bond is free."""
    a, b, c = normal("a", 4, 3), normal("b", 3, 5, 2), normal("c", 2, 6)
    numpyro.sample("obs", dist.Normal(jnp.einsum("ir,rjs,sk->ijk", a, b, c), 0.1).to_event(3), obs=t)


@CASES.add("rbm-hidden-summed", "S4", (gaussian(46, 12, 3) > 0).astype(float))
def rbm_hidden_summed(v):
    """A restricted Boltzmann machine: hidden units summed out by hand, all visible states listed."""
    w, b, c = normal("w", 3, 4), normal("b", 3), normal("c", 4)

    def free(v):
        return v @ b + jax.nn.softplus(v @ w + c).sum(-1)

    every = (np.arange(8)[:, None] >> np.arange(3)) & 1
    logz = jax.scipy.special.logsumexp(free(jnp.asarray(every, float)))
    numpyro.factor("obs", (free(v) - logz).sum())


@CASES.add(
    "rbm-enumerated", "S3", (gaussian(46, 6, 2) > 0).astype(int), enumerated=True, needs=("funsor",), by_numbers=True
)
def rbm_enumerated(v):
    """Latent binary causes of each datum, summed out by funsor: a sigmoid belief network."""
    w, prior = normal("w", 3, 2), numpyro.sample("p", dist.Beta(1.0, 1.0).expand([3]).to_event(1))
    with numpyro.plate("data", 6):
        h = [numpyro.sample(f"h{k}", dist.Bernoulli(prior[k]), infer={"enumerate": "parallel"}) for k in range(3)]
        for j in range(2):
            numpyro.sample(f"v{j}", dist.Bernoulli(logits=sum(h[k] * w[k, j] for k in range(3))), obs=v[:, j])


@CASES.add("ising-hidden-spins", "S3", np.sign(gaussian(47, 12, 4)), signed="±S3")
def ising_hidden_spins(s):
    """Mean-field hidden spins with couplings to data; a spin may be flipped with its couplings."""
    observe_field = s @ normal("j", 4, 3)
    numpyro.factor("obs", jnp.log(2 * jnp.cosh(observe_field)).sum())


@CASES.add("crf-hidden-tags", "S4", X, LABELS)
def crf_hidden_tags(x, label):
    """A hidden-state conditional random field: states are names only, classes are data."""
    trans, emit, read = normal("trans", 4, 4), x @ normal("emit", 3, 4), normal("read", 4, 3)

    def step(a, e):
        return ((jax.scipy.special.logsumexp(a[:, None] + trans, 0) + e), jax.nn.softmax(a))

    _, post = lax.scan(step, emit[0], emit[1:])
    classify(post @ read, label[1:])


@CASES.add("neural-ode-odeint", "S5", X[:4], Y[:4])
def neural_ode_odeint(x, y):
    """An adaptive solver from JAX: units of the vector field move."""
    from jax.experimental.ode import odeint

    w, v = normal("w", 3, 5, scale=0.3), normal("v", 5, 3, scale=0.3)
    end = odeint(lambda h, t: jnp.tanh(h @ w) @ v, x, jnp.array([0.0, 1.0]))[-1]
    observe(end @ normal("read", 3), y)


@CASES.add("k-sparse", "S6", X, Y)
def k_sparse(x, y):
    """Only units above the third largest of each datum speak."""
    h = x @ normal("w", 3, 6)
    kept = h >= lax.top_k(h, 3)[0][:, -1:]
    observe(jnp.where(kept, h, 0.0) @ normal("v", 6), y)


@CASES.add(
    "group-lasso-segment",
    "S2 x S2 x S2",
    X,
    Y,
    why="units come in three groups of two; within each the constants of a segment sum tell pairs apart",
)
def group_lasso_segment(x, y):
    """A penalty by groups of two units, written with segment_sum."""
    v = normal("v", 6)
    norm2 = jax.ops.segment_sum(v**2, np.repeat(np.arange(3), 2), 3)
    numpyro.factor("lasso", -jnp.sqrt(norm2 + 1e-3).sum())
    observe(jnp.tanh(x @ normal("w", 3, 6)) @ v, y)


@CASES.add("determinantal-prior", "S4", Y, by_numbers=True)
def determinantal_prior(y):
    """A repulsive prior of locations: the log determinant of their kernel matrix."""
    loc = normal("loc", 4, scale=2)
    gram = jnp.exp(-0.5 * (loc[:, None] - loc) ** 2) + 1e-3 * jnp.eye(4)
    numpyro.factor("repel", jnp.linalg.slogdet(gram)[1])
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(4)), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("pairs-by-triu", "S4", Y, by_numbers=True)
def pairs_by_triu(y):
    """A repulsion between all pairs, listed by triu_indices."""
    loc = normal("loc", 4, scale=2)
    i, j = np.triu_indices(4, 1)
    numpyro.factor("repel", jnp.log((loc[i] - loc[j]) ** 2 + 0.1).sum())
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(4)), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("sinkhorn-assignment", "S4", X, Y)
def sinkhorn_assignment(x, y):
    """Entropic optimal transport between data and latent atoms."""
    atoms, value = normal("atoms", 4, 3), normal("value", 4)
    cost = ((x[:, None] - atoms) ** 2).sum(-1)

    def round_(fg, _):
        f = -jax.nn.logsumexp(fg[1] - cost, axis=1, keepdims=True)
        return (f, -jax.nn.logsumexp(f - cost, axis=0, keepdims=True)), None

    (f, g), _ = lax.scan(round_, (jnp.zeros((12, 1)), jnp.zeros((1, 4))), None, length=5)
    observe(jnp.exp(f + g - cost) @ value, y)


@CASES.add("competition-lotka", "S3", Y)
def competition_lotka(y):
    """Species that compete, of which only the total is seen: rows and columns move together."""
    a = numpyro.sample("a", dist.HalfNormal(0.1).expand([3, 3]).to_event(2))
    r, n0 = (
        numpyro.sample("r", dist.HalfNormal(1.0).expand([3]).to_event(1)),
        numpyro.sample("n0", dist.HalfNormal(1.0).expand([3]).to_event(1)),
    )

    def step(n, _):
        return (n + 0.1 * n * (r - a @ n), n.sum())

    _, total = lax.scan(step, n0, None, length=12)
    observe(total, y)


@CASES.add("hmm-associative-scan", "S3", Y)
def hmm_associative_scan(y):
    """The forward algorithm by associative_scan."""
    trans = numpyro.sample("trans", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
    like = jnp.exp(dist.Normal(normal("loc", 3), 1.0).log_prob(y[:, None]))
    mats = trans[None] * like[:, None, :]
    prod = lax.associative_scan(jnp.matmul, mats)[-1]
    numpyro.factor("obs", jnp.log((jnp.ones(3) / 3) @ prod @ jnp.ones(3)))


@CASES.add("kalman-latent-dims", "S2", PAIRS, signed="±S2")
def kalman_latent_dims(x):
    """A linear state space model with explicit states; latent dimensions move on both sides of the transition."""
    a, c = normal("a", 2, 2, scale=0.5), normal("c", 2, 2)
    z = normal("noise", 12, 2)
    _, states = lax.scan(lambda s, e: ((a @ s + e),) * 2, jnp.zeros(2), z)
    observe(states @ c, x)


@CASES.add("complex-fourier", "S4", X, Y)
def complex_fourier(x, y):
    """Units that are complex exponentials."""
    z = jnp.exp(1j * (x @ normal("w", 3, 4) + normal("phase", 4)))
    observe((z * normal("v", 4)).real.sum(-1), y)


@CASES.add("one-hot-by-scatter", "S5", X, Y)
def one_hot_by_scatter(x, y):
    """Every unit chooses one of three inputs by its own argmax, written with .at[].set under vmap."""
    choice = jnp.argmax(normal("score", 5, 3), -1)
    hot = jax.vmap(lambda i: jnp.zeros(3).at[i].set(1.0))(choice)
    observe(jnp.tanh(x @ hot.T) @ normal("v", 5), y)


@CASES.add("count-by-scatter", "S5", X, Y)
def count_by_scatter(x, y):
    """How many units choose each input."""
    choice = jnp.argmax(normal("score", 5, 3), -1)
    count = jnp.zeros(3).at[choice].add(1.0)
    observe(x @ count, y)


@CASES.add("units-written-beside-an-intercept", "S5", X, Y)
def units_written_beside_an_intercept(x, y):
    """Units written over all columns but one, which stays 1."""
    units = jnp.ones((len(x), 6)).at[:, :5].set(jax.nn.relu(x @ normal("w", 3, 5)))
    observe(units @ normal("v", 6), y)


@CASES.add("blocks-with-their-own-on-the-diagonal", "S3", (gaussian(48, 6, 6) > 0).astype(int))
def blocks_with_their_own_on_the_diagonal(a):
    """Blocks of nodes: a chance within each, written to the diagonal, and one between any two."""
    member = numpyro.sample("member", dist.Dirichlet(jnp.ones(3)).expand([6]).to_event(1))
    within = numpyro.sample("within", dist.Beta(2.0, 1.0).expand([3]).to_event(1))
    between = jnp.full((3, 3), numpyro.sample("between", dist.Beta(1.0, 2.0)))
    chance = member @ jnp.fill_diagonal(between, within, inplace=False) @ member.T
    numpyro.sample("obs", dist.Bernoulli(chance).to_event(2), obs=a)


@CASES.add("units-written-in-turn", "S2 x S3", X, Y)
def units_written_in_turn(x, y):
    """Two layers written side by side."""
    units = lax.dynamic_update_slice(jnp.zeros((len(x), 5)), jax.nn.relu(x @ normal("w", 3, 2)), (0, 0))
    units = lax.dynamic_update_slice(units, jax.nn.silu(x @ normal("u", 3, 3)), (0, 2))
    observe(units @ normal("v", 5), y)


@CASES.add("sum-by-chosen-class", "S5", X, Y)
def sum_by_chosen_class(x, y):
    """Weights of units are added up by the input that each unit chooses."""
    choice = jnp.argmax(normal("score", 5, 3), -1)
    total = jax.ops.segment_sum(normal("v", 5), choice, 3)
    observe(x @ total, y)


@CASES.add("top-k-along-units", "(S5)^3", X, Y)
def top_k_along_units(x, y):
    """The largest entries of each column."""
    w = normal("w", 5, 3)
    observe(x @ lax.top_k(w.T, 2)[0].sum(-1), y)


@CASES.add("top-k-first-axis", "(S5)^3", X, Y)
def top_k_first_axis(x, y):
    """The largest entries along the first of two axes, each rank with a weight of its own: ranks are no labels."""
    observe(x @ (normal("rank", 5) @ lax.top_k(normal("w", 5, 3), 5, axis=0)[0]), y)


@CASES.add("grad-inside", "S5", X, Y, signed="±S5")
def grad_inside(x, y):
    """The observed field is the gradient of a network."""
    w, v = normal("w", 3, 5), normal("v", 5)
    field = jax.vmap(jax.grad(lambda r: jnp.tanh(r @ w) @ v))(x)
    observe(field.sum(-1), y)


@CASES.add("hessian-inside", "S4", X, Y, signed="±S4")
def hessian_inside(x, y):
    """A Laplacian, as in physics-informed networks, rematerialised."""
    w, v = normal("w", 3, 4), normal("v", 4)
    f = jax.checkpoint(lambda r: jnp.tanh(r @ w) @ v)
    observe(jax.vmap(lambda r: jnp.trace(jax.hessian(f)(r)))(x), y)


@CASES.add("median-of-units", "S5", X, Y)
def median_of_units(x, y):
    """The median of five units."""
    observe(jnp.median(jnp.tanh(x @ normal("w", 3, 5)), -1), y)


@CASES.add("fft-of-units", "S2 x S2 x S2", X, Y, why="a Fourier transform along units", by_numbers=True)
def fft_of_units(x, y):
    """A spectrum along units: of four real ones, 0 and 2, 1 and 3, and frequencies 1 and 3 may be exchanged."""
    h = x @ normal("w", 3, 4)
    observe(jnp.abs(jnp.fft.fft(h, axis=-1)) @ normal("v", 4), y)


@CASES.add("pure-callback-even", "S4", X, Y, by_numbers=True)
def pure_callback_even(x, y):
    """A host function that sums units."""
    h = jnp.tanh(x @ normal("kernel", 3, 4))
    out = jax.pure_callback(lambda v: np.asarray(v).sum(-1), jax.ShapeDtypeStruct((12,), h.dtype), h)
    observe(out, y)


@CASES.add("wishart-factors", "S3", gaussian(68, 12, 5), by_numbers=True)
def wishart_factors(x):
    """Latent factors with a Wishart prior of their precision."""
    precision = numpyro.sample("precision", dist.Wishart(5.0, scale_matrix=jnp.eye(3)))
    score = numpyro.sample(
        "score", dist.MultivariateNormal(jnp.zeros(3), precision_matrix=precision).expand([12]).to_event(1)
    )
    observe(score @ normal("loadings", 3, 5), x)


@CASES.add(
    "table-by-constant-and-score-near",
    "S2 x S2 x S3",
    Y,
    why="scores of other rows read other rows of a table",
    by_numbers=True,
)
def table_by_constant_and_score_near(y):
    """The sign of each score reads a table, in one of two rows; columns change places where all scores change sign."""
    score, table = normal("score", 5), normal("table", 2, 2)
    read = table[np.array([0, 0, 1, 1, 1]), (score > 0.0).astype(int)]
    observe(read.sum() + jnp.zeros(12), y)


@CASES.add("units-subsampled", "S5", X, Y, why="the sub-sample of units")
def units_subsampled(x, y):
    """A plate over units that is itself subsampled (as dropout)."""
    with numpyro.plate("unit", 10, subsample_size=5):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        v = numpyro.sample("v", dist.Normal(0, 1))
    observe(jnp.tanh(x @ w.T) @ v, y)


@CASES.add("low-rank-normal", "S2", gaussian(62, 12, 5), signed="±S2", by_numbers=True)
def low_rank_normal(x):
    """LowRankMultivariateNormal with two factors."""
    d = numpyro.sample("d", dist.HalfNormal(1.0).expand([5]).to_event(1))
    numpyro.sample("obs", dist.LowRankMultivariateNormal(jnp.zeros(5), normal("w", 5, 2), d + 0.1), obs=x)
