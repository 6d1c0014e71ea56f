"""The paper's figures on the toy: what augmentation gains, where it errs, and what the theorems promise.

Class 0 is the minority. Its samples are few; those of the six others, which alone de-mixing learns from, are many. A
recipe of its own has the paper's preset, and the steps from there to ours. The supplement gives no settings for this
data; the preset takes those of MNIST, which has two features too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.augmentation import ClassSources
from ecrt.data import assign_roles, toy_sources
from ecrt.data.imbalance import SyntheticData, henon
from ecrt.diagnostics import max_abs_correlation, mean_correlation_coefficient
from ecrt.metrics import nll_per_sample
from ecrt.stages import Augmentation, DemixResult, Flow, MLPHead, NoDemixing, Parametric, Permutation
from paper.experiments.mmd import mmd_rbf
from paper.experiments.one_flow import (
    Predictor,
    Sample,
    balanced_log_proba,
    find_sources,
    score,
    split,
)
from paper.experiments.preset import (
    EQUATION_3,
    PAPER_RIVALS,
    STEPS,
    fit_paper_rival,
    own_log_proba,
    paper_flow,
    paper_head,
)
from paper.statistics import difference, figure, groups, observations, table, values

__all__ = [
    "LONGER",
    "LONGER_PRESET",
    "MANY_PRIORS",
    "NETWORK",
    "PAPER_EFFICIENCY",
    "PLAIN",
    "cells",
    "equivalent_size",
    "preset_cells",
    "run_cell",
    "summarise",
]

Row = dict[str, Any]
Array = NDArray[np.float64]
N_CLASSES = 7
PAPER_EFFICIENCY, READINGS = "efficiency, paper preset", "readings of Eq. 3, and steps"
NETWORK, MANY_PRIORS, PLAIN = "ERM in the paper's network", "ECRT-MP, paper preset", ", without augmentation"
LONGER, LONGER_PRESET = (f"{name}, ten times the epochs" for name in (NETWORK, "ECRT-1P, paper preset"))
PRESETS: dict[str, Any] = {"ECRT-1P, paper preset": "shared", MANY_PRIORS: "per-class"}
"""Priors of the preset; MP comes last."""
FOR_EQUAL_CLASSES = tuple(f"{name} in the paper's network" for name in ("IW", "GAN", "SMOTE"))
"""Rivals that say themselves what holds for equal classes."""
PRESET_FIGURES = (
    "top1", "nll", "minority_recall", "top1_training_prior", "nll_training_prior", "minority_recall_training_prior"
)  # fmt: skip
SMOKE = {"epochs": 2, "n_test": 100}
FULL = {"epochs": 60, "n_test": 2000}
STRENGTHS = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
BANDWIDTHS = (0.25, 0.5, 1.0)
DRAWN_POINTS = 120


def cells(smoke: bool) -> Iterable[Row]:
    """Every part over its seeds; 40 to 60 s of one core for most cells."""
    size = SMOKE if smoke else FULL
    seeds = range(1 if smoke else 5)
    for seed in seeds:
        for n_majority in (40,) if smoke else (100, 500, 2000):
            sizes = [5, 20] if smoke else [5, 10, 20, 50, 100, 200]
            strengths = [1.0] if smoke else list(STRENGTHS) if n_majority == 2000 else []
            yield {"part": "efficiency", "seed": seed, "n_majority": n_majority, "sizes": sizes,
                   "strengths": strengths, **size}  # fmt: skip
        sizes, n = ([5], 60) if smoke else ([5, 10, 20, 50, 100, 200, 500], 2000)
        yield {"part": "mmd", "seed": seed, "sizes": sizes, "n_reference": n}
        for share in (0.5,) if smoke else (0.0, 0.1, 0.25, 0.5, 1.0):
            yield {"part": "perturbed", "seed": seed, "share": share, "n_majority": 40 if smoke else 1000, **size}
        for weight in (0.0,) if smoke else (0.0, 1.0):
            yield {"part": "packing", "seed": seed, "likelihood_weight": weight, "n_majority": 40 if smoke else 1000,
                   **size}  # fmt: skip
        for affine in (True,) if smoke else (False, True):
            yield {"part": "affine", "seed": seed, "affine": affine, "n_majority": 40 if smoke else 1000, **size}
        yield {"part": "variance", "seed": seed, "sizes": [3] if smoke else [5, 10, 20, 50],
               "n_draws": 20 if smoke else 1000}  # fmt: skip
    yield {"part": "picture", "seed": 0, "n_majority": 40 if smoke else 2000, "n_minority": 10, **size}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """The paper's preset, and what it gives where classes have mechanisms of their own; three seeds."""
    size = SMOKE if smoke else FULL | {"epochs": 30}
    for seed in range(1 if smoke else 3):
        yield {"part": PAPER_EFFICIENCY, "seed": seed, "n_majority": 40 if smoke else 2000,
               "sizes": [5] if smoke else [5, 10, 20, 200], "stepped": [5],
               **size}  # fmt: skip
        yield {"part": READINGS, "seed": seed, "n_majority": 40 if smoke else 2000, "n_drawn": 5 if smoke else 200,
               "sizes": [5] if smoke else [5, 10, 20, 200], "stepped": [5] if smoke else [10, 20, 200],
               **size}  # fmt: skip
        longer: Row = {"part": "longer", "seed": seed, "n_majority": 40 if smoke else 2000,
                       "n_drawn": 5 if smoke else 200, **size, "epochs": 10 * size["epochs"]}  # fmt: skip
        yield longer | {"sizes": [5] if smoke else [5, 20]}
        yield longer | {"sizes": [5], "flow_epochs": size["epochs"]}
        rivals: Row = {"rivals": list(FOR_EQUAL_CLASSES[:1])} if smoke else {}
        yield longer | {"part": "rivals", "sizes": [5], **size, **rivals}
        for weight in (0.0,) if smoke else (0.0, 1.0):
            yield {"part": "violated", "seed": seed, "rho": weight, "n_majority": 40 if smoke else 500, **size}


