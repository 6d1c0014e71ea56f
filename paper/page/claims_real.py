"""Claims of the paper on real data and on variants of the model, each decided by the figures in the result files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from paper.page.frequency import SIZES, by_strength, class_values, mean_of_size, recall_of_size
from paper.page.results import Claim, Judgement, PaperResults, beyond_noise, judged, number, plus_minus
from paper.statistics import estimate

__all__ = ["REAL_CLAIMS"]

Row = dict[str, Any]
ON_ALL, ON_MAJORITY = "ECRT, encoder on all", "ECRT, encoder on majority"
ON_MARGINS, ON_BOTH = "ECRT, encoder of LDAM-DRW", "ECRT, encoders of LA and LDAM-DRW"


def _mnist(results: PaperResults, what: str, network: str = "cnn", n_rare: int = 5) -> Row:
    return next(iter(results.summary("mnist", what=what, network=network, n_rare=n_rare)), {})


def _mnist_ecrt(results: PaperResults, n_rare: int = 5) -> Row:
    """ECRT on one network, as the rivals have; the margins' encoder, where it has been run, is the better one."""
    return _mnist(results, ON_MARGINS, n_rare=n_rare) or _mnist(results, ON_ALL, n_rare=n_rare)


def _two_networks(results: PaperResults, n_rare: int = 5) -> str:
    line = _mnist(results, ON_BOTH, n_rare=n_rare)
    return f" ({number(line['top1'])} / {number(line['nll'])} on two encoders)" if line else ""


def _rivals(results: PaperResults, name: str, metric: str, lower: bool = False) -> tuple[float, float, str] | None:
    """ECRT's value, that of the best other method, and its name."""
    lines = [line for line in results.summary(name) if isinstance(line.get(metric), float)]
    ours = [line for line in lines if line["what"] == "ECRT"]
    others = [line for line in lines if not str(line["what"]).startswith("ECRT")]
    if not ours or not others:
        return None
    best = (min if lower else max)(others, key=lambda line: line[metric])
    return ours[0][metric], best[metric], best["what"]


