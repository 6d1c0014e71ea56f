"""Costs of mistakes: the class of lowest expected cost, cuts that held-out rows move, the command, meta-estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine, make_classification
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, recall_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, InputError, LinearHead
from ecrt.cli import app
from ecrt.estimators.decisions import choose_offsets, cost_matrix, lowest_cost
from ecrt.losses import LossRule, cross_entropy

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")

QUICK = {"demixing": "linear", "head": "linear", "random_state": 0}
COSTS = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "c": 1}, "c": {"a": 20, "b": 20}}


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(
        500, n_classes=3, n_informative=5, n_redundant=0, n_features=6, weights=[0.6, 0.3, 0.1], random_state=1
    )
    return X, np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def fitted(rows):
    return ECRTClassifier(costs=COSTS, class_prior="training", **QUICK).fit(*rows)


# --- the matrix --------------------------------------------------------------------------------------------------


def test_costs_are_given_in_order_or_by_name():
    names = np.array(["a", "b", "c"])
    wanted = [[0, 1, 1], [1, 0, 1], [20, 20, 0]]
    assert cost_matrix(wanted, names).tolist() == wanted
    assert cost_matrix(COSTS, names).tolist() == wanted
    frame = pd.DataFrame(wanted, index=names, columns=names)
    assert cost_matrix(frame.loc[["c", "a", "b"], ["b", "c", "a"]], names).tolist() == wanted
    assert cost_matrix({0: {1: 2.0}, 1: {0: 3.0}}, np.array([0, 1])).tolist() == [[0, 2], [3, 0]]


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ([[0, 1], [1, 0]], r"a row and a column for each of the 3 classes \['a', 'b', 'c'\]; its shape is \(2, 2\)"),
        ([[0, 1, 1], [1, 0, np.nan], [1, 1, 0]], "predicting 'c' for a row of 'b' is not a number"),
        ({"a": {"b": 1, "c": 1}, "b": {"a": 1, "c": 1}}, "no row for the true class 'c'"),
        ({**COSTS, "d": {"a": 1}}, "a row 'd', which is no class; there are .'a', 'b', 'c'."),
        ({**COSTS, "a": {"b": 1}}, "predicting 'c' for a row of 'a' is not a number"),
        ({"a": {"b": 1}, "b": {"a": 1}, "c": {"a": 1, "b": 1}}, "no column for the predicted class 'c'"),
        ({"a": 1, "b": 2}, "a mapping from predicted classes to costs for each true class"),
        ([["x", 1, 1], [1, 0, 1], [1, 1, 0]], "costs must hold numbers"),
        (np.full((3, 3), 1j), "costs must hold numbers: some are complex"),
        (np.full((3, 3), -1e301), r"costs: -1e\+301 is beyond 1e\+100"),
        (pd.DataFrame(np.ones((3, 3)), index=list("aab"), columns=list("abc")), "no row for the true class 'c'"),
    ],
)
@pytest.mark.parametrize("kind", [ECRTClassifier, BaselineClassifier])
def test_costs_that_do_not_fit_are_refused_before_the_fit(rows, kind, costs, told):
    with pytest.raises(InputError, match=told):
        kind(costs=costs, encoder="mlp").fit(*rows)


def test_costs_are_for_one_label_a_row(rows):
    X, y = rows
    with pytest.raises(InputError, match=r"costs=.*would have no effect: it needs rows with one label each"):
        ECRTClassifier(costs=COSTS).fit(X, np.column_stack([y == "a", y != "a"]).astype(int))


# --- the rule ----------------------------------------------------------------------------------------------------


def test_the_class_of_lowest_expected_cost_is_predicted(rows, fitted):
    X, _ = rows
    matrix, proba = fitted.cost_matrix_, fitted.predict_proba(X)
    expected = [[sum(p[m] * matrix[m, k] for m in range(3)) for k in range(3)] for p in proba]
    assert (fitted.decision_.offsets == 0).all()
    assert fitted.predict(X).tolist() == fitted.classes_[np.argmin(expected, axis=1)].tolist()
    assert (fitted.predict(X) == "c").sum() > (fitted.classes_[proba.argmax(axis=1)] == "c").sum()


def test_equal_costs_change_nothing(rows):
    X, _ = rows
    plain = ECRTClassifier(class_prior="training", **QUICK).fit(*rows)
    assert plain.decision_verdict_ == ""
    assert np.array_equal(plain.predict(X), plain.set_params(costs=1 - np.eye(3)).predict(X))


def test_costs_set_after_the_fit_decide_by_the_plain_rule(rows, fitted):
    X, _ = rows
    other = ecrt.ECRTClassifier(class_prior="training", **QUICK).fit(*rows).set_params(costs=COSTS)
    assert np.array_equal(other.predict(X), fitted.predict(X))
    assert "no held-out rows" in other.decision_verdict_


# --- cuts that held-out rows move --------------------------------------------------------------------------------


def held_out(n=3000, tilt=0.0, seed=0):
    """Right log-probabilities of three classes and their labels; ``tilt`` makes the last class look less likely."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet([1.0, 0.6, 0.4], n)
    y = np.array([rng.choice(3, p=p) for p in proba])
    return np.log(proba) - tilt * (np.arange(3) == 2), y


