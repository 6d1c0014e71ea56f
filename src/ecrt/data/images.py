"""Random views of images, made for a whole batch at once on the device that trains on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
