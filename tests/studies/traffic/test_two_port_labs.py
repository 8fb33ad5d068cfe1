"""Which labs can have a DUT of two ports, and what a search says of one. No lab is needed."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.studies.traffic.columns_of import row_of

from xdplab.errors import HostError, UnsupportedError
from xdplab.generators import BothWays, Generator
from xdplab.labs.base import Cpus, GeneratorPlace, LinkEnds
from xdplab.labs.servers.lab import InventoryLab
from xdplab.labs.uml.lab import UmlLab
from xdplab.labs.vm.lab import VmLab
from xdplab.plan import Point, parse_plan, points_of
from xdplab.studies.traffic import prepare
from xdplab.studies.traffic.bench import TrialBench
from xdplab.studies.traffic.dut import KernelSide
from xdplab.studies.traffic.sending import sending_cpus, serving_cpus, working_cpus
from xdplab.studies.traffic.session import _dpdk_port, endpoints, second_endpoints
from xdplab.studies.traffic.two_ports import SecondPort, TwoPortSide, require
from xdplab.studies.trial_facts import TrialFacts

SECOND = SecondPort(LinkEnds("vd1", "vg1", "02:00:00:00:00:01", "02:00:00:00:00:02"), (10, 20))


def lab_with(cpus: int) -> Any:
    both = Cpus(tuple(range(cpus)), tuple(range(cpus)))
    follows = SimpleNamespace(follows=False)
    return SimpleNamespace(name="rack", cpus=lambda arrangement: both, virtual=True, generator=follows)


def point_of(directions: str, **points: Any) -> Point:
    plan = parse_plan({"name": "p", "blocks": [{"points": points, "traffic": {"directions": directions}}]})
    return points_of(plan, "shared")[0]


@pytest.mark.parametrize(
    ("cpus", "second", "directions", "words"),
    [
        (8, None, "one", "one needs two links between TG and DUT, and lab rack has one"),
        (8, None, "both", "both needs two links"),
        (8, None, "back", None),
        (3, SECOND, "both", "needs 4 CPUs of the TG, 2 for each direction, and it has 3"),  # its senders are real-time
        (4, SECOND, "both", None),
        (1, SECOND, "one", None),
    ],
)
def test_what_a_lab_lacks_for_two_ports_is_named(
    cpus: int, second: SecondPort | None, directions: str, words: str | None
) -> None:
    with pytest.raises(UnsupportedError, match=words) if words else nullcontext():
        require(lab_with(cpus), second, point_of(directions, queues=2))


MOONGEN = GeneratorPlace("moongen", path="/opt/MoonGen", pci="0000:3b:00.1")


@pytest.mark.parametrize(
    ("place", "first", "second", "taken"),
    [
        (GeneratorPlace(pci=MOONGEN.pci), ["vd0", "vg0"], ["vd1", "vg1"], []),
        (replace(MOONGEN, pci=None), ["vd0", "vg0"], ["vd1", "vg1"], []),
        (MOONGEN, ["vd0"], ["vd1"], [MOONGEN.pci]),
    ],
)
def test_the_ends_of_each_link_begin_with_the_duts_and_dpdk_takes_the_card_of_its_generator_only(
    place: GeneratorPlace, first: list[str], second: list[str], taken: list[str]
) -> None:
    lab = lab_with(4)
    vars(lab).update(dut=None, tg=None, dut_interface="vd0", tg_interface="vg0", generator=place)
    lab.state_dir = lambda host: "/state"
    assert [end.interface for end in endpoints(lab)] == first
    assert [end.interface for end in second_endpoints(lab, SECOND.ends)] == second
    port = _dpdk_port(lab)
    assert ([port._port.pci] if port else []) == taken


def test_a_generator_works_on_the_cpus_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_with(4)
    vars(lab).update(tg=None, generator=MOONGEN, work_dir=lambda host: "/work")
    lab.cpus = lambda: Cpus(dut=(0, 4), tg=(2, 6))
    monkeypatch.setattr(prepare, "installed", lambda *given: given)
    assert prepare.generator_of(lab) == ("moongen", None, "/work/moongen", MOONGEN, (2, 6))


@pytest.mark.parametrize("how", ["stop", "close"])
@pytest.mark.parametrize(("both", "way"), [(TwoPortSide, KernelSide), (BothWays, Generator)])
def test_the_second_way_is_ended_though_the_first_fails(
    both: Any, way: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []

    def fail(one: object) -> None:
        ended.append(one)
        raise HostError("the connection is lost")

    monkeypatch.setattr(way, how, fail)
    pair, back = both.__new__(both), way.__new__(way)
    vars(pair).update(_there=way.__new__(way), _back=back)
    with pytest.raises(HostError):
        getattr(pair, how)()
    assert len(ended) == 2
    assert ended[1] is back


@pytest.mark.parametrize(("directions", "cpus"), [("back", (0, 1)), ("one", (0, 1)), ("both", (0, 1, 2, 3))])
def test_the_cpus_that_send_serve_the_queues_that_they_reach(directions: str, cpus: tuple[int, ...]) -> None:
    point = point_of(directions, queues=2)
    assert sending_cpus(lab_with(8), point) == cpus
    assert serving_cpus(lab_with(8), point) == (cpus[::2], cpus[1::2])
    lab = lab_with(8)
    lab.cpus = lambda arrangement: Cpus(dut=(8, 9, 10, 11), tg=tuple(range(4)))
    assert working_cpus(lab, point) == cpus, "a frame's softirq runs where it was sent"
    lab.generator.follows = True  # a tap's DUT is a guest, with a kernel of its own
    assert working_cpus(lab, point) == tuple(cpu + 8 for cpu in cpus)


@pytest.mark.parametrize(("queues", "working"), [(1, (0, 4)), (2, (0, 4, 1, 5))])
def test_the_duts_work_of_both_directions_is_that_of_all_their_cpus(queues: int, working: tuple[int, ...]) -> None:
    """The threads of the second port have the CPUs after those of the first: half of them would give half the cost."""
    point = replace(point_of("both", queues=queues), arrangement="split")
    lab = lab_with(8)
    lab.cpus = lambda arrangement: Cpus(dut=(0, 4, 1, 5), tg=(2, 6, 3, 7))
    assert working_cpus(lab, point) == working
    assert working_cpus(lab, replace(point_of("one", queues=queues), arrangement="split")) == working[:queues]
    lab.cpus = lambda arrangement: Cpus(dut=(0,), tg=(2, 6, 3, 7))
    assert set(working_cpus(lab, point)) == {0}


def test_threads_of_both_ports_send_by_the_queue_of_their_number() -> None:
    """By the first port leaves also what the second port's threads received."""
    lab = lab_with(8)
    lab.cpus = lambda arrangement: Cpus(dut=(0, 4, 1, 5), tg=(2, 6, 3, 7))
    points = [replace(point_of(way, queues=2), arrangement="split") for way in ("one", "both")]
    assert [serving_cpus(lab, point) for point in points] == [((0,), (4,)), ((0, 1), (4, 5))]


