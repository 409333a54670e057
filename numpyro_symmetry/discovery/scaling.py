r"""Units whose incoming weights may be scaled by :math:`c > 0` and outgoing ones by :math:`1/c`, as of ReLU units.

Found by numbers in double precision, and proved at other parameters and on other data. Knows functions and symmetries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.inputs import arrays_of_one, asking, read_question_of_function
from numpyro_symmetry.discovery.labels.program import read_function
from numpyro_symmetry.discovery.messages import not_finite_message
from numpyro_symmetry.discovery.proof.evidence import draw
from numpyro_symmetry.discovery.proof.frozen import FrozenModel, Values, freeze
from numpyro_symmetry.discovery.proof.sources import Sources
from numpyro_symmetry.discovery.proof.trials import largest_gap
from numpyro_symmetry.models.functions import outputs_of_function
from numpyro_symmetry.steps import say, saying, track
from numpyro_symmetry.symmetry import PlainView, Symmetry, SymmetryError, as_html, as_symmetry
from numpyro_symmetry.symmetry.arguments import as_flag, as_real_array, refuse_masked, refuse_tracers
from numpyro_symmetry.symmetry.errors import NotFiniteError
from numpyro_symmetry.symmetry.hard import fibred_over
from numpyro_symmetry.symmetry.nouns import FUNCTION
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, replaced

# a piece of a site that carries a group, and the axis along which it does
Place = tuple[str, int]
# powers of a scale: those of incoming weights and biases, of outgoing ones, and of what stays
_POWERS = (1.0, -1.0, 0.0)
# step of central differences in the logarithm of a scale, which errs by its square: about what rounding leaves
_STEP = 1e-5
_SAME = 1e-6
_NUM_POINTS = 3
# logarithms of scales: of every size up to a thousand, and past numbers of the function itself (a clip), up to a bound
_NEAR, _FAR, _FURTHEST = 1.0, 7.0, 18.0
_MAX_ROUNDS, _SETTLED = 1000, 1e-13


@dataclass(frozen=True)
class Scaling:
    """Which units of a function may be scaled, and how; `find_scaling` makes it.

    Attributes
    ----------
    symmetry
        The symmetry whose groups were looked at.
    shapes
        Site -> shape.
    powers
        Group of units (of a fibred group, those of one cell, such as a head) -> place -> power of the scale there.
    """

    symmetry: Symmetry
    shapes: Mapping[str, tuple[int, ...]]
    powers: Mapping[str, Mapping[Place, float]] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose units may be scaled."""
        return tuple(self.powers)

    @cached_property
    def _view(self) -> PlainView:
        return _innermost(self.symmetry, {site: np.zeros(shape) for site, shape in self.shapes.items()})

    def balanced(self, params: Any) -> Any:
        r"""Parameters with the same outputs, in which for every unit incoming and outgoing weights have one norm.

        .. math:: w_\text{in} \to c\,w_\text{in}, \quad w_\text{out} \to w_\text{out}/c, \qquad
                  c = \sqrt{\lVert w_\text{out}\rVert / \lVert w_\text{in}\rVert}

        The least sum of squares that scaling can reach, and so the same for all networks that scaling makes of one.

        Parameters
        ----------
        params
            Of one network, by site or as the pytree that the scaling was found on.

        Returns
        -------
        The same structure, and the same types.

        Raises
        ------
        SymmetryError
            If shapes are not those of one network: scaling is no symmetry of a posterior, whose prior it changes, and
            draws, which are of one, have none to be brought to.
        TypeError
            If ``params`` is a Gaussian, or under `jit`.

        Examples
        --------
        >>> import jax
        >>> from numpyro_symmetry import find_scaling, find_symmetry
        >>> net = lambda params, x: jax.nn.relu(x @ params["w1"]) @ params["w2"]
        >>> params, x = {"w1": np.array([[1.0, 4.0]]), "w2": np.array([4.0, 1.0])}, np.array([[1.0], [-1.0], [2.0]])
        >>> find_scaling(net, (params, x), find_symmetry(net, (params, x), argnum=0)).balanced(params)["w1"].tolist()
        [[2.0, 2.0]]
        """
        if not isinstance(params, Mapping) and hasattr(params, "loc"):
            raise TypeError(
                f"balanced takes the parameters of one network; got a {type(params).__name__}. {_NOT_DRAWS}"
            )
        refuse_tracers("balanced", params=params)
        refuse_masked(arrays_by_path(params))
        view, values = self._view, {}
        scaled = {site for powers in self.powers.values() for piece, _ in powers for site in view.stacks[piece].sites}
        for site, x in arrays_of_one(params, self.shapes, _NOT_DRAWS).items():
            values[site] = np.asarray(as_real_array(x, f"Array {site!r}"))
            if not jnp.issubdtype(values[site].dtype, jnp.inexact) and site in scaled:
                raise SymmetryError(
                    f"Array {site!r} holds values of type {values[site].dtype}, which scales would be rounded off: "
                    "pass parameters as floats."
                )
            if not np.isfinite(values[site]).all():
                raise SymmetryError(f"Array {site!r} holds values that are not finite.")
        pieces = view.open({site: value.astype(float) for site, value in values.items()})
        for _ in range(_MAX_ROUNDS):
            largest = 0.0
            for name, powers in self.powers.items():
                scale = _balancing(pieces, powers, view.symmetry.sizes[name])
                pieces = _scaled(pieces, powers, scale)
                largest = max(largest, float(np.abs(np.log(scale)).max()))
            if largest < _SETTLED:
                break
        moved = {site: x.astype(values[site].dtype) for site, x in view.close(pieces).items()}
        return replaced(params, {site: jnp.asarray(x) for site, x in moved.items()})

    def __repr__(self) -> str:
        if not self.powers:
            return "Scaling(no units may be scaled)"
        lines = [f"Scaling(units of {', '.join(map(repr, self.powers))} may be scaled)"]
        for name, powers in self.powers.items():
            by_power = {
                told: dict.fromkeys(
                    site for (piece, _), x in powers.items() if x == power for site in self._view.stacks[piece].sites
                )
                for power, told in ((1.0, "c"), (-1.0, "1/c"))
            }
            lines.append(f"  {name}: " + "; ".join(f"{', '.join(sites)} times {c}" for c, sites in by_power.items()))
        return "\n".join(lines)

    _repr_html_ = as_html


