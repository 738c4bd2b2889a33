/* Runs of a few steps on a layout, each rank a process with streams in random order, and how two of
 * them compare. */
#ifndef ERGON_TESTS_TRAIN_LAYOUTS_H
#define ERGON_TESTS_TRAIN_LAYOUTS_H

#include "random_plan.h"
#include "rank_world.h"
#include "train_world.h"

#include "device/host/host.h"
#include "folder.h"
#include "io/file.h"
#include "train/engine/rank_memory.h"

#include <sys/mman.h>

enum { SEQUENCE = 16, BATCH = 16, STEPS = 2, MOST_TENSORS = 200 };

struct layout_case {
    const char *model;
    long tensor, context, pipeline, virtual_stages, data, microbatches;
    enum {
        PLAIN = 0,
        SP = 1,
        MASKED = 2,
        BF16 = 4,
        VALIDATES = 8,
        PLANNED = 16
    } flags;            /* SP: sequence parallelism; PLANNED: by plan_of_case */
    const char *layers; /* of chunks; NULL: equal */
    const char *more;   /* keys of the job; NULL: none */
};

/* What the processes of a run write, in memory that they share. */
struct outcome {
    struct erg_train_step steps[STEPS];
    double validation[STEPS];   /* loss after each step */
    size_t elements;            /* of each of the two */
    float *gradients, *masters; /* of the tensors of the checkpoint, one after the other */
};

/* Where each tensor of a checkpoint lies in there. */
struct tensor_places {
    struct {
        char name[96];
        size_t offset, count;
    } items[MOST_TENSORS];
    size_t count, elements;
};

/* ---- what the processes share with this one ---- */

static const struct layout_case *running;
static uint64_t running_seed;
static struct outcome *running_outcome;
static struct tensor_places places;
static struct {
    unsigned modes; /* of random_plan() */
    uint64_t seed;
} plan_of_case;

static inline void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static inline struct erg_job *load_job(const struct layout_case *c)
{
    struct erg_text text = {0};
    struct erg_error err;
    struct erg_job *job;
    long ranks = c->tensor * c->context * c->pipeline * c->data;
    erg_text_printf(&text,
                    "model: %s/tests/data/train/%s\n"
                    "cluster: {nodes: 1, gpus_per_node: %ld, gpu: A100-SXM4-40GB}\n"
                    "tensor: %ld\ncontext: %ld\npipeline: %ld\nvirtual_stages: %ld\ndata: %ld\n"
                    "microbatch_size: %ld\nmicrobatches: %ld\nsequence: %d\n",
                    ERGON_TEST_SOURCE_DIR, c->model, ranks, c->tensor, c->context, c->pipeline,
                    c->virtual_stages, c->data, BATCH / c->data / c->microbatches, c->microbatches,
                    SEQUENCE);
    if (c->layers)
        erg_text_printf(&text, "layers: [%s]\n", c->layers);
    if (c->more)
        erg_text_printf(&text, "%s\n", c->more);
    erg_text_printf(&text,
                    "train:\n  offload_least_bytes: 0\n"
                    "  data: [{file: tokens, type: uint16}]\n"
                    "  updates: 20\n  learning_rate: 0.002\n  warmup: 2\n%s%s%s",
                    c->flags & MASKED ? "  mask: eod\n  eod: 7\n" : "",
                    c->flags & SP ? "  sequence_parallel: true\n" : "",
                    c->flags & VALIDATES ? "  validation: {data: [{file: held_out, type: uint16}], "
                                           "batches: 2}\n"
                                         : "");
    assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    return job;
}

static inline float *place_of(float *all, const char *name)
{
    for (size_t i = 0; i < places.count; i++)
        if (strcmp(places.items[i].name, name) == 0)
            return all + places.items[i].offset;
    fail_msg("there is no tensor %s", name);
    return NULL;
}

static inline void list_places(const struct erg_model *model)
{
    struct erg_layer_range layers = {0, model->layers};
    struct erg_weights_request request = erg_weights_whole(model, &layers);
    struct erg_weights weights;
    struct erg_weight_spans spans;
    places = (struct tensor_places){0};
    erg_weights_init(&weights, &request);
    erg_weight_spans_init(&spans, &weights, &request);
    for (size_t i = 0; i < spans.count; i++) {
        const struct erg_weight_span *span = &spans.items[i];
        size_t count = span->shape[0] * (span->dimensions == 2 ? span->shape[1] : 1);
        if (i && strcmp(span->name, spans.items[i - 1].name) == 0)
            continue;
        snprintf(places.items[places.count].name, sizeof places.items[0].name, "%s", span->name);
        places.items[places.count].offset = places.elements;
        places.items[places.count++].count = count;
        places.elements += count;
        assert_true(places.count < MOST_TENSORS);
    }
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
}

/* ---- one rank ---- */

