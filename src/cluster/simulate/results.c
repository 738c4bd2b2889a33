/* Results of a simulation: the document and the tables. */
#include "cluster/simulate/results.h"

#include "cluster/simulate/gpu_uses.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const states[] = {
    [ERG_JOB_FUTURE] = "future", [ERG_JOB_WAITING] = "waiting",   [ERG_JOB_RUNNING] = "running",
    [ERG_JOB_ENDED] = "ended",   [ERG_JOB_REJECTED] = "rejected",
};

static const char *const kinds[ERG_RECORD_KINDS] = {
    [ERG_RECORD_SUBMIT] = "submit",   [ERG_RECORD_START] = "start",
    [ERG_RECORD_CHANGE] = "change",   [ERG_RECORD_SUSPEND] = "suspend",
    [ERG_RECORD_RELEASE] = "release", [ERG_RECORD_EVICT] = "evict",
    [ERG_RECORD_END] = "end",         [ERG_RECORD_REJECT] = "reject",
    [ERG_RECORD_FAILURE] = "failure", [ERG_RECORD_REPAIR] = "repair",
    [ERG_RECORD_OFF] = "off",         [ERG_RECORD_WAKE] = "wake",
};

static json_t *families(const struct erg_simulated *result)
{
    json_t *array = json_array();
    for (size_t i = 0; i < result->families_count; i++) {
        const struct erg_family_result *family = &result->families[i];
        json_array_append_new(
            array, erg_json_pack("{s:s, s:I, s:I, s:o, s:o}", "family", family->name,
                                 "submitted_jobs", (json_int_t)family->submitted_jobs,
                                 "finished_jobs", (json_int_t)family->finished_jobs,
                                 "mean_throughput", erg_json_number(family->mean_throughput),
                                 "peak_throughput", erg_json_number(family->peak_throughput)));
    }
    return array;
}

static json_t *unserved(const struct erg_simulated *result, const struct erg_simulation *simulation)
{
    json_t *array = json_array();
    for (size_t i = 0; i < result->unserved_count; i++) {
        const struct erg_unserved *job = &result->unserved[i];
        const struct erg_trace_job *request = &simulation->trace->jobs[job->job];
        struct erg_text message = {0};
        erg_unserved_text(&message, job, simulation->trace, simulation->fleet,
                          simulation->policy->name);
        json_array_append_new(array, erg_json_pack("{s:s, s:I, s:s, s:s}", "job", request->id,
                                                   "line", (json_int_t)request->line, "fate",
                                                   erg_unserved_names[job->fate], "message",
                                                   message.data));
        erg_text_release(&message);
    }
    return array;
}

#define NUMBER(key)                                                                                \
    {                                                                                              \
#key, offsetof(struct erg_summary, key)                                                    \
    }

