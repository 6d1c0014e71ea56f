"""The parts of a comparison: methods, splits, warnings, tuning, tests and what is kept on disk."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from sklearn.datasets import make_classification

from ecrt.checkpoints import digest_of
from ecrt.comparison import DEFAULT_METHODS, METHODS, choose_methods
from ecrt.comparison.methods import Method
from ecrt.comparison.protocol import OutOfTime, Store, time_limit, tune
from ecrt.comparison.results import choose_measure
from ecrt.comparison.splits import make_splits, read_times, warnings_of
from ecrt.disk import locked
from ecrt.errors import InputError
from ecrt.metrics import corrected_estimate, holm, paired
from ecrt.rivals import BaselineClassifier
from ecrt.rivals.base import Choice, Number

pytest.importorskip("optuna", reason="Optuna is not installed")


# --- methods -----------------------------------------------------------------------------------------------------


def table(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    X, y = make_classification(
        n, n_classes=3, n_informative=4, n_redundant=0, n_features=5, weights=[0.7, 0.2, 0.1], random_state=0
    )
    frame = pd.DataFrame(X.copy(), columns=list("abcde"))
    frame["kind"] = np.where(X[:, 0] > 0, "up", "down")
    frame.loc[::17, "b"] = np.nan
    return frame, y


@pytest.mark.parametrize("name", [*DEFAULT_METHODS, "smote", "lda"])
def test_methods_take_a_table_with_words_and_gaps_and_a_class_of_one_row(name: str) -> None:
    frame, y = table(90)
    y[0], y[1:] = 3, np.where(y[1:] == 3, 0, y[1:])  # class 3 has one row
    method = METHODS[name]
    model = method.build(method.starts[0], 0).fit(frame, y)
    proba = model.predict_proba(frame)
    assert proba.shape == (90, 4)
    assert np.allclose(proba.sum(axis=1), 1)


@pytest.mark.parametrize("name", METHODS)
def test_starts_lie_in_the_space(name: str) -> None:
    method = METHODS[name]
    assert method.starts
    for start in method.starts:
        assert set(start) == set(method.space)
        for key, value in start.items():
            part = method.space[key]
            assert value in part.values if isinstance(part, Choice) else part.low <= value <= part.high
        model = method.build(start, 0)
        if isinstance(model, BaselineClassifier):  # its own tests fit each of them; here the options must be its own
            model._check_parts(model._rules())
            assert {f"method__{name}": value for name, value in model.method.get_params().items()}.items() >= {
                key: value for key, value in start.items() if key.startswith("method__")
            }.items()


def test_probabilities_assume_the_prior_that_the_method_names() -> None:
    """Where features say nothing, the mean probability is the prior."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    y = (np.arange(400) < 40).astype(int)
    quick = {"balanced-forest": {"method__n_estimators": 50, "method__min_samples_leaf": 20}}
    for name in ("erm", "logit-adjusted", "weighted-logistic", "balanced-forest", "smote"):
        method = METHODS[name]
        model = method.build(method.starts[0] | quick.get(name, {}), 0).fit(X, y)
        fresh = pd.DataFrame(rng.normal(size=(2000, 2)), columns=["a", "b"])
        rare = model.predict_proba(fresh)[:, 1].mean()
        assert abs(rare - (0.5 if method.prior == "balanced" else 0.1)) < 0.1, name


def test_methods_are_chosen_by_name_and_unknown_ones_listed() -> None:
    assert tuple(choose_methods("default")) == DEFAULT_METHODS
    assert choose_methods("all") == METHODS
    assert tuple(choose_methods(["lda", "erm", "lda"])) == ("lda", "erm")
    with pytest.raises(InputError, match=r"'ecrd'; did you mean 'ecrt'\? Known: default, all, erm, "):
        choose_methods("erm,ecrd")
    with pytest.raises(InputError, match="No method is named"):
        choose_methods(" , ")


def test_metrics_are_chosen_by_name() -> None:
    assert choose_measure("Balanced-accuracy", 3) == "balanced_accuracy"
    assert choose_measure("roc_auc", 2) == "roc_auc"
    for name, n_classes in (("roc_auc", 3), ("top5", 4), ("nll_scaled", 2), ("f1", 2)):
        with pytest.raises(InputError, match="is not a metric for"):
            choose_measure(name, n_classes)


