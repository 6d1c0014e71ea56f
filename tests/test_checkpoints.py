"""A fit that was stopped, wherever that was, goes on and ends with the same bits."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils.data import TensorDataset

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, Encoder, Flow, MLPHead, checkpoints
from ecrt.errors import InputError, ModelFileError, TerminatedError
from ecrt.estimators.base import _described
from ecrt.estimators.saved import load
from ecrt.io.model_files import sealed
from ecrt.rivals.synthetic_rows import ConditionalGAN
from ecrt.selection import PseudoMinority

X, Y = make_classification(240, n_classes=4, n_informative=6, weights=[0.4, 0.3, 0.25, 0.05], random_state=0)
NUMBERS = X[:, 0] + X[:, 1] ** 2
MLP = MLPHead(epochs=4, hidden=(8,), dropout=0.1)
FLOW = Flow(epochs=3, blocks=2, hidden=(8, 8), n_restarts=2)
FITS = {
    "default": lambda: ECRTClassifier(),
    "flow": lambda: ECRTClassifier(demixing=FLOW, head="linear"),
    "flow by batches": lambda: ECRTClassifier(demixing=FLOW.set_params(objective="gcl", label_marginal="batch")),
    "MLP head": lambda: ECRTClassifier(demixing="linear", head=MLP),
    "encoder": lambda: ECRTClassifier(encoder=Encoder("mlp", epochs=4, mixup=0.3), head="linear"),
    "selection": lambda: ECRTClassifier(selection=PseudoMinority(trials=6), head=MLP),
    "transformer": lambda: ECRTTransformer(demixing=FLOW),
    "regressor": lambda: ECRTRegressor(demixing=FLOW, head=MLP),
    "GAN": lambda: BaselineClassifier(method=ConditionalGAN(n_steps=80, width=16)),
    "deferred losses": lambda: BaselineClassifier(method="ldam-drw", encoder=Encoder("mlp", epochs=4)),
}


class KilledError(BaseException):
    """As SIGKILL: no cleaning up is done on the way."""


def fitted(name, folder=None):
    estimator = FITS[name]().set_params(random_state=0, checkpoint=folder)
    estimator.fit(X, NUMBERS if name == "regressor" else Y)
    answers = "transform" if name == "transformer" else "predict" if name == "regressor" else "predict_proba"
    return getattr(estimator, answers)(X)


@pytest.fixture
def killed_after(monkeypatch):
    """Everything is written at once, and after so many files the process is as good as killed."""
    monkeypatch.setattr(checkpoints, "EVERY", -1.0)
    write = checkpoints.Checkpoints._write
    left = [np.inf]

    def write_and_die(self, name, content):
        if left[0] <= 0:
            raise KilledError
        left[0] -= 1
        write(self, name, content)

    monkeypatch.setattr(checkpoints.Checkpoints, "_write", write_and_die)
    return left


@pytest.mark.parametrize("name", FITS)
def test_the_same_bits_wherever_it_was_killed(name, tmp_path, killed_after):
    wanted = fitted(name)
    kills = 0
    for number in [1, 2, 3, 5, 8, 13, 21, 34, 55, 1000]:
        killed_after[0] = number
        try:
            found = fitted(name, tmp_path)
        except KilledError:
            kills += 1
        else:
            break
    killed_after[0] = np.inf
    found = fitted(name, tmp_path)
    np.testing.assert_array_equal(found, wanted)
    assert kills >= 2


def test_what_has_ended_is_not_trained_again(tmp_path, killed_after, monkeypatch):
    fitted("MLP head", tmp_path)
    monkeypatch.setattr("ecrt.training.WatchedSteps.__call__", lambda self, batch: pytest.fail("trained again"))
    fitted("MLP head", tmp_path)


def test_sigterm_ends_the_step_saves_and_the_fit_goes_on(tmp_path, monkeypatch):
    wanted, steps = fitted("flow"), []
    call = checkpoints.Kept.save

    def save(self, state):
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        call(self, state)

    monkeypatch.setattr(checkpoints.Kept, "save", save)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TerminatedError):
        fitted("flow", tmp_path)
    assert len(steps) == 4
    assert signal.getsignal(signal.SIGTERM) == before
    assert any((tmp_path / "fit").glob("unfinished-*"))
    np.testing.assert_array_equal(fitted("flow", tmp_path), wanted)


def test_without_a_seed_the_fit_keeps_the_one_it_began_with(tmp_path, killed_after):
    clf = ECRTClassifier(demixing="linear", head=MLP, checkpoint=tmp_path)
    killed_after[0] = 3
    with pytest.raises(KilledError):
        clf.fit(X, Y)
    killed_after[0] = np.inf
    first, again = clf.fit(X, Y).predict_proba(X), clf.fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(first, again)
    assert clf.random_state is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda clf: (clf.set_params(head=MLPHead(epochs=5)), X, Y), "head"),
        (lambda clf: (clf.set_params(random_state=1), X, Y), "random_state"),
        (lambda clf: (clf, X + 1e-9, Y), "X"),
        (lambda clf: (clf, X[:200], Y[:200]), "240 x 20"),
        (lambda clf: (clf, X, np.roll(Y, 1)), "y"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_by_name(change, named, tmp_path):
    clf = ECRTClassifier(demixing="linear", head=MLP, random_state=0, checkpoint=tmp_path).fit(X, Y)
    other, data, labels = change(clf)
    with pytest.raises(InputError, match=rf"of another fit \(.*{named}"):
        other.fit(data, labels)


def test_a_checkpoint_of_another_number_of_processes_is_refused(tmp_path, monkeypatch):
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0, checkpoint=tmp_path).fit(X, Y)
    monkeypatch.setattr("ecrt.estimators.base.processes", lambda: 2)
    with pytest.raises(InputError, match=r"of another fit \(.*number of processes"):
        clf.fit(X, Y)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_names_no_folder_is_refused(name):
    with pytest.raises(InputError, match="must name a folder"):
        ECRTClassifier(checkpoint=name, random_state=0).fit(X, Y)


@pytest.mark.parametrize("kind", [pd.DataFrame, torch.from_numpy, lambda one: one.tolist()])
def test_digests_know_one_value_from_another(kind):
    one, other = X.copy(), X.copy()
    other[-1, -1] += 1e-12
    assert checkpoints.digest_of(kind(one)) == checkpoints.digest_of(kind(X.copy()))
    assert checkpoints.digest_of(kind(one)) != checkpoints.digest_of(kind(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda counts: counts < 20, lambda counts: counts < 30),
        (np.eye(60), np.eye(60) + np.diag([1e-9] * 59, k=1)),
        (pd.DataFrame(np.eye(60)), pd.DataFrame(2 * np.eye(60))),
    ],
)
def test_options_are_told_apart_by_what_they_hold(one, other):
    assert _described(one) == _described(one)
    assert _described(one) != _described(other)


def test_encoders_are_told_apart_by_their_weights(tmp_path):
    torch.manual_seed(0)
    data = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y))
    options = {"head": "linear", "demixing": "none", "augmentation": "none", "checkpoint": tmp_path, "random_state": 0}
    ECRTClassifier(encoder=Encoder(nn.Linear(20, 4), epochs=1), **options).fit(data)
    with pytest.raises(InputError, match="encoder"):
        ECRTClassifier(encoder=Encoder(nn.Linear(20, 4), epochs=1), **options).fit(data)


def test_a_folder_that_holds_other_files_is_refused(tmp_path):
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match="holds other files"):
        ECRTClassifier(checkpoint=tmp_path).fit(X, Y)


def test_a_fit_that_was_killed_when_it_began_goes_on(tmp_path):
    (tmp_path / "fit").mkdir()
    unfinished = tmp_path / "fit" / ".ecrt-4831a400c581930c.tmp"  # what a writer leaves that is killed
    unfinished.write_text('{"fit"')
    ECRTClassifier(checkpoint=tmp_path, head="linear", demixing="none", augmentation="none").fit(X, Y)
    assert not unfinished.exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"time_budget": 5}, "time_budget"),
        ({"selection": "pseudo-minority"}, "trials"),
        ({"random_state": np.random.RandomState(0)}, "number"),
    ],
)
def test_what_is_not_the_same_each_time_is_refused(options, named, tmp_path):
    with pytest.raises(InputError, match=named):
        ECRTClassifier(checkpoint=tmp_path, **options).fit(X, Y)


def test_torn_files_are_done_again(tmp_path, killed_after):
    wanted = fitted("MLP head")
    killed_after[0] = 9
    with pytest.raises(KilledError):
        fitted("MLP head", tmp_path)
    for file in sorted((tmp_path / "fit").glob("*.safetensors"))[::2]:
        file.write_bytes(file.read_bytes()[:100])
    killed_after[0] = np.inf
    np.testing.assert_array_equal(fitted("MLP head", tmp_path), wanted)


def test_a_full_disk_does_not_end_the_fit(tmp_path, monkeypatch):
    wanted = fitted("MLP head")
    monkeypatch.setattr(checkpoints, "EVERY", -1.0)

    def full(file):
        raise InputError(f"{file}: no space left on the disk.")

    monkeypatch.setattr(checkpoints, "replacing", full)
    with pytest.warns(UserWarning, match=r"goes on.*no space left") as told:
        found = fitted("MLP head", tmp_path)
    np.testing.assert_array_equal(found, wanted)
    assert len([one for one in told if "no space left" in str(one.message)]) == 1


def test_two_fits_do_not_share_a_folder(tmp_path):
    clf = ECRTClassifier(checkpoint=tmp_path, random_state=0)
    with checkpoints.locked(tmp_path / "fit", wait=False), pytest.raises(InputError, match=r"in use|another"):
        clf.fit(X, Y)


def test_saved_models_do_not_name_the_folder(tmp_path):
    clf = ECRTClassifier(demixing="linear", head="linear", checkpoint=tmp_path / "in-between", random_state=0).fit(X, Y)
    clf.save(tmp_path / "model")
    assert "in-between" not in "".join(file.read_text(errors="ignore") for file in (tmp_path / "model").iterdir())


def test_forgetting_leaves_the_files_of_others(tmp_path):
    ECRTClassifier(demixing="linear", head=MLP, checkpoint=tmp_path / "a", random_state=0).fit(X, Y)
    checkpoints.forget(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    ECRTClassifier(demixing="linear", head=MLP, checkpoint=tmp_path / "b", random_state=0).fit(X, Y)
    (tmp_path / "b" / "letter.txt").write_text("dear")
    checkpoints.forget(tmp_path / "b")
    assert [file.name for file in (tmp_path / "b").iterdir()] == ["letter.txt"]


def a_pipe(file, about):
    os.mkfifo(file)


def a_link(file, about):
    file.symlink_to("/dev/zero")


def gigabytes(file, about):
    """They take no space on the disk; memory they would."""
    size = 2**37
    header = json.dumps({"__metadata__": about, "0": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}})
    with file.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header.encode())
        stream.truncate(8 + len(header) + size)


def holds(content):
    return lambda file, about: file.write_bytes(save({"0": torch.zeros(3)}, about | {"content": content}))


ALIEN = {
    "a pipe": a_pipe,
    "a link": a_link,
    "gigabytes": gigabytes,
    "text": lambda file, about: file.write_text("dear"),
    "deep": holds("[" * 100_000 + "]" * 100_000),
    "a number": holds("3"),
    "a tensor": holds('{"tensor": "0"}'),
    "no tensor": holds('{"tensor": "7"}'),
    "no entries": holds('{"entries": {"number": "a", "place": 1, "1": 3}}'),
}


@pytest.mark.parametrize("name", ["ended-000001-000001", "unfinished-0", "ended-a", "ended-1-2-3"])
@pytest.mark.parametrize("kind", ALIEN)
def test_files_that_are_not_of_the_fit_are_done_again(kind, name, tmp_path, killed_after):
    wanted = fitted("MLP head", tmp_path)
    file = tmp_path / "fit" / f"{name}.safetensors"
    with safe_open(tmp_path / "fit" / "ended-000001-000001.safetensors", "pt") as kept:
        about = kept.metadata()
    file.unlink(missing_ok=True)
    ALIEN[kind](file, about)
    np.testing.assert_array_equal(fitted("MLP head", tmp_path), wanted)


def test_what_another_fit_has_trained_is_not_taken_over(tmp_path, killed_after):
    wanted = fitted("MLP head")
    ECRTClassifier(demixing="linear", head=MLP, random_state=1, checkpoint=tmp_path / "other").fit(X, Y)
    fitted("MLP head", tmp_path)
    for file in (tmp_path / "other" / "fit").glob("*.safetensors"):
        file.replace(tmp_path / "fit" / file.name)
    np.testing.assert_array_equal(fitted("MLP head", tmp_path), wanted)


@pytest.mark.parametrize("field", ["outcome", "random"])
def test_a_forged_outcome_is_refused(field, tmp_path, killed_after):
    fitted("MLP head", tmp_path)
    file = tmp_path / "fit" / "ended-000001-000001.safetensors"
    with safe_open(file, "pt") as kept:
        about, tensors = kept.metadata(), {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    content = json.loads(about["content"])
    content["entries"]["1"]["entries"][field] = {"entries": {"module": 3, "history": []}}
    file.write_bytes(save(tensors, about | {"content": json.dumps(content)}))
    with pytest.raises(InputError, match=r"training 1 .*is not as this fit writes it"):
        fitted("MLP head", tmp_path)


@pytest.mark.parametrize("seed", [-5, 2**40, True, 1.5, "12", None])
def test_a_forged_seed_is_refused(seed, tmp_path):
    clf = ECRTClassifier(demixing="linear", head=MLP, checkpoint=tmp_path).fit(X, Y)
    file = tmp_path / "fit" / "fit.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seed": seed}))
    with pytest.raises(InputError, match=r"fit\.json cannot be read"):
        clf.fit(X, Y)


@pytest.mark.parametrize("method", ["refit", "add_classes"])
def test_what_goes_on_from_another_model_is_refused(method, tmp_path, killed_after):
    rows = (X, Y) if method == "refit" else (X[:8] + 5, np.full(8, 4))
    clf = ECRTClassifier(demixing=FLOW, head=MLP, random_state=0).fit(X, Y)
    getattr(clf.set_params(checkpoint=tmp_path), method)(*rows)
    other = ECRTClassifier(demixing=FLOW, head=MLP, random_state=0).fit(X[:200], Y[:200])
    with pytest.raises(InputError, match=r"of another fit .*the model before"):
        getattr(other.set_params(checkpoint=tmp_path), method)(*rows)
    with pytest.raises(NotFittedError):
        getattr(ECRTClassifier(checkpoint=tmp_path / "new"), method)(*rows)


def test_a_saved_model_names_no_folder_to_write_to(tmp_path):
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0, checkpoint=tmp_path / "mine").fit(X, Y)
    clf.save(tmp_path / "model")
    assert load(tmp_path / "model").checkpoint is None
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    content["document"]["options"]["checkpoint"] = str(tmp_path / "theirs")
    file.write_bytes(sealed(content["document"], content["tensors"]))
    with pytest.raises(ModelFileError, match="names a checkpoint"):
        load(tmp_path / "model")
