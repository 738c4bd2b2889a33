/*
 * Probe: measurements of a machine's GPUs in about three minutes, and the constants of the emulated
 * GPU that follow from them.
 *
 * The program of measurements is the same on every device (device/device.h): single operations of
 * one layer, an AllReduce by its SMs, partitions at some launch slots and SM counts, whole layers,
 * and the GPU at rest. The layer's shapes belong to no job: the constants from them predict other
 * shapes. A row is one measurement; rows are kept in a CSV file that is complete on the disk before
 * the next measurement begins, so that a probe that was stopped goes on where it was, and constants
 * can be fitted again without a GPU.
 *
 * Times are seconds and energies joules of one GPU, for one execution.
 */
#ifndef ERG_PROBE_H
#define ERG_PROBE_H

#include "base/text.h"
#include "device/device.h"
#include "ergon/error.h"
#include "hardware/hardware.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- the program of measurements ---- */

enum erg_probe_family {
    ERG_PROBE_PRODUCT,
    ERG_PROBE_MEMORY,
    ERG_PROBE_ATTENTION,
    ERG_PROBE_COLLECTIVE, /* after the product whose output is reduced */
    ERG_PROBE_PARTITION,  /* communication concurrent with compute */
    ERG_PROBE_LAYER,
    ERG_PROBE_BLOCKED, /* one GPU waits for the others in its communication */
    ERG_PROBE_REST,    /* nothing runs */
};

struct erg_probe_item {
    const char *name; /* unique in its program: "4 x fwd fc1", "allreduce sms 4", "rest" */
    enum erg_probe_family family;
    const struct erg_step *steps;
    size_t step_count;
    double since_s; /* ERG_PROBE_REST: how long after work */
};

/* All measurements of one shape of layer. A real device must be opened for its model. */
struct erg_probe_program {
    const char *name; /* of the shape */
    struct erg_model *model;
    int gpus;            /* 1: nothing is communicated */
    int tensor, context; /* degrees, together all GPUs */
    int sequences, sequence;
    struct erg_probe_item *items;
    size_t count, capacity;
    struct erg_probe_parts *parts; /* private: owns the memory that the items point to */
};

/* Four GPUs and more are also split over the tokens of a sequence. */
size_t erg_probe_shapes(int gpus);

/*
 * The program number `shape` < erg_probe_shapes(gpus). `gpu` gives the products' tiles, nothing
 * else that a real device would notice. ERG_FAILED when the model cannot be split over `gpus`.
 */
int erg_probe_program_init(struct erg_probe_program *program, size_t shape, int gpus,
                           const struct erg_gpu *gpu, const struct erg_stack *stack,
                           struct erg_error *err);
void erg_probe_program_release(struct erg_probe_program *program);

/* ---- rows ---- */

struct erg_probe_row {
    char shape[16], item[48];
    int gpus;
    double time_s, energy_j;         /* at rest, and of the GPU that is blocked: of one second */
    double time_error, energy_error; /* relative standard deviations */
    double clock_mhz, temperature_c; /* mean during the window; of the hottest GPU */
    double window_s;
    long reasons; /* why the clock was lowered: enum erg_clock_reason */
    char conditions[256], created_utc[24];
};

struct erg_probe_rows { /* all-zero is a valid empty one */
    struct erg_probe_row *items;
    size_t count, capacity;
};

/* ERG_FAILED with file and line for a file without valid rows, or with GPUs of several machines. */
int erg_probe_rows_load(struct erg_probe_rows *rows, const char *path, struct erg_error *err);
void erg_probe_rows_release(struct erg_probe_rows *rows);

/* The name of the GPU in the conditions of a row: "NVIDIA H200" in "2 x NVIDIA H200, wide, ...". */
void erg_probe_row_gpu(const struct erg_probe_row *row, char *gpu, size_t capacity);

/* NULL when it was not measured. */
const struct erg_probe_row *erg_probe_rows_find(const struct erg_probe_rows *rows,
                                                const char *shape, int gpus, const char *item);

/*
 * Measures every item of the program that `rows` lacks and writes all rows to `path` (NULL:
 * nowhere) after each. `conditions` names the device and its driver for people. Clocks are left
 * alone.
 */
