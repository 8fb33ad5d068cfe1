// SPDX-License-Identifier: Apache-2.0
#include "pace.h"

uint64_t pace_interval(const struct session *session) {
    if (!session->options.rate_pps)
        return 0;
    return 1e9 * (1 << SCHEDULE_SHIFT) * session->streams / session->options.rate_pps;
}

uint64_t pace_first_due(const struct session *session, unsigned stream) {
    return pace_interval(session) / session->streams * stream;
}
