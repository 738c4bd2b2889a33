/* ergon plan JOB.yaml: the best layouts of a job, and why one is or is not among them. */
#include "cli/cli.h"
#include "cli/plan_change.h"
#include "cli/plan_gpus.h"
#include "cli/plan_mixed.h"
#include "cli/plan_print.h"
#include "cli/plan_profile.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/export.h"
#include "layout/memory.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    long batch, sequence, top;
    const char *gpus, *cluster, *engine, *layout, *why, *output;
    int recompute, export, objective;
    double slack, memory_bytes, host_bytes, deadline_s, energy_j, power_w;
};

static const char *const recomputes[] = {"none", "norms", "activation", "balanced", "full", NULL};
static const char *const exports[] = {"megatron", "torchtitan", "profile", NULL};
enum { EXPORT_PROFILE = 2 };
static const char *const objectives[] = {"fastest", "least_energy", NULL};
enum { LEAST_ENERGY = 1 };

#define AT(member) offsetof(struct values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_TEXT, "N|A-B|any", AT(gpus),
     .help = "GPUs in all; several numbers and ranges of whole nodes, with commas, ask how many to "
             "use; any: up to the cluster's, which are used unless given"},
    {"cluster", 'c', ERG_OPTION_FILE, "FILE", AT(cluster),
     .help = "another cluster than the job's"},
    {"batch", 'b', ERG_OPTION_LONG, "B", AT(batch), 1, 1e9,
     .help = "sequences of an iteration; the job's unless given"},
    {"batch-slack", 'B', ERG_OPTION_DOUBLE, "RATIO", AT(slack), 0, 0.5, .default_text = "0",
     .help = "how far a layout's batch may be from that"},
    {"sequence", 's', ERG_OPTION_LONG, "S", AT(sequence), 1, 1e9, .help = "tokens of a sequence"},
    {"engine", 'e', ERG_OPTION_TEXT, "NAME", AT(engine),
     .help = "what trains: a name of the catalogue (data/engines) or a file; the job's unless "
             "given"},
    {"recompute", 'r', ERG_OPTION_CHOICE, "WHAT", AT(recompute), .choices = recomputes,
     .help = "only layouts that compute this again; all are tried unless given"},
    {"objective", 'O', ERG_OPTION_CHOICE, "WHAT", AT(objective), .choices = objectives,
     .help = "what is best, over the GPUs' clocks too; with --deadline least_energy unless given, "
             "else fastest"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-6, 1e9,
     .help = "of an iteration"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(energy_j), 1e-6, 1e18,
     .help = "of an iteration, all GPUs together"},
    {"power-budget", 'P', ERG_OPTION_DOUBLE, "WATTS", AT(power_w), 1e-6, 1e15,
     .help = "mean over an iteration, all GPUs together"},
    {"memory-budget", 'm', ERG_OPTION_DOUBLE, "BYTES", AT(memory_bytes), 1, 1e18,
     .help = "what a GPU has for tensors; 90 % of its memory unless given"},
    {"host-memory", 'H', ERG_OPTION_DOUBLE, "BYTES", AT(host_bytes), 1, 1e18,
     .help = "what a node has for offloaded activations; the cluster's unless given"},
    {"top", 't', ERG_OPTION_LONG, "K", AT(top), 1, 1000, .default_text = "10",
     .help = "how many are shown"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "only this one, for example t=2,c=2,p=8,l=2: tensor, context, pipeline, layers of a "
             "chunk; b microbatch; v virtual stages in place of l"},
    {"why", 'w', ERG_OPTION_TEXT, "TEXT", AT(why),
     .help = "this one beside the best: what makes it slower, or what forbids it"},
    {"export", 'x', ERG_OPTION_CHOICE, "SOFTWARE", AT(export), .choices = exports,
     .help = "print the best, or that of --layout, as what this software is started with; profile: "
             "frontiers for every number of GPUs, for ergon simulate"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write layouts.json, layouts.html, job.yaml, the job with the best layout, and "
             "clocks.json, its clocks"},
    {0},
};

/* Everything of one call. */
struct planning {
    const struct values *values;
    struct erg_job *job;
    struct erg_cluster *cluster; /* not NULL where another one was given */
    struct erg_gpu *gpu;         /* likewise */
    struct erg_engine *engine;   /* likewise */
    struct erg_time_machine machine;
    struct erg_layout_search *searches; /* by GPUs, which are all that differs */
    size_t search_count;
    struct erg_layout_energy_request energy;
    struct erg_layout_query query;
    struct erg_layout_found found;
    struct erg_layout_choice choice;
    struct erg_layout_count *counts; /* [search_count]; NULL for one number of GPUs */
    struct {
        struct erg_layout_point *items;
        size_t count, capacity;
    } points;
};

