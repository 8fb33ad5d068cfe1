"""What was deployed for one trial, requested and obtained side by side: the content of applied.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from xdplab.deploy.afxdp import AfxdpForwarder
from xdplab.deploy.device import Applied
from xdplab.deploy.xdp import InKernel, XdpLoader


@dataclass(frozen=True)
class Deployment:
    """One program on one interface. Fields that the mode does not have are null; times in ns.

    ``mode_obtained`` uses the values of `mode`: af_xdp if the sockets are bound and their program is attached.
    """

    interface: str
    mode: str
    mode_obtained: str | None
    queues: int
    program_id: int
    program_name: str | None
    tag: str | None
    jit: bool | None
    load_ns: int | None = None
    attach_ns: int | None = None
    verified_insns: int | None = None
    program_insns: int | None = None
    jited_bytes: int | None = None
    xsk_attach: str | None = None
    xsk_attach_obtained: str | None = None
    xsk_bind: str | None = None
    xsk_bind_obtained: str | None = None
    sched_policy: str | None = None
    cpus: tuple[int, ...] = ()
    settings: tuple[Applied, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_loader(
        cls, loader: XdpLoader, found: InKernel, *, queues: int, settings: Iterable[Applied] = ()
    ) -> Deployment:
        """Describe a program held by xdpload; ``found`` is what `verify` returned."""
        loaded, attached = loader.loaded, loader.attached
        return cls(
            interface=loader.request.interface,
            mode=loader.request.mode,
            mode_obtained=found.mode,
            queues=queues,
            program_id=loaded.program_id,
            program_name=loaded.name,
            tag=loaded.tag,
            jit=loaded.jit,
            load_ns=loaded.load_ns,
            attach_ns=attached.attach_ns if attached else None,
            verified_insns=loaded.verified_insns,
            program_insns=loaded.xlated_insns,
            jited_bytes=loaded.jited_bytes,
            settings=tuple(settings),
        )

    @classmethod
    def of_forwarder(
        cls, forwarder: AfxdpForwarder, found: InKernel, *, settings: Iterable[Applied] = ()
    ) -> Deployment:
        """Describe the AF_XDP application; ``found`` is what `verify` returned."""
        request, ready = forwarder.request, forwarder.ready
        return cls(
            interface=request.interface,
            mode="af_xdp",
            mode_obtained="af_xdp",
            queues=len(ready.queues),
            program_id=ready.program_id,
            program_name=found.program_name,
            tag=found.tag,
            jit=found.jited,
            xsk_attach=request.attach,
            xsk_attach_obtained=found.mode,
            xsk_bind=request.bind,
            xsk_bind_obtained=ready.bind_obtained,
            sched_policy=ready.sched_policy,
            cpus=tuple(queue.cpu for queue in ready.queues),
            settings=tuple(settings),
        )
