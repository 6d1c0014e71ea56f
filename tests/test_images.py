"""CIFAR-100 sheets, imbalance protocols, and random views of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from ecrt.data.cifar import load_cifar100, read_sheet
from ecrt.data.images import crop_and_flip
from ecrt.errors import InputError
from ecrt.nn import StandardiseChannels


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


# --- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("flip", [False, True])
def test_every_view_is_a_crop_of_the_padded_image_or_of_its_mirror_image(dtype, flip):
    torch.manual_seed(0)
    x = torch.randint(1, 255, (300, 2, 5, 7)).to(dtype)
    views = crop_and_flip(x, 2, flip=flip)
    assert views.dtype == dtype
    assert views.shape == x.shape
    found = set()
    for image, view in zip(x, views, strict=True):
        padded = torch.zeros(2, 9, 11, dtype=dtype)
        padded[:, 2:7, 2:9] = image
        crops = {
            (top, left, mirrored): crop.flip(2) if mirrored else crop
            for top in range(5)
            for left in range(5)
            for mirrored in ((False, True) if flip else (False,))
            for crop in [padded[:, top : top + 5, left : left + 7]]
        }
        matching = [key for key, crop in crops.items() if torch.equal(crop, view)]
        assert len(matching) == 1
        found.update(matching)
    assert len(found) == 25 * (2 if flip else 1)  # with 300 draws all of them occur


def test_nothing_to_shift_or_mirror_leaves_images_as_they_are():
    x = torch.randint(0, 255, (4, 3, 6, 6), dtype=torch.uint8)
    assert torch.equal(crop_and_flip(x, 0, flip=False), x)
    assert crop_and_flip(x, 2).is_contiguous(memory_format=torch.channels_last)


def test_standardised_channels_have_mean_zero_and_deviation_one():
    torch.manual_seed(0)
    x = (torch.randn(40, 3, 8, 8) * torch.tensor([5.0, 20, 40])[:, None, None] + 120).clamp(0, 255).to(torch.uint8)
    values = StandardiseChannels.of(x)(x.float())
    torch.testing.assert_close(values.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(values.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_a_channel_without_contrast_is_not_divided_by_zero():
    assert torch.isfinite(
        StandardiseChannels.of(torch.zeros(2, 1, 3, 3, dtype=torch.uint8))(torch.ones(1, 1, 3, 3))
    ).all()
