"""Collections of images as they are published: a folder for each class, Tiny-ImageNet, iNaturalist's annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

__all__ = ["PICTURES", "ImageLayout", "ImageList", "pictures_below", "read_image_list", "split_folders"]

ImageLayout = Literal["folder", "tiny-imagenet", "inaturalist"]

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"}
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
TINY_ANNOTATIONS = Path("val") / "val_annotations.txt"


@dataclass(frozen=True, kw_only=True)
class ImageList:
    """Images of a collection, not yet opened.

    Attributes
    ----------
    root : folder that ``files`` are relative to.
    labels : class of each image; ``None`` where there are no folders or annotations to tell.
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


def read_image_list(source: Path, layout: ImageLayout | None = None) -> ImageList:
    """List a collection of images.

    Parameters
    ----------
    source : a folder of images, or iNaturalist's annotations: a file such as train2019.json, or the folder with it
        and val2019.json. Files that annotations name are looked for beside them.
    layout : how it is laid out; told from what is there if ``None``.
    """
    if not source.exists():
        raise InputError(f"There is no file or folder {source}.")
    found = layout or _layout_of(source)
    if found != "inaturalist" and not source.is_dir():
        raise InputError(f"{source} is no folder of images.")
    listed = READERS[found](source)
    if not listed.files:
        raise InputError(f"{source} holds no images ({', '.join(sorted(PICTURES))}).")
    return listed


def _layout_of(source: Path) -> ImageLayout:
    if source.suffix == ".json" or (source.is_dir() and _annotation_files(source)):
        return "inaturalist"
    return "tiny-imagenet" if (source / TINY_ANNOTATIONS).is_file() else "folder"


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


def _read_folder(folder: Path) -> ImageList:
    """A folder for each class, perhaps inside one for each split."""
    split = split_folders(folder) or {"train": folder}
    files, labels, splits = [], [], []
    for name, part in split.items():
        for file in pictures_below(part):
            inner = file.relative_to(part)
            files.append(file.relative_to(folder).as_posix())
            labels.append(inner.parts[0] if len(inner.parts) > 1 else "")
            splits.append(name)
    loose = [file for file, label in zip(files, labels, strict=True) if not label]
    if loose and len(loose) < len(files):
        raise InputError(f"{folder}: the image {loose[0]} is in no folder of a class, as others are.")
    return ImageList(
        root=folder, files=tuple(files), labels=None if loose else np.array(labels), splits=np.array(splits)
    )


def _read_tiny_imagenet(folder: Path) -> ImageList:
    """train/CLASS/images/*.JPEG, and val/images/*.JPEG with val/val_annotations.txt; its test images have no labels."""
    annotations = folder / TINY_ANNOTATIONS
    if not annotations.is_file():
        raise InputError(f"{annotations} does not exist: this is not Tiny-ImageNet as it was published.")
    files = [file.relative_to(folder).as_posix() for file in pictures_below(folder / "train")]
    labels = [Path(file).parts[1] for file in files]
    n_train, known = len(files), set(labels)
    for number, line in enumerate(annotations.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) < 2:
            raise InputError(f"{annotations}, line {number}: expected a file and a class with a tab between them.")
        file, label = fields[0].strip(), fields[1].strip()
        if label not in known:
            raise InputError(f"{annotations}, line {number}: the class {label!r} has no folder in train.")
        if not (folder / "val" / "images" / file).is_file():
            raise InputError(f"{annotations}, line {number}: there is no file val/images/{file}.")
        files.append(f"val/images/{file}")
        labels.append(label)
    splits = np.repeat(["train", "val"], [n_train, len(files) - n_train])
    return ImageList(root=folder, files=tuple(files), labels=np.array(labels), splits=splits)


# --- iNaturalist --------------------------------------------------------------------------------------------------


def _annotation_files(folder: Path) -> dict[str, Path]:
    """Annotations by split: train2019.json and val2019.json, of whatever year."""
    found = {}
    for split in ("train", "val"):
        files = [file for file in folder.glob(f"{split}*.json") if file.stem.removeprefix(split).isdigit()]
        if files:
            found[split] = max(files)
    return found


def _read_inaturalist(source: Path) -> ImageList:
    """COCO-like annotations of one file, or of training and validation images."""
    if source.is_dir():
        parts = _annotation_files(source)
        if not parts:
            raise InputError(f"{source} has no annotations such as train2019.json.")
    else:
        parts = {"val" if source.stem.startswith("val") else "train": source}
    root = source if source.is_dir() else source.parent
    files, labels, splits = [], [], []
    for split, part in parts.items():
        for file, label in _annotated(part, root):
            files.append(file)
            labels.append(label)
            splits.append(split)
    return ImageList(root=root, files=tuple(files), labels=np.array(labels), splits=np.array(splits))


def _annotated(annotations: Path, root: Path) -> Iterator[tuple[str, str]]:
    content = _read_json(annotations)
    names = _categories(annotations, content)
    files = {
        _entry(annotations, "images", place, image, "id"): _entry(annotations, "images", place, image, "file_name")
        for place, image in enumerate(content["images"])
    }
    labels: dict[Any, str] = {}
    for place, annotation in enumerate(content["annotations"]):
        where = f"{annotations}, annotations[{place}]"
        image = _entry(annotations, "annotations", place, annotation, "image_id")
        category = _entry(annotations, "annotations", place, annotation, "category_id")
        if image not in files:
            raise InputError(f"{where}: image_id {image} is not among the images.")
        if category not in names:
            raise InputError(f"{where}: category_id {category} is not among the categories.")
        if labels.setdefault(image, names[category]) != names[category]:
            raise InputError(f"{where}: image_id {image} has a second category; one is expected.")
    for image, file in files.items():
        if image not in labels:
            raise InputError(f"{annotations}: the image {file} (id {image}) has no annotation.")
        if not (root / file).is_file():
            raise InputError(f"{annotations}: the image {root / file} does not exist; unpack the images beside it.")
        yield file, labels[image]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{file}, line {error.lineno}, column {error.colno}: no JSON ({error.msg}).") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is no text: {error}") from error
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise InputError(f"{file} has no list {key!r}, as iNaturalist's annotations have.")
    return dict(content)


def _entry(file: Path, kind: str, place: int, entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise InputError(f"{file}, {kind}[{place}] has no {key!r}.")
    return entry[key]


def _categories(file: Path, content: dict[str, Any]) -> dict[Any, str]:
    """Names by id; where two categories share a name, both get their id beside it."""
    names = {
        _entry(file, "categories", place, category, "id"): str(category.get("name", category["id"]))
        for place, category in enumerate(content["categories"])
    }
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {key: f"{name} ({key})" if name in shared else name for key, name in names.items()}


READERS: dict[ImageLayout, Callable[[Path], ImageList]] = {
    "folder": _read_folder,
    "tiny-imagenet": _read_tiny_imagenet,
    "inaturalist": _read_inaturalist,
}
