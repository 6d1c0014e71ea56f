"""The inverse that evaluates every hidden unit once: all its ways equal the inverse that runs the whole network."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from zuko.flows import MaskedAutoregressiveTransform

from ecrt import flows
from ecrt.flows import MaskedFlow, dependency_order, fastest_inverse, invert_plain, ordered_block

BOUND = 2.0
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
WAYS = ["plain", "compiled", "cuda"]
SHAPES = [
    (2, 4, (128, 128)), (3, 2, (1,)), (5, 3, (3, 7, 4)), (32, 4, (128, 128)), (64, 4, (128, 128)), (64, 1, (16, 200)),
    (128, 4, (128, 128)), (128, 2, (16,)),
]  # fmt: skip


def trained_flow(d: int, n_blocks: int = 4, hidden: tuple[int, ...] = (128, 128), order: str = "usual") -> MaskedFlow:
    """A flow with weights as training leaves them, some scales near their bound."""
    torch.manual_seed(d)
    flow = MaskedFlow(d, n_blocks, hidden)
    if order == "random":
        for number, block in enumerate(flow.blocks):
            flow.blocks[number] = MaskedAutoregressiveTransform(
                d, order=torch.randperm(d), univariate=block.univariate, hidden_features=hidden, activation=nn.SiLU
            )
    for block in flow.blocks:
        for parameter in flow.last_layer(block):
            nn.init.normal_(parameter, std=0.5 / hidden[-1] ** 0.5)
        flow.last_layer(block)[-1].data[:2] += 3.0
    return flow


@torch.no_grad()
def whole_network_inverse(flow: MaskedFlow, s: Tensor) -> Tensor:
    """zuko's: the network runs once for every feature."""
    for block in reversed(flow.blocks):
        s = block().inv(s)
    return s


def inverted(flow: MaskedFlow, s: Tensor, way: str) -> Tensor:
    """The inverse in plain torch, compiled, or compiled for tensors of a GPU; on the CPU again."""
    if way == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        flow, s = flow.cuda(), s.cuda()
    orders = [dependency_order(block) for block in flow.blocks]
    if way != "plain":
        pytest.importorskip("numba")
    invert = invert_plain if way == "plain" else fastest_inverse(s.dtype)
    assert way == "plain" or invert is not invert_plain
    for block, order in zip(reversed(flow.blocks), reversed(orders), strict=True):
        s = invert(ordered_block(block, order), s, BOUND)
    flow.cpu()
    return s.cpu()


def sources(n: int, d: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("d", "n_blocks", "hidden"), SHAPES)
@pytest.mark.parametrize("order", ["usual", "random"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
def test_equals_the_inverse_by_the_whole_network(way, d, n_blocks, hidden, order, dtype):
    flow = trained_flow(d, n_blocks, hidden, order).to(dtype)
    s = flow(sources(101, d, dtype))[0].detach()
    found = inverted(flow, s, way)
    assert found.dtype == dtype
    expected = whole_network_inverse(flow, s)
    assert (expected - s).abs().max() > 0.1  # not the identity
    assert (found - expected).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1025, 3000])
def test_any_number_of_rows(way, n):
    flow = trained_flow(5, 2, (16, 16)).double()
    s = sources(3000, 5, torch.float64)
    found = inverted(flow, s[:n], way)
    assert found.shape == (n, 5)
    torch.testing.assert_close(found, whole_network_inverse(flow, s)[:n], rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_rows_need_not_be_contiguous(way):
    flow = trained_flow(6, 2, (16, 16))
    s = sources(40, 6, torch.float32)
    transposed = s.T.contiguous().T
    every_other = torch.stack([s, s + 1], 1).flatten(0, 1)[::2]
    assert not transposed.is_contiguous()
    assert not every_other.is_contiguous()
    for strided in (transposed, every_other):
        assert torch.equal(inverted(flow, strided, way), inverted(flow, s, way))
    assert torch.equal(s, sources(40, 6, torch.float32))  # nothing is overwritten


def test_a_row_does_not_depend_on_the_rows_beside_it():
    pytest.importorskip("numba")
    flow = trained_flow(32)
    s = sources(3000, 32, torch.float32)
    whole = flow.inverse(s)
    assert torch.equal(flow.inverse(s[70:75]), whole[70:75])


@pytest.mark.parametrize("way", ["plain", "compiled"])
def test_what_is_not_finite_stays_in_its_row(way):
    flow = trained_flow(4, 2, (16, 16))
    s = sources(70, 4, torch.float32)
    s[3, 0], s[68, 1] = torch.nan, torch.inf
    good = torch.isfinite(s).all(1)
    found = inverted(flow, s, way)
    assert torch.isfinite(found[good]).all()
    assert not torch.isfinite(found[~good]).all(1).any()


@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
def test_far_out_and_saturated(way, dtype):
    """Units deep in the flat parts of the SiLU, and sources a million standard deviations out."""
    flow = trained_flow(8, 1, (32, 32)).to(dtype)
    s = 1e6 * sources(80, 8, dtype)
    expected = whole_network_inverse(flow, s)
    assert ((inverted(flow, s, way) - expected).abs() / expected.abs().clamp(min=1)).max() <= 100 * TOLERANCE[dtype]


def test_threads_share_one_flow():
    flow = trained_flow(16, 2, (32, 32))
    parts = [sources(n, 16, torch.float32) for n in range(100, 1700, 100)]
    expected = [flow.inverse(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(flow.inverse, parts * 3))
    assert all(torch.equal(a, b) for a, b in zip(found, expected * 3, strict=True))


def test_follows_the_weights_as_they_change():
    flow = trained_flow(8, 2, (16, 16)).double()
    s = sources(10, 8, torch.float64)
    before = flow.inverse(s)
    with torch.no_grad():
        flow.last_layer(flow.blocks[0])[0].mul_(2)
    assert not torch.equal(flow.inverse(s), before)
    assert (flow.inverse(s) - whole_network_inverse(flow, s)).abs().max() <= 1e-12


def test_plain_torch_where_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(flows, "find_spec", lambda name: None)
    flow = trained_flow(8, 2, (16, 16)).double()
    s = sources(10, 8, torch.float64)
    assert fastest_inverse(s.dtype) is invert_plain
    assert (flow.inverse(s) - whole_network_inverse(flow, s)).abs().max() <= 1e-12


def test_other_types_take_the_plain_way():
    flow = trained_flow(4, 1, (16, 16)).to(torch.bfloat16)
    s = sources(10, 4, torch.bfloat16)
    assert flow.inverse(s).dtype == torch.bfloat16
    assert torch.isfinite(flow.inverse(s)).all()


@pytest.mark.parametrize("d", [2, 7, 64, 128])
@pytest.mark.parametrize("hidden", [(1,), (16,), (128, 128), (30, 20, 200)])
def test_every_unit_comes_after_all_its_inputs(d, hidden):
    for block in trained_flow(d, 2, hidden, "random").blocks:
        order = dependency_order(block)
        assert sorted(order.features) == list(range(d))
        ordered = ordered_block(block, order)
        known = [np.arange(d + 1), *order.starts]  # units of each layer known before feature k
        for number, weight in enumerate(ordered.weights):
            assert sorted(order.units[number]) == list(range(hidden[number]))
            assert order.starts[number][-1] == hidden[number]
            for k in range(d):
                new = weight[order.starts[number][k] : order.starts[number][k + 1]]
                assert (new[:, known[number][k + 1] :] == 0).all()
        for k in range(d):
            assert (ordered.outer_weight[k, :, order.starts[-1][k] :] == 0).all()
