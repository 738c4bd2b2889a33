/*
 * Checkpoints on other layouts: a run that was stopped under one layout goes on under any other, at
 * the end of an epoch of both of its data sets, as if nothing had been changed.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "folder.h"
#include "rank_world.h"

#include "device/host/host.h"
#include "io/file.h"
#include "train/engine/trainer.h"

#include <math.h>
#include <sys/mman.h>

/* 24 samples are all 16 of the one data set and all 8 of the other, whose weights are as 2 to 1. */
enum { SEQUENCE = 16, BATCH = 12, BEFORE = 2, AFTER = 3 };

static const struct layout_case {
    const char *name;
    long tensor, context, pipeline, virtual_stages, data, microbatches;
} layouts[] = {
    {"one rank", 1, 1, 1, 1, 1, 4},      {"t 2", 2, 1, 1, 1, 1, 2},
    {"d 3", 1, 1, 1, 1, 3, 2},           {"c 2, d 2", 1, 2, 1, 1, 2, 3},
    {"p 2, v 2", 1, 1, 2, 2, 1, 4},      {"p 4", 1, 1, 4, 1, 1, 4},
    {"t 2, d 3", 2, 1, 1, 1, 3, 1},      {"t 4", 4, 1, 1, 1, 1, 3},
    {"p 2, d 3", 1, 1, 2, 1, 3, 2},      {"t 2, p 2, v 2", 2, 1, 2, 2, 1, 2},
    {"t 2, c 2, p 2", 2, 2, 2, 1, 1, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Of 257 words, a prime; two tensor ranks of four have the same keys and values. */
static const char config[] =
    "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_size\": 16,\n"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 2, \"vocab_size\": 257, \"rms_norm_eps\": 1e-6,\n"
    " \"max_position_embeddings\": 64, \"tie_word_embeddings\": %s}\n";

/* ---- what the processes share ---- */

static const struct layout_case *running;
static const char *running_model;
static struct erg_train_step *whole;          /* [BEFORE + AFTER]: of one rank, never stopped */
static struct erg_train_step (*again)[AFTER]; /* [LAYOUTS]: of the layout, from each checkpoint */

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static const char *run_of(size_t layout)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%zu", running_model, layout);
    return in_folder(name);
}

/* ---- one rank ---- */

struct rank {
    struct erg_job *job;
    struct erg_backend *backend;
    struct erg_trainer *trainer;
};

static struct erg_job *load_job(const struct layout_case *c)
{
    struct erg_text text = {0};
    struct erg_error err;
    struct erg_job *job;
    erg_text_printf(&text,
                    "model: %s\n"
                    "cluster: {nodes: 1, gpus_per_node: %ld, gpu: A100-SXM4-40GB}\n"
                    "tensor: %ld\ncontext: %ld\npipeline: %ld\nvirtual_stages: %ld\ndata: %ld\n"
                    "microbatch_size: %ld\nmicrobatches: %ld\nsequence: %d\n"
                    "train:\n"
                    "  data: [{file: a, type: uint16, weight: 2}, {file: b, type: uint16}]\n"
                    "  mask: eod\n  eod: 7\n"
                    "  updates: 20\n  learning_rate: 0.002\n  warmup: 4\n",
                    running_model, c->tensor * c->context * c->pipeline * c->data, c->tensor,
                    c->context, c->pipeline, c->virtual_stages, c->data,
                    BATCH / c->data / c->microbatches, c->microbatches, SEQUENCE);
    /* Checkpoints keep the job's file. */
    if (access(in_folder("job.yaml"), F_OK) != 0)
        assert_ok(erg_file_write(in_folder("job.yaml"), text.data, text.count, &err), &err);
    assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    return job;
}

static void open_rank(struct rank *rank, const struct erg_launch_environment *env,
                      struct erg_rendezvous *rendezvous)
{
    struct erg_error err;
    rank->job = load_job(running);
    struct erg_host_options host = {.float32 = true, .rendezvous = rendezvous};
    assert_ok(erg_host_open(&rank->backend, &host, &err), &err);
    struct erg_trainer_options options = {.backend = rank->backend,
                                          .job = rank->job,
                                          .rank = env->rank,
                                          .world = env->world,
                                          .rendezvous = rendezvous};
    assert_ok(erg_trainer_open(&rank->trainer, &options, &err), &err);
}

static void close_rank(struct rank *rank)
{
    erg_trainer_close(rank->trainer);
    rank->backend->table->close(rank->backend);
    erg_job_free(rank->job);
}

static void take_steps(struct rank *rank, int count, struct erg_train_step *steps)
{
    struct erg_error err;
    for (int i = 0; i < count; i++)
        assert_ok(erg_trainer_step(rank->trainer, 0, &steps[i], &err), &err);
}

static void run_whole(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    open_rank(&rank, env, rendezvous);
    take_steps(&rank, BEFORE + AFTER, whole);
    close_rank(&rank);
}

static void run_and_save(const struct erg_launch_environment *env,
                         struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_train_step steps[BEFORE];
    open_rank(&rank, env, rendezvous);
    take_steps(&rank, BEFORE, steps);
    assert_ok(erg_trainer_save(rank.trainer, run_of((size_t)(running - layouts)), 2, &err), &err);
    close_rank(&rank);
}

static void resume_all(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_train_step others[AFTER];
    open_rank(&rank, env, rendezvous);
    for (size_t i = 0; i < LAYOUTS; i++) {
        char *found;
        assert_ok(erg_trainer_resume(rank.trainer, run_of(i), &found, &err), &err);
        assert_non_null(found);
        free(found);
        assert_int_equal(erg_trainer_steps(rank.trainer), BEFORE);
        take_steps(&rank, AFTER, env->rank == 0 ? again[i] : others);
    }
    close_rank(&rank);
}

/* ---- all pairs ---- */

static int ranks_of(const struct layout_case *c)
{
    return (int)(c->tensor * c->context * c->pipeline * c->data);
}

static void check_steps(const char *from, const char *to, const struct erg_train_step *steps)
{
    for (int i = 0; i < AFTER; i++) {
        const struct erg_train_step *one = &whole[BEFORE + i];
        double loss = steps[i].loss - one->loss;
        double norm = steps[i].gradient_norm / one->gradient_norm - 1;
        if (!(fabs(loss) <= 5e-6) || !(fabs(norm) <= 2e-5))
            fail_msg("%s from %s to %s, step %d: loss %.3g apart, norm %.3g", running_model, from,
                     to, BEFORE + i + 1, loss, norm);
        assert_int_equal(steps[i].step, one->step);
        assert_int_equal(steps[i].updates, one->updates);
        assert_int_equal(steps[i].targets, one->targets);
        assert_int_equal(steps[i].tokens, one->tokens);
        assert_true(steps[i].learning_rate == one->learning_rate);
    }
}

static void check_model(const char *model)
{
    running_model = model;
    running = &layouts[0];
    run_ranks(1, run_whole);
    for (size_t i = 0; i < LAYOUTS; i++) {
        running = &layouts[i];
        run_ranks(ranks_of(running), run_and_save);
    }
    for (size_t i = 0; i < LAYOUTS; i++) {
        running = &layouts[i];
        run_ranks(ranks_of(running), resume_all);
        for (size_t from = 0; from < LAYOUTS; from++)
            check_steps(layouts[from].name, layouts[i].name, again[from]);
    }
}

static void tied_models_change_layouts(void **state)
{
    (void)state;
    check_model("tied");
}

static void untied_models_change_layouts(void **state)
{
    (void)state;
    check_model("untied");
}

/* ---- the data ---- */

static int write_tokens(const char *name, size_t samples, unsigned seed)
{
    uint16_t tokens[16 * SEQUENCE + 1];
    struct erg_error err;
    size_t count = samples * SEQUENCE + 1;
    for (size_t i = 0; i < count; i++)
        tokens[i] = (uint16_t)((i * i + seed) % 251 * (i % 7 + seed) % 257);
    return erg_file_write(in_folder(name), (const char *)tokens, count * sizeof *tokens, &err);
}

static int write_model(const char *name, const char *architecture, const char *type,
                       const char *tied)
{
    char text[1024], path[64];
    struct erg_error err;
    snprintf(path, sizeof path, "%s/config.json", name);
    int length = snprintf(text, sizeof text, config, architecture, type, tied);
    return erg_dir_make(in_folder(name), &err) ||
                   erg_file_write(in_folder(path), text, (size_t)length, &err)
               ? -1
               : 0;
}

static int make_data(void **state)
{
    whole = shared((BEFORE + AFTER) * sizeof *whole);
    again = shared(LAYOUTS * sizeof *again);
    return make_folder(state) || write_tokens("a", 16, 1) || write_tokens("b", 8, 3) ||
                   write_model("tied", "LlamaForCausalLM", "llama", "true") ||
                   write_model("untied", "Qwen2ForCausalLM", "qwen2", "false")
               ? -1
               : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_models_change_layouts),
        cmocka_unit_test(untied_models_change_layouts),
    };
    return cmocka_run_group_tests(tests, make_data, remove_folder);
}
