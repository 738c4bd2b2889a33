/* The CUDA device on rank 0: passes its requests to all ranks, and reads their sensors. */
#include "device/cuda/cuda_device_internal.h"
#include "device/packed_steps.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/clock_group.h"
#include "telemetry/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- rank 0 ---- */

struct cuda_device {
    struct erg_device base;
    char identity[256];
    struct device_rank rank;
    struct erg_gpus *sensors;
    size_t *sensor;                 /* [gpus]: index in `sensors` of each rank's GPU */
    struct erg_clock_group *clocks; /* NULL: clocks are not ours to set */
    struct erg_error failure;       /* of a call that cannot report it */
};

static struct cuda_device *self(struct erg_device *device)
{
    return (struct cuda_device *)(void *)device;
}

/* Sends a command to all ranks and executes it here. */
static int command(struct cuda_device *device, struct device_message message, char *bytes,
                   struct erg_error *err)
{
    struct erg_rendezvous *rendezvous = device->rank.options->rendezvous;
    return erg_rendezvous_broadcast(rendezvous, 0, &message, sizeof message, DEVICE_ANSWER_S,
                                    err) ||
                   (message.bytes && erg_rendezvous_broadcast(rendezvous, 0, bytes, message.bytes,
                                                              DEVICE_ANSWER_S, err)) ||
                   erg_device_obey(&device->rank, &message, bytes, err)
               ? -1
               : 0;
}

static void close_device(struct erg_device *base)
{
    struct cuda_device *device = self(base);
    struct erg_error ignored;
    if (!command(device, (struct device_message){.command = COMMAND_CLOSE}, NULL, &ignored))
        erg_device_rank_close(&device->rank, &ignored);
    if (erg_clock_group_close(device->clocks, &ignored))
        erg_log(ERG_LOG_ERROR, "%s", ignored.message);
    erg_gpus_close(device->sensors);
    free(device->sensor);
    free(device);
}

static void begin(struct erg_device *base, uint64_t key)
{
    (void)key; /* real GPUs keep their past */
    struct cuda_device *device = self(base);
    command(device, (struct device_message){.command = COMMAND_BEGIN}, NULL, &device->failure);
}

static int queue(struct cuda_device *device, const struct erg_step *steps, size_t count,
                 size_t repeats, int64_t others_delay_ns, struct erg_error *err)
{
    if (device->failure.status) {
        *err = device->failure;
        return -1;
    }
    struct device_message message = {.command = COMMAND_ENQUEUE,
                                     .steps = (uint32_t)count,
                                     .repeats = repeats,
                                     .bytes = erg_packed_steps_bytes(steps, count),
                                     .delay_ns = others_delay_ns};
    char *bytes = erg_xmalloc(message.bytes);
    erg_packed_steps_write(steps, count, bytes);
    int status = command(device, message, bytes, err);
    free(bytes);
    return status;
}

static int enqueue(struct erg_device *base, const struct erg_step *steps, size_t count,
                   size_t repeats, struct erg_error *err)
{
    return queue(self(base), steps, count, repeats, 0, err);
}

static int stagger(struct erg_device *base, const struct erg_step *steps, size_t count,
                   int64_t delay_ns, struct erg_error *err)
{
    return queue(self(base), steps, count, 1, delay_ns, err);
}

static int sync_device(struct erg_device *base, struct erg_error *err)
{
    return command(self(base), (struct device_message){.command = COMMAND_SYNC}, NULL, err);
}

static int set_clock(struct erg_device *base, int clock_mhz, struct erg_error *err)
{
    struct cuda_device *device = self(base);
    if (device->clocks)
        return sync_device(base, err) || erg_clock_group_set(device->clocks, clock_mhz, err) ? -1
                                                                                             : 0;
    if (clock_mhz == 0)
        return 0;
    return erg_fail(
        err, ERG_NO_DEVICE,
        "locking the clock of %s at %d MHz: clocks are locked only if that was requested "
        "explicitly",
        base->identity, clock_mhz);
}

static int64_t now_ns(struct erg_device *base)
{
    (void)base;
    return erg_now_ns();
}

static void sleep_ns(struct erg_device *base, int64_t duration_ns)
{
    (void)base;
    erg_sleep_ns(duration_ns);
}

static void take(struct erg_sample *sample, const struct erg_gpu_sample *read)
{
    static const struct {
        enum erg_metric metric;
        enum erg_sense sense;
    } known[] = {
        {ERG_METRIC_ENERGY, ERG_SENSE_ENERGY},
        {ERG_METRIC_POWER_INSTANT, ERG_SENSE_POWER},
        {ERG_METRIC_TEMPERATURE, ERG_SENSE_TEMPERATURE},
        {ERG_METRIC_SM_CLOCK, ERG_SENSE_CLOCK},
        {ERG_METRIC_REASONS, ERG_SENSE_REASONS},
    };
    *sample = (struct erg_sample){.time_ns = read->start_ns + (read->end_ns - read->start_ns) / 2};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (erg_gpu_has(read, known[i].metric))
            sample->valid |= known[i].sense;
    sample->energy_mj = (uint64_t)read->readings[ERG_METRIC_ENERGY].value;
    sample->power_w = 1e-3 * (double)read->readings[ERG_METRIC_POWER_INSTANT].value;
    sample->temperature_c = (double)read->readings[ERG_METRIC_TEMPERATURE].value;
    sample->clock_mhz = (int)read->readings[ERG_METRIC_SM_CLOCK].value;
    sample->reasons = (uint32_t)read->readings[ERG_METRIC_REASONS].value;
    if (sample->valid & ERG_SENSE_ENERGY)
        sample->time_ns = read->readings[ERG_METRIC_ENERGY].time_ns;
}

