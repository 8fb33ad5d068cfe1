"""The benchmarks' objects as they are, which doctored ones are compared with."""

from pathlib import Path

import pytest

from xdplab.studies.execution.benchmarks import all_benchmarks, build


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    for name, content in build(all_benchmarks().values()).items():
        (folder / name).write_bytes(content)
    return folder
