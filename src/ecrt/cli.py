"""The command ``ecrt``: thin, every command calls one function of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ecrt.errors import ECRTError, InputError

__all__ = ["app", "main"]

INTERRUPTED = 130

app = typer.Typer(
    name="ecrt",
    help="Learning from imbalanced data by causal representation transfer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point."""
    try:
        app(prog_name="ecrt")
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise SystemExit(INTERRUPTED) from None


def _version(wanted: bool) -> None:
    if wanted:
        from ecrt import __version__

        Console().print(f"ecrt {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Keep the options that every command shares."""
    context.obj = debug


@app.command()
def demo(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("ecrt-demo"),
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A short run, to see that all works.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
) -> None:
    """Compare ECRT with its baselines on data that need no download, and write a report."""
    with _one_line_errors(debug=context.obj):
        _make_folder(output)
        from ecrt.experiments.demo import QUICK, DemoConfig, run_demo
        from ecrt.experiments.demo_results import write_demo
        from ecrt.report import rich_table, summarise, write_report
        from ecrt.training import BarProgress

        with BarProgress() as progress:
            result = run_demo(seed=seed, config=QUICK if quick else DemoConfig(), jobs=jobs, progress=progress)
        write_demo(result, output)
        page = write_report(result, output)
        console = Console()
        for data in result.data:
            table = summarise(data)
            console.print(rich_table(table))
            for sentence in (*data.verdicts(), table.note):
                console.print(sentence, highlight=False)
            console.print()
        console.print(f"Report: {page}\nNumbers: {output / 'results.json'}", highlight=False, soft_wrap=True)


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Experiment of the paper, such as toy or extreme.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes, to see that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; results/NAME.json if not given.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Run an experiment of the paper and write its results."""
    with _one_line_errors(debug=context.obj):
        from ecrt.experiments import recipes
        from ecrt.report import summary_table
        from ecrt.training import BarProgress

        if name not in recipes.RECIPES:
            raise InputError(f"No experiment is called {name!r}. Known: {', '.join(sorted(recipes.RECIPES))}.")
        file = output or Path("results") / f"{name}.json"
        _make_folder(file.parent)
        # Finished cells survive an interruption: the same command goes on where it stopped.
        journal = file.with_suffix(".smoke.jsonl" if smoke else ".jsonl")
        with BarProgress() as progress:
            result: dict[str, Any] = recipes.run(name, smoke=smoke, jobs=jobs, progress=progress, journal=journal)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        journal.unlink(missing_ok=True)
        console = Console()
        console.print(summary_table(name, result.get("summary", [])))
        console.print(f"Results: {file}", highlight=False, soft_wrap=True)


def _make_folder(folder: Path) -> None:
    """Make the folder before the long run, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.") from error


def _say(message: str) -> None:
    Console(stderr=True).print(message, style="bold red", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _one_line_errors(*, debug: bool) -> Iterator[None]:
    try:
        yield
    except ECRTError as error:
        if debug:
            raise
        _say("Error: " + " ".join(str(error).split()))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
