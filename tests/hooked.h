/*
 * What tests of hooks begin with: plans, trainers that are loops without any work, the fake NVML.
 */
#ifndef ERGON_TESTS_HOOKED_H
#define ERGON_TESTS_HOOKED_H

#include "fake_clocks.h"
#include "folder.h"
#include "program.h"

#include "base/log.h"
#include "ergon/ergon.h"
#include "iteration/iteration.h"

#include <sys/wait.h>

#define SAMPLE ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json"

static const char *interleaved; /* a plan of two chunks per stage */

static inline int make_plans(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    write_text("profile.csv", "stage,instruction,frequency,time,energy\n"
                              "0,forward,1410,0.010,4\n0,forward,1200,0.012,3\n"
                              "0,backward,1410,0.020,8\n0,backward,1200,0.024,6\n"
                              "1,forward,1410,0.011,4\n1,forward,1200,0.013,3\n"
                              "1,backward,1410,0.022,8\n1,backward,1200,0.026,6\n"
                              "2,forward,1410,0.010,4\n2,forward,1200,0.012,3\n"
                              "2,backward,1410,0.020,8\n2,backward,1200,0.024,6\n"
                              "3,forward,1410,0.010,4\n3,forward,1200,0.012,3\n"
                              "3,backward,1410,0.020,8\n3,backward,1200,0.024,6\n");
    struct erg_text line = with_folder("frontier @/profile.csv -m 8 -p 80 --schedule interleaved "
                                       "--virtual-stages 2 --plan @/interleaved.json -q 2>&1");
    check_program(line.data, 0, "");
    erg_text_release(&line);
    static char path[160];
    snprintf(path, sizeof path, "%s", in_folder("interleaved.json"));
    interleaved = path;
    return 0;
}

/* ---- warnings ---- */

static unsigned warnings;

static inline void count_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    (void)text;
    warnings += level == ERG_LOG_WARNING;
}

/* ---- a trainer ---- */

static inline struct erg_hook_options options_of(const char *plan, int stage)
{
    struct erg_hook_options options;
    erg_hook_defaults(&options);
    options.plan = plan;
    options.stage = stage;
    options.gpu = "1";
    return options;
}

static inline struct erg_hook *open_hook(const struct erg_hook_options *options)
{
    struct erg_hook *hook;
    struct erg_error err = {0};
    assert_ok(erg_hook_open(&hook, options, &err), &err);
    return hook;
}

static inline struct erg_hook_stats stats_of(struct erg_hook *hook)
{
    struct erg_hook_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    return stats;
}

static inline void close_hook(struct erg_hook *hook, const struct world *world)
{
    struct erg_error err = {0};
    assert_ok(erg_hook_close(hook, &err), &err);
    if (world) {
        assert_int_equal(lock_of(world, 1), 0);
        world_end(world);
    }
}

/* A pipeline as a trainer has it, and what of a pass it tells. */
struct trainer {
    size_t stages, stage, microbatches, chunks;
    bool forward_only, says_microbatch, says_chunk;
};

static const struct trainer as_planned = {2, 0, 8, 1, false, true, true};

/* A step of the trainer, at once. The first failure ends it. */
static inline int train(struct erg_hook *hook, const struct trainer *trainer, struct erg_error *err)
{
    struct erg_instruction order[256];
    const struct erg_pass_order passes =
        erg_pass_order_of(trainer->stages, trainer->chunks, trainer->microbatches);
    const size_t count = 2 * erg_pass_order_count(&passes);
    assert_true(count <= 256);
    erg_schedule_stage(order, trainer->stage, &passes);
    int result = erg_hook_step_begin(hook, err);
    for (size_t i = 0; i < count && result == 0; i++) {
        if (trainer->forward_only && order[i].direction == ERG_BACKWARD)
            continue;
        result =
            erg_hook_begin(hook, order[i].direction, trainer->says_chunk ? (int)order[i].chunk : -1,
                           trainer->says_microbatch ? (int)order[i].microbatch : -1, NULL, err) ||
                    erg_hook_end(hook, NULL, err)
                ? -1
                : 0;
    }
    return result == 0 ? erg_hook_step_end(hook, err) : -1;
}

/* A pass, at once. */
static inline int pass(struct erg_hook *hook, int kind, int chunk, int microbatch,
                       struct erg_error *err)
{
    return erg_hook_begin(hook, kind, chunk, microbatch, NULL, err) || erg_hook_end(hook, NULL, err)
               ? -1
               : 0;
}

/* Until the GPU is locked at what is not `but`. */
static inline int await_lock(const struct world *world, int but)
{
    for (int i = 0; i < 20000 && lock_of(world, 1) == but; i++)
        pause_s(0.001);
    assert_int_not_equal(lock_of(world, 1), but);
    return lock_of(world, 1);
}

#endif
