"""Data larger than memory: rows read block by block, as often as needed."""

import itertools
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score
from torch.utils.data import IterableDataset
from typer.testing import CliRunner

import ecrt
from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTSampler,
    ECRTTransformer,
    FileRows,
    Flow,
    GaussianHead,
    InputError,
    LinearHead,
    MLPHead,
    checkpoints,
)
from ecrt.cli import app
from ecrt.data import streams
from ecrt.data.streams import ArrayRows, ItemRows, KeptRows, MarkedRows, held_out_rows, row_hashes
from ecrt.errors import StoppedError, TerminatedError
from ecrt.runs.streamed import is_streamed
from ecrt.stages.streaming import FeatureStream, SteppedHead

pa = pytest.importorskip("pyarrow")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")

SHARES = (0.4, 0.3, 0.25, 0.04, 0.01)


def _rows(n, seed, d=6):
    world, rng = np.random.default_rng(5), np.random.default_rng(seed)
    mixing, means = world.normal(size=(d, d)), 1.2 * world.normal(size=(len(SHARES), d))
    y = rng.choice(len(SHARES), n, p=SHARES)
    return (means[y] + rng.normal(size=(n, d))) @ mixing + 7, y


@pytest.fixture(scope="module")
def data():
    return (*_rows(12_000, 0), *_rows(20_000, 1))


@pytest.fixture
def small(monkeypatch):
    """Few rows are many, so that a test need not take long."""
    monkeypatch.setattr(streams, "STREAMED_CELLS", 1000)
    monkeypatch.setattr(streams, "KEPT_ROWS", 3000)
    monkeypatch.setattr(streams, "BLOCK_ROWS", 1024)


@pytest.fixture
def mapped(data, tmp_path):
    np.save(tmp_path / "X.npy", data[0])
    return np.load(tmp_path / "X.npy", mmap_mode="r")


class Items(IterableDataset):
    """Rows one by one."""

    def __init__(self, X, y=None):
        self.X, self.y = X, y

    def __iter__(self):
        rows = map(torch.from_numpy, self.X)
        return iter(rows if self.y is None else zip(rows, self.y.tolist(), strict=True))


def _write_folder(folder, X, y, parts=3, arrow=True):
    names = [f"c{place}" for place in range(X.shape[1])]
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(y)), parts)):
        table = pa.table({**dict(zip(names, X[rows].T, strict=True)), "label": np.array(list("pqrst"))[y[rows]]})
        if arrow and number == 0:
            feather.write_feather(table, folder / "part-0.arrow", compression="uncompressed", chunksize=1500)
        else:
            parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=1500)
    return folder


# --- what is kept, and what is held out -------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), most=st.integers(3, 40), parts=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_kept_and_held_out_rows_depend_neither_on_order_nor_on_shards(seed, most, parts):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 9, size=(80, 2)).astype(np.float64), rng.choice(3, 80, p=(0.7, 0.25, 0.05))
    hashes = row_hashes(X) * np.uint64(3) + row_hashes(y)

    def kept(order):
        found = KeptRows(most, by_class=True)
        for part in np.array_split(order, parts):
            found.add(X[part], hashes[part], y[part])
        rows, of, label, times = found.settle()
        return rows.tolist(), of.tolist(), label.tolist(), times.tolist(), held_out_rows(of, label, 0.3).tolist()

    assert kept(np.arange(80)) == kept(rng.permutation(80))


def test_every_class_keeps_as_many_rows_as_can_be():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5000, 2)), rng.choice(4, 5000, p=(0.9, 0.08, 0.015, 0.005))
    found = KeptRows(300, by_class=True)
    for part in np.array_split(np.arange(5000), 9):
        found.add(X[part], row_hashes(X[part]), y[part])
    rows, hashes, label, times = found.settle()
    counts, true = np.bincount(label), np.bincount(y)
    assert 290 <= counts.sum() <= 300
    assert (counts[true < counts.max()] == true[true < counts.max()]).all()
    assert counts[0] == counts[1] == counts.max()
    assert (times == 1).all()
    assert np.array_equal(row_hashes(rows), hashes)


def test_copies_of_a_row_are_counted_and_held_out_together():
    X, y = np.repeat(np.arange(40.0), 5)[:, None], np.zeros(200, dtype=np.int64)
    found = KeptRows(1000, by_class=True)
    found.add(X, row_hashes(X), y)
    assert found.settle()[3].tolist() == [5] * 40
    out = held_out_rows(row_hashes(X), y, 0.25)
    assert out.sum() == 50
    assert (out.reshape(40, 5).all(axis=1) | ~out.reshape(40, 5).any(axis=1)).all()


@pytest.mark.usefixtures("small")
def test_a_row_with_very_many_copies_takes_its_share_of_the_room():
    X, y = np.zeros((20_000, 2)), np.arange(20_000) % 2
    some = np.random.default_rng(0).permutation(20_000)[:2000]
    X[some] = np.random.default_rng(1).normal(size=(2000, 2))
    scan = ArrayRows(X, y).scan()
    assert np.bincount(scan.y) == pytest.approx([1500, 1500], abs=60)
    assert (scan.X == 0).all(axis=1).mean() == pytest.approx(0.9, abs=0.03)
    assert len(np.unique(scan.X, axis=0)) > 200


