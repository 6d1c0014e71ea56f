"""Encoders and heads: shapes, sizes, and errors that name the shape that came in."""

import pytest
import torch
from torch import nn

from ecrt.errors import InputError
from ecrt.flows import gaussian_log_density
from ecrt.nn import MLP, AutoEncoder, ClassGaussians, ResNet18, make_encoder, make_head


def test_identity_gives_its_input_back():
    x = torch.randn(4, 7)
    assert make_encoder("identity", (7,))(x) is x


@pytest.mark.parametrize("name", ["mlp", "autoencoder"])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_row_encoders(name, hidden):
    encoder = make_encoder(name, (7,), n_features=3, hidden=hidden)
    assert encoder(torch.randn(4, 7)).shape == (4, 3)


@pytest.mark.parametrize(("n_features", "expected"), [(None, 512), (32, 32)])
def test_resnet_features(n_features, expected):
    with torch.no_grad():
        z = ResNet18(n_features=n_features).eval()(torch.randn(2, 3, 32, 32))
    assert z.shape == (2, expected)


@pytest.mark.parametrize(("in_channels", "size"), [(1, 28), (3, 64)])
def test_resnet_takes_any_image(in_channels, size):
    encoder = make_encoder("resnet18", (in_channels, size, size), n_features=5).eval()
    with torch.no_grad():
        assert encoder(torch.randn(1, in_channels, size, size)).shape == (1, 5)


def resnet18_size(in_channels: int, width: int) -> int:
    """Parameters of the body: 3x3 convolutions without bias, two numbers a channel for each batch norm."""

    def convolution(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel**2 + 2 * outputs

    total = convolution(in_channels, width, 3)
    total += 4 * convolution(width, width, 3)
    for outputs in (2 * width, 4 * width, 8 * width):
        total += convolution(outputs // 2, outputs, 3) + 3 * convolution(outputs, outputs, 3)
        total += convolution(outputs // 2, outputs, 1)
    return total


@pytest.mark.parametrize(("in_channels", "width"), [(3, 64), (1, 16)])
def test_resnet_is_the_standard_body(in_channels, width):
    expected = resnet18_size(in_channels, width)
    if (in_channels, width) == (3, 64):
        # The published 11,689,512, less its classifier, with a 3x3 stem in place of the 7x7 one.
        assert expected == 11_689_512 - (512 * 1000 + 1000) - 3 * 64 * (49 - 9)
    assert sum(p.numel() for p in ResNet18(in_channels, width=width).parameters()) == expected


def test_autoencoder_measures_how_well_it_decodes_its_code():
    torch.manual_seed(0)
    model = AutoEncoder(6, (16, 8), 2)
    x = 3 * torch.randn(50, 6) + 7
    model.train()(x)  # the running mean and variance move towards those of x
    model.eval()
    assert model(x).shape == (50, 2)
    assert [layer.out_features for layer in model.decoder if isinstance(layer, nn.Linear)] == [8, 16, 6]
    mean, variance = model.normalise.running_mean, model.normalise.running_var
    for row, error in zip(x, model.reconstruction_errors(x), strict=True):
        target = (row - mean) / torch.sqrt(variance + 1e-5)
        torch.testing.assert_close(error, ((model.decoder(model(row[None]))[0] - target) ** 2).sum() / 6)


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    network = MLP(4, (64,), 2, dropout=0.5)
    x = torch.randn(3, 4)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


@pytest.mark.parametrize(
    ("name", "in_shape"), [("resnet18", (7,)), ("resnet18", (28, 28)), ("mlp", (3, 8, 8)), ("autoencoder", (8, 8))]
)
def test_wrong_shapes_are_refused(name, in_shape):
    with pytest.raises(InputError) as refusal:
        make_encoder(name, in_shape)
    assert name in str(refusal.value)
    assert str(in_shape) in str(refusal.value)


@pytest.mark.parametrize("in_shape", [(7,), (3, 8, 8)])
def test_an_unknown_encoder_is_refused_with_the_choices(in_shape):
    with pytest.raises(InputError, match=r"'identity', 'mlp', 'resnet18', 'autoencoder'"):
        make_encoder("transformer", in_shape)


# --- heads -----------------------------------------------------------------------------------------


def test_linear_head_starts_undecided():
    assert torch.equal(make_head(3, 4)(torch.randn(5, 3)), torch.zeros(5, 4))


def test_hidden_layers_make_the_head_an_mlp():
    assert make_head(3, 4, hidden=(8,))(torch.randn(5, 3)).shape == (5, 4)


def test_gaussian_head_gives_log_densities():
    generator = torch.Generator().manual_seed(0)
    s, mean, variance = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (5, 4, 4))
    variance = variance.square() + 0.1
    logits = ClassGaussians(mean, variance).log_densities(s)
    for m in range(4):
        expected = gaussian_log_density(s, mean[m].expand(5, 3), variance[m].expand(5, 3))
        torch.testing.assert_close(logits[:, m], expected)
