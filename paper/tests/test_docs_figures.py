"""The pages of docs/: figures of experiments are what the results say."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paper.experiments.preset import STEPS as PAPER_STEPS
from paper.page.page import render_paper, summarise_paper
from paper.page.results import PaperResults
from paper.published import TABLE_1
from paper.statistics import difference, estimate, observations, signed, values

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IMAGES = (DOCS / "images.md").read_text(encoding="utf-8")
RIVAL = "LA, mixup off for the last quarter"


def results_of(name):
    return json.loads((ROOT / "paper" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def summary_of(name):
    return results_of(name)["summary"]


# --- images -------------------------------------------------------------------------------------------------------


def points(line, metric):
    """A difference in points, signed, with its interval."""
    return f"{100 * line[f'{metric}_gain']:+.2f} ± {100 * line[f'{metric}_gain_half_width']:.2f}"


def percent(line, metric):
    return f"{100 * line[metric]:.1f} ± {100 * line[f'{metric}_half_width']:.1f}"


def transfer_line(line):
    start = f"| {line['what']} | {100 * line['top1']:.1f} | "
    if line["what"] == RIVAL:
        return f"{start}| | | {line['nll']:.3f} |"
    gains = " | ".join(points(line, metric) for metric in ("top1", "top1_final_half", "top1_rare"))
    return f"{start}{gains} | {line['nll_gain']:+.3f} ± {line['nll_gain_half_width']:.3f} |"


def method_line(line):
    return (
        f"| {line['what']} | {percent(line, 'top1')} | {percent(line, 'top5')} | {line['nll']:.3f} | "
        f"{line['macro_f1']:.3f} |"
    )


SHOWN_OF_PRESET = [f"ECRT, paper preset {rest}" for rest in ("without a flow", "MP, no augmentation", "1P", "MP")] + [
    f"{name} in the paper's network" for name in ("ERM", "IW", "FOCAL", "LDAM", "VAT", "GAN", "SMOTE")
] + ["ECRT, paper preset MP, on images that the encoder has not seen"]  # fmt: skip


def preset_line(line):
    encoder = "all" if "network" in line["what"] else line["encoder"].replace("paper on ", "")
    return (
        f"| {line['what']} | {encoder} | {percent(line, 'top1')} | {100 * line['top1_balanced_prior']:.1f} | "
        f"{line['top5']:.3f} | {line['nll']:.3f} | {line['macro_f1']:.3f} |"
    )


def mnist_line(line):
    return f"| {line['what']} | {line['top1']:.4f} ± {line['top1_half_width']:.4f} | {line['nll']:.4f} |"


def lines_of_tables():
    """What must stand on the page: its section's heading, and a line."""
    for line in summary_of("cifar100-transfer"):
        if line["part"] == "run":
            yield f"### {line['protocol']}, transfer", transfer_line(line)
    for line in summary_of("cifar100-protocols"):
        yield f"### {line['protocol']}, all methods", method_line(line)
    for line in summary_of("cifar100"):
        if line["what"] != "ECRT":
            yield f"### {line['protocol']}, all methods", method_line(line)
    for line in summary_of("cifar100-sources"):
        if "top1" in line:
            yield f"### {line['protocol']}, {line['encoder']}", method_line(line)
    for line in summary_of("cifar100-preset"):
        if line["what"] in SHOWN_OF_PRESET and not line["encoder"].startswith("ECRT"):
            yield "### 500/50, the paper's preset", preset_line(line)
    for line in summary_of("mnist"):
        if line.get("n_rare") in (0, 5) and line.get("network") == "cnn" and "paper" not in line["what"]:
            yield "## MNIST", mnist_line(line)


@pytest.mark.parametrize("heading", sorted({heading for heading, _ in lines_of_tables()}))
def test_tables_say_what_the_results_say(heading):
    section = IMAGES.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    missing = [line for place, line in lines_of_tables() if place == heading and line not in section]
    assert missing == []


