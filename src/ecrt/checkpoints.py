"""A fit that was stopped goes on where it was: what has been trained is kept in a folder.

With the same data, options and seed a fit is always the same sequence of trainings. So the folder holds the outcome of
each training that has ended, by its number, and the state of the one that has not: parameters, optimizer, place in the
epoch, random numbers. The same fit, begun again, takes over what is there and computes the rest, with the same result
bit by bit.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from scipy import sparse
from torch import Tensor, nn
from torch.utils.data import Dataset

from ecrt.disk import canonical, locked, open_plain, read_json, remove_litter, replacing, write_json
from ecrt.distributed import active, any_of, from_first, rank
from ecrt.errors import InputError, TerminatedError, warn_user
from ecrt.randomness import draw_on_from, drawn_so_far

EVERY = 30.0
"""Seconds of work that may be lost."""

ROWS_AT_ONCE = 8192
"""Of data, when their digest is made."""

MOST_BYTES = 8 * 2**30
"""Of a file that is read."""

NOT_OURS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)
"""Errors of what is made from a file that this fit has not written; a module says that a state is not its own by a
``RuntimeError``."""

NOT_KEPT = "The fit goes on, but its checkpoint is not up to date."
FIT, UNFINISHED = "fit.json", ("unfinished-0.safetensors", "unfinished-1.safetensors")
ENDED = "ended-{:06d}-{:06d}.safetensors"
"""Trainings of these numbers."""

ENDED_NAME = re.compile(r"ended-(\d{6,18})-(\d{6,18})\.safetensors")


class Tally:
    """A number that is counted up in the course of a training."""

    def __init__(self) -> None:
        self.value = 0
        registered(self)

    def state(self) -> int:
        """The number."""
        return self.value

    def restore(self, state: int) -> None:
        """Go on from that number."""
        self.value = state


class Kept:
    """One training of a fit, as its folder knows it."""

    def __init__(self, checkpoints: Checkpoints, number: int, stage: str) -> None:
        self._of, self._number, self._stage = checkpoints, number, stage
        self._before: Any = None

    def outcome(self) -> Any:
        """What ``end`` was given when this training ended; ``None`` if it has not."""
        found = self._of.ended(self._number, self._stage)
        if found is None:
            return None
        with self.reading():
            self._of.restore(found["random"])
            return found["outcome"]

    def end(self, outcome: Any) -> None:
        """The training has come to its end."""
        self._of.add(self._number, {"stage": self._stage, "outcome": outcome, "random": self._of.states()})

    def unfinished(self) -> Any:
        """What ``save`` was given last; ``None`` if this training was not under way."""
        found = self._of.take_unfinished(self._number, self._stage)
        if found is None:
            return None
        with self.reading():
            self._before, self._now = found["before"], found["now"]
            return found["state"]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within this block, what was kept is put to use; what this fit cannot have kept is refused."""
        try:
            yield
        except NOT_OURS as error:
            raise InputError(
                f"{self._of.folder}: what is kept of training {self._number} ({self._stage}) is not as this fit writes "
                "it. Delete the folder to begin anew."
            ) from error

    def batches(self, batches: Iterable[Any], done: int) -> Iterator[Any]:
        """The batches of an epoch but those that were done before it was stopped."""
        if done:
            with self.reading():
                self._of.restore(self._before)
        self._before = self._of.states()
        iterator = iter(batches)
        if done:
            with self.reading():
                for _ in range(done):
                    next(iterator)
                self._of.restore(self._now)
        return iterator

    def wishes(self) -> tuple[bool, bool]:
        """Whether this process would write now, and whether it was asked to end."""
        return self._of.wishes()

    def agree(self, due: bool, terminated: bool) -> None:
        """Do as the processes wish that share this fit."""
        self._of.agreed = due, terminated

    def save(self, state: Callable[[], Any]) -> None:
        """Keep the state after a step, if it is time; raise a ``TerminatedError`` after a SIGTERM."""
        if self._of.is_time():
            now = {"before": self._before, "now": self._of.states(), "state": state()}
            self._of.write_unfinished({"number": self._number, "stage": self._stage} | now)


