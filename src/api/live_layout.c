/* Chooses the layout of a live job. */
#include "api/live_layout.h"

#include "base/log.h"
#include "io/file.h"
#include "io/yaml.h"
#include "layout/exchange/profile_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a job has been planned for one node, and there are several: a link of 400 Gb/s. */
static const double assumed_network_gb_s = 50;

int erg_live_layout_load(struct erg_job **job, const char *path, struct erg_error *err)
{
    const struct erg_job_overrides any = {.any_layout = true};
    struct erg_error ignored;
    if (erg_job_load(job, path, NULL, err) == 0 || erg_job_load(job, path, &any, &ignored) == 0)
        return 0;
    return -1;
}

bool erg_live_layout_plans(const struct erg_live_request *request)
{
    bool host = false;
    for (size_t i = 0; i < request->command_count; i++)
        host |= strstr(request->command[i], "host") != NULL;
    return request->has_profile && !host;
}

void erg_live_layout_write(struct erg_text *out, const struct erg_job *job,
                           const struct erg_layout *layout, const struct erg_cluster *nodes)
{
    size_t *kinds = erg_xcalloc((size_t)layout->pipeline, sizeof *kinds);
    const struct erg_job_change change = {.layout = layout,
                                          .cluster = nodes,
                                          .vocabulary =
                                              erg_layout_vocabulary(job->model, layout->tensor),
                                          .stage_kind = kinds};
    erg_job_write(out, job, &change);
    free(kinds);
}

/* ---- the planner ---- */

/*
 * Fills the input for layouts of a job on nodes of one type of GPUs, by ergon's own training: the
 * planner's request. `gpus`: as the input has it. The text, the path and `gpus` must outlive it.
 */
static int fill_input(struct erg_layout_input *input, struct erg_text *text,
                      const struct erg_job *job, const char *type, int nodes, int gpus_per_node,
                      const char *gpus, struct erg_error *err)
{
    const double network = job->cluster.inter_node_bandwidth;
    const int adapters = (int)job->cluster.adapters_per_node;
    struct erg_yaml *yaml;
    struct erg_text cluster = {0};
    erg_text_printf(&cluster, "{nodes: %d, gpus_per_node: %d, gpu: ", nodes, gpus_per_node);
    erg_yaml_add_string(&cluster, type);
    erg_text_printf(&cluster, ", inter_node_bandwidth_gb_s: %.10g",
                    network > 0 ? network / 1e9 : assumed_network_gb_s);
    if (adapters > 0 && gpus_per_node % adapters == 0)
        erg_text_printf(&cluster, ", adapters_per_node: %d", adapters);
    erg_text_add(&cluster, "}");
    int result = erg_yaml_open_text(&yaml, job->path, job->text, job->text_length, err);
    if (result == 0) {
        result = erg_yaml_set(text, yaml, "cluster", cluster.data, err);
        erg_yaml_close(yaml);
    }
    erg_text_release(&cluster);
    *input = (struct erg_layout_input){.path = job->path,
                                       .text = text->data,
                                       .length = text->count,
                                       .batch = erg_layout_batch(&job->layout),
                                       .sequence = ERG_NOT_GIVEN,
                                       .top = 1,
                                       .gpus = gpus,
                                       .engine = "ergon",
                                       .any_gpu = true,
                                       .recompute = -1,
                                       .objective = -1,
                                       .memory_bytes = NAN,
                                       .host_bytes = NAN,
                                       .deadline_s = NAN,
                                       .energy_j = NAN,
                                       .power_w = NAN};
    return result;
}

int erg_live_layout_rows(struct erg_text *rows, const struct erg_job *job, const char *type,
                         int nodes, int gpus_per_node, const char *gpus, struct erg_error *err)
{
    struct erg_layout_query query = {0};
    struct erg_layout_input input;
    struct erg_text text = {0};
    int result = fill_input(&input, &text, job, type, nodes, gpus_per_node, gpus, err);
    if (result == 0) {
        result = erg_layout_query_open(&query, &input, err) != 0 ||
                         erg_layout_query_prepare(&query, err) != 0
                     ? -1
                     : 0;
        const struct erg_layout_choice_request choice =
            result == 0 ? erg_layout_query_choice(&query) : (struct erg_layout_choice_request){0};
        if (result == 0)
            result = erg_profile_rows(rows, &choice, type, gpus_per_node, err);
        erg_layout_query_release(&query);
    }
    erg_text_release(&text);
    return result;
}

static int ask_planner(struct erg_text *out, const struct erg_job *job,
                       const struct erg_live_layout_request *request, struct erg_error *err)
{
    struct erg_layout_query query = {0};
    struct erg_layout_input input;
    struct erg_text text = {0};
    char gpus[16];
    snprintf(gpus, sizeof gpus, "%d", request->nodes * request->gpus_per_node);
    int result = fill_input(&input, &text, job, request->plan->type, request->nodes,
                            request->gpus_per_node, gpus, err);
    if (result == 0) {
        result = erg_layout_query_open(&query, &input, err) != 0 ||
                         erg_layout_query_prepare(&query, err) != 0 ||
                         erg_layout_query_find(&query, err) != 0
                     ? -1
                     : 0;
        if (result == 0)
            erg_layout_query_job(out, &query, erg_layout_query_best(&query));
        erg_layout_query_release(&query);
    }
    erg_text_release(&text);
    return result;
}

/* ---- copies of the job's own ---- */

