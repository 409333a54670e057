"""What units compute, read off a function as it is: the intermediate values along whose axes a symmetry's groups stand.

Typing says which values may carry a group, numbers whether they do. Knows functions and symmetries; no matching.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core

from numpyro_symmetry.discovery.find import walked
from numpyro_symmetry.discovery.inputs import arrays_of_one, asking, read_question_of_function
from numpyro_symmetry.discovery.labels.program import read_function
from numpyro_symmetry.discovery.labels.terms import Atom, Joined, Product, Term, atoms_of, resolve
from numpyro_symmetry.discovery.labels.values import Typed
from numpyro_symmetry.discovery.messages import not_finite_message
from numpyro_symmetry.linalg import at_least_single
from numpyro_symmetry.models.compat import body_of, bound, consts_of, inlined
from numpyro_symmetry.models.functions import outputs_of_function
from numpyro_symmetry.steps import say, saying
from numpyro_symmetry.symmetry import Concat, Split, Symmetry, SymmetryError, Unsigned, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_flag, is_floating
from numpyro_symmetry.symmetry.axes import VIRTUAL, AxisEntry
from numpyro_symmetry.symmetry.components import by_key
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.symmetry.nouns import FUNCTION
from numpyro_symmetry.symmetry.pytrees import arrays_by_path
from numpyro_symmetry.symmetry.restriction import column_axes

Values = Mapping[str, Any]
# most intermediate values that are tried for each group
_MAX_TRIED = 4
# how far values of units, of norm one, may differ by rounding between moving them and moving the parameters
_ROUNDING = 1e-3
_NOT_FINITE = (
    "Values inside the function are not finite when its parameters are moved by about a third of their size: look for "
    "values that have to stay within bounds, or return finite outputs."
)


def find_activations(
    function: Callable, args: tuple[Any, ...], symmetry: Symmetry, *, argnum: int = 0, progress_bar: bool = True
) -> Callable[[Any], dict[str, Array]]:
    r"""What every unit of a symmetry computes on data, as a function of the parameters alone.

    Of each group it is an intermediate value :math:`v` of the function with an axis along which the group acts,
    :math:`v(g\theta)=g\,v(\theta)`: of those with the most data the last, in a network after the nonlinearity. Each
    unit's values are centred (but where signs act) and have norm one, so that their squared distances are
    :math:`2 - 2\,\text{correlation}`.

    Parameters
    ----------
    function
        Any JAX function of a pytree of parameters and of data, such as a network's ``apply``. It is not edited.
    args
        Its arguments; the arrays in all but one of them are the data on which units are compared: a batch.
    symmetry
        Of that argument: what `find_symmetry` found, or one written by hand.
    argnum
        Which argument holds the parameters.
    progress_bar
        Whether to show one, after two seconds.

    Returns
    -------
    callable
        Parameters, by site or as a pytree -> group -> ``(num_data, n)``, for `ActivationCost`; of a group that is
        fibred over others ``(num_data, *cells, n)``.

    Raises
    ------
    SymmetryError
        If no value can be seen that a group moves, such as inside a loop; the symmetry does not fit the function; or
        the function has an argument that `find_symmetry` refuses.
    TypeError, ValueError
        If an argument is of another kind or ``argnum`` negative, or under `jit`.

    See Also
    --------
    ActivationCost : the cost of `match` that compares them.

    References
    ----------
    Li, Yosinski, Clune, Lipson and Hopcroft (2015), *Convergent Learning*; Ainsworth, Hayase and Srinivasa (2023),
    *Git Re-Basin*, section 3.1.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro_symmetry import ActivationCost, find_activations, find_symmetry, match
    >>> def network(params, x):
    ...     return jnp.tanh(x @ params["w1"]) @ params["w2"]
    >>> source = {"w1": jnp.array([[1.0, 2.0, 3.0]]), "w2": jnp.zeros((3, 1))}
    >>> target = {"w1": jnp.array([[3.0, 1.0, 2.0]]), "w2": jnp.ones((3, 1))}
    >>> x = jnp.linspace(-1.0, 1.0, 20)[:, None]
    >>> symmetry = find_symmetry(network, (target, x), argnum=0, signs=False)
    >>> cost = ActivationCost(find_activations(network, (target, x), symmetry))
    >>> {name: part.tolist() for name, part in match(target, source, symmetry, cost=cost).element.items()}
    {'w1[-1]': [2, 0, 1]}
    """
    symmetry = as_symmetry(symmetry)
    args = read_question_of_function("find_activations", function, args, argnum).args
    with saying("finding activations", as_flag(progress_bar, "progress_bar")):
        return _computing(function, args, symmetry, argnum)


def _computing(
    function: Callable, args: tuple[Any, ...], symmetry: Symmetry, argnum: int
) -> Callable[[Any], dict[str, Array]]:
    say("reading the function")
    with asking(FUNCTION):
        outputs = outputs_of_function(function, args, {}, argnum)
        program = read_function(outputs)
    own = {name: jnp.asarray(value) for name, value in outputs.sites.settings.items()}
    bound = symmetry.bind(arrays_by_path(args[argnum]))
    if not bound.groups:
        raise SymmetryError("The symmetry is trivial: there are no units to look at.")
    leaves = jax.tree.leaves((outputs.args, outputs.kwargs))
    data = [jnp.asarray(leaves[k]) for k in sorted(program.way.positions)]
    given = [own[name] for name in program.shapes]

    num_kept = len(program.jaxpr.jaxpr.outvars)
    say("following its axes")
    inside = jax.make_jaxpr(lambda *leaves: _values_inside(program.jaxpr, leaves, len(given)))(*given, *data)
    with asking(FUNCTION):
        reading, found = walked(program._replace(jaxpr=inside), num_kept=num_kept)
    groups = _groups_of(bound, reading.sites)
    typed = ((k, value) for k, value in enumerate(found) if k >= num_kept and isinstance(value, Typed))
    seen = by_key((one.group, one) for k, value in typed if (one := _seen(k, value, groups)) is not None)
    if missing := sorted(set(bound.groups) - set(seen)):
        raise SymmetryError(
            f"No value inside the function was seen to carry groups {missing} along an axis of its own, as inside a "
            "loop (jax.lax.scan) none is: match these by their weights, or restrict the symmetry to the others. Its "
            "data have to be arrays among its arguments, in no table."
        )
    shapes = [np.shape(x) for x in inside.out_avals]
    tried = [carrier for name in bound.groups for carrier in _most_telling(seen[name], shapes)]
    names = list(program.shapes)

    def computed(values: Values, chosen: list[_Seen]) -> list[Array]:
        every = core.jaxpr_as_fun(inside)(*(values[name] for name in names), *data)
        return [carrier.of(every[carrier.position], signed=bound.groups[carrier.group].signed) for carrier in chosen]

    say("moving units, to see which values move as they do")
    chosen = _that_move(
        bound, own, tried, lambda values: computed(values, tried), not_finite_message(args, _NOT_FINITE)
    )

    at = jax.jit(lambda by_site: computed(by_site, chosen))

    # a tree may hold what is no array, such as the functions of an Equinox module
    def activations(values: Any) -> dict[str, Array]:
        given = arrays_of_one(values, {site: x.shape for site, x in own.items()}, "Other widths have other units.")
        by_site = {site: jnp.asarray(x) for site, x in given.items()}
        return {carrier.group: x for carrier, x in zip(chosen, at(by_site), strict=True)}

    return activations


class _Seen(NamedTuple):
    """An intermediate value of a program that carries a group, on the axes of the group's cells and then its own."""

    position: int
    group: str
    axes: tuple[int, ...]

    def of(self, value: Array, *, signed: bool) -> Array:
        """The value as ``(num_data, *cells, n)``, each unit of norm one, and centred unless it is signed."""
        last = jnp.moveaxis(at_least_single(value), self.axes, range(-len(self.axes), 0))
        flat = last.reshape(-1, *last.shape[last.ndim - len(self.axes) :])
        flat = flat if signed else flat - flat.mean(0)
        size = jnp.sqrt(jnp.square(flat).sum(0))
        return flat / jnp.where(size > 0, size, 1.0)


