"""One de-mixing step (flow, critic, loss, backward, optimizer) beside the paper's description taken literally.

The rival: a loop over coordinates, each with a critic of its own of 1-512-512-M units; one pass through the flow for
the sources and another for the likelihood; FDV with the labels of the batch as negatives; Adam. Both see the same rows.
Held-out contrastive loss (exact label marginal, lower is better, no skill is 0) after equal steps and after equal time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import measuring
import numpy as np
import torch
from measuring import arguments, growth, interleaved, write
from torch import Tensor, nn

from ecrt.flows import ClassPrior, MaskedFlow, class_moments, fit_linear_demixing
from ecrt.losses import dv_exact, fdv_in_batch, flow_nll
from ecrt.nn import make_critic
from ecrt.stages.contrast import ContrastiveModel, DemixConfig

D, M, BATCH = 32, 50, 512
STEPS = 30
RATES = (5e-4, 2e-3)
N_TRAIN, N_HELD_OUT = 20_000, 4000


def data(d: int, n_classes: int, n: int) -> tuple[Tensor, Tensor]:
    """Sources with a mean and a scale for each class, each mixed with the ones before through a curve, whitened."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    s = rng.normal(size=(n_classes, d))[y] + np.exp(0.5 * rng.normal(size=(n_classes, d)))[y] * rng.normal(size=(n, d))
    z = s.copy()
    for k in range(1, d):
        z[:, k] += np.sin(2 * z[:, k - 1]) + 0.5 * np.tanh(z[:, max(k - 2, 0)])
    linear = fit_linear_demixing(z, y, rotation="triangular")
    return linear(torch.from_numpy(z))[0].float(), torch.from_numpy(y)


class Ours:
    """The model of the library, with the loop's step: clipped gradients and fused AdamW."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int, rate: float = 2e-3) -> None:
        torch.manual_seed(0)
        self.z, self.y = z, y
        self.label_prior = torch.bincount(y, minlength=n_classes) / len(y)
        prior = ClassPrior(n_classes, z.shape[1])
        prior.set_class(*class_moments(z, y, torch.ones(z.shape[1]), 10.0))
        config = DemixConfig(method="flow")
        critic = make_critic(config.critic, z.shape[1], n_classes, config.critic_width)
        self.model = ContrastiveModel(MaskedFlow(z.shape[1], n_blocks), critic, prior, config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.0, fused=True)

    def step(self, rows: Tensor) -> None:
        contrast, nll = self.model.losses(self.z[rows], self.y[rows], self.label_prior, exact=True)
        loss = (contrast + nll).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()

    def scores(self, z: Tensor) -> Tensor:
        return self.model.critic(self.model.flow(z)[0])


class Rival:
    """The paper's description, coordinate by coordinate."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int, rate: float = 2e-3) -> None:
        torch.manual_seed(0)
        self.z, self.y = z, y
        d = z.shape[1]
        self.flow = MaskedFlow(d, n_blocks)
        self.critics = nn.ModuleList(
            nn.Sequential(nn.Linear(1, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, n_classes))
            for _ in range(d)
        )
        self.prior = ClassPrior(n_classes, d)
        self.prior.set_class(*class_moments(z, y, torch.ones(d), 10.0))
        parameters = [*self.flow.parameters(), *self.critics.parameters(), *self.prior.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=rate)

    def step(self, rows: Tensor) -> None:
        z, y = self.z[rows], self.y[rows]
        scores = self.scores(z)
        contrast = fdv_in_batch(scores[:, y])
        s, log_det = self.flow(z)
        loss = (contrast + flow_nll(self.prior(s, y), log_det, z.shape[1])).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def scores(self, z: Tensor) -> Tensor:
        s = self.flow(z)[0]
        total = torch.zeros(())
        for coordinate, critic in enumerate(self.critics):
            total = total + critic(s[:, coordinate : coordinate + 1])
        return total


