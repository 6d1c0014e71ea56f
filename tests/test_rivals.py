"""One contract for every rival, and what each promises of its own."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from imblearn.ensemble import BalancedRandomForestClassifier
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils.data import TensorDataset

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, ECRTWarning, Encoder, InputError, LinearHead, MLPHead
from ecrt.losses import LOSS_OPTIONS, LossRule, cross_entropy
from ecrt.nn import BalancedHead
from ecrt.rivals import (
    LDA,
    LDAM,
    SMOTE,
    DistributionCalibration,
    Focal,
    PostHoc,
    Rival,
    known_rivals,
)
from ecrt.stages.parts import changed_options

RIVALS = {name: kind for name, kind in known_rivals().items() if kind.__module__.startswith("ecrt.rivals.")}
QUICK = {
    "cgan": {"n_steps": 50, "width": 8},
    "flow-augmentation": {"demixing": "linear"},
    "gradient-boosting": {"max_iter": 10, "min_samples_leaf": 5},
    "balanced-forest": {"n_estimators": 10},
}


def make(method: str | Rival, head: type = LinearHead, options: dict | None = None, **others) -> BaselineClassifier:
    """A rival with little to do; ``options`` are those of its head."""
    rival = RIVALS[method](**QUICK.get(method, {})) if isinstance(method, str) else method
    model = BaselineClassifier(method=rival, **{"random_state": 0, **others})
    if rival.overrides("fit_model") or model._end_to_end:
        return model
    return model.set_params(head=head(**{"epochs": 8, "weight_decay": 1e-3, **(options or {})}))


every_method = pytest.mark.parametrize("method", RIVALS)
# Those that are quick: heads trained by steps take half a minute of processor time each.
CHECKED = [
    make("logit-adjusted", random_state=None),
    make("feature-smote", random_state=None),
    make("lda", random_state=None),
    make("gradient-boosting", random_state=None),
    make("weighted", random_state=None, encoder=Encoder("mlp", n_features=8, epochs=12)),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_labels_that_were_not_in_training_count_as_wrong():
    X, y = np.repeat([[0.0], [9.0]], 20, axis=0), np.repeat(["a", "b"], 20)
    clf = make("lda").fit(X + np.random.default_rng(0).normal(size=X.shape), y)
    with pytest.warns(ECRTWarning, match=r"count as wrong: \['new'\]"):
        assert clf.score(X, np.where(np.arange(40) < 10, "new", y)) == 0.75


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Four classes that lie apart, one of them a single row; a category among the columns."""
    X, y = make_classification(
        160, n_features=5, n_informative=5, n_redundant=0, n_classes=3, n_clusters_per_class=1, class_sep=2.0,
        weights=[0.6, 0.3, 0.1], flip_y=0, random_state=1,
    )  # fmt: skip
    X, y = np.vstack([X, np.full(5, 9.0)]), np.append(y, 3)
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["colour"] = np.where(np.arange(len(y)) % 2 == 0, "red", "blue")
    return frame, np.array(["common", "usual", "rare", "single"])[y]


@every_method
def test_every_rival_is_a_whole_classifier(table, method):
    X, y = table
    clf = make(method).fit(X, y)
    log_proba = clf.predict_log_proba(X)
    assert np.isfinite(log_proba).all()
    np.testing.assert_allclose(np.exp(log_proba).sum(axis=1), 1)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[log_proba.argmax(axis=1)])
    assert clf.classes_.tolist() == ["common", "rare", "single", "usual"]
    # The same model under the other prior differs by the log prior and nothing else.
    balanced = clf.decision_function(X)
    shift = clf.set_params(class_prior="training").decision_function(X) - balanced
    expected = np.log(clf.class_counts_ / clf.class_counts_.sum())
    np.testing.assert_allclose(shift, np.broadcast_to(expected, shift.shape), atol=1e-9)


@every_method
def test_every_rival_learns_two_classes_as_its_seed_says(method):
    X, y = make_classification(120, n_features=4, n_redundant=0, class_sep=2.0, weights=[0.8], random_state=3)
    first, again = (make(method, options={"epochs": 30}, random_state=5).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))
    assert first.decision_function(X).shape == (120,)
    recall = [(first.predict(X)[y == label] == label).mean() for label in (0, 1)]
    assert np.mean(recall) > 0.7


def test_post_hoc_adjustment_is_erm_under_the_balanced_prior(table):
    erm, post_hoc = (make(method).fit(*table).decision_function(table[0]) for method in ("erm", "post-hoc"))
    np.testing.assert_allclose(erm, post_hoc, atol=1e-5)
    half = make(PostHoc(tau=0.0)).fit(*table)
    training = make("erm", class_prior="training").fit(*table).decision_function(table[0])
    np.testing.assert_allclose(half.decision_function(table[0]), training, atol=1e-5)


