/* The GPU's progress in the trainer's queued work. */
#include "hooks/hook_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>

/* ---- the trainer's side ---- */

/* NULL if fewer than `left` would be free. */
static struct hook_mark *next_mark(struct hook_marks *marks, uint64_t left)
{
    const uint64_t added = marks->added;
    return added - marks->taken + left < HOOK_MARKS ? &marks->items[added % HOOK_MARKS] : NULL;
}

/* Without a clock thread, the trainer's own processes the marks. */
static void add_mark(struct erg_hook *hook)
{
    hook->marks.added++;
    if (!hook_sets_clocks(hook))
        erg_hook_drain(hook, erg_now_ns());
}

void erg_hook_mark_phase(struct erg_hook *hook, const struct hook_where *where)
{
    struct hook_mark *mark = next_mark(&hook->marks, 0);
    if (!mark)
        return;
    *mark = (struct hook_mark){.kind = HOOK_MARK_PHASE,
                               .where = *where,
                               .host_ns = erg_now_ns(),
                               .unmarked = hook->marks.unmarked};
    add_mark(hook);
}

/* Whether this pass can be marked on its stream. */
static bool can_mark(struct erg_hook *hook, void *stream)
{
    struct hook_marks *marks = &hook->marks;
    if (!stream || marks->gave_up)
        return false;
    if (hook->options.markers == ERG_MARK_EVENTS && erg_gpu_marks_captures(marks->gpu, stream)) {
        marks->gave_up = true;
        erg_log(ERG_LOG_WARNING,
                "the stream of passes is being captured into a graph, where events carry no times: "
                "the hook uses the host's clock from now on; expected ERG_MARK_MEMORY");
        return false;
    }
    return true;
}

void erg_hook_mark_begin(struct erg_hook *hook, const struct hook_where *where, void *stream)
{
    struct hook_marks *marks = &hook->marks;
    struct hook_mark *mark = next_mark(marks, HOOK_MARKS_FOR_STEPS);
    const bool on_gpu = can_mark(hook, stream);
    const size_t slot = (size_t)(marks->slots_added % ERG_GPU_MARKS);
    const uint32_t round = (uint32_t)(marks->slots_added / ERG_GPU_MARKS + 1);
    marks->begun = mark && (!on_gpu || marks->slots_added - marks->slots_taken < ERG_GPU_MARKS);
    if (marks->begun && on_gpu)
        marks->begun = erg_gpu_marks_record(marks->gpu, slot, ERG_MARK_BEGIN, round, stream) == 0;
    if (!marks->begun) {
        marks->unmarked++;
        return;
    }
    *mark = (struct hook_mark){
        .kind = HOOK_MARK_BEGIN,
        .where = *where,
        .on_gpu = on_gpu,
        .has_slot = on_gpu,
        .host_ns = erg_now_ns(),
        .slot = slot,
        .class = hook->in_class,
        .round = round,
        .pass_kind = hook->in_pass,
    };
    marks->slots_added += on_gpu;
    add_mark(hook);
}

/* Marks the end of a pass on the same side (GPU or host) as its beginning. */
void erg_hook_mark_end(struct erg_hook *hook, const struct hook_where *where, void *stream)
{
    struct hook_marks *marks = &hook->marks;
    if (!marks->begun)
        return;
    const struct hook_mark *begin = &marks->items[(marks->added - 1) % HOOK_MARKS];
    struct hook_mark *mark = &marks->items[marks->added % HOOK_MARKS];
    struct hook_mark end = *begin;
    end.kind = HOOK_MARK_END;
    end.where = *where;
    end.host_ns = erg_now_ns();
    if (end.on_gpu && (!stream || erg_gpu_marks_record(marks->gpu, end.slot, ERG_MARK_END,
                                                       end.round, stream) != 0))
        end.on_gpu = false;
    *mark = end;
    marks->begun = false;
    add_mark(hook);
}

/* ---- the other side ---- */