def test_gains_and_curves_are_those_of_the_results():
    for line in summary_of("cifar100-sources"):
        if "top1_gain" in line:
            assert points(line, "top1") in IMAGES, line
        if "curves" in line:
            for curve in line["curves"].values():
                assert f"{100 * curve[0]:.1f}, {100 * curve[4]:.1f}, {100 * curve[-1]:.1f}" in IMAGES, line["protocol"]


# --- other pages ------------------------------------------------------------------------------------------------


def test_figures_of_the_selection_are_those_of_the_results():
    text = (DOCS / "selection.md").read_text(encoding="utf-8")
    for row in summary_of("selection"):
        what = row["what"].removesuffix(" over sets")
        figures = " | ".join(f"{100 * row[name]:.1f}" for name in ("selected", "logit adjustment", "linear"))
        assert f"| {what} | {figures} |" in text
        assert f" {row['regret_points']:.2f} |" in text
    tiny = {row["what"]: row for row in summary_of("tinyimagenet-selected")}
    for row in (row for row in tiny.values() if "weight_decay" in row):
        assert f"| {100 * row['all_top1']:.1f} | {row['all_nll']:.3f} | {100 * row['final_top1']:.1f} |" in text
    gain = tiny["selected less best tuned rival"]
    assert all(gain[name] in text.replace("\n", " ") for name in ("all_top1", "all_nll", "final_top1", "final_nll"))
    for row in summary_of("plankton"):
        if "resplits" in row:
            figures = " | ".join(f"{100 * row[f'resplit_{name}']:.1f}" for name in ("balanced_accuracy", "few_recall"))
            assert f"| {row['what']} | {figures} |" in text


def test_figures_of_unlabelled_rows_are_those_of_the_results():
    text = (DOCS / "user-guide.md").read_text(encoding="utf-8")
    for row in summary_of("unlabelled"):
        if row["what"].startswith(("digits,", "pure")):  # rows that cannot help
            assert row["used"] == 0
            continue
        gains = [
            f"{times * row[f'{name}_gain']:+.{places}f} ± {times * row[f'{name}_gain_half_width']:.{places}f}"
            for name, times, places in (("balanced_accuracy", 100, 1), ("rare_recall", 100, 1), ("nll", 1, 3))
        ]
        assert f"| {row['seeds']} | {row['used']} | {' | '.join(gains)} |" in text, row["what"]


# --- the default ------------------------------------------------------------------------------------------------

MEMBERS = {
    "none, linear": "logit adjustment",
    "none, one scale, linear": "logit adjustment, one scale",
    "none, mlp": "MLP",
    "none, trees": "boosted trees",
    "linear, linear": "linear ECRT",
    "linear, gaussian": "Gaussian ECRT",
    "linear, mlp": "MLP on linear sources",
    "flow, linear": "flow ECRT, linear head",
    "flow, gaussian": "flow ECRT, Gaussian head",
    "flow, mlp": "flow ECRT, MLP head",
    "default": "**default**",
}
FRONT = {
    "Tiny-ImageNet": "Tiny-ImageNet features, 200 classes, half of them with 45 images",
    "plankton": "Plankton features, 121 classes of 6 to 1,266 images",
    "digits": "scikit-learn's digits, 5 to 9 with 10 images each",
    "KEEL page-blocks0": "KEEL's page-blocks0, 5,472 rows, 10 % of the rarer class",
}
MEASURES = {
    "balanced_accuracy": "balanced accuracy, %",
    "few_recall": "recall of classes under 50 rows, %",
    "average_precision": "average precision",
    "nll": "log-loss ↓",
}


def with_interval(line, name, *, sign=""):
    """A figure with its interval: in points where it is a share of rows, else as it is."""
    scale, decimals = (1, 3) if "nll" in name or "precision" in name else (100, 1)
    return f"{scale * line[name]:{sign}.{decimals}f} ± {scale * line[f'{name}_half_width']:.{decimals}f}"


