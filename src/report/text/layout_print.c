/* The text of ergon layout: the question, layouts, the work of each stage, a frontier. */
#include "report/text/layout_print.h"
#include "io/print.h"

#include "base/memory.h"
#include "base/quantity.h"
#include "base/table.h"
#include "layout/document/memory_document.h"
#include "layout/energy/candidate.h"

#include <stdio.h>
#include <stdlib.h>

/* "the least energy within 9 s, 400 kW" */
static void print_query(FILE *out, const struct erg_goal *query)
{
    const struct {
        double bound, size;
        const char *unit;
    } bounds[] = {
        {query->deadline_s, 1, "s"},
        {query->energy_j, query->energy_j < 1e6 ? 1e3 : 1e6, query->energy_j < 1e6 ? "kJ" : "MJ"},
        {query->power_w, 1e3, "kW"}};
    const char *before = " within ";
    fprintf(out, "%s", query->objective == ERG_LEAST_ENERGY ? "the least energy" : "the fastest");
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].bound > 0) {
            fprintf(out, "%s%.6g %s", before, bounds[i].bound / bounds[i].size, bounds[i].unit);
            before = ", ";
        }
    fprintf(out, "\n");
}

static bool is_mixed(const struct erg_layout_answer *answer)
{
    return answer->searches->kind_count > 1;
}

/* "64 H800-SXM-80GB"; for several kinds the number of each, with their engines. */
static void print_gpus(FILE *out, const struct erg_layout_answer *answer)
{
    const struct erg_layout_search *search = answer->searches;
    const long first = search->gpus, last = answer->searches[answer->search_count - 1].gpus;
    if (first)
        fprintf(out, "%ld", first);
    if (last != first)
        fprintf(out, " to %ld", last);
    fprintf(out, "%s", is_mixed(answer) && first ? " of " : "");
    for (size_t k = 0; k < search->kind_count; k++)
        if (is_mixed(answer))
            fprintf(out, "%s%ld %s of the engine %s", k ? ", " : "", search->kinds[k].gpus,
                    search->kinds[k].name, search->kinds[k].engine->name);
        else
            fprintf(out, " %s", search->kinds[k].name);
}

void erg_layout_print_heading(FILE *out, const struct erg_layout_answer *answer)
{
    const struct erg_layout_search *search = answer->searches;
    struct erg_text lora = {0};
    fprintf(out, "%s: %s on ", answer->job->name, answer->job->model->name);
    print_gpus(out, answer);
    if (search->batch_least == search->batch_most)
        fprintf(out, ", %ld", search->batch_most);
    else
        fprintf(out, ", %ld to %ld", search->batch_least, search->batch_most);
    fprintf(out, " sequences of %ld tokens\n", search->sequence);
    erg_lora_add_line(&lora, answer->job->model);
    fprintf(out, "%s", lora.data ? lora.data : "");
    erg_text_release(&lora);
    if (!is_mixed(answer))
        fprintf(out, "times of the engine %s; ", search->kinds[0].engine->name);
    for (size_t k = 0; k < search->kind_count; k++)
        fprintf(out, "%s%.1f GiB a %s", k ? ", " : "", erg_gib(search->kinds[k].memory_bytes),
                is_mixed(answer) ? search->kinds[k].name : "GPU");
    fprintf(out, "\n");
    for (size_t k = 0; k < search->kind_count; k++) /* how far the energy was checked */
        fprintf(out, "energy by the model of %s: %s\n", search->kinds[k].name,
                search->kinds[k].gpu->confidence);
    if (answer->query)
        print_query(out, answer->query);
    putc('\n', out);
}

/* ---- layouts ---- */

/* Returns true if layouts differ in their number of GPUs. */
static bool has_gpus_column(const struct erg_layout_answer *answer)
{
    return answer->counts || is_mixed(answer);
}