@pytest.mark.parametrize(("copies", "wanted"), [([1], 0), ([100, 1, 1], 2), ([2, 2], 0)])
def test_a_class_never_loses_all_its_rows(copies, wanted):
    hashes = np.repeat(row_hashes(np.arange(len(copies))[:, None]), copies)
    assert held_out_rows(hashes, np.zeros(len(hashes), dtype=np.int64), 0.3).sum() == wanted


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_marked_rows_are_found_again_by_all_that_they_hold(kind):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 4, size=(300, 3)).astype(np.float64), rng.integers(2, size=300)
    X[rng.random(X.shape) < 0.1] = np.nan
    rows = pd.DataFrame(X, columns=list("abc")).assign(b=X[:, 1].astype(str)) if kind == "frame" else X
    some = np.arange(0, 300, 9)
    marked = MarkedRows(rows.iloc[some] if kind == "frame" else rows[some], y[some])
    keys = [(*map(str, row), label) for row, label in zip(X, y, strict=True)]
    expected = [key in {keys[place] for place in some} for key in keys]
    assert marked.among(rows, y).tolist() == expected
    assert 30 < sum(expected) < 250


@pytest.mark.usefixtures("small")
def test_all_sources_give_the_same_scan(data, mapped, tmp_path):
    X, y = data[:2]
    folder = _write_folder(tmp_path / "rows", X, y)
    scans = [rows.scan() for rows in (ArrayRows(mapped, y), ItemRows(Items(X, y)), FileRows(folder, "label"))]
    for one in scans:
        assert np.array_equal(one.counts, np.bincount(y))
        assert not one.complete
        assert len(one.y) <= 3000
    assert np.array_equal(scans[0].X, scans[1].X)
    # Labels are text there, so that other rows are kept of large classes; of small ones all are.
    rare = [np.sort(np.asarray(one.X)[one.y == 4], axis=0) for one in scans]
    assert np.array_equal(rare[0], rare[2])
    assert len(rare[0]) == (y == 4).sum()


@pytest.mark.usefixtures("small")
def test_blocks_in_random_order_hold_every_row_once_and_mix_places(data, mapped, tmp_path):
    X, y = data[:2]
    order = np.argsort(y, kind="stable")
    folder = _write_folder(tmp_path / "rows", X[order], y[order], parts=6)
    for rows in (ArrayRows(X[order], y[order]), FileRows(folder, "label")):
        blocks = list(rows.blocks(np.random.default_rng(0)))
        read = np.concatenate([np.asarray(block.X) for block in blocks])
        assert np.array_equal(np.sort(read[:, 0]), np.sort(X[:, 0]))
        assert max(len(block.X) for block in blocks) <= 1024
        assert np.mean([len(set(block.y)) for block in blocks]) > 1.5  # in order, nearly all have one class


@pytest.mark.usefixtures("small")
def test_test_rows_are_never_read_again(data):
    rows = ArrayRows(data[0], data[1])
    scan = rows.scan(test_size=0.1)
    assert scan.tested is not None
    tested, labels = scan.tested
    assert len(labels) == pytest.approx(1200, rel=0.02)
    assert np.bincount(labels, minlength=5) / len(labels) == pytest.approx(SHARES, abs=0.03)
    left = np.concatenate([block.X for block in rows.blocks()])
    assert len(left) == scan.counts.sum() == len(data[0]) - len(tested)
    assert not np.isin(tested[:, 0], left[:, 0]).any()
    assert not np.isin(tested[:, 0], scan.X[:, 0]).any()


# --- fits -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("options", [{}, {"n_sources": 2}])
def test_streamed_linear_demixing_is_that_of_all_rows(data, mapped, options):
    X, y, new, _ = data
    demixing = ecrt.Linear(**options)
    stream, memory = (ECRTTransformer(demixing=demixing).fit(rows, y) for rows in (mapped, X))
    assert np.array_equal(stream.class_counts_, memory.class_counts_)
    # They differ by how far covariances are shrunk: hardly, and from a fourth moment that a sample gives.
    assert np.abs(stream.transform(new) - memory.transform(new)).max() < 1e-3
    assert np.abs(stream.signal_weight_ - memory.signal_weight_).max() < 1e-4
    prior, other = stream.demixer_.prior, memory.demixer_.prior
    assert (prior.mean_md - other.mean_md).abs().max() < 1e-3
    assert (prior.variance_md - other.variance_md).abs().max() < 1e-3


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("loss", ["logit-adjusted", "focal"])
def test_a_streamed_linear_head_nears_that_of_all_rows(data, mapped, loss, monkeypatch):
    X, y, new, _ = data
    options = {
        "head": LinearHead(weight_decay=1e-3, loss=loss), "demixing": "none", "augmentation": "none", "random_state": 0,
    }  # fmt: skip
    memory = ECRTClassifier(**options).fit(X, y).predict_log_proba(new)

    def distance():
        return np.abs(ECRTClassifier(**options).fit(mapped, y).predict_log_proba(new) - memory).mean()

    streamed = distance()
    monkeypatch.setattr("ecrt.stages.streaming.TiltedHead.end_pass", lambda self, sources: None)
    assert streamed < 0.25 * distance()  # than with the rows in memory alone


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "head", [LinearHead(), GaussianHead(), MLPHead(hidden=(32,), epochs=20), LinearHead(mixup=0.2, epochs=20)]
)
def test_a_streamed_fit_is_about_as_good_as_one_in_memory(data, mapped, head):
    X, y, new, truth = data
    scores = []
    for rows in (mapped, X):
        clf = ECRTClassifier(head=head, demixing=("none", "linear"), random_state=0).fit(rows, y)
        assert clf.class_counts_.tolist() == np.bincount(y).tolist()
        scores.append(balanced_accuracy_score(truth, clf.predict(new)))
    assert scores[0] > scores[1] - 0.02, scores
    assert scores[1] > 0.7


