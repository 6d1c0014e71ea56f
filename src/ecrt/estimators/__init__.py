"""scikit-learn faces of the method."""

from ecrt.estimators.baseline import BaselineClassifier
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved import load
from ecrt.estimators.transformer import ECRTTransformer

__all__ = ["BaselineClassifier", "ECRTClassifier", "ECRTRegressor", "ECRTTransformer", "load"]
