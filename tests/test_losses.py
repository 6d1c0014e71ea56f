"""Every loss against a loop over plain Python floats; the rule for class mass as a property."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecrt.flows import gaussian_log_density
from ecrt.losses import (
    class_mass,
    cross_entropy,
    dv_exact,
    fdv_in_batch,
    fdv_own_label,
    flow_nll,
    gcl_exact,
    gcl_in_batch,
    hinge,
    infonce_in_batch,
    logit_adjusted,
    sample_weights,
)

B, M = 6, 4

both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def assert_equal(found: torch.Tensor, expected: list[float], dtype: torch.dtype) -> None:
    """One value for each sample, in the dtype that came in."""
    assert found.dtype == dtype
    assert found.shape == (len(expected),)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert found.tolist() == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def scores_bb(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return 2 * torch.randn(B, B, generator=generator, dtype=dtype)


@pytest.fixture
def scores_bm(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return 2 * torch.randn(B, M, generator=generator, dtype=dtype)


@pytest.fixture
def prior_m(dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=dtype)


Y = torch.tensor([0, 3, 1, 1, 2, 0])


def softplus(x: float) -> float:
    return math.log(1 + math.exp(x))


# --- contrastive losses ----------------------------------------------------------------------------


@both_dtypes
def test_gcl_in_batch_is_its_loop(scores_bm, dtype):
    positive, negative = scores_bm[:, 0], scores_bm[:, 1]
    expected = [softplus(-p) + softplus(n) for p, n in zip(positive.tolist(), negative.tolist(), strict=True)]
    assert_equal(gcl_in_batch(positive, negative), expected, dtype)


@both_dtypes
def test_gcl_exact_is_its_loop(scores_bm, prior_m, dtype):
    g, p = scores_bm.tolist(), prior_m.tolist()
    expected = []
    for i, y in enumerate(Y.tolist()):
        value = softplus(-g[i][y])
        for m in range(M):
            value += p[m] * softplus(g[i][m])
        expected.append(value)
    assert_equal(gcl_exact(scores_bm, Y, prior_m), expected, dtype)


def negative_dv(g: list[list[float]], i: int) -> float:
    """-I_DV of sample i: every other label of the batch is a negative, its own is not."""
    total = 0.0
    for j in range(len(g)):
        if j != i:
            total += math.exp(g[i][j])
    return -(g[i][i] - math.log(total / (len(g) - 1)))


@both_dtypes
def test_fdv_value_is_the_negative_dv_bound(scores_bb, dtype):
    g = scores_bb.tolist()
    assert_equal(fdv_in_batch(scores_bb), [negative_dv(g, i) for i in range(B)], dtype)


@both_dtypes
def test_fdv_gradient_is_that_of_the_log_sum_over_others(scores_bb, dtype):
    g = scores_bb.tolist()
    expected = torch.zeros(B, B, dtype=dtype)
    for i in range(B):
        total = sum(math.exp(g[i][j] - g[i][i]) for j in range(B) if j != i)
        for j in range(B):
            expected[i, j] = -1.0 if j == i else math.exp(g[i][j] - g[i][i]) / total
    scores_bb.requires_grad_()
    fdv_in_batch(scores_bb).sum().backward()
    torch.testing.assert_close(scores_bb.grad, expected)


@both_dtypes
def test_infonce_is_its_loop(scores_bb, dtype):
    g = scores_bb.tolist()
    expected = []
    for i in range(B):
        total = 0.0
        for j in range(B):
            total += math.exp(g[i][j])
        expected.append(-g[i][i] + math.log(total / B))
    assert_equal(infonce_in_batch(scores_bb), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float64])
def test_fdv_and_infonce_pull_differently(scores_bb):
    gradients = []
    for loss in (fdv_in_batch, infonce_in_batch):
        scores = scores_bb.clone().requires_grad_()
        loss(scores).sum().backward()
        gradients.append(scores.grad)
    assert (gradients[0] - gradients[1]).abs().max() > 0.01


def test_fdv_drops_a_batch_of_one():
    assert fdv_in_batch(torch.ones(1, 1)).shape == (0,)


@both_dtypes
def test_fdv_with_the_own_label_taken_exactly_is_its_loop(scores_bb, prior_m, dtype):
    g, p, y = scores_bb.tolist(), prior_m.tolist(), Y.tolist()
    expected = []
    for i in range(B):
        others = [math.exp(g[i][j] - g[i][i]) for j in range(B) if y[j] != y[i]]
        expected.append(math.log(p[y[i]] + (1 - p[y[i]]) * sum(others) / len(others)))
    assert_equal(fdv_own_label(scores_bb, Y, prior_m), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float64])
def test_fdv_with_the_own_label_taken_exactly_is_exact_where_the_batch_holds_every_label_once(scores_bm, dtype):
    labels, uniform = torch.arange(M), torch.full((M,), 1 / M, dtype=dtype)
    torch.testing.assert_close(
        fdv_own_label(scores_bm[:M, labels], labels, uniform), dv_exact(scores_bm[:M], labels, uniform)
    )


@pytest.mark.parametrize("dtype", [torch.float64])
def test_the_own_label_bounds_what_scores_can_gain_by_growing(prior_m, dtype):
    """A critic that tells all labels of the batch apart: in-batch FDV rewards its scale without end."""
    y = torch.arange(M)
    for scale in (10.0, 1000.0):
        scores_bb = scale * torch.eye(M, dtype=dtype)
        assert (fdv_in_batch(scores_bb) <= -scale + 1e-9).all()
        assert (fdv_own_label(scores_bb, y, prior_m) >= torch.log(prior_m)).all()
    assert torch.isfinite(fdv_own_label(torch.zeros(2, 2, dtype=dtype), torch.tensor([1, 1]), prior_m)).all()


@both_dtypes
@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_large_scores_stay_finite(scores_bb, scores_bm, prior_m, dtype, scale):
    losses = {
        "fdv": lambda bb, bm: fdv_in_batch(bb),
        "fdv_own_label": lambda bb, bm: fdv_own_label(bb, Y, prior_m),
        "infonce": lambda bb, bm: infonce_in_batch(bb),
        "gcl": lambda bb, bm: gcl_in_batch(bb.diagonal(), bb[:, 0]),
        "gcl_exact": lambda bb, bm: gcl_exact(bm, Y, prior_m),
        "dv_exact": lambda bb, bm: dv_exact(bm, Y, prior_m),
    }
    for name, loss in losses.items():
        bb, bm = (scale * scores_bb).requires_grad_(), (scale * scores_bm).requires_grad_()
        value = loss(bb, bm)
        value.sum().backward()
        assert torch.isfinite(value).all(), name
        assert all(torch.isfinite(x.grad).all() for x in (bb, bm) if x.grad is not None), name


@both_dtypes
def test_dv_exact_is_its_loop(scores_bm, prior_m, dtype):
    g, p = scores_bm.tolist(), prior_m.tolist()
    expected = []
    for i, y in enumerate(Y.tolist()):
        total = 0.0
        for m in range(M):
            total += p[m] * math.exp(g[i][m])
        expected.append(-g[i][y] + math.log(total))
    assert_equal(dv_exact(scores_bm, Y, prior_m), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float64])
def test_dv_exact_ignores_what_does_not_depend_on_the_label(scores_bm, prior_m, generator):
    shift_b1 = 10 * torch.randn(B, 1, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(dv_exact(scores_bm + shift_b1, Y, prior_m), dv_exact(scores_bm, Y, prior_m))


@pytest.mark.parametrize("dtype", [torch.float64])
def test_exact_losses_are_in_batch_ones_averaged_over_the_labels_of_the_batch(scores_bm):
    """With the label frequencies of the batch as marginal the two agree without any sampling error."""
    frequency_m = torch.bincount(Y, minlength=M).double() / B
    scores_bb = scores_bm[:, Y]
    torch.testing.assert_close(infonce_in_batch(scores_bb), dv_exact(scores_bm, Y, frequency_m))

    positive = scores_bb.diagonal()
    over_negatives = torch.stack([gcl_in_batch(positive, scores_bb[:, j]) for j in range(B)]).mean(0)
    torch.testing.assert_close(over_negatives, gcl_exact(scores_bm, Y, frequency_m))


@pytest.mark.parametrize("dtype", [torch.float64])
def test_sampled_label_marginal_converges_to_the_exact_one(prior_m, generator):
    table_mm = torch.randn(M, M, generator=generator, dtype=torch.float64)
    errors = {}
    for size in (20, 2000):
        y = torch.multinomial(prior_m, size, replacement=True, generator=generator)
        scores_bm = table_mm[y]
        difference = fdv_in_batch(scores_bm[:, y]) - dv_exact(scores_bm, y, prior_m)
        errors[size] = difference.abs().max().item()
    assert errors[2000] < 0.05
    assert errors[2000] < errors[20]


# --- classification and likelihood -----------------------------------------------------------------


def naive_cross_entropy(logits: list[float], y: int) -> float:
    return -math.log(math.exp(logits[y]) / sum(math.exp(value) for value in logits))


@both_dtypes
def test_cross_entropy_is_its_loop(scores_bm, dtype):
    expected = [naive_cross_entropy(row, y) for row, y in zip(scores_bm.tolist(), Y.tolist(), strict=True)]
    assert_equal(cross_entropy(scores_bm, Y), expected, dtype)


@both_dtypes
def test_hinge_is_its_loop(scores_bm, dtype):
    scores_bm[0, Y[0]] += 10  # one sample beyond the margin
    expected = []
    for row, y in zip(scores_bm.tolist(), Y.tolist(), strict=True):
        best_wrong = max(value for m, value in enumerate(row) if m != y)
        expected.append(max(0.0, 1 + best_wrong - row[y]))
    assert expected[0] == 0 < max(expected)
    assert_equal(hinge(scores_bm, Y), expected, dtype)


@both_dtypes
def test_logit_adjusted_is_its_loop(scores_bm, prior_m, dtype):
    p = prior_m.tolist()
    expected = []
    for row, y in zip(scores_bm.tolist(), Y.tolist(), strict=True):
        expected.append(naive_cross_entropy([value + math.log(p[m]) for m, value in enumerate(row)], y))
    assert_equal(logit_adjusted(scores_bm, Y, prior_m), expected, dtype)
    twice = logit_adjusted(scores_bm, Y, prior_m, tau=2.0)
    assert_equal(twice, logit_adjusted(scores_bm + prior_m.log(), Y, prior_m).tolist(), dtype)


@both_dtypes
def test_exact_losses_take_a_prior_in_the_same_form(scores_bm, prior_m, dtype):
    """Donsker-Varadhan is the adjusted cross-entropy but for a constant, both with the same probabilities."""
    constant = dv_exact(scores_bm, Y, prior_m) - logit_adjusted(scores_bm, Y, prior_m)
    assert_equal(constant, prior_m[Y].log().tolist(), dtype)


@both_dtypes
def test_gaussian_log_density_is_its_loop(dtype, generator):
    s, mean = torch.randn(2, B, 3, generator=generator, dtype=dtype)
    variance = torch.rand(B, 3, generator=generator, dtype=dtype) + 0.1
    expected = []
    for i in range(B):
        value = 0.0
        for a in range(3):
            v = variance[i, a].item()
            value -= 0.5 * math.log(2 * math.pi * v) + (s[i, a].item() - mean[i, a].item()) ** 2 / (2 * v)
        expected.append(value)
    assert_equal(gaussian_log_density(s, mean, variance), expected, dtype)


@both_dtypes
def test_flow_nll_is_its_loop(dtype, generator):
    log_density, log_det = torch.randn(2, B, generator=generator, dtype=dtype)
    expected = [-(a + b) / 5 for a, b in zip(log_density.tolist(), log_det.tolist(), strict=True)]
    assert_equal(flow_nll(log_density, log_det, 5), expected, dtype)


# --- class mass ------------------------------------------------------------------------------------

shares = st.floats(0, 1)


@st.composite
def augmented_samples(draw: st.DrawFn):
    """Labels, which of them are synthetic, class masses and augmentation weights; classes may lack either kind."""
    n_classes = draw(st.integers(1, 5))
    sizes = st.lists(st.integers(0, 4), min_size=n_classes, max_size=n_classes)
    n_real, n_synthetic = torch.tensor(draw(sizes)), torch.tensor(draw(sizes))
    labels = torch.arange(n_classes)
    y_n = torch.cat([labels.repeat_interleave(n_real), labels.repeat_interleave(n_synthetic)])
    synthetic_n = torch.arange(len(y_n)) >= n_real.sum()
    shuffle = torch.tensor(draw(st.permutations(range(len(y_n)))), dtype=torch.long)
    masses = draw(st.lists(st.floats(0.01, 1), min_size=n_classes, max_size=n_classes))
    mass_m = torch.tensor(masses, dtype=torch.float64) / sum(masses)
    weight_m = torch.tensor(draw(st.lists(shares, min_size=n_classes, max_size=n_classes)), dtype=torch.float64)
    return y_n[shuffle], synthetic_n[shuffle], mass_m, weight_m


@given(augmented_samples())
def test_weights_of_a_class_sum_to_its_mass(samples):
    y_n, synthetic_n, mass_m, weight_m = samples
    weights_n = sample_weights(y_n, synthetic_n, mass_m, weight_m)
    assert (weights_n >= 0).all()
    for m in range(len(mass_m)):
        if (y_n == m).any():
            assert weights_n[y_n == m].sum().item() == pytest.approx(mass_m[m].item(), abs=1e-12)


@given(augmented_samples())
def test_synthetic_samples_hold_their_share_of_the_mass(samples):
    """lambda_m where a class has both kinds, none without synthetic samples, all without real ones."""
    y_n, synthetic_n, mass_m, weight_m = samples
    weights_n = sample_weights(y_n, synthetic_n, mass_m, weight_m)
    for m in range(len(mass_m)):
        real, synthetic = weights_n[(y_n == m) & ~synthetic_n], weights_n[(y_n == m) & synthetic_n]
        share = 0.0 if len(synthetic) == 0 else 1.0 if len(real) == 0 else weight_m[m].item()
        assert synthetic.sum().item() == pytest.approx(mass_m[m].item() * share, abs=1e-12)
        assert len(synthetic.unique()) <= 1
        assert len(real.unique()) <= 1


@given(
    seed=st.integers(0, 2**32),
    copies=st.integers(1, 4),
    mass=st.sampled_from(["training", "balanced"]),
    weights=st.lists(shares, min_size=3, max_size=3),
)
def test_copies_of_the_real_rows_change_neither_loss_nor_gradient(seed, copies, mass, weights):
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    X = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    head = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    mass_m = class_mass(torch.bincount(y), mass)
    augmentation_weight_m = torch.tensor(weights, dtype=torch.float64)

    def loss_and_gradient(n_copies: int, weight_m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.arange(7).repeat(1 + n_copies)
        weights_n = sample_weights(y[rows], torch.arange(len(rows)) >= 7, mass_m, weight_m)
        parameters = head.clone().requires_grad_()
        loss = (weights_n * cross_entropy(X[rows] @ parameters, y[rows])).sum()
        loss.backward()
        return loss.detach(), parameters.grad

    found = loss_and_gradient(copies, augmentation_weight_m)
    expected = loss_and_gradient(0, torch.zeros(3))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_class_mass():
    counts = torch.tensor([6, 3, 1])
    assert class_mass(counts, "training").tolist() == pytest.approx([0.6, 0.3, 0.1], abs=1e-15)
    assert class_mass(counts, "balanced").tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
