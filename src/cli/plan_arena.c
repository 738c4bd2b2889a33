/* ergon plan --planner arena: what the published planner makes of a job's grids. */
#include "cli/plan_answer.h"
#include "cli/plan_print.h"
#include "cli/plan_profile.h"
#include "cli/print.h"

#include "base/log.h"
#include "io/json.h"
#include "layout/grid/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What the planner needs of a call; all but the allocation is the same for all numbers of GPUs. */
struct query {
    const struct plan_call *at;
    struct erg_grid_model model;
    struct erg_grid_device device;
    struct erg_estimator estimator;
    struct erg_estimate_job job;
    struct erg_comm_links links;
    char size[32];
};

static int query_init(struct query *query, const struct plan_call *at, struct erg_error *err)
{
    const struct erg_layout_search *search = at->searches;
    const struct erg_engine *engine = at->energy.time.engine;
    const struct erg_model *model = at->energy.time.model;
    if (search->batch_least % ERG_GRID_MICROBATCHES)
        return erg_fail(err, ERG_FAILED,
                        "--planner arena cuts a batch into %d microbatches; expected a multiple of "
                        "%d sequences (--batch), got %ld",
                        ERG_GRID_MICROBATCHES, ERG_GRID_MICROBATCHES, search->batch_least);
    query->at = at;
    erg_plan_profile_size(model, query->size);
    query->model = erg_grid_model_of(model, query->size, search->sequence);
    query->estimator = erg_estimator_of(&query->model, &query->device, at->energy.gpu, engine,
                                        search->kinds[0].memory_bytes);
    query->job = (struct erg_estimate_job){model->name, query->size, search->batch_least};
    query->links = (struct erg_comm_links){
        at->energy.time.machine->link_bandwidth * engine->link_efficiency,
        at->energy.time.machine->network_bandwidth * engine->network_efficiency,
        engine->collective_latency_s};
    return 0;
}

static struct erg_allocation allocation_of(const struct plan_call *at, long gpus)
{
    const long per_node = at->energy.time.machine->node_gpus,
               nodes = gpus > per_node ? gpus / per_node : 1;
    return (struct erg_allocation){at->energy.gpu->name, nodes, gpus / nodes, false};
}

/* ---- the grids of one number of GPUs ---- */

static json_t *plan_document(const struct query *query, const struct erg_grid_estimate *estimate)
{
    struct erg_text text = {0};
    erg_grid_plan_text(&estimate->plan, &text);
    json_t *json = erg_json_pack("{s:i, s:s}", "p", (int)estimate->plan.stages, "plan", text.data);
    erg_text_release(&text);
    json_object_set_new(json, "time_s", erg_json_number(estimate->time.total_s));
    json_object_set_new(json, "compute_s", erg_json_number(estimate->time.compute_s));
    json_object_set_new(json, "within_stages_s", erg_json_number(estimate->time.intra_s));
    json_object_set_new(json, "between_stages_s", erg_json_number(estimate->time.inter_s));
    json_object_set_new(json, "tokens_per_s",
                        erg_json_number((double)query->job.batch * (double)query->model.sequence /
                                        estimate->time.total_s));
    json_object_set_new(json, "peak_bytes", erg_json_number(estimate->memory_bytes));
    json_object_set_new(json, "fits", json_boolean(estimate->fits));
    return json;
}

static void add_grid(const struct query *query, const struct erg_grid_estimates *grid,
                     bool is_proxy, struct erg_table *table, json_t *grids)
{
    const struct erg_grid_estimate *plan = &grid->plan;
    double least_s = INFINITY;
    json_t *set = json_array();
    for (size_t i = 0; i < grid->set_count; i++) {
        json_array_append_new(set, plan_document(query, &grid->set[i]));
        if (grid->set[i].fits)
            least_s = fmin(least_s, grid->set[i].time.total_s);
    }
    json_t *json = plan_document(query, plan);
    json_object_set_new(json, "pareto", set);
    json_array_append_new(grids, json);
    struct erg_text text = {0};
    erg_grid_plan_text(&plan->plan, &text);
    erg_table_add(table, "%zu", plan->plan.stages);
    erg_table_add_number(table, 4, plan->time.total_s);
    erg_table_add_number(
        table, 4, (double)query->job.batch * (double)query->model.sequence / plan->time.total_s);
    erg_table_add(table, "%.1f", plan->memory_bytes / 0x1p30);
    erg_table_add(table, "%s", plan->fits ? "yes" : "no");
    erg_table_add(table, "%zu", grid->set_count);
    if (isfinite(least_s))
        erg_table_add_number(table, 4, least_s);
    else
        erg_table_add(table, "-");
    erg_table_add(table, "%s%s", text.data, is_proxy ? "  <- proxy" : "");
    erg_text_release(&text);
}

