// SPDX-License-Identifier: Apache-2.0
// A network interface by its name. A driver that is loaded anew makes another one of the same name.
#pragma once

// Its index. Ends the process with an error line where there is none.
int interface_find(const char *name);

// Ends the process with an error line where the interface of this index is gone. The kernel refuses it like a
// wrong request (EINVAL), which says nothing about its driver.
void interface_require(const char *name, int ifindex);
