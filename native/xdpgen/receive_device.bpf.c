// SPDX-License-Identifier: Apache-2.0
// The receiving program with the device's own time stamps. An object of its own: a kernel before 6.3 would
// refuse the call even where it is never made.
#define DEVICE_STAMPS
#include "receive.bpf.c"
