"""Loaders of published data: CIFAR-100 as sheets and in its binary form, and features of images and texts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ecrt.errors import InputError
from paper.data import data_folder, load_arxiv, load_cifar100, load_embeddings
from paper.data.images import read_binary, read_sheet
from paper.data.synthetic import extreme_sources


def tile(label: int, number: int) -> np.ndarray:
    """An image that tells which one it is, and where its corners are."""
    image = np.full((32, 32, 3), (label, number % 250, number // 250), dtype=np.uint8)
    image[0, 0] = (200, 201, 202)
    return image


def write_sheet(file, label: int, n_rows: int, n_columns: int) -> None:
    tiles = [[tile(label, row * n_columns + column) for column in range(n_columns)] for row in range(n_rows)]
    sheet = np.concatenate([np.concatenate(row, axis=1) for row in tiles], axis=0)
    Image.fromarray(sheet).save(file, lossless=True, method=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of 500 and two of 100 training images, 100 test images each: the layout of the real sheets."""
    path = tmp_path_factory.mktemp("data")
    (path / "cifar100").mkdir()
    for label in (0, 1, 50, 51):
        write_sheet(path / "cifar100" / f"train_{label:02d}.webp", label, 20 if label < 50 else 4, 25)
        write_sheet(path / "cifar100" / f"test_{label:02d}.webp", label, 10, 10)
    return path


def test_tiles_run_row_by_row_with_channels_first(folder):
    tiles = read_sheet(folder / "cifar100" / "train_50.webp")
    assert tiles.shape == (100, 3, 32, 32)
    for number, image in enumerate(tiles):
        np.testing.assert_array_equal(image.transpose(1, 2, 0), tile(50, number))


@pytest.mark.parametrize(("protocol", "n_minority"), [("500/50", 50), ("500/5", 5)])
def test_step_protocols(folder, protocol, n_minority):
    data = load_cifar100(protocol, path=folder, n_classes=4)
    assert np.bincount(data.y_train).tolist() == [500, 500, n_minority, n_minority]
    assert np.bincount(data.y_test).tolist() == [100] * 4
    true = np.array([0, 1, 50, 51])
    for images, labels in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert images.dtype == np.uint8
        np.testing.assert_array_equal(images[:, 0, 5, 5], true[labels])
    chosen = data.X_train[data.y_train == 2][:, 1, 5, 5]
    assert len(set(chosen.tolist())) == n_minority
    assert (np.diff(chosen.astype(int)) > 0).all()  # in their order


