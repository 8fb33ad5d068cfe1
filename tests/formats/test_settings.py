"""What the reader says of a host, as names and words."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from xdplab.errors import FormatError
from xdplab.formats.settings import MACHINE_FILES, PORT_FILES, parse_settings

SAMPLE = Path(__file__).parents[2] / "results" / "sample"

PTYPE = "Type Device      Function | ALL  vd0      packet_rcv | ALL  eth0     packet_rcv | 0800          ip_rcv"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("/proc/sys/net/core/bpf_jit_harden\t2", "net.core.bpf_jit_harden", "2"),
        ("/sys/class/net/vd0/mtu\t1500", "port.mtu", "1500"),
        ("/run/xdplab/probes/vd0\tveth: wrong", "port.probe", "veth: wrong"),
        ("/sys/class/net/vd0/flags\t0x1103", "port.flags", "up promisc"),
        ("/sys/devices/system/cpu/online\t0-1", "cpu.online", "0-1"),
        ("/sys/kernel/tracing/current_tracer\tnop", "kernel.tracing/current_tracer", "nop"),
        (
            "/sys/class/net/vd0/queues/tx-0/xps_cpus\tabsent: No such file",
            "port.queues/tx-*/xps_cpus",
            "absent: No such file",
        ),
        (f"port.device\tvd0\n/proc/net/ptype\t{PTYPE}", "port.sniffers", "packet_rcv"),
        (f"port.device\tvd1\n/proc/net/ptype\t{PTYPE} | ALL   all_rcv", "port.sniffers", "all_rcv"),  # of every port
        ("bpf.tracing\ttracing:count_taken kprobe:spy fentry:a ", "bpf.tracing", "fentry:a kprobe:spy"),  # in any order
    ],
)
def test_a_setting_has_a_name_without_its_folder(line: str, name: str, value: str) -> None:
    assert parse_settings(line + "\n") == {name: value}


def test_what_a_run_has_recorded_is_still_read() -> None:
    recorded = next(SAMPLE.glob("raw/*/*/counters/dut.settings.before.txt")).read_text()
    paths = [line.partition("\t")[0] for line in recorded.splitlines() if line.startswith("/")]
    read = [*MACHINE_FILES, *(path.format(device="vd0") for path in PORT_FILES)]
    assert paths
    assert [path for path in paths if not any(fnmatch(path, pattern) for pattern in read)] == []


def test_equal_values_of_all_queues_are_one() -> None:
    queues = [f"/sys/class/net/vd0/queues/rx-{queue}/rps_cpus" for queue in range(3)]
    equal = "".join(f"{path}\t0\n" for path in queues)
    assert parse_settings(equal) == {"port.queues/rx-*/rps_cpus": "0"}
    assert parse_settings(equal.replace("rx-1/rps_cpus\t0", "rx-1/rps_cpus\t2")) == {
        f"port.queues/rx-{queue}/rps_cpus": value for queue, value in enumerate("020")
    }


def test_a_line_without_a_value_is_refused() -> None:
    with pytest.raises(FormatError, match="line 1"):
        parse_settings("port.mtu\n")
