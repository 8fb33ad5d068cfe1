"""The loading study's `StudyKind`."""

from __future__ import annotations

from xdplab.studies.frame import StudyKind, StudyRun
from xdplab.studies.loading.points import LoadingPoint, LoadingRequest, gather, smallest
from xdplab.studies.loading.published import EXPERIMENTS
from xdplab.studies.loading.rows import table_of
from xdplab.studies.loading.study import LoadingStudy
from xdplab.studies.loading.summaries import tables_of
from xdplab.studies.loading.views import VIEWS

LoadingRun = StudyRun[LoadingRequest, LoadingPoint]

STUDY: StudyKind[LoadingRequest, LoadingPoint] = StudyKind(
    name="loading",
    request=LoadingRequest,
    point=LoadingPoint,
    gather=gather,
    measurer=LoadingStudy,
    table=table_of,
    tables=tables_of,
    views=VIEWS,
    version="3",
    smallest=smallest,
    published=EXPERIMENTS,
)
