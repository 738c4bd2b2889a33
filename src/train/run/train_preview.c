/* The tables of ergon train --dry-run. */
#include "train/run/train_preview.h"

#include "base/text.h"
#include "io/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A byte count in the unit of the table. */
struct unit {
    const char *name;
    double bytes;
};

static struct unit unit_of(double most)
{
    return most < 0x1p30 ? (struct unit){"MiB", 0x1p20} : (struct unit){"GiB", 0x1p30};
}

static void print_ranks(FILE *out, const struct erg_run_preview *preview, struct unit unit)
{
    static const char *const heads[] = {"stage", "ranks", "layers"};
    const struct erg_layout *layout = &preview->job->layout;
    const long each = preview->ranks / layout->pipeline;
    struct erg_table table = {0};
    table.columns = 3 + ERG_RANK_ITEMS + 2; /* the last one is empty: sums are flush right */
    for (size_t i = 0; i < 3; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (int i = 0; i < ERG_RANK_ITEMS; i++)
        erg_table_add(&table, "%s", erg_rank_item_names[i]);
    erg_table_add(&table, "sum");
    erg_table_add(&table, "%s", "");
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const struct erg_rank_memory *memory = &preview->stages[stage];
        erg_table_add(&table, "%ld", stage);
        if (each == 1)
            erg_table_add(&table, "%ld", stage);
        else
            erg_table_add(&table, "%ld-%ld", stage * each, (stage + 1) * each - 1);
        erg_table_add(&table, "%ld",
                      erg_layout_stage_layers(layout, preview->job->model->layers, stage));
        for (int i = 0; i < ERG_RANK_ITEMS; i++)
            erg_table_add_number(&table, 3, (double)memory->items[i] / unit.bytes);
        erg_table_add_number(&table, 3, (double)memory->bytes / unit.bytes);
        erg_table_add(&table, "%s", "");
    }
    fprintf(out, "memory of a rank, %s:\n", unit.name);
    erg_print_table(out, &table, "  ");
    for (long stage = 0; stage < layout->pipeline; stage++)
        if (preview->stages[stage].host_bytes > 0)
            fprintf(out, "stage %ld offloads up to %.3g %s of a rank to host memory\n", stage,
                    (double)preview->stages[stage].host_bytes / unit.bytes, unit.name);
}

/* The memory of the largest rank, buffer by buffer. */
static void print_buffers(FILE *out, const struct erg_run_preview *preview, struct unit unit)
{
    const struct erg_rank_memory *memory = &preview->stages[preview->most];
    struct erg_table table = {.columns = 3};
    fprintf(out, "\nof which in stage %zu, %s:\n", preview->most, unit.name);
    for (size_t i = 0; i < memory->count; i++) {
        const struct erg_rank_part *buffers = &memory->buffers[i];
        const char *item = erg_rank_item_names[buffers->item];
        if (strcmp(buffers->name, item) == 0)
            continue; /* the item is one buffer */
        erg_table_add(&table, "%s", buffers->name);
        erg_table_add_number(&table, 3, (double)buffers->bytes / unit.bytes);
        erg_table_add(&table, "%s", "");
    }
    erg_print_table(out, &table, "  ");
}

static void print_expectation(FILE *out, const struct erg_run_preview *preview)
{
    const struct erg_job *job = preview->job;
    if (isnan(preview->step_s)) {
        fprintf(out, "\ntime and energy of a step are unknown: %s\n", preview->unexpected);
        return;
    }
    fprintf(
        out,
        "\na step on %ld x %s: %.4g s and %.4g J expected of engine %s at the highest clock, of "
        "which %.3g s sum gradients and %.3g s optimize; all steps: %.3g h, %.3g kWh\n",
        preview->ranks, job->gpu->name, preview->step_s, preview->step_j, job->engine->name,
        preview->gradients_s, preview->optimizer_s, preview->step_s * (double)preview->steps / 3600,
        preview->step_j * (double)preview->steps / 3.6e6);
}

