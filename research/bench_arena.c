/*
 * The estimator (estimator.h) against the measured optima of the published Arena
 * profiles, beside the estimates published with them. Of the feasible rows every third (the first,
 * the fourth, …) is what the constants of estimator.yaml were fitted to; deviations are
 * of the other rows. A row is priced where the communication tables have the groups that it needs.
 *
 * Usage: bench_arena [--rows | --fit]
 *   --rows  every row with its plan
 *   --fit   fits the constants anew, to each third in turn, and judges them by the other two
 */
#include "base/least_squares.h"
#include "estimator.h"
#include "io/csv.h"
#include "io/json.h"
#include "json_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* As the published planner has it. */
static const struct erg_roofline a40 = {37400, 696};

struct row {
    struct estimator_job job;
    struct erg_allocation allocation;
    long gpus;
    double measured_s;
    double published_s; /* 0: none */
    double estimated_s; /* 0: cannot be priced */
};

struct data {
    struct estimator *estimator;
    struct comm_tables *tables;
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

/* The least published estimate for the job on the same GPUs, of any plan or of one. */
static double published(const struct erg_csv *csv, const struct row *row, long stages,
                        const struct erg_shape *shape)
{
    double least = INFINITY;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        double time_s = number_at(csv, i, "e2e_iter_time_s");
        if (time_s > 0 && time_s < least && !strcmp(text_at(csv, i, "model"), row->job.family) &&
            !strcmp(text_at(csv, i, "param_num"), row->job.size) &&
            !strcmp(text_at(csv, i, "gpu_type"), row->allocation.gpu_type) &&
            (long)number_at(csv, i, "global_batch") == row->job.batch &&
            (long)number_at(csv, i, "num_hosts") == row->allocation.nodes &&
            (long)number_at(csv, i, "gpus_per_host") == row->allocation.gpus_per_node &&
            (!shape || ((long)number_at(csv, i, "pp") == stages &&
                        (long)number_at(csv, i, "dp") == shape->data &&
                        (long)number_at(csv, i, "tp") == shape->tensor)))
            least = time_s;
    }
    return least < INFINITY ? least : 0;
}

static struct row read_row(const struct erg_csv *csv, size_t i, const char *measured)
{
    struct row row = {
        .job = {text_at(csv, i, "model"), text_at(csv, i, "param_num"),
                (long)number_at(csv, i, "global_batch")},
        .allocation = {text_at(csv, i, "gpu_type"), (long)number_at(csv, i, "num_nodes"),
                       (long)number_at(csv, i, "gpus_per_node"), true},
        .measured_s = number_at(csv, i, measured),
    };
    row.gpus = row.allocation.nodes * row.allocation.gpus_per_node;
    return row;
}

static void load(struct data *data)
{
    struct erg_error err;
    if (comm_tables_load(&data->tables, path_of("comm_data.csv"), &err) != 0 ||
        erg_csv_load(&data->optima, path_of("prof_optimal.csv"), &err) != 0 ||
        erg_csv_load(&data->estimates, path_of("prof_estimate.csv"), &err) != 0 ||
        estimator_load(&data->estimator, ERGON_TEST_SOURCE_DIR "/research/estimator.yaml", &err) !=
            0)
        die(&err);
    for (size_t i = 0; i < erg_csv_rows(data->optima); i++) {
        struct row row = read_row(data->optima, i, "iter_time_s");
        if (!(row.measured_s > 0))
            continue;
        row.published_s = published(data->estimates, &row, 0, NULL);
        ERG_PUSH(&data->rows, items, row);
    }
}

