/* Computes the clock that is due at this moment. */
#include "hooks/hook_internal.h"

#include "base/clock.h"

#include <math.h>

static const int64_t look_ns = 1000000, look_gpu_ns = 200000, verify_ns = 1000000000,
                     patience_ns = 10000000000;

/*
 * A change upwards that arrives within this share of its duration is in time. If more than the
 * share LATE_MOST of LATE_TRIES changes are late, changes are requested a quarter earlier, up to
 * twice the first lead.
 */
#define LATE_SHARE 0.25
#define LATE_MOST 0.02
#define LEAD_GROWS 1.25
enum { LATE_TRIES = 50 };

/* A GPU reports a clock slightly different from its lock. */
enum { BESIDE_MHZ = 15 };

void erg_hook_clock_init(struct hook_clock *clock, struct erg_hook *hook)
{
    clock->hook = hook;
    clock->lead_s = HOOK_LEAD_S;
}

/* ---- the clock that is due ---- */

/* Planned seconds of work from a pass that begins to the end of its group, without waiting. */
static double work_left(const struct erg_programme *programme, uint32_t position)
{
    double left_s = 0;
    for (uint32_t i = position; i < programme->groups[programme->passes[position].group].end; i++)
        left_s += programme->passes[i].time_s;
    return left_s;
}

/* Whether the next group's clock is due although the previous group still runs. */
static bool is_next_due(const struct hook_clock *clock, const struct hook_where *where,
                        int64_t now_ns)
{
    const struct erg_programme *programme = where->programme;
    const uint32_t position = (uint32_t)where->position;
    const struct erg_programme_pass *pass = &programme->passes[position];
    const struct erg_programme_group *group = &programme->groups[pass->group];
    const bool up = group[1].clock_mhz > group->clock_mhz;
    if (where->ended_ns && position + 1 == group->end) {
        const double waits_s = pass[1].start_s - pass->start_s - pass->time_s;
        if (up || waits_s >= HOOK_DOWN_S)
            return true; /* a change while the GPU waits is free */
    }
    if (!up)
        return false;
    const double done_s = 1e-9 * (double)(now_ns - where->begun_ns);
    return done_s >= where->ratio * work_left(programme, position) - clock->lead_s;
}

/* The group whose clock is due, in a step whose first pass has begun. */
static uint32_t group_due(const struct hook_clock *clock, const struct hook_where *where,
                          int64_t now_ns)
{
    const uint32_t group = where->programme->passes[where->position].group;
    return group + 1 < where->programme->group_count && is_next_due(clock, where, now_ns)
               ? group + 1
               : group;
}

struct turn {
    int clock_mhz;   /* 0: 0: unchanged */
    uint64_t serial; /* turns are counted across all steps */
};

/*
 * The first group's clock may come early, but not late: a rise comes at the end of the previous
 * step, a fall with the first pass. The last stage waits only for the optimizer.
 */
static int clock_between(const struct hook_clock *clock, const struct hook_where *where)
{
    const int first_mhz = where->programme->groups[0].clock_mhz;
    if (where->last_stage)
        return where->programme->highest_mhz;
    return first_mhz > clock->due_mhz ? first_mhz : clock->due_mhz;
}

/* The turn of the step's first group; the turn before it is at the end of the previous step. */
static uint64_t first_serial(const struct hook_where *where)
{
    return (uint64_t)where->step * (where->programme->group_count + 1) + 1;
}

static struct turn turn_due(const struct hook_clock *clock, const struct hook_where *where,
                            int64_t now_ns)
{
    const uint64_t first = first_serial(where);
    switch (where->phase) {
    case HOOK_STEP:
        if (where->position >= 0) {
            const uint32_t group = group_due(clock, where, now_ns);
            return (struct turn){where->programme->groups[group].clock_mhz, first + group};
        }
        return (struct turn){clock->due_mhz ? clock_between(clock, where) : 0, first - 1};
    case HOOK_BETWEEN: /* `step` is the next one */
        return (struct turn){clock_between(clock, where), first - 1};
    case HOOK_HIGH:
        return (struct turn){where->programme->highest_mhz, clock->due_serial};
    case HOOK_IDLE:
        break;
    }
    return (struct turn){0, clock->due_serial};
}

/* ---- lateness of changes ---- */

static void judge(struct hook_clock *clock)
{
    clock->awaits = 0;
    clock->tried++;
    if (1e-9 * (double)(clock->arrives_ns - clock->begun_ns) > LATE_SHARE * HOOK_UP_S) {
        clock->lates++;
        atomic_fetch_add(&clock->late, 1);
    }
    if (clock->tried < LATE_TRIES)
        return;
    if ((double)clock->lates > LATE_MOST * (double)clock->tried)
        clock->lead_s = fmin(LEAD_GROWS * clock->lead_s, 2 * HOOK_LEAD_S);
    clock->lates = clock->tried = 0;
}

/*
 * Notes the start of a group with a higher clock than the previous one, to check whether its clock
 * has arrived.
 */
static void note_begin(struct hook_clock *clock, const struct hook_where *where)
{
    const struct erg_programme *programme = where->programme;
    const uint32_t group = programme->passes[where->position].group;
    const uint64_t serial = first_serial(where) + group;
    if (group == 0 || (uint32_t)where->position != programme->groups[group].first ||
        programme->groups[group].clock_mhz < programme->groups[group - 1].clock_mhz ||
        clock->begun_ns == where->begun_ns)
        return;
    clock->begun_ns = where->begun_ns;
    clock->awaits = serial;
    if (clock->arrives_serial == serial)
        judge(clock);
}

