"""scikit-learn faces of the method, the module for torch loops and, in ``sampler``, the one of imbalanced-learn."""

from ecrt.estimators.augmenter import ECRTAugmenter
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved import load
from ecrt.estimators.transformer import ECRTTransformer

__all__ = ["ECRTAugmenter", "ECRTClassifier", "ECRTRegressor", "ECRTTransformer", "load"]