@pytest.mark.usefixtures("small")
def test_all_sources_give_good_models_that_can_be_saved(data, mapped, tmp_path):
    X, y, new, truth = data
    folder = _write_folder(tmp_path / "rows", X, y)
    options = {"head": ("linear", "gaussian"), "random_state": 0}
    whole = ECRTClassifier(**options).fit(mapped, y)
    again = ECRTClassifier(**options).fit(mapped, y)
    assert np.array_equal(whole.predict_proba(new), again.predict_proba(new))
    items = ECRTClassifier(**options).fit(Items(X, y))
    assert (items.predict(new) == whole.predict(new)).mean() > 0.99
    files = ECRTClassifier(**options).fit(FileRows(folder, "label"))
    assert files.classes_.tolist() == list("pqrst")
    table = pd.DataFrame(new, columns=files.feature_names_in_)
    assert balanced_accuracy_score(np.array(list("pqrst"))[truth], files.predict(table)) == pytest.approx(
        balanced_accuracy_score(truth, whole.predict(new)), abs=0.02
    )
    files.save(tmp_path / "model")
    assert np.array_equal(ecrt.load(tmp_path / "model").predict(table), files.predict(table))
    assert files.verdict_
    assert len(files.sample(3, ["t"])[0]) == 3


@pytest.mark.usefixtures("small")
def test_predictions_of_a_stream_are_those_of_its_rows(data, mapped, tmp_path):
    X, y = data[:2]
    folder = _write_folder(tmp_path / "rows", X, y)
    clf = ECRTClassifier(head="linear", random_state=0).fit(X[:2000], y[:2000])
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform"):
        expected = getattr(clf, name)(np.array(X))
        for rows in (mapped, Items(X), Items(X, y)):
            assert np.array_equal(getattr(clf, name)(rows), expected), name
    assert clf.score(Items(X, y)) == clf.score(X, y)
    table = pd.DataFrame(X, columns=[f"c{place}" for place in range(X.shape[1])])
    regressor = ECRTRegressor(head="linear", random_state=0).fit(table[:300], X[:300, 0])
    order = np.argsort(FileRows(folder, drop=["label"]).files)  # the Arrow file comes first, and has the first rows
    assert order[0] == 0
    found = regressor.predict(FileRows(folder, drop=["label"]))
    assert np.allclose(found, regressor.predict(table))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most_copies", [1, 3])
def test_a_stream_that_fits_in_memory_is_fitted_there(data, most_copies):
    rows = np.repeat(np.arange(800), 1 + np.arange(800) % most_copies)
    X, y = data[0][rows], data[1][rows]
    scan = ItemRows(Items(X, y)).scan()
    assert scan.complete
    options = {"head": "linear", "random_state": 0}
    stream = ECRTClassifier(**options).fit(Items(X, y))
    memory = ECRTClassifier(**options).fit(scan.X, scan.y)
    assert np.array_equal(stream.predict_proba(X), memory.predict_proba(X))
    options = {"demixing": Flow(epochs=2, hidden=(16,), n_restarts=1), "random_state": 0}
    stream = ECRTTransformer(**options).fit(Items(X, y))
    memory = ECRTTransformer(**options).fit(scan.X, scan.y)
    assert np.array_equal(stream.transform(X), memory.transform(X))


@pytest.mark.usefixtures("small")
def test_gaps_and_categories_are_read_in_every_block_as_in_the_rows_kept(data, tmp_path):
    X, y, new, truth = data
    table = pd.DataFrame(X, columns=list("abcdef"))
    table["side"] = np.where(X[:, 0] > X[:, 0].mean(), "left", "right")
    table["whole"] = pd.array(np.round(X[:, 1]).astype(int), dtype="Int64")
    table.loc[::7, ["b", "whole"]] = None
    table["label"] = y
    table.iloc[::11, -1] = None
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=2000)
    rows = FileRows(tmp_path / "rows.parquet", "label")
    clf = ECRTClassifier(head="linear", random_state=0).fit(rows)
    assert clf.class_counts_.sum() == rows.n_rows - rows.unlabelled
    assert [column.kind for column in clf.table_.columns] == ["number"] * 6 + ["category", "number"]
    assert clf.table_.columns[1].flagged
    fresh = pd.DataFrame(new, columns=list("abcdef")).assign(
        side=np.where(new[:, 0] > X[:, 0].mean(), "left", "right"), whole=np.round(new[:, 1])
    )
    assert balanced_accuracy_score(truth, clf.predict(fresh)) > 0.8


def test_changes_to_a_copy_of_a_mapped_file_stay(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((20_000, 4)))
    for mode in ("c", "r+"):
        mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
        mapped[:] = np.arange(4)
        for rows in (mapped, mapped[5:], np.asarray(mapped)):
            streams.release(rows)
            assert (rows == np.arange(4)).all()


@pytest.mark.usefixtures("small")
def test_a_fit_stops_between_blocks_when_it_is_asked_to(data, mapped, monkeypatch):
    monkeypatch.setattr("ecrt.stages.streaming.stop_requested", lambda: True)
    with pytest.raises(StoppedError, match="reading all rows"):
        ECRTClassifier(head="linear", random_state=0).fit(mapped, data[1])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("options", [{"loss": "focal"}, {"mixup": 0.2}])
