/*
 * How well the emulated GPU predicts what real ones measured (erg_probe_judge()), in percent.
 *
 *   bench_predict [JOB.yaml MEASUREMENTS.csv GPU...]
 *
 * Without arguments: what two H200 measured (data/profiles/h200), by the constants of the catalogue
 * and by those that ergon probe fitted to its own measurements on the same machine.
 */
#include "observe/table.h"
#include "probe/probe.h"

#include <stdio.h>

#define PROFILE "data/profiles/h200/llama3.2-3b_tp2_mbs8_seq4096.csv"
#define JOB "examples/h200/llama3.2-3b_tp2_mbs8_seq4096.yaml"

static void add_errors(struct erg_table *table, const struct erg_probe_errors *errors)
{
    if (!errors->count) {
        for (int i = 0; i < 4; i++)
            erg_table_add(table, "%s", "");
        return;
    }
    erg_table_add(table, "%zu", errors->count);
    erg_table_add(table, "%.1f", 100 * errors->median);
    erg_table_add(table, "%.1f", 100 * errors->worst);
    erg_table_add(table, "%+.1f", 100 * errors->mean);
}

static void add_titles(struct erg_table *table)
{
    static const char *const titles[] = {
        "percent", "time: n", "median",   "worst",  "mean",  "energy: n", "median",
        "worst",   "mean",    "burst: n", "median", "worst", "mean",      "",
    };
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        erg_table_add(table, "%s", titles[i]);
}

static int judge(const struct erg_job *job, const char *measurements, const char *gpu_name,
                 struct erg_error *err)
{
    struct erg_probe_judgements judgements;
    struct erg_table table = {.columns = 14};
    struct erg_text text = {0};
    struct erg_gpu *gpu;
    if (erg_gpu_load(&gpu, gpu_name, err))
        return -1;
    int status = erg_probe_judge(&judgements, job, measurements, gpu, err);
    if (!status) {
        add_titles(&table);
        for (size_t i = 0; i < judgements.count; i++) {
            const struct erg_probe_judgement *j = &judgements.items[i];
            erg_table_add(&table, "%s", j->work);
            add_errors(&table, &j->time);
            add_errors(&table, &j->energy);
            add_errors(&table, &j->burst);
            erg_table_add(&table, "%s", "");
        }
        erg_table_text(&text, &table, "  ");
        printf("%s: %s\n%s\n", gpu->name, gpu->confidence, text.data);
        erg_probe_judgements_release(&judgements);
    }
    erg_text_release(&text);
    erg_table_release(&table);
    erg_gpu_free(gpu);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {ERGON_TEST_SOURCE_DIR "/" JOB,
                                        ERGON_TEST_SOURCE_DIR "/" PROFILE, "H200-SXM",
                                        "H200-SXM-measured"};
    const char *const *arguments = argc > 3 ? (const char *const *)argv + 1 : usual;
    int count = argc > 3 ? argc - 1 : 4;
    struct erg_error err;
    struct erg_job_overrides overrides = {0};
    struct erg_job *job = NULL;
    int status = erg_job_load(&job, arguments[0], &overrides, &err);
    for (int i = 2; !status && i < count; i++)
        status = judge(job, arguments[1], arguments[i], &err);
    if (status)
        fprintf(stderr, "bench_predict: %s\n", err.message);
    erg_job_free(job);
    return status ? 1 : 0;
}
