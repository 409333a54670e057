"""Traps: models that look symmetric and are not, or less than they look."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.nn import relu

from tests.gallery.case import Cases
from tests.gallery.parts import X, Y, categories, gaussian, normal, observe, weights

CASES = Cases()
POSITION = "a constant depends on the unit's position"
PRIOR = "the prior tells units apart"


def units(x, width=5, activation=jnp.tanh):
    """The outputs of one hidden layer."""
    return activation(x @ normal("kernel", x.shape[1], width))


@CASES.add("prior-differs-in-one-entry", "S7", X, Y, why=PRIOR)
def prior_differs_in_one_entry(x, y):
    """One of 24 prior scales is another."""
    kernel = numpyro.sample("kernel", dist.Normal(0, jnp.ones((3, 8)).at[1, 2].set(2.0)).to_event(2))
    observe(jnp.tanh(x @ kernel) @ normal("out", 8), y)


@CASES.add("prior-differs-by-a-thousandth", "S3", X, Y, why=PRIOR)
def prior_differs_by_a_thousandth(x, y):
    """One scale of four is larger by 1e-3."""
    out = numpyro.sample("out", dist.Normal(0, jnp.array([1.0, 1.0, 1.001, 1.0])).to_event(1))
    observe(units(x, 4) @ out, y)


@CASES.add("prior-means-of-a-symmetric-likelihood", "trivial", X, Y, why=PRIOR)
def prior_means_of_a_symmetric_likelihood(x, y):
    """Units are summed, but their prior means differ."""
    kernel = numpyro.sample("kernel", dist.Normal(jnp.arange(5.0), 1.0).expand([3, 5]).to_event(2))
    observe(jnp.tanh(x @ kernel).sum(-1), y)


@CASES.add("prior-affine-by-unit", "trivial", X, Y, why=PRIOR)
def prior_affine_by_unit(x, y):
    """A transform scales each unit's weight."""
    scale = dist.transforms.AffineTransform(0.0, jnp.array([1.0, 2.0, 3.0, 4.0]))
    out = numpyro.sample("out", dist.TransformedDistribution(dist.Normal(0, 1).expand([4]), scale).to_event(1))
    observe(units(x, 4) @ out, y)


@CASES.add("prior-from-data-quantiles", "trivial", Y, why="data give each component its prior mean")
def prior_from_data_quantiles(y):
    """A mixture whose prior means are quantiles of the data."""
    loc = numpyro.sample("loc", dist.Normal(jnp.quantile(y, jnp.array([0.1, 0.4, 0.6, 0.9])), 1.0).to_event(1))
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(4)), dist.Normal(loc, 1.0)), obs=y)


@CASES.add("components-of-given-tails", "trivial", Y, why="components have different degrees of freedom")
def components_of_given_tails(y):
    """Student components whose tails are given."""
    components = dist.StudentT(jnp.array([3.0, 5.0, 9.0]), normal("loc", 3), 1.0)
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(3)), components), obs=y)


@CASES.add("assignments-unmarked", "S3", Y, enumerated=True, needs=("funsor",))
def assignments_unmarked(y):
    """A mixture with discrete assignments that nobody marked for summing out; they are all the same."""
    loc, weight = normal("loc", 3, scale=3), weights(3)
    with numpyro.plate("data", len(y)):
        z = numpyro.sample("z", dist.Categorical(weight))
        numpyro.sample("obs", dist.Normal(loc[z], 1.0), obs=y)


@CASES.add("units-indexed-by-data", "trivial", X, Y, categories(80, 5, 12), why="data choose units")
def units_indexed_by_data(x, y, unit):
    """Each datum reads one unit, which data name."""
    h = units(x)
    observe(jnp.take_along_axis(h, unit[:, None], axis=1)[:, 0] * normal("out", 5)[unit], y)


@CASES.add("units-masked-by-data", "trivial", X, Y, gaussian(81, 12, 5) > 0, why="data mask units")
def units_masked_by_data(x, y, mask):
    """A fixed dropout mask for data and units."""
    observe((units(x) * mask) @ normal("out", 5), y)


@CASES.add("inputs-masked-by-data", "S5", X, Y, gaussian(82, 12, 3) > 0)
def inputs_masked_by_data(x, y, mask):
    """A fixed dropout mask for inputs leaves units alone."""
    observe(units(x * mask) @ normal("out", 5), y)