def front_page_lines():
    lines = {line["what"]: line for line in summary_of("default")}
    for name, told in FRONT.items():
        line = lines[name]
        for measure, metric in MEASURES.items():
            if measure in line and (measure != "few_recall" or name == "plankton"):
                rival = MEMBERS.get(line[f"rival_by_{measure}"], line[f"rival_by_{measure}"])
                gain = with_interval(line, f"{measure}_over_rival", sign="+")
                figures = (
                    f"{with_interval(line, measure)} | {with_interval(line, f'rival_{measure}')} ({rival}) | {gain}"
                )
                yield f"| {told} | {metric} | {figures} |"


def default_lines():
    for line in summary_of("default"):
        if "seeds" in line:
            gains = " | ".join(
                f"{100 * line[f'balanced_accuracy_over_{other}']:+.1f} / {line[f'nll_over_{other}']:+.3f}"
                for other in ("logit_adjustment", "best_member", "held_out_choice")
            )
            own = f"{100 * line['balanced_accuracy']:.1f} / {line['nll']:.3f}"
            yield f"| {line['what']} | {line['seeds']} | {own} | {gains} | {MEMBERS[line['best']]} |"
        else:
            name = MEMBERS[line["what"].removeprefix("mean over sets: ")]
            figures = " | ".join(
                f"{100 * line[f'{start}balanced_accuracy']:.1f} / {line[f'{start}nll']:.3f}"
                for start in ("", "default_")
            )
            yield f"| {name} | {line['sets']} | {figures} |"


def judgement_lines():
    """Sets on which the default is below another choice: by more than the limits, beyond noise, and after Holm."""
    lines = [line for line in summary_of("default") if "seeds" in line]
    of = {
        "Below logit adjustment by more than 0.3 points or 0.01": ("below", "logit_adjustment"),
        "Below the best member by more than that": ("below", "best_member"),
        "Below the held-out choice by more than that": ("below", "held_out_choice"),
        "Below logit adjustment beyond noise": ("beyond_noise", "logit_adjustment"),
        "Below any one member beyond noise, corrected for their number": ("better_members", ""),
    }
    for told, (judged, other) in of.items():
        names = [line["what"] for line in lines if line[judged] and other in line[judged]]
        yield f"- {told}: {', '.join(names) or 'none'}."


def table_lines():
    for row in summary_of("keel-imbalanced"):
        if "rank_balanced_accuracy" in row:
            ranks = f"{row['rank_average_precision']:.2f} | {row['rank_balanced_accuracy']:.2f}"
            means = f"{row['average_precision']:.3f} | {row['balanced_accuracy']:.3f} | {row['log_loss']:.3f}"
            yield f"| {row['what']} | {ranks} | {means} |"
    results = json.loads((ROOT / "results" / "bench_default.json").read_text(encoding="utf-8"))
    for row in [*results["tables"], *results["long"]]:
        shape = f"{row['rows']:,} | {row['columns']} | {row['classes']:,}"
        seconds = f"{row['mlp_seconds']:.1f} | {row['ecrt_seconds']:.1f}"
        yield f"| {row['table']} | {shape} | {seconds} | {row['ratio']:.1f} |"
    yield f"median {results['median_ratio']:.1f}, largest {results['worst_ratio']:.1f}"


def test_figures_of_the_default_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = " ".join((DOCS / "default.md").read_text(encoding="utf-8").split("\n"))
    assert [line for line in front_page_lines() if line not in readme] == []
    assert [line for line in [*default_lines(), *judgement_lines(), *table_lines()] if line not in page] == []