def test_erm_is_scikit_learns_logistic_regression():
    X, y = make_classification(400, n_features=6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    ours = make("erm", options={"weight_decay": 1e-2}, class_prior="training").fit(X, y).predict_proba(X)
    standard = StandardScaler().fit_transform(X)
    theirs = LogisticRegression(C=1 / (len(y) * 1e-2), max_iter=1000).fit(standard, y).predict_proba(standard)
    np.testing.assert_allclose(ours, theirs, atol=5e-3)


def test_weighted_is_scikit_learns_class_weighted_logistic_regression():
    X, y = make_classification(
        400, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.8, 0.15], random_state=0
    )
    ours = make("weighted", options={"weight_decay": 1e-2}).fit(X, y).predict_proba(X)
    standard = StandardScaler().fit_transform(X)
    model = LogisticRegression(C=1 / (len(y) * 1e-2), class_weight="balanced", max_iter=1000).fit(standard, y)
    np.testing.assert_allclose(ours, model.predict_proba(standard), atol=5e-3)


def test_lda_under_the_training_prior_is_scikit_learns():
    X, y = make_classification(300, n_features=6, n_informative=5, n_redundant=0, weights=[0.9], random_state=0)
    ours = make("lda", class_prior="training").fit(X, y).predict_proba(X)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_one_scale_leaves_columns_in_proportion(table):
    X, y = table[0][list("abcde")].to_numpy() * np.geomspace(1, 100, 5), table[1]
    clf = make("erm", scaling="one").fit(X, y)
    scaled = clf.demixer_(torch.from_numpy(X)).numpy()
    assert scaled.std(axis=0) / scaled.std(axis=0)[0] == pytest.approx(X.std(axis=0) / X.std(axis=0)[0])
    assert np.sqrt((scaled.std(axis=0) ** 2).mean()) == pytest.approx(1.0)


def test_feature_smote_balances_what_the_head_learns_from(table):
    """With every class as large as the largest, the scores of plain cross-entropy are balanced ones as they are."""
    clf = make("feature-smote").fit(*table)
    assert isinstance(clf.head_, torch.nn.Linear)


@pytest.mark.parametrize("loss", LOSS_OPTIONS)
def test_any_loss_goes_with_a_method_that_is_none(table, loss):
    clf = make("mixup", MLPHead, {"loss": loss, "epochs": 3}).fit(*table)
    assert np.isfinite(clf.predict_log_proba(table[0])).all()


@pytest.mark.parametrize("method", ["ldam-drw", "mixup", "smote", "post-hoc", "tau-norm", "crt", "isda", "qda"])
def test_an_encoder_is_trained_end_to_end_or_first(table, method):
    clf = make(
        method, encoder=Encoder("mlp", epochs=20, n_features=4, holdout=0.3, batch_size=16, learning_rate=5e-3),
        options={"epochs": 50}, class_prior="training",
    ).fit(*table)  # fmt: skip
    assert clf.end_to_end_ == (method in ("ldam-drw", "mixup", "smote", "post-hoc", "tau-norm"))
    assert clf.history_["encoder"] is not None
    assert np.isfinite(clf.predict_log_proba(table[0])).all()
    assert clf.score(*table) > 0.75  # 0.59 for the most frequent class


def test_images_in_a_dataset_with_a_cosine_head():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(24) % 3
    x = torch.randn(24, 1, 8, 8, generator=generator) + y[:, None, None, None]
    clf = make(
        "ldam",
        encoder=Encoder(
            "resnet18", n_features=8, epochs=1, holdout=0.0, batch_size=8, head="cosine", optimizer="sgd", flip=True,
            crop_padding=1,
        ),
    )  # fmt: skip
    clf.fit(TensorDataset(x, y))
    assert clf.predict_proba(TensorDataset(x, y)).shape == (24, 3)


@pytest.mark.parametrize("method", ["ldam", "erm"])
@pytest.mark.parametrize("holdout", [0.0, 0.25])
def test_a_cosine_head_is_tempered_saved_and_exported(table, method, holdout, tmp_path):
    """LDAM leaves logits on a scale of their own, which held-out rows mend."""
    clf = make(method, encoder=Encoder("mlp", epochs=20, head="cosine", holdout=holdout)).fit(*table)
    inner = clf.head_.head if isinstance(clf.head_, BalancedHead) else clf.head_
    assert (float(inner.scale) != clf.rival.encoder(clf.encoder).logit_scale) == (method == "ldam" and holdout > 0)
    clf.save(tmp_path / "model")
    again = ecrt.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(table[0]), clf.predict_proba(table[0]))
    served = clf.to_module()(torch.from_numpy(clf.read_rows(table[0])))
    np.testing.assert_allclose(served[1].numpy(), clf.predict_proba(table[0]), atol=1e-5)


