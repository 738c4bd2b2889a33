/* GPUs of a chassis in virtual time, recorded by sensors such as real ones have. */
#include "probe/heat_fit.h"

#include "base/memory.h"
#include "base/random.h"
#include "device/emulated/power.h"
#include "telemetry/recording.h"
#include "thermal/virtual_sensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_TICKS = 10, SLOW_POLLS = 3 }; /* powers every 100 ms, temperatures every 300 ms */
static const double power_noise = 0.01;
static const double overshoot = 1.15; /* of the cap, by work at the highest clock */
static const int64_t begin_ns = 1000000000;

struct world {
    const struct erg_chassis *chassis;
    const struct erg_gpu *gpu;
    struct erg_thermal_state heat;
    struct erg_thermal_load load; /* without a power of its own: limits of clocks */
    struct erg_thermal_governor governors[ERG_CHASSIS_GPUS];
    struct erg_virtual_sensor sensors[ERG_CHASSIS_GPUS];
    struct erg_series power[ERG_CHASSIS_GPUS], temperature[ERG_CHASSIS_GPUS];
    uint64_t seed, tick;
};

double erg_heat_in_turns(const void *context, size_t gpu, double at_s)
{
    const struct erg_heat_turns *turns = context;
    const double turn_s = turns->load_s + turns->rest_s;
    const double since_s = at_s - turns->begin_s - turn_s * (double)gpu;
    return since_s >= 0 && since_s < turns->load_s ? 1 : 0;
}

/* At rest clocks are low and nothing leaks; else static power, and dynamic power by the clock. */
static double draw(const struct world *world, size_t g, double activity)
{
    const struct erg_gpu *gpu = world->gpu;
    if (!(activity > 0))
        return gpu->idle_power_w;
    const double clock = world->governors[g].clock_mhz, highest = gpu->clock_max_mhz;
    const double volt = erg_gpu_voltage(gpu, clock) / erg_gpu_voltage(gpu, highest);
    const double noise =
        erg_hash_normal(erg_hash_at(erg_hash_u64(world->seed, g), world->tick / POLL_TICKS));
    const double most_w = overshoot * gpu->power_cap_w - gpu->static_power_w;
    return gpu->static_power_w * (1 + gpu->leak_per_k * (world->heat.die_c[g] - gpu->reference_c)) +
           activity * most_w * clock / highest * volt * volt * (1 + power_noise * noise);
}

static void begin(struct world *world, const struct erg_chassis *chassis, const struct erg_gpu *gpu,
                  uint64_t seed)
{
    double power_w[ERG_CHASSIS_GPUS];
    memset(world, 0, sizeof *world);
    world->chassis = chassis;
    world->gpu = gpu;
    world->seed = seed;
    world->load.request_mhz = world->load.highest_mhz = gpu->clock_max_mhz;
    world->load.lowest_mhz = gpu->clock_min_mhz;
    world->load.cap_w = gpu->power_cap_w;
    for (unsigned g = 0; g < chassis->gpus; g++) {
        power_w[g] = gpu->idle_power_w;
        world->governors[g].clock_mhz = gpu->clock_max_mhz;
        world->sensors[g] =
            erg_virtual_sensor_hopper(erg_hash_u64(seed, 100 + g), chassis->sensor_lag_s);
    }
    erg_thermal_begin(&world->heat, chassis, power_w);
}

static void tick(struct world *world, erg_heat_activity *activity, const void *context)
{
    const double tick_s = 1e-3 * ERG_GOVERNOR_TICK_MS;
    double power_w[ERG_CHASSIS_GPUS] = {0};
    for (unsigned g = 0; g < world->chassis->gpus; g++) {
        const double at_s = world->heat.time_s;
        power_w[g] = draw(world, g, activity(context, g, at_s));
        erg_series_add(&world->power[g], at_s, power_w[g]);
        erg_series_add(&world->temperature[g], at_s, world->heat.die_c[g]);
    }
    erg_thermal_step(&world->heat, power_w, tick_s);
    for (unsigned g = 0; g < world->chassis->gpus; g++)
        erg_governor_tick(&world->governors[g], &world->chassis->limit, &world->load, power_w[g],
                          world->heat.die_c[g]);
    world->tick++;
}

