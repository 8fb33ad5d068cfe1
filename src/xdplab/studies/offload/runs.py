"""Study offload, as a kind of run."""

from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, gather, smallest
from xdplab.studies.offload.results import results
from xdplab.studies.offload.rows import table_of, tables_of
from xdplab.studies.offload.study import OffloadStudy
from xdplab.studies.points import StudyPlanning
from xdplab.studies.study_kind import study_kind

STUDY = study_kind(
    StudyPlanning(
        "offload",
        "What does a card that offloads XDP accept, and what does it refuse?",
        OffloadRequest,
        OffloadPoint,
        gather,
        smallest,
    ),
    session=lambda _plan: OffloadStudy(),
    table=table_of,
    tables=tables_of,
    views={},
    results=results,
)
