"""The page on scale says what the results say, and its files for clusters are whole."""

from __future__ import annotations

import json
import re
import runpy
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
import yaml
from sklearn.datasets import make_classification

from ecrt import cli, compare
from ecrt.errors import ECRTWarning

ROOT = Path(__file__).parent.parent
QUICK = {"methods": ["lda"], "seeds": 2, "trials": 1}
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_tables_are_those_of_the_benchmark() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "bench_scale.py"), run_name="read")
    result = json.loads((ROOT / "results" / "bench_scale.json").read_text())
    assert script["page"](result) in PAGE, "run: python benchmarks/bench_scale.py --page"
    again = script["plan"](result["rates"])
    assert again == result["plan"], "the arithmetic is another one now"


def test_the_job_of_kubernetes_runs_a_command_that_exists() -> None:
    claim, job = yaml.safe_load_all((ROOT / "examples" / "cluster" / "kubernetes.yaml").read_text())
    cluster = job["spec"]["cluster"]["spec"]
    pods = [job["spec"]["job"]["spec"], cluster["worker"]["spec"], cluster["scheduler"]["spec"]]
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    for pod in pods[:2]:
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    service = cluster["scheduler"]["service"]
    assert service["selector"]["dask.org/cluster-name"] == job["metadata"]["name"]
    (words,) = pods[0]["containers"][0]["args"]
    options = set(re.findall(r"--[a-z]+", words))
    help_text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    compare = help_text[help_text.index("ecrt compare") :]
    assert {name for name in options if f"`{name}" not in compare and f", {name}" not in compare} <= {"--output"}
    assert callable(cli.compare)


@pytest.mark.slow
def test_the_script_for_slurm_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    asked: dict[str, object] = {}

    class OnThisMachine(distributed.LocalCluster):
        """In place of jobs, workers here."""

        def __init__(self, **options: object) -> None:
            asked.update(options)
            super().__init__(n_workers=0, threads_per_worker=1, dashboard_address=None, silence_logs=50)

        def adapt(self, *, minimum_jobs: int, maximum_jobs: int) -> None:
            super().adapt(minimum=minimum_jobs, maximum=min(maximum_jobs, 1))

    monkeypatch.setitem(sys.modules, "dask_jobqueue", types.SimpleNamespace(SLURMCluster=OnThisMachine))
    monkeypatch.setattr("ecrt.compare", lambda X, y, **options: compare(X, y, **options | QUICK))
    X, y = make_classification(200, n_informative=4, n_classes=3, random_state=0)
    pd.DataFrame(X).add_prefix("x").assign(label=y).to_csv(tmp_path / "table.csv", index=False)
    script = runpy.run_path(str(ROOT / "examples" / "cluster" / "slurm_compare.py"), run_name="read")
    with pytest.warns(ECRTWarning):
        script["main"](str(tmp_path / "table.csv"), "label", str(tmp_path / "compared"))
    assert asked["cores"] == asked["processes"]
    assert "lda" in capsys.readouterr().out
    assert (tmp_path / "compared" / "results.json").is_file()
