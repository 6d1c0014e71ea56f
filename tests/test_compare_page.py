"""The page of a comparison: what it says, and, in headless Chromium, what it shows."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ecrt.comparison import SHOWN, Comparison, MethodResult
from ecrt.report import comparison_table, rich_table, verdict_text, write_page
from ecrt.report.comparison import summarise_comparison
from ecrt.report.pages import page_of
from pages import Outline
from test_model_page import browser  # noqa: F401

ATTACK = "</script><img src=x onerror=alert(1)>"
LABELS = ["cat", ATTACK, "$x_1$ & 'co'", "稀有"]
LEVELS = {"logit-adjusted": 0.80, "ecrt": 0.84, "erm": 0.799, "weighted-logistic": 0.60}
NAMES = {"logit-adjusted": "Logit adjustment", "ecrt": "ECRT", "erm": "ERM", "weighted-logistic": "Weighted logistic"}


def made(
    levels: dict[str, float] = LEVELS, *, seeds: int = 5, labels: list[str] = LABELS, noise: float = 0.004,
    failed: str = "", **settings: Any,
) -> Comparison:  # fmt: skip
    """A comparison as it might come out, without fitting anything."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 0.02, seeds)  # splits are equally hard for all methods
    methods = {}
    for name, level in levels.items():
        values = (level + hard + rng.normal(0, noise, seeds)).tolist()
        metrics: dict[str, list[float]] = {metric: list(values) for metric in SHOWN}
        recalls = np.array(values)[:, None] - 0.05 * np.arange(len(labels))
        recalls[:, -1] = np.nan
        broken = name == failed
        methods[name] = MethodResult(
            label=NAMES.get(name, name), error="ValueError: <b>broken</b>" if broken else "",
            parameters=[{"C": 0.1, "head": None}] * seeds, validation=[None, *values[1:]],
            trials=[{"finished": 3 + at, "failed": 0, "cut": 1} for at in range(seeds)],
            metrics={} if broken else {"balanced": metrics, "training": dict(metrics)},
            recalls={} if broken else {"balanced": recalls, "training": recalls},
        )  # fmt: skip
    return Comparison(
        settings={
            "title": f"plants {ATTACK}.csv", "methods": list(levels), "reference": "logit-adjusted",
            "metric": "balanced_accuracy", "prior": "balanced", "seeds": seeds, "splits": "grouped", "test_size": 0.2,
            "trials": None, "budget": 8.0, "data": "0", "versions": {"ecrt": "1"},
        }
        | settings,
        data={
            "rows": 1000, "columns": 7, "classes": labels, "test_to_train": 0.25,
            "counts": [900 // (at + 1) for at in range(len(labels))], "test_rows": [20.0] * len(labels),
        },
        warnings=[f"Mind the class {ATTACK}."],
        methods=methods,
        times={name: [{"tuning": 8.0, "overhead": 0.1, "refit": 1.5}] * seeds for name in levels},
    )  # fmt: skip


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(made())[0]


# --- the verdict -------------------------------------------------------------------------------------------------


def test_verdict_names_who_is_ahead_and_who_behind() -> None:
    first, behind, leader = verdict_text(made())
    assert re.fullmatch(
        r"ECRT is ahead of Logit adjustment by 0\.0\d\d \[0\.0\d\d, 0\.0\d\d\]: more than noise\.", first
    )
    assert behind.startswith("Behind Logit adjustment by more than noise: Weighted logistic by 0.199 [0.188, 0.210]")
    assert "ERM" not in first + behind
    assert "ECRT has the best mean" in leader
    assert "ahead of Logit adjustment, ERM and Weighted logistic by more than noise" in leader
    assert made().verdict() == {
        "ahead": ["ecrt"], "behind": ["weighted-logistic"], "nearest": None, "leader": "ecrt",
        "beats": ["logit-adjusted", "erm", "weighted-logistic"], "level": [], "failed": {},
    }  # fmt: skip


def test_verdict_admits_noise() -> None:
    found = made({"logit-adjusted": 0.80, "ecrt": 0.802, "erm": 0.798}, noise=0.02)
    first, leader = verdict_text(found)
    assert first.startswith("No method beats Logit adjustment by more than noise. The best of the others, ")
    assert "it is not ahead of" in leader
    assert "cannot tell" in verdict_text(made(seeds=1))[0]


def test_lower_is_better_for_a_loss() -> None:
    found = made(metric="nll")
    assert found.ranking("balanced")[0] == "weighted-logistic"
    assert verdict_text(found)[0].startswith("Weighted logistic is ahead of Logit adjustment by 0.199 [0.188, 0.210]")


def test_failed_methods_are_left_out_and_named() -> None:
    found = made(failed="ecrt")
    assert "ecrt" not in found.ranking("balanced")
    assert verdict_text(found)[-1] == "ECRT failed and is left out: ValueError: <b>broken</b>"
    text = Outline(page_of(found)[0]).text
    assert "ECRT failed and is left out: ValueError: <b>broken</b>" in text
    lost = made(failed="logit-adjusted")
    assert lost.against_reference("balanced") == []
    assert "There is no reference to measure classes against." in page_of(lost)[0]


# --- tables ------------------------------------------------------------------------------------------------------


def test_tables_hold_the_figures() -> None:
    found = made()
    summary = summarise_comparison(found)
    view = summary["views"][0]
    table = view["scores"]
    assert [row[0].text for row in table.rows] == ["ECRT", "Logit adjustment", "ERM", "Weighted logistic"]
    values = found.methods["ecrt"].metrics["balanced"]["balanced_accuracy"]
    assert table.rows[0][1].text == f"{np.mean(values):.3f}"
    estimate = found.estimate("ecrt", "balanced_accuracy", "balanced")
    assert estimate is not None
    assert f"{table.rows[0][1].text} {table.rows[0][1].note}" == estimate.text()
    assert table.rows[0][1].best
    assert not table.rows[1][1].best
    pairs = view["pairs"]
    assert len(pairs.rows) == 6
    assert all(row[2].value is not None and row[2].value >= 0 for row in pairs.rows)
    gains = view["classes"]
    assert gains is not None
    assert gains.rows[0][0].text == "稀有"  # the rarest
    assert gains.rows[0][4].text == "–"  # and never tested
    expected = np.mean(np.subtract(values, found.methods["logit-adjusted"].metrics["balanced"]["balanced_accuracy"]))
    assert gains.rows[1][4].value == pytest.approx(expected)
    first = [cell.text for cell in summary["tuning"].rows[0]]
    assert first == ["Logit adjustment", "3 to 7", "5", "0", "8.0 s", "1.5 s"]


def test_screen_table_is_drawn() -> None:
    table = comparison_table(made())
    assert len(table.columns) == 5
    assert rich_table(table).row_count == 4
    console = Console(width=100, file=io.StringIO())
    console.print(rich_table(table))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for row in table.rows:
        assert f"{row[1].text} {row[1].note}" in shown


# --- the page ----------------------------------------------------------------------------------------------------


def test_page_says_it_all(page: str) -> None:
    outline = Outline(page)
    for sentence in (*verdict_text(made(), "balanced"), *verdict_text(made(), "training"), *made().warnings):
        assert sentence in outline.text
    for word in ("8 s for each method and split", "5, grouped", "is cut and does not count", "Nadeau and Bengio"):
        assert word in " ".join(outline.text.split())
    assert outline.count["svg"] == 6
    assert len(outline.ids) == len(set(outline.ids))


def test_page_runs_nothing_but_its_own_script_and_loads_nothing(page: str) -> None:
    outline = Outline(page)
    assert [load for load in outline.loads if not load.startswith("#")] == []
    assert outline.handlers == []
    assert outline.count["script"] == 1
    assert "img" not in outline.count
    assert "default-src 'none'" in page


def test_one_seed_two_classes_and_many_classes_have_a_page() -> None:
    for found in (
        made(seeds=1, labels=["a", "b"]),
        made(labels=[f"species {at}" for at in range(120)]),
        made({"logit-adjusted": 0.8}),
    ):
        assert Outline(page_of(found)[0]).open == []


def test_page_in_a_browser(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    browser.get(write_page(made(), tmp_path).as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    def shown(selector: str) -> list[bool]:
        return [element.is_displayed() for element in browser.find_elements("css selector", selector)]

    assert all(shown(".under-balanced h3"))
    assert not any(shown(".under-training h3"))
    browser.find_element("css selector", "#prior-training + span").click()
    assert all(shown(".under-training h3"))
    assert not any(shown(".under-balanced h3"))
    head = browser.find_elements("css selector", "#tuning-table thead button")[0]
    head.click()
    first = browser.find_element("css selector", "#tuning-table tbody tr th").text
    assert first == "ECRT"
    browser.set_window_size(420, 900)
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
