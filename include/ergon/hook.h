/*
 * Hooks: a trainer that is not ergon's follows an ergon plan, and is measured.
 *
 *     struct erg_hook_options options;
 *     struct erg_hook *hook;
 *     erg_hook_defaults(&options);
 *     options.plan = "plan.json";
 *     options.stage = pipeline_rank;
 *     if (erg_hook_open(&hook, &options, &err) != 0) ...
 *     each step:  erg_hook_step_begin(hook, &err);
 *                 each forward or backward pass of a microbatch, in the order of the schedule:
 *                     erg_hook_begin(hook, ERG_FORWARD, chunk, microbatch, NULL, &err);
 *                     ... the pass ...
 *                     erg_hook_end(hook, NULL, &err);
 *                 erg_hook_step_end(hook, &err);
 *     erg_hook_close(hook, &err);
 *
 * The hook sets the clock of the GPU for each pass, by the plan; the trainer stays as it is. A
 * rank's sequence of clocks in a step is its programme. Passes must come in the order of the plan's
 * schedule, 1F1B or interleaved. A pass out of order unlocks the GPU and fails the call.
 *
 * Each process has one hook per GPU, used by one thread at a time. From step_begin to the end of
 * the last pass, no call allocates memory, does file I/O or waits for another thread, except to
 * unlock the GPU after a wrong order. Ranks that agree may compute another programme in step_end.
 * Locks end with the process, in any way. Calls in a child of fork() fail.
 *
 * Structs begin with their size, which the caller sets; the rest of a shorter struct of an older
 * header has its defaults, and such a result is filled up to its size. Unknown values are NaN.
 */
#ifndef ERGON_HOOK_H
#define ERGON_HOOK_H

#include "ergon/error.h"
#include "ergon/passes.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Incremented when programs compiled against an older header no longer run. */
#define ERG_HOOK_ABI 1

struct erg_hook; /* one rank that follows a plan */

enum erg_hook_mode {
    ERG_HOOK_OBSERVE = 0, /* times steps and passes; with a plan it checks their order, too */
    ERG_HOOK_FOLLOW = 1,  /* sets the plan's clocks as well */
    ERG_HOOK_PROFILE = 2  /* writes a profile for "ergon frontier" */
};

/*
 * ERG_HOOK_PROFILE measures ordinary steps. All ranks hold one clock at a time, from the highest
 * down in steps of 4 %, until seconds and joules of all passes are known to 1 %, or for 43 steps.
 * It ends when the energy of every pass has risen at three clocks in a row. Then the GPU is
 * unlocked, and steps are observed. It takes some 400 steps and needs an energy counter and the
 * right to set clocks. A job of several ranks calls erg_hook_agree() on all of them before the
 * first step; its exchange is then called every fourth step, and twice more for each chunk when a
 * clock is done. Rank 0 writes the file after each clock. Without a plan, all steps must have the
 * passes of the first one, and interleaved schedules must name their chunks.
 */

/* Kinds of passes in addition to ERG_FORWARD and ERG_BACKWARD. */
enum erg_hook_kind {
    ERG_BACKWARD_WEIGHT = 2, /* of schedules that split the backward pass: timed, no clock */
    ERG_OTHER = 3            /* optimizer, sums of gradients: at the highest planned clock */
};

/*
 * How the hook follows the GPU. HOST uses the time of the calls, for trainers that wait for each
 * pass. EVENTS and MEMORY queue marks on the pass's CUDA stream, so the host may run ahead by up to
 * 256 passes; passes beyond that are not marked. EVENTS works on streams that are not captured into
 * a graph; from a capture on, the host's clock is used. MEMORY writes a number into host memory,
 * with times to 0.2 ms.
 */
enum erg_hook_markers { ERG_MARK_HOST = 0, ERG_MARK_EVENTS = 1, ERG_MARK_MEMORY = 2 };

