"""Extensions of one's own: classifiers in a comparison, functions that draw, critics and losses."""

from __future__ import annotations

from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from imblearn.ensemble import BalancedRandomForestClassifier, EasyEnsembleClassifier
from imblearn.over_sampling import SMOTE
from imblearn.pipeline import make_pipeline as resampled
from imblearn.under_sampling import TomekLinks
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

import ecrt
from ecrt import ByFunction, ECRTAugmenter, ECRTClassifier, ECRTSampler, Flow, InputError, LinearHead, MLPHead
from ecrt.comparison import Method, TableReader, choose_methods
from ecrt.losses import LossRule, cross_entropy, make_class_loss
from ecrt.stages import Encoder

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")
BALANCED = LogisticRegression(class_weight="balanced")


def soft_vote(*models):
    return VotingClassifier([(f"model{i}", model) for i, model in enumerate(models)], voting="soft")


@pytest.fixture(scope="module")
def rows():
    return make_classification(
        240, n_classes=3, n_informative=5, n_redundant=0, n_features=6, weights=[0.6, 0.3, 0.1], random_state=1
    )


def compare(X, y, methods, **options):
    pytest.importorskip("optuna", reason="Optuna is not installed")
    return ecrt.compare(X, y, methods=methods, **({"seeds": 2, "trials": 2} | options))


# --- comparisons -------------------------------------------------------------------------------------------------


def test_classifiers_of_ones_own_are_compared_beside_ours_on_any_number_of_processes(rows):
    methods = [
        "weighted-logistic",
        {"trees": ExtraTreesClassifier(20), "scaled": make_pipeline(StandardScaler(), GaussianNB())},
    ]
    alone, together = (compare(*rows, methods, jobs=jobs) for jobs in (1, 2))
    assert alone.as_dict() == together.as_dict()  # seeds were set where there were none
    assert list(alone.methods) == ["weighted-logistic", "trees", "scaled"]
    assert alone.label("trees") == "trees"
    assert alone.methods["trees"].trials == [{"finished": 1, "failed": 0, "cut": 0}] * 2  # there is nothing to tune
    assert "n_estimators=20" in alone.settings["own"]["trees"]


def test_functions_in_a_pipeline_go_to_other_processes(rows):
    squares = make_pipeline(FunctionTransformer(lambda table: table**2), GaussianNB())
    assert compare(*rows, {"squares": squares}, seeds=2, jobs=2).sound == ["squares"]


def test_a_mapping_alone_is_enough_and_a_given_seed_stays(rows):
    found = compare(
        *rows, {"one": RandomForestClassifier(5, random_state=3), "other": RandomForestClassifier(5)}, seeds=1
    )
    same = compare(*rows, {"one": RandomForestClassifier(5, random_state=3)}, seeds=1)
    assert found.methods["one"].metrics == same.methods["one"].metrics
    assert found.methods["one"].metrics != found.methods["other"].metrics
    assert found.reference == "one"


def test_classifiers_read_tables_as_numbers_and_pipelines_as_they_are():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], [120, 60])
    table = pd.DataFrame({"colour": np.where(rng.random(180) < 0.8, y, "c"), "size": rng.normal(size=180)})
    table.loc[::9, "size"] = np.nan
    by_name = make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["colour"])), GaussianNB())
    as_numbers = make_pipeline(TableReader(), LogisticRegression())
    found = compare(table, y, {"plain": LogisticRegression(), "named": by_name, "read": as_numbers}, seeds=1)
    assert found.sound == ["plain", "named", "read"]
    assert found.methods["plain"].metrics == found.methods["read"].metrics
    assert found.methods["named"].metrics["balanced"]["balanced_accuracy"][0] > 0.7


