"""The means of a question: two cards in a guest, the project's loader, the kernel's tools and what bpftool prints; all
output is kept.

netdevsim in a guest: the kernel's own counterpart of a card that offloads XDP, built here and loaded there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from xdplab.deploy.xdp import AttachedProgram, InKernel, Loaded, XdpLoader, XdpRequest, attach, attached_program, verify
from xdplab.errors import HostError, UnsupportedError, XdplabError
from xdplab.formats.reading import as_list, as_object, count_field, json_of, last_words, refuse, text_field
from xdplab.hosts import Host, Result
from xdplab.labs.guests import modules
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import UserProgram
from xdplab.run.rundir import read_json
from xdplab.studies.guests import build_tree, kernel_source
from xdplab.studies.places import PlaceFacts

NAME = "netdevsim"
_FOLDER = "drivers/net/netdevsim"
_BUS = "/sys/bus/netdevsim"
_KBUILD = b"CONFIG_NETDEVSIM := m\nccflags-y += -g0\n"


@dataclass(frozen=True)
class Card:
    """A simulated card: its number, its ports' interfaces, and where debugfs has its switches."""

    number: int
    ports: tuple[str, ...]

    @property
    def switches(self) -> str:
        return f"/sys/kernel/debug/{NAME}/{NAME}{self.number}"


def build_module(kernel: str) -> Path:
    """Return netdevsim's module for a guest's kernel, built from Debian's source of exactly that version.

    Raises UnsupportedError if this machine cannot build modules for it, LabError if the archive lacks something,
    ProgramError with the compiler's message.
    """
    try:
        tree = build_tree(f"vm:{kernel}")
    except UnsupportedError as error:
        raise UnsupportedError(f"{NAME}: {error.message}", remedy=error.remedy) from error
    files = kernel_source(kernel, _FOLDER)
    makefile = files.pop("Makefile")
    return modules.build(tree, NAME, files | {"Kbuild": _KBUILD + makefile})


@contextmanager
def loaded(host: Host, module: Path) -> Iterator[None]:
    """Load the module into the guest's kernel for this block. Raises HostError with the kernel's message."""
    target = f"/tmp/{module.name}"
    host.put(module, target)
    needed = host.run(["modinfo", "-F", "depends", target]).text.strip().split(",")
    for name in filter(None, needed):
        host.run(["modprobe", name])
    host.run(["insmod", target])
    try:
        yield
    finally:
        host.run(["rmmod", NAME], check=False)


@contextmanager
def added_card(host: Host, number: int, ports: int) -> Iterator[Card]:
    """Create a card with this number of ports for this block, with its interfaces up."""
    host.run(["tee", f"{_BUS}/new_device"], stdin=f"{number} {ports}".encode())
    try:
        names = host.run(["ls", f"{_BUS}/devices/{NAME}{number}/net"]).text.split()
        if len(names) != ports:
            raise HostError(f"{host.name}: {NAME}{number} has ports {', '.join(names) or 'none'} where {ports} are due")
        for name in names:
            host.run(["ip", "link", "set", name, "up"])
        yield Card(number, tuple(sorted(names)))
    finally:
        remove_card(host, number)


def remove_card(host: Host, number: int) -> None:
    """Remove a card; harmless if it is gone."""
    host.run(["tee", f"{_BUS}/del_device"], stdin=str(number).encode(), check=False)


@contextmanager
def in_guest(host: Host, module: Path, cards: dict[int, int]) -> Iterator[dict[int, Card]]:
    """Load the module and make cards for this block: number and ports of each."""
    with ExitStack() as stack:
        stack.enter_context(loaded(host, module))
        yield {number: stack.enter_context(added_card(host, number, ports)) for number, ports in cards.items()}


PROBE = Path(__file__).parent / "programs" / "probe.bpf.c"
ANSWER = "answer.json"
SESSION_S = 60.0
AT_FIRST = {"bpf_bind_verifier_delay": "0", "bpf_tc_non_bound_accept": "N"}
"""The driver's switches that are off in a new card; all others are on."""
ACCEPTED, REFUSED, NOTHING = "accepted", "refused", "nothing"
Defines = Mapping[str, str | int]


