"""Interrupts of a card's queues: which names mean a queue, and on which CPUs the interrupts are placed."""

import pytest
from tests.doubles.hosts import Played

from xdplab.hosts.local import LocalHost
from xdplab.labs.receiving import place_interrupts, queue_of, queues_of


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("ens1f0-TxRx-0", 0),
        ("i40e-ens1f0-TxRx-17", 17),
        ("ice-ens1f0-TxRx-3", 3),
        ("mlx5_comp5@pci:0000:3b:00.0", 5),
        ("eth0-Tx-Rx-2", 2),
        ("eth0-rxtx-1", 1),
        ("vd0-rx-1", 1),
        ("vd0-tx-0", 0),
        ("virtio1-input.0", 0),
        ("virtio1-output.3", 3),
        ("mlx4-1@0000:03:00.0", 0),
        ("mana_q3@pci:7870:00:00.0", 3),
        ("mana_msi4@pci:7870:00:00.0", 3),
        ("gve-ntfy-blk1@pci:0000:00:04.0", 1),
        ("eth0-ntfy-block.0", 0),
        ("enp1s0f0np0-3", 3),
        ("eth0-xdp-2", 2),
        ("eth0-fp-5", 5),
        ("eth0:rx-1", 1),
        ("vd0", None),
        ("eth0-event-4", None),
        ("mlx4-async@pci:0000:03:00.0", None),
        ("mana_hwc@pci:7870:00:00.0", None),
        ("mlx5_async0@pci:0000:3b:00.0", None),
        ("virtio1-config", None),
        ("i40e-0000:3b:00.0:misc", None),
        ("ena-mgmnt@pci:0000:00:05.0", None),
    ],
)
def test_the_queue_of_an_interrupt_is_read_from_its_name(name: str, queue: int | None) -> None:
    assert queue_of(name) == queue


@pytest.mark.parametrize(
    ("names", "queues"),
    [
        (["enp5s0", "enp5s0", "enp5s0"], {"98": 0, "99": 1, "100": 2}),  # atlantic
        ([f"gve-ntfy-blk{n}@pci:0000:00:04.0" for n in range(4)], {"98": 0, "99": 1, "100": 0, "101": 1}),
        (["enp5s0-rx-0", "enp5s0-tx-0", "enp5s0"], {"98": 0, "99": 0}),
        (["enp5s0"], {}),
    ],
)
def test_queues_are_counted_in_the_order_of_the_vectors(names: list[str], queues: dict[str, int]) -> None:
    named = [(str(98 + at), name) for at, name in enumerate(names)]
    assert queues_of(sorted(named), "enp5s0") == queues


def test_several_interrupts_of_no_known_name_are_named_and_not_placed() -> None:
    placed = place_interrupts(Played({"*": "48 eth0 (A)\n49 eth0 (B)\n"}), "eth0", (0, 1))  # type: ignore[arg-type]
    assert placed == {"unknown": "eth0 (A), eth0 (B)"}


def test_a_device_without_interrupts_has_none_to_place() -> None:
    assert place_interrupts(LocalHost(), "lo", (0, 1)) == {}
