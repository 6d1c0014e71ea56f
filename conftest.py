"""Which modules can be imported here: those with kernels need parts that not every machine has."""

from importlib.util import find_spec

collect_ignore = [
    f"src/ecrt/flows/{module}.py"
    for module, needed in {"inverse_cpu": "numba", "inverse_cuda": "triton"}.items()
    if find_spec(needed) is None
]
