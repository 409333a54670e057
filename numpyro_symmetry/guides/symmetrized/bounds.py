"""What draws of a symmetrized guide say of its ELBO and of the evidence, and how two fits differ.

Knows numbers, one of each kind a draw; not where they come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from numpyro_symmetry.entropy.importance import doubt_in_words, effective_number, log_mean, pareto_shape, shape_in_words
from numpyro_symmetry.guides.origin import Origin
from numpyro_symmetry.symmetry import as_html
from numpyro_symmetry.symmetry.shown import counted


class Particles(NamedTuple):
    """Numbers of every draw, nats.

    Attributes
    ----------
    elbo
        ``(num_particles,)``, whose mean is the base guide's ELBO.
    log_weight
        ``(num_particles,)``, log joint less the base guide's log density.
    information
        ``(num_particles, 2)``, lower and upper estimate of the mutual information.
    origin
        The model and data that they belong to: latent sites, and fingerprints of the data.
    """

    elbo: np.ndarray
    log_weight: np.ndarray
    information: np.ndarray
    origin: Origin


class ElboDifference(NamedTuple):
    """ELBO of one symmetrized guide less that of another, nats, each number with its paired standard error.

    Attributes
    ----------
    lower, lower_error
        At most the difference, in expectation: the first one's lower bound less the second one's upper.
    upper, upper_error
        At least the difference, in expectation.
    base_elbo, base_elbo_error
        Difference between the base guides.
    num_particles
        Number of pairs of draws.
    """

    lower: float
    lower_error: float
    upper: float
    upper_error: float
    base_elbo: float
    base_elbo_error: float
    num_particles: int

    def __str__(self) -> str:
        """Both ends, in one line."""
        ends = f"{_signed(self.lower, self.lower_error)} … {_signed(self.upper, self.upper_error)} nats"
        return f"{ends} ({counted(self.num_particles, 'pair')} of draws)"

    __repr__ = __str__
    _repr_html_ = as_html


@dataclass(frozen=True, repr=False, eq=False)
class ElboBounds:
    r"""Bounds on the symmetrized ELBO, in nats; each a mean over draws of the guide, with its standard error.

    The symmetrized guide has an ELBO, and the model has the evidence.

    Attributes
    ----------
    lower, lower_error
        At most the symmetrized ELBO, and so at most ``log p(data)``, in expectation.
    upper, upper_error
        At least the symmetrized ELBO, in expectation. *Not* a bound on ``log p(data)``.
    base_elbo, base_elbo_error
        ELBO of the base guide on the same draws.
    mutual_information, mutual_information_error
        ``(lower, upper)`` bounds on what symmetrizing adds, cut off at ``log|G|``, which it never exceeds; their errors
        are free of the ELBO's noise.
    width, width_error
        ``upper - lower``, and its error on the same draws: how far apart the two ends are for other reasons than noise.
        Zero where the group is summed out.
    importance_weighted, importance_weighted_error
        :math:`\log\frac1n\sum_i w_i` of the same draws' weights :math:`w = p(\theta, \text{data}) / \hat q^G(\theta)`:
        in expectation at most ``log p(data)``, and at least ``lower``. NaN for a model that sees a minibatch, whose
        weights would bound nothing.
    pareto_shape, effective_number
        Of these weights (`pareto_shape`, `effective_number`): with a shape above 0.7 a few of them are all of the mean,
        and its error is not to be believed, nor with fewer than ten draws that count. What is printed says so.
    log_order
        ``log|G|``.
    num_particles
        Number n of draws.
    particles
        The numbers behind it, draw by draw.
    """

    lower: float
    lower_error: float
    upper: float
    upper_error: float
    base_elbo: float
    base_elbo_error: float
    mutual_information: tuple[float, float]
    mutual_information_error: tuple[float, float]
    width: float
    width_error: float
    importance_weighted: float
    importance_weighted_error: float
    pareto_shape: float
    effective_number: float
    log_order: float
    num_particles: int
    particles: Particles

    def minus(self, other: ElboBounds) -> ElboDifference:
        """How much higher this symmetrized ELBO is than another, with errors of paired draws.

        Call `AutoSymmetrized.elbo_bounds` with the same ``rng_key`` and ``num_particles`` for both: noise that they
        share then cancels. With other keys the errors are right, and larger.

        Parameters
        ----------
        other
            Bounds of another fit of the same model to the same data.

        Returns
        -------
        ElboDifference
            Nats.

        Raises
        ------
        TypeError
            If ``other`` is no `ElboBounds`.
        ValueError
            If the numbers of draws differ, or the latent sites, or the data.

        Examples
        --------
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> from numpyro_symmetry import AutoSymmetrized, Symmetry
        >>> def model(y):
        ...     z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        ...     numpyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)
        >>> guide = AutoSymmetrized(AutoNormal(model), Symmetry({"z": ("unit",)}))
        >>> wide, narrow = ({"z_auto_loc": jnp.zeros(3), "z_auto_scale": jnp.full(3, s)} for s in (0.8, 0.4))
        >>> bounds = [guide.elbo_bounds(jax.random.key(0), p, jnp.array(0.5)) for p in (wide, narrow)]
        >>> bounds[0].minus(bounds[1]).base_elbo > 0
        True
        """
        if not isinstance(other, ElboBounds):
            raise TypeError(f"minus() takes the ElboBounds of another fit; got {type(other).__name__}.")
        if self.num_particles != other.num_particles:
            raise ValueError(
                f"Draws are compared pair by pair, and there are {self.num_particles} and {other.num_particles}: give "
                "both calls of elbo_bounds the same num_particles and rng_key."
            )
        if differs := self.particles.origin.difference(other.particles.origin):
            raise ValueError(
                f"Fits of one model to the same data are compared, and these are not: {differs}. Give both calls of "
                "elbo_bounds the same arguments of the model. Bounds of different models for the same data may be "
                "subtracted as they are, where errors add up in squares."
            )
        (elbo, _, information, _), (elbo_of_other, _, of_other, _) = self.particles, other.particles
        base = elbo - elbo_of_other
        return ElboDifference(
            self.lower - other.upper,
            _mean_and_error(base + information[:, 0] - of_other[:, 1])[1],
            self.upper - other.lower,
            _mean_and_error(base + information[:, 1] - of_other[:, 0])[1],
            *_mean_and_error(base),
            self.num_particles,
        )

    def __eq__(self, other: object) -> bool:
        """Whether all draws have the same numbers; unknown ones (NaN) do not differ."""
        if not isinstance(other, ElboBounds):
            return NotImplemented
        pairs = zip(self.particles[:3], other.particles[:3], strict=True)
        alike = (np.array_equal(a, b, equal_nan=True) for a, b in pairs)
        weighed = math.isnan(self.importance_weighted) == math.isnan(other.importance_weighted)
        return self.log_order == other.log_order and weighed and all(alike)

    def __hash__(self) -> int:
        """A hash of log|G| and of the number of draws, for ends that are unknown have hashes of their own."""
        return hash((self.log_order, self.num_particles))

    def __str__(self) -> str:
        """Both ends, what lies between them, and the importance-weighted bound, in one line."""
        ends = f"{_signed(self.lower, self.lower_error)} … {_signed(self.upper, self.upper_error)} nats"
        (low, high), (low_error, high_error) = self.mutual_information, self.mutual_information_error
        information = f"I = {_signed(low, low_error)}"
        if self.width:
            information += f" … {_signed(high, high_error)}"
        weighted = ""
        if not math.isnan(self.importance_weighted):
            weighted = (
                f"; importance-weighted {_signed(self.importance_weighted, self.importance_weighted_error)}, "
                f"{shape_in_words(self.pareto_shape)}, effective number {self.effective_number:.0f}"
            )
            if doubt := doubt_in_words(self.pareto_shape, self.effective_number):
                weighted += f": {doubt}, so do not trust its error"
        draws = counted(self.num_particles, "draw")
        return f"{ends} ({information} of log|G| = {self.log_order:.2f}; {draws}{weighted})"

    def __repr__(self) -> str:
        """The same line, by name."""
        return f"ElboBounds({self})"

    _repr_html_ = as_html


def summarise(particles: Particles, log_order: float, *, is_whole: bool) -> ElboBounds:
    """Means over draws and their standard errors; weights only where the model ``is_whole`` and sees no minibatch."""
    elbo, log_weight, information = (np.asarray(x, np.float64) for x in particles[:3])
    below, above = information.T
    base, base_error = _mean_and_error(elbo)
    # only a mean may be cut off at log|G|: single draws scatter about it, and cutting them would bias the mean
    low, high = (min(float(side.mean()), log_order) for side in (below, above))
    weighted = shape = number = weighted_error = math.nan
    if is_whole:
        log_weights = log_weight + below
        number, shape = effective_number(log_weights), pareto_shape(log_weights)
        weighted, weighted_error = log_mean(log_weights)
    return ElboBounds(
        lower=base + low,
        lower_error=_mean_and_error(elbo + below)[1],
        upper=base + high,
        upper_error=_mean_and_error(elbo + above)[1],
        base_elbo=base,
        base_elbo_error=base_error,
        mutual_information=(low, high),
        mutual_information_error=(_mean_and_error(below)[1], _mean_and_error(above)[1]),
        width=high - low,
        width_error=_mean_and_error(above - below)[1],
        importance_weighted=weighted,
        importance_weighted_error=weighted_error,
        pareto_shape=shape,
        effective_number=number,
        log_order=log_order,
        num_particles=len(elbo),
        particles=Particles(elbo, log_weight, information, particles.origin),
    )


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else math.nan


def _signed(value: float, error: float) -> str:
    """A number and its error, to a tenth or a hundredth of a nat."""
    digits = 2 if 0.0 <= error < 0.1 else 1
    return f"{value:.{digits}f} ± {error:.{digits}f}"
