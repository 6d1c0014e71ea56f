"""ECRTClassifier as its users meet it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import ecrt
from ecrt import (
    DivergenceError,
    ECRTClassifier,
    ECRTWarning,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    MLPHead,
)
from ecrt.estimators import base as module

SMALL_FLOW = {
    "demixing": Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5),
    "head": ["linear", "gaussian", MLPHead(epochs=5)],
}
CONFIGURATIONS = {
    "linear": {"demixing": "linear", "head": ["linear", "gaussian", MLPHead(epochs=5)]},
    "flow, FDV": {
        "demixing": Flow(objective="fdv", critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5),
        "head": ["linear", "gaussian", MLPHead(epochs=5)],
    },
    "flow, GCL": {
        "demixing": Flow(
            source_prior="shared",
            objective="gcl",
            label_marginal="batch",
            critic_width=8,
            n_restarts=1,
            hidden=(16, 16),
            epochs=5,
        ),
        "head": ["linear", "gaussian", MLPHead(epochs=5)],
    },
}


# Others are checked by ``benchmarks/estimator_checks.py``, nothing exempted either.
CHECKED = [
    {"demixing": "linear", "head": LinearHead(weight_decay=1e-3)},
    {"demixing": "linear", "head": "gaussian", "precision": "float32"},
    {"encoder": Encoder("mlp", epochs=3, n_features=8), "demixing": "linear", "head": "gaussian"},
    {
        "demixing": Flow(objective="fdv", critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5),
        "head": LinearHead(weight_decay=1e-3),
        "precision": "float32",
    },
    {
        "demixing": Flow(
            source_prior="shared",
            objective="gcl",
            label_marginal="batch",
            critic_width=8,
            n_restarts=1,
            hidden=(16, 16),
            epochs=5,
        ),
        "head": "gaussian",
    },
]


@parametrize_with_checks([ECRTClassifier(**options) for options in CHECKED])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        900, n_features=8, n_informative=6, n_classes=5, weights=[0.3, 0.3, 0.2, 0.15, 0.05], random_state=0
    )
    return X, np.array(["a", "b", "c", "d", "rare"])[y]


@pytest.fixture(scope="module")
def fitted(table):
    return ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(*table)


@pytest.mark.parametrize(
    "options",
    [
        *CONFIGURATIONS.values(),
        {
            "demixing": Flow(
                objective="infonce",
                label_marginal="batch",
                critic="cosine",
                critic_width=8,
                n_restarts=1,
                hidden=(16, 16),
                epochs=5,
            ),
            "head": ["linear", "gaussian", MLPHead(epochs=5)],
        },
        {
            "demixing": Flow(
                n_sources=3,
                critic="label-network",
                critic_width=8,
                n_restarts=2,
                blocks=(1, 2),
                hidden=(16, 16),
                epochs=5,
            ),
            "head": ["linear", "gaussian", MLPHead(epochs=5)],
        },
        {
            "demixing": "none",
            "augmentation": "none",
            "head": [LinearHead(loss="cross-entropy"), "gaussian", MLPHead(loss="cross-entropy", epochs=5)],
        },
        {"demixing": "linear", "augmentation": "permutation", "head": MLPHead(class_mass="balanced", epochs=10)},
        {"demixing": Linear(learn_from="all"), "head": "gaussian", "minority": ["rare"]},
        {"encoder": Encoder("mlp", epochs=5, n_features=6), "demixing": "linear", "head": "linear"},
        {"encoder": Encoder("autoencoder", epochs=5, n_features=6, learn_from="all"), "head": "linear"},
        {"encoder": Encoder("mlp", epochs=5, loss="hinge")},
    ],
)
def test_every_option_gives_a_whole_classifier(table, options):
    X, y = table
    clf = ECRTClassifier(random_state=0, **options).fit(X, y)
    proba = clf.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(clf.decision_function(X).argmax(axis=1), proba.argmax(axis=1))
    assert clf.transform(X).shape == (len(X), clf.get_feature_names_out().size)
    assert clf.score(X, y) > 0.5
    for space in ("source", "feature"):
        drawn, labels = clf.sample(3, classes=["rare", "a"], space=space, random_state=0)
        assert len(drawn) == 6
        assert sorted(set(labels)) == ["a", "rare"]
        assert np.isfinite(drawn).all()
    assert len(clf.diagnostics_.classes) == 5
    assert clf.diagnostics_.round_trip_error < 1e-6


def test_diagnostics_wait_until_they_are_asked_for(table, monkeypatch):
    measured = []
    whole = module.diagnose_sources
    monkeypatch.setattr(module, "diagnose_sources", lambda *given: measured.append(1) or whole(*given))
    clf = ECRTClassifier(demixing="linear", head="gaussian", random_state=0)
    assert not hasattr(clf, "diagnostics_")
    clf.fit(*table).predict(table[0])
    assert not measured
    assert clf.theory_met_ == clf.diagnostics_.theory_met
    assert clf.diagnostics_ is clf.diagnostics_
    assert len(measured) == 1
    monkeypatch.undo()
    pending = clone(clf).fit(*table)
    for copied in (pickle.loads(pickle.dumps(pending)), copy.deepcopy(pending), pending):
        assert repr(copied.diagnostics_) == repr(clf.diagnostics_)  # NaN does not equal itself


@pytest.mark.parametrize(
    "options",
    [
        {"demixing": "linear", "head": "linear"},
        {"demixing": Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5), "head": "gaussian"},
    ],
)
def test_float32_on_request(table, options, tmp_path):
    X, y = table
    clf = ECRTClassifier(random_state=0, **options).fit(X, y)
    methods = ("predict_proba", "predict_log_proba", "decision_function", "transform")
    exact = {name: getattr(clf, name)(X) for name in methods}
    assert all(values.dtype == np.float64 for values in exact.values())
    clf.set_params(precision="float32").save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    with ThreadPoolExecutor(4) as pool:
        for name, values in exact.items():
            for quick in pool.map(getattr(clf, name), [X] * 4):
                assert quick.dtype == np.float32
                np.testing.assert_allclose(quick, values, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(getattr(loaded, name)(X), quick)
    np.testing.assert_array_equal(clf.set_params(precision="float64").predict_proba(X), exact["predict_proba"])


def test_same_seed_same_result_and_the_global_state_is_left_alone(table):
    X, y = table
    torch.manual_seed(5)
    expected_next = torch.rand(1)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (
        ECRTClassifier(
            demixing=Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5),
            head=["linear", "gaussian", MLPHead(epochs=5)],
            random_state=3,
        ).fit(X, y)
        for _ in range(2)
    )
    assert torch.rand(1) == expected_next
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    other = ECRTClassifier(
        demixing=Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=5),
        head=["linear", "gaussian", MLPHead(epochs=5)],
        random_state=4,
    ).fit(X, y)
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_class_prior_only_shifts_the_scores(table, fitted):
    X, _ = table
    log_ratio = {}
    for prior in ("balanced", "training", [0.1, 0.2, 0.3, 0.2, 0.2]):
        log_proba = clone_with(fitted, class_prior=prior).predict_log_proba(X)
        log_ratio[str(prior)] = log_proba[:, 1:] - log_proba[:, :1]
    shift = log_ratio["training"] - log_ratio["balanced"]
    expected = np.log(fitted.class_counts_[1:] / fitted.class_counts_[0])
    np.testing.assert_allclose(shift, np.tile(expected, (len(X), 1)), atol=1e-9)
    with pytest.raises(InputError, match="one positive number for each of the 5 classes"):
        clone_with(fitted, class_prior=[1.0, 2.0]).predict(X)


def clone_with(fitted, **options):
    """The same fitted estimator under another option of prediction."""
    other = clone(fitted).set_params(**options)
    other.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    other.n_features_in_ = fitted.n_features_in_
    return other


def test_adjusted_and_unadjusted_training_store_balanced_logits(table):
    """Without adjustment the log mass is taken off afterwards, so both predict under a balanced prior."""
    X, y = table
    scores = [
        ECRTClassifier(demixing="linear", augmentation="none", head=head, random_state=0).fit(X, y).predict_proba(X)
        for head in (LinearHead(loss=loss, weight_decay=1e-3) for loss in ("logit-adjusted", "cross-entropy"))
    ]
    # A constant added to the logits moves only the bias of a linear head, which is not penalised.
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)


def test_pandas_in_and_out_pipeline_and_grid_search(table):
    X, y = table
    frame = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).set_output(transform="pandas").fit(frame, y)
    sources = clf.transform(frame)
    assert list(sources.columns) == [f"ecrtclassifier{i}" for i in range(X.shape[1])]
    assert list(clf.feature_names_in_) == list(frame.columns)
    pipeline = make_pipeline(StandardScaler(), ECRTClassifier(demixing="linear", head="linear", random_state=0))
    search = GridSearchCV(pipeline, {"ecrtclassifier__augmentation__weight": [0.0, 0.5]}, cv=2).fit(frame, y)
    assert search.best_score_ > 0.5


def test_two_classes():
    X, y = make_blobs([180, 20], centers=[[-2.0, 0.0], [2.0, 0.0]], random_state=0)
    with pytest.warns(ECRTWarning, match="learn from all classes"):
        clf = ECRTClassifier(random_state=0).fit(X, y)
    assert clf.demixed_on_.tolist() == [0, 1]
    assert clf.minority_classes_.tolist() == [1]
    assert clf.decision_function(X).shape == (200,)
    assert clf.score(X, y) > 0.9


def test_no_clear_majority_augments_every_small_class():
    centers = np.random.default_rng(0).uniform(-30, 30, (60, 3))
    X, y = make_blobs([4] * 60, centers=centers, random_state=0)
    clf = ECRTClassifier(head="gaussian", demixing="linear", random_state=0).fit(X, y)
    assert len(clf.minority_classes_) == 0
    assert len(clf.demixed_on_) == 60
    assert clf.score(X, y) > 0.8


def test_a_class_with_one_sample_is_learned():
    X, y = make_blobs([100, 100, 100, 1], centers=[[0, 0], [8, 0], [0, 8], [8, 8]], random_state=0)
    clf = ECRTClassifier(demixing="linear", random_state=0).fit(X, y)
    assert clf.minority_classes_.tolist() == [3]
    assert clf.predict([[8.0, 8.0]]).tolist() == [3]


def test_one_feature():
    X, y = make_blobs([100, 100, 100, 20], centers=[[-6], [0], [6], [12]], n_features=1, random_state=0)
    for demixing in ("linear", "flow"):
        options = (
            SMALL_FLOW
            if demixing == "flow"
            else {"demixing": demixing, "head": ["linear", "gaussian", MLPHead(epochs=5)]}
        )
        clf = ECRTClassifier(**options, random_state=0).fit(X, y)
        assert clf.score(X, y) > 0.9


def test_constant_and_duplicated_columns(table):
    X, y = table
    wide = np.column_stack([X, np.full(len(X), 7.0), X[:, 0]])
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(wide, y)
    assert clf.transform(wide).shape == (len(X), X.shape[1] + 1)
    back, _ = clf.sample(5, space="feature", random_state=0)
    np.testing.assert_allclose(back[:, 8], 7.0)


def test_infinite_values_are_refused(table, fitted):
    X, y = table
    broken = X.copy()
    broken[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        ECRTClassifier().fit(broken, y)
    with pytest.raises(ValueError, match="infinity"):
        fitted.predict(broken)
    with pytest.raises(InputError, match=r"infinity .*: row 3, column 'x2' holds inf"):
        ECRTClassifier().fit(pd.DataFrame(broken).add_prefix("x"), y)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((5, 2)), [1] * 5, "one class only"),
        (np.zeros((1, 2)), [1], "minimum of 2"),
        (np.zeros((0, 2)), [], "0 sample"),
        (np.eye(3), [0, 1, 2], "single sample"),
        (np.zeros((6, 2)), [0, 0, 0, 1, 1, 1], "each of the 2 features is constant"),
        (np.ones((4, 2)), [0.5, 1.5, 0.2, 0.1], "Unknown label type"),
        (np.array([["a", "b"]] * 4, dtype=object), [0, 0, 1, 1], "constant"),
    ],
)
def test_input_that_cannot_be_learned_from(X, y, message):
    with pytest.raises(ValueError, match=message):
        ECRTClassifier().fit(X, y)


def test_errors_at_prediction(table, fitted):
    X, y = table
    with pytest.raises(NotFittedError):
        ECRTClassifier().predict(X)
    with pytest.raises(ValueError, match="expecting 8 features"):
        fitted.predict(X[:, :5])
    with pytest.warns(ECRTWarning, match=r"count as wrong: \['new'\]"):
        assert fitted.score(X[:2], ["new", "new"]) == 0
    with pytest.raises(InputError, match="No such class"):
        fitted.sample(2, classes=["new"])
    with pytest.raises(InputError, match="not in y"):
        ECRTClassifier(minority=["new"]).fit(X, y)


def test_divergence_names_stage_and_step(table):
    X, y = table
    with pytest.raises(DivergenceError, match=r"encoder: the (loss|gradient) is not finite at step \d+"):
        ECRTClassifier(encoder=Exploding(8), random_state=0).fit(X, y)


def test_a_flow_that_diverges_gives_way_to_linear_demixing(table):
    X, y = table
    flow = Flow(n_restarts=1, learning_rate=1e30)
    options = {"head": "linear", "random_state": 0}
    with pytest.warns(ECRTWarning, match="De-mixing by 'flow' failed"):
        clf = ECRTClassifier(demixing=["linear", flow], **options).fit(X, y)
    assert clf.demixing_ == "linear"
    with pytest.raises(DivergenceError, match="de-mixing"):
        ECRTClassifier(demixing=flow, **options).fit(X, y)


@pytest.mark.parametrize("demixing", ["none", "linear", "flow"])
def test_a_column_that_varies_in_the_minority_alone(table, demixing):
    X, y = table
    rare = y == "rare"
    wide = np.column_stack([X, np.where(rare, np.random.default_rng(0).normal(3, 1, len(X)), 0.0)])
    options = {"demixing": SMALL_FLOW["demixing"] if demixing == "flow" else demixing}
    clf = ECRTClassifier(**options, head="linear", random_state=0).fit(wide, y)
    assert np.isfinite(clf.predict_log_proba(wide)).all()
    assert clf.score(wide[rare], y[rare]) > 0.9


class Exploding(nn.Module):
    """Features that overflow in training."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n, 4)

    def forward(self, x):
        return self.layer(x) * (1e38 if self.training else 1.0) * (1e10 if self.training else 1.0)


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_dataset_of_rows_equals_arrays(table):
    X, y = table
    index = np.unique(y, return_inverse=True)[1]
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(index))
    options = {"demixing": "linear", "head": "linear", "random_state": 0}
    from_arrays = ECRTClassifier(**options).fit(X, index).predict_proba(X)
    clf = ECRTClassifier(**options).fit(data)
    np.testing.assert_allclose(clf.predict_proba(data), from_arrays, atol=1e-9)
    np.testing.assert_allclose(clf.predict_proba(X), from_arrays, atol=1e-9)


