"""Weights of rows: as good as repetition, in any order; fractions weigh in every count, moment and loss."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
import yaml
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import StandardScaler
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import ecrt
from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTSampler,
    ECRTTransformer,
    Flow,
    Linear,
    LinearHead,
    MLPHead,
)
from ecrt.augmentation import ClassSources
from ecrt.cli import app
from ecrt.data import ClassRoles
from ecrt.errors import ECRTWarning, InputError
from ecrt.estimators import inputs
from ecrt.estimators.classifier import _by_weight
from ecrt.estimators.inputs import weighted_rows
from ecrt.flows import class_moments
from ecrt.nn import column_spread
from ecrt.stages import GaussianHead, NoAugmentation, NoDemixing, TreesHead
from ecrt.stages.choosing import fit_head
from ecrt.stages.targets import ClassTarget, temperature_of


def problem(n: int = 60, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows, classes and whole weights from 0 to 3."""
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=3, weights=[0.5, 0.35, 0.15], random_state=seed
    )
    return X, y, np.random.default_rng(seed).integers(0, 4, n)


def repeated(*arrays: Any, times: Any, seed: int = 1) -> list[Any]:
    """Rows as often as their weights say, in another order."""
    rows = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(times)), times))
    return [array.iloc[rows] if hasattr(array, "iloc") else array[rows] for array in arrays]


ALL = np.ones(3, dtype=bool)
LINEAR = LinearHead(weight_decay=1e-2)
ESTIMATORS = {
    "default": ECRTClassifier(random_state=0),
    "prior": ECRTClassifier(demixing="linear", head="gaussian", class_prior="training", random_state=0),
    "flow": ECRTClassifier(demixing=Flow(epochs=3, n_restarts=1), head=LINEAR, random_state=0),
    "encoder": ECRTClassifier(encoder="mlp", demixing="linear", head=LINEAR, random_state=0),
    "transformer": ECRTTransformer(random_state=0),
    "regressor": ECRTRegressor(head="linear", random_state=0),
    "erm": BaselineClassifier(head=LINEAR, random_state=0),
    "smote": BaselineClassifier(method="feature-smote", head=LINEAR, random_state=0),
    "forest": BaselineClassifier(method="balanced-forest", random_state=0),
}


def resampled(sources: Any, n: int, rng: np.random.Generator) -> Any:
    return sources[rng.integers(len(sources), size=n)]


def outputs(estimator: Any, X: Any) -> Any:
    name = next(one for one in ("predict_proba", "predict", "transform") if hasattr(estimator, one))
    return getattr(estimator, name)(X)


@pytest.mark.filterwarnings("ignore")
class TestRepetition:
    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_whole_weights_are_as_good_as_repeated_rows_in_another_order(self, name: str) -> None:
        X, y, times = problem()
        target = X[:, 0] ** 2 + y if name == "regressor" else y
        found = clone(ESTIMATORS[name]).fit(X, target, sample_weight=times)
        again = clone(ESTIMATORS[name]).fit(*repeated(X, target, times=times))
        np.testing.assert_array_equal(outputs(found, X), outputs(again, X))
        unweighted = clone(ESTIMATORS[name]).fit(X, target)
        assert not np.allclose(outputs(found, X), outputs(unweighted, X))

    def test_multilabel_rows_sparse_rows_and_tables(self) -> None:
        X, y, times = problem()
        several = np.column_stack([y == 0, y > 0, X[:, 0] > 0]).astype(int)
        table = pd.DataFrame(X, columns=list("abcde")).assign(kind=pd.Categorical(np.where(X[:, 1] > 0, "x", "y")))
        table.loc[::7, "b"] = np.nan
        clf = ECRTClassifier(demixing="linear", head=LINEAR, random_state=0)
        for rows, target in (
            (X, several), (X, sparse.csr_array(several)), (sparse.csr_array(np.round(X)), y), (table, y)
        ):  # fmt: skip
            found = clone(clf).fit(rows, target, sample_weight=pd.Series(times))
            again = clone(clf).fit(*repeated(rows, target, times=times))
            np.testing.assert_array_equal(found.predict_proba(rows), again.predict_proba(rows))

    def test_zeros_and_ones_leave_rows_out_and_nothing_else(self) -> None:
        X, y, times = problem()
        kept = times > 0
        clf = ECRTClassifier(demixing="linear", random_state=0)
        found = clone(clf).fit(X, y, sample_weight=kept)
        np.testing.assert_array_equal(found.predict_proba(X), clone(clf).fit(X[kept], y[kept]).predict_proba(X))

    @pytest.mark.parametrize("name", ["prior", "regressor"])
    def test_refit_takes_weights(self, name: str) -> None:
        X, y, times = problem()
        more, labels = X + 0.1, X[:, 1] if name == "regressor" else y
        found, again = (clone(ESTIMATORS[name]).fit(X, labels) for _ in range(2))
        found.refit(more, labels, sample_weight=times)
        again.refit(*repeated(more, labels, times=times))
        np.testing.assert_array_equal(outputs(found, X), outputs(again, X))


