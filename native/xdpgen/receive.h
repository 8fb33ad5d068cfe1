// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

// Attaches the receiving program by a link, natively; refuses where another one is attached.
int receive_open(const struct session *session);

// Where the receiving program keeps when frames of a stream came back; with --tx-stamp device.
const struct arrival *receive_arrivals(unsigned stream);

// The receiving program, for whoever hands it frames without a link.
int receive_program_fd(void);

void receive_close(void);
