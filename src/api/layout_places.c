/* ergon layout --slots: which slots of the nodes the groups of the best layout take. */
#include "api/layout_answer.h"
#include "base/text.h"
#include "io/print.h"

#include "io/json.h"
#include "layout/energy/layout_slots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* That of the nodes; `loaded` is to be freed. */
static int find_chassis(const struct erg_layout_query *at, const struct erg_chassis **chassis,
                        struct erg_chassis **loaded, struct erg_error *err)
{
    const struct erg_cluster *cluster = erg_layout_query_cluster(at);
    if (cluster->more_count > 0)
        return erg_fail(err, ERG_USAGE,
                        "--slots: the cluster has nodes of several kinds; expected one");
    if (!cluster->chassis)
        return erg_fail(err, ERG_FAILED,
                        "--slots: the cluster does not say how its nodes are cooled; expected the "
                        "key 'chassis' next to 'gpu'");
    *chassis = at->job->kinds[0].chassis; /* checked with the job */
    if (!at->cluster)
        return 0;
    if (erg_chassis_load(loaded, cluster->chassis, err) != 0)
        return -1;
    *chassis = *loaded;
    if ((*chassis)->gpus == (unsigned)cluster->gpus_per_node)
        return 0;
    return erg_fail(err, ERG_FAILED, "--slots: nodes have %d GPUs, the chassis %s has %u slots",
                    cluster->gpus_per_node, (*chassis)->name, (*chassis)->gpus);
}

static double gain_percent(double before, double after)
{
    return 100 * (after / before - 1);
}

static void add_slots(struct erg_text *out, const struct erg_slots_placement *placement,
                      unsigned gpus, int group)
{
    for (unsigned slot = 0; slot < gpus; slot++)
        if (placement->group[slot] == group)
            erg_text_printf(out, "%s%u", out->count ? "," : "", slot);
}

static void add_group(struct erg_table *table, const struct erg_slots_placement *placement,
                      unsigned gpus, int group)
{
    struct erg_text text = {0};
    double slowest = INFINITY, hottest = -INFINITY;
    add_slots(&text, placement, gpus, group);
    for (unsigned slot = 0; slot < gpus; slot++)
        if (placement->group[slot] == group) {
            slowest = fmin(slowest, placement->clock_mhz[slot]);
            hottest = fmax(hottest, placement->temperature_c[slot]);
        }
    erg_table_add(table, "%s", text.data);
    erg_table_add(table, "%.0f MHz", slowest);
    erg_table_add(table, "%.1f C", hottest);
    erg_text_release(&text);
}

static void print_text(FILE *out, const struct erg_layout_slots *slots,
                       const struct erg_slots_nodes_found *found)
{
    static const char *const heads[] = {"node",    "stage", "layers", "slots",   "clock",
                                        "hottest", "given", "clock",  "hottest", ""};
    const struct erg_slots_nodes_request *request = &slots->request;
    const struct erg_chassis *chassis = request->node.chassis;
    const struct erg_slots_nodes *best = &found->best, *given = &found->given;
    const int groups = request->node.groups;
    struct erg_table table = {.columns = 10};
    erg_print_heads(&table, heads, 10);
    for (int i = 0; i < request->nodes * groups; i++) {
        const int stage = slots->stage[i];
        erg_table_add(&table, "%d", i / groups + 1);
        erg_table_add(&table, "%d", stage);
        erg_table_add(&table, "%d", best->layers[stage]);
        add_group(&table, &best->node[i / groups], chassis->gpus, i % groups);
        add_group(&table, &given->node[i / groups], chassis->gpus, i % groups);
        erg_table_add(&table, "%s", "");
    }
    fprintf(out,
            "%d node%s cooled as %s; slots of each tensor group, compared with those in the order "
            "of the ranks\n",
            request->nodes, erg_plural((size_t)request->nodes), chassis->name);
    erg_print_table(out, &table, "");
    fprintf(out, "pipeline: time %+.2f %%, energy %+.2f %%, hottest GPU %.1f C after %.1f C; %s\n",
            gain_percent(given->time_s, best->time_s),
            gain_percent(given->energy_j, best->energy_j), best->hottest_c, given->hottest_c,
            found->exact ? "no other slots are faster with these layers"
                         : "no exchange of slots helps");
    if (!isnan(found->heat_share))
        fprintf(out, "of the gain, %.0f %% is there because GPUs are not equally hot\n",
                100 * found->heat_share);
}

