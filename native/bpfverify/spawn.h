// SPDX-License-Identifier: Apache-2.0
// Another verifier, as a process with limits: `bpfverify --run SECONDS BYTES COMMAND…`.
#pragma once

// Runs the command with its own output streams, then prints one JSON line. `arguments` begin after `--run`.
int spawn(char **arguments);
