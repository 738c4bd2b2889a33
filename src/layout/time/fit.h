/*
 * Fits an engine's constants to measured iterations.
 *
 * Damped least squares on the logarithms of measured over predicted time, in the logarithms of the
 * constants, so that they stay positive. Rows count by their weight. The rows are also divided into
 * folds (layout i into fold i mod K, with all rows that repeat it). Constants fitted to the other
 * folds predict each fold: this gives the held-out error, and the spread of these constants gives
 * their uncertainty (delete-a-group jackknife: Efron & Tibshirani, An Introduction to the
 * Bootstrap, chapter 11).
 */
#ifndef ERG_LAYOUT_TIME_FIT_H
#define ERG_LAYOUT_TIME_FIT_H

#include "base/memory.h"
#include "layout/time/time.h"

/* More constants would fit noise. */
enum { ERG_FIT_MOST_CONSTANTS = 8, ERG_FIT_MOST_FOLDS = 20 };

/* Values of a run of ergon's own training other than its time. NaN: unknown. */
struct erg_fit_run {
    long steps;          /* steps in the windows whose median the time is */
    double spread;       /* half of the interquartile range of the windows, divided by the median */
    double memory_bytes; /* of the rank with the most */
    double energy_j;     /* of a step, all ranks together */
    size_t lines;        /* lines of its log that count */
    size_t lines_damaged; /* skipped: invalid lines */
    size_t lines_other;   /* skipped: lines of another layout, device or model */
    const char *model;    /* its name */
    const char *type;     /* type of the weights in use */
};

enum erg_fit_sequence_parallel {
    ERG_FIT_AS_ENGINE, /* as in the engine's file */
    ERG_FIT_WHOLE,
    ERG_FIT_PARALLEL,
};

struct erg_fit_row {
    const struct erg_model *model;
    struct erg_layout layout;
    long batch;         /* sequences of an iteration */
    double time_s;      /* measured */
    double weight;      /* relative to other rows; default: 1 */
    size_t line;        /* line in the table; 0: no table */
    const char *path;   /* of the table, or the folder of the run */
    const char *device; /* that it was measured on, by CUDA's name, or "host"; NULL: unknown */
    enum erg_fit_sequence_parallel sequence_parallel;
    const struct erg_fit_run *run; /* NULL: row of a table */
};

struct erg_fit_rows {
    struct erg_fit_row *items;
    size_t count, capacity;
    struct erg_arena arena; /* owns the data that the rows point to */
    bool of_tokens;         /* the table has tokens_per_s instead of time_s */
    struct {
        struct erg_fit_model {
            struct erg_model *model;
            char *name; /* as in the file, or identifies a run's model */
        } * items;
        size_t count, capacity;
    } models;
};

/*
 * Reads a table: model (a name of the catalogue or a path), sequence, gpus, batch, t, c, p, and
 * time_s or tokens_per_s (of all GPUs together); optional l (layers of a chunk) or v (chunks of a
 * stage), microbatch, recompute (none, norms, activation, balanced, full), offload and device.
 * Every layout is checked. The caller releases the rows, even after a failure.
 */
int erg_fit_rows_load(struct erg_fit_rows *rows, const char *path, struct erg_error *err);
/*
 * Checks that the machine has the values for the time of each row: the network between its nodes,
 * if a row was measured on several. The message names file, line and the cluster's key.
 */
int erg_fit_rows_check(const struct erg_fit_rows *rows, const struct erg_time_machine *machine,
                       struct erg_error *err);
/* Checks that all rows with a known GPU were measured on this one, in one type. */
int erg_fit_rows_check_devices(const struct erg_fit_rows *rows, const struct erg_gpu *gpu,
                               struct erg_error *err);
/*
 * Checks that no row of a table is below 5 % of the engine's peak, as if the table gave tokens per
 * second of one GPU instead of all.
 */
int erg_fit_rows_check_times(const struct erg_fit_rows *rows, const struct erg_engine *engine,
                             struct erg_error *err);
/* The place of a row: "rows.csv:12", or a run's folder. */
const char *erg_fit_row_place(const struct erg_fit_row *row, struct erg_arena *arena);
void erg_fit_rows_release(struct erg_fit_rows *rows);

struct erg_fit_request {
    const struct erg_fit_row *rows;
    size_t count;
    const struct erg_time_machine *machine;
    const struct erg_engine *start;
    const char *const *keys; /* of the constants to fit, as in the engine's file; ends with NULL */
    size_t folds;            /* 2 to ERG_FIT_MOST_FOLDS */
    const char *path;        /* the source of the rows, for messages; NULL: rows are numbered */
};

struct erg_fit_errors {
    double mean, most; /* of |predicted / measured - 1| */
    double spearman;   /* rank correlation of predicted and measured tokens/s per GPU */
    size_t worst;      /* the row with the largest error */
};

struct erg_fit {
    struct erg_engine engine; /* the start's name and strings, fitted constants */
    size_t constants;
    /*
     * One standard deviation of each constant, relative. INFINITY: the rows do not determine it.
     * That is, with rows measured to one per cent the constant could still be e times as large,
     * because no row depends on it or because another constant has the same effect on all rows.
     */
    double uncertainty[ERG_FIT_MOST_CONSTANTS];
    struct erg_fit_errors fitted;         /* of the fitted rows */
    struct erg_fit_errors held_out;       /* of each row, by the fit without its fold */
    double fold_mean[ERG_FIT_MOST_FOLDS]; /* of each fold, held out */
};

/*
 * Fails if a row has no finite predicted time, which makes a fit impossible, or if a fitted
 * constant is outside the range of an engine's file.
 */
int erg_fit_engine(struct erg_fit *fit, const struct erg_fit_request *request,
                   struct erg_error *err);

/* The engine for the execution of a row. */
struct erg_engine erg_fit_row_engine(const struct erg_fit_row *row,
                                     const struct erg_engine *engine);

/* Predicted seconds of each row, and their errors. */
void erg_fit_predict(double *time_s, const struct erg_fit_row *rows, size_t count,
                     const struct erg_engine *engine, const struct erg_time_machine *machine);
struct erg_fit_errors erg_fit_judge(const double *time_s, const struct erg_fit_row *rows,
                                    size_t count);

#endif
