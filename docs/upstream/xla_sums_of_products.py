"""Of a sum of products over an axis that is not the last, results beyond the first 32,768 are wrong on a CPU."""

import jax
import numpy as np

print("jaxlib", jax.lib.__version__)


def negative(a, b):
    return -(a * b).sum(1)


rng = np.random.default_rng(0)
a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((64, 4096), (16, 64, 4096)))
gap = np.abs(np.asarray(jax.jit(negative)(a, b)) - negative(a, b)).ravel() > 1e-3
print(f"{gap.sum()} of {gap.size} wrong, the first at {gap.argmax()}")
