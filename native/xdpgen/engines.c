// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <string.h>

const struct engine *engine_find(const char *name) {
    static const struct engine *const engines[] = {&live_engine, &afxdp_engine};

    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
        if (!strcmp(engines[i]->name, name))
            return engines[i];
    return NULL;
}
