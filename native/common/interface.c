// SPDX-License-Identifier: Apache-2.0
#include "interface.h"
#include "fail.h"

#include <errno.h>
#include <net/if.h>
#include <stddef.h>

int interface_find(const char *name) {
    int ifindex = if_nametoindex(name);
    if (!ifindex)
        fail("interface", errno, NULL, "there is no interface %s", name);
    return ifindex;
}

void interface_require(const char *name, int ifindex) {
    if (interface_find(name) != ifindex)
        fail("interface", ENODEV, NULL, "the interface %s is gone: there is another one of this name", name);
}
