"""Networks that know nothing of the rest: perceptrons, columns in units of their spread, critics, heads, encoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ecrt.arrays import Array, Mask
from ecrt.distributed import Span, all_rows, gathered, keep_own_rows, log_sum_exp, part_of_table, rows_of
from ecrt.errors import InputError, code_of_user
from ecrt.randomness import Dropout

CELLS_AT_ONCE = 2**20
"""Activations (coordinates x rows x units) held in one array on the CPU. Larger ones, each of dozens of mebibytes, come
fresh from the system every time, and clearing their pages takes longer than the arithmetic."""

DOUBT = 1e-4
"""Share of a uniform guess in what Gaussians say."""

BEYOND = 5.0
"""Values are held within their range in training and this many spreads beyond it on either side.

A column that is nearly constant in training, such as a pixel at the border of an image, has a tiny spread: without a
bound, one row in which it is not constant would decide everything.
"""

ROUNDING_STEPS = 8
"""A column whose spread is no more than so many rounding errors of its largest value varies by rounding alone."""

TINY = 1e-140
"""Squares of smaller values would be lost."""

ROWS_IN_TREES = 1024
"""Rows that are in all trees at the same time."""

KERNEL_WIDTH = 16
"""Rows and columns of float32 products are padded to multiples of this, which the kernels of matrix libraries share."""


class MLP(nn.Sequential):
    """Linear layers with ReLU, or its leaky form, and optional dropout between them, none after the last.

    >>> MLP(4, (8,), 2)
    MLP(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int], out_features: int, dropout: float = 0.0, slope: float = 0.0
    ) -> None:
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(in_features, width), nn.LeakyReLU(slope) if slope else nn.ReLU()]
            layers += [Dropout(dropout)] if dropout else []
            in_features = width
        super().__init__(*layers, nn.Linear(in_features, out_features))