/* ---- what was asked ---- */

static int load_machine(struct planning *at, struct erg_error *err)
{
    const struct values *values = at->values;
    if (values->cluster && (erg_cluster_load(&at->cluster, values->cluster, err) != 0 ||
                            erg_gpu_load(&at->gpu, at->cluster->gpu, err) != 0))
        return -1;
    if (values->engine && erg_engine_load(&at->engine, values->engine, err) != 0)
        return -1;
    if (!at->engine && !at->job->engine)
        return erg_fail(err, ERG_USAGE,
                        "%s does not say what trains it; expected the key 'engine' there or "
                        "--engine NAME, for example megatron-a100 (data/engines)",
                        at->job->path);
    return 0;
}

static void note_point(void *context, const struct erg_layout_candidate *candidate)
{
    enum { MOST = 20000 }; /* as many as a page can draw */
    struct planning *at = context;
    struct erg_layout_energy energy;
    if (at->points.count >= MOST)
        return;
    erg_layout_energy(&energy, &at->energy, &candidate->layout, 0);
    ERG_PUSH(&at->points, items,
             (struct erg_layout_point){(float)candidate->time.total, (float)energy.total_j,
                                       (float)candidate->peak_bytes});
}

static struct erg_layout_search search_for(struct planning *at, const struct erg_cluster *cluster)
{
    const struct values *values = at->values;
    const struct erg_job *job = at->job;
    const double batch = values->batch != ERG_NOT_GIVEN
                             ? (double)values->batch
                             : (double)job->data * job->microbatch_size * job->microbatches;
    return (struct erg_layout_search){
        .time = at->energy.time,
        .sequence = job->sequence,
        .batch_least = (long)ceil(batch * (1 - values->slack)),
        .batch_most = (long)floor(batch * (1 + values->slack)),
        .memory_bytes = isnan(values->memory_bytes)
                            ? ERG_MEMORY_USABLE_SHARE * at->energy.gpu->memory_bytes
                            : values->memory_bytes,
        .host_bytes = isnan(values->host_bytes) ? cluster->host_memory_bytes : values->host_bytes,
        .remats = values->recompute >= 0 ? 1u << values->recompute : ERG_REMAT_ALL,
        .offload = at->energy.time.engine->host_link_bandwidth > 0,
        .unequal = true,
        .top = (size_t)values->top,
        .each = values->output ? note_point : NULL,
        .context = at,
    };
}

static int prepare(struct planning *at, const char *path, struct erg_error *err)
{
    const struct values *values = at->values;
    const struct erg_job_overrides overrides = {
        .sequence = values->sequence != ERG_NOT_GIVEN ? values->sequence : 0, .any_layout = true};
    if (erg_job_load(&at->job, path, &overrides, err) != 0 || load_machine(at, err) != 0)
        return -1;
    const struct erg_job *job = at->job;
    const struct erg_cluster *cluster = at->cluster ? at->cluster : &job->cluster;
    struct plan_gpus gpus = {0};
    if (!values->gpus)
        ERG_PUSH(&gpus, items, (long)cluster->nodes * cluster->gpus_per_node);
    else if (erg_plan_list_gpus(&gpus, values->gpus, cluster, err) != 0) {
        free(gpus.items);
        return -1;
    }
    at->energy.gpu = at->gpu ? at->gpu : job->gpu;
    erg_time_machine_init(&at->machine, at->energy.gpu, cluster);
    at->energy.time =
        (struct erg_time_request){job->model, at->engine ? at->engine : job->engine, &at->machine};
    at->search_count = gpus.count;
    at->searches = erg_xcalloc(gpus.count, sizeof *at->searches);
    for (size_t i = 0; i < gpus.count; i++) {
        at->searches[i] = search_for(at, cluster);
        at->searches[i].gpus = gpus.items[i];
    }
    free(gpus.items);
    if (at->searches[at->search_count - 1].gpus > cluster->gpus_per_node &&
        !(at->machine.network_bandwidth > 0))
        return erg_fail(err, ERG_FAILED,
                        "%ld GPUs are more than a node of %d, and the cluster does not say what "
                        "joins its nodes; expected its key inter_node_bandwidth_gb_s",
                        at->searches[at->search_count - 1].gpus, cluster->gpus_per_node);
    at->query = (struct erg_layout_query){
        .least_energy =
            values->objective >= 0 ? values->objective == LEAST_ENERGY : !isnan(values->deadline_s),
        .time_s = isnan(values->deadline_s) ? 0 : values->deadline_s,
        .energy_j = isnan(values->energy_j) ? 0 : values->energy_j,
        .power_w = isnan(values->power_w) ? 0 : values->power_w,
    };
    return 0;
}