def test_probabilities_are_taken_for_what_the_classifier_makes_them(rows):
    balanced, training = BALANCED, LogisticRegression()
    for one, prior in (
        (balanced, "balanced"), (training, "training"), (make_pipeline(StandardScaler(), balanced), "balanced"),
        (GridSearchCV(balanced, {"C": [1.0]}), "balanced"), (CalibratedClassifierCV(balanced), "training"),
        (ECRTClassifier(), "balanced"), (ECRTClassifier(class_prior="training"), "training"),
        (Method(label="mine", build=lambda parameters, seed: training), "balanced"),
        (BaggingClassifier(balanced), "balanced"), (soft_vote(balanced, balanced), "balanced"),
        (StackingClassifier([("a", balanced)], training), "training"), (soft_vote(GaussianNB()), "training"),
        (BalancedRandomForestClassifier(), "balanced"), (EasyEnsembleClassifier(), "balanced"),
        (resampled(SMOTE(), training), "balanced"), (TunedThresholdClassifierCV(balanced), "balanced"),
    ):  # fmt: skip
        assert choose_methods({"one": one})["one"].prior == prior, one
    quick = {"demixing": "linear", "head": "linear", "random_state": 0}
    found = compare(*rows, {
        name: ECRTClassifier(class_prior=name, **quick) for name in ("balanced", "training")
    }, seeds=1)  # fmt: skip
    first, second = (found.methods[name].metrics["balanced"]["nll"] for name in ("balanced", "training"))
    assert first == pytest.approx(second)


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({"linear": LinearRegression()}, "'linear' .LinearRegression. is not a scikit-learn classifier"),
        ({"trees": ExtraTreesClassifier}, "'trees' .ExtraTreesClassifier. is not a scikit-learn classifier"),
        (
            {"ridge": RidgeClassifier()},
            "'ridge' .RidgeClassifier. gives no probabilities. Wrap it: sklearn.calibration",
        ),
        ({"erm": GaussianNB()}, "'erm' is one of our methods"),
        ({"../up": GaussianNB()}, "'../up' cannot be a name"),
        ([GaussianNB()], "GaussianNB.* has no name. Give it one: {'my method': GaussianNB"),
        ([{"one": GaussianNB()}, {"one": GaussianNB()}], "'one' is there twice"),
        ({"mine": ECRTClassifier(class_prior=[0.5, 0.5])}, "'mine' weighs or resamples classes"),
        ({"votes": soft_vote(GaussianNB(), BALANCED)}, "'votes' weighs .* Say so: Method"),
        ({"dict": LogisticRegression(class_weight={0: 1, 1: 9})}, "'dict' weighs or resamples"),
        ({"search": GridSearchCV(LogisticRegression(), {"class_weight": ["balanced"]})}, "'search' weighs"),
        ({"some": resampled(SMOTE(sampling_strategy="minority"), GaussianNB())}, "'some' weighs or resamples"),
        ({"clean": resampled(TomekLinks(), GaussianNB())}, "'clean' weighs or resamples"),
        ({"frozen": FrozenEstimator(GaussianNB())}, "'frozen' holds a FrozenEstimator that is fitted already"),
        ({"late": CalibratedClassifierCV(FrozenEstimator(GaussianNB()))}, "'late' holds a FrozenEstimator"),
        ({}, "No method is named"),
    ],
)
def test_what_cannot_be_compared_is_named(methods, told):
    with pytest.raises(InputError, match=told):
        choose_methods(methods)


def test_a_folder_goes_on_with_the_same_estimators_alone(rows, tmp_path):
    compare(*rows, {"trees": ExtraTreesClassifier(5)}, seeds=1, output=tmp_path)
    compare(*rows, {"trees": ExtraTreesClassifier(5)}, seeds=1, output=tmp_path)
    with pytest.raises(InputError, match=r"other settings or data \(own"):
        compare(*rows, {"trees": ExtraTreesClassifier(6)}, seeds=1, output=tmp_path)


def test_a_classifier_that_fails_is_reported_and_others_go_on(rows):
    X = rows[0].copy()
    X[::7, 0] = np.nan
    found = compare(X, rows[1], {"gaps": make_pipeline(GaussianNB()), "read": GaussianNB()}, seeds=1)
    assert found.sound == ["read"]
    assert "NaN" in found.methods["gaps"].error


# --- functions that draw -----------------------------------------------------------------------------------------

CALLS: list[tuple[tuple[int, ...], int]] = []


def jitter(sources, n, rng, width=0.3):
    """Samples of the class, moved a little."""
    CALLS.append((sources.shape, n))
    return sources[rng.integers(len(sources), size=n)] + width * rng.normal(size=(n, sources.shape[1]))


def fitted(rows, augmentation=jitter, head="linear", **options):
    options = {"demixing": "linear", "head": head, "random_state": 0} | options
    return ECRTClassifier(augmentation=augmentation, **options).fit(*rows)


