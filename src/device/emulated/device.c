/*
 * The emulated device: work, clocks and sensors in virtual time.
 *
 * Assumptions beyond the exact model: a clock request takes effect after 5 to 15 ms; after work the
 * GPU holds its clocks for one second at static power, then idles; above 87 C the clock falls by a
 * tenth per kelvin; a lower power cap enforces the limit of a chassis; energy counter and power
 * readings move once per sensor period. All random factors are pure functions of (seed, key of the
 * measurement, GPU, number of the call): polling, other measurements and threads do not change
 * them.
 */
#include "device/emulated/device_internal.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t second_ns = 1000000000;
static const double assumed_limit_c = 87, assumed_slope_per_k = 0.1;

/* Standard deviations of the random factors. */
static const double time_noise = 0.003, energy_noise = 0.005;         /* per enqueue and GPU */
static const double run_time_noise = 0.003, run_energy_noise = 0.005; /* per measurement */
static const double speed_spread = 0.005, counter_gain_spread = 0.01; /* per GPU, permanent */

enum draw { DRAW_TIME, DRAW_ENERGY, DRAW_SPEED, DRAW_GAIN, DRAW_PHASE, DRAW_OFFSET, DRAW_CLOCK };

static uint64_t draw_key(uint64_t stream, enum draw what, uint64_t call, uint64_t gpu)
{
    return erg_hash_u64(erg_hash_u64(stream, (uint64_t)what), erg_hash_u64(call, gpu));
}

static double normal_draw(const struct emulated *self, enum draw what, uint64_t call, uint64_t gpu)
{
    return self->options.noise ? erg_hash_normal(draw_key(self->stream, what, call, gpu)) : 0;
}

static double uniform_draw(const struct emulated *self, enum draw what, uint64_t call, uint64_t gpu)
{
    return erg_hash_uniform(draw_key(self->stream, what, call, gpu));
}

static void emulated_close(struct erg_device *device)
{
    struct emulated *self = emulated_of(device);
    erg_history_release(&self->history);
    free(self->identity);
    free(self->gpus);
    free(self->factors);
    free(self);
}

static void emulated_begin(struct erg_device *device, uint64_t key)
{
    struct emulated *self = emulated_of(device);
    self->stream = erg_hash_u64(self->options.seed, key);
    self->calls = self->span_count = 0;
    self->now_ns = self->busy_until_ns = 0;
    self->clock_mhz = self->previous_clock_mhz = self->gpu->clock_max_mhz;
    self->switch_ns = 0;
    erg_history_begin(&self->history);
    for (size_t g = 0; g < device->gpus; g++) {
        struct emulated_gpu *gpu = &self->gpus[g];
        gpu->phase_ns = to_ns(self->gpu->sensor_period_s * uniform_draw(self, DRAW_PHASE, 0, g));
        gpu->offset_mj = (uint64_t)(1e12 * uniform_draw(self, DRAW_OFFSET, 0, g));
        gpu->latch.tick = INT64_MIN;
    }
}

static int emulated_sync(struct erg_device *device, struct erg_error *err)
{
    (void)err; /* emulated work does not fail */
    struct emulated *self = emulated_of(device);
    if (self->now_ns < self->busy_until_ns)
        self->now_ns = self->busy_until_ns;
    return 0;
}

static int64_t emulated_now_ns(struct erg_device *device)
{
    return emulated_of(device)->now_ns;
}

static void emulated_sleep_ns(struct erg_device *device, int64_t duration_ns)
{
    if (duration_ns > 0)
        emulated_of(device)->now_ns += duration_ns;
}

static int emulated_set_clock(struct erg_device *device, int clock_mhz, struct erg_error *err)
{
    struct emulated *self = emulated_of(device);
    const struct erg_gpu *gpu = self->gpu;
    if (self->options.refuse_clocks)
        return erg_fail(err, ERG_NO_DEVICE,
                        "locking the clock of %s at %d MHz: the device refuses clock locks",
                        gpu->name, clock_mhz);
    if (clock_mhz != 0 && (clock_mhz < gpu->clock_min_mhz || clock_mhz > gpu->clock_max_mhz))
        return erg_fail(err, ERG_FAILED,
                        "locking the clock of %s at %d MHz: expected %d to %d MHz, or 0 to unlock",
                        gpu->name, clock_mhz, gpu->clock_min_mhz, gpu->clock_max_mhz);
    emulated_sync(device, err);
    int steps = (gpu->clock_max_mhz - clock_mhz + gpu->clock_step_mhz / 2) / gpu->clock_step_mhz;
    if (self->now_ns >= self->switch_ns)
        self->previous_clock_mhz = self->clock_mhz;
    self->clock_mhz =
        clock_mhz ? gpu->clock_max_mhz - steps * gpu->clock_step_mhz : gpu->clock_max_mhz;
    self->switch_ns =
        self->now_ns + to_ns(0.005 + 0.010 * uniform_draw(self, DRAW_CLOCK, self->calls++, 0));
    return 0;
}

