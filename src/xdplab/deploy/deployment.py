"""What was deployed for one trial, requested and obtained side by side."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.deploy.afxdp import AfxdpForwarder
from xdplab.deploy.xdp import InKernel, XdpLoader


@dataclass(frozen=True)
class Sockets:
    """The sockets of the AF_XDP application, and the XDP program that fills them."""

    attach: str
    attach_obtained: str | None
    bind: str
    bind_obtained: str
    sched_policy: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Deployment:
    """One program on one interface, ``device`` if it is bound to it. Fields that the mode lacks are null; times in ns.

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
    sockets: Sockets | None = None
    device: str | None = None

    @classmethod
    def of_loader(cls, loader: XdpLoader, *, queues: int) -> Deployment:
        """Describe a program held by xdpload, which has asked the kernel for the mode."""
        loaded, attached = loader.loaded, loader.attached
        return cls(
            interface=loader.request.interface,
            mode=loader.request.mode,
            mode_obtained=attached.mode_obtained if attached else None,
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
            device=loaded.device,
        )

    @classmethod
    def of_forwarder(cls, forwarder: AfxdpForwarder, attached: InKernel) -> Deployment:
        """Describe the AF_XDP application; ``attached`` is what `verify` returned."""
        request, ready = forwarder.request, forwarder.ready
        return cls(
            interface=request.interface,
            mode="af_xdp",
            mode_obtained="af_xdp",
            queues=len(ready.queues),
            program_id=ready.program_id,
            program_name=attached.program_name,
            tag=attached.tag,
            jit=attached.jited,
            sockets=Sockets(
                attach=request.attach,
                attach_obtained=attached.mode,
                bind=request.bind,
                bind_obtained=ready.bind_obtained,
                sched_policy=ready.sched_policy,
                cpus=tuple(queue.cpu for queue in ready.queues),
            ),
        )
