/*
 * Layers of a decoder as instructions, split over meshes of ranks: against the whole model on the
 * CPU, and every way of execution against the sequential one.
 */
#include "decoder_mesh.h"

/* ---- the steps of an instruction ---- */

struct list {
    struct erg_run_step *items;
    size_t count, capacity;
};

/* How an instruction runs: the whole microbatch, or nanobatches whose communication is launched
 * before a random op on a random number of SMs (or at once, by the library). */
enum how { SEQUENTIAL, NANOBATCHED, OVERLAPPED };

static void build(struct list *list, struct erg_workload *workload, const struct machine *m,
                  bool backward, bool replay, enum how how, struct erg_rng *rng)
{
    struct erg_workload_request request = {
        .model = &test_model,
        .gpu = &test_gpu,
        .stack = &test_stack,
        .tensor = (int)m->tensor,
        .context = (int)m->context,
        /* Halves of twice the microbatch are whole microbatches. */
        .microbatch_size = how == SEQUENTIAL ? 2 * SEQUENCES : SEQUENCES,
        .sequence = SEQUENCE,
        .recompute = replay,
    };
    gpu_ok(erg_workload_build(workload, &request, &gpu_error));
    const struct erg_stage_partition *partitions;
    size_t count;
    gpu_ok(erg_stage_partitions(workload, &request, LAYERS, backward, &partitions, &count,
                                &gpu_error));
    for (size_t i = 0; i < count; i++) {
        struct erg_run_step item = {.step = {.task = partitions[i].task},
                                    .nanobatch = partitions[i].nanobatch};
        struct erg_task *task = &item.step.task;
        if (how == SEQUENTIAL) { /* compute, then its own communication */
            if (item.nanobatch == 0)
                continue;
            item.nanobatch = ERG_WHOLE_MICROBATCH;
            item.step.launch = (struct erg_launch){task->op_count, 16};
        } else if (how == NANOBATCHED) {
            task->comm.library = true;
        } else {
            item.step.launch.slot = erg_rng_below(rng, task->op_count + 1);
            item.step.launch.sms = 1 + (int)erg_rng_below(rng, 32);
        }
        ERG_PUSH(list, items, item);
    }
}

/* What a rank is left with; `input` and what comes in from the end are the same in every run. */
struct result {
    erg_bf16 *output, *input_gradient;
    float *gradients[LAYERS][ERG_WEIGHTS];
    size_t counts[ERG_WEIGHTS];
    erg_bf16 *weights[LAYERS][ERG_WEIGHTS];
};

static void note_results(struct result *result, const struct erg_decoder *decoder)
{
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    size_t bytes = ends.tokens * ends.hidden * sizeof(erg_bf16);
    result->output = gpu_download(ends.output, bytes);
    result->input_gradient = gpu_download(ends.input_gradient, bytes);
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            struct erg_decoder_tensor tensor =
                erg_decoder_tensor(decoder, layer, (enum erg_decoder_weight)i);
            result->counts[i] = tensor.count;
            if (!tensor.count)
                continue;
            result->gradients[layer][i] =
                gpu_download(tensor.gradient, tensor.count * sizeof(float));
            result->weights[layer][i] =
                gpu_download(tensor.weight, tensor.count * sizeof(erg_bf16));
        }
}

static void release(struct result *result)
{
    free(result->output);
    free(result->input_gradient);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            free(result->gradients[layer][i]);
            free(result->weights[layer][i]);
        }
}

