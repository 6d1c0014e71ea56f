"""Synthetic rows for imbalanced-learn: its checks, what is in and out, where rows come from, which are refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from imblearn.pipeline import make_pipeline
from imblearn.utils.estimator_checks import parametrize_with_checks as sampler_checks
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from ecrt import ECRTSampler, ECRTTransformer, Flow, Kernel, Linear, NoAugmentation, Parametric
from ecrt.errors import ECRTWarning, InputError
from ecrt.stages import Augmentation

FLOW = Flow(n_restarts=1, hidden=(16,), epochs=3)
CONFIGURATIONS = [
    ECRTSampler(random_state=0),
    ECRTSampler(demixing=Linear(n_sources=1), augmentation="permutation", random_state=0),
    ECRTSampler(demixing=FLOW, augmentation="parametric", random_state=0),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@sampler_checks(CONFIGURATIONS)
def test_checks_of_imbalanced_learn(estimator, check):
    check(estimator)


@parametrize_with_checks(CONFIGURATIONS)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    """Four classes, mixed linearly; the last has 12 rows."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [90, 80, 70, 12])
    return (rng.normal(size=(len(y), 3)) + 4 * y[:, None]) @ rng.normal(size=(3, 3)), y


@pytest.fixture(scope="module")
def table(rows):
    """A table of all kinds of columns, with gaps."""
    X, y = rows
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "size": X[:, 0],
        "count": np.round(5 + X[:, 1]).astype(np.int64),
        "colour": pd.Categorical(np.where(rng.random(len(y)) < 0.8, np.array(["r", "g", "b", "b"])[y], "r")),
        "word": np.array(["one", "two", "three", "four"], dtype=object)[y],
        "yes": y > 1,
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(7 * y + rng.integers(7, size=len(y)), unit="D"),
        "gaps": np.where(y == 3, np.nan, X[:, 2]),
        "id": [f"row {place}" for place in range(len(y))],
    })  # fmt: skip
    frame.index = frame.index + 1000
    return frame, pd.Series(np.array(["a", "b", "c", "rare"])[y], name="kind", index=frame.index)