@dataclass
class _Fit:
    """What the file of a checkpoint says of its fit."""

    fit: dict[str, str]
    seed: Annotated[int, Meta(ge=0, lt=2**31)] | None


class Checkpoints:
    """The folder of one fit.

    Parameters
    ----------
    fit : what the fit is of, by name: options, data, versions. A folder of another fit is refused.
    """

    def __init__(self, folder: Path, fit: dict[str, str]) -> None:
        self.folder, self.asked_to_end, self.broken = folder, False, False
        self.agreed = False, False
        """Whether processes that share this fit will write, and end."""
        before = from_first(lambda: _same_fit(folder, fit))
        self.seed = before.seed
        """Of a fit that was given none, so that it can go on."""
        self._mark = _digest([canonical(vars(before))])
        """In every file: what another fit, or another seed, has trained is not taken for this one's."""
        self._calls = 0
        self._things: list[Callable[[], Any]] = []
        self._new: dict[int, Any] = {}
        self._read: tuple[Path | None, dict[str, Any]] = None, {}
        self._unfinished = from_first(lambda: max(map(self._readable, UNFINISHED), key=_age))
        self._places = _age(self._unfinished)[1]
        self._written = time.monotonic()

    def begin(self, stage: str) -> Kept:
        """The next training."""
        self.end_if_asked()
        self._calls += 1
        return Kept(self, self._calls, stage)

    def end_if_asked(self) -> None:
        """Raise a ``TerminatedError`` after a SIGTERM; what has ended is written."""
        self._agree()
        if self.terminated:
            self.write()
            raise TerminatedError

    def register(self, thing: Any) -> None:
        """Keep its state with that of trainings, while it lives: a generator, or what has ``state`` and ``restore``."""
        try:
            self._things.append(weakref.ref(thing))
        except TypeError:  # generators of numpy
            self._things.append(lambda: thing)

    def states(self) -> dict[str, Any]:
        """Of everything that was registered, and of the random numbers of this thread."""
        alive = {str(place): _state_of(thing) for place, ref in enumerate(self._things) if (thing := ref()) is not None}
        return {"things": alive, "drawn": drawn_so_far()}

    def restore(self, states: dict[str, Any]) -> None:
        """Put everything back into such a state."""
        draw_on_from(states["drawn"])
        for place, state in states["things"].items():
            thing = self._things[int(place)]() if int(place) < len(self._things) else None
            if thing is not None:
                _restore(thing, state)

    def ended(self, number: int, stage: str) -> Any:
        """What is known of a training that has ended."""
        return from_first(lambda: self._ended(number, stage))

    def _ended(self, number: int, stage: str) -> Any:
        for file in self.folder.glob("ended-*.safetensors"):
            places = ENDED_NAME.fullmatch(file.name)
            if places and int(places[1]) <= number <= int(places[2]):
                if self._read[0] != file:
                    self._read = file, self._readable(file.name) or {}
                found = self._read[1].get(str(number))
                if isinstance(found, dict) and found.get("stage") == stage:
                    return found
        return None

    def add(self, number: int, found: Any) -> None:
        """A training has ended; it is written with others, when it is time."""
        self._new[number] = found
        self._agree()
        if self.is_time():
            self.write()
            if self.terminated:
                raise TerminatedError

    def _agree(self) -> None:
        due, ending = any_of(*self.wishes())
        self.agreed = due, ending

    def is_time(self) -> bool:
        """Whether something should be written now."""
        return (self.agreed if active() else self.wishes())[0]

    @property
    def terminated(self) -> bool:
        """Whether the fit is to end."""
        return (self.agreed if active() else self.wishes())[1]

    def wishes(self) -> tuple[bool, bool]:
        """Whether this process would write now, and whether it was asked to end."""
        return self.asked_to_end or time.monotonic() - self._written > EVERY, self.asked_to_end

    def write(self) -> None:
        """Write the trainings that have ended since the last time."""
        if self._new:
            name = ENDED.format(min(self._new), max(self._new))
            self._write(name, {str(number): found for number, found in self._new.items()})
            self._new = {}

    def take_unfinished(self, number: int, stage: str) -> Any:
        """What is known of a training that was under way."""
        found = self._unfinished
        return found if _age(found)[0] == number and found.get("stage") == stage else None

    def write_unfinished(self, found: dict[str, Any]) -> None:
        """Write the state of the training that is under way; the one before it is kept, too."""
        self.write()
        self._places += 1
        found["place"] = self._places
        self._write(UNFINISHED[self._places % 2], found)
        if self.terminated:
            raise TerminatedError

    def _write(self, name: str, content: Any) -> None:
        """Write a file whole. If that cannot be done the fit goes on: better without checkpoints than not at all."""
        self._written = time.monotonic()
        if rank():  # the first process writes
            return
        tensors: dict[str, Tensor] = {}
        text = json.dumps(_packed(content, tensors))
        try:
            with replacing(self.folder / name) as file:
                file.write(save(tensors, {"content": text, "fit": self._mark}))
        except InputError as error:
            if not self.broken:
                warn_user(f"{NOT_KEPT} {error}")
            self.broken = True
        self._written = time.monotonic()

    def _readable(self, name: str) -> Any:
        """The content of a file; ``None`` if there is none, or it cannot be read: what it held is then done again."""
        try:
            with open_plain(self.folder / name, MOST_BYTES), safe_open(self.folder / name, "pt") as file:
                about = file.metadata()
                found = _unpacked(json.loads(about["content"]), file.get_tensor) if about["fit"] == self._mark else None
        except (OSError, SafetensorError, *NOT_OURS):
            return None
        return found if isinstance(found, dict) else None