def test_figures_of_the_rivals_are_those_of_the_results():
    text = (DOCS / "rivals.md").read_text(encoding="utf-8")
    for row in summary_of("tinyimagenet-rivals"):
        figures = f"{100 * row['top1']:.2f} ± {100 * row['top1_half_width']:.2f} | {row['nll']:.3f}"
        gains = f"{row.get('ECRT_gain_top1', '')} | {row.get('ECRT_gain_nll', '')}"
        assert f"| {row['what']} | {row['prior']} | {figures} | {gains} |" in text
    for row in summary_of("cifar100")[:4]:
        own = f"{100 * row['top1']:.1f} ± {100 * row['top1_half_width']:.1f}"
        either = f"{100 * row['top1_balanced_prior']:.1f} | {100 * row['top1_training_prior']:.1f}"
        assert f"| {row['what']} | {own} | {either} | {row['nll']:.2f} | {row['macro_f1']:.3f} |" in text


def test_figures_beside_imbalanced_learn_are_those_of_the_results():
    text = " ".join((DOCS / "imbalanced-learn.md").read_text(encoding="utf-8").split("\n"))
    shown = [line for line in table_lines() if re.match(r"\| (ECRT|MLP|SMOTE \+ MLP|balanced random forest) \|", line)]
    assert len(shown) == 4
    for row in summary_of("tinyimagenet-rivals"):
        if row["what"] in ("ECRT", "linear LA, by NLL", "SMOTE of features"):
            figures = f"{100 * row['top1']:.2f} ± {100 * row['top1_half_width']:.2f} | {row['nll']:.3f}"
            shown.append(f"| {row['what']} | {figures} |")
    assert len(shown) == 7
    bench = json.loads((ROOT / "results" / "bench_sampler.json").read_text(encoding="utf-8"))
    for other, words in (("SMOTE", "than with SMOTE's"), ("none", "than without synthetic rows")):
        mean, half = (float(part) for part in bench["forest"][f"ECRT less {other}"].split(" ± "))
        shown.append(f"{mean:.3f} ± {half:.3f} {words}")
    assert [line for line in shown if line not in text] == []
    mmd = {name: found["mmd"] for name, found in bench["real"].items()}
    assert all(mmd[name]["ECRT"] < mmd[name]["SMOTE"] for name in ("plankton", "tiny_imagenet", "arxiv"))
    mmd |= {name: next(iter(bench[name].values()))["mmd"] for name in ("toy-10", "toy-20", "toy-50")}
    table = (DOCS / "pipelines.md").read_text(encoding="utf-8").replace("**", "")
    for found in mmd.values():
        cells = " | ".join(f"{found[name]:.3f}" for name in ("ECRT", "SMOTE", "ADASYN", "KDE"))
        assert f" rows | {cells} |" in table
    assert mmd["mnist"]["ECRT"] > 1.5 * mmd["mnist"]["SMOTE"]


def test_figures_on_several_labels_are_those_of_the_results():
    text = (DOCS / "multilabel.md").read_text(encoding="utf-8")
    for row in summary_of("arxiv-tuning"):
        assert f"| {row['what']} | {row['held_out_bce']:.4f} | {row['median']:.4f} |" in text
    for row in summary_of("arxiv"):
        figures = f"{row['accuracy']:.3f} ± {row['accuracy_half_width']:.3f} | {row['bce']:.4f}"
        gains = f"{row.get('ecrt_gains_accuracy', '')} | {row.get('ecrt_gains_bce', '')} |"
        assert f"| {row['what']} | {figures} | {row['mean_average_precision']:.3f} | {gains}" in text


def test_figures_are_those_of_the_results():
    text = (DOCS / "when-not-to-use-it.md").read_text(encoding="utf-8")
    demonstration = (DOCS / "compare.md").read_text(encoding="utf-8")
    assert [figure for figure in re.findall(r"[\d.]+ ± [\d.]+\d", text) if figure not in demonstration] == []
    tiny = results_of("tinyimagenet")
    for row in tiny["summary"]:
        assert f"| {row['what']} | {row['top1']:.3f} | {row['nll']:.3f} |".lower() in text.lower(), row["what"]
    extreme = results_of("extreme")
    assert f"{100 * extreme['summary'][3]['top1']:.0f} % of what an oracle reaches" in text
    toy = results_of("toy")
    unseen = [row for row in toy["rows"] if row["cell"]["part"] == "unseen class"]
    by_class = {label: [row["mcc"] for row in unseen if row["cell"]["left_out"] == label] for label in range(7)}
    assert f"{min(by_class[1]):.2f} to {max(by_class[1]):.2f}" in text
    assert f"{min(min(values) for label, values in by_class.items() if label != 1):.3f}" in text