@CASES.add("param-starts-at-zero", "trivial", X, Y, why=POSITION, quick=True)
def param_starts_at_zero(x, y):
    """Symmetric only where the parameter starts: later each unit's share has a factor of its own."""
    share = numpyro.param("share", jnp.zeros(5))
    observe(units(x) @ (1.0 + share * jnp.arange(1.0, 6.0)), y)


@CASES.add("positions-added-to-units", "trivial", X, Y, why=POSITION)
def positions_added_to_units(x, y):
    """A positional encoding over units."""
    h = jnp.tanh(x @ normal("kernel", 3, 5) + jnp.sin(jnp.arange(5.0)))
    observe(h @ normal("out", 5), y)


@CASES.add("units-times-position", "trivial", X, Y, why=POSITION)
def units_times_position(x, y):
    """Outputs are multiplied by 1, 2, 3, ... before they are summed."""
    observe((units(x) * (1 + jnp.arange(5))).sum(-1), y)


@CASES.add("units-to-own-powers", "trivial", X, Y, why=POSITION)
def units_to_own_powers(x, y):
    """A product over units with an exponent for each."""
    observe(jnp.prod(jnp.cosh(units(x)) ** jnp.arange(1, 6), axis=-1), y)


@CASES.add("units-where-position", "S2 x S3", X, Y, why=POSITION)
def units_where_position(x, y):
    """The first two units have another activation, by where."""
    h = x @ normal("kernel", 3, 5)
    observe(jnp.where(jnp.arange(5) < 2, jnp.tanh(h), relu(h)) @ normal("out", 5), y)


@CASES.add("unit-clipped", "S4", X, Y, why="the first unit is clipped", quick=True)
def unit_clipped(x, y):
    """One unit's output is clipped."""
    h = units(x, activation=jnp.sinh)
    observe(h.at[:, 0].set(jnp.clip(h[:, 0], -0.1, 0.1)) @ normal("out", 5), y)


@CASES.add("unit-read-twice", "S4", X, Y, why="the first unit is read once more")
def unit_read_twice(x, y):
    """The first unit also goes straight to the output."""
    h = units(x)
    observe(h @ normal("out", 5) + h[:, 0], y)


@CASES.add("unit-weight-fixed", "S4", X, Y, why="the first unit's output weight is given")
def unit_weight_fixed(x, y):
    """One output weight is set to one."""
    observe(units(x) @ jnp.concatenate([jnp.ones(1), normal("out", 4)]), y)


@CASES.add("units-in-three-orders", "trivial", X, Y, why="no exchange of units keeps all three orders")
def units_in_three_orders(x, y):
    """The same weights read the units forwards, backwards and shifted."""
    h, out = units(x), normal("out", 5)
    observe(h @ out + jnp.tanh(h[:, ::-1] @ out) + jnp.sin(jnp.roll(h, 1, axis=1) @ out), y)


@CASES.add(
    "units-with-neighbours", "trivial", X, Y, why="only turns and reflections of the circle are left", shown="Networks"
)
def units_with_neighbours(x, y):
    """Products of neighbours around a circle."""
    h = units(x)
    observe((h * jnp.roll(h, 1, axis=1)).sum(-1), y)


@CASES.add("units-accumulated", "trivial", X, Y, why="units are summed in order", quick=True)
def units_accumulated(x, y):
    """A cumulative sum over units."""
    observe(jnp.cumsum(units(x), axis=1) @ normal("out", 5), y)


@CASES.add("units-argmax", "trivial", X, Y, why="the number of the largest unit is used")
def units_argmax(x, y):
    """The largest output and its index, as a number."""
    h = units(x)
    observe(h.max(-1) * normal("slope") + jnp.argmax(h, axis=-1), y)


@CASES.add("weights-sorted", "S5", X, Y, why="sorted output weights move alone, units do not move")
def weights_sorted(x, y):
    """Output weights are sorted before they meet the units."""
    observe(units(x) @ jnp.sort(normal("out", 5)), y)