def test_every_step_of_a_streamed_network_follows_its_own_gradient(data, mapped, networks, options, monkeypatch):
    gradients = []
    batch = SteppedHead._batch

    def noted(self, *rows):
        if self.done:
            gradients.append(self.steps.parameters[0].grad.clone())  # of the step before
        return batch(self, *rows)

    monkeypatch.setattr(SteppedHead, "_batch", noted)
    head = MLPHead(hidden=(32,), epochs=10, networks=networks, **options)
    clf = ECRTClassifier(head=head, demixing="linear", random_state=0).fit(mapped, data[1])
    assert len(gradients) > 10
    assert all((one != other).any() for one, other in itertools.pairwise(gradients))
    assert balanced_accuracy_score(data[3], clf.predict(data[2])) > 0.7


def _stopped_at(number, monkeypatch, how):
    """Let a fit read so many blocks, as features, before something stops it; gives a list that grows by each."""
    read, seen = FeatureStream.read, []

    def counted(self, rng):
        for block in read(self, rng):
            seen.append(len(block.y))
            if len(seen) == number:
                how()
            yield block

    monkeypatch.setattr(FeatureStream, "read", counted)
    return seen


def _interrupt():
    raise KeyboardInterrupt


def _terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("head", [(LinearHead(), GaussianHead()), MLPHead(hidden=(16,), epochs=3, mixup=0.2)])
@pytest.mark.parametrize(("how", "every"), [(_interrupt, 1000.0), (_terminate, 0.0)])
def test_a_streamed_fit_goes_on_where_it_was_stopped(data, mapped, tmp_path, monkeypatch, head, how, every):
    clf = ECRTClassifier(head=head, demixing=("none", "linear"), random_state=0)
    wanted = clf.fit(mapped, data[1]).predict_proba(data[2])
    clf.set_params(checkpoint=tmp_path / "kept")
    monkeypatch.setattr(checkpoints, "EVERY", every)
    for number in (30, 8):  # of 12 in a pass: all is done up to the last one, which is then stopped again
        with monkeypatch.context() as patch:
            _stopped_at(number, patch, how)
            with pytest.raises((KeyboardInterrupt, TerminatedError)):
                clf.fit(mapped, data[1])
    seen = _stopped_at(0, monkeypatch, how)
    assert np.array_equal(clf.fit(mapped, data[1]).predict_proba(data[2]), wanted)
    assert len(seen) == 12  # the last pass alone
    with pytest.raises(InputError, match=r"is of another fit \(X: 12000 x 6 .*, now 11999 x 6"):
        clf.fit(mapped[:-1], data[1][:-1])
    swapped = data[1].copy()
    swapped[[0, np.argmax(swapped != swapped[0])]] = swapped[[np.argmax(swapped != swapped[0]), 0]]
    with pytest.raises(InputError, match=r"is of another fit \(X: 12000 x 6"):
        clf.fit(mapped, swapped)


@pytest.mark.usefixtures("small")
def test_a_pass_that_was_kept_ends_as_it_did(data, mapped, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "EVERY", -1)
    head = LinearHead(weight_decay=1e-3)
    clf = ECRTClassifier(demixing="linear", head=head, random_state=0, checkpoint=tmp_path / "kept")
    whole = clf.fit(mapped, data[1]).predict_proba(data[2])
    for heads in sorted((tmp_path / "kept" / "fit").glob("ended-*"))[-2:]:
        heads.unlink()  # as if the fit had been killed after the last pass
    assert np.array_equal(clf.fit(mapped, data[1]).predict_proba(data[2]), whole)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_the_command_goes_on_from_a_checkpoint(data, tmp_path, monkeypatch):
    folder = _write_folder(tmp_path / "rows", *data[:2])
    words = ["fit", str(folder), "--target", "label", "--set", "head=linear", "--seed", "0", "-o"]
    assert CliRunner().invoke(app, [*words, str(tmp_path / "whole")]).exit_code == 0
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    words += [str(tmp_path / "again"), "--checkpoint", str(tmp_path / "kept")]
    with monkeypatch.context() as patch:
        _stopped_at(15, patch, _terminate)
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 143
    assert "The same command goes on from" in result.output
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not (tmp_path / "kept").exists()
    new = pd.DataFrame(data[2], columns=[f"c{place}" for place in range(6)])
    whole, again = (ecrt.load(tmp_path / name / "model").predict_proba(new) for name in ("whole", "again"))
    assert np.array_equal(whole, again)


@pytest.mark.usefixtures("small")
def test_the_command_fits_and_predicts_folders(data, tmp_path):
    X, y = data[:2]
    folder = _write_folder(tmp_path / "rows", X, y)
    model, found = tmp_path / "model", tmp_path / "found.parquet"
    fit = ["fit", str(folder), "--target", "label", "--set", "head=linear", "-o", str(model)]
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 0, result.output
    assert "12000 rows, 6 columns, 5 classes" in result.output
    assert "read block by block" in result.output
    assert "balanced_accuracy" in result.output
    assert (model / "report.html").exists()
    files = sorted(str(file) for file in folder.iterdir())
    result = CliRunner().invoke(app, ["predict", str(model), *files, "-o", str(found)])
    assert result.exit_code == 0, result.output
    assert "12000 rows predicted." in result.output
    predicted = pd.read_parquet(found)
    assert predicted["row"].tolist() == list(range(12_000))
    assert balanced_accuracy_score(np.array(list("pqrst"))[y], predicted["predicted"]) > 0.8
    csv = tmp_path / "found.csv"
    assert CliRunner().invoke(app, ["predict", str(model), str(folder), "-o", str(csv)]).exit_code == 0
    assert np.allclose(pd.read_csv(csv)["p_p"], predicted["p_p"])


