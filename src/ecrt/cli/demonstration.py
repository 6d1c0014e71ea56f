"""The command demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import Terminal, one_line_errors
from ecrt.errors import InputError

__all__ = ["demo"]


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
