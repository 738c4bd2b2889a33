/*
 * Placement in warm slots: the model against the tables of one lane, the search against all
 * placements, and rules that nobody put in.
 */
#include "check.h"

#include "base/random.h"
#include "thermal/slots_nodes.h"

static const struct erg_slots_gpu hopper = {
    .lowest_mhz = 300,
    .highest_mhz = 1980,
    .reference_mhz = 1600,
    .static_w = 120,
    .leak_per_k = 0.012,
    .reference_c = 64,
    .other_w = 54,
    .dynamic_w = 520,
    .waiting_w = 125,
    .voltage_knee_mhz = 1200,
    .voltage_slope_per_ghz = 0.42879,
    .cap_w = 693.75,
};

static struct erg_chassis_slot eight_slots[8];

static char name[] = "eight";

static struct erg_chassis eight(double inlet_c)
{
    for (int i = 0; i < 8; i++)
        eight_slots[i] = (struct erg_chassis_slot){
            i < 4 ? ERG_SLOT_FRONT : ERG_SLOT_REAR, i % 4, i, 0.0196, 0.0294, 0};
    return (struct erg_chassis){
        .name = name,
        .slots = eight_slots,
        .gpus = 8,
        .inlet_c = inlet_c,
        .air_k_per_w = 0.0245,
        .die_time_s = 2,
        .sink_time_s = 60,
        .limit = {.law = ERG_HEAT_HOLD, .hold_c = 87, .slowdown_k = 5},
    };
}

/* Two groups of four, in front and behind: the alternating pipelines computed apart. */
static void the_model_gives_the_tables(void **state)
{
    (void)state;
    static const struct {
        int layers[2], stages, microbatches;
        double inlet_c, ghz[2], c[2], w[2];
    } cases[] = {
        {{20, 20}, 4, 64, 29, {1.6053, 1.5709}, {61.23, 77.91}, {657.8, 669.2}},
        {{21, 19}, 4, 64, 29, {1.6043, 1.5747}, {61.74, 76.08}, {668.1, 626.8}},
        {{12, 12}, 8, 128, 41, {1.5830, 1.4802}, {72.09, 87.00}, {634.4, 621.6}},
        {{13, 11}, 8, 128, 41, {1.5799, 1.5530}, {73.58, 86.41}, {665.0, 594.3}},
        {{20, 20}, 4, 64, 42, {1.5816, 1.4454}, {72.78, 87.00}, {628.1, 604.3}},
        {{21, 19}, 4, 64, 42, {1.5774, 1.4107}, {74.78, 87.00}, {669.0, 583.9}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct erg_chassis chassis = eight(cases[c].inlet_c);
        const struct erg_slots_request request = {
            .chassis = &chassis,
            .gpu = hopper,
            .groups = 2,
            .layers = cases[c].layers,
            .compute_s = 0.88,
            .fixed_s = 0.12,
            .microbatches = cases[c].microbatches,
            .stages = cases[c].stages,
        };
        struct erg_slots_placement given;
        erg_slots_given(&request, &given);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(given.group[i], i / 4);
            assert_near(1e-3 * given.clock_mhz[i], cases[c].ghz[i / 4], 0.0003);
            assert_near(given.temperature_c[i], cases[c].c[i / 4], 0.02);
            assert_near(given.mean_w[i], cases[c].w[i / 4], 0.6);
        }
    }
}

static double objective(const struct erg_slots_request *request,
                        const struct erg_slots_placement *of)
{
    return request->goal == ERG_SLOTS_TIME     ? of->time_s
           : request->goal == ERG_SLOTS_ENERGY ? of->energy_j
                                               : of->hottest_c;
}

/* Groups in front and behind, lane by lane, do not fall: of lanes that are alike one order is
 * enough for most cases. */
static bool rises(const int *group)
{
    for (int lane = 1; lane < 4; lane++)
        if (4 * group[lane] + group[lane + 4] < 4 * group[lane - 1] + group[lane + 3])
            return false;
    return true;
}

