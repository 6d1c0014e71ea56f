"""Synthetic features in a torch loop: what a batch becomes, what it weighs, and what is refused."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from ecrt import ECRTAugmenter, Flow, Parametric
from ecrt.errors import ECRTWarning, InputError

COUNTS = [60, 50, 40, 6, 4]
pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")


@pytest.fixture(scope="module")
def rows():
    """Five classes with labels 0, 10, ...; the last two are rare."""
    y = torch.repeat_interleave(10 * torch.arange(5), torch.tensor(COUNTS))
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(0)) + y[:, None] / 3
    return x, y


def test_a_batch_grows_by_fresh_rows_of_the_rare_classes(rows):
    x, y = rows
    augmenter = ECRTAugmenter(n_synthetic=5).fit(x, y)
    batch = torch.arange(0, len(y), 7)
    seen = set()
    for _ in range(60):
        more, labels, weights = augmenter(x[batch], y[batch])
        assert torch.equal(more[: len(batch)], x[batch])
        assert torch.equal(labels[: len(batch)], y[batch])
        assert labels[len(batch) :].tolist() == [30] * 5 + [40] * 5
        assert len(weights) == len(more)
        assert more.dtype == x.dtype
        assert labels.dtype == y.dtype
        drawn = {tuple(row) for row in more[len(batch) :].tolist()}
        assert len(drawn) == 10
        assert not drawn & seen
        seen |= drawn


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_synthetic_rows_leave_the_mass_of_every_class_as_it_is(rows, balanced, share):
    """Summed over one pass through all rows, in batches of one size."""
    x, y = rows
    augmenter = ECRTAugmenter(n_synthetic=3, balanced=balanced, augmentation=Parametric(weight=share)).fit(x, y)
    mass, synthetic = torch.zeros(5), torch.zeros(5)
    for batch in torch.randperm(len(y), generator=torch.Generator().manual_seed(1)).split(16):
        _, labels, weights = augmenter(x[batch], y[batch])
        mass.index_add_(0, labels // 10, weights)
        synthetic.index_add_(0, labels[16:] // 10, weights[16:])
    wanted = torch.full((5,), 0.2) if balanced else torch.tensor(COUNTS) / sum(COUNTS)
    torch.testing.assert_close(mass / 10, wanted, rtol=1e-5, atol=1e-6)
    rare = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])
    torch.testing.assert_close(synthetic / 10, share * rare * wanted, rtol=1e-5, atol=1e-6)


def test_evaluation_passes_features_through(rows):
    x, y = rows
    augmenter = ECRTAugmenter().eval()  # not even a fit is needed
    same, labels, weights = augmenter(x, y)
    assert same is x
    assert labels is y
    assert weights.sum() == pytest.approx(1.0)


def test_weights_of_features_in_half_precision_are_not_rounded_away(rows):
    x, y = rows
    augmenter = ECRTAugmenter(random_state=0).fit(x, y)
    for found in (augmenter(x.half(), y), augmenter.eval()(x.half().repeat(1000, 1), y.repeat(1000))):
        assert (found[0].dtype, found[2].dtype) == (torch.float16, torch.float32)
        assert float(found[2].sum()) == pytest.approx(1, abs=1e-4)


def test_gradients_reach_the_batch_and_nothing_else(rows):
    x, y = rows
    encoder = nn.Linear(3, 2)
    augmenter = ECRTAugmenter().fit(encoder(x), y)
    assert list(augmenter.parameters()) == []
    assert augmenter.state_dict() == {}
    features = encoder(x[:8])
    more, _, weights = augmenter(features, y[:8])
    (weights * more.square().sum(1)).sum().backward()
    expected = torch.autograd.grad((weights[:8] * encoder(x[:8]).square().sum(1)).sum(), encoder.weight)[0]
    torch.testing.assert_close(encoder.weight.grad, expected)


def test_the_same_seed_gives_the_same_rows_and_leaves_torch_alone(rows):
    x, y = rows
    torch.manual_seed(5)
    before = torch.get_rng_state()
    options = {"demixing": Flow(n_restarts=1, hidden=(16,), epochs=2)}
    first, again, other = (ECRTAugmenter(random_state=seed, **options).fit(x, y)(x[:4], y[:4])[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_follow_their_class_and_a_new_fit(rows):
    x, y = rows
    augmenter = ECRTAugmenter(n_synthetic=200).fit(x, y)
    more, labels, _ = augmenter(x[:4], y[:4])
    for label in (30, 40):
        found, own = more[4:][labels[4:] == label], x[y == label]
        assert (found.mean(0) - own.mean(0)).abs().max() < 0.5
    moved = augmenter.fit(torch.cat([x, x[:, :1]], dim=1) + 100, y)(x.new_zeros(1, 4), y[:1])[0]
    assert moved.shape[1] == 4
    assert moved[1:].mean() > 90


def test_it_can_be_copied_and_stored(rows):
    x, y = rows
    augmenter = ECRTAugmenter().fit(x, y)
    stored = io.BytesIO()
    torch.save(augmenter, stored)
    stored.seek(0)
    drawn = [one(x[:4], y[:4])[0] for one in (copy.deepcopy(augmenter), torch.load(stored, weights_only=False))]
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0], augmenter(x[:4], y[:4])[0])


def test_synthetic_rows_of_a_class_with_copies_are_no_copies(rows):
    x, y = rows
    often = torch.where(y == 40, 10, 1)
    augmenter = ECRTAugmenter(augmentation="pairs", n_synthetic=100, minority=[40])
    drawn, _, _ = augmenter.fit(x.repeat_interleave(often, 0), y.repeat_interleave(often))(x[:0], y[:0])
    assert len(np.unique(drawn.numpy().round(4), axis=0)) > 90
    assert (torch.cdist(drawn, x[y == 40]).amin(1) > 1e-3).float().mean() > 0.9


def test_a_class_without_synthetic_rows_is_named(rows):
    x, y = rows
    augmenter = ECRTAugmenter(augmentation=lambda sources, n, rng: np.full((n, 3), 1e4)).fit(x, y)
    with pytest.warns(ECRTWarning, match="Class 30 gets no synthetic rows"):
        more, _, weights = augmenter(x, y)
    assert len(more) == len(x)
    assert weights.sum() == pytest.approx(1)


def test_mistakes_are_said(rows):
    x, y = rows
    augmenter = ECRTAugmenter()
    with pytest.raises(InputError, match="call fit"):
        augmenter(x, y)
    with pytest.raises(InputError, match="NaN"):
        augmenter.fit(torch.where(x > 9, torch.nan, x), y)
    with pytest.raises(InputError, match=r"a value beyond 1e\+100"):
        augmenter.fit(x.double() * 1e200, y)
    with pytest.raises(InputError, match=r"\(160, 3\) and \(3,\)"):
        augmenter.fit(x, y[:3])
    with pytest.raises(InputError, match="whole numbers"):
        augmenter.fit(x, y.float())
    with pytest.raises(InputError, match=r"floating-point numbers, not torch\.int32"):
        augmenter.fit(x.int(), y)
    with pytest.raises(InputError, match="features must be a torch tensor, not ndarray"):
        augmenter.fit(x.numpy(), y)
    with pytest.raises(InputError, match="labels must be a torch tensor, not list"):
        augmenter.fit(x, y.tolist())
    augmenter.fit(x, y)
    with pytest.raises(InputError, match="2 columns; those of fit had 3"):
        augmenter(x[:, :2], y)
    with pytest.raises(InputError, match=r"\[7\] were not"):
        augmenter(x[:1], torch.tensor([7]))
    for options, message in (
        ({"n_synthetic": 0}, "n_synthetic"),
        ({"augmentation": "none"}, "part that draws"),
        ({"augmentation": Parametric(n_synthetic=3)}, "n_synthetic"),
        ({"demixing": "magic"}, "demixing='magic'"),
    ):
        with pytest.raises(InputError, match=message):
            ECRTAugmenter(**options)
    assert np.isfinite(augmenter(x, y)[0].numpy()).all()
