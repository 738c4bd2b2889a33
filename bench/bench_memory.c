/*
 * Memory of layouts against the published runs of Megatron-Kwai: the peaks of its memory table, in
 * closed form and event by event with the framework's allocator; the offload ratios of 28 rows of
 * its throughput table; and per row what a ratio of each stage's own saves over one for all, in
 * bytes that are copied to the host and in the predicted time of an iteration. How fast the closed
 * form is.
 */
#include "base/clock.h"
#include "kwai.h"
#include "layout/time/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const struct erg_error *err)
{
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static double closed_peak(const struct erg_memory_request *request)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage stage;
    double peak = 0;
    erg_memory_sizes_of(&sizes, request->model, layout);
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
    struct erg_model *model;
    struct erg_error err;
    struct erg_layout layout = {.tensor = 2,
                                .context = 2,
                                .pipeline = 8,
                                .data = 8,
                                .virtual_stages = 5,
                                .microbatch = 1,
                                .microbatches = 32,
                                .sequence = 8192};
    if (erg_model_load(&model, "llama-65b", &err) != 0)
        stop(&err);
    model->vocab = 32005;
    double sums[2] = {0}, worst[2] = {0}, start = erg_cpu_seconds();
    printf("peaks of Llama 65B on 256 GPUs, t 2, c 2, p 8, l 2, sequence 8192\n"
           "%-10s %5s %12s %9s %9s %12s\n",
           "recompute", "alpha", "measured", "closed", "events", "arena");
    for (int i = 0; i < KWAI_CELLS; i++) {
        layout.recompute = kwai_cells[i].recompute;
        layout.offload = kwai_cells[i].offload;
        struct erg_memory_request request = {
            .model = model, .layout = &layout, .accounting = ERG_MEMORY_FRAMEWORK};
        double measured = kwai_cells[i].measured_bytes;
        double errors[2] = {closed_peak(&request) / measured - 1,
                            simulated_peak(&request) / measured - 1};
        request.accounting = ERG_MEMORY_ARENA;
        printf("%-10s %5.1f %8.3f GB %+7.2f %% %+7.2f %% %+10.2f %%\n",
               erg_recompute_name(layout.recompute), layout.offload, measured / 1e9,
               100 * errors[0], 100 * errors[1], 100 * (simulated_peak(&request) / measured - 1));
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

/* The time of an iteration, as predicted for the machine of the rows. */
static double predicted_s(const struct erg_model *model, const struct erg_layout *layout)
{
    static struct erg_engine *engine;
    static struct erg_time_machine machine;
    struct erg_error err;
    if (!engine) {
        struct erg_gpu *gpu;
        struct erg_cluster *cluster;
        if (erg_engine_load(&engine, "megatron-kwai-h800", &err) != 0 ||
            erg_gpu_load(&gpu, "h800-sxm-80gb", &err) != 0 ||
            erg_cluster_load(&cluster,
                             ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml", &err))
            stop(&err);
        erg_time_machine_init(&machine, gpu, cluster);
    }
    const struct erg_time_request request = {model, engine, &machine};
    struct erg_time time;
    erg_time_layout(&time, &request, layout);
    return time.total;
}

/* What each stage's own ratio saves, and copies by layer beside it. */
static void print_row(const struct erg_fit_row *row, const struct erg_memory_solution *solution,
                      const struct erg_memory_solution *by_layer)
{
    struct erg_layout layout = row->layout;
    double apart = solution->offload - row->layout.offload;
    double global = solution->offload_bytes, stages = solution->stage_offload_bytes;
    layout.offload = solution->offload;
    double global_s = predicted_s(row->model, &layout);
    layout.stage_offload = solution->stage_offload;
    layout.stage_recompute = solution->stage_recompute;
    double stages_s = predicted_s(row->model, &layout);
    const char *slash = strrchr(row->model->name, '/');
    printf("%-14s %5ld %4ld %-9s %6.3f %7.4f %+8.4f %8.1f %8.1f %5.0f %% %6.3f s %6.2f %% %7.4f ",
           slash ? slash + 1 : row->model->name, layout.sequence, erg_layout_gpus(&layout),
           erg_recompute_name(layout.recompute), row->layout.offload, solution->offload, apart,
           global / 1e9, stages / 1e9, global > 0 ? 100 * (1 - stages / global) : 0,
           global_s - stages_s, 100 * (1 - stages_s / global_s), by_layer->offload);
    for (long s = 0; s < solution->count; s++)
        printf(" %s%.2f", solution->stage_recompute[s] < row->layout.recompute ? "n" : "",
               solution->stage_offload[s]);
    printf("\n");
}

static void rows(void)
{
    struct erg_fit_rows rows;
    struct erg_error err;
    double sum = 0, worst = 0;
    if (erg_fit_rows_load(&rows, ERGON_TEST_SOURCE_DIR "/tests/data/megatron-kwai-h800.csv",
                          &err) != 0)
        stop(&err);
    for (size_t i = 0; i < rows.models.count; i++)
        rows.models.items[i].model->vocab = 32005;
    printf("offload ratios for 64 GiB; GB that one GPU of each stage copies out in an iteration\n"
           "%-14s %5s %4s %-9s %6s %7s %8s %8s %8s %7s %8s %8s %7s %s\n",
           "model", "seq", "GPUs", "recompute", "given", "found", "apart", "one", "stages", "less",
           "time", "less", "layers", "ratios of the stages");
    for (size_t i = 0; i < rows.count; i++) {
        struct erg_memory_request request = {.model = rows.items[i].model,
                                             .layout = &rows.items[i].layout};
        struct erg_memory_solution solution, by_layer;
        double budgets[64];
        for (int s = 0; s < 64; s++)
            budgets[s] = 64 * 0x1p30;
        if (erg_memory_solve(&solution, &request, budgets, ERG_MEMORY_ERROR, &err) != 0)
            stop(&err);
        request.layer_copies = true;
        if (erg_memory_solve(&by_layer, &request, budgets, ERG_MEMORY_ERROR, &err) != 0)
            stop(&err);
        print_row(&rows.items[i], &solution, &by_layer);
        double apart = fabs(solution.offload - rows.items[i].layout.offload);
        sum += apart;
        worst = fmax(worst, apart);
        erg_memory_solution_release(&solution);
        erg_memory_solution_release(&by_layer);
    }
    printf("mean %.4f, worst %.4f apart\n\n", sum / (double)rows.count, worst);
    erg_fit_rows_release(&rows);
}

/* What a search asks of a stage. */
static void print_search(const struct erg_memory_request *request,
                         const struct erg_memory_sizes *sizes)
{
    enum { TIMES = 1000000 };
    struct erg_memory_lines lines;
    struct erg_memory_floor floor;
    struct erg_layout layout = *request->layout;
    struct erg_memory_request own = *request;
    double sum = 0, floors = 0, start = erg_cpu_seconds();
    own.layout = &layout;
    for (int i = 0; i < TIMES; i++) {
        layout.microbatches = 16 + i % 8 * layout.pipeline;
        erg_memory_lines_init(&lines, &own, sizes, i % layout.pipeline);
        sum += lines.least[0];
    }
    double lines_s = erg_cpu_seconds() - start;
    start = erg_cpu_seconds();
    for (int i = 0; i < TIMES; i++) {
        layout.microbatches = 16 + i % 8 * layout.pipeline;
        erg_memory_floor_init(&floor, &own, sizes, i % layout.pipeline);
        floors += floor.fixed_bytes;
    }
    double floors_s = erg_cpu_seconds() - start;
    printf("%s: lines %.0f ns, floor %.0f ns a stage (means %.1f and %.1f GB)\n",
           erg_memory_accounting_names[own.accounting], 1e9 * lines_s / TIMES,
           1e9 * floors_s / TIMES, sum / TIMES / 1e9, floors / TIMES / 1e9);
}

static void speed(void)
{
    enum { TIMES = 1000000 };
    struct erg_model *model;
    struct erg_error err;
    struct erg_layout layout = {.tensor = 2,
                                .context = 1,
                                .pipeline = 8,
                                .data = 16,
                                .virtual_stages = 5,
                                .microbatch = 1,
                                .microbatches = 16,
                                .sequence = 4096};
    if (erg_model_load(&model, "llama-65b", &err) != 0)
        stop(&err);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_sizes sizes;
    struct erg_memory_stage stage;
    double sum = 0;
    erg_memory_sizes_of(&sizes, model,
                        &(struct erg_layout){.tensor = layout.tensor,
                                             .context = layout.context,
                                             .microbatch = 1,
                                             .sequence = layout.sequence});
    double start = erg_cpu_seconds();
    for (int i = 0; i < TIMES; i++) {
        layout.offload = (double)i / TIMES;
        erg_memory_closed(&stage, &request, &sizes, 0);
        sum += stage.peak_bytes;
    }
    double seconds = erg_cpu_seconds() - start;
    printf("closed form: %.0f ns a stage (mean peak %.1f GB)\n", 1e9 * seconds / TIMES,
           sum / TIMES / 1e9);
    print_search(&request, &sizes);
    request.accounting = ERG_MEMORY_STATIC;
    print_search(&request, &sizes);
    erg_model_free(model);
}

int main(void)
{
    cells();
    rows();
    speed();
    return 0;
}
