"""Prediction's own path gives what de-mixing, scaling and head give one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

from ecrt.flows import Demixer, LinearDemixing, LowRank, MaskedFlow, SharedPrior
from ecrt.metrics import fit_temperature
from ecrt.nn import BalancedHead, ClassGaussians, Standardise, make_head
from ecrt.stages import LinearHead, head_outputs, sources_of
from ecrt.stages.scoring import _saves_work, predict_outputs, predict_sources
from ecrt.stages.targets import temperature_of

D, KEPT, N_SIGNAL, N_CLASSES = 7, 5, 4, 3


def a_demixer(*, with_flow: bool, rank: int | None = None) -> Demixer:
    """Some columns never vary, the others come in another order, and the mean is far from zero."""
    torch.manual_seed(0)
    center, kept = 1e4 + torch.randn(D, dtype=torch.float64), torch.tensor([3, 0, 6, 2, 5])
    spread = torch.tensor([0.5, 0, 2, 1, 0, 1, 1e-3], dtype=torch.float64)
    weight: torch.Tensor | LowRank = torch.randn(KEPT, KEPT, dtype=torch.float64)
    if rank is not None:
        weight = LowRank(torch.tensor(0.5).double(), torch.randn(KEPT, rank).double(), torch.randn(KEPT, rank).double())
    linear = LinearDemixing(Standardise(center, spread, center - 3, center + 3), kept, weight, N_SIGNAL)
    flow = MaskedFlow(N_SIGNAL, 2, (16, 16)) if with_flow else None
    if flow is not None:
        for parameter in flow.parameters():
            nn.init.normal_(parameter, std=0.5)
    return Demixer(linear, SharedPrior(), flow).double().eval()


def heads() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    linear = nn.Linear(N_SIGNAL, N_CLASSES)
    mlp = make_head(N_SIGNAL, N_CLASSES, (8, 8), dropout=0.3)
    gaussian = ClassGaussians(torch.randn(N_CLASSES, N_SIGNAL), torch.rand(N_CLASSES, N_SIGNAL) + 0.5)
    log_mass = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    found = {
        "linear": linear, "mlp": mlp, "gaussian": gaussian,
        "balanced linear": BalancedHead(linear, log_mass), "balanced mlp": BalancedHead(mlp, log_mass),
    }  # fmt: skip
    return {name: head.double().eval() for name, head in found.items()}


@pytest.mark.parametrize("with_flow", [False, True], ids=["linear", "flow"])
@pytest.mark.parametrize("rank", [None, 0, 2])
@pytest.mark.parametrize("head", heads())
@pytest.mark.parametrize("n", [1, 2100])
def test_the_path_of_prediction_gives_what_the_stages_give(
    with_flow: bool, rank: int | None, head: str, n: int
) -> None:
    demixer, module = a_demixer(with_flow=with_flow, rank=rank), heads()[head]
    scale = np.array([0.5, 1.0, 2.0, 0.1])
    z = 1e4 + np.random.default_rng(0).normal(size=(n, D))
    before = z.copy()
    staged = head_outputs(module, sources_of(demixer, z) * scale)
    for rows in (z, z[:, ::-1][:, ::-1], np.asfortranarray(z)):
        np.testing.assert_allclose(predict_outputs(demixer, scale, module, rows), staged, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(z, before)


@pytest.mark.parametrize("with_flow", [False, True], ids=["linear", "flow"])
@pytest.mark.parametrize("head", heads())
def test_in_float32_it_gives_the_same_but_for_rounding(with_flow: bool, head: str) -> None:
    demixer, module = a_demixer(with_flow=with_flow), heads()[head]
    scale = np.array([0.5, 1.0, 2.0, 0.1])
    z = 1e4 + np.random.default_rng(0).normal(size=(300, D))
    state = {name: value.clone() for name, value in [*demixer.state_dict().items(), *module.state_dict().items()]}
    exact = predict_outputs(demixer, scale, module, z)
    quick = predict_outputs(demixer, scale, module, z, torch.float32)
    assert quick.dtype == np.float32
    assert not np.array_equal(quick, exact)
    np.testing.assert_allclose(quick, exact, rtol=1e-4, atol=1e-4)
    sources = predict_sources(demixer, z, torch.float32)
    assert sources.dtype == np.float32
    np.testing.assert_allclose(sources, sources_of(demixer, z), rtol=1e-4, atol=1e-4)
    for name, value in [*demixer.state_dict().items(), *module.state_dict().items()]:  # another thread may use them
        assert value.dtype == state[name].dtype
        assert torch.equal(value, state[name])


@pytest.mark.parametrize("rank", [None, 0, 2])
@pytest.mark.parametrize("with_flow", [False, True], ids=["linear", "flow"])
@pytest.mark.parametrize("head", heads())
def test_in_float32_a_row_has_the_same_answer_alone_and_among_others(
    with_flow: bool, rank: int | None, head: str
) -> None:
    demixer, module = a_demixer(with_flow=with_flow, rank=rank), heads()[head]
    z = 1e4 + np.random.default_rng(0).normal(size=(1100, D))
    whole = predict_outputs(demixer, np.ones(N_SIGNAL), module, z, torch.float32)
    for rows in (slice(3, 4), slice(5, 7), slice(40, 73), slice(1000, 1050)):
        part = predict_outputs(demixer, np.ones(N_SIGNAL), module, z[rows], torch.float32)
        np.testing.assert_array_equal(part, whole[rows])


def test_maps_are_made_one_only_where_that_saves_work() -> None:
    assert _saves_work(10_000, 512, 512, 100)
    assert not _saves_work(1, 512, 512, 100)  # the product of the matrices alone takes longer than the row
    assert not _saves_work(10_000, 512, 8, 1000)  # few sources between many features and many classes


def test_sources_alone_are_those_of_the_forward_pass() -> None:
    for n_features in (1, 6):
        torch.manual_seed(2)
        flow = MaskedFlow(n_features, 3, (16, 16)).double()
        for parameter in flow.parameters():
            nn.init.normal_(parameter, std=0.5)
        z = torch.randn(50, n_features, dtype=torch.float64)
        before = z.clone()
        torch.testing.assert_close(flow.frozen()(z), flow(z)[0].detach(), rtol=0, atol=0)
        assert torch.equal(z, before)


def test_the_temperature_of_a_head_is_that_of_its_probabilities() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(N_CLASSES), [300, 60, 20])
    s = np.eye(N_CLASSES, N_SIGNAL)[y] + rng.normal(size=(len(y), N_SIGNAL))
    head = heads()["linear"]
    with torch.no_grad():
        head.weight.copy_(5 * torch.eye(N_CLASSES, N_SIGNAL))
    prior_m = LinearHead(loss="ldam").class_loss.prior(torch.from_numpy(np.bincount(y)))
    found = temperature_of(head, prior_m, torch.from_numpy(s), y)
    expected = fit_temperature(log_softmax(head_outputs(head, s), axis=1), y)  # LDAM leaves the training frequencies
    assert found == pytest.approx(expected, rel=1e-4)
    assert found > 1.5
