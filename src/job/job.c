/* Job files: their schema, and reading them. The rules between keys are in job_check.c. */
#include "job/job.h"

#include "base/memory.h"
#include "base/text.h"
#include "hardware/cluster_schema.h"
#include "io/file.h"
#include "job/job_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OPTIONAL CYAML_FLAG_OPTIONAL
#define OPTIONAL_WORD (CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT)

static const cyaml_strval_t recompute_names[] = {{"none", ERG_RECOMPUTE_NONE},
                                                 {"norms", ERG_RECOMPUTE_NORMS},
                                                 {"activation", ERG_RECOMPUTE_ACTIVATION},
                                                 {"balanced", ERG_RECOMPUTE_BALANCED},
                                                 {"full", ERG_RECOMPUTE_FULL}};
static const cyaml_strval_t schedule_names[] = {{"1f1b", ERG_SCHEDULE_1F1B},
                                                {"interleaved", ERG_SCHEDULE_INTERLEAVED}};
static const cyaml_strval_t search_names[] = {{"gp", ERG_SEARCH_GP},
                                              {"trees", ERG_SEARCH_TREES},
                                              {"random", ERG_SEARCH_RANDOM},
                                              {"exhaustive", ERG_SEARCH_EXHAUSTIVE}};
static const cyaml_strval_t prior_names[] = {{"none", ERG_JOB_NO_PRIOR},
                                             {"emulator", ERG_JOB_EMULATOR_PRIOR}};
static const cyaml_strval_t goal_names[] = {
    {"fastest", ERG_FASTEST}, {"least_energy", ERG_LEAST_ENERGY}, {"knee", ERG_KNEE}};

#define SEARCH struct erg_job_search
static const cyaml_schema_field_t search_fields[] = {
    CYAML_FIELD_ENUM("method", OPTIONAL_WORD, SEARCH, method, search_names, COUNT(search_names)),
    CYAML_FIELD_INT("budget", OPTIONAL, SEARCH, budget),
    CYAML_FIELD_INT("start", OPTIONAL, SEARCH, start),
    CYAML_FIELD_INT("batch", OPTIONAL, SEARCH, batch),
    CYAML_FIELD_INT("sweep_clocks", OPTIONAL, SEARCH, sweep_clocks),
    CYAML_FIELD_ENUM("prior", OPTIONAL_WORD, SEARCH, prior, prior_names, COUNT(prior_names)),
    CYAML_FIELD_UINT("seed", OPTIONAL, SEARCH, seed),
    CYAML_FIELD_END,
};

#define PROFILER struct erg_job_profiler
static const cyaml_schema_field_t profiler_fields[] = {
    CYAML_FIELD_FLOAT("window_s", OPTIONAL, PROFILER, window_s),
    CYAML_FIELD_FLOAT("cooldown_s", OPTIONAL, PROFILER, cooldown_s),
    CYAML_FIELD_FLOAT("warmup_s", OPTIONAL, PROFILER, warmup_s),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t layer_count = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, int)};
static const cyaml_schema_value_t stage_recompute = {CYAML_VALUE_ENUM(
    CYAML_FLAG_STRICT, enum erg_recompute, recompute_names, COUNT(recompute_names))};
static const cyaml_schema_value_t stage_offload = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, double)};

static const cyaml_schema_value_t stage_gpu = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 200)};

#define LORA struct erg_job_lora
static const cyaml_strval_t lora_targets[] = {
    {"qkv", ERG_LORA_QKV}, {"proj", ERG_LORA_PROJ}, {"fc1", ERG_LORA_FC1}, {"fc2", ERG_LORA_FC2}};
static const cyaml_schema_value_t lora_target = {
    CYAML_VALUE_ENUM(CYAML_FLAG_STRICT, enum erg_lora_target, lora_targets, COUNT(lora_targets))};
static const cyaml_schema_field_t lora_fields[] = {
    CYAML_FIELD_INT("rank", CYAML_FLAG_DEFAULT, LORA, rank),
    CYAML_FIELD_SEQUENCE("targets", CYAML_FLAG_POINTER, LORA, targets, &lora_target, 1,
                         ERG_LORA_TARGETS),
    CYAML_FIELD_END,
};

