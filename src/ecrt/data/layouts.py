"""Folders of images: one folder for each class, perhaps inside one for each split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"}
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ImageList:
    """Images of a collection, not yet opened.

    Attributes
    ----------
    root : folder that ``files`` are relative to.
    labels : class of each image; ``None`` where there are no folders to tell.
    splits : ``"train"``, ``"val"`` or ``"test"`` for each image; all ``"train"`` in a collection without splits.
    """

    root: Path
    files: tuple[str, ...]
    labels: NDArray[np.str_] | None
    splits: NDArray[np.str_]

    def take(self, rows: NDArray[np.int64]) -> ImageList:
        """Some of the images."""
        labels = None if self.labels is None else self.labels[rows]
        return ImageList(
            root=self.root, files=tuple(self.files[row] for row in rows), labels=labels, splits=self.splits[rows]
        )


def pictures_below(folder: Path) -> list[Path]:
    """Images in a folder and in the folders inside it, in a fixed order."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders of a collection that is split already, such as train and val, by the name of the split.

    A class may well be called "train", so there must be no other folders, and classes inside that one.
    """
    inside = [path for path in folder.iterdir() if path.is_dir()]
    split = {SPLITS[path.name]: path for path in inside if path.name in SPLITS}
    if "train" not in split or len(split) < len(inside) or not any(path.is_dir() for path in split["train"].iterdir()):
        return {}
    return split


def read_image_list(folder: Path) -> ImageList:
    """List the images of a folder: one folder for each class, perhaps inside one for each split."""
    if not folder.exists():
        raise InputError(f"There is no file or folder {folder}.")
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of images.")
    split = split_folders(folder) or {"train": folder}
    files, labels, splits = [], [], []
    for name, part in split.items():
        for file in pictures_below(part):
            inner = file.relative_to(part)
            files.append(file.relative_to(folder).as_posix())
            labels.append(inner.parts[0] if len(inner.parts) > 1 else "")
            splits.append(name)
    if not files:
        raise InputError(f"{folder} holds no images ({', '.join(sorted(PICTURES))}).")
    loose = [file for file, label in zip(files, labels, strict=True) if not label]
    if loose and len(loose) < len(files):
        raise InputError(f"{folder}: the image {loose[0]} is in no folder of a class, as others are.")
    return ImageList(
        root=folder, files=tuple(files), labels=None if loose else np.array(labels), splits=np.array(splits)
    )
