/*
 * Place: where the trainer is, written by its thread and read by the clock thread. A reader that
 * sees a write in progress tries again; the writer never waits (a sequence lock).
 */
#ifndef ERG_HOOKS_HOOK_PLACE_H
#define ERG_HOOKS_HOOK_PLACE_H

#include "hooks/programme.h"

#include <stdatomic.h>

enum hook_phase {
    HOOK_IDLE,    /* before the first step */
    HOOK_STEP,    /* in a step: at `position`, or before the first pass */
    HOOK_BETWEEN, /* between two steps */
    HOOK_HIGH,    /* paused, or in work outside passes */
};

struct hook_where {
    enum hook_phase phase;
    const struct erg_programme *programme;
    bool last_stage;
    int64_t step;
    int32_t position;           /* of the latest pass; -1: none in this step */
    int64_t begun_ns, ended_ns; /* of that pass; ended 0: not yet */
    double ratio;               /* measured to planned seconds */
    int clock_mhz;              /* one clock for all passes, instead of the programme's; 0: none */
    uint64_t block;             /* the block of a profile (hook_profile.h) that contains the step */
};

struct hook_place {
    _Atomic uint64_t sequence; /* odd: being written */
    _Atomic int phase;
    _Atomic(const struct erg_programme *) programme;
    atomic_bool last_stage;
    _Atomic int64_t step;
    _Atomic int32_t position;
    _Atomic int64_t begun_ns, ended_ns;
    _Atomic double ratio;
    _Atomic int clock_mhz;
};

static inline void hook_place_write(struct hook_place *place, const struct hook_where *where)
{
    atomic_fetch_add(&place->sequence, 1);
    atomic_store(&place->phase, (int)where->phase);
    atomic_store(&place->programme, where->programme);
    atomic_store(&place->last_stage, where->last_stage);
    atomic_store(&place->step, where->step);
    atomic_store(&place->position, where->position);
    atomic_store(&place->begun_ns, where->begun_ns);
    atomic_store(&place->ended_ns, where->ended_ns);
    atomic_store(&place->ratio, where->ratio);
    atomic_store(&place->clock_mhz, where->clock_mhz);
    atomic_fetch_add(&place->sequence, 1);
}

/* False: a write is in progress. */
static inline bool hook_place_read(struct hook_place *place, struct hook_where *where)
{
    const uint64_t before = atomic_load(&place->sequence);
    where->phase = (enum hook_phase)atomic_load(&place->phase);
    where->programme = atomic_load(&place->programme);
    where->last_stage = atomic_load(&place->last_stage);
    where->step = atomic_load(&place->step);
    where->position = atomic_load(&place->position);
    where->begun_ns = atomic_load(&place->begun_ns);
    where->ended_ns = atomic_load(&place->ended_ns);
    where->ratio = atomic_load(&place->ratio);
    where->clock_mhz = atomic_load(&place->clock_mhz);
    return !(before & 1) && atomic_load(&place->sequence) == before;
}

#endif
