"""How Sphinx builds the documentation: ``make docs``."""

from __future__ import annotations

from importlib import metadata

project = "ecrt"
author = "The ecrt authors"
release = metadata.version("ecrt")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["*.py"]
html_theme = "furo"
html_title = "ecrt"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository; a test follows them

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "exclude-members": "set_fit_request, set_inverse_transform_request, set_score_request",
}
autodoc_typehints = "none"
numpydoc_show_class_members = False
