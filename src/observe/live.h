/*
 * Live: the current state of every GPU, from the samples of a sampler: the newest value of each
 * metric while it is fresh, energy since the start, rates, and a history of power in equal steps of
 * time.
 *
 * A value that was not read for a while is missing, so a GPU that hangs has no values instead of
 * old ones. One thread puts samples; others may look at any time.
 */
#ifndef ERG_OBSERVE_LIVE_H
#define ERG_OBSERVE_LIVE_H

#include "base/text.h"
#include "telemetry/sampler.h"

#include <jansson.h>

enum { ERG_LIVE_HISTORY = 240 };

/* One GPU at a moment. */
struct erg_live_gpu {
    struct erg_gpu_info info;
    bool answers;   /* a sample came recently */
    bool lost;      /* fell off the bus, or never worked (the reason is in info.trouble) */
    uint64_t valid; /* bit 1 << metric: readings[] holds a fresh value */
    int64_t values[ERG_METRICS]; /* in the units of enum erg_metric */
    int64_t reasons_recent;      /* clock reasons seen since the last whole step of the history */
    double energy_j; /* by the counter since the start; NaN: none, it stands still or restarted */
    /* Since the start, each power reading held until the next; NaN: unknown. */
    double power_energy_j;
    double rates[ERG_METRICS];         /* of counters, units per second; NaN: unknown */
    float history_w[ERG_LIVE_HISTORY]; /* mean power per step, oldest first; NaN: unknown */
};

struct erg_live_view {
    double seconds; /* since the start */
    size_t count;
    struct erg_live_gpu *gpus;
};

/*
 * The options of a sampler that reads the fast metrics every `interval_ms`, and no others faster.
 */
struct erg_sampler_options erg_live_pace(long interval_ms);

struct erg_live;

/*
 * `options` are the sampler's: a value is fresh for three of its periods, at least two seconds.
 * `step_ns`: one step of the history. `now_ns`: the start.
 */
struct erg_live *erg_live_new(const struct erg_gpus *gpus,
                              const struct erg_sampler_options *options, int64_t step_ns,
                              int64_t now_ns);
void erg_live_free(struct erg_live *live);

/* For erg_sampler_sink.put, with the live state as context. */
void erg_live_put(void *live, const struct erg_sampler_item *item);

/*
 * Copies the state at a moment. The first call allocates the view's arrays; later calls reuse them.
 */
void erg_live_look(struct erg_live *live, int64_t now_ns, struct erg_live_view *view);
void erg_live_view_release(struct erg_live_view *view);

static inline bool erg_live_has(const struct erg_live_gpu *gpu, enum erg_metric metric)
{
    return gpu->valid >> metric & 1;
}

/* The trouble of a GPU that does not answer; "": it answers. */
const char *erg_live_trouble(const struct erg_live_gpu *gpu);

/* The best known power in W: instant, otherwise the average over a second; NaN: none. */
double erg_live_power_w(const struct erg_live_gpu *gpu);

/* A value times `scale`; NaN: unknown. */
double erg_live_value(const struct erg_live_gpu *gpu, enum erg_metric metric, double scale);

/* ---- for scripts (live_report.c) ---- */

/* Adds a heading and a line per GPU. */
void erg_live_table(struct erg_text *out, const struct erg_live_view *view);

/* A new document with every metric of every GPU; null: unknown. */
json_t *erg_live_json(const struct erg_live_view *view);

#endif
