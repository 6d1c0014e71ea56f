"""The documentation site: it is built without a warning, its links lead somewhere, and its gallery says what runs."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
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


# --- README ------------------------------------------------------------------------------------------------------


def test_readme_is_short_and_in_the_order_in_which_visitors_read():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    order = ["# ecrt\n", "\n## Install\n", "make demo", "make test", "\n```python\n", "\n```text\n", "\n![",
             "\n| --- |", "\n## Documentation\n"]  # fmt: skip
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)
    assert text.count("\n| --- |") == 1
    code = text.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line]) == 6


# --- the API reference -------------------------------------------------------------------------------------------


def test_the_modules_have_every_public_name():
    text = (DOCS / "api-modules.md").read_text(encoding="utf-8")
    whole = set(re.findall(r"^\.\. automodule:: ecrt\.(\w+)$", text, re.M))
    assert whole == {"augmentation", "comparison", "data", "diagnostics", "embedding", "flows", "losses", "metrics",
                     "nn", "report", "runs"}  # fmt: skip
    from ecrt.rivals import known_rivals

    listed = re.findall(r"^\.\. autoclass:: (\w+)$", text, re.M)
    assert sorted(listed) == sorted(
        {"Rival"} | {rival.__name__ for rival in known_rivals().values() if rival.__module__.startswith("ecrt.")}
    )
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


# --- workflows of a forge ----------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_is_there(path):
    text = path.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert all({"runs-on", "timeout-minutes", "steps"} <= set(job) for job in jobs.values())
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert [word for word in re.findall(r"\bmake ([a-z-]+)", text) if word not in targets] == []
    for used in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), f"{used} may change under our feet"
    assert re.findall(r"https?://|pypi\.org|pytorch\.org", text) == []
    if "make " in text:  # which installs torch
        assert "PIP_EXTRA_INDEX_URL: ${{ vars.TORCH_INDEX }}" in text


def test_the_workflows_test_every_python_and_publish_without_a_token():
    tests, docs, release = (
        yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))["jobs"]
        for name in ("tests", "docs", "release")
    )
    assert tests["tests"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {"check", "floor", "wheel"} <= set(tests)
    assert docs["publish"]["needs"] == release["publish"]["needs"] == "build"
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_an_issue_template_has_what_a_forge_asks_for(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"]
    assert form["description"]
    for field in form["body"]:
        assert field["type"] in {"textarea", "input", "dropdown", "checkboxes", "markdown"}
        assert field["attributes"]["label"]
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
