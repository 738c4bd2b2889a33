/*
 * The estimator of layout/estimate.h against the measured optima of the published Arena profiles,
 * beside the estimates published with them. Of the feasible rows every third (the first, the
 * fourth, …) is what the constants of data/estimators/arena.yaml were fitted to; deviations are of
 * the other rows. A row is priced where the communication tables have the groups that it needs.
 *
 * Usage: bench_arena [--rows | --fit]
 *   --rows  every row with its plan
 *   --fit   fits the constants anew, to each third in turn, and judges them by the other two
 */
#include "base/least_squares.h"
#include "io/csv.h"
#include "layout/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct row {
    struct erg_estimate_job job;
    struct erg_allocation allocation;
    long gpus;
    double measured_s;
    double published_s; /* 0: none */
    double estimated_s; /* 0: cannot be priced */
};

struct data {
    struct erg_estimator *estimator;
    struct erg_comm_tables *tables;
    struct erg_csv *optima, *estimates;
    struct {
        struct row *items;
        size_t count, capacity;
    } rows;
};

static void die(const struct erg_error *err)
{
    fprintf(stderr, "bench_arena: %s\n", err->message);
    exit(1);
}

static const char *path_of(const char *name)
{
    static char path[4096];
    const char *root = getenv("ERGON_SHARED_DATA");
    snprintf(path, sizeof path, "%s/arena/%s", root ? root : ERGON_TEST_SHARED_DATA, name);
    if (access(path, R_OK) != 0) {
        printf("skipped: measured data arena/%s is not here\n", name);
        exit(0);
    }
    return path;
}

static const char *text_at(const struct erg_csv *csv, size_t row, const char *name)
{
    struct erg_error err;
    size_t column;
    if (erg_csv_require(csv, name, &column, &err) != 0)
        die(&err);
    return erg_csv_text(csv, row, column);
}

/* NAN for what is no finite number. */
static double number_at(const struct erg_csv *csv, size_t row, const char *name)
{
    double value;
    return erg_parse_double(text_at(csv, row, name), &value) ? value : NAN;
}

/* The least published estimate of any plan for the job on the same GPUs. */
static double published(const struct erg_csv *csv, const struct row *row)
{
    double least = INFINITY;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        double time_s = number_at(csv, i, "e2e_iter_time_s");
        if (time_s > 0 && time_s < least && !strcmp(text_at(csv, i, "model"), row->job.family) &&
            !strcmp(text_at(csv, i, "param_num"), row->job.size) &&
            !strcmp(text_at(csv, i, "gpu_type"), row->allocation.gpu_type) &&
            (long)number_at(csv, i, "global_batch") == row->job.batch &&
            (long)number_at(csv, i, "num_hosts") == row->allocation.nodes &&
            (long)number_at(csv, i, "gpus_per_host") == row->allocation.gpus_per_node)
            least = time_s;
    }
    return least < INFINITY ? least : 0;
}

static void load(struct data *data)
{
    struct erg_error err;
    if (erg_comm_tables_load(&data->tables, path_of("comm_data.csv"), &err) != 0 ||
        erg_csv_load(&data->optima, path_of("prof_optimal.csv"), &err) != 0 ||
        erg_csv_load(&data->estimates, path_of("prof_estimate.csv"), &err) != 0 ||
        erg_estimator_load(&data->estimator, "arena", &err) != 0)
        die(&err);
    for (size_t i = 0; i < erg_csv_rows(data->optima); i++) {
        const struct erg_csv *csv = data->optima;
        struct row row = {
            .job = {text_at(csv, i, "model"), text_at(csv, i, "param_num"),
                    (long)number_at(csv, i, "global_batch")},
            .allocation = {text_at(csv, i, "gpu_type"), (long)number_at(csv, i, "num_nodes"),
                           (long)number_at(csv, i, "gpus_per_node"), true},
            .measured_s = number_at(csv, i, "iter_time_s"),
        };
        if (!(row.measured_s > 0))
            continue;
        row.gpus = row.allocation.nodes * row.allocation.gpus_per_node;
        row.published_s = published(data->estimates, &row);
        ERG_PUSH(&data->rows, items, row);
    }
}

