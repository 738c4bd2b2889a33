/* Traces of GPUs as tables and as CSV. */
#include "api/kernels_print.h"

#include "io/print.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a table ---- */

static void add_known(struct erg_table *table, int digits, double value)
{
    if (isnan(value))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.*f", digits, value);
}

static void add_row(struct erg_table *table, const struct erg_kernels_gpu *gpu, int i, bool energy)
{
    const struct erg_kernels_category *category = &gpu->category[i];
    erg_table_add(table, "%s", erg_kernels_category_name(i));
    erg_table_add(table, "%.6f", category->summed_s);
    erg_table_add(table, "%.6f", category->exposed_s);
    add_known(table, 6, category->wait_s);
    if (energy)
        add_known(table, 3, category->energy_j);
    erg_table_add(table, "%lld", (long long)category->count);
}

static void print_gpu(FILE *out, const struct erg_kernels_gpu *gpu)
{
    static const char *const heads[] = {"category", "summed s", "exposed s",
                                        "wait s",   "J",        "kernels"};
    static const char *const without[] = {"category", "summed s", "exposed s", "wait s", "kernels"};
    struct erg_table table = {0};
    const bool energy = !isnan(gpu->energy_j);
    fprintf(out, "rank %d, GPU %d: %.6f s", gpu->rank, gpu->device, gpu->window_s);
    if (energy)
        fprintf(out, ", %.3f J", gpu->energy_j);
    fprintf(out, " (%s)\n", gpu->file);
    erg_print_heads(&table, energy ? heads : without, energy ? 6 : 5);
    for (int i = 0; i < ERG_CATEGORIES; i++)
        if (gpu->category[i].count)
            add_row(&table, gpu, i, energy);
    erg_table_add(&table, "idle");
    erg_table_add(&table, "-");
    erg_table_add(&table, "%.6f", gpu->idle_s);
    erg_table_add(&table, "-");
    if (energy)
        erg_table_add(&table, "%.3f", gpu->idle_energy_j);
    erg_table_add(&table, "-");
    erg_print_table(out, &table, "  ");
    fprintf(out, "  computing %.1f %%, only communicating or copying %.1f %%, idle %.1f %%\n",
            100 * gpu->compute_s / fmax(gpu->window_s, 1e-9),
            100 * gpu->exposed_s / fmax(gpu->window_s, 1e-9),
            100 * gpu->idle_s / fmax(gpu->window_s, 1e-9));
}

/* ---- CSV ---- */

static void add_csv(struct erg_text *out, const struct erg_kernels_gpu *gpu, const char *name,
                    const struct erg_kernels_category *category)
{
    erg_csv_add(out, gpu->file);
    erg_csv_add_long(out, gpu->rank);
    erg_csv_add_long(out, gpu->device);
    erg_csv_add(out, name);
    erg_csv_add_long(out, category->count);
    erg_csv_add_double(out, category->summed_s);
    erg_csv_add_double(out, category->exposed_s);
    erg_csv_add_double(out, category->wait_s);
    erg_csv_add_double(out, category->energy_j);
    erg_csv_end_row(out);
}

static void print_csv(FILE *out, const struct erg_kernels_gpu *gpu)
{
    struct erg_text text = {0};
    const struct erg_kernels_category idle = {
        .summed_s = NAN, .exposed_s = gpu->idle_s, .wait_s = NAN, .energy_j = gpu->idle_energy_j};
    for (int i = 0; i < ERG_CATEGORIES; i++)
        add_csv(&text, gpu, erg_kernels_category_name(i), &gpu->category[i]);
    add_csv(&text, gpu, "idle", &idle);
    fputs(text.data, out);
    erg_text_release(&text);
}

void erg_kernels_print(FILE *out, const struct erg_kernels_gpu *gpus, size_t count)
{
    for (size_t i = 0; i < count; i++)
        print_gpu(out, &gpus[i]);
}

void erg_kernels_print_csv(FILE *out, const struct erg_kernels_gpu *gpus, size_t count)
{
    fputs("file,rank,device,category,count,summed_s,exposed_s,wait_s,energy_j\n", out);
    for (size_t i = 0; i < count; i++)
        print_csv(out, &gpus[i]);
}
