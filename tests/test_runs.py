"""From a file to a model folder, to predictions: as the command does it."""

from __future__ import annotations

import html
import json
import os
import shlex
import shutil
import signal

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_wine
from typer.testing import CliRunner

import ecrt
from ecrt.cli import app
from ecrt.data import DataFile
from ecrt.errors import InputError
from ecrt.estimators.decisions import cost_matrix, lowest_cost
from ecrt.runs.config import FitConfig, labelled, read_config, read_target
from ecrt.runs.model_folder import OWN, open_run
from ecrt.training import _run_epoch
from stopping import snapshot

QUICK = ["--set", "model.demixing=linear", "--set", "model.head=linear"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    """A CSV with names, a category, gaps and ids; text labels."""
    data = load_wine(as_frame=True)
    table = data.data.copy()
    table["grape"] = np.where(table["hue"] > 1, "blue", "red")
    table.loc[3, "ash"] = None
    table.insert(0, "bottle", [f"b{i}" for i in range(len(table))])
    table["kind"] = np.array(["one", "two", "three"])[data.target]
    file = tmp_path_factory.mktemp("wine") / "wine.csv"
    table.to_csv(file, index=False)
    return file


@pytest.fixture(scope="module")
def fitted(wine):
    folder = wine.parent / "fit"
    result = invoke("fit", wine, "--target", "kind", "--id", "bottle", "-o", folder, *QUICK)
    assert result.exit_code == 0, result.output
    return folder


def test_fit_leaves_everything_in_the_folder(fitted):
    names = {path.name for path in fitted.iterdir()}
    assert {"config.yaml", "versions.json", "metrics.json", "history.json", "report.html", "model", "plots"} <= names
    assert (fitted / "model" / "MODEL_CARD.md").is_file()
    assert json.loads((fitted / "metrics.json").read_text())["metrics"]["balanced"]["top1"] > 0.9
    settings = yaml.safe_load((fitted / "config.yaml").read_text())
    assert settings["target"] == ["kind"]
    assert settings["model"] == {"demixing": "linear", "head": "linear"}
    assert list((fitted / "plots").glob("*.svg"))


def test_the_same_settings_give_the_same_model(wine, fitted, tmp_path):
    result = invoke("fit", wine, "--config", fitted / "config.yaml", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    first, second = (ecrt.load(folder / "model") for folder in (fitted, tmp_path))
    X = pd.read_csv(wine)[list(first.feature_names_in_)]
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predict_keeps_ids_and_adds_label_and_probabilities(wine, fitted, tmp_path, ending):
    output = tmp_path / f"p.{ending}"
    unlabelled = tmp_path / "new.csv"
    rows = pd.read_csv(wine).drop(columns="kind")
    rows[[*reversed(rows.columns)]].assign(extra=1).to_csv(unlabelled, index=False)
    result = invoke("predict", fitted, unlabelled, "-o", output)
    assert result.exit_code == 0, result.output
    reader = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(ending)
    table = reader(output) if reader else pd.read_json(output, lines=True)
    assert list(table) == ["bottle", "predicted", "p_one", "p_three", "p_two"]
    assert table["bottle"].tolist() == rows["bottle"].tolist()
    np.testing.assert_allclose(table[["p_one", "p_three", "p_two"]].sum(axis=1), 1)
    loaded = ecrt.load(fitted / "model")
    assert table["predicted"].tolist() == loaded.predict(rows[list(loaded.feature_names_in_)]).tolist()


def test_evaluate_prints_and_writes(wine, fitted, tmp_path):
    result = invoke("evaluate", fitted, wine, "-o", tmp_path / "e")
    assert result.exit_code == 0, result.output
    assert "balanced_accuracy" in result.output
    assert (tmp_path / "e" / "report.html").is_file()


def test_inspect_shows_the_card(fitted):
    result = invoke("inspect", fitted)
    assert result.exit_code == 0, result.output
    assert "three" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{wine}"], "no column 'label'"),
        (["fit", "{wine}", "--target", "kynd"], "did you mean 'kind'"),
        (["fit", "{wine}", "--target", "alcohol", "--task", "classification"], "not classes"),
        (["fit", "{wine}", "--target", "bottle"], "too many to be class labels"),
        (["fit", "nowhere.csv", "--target", "kind"], "no file"),
        (["fit", "{wine}", "--target", "kind", "--set", "model.demixin=1"], "did you mean 'model.demixing'"),
        (["fit", "{wine}", "--target", "kind", "--set", "demixing.objectiv=gcl"], "demixing: "),
        (["fit", "{wine}", "--target", "kind", "--set", "demixing.learn_from=all"], "kind must be one of"),
        (["fit", "{wine}", "--target", "kind", "--set", "epochs"], "KEY=VALUE"),
        (["fit", "{wine}", "--target", "kind", "--budget", "0"], r"(0.0, inf) or None. Got 0.0 instead."),
        (["fit", "{wine}", "--target", "kind", "--set", "model.validation_fraction=7"], "Got 7 instead."),
        (["fit", "{wine}", "--target", "kind", "--set", "seed=x"], "seed='x'"),
        (["fit", "{wine}", "--target", "kind", "--task", "divination"], "use classification, multilabel"),
        (["fit", "{wine}", "--target", "kind", "--task", "regression"], "not numbers"),
        (["fit", "{wine}", "--target", "kind", "--target", "hue", "--task", "classification"], "one target column"),
        (["fit", "{wine}", "--target", "kind", "--set", "model.demixing=magic"], "demixing"),
        (["fit", "{wine}", "--target", "kind", "--threshold", "0.3", *QUICK], "need two classes"),
        (["fit", "{wine}", "--target", "kind", "--costs", "3"], "such as 10:1"),
        (["fit", "{wine}", "--target", "kind", "--class-prior", "flat"], "use balanced, training"),
        (["fit", "{wine}", "--target", "kind", "--device", "abacus"], "abacus"),
        (
            ["fit", "{wine}", "--target", "kind", "--device", "cuda:99"],
            "device='cuda:99' cannot be used here. Use 'auto'",
        ),
        (["fit", "{wine}", "--target", "kind", "--config", "none.yaml"], "none.yaml cannot be read"),
        (["predict", "{tmp}", "{wine}"], "no config.yaml"),
        (["predict", "{saved}", "{wine}"], "is read there, by ecrt.load"),
        (["predict", "{fitted}", "{short}"], r"lacks the columns ['ash']"),
        (["predict", "{fitted}", "{wine}", "-o", "p.xls"], "must end in"),
        (["export", "{fitted}", "-o", "{short}"], "must end in .onnx"),
        (["evaluate", "{fitted}", "{short}"], "no column"),
        (["inspect", "{tmp}"], "model.json"),
    ],
)
def test_errors_are_one_line(wine, fitted, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    short = tmp_path / "short.csv"
    pd.read_csv(wine).drop(columns=["ash", "kind"]).to_csv(short, index=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    known = {"wine": wine, "fitted": fitted, "saved": fitted / "model", "short": short, "tmp": empty}
    output = ["-o", "out"] if arguments[0] == "fit" else []
    result = invoke(*(argument.format(**known) for argument in arguments), *output)
    assert result.exit_code == 1, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in result.output
    assert "--debug" not in lines[0]  # a mistake of the user's, not of ours
    assert len(pd.read_csv(short)) == len(pd.read_csv(wine))


@pytest.mark.parametrize("method", ["logit-adjusted", "balanced-forest"])
def test_a_rival_is_fitted_saved_and_used_by_the_same_commands(wine, tmp_path, method):
    options = ["--set", "method.n_estimators=20"] if method == "balanced-forest" else []
    columns = ["--target", "kind", "--id", "bottle"]
    result = invoke("fit", wine, *columns, "--method", method, "-o", tmp_path / "fit", *options)
    assert result.exit_code == 0, result.output
    assert "Beside plain logit adjustment" in result.output
    assert f"Next: ecrt predict {tmp_path / 'fit'}" in result.output.replace("\n", "")
    run = open_run(tmp_path / "fit")
    assert run.model.rival.kind == method
    assert getattr(run.model.rival, "n_estimators", 20) == 20
    page = (tmp_path / "fit" / "report.html").read_text()
    assert run.model.rival.label in page
    assert "Diagnostics" not in page
    assert f"ecrt predict {tmp_path / 'fit'} NEW_ROWS" in page
    assert invoke("predict", tmp_path / "fit", wine, "-o", tmp_path / "p.csv").exit_code == 0
    right = pd.read_csv(tmp_path / "p.csv")["predicted"] == pd.read_csv(wine)["kind"]
    assert right.mean() > 0.95
    evaluated = invoke("evaluate", tmp_path / "fit", wine, "-o", tmp_path / "evaluated")
    assert evaluated.exit_code == 0, evaluated.output
    assert run.model.rival.kind in invoke("inspect", tmp_path / "fit").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "kind", "--method", "logit-adjust"], "did you mean 'logit-adjusted'?"),
        (["--target", "kind", "--method", "qda"], "No method that can be saved is called 'qda'"),
        (["--target", "hue", "--method", "ldam"], "method=ldam is for classes; the task is regression"),
        (["--target", "kind", "--method", "ldam", "--set", "model.demixing=linear"], "No setting is called 'model.dem"),
        (["--target", "kind", "--method", "ldam", "--set", "model.method=erm"], "which rival it is says the setting"),
    ],
)
def test_a_method_that_does_not_suit_is_refused(wine, tmp_path, arguments, message):
    result = invoke("fit", wine, *arguments, "-o", tmp_path / "fit")
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("stdin", [False, True])
def test_the_next_command_reads_the_file_as_the_fit_did(wine, tmp_path, stdin):
    file, settings = tmp_path / "odd names.csv", tmp_path / "settings.yaml"
    table = pd.read_csv(wine).assign(leak=lambda rows: rows["kind"], often=1, code=np.arange(178) % 3)
    table.to_csv(file, index=False, encoding="utf-16")
    settings.write_text("target: kind\nclass_prior: training\ndrop: [leak]\n")
    words = ["fit", "-" if stdin else file, "--config", settings, "--weight", "often", "--id", "bottle", "--na", "-999",
             "--types", "code=category", "--encoding", "utf-16", "-o", tmp_path / "fit", *QUICK]  # fmt: skip
    result = CliRunner().invoke(app, [str(word) for word in words], input=file.read_bytes() if stdin else None)
    assert result.exit_code == 0, result.output
    following = result.output.partition("Next: ")[2].splitlines()[0]
    assert following in html.unescape((tmp_path / "fit" / "report.html").read_text())
    program, *words = shlex.split(following)
    assert (program, words[:2]) == ("ecrt", ["compare", "FILE" if stdin else str(file)])
    assert words[2:] == ["--target", "kind", "--id", "bottle", "--drop", "leak", "--drop", "often", "--encoding",
                         "utf-16", "--na", "-999", "--types", "code=category", "--prior", "training"]  # fmt: skip
    if not stdin:
        quick = ["--methods", "lda,weighted-logistic", "--seeds", 2, "--trials", 1, "--jobs", 1]
        compared = invoke(*words, *quick, "-o", tmp_path / "compared")
        assert compared.exit_code == 0, compared.output