static int sense(struct erg_device *base, struct erg_sample *samples, struct erg_error *err)
{
    struct cuda_device *device = self(base);
    const uint64_t wanted = 1ull << ERG_METRIC_ENERGY | 1ull << ERG_METRIC_POWER_INSTANT |
                            1ull << ERG_METRIC_TEMPERATURE | 1ull << ERG_METRIC_SM_CLOCK |
                            1ull << ERG_METRIC_REASONS;
    for (size_t g = 0; g < base->gpus; g++) {
        struct erg_gpu_sample read = {0};
        erg_gpu_read(device->sensors, device->sensor[g], wanted, &read);
        if (read.lost)
            return erg_fail(err, ERG_NO_DEVICE,
                            "reading the sensors of GPU %zu of %s: it has "
                            "fallen off the bus",
                            g, base->identity);
        take(&samples[g], &read);
    }
    return 0;
}

static int span(struct erg_device *base, size_t back, size_t gpu, struct erg_device_span *out,
                struct erg_error *err)
{
    (void)err;
    *out = self(base)->rank.spans[gpu * ERG_DEVICE_SPANS + back];
    return 0;
}

static int repeat(struct erg_device *base, bool repeatable, struct erg_error *err)
{
    struct device_message message = {.command = COMMAND_REPEAT, .pass = repeatable};
    return command(self(base), message, NULL, err);
}

static int clear(struct erg_device *base, struct erg_error *err)
{
    return command(self(base), (struct device_message){.command = COMMAND_CLEAR}, NULL, err);
}

static int note(struct erg_device *base, size_t pass, struct erg_error *err)
{
    struct device_message message = {.command = COMMAND_NOTE, .pass = pass};
    return command(self(base), message, NULL, err);
}

static int compare(struct erg_device *base, size_t pass, size_t reference,
                   struct erg_difference *list, size_t *count, struct erg_error *err)
{
    struct device_rank *rank = &self(base)->rank;
    struct device_message message = {
        .command = COMMAND_COMPARE, .pass = pass, .reference = reference};
    if (command(self(base), message, NULL, err))
        return -1;
    *count = rank->difference_count;
    for (size_t i = 0; i < *count; i++) {
        list[i] = rank->differences[i];
        for (size_t g = 1; g < base->gpus; g++) {
            const struct erg_difference *other = &rank->differences[g * ERG_DIFFERENCES + i];
            list[i].copies += other->copies;
            list[i].identical += other->identical;
            if (!(other->relative <= list[i].relative))
                list[i].relative = other->relative;
        }
    }
    return 0;
}

static const struct erg_device_numbers numbers = {repeat, clear, note, compare};

static const struct erg_device_methods methods = {
    .close = close_device,
    .begin = begin,
    .set_clock = set_clock,
    .enqueue = enqueue,
    .stagger = stagger,
    .sync = sync_device,
    .now_ns = now_ns,
    .sleep_ns = sleep_ns,
    .sense = sense,
    .span = span,
};

/* ---- open and close ---- */

/* PCI addresses have the same end, "0000:1b:00.0", in every notation of the domain. */
static bool same_bus(const char *a, const char *b)
{
    size_t x = strlen(a), y = strlen(b);
    return x >= 12 && y >= 12 && strcasecmp(a + x - 12, b + y - 12) == 0;
}

static int find_sensors(struct cuda_device *device, struct erg_error *err)
{
    const char *buses = device->rank.buses;
    if (erg_gpus_open(&device->sensors, "all", err))
        return -1;
    enum { BUS = sizeof((struct erg_cuda *)0)->bus };
    for (size_t g = 0; g < device->base.gpus; g++) {
        size_t i = 0;
        while (i < erg_gpus_count(device->sensors) &&
               !same_bus(erg_gpus_info(device->sensors, i)->pci, buses + g * BUS))
            i++;
        if (i == erg_gpus_count(device->sensors))
            return erg_fail(err, ERG_NO_DEVICE,
                            "looking for the sensors of the GPU at %s: the driver lists none there",
                            buses + g * BUS);
        device->sensor[g] = i;
    }
    return 0;
}

int erg_cuda_device_open(struct erg_device **out, const struct erg_worker_options *options,
                         bool lock_clocks, struct erg_error *err)
{
    struct device_rank rank;
    if (erg_device_rank_open(&rank, options, err))
        return -1;
    struct cuda_device *device = erg_xcalloc(1, sizeof *device);
    const char *name = erg_worker_cuda(rank.worker)->name;
    size_t gpus = (size_t)options->env->world;
    device->rank = rank;
    device->sensor = erg_xcalloc(gpus, sizeof *device->sensor);
    snprintf(device->identity, sizeof device->identity,
             "%zu x %s, %s, microbatch %d x %d tokens, tensor %d, context %d, %s clocks", gpus,
             name, options->model->name, options->sequences, options->sequence, options->tensor,
             options->context, lock_clocks ? "locked" : "default");
    device->base = (struct erg_device){.methods = &methods,
                                       .numbers = &numbers,
                                       .board = name,
                                       .identity = device->identity,
                                       .gpus = gpus,
                                       .fixed_clock = !lock_clocks};
    if (find_sensors(device, err) ||
        (lock_clocks &&
         erg_clock_group_open(&device->clocks, device->sensors, device->sensor, gpus, err))) {
        close_device(&device->base);
        return -1;
    }
    *out = &device->base;
    return 0;
}
