"""Memory is asked for before it is taken; what a GPU has no room for is done in smaller parts."""

import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from torch import nn

from ecrt import BaselineClassifier, ECRTClassifier, ECRTSampler, Encoder, Flow, machine
from ecrt.embedding import Backbone, embed, text_items
from ecrt.errors import ECRTError, NotEnoughMemoryError
from ecrt.estimators import base
from ecrt.stages.demixing import ContrastiveModel
from ecrt.stages.encoding import features_of
from ecrt.stages.heads import SoftmaxGradients, head_outputs
from ecrt.training import IndexBatches, TrainingConfig, divide_rows, train

X, Y = make_classification(300, n_features=6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
pytestmark = pytest.mark.filterwarnings("ignore:No class is clearly a minority class")


@pytest.fixture
def little(monkeypatch):
    """As if so many bytes were free, and every array were asked for."""

    def leave(free):
        monkeypatch.setattr(machine, "free_memory", lambda device=None: free)
        monkeypatch.setattr(machine, "SMALL", 0)

    return leave


def no_memory(limit, call):
    """A fake of a GPU that has memory for so many rows: ``call`` is not reached with more."""
    seen = []

    def limited(rows, *args, **kwargs):
        if len(rows) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        seen.append(len(rows))
        return call(rows, *args, **kwargs)

    limited.seen = seen
    return limited


# --- what is free ---------------------------------------------------------------------------------------------------


def test_the_least_of_system_group_and_process_is_free(tmp_path, monkeypatch):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    for folder in (proc / "self", groups / "job" / "step"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(machine, "PROC", proc)
    monkeypatch.setattr(machine, "GROUPS", groups)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n")
    (proc / "self" / "statm").write_text("100 50 20 1 0 60 0\n")
    assert machine.free_memory() == 4000 * 1024
    (proc / "self" / "cgroup").write_text("0::/job/step\n")
    for name, limit, used, files in [("job", "3000000", "2500000", 1000), ("job/step", "max", "2000000", 0)]:
        (groups / name / "memory.max").write_text(limit)
        (groups / name / "memory.current").write_text(used)
        (groups / name / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")
    assert machine.free_memory() == 500_000 + 1000  # a group around ours counts, too
    (groups / "memory" / "old").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("5:cpu:/x\n4:memory:/old\n")
    (groups / "memory" / "old" / "memory.limit_in_bytes").write_text("400000")
    (groups / "memory" / "old" / "memory.usage_in_bytes").write_text("100000")
    (groups / "memory" / "old" / "memory.stat").write_text("total_inactive_file 7\n")
    assert machine.free_memory() == 300_007
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100 * resource.getpagesize() + 1234, 0))
    assert machine.free_memory() == 1234


def test_this_system_says_what_is_free():
    assert machine.free_memory() > 2**20


def test_the_error_names_sizes_need_and_remedy(little):
    little(3 * 2**30)
    machine.ask("Logits", "Use fewer.", numbers=4, rows=2**20, classes=2**9)
    with pytest.raises(NotEnoughMemoryError) as told:
        machine.ask("Logits", "Use fewer.", numbers=4, copies=2, rows=2**20, classes=2**9)
    assert str(told.value) == (
        "Logits of 1,048,576 rows x 512 classes, held 2 times, needs 4.0 GiB of memory; 3.0 GiB are free. Use fewer."
    )
    assert isinstance(told.value, (ECRTError, MemoryError))


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda device=None: None)
    machine.ask("A table", "", rows=10**9, columns=10**9)


# --- who asks -------------------------------------------------------------------------------------------------------

