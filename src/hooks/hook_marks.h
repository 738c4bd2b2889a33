/*
 * Marks: the passes that the trainer has queued on its GPU, in order, to follow the GPU's progress.
 * One thread adds marks, one removes them, and neither waits. If the trainer is so far ahead that
 * the queue is full, passes get no mark: clocks then follow from the next marked pass.
 */
#ifndef ERG_HOOKS_HOOK_MARKS_H
#define ERG_HOOKS_HOOK_MARKS_H

#include "hooks/gpu_marks.h"
#include "hooks/hook_place.h"

enum { HOOK_MARKS = 1024, HOOK_MARKS_FOR_STEPS = 64 };

struct hook_mark {
    enum hook_mark_kind { HOOK_MARK_PHASE, HOOK_MARK_BEGIN, HOOK_MARK_END } kind;
    struct hook_where where; /* from then on, except times and the ratio */
    bool on_gpu;             /* else it is there at host_ns */
    bool has_slot;           /* of the GPU's, even if its end goes by the host */
    int64_t host_ns;
    size_t slot, class;
    uint32_t round; /* of the slot */
    int pass_kind;
    uint64_t unmarked; /* passes, until this phase */
};

struct hook_marks {
    struct erg_gpu_marks *gpu; /* NULL: the host's clock alone */
    struct hook_mark items[HOOK_MARKS];
    _Atomic uint64_t added, taken; /* items */
    _Atomic uint64_t slots_taken;
    _Atomic uint64_t unmarked;

    /* The adding thread's own. */
    uint64_t slots_added;
    bool begun;   /* the pass that runs has a beginning here */
    bool gave_up; /* the stream is captured: the host's clock from then on */

    /* The taking thread's own. */
    struct hook_where where;
    int64_t begun_ns;       /* of the running pass of any kind */
    double busy_s;          /* of the step */
    int64_t step_ns;        /* when it began here */
    uint64_t step_unmarked; /* passes, by then */
};

#endif
