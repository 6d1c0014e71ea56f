"""The paper's tables beside ours, as rows of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paper.experiments.ablations import BASE
from paper.experiments.cifar_sources import WITH_FLOW
from paper.experiments.extreme import tuned_for
from paper.experiments.preset import PAPER_RIVALS
from paper.experiments.toy_figures import PAPER_EFFICIENCY, READINGS
from paper.page.results import PaperResults, number, plus_minus
from paper.published import CIFAR_ENCODER_ON_ALL, CIFAR_F1, EXTREME, MNIST, TABLE_1

__all__ = ["BesideTable", "beside_tables"]

Row = dict[str, Any]
DECIMALS = {"top1": 3, "top5": 3, "nll": 3, "accuracy": 3, "macro_f1": 3, "bce": 4}
HEADINGS = {"top1": "Top-1", "top5": "Top-5", "nll": "NLL", "accuracy": "Accuracy", "macro_f1": "F1", "bce": "NLL"}


CEILING_RARE = 5
"""Rare digits of the experiment on what features allow at best."""

FIRST_SIZE = 5
"""Samples per class that a recipe of its own has run too, with more restarts."""


@dataclass(frozen=True)
class BesideTable:
    """Rows of text: a method, whose figures they are, and the figures; ``notes`` say what differs.

    ``lines`` hold the name, ``"paper"`` or ``"ours"``, and one text for each column.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, str, tuple[str, ...]], ...]
    notes: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    has_ours: bool


def beside_tables(results: PaperResults) -> list[BesideTable]:
    """Every table of the paper; where ours has not been run there are the paper's rows alone."""
    tables = {name: _table_1(results, name) for name in REAL}
    return [
        *_extreme(results), _toy(results), *_mnist(results), tables.pop("cifar100"), *_cifar_protocols(results),
        *tables.values(), _ablations(results), _regression(results),
    ]  # fmt: skip


EQUAL = (
    "Rows of the preset, ERM and VAT in the paper's network predict under the class frequencies of training. Rows from "
    "+ logit adjustment on, and IW, GAN and SMOTE, predict for equal classes, as the test set has them. So do FOCAL "
    "and LDAM here, though not in the paper: it is in their favour."
)
"""What predictions in the paper's network assume where rows have one class."""

REAL: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "cifar100": (
        "Table 1, CIFAR-100 with 500 and 50 images per class", ("top1", "top5", "nll", "macro_f1"),
        ("cifar100-preset", "cifar100"),
        (
            "All rows: fixed minority images, the official test set, three seeds. The supplement's table of data sets "
            "prints 500 images for minority classes, too, which would be no imbalance.",
            "Preset, and rivals in the paper's network: the supplement's networks and weights, trained by Adam, on "
            "features of 32 columns. Rows with 128 features, an encoder by SGD, mixup, no flow, or images that the "
            "encoder has not seen change what they name, and nothing else.",
            EQUAL,
            "Ours: ResNet-18 with a linear head on 512 features, SGD with a cosine, 60 epochs, crops and mirror "
            "images. GAN, VAT and SMOTE act on the features of an encoder that has not seen a fifth of the images.",
            "“Same features” are those of the encoder that the row names. “Samples through the inverse” were de-mixed "
            "on all classes in the stored run; the recipe now learns from the majority, as ECRT does.",
        ),
    ),
    "tinyimagenet": (
        "Table 1, Tiny-ImageNet with 450 and 45 images per class", ("top1", "top5", "nll"),
        ("tinyimagenet-preset", "tinyimagenet", "tinyimagenet-rivals"),
        (
            "Ours: features of a frozen EfficientNet-Lite0, cut to 512 principal components. The paper fine-tuned a "
            "ResNet-18. Levels cannot be compared, only differences between methods.",
            EQUAL,
            "Rivals “by NLL” and “by accuracy” have grids of settings, of which held-out rows chose by that measure.",
        ),
    ),
    "arxiv": (
        "Table 1, arXiv abstracts", ("accuracy", "bce"), ("arxiv-preset", "arxiv"),
        (
            "Ours: MiniLM features of sentences with 384 columns (the paper: SciBERT, 768), 147 categories of which 9 "
            "have more than 5,000 rows (the paper: 152 and 14), and other test rows. Levels cannot be compared.",
            "In the paper's network VAT, GAN and SMOTE act on the features of ERM's encoder.",
        ),
    ),
    "inaturalist": (
        "Table 1, iNaturalist 2019", ("top1", "top5", "nll", "macro_f1"),
        ("inaturalist-preset", "inaturalist"),
        (
            "Ours: plankton instead, 121 classes of 9 to 1,979 images: neither the images of iNaturalist nor "
            "Inception-v3 features of them were available on the machines used. Levels cannot be compared, only "
            "differences between methods.",
            "Features of EfficientNet-Lite0, cut to 96 principal components; random splits, five for ours and three "
            "for the preset; in testing all classes weigh the same.",
            EQUAL,
            "Ours and its rivals have a linear head, whose weight decay held-out rows choose.",
        ),
    ),
}  # fmt: skip