@pytest.mark.usefixtures("small")
def test_the_command_fits_and_predicts_arrays(data, mapped, tmp_path):
    np.save(tmp_path / "y.npy", data[1])
    model, found = tmp_path / "model", tmp_path / "found.jsonl"
    paths = [str(tmp_path / name) for name in ("X.npy", "y.npy")]
    result = CliRunner().invoke(app, ["fit", paths[0], "--target", paths[1], "--set", "head=linear", "-o", str(model)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["predict", str(model), paths[0], "-o", str(found)])
    assert result.exit_code == 0, result.output
    assert balanced_accuracy_score(data[1], pd.read_json(found, lines=True)["predicted"]) > 0.8


@pytest.mark.usefixtures("small")
def test_which_files_are_read_block_by_block(data, tmp_path):
    folder = _write_folder(tmp_path / "rows", *data[:2])
    table = pd.DataFrame({"a": [1.0, 2.0]})
    table.to_csv(tmp_path / "a[1].csv")
    table.to_parquet(tmp_path / "small.parquet")
    (tmp_path / "images").mkdir()
    for name in ("a[1].csv", "small.parquet", "images", "none.npz"):
        assert not is_streamed([tmp_path / name]), name
    streamed = [[folder], [folder / "*.parquet"], [folder / "part-0.arrow"], [folder / "part-1.parquet"], ["a", "b"]]
    for files in streamed:
        assert is_streamed([Path(file) for file in files]), files


@pytest.mark.usefixtures("small")
def test_ids_go_from_the_files_to_the_predictions(data, tmp_path):
    X, y = data[0][:4000], data[1][:4000]
    table = pd.DataFrame(X, columns=list("abcdef")).assign(name=np.arange(4000) * 3, label=y)
    for part in range(2):
        table[part::2].to_parquet(tmp_path / f"{part}.parquet")
    files, model = [str(tmp_path / f"{part}.parquet") for part in range(2)], str(tmp_path / "model")
    command = ["fit", *files, "--target", "label", "--id", "name", "--set", "head=linear", "-o", model]
    assert CliRunner().invoke(app, command).exit_code == 0
    found = tmp_path / "found.csv"
    result = CliRunner().invoke(app, ["predict", model, *files, "-o", str(found)])
    assert result.exit_code == 0, result.output
    assert pd.read_csv(found)["name"].tolist() == [*range(0, 12_000, 6), *range(3, 12_000, 6)]


@pytest.mark.parametrize("parts", [1, 3])
def test_classes_of_one_row_are_learned_and_said_not_to_be_tested(tmp_path, parts):
    rng = np.random.default_rng(0)
    label = np.array(["a", "b"])[rng.integers(2, size=1500)].astype(object)
    label[:12] = [f"r{place}" for place in range(12)]
    label[12:14] = "two"
    table = pd.DataFrame(rng.normal(size=(1500, 2)), columns=["u", "v"]).assign(label=label)
    for part in range(parts):
        table[part::parts].to_parquet(tmp_path / f"{part}.parquet")
    for test_size in (0.2, 0.95):
        rows = FileRows(tmp_path, "label")
        scan = rows.scan(test_size)
        assert scan.classes.tolist() == sorted(set(label))
        assert scan.counts.min() == 1
        assert scan.every.tolist() == pd.Series(label).value_counts().sort_index().tolist()
        assert len(scan.tested[1]) == pytest.approx(1500 * test_size, abs=13)
        read = np.concatenate([block.y for block in rows.blocks()])
        assert pd.Series(read).value_counts().sort_index().tolist() == scan.counts.tolist()
    assert scan.counts[scan.classes == "two"] == 1
    assert (scan.tested[1] == "two").sum() == 1
    command = ["fit", str(tmp_path), "--target", "label", "--set", "head=linear", "-o", str(tmp_path / "model")]
    if parts == 3:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        said = " ".join(result.output.split())
        assert "Too rare for a test row: 'r0', 'r1', 'r10', 'r11', 'r2' and more." in said
        counts = pd.Series(label).value_counts()
        assert (
            f"1500 rows, 2 columns, 15 classes, from 1 row of 'r0' to {counts.iloc[0]} of {counts.index[0]!r}." in said
        )
        assert ecrt.load(tmp_path / "model" / "model").classes_.tolist() == sorted(set(label))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"encoder": "mlp"}, {}, "encoder that is trained needs all rows in memory"),
        ({"selection": "pseudo-minority"}, {}, "selection needs all rows in memory"),
        ({}, {"sample_weight": np.ones(12_000)}, "sample_weight needs all rows in memory"),
        ({}, {"X_unlabelled": np.zeros((3, 6))}, "X_unlabelled needs all rows in memory"),
    ],
)
def test_what_needs_all_rows_in_memory_is_refused(mapped, data, options, given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        ECRTClassifier(**options).fit(mapped, data[1], **given)


@pytest.mark.usefixtures("small")
def test_wrong_labels_and_rows_are_named(data, mapped):
    X, y = data[:2]
    with pytest.raises(InputError, match="one label for each row"):
        ECRTClassifier().fit(mapped, np.zeros((len(y), 3), dtype=int))
    with pytest.raises(InputError, match="classes are needed"):
        ECRTClassifier().fit(mapped, X[:, 0])
    with pytest.raises(InputError, match="no label"):
        ECRTClassifier().fit(mapped, np.where(y == 0, None, "a"))
    with pytest.raises(InputError, match="do not pass y"):
        ECRTClassifier().fit(Items(X, y), y)
    with pytest.raises(InputError, match="no labels"):
        ECRTClassifier().fit(Items(X))
    with pytest.raises(InputError, match="Images need a Dataset with a length"):
        ECRTClassifier().fit(Items(np.zeros((5, 3, 8, 8)), np.zeros(5)))
    broken = np.array(X)
    broken[7000, 2] = np.inf
    with pytest.raises(InputError, match="infinity"):
        ECRTClassifier(head="linear").fit(Items(broken, y))


def _file(path, **columns):
    parquet.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pa.array([2**53, 2**53 + 1, None] * 40), [2**53, 2**53 + 1]),
        (pa.array([1, 2**63 + 1, 2**63 + 3] * 40, pa.uint64()), [1, 2**63 + 1, 2**63 + 3]),
        (pa.array([1.0, float("nan"), 3.0] * 40), [1, 3]),
    ],
)
def test_whole_numbers_are_labels_however_large(tmp_path, labels, classes):
    _file(tmp_path / "a.parquet", a=np.random.default_rng(0).normal(size=120), label=labels)
    rows = FileRows(tmp_path, "label")
    assert rows.scan().classes.tolist() == classes
    assert rows.scan().counts.tolist() == [40] * len(classes)
    assert ECRTClassifier(head="linear").fit(FileRows(tmp_path, "label")).classes_.tolist() == classes


