"""Extreme classification (supplement D): 1,000 classes, a handful of samples each, with rivals and limits added.

Classes are equal, so importance weights and logit adjustment change nothing and their rows are that of ERM. Of Table
1's methods GAN and SMOTE are left out: with 1,000 classes as large as each other there is nothing to fill up. In the
paper's network they are there, and double every class.

Recipes of their own have the paper's preset, Eq. 3 as it stands in place of Algorithm 1's reading, the steps from there
to ours, and rivals in the preset's network. The supplement gives this data no
network and no weights, and does not say which prior and which augmentation it has; what it tunes, it tunes by the loss
on held-out rows. So does a recipe here, on a draw of its own (``results/extreme-tuning.json``), and ``TUNED`` is what
it chose, for one prior (1P) and for many (MP) by the number of samples. Another recipe fits ``ECRTClassifier`` with
more restarts on five samples a class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from ecrt.data import assign_roles
from ecrt.data.imbalance import GaussianSources, SyntheticData
from ecrt.data.minority import ClassRoles
from ecrt.diagnostics import mean_correlation_coefficient
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.base import Session
from ecrt.randomness import seeded
from ecrt.rivals import VAT, Rival
from ecrt.stages import (
    AUGMENTATION,
    Augmentation,
    DemixResult,
    Flow,
    GaussianHead,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Parametric,
    Permutation,
    Synthetic,
)
from ecrt.stages.choosing import Draw
from ecrt.training import Progress
from paper.data.synthetic import extreme_sources
from paper.experiments.one_flow import (
    Predictor,
    Sample,
    balanced_log_proba,
    choose,
    find_sources,
    predicted,
    score,
    split,
    the_device,
)
from paper.experiments.preset import EQUATION_3, STEPS, between_neighbours, paper_flow, paper_gan, paper_head
from paper.statistics import groups, observations, table

__all__ = [
    "METHODS",
    "SIZES",
    "cells",
    "few_cells",
    "preset_cells",
    "run_cell",
    "run_few",
    "run_tuning",
    "summarise",
    "summarise_few",
    "summarise_tuning",
    "tuned_for",
    "tuning_cells",
]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
SIZES = (5, 10, 20, 50, 75, 100, 150)
DRAWS = (6, 7, 8, 9, 10)
"""Draws that nobody looked at while settings were made."""
STEPPED = (5,)
"""Samples of a class with which the steps to ours are taken on the preset's own flows; others have flows for them."""
FURTHER, NETWORK_RIVALS = "Eq. 3, and steps", "rivals"
"""Parts of the preset's recipe."""
GAN_STEPS = 5000
"""Steps of the GAN, which has 1,000 classes to learn."""
METRICS = ("top1", "top5", "nll")
TUNED: dict[int, dict[str, Row]] = {
    5: {
        "1p": {"rho": 1.0, "rate": 4e-3, "hidden": [32, 32], "head_steps": 1 / 6, "drawn": "permutation",
               "weight": 1e-4},
        "mp": {"rho": 1.0, "rate": 1e-3, "hidden": [32, 32], "head_steps": 1 / 6, "drawn": "prior", "weight": 1e-4},
    },
    20: {
        "1p": {"rho": 0.1, "rate": 4e-3, "hidden": [32, 32], "head_steps": 1.0, "drawn": "moments", "weight": 1e-2},
        "mp": {"rho": 0.1, "rate": 4e-3, "hidden": [32, 32], "head_steps": 1.0, "drawn": "moments", "weight": 1e-2},
    },
}  # fmt: skip
"""Settings of the preset by samples of a class, for 1P and MP; other sizes have those of the nearest."""
METHODS = {
    "erm": "ERM, a trained MLP",
    "la": "IW and LA (equal classes: ERM itself)",
    "vat": "VAT",
    "focal": "FOCAL",
    "ldam": "LDAM (equal classes: one margin for all)",
    "qda": "QDA on the features",
    "ecrt_without": "ECRT without augmentation, MLP on the sources",
    "ecrt_with": "ECRT with augmentation, MLP on the sources",
    "ecrt_gaussian": "ECRT, Gaussian head (parametric augmentation without end)",
    "ecrt": "ECRT, the head that held-out rows choose",
    "oracle": "true f and variance, estimated means",
    "bayes": "Bayes, knows everything",
    "ERM": "ERM in the paper's network",
    "FOCAL": "FOCAL in the paper's network",
    "LDAM": "LDAM in the paper's network",
    "VAT": "VAT in the paper's network",
    "GAN": "GAN in the paper's network, every class doubled",
    "SMOTE": "SMOTE in the paper's network, every class doubled",
    "1p_without": "ECRT-1P, paper preset, without augmentation",
    "1p_with": "ECRT-1P, paper preset",
    "mp_without": "ECRT-MP, paper preset, without augmentation",
    "mp_with": "ECRT-MP, paper preset",
    **{f"{prior}_equation": f"ECRT-{prior.upper()}, paper preset{EQUATION_3}" for prior in ("1p", "mp")},
    **{f"step {place}": f"ECRT-MP, paper preset{step}" for place, step in enumerate(STEPS, start=1)},
}
RIVALS: dict[str, Row] = {
    "erm": {},
    "vat": {"rival": VAT()},
    "focal": {"loss": "focal"},
    "ldam": {"loss": "ldam"},
}
"""Options of the network on the features."""


