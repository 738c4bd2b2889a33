#include "cli/plan_mixed.h"

#include "cli/plan_items.h"
#include "cli/plan_mixing.h"
#include "cli/plan_print.h"

#include "base/memory.h"
#include "layout/memory/stage_memory.h"

#include <stdio.h>
#include <stdlib.h>

/* Layouts that a page shows. */
enum { SHOWN = 300 };

/* ---- what was found ---- */

static struct erg_layout_answer answer_of(const struct plan_mixing *mixing,
                                          const struct erg_layout_found *found)
{
    const struct planning *at = mixing->at;
    const bool clocks = erg_plan_over_clocks(at);
    return (struct erg_layout_answer){.job = at->job,
                                      .searches = at->searches,
                                      .search_count = at->search_count,
                                      .energy = &at->energy,
                                      .found = found && found->count ? found : NULL,
                                      .choice = clocks ? &at->choice : NULL,
                                      .query = clocks ? &at->query : NULL,
                                      .top = (size_t)at->values->top,
                                      .counts = at->counts,
                                      .mixed = mixing->searches,
                                      .points = at->points.items,
                                      .point_count = at->points.count};
}

/* What the stages of a block do each for itself. */
static void print_own_ways(const struct erg_layout *layout, long first, long end)
{
    printf("; recompute");
    for (long stage = first; stage < end; stage++)
        printf(" %s", erg_recompute_name(erg_layout_recompute(layout, stage)));
    printf("; offload");
    for (long stage = first; stage < end; stage++)
        printf(" %.3f", erg_layout_offload(layout, stage));
}

/* Which stages lie where, and how many layers each has. */
static void print_stages(const char *what, const struct plan_mixing *mixing,
                         const struct erg_layout_candidate *candidate)
{
    long stage = 0, layers = mixing->at->job->model->layers;
    printf("\n%s:\n", what);
    for (size_t i = 0; i < candidate->block_count; i++) {
        const struct erg_layout_block *block = &candidate->blocks[i];
        const long last = stage + block->stages - 1;
        if (last == stage)
            printf("  stage %ld", stage);
        else
            printf("  stages %ld to %ld", stage, last);
        printf(" on %ld %s, at most %.1f GiB; layers", erg_mixed_gpus_of(candidate, block->kind),
               mixing->kinds[block->kind].name, block->peak_bytes / 0x1p30);
        for (long end = stage + block->stages; stage < end; stage++)
            printf(" %ld", erg_layout_stage_layers(&candidate->layout, layers, stage));
        if (candidate->layout.stage_recompute)
            print_own_ways(&candidate->layout, stage - block->stages, stage);
        putchar('\n');
    }
}

/* Every layout that was found, for the picture. */
static void note_points(struct plan_mixing *mixing)
{
    for (size_t i = 0; i < mixing->found.count; i++) {
        const struct erg_layout_candidate *candidate = &mixing->found.items[i];
        struct erg_layout_energy energy;
        erg_mixed_energy(&energy, mixing->searches, &mixing->found.items[i]);
        ERG_PUSH(&mixing->at->points, items,
                 (struct erg_layout_point){(float)candidate->time.total, (float)energy.total_j,
                                           (float)candidate->peak_bytes});
    }
}

static void print_text(const struct plan_mixing *mixing, const struct erg_layout_answer *answer)
{
    const struct erg_layout_found *found = &mixing->found;
    const struct erg_layout_choice *choice = answer->choice;
    const struct erg_layout_candidate *first =
        choice ? &choice->layouts[choice->picks[0].option].candidate : &found->items[0];
    erg_plan_print_heading(answer);
    if (answer->counts)
        erg_plan_print_counts(answer);
    if (answer->choice) {
        erg_plan_print_choice(answer, answer->top);
    } else {
        const struct erg_layout_candidate **rows = erg_xcalloc(found->count, sizeof *rows);
        for (size_t i = 0; i < found->count; i++)
            rows[i] = &found->items[i];
        erg_plan_print_rows(answer, rows, found->count);
        free(rows);
    }
    print_stages(answer->choice ? "The answer" : "The fastest", mixing, first);
    if (mixing->searches->only.pipeline) {
        erg_plan_print_items(answer, first, NULL);
        return;
    }
    if (!answer->found)
        return;
    printf("\nOf %llu layouts %llu are slower than these or do not fit as fast; %llu numbers of "
           "stages are too slow whatever else is chosen.\n",
           (unsigned long long)found->evaluated,
           (unsigned long long)(found->slower + found->memory), (unsigned long long)found->bounded);
}