# --- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"demixing": FLOW}, {"augmentation": "permutation"}], ids=str)
def test_same_seed_gives_the_same_bits(rows, options):
    X, y = rows
    first, again, other = (
        ECRTSampler(random_state=seed, **options).fit_resample(X, y)[0].tobytes() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_real_rows_come_first_and_stay_what_they_are(rows):
    X, y = rows
    X_more, y_more = ECRTSampler(random_state=0).fit_resample(X, y)
    assert (X_more[: len(X)] == X).all()
    assert (y_more[: len(y)] == y).all()
    assert Counter(y_more.tolist()) == dict.fromkeys(range(4), 90)


def test_sampling_strategy_is_that_of_imbalanced_learn(rows):
    X, y = rows
    for strategy, counts in (("minority", [90, 80, 70, 90]), ({3: 20}, [90, 80, 70, 20]), ({}, [90, 80, 70, 12])):
        sampler = ECRTSampler(sampling_strategy=strategy, random_state=0)
        assert np.bincount(sampler.fit_resample(X, y)[1]).tolist() == counts
        assert len(sampler.synthetic_) == sum(counts) - len(y)


def test_a_part_of_a_row_is_refused_by_name(rows):
    assert ECRTSampler(sampling_strategy={3: 40.0}, random_state=0).fit_resample(*rows)[1].tolist().count(3) == 40
    with pytest.raises(InputError, match=r"sampling_strategy asks for 28\.5 synthetic rows of 3"):
        ECRTSampler(sampling_strategy={3: 40.5}).fit_resample(*rows)


@pytest.mark.parametrize("augmentation", ["auto", "kernel", "pairs", "permutation", "parametric", "borrowed"])
def test_provenance_names_rows_of_the_class(rows, augmentation):
    X, y = rows
    sampler = ECRTSampler(augmentation=augmentation, sampling_strategy="minority", random_state=0)
    _, y_more = sampler.fit_resample(X, y)
    assert len(sampler.sample_indices_) == len(y_more)
    assert sampler.sample_indices_[: len(y)].tolist() == list(range(len(y)))
    assert (y[sampler.sample_indices_] == y_more).all()
    for came_from in sampler.synthetic_:
        assert len(came_from) >= 2
        assert len(set(came_from.tolist())) == len(came_from)
        assert (y[came_from] == 3).all()


def test_a_permuted_row_has_the_sources_of_the_rows_it_came_from(rows):
    """By a way of its own: the sources of a transformer fitted on the same rows."""
    X, y = rows
    sampler = ECRTSampler(demixing="linear", augmentation="permutation", sampling_strategy="minority", random_state=0)
    X_more, _ = sampler.fit_resample(X, y)
    inside = ((X_more > X.min(axis=0)) & (X_more < X.max(axis=0))).all(axis=1)[len(y) :]
    assert inside.any()
    transformer = ECRTTransformer(demixing="linear", random_state=0).fit(X, y)
    s, new = transformer.transform(X), transformer.transform(X_more[len(y) :])
    for row in np.flatnonzero(inside):
        donors = s[sampler.synthetic_[row]]
        assert (np.abs(donors - new[row]).min(axis=0) < 1e-9).all()


def test_fewer_sources_than_columns_keep_the_rest_of_a_row(rows):
    X, y = rows
    sampler = ECRTSampler(demixing=Linear(n_sources=1), sampling_strategy="minority", random_state=0)
    new = sampler.fit_resample(X, y)[0][len(y) :]
    assert np.linalg.matrix_rank(new - new.mean(axis=0)) == 3


def test_a_class_with_a_single_row(rows):
    X, y = rows
    some = np.flatnonzero((y < 3) | (np.arange(len(y)) == len(y) - 1))
    sampler = ECRTSampler(sampling_strategy="minority", random_state=0)
    X_more, y_more = sampler.fit_resample(X[some], y[some])
    assert Counter(y_more.tolist())[3] == 90
    assert len(np.unique(X_more[y_more == 3], axis=0)) == 90
    assert {tuple(one.tolist()) for one in sampler.synthetic_} == {(len(some) - 1,)}


# --- which rows are emitted --------------------------------------------------------------------------------------


class Wild(Augmentation):
    """Half of the sources are far out."""

    kind = "wild"

    def draw(self, sources, y_b, generator):
        far = torch.arange(len(y_b))[:, None] % 2 * 50.0
        return sources.s_nd[sources.row_k[sources.start_m[y_b]]] + far


class Lost(Augmentation):
    """All sources are far out."""

    kind = "lost"

    def draw(self, sources, y_b, generator):
        return sources.samples(y_b, generator) + 1e6


def test_rows_without_support_are_not_emitted_and_the_share_is_reported(rows):
    X, y = rows
    sampler = ECRTSampler(augmentation=Wild(), sampling_strategy={3: 40}, demixing="linear", random_state=0)
    X_more, y_more = sampler.fit_resample(X, y)
    assert (y_more == 3).sum() == 40
    assert np.abs(X_more[len(y) :] - X[y == 3][0]).max() < 1e-6
    assert 0.4 < sampler.refused_[3] < 0.6


@pytest.mark.parametrize("kind", ["category", "bool", "int8"])
def test_a_class_in_which_every_row_has_copies_has_synthetic_rows(kind):
    y = np.repeat([0, 1, 2, 3], [100, 80, 60, 20])
    X = pd.DataFrame(np.random.default_rng(0).random((len(y), 2)) < 0.2 + 0.15 * y[:, None], columns=["a", "b"])
    resampled, labels = ECRTSampler(random_state=0).fit_resample(X.astype(kind), y)
    assert Counter(labels.tolist()) == dict.fromkeys(range(4), 100)
    assert not set(map(tuple, resampled[260:].to_numpy())) - set(map(tuple, X.astype(kind).to_numpy()))


def test_what_cannot_be_drawn_is_said(rows):
    X, y = rows
    sampler = ECRTSampler(augmentation=Lost(), sampling_strategy={3: 40}, random_state=0)
    with pytest.warns(ECRTWarning, match="Class 3 gets 0 synthetic rows instead of 28: 100%"):
        X_more, y_more = sampler.fit_resample(X, y)
    assert len(X_more) == len(y_more) == len(y)
    assert sampler.refused_ == {3: 1.0}


def test_numbers_stay_within_their_columns_and_whole(rows):
    X, y = rows
    X = np.column_stack([np.abs(X[:, 0]), np.round(X[:, 1]), np.where(X[:, 2] > 0, X[:, 2], 0.0)])
    X_more, _ = ECRTSampler(sampling_strategy=dict.fromkeys(range(4), 200), random_state=0).fit_resample(X, y)
    assert (X_more >= 0)[:, [0, 2]].all()
    assert (X_more[:, 1] == np.round(X_more[:, 1])).all()
    assert (X_more[:, 1].min(), X_more[:, 1].max()) == (X[:, 1].min(), X[:, 1].max())
    zero = X[:, 2] == 0
    assert zero[y == 0].mean() > 0.2
    assert (X_more[len(y) :, 2] == 0).any()


def test_copies_of_one_row_are_no_end_of_a_column():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.repeat([0, 1], [250, 50])
    X[y == 1] *= 2
    sampler = ECRTSampler(augmentation="parametric", sampling_strategy={1: 500}, random_state=0)
    for times in (1, 2):
        new = sampler.fit_resample(X, y, sample_weight=np.full(len(y), times))[0][times * len(y) :]
        assert (new < X.min(axis=0)).any(axis=0).all()
        assert (new > X.max(axis=0)).any(axis=0).all()
    # All rows at the end of a single column are copies, and yet many.
    X = np.minimum(X[:, :1], 1.5)
    X_more, _ = sampler.fit_resample(X, y)
    assert X_more.max() == 1.5


# --- tables ------------------------------------------------------------------------------------------------------


def test_a_data_frame_keeps_names_types_and_levels(table):
    X, y = table
    sampler = ECRTSampler(random_state=0)
    X_more, y_more = sampler.fit_resample(X, y)
    assert X_more.dtypes.tolist() == X.dtypes.tolist()
    assert list(X_more) == list(X)
    assert y_more.name == "kind"
    pd.testing.assert_frame_equal(X_more.iloc[: len(X)], X.reset_index(drop=True))
    new = X_more.iloc[len(X) :]
    rare = new[(y_more.iloc[len(X) :] == "rare").to_numpy()]
    assert len(rare) == 78
    assert set(rare["word"]) == {"four"}
    assert set(rare["colour"]) <= {"b", "r"}
    assert rare["yes"].all()
    assert rare["gaps"].isna().all()
    assert set(new["day"]) <= set(X["day"])
    assert set(new["id"]) <= set(X["id"])
    assert len(set(rare["size"])) > 70


def test_categories_are_those_of_most_of_the_nearest_rows(table):
    X, y = table
    sampler = ECRTSampler(augmentation=Kernel(width=0.1), sampling_strategy="minority", random_state=0)
    X_more, _ = sampler.fit_resample(X[["size", "gaps", "colour"]].fillna(0.0), y)
    for place, came_from in enumerate(sampler.synthetic_):
        found = Counter(X["colour"].iloc[came_from])
        assert found[X_more["colour"].iloc[len(y) + place]] >= max(found.values()) - 1  # the donor may be no neighbour


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries(table, library):
    X, y = table
    X = X.drop(columns=["day"]).reset_index(drop=True)
    if library == "polars":
        other = pytest.importorskip("polars")
        given, labels = other.from_pandas(X), other.Series("kind", y.tolist())
        assert given["gaps"].null_count() > 0
    else:
        other = pytest.importorskip("pyarrow")
        given, labels = other.Table.from_pandas(X, preserve_index=False), other.chunked_array([y.tolist()])
    X_more, y_more = ECRTSampler(random_state=0).fit_resample(given, labels)
    assert type(X_more) is type(given)
    assert type(y_more) is type(labels)
    assert X_more.schema == given.schema
    assert len(X_more) == len(y_more) == 4 * 90
    assert X_more[: len(X)].equals(given)
    plain, _ = ECRTSampler(random_state=0).fit_resample(X, y.to_numpy())
    assert X_more.to_pandas()["size"].tolist() == plain["size"].tolist()
    assert X_more.to_pandas()["count"].tolist() == plain["count"].tolist()
    assert X_more.to_pandas()["colour"].tolist() == plain["colour"].tolist()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_rows_stay_sparse(kind):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [200, 150, 30])
    X = rng.poisson(0.2 + 0.5 * (np.arange(12) % 3 == y[:, None])).astype(float)
    X_more, _ = ECRTSampler(random_state=0).fit_resample(kind(X), y)
    assert type(X_more) is kind
    new = X_more.toarray()[len(y) :]
    assert (new == np.round(new)).all()
    assert (new >= 0).all()
    assert (new == 0).mean() > 0.6


