r"""Labels as probabilities: which unit of a draw belongs in which slot, and how many slots that leaves.

Relabelling gives every draw its best labels, and so makes slots narrower than they are, and tells apart slots that are
one and the same. Here labels are summed out: slots are Gaussians of largest likelihood under *all* labels of each draw,

.. math:: \prod_s \frac1{n!}\sum_g \prod_i q_i\big((g\theta_s)_i\big),

found by expectation and maximisation, both exact. Knows `Rebased`; no containers of its own and no words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from numpyro_symmetry.assignment.family import Family, Side, acting_groups, problem_of
from numpyro_symmetry.assignment.problem import Benefit, Soft, move, pooled_axes, soften, without_signs
from numpyro_symmetry.chunks import slices
from numpyro_symmetry.containers import read
from numpyro_symmetry.diagnostics.inputs import as_rebased
from numpyro_symmetry.entropy import log_permanent
from numpyro_symmetry.steps import counting
from numpyro_symmetry.symmetry import Axis, Group, SymmetryError, as_html
from numpyro_symmetry.symmetry.arguments import as_flag, as_real_array, refuse_masked, refuse_tracers
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.shown import counted, some_of
from numpyro_symmetry.traces import GaussianCost

# the most labels of a group: sums over all labellings take time and memory like 2^n a draw
MAX_WIDTH = 10
_MAX_ROUNDS = 1000
# in nats a draw: after a smaller gain, rounds end
_SETTLED = 1e-6
# rows and columns of probabilities add up to one up to the rounding of float32
_ROUNDING = 1e-3


class SoftLabels(NamedTuple):
    """Slots under all labels of each draw.

    Attributes
    ----------
    probabilities
        Group -> ``(*leading, n, n)``: in row i and column j, that the unit relabelling put in slot j belongs in slot i.
    num_distinct
        Group -> effective number of distinct slots, the mean of `distinct_units` over the draws.
    mean, scale
        Site -> mean and standard deviation of each slot's values. Where a group stands on two axes of a site, or beside
        another group that moves, those of the relabelled draws.
    num_rounds, converged
        How often labels were weighed, and whether the last round gained nothing.
    """

    probabilities: dict[str, np.ndarray]
    num_distinct: dict[str, float]
    mean: dict[str, np.ndarray]
    scale: dict[str, np.ndarray]
    num_rounds: int
    converged: bool

    def __repr__(self) -> str:
        settled = "settled" if self.converged else "not settled"
        lines = [f"Labels as probabilities, {counted(self.num_rounds, 'round')}, {settled}"]
        alike = by_key(
            (f"{number:.1f} distinct slots of {self.probabilities[name].shape[-1]}", name)
            for name, number in self.num_distinct.items()
        )
        return "\n".join([*lines, *(f"  {some_of(names)}: {slots}" for slots, names in alike.items())])

    _repr_html_ = as_html


def distinct_units(probabilities: ArrayLike) -> np.ndarray:
    r"""Effective number of distinct units: each counts as one in as many as it cannot be told from.

    .. math:: \sum_i e^{-H_i}, \qquad H_i = -\sum_j P_{ij}\log P_{ij}

    One where all units are alike, n where none could be another, and k of k kinds, whatever their sizes.

    Parameters
    ----------
    probabilities
        ``(..., n, n)``: of unit j being in place i; rows and columns add up to one. For a table of log densities
        ``log q_i(u_j)`` they are ``jax.grad(log_permanent)(table)``.

    Returns
    -------
    numpy.ndarray
        ``(...)``, between one and n.

    Raises
    ------
    SymmetryError
        If ``probabilities`` are not square, or rows and columns are no probabilities that add up to one.
    TypeError
        Under `jit`.

    References
    ----------
    Hill (1973), Diversity and evenness: a unifying notation and its consequences, for the exponential of an entropy as
    a number.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro_symmetry import log_permanent
    >>> from numpyro_symmetry.diagnostics import distinct_units
    >>> table = jnp.array([[0.0, 0.0, -99.0], [0.0, 0.0, -99.0], [-99.0, -99.0, 0.0]])
    >>> round(float(distinct_units(jax.grad(log_permanent)(table))), 3)
    2.0
    """
    refuse_masked({"probabilities": probabilities}, "Argument")
    refuse_tracers("distinct_units", probabilities=probabilities)
    p = np.asarray(as_real_array(probabilities, "probabilities"), float)
    if p.ndim < 2 or p.shape[-1] != p.shape[-2] or not p.shape[-1]:
        raise SymmetryError(f"probabilities has shape {p.shape}; expected (..., n, n), n at least 1.")
    off = max((float(np.abs(p.sum(axis) - 1.0).max(initial=0.0)) for axis in (-2, -1)), default=0.0)
    if not (p.min(initial=0.0) >= -_ROUNDING and off <= _ROUNDING):
        raise SymmetryError(
            f"probabilities must be at least zero, with rows and columns that add up to one; the least is "
            f"{p.min(initial=0.0):.3g}, and a sum is off by {off:.3g}. Of a table of log densities take "
            "jax.grad(log_permanent)."
        )
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1.0)), -1)
    return np.exp(-entropy).sum(-1)


def soft_labels(out: Any, *, progress_bar: bool = True) -> SoftLabels:
    r"""Weigh all labels of each draw, in place of taking the best: slots as they are where they overlap.

    Each round takes the probabilities of labels given Gaussian slots, :math:`P(g\mid\theta_s)\propto
    \prod_i q_i((g\theta_s)_i)`, of which only :math:`P(g(i)=j)` is needed, and the slots' means and variances under
    these. It starts from the relabelled draws. Slots that nothing tells apart become the same, so that their number
    needs no null.

    Parameters
    ----------
    out
        What `rebase` returned.
    progress_bar
        Whether to show a bar of rounds, after two seconds.

    Returns
    -------
    SoftLabels
        Probabilities, the effective number of distinct slots, means and standard deviations.

    Raises
    ------
    SymmetryError
        If a group has more than ten labels, or there is no group whose labels can be summed out: each stands on two
        axes of its sites, or beside another group that moves.
    TypeError
        If ``out`` is not what `rebase` returned.

    Notes
    -----
    Sites on which a group stands twice (transition matrices), or beside another, have no say in its labels.

    References
    ----------
    Sperrin, Jaki and Wit (2010), Probabilistic relabelling strategies for the label switching problem in Bayesian
    mixture models, for labels as missing data; Celeux and Govaert (1992) for what becomes of them in relabelling.

    Examples
    --------
    Two slots that nothing tells apart, and one that stands by itself:

    >>> import numpy as np
    >>> from numpyro_symmetry import Symmetry, rebase
    >>> from numpyro_symmetry.diagnostics import soft_labels
    >>> rng = np.random.default_rng(0)
    >>> out = rebase({"loc": np.array([0.0, 0.0, 9.0]) + rng.standard_normal((1000, 3))}, Symmetry.mixture("loc"))
    >>> found = soft_labels(out)
    >>> round(found.num_distinct["component"], 1), bool(found.scale["loc"].mean() > out.data["loc"].std(0).mean())
    (2.0, True)
    """
    out = as_rebased(out, "soft_labels(out)")
    plain = out.view.symmetry
    trace = read(out.data, out.symmetry, out.objective.ndim)
    opened = out.view.open(trace.flat(list(out.view.shapes)))
    transforms = {site: coordinate.transform for site, coordinate in out.frame.read.items()}
    family = GaussianCost(transforms or "auto").family(Side.of_pieces(opened, trace.leading, out.view), plain)
    groups = _summed_out(family, plain.groups)
    statistics = family.statistics(slice(None))
    labels = {name: soften(group.identity((1,)), np.dtype(float)) for name, group in groups.items()}
    gained, before, rounds = np.inf, -np.inf, 0
    # a bar without a total: how many rounds it takes is not known
    with counting("weighing labels", "rounds", as_flag(progress_bar, "progress_bar")) as bar:
        while gained > _SETTLED and rounds < _MAX_ROUNDS:
            means = {name: _moved(x, family.axes[name], labels).mean(0) for name, x in statistics.items()}
            natural, partition = family.natural(means)
            tables = problem_of(family, groups, natural, slice(None))[0].constant
            weighed = {name: _weigh(tables[name]) for name in groups}
            labels = {name: soft for name, (_, soft) in weighed.items()}
            now = sum(total for total, _ in weighed.values()) / family.num_draws - partition
            gained, before, rounds = now - before, now, rounds + 1
            bar.update()
    mean, scale = _moments(opened, family, labels)
    return SoftLabels(
        probabilities={name: soft.even.reshape(*trace.leading, *soft.even.shape[1:]) for name, soft in labels.items()},
        num_distinct={name: float(distinct_units(soft.even).mean()) for name, soft in labels.items()},
        mean=out.view.close(mean),
        scale=out.view.close(scale),
        num_rounds=rounds,
        converged=gained <= _SETTLED,
    )


def _summed_out(family: Family, groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups whose labels are summed out: those that stand alone at a site."""
    alone = {moving[0] for axes in family.axes.values() if len(moving := _moving(axes)) == 1}
    found = {name: group for name, group in acting_groups(family, dict(groups)).items() if name in alone}
    if not found:
        raise SymmetryError(
            f"Of no group of {list(groups)} labels can be summed out: each stands on two axes of its sites, or beside "
            "another group. Rebase sites on which it stands alone (symmetry.restrict(sites=...))."
        )
    if wide := {name: group.size for name, group in found.items() if group.degree > MAX_WIDTH}:
        raise SymmetryError(
            f"Groups have {wide} labels; sums over all labels are taken of at most {MAX_WIDTH}. Of more, report(out) "
            "says how many slots are identified."
        )
    return found


