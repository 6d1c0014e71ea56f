"""The command ``ecrt``: thin, every command calls one function of the library."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from ecrt.errors import ECRTError, ECRTWarning, InputError

__all__ = ["app", "main"]

INTERRUPTED = 130

app = typer.Typer(
    name="ecrt",
    help="Learning from imbalanced data by causal representation transfer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point."""
    try:
        app(prog_name="ecrt")
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise SystemExit(INTERRUPTED) from None


def _version(wanted: bool) -> None:
    if wanted:
        from ecrt import __version__

        Console().print(f"ecrt {__version__}", highlight=False)
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


@app.command()
def demo(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("ecrt-demo"),
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="A short run, to see that all works.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
) -> None:
    """Compare ECRT with its baselines on data that need no download, and write a report."""
    with _one_line_errors(debug=context.obj):
        _make_folder(output)
        from ecrt.experiments.demo import QUICK, DemoConfig, run_demo
        from ecrt.experiments.demo_results import write_demo
        from ecrt.report import rich_table, summarise, write_report
        from ecrt.training import BarProgress

        with BarProgress() as progress:
            result = run_demo(seed=seed, config=QUICK if quick else DemoConfig(), jobs=jobs, progress=progress)
        write_demo(result, output)
        page = write_report(result, output)
        console = Console()
        for data in result.data:
            table = summarise(data)
            console.print(rich_table(table))
            for sentence in (*data.verdicts(), table.note):
                console.print(sentence, highlight=False)
            console.print()
        console.print(f"Report: {page}\nNumbers: {output / 'results.json'}", highlight=False, soft_wrap=True)


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


@app.command()
def fit(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet, JSONL or NPZ, or a folder of images by class.")],
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
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same model.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or auto.")] = None,
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that holds other files.")] = False,
) -> None:
    """Fit a model on a file; write it, its figures and a report to a folder."""
    with _one_line_errors(debug=context.obj):
        from ecrt.report import write_model_page
        from ecrt.runs import check_output, fit_file, read_config, read_costs, read_prior
        from ecrt.training import stop_on_interrupt, stop_requested

        target = target or (["y"] if file.suffix == ".npz" else None)
        chosen = read_config(
            config, settings or [], target=target, task=task, id=ids, drop=drop, seed=seed, device=device,
            class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs),
        )  # fmt: skip
        check_output(output, force=force)
        console = Console(stderr=True)
        with stop_on_interrupt(_say):
            found = fit_file(file, output, chosen, say=lambda line: console.print(line, highlight=False))
            stopped = stop_requested()
        if found is not None:
            _print_metrics(found)
            _out(f"Report: {write_model_page(output)}")
        _out(f"Model: {output / 'model'}")
        if stopped:
            _say("Interrupted: the model is the best that was reached by then.")
            raise typer.Exit(INTERRUPTED)


@app.command()
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
) -> None:
    """Predict the rows of a file: ids, the label, and the probability of each class."""
    with _one_line_errors(debug=context.obj):
        from ecrt.runs import open_run, predict_file, read_costs, read_prior, write_predictions

        run = open_run(model, class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs))
        table = predict_file(run, file)
        write_predictions(table, output)
        _out(f"{len(table)} rows predicted.")
        _out(f"Predictions: {output}")


@app.command()
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
) -> None:
    """Measure a model on labelled data it has not seen."""
    with _one_line_errors(debug=context.obj):
        from ecrt.report import write_model_page
        from ecrt.runs import evaluate_file, open_run, read_costs, read_prior

        run = open_run(model, class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs))
        found, decided = evaluate_file(run, file)
        _print_metrics(found, decided)
        if output is not None:
            _make_folder(output)
            found.write(output)
            _out(f"Figures: {write_model_page(output)}")


@app.command()
def compare(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or JSONL, or NPZ with arrays X and y.")],
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
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder; the same command goes on where it stopped.")
    ] = Path("ecrt-comparison"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one on each core if not given.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler to run on instead.")] = None,
) -> None:
    """Say which method serves this table: the same splits and tuning for all, and tests for more than noise."""
    with _one_line_errors(debug=context.obj):
        import joblib

        from ecrt.comparison import dask_cluster
        from ecrt.report import comparison_table, rich_table, write_comparison_page
        from ecrt.runs import compare_file
        from ecrt.training import BarProgress

        processes = None if cluster else jobs or joblib.cpu_count()
        with dask_cluster(cluster), BarProgress() as progress:
            found = compare_file(
                file, output, target=_class_column(target, file), methods=methods, metric=metric, prior=prior,
                seeds=seeds, group=group, time=time, trials=trials, budget=budget, reference=reference,
                ids=ids or (), drop=drop or (), jobs=processes, progress=progress,
            )  # fmt: skip
        Console().print(rich_table(comparison_table(found, found.prior)))
        for sentence in found.verdict():
            _out(sentence)
        _out(f"Report: {write_comparison_page(output)}")


