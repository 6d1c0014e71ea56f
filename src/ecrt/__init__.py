"""Learning from imbalanced data by energy-based causal representation transfer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecrt.errors import DivergenceError, ECRTError, ECRTWarning, InputError, ModelFileError

if TYPE_CHECKING:
    from ecrt.comparison import compare
    from ecrt.estimators import ECRTClassifier, ECRTRegressor, ECRTTransformer, load
    from ecrt.rivals import BaselineClassifier
    from ecrt.runs import diagnose
    from ecrt.selection import PseudoMinority
    from ecrt.stages import (
        Borrowed,
        Donors,
        Encoder,
        Flow,
        GaussianHead,
        Interpolated,
        Linear,
        LinearHead,
        MLPHead,
        NoAugmentation,
        NoDemixing,
        Parametric,
        Permutation,
    )

    __version__: str

__all__ = [
    "BaselineClassifier",
    "Borrowed",
    "DivergenceError",
    "Donors",
    "ECRTClassifier",
    "ECRTError",
    "ECRTRegressor",
    "ECRTTransformer",
    "ECRTWarning",
    "Encoder",
    "Flow",
    "GaussianHead",
    "InputError",
    "Interpolated",
    "Linear",
    "LinearHead",
    "MLPHead",
    "ModelFileError",
    "NoAugmentation",
    "NoDemixing",
    "Parametric",
    "Permutation",
    "PseudoMinority",
    "__version__",
    "compare",
    "diagnose",
    "load",
]

_ROOMS = {
    "BaselineClassifier": "ecrt.rivals",
    "ECRTClassifier": "ecrt.estimators",
    "ECRTRegressor": "ecrt.estimators",
    "ECRTTransformer": "ecrt.estimators",
    "PseudoMinority": "ecrt.selection",
    **dict.fromkeys(
        (
            "Borrowed",
            "Donors",
            "Encoder",
            "Flow",
            "GaussianHead",
            "Interpolated",
            "Linear",
            "LinearHead",
            "MLPHead",
            "NoAugmentation",
            "NoDemixing",
            "Parametric",
            "Permutation",
        ),
        "ecrt.stages",
    ),
    "compare": "ecrt.comparison",
    "diagnose": "ecrt.runs",
    "load": "ecrt.estimators",
}
"""Where to find what costs seconds to import: it is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _ROOMS:
        value = getattr(import_module(_ROOMS[name]), name)
    else:
        raise AttributeError(f"module 'ecrt' has no attribute {name!r}")
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
