#include "cli/plan_mixed.h"

#include "cli/plan_items.h"

#include "base/memory.h"
#include "io/json.h"
#include "layout/export.h"
#include "layout/layout_document.h"
#include "layout/memory.h"
#include "layout/mixed.h"
#include "observe/table.h"

#include <stdio.h>
#include <stdlib.h>

/* Everything of one call. */
struct planning {
    const struct erg_job *job;
    struct erg_gpu *gpus[ERG_MIXED_MOST_KINDS]; /* looked up; of the first kind NULL */
    struct erg_engine *engines[ERG_MIXED_MOST_KINDS];
    struct erg_mixed_kind kinds[ERG_MIXED_MOST_KINDS];
    struct erg_mixed_search search;
    struct erg_mixed_found found;
};

/* ---- what was asked ---- */

static void fill_kind(struct erg_mixed_kind *kind, const struct erg_cluster *nodes,
                      const struct erg_gpu *gpu, const struct erg_engine *engine)
{
    *kind = (struct erg_mixed_kind){
        .name = gpu->name,
        .engine = engine,
        .gpus = (long)nodes->nodes * nodes->gpus_per_node,
        .memory_bytes = ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes,
        .host_bytes = nodes->host_memory_bytes,
    };
    erg_time_machine_init(&kind->machine, gpu, nodes);
}

static int load_kinds(struct planning *at, const struct erg_cluster *cluster,
                      const struct erg_gpu *gpu, const struct erg_layout_search *search,
                      struct erg_error *err)
{
    at->search.kinds = at->kinds;
    at->search.kind_count = 1 + cluster->more_count;
    if (at->search.kind_count > ERG_MIXED_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected nodes of at most %d kinds, got %zu",
                        ERG_MIXED_MOST_KINDS, at->search.kind_count);
    fill_kind(&at->kinds[0], cluster, gpu, search->time.engine);
    for (unsigned i = 0; i < cluster->more_count; i++) {
        const struct erg_cluster *nodes = &cluster->more[i];
        if (!nodes->engine)
            return erg_fail(err, ERG_USAGE,
                            "the cluster does not say what trains on its nodes with %s; expected "
                            "the key 'engine' beside it (data/engines)",
                            nodes->gpu);
        if (erg_gpu_load(&at->gpus[i + 1], nodes->gpu, err) != 0 ||
            erg_engine_load(&at->engines[i + 1], nodes->engine, err) != 0)
            return -1;
        fill_kind(&at->kinds[i + 1], nodes, at->gpus[i + 1], at->engines[i + 1]);
    }
    return 0;
}

static void release(struct planning *at)
{
    erg_mixed_found_release(&at->found);
    for (size_t k = 0; k < ERG_MIXED_MOST_KINDS; k++) {
        erg_gpu_free(at->gpus[k]);
        erg_engine_free(at->engines[k]);
    }
}

/* ---- what was found ---- */

static const char *kind_name(const struct planning *at, const struct erg_mixed_block *block)
{
    return at->kinds[block->kind].name;
}

static double mfu(const struct planning *at, const struct erg_mixed_candidate *candidate)
{
    return erg_time_mfu(at->job->model, at->search.sequence, candidate->at.tokens_per_s,
                        erg_mixed_peak_flops(candidate, &at->search));
}

static void add_heads(struct erg_table *table)
{
    static const char *const heads[] = {"layout", "d",        "batch", "recompute", "offload",
                                        "time s", "tokens/s", "MFU",   "GPUs",      "stages"};
    table->columns = sizeof heads / sizeof *heads;
    for (size_t i = 0; i < table->columns; i++)
        erg_table_add(table, "%s", heads[i]);
}

static void add_row(struct erg_table *table, const struct planning *at,
                    const struct erg_mixed_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->at.layout;
    struct erg_text name = {0}, stages = {0};
    erg_layout_name(&name, layout, at->job->model->layers);
    for (size_t i = 0; i < candidate->block_count; i++)
        erg_text_printf(&stages, "%s%ld %s", i ? ", " : "", candidate->blocks[i].stages,
                        kind_name(at, &candidate->blocks[i]));
    erg_table_add(table, "%s", name.data);
    erg_table_add(table, "%ld", layout->data);
    erg_table_add(table, "%ld", candidate->at.batch);
    erg_table_add(table, "%s", erg_remat_name(layout->remat));
    erg_table_add(table, "%.3f", layout->offload);
    erg_table_add(table, "%.4g", candidate->at.time.total);
    erg_table_add(table, "%.0f", candidate->at.tokens_per_s);
    erg_table_add(table, "%.1f %%", 100 * mfu(at, candidate));
    erg_table_add(table, "%ld", erg_layout_gpus(layout));
    erg_table_add(table, "%s", stages.data);
    erg_text_release(&name);
    erg_text_release(&stages);
}

