"""Mixup, virtual adversarial training, ISDA and the GAN's losses, against loops and closed forms."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from torch import nn

from ecrt.losses import cross_entropy, make_class_loss, mix, mixed_loss
from ecrt.rivals import VAT, BaselineClassifier, FlowAugmentation, synthetic_rows
from ecrt.rivals.heads import (
    bernoulli_divergence,
    isda_shift,
    kl_divergence,
    remix_label_share,
)
from ecrt.rivals.synthetic_rows import GAN, discriminator_loss, generator_loss
from ecrt.stages import Linear

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
B, M, D = 5, 3, 4
Y = torch.tensor([0, 2, 1, 1, 0])


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tolerance(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 1e-11


def softmax(row: list[float]) -> list[float]:
    total = 0.0
    for value in row:
        total += math.exp(value)
    return [math.exp(value) / total for value in row]


@both_dtypes
def test_mixup_is_its_loop(dtype):
    x, partner = random(B, D, dtype=dtype), random(B, D, dtype=dtype, seed=1)
    share = torch.linspace(0, 1, B, dtype=dtype)
    found = mix(x, partner, share)
    assert found.dtype == dtype
    for i in range(B):
        for d in range(D):
            expected = share[i].item() * x[i, d].item() + (1 - share[i].item()) * partner[i, d].item()
            assert found[i, d].item() == pytest.approx(expected, rel=tolerance(dtype), abs=1e-6)
    images = mix(torch.ones(B, 1, 2, 2), torch.zeros(B, 1, 2, 2), share)
    assert images[:, 0, 1, 1].tolist() == pytest.approx(share.tolist())


@both_dtypes
def test_mixed_loss_shares_both_labels(dtype):
    logits, partner = random(B, M, dtype=dtype), Y.flip(0)
    share = torch.linspace(0, 1, B, dtype=dtype)
    loss = make_class_loss("focal", torch.tensor([5, 3, 1]))
    first, second = mixed_loss(loss, logits, Y, partner, share)
    for i in range(B):
        row = logits[i].tolist()
        p, q = softmax(row)[Y[i]], softmax(row)[partner[i]]
        lam = share[i].item()
        assert first[i].item() == pytest.approx(lam * (1 - p) ** 2 * -math.log(p), rel=tolerance(dtype), abs=1e-9)
        expected = (1 - lam) * (1 - q) ** 2 * -math.log(q)
        assert second[i].item() == pytest.approx(expected, rel=tolerance(dtype), abs=1e-9)


def test_remix_gives_the_rare_label_its_way():
    share = torch.tensor([0.4, 0.6, 0.4, 0.6, 0.4])
    count = torch.tensor([300, 300, 10, 10, 100])
    partner = torch.tensor([10, 10, 300, 300, 90])
    found = remix_label_share(share, count, partner, kappa=3.0, tau=0.5)
    assert found.tolist() == pytest.approx([0.0, 0.6, 0.4, 1.0, 0.4])


@both_dtypes
def test_isda_is_its_loop(dtype):
    weight, features = random(M, D, dtype=dtype), random(B, D, dtype=dtype, seed=1)
    root = random(M, D, D, dtype=dtype, seed=2)
    covariance = root @ root.transpose(1, 2)
    logits = features @ weight.T
    found = cross_entropy(logits + 0.35 * isda_shift(weight, covariance)[Y], Y)
    w, sigma = weight.tolist(), covariance.tolist()
    for i, y in enumerate(Y.tolist()):
        total = 0.0
        for m in range(M):
            square = 0.0
            for a in range(D):
                for b in range(D):
                    square += (w[m][a] - w[y][a]) * sigma[y][a][b] * (w[m][b] - w[y][b])
            total += math.exp(logits[i, m].item() - logits[i, y].item() + 0.35 * square)
        assert found[i].item() == pytest.approx(math.log(total), rel=1e-4 if dtype == torch.float32 else 1e-10)


def test_isda_with_variances_is_isda_with_diagonal_covariances():
    weight, variance = random(M, D, dtype=torch.float64), random(M, D, dtype=torch.float64, seed=1) ** 2
    torch.testing.assert_close(isda_shift(weight, variance), isda_shift(weight, torch.diag_embed(variance)))


def test_isda_bounds_the_loss_of_features_drawn_with_that_covariance():
    weight, z = random(M, D, dtype=torch.float64), random(1, D, dtype=torch.float64, seed=1)
    root = 0.5 * random(M, D, D, dtype=torch.float64, seed=2)
    shift = isda_shift(weight, root @ root.transpose(1, 2))
    bound = cross_entropy(z @ weight.T + 0.5 * shift[1], torch.tensor([1]))
    noise = random(20_000, D, dtype=torch.float64, seed=3) @ root[1].T
    drawn = make_class_loss("cross-entropy", torch.ones(M))((z + noise) @ weight.T, torch.ones(20_000).long()).mean()
    plain = make_class_loss("cross-entropy", torch.ones(M))(z @ weight.T, torch.tensor([1]))
    assert plain.item() < drawn.item() < bound.item()


@both_dtypes
def test_divergence_is_its_loop(dtype):
    p_logits, q_logits = random(B, M, dtype=dtype), random(B, M, dtype=dtype, seed=1)
    found = kl_divergence(p_logits, q_logits)
    for i in range(B):
        p, q = softmax(p_logits[i].tolist()), softmax(q_logits[i].tolist())
        expected = sum(p[m] * math.log(p[m] / q[m]) for m in range(M))
        assert found[i].item() == pytest.approx(expected, rel=1e-4 if dtype == torch.float32 else 1e-10)


def test_the_divergence_of_labels_is_that_of_two_classes_each():
    reference, logits = torch.randn(2, 5, M, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    each = [
        kl_divergence(
            *(torch.stack([column, torch.zeros_like(column)], 1) for column in (reference[:, m], logits[:, m]))
        )
        for m in range(M)
    ]
    torch.testing.assert_close(bernoulli_divergence(reference, logits), torch.stack(each).sum(0))


def test_the_adversarial_direction_is_the_top_eigenvector_of_the_divergence():
    """For a linear network the Hessian is W' (diag p - p p') W; many power iterations find its first eigenvector."""
    weight, x = random(M, D, dtype=torch.float64), random(B, D, dtype=torch.float64, seed=1)
    start = random(B, D, dtype=torch.float64, seed=2)
    vat = VAT(epsilon=0.3 / D**0.5, xi=1e-4, power_iterations=60)
    found = vat.direction(lambda v: v @ weight.T, x, start, kl_divergence)
    for i in range(B):
        p = torch.softmax(weight @ x[i], 0)
        hessian = weight.T @ (torch.diag(p) - torch.outer(p, p)) @ weight
        top = torch.linalg.eigh(hessian).eigenvectors[:, -1]
        assert abs(top @ found[i]).item() == pytest.approx(1, abs=1e-3)
    loss = vat.roughness(lambda v: v @ weight.T, x, start, kl_divergence)
    random_step = 0.3 * torch.nn.functional.normalize(start, dim=1)
    assert (loss > kl_divergence(x @ weight.T, (x + random_step) @ weight.T)).all()


def test_the_adversarial_loss_holds_the_clean_prediction_fixed_and_survives_a_flat_network():
    weight = random(M, D, dtype=torch.float64).requires_grad_()
    x, start = random(B, D, dtype=torch.float64, seed=1), random(B, D, dtype=torch.float64, seed=2)
    vat = VAT(epsilon=0.3 / D**0.5)
    loss = vat.roughness(lambda v: v @ weight.T, x, start, kl_divergence).sum()
    (slope,) = torch.autograd.grad(loss, weight)
    direction = vat.direction(lambda v: v @ weight.T, x, start, kl_divergence)
    fixed = kl_divergence((x @ weight.T).detach(), (x + 0.3 * direction) @ weight.T).sum()
    torch.testing.assert_close(slope, torch.autograd.grad(fixed, weight)[0])
    flat = vat.roughness(lambda v: 0 * v[:, :M], x, start, kl_divergence)
    assert flat.tolist() == pytest.approx([0.0] * B, abs=1e-12)


@both_dtypes
def test_gan_losses_are_their_loops(dtype):
    real, fake = random(B, dtype=dtype), random(B, dtype=dtype, seed=1)

    def logistic(v: float) -> float:
        return 1 / (1 + math.exp(-v))

    expected = [
        -math.log(logistic(r)) - math.log(1 - logistic(f)) for r, f in zip(real.tolist(), fake.tolist(), strict=True)
    ]
    assert discriminator_loss(real, fake).tolist() == pytest.approx(expected, rel=tolerance(dtype))
    assert generator_loss(fake).tolist() == pytest.approx(
        [-math.log(logistic(f)) for f in fake.tolist()], rel=tolerance(dtype)
    )


def test_the_gan_of_the_paper_has_leaky_units_and_a_discriminator_with_dropout():
    gan = GAN(D, M, 2, 8, slope=0.01, dropout=0.1)
    for network, n_dropped in ((gan.generator, 0), (gan.discriminator, 2)):
        units = [layer for layer in network if not isinstance(layer, nn.Linear)]
        assert [layer.negative_slope for layer in units if isinstance(layer, nn.LeakyReLU)] == [0.01, 0.01]
        assert len(units) == 2 + n_dropped
    assert not any(isinstance(layer, nn.LeakyReLU) for layer in GAN(D, M, 2, 8).modules())


@pytest.mark.parametrize(("learn_from", "expected"), [("auto", 5), ("all", 5), ("majority", 4)])
def test_augmentation_through_the_flow_may_learn_from_the_classes_that_ecrt_learns_from(
    learn_from, expected, monkeypatch
):
    seen = []
    demix = synthetic_rows.demix
    monkeypatch.setattr(
        synthetic_rows, "demix", lambda *args, **options: seen.append(options["demixed_on"]) or demix(*args, **options)
    )
    X, y = make_classification(
        400, 6, n_informative=5, n_redundant=0, n_classes=5, n_clusters_per_class=1,
        weights=[0.24, 0.24, 0.24, 0.24, 0.04], random_state=0,
    )  # fmt: skip
    method = FlowAugmentation(demixing=Linear(learn_from=learn_from))
    BaselineClassifier(method=method, minority=[4], random_state=0, device="cpu").fit(X, y)
    assert [int(np.sum(one)) for one in seen] == [expected]
