"""Whole comparisons: from a table to results on disk, killed and resumed, on processes and on a cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import ecrt
from ecrt.cli import app
from ecrt.comparison import METHODS, Comparison
from ecrt.comparison.methods import Method
from ecrt.comparison.splits import make_splits
from ecrt.disk import plain, read_json
from ecrt.errors import ECRTWarning, InputError
from ecrt.metrics import class_prior_of, read_predictions, shift_prior
from ecrt.report import verdict_text
from ecrt.rivals.base import Number

pytest.importorskip("optuna", reason="Optuna is not installed")

QUICK = ["weighted-logistic", "bayes"]
FITS: list[int] = []


class CountedBayes(GaussianNB):
    """A method that costs nothing and remembers how often it was fitted."""

    def fit(self, X: Any, y: Any) -> CountedBayes:
        FITS.append(len(X))
        return super().fit(X, y)


def made(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        n, n_classes=3, n_informative=5, n_redundant=0, n_features=6, weights=[0.6, 0.3, 0.1], random_state=1
    )
    return X, np.array(["common", "middling", "rare"])[y]


@pytest.fixture(autouse=True)
def quick_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    FITS.clear()
    bayes = Method(
        label="Naive Bayes", build=lambda parameters, seed: CountedBayes(**parameters), prior="training", reference="",
        space={"var_smoothing": Number(1e-9, 1.0, first=1e-9, log=True)},
    )  # fmt: skip
    monkeypatch.setitem(METHODS, "bayes", bayes)


def compared(output: Path | None = None, **options: Any) -> Comparison:
    X, y = made()
    chosen = {"methods": QUICK, "seeds": 3, "trials": 3, "output": output} | options
    with pytest.warns(ECRTWarning, match="fewer than 10 test rows"):
        return ecrt.compare(X, y, **chosen)


# --- results -----------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_predictions_on_disk(tmp_path: Path) -> None:
    found = compared(tmp_path)
    _, y = made()
    codes = np.unique(y, return_inverse=True)[1]
    splits = make_splits(codes, n_seeds=3)
    for name in QUICK:
        for seed in range(3):
            stored = read_predictions(tmp_path / "runs" / name / f"seed-{seed}" / "predictions.npz")
            train, test = splits[seed].train, splits[seed].test
            assert np.array_equal(stored.y, codes[test])
            assert np.array_equal(stored.counts, np.bincount(codes[train]))
            accuracy = balanced_accuracy_score(stored.y, stored.log_proba.argmax(axis=1))
            assert found.methods[name].metrics["balanced"]["balanced_accuracy"][seed] == pytest.approx(accuracy)
            shares = class_prior_of("training", stored.counts)
            under_training = np.exp(shift_prior(stored.log_proba, class_prior_of("balanced", stored.counts), shares))
            loss = log_loss(stored.y, under_training)
            assert found.methods[name].metrics["training"]["nll"][seed] == pytest.approx(loss)
            recall = (stored.log_proba.argmax(axis=1)[stored.y == 2] == 2).mean()
            assert found.methods[name].recalls["balanced"][seed][2] == pytest.approx(recall)
    assert found.methods["bayes"].trials == [{"finished": 3, "failed": 0, "cut": 0}] * 3
    assert "nll_scaled" in found.methods["bayes"].metrics["balanced"]


def test_last_fit_is_on_all_training_rows_with_the_best_setting_of_the_inner_split(tmp_path: Path) -> None:
    found = compared(tmp_path, methods=["bayes"], seeds=1)
    X, y = made()
    codes = np.unique(y, return_inverse=True)[1]
    ((train, test, fitted, judged),) = make_splits(codes, n_seeds=1)
    n_fitted, n_train = len(fitted), len(train)
    assert [n_fitted, n_fitted, n_fitted, n_train] == FITS
    trials = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("runs/bayes/seed-0/trial-*.json"))]
    for trial in trials:
        model = GaussianNB(**trial["parameters"]).fit(X[fitted], codes[fitted])
        scores = model.predict_proba(X[judged]) / np.bincount(codes[fitted])
        assert trial["value"] == pytest.approx(balanced_accuracy_score(codes[judged], scores.argmax(axis=1)))
    best = max(trials, key=lambda trial: trial["value"])
    assert found.methods["bayes"].parameters == [best["parameters"]]
    scores = GaussianNB(**best["parameters"]).fit(X[train], codes[train]).predict_proba(X[test])
    expected = balanced_accuracy_score(codes[test], (scores / np.bincount(codes[train])).argmax(axis=1))
    assert found.methods["bayes"].metrics["balanced"]["balanced_accuracy"] == [pytest.approx(expected)]


def test_results_are_written(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert read_json(tmp_path / "results.json") == plain(found.as_dict())
    assert read_json(tmp_path / "times.json") == plain(found.times)


def test_a_run_that_was_stopped_while_tidying_up_is_tidied_later(tmp_path: Path) -> None:
    compared(tmp_path, methods=["bayes"], seeds=1)
    fits, left = len(FITS), tmp_path / "runs" / "bayes" / "seed-0" / "validation-000.npz"
    left.write_bytes(b"")
    compared(tmp_path, methods=["bayes"], seeds=1)
    assert not left.exists()
    assert len(FITS) == fits


def test_without_a_folder_nothing_is_left() -> None:
    found = compared()
    assert found.ranking("balanced")
    assert set(found.class_gains("balanced")) == set(QUICK)
    assert [gain.mean for gain in found.class_gains("balanced")["weighted-logistic"] if gain] == [0.0] * 3


def test_nll_is_lower_for_the_better_method() -> None:
    found = compared(metric="nll", prior="training", reference="bayes")
    assert found.prior == "training"
    first, second = found.ranking("training")
    values = [np.mean(found.methods[name].metrics["training"]["nll"]) for name in (first, second)]
    assert values[0] <= values[1]
    (pair,) = found.all_pairs("training")
    assert pair.gain.mean == pytest.approx(values[1] - values[0])


def test_classes_that_a_window_in_time_has_not_seen_are_wrong_there() -> None:
    X, y = made()
    order = np.argsort(y == "rare", kind="stable")  # the rare class comes last
    with pytest.warns(ECRTWarning, match="Classes 'rare' are tested in a split"):
        found = ecrt.compare(X[order], y[order], methods=QUICK, seeds=2, trials=1, times=np.arange(len(y)))
    assert found.methods["bayes"].error == ""
    assert np.isnan(found.methods["bayes"].recalls["balanced"][1, 2])
    assert found.methods["bayes"].metrics["balanced"]["top1"][1] < 0.6


def test_a_method_that_fails_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Broken(GaussianNB):
        def fit(self, X: Any, y: Any) -> Any:
            raise RuntimeError("no such luck")

    monkeypatch.setitem(METHODS, "bayes", replace(METHODS["bayes"], build=lambda parameters, seed: Broken()))
    found = compared(tmp_path)
    assert found.methods["bayes"].error == "RuntimeError: no such luck"
    assert found.sound == ["weighted-logistic"]
    assert found.verdict()["failed"] == {"bayes": "RuntimeError: no such luck"}
    assert verdict_text(found)[-1] == "Naive Bayes failed and is left out: RuntimeError: no such luck"
    assert read_json(tmp_path / "results.json")["verdict"]["balanced"] == plain(found.verdict("balanced"))


class Odd(GaussianNB):
    """Gives what no classifier should give."""

    def __init__(self, answer: float | None = None) -> None:
        super().__init__()
        self.answer = answer

    def fit(self, X: Any, y: Any) -> Any:
        if self.answer is None:
            sys.exit("no licence")
        return super().fit(X, y)

    def predict_log_proba(self, X: Any) -> Any:
        found = np.array(super().predict_log_proba(X))
        found[3, 0] = self.answer
        return found


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "RuntimeError: it called sys.exit('no licence')"),
        (np.nan, "NaN, below 0 or not of sum 1 for 1 of"),
        (0.5, "NaN, below 0 or not of sum 1 for 1 of"),
    ],
)
def test_what_no_method_may_do_is_said_of_the_method(
    answer: Any, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(METHODS, "bayes", replace(METHODS["bayes"], build=lambda parameters, seed: Odd(answer)))
    found = compared(tmp_path)
    assert found.sound == ["weighted-logistic"]
    assert verdict_text(found)[-1].startswith("Naive Bayes failed and is left out: ")
    assert told in found.methods["bayes"].error


# --- resuming ----------------------------------------------------------------------------------------------------


def test_result_depends_neither_on_jobs_nor_on_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared(tmp_path / "at once")
    n_fits = len(FITS)
    FITS.clear()
    from ecrt.comparison import protocol

    fit_predict = protocol._fit_predict
    for calls_left in (2, 5, 1, 6):

        def dying(*arguments: Any, left: list[int] = [calls_left]) -> Any:  # noqa: B006
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return fit_predict(*arguments)

        monkeypatch.setattr(protocol, "_fit_predict", dying)
        with pytest.raises(KeyboardInterrupt):
            compared(tmp_path / "killed")
    monkeypatch.setattr(protocol, "_fit_predict", fit_predict)
    compared(tmp_path / "killed")
    assert (tmp_path / "killed" / "results.json").read_bytes() == (tmp_path / "at once" / "results.json").read_bytes()
    assert len(FITS) == n_fits  # nothing twice
    FITS.clear()
    compared(tmp_path / "killed")
    assert FITS == []
    assert (tmp_path / "killed" / "results.json").read_bytes() == (tmp_path / "at once" / "results.json").read_bytes()


def test_another_table_or_command_is_refused(tmp_path: Path) -> None:
    compared(tmp_path, methods=["bayes"], seeds=1, trials=1)
    X, y = made()
    for changed in (
        {"seeds": 2},
        {"trials": 2},
        {"metric": "nll"},
        {"methods": QUICK},
        {"prior": "training"},
        {"test_size": 0.3},
    ):
        with pytest.raises(InputError, match="other settings or data"):
            ecrt.compare(X, y, **{"methods": ["bayes"], "seeds": 1, "trials": 1, "output": tmp_path} | changed)
    X[0, 0] += 1e-9
    with pytest.raises(InputError, match=r"other settings or data \(data: "):
        ecrt.compare(X, y, methods=["bayes"], seeds=1, trials=1, output=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 1, "budget": 1.0}, "not both"),
        ({"trials": 0}, "at least one trial"),
        ({"budget": -1.0}, "a time above 0"),
        ({"prior": "flat"}, "no class prior 'flat'"),
        ({"reference": "ecrt"}, "'ecrt' is not among the methods"),
        ({"methods": "nothing"}, "No method is called 'nothing'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = made()
    with pytest.raises(InputError, match=message):
        ecrt.compare(X, y, **{"methods": QUICK} | options)


def test_data_that_cannot_be_are_refused() -> None:
    X, y = made()
    with pytest.raises(InputError, match="one class only"):
        ecrt.compare(X, np.zeros(len(X)))
    with pytest.raises(InputError, match="300 rows and y has 299"):
        ecrt.compare(X, y[1:])
    with pytest.raises(InputError, match="row 0 has no label"):
        ecrt.compare(X, [None, *y[1:]])
    with pytest.raises(InputError, match="images cannot"):
        ecrt.compare(X[:, :, None], y)
    X[3, 2] = np.inf
    with pytest.raises(InputError, match=r"infinity .*'x2'"):
        ecrt.compare(X, y)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = made()
    table = pd.DataFrame(X, columns=list("abcdef")).assign(
        kind=y, plot=np.arange(len(y)) // 3, day=pd.date_range("2020-01-01", periods=len(y)).astype(str)
    )
    table.loc[5, "kind"] = None
    file = tmp_path_factory.mktemp("data") / "plants.csv"
    table.to_csv(file, index=False)
    return file


def command(*words: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, words)], env={"COLUMNS": "100", "NO_COLOR": "1"})


def test_command_prints_table_and_verdict_and_writes_a_page(csv: Path, tmp_path: Path) -> None:
    words = [csv, "--target", "kind", "--methods", "weighted-logistic,bayes", "--seeds", "2", "--trials", "2",
             "--id", "plot", "--drop", "day", "--jobs", "1", "-o", tmp_path / "out"]  # fmt: skip
    result = command(*words)
    assert result.exit_code == 0, result.output
    following = f"ecrt fit {csv} --target kind --method weighted --id plot --drop day"
    assert f"Next: {following}" in result.output.replace("\n", "")
    assert following in (tmp_path / "out" / "report.html").read_text()
    text = " ".join(result.output.split())
    assert "Naive Bayes" in text
    assert "1 rows without a label are left out" in text
    assert "No method beats Weighted logistic regression by more than noise" in text
    assert (tmp_path / "out" / "report.html").is_file()
    found = read_json(tmp_path / "out" / "results.json")
    assert found["data"]["columns"] == 6
    assert found["settings"]["title"] == "plants.csv"
    assert command(*words).exit_code == 0
    refused = command(*words, "--metric", "nll")
    assert refused.exit_code == 1
    assert 'metric: "balanced_accuracy", now "nll"' in " ".join(refused.output.split())


@pytest.mark.parametrize(("option", "column", "kind"), [("--group", "plot", "grouped"), ("--time", "day", "timed")])
def test_command_splits_by_a_column(csv: Path, tmp_path: Path, option: str, column: str, kind: str) -> None:
    words = ["--target", "kind", "--methods", "bayes", "--seeds", "2", "--trials", "1", "--drop"]
    words += ["day" if column == "plot" else "plot", "--jobs", "1", "-o", tmp_path]
    result = command(csv, option, column, *words)
    assert result.exit_code == 0, result.output
    found = read_json(tmp_path / "results.json")
    assert found["settings"]["splits"] == kind
    assert found["data"]["columns"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "ecrt"], "--target COL"),
        (["--target", "knid"], "did you mean 'kind'"),
        (["--target", "kind", "--methods", "balanced-forst"], "did you mean 'balanced-forest'"),
        (["--target", "kind", "--group", "plto"], "did you mean 'plot'"),
        (["--target", "a"], "numbers with decimals, which are not classes"),
        (["--target", "kind", "--cluster", "tcp://127.0.0.1:9", "--methods", "bayes"], "No Dask scheduler answers"),
    ],
)
def test_command_says_what_is_wrong(csv: Path, tmp_path: Path, words: list[str], message: str) -> None:
    if "--cluster" in words:
        pytest.importorskip("distributed", reason="Dask is not installed")
    result = command(csv, *words, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


# --- processes and clusters --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_command_goes_on_to_the_same_bytes(csv: Path, tmp_path: Path) -> None:
    words = ["compare", str(csv), "--target", "kind", "--methods", "weighted-logistic,balanced-forest", "--seeds", "2",
             "--trials", "4", "--drop", "day", "--jobs", "1", "-o"]  # fmt: skip
    killed = tmp_path / "killed"
    python = [sys.executable, "-c", "from ecrt.cli import main; main()"]
    running = subprocess.Popen([*python, *words, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(killed.rglob("trial-*.json"))) < 6 and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert list(killed.rglob("trial-*.json"))
    assert not (killed / "results.json").exists()
    for folder in (killed, tmp_path / "whole"):
        assert CliRunner().invoke(app, [*words, str(folder)]).exit_code == 0
    assert (killed / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
