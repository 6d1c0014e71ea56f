"""The command ``ecrt``: thin, every command calls one function of the library, and imports it when it runs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer import Argument, Option
from typer.core import TyperCommand

from ecrt.errors import ECRTError, ECRTWarning, InputError, StoppedError, TerminatedError

if TYPE_CHECKING:  # at run time it would take seconds
    from collections.abc import Sequence

    from ecrt.comparison import Comparison
    from ecrt.data import ColumnReading, ReadOptions
    from ecrt.metrics import PriorName
    from ecrt.runs import Evaluation
    from ecrt.runs.config import FitConfig
    from ecrt.runs.model_folder import FittedRun


# --- the terminal: what is printed, errors in one line, and signals ---------------------------------------------------

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Letters that a terminal obeys instead of showing them, or cannot show."""

LONGEST_MESSAGE = 2000


class Terminal(Console):
    """A terminal that only shows text and never obeys it: labels, names of files and cards come from strangers.

    Nothing is highlighted: the search for numbers takes quadratic time in a long row of digits. Of processes that share
    a fit only the first prints, unless it is ``urgent``.
    """

    def __init__(self, *, stderr: bool = False, urgent: bool = False) -> None:
        quiet = not urgent and process_number() > 0
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, quiet=quiet)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Pieces of text and their styles; what would steer the terminal is replaced by a sign."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else UNSEEN.sub("\ufffd", text), style, control)


def process_number() -> int:
    """Of this process among those that torchrun has started; 0 for one that is alone."""
    if "RANK" not in os.environ:
        return 0
    from ecrt.distributed import rank

    return rank()


def run_app(app: typer.Typer, program: str) -> None:
    """Run the command line, in which Ctrl-C and SIGTERM raise a ``KeyboardInterrupt`` and give the exit status.

    It is the last thing that a process does: after it both signals end the process at once, without a traceback.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        raise TerminatedError if signum == signal.SIGTERM else KeyboardInterrupt

    try:
        _handle_signals(handle)
        try:
            app(prog_name=program)
        finally:
            _handle_signals(signal.SIG_DFL)
    except KeyboardInterrupt:
        warn("Interrupted.")
        raise SystemExit(128 + _received[0]) from None
    except SystemExit as end:  # before a command has begun typer takes SIGTERM for Ctrl-C
        raise SystemExit(128 + _received[0] if _received and end.code else end.code) from None
    finally:
        _received.clear()


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, handler)


_received: list[int] = []
"""Signals that have come. A library may take one for its own error, as a reader of files does for one in reading."""


class Command(TyperCommand):
    """A command that prints an error in one line and warnings as notes; its app has the option ``--debug``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error ends it with the status that goes with the error."""
        try:
            if "RANK" in os.environ:
                _refuse_under_torchrun(ctx.info_name)
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


def _refuse_under_torchrun(command: str) -> None:
    """Raise an error if processes would do the same work side by side and write to the same place."""
    from ecrt.distributed import launched

    if launched() and command != "fit":
        raise InputError(f"ecrt {command} is not shared between processes: run it without torchrun.")


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
    """Print to the error stream, so that it is seen; each of several processes says which it is."""
    who = f"Process {process_number()}: " if process_number() else ""
    Terminal(stderr=True, urgent=True).print(f"{who}{message}", style="bold red", soft_wrap=True)


# --- the commands -----------------------------------------------------------------------------------------------------

LONGEST_CARD = 2**16
"""Letters of a card that is laid out; a longer one is printed as it is."""

MOST_COLUMNS = 15
"""Columns of a table that are listed one by one."""

TableFile = Annotated[Path, Argument(help="Table (CSV, TSV, JSON, Excel, Parquet; - for stdin), or NPZ with X and y.")]
Encoding = Annotated[str | None, Option(metavar="NAME", help="Encoding, such as latin-1; found if not given.")]
Decimal = Annotated[str | None, Option(metavar="SIGN", help=". or , where numbers can be read with either.")]
Missing = Annotated[list[str] | None, Option("--na", metavar="SIGN", help="Another sign for missing, such as -999.")]
Types = Annotated[list[str] | None, Option(metavar="COL=TYPE", help="Read a column as number, category or date.")]
AllowUnreadable = Annotated[bool, Option("--allow-unreadable", help="Allow columns that are mostly unreadable or new.")]
Ids = Annotated[list[str] | None, Option("--id", help="Column that names rows; not learned from.")]
Drop = Annotated[list[str] | None, Option(help="Column to leave out.")]
ClassColumn = Annotated[str | None, Option(help="Column with the class (NPZ: an array, y if not given).")]
Model = Annotated[Path, Argument(metavar="DIR", help="Folder that ecrt fit has written.")]
Prior = Annotated[str | None, Option(metavar="PRIOR", help="balanced, training, or a number for each class: 0.9,0.1.")]
Threshold = Annotated[float | None, Option(help="Two classes: probability from which the positive one is predicted.")]
Positive = Annotated[str | None, Option(metavar="CLASS", help="Positive class; the rarer of two if not given.")]
Costs = Annotated[
    str | None,
    Option(
        metavar="COSTS",
        help="MISS:FALSE_ALARM of the positive class, such as 10:1; or a CSV file: true by predicted class.",
    ),
]
Jobs = Annotated[int | None, Option(min=1, help="Processes; one on each core if not given.")]
NewFolder = Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder to write.")]
KeptFolder = Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder; the same command resumes there.")]

app = typer.Typer(
    name="ecrt",
    help="Learning from imbalanced data by causal representation transfer.",
    epilog=(
        "Exit status: 0 if all went well; 1 after an error, which is printed in one line; 2 if the command line could "
        "not be understood; 130 after Ctrl-C and 143 after SIGTERM. An interrupted fit may have saved a model beside "
        "the old one: see its last lines."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ecrt import __version__

        tell(f"ecrt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options that every command shares."""


