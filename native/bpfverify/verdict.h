// SPDX-License-Identifier: Apache-2.0
// Why a program was not accepted: six classes, so that what the machine lacks is not taken for what the
// verifier found.
#pragma once

#include "record.h"

void judge_load(struct record *record);  // after BPF_PROG_LOAD, by its errno and log
void judge_words(struct record *record); // it never came to BPF_PROG_LOAD: by the loader's words
