"""Commands that are stopped at random moments, and commands that write to one place: what do they leave on disk?

For tests and for the benchmarks of the same kind. Commands run in processes that are forked from one which has imported
everything, and figures are blank: drawing them would take most of the time.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image

import ecrt
from ecrt import runs
from ecrt.cli import main
from ecrt.runs.config import read_classes

Snapshot = dict[str, bytes]

QUICK = ["--set", "model.demixing=linear", "--set", "head.kind=linear", "--set", "head.weight_decay=0.01"]
NOT_THE_SAME_TWICE = re.compile(r".*(report\.html|plots/.*|times\.json|seconds\.json|trial-\d+\.json)")
"""Files that hold times, or figures with random names."""

LITTER = re.compile(r"\.ecrt-.*|\..*\.ecrt-(new|old)|.*\.parts")


NOT_BEGUN = 71
"""Status of a process that was stopped before its work had begun."""


@dataclass
class Job:
    """A command that writes over what an earlier one has written.

    Attributes
    ----------
    words : the command, by the name of its source: the old one, and the new one.
    output : what it writes.
    again : whether the same command goes on with what is there, and the new source is not used.
    """

    name: str
    words: Callable[[str], list[str]]
    output: str
    again: bool = False
    old: Path = field(default=Path(), init=False)
    new: Snapshot = field(default_factory=dict, init=False)
    seconds: float = field(default=0.0, init=False)


def make_jobs() -> list[Job]:
    methods = ["--methods", "lda,weighted-logistic", "--seeds", "2", "--trials", "2", "--jobs", "1"]
    return [
        Job("fit", lambda source: ["fit", f"{source}.csv", "--target", "kind", "-o", "out", *QUICK], "out"),
        Job("predict", lambda source: ["predict", "model", f"{source}.csv", "-o", "out.csv"], "out.csv"),
        Job("compare", lambda _: ["compare", "a.csv", "--target", "kind", "-o", "out", *methods], "out", again=True),
        Job("diagnose", lambda s: ["diagnose", f"{s}.csv", "--target", "kind", "--trials", "6", "-o", "out"], "out"),
        Job("embed", lambda s: ["embed", f"images-{s}", "--backbone", "pixels:4", "--batch-size", "1", "-o", "out.npz",
                                "--force"], "out.npz"),
    ]  # fmt: skip


def blank_figure(self: Figure, file: io.StringIO, **options: Any) -> None:
    """In place of ``Figure.savefig``."""
    file.write('<svg viewBox="0 0 1 1"></svg>')


def make_sources(folder: Path) -> None:
    """Two tables, two folders of images, and a model."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        y = np.repeat([0, 1, 2], [40, 24, 10])
        table = pd.DataFrame(rng.normal(size=(len(y), 3)) + y[:, None] / (1 + seed), columns=["u", "v", "w"])
        table.assign(kind=np.array(["x", "y", "z"])[y]).to_csv(folder / f"{name}.csv", index=False)
        for number in range(24):
            place = folder / f"images-{name}" / ("dark" if number % 2 else "light")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (6, 6, 3), dtype=np.uint8)).save(place / f"{number:02d}.png")
    with contextlib.chdir(folder), open(os.devnull, "w") as nothing:
        words = ["fit", "a.csv", "--target", "kind", "-o", "model", *QUICK]
        with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            call(words)  # here, so that all is imported before the first fork
    signal.signal(signal.SIGINT, signal.default_int_handler)


def remember_diagnoses(sources: Path, names: Sequence[str] = ("a.csv", "b.csv")) -> None:
    """Let ``diagnose`` take what it finds on these tables from memory."""
    known = {}
    for name in names:
        data, y = read_classes(sources / name, "kind")
        known[name] = runs.diagnose(data.X, y, trials=6, random_state=0, title=name)

    def remembered(*data: Any, title: str, **options: Any) -> Any:
        time.sleep(0.2)
        return known[title]

    runs.diagnose = remembered