static int show_grids(const struct query *query, bool json, struct erg_error *err)
{
    static const char *const heads[] = {"stages", "s",   "tokens/s",     "GiB",
                                        "fits",   "set", "best of it s", "plan"};
    const long gpus = query->at->searches->gpus;
    const struct erg_allocation allocation = allocation_of(query->at, gpus);
    struct erg_comm_tables *tables = erg_comm_tables_of_links(&allocation, &query->links);
    struct erg_table table = {0};
    struct erg_grid_estimate proxy;
    json_t *document = json_object(), *grids = json_array();
    int status =
        erg_estimate_proxy(&query->estimator, tables, &query->job, &allocation, &proxy, err);
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (size_t stages = 1; !status && (long)stages <= gpus; stages *= 2) {
        struct erg_grid_estimates grid;
        struct erg_error none;
        if (erg_estimate_grid(&query->estimator, tables, &query->job, &allocation, stages, &grid,
                              &none) == 0)
            add_grid(query, &grid, stages == proxy.plan.stages, &table, grids);
        else if (none.status != ERG_INFEASIBLE)
            status = erg_fail(err, none.status, "%s", none.message);
    }
    if (!status) {
        json_object_set_new(document, "schema_version", json_integer(1));
        json_object_set_new(document, "planner", erg_json_new_string("arena"));
        json_object_set_new(document, "gpus", json_integer(gpus));
        json_object_set_new(document, "batch", json_integer(query->job.batch));
        json_object_set_new(document, "microbatches", json_integer(ERG_GRID_MICROBATCHES));
        json_object_set_new(document, "sequence", json_integer(query->model.sequence));
        json_object_set_new(document, "proxy", plan_document(query, &proxy));
        json_object_set(document, "grids", grids);
    }
    if (!status && json) {
        erg_print_json(json_incref(document));
    } else if (!status) {
        printf("%s on %ld %s, batch %ld of %ld tokens in %d microbatches, by the planner of Arena "
               "with the limits of engine %s\n"
               "plan: layers of every stage, of %d or fewer runs of equal work, then its data and "
               "tensor degree\n\n",
               query->job.family, gpus, allocation.gpu_type, query->job.batch,
               query->model.sequence, ERG_GRID_MICROBATCHES, query->at->energy.time.engine->name,
               ERG_GRID_MAX_STAGES);
        erg_print_table(&table, "");
    }
    if (status || json)
        erg_table_release(&table);
    json_decref(grids);
    json_decref(document);
    erg_comm_tables_free(tables);
    return status;
}

/* ---- its profile ---- */

static bool is_planned(long gpus)
{
    return gpus <= ERG_GRID_MAX_STAGES && (gpus & (gpus - 1)) == 0;
}

/* The proxy plan's time on every number of GPUs that the planner plans. */
static int print_profile(const struct query *query, struct erg_error *err)
{
    struct erg_text text = {0}, left_out = {0};
    int status = 0;
    erg_plan_profile_header(&text);
    for (size_t i = 0; i < query->at->search_count && !status; i++) {
        const long gpus = query->at->searches[i].gpus;
        if (!is_planned(gpus)) {
            erg_text_printf(&left_out, "%s%ld", left_out.count ? ", " : "", gpus);
            continue;
        }
        const struct erg_allocation allocation = allocation_of(query->at, gpus);
        const struct plan_profile_shape shape = {query->at->energy.time.model, allocation.gpu_type,
                                                 query->job.batch, allocation.nodes,
                                                 allocation.gpus_per_node};
        struct erg_comm_tables *tables = erg_comm_tables_of_links(&allocation, &query->links);
        struct erg_grid_estimate proxy;
        if (erg_estimate_proxy(&query->estimator, tables, &query->job, &allocation, &proxy, err) ==
            0)
            erg_plan_profile_row(&text, &shape, proxy.time.total_s, NAN);
        else if (err->status == ERG_INFEASIBLE)
            erg_plan_profile_row(&text, &shape, -1, NAN);
        else
            status = -1;
        erg_comm_tables_free(tables);
    }
    if (left_out.count)
        erg_log(ERG_LOG_WARNING, "--planner arena plans 1, 2, 4, 8 and 16 GPUs; left out: %s",
                left_out.data);
    if (!status)
        fputs(text.data, stdout);
    erg_text_release(&left_out);
    erg_text_release(&text);
    return status;
}

int erg_plan_arena(const struct plan_call *at, bool json, struct erg_error *err)
{
    struct query query;
    if (query_init(&query, at, err) != 0)
        return -1;
    if (at->values->export == PLAN_EXPORT_PROFILE)
        return print_profile(&query, err);
    if (at->search_count > 1)
        return erg_fail(err, ERG_USAGE,
                        "--gpus gives %zu numbers of GPUs; --planner arena needs one, but for "
                        "--export profile",
                        at->search_count);
    return show_grids(&query, json, err);
}
