"""The pseudo-minority test: options are chosen on majority classes that are cut down to minority size.

Which choices serve rare classes here? That is asked of classes whose answers are known, before the real fit: of small
problems in which most rows of some majority classes are hidden.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils._param_validation import Interval

from ecrt.arrays import Array, Labels, Mask
from ecrt.data import stratified_holdout, thin_out
from ecrt.errors import DivergenceError, StoppedError, hide_warnings
from ecrt.metrics import half_width, nll_per_sample
from ecrt.stages import Part, Role
from ecrt.stages.parts import Composed, Positive, Rule, changed_options
from ecrt.training import Progress, stop_requested, stopped_at
from ecrt.workers import Workers

Options = dict[str, Any]
Losses = tuple[Array, Array]
"""Mean loss of each class that was checked, and the classes' weights."""

PLAIN: Options = {"demixing": "none", "augmentation": "none"}
"""Logit adjustment on the features: what the user gets when no transfer is better beyond noise."""

FIRST_PROBLEMS, MOST_PROBLEMS, REAL_PROBLEMS = 2, 6, 3
SHARE_OF_QUESTIONS = 0.7
"""Share of trials or time that goes to questions; the rest compares the answer with plain logit adjustment."""

RESERVE = 0.03
"""Share of the time that is kept for a fit to end in once it is asked to stop."""

LONGEST = 0.25
"""Share of the time that one fit of a candidate may take, if that is more than thrice the time of a plain one: a flow
on many columns must not stop what comes after it."""

SURE = 0.95
"""Confidence with which an answer must be better than the choice so far, and transfer than plain logit adjustment: of
many answers, some look better by chance."""

LIKELY = 0.84
"""Confidence with which an answer must be worse to be dropped early: one standard error."""


MOST_ROWS = 8000
"""Rows that a problem may have to learn from. Whole classes are left out beyond; where these are too few to choose
from, rows of the largest."""

FEWEST_MAJORITY = 6
"""Majority classes that it takes: a third are cut down, and de-mixing needs at least three of the others."""

CHECK_SHARE = 0.2
"""Share of the other rows that is held out."""

MOST_CHECKED = 200
"""Rows of a class that are checked at most: more would take time and show nothing new."""


