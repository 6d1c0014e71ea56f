"""One contract for every augmenter, then what each promises of its own."""

import numpy as np
import pytest
import torch

from ecrt.augmentation import WIDTHS, ClassSources, gaussian, kernel, kernel_shares, left_out_log_density, permutation
from ecrt.errors import InputError
from ecrt.stages import AUGMENTATION, Borrowed, Kernel, Pairs, augment_classes

INDEPENDENT = ["parametric", "permutation"]
KINDS = [*INDEPENDENT, "kernel", "pairs"]


def zeros(size):
    return torch.zeros(size, dtype=torch.int64)


def augment(kind, s, size, generator, variance_d):
    return AUGMENTATION.part(kind, "augmentation").draw(ClassSources.of_one(s, variance_d), zeros(size), generator)


def parametric(s, size, generator, variance_d, pseudo_samples):
    sources = ClassSources.of_one(s, variance_d)
    return gaussian(sources.moments(pseudo_samples), zeros(size), sources.noise(zeros(size), generator))


every_augmenter = pytest.mark.parametrize("kind", KINDS)


def seeded_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def sources() -> torch.Tensor:
    """A class whose three coordinates depend on one another."""
    shared, own = torch.randn(2, 400, 3, generator=seeded_generator(), dtype=torch.float64)
    return 2 * shared[:, :1] + own + torch.tensor([5.0, 0.0, -3.0])


@every_augmenter
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("size", [0, 1, 50])
def test_shape_and_dtype(kind, dtype, n, size):
    s = torch.randn(n, 3, dtype=dtype)
    synthetic = augment(kind, s, size, seeded_generator(), variance_d=torch.ones(3, dtype=dtype))
    assert synthetic.shape == (size, 3)
    assert synthetic.dtype == dtype
    assert torch.isfinite(synthetic).all()


@every_augmenter
def test_the_seed_decides(kind, sources):
    draws = [augment(kind, sources, 20, seeded_generator(seed), variance_d=torch.ones(3)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@every_augmenter
def test_the_class_itself_is_left_alone(kind, sources):
    before = sources.clone()
    augment(kind, sources, 20, seeded_generator(), variance_d=torch.ones(3))
    assert torch.equal(sources, before)


@every_augmenter
def test_mean_and_variance_are_those_of_the_class(kind, sources):
    synthetic = augment(kind, sources, 40_000, seeded_generator(), variance_d=sources.var(0))
    torch.testing.assert_close(synthetic.mean(0), sources.mean(0), rtol=0, atol=0.06)
    near_rows_lean_inwards = 0.1 if kind == "pairs" else 0.04
    torch.testing.assert_close(synthetic.var(0), sources.var(0), rtol=near_rows_lean_inwards, atol=0)


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_coordinates_become_independent(kind, sources):
    """Correlated in the class, which the sources should not be; the synthetic ones are not."""
    synthetic = augment(kind, sources, 40_000, seeded_generator(), variance_d=sources.var(0))
    off_diagonal = ~np.eye(3, dtype=bool)
    assert np.abs(np.corrcoef(sources.T)[off_diagonal]).min() > 0.6
    assert np.abs(np.corrcoef(synthetic.T)[off_diagonal]).max() < 0.03


def test_permutation_takes_every_value_from_the_same_coordinate_of_the_class(sources):
    synthetic, _ = permutation(ClassSources.of_one(sources[:10]), zeros(300), seeded_generator())
    for a in range(3):
        assert set(synthetic[:, a].tolist()) == set(sources[:10, a].tolist())


def test_permutation_of_one_sample_is_that_sample():
    s = torch.tensor([[1.0, 2.0]])
    assert torch.equal(permutation(ClassSources.of_one(s), zeros(3), seeded_generator())[0], s.expand(3, 2))


def test_one_sample_borrows_the_variance_of_the_others():
    s, variance = torch.tensor([[1.0, -2.0]]), torch.tensor([4.0, 0.25])
    synthetic = parametric(s, 20_000, seeded_generator(), variance, pseudo_samples=10.0)
    torch.testing.assert_close(synthetic.mean(0), s[0], rtol=0, atol=0.06)
    torch.testing.assert_close(synthetic.var(0), variance, rtol=0.05, atol=0)


def test_pseudo_samples_draw_the_variance_away_from_the_class(sources):
    borrowed = torch.full((3,), 100.0, dtype=torch.float64)
    for pseudo_samples, expected in [(0.0, sources.var(0)), (1e9, borrowed)]:
        synthetic = parametric(sources, 20_000, seeded_generator(), borrowed, pseudo_samples)
        torch.testing.assert_close(synthetic.var(0), expected, rtol=0.05, atol=0)


def test_an_unknown_augmentation_is_refused_with_the_choices():
    with pytest.raises(InputError, match=r"'borrowed', 'kernel'.* 'none'.* 'pairs', 'parametric', 'permutation'"):
        AUGMENTATION.part("smote", "augmentation")


def test_borrowed_samples_keep_the_mean_of_each_class_and_the_shape_of_the_lenders():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), [400, 400, 5])
    shape = rng.exponential(size=(len(y), 2)) - 1  # a skew to be lent
    s = 3 * rng.normal(size=(3, 2))[y] + shape
    rare = np.array([False, False, True])
    drawn = augment_classes(s, y, rare, np.ones(2), Borrowed(n_synthetic=4000, pseudo_samples=1e9), rng)
    assert set(drawn.y) == {2}
    np.testing.assert_allclose(drawn.s.mean(axis=0), s[y == 2].mean(axis=0), atol=0.1)
    centred = drawn.s - drawn.s.mean(axis=0)
    assert ((centred**3).mean(axis=0) / centred.std(axis=0) ** 3 > 1).all()