/* ---- at the highest clocks ---- */

static int search_fastest(struct erg_layout_found *found, const struct erg_mixed_search *search,
                          struct erg_error *err)
{
    struct erg_mixed_search more = *search;
    more.top = erg_plan_searched(search->top);
    if (erg_mixed_search(found, &more, err) != 0)
        return -1;
    erg_layout_found_shorten(found, search->top);
    return 0;
}

/* ---- one layout ---- */

/* Whether some stages of these degrees are layouts of the model, and GPUs enough for them. */
static int check_asked(const struct plan_mixing *mixing, const struct erg_layout *asked,
                       struct erg_error *err)
{
    const struct erg_model *model = mixing->at->job->model;
    const long group = asked->tensor * asked->context;
    long gpus = 0, node_gpus = 0;
    struct erg_layout layout = *asked;
    for (size_t k = 0; k < mixing->kind_count; k++) {
        const struct erg_mixed_kind *kind = &mixing->kinds[k];
        gpus += kind->gpus;
        node_gpus = kind->machine.node_gpus > node_gpus ? kind->machine.node_gpus : node_gpus;
    }
    if (group > node_gpus)
        return erg_layout_check_group(asked, group, node_gpus, err);
    if (group * asked->pipeline > gpus)
        return erg_fail(err, ERG_INFEASIBLE,
                        "tensor %ld x context %ld x pipeline %ld are %ld GPUs, and there are %ld",
                        asked->tensor, asked->context, asked->pipeline, group * asked->pipeline,
                        gpus);
    layout.data = 1;
    layout.microbatches = asked->pipeline;
    layout.sequence = mixing->at->searches->sequence;
    layout.offload = 0;
    layout.stage_offload = NULL;
    if (asked->pipeline * asked->virtual_stages <= model->layers)
        layout.pipeline = layout.virtual_stages = 1; /* layers are split */
    return erg_layout_check(&layout, model, err);
}

/* The degrees that `text` says, with the job's recomputation unless the command line named one. */
static int ask_for(struct plan_mixing *mixing, const char *option, const char *text,
                   struct erg_error *err)
{
    const struct erg_job *job = mixing->at->job;
    struct erg_layout layout = job->layout;
    if (mixing->searches->recomputes == ERG_RECOMPUTE_ALL)
        mixing->searches->recomputes = 1u << layout.recompute;
    int status = erg_layout_parse(&layout, text, job->model->layers, err);
    if (!status && (status = check_asked(mixing, &layout, err)) != 0)
        err->status = ERG_INFEASIBLE; /* as on one kind */
    mixing->searches->top = 1;
    mixing->searches->only = (struct erg_mixed_degrees){.tensor = layout.tensor,
                                                        .context = layout.context,
                                                        .pipeline = layout.pipeline,
                                                        .virtual_stages = layout.virtual_stages,
                                                        .microbatch = layout.microbatch};
    if (!status)
        status = search_fastest(&mixing->found, mixing->searches, err);
    return status ? erg_fail_context(err, "%s %s", option, text) : 0;
}

/* Beside the fastest of all. */
static int explain(struct plan_mixing *mixing, const char *text, struct erg_error *err)
{
    struct erg_mixed_search all = *mixing->searches;
    struct erg_layout_found best;
    if (ask_for(mixing, "--why", text, err) != 0)
        return -1;
    all.top = 1;
    if (search_fastest(&best, &all, err) != 0)
        return -1;
    const struct erg_layout_candidate *one = &mixing->found.items[0];
    const struct erg_layout_candidate *fastest = &best.items[0];
    const struct erg_layout_candidate *const rows[] = {one, fastest};
    const struct erg_layout_answer answer = answer_of(mixing, NULL);
    erg_plan_print_heading(&answer);
    erg_plan_print_rows(&answer, rows, 2);
    print_stages("This one", mixing, one);
    print_stages("The fastest", mixing, fastest);
    erg_plan_print_items(&answer, one, fastest);
    printf("\n%s: %.1f %% slower than the fastest.\n", text,
           100 * (one->time.total / fastest->time.total - 1));
    erg_layout_found_release(&best);
    return 0;
}

