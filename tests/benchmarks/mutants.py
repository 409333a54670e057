"""Broken lines that the suite should see, drawn at random, each tried by the tests that run it.

    python -m pytest --cov=numpyro_symmetry --cov-context=test --cov-report=      # once: which test runs which line
    python -m tests.benchmarks.mutants --seed 1 --count 60

A line is drawn, then one way to break it: another comparison or operator, a number one more, a condition turned round,
an argument or a statement left out. A mutant dies if a test that runs its line fails, else if one of a file does whose
tests run anything of its module; what then lives is printed, to be argued or tested. Needs pytest-cov.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "numpyro_symmetry"
# tests of one line tried first, and seconds that they, or those of whole files, may take
MOST, SECONDS = 25, 900
RAN_OUT = "time ran out"
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """One file with one line broken."""

    path: Path
    tree: ast.Module
    old: ast.AST
    new: ast.AST

    @property
    def line(self) -> int:
        return self.old.lineno

    def text(self) -> str:
        """The file as it would be, its lines laid out anew."""
        # the copy of the old node is the new one
        return ast.unparse(ast.fix_missing_locations(deepcopy(self.tree, {id(self.old): self.new})))

    def __str__(self) -> str:
        one_line = " -> ".join(ast.unparse(ast.fix_missing_locations(x)).replace("\n", "; ")[:90] for x in self[2:])
        return f"{self.path.relative_to(ROOT)}:{self.line}  {one_line}"


def ways(node: ast.AST) -> Iterator[ast.AST]:
    """Ways to break one node."""
    if isinstance(node, ast.Compare):
        for k, operator in enumerate(node.ops):
            operators = [*node.ops[:k], SWAPPED[type(operator)](), *node.ops[k + 1 :]]
            yield ast.Compare(node.left, operators, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPPED[type(node.op)](), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.If | ast.While):
        yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Call) and node.keywords:
        for k in range(len(node.keywords)):
            yield ast.Call(node.func, node.args, [*node.keywords[:k], *node.keywords[k + 1 :]])
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def mutants_of(path: Path) -> dict[int, list[Mutant]]:
    """All mutants of a file, by line; annotations, docstrings and what only type checkers read left out."""
    source = path.read_text()
    tree = ast.parse(source)
    unread = {id(inner) for node in ast.walk(tree) for outer in _unread(node) for inner in ast.walk(outer)}
    found: dict[int, list[Mutant]] = {}
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno") and id(node) not in unread]
    for node in nodes:
        for broken in ways(node):
            found.setdefault(node.lineno, []).append(Mutant(path, tree, node, ast.copy_location(broken, node)))
    return found


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node
    if isinstance(node, ast.JoinedStr | ast.Assert):  # words, and what is for type checkers
        yield node


def drawn(seed: int, count: int) -> list[Mutant]:
    """Mutants of so many lines, each drawn from all lines that can be broken."""
    rng = random.Random(seed)
    lines = [group for path in sorted(PACKAGE.rglob("*.py")) for group in mutants_of(path).values()]
    return [rng.choice(group) for group in rng.sample(lines, count)]


def tests_of(mutant: Mutant, data: CoverageData) -> tuple[list[str], list[str]]:
    """The tests that run a line, and the files of tests that run anything of its file."""
    contexts = data.contexts_by_lineno(str(mutant.path))
    near = [contexts.get(mutant.line + k, []) for k in (0, 1, -1)]
    here = sorted({name.rpartition("|")[0] for name in next((x for x in near if any(x)), []) if name})
    files = sorted({name.split("::")[0] for names in contexts.values() for name in names if name})
    return here, files


def dies(mutant: Mutant, tests: list[str], folder: Path) -> str:
    """Which test sees a mutant; empty if none does."""
    place = folder / "numpyro_symmetry" / mutant.path.relative_to(PACKAGE)
    kept = place.read_text()
    place.write_text(mutant.text())
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return RAN_OUT
    finally:
        place.write_text(kept)
    if "not found:" in ran.stdout + ran.stderr:
        raise LookupError(f"{mutant}: tests that are not there see nothing\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    said = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return (said[-1] if said else f"exit {ran.returncode}") if ran.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    options = parser.parse_args()
    data = CoverageData(str(options.coverage))
    data.read()
    if not any(Path(name).is_relative_to(PACKAGE) for name in data.measured_files()):
        parser.error(f"{options.coverage} has no file of {PACKAGE}: measure coverage in this folder")
    alive = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("numpyro_symmetry", "tests", "docs", "examples"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        for part in ("pyproject.toml", "README.md", "CITATION.cff"):
            shutil.copy(ROOT / part, folder / part)
        for mutant in drawn(options.seed, options.count):
            here, files = tests_of(mutant, data)
            quick = random.Random(0).sample(here, min(MOST, len(here)))
            seen = dies(mutant, quick, folder) if quick else ""
            later = dies(mutant, files, folder) if files and not seen else ""
            # a few tests that never end have seen something; those of whole files may only take long
            dead = bool(seen or later not in ("", RAN_OUT))
            alive += not dead
            print(f"{'dies ' if dead else 'LIVES'} {mutant}  [{(seen or later)[:100]}]", flush=True)
    print(f"seed {options.seed}: {options.count - alive} of {options.count} die")


if __name__ == "__main__":
    main()
