"""What a card that offloads XDP takes and refuses: asked of netdevsim in guests, by the project's own loader."""

from xdplab.later import former

__getattr__ = former(
    __name__,
    {
        "PLACES": "xdplab.studies.offload.points",
        "STUDY": "xdplab.studies.offload.runs",
        "OffloadPoint": "xdplab.studies.offload.points",
        "Request": "xdplab.studies.offload.points:OffloadRequest",
    },
)
