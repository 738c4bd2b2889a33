/* The sensors of the emulated device: their values and their periods. */
#include "device/emulated/device_internal.h"

#include <math.h>

static const int64_t poll_ns = 5000000; /* reading energy and power, measured on H200 */

static void read_latch(struct emulated *self, size_t g, int64_t tick, int64_t period_ns)
{
    struct emulated_gpu *gpu = &self->gpus[g];
    int64_t at_ns = gpu->phase_ns + tick * period_ns;
    double energy_j = gpu->gain * erg_history_energy(&self->history, g, at_ns);
    double before_j = gpu->gain * erg_history_energy(&self->history, g, at_ns - period_ns);
    gpu->latch = (struct sensor_latch){
        .tick = tick,
        .energy_mj = gpu->offset_mj + (uint64_t)(energy_j * 1e3),
        .power_w = (energy_j - before_j) / ((double)period_ns * 1e-9),
        .temperature_c = round(erg_history_temperature(&self->history, at_ns)),
    };
}

int erg_emulated_sense(struct erg_device *device, struct erg_sample *samples, struct erg_error *err)
{
    (void)err;
    struct emulated *self = emulated_of(device);
    self->now_ns += poll_ns;
    const struct erg_history_piece *piece =
        &self->history.pieces[erg_history_find(&self->history, self->now_ns)];
    int step_mhz = self->gpu->clock_step_mhz;
    int64_t period_ns = to_ns(self->gpu->sensor_period_s);
    for (size_t g = 0; g < device->gpus; g++) {
        /* The phase is below one period, so the first tick number may be -1. */
        int64_t tick = (self->now_ns - self->gpus[g].phase_ns + period_ns) / period_ns - 1;
        if (tick != self->gpus[g].latch.tick)
            read_latch(self, g, tick, period_ns);
        const struct sensor_latch *latch = &self->gpus[g].latch;
        samples[g] = (struct erg_sample){
            .time_ns = self->now_ns,
            .energy_mj = latch->energy_mj,
            .power_w = latch->power_w,
            .temperature_c = latch->temperature_c,
            .clock_mhz = step_mhz * (int)lround(piece->clock_mhz / step_mhz),
            .reasons = piece->reasons,
            .valid = ERG_SENSE_TEMPERATURE | ERG_SENSE_CLOCK | ERG_SENSE_REASONS,
        };
        if (!self->options.refuse_counter)
            samples[g].valid |= ERG_SENSE_ENERGY;
        else
            samples[g].energy_mj = 0;
        if (!self->options.refuse_power)
            samples[g].valid |= ERG_SENSE_POWER;
        else
            samples[g].power_w = 0;
    }
    return 0;
}