/* Prints layouts, each with the time and the energy of all GPUs at its clocks. */
struct row {
    const struct erg_layout_candidate *candidate;
    double time_s, energy_j;
};

static bool any_is_uneven(const struct row *rows, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= erg_layout_is_uneven(&rows[i].candidate->layout);
    return any;
}

/* Several numbers of GPUs get a column; so do chunks of different sizes, and the places of
 * stages. */
static void add_layout_heads(struct erg_table *table, const struct erg_layout_answer *answer,
                             bool uneven)
{
    static const char *const heads[] = {"layout",  "d",       "batch",  "recompute",
                                        "offload", "GiB",     "time s", "tokens/s",
                                        "MFU",     "J/token", "W a GPU"};
    const size_t count = sizeof heads / sizeof *heads;
    table->columns = count + has_gpus_column(answer) + uneven + is_mixed(answer);
    for (size_t i = 0; i < count; i++) {
        erg_table_add(table, "%s", heads[i]);
        if (i == 0 && has_gpus_column(answer))
            erg_table_add(table, "GPUs");
    }
    if (uneven)
        erg_table_add(table, "layers");
    if (is_mixed(answer))
        erg_table_add(table, "which GPUs");
}

/* "3×11 3×12 11": layers of the chunks in the order of the model. */
static void add_layers(struct erg_table *table, const struct erg_layout *layout)
{
    const long chunks =
        erg_layout_is_uneven(layout) ? layout->pipeline * layout->virtual_stages : 0;
    struct erg_text text = {0};
    for (long i = 0, next; i < chunks; i = next) {
        for (next = i + 1; next < chunks && layout->chunk_layers[next] == layout->chunk_layers[i];)
            next++;
        erg_text_add(&text, i ? " " : "");
        if (next > i + 1)
            erg_text_printf(&text, "%ld×", next - i);
        erg_text_printf(&text, "%ld", layout->chunk_layers[i]);
    }
    erg_table_add(table, "%s", chunks ? text.data : "");
    erg_text_release(&text);
}

/* "64 A100-SXM4-80GB in 8 stages, 32 H800-SXM-80GB in 4" */
static void add_stages(struct erg_table *table, const struct erg_layout_search *search,
                       const struct erg_layout_candidate *candidate)
{
    struct erg_text stages = {0};
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_block *block = &candidate->blocks[i];
        erg_text_printf(&stages, "%s%ld %s in %ld%s", i ? ", " : "",
                        erg_layout_gpus_of(candidate, block->kind), search->kinds[block->kind].name,
                        block->stages,
                        i > 0               ? ""
                        : block->stages > 1 ? " stages"
                                            : " stage");
    }
    erg_table_add(table, "%s", stages.data);
    erg_text_release(&stages);
}

static void add_row(struct erg_table *table, const struct erg_layout_answer *answer,
                    const struct row *row, bool uneven)
{
    const struct erg_layout_candidate *candidate = row->candidate;
    const struct erg_layout *layout = &candidate->layout;
    const double time_s = row->time_s, energy_j = row->energy_j;
    const double tokens = (double)candidate->batch * (double)layout->sequence;
    const double gpus = (double)erg_layout_gpus(layout);
    struct erg_text name = {0};
    erg_layout_name(&name, layout, answer->searches->model->layers);
    erg_table_add(table, "%s", name.data);
    if (has_gpus_column(answer))
        erg_table_add(table, "%.0f", gpus);
    erg_table_add(table, "%ld", layout->data);
    erg_table_add(table, "%ld", candidate->batch);
    erg_table_add(table, "%s", erg_layout_recompute_name(layout));
    erg_table_add(table, "%.3f", layout->offload);
    erg_table_add(table, "%.2f", erg_gib(candidate->peak_bytes));
    erg_table_add_number(table, 4, time_s);
    erg_table_add(table, "%.0f", tokens / time_s);
    erg_table_add(table, "%.1f %%",
                  100 * erg_layout_answer_mfu(answer, candidate, tokens / time_s));
    erg_table_add_number(table, 3, energy_j / tokens);
    erg_table_add(table, "%.0f", energy_j / time_s / gpus);
    if (uneven)
        add_layers(table, layout);
    if (is_mixed(answer))
        add_stages(table, answer->searches, candidate);
    erg_text_release(&name);
}

