"""Experiments by name: a recipe is a list of cells, run in parallel, and a summary of their results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import joblib
import torch

from ecrt.errors import InputError
from ecrt.training import Progress
from paper.experiments import (
    ablations,
    arxiv,
    cifar100,
    cifar_sources,
    default,
    departures,
    diagnose,
    extreme,
    inaturalist,
    inversion,
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
    unlabelled,
)
from paper.journal import Journal

__all__ = ["RECIPES", "Recipe", "run"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What to run and how to summarise it.

    Attributes
    ----------
    title : one line for the list of recipes.
    cells : options of each independent run; takes ``smoke`` for a version that ends in seconds.
    run_cell : one run to one row of figures.
    summarise : all rows to the rows of a table.
    threads : torch threads of a cell; 0 for all cores, one cell at a time.
    forgotten : long entries of a row that the summary needs and the file of results does not keep.
    """

    title: str
    cells: Callable[[bool], Iterable[Row]]
    run_cell: Callable[..., Row]
    summarise: Callable[[list[Row]], list[Row]]
    threads: int = 1
    forgotten: tuple[str, ...] = ()


def _of(module: ModuleType, title: str, **options: Any) -> Recipe:
    """The recipe of a module that has ``cells``, ``run_cell`` and ``summarise``."""
    return Recipe(title, **({name: getattr(module, name) for name in ("cells", "run_cell", "summarise")} | options))


RECIPES: dict[str, Recipe] = {
    "toy": _of(toy, "The toy: is the mechanism found right for a class never seen?"),
    "toy-figures": _of(toy_figures, "The paper's figures on the toy."),
    "toy-preset": _of(toy_figures, "From the paper's preset to ours on the toy.", cells=toy_figures.preset_cells),
    "continuous-toy": Recipe(
        "The toy with a number as its target.",
        regression.toy_cells,
        regression.toy_run_cell,
        regression.summarise_toy,
    ),
    "extreme": _of(
        extreme,
        "Extreme classification: 1,000 classes of five samples.",
        cells=extreme.few_cells,
        run_cell=extreme.run_few,
        summarise=extreme.summarise_few,
    ),
    "extreme-sizes": _of(extreme, "Extreme classification over sizes and numbers of classes."),
    "extreme-tuning": Recipe(
        "Settings of the paper's preset on 1,000 classes, by the loss on held-out rows.",
        extreme.tuning_cells,
        extreme.run_tuning,
        extreme.summarise_tuning,
    ),
    "extreme-preset": _of(extreme, "From the paper's preset to ours on 1,000 classes.", cells=extreme.preset_cells),
    "ablations": _of(ablations, "What each part of the method is worth, on the toy and on 200 classes."),
    "ablations-naive": _of(
        ablations, "Naive GCL with the critic of Eq. 1, on the toy and on 200 classes.", cells=ablations.naive_cells
    ),
    "ablations-departures": _of(
        ablations,
        "What departures from the paper are worth, taken back one at a time.",
        cells=ablations.departure_cells,
        run_cell=ablations.run_departure,
    ),
    "departures": _of(departures, "What further departures are worth: rates, choice of a flow, encoders, numbers."),
    "inversion": _of(inversion, "What the inverse of a flow costs, and where it fails."),
    "mnist": _of(mnist, "The table and the figures on MNIST."),
    "mnist-preset": _of(
        mnist,
        "From the paper's preset to ours on MNIST.",
        cells=mnist.preset_cells,
        run_cell=mnist.run_preset,
    ),
    "mnist-ceiling": _of(
        mnist,
        "What the features of an encoder on five digits allow at best.",
        cells=mnist.ceiling_cells,
        run_cell=mnist.run_ceiling,
        summarise=mnist.summarise_ceiling,
    ),
    "cifar100": _of(cifar100, "Table 1 on CIFAR-100, 500 and 50 images per class."),
    "cifar100-protocols": _of(
        cifar100, "The same methods on CIFAR-100 with other imbalances.", cells=cifar100.protocol_cells
    ),
    "cifar100-sources": _of(cifar_sources, "ECRT on CIFAR-100 with the paper's encoder, and what its parts are worth."),
    "cifar100-preset": _of(
        cifar_sources,
        "From the paper's preset to ours on CIFAR-100, and rivals in its network.",
        cells=cifar_sources.preset_cells,
    ),
    "tinyimagenet": _of(tinyimagenet, "ECRT on Tiny-ImageNet embeddings with the paper's step imbalance.", threads=0),
    "tinyimagenet-preset": _of(
        tinyimagenet,
        "From the paper's preset to ours on Tiny-ImageNet embeddings, one step at a time.",
        cells=tinyimagenet.preset_cells,
        threads=0,
    ),
    "tinyimagenet-rivals": _of(
        tinyimagenet_rivals,
        "Tuned rivals on Tiny-ImageNet embeddings.",
        threads=0,
        forgotten=(tinyimagenet_rivals.PER_ROW,),
    ),
    "tinyimagenet-selected": _of(
        tinyimagenet_selected,
        "Tiny-ImageNet embeddings with options chosen by the pseudo-minority test.",
        threads=0,
        forgotten=(tinyimagenet_selected.PER_ROW,),
    ),
    "inaturalist": _of(inaturalist, "Table 1 and the figures on iNaturalist, or on plankton instead."),
    "inaturalist-preset": _of(
        inaturalist,
        "From the paper's preset to ours on iNaturalist, or on plankton instead.",
        cells=inaturalist.preset_cells,
    ),
    "arxiv": _of(arxiv, "Table 1 on arXiv abstracts, with several labels per row.", forgotten=arxiv.PER_ROW),
    "arxiv-preset": _of(
        arxiv,
        "From the paper's preset to ours on arXiv abstracts, and rivals in its network.",
        cells=arxiv.preset_cells,
        forgotten=arxiv.PER_ROW,
    ),
    "plankton": _of(
        plankton,
        "Does selection serve the rarest classes of plankton?",
        forgotten=(plankton.PER_ROW, "final_y", "few"),
    ),
    "keel": _of(keel, "Our rivals beside their libraries on twelve KEEL tables.", forgotten=(keel.PER_FOLD,)),
    "keel-imbalanced": _of(keel_imbalanced, "The default on twenty KEEL tables of imbalance 20 and more."),
    "default": _of(default, "Is the default ever worse than logit adjustment, or than its own best member?"),
    "selection": _of(selection, "Does the pseudo-minority test choose well? Seven data sets."),
    "unlabelled": _of(unlabelled, "Are unlabelled rows worth having? The default with and without them."),
    "diagnose": _of(diagnose, "Can a diagnosis tell whether transfer may be trusted?"),
    "regression": _of(regression, "Regression on skewed targets."),
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
    progress = progress or Progress()
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
        "command": f"python -m paper {name}" + (" --smoke" if smoke else ""),
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
