r"""Transfer inside training: rare classes borrow, among sources, how features of other classes vary.

An encoder that predicts with its own head ends by putting training features onto their class means, and nothing can be
learned from such features. So de-mixing happens once, when the last epochs begin, and from then on the loss of a
sample of a rare class is taken over a cloud of features around it, with gradients into head and encoder:
:math:`(1 - \lambda) \ell(h(z)) + \lambda E\, \ell(h(z + f^{-1}\epsilon))`. The mass of a class does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.flows import class_moments, fit_linear_demixing, within_class_residuals
from ecrt.losses.isda import isda_shift
from ecrt.nn import column_extent
from ecrt.nn.randomness import generator_on

__all__ = ["DeferredKind", "DeferredTransfer", "FeatureTransfer"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Losses = Callable[[Tensor, Tensor], Tensor]
"""Logits and labels to one loss for each sample."""

DeferredKind = Literal["parametric", "borrowed", "closed-form"]


@dataclass(frozen=True, kw_only=True)
class DeferredTransfer:
    r"""How rare classes are augmented while the encoder still learns.

    Attributes
    ----------
    kind : ``"parametric"`` draws every source on its own, from a Gaussian of the class's shrunk variance;
        ``"borrowed"`` takes whole rows of residuals of the other classes, stretched to that variance; ``"closed-form"``
        draws nothing: the upper bound of the expected loss under the parametric cloud (ISDA's, with variances that are
        shrunk towards those of the other classes).
    share : of the epochs, the last ones, that have it.
    strength : what those variances are multiplied by.
    weight : lambda, the share of a sample's loss that its cloud has; the closed form has all of it.
    n_drawn : features drawn around every sample.
    pseudo_samples : nu of the shrunk variance.
    """

    kind: DeferredKind = "parametric"
    share: float = 0.25
    strength: float = 1.0
    weight: float = 0.5
    n_drawn: int = 4
    pseudo_samples: float = 10.0

    def first_epoch(self, epochs: int) -> int:
        """The epoch, counted from 0, that it begins with."""
        return round(epochs * (1 - self.share))


class FeatureTransfer:
    """De-mixing and variances of one moment of training, kept on the device.

    Parameters
    ----------
    z, y : features and classes of the rows that are learned from, at the moment when transfer begins.
    augmented_m : classes that borrow; the others lend.
    """

    def __init__(
        self, config: DeferredTransfer, z: Array, y: Labels, augmented_m: NDArray[np.bool_], device: torch.device
    ) -> None:
        lent = ~augmented_m[y]
        if len(np.unique(y[lent])) < 2:
            raise InputError("Transfer needs at least two classes that lend; all or all but one are rare here.")
        self.config = config
        linear = fit_linear_demixing(z[lent], y[lent], spread=z.std(axis=0), extent=column_extent(z))
        with torch.no_grad():
            s, _ = linear(torch.from_numpy(z))
        residuals, _, counts = within_class_residuals(s[lent].numpy(), y[lent])
        within = (residuals**2).sum(axis=0) / max(len(residuals) - len(counts), 1)
        labels, _, variances = class_moments(
            s, torch.from_numpy(y), torch.from_numpy(within), pseudo_samples=config.pseudo_samples
        )
        variance_mk = torch.zeros(len(augmented_m), s.shape[1], dtype=torch.float64)
        variance_mk[labels] = variances
        variance_mk[~torch.from_numpy(augmented_m)] = 0.0
        unit_kk = torch.eye(s.shape[1], dtype=torch.float64)
        mixing_kd = linear.inverse(unit_kk) - linear.inverse(torch.zeros_like(unit_kk))
        self.augmented_m = torch.from_numpy(augmented_m).to(device)
        self.variance_mk = (config.strength * variance_mk).float().to(device)
        self.mixing_kd = mixing_kd.float().to(device)
        self.residual_rk = torch.from_numpy(residuals / np.sqrt(within)).float().to(device)

    def losses(self, z_nd: Tensor, y_n: Tensor, head: nn.Module, loss: Losses) -> Tensor:
        """One loss for each sample; those of classes that lend are the plain ones."""
        if self.config.kind == "closed-form":
            return loss(head(z_nd) + 0.5 * self.shift(head)[y_n], y_n)
        cloud = z_nd[:, None] + self.draw(y_n)
        drawn = loss(head(cloud.flatten(0, 1)), y_n.repeat_interleave(self.config.n_drawn)).view(len(y_n), -1).mean(1)
        share_n = self.config.weight * self.augmented_m[y_n].to(drawn.dtype)
        return (1 - share_n) * loss(head(z_nd), y_n) + share_n * drawn

    def draw(self, y_n: Tensor) -> Tensor:
        """Deviations in feature space, ``n_drawn`` for each sample; none for classes that lend."""
        shape, generator = (len(y_n), self.config.n_drawn), generator_on(y_n.device)
        if self.config.kind == "borrowed":
            source = self.residual_rk[
                torch.randint(len(self.residual_rk), shape, generator=generator, device=y_n.device)
            ]
        else:
            source = torch.randn(*shape, self.mixing_kd.shape[0], generator=generator, device=y_n.device)
        return (source * self.variance_mk[y_n].sqrt()[:, None]) @ self.mixing_kd

    def shift(self, head: nn.Module) -> Tensor:
        """What the closed form adds to logits, a row for each true class, in the basis of the sources."""
        if not isinstance(head, nn.Linear):
            raise InputError("kind='closed-form' needs a linear head; use 'parametric' or 'borrowed' with another.")
        return isda_shift(head.weight @ self.mixing_kd.T, self.variance_mk)
