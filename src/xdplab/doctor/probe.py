"""Tries XDP's requirements on one host by system calls, so it works before any tool is installed.

Sent to the host and run there as ``python3 - INTERFACE`` (standard library only). Prints one JSON object per probe:
``{"probe": …, "ok": …, "found": …}``. All its objects end with the process; it uses an interface only if one is named.
As ``python3 - --kernel`` it tries the kernel features that studies use in guests; its temporary changes (a setting, the
tracer, modules) affect the whole machine, so this is only for guests.
"""

import contextlib
import ctypes
import json
import mmap
import os
import platform
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

SYS_BPF = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, TEST_RUN, INFO_BY_FD, RAW_TRACEPOINT_OPEN, LINK_CREATE = 5, 10, 15, 17, 28
TYPE_XDP, ATTACH_XDP, LIVE_FRAMES = 6, 37, 1 << 1
TYPE_TRACING, ATTACH_FENTRY = 26, 24
MODES = {"native": 1 << 2, "generic": 1 << 1}
XDP_DROP, XDP_PASS = 1, 2

AF_XDP, SOL_XDP = 44, 283
RX_RING, UMEM_REG, FILL_RING, COMPLETION_RING = 2, 4, 5, 6
BINDS = {"copy": 1 << 1, "zerocopy": 1 << 2}
CHUNK, CHUNKS = 4096, 64

JIT = Path("/proc/sys/net/core/bpf_jit_enable")
TRACING = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
FUNCTION = "bpf_check"

libc = ctypes.CDLL(None, use_errno=True)


def address(buffer: "ctypes.Array[ctypes.c_char]") -> int:
    return ctypes.addressof(buffer)


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(144, b"\0"), 144)
    return checked(libc.syscall(SYS_BPF[platform.machine()], command, buffer, 144))


@contextlib.contextmanager
def program(returns: int, offload_to: int = 0) -> Iterator[int]:
    """Load the two instructions ``return returns``."""
    instructions = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, returns) + b"\x95" + bytes(7), 16)
    license = ctypes.create_string_buffer(b"Dual BSD/GPL")
    head = struct.pack(
        "=IIQQIIQII16sI", TYPE_XDP, 2, address(instructions), address(license), *[0] * 5, b"", offload_to
    )
    with closing(bpf(PROG_LOAD, head)) as descriptor:
        yield descriptor


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def jited_bytes() -> int:
    info = ctypes.create_string_buffer(64)
    with program(XDP_PASS) as descriptor:
        bpf(INFO_BY_FD, struct.pack("=IIQ", descriptor, 64, address(info)))
    (size,) = struct.unpack_from("=I", info, 16)
    return int(size)


def jit(_index: int) -> str:
    if not jited_bytes():
        raise OSError(0, "off")
    return "on"


def live_frames(_index: int) -> str:
    frame = ctypes.create_string_buffer(64)
    with program(XDP_DROP) as descriptor:
        frames = struct.pack("=IIIIQQIIIIQQI", descriptor, 0, 64, 0, address(frame), 0, 64, *[0] * 5, LIVE_FRAMES)
        bpf(TEST_RUN, frames)
    return "sent 64"


def attach(mode: str) -> Callable[[int], str]:
    def probe(index: int) -> str:
        with program(XDP_PASS) as descriptor:
            link = struct.pack("=IIII", descriptor, index, ATTACH_XDP, MODES[mode])
            with closing(bpf(LINK_CREATE, link)):
                return "attached"

    return probe


def offload(index: int) -> str:
    with program(XDP_PASS, offload_to=index):
        return "loaded"


def af_xdp(bind: str) -> Callable[[int], str]:
    def probe(index: int) -> str:
        memory = mmap.mmap(-1, CHUNK * CHUNKS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        with socket.socket(AF_XDP, socket.SOCK_RAW, 0) as sock:
            sock.setsockopt(SOL_XDP, UMEM_REG, struct.pack("=QQIIII", start, CHUNK * CHUNKS, CHUNK, 0, 0, 0))
            for ring in (FILL_RING, COMPLETION_RING, RX_RING):
                sock.setsockopt(SOL_XDP, ring, struct.pack("=I", CHUNKS))
            where = ctypes.create_string_buffer(struct.pack("=HHIII", AF_XDP, BINDS[bind], index, 0, 0), 16)
            checked(libc.bind(sock.fileno(), where, 16))
        return "bound to queue 0"

    return probe


def real_time(_index: int) -> str:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    return "SCHED_FIFO 5 given"


SECURITY = Path("/sys/kernel/security")
READ_LOCKDOWN = f"mount -t securityfs none {SECURITY} && cat {SECURITY}/lockdown"


def lockdown(_index: int) -> str:
    """Read the kernel's lockdown; if securityfs is not mounted, mount it in a separate mount namespace."""
    file = SECURITY / "lockdown"
    if file.exists():
        return file.read_text().strip()
    if any(SECURITY.iterdir()):
        return "[none]"  # securityfs is there, without lockdown: the kernel has none
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", READ_LOCKDOWN], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(0, lines[-1][:120])
    return done.stdout.strip()


BTF = Path("/sys/kernel/btf/vmlinux")
BTF_FUNC = 12
# Bytes after the first 12 of each type, by kind: a fixed number, and a number per member (include/uapi/linux/btf.h).
BTF_SIZES = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0), 15: (0, 12),
             17: (4, 0), 19: (0, 12)}  # fmt: skip
