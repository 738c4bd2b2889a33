/* Examines each GPU in a thread of its own, since the driver may hang. */
#include "observe/doctor_internal.h"

#include "base/clock.h"
#include "base/statistics.h"
#include "base/thread.h"
#include "observe/format.h"
#include "telemetry/clocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LATENCY_READS = 5 };

static const double patience_s = 3;     /* in addition to the time of the check */
static const int64_t poll_ns = 2000000; /* far below the step of any sensor */
static const double ratio_edge_s = 0.3; /* skipped at both ends, where edges are uncertain */
static const double ratio_most = 1.1;   /* and least: 1 / ratio_most */

/* One GPU under examination; owned by its thread and by the waiting caller. */
struct exam {
    struct erg_gpus *gpus;
    size_t index;
    double watch_s;
    struct erg_doctor_gpu result;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    int owners;
};

static void leave(struct exam *exam)
{
    pthread_mutex_lock(&exam->lock);
    bool last = --exam->owners == 0;
    pthread_mutex_unlock(&exam->lock);
    if (!last)
        return;
    erg_gpus_close(exam->gpus);
    pthread_mutex_destroy(&exam->lock);
    pthread_cond_destroy(&exam->ended);
    free(exam);
}

/* Reads a metric alone and several times, to measure its own latency. */
static void read_metric(struct exam *exam, enum erg_metric metric)
{
    struct erg_doctor_metric *result = &exam->result.metrics[metric];
    struct erg_gpu_sample sample;
    double latencies_s[LATENCY_READS];
    for (int i = 0; i < LATENCY_READS; i++) {
        erg_gpu_read(exam->gpus, exam->index, UINT64_C(1) << metric, &sample);
        latencies_s[i] = 1e-9 * (double)(sample.end_ns - sample.start_ns);
    }
    exam->result.lost |= sample.lost;
    result->valid = erg_gpu_has(&sample, metric);
    result->value = sample.readings[metric].value;
    result->latency_s = erg_median(latencies_s, LATENCY_READS);
    result->source = erg_gpu_source(exam->gpus, exam->index, metric);
    result->refusal = erg_gpu_refusal(exam->gpus, exam->index, metric);
}

static void read_clocks(struct exam *exam)
{
    struct erg_clock_list list;
    if (erg_clocks_supported(exam->gpus, exam->index, &list, NULL) != 0)
        return;
    exam->result.clocks = list.count;
    exam->result.clock_least_mhz = list.clocks_mhz[0];
    exam->result.clock_most_mhz = list.clocks_mhz[list.count - 1];
    erg_clock_list_release(&list);
}

static double ratio_of(const struct erg_energy_log *log, double from_s, double to_s)
{
    struct erg_energy_value values[4];
    bool settled;
    erg_energy_log_counter_at(log, from_s, &values[0], &settled);
    erg_energy_log_counter_at(log, to_s, &values[1], &settled);
    erg_energy_log_power_at(log, from_s, &values[2]);
    erg_energy_log_power_at(log, to_s, &values[3]);
    for (int i = 0; i < 4; i++)
        if (!values[i].valid)
            return NAN;
    double counter_j, power_j, uncertainty_j;
    erg_energy_between(&values[0], &values[1], false, &counter_j, &uncertainty_j);
    erg_energy_between(&values[2], &values[3], false, &power_j, &uncertainty_j);
    return counter_j > 0 ? power_j / counter_j : NAN;
}

/* Reads energy and power repeatedly, so that the log learns how they change. */
static void watch(struct exam *exam)
{
    struct erg_energy_log *log = erg_energy_log_new();
    uint64_t metrics = UINT64_C(1) << ERG_METRIC_ENERGY | UINT64_C(1) << ERG_METRIC_POWER_INSTANT;
    int64_t start_ns = erg_now_ns(), end_ns = start_ns + (int64_t)(1e9 * exam->watch_s);
    while (erg_now_ns() < end_ns && !exam->result.lost) {
        struct erg_gpu_sample sample;
        erg_gpu_read(exam->gpus, exam->index, metrics, &sample);
        exam->result.lost |= sample.lost;
        erg_energy_log_add(log, &sample);
        nanosleep(&(struct timespec){0, poll_ns}, NULL);
    }
    erg_energy_log_traits(log, &exam->result.counter, &exam->result.power);
    exam->result.ratio =
        ratio_of(log, 1e-9 * (double)start_ns + ratio_edge_s, 1e-9 * (double)end_ns - ratio_edge_s);
    erg_energy_log_free(log);
}

static void *examine(void *argument)
{
    struct exam *exam = argument;
    for (enum erg_metric m = 0; m < ERG_METRICS && !exam->result.lost; m++)
        read_metric(exam, m);
    read_clocks(exam);
    watch(exam);
    pthread_mutex_lock(&exam->lock);
    exam->result.answers = true;
    exam->done = true;
    pthread_cond_signal(&exam->ended);
    pthread_mutex_unlock(&exam->lock);
    leave(exam);
    return NULL;
}