static void upload_rows(const struct machine *m, erg_bf16 *memory, const erg_bf16 *whole)
{
    erg_bf16 *rows = own_rows(m, whole);
    gpu_ok(erg_cuda_copy(memory, rows, m->tokens * HIDDEN * sizeof *rows, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    free(rows);
}

static void run_instruction(struct machine *m, struct erg_executor *executor, bool backward,
                            bool replay, enum how how, struct erg_rng *rng)
{
    struct erg_workload workload;
    struct list list = {0};
    struct erg_graph_run *run;
    build(&list, &workload, m, backward, replay, how, rng);
    gpu_ok(erg_graph_run_new(&run, executor, list.items, list.count,
                             backward ? ERG_RUN_BACKWARD : ERG_RUN_FORWARD, &gpu_error));
    gpu_ok(erg_graph_run_launch(run, &gpu_error));
    gpu_ok(erg_mesh_wait(&m->mesh, erg_executor_stream(executor), &gpu_error));
    erg_graph_run_free(run);
    erg_workload_release(&workload);
    free(list.items);
}

static struct result execute(struct machine *m, const struct twin *whole, bool replay, enum how how,
                             uint64_t seed)
{
    struct erg_decoder *decoder;
    struct erg_executor *executor;
    open_decoder(m, (struct erg_decoder_options){.layers = LAYERS, .replay = replay}, &decoder,
                 &executor);
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    upload_rows(m, ends.input, whole->input);
    upload_rows(m, ends.output_gradient, whole->output_gradient);
    struct result result = {0};
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    for (int backward = 0; backward < 2; backward++)
        run_instruction(m, executor, backward, replay, how, &rng);
    note_results(&result, decoder);
    if (how == SEQUENTIAL)
        gpu_ok(erg_decoder_verify(decoder, erg_executor_stream(executor), &gpu_error));
    erg_executor_close(executor);
    gpu_ok(erg_decoder_close(decoder, &gpu_error));
    return result;
}

/* ---- comparisons ---- */

/* |a - b| / |b| over all elements; NaN counts as different. */
static double distance(const void *a, const void *b, size_t count, bool bf16)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double x = gpu_read(a, i, bf16), y = gpu_read(b, i, bf16);
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static void check(const char *what, double distance, double allowed)
{
    bool good = distance <= allowed;
    printf("%s %s: relative distance %.2e, allowed %.0e\n", good ? "ok    " : "FAILED", what,
           distance, allowed);
    gpu_failures += !good;
}

static void compare(const struct machine *m, const char *name, const struct result *result,
                    const struct result *reference, double allowed_output, double allowed_gradient)
{
    char what[96];
    size_t count = m->tokens * HIDDEN;
    snprintf(what, sizeof what, "%s: output", name);
    check(what, distance(result->output, reference->output, count, true), allowed_output);
    snprintf(what, sizeof what, "%s: input gradient", name);
    check(what, distance(result->input_gradient, reference->input_gradient, count, true),
          allowed_gradient);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < ERG_WEIGHTS; i++) {
            if (!result->counts[i])
                continue;
            snprintf(what, sizeof what, "%s: gradient %d of layer %d", name, i, layer);
            check(what,
                  distance(result->gradients[layer][i], reference->gradients[layer][i],
                           result->counts[i], false),
                  allowed_gradient);
        }
}

/* ---- the whole ---- */

/* What all ranks have, [world, bytes]. */
static void *gather(struct machine *m, const void *mine, size_t bytes)
{
    char *all = erg_xmalloc((size_t)m->world.env.world * bytes);
    gpu_ok(erg_rendezvous_all_gather(m->world.rendezvous, mine, bytes, all, 60, &gpu_error));
    return all;
}

/* The weights of all tensor ranks; those of context ranks are equal. */
static void assemble_weights(struct machine *m, struct twin *twin, const struct result *result)
{
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < ERG_WEIGHTS; k++) {
            enum erg_decoder_weight weight = (enum erg_decoder_weight)k;
            size_t count = result->counts[k];
            if (!count)
                continue;
            erg_bf16 *all = gather(m, result->weights[layer][k], count * sizeof *all);
            erg_bf16 *whole = erg_xcalloc(twin_count(weight, true), sizeof *whole);
            for (size_t place = 0; place < m->tensor; place++)
                for (size_t i = 0; i < count; i++)
                    whole[twin_index(weight, i, place, m->tensor)] = all[place * count + i];
            twin->weights[layer][k] = whole;
            free(all);
        }
}

/* What gradient reduction does: the sum over ranks that hold the same weight. Every tensor rank has
 * the whole gradient of a layer's norms, and the part of its own heads of their norms. */