/* Prints how the plan runs the instructions of each stage. */
static void print_plan(FILE *out, const struct erg_run_preview *preview)
{
    const struct erg_run_expected *planned = &preview->planned;
    struct erg_table table = {.columns = 6};
    static const char *const heads[] = {"stage",      "sequential", "nanobatched",
                                        "overlapped", "MHz",        ""};
    if (!preview->plan || preview->layout)
        return;
    fprintf(out, "\nby %s: %s, point %zu of %zu (%s), %.4g s and %.4g J an iteration\n",
            planned->plan, planned->method, planned->point, planned->points, planned->rule,
            planned->time_s, planned->energy_j);
    if (!isnan(planned->step_s))
        fprintf(out, "a step with sums of gradients and optimizer: %.4g s and %.4g J\n",
                planned->step_s, planned->step_j);
    fputs("instructions:\n", out);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (long stage = 0; stage < preview->job->layout.pipeline; stage++) {
        struct erg_run_plan_modes modes;
        erg_run_plan_modes(&modes, preview->plan, erg_run_plan_selected(preview->plan),
                           (size_t)stage);
        erg_table_add(&table, "%ld", stage);
        erg_table_add(&table, "%zu", modes.modes[ERG_MODE_SEQUENTIAL]);
        erg_table_add(&table, "%zu", modes.modes[ERG_MODE_NANOBATCH]);
        erg_table_add(&table, "%zu", modes.modes[ERG_MODE_OVERLAP]);
        if (modes.own_clocks)
            erg_table_add(&table, "own");
        else
            erg_table_add(&table, "%d-%d", modes.least_mhz, modes.most_mhz);
        erg_table_add(&table, "%s", "");
    }
    erg_print_table(out, &table, "  ");
}

/* Prints the ways to try, most promising first, after the reference. */
static void print_ways(FILE *out, const struct erg_run_preview *preview)
{
    const struct erg_plan *plan = preview->plan;
    struct erg_table table = {.columns = 7};
    static const char *const heads[] = {"way",         "planned s",  "planned J", "sequential",
                                        "nanobatched", "overlapped", ""};
    if (!preview->layout)
        return;
    fprintf(out, "\nlayout: %s\n", preview->layout);
    if (preview->way_count < 2) {
        fprintf(out, "the job's passes run sequentially, as %s\n",
                preview->sequential ? preview->sequential : "its plan has no other way");
        return;
    }
    fputs(
        "would try on steps of the run, all ranks of a pipeline and an iteration as planned on an "
        "emulated GPU:\n",
        out);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (size_t i = 0; i < preview->way_count; i++) {
        const struct erg_run_way *way = &preview->ways[i];
        const struct erg_plan_point *point = &plan->methods[way->method].points[way->point];
        struct erg_text name = {0};
        size_t modes[ERG_MODES] = {0};
        for (size_t stage = 0; stage < plan->schedule.pipeline.stages; stage++) {
            struct erg_run_plan_modes own;
            erg_run_plan_modes(&own, plan, point, stage);
            for (int mode = 0; mode < ERG_MODES; mode++)
                modes[mode] += own.modes[mode];
        }
        erg_run_way_name(&name, way, plan);
        erg_table_add(&table, "%s", name.data);
        erg_table_add_number(&table, 4, way->time_s);
        erg_table_add_number(&table, 4, way->energy_j);
        erg_table_add(&table, "%zu", modes[ERG_MODE_SEQUENTIAL]);
        erg_table_add(&table, "%zu", modes[ERG_MODE_NANOBATCH]);
        erg_table_add(&table, "%zu", modes[ERG_MODE_OVERLAP]);
        erg_table_add(&table, "%s", "");
        erg_text_release(&name);
    }
    erg_print_table(out, &table, "  ");
}

void erg_train_preview_print(FILE *out, const struct erg_run_preview *preview)
{
    const struct erg_job *job = preview->job;
    const struct erg_layout *layout = &job->layout;
    struct unit unit = unit_of((double)preview->stages[preview->most].bytes);
    struct unit free_unit = unit_of((double)preview->free_bytes);
    fprintf(out,
            "%s: %.4g million parameters in %s on %ld rank%s\n"
            "tensor %ld x context %ld x pipeline %ld x data %ld, %ld virtual stage%s\n"
            "%" PRIu64 " steps of %ld sequences of %ld tokens, %" PRIu64 " tokens in all\n"
            "%ld microbatches of %ld x %ld tokens on a rank\n\n",
            job->model->name, 1e-6 * erg_model_trained_parameters(job->model), preview->type,
            preview->ranks, erg_plural((size_t)preview->ranks), layout->tensor, layout->context,
            layout->pipeline, layout->data, layout->virtual_stages,
            erg_plural((size_t)layout->virtual_stages), preview->steps, erg_layout_batch(layout),
            layout->sequence, preview->tokens, layout->microbatches, layout->microbatch,
            layout->sequence);
    print_ranks(out, preview, unit);
    print_buffers(out, preview, unit);
    fprintf(out, "\nfree now: %.3g %s of %s\n", (double)preview->free_bytes / free_unit.bytes,
            free_unit.name, strcmp(preview->device, "host") ? preview->device : "this machine");
    print_expectation(out, preview);
    print_plan(out, preview);
    print_ways(out, preview);
}