@pytest.mark.parametrize("width", [0.2, 0.7, 1.0])
@pytest.mark.parametrize("pseudo_samples", [1.0, 10.0])
def test_left_out_density_is_that_of_a_loop_over_the_rows(width, pseudo_samples, sources):
    s, variance = sources[:7].numpy(), np.array([1.0, 2.0, 0.5])
    found = []
    for i in range(len(s)):
        others = np.delete(s, i, axis=0)
        mean = others.mean(axis=0)
        spread = (((others - mean) ** 2).sum(axis=0) + pseudo_samples * variance) / (len(others) - 1 + pseudo_samples)
        centres = mean + np.sqrt(1 - width**2) * (others - mean)
        density = [
            np.prod(np.exp(-0.5 * (s[i] - c) ** 2 / (width**2 * spread)) / np.sqrt(width**2 * spread)) for c in centres
        ]
        found.append(np.log(np.sum(density)))
    expected = np.mean(found)
    assert left_out_log_density(s, variance, pseudo_samples, width) == pytest.approx(expected)


def test_kernels_are_wide_for_a_normal_class_and_narrow_for_one_in_parts():
    rng = np.random.default_rng(0)
    whole, parts = rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) * 0.1 + 5 * rng.integers(2, size=(60, 1))
    of_whole, of_parts = (kernel_shares(rows, np.ones(2), WIDTHS).reshape(2, -1).sum(0) for rows in (whole, parts))
    assert of_whole.sum() == pytest.approx(1)
    assert of_whole[np.array(WIDTHS) > 0.4].sum() > 0.9
    assert of_parts[np.array(WIDTHS) < 0.25].sum() > 0.9
    assert kernel_shares(parts, np.ones(2), (0.4,)).shape == (2,)
    assert kernel_shares(whole[:2], np.ones(2), WIDTHS).tolist() == [0.0] * 11 + [1.0]


def test_kernels_have_shares_in_proportion_to_the_likelihood_of_rows_left_out():
    s, widths = np.random.default_rng(1).normal(size=(8, 2)), (0.3, 1.0)
    likelihood = [np.exp(8 * left_out_log_density(s, np.ones(2), k, h)) for k in (1.0, 10.0) for h in widths]
    np.testing.assert_allclose(kernel_shares(s, np.ones(2), widths), likelihood / np.sum(likelihood))
    # With a width of next to nothing samples are the rows themselves.
    sources, narrow = ClassSources.of_one(torch.from_numpy(s)), (1e-9, 1.0)
    sources._kernels[narrow] = tuple(
        torch.tensor(one) for one in ([0, 0, 1, 1], [*narrow, *narrow], [[0.1, 0.3, 0.6, 1.0]])
    )
    drawn, donors = kernel(sources, zeros(20_000), seeded_generator(), narrow)
    same = (drawn - sources.s_nd[donors[:, 0]]).abs().amax(1) < 1e-6
    assert same.double().mean() == pytest.approx(0.1 + 0.3, abs=0.015)