/* The temperature above which heat lowers clocks. */
static double limit_of(const struct emulated *self)
{
    const struct erg_heat_limit *limit = self->history.node.limit;
    return !limit                                ? assumed_limit_c
           : limit->law == ERG_HEAT_PROPORTIONAL ? limit->soft_c
                                                 : limit->hold_c;
}

/* The clock that the driver requests at a moment, before the power cap. */
static double requested_clock(const struct emulated *self, int64_t at_ns, double temperature_c)
{
    const struct erg_heat_limit *limit = self->history.node.limit;
    const double above_k = temperature_c - limit_of(self);
    double clock = at_ns < self->switch_ns ? self->previous_clock_mhz : self->clock_mhz;
    if (above_k > 0 && !limit)
        clock *= 1 - assumed_slope_per_k * above_k;
    else if (above_k > 0 && limit->law == ERG_HEAT_PROPORTIONAL)
        clock = fmin(clock, self->gpu->clock_max_mhz - limit->slope_mhz_per_k * above_k);
    return fmax(clock, self->gpu->clock_min_mhz);
}

/*
 * The power that keeps a chassis' limit at the sink's current temperature; infinite without a
 * limit.
 */
static double held_power(const struct emulated *self, int64_t at_ns)
{
    const struct erg_node_heat *node = &self->history.node;
    if (!node->limit || node->limit->law != ERG_HEAT_HOLD)
        return INFINITY;
    const double sink_c = erg_history_sink(&self->history, at_ns);
    return fmax((node->limit->hold_c - sink_c) / node->die_k_per_w, self->gpu->static_power_w);
}

/* Runs `repeats` of the steps from start_ns and returns when they end. */
static int64_t run_work(struct emulated *self, const struct erg_step *steps, size_t count,
                        double repeats, double slowdown, int64_t start_ns)
{
    const struct erg_gpu *gpu = self->gpu;
    /* The cap depends on the die's leakage: update it every tenth of the thermal time constant. */
    const struct erg_heat_limit *limit = self->history.node.limit;
    int64_t look_again_ns =
        to_ns((limit ? self->options.chassis->die_time_s : gpu->thermal_time_s) / 10);
    const double limit_c = limit_of(self);
    int64_t at_ns = start_ns;
    while (repeats > 0) {
        double temperature_c = erg_history_temperature(&self->history, at_ns);
        double clock = requested_clock(self, at_ns, temperature_c);
        const double held_w = held_power(self, at_ns);
        struct erg_emulated_result run;
        struct erg_gpu held = *gpu; /* heat acts as a lower cap */
        held.power_cap_w = fmin(held.power_cap_w, held_w);
        const bool is_hot = temperature_c > limit_c && !(limit && limit->law == ERG_HEAT_HOLD);
        erg_emulated_evaluate(&held, self->stack, steps, count, clock, temperature_c, &run);
        double repeat_s = run.time_s * slowdown;
        if (!(repeat_s > 0))
            break; /* steps without work take no time */
        struct erg_load load = {
            .dynamic_w =
                (run.energy_j - erg_static_power(gpu, temperature_c) * run.time_s) / repeat_s,
            .static_w = gpu->static_power_w,
            .leak_per_k = self->history.heat ? gpu->leak_per_k : 0,
            .clock_mhz = run.clock_effective_mhz,
            .reasons = (run.throttle <= 0.5                   ? 0u
                        : held.power_cap_w < gpu->power_cap_w ? ERG_REASON_SW_THERMAL
                                                              : ERG_REASON_SW_POWER_CAP) |
                       (is_hot ? ERG_REASON_SW_THERMAL : 0u),
        };
        double left_ns = repeats * repeat_s * 1e9;
        double piece_ns = left_ns;
        if (at_ns < self->switch_ns)
            piece_ns = fmin(piece_ns, (double)(self->switch_ns - at_ns));
        if (self->history.heat) {
            double settled_c = erg_history_settled(&self->history, &load);
            struct erg_emulated_result later = run;
            if (run.throttle <= 0)
                erg_emulated_evaluate(&held, self->stack, steps, count, clock, settled_c, &later);
            if (later.throttle > 0 || fmax(settled_c, temperature_c) > limit_c)
                piece_ns = fmin(piece_ns, (double)look_again_ns);
        }
        erg_history_append(&self->history, at_ns, &load, self->factors);
        at_ns += (int64_t)llround(piece_ns);
        repeats = piece_ns < left_ns ? repeats - piece_ns / (repeat_s * 1e9) : 0;
    }
    return at_ns;
}

