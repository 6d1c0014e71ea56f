"""A comparison on SLURM, by dask-jobqueue (0.9): workers are jobs of their own, begun while there is work for them.

    pip install 'ecrt[cluster,compare]' dask-jobqueue
    sbatch slurm_compare.sbatch
    python slurm_compare.py TABLE TARGET OUTPUT     (on a machine that may submit jobs)

OUTPUT must be on a disk that all nodes see: a lost worker then costs one trial. Workers leave a little before their
time is over, and the scheduler gives what they had to others.
"""

from __future__ import annotations

import sys

import dask
import pandas as pd
from dask_jobqueue import SLURMCluster

import ecrt
from ecrt.comparison import dask_cluster


def main(table: str, target: str, output: str) -> None:
    dask.config.set({"distributed.scheduler.allowed-failures": 20})
    data = pd.read_csv(table)
    with SLURMCluster(
        queue="cpu",
        account="my-project",
        cores=16,
        processes=16,  # one thread each
        memory="64GB",
        walltime="04:00:00",
        worker_extra_args=["--lifetime", "230m", "--lifetime-stagger", "8m"],
        job_script_prologue=["source ~/ecrt/bin/activate", "export OMP_NUM_THREADS=1"],
        log_directory="logs",
    ) as cluster:
        cluster.adapt(minimum_jobs=0, maximum_jobs=8)
        with dask_cluster(cluster.scheduler_address):
            found = ecrt.compare(data.drop(columns=target), data[target], trials=20, output=output)
    print(found.ranking("balanced"))


if __name__ == "__main__":
    main(*sys.argv[1:])
