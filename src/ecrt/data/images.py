"""Folders of images, one for each class: listed, or in memory; and random views for training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from ecrt.errors import InputError

if TYPE_CHECKING:
    import PIL.Image

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
        return replace(self, files=tuple(self.files[row] for row in rows), labels=labels, splits=self.splits[rows])


def pictures_below(folder: Path) -> list[Path]:
    """Images in a folder and in the folders inside it, in a fixed order."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())


def read_image_list(folder: Path) -> ImageList:
    """List the images of a folder: one folder for each class, perhaps inside one for each split.

    A class may well be called "train": folders are splits if there are no others, and if that one holds folders.
    """
    if not folder.exists():
        raise InputError(f"There is no file or folder {folder}.")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of images.")
    inside = [path for path in folder.iterdir() if path.is_dir()]
    split = {SPLITS[path.name]: path for path in inside if path.name in SPLITS}
    if "train" not in split or len(split) < len(inside) or not any(path.is_dir() for path in split["train"].iterdir()):
        split = {"train": folder}
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


class Images(Dataset[Any]):
    """Images in memory, a byte for each value, given out as numbers from -1 to 1.

    Parameters
    ----------
    values : of shape (n, 3, size, size).
    labels : class names; without them items are images alone.
    """

    def __init__(self, values: NDArray[np.uint8], labels: NDArray[Any] | None = None) -> None:
        self.values, self.labels = values, labels

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Tensor | tuple[Tensor, str]:
        image = torch.from_numpy(self.values[index]).float() / 127.5 - 1
        return image if self.labels is None else (image, str(self.labels[index]))


def open_image(file: Path) -> PIL.Image.Image:
    """An image with three channels, read to its end."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"The image {file} cannot be read: {error}") from error


def load_images(folder: Path, *, labelled: bool, size: int) -> tuple[Images, list[str]]:
    """Images of a folder, cut to squares of ``size`` pixels a side, and their paths in it.

    Parameters
    ----------
    labelled : whether the names of the folders inside it are classes.
    """
    from PIL import ImageOps

    names, labels = [file.relative_to(folder).as_posix() for file in pictures_below(folder)], None
    if not names:
        raise InputError(
            f"The folder {folder} holds no images ({', '.join(sorted(PICTURES))}). Folders of Parquet or Arrow files "
            "are read by ecrt fit and ecrt predict alone."
        )
    if labelled:
        found = read_image_list(folder)
        if found.labels is None:
            raise InputError(f"{folder}: the image {names[0]} is in no subfolder, so its class has no name.")
        splits = np.unique(found.splits).tolist()
        if len(splits) > 1:
            raise InputError(f"{folder} is split into {splits}: name one of these folders, such as {folder / 'train'}.")
        names, labels = list(found.files), found.labels
    values = np.empty((len(names), 3, size, size), dtype=np.uint8)
    for place, name in enumerate(names):
        values[place] = np.asarray(ImageOps.fit(open_image(folder / name), (size, size))).transpose(2, 0, 1)
    return Images(values, labels), names


def crop_and_flip(
    x_bchw: Tensor, padding: int, *, flip: bool = True, generator: torch.Generator | None = None
) -> Tensor:
    """Shift every image by up to ``padding`` pixels, black moving in, and mirror half of them.

    One gather for all images, without a wait for the host; the result lies in memory as channels last.

    Parameters
    ----------
    x_bchw : images of any dtype; zero is black.
    padding : pixels by which images are padded before a crop of their own size is drawn.
    flip : whether to mirror, left and right, every image with probability one half.
    generator : where to draw from, on the device of the images; ``None`` for that of the process.
    """
    n, _, height, width = x_bchw.shape
    device = x_bchw.device
    padded_bhwc = nn.functional.pad(x_bchw, (padding,) * 4).permute(0, 2, 3, 1)
    top, left = torch.randint(2 * padding + 1, (2, n, 1, 1), generator=generator, device=device)
    column = torch.arange(width, device=device).expand(n, 1, width)
    if flip:
        mirrored = torch.rand(n, 1, 1, generator=generator, device=device) < 0.5
        column = torch.where(mirrored, width - 1 - column, column)
    row = torch.arange(height, device=device)[:, None]
    image = torch.arange(n, device=device)[:, None, None]
    return padded_bhwc[image, top + row, left + column].permute(0, 3, 1, 2)
