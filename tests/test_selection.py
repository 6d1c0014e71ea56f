"""Choosing by classes whose answers are known."""

import time
import warnings
from dataclasses import asdict
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ecrt import ECRTClassifier, Flow, LinearHead, MLPHead, Parametric, PseudoMinority
from ecrt.augmentation import ClassSources, borrowed
from ecrt.errors import DivergenceError, ECRTWarning, InputError
from ecrt.selection import MOST_ROWS, PLAIN, answers, cross_validation_problem, pseudo_minority_problem
from ecrt.training import Progress, stop_requested, stopped_at
from ecrt.workers import Workers

LARGE, SMALL = 40, 6


def labels(n_large=9, n_small=4):
    counts = [LARGE] * n_large + [SMALL] * n_small
    return np.repeat(np.arange(len(counts)), counts), np.arange(len(counts)) >= n_large


def choose(margin, *, clf=None, y=None, minority=None, trials=80, budget=180.0, seed=0, n_columns=8):
    """A selection whose fits take no work: ``margin`` of a candidate and a problem is the score of the true class."""
    if y is None:
        y, minority = labels()

    def log_proba(candidate, problem):
        scores = np.zeros((len(problem.check), len(minority)))
        scores[np.arange(len(problem.check)), y[problem.check]] = margin(candidate, problem)
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    how = PseudoMinority(budget=budget) if trials is None else PseudoMinority(trials=trials)
    return how.select(
        clf or ECRTClassifier(), log_proba, y, minority, n_columns, rng=np.random.default_rng(seed),
        progress=Progress(),
    )  # fmt: skip


def run(quality, *, trials=60, **options):
    """A selection where ``quality`` says how sure the true class is, from the options; and the fits that it made."""
    fits = []

    def margin(candidate, problem):
        fits.append((candidate.get_params(), problem.learn, candidate.minority))
        return quality(candidate.get_params()) + 0.1 * np.sin(np.arange(len(problem.check)))

    return choose(margin, trials=trials, **options), fits


