"""Pages: what runs their code, a table's too where the page says that it runs, and that what they name is there."""

import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import pytest

import numpyro_symmetry
from tests.support import public

SPEC = importlib.util.spec_from_file_location(
    "check_pages", Path(__file__).resolve().parents[2] / "docs" / "check_pages.py"
)
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)

PAGE = """```python
def half(x, *, of=2):
    return x / of
```

% cells run

| there | here |
|---|---|
| `no code of ours` | {call} ({{doc}}`matching`) |
| words | `of=4`, none of it in words |
"""


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("`half(1)`", None),
        ("`half(1, of=4)` or `half(x=2)`", None),
        ("`half(1, to=4)`", "unexpected keyword"),
        ("`third(1)`", "NameError"),
        ("`half(1`", "SyntaxError"),
    ],
)
def test_code_in_tables_runs_where_a_page_says_so(call, told, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(call=call))
    faults = pages.run(page, write=False, exact=False)
    assert len(faults) == (told is not None)
    if told is not None:
        assert "page.md:10" in faults[0]
        assert told in faults[0]
    page.write_text(PAGE.format(call=call).replace("% cells run", ""))
    assert not pages.run(page, write=False, exact=False)


def test_the_sites_list_of_versions_names_this_one():
    listed = json.loads((Path(pages.__file__).parent / "static" / "switcher.json").read_text())
    version = numpyro_symmetry.__version__
    assert ("dev" if "dev" in version else version) in {one["version"] for one in listed}
    assert [one["url"] for one in listed if one.get("preferred")] == ["/stable/"]
    assert all(one["url"].startswith("/") and one["url"].endswith("/") for one in listed)


ROOT = Path(pages.__file__).resolve().parents[1]
PAGES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
PAGES = [page for page in PAGES if not {"_build", "generated"} & set(page.parts)]
CODE = re.compile(r"^(```|~~~).*?^\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?!https?:|mailto:)([^)\s]+)\)")
ROLE = re.compile(r"\{(ref|doc|download)\}`(?:[^`<]*<)?([^`<>]+)>?`")
# a path of the repository, in which * and NAME stand for any, and a name of the package
PATH = re.compile(r"`((?:tests|examples|docs|numpyro_symmetry|\.ci|\.github)/[\w./*-]+)")
NAME = re.compile(r"\b(?:numpyro_symmetry|ns)((?:\.[a-zA-Z]\w*)+)\b(?!\.py|/)")
# as a page writes what stands in a subpackage, but for `symmetry`, which is also what a symmetry is called
OWN = re.compile(
    r"`((?:containers|diagnostics|discovery|entropy|evidence|guides|matching|samplers|testing|traces)\.(?!py\b)\w+)"
)


def prose(page):
    """A page without its blocks of code."""
    return CODE.sub("", page.read_text())


@cache
def anchors(page):
    """What a link may point at within a page: headings, as they are slugged, and labels."""
    text = prose(page)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def missing_in(page):
    """Links, roles, files and names of a page that lead nowhere."""
    text, labels = prose(page), set().union(*map(anchors, PAGES))
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if link not in labels and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link
    for role, target in ROLE.findall(text):
        place = ROOT / "docs" / target[1:] if target.startswith("/") else page.parent / target
        if role == "ref" and target not in labels or role == "doc" and not place.with_suffix(".md").exists():
            yield target
    for path in PATH.findall(text):
        if not any(ROOT.glob(path.rstrip("./").replace("NAME", "*"))):
            yield path
    for name in [*NAME.findall(page.read_text()), *(f".{name}" for name in OWN.findall(text))]:
        try:
            public.named(f"numpyro_symmetry{name}")
        except ImportError:
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_links_to_and_names_is_there(page):
    assert not sorted(missing_in(page))
