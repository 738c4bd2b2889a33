/* The key `train` of a job file: its schema, defaults, the rules between its keys, and writing it.
 */
#define _XOPEN_SOURCE 700 /* realpath */

#include "job/job_internal.h"

#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OPTIONAL CYAML_FLAG_OPTIONAL
#define OPTIONAL_WORD (CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT)

static const cyaml_strval_t token_types[] = {
    {"uint16", ERG_TOKENS_UINT16}, {"uint32", ERG_TOKENS_UINT32}, {"int32", ERG_TOKENS_INT32}};
static const cyaml_strval_t mask_names[] = {{"none", ERG_MASK_NOTHING}, {"eod", ERG_MASK_EOD}};
static const cyaml_strval_t schedule_names[] = {{"cosine", ERG_RATE_COSINE},
                                                {"linear", ERG_RATE_LINEAR},
                                                {"constant", ERG_RATE_CONSTANT},
                                                {"wsd_linear", ERG_RATE_WSD_LINEAR},
                                                {"wsd_sqrt", ERG_RATE_WSD_SQRT}};

#define SET struct erg_training_set
static const cyaml_schema_field_t set_fields[] = {
    CYAML_FIELD_STRING_PTR("file", CYAML_FLAG_POINTER, SET, file, 1, 4000),
    CYAML_FIELD_ENUM("type", OPTIONAL_WORD, SET, type, token_types, COUNT(token_types)),
    CYAML_FIELD_FLOAT("weight", OPTIONAL, SET, weight),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t set = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct erg_training_set, set_fields)};

#define CHECKPOINT struct erg_training_checkpoint
static const cyaml_schema_field_t checkpoint_fields[] = {
    CYAML_FIELD_INT("every", OPTIONAL, CHECKPOINT, every),
    CYAML_FIELD_FLOAT("minutes", OPTIONAL, CHECKPOINT, minutes),
    CYAML_FIELD_INT("keep", OPTIONAL, CHECKPOINT, keep),
    CYAML_FIELD_END,
};

#define VALIDATION struct erg_training_validation
static const cyaml_schema_field_t validation_fields[] = {
    CYAML_FIELD_SEQUENCE("data", CYAML_FLAG_POINTER, VALIDATION, data, &set, 1, 1000),
    CYAML_FIELD_INT("every", OPTIONAL, VALIDATION, every),
    CYAML_FIELD_INT("batches", OPTIONAL, VALIDATION, batches),
    CYAML_FIELD_END,
};

#define TRAINING struct erg_training
const cyaml_schema_field_t erg_training_fields[] = {
    CYAML_FIELD_SEQUENCE("data", CYAML_FLAG_POINTER, TRAINING, data, &set, 1, 1000),
    CYAML_FIELD_BOOL("shuffle", OPTIONAL, TRAINING, shuffle),
    CYAML_FIELD_ENUM("mask", OPTIONAL_WORD, TRAINING, mask, mask_names, COUNT(mask_names)),
    CYAML_FIELD_INT("eod", OPTIONAL, TRAINING, eod),
    CYAML_FIELD_UINT("seed", OPTIONAL, TRAINING, seed),
    CYAML_FIELD_STRING_PTR("init", OPTIONAL | CYAML_FLAG_POINTER, TRAINING, init, 1, 4000),
    CYAML_FIELD_UINT("updates", CYAML_FLAG_DEFAULT, TRAINING, updates),
    CYAML_FIELD_INT("batch", OPTIONAL, TRAINING, batch),
    CYAML_FIELD_ENUM("schedule", OPTIONAL_WORD, TRAINING, schedule, schedule_names,
                     COUNT(schedule_names)),
    CYAML_FIELD_FLOAT("learning_rate", CYAML_FLAG_DEFAULT, TRAINING, learning_rate),
    CYAML_FIELD_FLOAT("lowest", OPTIONAL, TRAINING, lowest),
    CYAML_FIELD_UINT("warmup", OPTIONAL, TRAINING, warmup),
    CYAML_FIELD_UINT("decay_steps", OPTIONAL, TRAINING, decay_steps),
    CYAML_FIELD_BOOL("warmup_from_zero", OPTIONAL, TRAINING, warmup_from_zero),
    CYAML_FIELD_BOOL("deterministic", OPTIONAL, TRAINING, deterministic),
    CYAML_FIELD_BOOL("sequence_parallel", OPTIONAL, TRAINING, sequence_parallel),
    CYAML_FIELD_INT("offload_least_bytes", OPTIONAL, TRAINING, offload_least_bytes),
    CYAML_FIELD_FLOAT("beta1", OPTIONAL, TRAINING, beta1),
    CYAML_FIELD_FLOAT("beta2", OPTIONAL, TRAINING, beta2),
    CYAML_FIELD_FLOAT("eps", OPTIONAL, TRAINING, eps),
    CYAML_FIELD_FLOAT("weight_decay", OPTIONAL, TRAINING, weight_decay),
    CYAML_FIELD_FLOAT("clip", OPTIONAL, TRAINING, clip),
    CYAML_FIELD_INT("log_every", OPTIONAL, TRAINING, log_every),
    CYAML_FIELD_INT("trace_every", OPTIONAL, TRAINING, trace_every),
    CYAML_FIELD_BOOL("trace_kernels", OPTIONAL, TRAINING, trace_kernels),
    CYAML_FIELD_MAPPING("checkpoint", OPTIONAL, TRAINING, checkpoint, checkpoint_fields),
    CYAML_FIELD_MAPPING("validation", OPTIONAL, TRAINING, validation, validation_fields),
    CYAML_FIELD_END,
};

