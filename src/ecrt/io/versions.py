"""Versions of the packages that results depend on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("ecrt", "torch", "scikit-learn", "numpy", "scipy", "pandas", "zuko", "imbalanced-learn", "optuna")


def package_version(name: str = "ecrt") -> str:
    """Installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that a result depends on."""
    return {name: package_version(name) for name in PACKAGES}
