// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"
#include "fail.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

// The quantiles of the distribution function that is linear within each rank: where a slot lies within one
// rank, a draw has its share exactly; across ranks, the share is off by less than a slot's.
static void fill(struct ranks *ranks, const double *below, unsigned count) {
    unsigned rank = 0;

    for (unsigned slot = 0; slot <= RANK_SLOTS; slot++) {
        const double wanted = below[count] * slot / RANK_SLOTS;
        while (rank < count - 1 && below[rank + 1] <= wanted)
            rank++;
        const double within = (wanted - below[rank]) / (below[rank + 1] - below[rank]);
        ranks->below[slot] = ldexp(rank + (within < 1 ? within : 1), RANK_SHIFT);
    }
    ranks->below[RANK_SLOTS] = count << RANK_SHIFT;
}

int ranks_fill(struct ranks ranks[2], const struct flows *flows, double exponent) {
    const unsigned least = flows->count / flows->streams;
    double *below = calloc(least + 2, sizeof(*below)); // the weights of all ranks before this one

    if (!below)
        return failed("frames", ENOMEM, NULL, "no memory for the weights of %u flows", flows->count);
    for (unsigned rank = 0; rank <= least; rank++)
        below[rank + 1] = below[rank] + pow(rank + 1, -exponent);
    fill(&ranks[0], below, least);
    fill(&ranks[1], below, least + 1);
    free(below);
    return 0;
}
