"""Sphinx configuration."""

import numpyro_symmetry

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
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"numpyro_symmetry {version}"
