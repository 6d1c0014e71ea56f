"""Every rival loss against a loop over plain Python floats, and what its logits assume."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecrt.errors import InputError
from ecrt.losses import (
    LOSS_OPTIONS,
    effective_number_weights,
    effective_prior,
    importance_weights,
    ldam_margins,
    make_class_loss,
)
from ecrt.nn import CosineHead

B, M = 6, 4
COUNTS = [200, 50, 16, 1]
Y = torch.tensor([0, 3, 1, 1, 2, 0])

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
every_loss = pytest.mark.parametrize("name", LOSS_OPTIONS)


def make_logits(dtype: torch.dtype) -> torch.Tensor:
    return 2 * torch.randn(B, M, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def loop_cross_entropy(row: list[float], y: int) -> float:
    total = 0.0
    for value in row:
        total += math.exp(value)
    return math.log(total) - row[y]


def loop_weights(beta: float) -> list[float]:
    raw = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    mean = sum(n * w for n, w in zip(COUNTS, raw, strict=True)) / sum(COUNTS)
    return [w / mean for w in raw]


def loop_margin(m: int, largest: float) -> float:
    return largest * min(COUNTS) ** 0.25 / COUNTS[m] ** 0.25


def oracle(name: str, row: list[float], y: int, done: float) -> float:
    """The loss of one sample, by its definition and with options other than the defaults where it has any."""
    if name == "hinge":
        return max(0.0, 1 + max(row[m] for m in range(M) if m != y) - row[y])
    if name == "weighted":
        return loop_cross_entropy(row, y) * sum(COUNTS) / (M * COUNTS[y])
    if name == "class-balanced":
        return loop_cross_entropy(row, y) * loop_weights(0.99)[y]
    if name == "focal":
        p = math.exp(-loop_cross_entropy(row, y))
        return (1 - p) ** 1.5 * -math.log(p)
    if name in ("ldam", "ldam-drw"):
        lowered = [v - 3.0 * loop_margin(m, 0.4) if m == y else v for m, v in enumerate(row)]
        weight = loop_weights(0.99)[y] if name == "ldam-drw" and done >= 0.7 else 1.0
        return loop_cross_entropy(lowered, y) * weight
    if name == "logit-adjusted":
        return loop_cross_entropy([v + 1.3 * math.log(n / sum(COUNTS)) for v, n in zip(row, COUNTS, strict=True)], y)
    assert name == "cross-entropy"
    return loop_cross_entropy(row, y)


OPTIONS = {
    "class-balanced": {"beta": 0.99},
    "focal": {"gamma": 1.5},
    "ldam": {"largest_margin": 0.4, "scale": 3.0},
    "ldam-drw": {"largest_margin": 0.4, "scale": 3.0, "beta": 0.99, "reweight_from": 0.7},
    "logit-adjusted": {"tau": 1.3},
}


@every_loss
@both_dtypes
@pytest.mark.parametrize("done", [0.0, 0.69, 0.7, 1.0])
def test_losses_are_their_loops(name, dtype, done):
    logits = make_logits(dtype)
    found = make_class_loss(name, torch.tensor(COUNTS), **OPTIONS.get(name, {}))(logits, Y, done)
    expected = [oracle(name, row, y, done) for row, y in zip(logits.tolist(), Y.tolist(), strict=True)]
    assert found.dtype == dtype
    assert found.tolist() == pytest.approx(expected, rel=1e-5 if dtype == torch.float32 else 1e-12)


@every_loss
def test_gradients_are_those_of_finite_differences_and_stay_finite(name):
    logits = make_logits(torch.float64).requires_grad_()
    loss = make_class_loss(name, torch.tensor(COUNTS))
    assert torch.autograd.gradcheck(lambda values: loss(values, Y), logits)
    extreme = torch.tensor([[80.0, -80.0, 0.0, 0.0], [-80.0, 80.0, 0.0, 0.0]], requires_grad=True)
    loss(extreme, torch.tensor([0, 0])).sum().backward()
    assert torch.isfinite(extreme.grad).all()


@every_loss
def test_half_precision_logits_are_corrected_in_full_precision(name):
    logits = make_logits(torch.float64).to(torch.bfloat16)
    loss = make_class_loss(name, torch.tensor(COUNTS))
    assert loss(logits, Y).float().tolist() == pytest.approx(loss(logits.double(), Y).tolist(), rel=0.05, abs=0.05)


def test_focal_without_focus_and_ldam_without_margin_are_cross_entropy():
    logits, counts = make_logits(torch.float64), torch.tensor(COUNTS)
    plain = make_class_loss("cross-entropy", counts)(logits, Y)
    torch.testing.assert_close(make_class_loss("focal", counts, gamma=0.0)(logits, Y), plain)
    torch.testing.assert_close(make_class_loss("ldam", counts, largest_margin=0.0)(logits, Y), plain)


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=8), st.floats(0, 0.99999))
def test_weights_have_mean_one_over_samples_and_rank_as_rarity(counts, beta):
    n = torch.tensor(counts)
    for weight in (importance_weights(n), effective_number_weights(n, beta)):
        assert ((weight * n).sum() / n.sum()).item() == pytest.approx(1)
        assert all(weight[i] >= weight[j] - 1e-9 for i in range(len(n)) for j in range(len(n)) if n[i] <= n[j])


def test_effective_numbers_lie_between_none_and_importance_weights():
    n = torch.tensor(COUNTS)
    torch.testing.assert_close(effective_number_weights(n, 0.0), torch.ones(M, dtype=torch.float64))
    torch.testing.assert_close(effective_number_weights(n, 1 - 1e-9), importance_weights(n), rtol=1e-4, atol=0)


def test_margins_are_largest_for_the_rarest_class():
    margins = ldam_margins(torch.tensor([16, 1]), 0.5)
    assert margins.tolist() == pytest.approx([0.25, 0.5])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("cross-entropy", {}, [0.8, 0.2]),
        ("hinge", {}, [0.8, 0.2]),
        ("focal", {}, [0.8, 0.2]),
        ("ldam", {}, [0.8, 0.2]),
        ("weighted", {}, [0.5, 0.5]),
        ("logit-adjusted", {}, [0.5, 0.5]),
        ("logit-adjusted", {"tau": 0.5}, [2 / 3, 1 / 3]),
        ("class-balanced", {"beta": 0.0}, [0.8, 0.2]),
        ("class-balanced", {"beta": 1 - 1e-12}, [0.5, 0.5]),
        ("ldam-drw", {"beta": 1 - 1e-12}, [0.5, 0.5]),
    ],
)
def test_effective_prior(name, options, expected):
    assert effective_prior(name, torch.tensor([80, 20]), **options).tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["cross-entropy", "weighted", "class-balanced", "logit-adjusted"])
def test_logits_that_minimise_a_proper_loss_are_balanced_once_the_effective_prior_is_off(name):
    """On one point x where p(x | m) is known, the minimiser less the log effective prior is log p(x | m)."""
    options = {"class-balanced": {"beta": 0.99}, "logit-adjusted": {"tau": 0.4}}.get(name, {})
    counts, likelihood = torch.tensor([90, 10]), torch.tensor([0.2, 0.6], dtype=torch.float64)
    here = counts * likelihood  # expected samples of each class at x
    loss = make_class_loss(name, counts, **options)
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(logits.expand(2, 2), torch.tensor([0, 1])) @ here
        value.backward()
        return value

    optimizer.step(closure)
    balanced = logits.detach()[0] - effective_prior(name, counts, **options).log()
    assert (balanced[1] - balanced[0]).item() == pytest.approx(math.log(3), abs=1e-5)


def test_unknown_losses_and_options_are_named():
    with pytest.raises(InputError, match="'squared'"):
        make_class_loss("squared", torch.tensor(COUNTS))
    with pytest.raises(InputError, match=r"'gamma'.*tau"):
        make_class_loss("logit-adjusted", torch.tensor(COUNTS), gamma=2.0)
    with pytest.raises(InputError, match="takes none"):
        effective_prior("hinge", torch.tensor(COUNTS), beta=0.5)
    with pytest.raises(InputError, match=r"beta=1\.0"):
        make_class_loss("class-balanced", torch.tensor(COUNTS), beta=1.0)


def test_cosine_head_gives_scaled_cosines():
    head, s = CosineHead(3, 2, scale=30.0), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    expected = 30 * torch.nn.functional.cosine_similarity(s[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(s), expected)
    torch.testing.assert_close(head(7 * s), expected)