/* Whether the answer is one over clocks. */
static bool over_clocks(const struct planning *at)
{
    const struct values *values = at->values;
    return values->objective >= 0 || at->query.time_s > 0 || at->query.energy_j > 0 ||
           at->query.power_w > 0 || at->search_count > 1 || values->output;
}

static void release(struct planning *at)
{
    if (at->counts)
        erg_layout_counts_release(at->counts, at->search_count);
    free(at->counts);
    erg_layout_choice_release(&at->choice);
    erg_layout_found_release(&at->found);
    free(at->points.items);
    free(at->searches);
    erg_engine_free(at->engine);
    erg_gpu_free(at->gpu);
    erg_cluster_free(at->cluster);
    erg_job_free(at->job);
}

static struct erg_layout_answer answer_of(const struct planning *at)
{
    const bool clocks = over_clocks(at);
    return (struct erg_layout_answer){.job = at->job,
                                      .searches = at->searches,
                                      .search_count = at->search_count,
                                      .energy = &at->energy,
                                      .found = at->found.evaluated ? &at->found : NULL,
                                      .choice = clocks ? &at->choice : NULL,
                                      .query = clocks ? &at->query : NULL,
                                      .counts = at->counts,
                                      .top = (size_t)at->values->top,
                                      .points = at->points.items,
                                      .point_count = at->points.count};
}

static struct erg_layout_choice_request choice_request(const struct planning *at)
{
    return (struct erg_layout_choice_request){.searches = at->searches,
                                              .search_count = at->search_count,
                                              .energy = &at->energy,
                                              .query = at->query,
                                              .whole_union =
                                                  at->values->output || at->search_count > 1,
                                              .most = 24,
                                              .tolerance = 0.003};
}

/* ---- one layout ---- */

/* What `text` says, with the job's recomputation unless the command line names another. */
static int evaluate(struct erg_layout_candidate *one, const struct planning *at, const char *option,
                    const char *text, struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_layout layout, job;
    erg_layout_of_job(&job, at->job, &arena);
    layout = (struct erg_layout){
        .microbatch = 1, .sequence = job.sequence, .virtual_stages = 1, .remat = job.remat};
    if (at->values->recompute >= 0)
        layout.remat = (enum erg_remat)at->values->recompute;
    int status = erg_layout_parse(&layout, text, at->job->model->layers, err);
    if (!status && erg_layout_evaluate(one, at->searches, &layout, err) != 0)
        status = erg_plan_say_change(at->searches, &layout, err);
    erg_arena_release(&arena);
    return status ? erg_fail_context(err, "%s %s", option, text) : 0;
}

static int print_json(const struct planning *at)
{
    const struct erg_layout_answer answer = answer_of(at);
    json_t *document = erg_layout_document(&answer);
    char *text = erg_json_text(document);
    puts(text);
    free(text);
    json_decref(document);
    return 0;
}

