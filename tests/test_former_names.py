"""Names that a script of an earlier version imports still work for a release, and say where they are now."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

FORMER = {
    "xdplab.figures": (
        "CATALOGUE", "COLUMNS", "STYLES", "Drawn", "FigureError", "Look", "NotApplicableError", "Panels", "View",
        "compare_view", "draw_all", "figure", "marks_frame", "view",
    ),
    "xdplab.programs": (
        "USER_FLAGS", "BuiltProgram", "LoadReport", "Program", "ProgramSpec", "Proof", "TestRun", "UserProgram",
        "cache_directory", "calibrated_testrun", "load_report", "prove", "prove_user", "testrun", "user_source",
    ),
    "xdplab.studies.execution": ("STUDY", "ExecutionRun", "Request", "smallest"),
    "xdplab.studies.jit": ("STUDY", "JitPoint", "JitRequest", "JitRun", "smallest"),
    "xdplab.studies.loading": ("STUDY", "LoadingPoint", "LoadingRequest", "LoadingRun", "smallest"),
    "xdplab.studies.offload": ("PLACES", "STUDY", "OffloadPoint", "Request"),
    "xdplab.studies.verifier": ("STUDY", "Request", "VerifierRun", "smallest"),
}  # fmt: skip
FUNCTIONS = {"xdplab.figures": ("draw", "save"), "xdplab.programs": ("build", "program", "source")}


@pytest.mark.parametrize("package", FORMER)
def test_a_former_name_is_what_it_was_and_says_where_it_is(package: str) -> None:
    for name in FORMER[package]:
        with pytest.warns(DeprecationWarning, match=rf"{package}\.{name} is xdplab\.[\w.]+ now") as told:
            found = getattr(importlib.import_module(package), name)
        module, _, present = str(told[0].message).split(" is ")[1].split(" now")[0].rpartition(".")
        assert getattr(importlib.import_module(module), present) is found
        assert told[0].filename == __file__


@pytest.mark.parametrize("package", FORMER)
def test_a_name_that_never_was_is_no_attribute(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'never'"):
        _ = importlib.import_module(package).never


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in FUNCTIONS for name in FUNCTIONS[package]])
def test_a_function_whose_name_is_a_module_now_can_still_be_called(package: str, name: str) -> None:
    called = getattr(importlib.import_module(f"{package}.{name}"), name)
    module = getattr(importlib.import_module(package), name)
    with (
        pytest.raises(TypeError, match=f"{name}\\(\\)"),  # the function's own error: it was called
        pytest.warns(DeprecationWarning, match=rf"{package}\.{name} is {package}\.{name}\.{name} now"),
    ):
        module()
    assert callable(called)


def test_the_import_of_a_former_script_works_in_a_fresh_interpreter() -> None:
    script = (
        "from xdplab.programs import ProgramSpec, build; from xdplab.figures import view; "
        "from xdplab.studies.execution import STUDY; print(callable(build), STUDY.name, ProgramSpec.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True execution ProgramSpec\n"
