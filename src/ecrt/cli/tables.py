"""Commands on a table with classes: compare, diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import (
    ClassColumn,
    Decimal,
    Drop,
    Encoding,
    Ids,
    Missing,
    TableFile,
    Terminal,
    Types,
    class_column,
    one_line_errors,
    split_types,
    tell,
)

__all__ = ["compare", "diagnose"]


def compare(
    context: typer.Context,
    file: TableFile,
    target: ClassColumn = None,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Names with commas between them, default, or all.")
    ] = "default",
    metric: Annotated[str, typer.Option(help="What tuning and verdict go by, such as macro-f1 or nll.")] = (
        "balanced-accuracy"
    ),
    prior: Annotated[str, typer.Option(help="Class prior they go by: balanced or training.")] = "balanced",
    seeds: Annotated[int, typer.Option(min=1, help="Splits, one for each seed.")] = 5,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Rows alike here stay on one side of a split.")] = (
        None
    ),
    time: Annotated[str | None, typer.Option(metavar="COL", help="Train before, test after, by this column.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Settings to try for each method and split; 10 without --budget.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Instead: seconds of tuning for each method and split.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="NAME", help="The method to beat; logit-adjusted if not given.")
    ] = None,
    ids: Ids = None,
    drop: Drop = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder; the same command goes on where it stopped.")
    ] = Path("ecrt-comparison"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler to run on instead.")] = None,
) -> None:
    """Say which method serves this table: the same splits and tuning for all, and tests for more than noise."""
    with one_line_errors(debug=context.obj):
        import joblib

        from ecrt.comparison import dask_cluster
        from ecrt.data import ReadOptions
        from ecrt.report import comparison_table, rich_table, write_comparison_page
        from ecrt.runs import compare_file
        from ecrt.training import BarProgress

        reading = ReadOptions(encoding=encoding, decimal=decimal, na=tuple(na or ()), types=split_types(types))
        processes = None if cluster else jobs or joblib.cpu_count()
        with dask_cluster(cluster), BarProgress() as progress:
            found = compare_file(
                file, output, target=class_column(target, file), methods=methods, metric=metric, prior=prior,
                seeds=seeds, group=group, time=time, trials=trials, budget=budget, reference=reference,
                ids=ids or (), drop=drop or (), reading=reading, jobs=processes, progress=progress,
            )  # fmt: skip
        Terminal().print(rich_table(comparison_table(found)))
        for sentence in found.verdict():
            tell(sentence)
        tell(f"Report: {write_comparison_page(output)}")


def diagnose(
    context: typer.Context,
    file: TableFile,
    target: ClassColumn = None,
    seen: Annotated[
        str | None, typer.Option(metavar="COL", help="Column of 0 and 1: was the encoder trained on the row?")
    ] = None,
    trials: Annotated[int, typer.Option(min=6, help="Fits to choose by.")] = 30,
    budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="Instead: seconds to choose in.")] = None,
    ids: Ids = None,
    drop: Drop = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result, unless --budget is used.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")] = Path(
        "ecrt-diagnosis"
    ),
) -> None:
    """Say whether transfer helps on this table, by how much, and why."""
    with one_line_errors(debug=context.obj):
        from ecrt.data import ReadOptions
        from ecrt.report import diagnosis_table, recommendation_text, rich_table, write_diagnosis_page
        from ecrt.runs import diagnose_file, open_report

        reading = ReadOptions(encoding=encoding, decimal=decimal, na=tuple(na or ()), types=split_types(types))
        with open_report(output) as new:
            found = diagnose_file(
                file, target=class_column(target, file), seen=seen, ids=ids or (), drop=drop or (), reading=reading,
                random_state=seed, trials=None if budget else trials, budget=budget or 180.0, verbose=True,
            )  # fmt: skip
            Terminal().print(rich_table(diagnosis_table(found)))
            tell(recommendation_text(found))
            write_diagnosis_page(found, new.path)
            new.publish()
        tell(f"Report: {output / 'report.html'}")