@pytest.mark.filterwarnings("ignore")
class TestFractions:
    @pytest.mark.parametrize(
        "estimator",
        [
            ECRTClassifier(random_state=0),
            ECRTClassifier(demixing=Flow(epochs=3, n_restarts=1), head=LINEAR, random_state=0),
            ECRTClassifier(demixing="linear", augmentation="permutation", head=MLPHead(epochs=3), random_state=0),
            ECRTTransformer(random_state=0),
            BaselineClassifier(method="ldam", head=LINEAR, random_state=0),
        ],
        ids=["default", "flow", "permutation", "transformer", "ldam"],
    )
    def test_every_row_counts_for_its_weight(self, estimator: Any) -> None:
        X, y, times = problem()
        weight = times * 0.7
        found = clone(estimator).fit(X, y, sample_weight=weight)
        again = clone(estimator).fit(X[times > 0], y[times > 0], sample_weight=weight[times > 0])
        np.testing.assert_array_equal(outputs(found, X), outputs(again, X))
        np.testing.assert_allclose(found.class_counts_, np.bincount(y, weight))
        other = clone(estimator).fit(X, y, sample_weight=weight**2)
        assert not np.allclose(outputs(found, X), outputs(other, X))

    def test_weights_of_equal_rows_add_up(self) -> None:
        X, y, times = problem()
        rows = np.random.default_rng(2).permutation(np.tile(np.arange(len(y)), 2))
        found, again = (
            ECRTClassifier(demixing="linear", random_state=0)
            .fit(X[some], y[some], sample_weight=weight)
            .predict_proba(X)
            for some, weight in ((np.arange(len(y)), times), (rows, times[rows] / 2))
        )
        np.testing.assert_array_equal(found, again)

    def test_a_linear_head_minimises_the_weighted_loss(self) -> None:
        X, y, times = problem(200)
        weight = times + 0.3
        head = LinearHead(weight_decay=1e-2, loss="cross-entropy")
        clf = ECRTClassifier(demixing="none", augmentation="none", head=head, class_prior="training", random_state=0)
        found = clf.fit(X, y, sample_weight=weight).predict_proba(X)
        share = weight / weight.sum()
        scaled = (X - share @ X) / np.sqrt(share @ (X - share @ X) ** 2)
        known = LogisticRegression(C=1 / (1e-2 * weight.sum()), tol=1e-10, max_iter=1000)
        expected = known.fit(scaled, y, sample_weight=weight).predict_proba(scaled)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        np.testing.assert_allclose(np.exp(clf.log_class_prior_), np.bincount(y, weight) / weight.sum())

    def test_saved_counts_may_be_fractions(self, tmp_path: Any) -> None:
        X, y, times = problem()
        clf = ECRTClassifier(demixing="linear", head="gaussian", class_prior="training", random_state=0)
        clf.fit(X, y, sample_weight=times * 0.5 + 0.1).save(tmp_path / "model")
        again = ecrt.load(tmp_path / "model")
        np.testing.assert_array_equal(clf.class_counts_, again.class_counts_)
        np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))
        assert clf.sample(3, random_state=0)[0].shape == (9, 5)
        before = clf.class_counts_
        np.testing.assert_array_equal(clf.add_classes(X[:4] + 5, [7, 7, 8, 8]).class_counts_, [*before, 2, 2])

    def test_whole_weights_that_make_too_many_rows_leave_them_single(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inputs, "MOST_COPIES", 200)
        X, y, times = problem()
        rows = weighted_rows(X, y, times * 100)
        found, kept = np.argsort(rows.X[:, 0]), np.flatnonzero(times)[np.argsort(X[times > 0, 0])]
        np.testing.assert_array_equal(rows.X[found], X[kept])
        np.testing.assert_array_equal(rows.weight[found], times[kept] * 100)
        with pytest.raises(InputError, match="more than the 200 that are allowed"):
            ECRTRegressor().fit(X, y, sample_weight=times * 100)
        clf = ECRTClassifier(demixing="linear", head=LINEAR, random_state=0).fit(X, y, sample_weight=times * 100)
        assert clf.class_counts_.sum() == times.sum() * 100

    def test_rows_that_are_kept_to_draw_from_are_kept_as_often_as_they_weigh(self) -> None:
        weight = np.array([0.2, 9.0, 3.0, 0.5, 3.0])
        np.testing.assert_array_equal(_by_weight(np.array([1, 2, 4]), weight), [1, 1, 4])

    def test_weights_that_add_up_to_little_are_warned_of(self) -> None:
        X, y, _ = problem()
        with pytest.warns(UserWarning, match="add up to 1. .*divide them by their mean"):
            weighted_rows(X, y, np.full(len(y), 1 / len(y)))


