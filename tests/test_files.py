"""Files of every kind to rows, labels and ids; and what is said of files that cannot be read."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ecrt.data import Images, read_data
from ecrt.errors import ECRTWarning, InputError

RNG = np.random.default_rng(0)


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


def test_numbers_and_dates_that_a_file_holds_as_such_need_no_reading(tmp_path):
    """A model of a text file with 2.871,250 and 22.06.2021: text is read like that, a stored 2.871 is 2.871."""
    days = pd.date_range("2021-01-01", periods=40, freq="37h")
    rows = [f"{row % 9 + 1}.{row * 37 % 900:03d},{row:03d};{day:%d.%m.%Y}" for row, day in enumerate(days)]
    lines = [f"{line};{row * 29 % 40 + 1}.{row + 100},5;a" for row, line in enumerate(rows)]
    (tmp_path / "fit.csv").write_text("\n".join(["kg;day;y;label", *lines]))
    columns = read_data(tmp_path / "fit.csv", target=["y"]).columns

    def read(file):
        data = read_data(tmp_path / file, target=["y"], columns=columns)
        assert data.X["day"].tolist() == [pd.Timestamp("2021-06-22")] * len(data.X)
        return [*data.X["kg"].tolist(), *data.y.tolist()]

    stored = {"kg": [2.871, 3], "day": [datetime(2021, 6, 22)] * 2, "label": "a", "y": [1.234, 7.5]}
    mixed = stored | {"kg": [2.871, "3.000,5"], "day": [datetime(2021, 6, 22), "22.06.2021"], "y": [1.234, "1.234"]}
    for name, values in {"stored": stored, "mixed": mixed}.items():
        table = pd.DataFrame({key: pd.Series(value, dtype=object) for key, value in values.items()}).ffill()
        table.to_excel(tmp_path / f"{name}.xlsx", index=False)
        table["day"] = "22.06.2021"
        (tmp_path / f"{name}.json").write_text(json.dumps(table.to_dict("records")))
        expected = [2.871, 3, 1.234, 7.5] if name == "stored" else [2.871, 3000.5, 1.234, 1234]
        assert read(f"{name}.xlsx") == read(f"{name}.json") == expected
    exact = {"kg": [Decimal("2.871"), Decimal("3")], "day": [date(2021, 6, 22)] * 2, "label": "a", "y": [1.234, 7.5]}
    pd.DataFrame(exact).to_parquet(tmp_path / "stored.parquet")
    assert read("stored.parquet") == [2.871, 3, 1.234, 7.5]


def test_stored_values_among_text_at_fit(tmp_path):
    """Sheets in which cells of a column are partly numbers or dates, and partly text."""
    numbers = [value if row % 3 else f"{value:.2f}".replace(".", ",") for row, value in enumerate(np.arange(60) / 4)]
    days = pd.date_range("2021-01-01", periods=60, freq="37h").normalize()
    dates = [day if row % 3 else f"{day:%d.%m.%Y}" for row, day in enumerate(days)]
    labels = ["a", "b"] * 30
    sheet = pd.DataFrame({"x": numbers, "day": dates, "label": labels}, dtype=object).sample(frac=1, random_state=0)
    sheet.to_excel(tmp_path / "a.xlsx", index=False)
    data = read_data(tmp_path / "a.xlsx", target=["label"])
    assert [(one.decimal, one.writing, one.note) for one in data.columns[:2]] == [
        (",", "", ""),
        ("", "day.month.year", ""),
    ]
    assert data.X["x"].tolist() == (sheet.index / 4).tolist()
    assert data.X["day"].tolist() == days[sheet.index].tolist()
    pd.DataFrame({"x": [*np.arange(59) / 8, "n.d."], "day": [*days[1:], "soon"], "label": labels}).sample(
        frac=1, random_state=0
    ).to_excel(tmp_path / "b.xlsx", index=False)
    with pytest.warns(ECRTWarning, match=r"1 value, '(n\.d\.|soon)', is read as missing"):
        data = read_data(tmp_path / "b.xlsx", target=["label"])
    assert [(one.kind, one.unreadable, one.writing) for one in data.columns[:2]] == [
        ("number", 1, ""), ("date", 1, "year-month-day")
    ]  # fmt: skip


def test_column_names_of_a_sheet_are_as_they_stand(tmp_path):
    """A second column of the target must not be learned from under another name."""
    rows = [[value / 4, row % 3, "ab"[row % 2]] for row, value in enumerate(RNG.permutation(60))]

    def write(names, rows):
        pd.DataFrame([names, *rows]).to_excel(tmp_path / "a.xlsx", index=False, header=False)
        return tmp_path / "a.xlsx"

    with pytest.raises(InputError, match=r"a\.xlsx: the column names \['label'\] occur more than once"):
        read_data(write(["x", "label", "label"], rows), target=["label"])
    with pytest.warns(ECRTWarning, match="1 row that repeats the column names: left out"):
        data = read_data(write(["x", 2021, "label"], [*rows[:20], ["x", 2021, "label"], *rows[20:]]), target=["label"])
    assert list(data.X) == ["x", "2021"]
    assert data.y.tolist() == [row[2] for row in rows]


def test_durations_of_a_sheet_are_numbers(tmp_path):
    hours = RNG.integers(0, 90, 60)
    durations = [timedelta(hours=int(hour), minutes=30) for hour in hours]
    sheet = pd.DataFrame({"worked": durations, "label": ["a", "b"] * 30}, dtype=object)
    with pd.ExcelWriter(tmp_path / "a.xlsx") as writer:
        sheet.to_excel(writer, index=False)
        for row in range(2, 62):
            writer.sheets["Sheet1"].cell(row, 1).number_format = "[h]:mm:ss"
    data = read_data(tmp_path / "a.xlsx", target=["label"])
    np.testing.assert_allclose(data.X["worked"], 3600 * hours + 1800)


def test_lines_with_one_value_more_than_names(tmp_path):
    """R writes such files; so do programs that put no quotes around decimal commas."""
    file = tmp_path / "a.csv"
    file.write_text(
        "x,label\n" + "".join(f"r{row},{value / 4},{'ab'[row % 2]}\n" for row, value in enumerate(range(60)))
    )
    with pytest.warns(ECRTWarning, match="the first is read as the name of the row"):
        assert list(read_data(file, target=["label"]).X) == ["x"]
    file.write_text("x,label\n" + "".join(f"{row % 7},{row % 5},{'ab'[row % 2]}\n" for row in range(60)))
    with pytest.raises(InputError, match="line 2 has 3 values, but there are 2 columns"):
        read_data(file, target=["label"])


def test_objects_as_targets_are_refused(tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"x": row / 4, "y": {"label": "ab"[row % 2]}} for row in range(60)]))
    with pytest.raises(InputError, match="Target 'y' holds objects"):
        read_data(file, target=["y"])


def test_durations_of_a_parquet_file_are_the_times_of_a_text_file(tmp_path):
    (tmp_path / "a.csv").write_text(
        "t,label\n" + "".join(f"{row % 9}:{row}:30,{'ab'[row % 2]}\n" for row in range(10, 50))
    )
    columns = read_data(tmp_path / "a.csv", target=["label"]).columns
    pd.DataFrame({"t": pd.to_timedelta(["1h", "90s"])}).to_parquet(tmp_path / "a.parquet")
    assert read_data(tmp_path / "a.parquet", columns=columns).X["t"].tolist() == [3600, 90]
    pd.DataFrame({"t": [3600.0, 90.0]}).to_parquet(tmp_path / "b.parquet")  # minutes or seconds?
    with pytest.raises(InputError, match="'t': 100% unreadable"):
        read_data(tmp_path / "b.parquet", columns=columns)


def test_question_marks_are_missing_values(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,0\n?,1\n")
    data = read_data(tmp_path / "a.csv", target=["label"])
    assert data.X["x"].isna().tolist() == [False, True]
    assert data.y.tolist() == [0, 1]
    assert data.ids["row"].tolist() == [0, 1]


def with_password() -> bytes:
    """A zip file that says of its only file that it is encrypted."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "x,label\n1,0\n")
    content = bytearray(packed.getvalue())
    content[6] |= 1
    content[content.find(b"PK\1\2") + 8] |= 1
    return bytes(content)


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
        ("a.json", b'[{"x": 1, "x": 2, "label": 0}]', r"a.json cannot be read: .* \['x'\] more than once"),
        ("a.jsonl", b'{"x": 1, "x": 2, "label": 0}', r"\['x'\] more than once"),
        ("a.zip", with_password(), "a.zip cannot be read: .* password"),
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
