"""Groups that move by themselves in each entry of an axis beside them, found by numbers."""

from functools import partial

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from jax.nn import relu

from numpyro_symmetry import Concat, Split, Symmetry, Unsigned, find_symmetry
from numpyro_symmetry.discovery.proof import cells
from tests.gallery.parts import X, Y, normal, observe


def in_a_loop(x, y):
    """A network for each of three blocks of rows."""
    kernel, out = normal("kernel", 3, 3, 4), normal("out", 3, 4)
    for k, rows in enumerate(jnp.split(jnp.arange(12), 3)):
        numpyro.sample(f"obs_{k}", dist.Normal(relu(x[rows] @ kernel[k]) @ out[k], 0.1).to_event(1), obs=y[rows])


def of_two_layers(x, y):
    """Networks of two hidden layers, which share but the weights between them."""
    kernel, hidden, out = normal("kernel", 2, 3, 4), normal("hidden", 2, 4, 5), normal("out", 2, 5)
    h = [relu(x[6 * k : 6 * k + 6] @ kernel[k]) for k in range(2)]
    observe(jnp.concatenate([relu(one @ hidden[k]) @ out[k] for k, one in enumerate(h)]), y)


def of_four_layers(y):
    """The same of four, of which the first and the last share nothing, and come first."""
    a_first, b_last, c_between, d_between = (
        normal("a", 2, 3, 4),
        normal("b", 2, 4),
        normal("c", 2, 4, 3),
        normal("d", 2, 3, 4),
    )
    h = [
        relu(relu(relu(X[6 * k : 6 * k + 6] @ a_first[k]) @ c_between[k]) @ d_between[k]) @ b_last[k] for k in range(2)
    ]
    observe(jnp.concatenate(h), y)


def both_taken(y):
    """Two axes of one size over which groups are fibred, and a third group that would need them to be one."""
    a, b, c, d, e = (
        normal("a", 2, 3),
        normal("b", 2, 4),
        normal("c", 2, 2, 3, 4),
        normal("d", 2, 3, 5),
        normal("e", 2, 4, 5),
    )
    h = [relu(a[k]) @ c[k, j] @ relu(b[j]) for k in range(2) for j in range(2)]
    h += [relu(a[k] @ d[k]) @ relu(b[k] @ e[k]) for k in range(2)]
    observe(jnp.repeat(jnp.stack(h), 2), y)


def alike_inputs(y):
    """The same, where the weights of a unit are but added up."""
    kernel, out = normal("kernel", 3, 2, 4), normal("out", 3, 4)
    observe(jnp.concatenate([relu(jnp.ones((4, 2)) @ kernel[k]) @ out[k] for k in range(3)]), y)


def one_unit_apart(x, y, unit=0):
    """The same, where one unit of every network has a prior of its own."""
    kernel, out = normal("kernel", 3, 3, 4), normal("out", 3, 4)
    numpyro.factor("apart", -jnp.square(out[:, unit] - 1).sum())
    observe(jnp.concatenate([relu(x[4 * k : 4 * k + 4] @ kernel[k]) @ out[k] for k in range(3)]), y)


def entries_alone(y):
    """Entries of a matrix that are but added up: rows move, and the entries of each."""
    observe(jnp.tanh(normal("w", 3, 4)).sum() + jnp.zeros(12), y)


def square(x, y):
    """A unit for each of three groups, between which weights of their own make squares."""
    kernel, square = normal("kernel", 3, 2, 2), normal("square", 2, 2, 3)
    h = [jnp.tanh(x[4 * k : 4 * k + 4, :2] @ kernel[k]) for k in range(3)]
    observe(jnp.concatenate([jnp.einsum("nu,uv,nv->n", one, square[:, :, k], one) for k, one in enumerate(h)]), y)


def pairs_of_groups(y):
    """Units of every pair of groups, whose axis stands twice: no group carries those of each pair."""
    weight, pairs = normal("weight", 3), normal("pairs", 3, 3, 4)
    observe(jnp.einsum("k,l,kl->", weight, weight, jnp.linalg.norm(jnp.sin(pairs), axis=-1)) + jnp.zeros(12), y)


