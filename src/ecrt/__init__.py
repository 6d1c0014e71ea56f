"""Learning from imbalanced data by energy-based causal representation transfer."""

from importlib.metadata import PackageNotFoundError, version

from ecrt.comparison import compare
from ecrt.errors import DivergenceError, ECRTError, ECRTWarning, InputError, ModelFileError
from ecrt.estimators import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, load
from ecrt.runs import diagnose

try:
    __version__ = version("ecrt")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "BaselineClassifier",
    "DivergenceError",
    "ECRTClassifier",
    "ECRTError",
    "ECRTRegressor",
    "ECRTTransformer",
    "ECRTWarning",
    "InputError",
    "ModelFileError",
    "__version__",
    "compare",
    "diagnose",
    "load",
]
