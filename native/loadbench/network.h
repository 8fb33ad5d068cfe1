// SPDX-License-Identifier: Apache-2.0
// Something to attach to: a veth pair in a network namespace that ends with this process.
#pragma once

// Returns the index of the interface NETWORK_INTERFACE, which is up. Fails with the reason.
int network_make(void);

#define NETWORK_INTERFACE "veth0"