def demo(output: KeptFolder = Path("ecrt-demo"), jobs: Jobs = None) -> None:
    """Compare ECRT with its baselines on data that need no download; write a report and a picture."""
    import joblib

    from ecrt.disk import write_bytes
    from ecrt.report import toy_png, write_page
    from ecrt.runs.demo import compare_digits, toy_points
    from ecrt.training import BarProgress

    with BarProgress() as progress:
        found = compare_digits(output, jobs=jobs or joblib.cpu_count(), progress=progress)
    page, picture = write_page(found, output), output / "sources.png"
    if not picture.exists():
        write_bytes(picture, toy_png(**toy_points()))
    _print_comparison(found)
    tell(f"Report: {page}")
    tell(f"Picture of the sources that ECRT finds in the toy of its paper: {picture}")


def fit(
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILE...",
            help="Table (CSV, TSV, JSON, Excel, Parquet; - for stdin), NPZ, NPY or image folder; or Parquet and Arrow "
            "files, or a folder of them, which are read block by block.",
        ),
    ],
    target: Annotated[
        list[str] | None, Option(help="Target column or columns (NPZ: an array, y if not given).")
    ] = None,
    task: Annotated[str | None, Option(help="classification, multilabel or regression; found if not given.")] = None,
    output: NewFolder = Path("ecrt-model"),
    method: Annotated[
        str | None, Option(metavar="NAME", help="ecrt, or a rival such as logit-adjusted; a wrong name lists all.")
    ] = None,
    config: Annotated[Path | None, Option(help="YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="One setting, such as demixing.objective=gcl.")
    ] = None,
    preset: Annotated[
        str | None,
        Option(metavar="NAME", help="paper: the paper's method as it stands; paper:mnist with its networks."),
    ] = None,
    ids: Ids = None,
    drop: Drop = None,
    weight: Annotated[
        str | None, Option(metavar="COL", help="Column that says how often each row occurs; for the fit alone.")
    ] = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    seed: Annotated[int | None, Option(min=0, help="The same seed gives the same model.")] = None,
    budget: Annotated[
        float | None, Option(metavar="SECONDS", help="Time to look for members; the result depends on the machine.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option(
            metavar="FOLDER", help="Keep there what has been trained; after a stop the same command goes on from it."
        ),
    ] = None,
    use_unlabelled: Annotated[
        bool, Option("--use-unlabelled", help="Try rows whose target is empty; held-out rows decide.")
    ] = False,
    device: Annotated[str | None, Option(help="cpu, cuda, or auto.")] = None,
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    positive: Positive = None,
    force: Annotated[
        bool,
        Option("--force", help="Write to a folder that holds other files; what has the names of ours is replaced."),
    ] = False,
) -> None:
    """Fit a model on a file; write it, its figures and a report to a folder."""
    from ecrt.checkpoints import forget
    from ecrt.distributed import joined, launched
    from ecrt.report import write_page
    from ecrt.runs.config import read_config, read_costs, read_prior
    from ecrt.runs.model_folder import fit_file, open_output, publish_run
    from ecrt.runs.streamed import fit_rows, is_streamed
    from ecrt.training import stop_on_interrupt

    file, streamed = files[0], is_streamed(files)
    target = target or (["y"] if file.suffix == ".npz" else None)
    limit = [] if budget is None else [f"model.time_budget={budget}"]
    chosen = read_config(
        config, [*(settings or []), *limit], target=target, task=task, preset=preset, id=ids, drop=drop, weight=weight,
        method=method,
        seed=seed, device=device,
        encoding=encoding, decimal=decimal, na=na, types=_split_types(types) or None,
        class_prior=read_prior(class_prior), threshold=threshold, costs=read_costs(costs), positive=positive,
        use_unlabelled=use_unlabelled or None,
    )  # fmt: skip
    if launched() and str(file) == "-":
        raise InputError("Several processes cannot read one input: under torchrun, give the name of a file, not -.")
    with ExitStack() as stack:
        stack.enter_context(joined())
        if process_number():  # only what the first process writes is kept
            output = Path(stack.enter_context(TemporaryDirectory())) / "model"
        new = stack.enter_context(open_output(output, force=force))
        with stop_on_interrupt(Terminal(stderr=True).print if process_number() else warn) as stop:
            try:
                say = Terminal(stderr=True).print
                how: dict[str, Any] = {"say": say, "show": _print_columns, "checkpoint": checkpoint}
                if streamed:
                    found, interrupted = fit_rows(files, new.path, chosen, **how)
                else:
                    found, interrupted = fit_file(file, new.path, chosen, **how)
            except TerminatedError:
                if checkpoint is None:
                    raise
                warn(f"Stopped. The same command goes on from {checkpoint}.")
                raise typer.Exit(143) from None
            except StoppedError as error:
                if not stop.signal and not launched():
                    raise
                warn(f"Interrupted: {error} Nothing is saved.")
                raise typer.Exit(128 + (stop.signal or signal.SIGTERM)) from None  # as below
        if found is not None:
            _print_metrics(found)
            following = "" if interrupted else _next_command(file, output, found, chosen)
            write_page(found, new.path, next_command=following)
        place = publish_run(new, interrupted=bool(interrupted))
        if checkpoint is not None and not interrupted and not process_number():
            forget(checkpoint)
    place = output if place == output.resolve() else place  # as it was given, unless it went elsewhere
    if found is not None:
        tell(f"Report: {place / 'report.html'}")
    tell(f"Model: {place / 'model'}")
    if not interrupted:
        tell(f"Next: {_next_command(file, place, found, chosen)}")
    if interrupted:
        kept = "" if place == output else f" {output} is as it was."
        more = "" if checkpoint is None else f" The same command goes on from {checkpoint}."
        warn(f"Interrupted: {interrupted}.{kept}{more}")
        raise typer.Exit(128 + (stop.signal or signal.SIGTERM))  # none of its own: another process was told


