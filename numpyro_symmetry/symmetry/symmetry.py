"""`Symmetry`: a product of groups acting on named axes of latent sites.

Acts on constrained values, as the model sees them. Knows no densities and no NumPyro.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from numpyro_symmetry.symmetry import builders
from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, check_entries, describe, open_axes, open_shape
from numpyro_symmetry.symmetry.elements import Element, Part, SignedPermutation, check_part, permutation_of
from numpyro_symmetry.symmetry.errors import SymmetryError

KINDS = ("permutation", "signed")


class Group(NamedTuple):
    """One factor of the product: its size (``None`` until bound) and its kind.

    Attributes
    ----------
    size
        Number ``n`` of interchangeable indices, or ``None`` before `Symmetry.bind`.
    kind
        ``"permutation"`` (order ``n!``) or ``"signed"`` (order ``2^n n!``).
    """

    size: int | None
    kind: str


@dataclass(frozen=True, repr=False)
class Symmetry:
    """A product of (signed) permutation groups acting on axes of named sites.

    The action is a gather, ``(g·w)[i] = w[g[i]]`` (times ``sign[i]`` for signed groups), on every axis that carries the
    group's name. Axes are counted **from the right**, so draws with leading ``(chain, draw)`` dimensions need no other
    specification. Values are **constrained** ones, as the model sees them.

    Parameters
    ----------
    axes
        Site -> one entry for each of its last axes: ``None``, a group name, `Unsigned`, `Split`, and possibly a
        last ``...`` for any number of free axes. A group may stand on two axes of one site.
    kinds
        Group name -> ``"permutation"`` (default) or ``"signed"`` (odd activations, factors).
    sizes
        Group name -> size. Usually left out and filled by `bind`, which every entry point calls.

    Raises
    ------
    SymmetryError
        If an entry cannot be read, a kind is unknown, or ``kinds`` or ``sizes`` name a group no axis carries.

    See Also
    --------
    Symmetry.mlp, Symmetry.mixture, Symmetry.hmm, Symmetry.factor : builders for common models.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden", None)})
    >>> values = {"w1": jnp.ones((3, 8)), "b1": jnp.arange(8.0), "w2": jnp.ones((8, 1))}
    >>> symmetry.bind(values)
    Symmetry(S8 on 'hidden'; log|G| = 10.6 nats)
      w1: (·, hidden)
      b1: (hidden)
      w2: (hidden, ·)
    """

    axes: Mapping[str, tuple[AxisEntry, ...]]
    kinds: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        axes = {site: check_entries(site, entries) for site, entries in dict(self.axes).items()}
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "kinds", dict(self.kinds))
        object.__setattr__(self, "sizes", dict(self.sizes))
        names = self._names()
        for what, given in (("kinds", self.kinds), ("sizes", self.sizes)):
            if unknown := sorted(set(given) - set(names)):
                raise SymmetryError(f"{what} names {unknown}, but the groups on the axes are {names}.")
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                raise SymmetryError(f"Group {name!r} has kind {kind!r}; expected one of {KINDS}.")
        for name, size in self.sizes.items():
            if size < 1:
                raise SymmetryError(f"Group {name!r} has size {size}; expected at least 1.")
        # only what differs from the default, so that symmetries spelt differently compare equal
        signed = {name: kind for name, kind in self.kinds.items() if kind != "permutation"}
        object.__setattr__(self, "kinds", signed)

    def __hash__(self) -> int:
        return hash(tuple(tuple(sorted(d.items())) for d in (self.axes, self.kinds, self.sizes)))

    # ---- builders ----------------------------------------------------------------------------------------------

    @classmethod
    def mlp(
        cls, layers: Sequence[tuple[str, str | None]], *, layout: str = "in_out", kind: str = "permutation"
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

        Examples
        --------
        >>> from numpyro_symmetry import Symmetry
        >>> Symmetry.mlp([("w1", "b1"), ("w2", "b2")]).axes
        {'w1': (None, 'hidden'), 'b1': ('hidden',), 'w2': ('hidden', None)}
        """
        return cls._of_kind(builders.mlp_axes(layers, layout), kind)

    @classmethod
    def mixture(cls, *sites: str, group: str = "component") -> Symmetry:
        """Symmetry of a mixture: the first axis of every named site is the component.

        Parameters
        ----------
        *sites
            Sites of shape ``(K, ...)``: weights, locations, scales.
        group
            Name of the group.

        Returns
        -------
        Symmetry
            One permutation group.

        Examples
        --------
        >>> from numpyro_symmetry import Symmetry
        >>> Symmetry.mixture("weights", "loc").axes
        {'weights': ('component', Ellipsis), 'loc': ('component', Ellipsis)}
        """
        return cls(builders.mixture_axes(sites, group))

    @classmethod
    def hmm(
        cls, *, transition: str, initial: str | None = None, emissions: Sequence[str], group: str = "state"
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

        Examples
        --------
        >>> from numpyro_symmetry import Symmetry
        >>> Symmetry.hmm(transition="A", emissions=["loc"]).axes
        {'A': ('state', 'state'), 'loc': ('state', Ellipsis)}
        """
        return cls(builders.hmm_axes(initial, transition, emissions, group))

    @classmethod
    def factor(
        cls,
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

        Examples
        --------
        >>> from numpyro_symmetry import Symmetry
        >>> Symmetry.factor("loadings", "scores").groups
        {'factor': Group(size=None, kind='signed')}
        """
        return cls._of_kind(builders.factor_axes(loadings, scores, others or {}, group), kind)

    @classmethod
    def _of_kind(cls, axes: dict[str, tuple[AxisEntry, ...]], kind: str) -> Symmetry:
        return cls(axes, kinds=dict.fromkeys(cls(axes)._names(), kind))

    # ---- what it is --------------------------------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, Group]:
        """Group name -> `Group`, in the order in which the axes name them."""
        return {name: Group(self.sizes.get(name), self.kinds.get(name, "permutation")) for name in self._names()}

    @property
    def is_bound(self) -> bool:
        """Whether every group has a size and no site a ``...``."""
        return set(self.sizes) == set(self._names()) and all(... not in e for e in self.axes.values())

    def log_order(self) -> float:
        """Logarithm of the number of elements, ``log|G|`` in nats: ``Σ log n!``, plus ``n log 2`` if signed."""
        return math.fsum(
            math.lgamma(n + 1) + (n * math.log(2.0) if signed else 0.0) for n, signed in self._bound_groups().values()
        )

    def opened(self, site: str) -> tuple[Axis, ...]:
        """Axes of a site with every `Split` opened."""
        return open_axes(self.axes[site])

    def opened_shape(self, site: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of a value of a site with every `Split` opened; leading dimensions stay."""
        return open_shape(self.axes[site], shape)

    def bind(self, values: Mapping[str, ArrayLike], *, num_leading_dims: int = 0) -> Symmetry:
        """Read the groups' sizes off values and check that they fit.

        Parameters
        ----------
        values
            Site -> array. Further sites are ignored.
        num_leading_dims
            Leading (chain, draw) dimensions, needed only to expand a ``...``.

        Returns
        -------
        Symmetry
            The same symmetry with sizes, and with every ``...`` written out.

        Raises
        ------
        SymmetryError
            If a site is missing, has too few axes, or two axes of one group differ in size.
        """
        axes, sizes = {}, dict(self.sizes)
        seen = {name: f"sizes[{name!r}]" for name in sizes}
        for site, entries in self.axes.items():
            if site not in values:
                raise SymmetryError(
                    f"Site {site!r} is named by the symmetry but is not among the values {sorted(values)}. "
                    "Correct the name, or drop it from axes."
                )
            shape = np.shape(values[site])
            if ... in entries:
                entries = entries[:-1] + (None,) * (len(shape) - num_leading_dims - len(entries) + 1)
            if len(shape) < len(entries):
                raise SymmetryError(
                    f"Site {site!r} has shape {shape}, fewer axes than its entries {describe(entries)} in the symmetry."
                )
            axes[site] = entries
            for position, entry in enumerate(entries):
                size = shape[len(shape) - len(entries) + position]
                where = f"site {site!r} axis {position - len(entries)}"
                for axis in open_axes((entry,)):
                    if axis.group is not None and axis.size is None:
                        _agree(axis.group, size, where, sizes, seen)
                if (expected := getattr(entry, "size", size)) != size:
                    raise SymmetryError(
                        f"{_sentence(where)} has size {size}, but {describe((entry,))} multiplies to {expected}. "
                        "Check the sizes given to Split."
                    )
                for axis in open_axes((entry,)):
                    if axis.group is not None and axis.size is not None:
                        _agree(axis.group, axis.size, where, sizes, seen)
        return Symmetry(axes, self.kinds, sizes)

    # ---- elements ----------------------------------------------------------------------------------------------

    def identity(self, shape: tuple[int, ...] = ()) -> Element:
        """Identity element, repeated to a batch ``shape``."""

        def one(n: int, signed: bool) -> Part:
            index = jnp.broadcast_to(jnp.arange(n), (*shape, n))
            return SignedPermutation(index, jnp.ones_like(index)) if signed else index

        return {name: one(n, signed) for name, (n, signed) in self._bound_groups().items()}

    def sample(self, rng_key: Array, shape: tuple[int, ...] = ()) -> Element:
        """Uniformly random elements.

        Parameters
        ----------
        rng_key
            JAX random key.
        shape
            Batch shape.

        Returns
        -------
        dict
            Group name -> permutations ``(*shape, n)`` (a `SignedPermutation` for a signed group).
        """
        identity = self.identity(shape)

        def one(key: Array, part: Part) -> Part:
            key_permutation, key_sign = jax.random.split(key)
            permutation = jax.random.permutation(key_permutation, permutation_of(part), axis=-1, independent=True)
            if isinstance(part, SignedPermutation):
                return SignedPermutation(permutation, jax.random.rademacher(key_sign, permutation.shape, int))
            return permutation

        keys = jax.random.split(rng_key, len(identity)) if identity else ()
        return {name: one(key, part) for key, (name, part) in zip(keys, identity.items(), strict=True)}

    def elements(self, *, max_order: int = 50_000) -> Element:
        """All elements as one batch, the identity first.

        Parameters
        ----------
        max_order
            Refuse to enumerate more elements than this.

        Returns
        -------
        dict
            Element of batch shape ``(|G|,)``.

        Raises
        ------
        SymmetryError
            If the group has more than ``max_order`` elements.
        """
        if self.log_order() > math.log(max_order) + 1e-9:
            raise SymmetryError(
                f"The group has e^{self.log_order():.1f} elements; enumerating is limited to max_order={max_order}."
            )

        def one(n: int, signed: bool) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
            signs = itertools.product((1, -1), repeat=n) if signed else [(1,) * n]
            return list(itertools.product(itertools.permutations(range(n)), list(signs)))

        groups = self._bound_groups()
        product = list(itertools.product(*itertools.starmap(one, groups.values())))

        def part(position: int, signed: bool) -> Part:
            permutation = jnp.asarray([g[position][0] for g in product], int)
            if signed:
                return SignedPermutation(permutation, jnp.asarray([g[position][1] for g in product], int))
            return permutation

        return {name: part(i, signed) for i, (name, (_, signed)) in enumerate(groups.items())}

    def apply(self, g: Element, values: Mapping[str, Any]) -> dict[str, Any]:
        """Act on values: ``(g·w)[i] = w[g[i]]`` along every axis a group stands on.

        Parameters
        ----------
        g
            Element; its batch dimensions broadcast against the values' leading dimensions.
        values
            Site -> array ``(*leading, *event)``. Sites on which no group acts pass through untouched.

        Returns
        -------
        dict
            The values, moved.

        Raises
        ------
        SymmetryError
            If a site the symmetry names is missing or does not fit, if an element has the wrong groups, size, kind or
            indices, or if a site still ends in ``...``.
        """
        if open_ended := sorted(site for site, entries in self.axes.items() if ... in entries):
            raise SymmetryError(
                f"Sites {open_ended} end in '...', so their leading dimensions cannot be told from their own; "
                "call symmetry.bind(values, num_leading_dims=...) first."
            )
        symmetry = self.bind(values)
        if set(g) != set(groups := symmetry.groups):
            raise SymmetryError(f"The element has groups {sorted(g)}; the symmetry has {sorted(groups)}.")
        for name, part in g.items():
            check_part(name, part, groups[name].size, signed=groups[name].kind == "signed")
        return dict(values) | {site: symmetry._move(g, site, jnp.asarray(values[site])) for site in symmetry.axes}

    def _move(self, g: Element, site: str, value: Array) -> Array:
        opened = value.reshape(self.opened_shape(site, value.shape))
        axes = self.opened(site)
        for position, axis in enumerate(axes):
            if axis.group is not None:
                opened = _gather_axis(opened, g[axis.group], position, len(axes), axis.signed)
        return opened.reshape(
            opened.shape[: opened.ndim - len(axes)] + value.shape[value.ndim - len(self.axes[site]) :]
        )

    # ---- private -----------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        opened = itertools.chain.from_iterable(open_axes(entries) for entries in self.axes.values())
        return list(dict.fromkeys(axis.group for axis in opened if axis.group is not None))

    def _bound_groups(self) -> dict[str, tuple[int, bool]]:
        """Group name -> its size and whether it is signed."""
        if unbound := [name for name in self._names() if name not in self.sizes]:
            raise SymmetryError(f"Groups {unbound} have no size yet; call symmetry.bind(values) first.")
        return {name: (self.sizes[name], group.kind == "signed") for name, group in self.groups.items()}

    def __repr__(self) -> str:
        names = [
            f"{'±' if group.kind == 'signed' else ''}S{'?' if group.size is None else group.size} on {name!r}"
            for name, group in self.groups.items()
        ]
        order = f"; log|G| = {self.log_order():.1f} nats" if set(self.sizes) == set(self.groups) else ""
        sites = "".join(f"\n  {site}: {describe(entries)}" for site, entries in self.axes.items())
        return f"Symmetry({' × '.join(names) or 'trivial'}{order}){sites}"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _agree(group: str, size: int, where: str, sizes: dict[str, int], seen: dict[str, str]) -> None:
    if sizes.setdefault(group, size) != size:
        raise SymmetryError(
            f"{_sentence(where)} has size {size}, but group {group!r} has size {sizes[group]} ({seen[group]}). "
            "Check the order of the axes, or name the groups apart."
        )
    seen.setdefault(group, where)


def _gather_axis(value: Array, part: Part, position: int, event_ndim: int, signed: bool) -> Array:
    permutation = permutation_of(part)
    batch = permutation.shape[:-1]
    value = value.reshape((1,) * (len(batch) - (value.ndim - event_ndim)) + value.shape)
    axis = value.ndim - event_ndim + position

    def along_axis(index: Array) -> Array:
        lead = (1,) * (value.ndim - event_ndim - len(batch)) + batch
        return index.reshape(lead + (1,) * position + index.shape[-1:] + (1,) * (event_ndim - position - 1))

    moved = jnp.take_along_axis(value, along_axis(permutation), axis) if batch else jnp.take(value, permutation, axis)
    if signed and isinstance(part, SignedPermutation):
        if not (jnp.issubdtype(moved.dtype, jnp.inexact) or jnp.issubdtype(moved.dtype, jnp.signedinteger)):
            raise SymmetryError(
                f"A sign cannot apply to values of type {moved.dtype}; wrap the group in Unsigned there."
            )
        moved = moved * along_axis(jnp.asarray(part.sign)).astype(moved.dtype)
    return moved
