"""Folders of ``ecrt fit`` with one hostile file in each, for test_hostile.py and benchmarks/fuzz_model_files.py."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
import shutil
import socket
import struct
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from ecrt.cli import app
from ecrt.disk import MOST_JSON_BYTES
from ecrt.errors import ECRTError
from ecrt.io.model_files import JSON_NAME, sealed, tensor_name
from ecrt.runs.model_folder import MOST_FILES, TARGET_FILE, seal_run
from model_mutations import HOSTILE, Findings, damage, deep, inside, nearby, places

Craft = Callable[[Path], None]
HUGE = 3 * 2**30
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[/b][bold]:smile:\r"
SETTINGS = ["--set", "model.demixing=linear", "--set", "model.head=linear"]
TARGETS = {"classes": ["--target", "kind"], "labels": ["--target", "tags"], "numbers": ["--target", "price"]}


def fitted_runs(folder: Path) -> dict[str, Path]:
    """A run of each task on a small table."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["a", "b", "c"], [50, 30, 20])
    table = pd.DataFrame(rng.normal(size=(100, 3)), columns=["x", "y", "z"])
    table["x"] += pd.Series(kind).map({"a": 0.0, "b": 2.0, "c": -2.0})
    table["colour"] = np.where(rng.random(100) < 0.5, "red", "blue")
    tables = {
        "classes": table.assign(kind=kind),
        "labels": table.assign(tags=np.where(rng.random(100) < 0.5, "u;v", np.where(table["x"] > 0, "v;w", "w"))),
        "numbers": table.assign(price=np.exp(table["x"]).round(3)),
    }
    for name, rows in tables.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
        task = ["--task", "multilabel"] if name == "labels" else []
        run("fit", folder / f"{name}.csv", *TARGETS[name], *task, *SETTINGS, "-o", folder / name)
    return {name: folder / name for name in tables}