# --- problems with known answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows to learn from, rows to check on, and which classes are minority in it.

    Attributes
    ----------
    learn, check : indices of rows.
    minority : mask over classes, those cut down included.
    weight : of the checked rows. Classes of a kind count the same, and both kinds as much as in the real data.
    """

    learn: Labels
    check: Labels
    minority: Mask
    weight: NDArray[np.float64]


def pseudo_minority_problem(y: Labels, minority: Mask, rng: np.random.Generator) -> Problem | None:
    """Hide most samples of a third of the majority classes; ``None`` where there are too few classes for it.

    A class that is cut down keeps as many rows as some real minority class has. Its hidden rows are checked on, and
    a fifth of the rows of the other majority classes; the real minority is learned from, but too small to check on.

    Parameters
    ----------
    y : class indices of all rows.
    minority : mask over classes.
    """
    majority, rare = _classes_that_fit(y, minority, rng)
    if len(majority) < FEWEST_MAJORITY or len(rare) == 0:
        return None
    cut_down = np.sort(rng.permutation(majority)[: max(len(majority) // 3, 1)])
    kept = rng.choice(np.bincount(y)[rare], len(cut_down))

    rows = _rows_that_fit(y, np.concatenate([majority, rare]), rng)
    kept = np.minimum(kept, np.bincount(y[rows])[cut_down] // 2)
    sizes = dict(zip(cut_down.tolist(), np.maximum(kept, 1).tolist(), strict=True))
    visible = rows[thin_out(y[rows], sizes, rng)]
    hidden = np.setdiff1d(rows, visible)
    held_out = visible[stratified_holdout(y[visible], CHECK_SHARE, rng)[1]]
    held_out = held_out[np.isin(y[held_out], np.setdiff1d(majority, cut_down))]
    check = np.concatenate([hidden, held_out])
    check = check[thin_out(y[check], dict.fromkeys(np.unique(y).tolist(), MOST_CHECKED), rng)]

    is_minority = minority.copy()
    is_minority[cut_down] = True
    return Problem(
        learn=np.setdiff1d(visible, held_out),
        check=check,
        minority=is_minority,
        weight=_weights(y[check], is_minority, float(minority.mean())),
    )


def cross_validation_problem(y: Labels, minority: Mask, rng: np.random.Generator) -> Problem:
    """The real data with a fifth of every class held out; all classes count the same. Thinned out where it is large."""
    rows = _rows_that_fit(y, np.concatenate(_classes_that_fit(y, minority, rng)), rng)
    learn, check = (rows[part] for part in stratified_holdout(y[rows], CHECK_SHARE, rng))
    checked = np.unique(y[check])
    share = float(minority[checked].mean()) if len(checked) else 0.0
    return Problem(learn=learn, check=check, minority=minority, weight=_weights(y[check], minority, share))


def _classes_that_fit(y: Labels, minority: Mask, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Majority and minority classes, the same share of both, so that their rows are few enough.

    None is left out where the majority classes are too few to choose from.
    """
    counts = np.bincount(y, minlength=len(minority))
    majority, rare = (np.flatnonzero(kind & (counts > 0)) for kind in (~minority, minority))
    if len(majority) < FEWEST_MAJORITY or len(rare) == 0:
        return majority, rare
    share = min(MOST_ROWS / len(y), 1.0)
    n_majority = max(int(np.ceil(share * len(majority))), FEWEST_MAJORITY)
    n_rare = int(np.ceil(share * len(rare)))
    return np.sort(rng.permutation(majority)[:n_majority]), np.sort(rng.permutation(rare)[:n_rare])


def _rows_that_fit(y: Labels, classes: Labels, rng: np.random.Generator) -> Labels:
    """All rows of some classes, or no more of each than keeps them few enough: the largest lose, the rare do not."""
    rows = np.flatnonzero(np.isin(y, classes))
    sizes = np.sort(np.bincount(y[rows])[classes])
    # A limit L leaves the sizes below it whole: the sum of min(size, L) is to be MOST_ROWS.
    whole = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    limits = (MOST_ROWS - whole) / np.arange(len(sizes), 0, -1)
    cut = np.flatnonzero(sizes > limits)
    if len(cut) == 0 or len(rows) <= MOST_ROWS:
        return rows
    limit = max(int(limits[cut[0]]), 2)
    return rows[thin_out(y[rows], dict.fromkeys(classes.tolist(), limit), rng)]


def _weights(y: Labels, minority: Mask, minority_share: float) -> NDArray[np.float64]:
    counts = np.bincount(y, minlength=len(minority))
    weight = 1.0 / np.maximum(counts, 1)
    for kind, share in ((minority, minority_share), (~minority, 1 - minority_share)):
        weight[kind] *= share / max(int((kind & (counts > 0)).sum()), 1)
    return np.asarray(weight[y] / weight[y].sum())


# --- the race between answers -----------------------------------------------------------------------------------------


