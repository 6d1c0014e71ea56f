"""The command ``python -m paper``: recipes, the page, errors in one line, and what it never overwrites."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ecrt.errors import InputError
from paper import __main__ as command
from paper import recipes
from paper.result_files import results_folder
from paper.terminal import experiment_tables

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def made_up_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three recipes by name only: one that works, one that fails, and one that is stopped."""

    def run(name: str, *, smoke: bool, jobs: int, **_: object) -> dict[str, object]:
        if name == "arxiv":
            raise InputError("no data\n  in the folder")
        if name == "mnist":
            raise KeyboardInterrupt
        return {"name": name, "smoke": smoke, "jobs": jobs, "summary": [{"method": "ECRT", "top1": 0.5}]}

    monkeypatch.setattr(recipes, "run", run)


def _main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["paper", *arguments])
    with pytest.raises(SystemExit) as stop:
        command.main()
    return int(stop.value.code or 0)


def test_without_a_name_every_recipe_is_listed() -> None:
    shown = CliRunner().invoke(command.app, [], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert [name for name in (*recipes.RECIPES, "data", "page") if f" {name} " not in shown] == []


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paper", "toy", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "--smoke" in done.stdout


def test_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ECRT_RESULTS", str(tmp_path / "results"))
    assert _main(["toy", "--smoke", "--jobs", "2"], monkeypatch) == 0
    document = json.loads((tmp_path / "results" / "toy.smoke.json").read_text())
    assert (document["smoke"], document["jobs"]) == (True, 2)
    assert "ECRT" in capsys.readouterr().out


def test_an_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(["arxiv", "--output", str(tmp_path / "x.json")], monkeypatch) == 1
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "no data in the folder" in error
    assert not (tmp_path / "x.json").exists()


def test_an_unknown_recipe_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["unheard-of"], monkeypatch) == 2
    assert "unheard-of" in capsys.readouterr().err


def test_debug_shows_the_error_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["paper", "--debug", "arxiv", "--output", str(tmp_path / "x")])
    with pytest.raises(InputError):
        command.main()


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["mnist", "--output", str(tmp_path / "x.json")], monkeypatch) == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_a_trial_run_never_takes_the_place_of_a_full_one(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    file.write_text('{"command": "python -m paper toy"}')
    result = CliRunner().invoke(command.app, ["toy", "--smoke", "--output", str(file)])
    assert result.exit_code == 1
    assert "full run" in result.stderr
    assert file.read_text() == '{"command": "python -m paper toy"}'


def test_results_do_not_depend_on_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECRT_RESULTS", raising=False)
    here = results_folder()
    monkeypatch.chdir(tmp_path)
    assert results_folder() == here
    assert here.is_absolute()


def test_summary_of_an_experiment_fits_the_terminal() -> None:
    entry = {"what": "a method with a long name", "seeds": 3, "top1": 0.5, "top1_half_width": 0.012, "epochs": [1, 2]}
    summary = [
        *[entry | {"nll": 1.0, "seconds": 12.5}] * 4,
        {"what": "B", "top1": 0.4},
        {"what": "gain", "top1_gain": 0.1},
        {"what": "top-1 by epoch", "curves": {"z": [0.1, 0.2]}},
    ]
    wide, gains = experiment_tables("x", summary, width=100)
    assert [str(column.header) for column in wide.columns] == ["what", "top1", "nll", "seeds", "seconds"]
    assert [str(column.header) for column in gains.columns] == ["what", "top1_gain"]
    assert wide.row_count == 5
    assert str(next(iter(wide.columns[1].cells))) == "0.5 ± 0.012"
    narrow = experiment_tables("x", summary, width=48)[0]
    assert [str(column.header) for column in narrow.columns] == ["what", "top1", "nll"]
    assert narrow.caption == "In the file alone: seeds, seconds."
    console = Console(width=48, file=io.StringIO())
    console.print(narrow)
    assert "0.5 ± 0.012" in console.file.getvalue()  # type: ignore[attr-defined]
