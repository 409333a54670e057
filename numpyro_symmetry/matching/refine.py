r"""`refine`: improve the element that `match` found by gradients of the loss half-way between target and moved source.

An assignment has no slope, so permutations are relaxed to doubly stochastic matrices, which are cooled while they
follow the gradient and are rounded on the way. Knows `match`, a loss and data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from numpyro_symmetry.assignment.problem import axes_of
from numpyro_symmetry.matching.full_gaussian import FullGaussian
from numpyro_symmetry.matching.gaussian import DiagonalGaussian
from numpyro_symmetry.matching.match import match
from numpyro_symmetry.matching.relaxed import Logits, mixed
from numpyro_symmetry.matching.sides import (
    completed,
    complex_sites,
    read,
    refuse_draws,
    refuse_other_trees,
    side_of,
)
from numpyro_symmetry.steps import counting
from numpyro_symmetry.symmetry import (
    Element,
    PlainView,
    Symmetry,
    SymmetryError,
    as_html,
    as_symmetry,
    compose,
    num_transpositions,
)
from numpyro_symmetry.symmetry.arguments import (
    as_count,
    as_flag,
    as_function,
    as_real_array,
    refuse_tracers,
    seed_of,
    staying_in_jax,
)
from numpyro_symmetry.symmetry.plain import warn_of_torn
from numpyro_symmetry.symmetry.pytrees import is_fitted_guide, real_arrays, refuse_other_structure, with_arrays
from numpyro_symmetry.symmetry.shown import counted

if TYPE_CHECKING:
    import optax

# steps between two roundings, and the most batches held aside: every rounding takes a forward pass of each of them
_STEPS_A_LOOK, _MOST_HELD = 10, 5
# the step size of logits, whose scale does not depend on the network's
_STEP_SIZE = 0.1
# the share of the steps that are taken at temperature one, and the last temperature
_WARM, _COLDEST = 0.25, 0.1

Loss = Callable[[Any, Any], Array]
Arrays = dict[str, Any]


class Refined(NamedTuple):
    """What `refine` found.

    Attributes
    ----------
    element
        The element ``g`` of the least loss: ``symmetry.apply(g, source)`` lies in the target's basin.
    loss
        The mean loss half-way between target and moved source, on the data held aside.
    loss_before
        That mean loss at the start; never smaller than ``loss``.
    losses
        ``(num_looks,)``: that mean loss at every rounding.
    """

    element: Element
    loss: float
    loss_before: float
    losses: np.ndarray

    def __repr__(self) -> str:
        moved = ", ".join(f"{k}: {int(n)}" for k, n in num_transpositions(self.element).items()) or "none"
        return f"Refined(loss half-way {self.loss_before:.4g} -> {self.loss:.4g}, transpositions {moved})"

    _repr_html_ = as_html


def refine(
    loss: Loss,
    target: Any,
    source: Any,
    symmetry: Symmetry,
    data: Any,
    *,
    start: Element | None = None,
    num_steps: int = 200,
    batch_size: int = 100,
    optimizer: optax.GradientTransformation | None = None,
    rng_key: Array | None = None,
    progress_bar: bool = True,
) -> Refined:
    r"""Improve an element by gradients of the loss half-way between target and moved source.

    .. math:: \min_{g\in G} L\big(\tfrac12(\theta + g\theta')\big)

    Permutations are relaxed to doubly stochastic matrices :math:`P = S(X/\tau)`, by Sinkhorn's normalisation of the
    exponentials of logits. These follow the gradient of the loss half-way, on one batch of data after the other, while
    the temperature :math:`\tau` falls from 1 to 0.1. Every ten steps the nearest permutations are taken; those of the
    least loss on data held aside are returned, the start among them.

    Parameters
    ----------
    loss
        Values of one network, by site or as the tree that the target is, and a batch of the data -> its mean loss, or
        one number for each datum; in JAX, for it is compiled. A network with batch normalisation has to use the batch's
        own statistics, as in training: the running ones of either end do not hold half-way.
    target, source
        Values by site, or a pytree of arrays. Whole numbers and keys are those of the target.
    symmetry
        What may be permuted.
    data
        A pytree of arrays with one datum along the first axis of each, such as ``(x, y)``.
    start
        The element to start from; by default that of ``match(target, source, symmetry)``.
    num_steps
        Gradient steps, each about as expensive as a step of training.
    batch_size
        Data in a batch. A tenth of the batches, at most five, is held aside.
    optimizer
        An optimizer of Optax, for the logits; by default ``optax.adam(0.1)``, whose ``eps`` of 1e-8 hardly moves where
        slopes are as small: give a loss of about that size in larger units.
    rng_key
        JAX random key of the order of the data; fixed by default. The same key gives the same answer.
    progress_bar
        Whether to show a bar of steps, with the least loss found, after two seconds.

    Returns
    -------
    Refined
        The element, and the losses half-way before and after.

    Raises
    ------
    SymmetryError
        If the sides differ in structure, are draws, Gaussians or guides, hold numbers that are complex or not finite,
        or do not fit the symmetry; or if ``start`` is no element of the symmetry, or a batch of elements.
    ValueError
        If data are fewer than two batches or differ in length, or the loss at the start, or a slope on the way, is not
        finite.
    TypeError
        If ``loss`` is no function of JAX or returns numbers without a slope, ``optimizer`` is none of Optax's,
        ``num_steps`` or ``batch_size`` no whole number, or under `jit`.

    See Also
    --------
    match : finds the start, by a distance and without data.

    Warns
    -----
    SymmetryWarning
        If heads whose units move carry signs, or stand on two axes of one site: then one of the two stays as it is.

    Notes
    -----
    What falls is the loss at one point of the way, on data held aside, and all that is guaranteed is that it does not
    rise: on other data the way between the two may still be worse. Where only labels differ, `match` finds them, and
    nothing is left to be refined.

    References
    ----------
    Peña, Medeiros, Dubail, Aminbeidokhti, Granger and Pedersoli (2023), *Re-basin via implicit Sinkhorn
    differentiation*, for the relaxation, which is differentiated through its iterations here, and cooled. Ainsworth,
    Hayase and Srinivasa (2023), *Git Re-Basin*, algorithm 3, for labels trained by the loss half-way; there gradients
    are passed straight through an assignment.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry, refine
    >>> x = jnp.linspace(-1.0, 1.0, 40)
    >>> def loss(values, x):
    ...     return (jnp.tanh(x[:, None] * values["w"]) @ values["v"] - jnp.sin(2.0 * x)) ** 2
    >>> symmetry = Symmetry({"w": ("hidden",), "v": ("hidden",)}, sizes={"hidden": 2})
    >>> target = {"w": jnp.array([2.0, 0.5]), "v": jnp.array([0.9, 0.2])}
    >>> source = {"w": jnp.array([0.5, 2.1]), "v": jnp.array([0.1, 0.9])}
    >>> found = refine(loss, target, source, symmetry, x, start=symmetry.identity(), batch_size=10)
    >>> found.element["hidden"].tolist(), found.loss < found.loss_before
    ([1, 0], True)
    """
    loss = as_function(loss, "loss", "values", "a batch of data")
    num_steps, batch_size = as_count(num_steps, "num_steps"), as_count(batch_size, "batch_size")
    optimizer = _as_optimizer(optimizer)
    shown = as_flag(progress_bar, "progress_bar")
    rng = np.random.default_rng(seed_of(rng_key))
    refuse_tracers("refine", target=target, source=source, data=data, start=start)
    fixed, own, bound = _read(target, source, as_symmetry(symmetry))
    batches, held = _in_batches(_length(data), batch_size, rng)
    start = match(target, source, symmetry, progress_bar=shown).element if start is None else start
    # from here on the source has the labels of the start, which groups that are not relaxed keep
    own = real_arrays(_started(bound, start, own))
    # whole numbers move with their units, and have no half-way
    moving = bound.restrict(sites=[site for site in bound.axes if site in own])
    if not moving.groups:
        raise SymmetryError("No group stands on an array of real numbers: there are no labels to refine.")
    view = PlainView.of(moving, own, nested=True)
    warn_of_torn(view, "refined", ". Refine the other one")
    given = _Given(fixed, own, jax.tree.map(jnp.asarray, data))
    step, held_loss = _compiled(loss, target, view, optimizer, given)

    logits: Any = {name: Logits.of(group) for name, group in view.symmetry.groups.items()}
    state = optimizer.init(logits)
    kept, before = moving.identity(), _finite(held_loss(own, held))
    best, losses = before, []
    with counting("refining", "steps", shown, num_steps) as bar:
        for first in range(0, num_steps, _STEPS_A_LOOK):
            steps = np.arange(first, min(first + _STEPS_A_LOOK, num_steps))
            for temperature, rows in zip(_temperatures(steps, num_steps), batches, strict=False):
                logits, state = step(logits, state, temperature, rows)
            _refuse_lost(logits, steps[-1] + 1)
            element = view.element({name: part.rounded().part() for name, part in logits.items()}, moving)
            losses.append(held_loss(moving.apply(element, own), held))
            kept, best = (element, losses[-1]) if losses[-1] < best else (kept, best)
            bar.set_postfix_str(f"loss half-way {before:.4g} -> {best:.4g}", refresh=False)
            bar.update(len(steps))
    return Refined(compose(completed(bound, kept, ()), start), best, before, np.array(losses))


def _temperatures(steps: np.ndarray, num_steps: int) -> np.ndarray:
    """Of each step: one for a while, then falling by the same factor at every step."""
    return _COLDEST ** np.maximum(0.0, (steps / num_steps - _WARM) / (1.0 - _WARM))


# ---- the loss half-way -----------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """All large arrays: arguments of the compiled functions, so that they are not constants in them.

    Of the target by site, and of the source, moved by ``start``, those of real numbers alone.
    """

    target: Arrays
    source: Arrays
    data: Any


def _compiled(
    loss: Loss, target: Any, view: PlainView, optimizer: optax.GradientTransformation, given: _Given
) -> tuple[Callable[..., tuple[dict[str, Logits], Any]], Callable[[Arrays, np.ndarray], float]]:
    """A gradient step of logits and optimiser state; and the mean loss half-way to a moved source, on held rows."""
    shapes = {name: np.shape(x) for name, x in view.open(given.source).items()}
    axes = {name: axes_of(view.symmetry, name, shapes[name])[1] for name in view.symmetry.axes}

    def half_way(moved: Arrays, given: _Given, rows: Array) -> Array:
        half = {site: 0.5 * (given.target[site] + x) for site, x in moved.items()}
        found = loss(with_arrays(target, half), jax.tree.map(lambda x: x[rows], given.data))
        return jnp.mean(_as_sloped(found))

    def relaxed(logits: dict[str, Logits], temperature: Array, given: _Given, rows: Array) -> Array:
        soft = {name: part.soft(temperature) for name, part in logits.items()}
        opened = view.open(given.source)
        opened |= {name: mixed(opened[name], on, soft) for name, on in axes.items()}
        return half_way(view.close(opened), given, rows)

    # a step is compiled, and no loop over steps: within a loop XLA convolves many times slower on a CPU
    @jax.jit
    def step(logits: Any, state: Any, temperature: Array, rows: Array, given: _Given) -> Any:
        change, state = optimizer.update(jax.grad(relaxed)(logits, temperature, given, rows), state, logits)
        return jax.tree.map(jnp.add, logits, change), state

    compiled_loss = jax.jit(half_way)

    def held_loss(moved: Arrays, held: np.ndarray) -> float:
        with staying_in_jax("loss"):
            return float(np.mean([compiled_loss(moved, given, rows) for rows in held]))

    return lambda *args: step(*args, given), held_loss


def _as_sloped(returned: Any) -> Array:
    """The array that a loss returned; refused if its numbers have no slope."""
    if isinstance(returned, tuple | list):
        raise TypeError(
            f"loss returned a {type(returned).__name__}; expected an array: of (loss, auxiliary) the first."
        )
    array = jnp.asarray(as_real_array(returned, "What loss returned", TypeError))
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"loss returned {array.dtype}, which has no slope; expected floating-point numbers.")
    return array


def _finite(loss: float) -> float:
    if not np.isfinite(loss):
        raise ValueError(f"The loss half-way is {loss} at the start: it must be a finite number there.")
    return loss


def _refuse_lost(logits: Any, count: int) -> None:
    if not all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(logits)):
        raise ValueError(
            f"Logits are not finite after {counted(count, 'step')}: the loss has no finite slope half-way (a square "
            "root of zero, a logarithm of nothing?), or the optimizer's steps are too large."
        )


# ---- what is given ---------------------------------------------------------------------------------------------------


def _read(target: Any, source: Any, symmetry: Symmetry) -> tuple[Arrays, Arrays, Symmetry]:
    """Arrays of both ends by site, and the symmetry with its sizes."""
    sides = {"target": target, "source": source}
    for name, side in sides.items():
        if is_fitted_guide(side) or isinstance(side, DiagonalGaussian | FullGaussian):
            raise SymmetryError(
                f"The {name} is a Gaussian or a guide; expected values or a pytree, of which a loss is known half-way: "
                "pass its means, such as .loc."
            )
    refuse_other_trees(target, source, symmetry.axes)
    fixed, own = (dict(read(side, symmetry.axes)) for side in sides.values())
    if pairs := complex_sites(fixed, own):
        raise SymmetryError(
            f"Sites {sorted(pairs)} hold complex numbers; expected real ones: pass their real and imaginary parts."
        )
    for name, side in zip(sides, (fixed, own), strict=True):
        refuse_draws(side, symmetry, name)
        # checks that they are finite
        side_of(real_arrays(side), name)
    refuse_other_structure(fixed, own, ("the target", "the source"))
    return fixed, own, symmetry.bind(fixed)


def _started(bound: Symmetry, start: Element, source: Arrays) -> Arrays:
    """The source moved by ``start``, which has to be one element."""
    moved = bound.apply(start, source)
    if many := next((site for site, x in source.items() if np.shape(moved[site]) != np.shape(x)), None):
        raise SymmetryError(
            f"start must be one element; it takes site {many!r} of shape {np.shape(source[many])} to "
            f"{np.shape(moved[many])}, as a batch of elements does: pass one of them."
        )
    return moved


def _as_optimizer(optimizer: Any) -> optax.GradientTransformation:
    """The optimizer, Adam by default; Optax is not loaded before it is needed."""
    if optimizer is None:
        import optax

        return optax.adam(_STEP_SIZE)
    if isinstance(optimizer, type) or not all(callable(getattr(optimizer, x, None)) for x in ("init", "update")):
        raise TypeError(f"optimizer must be one of Optax, such as optax.adam(0.1); got {type(optimizer).__name__}.")
    return optimizer


def _length(data: Any) -> int:
    """How many data there are."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
    if len({shape[:1] for shape in shapes} - {()}) != 1 or () in shapes:
        raise ValueError(
            "data must be arrays with one datum along the first axis of each, and as many in all of them; got shapes "
            f"{shapes}."
        )
    return shapes[0][0]


def _in_batches(length: int, batch_size: int, rng: np.random.Generator) -> tuple[Iterator[np.ndarray], np.ndarray]:
    """Rows of one batch after the other without end, and ``(num_held, batch_size)`` that are in none of them."""
    if length < 2 * batch_size:
        raise ValueError(
            f"data must be at least two batches, one of them to be held aside; got {length} data in batches of "
            f"{batch_size}: lower batch_size."
        )
    num_held = min(_MOST_HELD, max(1, length // batch_size // 10))
    held, rest = np.split(rng.permutation(length), [num_held * batch_size])

    def forever() -> Iterator[np.ndarray]:
        while True:
            whole = len(rest) // batch_size * batch_size
            yield from rng.permutation(rest)[:whole].reshape(-1, batch_size)

    return forever(), held.reshape(num_held, batch_size)