FOREIGN_SEAL = '{"format": 1, "interrupted": false, "files": {"precious/a": "0", "data.csv": "0"}}'


@pytest.mark.parametrize(
    "files",
    [
        ["thesis.txt"],
        ["config.yaml", "model/weights.bin", "plots/mine.png", "metrics.json"],
        ["config.yaml", "run.json", "precious/a", "data.csv"],
    ],
)
def test_a_folder_with_other_files_is_left_alone(wine, fitted, tmp_path, files):
    place = tmp_path / "mine"
    for name in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(FOREIGN_SEAL if name == "run.json" else "mine")
    before = snapshot(place)
    for words in (
        ["fit", wine, "--target", "kind"],
        ["evaluate", fitted, wine],
        ["diagnose", wine, "--target", "kind"],
    ):
        result = invoke(*words, "-o", place)
        assert result.exit_code == 1
        assert ("--force" in result.stderr) == (words[0] == "fit")
        assert snapshot(place) == before
    assert invoke("fit", wine, "--target", "kind", "-o", place, "--force", *QUICK).exit_code == 0
    after = snapshot(place)
    kept = [name for name in files if name.partition("/")[0] not in OWN]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_a_run_is_replaced_by_the_next_unless_something_in_it_is_not_its_own(wine, tmp_path):
    place = tmp_path / "run"
    words = ["fit", wine, "--target", "kind", "-o", place, *QUICK]
    assert invoke(*words).exit_code == 0
    (place / "notes.txt").write_text("mine")
    assert invoke(*words).exit_code == 0
    assert (place / "notes.txt").read_text() == "mine"
    for name in ("plots/mine.svg", "model/weights.bin", "config.yaml", "run.json"):
        shutil.copytree(place, tmp_path / "copy")
        (tmp_path / "copy" / name).write_text("mine")
        result = invoke("fit", wine, "--target", "kind", "-o", tmp_path / "copy", *QUICK)
        assert result.exit_code == 1
        assert ("holds other files" if name == "run.json" else name) in result.stderr
        assert (tmp_path / "copy" / name).read_text() == "mine"
        shutil.rmtree(tmp_path / "copy")