/* The available nodes; unknown values come from the job. */
static struct erg_cluster nodes_of(const struct erg_job *job,
                                   const struct erg_live_layout_request *request)
{
    struct erg_cluster nodes = job->cluster;
    char *known = request->plan->type ? erg_data_find("gpus", request->plan->type) : NULL;
    nodes.nodes = request->nodes;
    nodes.gpus_per_node = request->gpus_per_node;
    nodes.more_count = 0;
    if (!(nodes.inter_node_bandwidth > 0))
        nodes.inter_node_bandwidth = 1e9 * assumed_network_gb_s;
    if (known)
        nodes.gpu = (char *)(uintptr_t)request->plan->type;
    free(known);
    return nodes;
}

/* A layout on fewest of the ranks left idle: with the job's own model parallelism or none. */
static bool spread(struct erg_layout *layout, int *nodes, const struct erg_layout *own,
                   const struct erg_live_layout_request *request)
{
    const long batch = erg_layout_batch(own),
               model = layout->tensor * layout->context * layout->pipeline;
    for (*nodes = request->nodes; *nodes > 0; --*nodes) {
        const long gpus = (long)*nodes * request->gpus_per_node;
        for (long data = gpus / model; data > 0; data--) {
            if (batch % data || model * data % *nodes)
                continue;
            layout->data = data;
            layout->microbatch = own->microbatch;
            while (batch / data % layout->microbatch)
                layout->microbatch--;
            layout->microbatches = batch / data / layout->microbatch;
            return true;
        }
    }
    return false;
}

static void write_copies(struct erg_text *out, int *nodes, const struct erg_job *job,
                         const struct erg_live_layout_request *request)
{
    const struct erg_layout *own = &job->layout;
    const struct erg_cluster there = nodes_of(job, request);
    struct erg_layout layout = *own;
    struct erg_job *written = NULL;
    struct erg_error ignored;
    if (spread(&layout, nodes, own, request)) {
        erg_live_layout_write(out, job, &layout, &there);
        int result = erg_job_parse(&written, job->path, out->data, out->count, NULL, &ignored);
        erg_job_free(result == 0 ? written : NULL);
        if (result == 0)
            return;
    }
    out->count = 0;
    layout = (struct erg_layout){.tensor = 1,
                                 .context = 1,
                                 .pipeline = 1,
                                 .virtual_stages = 1,
                                 .sequence = own->sequence,
                                 .recompute = own->recompute};
    spread(&layout, nodes, own, request); /* one rank takes any batch */
    erg_live_layout_write(out, job, &layout, &there);
}

/* ---- the answer ---- */

/* The layout of a plan, in the words of the planner. */
static int follow_plan(struct erg_text *out, const struct erg_job *job,
                       const struct erg_live_layout_request *request, struct erg_error *err)
{
    const long gpus = (long)request->nodes * request->gpus_per_node;
    const struct erg_cluster there = nodes_of(job, request);
    struct erg_layout layout = {.microbatch = 1,
                                .virtual_stages = 1,
                                .sequence = job->layout.sequence,
                                .recompute = job->layout.recompute};
    if (erg_layout_parse(&layout, request->plan->layout, job->model->layers, err) != 0 ||
        erg_layout_fill(&layout, gpus, erg_layout_batch(&job->layout), err) != 0)
        return -1;
    erg_live_layout_write(out, job, &layout, &there);
    return 0;
}

/* Says which it has become; and that it is a layout. */
static int finish(struct erg_live_layout *chosen, const char *path, const char *whose,
                  struct erg_error *err)
{
    struct erg_job *job;
    if (erg_job_parse(&job, path, chosen->job.data, chosen->job.count, NULL, err) != 0)
        return -1;
    const struct erg_layout *layout = &job->layout;
    chosen->ranks = (int)erg_layout_gpus(layout);
    chosen->why.count = 0;
    erg_text_printf(&chosen->why,
                    "tensor %ld x context %ld x pipeline %ld x data %ld, %ld microbatch%s of %ld "
                    "(%s)",
                    layout->tensor, layout->context, layout->pipeline, layout->data,
                    layout->microbatches, layout->microbatches == 1 ? "" : "es", layout->microbatch,
                    whose);
    erg_job_free(job);
    return 0;
}

int erg_live_layout_choose(struct erg_live_layout *chosen,
                           const struct erg_live_layout_request *request, struct erg_error *err)
{
    struct erg_error why = {0};
    struct erg_job *job;
    *chosen = (struct erg_live_layout){.nodes = request->nodes};
    if (erg_live_layout_load(&job, request->path, err) != 0)
        return -1;
    const long gpus = (long)request->nodes * request->gpus_per_node;
    int result = -1;
    if (request->plan->layout) {
        result = follow_plan(&chosen->job, job, request, &why) != 0 ||
                         finish(chosen, request->path, "of the scheduler's plan", &why) != 0
                     ? -1
                     : 0;
    } else if (request->other && erg_layout_gpus(request->other) == gpus) {
        const struct erg_cluster there = nodes_of(job, request);
        erg_live_layout_write(&chosen->job, job, request->other, &there);
        result = finish(chosen, request->path, "of the job's plan", &why);
    } else if (request->plans && request->plan->type) {
        result = ask_planner(&chosen->job, job, request, &why) != 0 ||
                         finish(chosen, request->path, "the planner's", &why) != 0
                     ? -1
                     : 0;
    }
    if (result != 0) {
        if (why.message[0])
            erg_log(ERG_LOG_WARNING, "the layout: %s; the job's own is copied instead",
                    why.message);
        chosen->job.count = 0;
        write_copies(&chosen->job, &chosen->nodes, job, request);
        result = finish(chosen, request->path, "the job's own, copied", err);
    }
    erg_job_free(job);
    return result;
}

void erg_live_layout_release(struct erg_live_layout *chosen)
{
    erg_text_release(&chosen->job);
    erg_text_release(&chosen->why);
}
