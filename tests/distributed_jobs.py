"""What the tests let several processes do: ``torchrun --nproc-per-node 2 tests/distributed_jobs.py JOB FOLDER``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from torch.utils.data import TensorDataset

from ecrt import ECRTClassifier, Encoder, Flow, MLPHead, checkpoints, distributed, training
from ecrt.data import streams
from ecrt.errors import InputError, LostProcessError, TerminatedError
from ecrt.losses import cross_entropy
from ecrt.moments import Moments
from ecrt.randomness import Dropout, seeded
from ecrt.stages import demixing, streaming
from ecrt.stages.heads import HeadSample, LinearFitter

# Sizes that two processes cannot halve, so that their parts differ, and a last batch that is smaller.
X, Y = make_classification(
    603, n_features=12, n_informative=6, n_classes=4, weights=[0.4, 0.3, 0.25, 0.05], random_state=0
)
WIDE = np.hstack([X, np.sin(X), np.cos(X), X**2])
"""Columns enough for L-BFGS instead of Newton's method."""

IMAGES = np.random.default_rng(0).integers(0, 255, (90, 3, 6, 6)).astype(np.uint8)
# Nothing that is drawn for single rows: each process draws that for its own.
ENCODER = Encoder("mlp", epochs=7, batch_size=63, hidden=(32, 16), n_features=8, learn_from="all", dropout=0.0)
FLOW = Flow(epochs=7, batch_size=63, hidden=(16, 16), n_restarts=1)
HEAD = MLPHead(epochs=2, hidden=(32,), batch_size=63, dropout=0.0)
PLAIN = ECRTClassifier(demixing="linear", augmentation="none")
FITS: dict[str, Callable[[], Any]] = {
    "encoder": lambda: ECRTClassifier(encoder=ENCODER, demixing="linear", head="linear"),
    "encoder with mixup": lambda: ECRTClassifier(
        encoder=clone(ENCODER).set_params(mixup=0.3), demixing="linear", head="linear"
    ),
    "flow": lambda: ECRTClassifier(demixing=FLOW, head="linear"),
    "flow with labels of the batch": lambda: ECRTClassifier(
        demixing=clone(FLOW).set_params(label_marginal="batch"), head="linear"
    ),
    "flow by GCL": lambda: ECRTClassifier(
        demixing=clone(FLOW).set_params(objective="gcl", label_marginal="batch"), head="linear"
    ),
    "flow by InfoNCE": lambda: ECRTClassifier(
        demixing=clone(FLOW).set_params(objective="infonce", label_marginal="batch"), head="linear"
    ),
    "head": lambda: ECRTClassifier(demixing="linear", augmentation="none", head=HEAD),
    "head with mixup": lambda: ECRTClassifier(
        demixing="linear", augmentation="none", head=clone(HEAD).set_params(mixup=0.4)
    ),
    "networks side by side": lambda: ECRTClassifier(
        demixing="linear", augmentation="none", head=clone(HEAD).set_params(networks=2)
    ),
}


MANY_CLASSES: dict[str, Callable[[], Any]] = {
    "head for many classes": FITS["head"],
    "flow for many classes": FITS["flow"],
    "flow for many classes with labels of the batch": FITS["flow"],
}
"""Fits in which four classes are many, so that processes share out their tables."""


MANY = make_classification(4096, 64, n_informative=16, n_redundant=0, n_classes=10, random_state=0)
WIDE_NETWORKS: dict[str, Callable[[], Any]] = {
    "wide encoder": lambda: ECRTClassifier(
        encoder=Encoder("mlp", epochs=20, batch_size=1024, learn_from="all", dropout=0.0), demixing="linear",
        head="gaussian",
    ),
    "wide head": lambda: clone(PLAIN).set_params(head=MLPHead(epochs=20, batch_size=1024, dropout=0.0)),
}  # fmt: skip
"""Fits with so many units and rows that rounding would soon put one of them on the other side of a ReLU's zero."""


STREAMED: dict[str, Callable[[], Any]] = {
    "streamed head": FITS["head"],
    "streamed head with mixup": FITS["head with mixup"],
    "streamed heads at once": lambda: clone(PLAIN).set_params(head=("linear", "gaussian")),
}
"""Fits on rows that are read block by block."""


