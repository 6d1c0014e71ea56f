"""The rivals by name: what each is, where it comes from, and its options with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ecrt.errors import InputError
from ecrt.losses import LossName, check_loss
from ecrt.stages.risks import RISK_OPTIONS

__all__ = ["BASELINE_METHODS", "BaselineMethod", "resolve_options"]

Kind = Literal["loss", "risk", "draw", "second step", "model"]


@dataclass(frozen=True, kw_only=True)
class BaselineMethod:
    """A rival.

    Attributes
    ----------
    kind : a loss; a risk that acts on mixed or perturbed inputs; synthetic rows; a second step after training; or a
        model of scikit-learn or imbalanced-learn.
    reference : where it comes from.
    loss : that it trains with, if no other is asked for.
    options : of ``method_options``, with their defaults; a model takes those of its own class as well.
    """

    kind: Kind
    reference: str
    loss: LossName = "cross-entropy"
    options: Mapping[str, Any] = field(default_factory=dict)


def _loss(loss: LossName, reference: str) -> BaselineMethod:
    return BaselineMethod(kind="loss", loss=loss, reference=reference)


BASELINE_METHODS: dict[str, BaselineMethod] = {
    "erm": _loss("cross-entropy", "Empirical risk minimisation: softmax cross-entropy."),
    "hinge": _loss("hinge", "Crammer and Singer, JMLR 2001."),
    "weighted": _loss("weighted", "Importance weighting: every class counts alike."),
    "class-balanced": _loss("class-balanced", "Cui et al., CVPR 2019."),
    "focal": _loss("focal", "Lin et al., ICCV 2017."),
    "ldam": _loss("ldam", "Cao et al., NeurIPS 2019."),
    "ldam-drw": _loss("ldam-drw", "Cao et al., NeurIPS 2019."),
    "logit-adjusted": _loss("logit-adjusted", "Menon et al., ICLR 2021."),
    "mixup": BaselineMethod(kind="risk", reference="Zhang et al., ICLR 2018.", options=RISK_OPTIONS["mixup"]),
    "remix": BaselineMethod(kind="risk", reference="Chou et al., ECCV workshops 2020.", options=RISK_OPTIONS["remix"]),
    "vat": BaselineMethod(kind="risk", reference="Miyato et al., TPAMI 2018.", options=RISK_OPTIONS["vat"]),
    "isda": BaselineMethod(kind="risk", reference="Wang et al., NeurIPS 2019.", options=RISK_OPTIONS["isda"]),
    "smote": BaselineMethod(kind="draw", reference="Chawla et al., JAIR 2002.", options={"k_neighbors": 5}),
    "feature-smote": BaselineMethod(kind="draw", reference="Chawla et al., JAIR 2002.", options={"k_neighbors": 5}),
    "distribution-calibration": BaselineMethod(
        kind="draw", reference="Yang et al., ICLR 2021.", options={"power": 0.5, "n_nearest": 2, "spread": 0.21}
    ),
    "cgan": BaselineMethod(
        kind="draw", reference="Mirza and Osindero, 2014.", options={"n_steps": 500, "width": 64, "n_noise": 32}
    ),
    "flow-augmentation": BaselineMethod(
        kind="draw", loss="logit-adjusted", reference="The ECRT paper's ablation: a head on features, NeurIPS 2021.",
        options={"demixing": "flow", "weight": 0.5},
    ),
    "crt": BaselineMethod(kind="second step", reference="Kang et al., ICLR 2020."),
    "tau-norm": BaselineMethod(kind="second step", reference="Kang et al., ICLR 2020."),
    "post-hoc": BaselineMethod(kind="second step", reference="Menon et al., ICLR 2021.", options={"tau": 1.0}),
    "lda": BaselineMethod(kind="model", reference="Ledoit and Wolf, JPM 2004; scikit-learn."),
    "qda": BaselineMethod(kind="model", reference="Ledoit and Wolf, JPM 2004; scikit-learn.", options={"ridge": 1e-3}),
    "gradient-boosting": BaselineMethod(kind="model", reference="Ke et al., NeurIPS 2017; scikit-learn."),
    "balanced-forest": BaselineMethod(kind="model", reference="Chen et al., 2004; imbalanced-learn."),
}  # fmt: skip
"""By the name that ``BaselineClassifier(method=...)`` takes."""


def resolve_options(
    name: str, loss: LossName | None, loss_options: Mapping[str, float] | None, method_options: Mapping[str, Any] | None
) -> tuple[BaselineMethod, LossName, dict[str, float], dict[str, Any]]:
    """A method, its loss with options, and its own options, defaults filled in; what does not belong is refused."""
    method = BASELINE_METHODS[name]
    if method.kind == "model" and (loss is not None or loss_options):
        raise InputError(f"method={name!r} is a model with a loss of its own: leave loss and loss_options out.")
    if method.kind == "loss" and loss not in (None, method.loss):
        raise InputError(f"method={name!r} is a loss itself: leave loss={loss!r} out, or choose another method.")
    if method.kind == "loss" and method_options:
        raise InputError(f"method={name!r} is a loss: its options go into loss_options.")
    chosen = loss or method.loss
    check_loss(chosen, loss_options)
    unknown = sorted(set(method_options or {}) - set(method.options))
    if unknown and method.kind != "model":
        takes = f"it takes {sorted(method.options)}" if method.options else "it takes none"
        raise InputError(f"method={name!r} has no option {unknown[0]!r}: {takes}.")
    return method, chosen, dict(loss_options or {}), {**method.options, **(method_options or {})}
