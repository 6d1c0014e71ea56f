"""How heads are fitted: gradients that are written out are those of autograd, and are used where they may be."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecrt import LinearHead, MLPHead
from ecrt.data import ClassRoles
from ecrt.losses import LOSS_OPTIONS, cross_entropy, cross_entropy_slopes, log_softmax, loss_rule
from ecrt.nn import SideBySide, make_head
from ecrt.randomness import seeded
from ecrt.stages.augmenting import NoAugmentation
from ecrt.stages.heads import HeadSample, LinearFitter, MLPFitter, SoftmaxGradients, each_network, plain_risk
from ecrt.stages.targets import ClassTarget
from ecrt.training import TrainingConfig, torch_generator


def rows(n_classes: int, dtype: torch.dtype = torch.float64, n: int = 60) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, classes and weights."""
    generator = torch.Generator().manual_seed(n_classes)
    y_n = torch.arange(n) % n_classes
    s_nd = torch.randn(n, 3, generator=generator, dtype=dtype) + y_n[:, None] % 5
    weight_n = torch.rand(n, generator=generator, dtype=dtype)
    return s_nd, y_n, weight_n / weight_n.sum()


def shift(n_classes: int) -> Tensor:
    return torch.linspace(-1, 1, n_classes, dtype=torch.float64)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [(), (8,), (2, 5)])