MATRIX = np.array([[0, 1, 1], [1, 0, 1], [10, 10, 0.0]])


def mean_cost(scores, y, offsets):
    return MATRIX[y, lowest_cost(scores, MATRIX, offsets)].mean()


def test_right_probabilities_keep_the_plain_rule():
    scores, y = held_out()
    offsets, saving = choose_offsets(scores, y, MATRIX, np.bincount(y) / len(y))
    assert (offsets == 0).all()
    assert not saving.certain
    assert "do not save enough for certain" in saving.sentence
    assert saving.plain == pytest.approx(mean_cost(scores, y, None))


def test_wrong_probabilities_are_mended_and_new_rows_cost_less():
    scores, y = held_out(tilt=2.5)
    offsets, saving = choose_offsets(scores, y, MATRIX, np.bincount(y) / len(y))
    assert saving.certain
    assert "with cuts moved by held-out rows" in saving.sentence
    new, truth = held_out(tilt=2.5, seed=1)
    right, _ = held_out(seed=1)
    moved, plain, best = mean_cost(new, truth, offsets), mean_cost(new, truth, None), mean_cost(right, truth, None)
    assert moved < plain - 0.5 * (plain - best)
    assert saving.moved == pytest.approx(moved, rel=0.1)


def test_cuts_serve_the_deployed_prior():
    """Rows are weighed by the prior: a class that will hardly come is not paid for."""
    scores, y = held_out(tilt=2.5)
    counts = np.bincount(y) / len(y)
    rare = counts * [1, 1, 0.01]
    under = scores + np.log(rare / counts)
    _, saving = choose_offsets(under, y, MATRIX, rare / rare.sum())
    weight = (rare / rare.sum() / counts)[y] / len(y)
    assert saving.plain == pytest.approx(weight @ MATRIX[y, lowest_cost(under, MATRIX)])
    assert not saving.certain


def test_a_mistake_that_no_held_out_row_shows_is_reckoned_with():
    """Twenty rows of a class without a miss say little about misses: what they save elsewhere is not enough."""
    sick = np.concatenate([np.full(8, 0.3), np.full(40, 0.02), np.linspace(0.9, 0.99, 20)])
    y = np.repeat([0, 1], [48, 20])
    costs = np.array([[0.0, 1.0], [5.0, 0.0]])
    offsets, saving = choose_offsets(np.log(np.column_stack([1 - sick, sick])), y, costs, np.bincount(y) / len(y))
    assert saving.gain == pytest.approx(8 / 68)
    assert saving.gain > 1.96 * saving.error
    assert (offsets == 0).all()
    assert saving.caution == pytest.approx(48 / 68 * 1 / 49 + 20 / 68 * 5 / 21)
    assert not saving.certain


def test_few_rows_and_many_classes_keep_the_plain_rule():
    scores, y = held_out(4)
    for given, truth, n in ((scores[:2], y[:2] * 0, 3), (np.zeros((90, 60)), np.arange(90) % 60, 60)):
        offsets, saving = choose_offsets(given, truth, 1 - np.eye(n), np.full(n, 1 / n))
        assert (offsets == 0).all()
        assert saving.rows == 0


def moved(clf):
    """The same model with offsets, as if held-out rows had chosen them."""
    vars(clf.decision_)["offsets"] = np.array([0.0, 0.0, -0.5])
    return clf


