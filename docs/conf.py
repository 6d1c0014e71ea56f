"""How Sphinx builds the documentation: ``make docs``.

A link to a file of the repository leads to the address in the variable ``ECRT_REPOSITORY``, such as that of a branch on
a forge; without one, it is plain text. The name of a function with its file, as on the page How it works, is a link to
the API reference.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

DOCS = Path(__file__).resolve().parent
REPOSITORY = os.environ.get("ECRT_REPOSITORY", "").rstrip("/")

project = "ecrt"
author = "The ecrt authors"
copyright = author
release = metadata.version("ecrt")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["*.py"]
html_theme = "furo"
html_title = "ecrt"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_math_renderer = "mathml"
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
numpydoc_show_class_members = False


def repository_links(app: Sphinx, doctree: nodes.document) -> None:
    """Links to files outside docs/; examples can be downloaded from the site itself."""
    for node in list(doctree.findall(lambda node: node.get("reftype") == "myst" if hasattr(node, "get") else False)):
        name, _, anchor = node["reftarget"].partition("#")
        path = (DOCS / app.env.docname).parent.joinpath(name).resolve()
        path = path if path.exists() else path.with_suffix(".md")  # a page is named without
        if not name or path.is_relative_to(DOCS) or not path.exists():
            continue
        if REPOSITORY:
            address = f"{REPOSITORY}/{path.relative_to(DOCS.parent)}" + f"#{anchor}" * bool(anchor)
            node.replace_self(nodes.reference("", "", *node.children, refuri=address))
        elif not isinstance(node, addnodes.download_reference):
            node.replace_self(node.children)


def function_links(app: Sphinx, doctree: nodes.document) -> None:
    """A function named with its file leads to its description, where the API reference has one."""
    for node in list(doctree.findall(nodes.literal)):
        found = re.fullmatch(r"src/(ecrt/[\w/]+)\.py::([\w.]+)", node.astext())
        if found and not isinstance(node.parent, addnodes.pending_xref):
            target = f"{found[1].replace('/', '.')}.{found[2]}"
            link = addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=target, refdoc=app.env.docname)
            node.replace_self(link)
            link += node


def without_routing(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Methods of scikit-learn's metadata routing, which are the same everywhere, are left out."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def draw_math(page: HTML5Translator, node: nodes.Element) -> None:
    """Formulas as MathML, which browsers draw by themselves: the site fetches nothing from elsewhere."""
    formula = str(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    page.body.append(f'<div class="math">{formula}</div>' if isinstance(node, nodes.math_block) else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", inline_renderers=(draw_math, None), block_renderers=(draw_math, None))
    app.connect("autodoc-skip-member", without_routing)
    app.connect("doctree-read", repository_links)
    app.connect("doctree-read", function_links)
