"""Numbers of queues on cards that count them differently, set and restored; a script stands for the card's ethtool."""

import subprocess
from pathlib import Path

import pytest
from tests.compiled import tool_first_in_path

from xdplab.deploy.device import Snapshot, queues_now, restore
from xdplab.deploy.queues import Endpoint, queue_limit, set_queues
from xdplab.deploy.settings import CHANNELS
from xdplab.deploy.watchdog import restore_script
from xdplab.errors import UnsupportedError
from xdplab.hosts.local import LocalHost

# It refuses combined queues beside separate ones, as bnxt_en does.
ETHTOOL = """#!/bin/sh
cd "$(dirname "$0")" && read -r most_rx most_tx most_combined rx tx combined <card
case $1 in
    -l)
        echo "Channel parameters for $2:"
        printf 'Pre-set maximums:\\nRX: %s\\nTX: %s\\nOther: n/a\\nCombined: %s\\n' $most_rx $most_tx $most_combined
        printf 'Current hardware settings:\\nRX: %s\\nTX: %s\\nOther: n/a\\nCombined: %s\\n' $rx $tx $combined ;;
    -L)
        shift 2
        while [ $# -gt 0 ]; do eval "$1=$2"; shift 2; done
        case $rx,$tx,$combined in
            [1-9]*,[1-9]*,[0n]* | [0n]*,[0n]*,[1-9]*) ;;
            *) echo "netlink error: Invalid argument" >&2; exit 1 ;;
        esac
        echo $most_rx $most_tx $most_combined $rx $tx $combined >card ;;
esac
"""


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a card's numbers: the most of rx, tx and combined, and those it has now."""
    tool_first_in_path(monkeypatch, tmp_path, "ethtool", ETHTOOL)
    return tmp_path / "card"


@pytest.mark.parametrize(
    ("has", "most", "queues", "then"),
    [
        ("37 37 74 8 8 0", 74, 4, "37 37 74 0 0 4"),  # its owner has set separate rings
        ("n/a n/a 8 n/a n/a 8", 8, 4, "n/a n/a 8 n/a n/a 4"),
        ("4 4 0 4 4 0", 4, 2, "4 4 0 2 2 0"),
        ("0 0 0 1 1 0", 1, 1, "0 0 0 1 1 0"),  # stmmac on an older core does not say its most
        ("0 0 0 4 4 0", 4, 4, "0 0 0 4 4 0"),
        ("4 0 0 4 1 0", 4, 2, "4 0 0 2 1 0"),
    ],
)
def test_queues_are_set_as_the_card_has_them_and_restored(
    has: str, most: int, queues: int, then: str, card: Path
) -> None:
    card.write_text(f"{has}\n")
    end = Endpoint(LocalHost(), "e")
    assert queue_limit(end) == most
    before = Snapshot("dut", "e", "", {f"channels.{name}": n for name, n in end.channels()[0].items()}, {})
    set_queues(end, None, queues)
    assert card.read_text() == f"{then}\n"
    restore(LocalHost(), "e", before)
    assert card.read_text() == f"{has}\n"
    card.write_text(f"{then}\n")
    script = restore_script("e", "", before.values, (CHANNELS,)).replace("exit 0\n", ":\n", 1)
    subprocess.run(["sh", "-c", script], check=True)
    assert card.read_text() == f"{has}\n"


def test_a_card_that_does_not_say_its_queues_now_is_set(card: Path) -> None:
    card.write_text("n/a n/a 8 n/a n/a n/a\n")
    set_queues(Endpoint(LocalHost(), "e"), None, 4)
    assert card.read_text() == "n/a n/a 8 n/a n/a 4\n"


def test_a_card_without_a_number_of_queues_has_one(card: Path) -> None:
    (card.parent / "ethtool").write_text("#!/bin/sh\necho 'netlink error: Operation not supported' >&2\nexit 95\n")
    assert queues_now(LocalHost(), "e") == 1


def test_a_card_that_stays_at_four_queues_is_not_measured_as_one_of_one(card: Path) -> None:
    (card.parent / "ethtool").write_text(ETHTOOL.replace("    -L)\n", "    -L) exit 0\n"))
    card.write_text("0 0 0 4 4 0\n")
    with pytest.raises(UnsupportedError, match=r"channels\.rx is 4 instead of the requested 1"):
        set_queues(Endpoint(LocalHost(), "e"), None, 1)


@pytest.mark.parametrize(
    ("has", "remedy"),
    [
        ("8 8 0 8 4 0", "e has queues: 4"),
        ("n/a n/a 8 n/a n/a 2", "e has queues: 2"),
        ("n/a n/a 8 n/a n/a n/a", ""),  # it does not say
    ],
)
def test_a_card_that_refuses_says_so_with_the_queues_that_it_has(has: str, remedy: str, card: Path) -> None:
    refuses = "    -L) echo 'netlink error: Invalid argument' >&2; exit 1\n"
    (card.parent / "ethtool").write_text(ETHTOOL.replace("    -L)\n", refuses))
    card.write_text(f"{has}\n")
    with pytest.raises(UnsupportedError, match="Invalid argument") as refused:
        set_queues(Endpoint(LocalHost(), "e"), None, 1)
    assert (refused.value.remedy or "") == remedy


# Somebody chose an RSS table of the last queue alone: as the kernel, it refuses fewer queues than that needs.
HELD_BY_RSS = """#!/bin/sh
cd "$(dirname "$0")" && read -r queues chosen <card
case $1 in
    -l)
        printf 'Channel parameters for %s:\\nPre-set maximums:\\nRX: n/a\\nTX: n/a\\nOther: n/a\\nCombined: 8\\n' "$2"
        printf 'Current hardware settings:\\nRX: n/a\\nTX: n/a\\nOther: n/a\\nCombined: %s\\n' "$queues" ;;
    -L) [ "$4" -ge "$chosen" ] && echo "$4 $chosen" >card || { echo "netlink error: Invalid argument" >&2; exit 1; } ;;
    -x)
        printf 'RX flow hash indirection table for %s with %s RX ring(s):\\n    0: ' "$2" "$queues"
        for entry in 0 1 2 3 4 5 6 7; do printf '     %s' $((chosen ? chosen - 1 : entry % queues)); done; echo ;;
    -X) echo "$queues 0" >card ;;
esac
"""


def test_a_table_that_holds_queues_is_given_back_before_them(card: Path) -> None:
    (card.parent / "ethtool").write_text(HELD_BY_RSS)
    card.write_text("4 4\n")
    restore(LocalHost(), "e", Snapshot("dut", "e", "", {"channels.combined": 2, "rss.table": "equal 2"}, {}))
    assert card.read_text() == "2 0\n"