# --- what departures from the paper are worth ---------------------------------------------------------------------

FEW: dict[str, Any] = {"preset": "paper", "n_classes": 1000, "n_per_class": 5}
FIVE = {"part": "efficiency, paper preset", "n_minority": 5}
STEPS = [f"ECRT-MP, paper preset{step}" for step in ("", *PAPER_STEPS)]
UNSEEN = "on images that the encoder has not seen"


def worth(file, metric, ours, theirs, other=None, other_file=None):
    """What one run has more than another, paired by seed."""
    ours = values(observations(results_of(file)["rows"]), metric, **ours)
    theirs = values(observations(results_of(other_file or file)["rows"]), other or metric, **theirs)
    assert ours
    return signed(difference(ours, theirs)).replace("-", "−")


def ablation(what, data, file="ablations"):
    """The paired gain of a variant on the base, which the summary has."""
    (line,) = [line for line in summary_of(file) if (line["what"], line["data"]) == (what, data)]
    return f"{line['top1_gain']:+.4f} ± {line['top1_gain_half_width']:.4f}".replace("-", "−")


def taken_back(what):
    """The same of a departure from the paper."""
    return [ablation(what, data, "ablations-departures") for data in ("toy", "extreme")]


def departure(part, what, data, metric="top1"):
    """The same of one of the recipe that has several parts; of errors, the ratio to the base."""
    (line,) = [
        line for line in summary_of("departures") if (line["part"], line["what"], line["data"]) == (part, what, data)
    ]
    name = f"{metric}_of_base" if metric.startswith("mae") else f"{metric}_gain"
    sign = "" if metric.startswith("mae") else "+"
    return f"{line[name]:{sign}.4f} ± {line[f'{name}_half_width']:.4f}".replace("-", "−")


def over_linear_ecrt():
    """What the default has over linear ECRT alone: the mean over sets of balanced accuracy."""
    sets = {}
    for row in results_of("default")["rows"]:
        if row["cell"]["part"] == "default":
            ours, alone = (row["choices"][name]["balanced_accuracy"] for name in ("default", "linear, linear"))
            sets.setdefault(row["cell"]["set"], []).append(ours - alone)
    assert len(sets) == 17
    return signed(estimate([sum(gains) / len(gains) for gains in sets.values()])).replace("-", "−")


WITH_FLOWS = (
    ("cifar100-preset", "cifar100-preset", "top1"), ("tinyimagenet", "tinyimagenet-preset", "top1"),
    ("inaturalist", "inaturalist-preset", "top1"), ("arxiv", "arxiv-preset", "accuracy"),
)  # fmt: skip
"""Ours by linear de-mixing and ours with a flow, where either is."""


def steps_on_real_data(place):
    """What a step from the preset towards ours is worth on CIFAR-100, Tiny-ImageNet, plankton and arXiv."""
    for file in ("cifar100-preset", "tinyimagenet-preset", "inaturalist-preset", "arxiv-preset"):
        names = [step.replace("ECRT-MP, paper preset", "ECRT, paper preset MP") for step in STEPS]
        names, where = (names, {"encoder": "paper"}) if file == "cifar100-preset" else (STEPS, {})
        metric = "accuracy" if file == "arxiv-preset" else "top1"
        yield worth(file, metric, {"what": names[place], **where}, {"what": names[place - 1], **where})