ASKED = {
    "fit": (lambda: ECRTClassifier().fit(X, Y), "A fit on a table of 300 rows x 6 columns"),
    "sparse": (lambda: ECRTClassifier().fit(sparse.csr_array(X), Y), "made dense, of 300 rows x 6 columns"),
    "sampler": (
        lambda: ECRTSampler(sampling_strategy={0: 5000}, random_state=0).fit_resample(X, Y),
        r"Synthetic rows, a table of 4,\d+ rows x 6 columns.*sampling_strategy",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_does_not_fit_is_refused_by_name(name, little):
    call, message = ASKED[name]
    little(8 * X.size * base.COPIES if name == "sampler" else 1000)
    with pytest.raises(NotEnoughMemoryError, match=message):
        call()


STAGES = {
    "_ask_for_covariance": (
        ECRTClassifier(demixing="linear"), r"The covariance within classes of 6 columns x 6 columns.*demixing='none'",
    ),
    "_walk": (ECRTClassifier(head="gaussian"), r"Logits of held-out rows.* x 3 outputs.*validation_fraction"),
    "_begin": (ECRTClassifier(head="linear"), r"A linear head of 3 outputs x 6 sources.*n_sources"),
    "train_flow": (
        ECRTClassifier(demixing=Flow(label_marginal="exact")), r"Scores of a step of .* rows x 3 classes.*batch_size",
    ),
    "with_synthetic": (
        BaselineClassifier(method="smote", encoder="mlp"), r"SMOTE in input space.* x 6 columns.*'feature-smote'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("asking", STAGES)
def test_every_stage_asks(asking, monkeypatch):
    """Nothing is free when this function asks."""
    estimator, message = STAGES[asking]
    monkeypatch.setattr(
        machine, "free_memory", lambda device=None: 0 if sys._getframe(2).f_code.co_name == asking else None
    )
    monkeypatch.setattr(machine, "SMALL", 0)
    with pytest.raises(NotEnoughMemoryError, match=message):
        clone(estimator).set_params(random_state=0).fit(X, Y)


def test_synthetic_samples_are_asked_for(little):
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, Y)
    little(2**20)
    with pytest.raises(NotEnoughMemoryError, match=r"Synthetic samples.* 3,000,000 rows x 6 sources.*n_synthetic"):
        clf.sample(1_000_000)


def test_predictions_are_asked_for_and_made_of_fewer_rows_where_there_are_many_classes(monkeypatch, little):
    clf = ECRTClassifier(demixing="none", head="linear", random_state=0).fit(X, Y)
    wanted, seen, read = clf.predict_proba(X), [], ECRTClassifier._read_rows
    monkeypatch.setattr(base, "SCORES_AT_ONCE", 300)
    monkeypatch.setattr(ECRTClassifier, "_read_rows", lambda self, X: (seen.append(len(X)), read(self, X))[1])
    np.testing.assert_allclose(clf.predict_proba(X), wanted, rtol=1e-12)
    assert seen == [100, 100, 100]
    little(8 * 100 * 3 * 2)
    with pytest.raises(NotEnoughMemoryError, match=r"What predict_proba gives of 300 rows x 3 columns.*fewer rows"):
        clf.predict_proba(X)
    with pytest.raises(NotEnoughMemoryError, match="Outputs of 300 rows x 3 outputs"):
        clf.predict_proba(X.tolist())


def test_features_are_asked_for_before_all_rows_are_embedded(tmp_path, little):
    calls = []

    def encode(texts):
        calls.append(len(texts))
        return np.ones((len(texts), 4), np.float32)

    backbone = Backbone(name="ones", takes="text", identity="", prepare=str, encode=encode)
    items = text_items(["a"] * 50, ids=np.arange(50).astype(str), y=None, test=None)
    little(4 * 4 * 50 - 1)
    with pytest.raises(NotEnoughMemoryError, match="Features, an array of 50 rows x 4 columns"):
        embed(items, backbone, tmp_path / "out.npz", batch_size=2)
    assert calls == [2]
    little(4 * 4 * 50)
    assert embed(items, backbone, tmp_path / "out.npz", batch_size=2).rows == 50


# --- a GPU without memory -------------------------------------------------------------------------------------------


def test_parts_are_halved_until_they_fit():
    work = no_memory(5, lambda rows: [2 * row for row in rows])
    found = list(machine.in_parts(work, list(range(30)), 16))
    assert [row for part in found for row in part] == [2 * row for row in range(30)]
    assert max(work.seen) == 4
    assert len(work.seen) == 8
    with pytest.raises(NotEnoughMemoryError, match=r"one row at a time.*out of memory.*Use a CPU"):
        list(machine.in_parts(no_memory(0, len), [1, 2], 2, "Use a CPU."))


def test_features_are_the_same_in_smaller_parts():
    encoder = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).double().eval()
    items = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    wanted = features_of(encoder, items, device=torch.device("cpu"))
    forward = encoder.forward
    encoder.forward = no_memory(70, forward)
    np.testing.assert_allclose(features_of(encoder, items, device=torch.device("cpu")), wanted, rtol=1e-12)
    assert max(encoder.forward.seen) == 37  # of 300, halved thrice


def test_outputs_of_a_head_are_the_same_in_smaller_parts():
    head = nn.Linear(6, 3).double()
    wanted = head_outputs(head, X)
    head.forward = no_memory(70, head.forward)
    np.testing.assert_allclose(head_outputs(head, X), wanted, rtol=1e-12)
    assert head.forward.seen
    assert head_outputs(head, X[:0]).shape == (0, 3)


def test_embedding_is_the_same_in_smaller_parts(tmp_path):
    def encode(texts):
        return np.array([[len(text), hash(text) % 7] for text in texts], np.float32)

    texts = ["x" * (k % 9) for k in range(40)]
    items = text_items(texts, ids=np.arange(40).astype(str), y=None, test=None)
    found = []
    for name, how in [("whole", encode), ("parts", no_memory(3, encode))]:
        backbone = Backbone(name=name, takes="text", identity="", prepare=str, encode=how)
        embed(items, backbone, tmp_path / f"{name}.npz", batch_size=8)
        found.append(np.load(tmp_path / f"{name}.npz")["X"])
    np.testing.assert_array_equal(*found)


def test_a_linear_head_is_the_same_in_smaller_blocks(monkeypatch):
    monkeypatch.setattr("ecrt.stages.heads.NEWTON_WORK", 0)
    options = {"demixing": "none", "head": "linear", "random_state": 0}
    wanted = ECRTClassifier(**options).fit(X, Y).predict_proba(X)
    add, seen = SoftmaxGradients.add, []

    def limited(self, s, y, weight):
        if len(y) > 50:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        seen.append(len(y))
        return add(self, s, y, weight)

    monkeypatch.setattr(SoftmaxGradients, "add", limited)
    np.testing.assert_allclose(ECRTClassifier(**options).fit(X, Y).predict_proba(X), wanted, atol=1e-3)
    assert max(seen) <= 50


@pytest.mark.parametrize(
    "part",
    [{"demixing": Flow(epochs=3, batch_size=64)}, {"encoder": Encoder("mlp", epochs=3, dropout=0.0, batch_norm=False)}],
)
def test_a_step_is_the_same_in_smaller_parts(part, monkeypatch):
    options = {"head": "linear", "random_state": 0, **part}
    wanted = ECRTClassifier(**options).fit(X, Y).predict_proba(X)
    owner, name = (ContrastiveModel, "losses") if "demixing" in part else (nn.Sequential, "forward")
    plain = getattr(owner, name)
    seen = []

    def limited(self, rows, *args, **kwargs):
        if len(rows) > 20 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory.")
        seen.append(len(rows))
        return plain(self, rows, *args, **kwargs)

    monkeypatch.setattr(owner, name, limited)
    found = ECRTClassifier(**options).fit(X, Y).predict_proba(X)
    assert min(seen) <= 20
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.parametrize("guard", ["step", "epoch"])
def test_gradients_of_parts_are_those_of_the_batch(guard):
    def trained(most):
        torch.manual_seed(0)
        module = nn.Linear(6, 3).double()
        rows, labels = torch.from_numpy(X), torch.from_numpy(Y)
        loss = no_memory(most, lambda batch: nn.functional.cross_entropy(module(rows[batch]), labels[batch]))
        batches = IndexBatches(300, 64, torch.Generator().manual_seed(0))
        config = TrainingConfig(epochs=2, guard=guard)
        history = train(module, loss, batches, None, config, stage="head", divide=divide_rows)
        return module.weight.detach().numpy(), history.train_loss, loss.seen

    wanted, found = trained(300), trained(9)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-10)
    assert max(found[2]) == 8
    with pytest.raises(NotEnoughMemoryError, match=r"head: the GPU has no memory for a batch.*batch_size"):
        trained(0)


def test_a_batch_that_cannot_be_divided_is_an_error_that_names_its_size():
    module = nn.Linear(2, 1)
    with pytest.raises(
        NotEnoughMemoryError, match=r"encoder: the GPU has no memory for a batch. Set a smaller batch_size"
    ):
        train(module, no_memory(3, len), [torch.zeros(4)], None, TrainingConfig(epochs=1), stage="encoder")


def test_whatever_else_a_gpu_has_no_memory_for_is_one_error(monkeypatch):
    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("ecrt.stages.targets.View.scaled", full)
    with pytest.raises(NotEnoughMemoryError, match=r"more GPU memory than there is.*device='cpu'"):
        ECRTClassifier(random_state=0).fit(X, Y)
