"""Claims of the paper on its synthetic data and theory, each decided by the figures in the result files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from paper.experiments.extreme_sizes import METRICS, SIZES
from paper.experiments.toy_figures import PAPER_EFFICIENCY
from paper.page.results import Claim, Judgement, PaperResults, beyond_noise, judged, number, plus_minus
from paper.published import EXTREME, EXTREME_ERM_TOP1

__all__ = ["SYNTHETIC_CLAIMS"]

Row = dict[str, Any]
TOY, EXTREME_SIZES = "toy-figures", "extreme-sizes"
PRESETS = {"efficiency": "ours", PAPER_EFFICIENCY: "paper"}
"""Parts of the toy's results on effective sample size: parametric with a share of 0.5, and permutation with the
supplement's strength."""

LARGE_GAIN = 4.0


def _curve(results: PaperResults, kind: str, weight: float) -> list[Row]:
    """Points of accuracy against minority size, for the largest majority."""
    return _of_largest(results.summary(TOY, part="efficiency", kind=kind, weight=weight))


def _augmented(results: PaperResults, part: str) -> list[Row]:
    """The curve with augmentation of a preset."""
    if part != PAPER_EFFICIENCY:
        return _curve(results, "parametric", 0.5)
    return _of_largest([line for line in results.summary(TOY, part=part, kind="permutation") if line["weight"] > 0])


def _of_largest(lines: list[Row]) -> list[Row]:
    largest = max((line["n_majority"] for line in lines), default=0)
    return [line for line in lines if line["n_majority"] == largest]


def _majority_helps(results: PaperResults) -> Judgement:
    lines = results.summary(TOY, part="efficiency", kind="parametric", weight=0.5)
    majorities = sorted({line["n_majority"] for line in lines})
    means = [
        sum(line["top1"] for line in lines if line["n_majority"] == n) / sum(line["n_majority"] == n for line in lines)
        for n in majorities
    ]
    steps = [later > earlier for earlier, later in pairwise(means)]
    text = ", ".join(f"{number(mean)} with {n:,}" for n, mean in zip(majorities, means, strict=True))
    return judged(steps, f"Accuracy, mean over minority sizes, by samples of each majority class: {text}.")


def _gains(lines: list[Row]) -> tuple[list[bool], str]:
    """Gains with intervals; those within noise do not count for the claim."""
    text = "; ".join(
        f"{plus_minus(line['gain'], line['gain_half_width'])} ({line['kind']}, {line['n_minority']} samples)"
        for line in lines
    )
    return [beyond_noise(line["gain"], line["gain_half_width"]) for line in lines], text


