"""The command ``ecrt``: thin, every command calls one function of the library."""

from __future__ import annotations

from typing import Annotated

import typer

from ecrt.cli.demonstration import demo
from ecrt.cli.embedding import embed_source
from ecrt.cli.models import evaluate, fit, inspect_model, predict
from ecrt.cli.shared import Terminal, run_app
from ecrt.cli.tables import compare, diagnose

__all__ = ["app", "main"]

app = typer.Typer(
    name="ecrt",
    help="Learning from imbalanced data by causal representation transfer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point."""
    run_app(app, "ecrt")


def _version(wanted: bool) -> None:
    if wanted:
        from ecrt import __version__

        Terminal().print(f"ecrt {__version__}")
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


# In the order of the help.
for command in (demo, fit, predict, evaluate, compare, diagnose):
    app.command()(command)
app.command("inspect")(inspect_model)
app.command("embed")(embed_source)