/* This rank's state, or its gradients of the same elements, into the tensors of the checkpoint. */
static inline void put(const struct erg_trainer *trainer, const float *values, bool of_state,
                       float *all)
{
    for (size_t i = 0; i < trainer->spans.count; i++) {
        const struct erg_weight_span *span = &trainer->spans.items[i];
        float *tensor = place_of(all, span->name);
        for (size_t row = 0; row < span->rows && !span->copy; row++)
            for (size_t column = 0; column < span->columns; column++)
                tensor[erg_weight_span_there(span, row, column)] =
                    values[(of_state ? span->state : span->offset) + row * span->stride + column];
    }
}

/* The weights in use of this rank, copies too, are the rounded masters. */
static inline void check_values(struct erg_trainer *trainer, float *masters)
{
    struct erg_weights_request request = trainer->request;
    struct erg_weights weights;
    struct erg_weight_spans spans;
    size_t unit = trainer->options.backend->element_bytes;
    request.ranks = 1;
    request.share = 0;
    erg_weights_init(&weights, &request);
    erg_weight_spans_init(&spans, &weights, &request);
    char *values = erg_xmalloc(trainer->weights->elements * unit);
    read_device(trainer, values, erg_stage_values(trainer->stage),
                trainer->weights->elements * unit);
    for (size_t i = 0; i < spans.count; i++) {
        const struct erg_weight_span *span = &spans.items[i];
        /* The same tensor lies elsewhere where buckets are padded for more ranks. */
        const struct erg_weight *here = &trainer->weights->items[span->weight];
        size_t first = here->offset + (span->offset - weights.items[span->weight].offset);
        const float *tensor = place_of(masters, span->name);
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++) {
                const char *value = values + (first + row * span->stride + column) * unit;
                float master = tensor[erg_weight_span_there(span, row, column)];
                erg_bf16 rounded = erg_bf16_round(master);
                if (memcmp(value, unit == 2 ? (void *)&rounded : (void *)&master, unit) != 0)
                    fail_msg("%s: a weight in use is not its master's", span->name);
            }
    }
    free(values);
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
}

static inline void train_rank(const struct erg_launch_environment *env,
                              struct erg_rendezvous *rendezvous)
{
    struct erg_error err;
    struct erg_job *job = load_job(running);
    struct erg_backend *backend;
    struct erg_trainer *trainer;
    struct erg_host_options host = {.float32 = !(running->flags & BF16),
                                    .seed = running_seed,
                                    .spoils_free = true,
                                    .rendezvous = rendezvous};
    assert_ok(erg_host_open(&backend, &host, &err), &err);
    struct erg_trainer_options options = {.backend = backend,
                                          .job = job,
                                          .rank = env->rank,
                                          .world = env->world,
                                          .rendezvous = rendezvous};
    struct erg_plan *plan = NULL;
    if (running->flags & PLANNED)
        options.plan = plan = random_plan(job, plan_of_case.modes, plan_of_case.seed);
    assert_ok(erg_trainer_open(&trainer, &options, &err), &err);
    struct erg_rank_memory memory; /* as said beforehand, to the byte */
    assert_ok(erg_rank_memory_init(&memory, job, backend, env->rank, &err), &err);
    assert_int_equal(memory.bytes, erg_trainer_bytes(trainer));
    erg_rank_memory_release(&memory);
    for (int i = 0; i < STEPS; i++) {
        struct erg_train_step step;
        assert_ok(erg_trainer_step(trainer, 0, &step, &err), &err);
        if (env->rank == 0)
            running_outcome->steps[i] = step;
        double loss = 0;
        if (running->flags & VALIDATES)
            assert_ok(erg_trainer_validate(trainer, &loss, &err), &err);
        if (env->rank == env->world - 1)
            running_outcome->validation[i] = loss;
        if (i > 0)
            continue;
        float *gradients = erg_xmalloc(trainer->weights->elements * sizeof *gradients);
        read_device(trainer, gradients, erg_stage_gradients(trainer->stage),
                    trainer->weights->elements * sizeof *gradients);
        put(trainer, gradients, false, running_outcome->gradients);
        free(gradients);
    }
    float *masters = erg_xmalloc((trainer->weights->state + 1) * sizeof *masters);
    read_device(trainer, masters, erg_optimizer_state(trainer->optimizer),
                trainer->weights->state * sizeof *masters);
    put(trainer, masters, true, running_outcome->masters);
    free(masters);
    double squares; /* waits for what gathers the weights */
    assert_ok(erg_optimizer_squares(trainer->optimizer, &squares, &err), &err);
    if (rendezvous)
        assert_ok(erg_rendezvous_barrier(rendezvous, 60, &err), &err);
    check_values(trainer, running_outcome->masters);
    if (rendezvous)
        assert_ok(erg_rendezvous_barrier(rendezvous, 60, &err), &err);
    erg_trainer_close(trainer);
    erg_plan_free(plan);
    backend->table->close(backend);
    erg_job_free(job);
}

