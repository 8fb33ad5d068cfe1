// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

// Sends for the given time, settles, reads, and prints intervals, summary and histogram.
int burst_run(struct session *session, const struct burst_request *request);
