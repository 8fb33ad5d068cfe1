// SPDX-License-Identifier: Apache-2.0
// The warnings of libbpf and libxdp.
#pragma once

// Keeps them for the error line.
void collect_warnings(void);