static int estimate_row(const struct data *data, struct row *row, struct erg_estimate *estimate,
                        struct erg_error *err)
{
    row->estimated_s = 0;
    if (erg_estimate_job(data->estimator, data->tables, &row->job, &row->allocation, estimate,
                         err) != 0)
        return -1;
    row->estimated_s = estimate->time.total_s;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Which rows a line of the report is about; NULL and 0 are all. */
struct choice {
    const char *family, *gpu_type;
    long gpus;
    bool with_published;
    size_t fitted_third; /* left out */
};

static bool chosen(const struct choice *choice, const struct row *row, size_t index)
{
    return index % 3 != choice->fitted_third && row->estimated_s > 0 &&
           (!choice->family || !strcmp(choice->family, row->job.family)) &&
           (!choice->gpu_type || !strcmp(choice->gpu_type, row->allocation.gpu_type)) &&
           (!choice->gpus || choice->gpus == row->gpus) &&
           (!choice->with_published || row->published_s > 0);
}

/* Mean and median deviation and mean ratio of one of the two estimates. */
static void summarise(const struct data *data, const struct choice *choice, bool ours)
{
    double *deviations = erg_xcalloc(data->rows.count, sizeof *deviations), sum = 0, ratios = 0;
    size_t count = 0;
    for (size_t i = 0; i < data->rows.count; i++) {
        const struct row *row = &data->rows.items[i];
        if (!chosen(choice, row, i))
            continue;
        double ratio = (ours ? row->estimated_s : row->published_s) / row->measured_s;
        deviations[count++] = fabs(ratio - 1);
        sum += fabs(ratio - 1);
        ratios += ratio;
    }
    if (count) {
        qsort(deviations, count, sizeof *deviations, ascending);
        double median = (deviations[(count - 1) / 2] + deviations[count / 2]) / 2;
        printf("  %5.1f %6.1f %6.3f", 100 * sum / (double)count, 100 * median,
               ratios / (double)count);
    } else
        printf("      -      -      -");
    free(deviations);
}

static void report_line(const struct data *data, const char *label, struct choice choice)
{
    size_t count = 0, both = 0;
    for (size_t i = 0; i < data->rows.count; i++) {
        bool priced = chosen(&choice, &data->rows.items[i], i);
        count += priced;
        both += priced && data->rows.items[i].published_s > 0;
    }
    printf("%-12s %4zu", label, count);
    summarise(data, &choice, true);
    choice.with_published = true;
    printf("   | %4zu", both);
    summarise(data, &choice, true);
    printf("  |");
    summarise(data, &choice, false);
    printf("\n");
}

static void report(const struct data *data, size_t fitted_third)
{
    static const char *const families[] = {"bert", "moe", "wide_resnet"};
    static const char *const types[] = {"a100", "v100", "a40", "a10"};
    struct choice all = {.fitted_third = fitted_third};
    printf("%-12s rows  ours: mean %%, median %%, ratio | rows  ours on those with a published "
           "estimate | published\n",
           "");
    report_line(data, "all", all);
    for (size_t i = 0; i < COUNT(families); i++) {
        struct choice choice = all;
        choice.family = families[i];
        report_line(data, families[i], choice);
    }
    for (size_t i = 0; i < COUNT(types); i++) {
        struct choice choice = all;
        choice.gpu_type = types[i];
        report_line(data, types[i], choice);
    }
    for (long gpus = 1; gpus <= ERG_GRID_MAX_STAGES; gpus *= 2) {
        char label[32];
        struct choice choice = all;
        choice.gpus = gpus;
        snprintf(label, sizeof label, "%ld GPUs", gpus);
        report_line(data, label, choice);
    }
}

static void estimate_all(struct data *data, bool print)
{
    for (size_t i = 0; i < data->rows.count; i++) {
        struct row *row = &data->rows.items[i];
        struct erg_estimate estimate;
        struct erg_error err;
        int result = estimate_row(data, row, &estimate, &err);
        if (result != 0)
            printf("not priced: %s\n", err.message);
        else if (print) {
            struct erg_text plan = {0};
            erg_grid_plan_text(&estimate.plan, &plan);
            printf("%-11s %5s %5ld %5s %ldx%-2ld measured %7.2f s, ours %7.2f (%.3f), published "
                   "%7.2f; %s%s, %.1f GiB\n",
                   row->job.family, row->job.size, row->job.batch, row->allocation.gpu_type,
                   row->allocation.nodes, row->allocation.gpus_per_node, row->measured_s,
                   row->estimated_s, row->estimated_s / row->measured_s, row->published_s,
                   plan.data, estimate.shared_experts ? ", experts shared" : "",
                   estimate.memory_bytes / 0x1p30);
            erg_text_release(&plan);
        }
    }
}

/* The fitted constants, and how uncertain each is beforehand (of its logarithm). */
static double *constant(struct erg_estimator *estimator, size_t index)
{
    struct erg_estimate_constants *c = &estimator->constants;
    double *const constants[] = {&c->matmul_efficiency, &c->convolution_efficiency,
                                 &c->memory_efficiency, &c->convolution_rows,
                                 &c->collective_factor, &c->send_factor};
    return constants[index];
}
enum { CONSTANTS = 6 };
static const char *const constant_names[CONSTANTS] = {"matmul_efficiency", "convolution_efficiency",
                                                      "memory_efficiency", "convolution_rows",
                                                      "collective_factor", "send_factor"};
static const double uncertainty[CONSTANTS] = {0.3, 0.3, 0.3, 1, 1, 1};

struct fit {
    struct data *data;
    size_t third;
    double start[CONSTANTS];
};

static void set_constants(const struct fit *fit, const double *parameters)
{
    for (size_t i = 0; i < CONSTANTS; i++)
        *constant(fit->data->estimator, i) = fit->start[i] * exp(parameters[i]);
}

/*
 * Deviations of the fitted third. Beyond a tenth they count in proportion and not squared: some
 * measured optima are several times slower than the same job on fewer GPUs.
 */
static int residuals_of(void *context, const double *parameters, double *residuals,
                        struct erg_error *err)
{
    struct fit *fit = context;
    size_t count = 0;
    (void)err;
    set_constants(fit, parameters);
    for (size_t i = fit->third; i < fit->data->rows.count; i += 3) {
        struct row *row = &fit->data->rows.items[i];
        struct erg_estimate estimate;
        double residual = 0;
        if (estimate_row(fit->data, row, &estimate, NULL) == 0) {
            double z = log(row->estimated_s / row->measured_s) / 0.1;
            residual = copysign(sqrt(2 * (sqrt(1 + z * z) - 1)), z);
        }
        residuals[count++] = residual;
    }
    return 0;
}

static void fit_third(struct data *data, size_t third)
{
    struct fit fit = {.data = data, .third = third};
    double parameters[CONSTANTS] = {0};
    struct erg_error err;
    for (size_t i = 0; i < CONSTANTS; i++)
        fit.start[i] = *constant(data->estimator, i);
    size_t count = (data->rows.count - third + 2) / 3;
    if (erg_least_squares(residuals_of, &fit, CONSTANTS, uncertainty, count, 50, parameters,
                          &err) != 0)
        die(&err);
    set_constants(&fit, parameters);
    printf("\nfitted to rows %zu, %zu, ... of %zu:\n", third, third + 3, data->rows.count);
    for (size_t i = 0; i < CONSTANTS; i++)
        printf("  %s: %.4g\n", constant_names[i], *constant(data->estimator, i));
    estimate_all(data, false);
    report(data, third);
    for (size_t i = 0; i < CONSTANTS; i++)
        *constant(data->estimator, i) = fit.start[i];
}

int main(int argc, char **argv)
{
    struct data data = {0};
    bool rows = argc > 1 && !strcmp(argv[1], "--rows");
    load(&data);
    estimate_all(&data, rows);
    report(&data, 0);
    for (size_t third = 0; third < 3 && argc > 1 && !strcmp(argv[1], "--fit"); third++)
        fit_third(&data, third);
    free(data.rows.items);
    erg_csv_free(data.optima);
    erg_csv_free(data.estimates);
    erg_comm_tables_free(data.tables);
    erg_estimator_free(data.estimator);
    return 0;
}
