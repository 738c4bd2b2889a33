/* Places the groups of several nodes at one pace, and moves layers between their stages. */
#include "thermal/slots_nodes.h"

#include "base/memory.h"
#include "thermal/thermal_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 3 };

struct nodes_search {
    const struct erg_slots_nodes_request *request;
    bool exact;
};

static int stage_of(const struct nodes_search *at, int node, int group)
{
    return at->request->stage[node * at->request->node.groups + group];
}

static double more_s(const struct nodes_search *at, int stage)
{
    return at->request->more_s ? at->request->more_s[stage] : 0;
}

static int least_layers(const struct nodes_search *at, int stage)
{
    return at->request->least ? at->request->least[stage] : 1;
}

/* ---- one node ---- */

/* A node's request, which points into this. */
struct node_request {
    struct erg_slots_request request;
    int layers[ERG_CHASSIS_GPUS];
    double more_s[ERG_CHASSIS_GPUS];
};

static void fill_node(struct node_request *of, const struct nodes_search *at,
                      const struct erg_chassis *chassis, int node, const int *layers, double pace_s)
{
    of->request = at->request->node;
    of->request.chassis = chassis;
    of->request.layers = of->layers;
    of->request.more_s = of->more_s;
    of->request.other_s = pace_s;
    for (int g = 0; g < of->request.groups; g++) {
        of->layers[g] = layers[stage_of(at, node, g)];
        of->more_s[g] = more_s(at, stage_of(at, node, g));
    }
}

static bool same_work(const struct node_request *a, const struct node_request *b)
{
    for (int g = 0; g < a->request.groups; g++)
        if (a->layers[g] != b->layers[g] || a->more_s[g] != b->more_s[g])
            return false;
    return true;
}

/* ---- all nodes at a pace ---- */

static void nodes_init(struct erg_slots_nodes *nodes, const struct nodes_search *at,
                       const int *layers)
{
    const size_t stages = (size_t)at->request->node.stages;
    *nodes = (struct erg_slots_nodes){
        .node = erg_xcalloc((size_t)at->request->nodes, sizeof *nodes->node),
        .layers = erg_xcalloc(stages, sizeof *nodes->layers),
    };
    memcpy(nodes->layers, layers, stages * sizeof *layers);
}

static void nodes_release(struct erg_slots_nodes *nodes)
{
    free(nodes->node);
    free(nodes->layers);
    *nodes = (struct erg_slots_nodes){0};
}

static void take(struct erg_slots_nodes *to, struct erg_slots_nodes *from)
{
    nodes_release(to);
    *to = *from;
    *from = (struct erg_slots_nodes){0};
}

/* The time of the slowest stage of all nodes for a microbatch. */
static double pace_of(const struct nodes_search *at, const struct erg_slots_nodes *nodes)
{
    const struct erg_slots_request *of = &at->request->node;
    double most_s = 0;
    for (int n = 0; n < at->request->nodes; n++)
        most_s = fmax(most_s, nodes->node[n].time_s / (of->microbatches + of->stages - 1));
    return most_s;
}

/* Computes the results for the slots and layers of all nodes, alone and then at their pace. */
static void evaluate(const struct nodes_search *at, const struct erg_chassis *chassis,
                     struct erg_slots_nodes *nodes)
{
    for (int turn = 0; turn < 2; turn++) {
        const double pace_s = turn ? pace_of(at, nodes) : 0;
        for (int n = 0; n < at->request->nodes; n++) {
            struct node_request of;
            fill_node(&of, at, chassis, n, nodes->layers, pace_s);
            memcpy(nodes->node[n].layers, of.layers, sizeof of.layers);
            erg_slots_evaluate(&of.request, &nodes->node[n]);
        }
    }
    nodes->time_s = nodes->energy_j = 0;
    nodes->hottest_c = -INFINITY;
    for (int n = 0; n < at->request->nodes; n++) {
        nodes->time_s = fmax(nodes->time_s, nodes->node[n].time_s);
        nodes->energy_j += nodes->node[n].energy_j;
        nodes->hottest_c = fmax(nodes->hottest_c, nodes->node[n].hottest_c);
    }
}