EQUATION_3 = ", Eq. 3 as it stands"
READINGS = (
    ("extreme-preset", FEW, ("mp_equation", "mp_with")),
    ("toy-preset", {"n_minority": 5}, (STEPS[0] + EQUATION_3, STEPS[0])),
    ("tinyimagenet-preset", {}, (STEPS[0] + EQUATION_3, STEPS[0])),
)
"""The two readings of Eq. 3, in the preset."""


def figures_of_departures():
    """Every figure of the table, in its order."""
    for file in ("tinyimagenet", "inaturalist"):
        yield worth(file, "top1", {"what": "ECRT without augmentation"}, {"what": "LA"})
    for file, other, metric in WITH_FLOWS:
        yield worth(file, metric, {"what": "ECRT"}, {"what": "ECRT with a flow"}, other_file=other)
    for place in (3, 2):
        for few in (FEW, FEW | {"n_per_class": 150}):
            yield worth("extreme-preset", "top1", few | {"what": f"step {place}"}, few | {"what": f"step {place - 1}"})
        yield worth("toy-preset", "top1", FIVE | {"what": STEPS[place]}, FIVE | {"what": STEPS[place - 1]})
        yield from steps_on_real_data(place)
    for file in ("tinyimagenet", "inaturalist"):
        yield worth(file, "top1", {"what": "LA"}, {"what": "ERM"})
    yield worth("toy-preset", "top1", FIVE | {"what": STEPS[1]}, FIVE | {"what": STEPS[0]}, "top1_training_prior")
    yield from steps_on_real_data(1)
    for variant in ("four blocks", "cosine critic", "FDV, labels of the batch", "likelihood weight 0"):
        yield from taken_back("likelihood of a row at weight 0.01") if variant == "likelihood weight 0" else ()
        yield from (ablation(variant, data) for data in ("toy", "extreme"))
    yield from taken_back("one restart")
    for data in ("toy", "digits"):
        yield departure("flow", "flow, whatever held-out rows say", data)
    yield departure("flow", "linear de-mixing alone", "toy")
    sized = {"preset": "ours", "n_classes": 1000}
    for size in (5, 150):
        for metric in ("top1", "nll"):
            sides = (sized | {"what": what, "n_per_class": size} for what in ("ecrt_gaussian", "ecrt_without"))
            yield worth("extreme-sizes", metric, *sides)
    yield from taken_back("linear head")
    yield from taken_back("synthetic samples added at weight 0.001")
    for file, where, names in READINGS:
        yield worth(file, "top1", *(where | {"what": name} for name in names))
    for file in ("tinyimagenet", "inaturalist"):
        yield worth(file, "top1", {"what": "ECRT"}, {"what": "ECRT without augmentation"})
    preset = ({"encoder": "paper", "what": f"ECRT, paper preset MP{rest}"} for rest in ("", ", no augmentation"))
    yield worth("cifar100-preset", "top1", *preset)
    yield from taken_back("variances as they are")
    mmd = {"part": "mmd", "bandwidth": 0.5, "size": 5}
    yield worth("toy-figures", "mmd", mmd | {"kind": "parametric, shrunk variance"}, mmd | {"kind": "parametric"})
    yield taken_back("drawn from trained priors")[1]
    unseen = ({"encoder": "paper", "what": f"ECRT, paper preset MP{rest}"} for rest in (f", {UNSEEN}", ""))
    yield worth("cifar100-preset", "top1", *unseen)
    for what in ("no batch normalisation", "no weight decay", "hidden layers of 1,024 and 512",
                 "a head with a hidden layer of 512", "all four as in the preset"):  # fmt: skip
        yield departure("encoder", what, "digits")
    for what in ("flow", "MLP"):
        yield from (departure("rates", f"{what} at a rate of 0.001", data) for data in ("toy", "extreme"))
    for what in ("donors", "no region weighs more"):
        for metric in ("mae", "mae_few"):
            yield from (departure("numbers", what, data, metric) for data in ("generator", "diamonds"))
    yield over_linear_ecrt()