struct erg_hook_options {
    uint32_t size;
    /* Path of a plan.json, or its text, for example as rank 0 sent it. Both NULL: no plan, which
     * ERG_HOOK_FOLLOW refuses. */
    const char *plan, *plan_text;
    const char *method; /* of the plan. NULL: "sequential+clocks" */
    int32_t point; /* from 0; -1: the selected one if it is of that method, otherwise the fastest */
    int32_t stage, replica; /* pipeline rank; number of the pipeline (data rank) */
    int32_t mode;           /* enum erg_hook_mode */
    const char *gpu;    /* index or UUID; NULL: the only visible one, otherwise by the local rank */
    const char *daemon; /* NULL: $ERGON_DAEMON decides; other values are refused */
    double dwell_s;     /* least time of a clock; 0: 0.05 */
    double least_change_mhz; /* smaller changes are skipped; 0: 30 */
    int32_t markers;         /* enum erg_hook_markers */
    int32_t energy;      /* 1: measures the energy of each class of passes by the GPU's counter */
    int32_t strict;      /* 1: a wrong order is an error; 0: a warning, after which no clock is
                          * set */
    int32_t clocks_only; /* 1: accepts methods that only ergon's own training can run */
};

/* Why a pipeline is late, by the clock reasons of its GPUs. */
enum erg_hook_cause {
    ERG_HOOK_CAUSE_NONE = 0, /* no pipeline is late */
    ERG_HOOK_CAUSE_UNKNOWN = 1,
    ERG_HOOK_CAUSE_THERMAL = 2,
    ERG_HOOK_CAUSE_POWER_BRAKE = 3, /* external to the GPU */
    ERG_HOOK_CAUSE_POWER_CAP = 4,
    ERG_HOOK_CAUSE_ASKED = 5 /* erg_hook_late() */
};

/* A point of the plan that runs from a step on. */
struct erg_hook_choice {
    uint32_t size;
    int32_t point;        /* of the method, from 0, slower points included */
    const char *method;   /* lives as long as the hook */
    double time_s;        /* of an iteration at that point, as planned */
    double energy_j;      /* of all GPUs of the pipeline */
    double held_energy_j; /* with the wait for the late pipeline */
    int64_t from_step;    /* counted from 0 */
    int32_t late_replica; /* the late pipeline; -1: none, or unknown */
    int32_t cause;        /* enum erg_hook_cause */
};

/* Seconds in which the SM clock was below the requested one, by the GPU's reason. */
struct erg_hook_below {
    double power_cap_s, thermal_s, power_brake_s, other_s;
};

enum erg_hook_lease {
    ERG_HOOK_LEASE_NONE = 0,   /* clocks are not set by this hook */
    ERG_HOOK_LEASE_DIRECT = 1, /* clocks are set; a guardian or the daemon unlocks at the end */
    ERG_HOOK_LEASE_ENDED = 2   /* clocks were set; `trouble` has the reason for the end */
};

struct erg_hook_stats {
    uint32_t size;
    int32_t lease;             /* enum erg_hook_lease */
    int64_t steps;             /* ended steps */
    double step_last_s;        /* from step_begin to step_end */
    double step_median_s;      /* of the last 32 */
    double step_planned_s;     /* of the current point */
    double busy_s;             /* in passes, of the last step */
    int64_t passes;            /* forward, backward and backward-weight */
    int64_t clock_requests;    /* changes that were due */
    int64_t clock_changes;     /* changes that the driver made */
    int64_t clock_superseded;  /* changes replaced by a newer one before they were made */
    int64_t clock_refused;     /* 1: the driver refuses, or the guardian has ended */
    int64_t clock_late;        /* upward changes that were probably late */
    double clock_call_mean_s;  /* of calls of the driver */
    double clock_call_worst_s; /* the longest of them */
    double below_s;            /* the clock was below the one set while the GPU worked */
    struct erg_hook_below below;
    int32_t classes;            /* for erg_hook_class() */
    int32_t order_errors;       /* found; with `strict`, 1 after the error */
    int32_t programme_changes;  /* changes of clock in a step */
    int32_t planned_changes;    /* the same without a least dwell */
    double programme_energy_j;  /* of one GPU's passes in a step, by the plan's options */
    double planned_energy_j;    /* the same without a least dwell */
    int32_t planned_times_hold; /* 0: with clocks_only planned times are not the trainer's */
    double waiting_w;           /* power in steps outside of passes, with `energy` */
    int32_t point;              /* the current point */
    char trouble[256];          /* a sentence; "" without trouble */
    int32_t profile_clocks;     /* clocks in the profile so far */
    int32_t profile_over;       /* 1: profiling has ended; early if there is `trouble` */
    char profile[512];          /* on rank 0: the file, and the command that makes a plan of it; ""
                                 * before the first clock is done */
};

