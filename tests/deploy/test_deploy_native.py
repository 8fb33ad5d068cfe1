"""Builds on the host: cached by content, complete or absent; a missing tool is named with its package."""

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.compiled import tool_first_in_path

from xdplab.deploy import native
from xdplab.deploy.native import build_tool, build_workload
from xdplab.errors import HostError
from xdplab.hosts import Result
from xdplab.hosts.local import LocalHost

WORKLOAD = """
const unsigned long xdplab_state_bytes = 8;
unsigned long xdplab_workload(void *state, unsigned char *data, unsigned int length) { return 40 + length; }
"""


@pytest.fixture
def small_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool with one C file, instead of the real ones."""
    folder = tmp_path / "tools" / "hello"
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text("hello: hello.c\n\t$(CC) -o $@ hello.c\n")
    (folder / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); }\n')
    (folder / "hello").write_text("a binary of another machine\n")
    monkeypatch.setattr(native, "shipped", lambda name: tmp_path / "tools" / name)
    return folder


def test_a_room_is_built_once_and_again_when_its_source_changes(small_room: Path, tmp_path: Path):
    host, cache = LocalHost(), str(tmp_path / "cache")
    binary = build_tool(host, "hello", cache)
    assert host.run([binary]).text == "hello\n"
    assert Path(binary).parent.stat().st_mode & 0o777 == 0o755, "other users of the cache may read it"
    built = Path(binary).stat().st_mtime_ns
    assert build_tool(host, "hello", cache) == binary
    assert Path(binary).stat().st_mtime_ns == built

    source = small_room / "hello.c"
    source.write_text(source.read_text().replace("hello", "other"))
    changed = build_tool(host, "hello", cache)
    assert changed != binary
    assert host.run([changed]).text == "other\n"
    assert host.run([binary]).text == "hello\n"


def test_a_build_that_fails_leaves_nothing_and_shows_the_compilers_message(small_room: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    (small_room / "hello.c").write_text("int main(void) { return no_such_name; }\n")
    with pytest.raises(HostError, match=r"hello does not build: hello.c:1:25: error: .no_such_name"):
        build_tool(LocalHost(), "hello", str(cache))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "package"), [("#include <xdp/no_such.h>\n", "libxdp-dev"), ("#include <bpf/no_such.h>\n", "libbpf-dev")]
)
def test_a_missing_header_is_named_with_its_package(small_room: Path, tmp_path: Path, source: str, package: str):
    (small_room / "hello.c").write_text(source + "int main(void) { return 0; }\n")
    with pytest.raises(HostError) as caught:
        build_tool(LocalHost(), "hello", str(tmp_path))
    assert caught.value.remedy == f"apt install {package}"


def test_a_missing_library_is_named_with_its_package(small_room: Path, tmp_path: Path):
    (small_room / "Makefile").write_text("hello: hello.c\n\t@echo 'cannot find -lxdp: No such file' >&2; false\n")
    with pytest.raises(HostError, match="libxdp-dev"):
        build_tool(LocalHost(), "hello", str(tmp_path))


def test_a_folder_that_stays_fails_no_build_and_one_that_cannot_be_moved_says_why(
    small_room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tool_first_in_path(monkeypatch, tmp_path / "bin", "rm", "#!/bin/sh\nexit 1\n")
    assert LocalHost().run([build_tool(LocalHost(), "hello", str(tmp_path / "a"))]).text == "hello\n"
    tool_first_in_path(monkeypatch, tmp_path / "bin", "mv", "#!/bin/sh\necho 'mv: no room' >&2\nexit 1\n")
    with pytest.raises(HostError, match="mv: no room"):
        build_tool(LocalHost(), "hello", str(tmp_path / "b"))


def test_a_missing_tool_is_named_with_its_package(small_room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("make", "timeout", "sh"):
        (folder / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(HostError, match=r"`cc` is not installed \(install it there: apt install gcc\)"):
        build_tool(LocalHost(), "hello", str(tmp_path / "cache"))


def test_a_hosts_compilers_are_asked_for_their_version_once(
    small_room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    run = LocalHost.run

    def noted(host: LocalHost, argv: Sequence[str], **more: Any) -> Result:
        asked.extend(re.findall(r"ask (\w+) --version", argv[-1]))
        return run(host, argv, **more)

    monkeypatch.setattr(LocalHost, "run", noted)
    host = LocalHost()
    for cache in ("one", "two"):
        build_tool(host, "hello", str(tmp_path / cache))
    assert sorted(asked) == ["cc", "clang", "make"]
    build_tool(LocalHost(), "hello", str(tmp_path / "two"))  # another connection: it may be another host
    assert len(asked) == 6


def test_another_compiler_builds_anew(small_room: Path, tmp_path: Path):
    built: set[str] = set()
    for version in ("12", "13"):
        host = LocalHost()
        native._VERSIONS[host] = dict.fromkeys(("make", "cc", "clang"), version)
        built |= {build_tool(host, "hello", str(tmp_path)), build_workload(host, WORKLOAD, str(tmp_path))}
    assert len(built) == 4


def test_two_builds_at_once_agree(small_room: Path, tmp_path: Path):
    """The second build finds the first one's folder at its target."""
    host, cache = LocalHost(), tmp_path / "cache"
    binary = build_tool(host, "hello", str(cache))
    work = cache / ".late"
    work.mkdir()
    native._publish(host, str(work), native.PurePosixPath(binary).parent, "hello")
    assert host.run([binary]).text == "hello\n"


def test_a_workload_is_compiled_and_cached(tmp_path: Path):
    host, cache = LocalHost(), str(tmp_path)
    library = build_workload(host, WORKLOAD, cache)
    assert ctypes.CDLL(library).xdplab_workload(None, None, 2) == 42
    assert build_workload(host, WORKLOAD, cache) == library
    assert build_workload(host, WORKLOAD.replace("40", "50"), cache) != library
    other = build_workload(host, WORKLOAD.replace("40", "N"), cache, flags=(*native.WORKLOAD_FLAGS, "-DN=50"))
    assert ctypes.CDLL(other).xdplab_workload(None, None, 2) == 52