/* Which stages lie where, and how many layers each has. */
static void print_stages(const char *what, const struct planning *at,
                         const struct erg_mixed_candidate *candidate)
{
    long stage = 0, layers = at->job->model->layers;
    printf("\n%s:\n", what);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_mixed_block *block = &candidate->blocks[i];
        printf("  stages %ld to %ld on %s, at most %.1f GiB; layers", stage,
               stage + block->stages - 1, kind_name(at, block), block->peak_bytes / 0x1p30);
        for (long end = stage + block->stages; stage < end; stage++)
            printf(" %ld", erg_layout_stage_layers(&candidate->at.layout, layers, stage));
        putchar('\n');
    }
}

static void print_rows(const struct planning *at, const struct erg_mixed_candidate *const *rows,
                       size_t count)
{
    const struct erg_mixed_search *search = &at->search;
    struct erg_table table = {0};
    struct erg_text text = {0};
    erg_text_printf(&text, "%s: %s on ", at->job->name, at->job->model->name);
    for (size_t k = 0; k < search->kind_count; k++)
        erg_text_printf(&text, "%s%ld %s of the engine %s", k ? ", " : "", at->kinds[k].gpus,
                        at->kinds[k].name, at->kinds[k].engine->name);
    erg_text_printf(&text, "; at most %ld sequences of %ld tokens\n\n", search->batch_most,
                    search->sequence);
    add_heads(&table);
    for (size_t i = 0; i < count; i++)
        add_row(&table, at, rows[i]);
    erg_table_text(&text, &table, "");
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_table_release(&table);
}

static void print_found(const struct planning *at)
{
    const struct erg_mixed_found *found = &at->found;
    const struct erg_mixed_candidate **rows = erg_xcalloc(found->count, sizeof *rows);
    for (size_t i = 0; i < found->count; i++)
        rows[i] = &found->items[i];
    print_rows(at, rows, found->count);
    free(rows);
    print_stages("The fastest", at, &found->items[0]);
    if (at->search.only.pipeline) {
        erg_plan_print_items(at->job->model, NULL, &found->items[0].at, NULL);
        return;
    }
    printf("\nOf %llu layouts %llu are slower than these or do not fit as fast; %llu numbers of "
           "stages are too slow whatever else is chosen.\n",
           (unsigned long long)found->evaluated, (unsigned long long)(found->slower + found->unfit),
           (unsigned long long)found->bounded);
}

static json_t *layout_json(const struct planning *at, const struct erg_mixed_candidate *candidate)
{
    const struct erg_layout *layout = &candidate->at.layout;
    json_t *blocks = json_array(), *layers = json_array();
    long first = 0;
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_mixed_block *block = &candidate->blocks[i];
        json_array_append_new(blocks, json_pack("{s:s, s:I, s:I, s:o}", "gpu", kind_name(at, block),
                                                "first_stage", (json_int_t)first, "stages",
                                                (json_int_t)block->stages, "peak_bytes",
                                                erg_json_number(block->peak_bytes)));
        first += block->stages;
    }
    for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
        json_array_append_new(layers, json_integer(layout->chunk_layers[i]));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o}",
        "t", (json_int_t)layout->tensor, "c", (json_int_t)layout->context, "p",
        (json_int_t)layout->pipeline, "v", (json_int_t)layout->virtual_stages, "d",
        (json_int_t)layout->data, "layers", layers, "microbatch", (json_int_t)layout->microbatch,
        "microbatches", (json_int_t)layout->microbatches, "batch", (json_int_t)candidate->at.batch,
        "recompute", erg_remat_name(layout->remat), "offload", erg_json_number(layout->offload),
        "time_s", erg_json_number(candidate->at.time.total), "tokens_per_s",
        erg_json_number(candidate->at.tokens_per_s), "mfu", erg_json_number(mfu(at, candidate)),
        "peak_bytes", erg_json_number(candidate->at.peak_bytes), "gpus",
        (json_int_t)erg_layout_gpus(layout), "places", blocks);
}