/* Searches the slots of all nodes for the layers in `nodes`; equal nodes are searched once. */
static int place(struct nodes_search *at, struct erg_slots_nodes *nodes, struct erg_error *err)
{
    const struct erg_chassis *chassis = at->request->node.chassis;
    for (int turn = 0; turn < 2; turn++) {
        const double pace_s = turn ? pace_of(at, nodes) : 0;
        for (int n = 0; n < at->request->nodes; n++) {
            struct node_request of, other;
            struct erg_slots_found found;
            int alike = -1;
            fill_node(&of, at, chassis, n, nodes->layers, pace_s);
            for (int k = 0; k < n && alike < 0; k++) {
                fill_node(&other, at, chassis, k, nodes->layers, pace_s);
                alike = same_work(&of, &other) ? k : -1;
            }
            if (alike < 0 && erg_slots_place(&of.request, &found, err) != 0)
                return -1;
            nodes->node[n] = alike < 0 ? found.best : nodes->node[alike];
            at->exact &= alike >= 0 || found.exact;
        }
    }
    evaluate(at, chassis, nodes);
    return 0;
}

static double objective(const struct erg_slots_nodes_request *request,
                        const struct erg_slots_nodes *of)
{
    return request->node.goal == ERG_SLOTS_HEAT     ? of->hottest_c
           : request->node.goal == ERG_SLOTS_ENERGY ? of->energy_j
                                                    : of->time_s;
}

static bool is_better(const struct nodes_search *at, const struct erg_slots_nodes *a,
                      const struct erg_slots_nodes *b)
{
    const bool time = at->request->node.goal == ERG_SLOTS_TIME;
    const double first[2] = {objective(at->request, a), time ? a->energy_j : a->time_s};
    const double second[2] = {objective(at->request, b), time ? b->energy_j : b->time_s};
    return erg_slots_is_better(first, second);
}

/* ---- layers ---- */

/* Seconds of a layer of each stage on its slowest GPU, at the present clocks. */
static void layer_seconds(double *layer_s, const struct nodes_search *at,
                          const struct erg_slots_nodes *nodes)
{
    const struct erg_slots_request *of = &at->request->node;
    for (int stage = 0; stage < of->stages; stage++)
        layer_s[stage] = 0;
    for (int n = 0; n < at->request->nodes; n++)
        for (unsigned slot = 0; slot < of->chassis->gpus; slot++) {
            double *own_s = &layer_s[stage_of(at, n, nodes->node[n].group[slot])];
            *own_s = fmax(*own_s,
                          of->compute_s * of->gpu.reference_mhz / nodes->node[n].clock_mhz[slot] +
                              of->fixed_s);
        }
}

/* Each layer goes to the stage that is fastest with it. Returns whether any layer moved. */
static bool balance(int *layers, const struct nodes_search *at, const struct erg_slots_nodes *nodes)
{
    const int stages = at->request->node.stages;
    double *layer_s = erg_xcalloc((size_t)stages, sizeof *layer_s);
    int left = 0;
    layer_seconds(layer_s, at, nodes);
    for (int stage = 0; stage < stages; stage++) {
        layers[stage] = least_layers(at, stage);
        left += nodes->layers[stage] - layers[stage];
    }
    for (; left > 0; left--) {
        int fastest = 0;
        double least_s = INFINITY;
        for (int stage = 0; stage < stages; stage++) {
            const double own_s = (layers[stage] + 1) * layer_s[stage] + more_s(at, stage);
            if (own_s < least_s * (1 - ERG_SLOTS_BETTER)) {
                least_s = own_s;
                fastest = stage;
            }
        }
        layers[fastest]++;
    }
    free(layer_s);
    return memcmp(layers, nodes->layers, (size_t)stages * sizeof *layers) != 0;
}

static int slowest_stage(const struct nodes_search *at, const struct erg_slots_nodes *nodes)
{
    const int stages = at->request->node.stages;
    double *layer_s = erg_xcalloc((size_t)stages, sizeof *layer_s), most_s = -1;
    int slowest = 0;
    layer_seconds(layer_s, at, nodes);
    for (int stage = 0; stage < stages; stage++) {
        const double own_s = nodes->layers[stage] * layer_s[stage] + more_s(at, stage);
        if (own_s > most_s * (1 + ERG_SLOTS_BETTER)) {
            most_s = own_s;
            slowest = stage;
        }
    }
    free(layer_s);
    return slowest;
}

/* Moves a layer of the slowest stage to another one; returns whether that helped. */
static bool move_layer(const struct nodes_search *at, struct erg_slots_nodes *best)
{
    const int from = slowest_stage(at, best);
    struct erg_slots_nodes kept = {0};
    for (int to = 0; to < at->request->node.stages; to++) {
        struct erg_slots_nodes tried;
        if (to == from || best->layers[from] <= least_layers(at, from))
            continue;
        nodes_init(&tried, at, best->layers);
        memcpy(tried.node, best->node, (size_t)at->request->nodes * sizeof *tried.node);
        tried.layers[from]--;
        tried.layers[to]++;
        evaluate(at, at->request->node.chassis, &tried);
        if (is_better(at, &tried, kept.node ? &kept : best))
            take(&kept, &tried);
        nodes_release(&tried);
    }
    const bool helped = kept.node;
    if (helped)
        take(best, &kept);
    return helped;
}