static float *reduced_gradient(struct machine *m, enum erg_decoder_weight weight,
                               const float *gradient, size_t count)
{
    bool heads = weight == ERG_WEIGHT_Q_NORM || weight == ERG_WEIGHT_K_NORM;
    float *all = gather(m, gradient, count * sizeof *all);
    float *sum = erg_xcalloc(count, sizeof *sum);
    for (size_t r = 0; r < m->tensor * m->context; r++)
        for (size_t i = 0; i < count && (heads || r % m->tensor == m->tensor_place); i++)
            sum[i] += all[r * count + i];
    free(all);
    return sum;
}

static void check_whole(struct machine *m, struct twin *twin, const struct result *result)
{
    assemble_weights(m, twin, result);
    twin_run(twin);
    struct result reduced = *result,
                  expected = {.output = own_rows(m, twin->output),
                              .input_gradient = own_rows(m, twin->input_gradient)};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < ERG_WEIGHTS; k++) {
            enum erg_decoder_weight weight = (enum erg_decoder_weight)k;
            size_t count = result->counts[k];
            if (!count)
                continue;
            reduced.gradients[layer][k] =
                reduced_gradient(m, weight, result->gradients[layer][k], count);
            float *own = expected.gradients[layer][k] = erg_xcalloc(count, sizeof *own);
            for (size_t i = 0; i < count; i++)
                own[i] =
                    twin->gradients[layer][k][twin_index(weight, i, m->tensor_place, m->tensor)];
        }
    compare(m, "the whole on the CPU", &reduced, &expected, 1e-2, 2e-2);
    release(&expected);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < ERG_WEIGHTS; k++)
            free(reduced.gradients[layer][k]);
}

/* ---- all of it ---- */

/* The forward pass gives the same bits again. Backward, dQ is summed by atomics: a relative 1e-6,
 * which turns roundings of bf16 below it. */
static const double again_output = 0, again_gradient = 1e-3;

static void check_model(struct machine *m, bool replay)
{
    struct erg_rng rng;
    erg_rng_seed(&rng, 11);
    struct twin whole = {.input = gpu_random(&rng, (size_t)TOKENS * HIDDEN, 1),
                         .output_gradient = gpu_random(&rng, (size_t)TOKENS * HIDDEN, 1e-3)};
    if (m->world.env.rank == 0)
        printf("-- %s heads, activations %s\n", test_model.qk_norm ? "normalised" : "plain",
               replay ? "replayed" : "kept");
    struct result sequential = execute(m, &whole, replay, SEQUENTIAL, 0);
    if (!replay)
        check_whole(m, &whole, &sequential);
    struct result again = execute(m, &whole, replay, SEQUENTIAL, 0);
    compare(m, "sequential again", &again, &sequential, again_output, again_gradient);
    release(&again);
    /* Products of another size may add in another order. */
    struct result nanobatched = execute(m, &whole, replay, OVERLAPPED, 1);
    compare(m, "nanobatches", &nanobatched, &sequential, 1e-2, 1e-2);
    uint64_t schedules = m->world.env.world == 1 ? 0 : m->shared ? 2 : 5;
    for (uint64_t seed = 2; seed < 2 + schedules; seed++) {
        char name[40];
        snprintf(name, sizeof name, "schedule %d", (int)seed);
        struct result overlapped = execute(m, &whole, replay, OVERLAPPED, seed);
        compare(m, name, &overlapped, &nanobatched, again_output, again_gradient);
        release(&overlapped);
    }
    if (m->world.env.world > 1 && !m->shared) {
        struct result library = execute(m, &whole, replay, NANOBATCHED, 0);
        compare(m, "the library's communication", &library, &nanobatched, 1e-2, 1e-2);
        release(&library);
    }
    release(&nanobatched);
    release(&sequential);
    twin_release(&whole);
}

static void check_mesh(struct machine *m)
{
    for (int norms = 0; norms < 2; norms++)
        for (int replay = 0; replay < 2; replay++) {
            if (m->shared && norms == replay) /* one of each is enough where ranks take turns */
                continue;
            test_model.qk_norm = norms;
            check_model(m, replay);
        }
}

int main(int argc, char **argv)
{
    return run_on_meshes(argc, argv, check_mesh);
}