def run_cell(*, part: str, **options: Any) -> Row:
    """One cell of one part."""
    return PARTS[part](**options)


def _efficiency(
    *, seed: int, n_majority: int, sizes: list[int], strengths: list[float], epochs: int, n_test: int
) -> Row:  # fmt: skip
    """Accuracy against the size of the minority, without and with augmentation, all on the same sources."""
    data, test = _draw(seed, max(sizes), n_majority, n_test)
    sample = split(data.z, data.y, seed)
    demixed = find_sources(sample, _roles(data.y), _flow(epochs), seed)
    runs = []
    for size in sizes:
        settings = [("parametric", 0.0), ("parametric", 0.5), ("permutation", 0.5)]
        if size <= 50:
            settings += [(kind, w) for kind in ("parametric", "permutation") for w in strengths if w != 0.5]
        for kind, weight in settings:
            found = _fit(demixed, _sized(sample, size), test, kind, weight, _network_training(epochs), seed)
            runs.append({"n_minority": size, "kind": kind, "weight": weight, **found})
    return {"mcc": mean_correlation_coefficient(test.s, demixed.sources(test.z)), "runs": runs}


class _PresetRuns:
    """Runs of the paper's preset on one draw: flows, and networks on their sources by samples of the minority class."""

    def __init__(self, *, seed: int, n_majority: int, n_drawn: int, epochs: int, n_test: int) -> None:
        data, self.test = _draw(seed, n_drawn, n_majority, n_test)
        self.sample, self.roles, self.seed = split(data.z, data.y, seed), _roles(data.y), seed
        self.bayes = score(toy_sources().log_posterior(self.test.s), self.test.y, self.roles.counts)["nll"]
        self.training: Row = {"epochs": epochs, "batch_size": 256}
        self.runs: list[Row] = []
        self.mcc: dict[str, float] = {}

    def flow(self, name: str, prior: Any = "per-class", **options: Any) -> DemixResult:
        """A flow of the preset, whose match with the true sources is kept under a name."""
        config = paper_flow("mnist", prior, epochs=self.training["epochs"], **options)
        demixed = find_sources(self.sample, self.roles, config, self.seed)
        self.mcc[name] = mean_correlation_coefficient(self.test.s, demixed.sources(self.test.z))
        return demixed

    def run(self, what: str, demixed: DemixResult, sizes: list[int], prior: Any = "per-class", **options: Any) -> None:
        """The network on sources, with each number of samples of the minority class."""
        for size in sizes:
            predictor = paper_head("mnist", prior, **options, **self.training)
            found = _measure(demixed, _sized(self.sample, size), self.test, predictor, self.seed)
            self.runs.append({"what": what, "n_minority": size, "excess_risk": found["nll"] - self.bayes, **found})

    def steps(self, demixed: DemixResult, sizes: list[int]) -> Row:
        """The steps from MP, on its flow, to ours; then all that was found."""
        first, second, third = (MANY_PRIORS + step for step in STEPS)
        self.run(first, demixed, sizes, loss="logit-adjusted")
        self.run(second, replace(demixed, weighted=True), sizes, loss="logit-adjusted")
        whitened = self.flow(third, linear_first=True, signal_weights=True)
        self.run(third, whitened, sizes, loss="logit-adjusted")
        return {"mcc_by_flow": self.mcc, "runs": self.runs}


