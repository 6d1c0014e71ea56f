"""A stranger's day: files as people have them through fit, predict and evaluate; none is read wrongly in silence."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ecrt.cli import app
from ecrt.runs.model_folder import open_run
from stranger_files import make_files

SETTINGS = ("model.demixing=none", "head.kind=linear", "head.weight_decay=0.001", "test_size=0")
QUICK = [word for setting in SETTINGS for word in ("--set", setting)]
LEARNED = ("number", "category", "date")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("file", make_files(), ids=lambda file: file.name)
def test_a_file_is_read_rightly_or_refused_in_one_line(file, tmp_path):
    path, model, output = tmp_path / file.name, tmp_path / "model", tmp_path / "found.csv"
    path.write_bytes(file.content)
    result = invoke("fit", path, "--target", file.target, *file.options, "-o", model, *QUICK)
    if file.error:
        assert result.exit_code == 1
        assert [line for line in result.stderr.splitlines() if line.startswith("Error")] == [result.stderr.strip()]
        assert file.error in result.stderr
        return
    assert result.exit_code == 0, result.output
    assert f"Task: {file.task}" in result.stderr
    assert file.said in result.stderr
    run = open_run(model)
    kinds = {column.name: column.kind for column in run.columns if column.role == "input"}
    assert {name: kinds[name] for name in file.kinds} == file.kinds
    assert [*run.model.feature_names_in_] == [name for name, kind in kinds.items() if kind in LEARNED]

    result = invoke("predict", model, path, "-o", output)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(output, dtype=str, keep_default_na=False)
    if file.ids:
        assert tuple(found.iloc[:, 0]) == file.ids
    result = invoke("evaluate", model, path)
    assert result.exit_code == 0, result.output
    if file.task == "regression":
        assert "rmse" in result.output
        assert np.corrcoef(found["predicted"].astype(float), file.amounts)[0, 1] > 0.9
        return
    assert set(found["predicted"]) <= set(file.labels)
    assert {f"p_{label}" for label in file.labels} <= set(found)
    if file.learnable:
        accuracy = float(re.search(r"accuracy\D*?([0-9.]+)", result.output)[1])
        assert accuracy > 0.9
