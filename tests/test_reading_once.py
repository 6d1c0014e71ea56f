"""What a column is, is decided once on the whole table, before any split."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ecrt
from ecrt.cli import app
from ecrt.data import ColumnReading, TableEncoder, column_rows, read_data
from ecrt.errors import ECRTWarning


def sorted_noise(n_rows=120):
    """Columns that say nothing, rows sorted by class: a row counter that is learned from tells the class."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    table.insert(0, "Unnamed: 0", np.arange(n_rows))
    return table, np.repeat(["no", "or", "yes"], n_rows // 3)


def test_a_row_counter_does_not_help_in_a_comparison():
    X, y = sorted_noise()
    with pytest.warns(ECRTWarning, match=r"\['Unnamed: 0'\] are left out"):
        found = ecrt.compare(X, y, methods=["weighted-logistic"], seeds=2, trials=1)
    assert found.data["columns"] == 3
    for method in found.methods.values():
        assert np.mean(method.metrics["balanced"]["balanced_accuracy"]) < 0.6


def test_a_row_counter_is_in_no_refit_of_a_diagnosis(monkeypatch):
    read = []

    def learn(table):
        read.append((len(table), original(table)))
        return read[-1][1]

    original = TableEncoder.learn
    monkeypatch.setattr(TableEncoder, "learn", learn)
    X, y = sorted_noise()
    model = ecrt.ECRTClassifier(head="gaussian", demixing="linear")
    with pytest.warns(ECRTWarning, match=r"\['Unnamed: 0'\] are left out"):
        found = ecrt.diagnose(X, y, estimator=model, trials=6, refits=2)
    assert found.features == ("a", "b", "c")
    assert len({rows for rows, _ in read}) > 1
    assert {len(encoder.names_out) for _, encoder in read} == {3}


def reading(name, kind="number", **more):
    return ColumnReading(name=name, kind=kind, **more)


def test_few_columns_are_listed_one_by_one():
    columns = [
        reading("price", decimal=",", unit="EUR", missing=3),
        reading("city", "category", levels=("Bonn", "Rome")),
        reading("id", "identifier", note="It counts rows."),
        reading("kind", "category", role="target", levels=("a", "b", "c")),
        reading("bottle", "identifier", role="id"),
    ]
    cells = [tuple(row) for row in column_rows(columns)]
    assert cells == [
        ("price", "number", "decimal comma, EUR", "3", "", ""),
        ("city", "category", "", "", "2", ""),
        ("id", "left out", "", "", "", "It counts rows."),
        ("kind", "target (category)", "", "", "3", ""),
        ("bottle", "id", "", "", "", ""),
    ]


def test_many_columns_stand_together_where_they_are_alike():
    columns = [reading(f"x{i}", missing=i % 3) for i in range(500)]
    columns += [reading(f"c{i}", "category", levels=tuple("abcd"[: 2 + i % 2])) for i in range(40)]
    columns += [reading("row", "identifier", note="It counts rows.")]
    cells = [tuple(row) for row in column_rows(columns)]
    assert cells == [
        ("x0, x1, …, x499 (500 columns)", "number", "", "0 to 2", "", ""),
        ("c0, c1, …, c39 (40 columns)", "category", "", "", "2 to 3", ""),
        ("row", "left out", "", "", "", "It counts rows."),
    ]
    noted = [reading(f"n{i}", note="Mind this.") for i in range(100)]
    assert [tuple(row) for row in column_rows(noted)] == [
        ("n0, n1, …, n99 (100 columns)", "number", "", "", "", "Mind this.")
    ]
    rows = column_rows([reading(f"n{i}", note=f"Mind {i}.") for i in range(100)], most=10)
    assert len(rows) == 11
    assert rows[-1][0] == "and 90 more"


def test_what_is_said_of_several_columns_is_said_once(tmp_path):
    table = pd.DataFrame({"a": np.arange(40) % 7, "y": np.arange(40) % 2})
    table[["b", "c"]] = 1
    table.to_csv(tmp_path / "constant.csv", index=False)
    with pytest.warns(ECRTWarning) as caught:
        read_data(tmp_path / "constant.csv", target=["y"])
    said = [str(warning.message) for warning in caught]
    assert said == ["Columns 'b' and 'c' are left out. Each is the same in every row."]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


QUICK = ["--set", "model.demixing=linear", "--set", "model.head=linear"]


def test_an_index_column_is_in_neither_the_tested_nor_the_saved_model(tmp_path):
    """Noise sorted by class: learned from, the index would tell the class of a held-out row."""
    X, y = sorted_noise(300)
    X.drop(columns="Unnamed: 0").assign(y=y).to_csv(tmp_path / "noise.csv")
    result = invoke("fit", tmp_path / "noise.csv", "--target", "y", "-o", tmp_path / "fit", *QUICK)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "fit" / "metrics.json").read_text())
    assert found["metrics"]["balanced"]["top1"] < 0.55
    assert list(ecrt.load(tmp_path / "fit" / "model").feature_names_in_) == ["a", "b", "c"]
    assert "'Unnamed: 0' is left out. It counts rows." in result.stderr
    row = ["Unnamed: 0", "left out", "", "", "", "It counts rows."]
    assert found["columns"][0] == row
    for text in ((tmp_path / "fit" / name).read_text() for name in ("report.html", "model/MODEL_CARD.md")):
        assert "How columns were read" in text
        assert "It counts rows." in text


