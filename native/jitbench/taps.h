// SPDX-License-Identifier: Apache-2.0
// Packet sockets, as tcpdump and DHCP clients have them, that see IPv4 on all devices through a filter.
#pragma once

#include "bench.h"

// One socket, there while a round of its subject lasts.
int tap_open(struct subject *subject);
void tap_close(struct subject *subject);
// Reads what it let through: sets `verdict` to the length of the first packet, 0 without any, and adds
// their number to `passed`.
int tap_read(struct subject *subject);

// As many as the subject's `number`, with its filter, in the network namespace of now. Nobody reads them:
// they are full after the first packets, so that a packet costs the filter and no copy.
int taps_open(struct subject *subject);
void taps_close(struct subject *subject);
int taps_begin(struct subject *subject); // before a round
// Sets `passed`, and `verdict` to whether each of them has let through every packet of `times` (1) or none
// (0).
int taps_judge(struct subject *subject, long times);