# --- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("augmentation", ["auto", "pairs", "permutation", "parametric", "borrowed", "function"])
@pytest.mark.parametrize("demixing", ["linear", FLOW], ids=["linear", "flow"])
def test_weights_are_as_good_as_repeated_rows(rows, demixing, augmentation):
    X, y = rows
    times = np.random.default_rng(0).integers(0, 4, len(y))
    place = np.repeat(np.arange(len(y)), times)
    given = []

    def resample(s, n, rng):
        given.append(len(s))
        return s[rng.integers(len(s), size=n)]

    drawn_by = resample if augmentation == "function" else augmentation
    strategy = {3: 100}
    sampler = ECRTSampler(demixing=demixing, augmentation=drawn_by, sampling_strategy=strategy, random_state=0)
    X_more, y_more = sampler.fit_resample(X, y, sample_weight=times)
    again = clone(sampler)
    X_again, y_again = again.fit_resample(X[place], y[place])
    assert X_more.tobytes() == X_again.tobytes()
    assert (y_more == y_again).all()
    assert np.bincount(y_more)[3] == 100
    assert (X_more[: len(place)] == X[place]).all()
    assert (sampler.sample_indices_[: len(place)] == place).all()
    assert (sampler.sample_indices_ == place[again.sample_indices_]).all()
    assert all(set(y[came_from]) == {3} and times[came_from].all() for came_from in sampler.synthetic_)
    assert all(n == times[y == 3].sum() for n in given)


