"""The command demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import Terminal, one_line_errors, tell

__all__ = ["demo"]


def demo(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder; the same command goes on where it stopped.")
    ] = Path("ecrt-demo"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
) -> None:
    """Compare ECRT with its baselines on data that need no download; write a report and a picture."""
    with one_line_errors(debug=context.obj):
        import joblib

        from ecrt.disk import write_bytes
        from ecrt.report import comparison_table, rich_table, toy_png, write_comparison_page
        from ecrt.runs.demo import compare_digits, toy_picture
        from ecrt.training import BarProgress

        with BarProgress() as progress:
            found = compare_digits(output, jobs=jobs or joblib.cpu_count(), progress=progress)
        page, picture = write_comparison_page(output), output / "sources.png"
        if not picture.exists():
            write_bytes(picture, toy_png(toy_picture()))
        Terminal().print(rich_table(comparison_table(found)))
        for sentence in found.verdict():
            tell(sentence)
        tell(f"Report: {page}")
        tell(f"Picture of the sources that ECRT finds in the toy of its paper: {picture}")