/* Numbers of a summary; null if undefined. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    NUMBER(mean_jct_s),
    NUMBER(median_jct_s),
    NUMBER(p99_jct_s),
    NUMBER(mean_time_in_system_s),
    NUMBER(mean_queue_s),
    NUMBER(mean_slowdown),
    NUMBER(mean_finish_time_fairness),
    NUMBER(worst_finish_time_fairness),
    NUMBER(mean_throughput),
    NUMBER(peak_throughput),
    NUMBER(utilization),
    NUMBER(goodput),
    NUMBER(fragmentation),
    NUMBER(reconfiguration_gpu_s),
    NUMBER(undone_gpu_s),
    NUMBER(deadlines_met),
    NUMBER(energy_j),
    NUMBER(peak_power_w),
    NUMBER(throttled_s),
    NUMBER(off_gpu_s),
    NUMBER(wake_ups),
    NUMBER(cost_usd),
    NUMBER(co2_kg),
    NUMBER(simulated_s),
};

static const char *const counts[] = {"gpus",          "submitted_jobs",  "finished_jobs",
                                     "rejected_jobs", "unrunnable_jobs", "reconfigurations"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

json_t *erg_simulated_document(const struct erg_simulated *result,
                               const struct erg_simulation *simulation)
{
    const struct erg_summary *summary = &result->summary;
    const long values[COUNT(counts)] = {simulation->fleet->gpus,  summary->submitted_jobs,
                                        summary->finished_jobs,   summary->rejected_jobs,
                                        summary->unrunnable_jobs, summary->reconfigurations};
    json_t *root = erg_json_pack("{s:s, s:i, s:s}", "schema", "ergon.simulation", "schema_version",
                                 1, "policy", simulation->policy->name);
    for (size_t i = 0; i < COUNT(counts); i++)
        json_object_set_new(root, counts[i], json_integer(values[i]));
    for (size_t i = 0; i < COUNT(numbers); i++) {
        double value;
        memcpy(&value, (const char *)summary + numbers[i].offset, sizeof value);
        json_object_set_new(root, numbers[i].key, erg_json_number(value));
    }
    json_object_set_new(root, "families", families(result));
    json_object_set_new(root, "unserved", unserved(result, simulation));
    return root;
}

const char *erg_simulated_missing(const json_t *document)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (!schema || strcmp(schema, "ergon.simulation") != 0)
        return "schema";
    for (size_t i = 0; i < COUNT(counts); i++)
        if (!json_is_integer(json_object_get(document, counts[i])))
            return counts[i];
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const json_t *value = json_object_get(document, numbers[i].key);
        if (!json_is_number(value) && !json_is_null(value))
            return numbers[i].key;
    }
    if (!json_is_array(json_object_get(document, "families")))
        return "families";
    return json_is_array(json_object_get(document, "unserved")) ? NULL : "unserved";
}

static void add_row(struct erg_text *out, const char *const *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        erg_csv_add(out, fields[i]);
    erg_csv_end_row(out);
}

#define HEADER(out, ...)                                                                           \
    do {                                                                                           \
        static const char *const header[] = {__VA_ARGS__};                                         \
        add_row((out), header, sizeof header / sizeof *header);                                    \
    } while (0)

static void jobs_table(struct erg_text *out, const struct erg_simulated *result,
                       const struct erg_simulation *simulation)
{
    const struct erg_job_trace *trace = simulation->trace;
    const bool drawn = !isnan(result->summary.energy_j);
    HEADER(out, "job_id", "tenant", "state", "runnable", "submitted_s", "started_s", "ended_s",
           "jct_s", "queued_s", "iterations", "remaining", "gpu_s", "lost_gpu_s", "undone_gpu_s",
           "energy_j", "reconfigurations");
    for (size_t i = 0; i < result->jobs_count; i++) {
        const struct erg_job_result *job = &result->jobs[i];
        erg_csv_add(out, trace->jobs[i].id);
        erg_csv_add(out, trace->tenants[trace->jobs[i].tenant]);
        erg_csv_add(out, states[job->state]);
        erg_csv_add_long(out, job->runnable);
        erg_csv_add_double(out, job->submitted_s);
        erg_csv_add_double(out, job->started_s);
        erg_csv_add_double(out, job->ended_s);
        erg_csv_add_double(out, job->ended_s - job->submitted_s);
        erg_csv_add_double(out, job->queued_s);
        erg_csv_add_double(out, job->iterations);
        erg_csv_add_double(out, job->remaining);
        erg_csv_add_double(out, job->gpu_s);
        erg_csv_add_double(out, job->lost_s);
        erg_csv_add_double(out, job->undone_s);
        erg_csv_add_double(out, drawn ? job->energy_j : NAN);
        erg_csv_add_long(out, job->reconfigurations);
        erg_csv_end_row(out);
    }
}

/* "0:1111 3:0011": nodes, and a bit for each of their GPUs. */
static void add_gpus(struct erg_text *out, const struct erg_event_row *row)
{
    struct erg_text gpus = {0};
    for (int i = 0; i < row->slices_count; i++) {
        char bits[ERG_NODE_GPUS_MOST + 1];
        erg_slice_bits(bits, &row->slices[i]);
        erg_text_printf(&gpus, "%s%d:%s", i > 0 ? " " : "", row->slices[i].node, bits);
    }
    erg_csv_add(out, gpus.count ? gpus.data : "");
    erg_text_release(&gpus);
}

