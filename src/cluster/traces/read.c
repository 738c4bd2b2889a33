/* The reader of traces. */
#include "cluster/job_trace.h"

#include "base/memory.h"
#include "cluster/name_table.h"
#include "cluster/traces/log_internal.h"
#include "io/csv.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID, SUBMIT, ITERATIONS, MODEL, SIZE, DEADLINE, BATCH, GPUS, TYPE, COLUMNS };

static const char *const headers[COLUMNS] = {
    "job_id",     "submit_time_s", "num_iterations", "model",    "param_num",
    "deadline_s", "global_batch",  "num_gpus",       "gpu_type",
};

/* 30,000 years: later ones leave no digits for how long jobs take. */
static const double MOST_SUBMIT_S = 1e12;

struct trace_reading {
    const struct erg_csv *csv;
    const struct erg_fleet *fleet;
    size_t columns[COLUMNS];
    ptrdiff_t tenant_column;
    struct erg_name_table ids, workloads, tenants;
};

static int read_count(const struct trace_reading *reading, size_t row, int column, long most,
                      long *value, struct erg_error *err)
{
    if (erg_csv_long(reading->csv, row, reading->columns[column], value, err) != 0)
        return -1;
    if (*value < 1 || *value > most)
        return erg_csv_fail(reading->csv, row, err,
                            "column '%s': expected a whole number from 1 to %ld, got %ld",
                            headers[column], most, *value);
    return 0;
}

static int read_type(const struct trace_reading *reading, size_t row, int *type,
                     struct erg_error *err)
{
    const char *name = erg_csv_text(reading->csv, row, reading->columns[TYPE]);
    *type = *name ? erg_fleet_type(reading->fleet, name) : -1;
    if (*type >= 0 || !*name)
        return 0;
    struct erg_arena arena = {0};
    erg_csv_fail(reading->csv, row, err, "the cluster has no GPU type '%s', but %s", name,
                 erg_fleet_type_names(reading->fleet, &arena));
    erg_arena_release(&arena);
    return -1;
}

/* The number of the job's workload; a new one is appended to the trace. */
static int workload_of(struct erg_job_trace *trace, struct trace_reading *reading, size_t row,
                       long batch)
{
    const char *family = erg_csv_text(reading->csv, row, reading->columns[MODEL]);
    const char *size = erg_csv_text(reading->csv, row, reading->columns[SIZE]);
    struct erg_text key = {0};
    erg_text_printf(&key, "%s\n%s\n%ld", family, size, batch);
    size_t index = erg_name_add(&reading->workloads, key.data);
    erg_text_release(&key);
    if (index == trace->workloads_count) {
        trace->workloads =
            erg_xrealloc(trace->workloads, ++trace->workloads_count, sizeof *trace->workloads);
        trace->workloads[index] =
            (struct erg_trace_workload){erg_xstrdup(family), erg_xstrdup(size), batch};
    }
    return (int)index;
}

