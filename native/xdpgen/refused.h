// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

// Live frames the device did not take. Wanted, not needed: where it cannot be counted, `why` says so.

// Returns why it cannot be counted, or NULL.
const char *refused_open(const struct session *session);

// Counts from here on.
void refused_begin(void);

// Of the `sent` ones.
uint64_t refused_read(uint64_t sent);

void refused_close(void);
