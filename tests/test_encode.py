"""Stage 1: what an encoder is trained with, what of it changes on the way, and the head that it leaves."""

from __future__ import annotations

import copy
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from ecrt.data import Images, assign_roles
from ecrt.estimators.inputs import read_dataset
from ecrt.losses import LossName, effective_prior
from ecrt.nn import AutoEncoder
from ecrt.randomness import seeded
from ecrt.stages import Encoder, encode, head_outputs
from ecrt.stages.encoding import Batch, EncoderTraining, Epochs, gpu_layout

COUNTS = np.array([60, 60, 60, 12])
CPU = torch.device("cpu")


def rows_of_classes(seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Four classes that a straight line tells apart well."""
    y = np.repeat(np.arange(4), COUNTS)
    X = np.random.default_rng(seed).normal(size=(len(y), 6)) + 3 * np.eye(6)[y]
    return torch.from_numpy(X).float(), y


class Lazy(Dataset):
    """The same items, one by one."""

    def __init__(self, X: torch.Tensor, y: np.ndarray) -> None:
        self.X, self.y = X, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.X[index], int(self.y[index])


def encoded(*, items=None, encode_on="all", epochs=15, encoder=None, optimizer="adamw", rate=0.02, batch=32, **options):
    X, y = rows_of_classes()
    items = items or TensorDataset(X, torch.from_numpy(y))
    roles = assign_roles(COUNTS, np.arange(4), minority=[3], encode_on=encode_on)
    with seeded(0):
        config = Encoder(
            encoder or nn.Linear(6, 5), epochs=epochs, batch_size=batch, learning_rate=rate, optimizer=optimizer,
            weight_decay=0.0, **{"holdout": 0.0} | options,
        )  # fmt: skip
        return encode(items, y, roles, config, rng=np.random.default_rng(0), device=CPU)


@pytest.mark.parametrize("loss", get_args(LossName))
def test_encoder_and_head_predict_under_every_loss(loss):
    result = encoded(loss=loss)
    X, y = rows_of_classes(seed=1)
    with torch.no_grad():
        logits = head_outputs(result.head, result.encoder(X).double().numpy())
    assert result.head_classes.tolist() == [0, 1, 2, 3]
    assert len(result.unseen) == 0
    accuracy = [(logits.argmax(1) == y)[y == label].mean() for label in range(4)]
    assert np.mean(accuracy) > 0.9
    # balanced: what was learned under this prior, less its logarithm
    prior = torch.log(effective_prior(loss, torch.from_numpy(COUNTS)))
    torch.testing.assert_close(result.head.log_mass_m, prior.float(), atol=1e-5, rtol=0)


def test_importance_weights_leave_balanced_logits():
    head = encoded(loss="weighted").head
    torch.testing.assert_close(head.log_mass_m, torch.full((4,), -np.log(4), dtype=torch.float32))


def test_the_head_of_a_majority_encoder_knows_those_classes_alone():
    result = encoded(encode_on="majority", holdout=0.25)
    assert result.head_classes.tolist() == [0, 1, 2]
    assert result.head(torch.zeros(2, 5)).shape == (2, 3)
    assert len(result.unseen) == 45 + 12
    assert result.history.held_out_loss


def test_without_held_out_rows_all_epochs_are_run():
    result = encoded(epochs=4)
    assert len(result.history.train_loss) == 4
    assert result.history.held_out_loss == []


def test_a_frozen_encoder_and_an_autoencoder_leave_no_head():
    assert encoded(train=False).head is None
    assert encoded(encoder=AutoEncoder(6, (8,), 3), epochs=2).head is None


def test_rows_in_memory_and_items_one_by_one_are_learned_alike():
    X, y = rows_of_classes()
    in_memory, one_by_one = encoded(), encoded(items=Lazy(X, y))
    for result in (in_memory, one_by_one):
        assert result.history.train_loss[-1] < 0.25 * result.history.train_loss[0]


def test_sgd_learns_too():
    result = encoded(optimizer="sgd", rate=0.1)
    assert result.history.train_loss[-1] < 0.3 * result.history.train_loss[0]


def test_bfloat16_is_near_float32():
    exact, coarse = (encoded(precision=precision, epochs=3).history.train_loss for precision in ("float32", "bfloat16"))
    assert exact != coarse
    assert exact == pytest.approx(coarse, rel=0.05)


# --- what changes in the course of training ---------------------------------------------------------


def course(**options) -> list[list[Batch]]:
    config = Encoder(epochs=8, **options)
    batches = Epochs(
        [torch.tensor([0, 1]), torch.tensor([2, 3])],
        config,
        np.random.default_rng(0),
        CPU,
        changes=config.class_loss.changes,
    )
    assert len(batches) == 2
    return [list(batches) for _ in range(8)]


def test_mixup_is_switched_off_for_the_last_epochs():
    mixed = [[batch.share is not None for batch in epoch] for epoch in course(mixup=1.0, mixup_off=0.25)]
    assert mixed == [[True, True]] * 6 + [[False, False]] * 2
    shares = [float(batch.share) for epoch in course(mixup=1.0) for batch in epoch]
    assert len(set(shares)) == 16
    assert all(0 <= share <= 1 for share in shares)
    assert all(batch.share is None for epoch in course() for batch in epoch)


def test_losses_that_change_hear_how_much_is_done_and_the_others_need_not():
    assert [epoch[0].done for epoch in course(loss="ldam-drw")] == [epoch / 8 for epoch in range(8)]
    assert {batch.done for epoch in course(loss="focal") for batch in epoch} == {1.0}


def training_of(encoder: nn.Module, X: torch.Tensor, y: np.ndarray, **options) -> EncoderTraining:
    config = Encoder(encoder, holdout=0.0, **options)
    items = TensorDataset(X, torch.from_numpy(y))
    with seeded(0):
        return EncoderTraining(encoder, items, y, np.arange(len(y)), config, rng=np.random.default_rng(0), device=CPU)


@pytest.mark.parametrize(
    ("loss", "log_prior", "weight"),
    [
        ("logit-adjusted", np.log(COUNTS / COUNTS.sum()), np.ones(4)),
        ("weighted", np.zeros(4), COUNTS.sum() / (4 * COUNTS)),
    ],
)
def test_mixed_losses_are_those_of_mixed_samples_under_either_label(loss, log_prior, weight):
    X, y = rows_of_classes()
    training = training_of(nn.Linear(6, 5), X, y, loss=loss)
    rows = torch.tensor([0, 70, 130, 185])
    found = training.losses(Batch(rows, torch.tensor(0.3), 1.0))
    for place in range(4):
        one, other = int(rows[place]), int(rows[place - 1])
        logits = training.head(training.encoder(0.3 * X[one] + 0.7 * X[other])) + torch.from_numpy(log_prior).float()
        log_proba = torch.log_softmax(logits, 0)
        expected = -0.3 * weight[y[one]] * log_proba[y[one]] - 0.7 * weight[y[other]] * log_proba[y[other]]
        torch.testing.assert_close(found[place], expected.float())


def test_views_are_drawn_in_training_alone():
    X = torch.randint(1, 255, (40, 3, 8, 8), dtype=torch.uint8)
    y = np.repeat([0, 1], 20)
    training = training_of(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), X, y, crop_padding=2, flip=True)
    batch = Batch(torch.arange(6), None, 1.0)
    training.encoder.train()
    assert not torch.equal(training.losses(batch), training.losses(batch))
    training.encoder.eval()
    whole = nn.functional.cross_entropy(
        training.head(training.encoder(X[:6].float())), torch.from_numpy(y[:6]), reduction="none"
    )
    torch.testing.assert_close(training.losses(batch), whole)


def test_the_cosine_head_has_the_scale_that_the_margins_are_for():
    X, y = rows_of_classes()
    options = {"loss": "ldam", "head": "cosine", "loss_options": {"scale": 16.0}}
    training = training_of(nn.Linear(6, 5), X, y, **options)
    assert training.head(100 * torch.randn(50, 5)).abs().max() <= 16.001
    assert encoded(**options).head_classes.tolist() == [0, 1, 2, 3]


def test_weights_are_channels_last_for_the_gpu_and_given_back_as_they_came():
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    before = copy.deepcopy(encoder.state_dict())
    with gpu_layout(encoder, enabled=True):
        assert encoder[0].weight.is_contiguous(memory_format=torch.channels_last)
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark
    for name, value in encoder.state_dict().items():
        assert value.is_contiguous()
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("kind", ["bytes", "numbers", "folder"])
def test_datasets_that_lie_in_memory_are_read_as_a_whole(kind):
    values = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), dtype=np.uint8)
    labels = np.array([3, 3, 7, 7, 9, 9])
    if kind == "folder":
        dataset = Images(values, np.array(list("aabbcc")))
    else:
        x = torch.from_numpy(values)
        dataset = TensorDataset(x if kind == "bytes" else x.double(), torch.from_numpy(labels))
    items, _, y = read_dataset(dataset)
    assert isinstance(items, TensorDataset)
    assert y.tolist() == [0, 0, 1, 1, 2, 2]
    for index in range(6):
        assert torch.equal(items[index][0], torch.as_tensor(dataset[index][0]).to(items[index][0]))
        assert items[index][1] == y[index]
        assert items[index][0].is_floating_point()
