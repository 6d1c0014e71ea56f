"""What commands share: options, what they print, and errors in one line."""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ecrt.errors import ECRTError, ECRTWarning, InputError, TerminatedError

__all__ = [
    "AllowUnreadable",
    "ClassColumn",
    "Costs",
    "Decimal",
    "Drop",
    "Encoding",
    "Ids",
    "Missing",
    "Model",
    "Prior",
    "TableFile",
    "Terminal",
    "Threshold",
    "Types",
    "class_column",
    "interruptible",
    "one_line_errors",
    "print_columns",
    "print_metrics",
    "run_app",
    "split_types",
    "tell",
    "warn",
]

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Letters that a terminal obeys instead of showing them, or cannot show."""

LONGEST_MESSAGE = 2000
MOST_COLUMNS = 15
"""Columns of a table that are listed one by one."""

TableFile = Annotated[
    Path, typer.Argument(help="Table (CSV, TSV, JSON, Excel, Parquet; - for stdin), or NPZ with arrays X and y.")
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of a text file, such as latin-1; told from the file if not given.")
]
Decimal = Annotated[str | None, typer.Option(metavar="SIGN", help=". or , where numbers can be read with either.")]
Missing = Annotated[
    list[str] | None, typer.Option("--na", metavar="SIGN", help="Further sign for a missing value, such as -999.")
]
Types = Annotated[list[str] | None, typer.Option(metavar="COL=TYPE", help="Read a column as number, category or date.")]
AllowUnreadable = Annotated[
    bool, typer.Option("--allow-unreadable", help="Go on if most values of a column are unreadable or new.")
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Column that names rows; not learned from.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out.")]
ClassColumn = Annotated[str | None, typer.Option(help="Column with the class (NPZ: an array, y if not given).")]
Model = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that ecrt fit has written.")]
Prior = Annotated[
    str | None,
    typer.Option(metavar="PRIOR", help="balanced, training, or a number for each class, such as 0.9,0.1."),
]
Threshold = Annotated[
    float | None, typer.Option(help="Two classes: probability from which the rarer one is predicted.")
]
Costs = Annotated[
    str | None,
    typer.Option(metavar="MISS:FALSE_ALARM", help="Two classes: what the two mistakes cost, such as 10:1."),
]


class Terminal(Console):
    """A terminal that is shown text and told nothing by it: labels, names of files and cards come from strangers.

    Nothing is highlighted: the search for numbers takes quadratic time in a long row of digits.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Pieces of text and their styles; what would steer the terminal is replaced by a sign."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else UNSEEN.sub("\ufffd", text), style, control)


def class_column(target: str | None, file: Path) -> str:
    """The column with the class; an NPZ may leave it out."""
    if target is None and file.suffix != ".npz":
        raise InputError("Name the column with the class: --target COL.")
    return target or "y"


def split_types(types: list[str] | None) -> dict[str, str]:
    """Types of columns as they are written on the command line; a name may hold ``=``."""
    found = {}
    for entry in types or []:
        name, equals, kind = entry.rpartition("=")
        if not equals or not name:
            raise InputError(f"--types {entry}: use COL=TYPE, such as postcode=category.")
        found[name] = kind
    return found


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


def print_columns(columns: Any) -> None:
    """Print how the columns of a table were read; what is to be said of single ones stands in notes above."""
    from ecrt.data import HEADINGS, column_rows
    from ecrt.report import summary_table

    rows = [dict(zip(HEADINGS, row, strict=True)) for row in column_rows(columns, MOST_COLUMNS)]
    used = [name for name in HEADINGS[:5] if any(row[name] for row in rows)]
    if rows:
        Terminal(stderr=True).print(
            summary_table("How columns were read", [{name: row[name] for name in used} for row in rows])
        )


def print_metrics(found: Any, decided: dict[str, float] | None = None) -> None:
    """Print the figures of an evaluation as a table."""
    from ecrt.report import summary_table

    groups = [name for name in found.metrics if name != "guessing"]
    names = list(found.metrics[groups[0]])
    rows = [{"metric": name} | {group: found.metrics[group][name] for group in groups} for name in names]
    tell(f"{found.title}: {len(found.y)} test rows. {found.subject}".rstrip())
    Terminal().print(summary_table("", rows))
    if found.unknown_labels:
        named = ", ".join(f"{label} ({rows})" for label, rows in list(found.unknown_labels.items())[:8])
        tell(f"Labels that the model does not know count as errors: {named}.")
    if decided:
        Terminal().print(summary_table("With the threshold", [dict(decided)]))


def tell(line: str) -> None:
    """Print a line as it is."""
    Terminal().print(line, soft_wrap=True)


def warn(message: str) -> None:
    """Print to the error stream, so that it is seen."""
    Terminal(stderr=True).print(message, style="bold red", soft_wrap=True)


def _notes() -> Callable[..., None]:
    """How warnings are shown: our own as notes, each once; what libraries say among themselves is not for users."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, ECRTWarning) and str(message) not in shown:
            shown.add(str(message))
            Terminal(stderr=True).print(f"Note: {message}", style="yellow", soft_wrap=True)

    return show


@contextmanager
def one_line_errors(*, debug: bool, program: str = "ecrt") -> Iterator[None]:
    """Errors told in one line, with the exit status that goes with them; warnings as notes."""
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
        if isinstance(error, ECRTError):
            warn("Error: " + _one_line(error))
            raise typer.Exit(1) from None
        warn(f"Error: {_one_line(error)} ({type(error).__name__}; {program} --debug shows where)")
        raise typer.Exit(1) from None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
