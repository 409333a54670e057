"""Models made to mislead: what tells indices apart stands far out in a tail, in a loop, or where data coincide."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from tests.gallery.case import EQUAL_DATA, FAR_OUT, Cases
from tests.gallery.parts import X, Y, categories, gaussian, normal, observe, weights

CASES = Cases()
ANGLES = np.arctan2(gaussian(42, 12), gaussian(43, 12))


@CASES.add(
    "outliers-counted-by-class", "trivial", Y, categories(5, 3, 12), why="each score has its datum", search=FAR_OUT
)
def outliers_counted_by_class(y, label):
    """Data are summed by whether a latent score of each is far out: scores belong to data."""
    score = normal("score", 12)
    outlier = (score > 8.0).astype(int)
    total = jax.ops.segment_sum(y, outlier, 2)
    numpyro.sample("obs", dist.Normal(total[1], 1.0), obs=0.3)


@CASES.add("reduced-by-own-rule", "trivial", Y, why="a fold from one side: order matters")
def reduced_by_own_rule(y):
    """lax.reduce with a function that is not commutative."""
    loc = normal("loc", 4)
    folded = lax.reduce(loc, jnp.zeros((), loc.dtype), lambda a, b: 0.5 * a + b, (0,))
    observe(folded + jnp.zeros(12), y)


@CASES.add(
    "reduced-by-own-rule-far", "trivial", Y, why="a fold from one side: order matters", quick=True, search=FAR_OUT
)
def reduced_by_own_rule_far(y):
    """The same, where it counts only beyond 10."""
    loc = normal("loc", 4)
    folded = lax.reduce(loc, jnp.zeros((), loc.dtype), lambda a, b: jnp.maximum(0.5 * a + b - 10.0, 0.0), (0,))
    observe(folded + loc.sum() + jnp.zeros(12), y)


@CASES.add("fold-along-units", "trivial", X, Y, why="the fold is not commutative")
def fold_along_units(x, y):
    """lax.reduce with a function of one's own, along one of two axes."""
    fold = lax.reduce(normal("w", 5, 3), jnp.zeros(()), lambda a, b: 0.5 * a + b, (0,))
    observe(x @ fold, y)


@CASES.add("bits", "trivial", Y, why="bits weighted by position")
def bits(y):
    """Bits of a latent number, weighted by where they stand."""
    loc = normal("loc", 4)
    b = lax.bitcast_convert_type(loc.astype(jnp.float32), jnp.uint8).astype(float)
    observe(b.sum(-1) @ jnp.arange(4.0) + jnp.zeros(12), y)


@CASES.add(
    "signs-clipped-far", "S5", X, Y, signed="S5", why="clipped at -30 and 40: odd only where draws look", search=FAR_OUT
)
def signs_clipped_far(x, y):
    """An activation that is odd up to thirty."""
    observe(jnp.clip(x @ normal("kernel", 3, 5), -30.0, 40.0) @ normal("out", 5), y)


@CASES.add(
    "loop-single-precision-offset", "S2", Y, why="the first component is moved by 1e-4", by_numbers=True, quick=True
)
def loop_single_precision_offset(y):
    """Components listed in a loop in float32, the first moved by 1e-4."""
    loc = normal("loc", 3)
    locs = jnp.stack([loc[0] + 1e-4, loc[1], loc[2]]).astype(jnp.float32)
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(locs, 1.0)), obs=y)


@CASES.add(
    "loop-clipped-in-the-tail",
    "S2",
    Y,
    why="one location is bounded by 20, which no prior draw reaches",
    by_numbers=True,
    quick=True,
    search=FAR_OUT,
)
def loop_clipped_in_the_tail(y):
    """Components listed one by one; the last one's location may not pass 20."""
    loc = normal("loc", 3)
    locs = jnp.stack([loc[0], loc[1], jnp.minimum(loc[2], 20.0)])
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(locs, 1.0)), obs=y)


@CASES.add(
    "branch-in-the-tail", "S2", Y, why="the first location is penalised alone beyond 12", quick=True, search=FAR_OUT
)
def branch_in_the_tail(y):
    """A branch that only the first of three reaches, far out."""
    loc = normal("loc", 3)
    numpyro.factor("far", lax.cond(loc[0] > 12.0, lambda v: -100.0 * v[0], lambda v: 0.0, loc))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("cumulative-in-the-tail", "trivial", Y, why="order counts beyond 12", search=FAR_OUT)
