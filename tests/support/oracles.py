"""Slow, obvious twins of the fast paths: plain loops over permutations in float64."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import logsumexp


def log_permanent(log_matrix):
    """Sum over all permutations."""
    n = len(log_matrix)
    return logsumexp([sum(log_matrix[i][s[i]] for i in range(n)) for s in itertools.permutations(range(n))])


def information(log_density, flipped=None):
    """log|G| less the log of the sum over all relabellings (and signs) of q(gθ)/q(θ)."""
    n = len(log_density)
    tables = [np.asarray(log_density)] if flipped is None else [np.asarray(log_density), np.asarray(flipped)]
    own = np.trace(tables[0])
    terms = [
        sum(tables[c[i]][i, s[i]] for i in range(n)) - own
        for s in itertools.permutations(range(n))
        for c in itertools.product(range(len(tables)), repeat=n)
    ]
    return math.lgamma(n + 1) + n * math.log(len(tables)) - logsumexp(terms)


def sequential_proposal(log_table, num_scaling_steps):
    """Log probability of every permutation: rows take turns, the most certain first, each weighing what is left."""
    log_table = np.asarray(log_table, float)
    n = len(log_table)
    table = np.exp(np.maximum(log_table - log_table.max(0), -40.0))
    rows = columns = np.ones(n)
    for _ in range(num_scaling_steps):
        columns = 1 / (rows @ table)
        rows = 1 / (table @ columns)
    table = rows[:, None] * table * columns
    order = np.argsort(-(table**2).sum(1), kind="stable")
    result = {}
    for permutation in itertools.permutations(range(n)):
        log_probability, free = 0.0, set(range(n))
        for turn, row in enumerate(order):
            later = order[turn + 1 :]
            weight = {j: table[row, j] / (table[later, j].sum() if len(later) else 1.0) for j in free}
            log_probability += math.log(weight[permutation[row]] / sum(weight.values()))
            free.remove(permutation[row])
        result[permutation] = log_probability
    return result


def num_cycles(permutation):
    """Walk every cycle."""
    seen, cycles = set(), 0
    for start in range(len(permutation)):
        cycles += start not in seen
        while start not in seen:
            seen.add(start)
            start = permutation[start]
    return cycles


def apply(axes, element, values):
    """The action index by index, for plain permutations and unbatched values."""
    moved = {}
    for site, entries in axes.items():
        value = np.asarray(values[site])
        out = np.empty_like(value)
        for index in np.ndindex(value.shape):
            source = [i if e is None else int(element[e][i]) for i, e in zip(index, entries, strict=True)]
            out[index] = value[tuple(source)]
        moved[site] = out
    return moved


def best_match(symmetry, target, source):
    """Minus the least squared distance over all elements of a small group."""
    return _best(symmetry, target, source, lambda m: -sum(((target[s] - m[s]) ** 2).sum() for s in target))


def best_gaussian_match(symmetry, target, source, cost):
    """The best objective over all elements, written out density by density."""

    best = -np.inf
    for g in _each_element(symmetry):
        moved = type(source)(act(symmetry, g, source.loc), act(symmetry, g, source.scale, signs=False))
        best = max(best, gaussian_objective(target, moved, cost))
    return best


def gaussian_objective(target, source, cost):
    """The objective of one Gaussian beside another, written out density by density."""
    total = 0.0
    for site in target.loc:
        m, s, a, b = (np.asarray(x[site], float) for x in (target.loc, target.scale, source.loc, source.scale))
        if cost == "euclidean":
            total -= ((m - a) ** 2).sum()
        elif cost == "wasserstein":
            total -= ((m - a) ** 2).sum() + ((s - b) ** 2).sum()
        else:
            total += (-0.5 * np.log(2 * np.pi * s**2) - ((a - m) ** 2 + b**2) / (2 * s**2)).sum()
            if cost == "kl":
                total += (0.5 + 0.5 * np.log(2 * np.pi * b**2)).sum()
    return total


def _best(symmetry, target, source, objective):
    return max(objective(act(symmetry, g, source)) for g in _each_element(symmetry))


def _each_element(symmetry):
    choices = []
    for group in symmetry.groups.values():
        signs = list(itertools.product((1, -1), repeat=group.size)) if group.kind == "signed" else [(1,) * group.size]
        choices.append(list(itertools.product(itertools.permutations(range(group.size)), signs)))
    for choice in itertools.product(*choices):
        yield dict(zip(symmetry.groups, choice, strict=True))


def act(symmetry, g, values, signs=True):
    moved = {}
    for site, value in values.items():
        value = np.asarray(value, float)
        entries = symmetry.axes.get(site, ())
        for axis, entry in enumerate(entries, value.ndim - len(entries)):
            if isinstance(entry, str):
                permutation, sign = g[entry]
                value = value.take(permutation, axis)
                if signs:
                    value = np.moveaxis(np.moveaxis(value, axis, -1) * np.array(sign), -1, axis)
        moved[site] = value
    return moved


def stephens(probabilities, start, max_rounds=200):
    """Stephens' algorithm as published, over every permutation: labels of each draw, and the final criterion."""
    p = np.asarray(probabilities, float)
    q, previous = p[start], np.inf
    for _ in range(max_rounds):
        labels = np.array([_best_permutation(lambda s, d=d, q=q: -_divergence(d[:, s], q), p.shape[2]) for d in p])
        relabelled = np.stack([d[:, s] for d, s in zip(p, labels, strict=True)])
        q = relabelled.mean(0)
        criterion = sum(_divergence(d, q) for d in relabelled)
        if previous - criterion <= 1e-9 * max(1.0, abs(criterion)):
            break
        previous = criterion
    return labels, criterion / len(p)