@CASES.add("gram-triangle", "trivial", X, Y, why="the triangular part has an order")
def gram_triangle(x, y):
    """The lower triangle of W.T W mixes the units."""
    kernel = normal("kernel", 3, 5)
    observe(jnp.tanh(x @ kernel @ jnp.tril(kernel.T @ kernel)).sum(-1), y)


@CASES.add("gram-full", "S5", X, Y)
def gram_full(x, y):
    """All of W.T W mixes the units: they move."""
    kernel = normal("kernel", 3, 5)
    observe(jnp.tanh(x @ kernel @ (kernel.T @ kernel)).sum(-1), y)


@CASES.add("smooth-over-units", "trivial", X, Y, why="neighbouring units are tied by a factor")
def smooth_over_units(x, y):
    """A factor ties neighbouring output weights."""
    out = normal("out", 5)
    numpyro.factor("smooth", -jnp.sum(jnp.diff(out) ** 2))
    observe(units(x) @ out, y)


@CASES.add("layer-applied-twice", "S5", X, Y, why="the two layers share their kernel, so their units move together")
def layer_applied_twice(x, y):
    """The same square kernel twice: rows and columns are one group."""
    recur = normal("recur", 5, 5)
    observe(jnp.tanh(jnp.tanh(units(x) @ recur) @ recur) @ normal("out", 5), y)


@CASES.add("layer-and-its-transpose", "S5 x S5", X, Y)
def layer_and_its_transpose(x, y):
    """A square kernel and its transpose: rows and columns stay two groups."""
    mix = normal("mix", 5, 5)
    observe(jnp.tanh(jnp.tanh(units(x) @ mix) @ mix.T) @ normal("out", 5), y)


@CASES.add("layer-and-its-transpose-with-skip", "S5", X, Y, why="the skip makes the two layers' units move together")
def layer_and_its_transpose_with_skip(x, y):
    """A square kernel and its transpose, around a skip: one group."""
    mix = normal("mix", 5, 5)
    h = jnp.tanh(units(x) @ mix)
    observe((h + jnp.tanh(h @ mix.T)) @ normal("out", 5), y)


@CASES.add("unrelated-of-equal-size", "S4 x S4 x S4", X, Y)
def unrelated_of_equal_size(x, y):
    """Two layers and a mixture's components, four of each: three groups."""
    h = jnp.tanh(units(x, 4) @ normal("second", 4, 4))
    loc = (h @ normal("out", 4))[:, None] + normal("shift", 4)
    numpyro.sample("obs", dist.MixtureSameFamily(dist.Categorical(weights(4)), dist.Normal(loc, 1.0)), obs=y)


@CASES.add(
    "data-coincide",
    "trivial",
    jnp.ones((4, 3)),
    jnp.ones(4),
    why="that data coincide is an accident",
    quick=True,
    search="equal data may be exchanged with their errors",
)
def data_coincide(x, y):
    """Four equal data, a latent error for each."""
    error = normal("error", 4)
    observe(x @ normal("slope", 3) + error, y)


@CASES.add("schools-of-equal-errors", "trivial", Y[:8], jnp.full(8, 10.0), why="each school has its datum")
def schools_of_equal_errors(y, error):
    """Eight schools with one standard error."""
    mean, spread = normal("mean", scale=5), numpyro.sample("spread", dist.HalfCauchy(5.0))
    effect = numpyro.sample("effect", dist.Normal(mean, spread).expand([8]).to_event(1))
    observe(effect, y, error)


@CASES.add("steps-have-an-order", "S4", X, Y, why="steps follow each other, units move alike at all of them")
def steps_have_an_order(x, y):
    """Three layers stacked in an array and scanned over, units carried by a skip."""
    h, _ = lax.scan(lambda h, kernel: (h + jnp.tanh(h @ kernel), None), units(x, 4), normal("stack", 3, 4, 4))
    observe(h @ normal("out", 4), y)


@CASES.add("heads-of-given-temperature", "(S3)^2", X, Y, why="each head has its own temperature")
def heads_of_given_temperature(x, y):
    """Two soft choices among three, at given temperatures."""
    logits = jnp.einsum("nd,dhk->nhk", x, normal("choose", 3, 2, 3)) * jnp.array([1.0, 3.0])[:, None]
    observe((jax.nn.softmax(logits) * normal("value", 2, 3)).sum((1, 2)), y)
