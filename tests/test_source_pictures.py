"""Sources and samples to look at: pictures of them, and samples back in the space of the input."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from ecrt import ECRTClassifier, ECRTRegressor, Encoder, InputError
from ecrt.diagnostics import map_sources
from ecrt.nn import AutoEncoder


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), [70, 60, 50, 50, 9])
    return rng.normal(size=(len(y), 4)) + 4 * rng.normal(size=(5, 4))[y], y


@pytest.fixture(scope="module")
def fitted(table):
    return ECRTClassifier(demixing="linear", head="gaussian", random_state=0).fit(*table)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_picture_has_rows_and_synthetic_samples(fitted, method):
    axes = fitted.plot_sources(method)
    real, synthetic = (points.get_offsets() for points in axes.collections)
    assert (len(real), len(synthetic)) == (239, 30)
    assert {text.get_text() for text in axes.texts} == {"0", "1", "2", "3", "4"}
    mine = Figure().subplots()
    assert fitted.plot_sources("pca", axes=mine) is mine
    with pytest.raises(InputError, match="use 'tsne' or 'pca'"):
        fitted.plot_sources("umap")


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_map_keeps_groups_apart_and_is_the_same_again(method):
    rng = np.random.default_rng(0)
    far = 20 * np.eye(5)[np.repeat([0, 1], 30)]
    real = rng.normal(size=(60, 5)) + far
    first, drawn, _ = map_sources(real, real[:6] + 0.1, method, 0)
    again, _, _ = map_sources(real, real[:6] + 0.1, method, 0)
    np.testing.assert_array_equal(first, again)
    one, other = first[:30].mean(axis=0), first[30:].mean(axis=0)
    assert np.linalg.norm(drawn - one, axis=1).max() < np.linalg.norm(drawn - other, axis=1).min()


def test_one_and_two_sources_are_shown_as_they_are():
    real = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(map_sources(real, real[:1], "tsne", 0)[0], real)
    shown, drawn, names = map_sources(real[:, :1], real[:1, :1], "pca", 0)
    np.testing.assert_array_equal(shown[:, 0], real[:, 0])
    assert drawn.shape == (1, 2)
    assert "no meaning" in names[1]


def test_of_one_row_the_first_two_sources_are_shown():
    shown, drawn, names = map_sources(np.ones((1, 5)), np.empty((0, 5)), "pca", 0)
    assert shown.shape == (1, 2)
    assert drawn.shape == (0, 2)
    assert names == ("source 1", "source 2")


def test_an_auto_encoder_decodes_to_the_units_of_its_input():
    torch.manual_seed(0)
    X = 50 + 10 * np.random.default_rng(0).normal(size=(400, 3))
    encoder = AutoEncoder(3, (), 3)
    encoder.learn_columns(X)
    encoder.train()
    for _ in range(300):
        encoder.normalise(encoder.columns(torch.from_numpy(X)).float())
    with torch.no_grad():  # linear layers that undo each other
        for layer in (encoder.encoder[0], encoder.decoder[0]):
            layer.weight.copy_(torch.eye(3))
            layer.bias.zero_()
        encoder.eval()
        np.testing.assert_allclose(encoder.decode(encoder(torch.from_numpy(X))), X, atol=1e-3)


class Doubling(nn.Module):
    """An encoder of the user's own that can be undone."""

    def forward(self, x):
        return 2 * x

    def decode(self, z):
        return z / 2


def test_samples_in_the_space_of_the_input(table):
    X, y = table
    options = {"demixing": "linear", "head": "gaussian", "random_state": 0}
    plain = ECRTClassifier(**options).fit(X, y)
    features, labels = plain.sample(300, space="feature", random_state=0)
    np.testing.assert_array_equal(plain.sample(300, space="input", random_state=0)[0], features)
    own = ECRTClassifier(encoder=Encoder(Doubling()), **options).fit(X, y)
    drawn, _ = own.sample(300, space="input", random_state=0)
    for k in range(4):
        np.testing.assert_allclose(drawn[labels == k].mean(axis=0), X[y == k].mean(axis=0), atol=0.3)
    without = ECRTClassifier(encoder=Encoder("mlp", epochs=1, n_features=3), **options).fit(X, y)
    with pytest.raises(InputError, match="space='input' needs an encoder that can be undone"):
        without.sample(2, space="input")
    with pytest.raises(InputError, match="use 'source', 'feature' or 'input'"):
        plain.sample(2, space="pixels")


def test_numbers_have_samples_in_the_space_of_the_input():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(X, np.exp(X[:, 0]))
    drawn, _ = reg.sample(20, y=[2.0], space="input", random_state=0)
    assert drawn.shape == (20, 3)