class TestStages:
    """With weights of rows every stage finds what it finds in repeated rows."""

    def test_columns_and_class_moments(self) -> None:
        X, y, times = problem()
        more, labels = X.repeat(times, axis=0), y.repeat(times)
        np.testing.assert_allclose(column_spread(X, times.astype(float)), column_spread(more))
        common = torch.ones(5, dtype=torch.float64)
        each = torch.from_numpy(times)
        found = class_moments(torch.from_numpy(X), torch.from_numpy(y), common, 10.0, each)
        expected = class_moments(torch.from_numpy(more), torch.from_numpy(labels), common, 10.0)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)

    @pytest.mark.parametrize("demixing", [NoDemixing(), NoDemixing(scaling="one"), Linear(), Linear(n_sources=2)])
    @pytest.mark.parametrize("head", [LINEAR, LinearHead(weight_decay=1e-2, loss="focal"), GaussianHead()])
    def test_demixing_and_heads(self, demixing: Any, head: Any) -> None:
        X, y, times = problem(150)
        rows = np.flatnonzero(times)
        X, y, times = X[rows], y[rows], times[rows]
        more, labels = X.repeat(times, axis=0), y.repeat(times)
        mine, logits = self.fitted(X, y, times.astype(np.float64), demixing, head, X)
        theirs, expected = self.fitted(more, labels, None, demixing, head, X)
        for name in ("within_variance", "signal_to_noise", "head_scale"):
            np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=1e-6)
        np.testing.assert_allclose(logits, expected, atol=2e-3 if head.kind == "linear" else 1e-5)

    def test_trees(self) -> None:
        """Leaves and bins count rows, so that weights are only nearly as good as repetition."""
        X, y, times = problem(600)
        times = np.where(X[:, 0] > 0, 6, 1) + times % 2
        more = self.fitted(X.repeat(times, axis=0), y.repeat(times), None, NoDemixing(), TreesHead(), X)[1]
        weighted, plain = (
            self.fitted(X, y, weight, NoDemixing(), TreesHead(), X)[1] for weight in (times.astype(np.float64), None)
        )
        assert np.abs(weighted - more).mean() < 0.6 * np.abs(plain - more).mean()

    @staticmethod
    def fitted(z: Any, y: Any, weight: Any, demixing: Any, head: Any, X: Any) -> tuple[Any, Any]:
        """A de-mixing, and the balanced logits of X by a head on it."""
        roles = ClassRoles(counts=np.bincount(y, weight), minority=~ALL, augmented=~ALL, encoded_on=ALL, demixed_on=ALL)
        target = ClassTarget(y, roles, NoAugmentation(), np.random.default_rng(0), torch.device("cpu"), weight)
        everything = np.arange(len(z))
        demixed = target.demix(z, everything, everything[:0], demixing)
        scaled = torch.from_numpy(demixed.sources(X) * demixed.head_scale)
        setting = {"linear": 1e-2, "gaussian": 10.0, "trees": 4}[head.kind]
        return demixed, fit_head(target, demixed, head, setting, 1.0)(scaled).detach().numpy()

    def test_a_class_of_hardly_any_weight_hides_no_more_of_the_others_than_one_row_would(self) -> None:
        X, y, _ = problem(150)
        one_row, hardly_any = (
            self.fitted(X, y, np.where(y == 2, weight, 1.0), Linear(), LINEAR, X)[0].signal_weight
            for weight in (1 / (y == 2).sum(), 1e-4)
        )
        np.testing.assert_allclose(hardly_any, one_row, atol=0.02)
        assert one_row.max() > 0.15

    def test_temperature(self) -> None:
        X, y, times = problem()
        head, prior = torch.nn.Linear(5, 3).double(), torch.full((3,), 1 / 3)
        found = temperature_of(head, prior, torch.from_numpy(X), y, times.astype(float))
        expected = temperature_of(head, prior, torch.from_numpy(X.repeat(times, axis=0)), y.repeat(times))
        assert found == pytest.approx(expected)

    def test_rows_are_drawn_as_often_as_they_weigh(self) -> None:
        weight = torch.tensor([1.0, 3.0, 0.5, 1.5], dtype=torch.float64)
        rows, labels = torch.tensor([3, 2, 1, 0]), torch.tensor([0, 0, 1, 1])
        sources = ClassSources(torch.zeros(4, 1), rows, labels, 2, torch.ones(1), weight_k=weight)
        drawn = sources.rows(torch.tensor([0, 1]).repeat(4000), 1, torch.Generator().manual_seed(0)).reshape(-1, 2)
        np.testing.assert_allclose((drawn == torch.tensor([2, 0])).double().mean(0), 0.75, atol=0.02)
        assert set(drawn[:, 0].tolist()) == {2, 3}

    def test_judges_weigh_as_much_as_copies(self) -> None:
        _, y, times = problem()
        roles = ClassRoles(counts=np.bincount(y, times), minority=~ALL, augmented=~ALL, encoded_on=ALL, demixed_on=ALL)
        options = (roles, NoAugmentation(), np.random.default_rng(0), torch.device("cpu"))
        found = ClassTarget(y, *options, times.astype(float)).weights(np.arange(len(y)))
        copies = np.repeat(np.arange(len(y)), times)
        expected = np.bincount(copies, ClassTarget(y[copies], *options).weights(np.arange(len(copies))), len(y))
        np.testing.assert_allclose(found, expected)


