"""Heads that are the mean of several networks: each learns by itself, and together they are one MLP."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import ecrt
from ecrt import ECRTClassifier, InputError, MLPHead
from ecrt.losses import loss_rule
from ecrt.nn import MLP, SideBySide
from ecrt.stages.heads import each_network

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")


def several(dropout=0.0):
    torch.manual_seed(0)
    return SideBySide(4, 13, 3, networks=3, dropout=dropout).double()  # a unit is left over


def alone(networks, place):
    """One of the networks, as an MLP."""
    each, first = networks.weight_ghm.shape[1], networks.body[0]
    one = MLP(4, (each,), 3).double()
    mine = slice(place * each, (place + 1) * each)
    values = first.weight[mine], first.bias[mine], networks.weight_ghm[place].T, networks.bias_g1m[place, 0]
    with torch.no_grad():
        for parameter, value in zip(one.parameters(), values, strict=True):
            parameter.copy_(value)
    return one


def test_each_network_gives_what_it_gives_alone_and_the_joined_one_their_mean():
    networks, s = several(), torch.randn(7, 4, dtype=torch.float64)
    apart = torch.stack([alone(networks, place)(s) for place in range(3)])
    torch.testing.assert_close(networks(s), apart)
    whole = networks.joined()
    torch.testing.assert_close(whole(s), apart.mean(0))
    assert [type(layer) for layer in whole] == [nn.Linear, nn.ReLU, nn.Linear]
    with torch.no_grad():
        networks.weight_ghm.mul_(2)
    assert networks.joined(whole) is whole  # other numbers, the same module
    torch.testing.assert_close(whole(s), networks(s).mean(0))


def test_dropout_is_that_of_the_joined_network_and_nothing_is_drawn_to_join():
    networks = several(dropout=0.25)
    before = torch.get_rng_state()
    whole = networks.joined()
    assert torch.equal(torch.get_rng_state(), before)
    assert [layer.p for layer in whole if isinstance(layer, nn.Dropout)] == [0.25]


def test_each_network_learns_from_its_own_errors():
    networks, s, y = several(), torch.randn(9, 4, dtype=torch.float64), torch.arange(9) % 3
    loss = loss_rule("logit-adjusted", None).bind(torch.tensor([5.0, 3.0, 1.0], dtype=torch.float64))
    each_network(loss)(networks(s), y, 1.0).mean().backward()
    for place in range(3):
        one = alone(networks, place)
        loss(one(s), y, 1.0).mean().backward()
        torch.testing.assert_close(3 * networks.weight_ghm.grad[place].T, one[-1].weight.grad)


@pytest.mark.parametrize("options", [{}, {"mixup": 0.4}, {"loss": "focal"}, {"dropout": 0.2}])
@pytest.mark.parametrize("labels", [False, True])
def test_heads_of_several_networks_fit_save_and_load(options, labels, tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 40, 12])
    X = rng.normal(size=(len(y), 3)) + 2 * np.eye(3)[y]
    if labels:
        if "mixup" in options:
            pytest.skip("mixup is for rows with one class")
        y = np.eye(3, dtype=int)[y] | (X > 2)
    head = MLPHead(networks=4, hidden=(16,), epochs=40, learning_rate=0.05, **options)
    clf = ECRTClassifier(demixing="none", augmentation="none", head=head, random_state=0).fit(X, y)
    again = ECRTClassifier(demixing="none", augmentation="none", head=head, random_state=0).fit(X, y)
    assert clf.predict_proba(X).tobytes() == again.predict_proba(X).tobytes()
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    assert loaded.predict_proba(X).tobytes() == clf.predict_proba(X).tobytes()
    assert loaded.members_[0].head.networks == 4
    if not labels:
        assert np.mean(clf.predict(X) == y) > 0.6


def test_hidden_units_that_cannot_be_divided_are_refused():
    for hidden in ((8, 8), (3,)):
        with pytest.raises(InputError, match=r"networks=4 divides the units of one hidden layer"):
            ECRTClassifier(head=MLPHead(networks=4, hidden=hidden)).fit(np.eye(6), np.arange(6) % 2)


def test_the_mean_of_networks_is_better_than_one_as_wide():
    """On a bent border with label noise; the mean over draws of the loss of new rows."""
    saved = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2300, 6))
        y = ((X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.7 * rng.normal(size=2300)) > 0.8).astype(int)
        losses = []
        for networks in (1, 4):
            head = MLPHead(dropout=0.0, networks=networks, hidden=(64,))
            clf = ECRTClassifier(demixing="none", augmentation="none", head=head, random_state=seed)
            log_proba = clf.fit(X[:300], y[:300]).predict_log_proba(X[300:])
            losses.append(-np.mean([log_proba[y[300:] == label, label].mean() for label in (0, 1)]))
        saved.append(losses[0] - losses[1])
    assert np.mean(saved) > 0
