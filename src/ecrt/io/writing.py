"""A model to disk, in steps of which none shows half of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecrt.disk import locked, remove_litter, replacing, write_bytes
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

__all__ = ["as_read", "write_model"]


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
    parts = _tensor_parts(arrays)
    size, digest = sum(len(part) for part in parts), _digest(parts)
    content = sealed(document, {"sha256": digest, "bytes": size, "layouts": layouts})
    if size > MOST_TENSOR_BYTES or len(parts[0]) > MOST_HEADER_BYTES or len(content) > MOST_JSON_BYTES:
        raise InputError(f"The model is too large to be saved: {size} bytes of tensors, {len(content)} of JSON.")
    with locked(folder, wait=True):
        remove_litter(folder)
        with replacing(folder / tensor_name(digest)) as file:
            file.writelines(parts)
        write_bytes(folder / JSON_NAME, content)
        write_bytes(folder / CARD_NAME, card.encode("utf-8", "backslashreplace"))
        for path in folder.iterdir():  # of the model before, or of a save that was killed
            if re.fullmatch(r"model-[0-9a-f]{16}\.safetensors", path.name) and path.name != tensor_name(digest):
                path.unlink(missing_ok=True)


def _tensor_parts(arrays: dict[str, NDArray[Any]]) -> list[bytes | memoryview]:
    """A safetensors file in parts: its header, then the tensors, the widest numbers first, as they lie in memory.

    The library's own writer makes a file of its own name and permissions.
    """
    formats = {stored: name for name, (stored, _) in DTYPES.items()}
    header: dict[str, Any] = {}
    parts: list[bytes | memoryview] = []
    end = 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):
        stored = array.astype(array.dtype.newbyteorder("<"), copy=False)
        start, end = end, end + stored.nbytes
        header[name] = {"dtype": formats[stored.dtype], "shape": list(stored.shape), "data_offsets": [start, end]}
        parts.append(stored.reshape(-1).view(np.uint8).data)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *parts]


def _digest(parts: list[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def as_read(
    document: dict[str, Any], tensors: Mapping[str, Tensor | NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``open_model`` would give, without writing."""
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