def one_network(y):
    """An axis of one entry, in which there is nothing to move by itself."""
    kernel, out = normal("kernel", 1, 3, 4), normal("out", 1, 4)
    observe(relu(X @ kernel[0]) @ out[0], y)


def rows_and_columns(x, y):
    """Networks of two rows and three columns."""
    kernel, out = normal("kernel", 2, 3, 3, 4), normal("out", 2, 3, 4)
    networks = [relu(x[2 * k : 2 * k + 2] @ kernel[k // 3, k % 3]) @ out[k // 3, k % 3] for k in range(6)]
    observe(jnp.concatenate(networks), y)


def test_numbers_say_so():
    found = find_symmetry(in_a_loop, (X, Y), signs=False)
    assert found.axes == {
        "kernel": ("kernel[-3]", None, "kernel[-3]/kernel[-1]"),
        "out": ("kernel[-3]", "kernel[-3]/kernel[-1]"),
    }
    said = {f.reason for f in found.findings if f.group}
    assert said == {"verified numerically only for each 'kernel[-3]' by itself"}


@pytest.mark.parametrize(
    ("model", "args", "expected"),
    [
        (of_two_layers, (X, Y), {"hidden[-3]/hidden[-2]": "(S4)^2", "hidden[-3]/hidden[-1]": "(S5)^2"}),
        (of_four_layers, (Y,), {"a[-3]/a[-1]": "(S4)^2", "a[-3]/b[-1]": "(S4)^2", "a[-3]/c[-1]": "(S3)^2"}),
        (both_taken, (Y,), {"a[-2]/a[-1]": "(S3)^2", "b[-2]/b[-1]": "(S4)^2", "d[-1]": "S5"}),
        # of the inputs of every unit of every network, too
        (alike_inputs, (Y,), {"kernel[-3]/kernel[-1]": "(S4)^3", "kernel[-3]/kernel[-1]/kernel[-2]": "(S2)^12"}),
        (one_unit_apart, (X, Y), {"kernel[-3]/out[-1]": "(S3)^3"}),
        (partial(one_unit_apart, unit=-1), (X, Y), {"kernel[-3]/out[-1]": "(S3)^3"}),
        (entries_alone, (Y,), {"w[-1]": "S4", "w[-1]/w[-2]": "(S3)^4"}),
        (square, (X, Y), {"kernel[-3]/kernel[-1]": "(S2)^3"}),
        (pairs_of_groups, (Y,), {"weight": "S3", "pairs[-1]": "S4"}),
        (one_network, (Y,), {"kernel[-1]": "S4"}),
        # along one axis of the two
        (rows_and_columns, (X, Y), {"kernel[-4]/kernel[-1]": "(S4)^2"}),
    ],
)
def test_what_is_found(model, args, expected):
    found = find_symmetry(model, args, signs=False)
    assert {name: str(group) for name, group in found.groups.items()} == expected


def test_nothing_is_proved_that_one_exchange_refutes(monkeypatch):
    """Proofs are dear, and most axes of one size beside a group have nothing to do with it."""

    def model(y):
        kernel, out = normal("kernel", 3, 4), normal("out", 4, 3)
        observe(relu(X @ kernel) @ out @ jnp.array([1.0, 2.0, 3.0]), y)

    tried = []
    monkeypatch.setattr(cells, "holds_on", lambda *args, **options: tried.append(args))
    assert find_symmetry(model, (Y,)).groups
    assert not tried


def test_a_group_is_renamed_in_every_kind_of_entry():
    own = {"w": "k", "s": Unsigned("k"), "f": Split((4, 2), ("k", None)), "j": Concat((4, 3), (None, Unsigned("k")))}
    symmetry = Symmetry({site: (None, entry) for site, entry in own.items()}, kinds={"k": "signed"})
    fibre = cells.Fibre("k", None, 3, dict.fromkeys(own, (0, [1])), (0, 1))
    whole, unit = "w[-2]", "w[-2]/k"
    assert dict(fibre.of(symmetry).axes) == {
        "w": (whole, unit),
        "s": (whole, Unsigned(unit)),
        "f": (whole, Split((4, 2), (unit, None))),
        "j": (whole, Concat((4, 3), (None, Unsigned(unit)))),
    }
    assert dict(fibre.of(symmetry).kinds) == {whole: "fixed", unit: "signed"}
