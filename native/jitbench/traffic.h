// SPDX-License-Identifier: Apache-2.0
// What benches with sockets on the loopback device share.
#pragma once

#include "taps.h"

// Goes to a network namespace of its own, whose loopback device is up.
int own_network(void);

// Times `once`, seen by one packet socket if the subject has a number. Taps are there only while their round
// lasts, or every subject would pay for all of them.
int through_tap(struct subject *subject, long times, int (*once)(struct subject *subject));

void close_sockets(struct subject *subject);
