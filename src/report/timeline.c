/* The timelines as a Chrome trace. */
#include "report/report_internal.h"

#include "io/trace.h"

#include <stdint.h>
#include <stdio.h>

static void add_power(struct erg_trace *trace, int process, const char *name, double time_s,
                      double power_w)
{
    struct erg_trace_arg series = {.key = "power_w", .number = power_w};
    erg_trace_counter(trace, process, name, time_s, &series, 1);
}

static void add_instruction(struct erg_trace *trace, int process, int stage, const json_t *span)
{
    char name[64];
    const char *type = erg_report_string(span, "type", "?");
    double start_s = erg_json_number_or(span, "start_s", 0);
    long chunk = erg_report_long(span, "chunk", 0);
    const struct erg_trace_arg args[] = {
        {"clock_mhz", NULL, erg_json_number_or(span, "clock_mhz", 0)},
        {"power_w", NULL, erg_json_number_or(span, "power_w", 0)},
        {"energy_j", NULL, erg_json_number_or(span, "energy_j", 0)},
        {"mode", erg_report_string(span, "mode", "?"), 0},
        {"microbatch", NULL, (double)erg_report_long(span, "microbatch", 0)},
        {"chunk", NULL, (double)chunk},
    };
    if (chunk)
        snprintf(name, sizeof name, "%s %ld, chunk %ld", type,
                 erg_report_long(span, "microbatch", 0), chunk);
    else
        snprintf(name, sizeof name, "%s %ld", type, erg_report_long(span, "microbatch", 0));
    erg_trace_span(trace, process, stage, name, type, start_s,
                   erg_json_number_or(span, "end_s", start_s) - start_s, args,
                   sizeof args / sizeof *args);
}

/* The instructions of a stage, and the power of one of its GPUs with that of waiting in the gaps.
 */
static void add_stage(struct erg_trace *trace, int process, int stage, const json_t *spans,
                      const json_t *plan, double end_s)
{
    char name[128];
    const json_t *span, *kind = erg_report_stage_kind(plan, (size_t)stage);
    const char *gpu = json_array_size(json_object_get(plan, "kinds")) > 1
                          ? erg_report_string(kind, "gpu", NULL)
                          : NULL;
    double blocking_w = erg_json_number_or(kind, "blocking_power_w", 0);
    double last_end_s = 0, power_w = -1;
    size_t i;
    snprintf(name, sizeof name, "stage %d%s%.80s", stage, gpu ? ", " : "", gpu ? gpu : "");
    erg_trace_name_thread(trace, process, stage, name);
    snprintf(name, sizeof name, "stage %d: power of a GPU", stage);
    json_array_foreach((json_t *)(uintptr_t)spans, i, span)
    {
        double start_s = erg_json_number_or(span, "start_s", 0);
        add_instruction(trace, process, stage, span);
        if (start_s > last_end_s + 1e-9 && power_w != blocking_w)
            add_power(trace, process, name, last_end_s, power_w = blocking_w);
        double new_w = erg_json_number_or(span, "power_w", 0);
        if (new_w != power_w)
            add_power(trace, process, name, start_s, power_w = new_w);
        last_end_s = erg_json_number_or(span, "end_s", start_s);
    }
    if (end_s > last_end_s + 1e-9)
        add_power(trace, process, name, last_end_s, blocking_w);
    add_power(trace, process, name, end_s, 0);
}

static void add_partition(struct erg_trace *trace, int process, int thread, const json_t *picture)
{
    char name[160];
    const char *key = erg_report_string(picture, "key", "?");
    const struct erg_trace_arg args[] = {
        {"clock_mhz", NULL, erg_json_number_or(picture, "clock_mhz", 0)},
        {"slot", erg_report_string(picture, "slot", "?"), 0},
        {"sms", NULL, (double)erg_report_long(picture, "sms", 0)},
    };
    json_t *lane, *span;
    size_t i, k;
    json_array_foreach(json_object_get(picture, "lanes"), i, lane)
    {
        const char *lane_name = erg_report_string(lane, "name", "?");
        snprintf(name, sizeof name, "%s: %s", key, lane_name);
        erg_trace_name_thread(trace, process, thread + (int)i, name);
        json_array_foreach(json_object_get(lane, "spans"), k, span)
        {
            double start_s = erg_json_number_or(span, "start_s", 0);
            erg_trace_span(trace, process, thread + (int)i, erg_report_string(span, "name", "?"),
                           lane_name, start_s, erg_json_number_or(span, "end_s", start_s) - start_s,
                           args, sizeof args / sizeof *args);
        }
    }
}

int erg_report_trace(const char *path, const json_t *plan, struct erg_error *err)
{
    if (erg_report_check(plan, err))
        return erg_fail_context(err, "writing the trace %s", path);
    struct erg_trace *trace = erg_trace_new();
    json_t *timeline, *stage, *picture;
    size_t t, s;
    int process = 0, thread = 0;
    json_array_foreach(json_object_get(plan, "timelines"), t, timeline)
    {
        erg_trace_name_process(trace, ++process, erg_report_string(timeline, "title", "?"));
        json_array_foreach(json_object_get(timeline, "stages"), s, stage)
        {
            add_stage(trace, process, (int)s, stage, plan,
                      erg_json_number_or(timeline, "time_s", 0));
        }
    }
    const json_t *pictures = json_object_get(plan, "partition_timelines");
    if (json_array_size(pictures))
        erg_trace_name_process(trace, ++process, "partitions of the selected plan");
    json_array_foreach((json_t *)(uintptr_t)pictures, t, picture)
    {
        add_partition(trace, process, thread, picture);
        thread += (int)json_array_size(json_object_get(picture, "lanes"));
    }
    int status = erg_trace_write(trace, path, err);
    erg_trace_free(trace);
    return status;
}
