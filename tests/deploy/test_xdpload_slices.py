"""Two programs take turns on an interface with traffic, and each runs only in its own slices."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.compiled import bpf_object

from xdplab.deploy.xdp import XdpRequest, attach, verify
from xdplab.errors import UnsupportedError
from xdplab.formats.slices import parse_slices, ratio_of

pytestmark = pytest.mark.root


@contextmanager
def traffic(lab) -> Iterator[None]:
    """Send frames from the TG until the block ends."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            lab.send(20_000)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_each_runs_in_its_own_slices_and_the_first_is_attached_again(lab, xdpload, drop_object, mode):
    host, request = lab.dut.host, XdpRequest(str(drop_object), "vd0", mode)
    with attach(host, xdpload, request) as own, attach(host, xdpload, replace(request, mode="none")) as other:
        own.bpf_stats(True)
        own.begin_slices(other, 0.005, 30, seed=7)
        with traffic(lab):
            own.await_slices(30)
        verify(host, "vd0", program_id=own.loaded.program_id, mode=mode)
        runs = {False: own.runstats().run_cnt, True: other.runstats().run_cnt}
        slices = parse_slices(own.raw)
        assert [one.other for one in slices].count(True) == 30 == len(slices) / 2
        counted = {side: sum(one.frames for one in slices if one.other is side) for side in (False, True)}
        # Frames between two slices count for neither.
        assert 0 < counted[True] <= runs[True]
        assert 0 < counted[False] <= runs[False]
        assert counted[True] > 0.3 * runs[True]
        own.detach()


SECTIONS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int known(struct xdp_md *ctx) { return XDP_DROP; }
SEC("xdp_mine") int named(struct xdp_md *ctx) { return XDP_PASS; }
char LICENSE[] SEC("license") = "GPL";
"""


@pytest.mark.parametrize(("first", "second"), [("known", "named"), ("named", "known")])
def test_programs_of_sections_with_other_names_take_turns(lab, xdpload, tmp_path, first, second):
    """libbpf has no type for such a section; the kernel exchanges only programs of one attach type."""
    request = XdpRequest(str(bpf_object(tmp_path, SECTIONS)), "vd0", "native", program=first)
    with (
        attach(lab.dut.host, xdpload, request) as own,
        attach(lab.dut.host, xdpload, replace(request, mode="none", program=second)) as other,
    ):
        own.exchange(other)
        verify(lab.dut.host, "vd0", program_id=other.loaded.program_id, mode="native")


def test_the_order_within_pairs_is_the_seeds(lab, xdpload, drop_object):
    orders = []
    for seed in (1, 1, 2):
        request = XdpRequest(str(drop_object), "vd0", "native")
        with attach(lab.dut.host, xdpload, request) as own:
            with attach(lab.dut.host, xdpload, replace(request, mode="none")) as other, traffic(lab):
                own.begin_slices(other, 0.001, 30, seed)
                own.await_slices(30)
            orders.append([one.other for one in parse_slices(own.raw) or ()])
            own.detach()
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.thorough
def test_nothing_is_measured_without_a_frame(lab, xdpload, drop_object):
    request = XdpRequest(str(drop_object), "vd0", "native")
    with (
        attach(lab.dut.host, xdpload, request) as own,
        attach(lab.dut.host, xdpload, replace(request, mode="none")) as other,
    ):
        own.begin_slices(other, 0.005, 30, seed=7)
        with pytest.raises(UnsupportedError, match="vd0 received no frame"):
            own.await_slices(30)
        verify(lab.dut.host, "vd0", program_id=own.loaded.program_id, mode="native")


def test_a_sender_that_ends_early_leaves_slices_that_tell_nothing(lab, xdpload, drop_object):
    request = XdpRequest(str(drop_object), "vd0", "native")
    with (
        attach(lab.dut.host, xdpload, request) as own,
        attach(lab.dut.host, xdpload, replace(request, mode="none")) as other,
    ):
        own.begin_slices(other, 0.005, 100, seed=7)
        lab.send(2000)
        own.await_slices(30)
        slices = parse_slices(own.raw) or ()
        assert 50 <= len(slices) < 200
        assert "counted no frame" in str(ratio_of(slices))


def test_a_program_that_is_gone_is_named(lab, xdpload, drop_object):
    request = XdpRequest(str(drop_object), "vd0", "native")
    with attach(lab.dut.host, xdpload, request) as own:
        with attach(lab.dut.host, xdpload, replace(request, mode="none")) as other:
            other.detach()  # waits for the kernel, which a killed process leaves to let go of the program later
        with pytest.raises(UnsupportedError, match=f"program {other.loaded.program_id} cannot be opened"):
            own.begin_slices(other, 0.005, 30, seed=7)
