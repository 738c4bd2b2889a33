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
 * Windows may nest and overlap, and several threads may use them. The GPUs' energy counters move
 * every 20 to 100 ms; the meter watches them in the background and computes the energy between the
 * ends of the window. A window shorter than three such steps is marked as an estimate: repeat the
 * work many times in one window.
 *
 * The stated uncertainty excludes the error of the sensor itself: vendors state +-5 %, and some
 * sensors sample only a part of the time (arXiv 2312.02741). The ratio of integrated power to the
 * counter, two sources, should be close to 1.
 *
 * Results begin with their size: see ergon/watch.h.
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
    ERG_ENERGY_POWER_ONLY = 3 /* from power readings, because no counter is usable */
};

/* The state of a GPU's energy counter in a window. */
enum erg_counter_state {
    ERG_COUNTER_USED = 0,    /* it is the source of energy_j */
    ERG_COUNTER_MISSING = 1, /* it could not be read */
    ERG_COUNTER_STILL = 2,   /* it was read, but did not move */
    ERG_COUNTER_RESET = 3    /* it restarted, or jumped by more than a GPU can use */
};

/* Unknown values are NaN. Temperatures are in degrees C. The struct never grows, because results
 * have an array of it. */
struct erg_window_gpu {
    double energy_j;       /* best source, see quality */
    double uncertainty_j;  /* 95 % */
    double power_energy_j; /* from integrated power readings, the second source */
    double ratio;          /* power_energy_j / energy of the counter, if both are known */
    /* energy_j / time. Unknown if the uncertainty of the energy is 100 % or more, or if the mean
     * would exceed every power reading. */
    double power_mean_w;
    double power_peak_w; /* highest reading: a lower bound of the real peak */
    double temperature_begin_c;
    double temperature_end_c;
    double temperature_max_c;
    double memory_temperature_max_c;
    double throttled_power_s;   /* time the power cap held the clock down */
    double throttled_thermal_s; /* time heat held the clock down */
    double sm_clock_mean_mhz;
    int quality;        /* enum erg_energy_quality */
    int counter;        /* enum erg_counter_state */
    int lost;           /* 1: off the bus, or no answer in time; clock and throttling are NaN */
    double reserved[8]; /* for later versions; NaN */
};

struct erg_window_result {
    size_t size;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    double time_s;
    double energy_j;    /* sum over the GPUs whose energy is known; NaN if none */
    size_t energy_gpus; /* their number; if below `gpus`, energy_j is partial */
    /* 95 %. The uncertainties of the GPUs are added, because the GPUs of a job change their load
     * together, so errors between the steps of their counters do not cancel. */
    double uncertainty_j;
    double cpu_j, cpu_uncertainty_j;   /* CPU packages, 95 %; NaN if they cannot be read */
    double dram_j, dram_uncertainty_j; /* the same for their memory */
    size_t gpus;
    struct erg_window_gpu gpu[ERG_METER_GPUS_MAX];
};

struct erg_meter_gpu {
    size_t size;
    char name[96];
    char uuid[96];
    char trouble[96];        /* why it cannot be read; "" if it can */
    int index;               /* in the driver's order, that of the PCI bus */
    double counter_period_s; /* between steps of the energy counter; NaN until it is known */
    double power_period_s;   /* between changes of the power reading */
    double read_latency_s;   /* of one read of both */
};

/*
 * Opens the GPUs ("0,2", a UUID or its beginning, "all"; NULL: those of CUDA_VISIBLE_DEVICES) and
 * starts to watch them. Returns once every counter has moved three times, after half a second at
 * most; a window may then begin at once. Determines the sensors' steps for another second in the
 * background. ERG_NO_DEVICE if there are no GPUs.
 */
int erg_meter_open(struct erg_meter **meter, const char *gpus, struct erg_error *err);

/* Frees open windows, too: they must not be used afterwards. NULL is fine. */
void erg_meter_close(struct erg_meter *meter);

/* The number of GPUs, and facts about one of them, index from 0 in the order of results. */
size_t erg_meter_gpus(const struct erg_meter *meter);
int erg_meter_gpu(struct erg_meter *meter, size_t gpu, struct erg_meter_gpu *info,
                  struct erg_error *err);

