/*
 * Rank meter: the measurements of one rank between two lines of its run's log. On a GPU it uses
 * that GPU's energy counter; on the host the CPU packages of the machine, which its first rank
 * measures.
 *
 * Counters move in steps of 20 to 100 ms, so a window of less than a second gets its share, by
 * time, of the energy of the latest second or slightly more. Only during the first second of a run
 * is the measurement shorter.
 */
#ifndef ERG_TRAIN_LOG_RANK_METER_H
#define ERG_TRAIN_LOG_RANK_METER_H

#include "telemetry/gpu.h"
#include "telemetry/rapl.h"
#include "train/engine/clock_controller.h"

#include <stdint.h>

/* The causes of exposed waits. */
enum erg_exposed {
    ERG_EXPOSED_TENSOR,
    ERG_EXPOSED_CONTEXT,
    ERG_EXPOSED_PIPELINE,
    ERG_EXPOSED_GRADIENTS,
    ERG_EXPOSED_WEIGHTS,
    ERG_EXPOSED_COPIES,
    ERG_EXPOSED_DATA,
    ERG_EXPOSED_KINDS,
};

enum erg_rank_energy {
    ERG_RANK_ENERGY_UNKNOWN,
    ERG_RANK_ENERGY_OWN,
    ERG_RANK_ENERGY_ELSEWHERE, /* another rank of this machine counts it */
};

/* The numbers of one rank and window. Plain data without pointers, which ranks send each other.
 * NaN: unknown. */
struct erg_rank_numbers {
    double window_s;                /* from the end of the previous window to that of this one */
    double energy_j, uncertainty_j; /* in the window; uncertainty: 95 % */
    double measured_s;              /* time of both measurements: the window, or more */
    double power_w, clock_mhz;      /* means over measured_s */
    double temperature_c;           /* at its end */
    double throttled_power_s, throttled_thermal_s; /* of measured_s, by the power cap and by heat */
    double peak_flops;                   /* dense bf16 FLOP/s from the GPU's file; NaN: no file */
    double memory_bytes;                 /* of the engine, on the device */
    double memory_outside_bytes;         /* of the process on the device beyond memory_bytes */
    double exposed_s[ERG_EXPOSED_KINDS]; /* of a step, by enum erg_exposed */
    double bubble_s;                     /* of a step */
    struct erg_clock_numbers clocks;     /* of a plan; refused -1: no clocks are set */
    int32_t energy;                      /* enum erg_rank_energy */
    int32_t is_gpu;
};

enum { ERG_RANK_MARKS = 16 };

/* A moment from which energy can be measured. */
struct erg_rank_mark {
    int64_t time_ns;
    struct erg_window *window;   /* of a GPU */
    struct erg_rapl_reading cpu; /* of the host */
};

struct erg_rank_meter {
    struct erg_meter *meter; /* NULL: not on a GPU, or unreadable */
    struct erg_rapl *rapl;   /* NULL: not on the host, or unreadable */
    bool is_gpu, elsewhere;
    double peak_flops;
    int64_t last_ns; /* the end of the previous window */
    struct erg_rank_mark marks[ERG_RANK_MARKS];
    size_t count;
};

/*
 * *gpu, an index into the list: the GPU of a rank; `name`: by CUDA, NULL: any. ERG_NO_DEVICE if it
 * cannot be read or has another name.
 */
int erg_rank_find_gpu(struct erg_gpus *gpus, const char *name, int local_rank, size_t *gpu,
                      struct erg_error *err);

/*
 * The first window begins when this returns. `gpu` is CUDA's name of the rank's GPU, NULL for the
 * host; `local_rank`: among the ranks of this machine, and so among its GPUs in the order of
 * CUDA_VISIBLE_DEVICES. Without sensors, numbers are unknown; this is not an error, and a message
 * gives the reason.
 */
void erg_rank_meter_open(struct erg_rank_meter *meter, const char *gpu, int local_rank);
void erg_rank_meter_close(struct erg_rank_meter *meter);

/*
 * A separate measurement from erg_rank_meter_begin() on, independent of the windows and exact even
 * for short times. The end fills the fields of a window except window_s, and releases the mark.
 */
void erg_rank_meter_begin(struct erg_rank_meter *meter, struct erg_rank_mark *mark);
void erg_rank_meter_end(struct erg_rank_meter *meter, struct erg_rank_mark *mark,
                        struct erg_rank_numbers *numbers);

/*
 * Ends the window and begins the next one. Does not wait for the counter. Fields that only the
 * engine can fill (exposed_s, bubble_s and the memory) are NaN.
 */
void erg_rank_meter_take(struct erg_rank_meter *meter, struct erg_rank_numbers *numbers);

#endif