class PseudoMinority(Part):
    """Selection of options on majority classes that are cut down to minority size.

    Parameters
    ----------
    trials : int or None, default=None
        Fits that the choice may take; the same seed then gives the same choice on every machine.
    budget : float, default=180
        Seconds that it may take, without ``trials``.
    """

    kind = "pseudo-minority"

    trials: Annotated[int, Interval(Integral, 4, None, closed="left")] | None = None
    budget: Positive = 180.0

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        yield "budget", self.trials is None, "no trials, which take its place"

    def select(
        self,
        clf: Composed,
        log_proba: Callable[..., Array],
        y: NDArray[np.int64],
        minority: NDArray[np.bool_],
        n_columns: int | None,
        *,
        unfamiliar: Callable[[], bool] = lambda: False,
        rng: np.random.Generator,
        progress: Progress,
        data: tuple[Any, ...] = (),
        workers: Workers | None = None,
    ) -> Selection:
        """Try all answers in turn; one is kept if it likely lowers the loss of classes whose answers are known.

        Parameters
        ----------
        clf : the estimator whose options are chosen.
        log_proba : fits a copy of it, with options set, on the rows of a problem to learn from. Gives log-probabilities
            of those to check on, one column for each class of ``minority``. It is given ``data`` last.
        y : class indices of all rows.
        n_columns : columns of a table; ``None`` for images.
        unfamiliar : whether the minority varies where the majority does not; asked once, if at all.
        data : what ``log_proba`` needs; sent to workers once.
        workers : where several fits run at the same time. Some of these may be for nothing, since what is asked next
            depends on the answers before; with ``trials`` the result is the same as without workers.
        """
        race = _Race(self, clf, log_proba, y, minority, unfamiliar, rng, progress, data, workers)
        steps = int(np.ceil(self.budget)) if self.trials is None else self.trials
        progress.start(f"selection by {race.by}", steps)
        try:
            return race.run(answers(clf, len(y), n_columns, most_classes=race.has_most_classes))
        finally:
            progress.finish()


SELECTION = Role((PseudoMinority,))
"""What the parameter ``selection`` takes."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What ran and what was chosen.

    Attributes
    ----------
    by : ``"pseudo-minority"``, or ``"cross-validation"`` where there are too few classes for it.
    options : what the fit is given.
    transfer : whether de-mixing was better than plain logit adjustment beyond noise.
    gain, low, high : balanced NLL that the best transfer saves on plain logit adjustment, with its 90 % interval.
        Transfer is chosen where that lies above 0.
    vetoed : whether cross-validation on the real minority spoke against it.
    tried : one record for each candidate: options, loss, fits on classes that were cut down, seconds.
    fits : all that ran, those on held-out rows of the real classes included.
    finished : whether every question was asked before time or trials ran out.
    seconds : what it took.
    sentence : all of this in words.
    """

    by: Literal["pseudo-minority", "cross-validation"]
    options: Options
    transfer: bool
    gain: float
    low: float
    high: float
    vetoed: bool
    tried: list[dict[str, Any]]
    fits: int
    finished: bool
    seconds: float
    sentence: str


