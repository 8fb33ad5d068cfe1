// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the command line into `effort` and the table of types; returns the index of the first object.
int options_read(int count, char **arguments);

// Seconds after which an object that is still being loaded is given up.
extern unsigned object_deadline_s;