static void print_export(const struct planning *at, const struct erg_layout *layout)
{
    struct erg_text text = {0};
    erg_layout_export(&text, (enum erg_export_format)at->values->export, at->job->model, layout);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

static int show_one(struct planning *at, bool json, struct erg_error *err)
{
    struct erg_layout_candidate one = {0};
    const struct erg_layout_candidate *row = &one;
    if (evaluate(&one, at, "--layout", at->values->layout, err) != 0)
        return -1;
    if (at->values->export >= 0) {
        print_export(at, &one.layout);
        erg_layout_candidate_release(&one);
        return 0;
    }
    if (over_clocks(at)) { /* the choice owns the layout then */
        const struct erg_layout_choice_request request = choice_request(at);
        if (erg_layout_choose_point(&at->choice, &request, &one, err) != 0)
            return -1;
        row = &at->choice.layouts[0].candidate;
    } else {
        at->found = (struct erg_layout_found){.items = erg_xcalloc(1, sizeof *at->found.items),
                                              .count = 1,
                                              .evaluated = 1,
                                              .feasible = 1};
        at->found.items[0] = one;
        row = at->found.items;
    }
    if (json)
        return print_json(at);
    const struct erg_layout_answer answer = answer_of(at);
    erg_plan_print_heading(&answer);
    if (answer.choice)
        erg_plan_print_choice(&answer, 1);
    else
        erg_plan_print_rows(&answer, &row, 1);
    erg_plan_print_items(row, NULL);
    return 0;
}

static int explain(struct planning *at, struct erg_error *err)
{
    struct erg_layout_candidate one = {0};
    at->searches->top = 1;
    if (evaluate(&one, at, "--why", at->values->why, err) != 0)
        return -1;
    int status = erg_layout_search(&at->found, at->searches, err);
    if (!status) {
        const struct erg_layout_candidate *best = &at->found.items[0];
        const struct erg_layout_candidate *const rows[] = {&one, best};
        const struct erg_layout_answer answer = answer_of(at);
        erg_plan_print_heading(&answer);
        erg_plan_print_rows(&answer, rows, 2);
        erg_plan_print_items(&one, best);
        printf("\n%s: %.1f %% slower than the fastest.\n", at->values->why,
               100 * (one.time.total / best->time.total - 1));
    }
    erg_layout_candidate_release(&one);
    return status;
}

/* ---- all of them ---- */

/* The best layout. */
static const struct erg_layout_candidate *best(const struct planning *at)
{
    return over_clocks(at) ? &at->choice.layouts[at->choice.picks[0].option].candidate
                           : &at->found.items[0];
}

/* What each instruction of the answer runs at. */
static int write_clocks(const struct planning *at, const char *path, struct erg_error *err)
{
    const struct erg_layout_pick *pick = &at->choice.picks[0];
    const struct erg_layout_frontier *frontier = &at->choice.layouts[pick->option].frontier;
    return erg_plan_write(path, &frontier->iteration, frontier->tables,
                          (size_t)frontier->points.points[pick->point].recipe, err);
}

static int write_files(const struct planning *at, struct erg_error *err)
{
    const char *folder = at->values->output;
    const struct erg_layout_answer answer = answer_of(at);
    struct erg_arena arena = {0};
    struct erg_text job = {0};
    json_t *document = erg_layout_document(&answer);
    erg_layout_job(&job, at->job, at->cluster, best(at));
    int status = erg_dir_make(folder, err) ||
                         erg_json_write(erg_arena_printf(&arena, "%s/layouts.json", folder),
                                        document, err) ||
                         erg_report_layouts_write(
                             erg_arena_printf(&arena, "%s/layouts.html", folder), document, err) ||
                         erg_file_write(erg_arena_printf(&arena, "%s/job.yaml", folder), job.data,
                                        job.count, err) ||
                         write_clocks(at, erg_arena_printf(&arena, "%s/clocks.json", folder), err)
                     ? -1
                     : 0;
    json_decref(document);
    erg_text_release(&job);
    erg_arena_release(&arena);
    return status;
}

static int choose(struct planning *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = choice_request(at);
    if (erg_layout_choose(&at->choice, &request, err) != 0) {
        bool none_fits = at->choice.fitting == 0 && at->search_count == 1;
        return none_fits ? erg_plan_say_needed(at->searches, err) : -1;
    }
    if (at->search_count == 1)
        return 0;
    at->counts = erg_xcalloc(at->search_count, sizeof *at->counts);
    return erg_layout_counts_init(at->counts, &request, &at->choice, err);
}

static void print_all(const struct planning *at)
{
    const struct erg_layout_answer answer = answer_of(at);
    erg_plan_print_heading(&answer);
    if (answer.counts)
        erg_plan_print_counts(&answer);
    if (answer.choice) {
        erg_plan_print_choice(&answer, answer.top);
    } else {
        const struct erg_layout_candidate **rows = erg_xcalloc(at->found.count, sizeof *rows);
        for (size_t i = 0; i < at->found.count; i++)
            rows[i] = &at->found.items[i];
        erg_plan_print_rows(&answer, rows, at->found.count);
        erg_plan_print_tried(&at->found);
        free(rows);
    }
}

/* For ergon simulate, in place of an answer. */
static int print_profile(const struct planning *at, struct erg_error *err)
{
    const struct erg_layout_choice_request request = choice_request(at);
    const struct erg_cluster *cluster = at->cluster ? at->cluster : &at->job->cluster;
    struct erg_text text = {0};
    int status =
        erg_plan_profile(&text, &request, at->energy.gpu->name, cluster->gpus_per_node, err);
    if (!status)
        fputs(text.data, stdout);
    erg_text_release(&text);
    return status;
}

static int find(struct planning *at, bool json, struct erg_error *err)
{
    const char *folder = at->values->output;
    const bool clocks = over_clocks(at);
    if (at->search_count == 1 && (!clocks || folder) &&
        erg_layout_search(&at->found, at->searches, err) != 0)
        return erg_plan_say_needed(at->searches, err);
    if ((clocks && choose(at, err) != 0) || (folder && write_files(at, err) != 0))
        return -1;
    if (at->values->export >= 0) {
        print_export(at, &best(at)->layout);
        return 0;
    }
    if (json)
        return print_json(at);
    print_all(at);
    if (folder)
        printf("\nlayouts %s/layouts.json, page %s/layouts.html, the best as a job %s/job.yaml, "
               "its clocks %s/clocks.json\n",
               folder, folder, folder, folder);
    return 0;
}

/* Options that would have no effect beside others. */
static int check_options(const struct values *values, bool json, struct erg_error *err)
{
    const bool one = values->layout || values->why;
    if (values->layout && values->why)
        return erg_fail(err, ERG_USAGE, "--layout and --why were both given; expected one of them");
    if (json && values->export >= 0)
        return erg_fail(err, ERG_USAGE,
                        "--json and --export were both given; expected one of them");
    if (values->export == EXPORT_PROFILE &&
        (one || values->output || values->slack > 0 || values->objective >= 0 ||
         !isnan(values->deadline_s) || !isnan(values->energy_j) || !isnan(values->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--export profile prints whole frontiers of one batch; --layout, --why, "
                        "--output, --batch-slack, objectives and bounds do not go with it");
    if (values->why && (json || values->export >= 0))
        return erg_fail(err, ERG_USAGE,
                        "--why is text for people; --json and --export go with --layout");
    if (values->why && (values->objective >= 0 || !isnan(values->deadline_s) ||
                        !isnan(values->energy_j) || !isnan(values->power_w)))
        return erg_fail(err, ERG_USAGE,
                        "--why compares layouts at the highest clock; objectives and budgets go "
                        "with --layout");
    if (one && values->output)
        return erg_fail(err, ERG_USAGE,
                        "--output writes all layouts; it goes neither with --layout nor with "
                        "--why");
    return 0;
}

/* On nodes of several kinds. */
static int find_mixed(struct planning *at, const struct erg_cluster *cluster, bool json,
                      struct erg_error *err)
{
    const struct values *values = at->values;
    const bool bounds = !isnan(values->deadline_s) || !isnan(values->energy_j) ||
                        !isnan(values->power_w) || values->objective == LEAST_ENERGY;
    if (values->gpus || values->export == EXPORT_PROFILE || values->output ||
        !isnan(values->memory_bytes) || !isnan(values->host_bytes) || bounds)
        return erg_fail(err, ERG_USAGE,
                        "the cluster has nodes of several kinds; --gpus, --export profile, "
                        "--output, --memory-budget, --host-memory, objectives and bounds are for "
                        "those of one");
    const struct plan_mixed plan = {
        .job = at->job,
        .cluster = cluster,
        .gpu = at->energy.gpu,
        .search = at->searches,
        .layout = values->layout,
        .why = values->why,
        .json = json,
        .export = values->export,
    };
    return erg_plan_mixed(&plan, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct planning at = {.values = call->values};
    const bool json = call->common.json;
    int status = check_options(at.values, json, err);
    if (!status)
        status = prepare(&at, call->arguments[0], err);
    const struct erg_cluster *cluster = at.cluster ? at.cluster : at.job ? &at.job->cluster : NULL;
    if (!status && at.search_count > 1 && (at.values->layout || at.values->why))
        status = erg_fail(err, ERG_USAGE,
                          "--gpus gives %zu numbers of GPUs; --layout and --why need one",
                          at.search_count);
    if (!status && cluster->more_count > 0)
        status = find_mixed(&at, cluster, json, err);
    else if (!status)
        status = at.values->layout                     ? show_one(&at, json, err)
                 : at.values->why                      ? explain(&at, err)
                 : at.values->export == EXPORT_PROFILE ? print_profile(&at, err)
                                                       : find(&at, json, err);
    release(&at);
    return status;
}

const struct erg_command erg_cmd_plan = {
    .name = "plan",
    .summary = "finds how to spread a job over GPUs",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct values),
    .options = options,
    .details =
        "Tries every tensor, context, pipeline and data degree, virtual stages, microbatch,\n"
        "recomputation and the least offloading that fits, and shows the best layouts. With an\n"
        "objective, a bound or several numbers of GPUs the clock of every instruction is\n"
        "chosen, too. Of the job's own layout only the batch counts: its microbatches times their "
        "size\n"
        "times its copies.",
    .examples = "  ergon plan examples/kwai/llama-65b.yaml\n"
                "  ergon plan examples/kwai/llama-65b.yaml --gpus 64 --why t=8,p=4,l=2\n"
                "  ergon plan examples/kwai/llama-65b.yaml --deadline 9.5\n"
                "  ergon plan examples/kwai/llama2-7b.yaml --gpus any\n",
    .run = run,
};
