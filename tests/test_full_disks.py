"""On a full or read-only disk: one clear error, nothing half-written, and the same command goes on."""

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ecrt import ECRTClassifier, checkpoints, disk, load
from ecrt.errors import InputError

ALONE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    """Whether this system lets us mount a disk in a name space of our own."""
    try:
        words = [*ALONE, "mount", "-t", "tmpfs", "-o", "size=8192", "tmpfs", str(folder)]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
def test_every_command_on_a_full_and_on_a_read_only_disk(tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("no disk can be mounted here")
    script = Path(__file__).parent / "full_disks.py"
    done = subprocess.run(
        [*ALONE, sys.executable, str(script), str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count("as it should be") == 11


@pytest.fixture
def full(monkeypatch):
    """The disk is full, or the user's share of it, after so many files."""

    def after(files, number=errno.ENOSPC):
        left = [files]
        sync = disk.os.fsync

        def fail(descriptor):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(number, "No space left on device" if number == errno.ENOSPC else "Disk quota exceeded")
            sync(descriptor)

        monkeypatch.setattr(disk.os, "fsync", fail)

    return after


def some_model():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    return ECRTClassifier(demixing="none", head="linear", random_state=0).fit(rng.normal(size=(60, 2)) + y[:, None], y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_model_is_saved_whole_or_not_at_all(number, tmp_path, full):
    clf = some_model()
    full(0, number)
    with pytest.raises(InputError, match=r"Cannot write .*(No space left|Disk quota exceeded)"):
        clf.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_that_was_there_stays(tmp_path, full, monkeypatch):
    clf = some_model()
    clf.save(tmp_path / "model")
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    full(0)
    with pytest.raises(InputError, match="No space left"):
        clf.set_params(class_prior="training").save(tmp_path / "model")
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before
    monkeypatch.undo()
    assert load(tmp_path / "model").class_prior == "balanced"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_later_step_goes_on_without_a_checkpoint(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 2)) + y[:, None]
    clf = ECRTClassifier(demixing="none", head="linear", random_state=0, checkpoint=tmp_path / "kept").fit(X, y)

    def full(file, content):
        raise InputError(f"Cannot write {file}: No space left on device.") from OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(checkpoints, "write_json", full)
    with pytest.warns(UserWarning, match="The fit goes on, but its checkpoint is not up to date.*No space left"):
        clf.refit(X, y)
    assert not (tmp_path / "kept" / "refit").exists()
    with pytest.raises(InputError, match="No space left"):  # before anything was done
        clf.set_params(checkpoint=tmp_path / "other").fit(X, y)
