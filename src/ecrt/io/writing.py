"""A model to disk, in steps of which none shows half of it."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor

from ecrt.errors import InputError
from ecrt.io.container import (
    CARD_NAME,
    DTYPES,
    JSON_NAME,
    MOST_HEADER_BYTES,
    MOST_TENSOR_BYTES,
    sealed,
    tensor_name,
)
from ecrt.io.parse import MOST_JSON_BYTES, canonical, parse_json
from ecrt.io.reading import tensors_in_use

__all__ = ["as_read", "write_model"]

STALE_SECONDS = 3600
"""Age at which files that a killed save left behind are removed."""


def write_model(
    folder: str | os.PathLike[str], document: dict[str, Any], tensors: Mapping[str, Tensor | NDArray[Any]], card: str
) -> None:
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
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".ecrt-{secrets.token_hex(8)}.tmp"
    try:
        save_file(arrays, temporary)
        with temporary.open("rb") as file:
            header, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        content = sealed(document, {"sha256": digest, "bytes": size, "layouts": layouts})
        if size > MOST_TENSOR_BYTES or header > MOST_HEADER_BYTES or len(content) > MOST_JSON_BYTES:
            raise InputError(f"The model is too large to be saved: {size} bytes of tensors, {len(content)} of JSON.")
        _rename(temporary, folder / tensor_name(digest))
        previous = tensors_in_use(folder)
        _write(temporary, folder / JSON_NAME, content)
        _write(temporary, folder / CARD_NAME, card.encode("utf-8", "backslashreplace"))
    finally:
        temporary.unlink(missing_ok=True)
    _clean_up(folder, previous, tensor_name(digest))


def as_read(
    document: dict[str, Any], tensors: Mapping[str, Tensor | NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``read_model`` would give, without writing."""
    return parse_json(canonical(document)), {name: _as_tensor(value) for name, value in tensors.items()}


def _arrays(tensors: Mapping[str, Tensor | NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, list[int]]]:
    """Arrays to write, and the order of axes in memory where it is not the usual one.

    That order decides in which order a matrix product adds, and so its last bits.
    """
    arrays, layouts = {}, {}
    for name, value in tensors.items():
        tensor = _as_tensor(value)
        if tensor.dtype not in {dtype for _, dtype in DTYPES.values()} or tensor.layout != torch.strided:
            raise InputError(f"{name} cannot be saved: dtype {tensor.dtype}, {tensor.layout}.")
        strides = tensor.stride()
        axes = sorted(range(tensor.ndim), key=strides.__getitem__, reverse=True)
        if not tensor.is_contiguous() and tensor.permute(axes).is_contiguous():
            tensor, layouts[name] = tensor.permute(axes), axes
        arrays[name] = tensor.contiguous().numpy()
    return arrays, layouts


def _as_tensor(value: Tensor | NDArray[Any]) -> Tensor:
    return value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(value)


def _write(temporary: Path, path: Path, content: bytes) -> None:
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _rename(temporary, path)


def _rename(temporary: Path, path: Path) -> None:
    """Give a file its name in one step, on disk before the next step."""
    os.replace(temporary, path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _clean_up(folder: Path, previous: str | None, current: str) -> None:
    """Remove the replaced model's tensors, and what killed saves left behind some time ago."""
    oldest = time.time() - STALE_SECONDS
    for path in folder.iterdir():
        ours = re.fullmatch(r"model-[0-9a-f]{16}\.safetensors|\.ecrt-[0-9a-f]{16}\.tmp", path.name)
        try:
            if ours and path.name != current and (path.name == previous or path.lstat().st_mtime < oldest):
                path.unlink()
        except OSError:
            continue  # another save was faster