int erg_probe_measure(struct erg_device *device, const struct erg_probe_program *program,
                      const char *conditions, const char *path, struct erg_probe_rows *rows,
                      struct erg_error *err);

/* ---- ceilings ---- */

/* One line about the machine's performance. */
struct erg_probe_ceiling {
    const char *shape, *name; /* borrowed from the program */
    enum erg_probe_family family;
    double amount; /* FLOPs or bytes of one execution of the operation, as in rate */
    /* FLOPs per second; bytes of memory per second; bytes per second that each GPU sends; 0 at rest
     * and where several things ran. */
    double rate;
    double share;   /* of the datasheet's, products and attention at the clock they ran at */
    double power_w; /* mean of the whole run */
    double unit_j;  /* energy above rest per FLOP or byte; NAN where something else ran with it */
    double clock_mhz;
};

struct erg_probe_ceilings {
    struct erg_probe_ceiling *items;
    size_t count, capacity;
};

/*
 * Adds observations of a program's single operations, collectives and rests from the rows. A
 * collective's rate is that of its time beyond the product that it followed.
 */
void erg_probe_ceilings_add(struct erg_probe_ceilings *ceilings,
                            const struct erg_probe_program *program,
                            const struct erg_probe_rows *rows, const struct erg_gpu *gpu);
void erg_probe_ceilings_release(struct erg_probe_ceilings *ceilings);

/* ---- constants ---- */

/* Measurements of some steps. */
struct erg_probe_observation {
    const char *shape, *name; /* for people */
    const struct erg_step *steps;
    size_t step_count;
    bool mixed; /* several things in turn or at once, as in training */
    double time_s, energy_j;
    double time_error, energy_error; /* relative standard deviations */
    double clock_mhz, temperature_c;
};

enum { ERG_PROBE_MOST_CONSTANTS = 44 };

struct erg_probe_constant {
    const char *name;
    size_t member; /* its offset in struct erg_gpu */
    double before, after;
    bool seen;          /* the rows say something of it */
    const char *origin; /* "fitted", "measured", "not seen", "derived: ..." */
    char note[96]; /* the same in more words, for the GPU's file; empty where it was not seen */
};

struct erg_probe_fit {
    struct erg_gpu gpu;              /* strings borrowed from the GPU that the fit started from */
    const char *board;               /* borrowed: whose datasheet it has */
    char name[96];                   /* of the fitted GPU */
    int gpus;                        /* of the measurements */
    double time_error, energy_error; /* mean |relative error| of the fitted observations */
    size_t observations;
    /* Measurements with work that were not fitted: the GPU ran at less than lowered_mhz. */
    size_t lowered;
    double lowered_mhz;
    struct erg_probe_constant constants[ERG_PROBE_MOST_CONSTANTS];
    size_t count;
};

/*
 * Fits constants of the emulated GPU to observations made at the GPUs' own clocks by damped least
 * squares on their logarithms: time, energy and effective clock of each, with a prior around the
 * constants of `gpu`. Constants that only other clocks would show are unchanged.
 */
int erg_probe_fit(struct erg_probe_fit *fit, const struct erg_gpu *gpu,
                  const struct erg_stack *stack, const struct erg_probe_observation *observations,
                  size_t count, struct erg_error *err);

/*
 * The same to all rows of the programs, at rest as well; then the powers of a waiting GPU, which no
 * schedule shows. Rows of work that ran at less than half of the highest clock are left out: a
 * cause outside the model lowered it. ERG_FAILED when they are fewer than a dozen, or when the
 * fitted GPU still differs from them by more than a quarter on average. `board` is the measured
 * GPU: `gpu`, or another GPU whose datasheet it took (erg_gpu_take_datasheet()). The fitted one is
 * named after it.
 */
int erg_probe_calibrate(struct erg_probe_fit *fit, const struct erg_gpu *gpu,
                        const struct erg_stack *stack, const struct erg_probe_program *programs,
                        size_t program_count, const struct erg_probe_rows *rows, const char *board,
                        struct erg_error *err);

/* The fitted GPU as a catalogue file that marks every number as fitted or not. */
int erg_probe_write(const struct erg_probe_fit *fit, const struct erg_probe_rows *rows,
                    const char *path, struct erg_error *err);

/* ---- predictions ---- */

#endif
