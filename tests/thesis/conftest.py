"""The published data, imported once for all tests that read them."""

import pandas as pd
import pytest
from tests.thesis.thesis_logs import DATA

from xdplab.run.rundir import RunDirectory
from xdplab.thesis.imported import import_thesis, imported_trials


@pytest.fixture(scope="session")
def published_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return import_thesis([DATA], tmp_path_factory.mktemp("published")).run


@pytest.fixture(scope="session")
def published(published_run: RunDirectory) -> pd.DataFrame:
    """Their judged trials."""
    return imported_trials(published_run)