def predict(
    model: Model,
    files: Annotated[
        list[Path], Argument(metavar="FILE...", help="Data like those of the fit, with or without labels.")
    ],
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="File to write or replace: .csv, .jsonl or .parquet.")
    ] = Path("predictions.csv"),
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    positive: Positive = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    allow_unreadable: AllowUnreadable = False,
) -> None:
    """Predict the rows of a file: ids, the label, and the probability of each class."""
    from ecrt.runs.model_folder import check_output, write_predictions
    from ecrt.runs.streamed import files_of, is_streamed, predict_rows

    streamed = is_streamed(files)
    for file in files_of(files) if streamed else files:
        check_output(output, source=file)
    run = _open(model, class_prior, threshold, costs, positive)
    how: dict[str, Any] = {"options": _reading(encoding, decimal), "allow_unreadable": allow_unreadable}
    n_rows = write_predictions(predict_rows(run, files, **how) if streamed else run.predict(files[0], **how), output)
    tell(f"{n_rows} rows predicted. {run.decision}".rstrip())
    tell(f"Predictions: {output}")


def export(
    model: Model,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="File to write or replace: .onnx.")] = Path(
        "model.onnx"
    ),
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    positive: Positive = None,
) -> None:
    """Write a model as an ONNX file, which other programs and languages can run."""
    from ecrt.runs.model_folder import check_output

    check_output(output, [".onnx"])
    run = _open(model, class_prior, threshold, costs, positive)
    names = run.export(output)
    size = run.config.image_size
    rows = f"what ecrt.load({str(model / 'model')!r}).read_rows gives"
    images = f"float32 of shape (n, 3, {size}, {size}), RGB from -1 (0) to 1 (255)"
    if run.decision:
        tell(run.decision)
    tell(f"Input X: {images if run.of_images else rows}. Outputs: {', '.join(names)}.")
    tell(f"Model: {output}")


