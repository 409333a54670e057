"""The page of the architecture names files, tests and functions that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


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