def cumulative_in_the_tail(y):
    """A running sum that counts only where it is large."""
    loc = normal("loc", 3)
    numpyro.factor("far", -jnp.sum(jnp.maximum(jnp.cumsum(loc) - 15.0, 0.0)))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


@CASES.add(
    "argmax-far", "trivial", X, Y, why="which unit is largest counts, by its position, beyond 15", search=FAR_OUT
)
def argmax_far(x, y):
    """The position of the largest unit, where it is very large."""
    w = normal("w", 4)
    observe(jnp.zeros(12) + jnp.where(w.max() > 15.0, jnp.argmax(w), 0) + w.sum(), y)


@CASES.add(
    "served-in-order", "trivial", Y, why="demands are served in order until the capacity of 10 is used", search=FAR_OUT
)
def served_in_order(y):
    """Demands are served in order; prior draws seldom use up the capacity, the posterior may."""
    demand = numpyro.sample("demand", dist.HalfNormal(1.0).expand([4]).to_event(1))
    served = jnp.minimum(demand, jnp.maximum(10.0 - (jnp.cumsum(demand) - demand), 0.0))
    observe(jnp.sqrt(served + 1e-3).sum() + jnp.zeros(12), y)


@CASES.add("pure-callback", "trivial", X, Y, why="the host weighs units by position")
def pure_callback(x, y):
    """A host function that weighs units by their position."""
    h = jnp.tanh(x @ normal("kernel", 3, 4))
    out = jax.pure_callback(
        lambda v: np.asarray(v) @ np.arange(4.0).astype(v.dtype), jax.ShapeDtypeStruct((12,), h.dtype), h
    )
    observe(out, y)


@CASES.add(
    "pure-callback-prefers",
    # those of the other units are but added up, input by input
    "(S3)^3",
    X,
    Y,
    why="the host bounds the first unit alone, where prior draws seldom come",
    by_numbers=True,
    quick=True,
    search=FAR_OUT,
)
def pure_callback_prefers(x, y):
    """A host function that bounds one unit."""
    h = x @ normal("kernel", 3, 4)

    def host(v):
        v = np.array(v)
        v[:, 0] = np.minimum(v[:, 0], 25.0)
        return v.sum(-1)

    observe(jax.pure_callback(host, jax.ShapeDtypeStruct((12,), h.dtype), h), y)


@CASES.add(
    "capture-histories",
    "trivial",
    np.array([2, 2, 1, 0, 2]),
    why="animals are data; that counts coincide is an accident",
    search=EQUAL_DATA,
)
def capture_histories(caught):
    """Capture and recapture: animals in a Python loop, whether each is there is summed out."""
    skill = numpyro.sample("skill", dist.Beta(1.0, 1.0).expand([5]).to_event(1))
    there = numpyro.sample("there", dist.Beta(1.0, 1.0))
    for k in range(5):
        z = numpyro.sample(f"z{k}", dist.Bernoulli(there), infer={"enumerate": "parallel"})
        numpyro.sample(f"y{k}", dist.Binomial(4, z * skill[k]), obs=caught[k])


@CASES.add(
    "loop-enumerated-answers",
    "trivial",
    np.array([1, 1, 0, 0]),
    enumerated=True,
    needs=("funsor",),
    why="people are data",
    search=EQUAL_DATA,
)
def loop_enumerated_answers(answers):
    """Four people answer; each guesses or knows, summed out; a Python loop over people."""
    ability = normal("ability", 4)
    for k in range(4):
        knows = numpyro.sample(f"knows{k}", dist.Bernoulli(logits=ability[k]), infer={"enumerate": "parallel"})
        numpyro.sample(f"obs{k}", dist.Bernoulli(jnp.where(knows == 1, 0.9, 0.3)), obs=answers[k])


@CASES.add(
    "factor-of-equal-counts",
    "trivial",
    np.array([3, 3, 5, 0]),
    why="each count is a datum; that two coincide is an accident",
    quick=True,
    search=EQUAL_DATA,
)
def factor_of_equal_counts(counts):
    """Random effects of four groups, whose log-likelihood is a factor, summed in a Python loop; two counts coincide."""
    effect = normal("effect", 4)
    numpyro.factor("obs", sum(dist.Poisson(jnp.exp(effect[k])).log_prob(counts[k]) for k in range(4)))


@CASES.add("all-ones", "trivial", np.array([1, 1, 1]), why="answers are data", quick=True, search=EQUAL_DATA)
def all_ones(y):
    """One factor, three people who all said yes."""
    a = normal("a", 3)
    numpyro.factor("f", sum(jax.nn.log_sigmoid(a[k]) * y[k] for k in range(3)))