def evaluate(
    model: Model,
    file: Annotated[Path, Argument(help="Labelled data like those of the fit.")],
    output: Annotated[Path | None, Option("--output", "-o", metavar="DIR", help="Folder for the report.")] = None,
    class_prior: Prior = None,
    threshold: Threshold = None,
    costs: Costs = None,
    positive: Positive = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    allow_unreadable: AllowUnreadable = False,
) -> None:
    """Measure a model on labelled data it has not seen."""
    from ecrt.report import write_page
    from ecrt.runs.model_folder import open_report, publish_run

    with nullcontext() if output is None else open_report(output, "metrics.json") as new:
        run = _open(model, class_prior, threshold, costs, positive)
        options = _reading(encoding, decimal)
        found = run.evaluate(file, options=options, allow_unreadable=allow_unreadable)
        _print_metrics(found)
        if new is not None:
            found.write(new.path)
            write_page(found, new.path)
            publish_run(new)
            tell(f"Figures: {output / 'report.html' if output else ''}")


def inspect(model: Model) -> None:
    """Describe a model: data, classes, choices, diagnostics."""
    from rich.markdown import Markdown

    from ecrt.runs.model_folder import card_of

    card = card_of(model)
    Terminal().print(Markdown(card, hyperlinks=False) if len(card) <= LONGEST_CARD else card)