static struct exam *begin(struct erg_gpus *gpus, size_t index, double watch_s)
{
    struct exam *exam = erg_xcalloc(1, sizeof *exam);
    *exam = (struct exam){.gpus = erg_gpus_retain(gpus),
                          .index = index,
                          .watch_s = watch_s,
                          .result = {.info = *erg_gpus_info(gpus, index), .ratio = NAN},
                          .owners = 2};
    erg_condition_init(&exam->ended);
    pthread_mutex_init(&exam->lock, NULL);
    pthread_t thread;
    if (erg_thread_start(&thread, examine, exam) == 0)
        pthread_detach(thread);
    else
        exam->owners = 1; /* it will look like a GPU that does not answer */
    return exam;
}

static void await(struct exam *exam, int64_t deadline_ns, struct erg_doctor_gpu *result)
{
    pthread_mutex_lock(&exam->lock);
    while (!exam->done && erg_condition_wait(&exam->ended, &exam->lock, deadline_ns))
        continue;
    if (exam->done)
        *result = exam->result;
    else
        *result = (struct erg_doctor_gpu){.info = *erg_gpus_info(exam->gpus, exam->index)};
    pthread_mutex_unlock(&exam->lock);
    leave(exam);
}

/* ---- findings ---- */

static void judge_energy(struct erg_doctor *doctor, const struct erg_doctor_gpu *gpu)
{
    const struct erg_doctor_metric *metric = &gpu->metrics[ERG_METRIC_ENERGY];
    bool power = gpu->metrics[ERG_METRIC_POWER_INSTANT].valid ||
                 gpu->metrics[ERG_METRIC_POWER_AVERAGE].valid;
    if (!metric->valid)
        erg_doctor_note(doctor, power ? ERG_FINDING_LIMITED : ERG_FINDING_MISSING, gpu->info.index,
                        "energy",
                        power ? "Energy is summed from power readings, with a larger uncertainty."
                              : "The energy of this GPU cannot be measured.",
                        "no energy counter: %s", metric->refusal ? metric->refusal : "not read");
    else if (!(gpu->counter.period_s > 0))
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "energy",
                        "Run this again while the GPU works.",
                        "the counter did not change during the check");
    else
        erg_doctor_note(doctor, ERG_FINDING_OK, gpu->info.index, "energy", NULL,
                        "the counter updates every %.1f ms (+- %.1f ms); windows of at least %.1f "
                        "s are accurate",
                        1e3 * gpu->counter.period_s, 1e3 * gpu->counter.jitter_s,
                        10 * gpu->counter.period_s);
}

static void judge_power(struct erg_doctor *doctor, const struct erg_doctor_gpu *gpu)
{
    const struct erg_doctor_metric *instant = &gpu->metrics[ERG_METRIC_POWER_INSTANT];
    if (!instant->valid)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "power",
                        "Short peaks will not be seen.", "no instant power: %s",
                        instant->refusal ? instant->refusal : "not read");
    else if (gpu->power.period_s > 0)
        erg_doctor_note(doctor, ERG_FINDING_OK, gpu->info.index, "power", NULL,
                        "the reading changes every %.1f ms; reading it and the energy takes "
                        "%.3f ms",
                        1e3 * gpu->power.period_s, 1e3 * gpu->power.latency_s);
    else
        erg_doctor_note(doctor, ERG_FINDING_OK, gpu->info.index, "power", NULL,
                        "the reading did not change during the check");
    if (isnan(gpu->ratio))
        return;
    bool close = gpu->ratio <= ratio_most && gpu->ratio >= 1 / ratio_most;
    erg_doctor_note(doctor, close ? ERG_FINDING_OK : ERG_FINDING_LIMITED, gpu->info.index,
                    "two sources",
                    close ? NULL
                          : "Compare both over a longer load with \"ergon measure\" before you "
                            "trust either.",
                    "integrated power / energy counter = %.3f", gpu->ratio);
}

static void judge_limits(struct erg_doctor *doctor, const struct erg_doctor_gpu *gpu)
{
    const struct erg_doctor_metric *limit = &gpu->metrics[ERG_METRIC_POWER_LIMIT];
    const struct erg_doctor_metric *usual = &gpu->metrics[ERG_METRIC_POWER_LIMIT_DEFAULT];
    const struct erg_doctor_metric *reasons = &gpu->metrics[ERG_METRIC_REASONS];
    const struct erg_doctor_metric *errors = &gpu->metrics[ERG_METRIC_ECC_UNCORRECTED];
    if (limit->valid && usual->valid && limit->value < usual->value)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "power limit",
                        "It is slower than others of its kind; ask who set the limit.",
                        "%.0f W, below the default of %.0f W", 1e-3 * (double)limit->value,
                        1e-3 * (double)usual->value);
    if (gpu->clocks)
        erg_doctor_note(doctor, ERG_FINDING_OK, gpu->info.index, "clocks", NULL,
                        "%d to %d MHz in %zu steps", gpu->clock_least_mhz, gpu->clock_most_mhz,
                        gpu->clocks);
    else
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "clocks",
                        "Measure at the clock that the GPU chooses.",
                        "the driver lists no clocks at which this GPU can be locked");
    int64_t held = reasons->valid ? reasons->value & ~(int64_t)(ERG_REASON_IDLE) : 0;
    if (held) {
        struct erg_text words = {0};
        erg_format_reasons(&words, held);
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "throttled",
                        "Find the cause before you compare times.",
                        "the clock is throttled now: %s", words.data ? words.data : "unknown");
        erg_text_release(&words);
    }
    if (errors->valid && errors->value)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, gpu->info.index, "memory",
                        "Ask the administrator to check this GPU.",
                        "%lld uncorrected memory errors since the driver was loaded",
                        (long long)errors->value);
}

