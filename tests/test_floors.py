"""The lowest versions: what pyproject.toml says, what make test-floor installs and what the pages say are the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_INSTALLED = {"torch", "torchvision", "timm", "sentence-transformers"}
"""Gigabytes: the floors of these are not tested."""


def pinned(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pairs}


def floors() -> dict[str, Version]:
    extras = PROJECT["optional-dependencies"]
    texts = [
        *PROJECT["dependencies"],
        *(text for name, group in extras.items() if name not in ("dev", "docs") for text in group),
    ]
    found = {}
    for requirement in map(Requirement, texts):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        for name in (requirement.name, *requirement.extras):  # dask[distributed]: two packages of one version
            found[canonicalize_name(name)] = Version(bound.version)
    return found


def test_the_floors_that_are_tested_are_those_that_are_promised():
    promised = {name: version for name, version in floors().items() if name not in NOT_INSTALLED}
    assert pinned("constraints-floor.txt") == promised


def test_the_usual_versions_are_not_below_the_floors():
    usual = pinned("constraints.txt")
    for name, floor in floors().items():
        if name in usual:
            assert usual[name] >= floor, name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "Makefile"])
def test_pages_name_the_lowest_python(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"Python (3\.[\d.]*\d) or newer", text)
    assert named
    assert {f">={version}" for version in named} == {PROJECT["requires-python"]}


def test_the_tests_on_the_lowest_versions_exist():
    listed = re.search(r"\.py,((?:[^\n]*\\\n)*[^\n]*)\)\)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert listed
    names = listed[1].replace("\\", " ").split()
    assert [name for name in names if not (ROOT / f"tests/test_{name}.py").is_file()] == []
    assert len(names) > 10