@pytest.mark.parametrize("head_loss", LOSS_OPTIONS)
def test_ecrt_takes_any_head_loss(table, head_loss):
    head = LinearHead(loss=head_loss, weight_decay=1e-3, epochs=20)
    clf = ECRTClassifier(demixing="linear", head=head, minority=["rare"], random_state=0).fit(*table)
    assert clf.score(*table) > 0.6


@pytest.mark.parametrize("encoder_loss", ["weighted", "ldam-drw"])
def test_ecrt_takes_any_encoder_loss_and_mixup(table, encoder_loss):
    encoder = Encoder("mlp", epochs=8, n_features=4, learn_from="all", loss=encoder_loss, mixup=0.3, mixup_off=0.25)
    clf = ECRTClassifier(
        encoder=encoder, demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0
    ).fit(*table)  # fmt: skip
    assert np.isfinite(clf.predict_log_proba(table[0])).all()


def test_mixup_acts_on_sources_where_no_encoder_is_trained(table):
    options = {"demixing": "linear", "random_state": 0, "minority": ["rare"]}
    plain, mixed = (
        ECRTClassifier(head=MLPHead(mixup=mixup, epochs=10), **options).fit(*table).predict_proba(table[0])
        for mixup in (0, 1.0)
    )
    assert np.abs(plain - mixed).max() > 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "boosted"}, "method='boosted': use one of"),
        ({"method": Focal(gamma=-1.0)}, "'gamma' parameter of Focal"),
        ({"method": "focal", "head": LinearHead(loss="ldam")}, "Focal is a loss itself"),
        ({"method": "focal", "head": LinearHead(loss_options={"gamma": 1.0})}, "Focal is a loss itself"),
        ({"method": "focal", "encoder": Encoder("mlp", loss="ldam")}, "leave the loss of the encoder out"),
        ({"method": "mixup", "head": LinearHead(loss_options={"beta": 1.0})}, "no option 'beta'"),
        ({"method": "mixup", "encoder": Encoder("mlp", mixup=0.1)}, "Set alpha and off of Mixup"),
        ({"method": "erm", "encoder": Encoder("mlp", learn_from="majority")}, "rivals learn from all classes"),
        ({"method": "erm", "head": LinearHead(mixup=0.1)}, "use method=Mixup(alpha=...)"),
        ({"method": "smote", "head": LinearHead(class_mass="balanced")}, "leave class_mass of the head out"),
        ({"method": "erm", "head": LinearHead(learning_rate=0.1)}, "learning_rate=0.1 would have no effect"),
        ({"method": "lda", "head": LinearHead(loss="focal")}, "would have no effect"),
        ({"method": "erm", "encoder": "mlp", "head": "mlp"}, "head='mlp' would have no effect"),
        ({"method": "vat", "encoder": Encoder("mlp", holdout=0.0, epochs=1)}, "leaves no row"),
        ({"method": "balanced-forest", "scaling": "one"}, "scaling='one' would have no effect"),
    ],
)  # fmt: skip
def test_what_does_not_belong_is_refused_with_advice(table, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        BaselineClassifier(random_state=0, **options).fit(*table)


@every_method
def test_every_rival_is_a_part_with_its_options_and_its_reference(method):
    rival = RIVALS[method]()
    rival.check()
    assert rival.label
    assert len(rival.reference()) > 10
    assert clone(rival) == rival
    assert not changed_options(rival)
    options, documented = rival.get_params(deep=False), RIVALS[method].__doc__
    assert all(
        re.search(rf"^    [a-z_0-9, ]*\b{name}\b[a-z_0-9, ]*( :|$)", documented, re.MULTILINE) for name in options
    )
    assert set(rival.tuned or {}) <= set(options) | {"augmentation__weight"}


def test_options_of_a_rival_are_reached_through_the_classifier():
    model = BaselineClassifier(method="ldam").set_params(method__largest_margin=1.0, head__epochs=3)
    assert (model.method, model.head) == (LDAM(largest_margin=1.0), LinearHead(epochs=3))
    assert model.get_params()["method__largest_margin"] == 1.0
    nested = BaselineClassifier(method="flow-augmentation").set_params(method__augmentation__weight=0.2)
    assert nested.method.get_params()["augmentation__weight"] == 0.2
    with pytest.raises(ValueError, match="Invalid parameter 'gamma'"):
        model.set_params(method__gamma=1.0)
    named = BaselineClassifier._from_plain_options({"method": {"kind": "smote", "k_neighbors": 3}})
    assert named.method == SMOTE(k_neighbors=3)


class HalfTheLoss(Rival):
    """A loss that no list knows: its constant changes nothing of what is fitted but the scale."""

    def loss(self):
        return LossRule(bind=lambda counts_m: lambda logits, y, done=1.0: 0.5 * cross_entropy(logits, y))


def test_a_loss_of_ones_own_serves_heads_encoders_and_ecrt(table):
    X, y = table
    # Half the loss under half the weight decay has its minimum where the loss has it. L-BFGS only comes near.
    half = make(HalfTheLoss(), options={"weight_decay": 5e-4}).fit(X, y).decision_function(X)
    np.testing.assert_allclose(half, make("erm").fit(X, y).decision_function(X), rtol=0.02, atol=0.1)
    encoder = Encoder("mlp", epochs=3, n_features=4)
    assert make(HalfTheLoss(), encoder=encoder).fit(X, y).end_to_end_
    own = ECRTClassifier(demixing="none", head=LinearHead(loss=HalfTheLoss().loss()), random_state=0).fit(X, y)
    assert own.score(X, y) > 0.6
    with pytest.raises(InputError, match="has no options"):
        _ = LinearHead(loss=HalfTheLoss().loss(), loss_options={"tau": 1.0}).class_loss


@pytest.mark.parametrize(
    "options",
    [
        {"method": "class-balanced"},
        {"method": "crt", "head": MLPHead, "minority": lambda counts: counts < 20},
        {"method": DistributionCalibration(spread=0.5), "class_prior": [1, 2, 3, 4]},
        {"method": LDAM(largest_margin=0.3), "encoder": Encoder("mlp", epochs=2, n_features=3)},
        {"method": "flow-augmentation"},
        {"method": "lda"},
        {"method": "gradient-boosting"},
        {"method": "balanced-forest"},
    ],
    ids=lambda options: str(options["method"]),
)
def test_a_network_is_saved_and_loaded_to_the_last_bit(table, options, tmp_path):
    clf = make(**{"options": {"epochs": 3}, **options}).fit(*table)
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_log_proba(table[0]), clf.predict_log_proba(table[0]))
    assert loaded.method == clf.method
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert "theorem" not in card
    assert clf.rival.kind in card


