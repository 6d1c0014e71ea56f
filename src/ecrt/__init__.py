"""Learning from imbalanced data by energy-based causal representation transfer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecrt.errors import DivergenceError, ECRTError, ECRTWarning, InputError, ModelFileError

if TYPE_CHECKING:
    from ecrt.comparison import compare
    from ecrt.data.streams import FileRows
    from ecrt.estimators import ECRTAugmenter, ECRTClassifier, ECRTRegressor, ECRTTransformer, load
    from ecrt.estimators.sampler import ECRTSampler
    from ecrt.rivals import BaselineClassifier
    from ecrt.runs import diagnose
    from ecrt.selection import PseudoMinority
    from ecrt.stages import (
        Borrowed,
        ByFunction,
        Donors,
        Encoder,
        Flow,
        GaussianHead,
        Interpolated,
        Kernel,
        Linear,
        LinearHead,
        MLPHead,
        NoAugmentation,
        NoDemixing,
        Pairs,
        Parametric,
        Permutation,
        TreesHead,
    )

    __version__: str

__all__ = [
    "BaselineClassifier",
    "Borrowed",
    "ByFunction",
    "DivergenceError",
    "Donors",
    "ECRTAugmenter",
    "ECRTClassifier",
    "ECRTError",
    "ECRTRegressor",
    "ECRTSampler",
    "ECRTTransformer",
    "ECRTWarning",
    "Encoder",
    "FileRows",
    "Flow",
    "GaussianHead",
    "InputError",
    "Interpolated",
    "Kernel",
    "Linear",
    "LinearHead",
    "MLPHead",
    "ModelFileError",
    "NoAugmentation",
    "NoDemixing",
    "Pairs",
    "Parametric",
    "Permutation",
    "PseudoMinority",
    "TreesHead",
    "__version__",
    "compare",
    "diagnose",
    "load",
]

_ROOMS = {
    "BaselineClassifier": "rivals",
    "ECRTAugmenter": "estimators",
    "ECRTClassifier": "estimators",
    "ECRTRegressor": "estimators",
    "ECRTSampler": "estimators.sampler",
    "ECRTTransformer": "estimators",
    "FileRows": "data.streams",
    "PseudoMinority": "selection",
    "compare": "comparison",
    "diagnose": "runs",
    "load": "estimators",
}
"""Where to find what costs seconds to import, when it is first asked for; the parts are in ``stages``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ecrt' has no attribute {name!r}")
    value = _version() if name == "__version__" else getattr(import_module(f"ecrt.{_ROOMS.get(name, 'stages')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ecrt")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