/* Keys that were not given get their defaults. */
static void apply_defaults(struct erg_training *training, const struct erg_yaml *yaml)
{
    struct {
        const char *key;
        double *value, fallback;
    } numbers[] = {
        {"train.lowest", &training->lowest, 0.1 * training->learning_rate},
        {"train.beta1", &training->beta1, 0.9},
        {"train.beta2", &training->beta2, 0.95},
        {"train.eps", &training->eps, 1e-8},
        {"train.weight_decay", &training->weight_decay, 0.1},
        {"train.clip", &training->clip, 1},
    };
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (!erg_yaml_has(yaml, numbers[i].key))
            *numbers[i].value = numbers[i].fallback;
    if (!erg_yaml_has(yaml, "train.shuffle"))
        training->shuffle = true;
    if (!erg_yaml_has(yaml, "train.eod"))
        training->eod = -1;
    if (!erg_yaml_has(yaml, "train.offload_least_bytes"))
        training->offload_least_bytes = 1 << 20;
    if (!erg_yaml_has(yaml, "train.log_every"))
        training->log_every = 10;
    if (!erg_yaml_has(yaml, "train.checkpoint.keep"))
        training->checkpoint.keep = 2;
    if (training->init && strcmp(training->init, "random") == 0) {
        free(training->init);
        training->init = NULL;
    }
}

static int check_ranges(const struct erg_training *training, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    const struct erg_yaml_range ranges[] = {
        {"train.eod", training->eod, training->eod < 0 && !erg_yaml_has(yaml, "train.eod") ? -1 : 0,
         INT_MAX},
        {"train.seed", (double)training->seed, 0, 9e18},
        {"train.updates", (double)training->updates, 1, 1e12},
        {"train.batch", training->batch, erg_yaml_has(yaml, "train.batch"), ERG_JOB_MOST_BATCH},
        {"train.learning_rate", training->learning_rate, 0, 1e3},
        {"train.lowest", training->lowest, 0, training->learning_rate},
        {"train.warmup", (double)training->warmup, 0, (double)training->updates},
        {"train.decay_steps", (double)training->decay_steps, 0,
         (double)training->updates - (double)training->warmup},
        {"train.beta1", training->beta1, 0, 1 - 1e-9},
        {"train.beta2", training->beta2, 0, 1 - 1e-9},
        {"train.eps", training->eps, 1e-30, 1},
        {"train.weight_decay", training->weight_decay, 0, 1e3},
        {"train.clip", training->clip, 0, 1e9},
        {"train.offload_least_bytes", training->offload_least_bytes, 0, INT_MAX},
        {"train.log_every", training->log_every, 1, 1e9},
        {"train.trace_every", training->trace_every, 0, 1e9},
        {"train.checkpoint.every", training->checkpoint.every, 0, 1e9},
        {"train.checkpoint.minutes", training->checkpoint.minutes, 0, 1e6},
        {"train.checkpoint.keep", training->checkpoint.keep, 0, 1e6},
        {"train.validation.every", training->validation.every, 0, 1e9},
        {"train.validation.batches", training->validation.batches,
         erg_yaml_has(yaml, "train.validation.batches"), 1e9},
    };
    return erg_yaml_check_ranges(yaml, ranges, COUNT(ranges), true, err);
}

