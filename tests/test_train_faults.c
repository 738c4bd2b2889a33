/*
 * Faults inside of training: gradients that are not finite, ranks that hang in a step, and
 * checkpoints that are written while training goes on.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "rank_world.h"
#include "side_by_side.h"
#include "train_job.h"
#include "train_world.h"

#include "base/clock.h"
#include "device/host/host.h"
#include "io/file.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

/* ---- a rank ---- */

struct rank {
    struct erg_job *job;
    struct erg_backend *backend;
    struct erg_trainer *trainer;
    const struct erg_launch_environment *env; /* NULL: one rank */
};

static double hang_s; /* for trainers that are opened */
static void (*stuck)(const char *sentence);

/* On two ranks there are two stages. */
static void open_rank(struct rank *rank, const struct erg_launch_environment *env,
                      struct erg_rendezvous *rendezvous)
{
    char text[512];
    struct erg_error err;
    int world = env ? env->world : 1;
    int length = snprintf(text, sizeof text,
                          "model: model\n"
                          "cluster: {nodes: 1, gpus_per_node: %d, gpu: A100-SXM4-40GB}\n"
                          "pipeline: %d\nmicrobatch_size: 2\nmicrobatches: 4\nsequence: 16\n"
                          "train:\n  data: [{file: tokens, type: uint16}]\n"
                          "  updates: 100\n  learning_rate: 0.002\n  warmup: 4\n",
                          world, world);
    if (!env || env->rank == 0) /* checkpoints keep it */
        assert_ok(erg_file_write(in_folder("job.yaml"), text, (size_t)length, &err), &err);
    assert_ok(erg_job_parse(&rank->job, in_folder("job.yaml"), text, (size_t)length, NULL, &err),
              &err);
    struct erg_host_options host = {.float32 = true, .rendezvous = rendezvous};
    assert_ok(erg_host_open(&rank->backend, &host, &err), &err);
    struct erg_trainer_options options = {.backend = rank->backend,
                                          .job = rank->job,
                                          .rank = env ? env->rank : 0,
                                          .world = world,
                                          .rendezvous = rendezvous,
                                          .hang_s = hang_s,
                                          .stuck = stuck};
    assert_ok(erg_trainer_open(&rank->trainer, &options, &err), &err);
    rank->env = env;
}

static void close_rank(struct rank *rank)
{
    erg_trainer_close(rank->trainer);
    rank->backend->table->close(rank->backend);
    erg_job_free(rank->job);
}

static struct erg_train_step take_step(struct rank *rank)
{
    struct erg_error err;
    struct erg_train_step step;
    assert_ok(erg_trainer_step(rank->trainer, 0, &step, &err), &err);
    return step;
}

static float *state_of(struct rank *rank)
{
    size_t bytes = 3 * rank->trainer->weights->state * sizeof(float);
    float *state = erg_xmalloc(bytes);
    read_device(rank->trainer, state, erg_optimizer_state(rank->trainer->optimizer), bytes);
    return state;
}

/* The place of a tensor's first element that this rank has; NULL: it has none. */
static const struct erg_weight_span *find_span(struct rank *rank, const char *name)
{
    const struct erg_weight_spans *spans = &rank->trainer->spans;
    for (size_t i = 0; i < spans->count; i++)
        if (strcmp(spans->items[i].name, name) == 0)
            return &spans->items[i];
    return NULL;
}

/* ---- what is not finite ---- */

/* One weight in use is NaN for a step: nothing of that step is learned, and the next one learns. */
static void one_step_is_skipped(const struct erg_launch_environment *env,
                                struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    open_rank(&rank, env, rendezvous);
    for (int i = 0; i < 2; i++)
        assert_false(take_step(&rank).skipped);
    const struct erg_weight_span *span = find_span(&rank, "model.layers.1.self_attn.o_proj.weight");
    float *weight = span ? (float *)erg_stage_values(rank.trainer->stage) + span->offset : NULL;
    float kept = weight ? *weight : 0, *before = state_of(&rank);
    if (weight)
        *weight = NAN; /* the host's own memory, and nothing is queued */
    struct erg_train_step step = take_step(&rank);
    if (weight)
        *weight = kept;
    assert_true(step.skipped);
    assert_false(isfinite(step.gradient_norm));
    assert_int_equal(step.step, 3);
    assert_int_equal(step.updates, 2);
    float *after = state_of(&rank);
    assert_memory_equal(after, before, 3 * rank.trainer->weights->state * sizeof(float));
    step = take_step(&rank);
    assert_false(step.skipped);
    assert_true(isfinite(step.gradient_norm));
    assert_int_equal(step.step, 4);
    assert_int_equal(step.updates, 3);
    assert_int_equal(step.tokens, 4 * 8 * 16); /* those of the skipped step count */
    assert_int_equal(rank.trainer->samples, 4 * 8);
    free(before);
    free(after);
    close_rank(&rank);
}

