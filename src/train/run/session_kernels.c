/* The kernels of a traced step on this rank's GPU, as files for other tools. */
#include "train/run/session_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "telemetry/gpu.h"
#include "trace/kernel_time.h"
#include "trace/trace_write.h"
#include "train/log/rank_meter.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording ---- */

/* Finds the key by which a recording of this time is joined later (ergon import). */
static void find_uuid(struct erg_train *train)
{
    struct erg_error ignored;
    struct erg_gpus *gpus;
    size_t gpu;
    const char *name = train->backend->name;
    if (strcmp(name, "host") == 0 || erg_gpus_open(&gpus, NULL, &ignored) != 0)
        return;
    if (erg_rank_find_gpu(gpus, name, train->env.local_rank, &gpu, &ignored) == 0)
        snprintf(train->kernels.uuid, sizeof train->kernels.uuid, "%s",
                 erg_gpus_info(gpus, gpu)->uuid);
    erg_gpus_close(gpus);
}

static int begin(struct erg_train *train, struct erg_error *err)
{
    struct erg_train_kernels *kernels = &train->kernels;
    if (!kernels->cupti) {
        if (erg_kernel_names_load(&kernels->names, ERG_KERNEL_RULE_ERGON, err) != 0 ||
            erg_cupti_open(&kernels->cupti, err) != 0)
            return -1;
        find_uuid(train);
    }
    return erg_cupti_start(kernels->cupti, err);
}

struct erg_cupti *erg_train_kernels_begin(struct erg_train *train)
{
    struct erg_train_kernels *kernels = &train->kernels;
    struct erg_error err;
    kernels->on = false;
    if (!train->job->training->trace_kernels || kernels->refused || !train->folder)
        return NULL;
    if (begin(train, &err) != 0) {
        kernels->refused = true;
        erg_log(ERG_LOG_WARNING, "rank %d: no kernels of traced steps: %s", train->env.rank,
                err.message);
        return NULL;
    }
    kernels->on = true;
    kernels->begin_ns = erg_now_ns();
    return kernels->cupti;
}

/* ---- writing ---- */

/* The recorded data of a step. */
struct step_kernels {
    struct erg_kernel_record *records;
    size_t count;
    struct erg_kernel_span *spans; /* by piece of the step; name NULL: no kernels */
    char (*names)[40];
};

static int by_start(const void *left, const void *right)
{
    const struct erg_kernel_record *a = left, *b = right;
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Sets a piece's span from the start of its first kernel to the end of its last one. */
static void cover(struct step_kernels *of, size_t piece, const struct erg_timeline_span *about,
                  const struct erg_kernel_record *record)
{
    struct erg_kernel_span *span = &of->spans[piece];
    const char *kind = erg_span_name((enum erg_span_kind)about->kind);
    if (!span->name) {
        if (about->microbatch < 0)
            snprintf(of->names[piece], sizeof of->names[piece], "%s", kind);
        else
            snprintf(of->names[piece], sizeof of->names[piece], "%s %d", kind, about->microbatch);
        *span = (struct erg_kernel_span){of->names[piece], record->device, record->stream,
                                         record->start_ns, record->end_ns};
    }
    span->start_ns = record->start_ns < span->start_ns ? record->start_ns : span->start_ns;
    span->end_ns = record->end_ns > span->end_ns ? record->end_ns : span->end_ns;
}

static void collect(struct step_kernels *of, struct erg_kernel_names *names,
                    const struct erg_cupti_records *recorded, const struct erg_timeline_span *about,
                    size_t pieces)
{
    of->count = recorded->count;
    of->records = erg_xcalloc(recorded->count + 1, sizeof *of->records);
    of->spans = erg_xcalloc(pieces + 1, sizeof *of->spans);
    of->names = erg_xcalloc(pieces + 1, sizeof *of->names);
    for (size_t i = 0; i < recorded->count; i++) {
        of->records[i] = recorded->items[i];
        (void)erg_kernel_names_apply(names, &of->records[i]);
        if (recorded->numbers[i] > 0 && recorded->numbers[i] <= pieces)
            cover(of, recorded->numbers[i] - 1, &about[recorded->numbers[i] - 1], &of->records[i]);
    }
    qsort(of->records, of->count, sizeof *of->records, by_start);
}

static void release(struct step_kernels *of)
{
    free(of->records);
    free(of->spans);
    free(of->names);
}

static int write_files(const struct erg_train *train, uint64_t step,
                       const struct erg_kernel_trace *trace, struct erg_error *err)
{
    static const struct {
        const char *suffix;
        int (*write)(const struct erg_kernel_trace *, const char *, struct erg_error *);
    } files[] = {{"json", erg_trace_write_kineto},
                 {"et", erg_trace_write_chakra},
                 {"chakra.json", erg_trace_write_chakra_json}};
    int result = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && result == 0; i++) {
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/kernels-%08" PRIu64 ".rank-%d.%s", train->folder, step,
                        train->env.rank, files[i].suffix);
        result = files[i].write(trace, path.data, err);
        erg_text_release(&path);
    }
    return result;
}