static void print_rows(FILE *out, const struct erg_layout_answer *answer, const struct row *rows,
                       size_t count)
{
    const bool uneven = any_is_uneven(rows, count);
    struct erg_table table = {0};
    add_layout_heads(&table, answer, uneven);
    for (size_t i = 0; i < count; i++)
        add_row(&table, answer, &rows[i], uneven);
    erg_print_table(out, &table, "");
}

void erg_layout_print_rows(FILE *out, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *const *rows, size_t count)
{
    struct row *list = erg_xcalloc(count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        struct erg_layout_energy energy;
        erg_layout_candidate_energy(&energy, answer->searches, rows[i]);
        list[i] = (struct row){rows[i], rows[i]->time.total, energy.total_j};
    }
    print_rows(out, answer, list, count);
    free(list);
}

static void print_letters(FILE *out)
{
    fprintf(out,
            "t tensor, c context, p pipeline, l layers per chunk, v virtual stages (layers: of the "
            "chunks in the model's order, 3×2 is 2 2 2), b microbatch, e expert, d data\n");
}

void erg_layout_print_tried(FILE *out, const struct erg_layout_results *found)
{
    fprintf(out,
            "\n"
            "%llu layouts; %llu do not fit into the GPUs' memory",
            (unsigned long long)found->evaluated, (unsigned long long)found->memory);
    if (found->host_memory)
        fprintf(out, ", %llu not into the nodes' memory", (unsigned long long)found->host_memory);
    if (found->slower)
        fprintf(out, ", %llu are slower than these even with unlimited memory",
                (unsigned long long)found->slower);
    if (found->bounded)
        fprintf(out, "; %llu numbers of stages are too slow with any other choice",
                (unsigned long long)found->bounded);
    fprintf(out, ".\n");
    print_letters(out);
}

/* ---- places of stages ---- */

/* The items in which the stages of a block differ. */
static void print_own_ways(FILE *out, const struct erg_layout *layout, long first, long end)
{
    fprintf(out, "; recompute");
    for (long stage = first; stage < end; stage++)
        fprintf(out, " %s", erg_recompute_name(erg_layout_recompute(layout, stage)));
    fprintf(out, "; offload");
    for (long stage = first; stage < end; stage++)
        fprintf(out, " %.3f", erg_layout_offload(layout, stage));
}

void erg_layout_print_stages(FILE *out, const char *what, const struct erg_layout_answer *answer,
                             const struct erg_layout_candidate *candidate)
{
    const struct erg_layout_search *search = answer->searches;
    long stage = 0;
    if (!is_mixed(answer))
        return;
    fprintf(out, "\n%s:\n", what);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_block *block = &candidate->blocks[i];
        const long last = stage + block->stages - 1;
        if (last == stage)
            fprintf(out, "  stage %ld", stage);
        else
            fprintf(out, "  stages %ld to %ld", stage, last);
        fprintf(out, " on %ld %s, at most %.1f GiB; layers",
                erg_layout_gpus_of(candidate, block->kind), search->kinds[block->kind].name,
                erg_gib(block->peak_bytes));
        for (long end = stage + block->stages; stage < end; stage++)
            fprintf(out, " %ld",
                    erg_layout_stage_layers(&candidate->layout, search->model->layers, stage));
        if (candidate->layout.stage_recompute)
            print_own_ways(out, &candidate->layout, stage - block->stages, stage);
        putc('\n', out);
    }
}

