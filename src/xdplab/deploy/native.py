"""Native C on a host: sent as source, built there, kept by content.

A C tool (xdpload, xdpgen, afxdp_user, …) and the user-space build of a workload are compiled on the host that runs
them, because only that host knows its libraries and CPU. The result is in a cache directory of the host, under a name
made of the sources' content and the compilers' versions. A finished build is renamed into place, so an interrupted one
cannot look finished.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from weakref import WeakKeyDictionary

from xdplab.errors import HostError
from xdplab.hosts import Host, Result, run_together
from xdplab.resources import shipped

BUILD_DEADLINE_S = 120.0
AT_ONCE = 4
"""Tools that are built at the same time: an SSH server takes ten commands of a connection at once."""
WORKLOAD_FLAGS = ("-O2", "-fPIC", "-shared")

_SOURCE_PATTERNS = ("Makefile", "*.mk", "*.c", "*.h", "*.S")
_TOOL_PACKAGES = {"make": "make", "cc": "gcc", "clang": "clang"}

_VERSIONS: WeakKeyDictionary[Host, dict[str, str]] = WeakKeyDictionary()
"""Each connected host's tools and their versions, asked for once: a run builds six tools and a twin per program."""

# What a compiler or linker says when a development package is missing, and that package's Debian name.
_HEADER_PACKAGES = (
    (r"xdp/[\w./]+\.h: No such file|'xdp/[\w./]+\.h' file not found|cannot find -lxdp", "libxdp-dev"),
    (r"bpf/[\w./]+\.h: No such file|'bpf/[\w./]+\.h' file not found|cannot find -lbpf", "libbpf-dev"),
    (r"linux/[\w./]+\.h: No such file|'linux/[\w./]+\.h' file not found", "linux-libc-dev"),
    (r"asm/[\w./]+\.h: No such file|'asm/[\w./]+\.h' file not found", "gcc-multilib"),
    (r"cannot find -lelf", "libelf-dev"),
    (r"cannot find -lz", "zlib1g-dev"),
    (r"(?:stdio|stdlib|string|stdint)\.h: No such file|crt1\.o: No such file", "libc6-dev"),
)


@dataclass(frozen=True)
class _Build:
    """Files by relative path, the command that makes ``product`` of them in their folder, and the tools it runs."""

    label: str
    files: Mapping[str, bytes]
    command: tuple[str, ...]
    product: str
    tools: tuple[str, ...]

    def key(self, versions: str) -> str:
        """Return a hash (16 hex digits) of everything that goes into the product."""
        digest = hashlib.sha256(repr((self.command, versions)).encode())
        for name, content in sorted(self.files.items()):
            digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()[:16]


def build_tool(
    host: Host,
    name: str,
    cache_dir: str,
    *,
    compiler: str | None = None,
    libraries: Path | None = None,
) -> str:
    """Build one of `build_tools` and return the path of its binary."""
    return build_tools(host, [name], cache_dir, compiler=compiler, libraries=libraries)[0]


def build_tools(
    host: Host,
    names: Iterable[str],
    cache_dir: str,
    *,
    compiler: str | None = None,
    libraries: Path | None = None,
) -> list[str]:
    """Build C tools on ``host`` at the same time; return the paths of their binaries, which have the tools' names.

    ``compiler``: one for another architecture; the binary then has all its libraries inside, or is linked with those of
    ``libraries`` (a folder with ``include`` and ``lib``). Raises HostError naming the missing tool and its Debian
    package, or with the compiler's last words.
    """
    common = {f"common/{path}": text for path, text in _sources(shipped("common")).items()}
    command = ("make", *(_across(compiler, libraries) if compiler else ()))
    tools = ("make", compiler or "cc", "clang")
    builds = [_Build(name, _sources(shipped(name)) | common, command, name, tools) for name in names]
    return _built(host, builds, cache_dir)


