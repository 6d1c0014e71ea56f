"""Whatever stops a command, and whoever else writes, what is on disk is the old result or the new one, whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from torch import nn
from typer.testing import CliRunner

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, cli, disk
from ecrt.cli import app
from ecrt.disk import NewFolder, locked, recover, remove_litter, replacing, write_json, write_text
from ecrt.errors import InputError, StoppedError
from ecrt.training import IndexBatches, TrainingConfig, stop_on_interrupt, torch_generator, train
from stopping import QUICK, blank_figure, make_jobs, make_pairs, make_sources, prepare, run_pair, snapshot, stop_once

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_is_old_or_new_never_half(tmp_path):
    file = tmp_path / "a.json"
    write_json(file, {"n": 1})

    def fail(unfinished):
        unfinished.write(b"{")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"Cannot write .*a\.json: No space left on device"), replacing(file) as half:
        fail(half)
    assert file.read_text() == '{\n "n": 1\n}\n'
    assert [part.name for part in tmp_path.iterdir()] == ["a.json"]


def test_files_have_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_litter_goes_but_not_what_is_being_written(tmp_path):
    (tmp_path / ".ecrt-0123456789abcdef.tmp").write_text("left by a killed writer")
    (tmp_path / ".ecrt-notes.tmp").write_text("the user's")
    with replacing(tmp_path / "a.txt") as unfinished:
        remove_litter(tmp_path)
        unfinished.write(b"a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".ecrt-notes.tmp", "a.txt"]


# --- folders ------------------------------------------------------------------------------------------------------


def old_folder(place: Path) -> Path:
    for name in ("ours.txt", "mine.txt", "mine/more.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("old")
    return place


@pytest.mark.parametrize("at_once", [True, False])
def test_a_new_folder_takes_the_place_of_the_old_and_keeps_what_is_the_users(tmp_path, monkeypatch, at_once):
    if not at_once:
        monkeypatch.setattr(disk, "_exchange_names", lambda first, second: False)
    with NewFolder(old_folder(tmp_path / "run"), own=["ours.txt", "gone.txt"]) as new:
        (new.path / "ours.txt").write_text("new")
        assert (tmp_path / "run" / "ours.txt").read_text() == "old"
        with pytest.raises(InputError, match=r"writing to \S*/run\."), NewFolder(tmp_path / "run", own=[]):
            pass
        new.publish()
    assert snapshot(tmp_path / "run") == {"ours.txt": b"new", "mine.txt": b"old", "mine/more.txt": b"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_was_not_published_leaves_nothing(tmp_path):
    def interrupted(new):
        (new.path / "ours.txt").write_text("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), NewFolder(old_folder(tmp_path / "run"), own=["ours.txt"]) as new:
        interrupted(new)
    assert snapshot(tmp_path / "run")["ours.txt"] == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_without_an_exchange_the_next_command_puts_the_old_folder_back(tmp_path):
    run = old_folder(tmp_path / "run")
    run.rename(tmp_path / ".run.ecrt-old")  # as a command leaves it that is killed between two renames
    (tmp_path / ".run.ecrt-new").mkdir()
    recover(run)
    assert snapshot(run)["ours.txt"] == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_folders_that_cannot_be_replaced_are_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="the current folder"), NewFolder(".", own=[]):
        pass
    (tmp_path / "file").touch()
    for place in ("file", "file/run"):
        with pytest.raises(InputError), NewFolder(place, own=[]):
            pass
    with pytest.raises(InputError, match="mounted"), NewFolder("/proc", own=[]):
        pass


# --- estimators ---------------------------------------------------------------------------------------------------


FITTED = {
    "classifier": (ECRTClassifier(demixing="linear", head="linear", random_state=0), "ecrt.estimators.classifier"),
    "regressor": (ECRTRegressor(demixing="linear", head="linear", random_state=0), "ecrt.estimators.regressor"),
    "transformer": (ECRTTransformer(random_state=0), "ecrt.estimators.transformer"),
    "baseline": (BaselineClassifier(random_state=0), "ecrt.rivals.base"),
}
STAGES = {
    "classifier": ["array_items", "transfer", "ECRTClassifier._keep_examples"],
    "regressor": ["quantile_bins", "regress", "ECRTRegressor._keep_examples"],
    "transformer": ["assign_roles", "demix", "diagnose_sources"],
    "baseline": ["minority_mask", "BaselineClassifier._encode", "transfer"],
}


@pytest.mark.parametrize("kind", list(FITTED))
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(kind, monkeypatch):
    model, module = FITTED[kind]
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.repeat([0, 1, 2], 20)
    X += y[:, None]
    ask = "transform" if kind == "transformer" else "predict"
    for fitted in (False, True):
        if fitted:
            model.fit(X, y)
            before, said = dict(vars(model)), getattr(model, ask)(X)
        for stage in STAGES[kind]:
            with monkeypatch.context() as patch:

                def fail(*args, **kwargs):
                    raise KeyboardInterrupt

                place = "ecrt.estimators.base" if stage == "array_items" else module
                patch.setattr(f"{place}.{stage}", fail)
                with pytest.raises(KeyboardInterrupt):
                    model.fit(np.c_[X, X], y + 5)
            if fitted:
                assert vars(model).keys() == before.keys()
                assert all(vars(model)[name] is value for name, value in before.items())
                np.testing.assert_array_equal(getattr(model, ask)(X), said)
            else:
                with pytest.raises(NotFittedError):
                    getattr(model, ask)(X)


def test_classes_that_could_not_be_added_leave_the_old_ones(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(rng.normal(size=(60, 3)) + y[:, None], y)
    before = dict(vars(clf))

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("ecrt.estimators.classifier._with_new", fail)
    with pytest.raises(KeyboardInterrupt):
        clf.add_classes(rng.normal(size=(4, 3)) + 5, np.full(4, 2))
    assert all(vars(clf)[name] is value for name, value in before.items())


# --- interrupts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stop_at", "held_out", "kept"), [(2, True, None), (7, True, 1), (7, False, None)])
def test_a_stage_that_is_stopped_keeps_a_finished_state_or_none(stop_at, held_out, kept):
    module = nn.Linear(1, 1)
    batches = IndexBatches(40, 10, torch_generator(np.random.default_rng(0)))  # four steps an epoch
    said: list[str] = []
    steps = 0

    def loss(batch):
        nonlocal steps
        steps += 1
        if steps == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        return (module.weight**2).sum()

    def run(**options):
        return train(
            module, loss, batches, (lambda: float(module.weight**2)) if held_out else None, TrainingConfig(epochs=5),
            stage="test", **options,
        )  # fmt: skip

    with stop_on_interrupt(said.append) as stop:
        if kept is None:
            with pytest.raises(StoppedError, match="before anything was finished"):
                run()
        else:
            assert len(run().held_out_loss) == kept
        assert stop.signal == signal.SIGINT
        steps = stop_at
        with pytest.raises(StoppedError):  # nothing that takes long begins after it
            run()
        assert len(run(to_the_end=True).train_loss) == 5
    assert len(said) == 1


@pytest.fixture(autouse=True)
def kept_handler():
    """Of Ctrl-C, which a command does not put back."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole") / "sources"
    make_sources(place)
    return place


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fit_never_replaces_an_older_model(sources, tmp_path, monkeypatch, signum):
    monkeypatch.chdir(sources)
    words = ["fit", "b.csv", "--target", "kind", *QUICK]
    before = snapshot(sources / "model")

    def stopped(*args, **kwargs):
        os.kill(os.getpid(), signum)
        time.sleep(10)

    monkeypatch.setattr(ECRTClassifier, "refit", stopped)
    monkeypatch.setattr(Figure, "savefig", blank_figure)
    result = invoke(*words, "-o", "model")
    assert result.exit_code == 128 + signum, result.output
    assert "model is as it was" in " ".join(result.stderr.split())
    assert snapshot(sources / "model") == before
    other = sources / "model.interrupted"
    said = "the fit on all rows was interrupted"
    assert said in (other / "report.html").read_text()
    assert said in (other / "model" / "MODEL_CARD.md").read_text()
    assert json.loads((other / "run.json").read_text())["interrupted"]
    assert invoke("predict", other, "b.csv", "-o", tmp_path / "p.csv").exit_code == 0
    shutil.rmtree(other)
    assert invoke(*words, "-o", tmp_path / "first").exit_code == 128 + signum  # nothing was there: it is kept
    assert (tmp_path / "first" / "model" / "model.json").is_file()


