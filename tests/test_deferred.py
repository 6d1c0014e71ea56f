"""Transfer inside training: what a cloud of features costs, who gets one, and branches that share their beginning."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from ecrt.data import assign_roles
from ecrt.data.cifar import ImageSplit
from ecrt.errors import InputError
from ecrt.experiments.cifar_transfer import pseudo_minority
from ecrt.losses.classification import cross_entropy
from ecrt.stages import DeferredTransfer, EncodeConfig, encode, encode_branches, features_of, head_outputs
from ecrt.stages.deferred import FeatureTransfer
from ecrt.training import TrainingConfig, seeded, train

CPU = torch.device("cpu")
KINDS = ("parametric", "borrowed", "closed-form")
COUNTS = np.array([200, 200, 200, 6])
RARE = np.array([False, False, False, True])


def features(seed=0):
    """Three classes that vary alike along two slanted directions, and one of six samples."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), COUNTS)
    slant = np.array([[2.0, 0.0, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    return 4 * rng.normal(size=(4, 3))[y] + rng.normal(size=(len(y), 3)) @ slant.T, y


def transfer(**options):
    z, y = features()
    return FeatureTransfer(DeferredTransfer(**options), z, y, RARE, CPU)


def head_and_batch():
    torch.manual_seed(0)
    return nn.Linear(3, 4), torch.randn(5, 3), torch.tensor([0, 3, 1, 3, 3])


@pytest.mark.parametrize("kind", ["parametric", "borrowed"])
def test_a_rare_class_varies_as_the_others_do(kind):
    """Six samples say little: with many pseudo-samples the cloud has the covariance of the classes that lend."""
    z, y = features()
    lent = np.concatenate([z[y == label] - z[y == label].mean(0) for label in range(3)])
    covariance = np.cov(lent.T)
    part = transfer(kind=kind, pseudo_samples=1e6, n_drawn=40_000, strength=4.0)
    torch.manual_seed(0)
    drawn = part.draw(torch.tensor([3, 0]))
    found = torch.cov(drawn[0].T).numpy() / 4
    np.testing.assert_allclose(found, covariance, atol=0.06 * covariance.max())
    assert not drawn[1].any()  # a class that lends has no cloud


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_a_loop_over_samples(kind):
    part = transfer(kind=kind, weight=0.3, n_drawn=3)
    head, z, y = head_and_batch()
    torch.manual_seed(1)
    found = part.losses(z, y, head, cross_entropy)
    torch.manual_seed(1)
    clouds = part.draw(y) if kind != "closed-form" else None
    sigma = part.mixing_kd.T @ torch.diag(part.variance_mk[3]) @ part.mixing_kd
    for i, label in enumerate(y.tolist()):
        plain = cross_entropy(head(z[i : i + 1]), y[i : i + 1])[0]
        if label != 3:
            expected = plain
        elif clouds is not None:
            drawn = [cross_entropy(head(z[i : i + 1] + step), y[i : i + 1])[0] for step in clouds[i]]
            expected = 0.7 * plain + 0.3 * sum(drawn) / 3
        else:
            gaps = [head.weight[m] - head.weight[3] for m in range(4)]
            raised = head(z[i]) + torch.stack([0.5 * gap @ sigma @ gap for gap in gaps])
            expected = cross_entropy(raised[None], y[i : i + 1])[0]
        torch.testing.assert_close(found[i], expected, rtol=1e-4, atol=1e-5)


def test_the_closed_form_bounds_the_drawn_loss_from_above():
    head, z, y = head_and_batch()
    drawn = transfer(kind="parametric", weight=1.0, n_drawn=4000)
    bound = transfer(kind="closed-form")
    torch.manual_seed(0)
    mean, above = (part.losses(z, y, head, cross_entropy).detach() for part in (drawn, bound))
    assert (above[y == 3] > mean[y == 3]).all()
    torch.testing.assert_close(above[y != 3], mean[y != 3])


@pytest.mark.parametrize("kind", KINDS)
def test_without_strength_nothing_changes_and_with_it_the_encoder_learns(kind):
    head, z, y = head_and_batch()
    plain = cross_entropy(head(z), y)
    torch.testing.assert_close(transfer(kind=kind, strength=0.0).losses(z, y, head, cross_entropy), plain)
    z.requires_grad_()
    slopes = [
        torch.autograd.grad(transfer(kind=kind, strength=s, weight=1.0).losses(z, y, head, cross_entropy).sum(), z)[0]
        for s in (0.0, 4.0)
    ]
    changed = (slopes[0] != slopes[1]).any(dim=1)
    assert changed[y == 3].all()
    assert not changed[y != 3].any()


def test_it_needs_lenders_and_a_linear_head_for_the_closed_form():
    z, y = features()
    with pytest.raises(InputError, match="at least two classes that lend"):
        FeatureTransfer(DeferredTransfer(), z, y, np.array([False, True, True, True]), CPU)
    with pytest.raises(InputError, match="linear head"):
        transfer(kind="closed-form").shift(nn.Sequential(nn.Linear(3, 4)))


def images(n=24):
    z, y = features()
    rows = np.concatenate([np.flatnonzero(y == label)[:n] for label in range(4)])
    return TensorDataset(torch.from_numpy(z[rows]).float(), torch.from_numpy(y[rows])), y[rows]


def config(epochs=8, **options):
    training = TrainingConfig(epochs=epochs, batch_size=16, learning_rate=0.05, optimizer="sgd", weight_decay=1e-3)
    return EncodeConfig(holdout=0.0, loss="logit-adjusted", training=training, **options)


def _squares(module, x):
    return ((module(x[:, None])[:, 0] - 3 * x) ** 2).mean()


def test_a_run_goes_on_from_a_checkpoint_as_if_never_stopped():
    batches = [torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 0.5])]
    ends = []
    for stop in (None, 5):
        with seeded(0):
            module = nn.Linear(1, 1)
        loss = partial(_squares, module)
        settings = config().training
        history = train(module, loss, batches, None, settings, stage="test", stop_after=stop)
        if stop is not None:
            assert history.checkpoint.epoch == stop
            rest = train(module, loss, batches, None, settings, stage="test", start=history.checkpoint)
            assert len(rest.train_loss) == settings.epochs - stop
        else:
            assert history.checkpoint is None
        ends.append(module.weight.item())
    assert ends[0] == ends[1]


def test_branches_share_a_trunk_and_differ_by_their_configuration_alone():
    items, y = images()
    roles = assign_roles(np.bincount(y), np.arange(4), minority=[3], encode_on="all")
    configs = {
        "plain": config(mixup=1.0, mixup_off=0.25),
        "again": config(mixup=1.0, mixup_off=0.25),
        "cloud": config(mixup=1.0, mixup_off=0.25, transfer=DeferredTransfer(strength=4.0)),
    }
    with seeded(0):
        encoder = nn.Linear(3, 3)
        logits = {
            branch.name: head_outputs(branch.head, features_of(branch.encoder, items, device=CPU))
            for branch in encode_branches(
                encoder, items, y, roles, configs, after=6, rng=np.random.default_rng(0), device=CPU
            )
        }
    assert list(logits) == ["trunk", *configs]
    np.testing.assert_array_equal(logits["plain"], logits["again"])
    assert not np.allclose(logits["plain"], logits["cloud"])
    assert not np.allclose(logits["plain"], logits["trunk"])


def test_branches_and_transfer_refuse_what_makes_no_sense():
    items, y = images()
    roles = assign_roles(np.bincount(y), np.arange(4), minority=[3], encode_on="all")
    shared = {"rng": np.random.default_rng(0), "device": CPU}
    held_out = EncodeConfig(holdout=0.2)
    with pytest.raises(InputError, match="holdout=0"):
        next(encode_branches(nn.Linear(3, 3), items, y, roles, {"one": held_out}, after=1, **shared))
    with pytest.raises(InputError, match="shorter than 8"):
        next(encode_branches(nn.Linear(3, 3), items, y, roles, {"one": config()}, after=8, **shared))
    with pytest.raises(InputError, match="Mixup must be over"):
        encode(nn.Linear(3, 3), items, y, roles, config(mixup=1.0, transfer=DeferredTransfer()), **shared)


def test_a_pilot_hides_images_of_frequent_classes_and_knows_no_rare_one():
    y = np.repeat(np.arange(8), [40] * 4 + [5] * 4)
    number = np.arange(len(y), dtype=np.uint8)[:, None, None, None]
    pilot = pseudo_minority(ImageSplit(number, y, number[:0], y[:0]), np.random.default_rng(0))
    assert np.bincount(pilot.y_train).tolist() == [30, 30, 5, 5]
    assert np.bincount(pilot.y_test).tolist() == [10] * 4
    kept, hidden = (part.ravel().astype(int) for part in (pilot.X_train, pilot.X_test))
    assert not set(kept) & set(hidden)
    assert max(y[kept].max(), y[hidden].max()) < 4
    for label in range(4):  # a pseudo-class is one true class
        assert len({*y[kept[pilot.y_train == label]], *y[hidden[pilot.y_test == label]]}) == 1
