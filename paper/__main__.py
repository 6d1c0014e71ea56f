"""The command ``python -m paper``: run a recipe, download its data, or write the page on all results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ecrt.cli import Command, Terminal, run_app, tell
from ecrt.disk import check_writable, write_text
from ecrt.embedding import embed, make_backbone
from ecrt.errors import InputError
from ecrt.estimators.inputs import resolve_device
from ecrt.training import BarProgress
from paper import recipes
from paper.data import CATALOGUE, KnownData, RemoteFile, data_folder, default_folder, fetch, published_items
from paper.data.loaders import EMBEDDINGS
from paper.journal import Journal
from paper.page import write_paper_page
from paper.result_files import is_full_run, journal_of, results_folder
from paper.terminal import experiment_tables

__all__ = ["app", "main"]

PROGRAM = "python -m paper"

app = typer.Typer(
    name=PROGRAM,
    help="The experiments of the paper: every recipe is a command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Option that every command shares."""


@app.command("data", cls=Command)
def download_data(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets to download, such as mnist; without one, all are listed.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder; ECRT_DATA, or else ~/.cache/ecrt.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Say where it is, how large and under which terms; download nothing.")
    ] = False,
) -> None:
    """Download public data sets of the paper and verify them; or list what is known."""
    for name in names or ():
        if name not in CATALOGUE:
            raise InputError(f"No data set is called {name!r}. Known: {', '.join(CATALOGUE)}.")
    for known in [CATALOGUE[name] for name in names or CATALOGUE]:
        if not names or show or known.files:
            _describe(known)
        if names and not show:
            _download(known, output or default_folder())
    if not names:
        tell(f"Download one with: {PROGRAM} data NAME. The same command goes on where it stopped.")


def _describe(known: KnownData) -> None:
    tell(f"{known.name}: {known.title}")
    tell(f"  home: {known.home}")
    tell(f"  terms: {known.terms}")
    for file in known.files:
        tell(f"  file: {file.url}, {file.size}, md5 {file.md5} ({file.source})")
    if known.by_hand:
        tell(f"  by hand: {known.by_hand}")
    tell("")


def _download(known: KnownData, folder: Path) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Terminal(stderr=True)) as bars:

        def report(file: RemoteFile) -> Callable[[int, int | None], None]:
            bar = bars.add_task(file.name, total=None)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        fetch(known, folder, report)
    tell(f"Data: {folder / known.name}")
    tell(f"Next: export ECRT_DATA={folder}; {known.next_step}")


@app.command("embed", cls=Command)
def embed_data(
    name: Annotated[str, typer.Argument(help="Data set: tiny_imagenet, inaturalist or arxiv.")],
    backbone: Annotated[str, typer.Option(metavar="NAME", help="Network, as for ecrt embed.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Items that the network sees at once.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads that open images.")] = 4,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of the network (.safetensors), instead of a download.")
    ] = None,
) -> None:
    """Turn a downloaded data set into features, where recipes look for them."""
    items = published_items(name, data_folder())
    network = make_backbone(backbone, device=resolve_device(device), weights=weights)
    file = data_folder() / name / EMBEDDINGS
    with BarProgress() as progress:
        found = embed(items, network, file, batch_size=batch_size, threads=threads, progress=progress)
    tell(f"{found.rows} rows of {found.features} features: {file}")


@app.command("page", cls=Command)
def write_page(
    output: Annotated[Path | None, typer.Option(help="HTML or Markdown file; page.html beside the results.")] = None,
) -> None:
    """Write all results beside the paper's, and judge its claims."""
    folder = results_folder()
    tell(f"Page: {write_paper_page(folder, (output or folder / 'page.html').resolve())}")


def _command_of(name: str) -> Callable[..., None]:
    """The command that runs a recipe."""

    def command(
        smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes, to see that all works.")] = False,
        output: Annotated[
            Path | None, typer.Option(help="JSON file; NAME.json in ECRT_RESULTS, or else in paper/results.")
        ] = None,
        jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    ) -> None:
        _run(name, smoke, output, jobs)

    return command


def _run(name: str, smoke: bool, output: Path | None, jobs: int) -> None:
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


for _name, _recipe in recipes.RECIPES.items():
    app.command(_name, cls=Command, help=_recipe.title, rich_help_panel="Recipes")(_command_of(_name))


def main() -> None:
    """Entry point."""
    run_app(app, PROGRAM)


if __name__ == "__main__":
    main()