def call(words: list[str]) -> int:
    """Run a command in this process; its exit status."""
    before = sys.argv
    sys.argv = ["ecrt", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def start(work: Callable[[], int], folder: Path, log: str = "log.txt") -> int:
    """Begin some work in a process of its own, in a folder; its id."""
    child = os.fork()
    if child:
        return child
    status = NOT_BEGUN
    Figure.savefig = blank_figure
    try:
        os.setsid()
        os.chdir(folder)
        descriptor = os.open(f"../{folder.name}.{log}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = work()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def wait(child: int, seconds: float = 600.0) -> int:
    """Exit status of a process, negative for a signal; one that does not end is killed, and has none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the command does not end")


def snapshot(place: Path) -> Snapshot:
    """All files of a folder, or a file, by name."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    return {file.relative_to(place).as_posix(): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def stable(files: Snapshot) -> Snapshot:
    """Files that two runs of a command write alike; of the others, that they are there."""
    return {name: b"" if NOT_THE_SAME_TWICE.fullmatch(name) else content for name, content in files.items()}


def without_litter(files: Snapshot) -> Snapshot:
    """What the user sees: no hidden, unfinished file."""
    return {name: content for name, content in files.items() if not LITTER.fullmatch(Path(name).name)}


def litter(folder: Path) -> list[str]:
    """What an unfinished command has left."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if LITTER.fullmatch(path.name))


def prepare(job: Job, sources: Path, root: Path) -> None:
    """Make what there is before the command, and what there should be after it."""
    job.old = root / f"{job.name}-old"
    shutil.copytree(sources, job.old)
    assert wait(start(lambda: call(job.words("a")), job.old)) == 0
    if job.again:  # of which a part was done
        for name in ("results.json", "times.json", "report.html"):
            (job.old / job.output / name).unlink()
        shutil.rmtree(next((job.old / job.output / "runs").glob("*/seed-1")))
    whole = root / f"{job.name}-new"
    shutil.copytree(job.old, whole)
    began = time.perf_counter()
    assert wait(start(lambda: call(job.words("b")), whole)) == 0
    job.seconds = time.perf_counter() - began
    job.new = stable(snapshot(whole / job.output))
    assert job.new != stable(snapshot(job.old / job.output))
    assert not litter(whole)


def stop_once(job: Job, root: Path, signum: int, rng: random.Random) -> str:
    """Stop a command at a random moment; what it left: "old", "new", "beside", or an AssertionError."""
    folder = root / "stopped"
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(job.old, folder)
        before = snapshot(folder / job.output)
        log_file = root / "stopped.log.txt"
        log_file.write_text("")  # the last one's, which a process that is stopped before its work has begun leaves
        child, began = start(lambda: call(job.words("b")), folder), time.perf_counter()
        time.sleep(rng.uniform(0, 1.1 * job.seconds))
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            wait(child)  # it was faster: another try counts, and a shorter time is drawn from
            job.seconds = min(job.seconds, time.perf_counter() - began)
            continue
        os.kill(child, signum)
        status = wait(child)
        log = log_file.read_text()
        if status != NOT_BEGUN or log:
            break
    after = without_litter(snapshot(folder / job.output))
    assert status in (0, -signum, 128 + signum), f"{job.name}: exit status {status}: {log}"
    assert "Traceback" not in log or "Exception ignored in" in log, log  # by Python, in a destructor
    if job.again:
        kept = {name: content for name, content in before.items() if after.get(name) == content}
        assert kept == before, f"{job.name}: finished work was changed: {sorted(set(before) - set(kept))}"
        outcome = "new" if stable(after) == job.new else "old"
    elif after == before:
        outcome = "old"
    else:
        assert stable(after) == job.new, f"{job.name}: neither old nor new: {sorted(after)}"
        outcome = "new"
    for place in folder.glob("*.interrupted"):
        assert place.name == "out.interrupted"
        assert wait(start(lambda: call(["inspect", "out.interrupted"]), folder)) == 0
        outcome = "beside"
        shutil.rmtree(place)
    if rng.random() < 0.2 or job.again:  # the next command cleans up, and ends as if nothing had happened
        assert wait(start(lambda: call(job.words("b")), folder)) == 0
        assert stable(snapshot(folder / job.output)) == job.new
        assert not litter(folder), litter(folder)
    return outcome


def save_model(source: str) -> int:
    """Save one of two models to one folder."""
    ecrt.load(f"model-{source}").save("out")
    return 0


@dataclass
class Pair:
    """Work that two processes do at the same time, each with a source of its own, and what each alone would leave."""

    name: str
    work: Callable[[str], int]
    output: str
    alone: list[Snapshot] = field(default_factory=list)


def make_pairs(sources: Path, root: Path) -> list[Pair]:
    pairs = [Pair("save", save_model, "out")]
    for job in make_jobs():
        extra = {"fit": ["--set", "test_size=0"], "compare": ["--methods", "lda", "--seeds", "1"]}.get(job.name, [])
        if job.name != "diagnose":
            pairs.append(
                Pair(job.name, lambda source, job=job, extra=extra: call(job.words(source) + extra), job.output)
            )
    for name in "ab":
        words = ["fit", f"{name}.csv", "--target", "kind", "-o", f"fit-{name}", *QUICK]
        assert wait(start(lambda words=words: call(words), sources)) == 0
        shutil.copytree(sources / f"fit-{name}" / "model", sources / f"model-{name}")
        shutil.rmtree(sources / f"fit-{name}")
    for pair in pairs:
        for name in "ab":
            folder = root / f"{pair.name}-{name}"
            shutil.copytree(sources, folder)
            assert wait(start(lambda pair=pair, name=name: pair.work(name), folder)) == 0
            pair.alone.append(stable(snapshot(folder / pair.output)))
    return pairs


def run_pair(pair: Pair, sources: Path, root: Path, rng: random.Random) -> tuple[str, int]:
    """Whose result is there, and how many of the two were refused; anything else is an AssertionError."""
    folder = root / "meeting"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sources, folder)
    children = []
    for name in rng.sample("ab", 2):
        children.append(start(lambda name=name: pair.work(name), folder, f"{name}.txt"))
        time.sleep(rng.choice([0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
    statuses = [wait(child) for child in children]
    logs = [(root / f"meeting.{name}.txt").read_text() for name in "ab"]
    refused = [log for log in logs if "Another command is writing to" in log]
    assert sorted(statuses) == ([0, 1] if refused else [0, 0]), (statuses, logs)
    assert len(refused) < 2, logs
    assert all(log.count("Error") <= 1 and "Traceback" not in log for log in logs), logs
    found = stable(snapshot(folder / pair.output))
    assert found in pair.alone, f"{pair.name}: mixed: {sorted(found)}"
    assert not litter(folder), litter(folder)
    if pair.name in ("save", "fit"):
        ecrt.load(folder / pair.output / ("model" if pair.name == "fit" else ""))
    return "ab"[pair.alone.index(found)], len(refused)
