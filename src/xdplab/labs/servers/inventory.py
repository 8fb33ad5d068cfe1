"""The inventory file: two servers, how to reach them, which NIC of each is the lab's, who generates the traffic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from xdplab.errors import LabError
from xdplab.labs.base import Arrangement, GeneratorPlace
from xdplab.lazy import lazy
from xdplab.trust import read_source
from xdplab.yaml_file import composed, read_yaml, yaml_words

yaml_errors = lazy("xdplab.yaml_errors")  # few files are wrong

WORK_DIR = "/var/lib/xdplab"
"""The folder of a lab's files on a server: not in /tmp, where any user could prepare files."""

_SECRET_WORDS = re.compile(r"pass(word|phrase|wd)?$|secret|token", re.IGNORECASE)
_PRIVATE_KEY = "PRIVATE KEY-----"

Pci = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
Mac = Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9:][A-Za-z0-9_.:%-]*$")]
UserName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_.-]*$")]
"""Texts of these forms have no meaning of their own in sudoers, where `ALL` is every user."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Interface(_Strict):
    """One NIC port. A physical port is named by its PCI address, others (veth) by their name; the MAC proves it."""

    pci: Pci | None = Field(
        default=None, description="PCI address of a physical port, as in `lspci -D`: `0000:3b:00.0`"
    )
    name: Name | None = Field(
        default=None, description="name of an interface that has no PCI address, a veth for example"
    )
    mac: Mac = Field(description="MAC address; an interface with another one is refused")

    @field_validator("pci", "mac", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_way_to_find_it(self) -> Interface:
        if (self.pci is None) == (self.name is None):
            raise ValueError('give `pci` ("0000:3b:00.0"), or `name` for an interface that has no PCI address')
        return self


TESTPMD = "/usr/bin/dpdk-testpmd"
"""Where Debian's package ``dpdk`` has it."""


class GeneratorKeys(_Strict):
    """The generator on the TG. xdpgen is built there; the user has installed MoonGen or dpdk-testpmd in ``path``.

    ``ports`` has DPDK's number of the TG's end. ``dpdk`` are arguments for DPDK itself.
    """

    kind: Literal["xdpgen", "moongen", "testpmd"] = Field(
        default="xdpgen", description="the generator that sends the traffic"
    )
    path: str | None = Field(
        default=None,
        description="absolute path of MoonGen's folder on the TG (required), or of testpmd (Debian's by default)",
    )
    ports: Annotated[list[Annotated[int, Field(ge=0, le=31)]], Field(min_length=1, max_length=1)] = Field(
        default=[0], description="DPDK's number of the TG's port"
    )
    dpdk: list[str] = Field(default=[], description="further arguments for DPDK's EAL, one per entry")
    driver: str = Field(
        default="vfio-pci", description="driver of the port while DPDK has it; mlx5, mlx4 and mana cards keep theirs"
    )
    hugepages: Annotated[int, Field(ge=0, le=65536)] = Field(
        default=1024, description="number of hugepages of 2 MiB that a run reserves on the TG for DPDK"
    )

    @model_validator(mode="after")
    def _installed_somewhere(self) -> GeneratorKeys:
        if self.kind == "moongen" and not (self.path or "").startswith("/"):
            raise ValueError("MoonGen needs its `path` on the TG, from the root: /opt/MoonGen")
        if self.kind == "testpmd" and not (self.path or TESTPMD).startswith("/"):
            raise ValueError(f"testpmd's `path` on the TG begins at the root: {TESTPMD}")
        return self

    def place(self) -> GeneratorPlace:
        """Return the lab's description of its generator."""
        path = self.path or (TESTPMD if self.kind == "testpmd" else None)
        return GeneratorPlace(self.kind, path, self.ports[0], tuple(self.dpdk), self.driver, self.hugepages)


class Machine(_Strict):
    """One server and its end of the link. The host's key is pinned: by its line here, or by a known_hosts file.

    ``sudo``: the user is not root, and sudo asks it for no password. ``proxy`` is a command whose standard input and
    output lead to the server's sshd (``[ssh, -W, "10.0.0.2:22", bastion]``). ``cpus`` are those a run may use, by
    default all, the NIC's own NUMA node first.
    """

    host: HostName = Field(description="name or IP address of the server, for SSH")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(default=22, description="TCP port of the server's sshd")
    user: UserName = Field(default="root", description="user that logs in; any other than root needs `sudo: true`")
    key: str = Field(description="private key file on this machine; a relative path starts at the inventory's folder")
    host_key: str | None = Field(
        default=None, description="public key of the server, one line as `ssh-keyscan` prints it"
    )
    known_hosts: str | None = Field(
        default=None, description="known_hosts file with the server's key; this or `host_key` is required"
    )
    sudo: bool = Field(default=False, description="run commands through sudo, which must ask for no password")
    proxy: list[str] = Field(
        default=[], description="command that connects its standard input and output to the server's sshd"
    )
    interface: Interface = Field(description="the port that is this server's end of the link")
    second_interface: Interface | None = Field(
        default=None,
        description="a second port, linked to the other server's second port: plans with `directions` need both",
    )
    cpus: list[Annotated[int, Field(ge=0, le=4095)]] = Field(
        default=[], description="numbers of the CPUs that a run may use; empty: all, those of the NIC's NUMA node first"
    )

    @field_validator("host_key")
    @classmethod
    def _without_the_host(cls, line: str | None) -> str | None:
        """Also accept ssh-keyscan's output: a comment before the line, and the host before the key's type."""
        keys = [
            line_words.strip()
            for line_words in (line or "").splitlines()
            if line_words.strip() and not line_words.startswith("#")
        ]
        if line is not None and len(keys) != 1:
            raise ValueError("host_key is one line: the host's key of one type")
        match = re.search(r"(?:^|\s)((?:ssh|ecdsa|sk-ssh|sk-ecdsa)-\S+\s+\S+)", keys[0]) if keys else None
        return line if match is None else match[1]

    @model_validator(mode="after")
    def _pinned(self) -> Machine:
        if not self.host_key and not self.known_hosts:
            raise ValueError("host_key is missing: `ssh-keyscan -t ed25519 HOST`, and compare on the host's console")
        if self.user != "root" and not self.sudo:
            raise ValueError("a user other than root needs `sudo: true`")
        return self


