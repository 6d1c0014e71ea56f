"""The terminal: what is printed, errors in one line, and signals."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer.core import TyperCommand

from ecrt.errors import ECRTError, ECRTWarning, TerminatedError

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Letters that a terminal obeys instead of showing them, or cannot show."""

LONGEST_MESSAGE = 2000


class Terminal(Console):
    """A terminal that only shows text and never obeys it: labels, names of files and cards come from strangers.

    Nothing is highlighted: the search for numbers takes quadratic time in a long row of digits.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Pieces of text and their styles; what would steer the terminal is replaced by a sign."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else UNSEEN.sub("\ufffd", text), style, control)


def run_app(app: typer.Typer, program: str) -> None:
    """Run the command line, in which Ctrl-C and SIGTERM raise a ``KeyboardInterrupt`` and give the exit status."""

    def handle(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        raise TerminatedError if signum == signal.SIGTERM else KeyboardInterrupt

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        app(prog_name=program)
    except KeyboardInterrupt:
        warn("Interrupted.")
        raise SystemExit(128 + _received[0]) from None
    except SystemExit as end:  # before a command has begun typer takes SIGTERM for Ctrl-C
        raise SystemExit(128 + _received[0] if _received and end.code else end.code) from None
    finally:
        _received.clear()
        for name, handler in before.items():
            signal.signal(name, handler)


_received: list[int] = []
"""Signals that have come. A library may take one for its own error, as a reader of files does for one in reading."""


class Command(TyperCommand):
    """A command that prints an error in one line and warnings as notes; its app has the option ``--debug``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error ends it with the status that goes with the error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ECRTWarning)
                warnings.showwarning = _notes()
                return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt as error:
            warn("Interrupted.")
            raise typer.Exit(143 if isinstance(error, TerminatedError) else 130) from None
        except Exception as error:
            root = ctx.find_root()
            if root.params["debug"]:
                raise
            if _received:
                warn("Interrupted.")
                raise typer.Exit(128 + _received[0]) from None
            known = isinstance(error, ECRTError)
            where = "" if known else f" ({type(error).__name__}; {root.info_name} --debug shows where)"
            text = " ".join(str(error).split())
            warn(f"Error: {text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + '…'}{where}")
            raise typer.Exit(1) from None


def _notes() -> Callable[..., None]:
    """How warnings are shown: our own as notes, each once; what libraries say among themselves is not for users."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, ECRTWarning) and str(message) not in shown:
            shown.add(str(message))
            Terminal(stderr=True).print(f"Note: {message}", style="yellow", soft_wrap=True)

    return show


def tell(line: str) -> None:
    """Print a line as it is."""
    Terminal().print(line, soft_wrap=True)


def warn(message: str) -> None:
    """Print to the error stream, so that it is seen."""
    Terminal(stderr=True).print(message, style="bold red", soft_wrap=True)
