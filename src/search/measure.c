/* Asking the oracle: one configuration, lists of them, and designs. */
#include "search/search_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

int erg_search_check(const struct erg_space *space, size_t config,
                     const struct erg_measurement *seen, bool energy, struct erg_error *err)
{
    bool good = isfinite(seen->time_s) && seen->time_s > 0.0 && seen->time_sd >= 0.0 &&
                isfinite(seen->time_sd);
    if (energy)
        good = good && isfinite(seen->energy_j) && seen->energy_j > 0.0 && seen->energy_sd >= 0.0 &&
               isfinite(seen->energy_sd);
    if (good)
        return 0;
    struct erg_choice c = erg_space_choice(space, config);
    return erg_fail(err, ERG_FAILED,
                    "measuring a partition at %d MHz, %d SMs, slot %zu: got %g s, %g J with "
                    "relative deviations %g, %g; expected positive values",
                    space->clocks_mhz[c.clock], space->sms[c.sm], c.slot, seen->time_s,
                    seen->energy_j, seen->time_sd, seen->energy_sd);
}

static int measure(struct erg_search_run *run, size_t config, struct erg_error *err)
{
    struct erg_search_result *result = run->result;
    struct erg_measurement seen = {0};
    if (run->oracle->measure(run->oracle->context, config, &seen, err) ||
        erg_search_check(&run->space, config, &seen, true, err))
        return -1;
    result->order[result->evaluation_count++] = config; /* has room for every config */
    result->model->measured[config] = true;
    result->full_count++;
    ERG_PUSH(result->model, items, (struct erg_search_reading){config, seen});
    return 0;
}

int erg_search_measure(struct erg_search_run *run, const size_t *configs, size_t count,
                       struct erg_error *err)
{
    int status = 0;
    for (size_t i = 0; i < count && !status; i++)
        status = measure(run, configs[i], err);
    return status;
}

int erg_search_measure_in_order(struct erg_search_run *run, bool shuffled, size_t count,
                                struct erg_error *err)
{
    size_t all = run->result->config_count;
    size_t *order = erg_xcalloc(all, sizeof *order);
    for (size_t i = 0; i < all; i++)
        order[i] = i;
    if (shuffled)
        erg_rng_shuffle(&run->rng, order, all);
    int status = erg_search_measure(run, order, count < all ? count : all, err);
    free(order);
    return status;
}

int erg_search_measure_latin(struct erg_search_run *run, size_t count, struct erg_error *err)
{
    size_t *configs = erg_xcalloc(count, sizeof *configs);
    erg_space_latin(&run->space, count, &run->rng, configs);
    int status = erg_search_measure(run, configs, count, err);
    free(configs);
    return status;
}

int erg_search_measure_time(struct erg_search_run *run, size_t config, struct erg_error *err)
{
    struct erg_measurement seen = {0};
    if (run->oracle->measure_time(run->oracle->context, config, &seen, err) ||
        erg_search_check(&run->space, config, &seen, false, err))
        return -1;
    seen.energy_j = NAN;
    seen.energy_sd = 0.0;
    run->result->swept_count++;
    ERG_PUSH(run->result->model, items, (struct erg_search_reading){config, seen});
    return 0;
}
