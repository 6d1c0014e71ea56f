"""The command ``ecrt``: thin, every command calls one function of the library.

``commands`` has the commands with their options, ``terminal`` what they print and how errors and signals end them.
"""

from ecrt.cli.commands import app
from ecrt.cli.terminal import run_app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point."""
    run_app(app, "ecrt")