@app.command()
def diagnose(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or JSONL, or NPZ with arrays X and y.")],
    target: ClassColumn = None,
    seen: Annotated[
        str | None, typer.Option(metavar="COL", help="Column of 0 and 1: was the encoder trained on the row?")
    ] = None,
    trials: Annotated[int, typer.Option(min=6, help="Fits to choose by.")] = 30,
    budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="Instead: seconds to choose in.")] = None,
    ids: Ids = None,
    drop: Drop = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result, unless --budget is used.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")] = Path(
        "ecrt-diagnosis"
    ),
) -> None:
    """Say whether transfer helps on this table, by how much, and why."""
    with _one_line_errors(debug=context.obj):
        from ecrt.report import diagnosis_table, write_diagnosis_page
        from ecrt.runs import diagnose_file

        _make_folder(output)
        found = diagnose_file(
            file, target=_class_column(target, file), seen=seen, ids=ids or (), drop=drop or (), random_state=seed,
            trials=None if budget else trials, budget=budget or 180.0, verbose=True,
        )  # fmt: skip
        Console().print(diagnosis_table(found))
        _out(found.recommendation)
        _out(f"Report: {write_diagnosis_page(found, output)}")


@app.command("inspect")
def inspect_model(context: typer.Context, model: Model) -> None:
    """Say what a model is: data, classes, choices, diagnostics."""
    with _one_line_errors(debug=context.obj):
        from ecrt.runs import card_of

        Console().print(Markdown(card_of(model)))


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Experiment of the paper, such as toy; paper writes a page on them all.")],
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes, to see that all works.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="File; results/NAME.json if not given (paper: results/paper.html, or .md).")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Run an experiment of the paper and write its results; or write all results beside the paper's."""
    with _one_line_errors(debug=context.obj):
        from ecrt.experiments import recipes
        from ecrt.report import summary_table, write_paper_page
        from ecrt.training import BarProgress

        if name == "paper":
            _out(f"Page: {write_paper_page(Path('results'), output or Path('results/paper.html'))}")
            return
        if name not in recipes.RECIPES:
            raise InputError(f"No experiment is called {name!r}. Known: {', '.join(sorted(recipes.RECIPES))}, paper.")
        file = output or Path("results") / f"{name}.json"
        _make_folder(file.parent)
        # Finished cells survive an interruption: the same command goes on where it stopped.
        journal = file.with_suffix(".smoke.jsonl" if smoke else ".jsonl")
        with BarProgress() as progress:
            result: dict[str, Any] = recipes.run(name, smoke=smoke, jobs=jobs, progress=progress, journal=journal)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        journal.unlink(missing_ok=True)
        console = Console()
        console.print(summary_table(name, result.get("summary", [])))
        console.print(f"Results: {file}", highlight=False, soft_wrap=True)


def _class_column(target: str | None, file: Path) -> str:
    if target is None and file.suffix != ".npz":
        raise InputError("Name the column with the class: --target COL.")
    return target or "y"


def _make_folder(folder: Path) -> None:
    """Make the folder before the long run, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write to the folder {folder}: {error.strerror or error}.") from error


def _print_metrics(found: Any, decided: dict[str, float] | None = None) -> None:
    from ecrt.report import summary_table

    groups = [name for name in found.metrics if name != "guessing"]
    names = list(found.metrics[groups[0]])
    rows = [{"metric": name} | {group: found.metrics[group][name] for group in groups} for name in names]
    _out(f"{found.title}: {len(found.y)} test rows")
    Console().print(summary_table("", rows))
    if decided:
        Console().print(summary_table("With the threshold", [dict(decided)]))


def _out(line: str) -> None:
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def _say(message: str) -> None:
    Console(stderr=True).print(message, style="bold red", highlight=False, markup=False, soft_wrap=True)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Our own warnings as notes; what libraries say among themselves is not for users of the command."""
    if issubclass(category, ECRTWarning):
        Console(stderr=True).print(f"Note: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _one_line_errors(*, debug: bool) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    except ECRTError as error:
        if debug:
            raise
        _say("Error: " + " ".join(str(error).split()))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _say("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if debug:
            raise
        _say(f"Error: {' '.join(str(error).split())} ({type(error).__name__}; ecrt --debug shows where)")
        raise typer.Exit(1) from None