# --- splits ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 5), st.sampled_from([0.2, 0.25, 0.4]))
def test_stratified_splits_part_the_rows_and_keep_every_class_in_training(seed: int, n_seeds: int, size: float) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat([0, 1, 2], [60, 12, 2]))
    splits = make_splits(y, n_seeds=n_seeds, test_size=size)
    again = make_splits(y, n_seeds=n_seeds, test_size=size)
    assert len(splits) == n_seeds
    for (train, test, fitted, judged), same in zip(splits, again, strict=True):
        assert sorted([*train, *test]) == list(range(len(y)))
        assert set(y[train]) == {0, 1, 2}
        assert sorted([*fitted, *judged]) == sorted(train)
        assert abs(len(test) / len(y) - size) < 0.06
        assert np.array_equal(same.test, test)


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_groups_stay_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 30, 300)
    y = (rng.random(300) < 0.3).astype(np.int64)
    tests = []
    for train, test, fitted, judged in make_splits(y, groups=groups.astype(str), n_seeds=3):
        assert not set(groups[train]) & set(groups[test])
        assert not set(groups[fitted]) & set(groups[judged])
        tests.append(tuple(test))
    assert len(set(tests)) > 1


@given(st.integers(0, 1000), st.integers(1, 6))
def test_training_lies_before_test_in_time(seed: int, n_seeds: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 60, 240)
    y = (np.arange(240) % 3 == 0).astype(np.int64)
    tested: list[int] = []
    for train, test, fitted, judged in make_splits(y, times=times, n_seeds=n_seeds):
        assert times[train].max() < times[test].min()
        assert times[fitted].max() < times[judged].min()
        tested += test.tolist()
    assert len(tested) == len(set(tested))
    assert times[tested].max() == times.max()


def test_times_may_be_dates() -> None:
    found = read_times(["2021-05-30", "2021-05-31 12:00"])
    assert found[1] - found[0] == 1.5 * 24 * 3600
    with pytest.raises(InputError, match="time of row 1 is 'soon'"):
        read_times(["2021-05-30", "soon"])
    with pytest.raises(InputError, match="missing in 1 rows"):
        read_times([1.0, np.nan])


def test_splits_that_cannot_be_made_are_refused() -> None:
    y = np.repeat([0, 1], [30, 30])
    with pytest.raises(InputError, match="not both"):
        make_splits(y, groups=y, times=y, n_seeds=2)
    with pytest.raises(InputError, match="2 groups are too few"):
        make_splits(y, groups=y, n_seeds=2)
    with pytest.raises(InputError, match="hold one class only"):
        make_splits(y, times=np.arange(60), n_seeds=2)
    with pytest.raises(InputError, match=r"test_size=0\.9"):
        make_splits(y, n_seeds=2, test_size=0.9)
    with pytest.raises(InputError, match="group is missing in 1 rows"):
        make_splits(y, groups=[None, *range(59)], n_seeds=2)


# --- warnings ----------------------------------------------------------------------------------------------------


def warned(X: pd.DataFrame, y: np.ndarray, **options: Any) -> list[str]:
    return warnings_of(X, y, make_splits(y, n_seeds=5, **options), [f"c{at}" for at in range(y.max() + 1)])


def test_a_table_without_faults_is_not_warned_about() -> None:
    rng = np.random.default_rng(0)
    assert warned(pd.DataFrame(rng.normal(size=(400, 3))), np.repeat([0, 1], [300, 100])) == []


def test_warnings_have_figures() -> None:
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(200, 3)))
    (balanced,) = warned(numbers, np.repeat([0, 1], [110, 90]))
    assert "110 rows of 'c0', the largest class, and 90 of 'c1'" in balanced
    (few,) = warned(numbers, np.repeat([0, 1], [180, 20]))
    assert "1 of 2 classes has fewer than 10 test rows" in few
    assert "'c1' (4)" in few
    assert "One row of 'c1' moves balanced accuracy by 0.125" in few
    three = np.repeat([0, 1, 2], [100, 99, 1])
    untested = warnings_of(numbers, three, make_splits(three, n_seeds=3), ["a", "b", "c"])[-1]
    assert "'c' (0). Classes without test rows count for nothing" in untested
    doubled = pd.concat([numbers, numbers], ignore_index=True)
    (twins,) = warned(doubled, np.tile(np.repeat([0, 1], [140, 60]), 2))
    share = float(twins.split("%")[0])
    assert 70 < share < 90  # four fifths of the twins are in training
    assert f"({share:.1f}% with the same label)" in twins
    halves = np.repeat([0, 1], 100)
    assert "1 seed is too few" in warnings_of(numbers, halves, make_splits(halves, n_seeds=1), ["a", "b"])[-1]
    labels = np.repeat([0, 1, 0, 1, 2], [60, 40, 60, 20, 20])
    assert any(
        "Classes 'c2' are tested in a split that has none of them" in s
        for s in warned(numbers, labels, times=np.arange(200))
    )


