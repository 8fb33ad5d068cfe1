"""What a card that offloads XDP accepts and refuses: tried on netdevsim in guests, with the project's own loader."""

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
