"""Before two runs are compared, the files of one name that differ in them are said."""

from pathlib import Path

import pandas as pd
import pytest

from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns import trials_frame
from xdplab.studies.traffic.comparison import changed_files

CODE = ["int a;", "int b;", "int c;"]
TEXTS: dict[str, tuple[dict[str, list[str]], str]] = {
    "one line of it": ({"program.c": ["int a;", "int B;", "int c;"]}, "f.bpf.c changed: 1 line"),
    "lines more": ({"program.c": [*CODE[:1], "x", "y", *CODE[1:]]}, "f.bpf.c changed: 2 lines"),
    "a header": ({"preprocessed.c": [*CODE, "int d;"]}, "f.bpf.c changed: 1 line of its headers"),
    "a comment": ({}, "f.bpf.c changed: comments of its headers, or files that its setup names"),
    "an object": ({"program.c": [], "preprocessed.c": []}, "f.bpf.c changed"),
}


def table(folder: Path, sha: str, frames_sha: str, texts: dict[str, list[str]]) -> tuple[RunDirectory, pd.DataFrame]:
    for name, lines in texts.items():
        if lines:
            (folder / "programs" / sha).mkdir(parents=True, exist_ok=True)
            (folder / "programs" / sha / name).write_text("\n".join(lines))
    row = {"point_id": "p", "trial_id": "p-r1", "program_name": "f.bpf.c", "program_sha256": sha, "program_hash": sha}
    return RunDirectory(folder), trials_frame([row | {"frames": "x.pcap", "frames_sha256": frames_sha}])


@pytest.mark.parametrize("case", TEXTS)
def test_an_edited_program_is_said_with_its_lines(tmp_path: Path, case: str) -> None:
    edits, words = TEXTS[case]
    before = dict.fromkeys(("program.c", "preprocessed.c"), CODE)
    first, a = table(tmp_path / "a", "old", "same", before)
    second, b = table(tmp_path / "b", "new", "same", before | edits)
    assert [one.text for one in changed_files(a, b, first, second)] == [words]
    assert changed_files(a, a, first, first) == []


def test_edited_frames_are_said(tmp_path: Path) -> None:
    first, a = table(tmp_path / "a", "same", "old", {})
    second, b = table(tmp_path / "b", "same", "new", {})
    assert [one.text for one in changed_files(a, b, first, second)] == ["x.pcap changed"]
