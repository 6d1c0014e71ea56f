"""Critics: batched networks against a loop over coordinates, and additivity, which the theorem asks for."""

import pytest
import torch

import ecrt.nn
from ecrt.errors import InputError
from ecrt.nn import CoordinateNetworks, Critic, make_critic

D, M, N = 3, 4, 5
NAMES = ["additive", "cosine", "label-network"]

every_critic = pytest.mark.parametrize("name", NAMES)


def build(name: str) -> Critic:
    torch.manual_seed(0)
    critic = make_critic(name, n_coordinates=D, n_labels=M, width=8).double()
    for parameter in critic.parameters():  # no bias may hide at its zero start
        parameter.data += 0.1 * torch.randn_like(parameter)
    return critic


@pytest.fixture
def sources() -> torch.Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def one_coordinate(critic: Critic, a: int, value: torch.Tensor) -> torch.Tensor:
    """gamma^a of one number, layer by layer."""
    networks = critic.networks
    width = networks.slope_dw.shape[1]
    first = torch.nn.functional.silu(networks.slope_dw[a] * value + networks.offset_dw[a])
    second = torch.nn.functional.silu(first @ networks.hidden_dww[a] + networks.bias_d1w[a, 0])
    return networks.out.weight[:, a * width : (a + 1) * width] @ second


@every_critic
def test_scores_are_a_loop_over_samples_labels_and_coordinates(name, sources):
    critic = build(name)
    for i in range(N):
        total = critic.networks.out.bias.clone()
        for a in range(D):
            total = total + one_coordinate(critic, a, sources[i, a])
        for m in range(M):
            if name == "label-network":
                expected = total[m]
            else:
                embedding = critic.embedding[m]
                expected = sum(embedding[k] * total[k] for k in range(len(total)))
                if name == "cosine":
                    expected = expected / (embedding.norm() * total.norm()) / critic.log_temperature.exp()
            torch.testing.assert_close(critic(sources)[i, m], expected, rtol=1e-12, atol=1e-12)


@every_critic
@pytest.mark.parametrize("labels", [[2], [3, 0, 3, 1, 1]])
def test_labels_select_columns(name, sources, labels):
    critic = build(name)
    labels_k = torch.tensor(labels)
    assert critic(sources).shape == (N, M)
    torch.testing.assert_close(critic(sources, labels_k), critic(sources)[:, labels_k], rtol=1e-12, atol=1e-12)


def largest_mixed_difference(critic: Critic, s: torch.Tensor) -> float:
    """Largest r(s + e_a + e_b) - r(s + e_a) - r(s + e_b) + r(s): zero where r is a sum over coordinates."""
    step = torch.eye(D, dtype=s.dtype)
    with torch.no_grad():
        differences = [
            critic(s + step[a] + step[b]) - critic(s + step[a]) - critic(s + step[b]) + critic(s)
            for a in range(D)
            for b in range(a)
        ]
    return torch.stack(differences).abs().max().item()


@pytest.mark.parametrize("name", ["additive", "label-network"])
def test_sum_over_coordinates(name, sources):
    assert largest_mixed_difference(build(name), sources) < 1e-12


def test_cosine_couples_coordinates(sources):
    assert largest_mixed_difference(build("cosine"), sources) > 0.1


@every_critic
def test_every_parameter_gets_a_gradient(name, sources):
    critic = build(name)
    critic(sources).square().sum().backward()
    for parameter_name, parameter in critic.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_an_unknown_critic_is_refused_with_the_choices():
    with pytest.raises(InputError) as refusal:
        make_critic("bilinear", D, M)
    assert all(name in str(refusal.value) for name in ["bilinear", *NAMES])


def test_coordinates_a_few_at_a_time_give_the_same_numbers(monkeypatch, sources):
    summed, results = CoordinateNetworks(D, 8, 4).double(), []
    for cells in (ecrt.nn.CELLS_AT_ONCE, 2 * 8 * len(sources)):
        monkeypatch.setattr(ecrt.nn, "CELLS_AT_ONCE", cells)
        summed.zero_grad()
        total = summed(sources)
        total.square().sum().backward()
        results.append([total.detach(), *(parameter.grad.clone() for parameter in summed.parameters())])
    torch.testing.assert_close(*results)
