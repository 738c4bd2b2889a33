/* Writes Calculon's model and system as ergon's files, and prints their content. */
#include "layout/exchange/calculon_import.h"

#include "base/given.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/print.h"
#include "job/job.h"
#include "layout/exchange/calculon.h"

#include <stdlib.h>
#include <string.h>

/* The name of a file without folder and suffix; free it. */
static char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = erg_xstrdup(slash ? slash + 1 : path), *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return name;
}

static int read_model(struct erg_calculon_model *model, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int status = erg_calculon_model_parse(model, path, text, length, err);
    free(text);
    return status;
}

static int read_system(struct erg_calculon_system *system, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int status = erg_calculon_system_parse(system, path, text, length, err);
    free(text);
    return status;
}

static void print(FILE *out, FILE *json, const struct erg_calculon_input *input,
                  const struct erg_job *job, const struct erg_gpu *base)
{
    double parameters = erg_model_parameters(job->model);
    long gpus = erg_cluster_gpus(&job->cluster);
    json_t *root = erg_json_pack("{s:s, s:i, s:s, s:o, s:I, s:I, s:s}", "schema", "ergon.import",
                                 "schema_version", 1, "model", job->model->name, "parameters",
                                 erg_json_number(parameters), "gpus", (json_int_t)gpus, "batch",
                                 (json_int_t)job->layout.microbatches, "gpu_base", base->name);
    erg_print_json(json, root);
    fprintf(out, "%s: %.4g billion parameters, %ld layers, sequences of %ld\n", job->model->name,
            parameters / 1e9, job->model->layers, job->layout.sequence);
    fprintf(out, "%s: %ld GPUs in nodes of %d; values that the system lacks are those of %s\n",
            job->gpu->name, gpus, job->cluster.gpus_per_node, base->name);
    fprintf(out, "Written: config.json, gpu.yaml, engine.yaml and job.yaml in %s\n", input->folder);
    fputs("Its times are lower bounds: systems lack the cost of the host, gaps between kernels and "
          "some of the traffic.\n",
          out);
    if (strncmp(base->name, "A100", 4) == 0)
        fprintf(
            out,
            "An engine fitted to measured A100s: ergon layout %s/job.yaml --engine megatron-a100\n",
            input->folder);
}

int erg_calculon_import(FILE *out, FILE *json, const struct erg_calculon_input *input,
                        struct erg_error *err)
{
    const struct erg_job_overrides overrides = {.any_layout = true};
    struct erg_calculon_model model;
    struct erg_calculon_system system;
    struct erg_gpu *base = NULL;
    struct erg_job *job = NULL;
    struct erg_text path = {0};
    if (read_model(&model, input->model, err) != 0 ||
        read_system(&system, input->system, err) != 0 ||
        erg_calculon_base_gpu(&base, &system, err) != 0)
        return -1;
    char *model_name = stem(input->model), *system_name = stem(input->system);
    long gpus = input->gpus != ERG_NOT_GIVEN ? input->gpus : system.networks[0].size;
    const struct erg_calculon_import import = {
        .model = &model,
        .system = &system,
        .model_name = model_name,
        .system_name = system_name,
        .gpus = gpus,
        .batch = input->batch != ERG_NOT_GIVEN ? input->batch : gpus,
    };
    erg_text_printf(&path, "%s/job.yaml", input->folder);
    int status = erg_calculon_write(&import, base, input->folder, err);
    if (status == 0)
        status = erg_job_load(&job, path.data, &overrides, err);
    if (status == 0)
        print(out, json, input, job, base);
    erg_job_free(job);
    erg_gpu_free(base);
    erg_text_release(&path);
    free(model_name);
    free(system_name);
    return status;
}
