"""The additional columns of an imported run: the source of each number, and the thesis' printed values."""

from __future__ import annotations

from typing import Any

from xdplab.run.columns import Column
from xdplab.studies.traffic.columns import COLUMNS, SAMPLES

TRIAL_EXTRAS: tuple[Column[Any], ...] = (
    Column("source", "str", "id", "imported: folder of the repetition in the published data"),
    Column("generator_file", "str", "id", "imported: the generator's log"),
    Column("generator_line", "int", "id", "imported: line of the receiver's last row in it"),
    Column("sar_file", "str", "id", "imported: sar's log"),
    Column("sar_line", "int", "id", "imported: line of CPU 0 in sar's last sample"),
    Column("sar_lines", "json", "id", "imported: line of CPU 0 in each of sar's samples within the traffic"),
    Column("perf_file", "str", "id", "imported: perf's log"),
    Column("perf_lines", "json", "id", "imported: line of each perf event, a JSON object"),
    Column("file_sha256", "json", "id", "imported: sha256 of each of these files, a JSON object"),
    Column("program_file", "str", "id", "imported: the C file of the program that was measured"),
    Column("program_counts", "json", "state", "imported: what the proof counts in it for each packet"),
    Column("anomalies", "json", "state", "imported: what is wrong with these files, a JSON list"),
    Column("dut_interface", "str", "state", "imported: the DUT's interface whose counts are used"),
    Column("tg_count_pps", "float", "rate", "frames the TG counted a second, in the window both hosts saw"),
    Column("dut_count_pps", "float", "rate", "frames the DUT's interface sent a second, in the same window"),
    Column("rate_step_share", "float", "share", "imported: a change of the rate in mid-run, over the rate before"),
    Column("rate_step_s", "float", "time", "imported: when it changed"),
    Column("latency_open_ns", "float", "time", "imported: what the printed digits leave open to either side"),
    Column("latency_levels_ns", "json", "time", "imported: the two levels of the seconds, where they have two"),
    Column("latency_how", "str", "state", "imported: how latency_mean_ns was had from the printed running mean"),
    Column("latency_decimals", "int", "state", "imported: digits behind the point of the printed latency in s"),
    Column("softirq_by_cpu_percent", "json", "share", "imported: softirq of each CPU, mean of the steady samples"),
    Column("user_percent", "float", "share", "imported: user and system time of all CPUs; 100 is one core"),
    Column("dut_stage", "str", "state", "imported: AF_XDP's stage that limits, where it is not the application"),
    Column("perf_target", "str", "state", "imported: whom perf counted, by its header"),
    Column("published_rx_mean_pps", "float", "rate", "imported: the printed mean receive rate in the last row"),
    Column("published_latency_s", "float", "time", "imported: the printed running mean in the last row"),
    Column("published_softirq_percent", "json", "share", "imported: softirq of CPUs 0 to 7 in sar's last sample"),
    Column("published_instructions", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_branches", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_l1d_loads", "float", "count", "imported: perf's count, whomever it counted"),
    Column("published_l1d_misses", "float", "count", "imported: perf's count, whomever it counted"),
)
TRIAL_COLUMNS = COLUMNS + TRIAL_EXTRAS
SAMPLE_EXTRAS: tuple[Column[Any], ...] = (
    Column("latency_mean_s", "float", "time", "imported: running mean at the end of the interval, as printed"),
    Column("latency_s", "float", "time", "imported: mean of the interval's own frames, where digits allow it"),
    Column("usr_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("sys_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("irq_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("soft_percent", "float", "share", "imported: of one CPU in the interval"),
    Column("idle_percent", "float", "share", "imported: of one CPU in the interval"),
)
SAMPLE_COLUMNS = SAMPLES + SAMPLE_EXTRAS