def test_a_fit_asks_held_out_rows_under_its_prior(rows, monkeypatch):
    asked = []

    def chosen(log_proba, y, costs, prior):
        asked.append((log_proba, y, prior))
        return choose_offsets(log_proba, y, costs, prior)

    monkeypatch.setattr("ecrt.estimators.base.choose_offsets", chosen)
    prior = [0.2, 0.3, 0.5]
    clf = ECRTClassifier(costs=COSTS, class_prior=prior, **QUICK).fit(*rows)
    ((log_proba, y, given),) = asked
    assert given == pytest.approx(prior)
    assert clf.history_["costs"]["rows"] == len(y) >= 80
    assert recall_score(y, (log_proba - np.log(prior)).argmax(axis=1), average="macro") > 0.5
    balanced = ECRTClassifier(costs=COSTS, class_prior="balanced", **QUICK).fit(*rows)
    assert balanced.decision_.class_prior == "balanced"
    assert log_proba - asked[1][0] == pytest.approx(np.broadcast_to(np.log(prior), log_proba.shape))


def exaggerated(counts_m):
    """A loss whose logits come out four times too large, though it says that they are log-probabilities."""
    return lambda logits_nm, y_n, done=1.0: cross_entropy(logits_nm / 4, y_n)


def test_a_fit_with_wrong_probabilities_moves_its_cuts_and_new_rows_cost_less(tmp_path):
    X, y = make_classification(
        4000, n_informative=4, n_features=4, n_redundant=0, weights=[0.8], flip_y=0.3, random_state=0
    )
    head = LinearHead(loss=LossRule(bind=exaggerated), weight_decay=1e-4)
    options = {"demixing": "linear", "augmentation": "none", "class_prior": "training", "random_state": 0}
    clf = ECRTClassifier(head=head, costs=[[0, 1], [12, 0]], **options).fit(X[:3000], y[:3000])
    assert "with cuts moved by held-out rows" in clf.decision_verdict_
    scores, truth = clf.predict_log_proba(X[3000:]), y[3000:]
    decided = clf.cost_matrix_[truth, clf.predict(X[3000:])].mean()
    assert decided < 0.95 * clf.cost_matrix_[truth, lowest_cost(scores, clf.cost_matrix_)].mean()


def test_moved_cuts_serve_under_their_own_prior_and_costs_alone(rows):
    X, _ = rows
    clf = moved(ECRTClassifier(costs=COSTS, class_prior="training", **QUICK).fit(*rows))
    scores = clf.decision_function(X)
    with_cuts, plain = (
        clf.classes_[lowest_cost(scores, clf.cost_matrix_, one)] for one in (clf.decision_.offsets, None)
    )
    assert not np.array_equal(with_cuts, plain)
    assert np.array_equal(clf.predict(X), with_cuts)
    balanced = clf.set_params(class_prior="balanced")
    assert np.array_equal(balanced.predict(X), clf.classes_[lowest_cost(clf.decision_function(X), clf.cost_matrix_)])
    clf.set_params(class_prior="training", costs=np.asarray(clf.cost_matrix_))
    assert np.array_equal(clf.predict(X), with_cuts)
    clf.set_params(costs=1 - np.eye(3))
    assert np.array_equal(clf.predict(X), clf.classes_[scores.argmax(axis=1)])


def test_an_exported_model_decides_in_the_same_way(rows):
    X, _ = rows
    clf = moved(ECRTClassifier(costs=COSTS, class_prior="training", **QUICK).fit(*rows))
    for costs in (COSTS, 1 - np.eye(3), None):
        places, _ = clf.set_params(costs=costs).to_module()(torch.from_numpy(X))
        assert np.array_equal(clf.classes_[places.numpy()], clf.predict(X))


def test_weighted_rows_keep_the_plain_rule(rows):
    X, y = rows
    clf = ECRTClassifier(costs=COSTS, class_prior="training", **QUICK).fit(X, y, sample_weight=np.full(len(y), 1.5))
    assert (clf.decision_.offsets == 0).all()
    assert clf.history_["costs"]["rows"] == 0


@pytest.mark.parametrize("kind", [ECRTClassifier, BaselineClassifier])
def test_decisions_are_saved_and_loaded(rows, kind, tmp_path):
    X, _ = rows
    options = QUICK if kind is ECRTClassifier else {"method": "weighted", "random_state": 0}
    clf = moved(kind(costs=pd.DataFrame(COSTS).T, class_prior=[0.5, 0.3, 0.2], **options).fit(*rows))
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), clf.predict(X))
    assert np.array_equal(loaded.decision_.offsets, clf.decision_.offsets)
    assert loaded.decision_verdict_ == clf.decision_verdict_
    assert np.array_equal(loaded.cost_matrix_, clf.cost_matrix_)
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert "Costs of a row of c: a 20, b 20, c 0" in card
    assert "The class of lowest expected cost is predicted" in card


