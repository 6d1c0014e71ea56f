"""Files of every kind to rows, labels and ids; and what is said of files that cannot be read."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ecrt.data import Images, read_data
from ecrt.errors import InputError


@pytest.fixture
def table():
    return pd.DataFrame({
        "id": ["a", "b", "c"], "x": [1.5, None, 3.0], "kind": ["p", " q", None], "label": ["yes", "no ", "yes"]
    })  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "semicolon.csv", "tsv", "jsonl", "parquet"])
def test_the_same_table_from_every_kind_of_file(table, tmp_path, kind):
    file = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        table.to_json(file, orient="records", lines=True)
    elif kind == "parquet":
        table.to_parquet(file)
    else:
        table.to_csv(file, index=False, sep={"tsv": "\t", "semicolon.csv": ";"}.get(kind, ","))
    data = read_data(file, target=["label"], ids=["id"])
    assert data.y.tolist() == ["yes", "no", "yes"]
    assert data.ids["id"].tolist() == ["a", "b", "c"]
    assert list(data.X) == ["x", "kind"]
    assert data.X["x"].isna().tolist() == [False, True, False]
    assert data.take(np.array([2])).y.tolist() == ["yes"]


def test_question_marks_are_missing_values(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,0\n?,1\n")
    data = read_data(tmp_path / "a.csv", target=["label"])
    assert data.X["x"].isna().tolist() == [False, True]
    assert data.y.tolist() == [0, 1]
    assert data.ids["row"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x,labell\n1,0\n", "did you mean 'labell'"),
        ("a.csv", b"", "cannot be read"),
        ("a.csv", b"x,label\n", "no rows"),
        ("a.csv", b"\xff\xfe\x00x", "no rows"),
        ("a.csv", b"x,label\n1,\x00\n", "line 2 holds NUL bytes"),
        ("a.jsonl", b'{"x": 1,', "cannot be read"),
        ("a.jsonl", b'{"x": [1, 2], "label": 0}\n', r"\['x'\] hold lists"),
        ("a.parquet", b"PAR1 rubbish", "cannot be read"),
        ("a.npz", b"PK rubbish", "cannot be read"),
        ("a.xlsx", b"", "cannot be read"),
        ("a.xls", b"", "Save it as CSV"),
        ("a.dat", b"", "what kind of file"),
        ("a.csv.gz", gzip.compress(b"x\n1\n", mtime=0)[:-9], "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_data(file, target=["label"])


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "target.csv"])
def test_a_value_too_large_is_named_with_its_row_in_the_file(tmp_path, name):
    file, X, y = tmp_path / name, np.eye(40, 2, dtype=np.float32), np.arange(40) % 2
    X[31, 1] = np.inf
    if name == "a.npz":
        np.savez(file, X=X, y=y)
    else:
        rows = [f"{place % 7},{'1e200' if place == 31 else place % 3 + 0.5},{place % 2}" for place in range(40)]
        file.write_text("\n".join(["a,b,y", *rows]))
    target = "b" if name == "target.csv" else "y"
    with pytest.raises(InputError, match=rf"{name} contains .* row 32 \(the first is 1\)"):
        read_data(file, target=[target])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no file or folder"):
        read_data(tmp_path / "nowhere.csv")


def test_arrays(tmp_path):
    file = tmp_path / "a.npz"
    np.savez(file, X=np.eye(3), y=[0, 1, 1], ids=["a", "b", "c"])
    data = read_data(file, target=["y"])
    assert data.X.shape == (3, 3)
    assert data.ids["id"].tolist() == ["a", "b", "c"]
    with pytest.raises(InputError, match="no array 'labels'"):
        read_data(file, target=["labels"])
    np.savez(file, X=np.eye(3), y=[0, 1])
    with pytest.raises(InputError, match="differ in length"):
        read_data(file, target=["y"])
    np.savez(file, X=np.array([{}], dtype=object), y=[0])
    with pytest.raises(InputError, match="cannot be read"):
        read_data(file, target=["y"])


def test_a_folder_of_images(tmp_path):
    for label, colour in (("cat", 255), ("dog", 0)):
        (tmp_path / label).mkdir()
        Image.new("L", (10, 20), colour).save(tmp_path / label / "one.png")
    data = read_data(tmp_path, target=["label"], image_size=8)
    assert isinstance(data.X, Images)
    assert data.y.tolist() == ["cat", "dog"]
    image, label = data.X[0]
    assert image.shape == (3, 8, 8)
    assert image.min() == 1.0
    assert label == "cat"
    assert read_data(tmp_path).X[1].max() == -1.0
    (tmp_path / "dog" / "two.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"two\.png cannot be read"):
        read_data(tmp_path, target=["label"])
    (tmp_path / "dog" / "two.png").rename(tmp_path / "two.png")
    with pytest.raises(InputError, match=r"two\.png is in no folder of a class"):
        read_data(tmp_path, target=["label"])
