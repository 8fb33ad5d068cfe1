// SPDX-License-Identifier: Apache-2.0
// bpf(2), past any interposer: libbpf's own calls are what it interposes.
#pragma once

long bpf_call(int command, void *attributes, unsigned int size);