@pytest.mark.parametrize("method", ["logit-adjusted", "lda", "balanced-forest"])
def test_rivals_decide_by_the_same_rule(rows, method):
    X, _ = rows
    clf = BaselineClassifier(method=method, costs=COSTS, class_prior="training", random_state=0).fit(*rows)
    assert clf.history_["costs"]["rows"] == (0 if method != "logit-adjusted" else clf.history_["costs"]["rows"])
    scores = clf.predict_log_proba(X)
    assert np.array_equal(clf.predict(X), clf.classes_[lowest_cost(scores, clf.cost_matrix_, clf.decision_.offsets)])


def test_refit_keeps_the_cuts_and_new_classes_need_new_costs(rows):
    X, y = rows
    clf = moved(ECRTClassifier(costs=COSTS, class_prior="training", **QUICK).fit(X, y))
    offsets = clf.decision_.offsets
    assert np.array_equal(clf.refit(X, y).decision_.offsets, offsets)
    assert clf._offsets is not None
    with pytest.raises(InputError, match="costs has a row for each class: set it to None first"):
        clf.add_classes(X[:2] + 5, ["d", "d"])
    clf.set_params(costs=None).add_classes(X[:2] + 5, ["d", "d"])
    assert not hasattr(clf, "decision_")
    assert len(clf.set_params(costs=1 - np.eye(4)).predict(X)) == len(X)


def test_selection_goes_with_costs(rows):
    from ecrt import PseudoMinority

    clf = ECRTClassifier(costs=COSTS, selection=PseudoMinority(trials=6), random_state=0).fit(*rows)
    assert clf.decision_.costs.tolist() == clf.cost_matrix_.tolist()


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    X, y = load_wine(return_X_y=True, as_frame=True)
    rng = np.random.default_rng(0)
    X = X.iloc[:, :4] + rng.normal(size=(len(X), 4)) * X.iloc[:, :4].std().to_numpy()
    file = tmp_path_factory.mktemp("wine") / "wine.csv"
    X.assign(kind=y.map({0: "red", 1: "rose", 2: "white"})).to_csv(file, index=False)
    return file


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1"})


FIT = ["--set", "model.demixing=linear", "--set", "model.head=linear"]
TABLE = "true,red,rose,white\nred,0,1,1\nrose,1,0,1\nwhite,30,30,\n"


def test_a_csv_of_costs_goes_from_fit_to_predict_evaluate_page_and_card(wine, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text(TABLE)
    out = tmp_path / "fit"
    result = invoke("fit", wine, "--target", "kind", "--costs", costs, "-o", out, *FIT)
    assert result.exit_code == 0, result.output
    assert "The class of lowest expected cost is predicted" in result.output
    model = ecrt.load(out / "model")
    assert model.class_prior == "training"
    assert model.cost_matrix_.tolist() == [[0, 1, 1], [1, 0, 1], [30, 30, 0]]
    page = (out / "report.html").read_text()
    assert "The class of lowest expected cost is predicted" in page
    assert "On the test rows a decision costs" in page
    table = pd.read_csv(wine)
    assert invoke("predict", out, wine, "-o", tmp_path / "said.csv").exit_code == 0
    said = pd.read_csv(tmp_path / "said.csv")["predicted"]
    assert (said == model.predict(table.drop(columns="kind"))).all()
    found = invoke("evaluate", out, wine)
    place = table["kind"].map({"red": 0, "rose": 1, "white": 2}).to_numpy()
    paid = model.cost_matrix_[place, said.map({"red": 0, "rose": 1, "white": 2}).to_numpy()].mean()
    assert "With the costs" in found.output
    assert f"{paid:.3f}"[:4] in found.output.partition("With the costs")[2]
    costs.write_text(TABLE.replace("30", "0.01"))
    assert invoke("predict", out, wine, "--costs", costs, "-o", tmp_path / "other.csv").exit_code == 0
    other = pd.read_csv(tmp_path / "other.csv")["predicted"]
    assert (other == "white").sum() < (said == "white").sum()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("true,red,rose\nred,0,1\nrose,1,0\n", "costs has no row for the true class 'white'"),
        (TABLE.replace("rose,1", "rosé,1"), "costs has a row 'rosé', which is no class; there are ['red'"),
        (TABLE.replace("rose,1,0,1", "rose,1,0"), "row 3: 2 costs for 3 classes"),
        (TABLE.replace("rose,1", "red,1"), "row 3: 'red' comes twice"),
        (TABLE.replace("30,30", "30,much"), "row 4 ('white'): could not convert string to float: 'much'"),
        ("", "its first line must name each predicted class once"),
    ],
)
def test_a_csv_of_costs_that_does_not_fit_is_named(wine, tmp_path, table, told):
    (tmp_path / "costs.csv").write_text(table)
    result = invoke("fit", wine, "--target", "kind", "--costs", tmp_path / "costs.csv", "-o", tmp_path / "fit", *FIT)
    assert result.exit_code == 1
    assert told in result.output
    assert not (tmp_path / "fit").exists()


