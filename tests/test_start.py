"""What is imported before it is needed: nothing that takes seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ecrt

HEAVY = {
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "torch",
    "matplotlib",
    "imblearn",
    "joblib",
    "jinja2",
    "yaml",
    "pyarrow",
}


def imported_after(code: str) -> set[str]:
    """Top-level packages that are imported once the code has run."""
    told = f"import atexit, sys\natexit.register(lambda: print('IMPORTED', *sys.modules, file=sys.__stderr__))\n{code}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    line = next(line for line in done.stderr.splitlines() if line.startswith("IMPORTED"))
    return {name.partition(".")[0] for name in line.split()[1:]}


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["fit", "--nonsense"], ["nosuch"], ["--version"]])
def test_the_command_answers_a_question_about_itself_without_the_heavy_libraries(arguments):
    found = imported_after(f"import sys; sys.argv[1:] = {arguments}\nfrom ecrt.cli import main; main()")
    assert "typer" in found  # it did run
    assert not found & HEAVY


def test_importing_the_package_imports_nothing_heavy_until_it_is_used():
    assert not imported_after("import ecrt; ecrt.InputError; dir(ecrt)") & HEAVY
    used = imported_after("from ecrt import ECRTClassifier")
    assert {"torch", "sklearn"} <= used
    assert not used & {"matplotlib", "imblearn", "jinja2"}


def test_every_public_name_is_there_and_a_wrong_one_is_not():
    for name in ecrt.__all__:
        assert name in dir(ecrt)
        assert getattr(ecrt, name) is getattr(ecrt, name)
    with pytest.raises(AttributeError, match="no attribute 'ECRTClasifier'"):
        ecrt.ECRTClasifier  # noqa: B018