def answers(clf: Composed, n_rows: int, n_columns: int | None, *, most_classes: bool = True) -> list[Options]:
    """Options to try on top of the choice so far, the weightiest first.

    Options that the user set away from their defaults are left as they are. ``most_classes``: whether problems have
    most classes in them; few classes differ in few directions, and cannot say how many sources are needed.
    """
    minority, columns = getattr(clf, "minority", None), n_columns or 0
    lenders = not (isinstance(minority, str) and minority == "all")
    questions: list[tuple[str, tuple[Any, ...], bool]] = [
        ("demixing", ("linear",), True),
        ("augmentation", ("parametric", "permutation", *(["borrowed"] if lenders else [])), True),
        ("head", ("gaussian", "linear", "mlp"), True),
        ("demixing", ("flow",), 2 <= columns <= 64 and n_rows >= 500),
        ("demixing__rotation", ("discriminant",), columns >= 8),
        ("demixing__n_sources", (columns // 2, columns // 4), columns >= 8 and most_classes),
        ("augmentation__weight", (0.2, 0.8), True),
        ("augmentation__pseudo_samples", (3.0, 30.0), True),
        ("encoder__learn_from", ("all",), clf._parts("encoder")[0].trains),
        ("demixing__objective", ("gcl",), True),
        ("demixing__critic", ("cosine",), True),
        ("demixing__likelihood_weight", (0.1, 3.0), True),
    ]
    fixed = _set_by_user(clf)
    asked = [(name, values) for name, values, useful in questions if useful and name not in fixed]
    as_asked_for: list[Options] = [{}] if "demixing" in fixed else []
    return as_asked_for + [{name: value} for name, values in asked for value in values]


def _set_by_user(clf: Composed) -> set[str]:
    """Options that are not at their defaults, those of parts included."""
    fixed = changed_options(clf)
    for name in clf._roles:
        value = getattr(clf, name)
        fixed |= {f"{name}__{option}" for option in changed_options(value)} if isinstance(value, Part) else set()
    return fixed


def _acting(clf: Composed, options: Options) -> Options:
    """Options without those that the others leave no effect.

    The weight of an augmentation that is switched off switches the default one on.
    """
    chosen = dict(options)
    if chosen.get("augmentation") == "none" and "augmentation__weight" in chosen:
        del chosen["augmentation"]
    whole = {name: value for name, value in chosen.items() if "__" not in name}
    candidate = clone(clf).set_params(**whole)
    for path in chosen.keys() - whole.keys():
        name, _, option = path.partition("__")
        parts = candidate._parts(name)
        if len(parts) != 1 or option not in parts[0].get_params(deep=False):
            del chosen[path]
    if {head.kind for head in candidate._parts("head")} == {"gaussian"}:  # it has no use for synthetic samples
        chosen = {name: value for name, value in chosen.items() if not name.startswith("augmentation")}
        chosen |= {"augmentation": clf._parts("augmentation")[0].kind} if "augmentation" in _set_by_user(clf) else {}
    return chosen


def _value(clf: Composed, path: str) -> Any:
    name, nested, option = path.partition("__")
    return getattr(clf._parts(name)[0], option) if nested else getattr(clf, name)


def _gain(before: Iterable[Losses], after: Iterable[Losses], confidence: float) -> tuple[float, float, float]:
    """What is saved in the mean on the problems of both, and its lower and upper end, each with that confidence.

    Classes are what varies: rows of a class share its few samples.
    """
    pairs = list(zip(before, after, strict=False))
    saved = np.concatenate([old[0] - new[0] for old, new in pairs])
    weight = np.concatenate([old[1] for old, _ in pairs])
    weight = weight / weight.sum()
    mean = float(weight @ saved)
    effective = 1 / float((weight**2).sum())
    error = float(np.sqrt(weight**2 @ (saved - mean) ** 2 * effective / max(effective - 1, 1e-9)))
    width = half_width(error, max(effective - 1, 1.0), 2 * confidence - 1)
    return mean, mean - width, mean + width


@dataclass
class _Candidate:
    """Options, and what they did to the checked rows of each problem."""

    options: Options
    losses: list[Losses] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: str | None = None

    @property
    def name(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.options.items()) or "as it was asked for"

    def beats(self, other: _Candidate, confidence: float) -> bool:
        return self.failed is None and _gain(other.losses, self.losses, confidence)[1] > 0

    def record(self) -> dict[str, Any]:
        """For the user, with the mean over problems of the weighted balanced NLL."""
        measured = self.losses and self.failed is None
        loss = float(np.mean([weight @ losses for losses, weight in self.losses])) if measured else float("inf")
        record = {"options": self.options, "loss": loss, "fits": len(self.losses)}
        return record | {"seconds": round(sum(self.seconds), 1)} | ({"failed": self.failed} if self.failed else {})


class _Outcome(NamedTuple):
    """Losses of a candidate on a problem and the seconds it took; none, where time ran out or it failed."""

    losses: Losses | None
    seconds: float
    failed: str | None = None


def _measured(
    log_proba: Callable[..., Array], candidate: Any, problem: Problem, y: NDArray[np.int64], left: float, *data: Any
) -> _Outcome:
    """Fit a candidate on a problem and check it, within the seconds that are left; ``y`` of the rows to check on."""
    started = time.monotonic()
    try:
        with stopped_at(started + left), hide_warnings():
            log_p = log_proba(candidate, problem, *data)
    except StoppedError:
        return _Outcome(None, time.monotonic() - started)
    except DivergenceError as error:
        return _Outcome(None, time.monotonic() - started, str(error))
    seconds = time.monotonic() - started
    if seconds > left:
        return _Outcome(None, seconds)
    mass = np.bincount(y, weights=problem.weight)
    sums = np.bincount(y, weights=problem.weight * nll_per_sample(log_p, y))
    return _Outcome((sums[mass > 0] / mass[mass > 0], mass[mass > 0] / mass.sum()), seconds)


@dataclass(eq=False)
class _Race:
    """Candidates, the problems they are measured on, and what is left of trials or time."""

    how: PseudoMinority
    clf: Composed
    log_proba: Callable[..., Array]
    y: NDArray[np.int64]
    minority: NDArray[np.bool_]
    unfamiliar: Callable[[], bool]
    rng: np.random.Generator
    progress: Progress
    data: tuple[Any, ...] = ()
    workers: Workers | None = None
    fits: int = 0
    finished: bool = True
    vetoed: bool = False
    _shown: int = 0
    _ready: dict[tuple[str, int, int], _Outcome] = field(default_factory=dict)
    """What workers have measured before it was asked for: by options, problem and seed."""

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.allowed = np.inf if self.how.trials is not None else (1 - RESERVE) * self.how.budget
        first = pseudo_minority_problem(self.y, self.minority, self.rng)
        self.by: Literal["pseudo-minority", "cross-validation"] = "pseudo-minority" if first else "cross-validation"
        self.problems = [first or cross_validation_problem(self.y, self.minority, self.rng)]
        self.seeds = self.rng.integers(2**31, size=MOST_PROBLEMS).tolist()
        self.has_most_classes = 2 * len(np.unique(self.y[self.problems[0].learn])) > len(np.unique(self.y))
        self.plain = _Candidate(dict(PLAIN))
        self.tried = [self.plain]

    def run(self, asked: list[Options]) -> Selection:
        """Find the best answers, then compare them with plain logit adjustment, also on the real minority."""
        self._extend(self.plain, 1)
        self.finished = bool(self.plain.losses)  # else there is nothing to compare with
        best = self._best(asked) if self.finished else None
        if best is None:
            return self._verdict(None, [], [])
        real: tuple[list[Losses], list[Losses]] = ([], [])
        if self.by == "pseudo-minority":
            real = self._on_real_problems(best)
        if self.workers is not None:
            while len(self.problems) < MOST_PROBLEMS:  # nothing else is drawn from here on
                self._draw_problem()
            self._ahead([(one, at) for at in range(MOST_PROBLEMS) for one in (self.plain, best)])
        for size in range(2, MOST_PROBLEMS + 1):
            if not (self._extend(self.plain, size) and self._extend(best, size)):
                break
        # The first problems chose the best of several, and would flatter it: others judge it.
        first = FIRST_PROBLEMS if len(self.tried) > 2 else 0
        both = min(len(self.plain.losses), len(best.losses))
        return self._verdict(best, self.plain.losses[first:both] + real[0], best.losses[first:both] + real[1])

    def _best(self, asked: list[Options]) -> _Candidate | None:
        """The transfer with all answers that were better than the choice before; ``None`` where none was measured."""
        best: _Candidate | None = None
        start: Options = {} if "augmentation" in _set_by_user(self.clf) else {"augmentation": "none"}
        for number, answer in enumerate(asked):
            base = start if best is None else best.options
            if number > 0 and (best is None or not self._is_news(answer, base)):
                continue
            challenger = _Candidate(_acting(self.clf, base | answer))
            if self.workers is not None and self._key(challenger, self.problems[0], self.seeds[0]) not in self._ready:
                likely = [one for one in asked[number + 1 :] if best is not None and self._is_news(one, base)]
                others = [_Candidate(_acting(self.clf, base | one)) for one in likely[: self.workers.number]]
                problems = range(min(len(self.problems), FIRST_PROBLEMS))
                self._ahead([(one, at) for one in (challenger, *others) for at in problems], self.workers.number)
            if not self._challenge(challenger, best):
                self.finished = False
                continue
            self.tried.append(challenger)
            if challenger.failed is None and (best is None or challenger.beats(best, SURE)):
                best = challenger
        return best

    def _is_news(self, answer: Options, base: Options) -> bool:
        """Whether an answer changes anything: options without effect would be measured for nothing."""
        options = _acting(self.clf, base | answer)
        old, new = (clone(self.clf).set_params(**how) for how in (base, options))
        return any(_value(old, path) != _value(new, path) for path in answer if path in options)

    def _challenge(self, challenger: _Candidate, best: _Candidate | None) -> bool:
        """Measure on the first problems, until it is likely worse; False where time did not suffice."""
        share = 1.0 if best is None else SHARE_OF_QUESTIONS  # one transfer at least is measured, if it can be
        for size in range(1, FIRST_PROBLEMS + 1):
            if not self._extend(challenger, size, share):
                return best is None and size > 1
            if best is not None and challenger.failed is None and best.beats(challenger, LIKELY):
                break
        return True

    def _on_real_problems(self, best: _Candidate) -> tuple[list[Losses], list[Losses]]:
        """Losses of h(z) and of h(s) on held-out rows of the real classes, cross-validated.

        The minority's rows among them may veto: if they are surely worse off or, where the minority varies in a way
        that the majority does not know, likely so.
        """
        both = _Candidate(self.plain.options), _Candidate(best.options)
        of_rare: tuple[list[Losses], list[Losses]] = ([], [])
        for _ in range(REAL_PROBLEMS):
            problem = cross_validation_problem(self.y, self.minority, self.rng)
            rare = self.minority[np.unique(self.y[problem.check])]
            if not rare.any():
                continue
            seed = int(self.rng.integers(2**31))
            self._measure_ahead([(one, problem, seed) for one in both])
            if not all(self._affordable(one) and self._measure(one, problem, seed) for one in both):
                break
            if both[1].failed is not None:  # what does not train on the real classes is of no use to them
                best.failed = both[1].failed
                break
            for one, losses in zip(both, of_rare, strict=True):
                means, weight = one.losses[-1]
                losses.append((means[rare], weight[rare]))
        if of_rare[1]:
            self.vetoed = _gain(*of_rare, LIKELY if self.unfamiliar() else SURE)[2] < 0
        return both[0].losses[: len(of_rare[1])], both[1].losses[: len(of_rare[1])]

    def _extend(self, tried: _Candidate, size: int, share: float = 1.0) -> bool:
        """Measure on problems up to ``size``; False when that share of trials or time does not suffice."""
        while len(tried.losses) < size and tried.failed is None:
            if not self._affordable(tried, share):
                return False
            at = len(tried.losses)
            if at == len(self.problems):
                self._draw_problem()
            if not self._measure(tried, self.problems[at], self.seeds[at]):
                return False
        return True

    def _draw_problem(self) -> None:
        make = pseudo_minority_problem if self.by == "pseudo-minority" else cross_validation_problem
        self.problems.append(make(self.y, self.minority, self.rng) or self.problems[0])

    def _ahead(self, wanted: list[tuple[_Candidate, int]], most: int | None = None) -> None:
        """Let workers measure candidates on problems, the first ones first, as far as trials go."""
        new = [(one, at) for one, at in wanted if at >= len(one.losses) and one.failed is None]
        if self.how.trials is not None:
            new = new[: max(self.how.trials - self.fits, 0)]
        self._measure_ahead([(one, self.problems[at], self.seeds[at]) for one, at in new[:most]])

    def _measure_ahead(self, wanted: list[tuple[_Candidate, Problem, int]]) -> None:
        if self.workers is None or not wanted or stop_requested():
            return
        tasks = [self._task(*one) for one in wanted]
        for place, found in self.workers.run(_measured, tasks, *self.data):
            self._ready[self._key(*wanted[place])] = found

    def _key(self, tried: _Candidate, problem: Problem, seed: int) -> tuple[str, int, int]:
        return repr(sorted(tried.options.items())), id(problem), seed

    def _task(self, tried: _Candidate, problem: Problem, seed: int) -> tuple[Any, ...]:
        """Arguments of ``_measured``: all candidates meet a problem with the same seed, to have similar losses."""
        left = self.started + self.allowed - time.monotonic()
        if tried.options != PLAIN:
            left = min(left, max(LONGEST * self.allowed, 3 * max(self.plain.seconds, default=0.0)))
        present = np.unique(self.y[problem.learn])
        candidate = clone(self.clf).set_params(**tried.options, selection=None, verbose=False, random_state=seed)
        candidate.set_params(minority=present[problem.minority[present]].tolist(), class_prior="balanced")
        return self.log_proba, candidate, problem, self.y[problem.check], left

    def _affordable(self, tried: _Candidate, share: float = 1.0) -> bool:
        if stop_requested():
            return False
        if self.how.trials is not None:
            return self.fits < share * self.how.trials
        similar = [one for one in self.tried if one.options.get("demixing") == tried.options.get("demixing")]
        known = tried.seconds or [seconds for one in similar for seconds in one.seconds] or self.plain.seconds
        return time.monotonic() + max(known, default=0.0) <= self.started + share * self.allowed

    def _measure(self, tried: _Candidate, problem: Problem, seed: int) -> bool:
        """Fit and check; False when time ran out in the fit, whose result then says nothing."""
        try:
            found = self._ready.pop(self._key(tried, problem, seed), None)
            found = _measured(*self._task(tried, problem, seed), *self.data) if found is None else found
        finally:
            self.fits += 1
            self._show(tried)
        if found.failed is not None:
            tried.failed = found.failed
        elif found.losses is None:
            return False
        else:
            tried.losses.append(found.losses)
            tried.seconds.append(found.seconds)
        return True

    def _show(self, tried: _Candidate) -> None:
        """Move the bar by what was used of trials, or of seconds."""
        used = self.fits if self.how.trials is not None else int(time.monotonic() - self.started)
        while self._shown < used:
            self.progress.advance(tried.name)
            self._shown += 1

    def _verdict(self, best: _Candidate | None, plain: list[Losses], transfer: list[Losses]) -> Selection:
        """Transfer if it is better beyond noise, plain logit adjustment otherwise."""
        gain, low, high = _gain(plain, transfer, SURE) if transfer else (0.0,) * 3
        how = "held-out rows of every class"
        if self.by == "pseudo-minority":
            how = "classes cut down to minority size and on held-out rows of the real ones"
        figures = f"{gain:+.3f} nats, 90 % interval {low:+.3f} to {high:+.3f}, measured on {how}"
        chosen, why = self.plain, f"no transfer could be measured on {how} that had no part in choosing it."
        if best is not None and best.failed is not None:
            why = f"transfer ({best.name}) could not be trained. {best.failed}"
        elif best is not None and transfer:
            why = f"transfer ({best.name}) does not beat it beyond noise ({figures})."
            if self.vetoed and gain > 0:
                why = f"held-out rows of the real minority spoke against transfer ({best.name}), whatever it does "
                why += f"elsewhere ({figures})."
            elif not self.vetoed and low > 0:
                chosen = best
        sentence = f"Plain logit adjustment: {why}"
        if chosen is not self.plain:
            sentence = f"Transfer ({chosen.name}) saves on plain logit adjustment: {figures}."
        if not self.finished:
            sentence += " Not every question was asked: trials or time ran out."
        return Selection(
            by=self.by, options=chosen.options, transfer=chosen is not self.plain, gain=gain, low=low, high=high,
            vetoed=self.vetoed, tried=[one.record() for one in self.tried], fits=self.fits, finished=self.finished,
            seconds=time.monotonic() - self.started, sentence=sentence,
        )  # fmt: skip