@pytest.mark.parametrize("augmentation", ["kernel", "pairs"])
def test_synthetic_rows_of_a_class_with_copies_are_no_copies(rows, augmentation):
    """Each row occurs ten times: its nearest rows are not its own copies, and no copy chooses the width."""
    X, y = rows
    once, many = (
        ECRTSampler(
            augmentation=augmentation, demixing="linear", sampling_strategy={3: 300}, random_state=0
        ).fit_resample(X, y, sample_weight=np.where(y == 3, times, 1))[0][-150:]
        for times in (1, 10)
    )
    assert len(np.unique(many.round(9), axis=0)) > 140
    assert np.linalg.norm(many.std(axis=0) / once.std(axis=0) - 1) < 0.5


def test_heavy_rows_are_drawn_from_more_often(rows):
    X, y = rows
    heavy = np.flatnonzero(y == 3)[0]
    times = np.where(np.arange(len(y)) == heavy, 50, 1)
    sampler = ECRTSampler(demixing="linear", sampling_strategy={3: 261}, random_state=0)
    sampler.fit_resample(X, y, sample_weight=times)
    assert np.mean(sampler.sample_indices_[-200:] == heavy) > 0.6


@pytest.mark.parametrize("library", ["list", "pandas", "polars", "pyarrow", "csc", "coo", "bsr"])
def test_rows_of_every_kind_are_repeated(rows, library):
    X, y = rows
    times = np.arange(len(y)) % 3
    frame = pd.DataFrame(X, columns=list("abc"))
    is_sparse = library in ("csc", "coo", "bsr")
    other = X.tolist() if library == "list" else sparse.csr_matrix(X).asformat(library) if is_sparse else frame
    if library in ("polars", "pyarrow"):
        module = pytest.importorskip(library)
        other = module.from_pandas(frame) if library == "polars" else module.Table.from_pandas(frame)
    X_more, _ = ECRTSampler(random_state=0).fit_resample(other, y, sample_weight=times)
    assert type(X_more) is type(other)
    plain = X_more.toarray() if is_sparse else np.asarray(X_more)
    plain = plain.T if library == "pyarrow" and plain.shape[0] == 3 else plain
    assert (plain[: times.sum()] == np.repeat(X, times, axis=0)).all()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (0.5, "ECRTSampler takes whole numbers as sample_weight, since rows are repeated, and one of them is 0.5"),
        (1 + 1e-7, "one of them is 1.0000001. Round them"),
        (10**6, "252 rows would become 252,000,000, more than the 100,000"),
        (-1, "row 0 has the weight -1"),
    ],
)
def test_weights_that_cannot_repeat_rows_are_refused(rows, weight, message):
    X, y = rows
    with pytest.raises(InputError, match=message):
        ECRTSampler().fit_resample(X, y, sample_weight=np.full(len(y), weight))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ECRTSampler().fit_resample(X, y[:-1], sample_weight=np.ones(len(y) - 1))
    with pytest.raises(ValueError, match="got None"):
        ECRTSampler().fit_resample(X, None, sample_weight=np.ones(len(y)))