def test_a_report_is_replaced_by_the_next_of_its_kind_alone(wine, fitted, tmp_path):
    place = tmp_path / "report"
    assert invoke("evaluate", fitted, wine, "-o", place).exit_code == 0
    assert invoke("evaluate", fitted, wine, "-o", place).exit_code == 0
    assert "holds other files" in invoke("diagnose", wine, "--target", "kind", "-o", place).stderr
    (place / "plots" / "mine.svg").write_text("mine")
    assert "plots/mine.svg" in invoke("evaluate", fitted, wine, "-o", place).stderr


@pytest.fixture(scope="module")
def cancer(tmp_path_factory):
    data = load_breast_cancer(as_frame=True)
    file = tmp_path_factory.mktemp("cancer") / "cancer.csv"
    data.data.iloc[:, :4].assign(state=np.where(data.target == 0, "ill", "well")).to_csv(file, index=False)
    return file


@pytest.mark.parametrize("method", ["ecrt", "balanced-forest"])
def test_threshold_and_costs_decide_and_are_kept_in_the_model(cancer, tmp_path, method):
    more = QUICK if method == "ecrt" else ["--method", method, "--set", "method.n_estimators=10"]
    table = pd.read_csv(cancer)
    for number, options in enumerate((["--costs", "50:1"], ["--threshold", "0.3"], ["--threshold", "0.99"])):
        place, said = tmp_path / str(number), tmp_path / "said.csv"
        result = invoke("fit", cancer, "--target", "state", "-o", place, *options, *more)
        assert result.exit_code == 0, result.output
        model = ecrt.load(place / "model")
        assert model.class_prior == ("training" if options[0] == "--costs" else "balanced")
        cut = 1 / 51 if options[0] == "--costs" else float(options[1])
        predicted = invoke("predict", place, cancer, "-o", said)
        found = pd.read_csv(said)
        assert (found["predicted"] == model.predict(table.drop(columns="state"))).all()
        assert ((found["p_ill"] >= cut - 1e-9) == (found["predicted"] == "ill")).all()
        evaluated = invoke("evaluate", place, cancer, "-o", tmp_path / f"e{number}")
        sentence = f"'ill' is predicted from a probability of {cut:.4g} on, 'well' below it."
        for text in (result.output, predicted.output, evaluated.output):
            assert sentence in " ".join(text.split())
        card = (place / "model" / "MODEL_CARD.md").read_text()
        assert sentence in card
        assert "false alarms are those of the class 'ill'." in card
        page = (place / "report.html").read_text().replace("&#39;", "'")
        assert sentence in page.partition("Decision</h3>")[2]
        figures = json.loads((tmp_path / f"e{number}" / "metrics.json").read_text())
        ill = table["state"] == "ill"
        assert figures["positive"] == "ill"
        assert figures["decided"]["recall"] == pytest.approx((found["predicted"][ill] == "ill").mean())
        assert figures["decided"]["false_alarm_rate"] == pytest.approx((found["predicted"][~ill] == "ill").mean())
        assert ("cost_per_row" in figures["decided"]) == (options[0] == "--costs")
        if options[0] == "--costs":
            paid = 50 * (ill & (found["predicted"] != "ill")) + (~ill & (found["predicted"] == "ill"))
            assert figures["decided"]["cost_per_row"] == pytest.approx(paid.mean())
    other = invoke("predict", place, cancer, "--threshold", "0.3", "--positive", "well", "-o", said)
    assert "'ill' is predicted from a probability of 0.7 on" in other.output
    assert "has no effect" in invoke("predict", fitted_plain(cancer), cancer, "--positive", "well", "-o", said).stderr