static inline void run_case(const struct layout_case *c, uint64_t seed, struct outcome *outcome)
{
    running = c;
    running_seed = seed;
    running_outcome = outcome;
    outcome->elements = places.elements;
    outcome->gradients = shared(places.elements * sizeof(float));
    outcome->masters = shared(places.elements * sizeof(float));
    run_ranks((int)(c->tensor * c->context * c->pipeline * c->data), train_rank);
}

static inline struct outcome *outcome_new(void)
{
    return shared(sizeof(struct outcome));
}

static inline void outcome_release(struct outcome *outcome)
{
    munmap(outcome->gradients, outcome->elements * sizeof(float));
    munmap(outcome->masters, outcome->elements * sizeof(float));
    munmap(outcome, sizeof *outcome);
}

/* ---- comparison ---- */

static inline void say_case(char *text, size_t capacity, const struct layout_case *c, uint64_t seed)
{
    snprintf(text, capacity, "%s t %ld c %ld p %ld v %ld d %ld m %ld%s%s%s seed %d", c->model,
             c->tensor, c->context, c->pipeline, c->virtual_stages, c->data, c->microbatches,
             c->flags & SP ? " sp" : "", c->flags & MASKED ? " masked" : "",
             c->flags & BF16 ? " bf16" : "", (int)seed);
}

/* Norm of the difference over the norm. */
static inline double apart(const float *a, const float *b, size_t count)
{
    double difference = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return all > 0 ? sqrt(difference / all) : sqrt(difference);
}

/* The keys' biases have gradients of nothing but noise. */
static inline bool is_noise(const char *name)
{
    return strstr(name, "k_proj.bias") || strstr(name, "c_attn.bias");
}

static inline void compare(const struct outcome *outcome, const struct outcome *one, bool bits,
                           const char *name)
{
    for (int i = 0; i < STEPS; i++) {
        double loss = outcome->steps[i].loss - one->steps[i].loss;
        double norm = outcome->steps[i].gradient_norm / one->steps[i].gradient_norm - 1;
        if (!(fabs(loss) <= (bits ? 0 : 5e-6)) || !(fabs(norm) <= (bits ? 1e-14 : 2e-5)))
            fail_msg("%s, step %d: loss %.3g apart, norm %.3g", name, i + 1, loss, norm);
        assert_int_equal(outcome->steps[i].targets, one->steps[i].targets);
    }
    for (size_t i = 0; i < places.count; i++) {
        size_t at = places.items[i].offset, count = places.items[i].count;
        double gradients = apart(outcome->gradients + at, one->gradients + at, count);
        double masters = apart(outcome->masters + at, one->masters + at, count);
        if (!is_noise(places.items[i].name) && !(gradients <= (bits ? 0 : 1e-5)))
            fail_msg("%s: gradients of %s are %.3g apart", name, places.items[i].name, gradients);
        /* Adam turns the noise of small gradients into steps. */
        if (!is_noise(places.items[i].name) && !(masters <= (bits ? 0 : 2e-3)))
            fail_msg("%s: weights of %s are %.3g apart", name, places.items[i].name, masters);
    }
}

/* A case on one rank, which is run once for all layouts that have the same one. */
static inline const struct outcome *outcome_alone(const struct layout_case *c)
{
    enum { MOST = 64 };
    static struct {
        struct layout_case alone;
        struct outcome *outcome;
    } kept[MOST];
    struct layout_case alone = *c;
    size_t i = 0;
    alone.tensor = alone.context = alone.pipeline = alone.virtual_stages = alone.data = 1;
    alone.flags = c->flags & ~(SP | PLANNED);
    alone.layers = NULL;
    while (i < MOST && kept[i].outcome && memcmp(&kept[i].alone, &alone, sizeof alone) != 0)
        i++;
    assert_true(i < MOST);
    if (!kept[i].outcome) {
        kept[i].alone = alone;
        kept[i].outcome = outcome_new();
        run_case(&kept[i].alone, 0, kept[i].outcome);
    }
    return kept[i].outcome;
}

static inline void check_case(const struct layout_case *c, uint64_t seed, bool bits)
{
    char name[160];
    struct outcome *outcome = outcome_new();
    say_case(name, sizeof name, c, seed);
    struct erg_job *job = load_job(c);
    list_places(job->model);
    erg_job_free(job);
    const struct outcome *one = outcome_alone(c);
    run_case(c, seed, outcome);
    compare(outcome, one, bits, name);
    outcome_release(outcome);
}

static inline int make_tokens(void **state)
{
    uint16_t tokens[20000];
    struct erg_error err;
    if (make_folder(state) != 0)
        return -1;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 499 * (i % 7) % 499);
    if (erg_file_write(in_folder("tokens"), (const char *)tokens, sizeof tokens, &err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 491 * (i % 5) % 499);
    return erg_file_write(in_folder("held_out"), (const char *)tokens, 3000, &err);
}

#endif