#define JOB struct erg_job_file
static const cyaml_schema_field_t job_fields[] = {
    CYAML_FIELD_STRING_PTR("name", OPTIONAL | CYAML_FLAG_POINTER, JOB, name, 1, 200),
    CYAML_FIELD_STRING_PTR("model", CYAML_FLAG_POINTER, JOB, model, 1, 4000),
    CYAML_FIELD_BOOL("tie_embeddings", OPTIONAL, JOB, tie_embeddings),
    CYAML_FIELD_INT("vocabulary", OPTIONAL, JOB, vocabulary),
    CYAML_FIELD_MAPPING("cluster", CYAML_FLAG_DEFAULT, JOB, cluster, erg_cluster_fields),
    CYAML_FIELD_STRING_PTR("stack", OPTIONAL | CYAML_FLAG_POINTER, JOB, stack, 1, 4000),
    CYAML_FIELD_STRING_PTR("engine", OPTIONAL | CYAML_FLAG_POINTER, JOB, engine, 1, 4000),
    CYAML_FIELD_INT("tensor", OPTIONAL, JOB, layout.tensor),
    CYAML_FIELD_INT("context", OPTIONAL, JOB, layout.context),
    CYAML_FIELD_INT("pipeline", OPTIONAL, JOB, layout.pipeline),
    CYAML_FIELD_INT("data", OPTIONAL, JOB, layout.data),
    CYAML_FIELD_INT("virtual_stages", OPTIONAL, JOB, layout.virtual_stages),
    CYAML_FIELD_INT("fsdp", OPTIONAL, JOB, layout.fsdp),
    CYAML_FIELD_INT("expert", OPTIONAL, JOB, layout.expert),
    CYAML_FIELD_FLOAT("expert_capacity", OPTIONAL, JOB, layout.expert_capacity),
    CYAML_FIELD_ENUM("schedule", OPTIONAL_WORD, JOB, schedule, schedule_names,
                     COUNT(schedule_names)),
    CYAML_FIELD_SEQUENCE("layers", OPTIONAL | CYAML_FLAG_POINTER, JOB, layers, &layer_count, 1,
                         10000),
    CYAML_FIELD_INT("microbatch_size", OPTIONAL, JOB, layout.microbatch),
    CYAML_FIELD_INT("microbatches", OPTIONAL, JOB, layout.microbatches),
    CYAML_FIELD_INT("sequence", CYAML_FLAG_DEFAULT, JOB, layout.sequence),
    CYAML_FIELD_ENUM("recompute", OPTIONAL_WORD, JOB, layout.recompute, recompute_names,
                     COUNT(recompute_names)),
    CYAML_FIELD_FLOAT("offload", OPTIONAL, JOB, layout.offload),
    CYAML_FIELD_SEQUENCE("stage_recompute", OPTIONAL | CYAML_FLAG_POINTER, JOB, stage_recompute,
                         &stage_recompute, 1, 10000),
    CYAML_FIELD_SEQUENCE("stage_offload", OPTIONAL | CYAML_FLAG_POINTER, JOB, stage_offload,
                         &stage_offload, 1, 10000),
    CYAML_FIELD_SEQUENCE("stage_gpus", OPTIONAL | CYAML_FLAG_POINTER, JOB, stage_gpus, &stage_gpu,
                         1, 10000),
    CYAML_FIELD_MAPPING("search", OPTIONAL, JOB, search, search_fields),
    CYAML_FIELD_MAPPING("profiler", OPTIONAL, JOB, profiler, profiler_fields),
    CYAML_FIELD_ENUM("goal", OPTIONAL_WORD, JOB, goal, goal_names, COUNT(goal_names)),
    CYAML_FIELD_FLOAT("deadline_s", OPTIONAL, JOB, deadline_s),
    CYAML_FIELD_FLOAT("budget_j", OPTIONAL, JOB, budget_j),
    CYAML_FIELD_MAPPING_PTR("lora", OPTIONAL | CYAML_FLAG_POINTER, JOB, lora, lora_fields),
    CYAML_FIELD_MAPPING_PTR("train", OPTIONAL | CYAML_FLAG_POINTER, JOB, train,
                            erg_training_fields),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t job_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_job_file, job_fields)};

/* The key `layers` is a list or a word. */
static int read_file(void **value, const struct erg_yaml *yaml, struct erg_error *err)
{
    static const cyaml_schema_field_t word =
        CYAML_FIELD_STRING_PTR("layers", OPTIONAL | CYAML_FLAG_POINTER, JOB, layers_word, 1, 40);
    cyaml_schema_field_t fields[COUNT(job_fields)];
    const cyaml_schema_value_t schema = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_job_file, fields)};
    const char *text = erg_yaml_scalar(yaml, "layers");
    if (!text || !*text)
        return erg_yaml_read(yaml, &job_schema, value, err);
    if (strcmp(text, erg_layout_alternating) != 0)
        return erg_yaml_fail(yaml, "layers", err,
                             "expected a list with the layers of each chunk, or %s, got \"%.40s\"",
                             erg_layout_alternating, text);
    memcpy(fields, job_fields, sizeof fields);
    for (size_t i = 0; i < COUNT(fields); i++)
        if (fields[i].key && strcmp(fields[i].key, word.key) == 0)
            fields[i] = word;
    return erg_yaml_read(yaml, &schema, value, err);
}

static int override_number(long *value, long given, const char *what, struct erg_error *err)
{
    if (given == 0)
        return 0;
    if (given < 1 || given > INT_MAX)
        return erg_fail(err, ERG_USAGE, "expected %s of at least 1 on the command line, got %ld",
                        what, given);
    *value = given;
    return 0;
}

