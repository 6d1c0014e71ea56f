"""The loop, its guards and its seeds: what is kept, when it stops, what it says."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from ecrt.errors import DivergenceError, InputError, ModelFileError, StoppedError
from ecrt.losses import cross_entropy
from ecrt.nn import MLP, make_head
from ecrt.randomness import Dropout, seeded
from ecrt.training import (
    BarProgress,
    IndexBatches,
    Schedule,
    TrainingConfig,
    WatchedSteps,
    minimise_convex,
    newton_softmax,
    torch_generator,
    train,
)

CONFIG = TrainingConfig(epochs=6, learning_rate=0.1, patience=2)
BATCHES = [0, 1, 2]  # three steps an epoch


class Running(nn.Module):
    """One weight, and a buffer that every training step changes as batch norm's running mean does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("seen", torch.zeros(()))


class Script:
    """A training loss that misbehaves at one step, and held-out losses read from a list; notes the state after each."""

    def __init__(self, held_out: list[float], *, bad_step: int | None = None, quantity: str = "loss") -> None:
        self.module = Running()
        self.held_out_losses = iter(held_out)
        self.bad_step, self.quantity = bad_step, quantity
        self.step = 0
        self.states = [copy.deepcopy(self.module.state_dict())]

    def loss(self, batch: int) -> Tensor:
        assert self.module.training
        value = (self.module.weight - 1).square().sum()
        if self.step == self.bad_step:
            self.module.seen.fill_(torch.nan)
            # The root has value 0 and an infinite slope at 0.
            value = value * torch.nan if self.quantity == "loss" else torch.sqrt(0 * value)
        else:
            self.module.seen += 1
        self.step += 1
        return value

    def held_out(self) -> float:
        assert not self.module.training
        assert not torch.is_grad_enabled()
        self.states.append(copy.deepcopy(self.module.state_dict()))
        return next(self.held_out_losses)

    def holds(self, state: dict[str, Tensor]) -> bool:
        return all(torch.equal(value, state[name]) for name, value in self.module.state_dict().items())


@pytest.fixture
def updates() -> Iterator[list[object]]:
    """One entry for every update that an optimizer makes."""
    made: list[object] = []
    hook = register_optimizer_step_post_hook(lambda *_: made.append(None))
    yield made
    hook.remove()


