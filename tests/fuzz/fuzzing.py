"""`make fuzz`: libFuzzer with ASan and UBSan on the C tools' parsers, atheris on the Python parsers, and their table.

Inputs that reach new code stay in `build/fuzz/corpus` from night to night. An input that broke a parser is in
`build/fuzz/broken`; once its cause is fixed, it belongs in `tests/fuzz/found`, which is fed first each time.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FOUND = HERE / "found"
BUILD = ROOT / "build" / "fuzz"
ATHERIS = "atheris==3.0.0"
RUNS, SEED = 1_000_000, 20261123
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
HEAD = "| parser | tool | inputs | edges covered | corpus | broken |"

C_TARGETS = {
    "pcap of --frames": ("xdpgen", "fuzz_pcap.c", ("pcap.c", "fail.c", "json.c"), ()),
    "options and bursts": ("xdpgen", "fuzz_options.c", ("options.c", "command_line.c"), ()),
    "options": ("xdpload", "fuzz_arguments.c", ("options.c", "command_line.c"), ()),
    "constants and maps": (
        "xdpload", "fuzz_constants.c", ("setup.c", "constants.c", "fail.c", "json.c", "refusal.c"), ("-lbpf", "-lelf")
    ),
    "arguments": ("afxdp_user", "fuzz_arguments.c", ("options.c", "command_line.c"), ()),
    "subjects": ("jitbench", "fuzz_subjects.c", ("input.c", "maps.c", "bpf.c", "command_line.c"), ()),
    "BPF objects": (
        "bpfverify",
        "",
        ("fuzz.c", "elf_file.c", "raw_object.c", "raw_maps.c", "program_types.c", "rule_table.c"),
        ("-lbpf",),
    ),
}  # fmt: skip
PCAP_HEADER = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
C_SEEDS = {
    "pcap of --frames": [PCAP_HEADER + bytes(8) + b"\x0e\0\0\0" * 2 + bytes(14)],
    "options and bursts": [b"--interface\0vg0\0--load\x0010e3\0--bursts\0a:0.1,b:2\0", b"rate 0.5\0--run-id\0beef\0"],
    "subjects": [b"return 95000000000000000b - 7\n", b"a - 00ff 1\nb - - -1\n"],
    "options": [b"--object\0a.o\0--mode\0none\0--rodata\0limit=4\0--max-entries\0m=cpus\0"],
    "arguments": [b"--interface\0vd0\0--workload\0w.so\0--cpus\0000,2\0--run-id\0beef\0--batch\00064\0"],
    "constants and maps": [struct.pack("<9I", 18, 0, 4, 22, 8, 24, 26, 32, 1) + v for v in (b"7", b"true", b"cpus")],
    "BPF objects": [],
}  # fmt: skip
CONSTANTS = """
struct { int (*type)[2]; int (*max_entries)[4]; unsigned *key; long *value; } sizes __attribute__((section(".maps")));
const volatile unsigned limit = 4;
const volatile char ready;
const volatile long rates[3] = {1, 2, 3};
__attribute__((section("xdp"))) int front(void *packet) { return limit > 2 && ready ? (int)rates[1] : 2; }
char terms[] __attribute__((section("license"))) = "GPL";
"""
"""Compile an object with constants of several sizes and a map."""


@dataclass(frozen=True)
class Fuzzed:
    """The result of one parser. ``broken`` is the first fault; ``missing`` is the reason why it was not run."""

    name: str
    tool: str
    inputs: int = 0
    edges: int = 0
    corpus: int = 0
    broken: str | None = None
    missing: str | None = None

    def row(self) -> str:
        if self.missing is not None:
            return f"| {self.name} | {self.tool} | not run: {self.missing} | | | |"
        return f"| {self.name} | {self.tool} | {self.inputs} | {self.edges} | {self.corpus} | {self.broken or 0} |"


def built(name: str) -> Path:
    """Build a C target. Raises CalledProcessError if clang has no libFuzzer (Debian: libclang-rt-NN-dev)."""
    tool, harness, files, libraries = C_TARGETS[name]
    folder = next(place for place in (ROOT / "native" / tool, ROOT / tool) if place.is_dir())
    common = ROOT / "native" / "common"
    sources = [HERE / harness] * bool(harness) + [(folder if (folder / f).exists() else common) / f for f in files]
    target = BUILD / "targets" / f"{tool}-{re.sub('[^a-z]+', '-', name.lower())}"
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = ["clang", "-std=gnu11", "-D_GNU_SOURCE", f"-I{folder}", f"-I{common}", f"-I{HERE}", "-g", "-O1"]
    argv += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined", "-Dexit=refuse"]
    if harness == "fuzz_constants.c":
        argv += [f'-DOBJECT="{_object_with_constants()}"']
    subprocess.run([*argv, "-o", target, *sources, *libraries], check=True, capture_output=True, text=True)
    return target


def _object_with_constants() -> Path:
    made = BUILD / "targets" / "constants.bpf.o"
    argv = ["clang", "-O2", "-g", "-target", "bpf", "-xc", "-c", "-", "-o", made]
    subprocess.run(argv, input=CONSTANTS, check=True, capture_output=True, text=True)
    return made


def fuzzed(name: str, tool: str, argv: Sequence[str | Path], seeds: Sequence[bytes], runs: int, most_s: int) -> Fuzzed:
    """Feed one parser ``runs`` inputs, for at most ``most_s`` seconds (0: no limit)."""
    slug = _slug(tool, name)
    corpus, broken, first = BUILD / "corpus" / slug, BUILD / "broken" / slug, BUILD / "seeds" / slug
    for folder in (corpus, broken, first):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in (*seeds, *(path.read_bytes() for path in found_of(tool, name))):
        (first / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = [f"-runs={runs}", f"-max_total_time={most_s}", f"-seed={SEED}", "-max_len=8192", "-timeout=20"]
    options += ["-close_fd_mask=1", "-print_final_stats=1", f"-artifact_prefix={broken}/"]
    environment = {**os.environ, **SANITIZERS, "PYTHONPATH": f"{BUILD / 'atheris'}:{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(
        [*argv, *options, corpus, first],
        cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    return Fuzzed(
        name,
        tool,
        _last(r"stat::number_of_executed_units:\s*(\d+)", done.stderr) or _last(r"Done (\d+) runs", done.stderr),
        _last(r"cov: (\d+)", done.stderr),
        sum(1 for _ in corpus.iterdir()),
        _why(done.stderr) if done.returncode else None,
    )


def found_of(tool: str, name: str) -> list[Path]:
    """Return the inputs that once broke a parser."""
    return sorted((FOUND / _slug(tool, name)).glob("*"))


def _slug(tool: str, name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", f"{tool} {name}".lower())


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _why(text: str) -> str:
    lines = [line for line in text.splitlines() if re.search(r"ERROR:|runtime error|Error|Exception", line)]
    return (lines or text.splitlines()[-1:] or ["no word"])[0].strip()[:200]


def with_atheris() -> str | None:
    """Install atheris into build/fuzz; return the reason if that fails."""
    if importlib.util.find_spec("atheris") or (BUILD / "atheris" / "atheris").is_dir():
        return None
    uv = [Path(sys.executable).parent / "uv", "pip", "install", "-q", "--python", sys.executable]
    done = subprocess.run(
        [*uv, "--only-binary", ":all:", "--target", BUILD / "atheris", ATHERIS], capture_output=True, text=True
    )
    return None if not done.returncode else f"{ATHERIS} cannot be had: {done.stderr.strip().splitlines()[-1]}"


def campaign(wanted: str, runs: int, most_s: int) -> Iterator[Fuzzed]:
    """Yield the result of each parser whose name or tool was requested."""
    from tests.fuzz.parsers import every

    for name, (tool, *_) in C_TARGETS.items():
        if re.search(wanted, f"{tool} {name}"):
            try:
                target = built(name)
            except subprocess.CalledProcessError as error:
                yield Fuzzed(name, tool, missing=str(error.stderr).strip().splitlines()[-1])
                continue
            yield fuzzed(name, tool, [target], C_SEEDS[name] or objects(), runs, most_s)
    missing = with_atheris()
    for name, (_, seeds, _) in every().items():
        if re.search(wanted, f"python {name}"):
            argv = [sys.executable, "-m", "tests.fuzz.parsers", name]
            yield (
                Fuzzed(name, "python", missing=missing)
                if missing
                else fuzzed(name, "python", argv, seeds, runs, most_s)
            )


def objects() -> list[bytes]:
    """Return the programs of the sample run as compiled."""
    return [path.read_bytes() for path in sorted((ROOT / "results" / "sample" / "programs").glob("*/program.bpf.o"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="inputs per parser")
    parser.add_argument("--most-s", type=int, default=0, help="seconds per parser at most (0: no limit)")
    parser.add_argument("--only", default="", help="regular expression of tool and name")
    asked = parser.parse_args()
    print(HEAD + "\n|" + " --- |" * HEAD.count(" |"), flush=True)  # noqa: T201
    outcomes = []
    for outcome in campaign(asked.only, asked.runs, asked.most_s):
        outcomes.append(outcome)
        print(outcome.row(), flush=True)  # noqa: T201
    return int(any(outcome.broken or outcome.missing for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