void erg_layout_print_ranks(FILE *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate)
{
    long rank = 0, group = erg_layout_gpus(&candidate->layout) / candidate->layout.pipeline;
    for (size_t i = 0; i < candidate->block_count; i++) {
        const long ranks = candidate->blocks[i].stages * group;
        fprintf(out, "# Ranks %ld to %ld on %s.\n", rank, rank + ranks - 1,
                answer->searches->kinds[candidate->blocks[i].kind].name);
        rank += ranks;
    }
}

/* ---- over clocks ---- */

/* Some points of a layout's frontier, including its ends and the chosen one. */
static void print_frontier(FILE *out, const struct erg_layout_answer *answer,
                           const struct erg_layout_pick *pick)
{
    enum { ROWS = 8 };
    static const char *const heads[] = {"time s",      "tokens/s",     "J/token", "W a GPU",
                                        "MHz forward", "MHz backward", ""};
    const struct erg_layout_planned *planned = &answer->choice->layouts[pick->option];
    const struct erg_frontier *frontier = &planned->frontier.frontier;
    const int64_t chosen = planned->frontier.points.points[pick->point].recipe;
    const double tokens =
        (double)planned->candidate.batch * (double)planned->candidate.layout.sequence;
    size_t every = (frontier->count + ROWS - 1) / ROWS;
    struct erg_table table = {0};
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < frontier->count; i++) {
        const struct erg_point *point = &frontier->points[i];
        struct erg_layout_clocks clocks;
        bool is_chosen = point->recipe == chosen;
        if (i % every && i + 1 < frontier->count && !is_chosen)
            continue;
        erg_layout_plan_clocks(&clocks, &planned->frontier, (size_t)point->recipe);
        erg_table_add_number(&table, 4, point->time_s);
        erg_table_add(&table, "%.0f", tokens / point->time_s);
        erg_table_add_number(&table, 3, point->energy_j / tokens);
        erg_table_add(&table, "%.0f", point->energy_j / point->time_s / (double)pick->gpus);
        erg_table_add(&table, "%.0f", clocks.mean_mhz[0]);
        erg_table_add(&table, "%.0f", clocks.mean_mhz[1]);
        erg_table_add(&table, "%s", is_chosen ? "the answer" : "");
    }
    fprintf(out, "\n"
                 "The first layout over clocks (mean requested clocks of its instructions):\n"
                 "\n");
    erg_print_table(out, &table, "");
}

/* With several kinds of GPUs, only layouts that may be good enough are evaluated one by one. */
static void print_proof(FILE *out, const struct erg_layout_choice *choice, enum erg_objective goal,
                        bool mixed)
{
    if (mixed)
        fprintf(out,
                "\n"
                "%llu layouts that fit were evaluated one by one and",
                (unsigned long long)choice->fitting);
    else
        fprintf(out,
                "\n"
                "%llu layouts fit;",
                (unsigned long long)choice->fitting);
    fprintf(out, " %zu %s planned over clocks; no other ", choice->count,
            choice->count == 1 ? "was" : "were");
    if (choice->gap > 0)
        fprintf(out, "can be better by more than %.2g %% of %s.\n", 100 * choice->gap,
                goal == ERG_LEAST_ENERGY ? "energy" : "time");
    else
        fprintf(out, "is better.\n");
}

void erg_layout_print_choice(FILE *out, const struct erg_layout_answer *answer, size_t top)
{
    const struct erg_layout_choice *choice = answer->choice;
    const size_t count = choice->pick_count < top ? choice->pick_count : top;
    struct row *list = erg_xcalloc(count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_pick *pick = &choice->picks[i];
        list[i] =
            (struct row){&choice->layouts[pick->option].candidate, pick->time_s, pick->energy_j};
    }
    print_rows(out, answer, list, count);
    free(list);
    print_frontier(out, answer, &choice->picks[0]);
    if (choice->fitting > 1)
        print_proof(out, choice, answer->query->objective, is_mixed(answer));
    print_letters(out);
}
