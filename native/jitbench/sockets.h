// SPDX-License-Identifier: Apache-2.0
// Classic filters on sockets.
#pragma once

#include "bench.h"

int attach_filter(struct subject *subject, int socket); // none where the subject has no code