# --- in use ------------------------------------------------------------------------------------------------------


def test_pipeline_and_grid_search(rows):
    X, y = rows
    pipeline = make_pipeline(ECRTSampler(random_state=0), LogisticRegression())
    grid = {"ecrtsampler__augmentation": [Kernel(width=0.2), "pairs"], "ecrtsampler__demixing": ["linear", "none"]}
    search = GridSearchCV(pipeline, grid, cv=3, scoring="balanced_accuracy").fit(X, y)
    assert search.best_score_ > 0.9
    again = clone(search.best_estimator_).fit(X, y)
    assert (again.predict(X) == search.predict(X)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augmentation": "none"}, "would have no effect: it needs a part that draws"),
        ({"augmentation": NoAugmentation()}, "would have no effect: it needs a part that draws"),
        ({"demixing": Linear(signal_weights=False)}, "would have no effect: it needs a head"),
        ({"augmentation": Parametric(weight=0.3)}, "ECRTClassifier for its weight: rows are counted"),
        ({"augmentation": Parametric(weighting="added", n_synthetic=3)}, "for its n_synthetic and weighting"),
        (
            {"augmentation": "borrowed", "sampling_strategy": dict.fromkeys(range(4), 100)},
            "no class has residuals to lend",
        ),
        ({"demixing": "magic"}, "demixing"),
    ],
)
def test_options_without_effect_are_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        ECRTSampler(random_state=0, **options).fit_resample(*rows)


def test_hostile_input_is_refused(rows):
    X, y = rows
    with pytest.raises(InputError, match="infinity"):
        ECRTSampler().fit_resample(np.where(X > 9, np.inf, X), y)
    with pytest.raises(ValueError, match="NaN"):
        ECRTSampler().fit_resample(X, np.array(["a", None] * (len(y) // 2), dtype=object))
