/* ergon layout --planner arena: what the published planner makes of a job's grids. */
#include "api/layout_answer.h"
#include "io/print.h"
#include "report/text/layout_print.h"

#include "base/log.h"
#include "io/json.h"
#include "layout/exchange/profile_rows.h"
#include "layout/grid/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The inputs of a planner call: all except the allocation are equal for all numbers of GPUs. */
struct query {
    const struct erg_layout_query *at;
    struct erg_grid_ops ops;
    struct erg_grid_links links;
    struct erg_estimate_request request;
    long sequence;
    struct erg_text name;
};

static int query_init(struct query *query, const struct erg_layout_query *at, struct erg_error *err)
{
    enum { OPS_OF_A_LAYER = 10 }; /* layout/grid/grid_model.c */
    const struct erg_layout_search *search = at->searches;
    const struct erg_engine *engine = at->energy.time.engine;
    const struct erg_model *model = at->energy.time.model;
    if (search->batch_least % ERG_GRID_MICROBATCHES)
        return erg_fail(err, ERG_FAILED,
                        "--planner arena cuts a batch into %d microbatches; expected a multiple of "
                        "%d sequences (--batch), got %ld",
                        ERG_GRID_MICROBATCHES, ERG_GRID_MICROBATCHES, search->batch_least);
    if (model->experts.count || model->latent.keys)
        return erg_fail(err, ERG_FAILED,
                        "--planner arena plans dense models with plain attention, and %s has %s; "
                        "expected no such option",
                        model->name,
                        model->experts.count ? "a mixture of experts" : "a latent attention");
    query->at = at;
    char size[32];
    erg_profile_rows_size(model, size);
    erg_text_printf(&query->name, "%s %s", model->name, size);
    erg_grid_ops_init(&query->ops, model, search->sequence);
    query->sequence = search->sequence;
    query->links = (struct erg_grid_links){
        at->energy.time.machine->link_bandwidth * engine->link_efficiency,
        at->energy.time.machine->network_bandwidth * engine->network_efficiency,
        engine->collective_latency_s};
    query->request = (struct erg_estimate_request){
        .name = query->name.data,
        .ops = &query->ops,
        .element_bytes = 2,
        .batch = search->batch_least,
        .constants = {.matmul_efficiency = engine->gemm_efficiency,
                      .convolution_efficiency = engine->gemm_efficiency,
                      .memory_efficiency = engine->memory_efficiency,
                      .kernel_s = engine->layer_overhead_s / OPS_OF_A_LAYER},
        .flops = engine->peak_flops,
        .memory_bandwidth = at->energy.gpu->memory_bandwidth,
        .memory_bytes = search->kinds[0].memory_bytes,
        .network = erg_grid_network_of(&query->links),
    };
    return 0;
}

