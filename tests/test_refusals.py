"""What cannot be done is refused at once, in a line that says what would be right."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, Encoder, InputError, LinearHead, MLPHead
from ecrt.data import ReadOptions
from ecrt.data.column_decisions import decide_columns
from ecrt.data.files import read_data
from ecrt.runs.config import read_config
from ecrt.runs.model_folder import fit_file

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], 20)
X = RNG.normal(size=(60, 3)) + Y[:, None]
QUICK = {"demixing": "linear", "random_state": 0}


@pytest.fixture(scope="module")
def clf() -> ECRTClassifier:
    return ECRTClassifier(head="gaussian", minority=[2], **QUICK).fit(X, Y)


@pytest.mark.parametrize("n", [0, -5, 2.5, True])
def test_a_number_of_samples_that_cannot_be_drawn(clf: ECRTClassifier, n: int) -> None:
    with pytest.raises(InputError, match="whole number from 1 on"):
        clf.sample(n)


def test_a_misspelt_space(clf: ECRTClassifier) -> None:
    with pytest.raises(InputError, match="space='featur': use 'source', 'feature' or 'input'"):
        clf.sample(2, space="featur")
    reg = ECRTRegressor(head="linear", **QUICK).fit(X, X[:, 0])
    with pytest.raises(InputError, match="space='featur'"):
        reg.sample(2, [0.0], space="featur")


@pytest.mark.parametrize("prior", [{0: 0.5}, ["a", "b", "c"]])
def test_a_prior_that_holds_no_numbers(prior: object) -> None:
    with pytest.raises(InputError, match="class_prior must hold one positive number"):
        ECRTClassifier(head="gaussian", minority=[2], class_prior=prior, **QUICK).fit(X, Y)


def test_complex_columns_of_a_data_frame() -> None:
    table = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(InputError, match="column 'b' holds complex numbers"):
        ECRTClassifier(**QUICK).fit(table.assign(b=table.b + 1j), Y)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("demixng.objective=gcl", "did you mean 'model.demixing'"),
        ("minority=all", "did you mean 'model.minority'"),
        ("demixing.objectiv=gcl", "no part has an option 'objectiv'; did you mean 'objective'"),
    ],
)
def test_misspelt_settings(override: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        read_config(None, [override])


@pytest.mark.parametrize(
    ("target", "prior", "message"),
    [("y", (0.5, 0.5), "for each of the 3 classes"), ("x", "training", "class_prior would have no effect")],
)
def test_a_prior_is_refused_before_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, prior: object, message: str
) -> None:
    pd.DataFrame(X, columns=["x", "v", "w"]).assign(y=Y).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr("ecrt.runs.model_folder._fit", lambda *_: pytest.fail("fitted"))
    with pytest.raises(InputError, match=message):
        fit_file(tmp_path / "t.csv", tmp_path, read_config(None, [], target=[target], class_prior=prior), say=str)


def test_columns_that_differ_name_both_options(tmp_path: Path) -> None:
    table = pd.DataFrame(X, columns=list("abc"))
    table.to_csv(tmp_path / "old.csv", index=False)
    columns = read_data(tmp_path / "old.csv").columns
    table.assign(a="word").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match="give its --decimal or --encoding"):
        read_data(tmp_path / "new.csv", columns=columns)


@pytest.mark.parametrize("values", [np.repeat(np.arange(60), 2), np.repeat(pd.date_range("2024", periods=30), 4)])
def test_rows_sorted_by_a_column_with_repeated_values(values: object) -> None:
    readings, _ = decide_columns(pd.DataFrame({"at": values}), ReadOptions(), separator=",")
    assert "Rows are sorted by it" in readings[0].note


def test_images_of_another_size_or_in_other_units(tmp_path: Path) -> None:
    y = np.repeat([0, 1, 2], 8)
    images = RNG.integers(0, 60, size=(24, 1, 6, 6)) + 90 * y[:, None, None, None]
    clf = ECRTClassifier(encoder=Encoder("resnet18", epochs=1, n_features=4), head="linear", **QUICK).fit(images, y)
    clf.save(tmp_path / "model")
    for model in (clf, ecrt.load(tmp_path / "model")):
        with pytest.raises(InputError, match=r"shape \(1, 5, 6\); those of the fit had \(1, 6, 6\)"):
            model.predict(images[:, :, 1:])
        for other in (images / 255, images * 255.0):
            with pytest.raises(InputError, match="Give them in the same units"):
                model.predict(other)
        assert len(model.predict(np.zeros((2, 1, 6, 6)))) == 2  # an image may be dark


def unused(*_: object, **__: object) -> None:
    raise AssertionError("the encoder was trained")


@pytest.mark.parametrize(
    ("estimator", "y", "problem"),
    [
        (ECRTClassifier(head=LinearHead(loss="huber")), Y, "one of the losses"),
        (ECRTClassifier(head=LinearHead(loss="weighted")), np.eye(3, dtype=int)[Y], "one of the losses"),
        (ECRTClassifier(head="gaussian"), np.eye(3, dtype=int)[Y], "GaussianHead predicts one class"),
        (ECRTRegressor(head=MLPHead(mixup=0.4)), X[:, 0], "mixup is for rows with one class"),
        (ECRTRegressor(head=MLPHead(networks=2)), X[:, 0], "networks=2 needs one hidden layer"),
        (ECRTClassifier(class_prior=[0.5, 0.5]), Y, "one positive number for each of the 3 classes"),
        (BaselineClassifier(class_prior=[0.5, 0.5]), Y, "one positive number for each of the 3 classes"),
    ],
)
def test_options_that_do_not_fit_the_target_are_refused_before_an_encoder_is_trained(
    monkeypatch: pytest.MonkeyPatch, estimator: Any, y: Any, problem: str
) -> None:
    monkeypatch.setattr("ecrt.estimators.base.encode", unused)
    with pytest.raises(InputError, match=problem):
        estimator.set_params(encoder=Encoder("mlp", epochs=1)).fit(X, y)


def test_a_size_of_images_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2,b\n")
    config = read_config(None, ["image_size=16"], target=["label"])
    with pytest.raises(InputError, match=r"image_size=16 is for a folder of images, which a\.csv is not"):
        fit_file(tmp_path / "a.csv", tmp_path / "out", config, say=str)
