"""Fits that processes share under torchrun: the same curves, one writer, and clear ends."""

import json
import os
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import distributed_jobs as jobs
from ecrt import distributed, load
from ecrt.cli import app
from ecrt.distributed import Span
from ecrt.errors import InputError, LostProcessError, StoppedError
from ecrt.moments import Moments

JOBS = Path(jobs.__file__)
OTHERS = ("linear head", "linear head, gradients written out", "images read one by one")


def test_the_page_says_what_was_measured():
    root = JOBS.parent.parent
    script = runpy.run_path(str(root / "benchmarks" / "bench_distributed.py"), run_name="read")
    found = json.loads((root / "results" / "bench_distributed.json").read_text())
    page = (root / "docs" / "scale.md").read_text(encoding="utf-8")
    assert script["page"](found) in page, "run: python -m benchmarks.bench_distributed --page"
    assert len(found["curves"]) == 6
    assert all(of["difference_over_50_steps"] <= 1e-5 and of["steps"] >= 50 for of in found["curves"].values())


def torchrun(*words, check=True, processes=2):
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    ended = subprocess.run(
        [*command, "--nproc-per-node", str(processes), *map(str, words)], capture_output=True, text=True, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(JOBS.parent), *sys.path])},
    )  # fmt: skip
    assert not check or ended.returncode == 0, ended.stderr
    return ended


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A job that ended because one of its processes was killed, and its folder."""
    folder = tmp_path_factory.mktemp("ranks")
    return torchrun(JOBS, "killed", folder, check=False), folder


@pytest.fixture(scope="module")
def shared(killed):
    """What two processes found afterwards, on each of them."""
    folder = killed[1]
    assert not list(folder.glob("*.json"))
    torchrun(JOBS, "ranks", folder)
    return [json.loads((folder / f"ranks-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone():
    """The same fits by this process."""
    return jobs.curves()


def test_parts_follow_one_another_and_are_all_rows():
    for total in (4, 5, 63, 64):
        parts = [Span.of_process(number, 4, total) for number in range(4)]
        assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
        assert (parts[0].start, parts[-1].stop) == (0, total)
        assert sum(part.share for part in parts) == pytest.approx(1)


def test_alone_nothing_is_shared(monkeypatch):
    monkeypatch.setenv("RANK", "3")  # of some other launcher
    with distributed.joined():
        assert not distributed.active()
    assert distributed.rank() == 0
    assert distributed.mine([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert distributed.any_of(False, True) == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*jobs.FITS, *jobs.MANY_CLASSES, *jobs.WIDE_NETWORKS, *jobs.STREAMED, *OTHERS])
def test_two_processes_train_as_one(shared, alone, name):
    two, one = shared[0]["curves"][name], alone[name]
    assert len(two["losses"]) == len(one["losses"])
    if name not in (*OTHERS, *jobs.STREAMED):
        assert len(one["losses"]) >= 50
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(two["answers"], one["answers"], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_every_process_has_the_same_result(shared):
    own = ("drawn by each", "normalised")
    first, second = ({name: found for name, found in one.items() if name not in own} for one in shared)
    assert first == second


@pytest.mark.slow
def test_each_process_draws_for_its_own_rows(shared):
    for first, second in zip(*(one["drawn by each"] for one in shared), strict=True):
        assert first != second
        assert 0.3 < np.mean(np.array(first) > 0) < 0.7


@pytest.mark.slow
def test_tables_of_many_classes_are_shared_out(shared):
    assert shared[0]["shared out"] == ["MLP head", "MLP head, all rows", "de-mixing"]


@pytest.mark.slow
def test_moments_of_all_processes_are_those_of_all_rows(shared):
    whole = Moments.of(1e8 + jobs.WIDE, jobs.Y, 5, np.arange(5) < 3)
    for name, value in vars(whole).items():
        scale = np.abs(value.astype(float)).max()
        np.testing.assert_allclose(shared[0]["moments"][name], value, rtol=0, atol=1e-9 * scale, err_msg=name)
    np.testing.assert_allclose(shared[0]["moments"]["mean_md"], whole.mean_md, rtol=2e-16, atol=0)


@pytest.mark.slow
def test_batches_far_from_zero_are_normalised_as_a_whole(shared):
    for place, whole in enumerate(jobs.normalised(range(9))):
        rows = shared[0]["normalised"][place] + shared[1]["normalised"][place]
        np.testing.assert_allclose(rows, whole.numpy(), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_processes_agree_or_are_told(shared):
    assert "Process 1 fits with another X than process 0" in shared[1]["differs"]
    assert shared[1]["refused"] == "Only the first process sees this."
    assert shared[0]["wishes"] == [True, False]
    assert shared[1]["agreed"] == 7.0


@pytest.mark.slow
def test_a_killed_process_ends_the_job_which_then_goes_on(killed, shared):
    assert killed[0].returncode != 0
    assert f"process 0: {LostProcessError('')}" in killed[0].stderr
    whole, resumed = shared[0]["whole"], [one["resumed"] for one in shared]
    assert resumed[0] == resumed[1]
    assert resumed[0]["answers"] == whole["answers"]
    assert resumed[0]["steps"] <= whole["steps"] - 39


@pytest.mark.slow
def test_sigterm_to_one_process_ends_all_which_then_go_on(shared):
    whole, terminated = shared[0]["whole"], shared[0]["terminated"]
    assert terminated["answers"] == whole["answers"]
    assert terminated["steps"] <= whole["steps"] - 39


@pytest.mark.slow
def test_the_command_under_torchrun(tmp_path):
    table = pd.DataFrame(jobs.X[:300, :5], columns=list("abcde")).assign(y=jobs.Y[:300])
    table.to_csv(tmp_path / "table.csv", index=False)
    settings = "model.demixing=linear model.augmentation=none head.kind=mlp head.epochs=3 head.dropout=0"
    options = [word for one in settings.split() for word in ("--set", one)] + ["--seed", "0"]
    fit = ["-m", "ecrt", "fit", tmp_path / "table.csv", "--target", "y", *options]
    two = torchrun(*fit, "--output", tmp_path / "two", "--checkpoint", tmp_path / "kept")
    assert two.stdout.count("Model: ") == 1
    assert two.stderr.count("Fitting on all 300 rows.") == 1
    assert not (tmp_path / "kept").exists()
    assert CliRunner().invoke(app, [*map(str, fit[2:]), "--output", str(tmp_path / "one")]).exit_code == 0
    answers = [load(tmp_path / name / "model").predict_proba(table.drop(columns="y")) for name in ("one", "two")]
    np.testing.assert_allclose(*answers, rtol=0, atol=1e-5)


def test_processes_that_torchrun_has_restarted_are_told_what_to_do(monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "job", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="leave out --max-restarts"), distributed.joined():
        pass


def test_a_fit_that_another_process_was_told_to_end_says_so_and_how_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("ecrt.runs.model_folder.fit_file", lambda *_, **__: (None, "the fit was interrupted"))
    words = ["fit", "table.csv", "--target", "y", "--output", str(tmp_path / "new"), "--checkpoint", "kept"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 143
    assert "the fit was interrupted. The same command goes on from kept." in " ".join(found.stderr.split())


def test_a_fit_that_another_process_was_told_to_end_before_anything_was_finished_says_so(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise StoppedError("encoder")

    monkeypatch.setattr("ecrt.runs.model_folder.fit_file", stopped)
    monkeypatch.setattr(distributed, "launched", lambda: True)
    monkeypatch.setattr(distributed, "joined", nullcontext)
    monkeypatch.setenv("RANK", "0")
    found = CliRunner().invoke(app, ["fit", "table.csv", "--target", "y", "--output", str(tmp_path / "new")])
    assert found.exit_code == 143
    assert "Interrupted: encoder: stopped before anything was finished. Nothing is saved." in found.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "model", "table.csv"], "ecrt predict is not shared between processes: run it without torchrun."),
        (["fit", "-", "--target", "y"], "give the name of a file, not -"),
    ],
)
def test_commands_that_processes_cannot_share_are_refused(monkeypatch, words, message):
    for name, value in {"TORCHELASTIC_RUN_ID": "job", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1
    assert "Process 1: Error: " in found.stderr
    assert message in " ".join(found.stderr.split())