/* Weights of the sets of `parent`: 1 where none is given; together they become 1. */
static int check_weights(struct erg_training_set *sets, unsigned count, const char *parent,
                         const struct erg_yaml *yaml, struct erg_error *err)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++) {
        char key[60];
        snprintf(key, sizeof key, "%s[%u].weight", parent, i);
        if (!erg_yaml_has(yaml, key))
            sets[i].weight = 1;
        else if (erg_yaml_check_range(yaml, key, sets[i].weight, 1e-9, 1e9, err) != 0)
            return -1;
        sum += sets[i].weight;
    }
    for (unsigned i = 0; i < count; i++)
        sets[i].weight /= sum;
    return 0;
}

int erg_job_check_training(const struct erg_job *job, struct erg_training *training,
                           const struct erg_yaml *yaml, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    long batch = erg_layout_batch(layout);
    bool wsd = training->schedule == ERG_RATE_WSD_LINEAR || training->schedule == ERG_RATE_WSD_SQRT;
    apply_defaults(training, yaml);
    if (check_ranges(training, yaml, err) ||
        check_weights(training->data, training->data_count, "train.data", yaml, err) ||
        check_weights(training->validation.data, training->validation.data_count,
                      "train.validation.data", yaml, err))
        return -1;
    if (training->batch && training->batch != batch)
        return erg_yaml_fail(
            yaml, "train.batch", err,
            "expected the %ld sequences of %ld microbatches of %ld on %ld data ranks, "
            "got %d",
            batch, layout->microbatches, layout->microbatch, layout->data, training->batch);
    if (training->mask == ERG_MASK_EOD && training->eod < 0)
        return erg_yaml_fail(yaml, "train.mask", err,
                             "expected a key 'train.eod', the token that ends a document");
    if (training->eod >= job->model->vocab)
        return erg_yaml_fail(yaml, "train.eod", err,
                             "expected a word of the model, below %ld, got %d", job->model->vocab,
                             training->eod);
    if (wsd && !training->decay_steps)
        return erg_yaml_fail(yaml, "train.schedule", err,
                             "expected a key 'train.decay_steps', the updates over which the rate "
                             "decays");
    if (!wsd && training->decay_steps)
        return erg_yaml_fail(yaml, "train.decay_steps", err,
                             "only the schedules wsd_linear and wsd_sqrt have it");
    if (training->trace_kernels && !training->trace_every)
        return erg_yaml_fail(yaml, "train.trace_kernels", err,
                             "expected false while train.trace_every is 0: kernels are those of "
                             "steps that are traced");
    return 0;
}

/* ---- writing ---- */

static const char *word_of(const cyaml_strval_t *names, size_t count, int64_t value)
{
    for (size_t i = 0; i < count; i++)
        if (names[i].val == value)
            return names[i].str;
    return NULL;
}

/* A file or a pattern of files, which need not be there. */
static void add_file(struct erg_text *out, const struct erg_job *job, const char *name)
{
    const char *slash = strrchr(job->path, '/');
    struct erg_text folder = {0}, whole = {0};
    erg_text_add_bytes(&folder, job->path, slash ? (size_t)(slash - job->path) + 1 : 0);
    erg_text_add(&folder, slash ? "" : ".");
    char *absolute = *name == '/' ? NULL : realpath(folder.data, NULL);
    if (absolute)
        erg_text_printf(&whole, "%s/", absolute);
    erg_text_add(&whole, name);
    erg_yaml_add_string(out, whole.data);
    free(absolute);
    erg_text_release(&folder);
    erg_text_release(&whole);
}