/* The least of all ways to fill the slots from `slot` on. */
static double least_of_all(const struct erg_slots_request *request, bool all_orders,
                           struct erg_slots_placement *placement, unsigned slot, int *left,
                           size_t *count)
{
    double least = INFINITY;
    if (slot == request->chassis->gpus && !all_orders && !rises(placement->group))
        return INFINITY;
    if (slot == request->chassis->gpus) {
        ++*count;
        erg_slots_evaluate(request, placement);
        return objective(request, placement);
    }
    for (int group = 0; group < request->groups; group++)
        if (left[group]) {
            left[group]--;
            placement->group[slot] = group;
            least =
                fmin(least, least_of_all(request, all_orders, placement, slot + 1, left, count));
            left[group]++;
        }
    return least;
}

static double draw(uint64_t key, uint64_t number, double low, double high)
{
    return low + (high - low) * erg_hash_uniform(erg_hash_at(key, number));
}

static void the_search_finds_the_best_of_all(void **state)
{
    (void)state;
    const int cases = 200;
    size_t gains = 0, held = 0;
    for (int c = 0; c < cases; c++) {
        const uint64_t key = (uint64_t)c + 1;
        struct erg_chassis chassis = eight(draw(key, 0, 25, 52));
        int layers[4], left[4] = {2, 2, 2, 2};
        double more_s[4];
        chassis.air_k_per_w = draw(key, 1, 0, 0.04);
        chassis.lane_mix = c % 4 == 3 ? 0.2 : 0;
        for (int i = 0; i < 4; i++) {
            layers[i] = 8 + (int)draw(key, 10 + (uint64_t)i, 0, 8);
            more_s[i] = draw(key, 20 + (uint64_t)i, 0, 2);
        }
        for (int i = 0; i < 8 && c % 3 == 2; i++) { /* and slots that are not alike */
            eight_slots[i].sink_k_per_w *= draw(key, 30 + (uint64_t)(i / 2), 0.8, 1.2);
            eight_slots[i].preheat_k = draw(key, 40 + (uint64_t)i, 0, 4);
        }
        const struct erg_slots_request request = {
            .chassis = &chassis,
            .gpu = hopper,
            .groups = 4,
            .layers = layers,
            .more_s = more_s,
            .compute_s = 0.88,
            .fixed_s = 0.12,
            .microbatches = 32,
            .stages = 4,
            .goal = (enum erg_slots_goal)(c % 3 == 0   ? ERG_SLOTS_TIME
                                          : c % 3 == 1 ? ERG_SLOTS_ENERGY
                                          : c % 2      ? ERG_SLOTS_HEAT
                                                       : ERG_SLOTS_TIME),
            .pace = c % 5 == 4,
        };
        struct erg_slots_found found;
        struct erg_slots_placement all;
        struct erg_error err;
        size_t count = 0;
        assert_ok(erg_slots_place(&request, &found, &err), &err);
        all = found.given;
        const bool all_orders = c % 3 == 2 || c % 20 == 0;
        const double least = least_of_all(&request, all_orders, &all, 0, left, &count);
        assert_true(all_orders ? count == 2520 : count >= 105 && count < 300);
        assert_true(found.exact);
        assert_near(objective(&request, &found.best), least, 1e-6 * least);
        gains += found.best.time_s < found.given.time_s * (1 - 1e-7) ||
                 found.best.energy_j < found.given.energy_j * (1 - 1e-7) ||
                 found.best.hottest_c < found.given.hottest_c * (1 - 1e-7);
        held += found.given.hottest_c > 86.9;
    }
    assert_true(gains > 50 && held > 20);
}

/* Slots in the order front, rear, front, rear: groups of four in a row are neither. */
static struct erg_chassis mixed(double inlet_c)
{
    const struct erg_chassis chassis = eight(inlet_c);
    for (int i = 0; i < 8; i++) {
        eight_slots[i].position = i % 2 ? ERG_SLOT_REAR : ERG_SLOT_FRONT;
        eight_slots[i].lane = i / 2;
    }
    return chassis;
}

/* Nodes with two groups of one stage each, or as `stage` says. To be released. */
static struct erg_slots_nodes_found place_mixed(double inlet_c, int nodes, const int *stage,
                                                const int *layers,
                                                const struct erg_slots_nodes_request *of)
{
    static const int in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct erg_chassis chassis = mixed(inlet_c);
    struct erg_slots_nodes_request request = *of;
    struct erg_slots_nodes_found found;
    struct erg_error err;
    request.node.chassis = &chassis;
    request.node.gpu = hopper;
    request.node.groups = 2;
    request.node.compute_s = 0.88;
    request.node.fixed_s = 0.12;
    request.nodes = nodes;
    request.stage = stage ? stage : in_order;
    request.layers = layers;
    assert_ok(erg_slots_place_nodes(&request, &found, &err), &err);
    return found;
}

