// SPDX-License-Identifier: Apache-2.0
#include "warnings.h"
#include "refusal.h"

#include <xdp/libxdp.h>

static int keep_libxdp(enum libxdp_print_level level, const char *format, va_list arguments) {
    if (level == LIBXDP_WARN)
        refusal_keep(format, arguments);
    return 0;
}

void collect_warnings(void) {
    refusal_collect();
    libxdp_set_print(keep_libxdp);
}