NEVER_CALLED = b"bpf_fentry_test1"


def btf_function(name: bytes) -> int:
    """Return the BTF id of a kernel function."""
    data = BTF.read_bytes()
    header, types, types_bytes, strings = struct.unpack_from("=4xIIII", data)
    at, end, number = header + types, header + types + types_bytes, 0
    while at < end:
        number += 1
        name_at, info, _ = struct.unpack_from("=III", data, at)
        kind = info >> 24 & 31
        start = header + strings + name_at
        if kind == BTF_FUNC and data[start : start + len(name) + 1] == name + b"\0":
            return number
        fixed, each = BTF_SIZES.get(kind, (0, 0))
        at += 12 + fixed + each * (info & 0xFFFF)
    raise OSError(0, f"the kernel's BTF has no {name.decode()}")


def tracing_program(_index: int) -> str:
    """Attach a program to the entry of a function that is never called."""
    instructions = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, 0) + b"\x95" + bytes(7), 16)
    license = ctypes.create_string_buffer(b"Dual BSD/GPL")
    head = struct.pack("=IIQQ", TYPE_TRACING, 2, address(instructions), address(license))
    attributes = struct.pack("=I", ATTACH_FENTRY) + bytes(36) + struct.pack("=I", btf_function(NEVER_CALLED))
    with (
        closing(bpf(PROG_LOAD, head.ljust(68, b"\0") + attributes)) as descriptor,
        closing(bpf(RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, descriptor))),
    ):
        return "attached to a function's entry"


@contextlib.contextmanager
def written(path: Path, value: str, after: str | None = None) -> Iterator[None]:
    """Change a kernel setting in this block; afterwards it has its former value, or ``after``."""
    before = path.read_text().strip()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before if after is None else after)


def jit_switch(_index: int) -> str:
    if not JIT.exists():
        raise OSError(0, "interpreter only: a kernel without a JIT")
    sizes = []
    for value in ("0", "1"):
        with written(JIT, value):
            sizes.append(jited_bytes())
    if sizes[0] or not sizes[1]:
        raise OSError(0, "JIT only: a kernel without an interpreter" if sizes[0] else "nothing is compiled")
    return "interpreter and JIT, as net.core.bpf_jit_enable says"


def tracing() -> Path:
    folder = next((path for path in TRACING if (path / "current_tracer").exists()), None)
    if folder is None:
        raise OSError(0, "a kernel without ftrace")
    return folder


def function_graph(_index: int) -> str:
    tracer = tracing() / "current_tracer"
    if "function_graph" not in (tracing() / "available_tracers").read_text().split():
        raise OSError(0, "not among its tracers")
    if tracer.read_text().strip() != "nop":
        raise OSError(0, "not tried: another process traces")
    with written(tracing() / "set_graph_function", FUNCTION, after=""), written(tracer, "function_graph"):
        return f"traces {FUNCTION}"


def kprobe(_index: int) -> str:
    for line in (f"p:xdplab_doctor {FUNCTION}\n", "-:xdplab_doctor\n"):
        with closing(os.open(tracing() / "kprobe_events", os.O_WRONLY | os.O_APPEND)) as events:
            os.write(events, line.encode())
    return f"set on {FUNCTION}"


def module(name: str, *parameters: str) -> Callable[[int], str]:
    def probe(_index: int) -> str:
        if Path("/sys/module", name).exists():
            return "loaded"
        done = subprocess.run(["modprobe", name, *parameters], capture_output=True, text=True, check=False)
        if done.returncode:
            message = done.stderr.strip().removeprefix("modprobe: FATAL: ") or "it cannot be loaded"
            raise OSError(0, message.splitlines()[0][:120])
        subprocess.run(["modprobe", "-r", name], capture_output=True, check=False)
        return "loads"

    return probe


KERNEL_PROBES: dict[str, Callable[[int], str]] = {
    "jit_switch": jit_switch,
    "function_graph": function_graph,
    "kprobe": kprobe,
    "test_bpf": module("test_bpf", "test_id=0"),
    "pktgen": module("pktgen"),
}
HOST_PROBES: dict[str, Callable[[int], str]] = {
    "jit": jit,
    "live_frames": live_frames,
    "real_time": real_time,
    "lockdown": lockdown,
    "tracing": tracing_program,
}
DEVICE_PROBES: dict[str, Callable[[int], str]] = {
    "native": attach("native"),
    "generic": attach("generic"),
    "offload": offload,
    "zerocopy": af_xdp("zerocopy"),  # before copy: a queue becomes free only a moment after its socket was closed
    "af_xdp": af_xdp("copy"),
}


def run(probes: dict[str, Callable[[int], str]], index: int) -> None:
    for name, probe in probes.items():
        try:
            answer = {"probe": name, "ok": True, "found": probe(index)}
        except OSError as error:
            answer = {"probe": name, "ok": False, "found": error.strerror or str(error)}
        except KeyError as error:
            answer = {"probe": name, "ok": False, "found": f"unknown on this machine: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")


def main(interfaces: list[str]) -> None:
    if interfaces == ["--kernel"]:
        run(KERNEL_PROBES, 0)
        return
    run(HOST_PROBES, 0)
    for interface in interfaces:
        run(DEVICE_PROBES, socket.if_nametoindex(interface))


if __name__ == "__main__":
    main(sys.argv[1:])