def _preset(*, sizes: list[int], stepped: list[int], **draw: Any) -> Row:
    """The paper's preset with either prior, its network on the features, and at some sizes the steps to ours."""
    runs = _PresetRuns(n_drawn=max(sizes), **draw)
    runs.run(NETWORK, find_sources(runs.sample, runs.roles, NoDemixing(), runs.seed), sizes, augmented=False)
    for name, prior in PRESETS.items():
        demixed = runs.flow(name, prior)
        runs.run(name, demixed, sizes, prior)
        runs.run(name + PLAIN, demixed, sizes, prior, augmented=False)
    return runs.steps(demixed, stepped)


def _readings(*, sizes: list[int], stepped: list[int], **draw: Any) -> Row:
    """The preset with Eq. 3 as it stands in place of Algorithm 1's reading, and the steps to ours at further sizes."""
    runs = _PresetRuns(**draw)
    for name, prior in PRESETS.items():
        demixed = runs.flow(name, prior)
        runs.run(name + EQUATION_3, demixed, sizes, prior, weighting="replaced")
    return runs.steps(demixed, stepped)


def _longer(
    *, seed: int, n_majority: int, n_drawn: int, sizes: list[int], epochs: int, n_test: int, flow_epochs: int = 0
) -> Row:  # fmt: skip
    """The paper's network with more epochs: on the features, where it learns more slowly than on sources.

    With ``flow_epochs``, on the sources of a flow with one prior instead, with and without augmentation.
    """
    data, test = _draw(seed, n_drawn, n_majority, n_test)
    sample, roles = split(data.z, data.y, seed), _roles(data.y)
    config = paper_flow("mnist", "shared", epochs=flow_epochs) if flow_epochs else NoDemixing()
    demixed = find_sources(sample, roles, config, seed)
    names = {LONGER_PRESET + PLAIN: False, LONGER_PRESET: True} if flow_epochs else {LONGER: False}
    runs = []
    for what, augmented in names.items():
        for size in sizes:
            predictor = paper_head("mnist", "shared", augmented=augmented, epochs=epochs, batch_size=256)
            found = _measure(demixed, _sized(sample, size), test, predictor, seed)
            runs.append({"what": what, "n_minority": size, **found})
    return {"runs": runs}


def _rivals(
    *, seed: int, n_majority: int, n_drawn: int, sizes: list[int], epochs: int, n_test: int,
    rivals: Sequence[str] = tuple(PAPER_RIVALS),
) -> Row:  # fmt: skip
    """Rivals of the preset in its network, on the features of the same draws; ERM stands beside the preset."""
    data, test = _draw(seed, n_drawn, n_majority, n_test)
    sample, runs = split(data.z, data.y, seed), []
    for what in rivals:
        if what != NETWORK:
            for size in sizes:
                few = _sized(sample, size)
                rival: Any = fit_paper_rival(
                    what, "mnist", few.z, few.y, seed=seed, epochs=epochs, batch_size=256, encoded=False
                )
                balanced, own = (
                    rival.set_params(class_prior=prior).predict_log_proba(test.z)
                    for prior in ("balanced", "balanced" if what in FOR_EQUAL_CLASSES else "training")
                )
                found = _figures(balanced, own, test.y, np.bincount(few.y))
                runs.append({"what": what, "n_minority": size, **found})
    return {"runs": runs}