class SideBySide(nn.Module):
    """Networks with one hidden layer each, trained at the same time: one set of outputs for each network.

    Together, by the mean of what they give, they are one :class:`MLP`, and that makes fewer errors than an MLP as wide
    whose units all learn from the errors of their sum.

    Parameters
    ----------
    hidden : units of all networks together, at least one for each.

    >>> several = SideBySide(4, 8, 3, networks=2)
    >>> several(torch.zeros(5, 4)).shape
    torch.Size([2, 5, 3])
    >>> several.joined()(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, n_inputs: int, hidden: int, n_outputs: int, networks: int, dropout: float = 0.0) -> None:
        super().__init__()
        each = hidden // networks
        self.shape, self.dropout = (n_inputs, (networks * each,), n_outputs), dropout
        self.body = nn.Sequential(*list(MLP(n_inputs, (networks * each,), 1, dropout))[:-1])
        last = [nn.Linear(each, n_outputs) for _ in range(networks)]
        self.weight_ghm = nn.Parameter(torch.stack([one.weight.detach().T for one in last]))
        self.bias_g1m = nn.Parameter(torch.stack([one.bias.detach()[None] for one in last]))

    def forward(self, s_nd: Tensor) -> Tensor:
        """What each network gives for each row."""
        hidden_ngh = self.body(s_nd).unflatten(1, self.weight_ghm.shape[:2])
        return torch.baddbmm(self.bias_g1m, hidden_ngh.transpose(0, 1), self.weight_ghm)

    @torch.no_grad()
    def joined(self, whole: MLP | None = None) -> MLP:
        """The mean of the networks as one MLP, a new one or that of an earlier call with other numbers."""
        last_hm = (self.weight_ghm / len(self.weight_ghm)).flatten(0, 1)
        numbers = *self.body.parameters(), last_hm.T, self.bias_g1m.mean(0)[0]
        return _filled(whole, (*self.shape, self.dropout), numbers)


def _filled(whole: MLP | None, shape: tuple[Any, ...], numbers: Sequence[Tensor]) -> MLP:
    """An MLP of this shape, a new one if there is none, with these parameters."""
    if whole is None:
        with torch.device("meta"):
            whole = MLP(*shape)
        whole.to_empty(device=numbers[0].device).to(numbers[0])
    for mine, number in zip(whole.parameters(), numbers, strict=True):
        mine.copy_(number)
    return whole


class SharedOutMLP(nn.Module):
    """An MLP for very many classes: each of the processes that share a fit holds the last layer of some of them."""

    def __init__(self, n_inputs: int, hidden: Sequence[int], n_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = n_inputs, hidden, n_outputs, dropout
        *body, last = MLP(*self.shape)
        self.body, self.last = nn.Sequential(*body), last
        keep_own_rows(self.last, "weight", "bias")

    def cross_entropy(self, s_nd: Tensor, y_n: Tensor, shift_m: Tensor) -> Tensor:
        """Softmax cross-entropy over all classes, of the rows of this process, for logits plus a shift."""
        weight_mh, bias_m = self.last.get_parameter("weight"), self.last.get_parameter("bias")
        held = part_of_table(weight_mh) or Span(0, len(weight_mh), len(weight_mh))
        (hidden_kh, first), (labels_k, _) = gathered(self.body(s_nd)), gathered(y_n)
        logits_km = torch.addmm(bias_m + shift_m[held.start : held.stop], hidden_kh, weight_mh.T)
        log_sum_k, own_k = log_sum_exp(logits_km, labels_k, held)
        return (log_sum_k - own_k)[first : first + len(y_n)]

    @torch.no_grad()
    def joined(self, whole: MLP | None = None) -> MLP:
        """The whole MLP, for every process; a new one or that of an earlier call."""
        return _filled(whole, self.shape, [*self.body.parameters(), *map(all_rows, self.last.parameters())])


class Standardise(nn.Module):
    """Columns less their centre, over their spread, within bounds; always computed in float64.

    Parameters
    ----------
    center_d, spread_d : of each column. A column of spread 0 never varies: it becomes 0, whatever its value.
    low_d, high_d : least and greatest value of each column in training.
    """

    def __init__(self, center_d: Tensor, spread_d: Tensor, low_d: Tensor, high_d: Tensor) -> None:
        super().__init__()
        varies_d = spread_d > 0
        scale_d = torch.where(varies_d, spread_d, 1.0)
        self.center_d, self.spread_d = nn.Buffer(center_d), nn.Buffer(scale_d)
        self.low_d = nn.Buffer(torch.where(varies_d, (low_d - center_d) / scale_d - BEYOND, 0.0))
        self.high_d = nn.Buffer(torch.where(varies_d, (high_d - center_d) / scale_d + BEYOND, 0.0))

    @classmethod
    def of(cls, z: Array, spread: Array | None = None, extent: tuple[Array, Array] | None = None) -> Standardise:
        """By the columns of these rows; spread and extent may come from other rows."""
        center = z[0] + (z - z[0]).mean(axis=0)  # precise far from zero
        spread = column_spread(z) if spread is None else spread
        return cls(*(torch.from_numpy(values) for values in (center, spread, *(extent or column_extent(z)))))

    @classmethod
    def nothing(cls, n_columns: int) -> Standardise:
        """Leaves columns as they are."""
        zeros, most = torch.zeros(n_columns, dtype=torch.float64), torch.finfo(torch.float64).max
        return cls(zeros, zeros + 1, zeros - most, zeros + most)

    @property
    def does_nothing(self) -> bool:
        """Whether columns stay as they are."""
        return bool((self.high_d == torch.finfo(torch.float64).max).all())

    def forward(self, z_nd: Tensor) -> Tensor:
        """Columns in units of their spread."""
        return ((z_nd.to(self.center_d) - self.center_d) / self.spread_d).clamp_(self.low_d, self.high_d)

    def inverse(self, standard_nd: Tensor) -> Tensor:
        """Columns in their own units; those that never vary at their one value."""
        return standard_nd * self.spread_d + self.center_d


def column_spread(z: Array, weight: Array | None = None) -> Array:
    """Standard deviation of each column, exactly 0 where it varies by rounding alone; ``weight`` of the rows, if any.

    >>> column_spread(np.array([[1.0, 1e10, 0.1], [2.0, 1e10 + 1, 0.1]])).tolist()
    [0.5, 0.5, 0.0]
    """
    low, high = column_extent(z)
    shifted = z - z[:1]  # exactly zero where nothing varies, and precise far from zero
    width = high - low
    tiny = (width > 0) & (width < TINY)
    if tiny.any():
        exponent = np.frexp(width)[1]
        shifted[:, tiny] = np.ldexp(shifted[:, tiny], -exponent[tiny])
    if weight is None:
        spread = shifted.std(axis=0)
    else:
        share = weight / weight.sum()
        spread = np.sqrt(share @ (shifted - share @ shifted) ** 2)
    if tiny.any():
        spread[tiny] = np.ldexp(spread[tiny], exponent[tiny])
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.where(spread > ROUNDING_STEPS * np.finfo(np.float64).eps * largest, spread, 0.0)


def varies_by_rounding(z: Array) -> Mask:
    """Columns that vary, but by rounding alone: those whose ``column_spread`` is 0 and that are not constant."""
    low, high = column_extent(z)
    width = high - low
    # No column is as wide as this, and its spread still within rounding.
    widest = ROUNDING_STEPS * np.finfo(np.float64).eps * math.sqrt(2 * len(z)) * np.maximum(np.abs(low), np.abs(high))
    found = (width > 0) & (width <= widest)
    found[found] = column_spread(z[:, found]) == 0
    return found


def column_extent(z: Array) -> tuple[Array, Array]:
    """Least and greatest value of each column."""
    return z.min(axis=0), z.max(axis=0)


# --- critics r(y, z): how well a label and a source vector go together -------------------------------
#
# Each takes sources ``s_nd`` and labels ``labels_k`` and returns all scores ``scores_nk``. The identification theorem
# asks for a sum over coordinates, r(y, z) = sum_a r^a(y, [s]_a).


class CoordinateNetworks(nn.Module):
    r"""A network :math:`\gamma^a` for each coordinate a, and the sum :math:`\sum_a \gamma^a([s]_a)` of their outputs.

    Networks run many in one batched call, on a GPU all of them. The last layers and the sum over coordinates are one
    matrix product.

    Parameters
    ----------
    n_coordinates : d, the number of networks.
    width : units of both hidden layers of every network.
    out_features : size of the common output.
    """

    def __init__(self, n_coordinates: int, width: int, out_features: int) -> None:
        super().__init__()
        # Knots spread over the sources' usual range, so that every network starts with features all along it.
        self.slope_dw = nn.Parameter(torch.randn(n_coordinates, width))
        self.offset_dw = nn.Parameter(torch.randn(n_coordinates, width))
        self.hidden_dww = nn.Parameter(torch.randn(n_coordinates, width, width) * math.sqrt(2 / width))
        self.bias_d1w = nn.Parameter(torch.zeros(n_coordinates, 1, width))
        self.out = nn.Linear(n_coordinates * width, out_features)

    def forward(self, s_nd: Tensor) -> Tensor:
        """The sum over coordinates, for every row."""
        n, n_coordinates = s_nd.shape
        parameters = (self.slope_dw, self.offset_dw, self.hidden_dww, self.bias_d1w)
        at_once = max(CELLS_AT_ONCE // max(n * self.slope_dw.shape[1], 1), 1)
        if s_nd.is_cuda or at_once >= n_coordinates:
            hidden = _hidden_units(s_nd, *parameters)
        else:
            parts = zip(s_nd.split(at_once, dim=1), *(values.split(at_once) for values in parameters), strict=True)
            hidden = torch.cat([_hidden_units(*part) for part in parts], dim=1)
        return self.out(hidden)


def _hidden_units(s_nd: Tensor, slope_dw: Tensor, offset_dw: Tensor, hidden_dww: Tensor, bias_d1w: Tensor) -> Tensor:
    """Units of the second hidden layers, those of a coordinate side by side."""
    first_dnw = nn.functional.silu((s_nd.T.unsqueeze(-1) * slope_dw.unsqueeze(1)).add_(offset_dw.unsqueeze(1)))
    second_dnw = nn.functional.silu(torch.baddbmm(bias_d1w, first_dnw, hidden_dww))
    return second_dnw.transpose(0, 1).flatten(1)


CriticName = Literal["additive", "cosine", "label-network"]


class Critic(nn.Module):
    """Scores of source vectors against labels; ``labels_k=None`` stands for all labels in order."""

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        raise TypeError(f"{type(self).__name__} must define forward.")


class AdditiveCritic(Critic):
    r"""Bilinear and additive: :math:`\langle \mathrm{emb}(y), \sum_a \gamma^a([s]_a) \rangle`.

    The default. Being linear in the sum over coordinates it satisfies the theorem; the scale of the embedding plays
    the part of the temperature.
    """

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64, embedding: int = 64) -> None:
        super().__init__()
        self.networks = CoordinateNetworks(n_coordinates, width, embedding)
        self.embedding = nn.Parameter(torch.randn(n_labels, embedding) / math.sqrt(embedding))

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        embedding = self.embedding if labels_k is None else rows_of(self.embedding, labels_k)
        return self.networks(s_nd) @ embedding.T


class CosineCritic(AdditiveCritic):
    r"""The paper's :math:`\cos(\mathrm{emb}(y), \sum_a \gamma^a([s]_a)) / \tau` with a learned temperature.

    Dividing by the norm of the sum couples all coordinates, so the theorem does not apply to it.
    """

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64, embedding: int = 64) -> None:
        super().__init__(n_coordinates, n_labels, width, embedding)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(0.1)))

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        embedding = self.embedding if labels_k is None else self.embedding[labels_k]
        directions_ne = nn.functional.normalize(self.networks(s_nd), dim=1)
        return directions_ne @ nn.functional.normalize(embedding, dim=1).T * torch.exp(-self.log_temperature)


class LabelNetworkCritic(Critic):
    """The per-label network of Eq. 1: for each coordinate one network with an output for every label."""

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64) -> None:
        super().__init__()
        self.networks = CoordinateNetworks(n_coordinates, width, n_labels)

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        scores_nm: Tensor = self.networks(s_nd)
        return scores_nm if labels_k is None else scores_nm[:, labels_k]


def make_critic(
    name: CriticName | Callable[[int, int, int], nn.Module], n_coordinates: int, n_labels: int, width: int = 64
) -> nn.Module:
    """Build a critic by name, or by a class or function of one's own."""
    kinds: dict[str, type[Critic]] = {
        "additive": AdditiveCritic,
        "cosine": CosineCritic,
        "label-network": LabelNetworkCritic,
    }
    if callable(name):
        return _own_critic(name, n_coordinates, n_labels, width)
    if name not in kinds:
        raise InputError(f"critic={name!r}: choose one of {sorted(kinds)}, or a class of yours.")
    return kinds[name](n_coordinates, n_labels, width)


