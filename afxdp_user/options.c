// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "frame_options.h"
#include "run_id.h"
#include "socket.h"

#include <sched.h>

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"interface", "IF", NULL, option_text, AT(interface), 0, 0, "network interface to forward on"},
    {"queues", "Q", "1", option_unsigned, AT(queues), 1, MAX_QUEUES,
     "serve queues 0 to Q-1, a socket each, and a thread for all of a CPU"},
    {"attach", "generic|native", "native", option_word, AT(native), 0, 0, "how to attach the XDP program"},
    {"bind", "copy|zerocopy", "copy", option_word, AT(zerocopy), 0, 0, "how to bind the sockets"},
    {"workload", "FILE", NULL, option_text, AT(workload), 0, 0,
     "shared object with xdplab_workload, called per frame"},
    {"init", "FILE", NULL, option_text, AT(init), 0, 0,
     "file with one initial state for all queues, or one per queue in turn (zeros)"},
    {"cpus", "C,C", NULL, option_cpus, AT(cpus), 0, 0,
     "pin queue i to the i-th of these CPUs (all that this process may use)"},
    {"fifo", "PRIO", NULL, option_unsigned, AT(fifo), 1, 99, "run the threads SCHED_FIFO at this priority"},
    {"batch", "N", "64", option_unsigned, AT(batch), 1, FRAMES, "most frames taken from the ring at a time"},
    {"run-id", "HEX", "0", option_run_id, AT(run_id), 0, 0,
     "run id of the generator's test frames (with --frame-bytes)"},
    {"frame-bytes", "BYTES[,BYTES]", NULL, option_frame_sizes, AT(sizes), 64, MOST_FRAME_BYTES,
     "size or sizes of the test frames, FCS included: count frames that are not test frames (default: no "
     "check)"},
    {"vlan", "ID|none", "none", option_vlan, AT(vlan), 0, 4094,
     "VLAN tag of the test frames (with --frame-bytes)"},
    {"ip-version", "4|6", "4", option_ip_version, AT(ip_version), 4, 6,
     "IP version of the test frames (with --frame-bytes)"},
    {"frags", NULL, NULL, option_flag, AT(frags), 0, 0,
     "take and send frames in several descriptors too (XDP_USE_SG, Linux 6.6)"},
    {"busy", NULL, NULL, option_flag, AT(busy), 0, 0, "spin instead of sleeping in poll()"},
};

static const struct command_line LINE = {
    .usage = "--interface IF --workload FILE [options]",
    .about =
        "Receives every frame of some queues by AF_XDP, runs the workload on it (which swaps the MACs) and\n"
        "sends it back on the same queue. Prints one JSON object per line. The command `stats` on standard\n"
        "input prints the counters; the end of the input ends the program and detaches everything.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
};

static void allowed_cpus(struct cpu_list *list) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && list->count < MOST_CPUS; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            list->cpus[list->count++] = cpu;
}

void parse_options(struct options *options, int argc, char **argv) {
    *options = (struct options){};
    command_line_read(&LINE, options, argc, argv);
    if (!options->interface || !options->workload)
        command_line_refuse("%s is missing", options->interface ? "--workload" : "--interface");
    if (!options->cpus.count)
        allowed_cpus(&options->cpus);
}