def _leads(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for name, label, metrics in (
        ("cifar100", "CIFAR-100", ("top1", "nll")),
        ("tinyimagenet", "Tiny-ImageNet", ("top1", "nll")),
        ("tinyimagenet-rivals", "Tiny-ImageNet, more rivals", ("top1", "nll")),
        ("arxiv", "arXiv", ("accuracy", "bce")),
        ("inaturalist", "plankton for iNaturalist", ("top1", "nll")),
    ):
        for metric in metrics:
            lower = metric in ("nll", "bce")
            found = _rivals(results, name, metric, lower)
            if found is not None:
                ours, rival, who = found
                parts.append(ours < rival if lower else ours > rival)
                texts.append(f"{label} {metric} {number(ours, 4)}, best other {number(rival, 4)} ({who})")
    return judged(parts, f"{'; '.join(texts)}.")


def _many_priors(results: PaperResults) -> Judgement:
    parts, texts = [], []
    on_mnist = f"{ON_MAJORITY}, paper preset {{}}"
    pairs: dict[str, tuple[str, str, Row]] = {
        "MNIST, 1 rare": ("mnist", on_mnist, {"network": "cnn", "n_rare": 1}),
        "MNIST, 5 rare": ("mnist", on_mnist, {"network": "cnn", "n_rare": 5}),
        "CIFAR-100": ("cifar100-sources", "ECRT, paper preset {}", {}),
        "Tiny-ImageNet": ("tinyimagenet", "ECRT-{}, paper preset", {}),
        "plankton": ("inaturalist", "ECRT-{}, paper preset", {}),
    }
    for data, (recipe, name, where) in pairs.items():
        one, many = (results.value(recipe, "top1", what=name.format(prior), **where) for prior in ("1P", "MP"))
        if one is not None and many is not None:
            parts.append(many > one)
            texts.append(f"{data}: MP {number(many)}, 1P {number(one)}")
    for data in ("toy", "extreme"):
        line = next(iter(results.summary("ablations", what="one prior for all classes (1P)", data=data)), {})
        if line:
            gain, width = line["top1_gain"], line["top1_gain_half_width"]
            parts.append(beyond_noise(-gain, width))
            texts.append(f"{data}: 1P less MP {plus_minus(gain, width)}")
    return judged(parts, f"Top-1. {'; '.join(texts)}.")


def _no_dominance(results: PaperResults) -> Judgement:
    lines = {line["what"]: line for line in results.summary("cifar100")}
    names = [name for name in lines if "LDAM" in name or "focal" in name.lower()]
    if "ERM" not in lines or not names:
        return judged([], "")
    erm = lines["ERM"]["top1"]
    text = ", ".join(f"{name} {number(lines[name]['top1'])}" for name in names)
    return judged([lines[name]["top1"] <= erm for name in names], f"CIFAR-100 top-1: ERM {number(erm)}, {text}.")


def _f1(results: PaperResults) -> Judgement:
    lines = {line["what"]: line["macro_f1"] for line in results.summary("cifar100") if "macro_f1" in line}
    if "ECRT" not in lines:
        return judged([], "")
    best = max((name for name in lines if not name.startswith("ECRT")), key=lambda name: lines[name])
    text = ", ".join(f"{name} {number(value)}" for name, value in lines.items())
    return judged([lines["ECRT"] > lines[best]], f"Macro F1: {text}.")


def _f1_of_losses(results: PaperResults) -> Judgement:
    lines = {line["what"]: line["macro_f1"] for line in results.summary("cifar100") if "macro_f1" in line}
    shown = [name for name in ("FOCAL", "LDAM", "SMOTE") if name in lines]
    if "ERM" not in lines or not shown:
        return judged([], "")
    text = ", ".join(f"{name} {number(lines[name])}" for name in shown)
    return judged(
        [(lines[name] > lines["ERM"]) == (name == "SMOTE") for name in shown],
        f"Macro F1: ERM {number(lines['ERM'])}, {text}.",
    )


def _gan_and_vat(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for name, label, metric, prefix in (
        ("cifar100", "CIFAR-100", "top1", ""),
        ("tinyimagenet", "Tiny-ImageNet", "top1", ""),
        ("arxiv", "arXiv", "accuracy", "MLP "),
        ("inaturalist", "plankton", "top1", ""),
    ):
        values = {what: results.value(name, metric, what=prefix + what) for what in ("ERM", "GAN", "VAT")}
        erm, gan, vat = values.values()
        if erm is not None and gan is not None and vat is not None:
            parts += [gan > erm, vat > erm]
            texts.append(f"{label}: ERM {number(erm)}, GAN {number(gan)}, VAT {number(vat)}")
    return judged(parts, f"Top-1 or accuracy. {'; '.join(texts)}.")


def _all_and_ahead(results: PaperResults) -> Judgement:
    ours = results.value("cifar100-sources", "top1", what="ECRT", encoder="all", protocol="500/50")
    others = {line["what"]: line["top1"] for line in results.summary("cifar100") if line["what"] != "ECRT"}
    if ours is None or not others:
        return judged([], "")
    text = ", ".join(f"{name} {number(value)}" for name, value in others.items())
    return judged(
        [ours > value for value in others.values()], f"CIFAR-100 top-1: ECRT, encoder on all, {number(ours)}; {text}."
    )


def _source_space(results: PaperResults) -> Judgement:
    lines = results.summary("cifar100-sources", what="gain from sources")
    text = "; ".join(
        f"{plus_minus(line['top1_gain'], line['top1_gain_half_width'])} ({line['protocol']}, encoder on "
        f"{line['encoder']})"
        for line in lines
    )
    return judged(
        [beyond_noise(line["top1_gain"], line["top1_gain_half_width"]) for line in lines],
        "CIFAR-100, top-1 of a linear head on sources less one on features, with the same synthetic samples through "
        f"the inverse: {text}.",
    )


def _small_are_sensitive(results: PaperResults) -> Judgement:
    runs = [*by_strength(results, "permutation").values(), *by_strength(results, "parametric").values()]
    spreads: dict[str, float] = {}
    for low, high in SIZES if runs else ():
        values = [np.mean([recall_of_size(run, low, high) for run in mine]) for mine in runs]
        if np.isfinite(values).all():
            spreads[f"{max(low, 1)} to {high - 1} rows"] = float(max(values) - min(values))
    text = ", ".join(f"{number(spread)} with {name}" for name, spread in spreads.items())
    return judged(
        [first > second for first, second in pairwise(spreads.values())],
        "Plankton in its place; largest less smallest accuracy over λ, means over splits, both kinds, of minority "
        f"classes: {text}.",
    )


def _cifar_bar(results: PaperResults) -> Judgement:
    line = next(iter(results.summary("cifar100", what="ECRT")), None)
    if line is None:
        return judged([], "")
    return judged(
        [line["top1"] >= 0.55, line["macro_f1"] >= 0.50, line["nll"] <= 2.0],
        f"Top-1 {number(line['top1'])}, F1 {number(line['macro_f1'])}, NLL {number(line['nll'])}; the bar is 0.55, "
        "0.50 and 2.0, the paper's figures are 0.530, 0.482 and 2.31.",
    )


def _encoder_on_all(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for network in ("mlp", "cnn"):
        every, majority = (_mnist(results, what, network) for what in (ON_ALL, ON_MAJORITY))
        if every and majority:
            parts.append(every["top1"] < majority["top1"])
            texts.append(f"MNIST, {network}: all {number(every['top1'])}, majority {number(majority['top1'])}")
    every_class, part = (
        results.value("cifar100-sources", "top1", what="ECRT", encoder=encoder, protocol="500/50")
        for encoder in ("all", "majority")
    )
    if every_class is not None and part is not None:
        parts.append(every_class < part)
        texts.append(f"CIFAR-100: all {number(every_class)}, majority {number(part)}")
    return judged(parts, f"Top-1 by what the encoder learned from. {'; '.join(texts)}.")


def _mnist_table(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for n_rare in (1, 5):
        ecrt = _mnist_ecrt(results, n_rare)
        for rival in ("ERM", "LA", "LDAM", "LDAM-DRW"):
            other = _mnist(results, rival, n_rare=n_rare)
            if ecrt and other:
                parts += [ecrt["top1"] > other["top1"], ecrt["nll"] < other["nll"]]
                texts.append(f"{rival} {number(other['top1'], 4)} / {number(other['nll'])}")
        if ecrt:
            texts.append(
                f"{ecrt['what']}, {number(ecrt['top1'], 4)} / {number(ecrt['nll'])}{_two_networks(results, n_rare)} "
                f"with {n_rare} rare"
            )
    return judged(parts, f"CNN, top-1 / NLL: {', '.join(texts)}.")


def _near_full_data(results: PaperResults) -> Judgement:
    ecrt, full = _mnist_ecrt(results), _mnist(results, "ERM on all 60,000", n_rare=0)
    if not ecrt or not full:
        return judged([], "")
    return judged(
        [full["top1"] - ecrt["top1"] <= 0.01, ecrt["top1"] >= 0.95],
        f"{ecrt['what']}, {number(ecrt['top1'], 4)}{_two_networks(results)}, the same network with all 60,000 images "
        f"{number(full['top1'], 4)}; goal 0.950.",
    )


def _fdv_is_faster(results: PaperResults) -> Judgement:
    lines = results.summary("mnist", what="correlation")
    curves = {name: {line["epochs"]: line["correlation"] for line in lines if line["objective"] == name}
              for name in ("gcl", "fdv")}  # fmt: skip
    epochs = sorted(curves["fdv"])
    text = ", ".join(f"{n}: {number(curves['fdv'][n])} and {number(curves['gcl'][n])}" for n in epochs)
    before = f" (features: {number(lines[0]['before'])})" if lines else ""
    return judged(
        [curves["fdv"][n] < curves["gcl"][n] for n in epochs],
        f"Mean correlation within majority classes{before} under FDV and GCL after epochs {text}.",
    )


def _against_base(what: str, *, worse: bool = True) -> Any:
    """Claims that a variant is worse than the base, or only no better."""

    def judge(results: PaperResults) -> Judgement:
        parts, texts = [], []
        for line in results.summary("ablations", what=what):
            gain, width = line["top1_gain"], line["top1_gain_half_width"]
            parts.append(beyond_noise(-gain, width) if worse else not beyond_noise(gain, width))
            texts.append(f"{line['data']} {plus_minus(gain, width)}")
        return judged(parts, f"Top-1 of “{what}” less that of the base: {', '.join(texts)}.")

    return judge


def _fdv_beats_gcl(results: PaperResults) -> Judgement:
    """Labels of the batch for both, as in the paper; then FDV with the exact marginal, which is ours."""
    parts, texts = [], []
    gcl = "GCL, labels of the batch"
    for data in ("toy", "extreme"):
        runs: dict[str, dict[int, float]] = {}
        for row in results.rows("ablations", data=data):
            if row["cell"]["seed"] == row["cell"]["draw"]:
                for name, run in row["runs"].items():
                    runs.setdefault(name, {})[row["cell"]["seed"]] = run["top1"]
        for fdv, label in (("FDV, labels of the batch", "in the batch"), ("base", "exact marginal")):
            shared = sorted(runs.get(fdv, {}).keys() & runs.get(gcl, {}).keys())
            if shared:
                gap = estimate([runs[fdv][seed] - runs[gcl][seed] for seed in shared])
                parts.append(beyond_noise(gap.mean, gap.half_width))
                texts.append(f"{data}, {label} {plus_minus(gap.mean, gap.half_width)}")
    return judged(parts, f"Top-1 of FDV less that of GCL with labels of the batch: {', '.join(texts)}.")


def _drift(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for line in results.summary("ablations"):
        if str(line["what"]).startswith("drift: naive"):
            base = next(iter(results.summary("ablations", what="drift: base", data=line["data"])), None)
            if base:
                parts.append(line["mcc_spread"] > base["mcc_spread"])
                texts.append(
                    f"{line['data']}: naive {number(line['mcc_spread'])} around {number(line['mcc'])}, "
                    f"base {number(base['mcc_spread'])} around {number(base['mcc'])}"
                )
    return judged(parts, f"Deviation over seeds of the match with the true sources. {'; '.join(texts)}.")


def _by_size(results: PaperResults, method: str, metric: str) -> tuple[float, float] | None:
    """Mean over classes with fewer training rows than the paper's limit, and over the others, on iNaturalist."""
    frequency, values = class_values(results.rows("inaturalist"), method, metric)
    if not len(values):
        return None
    limit = SIZES[-1][1]
    return mean_of_size(frequency, values, 0, limit), mean_of_size(frequency, values, limit, float("inf"))


def _rare_gain_most(results: PaperResults) -> Judgement:
    parts, texts = [], []
    ecrt = _by_size(results, "ECRT", "f1")
    for rival in ("ERM", "LDAM"):
        other = _by_size(results, rival, "f1")
        if ecrt and other:
            rare, frequent = ecrt[0] - other[0], ecrt[1] - other[1]
            parts += [rare > 0, rare > frequent]
            texts.append(f"over {rival} {rare:+.3f} on minority classes and {frequent:+.3f} on the others")
    return judged(parts, f"Plankton in its place; F1 of ECRT {' and '.join(texts)}.")


def _majority_bias(results: PaperResults) -> Judgement:
    parts, texts = [], []
    ecrt = _by_size(results, "ECRT", "recall")
    for rival in ("ERM", "LDAM"):
        other = _by_size(results, rival, "recall")
        if ecrt and other:
            parts += [other[1] > ecrt[1], other[0] < ecrt[0]]
            texts.append(f"{rival} {other[1]:.3f} and {other[0]:.3f}")
    if ecrt:
        texts.append(f"ECRT {ecrt[1]:.3f} and {ecrt[0]:.3f}")
    return judged(parts, f"Plankton in its place; accuracy on majority and minority classes: {', '.join(texts)}.")


def _dynamics(results: PaperResults) -> Judgement:
    found = results.summary("cifar100-sources", what="top-1 by epoch", encoder="majority", protocol="500/50")
    line = next(iter(found), None)
    if line is None:
        return judged([], "")
    z, s, augmented = (line["curves"][name] for name in ("z", "s", "s, augmented"))
    early = 4
    text = ", ".join(
        f"{name} {number(curve[early])} and {number(curve[-1])}"
        for name, curve in (("features", z), ("sources", s), ("augmented", augmented))
    )
    return judged(
        [s[early] > z[early], augmented[early] < s[early], augmented[-1] > s[-1]],
        f"CIFAR-100, top-1 after {early + 1} and {len(z)} epochs: {text}.",
    )


def _adam(results: PaperResults) -> Judgement:
    lines = {line["what"]: line["top1"] for line in results.summary("cifar100") if line["what"].startswith("ERM")}
    if "ERM, Adam" not in lines or "ERM" not in lines:
        return judged([], "")
    return judged(
        [lines["ERM, Adam"] > lines["ERM"]],
        f"CIFAR-100, top-1: Adam {number(lines['ERM, Adam'])}, SGD with momentum {number(lines['ERM'])}.",
    )


REAL_CLAIMS = (
    Claim("ECRT efficiency", "Learning on sources is faster than on features, and augmentation slower but better.",
          _dynamics),
    Claim("Ablations", "An encoder on all classes is slightly worse than one on the majority.", _encoder_on_all),
    Claim("Ablations", "With an encoder on all classes ECRT is still above the rivals.", _all_and_ahead),
    Claim("Ablations", "Smaller minority classes are more sensitive to the strength of augmentation.",
          _small_are_sensitive),
    Claim("Ablations", "FDV, with many negatives, beats GCL with one.", _fdv_beats_gcl),
    Claim("Ablations", "The likelihood helps.", _against_base("likelihood weight 0")),
    Claim("Ablations", "Naive GCL drifts among solutions.", _drift),
    Claim("Imbalanced data learning", "ECRT leads on every data set.", _leads),
    Claim("Imbalanced data learning", "Priors of their own (MP) beat one for all classes (1P).", _many_priors),
    Claim("Imbalanced data learning", "FOCAL and LDAM do not dominate ERM.", _no_dominance),
    Claim("Imbalanced data learning", "GAN and VAT better ERM.", _gan_and_vat),
    Claim("Imbalanced data learning", "On CIFAR-100 FOCAL and LDAM have a lower F1 than ERM, SMOTE a higher one.",
          _f1_of_losses),
    Claim("Imbalanced data learning", "ECRT has the highest F1 on CIFAR-100.", _f1),
    Claim("Imbalanced data learning", "Our own bar: CIFAR-100 with an encoder on the majority.", _cifar_bar),
    Claim("Imbalanced data learning", "On iNaturalist the F1 of rare labels gains most.", _rare_gain_most),
    Claim("Supplement A.4", "Correlation falls faster under FDV than under GCL.", _fdv_is_faster),
    Claim("Supplement C", "Augmentation serves a head on sources better than one on features.", _source_space),
    Claim("Supplement C", "Augmenting the majority too is of no use.",
          _against_base("majority augmented too", worse=False)),
    Claim("Supplement E", "Permutation is slightly worse than parametric.", _against_base("permutation")),
    Claim("Supplement E", "MNIST: ECRT is above ERM and LDAM (here also LA).", _mnist_table),
    Claim("Supplement E", "Our own bar: MNIST within 0.01 of training on all images.", _near_full_data),
    Claim("Supplement E", "Adam makes a better ERM than SGD.", _adam),
    Claim("Supplement E", "ERM and LDAM favour the frequent classes on iNaturalist.", _majority_bias),
)  # fmt: skip
