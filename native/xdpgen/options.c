// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "frame_options.h"
#include "run_id.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_rate(const struct option_row *row, void *target, const char *text) {
    *(double *)target = 0;
    return !strcmp(text, "max") || option_number(row, target, text);
}

static bool parse_skew(const struct option_row *row, void *target, const char *text) {
    static const char zipf[] = "zipf:";

    *(double *)target = 0;
    return !strcmp(text, "uniform") ||
           (!strncmp(text, zipf, strlen(zipf)) && option_number(row, target, text + strlen(zipf)));
}

static bool parse_stamp(const struct option_row *row, void *target, const char *text) {
    static const struct {
        const char *word;
        unsigned every;
    } words[] = {{"none", 0}, {"all", 1}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(text, words[i].word)) {
            *(unsigned *)target = words[i].every;
            return true;
        }
    return option_unsigned(row, target, text);
}

static bool parse_alone(const struct option_row *row, void *target, const char *text) {
    (void)row;
    *(unsigned *)target = !strcmp(text, "sender")     ? ALONE_SENDER
                          : !strcmp(text, "receiver") ? ALONE_RECEIVER
                                                      : ALONE_NOT;
    return *(unsigned *)target != ALONE_NOT;
}

static bool parse_bind(const struct option_row *row, void *target, const char *text) {
    (void)row;
    *(bool *)target = !strcmp(text, "zerocopy");
    return *(bool *)target || !strcmp(text, "copy");
}

static bool parse_stamper(const struct option_row *row, void *target, const char *text) {
    (void)row;
    *(bool *)target = !strcmp(text, "device");
    return *(bool *)target || !strcmp(text, "software");
}

static bool parse_mac(const struct option_row *row, void *target, const char *text) {
    (void)row;
    if (!strcmp(text, "own"))
        return memset(target, 0, 6);
    return ether_aton_r(text, target);
}

static bool parse_ip(const struct option_row *row, void *target, const char *text) {
    (void)row;
    return inet_aton(text, target);
}

static bool parse_stride(const struct option_row *row, void *target, const char *text) {
    if (!parse_ip(row, target, text))
        return false;
    *(uint32_t *)target = ntohl(*(uint32_t *)target);
    return true;
}

bool burst_parse(struct burst_request *burst, const char *text, char separator) {
    const char *found = strchr(text, separator);
    size_t length = found ? found - text : 0;

    if (!length || length >= MAX_BURST_NAME)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_-.", text[i]))
            return false;
    memcpy(burst->name, text, length);
    burst->name[length] = 0;
    return option_number(&(struct option_row){.most = MAX_BURST_SECONDS}, &burst->seconds, found + 1) &&
           burst->seconds > 0;
}

