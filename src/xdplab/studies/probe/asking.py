"""What is tried of a port, topic by topic: each answer has what was tried, what came of it, and what is announced."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from xdplab.counters.drivers import Driver, driver_of, spelled, total
from xdplab.deploy.device import apply
from xdplab.deploy.queues import queue_limit, set_queues
from xdplab.deploy.settings import RINGS
from xdplab.doctor import probe as doctors_probe
from xdplab.errors import HostError, ProgramError, UnsupportedError, XdplabError
from xdplab.formats.settings import PROBES
from xdplab.generators import Generator, GeneratorSettings
from xdplab.run.waiting import WAITS
from xdplab.studies.outage.bench import OutageBench, OutageFacts, gaps_of, heard_in
from xdplab.studies.outage.points import CHANGES, OutagePoint
from xdplab.studies.probe.answers import ProbeAnswer, ProbedBurst, ProbedPort, ProbedRow
from xdplab.studies.probe.bench import ACTIONS, FRAMES, LONGEST_S, RATE_PPS, RUN_ID, SESSION_S, NotTried, ProbeBench
from xdplab.text import many, step

MODES = ("native", "generic", "tcx", "tc")
BY_DOCTOR = {
    "offload": ("offload", "a program of two instructions loaded for the card"),
    "AF_XDP copy": ("af_xdp", "a socket bound to queue 0, with copies"),
    "AF_XDP zero copy": ("zerocopy", "a socket bound to queue 0, without copies"),
}
FEATURES = {"native": "basic", "offload": "hw-offload", "AF_XDP zero copy": "xsk-zerocopy"}
"""The feature that announces a mode."""
ETHERNET_MTU, MOST_MTU = 1500, 65535
LARGEST_FRAME, HEADER_AND_FCS = 9216, 18
"""The largest frame that xdpgen sends; what a frame has beside its MTU."""
ONE_BUFFER = 4096
FLOWS = 64
KEY_BYTE = "5a"
OUTAGE_PPS, OUTAGE_S = 10_000, 1.5


class PortProbe:
    """The answers so far. Each topic adds its own; a later one looks at what earlier ones found."""

    def __init__(self, bench: ProbeBench) -> None:
        self.bench = bench
        self.answers: list[ProbeAnswer] = []
        self.bursts: list[ProbedBurst] = []
        self._announced: list[str] | None = None

    def result(self, port: str, date: str) -> ProbedPort:
        """Return all answers, and what the table of drivers says of the counters."""
        described = self.bench.described()
        row = driver_of(self.bench.counters(), described["driver"])
        table = [] if row is None else [one for burst in self.bursts for one in rows_of(row, burst)]
        self._note(described["driver"], [one for one in table if one.disagrees])
        return ProbedPort(port, **described, date=date, answers=self.answers, bursts=self.bursts,
                          in_table=row is not None, table=table)  # fmt: skip

    def ask_all(self) -> None:
        """Ask everything; the port is put back after each topic."""
        for topic in (self.modes, self.actions, self.mtus, self.queues, self.rings, self.hashing, self.outage):
            try:
                with step(f"trying {topic.__name__}"):
                    topic()
            finally:
                self.bench.put_back()

    def _note(self, driver: str, wrong: Sequence[ProbedRow]) -> None:
        """Leave on the host what the table of drivers says wrongly, for trials on this port, with its kinds first."""
        path = f"{PROBES}/{self.bench.interface}"
        self.bench.host.run(["rm", "-f", path])
        if wrong:
            kinds = " ".join(sorted({one.kind for one in wrong}))
            self.bench.host.put(f"{driver} {kinds}: {'; '.join(one.text for one in wrong)}\n".encode(), path)

    def modes(self) -> None:
        """Attach a program in each mode, and bind a socket in each way."""
        bench = self.bench
        shown = bench.announcement()
        self._announced = shown["features"]
        for mode in MODES:
            tried = f"a program attached in mode {mode}, and read back"
            self._ask("mode", mode, tried, partial(self._attach, mode), FEATURES.get(mode))
        script = Path(doctors_probe.__file__).read_bytes()
        lines = bench.host.run(["python3", "-I", "-", bench.interface], stdin=script).text.splitlines()
        rows = {row["probe"]: row for row in map(json.loads, lines)}
        for mode, (name, tried) in BY_DOCTOR.items():
            row = rows[name]
            self._ask("mode", mode, tried, partial(_accepted, row), FEATURES.get(mode))
        if shown["zc_max_segs"]:
            self._announce("buffers of a zero-copy frame", str(shown["zc_max_segs"]))
        for way in ("rx", "tx"):
            if shown[f"{way}_metadata"] is not None:
                self._announce(f"{way} metadata", ", ".join(shown[f"{way}_metadata"]) or "none")

    def _attach(self, mode: str) -> None:
        with self.bench.loaded(mode) as loader:
            loader.in_kernel(self.bench.host)
            loader.detach()

    def actions(self) -> None:
        """Send a burst for each action in the modes that attach."""
        for mode in ("native", "generic"):
            for action in ACTIONS:
                tried = f"{FRAMES:,} frames that the program decides to {action}"
                self._ask("burst", f"{mode} {action}", tried, partial(self._burst, mode, action))
        tried = f"{FRAMES:,} live frames that the port's own host redirects into it"
        self._ask("burst", "redirected into the port", tried, self._redirected_into, "ndo-xmit")

    def _burst(self, mode: str, action: str) -> str:
        self._require_mode(mode)
        burst = self.bench.burst(mode, action)
        self.bursts.append(burst)
        text = f"the program had {burst.seen:,} of {burst.sent:,}"
        due = burst.seen if action in ("tx", "redirect") else 0
        if due:
            text += f", {burst.returned:,} came back"
        return _require(burst.seen == burst.sent and burst.returned == due, text)

    def _redirected_into(self) -> str:
        """Count at the TG's link what BPF redirects into the port.

        Many drivers are a target, and announce it, only while a program is attached.
        """
        lab, bench = self.bench.sender, self.bench
        settings = GeneratorSettings(
            "live", bench.interface, cpus=lab.cpus().dut[:1], batch=8, rate_pps=RATE_PPS, max_frames=FRAMES,
            run_id=RUN_ID,
        ).changed(flows=1, src_mac=lab.dut_mac, dst_mac=lab.tg_mac, receive=False)  # fmt: skip
        before = self._heard_by_tg()
        with ExitStack() as stack:
            if self._works("native"):
                stack.enter_context(bench.loaded("native"))
            self._announced = bench.announcement()["features"]
            generator = stack.enter_context(Generator(bench.host, settings, bench.xdpgen_here, deadline_s=SESSION_S))
            generator.start()
            sent = generator.burst("probe", LONGEST_S).summary.tx_packets
            generator.stop()
        bench.settled()
        came = self._heard_by_tg() - before
        return _require(came >= sent > 0, f"{came:,} of {sent:,} came to the TG")

    def _heard_by_tg(self) -> int:
        lab = self.bench.sender
        row = lab.tg.run(["ip", "-s", "-j", "link", "show", "dev", lab.tg_interface]).row("ifindex")
        return int(row["stats64"]["rx"]["packets"])

    def mtus(self) -> None:
        """Find the largest MTU, that at which a program attaches, and whether frames of that size reach it."""
        row = self.bench.host.run(["ip", "-j", "-d", "link", "show", "dev", self.bench.interface]).row("ifindex")
        most = int(row.get("max_mtu") or MOST_MTU)
        self._ask("MTU", "without a program", "the largest that is taken", partial(self._largest, most, None))
        self._say(announced=str(most), disagrees=self.answers[-1].found != str(most))
        for frags in (False, True):
            kind = "xdp.frags" if frags else "xdp"
            tried = "the largest at which it attaches natively"
            answer = self._ask("MTU", f"with {kind}", tried, partial(self._largest_with_program, most, frags))
            largest = int(answer.found or 0)
            size = min(largest + HEADER_AND_FCS, LARGEST_FRAME)
            several = frags and size > ONE_BUFFER
            self._ask(
                "MTU",
                f"{'frames in several buffers' if frags else 'frames of that size'} with {kind}",
                f"{FRAMES:,} frames of {size:,} bytes",
                partial(self._large_frames, largest, size, frags),
                "rx-sg" if frags and (several or not largest) else None,
            )

    def _largest_with_program(self, most: int, frags: bool) -> str:
        self._require_mode("native")
        return self._largest(most, frags)

    def _largest(self, most: int, frags: bool | None) -> str:
        """Return the largest MTU that is taken, by halves. Raises UnsupportedError where Ethernet's is not."""
        self._take(ETHERNET_MTU, frags)
        low, high = ETHERNET_MTU, max(most, ETHERNET_MTU)
        while low < high:
            middle = (low + high + 1) // 2
            try:
                self._take(middle, frags)
                low = middle
            except UnsupportedError:
                high = middle - 1
        return str(low)

    def _take(self, mtu: int, frags: bool | None) -> None:
        self.bench.set_mtu(mtu)
        if frags is not None:
            with self.bench.loaded("native", frags=frags) as loader:
                loader.detach()

    def _large_frames(self, mtu: int, size: int, frags: bool) -> str:
        if not mtu:
            raise NotTried("no such program attaches natively")
        _ = self.bench.sender
        if frags and size <= ONE_BUFFER:
            raise NotTried(f"frames of {size} bytes have one buffer")
        self.bench.set_mtu(mtu)
        with (
            self.bench.sending(frame_bytes=size, receive=False) as generator,
            self.bench.loaded("native", frags=frags) as loader,
        ):
            sent = generator.burst("probe", LONGEST_S).summary.tx_packets
            self.bench.settled()
            seen = sum(loader.count("queues"))
            loader.detach()
        if not sent:
            raise NotTried("the TG's end sends no such frame")
        return _require(seen > 0, f"the program had {seen:,} of {sent:,}")

    def queues(self) -> None:
        """Set numbers of queues, and see on how many of them frames of many flows come."""
        most = queue_limit(self.bench.end)
        for number in _steps(1, most):
            tried = f"set, read back, and a burst of {FLOWS} flows"
            self._ask("queues", str(number), tried, partial(self._queues, number))
            self._say(announced=f"at most {most}")

    def _queues(self, number: int) -> str:
        bench = self.bench
        if bench.others and number > (most := queue_limit(bench.others[0])):
            raise NotTried(f"the TG's end has at most {many(most, 'queue')}")
        if number > 1 or queue_limit(bench.end) > 1:
            set_queues(bench.end, bench.others[0] if bench.others else None, number)
        if bench.lab is None:
            return "set, and read back: no sender of frames"
        mode = next((mode for mode in ("native", "generic") if self._works(mode)), "generic")
        with (
            bench.sending(flows=FLOWS, queues=number if bench.others else 1, receive=False) as generator,
            bench.loaded(mode) as loader,
        ):
            generator.burst("probe", LONGEST_S)
            bench.settled()
            used = sum(count > 0 for count in loader.count("queues"))
            loader.detach()
        return _require(used == number, f"frames came on {used} of {number}")

    def rings(self) -> None:
        """Set sizes of the receive ring, and read them back."""
        host, interface = self.bench.host, self.bench.interface
        try:
            now, most = RINGS.read_both(host, interface)
        except UnsupportedError as refusal:
            self.answers.append(
                ProbeAnswer("ring", "rx and tx", "`ethtool -g`", "refused", words=self._words_of(refusal))
            )
            return
        for way in ("rx", "tx"):
            limit = most.get(way, 0)
            for size in sorted({limit // 4, limit // 2, limit, now.get(way, 0)} - {0}):
                self._ask("ring", f"{way} {size}", "set, and read back", partial(self._set, f"rings.{way}", size))
                self._say(announced=f"at most {limit}")

    def hashing(self) -> None:
        """Set another key of the RSS hash, and other fields, and read them back."""
        before = self.bench.held[0].before
        for name, row in (("rss.hkey", "rss"), ("hash.udp4", "hash")):
            now = before.values.get(name)
            if now is None:
                words = before.unsupported.get(row) or "it is not shown"
                self.answers.append(
                    ProbeAnswer("RSS", name, "read", "refused", words=self._words_of(UnsupportedError(words)))
                )
                continue
            other = re.sub("[0-9a-f]{2}", KEY_BYTE, str(now)) if row == "rss" else ("sd" if now == "sdfn" else "sdfn")
            tried = "another key set, and read back" if row == "rss" else f"`{now}` and `{other}` set, and read back"
            self._ask("RSS", name, tried, partial(self._set, name, other))

    def _set(self, name: str, value: int | str) -> str:
        obtained = apply(self.bench.host, self.bench.interface, {name: value}).obtained.get(name)
        if name == "rss.hkey":
            return _require(obtained == value, "the key that was set" if obtained == value else "another key")
        return _require(obtained == value, str(obtained) if obtained == value else f"{obtained} instead of {value}")

    def outage(self) -> None:
        """Attach a program in the middle of a numbered stream, and do nothing in another."""
        for event in ("attach", "control"):
            for mode in ("native", "generic"):
                tried = f"{event} while {OUTAGE_PPS:,} frames/s come to the port's stack"
                self._ask("dark", f"{mode} {event}", tried, partial(self._dark, mode, event))

    def _dark(self, mode: str, event: str) -> str:
        self._require_mode(mode)
        if self.bench.sender.clock != "time":
            raise NotTried("the lab's clock shows no time")
        bench = OutageBench.at(self.bench.sender)
        point = OutagePoint(bench.lab.name, mode, event, OUTAGE_PPS, OUTAGE_S)
        with tempfile.TemporaryDirectory() as raw, bench.lab.turn(WAITS.get()):
            bench.measure(point, Path(raw), OutageFacts())
            gaps = gaps_of(heard_in(Path(raw)), CHANGES[event])
        return f"{gaps.longest * 1000 / OUTAGE_PPS:g} ms dark, {gaps.lost} frames lost"

    def _ask(
        self, topic: str, question: str, tried: str, attempt: Callable[[], str | None], feature: str | None = None
    ) -> ProbeAnswer:
        """Note what the attempt returns, or the words of the refusal, beside the feature that announces it."""
        answer = ProbeAnswer(topic, question, tried, "works")
        try:
            answer = replace(answer, found=attempt())
        except NotTried as reason:
            answer = replace(answer, result="not tried", words=str(reason))
        except Failed as failure:
            answer = replace(answer, result="fails", found=failure.message)
        except (UnsupportedError, ProgramError) as refusal:
            answer = replace(answer, result="refused", words=self._words_of(refusal))
        except HostError as trouble:  # it says nothing of the port
            answer = replace(answer, result="not tried", words=self._words_of(trouble))
        self.answers.append(answer)
        if feature is not None and self._announced is not None:
            announced = feature in self._announced
            differs = answer.result != "not tried" and announced is not (answer.result == "works")
            self._say(announced=f"{feature}: {'yes' if announced else 'no'}", disagrees=differs)
        return self.answers[-1]

    def _say(self, *, announced: str, disagrees: bool = False) -> None:
        self.answers[-1] = replace(self.answers[-1], announced=announced, disagrees=disagrees)

    def _announce(self, question: str, announced: str) -> None:
        self.answers.append(ProbeAnswer("mode", question, "", "not tried", words="announced only", announced=announced))

    def _words_of(self, refusal: XdplabError) -> str:
        """Return the words without the host, the command, the step, and the names of the link's ends."""
        text = re.sub(r"^(?:attach|`[^`]*`): ", "", re.sub(r"^[\w.-]+: (?=\S)", "", refusal.message))
        for end, called in ((self.bench.end, "the port"), *((end, "the TG's end") for end in self.bench.others)):
            text = re.sub(rf"\b{re.escape(end.interface)}\b", called, text)
        return "; ".join(dict.fromkeys(text.split("; ")))

    def _works(self, mode: str) -> bool:
        return any((a.topic, a.question, a.result) == ("mode", mode, "works") for a in self.answers)

    def _require_mode(self, mode: str) -> None:
        if not self._works(mode):
            raise NotTried(f"no program attaches in mode {mode}")


class Failed(XdplabError):
    """What came of it instead: nothing refused it."""


def _require(works: bool, found: str) -> str:
    if not works:
        raise Failed(found)
    return found


def _accepted(row: Mapping[str, Any]) -> str:
    if not row["ok"]:
        raise UnsupportedError(row["found"])
    return str(row["found"])


def _steps(least: int, most: int) -> Sequence[int]:
    """Return the powers of two up to the most, and the most."""
    powers = [least << n for n in range(16) if least << n <= most]
    return sorted({*powers, most})


def rows_of(driver: Driver, burst: ProbedBurst) -> list[ProbedRow]:
    """Return what the table's row says of a native burst: what counts its frames, and what its action.

    A burst that lost frames before the program, or behind the port, cannot tell.
    """
    if burst.mode != "native" or burst.seen != burst.sent:
        return []
    by_kind = {"received": driver.received, "drop": driver.drop, "tx": driver.tx, "redirect": driver.redirect}
    kinds = ["received", *(kind for kind in by_kind if kind == burst.action and by_kind[kind])]
    rows = [
        ProbedRow(kind, burst.action, [*map(spelled, by_kind[kind])], burst.seen, total(burst.rose, by_kind[kind]))
        for kind in kinds
    ]
    if burst.action == "tx" and burst.returned == burst.seen:
        names = [*map(spelled, driver.sent)] if driver.sent else ["link.tx.packets"]
        counted = total(burst.rose, driver.sent) if driver.sent else burst.rose.get(names[0], 0)
        rows.append(ProbedRow("sent", "tx", names, burst.returned, counted))
    return rows
