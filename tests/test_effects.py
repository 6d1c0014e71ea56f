"""An option that was set acts, or is refused: the rules, and a walk over all options that holds them to it."""

from __future__ import annotations

import pytest
from sklearn.base import clone

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, InputError
from ecrt.estimators.effects import RULES, idle_options, set_options
from options_walk import NOT_WALKED, VALUES, a_module, data, fitted, walk

KINDS = (ECRTClassifier, ECRTRegressor, ECRTTransformer, BaselineClassifier)

SAME_BY_NATURE = {
    ("train_encoder", "False"),  # switches off what is not there
    ("weighted", "False"),
    ("augmentation_weight", "0.0"),
    ("rotation", "'discriminant'"),  # what fewer sources have anyway, said aloud
    ("demix_on", "'majority'"),  # the same where no bin is rare
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_walked_and_every_rule_is_of_an_option(kind):
    known = set(kind().get_params())
    assert set(VALUES[kind]) | set(NOT_WALKED) >= known
    ruled = [name for rule in RULES[kind.__name__] for name in rule.options.split()]
    assert set(ruled) <= known
    assert len(ruled) == len(set(ruled))


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_never_refused(kind):
    assert idle_options(kind()) == {}
    assert idle_options(kind(), several=True) == {}


@pytest.mark.parametrize(
    ("kind", "mode", "given"),
    [
        (ECRTClassifier, "Gaussian head", {"demixing": "none", "head": "gaussian"}),
        (ECRTTransformer, "frozen module", {"demixing": "linear", "encoder": a_module(), "train_encoder": False}),
        (BaselineClassifier, "lda", {"method": "lda"}),
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
        (ECRTClassifier(augmentation="borrowed"), True, "augmentation='borrowed' would have no effect: it needs one"),
        (ECRTClassifier(mean_shrinkage=1.0), True, "mean_shrinkage=1.0 would have no effect"),
        (ECRTClassifier(thresholds="validation"), False, "thresholds='validation' .* several labels"),
        (ECRTClassifier(demixing="flow", rotation="joint"), False, "rotation='joint' .*a flow has axes of its own"),
        (ECRTClassifier(n_sources=2, rotation="joint"), False, "rotation='joint' .* n_sources=None"),
        (ECRTClassifier(demixing="linear", flow_blocks=2), False, "flow_blocks=2 .* demixing='flow' or 'auto'"),
        (ECRTClassifier(objective="infonce"), False, "objective='infonce' .* label_marginal='batch'"),
        (ECRTClassifier(head="gaussian", mixup=0.2), False, "mixup=0.2"),
        (ECRTClassifier(encoder_holdout=0.3), False, "encoder_holdout=0.3 .* an encoder that is trained"),
        (ECRTClassifier(encoder=a_module(), n_features=3, train_encoder=False), False, "n_features=3"),
        (ECRTClassifier(selection_trials=9), False, "selection_trials=9"),
        (ECRTClassifier(minority="all", augmentation="borrowed"), False, "none has residuals to lend"),
        (ECRTClassifier(encoder="mlp", encoder_options={"momentum": 0.5}), False, "momentum=0.5 .* optimizer='sgd'"),
        (ECRTTransformer(validation_fraction=0.5), False, "validation_fraction=0.5 .* demixing='flow'"),
        (BaselineClassifier(method="qda", scaling="one", head="mlp"), False, "head='mlp'"),
        (BaselineClassifier(method="erm", learning_rate=0.1), False, "learning_rate=0.1"),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused_with_what_it_needs(model, several, message):
    X, y = data("several labels" if several else "", type(model))
    with pytest.raises(InputError, match=message):
        clone(model).fit(X, y)


def test_mixup_reaches_the_encoder():
    X, y = data("", ECRTClassifier)
    options = {"encoder": "mlp", "encoder_epochs": 2, "random_state": 0}
    plain = fitted(ECRTClassifier(demixing="linear", head="linear", **options), X, y)
    assert fitted(ECRTClassifier(demixing="linear", head="linear", mixup=0.5, **options), X, y) != plain
    rival = fitted(BaselineClassifier(method="erm", **options), X, y)
    assert fitted(BaselineClassifier(method="mixup", **options), X, y) != rival


def test_choices_made_by_program_drop_what_has_no_effect():
    model = ECRTClassifier(rotation="joint", flow_blocks=2, weight_decay=0.1)
    set_options(model, demixing="none", head="gaussian")
    assert (model.rotation, model.flow_blocks, model.weight_decay) == ("symmetric", 1, None)
    assert (model.demixing, model.head) == ("none", "gaussian")
