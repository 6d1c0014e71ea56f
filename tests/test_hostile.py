"""Files beside a model from a stranger: our own errors, little memory, and nothing that steers the terminal."""

from __future__ import annotations

import io
import os
import shutil
import time

import numpy as np
import pytest
import torch
from rich.markdown import Markdown
from rich.table import Table

from ecrt.cli import Terminal
from ecrt.disk import parse_yaml, plain_bytes, read_arrays, read_json, read_text, read_yaml, typed
from ecrt.errors import BadContentError, InputError, ModelFileError
from ecrt.flows import Dense, LowRank
from ecrt.runs.config import read_config
from ecrt.runs.model_folder import TARGET_FILE, seal_run
from ecrt.training import History
from hostile_folders import ESCAPES, archives, fitted_runs, forged_columns, run, try_crafted
from model_mutations import memory_limit

MEMORY = 512 * 2**20


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return fitted_runs(tmp_path_factory.mktemp("runs"))


def test_crafted_folders_give_results_or_our_error(runs, tmp_path):
    with memory_limit(MEMORY):
        found = try_crafted(runs, tmp_path / "work", every=26, longest=8.0)  # a busy machine counts more
    assert not found.faults
    assert sum(found.outcomes.values()) > 40
    assert any("refused, refused, refused" in outcome for outcome in found.outcomes)
    assert any("fine, fine, fine" in outcome for outcome in found.outcomes)


def test_an_untouched_run_works(runs, tmp_path):
    for name, folder in runs.items():
        assert "100 rows predicted" in run(
            "predict", folder, folder.with_suffix(".csv"), "-o", tmp_path / f"{name}.csv"
        )


@pytest.mark.parametrize(
    ("name", "change"), list(forged_columns()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_columns_that_no_fit_could_have_read_are_refused(runs, tmp_path, name, change):
    shutil.copytree(runs["classes"], tmp_path / "run")
    change(tmp_path / "run" / TARGET_FILE)
    seal_run(tmp_path / "run")
    with pytest.raises(ModelFileError, match=r"target\.json"):
        run("predict", tmp_path / "run", runs["classes"].with_suffix(".csv"), "-o", tmp_path / "out.csv")


def test_arrays_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "numbers": rng.normal(size=(3, 4)), "by column": np.asfortranarray(rng.normal(size=(3, 4))),
        "text": np.array(["x", "yé\U0001f600"]), "word": np.array("balanced"), "none": np.zeros((0, 3)),
        "truth": np.array([True, False]), "other order": np.arange(5, dtype=">i2"), "scalar": np.float32(3.5),
        "strided": np.arange(24).reshape(2, 3, 4)[:, ::2],
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        found = read_arrays(tmp_path / "a.npz")
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == np.asarray(array).dtype
            assert found[name].flags.writeable


@pytest.mark.parametrize(
    ("name", "content"), list(archives()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_arrays_that_are_not_what_they_say_are_refused(tmp_path, name, content):
    file = tmp_path / "a.npz"
    file.write_bytes(content)
    if name == "no numbers":
        assert read_arrays(file)["y"].tolist() == ["xy"]
        return
    with memory_limit(2**28), pytest.raises(InputError, match=r"a\.npz cannot be read"):
        read_arrays(file)


@pytest.mark.parametrize("read", [read_text, read_json, read_yaml, read_arrays])
def test_what_is_no_plain_file_is_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)  # takes no room on disk
    for name in ("pipe", "link", "folder", "sparse", "missing"):
        with memory_limit(2**28), pytest.raises(InputError, match=f"{name} cannot be read"):
            read(tmp_path / name)


def test_a_file_may_be_as_long_as_allowed_and_no_longer(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert plain_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes long; at most 4 are read"):
        plain_bytes(tmp_path / "file", 4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: &x 1\n", "anchors"),
        ("a: 1\na: 2\n", "same key twice"),
        ("[" * 40 + "]" * 40, "nested"),
        ("[" * 10**5, "nested"),
        (f"a: [{'b, ' * 20_000}]", "longer"),
        (f"a: {'9' * 5000}", "digits"),
        (f"a: {'1:' * 500}1", "19 digits"),
        ("a: 2021-05-03", "quotes"),
        ("a: 2021-99-99", "month"),
        ("!!python/object/apply:os.system [id]", "constructor"),
        ("!!timestamp x", "not YAML"),
        ("a: [", "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_settings_are_plain_values(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_yaml(text)


def test_settings_that_cannot_be_are_refused(tmp_path):
    for line, problem in {
        "target: [[1, 2]]": "expected `str`, got `array`", "class_prior: [a, b]": "expected `float`, got `str`",
        "image_size: 1000000000": "4096", "costs: {miss: .inf, false_alarm: 1}": "two positive numbers",
        "seed: [" + "1, " * 5000 + "]": "…: expected `int`, got `array`", "a" * 900 + ": 1": "No setting is called",
    }.items():  # fmt: skip
        (tmp_path / "c.yaml").write_text(line)
        with pytest.raises(InputError, match=problem) as caught:
            read_config(tmp_path / "c.yaml", [])
        assert len(str(caught.value)) < 1000


def test_nothing_steers_the_terminal():
    terminal = Terminal()
    terminal.file = io.StringIO()
    table = Table(f"head{ESCAPES}")
    table.add_row(ESCAPES, f"\ud800{ESCAPES}")
    terminal.print(table)
    terminal.print(ESCAPES, style="bold red")
    terminal.print(Markdown(f"# {ESCAPES}\n\n[name](http://elsewhere)", hyperlinks=False))
    began = time.process_time()
    terminal.print("9" * 50_000)
    assert time.process_time() - began < 2
    shown = terminal.file.getvalue()
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r\ud800")
    assert "[/b]" in shown
    assert ":smile:" in shown
    assert "http://elsewhere" in shown


def test_an_array_in_the_place_of_plain_values_is_refused():
    for kind in (dict[str, float], list[str], str, History):
        with pytest.raises(BadContentError, match="The attribute"):
            typed(np.zeros(3), kind, "The attribute")


def test_a_linear_map_without_an_inverse_is_named():
    unit = torch.eye(3, dtype=torch.float64)
    for weight in (Dense(torch.zeros_like(unit)), LowRank(torch.tensor(1.0, dtype=torch.float64), unit, -unit)):
        with pytest.raises(InputError, match="no inverse"):
            weight.inverse(unit)