def _most_telling(seen: list[_Seen], shapes: list[tuple[int, ...]]) -> list[_Seen]:
    """The values to try: those with the most data for every unit first, of equals the last in the program."""

    def rows(carrier: _Seen) -> int:
        shape = shapes[carrier.position]
        return math.prod(shape) // math.prod(shape[k] for k in carrier.axes)

    return sorted(seen, key=lambda carrier: (rows(carrier), carrier.position), reverse=True)[:_MAX_TRIED]


def _that_move(
    bound: Symmetry, own: Values, tried: list[_Seen], compute: Callable[[Values], list[Array]], not_finite: str
) -> list[_Seen]:
    """For each group the first of ``tried`` that moves as it does; ``not_finite``: the message if none is finite."""
    rng = np.random.default_rng(0)

    def perturbed(x: Array) -> Array:
        return x * jnp.asarray(np.exp(0.3 * rng.normal(size=x.shape)), x.dtype) if is_floating(x.dtype) else x

    # at parameters no two of which are alike: moving equal ones would not be seen
    values = {name: perturbed(x) for name, x in own.items()}
    g = bound.sample(jax.random.key(0))
    before, after = jax.jit(compute)(values), jax.jit(compute)({**values, **bound.apply(g, values)})
    chosen: dict[str, _Seen] = {}
    for seen, old, new in zip(tried, before, after, strict=True):
        own_parts = {name: g[name] for name in (*fibred_over(seen.group), seen.group) if name in g}
        moved = bound.on_axes(column_axes([seen.group])).apply(own_parts, {seen.group: old})[seen.group]
        is_moved = float(jnp.abs(moved - new).max()) < _ROUNDING
        if seen.group not in chosen and is_moved and bool(jnp.isfinite(new).all()):
            chosen[seen.group] = seen
    if missing := sorted(set(bound.groups) - set(chosen)):
        if not all(bool(jnp.isfinite(x).all()) for x in before):
            raise SymmetryError(not_finite)
        raise SymmetryError(
            f"Of groups {missing} no value inside the function moves as they do, in numbers: the symmetry may not be "
            "one of this function; see find_symmetry(...).explain()."
        )
    return [chosen[name] for name in bound.groups]


