"""Figures that the paper prints, as data: what ours are set beside. Accuracies are shares, not per cent."""

from __future__ import annotations

__all__ = ["CIFAR_ENCODER_ON_ALL", "CIFAR_F1", "EXTREME", "EXTREME_ERM_TOP1", "MNIST", "TABLE_1", "Figures"]

Figures = dict[str, dict[str, float]]
"""Method, then metric."""


def _percent(rows: dict[str, tuple[float, ...]], names: tuple[str, ...] = ("top1", "top5", "nll")) -> Figures:
    return {
        method: {name: value if name == "nll" else value / 100 for name, value in zip(names, values, strict=True)}
        for method, values in rows.items()
    }


TABLE_1: dict[str, Figures] = {
    "cifar100": _percent({
        "ERM": (49.29, 78.22, 2.95),
        "IW": (43.97, 68.96, 3.89),
        "GAN": (47.64, 78.53, 2.69),
        "VAT": (46.47, 74.23, 3.19),
        "FOCAL": (43.32, 74.39, 2.89),
        "LDAM": (50.46, 74.39, 2.18),
        "ECRT-1P": (52.31, 81.14, 1.98),
        "ECRT-MP": (53.00, 81.99, 2.31),
    }),
    "inaturalist": _percent({
        "ERM": (66.73, 87.86, 1.70),
        "IW": (67.63, 88.94, 1.66),
        "GAN": (67.40, 87.00, 1.82),
        "VAT": (67.06, 87.39, 1.90),
        "FOCAL": (66.63, 88.45, 1.59),
        "LDAM": (67.39, 87.13, 4.00),
        "ECRT-1P": (68.38, 88.13, 1.48),
        "ECRT-MP": (69.01, 90.01, 1.23),
    }),
    "tinyimagenet": _percent({
        "ERM": (58.52, 79.01, 3.22),
        "IW": (60.50, 80.23, 2.92),
        "GAN": (60.69, 80.91, 2.33),
        "VAT": (59.69, 82.05, 2.42),
        "FOCAL": (58.27, 79.39, 2.59),
        "LDAM": (58.18, 82.51, 2.15),
        "ECRT-1P": (62.46, 83.50, 1.79),
        "ECRT-MP": (64.40, 84.54, 1.94),
    }),
    "arxiv": _percent({
        "ERM": (44.64, 0.0407),
        "IW": (46.02, 0.0477),
        "GAN": (45.42, 0.0407),
        "VAT": (45.82, 0.0474),
        "FOCAL": (46.01, 0.0416),
        "LDAM": (45.04, 0.0450),
        "ECRT": (48.33, 0.0434),
    }, ("accuracy", "nll")),
}  # fmt: skip
"""Table 1: real data, balanced tests."""

CIFAR_F1 = {"ERM": 0.439, "SMOTE": 0.444, "FOCAL": 0.391, "LDAM": 0.408, "ECRT": 0.482}
"""F1 on CIFAR-100, section "Imbalanced data learning"."""

CIFAR_ENCODER_ON_ALL = {"top1": 0.5179, "top5": 0.8102, "nll": 2.03}
"""CIFAR-100 with an encoder that learned from majority and minority, section "Ablations"."""

MNIST: dict[int, Figures] = {
    1: {
        "ERM": {"nll": 0.342, "top1": 0.933},
        "LDAM": {"nll": 1.6737, "top1": 0.9609},
        "ECRT": {"nll": 0.186, "top1": 0.972},
    },
    5: {
        "ERM": {"nll": 0.390, "top1": 0.904},
        "LDAM": {"nll": 1.50, "top1": 0.940},
        "ECRT": {"nll": 0.257, "top1": 0.950},
    },
}
"""Supplement E, MNIST by the number of rare digits."""

_EXTREME = {
    5: (6.9246, 4.3884, 3.7098, 0.0015, 0.0450, 0.0760, 0.0053, 0.2275, 0.3220),
    10: (6.9242, 4.0536, 3.4752, 0.0018, 0.0638, 0.0856, 0.0060, 0.2666, 0.3549),
    20: (6.9185, 3.5405, 3.3657, 0.0016, 0.0741, 0.0877, 0.0070, 0.3126, 0.3675),
    50: (6.9240, 3.3794, 3.2957, 0.0010, 0.0834, 0.0934, 0.0045, 0.3493, 0.3835),
    75: (6.9190, 3.3499, 3.2594, 0.0020, 0.0846, 0.0939, 0.0060, 0.3571, 0.3950),
    100: (6.9182, 3.3394, 3.2675, 0.0020, 0.0834, 0.0934, 0.0053, 0.3580, 0.3918),
    150: (6.9174, 3.2731, 3.2597, 0.0011, 0.0906, 0.0984, 0.0059, 0.3777, 0.4034),
}
EXTREME: dict[int, Figures] = {
    size: {
        method: {metric: values[3 * row + column] for row, metric in enumerate(("nll", "top1", "top5"))}
        for column, method in enumerate(("erm", "ecrt_without", "ecrt_with"))
    }
    for size, values in _EXTREME.items()
}
"""Supplement D: 1,000 classes, by samples of each."""

EXTREME_ERM_TOP1 = {10: 0.914, 500: 0.005}
"""Supplement D: ERM with 20 samples a class, by the number of classes."""