def test_dataset_of_images_with_an_own_encoder():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [40, 40, 40, 8])
    images = rng.normal(size=(len(y), 1, 6, 6)).astype(np.float32)
    images[:, 0, 0, 0] += 4 * (y == 1)
    images[:, 0, 3, 3] += 4 * (y == 2)
    images[:, 0, 5, 5] += 4 * (y == 3)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 8))
    before = encoder[1].weight.detach().clone()
    data = Items([(image, int(label)) for image, label in zip(images, y, strict=True)])
    clf = ECRTClassifier(encoder=Encoder(encoder, epochs=20, learn_from="all"), demixing="linear", random_state=0).fit(
        data
    )
    assert torch.equal(encoder[1].weight, before), "the user's module must not be trained in place"
    assert clf.score(images, y) > 0.5  # a fifth of 128 rows is left for the head; chance is 0.25
    frozen = ECRTClassifier(encoder=Encoder(encoder, train=False), demixing="linear", random_state=0).fit(data)
    assert torch.equal(frozen.encoder_[1].weight, before)
    assert frozen.predict(data).shape == (len(y),)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "empty"),
        ([1.0, 2.0], "a pair"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 1)], r"Item 1 .* shape \(3,\)"),
        ([(torch.zeros(2), 0), (torch.tensor([1.0, float("nan")]), 1)], "Item 1 .* NaN"),
        ([("text", 0)], "Item 0 .* str"),
        ([(torch.zeros(2), 0.5)], "Item 0 .* y is 0.5"),
        ([(torch.zeros(2), torch.zeros(3))], "None of the 3 labels can be learned"),
        ([(torch.zeros(2), 0), (torch.zeros(2), "b")], "mixes labels"),
    ],
)
def test_datasets_that_yield_rubbish(items, message):
    with pytest.raises(InputError, match=message):
        ECRTClassifier().fit(Items(items))


def test_held_out_features_are_not_those_the_encoder_was_trained_on(table):
    """Head and flow learn from rows the encoder has not seen: a fifth of the majority, all of the minority."""
    X, y = table
    clf = ECRTClassifier(encoder=Encoder("mlp", epochs=2), demixing="linear", head="linear", random_state=0).fit(X, y)
    kept = {diagnosis.label: diagnosis.n_samples for diagnosis in clf.diagnostics_.classes}
    counts = dict(zip(clf.classes_.tolist(), clf.class_counts_.tolist(), strict=True))
    assert kept["rare"] == counts["rare"]
    assert all(abs(kept[label] - 0.2 * counts[label]) <= 1 for label in "abc")
