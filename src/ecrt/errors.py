"""Errors that say what was wrong, where, and what to do about it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

NOT_THE_USER = {"ecrt", "contextlib", "functools", "imblearn", "joblib", "sklearn"}
"""Packages that a call of the user's may go through before something of ours warns."""


class ECRTError(Exception):
    """Base class of every error raised on purpose by this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is made again from its message alone: constructors with other arguments would fail on
        # the way back from a worker.
        return Exception.__new__, (type(self), *self.args), vars(self)


class InputError(ECRTError, ValueError):
    """The data or an option cannot be used as given."""


class NotEnoughMemoryError(ECRTError, MemoryError):
    """What is asked for needs more memory than there is; nothing of it was begun."""


class DivergenceError(ECRTError, ArithmeticError):
    """A loss or a gradient stopped being finite.

    Raised before the parameters are updated; the module that was being trained holds its best state so far.
    """

    def __init__(self, stage: str, step: int, quantity: str) -> None:
        self.stage, self.step, self.quantity = stage, step, quantity
        super().__init__(
            f"{stage}: the {quantity} is not finite at step {step}. Training stopped before the update and the best "
            f"state so far was kept. Try a smaller learning_rate, or look for extreme values in the input."
        )


class StoppedError(ECRTError):
    """Training was asked to stop before it had a finished state to keep."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"{stage}: stopped before anything was finished.")


class LostProcessError(ECRTError):
    """A process that a fit is shared with has ended, or does not answer."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(
            "Another process of this fit has ended, or does not answer. Start all of them again by the same command; a "
            "fit with a checkpoint goes on from there."
        )


class TerminatedError(KeyboardInterrupt):
    """The system asked the process to end (SIGTERM): dealt with as Ctrl-C is."""


class ModelFileError(ECRTError):
    """A saved model cannot be read. Nothing in its files was run.

    Attributes
    ----------
    path, problem, advice : which file, what is wrong with it, and what to do about it.
    """

    def __init__(
        self, path: object, problem: str, advice: str = "Save the model again, or copy its folder again."
    ) -> None:
        self.path, self.problem, self.advice = str(path), problem, advice
        super().__init__(f"{self.path}: {problem} {advice}")


class BadContentError(Exception):
    """What is wrong inside a model file, and what to do; whoever knows the file makes it a ``ModelFileError``."""

    def __init__(self, problem: str, *advice: str) -> None:
        super().__init__(problem)
        self.problem, self.advice = problem, advice

    def of_file(self, path: object) -> ModelFileError:
        """The error to raise."""
        return ModelFileError(path, self.problem, *self.advice)


@contextmanager
def code_of_user(call: str) -> Iterator[None]:
    """An error in a function of the user's own names the call that raised it."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{call} raised {type(error).__name__}: {error}") from error


class ECRTWarning(UserWarning):
    """Something was handled by a documented rule that the user should know about."""


_hidden: ContextVar[tuple[str, ...]] = ContextVar("hidden", default=())


@contextmanager
def hide_warnings(beginning: str = "") -> Iterator[None]:
    """Hide the warnings of this package that begin in this way, in this block and on this thread.

    Filters of the ``warnings`` module belong to the process: fits in several threads would leave each other's behind.
    """
    token = _hidden.set((*_hidden.get(), beginning))
    try:
        yield
    finally:
        _hidden.reset(token)


def warn_user(message: str) -> None:
    """Warn by an ``ECRTWarning`` that names the line of the user's own code, however deep the call is."""
    if message.startswith(_hidden.get()):
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in NOT_THE_USER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, ECRTWarning, stacklevel=level)