LINEAR = "ECRT by linear de-mixing, no flow"
"""What ours is on real data: rows of the recipes there say ``ECRT`` for short."""


def _of_real_data(name: str) -> str:
    """The name of a row on real data, which says what ours is.

    >>> _of_real_data("ECRT without augmentation")
    'ECRT by linear de-mixing, no flow, without augmentation'
    >>> _of_real_data("ECRT with a flow"), _of_real_data("ECRT-MP, paper preset")
    ('ECRT with a flow', 'ECRT-MP, paper preset')
    """
    if name == "ECRT with a flow" or "paper preset" in name or not name.startswith("ECRT"):
        return name
    rest = name.removeprefix("ECRT").removeprefix(",")
    return LINEAR + (f",{rest}" if rest else "")


def _text(line: Row, metric: str) -> str:
    value = line.get(metric)
    if not isinstance(value, float):
        return "–"
    width = line.get(f"{metric}_half_width")
    return number(value, DECIMALS[metric]) + (f" ± {width:.{DECIMALS[metric]}f}" if isinstance(width, float) else "")


def _texts(line: Row, metrics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_text(line, metric) for metric in metrics)


def _command(results: PaperResults, *names: str) -> tuple[tuple[str, str], ...]:
    """Commands of the recipes that have results, and their times."""
    done = [results.files[name] for name in names if name in results.files]
    return tuple((content["command"], _time(content)) for content in done)


def _time(content: Row) -> str:
    """Minutes of a GPU, on which cells run side by side; and of one core, on which they do not."""
    machine = content.get("machine", {})
    if "gpu" in machine:
        return f"{content.get('seconds', 0) / 60:.0f} minutes on {machine['gpu']}"
    core = f"one {machine.get('platform', '')} core".replace("  ", " ")
    return f"{content.get('cell_seconds', 0) / 60:.0f} minutes of {core}"


def _extreme(results: PaperResults) -> list[BesideTable]:
    metrics = ("top1", "top5", "nll")
    names = {"erm": "ERM", "ecrt_without": "ECRT without augmentation", "ecrt_with": "ECRT"}
    tables = []
    for size, printed in EXTREME.items():
        lines = [
            (names[method], "paper", tuple(number(values[metric], 4) for metric in metrics))
            for method, values in printed.items()
        ]
        for preset in ("paper", "ours"):
            found = results.summary(
                "extreme-preset" if preset == "paper" else "extreme-sizes", n_classes=1000, n_per_class=size
            )
            lines += [(line["what"], "ours", _texts(line, metrics)) for line in found]
        if size == FIRST_SIZE:
            found = results.summary("extreme")[:3]
            lines += [(f"{line['what']} (4 restarts)", "ours", _texts(line, metrics)) for line in found]
        tables.append(
            BesideTable(
                f"extreme-{size}", f"Supplement D, extreme classification: 1,000 classes, {size} samples each",
                tuple(HEADINGS[metric] for metric in metrics), tuple(lines),
                (
                    "The supplement says standard deviation 0.1. Only variance 0.1 agrees with its figures, so that is "
                    "what is drawn here.",
                    "ERM is trained here until the held-out loss stops falling; the paper's stayed at guessing.",
                    "The supplement gives no settings for this data. Held-out rows of another draw chose those of the "
                    "preset (recipe “extreme-tuning”): " + _tuned(size) + ".",
                    "In the paper's network IW is ERM. GAN and SMOTE, with nothing to fill up, double every class.",
                    "Ours has a flow of one block; in rows with restarts, of one or two.",
                ),
                _command(results, "extreme-sizes", "extreme-preset", *["extreme"] * (size == FIRST_SIZE)),
                len(lines) > len(printed),
            )
        )  # fmt: skip
    return tables


