"""`xdplab lab` and `xdplab doctor` as a user types them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.labs.strangers import STRANGER, find_stranger

from xdplab import labs

XDPLAB = Path(sys.executable).with_name("xdplab")
NAME = f"netns:typed-{os.getpid()}"


def xdplab(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([XDPLAB, *argv], input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture
def lab() -> Iterator[str]:
    labs.up(NAME)
    yield NAME
    labs.down(NAME)


@pytest.mark.root
def test_up_status_down() -> None:
    try:
        assert xdplab("lab", "up", NAME).stdout == f"lab {NAME} is up\n"
        assert xdplab("lab", "up", NAME).stdout == f"lab {NAME} was up already\n"
        rows = json.loads(xdplab("lab", "status", "--json").stdout)
        assert NAME in [row["lab"] for row in rows]
        assert f"{NAME}: up for" in xdplab("lab", "status").stdout
    finally:
        down = xdplab("lab", "down", NAME)
    assert down.stdout == f"lab {NAME} is down\n"
    assert xdplab("lab", "down", NAME).stdout == f"lab {NAME}: none of yours was up\n"


@pytest.mark.root
def test_down_ends_no_measurement_unasked(lab: str) -> None:
    with labs.open_lab(lab).lock("run 8f3a"):
        refused = xdplab("lab", "down", lab)
        assert refused.returncode == 3
        assert refused.stderr.startswith(f"xdplab: lab {lab} is in use by run 8f3a (")
        assert f"`xdplab lab down {lab} --force`" in refused.stderr
        assert lab in xdplab("lab", "status").stdout
        assert xdplab("lab", "down", lab, "--force").stdout == f"lab {lab} is down\n"


@pytest.mark.root
def test_the_lab_of_another_user_is_named_with_its_owner() -> None:
    user = str(STRANGER)
    assert xdplab("lab", "up", NAME, "--for-user", user).returncode == 0
    try:
        for argv in (("lab", "down", NAME), ("lab", "run", "--lab", NAME, "dut", "--", "true")):
            refused = xdplab(*argv)
            assert (refused.returncode, len(refused.stderr.splitlines())) == (3, 1)
            assert f"--for-user {user}" in refused.stderr
        (line,) = [line for line in xdplab("lab", "status").stdout.splitlines() if NAME in line]
        assert f"--for-user {user}" in line
        assert xdplab("lab", "run", "--lab", NAME, "--for-user", user, "dut", "--", "hostname").stdout == "dut\n"
        assert xdplab("lab", "down", NAME, "--for-user", user).stdout == f"lab {NAME} is down\n"
    finally:
        labs.down(NAME, for_user=user)


NEED_A_LAB = ("run smoke", "race array chase", "search smoke", "lab up", "doctor --tune")


@pytest.mark.root
def test_without_root_and_terminal_each_verb_that_needs_a_lab_says_in_one_line_who_can_make_it() -> None:
    user = find_stranger()
    for verb in NEED_A_LAB:
        code = f"import sys; from xdplab.cli import main; sys.argv = ['xdplab', *{verb.split()!r}]; main()"
        done = subprocess.run(
            user.argv(code), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd="/", timeout=60
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
        assert f"--for-user {user.uid}" in done.stderr


@pytest.mark.root
def test_run_hands_input_output_and_exit_code_through(lab: str) -> None:
    script = "cat; hostname; echo words >&2; exit 7"
    done = xdplab("lab", "run", "--lab", lab, "tg", "--", "sh", "-c", script, stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\ntg\n", "words\n")


@pytest.mark.root
def test_run_ends_at_its_deadline(lab: str) -> None:
    done = xdplab("lab", "run", "--lab", lab, "--deadline", "0.3", "dut", "--", "sleep", "60")
    assert done.returncode == 3
    assert "`sleep 60` passed its deadline" in done.stderr


@pytest.mark.root
def test_doctor_for_scripts() -> None:
    done = xdplab("doctor", "--lab", NAME, "--json")
    rows = json.loads(done.stdout)
    assert {"host", "check", "found", "verdict", "remedy"} == set(rows[0])
    assert done.returncode == (1 if any(row["verdict"] == "missing" for row in rows) else 0)
    assert not [row for row in labs.status() if row["lab"] == NAME]
