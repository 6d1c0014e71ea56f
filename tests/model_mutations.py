"""Damaged and forged model files without end, for test_saved.py and benchmarks/fuzz_model_files.py."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ecrt import Encoder, Flow, Linear, MLPHead, TreesHead
from ecrt.errors import ECRTError, ModelFileError
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved import load, save_estimator
from ecrt.estimators.transformer import ECRTTransformer
from ecrt.io.model_files import JSON_NAME, sealed, tensor_name

SMALL = {"critic_width": 4, "n_restarts": 1, "hidden": (6, 5), "epochs": 2}


@dataclass(frozen=True)
class Original:
    """A model as it was saved, with what it takes to load and to use it."""

    content: dict[str, Any]
    tensors: bytes
    X: Any
    encoder: nn.Module | None = None


@dataclass(frozen=True)
class Files:
    """What to write: ``model.json``, and the tensor file under its name."""

    json: bytes
    tensors: bytes
    name: str


def originals(folder: Path) -> list[Original]:
    """Small models of several kinds, saved."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [70, 50, 40, 10])
    X = rng.normal(size=(len(y), 3)) + y[:, None] * [1.0, -1.0, 0.5]
    table = pd.DataFrame(X.copy(), columns=["a", "b", "c"])
    table["kind"] = np.where(rng.random(len(y)) < 0.5, "red", "blue")
    table["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, len(y)), unit="D")
    table.loc[::7, "b"] = np.nan
    own = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    names = np.array(["x", "y", "z", "rare"])
    fits = [
        (ECRTClassifier(demixing=Flow(**SMALL), head="linear", random_state=0), table, names[y], None),
        (
            ECRTClassifier(
                demixing=Linear(source_prior="shared"), head="gaussian", costs=2 * (1 - np.eye(4)), random_state=0
            ),
            X,
            y,
            None,
        ),
        (
            ECRTClassifier(demixing="none", head=MLPHead(loss="cross-entropy", epochs=2), random_state=0),
            X,
            y * 2.0,
            None,
        ),
        (ECRTClassifier(encoder=Encoder(own, epochs=1), demixing="linear", head="linear", random_state=0), X, y, own),
        (ECRTClassifier(encoder=Encoder("mlp", epochs=1, n_features=4), head="linear", random_state=0), X, y, None),
        (ECRTTransformer(demixing=Flow(n_sources=2, **SMALL), random_state=0), table, names[y], None),
        (ECRTRegressor(demixing="linear", head="linear", random_state=0), X, np.exp(X[:, 0]), None),
        (ECRTClassifier(head=["linear", TreesHead(steps=2, leaves=3)], random_state=0), X, y, None),
    ]
    saved = []
    for number, (clf, rows, labels, encoder) in enumerate(fits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf.fit(rows, labels)
        save_estimator(clf, folder / str(number))
        content = json.loads((folder / str(number) / JSON_NAME).read_bytes())
        tensors = (folder / str(number) / tensor_name(content["tensors"]["sha256"])).read_bytes()
        saved.append(Original(content, tensors, rows[:20], encoder))
    return saved


# --- values that no honest file holds ---------------------------------------------------------------

HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 2**63 - 1, -(2**63), 10**12, 10**19, 0.5, -0.5, 1e308, -1e308,
    1e-320, "", "0", "x", "None", "linear", "flow", "own", "../../etc/passwd", "\x00", "\ud800", "é" * 99, "a" * 9999,
    [], {}, [[]], [None], [0], [1.5], ["x", "x"], [10**12, 10**12], list(range(200)), [[[[[[[[]]]]]]]], {"x": 1},
    {"$tuple": []}, {"$tuple": [1, "x"]}, {"$float": "nan"}, {"$float": "inf"}, {"$float": 3}, {"$float": "x"},
    {"$tuple": 1, "$float": 2}, {"$object": {}}, {"$object": {"kind": "History", "fields": {}}}, {"$": 1},
    {"$object": {"kind": "Restart", "fields": {"n_blocks": 1, "held_out_contrast": 0.5, "history": 3, "error": ""}}},
    {"$module": "x"}, "tensors",
    {"$array": {"dtype": "<U99999999", "values": ["x", "y"]}}, {"$array": {"dtype": "object", "values": [1, "x"]}},
    {"$array": {"dtype": "<f8", "values": [1.0, 2.0, 3.0, 4.0]}}, {"$array": {"dtype": "O", "values": []}},
    {"dtype": "<i8", "values": [1, 2, 3, 4]}, {"dtype": "<U1", "values": ["xx", "y"]},
    {"dtype": "|b1", "values": [False, True]}, {"dtype": "<i1", "values": [1, 999]},
]  # fmt: skip


def deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if depth % 2 else {"x": value}
    return value


def hostile(rng: random.Random) -> Any:
    return deep(rng.randrange(5, 60)) if rng.random() < 0.05 else copy.deepcopy(rng.choice(HOSTILE))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value in a JSON value is."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key in value:
            found += places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            found += places(value[index], (*path, index))
    return found


def inside(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def nearby(value: Any, rng: random.Random) -> Any:
    """A value of the same type, or nearly: what gets past a check of types."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, value * 2, value + 10**6, float(value), 0])
    if isinstance(value, float):  # JSON has no infinity
        return rng.choice([-value, max(-1e308, min(1e308, value * 1e6)), value * 1e-6, int(value), 0.0])
    if isinstance(value, str):
        return rng.choice([value[:-1], value + "x", value.upper(), value * 2, ""])
    if isinstance(value, list):
        return rng.choice([value[:-1], value + value, value[::-1], [*value, None], [value]])
    if isinstance(value, dict):
        kept = dict(value)
        if kept:
            kept.pop(rng.choice(list(kept)))
        return kept
    return 0


# --- mutations --------------------------------------------------------------------------------------


def damage(data: bytes, rng: random.Random) -> bytes:
    """Bits flipped, or bytes cut, taken out, put in or repeated."""
    if not data:
        return b"x"
    place, length = rng.randrange(len(data)), rng.choice([1, 1, 2, 8, 100, 5000])
    noise = rng.randbytes(length)
    match rng.randrange(6):
        case 0:
            changed = bytearray(data)
            for _ in range(rng.choice([1, 1, 2, 8, 64])):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 1:
            return data[:place]
        case 2:
            return data[:place] + data[place + length :]
        case 3:
            return data[:place] + noise + data[place:]
        case 4:
            return data[:place] + data[place : place + length] * 2 + data[place + length :]
        case _:
            return data[:place] + noise + data[place + length :]


def damaged_json(original: Original, rng: random.Random) -> Files:
    return Files(damage(as_json(original.content), rng), original.tensors, name_of(original.content))


def damaged_tensors(original: Original, rng: random.Random) -> Files:
    return Files(as_json(original.content), damage(original.tensors, rng), name_of(original.content))


def damaged_and_sealed(original: Original, rng: random.Random) -> Files:
    return forged(original, original.content["document"], damage(original.tensors, rng))


def hostile_text(original: Original, rng: random.Random) -> Files:
    """Text that parsers trip over, in place of some value."""
    text = as_json(original.content).decode("ascii")
    bad = rng.choice(
        [
            "NaN", "-Infinity", "1e999", "9" * 5000, "[" * 2000, '{"a":' * 2000, '{"a":1,"a":2}', "\x00", "\ufeff",
            "'x'",
            '"\\ud800"', '"\\', "0x10", "1_000", "+1", "-", "tru", "[1,]", "//", "\u2028", '"' + "\\\\" * 999 + '"',
        ]
    )  # fmt: skip
    at = rng.choice([place for place, letter in enumerate(text) if letter in ":,["])
    end = rng.choice([at + 1, text.find(",", at + 1), text.find("\n", at + 1), len(text)])
    changed = text[: at + 1] + bad + text[max(end, at + 1) :]
    return Files(changed.encode("utf-8", "surrogatepass"), original.tensors, name_of(original.content))


def forged_header(original: Original, rng: random.Random) -> Files:
    """Another value in what model.json says of the format and of the tensors."""
    content = copy.deepcopy({name: value for name, value in original.content.items() if name != "document"})
    path = rng.choice(places(content))
    inside(content, path[:-1])[path[-1]] = hostile(rng) if rng.random() < 0.5 else nearby(inside(content, path), rng)
    content["document"] = original.content["document"]
    if rng.random() < 0.8 and "sha256" in content:
        unsealed = {name: value for name, value in content.items() if name != "sha256"}
        text = json.dumps(unsealed, sort_keys=True, separators=(",", ":"))
        content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    name = content["tensors"].get("sha256") if isinstance(content.get("tensors"), dict) else None
    return Files(as_json(content), original.tensors, tensor_name(name) if is_plain(name) else "model-x.safetensors")


def forged_document(original: Original, rng: random.Random) -> Files:
    """Values replaced, removed, renamed, added or swapped, under a digest that fits."""
    document = copy.deepcopy(original.content["document"])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        # Every attribute and option as often as any other, the many fields of tables and histories included.
        roots = [(part, key) for part in document if isinstance(document[part], dict) for key in document[part]]
        root = rng.choice([*((part,) for part in document), *roots]) if document else None
        if root is None:
            break
        path = rng.choice([root, *((*root, *more) for more in places(inside(document, root)))])
        holder, key = inside(document, path[:-1]), path[-1]
        match rng.randrange(8):
            case 0 | 1 | 2:
                holder[key] = hostile(rng)
            case 3 | 4:
                holder[key] = nearby(holder[key], rng)
            case 5:
                del holder[key]
            case 6 if isinstance(holder, dict):
                holder[rng.choice(["x", "$tuple", f"{key}_", "__class__"])] = holder[key]
            case _:
                other = rng.choice(places(document))
                if other[: len(path)] != path and path[: len(other)] != other:
                    there = inside(document, other[:-1])
                    holder[key], there[other[-1]] = there[other[-1]], holder[key]
    return forged(original, document, original.tensors)


def forged_tensors(original: Original, rng: random.Random) -> Files:
    """Another header of the tensor file: shapes, dtypes, offsets, names; or other numbers in a tensor."""
    length = struct.unpack("<Q", original.tensors[:8])[0]
    header, data = json.loads(original.tensors[8 : 8 + length]), bytearray(original.tensors[8 + length :])
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(header))
        entry = header[name]
        match rng.randrange(8):
            case 0:
                entry["dtype"] = rng.choice(
                    ["F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "F64", "x"]
                )
            case 1:
                shape = [*entry["shape"], 1]
                place = rng.randrange(len(shape))
                shape[place] = rng.choice([0, 1, shape[place] * 2, shape[place] + 1, 2**31, 2**62, 2**63, -1, 1.5])
                entry["shape"] = rng.choice([shape, shape[::-1], shape[:-1], [0, 2**62, 2**62], [*shape, 0], [1] * 200])
            case 2:
                entry["data_offsets"] = rng.choice([[0, 0], [0, len(data)], [0, 2**63], [5, 3], [len(data), 2**40]])
            case 3:
                header[rng.choice([name + "x", "", "__metadata__", name.upper(), "x" * 10_000])] = header.pop(name)
            case 4:
                header.pop(name)
                if not header:
                    break
            case 5:
                header[rng.choice(list(header))] = dict(entry)
            case _:
                start, end = entry["data_offsets"]
                kind = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}.get(entry["dtype"])
                if kind and 0 <= start < end <= len(data) and (end - start) % int(kind[2]) == 0:
                    values = np.frombuffer(data, kind, (end - start) // int(kind[2]), start).copy()
                    integers = [0, -1, 1, 2**62, -(2**63), 7]
                    floats = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 1e-308, 1e30]
                    fill = rng.choice(integers if kind == "<i8" else floats)
                    with np.errstate(over="ignore"):
                        values[rng.choice([slice(None), rng.randrange(len(values))])] = fill
                    data[start:end] = values.tobytes()
    text = json.dumps(header).encode()
    size = rng.choice([len(text)] * 20 + [0, 2**40, 2**63, len(text) + 1])
    return forged(original, original.content["document"], struct.pack("<Q", size) + text + bytes(data))


MUTATIONS: list[Callable[[Original, random.Random], Files]] = [
    damaged_json, damaged_tensors, damaged_and_sealed, hostile_text, forged_header,
    forged_document, forged_document, forged_document, forged_document, forged_tensors, forged_tensors,
]  # fmt: skip


def forged(original: Original, document: dict[str, Any], tensors: bytes) -> Files:
    """Files whose digests fit, so that what lies behind the digests is tried."""
    digest = hashlib.sha256(tensors).hexdigest()
    described = {"sha256": digest, "bytes": len(tensors), "layouts": original.content["tensors"]["layouts"]}
    return Files(sealed(document, described), tensors, tensor_name(digest))


def as_json(content: Any) -> bytes:
    return json.dumps(content, indent=1).encode("ascii")


def name_of(content: dict[str, Any]) -> str:
    return tensor_name(content["tensors"]["sha256"])


def is_plain(name: Any) -> bool:
    return isinstance(name, str) and name[:16].isascii() and name[:16].isalnum()


# --- trial ------------------------------------------------------------------------------------------


@dataclass
class Findings:
    """How often each outcome was seen, the longest time of the processor, and anything that should not have been."""

    outcomes: Counter[str]
    slowest: float
    faults: list[str]


def try_many(
    models: list[Original], folder: Path, seeds: range, progress: Callable[[int], None] | None = None
) -> Findings:
    """Load a mutated model for each seed. It must be refused by our own error, or be usable without any other error."""
    found = Findings(Counter(), 0.0, [])
    folder.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds):
        rng = random.Random(seed)
        original, mutation = models[seed % len(models)], rng.choice(MUTATIONS)
        files = mutation(original, rng)
        (folder / JSON_NAME).write_bytes(files.json)
        (folder / files.name).write_bytes(files.tensors)
        start = time.process_time()
        try:
            outcome = attempt(folder, original)
        except Exception as error:
            outcome = "fault"
            found.faults.append(f"seed {seed}, {mutation.__name__}: {type(error).__name__}: {str(error)[:300]}")
        found.slowest = max(found.slowest, time.process_time() - start)
        found.outcomes[f"{mutation.__name__}: {outcome}"] += 1
        (folder / files.name).unlink()
        if progress is not None:
            progress(number + 1)
    return found


def attempt(folder: Path, original: Original) -> str:
    try:
        model = load(folder, encoder=original.encoder)
    except ModelFileError:
        return "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            used = use(model, original.X)
        except ECRTError:
            return "loaded, refuses X"
        except (RuntimeError, ValueError) as error:
            # Columns of other names, or more than the user's encoder takes: a model of other data.
            if "feature names" in str(error) or (original.encoder is not None and "cannot be multiplied" in str(error)):
                return "loaded, refuses X"
            raise
    if len(used) != len(original.X):
        raise AssertionError(f"{type(model).__name__} gives {used.shape} for {len(original.X)} rows")
    return "loaded"


def use(model: Any, X: Any) -> Any:
    """What a user would ask of a model."""
    if isinstance(model, ECRTTransformer):
        return model.inverse_transform(model.transform(X))
    if isinstance(model, ECRTRegressor):
        predicted = model.predict(X)
        model.sample(1, y=predicted[:2], random_state=0)
        return predicted
    model.predict(X)
    _ = model.decision_verdict_
    model.sample(2, random_state=0)
    probabilities = model.predict_proba(X)
    if probabilities.shape[1] != len(model.classes_):
        raise AssertionError(f"predict_proba gives shape {probabilities.shape}")
    return probabilities


@contextmanager
def memory_limit(more: int):
    """Let this process take so many bytes more than it has; beyond, memory is refused and the trial fails."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # not Linux
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
