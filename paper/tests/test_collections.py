"""Collections as they are published, made small in exactly their layout, and what is said of broken ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ecrt.errors import InputError
from paper.__main__ import app
from paper.data import load_arxiv, load_embeddings
from paper.data.kaggle_arxiv import nearly_balanced_rows, read_arxiv
from paper.data.layouts import published_items, read_inaturalist, read_tiny_imagenet


def paint(file, shade=0, size=(8, 6)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 255 - shade, 30)).save(file)
    return file


@pytest.fixture
def tiny(tmp_path):
    """Tiny-ImageNet: two classes, three training images each, two validation images, a test image without label."""
    root = tmp_path / "tiny-imagenet-200"
    for label in ("n01443537", "n01629819"):
        for number in range(3):
            paint(root / "train" / label / "images" / f"{label}_{number}.JPEG", 40 * number)
        (root / "train" / label / f"{label}_boxes.txt").write_text("")
    for number in range(2):
        paint(root / "val" / "images" / f"val_{number}.JPEG")
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn01629819\t0\t32\t44\t62\nval_1.JPEG\tn01443537\t0\t0\t63\t63\n"
    )
    paint(root / "test" / "images" / "test_0.JPEG")
    return root


@pytest.fixture
def inaturalist(tmp_path):
    """iNaturalist 2019: annotations of both splits beside the images, in folders of super category and category."""
    root = tmp_path / "inaturalist"
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        files = [f"train_val2019/Plants/{number % 2}/{number:032x}.jpg" for number in numbers]
        for file in files:
            paint(root / file)
        (root / f"{split}2019.json").write_text(json.dumps({
            "info": {"year": 2019},
            "images": [{"id": number, "width": 8, "height": 6, "file_name": file, "license": 0, "rights_holder": ""}
                       for number, file in zip(numbers, files, strict=True)],
            "categories": [{"id": 0, "name": "Salvia"}, {"id": 1, "name": "Lupinus"}],
            "annotations": [{"id": number, "image_id": number, "category_id": number % 2} for number in numbers],
            "licenses": [],
        }))  # fmt: skip
    return root


def test_tiny_imagenet(tiny):
    found = read_tiny_imagenet(tiny)
    assert len(found.files) == 8  # the test image has no label, and is left out
    assert found.labels[:6].tolist() == ["n01443537"] * 3 + ["n01629819"] * 3
    by_file = dict(zip(found.files, found.labels, strict=True))
    assert by_file["val/images/val_0.JPEG"] == "n01629819"
    assert found.splits.tolist() == ["train"] * 6 + ["val"] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("val_9.JPEG\tn01443537\t0", r"line 3: there is no file val/images/val_9\.JPEG"),
        ("val_0.JPEG n01443537", "line 3: expected a file and a class with a tab"),
        ("val_0.JPEG\tn000\t0", "line 3: the class 'n000' has no folder in train"),
    ],
)
def test_tiny_imagenet_names_the_line_at_fault(tiny, line, message):
    with (tiny / "val" / "val_annotations.txt").open("a") as annotations:
        annotations.write(line + "\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt, " + message):
        read_tiny_imagenet(tiny)


def test_inaturalist(inaturalist):
    found = read_inaturalist(inaturalist)
    assert found.splits.tolist() == ["train"] * 4 + ["val"] * 2
    assert found.labels.tolist() == ["Salvia", "Lupinus"] * 3
    alone = read_inaturalist(inaturalist / "val2019.json")
    assert alone.files == found.files[4:]
    assert set(alone.splits) == {"val"}


def _break(inaturalist, change):
    file = inaturalist / "train2019.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["annotations"][2].pop("category_id"), r"annotations\[2\] has no 'category_id'"),
        (lambda c: c["annotations"][1].update(category_id=7), r"annotations\[1\]: category_id 7 is not among"),
        (lambda c: c["annotations"][1].update(image_id=70), r"annotations\[1\]: image_id 70 is not among"),
        (lambda c: c["annotations"].pop(), r"\(id 3\) has no annotation"),
        (lambda c: c["annotations"].append({"image_id": 0, "category_id": 1}), "image_id 0 has a second category"),
        (lambda c: c["images"][0].update(file_name="gone.jpg"), r"gone\.jpg does not exist; unpack"),
        (lambda c: c.pop("categories"), "no list 'categories'"),
    ],
)
def test_inaturalist_names_the_entry_at_fault(inaturalist, change, message):
    _break(inaturalist, change)
    with pytest.raises(InputError, match=r"train2019\.json.*" + message):
        read_inaturalist(inaturalist)


def test_inaturalist_names_the_line_of_broken_json(inaturalist):
    (inaturalist / "train2019.json").write_text('{"images": [\n {"id": 1,}\n]}')
    with pytest.raises(InputError, match=r"train2019\.json, line 2, column"):
        read_inaturalist(inaturalist)


def test_two_species_of_one_name_stay_apart(inaturalist):
    _break(inaturalist, lambda content: content["categories"][1].update(name="Salvia"))
    assert set(read_inaturalist(inaturalist / "train2019.json").labels) == {"Salvia (0)", "Salvia (1)"}


# --- Kaggle's arXiv -----------------------------------------------------------------------------------------------


def record(number, categories):
    return {
        "id": f"0704.{number:04d}", "submitter": "A", "authors": "B", "title": f"Title\n  {number}", "comments": None,
        "journal-ref": None, "doi": None, "report-no": None, "categories": categories, "license": None,
        "abstract": f"  Text number {number}\nof two lines.\n", "versions": [], "update_date": "2008-11-26",
        "authors_parsed": [],
    }  # fmt: skip


@pytest.fixture
def snapshot(tmp_path):
    """60 rows of math.CO, every second of cs.LG too, every tenth of stat.ML too, and one of a rare category alone."""
    file = tmp_path / "arxiv-metadata-oai-snapshot.json"
    rows = []
    for number in range(60):
        categories = ["math.CO"] + ["cs.LG"] * (number % 2 == 0) + ["stat.ML"] * (number % 10 == 0)
        rows.append(record(number, " ".join(categories)))
    rows.append(record(60, "acc-phys"))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_arxiv_leaves_rare_labels_out(snapshot):
    found = read_arxiv(snapshot, least=6)
    assert found.names.tolist() == ["cs.LG", "math.CO", "stat.ML"]
    assert len(found.texts) == 60  # the row of the rare label alone has nothing left
    assert found.texts[3] == "Title 3. Text number 3 of two lines."
    assert found.y.sum(axis=0).tolist() == [30, 60, 6]
    assert found.joined_labels[0] == "cs.LG;math.CO;stat.ML"
    assert found.y[found.test].sum(axis=0).min() >= 3
    fewer = read_arxiv(snapshot, n_rows=30, least=2)
    assert len(fewer.texts) <= 30
    assert read_arxiv(snapshot, n_rows=30, least=2).ids == fewer.ids
    with pytest.raises(InputError, match="no category has 100"):
        read_arxiv(snapshot, least=100)


def test_nearly_balanced_rows_serve_every_label():
    rng = np.random.default_rng(0)
    y = (rng.random((2000, 6)) < [0.5, 0.2, 0.1, 0.05, 0.02, 0.01]).astype(np.uint8)
    chosen = nearly_balanced_rows(y, 10, rng)
    counts = y[chosen].sum(axis=0)
    assert (counts >= np.minimum(10, y.sum(axis=0) // 2)).all()
    assert len(chosen) <= 60  # ten for each label at most, though rows count for several


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "1", "categories": "cs.LG"', r"line 62: no JSON"),
        ("[1, 2]", "line 62: expected an object"),
        ('{"id": "1", "title": "t", "abstract": "a"}', "line 62: no text under 'categories'"),
    ],
)
def test_arxiv_names_the_line_at_fault(snapshot, line, message):
    with snapshot.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"oai-snapshot\.json, " + message):
        read_arxiv(snapshot)


# --- features -----------------------------------------------------------------------------------------------------


def embed_published(folder, name, backbone, monkeypatch):
    monkeypatch.setenv("ECRT_DATA", str(folder))
    done = CliRunner().invoke(app, ["embed", name, "--backbone", backbone, "--device", "cpu"])
    assert done.exit_code == 0, done.output


def test_embedded_images_are_what_recipes_read(tiny, tmp_path, monkeypatch):
    (tmp_path / "tiny_imagenet").mkdir()
    tiny.rename(tmp_path / "tiny_imagenet" / "tiny-imagenet-200")
    embed_published(tmp_path, "tiny_imagenet", "pixels:2", monkeypatch)
    split = load_embeddings("tiny_imagenet")
    assert split.X_train.shape == (6, 12)
    assert split.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert split.y_test.tolist() == [1, 0]


def test_embedded_abstracts_are_what_recipes_read(snapshot, tmp_path, monkeypatch):
    (tmp_path / "arxiv").mkdir()
    snapshot.rename(tmp_path / "arxiv" / snapshot.name)
    embed_published(tmp_path, "arxiv", "words:16", monkeypatch)
    split = load_arxiv()
    assert split.names.tolist() == ["cs.LG", "math.CO"]  # stat.ML has fewer than 20 rows
    assert len(split.y_train) + len(split.y_test) == 60
    assert split.y_test.sum(axis=0).min() >= 10


def test_what_has_nothing_to_embed_is_said(inaturalist, tmp_path):
    assert len(published_items("inaturalist", tmp_path)) == 6
    with pytest.raises(InputError, match="mnist has no images or texts to embed"):
        published_items("mnist", tmp_path)