static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    run_ranks(1, one_step_is_skipped);
    run_ranks(2, one_step_is_skipped);
}

/* A master that is infinite: ten steps in a row are skipped, then the run ends, and can be saved.
 */
static void a_weight_is_infinite(const struct erg_launch_environment *env,
                                 struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_train_step step;
    open_rank(&rank, env, rendezvous);
    const struct erg_weight_span *span = find_span(&rank, "model.layers.1.mlp.down_proj.weight");
    if (span)
        erg_optimizer_state(rank.trainer->optimizer)[span->state + 3] = INFINITY;
    assert_ok(erg_optimizer_round(rank.trainer->optimizer, &err), &err);
    for (int i = 0; i < ERG_TRAINER_MOST_SKIPS; i++) {
        step = take_step(&rank);
        assert_true(step.skipped);
        assert_int_equal(step.updates, 0);
    }
    assert_fails(erg_trainer_step(rank.trainer, 0, &step, &err), &err, "");
    if (env->rank == 0)
        assert_non_null(strstr(err.message,
                               "gradients of 10 steps in a row are not finite, and no weights "
                               "were updated; the first weight that is not finite is in "
                               "'model.layers.1.mlp.down_proj.weight'"));
    else
        assert_string_equal(err.message, "");
    assert_true(erg_trainer_is_whole(rank.trainer));
    assert_int_equal(erg_trainer_steps(rank.trainer), ERG_TRAINER_MOST_SKIPS);
    assert_ok(erg_trainer_save(rank.trainer, in_folder("infinite"), 1, &err), &err);
    close_rank(&rank);
}

/* All weights are finite, and a gradient overflows. */
static void a_gradient_is_not_finite(const struct erg_launch_environment *env,
                                     struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_train_step step;
    open_rank(&rank, env, rendezvous);
    const struct erg_weight_span *span = find_span(&rank, "model.layers.0.mlp.up_proj.weight");
    for (size_t i = 0; span && i < span->columns; i++)
        erg_optimizer_state(rank.trainer->optimizer)[span->state + i] = 3e38f;
    assert_ok(erg_optimizer_round(rank.trainer->optimizer, &err), &err);
    for (int i = 0; i < ERG_TRAINER_MOST_SKIPS; i++)
        assert_true(take_step(&rank).skipped);
    assert_fails(erg_trainer_step(rank.trainer, 0, &step, &err), &err, "");
    if (env->rank == 0)
        assert_non_null(strstr(err.message, "the first gradient that is not finite is in 'model."));
    close_rank(&rank);
}

static void ten_such_steps_end_the_run(void **state)
{
    (void)state;
    run_ranks(1, a_weight_is_infinite);
    char link[64] = "";
    assert_true(readlink(in_folder("infinite/latest"), link, sizeof link - 1) > 0);
    assert_string_equal(link, "step-00000010");
    run_ranks(2, a_weight_is_infinite);
    run_ranks(1, a_gradient_is_not_finite);
    run_ranks(2, a_gradient_is_not_finite);
}

/* ---- hangs ---- */

static struct erg_backend_table hanging; /* a backend's, but for */
static int (*copy_of_host)(struct erg_backend *backend, void *to, const void *from, size_t bytes,
                           struct erg_stream *stream, struct erg_error *err);
static struct erg_rendezvous *of_hanging;
static atomic_bool hangs, was_called_stuck;

