"""Which modules can be imported here: compiled code needs numba, which not every machine has."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("numba") else ["src/ecrt/inverse.py"]
