/* Searches the best placement: all of them, or exchanges of slots; and moves layers between
 * groups. */
#include "thermal/slots.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MOST_PLACEMENTS = 20000, MOST_TURNS = 3 };
static const double better = 1e-7; /* a smaller gain counts as none */

struct slots_search {
    const struct erg_slots_request *request;
    struct erg_slots_found *found;
    int lanes[ERG_CHASSIS_GPUS], lane_count; /* the lanes in use */
    bool like_before[ERG_CHASSIS_GPUS];      /* a lane is like the one before it */
    struct erg_slots_placement tried;
    int layers[ERG_CHASSIS_GPUS]; /* start of every placement */
    int left[ERG_CHASSIS_GPUS];   /* slots that a group still needs */
};

/* ---- comparison ---- */

static void objectives(const struct erg_slots_request *request,
                       const struct erg_slots_placement *of, double values[2])
{
    const bool heat = request->goal == ERG_SLOTS_HEAT, energy = request->goal == ERG_SLOTS_ENERGY;
    values[0] = heat ? of->hottest_c : energy ? of->energy_j : of->time_s;
    values[1] = heat || energy ? of->time_s : of->energy_j;
}

static bool is_better(const struct erg_slots_request *request, const struct erg_slots_placement *a,
                      const struct erg_slots_placement *b)
{
    double first[2], second[2];
    objectives(request, a, first);
    objectives(request, b, second);
    if (first[0] < second[0] * (1 - better))
        return true;
    return first[0] <= second[0] * (1 + better) && first[1] < second[1] * (1 - better);
}

static void look_once(struct slots_search *at)
{
    erg_slots_evaluate(at->request, &at->tried);
    at->found->looked++;
    if (is_better(at->request, &at->tried, &at->found->best))
        at->found->best = at->tried;
}

/*
 * Distributes layers so that the slowest group is as fast as possible at the present clocks: each
 * layer goes to the group that is fastest with it. Returns true if any layer moved.
 */
static bool balance(struct slots_search *at)
{
    const struct erg_slots_request *request = at->request;
    double layer_s[ERG_CHASSIS_GPUS] = {0};
    int layers[ERG_CHASSIS_GPUS] = {0}, left = -request->groups;
    for (unsigned slot = 0; slot < request->chassis->gpus; slot++) {
        double *own_s = &layer_s[at->tried.group[slot]];
        *own_s = fmax(*own_s,
                      request->compute_s * request->gpu.reference_mhz / at->tried.clock_mhz[slot] +
                          request->fixed_s);
    }
    for (int g = 0; g < request->groups; g++) {
        left += at->tried.layers[g];
        layers[g] = 1;
    }
    assert(left >= 0); /* each group had at least one layer */
    for (; left > 0; left--) {
        int fastest = 0;
        double least_s = INFINITY;
        for (int g = 0; g < request->groups; g++) {
            const double more_s = request->more_s ? request->more_s[g] : 0;
            const double own_s = (layers[g] + 1) * layer_s[g] + more_s;
            if (own_s < least_s * (1 - better)) {
                least_s = own_s;
                fastest = g;
            }
        }
        layers[fastest]++;
    }
    const size_t bytes = (size_t)request->groups * sizeof *layers;
    const bool moved = memcmp(layers, at->tried.layers, bytes) != 0;
    memcpy(at->tried.layers, layers, bytes);
    return moved;
}

static void look(struct slots_search *at)
{
    look_once(at);
    for (int turn = 0; turn < MOST_TURNS && at->request->move_layers && balance(at); turn++)
        look_once(at);
}

/* ---- all placements ---- */

static bool same_slot(const struct erg_chassis *chassis, unsigned a, unsigned b)
{
    const struct erg_chassis_slot *x = &chassis->slots[a], *y = &chassis->slots[b];
    return x->position == y->position && x->die_k_per_w == y->die_k_per_w &&
           x->sink_k_per_w == y->sink_k_per_w && x->preheat_k == y->preheat_k &&
           x->sink == (int)a && y->sink == (int)b;
}

/* The next slot of a lane from `from` on; the number of slots if there is none. */
static unsigned next_slot(const struct erg_chassis *chassis, int lane, unsigned from)
{
    while (from < chassis->gpus && chassis->slots[from].lane != lane)
        from++;
    return from;
}

/* Slots of two lanes are alike, in their order. */
static bool lanes_alike(const struct erg_chassis *chassis, int a, int b)
{
    unsigned x = next_slot(chassis, a, 0), y = next_slot(chassis, b, 0);
    while (x < chassis->gpus && y < chassis->gpus && same_slot(chassis, x, y)) {
        x = next_slot(chassis, a, x + 1);
        y = next_slot(chassis, b, y + 1);
    }
    return x == chassis->gpus && y == chassis->gpus;
}