@pytest.mark.parametrize("n_classes", [2, 20])
def test_written_gradients_are_those_of_autograd(n_classes, hidden, dropout):
    s_nd, y_n, weight_n = rows(n_classes)
    with seeded(0):
        head = make_head(3, n_classes, hidden, dropout).double()
        for parameter in head.parameters():
            nn.init.normal_(parameter)
    with seeded(1):
        loss = (cross_entropy(head(s_nd) + shift(n_classes), y_n) * weight_n).sum()
    loss.backward()
    expected = [parameter.grad.clone() for parameter in head.parameters()]
    written = SoftmaxGradients(head, shift(n_classes))
    for blocks in (1, 1) if dropout else (1, 2, 1):  # arrays of one batch serve the next
        written.clear()
        with seeded(1):
            parts = zip(*(values.chunk(blocks) for values in (s_nd, y_n, weight_n)), strict=True)
            total = sum(written.add(*part) for part in parts)
        torch.testing.assert_close(total, loss.detach())
        for parameter, gradient in zip(head.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("n", [2, 3, 5, 60])
def test_a_batch_in_two_halves_has_the_gradients_of_the_whole(n):
    s_nd, y_n, weight_n = rows(3, n=n)
    with seeded(0):
        head = make_head(3, 3, (8,)).double()
    loss = (cross_entropy(head(s_nd) + shift(3), y_n) * weight_n).sum()
    loss.backward()
    expected = [parameter.grad.clone() for parameter in head.parameters()]
    written = SoftmaxGradients(head, shift(3))
    for _ in range(2):
        assert written.of_batch(s_nd, y_n, weight_n) == pytest.approx(loss.item())
        torch.testing.assert_close([parameter.grad for parameter in head.parameters()], expected)


def test_synthetic_rows_of_a_batch_are_drawn_at_once():
    s_nd, y_n, weight_n = rows(3)
    drawn: list[int] = []

    def draw(chosen: Tensor) -> Tensor:
        drawn.append(len(chosen))
        return s_nd[chosen]

    sample = HeadSample(s_nd, y_n, weight_n, torch.ones(60, dtype=torch.bool), draw=draw)
    training = TrainingConfig(epochs=2, batch_size=20, learning_rate=0.01)
    generator = torch_generator(np.random.default_rng(0))
    MLPFitter(3, lambda: plain_risk(cross_entropy), (8,), 0.0, training, generator, shift_m=shift(3)).fit(sample, 2)
    assert drawn == [20] * 6


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("n_classes", [2, 20])
def test_written_gradients_of_networks_side_by_side_are_those_of_autograd(n_classes, dropout):
    s_nd, y_n, weight_n = rows(n_classes)
    with seeded(0):
        head = SideBySide(3, 9, n_classes, networks=3, dropout=dropout).double()
    loss_of = each_network(lambda logits_nm, y_n: cross_entropy(logits_nm + shift(n_classes), y_n))
    with seeded(1):
        loss = (loss_of(head(s_nd), y_n) * weight_n).sum()
    loss.backward()
    expected = [parameter.grad.clone() for parameter in head.parameters()]
    written = SoftmaxGradients(head, shift(n_classes))
    for _ in range(2):
        written.clear()
        with seeded(1):
            torch.testing.assert_close(written.add(s_nd, y_n, weight_n), loss.detach())
        for parameter, gradient in zip(head.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("n_classes", [2, 15, 16, 40])
def test_softmax_and_slopes_are_those_of_torch(n_classes):
    s_nd, y_n, _ = rows(n_classes)
    logits_nm = (s_nd @ torch.ones(3, n_classes).cumsum(1).double()).requires_grad_()
    torch.testing.assert_close(log_softmax(logits_nm), torch.log_softmax(logits_nm, dim=1))
    losses_n = cross_entropy(logits_nm, y_n)
    found_n, slopes_nm = cross_entropy_slopes(logits_nm.detach(), y_n)
    torch.testing.assert_close(found_n, losses_n.detach())
    torch.testing.assert_close(slopes_nm, torch.autograd.grad(losses_n.sum(), logits_nm)[0])


@pytest.mark.parametrize("name", LOSS_OPTIONS)
def test_a_loss_with_a_shift_is_the_cross_entropy_of_shifted_logits(name):
    s_nd, y_n, _ = rows(3)
    counts_m, rule = torch.tensor([30, 20, 10]), loss_rule(name, {"tau": 0.5} if name == "logit-adjusted" else None)
    assert (rule.shift is not None) == (name in ("cross-entropy", "logit-adjusted"))
    if rule.shift is not None:
        expected = cross_entropy(s_nd + rule.shift(counts_m), y_n)
        torch.testing.assert_close(rule.bind(counts_m)(s_nd, y_n), expected)


def refuse(*_: object) -> Tensor:
    raise AssertionError("autograd was asked")


def test_an_mlp_is_trained_by_written_gradients_to_what_autograd_gives():
    s_nd, y_n, weight_n = rows(3, torch.float32)
    sample = HeadSample(s_nd, y_n, weight_n, torch.zeros(len(y_n), dtype=torch.bool))
    counts_m, rule = torch.tensor([30, 20, 10]), loss_rule("logit-adjusted", None)

    def fitted(risk: object, **how: Tensor | None) -> nn.Module:
        training = TrainingConfig(epochs=5, batch_size=16, learning_rate=1e-2)
        with seeded(0):
            generator = torch_generator(np.random.default_rng(0))
            return MLPFitter(3, lambda: risk, (8,), 0.2, training, generator, **how).fit(sample, 5)

    expected = fitted(plain_risk(rule.bind(counts_m)))
    found = fitted(refuse, shift_m=rule.shift(counts_m))
    torch.testing.assert_close(found(s_nd), expected(s_nd), rtol=1e-4, atol=1e-4)


def test_lbfgs_by_written_gradients_finds_what_autograd_finds():
    s_nd, y_n, weight_n = rows(12, n=6000)
    sample = HeadSample(s_nd, y_n, weight_n, torch.zeros(len(y_n), dtype=torch.bool))
    counts_m, rule = torch.bincount(y_n), loss_rule("logit-adjusted", None)
    expected = LinearFitter(12, rule.bind(counts_m)).fit(sample, 0.1)
    found = LinearFitter(12, refuse, shift_m=rule.shift(counts_m)).fit(sample, 0.1)
    torch.testing.assert_close(found(s_nd), expected(s_nd), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("head", "has"),
    [
        (MLPHead(), True),
        (MLPHead(networks=4), True),
        (MLPHead(loss="cross-entropy", class_mass="balanced"), True),
        (MLPHead(loss="ldam-drw"), False),
        (MLPHead(mixup=0.2), False),
        (LinearHead(), True),
        (LinearHead(loss="focal"), False),
    ],
)
def test_a_head_has_written_gradients_where_its_risk_is_a_cross_entropy(head, has):
    y = np.repeat([0, 1, 2], [30, 20, 10])
    every, rng = np.ones(3, dtype=bool), np.random.default_rng(0)
    roles = ClassRoles(counts=np.bincount(y), minority=~every, augmented=~every, encoded_on=every, demixed_on=every)
    target = ClassTarget(y, roles, NoAugmentation(), rng, torch.device("cpu"))
    assert (head.fitter(target, rng, None).shift_m is not None) == has
