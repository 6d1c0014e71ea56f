"""The command ``ecrt``: thin, every command calls one function of the library.

``commands`` has the commands with their options, ``terminal`` what they print and how errors and signals end them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ecrt.cli import commands
from ecrt.cli.terminal import run_app, tell

__all__ = ["app", "main"]

EXIT_STATUS = (
    "Exit status: 0 if all went well; 1 after an error, which is told in one line; 2 if the command line could not be "
    "understood; 130 after Ctrl-C and 143 after SIGTERM. An interrupted fit may have saved a model beside the old one: "
    "its last lines say so."
)

app = typer.Typer(
    name="ecrt",
    help="Learning from imbalanced data by causal representation transfer.",
    epilog=EXIT_STATUS,
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

        tell(f"ecrt {__version__}")
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
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": commands.demo,
    "fit": commands.fit,
    "predict": commands.predict,
    "evaluate": commands.evaluate,
    "compare": commands.compare,
    "diagnose": commands.diagnose,
    "inspect": commands.inspect_model,
    "embed": commands.embed_source,
}
for name, function in COMMANDS.items():
    app.command(name, short_help=function.__doc__)(function)