@pytest.mark.parametrize("label", [np.inf, -np.inf, 1e300])
def test_infinite_labels_are_refused(tmp_path, label):
    _file(tmp_path / "a.parquet", a=np.arange(4.0), label=[0.0, 1.0, 1.0, label])
    with pytest.raises(InputError, match="Input y contains infinity"):
        FileRows(tmp_path, "label").scan()
    with pytest.raises(InputError, match="Input y contains infinity"):
        ArrayRows(np.zeros((2, 1)), np.array([1.0, label])).scan()


def test_rows_without_a_label_are_predicted_but_not_scored(data, tmp_path):
    X, y = data[0][:400, :2], data[1][:400]
    clf = ECRTClassifier(head="linear", random_state=0).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    _file(tmp_path / "a.parquet", a=X[:, 0], b=X[:, 1], label=pa.array(y, mask=np.arange(400) % 3 == 0))
    rows = FileRows(tmp_path, "label")
    table = pd.DataFrame(X, columns=["a", "b"])
    for name in ("predict", "predict_proba", "transform"):
        assert np.array_equal(getattr(clf, name)(rows), getattr(clf, name)(table)), name
    some = np.arange(400) % 3 > 0
    assert clf.score(rows) == clf.score(table[some], y[some])
    _file(tmp_path / "a.parquet", a=X[:0, 0], b=X[:0, 1])
    with pytest.raises(InputError, match=r"Found a table of 0 sample\(s\) and 2 feature\(s\)"):
        clf.predict(FileRows(tmp_path))


@pytest.mark.usefixtures("small")
def test_types_of_columns_may_differ_where_they_have_one_in_common(tmp_path):
    n = 3000
    rng = np.random.default_rng(0)
    for name, a, b, c, label in (
        (
            "0",
            rng.integers(9, size=n),
            pa.array(["x", "y", "z"] * 1000).dictionary_encode(),
            pa.nulls(n),
            [0, 1] * 1500,
        ),
        ("1", rng.normal(size=n), pa.array(["x", None, "z"] * 1000), rng.normal(size=n), [1.0, 2.0] * 1500),
        ("2", rng.integers(2, size=n) > 0, pa.array(["u", "y", "z"] * 1000), rng.normal(size=n), [0, 2] * 1500),
    ):
        _file(tmp_path / f"{name}.parquet", a=a, b=b, c=c, label=label)
    rows = FileRows(tmp_path, "label")
    clf = ECRTClassifier(head="linear", random_state=0).fit(rows)
    assert clf.class_counts_.tolist() == [n, n, n]
    assert [column.kind for column in clf.table_.columns] == ["number", "category", "number"]
    assert clf.predict(rows).shape == (3 * n,)
    _file(tmp_path / "3.parquet", a=[1], b=pa.array([0], pa.date32()), c=[1.0], label=[0])
    with pytest.raises(InputError, match=r"'b' is dictionary.* in 0.parquet, date32\[day\] in 3.parquet"):
        FileRows(tmp_path, "label")


def test_a_column_of_lists_is_named_and_can_be_dropped(data, tmp_path):
    X, y = data[0][:400], data[1][:400] > 0
    (tmp_path / "rows").mkdir()
    _file(tmp_path / "rows" / "a.parquet", a=X[:, 0], b=X[:, 1], tags=[[1, 2]] * 400, label=y)
    command = [
        "fit",
        str(tmp_path / "rows"),
        "--target",
        "label",
        "--set",
        "head=linear",
        "-o",
        str(tmp_path / "model"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "Column 'tags' of a.parquet holds list" in result.output
    assert "--drop tags" in result.output
    result = CliRunner().invoke(app, [*command, "--drop", "tags"])
    assert result.exit_code == 0, result.output
    found = tmp_path / "found.csv"
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(tmp_path / "rows"), "-o", str(found)])
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(found)) == 400


def test_several_labels_of_items_are_refused_but_do_not_hinder_predictions(data):
    X, y = data[0][:400], data[1][:400]
    with pytest.raises(InputError, match=r"Item 0 of the dataset has 3 labels.*Several labels are learned in memory"):
        ECRTClassifier().fit(Items(X, np.zeros((400, 3))))
    clf = ECRTClassifier(head="linear", random_state=0).fit(X, y)
    assert np.array_equal(clf.predict(Items(X, np.zeros((400, 3)))), clf.predict(X))


