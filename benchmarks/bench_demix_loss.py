"""Held-out contrastive loss that de-mixing reaches in as many epochs as the paper's description taken literally.

Exact label marginal, lower is better, no skill is 0. Rival and ours are those of bench_demix_step.py: the same rows in
the same batches, 800 steps (twenty epochs), the loss on 4,000 rows of their own measured every ``EVERY`` steps outside
the clock, each told at its best. Of the rival both learning rates are run and the better one is told. With a GPU five
sets of data, each with a start of its own, side by side; without, one, and fewer steps of the rival.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import measuring
import numpy as np
import torch
from bench_demix_step import BATCH, N_TRAIN, STEPS, D, M, Ours, Rival, data
from measuring import arguments, synchronise, write
from torch import Tensor

from ecrt.losses import dv_exact

SETS = 5
N_HELD_OUT = 4000
RIVAL_RATES = (5e-4, 2e-3)
EVERY = 20
RIVAL_STEPS_ON_CPU = 200


@dataclass
class Learning:
    """Held-out contrast against steps and seconds of training, evaluation not counted."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out_contrast: list[float] = field(default_factory=list)

    def best(self) -> dict[str, float]:
        at = int(np.argmin(self.held_out_contrast))
        return {
            "steps": self.steps[at], "seconds": self.seconds[at], "held_out_contrast": self.held_out_contrast[at],
            "at_the_end": self.held_out_contrast[-1],
        }  # fmt: skip

    def first_at(self, contrast: float) -> int | None:
        """The step at which a loss was first reached."""
        reached = [step for step, value in zip(self.steps, self.held_out_contrast, strict=True) if value <= contrast]
        return reached[0] if reached else None


def train(
    model: Ours | Rival, batches: Tensor, check: tuple[Tensor, Tensor, Tensor], steps: int, device: str
) -> Learning:
    """So many steps, and the held-out loss along them."""
    learning, seconds = Learning(), 0.0
    z, y, label_prior = check
    for start in range(0, steps, EVERY):
        synchronise(device)
        started = measuring.clock()
        for rows in batches[start : start + EVERY]:
            model.step(rows)
        synchronise(device)
        seconds += measuring.clock() - started
        with torch.no_grad():
            contrast = dv_exact(model.scores(z), y, label_prior).mean().item()
        learning.steps.append(start + EVERY)
        learning.seconds.append(seconds)
        learning.held_out_contrast.append(contrast)
    return learning


def one_set(seed: int, device: str) -> dict[str, Any]:
    """The rival at its better rate, our default, and our critic that starts at the classes' Gaussians."""
    z, y = data(D, M, N_TRAIN + N_HELD_OUT, seed, device)
    rows = z[:N_TRAIN], y[:N_TRAIN]
    check = z[N_TRAIN:], y[N_TRAIN:], torch.bincount(rows[1], minlength=M) / N_TRAIN
    batches = torch.randint(N_TRAIN, (STEPS, BATCH), generator=torch.Generator().manual_seed(seed)).to(device)
    rival_steps = STEPS if device == "cuda" else RIVAL_STEPS_ON_CPU
    rivals = {rate: train(Rival(*rows, M, 4, rate, seed), batches, check, rival_steps, device) for rate in RIVAL_RATES}
    rate = min(rivals, key=lambda rate: min(rivals[rate].held_out_contrast))
    learned = {"rival": rivals[rate]}
    learned["ours"] = train(Ours(*rows, M, seed=seed), batches, check, STEPS, device)
    best = {name: learning.best() for name, learning in learned.items()}
    to_reach = best["rival"]["held_out_contrast"]
    found = {
        "seed": seed, "rival_rate": rate, "best": best,
        "steps_to_the_rivals_best": {name: learning.first_at(to_reach) for name, learning in learned.items()},
        "learned": {name: vars(learning) for name, learning in learned.items()},
    }  # fmt: skip
    print({name: value for name, value in found.items() if name != "learned"}, flush=True)
    return found


def main() -> None:
    chosen = arguments(__doc__)
    if chosen.device == "cuda":  # small steps leave a GPU idle: the sets go side by side
        with ProcessPoolExecutor(SETS, mp_context=get_context("spawn")) as pool:
            sets = list(pool.map(one_set, range(SETS), [chosen.device] * SETS))
    else:
        sets = [one_set(0, chosen.device)]
    summary = {}
    for name in sets[0]["best"]:
        losses = [one["best"][name]["held_out_contrast"] for one in sets]
        excess = [one["best"][name]["held_out_contrast"] - one["best"]["rival"]["held_out_contrast"] for one in sets]
        spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (losses, excess)]
        summary[name] = {
            "mean": statistics.mean(losses), "standard_deviation": spread[0],
            "less_the_rivals": statistics.mean(excess), "less_the_rivals_standard_deviation": spread[1],
            "sets_as_low": sum(value <= 0 for value in excess), "sets": len(sets),
        }  # fmt: skip
    document = {"d": D, "classes": M, "batch": BATCH, "steps": STEPS, "summary": summary, "data_sets": sets}
    write("demix_loss", document, chosen)


if __name__ == "__main__":
    main()
