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
 * The hook says which clock the GPU has when, by the plan; the trainer goes on as it is. Passes
 * have to come in the order of the plan's schedule, 1F1B or interleaved: a trainer that does
 * something else than what was planned is told so, and its GPU is unlocked before it hears of it.
 *
 * There is one hook for each process and GPU, used by one thread at a time. From step_begin to the
 * last end of a pass no call allocates memory, does file I/O or waits for another thread, unless
 * the order is wrong: then the GPU is unlocked first. Ranks that agree may work out another
 * programme in step_end. Locks end with the process, however it ends. In a child of fork() a hook
 * is dead: its calls fail there.
 *
 * Structs begin with their size, which the caller sets; a shorter struct of an older header means
 * the defaults for the rest, and is filled as far as it goes. Values that are not known are NaN.
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

/* Grows when a program that was compiled against an older header would no longer run. */
#define ERG_HOOK_ABI 1

struct erg_hook; /* one rank that follows a plan */

enum erg_hook_mode {
    ERG_HOOK_OBSERVE = 0, /* times steps and passes; with a plan it checks their order, too */
    ERG_HOOK_FOLLOW = 1,  /* sets the plan's clocks as well */
    ERG_HOOK_PROFILE = 2  /* makes the profile that "ergon frontier" makes a plan of */
};

/*
 * ERG_HOOK_PROFILE, with ordinary steps: all ranks hold one clock at a time, from the highest down
 * in steps of 4 %, each until seconds and joules of all passes are known to 1 %, or for 43 steps;
 * they end when the energy of every pass has risen at three clocks in a row. Then the GPU is
 * unlocked, and steps are observed. It takes some 400 steps, and needs the right to set clocks as
 * ERG_HOOK_FOLLOW does, and an energy counter. A job of several ranks calls erg_hook_agree() on all
 * of them before the first step; its exchange is then called every fourth step, and twice more for
 * each chunk when a clock is done. Rank 0 of it writes the file after each clock. Without a plan
 * all steps have to have the passes of the first one; trainers whose schedule is interleaved name
 * their chunks.
 */

/* What a pass is, beside ERG_FORWARD and ERG_BACKWARD. */
enum erg_hook_kind {
    ERG_BACKWARD_WEIGHT = 2, /* of schedules that split the backward pass: timed, no clock */
    ERG_OTHER = 3            /* optimizer, sums of gradients: at the highest planned clock */
};

/*
 * How it is known where the GPU is. HOST: from the time of the calls, for trainers that wait for
 * each pass. EVENTS and MEMORY: from marks that the calls queue on the pass's stream of NVIDIA's
 * driver, so that the host may run ahead by up to 256 passes; a pass beyond that goes unmarked.
 * EVENTS is for all streams that are not captured into a graph, from where on it goes by the host's
 * clock; MEMORY writes a number into host memory and knows times to 0.2 ms.
 */
enum erg_hook_markers { ERG_MARK_HOST = 0, ERG_MARK_EVENTS = 1, ERG_MARK_MEMORY = 2 };

struct erg_hook_options {
    uint32_t size;
    /* Path of a plan.json, or its text, such as rank 0 sent it to all; both NULL: no plan, but with
     * ERG_HOOK_FOLLOW. */
    const char *plan, *plan_text;
    const char *method; /* of the plan. NULL: "sequential+clocks" */
    int32_t point;      /* from 0; -1: the selected one if it is of that method, else the fastest */
    int32_t stage, replica;  /* pipeline rank; which pipeline (data rank) */
    int32_t mode;            /* enum erg_hook_mode */
    const char *gpu;         /* index or UUID; NULL: the only visible one, else by the local rank */
    const char *daemon;      /* NULL: as $ERGON_DAEMON says; else refused */
    double dwell_s;          /* a clock is kept so long at least; 0: 0.05 */
    double least_change_mhz; /* smaller changes are left out; 0: 30 */
    int32_t markers;         /* enum erg_hook_markers */
    int32_t energy;          /* 0; 1: of each class of passes, by the GPU's energy counter */
    int32_t strict;      /* 1: a wrong order is an error; 0: it is said once, and no clock is set
                          * any more */
    int32_t clocks_only; /* 1: take the clocks of methods that only ergon's own training can run */
};

