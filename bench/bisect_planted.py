"""Is the planted commit found? Repositories of 64 commits, 12 of which do not build and the others change nothing.

    python bench/bisect_planted.py --seed 1             # by cost: 20 regressions, a guest each
    sudo python bench/bisect_planted.py --by race       # by races in a lab of namespaces
    python bench/bisect_planted.py --simulated 1000     # by races whose ratios are drawn, no lab

An answer is right if it is the planted commit, or it and the commits right before it that do not build.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from bounded import Aim, run

from xdplab.analysis.decide.race import Standing, median_interval
from xdplab.bisect.judges import judged_by_races
from xdplab.bisect.revisions import Kernels
from xdplab.bisect.search import Judged, Revision, search

COMMITS, BROKEN = 64, 12
FILE = "prog.bpf.c"
PROGRAM = """
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, __u64);
} seen SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");

static __always_inline __u32 mixed(__u32 a, __u32 b)
{
    a ^= b * 2654435761U;
    return a ^ (a >> 15);
}

SEC("xdp")
int prog(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    if ((void *)(eth + 1) > end)
        return XDP_DROP;
    struct iphdr *ip = (void *)(eth + 1);
    if ((void *)(ip + 1) > end)
        return XDP_DROP;
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end)
        return XDP_DROP;
    __u32 key = ip->saddr, zero = 0;
    __u64 *value = bpf_map_lookup_elem(&seen, &key);
    if (value)
        *value += 1;
    __u64 *count = bpf_map_lookup_elem(&counts, &zero);
    if (count)
        *count += 1;
    __u32 hash = mixed(ip->saddr, ip->daddr);
    hash = mixed(hash, udp->source);
    hash = mixed(hash, udp->dest);
    if (hash == 0x12345678)
        return XDP_DROP;
    __u8 mac[ETH_ALEN];
    __builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, mac, ETH_ALEN);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