# --- guards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", ["loss", "gradient"])
@pytest.mark.parametrize(
    ("held_out", "bad_step", "best"),
    [
        ([3.0, 2.0, 1.0], 10, 3),  # three epochs, each better than the one before
        ([1.0, 2.0], 6, 1),  # the first of two epochs was better
        ([], 0, 0),  # the very first step: the start
        ([], 2, 0),
    ],
)
def test_divergence_stops_before_the_update_and_leaves_the_best_state(quantity, held_out, bad_step, best, updates):
    script = Script(held_out, bad_step=bad_step, quantity=quantity)
    with pytest.raises(DivergenceError) as stopped:
        train(script.module, script.loss, BATCHES, script.held_out, CONFIG, stage="de-mixing")
    assert (stopped.value.stage, stopped.value.step, stopped.value.quantity) == ("de-mixing", bad_step, quantity)
    assert str(stopped.value).startswith(f"de-mixing: the {quantity} is not finite at step {bad_step}.")
    assert len(updates) == bad_step
    assert script.holds(script.states[best])
    assert not script.module.training


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("quantity", ["loss", "gradient"])
@pytest.mark.parametrize(("held_out", "bad_step", "best"), [([3.0, 2.0, 1.0], 10, 3), ([1.0, 2.0], 6, 1), ([], 1, 0)])
def test_a_guard_once_an_epoch_keeps_the_same_promise(quantity, held_out, bad_step, best, optimizer):
    """From the bad step on no update changes a parameter; stage and step are named when the epoch ends."""
    script = Script(held_out, bad_step=bad_step, quantity=quantity)
    weights: list[Tensor] = []
    hook = register_optimizer_step_post_hook(lambda *_: weights.append(script.module.weight.detach().clone()))
    config = replace(CONFIG, guard="epoch", optimizer=optimizer)
    with pytest.raises(DivergenceError) as stopped:
        train(script.module, script.loss, BATCHES, script.held_out, config, stage="de-mixing")
    hook.remove()
    assert (stopped.value.stage, stopped.value.step, stopped.value.quantity) == ("de-mixing", bad_step, quantity)
    assert script.step == 3 * (bad_step // 3 + 1)  # the epoch was gone through
    good = weights[bad_step - 1]
    assert torch.isfinite(good).all()
    assert not torch.equal(weights[bad_step - 2], good) or bad_step < 2
    assert all(torch.equal(weight, good) for weight in weights[bad_step:])
    assert script.holds(script.states[best])
    assert not script.module.training


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_guard_changes_nothing_while_all_is_finite(optimizer):
    histories, states = [], []
    for guard in ("step", "epoch"):
        script = Script([])
        config = replace(CONFIG, guard=guard, optimizer=optimizer)
        histories.append(train(script.module, script.loss, BATCHES, None, config, stage="test"))
        states.append(script.module.weight.detach())
    assert torch.equal(*states)
    assert histories[0].train_loss == pytest.approx(histories[1].train_loss, rel=1e-6)


def test_sgd_is_nesterov_momentum_with_the_decay_in_the_gradient():
    script = Script([])
    config = TrainingConfig(
        epochs=3, learning_rate=0.1, weight_decay=0.2, optimizer="sgd", momentum=0.5, gradient_norm=float("inf")
    )
    train(script.module, script.loss, BATCHES, None, config, stage="test")
    weight, velocity = 0.0, 0.0
    for step in range(9):
        gradient = 2 * (weight - 1) + 0.2 * weight
        velocity = 0.5 * velocity + gradient
        rate = 0.1 * min(1, (step + 1) / 3) * 0.5 * (1 + np.cos(np.pi * step / 9))
        weight -= rate * (gradient + 0.5 * velocity)
    assert script.module.weight.tolist() == pytest.approx([weight, weight], rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_recorded_steps_equal_plain_ones():
    losses = []
    for graphs in (False, True):
        with seeded(0):
            module = nn.Linear(6, 3).cuda()
            X = torch.randn(100, 6, device="cuda")
        batches = IndexBatches(100, 16, torch.Generator().manual_seed(0), torch.device("cuda"))
        config = TrainingConfig(epochs=4, learning_rate=0.1, optimizer="sgd")
        history = train(
            module,
            lambda rows, m=module, x=X: m(x[rows]).square().mean(),
            batches,
            None,
            config,
            stage="t",
            graphs=graphs,
        )
        losses.append(history.train_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    "error",
    [DivergenceError("encoder", 7, "gradient"), StoppedError("head"), ModelFileError("a.json", "It is empty."),
     InputError("No rows.")],
)  # fmt: skip
def test_an_error_survives_the_way_back_from_a_worker_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_gradients_are_scaled_down_to_the_norm():
    script = Script([])
    norms = []
    script.module.weight.register_post_accumulate_grad_hook(lambda weight: norms.append(weight.grad.norm().item()))
    hook = register_optimizer_step_post_hook(lambda *_: norms.append(script.module.weight.grad.norm().item()))
    config = TrainingConfig(epochs=1, gradient_norm=0.5)
    train(script.module, script.loss, [0], None, config, stage="test")
    hook.remove()
    assert norms == pytest.approx([8**0.5, 0.5], rel=1e-4)


# --- which state is kept ---------------------------------------------------------------------------


def test_the_best_epoch_is_kept_and_patience_ends_training():
    script = Script([3.0, 1.0, 2.0, 1.0, 0.0, 0.0])  # an equal loss is no better
    history = train(script.module, script.loss, BATCHES, script.held_out, CONFIG, stage="test")
    assert (history.best_epoch, history.best_loss) == (1, 1.0)
    assert history.held_out_loss == [3.0, 1.0, 2.0, 1.0]
    assert len(history.train_loss) == 4
    assert script.holds(script.states[2])
    assert not script.module.training


def test_without_held_out_loss_all_epochs_run_and_the_last_state_stays():
    script = Script([])
    history = train(script.module, script.loss, BATCHES, None, CONFIG, stage="test")
    assert script.step == 6 * 3
    assert script.module.seen == 18
    assert history.best_epoch == 5
    assert history.held_out_loss == []
    assert history.train_loss == sorted(history.train_loss, reverse=True)


def test_train_loss_is_the_mean_of_the_steps():
    script = Script([])
    values: list[float] = []

    def loss(batch: int) -> Tensor:
        value = script.loss(batch)
        values.append(value.item())
        return value

    history = train(script.module, loss, BATCHES, None, CONFIG, stage="test")
    assert history.train_loss == pytest.approx(np.reshape(values, (6, 3)).mean(axis=1).tolist())


@pytest.mark.parametrize("stop_after", [1, 3, 100])
def test_stop_after_walks_the_first_part_of_the_same_schedule(stop_after):
    whole = Script([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    train(whole.module, whole.loss, BATCHES, whole.held_out, CONFIG, stage="test")
    part = Script([])
    history = train(part.module, part.loss, BATCHES, None, CONFIG, stage="test", stop_after=stop_after)
    n_epochs = min(stop_after, 6)
    assert len(history.train_loss) == n_epochs
    assert part.holds(whole.states[n_epochs])


def test_frozen_parameters_stay():
    module = nn.Linear(2, 1)
    module.bias.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    train(module, lambda _: module(torch.ones(4, 2)).square().sum(), [0], None, CONFIG, stage="test")
    assert torch.equal(module.bias, before["bias"])
    assert not torch.equal(module.weight, before["weight"])


# --- progress --------------------------------------------------------------------------------------


class Recorder:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def start(self, stage: str, total: int) -> None:
        self.calls.append((stage, total))

    def advance(self, note: str = "") -> None:
        self.calls.append("advance")

    def finish(self) -> None:
        self.calls.append("finish")


@pytest.mark.parametrize("bad_step", [None, 7])
def test_progress_hears_of_every_epoch_and_of_the_end(bad_step):
    script, recorder = Script([4.0, 3.0, 2.0, 1.0, 1.0, 1.0], bad_step=bad_step), Recorder()
    try:
        train(script.module, script.loss, BATCHES, script.held_out, CONFIG, stage="heads", progress=recorder)
    except DivergenceError:
        assert bad_step is not None
    n_epochs = 6 if bad_step is None else 2
    assert recorder.calls == [("heads", 6), *["advance"] * n_epochs, "finish"]


def test_bars_end_where_their_stage_stopped(capsys):
    with BarProgress() as bars:
        bars.advance()  # nothing has begun
        bars.finish()
        for stage in ("encoder", "de-mixing"):
            bars.start(stage, total=10)
            bars.advance("loss 1.0")
            bars.finish()
        bars.finish()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "encoder" in shown.err
    assert shown.err.count("1/1") >= 2


# --- batches and seeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_samples", "batch_size", "sizes"),
    [
        (10, 5, [5, 5]),
        (12, 5, [5, 5, 2]),
        (11, 5, [5, 5]),  # a last batch of one has no negatives
        (3, 5, [3]),
        (1, 5, [1]),  # but a single sample is all there is
    ],
)
def test_index_batches_cover_every_row(n_samples, batch_size, sizes):
    batches = IndexBatches(n_samples, batch_size, torch.Generator().manual_seed(0))
    assert len(batches) == len(sizes)
    seen = []
    for _ in range(2):
        epoch = list(batches)
        assert [len(batch) for batch in epoch] == sizes
        rows = torch.cat(epoch).tolist()
        assert len(set(rows)) == sum(sizes)
        assert set(rows) <= set(range(n_samples))
        seen.append(rows)
    assert seen[0] != seen[1] or n_samples < 5  # shuffled anew


def test_index_batches_reach_the_row_that_was_dropped():
    batches = IndexBatches(11, 5, torch.Generator().manual_seed(0))
    rows = {row for _ in range(10) for batch in batches for row in batch.tolist()}
    assert rows == set(range(11))


def test_seeded_blocks_repeat_and_leave_the_global_state_alone():
    torch.manual_seed(5)
    expected_after = torch.rand(3)
    torch.manual_seed(5)
    draws = []
    for seed in (1, 1, 2):
        with seeded(seed):
            draws.append(torch.rand(3))
    assert torch.equal(torch.rand(3), expected_after)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


DRAWS = {
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(2, 99, (3,)),
    "randperm": lambda: torch.randperm(9),
    "randn_like": lambda: torch.randn_like(torch.ones(3)),
    "rand_like": lambda: torch.rand_like(torch.ones(3)),
    "randint_like": lambda: torch.randint_like(torch.ones(3), 2, 99),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 3),
    "beta": lambda: torch.distributions.Beta(torch.ones(3), torch.ones(3)).sample(),
    "initial weights": lambda: nn.Linear(3, 2).weight,
    "dropout": lambda: nn.Dropout(0.5)(torch.ones(9)),
    "dropout of channels": lambda: nn.Dropout2d(0.5)(torch.ones(9, 2, 2, 2)),
    "own dropout": lambda: MLP(3, (8,), 2, dropout=0.5)(torch.ones(9, 3)),
    "LSTM with dropout": lambda: nn.LSTM(3, 4, 2, dropout=0.5)(torch.ones(5, 2, 3))[0],
    "attention with dropout": lambda: nn.MultiheadAttention(4, 2, dropout=0.5)(*[torch.ones(5, 2, 4)] * 3)[0],
    "loader": lambda: torch.cat(list(DataLoader(torch.arange(20), 4, shuffle=True))),
}


@pytest.mark.parametrize("name", DRAWS)
def test_seeded_blocks_draw_what_a_seeded_process_would_and_nobody_else_notices(name):
    draw = DRAWS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = [draw(), draw()]
    state = torch.get_rng_state()
    with seeded(1):
        first = draw()
        with seeded(2):
            other = draw()
        second = draw()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])
    assert not torch.equal(other, expected[0])