/* Passes of one kind, chunk and clock. */
struct erg_hook_class {
    uint32_t size;
    int32_t kind, chunk, clock_mhz; /* clock 0: without a plan */
    int64_t count;
    double mean_s, planned_s;
    /* Values of a pass, with `energy`; the uncertainty is 95 % without the sensor's own error.
     * quality: enum erg_energy_quality; estimated if classes cannot be separated. */
    double power_w, energy_j, uncertainty_j;
    int32_t quality;
};

/* Sets the size and the defaults: mode FOLLOW, markers HOST, strict. */
void erg_hook_defaults(struct erg_hook_options *options);

/*
 * Reads and checks the plan, computes the clocks of this rank, and in mode FOLLOW takes the right
 * to set them: ERG_NO_DEVICE if the GPU or the permission is missing. ERG_USAGE for options that do
 * not suit the plan or are not supported.
 */
int erg_hook_open(struct erg_hook **hook, const struct erg_hook_options *options,
                  struct erg_error *err);

/* Unlocks the GPU and frees the hook, even if the call fails because the GPU may still be locked.
 * NULL is fine. */
int erg_hook_close(struct erg_hook *hook, struct erg_error *err);

int erg_hook_step_begin(struct erg_hook *hook, struct erg_error *err);

/*
 * A pass begins or ends. `chunk` and `microbatch` may be -1 (unknown); then only the kind is
 * checked. `stream` is the CUstream of the pass (the default stream is CU_STREAM_LEGACY), whose
 * context must be current in the calling thread; NULL: the host's clock. ERG_MARK_HOST ignores it.
 * A pass that is not the plan's next one fails with ERG_FAILED. The message has the expected and
 * the actual pass, the step, the position, and the most similar cause. The GPU is already unlocked,
 * and the hook sets no more clocks; later calls except close repeat the error.
 */
int erg_hook_begin(struct erg_hook *hook, int32_t kind, int32_t chunk, int32_t microbatch,
                   void *stream, struct erg_error *err);
int erg_hook_end(struct erg_hook *hook, void *stream, struct erg_error *err);

/* The same by name: "forward", "backward", "backward-weight", "other"; chunk and microbatch -1. */
int erg_hook_begin_named(struct erg_hook *hook, const char *name, void *stream,
                         struct erg_error *err);

/* Fails as erg_hook_begin() does if a pass of the plan is missing. */
int erg_hook_step_end(struct erg_hook *hook, struct erg_error *err);

/* Pauses between two steps, for an evaluation or a checkpoint: the GPU gets the highest planned
 * clock, and calls are ignored until resume. Returns -1 inside a step, and from resume without a
 * pause. */
int erg_hook_pause(struct erg_hook *hook);
int erg_hook_resume(struct erg_hook *hook);

/*
 * Another pipeline needs `factor` (at least 1) times the planned time of an iteration. From the
 * next step on, this one runs the point of least energy within that time, as "ergon show
 * --straggler" picks it: of the frontier and of the slower points after it, which pay only while
 * waiting. With a factor of 1 it runs the point it was opened for. All ranks of all pipelines
 * except the late one must call it between the same two steps. `choice` may be NULL.
 */
int erg_hook_late(struct erg_hook *hook, double factor, struct erg_hook_choice *choice,
                  struct erg_error *err);

/*
 * The same by agreement: from now on every 16th erg_hook_step_end() calls `exchange`, which gathers
 * `bytes` (64) from each of the `ranks` into `all`, in the order of ranks, and returns 0; another
 * value fails the step. All ranks of all pipelines call this before the same step. They compute one
 * decision from the same bytes and change two steps later: a pipeline that is late by 1.5 % keeps
 * its point, and the others wait at less energy. `exchange` NULL ends it. With ERG_HOOK_PROFILE
 * ranks agree on clocks.
 */
typedef int erg_hook_exchange(void *context, const void *mine, void *all, size_t bytes);
int erg_hook_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context, int32_t ranks,
                   struct erg_error *err);

/* The last decision; from_step is -1 before the first one. */
int erg_hook_agreed(const struct erg_hook *hook, struct erg_hook_choice *choice);

/* The file of ERG_HOOK_PROFILE (default: profile.csv). Call it before the first step; the path of
 * rank 0 is used. */
int erg_hook_profile_to(struct erg_hook *hook, const char *path, struct erg_error *err);

/* May be called at any time; neither waits. The index of a class starts at 0; -1 beyond the last.
 */
int erg_hook_stats(struct erg_hook *hook, struct erg_hook_stats *stats);
int erg_hook_class(const struct erg_hook *hook, int32_t index, struct erg_hook_class *about);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
