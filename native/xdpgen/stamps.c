// SPDX-License-Identifier: Apache-2.0
#include "stamps.h"
#include "histograms.h"

#include <string.h>

void stamps_reset(struct sent_stamps *stamps) {
    stamps->totals = (struct sent_totals){.latency = HISTOGRAM_EMPTY};
    memset(stamps->sent, 0, sizeof(stamps->sent));
}

static void compare(struct sent_stamps *stamps, struct sent *sent) {
    const struct arrival *arrival = &stamps->arrivals[sent->number & (ARRIVAL_SLOTS - 1)];
    struct sent_totals *totals = &stamps->totals;

    if (sent->ns && arrival->ns && arrival->number == sent->number) {
        totals->matched++;
        totals->bad += !histogram_record(&totals->latency, arrival->ns - sent->ns);
    }
    sent->ns = 0;
}

void stamps_record(struct sent_stamps *stamps, uint64_t number, uint64_t ns) {
    struct sent *sent = &stamps->sent[number & (SENT_SLOTS - 1)];

    if (!ns) {
        stamps->totals.unstamped++;
        return;
    }
    compare(stamps, sent);
    *sent = (struct sent){.number = number, .ns = ns};
    stamps->totals.stamped++;
}

void stamps_finish(struct sent_stamps *stamps) {
    for (unsigned slot = 0; slot < SENT_SLOTS; slot++)
        compare(stamps, &stamps->sent[slot]);
}

void stamps_add(struct sent_totals *sum, const struct sent_totals *one) {
    sum->stamped += one->stamped;
    sum->unstamped += one->unstamped;
    sum->matched += one->matched;
    sum->bad += one->bad;
    histogram_add(&sum->latency, &one->latency);
}
