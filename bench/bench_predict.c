/*
 * How well the emulated GPU predicts what real ones measured (tests/predictions.h), in percent.
 *
 *   bench_predict [JOB.yaml MEASUREMENTS.csv GPU...]
 *
 * A GPU is one of the catalogue; A@B has the constants of A and the datasheet of B. Without
 * arguments: all partitions that H200 measured (data/profiles/h200), each profile a line, by the
 * constants of the catalogue and by those that ergon probe fitted to its own measurements on four
 * of the same GPUs; then what one H200 alone measured, by the same; then what two H100 and what
 * another one measured (data/profiles/h100), by the catalogue, by what was learned from H200, and
 * by ergon probe on those two.
 */
#include "base/table.h"
#include "predictions.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void add_errors(struct erg_table *table, struct prediction_errors errors)
{
    if (!errors.count) {
        for (int i = 0; i < 4; i++)
            erg_table_add(table, "%s", "");
        return;
    }
    erg_table_add(table, "%zu", errors.count);
    erg_table_add(table, "%.1f", 100 * errors.median);
    erg_table_add(table, "%.1f", 100 * errors.worst);
    erg_table_add(table, "%+.1f", 100 * errors.mean);
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

/* Called `name`; of one kind of work, or NULL: of all partitions. */
static void add_line(struct erg_table *table, const char *name, const struct predictions *all,
                     const char *work)
{
    erg_table_add(table, "%s", name);
    for (int kind = PREDICT_TIME; kind <= PREDICT_BURST; kind++)
        add_errors(table, errors_of(all, work, (enum prediction_kind)kind));
    erg_table_add(table, "%s", "");
}

/* A line for all partitions together, called `name`, or where that is NULL also for each kind of
 * work. */
static int add_job(struct erg_table *table, const char *job_path, const char *measurements,
                   const struct erg_gpu *gpu, const char *name, struct erg_error *err)
{
    struct erg_job_overrides overrides = {0};
    struct predictions all;
    struct erg_job *job;
    bool partitions = false;
    if (erg_job_load(&job, job_path, &overrides, err))
        return -1;
    int status = predict_job(&all, job, measurements, gpu, err);
    for (size_t i = 0; i < all.count; i++)
        partitions = partitions || all.items[i].partition; /* a single GPU has none */
    if (!status && partitions)
        add_line(table, name ? name : "all partitions", &all, NULL);
    for (size_t i = 0; i < all.count && !status && !name; i++) {
        size_t first = 0;
        while (strcmp(all.items[first].work, all.items[i].work) != 0)
            first++;
        if (first == i)
            add_line(table, all.items[i].work, &all, all.items[i].work);
    }
    free(all.items);
    erg_job_free(job);
    return status;
}

struct profiles {
    const char *folder; /* of examples/ and of data/profiles/ */
    const char *const *names;
    size_t count;
    bool by_work; /* a line for each kind of work, not one for all partitions */
    const char *const *gpus;
    size_t gpu_count;
};

static int add_profiles(struct erg_table *table, const struct profiles *profiles,
                        const struct erg_gpu *gpu, struct erg_error *err)
{
    for (size_t i = 0; i < profiles->count; i++) {
        const char *name = profiles->names[i];
        char job[512], measurements[512];
        snprintf(job, sizeof job, ERGON_TEST_SOURCE_DIR "/examples/%s/%s_seq4096.yaml",
                 profiles->folder, name);
        snprintf(measurements, sizeof measurements,
                 ERGON_TEST_SOURCE_DIR "/data/profiles/%s/%s_seq4096.csv", profiles->folder, name);
        for (size_t k = 0; profiles->by_work && k < table->columns; k++)
            erg_table_add(table, "%s", k ? "" : name);
        if (add_job(table, job, measurements, gpu, profiles->by_work ? NULL : name, err))
            return -1;
    }
    return 0;
}

/* "A@B": the constants of A with the datasheet of B. */
static int load_gpu(struct erg_gpu **gpu, const char *name, struct erg_error *err)
{
    const char *at = strchr(name, '@');
    char constants[256];
    struct erg_gpu *board;
    if (!at)
        return erg_gpu_load(gpu, name, err);
    snprintf(constants, sizeof constants, "%.*s", (int)(at - name), name);
    if (erg_gpu_load(gpu, constants, err))
        return -1;
    int status = erg_gpu_load(&board, at + 1, err);
    if (!status) {
        status = erg_gpu_take_datasheet(*gpu, board, err);
        erg_gpu_free(board);
    }
    if (status)
        erg_gpu_free(*gpu);
    return status;
}

/* `job_path` NULL: all of `profiles`. */
static int judge(const char *job_path, const char *measurements, const struct profiles *profiles,
                 const char *gpu_name, struct erg_error *err)
{
    struct erg_table table = {.columns = 14};
    struct erg_text text = {0};
    struct erg_gpu *gpu;
    if (load_gpu(&gpu, gpu_name, err))
        return -1;
    add_titles(&table);
    int status = job_path ? add_job(&table, job_path, measurements, gpu, NULL, err)
                          : add_profiles(&table, profiles, gpu, err);
    if (!status) {
        erg_table_text(&text, &table, "  ");
        printf("%s: %s\n%s\n", gpu_name, gpu->confidence, text.data);
    }
    erg_text_release(&text);
    erg_table_release(&table);
    erg_gpu_free(gpu);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const h200[] = {
        "llama3.2-3b_tp2_mbs8",   "qwen3-1.7b_tp2_mbs8",  "llama3.2-3b_cp2_mbs8",
        "llama3.2-3b_tp4_mbs8",   "qwen3-1.7b_tp4_mbs8",  "llama3.2-3b_cp2tp2_mbs8",
        "qwen3-1.7b_cp2tp2_mbs8", "llama3.2-1b_tp2_mbs8",
    };
    static const char *const h100[] = {"llama3.2-3b_tp2_mbs8", "qwen3-1.7b_tp2_mbs8"};
    static const char *const alone[] = {"llama3.2-3b_tp1_mbs4", "llama3.2-1b_tp1_mbs8",
                                        "qwen3-1.7b_tp1_mbs4", "llama2-7b_tp1_mbs2"};
    static const char *const h200_gpus[] = {"H200-SXM", "H200-SXM-measured"};
    static const char *const h100_gpus[] = {"H100-SXM", "H200-SXM-measured@H100-SXM",
                                            "H100-SXM-measured"};
    static const struct profiles usual[] = {
        {"h200", h200, COUNT(h200), false, h200_gpus, COUNT(h200_gpus)},
        {"h200", alone, COUNT(alone), true, h200_gpus, COUNT(h200_gpus)},
        {"h100", h100, COUNT(h100), false, h100_gpus, COUNT(h100_gpus)},
        {"h100", alone, COUNT(alone), true, h100_gpus, COUNT(h100_gpus)},
    };
    struct erg_error err;
    int status = 0;
    for (int i = 3; !status && i < argc; i++)
        status = judge(argv[1], argv[2], NULL, argv[i], &err);
    for (size_t k = 0; argc <= 3 && k < COUNT(usual); k++)
        for (size_t i = 0; !status && i < usual[k].gpu_count; i++)
            status = judge(NULL, NULL, &usual[k], usual[k].gpus[i], &err);
    if (status)
        fprintf(stderr, "bench_predict: %s\n", err.message);
    return status ? 1 : 0;
}
