"""One contract for every map from features to sources, then what each part promises of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecrt.flows import (
    RIDGE,
    VARIANCE_FLOOR,
    ClassPrior,
    Demixer,
    Dense,
    LinearDemixing,
    MaskedFlow,
    SharedPrior,
    between_class_variance,
    class_moments,
    fit_linear_demixing,
    gaussian_log_density,
    shrunk_moments,
)
from ecrt.moments import within_class_residuals

DIMENSIONS = (1, 2, 32, 64, 128)
DTYPES = (torch.float32, torch.float64)
WHITENING = ("symmetric", "discriminant", "triangular")
ROTATIONS = (*WHITENING, "none")
N_CLASSES = 4

every_dimension = pytest.mark.parametrize("d", DIMENSIONS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
every_rotation = pytest.mark.parametrize("rotation", ROTATIONS)


# --- parts to test with ----------------------------------------------------------------------------


@lru_cache
def labelled_features(d: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Classes that share one moderate linear mixing and differ in their means."""
    rng = np.random.default_rng(d)
    y = np.arange(n) % N_CLASSES
    mixing = np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)
    means = rng.normal(size=(N_CLASSES, d)) + 1
    return (means[y] + rng.normal(size=(n, d))) @ mixing.T, y


def masked_flow(d: int, n_blocks: int = 4, hidden: tuple[int, ...] = (128, 128), seed: int = 0) -> MaskedFlow:
    """A flow away from the identity: last layers drawn from a normal distribution."""
    torch.manual_seed(seed)
    flow = MaskedFlow(d, n_blocks, hidden)
    for block in flow.blocks:
        for parameter in flow.last_layer(block):
            nn.init.normal_(parameter, std=0.5 / hidden[-1] ** 0.5)
    return flow


def raw_scales(flow: MaskedFlow) -> list[Tensor]:
    """Views of the parameters that set the unbounded scales: zuko interleaves (shift, scale) for each feature."""
    scales = []
    for block in flow.blocks:
        last = flow.last_layer(block)
        scales.append(last[-1].data.view(-1, 2)[:, 1] if hasattr(block, "hyper") else last[-1].data)
    return scales


def linear_demixing(d: int, rotation: str = "symmetric", n_sources: int | None = None) -> LinearDemixing:
    return fit_linear_demixing(*labelled_features(d), rotation=rotation, n_sources=n_sources)


def class_prior(n_sources: int, seed: int = 0) -> ClassPrior:
    torch.manual_seed(seed)
    prior = ClassPrior(N_CLASSES, n_sources)
    for label in range(N_CLASSES):
        prior.set_class(label, torch.randn(n_sources), 0.3 + torch.rand(n_sources))
    return prior


def demixer(d: int, *, n_sources: int | None, with_flow: bool, prior: str) -> Demixer:
    linear = linear_demixing(d, n_sources=n_sources)
    flow = masked_flow(linear.n_signal, hidden=(32, 32)) if with_flow else None
    return Demixer(linear, SharedPrior() if prior == "shared" else class_prior(linear.n_signal), flow)


@dataclass
class Case:
    """What all maps have in common: ``split`` gives signal, rest and log|det J|."""

    module: nn.Module
    split: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    inverse: Callable[[Tensor], Tensor]
    n_sources: int


