/* ergon layout --slots: which slots of a node the groups of the best layout take. */
#include "api/layout_answer.h"
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

static void print_text(FILE *out, const struct erg_layout_slots *slots,
                       const struct erg_slots_found *found)
{
    static const char *const heads[] = {"group",   "stage", "layers", "slots",   "clock",
                                        "hottest", "given", "clock",  "hottest", ""};
    const struct erg_chassis *chassis = slots->request.chassis;
    const struct erg_slots_placement *both[] = {&found->best, &found->given};
    struct erg_table table = {.columns = 10};
    erg_print_heads(&table, heads, 10);
    for (int g = 0; g < slots->request.groups; g++) {
        erg_table_add(&table, "%d", g);
        erg_table_add(&table, "%ld", slots->stage[g]);
        erg_table_add(&table, "%d", found->best.layers[g]);
        for (int i = 0; i < 2; i++) {
            struct erg_text text = {0};
            double slowest = INFINITY, hottest = -INFINITY;
            add_slots(&text, both[i], chassis->gpus, g);
            for (unsigned slot = 0; slot < chassis->gpus; slot++)
                if (both[i]->group[slot] == g) {
                    slowest = fmin(slowest, both[i]->clock_mhz[slot]);
                    hottest = fmax(hottest, both[i]->temperature_c[slot]);
                }
            erg_table_add(&table, "%s", text.data);
            erg_table_add(&table, "%.0f MHz", slowest);
            erg_table_add(&table, "%.1f C", hottest);
            erg_text_release(&text);
        }
        erg_table_add(&table, "%s", "");
    }
    fprintf(out,
            "node %ld of %ld, which has most to do, cooled as %s; slots of each tensor group, "
            "compared with those in the order of "
            "the ranks\n",
            slots->node + 1, slots->nodes, chassis->name);
    erg_print_table(out, &table, "");
    fprintf(out, "pipeline: time %+.2f %%, energy %+.2f %%, hottest GPU %.1f C after %.1f C; %s\n",
            gain_percent(found->given.time_s, found->best.time_s),
            gain_percent(found->given.energy_j, found->best.energy_j), found->best.hottest_c,
            found->given.hottest_c,
            found->exact ? "no other placement is better" : "no exchange of slots helps");
    if (!isnan(found->heat_share))
        fprintf(out, "of the gain, %.0f %% is there because GPUs are not equally hot\n",
                100 * found->heat_share);
}

static json_t *placement_document(const struct erg_layout_slots *slots,
                                  const struct erg_slots_placement *placement)
{
    json_t *list = json_array(), *layers = json_array();
    for (unsigned slot = 0; slot < slots->request.chassis->gpus; slot++)
        json_array_append_new(
            list, erg_json_pack("{s:i, s:o, s:o, s:o}", "group", placement->group[slot],
                                "clock_mhz", erg_json_number(placement->clock_mhz[slot]),
                                "temperature_c", erg_json_number(placement->temperature_c[slot]),
                                "power_w", erg_json_number(placement->mean_w[slot])));
    for (int g = 0; g < slots->request.groups; g++)
        json_array_append_new(layers, json_integer(placement->layers[g]));
    return erg_json_pack("{s:o, s:o, s:o, s:o, s:o}", "slots", list, "layers", layers, "pipeline_s",
                         erg_json_number(placement->time_s), "node_j",
                         erg_json_number(placement->energy_j), "hottest_c",
                         erg_json_number(placement->hottest_c));
}

static void print_json(FILE *out, const struct erg_layout_slots *slots,
                       const struct erg_slots_found *found)
{
    json_t *stages = json_array();
    for (int g = 0; g < slots->request.groups; g++)
        json_array_append_new(stages, json_integer(slots->stage[g]));
    erg_print_json(out,
                   erg_json_pack("{s:i, s:s, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "schema_version",
                                 1, "chassis", slots->request.chassis->name, "node",
                                 json_integer(slots->node), "nodes", json_integer(slots->nodes),
                                 "stages", stages, "exact", found->exact, "heat_share",
                                 erg_json_number(found->heat_share), "given",
                                 placement_document(slots, &found->given), "best",
                                 placement_document(slots, &found->best)));
}

int erg_layouts_places(struct erg_layouts_call *call, struct erg_error *err)
{
    struct erg_layout_query *at = &call->query;
    const struct erg_chassis *chassis = NULL;
    struct erg_chassis *loaded = NULL;
    struct erg_layout_slots slots;
    struct erg_slots_found found;
    int status = find_chassis(at, &chassis, &loaded, err) || erg_layout_query_find(at, err) ||
                 erg_layout_slots_init(&slots, &at->energy, &erg_layout_query_best(at)->layout,
                                       chassis, err);
    if (!status) {
        slots.request.move_layers = true;
        slots.request.goal = call->asked->input.objective == 1 ? ERG_SLOTS_ENERGY : ERG_SLOTS_TIME;
        status = erg_slots_place(&slots.request, &found, err);
    }
    if (!status) {
        print_json(call->json, &slots, &found);
        print_text(call->text, &slots, &found);
    }
    erg_chassis_free(loaded);
    return status ? -1 : 0;
}
