"""ECRTRegressor as its users meet it, and the parts it is made of against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils.data import StackDataset, TensorDataset

from ecrt import Donors, Encoder, Flow, InputError, Linear, LinearHead, MLPHead, NoAugmentation, NoDemixing, load
from ecrt.augmentation import donor_weights, draw_from_donors, interpolate, rows_between
from ecrt.data.minority import TargetRegions, quantile_bins, target_roles
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.losses import regression_loss
from ecrt.metrics import regression_metrics, target_groups
from ecrt.stages import demix
from ecrt.stages.heads import HeadSample
from ecrt.stages.regression import NumberTarget, Plan, _Search, draw_targets
from ecrt.training import Progress

SMALL_FLOW = {
    "demixing": Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=8),
    "head": ["linear", MLPHead(epochs=8)],
}
CONFIGURATIONS = {
    "linear": {"demixing": "linear", "head": "linear"},
    "flow": {
        "demixing": Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=8),
        "head": ["linear", MLPHead(epochs=8, hidden=(16,))],
    },
}


CHECKED = [
    {"demixing": "linear", "head": LinearHead(weight_decay=1e-3), "precision": "float32"},
    {"encoder": Encoder("mlp", n_features=8), "demixing": "linear", "head": LinearHead(weight_decay=1e-3)},
    CONFIGURATIONS["flow"],
]


@parametrize_with_checks([ECRTRegressor(**options) for options in CHECKED])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = 100 + 20 * np.exp(X[:, 0]) + 3 * X[:, 1] + rng.normal(size=500)
    return X, y


@pytest.mark.parametrize(
    "options",
    [
        *CONFIGURATIONS.values(),
        {"demixing": "linear", "augmentation": "interpolated", "head": MLPHead(loss="absolute", epochs=15)},
        {
            "demixing": "none",
            "augmentation": "donors",
            "head": LinearHead(loss="huber", loss_options={"delta": 0.5}),
            "region_mass": 0.5,
        },
        {"demixing": Linear(n_sources=2), "head": LinearHead(loss="absolute"), "n_bins": 6},
        {"encoder": Encoder("mlp", epochs=4, n_features=5), "demixing": "linear", "head": "linear"},
        {"demixing": Linear(learn_from="majority", source_prior="shared"), "head": LinearHead(weight_decay=0.1)},
    ],
)
def test_every_option_gives_a_whole_regressor(table, options):
    X, y = table
    reg = ECRTRegressor(random_state=0, **options).fit(X, y)
    assert reg.score(X, y) > 0.4
    assert reg.predict(X).shape == y.shape
    assert reg.transform(X).shape == (len(X), reg.get_feature_names_out().size)
    for space in ("source", "feature"):
        drawn, targets = reg.sample(3, y=[120.0, 300.0], space=space, random_state=0)
        assert np.isfinite(drawn).all()
        assert targets.tolist() == [120.0] * 3 + [300.0] * 3
    assert reg.diagnostics_.round_trip_error < 1e-6 or reg.n_sources
    assert all(np.isfinite(found["all"]) for found in reg.history_["candidates"].values())


def test_auto_tries_plain_regression_first(table):
    X, y = table
    reg = ECRTRegressor(
        demixing=[NoDemixing(), Linear(), Flow(critic_width=8, hidden=(8, 8), epochs=5)],
        head=["linear", MLPHead(epochs=5, hidden=(16,))],
        random_state=0,
    ).fit(X, y)
    tried = list(reg.history_["candidates"])
    assert tried[0] == "none, linear, mass 0, augmentation none"
    assert {name.split(",")[0] for name in tried} == {"none", "linear", "flow"}
    sources = f"{reg.demixing_}, weighted" if reg.weighted_ else reg.demixing_
    chosen = f"{sources}, {reg.head_name_}, mass {reg.region_mass_:g}, augmentation {reg.augmentation_}"
    assert reg.history_["chosen"] == chosen
    assert chosen in tried
    assert any(name.endswith("interpolated") for name in tried)


def test_units_of_y_whole_numbers_and_several_outputs(table):
    X, y = table
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0)
    in_thousands = clone(reg).fit(X, 1000 * y + 5e4).predict(X)
    np.testing.assert_allclose(in_thousands, 1000 * reg.fit(X, y).predict(X) + 5e4, rtol=1e-5)
    whole = clone(reg).fit(X, y.round().astype(int)).predict(X)
    assert whole.dtype == np.float64
    np.testing.assert_allclose(whole, clone(reg).fit(X, y.round()).predict(X))
    both = np.column_stack([y, X[:, 2]])
    reg = ECRTRegressor(demixing="linear", head="linear", augmentation="interpolated", random_state=0).fit(X, both)
    assert reg.predict(X).shape == both.shape
    assert reg.score(X, both) > 0.5
    assert reg.sample(2, y=both[:3], random_state=0)[1].shape == (6, 2)
    assert clone(reg).fit(X, y[:, None]).predict(X).shape == (500, 1)


def test_same_seed_same_result(table):
    X, y = table
    options = {
        "demixing": Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=8),
        "head": MLPHead(epochs=8, hidden=(16,)),
    }
    first, second = (ECRTRegressor(random_state=1, **options).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_tables_gaps_sparse_pipeline_and_grid_search(table):
    X, y = table
    frame = pd.DataFrame(X.copy(), columns=list("abcd"))
    frame["kind"] = np.where(X[:, 1] > 0, "up", "down")
    frame.loc[::7, "a"] = np.nan
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(frame, pd.Series(y))
    assert np.isfinite(reg.predict(frame)).all()
    assert clone(reg).fit(sparse.csr_array(X), y).score(X, y) > 0.5
    pipeline = make_pipeline(StandardScaler(), reg)
    search = GridSearchCV(pipeline, {"ecrtregressor__augmentation": ["none", "donors"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.4


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda X, y: (X, None), "requires y"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers"),
        (lambda X, y: (X, np.where(y > y.mean(), np.nan, y)), "NaN"),
        (lambda X, y: (X, np.array(["a", "b"])[(y > 0).astype(int)]), "could not convert"),
        (lambda X, y: (X, np.datetime64("2020-01-01") + np.arange(len(X))), "y holds dates or times"),
        (lambda X, y: (X, pd.Series(pd.to_timedelta(y, unit="s"))), "y holds dates or times"),
        (lambda X, y: (X, pd.DataFrame({"a": pd.date_range("2020-01-01", periods=len(X))})), "y holds dates or times"),
        (lambda X, y: (X, pd.date_range("2020-01-01", periods=len(X), tz="UTC")), "y holds dates or times"),
        (lambda X, y: (np.ones_like(X), y), "constant"),
        (lambda X, y: (X, np.zeros((len(X), 0))), "0 feature"),
    ],
)
def test_bad_input_is_refused(table, change, problem):
    with pytest.raises((InputError, ValueError), match=problem):
        ECRTRegressor(demixing="linear", head="linear").fit(*change(*table))


def test_a_dataset_of_rows_and_numbers(table):
    X, y = table
    options = {"demixing": "linear", "head": "linear", "random_state": 0}
    plain = ECRTRegressor(**options).fit(X, y)
    dataset = TensorDataset(torch.tensor(X), torch.tensor(y))
    reg = ECRTRegressor(**options).fit(dataset)
    np.testing.assert_allclose(reg.predict(dataset), plain.predict(X), rtol=1e-6)
    both = ECRTRegressor(**options).fit(TensorDataset(torch.tensor(X), torch.tensor(np.column_stack([y, -y]))))
    assert both.predict(dataset).shape == (500, 2)
    with pytest.raises(InputError, match="do not pass y"):
        ECRTRegressor().fit(dataset, y)
    with pytest.raises(InputError, match="Item 0 of the dataset: y is tensor"):
        ECRTRegressor().fit(TensorDataset(torch.tensor(X), torch.full((500,), torch.nan)))
    with pytest.raises(InputError, match="y of item 0 of the dataset holds dates"):
        ECRTRegressor().fit(StackDataset(torch.tensor(X), [np.datetime64("2020-01-01")] * 500))


def test_sample_refuses_targets_of_another_shape(table):
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(*table)
    with pytest.raises(InputError, match="1 for each target"):
        reg.sample(2, y=[[1.0, 2.0]])


def test_constant_target(table):
    reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(table[0], np.full(500, 7.0))
    np.testing.assert_allclose(reg.predict(table[0]), 7.0, atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_files_give_back_the_same_regressor(table, tmp_path, several):
    X, y = table
    y = np.column_stack([y, X[:, 0]]) if several else y
    reg = ECRTRegressor(
        demixing=Flow(critic_width=8, n_restarts=1, hidden=(16, 16), epochs=8),
        head=MLPHead(hidden=(16,), epochs=8),
        random_state=0,
    ).fit(X, y)
    reg.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, ECRTRegressor)
    np.testing.assert_array_equal(again.predict(X), reg.predict(X))
    np.testing.assert_array_equal(again.transform(X), reg.transform(X))
    drawn, drawn_again = (one.sample(2, y=y[:3], random_state=0)[0] for one in (reg, again))
    np.testing.assert_array_equal(drawn, drawn_again)
    assert again.get_params() == reg.get_params()
    assert again.history_["candidates"] == reg.history_["candidates"]
    assert (again.demixing_, again.head_name_, again.region_mass_) == (reg.demixing_, reg.head_name_, reg.region_mass_)
    assert "regress" in (tmp_path / "model" / "MODEL_CARD.md").read_text().lower()


# --- parts --------------------------------------------------------------------------------------------


def test_regions_are_rare_by_density_and_not_by_bins():
    y = np.concatenate([np.linspace(0, 1, 960), np.linspace(1, 5, 40)])[:, None]
    regions = TargetRegions.learn(y, 10)
    assert regions.counts.sum() == 1000
    assert regions.rare.tolist() == [False] * 2 + [True] * 8
    np.testing.assert_allclose(regions.restore(regions.standardise(y)), y, atol=1e-12)
    assert regions.region_of(np.array([[-9.0], [99.0]])).tolist() == [0, 9]
    bins = quantile_bins(regions.position(y), 20)
    assert set(np.bincount(bins)) == {50}
    roles = target_roles(bins, regions.is_rare(y), demix_on="majority")
    assert roles.minority.tolist() == [False] * 19 + [True]
    assert roles.demixed_on.tolist() == [True] * 19 + [False]
    assert target_roles(bins, regions.is_rare(y)).demixed_on.all()
    drawn = draw_targets(y, regions, 200, np.random.default_rng(0))
    assert regions.is_rare(drawn).all()


def test_quantile_bins_of_ties():
    assert quantile_bins(np.array([0.0, 0.0, 0.0, 0.0, 1.0]), 4).tolist() == [0, 0, 0, 0, 1]
    assert quantile_bins(np.zeros(5), 4).tolist() == [0] * 5


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_donor_weights_against_a_loop(n_outputs):
    rng = np.random.default_rng(0)
    y, targets = rng.normal(size=(30, n_outputs)), rng.normal(size=(5, n_outputs))
    weights = donor_weights(y, targets, 7)
    for m, target in enumerate(targets):
        distance = [float(np.sqrt(sum((a - b) ** 2 for a, b in zip(target, one, strict=True)))) for one in y]
        width = sorted(distance)[6] / 2
        kernel = [np.exp(-(d**2) / (2 * width**2)) for d in distance]
        np.testing.assert_allclose(weights[m], np.array(kernel) / sum(kernel), rtol=1e-9)


def test_donors_give_the_moments_of_sources_at_the_target():
    """Coordinates are independent, follow their mean in y, and keep the spread they have there."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-2, 2, size=(4000, 1))
    shared = rng.normal(size=4000)
    s = np.column_stack([3 * y[:, 0] + 0.5 * shared, -y[:, 0] + 0.2 * shared])
    drawn = draw_from_donors(s, y, np.full((2000, 1), 1.0), 100, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), [3, -1], atol=0.05)
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 0.2], rtol=0.1)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.1