/* Applies the trainer's report of its place; seconds and ratio are measured here. */
static void go_to(struct hook_marks *marks, const struct hook_where *where, int64_t begun_ns,
                  int64_t ended_ns)
{
    const double ratio = marks->where.ratio;
    marks->where = *where;
    marks->where.begun_ns = begun_ns;
    marks->where.ended_ns = ended_ns;
    marks->where.ratio = ratio;
}

static void take_phase(struct erg_hook *hook, const struct hook_mark *mark, int64_t now_ns)
{
    struct hook_marks *marks = &hook->marks;
    /* `step` is the next one; the sums so far belong to the previous one. */
    if (mark->where.phase == HOOK_BETWEEN && marks->where.phase == HOOK_STEP) {
        hook->step_busy_s[(mark->where.step - 1) % HOOK_STEPS] = marks->busy_s;
        /* The energy of a pass without a mark would count as waiting. */
        if (hook->energy)
            erg_hook_energy_step(hook->energy, marks->step_ns,
                                 mark->unmarked == marks->step_unmarked ? now_ns : marks->step_ns);
    }
    if (mark->where.phase == HOOK_STEP) {
        marks->busy_s = 0;
        marks->step_ns = now_ns;
        marks->step_unmarked = mark->unmarked;
        if (hook->profile)
            erg_hook_profile_turn(hook, mark->where.block, mark->where.clock_mhz);
    }
    go_to(marks, &mark->where, 0, 0);
}

static void take_begin(struct hook_marks *marks, const struct hook_mark *mark, int64_t now_ns)
{
    marks->begun_ns = mark->on_gpu ? now_ns : mark->host_ns;
    if (mark->pass_kind == ERG_BACKWARD_WEIGHT)
        return;
    go_to(marks, &mark->where,
          mark->pass_kind == ERG_OTHER ? marks->where.begun_ns : marks->begun_ns, 0);
}

static void take_end(struct erg_hook *hook, const struct hook_mark *mark, int64_t now_ns)
{
    struct hook_marks *marks = &hook->marks;
    int64_t end_ns = mark->on_gpu ? now_ns : mark->host_ns;
    double taken_s = mark->on_gpu ? erg_gpu_marks_seconds(marks->gpu, mark->slot) : (double)NAN;
    if (isnan(taken_s)) {
        taken_s = fmax(1e-9 * (double)(end_ns - marks->begun_ns), 0);
    } else {
        /* A reader may be late, by more at one end than at the other. */
        const int64_t taken_ns = (int64_t)(1e9 * taken_s);
        if (end_ns - taken_ns < marks->begun_ns)
            marks->begun_ns = end_ns - taken_ns;
        end_ns = marks->begun_ns + taken_ns;
    }
    erg_hook_take_time(&hook->classes[mark->class], taken_s, &marks->busy_s, &marks->where.ratio);
    if (hook->energy)
        erg_hook_energy_pass(hook->energy, mark->class, marks->begun_ns, end_ns);
    if (mark->pass_kind != ERG_BACKWARD_WEIGHT)
        go_to(marks, &mark->where, marks->where.begun_ns, end_ns);
}

bool erg_hook_drain(struct erg_hook *hook, int64_t now_ns)
{
    struct hook_marks *marks = &hook->marks;
    while (marks->taken < marks->added) {
        const struct hook_mark *mark = &marks->items[marks->taken % HOOK_MARKS];
        const enum erg_gpu_mark_side side =
            mark->kind == HOOK_MARK_BEGIN ? ERG_MARK_BEGIN : ERG_MARK_END;
        if (mark->on_gpu && !erg_gpu_marks_reached(marks->gpu, mark->slot, side, mark->round))
            return true;
        if (mark->kind == HOOK_MARK_PHASE)
            take_phase(hook, mark, now_ns);
        else if (mark->kind == HOOK_MARK_BEGIN)
            take_begin(marks, mark, now_ns);
        else
            take_end(hook, mark, now_ns);
        marks->slots_taken += mark->kind == HOOK_MARK_END && mark->has_slot;
        marks->taken++;
    }
    return false;
}
