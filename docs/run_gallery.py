"""Run the scripts of ``examples/gallery`` and write their pages and pictures into ``docs/gallery``: ``make gallery``.

``python docs/run_gallery.py fraud`` does so for one. A page is the docstring of its script, the picture that it saves,
what it prints, and its code. A script that ends with a message, since its data are not there, keeps the page it has.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import runpy
import sys
import tempfile
from pathlib import Path

from PIL import Image

os.environ.setdefault("MPLBACKEND", "agg")
DOCS = Path(__file__).parent
PAGES = DOCS / "gallery"
SCRIPTS = sorted((DOCS.parent / "examples" / "gallery").glob("*.py"))


def run(script: Path, folder: Path) -> tuple[str, bool]:
    """What a script prints, or why it does not run here, and whether it has run; its picture goes into the folder."""
    printed = io.StringIO()
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return f"{end.code}\n", False
    except Exception as error:
        raise RuntimeError(f"{script.name}: {error!r}") from error
    return printed.getvalue(), True


def page(script: Path, printed: str, picture: Path) -> str:
    """The page of a script; the picture carries its own description."""
    source = script.read_text(encoding="utf-8")
    title, _, about = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    code = source.split('"""\n', 1)[1].strip()
    with Image.open(picture) as opened:
        described = opened.info["Description"]
    where = f"[`examples/gallery/{script.name}`](../../examples/gallery/{script.name}) prints:"
    return (
        f"# {title}\n\n{about}\n\n![{described}]({picture.name})\n\n{where}\n\n"
        f"```text\n{printed.rstrip()}\n```\n\n```python\n{code}\n```\n"
    )


if __name__ == "__main__":
    for script in SCRIPTS:
        if sys.argv[1:] and script.stem not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            text, ran = run(script, Path(folder))
            print(f"{script.name}\n{text}")
            if ran:
                picture = PAGES / f"{script.stem}.png"
                PAGES.mkdir(exist_ok=True)
                picture.write_bytes((Path(folder) / picture.name).read_bytes())
                (PAGES / f"{script.stem}.md").write_text(page(script, text, picture), encoding="utf-8")