""".lstrip()

LOOKUP = "    __u64 *value = bpf_map_lookup_elem(&seen, &key);\n"
TEST = "    if (hash == 0x12345678)\n"
DROP = "        return XDP_DROP;\n"
ROLLED = "#pragma clang loop unroll(disable)\n"
KEY = "    __u32 key = ip->saddr, zero = 0;\n"


def before(place: str, more: str) -> tuple[str, str]:
    return place, more + place


REGRESSIONS: dict[str, tuple[str, str]] = {
    "one more map lookup": before(TEST, "    if (bpf_map_lookup_elem(&seen, &hash))\n" + DROP),
    "a lost inlining": ("static __always_inline", "static __noinline"),
    "a longer parse": before(KEY, "    if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)\n" + DROP),
    "one more bounds check": before(KEY, "    if ((void *)(udp + 1) + (ip->tos & 7) > end)\n" + DROP),
    "a clock": before(TEST, "    if (!bpf_ktime_get_ns())\n" + DROP),
    "the CPU's number": before(TEST, "    if (bpf_get_smp_processor_id() > 999)\n" + DROP),
    "an atomic addition": before(TEST, "    if (count)\n        __sync_fetch_and_add(count, 1);\n"),
    "another map type": ("BPF_MAP_TYPE_PERCPU_ARRAY", "BPF_MAP_TYPE_HASH"),
    "a checksum": before(TEST, f"{ROLLED}    for (int i = 0; i < 10; i++)\n        hash += ((__u16 *)ip)[i];\n"),
    "one test more": before(KEY, "    if (ip->ttl < 2)\n" + DROP),
    "a division": before(TEST, "    hash += hash / (ip->ttl | 1);\n"),
    "a second key": before(TEST, "    __u32 to = ip->daddr;\n    if (bpf_map_lookup_elem(&seen, &to))\n" + DROP),
    "a copy of the header": before(TEST, "    struct iphdr i = *ip;\n    asm volatile(\"\" ::\"r\"(&i):\"memory\");\n"),
    "a store to the packet": before(TEST, "    udp->source ^= bpf_htons(1);\n"),
    "a random number": before(TEST, "    hash ^= bpf_get_prandom_u32() & 1;\n"),
    "one round more": before(TEST, "    hash = mixed(hash, ip->id);\n"),
    "an update of a map": before(TEST, "    bpf_map_update_elem(&counts, &zero, &(__u64){hash}, BPF_ANY);\n"),
    "a spill": before(TEST, "    volatile __u32 spilled = hash;\n    hash = spilled;\n"),
    "a helper's checksum": before(TEST, "    hash += bpf_csum_diff(0, 0, &key, sizeof(key), 0);\n"),
    "a loop": before(TEST, f"{ROLLED}    for (__u32 i = 0; i < 8; i++)\n        hash = mixed(hash, i);\n"),
}  # fmt: skip
"""What makes a packet cost more: a text of the program, and what takes its place."""

NEUTRAL = (
    lambda text, n: f"// change {n}\n{text}",
    lambda text, n: f"#define UNUSED_{n} {n}\n{text}",
    lambda text, n: text.replace('SEC("xdp")', f'static inline int unused_{n}(int a) {{ return a; }}\nSEC("xdp")'),
    lambda text, n: text.replace("\n    ", "\n\t") if n % 2 else text.replace("\n\t", "\n    "),
    lambda text, n: text.replace("char LICENSE", f"/* {n} */\n\nchar LICENSE"),
)  # fmt: skip
BREAKS = ("int broken(", '#include "absent.h"\n', "}\n", "static int a = nothing;\n")


@dataclass(frozen=True)
class Planted:
    """A repository: its commits, the oldest first; the one that costs more; those that do not build."""

    repo: Path
    hashes: Sequence[str]
    at: int
    broken: frozenset[int]

    @property
    def right(self) -> list[str]:
        """The planted commit, with those before it that nobody can judge."""
        first = self.at
        while first - 1 in self.broken:
            first -= 1
        return list(self.hashes[first : self.at + 1])


def plant(
    repo: Path, regression: tuple[str, str], chance: random.Random, *, commits: int = COMMITS, broken: int = BROKEN
) -> Planted:
    """Make a repository with a regression at a random commit."""
    at = chance.randrange(1, commits)
    breaks = frozenset(chance.sample([n for n in range(1, commits - 1) if n != at], broken))
    git(repo, "init", "-q", ".")
    text, hashes = PROGRAM, []
    for number in range(commits):
        if number == at:
            old, new = regression
            assert old in text.replace("\t", "    ")
            text = text.replace("\t", "    ").replace(old, new)
        else:
            text = chance.choice(NEUTRAL)(text, number)
        (repo / FILE).write_text(text + chance.choice(BREAKS) * (number in breaks))
        (repo / "log").open("a").write(f"{number}\n")
        git(repo, "add", "-A")
        git(repo, "-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "-qm", f"Change {number}")
        hashes.append(git(repo, "rev-parse", "HEAD").strip())
    return Planted(repo, hashes, at, breaks)


def git(repo: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(repo), *words], capture_output=True, text=True, check=True).stdout


def bisected(planted: Planted, *options: str) -> dict[str, Any]:
    """Return the answer of `xdplab bisect --json`."""
    argv = [sys.executable, "-m", "xdplab", "bisect", "--repo", str(planted.repo), FILE, "--json", *options]
    argv += ["--good", planted.hashes[0], "--bad", planted.hashes[-1], "--out", str(planted.repo.parent / "results")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return {"error": done.stderr.strip().splitlines()[-1]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@dataclass
class Drawn:
    """Races whose ratios are drawn: a step of 3 to 20 %, a spread of 0.2 to 2 %, and one outlier in twenty."""

    chance: random.Random

    def __post_init__(self) -> None:
        self.at = self.chance.randrange(1, COMMITS)
        self.step, self.spread = log(1 - self.chance.uniform(0.03, 0.2)), self.chance.uniform(0.002, 0.02)
        self.broken = set(self.chance.sample([n for n in range(1, COMMITS - 1) if n != self.at], BROKEN))
        self.middle = self.step / 2

    def race(self, truth: float, margin: float, limits: dict[str, int]) -> Standing:
        values: list[float] = []
        while True:
            late = self.chance.expovariate(10) if self.chance.random() < 0.05 else 0.0
            values.append(truth + self.chance.gauss(0, self.spread) - late)
            state = Standing(median_interval(values), margin)
            if len(values) == 200 or (len(values) >= limits.get("at_least", 5) and state.settled):
                return state

    def judge(self, revision: Revision) -> Judged:
        number = int(revision.key)
        if number in self.broken:
            return Judged("skip", "it does not build")
        truth, margin = self.step if number >= self.at else 0.0, exp(abs(self.middle)) - 1
        return judged_by_races(lambda limits: self.race(truth, margin, limits), self.middle)

    def answer(self) -> str:
        whole = self.race(self.step, 0.02, {})
        if whole.answer != "differs":
            return "no step found"
        self.middle = whole.ratio.median / 2
        line = Kernels([Revision(str(number), "") for number in range(COMMITS)], Path(), "{}")
        search(line, self.judge, lambda *_: None)
        suspects = [int(one.key) for one in line.suspects()]
        if self.at not in suspects:
            return "wrong"
        return "right, alone" if len(suspects) == 1 else "right, among several"


def slowing(chance: random.Random, count: int) -> dict[str, tuple[str, str]]:
    """Return regressions of 3 to 20 % of the rate in a lab of namespaces, where a packet takes about a microsecond."""
    place, loop = REGRESSIONS["a loop"]
    rounds = chance.sample(range(16, 90), count)
    return {f"a loop of {number}": (place, loop.replace("i < 8", f"i < {number}")) for number in rounds}


def cpu_s() -> float:
    """Return the CPU time of the commands that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by", choices=["cost", "race"], default="cost")
    parser.add_argument("--only", type=int, default=len(REGRESSIONS), help="N of the regressions.")
    parser.add_argument("--first", type=int, default=1, help="From this one on.")
    parser.add_argument("--lab", default="netns:bisect-bench")
    parser.add_argument("--simulated", type=int, metavar="N")