static int estimate_row(const struct data *data, struct row *row,
                        struct erg_grid_estimate *estimate, struct erg_error *err)
{
    row->estimated_s = 0;
    if (estimator_fastest(data->estimator, data->tables, &row->job, &row->allocation, estimate,
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
    size_t priced = 0;
    for (size_t i = 0; i < data->rows.count; i++)
        priced += data->rows.items[i].estimated_s > 0;
    printf(
        "%zu of %zu feasible rows are priced; for the others there are no communication tables\n",
        priced, data->rows.count);
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
        struct erg_grid_estimate estimate;
        struct erg_error err;
        int result = estimate_row(data, row, &estimate, &err);
        if (print && result != 0)
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

/* The fitted constants. */
static double *constant(struct estimator *estimator, size_t index)
{
    struct erg_estimate_constants *c = &estimator->constants;
    double *const constants[] = {&c->matmul_efficiency, &c->convolution_efficiency,
                                 &c->memory_efficiency, &c->convolution_rows, &c->scaling_loss};
    return constants[index];
}
enum { CONSTANTS = 5 };
static const char *const constant_names[CONSTANTS] = {"matmul_efficiency", "convolution_efficiency",
                                                      "memory_efficiency", "convolution_rows",
                                                      "scaling_loss"};
/* What one would guess, where every fit starts, and how uncertain that is (of its logarithm). */
static const double guesses[CONSTANTS] = {0.7, 0.7, 0.9, 500, 0.1};
static const double uncertainty[CONSTANTS] = {0.3, 0.3, 0.3, 1, 1};

struct fit {
    struct data *data;
    size_t third;
};

static void set_constants(const struct fit *fit, const double *parameters)
{
    for (size_t i = 0; i < CONSTANTS; i++)
        *constant(fit->data->estimator, i) = guesses[i] * exp(parameters[i]);
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
        struct erg_grid_estimate estimate;
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
    double before[CONSTANTS];
    for (size_t i = 0; i < CONSTANTS; i++)
        before[i] = *constant(data->estimator, i);
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
        *constant(data->estimator, i) = before[i];
}

/* "wide_resnet__1B::256__16::2::a40__2__2" into job, stages and allocation. */
struct key {
    char family[32], size[16], gpu_type[16];
    long batch, stages, nodes, gpus_per_node;
};

static bool parse_key(const char *text, struct key *key)
{
    const char *split = strstr(text, "__");
    if (!split || split - text >= (long)sizeof key->family)
        return false;
    snprintf(key->family, sizeof key->family, "%.*s", (int)(split - text), text);
    return sscanf(split + 2, "%15[^:]::%ld__16::%ld::%15[^_]__%ld__%ld", key->size, &key->batch,
                  &key->stages, key->gpu_type, &key->nodes, &key->gpus_per_node) == 6;
}

static bool listed(const json_t *plans, const char *text, size_t length)
{
    size_t i;
    const json_t *plan;
    json_array_foreach(plans, i, plan) if (!strncmp(json_string_value(plan), text, length) &&
                                           (json_string_value(plan)[length] == 0 ||
                                            json_string_value(plan)[length] == ':')) return true;
    return false;
}

/* What the published planner kept of a grid, and what ours keeps. */
struct agreement {
    size_t published, kept, partitions, plans, in_set, chosen, grids, of_grids;
};

/* The layers of a model in microbatches of a batch; to be released. */
static void make_layers(struct erg_planner_layers *layers, const struct family_model *model,
                        long batch)
{
    struct erg_grid_ops ops;
    struct erg_grid_layer cut[ERG_GRID_MAX_STAGES];
    family_ops(model, &ops);
    size_t count = erg_grid_cut_layers(&ops, cut, ERG_GRID_MAX_STAGES);
    erg_planner_layers_init(layers, &ops, cut, count, model->half ? 2 : 4,
                            (double)batch / ERG_GRID_MICROBATCHES);
    free(ops.items);
}

static void compare_grid(const struct data *data, const char *text, const json_t *plans,
                         struct agreement *all)
{
    struct key key;
    const struct family_model *model;
    struct erg_error err;
    if (!parse_key(text, &key) ||
        estimator_model(data->estimator, key.family, key.size, &model, &err) != 0 ||
        json_array_size(plans) == 0) {
        printf("%-46s nothing to compare\n", text);
        return;
    }
    long gpus = key.nodes * key.gpus_per_node;
    struct erg_allocation allocation = {key.gpu_type, key.nodes, key.gpus_per_node, true};
    struct erg_planner_layers layers;
    struct erg_grid_problem problem;
    struct erg_grid_plan_set set;
    struct erg_grid_plan plan;
    struct erg_grid_partitions partitions;
    const struct erg_grid_network network = comm_tables_network(data->tables);
    make_layers(&layers, model, key.batch);
    erg_grid_problem_init(&problem, &layers, &a40, family_skew(model, gpus), gpus,
                          (size_t)key.stages);
    if (erg_grid_plan(&problem, &plan, &err) != 0 ||
        erg_grid_plan_set(&problem, &network, &allocation, &set, &err) != 0)
        die(&err);
    erg_grid_partitions(&problem, &partitions);
    erg_grid_keep_quiet(&problem, &partitions);
    struct agreement grid = {.published = json_array_size(plans), .kept = set.count};
    struct erg_text chosen = {0}, ours = {0};
    erg_grid_plan_text(&plan, &chosen);
    for (size_t i = 0; i < set.count; i++) {
        ours.count = 0;
        erg_grid_plan_text(&set.items[i].plan, &ours);
        grid.in_set += listed(plans, ours.data, ours.count);
    }
    size_t index;
    const json_t *published_plan;
    json_array_foreach(plans, index, published_plan)
    {
        /* Whether its partition is among those that ours keeps before it looks at shapes. */
        const char *name = json_string_value(published_plan);
        size_t length = strcspn(name, ":");
        for (size_t i = 0; i < partitions.count; i++) {
            struct erg_grid_plan kept = {.stages = problem.stages};
            memcpy(kept.first, partitions.items[i].first, sizeof kept.first);
            ours.count = 0;
            erg_grid_plan_text(&kept, &ours);
            if (strcspn(ours.data, ":") == length && !strncmp(ours.data, name, length)) {
                grid.partitions++;
                break;
            }
        }
    }
    grid.chosen = listed(plans, chosen.data, chosen.count);
    grid.plans = listed(plans, chosen.data, strcspn(chosen.data, ":"));
    printf("%-46s published %2zu, ours %2zu, both %2zu; partitions kept by ours %2zu; ours %s%s\n",
           text, grid.published, grid.kept, grid.in_set, grid.partitions, chosen.data,
           grid.chosen  ? " (listed)"
           : grid.plans ? " (partition listed)"
                        : "");
    all->published += grid.published;
    all->kept += grid.kept;
    all->in_set += grid.in_set;
    all->partitions += grid.partitions;
    all->chosen += grid.chosen;
    all->plans += grid.plans;
    all->grids++;
    erg_text_release(&chosen);
    erg_text_release(&ours);
    free(partitions.items);
    erg_planner_layers_release(&layers);
}

static void compare_plan_sets(const struct data *data)
{
    json_t *root;
    struct erg_error err;
    if (load_json(&root, path_of("tuning_db.json"), &err) != 0)
        die(&err);
    const char *key;
    json_t *value;
    struct agreement all = {0};
    printf("\nplan sets:\n");
    json_object_foreach(json_object_get(root, "plan_set"), key, value)
        compare_grid(data, key, value, &all);
    printf(
        "%zu grids: of %zu published plans ours keeps the partition of %zu (%.0f %%) and lists %zu "
        "(%.0f %%), %zu in all; our choice is listed in %zu, its partition in %zu\n",
        all.grids, all.published, all.partitions,
        100 * (double)all.partitions / (double)all.published, all.in_set,
        100 * (double)all.in_set / (double)all.published, all.kept, all.chosen, all.plans);
    json_object_foreach(json_object_get(root, "selected_cell_num_stages"), key, value)
    {
        /* wide_resnet__1B::256__16::a40__2__2: the key of a plan set but for the stages. */
        const struct estimator_job job = {"wide_resnet", "1B", 256};
        const struct erg_allocation allocation = {"a40", 2, 2, true};
        struct erg_grid_estimate estimate;
        if (strcmp(key, "wide_resnet__1B::256__16::a40__2__2") != 0)
            printf("%s: not compared\n", key);
        else if (estimator_proxy(data->estimator, data->tables, &job, &allocation, &estimate,
                                 &err) != 0)
            die(&err);
        else
            printf("%s: published %lld stages, our proxy plan has %zu (%.2f s)\n", key,
                   (long long)json_integer_value(value), estimate.plan.stages,
                   estimate.time.total_s);
    }
    json_decref(root);
}

/*
 * Plans that were measured one by one, several of them over Ethernet between nodes: nothing was
 * fitted to these. The published estimates are for InfiniBand.
 */
static void compare_plans(const struct data *data)
{
    struct erg_csv *csv;
    struct erg_error err;
    if (erg_csv_load(&csv, path_of("prof_ground_truth.csv"), &err) != 0)
        die(&err);
    printf("\nmeasured plans:\n");
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        struct row row = read_row(csv, i, "measured_iter_time_s");
        struct erg_shape shape = {(long)number_at(csv, i, "dp"), (long)number_at(csv, i, "tp")};
        size_t stages = (size_t)number_at(csv, i, "pp");
        const struct family_model *model;
        struct erg_planner_layers layers;
        struct erg_grid_problem problem;
        struct erg_grid_plan plan;
        struct erg_grid_estimate estimate;
        row.allocation.infiniband = false;
        if (estimator_model(data->estimator, row.job.family, row.job.size, &model, &err) != 0)
            die(&err);
        make_layers(&layers, model, row.job.batch);
        erg_grid_problem_init(&problem, &layers, &a40, family_skew(model, row.gpus), row.gpus,
                              stages);
        if (erg_grid_plan(&problem, &plan, &err) != 0)
            die(&err);
        for (size_t s = 0; s < stages; s++)
            plan.shapes[s] = shape;
        if (estimator_plan(data->estimator, data->tables, &row.job, &row.allocation, &plan, false,
                           &estimate, &err) != 0)
            die(&err);
        printf("%s %s %ld, %ldx%ld %s, %zu stages of %ld x %ld: measured %6.2f s, ours %6.2f, "
               "published %6.2f\n",
               row.job.family, row.job.size, row.job.batch, row.allocation.nodes,
               row.allocation.gpus_per_node, row.allocation.gpu_type, stages, shape.data,
               shape.tensor, row.measured_s, estimate.time.total_s,
               published(data->estimates, &row, (long)stages, &shape));
        erg_planner_layers_release(&layers);
    }
    erg_csv_free(csv);
}

int main(int argc, char **argv)
{
    struct data data = {0};
    bool rows = argc > 1 && !strcmp(argv[1], "--rows");
    load(&data);
    estimate_all(&data, rows);
    report(&data, 0);
    compare_plans(&data);
    compare_plan_sets(&data);
    for (size_t third = 0; third < 3 && argc > 1 && !strcmp(argv[1], "--fit"); third++)
        fit_third(&data, third);
    free(data.rows.items);
    erg_csv_free(data.optima);
    erg_csv_free(data.estimates);
    comm_tables_free(data.tables);
    estimator_free(data.estimator);
    return 0;
}
