"""One de-mixing step (flow, critic, loss, backward, optimizer) beside the paper's description taken literally.

The rival: a loop over coordinates, each with a critic of its own of 1-512-512-M units; one pass through the flow for
the sources and another for the likelihood; FDV with the labels of the batch as negatives; Adam, at the better of two
rates. Both see the same rows. Held-out contrastive loss (exact label marginal, lower is better, no skill is 0) is
measured every ``EVERY`` steps outside the clock; each is trained until it no longer improves, and told at its best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import measuring
import numpy as np
import torch
from measuring import arguments, growth, interleaved, write
from torch import Tensor, nn

from ecrt import ECRTClassifier
from ecrt.estimators.options import demix_configs
from ecrt.flows import ClassPrior, MaskedFlow, class_moments, fit_linear_demixing
from ecrt.losses import dv_exact, fdv_in_batch, flow_nll
from ecrt.nn import make_critic
from ecrt.stages.contrast import ContrastiveModel
from ecrt.training import IndexBatches
from ecrt.training.steps import Schedule, WatchedSteps

D, M, BATCH = 32, 50, 512
N_TRAIN, N_HELD_OUT = 20_000, 4000
RIVAL_RATES = (5e-4, 2e-3)
TRIAL_STEPS, RIVAL_SECONDS, PATIENCE = 20, 110, 5
EVERY = 20
OUR_STEPS = 800


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
    """The model of the library in the loop's own step, as ``ECRTClassifier`` sets it up for d features but for this.

    ``n_blocks``, ``width``: blocks of the flow and units of the critic's layers, ``None`` for what the default is.
    """

    def __init__(
        self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int | None = None, width: int | None = None,
        total_steps: int = OUR_STEPS,
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        d = z.shape[1]
        options = {"flow_blocks": n_blocks or 1, "critic_width": width}
        config = demix_configs(ECRTClassifier(demixing="flow", **options), len(y), d)[0]
        self.z, self.y = z, y
        self.label_prior = torch.bincount(y, minlength=n_classes) / len(y)
        prior = ClassPrior(n_classes, d)
        prior.set_class(*class_moments(z, y, torch.ones(d), config.pseudo_samples))
        critic = make_critic(config.critic, d, n_classes, config.critic_width)
        self.model = ContrastiveModel(MaskedFlow(d, config.n_blocks[0], config.hidden), critic, prior, config)
        parameters = list(self.model.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=config.training.learning_rate, weight_decay=0.0, fused=True)
        schedule = Schedule(optimizer, config.training.learning_rate, len(y) // BATCH, total_steps)
        self.step = WatchedSteps(
            self._loss, parameters, optimizer, schedule, gradient_norm=config.training.gradient_norm, stage="step"
        )
        self.name = f"ours, {config.n_blocks[0]} block{'s' * (config.n_blocks[0] > 1)}, critic {config.critic_width}"

    def _loss(self, rows: Tensor) -> Tensor:
        contrast, nll = self.model.losses(self.z[rows], self.y[rows], self.label_prior, exact=True)
        return (contrast + nll).mean()

    def scores(self, z: Tensor) -> Tensor:
        return self.model.critic(self.model.flow(z)[0])


class Rival:
    """The paper's description, coordinate by coordinate."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, n_blocks: int, rate: float = RIVAL_RATES[0]) -> None:
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


