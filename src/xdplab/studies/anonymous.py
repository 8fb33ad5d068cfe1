"""A copy of a run without names of people and machines, for a bundle that may be passed on.

Each name, address, key, identity and kernel command line is found by its form or by the field that holds it, in any
file of the run, and then replaced in every file: the same one by the same pseudonym of the same length, so that sizes,
columns and binary files stay what they were. Sources of programs stay as they were measured, for points are known by
their sums; what they hold of the names is told.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import ipaddress
import os
import pwd
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xdplab.errors import ResultsError
from xdplab.plan import factors
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns import NAMES as COLUMN_NAMES

FIELDS = (".json", ".jsonl", ".yaml")
"""Files whose fields have names."""
SOURCES = re.compile(r"files/.*|programs/[^/]+/program\.c")
"""Files that were measured. A change would make them other programs, and so other points."""
_OWN_IDENTITIES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """One kind of identity: ``found`` has it as its last group that took part; ``fill`` replaces its characters."""

    kind: str
    found: re.Pattern[bytes]
    fill: bytes
    valid: Callable[[str], bool] = lambda _: True
    fields_only: bool = False


def _address(text: str) -> bool:
    """Loopback, multicast, masks and the networks for benchmarks, which test frames have, name no machine."""
    if not _is_address(text):
        return False
    one = ipaddress.ip_address(text)
    return not any(one in network for network in _NO_MACHINE if network.version == one.version)


_NO_MACHINE = [
    ipaddress.ip_network(network)
    for network in ("0.0.0.0/8", "127.0.0.0/8", "198.18.0.0/15", "224.0.0.0/3", "::/127", "2001:2::/48", "ff00::/8")
]
"""RFC 6890 and its registries; 198.18.0.0/15: RFC 2544, 2001:2::/48: RFC 5180."""


def _station(text: str) -> bool:
    return text.lower() not in ("ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00")


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _key(*names: str) -> bytes:
    r"""Return the pattern of a field's name and colon, in YAML, in JSON, and in JSON within JSON (``\"``)."""
    return rb'(?<![\w-])\\*"?(?:' + "|".join(names).encode() + rb')\\*"?\s*[:=]\s*\\*["\']?'


def _field(*names: str) -> bytes:
    """Return the pattern of what is a field for sure: quoted, or the first word of a line or of a mapping."""
    name = "|".join(names).encode()
    return rb'(?:\\*"(?:' + name + rb')\\*"\s*:\s*\\*"|(?:(?m:^)|[{,])[ -]*(?:' + name + rb""")\s*:[ ]+["']?)"""


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


_MAC = rb"(?<![0-9A-Za-z:-])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Za-z:-])"
_UUID = rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
_IPV6 = rb"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"
_IPV4 = rb"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)"
_WORD = rb"([A-Za-z_][\w.-]*\w)"