def run(*arguments: str | Path) -> str:
    """What the command prints; its errors are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, ["--debug", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


# --- what may stand in the place of a file ----------------------------------------------------------


def kinds_of_file() -> Iterator[tuple[str, Craft]]:
    """Whatever the file is."""

    def put(content: bytes) -> Craft:
        return lambda file: replaced(file).write_bytes(content) and None

    def link(target: str) -> Craft:
        return lambda file: replaced(file).symlink_to(target)

    def elsewhere(file: Path) -> None:
        kept = next(parent.parent for parent in file.parents if parent.name == "run") / f"kept-{file.name}"
        shutil.move(file, kept)
        file.symlink_to(kept)

    def sparse(file: Path) -> None:
        with replaced(file).open("wb") as out:
            out.truncate(HUGE)

    def listening(file: Path) -> None:
        name = f"{tempfile.gettempdir()}/ecrt-{os.getpid()}-{time.monotonic_ns()}"  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
        shutil.move(name, replaced(file))

    yield "missing", lambda file: file.unlink()
    yield "empty", put(b"")
    yield "pipe", lambda file: os.mkfifo(replaced(file))
    yield "socket", listening
    yield "folder", lambda file: replaced(file).mkdir()
    yield "link elsewhere", elsewhere
    yield "link to nothing", link("/nonexistent/file")
    yield "link to itself", lambda file: replaced(file).symlink_to(file.name)
    yield "link to a device", link("/dev/zero")
    yield "sparse", sparse
    yield "zeros", put(bytes(2**20))
    yield "noise", put(random.Random(0).randbytes(5000))
    yield "UTF-16", lambda file: file.write_bytes(file.read_bytes().decode("latin-1").encode("utf-16")) and None
    yield "half", lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]) and None
    yield "escapes", put(ESCAPES.encode("utf-8", "surrogatepass"))
    yield "brackets", put(b"[" * 100_000)
    yield "braces", put(b'{"a":' * 100_000)
    yield "digits", put(b"9" * 100_000)


def texts(suffix: str) -> Iterator[tuple[str, bytes]]:
    """Contents that parsers of a kind trip over."""
    if suffix == ".yaml":
        laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
        )
        for name, text in {
            "laughs": laughs, "alias": "target: &a [kind]\nid: *a\n", "anchor": "target: &a kind\n",
            "merge": "<<: {target: kind, target: other}\n", "tag": "target: !!python/object/apply:os.system [id]\n",
            "new": "target: !!python/object/new:type [a, [], {}]\n", "deep": "model: " + "[" * 40 + "]" * 40,
            "deeper": "model: " + "{a: " * 5000, "twice": "seed: 1\nseed: 2\n", "digits": f"seed: {'9' * 5000}\n",
            "sixties": f"seed: {'1:' * 5000}1\n", "long": "drop: [" + "a, " * 200_000 + "]\n",
            "many": "".join(f"k{n}: 1\n" for n in range(9000)), "date": "positive: 2021-05-03\n",
            "binary": "target: !!binary aGk=\n", "set": "target: !!set {a, b}\n", "list": "- 1\n- 2\n", "text": "hi\n",
            "documents": "seed: 1\n---\nseed: 2\n", "null": "null\n", "keys": "? [1, 2]\n: 3\n", "number": "1: 2\n",
            "surrogate": 'target: "\\ud800"\n', "escape": 'target: "\\e]0;owned\\a\\e[2J"\n',
            "nan": "threshold: .nan\n", "infinite": "costs: {miss: .inf, false_alarm: 1}\n",
            "image": "image_size: 1000000000\n",
            "negative": "image_size: -5\n", "prior": "class_prior: [1.0e+308, 1.0e+308, 1.0e+308]\n",
            "priors": "class_prior: [.nan, 1, 1]\n", "positive": "positive: nobody\nthreshold: 0.5\n",
            "tiny": "costs: {miss: 1.0e-320, false_alarm: 1.0e-320}\n",
        }.items():  # fmt: skip
            yield name, text.encode("utf-8", "surrogatepass")
    if suffix == ".json":
        for name, text in {
            "deep": "[" * 100 + "]" * 100, "twice": '{"task": "classification", "task": "regression", "names": []}',
            "digits": f'{{"task": {"9" * 6000}}}', "NaN": '{"task": NaN, "names": []}', "list": "[]", "null": "null",
            "many": "[" + "0," * 3_000_000 + "0]", "values": "[" + "0," * 1_000_000 + "0]", "text": '"hi"',
            "names": json.dumps({"task": "multilabel", "names": ["x"] * 100_000}),
            "other": '{"task": "os.system", "names": []}', "few": '{"task": "multilabel", "names": ["u"]}',
            "lists": '{"task": "regression", "names": [[], {}]}', "regression": '{"task": "regression", "names": []}',
            "classes": '{"task": "classification", "names": ["kind"]}', "object": '{"task": {}, "names": {}}',
            "surrogate": '{"task": "\\ud800", "names": ["\\u001b[2J"]}',
        }.items():  # fmt: skip
            yield name, text.encode()
    if suffix == ".md":
        for name, text in {
            "escapes": f"# {ESCAPES}\n\n| a |\n| --- |\n| {ESCAPES} |\n", "quotes": ">" * 5000 + "x",
            "long": "a " * 10**6, "lists": "".join("  " * n + "- x\n" for n in range(300)),
            "stars": "*a **a " * 5000, "ticks": "`" * 60_000,
            "links": "[a](file:///etc/passwd) ![b](http://x/y) <http://x>\n", "brackets": "[" * 30_000,
            "html": "<script>alert(1)</script>\n", "tables": "| a " * 2000 + "|\n" + "| --- " * 2000 + "|\n",
        }.items():  # fmt: skip
            yield name, text.encode("utf-8", "surrogatepass")
    if suffix == ".npz":
        yield from archives()


def archives() -> Iterator[tuple[str, bytes]]:
    """Zip files of arrays that are not what they say."""

    def npy(descr: str, shape: str, content: bytes = b"", order: str = "False") -> bytes:
        header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(header) + 1) + header + b"\n" + content

    def packed(*entries: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
        file = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(file, "w", how) as out:
            warnings.simplefilter("ignore")
            for name, content in entries:
                out.writestr(name, content)
        return file.getvalue()

    good = npy("'<f8'", "(2,)", bytes(16))
    zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = zeros.compress(bytes(2**20)) + zeros.flush(zlib.Z_FULL_FLUSH)
    start = zlib.compressobj(9, zlib.DEFLATED, -15)
    header = npy("'<f8'", f"({2**27},)")
    header = start.compress(header) + start.flush(zlib.Z_FULL_FLUSH), len(header)
    bomb = bytearray(packed(("y.npy", header[0] + megabyte * 1024 + zeros.flush()), how=zipfile.ZIP_STORED))
    place = bomb.rindex(b"PK\1\2")
    for method, size in ((8, 22), (place + 10, place + 24)):
        bomb[method : method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        bomb[size : size + 4] = struct.pack("<L", 2**30 + header[1])
    yield "bomb", bytes(bomb)
    yield "shape", packed(("y.npy", npy("'<f8'", f"({2**40},)", bytes(16))))
    yield "overflow", packed(("y.npy", npy("'<f8'", f"({2**59}, {2**59}, 32)", bytes(16))))
    yield "none of many", packed(("y.npy", npy("'<f8'", f"(0, {2**59}, {2**59})")))
    yield "dimensions", packed(("y.npy", npy("'<f8'", "(" + "1, " * 999 + ")", bytes(8))))
    yield "wide text", packed(("y.npy", npy("'<U99999999'", "(2,)", bytes(16))))
    yield "bad text", packed(("y.npy", npy("'<U1'", "(2,)", b"\xff" * 8)))
    yield "no text", packed(("y.npy", npy("'<U0'", f"({10**12},)")))
    yield "truth", packed(("y.npy", npy("'|b1'", "(2,)", b"\x02\x03")))
    yield "width", packed(("y.npy", npy("'<i3'", "(2,)", bytes(6))))
    yield "objects", packed(("y.npy", npy("'|O'", "(1,)", b"cos\nsystem\n(S'id'\ntR.")))
    yield "record", packed(("y.npy", npy("[('a', '<f8')]", "(1,)", bytes(8))))
    yield "nested", packed(("y.npy", npy("'<f8'", "(" * 9000)))
    yield "minus", packed(("y.npy", npy("'<f8'", "-" * 60_000 + "1")))
    yield "version", packed(("y.npy", b"\x93NUMPY\3\0" + struct.pack("<L", 2**31) + b"{" * 1000))
    yield "cut", packed(("y.npy", good[:20]))
    yield "no array", packed(("y.txt", b"hi"), ("../../y.npy", good))
    yield "twice", packed(("y.npy", good), ("y.npy", good))
    yield "lzma", packed(("y.npy", good), how=zipfile.ZIP_LZMA)
    yield "many", packed(*((f"{n}.npy", b"") for n in range(30_000)))
    changed = bytearray(packed(("y.npy", good), how=zipfile.ZIP_STORED))
    changed[changed.index(b"NUMPY") + 100] ^= 1
    yield "checksum", bytes(changed)
    locked = bytearray(packed(("y.npy", good)))
    locked[6] |= 1
    locked[locked.rindex(b"PK\1\2") + 8] |= 1
    yield "password", bytes(locked)
    lying = bytearray(packed(("y.npy", good)))
    place = lying.rindex(b"PK\1\2")
    lying[place + 24 : place + 28] = struct.pack("<L", 2**31)
    yield "size", bytes(lying)
    far = bytearray(packed(("y.npy", good)))
    far[-6:-2] = struct.pack("<L", 2**31)
    yield "offset", bytes(far)
    yield "no numbers", packed(*((f"{name}.npy", npy("'<U2'", "(1,)", b"x\0\0\0y\0\0\0")) for name in ("y", "counts")))


def forged_values(file: Path, seeds: range) -> Iterator[tuple[str, Craft]]:
    """Another value somewhere in a JSON or YAML file of one of our own."""
    for seed in seeds:

        def change(file: Path, seed: int = seed) -> None:
            import yaml

            rng = random.Random(seed)
            is_yaml = file.suffix == ".yaml"
            value = yaml.safe_load(file.read_text()) if is_yaml else json.loads(file.read_text())
            path = rng.choice(places(value))
            holder, key = inside(value, path[:-1]), path[-1]
            bad = [*HOSTILE, deep(40), ESCAPES, "x" * 10**5]
            holder[key] = copy.deepcopy(rng.choice(bad)) if rng.random() < 0.6 else nearby(holder[key], rng)
            text = yaml.safe_dump(value, allow_unicode=True) if is_yaml else json.dumps(value)
            file.write_bytes(text.encode("utf-8", "surrogatepass"))

        yield f"value {seed}", change
    for seed in seeds[: len(seeds) // 3]:
        yield (
            f"damage {seed}",
            lambda file, seed=seed: file.write_bytes(damage(file.read_bytes(), random.Random(seed))) and None,
        )


def forged_columns() -> Iterator[tuple[str, Craft]]:
    """Readings of columns that no fit could have written."""
    numbers: dict[str, dict[str, object]] = {
        "no such writing": {"writing": "nonsense"}, "a date without its order": {"kind": "date"},
        "a date like a time": {"kind": "date", "writing": "time"},
        "levels twice": {"kind": "category", "levels": ["a", "a"]},
        "not learned from": {"role": "aside"}, "a target": {"role": "target"}, "another name": {"name": "z"},
        "decimal sign": {"decimal": "0"}, "digits between thousands": {"thousands": "0123456789"},
        "missing": {"missing": -1}, "missing in truth": {"missing": True},
    }  # fmt: skip

    def change(file: Path, edit: Callable[[list[dict[str, object]]], list[dict[str, object]]]) -> None:
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"columns": edit(content["columns"])}))

    for name, values in numbers.items():
        yield name, lambda file, values=values: change(file, lambda columns: [columns[0] | values, *columns[1:]])
    yield "no columns", lambda file: change(file, lambda columns: [])
    yield "one column less", lambda file: change(file, lambda columns: columns[1:])
    yield "every column twice", lambda file: change(file, lambda columns: columns * 2)
    yield "another order", lambda file: change(file, lambda columns: columns[::-1])


def huge_tensors(model: Path, wanted: bool) -> None:
    """A model whose tensor file of three gigabytes has the digest it should have, and takes no room on disk."""
    content = json.loads((model / JSON_NAME).read_bytes())
    file = model / tensor_name(content["tensors"]["sha256"])
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    rest = len(data) - 8 - length
    if wanted:  # the last of those that the model has
        name = max(header, key=lambda one: header[one]["data_offsets"][1])
        rest = header[name]["data_offsets"][0]
    else:
        name = "x"
    header[name] = {"dtype": "F64", "shape": [HUGE // 8], "data_offsets": [rest, rest + HUGE]}
    text = json.dumps(header).encode()
    digest = hashlib.sha256(b"nobody waits for this").hexdigest()  # whoever reads all would find it wrong, too late
    described = {**content["tensors"], "sha256": digest, "bytes": 8 + len(text) + rest + HUGE}
    (model / JSON_NAME).write_bytes(sealed(content["document"], described))
    file.unlink()
    with (model / tensor_name(digest)).open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data[8 + length : 8 + length + rest])
        out.truncate(8 + len(text) + rest + HUGE)


def replaced(file: Path) -> Path:
    file.unlink()
    return file


def crafts(run: Path, values: int) -> Iterator[tuple[str, Craft]]:
    """Names of all that is done to a run, each with what does it to a copy of its folder.

    Parameters
    ----------
    values : other values tried in each JSON and YAML file.
    """
    for file in sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file()):
        if file.suffix in (".html", ".svg"):
            continue
        changes = [*kinds_of_file()]
        changes += [
            (name, lambda file, text=text: replaced(file).write_bytes(text) and None)
            for name, text in texts(file.suffix)
        ]
        if file.suffix in (".json", ".yaml") and file.name != JSON_NAME:
            changes += forged_values(run / file, range(values))
        if file.name == TARGET_FILE:
            changes += forged_columns()
        for name, change in changes:
            yield f"{file.name}: {name}", lambda copied, file=file, change=change: change(copied / file)
    yield "tensors: huge, unwanted", lambda copied: huge_tensors(copied / "model", wanted=False)
    yield "tensors: huge, of another shape", lambda copied: huge_tensors(copied / "model", wanted=True)

    def elsewhere(copied: Path) -> None:
        (copied / "model").rename(copied.parent / "moved")
        (copied / "model").symlink_to(copied.parent / "moved")

    yield "model: link elsewhere", elsewhere

    def sealed_sparse(copied: Path) -> None:
        files = json.loads((copied / "run.json").read_text())["files"]
        for number in range(MOST_FILES - len(files)):
            with (copied / f"{number}.json").open("wb") as out:
                out.truncate(MOST_JSON_BYTES)
            files[f"{number}.json"] = hashlib.sha256(bytes(MOST_JSON_BYTES)).hexdigest()
        (copied / "run.json").write_text(json.dumps({"format": 1, "interrupted": False, "files": files}))

    yield "run.json: sparse files", sealed_sparse
    for name, files in {
        "outside": {"../../../etc/passwd": "x"}, "far outside": {"/etc/passwd": "x"},
        "many": {f"{n}": "x" for n in range(9999)},
        "list": [], "numbers": {"config.yaml": 3}, "none": {}, "folder": {"model": "x"}, "NUL": {"a\x00b": "x"},
        "long": {"a" * 5000: "x"}, "escapes": {ESCAPES: "x"}, "surrogate": {"\ud800": "x"},
    }.items():  # fmt: skip
        text = json.dumps({"format": 1, "interrupted": False, "files": files})
        yield f"run.json: {name}", lambda copied, text=text: (copied / "run.json").write_text(text) and None


def try_crafted(runs: dict[str, Path], work: Path, every: int = 1, values: int = 12, longest: float = 2.0) -> Findings:
    """Predict, evaluate and inspect each crafted folder: results, or our own error.

    Nothing may reach the terminal that steers it.

    Parameters
    ----------
    every : one of how many is tried; of tensors that are too large, all.
    longest : seconds of the processor that a folder may take.
    """
    found = Findings(Counter(), 0.0, [])
    number = 0
    for name, folder in runs.items():
        for craft, change in crafts(folder, values):
            number += 1
            if number % every and not craft.startswith("tensors: huge"):
                continue
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(folder, work / "run")
            change(work / "run")
            if not craft.startswith("run.json") and number // every % 4:
                with suppress(ECRTError, OSError):  # digests that fit, so that what lies behind them is tried
                    seal_run(work / "run")
            start = time.process_time()
            outcomes = []
            for command in (
                ["predict", work / "run", folder.with_suffix(".csv"), "-o", work / "out.csv"],
                ["evaluate", work / "run", folder.with_suffix(".csv")],
                ["inspect", work / "run"],
            ):
                try:
                    said = run(*command)
                    outcomes.append("fine")
                    if "\x1b" in said or "\x9b" in said:
                        found.faults.append(f"{name}, {craft}, {command}: escapes reach the terminal")
                except ECRTError:
                    outcomes.append("refused")
                except Exception as error:
                    outcomes.append("fault")
                    found.faults.append(f"{name}, {craft}, {command[0]}: {type(error).__name__}: {str(error)[:300]}")
            seconds = time.process_time() - start
            if seconds > longest:
                found.faults.append(f"{name}, {craft}: {seconds:.1f} s")
            found.slowest = max(found.slowest, seconds)
            found.outcomes[f"crafted {name}: {', '.join(outcomes)}"] += 1
    return found
