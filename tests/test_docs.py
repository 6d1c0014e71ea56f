"""The documentation: its code runs, its outputs are true, its links lead somewhere, its names exist."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ecrt
from ecrt.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WRITTEN = [page for page in PAGES if page.name != "cli.md"]  # by hand; typer writes the command reference
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name != "mlflow_model.py"]  # test_export


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up there
    spec.loader.exec_module(module)
    return module


RUN = load_script(DOCS / "run_pages.py")
BLOCK = RUN.BLOCK


def page_ids(path):
    return path.name


# --- the command reference ---------------------------------------------------------------------------------------


def test_command_reference_says_what_the_parser_says():
    wanted = re.search(r"^typer==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    if version("typer") != wanted[1]:
        pytest.skip(
            f"typer {version('typer')} writes other pages than typer {wanted[1]}, which docs/cli.md is made with"
        )
    words = ["ecrt.cli", "utils", "docs", "--name", "ecrt", "--title", "The command ecrt"]
    typer = subprocess.run([sys.executable, "-m", "typer", *words], capture_output=True, text=True, check=True)
    assert (DOCS / "cli.md").read_text(encoding="utf-8").strip() == typer.stdout.strip(), "run: make docs"


def test_command_reference_has_every_command_and_option():
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for command in (
        "demo",
        "fit",
        "predict",
        "evaluate",
        "inspect",
        "compare",
        "diagnose",
        "embed",
        "export",
    ):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
        section = text.partition(f"## `ecrt {command}`")[2].partition("\n## ")[0]
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown))
        assert options
        assert {name for name in options if not re.search(rf"{name}[ `]", section)} == set()


# --- the code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [ROOT / "README.md", *WRITTEN], ids=page_ids)
def test_code_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "README.md":
        RUN.write_files_of_readme()
    for output in RUN.outputs(page):
        assert RUN.same_output(output.found, output.said), (
            f"{page.name}, line {output.line}; after a look run: python docs/run_pages.py {page.stem}\n{output.found}"
        )


def test_outputs_are_compared_by_lines_words_and_numbers():
    assert RUN.same_output("a 0.51\nb", "a  0.50\nb\n")
    assert not RUN.same_output("a 0.51", "b 0.51")
    assert not RUN.same_output("a 0.51", "a 0.61")
    assert not RUN.same_output("a\nb", "a b")
    assert not RUN.same_output("a\nb", "a")
    assert RUN.same_output("a\nb\nc", "a\n...\nc")
    assert not RUN.same_output("a\nb\nc", "a\n...\nd")


def test_commands_are_not_hidden_in_indented_blocks():
    """Only blocks between fences are run, so no command may stand in an indented one."""
    text = "\n".join(BLOCK.sub("", page.read_text(encoding="utf-8")) for page in [ROOT / "README.md", *WRITTEN])
    assert re.findall(r"^    (?:\$ )?ecrt .*$", text, re.MULTILINE) == []


def test_no_block_is_left_untested():
    kinds = {block["kind"] for page in PAGES for block in BLOCK.finditer(page.read_text(encoding="utf-8"))}
    assert kinds <= {"python", "console", "text", "yaml", "{toctree}", "{eval-rst}"}


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.name == "compare.py"), id=path.name) for path in EXAMPLES],
)
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    if script.name == "fabric_loop.py":
        pytest.importorskip(
            "lightning_fabric", reason="lightning-fabric is not installed: the extra distributed has it"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    assert list(tmp_path.iterdir()) == []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            command, _, said = block["text"].partition("\n")
            if command == f"$ python examples/{script.name}":
                assert RUN.same_output(printed, said), (page.name, printed)


# --- links and names ---------------------------------------------------------------------------------------------


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, *sorted(DOCS.glob("gallery/*.md")), ROOT / "README.md"], ids=page_ids)
def test_relative_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            prose = re.sub(BLOCK, "", target.read_text(encoding="utf-8"))
            assert anchor in {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}, link


def named(pattern):
    return sorted(set(re.findall(pattern, (DOCS / "how-it-works.md").read_text(encoding="utf-8"))))


def test_functions_named_with_their_files_exist():
    found = named(r"`(src/[\w/]+\.py)::([\w.]+)`")
    assert found
    for path, name in found:
        assert (ROOT / path).is_file(), path
        thing = importlib.import_module(path.removeprefix("src/").removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            thing = getattr(thing, part)


def test_dotted_names_can_be_imported():
    found = named(r"`(ecrt(?:\.\w+)+)")
    assert found
    for name in found:
        thing, parts = importlib.import_module("ecrt"), name.split(".")[1:]
        for place, part in enumerate(parts):
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join(["ecrt", *parts[: place + 1]]))
            thing = getattr(thing, part)


METHOD_OPTIONS = {"shrinkage"}
"""Options of single methods of ``BaselineClassifier``; another test compares them with the table of methods."""


def test_options_named_in_the_guide_exist():
    from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor

    text = BLOCK.sub("", "\n".join(page.read_text(encoding="utf-8") for page in WRITTEN))
    mentioned = set(re.findall(r"`(\w+)=[^`]*`", text))
    assert len(mentioned) > 10
    estimators = (ECRTClassifier, ECRTRegressor, BaselineClassifier)
    parts = {part for kind in estimators for role in kind._roles.values() for part in role.classes}
    known = set().union(*(kind().get_params() for kind in (*estimators, *parts)))
    assert mentioned - known - METHOD_OPTIONS <= {"space"}


def test_error_messages_in_the_guide_are_those_of_the_code():
    table = (DOCS / "user-guide.md").read_text(encoding="utf-8").partition("## Errors and warnings")[2]
    messages = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(messages) > 10
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert [message for message in messages if message not in code] == []


# --- figures -----------------------------------------------------------------------------------------------------


def test_ratio_to_plain_training_is_that_of_the_benchmark():
    text = (DOCS / "when-not-to-use-it.md").read_text(encoding="utf-8")
    bench = json.loads((ROOT / "results" / "bench_default.json").read_text(encoding="utf-8"))
    ratios = [table["ratio"] for table in bench["tables"]]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times" in text


def test_the_api_reference_has_every_public_name():
    named = re.findall(r"^\.\. auto\w+:: (\w+)$", (DOCS / "api.md").read_text(), re.M)
    assert sorted(named) == sorted({*ecrt.__all__, "FitConfig"} - {"__version__"})


def test_every_page_is_in_the_contents():
    contents = re.findall(r"^(?:.* <)?([\w-]+)>?$", (DOCS / "index.md").read_text(), re.M)
    assert [page.stem for page in PAGES if page.stem not in (*contents, "index")] == []


def test_the_lines_for_mlflow_are_those_of_the_example():
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    example = (ROOT / "examples" / "mlflow_model.py").read_text(encoding="utf-8").splitlines()
    (block,) = (block["text"] for block in BLOCK.finditer(page) if "PythonModel" in block["text"])
    lines = [line for line in block.splitlines() if line]
    assert [line for line in lines if line not in example] == []
    assert len(lines) <= 10
