// SPDX-License-Identifier: Apache-2.0
// The sending program that looks at the kernel's record of each frame. An object of its own: a kernel without
// BTF, or before 6.2, refuses it.
#define SEES_FRAMES
#include "send.bpf.c"
