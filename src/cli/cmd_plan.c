/* ergon plan JOB.yaml: the fastest layouts of a job, and why one is or is not among them. */
#include "cli/cli.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/export.h"
#include "layout/layout_document.h"
#include "layout/memory.h"
#include "observe/table.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    long gpus, batch, sequence, top;
    const char *cluster, *engine, *layout, *why, *output;
    int recompute, export;
    double slack, memory_bytes, host_bytes;
};

static const char *const recomputes[] = {"none", "balanced", "full", NULL};
static const char *const exports[] = {"megatron", "torchtitan", NULL};

#define AT(member) offsetof(struct values, member)
static const struct erg_option options[] = {
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e7,
     .help = "GPUs in all; the cluster's unless given"},
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
    {"memory", 'm', ERG_OPTION_DOUBLE, "BYTES", AT(memory_bytes), 1, 1e18,
     .help = "what a GPU has for tensors; 90 % of its memory unless given"},
    {"host-memory", 'H', ERG_OPTION_DOUBLE, "BYTES", AT(host_bytes), 1, 1e18,
     .help = "what a node has for offloaded activations; the cluster's unless given"},
    {"top", 't', ERG_OPTION_LONG, "K", AT(top), 1, 1000, .default_text = "10",
     .help = "how many are shown"},
    {"layout", 'l', ERG_OPTION_TEXT, "TEXT", AT(layout),
     .help = "only this one, for example t=2,c=2,p=8,l=2: tensor, context, pipeline, layers of a "
             "chunk; b microbatch; v virtual stages in place of l"},
    {"why", 'w', ERG_OPTION_TEXT, "TEXT", AT(why),
     .help = "this one beside the fastest: what makes it slower, or what forbids it"},
    {"export", 'x', ERG_OPTION_CHOICE, "SOFTWARE", AT(export), .choices = exports,
     .help = "print the fastest, or that of --layout, as what this software is started with"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write layouts.json, layouts.html and job.yaml, the job with the fastest layout"},
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
    struct erg_layout_search search;
    struct erg_layout_energy_request energy;
    struct erg_layout_found found;
    struct {
        struct erg_layout_point *items;
        size_t count, capacity;
    } points;
};

/* ---- what was asked ---- */

