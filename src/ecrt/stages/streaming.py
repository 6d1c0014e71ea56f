"""De-mixing and heads of more rows than there is memory for: read block by block, a fixed number of times.

Some rows are kept in memory: all of small classes, as many as can be of large ones. What is tried on them is then
learned from all rows. Linear de-mixing comes from moments. A linear head is the minimum of the loss of the kept rows
plus a linear function, which makes its gradient that of the loss of all rows at the last minimum: each pass brings the
minimum nearer to that of all rows, and order and blocks do not matter. Gaussians come from moments of sources. An MLP
is trained by steps on rows as they come, with rows of small classes and synthetic ones drawn from memory at every step.
Boosted trees, and the networks of a flow, stay those of the kept rows.

Processes that share a fit read all rows; of each block and step, every one computes a part. A checkpoint keeps each
pass that has ended.

References
----------
Shamir, Srebro, Zhang: Communication-efficient distributed optimization using an approximate Newton-type method,
ICML 2014.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.checkpoints import begin_training, end_if_asked
from ecrt.distributed import active, mine, own_rows, summed
from ecrt.errors import InputError, StoppedError
from ecrt.flows import ClassPrior
from ecrt.moments import Moments
from ecrt.randomness import own_draws_only, seeded
from ecrt.stages.choosing import Candidate, HeadChoice
from ecrt.stages.demixing import Demixing, DemixResult, Flow, demix_moments, sources_of
from ecrt.stages.heads import GaussianFitter, Head, HeadSample, LinearFitter, MLPFitter, SoftmaxGradients
from ecrt.stages.holdout import better_under_weights
from ecrt.stages.targets import ClassTarget, View
from ecrt.training import Progress, restore_optimizer, stop_requested, watched_steps

PASSES = 2
"""Over all rows, for the heads."""

STREAM_BATCH, MEMORY_BATCH = 1024, 256
"""Rows of a step that are read, and rows that are drawn from memory."""

SLOWER = 4
"""An MLP begins where the kept rows have led it: its learning rate is smaller by this factor."""

MOST_COLUMNS = 4096
"""Of features: their scatter is a square matrix."""

MOST_MOMENTS = 2**24
"""Classes times features: there are means and variances of each."""


def refuse_too_many(n_features: int, n_classes: int) -> None:
    """Refuse more features, or more of them times classes, than can be learned block by block."""
    if n_features > MOST_COLUMNS or n_features * n_classes > MOST_MOMENTS:
        raise InputError(
            f"{n_features} features and {n_classes} classes are too many to be learned block by block: up to "
            f"{MOST_COLUMNS:,} features, and {MOST_MOMENTS:,} features times classes, can be."
        )


class FeatureBlock(NamedTuple):
    """Features and class indices of some rows, and which of them are held out."""

    z: Array
    y: Labels
    held_out: Mask


@dataclass(frozen=True)
class FeatureStream:
    """Features of all rows.

    Attributes
    ----------
    blocks : reads them once, in random order where a generator is given.
    held_out : which of the rows in memory are held out.
    """

    blocks: Callable[[np.random.Generator | None], Iterator[FeatureBlock]]
    held_out: Mask

    def read(self, rng: np.random.Generator | None) -> Iterator[FeatureBlock]:
        """The blocks, until a stop is asked for."""
        for block in self.blocks(rng):
            end_if_asked()
            if stop_requested():
                raise StoppedError("reading all rows")
            yield block

    def moments(self, n_classes: int, demixed_on: Mask) -> Moments:
        """Of all rows but those held out."""
        kept = begin_training("moments of all rows")
        if kept is not None and (before := kept.outcome()) is not None:
            with kept.reading():
                return _unpacked(before)
        found: Moments | None = None
        for z, y, held_out in self.read(None):
            refuse_too_many(z.shape[1], n_classes)
            more = _own_moments(z[~held_out], y[~held_out], n_classes, demixed_on)
            found = more if found is None else found + more
        if found is None:
            raise InputError("The rows could be read once, but not again.")
        found = _of_all(found)
        if kept is not None:
            kept.end(_packed(found))
        return found


def _own_moments(z: Array, y: Labels, n_classes: int, pooled: Mask) -> Moments:
    """Of the rows of this process."""
    own = own_rows(len(z))
    return Moments.of(z[own], y[own], n_classes, pooled)


def _of_all(moments: Moments) -> Moments:
    return moments.of_all_processes() if active() else moments


def _packed(moments: Moments) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in vars(moments).items()}


def _unpacked(tensors: dict[str, Tensor]) -> Moments:
    return Moments(**{name: value.numpy() for name, value in tensors.items()})


def learn_from_stream(
    tried: Sequence[Candidate], z: Array, target: ClassTarget, stream: FeatureStream, progress: Progress
) -> list[tuple[DemixResult, HeadChoice]]:
    """What was tried on rows in memory, learned from all rows: de-mixings, and heads with their held-out losses.

    Parameters
    ----------
    z, target : rows in memory and their classes; the roles count all rows.
    """
    progress.start("reading all rows", 1 + PASSES)
    try:
        return _learned(tried, z, target, stream, progress)
    finally:
        progress.finish()


def _learned(
    tried: Sequence[Candidate], z: Array, target: ClassTarget, stream: FeatureStream, progress: Progress
) -> list[tuple[DemixResult, HeadChoice]]:
    n_classes = target.n_outputs
    moments = stream.moments(n_classes, target.demixed_on)
    progress.advance("moments")
    demixed: dict[int, DemixResult] = {}
    heads: list[StreamedHead | None] = []
    for one in tried:
        if id(one.demixed) not in demixed:
            flow = isinstance(one.demixing, Flow)
            demixed[id(one.demixed)] = one.demixed if flow else demix_moments(one.demixing, moments, z, target.y)
        own = replace(target, augmentation=one.augmentation)
        heads.append(streamed_head(own, demixed[id(one.demixed)], one.choice, stream.held_out, moments, progress))
    sources: dict[int, Moments] = {}
    for _ in range(PASSES):
        kept = begin_training("heads of all rows")
        if kept is not None and (before := kept.outcome()) is not None:
            with kept.reading():
                sources = dict(zip(demixed, map(_unpacked, before["sources"]), strict=True))
                for head, state in zip(heads, before["heads"], strict=True):
                    if head is not None:
                        head.restore(state)
        else:
            sources = _read_for_heads(tried, heads, demixed, target, stream, sources)
            if kept is not None:
                # Copies: they are written when it is time, and heads change what they hold.
                states = [None if head is None else copy.deepcopy(head.state()) for head in heads]
                kept.end({"sources": [*map(_packed, sources.values())], "heads": states})
        for one, head in zip(tried, heads, strict=True):
            if head is not None:
                head.end_pass(sources[id(one.demixed)])
        progress.advance("heads")
    for one in tried:
        if not isinstance(one.demixing, Flow):
            _set_prior(demixed[id(one.demixed)], one.demixing, sources[id(one.demixed)])
    return [
        (one.demixed, one.choice) if head is None else (demixed[id(one.demixed)], head.choice())
        for one, head in zip(tried, heads, strict=True)
    ]


def _read_for_heads(
    tried: Sequence[Candidate], heads: Sequence[StreamedHead | None], demixed: dict[int, DemixResult],
    target: ClassTarget, stream: FeatureStream, known: dict[int, Moments],
) -> dict[int, Moments]:  # fmt: skip
    """Let heads learn from all rows, once; moments of the sources of each de-mixing, if they are not known."""
    n_classes, found = target.n_outputs, dict(known)
    for z_block, y_block, held_out in stream.read(target.rng):
        z_block, y_block = z_block[~held_out], y_block[~held_out]
        labels = torch.from_numpy(y_block).to(target.device)
        for key, result in demixed.items():
            s = sources_of(result.demixer, z_block)
            if not known:
                more = _own_moments(s, y_block, n_classes, np.zeros(n_classes, dtype=bool))
                found[key] = found[key] + more if key in found else more
            scaled = torch.from_numpy(s * result.head_scale).float().to(target.device)
            for one, head in zip(tried, heads, strict=True):
                if head is not None and id(one.demixed) == key:
                    head.add(scaled, labels)
    for head in heads:
        if head is not None:
            head.add_up()
    return known or {key: _of_all(moments) for key, moments in found.items()}


def demix_all(config: Demixing, stream: FeatureStream, z: Array, y: Labels, demixed_on: Mask) -> DemixResult:
    """Linear de-mixing of all rows, of which some are in memory."""
    result = demix_moments(config, stream.moments(len(demixed_on), demixed_on), z, y)
    if config.source_prior == "per-class":
        none = np.zeros_like(demixed_on)
        parts = (Moments.of(sources_of(result.demixer, part), y, len(none), none) for part, y, _ in stream.read(None))
        _set_prior(result, config, reduce(add, parts))
    return result


def _set_prior(demixed: DemixResult, config: Demixing, sources: Moments) -> None:
    """Gaussians of the classes, by moments of their sources."""
    if config.source_prior != "per-class" or isinstance(demixed.demixer.prior, ClassPrior):
        return
    prior = ClassPrior(len(sources.count_m), sources.mean_md.shape[1]).double()
    nu, common = config.pseudo_samples, demixed.within_variance
    variance = (sources.squares_md + nu * common) / (np.maximum(sources.count_m - 1, 0) + nu)[:, None]
    present = np.flatnonzero(sources.count_m)
    prior.set_class(*(torch.from_numpy(part) for part in (present, sources.mean_md[present], variance[present])))
    demixed.demixer.prior = prior


def streamed_head(
    target: ClassTarget, demixed: DemixResult, choice: HeadChoice, held_out: Mask, moments: Moments,
    progress: Progress,
) -> StreamedHead | None:  # fmt: skip
    """The head of a choice, as it is learned from all rows; ``None`` where it stays that of the rows in memory."""
    with seeded(int(target.rng.integers(2**62))):
        fitter = choice.head.fitter(target, target.rng, progress)
    kinds = {LinearFitter: TiltedHead, MLPFitter: SteppedHead, GaussianFitter: GaussianStream}
    kind: Any = kinds.get(type(fitter))
    return None if kind is None else kind(target, View(target, demixed), choice, fitter, held_out, moments.count_m)


class StreamedHead:
    """A head that is learned from all rows but those held out, which judge it.

    Parameters
    ----------
    target, view, choice : rows in memory, as one de-mixing shows them, and the head that they have chosen.
    fitter : of the head.
    held_out : which rows in memory are held out.
    count_m : all rows of each class but those held out.
    """

    def __init__(
        self, target: ClassTarget, view: View, choice: HeadChoice, fitter: Any, held_out: Mask, count_m: Array
    ) -> None:
        self.target, self.view, self.before, self.fitter, self.count_m = target, view, choice, fitter, count_m
        self.head: Head = choice.head
        self.train, self.held_out = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        fresh = view.demixed.fresh
        self.judges = self.held_out if fresh is None else self.held_out[fresh[self.held_out]]
        weight = target.weights(self.judges)
        self.weight: Array = weight / weight.sum()
        self.seed = int(target.rng.integers(2**62))
        self.states: list[tuple[Array, nn.Module, nn.Module]] = []

    def add(self, s: Tensor, y: Tensor) -> None:
        """Learn from scaled sources and classes of some rows."""

    def add_up(self) -> None:
        """Put together what processes have learned from their parts."""

    def end_pass(self, sources: Moments) -> None:
        """All rows have been seen; ``sources`` are moments of theirs."""
        raise NotImplementedError

    def state(self) -> Any:
        """What has been learned in this pass, before it is ended."""

    def restore(self, state: Any) -> None:
        """Be where ``state`` was taken."""

    def sample(self, rows: Labels) -> HeadSample:
        """Rows in memory and synthetic ones, the same each time."""
        view = replace(self.view, target=replace(self.target, rng=np.random.default_rng(self.seed)))
        return view.sample(rows, self.head)

    def keep(self, judged: nn.Module, final: nn.Module) -> None:
        """Remember a head that the held-out rows may judge, and the one to use in its place."""
        losses = self.target.losses(self.view.judged(self.judges, self.head, judged), self.judges)
        self.states[1:] = []
        self.states.append((losses, copy.deepcopy(judged), copy.deepcopy(final)))

    def choice(self) -> HeadChoice:
        """The last state, unless held-out rows like the first one, of the rows in memory, better beyond noise."""
        first, last = self.states[0], self.states[-1]
        losses, judged, final = first if better_under_weights(first[0], last[0], self.weight) else last
        logits = self.view.judged(self.judges, self.head, judged).cpu()
        temperature = self.view.temperature(self.judges, self.head, judged)
        module = self.target.balanced(final, self.head, temperature).double().cpu().eval()
        return replace(
            self.before, rows=self.judges, held_out=float(self.weight @ losses), held_out_losses=losses,
            fit=lambda: module, logits=lambda: logits, trial=lambda: (logits.numpy(), self.judges),
            temperature=temperature,
        )  # fmt: skip


def _streamed(sample: HeadSample, count_m: Array) -> tuple[Tensor, Tensor]:
    """Of each class, whether it has rows beside those of the sample; and what a row of it then weighs, 0 if not."""
    real = ~sample.synthetic
    kept_m = torch.bincount(sample.y[real], minlength=len(count_m)).double()
    mass_m = torch.zeros_like(kept_m).index_add_(0, sample.y[real], sample.weight[real].double())
    every_m = torch.from_numpy(count_m).to(kept_m)
    more_m = every_m > kept_m
    return more_m, torch.where(more_m, mass_m / every_m.clamp(min=1.0), 0.0)


class TiltedHead(StreamedHead):
    """A linear head under a smooth loss: one of the rows that are not held out, and one of all."""

    fitter: LinearFitter

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        n_classes = len(self.count_m)
        held_out_m = np.bincount(self.target.y[self.held_out], minlength=n_classes)
        self.sides = ((self.train, self.count_m), (np.arange(len(self.target.y)), self.count_m + held_out_m))
        heads, self.weights_m = [], []
        for rows, count_m in self.sides:
            sample = self.sample(rows)
            heads.append(self.fitter.fit(sample, self.before.setting))
            self.weights_m.append(_streamed(sample, count_m)[1])
        self.keep(*heads)
        self._begin_at(heads[0])

    def _begin_at(self, head: nn.Module) -> None:
        self.point = copy.deepcopy(head).float()  # here, since a pass that was kept is not added again
        self.gradients = [[torch.zeros_like(one, dtype=torch.float64) for one in head.parameters()] for _ in self.sides]

    def add(self, s: Tensor, y: Tensor) -> None:
        """Add up the gradients of these rows, at the last head."""
        own = own_rows(len(y))
        s, y = s[own], y[own]
        slopes = self.fitter.slopes(self.point, s, y)
        for sums, weight_m in zip(self.gradients, self.weights_m, strict=True):
            _add_slopes(sums, slopes, s, weight_m[y])

    def add_up(self) -> None:
        """Sum the gradients of all processes."""
        self.gradients = [[summed(one) for one in sums] for sums in self.gradients]

    def state(self) -> Any:
        """The gradients."""
        return self.gradients

    def restore(self, state: Any) -> None:
        """Take such gradients."""
        self.gradients = [[one.to(self.target.device) for one in sums] for sums in state]

    def end_pass(self, sources: Moments) -> None:
        """The minimum of the loss in memory, whose gradient at the last head is made that of all rows."""
        start = copy.deepcopy(self.point).double()
        heads = []
        for (rows, count_m), sums in zip(self.sides, self.gradients, strict=True):
            sample = self.sample(rows)
            sample = replace(sample, s=sample.s.double(), weight=sample.weight.double())
            more_m, weight_m = _streamed(sample, count_m)
            place = torch.arange(len(sample.y), device=sample.y.device)
            real = place < len(rows)
            held_out = torch.from_numpy(np.isin(rows, self.held_out)).to(real.device)
            for block in place[real & more_m[sample.y]].split(STREAM_BATCH * 8):
                s, y = sample.s[block], sample.y[block]
                slopes = self.fitter.slopes(start, s, y)
                # Held-out rows are not among those that were read: they count among all rows from here.
                _add_slopes(sums, slopes, s, weight_m[y] * held_out[block] - sample.weight[block])
            heads.append(self.fitter.fit_tilted(sample, self.before.setting, start, sums))
        self.keep(*heads)
        self._begin_at(heads[0])


def _add_slopes(sums: list[Tensor], slopes_nm: Tensor, s_nd: Tensor, weight_n: Tensor) -> None:
    """Add gradients by weights and biases of a linear head."""
    weighted_nm = slopes_nm * weight_n[:, None].to(slopes_nm)
    sums[0] += weighted_nm.T @ s_nd
    sums[1] += weighted_nm.sum(0)


class SteppedHead(StreamedHead):
    """A network that is trained by steps. It does not learn from held-out rows, not even in the end."""

    fitter: MLPFitter

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        sample = self.sample(self.train)
        self.module = self.fitter.fit(sample, self.before.setting)
        self.keep(self.module, self.module)
        more_m, self.weight_m = _streamed(sample, self.count_m)
        self.in_memory = (sample.synthetic | ~more_m[sample.y]).nonzero()[:, 0]
        self.memory, self.more_m = sample, more_m
        self.n_rows = int(self.count_m[more_m.cpu().numpy()].sum())
        self.n_steps = PASSES * max(self.n_rows // STREAM_BATCH, 1)
        self.done = 0
        self.generator = torch.Generator().manual_seed(self.seed)
        config = replace(self.fitter.training, learning_rate=self.fitter.training.learning_rate / SLOWER)
        self.risk = self.fitter.new_risk()
        self.network: Any = self.module
        if self.fitter.networks > 1:  # the risk is that of networks side by side, which have become one
            self.network = lambda s: self.module(s)[None]
        shift_m = self.fitter.shift_m
        self.written = None if shift_m is None else SoftmaxGradients(self.module, shift_m)
        self.steps = watched_steps(
            self.module, self._loss, config, self.n_steps, stage="MLP head, all rows",
            gradients=None if self.written is None else self._gradients,
        )  # fmt: skip
        self.rest: tuple[Tensor, Tensor] | None = None

    def _loss(self, batch: HeadSample) -> Tensor:
        every = torch.arange(len(batch.y), device=batch.y.device)
        return self.risk(self.network, batch, every, min(self.done / self.n_steps, 1.0)).mean() * len(batch.y)

    def _gradients(self, batch: HeadSample) -> float:
        assert self.written is not None
        return self.written.of_batch(*map(mine, (batch.s, batch.y, batch.weight)))

    def add(self, s: Tensor, y: Tensor) -> None:
        """A step for each batch of these rows, in random order; what is left waits for the next ones."""
        mine = self.more_m[y]
        s, y = s[mine], y[mine]
        if self.rest is not None:
            s, y = torch.cat([self.rest[0], s]), torch.cat([self.rest[1], y])
        order = torch.randperm(len(y), generator=self.generator).to(y.device)
        whole = len(y) // STREAM_BATCH * STREAM_BATCH
        self.module.train()
        with seeded(self.seed + self.done), own_draws_only(self.module):
            for rows in order[:whole].view(-1, STREAM_BATCH):
                self.steps(self._batch(s[rows], y[rows]))
                self.done += 1
        self.rest = s[order[whole:]], y[order[whole:]]
        self.module.eval()

    def _batch(self, s: Tensor, y: Tensor) -> HeadSample:
        """Rows that were read, and others from memory, with weights of all that they stand for."""
        weight = self.weight_m[y].float() * (self.n_rows / len(y))
        if not len(self.in_memory):
            return HeadSample(s, y, weight, torch.zeros_like(y, dtype=torch.bool))
        drawn = torch.randint(len(self.in_memory), (MEMORY_BATCH,), generator=self.generator).to(y.device)
        rows = self.in_memory[drawn]
        more = self.memory.weight[rows] * (len(self.in_memory) / MEMORY_BATCH)
        y = torch.cat([y, self.memory.y[rows]])
        return HeadSample(
            torch.cat([s, self.memory.inputs(rows)]),
            y,
            torch.cat([weight, more]),
            torch.zeros_like(y, dtype=torch.bool),
        )

    def state(self) -> Any:
        """The network, its optimizer, and what waits for the next pass."""
        steps = self.steps
        optimizer = [steps.optimizer.state[one] for one in steps.parameters]
        return {
            "module": self.module.state_dict(), "optimizer": optimizer, "step": steps.schedule.step, "done": self.done,
            "drawn": self.generator.get_state(), "rest": self.rest,
        }  # fmt: skip

    def restore(self, state: Any) -> None:
        """Go on from there."""
        self.module.load_state_dict(state["module"])
        restore_optimizer(self.steps.optimizer, state["optimizer"])
        self.steps.schedule.go_on_from(state["step"])
        self.generator.set_state(state["drawn"])
        self.done, rest = state["done"], state["rest"]
        self.rest = None if rest is None else (rest[0].to(self.target.device), rest[1].to(self.target.device))

    def end_pass(self, sources: Moments) -> None:
        """Where the steps have led."""
        self.keep(self.module, self.module)


class GaussianStream(StreamedHead):
    """Gaussians of the classes, of the rows that are not held out, and of all."""

    def end_pass(self, sources: Moments) -> None:
        """From moments of the sources."""
        if self.states:
            return
        demixed, n_classes = self.view.demixed, len(self.count_m)
        held_out = Moments.of(demixed.learned[self.held_out], self.target.y[self.held_out], n_classes, sources.pooled_m)
        scale = demixed.head_scale
        variance = torch.from_numpy(demixed.within_variance * scale**2)
        between = torch.from_numpy(demixed.signal_to_noise) * variance
        heads = []
        for one in (sources, sources + held_out):
            parts = (one.count_m[:, None], one.mean_md * scale, one.squares_md * scale**2)
            n_m1, mean_md, squares_md = (torch.from_numpy(part) for part in parts)
            heads.append(GaussianFitter.of_moments(n_m1, mean_md, squares_md, variance, between, self.before.setting))
        self.keep(*(head.to(self.target.device) for head in heads))