def _own_critic(make: Callable[[int, int, int], nn.Module], n_coordinates: int, n_labels: int, width: int) -> nn.Module:
    """A critic of the user's own, tried on two rows: the trouble is better found here than in training."""
    who, s_nd = f"critic={getattr(make, '__name__', make)}", torch.zeros(2, n_coordinates, requires_grad=True)
    with code_of_user(f"{who}: a call with {n_coordinates}, {n_labels}, {width} (n_sources, n_labels, width)"):
        critic = make(n_coordinates, n_labels, width)
    if not isinstance(critic, nn.Module):
        raise InputError(f"{who}: it must give a torch module, not {type(critic).__name__}.")
    for labels_k, wanted in ((None, n_labels), (torch.zeros(1, dtype=torch.int64), 1)):
        with torch.enable_grad(), code_of_user(f"{who}: forward(sources, labels) of 2 rows with labels={labels_k}"):
            scores: Any = critic(s_nd, labels_k)
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        if found != (2, wanted):
            raise InputError(
                f"{who}: of 2 rows and {wanted} labels it gave scores of shape {found}, not (2, {wanted})."
            )
        if not scores.requires_grad:
            raise InputError(f"{who}: its scores have no gradient, so they can train nothing.")
    return critic


# --- heads -------------------------------------------------------------------------------------------


