"""scikit-learn faces of the method."""

from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.saved import load

__all__ = ["ECRTClassifier", "load"]
