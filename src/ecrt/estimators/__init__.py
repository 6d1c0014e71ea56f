"""scikit-learn faces of the method."""

from ecrt.estimators.classifier import ECRTClassifier

__all__ = ["ECRTClassifier"]