static void find_lanes(struct slots_search *at)
{
    const struct erg_chassis *chassis = at->request->chassis;
    for (int lane = 0; lane < ERG_CHASSIS_GPUS; lane++)
        if (next_slot(chassis, lane, 0) < chassis->gpus)
            at->lanes[at->lane_count++] = lane;
    for (int i = 1; i < at->lane_count; i++)
        at->like_before[i] = lanes_alike(chassis, at->lanes[i - 1], at->lanes[i]);
}

/* In lanes that are alike, placements are sorted, so that each is evaluated once. */
static bool is_first_of_its_kind(const struct slots_search *at)
{
    const struct erg_chassis *chassis = at->request->chassis;
    for (int i = 1; i < at->lane_count; i++) {
        unsigned x = next_slot(chassis, at->lanes[i - 1], 0);
        unsigned y = next_slot(chassis, at->lanes[i], 0);
        while (at->like_before[i] && x < chassis->gpus &&
               at->tried.group[x] == at->tried.group[y]) {
            x = next_slot(chassis, at->lanes[i - 1], x + 1);
            y = next_slot(chassis, at->lanes[i], y + 1);
        }
        if (at->like_before[i] && x < chassis->gpus && at->tried.group[x] > at->tried.group[y])
            return false;
    }
    return true;
}

static void look_at_all(struct slots_search *at, unsigned slot)
{
    if (slot == at->request->chassis->gpus) {
        if (is_first_of_its_kind(at)) {
            memcpy(at->tried.layers, at->layers, sizeof at->layers);
            look(at);
        }
        return;
    }
    for (int group = 0; group < at->request->groups; group++)
        if (at->left[group] > 0) {
            at->left[group]--;
            at->tried.group[slot] = group;
            look_at_all(at, slot + 1);
            at->left[group]++;
        }
}

/* n! / (size!)^groups, divided by the orders of lanes that are alike; above the limit any larger
 * number. */
static double count_placements(const struct slots_search *at)
{
    const int n = (int)at->request->chassis->gpus, size = n / at->request->groups;
    double count = lgamma(n + 1.0) - at->request->groups * lgamma(size + 1.0);
    for (int i = 1, run = 1; i < at->lane_count; i++) {
        run = at->like_before[i] ? run + 1 : 1;
        count -= log(run);
    }
    return exp(count);
}

/* ---- exchanges ---- */

static void exchange(struct slots_search *at)
{
    const unsigned n = at->request->chassis->gpus;
    struct erg_slots_placement from;
    do {
        from = at->found->best;
        for (unsigned a = 0; a < n; a++)
            for (unsigned b = a + 1; b < n; b++) {
                if (from.group[a] == from.group[b])
                    continue;
                at->tried = from;
                at->tried.group[a] = from.group[b];
                at->tried.group[b] = from.group[a];
                look(at);
            }
    } while (is_better(at->request, &at->found->best, &from));
}

/* The group with the most work takes the coolest slots, and so on. */
static void look_at_cold_first(struct slots_search *at)
{
    const struct erg_slots_request *request = at->request;
    const unsigned n = request->chassis->gpus, size = n / (unsigned)request->groups;
    const struct erg_slots_placement *given = &at->found->given;
    double power_w[ERG_CHASSIS_GPUS], temperature_c[ERG_CHASSIS_GPUS];
    bool has_slot[ERG_CHASSIS_GPUS] = {false}, is_placed[ERG_CHASSIS_GPUS] = {false};
    for (unsigned slot = 0; slot < n; slot++)
        power_w[slot] = request->gpu.cap_w;
    erg_thermal_steady(request->chassis, power_w, temperature_c);
    at->tried = *given;
    for (int turn = 0; turn < request->groups; turn++) {
        int heaviest = -1;
        for (int g = 0; g < request->groups; g++)
            if (!is_placed[g] && (heaviest < 0 || given->layers[g] > given->layers[heaviest]))
                heaviest = g;
        assert(heaviest >= 0);
        is_placed[heaviest] = true;
        for (unsigned i = 0; i < size; i++) {
            int coolest = -1;
            for (int slot = 0; slot < (int)n; slot++)
                if (!has_slot[slot] &&
                    (coolest < 0 || temperature_c[slot] < temperature_c[coolest] - better))
                    coolest = slot;
            assert(coolest >= 0); /* the groups fill the slots evenly */
            has_slot[coolest] = true;
            at->tried.group[coolest] = heaviest;
        }
    }
    look(at);
}

