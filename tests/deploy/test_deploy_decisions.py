"""Instructions in front of a program count its actions, whatever the object contains; its own code stays unchanged."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.compiled import bpf_object

from xdplab.deploy.xdp import ACTIONS, XdpLoader, XdpRequest
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.hosts.local import LocalHost

pytestmark = pytest.mark.root

PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define PROG_ARRAY struct {{ __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 1); \\
    __uint(key_size, 4); __array(values, int(void *)); }}
{before}
SEC("{section}") int counted(struct xdp_md *ctx)
{{
    {body}
}}
char LICENSE[] SEC("license") = "GPL";
"""
SUBPROGRAMS = """
static __attribute__((noinline)) int of_length(int length) { return length > 100 ? XDP_TX : XDP_DROP; }
__attribute__((noinline)) int everywhere(struct xdp_md *ctx) { return ctx->data_end - ctx->data; }
"""
TAIL_CALL = """
SEC("xdp") int tailed(struct xdp_md *ctx) { return XDP_TX; }
PROG_ARRAY calls SEC(".maps") = { .values = { [0] = (void *)&tailed } };
"""
CASES = {
    **{name: ("", "xdp", f"return {code};") for code, name in enumerate(ACTIONS[:-1])},
    "other": ("", "xdp", "return 77;"),
    "of another section": ("", "mine", "return XDP_PASS;"),
    "with fragments": ("", "xdp.frags", "return XDP_DROP;"),
    "with functions": (SUBPROGRAMS, "xdp", "return of_length(everywhere(ctx));"),
    "with a tail call": (TAIL_CALL, "xdp", "bpf_tail_call(ctx, &calls, 0); return XDP_ABORTED;"),
}
EXPECTED = {"of another section": "pass", "with fragments": "drop", "with functions": "drop", "with a tail call": "tx"}
STACK = "volatile char bytes[500]; for (int i = 0; i < 500; i++) bytes[i] = i; return bytes[ctx->rx_queue_index & 255];"


def compiled(folder: Path, case: tuple[str, str, str], *, btf: bool = True) -> str:
    before, section, body = case
    return str(bpf_object(folder, PROGRAM.format(before=before, section=section, body=body), btf=btf))


def loader(xdpload: str, target: str, *options: str, count: bool = True) -> XdpLoader:
    request = XdpRequest(target, "none", "none", program="counted", count_actions=count, options=options)
    return XdpLoader(LocalHost(), xdpload, request, deadline_s=60)


WITHOUT_BTF = [name for name in CASES if name != "with a tail call"]  # libbpf refuses such maps without BTF


@pytest.mark.parametrize(("name", "btf"), [(name, True) for name in CASES] + [(name, False) for name in WITHOUT_BTF])
def test_each_frame_is_counted_under_what_the_program_decides(
    name: str, btf: bool, xdpload: str, tmp_path: Path
) -> None:
    target = compiled(tmp_path, CASES[name], btf=btf)
    with loader(xdpload, target, *["--also", "tailed"] * (name == "with a tail call")) as loaded:
        loaded.testrun(64, 1, 3)
        assert loaded.decided().actions == dict.fromkeys(ACTIONS, 0) | {EXPECTED.get(name, name): 3}


def test_the_counter_is_seventeen_instructions_before_the_program(xdpload: str, tmp_path: Path) -> None:
    target = compiled(tmp_path, CASES["drop"])
    with loader(xdpload, target) as counting, loader(xdpload, target, count=False) as plain:
        assert counting.loaded.xlated_insns > plain.loaded.xlated_insns
        assert counting.loaded.tag != plain.loaded.tag
        with pytest.raises(HostError, match="loaded without --count-actions"):
            plain.decided()


def test_a_program_that_leaves_no_stack_for_the_counter_is_refused_with_the_verifiers_message(
    xdpload: str, tmp_path: Path
) -> None:
    target = compiled(tmp_path, ("", "xdp", STACK))
    loader(xdpload, target, count=False).close()
    with pytest.raises(ProgramError, match="stack"):
        loader(xdpload, target)


BUDGET = ("const volatile int most = 3; int seen;", "xdp", "return seen++ < most ? XDP_PASS : XDP_DROP;")


def test_a_load_that_shares_maps_goes_on_where_the_other_one_is(xdpload: str, tmp_path: Path) -> None:
    target = compiled(tmp_path, BUDGET)
    with loader(xdpload, target, count=False) as measured:
        measured.testrun(64, 1, 3)
        request = XdpRequest(target, "lo", "generic", program="counted", count_actions=True)
        shares = replace(request, share_maps=measured.loaded.map_ids)
        with XdpLoader(LocalHost(), xdpload, shares, deadline_s=60) as counting:
            assert counting.attached is None
            assert counting.loaded.map_ids == measured.loaded.map_ids
            counting.testrun(64, 1, 2)
            assert counting.decided().actions == dict.fromkeys(ACTIONS, 0) | {"drop": 2}
            with pytest.raises(UnsupportedError, match="no program is attached"):
                measured.exchange(counting)