def compare(
    file: TableFile,
    target: ClassColumn = None,
    methods: Annotated[str, Option(metavar="NAMES", help="Names separated by commas, default, or all.")] = "default",
    metric: Annotated[str, Option(help="Metric of tuning and verdict, such as nll.")] = "balanced-accuracy",
    prior: Annotated[str, Option(help="Class prior of the metric: balanced or training.")] = "balanced",
    seeds: Annotated[int, Option(min=1, help="Splits, one for each seed.")] = 5,
    group: Annotated[str | None, Option(metavar="COL", help="Rows with the same value stay together.")] = None,
    time: Annotated[str | None, Option(metavar="COL", help="Train before, test after, by this column.")] = None,
    trials: Annotated[int | None, Option(min=1, help="Trials per method and split; 10 without --budget.")] = None,
    budget: Annotated[float | None, Option(metavar="SECONDS", help="Instead: seconds per method and split.")] = None,
    reference: Annotated[str | None, Option(metavar="NAME", help="Method to beat; by default logit-adjusted.")] = None,
    ids: Ids = None,
    drop: Drop = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    output: KeptFolder = Path("ecrt-comparison"),
    jobs: Jobs = None,
    cluster: Annotated[str | None, Option(metavar="ADDRESS", help="Dask scheduler to run on instead.")] = None,
) -> None:
    """Find the best method for a table: the same splits and tuning for all, and tests for more than noise."""
    import joblib

    from ecrt.comparison import compare, dask_cluster
    from ecrt.report import write_page
    from ecrt.runs.config import read_classes
    from ecrt.training import BarProgress

    options = _reading(encoding, decimal, na, types)
    data, y = read_classes(file, target, aside=(group, time), ids=ids or (), drop=drop or (), options=options)
    with dask_cluster(cluster), BarProgress() as progress:
        found = compare(
            data.X, y, methods=methods, metric=metric, prior=cast("PriorName", prior), seeds=seeds,
            groups=data.aside.get(group), times=data.aside.get(time), trials=trials, budget=budget,
            reference=reference, output=output, jobs=None if cluster else jobs or joblib.cpu_count(),
            title=file.name, reading=data.columns, progress=progress,
        )  # fmt: skip
    _print_comparison(found)
    aside = [name for name in (group, time) if name is not None]
    following = _command(
        "fit", file, target=target, method=_recommended(found), ids=ids, drop=[*(drop or []), *aside],
        encoding=encoding, decimal=decimal, na=na, types=types, class_prior="training" if prior == "training" else None,
    )  # fmt: skip
    tell(f"Report: {write_page(found, output, next_command=following)}")
    tell(f"Next: {following}")


def diagnose(
    file: TableFile,
    target: ClassColumn = None,
    seen: Annotated[str | None, Option(metavar="COL", help="0-1 column: was the encoder trained on the row?")] = None,
    trials: Annotated[int, Option(min=6, help="Fits to choose by.")] = 30,
    budget: Annotated[float | None, Option(metavar="SECONDS", help="Instead: seconds to choose in.")] = None,
    ids: Ids = None,
    drop: Drop = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    na: Missing = None,
    types: Types = None,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same result, unless --budget is used.")] = 0,
    output: NewFolder = Path("ecrt-diagnosis"),
) -> None:
    """Find out whether transfer helps on a table, by how much, and why."""
    from ecrt.report import diagnosis_table, recommendation_text, rich_table, write_page
    from ecrt.runs import diagnose
    from ecrt.runs.config import read_classes, warn_of_copies
    from ecrt.runs.model_folder import open_report, publish_run

    options = _reading(encoding, decimal, na, types)
    with open_report(output, "diagnosis.json") as new:
        data, y = read_classes(file, target, aside=(seen,), ids=ids or (), drop=drop or (), options=options)
        warn_of_copies(data)
        found = diagnose(
            data.X, y, seen=data.aside.get(seen), trials=None if budget else trials, budget=budget or 180.0,
            random_state=seed, title=file.name, reading=data.columns, verbose=True,
        )  # fmt: skip
        Terminal().print(rich_table(diagnosis_table(found)))
        tell(recommendation_text(found))
        aside = [] if seen is None else [seen]
        following = _command(
            "fit", file, target=target, method="logit-adjusted" if found.recommendation == "do not use" else None,
            ids=ids, drop=[*(drop or []), *aside], encoding=encoding, decimal=decimal, na=na, types=types,
        )  # fmt: skip
        found.write(new.path)
        write_page(found, new.path, next_command=following)
        publish_run(new)
    tell(f"Report: {output / 'report.html'}")
    tell(f"Next: {following}")