def steady_linear(weight_hk: Tensor, bias_h: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """A linear layer under which a row has the same answer alone and among others, to the last bit of float32 as well.

    Matrix libraries choose how to sum by the shapes of what they multiply, and the last digits differ. In float64 that
    is far below what anybody notices; in float32 shapes are padded to those that are summed in the same way.
    """
    n_out, n_in = weight_hk.shape
    if weight_hk.dtype == torch.float64:
        return lambda x_nk: nn.functional.linear(x_nk, weight_hk, bias_h)
    map_kp = weight_hk.new_zeros(n_in, n_out + -n_out % KERNEL_WIDTH)
    map_kp[:, :n_out] = weight_hk.T
    bias_p = map_kp.new_zeros(map_kp.shape[1])
    if bias_h is not None:
        bias_p[:n_out] = bias_h

    def apply(x_nk: Tensor) -> Tensor:
        n = len(x_nk)
        if n % KERNEL_WIDTH:
            x_nk = torch.cat([x_nk, x_nk.new_zeros(-n % KERNEL_WIDTH, n_in)])
        return torch.addmm(bias_p, x_nk, map_kp)[:n, :n_out]

    return apply


class ClassGaussians(nn.Module):
    r"""Class-conditional Gaussians with independent coordinates, and a little doubt.

    With :math:`p` the posterior under equal priors, from the densities :math:`N(s; \mu_m, v_m)`, logits are
    :math:`\log((1 - \epsilon) p + \epsilon / M)`. Far from all classes one density is larger than the others by any
    factor, which says nothing; so no class is ever less probable than :math:`\epsilon / M`.

    >>> head = ClassGaussians(torch.tensor([[0.0], [2.0]]), torch.ones(2, 1))
    >>> head(torch.tensor([[1.0]])).diff().abs().item()
    0.0
    """

    def __init__(self, mean_md: Tensor, variance_md: Tensor) -> None:
        super().__init__()
        self.mean_md, self.variance_md = nn.Buffer(mean_md), nn.Buffer(variance_md)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Log-posteriors under equal priors."""
        log_p_nm = torch.log_softmax(self.log_densities(s_nd), dim=1)
        return torch.logaddexp(log_p_nm + math.log1p(-DOUBT), log_p_nm.new_tensor(math.log(DOUBT / log_p_nm.shape[1])))

    def log_densities(self, s_nd: Tensor) -> Tensor:
        """Under every class."""
        precision_md = 1 / self.variance_md
        # Expanded square: two matrix products instead of an n x M x d array.
        squares_nm = (
            s_nd**2 @ precision_md.T
            - 2 * s_nd @ (self.mean_md * precision_md).T
            + (self.mean_md**2 * precision_md).sum(1)
        )
        return -0.5 * (squares_nm + torch.log(2 * torch.pi * self.variance_md).sum(1))


class GrownTrees(nn.Module):
    """Trees as arrays, for rows without missing values.

    The nodes of all trees stand in one row. A leaf is its own child, so that a row of data that has arrived stays.

    Parameters
    ----------
    threshold_k, feature_k : a row whose value of this column is at most the threshold goes left.
    left_k, right_k : children of each node.
    depth : steps from a root to the deepest leaf.
    """

    def __init__(self, threshold_k: Tensor, feature_k: Tensor, left_k: Tensor, right_k: Tensor, depth: Tensor) -> None:
        super().__init__()
        self.threshold_k, self.feature_k = nn.Buffer(threshold_k), nn.Buffer(feature_k)
        self.left_k, self.right_k, self.depth = nn.Buffer(left_k), nn.Buffer(right_k), nn.Buffer(depth)

    def forward(self, s_nd: Tensor) -> Tensor:
        """What the trees give for every row, one number for each class."""
        depth = int(self.depth)
        return torch.cat([self.scores(part, depth) for part in s_nd.split(ROWS_IN_TREES)])

    def scores(self, s_nd: Tensor, depth: int) -> Tensor:
        """The same, of all rows at the same time."""
        raise TypeError(f"{type(self).__name__} must define scores.")

    def leaves(self, s_nd: Tensor, root_t: Tensor, depth: int) -> Tensor:
        """The leaf that each row reaches from each root."""
        at_nt = root_t.expand(s_nd.shape[0], -1)  # len() would fix the number of rows in an export
        for _ in range(depth):
            goes_left = s_nd.gather(1, self.feature_k[at_nt]) <= self.threshold_k[at_nt]
            at_nt = torch.where(goes_left, self.left_k[at_nt], self.right_k[at_nt])
        return at_nt


class Trees(GrownTrees):
    """Logits of classes as sums over regression trees.

    Parameters
    ----------
    threshold_k, feature_k, left_k, right_k, depth : as in ``GrownTrees``.
    value_k : what a leaf adds to a logit.
    root_st : where trees begin, for each step of boosting and each logit; two classes have one logit.
    baseline_t : logits before the first step.
    """

    def __init__(
        self, threshold_k: Tensor, feature_k: Tensor, left_k: Tensor, right_k: Tensor, value_k: Tensor, root_st: Tensor,
        baseline_t: Tensor, depth: Tensor,
    ) -> None:  # fmt: skip
        super().__init__(threshold_k, feature_k, left_k, right_k, depth)
        self.value_k, self.root_st, self.baseline_t = nn.Buffer(value_k), nn.Buffer(root_st), nn.Buffer(baseline_t)

    def scores(self, s_nd: Tensor, depth: int) -> Tensor:
        """Logits, one for each class."""
        value_nt = self.value_k[self.leaves(s_nd, self.root_st.flatten(), depth)]
        logits_nt = value_nt.unflatten(1, self.root_st.shape).sum(1) + self.baseline_t
        return logits_nt if logits_nt.shape[1] > 1 else torch.cat([-logits_nt / 2, logits_nt / 2], dim=1)


class Forest(GrownTrees):
    """Logarithms of the shares of classes that trees give, on average over the trees and an imagined one.

    The imagined tree gives all classes the same share, so that no share is zero.

    Parameters
    ----------
    threshold_k, feature_k, left_k, right_k, depth : as in ``GrownTrees``; thresholds are between float32 values.
    share_km : shares of the classes at each node.
    root_t : where trees begin.
    """

    def __init__(
        self, threshold_k: Tensor, feature_k: Tensor, left_k: Tensor, right_k: Tensor, share_km: Tensor, root_t: Tensor,
        depth: Tensor,
    ) -> None:  # fmt: skip
        super().__init__(threshold_k, feature_k, left_k, right_k, depth)
        self.share_km, self.root_t = nn.Buffer(share_km), nn.Buffer(root_t)

    def scores(self, s_nd: Tensor, depth: int) -> Tensor:
        """Log-shares, one for each class."""
        leaf_nt = self.leaves(s_nd.float().to(s_nd), self.root_t, depth)
        n_trees, n_classes = len(self.root_t), self.share_km.shape[1]
        # Whole numbers alone: ONNX files hold constants such as 1/3 in float32.
        return torch.log((n_classes * self.votes(leaf_nt) + 1) / (n_classes * (n_trees + 1)))

    def votes(self, leaf_nt: Tensor) -> Tensor:
        """Shares of the classes at the leaves of a row, summed over the trees."""
        return nn.functional.embedding_bag(leaf_nt, self.share_km, mode="sum")


class BalancedHead(nn.Module):
    """Balanced logits of a head that assumes some prior: its logits minus the log of the mass of the classes."""

    def __init__(self, head: nn.Module, log_mass_m: Tensor) -> None:
        super().__init__()
        self.head, self.log_mass_m = head, nn.Buffer(log_mass_m)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Balanced logits."""
        return self.head(s_nd) - self.log_mass_m


class CosineHead(nn.Module):
    """Cosines between features and class directions, times a fixed scale: the head that LDAM's margins are meant for.

    References
    ----------
    Wang, Xiang, Cheng, Yuille: NormFace, ACM Multimedia 2017; Cao et al., NeurIPS 2019.
    """

    def __init__(self, n_inputs: int, n_classes: int, scale: float = 30.0) -> None:
        super().__init__()
        self.scale = nn.Buffer(torch.tensor(float(scale)))
        self.weight = nn.Parameter(nn.functional.normalize(torch.randn(n_classes, n_inputs), dim=1))

    def forward(self, s_nd: Tensor) -> Tensor:
        """Scaled cosines, one for each class."""
        cosine_nm = nn.functional.normalize(s_nd, dim=1) @ nn.functional.normalize(self.weight, dim=1).T
        return self.scale * cosine_nm


def make_head(n_inputs: int, n_classes: int, hidden: tuple[int, ...] = (), dropout: float = 0.0) -> nn.Module:
    """A linear head (``hidden`` empty, all weights zero at the start) or an MLP."""
    if hidden:
        return MLP(n_inputs, hidden, n_classes, dropout)
    linear = nn.Linear(n_inputs, n_classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


# --- encoders z = e(x): any nn.Module that maps a batch to a matrix serves; these are the ready-made ones ----------

EncoderName = Literal["identity", "mlp", "resnet18", "autoencoder"]


class RowEncoder(nn.Module):
    """An encoder of rows, whose columns are standardised in float64 first: they may have any size and any mean.

    ``learn_columns`` must be called before it is trained. What it standardises is normalised again over each batch,
    with ``batch_norm``.
    """

    encoder: nn.Module

    def __init__(self, in_features: int, batch_norm: bool = True) -> None:
        super().__init__()
        self.columns = Standardise.nothing(in_features)
        self.normalise: nn.Module = nn.BatchNorm1d(in_features, affine=False) if batch_norm else nn.Identity()

    def learn_columns(self, rows: Array) -> None:
        """Learn centre, spread and bounds of the columns, unless that is done: an encoder may come trained."""
        if self.columns.does_nothing:
            self.columns = Standardise.of(rows).to(self.columns.center_d.device)

    def standardise(self, x: Tensor) -> Tensor:
        """Standardised rows, in the precision of the network."""
        return self.normalise(self.columns(x).to(next(self.parameters()).dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        return self.encoder(self.standardise(x))


class MLPEncoder(RowEncoder):
    """An MLP on standardised rows."""

    def __init__(
        self, in_features: int, hidden: Sequence[int], n_features: int, dropout: float = 0.1, batch_norm: bool = True
    ) -> None:
        super().__init__(in_features, batch_norm)
        self.encoder = MLP(in_features, hidden, n_features, dropout)


class AutoEncoder(RowEncoder):
    """An encoder learned without labels, by reconstructing its standardised input through a narrow code."""

    def __init__(self, in_features: int, hidden: Sequence[int], n_features: int) -> None:
        super().__init__(in_features)
        self.encoder = MLP(in_features, hidden, n_features)
        self.decoder = MLP(n_features, tuple(reversed(hidden)), in_features)

    def reconstruction_errors(self, x: Tensor) -> Tensor:
        """Mean squared error of every sample, in standardised units."""
        target = self.standardise(x)
        return ((self.decoder(self.encoder(target)) - target) ** 2).mean(1)

    def decode(self, z: Tensor) -> Tensor:
        """Inputs of features, in the units of the input."""
        standard, norm = self.decoder(z).double(), self.normalise
        if isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None:
            standard = standard * (norm.running_var + norm.eps).sqrt().double() + norm.running_mean.double()
        return self.columns.inverse(standard)


class StandardiseChannels(nn.Module):
    """Images, with each channel less its mean and over its deviation: fixed numbers, so bytes may come in as they are.

    >>> StandardiseChannels.of(torch.tensor([[[[0, 2]]], [[[4, 6]]]], dtype=torch.uint8))(torch.full((1, 1, 1, 1), 3.0))
    tensor([[[[0.]]]])
    """

    def __init__(self, mean_c: Tensor, deviation_c: Tensor) -> None:
        super().__init__()
        self.mean_c11, self.deviation_c11 = (nn.Buffer(one.float()[:, None, None]) for one in (mean_c, deviation_c))

    @classmethod
    def of(cls, x_nchw: Tensor) -> StandardiseChannels:
        """By the channels of these images; bytes are counted, not turned into numbers all at once."""
        means, deviations = [], []
        for channel in x_nchw.unbind(1):
            counts = torch.bincount(channel.reshape(-1).int(), minlength=256).double()
            value, share = torch.arange(len(counts), dtype=torch.float64), counts / counts.sum()
            means.append(share @ value)
            deviations.append(torch.sqrt(share @ (value - means[-1]) ** 2))
        return cls(torch.stack(means), torch.stack(deviations).clamp(min=1.0))

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Standardised images."""
        return (x_nchw - self.mean_c11) / self.deviation_c11


class _ResidualBlock(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """ResNet-18 for small images: a 3x3 stem without pooling, four groups of two blocks, global average pooling.

    Parameters
    ----------
    in_channels : channels of the images.
    n_features : size of a last linear layer; ``None`` gives the 512 pooled features themselves.
    width : channels of the first group; 64 is the standard network.
    """

    def __init__(self, in_channels: int = 3, n_features: int | None = None, width: int = 64) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        channels = width
        for group in range(4):
            for block in range(2):
                stride = 2 if group > 0 and block == 0 else 1
                layers.append(_ResidualBlock(channels, width * 2**group, stride))
                channels = width * 2**group
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        if n_features is not None:
            layers.append(nn.Linear(channels, n_features))
        super().__init__(*layers)


def make_encoder(
    name: EncoderName,
    in_shape: Sequence[int],
    *,
    n_features: int = 32,
    hidden: Sequence[int] = (512, 256),
    dropout: float = 0.1,
    batch_norm: bool = True,
) -> nn.Module:
    """Build an encoder by name for inputs of shape ``in_shape`` (without the batch axis)."""
    if name not in get_args(EncoderName):
        raise InputError(f"encoder={name!r}: use 'identity', 'mlp', 'resnet18', 'autoencoder' or an nn.Module.")
    if name == "identity":
        return nn.Identity()
    if name == "resnet18":
        if len(in_shape) != 3:
            raise InputError(f"encoder='resnet18' needs images (channels, height, width), got shape {tuple(in_shape)}.")
        return ResNet18(in_shape[0], n_features)
    if len(in_shape) != 1:
        raise InputError(f"encoder={name!r} needs rows of features, got samples of shape {tuple(in_shape)}.")
    if name == "mlp":
        return MLPEncoder(in_shape[0], hidden, n_features, dropout, batch_norm)
    return AutoEncoder(in_shape[0], hidden, n_features)