_NOT_DRAWS = (
    "Scaling is a symmetry of a network's function, never of a posterior, whose prior it changes: balance one network "
    "at a time, and no draws."
)


def find_scaling(
    function: Callable, args: tuple[Any, ...], symmetry: Symmetry, *, argnum: int = 0, progress_bar: bool = True
) -> Scaling:
    r"""Find the groups of units that may be scaled without a change of a function's outputs, as ReLU units may.

    Of each group the power of :math:`c` by which every site goes with its units' scale is read off differences of the
    outputs in double precision; that scaling by it leaves them alone is then seen at other parameters, by other scales
    and on other data. A canonical form for comparing or merging *functions*, beside their permutations. Under a
    Gaussian prior it is no symmetry of a posterior.

    Parameters
    ----------
    function, args, argnum
        As for `find_symmetry`: a network's ``apply``, its parameters and inputs, and which argument holds the former.
    symmetry
        Of that argument: what `find_symmetry` found.
    progress_bar
        Whether to show one, after two seconds.

    Returns
    -------
    Scaling
        Whose method ``balanced`` brings parameters to their canonical form, before `match` or a merge. Groups are left
        out whose units cannot be scaled, or that stand on two axes of one site.

    Raises
    ------
    SymmetryError
        If the symmetry does not fit the function, or `find_symmetry` refuses the function.
    TypeError, ValueError
        If an argument is of another kind or ``argnum`` negative, or under `jit`.

    References
    ----------
    Neyshabur, Salakhutdinov and Srebro (2015), *Path-SGD*; Pittorino et al. (2022), *Deep networks on toroids*, for
    normalising before matching.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro_symmetry import find_scaling, find_symmetry
    >>> def network(params, x):
    ...     return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"]
    >>> params = {"w1": jnp.array([[3.0, 0.0]]), "b1": jnp.array([4.0, 1.0]), "w2": jnp.array([[1.25], [1.0]])}
    >>> x = jnp.linspace(-1.0, 1.0, 5)[:, None]
    >>> scaling = find_scaling(network, (params, x), find_symmetry(network, (params, x), argnum=0))
    >>> scaling
    Scaling(units of 'b1' may be scaled)
      b1: b1, w1 times c; w2 times 1/c
    >>> balanced = scaling.balanced(params)
    >>> for site, value in params.items():
    ...     print(f"{site}: {value.ravel()} -> {balanced[site].ravel()}")
    w1: [3. 0.] -> [1.5 0. ]
    b1: [4. 1.] -> [2. 1.]
    w2: [1.25 1.  ] -> [2.5 1. ]
    """
    symmetry = as_symmetry(symmetry)
    question = read_question_of_function("find_scaling", function, args, argnum)
    with asking(FUNCTION), saying("finding scales", as_flag(progress_bar, "progress_bar")):
        return _scaling_of(function, question.args, symmetry, argnum)


