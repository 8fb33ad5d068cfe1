"""The questions to a card that offloads XDP, the answers expected by the kernel's sources, and these sources.

A question is a line of a table; questions that differ only in one word are made from a table of these words.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.studies.offload import asking
from xdplab.studies.offload.asking import Ask
from xdplab.studies.offload.bench import ACCEPTED, NOTHING, REFUSED, Defines

# The kernel's sources of the expected answers; the paths are in docs/use/offload.md.
ABI, CORE, DEVICE, DRIVER, TESTS, VERIFIER = "if_link.h", "offload.c", "dev.c", "netdevsim", "selftest", "verifier.c"
OURS = "xdplab"

AT_LOAD, AT_ATTACH, AT_MAP = (f"{REFUSED} at {step}" for step in ("load", "attach", "offload map"))


@dataclass(frozen=True)
class Question:
    """``expected`` is compared with the obtained answer, word for word; ``source`` is the kernel's source of it."""

    name: str
    group: str
    asked: str
    expected: str
    source: str
    ask: Ask

    @property
    def smallest(self) -> bool:
        """Whether a small run asks it too: one question of each kind."""
        return self.name in _SMALLEST


_SMALLEST = frozenset(
    (
        *("attach", "ip_link", "bpftool_prog", "driver", "detach", "killed"),
        *("other_card", "native_beside", "taken", "no_offload"),
        *("array_entries", "constant", "shared", "percpu_array", "verifier", "hook"),
        *(
            "bpf_bind_accept=N, a program",
            "bpf_xdpoffload_accept=N, a program",
            "bpf_map_accept=N, a program with a map",
        ),
    )
)


_Line = tuple[str, str, str, str, Ask]
"""Name, what is asked, expected, where it is said, how it is asked."""

_ATTACHING: tuple[_Line, ...] = (
    ("attach", "mode after attaching with XDP_FLAGS_HW_MODE, by bpf_xdp_query", "offload", ABI, asking.mode_obtained),
    ("ip_link", "mode in `ip -d link`", "offload", ABI, asking.mode_shown),
    ("bpftool_prog", "device of the program in `bpftool prog`", "the port", CORE, asking.device_shown),
    ("bpftool_net", "mode in `bpftool net`", "offload", ABI, asking.mode_in_net),
    ("driver", "state of the program in the driver", "xlated, loaded", DRIVER, asking.state_in_driver),
    ("image", "bytes of machine code shown (netdevsim makes none)", "0", DRIVER, asking.image_bytes),
    ("test_run", "BPF_PROG_TEST_RUN on the host's CPU", REFUSED, CORE, asking.test_run),
    ("detach", "what is left after detaching", NOTHING, TESTS, asking.after_detach),
    ("killed", "what is left after kill -9 of the loader", NOTHING, ABI, asking.after_kill),
    ("removed", "the program, once its device is gone", "No such device", TESTS, asking.after_removal),
)

_COMPANY: tuple[_Line, ...] = (
    ("same_card", "program loaded for another port of the card", ACCEPTED, TESTS, asking.same_card),
    ("other_card", "program loaded for another card", REFUSED, TESTS, asking.other_card),
    ("no_card", "program loaded for no device, as offload", REFUSED, TESTS, asking.unbound),
    ("as_native", "program loaded for the port, as native", REFUSED, TESTS, asking.bound_as_native),
    ("native_beside", "native beside offload", "native, offload", TESTS, asking.beside_ours(asking.NATIVE)),
    ("generic_beside", "generic beside offload", "generic, offload", TESTS, asking.beside_ours(asking.GENERIC)),
    ("generic_native", "generic beside native", REFUSED, DEVICE, asking.generic_beside_native),
    ("second", "a second program, by bpftool, while ours is attached", REFUSED, DEVICE, asking.second),
    ("taken", "ours, while another's is attached", AT_ATTACH, OURS, asking.ours_second),
    ("noticed", "our check, once another's native program came beside ours", REFUSED, OURS, asking.noticed),
    ("tc_holds", "ours, while tc has offloaded a filter", AT_ATTACH, DRIVER, asking.while_tc_holds),
    (
        "no_offload",
        "an interface whose driver offloads nothing (virtio_net)",
        AT_LOAD,
        CORE,
        asking.taken_at(lambda bench: bench.plain),
    ),
    ("loopback", "an interface without a driver (lo)", AT_LOAD, CORE, asking.taken_at(lambda _: "lo")),
)

