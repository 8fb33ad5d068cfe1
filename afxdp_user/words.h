// SPDX-License-Identifier: Apache-2.0
// What libbpf and libxdp say.
#pragma once

// Keeps their warnings, so that they end up in the error line.
void collect_words(void);
