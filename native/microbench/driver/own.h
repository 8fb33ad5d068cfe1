// SPDX-License-Identifier: Apache-2.0
// A user's own BPF object or module: loaded, its event triggered, its times read and printed.
#ifndef MICROBENCH_OWN_H
#define MICROBENCH_OWN_H

void own_run(void);

#endif
