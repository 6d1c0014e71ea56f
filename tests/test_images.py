"""Random views of images, and standardised channels."""

from __future__ import annotations

import pytest
import torch

from ecrt.data.images import crop_and_flip
from ecrt.nn import StandardiseChannels

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
