"""Commands on a disk that is full, or that may only be read: what do they say, and what do they leave?

Run by ``tests/test_full_disks.py`` as root of a name space of its own, in which a disk in memory can be mounted:

    unshare --user --map-root-user --mount python tests/full_disks.py FOLDER [NAME ...]
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from matplotlib.figure import Figure

import ecrt
from ecrt import checkpoints, disk
from paper import __main__ as paper
from stopping import QUICK, blank_figure, call, litter, make_sources, remember_diagnoses, snapshot, stable, start, wait

SHARES = (0.15, 0.5, 0.85)
"""Of what the result takes: so large is the disk."""

REFUSED = re.compile(r"No space left on device|the disk is full|Read-only file system")
METHODS = ["--methods", "lda,weighted-logistic", "--seeds", "2", "--trials", "2", "--jobs", "1"]


@dataclass
class Task:
    """Something that writes below ``disk``.

    Attributes
    ----------
    goes_on : what is finished stays, and the same command goes on with it.
    ends : the command does its work all the same, and says what it could not write.
    """

    work: Callable[[], int]
    goes_on: bool = False
    ends: bool = False


def saved() -> int:
    try:
        ecrt.load("model/model").save("disk/out")
    except ecrt.errors.ECRTError as error:
        print(f"Error: {error}")
        return 1
    return 0


def recipe() -> int:
    before, sys.argv = sys.argv, ["paper", "toy", "--smoke", "--output", "disk/out.json"]
    try:
        paper.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def checkpointed() -> int:
    checkpoints.EVERY = 0.0
    return call(["fit", "a.csv", "--target", "kind", "-o", "elsewhere", "--checkpoint", "disk/kept", *QUICK[:2],
                 "--set", "head.kind=mlp", "--set", "head.epochs=3"])  # fmt: skip


TASKS = {
    "fit": Task(lambda: call(["fit", "a.csv", "--target", "kind", "-o", "disk/out", *QUICK])),
    "predict": Task(lambda: call(["predict", "model", "a.csv", "-o", "disk/out.csv"])),
    "predict to Parquet": Task(lambda: call(["predict", "model", "a.csv", "-o", "disk/out.parquet"])),
    "evaluate": Task(lambda: call(["evaluate", "model", "b.csv", "-o", "disk/out"])),
    "export": Task(lambda: call(["export", "model", "-o", "disk/out.onnx"])),
    "diagnose": Task(lambda: call(["diagnose", "a.csv", "--target", "kind", "--trials", "6", "-o", "disk/out"])),
    "save": Task(saved),
    "compare": Task(lambda: call(["compare", "a.csv", "--target", "kind", "-o", "disk/out", *METHODS]), goes_on=True),
    "embed": Task(
        lambda: call(["embed", "images-a", "--backbone", "pixels:40", "--batch-size", "1", "-o", "disk/out.npz"]),
        goes_on=True,
    ),
    "recipe": Task(recipe, goes_on=True),
    "checkpoint": Task(checkpointed, ends=True),
}


def mounted(folder: Path, size: int, *options: str) -> None:
    """An empty disk of so many bytes, in place of the one before."""
    unmount(folder)
    words = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", str(folder)]
    subprocess.run(words, check=True)


def unmount(folder: Path) -> None:
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def remounted(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def run(task: Task, place: Path) -> tuple[int, str]:
    """Exit status, and what was printed."""
    shutil.rmtree(place / "elsewhere", ignore_errors=True)
    status = wait(start(task.work, place))
    return status, (place.parent / f"{place.name}.log.txt").read_text()


def results(where: Path) -> dict[str, bytes]:
    """What a command has written, without the seconds that it took."""
    found = {name: content for name, content in snapshot(where).items() if name != "mine.txt"}
    return {name: re.sub(rb'"(cell_)?seconds": [0-9.]+', b"", content) for name, content in stable(found).items()}


def check(name: str, task: Task, place: Path) -> None:
    """Fill the disk to several degrees, and make it read-only; an AssertionError says what is wrong."""
    where = place / "disk"
    mounted(where, 2**28)
    status, log = run(task, place)
    assert status == 0, log
    wanted = results(where)
    used = max(2**28 - shutil.disk_usage(where).free, 2**14)
    for share in (0.0, *SHARES):
        mounted(where, max(int(share * used), 4096))
        (where / "mine.txt").write_text("kept")  # what was there before
        before = snapshot(where)
        status, log = run(task, place)
        after = snapshot(where)
        told = [line for line in log.splitlines() if REFUSED.search(line)]
        assert "Traceback" not in log, f"{name}, {share}: {log}"
        assert after["mine.txt"] == b"kept", f"{name}, {share}: {sorted(after)}"
        if status == 0 and not task.ends:  # some files are smaller than the pages of the disk
            assert share > SHARES[0], f"{name}, {share}: {log}"
            assert results(where) == wanted, f"{name}, {share}: {sorted(after)}"
            continue
        assert status == 1 or (task.ends and share > 0), f"{name}, {share}: status {status}: {log}"
        assert len(told) == 1 or (task.ends and 0 < len(told) <= 3), f"{name}, {share}: {log}"  # of each of its fits
        assert task.ends or log.count("Error") == 1, f"{name}, {share}: {log}"
        assert "disk/" in told[0], told
        hidden = [found for found in litter(where) if not found.endswith(".parts")]
        assert not hidden, f"{name}, {share}: left behind {hidden}"
        if not task.goes_on and not task.ends:
            assert after == before, f"{name}, {share}: left behind {sorted(set(after) - set(before))}"
        if task.goes_on:
            remounted(where, "size=268435456")
            status, log = run(task, place)
            assert status == 0, f"{name}, {share}, with room again: {log}"
            assert results(where) == wanted, f"{name}, {share}, with room again: {sorted(snapshot(where))}"
    mounted(where, 2**28)
    (where / "mine.txt").write_text("kept")
    remounted(where, "ro")
    before = snapshot(where)
    status, log = run(task, place)
    assert status == 1, f"{name}, read-only: status {status}: {log}"
    assert "Traceback" not in log, log
    assert len(REFUSED.findall(log)) == 1, f"{name}, read-only: {log}"
    assert snapshot(where) == before
    unmount(where)


def main() -> None:
    place = Path(sys.argv[1]).resolve() / "work"
    Figure.savefig = blank_figure
    make_sources(place)
    remember_diagnoses(place, ["a.csv"])
    with contextlib.chdir(place):
        call(["export", "model", "-o", "first.onnx"])  # here, so that all is imported before the first fork
    (place / "disk").mkdir()
    disk.LEAST_BYTES = 0  # or every command would be refused at once
    faults = []
    for name in sys.argv[2:] or TASKS:
        try:
            check(name, TASKS[name], place)
        except AssertionError as fault:
            faults.append(f"{name}, line {fault.__traceback__.tb_next.tb_lineno}: {fault}")
        print(f"{name}: {'fault' if faults and faults[-1].startswith(name) else 'as it should be'}", flush=True)
    print(*faults, sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
