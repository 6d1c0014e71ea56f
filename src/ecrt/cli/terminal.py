"""The terminal: what is printed, errors in one line, and signals."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Within this block Ctrl-C and SIGTERM raise a ``KeyboardInterrupt``; gives the signals that have come.

    Libraries may take that for an error of their own, as a reader of files does for one in reading.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        raise TerminatedError if signum == signal.SIGTERM else KeyboardInterrupt

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield _received
    finally:
        _received.clear()
        for name, handler in before.items():
            signal.signal(name, handler)


_received: list[int] = []


def run_app(app: typer.Typer, program: str) -> None:
    """Run the command line; a signal ends it with the status that goes with the signal."""
    with interruptible() as received:
        try:
            app(prog_name=program)
        except KeyboardInterrupt:
            warn("Interrupted.")
            raise SystemExit(128 + received[0]) from None
        except SystemExit as end:  # before a command has begun typer takes SIGTERM for Ctrl-C
            raise SystemExit(128 + received[0] if received and end.code else end.code) from None


def tell(line: str) -> None:
    """Print a line as it is."""
    Terminal().print(line, soft_wrap=True)


def warn(message: str) -> None:
    """Print to the error stream, so that it is seen."""
    Terminal(stderr=True).print(message, style="bold red", soft_wrap=True)


class Command(TyperCommand):
    """A command that ends with one line after an error; its app has the option ``--debug``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        root = ctx.find_root()
        with _one_line_errors(root.info_name, debug=root.params["debug"]):
            return super().invoke(ctx)


def _notes() -> Callable[..., None]:
    """How warnings are shown: our own as notes, each once; what libraries say among themselves is not for users."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, ECRTWarning) and str(message) not in shown:
            shown.add(str(message))
            Terminal(stderr=True).print(f"Note: {message}", style="yellow", soft_wrap=True)

    return show


@contextmanager
def _one_line_errors(program: str, *, debug: bool) -> Iterator[None]:
    """Print errors in one line and exit with the status that goes with them; print warnings as notes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ECRTWarning)
            warnings.showwarning = _notes()
            yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        warn("Interrupted.")
        raise typer.Exit(143 if isinstance(error, TerminatedError) else 130) from None
    except Exception as error:
        if debug:
            raise
        if _received:
            warn("Interrupted.")
            raise typer.Exit(128 + _received[0]) from None
        where = "" if isinstance(error, ECRTError) else f" ({type(error).__name__}; {program} --debug shows where)"
        warn(f"Error: {_one_line(error)}{where}")
        raise typer.Exit(1) from None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