static int load_machine(struct planning *at, struct erg_error *err)
{
    const struct values *values = at->values;
    const struct erg_cluster *cluster = &at->job->cluster;
    const struct erg_gpu *gpu = at->job->gpu;
    if (values->cluster) {
        if (erg_cluster_load(&at->cluster, values->cluster, err) != 0 ||
            erg_gpu_load(&at->gpu, at->cluster->gpu, err) != 0)
            return -1;
        cluster = at->cluster;
        gpu = at->gpu;
    }
    if (values->engine && erg_engine_load(&at->engine, values->engine, err) != 0)
        return -1;
    if (!at->engine && !at->job->engine)
        return erg_fail(err, ERG_USAGE,
                        "%s does not say what trains it; expected the key 'engine' there or "
                        "--engine NAME, for example megatron-a100 (data/engines)",
                        at->job->path);
    erg_time_machine_init(&at->machine, gpu, cluster);
    at->search.gpus = values->gpus != ERG_NOT_GIVEN ? values->gpus
                                                    : (long)cluster->nodes * cluster->gpus_per_node;
    at->search.host_bytes =
        isnan(values->host_bytes) ? cluster->host_memory_bytes : values->host_bytes;
    at->search.memory_bytes = isnan(values->memory_bytes)
                                  ? ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes
                                  : values->memory_bytes;
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

static int prepare(struct planning *at, const char *path, struct erg_error *err)
{
    const struct values *values = at->values;
    const struct erg_job_overrides overrides = {
        .sequence = values->sequence != ERG_NOT_GIVEN ? values->sequence : 0, .any_layout = true};
    if (erg_job_load(&at->job, path, &overrides, err) != 0 || load_machine(at, err) != 0)
        return -1;
    const struct erg_job *job = at->job;
    struct erg_layout_search *search = &at->search;
    const double batch = values->batch != ERG_NOT_GIVEN
                             ? (double)values->batch
                             : (double)job->data * job->microbatch_size * job->microbatches;
    search->time =
        (struct erg_time_request){job->model, at->engine ? at->engine : job->engine, &at->machine};
    at->energy = (struct erg_layout_energy_request){.time = search->time,
                                                    .gpu = at->gpu ? at->gpu : job->gpu};
    search->sequence = job->sequence;
    search->batch_least = (long)ceil(batch * (1 - values->slack));
    search->batch_most = (long)floor(batch * (1 + values->slack));
    search->remats = values->recompute >= 0
                         ? 1u << values->recompute
                         : 1u << ERG_REMAT_NONE | 1u << ERG_REMAT_BALANCED | 1u << ERG_REMAT_FULL;
    search->offload = search->time.engine->host_link_bandwidth > 0;
    search->unequal = true;
    search->top = (size_t)values->top;
    if (values->output) {
        search->each = note_point;
        search->context = at;
    }
    return 0;
}

static void release(struct planning *at)
{
    erg_layout_found_release(&at->found);
    free(at->points.items);
    erg_engine_free(at->engine);
    erg_gpu_free(at->gpu);
    erg_cluster_free(at->cluster);
    erg_job_free(at->job);
}

/* ---- as text ---- */

static double gib(double bytes)
{
    return bytes / 0x1p30;
}

static double mfu(const struct planning *at, const struct erg_layout_candidate *candidate)
{
    return erg_time_mfu(at->job->model, at->search.sequence,
                        candidate->tokens_per_s / (double)at->search.gpus,
                        at->search.time.engine->peak_flops);
}

static void print_heading(const struct planning *at)
{
    const struct erg_layout_search *search = &at->search;
    printf("%s: %s on %ld %s, ", at->job->name, at->job->model->name, search->gpus,
           at->energy.gpu->name);
    if (search->batch_least == search->batch_most)
        printf("%ld", search->batch_most);
    else
        printf("%ld to %ld", search->batch_least, search->batch_most);
    printf(" sequences of %ld tokens\ntimes of the engine %s; %.1f GiB a GPU\n\n", search->sequence,
           search->time.engine->name, gib(search->memory_bytes));
}

static void add_row(struct erg_table *table, const struct planning *at,
                    const struct erg_layout_candidate *candidate)
{
    struct erg_text name = {0};
    erg_layout_name(&name, &candidate->layout, at->job->model->layers);
    erg_table_add(table, "%s", name.data);
    erg_table_add(table, "%ld", candidate->layout.data);
    erg_table_add(table, "%ld", candidate->batch);
    erg_table_add(table, "%s", erg_remat_name(candidate->layout.remat));
    erg_table_add(table, "%.3f", candidate->layout.offload);
    erg_table_add(table, "%.2f", gib(candidate->peak_bytes));
    erg_table_add(table, "%.4g", candidate->time.total);
    erg_table_add(table, "%.0f", candidate->tokens_per_s);
    erg_table_add(table, "%.1f %%", 100 * mfu(at, candidate));
    struct erg_layout_energy energy;
    erg_layout_energy(&energy, &at->energy, &candidate->layout, 0);
    erg_table_add(table, "%.3g",
                  energy.total_j / (double)candidate->batch / (double)at->search.sequence);
    erg_table_add(table, "%.0f", energy.gpu_power_w);
    erg_text_release(&name);
}

static void add_heads(struct erg_table *table)
{
    static const char *const heads[] = {"layout",  "d",       "batch",  "recompute",
                                        "offload", "GiB",     "time s", "tokens/s",
                                        "MFU",     "J/token", "W a GPU"};
    table->columns = sizeof heads / sizeof *heads;
    for (size_t i = 0; i < table->columns; i++)
        erg_table_add(table, "%s", heads[i]);
}

static void print_table(struct erg_table *table)
{
    struct erg_text text = {0};
    erg_table_text(&text, table, "");
    fputs(text.data, stdout);
    erg_text_release(&text);
    erg_table_release(table);
}

static void print_found(const struct planning *at)
{
    const struct erg_layout_found *found = &at->found;
    struct erg_table table = {0};
    print_heading(at);
    add_heads(&table);
    for (size_t i = 0; i < found->count; i++)
        add_row(&table, at, &found->items[i]);
    print_table(&table);
    printf("\nOf %llu layouts %llu do not fit into the GPUs' memory",
           (unsigned long long)found->evaluated, (unsigned long long)found->memory);
    if (found->host_memory)
        printf(", %llu not into the nodes'", (unsigned long long)found->host_memory);
    if (found->slower)
        printf(", %llu are slower than these with any memory", (unsigned long long)found->slower);
    printf(".\nt tensor, c context, p pipeline, l layers of a chunk, v virtual stages, b "
           "microbatch, d data\n");
}

/* Where the time goes, beside that of another layout unless `other` is NULL. */
static void print_items(const struct erg_layout_candidate *one,
                        const struct erg_layout_candidate *other)
{
    struct erg_table table = {.columns = other ? 5 : 4};
    erg_table_add(&table, "where the time goes");
    erg_table_add(&table, "s");
    erg_table_add(&table, "share");
    if (other)
        erg_table_add(&table, "fastest");
    erg_table_add(&table, "%s", "");
    for (int i = 0; i <= ERG_TIME_ITEMS; i++) {
        const bool sum = i == ERG_TIME_ITEMS;
        const double own = sum ? one->time.total : one->time.items[i];
        const double its = !other ? 0 : sum ? other->time.total : other->time.items[i];
        if (own <= 0 && its <= 0)
            continue;
        erg_table_add(&table, "%s", sum ? "all" : erg_time_item_name((enum erg_time_item)i));
        erg_table_add(&table, "%.4f", own);
        erg_table_add(&table, "%.1f %%", 100 * own / one->time.total);
        if (other)
            erg_table_add(&table, "%.4f", its);
        if (other)
            erg_table_add(&table, "%+.1f %%", 100 * (own - its) / other->time.total);
        else
            erg_table_add(&table, "%s", "");
    }
    putchar('\n');
    print_table(&table);
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
    int status = erg_layout_parse(&layout, text, at->job->model->layers, err) ||
                         erg_layout_evaluate(one, &at->search, &layout, err)
                     ? -1
                     : 0;
    erg_arena_release(&arena);
    return status ? erg_fail_context(err, "%s %s", option, text) : 0;
}

static json_t *document_of(const struct planning *at)
{
    const struct erg_layout_answer answer = {.job = at->job,
                                             .search = &at->search,
                                             .found = &at->found,
                                             .energy = &at->energy,
                                             .points = at->points.items,
                                             .point_count = at->points.count};
    return erg_layout_document(&answer);
}

static int print_json(const struct planning *at)
{
    json_t *document = document_of(at);
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
    if (evaluate(&one, at, "--layout", at->values->layout, err) != 0)
        return -1;
    if (at->values->export >= 0) {
        print_export(at, &one.layout);
    } else if (json) {
        struct erg_layout_found found = {.items = &one, .count = 1, .evaluated = 1, .feasible = 1};
        at->found = found;
        print_json(at);
        at->found = (struct erg_layout_found){0};
    } else {
        struct erg_table table = {0};
        print_heading(at);
        add_heads(&table);
        add_row(&table, at, &one);
        print_table(&table);
        print_items(&one, NULL);
    }
    erg_layout_candidate_release(&one);
    return 0;
}

static int explain(struct planning *at, struct erg_error *err)
{
    struct erg_layout_candidate one = {0};
    at->search.top = 1;
    if (evaluate(&one, at, "--why", at->values->why, err) != 0)
        return -1;
    int status = erg_layout_search(&at->found, &at->search, err);
    if (!status) {
        const struct erg_layout_candidate *best = &at->found.items[0];
        struct erg_table table = {0};
        print_heading(at);
        add_heads(&table);
        add_row(&table, at, &one);
        add_row(&table, at, best);
        print_table(&table);
        print_items(&one, best);
        printf("\n%s: %.1f %% slower than the fastest.\n", at->values->why,
               100 * (one.time.total / best->time.total - 1));
    }
    erg_layout_candidate_release(&one);
    return status;
}

/* ---- all of them ---- */

static int write_files(const struct planning *at, struct erg_error *err)
{
    const char *folder = at->values->output;
    struct erg_arena arena = {0};
    struct erg_text job = {0};
    json_t *document = document_of(at);
    erg_layout_job(&job, at->job, at->cluster, &at->found.items[0]);
    int status = erg_dir_make(folder, err) ||
                         erg_json_write(erg_arena_printf(&arena, "%s/layouts.json", folder),
                                        document, err) ||
                         erg_report_layouts_write(
                             erg_arena_printf(&arena, "%s/layouts.html", folder), document, err) ||
                         erg_file_write(erg_arena_printf(&arena, "%s/job.yaml", folder), job.data,
                                        job.count, err)
                     ? -1
                     : 0;
    json_decref(document);
    erg_text_release(&job);
    erg_arena_release(&arena);
    return status;
}

static int find(struct planning *at, bool json, struct erg_error *err)
{
    const char *folder = at->values->output;
    if (erg_layout_search(&at->found, &at->search, err) != 0 ||
        (folder && write_files(at, err) != 0))
        return -1;
    if (at->values->export >= 0) {
        print_export(at, &at->found.items[0].layout);
        return 0;
    }
    if (json)
        return print_json(at);
    print_found(at);
    if (folder)
        printf("\nlayouts %s/layouts.json, page %s/layouts.html, the fastest as a job "
               "%s/job.yaml\n",
               folder, folder, folder);
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
    if (values->why && (json || values->export >= 0))
        return erg_fail(err, ERG_USAGE,
                        "--why is text for people; --json and --export go with --layout");
    if (one && values->output)
        return erg_fail(err, ERG_USAGE,
                        "--output writes all layouts; it goes neither with --layout nor with "
                        "--why");
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct planning at = {.values = call->values};
    const bool json = call->common.json;
    int status = check_options(at.values, json, err);
    if (!status)
        status = prepare(&at, call->arguments[0], err);
    if (!status)
        status = at.values->layout ? show_one(&at, json, err)
                 : at.values->why  ? explain(&at, err)
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
        "recomputation and the least offloading that fits, and shows the fastest layouts.\n"
        "Of the job's own layout only the batch counts: its microbatches times their size\n"
        "times its copies.",
    .examples = "  ergon plan examples/kwai/llama-65b.yaml\n"
                "  ergon plan examples/kwai/llama-65b.yaml --gpus 64 --why t=8,p=4,l=2\n",
    .run = run,
};