def masked_flow_case(d: int) -> Case:
    flow = masked_flow(d)

    def split(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, log_det = flow(z)
        return s, z[:, :0], log_det

    return Case(flow, split, flow.inverse, d)


def linear_case(rotation: str, smaller: bool) -> Callable[[int], Case]:
    def build(d: int) -> Case:
        linear = linear_demixing(d, rotation, max(d // 2, 1) if smaller else None)
        return Case(linear, lambda z: (*linear(z), linear.log_det.expand(len(z))), linear.inverse, linear.n_signal)

    return build


def demixer_case(with_flow: bool, prior: str) -> Callable[[int], Case]:
    def build(d: int) -> Case:
        f = demixer(d, n_sources=max(d // 2, 1), with_flow=with_flow, prior=prior)

        def split(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """log|det J| is what the likelihood adds to the densities of signal and rest."""
            y = torch.arange(len(z)) % N_CLASSES
            s, rest = f(z), f.linear(z)[1]
            log_rest = gaussian_log_density(rest, torch.zeros_like(rest), torch.ones_like(rest))
            return s, rest, f.log_prob(z, y) - f.prior(s, y) - log_rest

        return Case(f, split, f.inverse, f.linear.n_signal)

    return build


CASES = {
    "masked-flow": masked_flow_case,
    **{
        f"linear-{rotation}-{'smaller' if smaller else 'full'}": linear_case(rotation, smaller)
        for rotation in ROTATIONS
        for smaller in (False, True)
    },
    **{
        f"demixer-{'flow' if with_flow else 'linear'}-{prior}": demixer_case(with_flow, prior)
        for with_flow in (False, True)
        for prior in ("shared", "per-class")
    },
}


def inputs(n: int, d: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def jacobians(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """d f(z)_i / d z_j for every row, which are independent of one another."""
    return torch.autograd.functional.jacobian(lambda rows: function(rows).sum(0), z, vectorize=True).transpose(0, 1)


# --- the contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@every_dimension
@both_dtypes
def test_every_map_keeps_the_contract(name, d, dtype):
    case = CASES[name](d)
    case.module.to(dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    z = inputs(3, d, dtype)

    s, rest, log_det = case.split(z)
    assert s.shape == (3, case.n_sources)
    assert rest.shape == (3, d - case.n_sources)
    assert log_det.shape == (3,)
    assert s.dtype == rest.dtype == log_det.dtype == dtype

    # A row does not depend on the rows beside it.
    torch.testing.assert_close(case.split(z[:1])[0], s[:1], rtol=tolerance, atol=tolerance)

    # Sources come back whatever became of the rest, features when there is none.
    sources = inputs(5, case.n_sources, dtype, seed=2)
    features = case.inverse(sources)
    assert features.shape == (5, d)
    assert features.dtype == dtype
    torch.testing.assert_close(case.split(features)[0], sources, rtol=0, atol=tolerance)
    no_rest = torch.zeros(5, d - case.n_sources, dtype=dtype)
    torch.testing.assert_close(case.split(features)[1], no_rest, rtol=0, atol=tolerance)
    if case.n_sources == d:
        torch.testing.assert_close(case.inverse(s), z, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@every_dimension
@both_dtypes
def test_log_det_is_that_of_the_jacobian(name, d, dtype):
    case = CASES[name](d)
    case.module.to(dtype)
    z = inputs(2, d, dtype)
    jacobian = jacobians(lambda rows: torch.cat(case.split(rows)[:2], dim=1), z)
    expected = torch.linalg.slogdet(jacobian.double()).logabsdet
    error = (case.split(z)[2].double() - expected).abs() / d
    assert error.max() <= (1e-5 if dtype == torch.float32 else 1e-11)


# --- masked autoregressive flow --------------------------------------------------------------------


@every_dimension
@both_dtypes
def test_masked_flow_round_trip(d, dtype):
    flow = masked_flow(d).to(dtype)
    z = inputs(200, d, dtype)
    s = flow(z)[0]
    assert (s - z).abs().max() > 0.01  # not the identity
    assert (flow.inverse(s) - z).abs().max() <= (1e-5 if dtype == torch.float32 else 1e-12)


@every_dimension
@both_dtypes
def test_masked_flow_round_trip_with_saturated_scales(d, dtype):
    flow = masked_flow(d)
    for scale in raw_scales(flow):
        scale.copy_(50 * (2.0 * torch.randint(2, scale.shape) - 1))
    flow.to(dtype)
    z = inputs(100, d, dtype)
    s, log_det = flow(z)
    back = flow.inverse(s)
    assert all(torch.isfinite(values).all() for values in (s, log_det, back))
    assert (back - z).abs().max() <= (1e-2 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("d", [1, 2, 32])
@pytest.mark.parametrize("sign", [-1, 1])
def test_log_scale_is_bounded_by_two(d, sign):
    flow = MaskedFlow(d, n_blocks=1)
    raw_scales(flow)[0].fill_(sign * 1e6)
    _, log_det = flow(inputs(3, d, torch.float32))
    assert (log_det * sign / d).tolist() == pytest.approx([2.0] * 3, abs=1e-4)


@every_dimension
def test_masked_flow_starts_as_the_identity(d):
    z = inputs(5, d, torch.float32)
    flow = MaskedFlow(d)
    s, log_det = flow(z)
    assert torch.equal(s, z)
    assert torch.equal(log_det, torch.zeros(5))
    assert torch.equal(flow.inverse(z), z)


@pytest.mark.parametrize("d", [2, 3, 32])
def test_block_jacobians_are_triangular_and_change_direction(d):
    """Ascending order in even blocks, descending in odd ones; what the mask forbids is exactly zero."""
    flow = masked_flow(d).double()
    z = inputs(4, d, torch.float64)
    for k, block in enumerate(flow.blocks):
        jacobian = jacobians(block(), z)
        lower, upper = jacobian.tril(-1), jacobian.triu(1)
        allowed, forbidden = (lower, upper) if k % 2 == 0 else (upper, lower)
        assert (forbidden == 0).all()
        assert (allowed != 0).sum() == 4 * d * (d - 1) // 2
        assert (jacobian.diagonal(dim1=1, dim2=2) > 0).all()


@pytest.mark.parametrize("d", [1, 2, 32])
def test_inverse_keeps_no_gradients(d):
    flow = masked_flow(d)
    assert not flow.inverse(inputs(3, d, torch.float32).requires_grad_()).requires_grad


@pytest.mark.parametrize("d", [1, 2, 32])
def test_every_block_can_be_trained(d):
    flow = MaskedFlow(d)
    s, log_det = flow(inputs(20, d, torch.float32))
    (s.square().mean() - log_det.mean()).backward()
    for block in flow.blocks:
        assert all(parameter.grad.abs().sum() > 0 for parameter in flow.last_layer(block)[-1:])


# --- linear de-mixing ------------------------------------------------------------------------------


def pooled_covariance(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    residuals = np.concatenate([z[y == label] - z[y == label].mean(axis=0) for label in np.unique(y)])
    return residuals.T @ residuals / (len(z) - len(np.unique(y)))


@pytest.mark.parametrize("rotation", WHITENING)
@pytest.mark.parametrize("d", [1, 2, 16])
def test_sources_are_white_within_classes(rotation, d, monkeypatch):
    """But for the ridge, without which the triangular sources, too, are uncorrelated."""
    monkeypatch.setattr("ecrt.flows.RIDGE", 0.0)
    z, y = labelled_features(d, n=8000)
    assert np.abs(pooled_covariance(z, y) - np.eye(d)).max() > 0.2
    signal, rest = fit_linear_demixing(z, y, rotation=rotation)(torch.from_numpy(z))
    assert rest.shape == (8000, 0)
    covariance = pooled_covariance(signal.numpy(), y)
    if rotation == "triangular":  # of unit variance over all classes instead
        np.testing.assert_allclose(signal.numpy().std(axis=0), 1.0)
        covariance /= np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(covariance, np.eye(d), atol=0.03)


@pytest.mark.parametrize("rotation", ["symmetric", "discriminant"])
def test_the_ridge_leaves_sources_nearly_white(rotation):
    z, y = labelled_features(16, n=8000)
    signal, _ = fit_linear_demixing(z, y, rotation=rotation)(torch.from_numpy(z))
    variances = np.linalg.eigvalsh(pooled_covariance(signal.numpy(), y))
    assert 0.5 < variances.min() <= variances.max() < 1.01


@every_rotation
@pytest.mark.parametrize("n_sources", [None, 2])
def test_constant_columns_are_dropped_and_restored(rotation, n_sources):
    z, y = labelled_features(4)
    z = np.insert(z, [0, 2], [0.0, -7.5], axis=1)  # columns 0 and 3
    linear = fit_linear_demixing(z, y, rotation=rotation, n_sources=n_sources)
    assert linear.n_features == 6
    assert linear.kept_k.tolist() == [1, 2, 4, 5]
    signal, rest = linear(torch.from_numpy(z))
    assert (signal.shape[1], rest.shape[1]) == ((4, 0) if n_sources is None else (2, 2))
    np.testing.assert_allclose(linear.inverse(signal, rest).numpy(), z, atol=1e-12)


@every_rotation
def test_duplicated_columns_stay_invertible(rotation):
    z, y = labelled_features(4)
    z = np.hstack([z, z[:, :2], 1000 * z[:, 2:3]])
    linear = fit_linear_demixing(z, y, rotation=rotation)
    assert all(torch.isfinite(buffer).all() for buffer in linear.buffers())
    signal, _ = linear(torch.from_numpy(z))
    np.testing.assert_allclose(linear.inverse(signal).numpy(), z, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rotation", ["symmetric", "discriminant"])
def test_the_ridge_bounds_how_much_whitening_magnifies(rotation):
    """Many rows, so that shrinkage alone would let the difference of two equal columns blow up."""
    z, y = labelled_features(4, n=8000)
    z = np.hstack([z, z[:, :2]]) / np.hstack([z, z[:, :2]]).std(axis=0)
    weight = fit_linear_demixing(z, y, rotation=rotation).weight.weight_kk
    mean_variance = np.diag(pooled_covariance(z, y)).mean()
    assert torch.linalg.matrix_norm(weight, 2) <= 1 / np.sqrt(RIDGE * mean_variance)


@every_rotation
def test_more_columns_than_rows(rotation):
    z, y = labelled_features(64)
    linear = fit_linear_demixing(z[:12], y[:12], rotation=rotation)
    signal, _ = linear(torch.from_numpy(z))
    np.testing.assert_allclose(linear.inverse(signal).numpy(), z, rtol=1e-8, atol=1e-8)


@every_rotation
@pytest.mark.parametrize("labels", ["one class", "one sample in each class"])
def test_degenerate_classes(rotation, labels):
    z = labelled_features(3)[0][:10]
    y = np.zeros(10, dtype=int) if labels == "one class" else np.arange(10)
    linear = fit_linear_demixing(z, y, rotation=rotation)
    signal, _ = linear(torch.from_numpy(z))
    np.testing.assert_allclose(linear.inverse(signal).numpy(), z, atol=1e-10)


@every_rotation
@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units_of_the_features_do_not_matter(rotation, unit):
    z, y = labelled_features(3)
    expected, _ = fit_linear_demixing(z, y, rotation=rotation)(torch.from_numpy(z))
    found, _ = fit_linear_demixing(unit * z, y, rotation=rotation)(torch.from_numpy(unit * z))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@every_rotation
def test_nothing_varies(rotation):
    z, y = np.full((6, 2), 3.0), np.arange(6) % 2
    linear = fit_linear_demixing(z, y, rotation=rotation)
    signal, rest = linear(torch.from_numpy(z))
    assert (signal.shape, rest.shape) == ((6, 0), (6, 0))
    assert linear.log_det == 0
    assert torch.equal(linear.inverse(signal), torch.from_numpy(z))


def test_signal_is_the_first_part_of_the_whole_map():
    z, y = labelled_features(5)
    whole, _ = fit_linear_demixing(z, y)(torch.from_numpy(z))
    signal, rest = fit_linear_demixing(z, y, n_sources=2)(torch.from_numpy(z))
    torch.testing.assert_close(torch.cat([signal, rest], dim=1), whole)


@pytest.mark.parametrize("order", [None, [0, 1, 2, 3], [2, 0, 3, 1]])
def test_triangular_rotation_follows_the_order(order):
    """Source k looks at the first k + 1 features in the order and at no other."""
    z, y = labelled_features(4)
    given = None if order is None else np.array(order)
    linear = fit_linear_demixing(z, y, rotation="triangular", order=given)
    jacobian = jacobians(lambda rows: linear(rows)[0], torch.from_numpy(z[:1]))[0]
    in_order = jacobian[:, order or [0, 1, 2, 3]]
    assert (in_order.triu(1) == 0).all()
    assert (in_order.tril() != 0).sum() == 10
    assert (in_order.diagonal() > 0).all()


def test_triangular_order_skips_constant_columns():
    z, y = labelled_features(3)
    z = np.insert(z, 1, 4.0, axis=1)
    linear = fit_linear_demixing(z, y, rotation="triangular", order=np.array([3, 1, 0, 2]))
    assert linear.kept_k.tolist() == [3, 0, 2]


def test_no_rotation_standardises_columns():
    z, y = labelled_features(4)
    signal, _ = fit_linear_demixing(z, y, rotation="none")(torch.from_numpy(z))
    np.testing.assert_allclose(signal.numpy(), (z - z.mean(axis=0)) / z.std(axis=0), atol=1e-12)


@every_rotation
def test_a_column_may_vary_in_other_classes_alone(rotation):
    """Constant here, it is kept in the unit given, and stays finite; a spread of zero drops a column that varies."""
    z, y = labelled_features(3)
    z = np.insert(z, 1, 4.0, axis=1)
    linear = fit_linear_demixing(z, y, spread=np.array([1.0, 0.5, 0.0, 1.0]), rotation=rotation)
    assert sorted(linear.kept_k.tolist()) == [0, 1, 3]
    assert all(torch.isfinite(buffer).all() for buffer in linear.buffers())
    elsewhere = torch.from_numpy(z + np.array([0, 1, 0, 0]))
    shift = linear(elsewhere)[0] - linear(torch.from_numpy(z))[0]
    assert 1 < torch.linalg.vector_norm(shift[0]) < 100
    restored = linear.inverse(linear(elsewhere)[0])
    torch.testing.assert_close(restored[:, [0, 1, 3]], elsewhere[:, [0, 1, 3]])


def test_symmetric_rotation_is_symmetric():
    """In standardised features, which it leaves as they are as far as it can."""
    z, y = labelled_features(4)
    linear = fit_linear_demixing(z / z.std(axis=0), y)
    torch.testing.assert_close(linear.weight.weight_kk, linear.weight.weight_kk.T)


def test_discriminant_axes_are_sorted_by_between_class_variance():
    z, y = labelled_features(6)
    signal, _ = fit_linear_demixing(z, y, rotation="discriminant")(torch.from_numpy(z))
    means = np.stack([signal.numpy()[y == label].mean(axis=0) for label in range(N_CLASSES)])
    between = np.cov(means, rowvar=False)
    assert np.all(np.diff(np.diag(between)) <= 1e-10)
    assert np.abs(between - np.diag(np.diag(between))).max() < 1e-10
    assert np.diag(between)[N_CLASSES - 1 :].max() < 1e-10  # four means span three axes
    np.testing.assert_allclose(np.diag(between)[0], np.linalg.eigvalsh(between).max())


def test_within_class_residuals_are_their_loop():
    z, y = labelled_features(3, n=30)
    y = np.where(y == 2, 7, y)  # labels need not be consecutive
    residuals, means, counts = within_class_residuals(z, y)
    for k, label in enumerate([0, 1, 3, 7]):
        np.testing.assert_allclose(means[k], z[y == label].mean(axis=0))
        assert counts[k] == (y == label).sum()
        np.testing.assert_allclose(residuals[y == label], z[y == label] - means[k], atol=1e-14)


def test_between_class_variance_removes_what_sampling_adds():
    rng = np.random.default_rng(0)
    truth = np.array([0.0, 1.0, 9.0])
    means = rng.normal(size=(4000, 3)) * np.sqrt(truth + 1 / 5)  # means of five samples, within-class variance 1
    found = between_class_variance(means, np.full(4000, 5), np.ones(3))
    np.testing.assert_allclose(found, truth, rtol=0.1, atol=0.02)
    np.testing.assert_allclose(between_class_variance(3 * means, np.full(4000, 5), np.full(3, 9.0)), found)


def test_between_class_variance_of_one_class_favours_no_coordinate():
    assert between_class_variance(np.zeros((1, 3)), np.array([5]), np.ones(3)).tolist() == [1, 1, 1]


# --- priors and likelihood -------------------------------------------------------------------------


def integral(f: Demixer, label: int, center: np.ndarray, d: int) -> float:
    """Riemann sum of p(z | y) over a wide grid."""
    n = {1: 4001, 2: 501}[d]
    axes = [torch.linspace(c - 15.0, c + 15.0, n, dtype=torch.float64) for c in center]
    grid = torch.cartesian_prod(*axes).reshape(-1, d)
    with torch.no_grad():
        density = f.log_prob(grid, torch.full((len(grid),), label)).exp()
    return (density.sum() * (30 / (n - 1)) ** d).item()


@pytest.mark.parametrize("prior", ["shared", "per-class"])
@pytest.mark.parametrize("with_flow", [False, True])
@pytest.mark.parametrize(("d", "n_sources"), [(1, 1), (2, 2), (2, 1)])
def test_likelihood_integrates_to_one(prior, with_flow, d, n_sources):
    f = demixer(d, n_sources=n_sources, with_flow=with_flow, prior=prior).double()
    center = labelled_features(d)[0].mean(axis=0)
    assert integral(f, 1, center, d) == pytest.approx(1.0, abs=1e-3)


def test_only_the_class_prior_asks_for_the_label():
    z = torch.from_numpy(labelled_features(3)[0][:5])
    shared = demixer(3, n_sources=None, with_flow=True, prior="shared").double()
    per_class = demixer(3, n_sources=None, with_flow=True, prior="per-class").double()
    labels = [torch.full((5,), label) for label in (0, 1)]
    assert torch.equal(*(shared.log_prob(z, y) for y in labels))
    assert not torch.equal(*(per_class.log_prob(z, y) for y in labels))


def test_class_prior_is_the_gaussian_of_each_label():
    prior = class_prior(3)
    s, y = inputs(N_CLASSES, 3, torch.float32), torch.tensor([2, 0, 3, 1])
    for i, label in enumerate(y):
        expected = torch.distributions.Normal(prior.mean_md[label], prior.variance_md[label].sqrt())
        torch.testing.assert_close(prior(s, y)[i], expected.log_prob(s[i]).sum())


def test_shared_prior_is_standard_normal():
    s = inputs(4, 3, torch.float32)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(s).sum(1)
    torch.testing.assert_close(SharedPrior()(s, torch.zeros(4, dtype=torch.long)), expected)


def test_variance_of_the_class_prior_has_a_floor():
    prior = ClassPrior(1, 2)
    nn.init.constant_(prior.log_variance_md, -1e4)
    assert (prior.variance_md >= VARIANCE_FLOOR).all()
    log_prob = prior(torch.zeros(1, 2), torch.tensor([0]))
    log_prob.sum().backward()
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(prior.log_variance_md.grad).all()


@pytest.mark.parametrize("variance", [0.01, 1.0, 50.0])
def test_set_class_is_remembered(variance):
    prior = ClassPrior(3, 2)
    prior.set_class(1, torch.tensor([4.0, -4.0]), torch.full((2,), variance))
    assert prior.mean_md[1].tolist() == [4.0, -4.0]
    assert prior.variance_md[1].tolist() == pytest.approx([variance] * 2, rel=1e-5)
    assert prior.mean_md[0].tolist() == prior.mean_md[2].tolist() == [0.0, 0.0]


def test_set_class_floors_a_variance_of_zero():
    prior = ClassPrior(1, 2)
    prior.set_class(0, torch.zeros(2), torch.zeros(2))
    assert torch.isfinite(prior.log_variance_md).all()
    assert (prior.variance_md >= VARIANCE_FLOOR).all()


@both_dtypes
@pytest.mark.parametrize("n", [1, 2, 9])
def test_shrunk_moments_are_their_loop(n, dtype):
    s, v, nu = inputs(n, 3, dtype), torch.tensor([0.5, 1.0, 4.0], dtype=dtype), 5.0
    mean, variance = shrunk_moments(s, v, nu)
    for a in range(3):
        values = s[:, a].tolist()
        average = sum(values) / n
        squares = sum((value - average) ** 2 for value in values)
        assert mean[a].item() == pytest.approx(average, rel=1e-5)
        assert variance[a].item() == pytest.approx((squares + nu * v[a].item()) / (n - 1 + nu), rel=1e-5)


def test_one_sample_has_the_variance_of_the_others():
    v = torch.tensor([0.5, 4.0])
    _, variance = shrunk_moments(torch.tensor([[3.0, -1.0]]), v, 5.0)
    assert torch.equal(variance, v)


@both_dtypes
@pytest.mark.parametrize("one_by_one", [True, False])
def test_class_moments_are_those_of_each_class(dtype, one_by_one, monkeypatch):
    monkeypatch.setattr("ecrt.flows.ONE_BY_ONE", 1024 if one_by_one else 0)
    s, v = inputs(60, 3, dtype), torch.tensor([0.5, 1.0, 4.0], dtype=dtype)
    y = torch.arange(60) % 7 * 3
    y[-1] = 99  # a class of one
    labels, means, variances = class_moments(s, y, v, 5.0)
    assert labels.tolist() == [0, 3, 6, 9, 12, 15, 18, 99]
    for label, mean, variance in zip(labels, means, variances, strict=True):
        expected = shrunk_moments(s[y == label], v, 5.0)
        for found, wanted in zip((mean, variance), expected, strict=True):
            if one_by_one:
                assert torch.equal(found, wanted)
            torch.testing.assert_close(found, wanted)


def test_a_matrix_without_inverse_is_named():
    from ecrt.errors import InputError

    with pytest.raises(InputError, match="has no inverse"):
        Dense(torch.zeros(3, 3)).inverse(torch.ones(2, 3))