_PORT = "ports/0"
_SWITCHES: tuple[tuple[str, str, str, str, Defines, str], ...] = (
    # switch, value, what is tried, mode, defines, expected
    ("bpf_bind_accept", "N", "a program", "offload", {}, AT_LOAD),
    ("bpf_bind_verifier_accept", "N", "a program", "offload", {}, AT_LOAD),
    (f"{_PORT}/bpf_xdpoffload_accept", "N", "a program", "offload", {}, AT_ATTACH),
    (f"{_PORT}/bpf_xdpdrv_accept", "N", "a native program", "native", {}, AT_ATTACH),
    (f"{_PORT}/bpf_xdpdrv_accept", "N", "a program", "offload", {}, ACCEPTED),
    (f"{_PORT}/bpf_map_accept", "N", "a program with a map", "offload", asking.ARRAY, AT_MAP),
    (f"{_PORT}/bpf_map_accept", "N", "a program", "offload", {}, ACCEPTED),
)

_TC = (
    # switch, value, for hardware only, expected
    ("bpf_tc_accept", "N", True, REFUSED),
    ("bpf_tc_accept", "Y", True, ACCEPTED),
    ("bpf_tc_non_bound_accept", "N", False, "not in hardware"),
    ("bpf_tc_non_bound_accept", "Y", False, "in hardware"),
)

_MAPS: tuple[_Line, ...] = (
    ("array_entries", "most entries of an array", "2", DRIVER, asking.most_entries("ARRAY")),
    ("hash_entries", "most entries of a hash", "2", DRIVER, asking.most_entries("HASH")),
    ("map_flags", "a hash with BPF_F_NO_PREALLOC", AT_MAP, DRIVER, asking.taken(**asking.FLAGGED)),
    ("constant", "a constant (.rodata: a map with flags)", AT_MAP, DRIVER, asking.taken(CONSTANT=1)),
    ("variable", "a variable (.data: a map with flags)", AT_MAP, DRIVER, asking.taken(VARIABLE=1)),
    ("shared", "two programs of one object that share a map", ACCEPTED, CORE, asking.taken(**asking.ARRAY, SECOND=1)),
    ("update", "a value written from user space, read back", "7", TESTS, asking.value_read_back),
    ("delete", "an array's element deleted", REFUSED, DRIVER, asking.element_deleted),
    ("foreign", "a map that was made for another card", REFUSED, CORE, asking.map_of_other_card),
    ("perf_buffer", "a perf buffer, which belongs to no device", ACCEPTED, CORE, asking.taken(**asking.PERF)),
)

_VERIFYING: tuple[_Line, ...] = (
    ("verifier", "a program that reads a frame unchecked", AT_LOAD, VERIFIER, asking.taken(UNCHECKED=1)),
    ("hook", "the driver's words at the last instruction, in the verifier's log", "there", DRIVER, asking.hook),
    ("delay", "bpf_bind_verifier_delay of 500 ms", "waited", DRIVER, asking.delayed),
    ("length", "longest program of 1000, 10000, 100000 instructions", "100000", CORE, asking.longest),
)


def _tables() -> list[Question]:
    groups = {"attach": _ATTACHING, "company": _COMPANY, "maps": _MAPS, "verifier": _VERIFYING}
    questions = [Question(line[0], group, *line[1:]) for group, lines in groups.items() for line in lines]
    for switch, value, what, mode, defines, expected in _SWITCHES:
        name = f"{switch.rpartition('/')[2]}={value}, {what}"
        ask = asking.switched(switch, value, mode, defines)
        questions.append(Question(name, "switches", f"{what} while {name.partition(',')[0]}", expected, DRIVER, ask))
    for switch, value, bound, expected in _TC:
        what = "a filter for hardware only" if bound else "a filter for software too"
        ask = asking.tc_filter(f"{_PORT}/{switch}", value, hardware_only=bound)
        questions.append(
            Question(f"{switch}={value}", "switches", f"{what} while {switch}={value}", expected, DRIVER, ask)
        )
    for kind, defines in asking.REFUSED_TYPES.items():
        name = kind.lower()
        questions.append(Question(name, "maps", f"map type {name}", AT_MAP, CORE, asking.taken(**defines)))
    return questions


QUESTIONS: dict[str, Question] = {question.name: question for question in _tables()}