def test_duplicates_on_one_side_are_no_matter() -> None:
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(200, 3)))
    doubled = pd.concat([numbers, numbers], ignore_index=True)
    y = np.tile(np.repeat([0, 1], [140, 60]), 2)
    assert warned(doubled, y, groups=np.tile(np.arange(200), 2)) == []


# --- tuning ------------------------------------------------------------------------------------------------------

TOY = Method(
    label="Toy", build=lambda parameters, seed: None, prior="balanced", reference="",
    space={"x": Number(0.01, 100.0, 50.0, log=True), "k": Number(1, 9, 2), "c": Choice((None, "a", 0.5), None)},
)  # fmt: skip
SAID = (np.zeros((1, 2)), np.zeros(1, dtype=np.int64))


def distance(parameters: Any) -> tuple[float, Any]:
    return abs(math.log(parameters["x"])) + abs(parameters["k"] - 5), (np.full((1, 2), parameters["x"]), SAID[1])


def tuned(objective: Any, folder: Path | None = None, **options: Any) -> Any:
    """What tuning found, and its predictions of validation rows."""
    chosen = {"higher_is_better": False, "seed": 3, "trials": 12, "budget": None} | options
    return tune(TOY, objective, folder=folder, **chosen)[:2]


def test_tuning_tries_the_start_first_and_takes_the_best() -> None:
    tried: list[dict[str, Any]] = []

    def objective(parameters: Any) -> tuple[float, Any]:
        tried.append(dict(parameters))
        return distance(parameters)

    found, predicted = tuned(objective)
    assert tried[0] == TOY.starts[0]
    assert found.trials["finished"] == len(tried) == 12
    assert found.validation == min(distance(parameters)[0] for parameters in tried)
    assert distance(found.parameters)[0] == found.validation
    assert predicted[0][0, 0] == found.parameters["x"]
    upside_down, _ = tuned(lambda parameters: (-distance(parameters)[0], SAID), higher_is_better=True)
    assert upside_down.parameters == found.parameters
    assert tuned(distance, seed=4)[0].parameters != found.parameters


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_tuning_that_was_killed_goes_on_as_if_it_had_not(stop_at: int, tmp_path: Path) -> None:
    calls: list[float] = []

    def killed(parameters: Any) -> tuple[float, Any]:
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(parameters["x"])
        return distance(parameters)

    with pytest.raises(KeyboardInterrupt):
        tuned(killed, tmp_path)
    before = len(calls)

    def counted(parameters: Any) -> tuple[float, Any]:
        calls.append(parameters["x"])
        return distance(parameters)

    (again, predicted), (at_once, expected) = tuned(counted, tmp_path), tuned(distance)
    assert before == stop_at
    assert len(calls) == 12  # no trial twice
    assert again == at_once
    assert np.array_equal(predicted[0], expected[0])


def test_trials_that_fail_are_counted_and_passed_over() -> None:
    def fragile(parameters: Any) -> tuple[float, Any]:
        if parameters["k"] < 6:
            raise ValueError("too few")
        return (float("nan"), SAID) if parameters["c"] == "a" else distance(parameters)

    found, _ = tuned(fragile)
    assert found.trials["finished"] + found.trials["failed"] == 12
    assert found.trials["failed"] > 0
    assert found.parameters["k"] >= 6
    assert found.error == ""

    def hopeless(parameters: Any) -> tuple[float, Any]:
        raise ValueError("never")

    none, _ = tuned(hopeless)
    assert (none.trials, none.error) == ({"finished": 0, "failed": 12, "cut": 0}, "ValueError: never")


def test_budget_cuts_the_trial_that_outlasts_it() -> None:
    def slow(parameters: Any) -> tuple[float, Any]:
        time.sleep(0.05 if parameters == TOY.starts[0] else 60)
        return distance(parameters)

    started = time.perf_counter()
    found, _ = tuned(slow, trials=None, budget=0.5)
    assert time.perf_counter() - started < 30
    assert found.trials == {"finished": 1, "failed": 0, "cut": 1}
    assert found.parameters == TOY.starts[0]
    never, predicted = tuned(lambda parameters: time.sleep(60), trials=None, budget=0.05)
    assert (never.trials, predicted) == ({"finished": 0, "failed": 0, "cut": 1}, None)
    assert never.parameters == TOY.starts[0]
    assert never.error == ""


def test_a_limit_rings_again_where_the_first_alarm_is_swallowed() -> None:
    def stubborn() -> None:
        try:
            time.sleep(60)
        except OutOfTime:
            time.sleep(60)

    started = time.perf_counter()
    with pytest.raises(OutOfTime), time_limit(0.05):
        stubborn()
    assert time.perf_counter() - started < 30


