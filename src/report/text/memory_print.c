/* The tables that ergon memory prints. */
#include "report/text/memory_print.h"
#include "io/print.h"

#include "base/memory.h"
#include "base/table.h"
#include "base/text.h"
#include "layout/document/layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *head;
    unsigned items;
} columns[] = {
#define ITEM(name) (1u << ERG_MEMORY_##name)
    {"weights", ITEM(WEIGHTS)},
    {"gradients", ITEM(GRADIENTS)},
    {"optimizer", ITEM(OPTIMIZER)},
    {"activations", ITEM(ACTIVATIONS)},
    {"offload", ITEM(OFFLOAD)},
    {"head", ITEM(HEAD)},
    {"pipeline", ITEM(PIPELINE)},
    {"transient", ITEM(TRANSIENT)},
    {"buffers", ITEM(ROPE) | ITEM(WORKSPACE) | ITEM(GATHER)},
    {"rounding", ITEM(ROUNDING)},
#undef ITEM
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_heading(FILE *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    struct erg_text gpus = {0}, lora = {0};
    char experts[64] = "", shards[48] = "";
    erg_lora_add_line(&lora, answer->request.model);
    erg_memory_answer_gpus(&gpus, answer);
    if (erg_layout_experts(layout) > 1)
        snprintf(experts, sizeof experts, ", experts over %ld ranks", layout->expert);
    if (erg_layout_is_sharded(layout))
        snprintf(shards, sizeof shards, ", weights over %ld ranks (FSDP)", layout->fsdp);
    fprintf(out,
            "%s: %s on %s\n"
            "tensor %ld x context %ld x pipeline %ld x data %ld, %ld virtual stage%s%s%s\n"
            "%ld microbatches of %ld x %ld tokens, recompute %s, offload %.3f%s\n%s\n",
            answer->job->name, answer->request.model->name, gpus.data, layout->tensor,
            layout->context, layout->pipeline, layout->data, layout->virtual_stages,
            erg_plural((size_t)layout->virtual_stages), experts, shards, layout->microbatches,
            layout->microbatch, layout->sequence, erg_layout_recompute_name(layout),
            layout->offload, answer->per_stage ? " or less (per stage)" : "",
            lora.data ? lora.data : "");
    erg_text_release(&gpus);
    erg_text_release(&lora);
}

static double column_bytes(const struct erg_memory_stage *stage, int column)
{
    double sum = 0;
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        if (columns[column].items & 1u << i)
            sum += stage->items[i];
    return sum;
}

/* Returns true if any stage has a value in the column. */
static bool is_used(const struct erg_memory_result *result, int column)
{
    for (long s = 0; s < result->count; s++)
        if (column_bytes(&result->stages[s], column) > 0)
            return true;
    return false;
}

/* Layers of a stage, per chunk: "2+2+1". */
static void add_layers(struct erg_table *table, const struct erg_memory_answer *answer, long stage)
{
    const struct erg_layout *layout = answer->request.layout;
    struct erg_text text = {0};
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++)
        erg_text_printf(
            &text, "%s%ld", chunk ? "+" : "",
            erg_layout_chunk_layers(layout, answer->request.model->layers, stage, chunk));
    erg_table_add(table, "%s", text.data);
    erg_text_release(&text);
}

static void print_table(FILE *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    const struct erg_memory_result *result = answer->result;
    const bool mixed = erg_memory_answer_is_mixed(answer);
    struct erg_table table = {.columns = (answer->per_stage ? 5u : 3u) +
                                         (layout->chunk_layers ? 1u : 0u) + (mixed ? 2u : 0u)};
    for (int c = 0; c < COLUMNS; c++)
        table.columns += is_used(result, c);
    erg_table_add(&table, "stage");
    if (mixed)
        erg_table_add(&table, "GPU");
    if (layout->chunk_layers)
        erg_table_add(&table, "layers");
    for (int c = 0; c < COLUMNS; c++)
        if (is_used(result, c))
            erg_table_add(&table, "%s", columns[c].head);
    erg_table_add(&table, "peak GiB");
    if (mixed)
        erg_table_add(&table, "budget");
    if (answer->per_stage) {
        erg_table_add(&table, "ratio");
        erg_table_add(&table, "recompute");
    }
    erg_table_add(&table, "peak in");
    for (long s = 0; s < result->count; s++) {
        const struct erg_memory_stage *stage = &result->stages[s];
        erg_table_add(&table, "%ld%s", s, s == answer->binding ? " *" : "");
        if (mixed)
            erg_table_add(&table, "%s", erg_memory_answer_gpu(answer, s)->name);
        if (layout->chunk_layers)
            add_layers(&table, answer, s);
        for (int c = 0; c < COLUMNS; c++)
            if (is_used(result, c))
                erg_table_add(&table, "%.2f", erg_gib(column_bytes(stage, c)));
        erg_table_add(&table, "%.2f", erg_gib(stage->peak_bytes));
        if (mixed)
            erg_table_add(&table, "%.2f", erg_gib(answer->rooms[s].gpu_bytes));
        if (answer->per_stage) {
            erg_table_add(&table, "%.3f", erg_layout_offload(layout, s));
            erg_table_add(&table, "%s", erg_recompute_name(erg_layout_recompute(layout, s)));
        }
        erg_table_add(&table, "%s", stage->moment);
    }
    erg_print_table(out, &table, "");
}