@CASES.add(
    "random-effects-by-factor-loop",
    "trivial",
    np.repeat(np.arange(4), 3),
    np.tile([1, 0, 1], 4),
    why="groups are data; that their answers coincide is an accident",
    search=EQUAL_DATA,
)
def random_effects_by_factor_loop(group, y):
    """Groups in a Python loop, masked sums."""
    effect = normal("effect", 4)
    for g in range(4):
        numpyro.factor(f"g{g}", jnp.where(group == g, dist.Bernoulli(logits=effect[g]).log_prob(y), 0.0).sum())


@CASES.add(
    "factor-of-zeros",
    "trivial",
    np.array([0.0, 0.0, 1.3, -0.4]),
    why="that two data are zero is an accident",
    search=EQUAL_DATA,
)
def factor_of_zeros(y):
    """Random effects with real data as a factor; two of the data are zero."""
    effect = normal("effect", 4)
    numpyro.factor("obs", sum(dist.Normal(effect[k], 1.0).log_prob(y[k]) for k in range(4)))


@CASES.add(
    "loop-of-equal-counts",
    "trivial",
    np.array([3, 3, 5, 0]),
    why="each count is a datum; that two coincide is an accident",
    search=EQUAL_DATA,
)
def loop_of_equal_counts(counts):
    """Random effects of four groups, observed one by one in a Python loop; two counts coincide."""
    effect = normal("effect", 4)
    for k in range(4):
        numpyro.sample(f"obs{k}", dist.Poisson(jnp.exp(effect[k])), obs=counts[k])


@CASES.add("loop-over-sessions", "trivial", np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), why="sessions are data")
def loop_over_sessions(choices):
    """Learning rates of three sessions; choices 0.0 and 1.0 of a learner, a factor for each session."""
    rate = numpyro.sample("rate", dist.Beta(1.0, 1.0).expand([3]).to_event(1))
    for s in range(3):

        def step(q, c, s=s):
            return q + rate[s] * (c - q), c * jnp.log(q + 1e-3) + (1 - c) * jnp.log(1 - q + 1e-3)

        _, ll = lax.scan(step, 0.5, choices[s])
        numpyro.factor(f"s{s}", ll.sum())


@CASES.add("condition-coincide", "trivial", why="conditioned values are data", search=EQUAL_DATA)
def condition_coincide():
    """Handlers condition on data of which two coincide, one by one."""

    def inner():
        effect = normal("effect", 3)
        for k in range(3):
            numpyro.sample(f"obs{k}", dist.Normal(effect[k], 1.0))

    handlers.condition(inner, {"obs0": jnp.array(1.0), "obs1": jnp.array(1.0), "obs2": jnp.array(2.0)})()


@CASES.add("prior-in-loop-differs", "S2", Y, why="the last component's prior is wider by 1e-3", by_numbers=True)
def prior_in_loop_differs(y):
    """Priors of components by factors in a loop, the last wider by 1e-3."""
    loc = numpyro.sample("loc", dist.ImproperUniform(dist.constraints.real_vector, (), (3,)))
    for k, s in enumerate([1.0, 1.0, 1.001]):
        numpyro.factor(f"prior{k}", dist.Normal(0, s).log_prob(loc[k]))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("rolled-units", "trivial", X, Y, why="every unit speaks through its neighbour's weight: only turns are left")
def rolled_units(x, y):
    """Units are multiplied with their neighbours."""
    h = jnp.tanh(x @ normal("w", 3, 5))
    observe((h * jnp.roll(h, 1, -1)).sum(-1), y)


@CASES.add("contrib-scan-other-start", "trivial", gaussian(61, 8), why="walks start from different places")
def contrib_scan_other_start(y):
    """Two latent walks from 0 and 0.01."""

    def step(z, obs):
        z = numpyro.sample("z", dist.Normal(z, 1.0).to_event(1))
        numpyro.sample("obs", dist.Normal(z.sum(), 0.1), obs=obs)
        return z, None

    scan(step, jnp.array([0.0, 0.01]), y)


@CASES.add("units-subsampled-by-index", "trivial", X, Y, why="the sub-sample's indices choose scales")
def units_subsampled_by_index(x, y):
    """The same, with a scale for each unit by its index."""
    with numpyro.plate("unit", 10, subsample_size=5) as idx:
        v = numpyro.sample("v", dist.Normal(0, 1 + 0.1 * idx))
    observe(x.sum(-1) * v.sum(), y)