/* Layers and slots in turn, from this placement on. */
static int go_in_turn(struct nodes_search *at, struct erg_slots_nodes *nodes, struct erg_error *err)
{
    int *layers = erg_xcalloc((size_t)at->request->node.stages, sizeof *layers);
    int status = 0;
    for (int turn = 0; turn < MOST_TURNS && !status && balance(layers, at, nodes); turn++) {
        struct erg_slots_nodes tried;
        nodes_init(&tried, at, layers);
        status = place(at, &tried, err);
        const bool better = !status && is_better(at, &tried, nodes);
        if (better)
            take(nodes, &tried);
        nodes_release(&tried);
        if (!better)
            break;
    }
    free(layers);
    while (!status && move_layer(at, nodes))
        ;
    return status;
}

static int move_layers(struct nodes_search *at, struct erg_slots_nodes *best, struct erg_error *err)
{
    struct erg_slots_nodes cold;
    nodes_init(&cold, at, at->request->layers);
    for (int n = 0; n < at->request->nodes; n++) {
        struct node_request of;
        fill_node(&of, at, at->request->node.chassis, n, cold.layers, 0);
        erg_slots_cold_first(&of.request, &cold.node[n]);
    }
    evaluate(at, at->request->node.chassis, &cold);
    const int status = go_in_turn(at, best, err) || go_in_turn(at, &cold, err) ? -1 : 0;
    if (!status && is_better(at, &cold, best))
        take(best, &cold);
    nodes_release(&cold);
    return status;
}

/* ---- public functions ---- */

/* The gain that the best placement would have in slots that are all alike, as a share of its gain.
 */
static double share_of_heat(const struct nodes_search *at, struct erg_slots_nodes_found *found)
{
    const struct erg_slots_nodes_request *request = at->request;
    const double gain = 1 - objective(request, &found->best) / objective(request, &found->given);
    struct erg_chassis_slot slots[ERG_CHASSIS_GPUS];
    struct erg_chassis alike;
    double mean_c = 0, alike_of[2];
    if (!(gain > ERG_SLOTS_BETTER))
        return NAN;
    for (int n = 0; n < request->nodes; n++)
        for (unsigned slot = 0; slot < request->node.chassis->gpus; slot++)
            mean_c += found->given.node[n].temperature_c[slot] /
                      ((double)request->nodes * request->node.chassis->gpus);
    erg_slots_alike(&alike, slots, request->node.chassis, mean_c);
    for (int best = 0; best < 2; best++) {
        const struct erg_slots_nodes *of = best ? &found->best : &found->given;
        struct erg_slots_nodes there;
        nodes_init(&there, at, of->layers);
        memcpy(there.node, of->node, (size_t)request->nodes * sizeof *there.node);
        evaluate(at, &alike, &there);
        alike_of[best] = objective(request, &there);
        nodes_release(&there);
    }
    return 1 - (1 - alike_of[1] / alike_of[0]) / gain;
}

int erg_slots_place_nodes(const struct erg_slots_nodes_request *request,
                          struct erg_slots_nodes_found *found, struct erg_error *err)
{
    const struct erg_chassis *chassis = request->node.chassis;
    struct nodes_search at = {.request = request, .exact = true};
    *found = (struct erg_slots_nodes_found){.heat_share = NAN};
    nodes_init(&found->given, &at, request->layers);
    nodes_init(&found->best, &at, request->layers);
    if (place(&at, &found->best, err) != 0) {
        erg_slots_nodes_release(found);
        return -1;
    }
    for (int n = 0; n < request->nodes; n++) {
        struct node_request of;
        fill_node(&of, &at, chassis, n, request->layers, 0);
        erg_slots_given(&of.request, &found->given.node[n]);
    }
    evaluate(&at, chassis, &found->given);
    if (!is_better(&at, &found->best, &found->given)) {
        memcpy(found->best.node, found->given.node,
               (size_t)request->nodes * sizeof *found->best.node);
        evaluate(&at, chassis, &found->best);
    }
    if (request->move_layers && move_layers(&at, &found->best, err) != 0) {
        erg_slots_nodes_release(found);
        return -1;
    }
    found->exact = at.exact;
    found->heat_share = share_of_heat(&at, found);
    return 0;
}

void erg_slots_nodes_release(struct erg_slots_nodes_found *found)
{
    nodes_release(&found->given);
    nodes_release(&found->best);
}
