"""scikit-learn faces of the method."""

from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.saved import load
from ecrt.estimators.transformer import ECRTTransformer

__all__ = ["ECRTClassifier", "ECRTTransformer", "load"]
