"""Planted matching problems: a network, the same one relabelled and disturbed, and the relabelling that was planted."""

from __future__ import annotations

import numpy as np

from numpyro_symmetry import Symmetry


def mlp(widths):
    """Shapes and symmetry of a multilayer perceptron."""
    shapes, layers = {}, []
    for layer, (fan_in, fan_out) in enumerate(zip(widths, widths[1:], strict=False), 1):
        shapes |= {f"w{layer}": (fan_in, fan_out), f"b{layer}": (fan_out,)}
        layers.append((f"w{layer}", f"b{layer}"))
    return shapes, Symmetry.mlp(layers)


def residual(inputs, width, blocks, outputs):
    """Residual blocks that share one stream: its units are one group, each block's hidden units another."""
    shapes = {"w_in": (inputs, width), "b_in": (width,), "w_out": (width, outputs)}
    axes = {"w_in": (None, "stream"), "b_in": ("stream",), "w_out": ("stream", None)}
    for block in range(blocks):
        hidden = f"hidden{block}"
        shapes |= {f"up{block}": (width, width), f"b{block}": (width,), f"down{block}": (width, width)}
        axes |= {f"up{block}": ("stream", hidden), f"b{block}": (hidden,), f"down{block}": (hidden, "stream")}
    return shapes, Symmetry(axes)


def planted(shapes, symmetry, noise, count, seed=0, dtype=np.float64):
    """Target, ``count`` disturbed and relabelled copies of it, and the permutations that undo the relabelling."""
    rng = np.random.default_rng(seed)
    target = {site: rng.normal(size=shape) / np.sqrt(shape[0]) for site, shape in shapes.items()}
    bound = symmetry.bind(target)
    sources = {site: np.empty((count, *shape)) for site, shape in shapes.items()}
    undo = {name: np.empty((count, group.size), int) for name, group in bound.groups.items()}
    for k in range(count):
        permutations = {name: rng.permutation(group.size) for name, group in bound.groups.items()}
        for site, value in target.items():
            disturbed = value + noise * np.sqrt((value**2).mean()) * rng.normal(size=value.shape)
            for axis, entry in enumerate(symmetry.axes.get(site, ())):
                if entry is not None:
                    disturbed = disturbed.take(permutations[entry], axis)
            sources[site][k] = disturbed
        for name, permutation in permutations.items():
            undo[name][k] = np.argsort(permutation)
    return (
        {s: v.astype(dtype) for s, v in target.items()},
        {s: v.astype(dtype) for s, v in sources.items()},
        undo,
    )


def take(symmetry, permutations, values):
    """A plain gather along every axis, one item of the batch after the other."""
    moved = {site: np.array(value) for site, value in values.items()}
    for site, entries in symmetry.axes.items():
        for k in range(len(moved[site])):
            for axis, entry in enumerate(entries):
                if entry is not None:
                    moved[site][k] = moved[site][k].take(permutations[entry][k], axis)
    return moved
