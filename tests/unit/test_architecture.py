"""The pages of the architecture and for contributors name files, tests and functions that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_files_that_it_names_exist():
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("numpyro_symmetry/**/*.py")]
    files += [path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert len(named) > 30
    assert not {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)}


def test_names_that_it_uses_are_in_the_code():
    paths = [path for part in ("numpyro_symmetry", "tests") for path in ROOT.glob(f"{part}/**/*.py")]
    code = "\n".join(path.read_text() for path in paths)
    named = set(re.findall(r"(?<!})`_?([A-Za-z]\w+)`", PAGE))
    assert {name for name in named if not re.search(rf"\b_?{name}\b", code)} == set()


def test_tables_stand_in_the_files_that_are_named_beside_them():
    said = re.findall(r"`([A-Z_]{4,})`(?:,| of| in)\s`([\w/]+\.py)`", PAGE + CONTRIBUTING)
    assert len(said) > 12
    files = [path for part in ("numpyro_symmetry", "tests") for path in ROOT.glob(f"{part}/**/*.py")]
    tables = {(name, f"/{path}") for path in files for name in re.findall(r"^([A-Z_]+)\b.* = ", path.read_text(), re.M)}
    assert [pair for pair in said if not any(n == pair[0] and f.endswith(f"/{pair[1]}") for n, f in tables)] == []