class TestErrors:
    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            (np.r_[1.0, -2.0, np.ones(58)], "row 1 has the weight -2"),
            (np.r_[1.0, 1.0, np.nan, np.ones(57)], "row 2 has the weight nan"),
            (np.zeros(60), "Every sample weight is zero"),
            (np.ones(59), "shape .59,.; a number for each of the 60 rows"),
            (np.ones((60, 1)), r"a number for each of the 60 rows is needed\.$"),
            (["a"] * 60, "sample_weight: "),
        ],
    )
    def test_weights_that_mean_nothing(self, weight: Any, message: str) -> None:
        X, y, _ = problem()
        with pytest.raises(InputError, match=message):
            ECRTClassifier().fit(X, y, sample_weight=weight)

    def test_a_dataset_has_no_weights(self) -> None:
        X, y, times = problem()
        with pytest.raises(InputError, match="repeat its items"):
            ECRTClassifier().fit(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), sample_weight=times)

    @pytest.mark.parametrize(
        ("estimator", "who"),
        [
            (ECRTClassifier(encoder="mlp"), "An encoder that is trained"),
            (ECRTClassifier(selection="pseudo-minority"), "selection"),
            (ECRTClassifier(augmentation="kernel"), "augmentation='kernel'"),
            (ECRTClassifier(augmentation="borrowed"), "augmentation='borrowed'"),
            (ECRTClassifier(augmentation=resampled), "augmentation=.*resampled"),
            (ECRTTransformer(encoder="mlp"), "An encoder that is trained"),
            (ECRTRegressor(), "ECRTRegressor"),
            (BaselineClassifier(method="feature-smote"), "method=.*SMOTE"),
        ],
    )
    def test_parts_that_take_whole_weights_alone_are_named(self, estimator: Any, who: str) -> None:
        X, y, times = problem()
        with pytest.raises(InputError, match=f"^{who}.* takes whole numbers as sample_weight"):
            estimator.fit(X, y, sample_weight=times + 0.5)

    def test_fractions_for_several_labels_and_unlabelled_rows(self) -> None:
        X, y, times = problem()
        with pytest.raises(InputError, match="Multi-label data takes whole numbers"):
            ECRTClassifier().fit(X, np.eye(3, dtype=int)[y], sample_weight=times + 0.5)
        with pytest.raises(InputError, match="X_unlabelled takes whole numbers"):
            ECRTClassifier().fit(X, y, X_unlabelled=X, sample_weight=times + 0.5)


