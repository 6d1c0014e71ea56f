"""The demonstration end to end on tiny sizes, its page, and the command."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ecrt
from ecrt import cli
from ecrt.errors import InputError
from ecrt.experiments import demo as demo_module
from ecrt.experiments.demo import METHODS, DemoConfig, run_demo
from ecrt.experiments.demo_results import DataResult, DemoResult, FitResult, read_demo, write_demo
from ecrt.experiments.summary import METRICS, Estimate, best_methods, t_interval, verdict
from ecrt.report import (
    render_demo,
    rich_table,
    summarise,
    summarise_demo,
    summary_table,
    write_report,
)
from ecrt.report.tables import markdown_table
from pages import Outline

ACCURACY, NLL = METRICS[:2]
FAST = {"demixing": "linear", "head": "linear"}
TINY = DemoConfig(
    digits_seeds=2, toy_seeds=1, toy_minority=20, toy_majority=80, toy_test=60, digits_options=FAST, toy_options=FAST
)


class Steps:
    def __init__(self) -> None:
        self.total, self.notes, self.finished = 0, [], False

    def start(self, stage: str, total: int) -> None:
        self.total = total

    def advance(self, note: str = "") -> None:
        self.notes.append(note)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture(scope="module")
def steps() -> Steps:
    return Steps()


@pytest.fixture(scope="module")
def result(steps: Steps) -> DemoResult:
    return run_demo(seed=3, config=TINY, jobs=1, progress=steps)


@pytest.fixture(scope="module")
def page(result: DemoResult) -> str:
    return render_demo(summarise_demo(result))


# --- means, intervals and sentences -------------------------------------------------------------------------------


def test_t_interval_matches_its_formula() -> None:
    found = t_interval([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.half_width == pytest.approx(4.302653 * np.std([1, 2, 4], ddof=1) / np.sqrt(3), rel=1e-6)
    assert t_interval([0.5]) == Estimate(0.5, None, 1)


def test_verdict_names_the_winner_whichever_it_is() -> None:
    numbers = {"ERM": [0.5, 0.6, 0.55], "ECRT": [0.8, 0.9, 0.86]}
    assert verdict(numbers, ACCURACY, "ECRT").startswith("Accuracy: ECRT is best with 0.853, ahead of ERM by")
    assert verdict(numbers, ACCURACY, "ECRT").endswith("beyond noise.")
    assert "ERM is best" in verdict(numbers, NLL, "ECRT")  # the lower one, for a loss
    assert "ECRT loses" in verdict(numbers, NLL, "ECRT")


def test_verdict_admits_noise() -> None:
    assert verdict({"A": [0.5, 0.9], "B": [0.6, 0.7]}, ACCURACY, "A").endswith("within noise.")
    assert "one seed" in verdict({"A": [0.5], "B": [0.6]}, ACCURACY, "A")
    assert verdict({"A": [0.5, 0.6], "B": [0.5, 0.6]}, ACCURACY, "A") == "Accuracy: A and B are level at 0.550."


def test_verdict_goes_on_to_the_best_baseline() -> None:
    numbers = {"ERM": [0.5, 0.6, 0.55], "A-": [0.9, 0.9, 0.91], "A": [0.8, 0.9, 0.86]}
    said = verdict(numbers, ACCURACY, "A", variants=["A-"])
    assert said.startswith("Accuracy: A- is best with 0.903; A loses to it by 0.050")
    assert " The best baseline, ERM, is behind A by 0.303" in said
    assert "baseline" not in verdict(numbers, ACCURACY, "A")


def test_best_methods_share_a_tie_in_the_digits_shown() -> None:
    means = {"A": 0.8001, "B": 0.8004, "C": 0.7}
    assert best_methods(means, ACCURACY) == ["A", "B"]
    assert best_methods(means, NLL) == ["C"]


# --- the run ------------------------------------------------------------------------------------------------------


def test_run_fits_every_method_on_every_seed(result: DemoResult) -> None:
    digits, toy = result.data
    assert [data.methods for data in result.data] == [list(METHODS)] * 2
    assert (digits.n_seeds, toy.n_seeds) == (2, 1)
    assert [fit.seed for fit in digits.fits if fit.method == "ECRT"] == [3, 4]
    assert {fit.demixing for fit in digits.fits if fit.method in ("ERM", "Logit adjustment")} == {"none"}
    assert toy.limit is not None
    assert toy.limit["top1"] >= max(toy.values(method, "top1")[0] for method in toy.methods) - 0.05
    assert result.settings["seed"] == 3
    assert not result.settings["full"]


def test_progress_counts_fits(result: DemoResult, steps: Steps) -> None:
    assert result.seconds > 0
    assert steps.total == len(steps.notes) == sum(len(data.fits) for data in result.data) == 12
    assert steps.finished


def test_pictures_hold_what_they_claim(result: DemoResult) -> None:
    toy, digits = result.toy, result.digits
    assert toy.z.shape == toy.true_s.shape == toy.found_s.shape == (7 * 60, 2)
    assert toy.train_s.shape == toy.train_z.shape == (20, 2)
    for column in range(2):  # permutation takes coordinates of training samples, the other draws new ones
        assert np.isin(toy.permutation_s[:, column].round(9), toy.train_s[:, column].round(9)).all()
        assert not np.isin(toy.parametric_s[:, column].round(9), toy.train_s[:, column].round(9)).any()
    assert digits.real.shape == digits.synthetic.shape == (5, 5, 8, 8)
    assert 0 <= result.source_match <= 1


def test_result_does_not_depend_on_the_number_of_jobs() -> None:
    config = replace(TINY, digits_seeds=1)
    one, two = (run_demo(seed=1, config=config, jobs=jobs) for jobs in (1, 2))
    for first, second in zip(one.data, two.data, strict=True):
        assert [fit.metrics for fit in first.fits] == [fit.metrics for fit in second.fits]


def test_files_read_back(result: DemoResult, tmp_path: Path) -> None:
    write_demo(result, tmp_path)
    again = read_demo(tmp_path)
    assert again.data == result.data
    assert again.versions == result.versions
    np.testing.assert_array_equal(again.toy.parametric_z, result.toy.parametric_z)
    np.testing.assert_array_equal(again.digits.synthetic, result.digits.synthetic)
    assert render_demo(summarise_demo(again)) == render_demo(summarise_demo(result))
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert document["data"][0]["verdicts"] == result.data[0].verdicts()


def test_reading_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ecrt demo"):
        read_demo(tmp_path)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="at least one job"):
        run_demo(jobs=0)


# --- tables and page ----------------------------------------------------------------------------------------------


def _data(values: dict[str, list[float]]) -> DataResult:
    fits = [
        FitResult(
            method=method, seed=seed, metrics={metric.key: value for metric in METRICS}, demixing="none", head="linear",
            seconds=1.0,
        )
        for method, numbers in values.items()
        for seed, value in enumerate(numbers)
    ]  # fmt: skip
    return DataResult(name="x", title="X", description="x", fits=tuple(fits))


def test_best_of_each_column_is_marked() -> None:
    table = summarise(_data({"ERM": [0.5, 0.6], "ECRT": [0.8, 0.9]}))
    best = {row.name: [cell.best for cell in row.cells] for row in table.rows}
    assert best == {"ERM": [False, True, False, False], "ECRT": [True, False, True, True]}
    assert table.rows[0].cells[0].text == "0.550 ± 0.635"
    assert "2 seeds" in table.note


def test_markdown_has_the_same_cells() -> None:
    table = summarise(_data({"ERM": [0.5, 0.6], "ECRT": [0.8, 0.9]}))
    assert "| ERM | 0.550 ± 0.635 | **0.550 ± 0.635** |" in markdown_table(table)


def test_reference_row_never_leads(result: DemoResult) -> None:
    row = summarise(result.data[1]).rows[-1]
    assert row.reference
    assert not any(cell.best for cell in row.cells)


def test_page_has_tables_verdicts_and_captions(result: DemoResult, page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    assert outline.count["table"] == 2
    assert outline.count["figure"] == outline.count["figcaption"] == 5
    assert all(len(caption) > 40 for caption in re.findall(r"<figcaption>(.*?)</figcaption>", page, re.DOTALL))
    assert outline.count["svg"] == 2 * 2 + 3 + 4 + 2
    for data in result.data:
        for sentence in data.verdicts():
            assert sentence in page
    assert 'class="best"' in page
    assert "its figures mean little" in page  # a tiny run says that it is one


def test_page_loads_nothing_from_elsewhere(page: str) -> None:
    outline = Outline(page)
    assert all(address.startswith(("#", "data:")) for address in outline.loads)
    assert not {"script", "link", "iframe"} & set(outline.count)
    assert "@import" not in page
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", page))
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<)]+", page)) <= namespaces


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    wanted = set(re.findall(r"url\(#([^)]*)\)", page)) | {load[1:] for load in outline.loads if load.startswith("#")}
    assert wanted <= set(outline.ids)


def test_axes_follow_the_text_colour(page: str) -> None:
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_report_writes_page_and_small_picture(result: DemoResult, tmp_path: Path) -> None:
    assert write_report(result, tmp_path) == tmp_path / "report.html"
    picture = (tmp_path / "sources.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000


def test_summary_table_takes_any_rows() -> None:
    table = summary_table("x", [{"method": "A", "top1": 0.123456}, {"method": "B", "note": None}])
    assert [str(column.header) for column in table.columns] == ["method", "top1", "note"]
    assert table.row_count == 2
    wide = summary_table("x", [{"what": "A"} | {f"measure {i}": float(i) for i in range(9)}, {"what": "B"}])
    assert [str(column.header) for column in wide.columns] == ["what", "A", "B"]
    assert wide.row_count == 9
    assert rich_table(summarise(_data({"ERM": [1.0], "ECRT": [2.0]}))).row_count == 2


# --- the command --------------------------------------------------------------------------------------------------


def _main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["ecrt", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["--version"], monkeypatch) == 0
    assert capsys.readouterr().out == f"ecrt {ecrt.__version__}\n"


def test_demo_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: DemoResult) -> None:
    asked: dict[str, object] = {}

    def fake(**options: object) -> DemoResult:
        asked.update(options)
        return result

    monkeypatch.setattr(demo_module, "run_demo", fake)
    done = CliRunner().invoke(cli.app, ["demo", "--output", str(tmp_path / "out"), "--seed", "7", "--quick"])
    assert done.exit_code == 0, done.output
    assert asked["seed"] == 7
    assert asked["config"] is demo_module.QUICK
    assert "Logit adjustment" in done.output
    assert str(tmp_path / "out" / "report.html") in done.output
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"results.json", "arrays.npz", "report.html", "sources.png", "tables.md"}


def test_output_that_is_a_file_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr(demo_module, "run_demo", lambda **_: pytest.fail("ran"))
    assert _main(["demo", "--output", str(tmp_path / "taken")], monkeypatch) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "taken" in error


def test_readme_code_runs() -> None:
    readme = Path(__file__).parents[1] / "README.md"
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(readme), "exec"), names)
    assert np.shape(names["synthetic"]) == (20, 64)
