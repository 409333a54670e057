"""`Symmetry`: a product of groups acting on named axes of latent sites.

Acts on constrained values, as the model sees them. Knows no densities and no NumPyro.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from numpyro_symmetry.symmetry import builders, checks, restriction
from numpyro_symmetry.symmetry.action import move, open_shape
from numpyro_symmetry.symmetry.arguments import as_array, as_count, as_key, as_shape, is_traced, refuse_masked
from numpyro_symmetry.symmetry.axes import Axis, AxisEntry, check_entries, group_names, labels, num_axes
from numpyro_symmetry.symmetry.binding import bind_axes, refuse_too_few_axes
from numpyro_symmetry.symmetry.errors import SymmetryError
from numpyro_symmetry.symmetry.families import Stack, by_site, check_families, stacks_of
from numpyro_symmetry.symmetry.findings import Finding, OutOfReach, explain, in_words
from numpyro_symmetry.symmetry.groups import Group
from numpyro_symmetry.symmetry.hard import Element, fibred_over, products
from numpyro_symmetry.symmetry.nouns import MODEL, Nouns
from numpyro_symmetry.symmetry.permutation_kinds import PERMUTATION, Kind, unsigned
from numpyro_symmetry.symmetry.pieces import is_cut
from numpyro_symmetry.symmetry.pytrees import as_given, as_sites
from numpyro_symmetry.symmetry.restriction import with_total
from numpyro_symmetry.symmetry.shown import as_html

_MAPPINGS = ("axes", "kinds", "sizes", "orbits")


@dataclass(frozen=True, repr=False)
class Symmetry:
    """A product of (signed) permutation groups acting on axes of named sites.

    The action is a gather, ``(g·w)[i] = w[g[i]]`` (times ``sign[i]`` for signed groups), on every axis that carries the
    group's name. Axes are counted **from the right**, so draws with leading ``(chain, draw)`` dimensions need no other
    specification. Values are **constrained** ones, as the model sees them.

    Parameters
    ----------
    axes
        Site -> one entry for each of its last axes: ``None``, a group name, `Unsigned`, `Split`, `Concat`, and
        possibly a last ``...`` for any number of free axes. `Whole` before them is for signs of the site as a whole,
        `Complement` for ``p`` of which ``1 - p`` is the other part. A tuple of names in place of a site is a family,
        one site for each index of a group: the entry of that group, then those of the sites' own axes.
        A group may stand on two axes of one site. A group named ``"head/unit"`` is *fibred* over the axis ``"head"``:
        it permutes the units of each head on their own.
    kinds
        Group name -> ``"permutation"`` (default), ``"signed"`` (odd activations, factors), ``"fixed"`` for an axis that
        only serves others to be fibred over, or a `Kind` of one's own.
    sizes
        Group name -> size. Usually left out and filled by `bind`, which every entry point calls.
    orbits
        Group name -> a label for each index, where only indices of one label may be exchanged.
    findings, out_of_reach, nouns
        What `find_symmetry` saw, for `explain`; nobody has to write them.

    Raises
    ------
    SymmetryError
        If an entry cannot be read, a kind is unknown, or ``kinds`` or ``sizes`` name a group no axis carries.
    TypeError
        If one of the arguments is no mapping, or a size or a label no whole number.

    Notes
    -----
    A symmetry cannot be changed: ``axes``, ``kinds``, ``sizes`` and ``orbits`` are read-only views. Make another one of
    ``dict(symmetry.axes)``.

    See Also
    --------
    Symmetry.mlp, Symmetry.mixture, Symmetry.hmm, Symmetry.factor : builders for common models.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro_symmetry import Symmetry
    >>> symmetry = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",), "w2": ("hidden", None)})
    >>> values = {"w1": jnp.ones((3, 8)), "b1": jnp.arange(8.0), "w2": jnp.ones((8, 1))}
    >>> bound = symmetry.bind(values)
    >>> bound
    Symmetry(S8 on 'hidden'; log|G| = 10.6 nats)
      w1: (·, hidden)
      b1: (hidden)
      w2: (hidden, ·)
    >>> bound.identity()["hidden"].shape, bound.sample(jax.random.key(0), (5,))["hidden"].shape, int(bound.log_order())
    ((8,), (5, 8), 10)
    >>> print(bound.explain().splitlines()[-1])
      w2: (hidden, ·)
    """

    axes: Mapping[Any, tuple[AxisEntry, ...]]
    kinds: Mapping[str, str | Kind] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    orbits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = field(default=(), compare=False)
    out_of_reach: tuple[OutOfReach, ...] = field(default=(), compare=False)
    nouns: Nouns = field(default=MODEL, compare=False)

    def __post_init__(self) -> None:
        given = {name: checks.as_field(name, getattr(self, name)) for name in _MAPPINGS}
        axes = {site: check_entries(site, entries) for site, entries in by_site(given["axes"]).items()}
        check_families(axes, self.nouns)
        sizes = {name: checks.as_size(name, size) for name, size in given["sizes"].items()}
        orbits = {name: checks.as_labels(name, labels_) for name, labels_ in given["orbits"].items()}
        kinds, names = given["kinds"], group_names(axes)
        checks.check_groups(names, kinds, sizes, orbits)
        # only what differs from the default, so that symmetries spelt differently compare equal
        kinds = {name: kind for name, kind in kinds.items() if kind not in ("permutation", PERMUTATION)}
        for name, value in zip(_MAPPINGS, (axes, kinds, sizes, orbits), strict=True):
            object.__setattr__(self, name, MappingProxyType(value))
        checks.check_fibres(self.stacks, self.nouns)
        checks.check_complements(axes, kinds, orbits, self.nouns)

    def __hash__(self) -> int:
        return hash(tuple(tuple(sorted(d.items())) for d in (self.axes, self.kinds, self.sizes, self.orbits)))

    def __reduce__(self) -> tuple[Any, ...]:
        # read-only views cannot be pickled
        given = (getattr(self, one.name) for one in fields(self))
        return Symmetry, tuple(dict(x) if isinstance(x, Mapping) else x for x in given)

    # ---- builders ----------------------------------------------------------------------------------------------

    mlp = classmethod(builders.mlp)
    mixture = classmethod(builders.mixture)
    hmm = classmethod(builders.hmm)
    factor = classmethod(builders.factor)

    # ---- what it is --------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Group name -> `Group`, in the order in which the axes name them."""
        return {
            name: Group(
                self.sizes.get(name),
                self.kinds.get(name, "permutation"),
                self.orbits.get(name),
                fibred_over(name),
                tuple(self.sizes[label] for label in fibred_over(name) if label in self.sizes),
            )
            for name in self.group_names()
            if self.kinds.get(name) != "fixed"
        }

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """The arrays on which groups act, by name: sites as they are, and families of sites, stacked."""
        return stacks_of(self.axes)

    @property
    def is_bound(self) -> bool:
        """Whether every group has a size and no site a ``...``."""
        return set(self.sizes) == set(self.group_names()) and all(... not in e for e in self.axes.values())

    @property
    def is_plain(self) -> bool:
        """Whether every group permutes all of its indices alike, and every site has one piece: no orbits, no fibres."""
        fibred = any("/" in name for name in self.group_names()) or "fixed" in self.kinds.values()
        plainly = all(not is_cut(e) and num_axes(e) == len(e) for e in self.axes.values())
        is_full = all(group.permutations.is_full for group in self.groups.values())
        return not self.orbits and not fibred and plainly and is_full

    def log_order(self) -> float:
        """Logarithm of the number of elements, ``log|G|``: of each group ``log n!``, plus ``n log 2`` if signed.

        Returns
        -------
        float
            Nats. Orbits and fibres count what may be exchanged within them.

        Raises
        ------
        SymmetryError
            If a group has no size yet.
        """
        return math.fsum(group.log_order() for group in self._bound_groups().values())

    def explain(self) -> str:
        """A table of every latent axis: its group, or why it is pinned, and where in the model that was seen.

        Filled by `find_symmetry`; of a symmetry written by hand it shows the axes alone.

        Returns
        -------
        str
            A line for each axis.
        """
        return explain(self)

    def opened(self, site: str) -> tuple[Axis, ...]:
        """Axes of a site with every `Split` opened; signed only where the group along them has signs."""
        axes, groups = labels(checks.entries_of_one_piece(self.axes, site, self.nouns)), self.groups
        return tuple(a._replace(signed=a.signed and a.group in groups and groups[a.group].signed) for a in axes)

    def opened_shape(self, site: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of a value of a site with every `Split` opened; leading dimensions stay."""
        entries, given = checks.entries_of_one_piece(self.axes, site, self.nouns), as_shape(shape)
        refuse_too_few_axes(self.nouns.named(site), given, entries)
        return open_shape(entries, given)

    def bind(self, values: Any, *, num_leading_dims: int = 0) -> Symmetry:
        """Read the groups' sizes off values and check that they fit.

        Parameters
        ----------
        values
            Site -> array, or a pytree, whose paths to arrays are sites. Further sites are ignored.
        num_leading_dims
            Leading (chain, draw) dimensions, needed only to expand a ``...``; where it is given, no group is looked for
            among them.

        Returns
        -------
        Symmetry
            The same symmetry with sizes, and with every ``...`` written out.

        Raises
        ------
        SymmetryError
            If a site is missing, has too few axes, or two axes of one group differ in size.
        TypeError
            If ``values`` does not map sites to arrays, or ``num_leading_dims`` is no whole number.
        ValueError
            If ``num_leading_dims`` is negative.
        """
        given = as_sites(values, self.axes)
        checks.check_values(given, self.axes, self.nouns)
        lead = as_count(num_leading_dims, "num_leading_dims", minimum=0)
        axes, sizes = bind_axes(self.axes, self.sizes, given, lead, self.nouns)
        return replace(self, axes=axes, sizes=sizes)

    restrict, on_axes = restriction.restrict, restriction.on_axes

    def without_signs(self) -> Symmetry:
        """The same permutations and no signs: how standard deviations move."""
        kinds = {name: unsigned(kind) for name, kind in self.kinds.items()}
        return replace(self, axes=with_total(self.axes, None), kinds=kinds)

    def of_differences(self) -> Symmetry:
        """The same elements as they move differences of values: where x becomes total - x, these change sign."""
        return replace(self, axes=with_total(self.axes, 0.0))

    # ---- elements ----------------------------------------------------------------------------------------------

    def identity(self, shape: tuple[int, ...] = ()) -> Element:
        """Identity element, repeated to a batch.

        Parameters
        ----------
        shape
            Batch shape.

        Returns
        -------
        dict
            Group name -> permutations ``(*shape, n)`` (a `SignedPermutation` for a signed group).

        Raises
        ------
        SymmetryError
            If a group has no size yet.
        TypeError, ValueError
            If ``shape`` is no tuple of whole numbers, none of them negative.
        """
        shape = as_shape(shape)
        return {name: group.identity(shape).each(jnp.asarray).part() for name, group in self._bound_groups().items()}

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

        Raises
        ------
        SymmetryError
            If a group has no size yet.
        TypeError, ValueError
            If ``rng_key`` is no key, or ``shape`` as for `identity`.
        """
        bound, shape, rng_key = self._bound_groups(), as_shape(shape), as_key(rng_key)
        keys = jax.random.split(rng_key, len(bound)) if bound else ()
        return {name: group.sample(key, shape) for key, (name, group) in zip(keys, bound.items(), strict=True)}

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
            If the group has more than ``max_order`` elements, or a group has no size yet.
        TypeError, ValueError
            If ``max_order`` is no whole number, or below one.

        Examples
        --------
        >>> Symmetry({"w": ("unit",)}, sizes={"unit": 3}).elements()["unit"].tolist()
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
        """
        max_order = as_count(max_order, "max_order")
        if self.log_order() > math.log(max_order) + 1e-9:
            raise SymmetryError(
                f"The group has e^{self.log_order():.1f} elements; enumerating is limited to max_order={max_order}."
            )
        every = {name: group.elements() for name, group in self._bound_groups().items()}
        return {name: part.each(jnp.asarray).part() for name, part in products(every).items()}

    def apply(self, g: Element, values: Any) -> Any:
        """Act on values: ``(g·w)[i] = w[g[i]]`` along every axis a group stands on.

        Parameters
        ----------
        g
            Element; its batch dimensions broadcast against the values' leading dimensions.
        values
            Site -> array ``(*leading, *event)``, or a pytree: paths to arrays are sites, ``"params.Dense_0.bias"``.
            What no group acts on passes through untouched.

        Returns
        -------
        dict or pytree
            The values, moved, as they came: JAX arrays of JAX arrays, of anything else NumPy arrays, types kept.

        Raises
        ------
        SymmetryError
            If a site the symmetry names is missing, masked or does not fit, if an element has the wrong groups, size or
            kind, is no permutation or comes in another batch than the values, or if a site still ends in ``...``.
        TypeError
            If ``g`` is no mapping from groups to arrays, or ``values`` holds no arrays.

        Examples
        --------
        >>> import numpy as np
        >>> symmetry = Symmetry({"w1": (None, "hidden"), "b1": ("hidden",)})
        >>> values = {"w1": np.array([[1, 2, 3]]), "b1": np.array([10, 20, 30])}
        >>> {site: x.tolist() for site, x in symmetry.apply({"hidden": np.array([2, 0, 1])}, values).items()}
        {'w1': [[3, 1, 2]], 'b1': [30, 10, 20]}
        """
        checks.refuse_open_ended(self.axes, self.nouns)
        checks.refuse_other_arguments(self.group_names(), g, values)
        given = as_sites(values, self.axes)
        symmetry = self.bind(given)
        refuse_masked({site: given[site] for site in self.axes}, self.nouns.array.capitalize())
        checks.check_of_groups(symmetry.groups, g)
        traced = is_traced(g)
        moved, arrays = dict(given), {site: as_array(given[site], self.nouns.named(site)) for site in symmetry.axes}
        for site, entries in symmetry.axes.items():
            checks.check_batch(self.nouns.named(site), arrays[site].shape, entries, g)
        for stack in symmetry.stacks.values():
            value = stack.of(arrays, self.nouns)
            moved |= stack.apart(move(g, stack.entries, jnp.asarray(value) if traced else value))
        return as_given(values, moved, symmetry.axes)

    def group_names(self) -> list[str]:
        """Names of the groups that stand on some axis, bound to a size or not."""
        return group_names(self.axes)

    # ---- private -----------------------------------------------------------------------------------------------

    def _bound_groups(self) -> dict[str, Group]:
        if unbound := [name for name in self.group_names() if name not in self.sizes]:
            raise SymmetryError(f"Groups {unbound} have no size yet; call symmetry.bind(values) first.")
        return self.groups

    def __repr__(self) -> str:
        return in_words(self)

    _repr_html_ = as_html