@pytest.mark.filterwarnings("ignore")
class TestRouting:
    """Weights reach a fit within the tools of scikit-learn and imbalanced-learn."""

    clf = ECRTClassifier(demixing="linear", head=LINEAR, random_state=0)

    @pytest.fixture(autouse=True)
    def _routing(self) -> Any:
        with sklearn.config_context(enable_metadata_routing=True):
            yield

    def test_cross_validation(self) -> None:
        X, y, times = problem(90)
        clf = clone(self.clf).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_val_score(clf, X, y, cv=3, params={"sample_weight": times})
        seen = []
        for learn, check in sklearn.model_selection.StratifiedKFold(3).split(X, y):
            fitted = clone(self.clf).fit(X[learn], y[learn], sample_weight=times[learn])
            seen.append(fitted.score(X[check], y[check], times[check]))
        np.testing.assert_array_equal(found, seen)

    def test_grid_search(self) -> None:
        X, y, times = problem(90)
        clf = clone(self.clf).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        search = GridSearchCV(clf, {"head__weight_decay": [1e-3, 1e-1]}, cv=3).fit(X, y, sample_weight=times)
        head = LinearHead(weight_decay=search.best_params_["head__weight_decay"])
        expected = clone(self.clf).set_params(head=head).fit(X, y, sample_weight=times)
        np.testing.assert_array_equal(search.predict_proba(X), expected.predict_proba(X))

    def test_a_pipeline_of_imbalanced_learn(self) -> None:
        X, y, times = problem(90)
        transformer = ECRTTransformer(random_state=0).set_fit_request(sample_weight=True)
        steps = make_pipeline(transformer, clone(self.clf).set_fit_request(sample_weight=True))
        found = steps.fit(X, y, sample_weight=times)
        sources = ECRTTransformer(random_state=0).fit(X, y, sample_weight=times)
        expected = clone(self.clf).fit(sources.transform(X), y, sample_weight=times)
        np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(sources.transform(X)))

    def test_after_a_sampler_weights_do_not_fit_any_more(self) -> None:
        X, y, times = problem(90)
        steps = make_pipeline(
            RandomOverSampler(random_state=0), clone(self.clf).set_fit_request(sample_weight=True)
        )  # fmt: skip
        with pytest.raises(InputError, match=r"a number for each of the .* only ECRTSampler can take the weights"):
            steps.fit(X, y, sample_weight=times)
        sampler = ECRTSampler(random_state=0)
        more = sampler.fit_resample(X, y)
        clf = clone(self.clf).fit(*more, sample_weight=times[sampler.sample_indices_])
        assert clf.class_counts_.sum() == times[sampler.sample_indices_].sum()

    def test_whole_weights_pass_through_our_sampler_as_repeated_rows(self) -> None:
        X, y, times = problem(90)
        sampler = ECRTSampler(random_state=0)
        both = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True),
            clone(sampler).set_fit_resample_request(sample_weight=True),
            clone(self.clf).set_fit_request(sample_weight=False).set_score_request(sample_weight=True),
        )
        rows = np.repeat(np.arange(len(y)), times)
        with sklearn.config_context(enable_metadata_routing=False):
            plain = make_pipeline(StandardScaler(), sampler, self.clf)
            expected = clone(plain).fit(X[rows], y[rows])
            unweighted = clone(plain).fit(X, y)
        found = both.fit(X, y, sample_weight=times)
        np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
        assert not np.allclose(found.predict_proba(X), unweighted.predict_proba(X))
        assert len(cross_val_score(both, X, y, cv=3, params={"sample_weight": times}, error_score="raise")) == 3
        grid = {"ecrtsampler__augmentation": ["pairs", "kernel"]}
        search = GridSearchCV(both, grid, cv=3, error_score="raise").fit(X, y, sample_weight=times)
        again = clone(both).set_params(**search.best_params_).fit(X, y, sample_weight=times)
        np.testing.assert_array_equal(search.predict_proba(X), again.predict_proba(X))

    def test_a_sampler_that_was_not_asked_names_itself(self) -> None:
        X, y, times = problem(90)
        steps = make_pipeline(ECRTSampler(random_state=0), clone(self.clf).set_fit_request(sample_weight=True))
        with pytest.raises(UnsetMetadataPassedError, match=r"ECRTSampler\.set_fit_resample_request"):
            steps.fit(X, y, sample_weight=times)


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.filterwarnings("ignore")
class TestCommand:
    QUICK = ("--target", "kind", "--set", "model.demixing=linear", "--set", "model.head=linear")

    @pytest.fixture
    def table(self) -> pd.DataFrame:
        X, y, times = problem(120)
        return pd.DataFrame(X, columns=list("abcde")).assign(times=times, kind=np.array(["x", "y", "z"])[y])

    def test_the_weights_are_used_and_the_column_is_not_learned_from(self, table: pd.DataFrame, tmp_path: Any) -> None:
        table.to_csv(tmp_path / "t.csv", index=False)
        result = invoke("fit", tmp_path / "t.csv", *self.QUICK, "--weight", "times", "-o", tmp_path / "fit")
        assert result.exit_code == 0, result.output
        assert "rows of weight 0 are left out" in result.output
        assert yaml.safe_load((tmp_path / "fit" / "config.yaml").read_text())["weight"] == "times"
        subject = json.loads((tmp_path / "fit" / "metrics.json").read_text())["subject"]
        figures = np.load(tmp_path / "fit" / "evaluation.npz")
        rows, used = int((table["times"] > 0).sum()), figures["counts"].sum()
        train = rows - len(figures["y"])
        assert f"fitted on {train} of the {rows} rows" in subject
        assert f"of the column 'times' in the fit: these {train} count as {used}. Each test row counts once." in subject
        assert "Each test row counts once" in (tmp_path / "fit" / "report.html").read_text()
        card = (tmp_path / "fit" / "model" / "MODEL_CARD.md").read_text()
        assert f"fitted on {rows} rows that count as {table['times'].sum():,} samples" in card
        model = ecrt.load(tmp_path / "fit" / "model")
        assert list(model.feature_names_in_) == list("abcde")
        np.testing.assert_array_equal(model.class_counts_, table.groupby("kind")["times"].sum())
        other = invoke("evaluate", tmp_path / "fit", tmp_path / "t.csv")
        assert other.exit_code == 0, other.output
        new = tmp_path / "new.csv"
        table.drop(columns=["times", "kind"]).to_csv(new, index=False)
        assert invoke("predict", tmp_path / "fit", new, "-o", tmp_path / "p.csv").exit_code == 0

    def test_fractions_and_a_rival(self, table: pd.DataFrame, tmp_path: Any) -> None:
        table.assign(times=table["times"] / 2 + 0.1).to_csv(tmp_path / "t.csv", index=False)
        for number, method in enumerate(("ecrt", "logit-adjusted")):
            quick = self.QUICK if method == "ecrt" else ("--target", "kind", "--method", method)
            folder = tmp_path / str(number)
            result = invoke("fit", tmp_path / "t.csv", *quick, "--weight", "times", "-o", folder)
            assert result.exit_code == 0, result.output
            model = ecrt.load(folder / "model")
            np.testing.assert_allclose(
                model.class_counts_, table.groupby("kind")["times"].agg(lambda w: (w / 2 + 0.1).sum())
            )
            assert (folder / "report.html").is_file()

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (-1, "row 3 (line 4 of a text file with a header) has the weight -1"),
            ("", "row 3 (line 4"),
            ("much", "row 3"),
        ],
    )
    def test_a_weight_that_means_nothing_is_named(
        self, table: pd.DataFrame, tmp_path: Any, value: Any, message: str
    ) -> None:
        table["times"] = table["times"].astype(object)
        table.loc[2, "times"] = value
        table.to_csv(tmp_path / "t.csv", index=False)
        result = invoke("fit", tmp_path / "t.csv", *self.QUICK, "--weight", "times", "-o", tmp_path / "fit")
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--weight", "tims"], "has no column 'tims'"),
            (["--weight", "times", "--drop", "times"], "'times' is given as group, time, seen or weight and dropped"),
            (["--weight", "times", "--types", "times=category"], "--types times has no effect"),
        ],
    )
    def test_options_that_cannot_be_meant(
        self, table: pd.DataFrame, tmp_path: Any, options: list[str], message: str
    ) -> None:
        table.to_csv(tmp_path / "t.csv", index=False)
        result = invoke("fit", tmp_path / "t.csv", *self.QUICK, *options, "-o", tmp_path / "fit")
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())

    def test_a_column_of_zeros_is_named(self, table: pd.DataFrame, tmp_path: Any) -> None:
        table.assign(times=0).to_csv(tmp_path / "t.csv", index=False)
        result = invoke("fit", tmp_path / "t.csv", *self.QUICK, "--weight", "times", "-o", tmp_path / "fit")
        assert result.exit_code == 1
        assert "--weight times: every weight is zero" in " ".join(result.output.split())

    def test_only_tables_have_a_column_of_weights(self, tmp_path: Any) -> None:
        X, y, _ = problem()
        np.savez(tmp_path / "e.npz", X=X, y=y)
        result = invoke("fit", tmp_path / "e.npz", "--weight", "w", "-o", tmp_path / "fit")
        assert result.exit_code == 1
        assert "names a column of a table" in result.output


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("one", "told"),
    [(10**17, "add up to more than"), (1e300, "add up to more than"), (np.datetime64("2020-01-01"), "dates or times")],
)
def test_weights_that_count_nothing_are_refused(one: Any, told: str) -> None:
    X, y, _ = problem()
    with pytest.raises(InputError, match=told):
        ECRTTransformer(random_state=0).fit(X, y, sample_weight=np.full(len(y), one))