static void add_sets(struct erg_text *out, const struct erg_job *job, const char *indent,
                     const struct erg_training_set *sets, unsigned count)
{
    erg_text_printf(out, "%sdata:\n", indent);
    for (unsigned i = 0; i < count; i++) {
        const char *type = word_of(token_types, COUNT(token_types), sets[i].type);
        erg_text_printf(out, "%s  - file: ", indent);
        add_file(out, job, sets[i].file);
        erg_text_add(out, "\n");
        if (type)
            erg_text_printf(out, "%s    type: %s\n", indent, type);
        if (count == 1)
            continue;
        erg_text_printf(out, "%s    weight: ", indent);
        erg_job_write_number(out, sets[i].weight);
        erg_text_add(out, "\n");
    }
}

static void add_long(struct erg_text *out, const char *key, long long value, long long absent)
{
    if (value != absent)
        erg_text_printf(out, "  %s: %lld\n", key, value);
}

static void add_double(struct erg_text *out, const char *key, double value)
{
    erg_text_printf(out, "  %s: ", key);
    erg_job_write_number(out, value);
    erg_text_add(out, "\n");
}

static void add_bool(struct erg_text *out, const char *key, bool value)
{
    erg_text_printf(out, "  %s: %s\n", key, value ? "true" : "false");
}

void erg_job_write_training(struct erg_text *out, const struct erg_job *job)
{
    const struct erg_training *training = job->training;
    const struct erg_training_checkpoint *checkpoint = &training->checkpoint;
    const struct erg_training_validation *validation = &training->validation;
    erg_text_add(out, "train:\n");
    add_sets(out, job, "  ", training->data, training->data_count);
    add_bool(out, "shuffle", training->shuffle);
    erg_text_printf(out, "  mask: %s\n", word_of(mask_names, COUNT(mask_names), training->mask));
    add_long(out, "eod", training->eod, -1);
    erg_text_printf(out, "  seed: %llu\n", (unsigned long long)training->seed);
    if (training->init) {
        erg_text_add(out, "  init: ");
        add_file(out, job, training->init);
        erg_text_add(out, "\n");
    }
    erg_text_printf(out, "  updates: %llu\n  schedule: %s\n", (unsigned long long)training->updates,
                    word_of(schedule_names, COUNT(schedule_names), training->schedule));
    add_double(out, "learning_rate", training->learning_rate);
    add_double(out, "lowest", training->lowest);
    add_long(out, "warmup", (long long)training->warmup, 0);
    add_long(out, "decay_steps", (long long)training->decay_steps, 0);
    add_bool(out, "warmup_from_zero", training->warmup_from_zero);
    add_double(out, "beta1", training->beta1);
    add_double(out, "beta2", training->beta2);
    add_double(out, "eps", training->eps);
    add_double(out, "weight_decay", training->weight_decay);
    add_double(out, "clip", training->clip);
    add_bool(out, "deterministic", training->deterministic);
    add_bool(out, "sequence_parallel", training->sequence_parallel);
    add_long(out, "offload_least_bytes", training->offload_least_bytes, -1);
    add_long(out, "log_every", training->log_every, 0);
    add_long(out, "trace_every", training->trace_every, 0);
    if (training->trace_kernels)
        add_bool(out, "trace_kernels", true);
    erg_text_printf(out, "  checkpoint: {every: %d, minutes: %.17g, keep: %d}\n", checkpoint->every,
                    checkpoint->minutes, checkpoint->keep);
    if (!validation->data)
        return;
    erg_text_add(out, "  validation:\n");
    add_sets(out, job, "    ", validation->data, validation->data_count);
    erg_text_printf(out, "    every: %d\n", validation->every);
    if (validation->batches)
        erg_text_printf(out, "    batches: %d\n", validation->batches);
}
