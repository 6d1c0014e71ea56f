"""An option that was set acts, or is refused: the rules of parts and estimators, and a walk that holds them to it."""

from __future__ import annotations

import pytest
from sklearn.base import clone

from ecrt import (
    BaselineClassifier,
    Borrowed,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    NoDemixing,
    Permutation,
    PseudoMinority,
    TreesHead,
)
from ecrt.rivals import Remix
from options_walk import ESTIMATORS, NOT_WALKED, PARTS, VALUES, a_module, data, fitted, modes, walk

SAME_BY_NATURE = {
    ("encoder__train", "False"),  # switches off what is not there
    ("weighted", "False"),
    ("augmentation", "'none'"),
    ("demixing__rotation", "'discriminant'"),  # what fewer sources have anyway
    ("demixing__learn_from", "'majority'"),  # what "auto" is
    ("encoder__learn_from", "'majority'"),
}


@pytest.mark.parametrize("kind", [*ESTIMATORS, *PARTS])
def test_every_option_is_walked_and_every_rule_is_of_an_option(kind):
    known = set(kind().get_params(deep=False))
    assert set(VALUES[kind]) | set(NOT_WALKED) >= known
    rules = kind().rules() if kind in PARTS else kind()._rules()
    ruled = {name for names, _, _ in rules for name in names.split()}
    assert ruled <= known


def test_all_estimators_are_walked_in_modes_that_they_can_have():
    assert set(ESTIMATORS) == {ECRTClassifier, ECRTRegressor, ECRTTransformer, BaselineClassifier}
    for kind in ESTIMATORS:
        for mode, given in modes(kind):
            model = kind(random_state=0, device="cpu", **given)
            model._check_parts(model._rules(mode.startswith("several")) if kind is ECRTClassifier else model._rules())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_defaults_are_never_refused(kind):
    kind()._check_parts(kind()._rules())
    for several in (True, False) if kind is ECRTClassifier else ():
        kind()._check_parts(kind()._rules(several))


@pytest.mark.parametrize(
    ("kind", "mode", "given"),
    [
        (ECRTClassifier, "Gaussian head", {"demixing": NoDemixing(), "head": "gaussian"}),
        (ECRTClassifier, "trees", {"demixing": Linear(), "head": TreesHead(steps=3)}),
        (ECRTTransformer, "frozen module", {"demixing": Linear(), "encoder": Encoder(a_module(), train=False)}),
        (BaselineClassifier, "remix", {"method": Remix(), "head": LinearHead(epochs=2)}),
    ],
)
def test_an_option_changes_the_model_or_is_refused(kind, mode, given):
    found = list(walk(kind, mode, given))
    assert len(found) > 10
    for one in found:
        if (one["option"], one["value"]) not in SAME_BY_NATURE:
            assert one["refused"] != one["changes"] or one["error"], one


@pytest.mark.parametrize(
    ("model", "several", "message"),
    [
        (ECRTClassifier(augmentation="borrowed"), True, "augmentation='borrowed' .* it needs rows with one label"),
        (ECRTClassifier(thresholds="validation"), False, "thresholds='validation' .* several labels"),
        (ECRTClassifier(demixing=Flow(objective="infonce")), False, "objective='infonce' .* label_marginal='batch'"),
        (
            ECRTClassifier(demixing=["linear", Flow(source_prior="shared", pseudo_samples=3)]),
            False,
            "Flow: pseudo_samples=3 .* source_prior='per-class'",
        ),
        (ECRTClassifier(head="gaussian", augmentation=Permutation(weight=0.2)), False, "a linear or MLP head"),
        (ECRTClassifier(head="trees", augmentation="borrowed"), False, "augmentation='borrowed' .* plain rows alone"),
        (ECRTClassifier(head=LinearHead(learning_rate=0.1)), False, "learning_rate=0.1 .* trained by steps"),
        (ECRTClassifier(encoder=Encoder("identity", holdout=0.3)), False, "holdout=0.3 .* a network that is trained"),
        (ECRTClassifier(encoder=Encoder(a_module(), train=False, n_features=3)), False, "n_features=3"),
        (ECRTClassifier(encoder=Encoder("autoencoder", loss="ldam")), False, "loss='ldam' .* trained on classes"),
        (ECRTClassifier(encoder=Encoder("autoencoder", precision="bfloat16")), False, "precision='bfloat16'"),
        (ECRTClassifier(head=LinearHead(loss_options={"tau": 1.5})), True, "tau is for rows with one class each"),
        (ECRTClassifier(selection=PseudoMinority(trials=9, budget=5)), False, "budget=5"),
        (ECRTClassifier(minority="all", augmentation=Borrowed()), False, "none has residuals to lend"),
        (ECRTClassifier(encoder=Encoder("mlp", momentum=0.5)), False, "momentum=0.5 .* optimizer='sgd'"),
        (ECRTRegressor(demixing="none", weighted=True), False, "weighted=True .* demixing other than 'none'"),
        (ECRTTransformer(validation_fraction=0.5), False, "validation_fraction=0.5 .* demixing='flow'"),
        (BaselineClassifier(method="qda", scaling="one", head="mlp"), False, "head='mlp'"),
        (BaselineClassifier(method="erm", head=LinearHead(learning_rate=0.1)), False, "learning_rate=0.1"),
        (
            BaselineClassifier(method="crt", head=LinearHead(loss="focal")),
            False,
            "loss='focal'.* an MLP head",
        ),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused_with_what_it_needs(model, several, message):
    X, y = data("several labels" if several else "", type(model))
    with pytest.raises(InputError, match=message):
        clone(model).fit(X, y)


def test_mixup_reaches_the_encoder():
    X, y = data("", ECRTClassifier)
    plain, mixed = (
        fitted(
            ECRTClassifier(
                encoder=Encoder("mlp", epochs=2, mixup=mixup), demixing="linear", head="linear", random_state=0
            ), X, y,
        )
        for mixup in (0.0, 0.5)
    )  # fmt: skip
    assert plain != mixed
    encoder = Encoder("mlp", epochs=2)
    rival = fitted(BaselineClassifier(method="erm", encoder=encoder, random_state=0), X, y)
    assert fitted(BaselineClassifier(method="mixup", encoder=encoder, random_state=0), X, y) != rival
