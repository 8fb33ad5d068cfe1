"""A device setting in the trial's row: the obtained value; if the driver rounded, the requested one and a reason."""

from __future__ import annotations

import json

import pytest

from xdplab.analysis.verdicts import REMARKS, say_rounded
from xdplab.deploy.device import Applied
from xdplab.deploy.settings import Values
from xdplab.deploy.settings_nic import require_in_plans
from xdplab.errors import PlanError, UnsupportedError
from xdplab.studies.trial_facts import device_columns


def applied(requested: Values, obtained: Values) -> Applied:
    return Applied("dut", "eth0", requested, {}, obtained)


def test_the_obtained_value_is_what_tables_show() -> None:
    found = applied({"rings.rx": 500, "features.gro": False}, {"rings.rx": 512, "features.gro": False})
    row = device_columns(found.require(rounded=True))
    assert row["device"] == "features.gro=off rings.rx=512 (500 asked)"
    assert json.loads(row["device_settings"])["rings.rx"] == {"requested": 500, "obtained": 512}
    assert say_rounded(row) == "rings.rx is 512 where the plan asks for 500"
    assert say_rounded in REMARKS


def test_nothing_asked_and_nothing_rounded_say_nothing() -> None:
    assert device_columns(None) == {}
    assert say_rounded({}) is None
    assert say_rounded(device_columns(applied({"rings.rx": 512}, {"rings.rx": 512}))) is None


@pytest.mark.parametrize(("asked", "found"), [(False, True), ("toeplitz", "xor"), (512, None), (0, True)])
def test_only_numbers_are_rounded(asked: int | str, found: int | str | None) -> None:
    obtained = {} if found is None else {"a.b": found}
    one = applied({"a.b": asked}, obtained)  # type: ignore[dict-item]
    with pytest.raises(UnsupportedError, match=r"dut: eth0: a\.b is"):
        one.require(rounded=True)


def test_what_other_factors_set_is_no_device_setting() -> None:
    numbers = dict.fromkeys(
        ["rings.rx", "features.gro", "coalesce.rx-usecs", "pause.rx", "flags.legacy-rx", "link.mtu"], 1
    )
    require_in_plans(numbers | {"rss.table": "weight 1 3", "rss.hkey": "6d:5a", "hash.udp4": "sdfn"})
    for name in ("channels.rx", "xps.0", "link.up", "governor.0", "colour.rx"):
        with pytest.raises(PlanError, match=f"device: {name} is not a device setting of a plan"):
            require_in_plans({name: 1})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("rss.table", "weight 2 6", "write `weight 1 3`"),
        ("rss.table", "weight 1 1 0", "write `equal 2`"),
        ("rss.table", "default", "write `equal QUEUES`, or"),
        ("rss.table", "equal 0", "write `equal QUEUES`, or"),
        ("rss.table", "weight 0 0", "write `equal QUEUES`, or"),
        ("rss.table", "weight 1 -3", "write `equal QUEUES`, or"),
        ("rss.hkey", "6D:5A", "lower case"),
        ("hash.udp4", "fnsd", "in this order"),
        ("hash.udp4", False, "in this order"),  # `n` in YAML
        ("hash.udp5", "sd", "tcp4, udp4, tcp6, udp6"),
    ],
)
def test_a_value_is_refused_that_the_device_would_never_read_back_so(name: str, value: object, remedy: str) -> None:
    with pytest.raises(PlanError) as caught:
        require_in_plans({name: value})  # type: ignore[dict-item]
    assert remedy in str(caught.value)
