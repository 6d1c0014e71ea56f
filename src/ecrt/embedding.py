"""Images or text to features with a pretrained network, once, so that all else works on tables of numbers.

Libraries of networks are optional, and imported when one of their networks is used. Features are computed chunk by
chunk; after an interruption, finished chunks are used again, with the same result.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from sklearn.utils import gen_batches
from torch import Tensor, nn

from ecrt.checkpoints import digest_of
from ecrt.data import ImageList, open_image, read_data, read_image_list
from ecrt.disk import check_writable, locked, read_json, remove_litter, write_arrays, write_bytes, write_json
from ecrt.errors import InputError, warn_user
from ecrt.machine import ask, in_parts
from ecrt.randomness import seeded
from ecrt.training import Progress

Features = NDArray[np.float32]
Kind = Literal["image", "text"]

BATCHES_PER_CHUNK = 8
PLAN, CHUNK = "plan.json", re.compile(r"\d{9}\.npy")


# --- networks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """Items to features.

    Attributes
    ----------
    identity : changes when its weights do.
    prepare : one item to what a batch is made of; may run in several threads.
    encode : a batch of prepared items to a row of features each.
    """

    name: str
    takes: Kind
    identity: str
    prepare: Callable[[Any], Any]
    encode: Callable[[Sequence[Any]], Features]


class BackboneFamily(NamedTuple):
    """Networks of one library.

    Attributes
    ----------
    example : a full name.
    make : the rest of the name, a device and perhaps a file of weights, to a backbone.
    """

    example: str
    what: str
    make: Callable[[str, torch.device, Path | None], Backbone]


def make_backbone(name: str, *, device: torch.device | str = "cpu", weights: Path | None = None) -> Backbone:
    """A network by its full name, such as ``timm:resnet18``.

    Parameters
    ----------
    weights : .safetensors file with the weights of the network, which are then not downloaded.
    """
    prefix, _, rest = name.partition(":")
    if prefix not in BACKBONES or not rest:
        known = ", ".join(f"{family.example} ({family.what})" for family in BACKBONES.values())
        raise InputError(f"No backbone is called {name!r}. Examples of every kind: {known}.")
    if weights is not None and not weights.is_file():
        raise InputError(f"There is no file of weights {weights}.")
    with seeded(0):  # the first weights of a network, which are overwritten, are not drawn from the caller's numbers
        return BACKBONES[prefix].make(rest, torch.device(device), weights)


# --- images -------------------------------------------------------------------------------------------------------


def _timm(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"timm:{name}"
    timm = _library("timm", full, "pip install 'ecrt[vision]'")
    with _explaining_errors(full, download=weights is None):
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
        transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
        _load(network, weights)
    return _of_network(full, network, transform, device)


def _torchvision(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"torchvision:{name}"
    models = _library("torchvision.models", full, "pip install 'ecrt[vision]'")
    with _explaining_errors(full, download=weights is None):
        published = models.get_model_weights(name).DEFAULT
        network = models.get_model(name, weights=published if weights is None else None)
        _load(network, weights)
        _remove_last_linear(network)
    return _of_network(full, network, published.transforms(), device)


def _pixels(name: str, device: torch.device, weights: Path | None) -> Backbone:
    """The image itself, made small: a baseline without a network."""
    from PIL import Image, ImageOps

    side = _positive("pixels", name)

    def prepare(image: Image.Image) -> Features:
        fitted = ImageOps.fit(image, (side, side), Image.Resampling.BOX)
        return np.asarray(fitted, dtype=np.float32).reshape(-1) / np.float32(255)

    return Backbone(name=f"pixels:{side}", takes="image", identity="", prepare=prepare, encode=np.stack)


# --- text ---------------------------------------------------------------------------------------------------------


def _sentence_transformers(name: str, device: torch.device, weights: Path | None) -> Backbone:
    full = f"sentence-transformers:{name}"
    library = _library("sentence_transformers", full, "pip install 'ecrt[text]'")
    if weights is not None:
        raise InputError("sentence-transformers takes no --weights: name the folder of a model in place of its name.")
    with _explaining_errors(full):
        network = library.SentenceTransformer(name, device=str(device)).eval()

    def encode(texts: Sequence[str]) -> Features:
        found = network.encode(list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)

    return Backbone(name=full, takes="text", identity=digest_of(network), prepare=str, encode=encode)


def _words(name: str, device: torch.device, weights: Path | None) -> Backbone:
    """Counts of words and pairs of words, hashed to a number of columns: a baseline without a network."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(n_features=_positive("words", name), ngram_range=(1, 2), dtype=np.float32)

    def encode(texts: Sequence[str]) -> Features:
        return np.asarray(hashing.transform(texts).toarray(), dtype=np.float32)

    return Backbone(name=f"words:{name}", takes="text", identity="", prepare=str, encode=encode)