static void print_json(const struct planning *at)
{
    json_t *layouts = json_array(), *document;
    for (size_t i = 0; i < at->found.count; i++)
        json_array_append_new(layouts, layout_json(at, &at->found.items[i]));
    document = json_pack("{s:i, s:s, s:s, s:o}", "schema_version", 1, "job", at->job->name, "model",
                         at->job->model->name, "layouts", layouts);
    char *text = erg_json_text(document);
    puts(text);
    free(text);
    json_decref(document);
}

/* ---- one layout ---- */

/* The degrees that `text` says, with the job's recomputation unless the command line named one. */
static int ask_for(struct planning *at, const char *option, const char *text, struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_layout layout;
    erg_layout_of_job(&layout, at->job, &arena);
    if (at->search.remats == ERG_REMAT_ALL)
        at->search.remats = 1u << layout.remat;
    int status = erg_layout_parse(&layout, text, at->job->model->layers, err);
    erg_arena_release(&arena);
    at->search.top = 1;
    at->search.only = (struct erg_mixed_degrees){layout.tensor, layout.context, layout.pipeline,
                                                 layout.virtual_stages, layout.microbatch};
    if (!status)
        status = erg_mixed_search(&at->found, &at->search, err);
    return status ? erg_fail_context(err, "%s %s", option, text) : 0;
}

/* Beside the fastest of all. */
static int explain(struct planning *at, const char *text, struct erg_error *err)
{
    struct planning best = *at;
    if (ask_for(at, "--why", text, err) != 0)
        return -1;
    best.search.top = 1;
    if (erg_mixed_search(&best.found, &best.search, err) != 0)
        return -1;
    const struct erg_layout_candidate *one = &at->found.items[0].at;
    const struct erg_layout_candidate *fastest = &best.found.items[0].at;
    const struct erg_mixed_candidate *const rows[] = {&at->found.items[0], &best.found.items[0]};
    print_rows(at, rows, 2);
    print_stages("This one", at, rows[0]);
    print_stages("The fastest", at, rows[1]);
    erg_plan_print_items(at->job->model, NULL, one, fastest);
    printf("\n%s: %.1f %% slower than the fastest.\n", text,
           100 * (one->time.total / fastest->time.total - 1));
    erg_mixed_found_release(&best.found);
    return 0;
}

/* For software that knows one kind of GPU: which ranks are which is said before it. */
static void print_export(const struct planning *at, enum erg_export_format format)
{
    const struct erg_mixed_candidate *best = &at->found.items[0];
    struct erg_text text = {0};
    long rank = 0, group = erg_layout_gpus(&best->at.layout) / best->at.layout.pipeline;
    for (size_t i = 0; i < best->block_count; i++) {
        long ranks = best->blocks[i].stages * group;
        erg_text_printf(&text, "# Ranks %ld to %ld on %s.\n", rank, rank + ranks - 1,
                        kind_name(at, &best->blocks[i]));
        rank += ranks;
    }
    erg_layout_export(&text, format, at->job->model, &best->at.layout);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

static int answer(struct planning *at, const struct plan_mixed *plan, struct erg_error *err)
{
    if (plan->why)
        return explain(at, plan->why, err);
    if (plan->layout ? ask_for(at, "--layout", plan->layout, err)
                     : erg_mixed_search(&at->found, &at->search, err))
        return -1;
    if (plan->export >= 0)
        print_export(at, (enum erg_export_format)plan->export);
    else if (plan->json)
        print_json(at);
    else
        print_found(at);
    return 0;
}

int erg_plan_mixed(const struct plan_mixed *plan, struct erg_error *err)
{
    struct planning at = {
        .job = plan->job,
        .search =
            {
                .model = plan->job->model,
                .sequence = plan->search->sequence,
                .batch_least = plan->search->batch_least,
                .batch_most = plan->search->batch_most,
                .remats = plan->search->remats,
                .offload = true,
                .top = plan->search->top,
            },
    };
    int status = load_kinds(&at, plan->cluster, plan->gpu, plan->search, err);
    if (!status)
        status = answer(&at, plan, err);
    release(&at);
    return status;
}