/* Why a pipeline is late, from what its GPUs say of their clocks. */
enum erg_hook_cause {
    ERG_HOOK_CAUSE_NONE = 0, /* nobody is late */
    ERG_HOOK_CAUSE_UNKNOWN = 1,
    ERG_HOOK_CAUSE_THERMAL = 2,
    ERG_HOOK_CAUSE_POWER_BRAKE = 3, /* from outside of the GPU */
    ERG_HOOK_CAUSE_POWER_CAP = 4,
    ERG_HOOK_CAUSE_ASKED = 5 /* erg_hook_late() */
};

/* A point of the plan that is run from some step on. */
struct erg_hook_choice {
    uint32_t size;
    int32_t point;        /* of the method, from 0, those beyond its frontier included */
    const char *method;   /* lives as long as the hook */
    double time_s;        /* of an iteration at that point, as planned */
    double energy_j;      /* of all GPUs of the pipeline */
    double held_energy_j; /* with waiting for the late pipeline */
    int64_t from_step;    /* counted from 0 */
    int32_t late_replica; /* whom the pipelines wait for; -1: nobody, or not known */
    int32_t cause;        /* enum erg_hook_cause */
};

/* Seconds the SM clock was found below the one asked for, by what the GPU said. */
struct erg_hook_below {
    double power_cap_s, thermal_s, power_brake_s, other_s;
};

enum erg_hook_lease {
    ERG_HOOK_LEASE_NONE = 0,   /* clocks are not set by this hook */
    ERG_HOOK_LEASE_DIRECT = 1, /* they are; a guardian, or the daemon, unlocks at the end */
    ERG_HOOK_LEASE_ENDED = 2   /* they were: `trouble` says why not any more */
};

struct erg_hook_stats {
    uint32_t size;
    int32_t lease;             /* enum erg_hook_lease */
    int64_t steps;             /* that were ended */
    double step_last_s;        /* from step_begin to step_end */
    double step_median_s;      /* of the last 32 */
    double step_planned_s;     /* of the point that runs */
    double busy_s;             /* in passes, of the last step */
    int64_t passes;            /* forward, backward and backward-weight */
    int64_t clock_requests;    /* times that another clock was due */
    int64_t clock_changes;     /* that the driver made */
    int64_t clock_superseded;  /* a newer one was due before it was set */
    int64_t clock_refused;     /* 1: the driver refuses, or the guardian has ended */
    int64_t clock_late;        /* of those upwards: probably not there in time */
    double clock_call_mean_s;  /* of calls of the driver */
    double clock_call_worst_s; /* likewise */
    double below_s;            /* the clock was below the one set, though the GPU worked */
    struct erg_hook_below below;
    int32_t classes;      /* for erg_hook_class() */
    int32_t order_errors; /* that were found and forgiven (strict 0), or the one that was not */
    int32_t programme_changes;  /* of clock in a step, by the programme in force */
    int32_t planned_changes;    /* the same without a least dwell */
    double programme_energy_j;  /* of one GPU's passes in a step, by the plan's options */
    double planned_energy_j;    /* the same without a least dwell */
    int32_t planned_times_hold; /* 0: clocks_only, so planned times are not this trainer's */
    double waiting_w;           /* drawn in steps outside of passes, with energy */
    int32_t point;              /* that runs */
    char trouble[256];          /* a sentence; "" where all is well */
    int32_t profile_clocks;     /* that a profile has so far */
    int32_t profile_over;       /* 1: no clock is tried any more; early if there is `trouble` */
    char profile[512];          /* on rank 0: what was written, and the command that makes a plan of
                                 * it; "" before the first clock is done */
};

/* Passes of one kind, chunk and clock. */
struct erg_hook_class {
    uint32_t size;
    int32_t kind, chunk, clock_mhz; /* clock 0: without a plan */
    int64_t count;
    double mean_s, planned_s;
    /* Of a pass, with energy; uncertainty 95 %, but for the sensor's own error. quality: enum
     * erg_energy_quality; estimated where classes cannot be told apart. */
    double power_w, energy_j, uncertainty_j;
    int32_t quality;
};

