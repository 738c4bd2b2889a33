/* Evaluates a placement: consistent clocks, temperatures, time and energy. */
#include "thermal/slots.h"
#include "thermal/thermal_internal.h"

#include <assert.h>
#include <math.h>

static double voltage(const struct erg_slots_gpu *gpu, double clock_mhz)
{
    return 1 + gpu->voltage_slope_per_ghz * 1e-3 * fmax(clock_mhz - gpu->voltage_knee_mhz, 0);
}

/* f v(f)^2. */
static double strength(const struct erg_slots_gpu *gpu, double clock_mhz)
{
    const double v = voltage(gpu, clock_mhz);
    return clock_mhz * v * v;
}

static double busy_power(const struct erg_slots_gpu *gpu, double clock_mhz, double leak_w)
{
    return gpu->static_w + leak_w + gpu->other_w +
           gpu->dynamic_w * strength(gpu, clock_mhz) / strength(gpu, gpu->reference_mhz);
}

static double leak_at(const struct erg_slots_gpu *gpu, double temperature_c)
{
    return gpu->static_w * gpu->leak_per_k * (temperature_c - gpu->reference_c);
}

/* The clock at which the busy power equals the cap. f v^2 is convex, so Newton's steps from above
 * stay above. */
static double cap_clock(const struct erg_slots_gpu *gpu, double leak_w)
{
    const double wanted = (gpu->cap_w - gpu->static_w - leak_w - gpu->other_w) / gpu->dynamic_w *
                          strength(gpu, gpu->reference_mhz);
    double f = gpu->highest_mhz;
    for (int i = 0; i < 40 && strength(gpu, f) > wanted * (1 + 1e-10); i++) {
        const double v = voltage(gpu, f);
        const double rise = f > gpu->voltage_knee_mhz ? 1e-3 * gpu->voltage_slope_per_ghz : 0;
        f -= (strength(gpu, f) - wanted) / (v * v + 2 * f * v * rise);
    }
    return fmax(f, gpu->lowest_mhz);
}

/* One GPU's part of an iteration, as a function of the clock. */
struct stage_part {
    const struct erg_slots_gpu *gpu;
    double compute_s, fixed_s; /* time of a microbatch: the part proportional to 1 / f, and the
                                * fixed part */
    double full;               /* busy share of the slowest stage */
    double others_s;           /* the time of the slowest other GPU for a microbatch */
};

static double part_time(const struct stage_part *part, double clock_mhz)
{
    return part->compute_s * part->gpu->reference_mhz / clock_mhz + part->fixed_s;
}

static double mean_power(const struct stage_part *part, double clock_mhz, double leak_w)
{
    const double own_s = part_time(part, clock_mhz);
    const double share = part->full * own_s / fmax(own_s, part->others_s);
    return share * busy_power(part->gpu, clock_mhz, leak_w) +
           (1 - share) * (part->gpu->waiting_w + leak_w);
}

/* The highest clock up to `high` at which the mean power is at most `most_w`: brackets it from
 * above, then uses false position, where the value of an end that stays is halved. */
static double heat_clock(const struct stage_part *part, double high, double leak_w, double most_w)
{
    const double lowest = part->gpu->lowest_mhz;
    double low = high, over_high = mean_power(part, high, leak_w) - most_w, over_low = over_high;
    if (over_high <= 0)
        return high;
    do {
        high = low;
        over_high = over_low;
        low = fmax(0.94 * low, lowest);
        over_low = mean_power(part, low, leak_w) - most_w;
    } while (over_low > 0 && low > lowest);
    if (over_low > 0)
        return lowest;
    for (int i = 0, side = 0; i < 40 && high - low > 1e-7 * high && over_low < -1e-9 * most_w;
         i++) {
        double middle = (low * over_high - high * over_low) / (over_high - over_low);
        const double over = mean_power(part, middle, leak_w) - most_w;
        if (over > 0) {
            high = middle;
            over_high = over;
            over_low *= side > 0 ? 0.5 : 1;
            side = 1;
        } else {
            low = middle;
            over_low = over;
            over_high *= side < 0 ? 0.5 : 1;
            side = -1;
        }
    }
    return low;
}

/* Variables of the fixed-point iteration. */
struct rounds {
    const struct erg_slots_request *request;
    struct erg_slots_placement *placement;
    double k_per_w[ERG_CHASSIS_GPUS * ERG_CHASSIS_GPUS];
    double own_s[ERG_CHASSIS_GPUS]; /* times of a microbatch, at each GPU's highest allowed clock */
    double slowest_s;
    double damping; /* convergence of powers */
};

