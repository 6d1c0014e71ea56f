"""What a fitted rival has to keep, declared attribute by attribute."""

from __future__ import annotations

from ecrt.estimators.saved import CLASSES, INPUT, Attributes, check_classes, declare, refuse
from ecrt.io import Array, HeadNetwork, Value
from ecrt.rivals.classifier import BaselineClassifier

ATTRIBUTES: Attributes = {
    **CLASSES,
    **INPUT,
    "head_": HeadNetwork("classes"),
    "model_": Value(None),
    "multilabel_": Value(bool),
    "end_to_end_": Value(bool),
    "nonnegative_": Array("features", bool),
}


def _check(clf: BaselineClassifier) -> None:
    refuse("A rival takes one label for each row.", when=clf.multilabel_)
    check_classes(clf)
    _ = clf.log_class_prior_


declare(BaselineClassifier, ATTRIBUTES, _check)
