"""A fitted model as one torch module, from the numbers of a row to what is predicted, and that module as an ONNX file.

What ``ecrt.stages.scoring`` does with closures, quickly and in place, is written here with modules that can be traced
for any number of rows.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.disk import write_bytes
from ecrt.errors import InputError
from ecrt.flows import LOG_SCALE_BOUND, LinearDemixing, LowRank
from ecrt.nn import MLP, BalancedHead, ClassGaussians, Forest, GrownTrees
from ecrt.randomness import Dropout
from ecrt.stages import Member
from ecrt.stages.encoding import module_dtype
from ecrt.stages.scoring import Way, first_map

OPSET = 18
"""Of ONNX: torch writes this one without converting it."""

MANY_ROWS = 2**40
"""Linear maps are made one where that saves work for many rows."""

TREES_AT_ONCE = 16
"""Trees of a forest whose shares are held at the same time."""

LARGEST_FILE = 2**31
"""Bytes from which protobuf, the format of ONNX, fails."""


class ServedModel(nn.Module):
    """The whole prediction of a fitted model: encoder, de-mixing and heads of all members, prior and probabilities.

    Parameters
    ----------
    encoder : numbers of rows, or images, to features.
    ways : members that predict together.
    outcome : from the sum of what they give to what is predicted.
    dtype : precision of what follows the standardising of the features.

    Attributes
    ----------
    input_dtype : of the rows.
    output_names : of what ``forward`` gives: a tensor, or a tuple where there are several names.
    """

    def __init__(
        self, encoder: nn.Module, ways: Sequence[Way | Member], outcome: nn.Module, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        used = [one for one in ways if one.weight != 0] or ways[:1]
        self.input_dtype = module_dtype(encoder) or torch.float64
        self.encoder, self.outcome = copy.deepcopy(encoder), outcome
        self.paths = nn.ModuleList(_path(one, dtype) for one in used)
        # As a tensor: plain numbers are written as float32.
        self.weights_p = nn.Buffer(torch.tensor([one.weight for one in used], dtype=dtype))
        self.output_names: tuple[str, ...] = getattr(outcome, "output_names", ("sources",))
        self.eval().requires_grad_(False)

    def forward(self, X: Tensor) -> Any:
        """What is predicted for rows of numbers, or images."""
        z_nd = self.encoder(X.to(self.input_dtype)).double()
        parts = [path(z_nd) * weight for path, weight in zip(self.paths, self.weights_p, strict=True)]
        return self.outcome(sum(parts[1:], start=parts[0]))


# --- from features to what a head gives -------------------------------------------------------------------------------


def _path(one: Way | Member, dtype: torch.dtype) -> nn.Module:
    """Features to the outputs of one member."""
    linear, flow, scale_q = one.demixer.linear, one.demixer.flow, torch.from_numpy(one.scale)
    columns = copy.deepcopy(linear.standardise)
    first = first_map(one.demixer, scale_q, one.network, MANY_ROWS, joins=False)
    if first is not None:
        map_dh, bias_h = first
        head = _with_first(one.network, _linear(map_dh.T.to(dtype), bias_h.to(dtype)), dtype)
        return nn.Sequential(columns, _Cast(dtype), head)
    last = one.network.head if isinstance(one.network, BalancedHead) else one.network
    kind = torch.float64 if isinstance(last, GrownTrees) else dtype  # a rounded value may reach another leaf
    blocks = [] if flow is None else [_flow_block(block, kind) for block in flow.blocks]
    return nn.Sequential(
        columns, _Cast(kind), _Signal(linear, kind), *blocks, _Scale(scale_q.to(kind)), _head(one.network, dtype)
    )


def _linear(weight_hk: Tensor, bias_h: Tensor | None = None) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, *reversed(weight_hk.shape), bias=bias_h is not None, dtype=weight_hk.dtype)
    layer.weight = nn.Parameter(weight_hk.detach().clone())
    if bias_h is not None:
        layer.bias = nn.Parameter(bias_h.detach().clone())
    return layer


class _Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


class _Scale(nn.Module):
    def __init__(self, scale_q: Tensor) -> None:
        super().__init__()
        self.scale_q = nn.Buffer(scale_q.clone())

    def forward(self, s_nq: Tensor) -> Tensor:
        return s_nq * self.scale_q


class _Signal(nn.Module):
    """Standardised features to the signal: a matrix, or a multiple of the identity and a thin product, if any."""

    def __init__(self, linear: LinearDemixing, dtype: torch.dtype) -> None:
        super().__init__()
        weight, q = linear.weight, linear.n_signal
        everything = torch.equal(linear.kept_k, torch.arange(linear.n_features))
        self.kept_k = None if everything else nn.Buffer(linear.kept_k.clone())
        self.n_signal = q
        self.scale = nn.Buffer(weight.scale.to(dtype)) if isinstance(weight, LowRank) else None
        matrices = [weight.right_kr.T, weight.left_kr[:q]] if isinstance(weight, LowRank) else [weight.weight_kk[:q]]
        matrices = [] if isinstance(weight, LowRank) and weight.left_kr.shape[1] == 0 else matrices
        self.maps = nn.ModuleList(_linear(matrix.to(dtype)) for matrix in matrices)

    def forward(self, standard_nd: Tensor) -> Tensor:
        kept_nk = standard_nd if self.kept_k is None else standard_nd[:, self.kept_k]
        mapped = kept_nk
        for one in self.maps:
            mapped = one(mapped)
        if self.scale is None:
            return mapped
        plain_nq = kept_nk[:, : self.n_signal] * self.scale
        return plain_nq + mapped if len(self.maps) else plain_nq


def _flow_block(block: nn.Module, dtype: torch.dtype) -> nn.Module:
    network = getattr(block, "hyper", None)
    if not isinstance(network, nn.Sequential):  # one feature: scale and shift are constants
        with torch.no_grad():
            shift, end = block()(torch.tensor([0.0, 1.0], dtype=torch.float64)).unbind()
        return _linear((end - shift).reshape(1, 1).to(dtype), shift.reshape(1).to(dtype))
    return _FlowBlock(network, dtype)


class _SiLU(nn.Module):
    """z sigmoid(z), in a form that onnxruntime up to 1.24 does not take for a kernel that it has in float32 alone."""

    def forward(self, z_nd: Tensor) -> Tensor:
        return z_nd / (1 + torch.exp(-z_nd))


class _FlowBlock(nn.Module):
    """A block of ``MaskedFlow``, its masks applied."""

    def __init__(self, network: nn.Sequential, dtype: torch.dtype) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in network:
            if isinstance(layer, nn.Linear):
                layers += [_linear((layer.get_buffer("mask") * layer.weight).to(dtype), layer.bias.to(dtype)), _SiLU()]
        self.network = nn.Sequential(*layers[:-1])

    def forward(self, z_nd: Tensor) -> Tensor:
        shift_nd, scale_nd = self.network(z_nd).unflatten(-1, (-1, 2)).unbind(-1)
        return torch.exp(scale_nd / (1 + (scale_nd / LOG_SCALE_BOUND).abs())) * z_nd + shift_nd


def _with_first(head: nn.Module, first: nn.Linear, dtype: torch.dtype) -> nn.Module:
    """A head with another first layer."""
    if isinstance(head, BalancedHead):
        return BalancedHead(_with_first(head.head, first, dtype), head.log_mass_m.to(dtype))
    return nn.Sequential(first, *_layers(head, dtype)[1:]) if isinstance(head, MLP) else first


def _layers(head: MLP, dtype: torch.dtype) -> list[nn.Module]:
    return [copy.deepcopy(layer).to(dtype) for layer in head if not isinstance(layer, Dropout)]


def _head(head: nn.Module, dtype: torch.dtype) -> nn.Module:
    if isinstance(head, BalancedHead):
        return BalancedHead(_head(head.head, dtype), head.log_mass_m.to(dtype))
    if isinstance(head, GrownTrees):
        return nn.Sequential(_Trees(head), _Cast(dtype))
    if isinstance(head, ClassGaussians):  # small differences of large squares
        return nn.Sequential(_Cast(torch.float64), copy.deepcopy(head), _Cast(dtype))
    return nn.Sequential(*_layers(head, dtype)) if isinstance(head, MLP) else copy.deepcopy(head).to(dtype)


class _Trees(nn.Module):
    """Trees for all rows at the same time, with a fixed number of steps."""

    def __init__(self, trees: GrownTrees) -> None:
        super().__init__()
        self.depth = int(trees.depth)
        self.trees = _Forest(**trees.state_dict()) if isinstance(trees, Forest) else copy.deepcopy(trees)

    def forward(self, s_nd: Tensor) -> Tensor:
        return self.trees.scores(s_nd, self.depth)


class _Forest(Forest):
    """A forest without sums over looked-up rows, which ONNX does not have."""

    def votes(self, leaf_nt: Tensor) -> Tensor:
        """Shares at the leaves, summed over some trees after the other, so that little is held."""
        votes = [self.share_km[leaf_nk].sum(1) for leaf_nk in leaf_nt.split(TREES_AT_ONCE, dim=1)]
        return sum(votes[1:], start=votes[0])


# --- from outputs to what is predicted --------------------------------------------------------------------------------


class ClassOutcome(nn.Module):
    """Balanced logits to the place of the class that is predicted, and probabilities.

    ``costs`` and ``offsets`` are those of ``ecrt.estimators.decisions.lowest_cost``, if there are any.
    """

    output_names = ("label", "probabilities")

    def __init__(
        self,
        log_prior: NDArray[Any],
        dtype: torch.dtype,
        costs: NDArray[Any] | None = None,
        offsets: NDArray[Any] | None = None,
    ) -> None:
        super().__init__()
        self.log_prior_m = nn.Buffer(torch.tensor(log_prior, dtype=dtype))
        self.costs_mm = None if costs is None else nn.Buffer(torch.tensor(costs))
        self.offsets_m = nn.Buffer(torch.tensor(np.zeros(len(log_prior)) if offsets is None else offsets))

    def forward(self, logits_nm: Tensor) -> tuple[Tensor, Tensor]:
        """Places of classes, and probabilities of all classes."""
        scores_nm = logits_nm + self.log_prior_m
        p_nm = torch.softmax(scores_nm, dim=1)
        if self.costs_mm is None:
            return scores_nm.argmax(dim=1), p_nm
        return (torch.softmax(scores_nm.double(), dim=1) @ self.costs_mm + self.offsets_m).argmin(dim=1), p_nm


class LabelOutcome(nn.Module):
    """Balanced logits of labels to an indicator of those predicted, and probabilities.

    Labels that no row of the fit had are never predicted; ``given`` are their scores. The others are predicted from
    scores of ``cuts`` on.
    """

    output_names = ("label", "probabilities")

    def __init__(
        self, log_prior: NDArray[Any], cuts: NDArray[Any], never: NDArray[Any], given: NDArray[Any], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.log_prior_m, self.given_m = (nn.Buffer(torch.tensor(values, dtype=dtype)) for values in (log_prior, given))
        self.cuts_m, self.never_m = nn.Buffer(torch.tensor(cuts)), nn.Buffer(torch.tensor(never))

    def forward(self, logits_nm: Tensor) -> tuple[Tensor, Tensor]:
        """Zeros and ones, and probabilities of all labels."""
        scores_nm = torch.where(self.never_m, self.given_m, logits_nm + self.log_prior_m)
        return ((scores_nm.double() >= self.cuts_m) & ~self.never_m).long(), torch.sigmoid(scores_nm)


class NumberOutcome(nn.Module):
    """Standardised targets to targets, in the units and the shape of ``y``."""

    output_names = ("prediction",)

    def __init__(self, scale: NDArray[Any], center: NDArray[Any], *, one: bool) -> None:
        super().__init__()
        self.scale_k, self.center_k, self.one = nn.Buffer(torch.tensor(scale)), nn.Buffer(torch.tensor(center)), one

    def forward(self, standard_nk: Tensor) -> Tensor:
        """Targets."""
        targets_nk = standard_nk.double() * self.scale_k + self.center_k
        return targets_nk[:, 0] if self.one else targets_nk


# --- the file ---------------------------------------------------------------------------------------------------------


def write_onnx(
    module: ServedModel,
    path: str | PathLike[str],
    shape: Sequence[int],
    classes: NDArray[Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a module as an ONNX file, whole or not at all.

    Parameters
    ----------
    shape : of one row, or one image.
    classes : what the places of classes stand for, in the output ``label``.
    about : written into the file as JSON, by name.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch needs it
    except ImportError as error:
        raise InputError("ONNX files need onnx and onnxscript: pip install 'ecrt[onnx]'.") from error
    rows = torch.zeros(2, *shape, dtype=module.input_dtype)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what libraries say among themselves
            # By itself first: torch.onnx would go on with a fixed number of rows where this fails.
            traced = torch.export.export(module, (rows,), dynamic_shapes=({0: torch.export.Dim("rows")},))
            program: Any = torch.onnx.export(
                traced, dynamo=True, opset_version=OPSET, input_names=["X"], output_names=list(module.output_names),
                verbose=False,
            )  # fmt: skip
    except (RuntimeError, ValueError, TypeError) as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(
            f"torch cannot export the model. An encoder of your own ({type(module.encoder).__name__}) must take any "
            f"number of rows (x.shape[0], not len(x)) and have no branches on values. torch says: {said}"
        ) from error
    finally:
        logger.setLevel(level)
    model = program.model_proto
    model.producer_name = "ecrt"
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = "rows"
    if classes is not None:
        _name_classes(model, classes)
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in (about or {}).items()})
    if model.ByteSize() >= LARGEST_FILE:
        raise InputError(f"The model has {model.ByteSize():,} bytes; an ONNX file holds less than {LARGEST_FILE:,}.")
    onnx.checker.check_model(model)
    write_bytes(path, model.SerializeToString())


def _name_classes(model: Any, classes: NDArray[Any]) -> None:
    """Let the output ``label`` hold the classes themselves instead of their places."""
    from onnx import TensorProto, helper

    kinds = {"i": TensorProto.INT64, "u": TensorProto.UINT64, "f": TensorProto.DOUBLE, "b": TensorProto.BOOL}
    kind = kinds.get(classes.dtype.kind, TensorProto.STRING)
    try:
        values: Any = [str(one).encode() for one in classes] if kind == TensorProto.STRING else classes.tolist()
    except UnicodeEncodeError as error:
        raise InputError(f"The class {error.object!r} holds letters that UTF-8, and so an ONNX file, lacks.") from error
    graph = model.graph
    (label,) = (output for output in graph.output if output.name == "label")
    for node in graph.node:
        node.output[:] = ["place" if name == "label" else name for name in node.output]
        node.input[:] = ["place" if name == "label" else name for name in node.input]
    graph.initializer.append(helper.make_tensor("classes", kind, [len(classes)], values))
    graph.node.append(helper.make_node("Gather", ["classes", "place"], ["label"], name="class_of_place"))
    label.type.tensor_type.elem_type = kind