def test_a_function_draws_the_sources_of_each_rare_class(rows):
    CALLS.clear()
    clf = fitted(rows)
    assert {shape[1] for shape, _ in CALLS} == {6}
    assert max(shape[0] for shape, _ in CALLS) == clf.class_counts_[2]  # the rare class alone
    drawn, labels = clf.sample(7, classes=[2], random_state=0)
    assert (drawn.shape, labels.tolist()) == ((7, 6), [2] * 7)
    assert clf.parts_["augmentation"].kind == "function"
    assert np.array_equal(clf.sample(7, classes=[2], random_state=0)[0], drawn)


@pytest.mark.parametrize("head", ["linear", MLPHead(epochs=2)], ids=["linear", "mlp"])
def test_a_function_acts_and_the_same_seed_gives_the_same_model(rows, head):
    X, _ = rows
    one, again, wider = (
        fitted(rows, how, head).predict_proba(X) for how in (jitter, jitter, partial(jitter, width=3.0))
    )
    assert np.array_equal(one, again)
    assert not np.allclose(one, wider)


def test_options_of_a_function_are_those_of_the_other_parts(rows):
    clf = ECRTClassifier(augmentation=jitter).set_params(augmentation__weight=0.2)
    assert clf.augmentation == ByFunction(function=jitter, weight=0.2)
    X, _ = rows
    light = fitted(rows, ByFunction(function=jitter, weight=0.01)).predict_proba(X)
    assert not np.allclose(light, fitted(rows).predict_proba(X))


def test_a_function_serves_several_labels(rows):
    X, y = rows
    CALLS.clear()
    labels = np.column_stack([y == 0, y == 2, X[:, 0] > 1.5]).astype(int)
    clf = fitted((X, labels))
    assert CALLS
    assert clf.sample(4, random_state=0)[0].shape == (12, 6)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda sources, n, rng: sources, r"gave the shape \(\d+, 6\); finite samples of shape \(\d+, 6\) were asked"),
        (lambda sources, n, rng: np.full((n, 6), np.nan), "gave NaN or infinity"),
        (lambda sources, n, rng: np.full((n, 6), "a"), "gave no numbers, but a ndarray"),
        (lambda sources, n, rng: np.full((n, 6), 1j), "gave no numbers, but a ndarray"),
        (lambda sources, n, rng: (one for one in sources), "gave no numbers, but a generator"),
        (
            lambda sources, n, rng: np.full((n, 6), 1e30),
            r"gave numbers up to 1e\+30, where those of the class",
        ),
        (ByFunction(), "ByFunction needs function="),
        (lambda sources: sources, r"<lambda>\(sources, n, rng\) raised TypeError: .* takes 1 positional"),
    ],
)
def test_what_a_function_must_give_is_said(rows, wrong, told):
    with pytest.raises(InputError, match=told):
        fitted(rows, wrong)


def test_a_function_serves_sampler_and_torch_module(rows):
    X, y = rows
    resampled, _ = ECRTSampler(augmentation=jitter, random_state=0).fit_resample(X, y)
    assert len(resampled) > len(X)
    augmenter = ECRTAugmenter(augmentation=jitter, random_state=0)
    augmenter.fit(torch.from_numpy(X).float(), torch.from_numpy(y))
    assert len(augmenter.train()(torch.from_numpy(X).float(), torch.from_numpy(y))[0]) > len(X)


@pytest.mark.parametrize(
    "options",
    [
        {"augmentation": jitter},
        {"augmentation": ByFunction(function=jitter)},
        {"augmentation": "parametric", "head": LinearHead(loss=LossRule(bind=partial(make_class_loss, "weighted")))},
    ],
    ids=["function", "part", "loss"],
)
def test_code_is_not_saved_but_pickled(rows, options, tmp_path):
    clf = fitted(rows, **options)
    with pytest.raises(InputError, match=r"cannot be saved: it is code of yours .*joblib.dump"):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    joblib.dump(clf, tmp_path / "model.joblib")
    X, _ = rows
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X), clf.predict_proba(X))


# --- critics and losses ------------------------------------------------------------------------------------------


class Quadratic(nn.Module):
    """For each label a parabola in every source: a sum over sources, as the theorem asks."""

    def __init__(self, n_sources, n_labels, width):
        super().__init__()
        self.linear, self.square = nn.Linear(n_sources, n_labels), nn.Linear(n_sources, n_labels, bias=False)

    def forward(self, s_nd, labels_k=None):
        scores_nm = self.linear(s_nd) + self.square(s_nd**2)
        return scores_nm if labels_k is None else scores_nm[:, labels_k]


class Detached(Quadratic):
    def forward(self, s_nd, labels_k=None):
        return super().forward(s_nd, labels_k).detach()


