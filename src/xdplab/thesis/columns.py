"""The additional columns of an imported run: the source of each number, and the thesis' printed values."""

from __future__ import annotations

from xdplab.run.metrics import METRICS, SAMPLES, Metric

TRIAL_EXTRAS = (
    Metric("source", "str", "", "id", "imported: folder of the repetition in the published data"),
    Metric("generator_file", "str", "", "id", "imported: the generator's log"),
    Metric("generator_line", "int", "", "id", "imported: line of the receiver's last row in it"),
    Metric("sar_file", "str", "", "id", "imported: sar's log"),
    Metric("sar_line", "int", "", "id", "imported: line of CPU 0 in sar's last sample"),
    Metric("sar_lines", "json", "", "id", "imported: line of CPU 0 in each of sar's samples within the traffic"),
    Metric("perf_file", "str", "", "id", "imported: perf's log"),
    Metric("perf_lines", "json", "", "id", "imported: line of each perf event, a JSON object"),
    Metric("file_sha256", "json", "", "id", "imported: sha256 of each of these files, a JSON object"),
    Metric("program_file", "str", "", "id", "imported: the C file of the program that was measured"),
    Metric("program_counts", "json", "", "state", "imported: what the proof counts in it for each packet"),
    Metric("anomalies", "json", "", "state", "imported: what is wrong with these files, a JSON list"),
    Metric("dut_interface", "str", "", "state", "imported: the DUT's interface whose counts are used"),
    Metric("tg_count_pps", "float", "1/s", "rate", "frames the TG counted a second, in the window both hosts saw"),
    Metric("dut_count_pps", "float", "1/s", "rate", "frames the DUT's interface sent a second, in the same window"),
    Metric("rate_step_share", "float", "1", "share", "imported: a change of the rate in mid-run, over the rate before"),
    Metric("rate_step_s", "float", "s", "time", "imported: when it changed"),
    Metric("latency_open_ns", "float", "ns", "time", "imported: what the printed digits leave open to either side"),
    Metric("latency_levels_ns", "json", "ns", "time", "imported: the two levels of the seconds, where they have two"),
    Metric("latency_how", "str", "", "state", "imported: how latency_mean_ns was had from the printed running mean"),
    Metric("latency_decimals", "int", "", "state", "imported: digits behind the point of the printed latency in s"),
    Metric("softirq_by_cpu_percent", "json", "%", "share", "imported: softirq of each CPU, mean of the steady samples"),
    Metric("user_percent", "float", "%", "share", "imported: user and system time of all CPUs; 100 is one core"),
    Metric("dut_stage", "str", "", "state", "imported: AF_XDP's stage that limits, where it is not the application"),
    Metric("perf_target", "str", "", "state", "imported: whom perf counted, by its header"),
    Metric("published_rx_mean_pps", "float", "1/s", "rate", "imported: the printed mean receive rate in the last row"),
    Metric("published_latency_s", "float", "s", "time", "imported: the printed running mean in the last row"),
    Metric("published_softirq_percent", "json", "%", "share", "imported: softirq of CPUs 0 to 7 in sar's last sample"),
    Metric("published_instructions", "float", "", "count", "imported: perf's count, whomever it counted"),
    Metric("published_branches", "float", "", "count", "imported: perf's count, whomever it counted"),
    Metric("published_l1d_loads", "float", "", "count", "imported: perf's count, whomever it counted"),
    Metric("published_l1d_misses", "float", "", "count", "imported: perf's count, whomever it counted"),
)
TRIAL_COLUMNS = METRICS + TRIAL_EXTRAS
SAMPLE_EXTRAS = (
    Metric("latency_mean_s", "float", "s", "time", "imported: running mean at the end of the interval, as printed"),
    Metric("latency_s", "float", "s", "time", "imported: mean of the interval's own frames, where digits allow it"),
    Metric("usr_percent", "float", "%", "share", "imported: of one CPU in the interval"),
    Metric("sys_percent", "float", "%", "share", "imported: of one CPU in the interval"),
    Metric("irq_percent", "float", "%", "share", "imported: of one CPU in the interval"),
    Metric("soft_percent", "float", "%", "share", "imported: of one CPU in the interval"),
    Metric("idle_percent", "float", "%", "share", "imported: of one CPU in the interval"),
)
SAMPLE_COLUMNS = SAMPLES + SAMPLE_EXTRAS