@dataclass
class Learning:
    """Held-out contrast against steps and seconds of training, evaluation not counted."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held_out_contrast: list[float] = field(default_factory=list)

    def best(self) -> dict[str, float]:
        at = int(np.argmin(self.held_out_contrast))
        return {
            "steps": self.steps[at], "seconds": self.seconds[at], "held_out_contrast": self.held_out_contrast[at]
        }  # fmt: skip

    def first_at(self, contrast: float) -> dict[str, float] | None:
        """When a loss was first reached."""
        reached = [at for at, value in enumerate(self.held_out_contrast) if value <= contrast]
        return {"steps": self.steps[reached[0]], "seconds": self.seconds[reached[0]]} if reached else None


def train(
    model: Ours | Rival, batches: Callable[[], Tensor], check: tuple[Tensor, Tensor, Tensor], learning: Learning,
    *, steps: int, seconds: float = np.inf, patience: float = np.inf,
) -> None:  # fmt: skip
    """So many steps more, or as many as fit into the seconds or bring a better held-out loss within the patience."""
    last = learning.steps[-1] + steps if learning.steps else steps
    while (learning.steps or [0])[-1] < last and (learning.seconds or [0.0])[-1] < seconds:
        started = measuring.clock()
        for _ in range(EVERY):
            model.step(batches())
        learning.seconds.append((learning.seconds or [0.0])[-1] + measuring.clock() - started)
        learning.steps.append((learning.steps or [0])[-1] + EVERY)
        learning.held_out_contrast.append(held_out(model, *check))
        since_best = len(learning.steps) - 1 - int(np.argmin(learning.held_out_contrast))
        if since_best >= patience:
            break


def batches_of(n: int) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda: torch.randint(n, (BATCH,), generator=generator)


def rival_at_its_best(rows: tuple[Tensor, Tensor], check: tuple[Tensor, Tensor, Tensor]) -> tuple[float, Learning]:
    """The rival at the rate that is ahead after a few steps, trained on until it no longer improves."""
    started = {}
    for rate in RIVAL_RATES:
        started[rate] = Rival(*rows, M, 4, rate), batches_of(N_TRAIN), Learning()
        train(started[rate][0], started[rate][1], check, started[rate][2], steps=TRIAL_STEPS)
    rate = min(started, key=lambda rate: started[rate][2].held_out_contrast[-1])
    model, batches, learning = started[rate]
    train(model, batches, check, learning, steps=10**6, seconds=RIVAL_SECONDS, patience=PATIENCE)
    return rate, learning


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
    seconds = interleaved(runs, 3)
    print("n", seconds, flush=True)
    return {"seconds": seconds, "growth": growth(seconds)}


def main() -> None:
    chosen = arguments(__doc__)
    z, y = data(D, M, N_TRAIN + N_HELD_OUT)
    rows = z[:N_TRAIN], y[:N_TRAIN]
    check = z[N_TRAIN:], y[N_TRAIN:], torch.bincount(rows[1], minlength=M) / N_TRAIN

    ours = [Ours(*rows, M), Ours(*rows, M, 4), Ours(*rows, M, 4, 64)]
    first = torch.arange(BATCH)
    steps = {model.name: lambda model=model: model.step(first) for model in ours}
    rival = Rival(*rows, M, 4)
    seconds = interleaved({**steps, "rival, 4 blocks": lambda: rival.step(first)}, 9)
    print(seconds, flush=True)
    grown = {"n": epoch_growth(), **step_growth()}

    rate, rival_learning = rival_at_its_best(rows, check)
    learned = {"rival": rival_learning}
    to_reach = rival_learning.best()
    print("rival", to_reach, flush=True)
    for fresh in (Ours(*rows, M), Ours(*rows, M, 4)):
        learned[fresh.name] = Learning()
        train(fresh, batches_of(N_TRAIN), check, learned[fresh.name], steps=OUR_STEPS)
        print(fresh.name, learned[fresh.name].best(), flush=True)
    document = {
        "d": D, "classes": M, "batch": BATCH,
        "default": ours[0].name,
        "step_seconds": seconds,
        "rival_over_ours": {name: seconds["rival, 4 blocks"] / value for name, value in seconds.items()},
        "rival_rate": rate,
        "best": {name: learning.best() for name, learning in learned.items()},
        "reaching_the_rivals_best": {
            name: learning.first_at(to_reach["held_out_contrast"]) for name, learning in learned.items()
        },
        "learned": {name: vars(learning) for name, learning in learned.items()},
        "growth": grown,
    }  # fmt: skip
    write("demix_step", document, chosen)


if __name__ == "__main__":
    main()