static json_t *node_document(const struct erg_slots_placement *placement, unsigned gpus)
{
    json_t *list = json_array();
    for (unsigned slot = 0; slot < gpus; slot++)
        json_array_append_new(
            list, erg_json_pack("{s:i, s:o, s:o, s:o}", "group", placement->group[slot],
                                "clock_mhz", erg_json_number(placement->clock_mhz[slot]),
                                "temperature_c", erg_json_number(placement->temperature_c[slot]),
                                "power_w", erg_json_number(placement->mean_w[slot])));
    return erg_json_pack("{s:o, s:o, s:o}", "slots", list, "node_j",
                         erg_json_number(placement->energy_j), "hottest_c",
                         erg_json_number(placement->hottest_c));
}

static json_t *placement_document(const struct erg_layout_slots *slots,
                                  const struct erg_slots_nodes *of)
{
    json_t *nodes = json_array(), *layers = json_array();
    for (int n = 0; n < slots->request.nodes; n++)
        json_array_append_new(nodes,
                              node_document(&of->node[n], slots->request.node.chassis->gpus));
    for (int stage = 0; stage < slots->request.node.stages; stage++)
        json_array_append_new(layers, json_integer(of->layers[stage]));
    return erg_json_pack("{s:o, s:o, s:o, s:o, s:o}", "nodes", nodes, "layers", layers,
                         "pipeline_s", erg_json_number(of->time_s), "energy_j",
                         erg_json_number(of->energy_j), "hottest_c",
                         erg_json_number(of->hottest_c));
}

static void print_json(FILE *out, const struct erg_layout_slots *slots,
                       const struct erg_slots_nodes_found *found)
{
    const int groups = slots->request.node.groups;
    json_t *stages = json_array();
    for (int n = 0; n < slots->request.nodes; n++) {
        json_t *own = json_array();
        for (int g = 0; g < groups; g++)
            json_array_append_new(own, json_integer(slots->stage[n * groups + g]));
        json_array_append_new(stages, own);
    }
    erg_print_json(out, erg_json_pack("{s:i, s:s, s:o, s:b, s:o, s:o, s:o}", "schema_version", 1,
                                      "chassis", slots->request.node.chassis->name, "stages",
                                      stages, "exact", found->exact, "heat_share",
                                      erg_json_number(found->heat_share), "given",
                                      placement_document(slots, &found->given), "best",
                                      placement_document(slots, &found->best)));
}

static int place(struct erg_layouts_call *call, const struct erg_chassis *chassis,
                 struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    struct erg_layout_slots slots;
    struct erg_slots_nodes_found found;
    if (erg_layout_slots_init(&slots, &at->energy, &erg_layout_query_best(at)->layout, chassis,
                              err) != 0)
        return -1;
    slots.request.move_layers = true;
    slots.request.node.goal = call->asked->input.objective == 1 ? ERG_SLOTS_ENERGY : ERG_SLOTS_TIME;
    const int status = erg_slots_place_nodes(&slots.request, &found, err);
    if (!status) {
        print_json(call->json, &slots, &found);
        print_text(call->text, &slots, &found);
        erg_slots_nodes_release(&found);
    }
    erg_layout_slots_release(&slots);
    return status;
}

int erg_layouts_places(struct erg_layouts_call *call, struct erg_error *err)
{
    const struct erg_chassis *chassis = NULL;
    struct erg_chassis *loaded = NULL;
    const int status = find_chassis(&call->query, &chassis, &loaded, err) ||
                       erg_layout_query_find(&call->query, err) || place(call, chassis, err);
    erg_chassis_free(loaded);
    return status ? -1 : 0;
}