/* Plans for a number of GPUs. */
static int set(struct erg_estimate_setting *setting, const struct query *query, long gpus,
               struct erg_error *err)
{
    const long per_node = query->at->energy.time.machine->node_gpus,
               nodes = gpus > per_node ? gpus / per_node : 1;
    struct erg_estimate_request request = query->request;
    request.allocation =
        (struct erg_allocation){query->at->energy.gpu->name, nodes, gpus / nodes, false};
    return erg_estimate_setting_init(setting, &request, err);
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
                        erg_json_number((double)query->request.batch * (double)query->sequence /
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
        table, 4, (double)query->request.batch * (double)query->sequence / plan->time.total_s);
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

static int show_grids(const struct erg_layouts_call *call, const struct query *query,
                      struct erg_error *err)
{
    static const char *const heads[] = {"stages", "s",   "tokens/s",     "GiB",
                                        "fits",   "set", "best of it s", "plan"};
    const long gpus = query->at->searches->gpus;
    struct erg_estimate_setting setting;
    struct erg_table table = {0};
    struct erg_grid_estimate proxy;
    json_t *document = json_object(), *grids = json_array();
    int status = set(&setting, query, gpus, err) || erg_estimate_proxy(&setting, &proxy, err);
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (size_t stages = 1; !status && (long)stages <= gpus; stages *= 2) {
        struct erg_grid_estimates grid;
        struct erg_error none;
        if (erg_estimate_grid(&setting, stages, &grid, &none) == 0)
            add_grid(query, &grid, stages == proxy.plan.stages, &table, grids);
        else if (none.status != ERG_INFEASIBLE)
            status = erg_fail(err, none.status, "%s", none.message);
    }
    if (!status) {
        json_object_set_new(document, "schema_version", json_integer(1));
        json_object_set_new(document, "planner", erg_json_new_string("arena"));
        json_object_set_new(document, "gpus", json_integer(gpus));
        json_object_set_new(document, "batch", json_integer(query->request.batch));
        json_object_set_new(document, "microbatches", json_integer(ERG_GRID_MICROBATCHES));
        json_object_set_new(document, "sequence", json_integer(query->sequence));
        json_object_set_new(document, "proxy", plan_document(query, &proxy));
        json_object_set(document, "grids", grids);
        erg_print_json(call->json, json_incref(document));
        fprintf(call->text,
                "%s on %ld %s, batch %ld of %ld tokens in %d microbatches, by the planner of Arena "
                "with the limits of engine %s\n"
                "plan: layers of every stage, of %d or fewer runs of equal work, then its data and "
                "tensor degree\n\n",
                query->at->energy.time.model->name, gpus, setting.request.allocation.gpu_type,
                query->request.batch, query->sequence, ERG_GRID_MICROBATCHES,
                query->at->energy.time.engine->name, ERG_GRID_MAX_STAGES);
        erg_print_table(call->text, &table, "");
    } else {
        erg_table_release(&table);
    }
    json_decref(grids);
    json_decref(document);
    return status ? -1 : 0;
}

/* ---- its profile ---- */

static bool is_planned(long gpus)
{
    return gpus <= ERG_GRID_MAX_STAGES && (gpus & (gpus - 1)) == 0;
}

/* The proxy plan's time on every number of GPUs that the planner plans. */
static int print_profile(FILE *out, const struct query *query, struct erg_error *err)
{
    struct erg_text text = {0}, left_out = {0};
    int status = 0;
    erg_profile_rows_header(&text);
    for (size_t i = 0; i < query->at->search_count && !status; i++) {
        const long gpus = query->at->searches[i].gpus;
        if (!is_planned(gpus)) {
            erg_text_printf(&left_out, "%s%ld", left_out.count ? ", " : "", gpus);
            continue;
        }
        struct erg_estimate_setting setting;
        struct erg_grid_estimate proxy;
        if ((status = set(&setting, query, gpus, err)) != 0)
            break;
        const struct erg_allocation *allocation = &setting.request.allocation;
        const struct erg_profile_shape shape = {query->at->energy.time.model, allocation->gpu_type,
                                                query->request.batch, allocation->nodes,
                                                allocation->gpus_per_node};
        if (erg_estimate_proxy(&setting, &proxy, err) == 0)
            erg_profile_rows_row(&text, &shape, erg_profile_rows_rounded(proxy.time.total_s), NAN);
        else if (err->status == ERG_INFEASIBLE)
            erg_profile_rows_row(&text, &shape, -1, NAN);
        else
            status = -1;
    }
    if (left_out.count)
        erg_log(ERG_LOG_WARNING, "--planner arena plans 1, 2, 4, 8 and 16 GPUs; left out: %s",
                left_out.data);
    if (!status)
        fputs(text.data, out);
    erg_text_release(&left_out);
    erg_text_release(&text);
    return status;
}

static int answer(const struct erg_layouts_call *call, const struct query *query,
                  struct erg_error *err)
{
    if (call->asked->export == ERG_LAYOUTS_EXPORT_PROFILE)
        return print_profile(call->text, query, err);
    if (query->at->search_count > 1)
        return erg_fail(err, ERG_USAGE,
                        "--gpus gives %zu numbers of GPUs; --planner arena needs one, except for "
                        "--export profile",
                        query->at->search_count);
    return show_grids(call, query, err);
}

int erg_layouts_arena(const struct erg_layouts_call *call, struct erg_error *err)
{
    struct query query = {0};
    int status = query_init(&query, &call->query, err) || answer(call, &query, err) ? -1 : 0;
    free(query.ops.items);
    erg_text_release(&query.name);
    return status;
}