@given(seed=st.integers(0, 10_000), n_large=st.integers(6, 12), n_small=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_problem_hides_rows_of_majority_classes(seed, n_large, n_small):
    y, minority = labels(n_large, n_small)
    problem = pseudo_minority_problem(y, minority, np.random.default_rng(seed))
    assert len(np.intersect1d(problem.learn, problem.check)) == 0
    cut_down = np.flatnonzero(problem.minority & ~minority)
    learned = np.bincount(y[problem.learn], minlength=len(minority))
    assert len(cut_down) == n_large // 3
    assert (learned[cut_down] == SMALL).all()
    assert (learned[minority] == SMALL).all()
    assert not minority[y[problem.check]].any()
    assert problem.weight.sum() == pytest.approx(1)
    assert problem.weight[problem.minority[y[problem.check]]].sum() == pytest.approx(minority.mean())


def test_too_few_majority_classes_make_no_problem():
    y, minority = labels(5, 2)
    assert pseudo_minority_problem(y, minority, np.random.default_rng(0)) is None
    problem = cross_validation_problem(y, minority, np.random.default_rng(0))
    assert set(y[problem.learn]) == set(range(7))


@given(sizes=st.lists(st.integers(1, 30_000), min_size=2, max_size=5), seed=st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_of_many_rows_the_largest_classes_lose_some(sizes, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    minority = np.array(sizes) < np.median(sizes)
    problem = cross_validation_problem(y, minority, np.random.default_rng(seed))
    kept = np.bincount(y[np.concatenate([problem.learn, problem.check])], minlength=len(sizes))
    assert kept.sum() <= MOST_ROWS
    assert kept.sum() > min(MOST_ROWS, len(y)) - len(sizes)
    np.testing.assert_array_equal(kept, np.minimum(sizes, kept.max()))


def test_many_classes_are_left_out_rather_than_rows():
    y = np.repeat(np.arange(60), [400] * 40 + [20] * 20)
    minority = np.arange(60) >= 40
    for problem in (
        pseudo_minority_problem(y, minority, np.random.default_rng(0)),
        cross_validation_problem(y, minority, np.random.default_rng(0)),
    ):
        assert 0.5 * MOST_ROWS < len(problem.learn) <= 1.1 * MOST_ROWS
        assert len(np.unique(y[problem.learn])) < 40


def test_what_helps_is_chosen_and_what_hurts_is_not():
    def quality(options):
        return 1.0 + 0.5 * (options["demixing"] == "linear") + 0.3 * (options["augmentation"] == "borrowed")

    found, fits = run(quality)
    assert found.transfer
    assert found.options["demixing"] == "linear"
    assert found.options["augmentation"] == "borrowed"
    assert found.low > 0
    assert found.finished
    assert "saves on plain logit adjustment" in found.sentence
    assert found.fits == len(fits) <= 60
    assert all(set(rare) <= set(range(13)) for _, _, rare in fits)


def test_without_a_gain_plain_logit_adjustment_is_chosen():
    found, _ = run(lambda options: 1.0 - 0.2 * (options["demixing"] != "none"))
    assert not found.transfer
    assert found.options == PLAIN
    assert "does not beat it" in found.sentence


def run_by_kind(gain_of_majority, gain_of_minority):
    """A selection where transfer does one thing to frequent classes, another to rare ones."""
    y, minority = labels()

    def margin(candidate, problem):
        gain = np.where(minority[y[problem.check]], gain_of_minority, gain_of_majority)
        return 1.0 + (candidate.demixing != "none") * gain + 0.01 * np.cos(np.arange(len(problem.check)))

    return choose(margin)


@pytest.mark.parametrize("gain", [-0.02, 0.0, 0.002, 0.004, 0.006, 0.02])
def test_the_interval_that_is_shown_is_the_one_that_decides(gain):
    """Noise from class to class, of which gains are a small part: some intervals hold 0."""
    y, minority = labels()
    noise = np.random.default_rng(3).normal(0, 0.01, len(minority))
    found = choose(lambda clf, problem: 1 + (clf.demixing != "none") * (gain + noise[y[problem.check]]))
    assert found.transfer == (found.low > 0 and not found.vetoed)


def test_the_real_minority_may_veto():
    found = run_by_kind(1.0, -1.0)
    assert found.vetoed
    assert found.options == PLAIN
    assert "spoke against" in found.sentence


def test_what_serves_the_real_minority_alone_is_chosen():
    found = run_by_kind(0.0, 1.0)
    assert found.transfer
    assert "held-out rows of the real ones" in found.sentence


def test_transfer_that_fails_on_the_real_classes_is_not_chosen():
    _, minority = labels()

    def margin(candidate, problem):
        if candidate.demixing != "none" and not (problem.minority & ~minority).any():  # no class is cut down
            raise DivergenceError("flow", 3, "loss")
        return 1.0 + (candidate.demixing != "none")

    found = choose(margin)
    assert found.options == PLAIN
    assert "could not be trained" in found.sentence


def test_problems_that_chose_the_winner_do_not_judge_it():
    seeds: dict[int, None] = {}

    def margin(candidate, problem):
        seeds.setdefault(candidate.random_state)  # each problem has a seed of its own; the first two choose
        return 1.0 + 2.0 * (candidate.random_state in list(seeds)[:2] and candidate.demixing != "none")

    found = choose(margin)
    assert found.gain == pytest.approx(0, abs=1e-12)
    assert not found.transfer


def test_trials_bound_the_fits_and_fix_the_result():
    def quality(options):
        return 1.0 + 0.1 * (options["demixing"] == "linear")

    first, fits = run(quality, trials=11)
    again, _ = run(quality, trials=11)
    assert len(fits) <= 11
    assert not first.finished
    assert "ran out" in first.sentence
    assert (first.options, first.gain) == (again.options, again.gain)


def test_a_budget_ends_in_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("ecrt.selection.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def quality(options):  # asked once a fit, which takes a second
        clock[0] += 1.0
        return 1.0

    found, fits = run(quality, trials=None, budget=10.5)
    assert found.seconds <= 10.5
    assert len(fits) == 10
    assert not found.finished


def test_a_budget_too_small_for_anything_leaves_plain_logit_adjustment(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("ecrt.selection.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def quality(options):
        clock[0] += 5.0
        return 1.0

    found, fits = run(quality, trials=None, budget=3.0)
    assert len(fits) == 1
    assert found.options == PLAIN
    assert not found.finished


def test_a_slow_candidate_does_not_stop_the_others(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("ecrt.selection.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def quality(options):  # a flow would take all the time there is
        clock[0] += 60.0 if options["demixing"] == "flow" else 1.0
        return 1.0 + (options["demixing"] != "none") + (options.get("demixing__rotation") == "discriminant")

    y = np.repeat(np.arange(13), [100] * 9 + [6] * 4)
    found, _ = run(quality, y=y, minority=np.arange(13) >= 9, trials=None, budget=200.0)
    assert found.options["demixing"] == "linear"
    assert found.options["demixing__rotation"] == "discriminant"
    assert found.seconds <= 200.0


def test_answers_without_effect_are_not_measured():
    def quality(options):
        return 1.0 + (options["demixing"] != "none") + 0.3 * (options["head"] == "gaussian")

    found, fits = run(quality)
    assert found.options["head"] == "gaussian"
    tried = [one["options"] for one in found.tried]
    assert not any(
        any(name in key for key in options for name in ("objective", "critic", "likelihood", "pseudo_samples"))
        for options in tried
    )
    seeds = {(tuple(rows), params["random_state"]) for params, rows, _ in fits}
    assert len(seeds) == len({rows for rows, _ in seeds})  # one seed for each problem


def test_candidates_that_diverge_are_left_behind():
    def quality(options):
        if options["demixing"] == "linear":
            raise DivergenceError("flow", 3, "loss")
        return 1.0

    found, _ = run(quality, n_columns=1)
    assert found.options == PLAIN
    assert any("failed" in one for one in found.tried)


def test_two_classes_are_cross_validated():
    y = np.repeat([0, 1], [80, 20])
    found, _ = run(lambda options: 1.0, y=y, minority=np.array([False, True]))
    assert found.by == "cross-validation"


def test_options_that_the_user_set_are_left_alone():
    clf = ECRTClassifier(demixing=Flow(n_sources=3), head="linear")
    asked = answers(clf, 1000, 10)
    assert not any({"head", "demixing", "demixing__n_sources"} & answer.keys() for answer in asked)
    assert {"demixing__objective": "gcl"} in asked  # what is at its default in a part is open
    assert answers(ECRTClassifier(demixing="linear"), 1000, 10)[0] == {}


@pytest.mark.parametrize(("size", "asked"), [(40, True), (2000, False)])
def test_sources_are_not_counted_where_most_classes_are_left_out(size, asked):
    y = np.repeat(np.arange(30), [size] * 20 + [6] * 10)
    found, _ = run(lambda options: 1.0, y=y, minority=np.arange(30) >= 20)
    assert any("demixing__n_sources" in one["options"] for one in found.tried) == asked


def test_transfer_as_it_was_asked_for_can_win():
    def margin(candidate, problem):
        better = candidate.demixing == "linear" and candidate.get_params().get("augmentation__weight") == 0.3
        return 1.0 + better + 0.01 * np.cos(np.arange(len(problem.check)))

    found = choose(margin, clf=ECRTClassifier(demixing="linear", augmentation=Parametric(weight=0.3)), trials=40)
    assert found.transfer
    assert "demixing" not in found.options


def test_borrowed_residuals_keep_mean_and_variance():
    generator = torch.Generator().manual_seed(0)
    s = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    residuals = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    residuals[:, 1] = residuals[:, 0] ** 2 - 1  # a shape to be lent
    variance = residuals.var(0)
    sources = ClassSources.of_one(s, variance)
    sources.residuals_rd = residuals - residuals.mean(0)
    drawn = borrowed(sources, torch.zeros(4000, dtype=torch.int64), generator, 1e9)
    torch.testing.assert_close(drawn.mean(0), s.mean(0), atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.var(0), variance, atol=0.2, rtol=0.1)
    centred = drawn - s.mean(0)
    assert torch.corrcoef(torch.stack([centred[:, 0] ** 2, centred[:, 1]]))[0, 1] > 0.9


def test_a_deadline_asks_training_to_stop():
    assert not stop_requested()
    with stopped_at(time.monotonic() - 1):
        assert stop_requested()
        with stopped_at(time.monotonic() + 100):  # an inner block cannot extend it
            assert stop_requested()
    assert not stop_requested()


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(9), [60] * 7 + [6] * 2)
    means = 2.0 * rng.normal(size=(9, 5))
    return means[y] + rng.normal(size=(len(y), 5)) @ rng.normal(size=(5, 5)), y


def fit(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return ECRTClassifier(head=LinearHead(weight_decay=1e-3), random_state=0, **options).fit(X, y)


def test_the_estimator_is_fitted_with_what_was_selected(table, tmp_path):
    import ecrt

    X, y = table
    clf = fit(X, np.array([f"class {label}" for label in y]), selection=PseudoMinority(trials=9))
    again = fit(X, np.array([f"class {label}" for label in y]), selection=PseudoMinority(trials=9))
    assert clf.selection_["by"] == "pseudo-minority"
    assert clf.demixing_ == clf.selection_["options"]["demixing"]
    assert clf.selection_["sentence"] == again.selection_["sentence"]
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
    drawn, of = clf.sample(3, classes=["class 8"])
    assert drawn.shape == (3, 5)
    assert set(of) == {"class 8"}
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    assert loaded.selection_["sentence"] == clf.selection_["sentence"]
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))


def test_the_choice_is_said_aloud(table):
    X, y = table
    clf = ECRTClassifier(head="linear", selection=PseudoMinority(trials=4), random_state=0)
    with pytest.warns(ECRTWarning, match="Plain logit adjustment"):
        clf.fit(np.random.default_rng(0).normal(size=X.shape), y)


def test_several_labels_cannot_be_selected_for(table):
    X, y = table
    with pytest.raises(InputError, match="one label for each row"):
        fit(X, np.eye(9, dtype=int)[y] | np.eye(9, dtype=int)[(y + 1) % 9], selection=PseudoMinority(trials=4))


def test_a_plain_fit_forgets_an_earlier_selection(table):
    X, y = table
    clf = fit(X, y, selection=PseudoMinority(trials=4), augmentation=Parametric(pseudo_samples=7.0))
    clf.set_params(selection=None, augmentation="permutation").fit(X, y)
    assert not hasattr(clf, "selection_")
    s = clf.transform(X[y == 8])
    drawn, _ = clf.sample(20, classes=[8])
    assert all(np.isin(drawn[:, at].round(9), s[:, at].round(9)).all() for at in range(s.shape[1]))


def chosen_by(how, **options):
    rng = np.random.default_rng(0)
    y, minority = labels()
    X = rng.normal(size=(len(y), 5)) + rng.normal(size=(len(minority), 5))[y]
    clf = ECRTClassifier(selection=how, minority=np.flatnonzero(minority).tolist(), random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        clf.fit(X, y)
    found = {name: value for name, value in clf.selection_.items() if name != "seconds"}
    found["tried"] = [{name: value for name, value in one.items() if name != "seconds"} for one in found["tried"]]
    return found, clf.predict_proba(X)


def test_fits_of_several_workers_choose_the_same():
    how, heads = PseudoMinority(trials=16), ["linear", MLPHead(epochs=4, hidden=(8,))]
    alone, wanted = chosen_by(how, head=heads)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        together, found = chosen_by(how, head=heads)
    assert together == alone
    np.testing.assert_array_equal(found, wanted)


class CountedWorkers:
    """Workers in this process, which count what they are given at once."""

    def __init__(self, number):
        self.number, self.rounds = number, []

    def run(self, work, tasks, *shared):
        self.rounds.append(len(tasks))
        yield from ((place, work(*task, *shared)) for place, task in reversed(list(enumerate(tasks))))


def test_workers_measure_what_is_asked_next_and_no_more_than_trials_allow():
    y, minority = labels()

    def log_proba(candidate, problem, shift):
        scores = np.zeros((len(problem.check), len(minority)))
        scores[np.arange(len(problem.check)), y[problem.check]] = shift + 0.1 * (candidate.demixing == "linear")
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def select(workers, trials):
        return PseudoMinority(trials=trials).select(
            ECRTClassifier(), log_proba, y, minority, 8, rng=np.random.default_rng(0), progress=Progress(),
            data=(1.0,), workers=workers,
        )  # fmt: skip

    for trials in (4, 11, 40):
        workers = CountedWorkers(4)
        one, other = (asdict(select(each, trials)) for each in (None, workers))
        for found in (one, other):
            del found["seconds"]
            for tried in found["tried"]:
                del tried["seconds"]
        assert one == other
        assert one["fits"] <= trials
    assert max(workers.rounds) > 4  # the last comparison needs all of its fits
    assert workers.rounds.count(1) < len(workers.rounds) / 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_selection_with_a_checkpoint_works_alone(checkpoint, tmp_path, monkeypatch):
    runs = []
    run = Workers.run
    monkeypatch.setattr(Workers, "run", lambda self, *args: (runs.append(1), run(self, *args))[1])
    with joblib.parallel_config(backend="threading", n_jobs=2):
        chosen_by(PseudoMinority(trials=4), head="linear", checkpoint=tmp_path if checkpoint else None)
    assert bool(runs) != checkpoint
