/* A query of memory: the layout and the GPUs that follow from a input, and the answer. */
#include "api/memory_query.h"

#include "base/log.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* How messages name the inputs. */
static const char *word(const struct erg_memory_input *input, const char *option)
{
    return input->dashes ? option : option + 2;
}

static int check_input(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    query->solve_bytes = NAN;
    if (input->solve && !isnan(input->offload))
        return erg_fail(err, ERG_USAGE, "%s and %s were both given; expected one of them",
                        word(input, "--offload"), word(input, "--solve-offload"));
    if (input->per_stage && !input->solve)
        return erg_fail(err, ERG_USAGE, "%s needs %s", word(input, "--per-stage"),
                        word(input, "--solve-offload"));
    if (!input->solve || strcmp(input->solve, "gpu") == 0)
        return 0;
    if (!erg_parse_bytes(input->solve, &query->solve_bytes))
        return erg_fail(err, ERG_USAGE,
                        "%s got \"%.80s\", expected a number of bytes like 6e10, 64GiB, 500MiB or "
                        "64GB, or gpu, for each GPU's memory",
                        word(input, "--solve-offload"), input->solve);
    if (!(query->solve_bytes >= 1 && query->solve_bytes <= 1e18))
        return erg_fail(err, ERG_USAGE, "%s got %.80s, expected a number of bytes from 1 to 1e+18",
                        word(input, "--solve-offload"), input->solve);
    return 0;
}

/* ---- stages and layers as ergon layout places them ---- */

static int load_kinds(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_job *job = query->job;
    if (query->kinds)
        return 0;
    if (!query->engine && !job->engine)
        return erg_fail(err, ERG_USAGE,
                        "the layers of each stage depend on an engine's times; expected the key "
                        "'engine' in %s or %s NAME, for example megatron-a100 (data/engines)",
                        job->path, word(query->input, "--engine"));
    query->kinds = erg_xcalloc(job->kind_count, sizeof *query->kinds);
    for (size_t k = 0; k < job->kind_count; k++) {
        const struct erg_job_kind *kind = &job->kinds[k];
        const struct erg_engine *engine = k == 0 && query->engine ? query->engine : kind->engine;
        if (erg_layout_kind_init(&query->kinds[k], kind->nodes, kind->gpu, engine, err) != 0)
            return -1;
        if (!isnan(query->solve_bytes))
            query->kinds[k].memory_bytes = query->solve_bytes;
    }
    return 0;
}

static void own_layers(struct erg_memory_query *query, const long *chunk_layers)
{
    struct erg_layout *layout = &query->layout;
    const size_t chunks = (size_t)(layout->pipeline * layout->virtual_stages);
    long *layers = erg_arena_alloc(&query->arena, chunks * sizeof *layers);
    memcpy(layers, chunk_layers, chunks * sizeof *layers);
    layout->chunk_layers = layers;
}

/* For layouts of the recomputation that was asked for, with as much offloading as is needed. */
static struct erg_layout_search search_of(const struct erg_memory_query *query, long batch)
{
    const struct erg_job *job = query->job;
    struct erg_layout_search search = {
        .model = job->model,
        .kind_count = job->kind_count,
        .sequence = query->layout.sequence,
        .batch_least = batch,
        .batch_most = batch,
        .recomputes = 1u << query->layout.recompute,
        .offload = true,
        .top = 1,
    };
    memcpy(search.kinds, query->kinds, job->kind_count * sizeof *search.kinds);
    return search;
}

static void take_place(struct erg_memory_query *query, const struct erg_layout_candidate *found)
{
    struct erg_layout *layout = &query->layout;
    size_t *stage_kind =
        erg_arena_alloc(&query->arena, (size_t)layout->pipeline * sizeof *stage_kind);
    erg_layout_stage_kinds(stage_kind, found);
    query->stage_kind = stage_kind;
    layout->data = found->layout.data;
    layout->microbatches = found->layout.microbatches;
    if (found->chunk_layers)
        own_layers(query, found->chunk_layers);
}

/* Whether the model can be spread so, on any placement of the stages: an error about degrees is
 * more helpful than a search without results. */
