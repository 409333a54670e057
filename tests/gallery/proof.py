"""An independent proof of labels: swap two indices in every set of axes and see whether the log joint stays.

It knows nothing of programs: the latent values are one vector, a change is a permutation of it (or signs), and the log
joint, in float64 at a few random points, says what is left unchanged. Slow, so only for small models.

``python -m tests.gallery.proof gmm residual-mlp`` compares labels with what it finds, without names for all cases.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import defaultdict

import jax
import numpy as np
import numpyro
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform
from numpyro.infer.util import log_density

from tests.gallery.views import VIEWS

CHUNK = 256
MAX_TRIALS = 8_000
MAX_LENGTH = 9
NUM_POINTS = 8


def latent_values(case, rng_seed):
    """Random values of the latent sites, and of parameters, as a tree."""
    model = substitute(seed(case.model, rng_seed), substitute_fn=init_to_uniform(radius=1.5))
    sites = trace(model).get_trace(*case.args).values()
    sampled = {s["name"] for s in sites if s["type"] == "sample"}
    rng = np.random.default_rng(rng_seed)
    values = {}
    for site in sites:
        name = site["name"]
        discrete = case.enumerated and site["type"] == "sample" and site["fn"].support.is_discrete
        if site["type"] == "sample" and not site["is_observed"] and not discrete:
            values[name] = site["value"]
        if site["type"] == "param" and not any(s.startswith(f"{name.removesuffix('$params')}/") for s in sampled):
            values[name] = jax.tree.map(lambda v: v * np.exp(0.3 * rng.normal(size=np.shape(v))), site["value"])
            if not site["kwargs"].get("constraint"):
                values[name] = jax.tree.map(lambda v: v + 0.3 * rng.normal(size=v.shape), values[name])
    return jax.tree.map(lambda v: np.asarray(v, float if np.asarray(v).dtype.kind == "f" else int), values)


def density(case):
    """The log joint as a function of the tree of latent values."""
    if not case.enumerated:
        return lambda values: log_density(seed(case.model, 0), case.args, {}, values)[0]
    from numpyro.contrib import funsor

    model = funsor.enum(funsor.config_enumerate(seed(case.model, 0)), -4)
    return lambda values: funsor.infer_util.log_density(model, case.args, {}, values)[0]


def pieces(case, tree):
    """Positions in the vector of latent values: name -> integer array with the shape of a site, or of a view of it."""
    start, out = 0, {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        index = start + np.arange(leaf.size).reshape(leaf.shape)
        start += leaf.size
        views = VIEWS.get(case.name, {}).get(name, lambda index: {"": index})(index)
        out |= {name + suffix: view for suffix, view in views.items()}
    return out


class Candidates:
    """Axes of one length, everywhere or at one position of another axis; what they do to the vector.

    Of many axes, only small subsets are tried, and most of the axes that are in none of these.
    """

    def __init__(self, index, size, length, fibre=None):
        self.size, self.axes = size, {}
        for name, positions in index.items():
            for axis in range(positions.ndim):
                if positions.shape[axis] != length:
                    continue
                if fibre is None:
                    self.axes[name, axis] = np.moveaxis(positions, axis, 0)
                    continue
                for other in range(positions.ndim):
                    if other != axis and positions.shape[other] == fibre[0]:
                        part = np.moveaxis(positions, (axis, other), (0, 1))[:, fibre[1]]
                        self.axes[name, axis, other] = part

    def swap(self, subset, i, j):
        """The permutation that swaps indices i and j of all axes of a subset."""
        out = np.arange(self.size)
        for key in subset:
            part, step = self.axes[key], np.arange(self.size)
            step[part[i]], step[part[j]] = part[j], part[i]
            out = out[step]
        return out

    def flip(self, subset, i):
        """The signs that flip index i of all axes of a subset."""
        out = np.ones(self.size)
        for key in subset:
            out[self.axes[key][i]] *= -1
        return out

    def minimal(self, changes, test):
        """Minimal subsets left unchanged, for each of some changes: change -> list of frozensets."""
        found = {change: [] for change in changes}

        def search(size, axes):
            trials = [
                (change, frozenset(subset))
                for change in changes
                for subset in itertools.combinations(axes(change), size)
                if not any(smaller <= set(subset) for smaller in found[change])
            ]
            for (change, subset), unchanged in zip(trials, test(self, trials), strict=True):
                if unchanged:
                    found[change].append(subset)

        sizes, count = list(range(1, len(self.axes) + 1)), 0
        while sizes and (count := count + math.comb(len(self.axes), sizes[0]) * len(changes)) <= MAX_TRIALS:
            search(sizes.pop(0), lambda change: self.axes)
        if sizes:
            free = {
                change: [axis for axis in self.axes if all(axis not in s for s in found[change])] for change in found
            }
            most = max(map(len, free.values()))
            large, count = [], 0
            while len(large) < most and (count := count + math.comb(most, len(large)) * len(changes)) <= 2 * MAX_TRIALS:
                large.append(most - len(large))
            for size in sorted(set(large) & set(sizes)):
                search(size, free.get)
        return found


class Invariance:
    """The log joint of a case, asked whether changes leave it as it is."""

    def __init__(self, case):
        self.trees = [latent_values(case, s) for s in range(NUM_POINTS)]
        self.index = pieces(case, self.trees[0])
        flat = [jax.flatten_util.ravel_pytree(tree) for tree in self.trees]
        self.points = np.stack([vector for vector, _ in flat])
        joint, unravel = density(case), flat[0][1]
        self.joint = jax.jit(jax.vmap(lambda v: joint(unravel(v))))
        self.evaluations = 0
        self.at_points = np.asarray(self.joint(self.points))
        if not np.isfinite(self.at_points).all():
            raise ValueError(f"{case.name}: log joint {self.at_points} at random points")

    def __call__(self, permutations, signs):
        """One boolean for each permutation and sign vector."""
        left = np.arange(len(permutations))
        for point, value in zip(self.points, self.at_points, strict=True):
            moved = point[permutations[left]] * signs[left]
            left, moved = left[(moved != point).any(1)], moved[(moved != point).any(1)]
            left = left[np.abs(self.evaluate(moved) - value) <= 1e-9 * (1 + abs(value))]
        out = np.zeros(len(permutations), bool)
        out[left] = True
        return out

    def evaluate(self, vectors):
        """The log joint of many vectors, in chunks of one size (compiled once)."""
        self.evaluations += len(vectors)
        out = []
        for start in range(0, len(vectors), CHUNK):
            chunk = vectors[start : start + CHUNK]
            padded = np.concatenate([chunk, np.repeat(self.points[:1], CHUNK - len(chunk), 0)])
            out.append(np.asarray(self.joint(padded))[: len(chunk)])
        return np.concatenate(out) if out else np.zeros(0)

    def swaps(self, candidates, trials):
        """Test pairs of indices on subsets of axes."""
        return self.chunked(trials, lambda subset, pair: (candidates.swap(subset, *pair), np.ones(candidates.size)))

    def flips(self, candidates, trials):
        """Test sign flips of indices on subsets of axes."""
        return self.chunked(trials, lambda subset, i: (np.arange(candidates.size), candidates.flip(subset, i)))

    def chunked(self, trials, element):
        """Test what ``element`` makes of trials, some at a time."""
        out = []
        for start in range(0, len(trials), 8 * CHUNK):
            elements = [element(subset, change) for change, subset in trials[start : start + 8 * CHUNK]]
            permutations, signs = (np.stack(parts) for parts in zip(*elements, strict=True))
            out.extend(self(permutations, signs))
        return out


def classes(pairs):
    """Connected components of a graph given by its edges."""
    groups = []
    for pair in pairs:
        joined = [g for g in groups if g & set(pair)]
        groups = [g for g in groups if not g & set(pair)] + [set(pair).union(*joined)]
    return sorted(groups, key=min)


def orbits(invariance, candidates, length, signed, finer=()):
    """Minimal subsets of axes -> the classes of indices that may be permuted in them, as factors' texts.

    ``finer``: sets of axes along which signs are free at every position; flipping one position of them is no news.
    """
    pairs = list(itertools.combinations(range(length), 2))
    by_subset = defaultdict(list)
    for pair, subsets in candidates.minimal(pairs, invariance.swaps).items():
        for subset in subsets:
            by_subset[subset].append(pair)
    flips = candidates.minimal(list(range(length)), invariance.flips) if signed and by_subset else {}
    flips = {i: [f for f in sets if not any(inner <= f for inner in finer)] for i, sets in flips.items()}

    def text(subset, group):
        flipped = signed and all(any(f <= subset for f in flips.get(i, ())) for i in group)
        return f"{'±' if flipped else ''}S{len(group)}"

    return {subset: [text(subset, group) for group in classes(edges)] for subset, edges in by_subset.items()}


def find_group(case, signed=False):
    """The canonical text of the group, the subsets of axes behind it, and the number of evaluations."""
    invariance = Invariance(case)
    size = invariance.points.shape[1]
    lengths = sorted({n for index in invariance.index.values() for n in index.shape if 1 < n <= MAX_LENGTH})
    factors, evidence, fibres = [], [], []
    for length, count in itertools.product(lengths, lengths):
        found = defaultdict(list)
        for position in range(count):
            candidates = Candidates(invariance.index, size, length, (count, position))
            for subset, texts in orbits(invariance, candidates, length, signed).items():
                for text in texts:
                    found[subset, text].append(position)
        for (subset, text), positions in found.items():
            evidence.append((text, sorted(subset), positions))
            if sorted(set(positions)) == list(range(count)):
                factors.extend([f"({text})^{count}"] * (len(positions) // count))
                fibres.append((subset, text))
    inner = [{key[:2] for key in subset} for subset, _ in fibres]
    outer = [{(key[0], key[2]) for key in subset} for subset, text in fibres if text.startswith("±")]
    for length in lengths:
        candidates = Candidates(invariance.index, size, length)
        for subset, texts in orbits(invariance, candidates, length, signed, outer).items():
            if not any(axes <= subset for axes in inner):
                evidence.append((texts, sorted(subset)))
                factors.extend(texts)
    return " x ".join(sorted(factors)) or "trivial", evidence, invariance.evaluations


def main():
    """Compare labels with proofs and print one line a case."""
    from tests.gallery import CASES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    numpyro.enable_x64()
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        for signed, label in ((False, case.expected), (True, case.signed)):
            if label is None:
                continue
            start = time.perf_counter()
            text, evidence, count = find_group(case, signed)
            seconds = time.perf_counter() - start
            verdict = "ok" if text == label else "known" if case.search else "WRONG"
            line = f"{verdict:5s} {case.name:34s} label {label:28s} proof {text:28s}"
            print(line, f"{count:6d} evaluations in {seconds:.0f} s", flush=True)
            if options.verbose or text != label:
                print(*evidence, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
