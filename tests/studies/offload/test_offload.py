"""The offload study without a guest: its questions, the rows of the answers, and whose message is shown."""

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from xdplab.errors import PlanError, UnsupportedError
from xdplab.hosts import Result
from xdplab.programs.build import build
from xdplab.programs.spec import UserProgram
from xdplab.run.frames import why_null
from xdplab.run.progress import silent
from xdplab.studies.offload.bench import PROBE, Answer, kernels_words, write
from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, gather, kernel_of
from xdplab.studies.offload.questions import QUESTIONS
from xdplab.studies.offload.runs import ANSWER, STUDY, OffloadFacts, OffloadStudy
from xdplab.studies.points import StudyTrial

MISMATCH = """\
libbpf: prog 'probe': BPF program load failed: Invalid argument
libbpf: prog 'probe': -- BEGIN PROG LOAD LOG --
offload device mismatch between prog and map
processed 0 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
-- END PROG LOAD LOG --
libbpf: prog 'probe': failed to load: -22
libbpf: failed to load object 'p.o'
Error: failed to load object file
"""


def test_every_group_asks_and_no_name_is_taken_twice() -> None:
    assert {question.group for question in QUESTIONS.values()} == {"attach", "company", "maps", "verifier", "switches"}
    texts = Counter((question.asked, question.expected) for question in QUESTIONS.values())
    assert max(texts.values()) == 1


def test_a_small_run_asks_of_every_group_in_one_kernel() -> None:
    chosen = gather(OffloadRequest(smallest=True, places=("vm:6.1",))).points
    assert {QUESTIONS[point.question].group for point in chosen} == {q.group for q in QUESTIONS.values()}
    assert len(chosen) < len(QUESTIONS) / 2


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        (MISMATCH, "offload device mismatch between prog and map"),
        (
            "libbpf: Kernel error message: netdevsim: program bound to different dev\n"
            "Error: interface xdpoffload attach failed: Invalid argument\n",
            "netdevsim: program bound to different dev",
        ),
        ("Error: netdevsim: refused.\nWe have an error talking to the kernel\n", "Error: netdevsim: refused."),
    ],
)
def test_the_kernels_message_is_extracted_from_a_tools_error(complaint: str, words: str) -> None:
    assert kernels_words(Result("guest", ("bpftool",), 255, b"", complaint.encode(), 0.1)) == words


@pytest.mark.parametrize("place", ["host", "netns", "vm", "vm:", "uml"])
def test_a_place_without_a_kernel_of_its_own_is_refused(place: str) -> None:
    with pytest.raises(PlanError, match="netdevsim is loaded into its kernel"):
        kernel_of(place)


def test_a_place_is_a_kernel_and_a_way_to_run_it() -> None:
    assert [kernel_of(place) for place in ("vm:6.1", "vm:5.10:functional")] == ["6.1", "5.10"]


@pytest.mark.parametrize(
    "defines",
    [
        {},
        {"CONSTANT": 1},
        {"INSTRUCTIONS": 1000},
        {"FILTER": 1},
        {
            "MAP_TYPE": "BPF_MAP_TYPE_HASH",
            "MAP_ENTRIES": 1,
            "KEY_BYTES": 4,
            "VALUE_BYTES": 8,
            "MAP_FLAGS": 0,
            "LOOKUP": 1,
        },
    ],
)
def test_the_probe_compiles_as_it_is_asked_for(defines: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "probe.bpf.c"
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    source.write_text(head + PROBE.read_text())
    image = build(UserProgram(str(source)), tmp_path / "cache").image
    least = {"INSTRUCTIONS": 1000, "LOOKUP": 8}
    assert image.name == "probe"
    assert len(image.insns) >= next((n for name, n in least.items() if name in defines), 2)


class Told(OffloadStudy):
    """Gives prepared answers; one kernel's driver cannot be built."""

    def enter_block(self, trials: Any) -> None:
        if trials[0].point.place == "vm:7.2":
            raise UnsupportedError("netdevsim: gcc here is too old")

    def measure(self, trial: StudyTrial[OffloadPoint], raw: Path, facts: OffloadFacts) -> None:
        facts.kernel_release = "6.1.0"
        told = {"attach": Answer("native"), "no_card": Answer("refused", "xdpoffload of non-bound program")}
        write(raw / ANSWER, told.get(trial.point.question, Answer(QUESTIONS[trial.point.question].expected)))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    run = STUDY.start(OffloadRequest(places=("vm:6.1", "vm:7.2")), tmp_path)
    monkeypatch.setattr("xdplab.studies.offload.runs.OffloadStudy", Told)
    run.measure(silent())
    run.draw_figures()
    return run.rows().set_index(["place", "question"])


def test_rows_tell_what_came_and_whether_it_was_expected(table: pd.DataFrame, tmp_path: Path) -> None:
    assert len(table) == 2 * len(QUESTIONS)
    wrong = table.loc[("vm:6.1", "attach")]
    assert (wrong["expected"], wrong["obtained"], wrong["as_expected"]) == ("offload", "native", False)
    right = table.loc[("vm:6.1", "no_card")]
    assert (right["as_expected"], right["words"]) == (True, "xdpoffload of non-bound program")
    (folder,) = tmp_path.glob("*/tables")
    lines = (folder / "offload-vm-6.1.csv").read_text().splitlines()
    assert len(lines) == len(QUESTIONS) + 1
    assert [line for line in lines if ",native,no," in line]


def test_a_kernel_whose_driver_cannot_be_built_has_a_reason_and_no_answers(table: pd.DataFrame, tmp_path: Path) -> None:
    missing = table.loc["vm:7.2"]
    assert missing["obtained"].isna().all()
    assert missing["as_expected"].isna().all()
    assert (why_null(missing, "obtained") == "netdevsim: gcc here is too old").all()
    (folder,) = tmp_path.glob("*/tables")
    kernels = pd.read_csv(folder / "kernels.csv").set_index("kernel")
    assert list(kernels["asked"]) == [len(QUESTIONS), 0]
    assert kernels.loc[6.1, "as expected"] == len(QUESTIONS) - 1
    assert not (folder / "offload-vm-7.2.csv").exists()
