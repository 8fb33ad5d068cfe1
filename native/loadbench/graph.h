// SPDX-License-Identifier: Apache-2.0
// function_graph around the calls that are measured, in a kernel that nothing else traces. The trace is the
// caller's to parse: `cycle N` and `done N` stand in it before and after the N-th.
#pragma once

// Arms the tracer for those of `functions` (comma-separated) that this kernel can trace. Fails with the
// reason.
void graph_arm(const char *functions);
void graph_begin(unsigned cycle);
void graph_end(unsigned cycle);

// Copies the trace to `path` and puts the tracer back as it was.
void graph_finish(const char *path);
