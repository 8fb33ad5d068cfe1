"""The rate with a million flows by Zipf's law beside that with 64 in turn: `python bench/flows_skewed.py`, as root.

Each pair of bursts is sent within two seconds to a DUT that reflects; each pair's ratio and their median are printed.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.generators import Generator, GeneratorSettings
from xdplab.labs import use_lab

PAIRS, SECONDS = 9, 0.5
KINDS = ({"flows": 64}, {"flows": 1_000_000, "zipf": 1.1})
DUT = Path(__file__).parents[1] / "tests/generators/dut.bpf.c"


def main() -> None:
    with use_lab("netns:bench-flows") as lab, tempfile.TemporaryDirectory() as folder:
        built, on_dut = f"{folder}/dut.bpf.o", f"{lab.work_dir(lab.dut)}/dut.bpf.o"
        machine = subprocess.run(["cc", "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
        clang = ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{machine}", "-c", str(DUT)]
        subprocess.run([*clang, "-o", built], check=True)
        lab.dut.put(Path(built), on_dut)
        xdpgen = build_tool(lab.tg, "xdpgen", lab.work_dir(lab.tg))
        link = ("ip", "link", "set", "dev", lab.dut_interface, "xdpdrv")
        lab.dut.run([*link, "object", on_dut, "section", "xdp/reflect"])
        base = GeneratorSettings("live", lab.tg_interface, run_id="beef")
        base = base.changed(src_mac=lab.tg_mac, dst_mac=lab.dut_mac, stamp=16, fifo=20)
        ratios = []
        for _ in range(PAIRS):
            rates = []
            for kind in KINDS:
                with Generator(lab.tg, base.changed(**kind), xdpgen, deadline_s=60.0) as generator:
                    generator.start()
                    generator.burst("warmup", 0.2)
                    summary = generator.burst("measure", SECONDS).summary
                    generator.stop()
                rates.append((summary.rx_packets or 0) / summary.duration_s)
            ratios.append(rates[1] / rates[0])
            print(f"{rates[0] / 1e6:.2f} {rates[1] / 1e6:.2f} Mpps  {ratios[-1]:.3f}")
        print(f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
