"""A model from disk, believed in nothing: plain files of bounded size, digests that fit, dtypes that are known."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ecrt.disk import open_plain, plain_bytes
from ecrt.errors import ModelFileError
from ecrt.io.container import (
    DTYPES,
    FORMAT,
    FORMAT_VERSION,
    JSON_NAME,
    MOST_HEADER_BYTES,
    MOST_TENSOR_BYTES,
    package_version,
    tensor_name,
)
from ecrt.io.fields import BadContentError, Fields
from ecrt.io.parse import MOST_JSON_BYTES, canonical, parse_json

__all__ = ["StoredTensor", "StoredTensors", "open_model"]

ATTEMPTS = 5
"""Times that a model is looked at while another process keeps replacing it."""

DAMAGED = "Its content does not match the digest in model.json: it was cut, changed or damaged."


@contextmanager
def open_model(folder: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], StoredTensors]]:
    """Document and tensors of a model, or a ``ModelFileError``. What they mean is for the caller to check."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFileError(folder, "There is no such folder.", "Give the folder that the model was saved in.")
    with ExitStack() as stack:
        attempts = 0
        while True:
            header = _reading(folder / JSON_NAME, _read_header)
            path = folder / tensor_name(header.digest)
            try:
                file = _reading(path, lambda path: stack.enter_context(open_plain(path, header.size)))  # noqa: B023
                break
            except ModelFileError:
                attempts += 1
                if attempts == ATTEMPTS or path.exists():
                    raise
                # The tensors are gone: perhaps the model was replaced since its first file was read.
        yield header.document, _reading(path, partial(StoredTensors, header=header, file=file))


class _Header:
    """What ``model.json`` says."""

    def __init__(self, content: Any) -> None:
        with Fields(content, "model.json") as fields:
            if fields.text("format") != FORMAT:
                raise BadContentError(f"It is not an {FORMAT}.")
            written_by, found = fields.text("ecrt_version")[:40], fields.raw("format_version")
            if type(found) is not int or found != FORMAT_VERSION:
                raise BadContentError(
                    f"It was written by ecrt {written_by!r} in format {str(found)[:20]}; this is ecrt "
                    f"{package_version()!r}, which reads format {FORMAT_VERSION}.",
                    "Install the version of ecrt that wrote it.",
                )
            digest = fields.raw("sha256")
            unsealed = {name: value for name, value in content.items() if name != "sha256"}
            if digest != hashlib.sha256(canonical(unsealed)).hexdigest():
                raise BadContentError("Its content does not match its digest: it was changed or damaged.")
            with fields.part("tensors") as tensors:
                self.digest = tensors.text("sha256")
                self.size = tensors.whole("bytes", 0, MOST_TENSOR_BYTES)
                self.layouts = tensors.part("layouts").rest()
            self.document = fields.part("document").rest()
        if not re.fullmatch("[0-9a-f]{64}", self.digest):
            raise BadContentError("The digest of its tensors is not a SHA-256.")


T = TypeVar("T")


def _reading(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except BadContentError as error:
        raise error.of_file(path) from error
    except OSError as error:
        raise ModelFileError(path, f"It cannot be read: {error.strerror or error}.") from error


def _read_header(path: Path) -> _Header:
    return _Header(parse_json(plain_bytes(path, MOST_JSON_BYTES)))


class StoredTensors(dict[str, "StoredTensor"]):
    """The tensors of an open file: what they are is known, their content is read when it is asked for.

    So a tensor that nobody wants, or of another shape than is wanted, costs nothing, however large it is.
    """

    def __init__(self, path: Path, header: _Header, file: BufferedReader) -> None:
        self.path, self.file, self.digest = path, file, header.digest
        self.size = os.fstat(file.fileno()).st_size
        if self.size != header.size:
            raise BadContentError(DAMAGED)
        length = int.from_bytes(file.read(8), "little")
        if length > min(MOST_HEADER_BYTES, self.size - 8):
            raise BadContentError(f"Its header is longer than {MOST_HEADER_BYTES} bytes, or than the file.")
        content = parse_json(file.read(length))
        super().__init__(
            {
                name: StoredTensor(file, name, value, 8 + length, header.layouts.pop(name, None))
                for name, value in Fields(content, "its header").rest().items()
            }
        )
        if header.layouts:
            raise BadContentError("model.json tells the layout of tensors that are not there.")
        end = 8 + length
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
    """A tensor on disk: dtype and shape, checked against its bytes, and where it begins."""

    def __init__(self, file: BufferedReader, name: str, value: Any, offset: int, layout: Any) -> None:
        self.file, self.shown = file, repr(name[:80])
        with Fields(value, f"tensor {self.shown}") as fields:
            self.stored, self.dtype = DTYPES[fields.text("dtype", DTYPES)]
            self.sizes = fields.wholes("shape", 0, 2**62, 64)
            offsets = fields.wholes("data_offsets", 0, 2**62, 2)
        self.bytes = math.prod(self.sizes) * self.stored.itemsize
        self.start = offset + (offsets[0] if offsets else 0)
        if len(offsets) != 2 or offsets[1] - offsets[0] != self.bytes:
            raise BadContentError(f"Tensor {self.shown} has a shape that does not fit its bytes.")
        axes = [*range(len(self.sizes))]
        self.axes = axes if layout is None else layout
        if type(self.axes) is not list or any(type(d) is not int for d in self.axes) or sorted(self.axes) != axes:
            raise BadContentError(f"Tensor {self.shown} has an impossible layout.")

    @property
    def shape(self) -> tuple[int, ...]:
        """As the model sees it."""
        return tuple(self.sizes[self.axes.index(axis)] for axis in range(len(self.sizes)))

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
        return tensor.permute(np.argsort(self.axes).tolist())
