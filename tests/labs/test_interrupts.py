"""Interrupts of a card's queues: which names mean a queue, and on which CPUs the interrupts are placed."""

from __future__ import annotations

import pytest

from xdplab.hosts import LocalHost
from xdplab.labs.interrupts import place_interrupts, queue_of


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
        ("vd0", None),
        ("mlx5_async0@pci:0000:3b:00.0", None),
        ("virtio1-config", None),
        ("i40e-0000:3b:00.0:misc", None),
        ("ena-mgmnt@pci:0000:00:05.0", None),
    ],
)
def test_the_queue_of_an_interrupt_is_read_from_its_name(name: str, queue: int | None) -> None:
    assert queue_of(name) == queue


def test_a_device_without_interrupts_has_none_to_place() -> None:
    assert place_interrupts(LocalHost(), "lo", (0, 1)) == {}
