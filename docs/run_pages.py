"""Run the code on the pages of the documentation and write what it prints into them.

``python docs/run_pages.py`` does so for every page, ``python docs/run_pages.py tour`` for one. The tests use the
same functions and compare instead of writing.

A block of text right after a block of Python is what that Python prints. In a console block, lines after ``$ command``
are what the command prints; a line ``...`` stands for any number of lines; a command with nothing after it is only run.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if page.name != "cli.md")]
BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
SET_UP = ("make", "python3", "python", ".venv/bin/python", "pip", "source")
"""Programs whose lines are not run here: they install, or run examples that have a test of their own."""
LONG = {"make demo": "ecrt demo"}
"""Commands that take minutes: run when pages are written, but not in the tests."""
QUICK = {
    "fit": ["--set", "model.demixing=linear", "--set", "model.head=linear"],
    "compare": ["--methods", "lda,weighted-logistic", "--seeds", "2", "--trials", "1", "--jobs", "1"],
    "diagnose": ["--trials", "6"],
}
"""Added to commands whose output is not shown, to be done quickly."""


@dataclass(frozen=True)
class Output:
    """What a page says that code prints, and what it prints; start and end are places in the page."""

    line: int
    start: int
    end: int
    said: str
    found: str


def outputs(page: Path, *, long: bool = False) -> Iterator[Output]:
    """Run all code of a page, in the working folder, and give every output that the page shows.

    Commands that take minutes are run only if ``long``.
    """
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block, following in zip_longest(blocks, blocks[1:]):
        place = text[: block.start()].count("\n") + 1
        if block["kind"] == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block["text"], f"{page.name}, line {place}", "exec"), namespace)
            next_is_output = following is not None and following["kind"] == "text"
            if next_is_output and not text[block.end() : following.start()].strip():
                yield Output(place, *following.span("text"), following["text"], printed.getvalue())
        elif block["kind"] == "console":
            for command in re.finditer(r"^\$ (?P<words>.*)\n(?P<said>(?:(?!\$ ).*\n)*)", block["text"], re.MULTILINE):
                line = LONG.get(command["words"], command["words"]) if long else command["words"]
                found = run_command(line, shown=bool(command["said"]))
                if command["said"] and found is not None:
                    start, end = (block.start("text") + place for place in command.span("said"))
                    yield Output(place, start, end, command["said"], found)
        elif block["kind"] == "yaml":
            Path("settings.yaml").write_text(block["text"], encoding="utf-8")


def run_command(line: str, *, shown: bool) -> str | None:
    """What a command prints; ``None`` for programs that are not run here."""
    from typer.testing import CliRunner

    from ecrt.cli import app

    words = shlex.split(line, comments=True)
    if words[0] in SET_UP:
        return None
    if words[0] != "ecrt":
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    arguments = words[1:] + ([] if shown or "--method" in words else QUICK.get(words[1], []))
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "110", "NO_COLOR": "1"})
    if result.exit_code != 0:
        raise RuntimeError(f"{line}\n{result.output}")
    return "".join(line for line in result.output.splitlines(keepends=True) if "━━" not in line)  # no progress bars


def same_output(found: str, said: str) -> bool:
    """Whether two outputs have the same lines, but for the last digits of numbers, which differ between machines."""
    lines = [[entry.rstrip() for entry in text.strip("\n").split("\n")] for text in (found, said)]
    return _same_lines(*lines)


def _same_lines(found: list[str], said: list[str]) -> bool:
    if not said:
        return not found
    if said[0].strip() == "...":
        return any(_same_lines(found[skipped:], said[1:]) for skipped in range(len(found) + 1))
    return bool(found) and _same_line(found[0], said[0]) and _same_lines(found[1:], said[1:])


def _same_line(found: str, said: str) -> bool:
    words = [" ".join(NUMBER.sub("#", line).replace(" ]", "]").split()) for line in (found, said)]
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (found, said)]
    return words[0] == words[1] and all(
        math.isclose(one, other, rel_tol=0.05, abs_tol=0.03) for one, other in zip(*numbers, strict=True)
    )


def write_files_of_readme() -> None:
    """The files that README's commands name: customers, of whom a few have left."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 240
    churned = np.where(rng.random(n) < 0.15, "yes", "no")
    table = pd.DataFrame({
        "customer": [f"C{number:04d}" for number in range(n)],
        "age": rng.integers(18, 80, n),
        "balance": (rng.normal(1000, 300, n) - 400 * (churned == "yes")).round(2),
        "plan": rng.choice(["basic", "family", "business"], n),
        "churned": churned,
    })  # fmt: skip
    table.to_csv("customers.csv", index=False)
    table.tail(40).to_csv("labelled.csv", index=False)
    table.tail(40).drop(columns="churned").to_csv("new.csv", index=False)


def refresh(page: Path) -> None:
    """Write what the code of a page prints into the page."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if page.name == "README.md":
            write_files_of_readme()
        shown = list(outputs(page, long=True))
    for output in reversed(shown):
        if "\n..." in "\n" + output.said:
            if same_output(output.found, output.said):
                continue
            print(
                f"{page.name}, line {output.line}: an excerpt is to be mended by hand. It prints now:\n{output.found}"
            )
            continue
        found = "".join(line.rstrip() + "\n" for line in output.found.strip("\n").split("\n"))
        blank = "\n" if output.said.endswith("\n\n") else ""
        text = text[: output.start] + found + blank + text[output.end :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "110"
    wanted = sys.argv[1:]
    for path in PAGES:
        if not wanted or path.stem in wanted:
            print(path.relative_to(ROOT))
            refresh(path)
