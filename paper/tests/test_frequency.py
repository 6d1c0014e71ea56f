"""Figures of each class against its frequency: computed, averaged, drawn and judged, on numbers made up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.metrics import f1_score, recall_score

from ecrt.metrics import prediction_metrics
from paper.experiments import inaturalist
from paper.experiments.frequency import by_class, by_label
from paper.page.frequency import by_strength, class_values, frequency_figures, mean_of_size
from paper.page.page import judge_claims
from paper.page.results import PaperResults

COUNTS = np.array([300, 200, 150, 60, 30, 8])


def table(values, counts=COUNTS):
    order = np.argsort(-counts)
    return {
        "class": order.tolist(), "frequency": counts[order].tolist(), "recall": [values[k] for k in order],
        "f1": [values[k] for k in order],
    }  # fmt: skip


def run(values, top1=0.5, nll=1.0):
    return {
        "top1": top1, "top5": 0.9, "nll": nll, "macro_f1": 0.5, "many": 0.5, "medium": 0.5,
        "by_class": table(values),
    }  # fmt: skip


def row(part, seed, runs, **further):
    cell = {"part": part, "seed": seed, "n_classes": None}
    return {"cell": cell, "runs": runs, "data": "plankton", "seconds": 1.0, **further}


def rows(ecrt_rare=0.6):
    frequent, rare = [0.8] * 3, [ecrt_rare] * 3
    found = []
    for seed in (0, 1):
        ecrt = run(frequent + rare, 0.7 + 0.02 * seed)
        strengths = [{"kind": kind, "weight": weight, **run(frequent + [0.3 + 0.2 * weight] * 3)}
                     for kind in ("parametric", "permutation") for weight in (0.0, 0.5, 1.0)]  # fmt: skip
        runs = {"ECRT": ecrt, "ECRT without augmentation": run(frequent + rare, 0.68)}
        found.append(row("ECRT", seed, runs, strengths=strengths))
        for name in ("ERM", "LDAM", "LA"):
            runs = {name: run([0.9] * 3 + [0.2, 0.2, None], 0.6 + 0.02 * seed, 1.5)}
            found.append(row("rival", seed, runs) | {"cell": {"part": "rival", "method": name, "seed": seed}})
    points = np.random.default_rng(0).normal(size=(12, 2)).tolist()
    picture = {"points": points, "classes": [0, 5] * 6, "synthetic": [False] * 6 + [True] * 6,
               "frequency": {"0": 300, "5": 8}, "minority": {"0": False, "5": True}}  # fmt: skip
    return [*found, row("picture", 0, {}, **picture)]


@pytest.fixture
def folder(tmp_path):
    def write(name, found, summary=()):
        content = {"command": f"python -m paper {name}", "summary": list(summary), "rows": found, "machine": {}}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return PaperResults(tmp_path)

    return write


def test_figures_of_classes_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, log_proba = rng.integers(0, 5, 200), np.log(rng.dirichlet(np.ones(6), 200))
    found = by_class(prediction_metrics(log_proba, y, COUNTS, prior="balanced"))
    predicted = log_proba.argmax(axis=1)
    np.testing.assert_allclose(found["f1"], f1_score(y, predicted, labels=found["class"], average=None), atol=6e-4)
    assert found["recall"][found["class"].index(5)] is None  # no test rows
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_figures_of_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    present, predicted = rng.random((2, 100, 4)) < [0.5, 0.3, 0.2, 0.1]
    frequency = np.array([10, 400, 30, 20])
    found = by_label(present, predicted, frequency)
    assert found["frequency"] == [400, 30, 20, 10]
    for name, score in (("f1", f1_score), ("recall", recall_score)):
        expected = score(present, predicted, average=None)[found["class"]]
        np.testing.assert_allclose(found[name], expected, atol=6e-4)


def test_means_over_seeds_leave_out_what_a_seed_has_not():
    found = [row("rival", 0, {"LA": run([0.2, 0.4, None, None, 0.5, 0.5])}),
             row("rival", 1, {"LA": run([0.4, 0.4, 0.6, None, 0.5, 0.5])})]  # fmt: skip
    frequency, values = class_values(found, "LA", "f1")
    assert frequency.tolist() == COUNTS.tolist()
    np.testing.assert_allclose(values, [0.3, 0.4, 0.6, np.nan, 0.5, 0.5])
    assert mean_of_size(frequency, values, 100, np.inf) == pytest.approx(1.3 / 3)
    assert np.isnan(mean_of_size(frequency, values, 50, 100))


def test_gains_are_paired_by_seed_and_positive_where_ecrt_is_better():
    lines = {line["what"]: line for line in inaturalist.summarise(rows())}
    assert list(lines) == ["ERM", "LDAM", "LA", "ECRT without augmentation", "ECRT"]
    assert lines["ERM"]["ecrt_gain_top1"] == "+0.1000 ± 0.0000"
    assert lines["ERM"]["ecrt_gain_nll"] == "+0.5000 ± 0.0000"
    assert lines["ECRT"]["top1"] == pytest.approx(0.71)
    assert "few" not in lines["ECRT"]  # no class of that group was tested


def test_figures_are_drawn_from_what_there_is(folder, monkeypatch):
    drawn = []
    monkeypatch.setattr("paper.page.frequency.svg", lambda draw, name: drawn.append(name) or _drawn(draw))
    labels = [{"cell": {"method": name}, "by_class": table([0.5] * 6)} for name in ("ECRT", "MLP ERM")]
    folder("arxiv", labels)
    figures = frequency_figures(folder("inaturalist", rows()))
    assert [len(figure.panels) for figure in figures] == [2, 2, 2, 2]
    assert len(set(drawn)) == 8
    without = rows()[1:2]  # one method alone, no picture, no strengths
    assert [figure.title for figure in frequency_figures(folder("inaturalist", without))] == [figures[-1].title]


def _drawn(draw):
    """Draw, and leave out the slow part, to write it as SVG."""
    draw(Figure().subplots())
    return "<svg/>"


@pytest.mark.parametrize(("ecrt_rare", "verdict"), [(0.6, "holds"), (0.05, "holds in part")])
def test_claims_on_frequency_follow_the_figures(folder, ecrt_rare, verdict):
    """ECRT has less than the rivals on frequent classes, and on rare ones more or less than they."""
    found = {claim.text: claim for claim in judge_claims(folder("inaturalist", rows(ecrt_rare)))}
    assert found["ERM and LDAM favour the frequent classes on iNaturalist."].verdict == verdict
    gain = found["On iNaturalist the F1 of rare labels gains most."]
    assert gain.verdict == ("holds" if ecrt_rare > 0.2 else "does not hold")
    first, second, *_ = (one.cells for one in gain.found.compared)
    assert first[:4] == ("ERM, minority", f"{ecrt_rare:.3f}", "0.200", f"{ecrt_rare - 0.2:+.4f} ± 0.0000")
    assert second[:3] == ("ERM, minority and others", f"{ecrt_rare - 0.2:.3f}", "-0.100")


def test_sensitivity_to_the_strength_is_a_mean_over_splits(folder):
    """The rarest classes gain most by strength, on one split a little more than on the other; frequent ones do not."""
    found = rows()
    for row_, slope in zip([one for one in found if one["cell"]["part"] == "ECRT"], (0.15, 0.17), strict=True):
        row_["strengths"] = [
            {"kind": kind, "weight": weight, **run([0.8] * 3 + [0.3, 0.3 + slope * weight / 2, 0.3 + slope * weight])}
            for kind in ("parametric", "permutation") for weight in (0.0, 0.5, 1.0)
        ]  # fmt: skip
    results = folder("inaturalist", found)
    assert {weight: len(runs) for weight, runs in by_strength(results, "permutation").items()} == {0: 2, 0.5: 2, 1: 2}
    text = "Smaller minority classes are more sensitive to the strength of augmentation."
    claim = next(claim for claim in judge_claims(results) if claim.text == text)
    assert claim.verdict == "holds"
    assert [one.cells for one in claim.found.compared] == [
        ("1 to 19 rows and 20 to 49 rows", "0.160", "0.080", "+0.0800 ± 0.0635", "holds"),
        ("20 to 49 rows and 50 to 119 rows", "0.080", "0.000", "+0.0800 ± 0.0635", "holds"),
    ]


def test_claims_without_results_are_not_judged(tmp_path):
    found = {claim.text: claim for claim in judge_claims(PaperResults(tmp_path))}
    assert found["On iNaturalist the F1 of rare labels gains most."].verdict == "not run"
