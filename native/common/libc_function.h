// SPDX-License-Identifier: Apache-2.0
// A tool has a function of libc's name, which libraries call instead. Here it finds libc's own.
#pragma once

#include <dlfcn.h>

static inline void *libc_function(const char *name) { return dlsym(RTLD_NEXT, name); }