def cells(smoke: bool) -> Iterable[Row]:
    """Five draws of each size; then fewer classes of 20 samples."""
    if smoke:
        yield {"preset": "ours", "draw": 1, "n_classes": 20, "n_per_class": 5, "steps": 15}
        return
    for draw in DRAWS:
        for size in SIZES:
            yield {"preset": "ours", "draw": draw, "n_classes": 1000, "n_per_class": size, "steps": 7500}
    for draw in DRAWS:
        for n_classes in (10, 100, 500):
            yield {"preset": "ours", "draw": draw, "n_classes": n_classes, "n_per_class": 20, "steps": 7500}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """The paper's preset on three draws of each size, with Eq. 3 as it stands, and rivals in its network."""
    size: Row = {"n_classes": 20, "steps": 15} if smoke else {"n_classes": 1000, "steps": 7500}
    for n in (5,) if smoke else SIZES:
        for draw in (1,) if smoke else DRAWS[:3]:
            cell = {"preset": "paper", "draw": draw, "n_per_class": n, **size}
            yield cell
            yield from ({**cell, "part": part} for part in (FURTHER, NETWORK_RIVALS))


def run_cell(*, preset: str, draw: int, n_classes: int, n_per_class: int, steps: int, part: str = "") -> Row:
    """Every method on one draw; sizes of a draw share means and test points."""
    truth = extreme_sources(n_classes, np.random.default_rng(draw))
    test = truth.draw([20] * n_classes, np.random.default_rng([draw, 0]))
    data = truth.draw([n_per_class] * n_classes, np.random.default_rng([draw, n_per_class]))
    roles = assign_roles(np.bincount(data.y), np.arange(n_classes), minority="all", demix_on="all", encode_on="all")
    sample = split(data.z, data.y, draw)
    if preset == "paper":
        return PARTS[part](_PresetRuns(sample, test, roles, draw, steps))
    found = _ours(sample, test, roles, draw, steps)
    if preset == "ours":
        qda = QuadraticDiscriminantAnalysis(tol=1e-12).fit(data.z, data.y)
        found["qda"] = score(np.asarray(qda.predict_log_proba(test.z)), test.y, roles.counts)
        found |= _limits(data, test, truth)
    return found