def test_the_status_after_sigterm_is_its_own_before_a_command_has_begun(monkeypatch):
    def app(prog_name):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except KeyboardInterrupt:
            raise SystemExit(130) from None  # as typer does

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit, match="143"):
        cli.main()


AFTER_THE_COMMAND = """
import os, signal, sys
from ecrt import cli

def app(prog_name):
    raise SystemExit(0)

def handle_signals(handler, set_handlers=cli._handle_signals):
    if handler == signal.SIG_DFL and {early}:
        os.kill(os.getpid(), signal.{name})
    set_handlers(handler)

cli.app, cli._handle_signals = app, handle_signals
try:
    cli.main()
finally:
    if not {early}:
        os.kill(os.getpid(), signal.{name})
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_command_ends_the_process_without_a_traceback(name):
    signum = signal.Signals[name]
    for early, status, said in ((True, 128 + signum, "Interrupted."), (False, -signum, "")):
        script = AFTER_THE_COMMAND.format(name=name, early=early)
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr.strip()) == (status, said)


def test_an_interrupt_that_a_library_takes_for_its_own_error_is_told_as_one(monkeypatch, capsys):
    def read(*args, **kwargs):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise InputError("the file cannot be read") from None

    monkeypatch.setattr("ecrt.runs.model_folder.card_of", read)
    monkeypatch.setattr(sys, "argv", ["ecrt", "inspect", "model"])
    with pytest.raises(SystemExit, match="130"):
        cli.main()
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_a_signal_while_something_is_written_still_stops():
    def say(line):
        raise RuntimeError("reentrant call")

    with stop_on_interrupt(say) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.signal == signal.SIGTERM


def test_nothing_finished_is_nothing_saved(sources, tmp_path, monkeypatch):
    def stopped(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        raise StoppedError("encoder")

    monkeypatch.setattr("ecrt.runs.model_folder._fit", stopped)
    result = invoke("fit", sources / "b.csv", "--target", "kind", "-o", tmp_path / "run")
    assert result.exit_code == 130
    assert "Nothing is saved" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def other_run(sources, tmp_path_factory):
    place = tmp_path_factory.mktemp("other") / "run"
    assert invoke("fit", sources / "b.csv", "--target", "kind", "-o", place, "--seed", 1, *QUICK).exit_code == 0
    return place


@pytest.mark.parametrize("name", ["config.yaml", "target.json", "model/model.json", "metrics.json"])
def test_parts_of_another_run_are_refused_by_name(sources, other_run, tmp_path, name):
    shutil.copytree(sources / "model", tmp_path / "run")
    target = tmp_path / "run" / name
    target.write_bytes((other_run / name).read_bytes() + (b" " if name == "target.json" else b""))
    for words in (["predict"], ["evaluate"], ["inspect"]):
        files = [] if words == ["inspect"] else [sources / "a.csv"]
        result = invoke(*words, tmp_path / "run", *files, *(["-o", tmp_path / "p.csv"] if words == ["predict"] else []))
        assert result.exit_code == 1
        assert Path(name).name in result.stderr
    assert not (tmp_path / "p.csv").exists()


# --- stopped and concurrent commands, some of what benchmarks/kill_commands.py and concurrent_writers.py try -------


@needs_fork
@pytest.mark.parametrize("name", ["fit", "predict", "compare", "embed"])
def test_commands_that_are_stopped_leave_the_old_or_the_new(sources, tmp_path, name):
    job = next(job for job in make_jobs() if job.name == name)
    prepare(job, sources, tmp_path)
    rng = random.Random(0)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        for _ in range(1 if name in ("fit", "compare") else 3):
            stop_once(job, tmp_path, signum, rng)


@needs_fork
def test_commands_that_write_to_one_place_do_not_mix(sources, tmp_path):
    rng = random.Random(0)
    for pair in make_pairs(sources, tmp_path):
        for _ in range(2 if pair.name in ("fit", "compare") else 5):
            run_pair(pair, sources, tmp_path, rng)


def test_a_folder_is_held_by_one_writer(tmp_path):
    out = tmp_path / "out"
    with locked(out, wait=False), pytest.raises(InputError, match="Another command"), locked(out, wait=False):
        pass
    assert list((tmp_path / "out").iterdir()) == []


HELD = {
    "fit": (["fit", "a.csv", "--target", "kind", "-o", "out", *QUICK], "out"),
    "fit with a checkpoint": (["fit", "a.csv", "--target", "kind", "-o", "new", "--checkpoint", "out"], "out/fit"),
    "evaluate": (["evaluate", "model", "b.csv", "-o", "out"], "out"),
    "diagnose": (["diagnose", "a.csv", "--target", "kind", "-o", "out"], "out"),
    "compare": (["compare", "a.csv", "--target", "kind", "--methods", "lda", "--jobs", "1", "-o", "out"], "out"),
    "embed": (["embed", "images-a", "--backbone", "pixels:4", "-o", "out.npz"], "out.npz.parts"),
}


@pytest.mark.parametrize("name", HELD)
def test_a_second_command_is_refused_before_its_work(sources, tmp_path, monkeypatch, name):
    words, place = HELD[name]
    shutil.copytree(sources, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    for step in (ECRTClassifier, BaselineClassifier):
        monkeypatch.setattr(step, "_learn_rows", lambda *args: pytest.fail("it has begun"))
    with locked(place, wait=False):
        before = snapshot(Path())
        result = invoke(*words)
        assert snapshot(Path()) == before
    assert result.exit_code == 1, result.output
    assert result.stderr.count("Another command is writing to") == 1, result.stderr
