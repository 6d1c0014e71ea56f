"""Commands on one model: fit, predict, evaluate, inspect."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ecrt.cli.shared import (
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
    one_line_errors,
    print_columns,
    print_metrics,
    split_types,
    tell,
    warn,
)
from ecrt.errors import StoppedError

__all__ = ["evaluate", "fit", "inspect_model", "predict"]

LONGEST_CARD = 2**16
"""Letters of a card that is laid out; a longer one is printed as it is."""


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
        from ecrt.runs import fit_file, open_output, publish_run, read_config, read_costs, read_prior
        from ecrt.training import stop_on_interrupt

        target = target or (["y"] if file.suffix == ".npz" else None)
        chosen = read_config(
            config, settings or [], target=target, task=task, id=ids, drop=drop, seed=seed, device=device,
            encoding=encoding, decimal=decimal, na=na, types=split_types(types) or None,
            class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs),
        )  # fmt: skip
        console = Terminal(stderr=True)

        def say(line: str) -> None:
            console.print(line, highlight=False)

        with open_output(output, force=force) as new:
            with stop_on_interrupt(warn) as stop:
                try:
                    fitted = fit_file(
                        file,
                        new.path,
                        chosen,
                        say=lambda line: console.print(line, highlight=False),
                        show=print_columns,
                    )
                except StoppedError as error:
                    if not stop.signal:
                        raise
                    warn(f"Interrupted: {error} Nothing is saved.")
                    raise typer.Exit(128 + stop.signal) from None
                status = 128 + stop.signal if fitted.interrupted else 0
            if fitted.found is not None:
                print_metrics(fitted.found)
                write_model_page(new.path)
            place = publish_run(new, interrupted=bool(fitted.interrupted))
        # As it was given, unless it went elsewhere.
        place = output if place == output.resolve() else place
        if fitted.found is not None:
            tell(f"Report: {place / 'report.html'}")
        tell(f"Model: {place / 'model'}")
        if status:
            kept = "" if place == output else f" {output} is as it was."
            warn(f"Interrupted: {fitted.interrupted}.{kept}")
            raise typer.Exit(status)


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

        check_predictions(output, file)
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
        from ecrt.runs import evaluate_file, open_report, open_run, read_costs, read_prior

        with nullcontext() if output is None else open_report(output) as new:
            run = open_run(model, class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs))
            reading = ReadOptions(encoding=encoding, decimal=decimal)
            found, decided = evaluate_file(run, file, reading=reading, allow_unreadable=allow_unreadable)
            print_metrics(found, decided)
            if new is not None:
                found.write(new.path)
                write_model_page(new.path)
                new.publish()
                tell(f"Figures: {output / 'report.html' if output else ''}")


def inspect_model(context: typer.Context, model: Model) -> None:
    """Say what a model is: data, classes, choices, diagnostics."""
    with one_line_errors(debug=context.obj):
        from rich.markdown import Markdown

        from ecrt.runs import card_of

        card = card_of(model)
        Terminal().print(Markdown(card, hyperlinks=False) if len(card) <= LONGEST_CARD else card)