@contextmanager
def small_blocks() -> Iterator[None]:
    """Rows are read in small blocks, and few of them are kept in memory; afterwards all is as it was."""
    with (
        patch.multiple(streams, KEPT_ROWS=300, LEAST_KEPT=300, BLOCK_ROWS=101),
        patch.multiple(streaming, STREAM_BATCH=31, MEMORY_BATCH=15),
    ):
        yield


class SmallImages(TensorDataset):
    """Images that are read one by one: not a plain TensorDataset, so that they are not kept in memory together."""


def network() -> torch.nn.Module:
    """Without a bias before the normalisation: its gradient is rounding alone, which Adam would blow up."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, bias=False),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
    )


SHARED_OUT: set[str] = set()
"""Trainings in which this process held some rows of a table alone."""


def watched(fit: Callable[[], Any]) -> tuple[Any, list[float]]:
    """What a fit gives, and the loss of every step of its training."""
    losses: list[float] = []
    call = training.WatchedSteps.__call__

    def noted(self: Any, batch: Any) -> None:
        before = self.total
        call(self, batch)
        losses.append(self.total - before)
        if any(distributed.part_of_table(one) is not None for one in self.parameters):
            SHARED_OUT.add(self.stage)

    training.WatchedSteps.__call__ = noted  # type: ignore[method-assign]
    try:
        return fit(), losses
    finally:
        training.WatchedSteps.__call__ = call  # type: ignore[method-assign]


def linear_head(shift: torch.Tensor | None) -> Any:
    """What L-BFGS finds, in float64: in float32 it stops here or there, by rounding."""
    n = len(Y)
    rows = HeadSample(
        torch.from_numpy((WIDE - WIDE.mean(0)) / WIDE.std(0)), torch.from_numpy(Y), torch.full((n,), 1 / n).double(),
        torch.zeros(n, dtype=torch.bool),
    )  # fmt: skip
    with distributed.joined():
        head = LinearFitter(4, lambda outputs, y, done: cross_entropy(outputs, y), shift_m=shift).fit(rows, 0.1)
    return head.get_parameter("weight").tolist()


def curves() -> dict[str, Any]:
    """Losses of every step and probabilities, of each fit."""
    found = {}
    for name, make in FITS.items():
        model, losses = watched(lambda make=make: make().set_params(random_state=0).fit(X, Y))
        found[name] = {"losses": losses, "answers": model.predict_proba(X).tolist()}
    most, moderate = distributed.MOST_CLASSES, demixing.MODERATE_CLASSES
    for name, make in MANY_CLASSES.items():
        distributed.MOST_CLASSES, demixing.MODERATE_CLASSES = 2, 2 if "batch" in name else moderate
        model, losses = watched(lambda make=make: make().set_params(random_state=0).fit(X, Y))
        found[name] = {"losses": losses, "answers": model.predict_proba(X).tolist()}
    distributed.MOST_CLASSES, demixing.MODERATE_CLASSES = most, moderate
    for name, make in WIDE_NETWORKS.items():
        model, losses = watched(lambda make=make: make().set_params(random_state=0).fit(*MANY))
        found[name] = {"losses": losses, "answers": model.predict_proba(MANY[0]).tolist()}
    for name, make in STREAMED.items():
        with small_blocks():
            model, losses = watched(lambda make=make: make().set_params(random_state=0).fit(streams.ArrayRows(X, Y)))
        found[name] = {"losses": losses, "answers": model.predict_proba(X).tolist()}
    for name, shift in (("linear head", None), ("linear head, gradients written out", torch.zeros(4))):
        found[name] = {"losses": [], "answers": linear_head(shift)}
    encoder = Encoder(network(), epochs=9, batch_size=15, learn_from="all")
    items = SmallImages(torch.from_numpy(IMAGES).float() / 255, torch.from_numpy(IMAGES[:, 0, 0, 0] % 2).long())
    model, losses = watched(
        lambda: ECRTClassifier(encoder=encoder, demixing="linear", head="linear", random_state=0).fit(items)
    )
    found["images read one by one"] = {"losses": losses, "answers": model.predict_proba(items).tolist()}
    return found


def by_ranks(folder: Path) -> dict[str, Any]:
    """Curves, and what else the tests ask of two processes."""
    answers: dict[str, Any] = {"resumed": stopped_once(folder, None), "whole": stopped_once(folder / "whole", None)}
    answers["curves"] = curves()
    answers["terminated"] = terminated_once(folder / "terminated")
    answers["shared out"] = sorted(SHARED_OUT)
    with distributed.joined():
        try:
            distributed.refuse_differences({"X": str(distributed.rank())})
        except InputError as error:
            answers["differs"] = str(error)
        try:
            distributed.from_first(refuse)
        except InputError as error:
            answers["refused"] = str(error)
        far = 1e8 + WIDE  # where squares of values would lose all digits
        own = distributed.own_rows(len(Y))
        moments = Moments.of(far[own], Y[own], 5, np.arange(5) < 3).of_all_processes()
        answers["moments"] = {name: value.tolist() for name, value in vars(moments).items()}
        own = distributed.mine(range(9))
        answers["normalised"] = [values.tolist() for values in normalised(own)]
        answers["wishes"] = distributed.any_of(distributed.rank() == 1, False)
        answers["agreed"] = distributed.as_first(float(distributed.rank() + 7))
        with seeded(0):
            distributed.share_out(8)
            layers = Dropout(0.5), torch.nn.Dropout(0.5)
            answers["drawn by each"] = [layer(torch.ones(4, 20)).tolist() for layer in layers]
            distributed.end_step([torch.nn.Parameter(torch.ones(1))], 0.0)
            answers["drawn by all"] = layers[0](torch.ones(4, 20)).tolist()
    seedless = ECRTClassifier(demixing="linear", head=HEAD, random_state=None)
    answers["seedless"] = seedless.fit(X, Y).predict_proba(X[:3]).tolist()
    return answers


FAR = torch.from_numpy(1e8 + np.hstack([WIDE[:9], np.ones((9, 1))]))
"""Rows of columns whose mean squares have no digits left for their variance, one of them constant."""


def normalised(own: range) -> list[torch.Tensor]:
    """Some of these rows after batch normalisation: as inputs, and within a network, with their gradients."""
    x = FAR[own.start : own.stop].clone().requires_grad_()
    layer = torch.nn.BatchNorm1d(x.shape[1], affine=False).double()
    with distributed.whole_batches(layer):
        of_input, within = layer(x.detach()), layer(x)
    (within**3).sum().backward()
    distributed.leave_step()
    return [of_input, within.detach(), x.grad]


def refuse() -> None:
    raise InputError("Only the first process sees this.")


def terminated_once(folder: Path) -> dict[str, Any]:
    """The same fit; one process is asked to end, all do so after the same step, and go on when begun again."""
    try:
        stopped_once(folder, (1, 40), signal.SIGTERM)
    except TerminatedError:
        return stopped_once(folder, None)
    return {}


def stopped_once(
    folder: Path, kill: tuple[int, int] | None, by: signal.Signals = signal.SIGKILL
) -> dict[str, Any]:  # fmt: skip
    """A fit with checkpoints; in it a process gets a signal after so many steps."""
    steps = [0]
    call = training.WatchedSteps.__call__

    def counted(self: Any, batch: Any) -> None:
        call(self, batch)
        steps[0] += 1
        if kill == (distributed.rank(), steps[0]):
            os.kill(os.getpid(), by)

    training.WatchedSteps.__call__ = counted  # type: ignore[method-assign]
    head = MLPHead(epochs=3, hidden=(8,), dropout=0.1, batch_size=63)
    model = ECRTClassifier(
        demixing=clone(FLOW).set_params(epochs=4), head=head, random_state=0, checkpoint=folder / "kept"
    )
    try:
        # Few classes are many, so that their tables are shared out, and kept whole all the same.
        with patch.object(checkpoints, "EVERY", 0.0), patch.object(distributed, "MOST_CLASSES", 2):
            model.fit(X, Y)
    except LostProcessError as error:
        print(f"process {distributed.rank()}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(3) from None
    finally:
        training.WatchedSteps.__call__ = call  # type: ignore[method-assign]
    return {"steps": steps[0], "answers": model.predict_proba(X).tolist()}


def main(job: str, folder: Path) -> None:
    found = by_ranks(folder) if job == "ranks" else stopped_once(folder, (1, 40))
    (folder / f"{job}-{distributed.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