def fitted_plain(file):
    place = file.parent / "plain"
    assert place.exists() or invoke("fit", file, "--target", "state", "-o", place, *QUICK).exit_code == 0
    return place


def test_where_no_class_is_rarer_the_positive_one_is_asked_for(cancer, tmp_path):
    table = pd.read_csv(cancer)
    equal = tmp_path / "equal.csv"
    pd.concat([table[table["state"] == name][:60] for name in ("ill", "well")]).to_csv(equal, index=False)
    words = ["fit", equal, "--target", "state", *QUICK, "-o", tmp_path / "fit"]
    refused = invoke(*words, "--costs", "20:1")
    assert refused.exit_code == 1
    assert "such as --positive well" in refused.stderr
    assert invoke(*words).exit_code == 0
    for more in (["--threshold", "0.1"], ["--costs", "20:1"]):
        assert "--positive" in invoke("evaluate", tmp_path / "fit", equal, *more).stderr
        found = invoke("evaluate", tmp_path / "fit", equal, *more, "--positive", "ill")
        assert "figures of 'ill'" in found.output
    assert invoke(*words, "--costs", "20:1", "--positive", "well").exit_code == 0
    assert yaml.safe_load((tmp_path / "fit" / "config.yaml").read_text())["positive"] == "well"
    assert ecrt.load(tmp_path / "fit" / "model").cost_matrix_.tolist() == [[0, 1], [20, 0]]
    weighted = tmp_path / "weighted.csv"
    pd.read_csv(equal).assign(w=np.repeat([1, 2], 60)).to_csv(weighted, index=False)
    words = ["fit", weighted, "--target", "state", "--weight", "w", *QUICK, "-o", tmp_path / "weighted"]
    assert invoke(*words, "--costs", "20:1").exit_code == 0
    assert yaml.safe_load((tmp_path / "weighted" / "config.yaml").read_text())["positive"] == "ill"


