"""Imports point down, and heavy hosts are loaded only where they are used."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "numpyro_symmetry"
LAYER = {
    # where arrays lie is known below what they mean
    "devices": -1,
    "versions": 1,
    "chunks": 0,
    "linalg": 0,
    "steps": 0,
    "symmetry": 0,
    "entropy": 1,
    "assignment": 1,
    "models": 2,
    "containers": 3,
    "discovery": 3,
    "matching": 3,
    "guides": 4,
    "traces": 4,
    "samplers": 4,
    "testing": 4,
    "evidence": 5,
    "diagnostics": 5,
}
# what reads a NumPyro guide where it is given one, and does without NumPyro otherwise
WITHOUT_NUMPYRO = {subpackage for subpackage, layer in LAYER.items() if layer <= 1} | {"matching"}
SUBPACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
HEAVY = {"arviz", "blackjax", "matplotlib", "funsor", "flax"}


def upward(subpackages):
    """In the order of layers, so that none is loaded before it is asked for."""
    return sorted(subpackages, key=lambda subpackage: (LAYER[subpackage], subpackage))


# a fork for each row, of a process that has loaded JAX, which all need and which takes longest; what is loaded after
# one of a row was loaded by it, or by those before it
ROWS = [
    ["", *upward(WITHOUT_NUMPYRO & set(SUBPACKAGES))],
    ["guides"],
    upward(set(SUBPACKAGES) - WITHOUT_NUMPYRO - {"guides"}),
]
FORKS = """
import json, os, sys
import jax
for row in json.loads(sys.argv[1]):
    if os.fork() == 0:
        import numpyro_symmetry
        for key in row:
            name = getattr(numpyro_symmetry, key).__name__ if key else None
            print(json.dumps([key, name, sorted(sys.modules)]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, row
"""


@pytest.fixture(scope="module")
def loaded():
    """Each subpackage as an attribute, and the modules that are loaded then; of the package by itself, at ``""``."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, json.dumps(ROWS)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {key: (name, set(modules)) for key, name, modules in map(json.loads, result.stdout.splitlines())}


def top(modules):
    return {name.split(".")[0] for name in modules}


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_every_import_points_down(subpackage):
    for path in (PACKAGE / subpackage).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numpyro_symmetry."):
                target = node.module.split(".")[1]
                below = LAYER[target] < LAYER[subpackage] or target == subpackage
                assert below, f"{path.name} imports {node.module}"


@pytest.mark.parametrize(("half", "other"), [("labels", "proof"), ("proof", "labels")])
def test_labels_and_proof_know_nothing_of_each_other(half, other):
    for path in (PACKAGE / "discovery" / half).rglob("*.py"):
        assert f"numpyro_symmetry.discovery.{other}" not in path.read_text(), path.name


@pytest.mark.parametrize(
    ("folder", "below"),
    [
        ("linear", set()),
        ("", {"linear"}),
        ("conditional", {"", "linear"}),
        ("units", {"", "linear"}),
        ("symmetrized", {"", "linear", "units"}),
    ],
)
def test_guides_point_down(folder, below):
    guides = PACKAGE / "guides"
    folders = {path.parent.name for path in guides.glob("*/__init__.py")}
    for path in (guides / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path != guides / "__init__.py" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numpyro_symmetry.guides"):
                target = (node.module.split(".") + [""])[2]
                assert {target if target in folders else ""} <= below | {folder}, f"{path.name} imports {node.module}"


def test_no_circle_of_imports():
    def modules_of(path):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numpyro_symmetry."):
                yield node.module

    def name_of(path):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    imports = {name_of(path): set(modules_of(path)) for path in (PACKAGE / "discovery").rglob("*.py")}
    while leaves := [name for name, others in imports.items() if not others & imports.keys() - {name}]:
        for name in leaves:
            del imports[name]
    assert not imports


@pytest.mark.parametrize("subpackage", [subpackage for subpackage in SUBPACKAGES if subpackage in WITHOUT_NUMPYRO])
def test_lower_layers_do_not_load_numpyro(subpackage, loaded):
    # the package's own __init__ stays below numpyro too
    assert not top(loaded[subpackage][1]) & (HEAVY | {"numpyro", "optax"})


def test_the_package_loads_no_upper_layer(loaded):
    _, modules = loaded[""]
    assert not top(modules) & (HEAVY | {"numpyro"})
    assert not {f"numpyro_symmetry.{subpackage}" for subpackage in SUBPACKAGES if LAYER[subpackage] >= 1} & modules


def test_guides_load_no_sampler_and_no_plots(loaded):
    assert not top(loaded["guides"][1]) & HEAVY


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_subpackages_are_attributes(subpackage, loaded):
    assert loaded[subpackage][0] == f"numpyro_symmetry.{subpackage}"


def test_every_public_name_resolves():
    import numpyro_symmetry

    assert set(dir(numpyro_symmetry)) == set(numpyro_symmetry.__all__)
    for name in numpyro_symmetry.__all__:
        assert getattr(numpyro_symmetry, name).__doc__
    with pytest.raises(AttributeError, match="nonsense"):
        _ = numpyro_symmetry.nonsense
