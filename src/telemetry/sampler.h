/*
 * Sampler: reads every GPU in a thread of its own, on absolute deadlines, and hands all samples to
 * one writer. A GPU that hangs delays no other GPU. A deadline that passes during a long read
 * counts as missed; the sampler never catches up with a burst. Reading threads have the lowest
 * real-time priority if the system allows it (root, or "ulimit -r"), so that a busy host delays
 * them by microseconds, not milliseconds; except during close looks.
 */
#ifndef ERG_TELEMETRY_SAMPLER_H
#define ERG_TELEMETRY_SAMPLER_H

#include "telemetry/gpu.h"

struct erg_sampler_options {
    int64_t period_ns[ERG_COSTS]; /* medium and slow are rounded to multiples of fast */
};

/* 50 ms, 250 ms, 1 s. */
struct erg_sampler_options erg_sampler_options_default(void);

/* One sample on its way to the writer. */
struct erg_sampler_item {
    size_t gpu;
    int64_t scheduled_ns; /* its deadline; sample.start_ns - this is how late it was */
    struct erg_gpu_sample sample;
};

/* Calls come from one thread, in order for each GPU. */
struct erg_sampler_sink {
    void (*put)(void *context, const struct erg_sampler_item *item);
    void (*idle)(void *context); /* no samples are pending; every fast period. May be NULL */
    void *context;
};

/* The state of one GPU's thread. */
struct erg_sampler_stats {
    uint64_t samples;
    uint64_t missed;  /* deadlines that passed during a read */
    uint64_t dropped; /* samples lost because the writer was too slow */
    int64_t busy_ns;  /* duration of the current read so far, 0 between reads */
    int64_t cpu_ns;   /* CPU time of the thread */
    bool lost;        /* the GPU fell off the bus: its thread has ended */
};

struct erg_sampler;

/* Starts the threads. Keeps the list open as long as it needs it. */
int erg_sampler_start(struct erg_sampler **sampler, struct erg_gpus *gpus,
                      const struct erg_sampler_options *options,
                      const struct erg_sampler_sink *sink, struct erg_error *err);

/*
 * Until this time, energy and power of all GPUs are read every 5 ms in addition to the schedule,
 * and heat, clock, reasons and violations once, immediately: these describe the end of a window.
 */
void erg_sampler_look_closely(struct erg_sampler *sampler, int64_t until_ns);

void erg_sampler_stats(const struct erg_sampler *sampler, size_t gpu,
                       struct erg_sampler_stats *stats);

/*
 * Stops the threads, delivers pending samples and ends. Waits up to a second for a thread that
 * hangs in the driver, then leaves it to end by itself.
 */
void erg_sampler_stop(struct erg_sampler *sampler);

#endif
