"""The demonstration: a comparison on built-in data, its picture, and the command; and what every command shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ecrt
from ecrt import cli
from ecrt.comparison import METHODS
from ecrt.disk import read_json
from ecrt.report import summary_table, toy_png
from ecrt.runs import demo as demo_module
from ecrt.runs.demo import toy_points
from pages import Outline

SHIPPED_METHODS = demo_module.METHODS
SMALL = {"METHODS": ("weighted-logistic", "lda"), "TOY_ROWS": 80, "RARE_TOY_ROWS": 20, "POINTS": 40, "EPOCHS": 3}


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Two quick methods instead of five, and a smaller toy."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(demo_module, name, value)
        yield


@pytest.fixture(scope="module")
def toy(small: None) -> dict[str, Any]:
    return toy_points()


@pytest.fixture(scope="module")
def output(small: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the command writes, and what it prints."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    done = CliRunner().invoke(cli.app, ["demo", "--output", str(folder), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    return folder, done.output


def _main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["ecrt", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_ecrt_is_compared_with_its_baselines() -> None:
    assert {"ecrt", "erm", "logit-adjusted"} <= set(SHIPPED_METHODS) <= set(METHODS)


def test_the_table_has_rare_digits(output: tuple[Path, str]) -> None:
    found = read_json(output[0] / "results.json")
    counts = dict(zip(found["data"]["classes"], found["data"]["counts"], strict=True))
    assert [counts[str(digit)] for digit in range(5, 10)] == [30] * 5
    assert min(counts[str(digit)] for digit in range(5)) > 170
    assert found["settings"]["seeds"] == 5
    assert found["warnings"] == []


def test_the_picture_holds_what_it_claims(toy: dict[str, Any]) -> None:
    assert toy["z"].shape == toy["s"].shape == (7 * 40, 2)
    assert toy["train"].shape == (20, 2)
    assert toy["synthetic"].shape == (40, 2)
    assert not np.isin(toy["synthetic"].round(9), toy["train"].round(9)).any()  # drawn, not copied
    picture = toy_png(**toy)
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000


def test_the_command_prints_a_table_and_writes_page_and_picture(output: tuple[Path, str], toy: dict[str, Any]) -> None:
    folder, printed = output
    for words in ("Weighted logistic regression", "Shrinkage LDA", "±", "Balanced accuracy under the balanced prior"):
        assert words in printed
    assert str(folder / "report.html") in printed
    page = Outline((folder / "report.html").read_text(encoding="utf-8"))
    assert "Handwritten digits, 5 to 9 rare" in page.text
    assert all(load.startswith(("#", "data:")) for load in page.loads)
    assert (folder / "sources.png").read_bytes() == toy_png(**toy)


def test_the_same_command_goes_on_where_it_stopped(output: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, printed = output
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("run.json")}
    assert len(before) == 10
    monkeypatch.setattr(demo_module, "toy_points", lambda: pytest.fail("drawn again"))
    again = CliRunner().invoke(cli.app, ["demo", "--output", str(folder), "--jobs", "1"])
    assert again.exit_code == 0, again.output
    assert again.output.endswith(printed[printed.index("Handwritten") :])
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("run.json")} == before


@pytest.mark.parametrize("taken", ["file", "folder with other files"])
def test_output_that_is_taken_is_refused_before_the_run(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "taken"
    if taken != "file":
        output.mkdir()
    (output if taken == "file" else output / "mine.txt").write_text("mine")
    monkeypatch.setattr("ecrt.comparison.protocol._run_all", lambda *_: pytest.fail("ran"))
    assert _main(["demo", "--output", str(output)], monkeypatch) == 1
    error = capsys.readouterr().err
    assert error.strip().count("\n") == 0
    assert "taken" in error


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["--version"], monkeypatch) == 0
    assert capsys.readouterr().out == f"ecrt {ecrt.__version__}\n"


def test_summary_table_takes_any_rows() -> None:
    table = summary_table("x", [{"method": "A", "top1": 0.123456}, {"method": "B", "note": None}])
    assert [str(column.header) for column in table.columns] == ["method", "top1", "note"]
    assert table.row_count == 2
    wide = summary_table("x", [{"what": "A"} | {f"measure {i}": float(i) for i in range(9)}, {"what": "B"}])
    assert [str(column.header) for column in wide.columns] == ["what", "A", "B"]
    assert wide.row_count == 9