void erg_hook_clock_accepted(void *context, int clock_mhz, int64_t begin_ns, int64_t end_ns)
{
    struct hook_clock *clock = context;
    const int64_t takes_ns = (int64_t)(1e9 * HOOK_UP_S);
    clock->arrives_ns = end_ns > begin_ns + takes_ns ? end_ns : begin_ns + takes_ns;
    clock->arrives_serial = clock->due_serial;
    clock->set_mhz = clock_mhz;
    clock->set_ns = end_ns;
    if (clock->awaits == clock->due_serial)
        judge(clock);
}

/* ---- the GPU's clocks ---- */

enum erg_hook_cause erg_hook_cause_of(uint64_t reasons)
{
    if (reasons & ERG_REASON_HW_POWER_BRAKE)
        return ERG_HOOK_CAUSE_POWER_BRAKE;
    if (reasons & (ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL | ERG_REASON_HW_SLOWDOWN))
        return ERG_HOOK_CAUSE_THERMAL;
    return reasons & ERG_REASON_SW_POWER_CAP ? ERG_HOOK_CAUSE_POWER_CAP : ERG_HOOK_CAUSE_UNKNOWN;
}

/*
 * Once a second: counts the time below the lock by reason, and detects a GPU that stays above its
 * lock.
 */
static void verify(struct hook_clock *clock, int64_t now_ns)
{
    struct erg_gpu_sample sample;
    const int64_t since_ns = now_ns - clock->looked_ns;
    if (!clock->set_mhz || since_ns < verify_ns || now_ns - clock->set_ns < verify_ns / 10)
        return;
    clock->looked_ns = now_ns;
    erg_gpu_read(clock->gpus, clock->gpu, 1 << ERG_METRIC_SM_CLOCK | 1 << ERG_METRIC_REASONS,
                 &sample);
    const uint64_t reasons = erg_gpu_has(&sample, ERG_METRIC_REASONS)
                                 ? (uint64_t)sample.readings[ERG_METRIC_REASONS].value
                                 : 0;
    atomic_fetch_or(&clock->reasons, reasons);
    if (!erg_gpu_has(&sample, ERG_METRIC_SM_CLOCK))
        return;
    const int64_t seen_mhz = sample.readings[ERG_METRIC_SM_CLOCK].value;
    if (seen_mhz < clock->set_mhz - BESIDE_MHZ && !(reasons & ERG_REASON_IDLE))
        atomic_fetch_add(&clock->below_ns[erg_hook_cause_of(reasons)],
                         (uint64_t)(since_ns < 2 * verify_ns ? since_ns : verify_ns));
    if (seen_mhz <= clock->set_mhz + BESIDE_MHZ || !clock->obeyed_ns)
        clock->obeyed_ns = now_ns;
    else if (now_ns - clock->obeyed_ns >= patience_ns)
        atomic_store(&clock->disobeyed, true);
}

/* ---- the callback of the thread ---- */

/* One clock for all passes. */
static void hold(struct hook_clock *clock, const struct hook_where *where, int64_t now_ns,
                 struct erg_clock_due *due)
{
    if (where->clock_mhz != clock->due_mhz)
        atomic_fetch_add(&clock->requests, 1);
    clock->due_mhz = due->clock_mhz = where->clock_mhz;
    if (where->phase == HOOK_STEP)
        verify(clock, now_ns);
}

void erg_hook_clock_due(void *context, int64_t now_ns, struct erg_clock_due *due)
{
    struct hook_clock *clock = context;
    struct hook_where where;
    due->again_ns = now_ns + look_ns;
    if (clock->hook->marks.gpu) {
        const bool queued = erg_hook_drain(clock->hook, now_ns);
        where = clock->hook->marks.where;
        if (queued)
            due->again_ns = now_ns + look_gpu_ns;
        else if (where.phase != HOOK_STEP)
            due->again_ns = INT64_MAX;
    } else if (!hook_place_read(&clock->hook->place, &where)) {
        return;
    } else if (where.phase != HOOK_STEP) {
        due->again_ns = INT64_MAX; /* the next event rings */
    }
    if (where.clock_mhz) {
        hold(clock, &where, now_ns, due);
        return;
    }
    if (where.programme != clock->programme) { /* turns are counted from the start */
        clock->programme = where.programme;
        clock->due_serial = clock->arrives_serial = clock->awaits = 0;
    }
    if (!where.programme)
        return;
    if (where.phase == HOOK_STEP && where.position >= 0)
        note_begin(clock, &where);
    const struct turn turn = turn_due(clock, &where, now_ns);
    if (turn.clock_mhz && turn.clock_mhz != clock->due_mhz) {
        /* Turns in between were due and are over. */
        if (clock->due_serial && turn.serial > clock->due_serial + 1) {
            atomic_fetch_add(&clock->superseded, turn.serial - clock->due_serial - 1);
            atomic_fetch_add(&clock->requests, turn.serial - clock->due_serial - 1);
        }
        atomic_fetch_add(&clock->requests, 1);
        clock->due_mhz = turn.clock_mhz;
    }
    if (turn.clock_mhz)
        clock->due_serial = turn.serial;
    due->clock_mhz = turn.clock_mhz;
    if (where.phase == HOOK_STEP)
        verify(clock, now_ns);
}
