"""Sphinx configuration; at every build the page of examples is put together from `examples/*.py`, notebooks from tutorials."""

import ast
import sys
import tomllib
from pathlib import Path

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import numpyro_symmetry

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import make_inventories  # noqa: E402
import notebooks  # noqa: E402

project = "numpyro_symmetry"
author = "the numpyro_symmetry authors"
copyright = author
release = version = numpyro_symmetry.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "notfound.extension",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
# what search engines and previews of links show
about = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["description"]
myst_html_meta = {"description": about, "property=og:title": project, "property=og:description": about}
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints, autodoc_typehints_format = "signature", "short"
autodoc_type_aliases = {"Element": "Element", "ArrayLike": "ArrayLike"}
python_maximum_signature_line_length = 88
# where other projects document what we refer to: kept here, so that a build asks no network
intersphinx_mapping = {
    project: (site.url, f"inventories/{project}.inv") for project, site in make_inventories.SITES.items()
}
# a name in single backticks is a link wherever it can be one
default_role = "py:obj"
templates_path = ["templates"]
exclude_patterns = ["_build", "generated/examples.md"]
html_theme = "sphinx_book_theme"
html_title = f"numpyro_symmetry {version}"
html_logo = html_favicon = "static/logo.svg"
html_theme_options = {
    "logo": {"text": "numpyro_symmetry", "alt_text": "numpyro_symmetry: three strands that change places"},
    "use_download_button": False,
    "show_toc_level": 2,
    # every name of the API has a page, of which the API's own page is the list
    "max_navbar_depth": 1,
    "navbar_persistent": [],
    # a path within the site, so that it works without a network; the theme would look for it among the sources
    "switcher": {"json_url": "_static/switcher.json", "version_match": "dev" if "dev" in version else version},
    "check_switcher": False,
}
# what the theme has there, and the versions
html_sidebars = {
    "**": ["navbar-logo.html", "version-switcher.html", "search-button-field.html", "sbt-sidebar-nav.html"]
}
html_static_path = ["static"]
# a host answers with one such page whatever the address, so that its links cannot be relative
notfound_urls_prefix = "/stable/"
# prompts and what is printed are not copied
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
html_css_files = ["site.css"]
NOTEBOOKS = DOCS / "generated" / "notebooks"
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


def write_notebooks(app: object) -> None:
    """Tutorials as notebooks, for their pages to offer."""
    notebooks.write_all(NOTEBOOKS)


def offer_notebook(app: object, page: str, source: list[str]) -> None:
    """A line under the title of a tutorial."""
    if page.startswith("tutorials/"):
        title, rest = source[0].split("\n", 1)
        path = f"/{NOTEBOOKS.relative_to(DOCS)}/{Path(page).name}.ipynb"
        source[0] = f"{title}\n\n{{download}}`Download as a notebook <{path}>`\n{rest}"


def link_own_name(app: Sphinx, env: BuildEnvironment, node: Element, content: Element) -> Element | None:
    """A name of the package's top level as subpackages write it, without the package's."""
    if node.get("refdomain") != "py":
        return None
    target = f"numpyro_symmetry.{node['reftarget']}"
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, node["reftype"], target, node, content)


def skip_tuples_own(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """What a named tuple has of every tuple; its fields stand in the docstring, with what they are."""
    is_field = (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")
    return True if is_field or getattr(obj, "__objclass__", None) is tuple else None


def without_factories(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """The signature of a dataclass, whose dicts begin empty: Sphinx cannot read ``<factory>``."""
    return signature and signature.replace("<factory>", "{}"), returned


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", without_factories)
    app.connect("autodoc-skip-member", skip_tuples_own)
    app.connect("missing-reference", link_own_name)
    app.connect("builder-inited", write_examples)
    app.connect("builder-inited", write_notebooks)
    app.connect("source-read", offer_notebook)
