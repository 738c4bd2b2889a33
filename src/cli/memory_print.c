/* The tables that ergon memory prints, and the sentence about a layout that does not fit. */
#include "cli/memory_print.h"
#include "cli/print.h"

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

static void print_heading(const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    struct erg_text gpus = {0};
    erg_memory_answer_gpus(&gpus, answer);
    printf("%s: %s on %s\n"
           "tensor %ld x context %ld x pipeline %ld x data %ld, %ld virtual stage%s\n"
           "%ld microbatches of %ld x %ld tokens, recompute %s, offload %.3f%s\n\n",
           answer->job->name, answer->request.model->name, gpus.data, layout->tensor,
           layout->context, layout->pipeline, layout->data, layout->virtual_stages,
           erg_plural((size_t)layout->virtual_stages), layout->microbatches, layout->microbatch,
           layout->sequence, erg_layout_recompute_name(layout), layout->offload,
           answer->per_stage ? " or less (each stage its own)" : "");
    erg_text_release(&gpus);
}

static double column_bytes(const struct erg_memory_stage *stage, int column)
{
    double sum = 0;
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        if (columns[column].items & 1u << i)
            sum += stage->items[i];
    return sum;
}

/* Whether any stage has something in the column. */
static bool is_used(const struct erg_memory_result *result, int column)
{
    for (long s = 0; s < result->count; s++)
        if (column_bytes(&result->stages[s], column) > 0)
            return true;
    return false;
}

/* Layers of a stage, chunk by chunk: "2+2+1". */
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

static void print_table(const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    const struct erg_memory_result *result = answer->result;
    const bool mixed = erg_memory_answer_is_mixed(answer);
    struct erg_table table = {.columns = (answer->per_stage ? 5 : 3) + !!layout->chunk_layers +
                                         (mixed ? 2 : 0)};
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
    erg_table_add(&table, "worst in");
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
    erg_print_table(&table, "");
}

/* What crosses the links of a GPU of each stage, and what that makes wait. */
static void print_traffic(const struct erg_memory_answer *answer)
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
    printf("Compute waits up to %.3f s of an iteration for copies", wait_s);
    if (shared > 0)
        printf("; that they share %.10g GB/s with messages between nodes costs %.3f s",
               shared / 1e9, answer->shared_s);
    printf(". One GPU of each stage moves:\n\n");
    erg_print_table(&table, "");
    printf("\n");
}

/* A stage of each kind that stages lie on, with the most host memory of these; how many kinds. */
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

/* What GPUs and hosts have, kind by kind. */
static void print_rooms(const struct erg_memory_answer *answer)
{
    long *stages = erg_xcalloc(answer->job->kind_count, sizeof *stages);
    size_t count = stages_of_kinds(stages, answer);
    for (size_t k = 0; k < count && answer->fits; k++) {
        const struct erg_gpu *gpu = erg_memory_answer_gpu(answer, stages[k]);
        printf("%s %.2f GiB of the %.0f GiB of a %s",
               k            ? ","
               : count == 1 ? "It fits: the budget is"
                            : "It fits: the budgets are",
               erg_gib(answer->rooms[stages[k]].gpu_bytes), erg_gib(gpu->memory_bytes), gpu->name);
    }
    printf("%s", answer->fits ? ".\n" : "");
    for (size_t k = 0; k < count; k++) {
        const long node_gpus = answer->rooms[stages[k]].node_gpus;
        const double bytes = erg_memory_answer_host_bytes(answer, stages[k]);
        if (bytes > 0)
            printf("Host memory: up to %.2f GiB for each %s, %.0f GiB for a node of %ld.\n",
                   erg_gib(bytes) / (double)node_gpus,
                   count == 1 ? "GPU" : erg_memory_answer_gpu(answer, stages[k])->name,
                   erg_gib(bytes), node_gpus);
    }
    free(stages);
}

static void print_solution(const struct erg_memory_solution *solution)
{
    if (isnan(solution->offload)) {
        printf(
            "No one offload ratio fits all stages; one for each copies %.1f GB in an iteration.\n",
            solution->stage_offload_bytes / 1e9);
        return;
    }
    printf("The smallest offload ratio that fits is %.4f", solution->offload);
    if (solution->offload_bytes > 0)
        printf("; one for each stage copies %.1f instead of %.1f GB in an iteration, %.0f %% less",
               solution->stage_offload_bytes / 1e9, solution->offload_bytes / 1e9,
               100 * (1 - solution->stage_offload_bytes / solution->offload_bytes));
    printf(".\n");
}

static void print_verdict(const struct erg_memory_answer *answer)
{
    const struct erg_memory_stage *worst = &answer->result->stages[answer->binding];
    const enum erg_memory_item item = erg_memory_largest(worst);
    printf("\nStage %ld binds with %.2f GiB, most of it %s (%.2f GiB).\n", answer->binding,
           erg_gib(worst->peak_bytes), erg_memory_item_name(item), erg_gib(worst->items[item]));
    print_rooms(answer);
    if (answer->traffic)
        print_traffic(answer);
    if (answer->solution)
        print_solution(answer->solution);
}