static void judge(struct erg_doctor *doctor, const struct erg_doctor_gpu *gpu)
{
    const char *advice = "Search the kernel's log for messages of the driver (\"NVRM: Xid\").";
    if (gpu->info.trouble[0]) {
        erg_doctor_note(doctor, ERG_FINDING_MISSING, gpu->info.index, "GPU", advice,
                        "it does not work: %s", gpu->info.trouble);
        return;
    }
    if (gpu->lost || !gpu->answers) {
        erg_doctor_note(doctor, ERG_FINDING_MISSING, gpu->info.index, "GPU", advice, "%s, %s: %s",
                        gpu->info.name, gpu->info.uuid,
                        gpu->lost ? "has fallen off the bus" : "the driver does not answer");
        return;
    }
    int valid = 0;
    for (enum erg_metric m = 0; m < ERG_METRICS; m++)
        valid += gpu->metrics[m].valid;
    erg_doctor_note(doctor, ERG_FINDING_OK, gpu->info.index, "GPU", NULL,
                    "%s, %s, %s: %d of %d metrics", gpu->info.name, gpu->info.uuid, gpu->info.pci,
                    valid, ERG_METRICS);
    judge_energy(doctor, gpu);
    judge_power(doctor, gpu);
    judge_limits(doctor, gpu);
}

void erg_doctor_gpus(struct erg_doctor *doctor, const char *select, double watch_s)
{
    struct erg_gpus *gpus;
    struct erg_error err;
    if (erg_gpus_open(&gpus, select, &err) != 0) {
        bool others = erg_gpus_open(&gpus, "all", NULL) == 0;
        if (others)
            erg_gpus_close(gpus);
        erg_doctor_note(doctor, ERG_FINDING_MISSING, -1, "GPUs",
                        others ? "Choose from the list of \"ergon doctor --gpus all\"."
                               : "Emulated GPUs work without it; for real ones install NVIDIA's or "
                                 "AMD's driver, and pass the GPUs into a container.",
                        "%s", err.message);
        return;
    }
    size_t count = erg_gpus_count(gpus);
    const struct erg_gpu_info *first = erg_gpus_info(gpus, 0);
    erg_doctor_note(doctor, ERG_FINDING_OK, -1, "GPUs", NULL, "of %s, driver %s: %zu GPU%s",
                    first->vendor, first->driver, count, erg_plural(count));
    struct exam **exams = erg_xcalloc(count, sizeof *exams);
    doctor->gpus = erg_xcalloc(count, sizeof *doctor->gpus);
    doctor->gpu_count = count;
    int64_t deadline_ns = erg_now_ns() + (int64_t)(1e9 * (watch_s + patience_s));
    for (size_t g = 0; g < count; g++)
        exams[g] = begin(gpus, g, watch_s);
    for (size_t g = 0; g < count; g++)
        await(exams[g], deadline_ns, &doctor->gpus[g]);
    for (size_t g = 0; g < count; g++)
        judge(doctor, &doctor->gpus[g]);
    free(exams);
    erg_gpus_close(gpus);
}

void erg_doctor_value(struct erg_text *out, enum erg_metric metric, int64_t value)
{
    static const struct unit {
        const char *suffix; /* of the metric's name */
        double scale;
        const char *unit;
    } units[] = {{"_mj", 1e-3, "J"}, {"_mw", 1e-3, "W"}, {"_b", 1, "B"}, {"_ns", 1e-9, "s"}};
    const char *name = erg_metric_info(metric)->name, *suffix = strrchr(name, '_');
    char text[ERG_FORMAT_BYTES];
    if (metric == ERG_METRIC_REASONS) {
        if (value == 0)
            erg_text_add(out, "none");
        erg_format_reasons(out, value);
        return;
    }
    for (size_t i = 0; suffix && i < sizeof units / sizeof *units; i++)
        if (strcmp(suffix, units[i].suffix) == 0) {
            erg_text_add(out,
                         erg_format_quantity(text, units[i].scale * (double)value, units[i].unit));
            return;
        }
    bool share = metric == ERG_METRIC_UTILISATION || metric == ERG_METRIC_MEMORY_UTILISATION;
    bool heat = metric == ERG_METRIC_TEMPERATURE || metric == ERG_METRIC_MEMORY_TEMPERATURE ||
                metric == ERG_METRIC_MARGIN;
    bool clock = metric == ERG_METRIC_SM_CLOCK || metric == ERG_METRIC_MEMORY_CLOCK;
    erg_text_printf(out, "%lld%s", (long long)value,
                    heat    ? " °C"
                    : share ? " %"
                    : clock ? " MHz"
                            : "");
}
