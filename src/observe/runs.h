/* Runs: the results of `ergon measure` for repeated runs of a command, as a table and as JSON. */
#ifndef ERG_OBSERVE_RUNS_H
#define ERG_OBSERVE_RUNS_H

#include "base/text.h"
#include "ergon/telemetry.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct erg_run {
    int exit_status;
    struct erg_window_result window;
    double co2_g, cost_usd; /* of GPUs, CPUs and their memory; NaN: unknown */
};

/* All-zero is a valid empty list. */
struct erg_runs {
    const char *const *command; /* ends with NULL; borrowed */
    size_t warmups;
    struct erg_meter_gpu gpus[ERG_METER_GPUS_MAX]; /* the GPUs of the windows, in their order */
    size_t gpu_count;
    struct erg_run *items;
    size_t count, capacity;
    bool has_carbon, has_price; /* requested */
};

void erg_runs_release(struct erg_runs *runs);

/* Adds the table; needs at least one run. */
void erg_runs_table(struct erg_text *out, const struct erg_runs *runs);

/* A new document with each run and the spread over all. */
json_t *erg_runs_json(const struct erg_runs *runs);

#endif
