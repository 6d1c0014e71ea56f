"""Summaries of the recipes about selection and the default, on figures made up so that the answer is known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ecrt.estimators import ECRTClassifier
from paper.experiments import default, keel_imbalanced, plankton, selection, tinyimagenet_rivals, tinyimagenet_selected

Row = dict[str, Any]


def test_halves_of_the_test_rows_are_alike_and_share_nothing() -> None:
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 20))
    development = selection.development_rows(y)
    assert np.bincount(y[development]).tolist() == [10] * 5
    halves = tinyimagenet_selected._halves(y)
    np.testing.assert_array_equal(np.union1d(halves["development"], halves["final"]), halves["all"])
    assert len(np.intersect1d(halves["development"], halves["final"])) == 0


def tiny_row(part: str, hits: np.ndarray, losses: float, y: np.ndarray) -> Row:
    figures = {half: {"top1": 0.5, "nll": losses} for half in ("development", "final", "all")}
    outcomes = {"y": y.tolist(), "top1": hits.astype(int).tolist(), "nll": [losses] * len(y)}
    return {"cell": {"part": part}, "what": part, "figures": figures, "outcomes": outcomes, "seconds": 1.0}


def test_components_and_rival_are_compared_row_by_row() -> None:
    y = np.repeat(np.arange(10), 40)
    none, every, some = np.zeros(400, bool), np.ones(400, bool), np.arange(400) % 4 < 2
    rows = [
        tiny_row("selected", every, 1.0, y),
        tiny_row("features", none, 2.0, y),
        tiny_row("whitening", some, 1.5, y),
        tiny_row(tinyimagenet_selected.RIVAL, some, 1.2, y) | {"what": "linear LDAM"},
    ]
    found = {line["what"]: line for line in tinyimagenet_selected.summarise(rows)}
    assert found["whitening adds to features"]["all_nll"] == "+0.5000 [+0.5000, +0.5000]"
    assert found["whitening adds to features"]["all_top1"].startswith("+0.5000 [+0.4")
    ahead = found["selected less best tuned rival"]
    assert ahead["final_top1"].startswith("+0.5000")
    assert ahead["development_nll"] == "+0.2000 [+0.2000, +0.2000]"
    assert found["best tuned rival: linear LDAM"]["all_nll"] == 1.2


def test_the_best_linear_rival_is_fitted_as_it_was_chosen(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), [60, 40, 10])
    X = rng.normal(size=(110, 4)) + 2 * np.eye(3, 4)[y]
    problem = tinyimagenet_rivals.Problem(X=X, y=y, X_test=X, seed=0)
    tuned = {
        one.what: one
        for one in tinyimagenet_rivals.linear("linear LDAM", "ldam", scalings=tinyimagenet_rivals.SCALINGS)(problem)
    }
    best = tuned["linear LDAM, by NLL"]
    figures = {"SMOTE of features": 0.9, "linear LDAM, by NLL": 0.8, "linear LA, by NLL": 0.7}
    entries = [
        {"what": what, "prior": "balanced", "chosen": best.chosen, "figures": {"balanced": {"top1": top1}}}
        for what, top1 in figures.items()
    ]
    rows = [
        {"cell": {"seed": 0}, "entries": entries},
        {"cell": {"seed": 1}, "entries": [{**entries[2], "figures": {"balanced": {"top1": 1.0}}}]},
    ]
    (tmp_path / "rivals.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(tinyimagenet_selected, "RIVAL_RESULTS", tmp_path / "rivals.json")
    found = tinyimagenet_selected._rival(X, y, X, y, seed=0)
    assert found["what"] == "linear LDAM, by NLL"
    expected = -best.log_proba[np.arange(110), y]
    np.testing.assert_allclose(found["outcomes"]["nll"], expected, atol=1e-4)


def plankton_row(method: str, seed: int, accuracy: float, right: list[int]) -> Row:
    y = np.repeat(np.arange(4), 10)
    figures = dict.fromkeys(plankton.MEASURES, accuracy)
    return {
        "cell": {"method": method, "seed": seed}, "figures": {method: {"resplit": figures, "final": figures}},
        plankton.PER_ROW: {method: np.where(np.isin(y, right), y, -1).tolist()}, "final_y": y.tolist(), "few": [2, 3],
        "seconds": 1.0,
    }  # fmt: skip


def test_plankton_pairs_resplits_and_rows_of_the_final_fifth() -> None:
    rows = []
    for seed in range(5):
        rows += [
            plankton_row(plankton.SELECTED, seed, 0.60 + 0.01 * seed, [0, 1, 2]),
            plankton_row("linear LA", seed, 0.58 + 0.01 * seed, [0, 1]),
        ]
    selected, rival, gain = plankton.summarise(rows)
    assert selected["resplit_balanced_accuracy"] == pytest.approx(0.62)
    assert rival["what"] == "linear LA"
    assert gain["resplit_balanced_accuracy"] == "0.0200 ± 0.0000"
    assert gain["resplit_nll"] == "-0.0200 ± 0.0000"  # positive is better
    assert gain["final_balanced_accuracy"] == "+0.2500 [+0.2500, +0.2500]"
    assert gain["final_few_recall"] == "+0.5000 [+0.5000, +0.5000]"


def test_ranks_of_tables_are_averaged_and_every_table_is_listed() -> None:
    values = {keel_imbalanced.ECRT: (0.9, 0.5), keel_imbalanced.MLP: (0.8, 0.6), "SMOTE + MLP": (0.7, 0.6)}
    rows = [
        {"cell": {"table": table, "method": method}, "means": dict.fromkeys(keel_imbalanced.MEASURES, of[at])}
        for at, table in enumerate(keel_imbalanced.TABLES[:2])
        for method, of in values.items()
    ]
    first, second, third, gain, *tables = keel_imbalanced.summarise(rows)
    assert [line["rank_balanced_accuracy"] for line in (first, second, third)] == [2.0, 1.75, 2.25]
    assert gain["balanced_accuracy"].startswith("0.0000")
    assert [line["what"] for line in tables] == list(keel_imbalanced.TABLES[:2])
    assert len(set(keel_imbalanced.TABLES)) == 20


def default_rows(name: str, **accuracy: tuple[float, float]) -> list[Row]:
    """Two seeds; each choice with its balanced accuracy there, and half of that as its loss."""
    choices = [
        {
            choice.replace("_", ", "): {"balanced_accuracy": of[seed], "nll": of[seed] / 2}
            for choice, of in accuracy.items()
        }
        for seed in (0, 1)
    ]
    return [
        {
            "cell": {"set": name, "part": "default", "seed": seed},
            "choices": {choice: figures for choice, figures in of.items() if choice != "ldam"},
            "held_out": {"none, linear": 0.5, "linear, linear": 0.4},
            "processor_seconds": 1.0,
        }
        for seed, of in enumerate(choices)
    ] + [
        {"cell": {"set": name, "part": "rivals", "seed": seed}, "choices": {"ldam": of["ldam"]}}
        for seed, of in enumerate(choices)
        if "ldam" in of
    ]


def test_the_default_is_compared_with_what_is_best_on_average_and_with_what_held_out_rows_choose() -> None:
    rows = default_rows(
        "digits", default=(0.90, 0.90), none_linear=(0.92, 0.90), linear_linear=(0.80, 0.91), ldam=(0.95, 0.91)
    )
    rows += default_rows("toy", default=(0.9, 0.9), none_linear=(0.8, 0.8), linear_linear=(0.7, 0.7))
    digits, toy, *means = default.summarise(rows)
    assert digits["best"] == "none, linear"
    assert digits["balanced_accuracy_over_logit_adjustment"] == pytest.approx(-0.01)
    assert digits["balanced_accuracy_over_held_out_choice"] == pytest.approx(0.045)
    assert digits["nll_over_best_member"] == pytest.approx(0.005)  # saved: a lower loss is a gain
    assert (
        digits["below"] == "balanced_accuracy, logit_adjustment; balanced_accuracy, best_member; nll, held_out_choice"
    )
    assert digits["beyond_noise"] == ""
    assert (digits["rival_by_balanced_accuracy"], digits["rival_by_nll"]) == ("ldam", "none, linear")
    assert digits["balanced_accuracy_over_rival"] == pytest.approx(-0.03)
    assert toy["beyond_noise"] == "nll, logit_adjustment; nll, best_member; nll, held_out_choice"
    assert "rival_nll" not in toy
    assert means[0]["what"] == "mean over sets: default"
    assert means[1]["balanced_accuracy"] == pytest.approx(0.855)
    assert means[1]["default_balanced_accuracy"] == pytest.approx(0.9)


def test_members_are_better_than_the_default_only_after_a_correction_for_their_number() -> None:
    """One seed in a hundred would say so of a member by chance, one in twenty of the best of five."""

    def lines(n_members: int) -> Any:
        shift = [0.010, 0.014, 0.007, 0.012, 0.002]  # p = 0.01
        names = ["none, linear", *(f"member {number}" for number in range(n_members - 1))]
        return default.summarise([
            {
                "cell": {"set": "toy", "part": "default", "seed": seed}, "processor_seconds": 1.0,
                "held_out": dict.fromkeys(names, 1.0),
                "choices": {"default": {"balanced_accuracy": 0.9, "nll": 0.3}}
                | {name: {"balanced_accuracy": 0.8 + seed / 100, "nll": 0.4 + seed / 100} for name in names}
                | {"none, linear": {"balanced_accuracy": 0.9 + more, "nll": 0.4}},
            }
            for seed, more in enumerate(shift)
        ])[0]  # fmt: skip

    assert lines(2)["better_members"] == "balanced_accuracy, none, linear"
    assert lines(8)["better_members"] == ""
    assert "balanced_accuracy, best_member" in lines(8)["beyond_noise"]


def test_a_member_predicts_alone_as_it_does_when_fitted_alone() -> None:
    """Exactly, where nothing is drawn: the recipe takes members from the default instead of fitting them anew."""
    data = default.SETS["digits"][2](0)
    alone = default.run_cell(set="digits", part="default", seed=0, smoke=True)["choices"]["none, linear"]
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:200]
    clf = ECRTClassifier(random_state=0, **default.FIXED["none, linear"]).fit(data.X_train[rows], data.y_train[rows])
    assert default._figures(clf, data) == pytest.approx(alone, rel=1e-6)
