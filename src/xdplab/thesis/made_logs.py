"""Made-up logs in the thesis' formats: the published ones have no licence to travel along.

The numbers follow t = t0 + c N, with what went wrong there placed on purpose. Tests read `tree`; notebook 05 reads
`study` where the thesis' own logs are not at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

TITLE = "  Time    TX Packets     TX Packet Rate Avg TX Packet Rate    RX Packets     RX Packet Rate Avg RX Packet Rate"
T0_NS, C_NS = 1000.0, 3.0
SAR_BEGINS_S, SAR_LEADS_S = 10 * 3600, 11.0  # of the day; before the traffic
CPUS = 16
SECONDS = 60  # of a run of the generator


def rate_pps(accesses: int, queues: int = 1, *, c_ns: float = C_NS) -> float:
    return queues * 1e9 / (T0_NS + c_ns * accesses)


def generator(
    rx_pps: float,
    *,
    tx_pps: float = 1.6e7,
    latency_s: float = 0.04,
    decimals: int | None = 10,
    foreign_at: int | None = None,
) -> str:
    """Return one run. A foreign frame in second ``foreign_at`` subtracts 1e6 s from the sum of latencies."""
    lines = [f"{TITLE}{'' if decimals is None else '       Latency mean'}  Core  Port"]
    for second in range(1, SECONDS + 1):
        lines.append(_row(second, (round(second * tx_pps), tx_pps), (0, 0.0), _latency(0.0, decimals and 2), 1))
        if second < SECONDS:
            time_s = second + 0.5
            packets = round(time_s * rx_pps)
            total = packets * latency_s - (1e6 if foreign_at is not None and second >= foreign_at else 0.0)
            mean = total / packets if packets else 0.0
            lines.append(_row(time_s, (0, 0.0), (packets, rx_pps), _latency(mean, decimals), 2))
    return "\n".join(lines) + "\n"


def _latency(seconds: float, decimals: int | None) -> list[str]:
    return [] if decimals is None else [f"{seconds:17.{decimals}f}"]


def _row(time_s: float, tx: tuple[int, float], rx: tuple[int, float], latency: list[str], core: int) -> str:
    counts = [f"{packets:12d}, {rate:17.2f}, {rate:17.2f}" for packets, rate in (tx, rx)]
    return ", ".join([f"{time_s:6.3f}", *counts, *latency, f"{core:4d}", f"{0:4d}"])


def sar(
    rx_pps: float, tx_pps: float, soft: Mapping[int, float], *, samples: int = 25, last: float | None = None
) -> str:
    """Return ``samples`` of 2 s around traffic that begins after SAR_LEADS_S; ``soft`` is % of a CPU while it runs.

    ``last`` is what every busy CPU has in the last sample alone.
    """
    parts = [f"Linux 5.13.0 (host) \t03/01/2022 \t_x86_64_\t({CPUS} CPU)"]
    for sample in range(1, samples + 1):
        share = min(1.0, max(0.0, (2 * sample - SAR_LEADS_S) / 2))
        values = {
            cpu: (last if last is not None and sample == samples else value * share) for cpu, value in soft.items()
        }
        before, after = (clock(SAR_BEGINS_S + 2 * number) for number in (sample - 1, sample))
        parts += sar_blocks(before, after, values, (rx_pps * share, tx_pps * share))
    return "\n\n".join([*parts, *sar_blocks("Average:", "Average:", {}, (0, 0))]) + "\n"


def clock(seconds: int) -> str:
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def sar_blocks(
    before: str, after: str, soft: Mapping[int, float], rates: tuple[float, float], cpus: int = CPUS
) -> list[str]:
    """Return sar's blocks of CPUs and of interfaces for one sample: ``rates`` received and sent by `nic0`."""
    return [_cpus(before, after, [soft.get(cpu, 0.0) for cpu in range(cpus)]), _interfaces(before, after, *rates)]


def _comma(value: float) -> str:
    return f"{value:12.2f}".replace(".", ",")


def _cpus(before: str, after: str, soft: Sequence[float]) -> str:
    names = ["%usr", "%nice", "%sys", "%iowait", "%steal", "%irq", "%soft", "%guest", "%gnice", "%idle"]
    lines = [f"{before}        CPU" + "".join(f"{name:>10}" for name in names)]
    for cpu, value in (("all", 0.0), *enumerate(soft)):
        lines.append(f"{after}{cpu!s:>11}" + "".join(map(_comma, [0.0] * 6 + [value, 0.0, 0.0, 100.0 - value])))
    return "\n".join(lines)


def _interfaces(before: str, after: str, rx_pps: float, tx_pps: float) -> str:
    lines = [f"{before}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil"]
    for name, rx, tx in (("lo", 1.0, 1.0), ("nic0", rx_pps, tx_pps), ("nic1", 0.0, 0.0)):
        lines.append(f"{after}{name:>13}" + "".join(_comma(value) for value in (rx, tx, *[0.0] * 6)))
    return "\n".join(lines)


def _dots(value: int) -> str:
    return f"{value:,}".replace(",", ".")


