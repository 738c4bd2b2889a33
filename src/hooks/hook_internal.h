/*
 * Shared by the files of a hook only.
 *
 * The trainer's thread reports its place (hook_place.h). From that and the programme, the clock
 * thread computes the clock that is due at this moment (hook_clock.c). So no queue is needed: a
 * clock that was due while the driver was busy is dropped, and the trainer never waits.
 */
#ifndef ERG_HOOKS_HOOK_INTERNAL_H
#define ERG_HOOKS_HOOK_INTERNAL_H

#include "ergon/hook.h"
#include "hooks/hook_energy.h"
#include "hooks/hook_marks.h"
#include "hooks/hook_order.h"
#include "hooks/hook_place.h"
#include "hooks/hook_profile.h"
#include "hooks/programme.h"
#include "telemetry/clock_thread.h"

enum {
    HOOK_CLASSES = 128, /* the last one holds all that do not fit */
    HOOK_STEPS = 48,    /* kept for medians */
    HOOK_STATS_STEPS = 32,
};

/* The assumed duration of clock changes on a machine without a measurement. */
#define HOOK_UP_S 0.015   /* median from call to clock */
#define HOOK_LEAD_S 0.050 /* 95 % have arrived by then */
#define HOOK_DOWN_S 0.015

/* ---- state of the clock thread ---- */

struct hook_clock {
    struct erg_hook *hook;
    struct erg_gpus *gpus;
    size_t gpu;
    struct erg_clock_thread *thread; /* NULL: no clocks are set */

    /* Read by others. */
    _Atomic uint64_t requests, superseded, late, ups;
    _Atomic uint64_t below_ns[ERG_HOOK_CAUSE_ASKED]; /* by cause */
    _Atomic uint64_t reasons;                        /* seen since they were last read */
    atomic_bool disobeyed;                           /* the GPU ignores locks */

    /* The thread's own. */
    const struct erg_programme *programme;
    int due_mhz, set_mhz;
    uint64_t due_serial;   /* the number of that turn of the programme; 0: none yet */
    double lead_s;         /* a change is requested this long before it is due */
    uint64_t lates, tried; /* with this lead */
    /* The serial of a change upwards that has begun and is not judged yet; 0: none. */
    uint64_t awaits;
    int64_t begun_ns, arrives_ns;
    uint64_t arrives_serial;
    int64_t looked_ns, set_ns,
        obeyed_ns; /* last time that the clock was read; set; not above the lock */
};

/* The cause of a low clock: the most important of the reasons that the GPU reports. */
enum erg_hook_cause erg_hook_cause_of(uint64_t reasons);
void erg_hook_clock_init(struct hook_clock *clock, struct erg_hook *hook);
void erg_hook_clock_due(void *context, int64_t now_ns, struct erg_clock_due *due);
void erg_hook_clock_accepted(void *context, int clock_mhz, int64_t begin_ns, int64_t end_ns);

/* ---- the hook ---- */

/* Written by one thread, read by others. */
struct hook_class {
    int kind, chunk;
    _Atomic int clock_mhz;
    _Atomic uint64_t sequence; /* odd: the fields below are being written */
    _Atomic uint64_t count;
    _Atomic double total_s, squares_s2;
    double planned_s; /* of one pass; NaN: unknown */
};

/* A snapshot of a hook_class. */
struct hook_tally {
    uint64_t count;
    double total_s, squares_s2;
};

/* A point's programme, made on first use and kept until the end. */
struct hook_point {
    struct erg_programme programme;
    uint16_t *classes; /* [count]: of each pass */
    bool made;
};

/* The message of a rank to all others: 64 bytes with the same format on every machine of a job. */
struct hook_message {
    int32_t version, replica, stage, point;
    int64_t step;
    double step_s, busy_s; /* medians */
    int64_t reasons;       /* of its GPU's clocks: bits of enum erg_clock_reason */
    int32_t lease, unused[3];
};

struct hook_agreement {
    erg_hook_exchange *exchange; /* NULL: none */
    void *context;
    size_t ranks;
    struct hook_message *messages; /* [ranks] */
    double *seconds;               /* [3 * stages] */
    struct erg_hook_choice choice;
    size_t wanted;  /* a slower point that all ranks have agreed on */
    int rounds;     /* rounds that agreed on it */
    double since_s; /* the last change, as a sum of step times */
    bool late;      /* a rank was late at the last round */
};

