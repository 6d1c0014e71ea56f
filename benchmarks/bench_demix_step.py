"""One de-mixing step (flow, critic, loss, backward, optimizer) beside the paper's description taken literally.

The rival: a loop over coordinates, each with a critic of its own of 1-512-512-M units; one pass through the flow for
the sources and another for the likelihood; FDV with the labels of the batch as negatives; Adam. What both learn is
measured by bench_demix_loss.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measuring import arguments, growth, interleaved, write
from torch import Tensor, nn

from ecrt.flows import ClassPrior, MaskedFlow, class_moments, fit_linear_demixing
from ecrt.losses import fdv_in_batch, flow_nll
from ecrt.nn import make_critic
from ecrt.stages.demixing import ContrastiveModel, Flow
from ecrt.training import Backward, IndexBatches, Schedule, TrainingConfig, WatchedSteps

D, M, BATCH = 32, 50, 512
N_TRAIN = 20_000
STEPS = 800
"""Of the schedule: twenty epochs."""


def data(d: int, n_classes: int, n: int, seed: int = 0, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Sources with a mean and a scale for each class, each mixed with the ones before through a curve, whitened."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    s = rng.normal(size=(n_classes, d))[y] + np.exp(0.5 * rng.normal(size=(n_classes, d)))[y] * rng.normal(size=(n, d))
    z = s.copy()
    for k in range(1, d):
        z[:, k] += np.sin(2 * z[:, k - 1]) + 0.5 * np.tanh(z[:, max(k - 2, 0)])
    linear = fit_linear_demixing(z, y, rotation="triangular")
    return linear(torch.from_numpy(z))[0].float().to(device), torch.from_numpy(y).to(device)


class Ours:
    """The model of the library in the loop's own step, as ``ECRTClassifier`` sets it up for d features but for this.

    ``n_blocks``, ``width``, ``critic``: blocks of the flow, units of the critic's layers (``None`` for what the default
    is) and which critic.
    """

    def __init__(
        self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int = 1, width: int | None = None,
        critic: str = "additive", seed: int = 0,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        d = z.shape[1]
        config = Flow(blocks=n_blocks, critic_width=width or (64 if d <= 8 else 32), critic=critic)
        self.z, self.y = z, y
        self.label_prior = torch.bincount(y, minlength=n_classes) / len(y)
        self.model = ContrastiveModel(
            MaskedFlow(d, n_blocks, config.hidden),
            make_critic(config.critic, d, n_classes, config.critic_width),
            ClassPrior(n_classes, d),
            config,
        ).to(z.device)
        self.model.start_at(z, y)
        parameters = list(self.model.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.0, fused=True)
        schedule = Schedule(optimizer, config.learning_rate, len(y) // BATCH, STEPS)
        self.step = WatchedSteps(
            Backward(self._loss, optimizer, "step"),
            parameters,
            optimizer,
            schedule,
            gradient_norm=TrainingConfig.of(config).gradient_norm,
            stage="step",
        )
        kind = "" if critic == "additive" else f"{critic} "
        self.name = f"ours, {n_blocks} block{'s' * (n_blocks > 1)}, {kind}critic {config.critic_width}"

    def _loss(self, rows: Tensor) -> Tensor:
        contrast, nll = self.model.losses(self.z[rows], self.y[rows], self.label_prior, exact=True)
        return (contrast + nll).mean()

    def scores(self, z: Tensor) -> Tensor:
        return self.model.critic(self.model.flow(z)[0])


class Rival:
    """The paper's description, coordinate by coordinate."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int, rate: float = 5e-4, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.z, self.y = z, y
        d = z.shape[1]
        self.flow = MaskedFlow(d, n_blocks).to(z.device)
        self.critics = nn.ModuleList(
            nn.Sequential(nn.Linear(1, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, n_classes))
            for _ in range(d)
        ).to(z.device)
        self.prior = ClassPrior(n_classes, d).to(z.device)
        self.prior.set_class(*class_moments(z, y, torch.ones(d, device=z.device), 10.0))
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
        total = torch.zeros((), device=z.device)
        for coordinate, critic in enumerate(self.critics):
            total = total + critic(s[:, coordinate : coordinate + 1])
        return total


def step_growth() -> dict[str, Any]:
    """Median seconds of our default step as d, M or the batch doubles; an epoch of n rows has n / batch such steps."""
    found: dict[str, Any] = {}
    axes = {"d": (32, 64, 128, 256), "M": (50, 100, 200, 400, 800), "batch": (256, 512, 1024)}
    for name, sizes in axes.items():
        for width in (None, 64) if name == "d" else (None,):
            runs = {}
            for size in sizes:
                d, m, batch = (
                    size if name == axis else usual for axis, usual in (("d", D), ("M", M), ("batch", BATCH))
                )
                model = Ours(*data(d, m, 2000), m, width=width)
                rows = torch.arange(batch)
                runs[size] = lambda model=model, rows=rows: model.step(rows)
            seconds = interleaved(runs, 7)
            label = "batch (one step)" if name == "batch" else name if width is None else f"{name}, critic {width}"
            found[label] = {"seconds": seconds, "growth": growth(seconds)}
            print(label, found[label], flush=True)
    return found


def epoch_growth() -> dict[str, Any]:
    """Median seconds of a whole epoch, batches drawn and rows collected included, as n doubles."""
    runs = {}
    for n in (2500, 5000, 10_000, 20_000):
        model = Ours(*data(D, M, n), M)
        batches = IndexBatches(n, BATCH, torch.Generator().manual_seed(0))
        runs[n] = lambda model=model, batches=batches: [model.step(rows) for rows in batches]
    seconds = interleaved(runs, 9)  # an epoch of 2,500 rows has five steps: with few repeats it is all noise
    print("n", seconds, flush=True)
    return {"seconds": seconds, "growth": growth(seconds)}


def main() -> None:
    chosen = arguments(__doc__)
    z, y = data(D, M, N_TRAIN)
    ours = [Ours(z, y, M), Ours(z, y, M, 4), Ours(z, y, M, 4, 64)]
    first = torch.arange(BATCH)
    steps = {model.name: lambda model=model: model.step(first) for model in ours}
    rival = Rival(z, y, M, 4)
    seconds = interleaved({**steps, "rival, 4 blocks": lambda: rival.step(first)}, 9)
    print(seconds, flush=True)
    document = {
        "d": D, "classes": M, "batch": BATCH,
        "default": ours[0].name,
        "step_seconds": seconds,
        "rival_over_ours": {name: seconds["rival, 4 blocks"] / value for name, value in seconds.items()},
        "growth": {"n": epoch_growth(), **step_growth()},
    }  # fmt: skip
    write("demix_step", document, chosen)


if __name__ == "__main__":
    main()