SEVERAL_CHANGES = [
    {"what": "ECRT, paper preset MP", "encoder": "paper" + rest}
    for rest in ("", *(", encoder by SGD" + more for more in ("", ", mixup", ", mixup, 128 features")))
]  # fmt: skip
SEVERAL_CHANGES.append(SEVERAL_CHANGES[-1] | {"what": "ECRT, paper preset MP + linear de-mixing first"})
"""On CIFAR-100: the preset, and one change more in each row."""


def changes_of_the_preset():
    """On CIFAR-100: what one change is worth, paired by seed."""
    mp, plain = "ECRT, paper preset MP", "ECRT, paper preset MP, no augmentation"
    base, either = {"what": mp, "encoder": "paper"}, "top1_balanced_prior"
    yield worth("cifar100-preset", "top1", base | {"encoder": "paper, encoder by SGD"}, base)
    yield worth("cifar100-preset", "top1", base | {"encoder": "paper on all"}, base)
    yield worth("cifar100-preset", either, base, base, "top1")
    yield worth("cifar100-preset", "top1", base | {"what": f"{mp}, {UNSEEN}"}, base)
    yield worth("cifar100-preset", "top1", base | {"encoder": "paper, 128 features"}, base)
    flowless = base | {"what": "ECRT, paper preset without a flow"}
    yield worth("cifar100-preset", "top1", base | {"what": plain}, flowless)
    for metric in ("top1", either):
        yield worth("cifar100-preset", metric, base, base | {"what": plain})
    for before, after in pairwise(SEVERAL_CHANGES):
        yield worth("cifar100-preset", either, after, before)
    on_unseen, on_all = ({"what": f"{mp}{rest}", "encoder": "paper, encoder by SGD"} for rest in (f", {UNSEEN}", ""))
    yield worth("cifar100-preset", either, on_unseen, on_all)


def test_what_keeps_the_preset_from_the_papers_level_is_what_the_results_say():
    section = IMAGES.partition("one thing changed at a time")[2].partition("\n## ")[0]
    assert re.findall(r"[+−][\d.]+ ± [\d.]+\d", section) == list(changes_of_the_preset())
    means = {
        line["what"]: line["top1"] for line in summary_of("cifar100-preset") if line["encoder"] == "ECRT with a flow"
    }
    assert [f"{100 * means[name]:.1f}" in section for name in ("ECRT", "ECRT with a flow")] == [True, True]
    lines = {(line["what"], line["encoder"]): line for line in summary_of("cifar100-preset")}
    levels = [100 * lines[one["what"], one["encoder"]]["top1_balanced_prior"] for one in SEVERAL_CHANGES]
    assert re.findall(r"\| (\d\d\.\d) \|", section) == [f"{level:.1f}" for level in levels]
    said = f"top-1 is {levels[3]:.1f}, {53 - levels[3]:.1f} points below the paper's 53.0"
    assert said in " ".join(section.split())
    rivals = {what: line["top1"] for (what, _), line in lines.items() if what.endswith("in the paper's network")}
    reached = [what for what, top1 in rivals.items() if top1 >= TABLE_1["cifar100"]["ERM"]["top1"]]
    assert reached == ["SMOTE in the paper's network"]
    assert "SMOTE alone reaches" in IMAGES


def test_what_departures_are_worth_is_what_the_results_say():
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8").partition("## Where we do not follow the paper")[2]
    found = re.findall(r"[+−]?\d[\d.]+ ± [\d.]+\d", page.partition("\n## ")[0])
    assert found == list(figures_of_departures())


# --- the page on the paper ----------------------------------------------------------------------------------------


def test_the_page_on_the_paper_is_what_the_results_make_of_it():
    """``python -m paper page --output docs/paper.md`` writes it; its pictures differ from machine to machine."""
    page = summarise_paper(PaperResults(ROOT / "paper" / "results"))
    assert render_paper(page, "paper.md") == (DOCS / "paper.md").read_text(encoding="utf-8")
    assert all((DOCS / name).exists() for name, _ in page.named_figures)