BACKBONES = {
    "timm": BackboneFamily("timm:resnet50.a1_in1k", "any model of timm", _timm),
    "torchvision": BackboneFamily(
        "torchvision:resnet18", "any classifier of torchvision; the paper's resnet18 and inception_v3", _torchvision
    ),
    "pixels": BackboneFamily("pixels:16", "the image made small, no network", _pixels),
    "sentence-transformers": BackboneFamily(
        "sentence-transformers:all-MiniLM-L6-v2",
        "a model of sentence-transformers, by its name or the folder it is in",
        _sentence_transformers,
    ),
    "words": BackboneFamily("words:512", "hashed counts of words, no network", _words),
}
"""By the part of the name before the colon."""


# --- what they share ------------------------------------------------------------------------------------------------


def _of_network(name: str, network: nn.Module, transform: Callable[[Any], Tensor], device: torch.device) -> Backbone:
    network.to(device).eval()

    def encode(prepared: Sequence[Tensor]) -> Features:
        with torch.inference_mode():
            found = network(torch.stack(list(prepared)).to(device))
        if found.ndim != 2:
            raise InputError(f"{name} gives {found.ndim - 1} axes of features an image, not one: choose another.")
        return found.float().cpu().numpy()

    return Backbone(name=name, takes="image", identity=digest_of(network), prepare=transform, encode=encode)