def test_copies_of_a_row_judge_nothing_that_learned_from_it() -> None:
    """Labels are noise: a row by heart is known again in its copies, and nowhere else."""
    rng = np.random.default_rng(0)
    X, y, times = rng.normal(size=(200, 5)), rng.integers(0, 3, 200), rng.integers(1, 5, 200)
    cases: list[dict[str, Any]] = [{"sample_weight": times}, {}, {"sample_weight": np.full(times.sum(), 0.7)}]
    for given in cases:
        rows = (X, y) if given.get("sample_weight") is times else repeated(X, y, times=times)
        clf = ECRTClassifier(demixing="none", head=("linear", "trees"), random_state=0).fit(*rows, **given)
        assert clf.verdict_.startswith("No transfer") or "no better than by chance" in clf.verdict_
        assert min(one.held_out for one in clf.members_) > 1.0  # of log(3) by chance
        each = 0.7 if given and given["sample_weight"] is not times else 1
        np.testing.assert_allclose(clf.class_counts_, each * np.bincount(y, times))


def test_copies_are_repeated_where_a_part_cannot_weigh_them_and_that_is_said() -> None:
    rng = np.random.default_rng(0)
    X, times = rng.normal(size=(60, 2)), rng.integers(1, 4, 60)
    message = f"ECRTRegressor repeats rows.*{times.sum()} rows are made of 60.*too good"
    for rows, given in (((X, X[:, 0]), {"sample_weight": times}), (repeated(X, X[:, 0], times=times), {})):
        with pytest.warns(ECRTWarning, match=message):
            ECRTRegressor(head="linear", random_state=0).fit(*rows, **given)


def test_equal_rows_of_a_table_of_counts_are_no_copies() -> None:
    values = np.column_stack([np.arange(30), np.arange(30) % 3]).repeat(2, axis=0)  # a line for each class
    y, times = np.arange(60) % 2, np.random.default_rng(0).integers(1, 4, 60)
    rows = weighted_rows(values, y, times)
    assert rows.weight is None
    assert len(rows.y) == times.sum()
    few = np.where(np.arange(60) == 7, 3, 1)  # hardly any copy
    assert weighted_rows(np.arange(60.0)[:, None], y, few).weight is None