def _tuned(size: int) -> str:
    """What held-out rows chose for the preset.

    >>> _tuned(150)
    '1P: rho 0.1, added are moments at weight 0.01; MP: rho 0.1, added are moments at weight 0.01'
    """
    return "; ".join(
        f"{prior.upper()}: rho {setting['rho']:g}, added are {setting['drawn']} at weight {setting['weight']:g}"
        for prior, setting in tuned_for(size).items()
    )


def _toy(results: PaperResults) -> BesideTable:
    """Ours alone: the paper shows a figure."""
    metrics = {
        "top1": "Top-1",
        "nll": "NLL",
        "minority_recall": "Minority",
        "top1_training_prior": "Top-1, uncorrected",
    }
    found = [
        line
        for part in (PAPER_EFFICIENCY, READINGS, "longer", "rivals")
        for line in results.summary("toy-preset", part=part)
    ]
    lines = tuple(
        (f"{line['what']}; {line['n_minority']} samples", "ours",
         tuple(plus_minus(line[name], line[f"{name}_half_width"], 3).removeprefix("+") for name in metrics))
        for line in sorted(found, key=lambda line: int(line["n_minority"]))
    )  # fmt: skip
    return BesideTable(
        "toy-preset", "Toy: the paper's preset, by samples of the minority class", tuple(metrics.values()), lines,
        (
            "The paper shows a figure without numbers. Each other class has 2,000 samples.",
            "Flow and network have at most 30 epochs, after which networks on features are far from done.",
            "“Minority” is the accuracy on class 0. The last column has what the networks say themselves; the others "
            "are corrected for class frequencies.",
        ),
        _command(results, "toy-preset"), bool(lines),
    )  # fmt: skip


def _mnist(results: PaperResults) -> list[BesideTable]:
    metrics = ("top1", "nll")
    tables = []
    for n_rare, printed in MNIST.items():
        lines = [
            (method, "paper", tuple(number(values[metric]) for metric in metrics)) for method, values in printed.items()
        ]
        for network, label in (("cnn", "CNN"), ("mlp", "MLP")):
            found = results.summary("mnist", network=network, n_rare=n_rare)
            found += results.summary("mnist", network=network, n_rare=0)
            found += results.summary("mnist-preset", network=network, n_rare=n_rare)
            found += results.summary("mnist-ceiling", network=network) if n_rare == CEILING_RARE else []
            lines += [
                (f"{line['what']} ({label})", "ours", tuple(_text(line, metric) for metric in metrics))
                for line in found
            ]
        tables.append(
            BesideTable(
                f"mnist-{n_rare}", f"Supplement E, MNIST with {n_rare} rare digit{'s' if n_rare > 1 else ''}",
                tuple(HEADINGS[metric] for metric in metrics), tuple(lines),
                (
                    "The main text says CNN, the supplement an MLP with two hidden layers of 32. Both stand here, and "
                    "both lead to two features.",
                    "The supplement does not say which digits are rare; here 9, and 5 to 9, with 1,200 training images "
                    "each. The test images are the official 10,000.",
                    "In rows of “ECRT” without “paper preset” held-out rows choose linear de-mixing or a flow. The "
                    "preset has three seeds, the others five. ERM, FOCAL, LDAM and the preset predict under the class "
                    "frequencies of training, the others for equal classes.",
                    *["Nearest neighbours with all labels show what the two features of an encoder that has not seen "
                      "the rare digits allow at best; held-out rows choose among 5, 15 and 50 neighbours."]
                    * (n_rare == CEILING_RARE),
                ),
                _command(results, "mnist", "mnist-preset", *["mnist-ceiling"] * (n_rare == CEILING_RARE)),
                len(lines) > len(printed),
            )
        )  # fmt: skip
    return tables


