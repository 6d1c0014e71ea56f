"""Which choices serve rare classes here? Asked of classes whose answers are known, before the real fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils._param_validation import Interval

from ecrt.data.pseudo_minority import Problem, cross_validation_problem, pseudo_minority_problem
from ecrt.errors import DivergenceError, StoppedError, not_told
from ecrt.estimators.base import EstimatorBase
from ecrt.estimators.selection_evidence import Losses, Options, Tried, by_class, clearly_better, gain_of
from ecrt.metrics import nll_per_sample
from ecrt.stages import Part, Role
from ecrt.stages.parts import Positive, Rule, changed_options
from ecrt.training import Progress, stop_requested, stopped_at

__all__ = ["PLAIN", "SELECTION", "PseudoMinority", "Question", "Selection", "Tried", "questions", "select"]

Array = NDArray[np.float64]

PLAIN: Options = {"demixing": "none", "augmentation": "none"}
"""Logit adjustment on the features: what the user gets when no transfer is better beyond noise."""

FIRST_PROBLEMS, MOST_PROBLEMS, REAL_PROBLEMS = 2, 6, 3
SHARE_OF_QUESTIONS = 0.7
"""Share of trials or time that goes to questions; the rest settles the answer against plain logit adjustment."""

RESERVE = 0.03
"""Share of the time that is kept for a fit to end in once it is asked to stop."""

LONGEST = 0.25
"""Share of the time that one fit of a candidate may take, if that is more than thrice the time of a plain one: a flow
on many columns must not stop what comes after it."""

SURE = 0.95
"""Confidence that an answer must be better than the choice so far with, and transfer than plain logit adjustment: of
many answers, some look better by chance."""

LIKELY = 0.84
"""Confidence that an answer must be worse with to be dropped early: one standard error."""


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


SELECTION = Role((PseudoMinority,))
"""What the parameter ``selection`` takes."""


@dataclass(frozen=True)
class Question:
    """Something to choose, with answers that replace options of the choice so far."""

    about: str
    answers: tuple[Options, ...]
    of_all_classes: bool = False
    """Whether problems that leave out most classes cannot answer it."""


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
    tried : one record for each candidate: options, loss, fits on played-down classes, seconds.
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


def questions(clf: EstimatorBase, n_rows: int, n_columns: int | None) -> Iterator[Question]:
    """What to ask, the weightiest first; options that the user set away from their defaults are left as they are."""
    fixed = _set_by_user(clf)

    def ask(about: str, *answers: Options) -> Question:
        return Question(about, tuple(answer for answer in answers if not fixed & answer.keys()))

    if "demixing" in fixed:
        yield Question("transfer as it was asked for", ({},))
    else:
        yield ask("demixing", {"demixing": "linear"})
    minority = clf.get_params(deep=False)["minority"]
    lenders = not (isinstance(minority, str) and minority == "all")
    kinds = ("parametric", "permutation", "borrowed") if lenders else ("parametric", "permutation")
    yield ask("augmentation", *({"augmentation": kind} for kind in kinds))
    yield ask("head", {"head": "gaussian"}, {"head": "linear"}, {"head": "mlp"})
    if n_columns is not None and 2 <= n_columns <= 64 and n_rows >= 500:
        yield ask("flow on top", {"demixing": "flow"})
    if n_columns is not None and n_columns >= 8:
        yield ask("rotation", {"demixing__rotation": "discriminant"})
        sources = ask(
            "number of sources", {"demixing__n_sources": n_columns // 2}, {"demixing__n_sources": n_columns // 4}
        )
        yield replace(sources, of_all_classes=True)  # few classes differ in few directions
    yield ask("augmentation weight", {"augmentation__weight": 0.2}, {"augmentation__weight": 0.8})
    yield ask("shrinkage", {"augmentation__pseudo_samples": 3.0}, {"augmentation__pseudo_samples": 30.0})
    if clf._encoder.trains:
        yield ask("classes of the encoder", {"encoder__learn_from": "all"})
    yield ask("objective", {"demixing__objective": "gcl"})
    yield ask("critic", {"demixing__critic": "cosine"})
    yield ask("likelihood weight", {"demixing__likelihood_weight": 0.1}, {"demixing__likelihood_weight": 3.0})


def _set_by_user(clf: EstimatorBase) -> set[str]:
    """Options that are not at their defaults, those of parts included."""
    fixed = changed_options(clf)
    for name in clf._roles:
        value = getattr(clf, name)
        fixed |= {f"{name}__{option}" for option in changed_options(value)} if isinstance(value, Part) else set()
    return fixed


def _acting(clf: EstimatorBase, options: Options) -> Options:
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


def _value(clf: EstimatorBase, path: str) -> Any:
    """An option by name, one of a part as the part has it."""
    name, nested, option = path.partition("__")
    return getattr(clf._parts(name)[0], option) if nested else getattr(clf, name)


def select(
    clf: EstimatorBase,
    fit: Callable[[Any, NDArray[np.int64], list[int]], Any],
    log_proba: Callable[[Any, NDArray[np.int64]], Array],
    y: NDArray[np.int64],
    minority: NDArray[np.bool_],
    n_columns: int | None,
    *,
    unfamiliar: Callable[[], bool] = lambda: False,
    trials: int | None,
    budget: float,
    rng: np.random.Generator,
    progress: Progress,
) -> Selection:
    """Ask every question in turn; an answer is kept if it likely lowers the loss of classes whose answers are known.

    Parameters
    ----------
    clf : the estimator whose options are chosen.
    fit : fits a copy of it, with options set, on rows, given the classes that are minority in them.
    log_proba : log-probabilities under the balanced prior of rows, one column for each class of ``minority``.
    y : class indices of all rows.
    unfamiliar : whether the minority varies where the majority does not; asked once, if at all.
    trials : fits at most; the result is then the same on every machine. Without it, ``budget`` seconds.
    """
    race = _Race(clf, fit, log_proba, y, minority, unfamiliar, trials, budget, rng, progress)
    progress.start(f"selection by {race.by}", trials if trials is not None else int(np.ceil(budget)))
    try:
        asked = questions(clf, len(y), n_columns)
        best = race.run([one for one in asked if race.has_most_classes or not one.of_all_classes])
    finally:
        progress.finish()
    return race.verdict(best)


class _Race:
    """Candidates, the problems they are measured on, and what is left of trials or time."""

    def __init__(
        self,
        clf: EstimatorBase,
        fit: Callable[[Any, NDArray[np.int64], list[int]], Any],
        log_proba: Callable[[Any, NDArray[np.int64]], Array],
        y: NDArray[np.int64],
        minority: NDArray[np.bool_],
        unfamiliar: Callable[[], bool],
        trials: int | None,
        budget: float,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        self.clf, self.fit, self.log_proba, self.y, self.minority = clf, fit, log_proba, y, minority
        self.unfamiliar, self.trials, self.progress, self.rng = unfamiliar, trials, progress, rng
        self.started = time.monotonic()
        self.allowed = np.inf if trials is not None else (1 - RESERVE) * budget
        self.deadline = self.started + self.allowed
        self.shown = 0
        self.fits = 0
        self.finished = True
        first = pseudo_minority_problem(y, minority, rng)
        self.by: Literal["pseudo-minority", "cross-validation"] = "pseudo-minority" if first else "cross-validation"
        self.problems = [first or cross_validation_problem(y, minority, rng)]
        self.seeds = rng.integers(2**31, size=MOST_PROBLEMS).tolist()
        self.has_most_classes = 2 * len(np.unique(y[self.problems[0].learn])) > len(np.unique(y))
        self.plain = Tried(dict(PLAIN))
        self.tried = [self.plain]
        self.evidence: tuple[Tried, Tried] | None = None
        self.vetoed = False

    def run(self, asked: list[Question]) -> Tried:
        """Answer the questions, then settle the best against plain logit adjustment, the real minority heard too."""
        self._extend(self.plain, 1)
        if not self.plain.losses:  # nothing to compare with
            self.finished = False
            return self.plain
        best: Tried | None = None
        start: Options = {} if "augmentation" in _set_by_user(self.clf) else {"augmentation": "none"}
        for number, question in enumerate(asked):
            for answer in question.answers:
                base = start if best is None else best.options
                if number > 0 and (best is None or not self._is_news(answer, base)):
                    continue
                challenger = Tried(_acting(self.clf, base | answer))
                if not self._challenge(challenger, best):
                    self.finished = False
                    break
                self.tried.append(challenger)
                if challenger.failed is None and (best is None or clearly_better(best, challenger, SURE)):
                    best = challenger
        if best is None:
            return self.plain
        real = self._on_real_problems(best) if self.by == "pseudo-minority" else ([], [])
        for size in range(2, MOST_PROBLEMS + 1):
            if not (self._extend(self.plain, size) and self._extend(best, size)):
                break
        # The first problems chose the best of several, and would flatter it: others judge it.
        first = FIRST_PROBLEMS if len(self.tried) > 2 else 0
        both = min(len(self.plain.losses), len(best.losses))
        losses = [one.losses[first:both] + more for one, more in zip((self.plain, best), real, strict=True)]
        if losses[0] or best.failed is not None:
            self.evidence = (
                Tried(self.plain.options, losses[0]),
                Tried(best.options, losses[1], failed=best.failed),
            )
        return best

    def _is_news(self, answer: Options, base: Options) -> bool:
        """Whether an answer changes anything: options without effect would be measured for nothing."""
        options = _acting(self.clf, base | answer)
        old, new = (clone(self.clf).set_params(**how) for how in (base, options))
        return any(_value(old, path) != _value(new, path) for path in answer if path in options)

    def _challenge(self, challenger: Tried, best: Tried | None) -> bool:
        """Measure on the first problems, but no further than it is likely worse; False where time did not suffice."""
        share = 1.0 if best is None else SHARE_OF_QUESTIONS  # one transfer at least is measured, if it can be
        for size in range(1, FIRST_PROBLEMS + 1):
            if not self._extend(challenger, size, share):
                return best is None and size > 1
            if best is not None and challenger.failed is None and clearly_better(challenger, best, LIKELY):
                break
        return True

    def _on_real_problems(self, best: Tried) -> tuple[list[Losses], list[Losses]]:
        """Losses of both on held-out rows of the real classes, cross-validated: h(z), then h(s).

        The minority's rows among them may veto: if they are surely worse off or, where the minority varies in a way
        that the majority does not know, likely so.
        """
        plain, transfer = Tried(self.plain.options), Tried(best.options)
        rare: tuple[Tried, Tried] = (Tried(plain.options), Tried(best.options))
        for _ in range(REAL_PROBLEMS):
            problem = cross_validation_problem(self.y, self.minority, self.rng)
            of_minority = self.minority[np.unique(self.y[problem.check])]
            if not of_minority.any():
                continue
            seed = int(self.rng.integers(2**31))
            if not all(self._affordable(one) and self._measure(one, problem, seed) for one in (plain, transfer)):
                break
            if transfer.failed is not None:  # what does not train on the real classes is of no use to them
                best.failed = transfer.failed
                break
            for one, view in zip((plain, transfer), rare, strict=True):
                losses, weight = one.losses[-1]
                view.losses.append((losses[of_minority], weight[of_minority]))
        both = len(rare[1].losses)
        if both > 0:
            confidence = LIKELY if self.unfamiliar() else SURE
            self.vetoed = gain_of(*rare, 2 * confidence - 1)[2] < 0
        return plain.losses[:both], transfer.losses[:both]

    def _extend(self, tried: Tried, size: int, share: float = 1.0) -> bool:
        """Measure on problems up to ``size``; False when that share of trials or time does not suffice."""
        while len(tried.losses) < size and tried.failed is None:
            if not self._affordable(tried, share):
                return False
            while len(self.problems) <= len(tried.losses):
                made = pseudo_minority_problem if self.by == "pseudo-minority" else cross_validation_problem
                self.problems.append(made(self.y, self.minority, self.rng) or self.problems[0])
            if not self._measure(tried, self.problems[len(tried.losses)], self.seeds[len(tried.losses)]):
                return False
        return True

    def _affordable(self, tried: Tried, share: float = 1.0) -> bool:
        if stop_requested():
            return False
        if self.trials is not None:
            return self.fits < share * self.trials
        alike = [one for one in self.tried if one.options.get("demixing") == tried.options.get("demixing")]
        known = tried.seconds or [seconds for one in alike for seconds in one.seconds] or self.plain.seconds
        expected = max(known, default=0.0)
        return time.monotonic() + expected <= self.started + share * self.allowed

    def _measure(self, tried: Tried, problem: Problem, seed: int) -> bool:
        """Fit and check; False when time ran out in the fit, whose result then says nothing.

        All candidates meet a problem with the same seed, so that alike ones are alike in their losses.
        """
        started = time.monotonic()
        until = self.deadline
        if tried.options != PLAIN:
            longest = max(LONGEST * self.allowed, 3 * max(self.plain.seconds, default=0.0))
            until = min(until, started + longest)
        candidate = clone(self.clf).set_params(**tried.options, selection=None, verbose=False, random_state=seed)
        try:
            with stopped_at(until), not_told():
                present = np.unique(self.y[problem.learn])
                rare = [int(label) for label in present if problem.minority[label]]
                fitted = self.fit(candidate, problem.learn, rare)
                log_p = self.log_proba(fitted, problem.check)
        except StoppedError:
            return False
        except DivergenceError as error:
            tried.failed = str(error)
            return True
        finally:
            self.fits += 1
            self._show(tried)
        if time.monotonic() > until:
            return False
        losses = nll_per_sample(log_p, self.y[problem.check])
        tried.losses.append(by_class(losses, self.y[problem.check], problem.weight))
        tried.seconds.append(time.monotonic() - started)
        return True

    def _show(self, tried: Tried) -> None:
        """Move the bar by what was used of trials, or of seconds."""
        used = self.fits if self.trials is not None else int(time.monotonic() - self.started)
        while self.shown < used:
            self.progress.advance(tried.name)
            self.shown += 1

    def verdict(self, best: Tried) -> Selection:
        """Transfer if it is better beyond noise, plain logit adjustment otherwise."""
        measured = self.evidence is not None and len(self.evidence[1].losses) > 0
        gain, low, high = gain_of(*self.evidence, 2 * SURE - 1) if self.evidence and measured else (0.0,) * 3
        transfer = bool(self.evidence and measured and not self.vetoed and clearly_better(*self.evidence, SURE))
        chosen = best if transfer else self.plain
        seconds = time.monotonic() - self.started
        records = [
            {"options": one.options, "loss": one.loss, "fits": len(one.losses), "seconds": round(sum(one.seconds), 1)}
            | ({"failed": one.failed} if one.failed else {})
            for one in self.tried
        ]
        examined = best if best is not self.plain and (measured or best.failed) else None
        sentence = _in_words(self.by, transfer, self.vetoed, examined, gain, low, high)
        if not self.finished:
            sentence += " Not every question was asked: trials or time ran out."
        return Selection(
            by=self.by, options=chosen.options, transfer=transfer, gain=gain, low=low, high=high, vetoed=self.vetoed,
            tried=records, fits=self.fits, finished=self.finished, seconds=seconds, sentence=sentence,
        )  # fmt: skip


def _in_words(by: str, transfer: bool, vetoed: bool, best: Tried | None, gain: float, low: float, high: float) -> str:
    how = "held-out rows of every class"
    if by == "pseudo-minority":
        how = "classes played down to minority size and on held-out rows of the real ones"
    if best is None:
        return f"Plain logit adjustment: no transfer could be measured on {how} that had no part in choosing it."
    if best.failed is not None:
        return f"Plain logit adjustment: transfer ({best.name}) could not be trained. {best.failed}"
    figures = f"{gain:+.3f} nats, 90 % interval {low:+.3f} to {high:+.3f}, measured on {how}"
    if transfer:
        return f"Transfer ({best.name}) saves on plain logit adjustment: {figures}."
    if vetoed and gain > 0:
        return (
            f"Plain logit adjustment: held-out rows of the real minority spoke against transfer ({best.name}), "
            f"whatever it does elsewhere ({figures})."
        )
    return f"Plain logit adjustment: transfer ({best.name}) does not beat it beyond noise ({figures})."
