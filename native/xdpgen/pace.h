// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

// Time between two events of one stream, in 2^-20 ns, where all streams together have so many; 0 for none.
uint64_t interval_of(double per_second, unsigned streams);

// Time between two bursts of one stream, and when its first is due, in 2^-20 ns.
uint64_t pace_interval(const struct session *session);
uint64_t pace_first_due(const struct session *session, unsigned stream);