def _table_1(results: PaperResults, name: str) -> BesideTable:
    title, metrics, files, notes = REAL[name]
    lines = []
    for method, values in TABLE_1[name].items():
        shown = dict(values)
        if name == "cifar100":
            f1 = {"ECRT-MP": "ECRT"}.get(method, method)
            shown |= {"macro_f1": CIFAR_F1[f1]} if f1 in CIFAR_F1 else {}
        if "bce" in metrics:
            shown["bce"] = shown["nll"]
        texts = tuple(number(shown.get(metric), DECIMALS[metric]) for metric in metrics)
        lines.append((method, "paper", texts))
    if name == "cifar100":
        lines.append(("SMOTE", "paper", ("–", "–", "–", number(CIFAR_F1["SMOTE"]))))
        on_all = tuple(number(CIFAR_ENCODER_ON_ALL.get(metric)) for metric in metrics)
        lines.append(("ECRT-MP, encoder on all classes", "paper", on_all))
    n_printed = len(lines)
    for file in files:
        before = [method for method, whose, _ in lines if whose == "ours"]
        for line in results.summary(file):
            method = _of_real_data(line["what"]) + _encoder(line)
            if method not in before and "top1_gain" not in line and "curves" not in line:
                lines.append((method, "ours", _texts(line, metrics)))
    lines[n_printed:] = sorted(lines[n_printed:], key=lambda line: _place(line[0]))
    if name == "cifar100":
        lines += _cifar_sources(results, "500/50")
        files = (*files, "cifar100-sources")
    columns = tuple(HEADINGS[metric] for metric in metrics)
    return BesideTable(name, title, columns, tuple(lines), notes, _command(results, *files), len(lines) > n_printed)


def _place(name: str) -> tuple[int, int]:
    """Rivals in the paper's network first, as the paper names them, then the preset, then all others.

    >>> sorted(["ERM", "ECRT-1P, paper preset", "GAN in the paper's network", "ERM in the paper's network"], key=_place)
    ["ERM in the paper's network", "GAN in the paper's network", 'ECRT-1P, paper preset', 'ERM']
    """
    rivals = [place for place, rival in enumerate(PAPER_RIVALS) if name.startswith(rival)]
    if rivals:
        return 0, rivals[0]
    return (1, int("encoder on all" in name)) if "paper preset" in name else (2, 0)


Line = tuple[str, str, tuple[str, ...]]
CIFAR_METRICS = ("top1", "top5", "nll", "macro_f1")


def _encoder(line: Row) -> str:
    """What the encoder of a row has seen, or what else it is, where that is not said by its name."""
    encoder = line.get("encoder", "paper")
    if encoder.endswith("in the paper's network"):  # rivals with a loss of their own
        encoder = "all"
    if line["what"] == "ECRT" and encoder == WITH_FLOW:
        return "; features of the row with a flow"
    if encoder.startswith("paper, "):
        return encoder.removeprefix("paper")
    return f"; encoder on {encoder.removeprefix('paper on ')}" if encoder in ("majority", "all", "paper on all") else ""