/*
 * The window begins when this is called. Work on a GPU is asynchronous: wait for it first. The
 * result is never NULL. The caller passes it to erg_window_end() or erg_window_cancel() before the
 * meter is closed.
 */
struct erg_window *erg_window_begin(struct erg_meter *meter);

/*
 * The window ends when this is called. Returns once the counters have moved twice after that, about
 * 0.2 s later, or after a second if a GPU does not answer a read for that time. Frees the window,
 * even if the result has no size.
 */
int erg_window_end(struct erg_window *window, struct erg_window_result *result,
                   struct erg_error *err);

/*
 * The result of an open window, as if it ended now. It does not wait: since the latest step of the
 * counter, the GPU's last power reading is assumed to hold, with half of that energy as
 * uncertainty. It may be called any number of times.
 */
int erg_window_look(const struct erg_window *window, struct erg_window_result *result,
                    struct erg_error *err);

/* Drops a window without a result. */
void erg_window_cancel(struct erg_window *window);

/*
 * Records samples of all GPUs into a file that survives a crash, until a command ends (its exit
 * status becomes the error's), for a time, or until SIGINT or SIGTERM if the program handles them:
 * ergon record(1). With a command the calling thread blocks signals and passes them on.
 */
struct erg_record_options {
    size_t size;
    const char *output;         /* an existing file is refused */
    const char *gpus;           /* as in erg_meter_open() */
    int64_t interval_ms;        /* between two samples of energy and power; 0: 50 */
    double duration_s;          /* 0: without an end */
    const char *const *command; /* ends with NULL; NULL: none runs */
};
int erg_record_gpus(const struct erg_record_options *options, struct erg_error *err);

/* A recording as "csv", "jsonl" or "chrome", a trace with counters; "-" is standard output. */
int erg_record_export(const char *recording, const char *format, const char *output,
                      struct erg_error *err);

/*
 * The state of every GPU as a picture for a terminal, as ergon monitor(1) redraws it.
 * erg_ask_monitor() has the same state as a document. A monitor is for one thread.
 */
struct erg_monitor;

/* How a part of the picture looks. */
enum erg_style {
    ERG_STYLE_PLAIN = 0,
    ERG_STYLE_STRONG = 1, /* headings, numbers of GPUs */
    ERG_STYLE_FAINT = 2,
    ERG_STYLE_GOOD = 3,    /* a bar well below the cap */
    ERG_STYLE_WARNING = 4, /* near the cap; a clock held down */
    ERG_STYLE_BAD = 5      /* too hot, does not answer */
};

struct erg_monitor_options {
    size_t size;
    const char *gpus;    /* as in erg_meter_open() */
    int64_t interval_ms; /* of one step of the history of power; 0: 500 */
};

/* Returns after the first samples, 0.2 s later. ERG_NO_DEVICE if there are no GPUs. */
int erg_monitor_open(struct erg_monitor **monitor, const struct erg_monitor_options *options,
                     struct erg_error *err);
void erg_monitor_close(struct erg_monitor *monitor); /* NULL is fine */

/* The number of GPUs, and how many of them fit on this many rows of a terminal. */
size_t erg_monitor_gpus(const struct erg_monitor *monitor);
size_t erg_monitor_page(const struct erg_monitor *monitor, int rows);

struct erg_monitor_picture {
    size_t size;
    int32_t rows, columns; /* of the terminal, up to 2000 */
    int32_t ascii;         /* 1: only characters below 128 */
    size_t first;          /* the GPU at the top, for more GPUs than fit, from 0 on */
};

/* Draws the present state. The picture fills all columns of all rows. */
int erg_monitor_draw(struct erg_monitor *monitor, const struct erg_monitor_picture *picture,
                     struct erg_error *err);

/* A part of one row in one style. Rows and columns count from 0. */
struct erg_monitor_run {
    size_t size;
    int32_t row, column;
    int32_t style;    /* enum erg_style */
    const char *text; /* UTF-8; lives until the next picture */
};

/* The runs of the picture, row after row. ERG_USAGE beyond the last. */
size_t erg_monitor_runs(const struct erg_monitor *monitor);
int erg_monitor_run(const struct erg_monitor *monitor, size_t index, struct erg_monitor_run *run,
                    struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
