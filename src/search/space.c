/* The configurations of a space, and the starts that spread over it. */
#include "search/search_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t erg_space_size(const struct erg_space *space)
{
    return space->clock_count * space->sms_count * space->slot_count;
}

size_t erg_space_index(const struct erg_space *space, struct erg_choice choice)
{
    return (choice.clock * space->sms_count + choice.sm) * space->slot_count + choice.slot;
}

struct erg_choice erg_space_choice(const struct erg_space *space, size_t config)
{
    size_t launch = config / space->slot_count;
    return (struct erg_choice){.clock = launch / space->sms_count,
                               .sm = launch % space->sms_count,
                               .slot = config % space->slot_count};
}

static int check_axis(const char *name, const int *values, size_t count, struct erg_error *err)
{
    if (!count)
        return erg_fail(err, ERG_FAILED, "searching a partition: the grid has no %s", name);
    for (size_t i = 0; i < count; i++)
        if (values[i] <= 0 || (i && values[i] <= values[i - 1]))
            return erg_fail(err, ERG_FAILED,
                            "searching a partition: %s %zu of the grid is %d, expected positive "
                            "and strictly increasing values",
                            name, i, values[i]);
    return 0;
}

int erg_space_check(const struct erg_space *space, struct erg_error *err)
{
    if (check_axis("clock", space->clocks_mhz, space->clock_count, err) ||
        check_axis("SM count", space->sms, space->sms_count, err))
        return -1;
    if (!space->slot_count)
        return erg_fail(err, ERG_FAILED, "searching a partition: the grid has no launch slot");
    return 0;
}

/* Distances are shares of an axis; another slot counts as half of one. */
static size_t nearest_unused(const struct erg_space *space, struct erg_choice input,
                             const bool *used)
{
    size_t best = SIZE_MAX;
    double best_distance = INFINITY;
    for (size_t i = 0; i < erg_space_size(space); i++) {
        if (used[i])
            continue;
        struct erg_choice c = erg_space_choice(space, i);
        double distance = fabs((double)c.clock - (double)input.clock) / (double)space->clock_count +
                          fabs((double)c.sm - (double)input.sm) / (double)space->sms_count +
                          (c.slot == input.slot ? 0.0 : 0.5);
        if (distance < best_distance) {
            best_distance = distance;
            best = i;
        }
    }
    return best;
}

static size_t stratum_index(struct erg_rng *rng, size_t stratum, size_t strata, size_t values)
{
    double u = ((double)stratum + erg_rng_uniform(rng)) / (double)strata;
    size_t index = (size_t)(u * (double)values);
    return index < values ? index : values - 1;
}

void erg_space_latin(const struct erg_space *space, size_t count, struct erg_rng *rng,
                     size_t *configs)
{
    size_t *strata = erg_xcalloc(3 * count, sizeof *strata);
    bool *used = erg_xcalloc(erg_space_size(space), sizeof *used);
    for (size_t axis = 0; axis < 3; axis++) {
        for (size_t i = 0; i < count; i++)
            strata[axis * count + i] = i;
        erg_rng_shuffle(rng, strata + axis * count, count);
    }
    for (size_t i = 0; i < count; i++) {
        size_t k = strata[i];
        struct erg_choice input = {
            .clock = stratum_index(rng, k, count, space->clock_count),
            .sm = stratum_index(rng, strata[count + i], count, space->sms_count),
            .slot = strata[2 * count + i] % space->slot_count,
        };
        if (k == 0) /* a model is worst at extrapolation in the clock */
            input.clock = 0;
        else if (k == count - 1)
            input.clock = space->clock_count - 1;
        configs[i] = nearest_unused(space, input, used);
        used[configs[i]] = true;
    }
    free(used);
    free(strata);
}
