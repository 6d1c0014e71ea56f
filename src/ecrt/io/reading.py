"""A model from disk, believed in nothing: plain files of bounded size, digests that fit, dtypes that are known."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import torch
from torch import Tensor

from ecrt.disk import plain_bytes
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

__all__ = ["read_model"]

ATTEMPTS = 5
"""Times that a model is looked at while another process keeps replacing it."""


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors of a model, or a ``ModelFileError``. What they mean is for the caller to check."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFileError(folder, "There is no such folder.", "Give the folder that the model was saved in.")
    attempts = 0
    while True:
        header = _reading(folder / JSON_NAME, _read_header)
        path = folder / tensor_name(header.digest)
        try:
            return header.document, _reading(path, partial(_read_tensors, header=header))
        except ModelFileError:
            attempts += 1
            if attempts == ATTEMPTS or path.exists():
                raise
            # The tensors are gone: perhaps the model was replaced since its first file was read.


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


def _read_tensors(path: Path, header: _Header) -> dict[str, Tensor]:
    data = plain_bytes(path, header.size)
    if len(data) != header.size or hashlib.sha256(data).hexdigest() != header.digest:
        raise BadContentError("Its content does not match the digest in model.json: it was cut, changed or damaged.")
    if int.from_bytes(data[:8], "little") > MOST_HEADER_BYTES:
        raise BadContentError(f"Its header is longer than {MOST_HEADER_BYTES} bytes.")
    try:
        views = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise BadContentError(f"It is not a safetensors file: {error}.") from error
    del data
    tensors = {}
    while views:
        name, view = views.pop()
        tensors[name] = _tensor(name, view, header.layouts.pop(name, None))
    if header.layouts:
        raise BadContentError("model.json tells the layout of tensors that are not there.")
    return tensors


def _tensor(name: str, view: dict[str, Any], layout: Any) -> Tensor:
    shown = repr(name[:80])
    if view["dtype"] not in DTYPES:
        raise BadContentError(f"Tensor {shown} has dtype {view['dtype']}; only {sorted(DTYPES)} are used.")
    stored, dtype = DTYPES[view["dtype"]]
    try:
        array = np.frombuffer(view["data"], dtype=stored).reshape(view["shape"])
        if dtype == torch.bool and array.view(np.uint8).max(initial=0) > 1:
            raise BadContentError(f"Tensor {shown} holds truth values other than 0 and 1.")
        # Memory of torch's own, aligned as in training: the same products to the last bit.
        tensor = torch.empty(array.shape, dtype=dtype)
        tensor.numpy()[...] = array
    except (ValueError, RuntimeError, OverflowError) as error:
        raise BadContentError(f"Tensor {shown} has an impossible shape.") from error
    if layout is None:
        return tensor
    if type(layout) is not list or any(type(d) is not int for d in layout) or sorted(layout) != [*range(tensor.ndim)]:
        raise BadContentError(f"Tensor {shown} has an impossible layout.")
    return tensor.permute(np.argsort(layout).tolist())
