// SPDX-License-Identifier: Apache-2.0
// In builds with SANITIZE only. A tool ends by exiting, with its BPF objects still open: that is no leak.
// NOLINTBEGIN(bugprone-reserved-identifier): AddressSanitizer looks for this name.
const char *__asan_default_options(void);

const char *__asan_default_options(void) { return "detect_leaks=0"; }
// NOLINTEND(bugprone-reserved-identifier)