/* A call that does not come back until the job has failed. */
static int hang(struct erg_backend *backend, void *to, const void *from, size_t bytes,
                struct erg_stream *stream, struct erg_error *err)
{
    while (atomic_load(&hangs)) {
        if (of_hanging ? erg_rendezvous_check(of_hanging, err) != 0
                       : atomic_load(&was_called_stuck))
            return erg_fail(err, ERG_FAILED, "the call came back");
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return copy_of_host(backend, to, from, bytes, stream, err);
}

static void make_hanging(struct rank *rank, struct erg_rendezvous *rendezvous)
{
    of_hanging = rendezvous;
    copy_of_host = rank->backend->table->copy;
    hanging = *rank->backend->table;
    hanging.copy = hang;
    rank->backend->table = &hanging;
}

/* Rank 1 hangs at the begin of its third step: all get a sentence that names it. */
static void one_hangs(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_train_step step;
    open_rank(&rank, env, rendezvous);
    make_hanging(&rank, rendezvous);
    for (int i = 0; i < 2; i++)
        take_step(&rank);
    atomic_store(&hangs, env->rank == 1);
    assert_fails(erg_trainer_step(rank.trainer, 0, &step, &err), &err, "");
    atomic_store(&hangs, false);
    assert_false(erg_trainer_is_whole(rank.trainer));
    assert_true(erg_rendezvous_check(rendezvous, &err) != 0);
    if (!strstr(err.message, "the run hangs: nothing was finished for") ||
        !strstr(err.message,
                "; furthest behind: rank 1, at the forward of microbatch 0 of step 3") ||
        strstr(err.message, "rank 0"))
        fail_msg("%s", err.message);
    erg_rendezvous_explain(rendezvous, &err);
    assert_int_equal(*err.message != 0, env->rank == 0);
    close_rank(&rank);
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    hang_s = 1;
    run_ranks(2, one_hangs);
    hang_s = 0;
}

static char stuck_sentence[512];

static void note_stuck(const char *sentence)
{
    snprintf(stuck_sentence, sizeof stuck_sentence, "%s", sentence);
    atomic_store(&was_called_stuck, true);
}

/* Nobody else can end a rank that is alone. */
static void a_hung_rank_is_ended_by_its_watchdog(void **state)
{
    (void)state;
    struct rank rank;
    struct erg_error err;
    struct erg_train_step step;
    hang_s = 0.5;
    stuck = note_stuck;
    open_rank(&rank, NULL, NULL);
    make_hanging(&rank, NULL);
    take_step(&rank);
    assert_false(atomic_load(&was_called_stuck));
    atomic_store(&hangs, true);
    assert_fails(erg_trainer_step(rank.trainer, 0, &step, &err), &err, "the call came back");
    atomic_store(&hangs, false);
    assert_non_null(strstr(stuck_sentence, "rank 0, at the forward of microbatch 0 of step 2"));
    close_rank(&rank);
    hang_s = 0;
    stuck = NULL;
}

/* A job that fails before the watchdog has looked once: the rank has its grace to end by itself. */
static void a_failure_at_once_is_not_called_stuck_at_once(void **state)
{
    (void)state;
    const struct erg_launch_environment alone = {.world = 1};
    const int64_t grace_ns = 4000000000; /* a second less than it is */
    struct erg_rendezvous *rendezvous;
    struct erg_watchdog *watchdog;
    struct erg_error err;
    atomic_store(&was_called_stuck, false);
    assert_ok(erg_rendezvous_open(&rendezvous, &alone, 1, &err), &err);
    const struct erg_watchdog_options options = {.rendezvous = rendezvous, .stuck = note_stuck};
    int64_t start_ns = erg_now_ns();
    assert_ok(erg_watchdog_open(&watchdog, &options, &err), &err);
    erg_watchdog_begin(watchdog, 1);
    erg_rendezvous_abort(rendezvous, "rank 1 was lost");
    while (!atomic_load(&was_called_stuck))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (erg_now_ns() - start_ns < grace_ns)
        fail_msg("it was called stuck after %.3f s", 1e-9 * (double)(erg_now_ns() - start_ns));
    erg_watchdog_close(watchdog);
    assert_string_equal(stuck_sentence, "rank 1 was lost");
    erg_rendezvous_close(rendezvous);
    atomic_store(&was_called_stuck, false);
}

/* ---- checkpoints in the background ---- */

static bool is_there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

/* What was begun is what would have been written at once, however far training has gone since. */
static void one_is_written_in_the_background(const struct erg_launch_environment *env,
                                             struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    open_rank(&rank, env, rendezvous);
    for (int i = 0; i < 3; i++)
        take_step(&rank);
    assert_ok(erg_trainer_save(rank.trainer, in_folder("at-once"), 2, &err), &err);
    assert_int_equal(erg_trainer_checkpoint(rank.trainer), 3);
    assert_ok(erg_trainer_save_begin(rank.trainer, in_folder("behind"), 2, &err), &err);
    /* What becomes of the state now is none of its business. */
    size_t bytes = 3 * rank.trainer->weights->state * sizeof(float);
    float *live = erg_optimizer_state(rank.trainer->optimizer), *kept = state_of(&rank);
    memset(live, 0x3f, bytes); /* the host's own memory, and nothing is queued */
    while (!erg_checkpoint_written(rank.trainer->writer))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    memcpy(live, kept, bytes);
    free(kept);
    /* Only a step makes a checkpoint of it. */
    assert_false(is_there("behind/step-00000003"));
    int steps = 0;
    rank.trainer->checkpoint = 0;
    while (erg_trainer_checkpoint(rank.trainer) == 0) {
        take_step(&rank);
        assert_true(++steps < 10000);
    }
    assert_int_equal(erg_trainer_checkpoint(rank.trainer), 3);
    assert_true(is_there("behind/step-00000003/manifest.json"));
    /* The next one waits for what is being written, and the end for itself. */
    assert_ok(erg_trainer_save_begin(rank.trainer, in_folder("behind"), 9, &err), &err);
    take_step(&rank);
    assert_ok(erg_trainer_save_begin(rank.trainer, in_folder("behind"), 9, &err), &err);
    take_step(&rank);
    assert_ok(erg_trainer_save(rank.trainer, in_folder("behind"), 9, &err), &err);
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "behind/step-%08d/manifest.json", 3 + steps + i);
        assert_true(is_there(name));
    }
    assert_int_equal(erg_trainer_checkpoint(rank.trainer), erg_trainer_steps(rank.trainer));
    close_rank(&rank);
}

