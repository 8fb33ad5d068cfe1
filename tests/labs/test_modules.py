"""Modules built outside the guest: what is kept, and the errors for an unusable module or compiler."""

import os
from pathlib import Path

import pytest

from xdplab.errors import LabError, ProgramError
from xdplab.labs.guests import modules
from xdplab.labs.guests.modules import BuildTree, build, compiler_for

KBUILD = """
modules:
	@test "$(ARCH)" = x86 && cp $(M)/Kbuild $(M)/made.ko && echo built >>$(CURDIR)/count
"""
BROKEN = """
modules:
	@echo "  CC [M]  $(M)/made.o"; echo "$(M)/made.c:3:5: error: no such thing" >&2
	@echo "make[1]: *** [all] Error 1" >&2; false
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildTree:
    """A tree whose kbuild only pretends to build."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "Makefile").write_text(KBUILD)
    return BuildTree("6.1.0-test", "6.1.1-1", tmp_path, "x86", "gcc")


def test_a_module_is_built_once_for_its_content(tree: BuildTree) -> None:
    one = build(tree, "made", {"made.c": b"one"})
    assert build(tree, "made", {"made.c": b"one"}) == one
    other = build(tree, "made", {"made.c": b"two"})
    assert other != one
    assert one.read_text() == "obj-m := made.o\n"
    assert (tree.path / "count").read_text() == "built\n" * 2
    assert not list(one.parents[1].glob(".fetch-*"))


def test_ones_own_kbuild_is_used(tree: BuildTree) -> None:
    own = b"obj-m := made.o\nmade-y := a.o b.o\n"
    assert build(tree, "made", {"a.c": b"", "sub/b.c": b"", "Kbuild": own}).read_bytes() == own


def test_the_compilers_first_error_is_told(tree: BuildTree) -> None:
    (tree.path / "Makefile").write_text(BROKEN)
    with pytest.raises(ProgramError, match=r"module made for 6\.1\.0-test does not build: made\.c:3:5: error: no such"):
        build(tree, "made", {"made.c": b""})
    assert not list((tree.path / "cache/xdplab/modules").glob("*/*.ko"))


def test_a_build_that_does_not_end_is_ended(tree: BuildTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "BUILD_S", 0.3)
    (tree.path / "Makefile").write_text("modules:\n\t@sleep 60\n")
    with pytest.raises(ProgramError, match=r"has not ended in 0\.3 s"):
        build(tree, "made", {"made.c": b""})


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [("../x", "x.c", "module's name"), ("made", "/etc/x.c", "lie at"), ("made", "../x", "at")],
)
def test_what_would_leave_the_folder_is_refused(tree: BuildTree, name: str, path: str, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        build(tree, name, {path: b""})


def compilers(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str, version: str = "12") -> None:
    for name in names:
        tool = folder / name
        tool.write_text(f"#!/bin/sh\necho {version}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_the_kernels_own_compiler_is_taken_else_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = os.environ["PATH"]
    compilers(tmp_path, monkeypatch, "gcc", "gcc-10")
    monkeypatch.setenv("PATH", f"{tmp_path}:{shell}")  # the fakes are scripts
    assert compiler_for("5.10", "CONFIG_GCC_VERSION=100201\n") == "gcc-10"
    assert compiler_for("4.19", "CONFIG_GCC_VERSION=80300\n") in ("gcc", "gcc-12")


def test_an_older_compiler_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_gcc_version", lambda _: 12)
    with pytest.raises(LabError, match=r"kernel 9\.9.*built by gcc 99, and gcc here is 12.*install gcc-99"):
        compiler_for("9.9", "CONFIG_GCC_VERSION=990200\n")
    with pytest.raises(LabError, match=r"riscv64-linux-gnu-gcc here is 12.*install gcc-99-riscv64-linux-gnu"):
        compiler_for("9.9@riscv64", "CONFIG_GCC_VERSION=990200\n", "riscv64-linux-gnu-")
    monkeypatch.setattr(modules, "_gcc_version", lambda _: None)
    with pytest.raises(LabError, match="there is no gcc here"):
        compiler_for("9.9", "CONFIG_GCC_VERSION=990200\n")
    with pytest.raises(LabError, match="not built by gcc"):
        compiler_for("9.9", "CONFIG_GCC_VERSION=0\n".replace("GCC", "CLANG"))


def test_a_folder_whose_name_make_would_expand_is_refused(tree: BuildTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """make took `$HOME` in a name for a variable and reported a missing directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tree.path / "a$HOME"))
    with pytest.raises(LabError, match=r"'\$' is a special character of make .*XDG_CACHE_HOME"):
        build(tree, "one", {"one.c": b""})