def _augmentation_helps(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for part, name in PRESETS.items():
        found, text = _gains(_augmented(results, part))
        parts += found
        texts.append(f"Preset {name}: {text}.")
    return judged(parts, f"Gain in accuracy. {' '.join(texts)}")


def _most_when_few(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for part, name in PRESETS.items():
        lines = _augmented(results, part)
        if len(lines) >= 2:
            first, last = lines[0], lines[-1]
            parts.append(first["gain"] > max(last["gain"], 0.0))  # a harm is no help, however small
            texts.append(
                f"{first['gain']:+.4f} with {first['n_minority']} samples, {last['gain']:+.4f} with "
                f"{last['n_minority']} (preset {name})"
            )
    return judged(parts, f"Gain in accuracy: {'; '.join(texts)}.")


def _four_times(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for part, preset in PRESETS.items():
        lines = _augmented(results, part)
        for metric, name in (
            ("top1", "accuracy"),
            ("nll", "NLL"),
            ("top1_training_prior", "accuracy without correction for class frequencies"),
        ):
            factors = [line[f"{metric}_factor"] for line in lines]
            if factors:
                best = lines[factors.index(max(factors))]
                bound = "at least " if best[f"{metric}_factor_is_bound"] else ""
                parts.append(max(factors) > LARGE_GAIN)
                texts.append(f"{bound}{max(factors):.1f} times at {best['n_minority']} samples by {name} ({preset})")
    return judged(parts, f"Largest factor, by preset: {', '.join(texts)}.")


def _sources_matter_most(results: PaperResults) -> Judgement:
    lines = {method: results.summary(EXTREME_SIZES, preset="ours", n_classes=1000, method=method)
             for method in ("erm", "ecrt_without", "ecrt_with")}  # fmt: skip
    parts, texts = [], []
    for erm, without, augmented in zip(*lines.values(), strict=True):
        by_sources, by_drawing = erm["nll"] - without["nll"], without["nll"] - augmented["nll"]
        parts.append(by_sources > by_drawing)
        texts.append(f"{by_sources:.2f} and {by_drawing:.2f} with {erm['n_per_class']} samples")
    tiny = {name: results.value("tinyimagenet", "nll", what=name)
            for name in ("LA", "ECRT without augmentation", "ECRT")}  # fmt: skip
    la, without_nll, ecrt = tiny.values()
    if la is not None and without_nll is not None and ecrt is not None:
        parts.append(la - without_nll > without_nll - ecrt)
        texts.append(f"{la - without_nll:.3f} and {without_nll - ecrt:.3f} on Tiny-ImageNet over logit adjustment")
    return judged(parts, f"NLL lowered by sources, then by augmentation: {'; '.join(texts)}.")


def _little_helps(results: PaperResults) -> Judgement:
    parts, text = _gains(_curve(results, "parametric", 0.1) + _curve(results, "permutation", 0.1))
    return judged(parts, f"Gain in accuracy with a share of 0.1: {text}.")


def _too_much_hurts(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for kind in ("permutation", "parametric"):
        lines = [line for line in results.summary(TOY, part="efficiency", kind=kind) if line["weight"] > 0]
        largest = max((line["n_majority"] for line in lines), default=0)
        lines = [line for line in lines if line["n_majority"] == largest]
        fewest = min((line["n_minority"] for line in lines), default=0)
        mine = {line["weight"]: line["top1"] for line in lines if line["n_minority"] == fewest}
        if 1.0 in mine and len(mine) > 1:
            best = max(mine, key=lambda weight: mine[weight])
            parts.append(mine[1.0] < mine[best])
            texts.append(f"{kind}: {number(mine[1.0])} with all weight on synthetic samples, {number(mine[best])} with "
                         f"{best:g}")  # fmt: skip
    return judged(parts, f"Accuracy at the smallest minority. {'; '.join(texts)}.")


def _parametric_is_nearer(results: PaperResults) -> Judgement:
    lines = results.summary(TOY, part="mmd", bandwidth=0.5)
    return _compare_mmd([line for line in lines if line["size"] <= 20], "at a bandwidth of 0.5")


def _other_bandwidths(results: PaperResults) -> Judgement:
    lines = [line for line in results.summary(TOY, part="mmd") if line["bandwidth"] != 0.5 and line["size"] <= 20]
    return _compare_mmd(lines, "at other bandwidths")


def _compare_mmd(lines: list[Row], where: str) -> Judgement:
    parts, texts = [], []
    for line in lines:
        if line["kind"] != "permutation":
            continue
        same = {"bandwidth": line["bandwidth"], "size": line["size"], "kind": "parametric"}
        other = next(rival["mmd"] for rival in lines if same.items() <= rival.items())
        parts.append(other < line["mmd"])
        texts.append(f"{number(other)} against {number(line['mmd'])} ({line['size']} samples, σ {line['bandwidth']:g})")
    return judged(parts, f"MMD of parametric against permutation {where}: {'; '.join(texts)}.")


def _erm_guesses(results: PaperResults) -> Judgement:
    lines = results.summary(EXTREME_SIZES, preset="ours", n_classes=1000, method="erm")
    text = ", ".join(f"{number(line['top1'], 4)} at {line['n_per_class']}" for line in lines)
    return judged([line["top1"] < 0.005 for line in lines], f"Top-1 of a trained MLP, guessing being 0.001: {text}.")


def _ecrt_above_paper(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for size in SIZES:
        lines = results.summary(EXTREME_SIZES, preset="ours", n_classes=1000, method="ecrt", n_per_class=size)
        # The recipe of the smallest size alone, where the sizes have not been run.
        lines = lines or (results.summary("extreme", what="ecrt") if size == SIZES[0] else [])
        line = lines[0] if lines else {}
        for metric in METRICS if line else ():
            printed, sign = EXTREME[size]["ecrt_with"][metric], -1 if metric == "nll" else 1
            parts.append(sign * line[metric] > sign * printed)
        if line:
            texts.append(f"{number(line['top1'], 4)} / {number(line['top5'])} / {number(line['nll'], 2)} at {size}")
    return judged(
        parts, f"{sum(parts)} of {len(parts)} figures beyond the paper's; top-1 / top-5 / NLL: {'; '.join(texts)}."
    )


def _near_the_oracle(results: PaperResults) -> Judgement:
    parts: list[bool] = []
    texts = []
    for line in results.summary(EXTREME_SIZES, preset="ours", n_classes=1000, method="ecrt"):
        size = line["n_per_class"]
        room = 0.15 if size <= 5 else 0.10 if size <= 20 else 0.05
        good = line["top1_of_oracle"] >= 0.95, line["top5_of_oracle"] >= 0.95, line["nll_above_oracle"] <= room
        parts += good
        texts.append(
            f"{line['top1_of_oracle']:.1%} / {line['top5_of_oracle']:.1%} / {line['nll_above_oracle']:+.3f} at {size}"
        )
    return judged(parts, f"Top-1 and top-5 as a share of, and NLL above, the oracle that knows f: {'; '.join(texts)}.")


def _erm_falls(results: PaperResults) -> Judgement:
    lines = results.summary(EXTREME_SIZES, preset="ours", method="erm", n_per_class=20)
    values = [line["top1"] for line in lines]
    falls = [later < earlier for earlier, later in pairwise(values)]
    text = ", ".join(
        f"{number(line['top1'])} with {line['n_classes']:,} classes"
        + (f" (paper {EXTREME_ERM_TOP1[line['n_classes']]:g})" if line["n_classes"] in EXTREME_ERM_TOP1 else "")
        for line in lines
    )
    return judged(falls, f"Top-1 of a trained MLP, 20 samples a class: {text}.")


def _augmentation_in_extreme(results: PaperResults) -> Judgement:
    parts, texts = [], []
    for preset in ("ours", "paper"):
        without, augmented = (
            results.summary(EXTREME_SIZES, preset=preset, n_classes=1000, method=method)
            for method in ("ecrt_without", "ecrt_with")
        )
        better = [
            (after[metric] < before[metric]) == (metric == "nll")
            for before, after in zip(without, augmented, strict=True)
            for metric in METRICS
        ]
        parts += better
        texts += [f"{sum(better)} of {len(better)} figures better with augmentation, preset {preset}"] if better else []
    return judged(parts, f"{'; '.join(texts)}.")


def _least_variance(results: PaperResults) -> Judgement:
    lines = results.summary(TOY, part="variance")
    ratios = [line["variance_ratio"] for line in lines]
    parts = [line["variance_ratio"] <= 1 and line["unbiased"] for line in lines]
    text = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else ""
    unbiased = sum(line["unbiased"] for line in lines)
    return judged(
        parts,
        f"Variance of the augmented over that of the plain risk, {len(lines)} classes and sizes: {text}; no bias seen "
        f"in {unbiased}.",
    )


def _risk_grows(results: PaperResults) -> Judgement:
    lines = results.summary(TOY, part="perturbed", kind="permutation", weight=1.0)
    values = [line["excess_risk"] for line in lines]
    grows = [later > earlier for earlier, later in pairwise(values)]
    text = ", ".join(f"{number(line['excess_risk'])} at {line['sobolev']:.1f}" for line in lines)
    return judged(
        grows, f"Excess NLL over Bayes, trained on synthetic minority samples alone, by the Sobolev error of f: {text}."
    )


def _packing(results: PaperResults) -> Judgement:
    lines = {line["likelihood_weight"]: line for line in results.summary(TOY, part="packing")}
    if len(lines) < 2:
        return judged([], "")
    without, with_it = lines[0.0], lines[1.0]
    return judged(
        [
            without["filled_share"] < with_it["filled_share"],
            without["top1"] + (without["top1_half_width"] or 0.0) < with_it["top1"],
        ],
        f"Share of the plane that sources fill: {number(without['filled_share'])} without the likelihood, "
        f"{number(with_it['filled_share'])} with it; accuracy {number(without['top1'])} and {number(with_it['top1'])}.",
    )


def _affine(results: PaperResults) -> Judgement:
    lines = {line["affine"]: line for line in results.summary(TOY, part="affine")}
    text = ", ".join(f"{number(line['mcc'])} {'with' if affine else 'without'}" for affine, line in lines.items())
    return judged([line["mcc"] > 0.95 for line in lines.values()], f"Match with the true sources, affine map: {text}.")


SYNTHETIC_CLAIMS = (
    Claim("ECRT efficiency", "More majority samples raise minority accuracy.", _majority_helps),
    Claim("ECRT efficiency", "Augmentation improves at every minority size.", _augmentation_helps),
    Claim("ECRT efficiency", "It helps most where samples are fewest.", _most_when_few),
    Claim("ECRT efficiency", "It is worth more than four times the minority samples.", _four_times),
    Claim("ECRT efficiency", "Most of the gain comes from the sources, less from augmentation.", _sources_matter_most),
    Claim("Ablations", "A small share of synthetic samples is already a gain.", _little_helps),
    Claim("Ablations", "With few samples strong augmentation costs accuracy.", _too_much_hurts),
    Claim("Ablations", "With few samples parametric augmentation is nearer to the truth.", _parametric_is_nearer),
    Claim("Ablations", "Sources are found, also behind the main text's random affine map.", _affine),
    Claim("Extreme classification", "ERM is hardly better than guessing.", _erm_guesses),
    Claim("Extreme classification", "ECRT works well (here: beyond the paper's figures).", _ecrt_above_paper),
    Claim("Extreme classification", "Our own bar: close to the oracle that knows f.", _near_the_oracle),
    Claim("Supplement D", "ERM falls as classes grow in number.", _erm_falls),
    Claim("Supplement D", "Augmentation betters every figure of the table.", _augmentation_in_extreme),
    Claim("Supplement A", "With the true f the augmented risk has no bias and less variance.", _least_variance),
    Claim("Supplement A", "The excess risk grows with the error of f.", _risk_grows),
    Claim("Supplement A", "Without the likelihood sources are densely packed, and prediction suffers.", _packing),
    Claim("Supplement C", "Other bandwidths order the augmentations alike.", _other_bandwidths),
)  # fmt: skip
