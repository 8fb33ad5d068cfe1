"""Carries out `xdplab study` in this process, and reads the run that it made."""

from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from xdplab.cli import cli


def study(out: Path, name: str, *words: str) -> tuple[pd.DataFrame, Path, str]:
    """Return the rows, the folder and the output of a study that succeeds; ``out`` holds no other run."""
    done = CliRunner().invoke(cli, ["study", name, *words, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (path,) = out.iterdir()
    return pd.read_parquet(path / f"{name}.parquet"), path, done.output
