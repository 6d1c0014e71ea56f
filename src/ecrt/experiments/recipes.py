"""Experiments by name: a recipe is a list of cells, run in parallel, and a summary of their results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import joblib
import torch

from ecrt.disk import Journal
from ecrt.errors import InputError
from ecrt.experiments import (
    ablations,
    arxiv,
    arxiv_tuning,
    cifar100,
    cifar_sources,
    cifar_transfer,
    diagnose,
    extreme,
    extreme_sizes,
    inaturalist,
    keel,
    keel_imbalanced,
    mnist,
    plankton,
    regression,
    selection,
    tinyimagenet,
    tinyimagenet_rivals,
    tinyimagenet_selected,
    toy,
    toy_figures,
)
from ecrt.training import Progress, SilentProgress

__all__ = ["RECIPES", "Recipe", "run"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What to run and how to sum it up.

    Attributes
    ----------
    cells : options of each independent run; takes ``smoke`` for a version that ends in seconds.
    run_cell : one run to one row of figures.
    summarise : all rows to the rows of a table.
    threads : torch threads of a cell; 0 for all cores, one cell at a time.
    forgotten : entries of a row that the summary is computed from and that the results leave out, being long.
    """

    cells: Callable[[bool], Iterable[Row]]
    run_cell: Callable[..., Row]
    summarise: Callable[[list[Row]], list[Row]]
    threads: int = 1
    forgotten: tuple[str, ...] = ()


RECIPES: dict[str, Recipe] = {
    "ablations": Recipe(ablations.cells, ablations.run_cell, ablations.summarise),
    "arxiv": Recipe(arxiv.cells, arxiv.run_cell, arxiv.summarise, forgotten=arxiv.PER_ROW),
    "arxiv-tuning": Recipe(arxiv_tuning.cells, arxiv_tuning.run_cell, arxiv_tuning.summarise),
    "cifar100": Recipe(cifar100.cells, cifar100.run_cell, cifar100.summarise),
    "cifar100-protocols": Recipe(cifar100.protocol_cells, cifar100.run_cell, cifar100.summarise),
    "cifar100-sources": Recipe(cifar_sources.cells, cifar_sources.run_cell, cifar_sources.summarise),
    "cifar100-transfer": Recipe(cifar_transfer.cells, cifar_transfer.run_cell, cifar_transfer.summarise),
    "toy": Recipe(toy.cells, toy.run_cell, toy.summarise),
    "diagnose": Recipe(diagnose.cells, diagnose.run_cell, diagnose.summarise),
    "extreme": Recipe(extreme.cells, extreme.run_cell, extreme.summarise),
    "extreme-sizes": Recipe(extreme_sizes.cells, extreme_sizes.run_cell, extreme_sizes.summarise),
    "inaturalist": Recipe(inaturalist.cells, inaturalist.run_cell, inaturalist.summarise),
    "mnist": Recipe(mnist.cells, mnist.run_cell, mnist.summarise),
    "toy-figures": Recipe(toy_figures.cells, toy_figures.run_cell, toy_figures.summarise),
    "regression": Recipe(regression.cells, regression.run_cell, regression.summarise),
    "selection": Recipe(selection.cells, selection.run_cell, selection.summarise),
    "continuous-toy": Recipe(regression.toy_cells, regression.toy_run_cell, regression.summarise_toy),
    "tinyimagenet": Recipe(tinyimagenet.cells, tinyimagenet.run_cell, tinyimagenet.summarise, threads=0),
    "tinyimagenet-rivals": Recipe(
        tinyimagenet_rivals.cells,
        tinyimagenet_rivals.run_cell,
        tinyimagenet_rivals.summarise,
        threads=0,
        forgotten=(tinyimagenet_rivals.PER_ROW,),
    ),
    "tinyimagenet-selected": Recipe(
        tinyimagenet_selected.cells,
        tinyimagenet_selected.run_cell,
        tinyimagenet_selected.summarise,
        threads=0,
        forgotten=(tinyimagenet_selected.PER_ROW,),
    ),
    "plankton": Recipe(
        plankton.cells, plankton.run_cell, plankton.summarise, forgotten=(plankton.PER_ROW, "final_y", "few")
    ),
    "keel-imbalanced": Recipe(keel_imbalanced.cells, keel_imbalanced.run_cell, keel_imbalanced.summarise),
    "keel": Recipe(keel.cells, keel.run_cell, keel.summarise, forgotten=(keel.PER_FOLD,)),
}


def run(
    name: str, *, smoke: bool = False, jobs: int = 1, progress: Progress | None = None, journal: Journal | None = None
) -> Row:
    """Run every cell of a recipe and return rows, summary, time and machine.

    Parameters
    ----------
    name : a key of ``RECIPES``.
    jobs : cells run at the same time.
    journal : every finished cell is added to it; cells found there are not run again.
    """
    if name not in RECIPES:
        raise InputError(f"No experiment is called {name!r}; there are {sorted(RECIPES)}.")
    recipe = RECIPES[name]
    cells = list(recipe.cells(smoke))
    progress = progress or SilentProgress()
    started = time.perf_counter()
    progress.start(name, len(cells))
    rows, left = _finished(journal, cells)
    for _ in rows:
        progress.advance("from the journal")
    parallel = joblib.Parallel(n_jobs=1 if recipe.threads == 0 else jobs, return_as="generator_unordered")
    for row in parallel(joblib.delayed(_run_cell)(recipe.run_cell, recipe.threads, cell) for cell in left):
        rows.append(row)
        if journal is not None:
            journal.add(row)
        progress.advance()
    progress.finish()
    rows.sort(key=lambda row: str(sorted(row["cell"].items())))
    return {
        "experiment": name,
        "command": f"ecrt reproduce {name}" + (" --smoke" if smoke else ""),
        "seconds": round(time.perf_counter() - started, 1),
        "cell_seconds": round(sum(row["seconds"] for row in rows), 1),
        "machine": _machine(),
        "summary": recipe.summarise(rows),
        "rows": [{name: value for name, value in row.items() if name not in recipe.forgotten} for row in rows],
    }


def _machine() -> Row:
    machine: Row = {"cpu_count": os.cpu_count(), "platform": platform.machine(), "torch": torch.__version__}
    return machine | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


def _finished(journal: Journal | None, cells: list[Row]) -> tuple[list[Row], list[Row]]:
    """A row for each cell that an interrupted run has finished, and the cells that are left."""
    rows: list[Row] = []
    left = list(cells)
    for row in [] if journal is None else journal.rows:
        if row.get("cell") in left:  # a cell that is there twice counts once
            rows.append(row)
            left.remove(row["cell"])
    return rows, left


def _run_cell(run_cell: Callable[..., Row], threads: int, cell: Row) -> Row:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    started = time.perf_counter()
    try:
        figures = run_cell(**cell)
    finally:
        torch.set_num_threads(before)
    return {"cell": cell, **figures, "seconds": round(time.perf_counter() - started, 1)}