static int check_degrees(const struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_job *job = query->job;
    struct erg_layout plain = query->layout;
    long node_gpus = 0;
    for (size_t k = 0; k < job->kind_count; k++)
        if (job->kinds[k].nodes->gpus_per_node > node_gpus)
            node_gpus = job->kinds[k].nodes->gpus_per_node;
    plain.data = erg_layout_experts(&plain);
    plain.microbatches = plain.pipeline;
    plain.chunk_layers = NULL;
    if (job->model->layers >= plain.pipeline * plain.virtual_stages)
        plain.pipeline = plain.virtual_stages = 1; /* layers need not divide */
    plain.offload = 0;
    plain.stage_offload = NULL;
    return erg_layout_check_group(&plain, plain.tensor * plain.context, node_gpus, err) != 0 ||
                   erg_layout_check(&plain, job->model, err) != 0
               ? -1
               : 0;
}

/* Where the stages of the layout lie and how many layers each has: so that an iteration is the
 * shortest. `data`: the degree that it must have; 0: any. */
static int place_stages(struct erg_memory_query *query, long batch, long data,
                        struct erg_error *err)
{
    const struct erg_layout *layout = &query->layout;
    struct erg_error unfit = {0};
    if (check_degrees(query, err) != 0 || load_kinds(query, err) != 0)
        return -1;
    struct erg_layout_search search = search_of(query, batch);
    search.only = (struct erg_layout_degrees){.tensor = layout->tensor,
                                              .context = layout->context,
                                              .pipeline = layout->pipeline,
                                              .virtual_stages = layout->virtual_stages,
                                              .microbatch = layout->microbatch,
                                              .data = data,
                                              .expert = erg_layout_experts(layout),
                                              .fsdp = erg_layout_shards(layout)};
    search.fsdp = erg_layout_is_sharded(layout);
    struct erg_layout_results found;
    int status = erg_layout_search(&found, &search, &unfit);
    if (status != 0 && unfit.status == ERG_INFEASIBLE) { /* none fits: the fastest of all */
        for (size_t k = 0; k < search.kind_count; k++) {
            search.kinds[k].memory_bytes = INFINITY;
            search.kinds[k].host_bytes = 0;
        }
        status = erg_layout_search(&found, &search, &unfit);
    }
    if (status != 0) {
        if (unfit.status == ERG_INFEASIBLE) /* by its degrees: it is none */
            unfit.status = ERG_FAILED;
        *err = unfit;
        return -1;
    }
    take_place(query, &found.items[0]);
    erg_layout_results_release(&found);
    return 0;
}

/* The layers of chunks that cannot be equal, on nodes of one kind, likewise. */
static int split_layers(struct erg_memory_query *query, struct erg_error *err)
{
    struct erg_layout *layout = &query->layout;
    const long batch = erg_layout_batch(layout);
    struct erg_layout plain = *layout;
    struct erg_layout_candidate found;
    struct erg_error unfit = {0};
    plain.offload = 0; /* as much as is needed, where the engine offloads */
    if (load_kinds(query, err) != 0)
        return -1;
    struct erg_layout_search search = search_of(query, batch);
    search.gpus = erg_layout_gpus(layout);
    int status = erg_layout_evaluate(&found, &search, &plain, NULL, 0, &unfit);
    if (status != 0 && unfit.status == ERG_INFEASIBLE) {
        search.kinds[0].memory_bytes = INFINITY;
        status = erg_layout_evaluate(&found, &search, &plain, NULL, 0, &unfit);
    }
    if (status != 0) {
        *err = unfit;
        return -1;
    }
    own_layers(query, found.chunk_layers);
    erg_layout_candidate_release(&found);
    return 0;
}

/* ---- the layout ---- */

/* Replaces the job's degrees, recomputation and ratios by the requested ones. Settings per stage
 * apply only to the job's own layout. */
static int choose_degrees(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    struct erg_layout *layout = &query->layout;
    if (input->layout &&
        erg_layout_parse(layout, input->layout, query->job->model->layers, err) != 0) {
        if (err->status == ERG_INFEASIBLE) /* impossible with any GPU memory */
            err->status = ERG_FAILED;
        return erg_fail_context(err, "%s", word(input, "--layout"));
    }
    if (input->recompute >= 0)
        layout->recompute = (enum erg_recompute)input->recompute;
    if (input->recompute >= 0 || input->layout)
        layout->stage_recompute = NULL;
    if (!isnan(input->offload))
        layout->offload = input->offload;
    if (input->solve)
        layout->offload = 0;
    if (!isnan(input->offload) || input->solve || input->layout)
        layout->stage_offload = NULL;
    return 0;
}

