// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flows.h"

// How the streams draw their flows by Zipf's law: the flow of rank r, from 0, has a share proportional to
// (r + 1)^-exponent. Returns 0 or a negative errno after failed().
int ranks_fill(struct ranks ranks[2], const struct flows *flows, double exponent);
