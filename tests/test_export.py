"""Models in other programs: the torch module, its torch.export, the ONNX file, joblib, and MLflow."""

from __future__ import annotations

import builtins
import json
import runpy
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, Encoder, Flow, Linear, MLPHead
from ecrt.cli import app
from ecrt.errors import InputError
from ecrt.estimators.export import OPSET
from ecrt.nn import CosineHead
from ecrt.rivals import known_rivals

onnx = pytest.importorskip("onnx", reason="onnx is not installed: the extra onnx has it")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: the extra onnx has it")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

N, D = 300, 5
ROWS = 10_000
WITHIN = 1e-5
"""What is promised."""
QUICK_FLOW = Flow(blocks=2, n_restarts=1, epochs=2)
QUICK_MLP = MLPHead(hidden=(16,), epochs=2)


def data(n_classes=3):
    weights = [0.6, 0.3, 0.1] if n_classes == 3 else [0.8, 0.2]
    return make_classification(
        N, n_features=D, n_informative=4, n_redundant=1, n_classes=n_classes, n_clusters_per_class=1, weights=weights,
        random_state=0,
    )  # fmt: skip


X, Y = data()
RNG = np.random.default_rng(0)
INDICATOR = np.stack([Y == 0, Y == 2, X[:, 0] > 1, np.zeros(N, bool)], axis=1).astype(int)  # the last on no row
TARGETS = np.stack([np.exp(X[:, 0]), 1e6 + X[:, 1] ** 2], axis=1)


