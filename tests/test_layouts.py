"""Folders of images, with and without classes and splits."""

from __future__ import annotations

import pytest
from PIL import Image

from ecrt.data import read_data, read_image_list
from ecrt.errors import InputError


def paint(file, shade=0, size=(8, 6)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 255 - shade, 30)).save(file)
    return file


def test_folder_of_classes_with_splits(tmp_path):
    for split in ("train", "val", "test"):
        for label in ("cat", "dog"):
            paint(tmp_path / split / label / "deeper" / f"{split}.png")
    found = read_image_list(tmp_path)
    assert sorted(zip(found.splits, found.labels, strict=True)) == [
        (split, label) for split in ("test", "train", "val") for label in ("cat", "dog")
    ]
    assert all((tmp_path / file).is_file() for file in found.files)
    with pytest.raises(InputError, match=r"split into.*name one of these folders"):
        read_data(tmp_path, target=["class"])
    assert set(read_data(tmp_path / "train", target=["class"]).y) == {"cat", "dog"}


def test_a_class_may_be_called_train(tmp_path):
    for label in ("train", "car"):
        paint(tmp_path / label / "1.png")
    found = read_image_list(tmp_path)
    assert list(found.labels) == ["car", "train"]
    assert set(found.splits) == {"train"}


def test_images_without_classes(tmp_path):
    paint(tmp_path / "a.png")
    assert read_image_list(tmp_path).labels is None
    paint(tmp_path / "cat" / "b.png")
    with pytest.raises(InputError, match=r"a\.png is in no folder of a class"):
        read_image_list(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no images"):
        read_image_list(tmp_path)
    with pytest.raises(InputError, match="no file or folder"):
        read_image_list(tmp_path / "nowhere")
