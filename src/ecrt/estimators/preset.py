"""The paper's method as it stands: networks and settings of its supplement, for all estimators that predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ecrt.errors import InputError
from ecrt.flows import SourcePrior
from ecrt.nn import EncoderName
from ecrt.stages import Augmentation, Donors, Encoder, Flow, MLPHead, Parametric, Permutation

ADAM_RATE = 1e-3
"""The paper trains with Adam and gives no rate: this is Adam's own."""


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """What the tables of the supplement give for a data set.

    Attributes
    ----------
    network, hidden : of the encoder; a ResNet has no hidden layers to choose.
    n_features : of the encoder, and as many sources.
    decoder : hidden layers of the predictor, on features and on sources.
    dropout : after every hidden layer of both.
    reg_weight : rho, the weight of the likelihood of a row.
    aug_strength : lambda, the weight of the synthetic samples of each minority class.
    """

    network: EncoderName = "mlp"
    hidden: tuple[int, ...] | None = (1024, 512)
    n_features: int = 32
    decoder: tuple[int, ...] = (512,)
    dropout: float = 0.1
    reg_weight: float = 1e-2
    aug_strength: float = 1e-3


SUPPLEMENT: dict[str, PaperSettings] = {
    "mnist": PaperSettings(hidden=(32, 32), n_features=2, decoder=(32, 32), dropout=0.0),
    "cifar100": PaperSettings(network="resnet18", hidden=None, decoder=(256,), dropout=0.0),
    "inaturalist": PaperSettings(decoder=(32, 512), reg_weight=5e-3),
    "tiny-imagenet": PaperSettings(reg_weight=1e-3),
    "arxiv": PaperSettings(n_features=64, decoder=(64, 512), aug_strength=1e-2),
}
"""By the names that ``paper`` takes."""


def paper_options(data: str, source_prior: SourcePrior, *, numbers: bool = False) -> dict[str, Any]:
    """Options of an estimator under the settings of a data set; ``numbers`` for a regressor."""
    if data not in SUPPLEMENT:
        raise InputError(f"The supplement has no data set {data!r}: use one of {sorted(SUPPLEMENT)}.")
    settings = SUPPLEMENT[data]
    training: dict[str, Any] = {"learning_rate": ADAM_RATE}
    own: dict[str, Any] = {"hidden": settings.hidden, "batch_norm": False} if settings.network == "mlp" else {}
    encoder = Encoder(
        settings.network, n_features=settings.n_features, dropout=settings.dropout, head_hidden=settings.decoder,
        reuse_rows=True, weight_decay=0.0, **own, **training,
    )  # fmt: skip
    demixing = Flow(
        linear_first=False, signal_weights=False, blocks=4, hidden=(128, 128), n_restarts=1, critic="cosine",
        label_marginal="batch", source_prior=source_prior, likelihood_weight=settings.reg_weight, likelihood_of="row",
        **training,
    )  # fmt: skip
    head = MLPHead(
        hidden=settings.decoder, dropout=settings.dropout, weight_decay=0.0,
        loss="squared" if numbers else "cross-entropy", **training,
    )  # fmt: skip
    synthetic: dict[str, Any] = {"weight": settings.aug_strength, "weighting": "added"}
    shared: dict[str, Any] = {"encoder": encoder, "demixing": demixing, "head": head}
    if numbers:
        return shared | {"augmentation": Donors(**synthetic), "region_mass": 0.0, "weighted": False}
    augmentation: Augmentation = Permutation(**synthetic)
    if source_prior == "per-class":
        augmentation = Parametric(source="prior", pseudo_samples=0.0, **synthetic)
    return shared | {"augmentation": augmentation, "class_prior": "training"}
