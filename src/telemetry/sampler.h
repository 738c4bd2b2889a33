/*
 * Sampler: reads every GPU in a thread of its own, on absolute deadlines, and hands all samples to
 * one writer. A GPU that hangs delays no other GPU. A deadline that passes while a read takes long
 * is counted as missed, never caught up in a bunch. Threads that read have the lowest real-time
 * priority where the system allows it (root, or "ulimit -r"), so that a busy host makes them late
 * by microseconds and not by milliseconds; but not during close looks.
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
    void (*idle)(void *context); /* all that came was put; every fast period. May be NULL */
    void *context;
};

/* How one GPU's thread is doing. */
struct erg_sampler_stats {
    uint64_t samples;
    uint64_t missed;  /* deadlines that passed during a read */
    uint64_t dropped; /* samples the writer was too slow for */
    int64_t busy_ns;  /* how long the present read has taken so far, 0 between reads */
    int64_t cpu_ns;   /* CPU time of the thread */
    bool lost;        /* fell off the bus: its thread has ended */
};

struct erg_sampler;

/* Starts the threads. Keeps the list open as long as it needs it. */
int erg_sampler_start(struct erg_sampler **sampler, struct erg_gpus *gpus,
                      const struct erg_sampler_options *options,
                      const struct erg_sampler_sink *sink, struct erg_error *err);

/*
 * Until this time, energy and power of all GPUs are read every 5 ms in addition to the schedule,
 * and heat, clock, reasons and violations once, at once: these describe the end of a window.
 */
void erg_sampler_look_closely(struct erg_sampler *sampler, int64_t until_ns);

void erg_sampler_stats(const struct erg_sampler *sampler, size_t gpu,
                       struct erg_sampler_stats *stats);

/*
 * Stops the threads, delivers pending samples and ends. A thread that hangs in the driver is waited
 * for up to a second and then left to end by itself.
 */
void erg_sampler_stop(struct erg_sampler *sampler);

#endif
