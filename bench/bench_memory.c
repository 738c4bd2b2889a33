/*
 * Memory of layouts against the published runs of Megatron-Kwai: the peaks of its memory table, in
 * closed form and event by event with the framework's allocator; its 28 given offload ratios; and
 * per row what a ratio of each stage's own saves over one for all. How fast the closed form is.
 *
 * The time that fewer copies save is not hidden by anything here: bytes over the PCIe link's
 * 64 GB/s, which is an upper bound.
 */
#include "base/clock.h"
#include "kwai.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct erg_model *load(const char *name)
{
    struct erg_model *model;
    struct erg_error err;
    if (erg_model_load(&model, name, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    model->vocab = 32005;
    return model;
}

static struct erg_layout layout_of(const struct erg_model *model, const struct kwai_row *row)
{
    struct erg_error err;
    struct erg_layout layout = {.tensor = row->tensor,
                                .context = row->context,
                                .pipeline = row->pipeline,
                                .virtual_stages = model->layers / (row->pipeline * row->layers),
                                .microbatch = 1,
                                .sequence = row->sequence,
                                .remat = row->remat,
                                .offload = row->offload};
    if (erg_layout_fill(&layout, row->gpus, row->batch, &err) != 0 ||
        erg_layout_check(&layout, model, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return layout;
}

static double closed_peak(const struct erg_memory_request *request)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage stage;
    double peak = 0;
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    for (long i = 0; i < layout->pipeline; i++) {
        erg_memory_closed(&stage, request, &sizes, i);
        peak = fmax(peak, stage.peak_bytes);
    }
    return peak;
}

static double simulated_peak(const struct erg_memory_request *request)
{
    struct erg_memory_result result;
    struct erg_error err;
    if (erg_memory_simulate(&result, request, &err) != 0)
        return NAN;
    double peak = result.stages[result.worst].peak_bytes;
    erg_memory_result_release(&result);
    return peak;
}

static void cells(void)
{
    struct erg_model *model = load("llama-65b");
    double sums[2] = {0}, worst[2] = {0}, start = erg_cpu_seconds();
    printf("peaks of Llama 65B on 256 GPUs, t 2, c 2, p 8, l 2, sequence 8192\n"
           "%-10s %5s %12s %9s %9s %12s\n",
           "recompute", "alpha", "measured", "closed", "events", "arena");
    for (int i = 0; i < KWAI_CELLS; i++) {
        const struct kwai_row row = {
            "llama-65b", 8192, 256, 256, 2, 2, 8, 2, kwai_cells[i].remat, kwai_cells[i].offload};
        struct erg_layout layout = layout_of(model, &row);
        struct erg_memory_request request = {
            .model = model, .layout = &layout, .accounting = ERG_MEMORY_FRAMEWORK};
        double measured = kwai_cells[i].measured_bytes;
        double errors[2] = {closed_peak(&request) / measured - 1,
                            simulated_peak(&request) / measured - 1};
        request.accounting = ERG_MEMORY_ARENA;
        printf("%-10s %5.1f %8.3f GB %+7.2f %% %+7.2f %% %+10.2f %%\n", erg_remat_name(row.remat),
               row.offload, measured / 1e9, 100 * errors[0], 100 * errors[1],
               100 * (simulated_peak(&request) / measured - 1));
        for (int k = 0; k < 2; k++) {
            sums[k] += fabs(errors[k]);
            worst[k] = fmax(worst[k], fabs(errors[k]));
        }
    }
    printf("mean %.3f %% and %.3f %%, worst %.2f %% and %.2f %%; %.1f s\n\n",
           100 * sums[0] / KWAI_CELLS, 100 * sums[1] / KWAI_CELLS, 100 * worst[0], 100 * worst[1],
           erg_cpu_seconds() - start);
    erg_model_free(model);
}

static void rows(void)
{
    double sum = 0, worst = 0;
    printf("offload ratios for 64 GiB, and copies of an iteration (all stages, one GPU of each)\n"
           "%-12s %5s %4s %-9s %9s %9s %8s %10s %10s %8s %8s %s\n",
           "model", "seq", "GPUs", "recompute", "published", "found", "apart", "global GB",
           "stages GB", "saved", "PCIe s", "ratios of the stages (n: none)");
    for (int i = 0; i < KWAI_ROWS; i++) {
        struct erg_model *model = load(kwai_rows[i].model);
        struct erg_layout layout = layout_of(model, &kwai_rows[i]);
        struct erg_memory_request request = {.model = model, .layout = &layout};
        struct erg_memory_solution solution;
        struct erg_error err;
        if (erg_memory_solve(&solution, &request, 64 * 0x1p30, &err) != 0) {
            printf("%s\n", err.message);
            erg_model_free(model);
            continue;
        }
        double apart = solution.offload - kwai_rows[i].offload;
        double global = solution.offload_bytes, stages = solution.stage_offload_bytes;
        sum += fabs(apart);
        worst = fmax(worst, fabs(apart));
        printf("%-12s %5ld %4ld %-9s %9.3f %9.4f %+8.4f %10.1f %10.1f %6.0f %% %8.2f ",
               kwai_rows[i].model, kwai_rows[i].sequence, kwai_rows[i].gpus,
               erg_remat_name(kwai_rows[i].remat), kwai_rows[i].offload, solution.offload, apart,
               global / 1e9, stages / 1e9, global > 0 ? 100 * (1 - stages / global) : 0,
               (global - stages) / 64e9 / (double)layout.pipeline);
        for (long s = 0; s < solution.count; s++)
            printf(" %s%.2f", solution.stage_remat[s] < layout.remat ? "n" : "",
                   solution.stage_offload[s]);
        printf("\n");
        erg_memory_solution_release(&solution);
        erg_model_free(model);
    }
    printf("mean %.4f, worst %.4f\n\n", sum / KWAI_ROWS, worst);
}

static void speed(void)
{
    enum { TIMES = 1000000 };
    struct erg_model *model = load("llama-65b");
    struct erg_layout layout = layout_of(model, &kwai_rows[7]);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_sizes sizes;
    struct erg_memory_stage stage;
    double sum = 0;
    erg_memory_sizes_init(&sizes, model, layout.tensor, layout.context, 1, layout.sequence);
    double start = erg_cpu_seconds();
    for (int i = 0; i < TIMES; i++) {
        layout.offload = (double)i / TIMES;
        erg_memory_closed(&stage, &request, &sizes, 0);
        sum += stage.peak_bytes;
    }
    double seconds = erg_cpu_seconds() - start;
    printf("closed form: %.0f ns a stage (mean peak %.1f GB)\n", 1e9 * seconds / TIMES,
           sum / TIMES / 1e9);
    erg_model_free(model);
}

int main(void)
{
    cells();
    rows();
    speed();
    return 0;
}