static bool parse_bursts(const struct option_row *row, void *target, const char *text) {
    struct burst_list *list = target;
    char copy[1024], *rest = copy, *part;

    (void)row;
    if (strlen(text) >= sizeof(copy))
        return false;
    strcpy(copy, text);
    for (list->count = 0; (part = strsep(&rest, ",")); list->count++)
        if (list->count == MAX_BURSTS || !burst_parse(&list->bursts[list->count], part, ':'))
            return false;
    return true;
}

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"interface", "IF", NULL, option_text, AT(interface), 0, 0, "the TG's device: sends and receives"},
    {"receive-on", "IF", NULL, option_text, AT(receive_on), 0, 0,
     "receive on this device: for a DUT that forwards from one port to another (default: --interface)"},
    {"engine", "live|afxdp", "live", option_text, AT(engine), 0, 0,
     "how to send: BPF live frames, or AF_XDP sockets"},
    {"queues", "Q", "1", option_unsigned, AT(queues), 1, MAX_STREAMS,
     "queues to reach; live: CPU c reaches queue c mod Q"},
    {"cpus", "C,C", NULL, option_cpus, AT(cpus), 0, 0,
     "CPUs that send, one thread each (default: the first Q this process may "
     "use)"},
    {"fifo", "PRIORITY", "5", option_unsigned, AT(fifo), 0, 98,
     "SCHED_FIFO priority of the sending threads; the controlling one has one "
     "more; 0: none"},
    {"frame-bytes", "BYTES[,BYTES]", "64", option_frame_sizes, AT(sizes), 64, MOST_FRAME_BYTES,
     "frame size, FCS included; several (IMIX): each stream sends these sizes in turn"},
    {"vlan", "ID|none", "none", option_vlan, AT(vlan), 0, 4094,
     "VLAN tag of every frame, which then has 72 bytes at least"},
    {"ip-version", "4|6", "4", option_ip_version, AT(ip_version), 4, 6,
     "6: frames of at least 88 bytes; an address A becomes 2001:2::A"},
    {"flows", "F", "64", option_unsigned, AT(flows), 1, MAX_FLOWS,
     "flows, each with its own addresses and port"},
    {"skew", "uniform|zipf:S", "uniform", parse_skew, AT(zipf), 0.01, 4,
     "how frames spread over a stream's flows: in turn, or drawn, the r-th one by r to the power of -S"},
    {"churn", "N", "0", option_number, AT(churn), 0, 1e6,
     "flows that end in each second, in turn, each replaced by one with the next addresses and port"},
    {"flow-seed", "SEED", "1", option_unsigned, AT(flow_seed), 0, UINT32_MAX,
     "seed of the drawn flows: each burst has the same draws"},
    {"load", "max|PPS", "max", parse_rate, AT(rate_pps), 0.1, 1e9, "frames per second over all queues"},
    {"burst", "N", "1", option_unsigned, AT(burst), 1, 65536,
     "paced: each stream sends N frames back to back, then waits: --load stays the mean rate"},
    {"run-id", "HEX", "0", option_run_id, AT(run_id), 0, 0,
     "16 bits that tell runs apart (longer ids are folded)"},
    {"src-mac", "MAC", "own", parse_mac, AT(src_mac), 0, 0, "source address (own: the interface's)"},
    {"dst-mac", "MAC", "02:78:64:70:00:02", parse_mac, AT(dst_mac), 0, 0, "destination address"},
    {"src-ip", "A", "198.18.0.1", parse_ip, AT(src_ip), 0, 0, "source address of flow 0"},
    {"dst-ip", "A", "198.19.0.1", parse_ip, AT(dst_ip), 0, 0, "destination address of flow 0"},
    {"src-ip-stride", "A", "0.0.0.0", parse_stride, AT(src_ip_stride), 0, 0, "added from flow to flow"},
    {"dst-ip-stride", "A", "0.0.0.1", parse_stride, AT(dst_ip_stride), 0, 0, "added from flow to flow"},
    {"src-port", "PORT", "1024", option_unsigned, AT(src_port), 0, 65535, "UDP source port of flow 0"},
    {"dst-port", "PORT", "50220", option_unsigned, AT(dst_port), 0, 65535,
     "UDP destination port of every flow"},
    {"port-stride", "N", "0", option_unsigned, AT(port_stride), 0, 65535,
     "added to the source port from flow to flow"},
    {"stamp", "all|N|none", "all", parse_stamp, AT(stamp_every), 1, 1e9,
     "frames that carry a time stamp: every one, one in N at random, none"},
    {"stamp-seed", "SEED", "0", option_unsigned, AT(stamp_seed), 0, UINT32_MAX,
     "seed of the first burst's draw of stamped frames, the next burst has the next one; 0: from the clock"},
    {"rx-stamp", "software|device", "software", parse_stamper, AT(device_stamps), 0, 0,
     "who tells when a stamped frame came back: the receiving program's clock, or the device (XDP metadata)"},
    {"tx-stamp", "software|device", "software", parse_stamper, AT(tx_device_stamps), 0, 0,
     "afxdp: who tells when a stamped frame was sent: the clock of its sender, or the device (AF_XDP "
     "metadata)"},
    {"bursts", "NAME:S,NAME:S", "warmup:0.2,measure:1.0", parse_bursts, AT(bursts), 0, 0,
     "bursts and their seconds (at most 3600 each)"},
    {"step", NULL, NULL, option_flag, AT(step), 0, 0,
     "take bursts from stdin instead, one `burst NAME SECONDS` per line; its end "
     "ends the program, and `release` marks where what belongs together ends"},
    {"max-frames", "N", NULL, option_count, AT(max_frames), 1, 1e15, "send no more than N frames per burst"},
    {"settle", "S", "0.05", option_number, AT(settle_s), 0, 10,
     "seconds to wait for the last frames of a burst, at most"},
    {"batch", "N", NULL, option_unsigned, AT(batch), 1, 256,
     "frames handed over at once (default: the engine's own choice)"},
    {"bind", "copy|zerocopy", "copy", parse_bind, AT(zerocopy), 0, 0,
     "afxdp: how the kernel takes the frames; zerocopy is refused where the driver has none"},
    {"need-wakeup", NULL, NULL, option_flag, AT(need_wakeup), 0, 0,
     "afxdp: call the kernel only when it asks for it (XDP_USE_NEED_WAKEUP)"},
    {"busy-poll", "US", "0", option_unsigned, AT(busy_poll_us), 0, 10000,
     "afxdp: poll the device's queue in the sending call (SO_BUSY_POLL), so long at most; 0: not"},
    {"frames", "FILE", NULL, option_text, AT(frames), 0, 0,
     "afxdp: send this pcap's frames unchanged, over and over; they are not "
     "recognised when they come back"},
    {"recorded", "K", "0", option_number, AT(recorded), 0, 1e6,
     "with --frames: with the file's own gaps, K times as fast; of Q queues each sends one frame in Q; 0: by "
     "--load"},
    {"alone", "sender|receiver", NULL, parse_alone, AT(alone), 0, 0,
     "live: frames that do not leave; dropped as they are made, or handed to the receiving program"},
    {"whole", NULL, NULL, option_flag, AT(whole), 0, 0,
     "live: write each frame whole from the start, instead of once a payload came back changed"},
    {"plain", NULL, NULL, option_flag, AT(plain), 0, 0,
     "live: one flow's frames as the kernel makes them, without numbers and stamps, counted by the devices: "
     "rates and loss only"},
    {"no-receive", NULL, NULL, option_flag, AT(no_receive), 0, 0, "do not attach the receiving program"},
};