def test_figures_say_which_model_they_are_of(tmp_path):
    X, y = sorted_noise(150)
    X.assign(y=y).to_csv(tmp_path / "noise.csv", index=False)
    for options, said in {
        (): "a model fitted on 120 of the 150 rows (80%), on the other rows. The saved model has the same members",
        ("--set", "refit=false"): "the saved model, fitted on 120 of the 150 rows (80%), on the other rows.",
    }.items():
        result = invoke("fit", tmp_path / "noise.csv", "--target", "y", "-o", tmp_path / "fit", *QUICK, *options)
        assert result.exit_code == 0, result.output
        card = (tmp_path / "fit" / "model" / "MODEL_CARD.md").read_text()
        page = (tmp_path / "fit" / "report.html").read_text()
        for text in (" ".join(result.stdout.split()), page, card):
            assert f"Figures are of {said}" in text
        assert "under the balanced class prior" in card
        again = tmp_path / "again"
        ecrt.load(tmp_path / "fit" / "model").save(again)
        assert f"Figures are of {said}" in (again / "MODEL_CARD.md").read_text()
    evaluated = invoke("evaluate", tmp_path / "fit", tmp_path / "noise.csv", "-o", tmp_path / "new")
    assert "Figures are of the saved model, on the rows of noise.csv" in evaluated.stdout
    assert "How columns were read" in (tmp_path / "new" / "report.html").read_text()


def test_new_levels_and_gaps_are_told_once_and_most_of_a_column_is_an_error(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=90), "city": rng.choice(["Bonn", "Rome", "Oslo"], 90)})
    table["y"] = np.where(table["x"] > 0, "up", "down")
    table.to_csv(tmp_path / "old.csv", index=False)
    assert invoke("fit", tmp_path / "old.csv", "--target", "y", "-o", tmp_path / "fit", *QUICK).exit_code == 0
    new = table.head(20).astype({"city": object})
    new.loc[:4, "city"] = "Paris"
    new.loc[6:7, "x"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    predicted = invoke("predict", tmp_path / "fit", tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert predicted.exit_code == 0, predicted.output
    notes = [line for line in predicted.stderr.splitlines() if line.startswith("Note")]
    assert notes == ["Note: Column 'x': 10% missing.", "Note: Column 'city': 25% new levels, such as 'Paris'."]
    result = invoke("evaluate", tmp_path / "fit", tmp_path / "new.csv", "-o", tmp_path / "e")
    assert result.exit_code == 0, result.output
    columns = json.loads((tmp_path / "e" / "metrics.json").read_text())["columns"]
    assert columns[0][:4] == ["x", "number", "", "2"]
    assert columns[1] == ["city", "category", "", "", "3", "25% new levels, such as 'Paris'"]
    new.assign(city="Paris").to_csv(tmp_path / "new.csv", index=False)
    for command in ("predict", "evaluate"):
        output = ["-o", tmp_path / ("p.csv" if command == "predict" else "e")]
        refused = invoke(command, tmp_path / "fit", tmp_path / "new.csv", *output)
        assert refused.exit_code == 1
        assert "'city': 100% new levels" in refused.stderr
        assert invoke(command, tmp_path / "fit", tmp_path / "new.csv", *output, "--allow-unreadable").exit_code == 0


def test_pages_of_compare_and_diagnose_show_how_columns_were_read(tmp_path):
    X, y = sorted_noise()
    X.assign(y=y).to_csv(tmp_path / "noise.csv", index=False)
    for command, options in {
        "compare": ["--methods", "weighted-logistic", "--seeds", 1, "--trials", 1, "--jobs", 1],
        "diagnose": ["--trials", 6],
    }.items():
        output = tmp_path / command
        result = invoke(command, tmp_path / "noise.csv", "--target", "y", "-o", output, *options)
        assert result.exit_code == 0, result.output
        page = (output / "report.html").read_text()
        assert "How columns were read" in page
        assert "It counts rows." in page


def test_a_card_of_a_table_from_python_shows_its_columns(tmp_path):
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0] * 20, "city": ["Bonn", "Rome", "Oslo"] * 20, "row": range(60)})
    with pytest.warns(ECRTWarning, match="left out"):
        model = ecrt.ECRTClassifier(demixing="linear", head="linear").fit(frame, ["a", "b", "c"] * 20)
    model.save(tmp_path)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert "| x | number | some |  |" in card
    assert "| city | category |  | 3 |" in card
    assert "| row | left out |  |  |" in card