def test_costs_given_later_bring_the_training_prior(wine, tmp_path):
    table = pd.read_csv(wine).query("kind != 'three'").drop(columns="bottle")
    table.iloc[np.r_[0:20, 59:130]].to_csv(tmp_path / "two.csv", index=False)
    assert invoke("fit", tmp_path / "two.csv", "--target", "kind", "-o", tmp_path / "fit", *QUICK).exit_code == 0
    assert open_run(tmp_path / "fit").model.class_prior == "balanced"
    costs = {"miss": 2.0, "false_alarm": 1.0}
    assert open_run(tmp_path / "fit", costs=costs).model.class_prior == "training"
    assert open_run(tmp_path / "fit", costs=costs, class_prior="balanced").model.class_prior == "balanced"


def test_decision_by_naive_loop():
    classes, counts = np.array(["no", "yes"]), np.array([90, 10])

    def decided(config, p):
        costs = cost_matrix(config.model_costs(classes, counts), classes)
        return classes[lowest_cost(np.log([[1 - p, p]]), costs)].tolist()

    for p in np.linspace(0.01, 0.99, 99):
        cost_of_no, cost_of_yes = p * 3, (1 - p) * 1
        if abs(cost_of_no - cost_of_yes) > 1e-9:
            assert decided(FitConfig(costs={"miss": 3, "false_alarm": 1}), p) == [
                "yes" if cost_of_yes < cost_of_no else "no"
            ]
        for threshold in (0.1, 0.3, 0.7):
            wanted = "yes" if round(p, 6) >= threshold else "no"
            assert decided(FitConfig(threshold=threshold), p) == [wanted]
    swapped = FitConfig(positive="no", threshold=0.2)
    assert [decided(swapped, p) for p in (0.7, 0.9)] == [["no"], ["yes"]]
    with pytest.raises(InputError, match="is not a class"):
        FitConfig(positive="maybe", threshold=0.2).model_costs(classes, counts)