def test_threads_draw_from_the_seed_of_their_own_block():
    meet = threading.Barrier(3)

    def draws(seed: int) -> torch.Tensor:
        with seeded(seed):
            meet.wait()
            return torch.cat([torch.rand(5) for _ in range(200)])

    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(draws, [0, 1, 0]))
    meet = threading.Barrier(1)
    for seed, drawn in zip([0, 1, 0], together, strict=True):
        assert torch.equal(drawn, draws(seed))


def test_a_named_generator_is_left_as_it_is():
    with seeded(1):
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(7))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(7)))


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), Dropout(0.5)])
def test_training_keeps_to_the_block_at_full_speed_and_with_layers_of_others(layer):
    def weights() -> Tensor:
        with seeded(3):
            module = nn.Sequential(nn.Linear(4, 8), copy.deepcopy(layer), nn.Linear(8, 1))
            x, batches = torch.rand(20, 4), IndexBatches(20, 8, torch.Generator().manual_seed(0))
            config = TrainingConfig(epochs=2)
            train(module, lambda rows: module(x[rows]).square().mean(), batches, None, config, stage="network")
            return torch.cat([module[0].weight.flatten(), torch.rand(3)])

    state = torch.get_rng_state()
    assert torch.equal(weights(), weights())
    assert torch.equal(torch.get_rng_state(), state)


