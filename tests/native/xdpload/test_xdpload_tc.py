"""xdpload holds programs of tc as it holds those of XDP: what they decide has XDP's names, and nothing stays."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compiled import bpf_object, build_once
from tests.waiting import until

pytestmark = pytest.mark.root

# The first byte of a frame says what is returned: the target's address.
RETURNS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("tc") int decide(struct __sk_buff *ctx)
{
    unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (data + 1 > end)
        return 4;
    return *data == 7 ? bpf_redirect(ctx->ifindex, 0) : *data;
}
SEC("tcx/ingress") int newer(struct __sk_buff *ctx) { return 2; }
SEC("xdp") int before(struct xdp_md *ctx) { return XDP_PASS; }
char LICENSE[] SEC("license") = "GPL";
"""
PIPE = subprocess.PIPE
IN_PLACE = ("ip", "netns", "exec")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xdpload-tc")
    bpf_object(folder, RETURNS, name="tc")
    return folder


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    name = f"xdpload-tc-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def start(folder: Path, namespace: str, mode: str, *options: str) -> subprocess.Popen[str]:
    argv = [*IN_PLACE, namespace, build_once("xdpload"), "--object", str(folder / "tc.o")]
    argv += ["--interface", "va", "--mode", mode, *options]
    return subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


def lines_of(folder: Path, namespace: str, mode: str, *options: str, commands: str = "") -> list[dict]:
    out, _ = start(folder, namespace, mode, *options).communicate(commands, timeout=30)
    return [json.loads(line) for line in out.splitlines()]


def qdiscs(namespace: str) -> str:
    return subprocess.check_output([*IN_PLACE, namespace, "tc", "qdisc", "show", "dev", "va"], text=True)


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("mode", ["tcx", "tc"])
def test_one_program_is_attached_and_none_stays_however_it_ends(folder, namespace, mode, blow):
    process = start(folder, namespace, mode)
    loaded, line = (json.loads(process.stdout.readline()) for _ in range(2))
    assert (loaded["name"], line["mode"], line["mode_obtained"]) == ("decide", mode, mode)
    assert ("clsact" in qdiscs(namespace)) == (mode == "tc")
    refused = lines_of(folder, namespace, mode)[-1]
    assert (refused["step"], refused["error"]) == ("attach", "EBUSY")
    assert lines_of(folder, namespace, "native", "--program", "before")[-1]["error"] == "EBUSY"
    process.stdin.write("attached\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["mode_obtained"] == mode  # the refused one has left it alone
    process.send_signal(blow)
    process.communicate(timeout=10)
    assert until(lambda: "clsact" not in qdiscs(namespace), 2)
    assert until(lambda: lines_of(folder, namespace, mode)[-1]["type"] == "detached", 2)


def test_a_filter_that_stays_is_an_error_and_is_seen_before_a_trial_of_xdp(folder, namespace):
    process = start(folder, namespace, "tc")
    process.stdout.readline(), process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children), signal.SIGKILL)
    try:
        out, _ = process.communicate("", timeout=10)
        assert (json.loads(out)["step"], process.returncode) == ("detach", 1)
        assert lines_of(folder, namespace, "native", "--program", "before")[-1]["error"] == "EBUSY"
    finally:
        subprocess.run([*IN_PLACE, namespace, "tc", "qdisc", "del", "dev", "va", "clsact"], check=True)


def test_the_time_to_attach_a_filter_is_without_the_wait_for_an_earlier_one(folder, namespace):
    holder = start(folder, namespace, "tc")
    holder.stdout.readline(), holder.stdout.readline()
    process = start(folder, namespace, "tc")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    holder.communicate("", timeout=10)
    out, _ = process.communicate("", timeout=10)
    assert 0 < json.loads(out.splitlines()[1])["attach_ns"] < 1e9


def test_a_qdisc_of_the_users_is_left_alone(folder, namespace):
    inside = [*IN_PLACE, namespace, "tc", "qdisc"]
    subprocess.run([*inside, "add", "dev", "va", "clsact"], check=True)
    try:
        assert lines_of(folder, namespace, "tc")[-1]["error"] == "EEXIST"
        assert "clsact" in qdiscs(namespace)
    finally:
        subprocess.run([*inside, "del", "dev", "va", "clsact"], check=True)


@pytest.mark.parametrize("hook", ["ingress", "egress"])
def test_a_filter_that_comes_beside_ours_stays_with_the_qdisc_and_is_an_error(folder, namespace, hook):
    process = start(folder, namespace, "tc")
    process.stdout.readline(), process.stdout.readline()
    inside = [*IN_PLACE, namespace, "tc"]
    beside = ["filter", "add", "dev", "va", hook, "prio", "7", "bpf", "da"]
    beside += ["obj", str(folder / "tc.o"), "sec", "tc"]
    try:
        subprocess.run([*inside, *beside], check=True)
        out, _ = process.communicate("", timeout=10)
        assert (json.loads(out)["step"], process.returncode) == ("detach", 1)
        kept = [subprocess.check_output([*inside, "filter", "show", "dev", "va", at], text=True)
                for at in ("ingress", "egress")]  # fmt: skip
        assert ["pref 7" in text for text in kept] == [hook == "ingress", hook == "egress"]
        assert "pref 1 " not in "".join(kept)
    finally:
        subprocess.run([*inside, "qdisc", "del", "dev", "va", "clsact"], check=True)


def test_a_port_that_is_no_netkit_refuses_its_mode(folder, namespace):
    """EINVAL: this kernel has no netkit at all."""
    refused = lines_of(folder, namespace, "netkit")[-1]
    assert refused["step"] == "attach"
    assert refused["error"] == "ENXIO" or "(Linux 6.7 on, with CONFIG_NETKIT)" in refused["message"]


def test_what_it_decides_has_the_names_of_xdp(folder, namespace):
    """0 lets a packet pass, 2 drops it, 7 redirects it; 4 has no counterpart."""
    codes = {0: "pass", 2: "drop", 7: "tx", 4: "other"}
    frames = "".join(f"0x{code:02x}{'00' * 59} 0\n" for code in codes)
    commands = f"frames {len(codes)}\n{frames}outcomes 3\nfresh 2 2\ntestrun 64 100 2\n"
    _, _, given, outcomes, fresh, many, _ = lines_of(folder, namespace, "tcx", commands=commands)
    assert {name: count for name, count in outcomes["actions"].items() if count} == dict.fromkeys(codes.values(), 3)
    assert fresh["actions"]["tx"] == 4
    assert given["port"] == many["port"] == "va"


@pytest.mark.parametrize(
    ("mode", "options", "fits"),
    [
        ("tcx", ("--program", "newer"), True),
        ("none", ("--program", "newer", "--tc"), True),
        ("tcx", ("--program", "before"), False),
        ("none", ("--program", "before", "--tc"), False),
        ("native", ("--program", "decide"), False),
    ],
)
def test_a_program_is_loaded_for_the_hook_of_its_section(folder, namespace, mode, options, fits):
    last = lines_of(folder, namespace, mode, *options)[-1]
    assert (last["type"], last.get("step")) == (("detached", None) if fits else ("error", "open"))