@dataclass
class OffloadFacts(PlaceFacts):
    """A trial's facts: the lab, and the build of netdevsim."""

    lab: str | None = None
    module: str | None = None


class Answer(NamedTuple):
    """The obtained answer, in a word or a few, and the message that came with it."""

    obtained: str
    words: str | None = None


class HeldProgram(NamedTuple):
    """An attached program of the study, and the values read back."""

    loader: XdpLoader
    loaded: Loaded
    attached: AttachedProgram
    found: InKernel


@dataclass
class OffloadDevices:
    """``one`` has two ports, ``other`` is a card of its own; ``plain`` is an interface without offload."""

    host: Host
    xdpload: str
    folder: str
    one: Card
    other: Card
    plain: str
    transcript: list[dict[str, Any]] = field(default_factory=list)
    placed: set[str] = field(default_factory=set)

    @property
    def port(self) -> str:
        return self.one.ports[0]

    def run(self, *argv: str, stdin: bytes = b"") -> Result:
        """Run a command in the guest and keep its output."""
        done = self.host.run(argv, stdin=stdin, check=False)
        self.transcript.append(
            {"argv": argv, "exit_code": done.exit_code, "stdout": done.text, "stderr": done.error_text}
        )
        return done

    def answer(self, *argv: str) -> Answer:
        """Return whether a tool's command succeeded, with the kernel's message if it did not."""
        done = self.run(*argv)
        return Answer(ACCEPTED) if done.ok else Answer(REFUSED, kernels_words(done))

    def object(self, **defines: str | int) -> str:
        """Return the guest's path of the probe with these definitions, compiled here."""
        name = "-".join(["probe", *(f"{key}={value}".lower() for key, value in defines.items())])
        source = cache_directory().parent / "offload" / f"{name}.bpf.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        head = "".join(f"#define {key} {value}\n" for key, value in defines.items())
        source.write_text(head + PROBE.read_text())
        target = f"{self.folder}/{name}.o"
        if target not in self.placed:
            self.host.put(build(UserProgram(str(source)), cache_directory()).object, target)
            self.placed.add(target)
        return target

    @contextmanager
    def held(
        self, path: str, mode: str = "offload", *, port: str | None = None, **options: Any
    ) -> Iterator[HeldProgram]:
        """Attach a program with the project's own loader and read it back; detach it at the end of the block."""
        request = XdpRequest(path, port or self.port, mode, **options)
        try:
            loader = attach(self.host, self.xdpload, request, deadline_s=SESSION_S)
        except XdplabError as error:
            self.transcript.append({"argv": request.argv(self.xdpload), "error": str(error)})
            raise
        with loader:
            attached = verify(self.host, request.interface, program_id=loader.loaded.program_id, mode=mode)
            assert loader.attached is not None  # mode none is not used here
            yield HeldProgram(loader, loader.loaded, loader.attached, attached)
            with suppress(XdplabError):  # a question may have ended it
                loader.detach()
        self.transcript.append({"argv": loader.argv, "stdout": loader.raw})

    def taken(self, path: str, mode: str = "offload", **options: Any) -> Answer:
        """Return whether the project's own loader loads a program there; the words are its message for users."""
        try:
            with self.held(path, mode, **options):
                return Answer(ACCEPTED)
        except XdplabError as error:
            text = error.message.removeprefix(f"{self.host.name}: ")
            return Answer(f"{REFUSED} at {text.partition(':')[0]}", text.partition(": ")[2])

    @contextmanager
    def switched(self, name: str, value: str) -> Iterator[None]:
        """Set one of the driver's switches in this block."""
        path = f"{self.one.switches}/{name}"
        self.run("tee", path, stdin=value.encode())
        try:
            yield
        finally:
            self.run("tee", path, stdin=AT_FIRST.get(name.rpartition("/")[2], "Y").encode())

    @contextmanager
    def pinned(self, path: str, *device: str) -> Iterator[str]:
        """Load and pin a program with bpftool in this block, for a device or for none."""
        pin = "/sys/fs/bpf/xdplab-offload"
        argv = ["bpftool", "prog", "load", path, pin, "type", "xdp", *device]
        try:
            if not (done := self.run(*argv)).ok:
                raise HostError(f"{self.host.name}: `{' '.join(argv)}`: {kernels_words(done)}")
            yield pin
        finally:
            self.run("rm", "-f", pin)

    @contextmanager
    def beside(self, pin: str, kind: str) -> Iterator[Answer]:
        """Attach a pinned program with bpftool in this block; ``kind`` is bpftool's name of the mode."""
        answer = self.answer("bpftool", "net", "attach", kind, "pinned", pin, "dev", self.port)
        try:
            yield answer
        finally:
            if answer.obtained == ACCEPTED:
                self.run("bpftool", "net", "detach", kind, "dev", self.port)

    def programs(self) -> tuple[LoadedProgram, ...]:
        """Return the loaded XDP programs, from bpftool."""
        programs = parse_programs(self.run("bpftool", "-j", "prog", "show").stdout or b"[]")
        return tuple(program for program in programs if program.type == "xdp")

    def attached(self) -> InKernel:
        return attached_program(self.host, self.port)

    def raw(self) -> bytes:
        """Return all commands and outputs since the last call, one JSON line each."""
        lines, self.transcript = self.transcript, []
        return "".join(json.dumps(line) + "\n" for line in lines).encode()


