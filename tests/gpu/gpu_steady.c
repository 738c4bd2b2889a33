/*
 * Partitions that run over and over, as measurements do: what they compute stays of the size that
 * training gives it. Numbers that grow without bounds end as NaNs, and those draw less power.
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

/* As a measurement runs it: the nanobatches take turns. */
static void run_steady(struct machine *m, struct erg_executor *executor,
                       const struct erg_partition *partition)
{
    enum { LAUNCHES = 150 };
    struct erg_run *runs[2];
    for (int nanobatch = 0; nanobatch < 2; nanobatch++) {
        struct erg_run_step item = {erg_partition_step(partition, 0, 4), nanobatch};
        gpu_ok(erg_run_new(&runs[nanobatch], executor, &item, 1, ERG_RUN_STEADY, &gpu_error));
    }
    for (int i = 0; i < LAUNCHES; i++)
        gpu_ok(erg_run_launch(runs[i % 2], &gpu_error));
    gpu_ok(erg_mesh_wait(&m->mesh, erg_executor_stream(executor), &gpu_error));
    erg_run_free(runs[0]);
    erg_run_free(runs[1]);
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
    open_decoder(m, 1, false, &decoder, &executor);
    gpu_ok(erg_decoder_pass(decoder, erg_executor_stream(executor), &gpu_error));
    for (size_t i = 0; i < workload.forward_count + workload.backward_count; i++) {
        run_steady(m, executor, &workload.partitions[i]);
        bool bounded = is_bounded(decoder);
        printf("%s %s over and over\n", bounded ? "ok    " : "FAILED", workload.partitions[i].key);
        gpu_failures += !bounded;
    }
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