def _violated(*, seed: int, rho: float, n_majority: int, epochs: int, n_test: int) -> Row:
    """Each class has a bend of its own, so that no mechanism is shared: with rho, its share of the supplement's.

    The network on the sources of the preset, with one prior and without augmentation.
    """
    data, test = _draw(seed, 50, n_majority, n_test)
    z, z_test = (_own_bends(one) for one in (data, test))
    sample, roles = split(z, data.y, seed), _roles(data.y)
    flow = paper_flow("mnist", "shared", epochs=epochs)
    flow.set_params(likelihood_weight=rho * flow.likelihood_weight)
    demixed = find_sources(sample, roles, flow, seed)
    predictor = paper_head("mnist", "shared", augmented=False, epochs=epochs, batch_size=256)
    found = _measure(demixed, sample, SyntheticData(z=z_test, y=test.y, s=test.s), predictor, seed)
    return found | {"filled_share": _filled_share(demixed.sources(z_test))}


def _own_bends(data: SyntheticData) -> Array:
    """The Henon map with another bend for every class, from none to twice the usual one."""
    bend = 2.8 * data.y / (N_CLASSES - 1)
    return np.column_stack([1 - bend * data.s[:, 0] ** 2 + data.s[:, 1], 0.3 * data.s[:, 0]])


