"""The CSV twin of a generator's log: labels that stand above other columns' numbers are found by the numbers."""

from pathlib import Path

import pytest

from xdplab.run.frames import frame
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.findings import find_import
from xdplab.thesis.generator_log import parse_generator_log, swapped_labels
from xdplab.thesis.imported import read_thesis
from xdplab.thesis.made_logs import generator, names, rate_pps, sar, write
from xdplab.thesis.rules import corrected, judged_import

RIGHT = [
    "Time",
    "TX Packets",
    "TX Packet Rate",
    "Avg TX Packet Rate",
    "RX Packets",
    "RX Packet Rate",
    "Avg RX Packet Rate",
]
SWAPPED = [RIGHT[place] for place in (0, 1, 3, 2, 4, 6, 5)]


def noisy_log() -> str:
    """Return a log whose rate of the last moment differs from the average, as in a real one."""
    lines = generator(rate_pps(100)).split("\n")
    for at, line in enumerate(lines[1:], 1):
        words = line.split(", ")
        for place in (2, 5):
            if len(words) > place and float(words[place]):
                words[place] = f"{float(words[place]) * (1 + at / 1000):17.2f}"
        lines[at] = ", ".join(words)
    return "\n".join(lines)


def twin(log: str, labels: list[str], separator: str = ",") -> str:
    rows = [[word.strip() for word in line.split(",")][:7] for line in log.splitlines()[1:]]
    return "\n".join(separator.join(row) for row in (labels, *rows)) + "\n"


def found_in(text: str) -> list[tuple[str, str]]:
    log = noisy_log()
    return swapped_labels(text.encode(), parse_generator_log(log.encode()).runs[0].rows)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_labels_above_each_others_numbers_are_swapped(separator: str) -> None:
    assert found_in(twin(noisy_log(), RIGHT, separator)) == []
    assert found_in(twin(noisy_log(), SWAPPED, separator)) == [
        ("TX Packet Rate", "Avg TX Packet Rate"),
        ("RX Packet Rate", "Avg RX Packet Rate"),
    ]


def test_one_side_may_be_swapped_and_labels_may_be_portuguese() -> None:
    assert found_in(twin(noisy_log(), [*RIGHT[:5], RIGHT[6], RIGHT[5]])) == [("RX Packet Rate", "Avg RX Packet Rate")]
    labels = ["tempo", "pacotes TX", "taxa média TX", "taxa TX", "pacotes RX", "taxa RX", "taxa média RX"]
    assert found_in(twin(noisy_log(), labels)) == [("taxa TX", "taxa média TX")]


@pytest.mark.parametrize("text", ["", "a", "\x00\xff", "Rate\nx\ny\n", "Rate,Avg Rate\n1,2\n3,4\n5,6\n7,8\n"])
def test_a_twin_of_other_numbers_says_nothing(text: str) -> None:
    assert found_in(text) == []


def test_an_import_tells_swapped_labels_as_a_finding_of_their_own(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for accesses, labels in ((0, RIGHT), (100, SWAPPED)):
        place, log = names("resultados3", "xdpdrv", 1, accesses, 64), noisy_log()
        files[place["generator"]] = log
        files[place["generator"].replace(".txt", ".csv")] = twin(log, labels)
        files[place["sar"]] = sar(rate_pps(100), rate_pps(100), {0: 100.0})
    made = read_thesis([write(tmp_path, files)], "0a0b")
    assert made.twins == 2
    judged = judged_import(frame(made.rows, TRIAL_COLUMNS))
    swapped = [finding for finding in find_import(judged, corrected(judged)) if finding.rule == "rate labels swapped"]
    assert [finding.evidence["trials"] for finding in swapped] == [1.0]
    assert "Avg RX Packet Rate" in swapped[0].what
    assert judged["verdict"].eq("valid").all()
    assert not [finding for finding in find_import(judged, corrected(judged)) if finding.rule == "file anomaly"]