static void set(struct erg_gpu_sample *sample, enum erg_metric metric, int64_t value,
                int64_t time_ns)
{
    sample->readings[metric] = (struct erg_reading){value, time_ns};
    sample->valid |= UINT64_C(1) << metric;
}

static int record_poll(const struct world *world, struct erg_recorder *recorder, size_t g,
                       size_t poll, const double *at_s, const int64_t *shown_c,
                       struct erg_error *err)
{
    const struct erg_virtual_sensor *sensor = &world->sensors[g];
    const struct erg_series *power = &world->power[g];
    struct erg_sampler_item item = {.gpu = g,
                                    .scheduled_ns = begin_ns + (int64_t)llround(1e9 * at_s[poll])};
    const int64_t now_ns = item.scheduled_ns;
    const double refreshed_s = fmax(erg_virtual_refresh(sensor, at_s[poll]), 0);
    item.sample.start_ns = item.sample.end_ns = now_ns;
    set(&item.sample, ERG_METRIC_ENERGY, erg_virtual_energy(sensor, power, at_s[poll]),
        begin_ns + (int64_t)llround(1e9 * refreshed_s));
    set(&item.sample, ERG_METRIC_POWER_INSTANT,
        (int64_t)llround(1e3 * erg_virtual_power(sensor, power, at_s[poll])), now_ns);
    if (poll % SLOW_POLLS == 0) {
        set(&item.sample, ERG_METRIC_TEMPERATURE, shown_c[poll], now_ns);
        set(&item.sample, ERG_METRIC_MARGIN,
            (int64_t)llround(world->chassis->limit.hold_c) - shown_c[poll], now_ns);
    }
    return erg_recorder_add(recorder, &item, err);
}

static int record(const struct world *world, const char *path, struct erg_error *err)
{
    const unsigned gpus = world->chassis->gpus;
    const size_t polls = world->tick / POLL_TICKS;
    struct erg_gpu_info *infos = erg_xcalloc(gpus, sizeof *infos);
    double *at_s = erg_xcalloc(polls, sizeof *at_s);
    int64_t *shown_c = erg_xcalloc(gpus * polls, sizeof *shown_c);
    struct erg_recorder *recorder;
    for (size_t i = 0; i < polls; i++)
        at_s[i] = 1e-3 * ERG_GOVERNOR_TICK_MS * POLL_TICKS * (double)i;
    for (unsigned g = 0; g < gpus; g++) {
        snprintf(infos[g].vendor, sizeof infos[g].vendor, "emulated");
        snprintf(infos[g].name, sizeof infos[g].name, "%s", world->gpu->name);
        snprintf(infos[g].uuid, sizeof infos[g].uuid, "EMULATED-%u", g);
        infos[g].index = (int)g;
        erg_virtual_temperatures(&world->sensors[g], &world->temperature[g], at_s, polls,
                                 &shown_c[g * polls]);
    }
    int status = erg_recorder_open_virtual(&recorder, path, world->chassis->name, infos, gpus, err);
    if (status == 0) {
        for (size_t i = 0; i < polls && status == 0; i++)
            for (unsigned g = 0; g < gpus && status == 0; g++)
                status = record_poll(world, recorder, g, i, at_s, &shown_c[g * polls], err);
        if (erg_recorder_close(recorder, status ? NULL : err) != 0)
            status = -1;
    }
    free(infos);
    free(at_s);
    free(shown_c);
    return status;
}

int erg_heat_emulate(const char *path, const struct erg_chassis *chassis, const struct erg_gpu *gpu,
                     erg_heat_activity *activity, const void *context, double seconds,
                     uint64_t seed, struct erg_error *err)
{
    struct world *world = erg_xcalloc(1, sizeof *world);
    begin(world, chassis, gpu, seed);
    while (world->heat.time_s < seconds)
        tick(world, activity, context);
    int status = record(world, path, err);
    for (unsigned g = 0; g < chassis->gpus; g++) {
        erg_series_release(&world->power[g]);
        erg_series_release(&world->temperature[g]);
    }
    free(world);
    return status;
}