/* Fills in the defaults, and the size: mode FOLLOW, markers HOST, strict. */
void erg_hook_defaults(struct erg_hook_options *options);

/*
 * Reads and checks the plan, works out the clocks of this rank, and in mode FOLLOW takes the right
 * to set them: ERG_NO_DEVICE where the GPU or the permission is missing. ERG_USAGE for options that
 * do not fit the plan, and for what hooks do not do.
 */
int erg_hook_open(struct erg_hook **hook, const struct erg_hook_options *options,
                  struct erg_error *err);

/* Unlocks the GPU. Fails when it may still be locked; the hook is gone all the same. NULL is fine.
 */
int erg_hook_close(struct erg_hook *hook, struct erg_error *err);

int erg_hook_step_begin(struct erg_hook *hook, struct erg_error *err);

/*
 * A pass begins or ends. `chunk` and `microbatch` -1: not known, then only the kind is checked.
 * `stream` is the CUstream of the pass (the default one is CU_STREAM_LEGACY), whose context is the
 * calling thread's current one; NULL: the host's clock. With ERG_MARK_HOST it is not looked at. A
 * pass that is not the plan's next one fails with ERG_FAILED: what was expected, what came, at
 * which step and position, and the nearest cause that fits. By then the GPU is unlocked, and the
 * hook sets no clock any more; later calls but close repeat that error.
 */
int erg_hook_begin(struct erg_hook *hook, int32_t kind, int32_t chunk, int32_t microbatch,
                   void *stream, struct erg_error *err);
int erg_hook_end(struct erg_hook *hook, void *stream, struct erg_error *err);

/* The same by name: "forward", "backward", "backward-weight", "other"; chunk and microbatch -1. */
int erg_hook_begin_named(struct erg_hook *hook, const char *name, void *stream,
                         struct erg_error *err);

/* All passes of the plan have been made, else this fails as erg_hook_begin() does. */
int erg_hook_step_end(struct erg_hook *hook, struct erg_error *err);

/* Between two steps, for an evaluation or a checkpoint: the GPU gets the highest planned clock, and
 * calls are ignored until resume. -1 in a step, and from resume where nothing is paused. */
int erg_hook_pause(struct erg_hook *hook);
int erg_hook_resume(struct erg_hook *hook);

/*
 * Some other pipeline needs `factor` (at least 1) times the planned time of an iteration: from the
 * next step on this one runs the point of least energy within that time, those beyond the frontier
 * included, as "ergon show --straggler" picks; with 1 the point it was opened for. All ranks of
 * all pipelines but the late one have to call it between the same two steps. `choice` may be NULL.
 */
int erg_hook_late(struct erg_hook *hook, double factor, struct erg_hook_choice *choice,
                  struct erg_error *err);

/*
 * The same by agreement: from now on every 16th erg_hook_step_end() calls `exchange`, which gathers
 * `bytes` (64) from each of the `ranks` into `all`, in the order of ranks, and returns 0, or fails
 * the step. All ranks of all pipelines call this before the same step. They compute one decision
 * from the same bytes, and change two steps later: a pipeline that is late by 1.5 % keeps to its
 * point, the others follow. `exchange` NULL ends it. With ERG_HOOK_PROFILE they agree on clocks.
 */
typedef int erg_hook_exchange(void *context, const void *mine, void *all, size_t bytes);
int erg_hook_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context, int32_t ranks,
                   struct erg_error *err);

/* What was decided last; from_step -1 before the first decision. */
int erg_hook_agreed(const struct erg_hook *hook, struct erg_hook_choice *choice);

/* Where ERG_HOOK_PROFILE writes, before the first step (default: profile.csv); rank 0's counts. */
int erg_hook_profile_to(struct erg_hook *hook, const char *path, struct erg_error *err);

/* At any time; neither waits for anything. Class from 0; -1 for one that is not there. */
int erg_hook_stats(struct erg_hook *hook, struct erg_hook_stats *stats);
int erg_hook_class(const struct erg_hook *hook, int32_t index, struct erg_hook_class *about);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