static double percent(int64_t part_ns, const struct erg_kernel_time *time)
{
    const int64_t window_ns = time->end_ns - time->begin_ns;
    return window_ns > 0 ? 100 * (double)part_ns / (double)window_ns : 0;
}

static void tell(const struct erg_train *train, uint64_t step, double step_s,
                 const struct step_kernels *of, int64_t overhead_ns)
{
    const struct erg_train_kernels *kernels = &train->kernels;
    const double mean_s = kernels->others_s / (double)kernels->others;
    struct erg_text text = {0};
    struct erg_kernel_time time;
    if (!erg_train_tells(train))
        return;
    erg_kernel_time_of(&time, of->records, of->count, of->records[0].device, NULL, NULL);
    erg_text_printf(&text,
                    "step %" PRIu64 ": %zu kernels of rank 0 are in %s/kernels-%08" PRIu64
                    ".rank-0.json: computing %.1f %%, only communicating or copying %.1f %%, idle "
                    "%.1f %%; the step took %.4f s",
                    step, of->count, train->folder, step, percent(time.compute_ns, &time),
                    percent(time.exposed_ns, &time), percent(time.idle_ns, &time), step_s);
    if (kernels->others)
        erg_text_printf(&text, ", %.1f %% %s than the mean of steps without trace",
                        100 * fabs(step_s / mean_s - 1), step_s < mean_s ? "less" : "more");
    erg_text_printf(&text, "; CUPTI's overhead was %.4f s", (double)overhead_ns / 1e9);
    erg_log(ERG_LOG_WARNING, "%s", text.data);
    erg_text_release(&text);
}

static int end(struct erg_train *train, uint64_t step, const struct erg_timeline_span *spans,
               size_t count, struct erg_error *err)
{
    const double step_s = erg_train_seconds_since(train->kernels.begin_ns);
    struct erg_cupti_records recorded;
    if (erg_cupti_stop(train->kernels.cupti, &recorded, err) != 0)
        return -1;
    if (recorded.count == 0)
        return erg_fail(err, ERG_FAILED, "nothing ran on a GPU in step %" PRIu64, step);
    struct step_kernels of;
    collect(&of, train->kernels.names, &recorded, spans, count);
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (of.spans[i].name)
            of.spans[used++] = of.spans[i];
    const struct erg_kernel_device about = {
        .id = of.records[0].device,
        .name = train->backend->name,
        .uuid = *train->kernels.uuid ? train->kernels.uuid : NULL,
    };
    const struct erg_kernel_trace trace = {
        .rank = train->env.rank,
        .world = train->env.world,
        .backend = "nccl",
        .unix_ns = (int64_t)(erg_unix_s() * 1e9) - erg_now_ns(),
        .devices = &about,
        .device_count = 1,
        .records = of.records,
        .record_count = of.count,
        .spans = of.spans,
        .span_count = used,
    };
    int result = write_files(train, step, &trace, err);
    if (result == 0)
        tell(train, step, step_s, &of, recorded.overhead_ns);
    release(&of);
    return result;
}

void erg_train_kernels_end(struct erg_train *train, uint64_t step,
                           const struct erg_timeline_span *spans, size_t count)
{
    struct erg_error err;
    if (!train->kernels.on)
        return;
    train->kernels.on = false;
    if (end(train, step, spans, count, &err) != 0)
        erg_log(ERG_LOG_WARNING, "rank %d: no kernels of step %" PRIu64 ": %s", train->env.rank,
                step, err.message);
}

void erg_train_kernels_release(struct erg_train *train)
{
    erg_cupti_close(train->kernels.cupti);
    erg_kernel_names_free(train->kernels.names);
}