def _library(module: str, name: str, advice: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{name} needs {(error.name or module).partition('.')[0]}: {advice}.") from error
    except Exception as error:  # a build for another torch may raise anything
        raise InputError(
            f"{name}: {module} is installed but does not work beside torch {torch.__version__} ({error}). Install the "
            "version that belongs to it."
        ) from error


@contextmanager
def _explaining_errors(name: str, *, download: bool = False) -> Iterator[None]:
    """Turn what a library raises about a name, a connection or a file of weights into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        advice = " Without a connection, pass a file with --weights." if download and "nknown" not in said else ""
        raise InputError(f"{name} cannot be made: {said}.{advice}") from error


def _load(network: nn.Module, weights: Path | None) -> None:
    """Load a file of weights; weights of the last layer, which the network does not have, are ignored."""
    if weights is None:
        return
    if weights.suffix != ".safetensors":
        raise InputError(
            f"{weights.name} is not a .safetensors file, and other files of weights may hold code. If you trust it, "
            "load it with torch and write it again with safetensors.torch.save_file."
        )
    missing, _ = network.load_state_dict(load_file(weights), strict=False)
    needed = [key for key in missing if not key.endswith("num_batches_tracked")]
    if needed:
        raise InputError(f"{weights.name} has no {needed[0]!r}: these are weights of another network.")


def _remove_last_linear(network: nn.Module) -> None:
    """Replace the last linear layer (fc, heads.head or the end of classifier) by the identity."""
    places = [(key, layer) for key, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    places = [(key, layer) for key, layer in places if not key.startswith(("AuxLogits", "aux"))]
    if not places:
        raise InputError("its last layer is not a linear layer that could be left out")
    owner, _, last = places[-1][0].rpartition(".")
    setattr(network.get_submodule(owner), last, nn.Identity())


def _positive(family: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{family}:{text}: a positive whole number is expected, as in {BACKBONES[family].example}.")
    return int(text)


# --- items ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Items:
    """Images or texts.

    Attributes
    ----------
    load : gives one of them by its number.
    ids : what names each.
    y : classes, or labels with separators; ``None`` where there are none.
    test : which of them are for testing; ``None`` where the source does not say.
    identity : changes when any of them does.
    """

    kind: Kind
    load: Callable[[int], Any]
    ids: NDArray[np.str_]
    y: NDArray[Any] | None
    test: NDArray[np.bool_] | None
    identity: str

    def __len__(self) -> int:
        return len(self.ids)


def read_items(
    source: Path,
    *,
    text: str | None = None,
    target: str | None = None,
    split: str | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Items:
    """List what a source holds.

    Parameters
    ----------
    source : a folder of images, or a table with a column of text.
    text, target : columns of a table; the target may be left out.
    split : of a collection that is split, only ``"train"``, ``"val"`` or ``"test"``.
    rows : at most so many, drawn at random; all if ``None``.
    """
    if not source.exists():
        raise InputError(f"There is no file or folder {source}.")
    if source.is_file():
        return _table(source, text, target, split, rows, seed)
    if text is not None or target is not None:
        raise InputError(f"--text and --target are columns of a table; {source.name} is read as a folder of images.")
    listed = read_image_list(source)
    chosen = np.arange(len(listed.files)) if split is None else np.flatnonzero(listed.splits == split)
    if len(chosen) == 0:
        raise InputError(
            f"{source} has nothing in the split {split!r}; there are {sorted(set(listed.splits.tolist()))}."
        )
    return image_items(listed.take(_drawn(chosen, rows, seed)))


def _drawn(rows: NDArray[np.int64], n: int | None, seed: int) -> NDArray[np.int64]:
    if n is None or n >= len(rows):
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[:n])


def image_items(listed: ImageList) -> Items:
    """The images of a list, those of its split ``"test"``, or else ``"val"``, for testing."""
    paths = [listed.root / file for file in listed.files]
    stats = (path.stat() for path in paths)
    identity = _digest([f"{f}:{s.st_size}:{s.st_mtime_ns}" for f, s in zip(listed.files, stats, strict=True)])
    held_out = "test" if (listed.splits == "test").any() else "val"
    test = listed.splits == held_out
    return Items(
        kind="image", load=lambda number: open_image(paths[number]), ids=np.array(listed.files), y=listed.labels,
        test=test if test.any() and not test.all() else None, identity=identity,
    )  # fmt: skip


def _table(source: Path, text: str | None, target: str | None, split: str | None, rows: int | None, seed: int) -> Items:
    if source.suffix == ".npz":
        raise InputError(f"{source.name} holds arrays of numbers: there is nothing to embed.")
    if text is None:
        raise InputError(f"Name the column of {source.name} that holds the text: --text COL.")
    if split is not None:
        raise InputError(f"{source.name} is a table and has no splits: leave --split out.")
    data = read_data(source, target=() if target is None else (target,), ids=(text,), columns=())
    chosen = _drawn(np.arange(len(data.ids)), rows, seed)
    column = data.ids[text].iloc[chosen]
    empty = np.flatnonzero((column.isna() | (column == "")).to_numpy())
    if len(empty):
        raise InputError(f"{source.name}: row {chosen[empty[0]]} has no text in {text!r}.")
    y = None if data.y is None else data.y[chosen]
    if y is not None and y.dtype == object:
        y = np.array([str(value) for value in y])
    return text_items([str(value) for value in column], ids=chosen.astype(np.str_), y=y, test=None)


def text_items(
    texts: Sequence[str], *, ids: NDArray[np.str_], y: NDArray[Any] | None, test: NDArray[np.bool_] | None
) -> Items:
    """Texts with their names, labels and test rows."""
    return Items(kind="text", load=lambda number: texts[number], ids=ids, y=y, test=test, identity=_digest(texts))


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# --- features ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Embedded:
    """What was written.

    Attributes
    ----------
    kept : rows that an earlier, interrupted run had finished.
    """

    file: Path
    rows: int
    features: int
    kept: int


def embed(
    items: Items,
    backbone: Backbone,
    output: Path,
    *,
    batch_size: int = 64,
    threads: int = 4,
    progress: Progress | None = None,
) -> Embedded:
    """Write features to an NPZ file with X, ids, and y and test if they are known.

    Rows are cut into chunks in a fixed way. A finished chunk is kept in the folder OUTPUT.parts, and the same call
    continues with the missing ones. The folder is removed when the file is written. Chunks of other items, weights or
    batch sizes are not used.

    Parameters
    ----------
    threads : number of threads that open and prepare images.
    """
    if backbone.takes != items.kind:
        raise InputError(f"{backbone.name} takes {backbone.takes}s, and the source holds {items.kind}s.")
    check_writable(output)
    progress = progress or Progress()
    parts = output.with_name(f"{output.name}.parts")
    kept, numbers = 0, range(len(items))
    chunks = [numbers[part] for part in gen_batches(len(items), batch_size * BATCHES_PER_CHUNK)]
    files = [parts / f"{chunk.start:09d}.npy" for chunk in chunks]
    with locked(parts, wait=False), ThreadPoolExecutor(threads) as pool:
        _claim_parts(parts, items, backbone, batch_size)
        progress.start("Embedding", -(-len(items) // batch_size))
        for file, chunk in zip(files, chunks, strict=True):
            batches = [chunk[part] for part in gen_batches(len(chunk), batch_size)]
            if file.is_file() and _is_whole(file, len(chunk)):
                kept += len(chunk)
                for _ in batches:
                    progress.advance("from an earlier run")
                continue
            found = []
            for batch in batches:
                prepared = list(pool.map(lambda number: backbone.prepare(items.load(number)), batch))
                lower = "Set a smaller --batch-size, or --device cpu."
                found.append(np.concatenate(list(in_parts(backbone.encode, prepared, batch_size, lower))))
                ask(
                    "Features, an array", "Embed fewer rows at a time, with --rows or --split.", numbers=4,
                    rows=len(items), columns=found[-1].shape[1],
                )  # fmt: skip
                wrong = np.flatnonzero(~np.isfinite(found[-1]).all(axis=1))
                if len(wrong):
                    raise InputError(f"{backbone.name} gives NaN or infinity for {items.ids[batch[wrong[0]]]}.")
                progress.advance()
            content = io.BytesIO()  # numpy does not say why it cannot write to a file
            np.save(content, np.concatenate(found))
            write_bytes(file, content.getvalue())
        progress.finish()
        X = np.empty((len(items), *np.load(files[0], mmap_mode="r").shape[1:]), np.float32)
        for file, chunk in zip(files, chunks, strict=True):
            X[chunk.start : chunk.stop] = np.load(file)
        arrays = {"X": X, "ids": items.ids, "backbone": np.array(backbone.name), "y": items.y, "test": items.test}
        write_arrays(output, {name: array for name, array in arrays.items() if array is not None}, compressed=False)
        shutil.rmtree(parts)
    return Embedded(output, len(X), X.shape[1], kept)


def _claim_parts(parts: Path, items: Items, backbone: Backbone, batch_size: int) -> None:
    """Empty the folder of finished chunks if they belong to something else."""
    names = ("backbone", "weights", "items", "rows", "batch_size")
    plan = dict(zip(names, (backbone.name, backbone.identity, items.identity, len(items), batch_size), strict=True))
    remove_litter(parts)
    strange = [file.name for file in parts.iterdir() if file.name != PLAN and not CHUNK.fullmatch(file.name)]
    if strange:
        raise InputError(f"The folder {parts} is used for finished parts, and holds other files: {strange[:5]}.")
    with suppress(InputError):
        if read_json(parts / PLAN) == plan:
            return
    for file in parts.iterdir():
        file.unlink()
    write_json(parts / PLAN, plan)


def _is_whole(file: Path, rows: int) -> bool:
    """Whether a chunk was finished; warns if it cannot be read."""
    try:
        if len(np.load(file)) == rows:
            return True
    except (OSError, ValueError, EOFError):
        pass
    warn_user(f"{file} cannot be read; these rows are embedded again.")
    return False
