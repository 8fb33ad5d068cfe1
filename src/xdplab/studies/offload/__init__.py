"""What a card that offloads XDP takes and refuses: asked of netdevsim in guests, by the project's own loader."""

from xdplab.studies.frame import StudyKind
from xdplab.studies.offload.points import PLACES, OffloadPoint, OffloadRequest, gather
from xdplab.studies.offload.rows import table_of, tables_of
from xdplab.studies.offload.study import OffloadStudy

__all__ = ["PLACES", "STUDY", "OffloadPoint", "OffloadRequest"]

STUDY = StudyKind(
    name="offload",
    request=OffloadRequest,
    point=OffloadPoint,
    gather=gather,
    measurer=lambda _run: OffloadStudy(),
    table=table_of,
    tables=tables_of,
    views={},
)
