"""What a model is on disk: a folder with ``model.json``, its tensors beside it, and a card for people to read.

The tensors lie in ``model-<digest>.safetensors``. ``model.json`` holds the digests of the tensors and of itself, and is
replaced in one step after the tensors are on disk. Whenever a save is cut short, the folder holds the old model whole,
the new one whole, or none. Digests tell damage, not forgery: what they vouch for is checked all the same.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from ecrt.io.parse import canonical

__all__ = [
    "CARD_NAME",
    "DTYPES",
    "FORMAT",
    "FORMAT_VERSION",
    "JSON_NAME",
    "MOST_HEADER_BYTES",
    "MOST_TENSOR_BYTES",
    "package_version",
    "package_versions",
    "sealed",
    "tensor_name",
]

JSON_NAME = "model.json"
CARD_NAME = "MODEL_CARD.md"
FORMAT = "ecrt model"
FORMAT_VERSION = 1

MOST_TENSOR_BYTES = 16 * 2**30
MOST_HEADER_BYTES = 8 * 2**20
"""Of the tensor file's own header, a line for each tensor."""

PACKAGES = ("ecrt", "imbalanced-learn", "numpy", "optuna", "pandas", "scikit-learn", "scipy", "torch", "zuko")
"""What a result depends on."""

DTYPES: dict[str, tuple[np.dtype[Any], torch.dtype]] = {
    "F32": (np.dtype("<f4"), torch.float32),
    "F64": (np.dtype("<f8"), torch.float64),
    "I64": (np.dtype("<i8"), torch.int64),
    "BOOL": (np.dtype("?"), torch.bool),
}
"""What tensors may hold: the format's name for it, in the file, in memory."""


def sealed(document: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """The content of ``model.json``, its own digest included."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "ecrt_version": package_version(),
        "tensors": tensors,
        "document": document,
    }
    content = {"sha256": hashlib.sha256(canonical(content)).hexdigest(), **content}
    return json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False).encode("ascii")


def tensor_name(digest: str) -> str:
    """Name of the tensor file with this digest."""
    return f"model-{digest[:16]}.safetensors"


def package_version(name: str = "ecrt") -> str:
    """Installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that a result depends on."""
    return {name: package_version(name) for name in PACKAGES}