def verdict(planted: Planted, answer: dict[str, Any]) -> str:
    """Return whether an answer is right: with the planted commit alone, in a range, without it, or not given."""
    suspects = [suspect["key"] for suspect in answer.get("suspects", [])]
    if not suspects:
        return "undecided"
    if suspects == planted.right:
        return "right"
    return "range" if planted.hashes[planted.at] in suspects else "WRONG"


def show_answer(name: str, planted: Planted, answer: dict[str, Any]) -> None:
    suspects, judged = len(answer.get("suspects", [])), len(answer.get("judged", []))
    step = f"{answer['good']:.5g} → {answer['bad']:.5g}" if suspects else answer["error"]
    print(f"{verdict(planted, answer)}: {name}: {step}; {suspects} suspects, {judged} judged", flush=True)


def measure(arguments: argparse.Namespace) -> Iterator[Aim]:
    chance = random.Random(arguments.seed)
    if arguments.simulated:
        ends = Counter(Drawn(chance).answer() for _ in range(arguments.simulated))
        print(f"seed {arguments.seed}, {arguments.simulated} simulated: {dict(ends)}")
        yield Aim("simulated races that blame a wrong commit", ends["wrong"], at_most=0)
        return
    more = ["--by", arguments.by] + (["--lab", arguments.lab] if arguments.by == "race" else [])
    regressions = REGRESSIONS if arguments.by == "cost" else slowing(chance, arguments.only)
    ends = Counter[str]()
    for name, regression in list(regressions.items())[arguments.first - 1 :][: arguments.only]:
        with tempfile.TemporaryDirectory(prefix="xdplab-planted-") as folder:
            (repo := Path(folder) / "repo").mkdir()
            planted = plant(repo, regression, random.Random(f"{arguments.seed}/{name}"))
            before_s, start_s = cpu_s(), time.monotonic()
            show_answer(name, planted, answer := bisected(planted, *more))
            print(f"{cpu_s() - before_s:.0f} CPU-s, {time.monotonic() - start_s:.0f} s", flush=True)
            ends[verdict(planted, answer)] += 1
    print(f"{sum(ends.values())} regressions by {arguments.by}: {dict(ends)}", flush=True)
    yield Aim("a wrong commit is blamed", ends["WRONG"], at_most=0)
    if arguments.by == "cost":
        yield Aim("right, of all", ends["right"] / sum(ends.values()), at_least=1)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=3600, options=options))