def test_costs_by_class_stand_in_a_settings_file(wine, tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("costs:\n  red: {rose: 1, white: 1}\n  rose: {red: 1, white: 1}\n  white: {red: 3, rose: 3}\n")
    out = tmp_path / "fit"
    result = invoke("fit", wine, "--target", "kind", "--config", settings, "-o", out, "--method", "lda")
    assert result.exit_code == 0, result.output
    assert ecrt.load(out / "model").cost_matrix_.tolist() == [[0, 1, 1], [1, 0, 1], [3, 3, 0]]
    assert "With the costs" in invoke("evaluate", out, wine).output


# --- scikit-learn's meta-estimators ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(rows):
    X, y = rows
    return X, np.where(y == "c", "yes", "no")


def test_tuned_and_fixed_thresholds(two):
    X, y = two
    tuned = TunedThresholdClassifierCV(ECRTClassifier(**QUICK), scoring="balanced_accuracy", cv=3).fit(X, y)
    assert set(tuned.predict(X)) == {"no", "yes"}
    clf = ECRTClassifier(**QUICK).fit(X, y)
    low, high = (
        FixedThresholdClassifier(FrozenEstimator(clf), threshold=cut, pos_label="yes").fit(X, y).predict(X)
        for cut in (0.05, 0.95)
    )
    proba = clf.predict_proba(X)[:, 1]
    assert np.array_equal(low == "yes", proba >= 0.05)
    assert recall_score(y, low, pos_label="yes") > recall_score(y, high, pos_label="yes")


def test_calibration_of_a_frozen_model_restores_the_frequencies(rows):
    X, y = rows
    clf = ECRTClassifier(**QUICK).fit(X[:300], y[:300])  # under equal priors
    calibrated = CalibratedClassifierCV(FrozenEstimator(clf), method="sigmoid").fit(X[300:], y[300:])
    assert log_loss(y[300:], calibrated.predict_proba(X[300:])) < log_loss(y[300:], clf.predict_proba(X[300:]))
    assert np.array_equal(FrozenEstimator(clf).fit(X, y).predict(X), clf.predict(X))


def test_stacking_and_voting(rows):
    X, y = rows
    members = [("ecrt", ECRTClassifier(**QUICK)), ("bayes", GaussianNB())]
    stacked = StackingClassifier(members, LogisticRegression(max_iter=500), cv=3).fit(X, y)
    assert stacked.transform(X).shape == (500, 6)
    voting = VotingClassifier(members, voting="soft", weights=[3, 1]).fit(X, y)
    parts = [one.predict_proba(X) for one in voting.estimators_]
    assert voting.predict_proba(X) == pytest.approx((3 * parts[0] + parts[1]) / 4)
    assert stacked.score(X, y) > 0.6
    hard = VotingClassifier([("ecrt", ECRTClassifier(costs=1 - np.eye(3), **QUICK))]).fit(X, y)  # labels are numbers
    assert hard.score(X, y) > 0.5


def test_costs_may_be_a_frame_of_polars(rows):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    X, y = rows
    places = np.unique(y, return_inverse=True)[1]
    frame = polars.DataFrame(1.0 - np.eye(3), schema=["0", "1", "2"])
    clf = ECRTClassifier(demixing="none", head="linear", costs=frame, random_state=0).fit(X, places)
    assert clf.cost_matrix_.tolist() == (1 - np.eye(3)).tolist()
