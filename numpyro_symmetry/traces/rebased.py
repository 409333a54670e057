"""`Rebased`: relabelled draws, the elements that moved them, and how to move further values of the same draws.

Knows elements and how they act on arrays; not how they were found.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from numpyro_symmetry.assignment.family import Coordinate, Cost, Natural, Side, family_of, objective_of
from numpyro_symmetry.assignment.passes import in_pieces
from numpyro_symmetry.containers import read, write_by_region
from numpyro_symmetry.symmetry import Element, PlainView, Symmetry, SymmetryError, as_html
from numpyro_symmetry.symmetry.arguments import as_flag, as_key, refuse_tracers
from numpyro_symmetry.symmetry.axes import AxisEntry
from numpyro_symmetry.symmetry.hard import from_element, to_element
from numpyro_symmetry.symmetry.named import groups_on, refuse_other_names
from numpyro_symmetry.traces.costs import refuse_no_cost
from numpyro_symmetry.traces.deterministic import NOTHING, Carried
from numpyro_symmetry.traces.moving import Move, trace_of
from numpyro_symmetry.traces.named import refuse_cost_of_others, refuse_other_draws
from numpyro_symmetry.traces.null import Null
from numpyro_symmetry.traces.summary import describe


class Frame(NamedTuple):
    """What draws were relabelled against: the cost, its coordinates, natural parameters and their log-partition."""

    cost: Cost
    read: Mapping[str, Coordinate]
    point: Natural


class Rebased(NamedTuple):
    """Draws in one basin, and how they got there.

    Attributes
    ----------
    data
        A container of the type that was given. Changed are the sites that the symmetry names and what follows from
        them (``carried``); a site that could not be computed again is left out.
    elements
        Group -> ``(*leading, n)``: the element that was applied to each draw.
    reference
        Site -> value that the draws were brought to: their relabelled mean, or the draw or values that were named.
    objective
        ``(*leading)`` log-likelihood of each relabelled draw under the cost; larger is better. In nats for
        `GaussianCost` and `StephensCost` (minus the divergence), minus half the squared distance, in pooled standard
        deviations, for `EuclideanCost`, minus the number of other allocations for `AllocationCost`.
    margin
        ``(*leading)``, nats: log density of the draw with its labels less that with the next best, under Gaussians
        fitted to the relabelled slots (under the divergence for `StephensCost`), or those of ``reference``. Near zero,
        labels are a guess. Where a site has two axes that move, of more than 120 elements only some are compared: it
        is then at most this.
    null
        The matched null: how much agreement relabelling makes of nothing; ``None`` if it was not asked for.
    num_rounds, converged
        How often the draws were relabelled, and whether the last time changed nothing.
    symmetry
        The symmetry, with sizes.
    labels
        Sites whose values are labels -> their group.
    frame
        For relabelling other draws to the same reference: ``rebase(more, symmetry, reference=out)``.
    carried
        What became of sites that follow from others: deterministic sites of the model, and those of ``axes=``.
    view
        How the sites are cut into the pieces that were relabelled: those on which groups permute all indices alike.
    part
        Whose symmetry it is: the ``"joint"`` density's, or the ``"likelihood"``'s alone.
    """

    data: Any
    elements: Element
    reference: dict[str, Any]
    objective: np.ndarray
    margin: np.ndarray
    null: Null | None
    num_rounds: int
    converged: bool
    symmetry: Symmetry
    labels: dict[str, str]
    frame: Frame
    view: PlainView
    carried: Carried = NOTHING
    part: str = "joint"

    def apply(
        self,
        values: Any,
        *,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """Relabel further values of the same draws.

        Parameters
        ----------
        values
            Site -> ``(*leading, ...)``, or any container that `rebase` takes.
        axes
            Site -> its axes, as in `Symmetry`, for sites the symmetry does not name.
        labels
            Site -> group, for integer sites whose *values* are labels (allocations, states): they are relabelled with
            the inverse, so that a datum stays with its component.

        Returns
        -------
        dict or container
            Relabelled values, as arrays for a dict; sites that are named nowhere as they were.

        Raises
        ------
        SymmetryError
            If the leading dimensions differ from the draws', or labels point outside their group.
        TypeError
            If ``axes`` or ``labels`` is no mapping.

        Examples
        --------
        >>> from numpyro_symmetry import rebase
        >>> loc = np.array([[-3.0, 3.0], [3.1, -3.1], [-2.9, 2.9]])
        >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"), order_by="loc", null=False)
        >>> out.apply({"z": np.array([0, 1, 0])}, labels={"z": "component"})["z"].tolist()
        [0, 0, 0]
        """
        return Move(self, axes, labels, undone=False).of(values)

    def undo(
        self,
        values: Any,
        *,
        axes: Mapping[str, tuple[AxisEntry, ...]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """Give values the labels they came with: the exact inverse of `apply`.

        Sites that were computed again (``carried.before``) come back as they were. Those that were left out
        (``carried.left_out``) are in no relabelled container, and so do not come back.

        Parameters
        ----------
        values, axes, labels
            As for `apply`.

        Returns
        -------
        dict or container
            As `apply`.

        Raises
        ------
        SymmetryError, TypeError
            As for `apply`.

        Examples
        --------
        >>> from numpyro_symmetry import rebase
        >>> loc = np.array([[-3.0, 3.0], [3.1, -3.1], [-2.9, 2.9]])
        >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"), order_by="loc", null=False)
        >>> out.data["loc"].tolist(), out.undo(out.data)["loc"].tolist()
        ([[-3.0, 3.0], [-3.1, 3.1], [-2.9, 2.9]], [[-3.0, 3.0], [3.1, -3.1], [-2.9, 2.9]])
        """
        return Move(self, axes, labels, undone=True).of(values)

    def symmetrized(self, rng_key: Array) -> Any:
        r"""Every draw with labels drawn uniformly: draws of :math:`\frac1{|G|}\sum_g p(g\theta\mid x)`.

        For a posterior with the symmetry these are draws of the posterior itself, from a sampler that moves between all
        labellings: what it says of single slots says nothing, and what it says of anything else is unchanged.

        Parameters
        ----------
        rng_key
            JAX random key.

        Returns
        -------
        Any
            A container of the type that was given. Sites that the model computes, and which do not move as wholes, are
            left out.

        Raises
        ------
        TypeError
            If ``rng_key`` is no key.

        References
        ----------
        Frühwirth-Schnatter (2001), Markov chain Monte Carlo estimation of classical and dynamic switching and mixture
        models (random permutation sampling).

        Examples
        --------
        >>> import jax, numpy as np
        >>> from numpyro_symmetry import Symmetry, rebase
        >>> loc = np.array([-3.0, 3.0]) + 0.1 * np.random.default_rng(0).standard_normal((400, 2))
        >>> out = rebase({"loc": loc}, Symmetry.mixture("loc"))
        >>> mixed = out.symmetrized(jax.random.key(0))["loc"]
        >>> bool((np.sort(mixed) == np.sort(loc)).all()), 0.4 < float((mixed[:, 0] > 0).mean()) < 0.6
        (True, True)
        """
        rng_key = as_key(rng_key)
        refuse_tracers("symmetrized", rng_key=rng_key)
        elements = self.symmetry.sample(rng_key, self.objective.shape)
        computed = [site for site in self.carried.before if site not in self.symmetry.axes]
        changed = [*self.carried.left_out, *computed, *self.carried.unmoved]
        gone = dict.fromkeys(changed, "its labels were drawn at random")
        drawn = self._replace(
            elements=to_element(from_element(elements), self.objective.shape),
            carried=Carried(self.carried.axes, {}, {}, gone),
        )
        return Move(drawn, None, None, undone=False).of(self.data)

    def to_zarr(self, path: Any, *, progress_bar: bool = True) -> None:
        """Write ``data`` to a zarr store, a region of draws at a time; what is there already is left as it is.

        Each group gets a coordinate ``is_complete`` over its regions. A store of which some are not is refused by
        `rebase` and the like; `to_zarr` with the same path, of the same draws relabelled alike, writes those alone.

        Parameters
        ----------
        path
            Of the store: a path, or whatever else ``xarray.Dataset.to_zarr`` takes.
        progress_bar
            Whether to show one.

        Raises
        ------
        SymmetryError
            If there is a store at that path that holds anything else.
        TypeError
            If the draws came in a container without named dimensions.
        ImportError
            If Dask or zarr is not installed: they are the extra ``dask``.

        Examples
        --------
        >>> import tempfile, xarray as xr
        >>> from numpyro_symmetry import rebase
        >>> loc = np.array([[[-3.0, 3.0], [3.1, -3.1], [-2.9, 2.9]]])
        >>> draws = xr.Dataset({"loc": (("chain", "draw", "component"), loc)})
        >>> out = rebase(draws, Symmetry.mixture("loc"), order_by="loc", null=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out.to_zarr(f"{folder}/rebased.zarr", progress_bar=False)
        ...     print(xr.open_zarr(f"{folder}/rebased.zarr")["loc"].values.tolist())
        [[[-3.0, 3.0], [-3.1, 3.1], [-2.9, 2.9]]]
        """
        known = hashlib.sha256(self.objective.tobytes())
        # which sites moved, on which axes, and which were computed again or left out
        by_site = (sorted(one.items()) for one in (self.symmetry.axes, self.labels, self.carried.axes))
        known.update(repr((*by_site, sorted(self.carried.after), sorted(self.carried.left_out))).encode())
        for x in itertools.chain(*from_element(self.elements).values()):
            known.update(b"" if x is None else np.ascontiguousarray(x).tobytes())
        write_by_region(self.data, path, known.hexdigest()[:16], progress_bar=as_flag(progress_bar, "progress_bar"))

    def score(self, data: Any, cost: Cost) -> float:
        """Mean objective of these labels under another cost.

        Parameters
        ----------
        data
            The draws as they were *before* rebasing.
        cost
            For example `StephensCost`, whose criterion this is with the opposite sign.

        Returns
        -------
        float
            A mean over draws, in the units of ``objective``; larger is better.

        Raises
        ------
        SymmetryError
            If the draws are not as many as were rebased, or not the same.
        TypeError, ValueError
            If ``cost`` is none.

        Examples
        --------
        >>> from numpyro_symmetry import AllocationCost, rebase
        >>> raw = {"loc": np.array([[-3.0, 3.0], [3.1, -3.1], [-2.9, 2.9]])}
        >>> z = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 1]])  # of three data, in each draw
        >>> out = rebase(raw, Symmetry.mixture("loc"), null=False)
        >>> round(out.score(raw, AllocationCost(z)), 2)  # one datum of one draw is not where the other draws have it
        -0.33
        """
        refuse_no_cost(cost)
        trace = read(data, self.symmetry, len(self.objective.shape), lazily=True)
        if trace.leading != self.objective.shape:
            raise SymmetryError(
                f"data has leading dimensions {trace.leading}, and the labels are of draws {self.objective.shape}: "
                "pass the draws as they were before rebasing."
            )
        named, along = (trace_of(self), trace), groups_on(trace.dims, self.symmetry.axes)
        refuse_other_draws(*named, ("the relabelled draws", "data"))
        refuse_other_names(*named, list(self.symmetry.axes), ("the relabelled draws", "data"), along=along)
        refuse_cost_of_others(cost, trace, along)
        plain, pieces = self.view.symmetry, in_pieces(trace.flat(list(self.view.shapes)), self.view)
        family = family_of(cost, Side.of_pieces(pieces, trace.leading, self.view), plain)
        return objective_of(family, plain.groups, self.view.parts(self.elements))

    def __repr__(self) -> str:
        return describe(self)

    _repr_html_ = as_html
