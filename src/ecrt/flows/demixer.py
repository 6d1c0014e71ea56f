"""The de-mixing function whole: linear map, then a flow on the signal, with the source prior beside it."""

from __future__ import annotations

import math

from torch import Tensor, nn

from ecrt.flows.linear import LinearDemixing
from ecrt.flows.maf import MaskedFlow
from ecrt.flows.priors import ClassPrior, SharedPrior

__all__ = ["Demixer"]


class Demixer(nn.Module):
    """s = f(z), with its inverse and likelihood.

    Parameters
    ----------
    linear : the linear de-mixing.
    prior : p(s | y) of the signal; the rest is N(0, I) and knows no class.
    flow : a correction on top of the linear map; ``None`` for linear de-mixing alone.
    """

    def __init__(self, linear: LinearDemixing, prior: SharedPrior | ClassPrior, flow: MaskedFlow | None = None) -> None:
        super().__init__()
        self.linear = linear
        self.flow = flow
        self.prior = prior

    def forward(self, z_nd: Tensor) -> Tensor:
        """Signal sources."""
        signal_nq, _ = self.linear(z_nd)
        return signal_nq if self.flow is None else self.flow(signal_nq)[0]

    def inverse(self, s_nq: Tensor) -> Tensor:
        """Features whose signal is ``s_nq`` and whose rest is at its mean: ``forward(inverse(s))`` is s."""
        z_nd: Tensor = self.linear.inverse(s_nq if self.flow is None else self.flow.inverse(s_nq))
        return z_nd

    def sources_and_volume(self, z_nd: Tensor) -> tuple[Tensor, Tensor]:
        """Signal sources, and log p(z | y) less that of the signal's prior: what knows no class."""
        signal_nq, rest_nr = self.linear(z_nd)
        log_rest_n = -0.5 * (rest_nr**2 + math.log(2 * math.pi)).sum(1)
        log_det_n = self.linear.log_det
        if self.flow is not None:
            signal_nq, flow_log_det_n = self.flow(signal_nq)
            log_det_n = log_det_n + flow_log_det_n
        return signal_nq, log_rest_n + log_det_n

    def log_prob(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """log p(z | y)."""
        signal_nq, log_volume_n = self.sources_and_volume(z_nd)
        log_prob_n: Tensor = self.prior(signal_nq, y_n) + log_volume_n
        return log_prob_n
