"""Axes of the symmetries people meet most, as class methods of `Symmetry`. Knows neither elements nor arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpyro_symmetry.symmetry.arguments import as_mapping, as_names, in_short, is_option
from numpyro_symmetry.symmetry.axes import AxisEntry, check_entries, names_in
from numpyro_symmetry.symmetry.errors import SymmetryError

if TYPE_CHECKING:
    from numpyro_symmetry.symmetry.symmetry import Symmetry


def mlp(
    cls: type[Symmetry], layers: Sequence[tuple[str, str | None]], *, layout: str = "in_out", kind: str = "permutation"
) -> Symmetry:
    """Symmetry of a multilayer perceptron: the units of every hidden layer.

    Parameters
    ----------
    layers
        ``(kernel site, bias site or None)`` from input to output.
    layout
        ``"in_out"`` for kernels ``(in, out)``, ``"out_in"`` for their transpose.
    kind
        ``"signed"`` adds sign flips, right for odd activations such as tanh.

    Returns
    -------
    Symmetry
        Groups ``"hidden"``, or ``"hidden1"``, ``"hidden2"``, … for several hidden layers.

    Raises
    ------
    SymmetryError
        If there are fewer than two layers, one is no pair, a site stands in two, or an option is unknown.
    TypeError
        If ``layers`` is no list, or a site no name.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> dict(Symmetry.mlp([("w1", "b1"), ("w2", "b2")]).axes)
    {'w1': (None, 'hidden'), 'b1': ('hidden',), 'w2': ('hidden', None)}
    """
    if not is_option(layout, ("in_out", "out_in")):
        raise SymmetryError(f"layout must be 'in_out' (kernels (in, out)) or 'out_in'; got {layout!r}.")
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise TypeError(f"layers must be a list of (kernel, bias) pairs, such as [('w1', 'b1'), ...]; got {layers!r}.")
    for layer in layers:
        if isinstance(layer, str) or not isinstance(layer, Sequence) or len(layer) != 2:
            raise SymmetryError(
                f"Each layer is a pair (kernel site, bias site or None); got {layer!r}. Name the axes of others in "
                "Symmetry({...})."
            )
        kernel, bias = layer
        if not isinstance(kernel, str) or not (bias is None or isinstance(bias, str)):
            raise TypeError(f"Each layer is a pair of the names of sites (kernel, bias or None); got {layer!r}.")
    if len(layers) < 2:
        raise SymmetryError(
            f"An MLP needs at least two (kernel, bias) pairs to have a hidden layer; got {len(layers)}: {list(layers)}."
        )
    names = [site for layer in layers for site in layer if site is not None]
    if repeated := sorted({site for site in names if names.count(site) > 1}):
        raise SymmetryError(
            f"Sites {repeated} stand twice in the layers {list(layers)}; every layer has sites of its own."
        )
    hidden = ["hidden"] if len(layers) == 2 else [f"hidden{i + 1}" for i in range(len(layers) - 1)]
    axes: dict[str, tuple[AxisEntry, ...]] = {}
    for (kernel, bias), before, after in zip(layers, [None, *hidden], [*hidden, None], strict=True):
        axes[kernel] = (before, after) if layout == "in_out" else (after, before)
        if bias is not None and after is not None:
            axes[bias] = (after,)
    return _of_kind(cls, axes, kind)


def mixture(cls: type[Symmetry], *sites: str | tuple[str, ...], group: str = "component") -> Symmetry:
    """Symmetry of a mixture: the first axis of every named site is the component.

    Parameters
    ----------
    *sites
        Sites of shape ``(K, ...)``: weights, locations, scales. A tuple of names is one site for each component.
    group
        Name of the group.

    Returns
    -------
    Symmetry
        One permutation group.

    Raises
    ------
    SymmetryError
        If no site is named, or a name is empty.
    TypeError
        If a site or the group is no name.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> dict(Symmetry.mixture("weights", "loc").axes)
    {'weights': ('component', Ellipsis), 'loc': ('component', Ellipsis)}
    >>> Symmetry.mixture("weights", ("loc_0", "loc_1", "loc_2"))
    Symmetry(S? on 'component'; sizes are read off values)
      weights: (component, ...)
      loc_0…loc_2: (component, ...)
    """
    if wrong := [site for site in sites if not isinstance(site, str | tuple)]:
        raise TypeError(f"Sites are names, one argument each, such as mixture('weights', 'loc'); got {wrong[0]!r}.")
    if not sites:
        raise SymmetryError("A mixture needs at least one site whose first axis is the component; none was named.")
    _refuse_no_names(group=group)
    return _of_kind(cls, {site: (group, ...) for site in sites})


def hmm(
    cls: type[Symmetry], *, transition: str, initial: str | None = None, emissions: Sequence[str], group: str = "state"
) -> Symmetry:
    """Symmetry of a hidden Markov model: its states, on **both** axes of the transition matrix.

    Parameters
    ----------
    transition
        Site ``(K, K)``, rows from, columns to.
    initial
        Site ``(K,)``, if the model has one.
    emissions
        Sites ``(K, ...)``.
    group
        Name of the group.

    Returns
    -------
    Symmetry
        One permutation group.

    Raises
    ------
    SymmetryError
        If a name is empty.
    TypeError
        If a site or the group is no name, or ``emissions`` no tuple of them.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> dict(Symmetry.hmm(transition="A", emissions=["loc"]).axes)
    {'A': ('state', 'state'), 'loc': ('state', Ellipsis)}
    """
    _refuse_no_names(transition=transition, initial="" if initial is None else initial, group=group)
    axes: dict[str, tuple[AxisEntry, ...]] = {} if initial is None else {initial: (group,)}
    axes[transition] = (group, group)
    # none is the transition matrix on its own
    return _of_kind(cls, axes | {s: (group, ...) for s in as_names(emissions, "emissions", example="('loc',)")})


def factor(
    cls: type[Symmetry],
    loadings: str,
    scores: str | None = None,
    *,
    others: Mapping[str, tuple[AxisEntry, ...]] | None = None,
    group: str = "factor",
    kind: str = "signed",
) -> Symmetry:
    """Symmetry of a factor model: factors may be exchanged and, together with their scores, negated.

    Parameters
    ----------
    loadings
        Site ``(features, factors)``.
    scores
        Site ``(observations, factors)``, if they are not marginalised.
    others
        Axes of further sites; wrap the group in `Unsigned` where signs do not apply.
    group
        Name of the group.
    kind
        ``"permutation"`` where signs are fixed by the prior.

    Returns
    -------
    Symmetry
        One group, signed by default. Rotations of factors are not in it: it is discrete.

    Raises
    ------
    SymmetryError
        If ``kind`` is unknown, ``others`` names another group, or its entries cannot be read.
    TypeError
        If a site or the group is no name, or ``others`` no mapping.

    Examples
    --------
    >>> from numpyro_symmetry import Symmetry
    >>> Symmetry.factor("loadings", "scores").groups["factor"].kind
    'signed'
    """
    _refuse_no_names(loadings=loadings, scores="" if scores is None else scores, group=group)
    axes: dict[str, tuple[AxisEntry, ...]] = {loadings: (None, group)}
    if scores is not None:
        axes[scores] = (None, group)
    others = as_mapping(others, "others", example="{'scale': (Unsigned('factor'),)}")
    named = set().union(*(names_in(check_entries(site, entries)) for site, entries in others.items()))
    if unknown := sorted(named - {group}):
        raise SymmetryError(f"others names the groups {unknown}; this symmetry has only {group!r}.")
    return _of_kind(cls, axes | others, kind)


def _refuse_no_names(**given: Any) -> None:
    for argument, name in given.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument} must be a name, such as 'loc'; got {in_short(name)}.")


def _of_kind(cls: type[Symmetry], axes: Mapping[Any, tuple[AxisEntry, ...]], kind: str = "permutation") -> Symmetry:
    names = set().union(*map(names_in, axes.values()))
    return cls(axes, kinds=dict.fromkeys(names, kind))