def _divergence(p, q):
    p, q = np.maximum(p, 1e-10), np.maximum(q, 1e-10)
    return (p * np.log(p / q)).sum()


def iterated_pivot(allocations, size, start, max_rounds=200):
    """Equivalence classes representatives, iterated, over every permutation."""
    z = np.asarray(allocations)
    pivot, previous = z[start], -1
    for _ in range(max_rounds):
        labels = np.array(
            [_best_permutation(lambda s, d=d, pivot=pivot: (np.argsort(s)[d] == pivot).sum(), size) for d in z]
        )
        relabelled = np.stack([np.argsort(s)[d] for d, s in zip(z, labels, strict=True)])
        pivot = np.array([np.bincount(column, minlength=size).argmax() for column in relabelled.T])
        agreeing = (relabelled == pivot).sum()
        if agreeing <= previous:
            break
        previous = agreeing
    return labels, agreeing / len(z)


def _best_permutation(worth, size):
    """The first permutation of largest worth, the identity winning ties."""
    best = max(itertools.permutations(range(size)), key=lambda s: round(worth(np.array(s)), 9))
    return np.array(best)


def second_best(worth, size, signed=False):
    """Largest worth of any labels, less that of the next."""
    signs = list(itertools.product((1, -1), repeat=size)) if signed else [(1,) * size]
    found = sorted(worth(s, np.array(c)) for s in itertools.permutations(range(size)) for c in signs)
    return found[-1] - found[-2]


def sinkhorn(logits, temperature, num_normalisations=20):
    """Rows and columns of the exponentials brought to a sum of one in turn."""
    matrix = np.exp(np.asarray(logits, float) / temperature)
    for _ in range(num_normalisations):
        matrix = matrix / matrix.sum(1, keepdims=True)
        matrix = matrix / matrix.sum(0, keepdims=True)
    return matrix


def refined(loss, target, source, logits, temperatures, step_size):
    """Descent of ``loss((t + P s) / 2)``, first axes of all sites permuted: rounded labels and their loss, by step."""

    def half_way(matrix):
        return loss({site: (target[site] + np.tensordot(matrix, source[site], (1, 0))) / 2 for site in target})

    found, tiny, logits = [], 1e-5, np.array(logits, float)
    for temperature in temperatures:
        slope = np.zeros_like(logits)
        for at in np.ndindex(logits.shape):
            up, down = logits.copy(), logits.copy()
            up[at] += tiny
            down[at] -= tiny
            ends = [half_way(sinkhorn(x, temperature)) for x in (up, down)]
            slope[at] = (ends[0] - ends[1]) / (2 * tiny)
        logits = logits - step_size * slope
        best = _best_permutation(lambda s, here=logits: here[np.arange(len(s)), s].sum(), len(logits))
        found.append((best, half_way(np.eye(len(logits))[best])))
    return found