def embed(
    source: Annotated[Path, Argument(help="Folder of images, or a table with a text column.")],
    backbone: Annotated[str, Option(metavar="NAME", help="Network like torchvision:resnet18; a wrong name lists all.")],
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="NPZ file to write; ecrt fit reads it.")
    ] = Path("embeddings.npz"),
    text: Annotated[str | None, Option(metavar="COL", help="Column of a table that holds the text.")] = None,
    target: Annotated[str | None, Option(metavar="COL", help="Column of a table that holds the class.")] = None,
    split: Annotated[str | None, Option(help="Only this split of a collection: train, val or test.")] = None,
    rows: Annotated[int | None, Option(min=1, help="At most this many rows, drawn at random.")] = None,
    seed: Annotated[int, Option(min=0, help="Which rows are drawn.")] = 0,
    batch_size: Annotated[int, Option(min=1, help="Items that the network sees at once.")] = 64,
    threads: Annotated[int, Option(min=1, help="Threads that open images.")] = 4,
    device: Annotated[str, Option(help="cpu, cuda, or auto.")] = "auto",
    weights: Annotated[Path | None, Option(metavar="FILE", help="Its weights (.safetensors); else downloaded.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Turn images or text into features; stop it at any time, and the same command goes on."""
    from ecrt.embedding import embed, make_backbone, read_items
    from ecrt.estimators.inputs import resolve_device
    from ecrt.training import BarProgress

    if output.suffix != ".npz":
        raise InputError(f"The features are written as .npz, not {output.suffix or 'without an ending'}.")
    if output.exists() and not force:
        raise InputError(f"{output} already exists; use --force to overwrite it.")
    items = read_items(source, text=text, target=target, split=split, rows=rows, seed=seed)
    network = make_backbone(backbone, device=resolve_device(device), weights=weights)
    with BarProgress() as progress:
        found = embed(items, network, output, batch_size=batch_size, threads=threads, progress=progress)
    kept = f", {found.kept} of them from an earlier run" if found.kept else ""
    tell(f"{found.rows} rows of {found.features} features{kept}.")
    tell(f"Features: {found.file}")


def _open(
    model: Path, class_prior: str | None, threshold: float | None, costs: str | None, positive: str | None
) -> FittedRun:
    """The model of a folder, to predict under the prior and the decision that were given, or its own."""
    from ecrt.runs.config import read_costs, read_prior
    from ecrt.runs.model_folder import open_run

    given = {"class_prior": read_prior(class_prior), "threshold": threshold, "costs": read_costs(costs)}
    return open_run(model, **given, positive=positive)


def _reading(
    encoding: str | None, decimal: str | None, na: list[str] | None = None, types: list[str] | None = None
) -> ReadOptions:
    from ecrt.data import ReadOptions

    return ReadOptions(encoding=encoding, decimal=decimal, na=tuple(na or ()), types=_split_types(types))


def _split_types(types: list[str] | None) -> dict[str, str]:
    """Types of columns as they are written on the command line; a name may hold ``=``."""
    found = {}
    for entry in types or []:
        name, equals, kind = entry.rpartition("=")
        if not equals or not name:
            raise InputError(f"--types {entry}: use COL=TYPE, such as postcode=category.")
        found[name] = kind
    return found


def _print_columns(columns: Sequence[ColumnReading]) -> None:
    """Print how the columns of a table were read; notes on single columns were printed before."""
    from ecrt.data import HEADINGS, column_rows
    from ecrt.report import summary_table

    rows = [dict(zip(HEADINGS, row, strict=True)) for row in column_rows(columns, MOST_COLUMNS)]
    used = [name for name in HEADINGS[:5] if any(row[name] for row in rows)]
    if rows:
        Terminal(stderr=True).print(
            summary_table("How columns were read", [{name: row[name] for name in used} for row in rows])
        )


def _next_command(file: Path, place: Path, found: Evaluation | None, chosen: FitConfig) -> str:
    """What to type next: predict or, where ECRT gains nothing over plain logit adjustment, compare methods."""
    gains = [] if found is None or chosen.method != "ecrt" else [one["low"] for one in found.plain.values()]
    if gains and max(gains) <= 0 and file.suffix != ".npz" and not file.is_dir():
        aside = [] if chosen.weight is None else [chosen.weight]  # compare takes no weights
        return _command(
            "compare", file, target=chosen.target, ids=chosen.id, drop=[*chosen.drop, *aside],
            encoding=chosen.encoding, decimal=chosen.decimal, na=chosen.na,
            types=[f"{name}={kind}" for name, kind in chosen.types.items()],
            prior="training" if chosen.prior == "training" else None,
        )  # fmt: skip
    return f"ecrt predict {shlex.quote(str(place))} NEW_ROWS"


def _recommended(found: Comparison) -> str | None:
    """What ``ecrt fit --method`` calls the method with the best mean, of those that can be saved; None for ECRT."""
    from ecrt.comparison import METHODS

    names = [METHODS[name].fitted_as for name in found.ranking(found.prior) if name in METHODS]
    best = next((name for name in names if name is not None), "ecrt")
    return None if best == "ecrt" else best


def _command(name: str, file: Path, **options: str | Sequence[str] | None) -> str:
    """A command on the same file, read in the same way; FILE stands for what came from stdin."""
    words = ["ecrt", name, "FILE" if str(file) == "-" else str(file)]
    for option, given in options.items():
        flag = "--id" if option == "ids" else "--" + option.replace("_", "-")
        words += [word for one in ([given] if isinstance(given, str) else given or []) for word in (flag, one)]
    return shlex.join(words)


def _print_metrics(found: Evaluation) -> None:
    """Print the figures of an evaluation as a table."""
    from ecrt.report import summary_table

    groups = [name for name in found.metrics if name != "guessing"]
    names = list(found.metrics[groups[0]])
    rows: list[dict[str, object]] = [
        {"metric": name, **{group: found.metrics[group][name] for group in groups}} for name in names
    ]
    tell(f"{found.title}: {len(found.y)} test rows. {found.subject}".rstrip())
    Terminal().print(summary_table("", rows))
    if found.unknown_labels:
        named = ", ".join(f"{label} ({rows})" for label, rows in list(found.unknown_labels.items())[:8])
        errors, without = (", ".join(names) for names in found.unknown_in)
        tell(f"Labels that the model does not know: {named}. Errors in {errors}; left out of {without}.")
    if found.decided:
        title = "With the costs" if "cost_per_row" in found.decided else "With the threshold"
        title += f": figures of {found.positive!r}" if found.positive else ""
        Terminal().print(summary_table(title, [dict(found.decided)]))
    if found.plain:
        gains: list[dict[str, object]] = [{"metric": name, **figures} for name, figures in found.plain.items()]
        Terminal().print(summary_table("Beside plain logit adjustment: balanced prior, gain from low to high", gains))
    for sentence in (found.verdict, found.unlabelled, found.decision):
        if sentence:
            tell(sentence)


def _print_comparison(found: Comparison) -> None:
    from ecrt.report import comparison_table, rich_table, verdict_text

    Terminal().print(rich_table(comparison_table(found)))
    for sentence in verdict_text(found):
        tell(sentence)


for command in (demo, fit, predict, evaluate, compare, diagnose, inspect, embed, export):  # in the order of the help
    app.command(cls=Command, short_help=command.__doc__)(command)


def main() -> None:
    """Entry point."""
    run_app(app, "ecrt")
