"""One contract for every augmenter, then what each promises of its own."""

import numpy as np
import pytest
import torch

from ecrt.augmentation import ClassSources, gaussian, permutation
from ecrt.errors import InputError
from ecrt.stages import AUGMENTATION, Borrowed, augment_classes

KINDS = ["parametric", "permutation"]


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
    torch.testing.assert_close(synthetic.var(0), sources.var(0), rtol=0.04, atol=0)


@every_augmenter
def test_coordinates_become_independent(kind, sources):
    """Correlated in the class, which the sources should not be; the synthetic ones are not."""
    synthetic = augment(kind, sources, 40_000, seeded_generator(), variance_d=sources.var(0))
    off_diagonal = ~np.eye(3, dtype=bool)
    assert np.abs(np.corrcoef(sources.T)[off_diagonal]).min() > 0.6
    assert np.abs(np.corrcoef(synthetic.T)[off_diagonal]).max() < 0.03


def test_permutation_takes_every_value_from_the_same_coordinate_of_the_class(sources):
    synthetic = permutation(ClassSources.of_one(sources[:10]), zeros(300), seeded_generator())
    for a in range(3):
        assert set(synthetic[:, a].tolist()) == set(sources[:10, a].tolist())


def test_permutation_of_one_sample_is_that_sample():
    s = torch.tensor([[1.0, 2.0]])
    assert torch.equal(permutation(ClassSources.of_one(s), zeros(3), seeded_generator()), s.expand(3, 2))


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
    with pytest.raises(InputError, match=r"'borrowed', 'none', 'parametric', 'permutation'"):
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