static void rules_come_out(void **state)
{
    (void)state;
    const int llama[] = {20, 20, 20, 20}, gpt3[] = {12, 12, 12, 12, 12, 12, 12, 12};
    const int halves[] = {0, 1, 2, 3};
    struct erg_slots_nodes_request request = {.node = {.microbatches = 64, .stages = 4},
                                              .move_layers = true};
    /* Cool: the cap is everything, and no layer moves. */
    struct erg_slots_nodes_found found = place_mixed(29, 2, halves, llama, &request);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(found.best.layers[stage], 20);
    erg_slots_nodes_release(&found);
    /* Hot: a group lies in one class, and the one in front has a layer more, on both nodes. */
    found = place_mixed(42, 2, halves, llama, &request);
    for (int n = 0; n < 2; n++) {
        const int front = found.best.layers[2 * n] > 20 ? 0 : 1;
        for (int i = 0; i < 8; i++)
            assert_int_equal(found.best.node[n].group[i], i % 2 ? 1 - front : front);
        assert_int_equal(found.best.layers[2 * n + front], 21);
        assert_int_equal(found.best.layers[2 * n + 1 - front], 19);
    }
    assert_near(100 * (found.best.time_s / found.given.time_s - 1), -2.82, 0.05);
    assert_true(found.heat_share > 0.99);
    erg_slots_nodes_release(&found);
    /* Twelve layers: one is too much. */
    request.node.stages = 8;
    request.node.microbatches = 128;
    found = place_mixed(42, 4, NULL, gpt3, &request);
    for (int stage = 0; stage < 8; stage++)
        assert_int_equal(found.best.layers[stage], 12);
    erg_slots_nodes_release(&found);
    /* Front clocks fall to the pace of the rear: equal time or less, less energy. */
    request.move_layers = false;
    struct erg_slots_nodes_found free_clocks = place_mixed(29, 4, NULL, gpt3, &request);
    request.node.pace = true;
    struct erg_slots_nodes_found paced = place_mixed(29, 4, NULL, gpt3, &request);
    assert_true(paced.given.time_s <= free_clocks.given.time_s * (1 + 1e-9));
    assert_true(paced.given.energy_j < 0.995 * free_clocks.given.energy_j);
    const double *clock_mhz = free_clocks.given.node[0].clock_mhz;
    assert_close(paced.given.node[0].clock_mhz[0], paced.given.node[0].clock_mhz[1], 1e-6);
    assert_true(clock_mhz[0] > clock_mhz[1] + 10);
    erg_slots_nodes_release(&free_clocks);
    erg_slots_nodes_release(&paced);
    /* What heat has no part in: layers that were split badly, also between nodes. */
    const int uneven[] = {23, 23, 17, 17};
    request = (struct erg_slots_nodes_request){.node = {.microbatches = 64, .stages = 4},
                                               .move_layers = true};
    found = place_mixed(20, 2, halves, uneven, &request);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(found.best.layers[stage], 20);
    assert_true(found.heat_share < 0.1);
    erg_slots_nodes_release(&found);
}

/* Two replicas of a stage on one node have the same layers, so that one of them behind gains
 * nothing by a layer less; the second node, with less to do, takes layers of the first. */
static void replicas_have_the_same_layers(void **state)
{
    (void)state;
    const int stage[] = {0, 0, 1, 1}, layers[] = {20, 20};
    const double more_s[] = {4, 0};
    const struct erg_slots_nodes_request request = {
        .node = {.microbatches = 64, .stages = 2}, .more_s = more_s, .move_layers = true};
    struct erg_slots_nodes_found found = place_mixed(42, 2, stage, layers, &request);
    for (int n = 0; n < 2; n++)
        for (int g = 0; g < 2; g++)
            assert_int_equal(found.best.node[n].layers[g], found.best.layers[n]);
    assert_int_equal(found.best.layers[0] + found.best.layers[1], 40);
    assert_int_equal(found.best.layers[0], 18);
    erg_slots_nodes_release(&found);
}

