/* vTrain's measured iterations (MICRO 2024) as rows of a fit, and what is fitted to them. */
#ifndef ERGON_TESTS_VTRAIN_H
#define ERGON_TESTS_VTRAIN_H

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

/* Adds the table's rows; false where the shared data is absent. */
static bool read_table(struct erg_fit_rows *rows, const char *file)
{
    struct erg_error err;
    struct erg_csv *csv;
    const char *path = shared_data(file);
    if (!path || erg_csv_load(&csv, path, &err) != 0)
        return false;
    size_t time = 0; /* the last column */
    while (erg_csv_header(csv, time + 1))
        time++;
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
                    .recompute = ERG_RECOMPUTE_FULL,
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

static const char *const fitted_keys[] = {
    "gemm_efficiency",
    "whole_head_efficiency",
    "collective_latency_us",
    "host_layer_us",
    "host_wait_us",
    "host_head_us",
    "link_efficiency",
    "host_blend",
    NULL,
};
/* In the file's units: round numbers, so that what comes out owes nothing to the committed file. */
static const double guesses[] = {0.8, 0.5, 100, 500, 10, 1000, 0.8, 0.5};

static void guess(struct erg_engine *engine)
{
    for (size_t k = 0; fitted_keys[k]; k++) {
        const struct erg_quantity *at = erg_engine_numbers;
        while (strcmp(at->key, fitted_keys[k]) != 0)
            at++;
        erg_engine_set(engine, at, guesses[k] * at->factor);
    }
}

#endif
