// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"
#include "stamps.h"

struct stream_counts {
    uint64_t sent;
    uint64_t bytes; // of the frames of a file, without FCS: those of test frames follow from their numbers
    uint64_t stopped_ns;   // when it noticed the burst's end; 0: it did not
    uint64_t taken_ns;     // max load: when the kernel had taken its last frames; 0: before the burst's end
    struct looks looks;    // max load: at the clock
    uint64_t latest_ns;    // paced: how long after its due time a frame was sent, at most
    bool restored;         // live: frames are written whole, because the DUT changed a payload
    uint64_t unrestored;   // those sent before this was noticed
    uint64_t late_packets; // paced: frames sent more than LATE_NS after they were due
};

// What the kernel says of the sockets: of all of them.
struct socket_state {
    bool zerocopy, napi;
};

// One way of sending. All functions return 0 or a negative errno after failed().
struct engine {
    const char *name;
    unsigned (*batch)(const struct session *session); // its choice where none is asked for
    unsigned (*streams)(const struct options *options);
    unsigned (*queue_of)(const struct session *session, unsigned stream);
    int (*open)(struct session *session);
    // Starts the threads; when it returns they wait for the window. quotas: frames each stream may send.
    int (*arm)(struct session *session, const uint64_t quotas[MAX_STREAMS]);
    void (*go)(const struct send_window *window);
    // With --recorded: how many frames are due within so long. NULL: it sends none of a file.
    uint64_t (*due)(uint64_t ns);
    // What belongs together ends here: whatever was learnt of the DUT's program is forgotten. NULL: nothing
    // is.
    void (*release)(void);
    int (*read)(const struct session *session, struct stream_counts counts[MAX_STREAMS]);
    // How long after it was due each frame of a paced burst was made; once the threads have ended.
    int (*lateness)(const struct session *session, struct histogram *sum);
    // What the device told of when it sent, where --tx-stamp device asks; once no more frames come.
    void (*stamps)(const struct session *session, struct sent_totals *sum);
    // Ends the threads, whatever they are doing.
    int (*stop)(struct session *session);
    // How many of the burst's `sent` frames the device did not take; *why is set where that cannot be known.
    int (*errors)(const struct session *session, uint64_t sent, uint64_t *errors, const char **why);
    struct socket_state (*socket)(void); // NULL: it has no sockets
    void (*close)(void);
};

extern const struct engine live_engine, afxdp_engine;

// NULL where the name is unknown.
const struct engine *engine_find(const char *name);
