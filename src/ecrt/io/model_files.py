"""What a model is on disk: a folder with ``model.json``, its tensors beside it, and a card for people to read.

The tensors lie in ``model-<digest>.safetensors``. ``model.json`` holds the digests of the tensors and of itself, and is
replaced in one step after the tensors are on disk. Whenever a save is cut short, the folder holds the old model whole,
the new one whole, or none. Digests show damage, not forgery, so what is read is checked all the same: files must be
plain and of limited size, and dtypes and shapes must be those that the model needs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from ecrt.disk import (
    MOST_JSON_BYTES,
    canonical,
    locked,
    open_plain,
    parse_json,
    plain_bytes,
    remove_litter,
    typed,
    write_together,
)
from ecrt.errors import BadContentError, InputError, ModelFileError

Tensors = Mapping[str, Tensor | NDArray[Any]]

JSON_NAME = "model.json"
CARD_NAME = "MODEL_CARD.md"
FORMAT = "ecrt model"
FORMAT_VERSION = 2

MOST_TENSOR_BYTES = 16 * 2**30
MOST_HEADER_BYTES = 8 * 2**20
"""Of the tensor file's own header, a line for each tensor."""

PACKAGES = ("ecrt", "torch", "scikit-learn", "numpy", "scipy", "pandas", "zuko", "imbalanced-learn", "optuna")
"""Those that results depend on."""

UNKNOWN = "unknown"
"""Version of a package that is not installed, or runs from a folder."""

ATTEMPTS = 5
"""Times that a model is looked at while another process keeps replacing it."""

DAMAGED = "Its content does not match the digest in model.json: it was cut, changed or damaged."
DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "BOOL": torch.bool}
"""What tensors may hold, by the name that the format has for it."""

Size = Annotated[int, Meta(ge=0, le=2**62)]
Axes = Annotated[list[Size], Meta(max_length=64)]


class _TensorFile(msgspec.Struct, forbid_unknown_fields=True):
    """What ``model.json`` says of the tensors: digest, length, and the order of axes where it is not the usual one."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
    bytes: Annotated[int, Meta(ge=0, le=MOST_TENSOR_BYTES)]
    layouts: dict[str, Axes]


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """What ``model.json`` says."""

    sha256: str
    format: str
    format_version: int
    ecrt_version: str
    tensors: _TensorFile
    document: dict[str, Any]


class _TensorEntry(msgspec.Struct, forbid_unknown_fields=True):
    """What the tensor file says of one tensor."""

    dtype: Literal["F32", "F64", "I64", "BOOL"]
    shape: Axes
    data_offsets: tuple[Size, Size]


def package_version(name: str = "ecrt") -> str:
    """Installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return UNKNOWN


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that a result depends on; those of extras may be missing."""
    return {name: found for name in PACKAGES if (found := package_version(name)) != UNKNOWN}


def sealed(document: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """The content of ``model.json``, its own digest included."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "ecrt_version": package_version(),
        "tensors": tensors,
        "document": document,
    }
    content = {"sha256": hashlib.sha256(canonical(content)).hexdigest(), **content}
    return json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False).encode("ascii")


def tensor_name(digest: str) -> str:
    """Name of the tensor file with this digest."""
    return f"model-{digest[:16]}.safetensors"


def write_model(folder: str | os.PathLike[str], document: dict[str, Any], tensors: Tensors, card: str) -> None:
    """Write a model, in place of any that the folder holds, so that no moment shows half of it.

    Parameters
    ----------
    document : JSON values.
    tensors : float32, float64, int64 or bool.
    card : text of the model card.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Give a folder to save the model in.")
    arrays, layouts = _arrays(tensors)
    stored = save(arrays)
    digest = hashlib.sha256(stored).hexdigest()
    content = sealed(document, {"sha256": digest, "bytes": len(stored), "layouts": layouts})
    header = int.from_bytes(stored[:8], "little")
    if len(stored) > MOST_TENSOR_BYTES or header > MOST_HEADER_BYTES or len(content) > MOST_JSON_BYTES:
        raise InputError(f"The model is too large to be saved: {len(stored)} bytes of tensors, {len(content)} of JSON.")
    there = folder.exists()
    with locked(folder, wait=True):
        remove_litter(folder)
        named = {tensor_name(digest): stored, CARD_NAME: card.encode("utf-8", "backslashreplace"), JSON_NAME: content}
        try:
            write_together({folder / name: file for name, file in named.items()})
        except InputError:
            if not there:
                folder.rmdir()
            raise
        for path in folder.iterdir():  # of the model before, or of a save that was killed
            if re.fullmatch(r"model-[0-9a-f]{16}\.safetensors", path.name) and path.name != tensor_name(digest):
                path.unlink(missing_ok=True)


def as_read(document: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``open_model`` would give, without writing."""
    return parse_json(canonical(document)), {name: _as_tensor(value) for name, value in tensors.items()}


def _arrays(tensors: Tensors) -> tuple[dict[str, NDArray[Any]], dict[str, list[int]]]:
    """Arrays to write, and the order of axes in memory where it is not the usual one.

    That order decides in which order a matrix product adds, and so its last bits.
    """
    arrays, layouts = {}, {}
    for name, value in tensors.items():
        tensor = _as_tensor(value)
        if tensor.dtype not in DTYPES.values() or tensor.layout != torch.strided:
            raise InputError(f"{name} cannot be saved: dtype {tensor.dtype}, {tensor.layout}.")
        strides = tensor.stride()
        axes = sorted(range(tensor.ndim), key=strides.__getitem__, reverse=True)
        if not tensor.is_contiguous() and tensor.permute(axes).is_contiguous():
            tensor, layouts[name] = tensor.permute(axes), axes
        arrays[name] = tensor.contiguous().numpy()
    return arrays, layouts


