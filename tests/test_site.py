"""The documentation site: it is built without a warning, its links lead somewhere, and its gallery says what runs."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import ecrt
from test_docs import load_script

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RUN = load_script(DOCS / "run_pages.py")
GALLERY = load_script(DOCS / "run_gallery.py")
LINKS = load_script(DOCS / "check_links.py")
MOST_BYTES = 60_000

# --- the gallery -------------------------------------------------------------------------------------------------


def parts_of(script):
    """The page of a script, what it says is printed, and the picture."""
    text = (DOCS / "gallery" / f"{script.stem}.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return text, said, DOCS / "gallery" / f"{script.stem}.png"


@pytest.mark.slow
@pytest.mark.parametrize("script", GALLERY.SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_prints_what_its_page_says(script, tmp_path):
    found, ran = GALLERY.run(script, tmp_path)
    if not ran:
        pytest.skip(found.strip())
    assert RUN.same_output(found, parts_of(script)[1]), f"after a look run: make gallery\n{found}"
    assert [path.name for path in tmp_path.iterdir()] == [f"{script.stem}.png"]
    assert (tmp_path / f"{script.stem}.png").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("script", GALLERY.SCRIPTS, ids=lambda path: path.stem)
def test_a_page_of_the_gallery_shows_its_script_and_a_small_picture(script):
    text, said, picture = parts_of(script)
    assert text == GALLERY.page(script, said, picture), "run: make gallery"
    assert picture.stat().st_size < MOST_BYTES
    with Image.open(picture) as opened:
        assert opened.width > 500


def test_the_gallery_has_every_script_and_nothing_else():
    names = [script.stem for script in GALLERY.SCRIPTS]
    assert len(names) == 8
    overview = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^:link: gallery/(\w+)$", overview, re.M)) == names
    assert sorted(re.findall(r"^gallery/(\w+)$", overview, re.M)) == names
    assert sorted(path.stem for path in (DOCS / "gallery").glob("*.md")) == names
    for script in GALLERY.SCRIPTS:
        title = parts_of(script)[0].splitlines()[0].removeprefix("# ")
        assert f"{{grid-item-card}} {title}\n" in overview


def test_a_script_without_its_data_says_so_and_one_that_fails_is_not_excused(tmp_path):
    absent, wrong = tmp_path / "absent.py", tmp_path / "wrong.py"
    absent.write_text("import sys\nsys.exit('Set ECRT_DATA.')\n", encoding="utf-8")
    wrong.write_text("1 / 0\n", encoding="utf-8")
    assert GALLERY.run(absent, tmp_path) == ("Set ECRT_DATA.\n", False)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        GALLERY.run(wrong, tmp_path)


# --- the API reference -------------------------------------------------------------------------------------------


def test_the_modules_have_every_public_name():
    text = (DOCS / "api-modules.md").read_text(encoding="utf-8")
    whole = set(re.findall(r"^\.\. automodule:: ecrt\.(\w+)$", text, re.M))
    assert whole == {"augmentation", "comparison", "data", "diagnostics", "embedding", "flows", "losses", "metrics",
                     "nn", "report", "runs"}  # fmt: skip
    from ecrt.rivals import known_rivals

    listed = re.findall(r"^\.\. autoclass:: (\w+)$", text, re.M)
    assert sorted(listed) == sorted({"Rival"} | {rival.__name__ for rival in known_rivals().values()})
    for room in whole:  # what has no docstring is left out by autodoc, in silence
        module = importlib.import_module(f"ecrt.{room}")
        for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            thing = getattr(module, name)
            if inspect.isroutine(thing) or inspect.isclass(thing):
                assert not getattr(thing, "__module__", "").startswith("ecrt") or thing.__doc__, f"{room}.{name}"


# --- the pages that are built ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_its_links_lead_somewhere(tmp_path):
    for name in ("furo", "myst_parser", "numpydoc", "sphinx", "sphinx_copybutton", "sphinx_design"):
        pytest.importorskip(name, reason=f"{name} is not installed: the extra docs has it")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, tmp_path / "site"]
    built = subprocess.run([*words, "-d", tmp_path / "doctrees"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert LINKS.broken_links(tmp_path / "site") == []
    pages = list((tmp_path / "site").rglob("*.html"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for name in set(ecrt.__all__) - {"__version__"}:
        assert f'id="ecrt.{name}"' in text
    assert re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="(?:https?:)?//[^"]*"', text) == [], (
        "nothing from elsewhere"
    )
    (tmp_path / "site" / "tour.html").unlink()
    assert any("tour.html" in link for link in LINKS.broken_links(tmp_path / "site"))


def test_a_missing_anchor_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a><a href="b.html#there">x</a>', encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="here">x</p>', encoding="utf-8")
    assert LINKS.broken_links(tmp_path) == ["a.html: b.html#there"]
