"""Study cost, as a kind of run."""

from __future__ import annotations

from xdplab.studies.cost.comparing import compare
from xdplab.studies.cost.gathering import gather
from xdplab.studies.cost.points import CostPoint, CostRequest, smallest
from xdplab.studies.cost.results import results
from xdplab.studies.cost.rows import table_of
from xdplab.studies.cost.study import CostStudy
from xdplab.studies.cost.summaries import tables_of
from xdplab.studies.cost.views import VIEWS
from xdplab.studies.points import StudyPlanning
from xdplab.studies.study_kind import study_kind

STUDY = study_kind(
    StudyPlanning(
        "cost",
        "How many instructions does a packet cost, and where?",
        CostRequest,
        CostPoint,
        gather,
        smallest,
        "Instructions are not cycles: no cache miss and no wrong prediction is in them. The path is that of "
        "veth, not of a NIC's driver.",
    ),
    session=CostStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    results=results,
    compare=compare,
    version="2",
    at_once=True,
)
