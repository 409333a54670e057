"""Which parts of an array may be negated together: what the package finds, and what trying finds."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_symmetry.discovery.labels.parity import even_sets


def found_and_tried(function, cuts, *others, tolerance=1e-4):
    """Sets of parts of a 3 × 6 array, cut along some axes, that leave a function of it and of others alone."""
    w = np.random.default_rng(0).normal(size=(3, 6))
    found, numbers = even_sets(jax.make_jaxpr(function)(w, *others), [True], [cuts]), np.zeros(w.shape, int)
    for axis, sizes in cuts:
        along = np.repeat(np.arange(len(sizes)), sizes)
        numbers = numbers * len(sizes) + (along[:, None] if axis == 0 else along)
    count = numbers.max() + 1

    def stays(parts):
        negated = np.where(np.isin(numbers, list(parts)), -w, w)
        before, after = (float(jnp.sum(jnp.asarray(function(jnp.asarray(at), *others)))) for at in (w, negated))
        return abs(after - before) <= tolerance * (1.0 + abs(before))

    tried = {frozenset(p) for k in range(count + 1) for p in itertools.combinations(range(count), k) if stays(p)}
    spanned = {frozenset()}
    for parts in found:
        spanned |= {parts ^ others for others in spanned}
    return spanned, tried
