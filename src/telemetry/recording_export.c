/*
 * Recordings as CSV, JSON lines and Chrome trace counters (telemetry/recording.h). Large recordings
 * are written as they are read; a trace is built in memory.
 */
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/csv.h"
#include "io/json.h"
#include "io/trace.h"
#include "telemetry/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value as text: a number, or the names of the reason bits. */
static const char *value_text(char out[32], enum erg_metric metric, int64_t value)
{
    snprintf(out, 32, metric == ERG_METRIC_REASONS ? "0x%" PRIx64 : "%" PRId64, value);
    return out;
}

/*
 * Integrated values have their own time: power is up to one step of its sensor older than the
 * sample, and reading the counter may take most of the read. Monotonic, like t_mono_ns.
 */
static const struct stamp {
    const char *name;
    enum erg_metric metric;
} stamps[] = {
    {"t_energy_ns", ERG_METRIC_ENERGY},
    {"t_power_inst_ns", ERG_METRIC_POWER_INSTANT},
};
enum { STAMPS = sizeof stamps / sizeof *stamps };

/* ---- CSV ---- */

static void csv_header(struct erg_text *line)
{
    static const char *const first[] = {"t_mono_ns", "t_unix_ns",      "node",   "gpu_uuid",
                                        "local_idx", "t_scheduled_ns", "read_ns"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        erg_csv_add(line, first[i]);
    for (int i = 0; i < STAMPS; i++)
        erg_csv_add(line, stamps[i].name);
    for (enum erg_metric m = 0; m < ERG_METRICS; m++)
        erg_csv_add(line, erg_metric_info((enum erg_metric)m)->name);
    erg_csv_add(line, "lost");
    erg_csv_add(line, "valid_mask");
    erg_csv_end_row(line);
}

static void csv_row(const struct erg_recording *recording, const struct erg_sampler_item *item,
                    int64_t unix_ns, struct erg_text *line)
{
    const struct erg_gpu_info *info = erg_recording_gpu(recording, item->gpu);
    const struct erg_gpu_sample *sample = &item->sample;
    char text[32];
    erg_csv_add_long(line, sample->start_ns);
    erg_csv_add_long(line, unix_ns);
    erg_csv_add(line, erg_recording_node(recording));
    erg_csv_add(line, info->uuid);
    erg_csv_add_long(line, info->index);
    erg_csv_add_long(line, item->scheduled_ns);
    erg_csv_add_long(line, sample->end_ns - sample->start_ns);
    for (int i = 0; i < STAMPS; i++) {
        int64_t time_ns = sample->readings[stamps[i].metric].time_ns;
        bool known = erg_gpu_has(sample, stamps[i].metric);
        erg_csv_add(line, known ? value_text(text, stamps[i].metric, time_ns) : "");
    }
    for (enum erg_metric m = 0; m < ERG_METRICS; m++)
        erg_csv_add(line,
                    erg_gpu_has(sample, m) ? value_text(text, m, sample->readings[m].value) : "");
    erg_csv_add_long(line, sample->lost);
    snprintf(text, sizeof text, "0x%" PRIx64, sample->valid);
    erg_csv_add(line, text);
    erg_csv_end_row(line);
}

/* ---- JSON lines ---- */

static void json_line(const struct erg_recording *recording, const struct erg_sampler_item *item,
                      int64_t unix_ns, struct erg_text *line)
{
    const struct erg_gpu_info *info = erg_recording_gpu(recording, item->gpu);
    const struct erg_gpu_sample *sample = &item->sample;
    erg_text_printf(line, "{\"t_mono_ns\":%" PRId64 ",\"t_unix_ns\":%" PRId64 ",\"gpu_uuid\":",
                    sample->start_ns, unix_ns);
    erg_json_add_string(line, info->uuid);
    erg_text_printf(line, ",\"local_idx\":%d", info->index);
    if (sample->lost)
        erg_text_add(line, ",\"lost\":true");
    for (int i = 0; i < STAMPS; i++)
        if (erg_gpu_has(sample, stamps[i].metric))
            erg_text_printf(line, ",\"%s\":%" PRId64, stamps[i].name,
                            sample->readings[stamps[i].metric].time_ns);
    for (enum erg_metric m = 0; m < ERG_METRICS; m++) {
        if (!erg_gpu_has(sample, m))
            continue;
        char text[32];
        const char *quote = m == ERG_METRIC_REASONS ? "\"" : "";
        erg_text_printf(line, ",\"%s\":%s%s%s", erg_metric_info(m)->name, quote,
                        value_text(text, m, sample->readings[m].value), quote);
    }
    erg_text_add(line, "}\n");
}

static bool is_standard(const char *to)
{
    return strcmp(to, "-") == 0;
}

static int fail_writing(const char *to, struct erg_error *err)
{
    const char *quote = is_standard(to) ? "" : "'";
    return erg_fail(err, ERG_FAILED, "writing %s%s%s: %s", quote,
                    is_standard(to) ? "standard output" : to, quote, strerror(errno));
}

static int write_line(FILE *out, const char *to, struct erg_text *line, struct erg_error *err)
{
    size_t put = fwrite(line->data, 1, line->count, out);
    bool whole = put == line->count;
    line->count = 0;
    return whole ? 0 : fail_writing(to, err);
}

static int export_lines(struct erg_recording *recording, enum erg_recording_format format,
                        const char *to, struct erg_error *err)
{
    FILE *out = is_standard(to) ? stdout : fopen(to, "w");
    if (!out)
        return fail_writing(to, err);
    struct erg_text line = {0};
    struct erg_sampler_item item;
    int64_t unix_ns;
    int result = 0, more = 1;
    if (format == ERG_EXPORT_CSV) {
        csv_header(&line);
        result = write_line(out, to, &line, err);
    }
    while (result == 0 && (more = erg_recording_next(recording, &item, &unix_ns, err)) > 0) {
        (format == ERG_EXPORT_CSV ? csv_row : json_line)(recording, &item, unix_ns, &line);
        result = write_line(out, to, &line, err);
    }
    if (more < 0)
        result = -1;
    if ((is_standard(to) ? fflush(out) : fclose(out)) != 0 && result == 0)
        result = fail_writing(to, err);
    erg_text_release(&line);
    return result;
}

/* ---- Chrome trace ---- */

/* The shown counters, with the divisors of their numbers. */
static const struct track {
    const char *name;
    enum erg_metric metric;
    double unit;
} tracks[] = {
    {"power W", ERG_METRIC_POWER_INSTANT, 1e3},
    {"SM clock MHz", ERG_METRIC_SM_CLOCK, 1},
    {"temperature C", ERG_METRIC_TEMPERATURE, 1},
    {"memory temperature C", ERG_METRIC_MEMORY_TEMPERATURE, 1},
    {"power limit W", ERG_METRIC_POWER_LIMIT, 1e3},
    {"clock reasons", ERG_METRIC_REASONS, 1},
    {"PCIe sent GB/s", ERG_METRIC_PCIE_TX, 1e9},
    {"PCIe received GB/s", ERG_METRIC_PCIE_RX, 1e9},
    {"NVLink sent GB/s", ERG_METRIC_NVLINK_TX, 1e9},
    {"NVLink received GB/s", ERG_METRIC_NVLINK_RX, 1e9},
    {"held down by power cap %", ERG_METRIC_VIOLATION_POWER, 1e7},
    {"held down by heat %", ERG_METRIC_VIOLATION_THERMAL, 1e7},
};
enum { TRACKS = sizeof tracks / sizeof *tracks };

static void add_counters(struct erg_trace *trace, const struct erg_sampler_item *item,
                         int64_t origin_ns, struct erg_reading *last, bool *seen)
{
    for (int i = 0; i < TRACKS; i++) {
        const struct track *track = &tracks[i];
        struct erg_reading now = item->sample.readings[track->metric];
        if (!erg_gpu_has(&item->sample, track->metric))
            continue;
        struct erg_trace_arg arg = {"value", NULL, (double)now.value / track->unit};
        int64_t shown_ns = now.time_ns;
        if (erg_metric_info(track->metric)->counter) {
            double time_s = 1e-9 * (double)(now.time_ns - last[i].time_ns);
            bool rate = seen[i] && time_s > 0 && now.value >= last[i].value;
            arg.number = (double)(now.value - last[i].value) / track->unit / time_s;
            shown_ns = last[i].time_ns; /* the mean since then */
            last[i] = now;
            seen[i] = true;
            if (!rate)
                continue;
        }
        erg_trace_counter(trace, (int)item->gpu, track->name, 1e-9 * (double)(shown_ns - origin_ns),
                          &arg, 1);
    }
}

static int write_trace(const struct erg_trace *trace, const char *to, struct erg_error *err)
{
    if (!is_standard(to))
        return erg_trace_write(trace, to, err);
    struct erg_text text = {0};
    erg_trace_text(trace, &text);
    int result = write_line(stdout, to, &text, err);
    if (fflush(stdout) != 0 && result == 0)
        result = fail_writing(to, err);
    erg_text_release(&text);
    return result;
}

static int export_trace(struct erg_recording *recording, const char *to, struct erg_error *err)
{
    struct erg_trace *trace = erg_trace_new();
    size_t gpus = erg_recording_gpus(recording);
    struct erg_reading *last = erg_xcalloc(gpus * TRACKS, sizeof *last);
    bool *seen = erg_xcalloc(gpus * TRACKS, sizeof *seen);
    struct erg_sampler_item item;
    int64_t origin_ns = INT64_MIN, unix_ns;
    int more;
    for (size_t i = 0; i < gpus; i++) {
        struct erg_text name = {0};
        const struct erg_gpu_info *info = erg_recording_gpu(recording, i);
        erg_text_printf(&name, "GPU %d %s", info->index, info->name);
        erg_trace_name_process(trace, (int)i, name.data);
        erg_text_release(&name);
    }
    while ((more = erg_recording_next(recording, &item, &unix_ns, err)) > 0) {
        if (origin_ns == INT64_MIN)
            origin_ns = item.sample.start_ns;
        add_counters(trace, &item, origin_ns, last + item.gpu * TRACKS, seen + item.gpu * TRACKS);
    }
    int result = more < 0 ? -1 : write_trace(trace, to, err);
    free(last);
    free(seen);
    erg_trace_free(trace);
    return result;
}

int erg_recording_export(const char *path, enum erg_recording_format format, const char *to,
                         struct erg_error *err)
{
    struct erg_recording *recording;
    if (erg_recording_open(&recording, path, err) != 0)
        return -1;
    int result = format == ERG_EXPORT_CHROME ? export_trace(recording, to, err)
                                             : export_lines(recording, format, to, err);
    size_t damaged_bytes = erg_recording_damaged_bytes(recording);
    if (result == 0 && damaged_bytes)
        erg_log(ERG_LOG_WARNING,
                "the recording '%s' ends with %zu bytes that are not a whole chunk: its writer was "
                "killed, or the file is damaged there; the data before is exported",
                path, damaged_bytes);
    else if (result == 0 && !erg_recording_was_closed(recording))
        erg_log(ERG_LOG_WARNING,
                "the recording '%s' has no end: its writer was killed, or is still writing; data "
                "after its last whole chunk is missing",
                path);
    erg_recording_close(recording);
    return result;
}