def _limits(data: SyntheticData, test: SyntheticData, truth: GaussianSources) -> Row:
    """What one reaches who knows the true mechanism and variance and estimates only the means, or knows everything."""
    counts = np.bincount(data.y)
    means = np.stack([data.s[data.y == label].mean(axis=0) for label in range(len(counts))])
    oracle = GaussianSources(means, truth.variances).log_posterior(test.s)
    return {
        "oracle": score(oracle, test.y, counts),
        "bayes": score(truth.log_posterior(test.s), test.y, counts),
    }


def _training(n_rows: int, steps: int, batch_size: int, *, most: int = 200, **options: Any) -> Row:
    """So many steps, whatever the number of rows, but no more epochs than ``most``."""
    return {"epochs": int(np.clip(steps * batch_size / n_rows, 2, most)), "batch_size": batch_size, **options}


def _ours(sample: Sample, test: SyntheticData, roles: ClassRoles, seed: int, steps: int) -> Row:
    """One block in either order of the features, exact marginal, additive critic; heads on the same sources."""
    n = len(sample.train_rows)
    config = Flow(n_restarts=2, critic_width=64, **_training(n, steps, 64 if n <= 4000 else 128))
    flow = find_sources(sample, roles, config, seed)
    plain = find_sources(sample, roles, NoDemixing(), seed)
    network = _network(n, (64, 64), steps // 3)
    heads = {
        "ecrt_gaussian": Predictor(GaussianHead()),
        "ecrt_without": network(0.0),
        "ecrt_with": network(0.5),
    }
    choices = {name: choose(flow, sample, roles, head, seed) for name, head in heads.items()}
    best = min(choices, key=lambda name: min(choices[name].candidates.values()))
    found = {
        name: score(predicted(flow, choice, test.z, seed), test.y, roles.counts) for name, choice in choices.items()
    }
    rivals = {
        name: score(
            balanced_log_proba(plain, sample, roles, network(0.0, **options), test.z, seed), test.y, roles.counts
        )
        for name, options in RIVALS.items()
    }
    mcc = mean_correlation_coefficient(test.s, flow.sources(test.z))
    return {**rivals, "la": rivals["erm"], **found, "ecrt": found[best], "chosen": best, "mcc": mcc}


def tuned_for(size: int) -> dict[str, Row]:
    """Settings of the preset with so many samples, for 1P and MP."""
    return TUNED[min(TUNED, key=lambda tuned: abs(np.log(tuned / size)))]


def _flow_of(prior: Any, n_rows: int, steps: int, setting: Row, **options: Any) -> Any:
    """The preset's flow under a setting, for so many steps, of which held-out rows choose one."""
    own = {"likelihood_weight": setting["rho"], "learning_rate": setting["rate"]}
    training = _training(n_rows, steps, 256, most=2000, **own)
    return paper_flow("mnist", prior, patience=training["epochs"], **training, **options)


def _head_of(setting: Row, n_rows: int, steps: int, weighting: Any = "added", **options: Any) -> Predictor:
    """A decoder on the sources, and what is drawn for it: ``"none"`` for nothing."""
    training = _training(n_rows, round(steps * setting["head_steps"]), 256, most=2000, learning_rate=4e-3)
    predictor = paper_head("mnist", hidden=tuple(setting["hidden"]), **training, **options)
    return replace(predictor, augmentation=_drawn(setting["drawn"], setting.get("weight", 0.0), weighting))


def _drawn(kind: str, weight: float, weighting: Any = "added") -> Augmentation:
    """One of the paper's augmentations, with this weight for each class."""
    if kind == "none":
        return NoAugmentation()
    if kind == "permutation":
        return Permutation(weight=weight, weighting=weighting)
    source: Any = "samples" if kind == "moments" else "prior"
    return Parametric(source=source, pseudo_samples=0.0, weight=weight, weighting=weighting)


class _PresetRuns:
    """Runs of the preset on one draw, under the settings that held-out rows of another draw chose."""

    def __init__(self, sample: Sample, test: SyntheticData, roles: ClassRoles, seed: int, steps: int) -> None:
        self.sample, self.test, self.roles, self.seed, self.steps = sample, test, roles, seed, steps
        self.n, self.size = len(sample.train_rows), int(roles.counts[0])
        self.settings = tuned_for(self.size)
        self.found: Row = {"mcc": {}}

    def features(self) -> DemixResult:
        """No flow: the features as they are."""
        return find_sources(self.sample, self.roles, NoDemixing(), self.seed)

    def flow(self, name: str, **options: Any) -> DemixResult:
        """The preset's flow, with one prior or with many; its match with the true sources is kept under a name."""
        prior = "shared" if name == "1p" else "per-class"
        config = _flow_of(prior, self.n, self.steps, self.settings["1p" if name == "1p" else "mp"], **options)
        demixed = find_sources(self.sample, self.roles, config, self.seed)
        self.found["mcc"][name] = mean_correlation_coefficient(self.test.s, demixed.sources(self.test.z))
        return demixed

    def head(self, setting: Row, **options: Any) -> Predictor:
        """The preset's decoder, and what is drawn for it."""
        return _head_of(setting, self.n, self.steps, **options)

    def doubled(self, rows: Callable[[Array, Labels, Labels], Array]) -> Draw:
        """As many synthetic rows of every class as it has, made from features and their classes, for given classes."""

        def draw(part: DemixResult, learned: Labels) -> Synthetic:
            y = self.sample.y[learned]
            with seeded(self.seed):
                return Synthetic(rows(part.learned[learned], y, y), y, same_weight=True)

        return Draw(lambda part, learn: lambda learned: draw(part, learned))

    def run(self, name: str, demixed: DemixResult, predictor: Predictor, draw: Draw | None = None) -> None:
        """Figures of a decoder on the sources."""
        choice = choose(demixed, self.sample, self.roles, predictor, self.seed, draw)
        log_proba = predicted(demixed, choice, self.test.z, self.seed)
        self.found[name] = score(log_proba, self.test.y, self.roles.counts)

    def take_steps(self, demixed: DemixResult) -> None:
        """Signal weights on the sources of MP, and then linear de-mixing first."""
        predictor = self.head(self.settings["mp"])
        self.run("step 2", replace(demixed, weighted=True), predictor)
        self.run("step 3", self.flow("step 3", linear_first=True, signal_weights=True), predictor)


def _paper(runs: _PresetRuns) -> Row:
    """The preset and its network on the features; the steps towards ours where classes have few samples."""
    runs.run("ERM", runs.features(), runs.head(runs.settings["mp"] | {"drawn": "none"}))
    for prior, setting in runs.settings.items():
        demixed = runs.flow(prior)
        runs.run(f"{prior}_without", demixed, runs.head(setting | {"drawn": "none"}))
        runs.run(f"{prior}_with", demixed, runs.head(setting))
    if runs.size in STEPPED:
        runs.found["step 1"] = runs.found["mp_with"]  # classes are equal
        runs.take_steps(demixed)
    return runs.found


def _further(runs: _PresetRuns) -> Row:
    """Eq. 3 as it stands in place of Algorithm 1's reading; the steps towards ours at the other sizes."""
    for prior, setting in runs.settings.items():
        demixed = runs.flow(prior)
        runs.run(f"{prior}_equation", demixed, runs.head(setting, weighting="replaced"))
    if runs.size not in STEPPED:
        runs.run("step 1", demixed, runs.head(setting))  # classes are equal
        runs.take_steps(demixed)
    return runs.found


def _network_rivals(runs: _PresetRuns) -> Row:
    """Rivals in the preset's network on the features; VAT and what the GAN and SMOTE make act on these, too."""
    plain, setting = runs.features(), runs.settings["mp"] | {"drawn": "none"}
    for loss in ("focal", "ldam"):
        runs.run(loss.upper(), plain, runs.head(setting, loss=loss))
    usual = runs.head(setting)
    runs.run("VAT", plain, replace(usual, head=VAT().head(usual.head)))
    rng, gan = np.random.default_rng([runs.seed, 4]), paper_gan("mnist", n_steps=min(GAN_STEPS, runs.steps))
    session = Session(rng, the_device(), Progress())
    runs.run("GAN", plain, usual, runs.doubled(lambda z, y, wanted: gan.rows(z, y, wanted, session)))
    runs.run("SMOTE", plain, usual, runs.doubled(lambda z, y, wanted: between_neighbours(z, y, wanted, rng)))
    return runs.found


PARTS = {"": _paper, FURTHER: _further, NETWORK_RIVALS: _network_rivals}


def _network(
    n_rows: int, hidden: tuple[int, ...], steps: int, kind: Any = "parametric", weight_decay: float = 1e-2
) -> Any:
    """From the weight of augmentation to a network for the head."""
    training = _training(n_rows, steps, 256, learning_rate=4e-3, weight_decay=weight_decay)

    def config(weight: float, loss: str = "logit-adjusted", rival: Rival | None = None) -> Predictor:
        augmentation: Any = clone(AUGMENTATION.part(kind, "augmentation")).set_params(weight=weight)
        head = MLPHead(loss=loss, hidden=hidden, dropout=0.0, **training)
        return Predictor(head if rival is None else rival.head(head), augmentation)

    return config


def summarise(rows: list[Row]) -> list[Row]:
    """Mean and half-width over draws for every preset, number of classes, size and method; ECRT beside the oracle."""
    by = ("what", "preset", "n_classes", "n_per_class")
    lines = table(
        observations(rows), by, METRICS, count="runs", order=lambda key: (*key[1:], list(METHODS).index(key[0]))
    )
    oracles = {tuple(line[key] for key in by[1:]): line for line in lines if line["what"] == "oracle"}
    for line in lines:
        oracle = oracles.get(tuple(line[key] for key in by[1:]))
        if oracle is not None:
            line |= {f"{name}_of_oracle": line[name] / oracle[name] for name in ("top1", "top5")}
            line["nll_above_oracle"] = line["nll"] - oracle["nll"]
    return [line | {"what": METHODS[line["what"]], "method": line["what"]} for line in lines]


# --- settings that the supplement does not give -------------------------------------------------------------------

PRIORS, RHOS, RATES = ("shared", "per-class"), (1e-2, 1e-1, 1.0), (1e-3, 4e-3)
"""Of the flow: prior, weight of the likelihood, and learning rate. The first weight is that of other data of the
supplement, the first rate Adam's own."""

HEADS_TRIED = [{"hidden": hidden, "head_steps": steps} for hidden in ([32, 32], [512]) for steps in (1 / 6, 1.0)]
"""Decoders of MNIST and of Tiny-ImageNet; steps of training as a share of the flow's."""

DRAWN = [(kind, weight) for kind in ("permutation", "moments", "prior") for weight in (1e-4, 1e-3, 1e-2)]
"""What is added to the rows: coordinates permuted, Gaussians of the moments of a class, or its trained prior."""


def tuning_cells(smoke: bool) -> Iterable[Row]:
    """Every setting of the flow on a draw that nothing is reported on, with few samples and with some."""
    size: Row = {"n_classes": 20 if smoke else 1000, "steps": 15 if smoke else 7500}
    most = 1 if smoke else None
    for n in (5, 20)[:most]:
        for prior in PRIORS[:most]:
            for rho in RHOS[:most]:
                for rate in RATES[:most]:
                    yield {"draw": 1, "n_per_class": n, "prior": prior, "rho": rho, "rate": rate, **size}


def run_tuning(*, draw: int, n_classes: int, n_per_class: int, prior: str, rho: float, rate: float, steps: int) -> Row:
    """The loss on held-out rows of decoders on the sources of one flow; then of what may be added for the best."""
    truth = extreme_sources(n_classes, np.random.default_rng(draw))
    data = truth.draw([n_per_class] * n_classes, np.random.default_rng([draw, n_per_class]))
    roles = assign_roles(np.bincount(data.y), np.arange(n_classes), minority="all", demix_on="all", encode_on="all")
    sample, started = split(data.z, data.y, draw), time.perf_counter()
    setting: Row = {"rho": rho, "rate": rate}
    demixed = find_sources(sample, roles, _flow_of(prior, len(sample.train_rows), steps, setting), draw)
    took = time.perf_counter() - started

    def loss(head: Row) -> float:
        predictor = _head_of(head, len(sample.train_rows), steps)
        return min(choose(demixed, sample, roles, predictor, draw).candidates.values())

    tried = [setting | head | {"drawn": "none"} for head in HEADS_TRIED]
    losses = [loss(head) for head in tried]
    best = tried[int(np.argmin(losses))]
    drawn = [best | {"drawn": kind, "weight": weight} for kind, weight in DRAWN if kind != "prior" or prior != "shared"]
    losses += [loss(head) for head in drawn]
    mcc = mean_correlation_coefficient(data.s, demixed.sources(data.z))
    return {
        "tried": [head | {"held_out_nll": loss} for head, loss in zip(tried + drawn, losses, strict=True)],
        "flow_seconds": took, "match": mcc,
    }  # fmt: skip


def summarise_tuning(rows: list[Row]) -> list[Row]:
    """The best setting of each prior and size, with augmentation; and its loss without."""
    lines = []
    for (size, prior), mine in groups([row["cell"] | row for row in rows], "n_per_class", "prior").items():
        tried = [(one, row) for row in mine for one in row["tried"]]
        best, row = min((entry for entry in tried if entry[0]["drawn"] != "none"), key=lambda e: e[0]["held_out_nll"])
        plain = min(one["held_out_nll"] for one in row["tried"] if one["drawn"] == "none")
        name = "ECRT-1P" if prior == "shared" else "ECRT-MP"
        lines.append({"what": name, "n_per_class": size, **best, "held_out_nll_without": plain, "match": row["match"]})
    return lines


# --- five samples a class -----------------------------------------------------------------------------------------


def few_cells(smoke: bool) -> Iterable[Row]:
    """Five draws of 1,000 classes with 5 samples each."""
    for draw in range(1, 2 if smoke else 6):
        yield {"draw": draw, "n_classes": 100 if smoke else 1000, "n_per_class": 5, "epochs": 5 if smoke else 120}


def run_few(*, draw: int, n_classes: int, n_per_class: int, epochs: int) -> Row:
    """ECRT beside the oracle that knows the true mechanism and variance and estimates only the means."""
    rng = np.random.default_rng(draw)
    truth = extreme_sources(n_classes, rng)
    data, test = truth.draw([n_per_class] * n_classes, rng), truth.draw([20] * n_classes, rng)
    clf = ECRTClassifier(
        demixing=Flow(blocks=(1, 2), n_restarts=4, batch_size=64, epochs=epochs), head="gaussian",
        random_state=draw, device="cpu",
    ).fit(data.z, data.y)  # fmt: skip
    return {
        "ecrt": score(clf.predict_log_proba(test.z), test.y, np.bincount(data.y)),
        **_limits(data, test, truth),
        "mcc": mean_correlation_coefficient(test.s, clf.transform(test.z)),
        "head": clf.head_name_,
        "n_blocks": clf.history_["restarts"][0].n_blocks,
    }


def summarise_few(rows: list[Row]) -> list[Row]:
    """Means over draws with intervals, and ECRT as a share of the oracle."""
    lines = table(observations(rows), ("what",), METRICS, count="runs")
    ecrt, oracle, _ = lines
    shares = {name: ecrt[name] / oracle[name] for name in ("top1", "top5")}
    more = {"what": "ecrt / oracle (NLL: difference)", "runs": len(rows), **shares, "nll": ecrt["nll"] - oracle["nll"]}
    return [*lines, more]
