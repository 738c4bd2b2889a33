/* Records all GPUs while a command runs, for a time, or until a signal. */
#include "observe/record.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "observe/child.h"
#include "observe/imbalance.h"
#include "observe/live.h"
#include "telemetry/recording.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

/* The writer's side; used by its thread only, until the sampler has stopped. */
struct sink {
    struct erg_recorder *recorder;
    struct erg_imbalance_means *means;
    struct erg_error err;
    bool command; /* a command runs, and continues if the recording stops */
    atomic_bool failed;
    size_t samples;
};

/* Reported immediately: the command may run for days after the recording has stopped. */
static void note_failure(struct sink *sink)
{
    atomic_store(&sink->failed, true);
    if (sink->command)
        erg_log(ERG_LOG_WARNING, "%s; recording stops, the command continues", sink->err.message);
}

static void put(void *context, const struct erg_sampler_item *item)
{
    struct sink *sink = context;
    if (atomic_load(&sink->failed))
        return;
    sink->samples++;
    erg_imbalance_put(sink->means, item);
    if (erg_recorder_add(sink->recorder, item, &sink->err) != 0)
        note_failure(sink);
}

static void tick(void *context)
{
    struct sink *sink = context;
    if (!atomic_load(&sink->failed) && erg_recorder_tick(sink->recorder, &sink->err) != 0)
        note_failure(sink);
}

/* Waits until the time is over, a signal comes or writing fails. */
static int wait_for_end(const struct sink *sink, double duration_s, struct erg_error *err)
{
    int64_t end_ns = isnan(duration_s) ? INT64_MAX : erg_now_ns() + (int64_t)(1e9 * duration_s);
    while (erg_now_ns() < end_ns && !atomic_load(&sink->failed) && !erg_interrupted())
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    if (erg_interrupted() && !isnan(duration_s))
        return erg_fail(
            err, ERG_INTERRUPTED,
            "interrupted before the end of the %g s of --duration; the samples so far are stored",
            duration_s);
    return 0;
}

static const int64_t silent_ns = 1000000000; /* longer reads are reported */

static void tell(const struct erg_sampler *sampler, const struct erg_gpus *gpus)
{
    for (size_t g = 0; g < erg_gpus_count(gpus); g++) {
        const struct erg_gpu_info *info = erg_gpus_info(gpus, g);
        struct erg_sampler_stats stats;
        erg_sampler_stats(sampler, g, &stats);
        if (info->trouble[0])
            erg_log(ERG_LOG_WARNING, "GPU %d does not work: %s", info->index, info->trouble);
        else if (stats.lost)
            erg_log(ERG_LOG_WARNING, "GPU %d fell off the bus", info->index);
        else if (stats.busy_ns > silent_ns)
            erg_log(ERG_LOG_WARNING, "GPU %d has not answered for the last %.0f s", info->index,
                    1e-9 * (double)stats.busy_ns);
        if (stats.missed + stats.dropped)
            erg_log(ERG_LOG_WARNING, "GPU %d: %llu samples came too late to be used or written",
                    info->index, (unsigned long long)stats.missed + stats.dropped);
    }
}

static void tell_imbalance(const struct erg_imbalance_means *means)
{
    double ratios[ERG_IMBALANCES];
    struct erg_text text = {0};
    erg_imbalance_over_time(means, ratios);
    erg_imbalance_text(&text, ratios);
    erg_log(ERG_LOG_INFO, "largest over mean of the GPUs, over time: %s", text.data);
    erg_text_release(&text);
}

static int record(const struct erg_record_input *input, struct erg_gpus *gpus,
                  const struct erg_child_signals *signals, struct erg_child_end *end,
                  struct erg_error *err)
{
    struct erg_sampler_options pace = erg_live_pace(input->interval_ms);
    struct sink sink = {.command = input->command != NULL};
    struct erg_sampler_sink callbacks = {.put = put, .idle = tick, .context = &sink};
    struct erg_sampler *sampler;
    if (erg_recorder_open(&sink.recorder, input->output, gpus, 0, err) != 0)
        return -1;
    sink.means = erg_imbalance_new(erg_gpus_count(gpus));
    if (erg_sampler_start(&sampler, gpus, &pace, &callbacks, err) != 0) {
        erg_recorder_close(sink.recorder, NULL);
        erg_imbalance_free(sink.means);
        return -1;
    }
    int result = input->command ? erg_child_run(signals, input->command, end, err)
                                : wait_for_end(&sink, input->duration_s, err);
    tell(sampler, gpus);
    erg_sampler_stop(sampler);
    if (atomic_load(&sink.failed)) {
        *err = sink.err;
        result = -1;
    }
    if (erg_recorder_close(sink.recorder, result ? NULL : err) != 0)
        result = -1;
    size_t count = erg_gpus_count(gpus);
    erg_log(ERG_LOG_INFO, "%zu sample%s of %zu GPU%s in %s", sink.samples, erg_plural(sink.samples),
            count, erg_plural(count), input->output);
    if (count > 1)
        tell_imbalance(sink.means);
    erg_imbalance_free(sink.means);
    return result;
}

int erg_record(const struct erg_record_input *input, struct erg_error *err)
{
    struct erg_child_signals signals;
    struct erg_child_end end = {0};
    struct erg_gpus *gpus;
    if (input->command)
        erg_child_block(&signals); /* before the sampler starts its threads */
    if (erg_gpus_open(&gpus, input->gpus, err) != 0)
        return -1;
    int result = record(input, gpus, &signals, &end, err);
    erg_gpus_close(gpus);
    return result ? -1 : erg_child_check(&end, input->command, err);
}