def _age(found: Any) -> tuple[int, int]:
    """Training and number of an unfinished state; what cannot be read is older than all."""
    number, place = ((found or {}).get(name) for name in ("number", "place"))
    return (number, place) if type(number) is int and type(place) is int else (-1, 0)


_active: ContextVar[Checkpoints | None] = ContextVar("checkpoints", default=None)


def registered(thing: Any) -> Any:
    """The thing, whose state is now kept with that of trainings, where checkpoints are kept."""
    checkpoints = _active.get()
    if checkpoints is not None:
        checkpoints.register(thing)
    return thing


def begin_training(stage: str) -> Kept | None:
    """The next training of the fit; ``None`` where no checkpoints are kept."""
    checkpoints = _active.get()
    return None if checkpoints is None else checkpoints.begin(stage)


def end_if_asked() -> None:
    """Raise a ``TerminatedError`` after a SIGTERM, where checkpoints are kept."""
    checkpoints = _active.get()
    if checkpoints is not None:
        checkpoints.end_if_asked()


@contextmanager
def kept_in(folder: str | PathLike[str] | None, fit: Callable[[], dict[str, str]]) -> Iterator[int | None]:
    """Within this block trainings are kept in a folder and taken from there; gives the seed of the fit, if it has none.

    ``None`` for a folder keeps nothing. A block within another belongs to it.

    A SIGTERM ends the step under way, saves, and raises a ``TerminatedError``.

    Raises
    ------
    InputError
        When the folder is that of another fit, is in use, or cannot be written to.
    """
    if folder is None or _active.get() is not None:
        yield None
        return
    folder = Path(folder)
    with ExitStack() as held:
        try:
            from_first(lambda: held.enter_context(locked(folder, wait=False)))
            checkpoints = Checkpoints(folder, fit())
        except InputError as error:
            before = any(folder.parent.glob(f"*/{FIT}"))
            if not (before and isinstance(error.__cause__, OSError)):
                raise
            warn_user(f"{NOT_KEPT} {error}")  # a disk that was full when a later step began
            with suppress(OSError):
                folder.rmdir()
            yield None
            return
        token = _active.set(checkpoints)
        try:
            with _told_of_termination(checkpoints):
                yield checkpoints.seed
        finally:
            _active.reset(token)
            checkpoints.write()