static struct stage_part part_of(const struct rounds *at, unsigned slot)
{
    const struct erg_slots_request *request = at->request;
    const int group = at->placement->group[slot];
    assert(group >= 0 && group < request->groups);
    const double layers = at->placement->layers[group];
    double others_s = request->other_s;
    for (unsigned j = 0; j < request->chassis->gpus; j++)
        others_s = j == slot ? others_s : fmax(others_s, at->own_s[j]);
    return (struct stage_part){
        .gpu = &request->gpu,
        .compute_s = layers * request->compute_s,
        .fixed_s = layers * request->fixed_s + (request->more_s ? request->more_s[group] : 0),
        .full = (double)request->microbatches / (request->microbatches + request->stages - 1),
        .others_s = others_s,
    };
}

/* Updates one GPU, given the heat of the others. */
static double limit_clock(const struct rounds *at, const struct stage_part *part, unsigned slot)
{
    const struct erg_chassis *chassis = at->request->chassis;
    const struct erg_slots_placement *placement = at->placement;
    const double *row = &at->k_per_w[(size_t)slot * chassis->gpus], hold_c = chassis->limit.hold_c;
    double base_c = erg_thermal_inlet(chassis, slot);
    for (unsigned j = 0; j < chassis->gpus; j++)
        base_c += j == slot ? 0 : row[j] * placement->mean_w[j];
    const double leak_w = leak_at(part->gpu, fmin(placement->temperature_c[slot], hold_c));
    assert(row[slot] > 0);
    const double clock = cap_clock(part->gpu, leak_w);
    return heat_clock(part, clock, leak_at(part->gpu, hold_c), (hold_c - base_c) / row[slot]);
}

/* Lower than its limit if it would only wait. */
static double pace_clock(const struct rounds *at, const struct stage_part *part, double limit_mhz)
{
    if (!at->request->pace || at->slowest_s <= part->fixed_s)
        return limit_mhz;
    const double pace =
        part->compute_s * part->gpu->reference_mhz / (at->slowest_s - part->fixed_s);
    return fmin(limit_mhz, fmax(pace, part->gpu->lowest_mhz));
}

/* Returns the largest change of a temperature in K. The time of the slowest stage changes with the
 * temperatures. */
static double go_round(struct rounds *at)
{
    const struct erg_chassis *chassis = at->request->chassis;
    struct erg_slots_placement *placement = at->placement;
    const unsigned n = chassis->gpus;
    double limits[ERG_CHASSIS_GPUS], slowest_s = at->request->other_s;
    for (unsigned g = 0; g < n; g++) {
        const struct stage_part part = part_of(at, g);
        limits[g] = limit_clock(at, &part, g);
        at->own_s[g] = part_time(&part, limits[g]);
        slowest_s = fmax(slowest_s, at->own_s[g]);
    }
    double moved = 100 * fabs(slowest_s / at->slowest_s - 1);
    at->slowest_s = slowest_s;
    for (unsigned g = 0; g < n; g++) {
        const struct stage_part part = part_of(at, g);
        placement->clock_mhz[g] = pace_clock(at, &part, limits[g]);
        const double mean_w = mean_power(&part, placement->clock_mhz[g],
                                         leak_at(part.gpu, placement->temperature_c[g]));
        placement->mean_w[g] += (1 - at->damping) * (mean_w - placement->mean_w[g]);
    }
    for (unsigned g = 0; g < n; g++) {
        double t = erg_thermal_inlet(chassis, g);
        for (unsigned j = 0; j < n; j++)
            t += at->k_per_w[g * n + j] * placement->mean_w[j];
        moved = fmax(moved, fabs(t - placement->temperature_c[g]));
        placement->temperature_c[g] = t;
    }
    return moved;
}

/* If no GPU is limited by heat, powers hardly depend on each other and a few rounds suffice. */
enum { QUICK_ROUNDS = 10, ROUNDS = 200 };

void erg_slots_evaluate(const struct erg_slots_request *request,
                        struct erg_slots_placement *placement)
{
    const unsigned n = request->chassis->gpus;
    struct rounds at = {.request = request, .placement = placement, .slowest_s = 1};
    erg_thermal_matrix(request->chassis, 1, at.k_per_w);
    for (unsigned g = 0; g < n; g++) {
        const struct stage_part part = part_of(&at, g);
        at.own_s[g] = part_time(&part, request->gpu.reference_mhz);
        placement->mean_w[g] = 0.8 * request->gpu.cap_w;
        placement->temperature_c[g] = request->gpu.reference_c;
    }
    double moved = INFINITY;
    for (int round = 0; round < ROUNDS && moved > 1e-5; round++) {
        at.damping = round < QUICK_ROUNDS ? 0 : 0.5;
        moved = go_round(&at);
    }
    placement->time_s = (request->microbatches + request->stages - 1) * at.slowest_s;
    assert(placement->time_s > 0 && isfinite(placement->time_s));
    placement->energy_j = 0;
    placement->hottest_c = -INFINITY;
    for (unsigned g = 0; g < n; g++) {
        placement->energy_j += placement->mean_w[g] * placement->time_s;
        assert(placement->mean_w[g] >= 0 && isfinite(placement->temperature_c[g]));
        placement->hottest_c = fmax(placement->hottest_c, placement->temperature_c[g]);
    }
}
