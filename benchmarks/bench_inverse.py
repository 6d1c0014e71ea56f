"""The inverse of a trained flow beside its forward pass and beside zuko's inverse, on the CPU or with --device cuda.

Each ratio is of medians of runs made in turn. The forward pass is the faster of zuko's, without the log-determinant,
and ours, with it.
"""

from __future__ import annotations

from typing import Any

import torch
from measuring import arguments, interleaved, write
from torch import Tensor

from ecrt.flows import MaskedFlow, invert_plain, ordered_block

TRAINING_STEPS = 100


def trained_flow(d: int, device: str) -> MaskedFlow:
    """Four blocks of 128 x 2, trained by likelihood on curved data until it is far from the identity."""
    torch.manual_seed(0)
    flow = MaskedFlow(d).to(device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for _ in range(TRAINING_STEPS):
        z = data(512, d, device)
        s, log_det = flow(z)
        loss = (0.5 * s.square().sum(1) - log_det).mean() / d
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return flow.requires_grad_(False)


def data(n: int, d: int, device: str) -> Tensor:
    """Every coordinate a curved function of the one before, with noise."""
    noise = torch.randn(n, d, device=device)
    columns = [noise[:, 0]]
    for k in range(1, d):
        columns.append(torch.sin(1.5 * columns[-1]) + (0.4 + 0.2 * torch.tanh(columns[-1])) * noise[:, k])
    return torch.stack(columns, 1)


def zuko_forward(flow: MaskedFlow, z: Tensor) -> Tensor:
    for block in flow.blocks:
        z = block()(z)
    return z


def zuko_inverse(flow: MaskedFlow, s: Tensor) -> Tensor:
    for block in reversed(flow.blocks):
        s = block().inv(s)
    return s


def plain_inverse(flow: MaskedFlow, s: Tensor) -> Tensor:
    for block, order in reversed(list(zip(flow.blocks, flow._orders, strict=True))):
        s = invert_plain(ordered_block(block, order), s, 2.0)
    return s


def measure(flow: MaskedFlow, d: int, n: int, repeats: int, device: str, *, with_zuko: bool) -> dict[str, Any]:
    z = data(n, d, device).to(next(flow.parameters()).dtype)
    s = flow(z)[0]
    rivals = {
        "our_forward": lambda: flow(z),
        "zuko_forward": lambda: zuko_forward(flow, z),
        "our_inverse": lambda: flow.inverse(s),
    }
    if n <= 4096:
        rivals["our_inverse_plain_torch"] = lambda: plain_inverse(flow, s)
    if with_zuko:
        rivals["zuko_inverse"] = lambda: zuko_inverse(flow, s)
    seconds = interleaved(rivals, repeats, device)
    forward = min(seconds["our_forward"], seconds["zuko_forward"])
    result = {
        "d": d,
        "rows": n,
        "dtype": str(z.dtype).removeprefix("torch."),
        "seconds": seconds,
        "inverse_over_forward": seconds["our_inverse"] / forward,
        "error": (flow.inverse(s) - z).abs().max().item(),
        "distance_from_identity": (s - z).abs().mean().item(),
    }
    if with_zuko:
        result["zuko_inverse_over_ours"] = seconds["zuko_inverse"] / seconds["our_inverse"]
        result["zuko_error"] = (zuko_inverse(flow, s) - z).abs().max().item()
    print(result, flush=True)
    return result


@torch.no_grad()
def main() -> None:
    chosen = arguments(__doc__)
    cases = []
    for d in (64, 128):
        with torch.enable_grad():
            flow = trained_flow(d, chosen.device)
        cases.append(measure(flow, d, 512, 7, chosen.device, with_zuko=True))
        # zuko's inverse of 65,536 rows takes a minute on two cores and says nothing new.
        with_zuko = chosen.device == "cuda"
        cases.append(measure(flow, d, 65_536, 3, chosen.device, with_zuko=with_zuko))
        if chosen.device == "cpu":
            cases.append(measure(flow.double(), d, 512, 5, chosen.device, with_zuko=False))
    write("inverse", {"training_steps": TRAINING_STEPS, "cases": cases}, chosen)


if __name__ == "__main__":
    main()
