/*
 * Telemetry: the energy of a piece of a program, on all its GPUs and the CPU, with its uncertainty.
 *
 *     struct erg_meter *meter;
 *     struct erg_window_result result = {.size = sizeof result};
 *     if (erg_meter_open(&meter, NULL, &err) != 0) ...
 *     struct erg_window *window = erg_window_begin(meter);
 *     ... work; wait for the GPU to finish it ...
 *     if (erg_window_end(window, &result, &err) != 0) ...
 *     erg_meter_close(meter);
 *
 * Windows may nest and overlap, and be used from several threads. The GPUs' energy counters move
 * every 20 to 100 ms; the meter watches them in the background and works out the energy between the
 * window's own ends. A window shorter than three such steps is marked as an estimate: repeat the
 * work instead, many times in one window.
 *
 * What is uncertain beyond the stated uncertainty is the sensor itself: vendors say +-5 %, and some
 * sensors look only a part of the time (arXiv 2312.02741). The two sources help to see it: the
 * ratio of integrated power to the counter should be close to 1.
 *
 * Results begin with their size, as ergon/watch.h says.
 */
#ifndef ERGON_TELEMETRY_H
#define ERGON_TELEMETRY_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_meter;
struct erg_window;

enum { ERG_METER_GPUS_MAX = 32 };

enum erg_energy_quality {
    ERG_ENERGY_MISSING = 0,   /* no source could be read */
    ERG_ENERGY_MEASURED = 1,  /* from the energy counter */
    ERG_ENERGY_ESTIMATED = 2, /* window below three steps of the counter: a power model */
    ERG_ENERGY_POWER_ONLY = 3 /* from power readings, for want of a counter that goes on */
};

/* What became of a GPU's energy counter in a window. */
enum erg_counter_state {
    ERG_COUNTER_USED = 0,    /* energy_j is its */
    ERG_COUNTER_MISSING = 1, /* it could not be read */
    ERG_COUNTER_STILL = 2,   /* it was read, but did not move */
    ERG_COUNTER_RESET = 3    /* it started anew, or jumped further than a GPU can use */
};

/* Values that are not known are NaN. Temperatures in degrees C. It never grows, since results have
 * an array of it. */
struct erg_window_gpu {
    double energy_j;       /* best source, see quality */
    double uncertainty_j;  /* 95 % */
    double power_energy_j; /* from integrated power readings, the second source */
    double ratio;          /* power_energy_j / energy of the counter, if both say something */
    /* energy_j / time. Not known of a window so short that its energy is known to 100 % at best, or
     * would mean more power than any reading showed. */
    double power_mean_w;
    double power_peak_w; /* highest reading seen: a lower bound of the real peak */
    double temperature_begin_c;
    double temperature_end_c;
    double temperature_max_c;
    double memory_temperature_max_c;
    double throttled_power_s;   /* time the power cap held the clock down */
    double throttled_thermal_s; /* time heat held the clock down */
    double sm_clock_mean_mhz;
    int quality; /* enum erg_energy_quality */
    int counter; /* enum erg_counter_state */
    int lost;    /* 1: fell off the bus or did not answer in time; then no clock, no throttling */
    double reserved[8]; /* NaN until they get a meaning */
};

struct erg_window_result {
    size_t size;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    double time_s;
    double energy_j;    /* sum over the GPUs whose energy is known; NaN of none */
    size_t energy_gpus; /* how many these are: fewer than `gpus`, and it is a part */
    /* Of that sum, 95 %. GPUs of one job change their load together, so that what is hidden between
     * the steps of their counters does not cancel: theirs are added up. */
    double uncertainty_j;
    double cpu_j, cpu_uncertainty_j;   /* CPU packages, 95 %; NaN where they cannot be read */
    double dram_j, dram_uncertainty_j; /* their memory, likewise */
    size_t gpus;
    struct erg_window_gpu gpu[ERG_METER_GPUS_MAX];
};

struct erg_meter_gpu {
    size_t size;
    char name[96];
    char uuid[96];
    char trouble[96];        /* why nothing can be read from it; "" for a GPU that works */
    int index;               /* in the driver's order, that of the PCI bus */
    double counter_period_s; /* between steps of the energy counter; NaN until known */
    double power_period_s;   /* between changes of the power reading */
    double read_latency_s;   /* of one read of both */
};

/*
 * Opens the GPUs ("0,2", a UUID or its beginning, "all"; NULL: those of CUDA_VISIBLE_DEVICES) and
 * starts to watch them. Returns once every counter has moved three times, after half a second at
 * most, so that a window may begin at once; learns the sensors' steps for another second in the
 * background. ERG_NO_DEVICE where there are none.
 */
int erg_meter_open(struct erg_meter **meter, const char *gpus, struct erg_error *err);

/* Windows that are still open are dropped: they must not be used any more. NULL is fine. */
void erg_meter_close(struct erg_meter *meter);

/* How many GPUs it watches, and what is known of one of them, from 0 in the order of results. */
size_t erg_meter_gpus(const struct erg_meter *meter);
int erg_meter_gpu(struct erg_meter *meter, size_t gpu, struct erg_meter_gpu *info,
                  struct erg_error *err);

/*
 * The window begins when this is called. Work on a GPU is asynchronous: wait for it before. Never
 * NULL; belongs to the caller, who gives it to erg_window_end() or erg_window_cancel() before the
 * meter is closed.
 */
struct erg_window *erg_window_begin(struct erg_meter *meter);

/*
 * The window ends when this is called. Returns once the counters have moved twice after that, about
 * 0.2 s later, or after a second for a GPU that does not answer one read for so long. Frees the
 * window, also where the result has no size.
 */
int erg_window_end(struct erg_window *window, struct erg_window_result *result,
                   struct erg_error *err);

/*
 * What is known of a window that goes on, as if it ended when this is called. Does not wait: since
 * the latest step of its counter a GPU is taken to go on as its power was read last, and half of
 * that is uncertain. As often as wanted.
 */
int erg_window_look(const struct erg_window *window, struct erg_window_result *result,
                    struct erg_error *err);

/* Drops a window without a result. */
void erg_window_cancel(struct erg_window *window);

/*
 * Records samples of all GPUs into a file that survives a crash, until a command ends, whose exit
 * status becomes the error's, for a time, or until SIGINT or SIGTERM where the program takes them:
 * ergon record(1). With a command the calling thread blocks signals and passes them on.
 */
struct erg_record_options {
    size_t size;
    const char *output;         /* a file that is there is refused */
    const char *gpus;           /* as of erg_meter_open() */
    int64_t interval_ms;        /* between two samples of energy and power; 0: 50 */
    double duration_s;          /* 0: without an end */
    const char *const *command; /* ends with NULL; NULL: none runs */
};
int erg_record_gpus(const struct erg_record_options *options, struct erg_error *err);

/* A recording as "csv", "jsonl" or "chrome", a trace with counters; "-" is standard output. */
int erg_record_export(const char *recording, const char *format, const char *output,
                      struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