void erg_memory_print(const struct erg_memory_answer *answer)
{
    print_heading(answer);
    print_table(answer);
    print_verdict(answer);
}

/* ---- a layout that does not fit ---- */

/* How many layers are on other stages than before. */
static long count_moved(const struct erg_layout *layout, const struct erg_layout *changed,
                        long layers)
{
    long sum = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        long more = erg_layout_stage_layers(changed, layers, stage) -
                    erg_layout_stage_layers(layout, layers, stage);
        sum += more > 0 ? more : 0;
    }
    return sum;
}

/* The job's key with the layers of all chunks. */
static void say_layers(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout, *changed = &answer->change->layout;
    const long moved = count_moved(layout, changed, answer->request.model->layers);
    for (long i = 0; i < changed->pipeline * changed->virtual_stages; i++)
        erg_text_printf(out, "%s%ld", i ? ", " : " layers: [", changed->chunk_layers[i]);
    erg_text_printf(out, "] in the job, which moves %ld layer%s to %s", moved,
                    erg_plural((size_t)moved), moved == 1 ? "another stage" : "other stages");
}

/* The options that make the layout that was asked about another. */
static void say_options(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout, *changed = &answer->change->layout;
    if (changed->tensor != layout->tensor || changed->context != layout->context ||
        changed->pipeline != layout->pipeline || changed->microbatch != layout->microbatch) {
        erg_text_printf(out, " --layout ");
        erg_layout_name(out, changed, answer->job->model->layers);
    }
    if (changed->recompute != layout->recompute)
        erg_text_printf(out, " --recompute %s", erg_recompute_name(changed->recompute));
    if (changed->offload != layout->offload || answer->solve)
        erg_text_printf(out, " --offload %.3g", changed->offload);
    if (erg_layout_gpus(changed) != erg_layout_gpus(layout))
        erg_text_printf(out, " --gpus %ld", erg_layout_gpus(changed));
    if (answer->change->chunk_layers)
        say_layers(out, answer);
}

/* What would help. */
static void say_change(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_memory_change *change = answer->change;
    const bool mixed = erg_memory_answer_is_mixed(answer), one_kind = answer->job->kind_count == 1;
    struct erg_text said = {0};
    say_options(&said, answer);
    if (change->found)
        erg_text_printf(out, "it would with%s", said.count ? said.data : "");
    else
        erg_text_printf(
            out,
            "no %s that was tried is enough; it would fit "
            "with %.2f GiB %sa GPU%s%s",
            answer->request.accounting == ERG_MEMORY_STATIC
                ? (one_kind ? "smaller microbatch or larger degree" : "smaller microbatch")
            : one_kind ? "recomputation, offloading or larger degree"
                       : "recomputation or offloading",
            ceil(100 * erg_gib(mixed ? change->excess_bytes : change->least_bytes)) / 100,
            mixed ? "more " : "", said.count ? " and" : "", said.count ? said.data : "");
    erg_text_release(&said);
}

/* A layout that is too large for its GPUs. */
static void say_too_large(const struct erg_memory_answer *answer, const char *hint,
                          struct erg_error *err)
{
    const struct erg_memory_stage *worst = &answer->result->stages[answer->binding];
    const double budget = answer->rooms[answer->binding].gpu_bytes;
    const enum erg_memory_item largest = erg_memory_largest(worst);
    const struct erg_gpu *gpu = erg_memory_answer_gpu(answer, answer->binding);
    struct erg_text has = {0};
    if (budget == ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes)
        erg_text_printf(&has, "that each %s has for it", gpu->name);
    else
        erg_text_add(&has, "of --solve-offload");
    erg_fail(err, ERG_INFEASIBLE,
             "stage %ld needs %.2f GiB, %.2f GiB more than the %.2f GiB %s, most of it %s%s; %s",
             answer->binding, erg_gib(worst->peak_bytes), erg_gib(worst->peak_bytes - budget),
             erg_gib(budget), has.data, erg_memory_item_name(largest),
             erg_memory_unsharded(largest), hint);
    erg_text_release(&has);
}

/* One whose offloaded activations are too large for the host. */
static void say_host_too_small(const struct erg_memory_answer *answer, const char *hint,
                               struct erg_error *err)
{
    const long stage = answer->host_binding;
    const struct erg_memory_room *room = &answer->rooms[stage];
    const bool mixed = erg_memory_answer_is_mixed(answer);
    erg_fail(err, ERG_INFEASIBLE,
             "what is offloaded needs up to %.0f GiB of a node's host memory for its %ld %s, more "
             "than the %.0f GiB that it has; %s",
             erg_gib(erg_memory_answer_host_bytes(answer, stage)), room->node_gpus,
             mixed ? erg_memory_answer_gpu(answer, stage)->name : "GPUs", erg_gib(room->host_bytes),
             hint);
}

int erg_memory_say_unfit(const struct erg_memory_answer *answer, struct erg_error *err)
{
    struct erg_text hint = {0};
    if (answer->fits && answer->host_fits)
        return 0;
    say_change(&hint, answer);
    if (!answer->fits)
        say_too_large(answer, hint.data, err);
    else
        say_host_too_small(answer, hint.data, err);
    erg_text_release(&hint);
    return -1;
}
