"""Commands on one model: fit, predict, evaluate, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import (
    INTERRUPTED,
    AllowUnreadable,
    Costs,
    Decimal,
    Drop,
    Encoding,
    Ids,
    Missing,
    Model,
    Prior,
    Terminal,
    Threshold,
    Types,
    make_folder,
    one_line_errors,
    print_columns,
    print_metrics,
    split_types,
    tell,
    warn,
)

__all__ = ["evaluate", "fit", "inspect_model", "predict"]


def fit(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="Table (CSV, TSV, JSON, Excel, Parquet; - for stdin), NPZ, or folder of images.")
    ],
    target: Annotated[
        list[str] | None, typer.Option(help="Column with the target, or several (NPZ: an array, y if not given).")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="classification, multilabel or regression; told from the target if not given.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")] = Path(
        "ecrt-model"
    ),
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as model.epochs=20.")
    ] = None,
    ids: Ids = None,
    drop: Drop = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same model.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto.")] = None,
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that holds other files.")] = False,
) -> None:
    """Fit a model on a file; write it, its figures and a report to a folder."""
    with one_line_errors(debug=context.obj):
        from ecrt.report import write_model_page
        from ecrt.runs import check_output, fit_file, read_config, read_costs, read_prior
        from ecrt.training import stop_on_interrupt, stop_requested

        target = target or (["y"] if file.suffix == ".npz" else None)
        chosen = read_config(
            config, settings or [], target=target, task=task, id=ids, drop=drop, seed=seed, device=device,
            encoding=encoding, decimal=decimal, na=na, types=split_types(types) or None,
            class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs),
        )  # fmt: skip
        check_output(output, force=force)
        console = Terminal(stderr=True)
        with stop_on_interrupt(warn):
            found = fit_file(
                file, output, chosen, say=lambda line: console.print(line, highlight=False), show=print_columns
            )
            stopped = stop_requested()
        if found is not None:
            print_metrics(found)
            tell(f"Report: {write_model_page(output)}")
        tell(f"Model: {output / 'model'}")
        if stopped:
            warn("Interrupted: the model is the best that was reached by then.")
            raise typer.Exit(INTERRUPTED)


def predict(
    context: typer.Context,
    model: Model,
    file: Annotated[Path, typer.Argument(help="Data like those of the fit, with or without labels.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write: .csv, .jsonl or .parquet.")
    ] = Path("predictions.csv"),
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    allow_unreadable: AllowUnreadable = False,
) -> None:
    """Predict the rows of a file: ids, the label, and the probability of each class."""
    with one_line_errors(debug=context.obj):
        from ecrt.data import ReadOptions
        from ecrt.runs import check_predictions, open_run, predict_file, read_costs, read_prior, write_predictions

        check_predictions(output)
        run = open_run(model, class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs))
        reading = ReadOptions(encoding=encoding, decimal=decimal)
        table = predict_file(run, file, reading=reading, allow_unreadable=allow_unreadable)
        write_predictions(table, output)
        tell(f"{len(table)} rows predicted.")
        tell(f"Predictions: {output}")


def evaluate(
    context: typer.Context,
    model: Model,
    file: Annotated[Path, typer.Argument(help="Labelled data like those of the fit.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for figures and a report.")
    ] = None,
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    allow_unreadable: AllowUnreadable = False,
) -> None:
    """Measure a model on labelled data it has not seen."""
    with one_line_errors(debug=context.obj):
        from ecrt.data import ReadOptions
        from ecrt.report import write_model_page
        from ecrt.runs import evaluate_file, open_run, read_costs, read_prior

        run = open_run(model, class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs))
        reading = ReadOptions(encoding=encoding, decimal=decimal)
        found, decided = evaluate_file(run, file, reading=reading, allow_unreadable=allow_unreadable)
        print_metrics(found, decided)
        if output is not None:
            make_folder(output)
            found.write(output)
            tell(f"Figures: {write_model_page(output)}")


def inspect_model(context: typer.Context, model: Model) -> None:
    """Say what a model is: data, classes, choices, diagnostics."""
    with one_line_errors(debug=context.obj):
        from rich.markdown import Markdown

        from ecrt.runs import card_of

        Terminal().print(Markdown(card_of(model), hyperlinks=False))