def _cifar_sources(results: PaperResults, protocol: str) -> list[Line]:
    """Rows of the experiment on encoders, with what the encoder has seen; then the gains, paired by seed."""
    lines: list[Line] = []
    gains: list[Line] = []
    for line in results.summary("cifar100-sources", protocol=protocol):
        name = _of_real_data(line["what"]) + _encoder(line)
        if "top1" in line:
            lines.append((name, "ours", _texts(line, CIFAR_METRICS)))
        elif "top1_gain" in line:
            gain = plus_minus(line["top1_gain"], line["top1_gain_half_width"], 3)
            gains.append((name, "ours", (gain, "–", "–", "–")))
    return lines + gains


def _cifar_protocols(results: PaperResults) -> list[BesideTable]:
    """Ours alone: the paper has one protocol."""
    tables = []
    for protocol, title in (
        ("500/5", "500 and 5 images per class"),
        ("exponential-100", "an exponential tail, 500 to 5"),
    ):
        lines: list[Line] = [
            (_of_real_data(line["what"]), "ours", _texts(line, CIFAR_METRICS))
            for line in results.summary("cifar100-protocols", protocol=protocol)
        ]
        lines += _cifar_sources(results, protocol)
        tables.append(
            BesideTable(
                f"cifar100-{protocol.replace('/', '-')}", f"CIFAR-100 with {title}",
                tuple(HEADINGS[metric] for metric in CIFAR_METRICS), tuple(lines),
                (
                    "The paper has no such table. Networks and training are those of ours in the table before; the "
                    "second half of the classes is the minority.",
                ),
                _command(results, "cifar100-protocols", "cifar100-sources"), bool(lines),
            )
        )  # fmt: skip
    return tables


def _regression(results: PaperResults) -> BesideTable:
    """Ours alone: the supplement describes regression and measures nothing."""
    columns = {
        "few MAE / ERM": "MAE of rare targets over ERM's",
        "all MAE / ERM": "MAE over ERM's",
        "ECRT's few MAE / this": "ECRT's over this, rare targets",
    }
    lines = [
        (f"{line['dataset']}: {line['method']}", "ours", tuple(str(line.get(key, "–")) for key in columns))
        for line in results.summary("regression")
    ]
    found = results.summary("continuous-toy")
    sources = ", ".join(f"{line['what']} {line['mcc']}" for line in found)
    return BesideTable(
        "regression", "Supplement B, continuous labels", tuple(columns.values()), tuple(lines),
        (
            "The supplement describes regression by bins of the label and prints no figures. Ratios below 1 are gains, "
            "with 95 % intervals over ten splits.",
            *[f"Match of sources with the true ones on a toy with continuous labels: {sources}."] * bool(found),
        ),
        _command(results, "regression", "continuous-toy"), bool(lines),
    )  # fmt: skip


def _ablations(results: PaperResults) -> BesideTable:
    """Ours alone: the paper prints no table of these."""
    lines = []
    departures = [
        line
        for name in ("ablations-departures", "departures")
        for line in results.summary(name)
        if line["what"] != BASE and "top1" in line
    ]
    for line in (*results.summary("ablations"), *results.summary("ablations-naive"), *departures):
        gain = line.get("top1_gain")
        width = line.get("top1_gain_half_width")
        change = "–" if gain is None else f"{gain:+.4f}" + (f" ± {width:.4f}" if width is not None else "")
        texts = (_text(line, "top1"), change, _text(line, "nll"), number(line.get("mcc")))
        lines.append((f"{line['data']}: {line['what']}", "ours", texts))
    return BesideTable(
        "ablations", "Ablations on final accuracy", ("Top-1", "less the base", "NLL", "Match of sources"),
        tuple(lines),
        (
            "The paper reports ablations on CIFAR-100 only; these are on the toy (20 samples of class 0) and on 200 "
            "classes of 10 samples, which is “extreme” here.",
            "“Match” is the mean rank correlation with the true sources. Rows with “drift” are trainings on one draw.",
            "The last rows, of “ablations-departures” and “departures”, have a base of their own. Those without a "
            "match, but for the rates, are of whole estimators; “digits” has ten rows of five of them.",
        ),
        _command(results, "ablations", "ablations-naive", "ablations-departures", "departures"), bool(lines),
    )  # fmt: skip
