"""The recipes of CONTRIBUTING.md are followed literally: each code block is one new file, and nothing else changes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, InputError, LinearHead
from ecrt.rivals import known_rivals

ROOT = Path(__file__).parent.parent
PACKAGE = Path(ecrt.__file__).parent


def recipe(title: str) -> tuple[str, str]:
    """Where the file of a recipe goes, and what it holds."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (place,) = re.findall(r"`src/ecrt/(\w+/\w+\.py)`", text)
    return place, code


def imported(title: str, folder: Path) -> ModuleType:
    """The code of a recipe as a file of the user's own."""
    place, code = recipe(title)
    path = folder / Path(place).name
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs([60, 50, 40, 8], n_features=3, cluster_std=2.0, random_state=0)
    return X, y


def test_add_a_rival(tmp_path, rows):
    X, y = rows
    kind = imported("Add a rival", tmp_path).RandomOversampling
    head = LinearHead(weight_decay=1e-2)
    clf = BaselineClassifier(method=kind(), head=head, random_state=0).fit(X, y)
    assert known_rivals()["oversampling"] is kind
    again = BaselineClassifier(method="oversampling", head=head, random_state=0).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
    # With equally large classes the head needs no correction for their frequencies, unlike that of ERM.
    assert isinstance(clf.head_, torch.nn.Linear)
    assert (clf.predict(X)[y == 3] == 3).mean() > 0.7
    none = clone(clf).set_params(method__share=0.0).fit(X, y)
    assert np.abs(none.predict_proba(X) - clf.predict_proba(X)).max() > 0.01
    with pytest.raises(InputError, match="'share' parameter of RandomOversampling"):
        clone(clf).set_params(method__share=2.0).fit(X, y)
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    assert loaded.method == kind()
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert "Batista" in (tmp_path / "model" / "MODEL_CARD.md").read_text()


def test_add_an_augmenter(tmp_path, rows):
    X, y = rows
    kind = imported("Add an augmenter", tmp_path).Smoothed
    options = {"demixing": "linear", "head": LinearHead(weight_decay=1e-2), "minority": [3], "random_state": 0}
    clf = ECRTClassifier(augmentation=kind(width=0.2), **options).fit(X, y)
    assert clf.parts_["augmentation"] == kind(width=0.2)
    named = ECRTClassifier(augmentation="smoothed", **options).set_params(augmentation__width=0.2).fit(X, y)
    np.testing.assert_array_equal(named.predict_proba(X), clf.predict_proba(X))
    plain = ECRTClassifier(augmentation="none", **options).fit(X, y)
    assert np.abs(plain.predict_proba(X) - clf.predict_proba(X)).max() > 1e-4
    # Without noise, samples are rows of the class.
    still = clone(clf).set_params(augmentation__width=0.0).fit(X, y)
    drawn, _ = still.sample(5, classes=[3], space="feature", random_state=0)
    assert all(np.abs(X[y == 3] - row).max(axis=1).min() < 1e-6 for row in drawn)
    with pytest.raises(InputError, match="'width' parameter of Smoothed"):
        ECRTClassifier(augmentation=kind(width=-1.0)).fit(X, y)
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(ecrt.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))


def test_both_files_are_all_that_the_library_needs(tmp_path):
    """A copy of the package with the two files knows their names, in the command too."""
    copy = tmp_path / "ecrt"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for title in ("Add a rival", "Add an augmenter"):
        place, code = recipe(title)
        assert not (copy / place).exists()
        (copy / place).write_text(code, encoding="utf-8")
    program = """
import ecrt
from ecrt.comparison import METHODS
from ecrt.rivals import RandomOversampling
assert ecrt.__file__.startswith({folder!r}), ecrt.__file__
assert METHODS["oversampling"].starts[0]["method__share"] == 1.0
assert METHODS["oversampling"].build(METHODS["oversampling"].starts[0], 0).method == RandomOversampling()
part = ecrt.ECRTClassifier(augmentation="smoothed").set_params(augmentation__width=0.1).augmentation
assert (part.kind, part.width) == ("smoothed", 0.1)
"""
    command = [sys.executable, "-c", program.format(folder=str(tmp_path))]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