/* Whether the layers cannot be divided equally, though there are enough. */
static bool needs_split(const struct erg_layout *layout, const struct erg_model *model)
{
    const long chunks = layout->pipeline * layout->virtual_stages;
    return !layout->chunk_layers && layout->pipeline > 1 && model->layers > chunks &&
           model->layers % chunks != 0;
}

/* Data degree, microbatches, layers and GPUs of every stage. */
static int fill_layout(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    const struct erg_job *job = query->job;
    struct erg_layout *layout = &query->layout;
    const bool one_kind = job->kind_count == 1, gpus_given = input->gpus != ERG_NOT_GIVEN;
    const bool placed = job->placed && (one_kind || !input->layout);
    const long own_gpus = one_kind ? erg_cluster_gpus(&job->cluster) : erg_layout_gpus(layout);
    const long own_batch = erg_layout_batch(layout);
    const long batch = input->batch != ERG_NOT_GIVEN ? input->batch : own_batch;
    if (choose_degrees(query, err) != 0)
        return -1;
    const bool any_data = !placed && input->layout && !gpus_given;
    if (!any_data && erg_layout_fill(layout, gpus_given ? input->gpus : own_gpus, batch, err) != 0)
        return -1;
    query->own_layers = placed && !input->layout;
    if (one_kind) {
        struct erg_time_machine machine;
        erg_time_machine_init(&machine, job->gpu, &job->cluster);
        if (erg_time_machine_check(&machine, erg_layout_gpus(layout), err) != 0)
            return -1;
    }
    if (!placed)
        return place_stages(query, batch, any_data ? 0 : layout->data, err);
    size_t *stage_kind =
        erg_arena_alloc(&query->arena, (size_t)layout->pipeline * sizeof *stage_kind);
    for (long s = 0; s < layout->pipeline; s++)
        stage_kind[s] = one_kind ? 0 : job->stage_kind[s];
    query->stage_kind = stage_kind;
    return 0;
}

/* Whether groups of ranks lie within the nodes of every stage. */
static int check_groups(const struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_layout *layout = &query->layout;
    const long ranks = layout->tensor * layout->context * layout->data;
    for (size_t k = 0; k < query->job->kind_count; k++) {
        long gpus = 0;
        for (long s = 0; s < layout->pipeline; s++)
            if (query->stage_kind[s] == k)
                gpus += ranks;
        const int node_gpus = query->job->kinds[k].nodes->gpus_per_node;
        if (gpus > 0 && erg_layout_check_group(layout, gpus, node_gpus, err) != 0)
            return -1;
    }
    return 0;
}

static int choose_layout(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_job *job = query->job;
    struct erg_layout *layout = &query->layout;
    *layout = job->layout;
    if (fill_layout(query, err) != 0 || check_groups(query, err) != 0)
        return -1;
    if (needs_split(layout, job->model) && split_layers(query, err) != 0)
        return erg_fail_context(err,
                                "the %ld layers of %s cannot be divided among %ld stages of %ld "
                                "chunks",
                                job->model->layers, job->model->name, layout->pipeline,
                                layout->virtual_stages);
    return erg_layout_check(layout, job->model, err);
}

/* ---- how it is counted ---- */

/* The engine of a stage; NULL: none is named. */
static const struct erg_engine *engine_of(const struct erg_memory_query *query, long stage)
{
    const size_t kind = query->stage_kind[stage];
    return kind == 0 && query->engine ? query->engine : query->job->kinds[kind].engine;
}

/* The option's accounting, or that of the engine. */
static int choose_accounting(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    const struct erg_engine *first = engine_of(query, 0);
    struct erg_memory_request *request = &query->request;
    *request = erg_memory_request_of(query->job->model, &query->layout, first);
    request->layer_copies = input->copies == 1;
    for (long stage = 1; stage < query->layout.pipeline && input->accounting < 0; stage++) {
        const struct erg_engine *other = engine_of(query, stage);
        if ((first && first->static_memory) != (other && other->static_memory))
            return erg_fail(err, ERG_FAILED,
                            "stages 0 and %ld are trained by %s and %s, and only one of these is "
                            "ergon's own training; expected one engine for all stages, or %s",
                            stage, first ? first->name : "no engine",
                            other ? other->name : "no engine", word(input, "--accounting"));
    }
    if (input->accounting >= 0)
        request->accounting = (enum erg_memory_accounting)input->accounting;
    if (query->job->training && request->accounting == ERG_MEMORY_STATIC)
        request->sequence_parallel = query->job->training->sequence_parallel;
    if (query->job->training && request->accounting == ERG_MEMORY_STATIC)
        request->least_moved = query->job->training->offload_least_bytes;
    const struct erg_layout *layout = &query->layout;
    if (input->layout && isnan(input->offload) && layout->offload > 0 &&
        !erg_memory_can_offload(request))
        return erg_fail(
            err, ERG_FAILED,
            "key 'offload' in line %zu: %.10g holds for %s, too, and offloading needs at "
            "least 3 pipeline stages, got %ld; expected %s 0 or more stages",
            query->job->offload_line, layout->offload, word(input, "--layout"), layout->pipeline,
            word(input, "--offload"));
    return input->solve ? 0 : erg_memory_check(request, err);
}

