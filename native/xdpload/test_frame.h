// SPDX-License-Identifier: Apache-2.0
// The frame BPF_PROG_TEST_RUN gets: UDP over IPv4, as xdpgen sends by default.
#pragma once

#include <stddef.h>

#define TEST_FRAME_MIN 42 // Ethernet, IPv4 and UDP headers

void fill_test_frame(unsigned char *frame, size_t length);