@CASES.add("monotone-weights", "trivial", Y, why="softplus steps are added up")
def monotone_weights(y):
    """Monotone locations by cumulative softplus steps."""
    loc = jnp.cumsum(jax.nn.softplus(normal("step", 3)))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(3)), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("custom-jvp-index", "S4", X, Y, why="the forward pass weighs the last unit")
def custom_jvp_index(x, y):
    """A function with its own derivative that weighs the last unit."""

    @jax.custom_jvp
    def f(h):
        return h * jnp.array([1.0, 1, 1, 1, 1.0001])

    f.defjvp(lambda p, t: (f(*p), t[0]))
    observe(f(jnp.tanh(x @ normal("kernel", 3, 5))) @ normal("out", 5), y)


@CASES.add("custom-vjp-index", "S4", X, Y, why="the forward pass weighs the first unit", by_numbers=True)
def custom_vjp_index(x, y):
    """A function with its own derivative that weighs one unit."""

    @jax.custom_vjp
    def f(h):
        return h.at[:, 0].multiply(1.01)

    f.defvjp(lambda h: (f(h), None), lambda _, g: (g,))
    observe(f(jnp.tanh(x @ normal("kernel", 3, 5))) @ normal("out", 5), y)


@CASES.add("stop-gradient-index", "S4", X, Y, why="the first unit is scaled, behind a stop_gradient")
def stop_gradient_index(x, y):
    """One unit's scale, behind a stop_gradient."""
    h = jnp.tanh(x @ normal("kernel", 3, 5))
    scale = lax.stop_gradient(jnp.where(jnp.arange(5) == 0, 1.0001, 1.0))
    observe((h * scale) @ normal("out", 5), y)


@CASES.add("prng-key-weights", "trivial", X, Y, why="each unit has a random feature of its own")
def prng_key_weights(x, y):
    """Random frequencies are drawn in the model."""
    freq = jax.random.normal(numpyro.prng_key(), (3, 5))
    observe(jnp.cos(x @ freq) @ normal("out", 5), y)


@CASES.add("truncated-far", "S2", Y, why="one prior is cut at 9, where its density is as good as zero", search=FAR_OUT)
def truncated_far(y):
    """One of three priors is truncated far out."""
    loc = numpyro.sample("loc", dist.TruncatedNormal(0.0, 1.0, low=jnp.array([-9.0, -9.0, -12.0])).to_event(1))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


@CASES.add(
    "first-index-of-enumerated", "S2", Y, enumerated=True, needs=("funsor",), why="the first class has an offset"
)
def first_index_of_enumerated(y):
    """The first of three classes has a small offset."""
    w, loc = weights(3), normal("loc", 3)
    with numpyro.plate("data", 12):
        z = numpyro.sample("z", dist.Categorical(w), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Normal(loc[z] + 1e-4 * (z == 0), 1.0), obs=y)


@CASES.add(
    "enumerated-far", "S2", Y, enumerated=True, needs=("funsor",), why="the first class is bounded", search=FAR_OUT
)
def enumerated_far(y):
    """The first of three classes is bounded far out."""
    w, loc = weights(3), normal("loc", 3)
    with numpyro.plate("data", 12):
        z = numpyro.sample("z", dist.Categorical(w), infer={"enumerate": "parallel"})
        numpyro.sample("obs", dist.Normal(jnp.where(z == 0, jnp.minimum(loc[z], 30.0), loc[z]), 1.0), obs=y)


@CASES.add("improper-intervals", "S2", Y, why="one interval is longer")
def improper_intervals(y):
    """Flat on intervals, one of which is longer."""
    support = dist.constraints.independent(
        dist.constraints.interval(jnp.zeros(3), jnp.array([100.0, 100.0, 100.001])), 1
    )
    loc = numpyro.sample("loc", dist.ImproperUniform(support, (), (3,)))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), dist.Normal(loc, 1.0)), obs=y)


def rarely(loc):
    """Where hardly any draw is."""
    return jnp.floor(100.0 * loc.max()) == 17


RARE = "where labels matter no draw is"


@CASES.add("rare-branch-select", "S2", Y, why="the first is taken by its index, rarely", quick=True, search=RARE)
def rare_branch_select(y):
    """A choice of numbers."""
    loc = normal("loc", 3)
    observe(jnp.where(rarely(loc), loc[0], loc.sum()) + jnp.zeros(12), y)


@CASES.add("rare-branch-cond", "S2", Y, why="the first is taken by its index, rarely", quick=True, search=RARE)
def rare_branch_cond(y):
    """A branch."""
    loc = normal("loc", 3)
    observe(lax.cond(rarely(loc), lambda x: x[0], lambda x: x.sum(), loc) + jnp.zeros(12), y)