def _sized(sample: Sample, n_minority: int) -> Sample:
    """The sample with so many of class 0, a fifth of them held out."""
    rows = sample.y > 0
    minority = np.flatnonzero(~rows)[:n_minority]
    held_out, train = np.split(minority, [max(n_minority // 5, 1)])
    sides = [side[sample.y[side] > 0] for side in (sample.train_rows, sample.held_out_rows)]
    rows[minority] = True
    place = np.cumsum(rows) - 1
    return Sample(
        sample.z[rows],
        sample.y[rows],
        place[np.concatenate([sides[0], train])],
        place[np.concatenate([sides[1], held_out])],
    )


def _mmd(*, seed: int, sizes: list[int], n_reference: int) -> Row:
    """How far augmented sources are from held-out ones of the class, in the space of the true sources."""
    truth, rng = toy_sources(), np.random.default_rng([seed, 4])
    generator = torch.Generator().manual_seed(seed)
    distances = []
    for label in range(N_CLASSES):
        only = [n_reference if place == label else 0 for place in range(N_CLASSES)]
        reference, oracle = truth.draw(only, rng).s, truth.draw(only, rng).s
        for size in sizes:
            few = truth.draw([size if n else 0 for n in only], rng).s
            kinds = {
                "permutation": _drawn(Permutation(), few, n_reference, generator),
                "parametric": _drawn(Parametric(pseudo_samples=0.0), few, n_reference, generator),
                "parametric, shrunk variance": _drawn(Parametric(), few, n_reference, generator),
                "oracle": _drawn(Permutation(), oracle, n_reference, generator),
            }
            for kind, drawn in kinds.items():
                found = mmd_rbf(drawn, reference, BANDWIDTHS).tolist()
                distances.append({"class": label, "size": size, "kind": kind, "mmd": found})
    return {"distances": distances, "bandwidths": list(BANDWIDTHS)}


def _drawn(how: Augmentation, s: Array, size: int, generator: torch.Generator) -> Array:
    """Synthetic sources of one class of the toy."""
    sources = ClassSources.of_one(torch.from_numpy(s), torch.from_numpy(toy_sources().variances.mean(axis=0)))
    return how.draw(sources, torch.zeros(size, dtype=torch.int64), generator).numpy()


def _variance(*, seed: int, sizes: list[int], n_draws: int) -> Row:
    """Mean and variance of two estimates of a class's risk under the true f: plain, and over all recombinations."""
    truth, rng = toy_sources(), np.random.default_rng([seed, 5])
    found = []
    for label in range(N_CLASSES):
        for size in sizes:
            only = [size if place == label else 0 for place in range(N_CLASSES)]
            plain, augmented = np.empty(n_draws), np.empty(n_draws)
            for draw in range(n_draws):
                s = truth.draw(only, rng).s
                # The complete statistic: every first coordinate with every second one.
                pairs = np.column_stack([np.repeat(s[:, 0], size), np.tile(s[:, 1], size)])
                losses = nll_per_sample(truth.log_posterior(pairs), np.full(size**2, label)).reshape(size, size)
                plain[draw], augmented[draw] = losses.diagonal().mean(), losses.mean()
            gap = augmented - plain
            found.append({
                "class": label, "size": size, "plain_mean": float(plain.mean()),
                "augmented_mean": float(augmented.mean()),
                "gap_half_width": float(1.96 * gap.std(ddof=1) / np.sqrt(n_draws)),
                "plain_variance": float(plain.var(ddof=1)), "augmented_variance": float(augmented.var(ddof=1)),
            })  # fmt: skip
    return {"risks": found}


def _perturbed(*, seed: int, share: float, n_majority: int, epochs: int, n_test: int) -> Row:
    """A wrong de-mixing function: ``share`` of the Henon map's bend is left in, 0 being the truth and 1 the features.

    Only the first part of the bound, which grows with the error of f, is varied.
    """
    data, test = _draw(seed, 20, n_majority, n_test)
    bent = _bend(data.s, share)
    sample = split(bent, data.y, seed)
    demixed = find_sources(sample, _roles(data.y), NoDemixing(), seed)
    bayes = score(toy_sources().log_posterior(test.s), test.y, np.bincount(data.y))
    changed = SyntheticData(z=_bend(test.s, share), y=test.y, s=test.s)
    first = test.s[:, 0]
    # Mean absolute error of f and of its derivative by the features (Sobolev norm on the test points).
    norm = share * (1.4 * (first**2).mean() + 2.8 * np.abs(first).mean() / 0.3)
    runs = []
    for kind, weight in (("permutation", 0.0), ("permutation", 0.5), ("permutation", 1.0), ("parametric", 1.0)):
        found = _fit(demixed, sample, changed, kind, weight, _network_training(epochs), seed)
        runs.append({"kind": kind, "weight": weight, "excess_risk": found["nll"] - bayes["nll"], **found})
    return {"sobolev": float(norm), "runs": runs}


def _bend(s: Array, share: float) -> Array:
    return np.column_stack([s[:, 0], s[:, 1] - 1.4 * share * s[:, 0] ** 2])


def _packing(*, seed: int, likelihood_weight: float, n_majority: int, epochs: int, n_test: int) -> Row:
    """Are sources crowded without the likelihood, and does the head suffer?"""
    data, test = _draw(seed, 50, n_majority, n_test)
    sample = split(data.z, data.y, seed)
    demixed = find_sources(sample, _roles(data.y), _flow(epochs, likelihood_weight), seed)
    s = demixed.sources(test.z)
    row = {
        "spread": s.std(axis=0).tolist(),
        "filled_share": _filled_share(s),
        "mcc": mean_correlation_coefficient(test.s, s),
        **_fit(demixed, sample, test, "parametric", 0.5, _network_training(epochs), seed),
    }
    return row | ({"points": _points(s, test.y)} if seed == 0 else {})


def _filled_share(s: Array, bins: int = 25) -> float:
    """Share of the cells of a grid over the middle 98 % of each source that hold any of the points."""
    low, high = np.quantile(s, [0.01, 0.99], axis=0)
    grid, _, _ = np.histogram2d(s[:, 0], s[:, 1], bins=bins, range=np.column_stack([low, high]).tolist())
    return float((grid > 0).mean())


def _affine(*, seed: int, affine: bool, n_majority: int, epochs: int, n_test: int) -> Row:
    """The supplement's toy, and the main text's with a random affine map before the Henon map."""
    data, test = _draw(seed, 50, n_majority, n_test)
    matrix = np.random.default_rng([seed, 6]).standard_normal((2, 2)) if affine else np.eye(2)
    # Scaled to a determinant of one, so that the Henon map bends as much as before.
    matrix = matrix / np.sqrt(abs(np.linalg.det(matrix)))
    sample = split(henon(data.s @ matrix), data.y, seed)
    config = _flow(epochs, blocks=(1, 2, 4), n_restarts=6)
    demixed = find_sources(sample, _roles(data.y), config, seed)
    s = demixed.sources(henon(test.s @ matrix))
    return {
        "mcc": mean_correlation_coefficient(test.s, s),
        "unseen_correlation": max_abs_correlation(s[test.y == 0]),
        "n_blocks": demixed.restarts[0].n_blocks,
    }


def _picture(*, seed: int, n_majority: int, n_minority: int, epochs: int, n_test: int) -> Row:
    """Points for the pictures: data in features and in sources, and augmentations of a few samples."""
    data, test = _draw(seed, n_minority, n_majority, n_test)
    sample = split(data.z, data.y, seed)
    demixed = find_sources(sample, _roles(data.y), _flow(epochs), seed)
    s = demixed.sources(test.z)
    few, many = data.s[data.y == 0], test.s[test.y == 0]
    generator = torch.Generator().manual_seed(seed)
    donors_of: dict[str, tuple[Augmentation, Array]] = {
        "permutation": (Permutation(), few), "parametric": (Parametric(), few), "oracle": (Permutation(), many)
    }  # fmt: skip
    drawn = {kind: _drawn(how, donors, 300, generator).round(3).tolist() for kind, (how, donors) in donors_of.items()}
    return {
        "true_sources": _points(test.s, test.y), "features": _points(test.z, test.y), "sources": _points(s, test.y),
        "minority": few.round(3).tolist(), "reference": many[:300].round(3).tolist(), "augmented": drawn,
        "mcc": mean_correlation_coefficient(test.s, s),
    }  # fmt: skip


def _points(values: Array, y: NDArray[np.int64]) -> list[list[list[float]]]:
    """Some points of every class."""
    return [values[y == label][:DRAWN_POINTS].round(3).tolist() for label in range(N_CLASSES)]


def _draw(seed: int, n_minority: int, n_majority: int, n_test: int) -> tuple[SyntheticData, SyntheticData]:
    truth, rng = toy_sources(), np.random.default_rng([seed, 0])
    return truth.draw([n_minority] + [n_majority] * (N_CLASSES - 1), rng), truth.draw([n_test] * N_CLASSES, rng)


def _roles(y: NDArray[np.int64]) -> Any:
    return assign_roles(np.bincount(y), np.arange(N_CLASSES), minority=[0])


def _flow(epochs: int, likelihood_weight: float = 1.0, blocks: tuple[int, ...] = (1, 2), n_restarts: int = 4) -> Flow:
    return Flow(blocks=blocks, n_restarts=n_restarts, likelihood_weight=likelihood_weight, epochs=epochs)


def _network_training(epochs: int) -> Row:
    """Options of the head."""
    return {"epochs": epochs, "batch_size": 256}


def _fit(
    demixed: DemixResult, sample: Sample, test: SyntheticData, kind: Any, weight: float, training: Row,
    seed: int,
) -> dict[str, float]:  # fmt: skip
    """A network on the sources, measured."""
    drawn = (Parametric if kind == "parametric" else Permutation)(weight=weight)
    return _measure(demixed, sample, test, Predictor(MLPHead(hidden=(32, 32), dropout=0.0, **training), drawn), seed)


def _measure(
    demixed: DemixResult, sample: Sample, test: SyntheticData, config: Predictor, seed: int
) -> dict[str, float]:
    """Top-1, NLL and recall of the minority under equal priors.

    Top-1 and that recall under the training prior too: what plain training without any correction would give.
    """
    roles = _roles(sample.y)
    log_proba = balanced_log_proba(demixed, sample, roles, config, test.z, seed)
    own = own_log_proba(log_proba, roles.counts, config.augmentation, roles.augmented)
    return _figures(log_proba, own, test.y, roles.counts)


def _figures(balanced: Array, own: Array, y: NDArray[np.int64], counts: NDArray[np.int64]) -> dict[str, float]:
    """Figures of predictions for equal classes, and of what the network says itself."""
    found, plain = (score(one, y, counts) for one in (balanced, own))
    rare = y == 0
    return {
        "top1": found["top1"], "nll": found["nll"],
        "minority_recall": float((balanced[rare].argmax(axis=1) == 0).mean()),
        "top1_training_prior": plain["top1"], "nll_training_prior": plain["nll"],
        "minority_recall_training_prior": float((own[rare].argmax(axis=1) == 0).mean()),
    }  # fmt: skip


PARTS: dict[str, Callable[..., Row]] = {
    "efficiency": _efficiency,
    PAPER_EFFICIENCY: _preset,
    READINGS: _readings,
    "longer": _longer,
    "rivals": _rivals,
    "violated": _violated,
    "mmd": _mmd,
    "variance": _variance,
    "perturbed": _perturbed,
    "packing": _packing,
    "affine": _affine,
    "picture": _picture,
}


# --- summary ------------------------------------------------------------------------------------------------------


def summarise(rows: list[Row]) -> list[Row]:
    """One row for every point of a figure."""
    rows = [row | {"spread": float(np.mean(row["spread"]))} if "spread" in row else row for row in rows]
    parts = {part: mine for (part,), mine in groups(observations(rows), "part").items()}
    return [{"part": part, **line} for part, make in POINTS.items() for line in make(parts.get(part, []))]


def equivalent_size(sizes: list[int], without: list[float], reached: float) -> float:
    """The size at which the curve without augmentation first reaches a value, linear in log size between points.

    Infinite where it never does: the true factor is then larger than can be seen here.

    >>> equivalent_size([10, 100], [0.5, 0.7], 0.6)
    31.6
    >>> equivalent_size([10, 100], [0.5, 0.7], 0.8)
    inf
    """
    if reached <= without[0]:
        return float(sizes[0])
    for place in range(1, len(sizes)):
        if without[place] >= reached:
            low, high = without[place - 1], without[place]
            share = (reached - low) / (high - low)
            ends = np.log([sizes[place - 1], sizes[place]])
            return round(float(np.exp(ends[0] + share * (ends[1] - ends[0]))), 1)
    return float("inf")


def _efficiency_points(entries: list[Row]) -> list[Row]:
    by = ("n_majority", "n_minority", "kind", "weight")
    metrics = ("top1", "nll", "minority_recall", "top1_training_prior")
    lines = table(entries, by, metrics, order=lambda key: key[0])
    for line in lines:
        if line["weight"] > 0:
            same = {name: line[name] for name in by[:2]}
            ours = values(entries, "top1", **{name: line[name] for name in by})
            line |= figure("gain", difference(ours, values(entries, "top1", **same, kind="parametric", weight=0.0)))
            curve = [one for one in lines if one["n_majority"] == line["n_majority"] and one["weight"] == 0.0]
            line |= _factors(line, curve)
    return lines


def _factors(line: Row, curve: list[Row]) -> Row:
    """How many times the samples the augmented ones are worth, by the curve without augmentation."""
    found: Row = {}
    sizes = [one["n_minority"] for one in curve]
    for metric, sign in (("top1", 1.0), ("nll", -1.0), ("top1_training_prior", 1.0)):
        size = equivalent_size(sizes, [sign * one[metric] for one in curve], sign * line[metric])
        # JSON knows no infinity: beyond the largest size tried there is only a lower bound.
        bounded = size if np.isfinite(size) else max(sizes)
        found |= {f"{metric}_factor": bounded / line["n_minority"], f"{metric}_factor_is_bound": bounded != size}
    return found


def _mmd_points(entries: list[Row]) -> list[Row]:
    """Means over classes, then over seeds."""
    keys = ("bandwidth", "size", "kind")
    found = sorted(groups(entries, *keys).items(), key=lambda item: float(item[0][0]))
    return [
        dict(zip(keys, key, strict=True)) | figure("mmd", list(values(mine, "mmd").values())) for key, mine in found
    ]


def _risk_points(entries: list[Row]) -> list[Row]:
    """Means over seeds; the half-width of the gap is that of their mean."""
    shown = ("plain_mean", "augmented_mean", "gap_half_width", "plain_variance", "augmented_variance")
    lines = table(entries, ("class", "size", "n_draws"), (), means=shown)
    for line in lines:
        line["gap_half_width"] /= np.sqrt(line["seeds"])
        line["variance_ratio"] = line["augmented_variance"] / line["plain_variance"]
        line["unbiased"] = bool(abs(line["augmented_mean"] - line["plain_mean"]) <= 2 * line["gap_half_width"])
    return lines


POINTS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "efficiency": _efficiency_points,
    PAPER_EFFICIENCY: lambda entries: table(entries, ("what", "n_minority"), (*PRESET_FIGURES, "excess_risk")),
    READINGS: lambda entries: table(entries, ("what", "n_minority"), (*PRESET_FIGURES, "excess_risk")),
    "longer": lambda entries: table(entries, ("what", "n_minority"), PRESET_FIGURES),
    "rivals": lambda entries: table(entries, ("what", "n_minority"), PRESET_FIGURES),
    "violated": lambda entries: table(entries, ("rho",), ("top1", "nll", "minority_recall", "filled_share")),
    "mmd": _mmd_points,
    "variance": _risk_points,
    "perturbed": lambda entries: table(
        entries, ("share", "kind", "weight"), ("excess_risk", "top1"), means=("sobolev",), order=lambda key: key[0]
    ),
    "packing": lambda entries: table(
        entries, ("likelihood_weight",), ("spread", "filled_share", "mcc", "top1", "nll"), order=lambda key: key[0]
    ),
    "affine": lambda entries: table(
        entries, ("affine",), ("mcc", "unseen_correlation", "n_blocks"), order=lambda key: key[0]
    ),
    "picture": lambda entries: [{"mcc": entry["mcc"]} for entry in entries],
}
"""From the entries of a part to its points."""
