"""Sphinx configuration, and the page of examples, which is put together from `examples/*.py` at every build."""

import ast
from pathlib import Path

import numpyro_symmetry

DOCS = Path(__file__).parent

project = "numpyro_symmetry"
author = "the numpyro_symmetry authors"
copyright = author
release = version = numpyro_symmetry.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "none"
exclude_patterns = ["_build", "generated/examples.md"]
html_theme = "furo"
html_title = f"numpyro_symmetry {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
# the first example to read comes first
FIRST = ("quickstart", "label_switching", "rebase_hmc_bnn")


def write_examples(app: object) -> None:
    """Title, docstring, figure, recorded output and code of every example, for `examples.md` to include."""
    scripts = {path.stem: path for path in sorted((DOCS.parent / "examples").glob("*.py"))}
    order = [name for name in FIRST if name in scripts] + [name for name in scripts if name not in FIRST]
    page = DOCS / "generated" / "examples.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join(section(scripts[name]) for name in order))


def section(script: Path) -> str:
    """One example in Markdown."""
    about, command, *rest = (ast.get_docstring(ast.parse(script.read_text())) or script.stem).split("\n\n")
    parts = [f"## {script.stem}", about, f"```sh\n{command.strip()}\n```", *rest]
    figure, output = DOCS / "images" / f"{script.stem}.png", DOCS / "outputs" / f"{script.stem}.txt"
    if figure.exists():
        parts.append(f"![Figure of {script.name}: {about.rstrip('.')}](images/{figure.name})")
    if output.exists():
        parts.append(fold("What it prints", f"```text\n{output.read_text().rstrip()}\n```"))
    code = f"```{{literalinclude}} ../examples/{script.name}\n:language: python\n```"
    parts.append(fold(f"The code, `examples/{script.name}`".replace("`", ""), code))
    return "\n\n".join(parts) + "\n"


def fold(summary: str, content: str) -> str:
    """Markdown behind a line to click on."""
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_examples)  # pyright: ignore[reportAttributeAccessIssue]
