/*
 * How well the emulated GPU predicts what real ones measured (erg_probe_judge()), in percent.
 *
 *   bench_predict [JOB.yaml MEASUREMENTS.csv GPU...]
 *
 * Without arguments: all partitions that H200 measured (data/profiles/h200), each profile a line,
 * by the constants of the catalogue and by those that ergon probe fitted to its own measurements on
 * four of the same GPUs.
 */
#include "observe/table.h"
#include "probe/probe.h"

#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

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
    for (size_t i = 0; i < COUNT(titles); i++)
        erg_table_add(table, "%s", titles[i]);
}

/* A line for each kind of work of a job, or one for all partitions together, called `name`. */
static int add_job(struct erg_table *table, const char *job_path, const char *measurements,
                   const struct erg_gpu *gpu, const char *name, struct erg_error *err)
{
    struct erg_job_overrides overrides = {0};
    struct erg_probe_judgements judgements;
    struct erg_job *job;
    if (erg_job_load(&job, job_path, &overrides, err))
        return -1;
    int status = erg_probe_judge(&judgements, job, measurements, gpu, err);
    if (!status) {
        for (size_t i = 0; i < (name ? 1 : judgements.count); i++) {
            const struct erg_probe_judgement *j = &judgements.items[i];
            erg_table_add(table, "%s", name ? name : j->work);
            add_errors(table, &j->time);
            add_errors(table, &j->energy);
            add_errors(table, &j->burst);
            erg_table_add(table, "%s", "");
        }
        erg_probe_judgements_release(&judgements);
    }
    erg_job_free(job);
    return status;
}

static int add_profiles(struct erg_table *table, const struct erg_gpu *gpu, struct erg_error *err)
{
    static const char *const names[] = {"llama3.2-3b_tp2",   "qwen3-1.7b_tp2", "llama3.2-3b_cp2",
                                        "llama3.2-3b_tp4",   "qwen3-1.7b_tp4", "llama3.2-3b_cp2tp2",
                                        "qwen3-1.7b_cp2tp2", "llama3.2-1b_tp2"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char job[512], profile[512];
        snprintf(job, sizeof job, ERGON_TEST_SOURCE_DIR "/examples/h200/%s_mbs8_seq4096.yaml",
                 names[i]);
        snprintf(profile, sizeof profile,
                 ERGON_TEST_SOURCE_DIR "/data/profiles/h200/%s_mbs8_seq4096.csv", names[i]);
        if (add_job(table, job, profile, gpu, names[i], err))
            return -1;
    }
    return 0;
}

/* `job_path` NULL: all profiles. */
static int judge(const char *job_path, const char *measurements, const char *gpu_name,
                 struct erg_error *err)
{
    struct erg_table table = {.columns = 14};
    struct erg_text text = {0};
    struct erg_gpu *gpu;
    if (erg_gpu_load(&gpu, gpu_name, err))
        return -1;
    add_titles(&table);
    int status = job_path ? add_job(&table, job_path, measurements, gpu, NULL, err)
                          : add_profiles(&table, gpu, err);
    if (!status) {
        erg_table_text(&text, &table, "  ");
        printf("%s: %s\n%s\n", gpu->name, gpu->confidence, text.data);
    }
    erg_text_release(&text);
    erg_table_release(&table);
    erg_gpu_free(gpu);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"H200-SXM", "H200-SXM-measured"};
    bool given = argc > 3;
    const char *const *gpus = given ? (const char *const *)argv + 3 : usual;
    size_t count = given ? (size_t)argc - 3 : COUNT(usual);
    struct erg_error err;
    int status = 0;
    for (size_t i = 0; !status && i < count; i++)
        status = judge(given ? argv[1] : NULL, argv[given ? 2 : 0], gpus[i], &err);
    if (status)
        fprintf(stderr, "bench_predict: %s\n", err.message);
    return status ? 1 : 0;
}
