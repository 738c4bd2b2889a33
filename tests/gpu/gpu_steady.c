/*
 * Partitions and whole layers that run over and over, as measurements do: what they compute stays
 * of the size that training gives it, and tokens stay different. Numbers that grow without bounds
 * end as NaNs, tokens that attend to each other again and again become one: both draw less power.
 */
#include "decoder_mesh.h"

/* Whether what a decoder holds has stayed of the size that training gives it. */
static bool is_bounded(const struct erg_decoder *decoder)
{
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    const erg_bf16 *tensors[] = {ends.output, ends.input_gradient};
    bool bounded = true;
    for (int i = 0; i < 2; i++) {
        size_t count = ends.tokens * ends.hidden;
        erg_bf16 *values = gpu_download(tensors[i], count * sizeof *values);
        for (size_t k = 0; k < count; k++)
            bounded = bounded && fabsf(erg_bf16_float(values[k])) < 1e3F;
        free(values);
    }
    for (int i = 0; i < ERG_WEIGHTS; i++) {
        struct erg_decoder_tensor tensor =
            erg_decoder_tensor(decoder, 0, (enum erg_decoder_weight)i);
        float *values =
            tensor.count ? gpu_download(tensor.gradient, tensor.count * sizeof *values) : NULL;
        for (size_t k = 0; k < tensor.count; k++)
            bounded = bounded && fabsf(values[k]) < 1e6F;
        free(values);
    }
    return bounded;
}

/* How much of the output is a token's own: 1 where tokens have nothing in common, 0 where all are
 * equal. */
static double own_share(const struct erg_decoder *decoder)
{
    struct erg_decoder_ends ends = erg_decoder_ends(decoder);
    erg_bf16 *values = gpu_download(ends.output, ends.tokens * ends.hidden * sizeof *values);
    double all = 0, own = 0;
    for (size_t k = 0; k < ends.hidden; k++) {
        double mean = 0;
        for (size_t i = 0; i < ends.tokens; i++)
            mean += erg_bf16_float(values[i * ends.hidden + k]) / (double)ends.tokens;
        for (size_t i = 0; i < ends.tokens; i++) {
            double value = erg_bf16_float(values[i * ends.hidden + k]);
            all += value * value;
            own += (value - mean) * (value - mean);
        }
    }
    free(values);
    return own / all;
}

/* As a measurement runs them. */
static void run_steady(struct machine *m, struct erg_executor *executor,
                       const struct erg_run_step *items, size_t count)
{
    enum { LAUNCHES = 300 };
    struct erg_graph_run *run;
    gpu_ok(erg_graph_run_new(&run, executor, items, count, ERG_RUN_STEADY, &gpu_error));
    for (int i = 0; i < LAUNCHES; i++)
        gpu_ok(erg_graph_run_launch(run, &gpu_error));
    gpu_ok(erg_mesh_wait(&m->mesh, erg_executor_stream(executor), &gpu_error));
    erg_graph_run_free(run);
}

static void run_steps(struct machine *m, struct erg_executor *executor,
                      const struct erg_steps *steps, bool whole)
{
    struct erg_run_step *items = erg_xcalloc(steps->count, sizeof *items);
    for (size_t i = 0; i < steps->count; i++)
        items[i] =
            (struct erg_run_step){steps->steps[i], whole ? ERG_WHOLE_MICROBATCH : (int)i % 2};
    run_steady(m, executor, items, steps->count);
    free(items);
}

static void check_layers(struct machine *m, const struct erg_decoder *decoder,
                         struct erg_executor *executor, const struct erg_workload *workload)
{
    const struct {
        const char *name;
        const struct erg_steps *directions;
        bool whole;
    } cases[] = {
        {"sequential layers", workload->sequential, true},
        {"nanobatched layers", workload->nanobatch, false},
        {"single nanobatched layers", workload->nanobatch_single, false},
        {"ends", workload->ends, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int direction = 0; direction < 2; direction++)
            run_steps(m, executor, &cases[i].directions[direction], cases[i].whole);
        double share = own_share(decoder);
        bool right = is_bounded(decoder) && share > 0.5;
        printf("%s %s over and over: %.0f %% of a token is its own\n", right ? "ok    " : "FAILED",
               cases[i].name, 100 * share);
        gpu_failures += !right;
    }
}

static void check_steady(struct machine *m)
{
    struct erg_workload_request request = {
        .model = &test_model,
        .gpu = &test_gpu,
        .stack = &test_stack,
        .tensor = (int)m->tensor,
        .context = (int)m->context,
        .microbatch_size = SEQUENCES,
        .sequence = SEQUENCE,
    };
    struct erg_workload workload;
    struct erg_decoder *decoder;
    struct erg_executor *executor;
    gpu_ok(erg_workload_build(&workload, &request, &gpu_error));
    open_decoder(m, (struct erg_decoder_options){.layers = 1, .middle = true}, &decoder, &executor);
    gpu_ok(erg_decoder_pass(decoder, erg_executor_stream(executor), &gpu_error));
    for (size_t i = 0; i < workload.forward_count + workload.backward_count; i++) {
        struct erg_run_step item = {erg_partition_step(&workload.partitions[i], 0, 4), 0};
        run_steady(m, executor, &item, 1);
        bool bounded = is_bounded(decoder);
        printf("%s %s over and over\n", bounded ? "ok    " : "FAILED", workload.partitions[i].key);
        gpu_failures += !bounded;
    }
    if (m->world.env.world > 1 && !m->shared) /* their communication is the library's */
        check_layers(m, decoder, executor, &workload);
    erg_executor_close(executor);
    gpu_ok(erg_decoder_close(decoder, &gpu_error));
    erg_workload_release(&workload);
}

static void check_mesh(struct machine *m)
{
    for (int norms = 0; norms < 2; norms++) {
        test_model.qk_norm = norms;
        check_steady(m);
    }
}

int main(int argc, char **argv)
{
    return run_on_meshes(argc, argv, check_mesh);
}
