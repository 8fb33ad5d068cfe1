// SPDX-License-Identifier: Apache-2.0
#include "pace.h"

uint64_t interval_of(double per_second, unsigned streams) {
    return per_second ? 1e9 * (1 << SCHEDULE_SHIFT) * streams / per_second : 0;
}

uint64_t pace_interval(const struct session *session) {
    return interval_of(session->options.rate_pps / session->options.burst, session->streams);
}

uint64_t pace_first_due(const struct session *session, unsigned stream) {
    return pace_interval(session) / session->streams * stream;
}