def _moving(axes: tuple[Axis, ...]) -> list[str]:
    return [axis.group for axis in axes if axis.group is not None]


def _moved(x: np.ndarray, axes: tuple[Axis, ...], labels: Mapping[str, Soft]) -> np.ndarray:
    """Expected values under probabilities of labels; values as they are unless just one group stands on them, once."""
    return move(x, axes, labels) if len(_moving(axes)) == 1 else x


def _weigh(benefit: Benefit) -> tuple[float, Soft]:
    """Log of the sum over all labellings, added up over draws, and probabilities ``(draw, slot, unit)`` of labels."""
    odd = benefit.odd
    table = benefit.even.astype(float) if odd is None else benefit.even + np.logaddexp(odd, -odd)
    n = table.shape[-1]
    with jax.enable_x64(True):
        parts = [_permanents(jnp.asarray(table[some])) for some in slices(len(table), n * 2**n)]
        even = np.concatenate([np.asarray(part) for _, part in parts])
        total = float(sum(value for value, _ in parts))
    # signs are replaced by their expectations
    return total, Soft(even, None if odd is None else even * np.tanh(odd))


@jax.jit
def _permanents(tables: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda some: log_permanent(some).sum())(tables)


def _moments(
    opened: Mapping[str, np.ndarray], family: Family, labels: Mapping[str, Soft]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Means and standard deviations of slots, piece by piece."""
    mean, scale = {}, {}
    for name, given in opened.items():
        values, axes = np.asarray(given, float), family.axes.get((name, "first"), ())
        pooled, is_signed = pooled_axes(axes), any(axis.signed for axis in axes)
        # about a middle and in units that no label changes: squares of what is far from zero, or very large or small,
        # say nothing of how it varies
        middle = np.zeros(()) if is_signed else values.mean(pooled, keepdims=True)[0]
        largest = np.abs(values - middle).max(pooled, keepdims=True)[0]
        unit = np.where(largest > 0, largest, 1.0)
        read = (values - middle) / unit
        first = _moved(read, axes, labels).mean(0)
        second = _moved(np.square(read), without_signs(axes), labels).mean(0)
        mean[name], scale[name] = middle + unit * first, unit * np.sqrt(np.maximum(second - np.square(first), 0.0))
    return mean, scale