@pytest.mark.parametrize("kind", [InventoryLab, VmLab, UmlLab])
def test_guests_and_inventories_without_a_second_port_have_one_link(kind: type) -> None:
    assert kind.second_link(SimpleNamespace(second_ports=None)) is None  # type: ignore[attr-defined]


def test_a_search_knows_one_port_only(tmp_path: Path) -> None:
    trial: Any = SimpleNamespace(point=point_of("one"))
    bench = TrialBench.__new__(TrialBench)
    with (
        pytest.raises(UnsupportedError, match="a search knows one port only"),
        bench._attached(trial, tmp_path, TrialFacts()),
    ):
        pass


@pytest.mark.parametrize(("ways", "lost"), [(1, 3), (2, 8)])
def test_frames_without_a_place_are_those_of_each_port_that_they_reach(ways: int, lost: int) -> None:
    ports: Any = [
        SimpleNamespace(require=lambda name, count=count: {"dut_driver_lost": count}[name]) for count in (3, 5)
    ]
    assert row_of(ports=ports, two_ports=True, ways=ways)["dut_driver_lost"] == lost


MTUS = {"": "1500", " (second port)": "9000"}


def test_settings_of_the_second_ports_say_so_and_the_link_that_changed_more_counts() -> None:
    def found(mtu: str, changed: dict[str, Any], links: int) -> dict[str, Any]:
        shown = {"dut port.mtu": mtu, "tg port.mtu": mtu, "dut kernel.watchdog": "1"}
        return {"settings": json.dumps(shown), "settings_changed": json.dumps(changed), "link_changes": links}

    row = row_of(ports=[found("1500", {}, 0), found("9000", {"dut port.mtu": ["9000", "1500"]}, 2)], two_ports=True)
    first, second = ({f"{host} port.mtu{of}": mtu for host in ("dut", "tg")} for of, mtu in MTUS.items())
    assert json.loads(row["settings"]) == first | second | {"dut kernel.watchdog": "1"}
    assert json.loads(row["settings_changed"]) == {"dut port.mtu (second port)": ["9000", "1500"]}
    assert row["link_changes"] == 2
