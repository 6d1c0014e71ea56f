"""The same seed gives the same bits: alone, in threads at once, in other processes, with more threads."""

import hashlib
import random
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn
from torch.utils.data import Dataset

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    LinearHead,
    MLPHead,
    PseudoMinority,
)
from ecrt.errors import ECRTWarning, hide_warnings, warn_user
from ecrt.machine import all_threads, one_thread
from ecrt.rivals import ConditionalGAN
from ecrt.training import stop_on_interrupt, stop_requested

Array = np.ndarray[Any, Any]
QUICK = {"device": "cpu", "random_state": 0}
GAUSSIAN = {"demixing": "linear", "head": "gaussian"}
FLOW = {
    "demixing": Flow(n_restarts=1, hidden=(8,), epochs=2),
    "head": MLPHead(epochs=2),
}


class OfAUser(nn.Module):
    """An encoder with dropout, written by somebody who knows nothing of generators."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.linspace(-1, 1, 36).reshape(6, 6))
        self.layer = nn.Linear(6, 6)
        nn.init.eye_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noisy = x @ self.matrix + torch.randn_like(x) if self.training else x @ self.matrix
        return self.layer(nn.functional.dropout(noisy, 0.3, self.training))


class Noisy(Dataset[Any]):
    """Items that are another view every time, as with random crops."""

    def __init__(self, X: Array, y: Array) -> None:
        self.X, self.y = torch.from_numpy(X), y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.X[row] + 0.1 * torch.randn(self.X.shape[1]), int(self.y[row])


@cache
def table(n_rows: int = 120, n_columns: int = 6) -> tuple[Array, Array]:
    return make_classification(
        n_rows, n_columns, n_classes=3, n_informative=4, weights=[0.5, 0.35, 0.15], random_state=0
    )  # fmt: skip


def of_classes(**options: Any) -> Array:
    X, y = table()
    return ECRTClassifier(**QUICK, **options).fit(X, y).predict_proba(X)


def of_labels(**options: Any) -> Array:
    X, y = table()
    return (
        ECRTClassifier(**QUICK, **options)
        .fit(X, np.column_stack([y == 0, y > 0, X[:, 0] > 1]).astype(int))
        .predict_proba(X)
    )


def of_a_dataset(**options: Any) -> Array:
    X, y = table()
    return ECRTClassifier(**QUICK, **options).fit(Noisy(X, y)).predict_proba(X)


def of_numbers(**options: Any) -> Array:
    X, y = table()
    return ECRTRegressor(**QUICK, **options).fit(X, X[:, 0] + y).predict(X)


def of_sources(**options: Any) -> Array:
    X, y = table()
    return ECRTTransformer(**QUICK, **options).fit(X, y).transform(X)


def of_samples(**options: Any) -> Array:
    X, y = table()
    return ECRTClassifier(**QUICK, **options).fit(X, y).sample(5, random_state=1)[0]


def of_many_rows(**options: Any) -> Array:
    X, y = table(3000, 40)
    return ECRTClassifier(**QUICK, **options).fit(X, y).predict_proba(X)


def of_a_rival(**options: Any) -> Array:
    X, y = table()
    return BaselineClassifier(**QUICK, **options).fit(X, y).predict_proba(X)


FITS: dict[str, Any] = {
    "linear": (of_classes, {"demixing": "linear", "head": LinearHead(weight_decay=0.01)}),
    "flow": (of_classes, FLOW),
    "flow, contrast by permutation": (
        of_classes,
        {"demixing": Flow(objective="gcl", label_marginal="batch", n_restarts=1, epochs=2), "head": "linear"},
    ),
    "gaussian head": (of_classes, GAUSSIAN),
    "MLP encoder with mixup": (of_classes, {"encoder": Encoder("mlp", epochs=2, mixup=0.3), **GAUSSIAN}),
    "auto-encoder": (of_classes, {"encoder": Encoder("autoencoder", epochs=2), **GAUSSIAN}),
    "module of the user": (of_classes, {"encoder": Encoder(OfAUser(), epochs=2), **GAUSSIAN}),
    "data set of the user": (of_a_dataset, {"encoder": Encoder("mlp", epochs=2), **GAUSSIAN}),
    "selection": (of_classes, {**GAUSSIAN, "selection": PseudoMinority(trials=4)}),
    "several labels": (of_labels, {"demixing": "linear", "head": MLPHead(epochs=2)}),
    "regression": (of_numbers, FLOW),
    "sources": (of_sources, {key: value for key, value in FLOW.items() if key != "head"}),
    "samples": (of_samples, GAUSSIAN),
    "many rows": (of_many_rows, FLOW),
} | {
    f"rival {method}": (of_a_rival, {"method": method, "head": MLPHead(epochs=2)})
    for method in ("mixup", "remix", "vat", "isda", "ldam-drw", "smote", "flow-augmentation")
} | {
    "rival crt": (of_a_rival, {"method": "crt", "head": MLPHead(epochs=2, weight_decay=0.01)}),
    "rival cgan": (of_a_rival, {"method": ConditionalGAN(n_steps=50), "head": MLPHead(epochs=2)}),
} | {
    f"rival {method}": (of_a_rival, {"method": method}) for method in ("gradient-boosting", "balanced-forest", "lda")
}  # fmt: skip


def digest(name: str) -> str:
    fit, options = FITS[name]
    return hashlib.sha256(np.ascontiguousarray(fit(**options)).tobytes()).hexdigest()


@cache
def alone(name: str) -> str:
    return digest(name)


def states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()  # noqa: NPY002


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_fits_in_threads_give_what_one_gives_alone_and_the_caller_draws_as_if_there_were_none(name):
    expected = alone(name)
    before = states()
    done, drawn, state = threading.Event(), [], torch.get_rng_state()

    def caller() -> None:
        while not done.is_set():
            drawn.append(torch.rand(3))
            done.wait(0.001)

    with ThreadPoolExecutor(4) as pool:
        busy = pool.submit(caller)
        try:
            found = list(pool.map(digest, [name] * 3))
        finally:
            done.set()
        busy.result()
    assert found == [expected] * 3
    torch.set_rng_state(state)
    assert all(torch.equal(values, torch.rand(3)) for values in drawn)
    torch.set_rng_state(state)
    assert states() == before


@pytest.mark.filterwarnings("ignore")
def test_fits_in_other_processes_with_more_threads_give_what_one_gives_alone():
    with joblib.parallel_config(backend="loky", inner_max_num_threads=2):
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(quietly)(name) for name in FITS)
    assert [name for name, value in zip(FITS, found, strict=True) if value != alone(name)] == []


def quietly(name: str) -> str:
    warnings.simplefilter("ignore")
    return digest(name)


def test_a_stop_asked_for_by_one_thread_does_not_reach_the_others():
    seen: list[bool] = []
    with stop_on_interrupt(lambda sentence: None):
        signal.raise_signal(signal.SIGINT)
        assert stop_requested()
        other = threading.Thread(target=lambda: seen.append(stop_requested()))
        other.start()
        other.join()
    assert seen == [False]
    assert not stop_requested()


def test_warnings_kept_quiet_in_one_thread_are_told_in_others():
    filters = list(warnings.filters)
    with warnings.catch_warnings(record=True) as told, hide_warnings("of a trial"):
        warnings.simplefilter("always", ECRTWarning)
        warn_user("of a trial")
        thread = threading.Thread(target=warn_user, args=("of a trial, from outside",))
        thread.start()
        thread.join()
    assert [str(one.message) for one in told] == ["of a trial, from outside"]
    assert warnings.filters == filters


def test_threads_for_arithmetic_are_held_to_one_while_any_fit_runs_and_come_back():
    set_threads_of_blas(2)  # by a thread that ends, else only this one could change them
    before, held, free = (torch.get_num_threads(), blas_threads()), threading.Event(), threading.Event()

    def longer() -> None:
        with one_thread():
            held.set()
            free.wait()

    try:
        with ThreadPoolExecutor(1) as pool:
            with one_thread():
                with one_thread():
                    pass
                assert (torch.get_num_threads(), blas_threads()) == (1, 1)
                other = pool.submit(longer)
                held.wait()
                with all_threads(enabled=True):
                    assert torch.get_num_threads() == before[0]
            assert (torch.get_num_threads(), blas_threads()) == (before[0], 1)
            free.set()
            other.result()
        assert (torch.get_num_threads(), blas_threads()) == before
    finally:
        free.set()
        set_threads_of_blas(1)


def set_threads_of_blas(count: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threadpool_limits, count, "blas").result()


def blas_threads() -> int:
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
