"""Commands that run experiments: demo, reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ecrt.cli.shared import Terminal, one_line_errors, tell
from ecrt.errors import InputError

__all__ = ["demo", "reproduce"]


def demo(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("ecrt-demo"),
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="A short run, to see that all works.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
) -> None:
    """Compare ECRT with its baselines on data that need no download, and write a report."""
    with one_line_errors(debug=context.obj):
        from ecrt.disk import NewFolder
        from ecrt.experiments.demo import QUICK, DemoConfig, run_demo
        from ecrt.experiments.demo_results import DEMO_FILES, is_full_demo, write_demo
        from ecrt.report import rich_table, summarise, write_report
        from ecrt.training import BarProgress

        if quick and is_full_demo(output):
            raise InputError(f"{output} holds the results of a full run. Give a short run another --output.")
        with NewFolder(output, own=DEMO_FILES) as new:
            with BarProgress() as progress:
                result = run_demo(seed=seed, config=QUICK if quick else DemoConfig(), jobs=jobs, progress=progress)
            write_demo(result, new.path)
            write_report(result, new.path)
            new.publish()
            console = Terminal()
            for data in result.data:
                table = summarise(data)
                console.print(rich_table(table))
                for sentence in (*data.verdicts(), table.note):
                    console.print(sentence, highlight=False)
                console.print()
            console.print(
                f"Report: {output / 'report.html'}\nNumbers: {output / 'results.json'}", highlight=False, soft_wrap=True
            )


def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Experiment of the paper, such as toy; paper writes a page on them all.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes, to see that all works.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="File; NAME.json in ECRT_RESULTS if not given (paper: paper.html, or .md)."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Run an experiment of the paper and write its results; or write all results beside the paper's."""
    with one_line_errors(debug=context.obj):
        from ecrt.disk import Journal, check_writable, write_text
        from ecrt.experiments import recipes
        from ecrt.experiments.result_files import is_full_run, journal_of, results_folder
        from ecrt.report import experiment_tables, write_paper_page
        from ecrt.training import BarProgress

        if name == "paper":
            folder = results_folder()
            tell(f"Page: {write_paper_page(folder, (output or folder / 'paper.html').resolve())}")
            return
        if name not in recipes.RECIPES:
            raise InputError(f"No experiment is called {name!r}. Known: {', '.join(sorted(recipes.RECIPES))}, paper.")
        file = (output or results_folder() / f"{name}{'.smoke' if smoke else ''}.json").resolve()
        if smoke and is_full_run(file):
            raise InputError(f"{file} holds the results of a full run. Give a trial run another --output.")
        check_writable(file)
        # Finished cells survive an interruption: the same command goes on where it stopped.
        with Journal(journal_of(file, smoke=smoke)) as journal, BarProgress() as progress:
            result: dict[str, Any] = recipes.run(name, smoke=smoke, jobs=jobs, progress=progress, journal=journal)
            write_text(file, _a_line_each(result))
            journal.remove()
        console = Terminal()
        for table in experiment_tables(name, result.get("summary", []), console.width):
            console.print(table)
        console.print(f"Results: {file}", highlight=False, soft_wrap=True)


def _a_line_each(result: dict[str, Any]) -> str:
    """JSON with a line for each entry of a list: what another run changes can be seen."""
    parts = []
    for key, value in result.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(entry, ensure_ascii=False) for entry in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
