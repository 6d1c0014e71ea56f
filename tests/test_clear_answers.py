"""Whatever is passed gets a right answer or one clear line: large sparse answers, Datasets, odd encoders and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset
from typer.testing import CliRunner

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, Encoder, InputError
from ecrt.cli import app

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")
LINEAR = {"demixing": "linear", "head": "linear", "random_state": 0}
RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 4)) + 3 * np.eye(4)[Y]
ITEMS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
SEVERAL = np.column_stack([X[:, 0] > 1, X[:, 1] > 1, X[:, 2] > 1]).astype(int)


def test_sparse_labels_of_many_rows_are_predicted_as_those_of_few():
    clf = ECRTClassifier(**LINEAR).fit(X, sparse.csr_array(SEVERAL))
    many = np.tile(X, (150, 1))
    found = clf.predict(many)
    assert sparse.issparse(found)
    assert found.shape == (9000, 3)
    assert (found.toarray() == np.tile(clf.predict(X).toarray(), (150, 1))).all()


def test_score_takes_a_dataset():
    clf = ECRTClassifier(**LINEAR).fit(X, Y)
    assert clf.score(ITEMS) == clf.score(X, Y) > 0.8
    rival = BaselineClassifier(random_state=0).fit(ITEMS)
    assert rival.score(ITEMS) == rival.score(X, Y) > 0.8
    numbers = TensorDataset(torch.from_numpy(X), torch.from_numpy(X[:, 0] + X[:, 1]))
    reg = ECRTRegressor(**LINEAR).fit(numbers)
    assert reg.score(numbers) == pytest.approx(reg.score(X, X[:, 0] + X[:, 1]))
    labels = TensorDataset(torch.from_numpy(X), torch.from_numpy(SEVERAL))
    several = ECRTClassifier(**LINEAR).fit(labels)
    assert several.score(labels) == several.score(X, SEVERAL)
    for model in (clf, rival, reg):
        with pytest.raises(InputError, match="do not pass y as well"):
            model.score(ITEMS, Y)
        with pytest.raises(InputError, match="compares predictions with y"):
            model.score(X)


@pytest.mark.parametrize("train_encoder", [True, False])
@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (nn.Conv2d(1, 2, 3), r"must return a matrix.*\(1, 2, 4, 4\).*nn.Flatten"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(36, 3)), r"must return a matrix.*\(3,\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(35, 3)), r"does not take items of shape \(1, 6, 6\)"),
    ],
)
def test_an_encoder_that_cannot_serve_is_named(encoder, message, train_encoder):
    images = RNG.normal(size=(30, 1, 6, 6))
    for model in (
        ECRTClassifier(encoder=Encoder(encoder, train=train_encoder)),
        BaselineClassifier(encoder=Encoder(encoder, train=train_encoder)),
        ECRTTransformer(encoder=Encoder(encoder, train=train_encoder)),
    ):
        with pytest.raises(InputError, match=message):
            model.fit(images, Y[:30])


class Pairs(Dataset):
    """Items as they are given."""

    def __init__(self, items: list) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        return self.items[index]


class OneItem(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 0)])


@pytest.mark.parametrize("source", ["shards", "shards/*.parquet"])
def test_predictions_are_not_written_over_a_file_of_the_folder_that_is_read(tmp_path, monkeypatch, source):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.chdir(tmp_path)
    Path("shards").mkdir()
    for name in ("a", "b"):
        pd.DataFrame(X).rename(columns=str).to_parquet(f"shards/{name}.parquet")
    before = Path("shards/b.parquet").read_bytes()
    result = CliRunner().invoke(app, ["predict", "model", source, "-o", "shards/b.parquet"])
    assert result.exit_code == 1
    assert "is the file to predict" in result.stderr
    assert Path("shards/b.parquet").read_bytes() == before


def test_iterable_datasets_are_for_estimators_that_stream():
    with pytest.raises(InputError, match="minimum of 2"):
        ECRTClassifier(**LINEAR).fit(OneItem())
    for model in (BaselineClassifier(), ECRTRegressor(**LINEAR)):
        with pytest.raises(InputError, match=r"in memory|dataset"):
            model.fit(OneItem())


@pytest.mark.parametrize(
    "dataset", [Pairs([]), Pairs([(object(), 0)] * 4), Pairs([3, 4, 5]), Pairs([("text", 0), ("more", 1)])]
)
def test_a_dataset_that_cannot_serve_is_named(dataset):
    for model in (ECRTClassifier(**LINEAR), BaselineClassifier(), ECRTRegressor(**LINEAR)):
        with pytest.raises(InputError, match="dataset"):
            model.fit(dataset)
    clf = ECRTClassifier(**LINEAR).fit(ITEMS)
    if not (isinstance(dataset, Pairs) and len(dataset) == 3):
        with pytest.raises(InputError):
            clf.predict(dataset)


def test_items_of_another_shape_than_those_of_the_fit_are_named():
    for options in ({}, {"encoder": Encoder(nn.Linear(4, 3).double(), train=False)}):
        clf = ECRTClassifier(**LINEAR, **options).fit(ITEMS)
        with pytest.raises(InputError, match="shape"):
            clf.predict(TensorDataset(torch.from_numpy(X[:, :3])))


def test_a_device_that_is_not_there_is_named():
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match=r"device='cuda' cannot be used here\. Use 'auto' or 'cpu', since"):
            ECRTClassifier(**LINEAR, device="cuda").fit(X, Y)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(Y).astype("category"), Y == 1, (Y + 1).astype(float), np.array(["a", "b", "c"], dtype=object)[Y],
        Y.tolist(), pd.Series(Y, dtype="Int64"), pd.Series(np.array(["a", "b", "c"])[Y], dtype="string"),
    ],
)  # fmt: skip
def test_labels_of_any_kind_come_back_as_they_were(labels):
    clf = ECRTClassifier(**LINEAR).fit(X, labels)
    assert clf.score(X, labels) > 0.8
    assert set(clf.predict(X)) <= set(np.asarray(labels).tolist())


@pytest.mark.parametrize(
    "labels", [SEVERAL == 1, pd.DataFrame(SEVERAL, columns=list("abc")), SEVERAL.tolist(), sparse.coo_matrix(SEVERAL)]
)
def test_several_labels_of_any_form_are_the_same(labels):
    proba = ECRTClassifier(**LINEAR).fit(X, labels).predict_proba(X)
    np.testing.assert_array_equal(proba, ECRTClassifier(**LINEAR).fit(X, SEVERAL).predict_proba(X))


def test_labels_that_no_row_or_every_row_has():
    labels = np.column_stack([SEVERAL, np.zeros(60, int), np.ones(60, int)])
    clf = ECRTClassifier(**LINEAR, class_prior="training").fit(X, labels)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert clf.predict(X)[:, 3].sum() == 0
    assert clf.predict(X)[:, 4].mean() > 0.9


@pytest.mark.parametrize("method", ["predict", "transform", "decision_function"])
def test_rows_of_the_wrong_shape_are_named(method):
    clf = ECRTClassifier(**LINEAR).fit(X, Y)
    assert len(getattr(clf, method)(X[:1])) == 1
    for wrong in (X[:, :3], X[0], X[:0], []):
        with pytest.raises(ValueError, match=r"features|2D|sample"):
            getattr(clf, method)(wrong)


def test_targets_of_odd_shapes():
    reg = ECRTRegressor(**LINEAR)
    assert np.allclose(reg.fit(X, np.full(60, 7.0)).predict(X), 7.0, atol=1e-3)
    assert reg.fit(X, np.column_stack([X[:, 0], X[:, 1]])).predict(X).shape == (60, 2)
    assert reg.fit(X, Y).predict(X).dtype.kind == "f"


@pytest.mark.parametrize("options", [{"flip": True}, {"crop_padding": 2}])
def test_shifting_and_mirroring_of_rows_is_refused(options):
    clf = ECRTClassifier(encoder=Encoder("mlp", epochs=2, **options), **LINEAR)
    with pytest.raises(InputError, match="are for images"):
        clf.fit(X, Y)


@pytest.mark.parametrize("kind", [ECRTClassifier, BaselineClassifier, ECRTTransformer])
def test_dates_are_no_classes(kind):
    days = np.datetime64("2021-05-03") + Y
    for labels in (days, pd.Series(days), days - days[0]):
        with pytest.raises(InputError, match="dates or times"):
            kind().fit(X, labels)


@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[s]"])
def test_arrays_of_dates_are_no_numbers(kind):
    X, y = np.arange(40).reshape(20, 2), np.arange(20) % 2
    clf = BaselineClassifier(random_state=0).fit(X, y)
    for ask in (clf.predict, lambda rows: BaselineClassifier().fit(rows, y)):
        with pytest.raises(InputError, match="X holds dates or times"):
            ask(X.astype(kind))


def invoke(*arguments):
    quick = ["--set", "model.demixing=none", "--set", "model.head=linear", "--set", "test_size=0"]
    further = quick if arguments[0] == "fit" else []
    return CliRunner().invoke(app, [str(argument) for argument in (*arguments, *further)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop", "kind"], "'kind' is given as the target and dropped"),
        (["--id", "kind"], "'kind' is given as the target and an id"),
        (["--target", "kind"], "'kind' is given as the target and the target"),
        (["--id", "x", "--drop", "x"], "'x' is given as an id (--id) and dropped"),
        (["--drop", "x", "--types", "x=category"], "--types x has no effect"),
    ],
)
def test_a_column_has_one_use(tmp_path, options, message):
    file = tmp_path / "rows.csv"
    pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "kind": Y}).to_csv(file, index=False)
    result = invoke("fit", file, "--target", "kind", "-o", tmp_path / "model", *options)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("words", [("False", "True"), ("false", "TRUE"), ("0", "1"), (False, True)])
def test_several_targets_of_true_and_false_are_labels(tmp_path, words):
    file = tmp_path / ("rows.csv" if isinstance(words[0], str) else "rows.parquet")
    table = pd.DataFrame({"x": X[:, 0], "a": np.array(words)[SEVERAL[:, 0]], "b": np.array(words)[SEVERAL[:, 1]]})
    table.to_csv(file, index=False) if file.suffix == ".csv" else table.to_parquet(file)
    result = invoke("fit", file, "--target", "a", "--target", "b", "-o", tmp_path / "model")
    assert result.exit_code == 0, result.stderr
    assert "Task: multilabel" in result.stderr
    result = invoke("evaluate", tmp_path / "model", file)
    assert result.exit_code == 0, result.stderr


def test_labels_that_may_be_lists_are_said(tmp_path):
    file = tmp_path / "rows.csv"
    pd.DataFrame({"x": X[:, 0], "tags": np.where(Y[0] == Y, "u;v", "v")}).to_csv(file, index=False)
    result = invoke("fit", file, "--target", "tags", "-o", tmp_path / "model")
    assert "Labels such as 'u;v' are each read as one class" in result.stderr
    result = invoke("fit", file, "--target", "tags", "--task", "multilabel", "-o", tmp_path / "model")
    assert "one class each" not in result.stderr
