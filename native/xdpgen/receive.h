// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

struct bpf_object;

// Attaches the receiving program by a link, natively; refuses where another one is attached.
int receive_open(const struct session *session);

// Where the receiving program keeps when frames of a stream came back; with --tx-stamp device.
const struct arrival *receive_arrivals(unsigned stream);

// Where the receiving program reads how far a stream's churn was; NULL without churn or receiver.
struct churned *receive_churn(unsigned stream);

// Gives another object, which is not loaded yet, the map of that, or a map of its own without a receiver.
int receive_share_churn(const struct session *session, struct bpf_object *object);

// The receiving program, for whoever hands it frames without a link.
int receive_program_fd(void);

void receive_close(void);