struct erg_hook {
    struct erg_hook_options options;
    unsigned forks; /* the process's fork count when the hook was opened */
    struct erg_plan *plan;
    enum erg_method method;
    size_t chosen, running;                     /* points */
    size_t next;                                /* the point from step `next_step` on */
    int64_t next_step;                          /* -1: none pending */
    struct hook_point *points;                  /* [points of the method] */
    const struct erg_instruction *instructions; /* of the stage */
    struct erg_clock_list clocks;               /* of the GPU */
    struct erg_gpus *gpus;
    struct hook_place place;
    struct hook_marks marks;
    struct erg_hook_energy *energy; /* NULL: the energy of passes is not measured */
    struct hook_clock clock;

    bool in_step, paused, lost; /* lost: failed for good */
    bool unchecked;             /* the order is not checked, after a tolerated mistake */
    int in_pass;                /* a kind; -1: none */
    size_t in_class;
    uint32_t position;
    bool names_microbatches, names_chunks, splits_backward;
    int64_t steps, passes;
    int order_errors;
    int64_t step_ns, pass_ns,
        planned_ns; /* start of the step and the pass; sum over forward and backward passes */
    double busy_s;
    /* Rings; NaN: not yet known. */
    _Atomic double step_s[HOOK_STEPS], step_busy_s[HOOK_STEPS];
    double ratio; /* measured to planned seconds */
    struct hook_class classes[HOOK_CLASSES];
    _Atomic size_t class_count;
    struct hook_agreement agreement;
    struct hook_profile *profile; /* NULL: none is made */
    struct erg_error error;       /* of a lost hook */
    char trouble[256];
};

/* Makes the programme of a point if it does not exist. */
int erg_hook_make_point(struct erg_hook *hook, size_t point, struct erg_error *err);

/* NULL if the hook follows no plan. */
static inline const struct erg_programme *hook_programme(const struct erg_hook *hook)
{
    return hook->points ? &hook->points[hook->running].programme : NULL;
}

/* Whether the clock thread runs; otherwise the trainer's own thread does its work. */
static inline bool hook_sets_clocks(const struct erg_hook *hook)
{
    return hook->clock.thread && !hook->trouble[0] && !(hook->profile && hook->profile->over);
}

/* Fails unless the hook exists, belongs to this process and is not lost. */
int erg_hook_check(const struct erg_hook *hook, const char *what, struct erg_error *err);

/* Unlocks the GPU for good; `why` is the reason in one sentence. */
void erg_hook_end_clocks(struct erg_hook *hook, const char *why);

/* The same, for misuse by the trainer: fails if misuse is not tolerated. */
int erg_hook_mistake(struct erg_hook *hook, struct erg_error *err, const char *sentence);

/* Finds a class, or adds one if there is room. */
size_t erg_hook_find_class(struct erg_hook *hook, int kind, int chunk, int clock_mhz,
                           double planned_s);

struct hook_tally erg_hook_read_class(const struct hook_class *class);
void erg_hook_clear_class(struct hook_class *class, int clock_mhz);

/* Called in step_end; acts every 16th step. */
int erg_hook_exchange_step(struct erg_hook *hook, struct erg_error *err);

/* Median of the last `most` values of a ring of steps; NaN: there are none. */
double erg_hook_median_of_steps(const struct erg_hook *hook, const _Atomic double *ring,
                                size_t most);

/* Adds the duration of a pass to its class, to the step's sum and to the mean ratio. */
void erg_hook_take_time(struct hook_class *class, double taken_s, double *busy_s, double *ratio);

/*
 * Processes the GPU's progress since the last call; called by the clock thread or, without one, the
 * trainer's. Returns whether work is still queued.
 */
bool erg_hook_drain(struct erg_hook *hook, int64_t now_ns);

/* The trainer's side: a new phase from now on, or from when the GPU gets there. */
void erg_hook_mark_phase(struct erg_hook *hook, const struct hook_where *where);
void erg_hook_mark_begin(struct erg_hook *hook, const struct hook_where *where, void *stream);
void erg_hook_mark_end(struct erg_hook *hook, const struct hook_where *where, void *stream);

#endif
