// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"
#include "frame_sizes.h"
#include "shared.h"

#include <stdbool.h>
#include <stdint.h>

#define MAX_BURSTS 32
#define MAX_BURST_NAME 32
#define MAX_BURST_SECONDS 3600

struct burst_request {
    char name[MAX_BURST_NAME];
    double seconds;
};

struct burst_list {
    unsigned count;
    struct burst_request bursts[MAX_BURSTS];
};

// What was asked for, every default filled in. Addresses are in network byte order, strides in host order.
struct options {
    const char *interface;
    const char *receive_on; // the receiving device; the sending one where no other is named
    const char *engine;
    unsigned queues;
    struct cpu_list cpus; // empty: the first ones this process may use
    unsigned fifo;        // 0: no real-time priority
    struct frame_sizes sizes;
    unsigned vlan; // NO_VLAN: no tag
    unsigned ip_version;
    struct frame_layout layout; // of these two
    bool usual;                 // the frames: IPv4, no tag, one size, no stamp by the device
    unsigned flows;
    double zipf;  // exponent; 0: the flows take turns
    double churn; // flows that are replaced in each second
    unsigned flow_seed;
    double rate_pps; // 0: max
    unsigned burst;  // paced: frames that are due at once
    unsigned run_id;
    uint8_t src_mac[6]; // zeros: the interface's own
    uint8_t dst_mac[6];
    uint32_t src_ip, dst_ip;
    uint32_t src_ip_stride, dst_ip_stride;
    unsigned src_port, dst_port, port_stride;
    unsigned stamp_every; // 0: none
    unsigned stamp_seed;  // 0: from the clock
    struct burst_list bursts;
    bool device_stamps;    // received frames are timed by the device
    bool tx_device_stamps; // and sent ones
    bool step;
    unsigned long long max_frames; // per burst; 0: no limit
    double settle_s;
    unsigned batch;        // 0: the engine's own choice
    bool zerocopy;         // afxdp: bind with zero copy, or not at all
    bool need_wakeup;      // afxdp: call the kernel only if it asks for that
    unsigned busy_poll_us; // afxdp: 0: none
    const char *frames;
    double recorded; // with the gaps of the file, so many times as fast; 0: by rate_pps
    bool no_receive;
    bool whole;
    bool plain;     // live: frames that are not written to, counted by the devices
    unsigned alone; // enum alone
};

// Reads the command line; prints help (exit 0) or what is wrong with it (exit 2) and does not return
// otherwise.
void options_parse(struct options *options, int argc, char **argv);

// "NAME:SECONDS" in the list, "NAME SECONDS" on stdin. Returns false where it is neither.
bool burst_parse(struct burst_request *burst, const char *text, char separator);