/* The least time of nodes is that of the node which is slowest when each is placed best, and of
 * placements that hold it the others take the least energy: against all of two nodes of two groups.
 */
static void nodes_share_a_pace(void **state)
{
    (void)state;
    const int stage[] = {0, 1, 2, 3};
    for (int c = 0; c < 20; c++) {
        const uint64_t key = (uint64_t)c + 1;
        const double inlet_c = draw(key, 0, 35, 50);
        int layers[4];
        for (int i = 0; i < 4; i++)
            layers[i] = 10 + (int)draw(key, 10 + (uint64_t)i, 0, 6);
        const struct erg_slots_nodes_request request = {.node = {.microbatches = 32, .stages = 4}};
        struct erg_slots_nodes_found found = place_mixed(inlet_c, 2, stage, layers, &request);
        const struct erg_chassis chassis = mixed(inlet_c);
        double least_s = 0, energy_j = 0;
        assert_true(found.exact);
        for (int paced = 0; paced < 2; paced++)
            for (int n = 0; n < 2; n++) {
                struct erg_slots_request node = request.node;
                struct erg_slots_placement all;
                double own_s = INFINITY, own_j = INFINITY;
                node.chassis = &chassis;
                node.gpu = hopper;
                node.groups = 2;
                node.layers = &layers[2 * n];
                node.compute_s = 0.88;
                node.fixed_s = 0.12;
                node.other_s = paced ? least_s / (32 + 3) : 0;
                erg_slots_given(&node, &all);
                for (unsigned mask = 0; mask < 256; mask++) {
                    int size = 0;
                    for (int slot = 0; slot < 8; slot++)
                        size += all.group[slot] = mask >> slot & 1;
                    if (size != 4)
                        continue;
                    erg_slots_evaluate(&node, &all);
                    own_s = fmin(own_s, all.time_s);
                    if (paced && all.time_s <= least_s * (1 + 1e-7))
                        own_j = fmin(own_j, all.energy_j);
                }
                if (!paced)
                    least_s = fmax(least_s, own_s);
                else
                    energy_j += own_j;
            }
        assert_close(found.best.time_s, least_s, 1e-6);
        assert_close(found.best.energy_j, energy_j, 1e-6);
        erg_slots_nodes_release(&found);
    }
}

static void many_groups_are_exchanged(void **state)
{
    (void)state;
    enum { SLOTS = 32 };
    static struct erg_chassis_slot slots[SLOTS];
    struct erg_chassis chassis = eight(44);
    int layers[8];
    for (int i = 0; i < SLOTS; i++)
        slots[i] = (struct erg_chassis_slot){
            i % 2 ? ERG_SLOT_REAR : ERG_SLOT_FRONT, i / 2, i, 0.0196, 0.0294, 0.1 * (i % 3)};
    for (int g = 0; g < 8; g++)
        layers[g] = 10 + g % 3;
    chassis.slots = slots;
    chassis.gpus = SLOTS;
    struct erg_slots_request request = {.chassis = &chassis,
                                        .gpu = hopper,
                                        .groups = 8,
                                        .layers = layers,
                                        .compute_s = 0.88,
                                        .fixed_s = 0.12,
                                        .microbatches = 32,
                                        .stages = 8};
    struct erg_slots_found found;
    struct erg_error err;
    assert_ok(erg_slots_place(&request, &found, &err), &err);
    assert_false(found.exact);
    assert_true(found.best.time_s < 0.98 * found.given.time_s);
    int size[8] = {0};
    for (int i = 0; i < SLOTS; i++)
        size[found.best.group[i]]++;
    for (int g = 0; g < 8; g++)
        assert_int_equal(size[g], 4);
    request.groups = 5;
    assert_fails(erg_slots_place(&request, &found, &err), &err,
                 "expected groups that fill them evenly");
    request.groups = 8;
    chassis.limit.law = ERG_HEAT_PROPORTIONAL;
    assert_fails(erg_slots_place(&request, &found, &err), &err, "the limit's law");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_gives_the_tables),
        cmocka_unit_test(rules_come_out),
        cmocka_unit_test(replicas_have_the_same_layers),
        cmocka_unit_test(nodes_share_a_pace),
        cmocka_unit_test(many_groups_are_exchanged),
        cmocka_unit_test(the_search_finds_the_best_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
