/* ergon record -o FILE: samples of all GPUs into a file that survives a crash. */
#include "cli/cli.h"

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

struct record_values {
    const char *output, *gpus;
    long interval_ms;
    double duration_s;
};

#define AT(member) offsetof(struct record_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "FILE", AT(output), .required = true,
     .help = "the recording; a file that exists is refused"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs with commas (default: CUDA_VISIBLE_DEVICES)"},
    {"interval", 'i', ERG_OPTION_LONG, "MS", AT(interval_ms), 5, 60000, .default_text = "50",
     .help = "time between two samples of energy and power; the rest is read less often"},
    {"duration", 'd', ERG_OPTION_DOUBLE, "SECONDS", AT(duration_s), 0.01, 1e9,
     .help = "end after this time; otherwise with the command, or with Ctrl-C"},
    {0},
};

/* The writer's side; its thread alone uses it until the sampler has stopped. */
struct sink {
    struct erg_recorder *recorder;
    struct erg_imbalance_means *means;
    struct erg_error err;
    bool command; /* one runs, and is not ended for the recording's sake */
    atomic_bool failed;
    size_t samples;
};

/* Reported at once: the command may go on for days after its recording has stopped. */
static void note_failure(struct sink *sink)
{
    atomic_store(&sink->failed, true);
    if (sink->command)
        erg_log(ERG_LOG_WARNING, "%s; nothing more is recorded, the command goes on",
                sink->err.message);
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

/* Until the time is over, a signal comes or writing fails. */
static int wait_for_end(const struct sink *sink, double duration_s, struct erg_error *err)
{
    int64_t end_ns = isnan(duration_s) ? INT64_MAX : erg_now_ns() + (int64_t)(1e9 * duration_s);
    while (erg_now_ns() < end_ns && !atomic_load(&sink->failed) && !erg_interrupted())
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    if (erg_interrupted() && !isnan(duration_s))
        return erg_fail(err, ERG_INTERRUPTED,
                        "interrupted before the end of the %g s that were to be recorded; what "
                        "came before is kept",
                        duration_s);
    return 0;
}

static const int64_t silent_ns = 1000000000; /* a read that takes longer is told of */

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
            erg_log(ERG_LOG_WARNING, "GPU %d: %llu samples came too late to be taken or written",
                    info->index, (unsigned long long)(stats.missed + stats.dropped));
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

static int record(const struct erg_invocation *call, struct erg_gpus *gpus,
                  const struct erg_child_signals *signals, struct erg_child_end *end,
                  struct erg_error *err)
{
    const struct record_values *values = call->values;
    struct erg_sampler_options pace = erg_live_pace(values->interval_ms);
    struct sink sink = {.command = call->argument_count > 0};
    struct erg_sampler_sink callbacks = {.put = put, .idle = tick, .context = &sink};
    struct erg_sampler *sampler;
    if (erg_recorder_open(&sink.recorder, values->output, gpus, 0, err) != 0)
        return -1;
    sink.means = erg_imbalance_new(erg_gpus_count(gpus));
    if (erg_sampler_start(&sampler, gpus, &pace, &callbacks, err) != 0) {
        erg_recorder_close(sink.recorder, NULL);
        erg_imbalance_free(sink.means);
        return -1;
    }
    int result = call->argument_count ? erg_child_run(signals, call->arguments, end, err)
                                      : wait_for_end(&sink, values->duration_s, err);
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
            count, erg_plural(count), values->output);
    if (count > 1)
        tell_imbalance(sink.means);
    erg_imbalance_free(sink.means);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct record_values *values = call->values;
    struct erg_child_signals signals;
    struct erg_child_end end = {0};
    struct erg_gpus *gpus;
    if (call->argument_count && !isnan(values->duration_s))
        return erg_fail(err, ERG_USAGE,
                        "--duration and a command were both given; expected one of them, since the "
                        "recording ends with the command");
    if (call->argument_count)
        erg_child_block(&signals); /* before the sampler starts its threads */
    if (erg_gpus_open(&gpus, values->gpus, err) != 0)
        return -1;
    int result = record(call, gpus, &signals, &end, err);
    erg_gpus_close(gpus);
    return result ? -1 : erg_child_check(&end, call->arguments, err);
}

const struct erg_command erg_cmd_record = {
    .name = "record",
    .summary = "record power, energy, heat and clocks of GPUs into a file",
    .arguments = "[-- CMD [ARGUMENT]...]",
    .least_arguments = 0,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct record_values),
    .options = options,
    .details = "Records until the command ends, whose exit status is passed on, or for a time, or "
               "until\nCtrl-C. The file grows in chunks of two seconds: whatever happens, all but "
               "the last is kept.\n\"ergon export\" turns it into CSV, JSON lines or a trace.",
    .examples = "  ergon record -o train.rec -- python train.py\n"
                "  ergon record -o idle.rec --interval 20 --duration 60 --gpus 0,1\n",
    .run = run,
};