def test_a_model_of_another_library_says_how_it_can_be_kept(table, tmp_path):
    assert [name for name, rival in RIVALS.items() if not rival.kept] == ["qda"]
    with pytest.raises(InputError, match=r"QDA.*cannot be saved.*joblib"):
        make("qda").fit(*table).save(tmp_path / "model")


@pytest.mark.parametrize("n_classes", [2, 4])
def test_models_as_networks_predict_what_their_libraries_do(n_classes):
    weights = [0.6] + [0.4 / (n_classes - 1)] * (n_classes - 2)
    X, y = make_classification(
        1500, n_features=8, n_informative=6, n_classes=n_classes, weights=weights, random_state=0
    )
    forest = BalancedRandomForestClassifier(
        20, sampling_strategy="all", replacement=True, bootstrap=False, random_state=3
    ).fit(X, y)
    boosted = HistGradientBoostingClassifier(
        max_iter=20, class_weight="balanced", early_stopping=False, random_state=3
    ).fit(X, y)
    discriminant = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X, y).predict_proba(X)
    discriminant /= np.bincount(y)
    expected = {
        "balanced-forest": (20 * forest.predict_proba(X) + 1 / n_classes) / 21,
        "gradient-boosting": boosted.predict_proba(X),
        "lda": discriminant / discriminant.sum(axis=1, keepdims=True),
    }
    options = {"balanced-forest": {"n_estimators": 20}, "gradient-boosting": {"max_iter": 20}}
    for name, proba in expected.items():
        network = RIVALS[name](**options.get(name, {})).fit_model(X, y, np.random.default_rng(0), 3)
        np.testing.assert_allclose(torch.softmax(network(torch.from_numpy(X)), 1).detach(), proba, atol=1e-10)


def test_two_rivals_must_not_share_a_short_name():
    class Other(Rival):
        """Another method."""

        kind = "lda"

    with pytest.raises(InputError, match="LDA and Other are both called 'lda'"):
        known_rivals()
    del Other
    gc.collect()
    assert known_rivals()["lda"] is LDA


def test_the_page_of_rivals_has_a_line_for_every_method():
    page = (Path(__file__).parent.parent / "docs" / "rivals.md").read_text()
    named = set(re.findall(r"^\| `([a-z-]+)` \|", page, flags=re.MULTILINE))
    assert named == set(RIVALS)
    for name, rival in RIVALS.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        for option in (rival.__name__, *rival().get_params(deep=False)):
            assert f"`{option}`" in line, f"{name} does not mention {option}"
