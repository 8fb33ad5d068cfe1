"""Study offload, as a kind of run."""

from xdplab.studies.frame import StudyKind
from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, gather, smallest
from xdplab.studies.offload.rows import table_of, tables_of
from xdplab.studies.offload.study import OffloadStudy

STUDY = StudyKind(
    name="offload",
    request=OffloadRequest,
    point=OffloadPoint,
    gather=gather,
    measurer=lambda _run: OffloadStudy(),
    table=table_of,
    tables=tables_of,
    views={},
    smallest=smallest,
)