def _groups_of(bound: Symmetry, sites: Mapping[str, list[Term]]) -> dict[int, str]:
    """Serial number of an axis' term -> the group of the symmetry that stands there."""
    found: dict[int, str] = {}

    def read(entry: AxisEntry, term: Term) -> None:
        term = resolve(term)
        if isinstance(entry, Split | Concat):
            kind = Product if isinstance(entry, Split) else Joined
            parts = term.parts if isinstance(term, kind) and len(term.parts) == len(entry.groups) else []
            for own, part in zip(entry.groups, parts, strict=False):
                read(own, part)
        elif isinstance(entry, str | Unsigned) and isinstance(term, Atom):
            found.setdefault(term.serial, entry.group if isinstance(entry, Unsigned) else entry)

    for site, entries in bound.axes.items():
        own = [entry for entry in entries if not isinstance(entry, VIRTUAL)]
        for entry, term in zip(own, sites.get(site, [])[-len(own) :] if own else [], strict=False):
            read(entry, term)
    return found


def _seen(position: int, value: Typed, groups: Mapping[int, str]) -> _Seen | None:
    """The value with the innermost of its groups; ``None`` unless each of them stands on an axis of its own."""
    names = []
    for term in map(resolve, value.axes):
        if isinstance(term, Product | Joined):
            inside = [groups.get(part.serial) for part in atoms_of(term)]
            if any(name is not None for name in inside):
                return None
        names.append(groups.get(term.serial) if isinstance(term, Atom) else None)
    if not (here := [name for name in names if name is not None]):
        return None
    inner = max(here, key=lambda name: name.count("/"))
    if sorted(here) != sorted((*fibred_over(inner), inner)):
        return None
    return _Seen(position, inner, tuple(names.index(name) for name in (*fibred_over(inner), inner)))


def _values_inside(closed: Any, leaves: tuple[Any, ...], num_parameters: int) -> list[Any]:
    """Results of a program, then all real intermediate values of several entries that depend on its data."""
    kept: list[Any] = []

    # values, each with whether it depends on the data
    def results_of(equation: Any, given: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
        is_of_data = any(one for _, one in given)
        results = bound(equation.primitive, [x for x, _ in given], equation.params)
        kept.extend(x for x in results if is_of_data and math.prod(np.shape(x)) > 1)
        return [(x, is_of_data) for x in results]

    given = [(x, k >= num_parameters) for k, x in enumerate(leaves)]
    results = inlined(body_of(closed), consts_of(closed), given, lambda value, aval: (value, False), results_of)
    return [*(x for x, _ in results), *(x for x in kept if jnp.issubdtype(x.dtype, jnp.floating))]