class TrafficMachine(Machine):
    """The server that sends: a `Machine` with a traffic generator."""

    generator: GeneratorKeys = Field(default=GeneratorKeys(), description="the traffic generator of this server")


class Inventory(_Strict):
    """Two servers that are one lab: ``arrangement: hosts``.

    ``shared`` and ``split`` are two ports (or namespaces) of one machine; in ``split`` each has CPUs of its own.
    """

    dut: Machine = Field(description="the device under test, which runs the XDP programs")
    tg: TrafficMachine = Field(description="the traffic generator's server")
    arrangement: Arrangement = Field(
        default="hosts",
        description="`hosts`: two machines; `shared`, `split`: one machine, with the same CPUs or own CPUs per end",
    )
    work_dir: Annotated[str, Field(pattern=r"^/[\w./-]+$")] = Field(
        default=WORK_DIR, description="absolute path of the folder on both servers that holds the lab's files"
    )

    @model_validator(mode="after")
    def _two_links_or_one(self) -> Inventory:
        for machine, role in ((self.dut, "dut"), (self.tg, "tg")):
            if machine.second_interface is None and (self.dut.second_interface or self.tg.second_interface):
                raise ValueError(f"`second_interface` of {role} is missing: a second link has two ends")
            if machine.second_interface and machine.second_interface.mac == machine.interface.mac:
                raise ValueError(f"`second_interface` of {role} has the MAC of its `interface`: give another port")
        return self


_PARTS = {
    "the inventory itself": Inventory,
    "`dut`": Machine,
    "`tg`": TrafficMachine,
    "the `generator` of `tg`": GeneratorKeys,
}


def load_inventory(path: Path, *, for_sudo: bool = False) -> Inventory:
    """Read an inventory; keys that it names are relative to it. Raises LabError naming the field, before any login.

    Also raises StrangersFileError if others may have written it, and it names a proxy, or (``for_sudo``) the users who
    are to get root's rights.
    """
    try:
        source = read_source(path)
        data = read_yaml(source.text)
    except OSError as error:
        raise LabError(
            f"lab {path}: {error.strerror}", remedy="name an inventory; docs/use/servers.md shows one"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LabError(f"lab {path} is not YAML: {yaml_words(error)}") from None
    _refuse_secrets(path, source.text, data)
    try:
        inventory = Inventory.model_validate(data)
    except ValidationError as error:
        raise LabError(
            f"lab {path}: {yaml_errors.complaint(error, 'an inventory', _PARTS, composed(source.text))}",
            remedy="docs/reference/inventory.schema.json has every key",
        ) from None
    if inventory.dut.proxy or inventory.tg.proxy:
        source.require_trust("`proxy`, a command that runs here")
    if for_sudo:
        source.require_trust("users who get root's rights")
    return _relative(inventory, source.folder)


def _relative(inventory: Inventory, folder: Path) -> Inventory:
    data = inventory.model_dump()
    for machine in (data["dut"], data["tg"]):
        for key in ("key", "known_hosts"):
            if machine[key]:
                machine[key] = str(folder / Path(machine[key]).expanduser())
    return Inventory.model_validate(data)


def _refuse_secrets(path: Path, text: str, data: Any) -> None:
    """An inventory is shared and committed: it names keys, but never contains one."""
    secret = next((key for key in _keys(data) if _SECRET_WORDS.search(key)), None)
    if secret is None and _PRIVATE_KEY in text:
        secret = "a private key"
    if secret is not None:
        raise LabError(
            f"lab {path}: it holds {secret}: an inventory holds no secret",
            remedy="log in with a key file (`key: ~/.ssh/lab`), let sudo ask for none, and take it out of the file",
        )


def _keys(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [str(key) for key in data] + [name for value in data.values() for name in _keys(value)]
    return [name for value in data for name in _keys(value)] if isinstance(data, list) else []
