"""native/common: JSON lines against Python's own decoder, one table of options, one error line."""

import errno
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from xdplab.resources import shipped

Harness = Callable[..., "subprocess.CompletedProcess[bytes]"]
SEED = 20261122
MAKEFILE = """
TOOL := harness
SHARED := command_line.c fail.c json.c
include common/rules.mk
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness with AddressSanitizer and UndefinedBehaviorSanitizer, built like a tool on a host."""
    folder = tmp_path_factory.mktemp("common")
    shutil.copytree(shipped("common"), folder / "common")
    shutil.copy(Path(__file__).with_name("harness.c"), folder)
    (folder / "Makefile").write_text(MAKEFILE)
    subprocess.run(["make", "-s", "STRICT=1", "SANITIZE=1"], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "harness"


@pytest.fixture(scope="module")
def harness(binary: Path) -> Harness:
    def run(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([binary, *words], input=stdin, capture_output=True, timeout=60, check=False)

    return run


def rows(done: subprocess.CompletedProcess[bytes]) -> list[dict]:
    assert done.stdout.endswith(b"\n")
    return [json.loads(line.decode()) for line in done.stdout[:-1].split(b"\n")]


# ---- JSON ----


def some_strings() -> list[bytes]:
    """Every byte, every pair of bytes, sequences at the limits of Unicode, and mixtures of these."""
    dice = random.Random(SEED)
    edges = [chr(c).encode() for c in (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF)]
    broken = [b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
    pieces = [*edges, *broken, b'"', b"\\", b"\n", b"\t", b"\x01", b"plain", "größer".encode(), b"\\xff"]
    pairs = [bytes((a, b)) for a in range(1, 256) for b in range(1, 256)]
    mixed = [b"".join(dice.choices(pieces, k=dice.randint(1, 8))) for _ in range(3000)]
    noise = [bytes(dice.randint(1, 255) for _ in range(dice.randint(1, 40))) for _ in range(3000)]
    return [*(bytes((byte,)) for byte in range(1, 256)), *pairs, *pieces, *mixed, *noise]


def test_strings_are_what_pythons_decoder_makes_of_them(harness: Harness) -> None:
    """Valid UTF-8 passes; a byte outside a valid sequence becomes \\xHH, as with `backslashreplace`."""
    texts = some_strings()
    found = rows(harness("strings", stdin=b"".join(text + b"\0" for text in texts)))
    assert [row["text"] for row in found] == [text.decode(errors="backslashreplace") for text in texts]


def test_a_line_is_printable_and_whole(harness: Harness) -> None:
    everything = bytes(range(1, 256))
    done = harness("strings", stdin=everything + b"\0")
    assert done.stdout.count(b"\n") == 1
    assert min(done.stdout[:-1]) >= 0x20
    assert 0x7F not in done.stdout


def test_nothing_is_cut(harness: Harness) -> None:
    (row,) = rows(harness("nested", str(3_000_000)))
    assert row == {
        "type": "nested",
        "empty": [],
        "rows": [{"row": 0, "pair": [None, None, 0]}, {"row": -1, "pair": [None, None, 1]}],
        "text": "x" * 3_000_000,
        "most": 2**64 - 1,
    }


def test_numbers_read_back_the_same(harness: Harness) -> None:
    dice = random.Random(SEED)
    given = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 0.05, 280000.0, -2.5]
    given += [dice.uniform(-1, 1) * 10 ** dice.randint(-300, 300) for _ in range(2000)]
    (row,) = rows(harness("numbers", *map(repr, given)))
    assert row["numbers"] == given
    assert row["decimals"] == [float(f"{number:.3f}") for number in given]


def test_what_json_has_no_number_for_is_null(harness: Harness) -> None:
    (row,) = rows(harness("numbers", "nan", "inf", "-inf"))
    assert row["numbers"] == row["decimals"] == [None] * 3


def test_held_lines_leave_at_the_end(binary: Path) -> None:
    process = subprocess.Popen(
        [binary, "hold", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr.readline() == b"all are made\n"
    os.set_blocking(process.stdout.fileno(), False)
    assert process.stdout.read() is None
    os.set_blocking(process.stdout.fileno(), True)
    out, _ = process.communicate(b"\n", timeout=30)
    assert [json.loads(line)["line"] for line in out.splitlines()] == list(range(1000))


def test_a_full_disk_is_an_error(binary: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([binary, "nested", "10"], stdout=full, stderr=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 1


# ---- errors ----


def test_the_error_line(harness: Harness) -> None:
    done = harness("fail", str(-errno.ENODEV), "")
    assert (done.returncode, done.stderr) == (1, b"")
    named = {"type": "error", "step": "step", "errno": errno.ENODEV, "error": "ENODEV", "message": "message of -19"}
    assert rows(done) == [named | {"log": None}]
    (drivers_own,) = rows(harness("fail", "524", "said"))
    assert (drivers_own["error"], drivers_own["log"]) == ("ENOTSUPP", "said")
    (without,) = rows(harness("fail", "0", ""))
    assert (without["errno"], without["error"]) == (None, None)


def test_of_a_long_log_the_end_is_kept(harness: Harness) -> None:
    (row,) = rows(harness("fail", "2", "x" * 9000 + "the end"))
    assert row["log"] == "x" * (4096 - 7) + "the end"


def test_an_error_takes_the_place_of_a_line_that_was_begun(harness: Harness) -> None:
    done = harness("unfinished")
    (row,) = rows(done)
    assert (row["type"], row["message"], done.returncode) == ("error", "it ended in the middle of a line", 1)


def test_the_first_failure_is_the_one_told(harness: Harness) -> None:
    done = harness("failed")
    (row,) = rows(done)
    assert (row["step"], row["error"], row["message"], row["log"], done.returncode) == (
        *("first", "EACCES", "one", "said"),
        0,
    )


# ---- options ----


def test_defaults_and_values(harness: Harness) -> None:
    (row,) = rows(harness("options"))
    expected = {"text": None, "flag": False, "word": 1, "number": 7, "count": 0, "seconds": 0, "cpus": []}
    assert row == {"type": "options", **expected, "argument": None}
    words = ("--text", "größer", "--flag", "--word=three", "--number", "99", "--count", str(2**64 - 1))
    (row,) = rows(harness("options", *words, "--seconds", "0.5", "--cpus", "3,1023", "last"))
    expected = {"text": "größer", "flag": True, "word": 2, "number": 99, "count": 2**64 - 1, "seconds": 0.5}
    assert row == {"type": "options", **expected, "cpus": [3, 1023], "argument": "last"}
    assert rows(harness("options", "--count", "1e6"))[0]["count"] == 1_000_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--number", "0"], "--number 0: expected N from 1 to 99"),
        (["--number", "100"], "--number 100: expected N from 1 to 99"),
        (["--number", "-1"], "--number -1: expected N"),
        (["--number", "5x"], "--number 5x: expected N"),
        (["--number", "1.5"], "--number 1.5: expected N"),
        (["--number", ""], "--number : expected N"),
        (["--count", str(2**64)], "expected N"),
        (["--count", "1e19"], "expected N"),
        (["--seconds", "nan"], "--seconds nan: expected S from 0.5 to 10"),
        (["--word", "tw"], "--word tw: expected one|two|three"),
        (["--word", "one|two"], "expected one|two|three"),
        (["--word", ""], "expected one|two|three"),
        (["--text", ""], "expected TEXT"),
        (["--cpus", "1,"], "expected C,C"),
        (["--cpus", "1024"], "expected C,C"),
        (["--cpus", ",".join(["1"] * 65)], "expected C,C"),
        (["one", "two"], "unexpected argument two"),
    ],
)
def test_a_wrong_value_is_refused_on_one_line(harness: Harness, words: list[str], said: str) -> None:
    done = harness("options", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    text = done.stderr.decode()
    assert text.startswith("harness: ")
    assert said in text
    assert text.endswith(" (see --help)\n")
    assert text.count("\n") == 1


def test_the_table_prints_its_help(harness: Harness) -> None:
    for word in ("--help", "-h"):
        done = harness("options", word)
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode()
        assert text.startswith("usage: harness options [ARGUMENT]\n\nPrints what it was given.\n\n")
        assert "  --number N                a number (1 to 99) [7]\n" in text
        assert "  --word one|two|three      one of three words [two]\n" in text
        assert text.endswith("  --help                    print this\n")


# ---- its users ----


def test_every_tool_uses_it_and_none_has_its_own() -> None:
    root = Path(__file__).parents[3]
    makefiles = [root / "afxdp_user/Makefile", *sorted((root / "native").glob("*/Makefile"))]
    assert len(makefiles) >= 8
    for makefile in makefiles:
        assert "rules.mk" in makefile.read_text()
        for source in makefile.parent.rglob("*.[chS]"):
            text = source.read_text()
            if source.name.endswith(".bpf.c") or source.parts[-2] in ("module", "subjects", "kernels", "bpf"):
                continue
            for own in (
                "getopt",
                "CLOCK_MONOTONIC, &",
                "RTLD_NEXT",
                '"{\\"type\\":\\"error',
                ".incbin",
                "strerrorname_np(e",
            ):
                assert own not in text, f"{source}: {own} stands in native/common"
