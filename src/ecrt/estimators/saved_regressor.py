"""A fitted regressor, to JSON and tensors and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ecrt.data.density import TargetRegions
from ecrt.estimators.saved_base import Document, Tensors, card_extras, pack_base, unpack_base
from ecrt.io import BadContentError, CardFacts, CardRow, Fields, TensorStore, pack_head, unpack_head

__all__ = ["pack_regressor", "regressor_facts", "unpack_regressor"]

MOST_REGIONS = 10**6


def pack_regressor(reg: Any) -> tuple[Document, Tensors]:
    """The common parts; regions and bins of the target, head, choices and examples."""
    document, tensors = pack_base(reg, None)
    head, head_tensors = pack_head(reg.head_)
    s, y = reg._examples
    regions = reg.regions_
    every = np.arange(len(reg.bin_counts_))
    document |= {
        "one_output": reg.one_output_,
        "weighted": bool(reg.weighted_),
        "n_outputs": len(regions.center),
        "n_regions": len(regions.counts),
        "n_bins": len(every),
        "n_examples": len(y),
        "demixing": reg.demixing_,
        "head": head,
        "region_mass": float(reg.region_mass_),
        "augmentation": reg.augmentation_,
    }
    tensors |= {
        **head_tensors,
        **{f"regions.{name}": value for name, value in vars(regions).items()},
        "bin_counts": reg.bin_counts_,
        "minority_bins": np.isin(every, reg.minority_bins_),
        "demixed_on": np.isin(every, reg.demixed_on_),
        "examples.s": s,
        "examples.y": y,
    }
    return document, tensors


def unpack_regressor(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    """A regressor as it was packed."""
    n_bins = fields.whole("n_bins", 1, 2**24)
    store.check("bin_counts", (n_bins,), (torch.int64,))
    reg = unpack_base(kind, fields, store, own_encoder, np.arange(n_bins))
    n_sources = reg.demixer_.linear.n_signal
    reg.one_output_, reg.weighted_ = fields.flag("one_output"), fields.flag("weighted")
    n_outputs = fields.whole("n_outputs", 1, 1 if reg.one_output_ else 2**24)
    reg.regions_ = _unpack_regions(store, n_outputs, fields.whole("n_regions", 1, MOST_REGIONS))
    reg.demixing_ = fields.text("demixing", ("none", "linear", "flow"))
    if (reg.demixing_ == "flow") != (reg.demixer_.flow is not None):
        raise BadContentError(f"De-mixing is {reg.demixing_!r}, but the flow says otherwise.")
    with fields.part("head") as part:
        reg.head_name_, reg.head_ = unpack_head(part, store, n_sources, n_outputs)
    if reg.head_name_ not in ("linear", "mlp"):
        raise BadContentError(f"A regressor has no head of kind {reg.head_name_!r}.")
    reg.region_mass_ = fields.raw("region_mass")
    if type(reg.region_mass_) is not float or not 0 <= reg.region_mass_ <= 1:
        raise BadContentError("region_mass is not a share.")
    reg.augmentation_ = fields.text("augmentation", ("none", "interpolated", "donors"))
    reg.bin_counts_ = store.take("bin_counts", (n_bins,), torch.int64).numpy()
    if reg.bin_counts_.min() < 1:
        raise BadContentError("A bin has no samples.")
    reg.minority_bins_ = np.flatnonzero(store.take("minority_bins", (n_bins,), torch.bool).numpy())
    reg.demixed_on_ = np.flatnonzero(store.take("demixed_on", (n_bins,), torch.bool).numpy())
    n_examples = fields.whole("n_examples", 1, 2**40)
    reg._examples = (
        store.take("examples.s", (n_examples, n_sources), torch.float64).numpy(),
        store.take("examples.y", (n_examples, n_outputs), torch.float64).numpy(),
    )
    return reg


def _unpack_regions(store: TensorStore, n_outputs: int, n_regions: int) -> TargetRegions:
    floats = {
        name: store.take(f"regions.{name}", (size,), torch.float64).numpy()
        for name, size in {"center": n_outputs, "scale": n_outputs, "axis": n_outputs, "edges": n_regions + 1}.items()
    }
    counts = store.take("regions.counts", (n_regions,), torch.int64).numpy()
    if counts.min() < 0 or not (floats["scale"] > 0).all() or not (np.diff(floats["edges"]) > 0).all():
        raise BadContentError("The regions of the target are none.")
    return TargetRegions(**floats, counts=counts)


def regressor_facts(reg: Any, own_encoder: bool) -> CardFacts:
    """What the card of a regressor tells; bins of the target stand where classes would."""
    every = np.arange(len(reg.bin_counts_))
    rows = zip(
        [f"bin {number} of the target" for number in every],
        reg.bin_counts_.tolist(),
        np.isin(every, reg.minority_bins_).tolist(),
        np.isin(every, reg.demixed_on_).tolist(),
        strict=True,
    )
    return CardFacts(
        estimator=type(reg).__name__,
        n_features=getattr(reg, "n_features_in_", None),
        n_sources=reg.demixer_.linear.n_signal,
        classes=[CardRow(*row) for row in rows],
        chosen={
            "Encoder": type(reg.encoder_).__name__ if own_encoder else str(reg.encoder),
            "De-mixing": f"{reg.demixing_}, {reg.demixer_.linear.n_signal} sources",
            "Head": reg.head_name_,
            "Loss": reg.loss,
            "Mass of regions, power of density taken off": f"{reg.region_mass_:g}",
            "Synthetic samples": reg.augmentation_,
        },
        diagnostics=reg.diagnostics_,
        **card_extras(reg),
        own_encoder=own_encoder,
        use="predict",
    )