def test_pairs_are_near_and_named(sources):
    s = sources[:40]
    drawn, pairs = Pairs().draw_from(ClassSources.of_one(s), zeros(500), seeded_generator())
    distance = torch.cdist(s, s)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    for sample, (first, second) in zip(drawn, pairs.tolist(), strict=True):
        assert int((distance[first] < distance[first, second]).sum()) <= 5
        share = (sample - s[first]) / (s[second] - s[first])
        assert ((share > -0.37) & (share < 1.37)).all()
        assert share.std() > 0


@pytest.fixture
def three_classes() -> ClassSources:
    """Classes 0, 2 and 3 with 30, 1 and 3 rows of a table; two of them share a row, and some rows have no class."""
    s_nd = torch.randn(50, 3, generator=seeded_generator(), dtype=torch.float64)
    row_k = torch.tensor([*range(5, 35), 40, 41, 5, 43])
    label_k = torch.tensor([0] * 30 + [2] + [3] * 3)
    s_nd[40:] += 50
    s_nd[[40, 42]] += 50
    return ClassSources(s_nd, row_k, label_k, 5, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))


every_naming = pytest.mark.parametrize(
    "part", [Kernel(), Pairs(), AUGMENTATION.part("permutation", "")], ids=lambda part: part.kind
)


@every_naming
def test_donors_are_rows_of_the_class_and_telling_them_changes_nothing(part, three_classes):
    y_b = torch.tensor([3, 0, 2, 0] * 200)
    drawn, donors = part.draw_from(three_classes, y_b, seeded_generator())
    assert torch.equal(drawn, part.draw(three_classes, y_b, seeded_generator()))
    for label in (0, 2, 3):
        mine = three_classes.row_k[three_classes.label_k == label].tolist()
        assert set(donors[y_b == label].flatten().tolist()) == set(mine)


@every_naming
def test_classes_drawn_together_are_those_drawn_alone(part, three_classes):
    """Mean and spread of each, whatever classes are beside it; a class with one row has the common variance."""
    drawn = part.draw(three_classes, torch.tensor([0, 2, 3]).repeat(20_000), seeded_generator()).view(-1, 3, 3)
    for place, label in enumerate((0, 2, 3)):
        mine = three_classes.s_nd[three_classes.row_k[three_classes.label_k == label]]
        alone = ClassSources.of_one(mine, three_classes.variance_d)
        other = part.draw(alone, zeros(20_000), seeded_generator(1))
        torch.testing.assert_close(drawn[:, place].mean(0), other.mean(0), rtol=0.02, atol=0.06)
        torch.testing.assert_close(drawn[:, place].std(0), other.std(0), rtol=0.03, atol=1e-9)
        if label == 2 and part.kind != "permutation":
            torch.testing.assert_close(other.var(0), three_classes.variance_d, rtol=0.05, atol=0)


@pytest.mark.parametrize("part", [Kernel(), Pairs()], ids=lambda part: part.kind)
def test_kernels_and_neighbours_are_found_once_and_move_along(part, three_classes, monkeypatch):
    y_b = torch.tensor([3, 0, 2, 0] * 20)
    fresh = part.draw(three_classes.on(torch.device("cpu"), torch.float64), y_b, seeded_generator())
    drawn, donors = part.draw_from(three_classes, y_b, seeded_generator())
    monkeypatch.setattr("ecrt.augmentation.kernel_shares", None)
    monkeypatch.setattr("ecrt.augmentation.NearestNeighbors", None)
    moved = three_classes.on(torch.device("cpu"), torch.float64)
    again, places = part.draw_from(moved, y_b, seeded_generator())
    assert torch.equal(again, drawn)
    assert torch.equal(again, fresh)
    assert torch.equal(three_classes.row_k[places], donors)