void erg_event_header(struct erg_text *out)
{
    HEADER(out, "time_s", "event", "job_id", "node", "gpu_type", "nodes", "gpus_per_node", "point",
           "gpus");
}

void erg_event_row_add(struct erg_text *out, const struct erg_event_row *row)
{
    erg_csv_add_double(out, row->at_s);
    erg_csv_add(out, kinds[row->kind]);
    erg_csv_add(out, row->job);
    erg_csv_add_double(out, row->node < 0 ? (double)NAN : row->node);
    if (!row->type) {
        static const char *const none[] = {"", "", "", "", ""};
        add_row(out, none, 5);
        return;
    }
    erg_csv_add(out, row->type);
    erg_csv_add_long(out, row->nodes);
    erg_csv_add_long(out, row->gpus_per_node);
    erg_csv_add_long(out, row->point);
    add_gpus(out, row);
    erg_csv_end_row(out);
}

static void events_table(struct erg_text *out, const struct erg_simulated *result,
                         const struct erg_simulation *simulation)
{
    erg_event_header(out);
    for (size_t i = 0; i < result->records_count; i++) {
        const struct erg_cluster_record *record = &result->records[i];
        struct erg_event_row row = {
            .at_s = record->at_s,
            .kind = record->kind,
            .job = record->job < 0 ? "" : simulation->trace->jobs[record->job].id,
            .node = record->node};
        if (record->shape >= 0) {
            const struct erg_gpu_shape *shape = &simulation->speeds->shapes[record->shape];
            row.type = simulation->fleet->types[shape->type].name;
            row.nodes = shape->nodes;
            row.gpus_per_node = shape->gpus_per_node;
            row.point = record->point;
            row.slices = &result->slices[record->first_slice];
            row.slices_count = record->slices;
        }
        erg_event_row_add(out, &row);
    }
}

static void cluster_table(struct erg_text *out, const struct erg_simulated *result)
{
    const bool drawn = !isnan(result->summary.energy_j);
    HEADER(out, "time_s", "running", "waiting", "busy_gpus", "down_gpus", "off_gpus",
           "samples_per_s", "power_w");
    for (size_t i = 0; i < result->samples_count; i++) {
        const struct erg_cluster_sample *sample = &result->samples[i];
        erg_csv_add_double(out, sample->at_s);
        erg_csv_add_long(out, sample->running);
        erg_csv_add_long(out, sample->waiting);
        erg_csv_add_long(out, sample->busy_gpus);
        erg_csv_add_long(out, sample->down_gpus);
        erg_csv_add_long(out, sample->off_gpus);
        erg_csv_add_double(out, sample->samples_per_s);
        erg_csv_add_double(out, drawn ? sample->power_w : NAN);
        erg_csv_end_row(out);
    }
}

static int write_text(const struct erg_text *text, const char *folder, const char *name,
                      struct erg_error *err)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", folder, name);
    int result = erg_file_write(path.data, text->data, text->count, err);
    erg_text_release(&path);
    return result;
}

int erg_simulated_write(const struct erg_simulated *result, const struct erg_simulation *simulation,
                        const char *folder, struct erg_error *err)
{
    if (erg_dir_make(folder, err) != 0)
        return -1;
    struct erg_text table = {0}, path = {0};
    json_t *document = erg_simulated_document(result, simulation);
    erg_text_printf(&path, "%s/summary.json", folder);
    int status = erg_json_write(path.data, document, err);
    json_decref(document);
    erg_text_release(&path);
    jobs_table(&table, result, simulation);
    if (status == 0)
        status = write_text(&table, folder, "jobs.csv", err);
    if (status == 0 && simulation->keep_events) {
        table.count = 0;
        events_table(&table, result, simulation);
        status = write_text(&table, folder, "events.csv", err);
    }
    if (status == 0 && simulation->keep_samples) {
        table.count = 0;
        cluster_table(&table, result);
        status = write_text(&table, folder, "cluster.csv", err);
    }
    erg_text_release(&table);
    if (status == 0 && simulation->keep_events && simulation->keep_samples) {
        erg_text_printf(&path, "%s/trace.json", folder);
        status = erg_simulated_trace(result, simulation, path.data, err);
        erg_text_release(&path);
    }
    return status;
}
