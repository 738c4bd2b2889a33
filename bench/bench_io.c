/*
 * The loaders and the store. CSV: rows with four numbers, against strtod over the same bytes
 * (nothing that reads the numbers can be faster). Store: durable puts against bare fsyncs of the
 * same folder (each put needs at least one), and look-ups. Model: op lists of a layer.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/text.h"
#include "io/csv.h"
#include "io/store.h"
#include "model/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double since(int64_t start_ns)
{
    return 1e-9 * (double)(erg_now_ns() - start_ns);
}

static int stop(const struct erg_error *err)
{
    fprintf(stderr, "bench_io: %s\n", err->message);
    return 1;
}

static int bench_csv(struct erg_error *err)
{
    enum { ROWS = 200000, COLUMNS = 4 };
    struct erg_text text = {0};
    erg_text_add(&text, "stage,frequency,time,energy\n");
    for (int i = 0; i < ROWS; i++)
        erg_text_printf(&text, "%d,%d,%.9g,%.9g\n", i % 8, 900 + i % 35 * 15, 1e-3 + 1e-8 * i,
                        0.5 + 1e-6 * i);

    int64_t start = erg_now_ns();
    double plain = 0;
    for (char *at = strchr(text.data, '\n') + 1, *end; *at; at = end + 1)
        plain += strtod(at, &end);
    double plain_s = since(start);

    start = erg_now_ns();
    struct erg_csv *csv;
    double sum = 0;
    if (erg_csv_parse(&csv, "bench.csv", text.data, text.count, err) != 0)
        return -1;
    double cut_s = since(start);
    for (size_t i = 0; i < erg_csv_rows(csv); i++) {
        for (size_t j = 0; j < COLUMNS; j++) {
            double value;
            if (erg_csv_double(csv, i, j, &value, err) != 0)
                return -1;
            sum += value;
        }
    }
    double total_s = since(start);
    if (sum != plain)
        return erg_fail(err, ERG_FAILED, "the sums differ: %.17g and %.17g", sum, plain);
    printf("csv    %.1f MB: cut %.0f MB/s, with numbers %.0f MB/s (%.2f M rows/s), %.2fx the time "
           "of bare strtod\n",
           1e-6 * (double)text.count, 1e-6 * (double)text.count / cut_s,
           1e-6 * (double)text.count / total_s, 1e-6 * ROWS / total_s, total_s / plain_s);
    erg_csv_free(csv);
    erg_text_release(&text);
    return 0;
}

static double fsync_seconds(const char *folder, int count)
{
    char path[128], page[4096] = {0};
    snprintf(path, sizeof path, "%s/plain", folder);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    int64_t start = erg_now_ns();
    for (int i = 0; i < count; i++) {
        if (write(file, page, sizeof page) < 0 || fsync(file) != 0)
            return 0;
    }
    double seconds = since(start);
    close(file);
    return seconds / count;
}

static int bench_store(const char *folder, struct erg_error *err)
{
    enum { PUTS = 2000, GETS = 200000 };
    char path[128];
    snprintf(path, sizeof path, "%s/bench.db", folder);
    struct erg_store *store;
    if (erg_store_open(&store, path, err) != 0)
        return -1;
    struct erg_store_row row = {
        .key = {.device = "emulated A100-SXM4-40GB x8", .signature = "0123456789abcdef"},
        .work_name = "fwd_attn",
        .slot_name = "norm_0",
        .value = {.time_s = 1e-3, .energy_j = 0.5}};
    int64_t start = erg_now_ns();
    for (int i = 0; i < PUTS; i++) {
        row.key.repeat = i;
        if (erg_store_put(store, &row, NULL, err) != 0)
            return -1;
    }
    double put_s = since(start) / PUTS;
    start = erg_now_ns();
    for (int i = 0; i < GETS; i++) {
        struct erg_measurement value;
        bool found;
        row.key.repeat = i % PUTS;
        if (erg_store_get(store, &row.key, &value, &found, err) != 0)
            return -1;
    }
    double get_s = since(start) / GETS, sync_s = fsync_seconds(folder, PUTS);
    printf("store  %.0f durable puts/s (%.2fx the time of a bare fsync), %.0f gets/s\n", 1 / put_s,
           put_s / sync_s, 1 / get_s);
    erg_store_close(store);
    return 0;
}

static int bench_model(struct erg_error *err)
{
    enum { LISTS = 1000000 };
    struct erg_model *model;
    if (erg_model_load(&model, "llama-3.3-70b", err) != 0)
        return -1;
    struct erg_model_shape shape = {.tensor = 8, .context = 1, .sequence = 4096};
    struct erg_model_ops ops;
    double flops = 0;
    int64_t start = erg_now_ns();
    for (int i = 0; i < LISTS; i++) {
        shape.sequences = 1 + i % 8;
        erg_model_layer_backward(&ops, model, &shape);
        flops += ops.items[1].work[0].flops;
    }
    printf("model  %.2f M layer op lists/s (checksum %.3g)\n", 1e-6 * LISTS / since(start), flops);
    erg_model_free(model);
    return 0;
}

int main(void)
{
    struct erg_error err = {0};
    char folder[] = "/tmp/ergon-bench-XXXXXX", command[64];
    if (!mkdtemp(folder))
        return 1;
    int result = bench_csv(&err) || bench_store(folder, &err) || bench_model(&err);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || result ? stop(&err) : 0;
}