static int apply_overrides(struct erg_job_file *file, const struct erg_job_overrides *overrides,
                           struct erg_error *err)
{
    if (override_number(&file->layout.microbatches, overrides->microbatches,
                        "a number of microbatches", err) ||
        override_number(&file->layout.microbatch, overrides->microbatch_size, "a microbatch size",
                        err) ||
        override_number(&file->layout.sequence, overrides->sequence, "a sequence length", err))
        return -1;
    if (overrides->seed)
        file->search.seed = *overrides->seed;
    if (!overrides->search)
        return 0;
    const char *names[COUNT(search_names) + 1] = {NULL};
    for (size_t i = 0; i < COUNT(search_names); i++) {
        names[i] = search_names[i].str;
        if (!strcmp(names[i], overrides->search)) {
            file->search.method = (enum erg_search_method)search_names[i].val;
            return 0;
        }
    }
    const char *meant = erg_closest(overrides->search, names);
    return erg_fail(err, ERG_USAGE,
                    "unknown search method '%.80s'%s%s%s; expected gp, trees, random or exhaustive",
                    overrides->search, meant ? ", did you mean '" : "", meant ? meant : "",
                    meant ? "'?" : "");
}

/* ---- what other software calls otherwise ---- */

static const char sharding_name[] =
    "sharding of weights and gradients over data parallel ranks (FSDP, ZeRO 3) is key 'fsdp' of a "
    "job, or fsdp=N in a layout (N ranks share them); the optimizer is always sharded";

static const char *const sharding_keys[] = {"fsdp2",
                                            "hsdp",
                                            "zero",
                                            "zero1",
                                            "zero2",
                                            "zero3",
                                            "zero_stage",
                                            "zero-stage",
                                            "sharding",
                                            "shard",
                                            "data_parallel_shard_degree",
                                            "data-parallel-shard-degree",
                                            "use-torch-fsdp2",
                                            "use-megatron-fsdp",
                                            "use_megatron_fsdp",
                                            "FSDP",
                                            "ZeRO",
                                            "fsdp_degree",
                                            "fsdp-degree",
                                            "fsdp_size",
                                            "fsdp-size",
                                            "fully_sharded",
                                            "fully-sharded",
                                            "dp_shard",
                                            "dp-shard",
                                            "zero_optimization",
                                            "data_parallel_sharding_strategy",
                                            "data-parallel-sharding-strategy"};

const char *erg_job_own_name(const char *key)
{
    for (size_t i = 0; i < COUNT(sharding_keys); i++)
        if (strcasecmp(sharding_keys[i], key) == 0)
            return sharding_name;
    return NULL;
}

static int refuse_sharding(const struct erg_yaml *yaml, struct erg_error *err)
{
    for (size_t i = 0; i < COUNT(sharding_keys); i++)
        if (erg_yaml_has(yaml, sharding_keys[i]))
            return erg_yaml_fail(yaml, sharding_keys[i], err, "%s", sharding_name);
    return 0;
}

int erg_job_parse(struct erg_job **out, const char *name, const char *text, size_t length,
                  const struct erg_job_overrides *overrides, struct erg_error *err)
{
    static const struct erg_job_overrides none = {0};
    struct erg_yaml *yaml;
    void *value = NULL;
    if (!overrides)
        overrides = &none;
    if (erg_yaml_open_text(&yaml, name, text, length, err) != 0)
        return -1;
    struct erg_job *job = erg_xcalloc(1, sizeof *job);
    job->text = erg_xmemdup(text, length);
    job->text_length = length;
    int result = refuse_sharding(yaml, err);
    if (result == 0)
        result = read_file(&value, yaml, err);
    job->file = value;
    if (result == 0)
        result = apply_overrides(value, overrides, err);
    if (result == 0)
        result = erg_job_resolve(job, value, yaml, name, overrides, err);
    erg_yaml_close(yaml);
    if (result == 0)
        *out = job;
    else
        erg_job_free(job);
    return result;
}

int erg_job_load(struct erg_job **job, const char *path, const struct erg_job_overrides *overrides,
                 struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_job_parse(job, path, text, length, overrides, err);
    free(text);
    return result;
}

bool erg_job_splits_stream(const struct erg_job *job)
{
    return job->training && job->training->sequence_parallel && job->layout.tensor > 1;
}

void erg_job_apply_training(const struct erg_job *job, struct erg_engine *engine)
{
    if (!engine->static_memory || !job->training)
        return;
    engine->sequence_parallel = job->training->sequence_parallel;
    engine->offload_least_bytes = job->training->offload_least_bytes;
}

void erg_job_free(struct erg_job *job)
{
    if (!job)
        return;
    erg_model_free(job->model);
    for (size_t k = 0; k < job->kind_count; k++) {
        erg_gpu_free(job->kinds[k].gpu);
        erg_engine_free(job->kinds[k].engine);
        erg_chassis_free(job->kinds[k].chassis);
    }
    free(job->kinds);
    free(job->stage_kind);
    erg_stack_free(job->stack);
    free((void *)(uintptr_t)job->layout.chunk_layers);
    free((void *)(uintptr_t)job->layout.stage_recompute);
    free((void *)(uintptr_t)job->layout.stage_offload);
    free(job->own_name);
    free(job->path);
    free(job->text);
    if (job->file)
        free(((struct erg_job_file *)job->file)->layers_word);
    erg_yaml_free(&job_schema, job->file);
    free(job);
}
