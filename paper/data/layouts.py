"""Collections as they are published and unpacked: Tiny-ImageNet, iNaturalist's annotations, arXiv's metadata."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ecrt.data import ImageList
from ecrt.data.images import pictures_below
from ecrt.embedding import Items, image_items, text_items
from ecrt.errors import InputError
from paper.data.kaggle_arxiv import read_arxiv

__all__ = ["published_items", "read_inaturalist", "read_tiny_imagenet"]

TINY_ANNOTATIONS = Path("val") / "val_annotations.txt"


def published_items(name: str, folder: Path) -> Items:
    """What is to be embedded of a data set that lies in ``folder / name``, as ``python -m paper data`` leaves it."""
    place = folder / name
    if name == "tiny_imagenet":
        return image_items(read_tiny_imagenet(place / "tiny-imagenet-200"))
    if name == "inaturalist":
        return image_items(read_inaturalist(place))
    if name == "arxiv":
        found = read_arxiv(place / "arxiv-metadata-oai-snapshot.json")
        return text_items(found.texts, ids=np.array(found.ids), y=found.joined_labels, test=found.test)
    raise InputError(f"{name} has no images or texts to embed; tiny_imagenet, inaturalist and arxiv have.")


def read_tiny_imagenet(folder: Path) -> ImageList:
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


def _annotation_files(folder: Path) -> dict[str, Path]:
    """Annotations by split: train2019.json and val2019.json, of whatever year."""
    found = {}
    for split in ("train", "val"):
        files = [file for file in folder.glob(f"{split}*.json") if file.stem.removeprefix(split).isdigit()]
        if files:
            found[split] = max(files)
    return found


def read_inaturalist(source: Path) -> ImageList:
    """COCO-like annotations: a file such as train2019.json, or the folder with it and val2019.json.

    The files that they name are looked for beside them.
    """
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