def _across(compiler: str, libraries: Path | None) -> tuple[str, ...]:
    """Return make's variables. The libraries may want a newer C library than the compiler's: the guest has theirs."""
    if libraries is None:
        return (f"CC={compiler}", "LDFLAGS=-static")
    linked = f"-L{libraries}/lib -Wl,--allow-shlib-undefined"
    return (f"CC={compiler}", f"CPPFLAGS=-I{libraries}/include", f"LDFLAGS={linked}")


def build_workload(host: Host, source: str, cache_dir: str, *, flags: Sequence[str] = WORKLOAD_FLAGS) -> str:
    """Compile the user-space workload ``source`` on ``host`` and return the path of its ``workload.so``.

    Raises HostError as `build_tool` does.
    """
    command = ("cc", *flags, "-I.", "-o", "workload.so", "workload.c")
    build = _Build("workload", {"workload.c": source.encode()}, command, "workload.so", ("cc",))
    return _built(host, [build], cache_dir)[0]


def _sources(folder: Path) -> dict[str, bytes]:
    """Read the sources of a tool, without objects and binaries of a local build."""
    paths = (path for pattern in _SOURCE_PATTERNS for path in folder.rglob(pattern))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(paths)}


def _built(host: Host, builds: Sequence[_Build], cache_dir: str) -> list[str]:
    versions = _versions(host, dict.fromkeys(tool for build in builds for tool in build.tools))
    targets = [
        PurePosixPath(cache_dir) / f"{build.label}-{build.key(''.join(versions[tool] for tool in build.tools))}"
        for build in builds
    ]
    products = [str(target / build.product) for build, target in zip(builds, targets, strict=True)]
    looks = run_together(host, [["test", "-f", product] for product in products])
    with ThreadPoolExecutor(AT_ONCE) as meanwhile:
        rows = zip(builds, targets, looks, strict=True)
        made = [meanwhile.submit(_make, host, build, target) for build, target, present in rows if not present.ok]
    for one in made:
        one.result()
    return products


def _versions(host: Host, tools: Iterable[str]) -> dict[str, str]:
    """Return the versions of these tools, and of others that this host was asked for."""
    versions = _VERSIONS.setdefault(host, {})
    missing = [tool for tool in tools if tool not in versions]
    for tool, result in zip(missing, run_together(host, [[tool, "--version"] for tool in missing]), strict=True):
        if result.exit_code == 127:
            package = _TOOL_PACKAGES.get(tool, tool)
            raise HostError(
                f"{host.name}: `{tool}` is not installed", remedy=f"install it there: apt install {package}"
            )
        versions[tool] = result.require().text
    return versions


def _make(host: Host, build: _Build, target: PurePosixPath) -> None:
    host.run(["mkdir", "-p", str(target.parent)])
    work = host.run(["mktemp", "-d", str(target.parent / f".{build.label}-XXXXXXXX")]).text.strip()
    try:
        host.run(["tar", "-xf", "-", "-C", work], stdin=_tar(build.files))
        result = host.run(["env", "-C", work, *build.command], deadline_s=BUILD_DEADLINE_S, check=False)
        if not result.ok:
            raise _failure(host, build, result)
        _publish(host, work, target, build.product)
    finally:
        host.run(["rm", "-rf", work], check=False)


def _publish(host: Host, work: str, target: PurePosixPath, product: str) -> None:
    """Rename the finished folder into place; if another build of the same content was first, use that one."""
    host.run(["chmod", "755", work])  # mktemp's 700 would keep a workload from other users of the cache
    moved = host.run(["mv", "-T", work, str(target)], check=False)
    if not moved.ok and not host.run(["test", "-f", str(target / product)], check=False).ok:
        moved.require()


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _failure(host: Host, build: _Build, result: Result) -> HostError:
    lines = (result.error_text or result.text.strip()).splitlines() or [
        f"exit code {result.exit_code}, and it printed nothing"
    ]
    for pattern, package in _HEADER_PACKAGES:
        if line := next((line for line in lines if re.search(pattern, line)), None):
            return HostError(f"{host.name}: {build.label} does not build: {line}", remedy=f"apt install {package}")
    line = next((line for line in lines if "error:" in line), lines[-1])
    return HostError(f"{host.name}: {build.label} does not build: {line}")