def test_the_seed_fixes_the_subset(folder):
    same, again, other = (load_cifar100("500/5", path=folder, n_classes=4, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(same.X_train, again.X_train)
    assert not np.array_equal(same.X_train, other.X_train)


def test_exponential_protocol(folder):
    data = load_cifar100("exponential-100", path=folder, n_classes=4)
    # The third class should have 500 * 100^(-2/3) = 23 of the 100 images that there are of it.
    assert np.bincount(data.y_train).tolist() == [500, 107, 23, 5]


def test_exponential_protocol_says_which_class_has_too_few_images(folder, tmp_path):
    (tmp_path / "cifar100").mkdir()
    for file in (folder / "cifar100").iterdir():
        (tmp_path / "cifar100" / file.name).write_bytes(file.read_bytes())
    write_sheet(tmp_path / "cifar100" / "train_50.webp", 50, 1, 20)
    with pytest.raises(InputError, match=r"needs 23 images of class 2, but its sheet holds only 20"):
        load_cifar100("exponential-100", path=tmp_path, n_classes=4)


def test_what_is_wrong_with_sheets_is_said(folder, tmp_path):
    with pytest.raises(InputError, match=r"train_02\.webp does not exist"):
        load_cifar100(path=folder, n_classes=6)
    with pytest.raises(InputError, match="'500/50', '500/5', 'exponential-100'"):
        load_cifar100("500/1", path=folder)
    Image.fromarray(np.zeros((40, 64, 3), dtype=np.uint8)).save(tmp_path / "odd.webp", lossless=True)
    with pytest.raises(InputError, match="64 x 40 pixels, not a sheet of 32 x 32 tiles"):
        read_sheet(tmp_path / "odd.webp")
    (tmp_path / "text.webp").write_text("no image")
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_sheet(tmp_path / "text.webp")


def test_cifar100_in_its_binary_form(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar100" / "cifar-100-binary"
    folder.mkdir(parents=True)
    images = rng.integers(0, 256, (700, 3, 32, 32), dtype=np.uint8)
    labels = np.tile(np.arange(100, dtype=np.uint8), 7)
    for split in ("train", "test"):
        records = np.column_stack([labels // 5, labels, images.reshape(700, -1)])
        records.tofile(folder / f"{split}.bin")
    found = load_cifar100("500/5", path=tmp_path)
    counts = np.bincount(found.y_train)
    assert counts.tolist() == [7] * 50 + [5] * 50
    np.testing.assert_array_equal(found.X_test[found.y_test == 73], images[labels == 73])
    (folder / "train.bin").write_bytes(b"123")
    with pytest.raises(InputError, match="no whole number of records"):
        read_binary(folder / "train.bin")


def test_features_that_embed_wrote_come_before_stored_ones(tmp_path):
    (tmp_path / "inaturalist").mkdir()
    X = np.arange(8, dtype=np.float32).reshape(4, 2)
    test = np.array([False, False, True, True])
    np.savez(tmp_path / "inaturalist" / "embeddings.npz", X=X, y=np.array(["b", "a", "b", "a"]), test=test)
    found = load_embeddings("inaturalist", tmp_path)
    assert found.y_train.tolist() == [1, 0]
    np.testing.assert_array_equal(found.X_test, X[2:])
    (tmp_path / "arxiv").mkdir()
    np.savez(tmp_path / "arxiv" / "embeddings.npz", X=X, y=np.array(["b;a", "a", "b", "a;c"]), test=test)
    several = load_arxiv(tmp_path)
    assert several.names.tolist() == ["a", "b", "c"]
    assert several.y_test.tolist() == [[0, 1, 0], [1, 0, 1]]
    np.savez(tmp_path / "none.npz", X=X, y=np.zeros(4, dtype=int), test=np.zeros(4, dtype=bool))
    with pytest.raises(InputError, match="no test rows"):
        load_embeddings(str(tmp_path / "none.npz"))
    with pytest.raises(InputError, match="python -m paper data tiny_imagenet says where"):
        load_embeddings("tiny_imagenet", tmp_path)


@pytest.fixture
def embeddings(tmp_path):
    (tmp_path / "birds").mkdir()
    np.savez(
        tmp_path / "birds" / "effnet_lite0_pca512.npz",
        x=np.array([[1, -2], [3, 4], [5, 6]], dtype=np.int8),
        scale=np.array([0.5, 2.0], dtype=np.float32),
        y=np.array([0, 1, 1], dtype=np.int16),
        test=np.array([0, 1, 0], dtype=np.uint8),
    )
    return tmp_path


@pytest.mark.parametrize("named_by", ["argument", "environment"])
def test_embeddings_are_scaled_and_split(embeddings, named_by, monkeypatch):
    monkeypatch.delenv("ECRT_DATA", raising=False)
    if named_by == "environment":
        monkeypatch.setenv("ECRT_DATA", str(embeddings))
    split = load_embeddings("birds", embeddings if named_by == "argument" else None)
    assert split.X_train.tolist() == [[0.5, -4.0], [2.5, 12.0]]
    assert split.y_train.tolist() == [0, 1]
    assert split.X_test.tolist() == [[1.5, 8.0]]
    assert split.y_test.tolist() == [1]


def test_missing_data_say_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("ECRT_DATA", raising=False)
    with pytest.raises(InputError, match="ECRT_DATA"):
        data_folder()
    with pytest.raises(InputError, match="nowhere"):
        data_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="birds"):
        load_embeddings("birds", tmp_path)


def test_bayes_classifier_of_a_thousand_classes():
    rng = np.random.default_rng(0)
    sources = extreme_sources(1000, rng)
    data = sources.draw([20] * 1000, rng)
    predicted = np.concatenate([sources.log_posterior(part).argmax(axis=1) for part in np.split(data.s, 10)])
    assert np.abs(sources.means).max() <= 4
    assert (predicted == data.y).mean() == pytest.approx(0.1056, abs=0.01)
