"""scikit-learn faces of the method."""

from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved import load
from ecrt.estimators.transformer import ECRTTransformer

__all__ = ["ECRTClassifier", "ECRTRegressor", "ECRTTransformer", "load"]