/* For software that knows one kind of GPU: which ranks are which. */
static void print_ranks(const struct plan_mixing *mixing, const struct erg_layout_candidate *best)
{
    long rank = 0, group = erg_layout_gpus(&best->layout) / best->layout.pipeline;
    for (size_t i = 0; i < best->block_count; i++) {
        long ranks = best->blocks[i].stages * group;
        printf("# Ranks %ld to %ld on %s.\n", rank, rank + ranks - 1,
               mixing->kinds[best->blocks[i].kind].name);
        rank += ranks;
    }
}

/* ---- all of it ---- */

/* At the highest clocks: what is shown without any others, and the picture of a page. */
static int find_fastest(struct plan_mixing *mixing, struct erg_error *err)
{
    const struct plan_values *values = mixing->at->values;
    if (values->layout)
        return ask_for(mixing, "--layout", values->layout, err);
    if (mixing->at->search_count > 1 || (erg_plan_over_clocks(mixing->at) && !values->output))
        return 0;
    struct erg_mixed_search search = *mixing->searches;
    if (values->output && search.top < SHOWN)
        search.top = SHOWN;
    return search_fastest(&mixing->found, &search, err);
}

/* The layout that was asked for alone, or the best of all. */
static int choose(struct plan_mixing *mixing, struct erg_error *err)
{
    struct planning *at = mixing->at;
    if (!at->values->layout)
        return erg_plan_choose(at, err);
    const struct erg_layout_choice_request request = erg_plan_choice_request(at);
    struct erg_layout_candidate one = mixing->found.items[0];
    mixing->found.count = 0; /* the choice owns it */
    return erg_layout_choose_point(&at->choice, &request, &one, err);
}

static int find(struct plan_mixing *mixing, struct erg_error *err)
{
    if (find_fastest(mixing, err) != 0)
        return -1;
    if (mixing->at->values->output)
        note_points(mixing);
    return erg_plan_over_clocks(mixing->at) ? choose(mixing, err) : 0;
}

static int answer(struct plan_mixing *mixing, bool json, struct erg_error *err)
{
    const struct planning *at = mixing->at;
    const struct plan_values *values = at->values;
    if (values->why)
        return explain(mixing, values->why, err);
    if (find(mixing, err) != 0)
        return -1;
    const struct erg_layout_answer answer = answer_of(mixing, &mixing->found);
    int status = values->output ? erg_plan_write_files(at, &answer, err) : 0;
    if (!status && values->export >= 0) {
        const struct erg_layout_candidate *best =
            answer.choice ? &at->choice.layouts[at->choice.picks[0].option].candidate
                          : &mixing->found.items[0];
        if (values->export != PLAN_EXPORT_JOB)
            print_ranks(mixing, best);
        erg_plan_print_export(at, &answer, best);
    } else if (!status && json) {
        status = erg_plan_print_json(&answer);
    } else if (!status) {
        print_text(mixing, &answer);
    }
    if (!status && !json && values->export < 0)
        erg_plan_print_files(values->output);
    return status;
}

int erg_plan_mixed(struct planning *at, const struct erg_cluster *cluster, bool json,
                   struct erg_error *err)
{
    struct plan_mixing mixing;
    int status = erg_plan_mixing_init(&mixing, at, cluster, err);
    if (!status && (status = answer(&mixing, json, err)) != 0 && json) {
        const struct erg_layout_answer refused = answer_of(&mixing, NULL);
        erg_plan_print_refusal(&refused, NULL, err);
    }
    erg_plan_mixing_release(&mixing);
    return status;
}