def _same_fit(folder: Path, fit: dict[str, str]) -> _Fit:
    """What the folder says of its fit, which is now this one; a folder of another fit is refused."""
    seedless = fit.get("random_state") == "None"
    if (folder / FIT).exists():
        before = read_json(folder / FIT, _Fit)
        _check_same(folder, before.fit, fit)
        if (before.seed is not None) != seedless:
            raise InputError(f"{folder / FIT} cannot be read. Delete the folder to begin anew.")
        return before
    remove_litter(folder)  # of a process that was killed when it began
    if any(folder.iterdir()):
        raise InputError(f"{folder} holds other files. Choose an empty folder for the checkpoint.")
    begun = _Fit(fit, secrets.randbits(31) if seedless else None)
    write_json(folder / FIT, vars(begun))
    return begun


def forget(folder: str | PathLike[str]) -> None:
    """Delete the checkpoints in a folder, and the folder if nothing else is in it."""
    folder = Path(folder)
    for fit in [file.parent for file in folder.glob(f"*/{FIT}")]:
        for file in [*fit.glob("ended-*.safetensors"), *(fit / name for name in UNFINISHED), fit / FIT]:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            fit.rmdir()
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _told_of_termination(checkpoints: Checkpoints) -> Iterator[None]:
    """Within this block, on the main thread, a SIGTERM is noted instead of ending the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(signum: int, frame: FrameType | None) -> None:
        if checkpoints.asked_to_end:
            raise TerminatedError
        checkpoints.asked_to_end = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_same(folder: Path, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise an error that names what differs."""
    names = [name for name in (before | now) if before.get(name) != now.get(name)]
    if names:
        changes = "; ".join(f"{name}: {before.get(name, 'not set')}, now {now.get(name, 'not set')}" for name in names)
        raise InputError(
            f"The checkpoint in {folder} is of another fit ({changes}). Choose another folder, or delete this one to "
            "begin anew."
        )


def digest_of(value: Any) -> str:
    """Shape and digest of data: arrays, sparse matrices, tables, texts, networks; of a Dataset its length."""
    if hasattr(value, "to_pandas"):
        value = value.to_pandas()
    if isinstance(value, (pd.DataFrame, pd.Series)):
        rows = pd.util.hash_pandas_object(value).to_numpy()
        names = map(str, value.columns if isinstance(value, pd.DataFrame) else [value.name])
        return f"{' x '.join(map(str, value.shape))} {_digest([rows.tobytes(), *map(str.encode, names)])}"
    if sparse.issparse(value):
        value = sparse.csr_array(value)  # type: ignore[call-overload]
        return f"{' x '.join(map(str, value.shape))} {_digest([value.data, value.indices, value.indptr])}"
    if isinstance(value, nn.Module):
        state = value.state_dict().items()
        numbers = ([name.encode(), one.detach().cpu().reshape(-1).view(torch.uint8).numpy()] for name, one in state)
        return f"{type(value).__name__} {_digest(part for both in numbers for part in both)}"
    if isinstance(value, Dataset):
        return f"{type(value).__name__} of {len(value)}"  # type: ignore[arg-type]
    array = np.asarray(value)
    rows = np.atleast_1d(array if array.dtype != object else np.array(repr(array.tolist())))
    parts = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    return f"{' x '.join(map(str, array.shape))} {array.dtype} {_digest(parts)}"


def _digest(parts: Iterable[Any]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


# --- states as plain values and tensors ------------------------------------------------------------------------------


def _state_of(thing: Any) -> Any:
    if isinstance(thing, torch.Generator):
        return thing.get_state()
    return thing.bit_generator.state if isinstance(thing, np.random.Generator) else thing.state()


def _restore(thing: Any, state: Any) -> None:
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    elif isinstance(thing, np.random.Generator):
        thing.bit_generator.state = state
    else:
        thing.restore(state)


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON has it; tensors are put aside."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"entries": {str(name): _packed(entry, tensors) for name, entry in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_packed(entry, tensors) for entry in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"A module with a state of type {type(value).__name__} cannot be kept. Use checkpoint=None.")


def _unpacked(value: Any, tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensor(value["tensor"])
        return {name: _unpacked(entry, tensor) for name, entry in value["entries"].items()}
    return [_unpacked(entry, tensor) for entry in value] if isinstance(value, list) else value