/*
 * Sets the power of the first GPU while it waits for the others: from `from_ns` to the end of the
 * history.
 */
static void wait_for_others(struct emulated *self, int64_t from_ns)
{
    const struct erg_gpu *gpu = self->gpu;
    struct erg_load load = {.dynamic_w = gpu->blocking_power_w - gpu->static_power_w,
                            .static_w = gpu->static_power_w,
                            .leak_per_k = self->history.heat ? gpu->leak_per_k : 0,
                            .clock_mhz = self->clock_mhz};
    double *factors = erg_xcalloc(self->base.gpus, sizeof *factors);
    factors[0] = 1;
    erg_history_append(&self->history, from_ns, &load, factors);
    free(factors);
}

/* Queues work that all GPUs but the first begin `delay_ns` later. */
static int queue(struct erg_device *device, const struct erg_step *steps, size_t count,
                 size_t repeats, int64_t delay_ns, struct erg_error *err)
{
    struct emulated *self = emulated_of(device);
    if (erg_steps_check(steps, count, err) != 0)
        return -1;
    uint64_t call = self->calls++;
    double slowest = -INFINITY; /* ranks wait for each other in every communication */
    for (size_t g = 0; g < device->gpus; g++) {
        slowest = fmax(slowest, self->gpus[g].slowness +
                                    time_noise * normal_draw(self, DRAW_TIME, call + 1, g));
        self->factors[g] = (1 + energy_noise * normal_draw(self, DRAW_ENERGY, call + 1, g)) *
                           (1 + run_energy_noise * normal_draw(self, DRAW_ENERGY, 0, 0));
    }
    double slowdown =
        exp(slowest - self->usual_slowness + run_time_noise * normal_draw(self, DRAW_TIME, 0, 0));

    int64_t start_ns = self->now_ns > self->busy_until_ns ? self->now_ns : self->busy_until_ns;
    erg_history_forget(&self->history, self->now_ns - 3 * second_ns);
    erg_history_truncate(&self->history, start_ns);
    if (delay_ns > 0)
        wait_for_others(self, start_ns);
    self->busy_until_ns =
        run_work(self, steps, count, (double)repeats, slowdown, start_ns + delay_ns);
    self->spans[self->span_count++ % ERG_DEVICE_SPANS] =
        (struct erg_device_span){start_ns, self->busy_until_ns};

    /* The state after the last queued work. */
    const struct erg_gpu *gpu = self->gpu;
    struct erg_load idle = {.static_w = gpu->static_power_w,
                            .leak_per_k = self->history.heat ? gpu->leak_per_k : 0,
                            .clock_mhz = self->clock_mhz,
                            .reasons = ERG_REASON_IDLE};
    erg_history_append(&self->history, self->busy_until_ns, &idle, NULL);
    idle = (struct erg_load){
        .static_w = gpu->idle_power_w, .clock_mhz = gpu->clock_min_mhz, .reasons = ERG_REASON_IDLE};
    erg_history_append(&self->history, self->busy_until_ns + second_ns, &idle, NULL);
    return 0;
}

static int emulated_enqueue(struct erg_device *device, const struct erg_step *steps, size_t count,
                            size_t repeats, struct erg_error *err)
{
    return queue(device, steps, count, repeats, 0, err);
}

static int emulated_stagger(struct erg_device *device, const struct erg_step *steps, size_t count,
                            int64_t delay_ns, struct erg_error *err)
{
    return queue(device, steps, count, 1, delay_ns, err);
}

static int emulated_span(struct erg_device *device, size_t back, size_t gpu,
                         struct erg_device_span *span, struct erg_error *err)
{
    struct emulated *self = emulated_of(device);
    if (back >= ERG_DEVICE_SPANS || back >= self->span_count || gpu >= device->gpus)
        return erg_fail(err, ERG_FAILED,
                        "reading when work ran: enqueue %zu before the latest on GPU %zu is not "
                        "remembered",
                        back, gpu);
    *span = self->spans[(self->span_count - 1 - back) % ERG_DEVICE_SPANS];
    return 0;
}