def new_rows(n_columns=D, n=ROWS):
    """Rows like those of the fit, rows far beyond them, and equal numbers."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(n, n_columns)) * 2
    far = rng.random(n) < 0.3
    rows[far] *= 10.0 ** rng.uniform(-12, 40, (far.sum(), 1))
    rows[:5] = 0.0
    rows[5:7] = [[1e90], [-1e90]]
    return rows


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def expected(model, rows):
    """What the model itself predicts, by the names of the outputs."""
    if hasattr(model, "predict_proba"):
        return {"label": np.asarray(model.predict(rows)), "probabilities": model.predict_proba(rows)}
    return {"prediction": model.predict(rows)} if hasattr(model, "predict") else {"sources": model.transform(rows)}


def check_equal(model, path, rows, within=WITHIN):
    """The file in onnxruntime, the module and its torch.export against the model, for all rows and for one."""
    model.to_onnx(path)
    run, module = session(path), model.to_module()
    shown = torch.from_numpy(model.read_rows(rows))
    names = [output.name for output in run.get_outputs()]
    assert names == list(module.output_names)
    exported = torch.export.export(module, (shown[:4],), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    for some in (slice(None), slice(1)):
        wanted, numbers = expected(model, rows[some]), shown[some]
        found = dict(zip(names, run.run(None, {"X": numbers.numpy()}), strict=True))
        assert list(found) == list(wanted)
        for name, values in wanted.items():
            assert found[name].shape == values.shape
            if name == "label":
                sure = decided(wanted["probabilities"], within)
                assert sure.mean() > 0.9
                assert (found[name][sure] == values[sure]).all()
            else:
                size = np.maximum(np.abs(values), 1.0)  # sources and targets may be large
                assert (np.abs(found[name] - values) / size).max() <= within
        for traced in (module(numbers), exported(numbers)):
            values = traced[-1] if isinstance(traced, tuple) else traced
            answer = wanted[names[-1]]
            assert (np.abs(values.numpy() - answer) / np.maximum(np.abs(answer), 1.0)).max() <= within
    return run


def decided(probabilities, within):
    """Rows, or entries of several labels, that no rounding can decide otherwise."""
    ordered = np.sort(probabilities, axis=1)
    return ordered[:, -1] - ordered[:, -2] > 2 * within


@cache
def members_of_all():
    """Members of every kind."""
    parts = [
        ("none", "linear"), ("linear", "gaussian"), ("linear", QUICK_MLP), (QUICK_FLOW, "linear"), ("none", "trees"),
        ("linear", "trees"),
    ]  # fmt: skip
    return [ECRTClassifier(demixing=demixing, head=head, random_state=0).fit(X, Y) for demixing, head in parts]


def blend_of_all():
    """All of them together, each with a weight of its own."""
    fits = members_of_all()
    weights = np.linspace(0.1, 0.4, len(fits))
    together = deepcopy(fits[0])
    together.members_ = tuple(
        replace(fit.members_[0], weight=float(weight)) for fit, weight in zip(fits, weights, strict=True)
    )
    return together


CLASSIFIERS = {
    "linear": lambda: ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, Y),
    "plain-mlp": lambda: ECRTClassifier(demixing="none", head=MLPHead(epochs=2, dropout=0.3), random_state=0).fit(X, Y),
    "gaussian": lambda: ECRTClassifier(demixing="linear", head="gaussian", random_state=0).fit(X, Y),
    "trees": lambda: ECRTClassifier(demixing="none", head="trees", random_state=0).fit(X, Y),
    "two-classes-trees": lambda: ECRTClassifier(demixing="none", head="trees", random_state=0).fit(*data(2)),
    "flow": lambda: ECRTClassifier(demixing=QUICK_FLOW, head=QUICK_MLP, random_state=0).fit(X, Y),
    "few-sources": lambda: ECRTClassifier(demixing=Linear(n_sources=2), head="gaussian", random_state=0).fit(X, Y),
    "blend": blend_of_all,
    "training-prior": lambda: ECRTClassifier(
        demixing="none", head="linear", class_prior="training", random_state=0
    ).fit(X, Y),
    "given-prior": lambda: ECRTClassifier(
        demixing="none", head="linear", class_prior=[0.2, 0.1, 0.7], random_state=0
    ).fit(X, Y),
    "mlp-encoder": lambda: ECRTClassifier(
        encoder=Encoder("mlp", hidden=(16,), n_features=3, epochs=2), demixing="linear", head="linear", random_state=0
    ).fit(X, Y),
    "autoencoder": lambda: ECRTClassifier(
        encoder=Encoder("autoencoder", hidden=(16,), n_features=3, epochs=2), demixing="none", head="linear",
        random_state=0,
    ).fit(X, Y),
    "own-encoder": lambda: ECRTClassifier(
        encoder=Encoder(nn.Sequential(nn.Linear(D, 4), nn.Tanh()), train=False), demixing="none", head="linear",
        random_state=0,
    ).fit(X, Y),
}  # fmt: skip

RIVALS = ("erm", "ldam-drw", "mixup", "lda", "gradient-boosting", "balanced-forest", "distribution-calibration",
          "tau-norm", "crt")  # fmt: skip
FEW_TREES = {"gradient-boosting": {"max_iter": 20}, "balanced-forest": {"n_estimators": 20}}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_give_the_same_in_onnxruntime_and_under_torch_export(name, tmp_path):
    check_equal(CLASSIFIERS[name](), tmp_path / "model.onnx", new_rows(), within=1e-11)  # nothing goes through float32


@pytest.mark.parametrize("method", RIVALS)
def test_networks_and_trees_of_rivals_give_the_same(method, tmp_path):
    rival = known_rivals()[method](**FEW_TREES.get(method, {}))
    model = BaselineClassifier(method=rival, random_state=0).fit(np.abs(X), Y)
    check_equal(model, tmp_path / "model.onnx", np.abs(new_rows()), within=1e-11)


def test_a_rival_that_trains_an_encoder_gives_the_same(tmp_path):
    encoder = Encoder("mlp", hidden=(16,), n_features=4, epochs=2, head="cosine", holdout=0)
    model = BaselineClassifier(method="ldam", encoder=encoder, random_state=0).fit(X, Y)
    assert model.end_to_end_
    assert any(isinstance(one, CosineHead) for one in model.head_.modules())
    check_equal(model, tmp_path / "model.onnx", new_rows())


def test_a_model_of_another_library_is_refused_and_named(tmp_path):
    model = BaselineClassifier(method="qda", random_state=0).fit(X, Y)
    with pytest.raises(InputError, match=r"QuadraticDiscriminantAnalysis.*skl2onnx"):
        model.to_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("thresholds", ["half", "validation"])
@pytest.mark.parametrize("prior", ["balanced", "training"])
def test_several_labels_give_the_same(thresholds, prior, tmp_path):
    with pytest.warns(ecrt.ECRTWarning, match="No row has the label"):
        model = ECRTClassifier(
            demixing="linear", head="linear", thresholds=thresholds, class_prior=prior, random_state=0
        ).fit(X, INDICATOR)  # fmt: skip
    path, rows = tmp_path / "model.onnx", new_rows()
    model.to_onnx(path)
    label, p = session(path).run(None, {"X": rows})
    wanted = model.predict_proba(rows)
    assert np.abs(p - wanted).max() <= WITHIN
    cuts = 0.0 if model.thresholds_ is None else model.thresholds_ + model.log_class_prior_
    sure = np.abs(model.decision_function(rows) - cuts) > WITHIN
    assert sure.mean() > 0.9
    assert (label == model.predict(rows))[sure].all()
    assert set(np.unique(label)) == {0, 1}
    assert not label[:, 3].any()
    assert np.abs(model.to_module()(torch.from_numpy(rows))[1].numpy() - wanted).max() <= WITHIN


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("demixing", ["none", "linear", QUICK_FLOW], ids=["none", "linear", "flow"])
def test_regressors_give_the_same(outputs, demixing, tmp_path):
    y = TARGETS[:, 0] if outputs == 1 else TARGETS
    model = ECRTRegressor(demixing=demixing, head=QUICK_MLP, weighted=False, random_state=0).fit(X, y)
    check_equal(model, tmp_path / "model.onnx", new_rows())


@pytest.mark.parametrize(
    ("demixing", "columns"),
    [("none", D), ("linear", D), (Linear(n_sources=2), D), (QUICK_FLOW, D), (QUICK_FLOW, 1)],
    ids=["none", "linear", "two", "flow", "flow-of-one"],
)
def test_transformers_give_the_same(demixing, columns, tmp_path):
    model = ECRTTransformer(demixing=demixing, random_state=0).fit(X[:, :columns], Y)
    check_equal(model, tmp_path / "model.onnx", new_rows(columns))


def test_more_columns_than_rows_keep_their_thin_map(tmp_path):
    wide = np.random.default_rng(2).normal(size=(60, 400))
    model = ECRTClassifier(demixing="linear", head="gaussian", random_state=0).fit(wide, Y[:60])
    path = tmp_path / "model.onnx"
    check_equal(model, path, new_rows(400, 1000))
    assert path.stat().st_size < 400 * 400 * 8


def test_columns_that_never_vary_are_left_out(tmp_path):
    constant = np.insert(X, 2, 7.0, axis=1)
    for demixing in ("none", "linear"):
        model = ECRTClassifier(demixing=demixing, head="gaussian", random_state=0).fit(constant, Y)
        check_equal(model, tmp_path / "model.onnx", new_rows(D + 1))


def test_float32_stays_float32(tmp_path):
    model = blend_of_all().set_params(precision="float32")
    run = check_equal(model, tmp_path / "model.onnx", new_rows())
    assert [one.type for one in run.get_outputs()] == ["tensor(int64)", "tensor(float)"]
    assert run.get_inputs()[0].type == "tensor(double)"  # large numbers lose their differences otherwise


def test_a_class_that_the_file_cannot_name_is_named(tmp_path):
    labels = np.array(["a", "b\ud800", "c"], dtype=object)[Y]
    model = ECRTClassifier(demixing="none", head="linear", random_state=0).fit(X, labels)
    with pytest.raises(InputError, match=r"class 'b.*' holds letters that UTF-8"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names",
    [["a", "ß", "long name"], [-3, 0, 2**40], [5, 2**63, 2**64 - 1], [0.5, 1.5, 2.0], [False, True]],
    ids=["text", "whole", "large", "halves", "truth"],
)
def test_labels_are_the_classes_themselves(names, tmp_path):
    rows, y = data(len(names))
    labels = np.array(names)[y]
    if labels.dtype == float:
        labels = labels.astype(str)  # scikit-learn takes fractions for a regression
    model = ECRTClassifier(demixing="none", head="linear", random_state=0).fit(rows, labels)
    run = check_equal(model, tmp_path / "model.onnx", new_rows())
    label, _ = run.run(["label", "probabilities"], {"X": rows})
    assert (label == model.predict(rows)).all()
    assert json.loads(run.get_modelmeta().custom_metadata_map["classes"]) == model.classes_.tolist()


@pytest.mark.parametrize("offsets", [None, [0.0, 0.3, -0.2]])
def test_costs_decide_in_the_file_as_they_do_in_the_model(offsets, tmp_path):
    costs = np.array([[0.0, 1.0, 1.0], [5.0, 0.0, 1.0], [20.0, 3.0, 0.0]])
    clf = ECRTClassifier(demixing="linear", head="linear", costs=costs, random_state=0).fit(X, Y)
    if offsets is not None:
        clf.decision_ = replace(clf.decision_, offsets=np.array(offsets))
    clf.to_onnx(tmp_path / "model.onnx")
    rows = new_rows()
    label, _ = session(tmp_path / "model.onnx").run(None, {"X": clf.read_rows(rows)})
    np.testing.assert_array_equal(label, clf.predict(rows))
    assert (label != clf.set_params(costs=None).predict(rows)).any()


def test_the_file_says_what_it_is(tmp_path):
    model = CLASSIFIERS["linear"]()
    path = tmp_path / "model.onnx"
    model.to_onnx(path)
    proto = onnx.load(path)
    assert [(one.domain, one.version) for one in proto.opset_import] == [("", OPSET)]
    assert f"opset {OPSET} " in ECRTClassifier.to_onnx.__doc__
    assert proto.producer_name == "ecrt"
    (rows,) = proto.graph.input
    assert [size.dim_param or size.dim_value for size in rows.type.tensor_type.shape.dim] == ["rows", D]
    said = {one.key: json.loads(one.value) for one in proto.metadata_props}
    assert said == {"estimator": "ECRTClassifier", "columns": [f"x{k}" for k in range(D)], "classes": [0, 1, 2]}
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_is_read_by_the_model_and_only_then_passed_on(tmp_path):
    table = pd.DataFrame({
        "amount": np.where(np.arange(N) % 7, X[:, 0], np.nan),
        "colour": np.array(["red", "green", "blue"])[(Y + np.arange(N)) % 3],
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N) % 50, unit="D"),
    })  # fmt: skip
    model = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(table, Y)
    path = tmp_path / "model.onnx"
    model.to_onnx(path)
    numbers = model.read_rows(table)
    assert numbers.shape == (N, len(model.table_.names_out))
    run = session(path)
    assert json.loads(run.get_modelmeta().custom_metadata_map["columns"]) == model.table_.names_out
    assert np.abs(run.run(["probabilities"], {"X": numbers})[0] - model.predict_proba(table)).max() <= WITHIN


def test_a_module_does_not_change_when_the_model_does():
    model = CLASSIFIERS["linear"]()
    rows = torch.from_numpy(new_rows())
    module = model.to_module()
    _, before = module(rows)
    assert not any(values.requires_grad for values in module.parameters())
    model.set_params(class_prior=[0.01, 0.01, 0.98])
    assert torch.equal(module(rows)[1], before)
    assert (model.to_module()(rows)[1] - before).abs().max() > 0.1
    ours = {id(values) for one in model.members_ for values in one.network.parameters()}
    assert not ours & {id(values) for values in module.parameters()}


def test_making_a_module_draws_no_random_number():
    model = CLASSIFIERS["flow"]()
    before = torch.get_rng_state()
    model.to_module()
    assert torch.equal(torch.get_rng_state(), before)


# --- images and Datasets ----------------------------------------------------------------------------------------------


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(1, 3, 3)

    def forward(self, x):
        return torch.relu(self.inner(x)).mean((2, 3))


class FixedBatch(nn.Module):
    """Knows how many rows it was shown."""

    def forward(self, x):
        return x.flatten(1) * float(len(x) > 1) + x.flatten(1)


def images(n=120):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], n // 3)
    return rng.random((n, 1, 8, 8)) + 0.5 * y[:, None, None, None], y


@pytest.mark.parametrize("network", ["own", "resnet18"])
def test_images_go_through_their_encoder(network, tmp_path):
    x, y = images()
    encoder = Encoder(Convolution(), train=False) if network == "own" else Encoder("resnet18", n_features=4, epochs=1)
    model = ECRTClassifier(encoder=encoder, demixing="none", head="linear", random_state=0).fit(x, y)
    path = tmp_path / "model.onnx"
    model.to_onnx(path)
    numbers = model.read_rows(x)
    assert numbers.dtype == np.float32
    for some in (slice(None), slice(1)):
        (p,) = session(path).run(["probabilities"], {"X": numbers[some]})
        assert np.abs(p - model.predict_proba(x[some])).max() <= WITHIN
    assert (session(path).run(["label"], {"X": numbers})[0] == model.predict(x)).mean() > 0.98


def test_a_dataset_tells_the_shape_where_the_model_does_not_know_it(tmp_path):
    x, y = images()
    items = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))
    model = ECRTClassifier(
        encoder=Encoder(Convolution(), train=False), demixing="none", head="linear", random_state=0
    ).fit(items)  # fmt: skip
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="pass some of its items as X"):
        model.to_onnx(path)
    for shown in (items, x[:2]):
        model.to_onnx(path, X=shown)
        _, p = session(path).run(None, {"X": x.astype(np.float32)})
        assert np.abs(p - model.predict_proba(items)).max() <= WITHIN
    rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    for encoder in ("identity", Encoder("mlp", hidden=(8,), n_features=3, epochs=1)):
        known = ECRTClassifier(encoder=encoder, demixing="none", head="linear", random_state=0).fit(rows)
        known.to_onnx(path)
        assert np.abs(session(path).run(None, {"X": X})[1] - known.predict_proba(rows)).max() <= WITHIN


def test_an_encoder_that_cannot_be_traced_is_refused_and_writes_nothing(tmp_path):
    model = ECRTClassifier(
        encoder=Encoder(FixedBatch(), train=False), demixing="none", head="linear", random_state=0
    ).fit(X, Y)  # fmt: skip
    with pytest.raises(InputError, match="FixedBatch"):
        model.to_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_fitted_is_refused(tmp_path):
    for call in (lambda one: one.to_module(), lambda one: one.to_onnx(tmp_path / "a"), lambda one: one.read_rows(X)):
        with pytest.raises(ValueError, match="not fitted"):
            call(ECRTClassifier())


def test_without_the_extra_its_name_is_said(tmp_path, monkeypatch):
    model, real = CLASSIFIERS["linear"](), builtins.__import__

    def missing(name, *rest):
        if name.partition(".")[0] in ("onnx", "onnxscript"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'ecrt\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    model = CLASSIFIERS["linear"]()
    monkeypatch.setattr("ecrt.disk.os.replace", lambda *names: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(InputError, match="No space left"):
        model.to_onnx(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_too_large_for_the_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ecrt.estimators.export.LARGEST_FILE", 100)
    with pytest.raises(InputError, match="an ONNX file holds less than 100"):
        CLASSIFIERS["linear"]().to_onnx(tmp_path / "model.onnx")


# --- the command ------------------------------------------------------------------------------------------------------


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_command_exports_what_predict_predicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, y = data(2)
    table = pd.DataFrame(rows, columns=[f"c{k}" for k in range(D)]).assign(kind=np.array(["no", "yes"])[y])
    table.to_csv("rows.csv", index=False)
    fitted = command("fit", "rows.csv", "--target", "kind", "-o", "fit", "--set", "model.demixing=none", "--set",
                     "model.head=linear", "--threshold", "0.9")  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    for more in ([], ["--threshold", "0.2"], ["--class-prior", "training", "--costs", "10:1"]):
        assert command("predict", "fit", "rows.csv", "-o", "said.csv", *more).exit_code == 0
        exported = command("export", "fit", "-o", "model.onnx", *more)
        assert exported.exit_code == 0, exported.output
        assert "Model: model.onnx" in exported.output
        said = pd.read_csv("said.csv")
        numbers = ecrt.load("fit/model").read_rows(table.drop(columns="kind"))
        label, p = session("model.onnx").run(None, {"X": numbers})
        assert np.abs(p - said[["p_no", "p_yes"]]).to_numpy().max() <= WITHIN
        assert (label == said["predicted"]).all()
    assert len(set(said["predicted"])) == 2
    refused = command("export", "fit", "-o", "fit")
    assert refused.exit_code == 1
    assert "fit" in refused.output
    assert ecrt.load("fit/model").classes_.tolist() == ["no", "yes"]


def test_the_command_writes_the_names_of_several_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X).assign(price=TARGETS[:, 0], size=TARGETS[:, 1]).to_csv("rows.csv", index=False)
    fitted = command("fit", "rows.csv", "--target", "price", "--target", "size", "-o", "fit", "--set",
                     "model.demixing=none", "--set", "model.head=linear")  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    assert command("export", "fit").exit_code == 0
    assert json.loads(session("model.onnx").get_modelmeta().custom_metadata_map["targets"]) == ["price", "size"]


# --- joblib and MLflow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "trees", "flow"])
def test_joblib_keeps_a_model_and_a_pipeline(name, tmp_path):
    model = CLASSIFIERS[name]()
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.get_params().keys() == model.get_params().keys()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, Y)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    assert np.array_equal(joblib.load(tmp_path / "pipeline.joblib").predict(X), pipeline.predict(X))


def test_a_model_in_mlflow_gives_the_same_probabilities(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow", reason="mlflow is not installed: make test-floor runs this")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(Path(__file__).parent.parent / "examples" / "mlflow_model.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == "MLflow gives the same probabilities: True"
    assert list(tmp_path.iterdir()) == []
