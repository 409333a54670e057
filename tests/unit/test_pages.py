"""What runs the code of pages: a table's code too, where the page says that it runs."""

import importlib.util
import json
from pathlib import Path

import pytest

import numpyro_symmetry

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