@torch.no_grad()
def held_out(model: Ours | Rival, z: Tensor, y: Tensor, label_prior: Tensor) -> float:
    return dv_exact(model.scores(z), y, label_prior).mean().item()


def train(
    model: Ours | Rival, batches: Callable[[], Tensor], *, steps: int = 10**9, seconds: float = np.inf
) -> dict[str, Any]:
    """So many steps, or as many as fit into the seconds."""
    started = measuring.clock()
    done = 0
    while done < steps and measuring.clock() - started < seconds:
        model.step(batches())
        done += 1
    return {"steps": done, "seconds": measuring.clock() - started}


def batches_of(n: int) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda: torch.randint(n, (BATCH,), generator=generator)


def step_growth() -> dict[str, Any]:
    """Median seconds of our step as d, M or the batch doubles; an epoch of n rows has n / batch steps of this time."""
    found: dict[str, Any] = {}
    for name, sizes in {"d": (32, 64, 128, 256), "M": (50, 100, 200, 400), "batch": (256, 512, 1024)}.items():
        runs = {}
        for size in sizes:
            d, m, batch = (size if name == axis else usual for axis, usual in (("d", D), ("M", M), ("batch", BATCH)))
            model = Ours(*data(d, m, 4000), m, 1)
            rows = torch.arange(batch)
            runs[size] = lambda model=model, rows=rows: model.step(rows)
        seconds = interleaved(runs, 3)
        found[name] = {"seconds": seconds, "growth": growth(seconds)}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    chosen = arguments(__doc__)
    z, y = data(D, M, N_TRAIN + N_HELD_OUT)
    train_rows, check = (z[:N_TRAIN], y[:N_TRAIN]), (z[N_TRAIN:], y[N_TRAIN:])
    label_prior = torch.bincount(train_rows[1], minlength=M) / N_TRAIN

    models = {"ours, 1 block": Ours(*train_rows, M, 1), "ours, 4 blocks": Ours(*train_rows, M, 4),
              "rival, 4 blocks": Rival(*train_rows, M, 4)}  # fmt: skip
    rows = torch.arange(BATCH)
    seconds = interleaved({name: lambda model=model: model.step(rows) for name, model in models.items()}, 5)
    print(seconds, flush=True)

    learned: dict[str, Any] = {}
    for rate in RATES:
        rival = Rival(*train_rows, M, 4, rate)
        learned[f"rival, rate {rate}"] = train(rival, batches_of(N_TRAIN), steps=STEPS)
        learned[f"rival, rate {rate}"]["held_out_contrast"] = held_out(rival, *check, label_prior)
        print(learned, flush=True)
    for n_blocks in (1, 4):
        ours = Ours(*train_rows, M, n_blocks)
        name = f"ours, {n_blocks} block{'s' * (n_blocks > 1)}"
        learned[f"{name}, equal steps"] = train(ours, batches_of(N_TRAIN), steps=STEPS)
        learned[f"{name}, equal steps"]["held_out_contrast"] = held_out(ours, *check, label_prior)
        longest = min(learned[f"rival, rate {rate}"]["seconds"] for rate in RATES)
        used = learned[f"{name}, equal steps"]["seconds"]
        learned[f"{name}, equal time"] = train(ours, batches_of(N_TRAIN), seconds=longest - used)
        learned[f"{name}, equal time"]["steps"] += STEPS
        learned[f"{name}, equal time"]["held_out_contrast"] = held_out(ours, *check, label_prior)
        print(learned, flush=True)
    rival_loss = min(learned[f"rival, rate {rate}"]["held_out_contrast"] for rate in RATES)
    document = {
        "d": D, "classes": M, "batch": BATCH,
        "step_seconds": seconds,
        "rival_over_ours": {name: seconds["rival, 4 blocks"] / value for name, value in seconds.items()},
        "learned": learned,
        "rival_best_held_out_contrast": rival_loss,
        "step_growth": step_growth(),
    }  # fmt: skip
    write("demix_step", document, chosen)


if __name__ == "__main__":
    main()
