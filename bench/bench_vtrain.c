/*
 * The time model against measured iterations of GPT models on A100 nodes (vTrain's tables, MICRO
 * 2024, read from the shared data; nothing is done where they are absent). Eight constants of the
 * engine megatron-a100 are fitted, from round numbers, to every third row of both tables and judged
 * on the others; then to other thirds, and to all rows but those of one tensor degree.
 *
 * bench_vtrain [FILE.yaml]: also writes the engine with what was fitted.
 */
#include "check.h"

#include "io/csv.h"
#include "layout/time/fit.h"

/* A table's shapes are few: one model each. */
static const struct erg_model *shape(struct erg_fit_rows *rows, long layers, long hidden,
                                     long heads, long sequence)
{
    char name[96], text[512];
    struct erg_error err;
    struct erg_model *model;
    snprintf(name, sizeof name, "gpt-%ldx%ldx%ldx%ld", layers, hidden, heads, sequence);
    for (size_t i = 0; i < rows->models.count; i++)
        if (!strcmp(rows->models.items[i].name, name))
            return rows->models.items[i].model;
    snprintf(text, sizeof text,
             "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": %ld, \"n_embd\": %ld,"
             "\"n_head\": %ld, \"n_positions\": %ld, \"vocab_size\": 50257,"
             "\"activation_function\": \"gelu\"}",
             layers, hidden, heads, sequence);
    if (erg_model_parse(&model, name, text, strlen(text), &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    ERG_PUSH(&rows->models, items, (struct erg_fit_model){model, erg_xstrdup(name)});
    return model;
}

static long number(const struct erg_csv *csv, size_t row, const char *name)
{
    struct erg_error err;
    size_t column;
    long value = 0;
    if (erg_csv_require(csv, name, &column, &err) || erg_csv_long(csv, row, column, &value, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return value;
}

static bool read_table(struct erg_fit_rows *rows, const char *file)
{
    struct erg_error err;
    struct erg_csv *csv;
    const char *path = shared_data(file);
    if (!path || erg_csv_load(&csv, path, &err) != 0)
        return false;
    size_t time = erg_csv_columns(csv) - 1;
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        struct erg_fit_row row = {
            .batch = number(csv, i, "global_batch"),
            .weight = 1,
            .layout =
                {
                    .tensor = number(csv, i, "tensor_parallelism"),
                    .context = 1,
                    .pipeline = number(csv, i, "pipeline_parallelism"),
                    .virtual_stages = 1,
                    .microbatch = number(csv, i, "micro_batch"),
                    .sequence = number(csv, i, "sequence_length"),
                    .remat = ERG_REMAT_FULL,
                },
        };
        row.model = shape(rows, number(csv, i, "num_layers"), number(csv, i, "hidden_size"),
                          number(csv, i, "attention_heads"), row.layout.sequence);
        if (erg_csv_double(csv, i, time, &row.time_s, &err) ||
            erg_layout_fill(&row.layout, number(csv, i, "num_gpus"), row.batch, &err)) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        row.time_s *= 1e-3;
        ERG_PUSH(rows, items, row);
    }
    erg_csv_free(csv);
    return true;
}

/* ---- fitting and judging ---- */

static const char *const fitted_keys[] = {
    "gemm_efficiency", "whole_head_efficiency", "collective_latency_us",
    "host_layer_us",   "host_wait_us",          "host_head_us",
    "link_efficiency", "pipeline_exposed",      NULL,
};
/* In the file's units: round numbers, so that what comes out owes nothing to the committed file. */
static const double guesses[] = {0.8, 0.5, 100, 500, 10, 1000, 0.8, 1};

static void guess(struct erg_engine *engine)
{
    for (size_t k = 0; fitted_keys[k]; k++) {
        const struct erg_engine_number *at = erg_engine_numbers;
        while (strcmp(at->key, fitted_keys[k]) != 0)
            at++;
        erg_engine_set(engine, at, guesses[k] * at->factor);
    }
}

/* Which rows are fitted: every third one from a place on, or those of all tensor degrees but one.
 */
struct split {
    size_t third;
    long without; /* 0: none */
};

/* Those rows, or all others. */
static struct erg_fit_rows take(const struct erg_fit_rows *tables, size_t count,
                                const struct split *split, bool fitted)
{
    struct erg_fit_rows rows = {0};
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            bool its = split->without ? tables[t].items[i].layout.tensor != split->without
                                      : i % 3 == split->third;
            if (its == fitted)
                ERG_PUSH(&rows, items, tables[t].items[i]);
        }
    return rows;
}

static void judge(const char *name, const struct erg_fit_rows *table, const struct split *split,
                  bool fitted, const struct erg_engine *engine,
                  const struct erg_time_machine *machine)
{
    struct erg_fit_rows rows = take(table, 1, split, fitted);
    double *time_s = erg_xcalloc(rows.count, sizeof *time_s);
    erg_fit_predict(time_s, rows.items, rows.count, engine, machine);
    struct erg_fit_errors errors = erg_fit_judge(time_s, rows.items, rows.count);
    printf("%-13s %-10s %4zu rows   mean error %5.2f %%   worst %5.1f %%   rank agreement %.3f\n",
           name, fitted ? "fitted" : "not fitted", rows.count, 100 * errors.mean, 100 * errors.most,
           errors.spearman);
    free(time_s);
    free(rows.items);
}

static int write_engine(const struct erg_fit *fit, const char *path, struct erg_error *err)
{
    char comments[ERG_FIT_MOST_CONSTANTS][64];
    const char *pointers[ERG_FIT_MOST_CONSTANTS];
    for (size_t k = 0; k < fit->constants; k++) {
        snprintf(comments[k], sizeof comments[k], "fitted; +- %.1f %%", 100 * fit->uncertainty[k]);
        pointers[k] = comments[k];
    }
    return erg_engine_write(
        &fit->engine, "megatron-a100", path,
        "Megatron-LM of 2022 on nodes of eight A100s, fully recomputing, nothing overlapped. "
        "Fitted by\n"
        "bench_vtrain to every third of vTrain's measured iterations. Origin of each number: "
        "datasheet,\n"
        "published, fitted, counted or assumed. What each multiplies: src/layout/time/time.h. That "
        "the "
        "head\n"
        "is slow where one GPU holds the whole vocabulary is measured, but not explained. The "
        "rows\n"
        "hardly tell network_efficiency from pipeline_exposed, so the former is assumed: anything\n"
        "from 0.5 to 1 leaves 8.3 to 8.9 % on rows of several nodes that were not fitted. With\n"
        "another third fitted the others are off by 6.0 and 6.2 % on a node and by 8.2 and 8.5 %\n"
        "on several, in place of 5.6 and 8.3 %. A tensor degree of which no row is fitted is off\n"
        "by 10.5 to 21 % on a node, so fit what you run (ergon fit).",
        fitted_keys, pointers, err);
}

/* Fits and judges; the fit is the caller's. */
static int fit(struct erg_fit *fit, const struct erg_fit_rows *tables, const struct split *split,
               const struct erg_engine *start, const struct erg_time_machine *machine,
               struct erg_error *err)
{
    static const char *const names[] = {"single node", "several nodes"};
    struct erg_fit_rows rows = take(tables, 2, split, true);
    const struct erg_fit_request request = {rows.items, rows.count,  machine,
                                            start,      fitted_keys, 10};
    int status = erg_fit_engine(fit, &request, err);
    for (int t = 0; t < 2 && !status; t++)
        for (int fitted = 1; fitted >= 0; fitted--)
            judge(names[t], &tables[t], split, fitted, &fit->engine, machine);
    free(rows.items);
    return status;
}

/* What the errors owe to the rows that are fitted. */
static int fit_others(const struct erg_fit_rows *tables, const struct erg_engine *start,
                      const struct erg_time_machine *machine, struct erg_error *err)
{
    static const struct split splits[] = {{1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 4}, {0, 8}};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct erg_fit other;
        if (splits[i].without)
            printf("\nall rows fitted but those of tensor degree %ld\n", splits[i].without);
        else
            printf("\nevery third row from row %zu on fitted\n", splits[i].third + 1);
        if (fit(&other, tables, &splits[i], start, machine, err))
            return -1;
    }
    return 0;
}

static int run(const char *output, const struct erg_fit_rows *tables, struct erg_error *err)
{
    static const struct split first = {0, 0};
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *start;
    struct erg_time_machine machine;
    struct erg_fit fitted;
    if (erg_cluster_load(&cluster, ERGON_TEST_SOURCE_DIR "/data/clusters/64x8-a100-sxm4-80gb.yaml",
                         err) ||
        erg_gpu_load(&gpu, cluster->gpu, err) || erg_engine_load(&start, "megatron-a100", err))
        return -1;
    erg_time_machine_init(&machine, gpu, cluster);
    guess(start);
    int status = fit(&fitted, tables, &first, start, &machine, err);
    if (!status && output)
        status = write_engine(&fitted, output, err);
    if (!status)
        status = fit_others(tables, start, &machine, err);
    erg_engine_free(start);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    return status;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_fit_rows tables[2] = {0};
    if (!read_table(&tables[0], "vtrain/single_node.csv") ||
        !read_table(&tables[1], "vtrain/multi_node.csv")) {
        printf("vTrain's tables are not here: nothing is judged\n");
        return 0;
    }
    int status = run(argc > 1 ? argv[1] : NULL, tables, &err);
    if (status)
        fprintf(stderr, "%s\n", err.message);
    erg_fit_rows_release(&tables[0]);
    erg_fit_rows_release(&tables[1]);
    return status ? 1 : 0;
}
