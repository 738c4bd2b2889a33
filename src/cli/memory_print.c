#include "cli/memory_print.h"

#include "observe/table.h"

#include <math.h>
#include <stdio.h>

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

static double gib(double bytes)
{
    return bytes / 0x1p30;
}

static void print_heading(const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    printf("%s: %s on %ld %s\n"
           "tensor %ld x context %ld x pipeline %ld x data %ld, %ld virtual stage%s\n"
           "%ld microbatches of %ld x %ld tokens, recompute %s, offload %.3f%s\n\n",
           answer->job->name, answer->request.model->name, erg_layout_gpus(layout),
           answer->job->gpu->name, layout->tensor, layout->context, layout->pipeline, layout->data,
           layout->virtual_stages, layout->virtual_stages > 1 ? "s" : "", layout->microbatches,
           layout->microbatch, layout->sequence, erg_layout_remat_name(layout), layout->offload,
           answer->per_stage ? " or less (each stage its own)" : "");
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
    struct erg_table table = {.columns = (answer->per_stage ? 5 : 3) + !!layout->chunk_layers};
    for (int c = 0; c < COLUMNS; c++)
        table.columns += is_used(result, c);
    erg_table_add(&table, "stage");
    if (layout->chunk_layers)
        erg_table_add(&table, "layers");
    for (int c = 0; c < COLUMNS; c++)
        if (is_used(result, c))
            erg_table_add(&table, "%s", columns[c].head);
    erg_table_add(&table, "peak GiB");
    if (answer->per_stage) {
        erg_table_add(&table, "ratio");
        erg_table_add(&table, "recompute");
    }
    erg_table_add(&table, "worst in");
    for (long s = 0; s < result->count; s++) {
        const struct erg_memory_stage *stage = &result->stages[s];
        erg_table_add(&table, "%ld%s", s, s == result->worst ? " *" : "");
        if (layout->chunk_layers)
            add_layers(&table, answer, s);
        for (int c = 0; c < COLUMNS; c++)
            if (is_used(result, c))
                erg_table_add(&table, "%.2f", gib(column_bytes(stage, c)));
        erg_table_add(&table, "%.2f", gib(stage->peak_bytes));
        if (answer->per_stage) {
            erg_table_add(&table, "%.3f", erg_layout_offload(layout, s));
            erg_table_add(&table, "%s", erg_remat_name(erg_layout_remat(layout, s)));
        }
        erg_table_add(&table, "%s", stage->moment);
    }
    struct erg_text text = {0};
    erg_table_text(&text, &table, "");
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_table_release(&table);
}

/* What crosses the links of a GPU of each stage, and what that makes wait. */
static void print_traffic(const struct erg_memory_answer *answer)
{
    enum { KINDS = ERG_MEMORY_RECEIVE + 1 };
    const struct erg_memory_traffic *traffic = answer->traffic;
    static const char *const heads[] = {"stage",       "out GB",  "in GB", "sent GB",
                                        "received GB", "waits s", "ends s"};
    struct erg_table table = {.columns = sizeof heads / sizeof *heads};
    double wait_s = 0, shared = answer->job->cluster.shared_link_bandwidth;
    for (size_t i = 0; i < table.columns; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (long s = 0; s < traffic->count; s++) {
        const struct erg_memory_stage_traffic *stage = &traffic->stages[s];
        double bytes[KINDS] = {0};
        for (size_t i = 0; i < stage->count; i++)
            bytes[stage->items[i].kind] += (double)stage->items[i].bytes;
        erg_table_add(&table, "%ld", s);
        for (int kind = 0; kind < KINDS; kind++)
            erg_table_add(&table, "%.2f", bytes[kind] / 1e9);
        erg_table_add(&table, "%.3f", stage->copy_wait_s);
        erg_table_add(&table, "%.3f", stage->end_s);
        wait_s = fmax(wait_s, stage->copy_wait_s);
    }
    printf("Compute waits up to %.3f s of an iteration for copies", wait_s);
    if (shared > 0)
        printf("; that they share %.10g GB/s with messages between nodes costs %.3f s",
               shared / 1e9, answer->shared_s);
    printf(". One GPU of each stage moves:\n\n");
    struct erg_text text = {0};
    erg_table_text(&text, &table, "");
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_table_release(&table);
    printf("\n");
}

static void print_verdict(const struct erg_memory_answer *answer)
{
    const struct erg_memory_result *result = answer->result;
    const struct erg_memory_stage *worst = &result->stages[result->worst];
    int item = 0;
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        if (worst->items[i] > worst->items[item])
            item = i;
    printf("\nStage %ld binds with %.2f GiB, most of it %s (%.2f GiB).\n", result->worst,
           gib(worst->peak_bytes), erg_memory_item_name((enum erg_memory_item)item),
           gib(worst->items[item]));
    if (answer->fits)
        printf("It fits: the budget is %.2f GiB of the %.0f GiB of a %s.\n",
               gib(answer->budget_bytes), gib(answer->job->gpu->memory_bytes),
               answer->job->gpu->name);
    int gpus = answer->job->cluster.gpus_per_node;
    if (answer->host_bytes > 0)
        printf("Host memory: up to %.2f GiB for each GPU, %.0f GiB for a node of %d.\n",
               gib(answer->host_bytes) / gpus, gib(answer->host_bytes), gpus);
    if (answer->traffic)
        print_traffic(answer);
    const struct erg_memory_solution *solution = answer->solution;
    if (!solution)
        return;
    printf("The smallest offload ratio that fits is %.4f", solution->offload);
    if (solution->offload_bytes > 0)
        printf("; one for each stage copies %.1f instead of %.1f GB in an iteration, %.0f %% less",
               solution->stage_offload_bytes / 1e9, solution->offload_bytes / 1e9,
               100 * (1 - solution->stage_offload_bytes / solution->offload_bytes));
    printf(".\n");
}

void erg_memory_print(const struct erg_memory_answer *answer)
{
    print_heading(answer);
    print_table(answer);
    print_verdict(answer);
}