def test_seeded_restores_after_an_error():
    def draw_and_fail() -> None:
        torch.rand(3)
        raise RuntimeError("inside")

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="inside"), seeded(1):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), state)


def test_torch_generator_follows_the_numpy_one():
    draws = [torch.rand(3, generator=torch_generator(np.random.default_rng(seed))) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


# --- convex heads ----------------------------------------------------------------------------------


def ridge_logistic(head: nn.Linear, X: Tensor, y: Tensor, penalty: float) -> Callable[[], float]:
    def loss_and_backward() -> float:
        loss = cross_entropy(head(X), y).mean() + penalty / 2 * head.weight.square().sum()
        loss.backward()
        return loss.item()

    return loss_and_backward


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_minimise_convex_finds_the_solution_of_logistic_regression(n_classes, penalty):
    X, y = make_classification(400, 6, n_informative=4, n_classes=n_classes, random_state=0)
    head = make_head(6, n_classes).double()
    evaluations = minimise_convex(
        head, ridge_logistic(head, torch.from_numpy(X), torch.from_numpy(y), penalty), stage="head"
    )
    assert 1 < evaluations < 130
    reference = LogisticRegression(C=1 / (len(X) * penalty), tol=1e-8, max_iter=1000).fit(X, y)
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    if n_classes == 2:  # scikit-learn keeps the difference of the two, each of which pays the penalty
        reference.set_params(C=2 / (len(X) * penalty)).fit(X, y)
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    np.testing.assert_allclose(weight, reference.coef_, atol=1e-3)
    np.testing.assert_allclose(bias - bias.mean(), reference.intercept_ - reference.intercept_.mean(), atol=1e-3)


@pytest.mark.parametrize("bad_evaluation", [0, 3])
def test_minimise_convex_leaves_the_best_state_when_a_loss_is_not_finite(bad_evaluation):
    head = make_head(2, 2).double()
    descend = ridge_logistic(head, torch.tensor([[1.0, 0.3], [0.2, 2.0]]).double(), torch.tensor([0, 1]), 0.01)
    states, losses = [copy.deepcopy(head.state_dict())], [float("inf")]

    def loss_and_backward() -> float:
        value = descend()
        if len(states) == 1 + bad_evaluation:
            return float("nan")
        value += 10 * (len(states) == bad_evaluation)  # the last one before it is worse than those before
        states.append(copy.deepcopy(head.state_dict()))
        losses.append(value)
        return value

    with pytest.raises(DivergenceError, match=f"linear head: the loss is not finite at step {bad_evaluation}"):
        minimise_convex(head, loss_and_backward, stage="linear head")
    best = states[int(np.argmin(losses))]
    assert bad_evaluation == 0 or np.argmin(losses) == bad_evaluation - 1
    assert all(torch.equal(value, best[name]) for name, value in head.state_dict().items())


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_gradients_are_scaled_down_as_torch_does_it(most):
    module = MLP(3, (4,), 2)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    parameters = [*module.parameters(), nn.Parameter(torch.zeros(1))]  # one that the loss does not depend on
    same = copy.deepcopy(module)
    for parameter, other in zip(same.parameters(), module.parameters(), strict=True):
        parameter.grad = other.grad.clone()
    optimizer = torch.optim.AdamW(parameters)
    steps = WatchedSteps(
        lambda _: 0, parameters, optimizer, Schedule(optimizer, 0.1, 1, 1), gradient_norm=most, stage="x"
    )
    assert steps._clipped() == nn.utils.clip_grad_norm_(same.parameters(), most).item()
    for parameter, other in zip(same.parameters(), module.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)


@pytest.mark.parametrize(("n_classes", "decay"), [(2, 1e-1), (2, 1e-6), (4, 1e-2)])
def test_newton_finds_what_scikit_learn_finds(n_classes, decay):
    rng = np.random.default_rng(0)
    y = np.arange(90) % n_classes
    X = rng.normal(size=(90, 3)) + rng.normal(size=(n_classes, 3))[y]
    weight = rng.random(90)
    weight /= weight.sum()
    head = nn.Linear(3, n_classes).double()
    shift_m = torch.from_numpy(rng.normal(size=n_classes))
    newton_softmax(head, torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(weight), shift_m, decay)
    # scikit-learn has no shift; an intercept without penalty takes it in.
    known = LogisticRegression(C=1 / decay, tol=1e-10, max_iter=10_000)
    known.fit(X, y, sample_weight=weight)
    logits = head(torch.from_numpy(X)) + shift_m
    found = torch.softmax(logits, 1).detach().numpy()
    if n_classes == 2:  # one vector there, and two opposite ones here: half the penalty
        known = LogisticRegression(C=2 / decay, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(found, known.predict_proba(X), atol=2e-5)


def test_newton_ends_on_rows_that_a_plane_separates():
    X = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    y = torch.tensor([0, 0, 1, 1])
    head = nn.Linear(1, 2)
    newton_softmax(head, X, y, torch.full((4,), 0.25), torch.zeros(2), 1e-6)
    assert torch.isfinite(head.weight).all()
    assert torch.softmax(head(X), 1)[torch.arange(4), y].min() > 0.999
