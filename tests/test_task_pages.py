"""Pages of regressions and of multi-label models: complete and harmless."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from ecrt import ECRTClassifier, ECRTRegressor, report
from ecrt.disk import plain, read_arrays, read_json
from ecrt.report import write_page
from ecrt.runs.config import Target
from ecrt.runs.evaluation import measure_labels, measure_numbers

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = np.exp(X[:, 0] + 0.1 * rng.normal(size=700))
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(X[:500], y[:500])
    return measure_numbers(reg, X[500:], Target("regression", "", y[500:], (HOSTILE,)), title="prices & more")


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    Y = X[:, :4] + 0.3 * rng.normal(size=(600, 4)) > [0.0, 1.0, 1.9, 9.0]
    clf = ECRTClassifier(demixing="linear", head="linear", class_prior="training", thresholds="validation").fit(
        X[:400], Y[:400].astype(int)
    )
    target = Target("multilabel", "", Y[400:], ("art", HOSTILE, "rare", "absent"))
    return measure_labels(clf, X[400:], target, title="articles")


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_what_is_written_is_read(kind, request, tmp_path):
    found = request.getfixturevalue(kind)
    found.write(tmp_path)
    again = read_json(tmp_path / "metrics.json")
    arrays = read_arrays(tmp_path / "evaluation.npz")
    assert (again["task"], again["rows"]) == (found.task, len(found.y))
    assert arrays.keys() == found.arrays.keys()
    for name, values in found.arrays.items():
        np.testing.assert_array_equal(arrays[name], values)
    for name in ("title", "names", "facts", "groups", "metrics"):
        assert again[name] == plain(getattr(found, name))


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_page_runs_nothing_and_loads_nothing(kind, request, tmp_path):
    page = write_page(request.getfixturevalue(kind), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert text.count("<script>") == 1
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="https?:', text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {"nan", "None"}.isdisjoint(re.findall(r">([^<]*)</td>", text))
    assert len(list((tmp_path / "plots").glob("*.svg"))) == (2 if kind == "numbers" else 3)


def test_errors_by_region_are_those_of_the_rows(numbers, tmp_path):
    text = write_page(numbers, tmp_path).read_text(encoding="utf-8")
    error = np.abs(numbers.arrays["predicted"] - numbers.arrays["y"])[:, 0]
    few = numbers.arrays["group"] == "few"
    assert 0 < few.sum() < len(few)
    assert numbers.metrics["few"]["mae"] == pytest.approx(error[few].mean())
    assert f"{error[few].mean():.4g}" in text
    edges, region, y = (numbers.arrays[name] for name in ("edges", "region", "y"))
    inside = (y[:, 0] >= edges[0]) & (y[:, 0] <= edges[-1])
    assert (edges[region] <= y[:, 0] + 1e-9)[inside].all()
    assert (y[:, 0] <= edges[region + 1] + 1e-9)[inside].all()


def test_several_targets_are_shown_one_by_one(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = np.exp(X[:, :2])
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(X, Y)
    found = measure_numbers(reg, X, Target("regression", "", Y, ("width", "height")), title="")
    text = write_page(found, tmp_path).read_text(encoding="utf-8")
    assert "A fitted ECRT regression" in text
    assert len(list((tmp_path / "plots").glob("predicted-*.svg"))) == 2


def test_labels_never_seen_and_thresholds_are_named(labels, tmp_path):
    text = write_page(labels, tmp_path).read_text(encoding="utf-8")
    assert "Never seen in training, so never predicted: “absent”." in text
    assert labels.arrays["counts"][3] == 0
    assert not labels.arrays["predicted"][:, 3].any()
    assert "Threshold of each label" in text
    assert labels.metrics["test"]["mean_average_precision"] > labels.metrics["guessing"]["mean_average_precision"]
    hits = labels.arrays["predicted"] & labels.arrays["y"]
    np.testing.assert_allclose(labels.arrays["recall"][0], hits[:, 0].sum() / labels.arrays["y"][:, 0].sum())


@pytest.mark.parametrize("page", ["classes", "labels", "regression", "comparison", "diagnosis"])
def test_a_page_is_a_module_and_a_template_with_all_words(page):
    room = Path(report.__file__).parent
    assert "call section(" in (room / "templates" / f"{page}.html").read_text(encoding="utf-8")
    tree = ast.parse((room / f"{page}.py").read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    said = [node.value for node in texts if id(node) not in docstrings]
    assert len(said) > 10
    assert [text for text in said if re.search(r"\w[.!?]( |$)", text)] == []
