"""A session of a tool: each way in which it answers wrongly or ends is one error of one line, of the right class."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from xdplab.errors import HostError, KilledError, ProgramError, UnsupportedError, XdplabError
from xdplab.hosts.local import LocalHost
from xdplab.hosts.tool import ToolSession, error_class, fields

REFUSALS: Mapping[str, type[XdplabError]] = {
    "attach": UnsupportedError,
    "offload map": UnsupportedError,
    "load": ProgramError,
}


def tool(script: str) -> ToolSession:
    return ToolSession(LocalHost("here"), ["sh", "-c", script], deadline_s=20.0, refusals=REFUSALS)


@pytest.mark.parametrize(
    ("step", "errno", "kind"),
    [
        ("attach", "EOPNOTSUPP", UnsupportedError),
        ("attach", "EPERM", HostError),
        ("attach", "EBUSY", HostError),
        ("attach", "ENETDOWN", HostError),
        ("attach", "ENOLINK", HostError),
        ("load", "EACCES", ProgramError),
        ("load", "EPERM", HostError),
        ("interface", "ENODEV", HostError),
        ("offload map", "ENOMEM", UnsupportedError),
        ("offload map", "EPERM", HostError),
    ],
)
def test_the_step_and_errno_decide_the_class(step: str, errno: str, kind: type[XdplabError]) -> None:
    assert error_class({"step": step, "error": errno}, REFUSALS) is kind


@pytest.mark.parametrize(
    ("script", "kind", "fact"),
    [
        ("echo first >&2; echo last >&2; exit 3", HostError, "3: first last"),
        ("exec kill -KILL $$", KilledError, "137"),
        ("""printf '{"type":"rea'""", HostError, "rea"),
        ("""echo '{"type":"other"}'""", HostError, "other"),
        ("echo 7", HostError, "7"),
        (
            """echo '{"type":"error","step":"load","error":"EACCES","message":"no","log":""}'""",
            ProgramError,
            "load: no",
        ),
    ],
)
def test_what_a_tool_says_instead_of_an_answer(script: str, kind: type[XdplabError], fact: str) -> None:
    with tool(script) as session:
        session.open()
        with pytest.raises(kind) as error:
            session.read("ready", 10.0)
    assert fact in error.value.message
    assert "\n" not in error.value.message
    assert not session.running


def test_a_command_to_a_tool_that_has_ended_is_told_why() -> None:
    with tool("""echo '{"type":"ready"}'; echo gone >&2""") as session:
        session.open()
        session.read("ready")
        with pytest.raises(HostError, match="gone"):
            session.ask("more", "more")
    with pytest.raises(HostError):
        session.ask("more", "more")


def test_all_answers_come_before_a_refusal_and_the_end_is_required() -> None:
    refused = '{"type":"error","step":"load","error":"EACCES","message":"no","log":null}'
    script = f"""read -r a; read -r b; echo '{refused}'; echo '{{"type":"count","value":2}}'; read -r c; exit 4"""
    with tool(script) as session:
        session.open()
        with pytest.raises(ProgramError):
            session.ask_each(["a", "b"], "count")
        assert len(session.raw.splitlines()) == 2
        with pytest.raises(HostError, match="4"):
            session.finish()


def test_a_line_has_the_fields_of_its_class() -> None:
    @dataclass(frozen=True)
    class Count:
        value: int

    assert fields(Count, {"type": "count", "value": 3, "more": None}) == Count(3)
    with pytest.raises(HostError, match="value"):
        fields(Count, {"type": "count"})
