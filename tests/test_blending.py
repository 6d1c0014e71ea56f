"""Members that predict together: their weights, what they give, their files, and what is said of transfer."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

import ecrt
from ecrt import ECRTClassifier, Flow, GaussianHead, LinearHead, MLPHead, TreesHead
from ecrt.data import ClassRoles
from ecrt.errors import ECRTWarning, ModelFileError
from ecrt.estimators.inputs import read_labels
from ecrt.nn import ROWS_IN_TREES, BalancedHead, ClassGaussians
from ecrt.runs.config import Target
from ecrt.runs.evaluation import measure
from ecrt.stages import NoAugmentation, NoDemixing, blending, sources_of
from ecrt.stages.blending import DOUBT, LEAST_WEIGHT, SHRINKAGE, TRUST, UNKNOWN, _blended, _Trial
from ecrt.stages.choosing import Candidate, HeadChoice
from ecrt.stages.demixing import Linear
from ecrt.stages.heads import HeadSample, LinearFitter, TreesFitter, tree_arrays
from ecrt.stages.scoring import _lines, predict_together
from ecrt.stages.targets import ClassTarget, row_target
from model_mutations import Original, forged, memory_limit

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")

CPU = torch.device("cpu")
TREES = TreesHead(steps=12, leaves=4)
SIMPLE = ["linear", "gaussian"]


def rows(n_classes=3, seed=0, n=170):
    """Rows of a line and a bend, so that straight and curved members both have something to say; the last is rare."""
    rng = np.random.default_rng(seed)
    share = np.array([0.5, 0.4, 0.1]) if n_classes == 3 else np.array([0.8, 0.2])
    y = np.repeat(np.arange(n_classes), (n * share).astype(int))
    X = rng.normal(size=(len(y), 4)) @ np.random.default_rng(1).normal(size=(4, 4))
    X += 1.5 * np.random.default_rng(2).normal(size=(n_classes, 4))[y]
    X[:, 0] += 2.5 * (y == 0) * np.sign(rng.normal(size=len(y)))
    return X, y


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def blend(request):
    """A fit with linear, Gaussian and tree members, all of which have a weight: the weights are set by hand."""
    X, y = rows(request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = ECRTClassifier(head=[*SIMPLE, TREES], random_state=0).fit(X, y)
        alone = [
            ECRTClassifier(demixing=demixing, head=head, augmentation=augmentation, random_state=0).fit(X, y).members_
            for demixing, head, augmentation in (
                ("linear", "linear", "parametric"), ("linear", "gaussian", "parametric"), ("none", TREES, "none"),
                ("none", "linear", "none"),
            )
        ]  # fmt: skip
    members = [one for (one,) in alone]
    # The first two are on the same de-mixing; so are the last two.
    for place in (1, 3):
        names = ("demixer", "signal_weight", "within_variance", "scale")
        members[place] = replace(members[place], **{name: getattr(members[place - 1], name) for name in names})
    clf.members_ = tuple(
        replace(one, weight=weight) for one, weight in zip(members, (0.4, 0.3, 0.2, 0.15), strict=True)
    )
    first = clf.members_[0]
    clf.parts_ |= {"demixing": first.demixing, "augmentation": first.augmentation, "head": first.head}
    return clf, X, y


# --- weights ----------------------------------------------------------------------------------------


def target_of(y):
    counts = np.bincount(y)
    every = np.ones(len(counts), dtype=bool)
    roles = ClassRoles(counts=counts, minority=~every, augmented=~every, encoded_on=every, demixed_on=every)
    return ClassTarget(y, roles, NoAugmentation(), np.random.default_rng(0), CPU)


def candidate(logits, y, head=None, demixing=None):
    """A head with given held-out logits of all rows."""
    logits = torch.as_tensor(logits)
    losses = target_of(y).losses(logits, np.arange(len(y)))
    weight = target_of(y).weights(np.arange(len(y)))
    choice = HeadChoice(
        head=head or LinearHead(), setting=1.0, rows=np.arange(len(y)), held_out_losses=losses,
        held_out=float(weight @ losses / weight.sum()), candidates={}, fit=lambda: nn.Linear(2, logits.shape[1]),
        logits=lambda: logits, trial=lambda: (logits.numpy(), np.arange(len(y))),
    )  # fmt: skip
    demixed = SimpleNamespace(demixer=None, signal_weight=None, within_variance=None, head_scale=None)
    return Candidate(demixing or NoDemixing(), NoAugmentation(), demixed, choice)


def some_candidates(seed, n=120, n_classes=3, noise=(0.5, 1.5, 3.0)):
    """Logits that are right but for noise of several sizes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(n_classes), [n // 2, n // 3, n - n // 2 - n // 3]))
    truth = 1.5 * np.eye(n_classes)[y] + rng.normal(size=(n, n_classes))
    return y, [candidate(truth + size * rng.normal(size=truth.shape), y) for size in noise]


def naive_objective(weights, found, y, earned):
    """What the weights minimise, row by row."""
    n_classes, counts, total, unknown, squares = y.max() + 1, np.bincount(y), 0.0, 0.0, 0.0
    for row, label in enumerate(y):
        logits = sum(weight * one.choice.logits()[row].numpy() for weight, one in zip(weights, found, strict=True))
        right = np.exp(logits[label]) / np.exp(logits).sum()
        share = 1 / counts[label] / n_classes
        total -= share * np.log((1 - DOUBT) * right + DOUBT / n_classes)
        unknown -= share * np.mean(np.log(np.exp(logits) / np.exp(logits).sum()))
        squares += share**2
    total += UNKNOWN * squares * unknown
    return total + SHRINKAGE * squares * sum((one - alone) ** 2 for one, alone in zip(weights, earned, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_not_negative_and_no_others_serve_better(seed):
    y, found = some_candidates(seed)
    trial = _Trial(found, target_of(y))
    weights, earned = trial.weights(), trial.earned(np.ones(len(y), dtype=bool), np.ones(3, dtype=bool))
    assert (weights >= 0).all()
    best = naive_objective(weights, found, y, earned)
    rng = np.random.default_rng(seed)
    others = [*np.eye(3), np.full(3, 1 / 3), *(scale * weights for scale in (0.95, 0.98, 1.02))]
    others += [*(np.maximum(weights + 0.05 * rng.normal(size=3), 0) for _ in range(10))]
    assert all(best <= naive_objective(other, found, y, earned) + 1e-7 for other in others)


def test_of_few_rows_the_blend_is_less_sure(monkeypatch):
    """A row of unknown class takes away from what members say for sure, and the less the more rows there are."""
    taken = []
    for n in (60, 600):
        y, found = some_candidates(0, n=n)
        trial = _Trial(found, target_of(y))
        sums = []
        for unknown in (0.0, UNKNOWN):
            monkeypatch.setattr(blending, "UNKNOWN", unknown)
            sums.append(trial.weights().sum())
        taken.append(1 - sums[1] / sums[0])
    assert taken[0] > 2 * taken[1] > 0


def earned_by(found, y, members=None, rows=None):
    every = np.ones(len(y), dtype=bool) if rows is None else rows
    return _Trial(found, target_of(y)).earned(every, np.ones(len(found), dtype=bool) if members is None else members)


def test_weights_earned_alone_are_those_of_rows_that_are_drawn_anew():
    y, found = some_candidates(0, noise=(0.5, 0.8, 1.5))
    n, rng, counts, total = len(y), np.random.default_rng(7), np.bincount(y), np.zeros(3)
    right = [torch.softmax(one.choice.logits(), dim=1)[np.arange(n), y].numpy() for one in found]
    losses = [-np.log((1 - DOUBT) * one + DOUBT / 3) for one in right]
    share = np.array([1 / counts[label] / 3 for label in y])
    for _ in range(4000):
        drawn = [part * rng.exponential() for part in share]
        scores = [np.exp(-TRUST / (share**2).sum() * np.average(one, weights=drawn)) for one in losses]
        total += np.array(scores) / sum(scores)
    found_weights = earned_by(found, y)
    assert found_weights.sum() == pytest.approx(1)
    assert found_weights[0] > found_weights[1] > found_weights[2]
    np.testing.assert_allclose(found_weights, total / 4000, atol=0.03)


def test_what_rows_cannot_tell_apart_is_level_and_what_is_clearly_worse_earns_nothing():
    y, (good, _, poor) = some_candidates(0, n=900)
    np.testing.assert_allclose(earned_by([good, good], y), [0.5, 0.5], atol=1e-12)
    assert earned_by([good, poor], y)[1] < 1e-3
    few = np.isin(np.arange(900), [np.flatnonzero(y == label)[0] for label in range(3)])
    assert earned_by([good, poor], y, rows=few)[1] > 0.1
    only = np.array([False, True, True])
    np.testing.assert_allclose(earned_by([good, poor, poor], y, only), [0.5, 0.5], atol=1e-12)


def test_a_clearly_worse_member_takes_less_than_equal_weights_would_give_it(monkeypatch):
    """A head that is right less often, and in the same way, adds nothing: a pull to equal weights would keep it in."""
    shares = {}
    for pull in ("earned", "equal"):
        if pull == "equal":
            monkeypatch.setattr(_Trial, "earned", lambda self, rows, members: np.full(members.sum(), 1 / members.sum()))
        y, (good, _, poor) = some_candidates(1, n=150, noise=(0.5, 1.5, 1.5))
        weights = _Trial([good, poor], target_of(y)).weights()
        shares[pull] = weights[1] / weights.sum()
    assert shares["earned"] < shares["equal"]


def test_together_members_are_no_worse_than_the_best_alone_on_rows_that_chose_nothing():
    gains = []
    for seed in range(8):
        y, found = some_candidates(seed, n=300)
        trial = _Trial(found, target_of(y))
        gains.append(min(one.choice.held_out for one in found) - float(trial.weight @ trial.losses()))
    assert np.mean(gains) > -0.005
    assert min(gains) > -0.05


def test_noise_gets_next_to_no_weight_and_is_left_out():
    rng = np.random.default_rng(0)
    y, (good, *_) = some_candidates(0, n=2000)
    noise = candidate(rng.normal(size=(2000, 3)), y, GaussianHead())
    weights = _Trial([good, noise], target_of(y)).weights()
    assert weights[1] < LEAST_WEIGHT * weights.sum()
    blend = _blended([good, noise], target_of(y))
    assert [one.name for one in blend.members] == ["none, linear"]
    assert blend.tried.keys() == {"none, linear", "none, gaussian"}
    assert blend.worth is None


def test_what_is_always_wrong_has_no_weight_and_all_classes_are_then_alike():
    y, (good, *_) = some_candidates(0, n=600)
    wrong = [candidate(-5 * good.choice.logits(), y), candidate(-9 * good.choice.logits(), y, GaussianHead())]
    blend = _blended(wrong, target_of(y))
    assert [one.weight for one in blend.members] == [0.0]
    np.testing.assert_array_equal(blend.trial()[0], np.zeros((600, 3)))


def test_the_first_member_transfers_though_another_has_more_weight():
    y, (good, _, poor) = some_candidates(0, n=600)
    moved = candidate(poor.choice.logits(), y, demixing=Linear())
    blend = _blended([good, moved], target_of(y))
    assert blend.members[0].name == "linear, linear"
    assert blend.choice is moved.choice
    weights = {one.name: one.weight for one in blend.members}
    assert weights["none, linear"] > weights["linear, linear"]
    assert blend.worth is not None
    assert blend.worth.gain == pytest.approx(blend.worth.plain - blend.worth.blend)


def test_rows_are_judged_under_weights_that_they_had_no_part_in():
    y, (good, other, poor) = some_candidates(0, n=400)
    target = target_of(y)
    trial = _Trial([good, other, poor], target)
    losses = trial.losses()
    assert set(trial.fold.tolist()) == set(range(5))
    for number in range(5):
        mine = trial.fold == number
        assert np.bincount(y[trial.rows[mine]], minlength=3).min() > 0
        # What these rows look like to one member changes the weights of the others, and not their own.
        changed = _Trial([good, other, poor], target)
        changed.logits_knm[2, torch.from_numpy(mine)] *= -50
        changed.alone_kn[2, mine] += 50
        np.testing.assert_array_equal(changed.weights(~mine), trial.weights(~mine))
        expected = target.losses(trial.logits(trial.weights(~mine), mine), trial.rows[mine])
        np.testing.assert_allclose(losses[mine], expected)


def test_members_on_all_de_mixings_are_judged_by_the_same_rows(monkeypatch):
    judged = []
    monkeypatch.setattr(
        blending, "_blended", lambda found, *args, **options: judged.extend(found) or _blended(found, *args, **options)
    )
    X, y = rows()
    ECRTClassifier(head="linear", random_state=0).fit(X, y)
    assert {one.name for one in judged} == {"none, linear", "linear, linear"}
    one, other = (found.choice for found in judged)
    assert len(one.folds) == 5
    for mine, theirs in zip(one.folds, other.folds, strict=True):
        np.testing.assert_array_equal(mine[1], theirs[1])
    np.testing.assert_array_equal(one.rows, other.rows)


# --- what members give together ---------------------------------------------------------------------


def by_loop(members, z):
    """Each member by itself, row by row of their list."""
    total = 0.0
    for one in members:
        scaled = torch.from_numpy(sources_of(one.demixer, z) * one.scale)
        with torch.no_grad():
            total = total + one.weight * one.network(scaled).numpy()
    return total


def test_balanced_logits_are_the_sum_over_members(blend):
    clf, X, _ = blend
    expected = by_loop(clf.members_, X)
    np.testing.assert_allclose(predict_together(clf.members_, X), expected, rtol=0, atol=1e-9)
    found = clf.decision_function(X)
    np.testing.assert_allclose(
        found, expected[:, 1] - expected[:, 0] if len(clf.classes_) == 2 else expected, rtol=0, atol=1e-9
    )
    quick = predict_together(clf.members_, X, torch.float32)
    assert quick.dtype == np.float32
    # A value within rounding of a threshold goes another way.
    assert np.mean(np.abs(quick - expected).max(axis=1) > 1e-3) < 0.02


def test_a_fit_predicts_what_its_own_members_give():
    X, y = rows()
    clf = ECRTClassifier(head=[*SIMPLE, MLPHead(epochs=3), TREES], random_state=0).fit(X, y)
    assert len(clf.members_) > 1
    assert min(one.weight for one in clf.members_) >= 0
    np.testing.assert_allclose(clf.decision_function(X), by_loop(clf.members_, X), rtol=0, atol=1e-9)
    assert clf.head_ is clf.members_[0].network
    assert clf.demixer_ is clf.members_[0].demixer
    assert f"{clf.demixing_}, {clf.head_name_}" == clf.members_[0].name
    assert {one.name: one.held_out for one in clf.members_}.items() <= clf.history_["tried"].items()


def test_linear_members_are_one_map(blend):
    clf, X, _ = blend
    linear = [one for one in clf.members_ if isinstance(one.network, nn.Linear)]
    mass = torch.log(torch.linspace(0.2, 0.8, len(clf.classes_), dtype=torch.float64))
    linear.append(replace(linear[0], network=BalancedHead(linear[0].network, mass), weight=0.7))
    assert len(linear) == 3
    assert len(_lines(linear, len(X), torch.float64)) == 1
    assert len(_lines(clf.members_, len(X), torch.float64)) == 3
    together = predict_together(linear, X)
    apart = sum(predict_together([one], X) for one in linear)
    np.testing.assert_allclose(together, apart, rtol=0, atol=1e-9)
    np.testing.assert_allclose(together, by_loop(linear, X), rtol=0, atol=1e-9)


def test_linear_members_on_other_columns_are_not_one_map(blend):
    clf, X, _ = blend
    one = clf.members_[0]
    moved = copy.deepcopy(one.demixer)
    moved.linear.standardise.center_d += 1
    pair = [one, replace(one, demixer=moved)]
    assert len(_lines(pair, len(X), torch.float64)) == 2
    np.testing.assert_allclose(predict_together(pair, X), by_loop(pair, X), rtol=0, atol=1e-9)


def test_members_without_weight_say_nothing(blend):
    clf, X, _ = blend
    first, *others = clf.members_
    silent = (replace(first, weight=0.0), *others)
    np.testing.assert_allclose(predict_together(silent, X), by_loop(others, X), rtol=0, atol=1e-9)
    assert not predict_together([replace(one, weight=0.0) for one in silent], X).any()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n", [150, ROWS_IN_TREES + 7])
def test_trees_give_what_scikit_learn_gives(n_classes, n):
    X, y = rows(n_classes, n=n)
    model = HistGradientBoostingClassifier(max_iter=9, max_leaf_nodes=6, early_stopping=False, random_state=0).fit(X, y)
    new = np.random.default_rng(1).normal(size=(n, 4)) * 3
    for steps, expected in zip(range(1, 10), model.staged_decision_function(new), strict=True):
        found = tree_arrays(model, steps)(torch.from_numpy(new)).numpy()
        assert found.shape == (n, n_classes)
        np.testing.assert_allclose(found if n_classes > 2 else found[:, 1] - found[:, 0], expected, rtol=0, atol=1e-12)


def test_trees_that_are_one_leaf():
    X, y = np.zeros((40, 2)), np.repeat([0, 1], [30, 10])
    model = HistGradientBoostingClassifier(max_iter=2, early_stopping=False).fit(X, y)
    found = tree_arrays(model, 2)(torch.zeros(3, 2, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(found[:, 1] - found[:, 0], model.decision_function(X[:3]), rtol=0, atol=1e-12)


# --- pure noise -------------------------------------------------------------------------------------


def test_of_shuffled_labels_held_out_figures_are_at_chance():
    chance, seeds = np.log(3), range(6)
    found = {"blend": [], "plain": []}
    for seed in seeds:
        X, y = rows(seed=seed)
        y = np.random.default_rng([seed, 5]).permutation(y)
        clf = ECRTClassifier(head=[*SIMPLE, TreesHead(steps=20, leaves=4)], random_state=seed).fit(X, y)
        for name, losses in found.items():
            losses.append(clf.history_["transfer"][name])
        assert clf.verdict_.startswith("Held-out rows are predicted no better than by chance")
    for losses in found.values():
        error = np.std(losses, ddof=1) / np.sqrt(len(losses))
        assert np.mean(losses) > chance - 2.5 * error
        assert np.mean(losses) < chance + 0.1


# --- files ------------------------------------------------------------------------------------------


def test_members_that_share_a_demixing_are_saved_and_loaded_to_the_last_bit(blend, tmp_path):
    clf, X, _ = blend
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    for method in ("predict_proba", "decision_function", "transform", "predict"):
        assert getattr(loaded, method)(X).tobytes() == getattr(clf, method)(X).tobytes()
    assert loaded.verdict_ == clf.verdict_
    for one, other in zip(clf.members_, loaded.members_, strict=True):
        for name in ("name", "setting", "temperature", "held_out", "weight", "demixing", "augmentation", "head"):
            assert getattr(one, name) == getattr(other, name)
        for name in ("signal_weight", "within_variance", "scale"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("demixer", "network"):
            states = (getattr(member, name).state_dict() for member in (one, other))
            mine, theirs = states
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    demixers = [one.demixer for one in loaded.members_]
    assert demixers[0] is demixers[1] is not demixers[2]
    assert demixers[2] is demixers[3]
    names = read_tensors(saved(tmp_path / "model").tensors)
    assert not any(name.startswith(("members_.1.demixer", "members_.3.demixer")) for name in names)
    loaded.save(tmp_path / "again")
    assert saved(tmp_path / "again").tensors == saved(tmp_path / "model").tensors


def saved(folder):
    """A model as it was written."""
    content = json.loads((folder / "model.json").read_bytes())
    return Original(content, next(folder.glob("*.safetensors")).read_bytes(), None)


@pytest.fixture(scope="module")
def original(blend, tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    blend[0].save(folder / "model")
    return saved(folder / "model")


def load_forged(original, folder, document, tensors):
    files = forged(original, document, tensors)
    (folder / "model.json").write_bytes(files.json)
    (folder / files.name).write_bytes(files.tensors)
    with memory_limit(2**28):
        return ecrt.load(folder)


@pytest.mark.parametrize(
    ("place", "points_to"), [(0, 1), (0, 3), (1, 1), (1, 2), (3, 64), (1, -1), (1, 0.0), (1, None), (2, 0), (2, 1)]
)
def test_a_demixing_that_is_not_that_of_an_earlier_member_is_refused(original, tmp_path, place, points_to):
    document = copy.deepcopy(original.content["document"])
    document["attributes"]["members_"][place]["demixing_of"] = points_to
    with pytest.raises(ModelFileError, match="members_"):
        load_forged(original, tmp_path, document, original.tensors)


def test_a_demixing_may_be_that_of_a_member_that_has_it_from_another(original, tmp_path):
    document = copy.deepcopy(original.content["document"])
    document["attributes"]["members_"].append({**document["attributes"]["members_"][1], "demixing_of": 1})
    tensors = read_tensors(original.tensors)
    more = {
        name.replace("_.1.", "_.4."): one.clone() for name, one in tensors.items() if name.startswith("members_.1.")
    }
    found = load_forged(original, tmp_path, document, write_tensors(tensors | more))
    assert found.members_[4].demixer is found.members_[0].demixer


TREE = "members_.2.network"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left_k", 10**6), ("right_k", -1), ("left_k", 2**62), ("root_st", 10**6), ("root_st", -1), ("feature_k", 4),
        ("feature_k", -1), ("depth", 1024), ("depth", 10**12), ("depth", -1), ("threshold_k", np.nan),
        ("value_k", np.inf), ("baseline_t", np.nan),
    ],
)  # fmt: skip
def test_forged_trees_are_refused(original, tmp_path, name, value):
    tensors = read_tensors(original.tensors)
    key = next(one for one in tensors if one.startswith(TREE) and one.endswith(f".{name}"))
    forged_tensor = tensors[key].clone()
    forged_tensor.view(-1)[-1] = value
    with pytest.raises(ModelFileError):
        load_forged(original, tmp_path, original.content["document"], write_tensors(tensors | {key: forged_tensor}))


@pytest.mark.parametrize(
    ("name", "shape"), [("root_st", (12, 5)), ("root_st", (0, 1)), ("left_k", (1,)), ("value_k", (0,)), ("depth", (2,))]
)
def test_trees_of_another_shape_are_refused(original, tmp_path, name, shape):
    tensors = read_tensors(original.tensors)
    key = next(one for one in tensors if one.startswith(TREE) and one.endswith(f".{name}"))
    other = torch.zeros(shape, dtype=tensors[key].dtype)
    with pytest.raises(ModelFileError):
        load_forged(original, tmp_path, original.content["document"], write_tensors(tensors | {key: other}))


def test_trees_that_go_in_circles_end(original, tmp_path, blend):
    """A node that is its own grandchild cannot be told from others at once; the depth ends the walk."""
    tensors = read_tensors(original.tensors)
    key = next(one for one in tensors if one.startswith(TREE) and one.endswith(".left_k"))
    found = load_forged(
        original, tmp_path, original.content["document"], write_tensors(tensors | {key: torch.zeros_like(tensors[key])})
    )
    assert np.isfinite(found.predict_proba(blend[1])).all()


# --- later ------------------------------------------------------------------------------------------


def test_a_refit_keeps_weights_and_settings_and_shares_demixings(blend):
    clf, _, _ = blend
    again = copy.deepcopy(clf)
    X, y = rows(len(clf.classes_), seed=7, n=200)
    again.refit(X, y)
    for one, other in zip(clf.members_, again.members_, strict=True):
        for name in ("name", "weight", "setting", "temperature", "held_out"):
            assert getattr(one, name) == getattr(other, name)
        assert one.network.state_dict().keys() == other.network.state_dict().keys()
    demixers = [one.demixer for one in again.members_]
    assert demixers[0] is demixers[1] is not demixers[2]
    assert demixers[2] is demixers[3]
    assert not torch.equal(demixers[0].linear.weight.weight_kk, clf.members_[0].demixer.linear.weight.weight_kk)
    np.testing.assert_allclose(predict_together(again.members_, X), by_loop(again.members_, X), rtol=0, atol=1e-9)
    assert again.class_counts_.sum() == len(y)
    assert again.verdict_ == clf.verdict_


@pytest.mark.parametrize("demixing", ["none", "linear"])
def test_no_row_changes_its_leaf_in_a_lower_precision(demixing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(256, 3)) + np.array([0.0, 1e4, 0.0])  # with 256 rows thresholds are values of X
    y = (X[:, 0] + rng.normal(size=len(X)) > 1).astype(int)
    clf = ECRTClassifier(demixing=demixing, head=TreesHead(steps=30), random_state=0).fit(X, y)
    exact = clf.predict_proba(X)
    np.testing.assert_allclose(clf.set_params(precision="float32").predict_proba(X), exact, rtol=0, atol=1e-5)


def test_a_refit_may_lack_a_rare_class(blend):
    again = copy.deepcopy(blend[0])
    X, y = rows(len(again.classes_), seed=7, n=200)
    again.add_classes(X[:2] + 20.0, [7, 8])
    assert {7, 8} <= set(again.minority_classes_.tolist())
    assert again.refit(X, y).classes_.tolist() == np.unique(y).tolist()
    assert again.predict_proba(X).shape == (len(X), len(np.unique(y)))


def test_members_of_the_same_kinds_are_told_apart():
    X, y = rows()
    heads = [LinearHead(weight_decay=decay) for decay in (1e-3, 1.0)]
    clf = ECRTClassifier(demixing="linear", head=heads, random_state=0).fit(X, y)
    tried = clf.history_["tried"]
    assert list(tried) == ["linear, linear", "linear, linear (2)"]
    assert len(set(tried.values())) == 2
    shown = measure(clf, X, Target("classification", "", y), title="").facts["tried"]
    by_loss = {one.held_out: one.weight for one in clf.members_}
    assert {one["loss"]: one["weight"] for one in shown.values()} == {
        loss: by_loss.get(loss, 0.0) for loss in tried.values()
    }


def test_new_classes_are_learned_by_every_member(blend):
    clf, X, y = blend
    again = copy.deepcopy(clf)
    m = len(clf.classes_)
    new = np.random.default_rng(3).normal(size=(12, 4)) + np.array([9.0, -9.0, 9.0, 9.0])
    again.add_classes(new[:6], np.full(6, m))
    assert again.classes_.tolist() == list(range(m + 1))
    for one, other in zip(clf.members_, again.members_, strict=True):
        for name in ("name", "weight", "setting", "temperature"):
            assert getattr(one, name) == getattr(other, name)
        with torch.no_grad():
            alone = other.network(torch.from_numpy(sources_of(other.demixer, new) * other.scale))
        assert alone.shape == (12, m + 1)
    demixers = [one.demixer for one in again.members_]
    assert demixers[0] is demixers[1] is not demixers[2]
    assert again.predict(new[6:]).tolist() == [m] * 6
    assert (again.predict(X) == y).mean() > (clf.predict(X) == y).mean() - 0.1
    assert len(clf.classes_) == m


@pytest.mark.parametrize(
    "options", [{}, {"head": "mlp"}, {"head": "trees"}, {"demixing": Flow(epochs=1), "head": "linear"}], ids=str
)
def test_without_time_there_is_still_a_model(options):
    X, y = rows()
    with pytest.warns(ECRTWarning, match="time budget of 1e-09 s ended the search for members. Tried were: [a-z]+, "):
        clf = ECRTClassifier(time_budget=1e-9, random_state=0, **options).fit(X, y)
    assert len(clf.members_) == 1
    assert list(clf.history_["tried"]) == [clf.members_[0].name]
    assert np.isfinite(clf.predict_proba(X)).all()
    assert (clf.predict(X) == y).mean() > 0.5


def test_with_much_time_a_budget_changes_nothing():
    X, y = rows()
    found = [
        ECRTClassifier(head=SIMPLE, random_state=0, time_budget=budget).fit(X, y).predict_proba(X)
        for budget in (None, 1e6)
    ]
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("budget", [0, -1.0, "1", np.nan])
def test_budgets_that_are_none_are_refused(budget):
    X, y = rows()
    with pytest.raises(ValueError, match="time_budget"):
        ECRTClassifier(time_budget=budget).fit(X, y)


def test_the_verdict_in_all_its_forms(blend):
    clf = copy.deepcopy(blend[0])
    for gain, error, start, shown in (
        (0.2, 0.05, "Transfer lowered the held-out loss by 0.200", "(95 % interval 0.102 to 0.298)"),
        (-0.2, 0.05, "Transfer raised the held-out loss by 0.200", "(95 % interval 0.102 to 0.298)"),
        (0.01, 0.05, "Transfer changed the held-out loss by no more than chance", "-0.088 to +0.108"),
        (-0.01, 0.05, "Transfer changed the held-out loss by no more than chance", "-0.108 to +0.088"),
        (0.0, 0.0, "Transfer changed the held-out loss by no more than chance", "saved +0.000"),
    ):
        known = {"skill": 0.5, "skill_error": 0.1}
        clf.history_ = {"transfer": {"blend": 1.0, "plain": 1.0 + gain, "gain": gain, "error": error, **known}}
        assert clf.verdict_.startswith(start)
        assert shown in clf.verdict_
        assert f"1.000 with it, {1 + gain:.3f} without" in clf.verdict_
    clf.history_["transfer"] |= {"gain": 0.2, "error": 0.05, "skill": 0.1, "skill_error": 0.1}
    assert clf.verdict_ == "Held-out rows are predicted no better than by chance, with transfer or without."
    X, y = rows()
    options = {"head": "linear", "random_state": 0}
    assert ECRTClassifier(demixing="linear", **options).fit(X, y).verdict_.startswith("Transfer was not compared")
    assert ECRTClassifier(demixing="none", **options).fit(X, y).verdict_.startswith("No transfer was tried")
    with pytest.raises(ValueError, match="not fitted"):
        _ = ECRTClassifier().verdict_


def test_transfer_is_found_to_help_where_it_does():
    """Many columns that are one within-class noise: few rows of plain features cannot find it, whitening undoes it."""
    rng = np.random.default_rng(0)
    n_columns, means = 12, 0.5 * np.random.default_rng(1).normal(size=(8, 12))
    mixing = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0] * np.geomspace(0.05, 5, n_columns)
    y = np.repeat(np.arange(8), [60, 60, 60, 60, 8, 8, 8, 8])
    X = (rng.normal(size=(len(y), n_columns)) + 2 * means[y]) @ mixing.T
    clf = ECRTClassifier(head=SIMPLE, random_state=0).fit(X, y)
    assert clf.members_[0].transfers
    assert clf.history_["transfer"].keys() == {"blend", "plain", "gain", "error", "skill", "skill_error"}
    assert clf.verdict_.startswith("Transfer lowered")


def test_copies_pickles_and_clones(blend):
    clf, X, _ = blend
    expected = clf.predict_proba(X).tobytes()
    for other in (pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):
        assert other.predict_proba(X).tobytes() == expected
        assert other.members_[0].demixer is other.members_[1].demixer
        assert other.verdict_ == clf.verdict_
    fresh = clone(clf)
    assert not hasattr(fresh, "members_")
    assert fresh.get_params()["head"] == clf.get_params()["head"]
    assert clf.members_[0].head is not clf.get_params()["head"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_same_seed_gives_the_same_bits_in_two_threads(n_classes):
    X, y = rows(n_classes)

    def fit(_):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf = ECRTClassifier(head=[*SIMPLE, MLPHead(epochs=2), TREES], random_state=0).fit(X, y)
        weights = [(one.name, one.weight, one.setting) for one in clf.members_]
        return weights, clf.verdict_, clf.predict_proba(X).tobytes()

    alone = fit(0)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(fit, range(2))) == [alone, alone]


def test_several_labels_are_blended():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    Y = (X @ rng.normal(size=(4, 3)) + rng.normal(size=(150, 3)) > [0.0, 0.8, 1.5]).astype(int)
    clf = ECRTClassifier(head=["linear", MLPHead(epochs=3)], thresholds="validation", random_state=0).fit(X, Y)
    expected = by_loop(clf.members_, X) + clf.log_class_prior_
    np.testing.assert_allclose(clf.decision_function(X), expected, rtol=0, atol=1e-9)
    assert clf.history_["tried"].keys() == {"none, linear", "none, mlp", "linear, linear", "linear, mlp"}
    assert clf.history_["transfer"] is not None
    assert clf.thresholds_.shape == (3,)


def test_a_head_of_trees_is_for_classes_and_has_options_that_are_checked():
    X, y = rows()
    with pytest.raises(ValueError, match="TreesHead predicts one class"):
        ECRTClassifier(head="trees").fit(X, np.stack([y > 0, y > 1], axis=1).astype(int))
    for options in ({"steps": 0}, {"leaves": 1}, {"learning_rate": 0.0}, {"steps": 2.5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ECRTClassifier(head=TreesHead(**options)).fit(X, y)


@pytest.mark.parametrize("several", [False, True])
def test_of_pure_noise_no_gain_is_claimed(several):
    claims = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 5))
        y = (rng.random((200, 3)) > 0.6).astype(int) if several else rng.choice(3, 200, p=[0.6, 0.3, 0.1])
        clf = ECRTClassifier(head="linear", random_state=0).fit(X, y)
        claims += "no better than by chance" not in clf.verdict_
    assert claims <= 1


def naive_slopes(target, logits_nm, judged):
    """By differences of the losses, one logit at a time."""
    slopes = np.empty(logits_nm.shape)
    for column in range(logits_nm.shape[1]):
        step = torch.zeros_like(logits_nm)
        step[:, column] = 1e-6
        change = target.losses(logits_nm + step, judged) - target.losses(logits_nm - step, judged)
        slopes[:, column] = change / 2e-6
    return slopes


@pytest.mark.parametrize("several", [False, True], ids=["classes", "labels"])
def test_slopes_are_those_of_the_losses(several):
    rng = np.random.default_rng(0)
    present = rng.random((30, 4)) < 0.4
    y = read_labels(present.astype(int))[0] if several else np.arange(30) % 4
    counts = present.sum(0) if several else np.bincount(y)
    target = row_target(y, roles_of(counts), NoAugmentation(), rng, CPU)
    judged = np.arange(3, 20)
    logits_nm = torch.from_numpy(rng.normal(size=(17, 4)))
    np.testing.assert_allclose(target.slopes(logits_nm, judged), naive_slopes(target, logits_nm, judged), atol=1e-7)


def roles_of(counts):
    no, yes = np.zeros(len(counts), dtype=bool), np.ones(len(counts), dtype=bool)
    return ClassRoles(counts=counts, minority=no, augmented=no, encoded_on=yes, demixed_on=yes)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_under_weights_of_classes_know_the_prior_that_the_weights_make(n_classes):
    X, y = rows(n_classes, n=400)
    sample = HeadSample(
        torch.from_numpy(X).float(), torch.from_numpy(y), torch.ones(len(y)), torch.zeros(len(y)).bool()
    )
    fitter = TreesFitter(TREES, 0)
    weight_m = torch.tensor([1.0, 0.5, 0.25])[:n_classes]
    weighted = fitter.fit(replace(sample, weight=weight_m[sample.y] / weight_m[sample.y].sum()), 12)
    plain = fitter.fit(replace(sample, weight=sample.weight / len(y)), 12)
    difference = torch.log_softmax(weighted(sample.s), 1) - torch.log_softmax(plain(sample.s) + weight_m.log(), 1)
    assert difference.abs().max() < 1e-6


def test_gaussians_keep_some_doubt_far_from_all_classes():
    head = ClassGaussians(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), torch.ones(3, 2)).double()
    far = head(torch.tensor([[1e6, 0.0]], dtype=torch.float64))
    assert torch.allclose(far.exp().sum(), torch.ones(()).double())
    assert far.min().item() == pytest.approx(np.log(1e-4 / 3))
    assert far.argmax() == 1
    near = torch.tensor([[1.0, 0.2], [0.1, 2.0]], dtype=torch.float64)
    assert torch.allclose(head(near).exp(), torch.softmax(head.log_densities(near), 1), atol=1e-4)


def test_of_many_rows_some_choose_and_all_are_learned_from(monkeypatch):
    X, y = rows(n=600)
    monkeypatch.setattr(blending, "MOST_ROWS", 200)
    tried, learned = [], []
    monkeypatch.setattr(blending, "_tried", spied(blending._tried, lambda z, *_: tried.append(len(z))))
    monkeypatch.setattr(blending, "fit_head", spied(blending.fit_head, lambda target, *_: learned.append(target.y)))
    fitted = []
    spy = spied(LinearFitter.fit, lambda fitter, sample, setting: fitted.append(int((~sample.synthetic).sum())))
    monkeypatch.setattr(LinearFitter, "fit", spy)
    clf = ECRTClassifier(head=SIMPLE, random_state=0).fit(X, y)
    assert tried == [200]
    assert set(fitted) == {600}  # never on the rows that choose
    assert len(learned) == len(clf.members_)
    assert all(np.array_equal(one, y) for one in learned)
    assert clf.score(X, y) > 0.8


def spied(function, look):
    def call(*arguments, **options):
        look(*arguments)
        return function(*arguments, **options)

    return call


def test_some_of_many_rows_keep_all_of_the_rare():
    strata = np.repeat([0, 1, 2], [500, 60, 5])
    some = blending._some(strata, np.arange(565), 100, np.random.default_rng(0))
    assert np.bincount(strata[some]).tolist() == [48, 47, 5]


def test_columns_of_one_unit_are_also_left_in_proportion():
    X, y = rows(n=300)
    pixels = np.hstack([X @ np.random.default_rng(0).normal(size=(4, 16)), X])
    units = pixels * 10.0 ** np.arange(20)
    names = [ECRTClassifier(random_state=0, time_budget=60).fit(one, y).history_["tried"] for one in (pixels, units)]
    assert ["none, one scale, linear" in one for one in names] == [True, False]
