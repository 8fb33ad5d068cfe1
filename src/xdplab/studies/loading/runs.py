"""Study loading, as a kind of run."""

from xdplab.studies.loading.points import LoadingPoint, LoadingRequest, gather, smallest
from xdplab.studies.loading.results import results
from xdplab.studies.loading.rows import table_of
from xdplab.studies.loading.study import LoadingStudy
from xdplab.studies.loading.summaries import tables_of
from xdplab.studies.loading.views import VIEWS
from xdplab.studies.points import StudyPlanning
from xdplab.studies.study_kind import study_kind

STUDY = study_kind(
    StudyPlanning(
        "loading",
        "What does it cost to load BPF, beside the same code as a module?",
        LoadingRequest,
        LoadingPoint,
        gather,
        smallest,
    ),
    session=LoadingStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    version="4",
)
