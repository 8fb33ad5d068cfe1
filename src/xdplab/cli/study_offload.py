"""`study offload`: what a card that offloads XDP accepts and refuses, and with which messages."""

from __future__ import annotations

from typing import Any

import click

from xdplab.cli.conduct import conduct, made_small, run_choices, run_options
from xdplab.studies.catalogue import study
from xdplab.studies.offload.points import PLACES, OffloadRequest
from xdplab.studies.offload.points import smallest as smaller


@click.command()
@click.option("--smallest", is_flag=True, help="One kernel, and one question of each kind: a minute.")
@click.option("--place", "places", multiple=True, metavar="vm:KERNEL", help=f"{', '.join(PLACES)} by default.")
@run_options
def offload(smallest: bool, places: tuple[str, ...], **chosen: Any) -> int:
    """What a card that offloads XDP accepts and refuses: the control plane of offload, on netdevsim in guests.

    No packet is forwarded: netdevsim executes nothing.
    """
    request = OffloadRequest(places=places or PLACES)
    return conduct(study("offload"), lambda: made_small(request, smaller) if smallest else request, run_choices(chosen))