def perf(instructions: int, *, misses: int | None = 7000, target: str = "'sleep 5'") -> str:
    missed = "<not counted>" if misses is None else _dots(misses)
    return f"""# started on Mon Jan  3 10:00:00 2022


 Performance counter stats for {target}:

              1,28 msec task-clock                #    0,000 CPUs utilized
      {_dots(instructions)}      instructions              #    1,08  insn per cycle
           204.219      branches                  #  171,986 M/sec
           267.087      L1-dcache-loads           #  224,931 M/sec
     {missed}      L1-dcache-load-misses     #    6,94% of all L1-dcache accesses  (16,12%)

       5,002348942 seconds time elapsed

       0,002399000 seconds user
       0,000000000 seconds sys

"""


def names(folder: str, hook: str, queues: int, accesses: int, size: int) -> dict[str, str]:
    """Return the path of each kind of log of one trial."""
    plus = f"combined_{queues}+algoritmo_for_0_a_{accesses}+pkt_{size}+ebpf_{hook}+varIP_0.0.0.255+timeout_60.txt"
    dots = plus.replace("+", ".")
    return {
        "generator": f"{folder}/gerador/for_0_a_{accesses}/res_{plus}",
        "sar": f"{folder}/sar/stats_sar_{dots}",
        "perf": f"{folder}/perf/stats_perf_{dots}",
    }


def tree() -> dict[str, str]:
    """Return path → text of a small study: native and AF_XDP, four N, several repetitions, and what went wrong."""
    files: dict[str, str] = {}
    for repetition in (1, 2, 3):
        for accesses in (0, 100, 800, 3200):
            rate = rate_pps(accesses)
            place = names(f"resultados{repetition}", "xdpdrv", 1, accesses, 64)
            files[place["generator"]] = generator(rate, latency_s=4096 / rate)
            files[place["sar"]] = sar(rate, rate, {0: 100.0}, last=50.0)
            files[place["perf"]] = perf(1_000_000 + accesses, misses=None if accesses else 7000)
    deaf = names("resultados2", "xdpdrv", 1, 3200, 64)
    files[deaf["generator"]] = generator(0.0)
    twice = names("resultados3", "xdpdrv", 1, 0, 64)
    files[twice["generator"]] = generator(5.0) + generator(rate_pps(0), latency_s=4096 / rate_pps(0))
    for repetition, c_ns in ((1, 3.0), (2, 9.0)):
        for accesses in (0, 100, 800, 3200):
            rate = rate_pps(accesses, c_ns=c_ns)
            place = names(f"resultados_af_xdp{repetition}", "xdpgeneric", 1, accesses, 64)
            files[place["generator"]] = generator(rate, latency_s=0.5, decimals=2)
            files[place["sar"]] = sar(2 * rate, rate, {0: 90.0, 1: 10.0})
    return files


SERVICE_NS = {"xdpdrv": (140.0, 2.8), "xdpgeneric": (940.0, 2.8), "af_xdp": (1150.0, 4.0)}
"""t0 and c of `study` by mode, in ns."""
LINK_BPS, BESIDE_BYTES, RING = 10e9, 20, 4096


def study() -> dict[str, str]:
    """Return path → text of a study with the factors of the thesis' figures 19 and 23.

    Native, generic and AF_XDP, 1 and 8 queues, 64 and 1500 bytes, six N, repetitions 3 and 4. The generator is deaf at
    native, 1 queue, N = 12,800 in repetition 3, one log holds two runs, and perf counted `sleep`.
    """
    files: dict[str, str] = {}
    for mode, queues, size, accesses, repetition in product(
        SERVICE_NS, (1, 8), (64, 1500), (0, 1, 100, 800, 3200, 12800), (3, 4)
    ):
        folder = f"resultados_af_xdp{repetition}" if mode == "af_xdp" else f"resultados{repetition}"
        place = names(folder, "xdpgeneric" if mode == "af_xdp" else mode, queues, accesses, size)
        serving = 1 if mode == "af_xdp" else queues  # one socket serves one queue
        t0_ns, c_ns = SERVICE_NS[mode]
        own_pps = serving * 1e9 / (t0_ns + c_ns * accesses) * (1.0 if repetition == 3 else 1.01)
        link_pps = LINK_BPS / 8 / (size + BESIDE_BYTES)
        rate = min(own_pps, link_pps)
        latency_s = RING * serving / rate if own_pps < link_pps else 0.0005
        deaf = (mode, queues, accesses, repetition) == ("xdpdrv", 1, 12800, 3)
        files[place["generator"]] = generator(0.0 if deaf else rate, tx_pps=link_pps, latency_s=latency_s)
        files[place["sar"]] = sar(rate, rate, dict.fromkeys(range(serving), min(100.0, 100 * rate / own_pps)))
        files[place["perf"]] = perf(1_000_000 + accesses)
    twice = names("resultados4", "xdpgeneric", 1, 0, 64)["generator"]
    files[twice] = generator(5.0) + files[twice]
    return files


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write ``files`` below ``folder``/experimentos, as a clone has them."""
    for name, text in files.items():
        path = folder / "experimentos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder
