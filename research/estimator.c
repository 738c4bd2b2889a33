/* The catalogue of devices, models and constants, and what the estimator says with it. */
#include "estimator.h"

#include "base/text.h"
#include "io/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONAL CYAML_FLAG_OPTIONAL
#define CONSTANT(name)                                                                             \
    CYAML_FIELD_FLOAT(#name, CYAML_FLAG_DEFAULT, struct erg_estimate_constants, name)

static const cyaml_schema_field_t constant_fields[] = {
    CONSTANT(matmul_efficiency),
    CONSTANT(convolution_efficiency),
    CONSTANT(memory_efficiency),
    CONSTANT(convolution_rows),
    CONSTANT(scaling_loss),
    CYAML_FIELD_FLOAT("kernel_us", CYAML_FLAG_DEFAULT, struct erg_estimate_constants, kernel_s),
    CYAML_FIELD_END,
};

#define DEVICE struct estimator_device
static const cyaml_schema_field_t device_fields[] = {
    CYAML_FIELD_STRING_PTR("type", CYAML_FLAG_POINTER, DEVICE, type, 1, 15),
    CYAML_FIELD_FLOAT("half_tflops", CYAML_FLAG_DEFAULT, DEVICE, half_flops),
    CYAML_FIELD_FLOAT("full_tflops", CYAML_FLAG_DEFAULT, DEVICE, full_flops),
    CYAML_FIELD_FLOAT("memory_bandwidth_gb_s", CYAML_FLAG_DEFAULT, DEVICE, memory_bandwidth),
    CYAML_FIELD_FLOAT("memory_mib", CYAML_FLAG_DEFAULT, DEVICE, memory_bytes),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t device_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, DEVICE, device_fields)};

#define MODEL struct family_model
#define COUNT(name) CYAML_FIELD_INT(#name, OPTIONAL, MODEL, name)
static const cyaml_schema_value_t block_schema = {CYAML_VALUE_INT(CYAML_FLAG_DEFAULT, long)};
static const cyaml_schema_field_t model_fields[] = {
    CYAML_FIELD_STRING_PTR("family", CYAML_FLAG_POINTER, MODEL, family, 1, 100),
    CYAML_FIELD_STRING_PTR("size", CYAML_FLAG_POINTER, MODEL, size, 1, 100),
    CYAML_FIELD_BOOL("half_precision", CYAML_FLAG_DEFAULT, MODEL, half),
    COUNT(layers),
    COUNT(hidden),
    COUNT(heads),
    COUNT(sequence),
    COUNT(vocabulary),
    COUNT(ffn_factor),
    COUNT(experts),
    COUNT(expert_every),
    COUNT(expert_group),
    CYAML_FIELD_SEQUENCE("blocks", OPTIONAL | CYAML_FLAG_POINTER, MODEL, blocks, &block_schema, 1,
                         20),
    COUNT(channels),
    COUNT(width_factor),
    COUNT(image),
    COUNT(classes),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t model_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, MODEL, model_fields)};

#define ESTIMATOR struct estimator
static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_MAPPING("constants", CYAML_FLAG_DEFAULT, ESTIMATOR, constants, constant_fields),
    CYAML_FIELD_FLOAT("memory_fraction", CYAML_FLAG_DEFAULT, ESTIMATOR, memory_fraction),
    CYAML_FIELD_SEQUENCE("devices", CYAML_FLAG_POINTER, ESTIMATOR, devices, &device_schema, 1,
                         1000),
    CYAML_FIELD_SEQUENCE("models", CYAML_FLAG_POINTER, ESTIMATOR, models, &model_schema, 1, 10000),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, ESTIMATOR, fields)};

static int check(const struct erg_yaml *yaml, const char *key, double value, double min, double max,
                 struct erg_error *err)
{
    return erg_yaml_check_range(yaml, key, value, min, max, err);
}

static int finish_constants(struct erg_estimate_constants *c, const struct erg_yaml *yaml,
                            struct erg_error *err)
{
    if (check(yaml, "constants.matmul_efficiency", c->matmul_efficiency, 0.01, 1, err) != 0 ||
        check(yaml, "constants.convolution_efficiency", c->convolution_efficiency, 0.01, 1, err) !=
            0 ||
        check(yaml, "constants.memory_efficiency", c->memory_efficiency, 0.01, 1, err) != 0 ||
        check(yaml, "constants.convolution_rows", c->convolution_rows, 0, 1e6, err) != 0 ||
        check(yaml, "constants.scaling_loss", c->scaling_loss, 0, 1, err) != 0 ||
        check(yaml, "constants.kernel_us", c->kernel_s, 0, 1e6, err) != 0)
        return -1;
    c->kernel_s *= 1e-6;
    return 0;
}

static int finish_device(struct estimator_device *device, const char *key,
                         const struct erg_yaml *yaml, struct erg_error *err)
{
    if (check(yaml, key, device->half_flops, 0.01, 1e6, err) != 0 ||
        check(yaml, key, device->full_flops, 0.01, 1e6, err) != 0 ||
        check(yaml, key, device->memory_bandwidth, 1, 1e6, err) != 0 ||
        check(yaml, key, device->memory_bytes, 1, 1e9, err) != 0)
        return -1;
    device->half_flops *= 1e12;
    device->full_flops *= 1e12;
    device->memory_bandwidth *= 1e9;
    device->memory_bytes *= 0x1p20;
    return 0;
}

static int finish_model(const struct family_model *model, const char *key,
                        const struct erg_yaml *yaml, struct erg_error *err)
{
    bool transformer = model->layers > 0 && model->hidden > 0 && model->heads > 0 &&
                       model->sequence > 0 && model->vocabulary > 0 && model->ffn_factor > 0;
    bool experts = model->experts > 0 && model->expert_every > 0 && model->expert_group > 0;
    bool network = model->channels > 0 && model->width_factor > 0 && model->image > 0 &&
                   model->classes > 0 && model->blocks_count > 0;
    for (unsigned i = 0; i < model->blocks_count; i++)
        network = network && model->blocks[i] > 0;
    if (transformer == network)
        return erg_yaml_fail(yaml, key, err,
                             "expected either layers, hidden, heads, sequence, vocabulary and "
                             "ffn_factor, or blocks, channels, width_factor, image and classes");
    if (model->experts != 0 && !experts)
        return erg_yaml_fail(yaml, key, err,
                             "experts need expert_every and expert_group, all of them above 0");
    return 0;
}

static int finish(struct estimator *estimator, const struct erg_yaml *yaml, struct erg_error *err)
{
    char key[64];
    if (finish_constants(&estimator->constants, yaml, err) != 0 ||
        check(yaml, "memory_fraction", estimator->memory_fraction, 0.01, 1, err) != 0)
        return -1;
    for (unsigned i = 0; i < estimator->devices_count; i++) {
        snprintf(key, sizeof key, "devices[%u]", i);
        if (finish_device(&estimator->devices[i], key, yaml, err) != 0)
            return -1;
    }
    for (unsigned i = 0; i < estimator->models_count; i++) {
        snprintf(key, sizeof key, "models[%u]", i);
        if (finish_model(&estimator->models[i], key, yaml, err) != 0)
            return -1;
    }
    return 0;
}

int estimator_load(struct estimator **estimator, const char *path, struct erg_error *err)
{
    struct erg_yaml *yaml;
    void *value;
    int result = erg_yaml_open(&yaml, path, err);
    if (result != 0)
        return -1;
    result = erg_yaml_read(yaml, &schema, &value, err);
    if (result == 0 && (result = finish(value, yaml, err)) != 0)
        erg_yaml_free(&schema, value);
    if (result == 0)
        *estimator = value;
    erg_yaml_close(yaml);
    return result;
}

void estimator_free(struct estimator *estimator)
{
    erg_yaml_free(&schema, estimator);
}

int estimator_model(const struct estimator *estimator, const char *family, const char *size,
                    const struct family_model **model, struct erg_error *err)
{
    struct erg_text known = {0};
    for (unsigned i = 0; i < estimator->models_count; i++) {
        *model = &estimator->models[i];
        if (!strcmp((*model)->family, family) && !strcmp((*model)->size, size)) {
            erg_text_release(&known);
            return 0;
        }
        erg_text_printf(&known, "%s%s %s", i ? ", " : "", (*model)->family, (*model)->size);
    }
    erg_fail(err, ERG_FAILED, "the estimator does not know the model %s %s, but %s", family, size,
             known.data);
    erg_text_release(&known);
    return -1;
}

int estimator_device(const struct estimator *estimator, const char *type,
                     const struct estimator_device **device, struct erg_error *err)
{
    struct erg_text known = {0};
    for (unsigned i = 0; i < estimator->devices_count; i++) {
        *device = &estimator->devices[i];
        if (!strcmp((*device)->type, type)) {
            erg_text_release(&known);
            return 0;
        }
        erg_text_printf(&known, "%s%s", i ? ", " : "", (*device)->type);
    }
    erg_fail(err, ERG_FAILED, "the estimator does not know the GPU type %s, but %s", type,
             known.data);
    erg_text_release(&known);
    return -1;
}