FORMS = (
    Identity(
        "kernel command line", re.compile(_key("command_line") + rb'[^"}]*?"value\\*": ?\\*"((?:[^"\\]|\\.)+)'), b"."
    ),
    Identity("kernel command line", re.compile(rb"(BOOT_IMAGE=[^\n\"\\]+)"), b"."),
    Identity("private key", re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(.+?)-----END", re.DOTALL), b"A"),
    Identity("SSH key", re.compile(rb"(?<![A-Za-z0-9+/])(AAAA[A-Za-z0-9+/]{40,}={0,2})"), b"A"),
    Identity("key fingerprint", re.compile(rb"SHA256:([A-Za-z0-9+/]{43})|MD5:((?:[0-9a-f]{2}:){15}[0-9a-f]{2})"), b"a"),
    Identity("MAC address", re.compile(b"(" + _MAC + b")"), b"a", _station),
    Identity("UUID", re.compile(b"(" + _UUID + b")"), b"a"),
    Identity("IPv6 address", re.compile(b"(" + _IPV6 + b")"), b"d", _address),
    Identity("IPv4 address", re.compile(b"(" + _IPV4 + b")"), b"1", _address),
    Identity(
        "serial number",
        re.compile(
            rb"(?i:" + _key("serial(?:[ _-]?(?:number|no))?", "machine[ _-]?id", "boot[ _-]?id", "asset[ _-]?tag")
            + rb")([A-Za-z0-9][\w.-]{5,})"
        ),
        b"a",
        _has_digit,
    ),
    Identity("user", re.compile(rb"/(?:home|Users)/([\w.-]*\w)"), b"u"),
    Identity("user", re.compile(_field("user", "username") + _WORD), b"u", fields_only=True),
    Identity("host", re.compile(_key("nodename", "hostname", "host_name") + _WORD), b"h"),
    Identity("host", re.compile(_field("host") + _WORD), b"h", fields_only=True),
    Identity("host", re.compile(rb"(?m)^# hostname\s*:\s*" + _WORD), b"h"),
    Identity("host", re.compile(rb"(?m)^Linux \S+ \(" + _WORD + rb"\)"), b"h"),
)  # fmt: skip
NAMES = ("user", "host")

COMMON = {
    "admin", "archlinux", "client", "controller", "debian", "default", "dut", "fedora", "guest", "home",
    "host", "kernel", "lab", "linux", "local", "localdomain", "localhost", "machine", "netns", "none", "null", "root",
    "runner", "server", "shared", "test", "tg", "ubuntu", "user", "vagrant", "virtual", "vm", "xdplab",
}  # fmt: skip
"""Names that identify no person, and words of the formats."""


@functools.cache
def _dictionary() -> set[str]:
    """Return the words that cannot be replaced in a run without changing its meaning."""
    columns = {word for name in COLUMN_NAMES for word in name.split("_")}
    return COMMON | columns | {word for factor in factors.FACTORS for word in factor.name.split("_")}


@dataclass
class TakenOut:
    """``names``: each identity, its kind and its pseudonym; ``kept``: common words that are also names, and stay.

    ``sources``: how many identities each source of a program still holds.
    """

    names: dict[bytes, tuple[str, bytes]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    sources: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return a description of what was removed, and what was not."""
        counts = Counter(kind for kind, _ in self.names.values())
        counted = ", ".join(f"{kind}: {number}" for kind, number in sorted(counts.items()))
        lines = [f"removed: {counted or 'no names or addresses were found'}"]
        if self.kept:
            lines.append(f"names that are common words stay: {', '.join(sorted(self.kept))}")
        for name, number in self.sources.items():
            lines.append(f"{name} is a program as it was measured, and holds {number} of these: look at it")
        return lines

    def rename(self, fills: dict[bytes, tuple[str, bytes]]) -> None:
        """Give each identity, which has its kind and its fill, a pseudonym that is none of them.

        The same name in another case gets the same pseudonym. In a copy without names the old pseudonyms are names.
        """
        for value, (kind, fill) in fills.items():
            alike = [pseudo for name, (_, pseudo) in self.names.items() if name.lower() == value.lower()]
            same_kind = {pseudo for name, pseudo in self.names.values() if name == kind}
            number = len(same_kind) + 1
            while not alike:
                candidate = pseudonym(value, number, fill)
                free = fill == b"." or candidate not in same_kind | fills.keys()  # dots have no number
                alike = [candidate] if free else []
                number += 1
            self.names[value] = kind, alike[0]

    def pattern(self) -> re.Pattern[bytes]:
        """Return a pattern that finds each of them as a whole word, the longest first."""
        longest = sorted(self.names, key=len, reverse=True)
        return re.compile(b"|".join(self._one(value) for value in longest) or rb"(?!)")

    def _one(self, value: bytes) -> bytes:
        before = rb"(?<![A-Za-z0-9])" if value[:1].isalnum() else b""
        after = rb"(?![A-Za-z0-9])" if value[-1:].isalnum() else b""
        return before + re.escape(value) + after

    def without(self, data: bytes) -> bytes:
        """Return the data with each identity replaced by its pseudonym."""
        return self.pattern().sub(lambda match: self.names[match[0]][1], data)


def pseudonym(value: bytes, number: int, fill: bytes) -> bytes:
    """Return a word of the same length and form: the fill in place of letters and digits, then the number.

    A kernel's command line keeps the one switch that captions tell of, ``mitigations=off``.
    """
    if fill == b".":
        return b" ".join(part if part == b"mitigations=off" else fill * len(part) for part in value.split(b" "))
    letters = [place for place, byte in enumerate(value) if chr(byte).isalnum()]
    name = bytearray(value)
    for place in letters:
        name[place] = fill[0]
    for place, digit in zip(reversed(letters), reversed(f"{number}"), strict=False):
        name[place] = ord(digit)
    return bytes(name)


def anonymous_copy(run: RunDirectory, chosen: Iterable[tuple[str, Path]], parent: Path) -> tuple[Path, TakenOut]:
    """Write the ``chosen`` files of a run into ``parent`` without names of people and machines.

    Raises ResultsError if one of them is still there.
    """
    files = {name: _data(path) for name, path in chosen}
    taken = identities(run.name, files)
    sources = {name for name in files if SOURCES.fullmatch(name)}
    pattern = taken.pattern()
    taken.sources = {name: n for name in sorted(sources) if (n := len(set(pattern.findall(files[name]))))}
    changed = {name: data if name in sources else taken.without(data) for name, data in files.items()}
    changed = _with_sums(files, changed, sources)
    left = [name for name, data in changed.items() if name not in sources and pattern.search(data)]
    if left:
        raise ResultsError(f"{run.path}: {left[0]} still holds a name or an address", remedy="do not pass it on")
    folder = parent / taken.without(run.name.encode()).decode()
    for name, data in changed.items():
        path = folder / taken.without(name.encode()).decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return folder, taken


def identities(name: str, files: dict[str, bytes]) -> TakenOut:
    """Return the names of people and machines in the files of a run, and those of this user and machine."""
    taken, fills = TakenOut(), dict[bytes, tuple[str, bytes]]()
    for form in FORMS:
        seen: dict[bytes, None] = {}
        for file, data in files.items():
            if not form.fields_only or file.endswith(FIELDS):
                seen |= dict.fromkeys(match[match.lastindex or 0] for match in form.found.finditer(data))
        for value in seen:
            _learn(fills, taken.kept, form, value)
    everything = b"\n".join([name.encode(), *(file.encode() for file in files), *files.values()])
    for form, word in _controller_identities():
        value = word.encode()
        if re.search(rb"(?<![A-Za-z0-9])" + re.escape(value) + rb"(?![A-Za-z0-9])", everything):
            _learn(fills, taken.kept, form, value)
    taken.rename(fills)
    return taken


def _learn(fills: dict[bytes, tuple[str, bytes]], kept: set[str], form: Identity, value: bytes) -> None:
    """Add each name that is to be replaced to ``fills``, with its kind and fill, and common words to ``kept``."""
    text = value.decode(errors="replace")
    if not form.valid(text) or (form.fill == b"." and pseudonym(value, 1, form.fill) == value):
        return
    if form.kind not in NAMES:
        fills.setdefault(value, (form.kind, form.fill))
        return
    for part in dict.fromkeys((text, text.partition(".")[0])):  # a full name and its first label
        if _is_address(part) or not part.strip(form.fill.decode()):  # a pseudonym's label
            continue
        if part.lower() in _dictionary() or len(part) < 3:
            kept.add(part)
        else:
            fills.setdefault(part.encode(), (form.kind, form.fill))


def _controller_identities() -> Iterator[tuple[Identity, str]]:
    """Names of this user and machine, which may occur anywhere in a run; root identifies no person."""
    by_kind = {form.kind: form for form in FORMS}
    yield by_kind["host"], socket.gethostname()
    with suppress(KeyError):
        yield by_kind["user"], pwd.getpwuid(os.getuid()).pw_name
    if sudo := os.environ.get("SUDO_USER"):
        yield by_kind["user"], sudo
    for path in _OWN_IDENTITIES:
        with suppress(OSError):
            yield by_kind["serial number"], Path(path).read_text().strip()


def _data(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _with_sums(before: dict[str, bytes], after: dict[str, bytes], sources: set[str]) -> dict[str, bytes]:
    """Return the files, with the SHA-256 of each changed file in place of its old one wherever one is written."""
    now = dict(after)
    while True:
        pairs = {_sum(before[name]): _sum(now[name]) for name in now if now[name] != before[name]}
        changed = {name: data if name in sources else _with(pairs, after[name]) for name, data in now.items()}
        if changed == now:
            return now
        now = changed


def _with(pairs: dict[bytes, bytes], data: bytes) -> bytes:
    old = re.compile(b"|".join(map(re.escape, pairs)) or rb"(?!)")
    return old.sub(lambda match: pairs[match[0]], data)


def _sum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