_WITHIN = ("libbpf: Kernel error message: ", "PROG LOAD LOG --")


def kernels_words(done: Result) -> str:
    """Return the kernel's message within a tool's complaint, else the complaint."""
    lines = [line.strip() for line in (done.error_text or done.text).splitlines() if line.strip()]
    complaint = [line for line in lines if line.startswith("Error: ")]
    if any(sign in line for line in lines for sign in _WITHIN):
        return last_words("\n".join(line for line in lines if not line.startswith(("Error: ", "Warning: "))))
    return "; ".join(complaint or lines)[-400:]


def read(path: Path) -> Answer:
    return read_json(path, lambda kept: Answer(**kept))


def write(path: Path, answer: Answer) -> None:
    path.write_text(json.dumps(answer._asdict(), ensure_ascii=False) + "\n")


TOOL = "bpftool"
MODES = {"driver": "native", "generic": "generic", "offload": "offload"}


@dataclass(frozen=True)
class LoadedProgram:
    """One loaded program; ``device`` is the interface whose card has it, None for a program of the host."""

    program_id: int
    type: str
    device: str | None


class OffloadAttachment(NamedTuple):
    """One XDP program on one of the interfaces of the namespace that bpftool was asked in."""

    mode: str
    program_id: int


def parse_programs(data: bytes | str) -> tuple[LoadedProgram, ...]:
    """Return the loaded programs: `prog show` prints a list, `prog show id N` one object."""
    value = json_of(data, TOOL)
    rows = as_list(value, TOOL) if isinstance(value, list) else [value]
    return tuple(_program(as_object(row, TOOL)) for row in rows)


def _program(fields: dict[str, object]) -> LoadedProgram:
    if "error" in fields:
        refuse(TOOL, text_field(fields, "error", TOOL))
    device = _device(as_object(fields["dev"], TOOL)) if "dev" in fields else None
    return LoadedProgram(count_field(fields, "id", TOOL), text_field(fields, "type", TOOL), device)


def _device(fields: dict[str, object]) -> str:
    """Return an interface's name; one of another namespace has none here."""
    if "ifname" in fields:
        return text_field(fields, "ifname", TOOL)
    return f"index {count_field(fields, 'ifindex', TOOL)} of another namespace"


def parse_net(data: bytes | str) -> tuple[OffloadAttachment, ...]:
    """Return the attached XDP programs of `bpftool -j net show`; an interface comes once per mode."""
    value = json_of(data, TOOL)
    rows = as_list(value, TOOL)
    if len(rows) != 1:
        refuse(TOOL, "not one object in a list")
    interfaces = [as_object(row, TOOL) for row in as_list(as_object(rows[0], TOOL).get("xdp"), TOOL)]
    return tuple(
        _attached(as_object(one, TOOL))
        for fields in interfaces
        for one in as_list(fields.get("multi_attachments", [fields]), TOOL)
    )


def _attached(fields: dict[str, object]) -> OffloadAttachment:
    mode = text_field(fields, "mode", TOOL)
    if mode not in MODES:
        refuse(TOOL, "an unknown XDP mode", text=mode)
    return OffloadAttachment(MODES[mode], count_field(fields, "id", TOOL))