static void checkpoints_are_written_while_training_goes_on(void **state)
{
    (void)state;
    for (int world = 1; world <= 2; world++) {
        struct erg_text command =
            with_folder("rm -rf @/at-once @/behind && mkdir @/at-once @/behind");
        assert_int_equal(system(command.data), 0);
        erg_text_release(&command);
        run_ranks(world, one_is_written_in_the_background);
        command = with_folder("diff -r @/at-once/step-00000003 @/behind/step-00000003 && "
                              "! ls @/behind | grep tmp");
        assert_int_equal(system(command.data), 0);
        erg_text_release(&command);
    }
}

/* A run that fails while one is being written leaves nothing that looks like one. */
static void a_failed_run_gives_up_what_it_writes(const struct erg_launch_environment *env,
                                                 struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    open_rank(&rank, env, rendezvous);
    take_step(&rank);
    assert_ok(erg_trainer_save_begin(rank.trainer, in_folder("given-up"), 2, &err), &err);
    close_rank(&rank);
}

static void a_checkpoint_can_be_given_up(void **state)
{
    (void)state;
    struct erg_error err;
    assert_ok(erg_dir_make(in_folder("given-up"), &err), &err);
    run_ranks(2, a_failed_run_gives_up_what_it_writes);
    assert_false(is_there("given-up/step-00000001"));
    assert_false(is_there("given-up/latest"));
}

static int make_data(void **state)
{
    uint16_t tokens[3000];
    struct erg_error err;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 251);
    return make_folder(state) || erg_dir_make(in_folder("model"), &err) ||
                   erg_file_write(in_folder("model/config.json"), small_llama, strlen(small_llama),
                                  &err) ||
                   erg_file_write(in_folder("tokens"), (const char *)tokens, sizeof tokens, &err)
               ? -1
               : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(ten_such_steps_end_the_run),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_hung_rank_is_ended_by_its_watchdog),
        cmocka_unit_test(a_failure_at_once_is_not_called_stuck_at_once),
        cmocka_unit_test(checkpoints_are_written_while_training_goes_on),
        cmocka_unit_test(a_checkpoint_can_be_given_up),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, make_data, remove_folder);
}