def test_a_limit_never_breaks_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trial() -> None:
        import slow_to_import  # noqa: F401

        time.sleep(60)

    with pytest.raises(OutOfTime), time_limit(0.05):
        trial()
    import slow_to_import

    assert slow_to_import.ready


def test_outside_the_main_thread_a_trial_runs_to_its_end() -> None:
    found: list[Any] = []

    def work() -> None:
        slow = lambda parameters: (time.sleep(0.05), distance(parameters))[1]  # noqa: E731
        found.append(tuned(slow, trials=None, budget=0.01)[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].trials == {"finished": 1, "failed": 0, "cut": 0}


# --- tests of differences ----------------------------------------------------------------------------------------


def test_without_overlap_the_corrected_test_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 12), rng.normal(0, 1, 12)
    (pair,) = paired([("a", "b")], {"a": a, "b": b}, higher_is_better=True, test_to_train=0.0)
    expected = ttest_rel(a, b)
    assert pair.gain.p_value == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval()
    assert (pair.gain.mean, pair.gain.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))
    (turned,) = paired([("a", "b")], {"a": a, "b": b}, higher_is_better=False, test_to_train=0.0)
    assert turned.gain.mean == -pair.gain.mean


def test_overlap_widens_the_interval_as_nadeau_and_bengio_say() -> None:
    values = [0.3, 0.1, 0.4, 0.2, 0.25]
    plain, corrected = corrected_estimate(values, 0.0), corrected_estimate(values, 0.25)
    assert corrected.half_width / plain.half_width == pytest.approx(math.sqrt((1 / 5 + 0.25) / (1 / 5)))
    assert corrected.p_value > plain.p_value


def test_overlapping_splits_of_pure_noise_are_rarely_called_a_difference() -> None:
    """Two classifiers that guess: resampled means are dependent, and the naive test is fooled by that."""
    rng = np.random.default_rng(0)
    naive = corrected = 0
    for _ in range(300):
        gain = rng.normal(size=100)  # one table of paired outcomes
        splits = [gain[rng.permutation(100)[:20]].mean() for _ in range(15)]
        naive += corrected_estimate(splits, 0.0).p_value < 0.05
        corrected += corrected_estimate(splits, 0.25).p_value < 0.05
    assert corrected < 0.08 * 300 < naive


def test_level_and_single_values() -> None:
    assert corrected_estimate([0.5], 0.25).half_width is None
    assert corrected_estimate([0.2, 0.2], 0.25).p_value == 0.0
    assert corrected_estimate([0.0, 0.0], 0.25).p_value == 1.0
    (pair,) = paired([("a", "b")], {"a": [1.0], "b": [0.0]}, higher_is_better=True, test_to_train=0.2)
    assert not pair.beyond_noise


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_the_procedure_by_steps(p_values: list[float]) -> None:
    level, rejected = 0.05, set()
    for step, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        if p_values[at] * (len(p_values) - step) >= level:
            break
        rejected.add(at)
    assert {at for at, p in enumerate(holm(p_values)) if p < level} == rejected
    with_gap = holm([*p_values, float("nan")])  # a test that was not made does not count
    assert with_gap[:-1] == holm(p_values)
    assert math.isnan(with_gap[-1])


# --- what is kept ------------------------------------------------------------------------------------------------


def test_digests_mind_every_cell_name_and_label() -> None:
    X, y = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]}), np.array([0, 1])
    tables = [
        X,
        X.rename(columns={"a": "c"}),
        X.assign(a=[1.0, 2.5]),
        X.assign(b=["x", "None"]),
        X.astype({"a": "int64"}),
        X.iloc[::-1],
        X.iloc[:1],
    ]
    assert len({digest_of(table) for table in tables}) == len(tables)
    assert len({digest_of(column) for column in (y, y[::-1], y.astype(str), None)}) == 4
    assert digest_of(X.copy()) == digest_of(X)
    assert digest_of(y.copy()) == digest_of(y)


def test_folder_of_another_comparison_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    store.folder.mkdir()
    store.claim({"metric": "nll", "seeds": 3})
    store.claim({"metric": "nll", "seeds": 3})
    with pytest.raises(InputError, match=r"other settings or data \(seeds: 3, now 4\)"):
        store.claim({"metric": "nll", "seeds": 4})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="holds other files"):
        Store(tmp_path / "mine").claim({})
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write"), locked(tmp_path / "file" / "out", wait=False):
        pass
