"""The Python parsers that `make fuzz` feeds: each with outputs that it must read, and the errors that it may raise.

`python -m tests.fuzz.parsers NAME [libFuzzer's options]` is the process that atheris guides.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "formats" / "recorded"
IN_SAMPLE = ROOT / "results" / "sample"

Parser = Callable[[bytes], object]


def _files(*names: str) -> tuple[bytes, ...]:
    return tuple((RECORDED / name).read_bytes() for name in names)


def every() -> dict[str, tuple[Parser, Sequence[bytes], tuple[type[Exception], ...]]]:
    """Return each parser by name, with sample inputs and the errors that it may raise."""
    from tests.formats.test_parsers_any_input import PARSERS, THESIS
    from xdplab.counters import readings
    from xdplab.errors import XdplabError
    from xdplab.formats import ethtool, generator, pcap, verifier
    from xdplab.labs.servers.inventory import load_inventory
    from xdplab.plan.model import load_plan
    from xdplab.run.journal import Journal
    from xdplab.studies.execution.benchmarks import parse_microbench
    from xdplab.studies.jit.filters import parse_ddd
    from xdplab.studies.loading.passes import parse_function_graph, parse_kernel_stacks, parse_loadbench

    refused = (XdplabError,)
    found: dict[str, tuple[Parser, Sequence[bytes], tuple[type[Exception], ...]]] = {
        name: (parser, (seed,), refused) for name, (parser, seed) in PARSERS.items()
    }
    found |= {name: (parser, (seed,), ()) for name, (parser, seed) in THESIS.items()}
    lines = sorted(IN_SAMPLE.glob("raw/*/1/xdpgen.jsonl"))[0].read_bytes()
    return found | {
        "generator": (generator.parse_output, (lines,), refused),
        "cpuclock": (readings.parse_cpuclock, (b'{"type":"clock","cpu":0,"cycles_per_ns":2.1}\n',), refused),
        "ethtool": (ethtool.parse_speed, (b"Settings for x:\n\tSpeed: 10000Mb/s\n\tLink detected: yes\n",), refused),
        "pcap": (pcap.parse_pcap, (bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"),), refused),
        "bpfverify": (verifier.parse_bpfverify, (b'{"type":"program","object":"a.o","name":"x"}\n',), refused),
        "verifier's log": (_text(verifier.parse_stats), (b"processed 12 insns (limit 1000000)\n",), refused),
        "microbench": (parse_microbench, (b'{"type":"ready"}\n{"type":"run","ns":12}\n',), refused),
        "tcpdump -ddd": (_text(parse_ddd), (b"2\n40 0 0 12\n6 0 0 65535\n",), refused),
        "function graph": (parse_function_graph, _files("function_graph_7.2.txt"), refused),
        "loadbench": (parse_loadbench, (b'{"type":"sample","ns":12}\n',), refused),
        "perf script": (parse_kernel_stacks, (b"bench 1 [000] 1.0: cycles:\n\tffff x ([kernel.kallsyms])\n",), refused),
        "plan": (_file(load_plan), ((ROOT / "plans" / "quick.yaml").read_bytes(),), refused),
        "inventory": (_file(load_inventory), (b"dut: {host: a}\ntg: {host: b}\n",), refused),
        "journal": (_file(_journal(Journal)), ((IN_SAMPLE / "journal.jsonl").read_bytes()[:4000],), refused),
    }


def _text(parser: Callable[[str], object]) -> Parser:
    return lambda data: parser(data.decode(errors="replace"))


def _journal(journal: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: list(journal(path).events())


def _file(reader: Callable[[Path], object]) -> Parser:
    """Return a parser that reads a nameless file, of which nothing is left, however the process ends."""
    file = os.memfd_create("input")

    def read(data: bytes) -> object:
        os.ftruncate(file, 0)
        os.pwrite(file, data, 0)
        return reader(Path(f"/proc/self/fd/{file}"))

    return read


def read(parser: Parser, data: bytes, allowed: tuple[type[Exception], ...]) -> None:
    """Feed one input; an error that is not ``allowed`` is a fault of the parser."""
    with contextlib.suppress(*allowed):
        parser(data)


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["xdplab"]):
        parser, _, allowed = every()[sys.argv[1]]

    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: read(parser, data, allowed))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