@pytest.mark.parametrize("last", ["0", "1"])
def test_a_column_that_one_file_lacks_is_named(tmp_path, last):
    for name in "01":
        _file(tmp_path / f"{name}.parquet", a=[1.0], label=[0], **({"more": [1.0]} if name == last else {}))
    message = {"0": "1.parquet lacks the column 'more'", "1": "1.parquet has a column 'more' that 0.parquet lacks"}
    with pytest.raises(InputError, match=message[last]):
        FileRows(tmp_path, "label")


class Shrinking(Items):
    """Some rows are gone after the first pass."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return itertools.islice(super().__iter__(), 12_000 if self.passes <= 2 else 11_990)  # one looks at an item


@pytest.mark.usefixtures("small")
def test_a_pass_with_other_rows_is_an_error(data):
    with pytest.raises(InputError, match="first pass over the rows found 12000 of them, a later one 11990"):
        ECRTClassifier(head="linear", random_state=0).fit(ItemRows(Shrinking(*data[:2])))


class Moving(Items):
    """Other values in every pass."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter((torch.from_numpy(x + self.passes), int(y)) for x, y in zip(self.X, self.y, strict=True))


@pytest.mark.usefixtures("small")
def test_a_pass_with_other_values_is_an_error(data):
    with pytest.raises(InputError, match="does not find some of the first again: they change"):
        ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(Moving(*data[:2]))


@pytest.mark.usefixtures("small")
def test_rows_to_test_on_must_be_found_again(data):
    rows = ItemRows(Moving(*data[:2]))
    rows.scan(0.2)
    with pytest.raises(InputError, match="does not find some of the first again: they change"):
        list(rows.blocks())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("how", ["removed", "cut", "overwritten", "another table"])
def test_a_file_that_is_damaged_between_two_passes_is_named(data, tmp_path, arrow, how):
    folder = _write_folder(tmp_path / "rows", *data[:2], arrow=arrow)
    file = sorted(folder.iterdir())[0]
    rows = FileRows(folder, "label")
    rows.scan()
    content = file.read_bytes()
    if how == "removed":
        file.unlink()
    elif how == "another table":
        table = pa.table({"c0": [1.0]})
        feather.write_feather(table, file) if arrow else parquet.write_table(table, file)
    else:
        file.write_bytes(content[: len(content) // 2] if how == "cut" else bytes(len(content)))
    with pytest.raises(InputError, match=f"{file.name} cannot be read"):
        list(rows.blocks())


def test_columns_of_the_same_name_are_refused(tmp_path):
    parquet.write_table(pa.table([[1.0], [2.0], [0]], names=["a", "a", "label"]), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x.parquet has more than one column 'a'"):
        FileRows(tmp_path, "label")


def test_labels_may_be_decimal_numbers(tmp_path):
    label = pa.array([Decimal(1), None, Decimal(30)] * 40, pa.decimal128(5, 2))
    _file(tmp_path / "a.parquet", a=np.random.default_rng(0).normal(size=120), label=label)
    assert FileRows(tmp_path, "label").scan().classes.tolist() == [1, 30]


def test_rows_without_labels_are_not_scored(data):
    clf = ECRTClassifier(head="linear", random_state=0).fit(data[0][:400], data[1][:400])
    with pytest.raises(InputError, match="score compares predictions with labels, and these rows have none"):
        clf.score(Items(data[0][:400]))


def test_commands_that_read_no_folders_of_tables_say_so(data, tmp_path):
    folder = _write_folder(tmp_path / "rows", data[0][:200], data[1][:200])
    np.save(tmp_path / "X.npy", data[0][:200])
    small = tmp_path / "small.csv"
    pd.DataFrame(data[0][:200]).add_prefix("c").assign(label=data[1][:200] > 0).to_csv(small, index=False)
    model = str(tmp_path / "model")
    fitted = CliRunner().invoke(app, ["fit", str(small), "--target", "label", "--set", "head=linear", "-o", model])
    assert fitted.exit_code == 0, fitted.output
    for command, message in (
        (["diagnose", str(folder), "--target", "label"], "not folders of images, Parquet or Arrow files"),
        (["compare", str(folder), "--target", "label"], "not folders of images, Parquet or Arrow files"),
        (["evaluate", model, str(folder)], "Parquet or Arrow files are read by ecrt fit and ecrt predict alone"),
        (["fit", str(tmp_path / "X.npy"), "-o", str(tmp_path / "other")], "X.npy holds no labels"),
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split()), command
    assert "such as --target y.npy" in result.output


def test_too_many_columns_are_told_before_a_row_is_read(monkeypatch):
    monkeypatch.setattr(ArrayRows, "_stored", lambda self, rng: pytest.fail("rows were read"))
    wide = np.broadcast_to(np.float64(0), (60_000, 4097))
    with pytest.raises(InputError, match=r"4097 features .* up to 4,096 features"):
        ECRTClassifier().fit(ArrayRows(wide, np.zeros(60_000)))


@pytest.mark.usefixtures("small")
def test_too_many_columns_of_items_are_told_before_anything_is_fitted(monkeypatch, data):
    monkeypatch.setattr("ecrt.stages.streaming.MOST_COLUMNS", 5)
    monkeypatch.setattr(ECRTClassifier, "_fit_classes", lambda *given, **more: pytest.fail("a fit was begun"))
    with pytest.raises(InputError, match="6 features and 5 classes are too many"):
        ECRTClassifier().fit(Items(*data[:2]))


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ("zz=category", "no column 'zz'"),
        ("label=number", "labels that are read block by block can only be a category"),
        ("z=category", ""),
    ],
)
def test_types_of_columns_in_a_folder(data, tmp_path, types, message):
    X, y = data[0][:300], data[1][:300] > 0
    (tmp_path / "rows").mkdir()
    _file(tmp_path / "rows" / "a.parquet", a=X[:, 0], z=np.arange(300) % 3, label=y)
    options = ["--target", "label", "--types", types, "--set", "head=linear", "-o", str(tmp_path / "model")]
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "rows"), *options])
    assert result.exit_code == (1 if message else 0), result.output
    assert message in " ".join(result.output.split())
    if not message:
        kinds = [column.kind for column in ecrt.load(tmp_path / "model" / "model").table_.columns]
        assert kinds == ["number", "category"]


