// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

// Time between two frames of one stream, and when its first is due, in 2^-20 ns.
uint64_t pace_interval(const struct session *session);
uint64_t pace_first_due(const struct session *session, unsigned stream);