def test_settings_file_overrides_and_names(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("target: a\nseed: 3\nmodel:\n  head: linear\n")
    config = read_config(
        file,
        ["demixing.objective=gcl", "model.demixing.learning_rate=1e-3", "drop=[b, c]", "id=k"],
        seed=4,
        device=None,
    )
    assert config == FitConfig(
        target=("a",),
        seed=4,
        drop=("b", "c"),
        id=("k",),
        model={"demixing": {"objective": "gcl", "learning_rate": 1e-3}, "head": "linear"},
    )
    again = tmp_path / "again.yaml"
    again.write_text(config.as_yaml())
    assert read_config(again, []) == config
    for bad in ("seed: [", "- 1", "colour: red", "test_size: 1.5", "threshold: 2", "costs: {miss: 1}"):
        file.write_text(bad)
        with pytest.raises(InputError):
            read_config(file, [])


def test_rows_without_a_label_are_left_out_aloud(wine, tmp_path):
    table = pd.read_csv(wine)
    table.loc[:4, "kind"] = None
    table.to_csv(tmp_path / "gaps.csv", index=False)
    result = invoke("fit", tmp_path / "gaps.csv", "--target", "kind", "-o", tmp_path / "fit", *QUICK)
    assert result.exit_code == 0, result.output
    assert "5 rows without a label" in result.stderr


def test_arrays_and_images(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 30, 10])
    np.savez(tmp_path / "e.npz", X=rng.normal(size=(70, 4)) + 3 * y[:, None], y=y)
    assert invoke("fit", tmp_path / "e.npz", "-o", tmp_path / "e", *QUICK).exit_code == 0
    assert invoke("predict", tmp_path / "e", tmp_path / "e.npz", "-o", tmp_path / "e.csv").exit_code == 0
    assert (pd.read_csv(tmp_path / "e.csv")["predicted"] == y).mean() > 0.8
    for name, label in zip("abc", range(3), strict=True):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 80, (8, 8, 3)) + 80 * label
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / name / f"{number}.png")
    result = invoke(
        "fit", tmp_path / "images", "-o", tmp_path / "i", "--set", "image_size=8", "--set", "encoder.epochs=2",
        *QUICK,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    result = invoke("predict", tmp_path / "i", tmp_path / "images" / "a", "-o", tmp_path / "i.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "i.csv")["file"].tolist()[0] == "0.png"
    result = invoke("export", tmp_path / "i", "-o", tmp_path / "i.onnx")
    assert "(n, 3, 8, 8)" in " ".join(result.output.split())
    pixels = [np.asarray(Image.open(tmp_path / "images" / "a" / f"{number}.png")) for number in (0, 1)]
    rows = np.stack(pixels).transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
    _, p = onnxruntime.InferenceSession(tmp_path / "i.onnx").run(None, {"X": rows})
    said = pd.read_csv(tmp_path / "i.csv").set_index("file").loc[["0.png", "1.png"], ["p_a", "p_b", "p_c"]]
    np.testing.assert_allclose(p, said, atol=1e-5)


def test_ctrl_c_keeps_the_best_finished_state(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [80, 80, 80, 20])
    np.savez(tmp_path / "e.npz", X=rng.normal(size=(len(y), 3)) + y[:, None], y=y)
    epochs = []

    def run_epoch(steps, *args):
        epochs.append(steps)
        if len(epochs) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return _run_epoch(steps, *args)

    monkeypatch.setattr("ecrt.training._run_epoch", run_epoch)
    result = invoke(
        "fit",
        tmp_path / "e.npz",
        "-o",
        tmp_path / "fit",
        "--set",
        "model.demixing=flow",
        "--set",
        "demixing.n_restarts=1",
    )
    assert result.exit_code == 130, result.output
    assert "best finished state" in " ".join(result.stderr.split())
    model = ecrt.load(tmp_path / "fit" / "model")
    assert len(model.history_["restarts"][0].history.held_out_loss) == 3
    assert len(epochs) == 4  # nothing else that takes epochs was begun
    assert "Interrupted: training was interrupted" in (tmp_path / "fit" / "model" / "MODEL_CARD.md").read_text()


def target_of(column, task=None, **more):
    table = pd.DataFrame({"x": np.arange(len(column)), "y": column} | more)
    names = ("y", *more)
    data = DataFile(X=table[["x"]], y=table[list(names)].to_numpy() if more else table["y"].to_numpy(), ids=table)
    return read_target(labelled(data), names, task)


def test_the_task_is_found_from_the_target():
    rng = np.random.default_rng(0)
    assert target_of(["a", "b"] * 10).task == "classification"
    assert target_of([0, 1, 2, 1] * 5).task == "classification"
    assert target_of([1.0, 2.0, np.nan] * 5).y.tolist() == [1, 2] * 5
    assert target_of(rng.normal(size=50)).task == "regression"
    for amounts in (rng.permutation(5000), rng.integers(18, 90, size=1000)):
        with pytest.raises(InputError, match="--task classification or --task regression"):
            target_of(amounts)
        assert target_of(amounts, task="regression").task == "regression"
    with pytest.raises(InputError, match="holds values that are not numbers"):
        target_of(pd.date_range("2021-01-01", periods=20), task="regression")
    assert target_of([0, 1] * 10, z=[1, 1] * 10).task == "multilabel"
    assert target_of([0.5, 1] * 10, z=[1, 1] * 10).task == "regression"
    lists = target_of([["a", "b"], ["b"], []] * 4)
    assert (lists.task, lists.names) == ("multilabel", ("a", "b"))
    assert lists.y[:3].tolist() == [[1, 1], [0, 1], [0, 0]]
    joined = target_of(["a; b", "b"] * 4, task="multilabel")
    assert joined.y[:2].tolist() == [[1, 1], [0, 1]]
    assert "as asked for" in joined.reason


def test_regression_from_a_file(wine, tmp_path):
    options = ["--set", "model.demixing=linear", "--set", "model.head=linear", "--id", "bottle"]
    result = invoke("fit", wine, "--target", "alcohol", "-o", tmp_path / "fit", *options)
    assert result.exit_code == 0, result.output
    assert "Task: regression" in result.stderr
    result = invoke("predict", tmp_path / "fit", wine, "-o", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    table, truth = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(wine)["alcohol"]
    assert list(table) == ["bottle", "predicted"]
    assert np.corrcoef(table["predicted"], truth)[0, 1] > 0.7
    assert "Largest errors" in (tmp_path / "fit" / "report.html").read_text(encoding="utf-8")
    evaluated = invoke("evaluate", tmp_path / "fit", wine, "-o", tmp_path / "e")
    assert "rmse" in evaluated.output
    assert (tmp_path / "e" / "report.html").is_file()
    assert invoke("predict", tmp_path / "fit", wine, "--threshold", "0.2").exit_code == 1


def test_label_sets_from_a_file(wine, tmp_path):
    table = pd.read_csv(wine)
    strong, dark = table["alcohol"] > 13, table["color_intensity"] > 5
    table["tags"] = [";".join(np.array(["strong", "dark"])[[a, b]]) for a, b in zip(strong, dark, strict=True)]
    table = table[table["tags"] != ""].drop(columns="kind")
    table.to_json(tmp_path / "tags.jsonl", orient="records", lines=True)
    result = invoke(
        "fit", tmp_path / "tags.jsonl", "--target", "tags", "--task", "multilabel", "--id", "bottle", "-o",
        tmp_path / "fit", *QUICK,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    result = invoke("predict", tmp_path / "fit", tmp_path / "tags.jsonl", "-o", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["bottle", "predicted", "p_dark", "p_strong"]
    assert ((found["p_dark"] > 0.5).to_numpy() == dark[table.index].to_numpy()).mean() > 0.85
    assert "Frequent and rare labels" in (tmp_path / "fit" / "report.html").read_text(encoding="utf-8")
    assert "bce" in invoke("evaluate", tmp_path / "fit", tmp_path / "tags.jsonl").output


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_lists_of_labels_from_a_file(tmp_path, ending):
    X = np.random.default_rng(0).normal(size=(120, 2))
    lists = [[name for name, there in zip("ab", row, strict=True) if there] for row in X > [-1, 0.5]]
    table = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "topics": lists})
    table = pd.concat([table, table.head(30)])  # with copies, which are said
    file = tmp_path / f"lists.{ending}"
    table.to_parquet(file) if ending == "parquet" else table.to_json(file, orient="records", lines=True)
    result = invoke("fit", file, "--target", "topics", "-o", tmp_path / "fit", *QUICK)
    assert result.exit_code == 0, result.output
    assert "Task: multilabel, since rows have lists of labels" in result.stderr
    assert "30 of 150 rows are copies" in result.stderr
    assert invoke("predict", tmp_path / "fit", file, "-o", tmp_path / "p.csv").exit_code == 0
    found = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)
    assert (found["predicted"] == [";".join(row) for row in table["topics"]]).mean() > 0.8
    assert "bce" in invoke("evaluate", tmp_path / "fit", file).output
    for command in (["fit", file, "--task", "classification"], ["diagnose", file], ["compare", file]):
        result = invoke(*command, "--target", "topics", "-o", tmp_path / "other")
        assert result.exit_code == 1
        assert "The target holds lists of labels, not one class" in result.stderr


def test_a_matrix_of_labels_in_an_npz_file(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 3))
    np.savez(tmp_path / "m.npz", X=X, y=(X[:, :2] > [0.2, 0.6]).astype(int))
    result = invoke("fit", tmp_path / "m.npz", "-o", tmp_path / "fit", *QUICK)
    assert result.exit_code == 0, result.output
    assert "Task: multilabel" in result.stderr
    assert invoke("predict", tmp_path / "fit", tmp_path / "m.npz", "-o", tmp_path / "p.csv").exit_code == 0
    assert list(pd.read_csv(tmp_path / "p.csv")) == ["row", "predicted", "p_y_0", "p_y_1"]
    assert "bce" in invoke("evaluate", tmp_path / "fit", tmp_path / "m.npz").output


def test_evaluate_counts_labels_that_the_model_does_not_know_as_missed(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    tags = [";".join(np.array(["a", "b", "c"])[row]) or "a" for row in X > 0.3]
    table = pd.DataFrame(X, columns=["x", "y", "z"]).assign(tags=tags)
    table.to_csv(tmp_path / "old.csv", index=False)
    options = ["--target", "tags", "--task", "multilabel", "-o", tmp_path / "fit", *QUICK]
    assert invoke("fit", tmp_path / "old.csv", *options).exit_code == 0
    new = table.head(40)
    new.to_csv(tmp_path / "known.csv", index=False)
    new.assign(tags=[f"{tag};new" if row < 10 else tag for row, tag in enumerate(new["tags"])]).to_csv(
        tmp_path / "unknown.csv", index=False
    )
    figures = {}
    for name in ("known", "unknown"):
        result = invoke("evaluate", tmp_path / "fit", tmp_path / f"{name}.csv", "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
        figures[name] = json.loads((tmp_path / name / "metrics.json").read_text())
    known, unknown = (figures[name]["metrics"]["test"] for name in ("known", "unknown"))
    assert figures["unknown"]["unknown_labels"] == {"new": 10}
    assert unknown["bce"] == known["bce"]
    assert unknown["macro_f1"] == pytest.approx(known["macro_f1"] * 3 / 4)  # of four labels one is never found
    assert unknown["micro_f1"] < known["micro_f1"]
    assert unknown["accuracy"] < known["accuracy"]
    assert unknown["subset_accuracy"] <= 30 / 40
    page, told = (tmp_path / "unknown" / "report.html").read_text(), figures["unknown"]
    assert "does not know these labels: “new” (10 rows)" in page
    errors, without = "accuracy, macro_f1, micro_f1, subset_accuracy", "bce, mean_average_precision"
    assert f"errors in {errors}; they are left out of {without}." in page
    assert f"new (10). Errors in {errors}; left out of {without}." in result.output
    for name in told["metrics"]["test"]:
        assert (name in errors.split(", ")) == (unknown[name] != known[name])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_evaluate_takes_labels_and_task_from_the_model(wine, tmp_path, rows):
    """Of few rows labels look like numbers, and each of them seems to have its own label."""
    table = pd.read_csv(wine).drop(columns="bottle")
    table["kind"] = table["kind"].map({"one": "1", "two": "2", "three": "three"})
    table.to_csv(tmp_path / "old.csv", index=False)
    assert invoke("fit", tmp_path / "old.csv", "--target", "kind", "-o", tmp_path / "fit", *QUICK).exit_code == 0
    table.iloc[[0, 70, 170][:rows]].to_csv(tmp_path / "new.csv", index=False)
    result = invoke("evaluate", tmp_path / "fit", tmp_path / "new.csv", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert found["unknown_labels"] == {}
    assert found["metrics"]["balanced"]["top1"] == 1


def test_evaluate_of_a_single_number(wine, tmp_path):
    options = ["--target", "alcohol", "-o", tmp_path / "fit", "--id", "bottle", *QUICK]
    assert invoke("fit", wine, *options).exit_code == 0
    pd.read_csv(wine).head(1).to_csv(tmp_path / "new.csv", index=False)
    result = invoke("evaluate", tmp_path / "fit", tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    assert "rmse" in result.output