/* ---- estimates ---- */

/* Borrows the operations, which the caller frees, and the model's name. */
struct job_setting {
    struct erg_grid_ops ops;
    struct erg_text name;
    const struct family_model *model;
    struct erg_estimate_setting setting;
};

static int open_setting(struct job_setting *s, const struct estimator *estimator,
                        const struct comm_tables *tables, const struct estimator_job *job,
                        const struct erg_allocation *allocation, struct erg_error *err)
{
    const struct estimator_device *device;
    *s = (struct job_setting){0};
    if (estimator_model(estimator, job->family, job->size, &s->model, err) != 0 ||
        estimator_device(estimator, allocation->gpu_type, &device, err) != 0)
        return -1;
    erg_text_printf(&s->name, "%s %s", job->family, job->size);
    family_ops(s->model, &s->ops);
    const struct erg_estimate_request request = {
        .name = s->name.data,
        .ops = &s->ops,
        .element_bytes = s->model->half ? 2 : 4,
        .skew = family_skew(s->model, allocation->nodes * allocation->gpus_per_node),
        .batch = job->batch,
        .allocation = *allocation,
        .constants = estimator->constants,
        .flops = s->model->half ? device->half_flops : device->full_flops,
        .memory_bandwidth = device->memory_bandwidth,
        .memory_bytes = estimator->memory_fraction * device->memory_bytes,
        .network = comm_tables_network(tables),
    };
    return erg_estimate_setting_init(&s->setting, &request, err);
}

static int close_setting(struct job_setting *s, int status)
{
    free(s->ops.items);
    erg_text_release(&s->name);
    return status;
}

/* All stages in one shape, layers balanced by their forward time. */
static void make_plan(const struct erg_estimate_setting *setting, size_t stages,
                      struct erg_shape shape, struct erg_grid_plan *plan)
{
    double forward[ERG_GRID_MAX_STAGES];
    for (size_t i = 0; i < setting->layer_count; i++)
        forward[i] = erg_estimate_forward_s(setting, &setting->layers[i], shape);
    *plan = (struct erg_grid_plan){.stages = stages};
    erg_grid_split(forward, setting->layer_count, stages, plan->first);
    for (size_t i = 0; i < stages; i++)
        plan->shapes[i] = shape;
}

int estimator_fastest(const struct estimator *estimator, const struct comm_tables *tables,
                      const struct estimator_job *job, const struct erg_allocation *allocation,
                      struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct job_setting s;
    if (open_setting(&s, estimator, tables, job, allocation, err) != 0)
        return close_setting(&s, -1);
    struct erg_estimate_best best = {0};
    long gpus = allocation->nodes * allocation->gpus_per_node;
    for (long stages = 1; stages <= gpus && (size_t)stages <= s.setting.layer_count; stages *= 2) {
        long of_stage = gpus / stages;
        for (long data = 1; data <= of_stage && (double)data <= s.setting.microbatch; data *= 2) {
            struct erg_grid_plan plan;
            make_plan(&s.setting, (size_t)stages, (struct erg_shape){data, of_stage / data}, &plan);
            erg_estimate_try(&s.setting, &plan, false, &best);
            if (s.model->experts > 0 && data > 1)
                erg_estimate_try(&s.setting, &plan, true, &best);
        }
    }
    return close_setting(&s, erg_estimate_take(&s.setting, &best, estimate, err));
}

int estimator_proxy(const struct estimator *estimator, const struct comm_tables *tables,
                    const struct estimator_job *job, const struct erg_allocation *allocation,
                    struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct job_setting s;
    int status = open_setting(&s, estimator, tables, job, allocation, err);
    return close_setting(&s, status ? status : erg_estimate_proxy(&s.setting, estimate, err));
}

int estimator_plan(const struct estimator *estimator, const struct comm_tables *tables,
                   const struct estimator_job *job, const struct erg_allocation *allocation,
                   const struct erg_grid_plan *plan, bool shared_experts,
                   struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct job_setting s;
    int status = open_setting(&s, estimator, tables, job, allocation, err);
    return close_setting(
        &s, status ? status : erg_estimate_plan(&s.setting, plan, shared_experts, estimate, err));
}