static const struct erg_device_methods methods = {
    .close = emulated_close,
    .begin = emulated_begin,
    .set_clock = emulated_set_clock,
    .enqueue = emulated_enqueue,
    .stagger = emulated_stagger,
    .sync = emulated_sync,
    .now_ns = emulated_now_ns,
    .sleep_ns = emulated_sleep_ns,
    .sense = erg_emulated_sense,
    .span = emulated_span,
};

struct erg_emulated_options erg_emulated_options_default(void)
{
    return (struct erg_emulated_options){.gpus = 8, .seed = 1, .noise = true, .heat = true};
}

/* The mean of the largest of n standard normal numbers: the integral over x of
 * [x > 0] - Phi(x)^n. */
static double expected_maximum(size_t n)
{
    const int steps = 320;
    const double reach = 8, step = 2 * reach / steps;
    double sum = 0;
    for (int i = 0; i < steps; i++) {
        double x = -reach + (i + 0.5) * step;
        sum += step * ((x > 0) - pow(0.5 * erfc(-x / sqrt(2)), (double)n));
    }
    return sum;
}

void erg_emulated_constants(const struct erg_gpu *gpu, const struct erg_stack *stack,
                            char text[ERG_EMULATED_CONSTANTS_BYTES])
{
    snprintf(text, ERG_EMULATED_CONSTANTS_BYTES, "constants %016" PRIx64,
             erg_hash_u64(erg_gpu_fingerprint(gpu), erg_stack_fingerprint(stack)));
}

static char *describe(const struct emulated *self)
{
    struct erg_text text = {0};
    char constants[ERG_EMULATED_CONSTANTS_BYTES];
    erg_emulated_constants(self->gpu, self->stack, constants);
    erg_text_printf(&text, "emulated %zu x %s, stack %s, %s, seed %" PRIu64, self->base.gpus,
                    self->gpu->name, self->stack->name, constants, self->options.seed);
    if (!self->options.noise)
        erg_text_add(&text, ", no noise");
    if (!self->options.heat)
        erg_text_add(&text, ", no heat");
    if (self->options.chassis)
        erg_text_printf(&text, ", chassis %s %016" PRIx64, self->options.chassis->name,
                        erg_chassis_fingerprint(self->options.chassis));
    if (self->options.refuse_clocks)
        erg_text_add(&text, ", refusing clocks");
    if (self->options.refuse_counter)
        erg_text_add(&text, ", refusing the energy counter");
    if (self->options.refuse_power)
        erg_text_add(&text, ", refusing power");
    return text.data;
}

int erg_emulated_open(struct erg_device **device, const struct erg_gpu *gpu,
                      const struct erg_stack *stack, const struct erg_emulated_options *options,
                      struct erg_error *err)
{
    if (options->gpus < 1 || options->gpus > 1024)
        return erg_fail(err, ERG_FAILED,
                        "opening an emulated group of %zu GPUs: expected 1 to 1024", options->gpus);
    struct emulated *self = erg_xcalloc(1, sizeof *self);
    size_t gpus = options->gpus;
    self->gpu = gpu;
    self->stack = stack;
    self->options = *options;
    self->base = (struct erg_device){.methods = &methods, .gpus = gpus};
    self->identity = describe(self);
    self->base.identity = self->identity;
    self->history =
        (struct erg_history){.gpu = gpu,
                             .heat = options->heat,
                             .gpus = gpus,
                             .node = erg_node_heat(options->heat ? options->chassis : NULL, gpu)};
    self->gpus = erg_xcalloc(gpus, sizeof *self->gpus);
    self->factors = erg_xcalloc(gpus, sizeof *self->factors);
    self->stream = options->seed; /* properties of the GPUs do not depend on the key */
    for (size_t g = 0; g < gpus; g++) {
        self->gpus[g].slowness = speed_spread * normal_draw(self, DRAW_SPEED, 0, g);
        self->gpus[g].gain = 1 + counter_gain_spread * normal_draw(self, DRAW_GAIN, 0, g);
    }
    /*
     * The model's constants were fitted to groups of GPUs, so they describe the usual slowest one.
     */
    if (options->noise)
        self->usual_slowness = expected_maximum(gpus) * hypot(speed_spread, time_noise);
    emulated_begin(&self->base, 0);
    *device = &self->base;
    return 0;
}