def _as_tensor(value: Tensor | NDArray[Any]) -> Tensor:
    return value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(value)


@contextmanager
def open_model(folder: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], StoredTensors]]:
    """Document and tensors of a model, or a ``ModelFileError``. What they mean is for the caller to check."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFileError(folder, "There is no such folder.", "Give the folder that the model was saved in.")
    with ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            with _naming(folder / JSON_NAME) as path:
                header = _read_header(path)
            try:
                with _naming(folder / tensor_name(header.tensors.sha256)) as path:
                    file = stack.enter_context(open_plain(path, header.tensors.bytes))
                    tensors = StoredTensors(path, header.tensors, file)
                break
            except ModelFileError:  # the tensors are gone: perhaps the model was replaced since model.json was read
                if attempt == ATTEMPTS or path.exists():
                    raise
        yield header.document, tensors


@contextmanager
def _naming(path: Path) -> Iterator[Path]:
    """Give what goes wrong with a file its name."""
    try:
        yield path
    except BadContentError as error:
        raise error.of_file(path) from error
    except OSError as error:
        raise ModelFileError(path, f"It cannot be read: {error.strerror or error}.") from error


def _read_header(path: Path) -> _Header:
    content = parse_json(plain_bytes(path, MOST_JSON_BYTES))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadContentError(f"It is not an {FORMAT}.")
    written_by, found = str(content.get("ecrt_version"))[:40], content.get("format_version")
    if type(found) is not int or found != FORMAT_VERSION:
        raise BadContentError(
            f"It was written by ecrt {written_by!r} in format {str(found)[:20]}; this is ecrt "
            f"{package_version()!r}, which reads format {FORMAT_VERSION}.",
            "Install the version of ecrt that wrote it.",
        )
    header: _Header = typed(content, _Header, "It is not as ecrt writes it")
    unsealed = {name: value for name, value in content.items() if name != "sha256"}
    if header.sha256 != hashlib.sha256(canonical(unsealed)).hexdigest():
        raise BadContentError("Its content does not match its digest: it was changed or damaged.")
    return header


class StoredTensors(dict[str, "StoredTensor"]):
    """The tensors of an open file: what they are is known, their content is read when it is asked for.

    So a tensor that nobody wants, or of another shape than is wanted, costs nothing, however large it is.
    """

    def __init__(self, path: Path, described: _TensorFile, file: BufferedReader) -> None:
        self.path, self.file, self.digest = path, file, described.sha256
        self.size = os.fstat(file.fileno()).st_size
        if self.size != described.bytes:
            raise BadContentError(DAMAGED)
        length = int.from_bytes(file.read(8), "little")
        if length > min(MOST_HEADER_BYTES, self.size - 8):
            raise BadContentError(f"Its header is longer than {MOST_HEADER_BYTES} bytes, or than the file.")
        entries: dict[str, _TensorEntry] = typed(parse_json(file.read(length)), dict[str, _TensorEntry], "its header")
        if described.layouts.keys() - entries.keys():
            raise BadContentError("model.json has the layout of tensors that are not there.")
        end = 8 + length
        for name, entry in entries.items():
            self[name] = StoredTensor(file, name, entry, end, described.layouts.get(name))
        for tensor in sorted(self.values(), key=lambda tensor: (tensor.start, tensor.bytes)):
            if tensor.start != end:
                raise BadContentError("Its tensors do not lie one after the other.")
            end += tensor.bytes
        if end != self.size:
            raise BadContentError("Its tensors do not fill it.")

    def verify(self) -> None:
        """Compare the whole file with its digest."""
        self.file.seek(0)
        if hashlib.file_digest(self.file, "sha256").hexdigest() != self.digest:
            raise ModelFileError(self.path, DAMAGED)


class StoredTensor:
    """A tensor on disk: dtype and shape, checked against its bytes, and where it begins.

    Attributes
    ----------
    sizes, axes : its shape as it lies in the file, and the order of these axes in the model.
    """

    def __init__(
        self, file: BufferedReader, name: str, entry: _TensorEntry, offset: int, layout: list[int] | None
    ) -> None:
        self.file, self.shown, self.dtype = file, repr(name[:80]), DTYPES[entry.dtype]
        self.sizes, (start, end) = entry.shape, entry.data_offsets
        self.bytes, self.start = math.prod(self.sizes) * self.dtype.itemsize, offset + start
        if end - start != self.bytes:
            raise BadContentError(f"Tensor {self.shown} has a shape that does not fit its bytes.")
        axes = [*range(len(self.sizes))]
        if layout is not None and sorted(layout) != axes:
            raise BadContentError(f"Tensor {self.shown} has an impossible layout.")
        self.axes: list[int] = axes if layout is None else np.argsort(layout).tolist()
        self.shape = tuple(self.sizes[axis] for axis in self.axes)

    def read(self) -> Tensor:
        """The tensor, in memory of torch's own, aligned as in training: the same products to the last bit."""
        try:
            tensor = torch.empty(self.sizes, dtype=self.dtype)
        except (RuntimeError, ValueError, OverflowError) as error:
            raise BadContentError(f"Tensor {self.shown} has an impossible shape.") from error
        content: Any = tensor.numpy().reshape(-1).view(np.uint8)
        self.file.seek(self.start)
        if self.file.readinto(content) != self.bytes:
            raise BadContentError(f"Tensor {self.shown} changed while it was read.")
        if sys.byteorder == "big":
            tensor.numpy().byteswap(inplace=True)
        if self.dtype == torch.bool and content.max(initial=0) > 1:
            raise BadContentError(f"Tensor {self.shown} holds truth values other than 0 and 1.")
        return tensor.permute(self.axes)