@pytest.mark.parametrize("marginal", ["exact", "batch"])
def test_a_critic_of_ones_own_trains_the_flow(rows, marginal):
    X, _ = rows
    flow = {"epochs": 3, "n_restarts": 1, "label_marginal": marginal}
    ours, own = (fitted(rows, "none", demixing=Flow(**flow, **how)) for how in ({}, {"critic": Quadratic}))
    assert not np.allclose(ours.transform(X), own.transform(X))
    again = fitted(rows, "none", demixing=Flow(**flow, critic=Quadratic))
    assert np.array_equal(own.transform(X), again.transform(X))


@pytest.mark.parametrize(
    ("critic", "told"),
    [
        (lambda n_sources, n_labels, width: nn.Linear, "it must give a torch module, not type"),
        (
            lambda n_sources, n_labels, width: Quadratic(n_sources, n_labels + 1, width),
            r"gave scores of shape \(2, 4\)",
        ),
        (lambda n_sources, n_labels: nn.Linear(n_sources, n_labels), r"with 6, 3, 64 .* raised TypeError"),
        (lambda n_sources, n_labels, width: nn.Linear(n_sources, n_labels), r"forward\(sources, labels\) .* TypeError"),
        (lambda n_sources, n_labels, width: Detached(n_sources, n_labels, width), "its scores have no gradient"),
    ],
)
def test_a_critic_that_cannot_serve_is_refused_before_training(rows, critic, told):
    with pytest.raises(InputError, match=told):
        fitted(rows, "none", demixing=Flow(critic=critic, epochs=1))


def smoothed(counts_m):
    """Cross-entropy with softened labels."""
    return lambda logits_nm, y_n, done=1.0: 0.9 * cross_entropy(logits_nm, y_n) - 0.1 * logits_nm.log_softmax(1).mean(1)


def test_a_loss_of_ones_own_trains_the_head(rows):
    X, _ = rows
    own = fitted(rows, "none", LinearHead(loss=LossRule(bind=smoothed), weight_decay=1e-3)).predict_proba(X)
    plain = fitted(rows, "none", LinearHead(loss="cross-entropy", weight_decay=1e-3)).predict_proba(X)
    assert own.max(axis=1).mean() < plain.max(axis=1).mean()


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (None, "'NoneType' object is not callable"),
        (lambda logits, y, done=1.0: logits.sum(), r"gave a tensor of shape \(\)"),
        (lambda logits, y, done=1.0: logits, r"gave a tensor of shape \(2, 3\)"),
        (lambda logits, y, done=1.0: logits.detach().sum(1), "without a gradient"),
        (lambda logits, y, done=1.0: logits.detach().numpy().sum(1), "gave a ndarray"),
        (lambda logits, y: cross_entropy(logits, y), r"loss\(logits, y, done\) of 2 rows raised TypeError: .* takes 2"),
    ],
)
@pytest.mark.parametrize("part", [LinearHead, MLPHead, Encoder])
def test_a_loss_that_cannot_serve_is_refused_before_training(rows, part, loss, told):
    rule = LossRule(bind=lambda counts: loss)
    parts = {"encoder": Encoder("mlp", loss=rule)} if part is Encoder else {"head": part(loss=rule)}
    with pytest.raises(InputError, match=told):
        ECRTClassifier(demixing="linear", **parts).fit(*rows)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"bind": lambda: cross_entropy}, "bind or prior of the class counts raised TypeError"),
        ({"bind": smoothed, "prior": lambda counts: counts[:2]}, r"prior gave .* for each of 3 classes is needed"),
        ({"bind": smoothed, "prior": lambda counts: -counts}, r"prior gave .* a positive number for each of 3"),
    ],
)
def test_what_a_rule_makes_of_class_counts_is_looked_at(rows, rule, told):
    with pytest.raises(InputError, match=told):
        ECRTClassifier(demixing="linear", head=LinearHead(loss=LossRule(**rule))).fit(*rows)


@pytest.mark.parametrize("head", [LinearHead, MLPHead])
def test_a_loss_may_ask_how_far_training_is(rows, head):
    rule = LossRule(bind=lambda counts: lambda logits, y, done: cross_entropy(logits, y))
    assert fitted(rows, "none", head(loss=rule, epochs=20)).score(*rows) > 0.4


def test_a_rule_of_no_functions_is_named():
    with pytest.raises(InputError, match="LossRule: bind must be a function of class counts; got 3"):
        LossRule(bind=3)