/* ---- memory of GPUs and hosts ---- */

static void fill_rooms(struct erg_memory_query *query)
{
    const long pipeline = query->layout.pipeline;
    query->rooms = erg_arena_alloc(&query->arena, (size_t)pipeline * sizeof *query->rooms);
    for (long s = 0; s < pipeline; s++) {
        const struct erg_job_kind *kind = &query->job->kinds[query->stage_kind[s]];
        query->rooms[s] = (struct erg_memory_room){
            .gpu_bytes = isnan(query->solve_bytes)
                             ? ERG_MEMORY_USABLE_SHARE * kind->gpu->memory_bytes
                             : query->solve_bytes,
            .host_bytes = kind->nodes->host_memory_bytes,
            .node_gpus = kind->nodes->gpus_per_node,
        };
    }
}

static int read_job(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    struct erg_job_overrides overrides = {
        .any_layout = true,
        .own_degrees = !input->layout && input->gpus == ERG_NOT_GIVEN,
    };
    if (input->sequence != ERG_NOT_GIVEN)
        overrides.sequence = input->sequence;
    return input->text ? erg_job_parse(&query->job, input->path, input->text, input->length,
                                       &overrides, err)
                       : erg_job_load(&query->job, input->path, &overrides, err);
}

static int fill_query(struct erg_memory_query *query, struct erg_error *err)
{
    const struct erg_memory_input *input = query->input;
    if (check_input(query, err) != 0 || read_job(query, err) != 0)
        return -1;
    if (input->engine && (erg_engine_load(&query->engine, input->engine, err) != 0 ||
                          erg_engine_check_gpu(query->engine, query->job->gpu, err) != 0))
        return -1;
    if (query->engine)
        erg_job_apply_training(query->job, query->engine);
    if (choose_layout(query, err) != 0 || choose_accounting(query, err) != 0)
        return erg_fail_context(err, "the layout of %s", input->path);
    fill_rooms(query);
    return 0;
}

/* ---- the answer ---- */

/* Puts the requested ratios into the layout, or solves for its least memory where there are none:
 * then *solved is true. */
static int solve(struct erg_memory_asked *at, bool *solved, struct erg_error *err)
{
    struct erg_layout *layout = &at->query.layout;
    struct erg_memory_answer *answer = &at->answer;
    const bool named = !isnan(at->query.solve_bytes);
    double *budgets = erg_xcalloc((size_t)layout->pipeline, sizeof *budgets);
    struct erg_error unsolved = {0};
    for (long s = 0; s < layout->pipeline; s++)
        budgets[s] = answer->rooms[s].gpu_bytes;
    *solved = erg_memory_solve(&at->solution, &answer->request, budgets,
                               named ? ERG_MEMORY_ERROR : 0, &unsolved) == 0;
    free(budgets);
    if (!*solved && unsolved.status != ERG_INFEASIBLE) {
        *err = unsolved;
        return -1;
    }
    layout->offload = *solved                                    ? at->solution.offload
                      : erg_memory_can_offload(&answer->request) ? 1
                                                                 : 0;
    if (!*solved)
        return 0;
    if (isnan(at->solution.offload)) {
        if (!answer->per_stage)
            return erg_fail(err, ERG_INFEASIBLE,
                            "no one ratio of offloading fits all stages: the ratio that one stage "
                            "needs is too large for another one, whose receive buffers exceed the "
                            "offloaded bytes; expected %s, with which each has its own",
                            word(at->query.input, "--per-stage"));
        layout->offload = 0;
        for (long i = 0; i < layout->pipeline; i++)
            layout->offload = fmax(layout->offload, at->solution.stage_offload[i]);
    }
    if (at->solution.excess_bytes > 0)
        erg_log(ERG_LOG_WARNING,
                "with any offloading %.2f GiB are missing, %.2f %% of the budget, which is within "
                "the error of this model",
                at->solution.excess_bytes / 0x1p30,
                100 * at->solution.excess_bytes / at->query.solve_bytes);
    answer->solution = &at->solution;
    if (answer->per_stage) {
        layout->stage_offload = at->solution.stage_offload;
        layout->stage_recompute = at->solution.stage_recompute;
    }
    return 0;
}

