"""Selection on 10,000 x 64 rows in 20 classes: does it end within its budget, and does its bar tell the truth?

The bar counts seconds of the budget. What it shows is compared with the clock just before each of its moves, where it
lags most, and just after.
"""

from __future__ import annotations

import time
import warnings
from types import TracebackType
from typing import Any, ClassVar

import measuring
import numpy as np

from ecrt import ECRTClassifier, PseudoMinority
from ecrt.estimators import base

N_FREQUENT, FREQUENT, N_RARE, RARE, COLUMNS = 12, 750, 8, 125, 64


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes of one shape around means of their own, mixed: 12 of 750 rows and 8 of 125."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(N_FREQUENT + N_RARE), [FREQUENT] * N_FREQUENT + [RARE] * N_RARE)
    means = 0.5 * rng.normal(size=(N_FREQUENT + N_RARE, COLUMNS))
    s = means[y] + rng.normal(size=(len(y), COLUMNS))
    return s @ rng.normal(size=(COLUMNS, COLUMNS)).T, y


BUDGET = 180.0


class Watched:
    """Stands in for the bar in the terminal, and keeps what the bar of the selection shows, and when."""

    seen: ClassVar[list[tuple[float, float]]] = []
    started = total = 0.0
    stage = ""

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        return None

    def start(self, stage: str, total: int) -> None:
        if stage.startswith("selection"):
            Watched.stage, Watched.started, Watched.total, Watched.seen = stage, time.monotonic(), total, []
        else:
            Watched.stage = ""

    def advance(self, note: str = "") -> None:
        if Watched.stage:
            shown = len(Watched.seen) + 1
            Watched.seen.append((time.monotonic() - Watched.started, shown / Watched.total))

    def finish(self) -> None:
        Watched.stage = ""


def gaps(seen: list[tuple[float, float]], budget: float) -> dict[str, float]:
    """How far the bar is behind the clock, and how far ahead, at most, in seconds."""
    behind = ahead = before = 0.0
    for elapsed, share in seen:
        behind, ahead = max(behind, elapsed - before * budget), max(ahead, share * budget - elapsed)
        before = share
    return {"seconds_behind_at_most": behind, "seconds_ahead_at_most": ahead}


def main() -> None:
    chosen = measuring.arguments(__doc__)
    base.BarProgress = Watched  # type: ignore[misc, assignment]
    X, y = table()
    clf = ECRTClassifier(selection=PseudoMinority(budget=BUDGET), verbose=True, device=chosen.device, random_state=0)
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y)
    whole = time.monotonic() - started
    found: dict[str, Any] = clf.selection_
    measuring.write(
        "selection",
        {
            "rows": len(y),
            "columns": COLUMNS,
            "classes": N_FREQUENT + N_RARE,
            "budget_seconds": BUDGET,
            "selection_seconds": found["seconds"],
            "within_budget": found["seconds"] <= BUDGET,
            "with_final_fit_seconds": whole,
            "candidates": len(found["tried"]),
            "fits": found["fits"],
            "every_question_asked": found["finished"],
            "longest_fit_seconds": max(one["seconds"] / max(one["fits"], 1) for one in found["tried"]),
            "bar_at_end": Watched.seen[-1][1] if Watched.seen else 0.0,
            "clock_at_end": found["seconds"] / BUDGET,
            **gaps(Watched.seen, BUDGET),
            "chosen": found["options"],
            "sentence": found["sentence"],
        },
        chosen,
    )


if __name__ == "__main__":
    main()