def test_donors_give_whole_rows_where_sources_depend_on_each_other():
    rng = np.random.default_rng(0)
    y = rng.uniform(-2, 2, size=(3000, 1))
    shared = rng.normal(size=3000)
    s = np.column_stack([3 * y[:, 0] + 0.5 * shared, -y[:, 0] + 0.2 * shared])
    drawn = draw_from_donors(s, y, np.full((500, 1), 1.0), 100, rng, jointly=True)
    np.testing.assert_allclose((drawn[:, 0] - 3) / 0.5, (drawn[:, 1] + 1) / 0.2, atol=0.2)
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 0.2], rtol=0.15)


def test_interpolated_rows_lie_between_neighbours():
    rng = np.random.default_rng(0)
    s = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 50])
    y = s[:, :1] * 2 + 1
    between, targets = interpolate(s, y, 500, rng)
    np.testing.assert_allclose(targets, between[:, :1] * 2 + 1)  # a line stays a line
    assert not ((between[:, 0] > 5) & (between[:, 0] < 45)).any()  # nothing between groups that are far apart
    assert interpolate(s[:1], y[:1], 5, rng)[0].shape == (0, 2)


def test_rows_between_dwell_on_rare_targets(table):
    X, y = table[0], table[1][:, None]
    regions = TargetRegions.learn(y)
    rare = regions.is_rare(y)
    s, targets = rows_between(X, y, regions, 20, np.random.default_rng(0))
    assert len(s) == len(targets) == len(y) + 6 * rare.sum()
    assert np.isfinite(s).all()
    assert y.min() <= targets.min()
    assert targets.max() <= y.max() + 1e-9
    moved = targets[-3 * rare.sum() :]
    assert regions.is_rare(moved).mean() > 0.98  # but for rounding at the edge of a region
    alike = np.full((40, 1), 7.0)
    assert len(rows_between(X[:40], alike, TargetRegions.learn(alike), 20, np.random.default_rng(0))[0]) == 40


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_augmentation_leaves_the_mass_of_regions_as_it_is(table, power):
    X, y = table[0], table[1][:, None]
    regions = TargetRegions.learn(y)
    bins = quantile_bins(regions.position(y), 10)
    rows = np.arange(len(y))
    demixed = demix(
        X, bins, train_rows=rows, held_out_rows=rows, demixed_on=np.ones(10, dtype=bool), config=Linear(),
        rng=np.random.default_rng(0), device=torch.device("cpu"),
    )  # fmt: skip
    found = []
    for kind in ("none", "donors"):
        search = _Search(y, bins, regions, np.random.default_rng(0), torch.device("cpu"), Progress())
        how = NoAugmentation() if kind == "none" else Donors()
        sample = search.sample(Plan(Linear(), MLPHead(), power, how), demixed, rows)
        region = regions.region_of(regions.restore(sample.y.double().numpy()))
        found.append(np.bincount(region, weights=sample.weight.numpy(), minlength=50))
        assert len(sample.y) == (len(y) if kind == "none" else len(y) + len(y) // 2)
    np.testing.assert_allclose(found[0].sum(), 1, rtol=1e-5)
    # Targets at an edge may change sides in float32.
    np.testing.assert_allclose(found[0], found[1], atol=2e-3)
    mass = np.where(regions.counts > 0, np.maximum(regions.counts, 1.0) ** (1 - power), 0)
    np.testing.assert_allclose(found[0], mass / mass.sum(), atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["squared", "absolute", "huber"])
def test_losses_against_a_loop(name, dtype):
    generator = torch.Generator().manual_seed(0)
    predicted, y = (3 * torch.randn(9, 2, generator=generator, dtype=dtype) for _ in range(2))
    found = regression_loss(name, predicted, y, 0.7)
    for row in range(9):
        total = 0.0
        for output in range(2):
            e = abs(float(predicted[row, output] - y[row, output]))
            huber = 0.5 * e**2 if e <= 0.7 else 0.7 * (e - 0.35)
            total += {"squared": e**2, "absolute": e, "huber": huber}[name]
        assert found[row].item() == pytest.approx(total / 2, rel=1e-5)
    with pytest.raises(InputError, match="use 'squared'"):
        regression_loss("cubic", predicted, y)


def test_ridge_is_where_the_gradient_vanishes():
    generator = torch.Generator().manual_seed(0)
    s, y = (torch.randn(40, k, generator=generator, dtype=torch.float64) for k in (3, 2))
    w = torch.rand(40, generator=generator, dtype=torch.float64)
    sample = HeadSample(s, y, w / w.sum(), torch.zeros(40, dtype=torch.bool))
    head = NumberTarget(y.numpy()).linear_fitter(LinearHead()).fit(sample, 0.3)
    loss = regression_loss("squared", head(s), y) @ sample.weight + 0.15 * (head.weight**2).sum()
    loss.backward()
    assert max(p.grad.abs().max().item() for p in head.parameters()) < 1e-9


def test_metrics_against_a_loop():
    rng = np.random.default_rng(0)
    y_train, y = np.exp(rng.normal(size=3000)), np.exp(rng.normal(size=400))
    predicted = y + rng.normal(size=400)
    low, high = y_train.min(), y_train.max()

    def region(value):
        return min(max(int((value - low) / (high - low) * 50), 0), 49)

    counts = [0] * 50
    for value in y_train:
        counts[region(value)] += 1
    groups = {"all": [], "many": [], "medium": [], "few": []}
    for truth, guess in zip(y, predicted, strict=True):
        n = counts[region(truth)]
        groups["many" if n > 100 else "medium" if n >= 20 else "few"].append(abs(truth - guess))
        groups["all"].append(abs(truth - guess))
    found = regression_metrics(predicted, y, y_train)
    for name, errors in groups.items():
        product = 1.0
        for error in errors:
            product *= error ** (1 / len(errors))
        assert found[name]["rows"] == len(errors)
        assert found[name]["mae"] == pytest.approx(sum(errors) / len(errors))
        assert found[name]["rmse"] == pytest.approx((sum(e**2 for e in errors) / len(errors)) ** 0.5)
        assert found[name]["gm"] == pytest.approx(product)
    assert np.isnan(regression_metrics(y[:0], y[:0], y_train)["few"]["mae"])
    assert set(target_groups(y_train, y)) == {"many", "medium", "few"}