@pytest.mark.parametrize("estimator", [ECRTRegressor(), BaselineClassifier()])
def test_estimators_that_need_rows_in_memory_say_so(estimator, data):
    with pytest.raises(InputError, match="needs rows in memory"):
        estimator.fit(Items(*data[:2]))


def test_functions_that_need_rows_in_memory_say_so(data):
    X, y = data[0][:400], data[1][:400]
    for call in (
        lambda rows: ECRTSampler().fit_resample(rows, y),
        lambda rows: ecrt.compare(rows, y),
        lambda rows: ecrt.diagnose(rows, y),
        lambda rows: ECRTClassifier().fit(X, y, X_unlabelled=rows),
        lambda rows: ECRTClassifier().fit(X, rows),
    ):
        with pytest.raises(InputError, match=r"needs? rows in memory|Rows in memory are needed"):
            call(Items(X))


def test_refit_needs_rows_in_memory(data):
    clf = ECRTClassifier(head="linear", random_state=0).fit(data[0][:500], data[1][:500])
    with pytest.raises(InputError, match=r"refit needs rows in memory"):
        clf.refit(Items(*data[:2]))


def test_wrong_files_are_named(data, tmp_path):
    folder = _write_folder(tmp_path / "rows", *data[:2], arrow=False)
    for target, message in (("lable", "no column 'lable'"), ("label", "lacks the column 'c0'")):
        if target == "label":
            table = parquet.read_table(folder / "part-1.parquet").drop_columns(["c0"])
            parquet.write_table(table, folder / "part-1.parquet")
        with pytest.raises(InputError, match=message):
            FileRows(folder, target)
    parquet.write_table(table.append_column("c0", [["x"] * len(table)]), folder / "part-1.parquet")
    with pytest.raises(InputError, match=r"'c0' is double in part-0.parquet, string in part-1.parquet"):
        FileRows(folder, "label")
    (folder / "part-1.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"part-1.parquet cannot be read"):
        FileRows(folder, "label")
    with pytest.raises(InputError, match="must be Parquet or Arrow"):
        FileRows([folder / "part-0.parquet", __file__])
    with pytest.raises(InputError, match="No Parquet or Arrow file"):
        FileRows(tmp_path / "*.parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "regression"], "task=regression is for data in memory"),
        (["--method", "smote"], "method=smote is for data in memory"),
    ],
)
def test_the_command_refuses_in_one_line_what_cannot_be_streamed(data, tmp_path, options, message):
    folder = _write_folder(tmp_path / "rows", *data[:2])
    command = ["fit", str(folder), "--target", "label", "-o", str(tmp_path / "model"), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert message in result.output


def test_a_flow_is_that_of_the_rows_kept(small, data, mapped):
    flow = Flow(epochs=2, hidden=(16,), n_restarts=1)
    clf = ECRTClassifier(demixing=flow, head="linear", random_state=0).fit(mapped, data[1])
    assert clf.demixer_.flow is not None
    assert balanced_accuracy_score(data[3], clf.predict(data[2])) > 0.7


def test_the_page_says_what_was_measured():
    root = Path(__file__).parent.parent
    found, page = json.loads((root / "results/stream_rows.json").read_text()), (root / "docs/scale.md").read_text()
    runs = found["parquet"]["runs"]
    assert [run["rows"] for run in runs] == [3_125_000 * 2**doubling for doubling in range(5)]
    for run in runs:
        figures = (run["rows"] / 1e6, run["fit_seconds"], run["predict_seconds"], run["gb_fit_and_predict"])
        assert "| {:.3g} million | {:.1f} s | {:.1f} s | {:.2f} GB |".format(*figures) in page
    for what in ("fit", "predict"):
        assert f"{found['parquet'][what]['seconds_per_million_rows']:.2f} s" in page
        assert f"{100 * found['parquet'][what]['largest_deviation']:.1f} %" in page
    mapped = found["mapped"]
    assert mapped["bytes"] > 2e10
    for figure in ("{fit_seconds:.0f} s", "{predict_seconds:.0f} s", "{gb_fit_and_predict:.2f} GB"):
        assert figure.format(**mapped) in page
    assert found["within_2_gb"]


# --- memory -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import resource, sys
import numpy as np
from ecrt import ECRTClassifier
X = np.load(sys.argv[1], mmap_mode="r")
y = (np.arange(len(X)) * 2654435761 % 1000 < 100).astype(int)
clf = ECRTClassifier(head="linear", random_state=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
clf.fit(X, y)
assert clf.predict(X).shape == (len(X),)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_file_is_fitted_and_predicted_in_less_memory_than_it_has(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=(2_200_000, 64))
    rng = np.random.default_rng(0)
    for start in range(0, len(rows), 100_000):  # zeros elsewhere, which take no room on disk
        rows[start : start + 2000] = rng.normal(size=(2000, 64))
    size = rows.nbytes / 1024
    del rows
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "X.npy")], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 0.7 * size