static int read_job(struct erg_job_trace *trace, struct trace_reading *reading, size_t row,
                    struct erg_error *err)
{
    const struct erg_csv *csv = reading->csv;
    const size_t *columns = reading->columns;
    struct erg_trace_job job = {.line = erg_csv_line(csv, row), .deadline_s = INFINITY};
    const char *id = erg_csv_text(csv, row, columns[ID]);
    long iterations, batch, gpus;
    if (!*id)
        return erg_csv_fail(csv, row, err, "column 'job_id': expected a name, got nothing");
    for (int column = MODEL; column <= SIZE; column++)
        if (!*erg_csv_text(csv, row, columns[column]))
            return erg_csv_fail(csv, row, err, "column '%s': expected a text, got nothing",
                                headers[column]);
    size_t index = erg_name_add(&reading->ids, id);
    if (index < trace->count)
        return erg_csv_fail(csv, row, err, "the job '%s' is in line %zu already", id,
                            trace->jobs[index].line);
    if (erg_csv_double(csv, row, columns[SUBMIT], &job.submit_s, err) != 0)
        return -1;
    if (!(fabs(job.submit_s) <= MOST_SUBMIT_S))
        return erg_csv_fail(csv, row, err, "column 'submit_time_s': expected %g to %g s, got %g",
                            -MOST_SUBMIT_S, MOST_SUBMIT_S, job.submit_s);
    if (read_count(reading, row, ITERATIONS, 1000000000000, &iterations, err) != 0 ||
        read_count(reading, row, BATCH, 1000000000, &batch, err) != 0 ||
        read_count(reading, row, GPUS, 1000000, &gpus, err) != 0 ||
        read_type(reading, row, &job.type, err) != 0)
        return -1;
    if (*erg_csv_text(csv, row, columns[DEADLINE]) &&
        erg_csv_double(csv, row, columns[DEADLINE], &job.deadline_s, err) != 0)
        return -1;
    if (job.deadline_s < job.submit_s)
        return erg_csv_fail(csv, row, err,
                            "the deadline, %.12g s, is before the submission at %.12g s: expected "
                            "it later, or nothing",
                            job.deadline_s, job.submit_s);
    job.iterations = (double)iterations;
    job.gpus = (int)gpus;
    job.workload = workload_of(trace, reading, row, batch);
    const char *tenant =
        reading->tenant_column >= 0 ? erg_csv_text(csv, row, (size_t)reading->tenant_column) : "";
    job.tenant = (int)erg_name_add(&reading->tenants, tenant);
    job.id = erg_xstrdup(id);
    if (trace->count == 0 || job.submit_s < trace->first_submit_s)
        trace->first_submit_s = job.submit_s;
    if (trace->count > 0 && job.submit_s < trace->jobs[trace->count - 1].submit_s &&
        trace->inversions++ == 0)
        trace->first_inversion = trace->count;
    trace->jobs[trace->count++] = job;
    return 0;
}

static int read_all(struct erg_job_trace *trace, struct trace_reading *reading,
                    struct erg_error *err)
{
    size_t rows = erg_csv_rows(reading->csv);
    const struct erg_log_layout *layout = erg_log_layout_of(reading->csv);
    for (int i = 0; i < COLUMNS; i++)
        if (erg_csv_require(reading->csv, headers[i], &reading->columns[i], err) != 0)
            return layout ? erg_fail_context(err,
                                             "a log in the format of %s is not a trace; \"ergon "
                                             "import trace\" converts it",
                                             layout->name)
                          : -1;
    reading->tenant_column = erg_csv_find(reading->csv, "tenant");
    if (rows == 0)
        return erg_fail(err, ERG_FAILED, "%s: expected at least one job below the header",
                        trace->path);
    trace->jobs = erg_xcalloc(rows, sizeof *trace->jobs);
    for (size_t row = 0; row < rows; row++)
        if (read_job(trace, reading, row, err) != 0)
            return -1;
    return 0;
}

int erg_job_trace_parse(struct erg_job_trace **out, const char *name, const char *text,
                        size_t length, const struct erg_fleet *fleet, struct erg_error *err)
{
    struct erg_csv *csv;
    if (erg_csv_parse(&csv, name, text, length, err) != 0)
        return -1;
    struct trace_reading reading = {.csv = csv, .fleet = fleet};
    struct erg_job_trace *trace = erg_xcalloc(1, sizeof *trace);
    trace->path = erg_xstrdup(name);
    int result = read_all(trace, &reading, err);
    if (result == 0) { /* the names of tenants stay */
        trace->tenants = reading.tenants.items;
        trace->tenants_count = reading.tenants.count;
        reading.tenants.items = NULL;
        reading.tenants.count = 0;
        *out = trace;
    } else {
        erg_job_trace_free(trace);
    }
    erg_name_table_release(&reading.ids);
    erg_name_table_release(&reading.workloads);
    erg_name_table_release(&reading.tenants);
    erg_csv_free(csv);
    return result;
}

int erg_job_trace_load(struct erg_job_trace **trace, const char *path,
                       const struct erg_fleet *fleet, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int result = erg_job_trace_parse(trace, path, text, length, fleet, err);
    free(text);
    return result;
}

void erg_job_trace_free(struct erg_job_trace *trace)
{
    if (!trace)
        return;
    for (size_t i = 0; i < trace->count; i++)
        free(trace->jobs[i].id);
    for (size_t i = 0; i < trace->workloads_count; i++) {
        free(trace->workloads[i].family);
        free(trace->workloads[i].size);
    }
    for (size_t i = 0; i < trace->tenants_count; i++)
        free(trace->tenants[i]);
    free(trace->jobs);
    free(trace->workloads);
    free(trace->tenants);
    free(trace->path);
    free(trace);
}