static void place_slots(struct slots_search *at)
{
    at->found->exact = count_placements(at) <= MOST_PLACEMENTS;
    if (!at->found->exact) {
        exchange(at);
        look_at_cold_first(at);
        exchange(at);
        return;
    }
    memcpy(at->layers, at->found->best.layers, sizeof at->layers);
    for (int g = 0; g < at->request->groups; g++)
        at->left[g] = (int)at->request->chassis->gpus / at->request->groups;
    look_at_all(at, 0);
}

/* Moves one layer from one group to another, while that helps. */
static void move_layers(struct slots_search *at)
{
    const int groups = at->request->groups;
    struct erg_slots_placement from;
    do {
        from = at->found->best;
        for (int a = 0; a < groups; a++)
            for (int b = 0; b < groups; b++) {
                if (a == b || from.layers[a] < 2)
                    continue;
                at->tried = from;
                at->tried.layers[a]--;
                at->tried.layers[b]++;
                look(at);
            }
    } while (is_better(at->request, &at->found->best, &from));
}

/* ---- public function ---- */

void erg_slots_given(const struct erg_slots_request *request, struct erg_slots_placement *placement)
{
    const unsigned size = request->chassis->gpus / (unsigned)request->groups;
    memset(placement, 0, sizeof *placement);
    assert(size * (unsigned)request->groups == request->chassis->gpus);
    for (unsigned slot = 0; slot < request->chassis->gpus; slot++)
        placement->group[slot] = (int)(slot / size);
    memcpy(placement->layers, request->layers, (size_t)request->groups * sizeof *request->layers);
    erg_slots_evaluate(request, placement);
}

/* The relative gain of the best placement, and the gain that its layers would have in slots that
 * are all alike. */
static double share_of_heat(const struct erg_slots_request *request,
                            const struct erg_slots_found *found)
{
    struct erg_chassis_slot slots[ERG_CHASSIS_GPUS];
    struct erg_chassis alike = *request->chassis;
    struct erg_slots_request other = *request;
    struct erg_slots_placement given = found->given, best = found->best;
    double before[2], after[2], mean_c = 0;
    objectives(request, &given, before);
    objectives(request, &best, after);
    const double gain = 1 - after[0] / before[0];
    if (!(gain > better))
        return NAN;
    for (unsigned g = 0; g < alike.gpus; g++)
        mean_c += given.temperature_c[g] / alike.gpus;
    for (unsigned g = 0; g < alike.gpus; g++)
        slots[g] = (struct erg_chassis_slot){.position = ERG_SLOT_FRONT,
                                             .lane = (int)g,
                                             .sink = (int)g,
                                             .die_k_per_w = 1e-4,
                                             .sink_k_per_w = 1e-4};
    alike.slots = slots;
    alike.inlet_c = fmin(mean_c, alike.limit.hold_c - 1);
    other.chassis = &alike;
    erg_slots_evaluate(&other, &given);
    erg_slots_evaluate(&other, &best);
    objectives(request, &given, before);
    objectives(request, &best, after);
    return 1 - (1 - after[0] / before[0]) / gain;
}

static int check(const struct erg_slots_request *request, struct erg_error *err)
{
    const struct erg_chassis *chassis = request->chassis;
    if (request->groups < 1 || chassis->gpus % (unsigned)request->groups != 0)
        return erg_fail(
            err, ERG_FAILED,
            "placing %d groups in the %u slots of %s: expected groups that fill them evenly",
            request->groups, chassis->gpus, chassis->name);
    if (chassis->fan.target_c > 0 || chassis->limit.law != ERG_HEAT_HOLD)
        return erg_fail(err, ERG_FAILED,
                        "placing groups in %s: expected a chassis with constant fans and the "
                        "limit's law \"hold\"",
                        chassis->name);
    return 0;
}

int erg_slots_place(const struct erg_slots_request *request, struct erg_slots_found *found,
                    struct erg_error *err)
{
    struct slots_search at = {.request = request, .found = found};
    if (check(request, err) != 0)
        return -1;
    *found = (struct erg_slots_found){.looked = 1};
    erg_slots_given(request, &found->given);
    found->best = found->given;
    find_lanes(&at);
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        const struct erg_slots_placement before = found->best;
        place_slots(&at);
        if (request->move_layers)
            move_layers(&at);
        if (!request->move_layers || !is_better(request, &found->best, &before))
            break;
    }
    found->heat_share = share_of_heat(request, found);
    return 0;
}