@CASES.add("rare-branch-switch", "S2", Y, why="the first is taken by its index, rarely", quick=True, search=RARE)
def rare_branch_switch(y):
    """One of three branches, in a loop over the data."""
    loc = normal("loc", 3)
    branches = [lambda: loc.sum(), lambda: loc[0], lambda: loc.max()]
    _, mean = lax.scan(lambda carry, _: (carry, lax.switch(rarely(loc).astype(int), branches)), 0.0, length=12)
    observe(mean, y)


@CASES.add("rare-turn-while", "S2", Y, why="the first is taken by its index, rarely", quick=True, search=RARE)
def rare_turn_while(y):
    """A turn of a loop."""
    loc = normal("loc", 3)
    _, mean = lax.while_loop(lambda c: c[0], lambda c: (c[0] & False, loc[0]), (rarely(loc), loc.sum()))
    observe(mean + jnp.zeros(12), y)


@CASES.add("rare-branch-alike", "S3", Y, why="both branches are of all alike", quick=True)
def rare_branch_alike(y):
    """Branches that no label tells apart."""
    loc = normal("loc", 3)
    observe(lax.cond(rarely(loc), lambda x: x.prod(), lambda x: x.sum(), loc) + jnp.zeros(12), y)


@CASES.add("rare-overwriting", "S2", Y, why="the first is written to, rarely", quick=True, search=RARE)
def rare_overwriting(y):
    """One entry set where hardly any draw is."""
    loc = normal("loc", 3)
    observe(jnp.where(rarely(loc), loc.at[0].set(0.0), loc).sum() + jnp.zeros(12), y)


@CASES.add(
    "rare-multiple",
    "S2",
    Y,
    by_numbers=True,
    why="the first is multiplied, by other than one rarely",
    quick=True,
    search=RARE,
)
def rare_multiple(y):
    """One entry multiplied, by one where draws are."""
    loc = normal("loc", 3)
    observe(loc.at[0].multiply(jnp.where(rarely(loc), 2.0, 1.0)).sum() + jnp.zeros(12), y)


def rarely_overwritten(loc, start):
    """Locations of every datum, of which two in a row are overwritten, rarely."""
    written = lax.dynamic_update_slice(loc, jnp.zeros(2), (start,))
    return jnp.where(rarely(loc), written, loc).sum() + jnp.zeros(12)


@CASES.add(
    "rare-slice-overwritten",
    "S2",
    Y,
    by_numbers=True,
    why="the last two are written to, rarely",
    quick=True,
    search=RARE,
)
def rare_slice_overwritten(y):
    """A slice overwritten where hardly any draw is."""
    observe(rarely_overwritten(normal("loc", 3), start=1), y)


@CASES.add(
    "rare-slice-overwritten-at-its-end",
    "S2",
    Y,
    by_numbers=True,
    why="the last two are written to, rarely: a start beyond the end is moved back",
    quick=True,
    search=RARE,
)
def rare_slice_overwritten_at_its_end(y):
    """A slice overwritten where hardly any draw is, at a start beyond its end."""
    observe(rarely_overwritten(normal("loc", 3), start=7), y)


@CASES.add("rare-slice-by-padding", "S2", Y, why="the first is cut off, rarely", quick=True, search=RARE)
def rare_slice_by_padding(y):
    """A padding by less than nothing."""
    loc = normal("loc", 3)
    cut = lax.pad(loc, 0.0, [(-1, 0, 0)]).sum()
    observe(jnp.where(rarely(loc), cut, loc.sum()) + jnp.zeros(12), y)


@CASES.add("written-one-by-one", "S3", Y, by_numbers=True, why="each is written to in turn", quick=True)
def written_one_by_one(y):
    """A loop in Python that writes to every entry."""
    loc = normal("loc", 3)
    for k in range(3):
        loc = loc.at[k].multiply(2.0)
    observe(loc.prod() + jnp.zeros(12), y)


@CASES.add(
    "reference-in-scan", "S3", categories(5, 6, 12), why="any of them may be the reference", by_numbers=True, quick=True
)
def reference_in_scan(counts):
    """A logarithm of a sum of exponentials, against the first, in each step of a loop beside whole numbers."""
    loc = normal("loc", 3)

    def step(carry, _):
        return carry, loc[0] + jnp.log(jnp.exp(loc - loc[0]).sum())

    _, log_rate = lax.scan(step, 0.0, length=12)
    numpyro.sample("obs", dist.Poisson(jnp.exp(log_rate)).to_event(1), obs=counts)
