"""The saved model has the parts of the tested one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import ecrt
from ecrt import ECRTClassifier, ECRTRegressor, Encoder, Flow, LinearHead, MLPHead, Parametric, PseudoMinority
from ecrt.cli import app
from ecrt.errors import InputError
from ecrt.runs import model_folder

N = 150


def rows(task, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 4))
    if task == "regression":
        return X, np.abs(X[:, 0] * X[:, 1]) + rng.exponential(size=N)
    if task == "multilabel":
        return X, (X[:, :3] + rng.normal(size=(N, 3)) > [0.3, 0.8, 1.2]).astype(int)
    return X, np.digitize(X[:, 0] * X[:, 1] + X[:, 0] + rng.normal(size=N), [-0.5, 1.2])


# What "auto" never comes to by itself.
ODD = {
    "gaussian": (ECRTClassifier, "classification", {"demixing": "none", "head": "gaussian", "minority": [0]}),
    "linear": (ECRTClassifier, "classification", {"demixing": "none", "head": LinearHead(weight_decay=0.0123)}),
    "mlp": (ECRTClassifier, "classification", {"head": MLPHead(hidden=(7,), dropout=0.3, epochs=3)}),
    "flow": (ECRTClassifier, "classification", {"demixing": Flow(blocks=2, epochs=3), "head": "linear"}),
    "by steps": (ECRTClassifier, "classification", {"demixing": "none", "head": LinearHead(mixup=0.3, epochs=3)}),
    "two heads": (ECRTClassifier, "classification", {"head": ["linear", "gaussian"]}),
    "labels": (ECRTClassifier, "multilabel", {"demixing": "none", "head": LinearHead(weight_decay=0.0123)}),
    "wide labels": (ECRTClassifier, "multilabel", {"head": MLPHead(hidden=(9,), dropout=0.0, epochs=3)}),
    "numbers": (
        ECRTRegressor, "regression",
        {"demixing": "linear", "augmentation": "donors", "head": LinearHead(weight_decay=0.0123), "region_mass": 0.6,
         "weighted": True},
    ),
    "numbers by a network": (ECRTRegressor, "regression", {"head": MLPHead(hidden=(9,), epochs=3), "region_mass": 0.6}),
}  # fmt: skip


def chosen_by(model):
    """All that a fit has chosen and a refit must keep."""
    if isinstance(model, ECRTRegressor):
        return model._fitted_choices()
    return [
        (one.demixing, one.augmentation, one.head, one.setting, one.temperature, one.weight, one.held_out)
        for one in model._settled()
    ]


@pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")
@pytest.mark.parametrize("name", ODD)
def test_a_refit_keeps_what_the_fit_chose(name):
    estimator, task, options = ODD[name]
    X, y = rows(task)
    model = estimator(random_state=0, **options).fit(X[:100], y[:100])
    chosen, before = chosen_by(model), model.head_.state_dict()
    open_options = {key: getattr(estimator(), key) for key in options}
    model.set_params(**open_options)
    model.refit(X, y)
    assert chosen_by(model) == chosen
    assert not all(torch.equal(one, before.get(name)) for name, one in model.head_.state_dict().items())
    assert {key: getattr(model, key) for key in open_options} == open_options
    assert np.asarray(model.class_counts_ if hasattr(model, "class_counts_") else model.bin_counts_).sum() >= N / 2
    if name == "linear":
        assert model.history_["head_setting"] == 0.0123
    if name == "numbers":
        assert (model.weighted_, model.region_mass_, model.augmentation_) == (True, 0.6, "donors")


@pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")
def test_a_refit_keeps_a_selection_and_does_not_select_again():
    X, y = rows("classification")
    model = ECRTClassifier(
        head=["linear", "gaussian", MLPHead(epochs=3)], selection=PseudoMinority(trials=4), random_state=0
    )
    model.fit(X[:100], y[:100])
    first, *others = model.members_
    model.members_ = (replace(first, augmentation=Parametric(pseudo_samples=7), weight=0.125), *others)
    selection = model.selection_
    model.refit(X, y)
    assert model.selection_ is selection
    assert model.selection == PseudoMinority(trials=4)
    assert model.members_[0].augmentation.pseudo_samples == model.parts_["augmentation"].pseudo_samples == 7
    assert [one.weight for one in model.members_] == [0.125, *(one.weight for one in others)]
    assert model.class_counts_.sum() == N
    with pytest.raises(InputError):
        model.refit(X, y[:3])
    assert model.selection_ is selection
    assert model.selection == PseudoMinority(trials=4)


@pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")
def test_a_refit_on_a_dataset():
    X, y = rows("classification")
    images = torch.from_numpy(X).float().reshape(N, 1, 2, 2)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    model = ECRTClassifier(encoder=Encoder(encoder, epochs=1), demixing="none", head="gaussian", random_state=0)
    model.fit(TensorDataset(images[:100], torch.from_numpy(y[:100])))
    model.set_params(head="auto", demixing="auto")
    model.refit(TensorDataset(images, torch.from_numpy(y)))
    assert (model.head_name_, model.demixing_, model.class_counts_.sum()) == ("gaussian", "none", N)


@pytest.mark.parametrize(
    ("task", "odd"),
    [
        ("classification", {"demixing": "none", "head": "gaussian"}),
        ("multilabel", {"demixing": "none", "head": LinearHead(weight_decay=0.0123)}),
        ("regression", {"augmentation": "donors", "region_mass": 0.6, "head": "linear"}),
        ("images", {"demixing": "none", "head": "gaussian"}),
    ],
)
def test_the_saved_model_has_the_parts_of_the_tested_one(tmp_path, monkeypatch, task, odd):
    """The tested model is made to choose what "auto" never does; left to choose anew, the saved one could not."""
    tested = []

    def fit_oddly(model, X, y, **options):
        if tested:  # plain logit adjustment, which it is compared with
            return original(model, X, y, **options)
        asked = {name: model.get_params()[name] for name in odd}
        original(model.set_params(**odd), X, y)
        model.set_params(**asked)
        tested.append((chosen_by(model), type(model.head_)))
        return None

    original = model_folder._fit
    monkeypatch.setattr(model_folder, "_fit", fit_oddly)
    target, options = ("y",), {}
    if task == "images":
        path, options = tmp_path / "images", {"encoder.epochs": 1}
        rng = np.random.default_rng(0)
        for label in range(2):
            (path / f"kind {label}").mkdir(parents=True)
            for number in range(16):
                pixels = (rng.integers(0, 90, (8, 8, 3)) + 60 * label).astype(np.uint8)
                Image.fromarray(pixels).save(path / f"kind {label}" / f"{number}.png")
    else:
        X, y = rows(task)
        table = pd.DataFrame(X, columns=list("abcd"))
        target = ("u", "v", "w") if task == "multilabel" else ("y",)
        table[list(target)] = y.reshape(N, -1)
        path = tmp_path / "table.csv"
        table.to_csv(path, index=False)
    arguments = ["fit", str(path), "-o", str(tmp_path / "out")]
    arguments += ["--set", "image_size=8"] if task == "images" else []
    arguments += [part for name in target for part in ("--target", name)]
    arguments += [part for name, value in options.items() for part in ("--set", f"model.{name}={value}")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    saved = ecrt.load(tmp_path / "out" / "model")
    assert tested == [(chosen_by(saved), type(saved.head_))]
    assert saved.get_params()["head"] == "auto"
