/*
 * Marks: the passes that the trainer has queued on its GPU, in order, to follow the GPU's progress.
 * One thread adds marks, one removes them, and neither waits. If the trainer is so far ahead that
 * the queue is full, passes get no mark; clocks then follow again from the next marked pass.
 */
#ifndef ERG_HOOKS_HOOK_MARKS_H
#define ERG_HOOKS_HOOK_MARKS_H

#include "hooks/gpu_marks.h"
#include "hooks/hook_place.h"

enum { HOOK_MARKS = 1024, HOOK_MARKS_FOR_STEPS = 64 };

struct hook_mark {
    enum hook_mark_kind { HOOK_MARK_PHASE, HOOK_MARK_BEGIN, HOOK_MARK_END } kind;
    struct hook_where where; /* the place from then on, without times and ratio */
    bool on_gpu;             /* false: reached at host_ns */
    bool has_slot;           /* has a slot of the GPU, even if its end uses the host's clock */
    int64_t host_ns;
    size_t slot, class;
    uint32_t round; /* of the slot */
    int pass_kind;
    uint64_t unmarked; /* passes before this phase without a mark */
};

struct hook_marks {
    struct erg_gpu_marks *gpu; /* NULL: only the host's clock */
    struct hook_mark items[HOOK_MARKS];
    _Atomic uint64_t added, taken; /* items */
    _Atomic uint64_t slots_taken;
    _Atomic uint64_t unmarked;

    /* The adding thread's own. */
    uint64_t slots_added;
    bool begun;   /* the running pass has a mark at its beginning */
    bool gave_up; /* the stream was captured: the host's clock is used from then on */

    /* The taking thread's own. */
    struct hook_where where;
    int64_t begun_ns;       /* of the running pass of any kind */
    double busy_s;          /* seconds of passes in the step */
    int64_t step_ns;        /* start of the step */
    uint64_t step_unmarked; /* unmarked passes by then */
};

#endif