static const struct command_line LINE = {
    .usage = "--interface IF [options]",
    .about = "Sends test frames, receives what comes back, and prints one JSON object per line: ready, then "
             "for each\n"
             "burst its intervals, summary and histogram, or one error.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
};

static const char *too_short(const struct options *options) {
    static char text[64];
    const unsigned least = frame_least_bytes(&options->layout);

    snprintf(text, sizeof(text), "--frame-bytes: these frames have at least %u bytes", least + ETH_FCS_LEN);
    for (unsigned index = 0; index < options->sizes.count; index++)
        if (options->sizes.bytes[index] < least)
            return text;
    return NULL;
}

static bool names_a_cpu_twice(const struct cpu_list *list) {
    for (unsigned i = 0; i < list->count; i++)
        for (unsigned j = 0; j < i; j++)
            if (list->cpus[i] == list->cpus[j])
                return true;
    return false;
}

static const char *contradiction(const struct options *options) {
    if (!options->interface)
        return "--interface is missing";
    if (strlen(options->interface) >= IF_NAMESIZE)
        return "--interface: no device has so long a name";
    if (names_a_cpu_twice(&options->cpus))
        return "--cpus names a CPU twice: each has one thread";
    if (options->receive_on && (options->alone || options->no_receive))
        return "--receive-on goes with neither --alone nor --no-receive";
    if (options->frames && strcmp(options->engine, "afxdp"))
        return "--frames needs --engine afxdp: live frames are made by a program";
    if (options->frames && options->sizes.count > 1)
        return "--frames: the frames of a file have sizes of their own, --frame-bytes names several";
    if (options->frames && (options->zipf || options->churn))
        return "--frames: the frames of a file have flows of their own: no --skew, no --churn";
    if (options->recorded && (!options->frames || options->rate_pps))
        return "--recorded goes with --frames, whose gaps they are, and without --load";
    if (options->burst > 1 && !options->rate_pps)
        return "--burst needs a --load: at max all frames are sent back to back";
    if ((options->zerocopy || options->need_wakeup || options->busy_poll_us) &&
        strcmp(options->engine, "afxdp"))
        return "--bind zerocopy, --need-wakeup and --busy-poll need --engine afxdp";
    if (options->alone && strcmp(options->engine, "live"))
        return "--alone needs --engine live";
    if (options->plain && strcmp(options->engine, "live"))
        return "--plain needs --engine live";
    if (options->plain &&
        (options->rate_pps || options->max_frames || options->sizes.count > 1 || options->zipf ||
         options->churn || options->alone || options->device_stamps || options->whole))
        return "--plain sends one frame as fast as it can: no --load, --max-frames, second size, --skew, "
               "--churn, "
               "--alone, --rx-stamp device, --whole";
    if (options->device_stamps && (options->alone || options->no_receive))
        return "--rx-stamp device needs a device that receives: it goes with neither --alone nor "
               "--no-receive";
    if (options->tx_device_stamps && !(options->zerocopy && options->device_stamps))
        return "--tx-stamp device needs --bind zerocopy (by copy, the kernel writes a time of its own) and "
               "--rx-stamp device (the same clock)";
    if (options->tx_device_stamps && (options->frames || !options->stamp_every))
        return "--tx-stamp device needs test frames that are stamped";
    if (options->alone == ALONE_RECEIVER && options->no_receive)
        return "--alone receiver and --no-receive contradict each other";
    return too_short(options);
}

void options_parse(struct options *options, int argc, char **argv) {
    memset(options, 0, sizeof(*options));
    command_line_read(&LINE, options, argc, argv);
    options->layout = frame_layout(options->vlan, options->ip_version);
    options->usual = options->layout.head_words == PLAIN_HEAD_WORDS && options->sizes.count == 1 &&
                     !options->tx_device_stamps;
    if (contradiction(options))
        command_line_refuse("%s", contradiction(options));
    if (options->plain)
        options->flows = 1, options->stamp_every = 0;
    options->receive_on = options->receive_on ?: options->interface;
}