def _scaling_of(function: Callable, args: tuple[Any, ...], symmetry: Symmetry, argnum: int) -> Scaling:
    rng = np.random.default_rng(0)
    say("reading the function")
    outputs = outputs_of_function(function, args, {}, argnum)
    program = read_function(outputs)
    say("evaluating it about its parameters")
    try:
        sources = Sources.of(freeze(outputs, [program.way]), opaque=program.opaque, rng=rng, reaches_far=False)
    except NotFiniteError as error:
        raise SymmetryError(not_finite_message(args, error)) from error
    bound = symmetry.bind({site: np.asarray(x) for site, x in arrays_by_path(args[argnum]).items()})
    own = {site: np.asarray(outputs.sites.settings[site]) for site in bound.axes}
    real = {site for site, x in own.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    view = _innermost(bound, own)
    proof = _Proof(view, rng)
    powers: dict[str, dict[Place, float]] = {}
    groups = view.symmetry.groups
    say("scaling units")
    for name in track(groups, len(groups)):
        places = _places(view, name)
        pieces = [piece for piece, _ in places]
        if len(set(pieces)) < len(pieces) or not all(set(view.stacks[piece].sites) <= real for piece in pieces):
            continue
        found = proof.powers(sources.own.frozen, places, name)
        if found is not None and proof.holds((e.frozen for e in sources.own_and_others()), found, name):
            powers[name] = found
    return Scaling(bound, {site: x.shape for site, x in own.items()}, powers)


def _innermost(bound: Symmetry, values: Mapping[str, np.ndarray]) -> PlainView:
    """The plain view of innermost groups alone: groups over which they are fibred stand still."""
    outer = {label for name in bound.groups for label in fibred_over(name)}
    return PlainView.of(bound.restrict(bound.groups.keys() - outer), values)


def _places(view: PlainView, name: str) -> list[Place]:
    plain = view.symmetry
    return [(piece, k) for piece in plain.axes for k, axis in enumerate(plain.opened(piece)) if axis.group == name]


def _scaled(pieces: Mapping[str, Any], powers: Mapping[Place, float], scale: np.ndarray) -> dict[str, Any]:
    """Every piece times a power of the scale of each unit."""
    moved = dict(pieces)
    for (piece, axis), power in powers.items():
        if power:
            shape = [1] * moved[piece].ndim
            shape[axis] = len(scale)
            moved[piece] = moved[piece] * (scale**power).reshape(shape)
    return moved


def _balancing(pieces: Mapping[str, np.ndarray], powers: Mapping[Place, float], size: int) -> np.ndarray:
    """The scale of each unit that makes the norms of incoming and outgoing weights equal; 1 where either norm is 0."""
    norms = {1.0: np.zeros(size), -1.0: np.zeros(size), 0.0: np.zeros(size)}
    for (piece, axis), power in powers.items():
        norms[power] += np.square(np.moveaxis(pieces[piece], axis, 0).reshape(size, -1)).sum(1)
    both = (norms[1.0] > 0) & (norms[-1.0] > 0)
    return np.where(both, (norms[-1.0] / np.where(both, norms[1.0], 1.0)) ** 0.25, 1.0)


@dataclass
class _Proof:
    """What scaling units does to the outputs of a function, in numbers."""

    view: PlainView
    rng: np.random.Generator

    def points(self, frozen: FrozenModel) -> Iterator[dict[str, np.ndarray]]:
        """Random parameters, no two of which are alike."""
        return (draw(frozen, self.rng, 1.0) for _ in range(_NUM_POINTS))

    def outputs(
        self, frozen: FrozenModel, values: dict[str, np.ndarray], powers: Mapping[Place, float], scale: np.ndarray
    ) -> Values:
        """All outputs with units scaled."""
        here = {site: values[site] for site in self.view.shapes}
        moved = self.view.close(_scaled(self.view.open(here), powers, scale))
        given = {site: np.asarray(moved.get(site, x), x.dtype) for site, x in values.items()}
        return frozen.at(given).log_probs

    def powers(self, frozen: FrozenModel, places: list[Place], name: str) -> dict[Place, float] | None:
        """The powers under which differences of the outputs cancel; ``None`` if there are none, or several."""
        size, rows = self.view.symmetry.sizes[name], []
        for values in itertools.islice(itertools.cycle(list(self.points(frozen))), _NUM_POINTS + len(places)):
            logs = _STEP * self.rng.standard_normal(size)
            change = []
            for place in places:
                ends = [self.outputs(frozen, values, {place: 1.0}, np.exp(step)) for step in (logs, -logs)]
                up, down = (np.concatenate([np.ravel(x).astype(float) for x in end.values()]) for end in ends)
                change.append((up - down) / (2.0 * _STEP))
            rows.append(np.stack(change, 1))
        table = np.concatenate(rows)
        if not np.isfinite(table).all() or not table.any():
            return None
        _, sizes, vectors = np.linalg.svd(table, full_matrices=False)
        if len(sizes) < len(places) or len(places) < 2 or sizes[-1] > _SAME * sizes[0] or sizes[-2] <= _SAME * sizes[0]:
            return None
        found = vectors[-1] / vectors[-1][np.abs(vectors[-1]).argmax()]
        near = [min(_POWERS, key=lambda power, x=x: abs(power - x)) for x in found]
        if not np.allclose(found, near, atol=1e-3) or not {1.0, -1.0} <= set(near):
            return None
        # norms agree whichever side is called incoming: the first place is
        first = next(power for power in near if power)
        return {place: power * first for place, power in zip(places, near, strict=True)}

    def holds(self, everywhere: Iterator[FrozenModel], powers: Mapping[Place, float], name: str) -> bool:
        """Whether scales far from one leave all outputs alone: networks are balanced by scales of any size."""
        size = self.view.symmetry.sizes[name]
        for frozen in everywhere:
            beyond = 2.0 + math.log(max(frozen.limits, default=1.0))
            furthest = min(max(_FAR, beyond), _FURTHEST)
            for values, most in itertools.product(self.points(frozen), (_NEAR, furthest)):
                scale = np.exp(self.rng.uniform(-most, most, size))
                before, after = (self.outputs(frozen, values, powers, c) for c in (np.ones(size), scale))
                if not largest_gap(frozen, before, after).ratio <= 1.0:
                    return False
        return True