/* When copies and messages run on the engines of the stages. */
static int find_traffic(struct erg_memory_asked *at, struct erg_error *err)
{
    struct erg_memory_answer *answer = &at->answer;
    struct erg_memory_query *query = &at->query;
    const long pipeline = query->layout.pipeline;
    if (load_kinds(query, err) != 0)
        return -1;
    struct erg_time_request *on = erg_xcalloc((size_t)pipeline, sizeof *on);
    int status = 0;
    for (long s = 0; s < pipeline && status == 0; s++) {
        const struct erg_layout_kind *kind = &query->kinds[query->stage_kind[s]];
        on[s] = (struct erg_time_request){answer->request.model, kind->engine, &kind->machine};
        if (at->result.stages[s].offload_bytes > 0 && !(kind->engine->host_link_bandwidth > 0))
            status = erg_fail(err, ERG_FAILED,
                              "the layout offloads, and engine %s does not: its host_link_gb_s is "
                              "0",
                              kind->engine->name);
    }
    if (status == 0) {
        erg_memory_traffic_of_layout(&at->traffic, &answer->shared_s, &answer->request, on);
        answer->traffic = &at->traffic;
    }
    free(on);
    return status;
}

static int find_change(struct erg_memory_asked *at, struct erg_error *err)
{
    const struct erg_job *job = at->query.job;
    const struct erg_layout *layout = &at->query.layout;
    const bool one_kind = job->kind_count == 1;
    const struct erg_memory_bounds bounds = {
        .rooms = at->answer.rooms,
        .layers = at->query.own_layers && !layout->stage_offload && !layout->stage_recompute,
        .degrees = one_kind,
        .most_gpus = job->cluster.inter_node_bandwidth > 0 ? 0 : job->cluster.gpus_per_node,
    };
    struct erg_layout plain = *layout;
    struct erg_memory_request request = at->answer.request;
    plain.stage_offload = NULL;
    plain.stage_recompute = NULL;
    if (at->answer.solve)
        plain.offload = 0; /* the least that helps */
    request.layout = &plain;
    at->answer.change = &at->change;
    return erg_memory_smallest_change(&at->change, &request, &bounds, err);
}

static int find_answer(struct erg_memory_asked *at, struct erg_error *err)
{
    const struct erg_memory_query *query = &at->query;
    const struct erg_memory_input *input = query->input;
    struct erg_memory_answer *answer = &at->answer;
    bool solved = true;
    *answer = (struct erg_memory_answer){
        .job = query->job,
        .request = query->request,
        .stage_kind = query->stage_kind,
        .rooms = query->rooms,
        .per_stage =
            input->per_stage || query->layout.stage_recompute || query->layout.stage_offload,
        .solve = input->solve != NULL,
    };
    if (answer->solve && solve(at, &solved, err) != 0)
        return -1;
    if (erg_memory_simulate(&at->result, &answer->request, err) != 0)
        return -1;
    answer->result = &at->result;
    erg_memory_answer_judge(answer);
    answer->fits &= solved;
    if (!(answer->fits && answer->host_fits) && find_change(at, err) != 0)
        return -1;
    return input->engine ? find_traffic(at, err) : 0;
}

int erg_memory_ask(struct erg_memory_asked *asked, const struct erg_memory_input *input,
                   struct erg_error *err)
{
    *asked = (struct erg_memory_asked){.query.input = input};
    return fill_query(&asked->query, err) != 0 || find_answer(asked, err) != 0 ? -1 : 0;
}

void erg_memory_asked_release(struct erg_memory_asked *asked)
{
    struct erg_memory_query *query = &asked->query;
    erg_memory_change_release(&asked->change);
    erg_memory_traffic_release(&asked->traffic);
    erg_memory_result_release(&asked->result);
    erg_memory_solution_release(&asked->solution);
    free(query->kinds);
    erg_engine_free(query->engine);
    erg_job_free(query->job);
    erg_arena_release(&query->arena);
}