/* The bytes over the links of one GPU of each stage, and the waiting time that they cause. */
static void print_traffic(FILE *out, const struct erg_memory_answer *answer)
{
    enum { KINDS = ERG_MEMORY_RECEIVE + 1 };
    const struct erg_memory_traffic *traffic = answer->traffic;
    static const char *const heads[] = {"stage",       "out GB",  "in GB", "sent GB",
                                        "received GB", "waits s", "ends s"};
    struct erg_table table = {0};
    double wait_s = 0, shared = 0;
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (long s = 0; s < traffic->count; s++) {
        const struct erg_memory_stage_traffic *stage = &traffic->stages[s];
        double own = answer->job->kinds[answer->stage_kind[s]].nodes->shared_link_bandwidth;
        double bytes[KINDS] = {0};
        for (size_t i = 0; i < stage->count; i++)
            bytes[stage->items[i].kind] += (double)stage->items[i].bytes;
        erg_table_add(&table, "%ld", s);
        for (int kind = 0; kind < KINDS; kind++)
            erg_table_add(&table, "%.2f", bytes[kind] / 1e9);
        erg_table_add(&table, "%.3f", stage->copy_wait_s);
        erg_table_add(&table, "%.3f", stage->end_s);
        wait_s = fmax(wait_s, stage->copy_wait_s);
        if (own > 0)
            shared = shared > 0 ? fmin(shared, own) : own;
    }
    fprintf(out, "Compute waits up to %.3f s of an iteration for copies", wait_s);
    if (shared > 0)
        fprintf(out, "; sharing %.10g GB/s with messages between nodes costs %.3f s of them",
                shared / 1e9, answer->shared_s);
    fprintf(out, ". One GPU of each stage moves:\n\n");
    erg_print_table(out, &table, "");
    fprintf(out, "\n");
}

/* For each kind of stage, the stage with the most host memory; returns the number of kinds. */
static size_t stages_of_kinds(long *stages, const struct erg_memory_answer *answer)
{
    size_t count = 0;
    for (long s = 0; s < answer->result->count; s++) {
        size_t k = 0;
        while (k < count && answer->stage_kind[stages[k]] != answer->stage_kind[s])
            k++;
        if (k == count)
            stages[count++] = s;
        else if (erg_memory_answer_host_bytes(answer, s) >
                 erg_memory_answer_host_bytes(answer, stages[k]))
            stages[k] = s;
    }
    return count;
}

/* Memory of GPUs and hosts, per kind. */
static void print_rooms(FILE *out, const struct erg_memory_answer *answer)
{
    long *stages = erg_xcalloc(answer->job->kind_count, sizeof *stages);
    size_t count = stages_of_kinds(stages, answer);
    for (size_t k = 0; k < count && answer->fits; k++) {
        const struct erg_gpu *gpu = erg_memory_answer_gpu(answer, stages[k]);
        fprintf(out, "%s %.2f GiB of the %.0f GiB of a %s",
                k            ? ","
                : count == 1 ? "It fits: the budget is"
                             : "It fits: the budgets are",
                erg_gib(answer->rooms[stages[k]].gpu_bytes), erg_gib(gpu->memory_bytes), gpu->name);
    }
    fprintf(out, "%s", answer->fits ? ".\n" : "");
    for (size_t k = 0; k < count; k++) {
        const long node_gpus = answer->rooms[stages[k]].node_gpus;
        const double bytes = erg_memory_answer_host_bytes(answer, stages[k]);
        if (bytes > 0)
            fprintf(out, "Host memory: up to %.2f GiB per %s, %.0f GiB for a node of %ld.\n",
                    erg_gib(bytes) / (double)node_gpus,
                    count == 1 ? "GPU" : erg_memory_answer_gpu(answer, stages[k])->name,
                    erg_gib(bytes), node_gpus);
    }
    free(stages);
}

static void print_solution(FILE *out, const struct erg_memory_solution *solution)
{
    if (isnan(solution->offload)) {
        fprintf(out,
                "No single offload ratio fits all stages; a ratio per stage copies %.1f GB per "
                "iteration.\n",
                solution->stage_offload_bytes / 1e9);
        return;
    }
    fprintf(out, "The smallest offload ratio that fits is %.4f", solution->offload);
    if (solution->offload_bytes > 0)
        fprintf(out,
                "; a ratio per stage copies %.1f instead of %.1f GB per iteration, %.0f %% less",
                solution->stage_offload_bytes / 1e9, solution->offload_bytes / 1e9,
                100 * (1 - solution->stage_offload_bytes / solution->offload_bytes));
    fprintf(out, ".\n");
}

static void print_verdict(FILE *out, const struct erg_memory_answer *answer)
{
    const struct erg_memory_stage *worst = &answer->result->stages[answer->binding];
    const enum erg_memory_item item = erg_memory_largest(worst);
    fprintf(out,
            "\n"
            "Stage %ld needs most, %.2f GiB; its largest item is %s (%.2f GiB).\n",
            answer->binding, erg_gib(worst->peak_bytes), erg_memory_item_name(item),
            erg_gib(worst->items[item]));
    print_rooms(out, answer);
    if (answer->traffic)
        print_traffic(out, answer);
    if (answer->solution)
        print_solution(out, answer->solution);
}

void erg_memory_print(FILE *out, const struct erg_memory_answer *answer)
{
    print_heading(out, answer);
    print_table(out, answer);
    print_verdict(out, answer);
}
